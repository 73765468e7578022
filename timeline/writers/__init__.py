"""Writers take a `Trace` and know no source format. A new output is one module and one row of `WRITERS`."""

from __future__ import annotations

from typing import BinaryIO, Protocol

from timeline.trace import Trace
from timeline.writers import chrome_json


class Writer(Protocol):
    """What an output module offers."""

    @property
    def NAME(self) -> str:
        """What the form is called."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """How the names of its files end, without ``.gz``."""

    def write(self, trace: Trace, file: BinaryIO) -> None:
        """Write ``trace`` to ``file``, front to back."""


WRITERS: tuple[Writer, ...] = (chrome_json,)


def by_suffix(path: str) -> tuple[Writer, bool] | None:
    """The writer for an output path and whether to compress; standard output (``-``) gets the first writer's form."""
    if path == "-":
        return WRITERS[0], False
    name = path.lower()
    compress = name.endswith(".gz")
    name = name.removesuffix(".gz")
    for writer in WRITERS:
        if name.endswith(writer.SUFFIXES):
            return writer, compress
    return None


def suffixes() -> list[str]:
    """Every suffix that an output path may have."""
    return [form + end for writer in WRITERS for form in writer.SUFFIXES for end in ("", ".gz")]
