"""Bytes of inputs: open a path or ``-``, undo gzip and UTF-16 once, return blocks or lines, and know size and hash.

This module knows no format. A source is read once, from front to back, so that standard input works like a file. A
regular file is read up to the size that it had when it was opened, so that a growing file has an end. The decompressed
size of a compressed file is limited.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import BinaryIO

from mio2trace.notes import InputError, Notes

BLOCK = 256 << 10
"""Small enough that a block and its decoded content stay in the processor's cache: half the time of 4 MB blocks."""
HEAD = 64 << 10
MAX_GZIP_LAYERS = 3
MOST_UNKNOWN = 64 << 20
MOST_AT_ONCE = 1 << 30
"""Limits in bytes for an input that may have no end: without any known record, and read into memory as a whole."""
FREE_EXPANSION = 256 << 20
MAX_EXPANSION = 200
"""Above the first 256 MB, a compressed file may hold this many times its size: logs and profiles stay below 100."""


class Source:
    """One input. ``head``: its first 64 KiB, decompressed. `blocks`, `lines` and `read` each consume it. ``progress``:
    is called with the name, the bytes read, and all bytes (0 if unknown). ``max_input``: limits the decoded bytes;
    without it only compressed files are limited (`FREE_EXPANSION`, `MAX_EXPANSION`). Raises `InputError` if the path
    cannot be opened or read, or if the input holds more."""

    def __init__(
        self,
        path: str,
        index: int,
        notes: Notes,
        stdin: BinaryIO | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        max_input: int | None = None,
    ) -> None:
        self.index = index
        self.path = "" if path == "-" else path
        """Of the file; empty for standard input."""
        self.name = "standard input" if path == "-" else os.path.basename(path) or path
        self.block_size = BLOCK
        self.size = 0
        """Bytes of the stored file that were read so far; all of them after the source is consumed."""
        self.notes = notes
        self._progress = progress
        self._max_input = max_input
        self._hash = hashlib.sha256()
        self._content_hash: hashlib._Hash | None = None
        """Hash of the decoded content, if it differs from the file's own bytes."""
        self._file: BinaryIO
        self.total_bytes = 0
        """Bytes of a regular file when it was opened; 0 for any other file."""
        self._first = b""
        self.companions: list[Source] = []
        """Other files that a reader read with it: together they are one input."""
        self._lead: Source | None = None
        self.stopped = False
        """Whether it may have no end, and was not read further."""
        self._resized = False
        if path == "-":
            stream = stdin if stdin is not None else getattr(sys.stdin, "buffer", None)
            if stream is None:
                raise InputError("standard input: closed; expected a log or a profile")
            self._file = stream
        else:
            try:
                mode = os.stat(path).st_mode
                refuse_what_is_no_file(self.name, mode)
                if stat.S_ISFIFO(mode) and os.path.exists(os.path.realpath(path)):  # not a shell's, which has no path
                    self._file, self._first = opened_pipe(path, self.name, self.block_size)
                else:
                    self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
                self.total_bytes = os.fstat(self._file.fileno()).st_size
            except ValueError:  # a NUL in the path
                raise InputError(f"{path}: no valid path; expected that of a file") from None
            except OSError as error:
                raise InputError(f"{path}: {error.strerror or error}") from None
        self._has_end = has_end(self._file)
        self._pending: list[bytes] = []
        size = 0
        try:
            self._decoded = self._decode()
            while size < HEAD:
                block = next(self._decoded, b"")
                if not block:
                    break
                self._pending.append(block)
                size += len(block)
        except BaseException:
            self.close()
            raise
        self.head = b"".join(self._pending)[:HEAD]

    @property
    def lead(self) -> Source:
        """The file that names the input, whichever of the files that belong together was given."""
        return self._lead or self

    @lead.setter
    def lead(self, source: Source) -> None:
        self._lead = None if source is self else source

    @property
    def sha256(self) -> str:
        """The hash of the stored file. The source must be closed, and consumed if the whole file counts."""
        return self._hash.hexdigest()

    @property
    def content_sha256(self) -> str:
        """The hash of the decoded content, equal for a file and its gzipped copy. The source must be closed."""
        return (self._content_hash or self._hash).hexdigest()

    @property
    def plain_path(self) -> str:
        """The path of a file that needs no decoding, for readers that need more than a stream; else empty."""
        is_within = self._max_input is None or self.total_bytes <= self._max_input
        return self.path if self.total_bytes and self._content_hash is None and is_within else ""

    def require_room(self, more: int) -> None:
        """Raises `InputError` if this file and ``more`` bytes beside it exceed ``max_input``."""
        most = self._max_input
        if most is not None and self.total_bytes + more > most:
            size = f"more than {most // 1_000_000} MB"
            raise InputError(f"{self.name}: with its journal, {size}; --max-input sets another limit")

    def companion(self, path: str) -> Source | None:
        """Open a file that belongs to this one, under the same limits; None if it does not exist. Both are closed
        together. Raises `InputError` like opening this one."""
        if not self.path or not os.path.isfile(path):
            return None
        made = Source(path, self.index, self.notes, progress=self._progress, max_input=self._max_input)
        self.companions.append(made)
        return made

    def blocks(self) -> Iterator[bytes]:
        """The decoded content in blocks."""
        pending, self._pending = self._pending, []
        for block in chain(pending, self._decoded):
            if self._content_hash is not None:
                self._content_hash.update(block)
            yield block

    def lines(self) -> Iterator[bytes]:
        """The decoded content line by line, each with its end."""
        rest: list[bytes] = []
        for block in self.blocks():
            lines = block.splitlines(keepends=True) if b"\r" not in block else split_keeping_cr(block)
            if rest:
                if len(lines) == 1 and not block.endswith(b"\n"):
                    rest.append(block)
                    continue
                lines[0] = b"".join((*rest, lines[0]))
                rest.clear()
            if not block.endswith(b"\n"):
                rest.append(lines.pop())
            yield from lines
        if rest:
            yield b"".join(rest)

    def blocks_while(self, known: Callable[[], object]) -> Iterator[bytes]:
        """Yield blocks. An input that may have no end ends `MOST_UNKNOWN` bytes after the last change of ``known``."""
        last, size = known(), 0
        for block in self.blocks():
            yield block
            now = known()
            size = size + len(block) if now == last else 0
            last = now
            if not self._has_end and size > (self._max_input or MOST_UNKNOWN):
                self._stop("without anything known")
                return

    def read(self) -> bytes:
        """Return the whole decoded content. Raises `InputError` if it may have no end and exceeds the memory."""
        blocks, size = [], 0
        for block in self.blocks():
            blocks.append(block)
            size += len(block)
            if not self._has_end and self._max_input is None and size > MOST_AT_ONCE:
                raise InputError(
                    f"{self.name}: more than {MOST_AT_ONCE >> 20} MiB from a pipe; --max-input sets another limit"
                )
        return b"".join(blocks)

    def drain(self) -> None:
        """Read the rest of the source, so that size and hashes are those of the whole file."""
        for _ in self.blocks_while(bool) if self._content_hash is not None else ():
            pass
        for other in self.companions:
            other.drain()
        left = self.size
        for _ in self._raw():
            if not self._has_end and self.size - left > (self._max_input or MOST_UNKNOWN):
                self._stop("after the end of what is known")

    def _stop(self, where: str) -> None:
        self.stopped = True
        self.notes.add(f"more than {MOST_UNKNOWN >> 20} MiB {where}: read up to there", self.name)

    def close(self) -> None:
        """Close the file (but not standard input)."""
        self._decoded = iter(())
        if self.path:
            self._file.close()
        for other in self.companions:
            other.close()

    def _raw(self) -> Iterator[bytes]:
        while not self.stopped:
            try:
                most = self.block_size
                left = self.total_bytes - self.size if self.total_bytes else most
                block, self._first = self._first, b""
                block = block or self._file.read(min(most, left))
            except OSError as error:
                raise InputError(f"{self.name}: {error.strerror or error} after {self.size} bytes") from None
            if not block:
                if self.total_bytes and not self._resized and os.fstat(self._file.fileno()).st_size != self.total_bytes:
                    self._resized = True
                    self.notes.add("file changed its size while it was read", f"{self.name}: read {self.size} bytes")
                return
            self.size += len(block)
            self._hash.update(block)
            if self._progress is not None:
                self._progress(self.name, self.size, self.total_bytes)
            yield block

    def _limited(self, blocks: Iterator[bytes], packed: bool = True) -> Iterator[bytes]:
        """Yield the same blocks, unless they exceed the limit."""
        size = 0
        for block in blocks:
            size += len(block)
            most = self._max_input
            if most is None and packed:
                most = max(FREE_EXPANSION, MAX_EXPANSION * self.size)
            if most is not None and size > most:
                what = "once decompressed, " if packed else ""
                why = "" if self._max_input is not None else f" and {MAX_EXPANSION} times its size"
                raise InputError(
                    f"{self.name}: {what}more than {most // 1_000_000} MB{why}; --max-input sets another limit"
                )
            yield block

    def _decode(self) -> Iterator[bytes]:
        """Yield decoded blocks; none is empty."""
        blocks: Iterator[bytes] = self._raw()
        if self._max_input is not None:
            blocks = self._limited(blocks, packed=False)
        for _ in range(MAX_GZIP_LAYERS):
            first, blocks = peek(blocks)
            if not first.startswith(GZIP_MAGIC):
                break
            blocks = self._limited(gunzip(blocks, self.block_size, self.name, lambda: self.size, self.notes))
            self._content_hash = hashlib.sha256()
        first, blocks = peek(blocks)
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            blocks = transcode(blocks)
            self._content_hash = hashlib.sha256()
        elif first.startswith(codecs.BOM_UTF8):
            self._content_hash = hashlib.sha256()
            blocks = joined(next(blocks)[len(codecs.BOM_UTF8) :], blocks)
        return filter(None, blocks)


# -- Decoding, block by block: gzip, UTF-16, byte order marks, line ends -----------------------------------------------

GZIP_MAGIC = b"\x1f\x8b"
MARK_BYTES = len(codecs.BOM_UTF8)


def gunzip(
    blocks: Iterator[bytes], block_size: int, name: str, bytes_read: Callable[[], int], notes: Notes
) -> Iterator[bytes]:
    """Decompress one member after another, as ``gzip -d`` does; of a cut or damaged file, return the readable part.
    Blocks have at most ``block_size`` bytes. ``bytes_read``: of the file so far, for messages. Raises `InputError` if
    nothing can be read."""
    decoder = zlib.decompressobj(31)
    fresh, members, empty = True, 0, True
    for block in blocks:
        while block:
            if fresh and members:
                block = block.lstrip(b"\0")  # padding from a tape or a disk
                if block and not block.startswith(GZIP_MAGIC[: len(block)]):
                    notes.add("bytes after the end of the gzip data ignored", name)
                    return
                if not block:
                    break
            fresh = False
            while block:
                before = decoder.copy()
                try:
                    out = decoder.decompress(block, block_size)
                except zlib.error as error:
                    out = _up_to_the_damage(before, block)
                    if not out and empty:
                        raise InputError(f"{name}: damaged gzip data, nothing can be read: {error}") from None
                    notes.add("gzip data damaged: read up to there", f"{name}: {error}")
                    yield out
                    return
                empty = empty and not out
                yield out
                block = decoder.unconsumed_tail
            if decoder.eof:
                block = decoder.unused_data
                decoder, fresh, members = zlib.decompressobj(31), True, members + 1
    if not fresh:
        if empty and not members:
            raise InputError(f"{name}: file cut off after {bytes_read()} bytes of gzip data, before any content")
        notes.cut_off(name)


def _up_to_the_damage(decoder: zlib._Decompress, block: bytes) -> bytes:
    """Return the part of a damaged ``block`` that can be decoded; zlib itself returns a whole block or nothing."""
    out: list[bytes] = []
    try:
        for position in range(len(block)):
            out.append(decoder.decompress(block[position : position + 1]))
    except zlib.error:
        pass
    return b"".join(out)


def peek(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, enough for a byte order mark, and all blocks, however small they are."""
    first = b""
    for block in blocks:
        first += block
        if len(first) >= MARK_BYTES:
            break
    return first, joined(first, blocks)


def joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """Yield one block, unless it is empty, before the others."""
    if first:
        yield first
    yield from rest


def split_keeping_cr(block: bytes) -> list[bytes]:
    """Split at line feeds only: a lone carriage return (a progress bar) does not end a line."""
    lines = [line + b"\n" for line in block.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def transcode(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert UTF-16 with a byte order mark to UTF-8; damaged characters become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for block in blocks:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


# -- Opening: files, inputs that may have no end, and named pipes that wait for their writer ---------------------------

WRITER_S = 5
"""Seconds to wait until somebody writes to a named pipe."""


def refuse_what_is_no_file(name: str, mode: int) -> None:
    """Refuse a directory or a device. A pipe is accepted: a shell hands over the output of a command as a pipe."""
    if stat.S_ISDIR(mode):
        raise InputError(f"{name}: is a directory that holds no CK experiment; expected a file")
    for is_it, what in ((stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device")):
        if is_it(mode):
            raise InputError(f"{name}: is a {what}; expected a file")


def has_end(file: BinaryIO) -> bool:
    """Return whether it is a regular file, or is in memory."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return True


def leads_out(path: str, folder: str) -> bool:
    """Return whether a path below ``folder`` leads out of it by a link, which the author of the folder made."""
    real = os.path.join(os.path.realpath(folder), "")
    return not os.path.join(os.path.realpath(path), "").startswith(real)


def opened_pipe(path: str, name: str, block_size: int) -> tuple[BinaryIO, bytes]:
    """Open a named pipe and return the bytes written so far, at most ``block_size``. Raises `InputError` if there is no
    writer for `WRITER_S`."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    until = time.monotonic() + WRITER_S
    try:
        first = b""
        with contextlib.suppress(BlockingIOError):  # the writer has written nothing yet
            while not (first := os.read(handle, block_size)):
                if time.monotonic() > until:
                    raise InputError(f"{name}: is a named pipe that nobody writes to; expected a file")
                time.sleep(0.01)
        os.set_blocking(handle, True)
        return open(handle, "rb"), first
    except BaseException:
        os.close(handle)
        raise
