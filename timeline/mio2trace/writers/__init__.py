"""Writers take a `Trace` and know no source format. A new output is a `Writer` and its modules.

Traces of ours are read again: their slices, in any form, compressed or not. A file may come from a stranger. It is
reported if it was changed, is cut off, or has parts that are not ours.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.source import Source
from mio2trace.trace import Slice, Trace
from mio2trace.writers.ending import Checked, Found, Packed, Written

if TYPE_CHECKING:
    from pathlib import Path


class Writer(msgspec.Struct, frozen=True):
    """A form of output. Its modules take time and memory to load, so they are loaded when the form is used."""

    NAME: str
    SUFFIXES: tuple[str, ...]
    """The endings of its file names, without ``.gz``."""
    LOOKS: re.Pattern[bytes]
    """The beginning of a written file, also if another program has formatted it again."""
    SLICE_BYTES: int
    """Typical bytes of a slice with its arguments, before compression."""
    GZIP_STRATEGY: int
    """The best strategy of zlib for it."""
    encoder: str
    """The module that has ``write``."""
    decoder: str
    """The module that has ``slices``."""

    def write(self, trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> int:
        """Write ``trace`` to ``file`` from front to back; return the number of bytes. ``to_pack``: in an order that
        compresses well, if possible."""
        size: int = import_module(self.encoder).write(trace, file, to_pack=to_pack)
        return size

    def slices(self, file: BinaryIO, category: str | None = None, found: Found | None = None) -> Iterator[Slice]:
        """Yield the slices of a category, or all, of a written file; other findings go into ``found``."""
        yield from import_module(self.decoder).slices(file, category, Found() if found is None else found)


_EVENTS, _ENCODER, _PACKETS = (f"{__name__}.{module}" for module in ("events", "encoder", "packets"))
chrome_json = Writer(
    "Chrome JSON", (".json",), late(rb'\s*\{\s*"displayTimeUnit"\s*:\s*"ns"\s*,\s*"metadata"\s*:'), 300,
    zlib.Z_FILTERED, _EVENTS, _EVENTS,
)  # fmt: skip
native = Writer("Perfetto, native", (".pftrace",), late(rb"\x0a"), 120, zlib.Z_DEFAULT_STRATEGY, _ENCODER, _PACKETS)
WRITERS = (chrome_json, native)


def write(writer: Writer, trace: Trace, file: BinaryIO, *, compress: bool = False) -> Written:
    """Write ``trace`` in a form, with ``compress`` as a gzip file; return its size."""
    if compress:
        with Packed(file, writer.GZIP_STRATEGY) as packed:
            size = writer.write(trace, packed, to_pack=True)  # type: ignore[arg-type]
    else:
        size = writer.write(trace, file)
    return Written(raw_bytes=size, slices=size // writer.SLICE_BYTES)


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


# -- Traces of ours, read again ----------------------------------------------------------------------------------------

_HEAD = 4096
"""Bytes in which each form names the program that wrote it."""
_GENERATOR = b"mio2trace "
NO_SUM = "trace without a checksum, of mio2trace 0.2 or changed by a program or a person: damage would not show"
REWRITTEN = "trace that another program wrote again: its checksum cannot be verified, its number of slices is right"


def is_ours(path: Path) -> bool:
    """Return whether this program wrote the trace."""
    return _writer(path) is not None


def _writer(path: Path) -> Writer | None:
    head = head_of(path)[:_HEAD]
    return next((writer for writer in WRITERS if writer.LOOKS.match(head) and _GENERATOR in head), None)


def opened(path: Path, notes: Notes) -> Source:
    """Open a trace, by its path as it was given. Raises `InputError` if it cannot be read."""
    source = Source("./-" if str(path) == "-" else str(path), 0, notes)  # no trace is read from standard input
    source.advice = ""
    return source


def head_of(path: Path) -> bytes:
    """Return the first bytes, decompressed, as far as possible."""
    with contextlib.suppress(InputError), contextlib.closing(opened(path, Notes())) as source:
        return source.head
    return b""


def slices(
    path: Path, category: str | None = None, notes: Notes | None = None, *, damaged: bool = False
) -> Iterator[Slice]:
    """Yield the slices of a category, or all; none for a file that is not ours.

    Raises `InputError` if the file cannot be read, and after the last slice if it was changed or cut off. With
    ``damaged`` that is a note, and so are doubts that cannot be checked.
    """
    writer = _writer(path)
    if writer is None:
        return
    notes = Notes() if notes is None else notes
    found, own = Found(), Notes()
    with contextlib.closing(opened(path, own)) as source:
        checked = Checked(source.blocks())
        yield from writer.slices(cast(BinaryIO, io.BufferedReader(checked, 1 << 18)), category, found)
    faults = [note.kind.partition(":")[0] for note in own]
    faults += [fault for fault in _faults(found, checked) if fault not in faults]
    if faults:
        said = f"{path.name}: not as mio2trace wrote it: {', '.join(faults)}"
        if not damaged:
            raise InputError(f"{said}; --damaged reads what is left of it")
        notes.add(said)
    elif found.end is None:
        notes.remark(NO_SUM, path.name)
    elif found.is_rewritten:
        notes.remark(REWRITTEN, path.name)


def check(path: Path, notes: Notes, *, damaged: bool) -> None:
    """Read a trace of ours only to check it. Raises like `slices`."""
    deque(slices(path, "", notes, damaged=damaged), 0)


def _faults(found: Found, checked: Checked) -> Iterator[str]:
    end = found.end
    if found.is_cut:
        yield "file cut off"
    if found.goes_on:
        yield "something follows its end"
    if found.unread:
        yield f"{found.unread} of its {'parts' if found.is_rewritten else 'lines or packets'} cannot be read"
    if found.unended:
        yield f"{found.unended} slices do not end"
    if end is not None and end.slices != found.slices:
        yield f"{found.slices} of {end.slices} slices"
    if end is not None and not found.is_rewritten and not checked.agrees(end):
        yield "its checksum differs"
