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
        """What the form is called."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """How the names of its files end, without ``.gz``."""

    @property
    def LOOKS(self) -> re.Pattern[bytes]:
        """How what `write` wrote begins, also where another program has laid it out again."""

    @property
    def SLICE_BYTES(self) -> int:
        """What a slice with its arguments, and what goes with it, takes before compression: a typical number."""

    @property
    def GZIP_STRATEGY(self) -> int:
        """How zlib packs it best."""

    def write(self, trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> None:
        """Write ``trace`` to ``file``, front to back; ``to_pack``: in an order that compresses well, where it may."""

    def slices(self, file: BinaryIO, category: str | None = None, found: Found | None = None) -> Iterator[Slice]:
        """The slices of a category, or all, read back from what `write` wrote; what else is met goes into ``found``."""


WRITERS: tuple[Writer, ...] = (chrome_json, native)


def write(writer: Writer, trace: Trace, file: BinaryIO, *, compress: bool = False) -> Written:
    """Write ``trace`` in a form, with ``compress`` as a gzip file; how large it is."""
    if compress:
        with Packed(file, writer.GZIP_STRATEGY) as packed:
            return _counted(writer, trace, packed, to_pack=True)  # type: ignore[arg-type]
    return _counted(writer, trace, file, to_pack=False)


def _counted(writer: Writer, trace: Trace, file: BinaryIO, *, to_pack: bool) -> Written:
    counted = Counted(file)
    writer.write(trace, counted, to_pack=to_pack)  # type: ignore[arg-type]
    return Written(raw_bytes=counted.size, slices=counted.size // writer.SLICE_BYTES)


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
    return [form + end for writer in WRITERS for form in writer.SUFFIXES for end in ("", ".gz")]


__all__ = ["WRITERS", "Writer", "Written", "by_suffix", "suffixes", "write"]
