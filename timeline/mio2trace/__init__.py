"""mio2trace: show which layer, operation and kernel the GPU time goes to.

    import mio2trace
    mio2trace.convert("run.log", "prof.json", output="out.pftrace")
    run = mio2trace.load("run.log", "prof.json")
    run.problems().head(10)

`convert` writes a trace. `load` returns the tables of a run. `analyse` returns the joined content of the files. An
unusable input raises `InputError` with a message of one line. A wrong option raises `OptionError`, a ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mio2trace.align import Alignment
    from mio2trace.analysis import Analysis, AnalysisOptions, Run, analyse
    from mio2trace.comparing import Comparison, compare
    from mio2trace.conversion import Conversion, convert
    from mio2trace.dataset import LoadedRun, Table, load
    from mio2trace.files import Input
    from mio2trace.notes import InputError, Note, Notes, OptionError

__version__ = "0.3.0"
__all__ = [
    "Alignment", "Analysis", "AnalysisOptions", "Comparison", "Conversion", "Input", "InputError", "LoadedRun", "Note",
    "Notes", "OptionError", "Run", "Table", "__version__", "analyse", "compare", "convert", "load",
]  # fmt: skip
_ROOMS = {
    "Alignment": "align", "Analysis": "analysis", "AnalysisOptions": "analysis", "Comparison": "comparing",
    "Conversion": "conversion", "Input": "files", "InputError": "notes", "LoadedRun": "dataset", "Note": "notes",
    "Notes": "notes", "OptionError": "notes", "Run": "analysis", "Table": "dataset", "analyse": "analysis",
    "compare": "comparing", "convert": "conversion", "load": "dataset",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load the program on first use: `mio2trace --help` needs none of it."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'mio2trace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"mio2trace.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
