"""Writers take a `Trace` and know no source format. A new output is one module and one row of `WRITERS`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from mio2trace.trace import Slice, Trace
from mio2trace.writers import chrome_json, native
from mio2trace.writers.ending import Counted, Found, Packed, Written


class Writer(Protocol):
    """What an output module offers."""

    @property
    def NAME(self) -> str:
        """The name of the form."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """The endings of its file names, without ``.gz``."""

    @property
    def LOOKS(self) -> re.Pattern[bytes]:
        """The beginning of a written file, also if another program has formatted it again."""

    @property
    def SLICE_BYTES(self) -> int:
        """Typical bytes of a slice with its arguments, before compression."""

    @property
    def GZIP_STRATEGY(self) -> int:
        """The best strategy of zlib for it."""

    def write(self, trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> None:
        """Write ``trace`` to ``file`` from front to back. ``to_pack``: in an order that compresses well, if
        possible."""

    def slices(self, file: BinaryIO, category: str | None = None, found: Found | None = None) -> Iterator[Slice]:
        """Return the slices of a category, or all, of a written file; other findings go into ``found``."""


WRITERS: tuple[Writer, ...] = (chrome_json, native)


def write(writer: Writer, trace: Trace, file: BinaryIO, *, compress: bool = False) -> Written:
    """Write ``trace`` in a form, with ``compress`` as a gzip file; return its size."""
    if compress:
        with Packed(file, writer.GZIP_STRATEGY) as packed:
            return _counted(writer, trace, packed, to_pack=True)  # type: ignore[arg-type]
    return _counted(writer, trace, file, to_pack=False)


def _counted(writer: Writer, trace: Trace, file: BinaryIO, *, to_pack: bool) -> Written:
    counted = Counted(file)
    writer.write(trace, counted, to_pack=to_pack)  # type: ignore[arg-type]
    return Written(raw_bytes=counted.size, slices=counted.size // writer.SLICE_BYTES)


def by_suffix(path: str) -> tuple[Writer, bool] | None:
    """Return the writer for an output path, and whether to compress; standard output (``-``) gets the first writer's
    form."""
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
    return [form + end for writer in WRITERS for form in writer.SUFFIXES for end in ("", ".gz")]


__all__ = ["WRITERS", "Writer", "Written", "by_suffix", "suffixes", "write"]
