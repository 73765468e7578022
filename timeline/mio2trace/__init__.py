"""mio2trace: which layer, which operation and which kernel the GPU time went into.

    import mio2trace
    mio2trace.convert("run.log", "prof.json", output="out.json")

`convert` is the one public call; it is documented in `mio2trace.conversion`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mio2trace.conversion import Conversion, convert

__version__ = "0.1.0"
__all__ = ["Conversion", "__version__", "convert"]


def __getattr__(name: str) -> Any:
    """Load the program only when it is used: `mio2trace --help` needs none of it."""
    if name in ("Conversion", "convert"):
        from mio2trace import conversion

        return getattr(conversion, name)
    raise AttributeError(name)
