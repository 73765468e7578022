"""Bytes of inputs: open a path or ``-``, undo gzip and UTF-16 once, return blocks or lines, and know size and hash.

This module knows no format. A source is read once, from front to back, so that standard input works like a file. A
regular file is read up to the size that it had when it was opened, so that a growing file has an end. The decompressed
size of a compressed file is limited. A zip or tar archive is unpacked into a new folder.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late

if TYPE_CHECKING:
    import zipfile  # imported where it is used: other inputs do not need it


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
        """The file's path; empty for standard input."""
        self.name = "standard input" if path == "-" else os.path.basename(path) or path
        self.block_size = BLOCK
        self.size = 0
        """Bytes of the stored file that were read so far; all of them after the source is consumed."""
        self.notes = notes
        self._progress = progress
        self._max_input = max_input
        self.advice = "; --max-input sets another limit"
        """The end of the error for a compressed file that holds too much; another caller may have no such option."""
        self._hash = hashlib.sha256()
        self._content_hash: hashlib._Hash | None = None
        """Hash of the decoded content, if it differs from the file's own bytes."""
        self._file: BinaryIO
        self.total_bytes = 0
        """Bytes of a regular file when it was opened; 0 for any other file."""
        self._first = b""
        self.companions: list[Source] = []
        """Other files that a reader read with it: together they are one input."""
        self.named_by: Source | None = None
        """The file of these that names the input; None if it is this one."""
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
        return self.named_by or self

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
                raise InputError(f"{self.name}: {what}more than {most // 1_000_000} MB{why}{self.advice}")
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
    """Decompress one member after another, as ``gzip -d`` does. If a file is cut or damaged, return the readable part.
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
        raise InputError(f"{name}: is a folder without a CK experiment; expected a file")
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


# -- Archives from strangers: unpacked into a new folder within limits, or refused with the name of the member ---------
#
# The archive is not trusted: neither the names in it, nor the sizes that it states, nor its directory. Archives of
# `mio2trace record` and `mio2trace bundle` hold a ``manifest.json`` that names the members that are inputs.

ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of an archive, and of an empty archive."""
MANIFEST = "manifest.json"
ARCHIVE_SCHEMA = "mio2trace archive 1"
MOST_MEMBERS = 10_000
DEEPEST = 32
"""The most nested folders: each takes far longer to create than to name."""
_MOST_OF_A_DIRECTORY = 4 << 20
"""Bytes: the directory of an archive is read as a whole before anything is known about it."""
_NOT_IN_A_NAME = late(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:")
_PACKED = (0, 8)
"""Accepted compression methods: none, and deflate (APPNOTE 4.4.5)."""
_PACKED_AGAIN = (*ZIP_MAGIC, b"7z\xbc\xaf\x27\x1c", b"Rar!")
_TAR_BLOCK = 512
_PLAIN = (b"0", b"\0", b"7")
"""Types of plain files in a tar archive: of today, of old archives, and contiguous ones."""
_MOST_OF_A_HEADER = 1 << 20
"""Bytes of an extended header of a tar archive, which holds names."""
_MOST_OF_HEADERS = 16 << 20
"""Bytes of all of them: a packed archive of few kB may state many."""

_HERE = late(r"(?:\./+)+")
_OCTAL = late(rb"[0-7]{1,12}")
_DECIMAL = late(r"[0-9]{1,18}", re.ASCII)
_LENGTH = late(rb"([0-9]{1,18}) ")


_LEADS_OUT = "a name that leads out of the archive, or is none; expected a plain file"
_IS_LINK = "a link or a device in the archive; expected a plain file"
_IS_TWICE = "twice in the archive; expected it once"


class Manifest(msgspec.Struct, frozen=True):
    """The used part of an archive's ``manifest.json``, as names of members. ``inputs``: the files that the archive
    represents. ``beside``: files that are read together with one of them. ``reference``: inputs of a run without
    MIOpen's log. ``told``: the whole manifest, as somebody wrote it."""

    schema: str = ""
    inputs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    told: dict[str, Any] = {}


class Unpacked(msgspec.Struct, frozen=True):
    """A folder with the members of an archive, by their names there; with ``manifest`` if it is one of ours."""

    folder: str
    members: tuple[str, ...]
    manifest: Manifest | None


class _Bounded(io.FileIO):
    """A file of which at most the size of a directory is read at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > _MOST_OF_A_DIRECTORY:
            raise ValueError(f"its directory is larger than {_MOST_OF_A_DIRECTORY >> 20} MiB")
        return super().read(size)


def is_archive(path: str) -> bool:
    """Return whether a regular file begins like a zip archive, or like a tar archive, plain or gzipped."""
    return bool(_archive_of(path))


def _archive_of(path: str) -> str:
    """Return ``zip`` or ``tar``; empty for any other file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            head = file.read(8 * _TAR_BLOCK)
        if head.startswith(GZIP_MAGIC):
            head = zlib.decompressobj(31).decompress(head, _TAR_BLOCK)
            return "tar" if is_tar(head) else ""
        return "zip" if head.startswith(ZIP_MAGIC) else "tar" if is_tar(head) else ""
    except (OSError, ValueError, zlib.error):
        return ""


def is_tar(head: bytes) -> bool:
    """Return whether decompressed content begins like a tar archive (POSIX or GNU)."""
    return head[257:262] == b"ustar"


def is_unpacked(path: str) -> bool:
    """Return whether a folder holds the manifest of one of our archives."""
    return _read_manifest(path) is not None


def _read_manifest(folder: str) -> Manifest | None:
    try:
        path = os.path.join(folder, MANIFEST)
        if not os.path.isfile(path):
            return None  # reading from a pipe would block
        with open(path, "rb") as file:
            return _manifest(file.read(_MOST_OF_A_DIRECTORY))
    except (OSError, ValueError):
        return None


def unpacked_in(folder: str) -> Unpacked:
    """Return the members of an archive that was unpacked into ``folder``. Raises `InputError` if one is missing."""
    manifest = _read_manifest(folder)
    assert manifest is not None

    def holds(member: str) -> bool:
        path = os.path.join(folder, member)
        return _is_inside(member) and not leads_out(path, folder) and os.path.isfile(path)

    return Unpacked(folder, _named(manifest, os.path.basename(folder), holds), manifest)


@contextlib.contextmanager
def unpacked(path: str, max_input: int | None = None) -> Iterator[Unpacked]:
    """Unpack the archive at ``path`` into a folder that is removed when the context ends. All members together hold at
    most ``max_input`` bytes; without it, the limit of any compressed input (`FREE_EXPANSION`, `MAX_EXPANSION`). Raises
    `InputError` for an archive that is damaged, locked or too large, that contains an archive, or whose names lead
    elsewhere."""
    name = os.path.basename(path)
    most = max(FREE_EXPANSION, MAX_EXPANSION * os.path.getsize(path)) if max_input is None else max_input
    try:
        folder = tempfile.mkdtemp(prefix="mio2trace-")
    except OSError as error:
        raise InputError(f"{name}: cannot unpack it: {error.strerror or error}") from None
    try:
        unpack = _unpack_tar if _archive_of(path) == "tar" else _unpack
        yield unpack(path, name, folder, most)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(path: str, name: str, folder: str, most: int) -> Unpacked:
    import zipfile

    try:
        with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, name)
            wanted, manifest = _wanted(archive, members, name)
            left = most
            for info in wanted:
                left -= _lay(archive, info, os.path.join(folder, info.filename), left, name, most)
            return Unpacked(folder, tuple(info.filename for info in wanted), manifest)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        # A file that begins like an archive but lacks the list of its files, which is at the end.
        problem = "file cut off" if str(error) == "File is not a zip file" else f"damaged zip archive: {error}"
        raise InputError(f"{name}: {problem}; expected a whole zip archive") from None
    except OSError as error:
        raise InputError(f"{name}: cannot unpack it: {error.strerror or error}") from None


def _members(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """Return the files in the archive. Raises `InputError` for a file that may not be unpacked."""
    files = [info for info in archive.infolist() if not info.filename.endswith("/")]
    if len(files) > MOST_MEMBERS:
        raise InputError(f"{name}: {len(files)} files in the archive; expected at most {MOST_MEMBERS}")
    names: set[str] = set()
    for info in files:
        shown = f"{name}: {info.filename}"
        if _NOT_IN_A_NAME.search(info.orig_filename) or not _is_inside(info.filename):
            raise InputError(f"{shown}: {_LEADS_OUT}")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise InputError(f"{shown}: {_IS_LINK}")
        if info.flag_bits & 1:
            raise InputError(f"{shown}: locked with a password; expected an archive without")
        if info.compress_type not in _PACKED:  # other methods use any amount of memory
            raise InputError(f"{shown}: packed by method {info.compress_type}; expected deflate, or nothing")
        if info.filename in names:
            raise InputError(f"{shown}: {_IS_TWICE}")
        names.add(info.filename)
    _require_few_folders(names, name, set())
    return files


def _require_few_folders(names: Iterable[str], archive: str, folders: set[str]) -> None:
    """Add the folders of ``names``. Raises `InputError` if there are too many, or too many one in the other."""
    for name in names:
        if name.count("/") > DEEPEST:
            deep = name.count("/")
            raise InputError(
                f"{archive}: {name[:100]}...: {deep} folders, one in the other; expected at most {DEEPEST}"
            )
        folder = os.path.dirname(name)
        while folder and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    if len(folders) > MOST_MEMBERS:
        raise InputError(f"{archive}: {len(folders)} folders in the archive; expected at most {MOST_MEMBERS}")


def _is_inside(name: str) -> bool:
    """Return whether a member's name leads below the folder."""
    parts = name.split("/")
    return not (_NOT_IN_A_NAME.search(name) or "" in parts or ".." in parts or "." in parts)


def _wanted(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str
) -> tuple[list[zipfile.ZipInfo], Manifest | None]:
    """Return the inputs by the manifest, or all members without a manifest of ours."""
    by_name = {info.filename: info for info in members}
    if MANIFEST not in by_name:
        return members, None
    with archive.open(by_name[MANIFEST]) as file:
        text = file.read(_MOST_OF_A_DIRECTORY)
    manifest = _manifest(text)
    if manifest is None:
        return members, None
    return [by_name[one] for one in _named(manifest, name, by_name.__contains__)], manifest


def _manifest(text: bytes) -> Manifest | None:
    """Return the manifest; None if it is not ours."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
        manifest = msgspec.structs.replace(manifest, told=msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return manifest if manifest.schema.startswith("mio2trace ") else None


def _named(manifest: Manifest, name: str, holds: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the members that it names. Raises `InputError` if it is of another version, or if one is missing."""
    if manifest.schema != ARCHIVE_SCHEMA:
        raise InputError(f"{name}: {MANIFEST} is of {manifest.schema!r}; expected {ARCHIVE_SCHEMA!r}")
    named = tuple(dict.fromkeys((*manifest.inputs, *manifest.beside, *manifest.reference)))
    for member in named:
        if not holds(member):
            raise InputError(f"{name}: {member} is missing; {MANIFEST} names it as an input")
    return named


def _lay(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str, left: int, name: str, most: int) -> int:
    """Write a member to ``path`` and return its bytes. Raises `InputError` if it has more than ``left``."""
    with archive.open(info) as packed:
        return _write(iter(lambda: packed.read(BLOCK), b""), path, left, f"{name}: {info.filename}", name, most)


def _write(blocks: Iterable[bytes], path: str, left: int, shown: str, name: str, most: int) -> int:
    """Write a member, ``shown`` in messages, and return its bytes. Raises `InputError` if it has more than ``left``, or
    is an archive."""
    size = 0
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        for block in blocks:
            if not size and block.startswith(_PACKED_AGAIN):
                raise InputError(f"{shown}: an archive in an archive; expected logs and profiles")
            size += len(block)
            if size > left:
                raise InputError(f"{name}: unpacked, more than {most // 1_000_000} MB; --max-input sets another limit")
            file.write(block)
    return size


# -- Tar archives, plain or gzipped: one pass over the blocks, in which only plain files are written -------------------


class _TarFile(msgspec.Struct, frozen=True):
    """A header of a tar archive: ``kind`` is its type flag."""

    name: str
    kind: bytes
    size: int


class _Blocks:
    """The decoded content of an archive, read in exact sizes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = memoryview(b"")

    def some(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``; empty at the end."""
        if not self._held:
            self._held = memoryview(next(self._blocks, b""))
        made, self._held = bytes(self._held[:most]), self._held[most:]
        return made

    def exactly(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in blocks. Raises EOFError if the archive ends before."""
        while size:
            block = self.some(size)
            if not block:
                raise EOFError
            size -= len(block)
            yield block


def _unpack_tar(path: str, name: str, folder: str, most: int) -> Unpacked:
    notes = Notes()
    members: set[str] = set()
    folders: set[str] = set()
    try:
        with contextlib.closing(Source(path, 0, notes, max_input=most)) as source:
            blocks = _Blocks(source.blocks())
            left = most
            for member in _tar_files(blocks, name):
                shown = f"{name}: {member.name}"
                if not _is_inside(member.name):
                    raise InputError(f"{shown}: {_LEADS_OUT}")
                if member.name in members:
                    raise InputError(f"{shown}: {_IS_TWICE}")
                members.add(member.name)
                if len(members) > MOST_MEMBERS:
                    raise InputError(f"{name}: more than {MOST_MEMBERS} files in the archive; expected fewer")
                _require_few_folders((member.name,), name, folders)
                content = blocks.exactly(member.size)
                left -= _write(content, os.path.join(folder, member.name), left, shown, name, most)
                for _ in blocks.exactly(-member.size % _TAR_BLOCK):
                    pass
            while block := blocks.some(BLOCK):
                if block.strip(b"\0"):
                    raise InputError(f"{name}: content behind the end of the archive; expected one tar archive")
    except EOFError:
        raise InputError(f"{name}: file cut off; expected a whole tar archive") from None
    except ValueError as error:
        raise InputError(f"{name}: damaged tar archive: {error}; expected a whole tar archive") from None
    except OSError as error:
        raise InputError(f"{name}: cannot unpack it: {error.strerror or error}") from None
    if notes.problems:
        raise InputError(f"{name}: {notes.problems[0].kind.partition(':')[0]}; expected a whole tar archive")
    manifest = _read_manifest(folder)
    named = sorted(members) if manifest is None else _named(manifest, name, members.__contains__)
    return Unpacked(folder, tuple(named), manifest)


def _tar_files(blocks: _Blocks, name: str) -> Iterator[_TarFile]:
    """Yield the plain files; the caller reads the content of each. Raises EOFError without the block of zeros that ends
    an archive, `InputError` for a link or a device, ValueError for a damaged header."""
    stated: dict[str, str] = {}
    headers = extended = 0
    while (header := b"".join(blocks.exactly(_TAR_BLOCK))).strip(b"\0"):
        headers += 1
        if headers > 5 * MOST_MEMBERS:
            raise InputError(f"{name}: more than {5 * MOST_MEMBERS} headers in the archive; expected fewer")
        member = _tar_header(header)
        if member.kind in (b"x", b"g", b"L", b"K"):
            if member.size > _MOST_OF_A_HEADER:
                raise ValueError(f"a header of more than {_MOST_OF_A_HEADER >> 20} MiB")
            extended += member.size
            if extended > _MOST_OF_HEADERS:
                most = _MOST_OF_HEADERS >> 20
                raise InputError(f"{name}: more than {most} MiB of headers in the archive; expected less")
            text = b"".join(blocks.exactly(member.size + -member.size % _TAR_BLOCK))[: member.size]
            if member.kind == b"L":
                stated["path"] = os.fsdecode(text.rstrip(b"\0"))
            elif member.kind == b"x":
                stated |= _pax(text)
            continue
        path = stated.get("path", member.name)
        if (here := _HERE.match(path)) is not None:  # before the names of a folder's files
            path = path[here.end() :]
        if not _DECIMAL.fullmatch(stated.get("size", "0")):
            raise ValueError("an extended header with a size that is none")
        size = int(stated.get("size", member.size))
        is_sparse = any(key.startswith("GNU.sparse.") for key in stated)
        stated = {}
        if member.kind == b"5" or (member.kind in _PLAIN and path.endswith("/")):
            if size:
                raise ValueError("a folder with content")
            continue
        if member.kind not in _PLAIN or is_sparse:
            raise InputError(f"{name}: {path}: {_IS_LINK}")
        yield _TarFile(path, b"0", size)


def _tar_header(block: bytes) -> _TarFile:
    """Return the fields of a header that are used. Raises ValueError if its checksum is wrong."""
    if _tar_number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise ValueError("a header with a wrong checksum")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return _TarFile(os.fsdecode(prefix + b"/" + name if prefix else name), block[156:157], _tar_number(block[124:136]))


def _tar_number(field: bytes) -> int:
    """Return a number in octal digits, or in GNU's binary form. Raises ValueError for anything else."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ") or b"0"
    if not _OCTAL.fullmatch(digits):
        raise ValueError("a header with a number that is none")
    return int(digits, 8)


def _pax(text: bytes) -> dict[str, str]:
    """Return the records of an extended header, each ``LENGTH KEY=VALUE`` and a line feed."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        length = _LENGTH.match(text, at)
        end = at + int(length[1]) if length is not None else 0
        if length is None or not length.end() < end <= len(text) or text[end - 1 : end] != b"\n":
            raise ValueError("an extended header without its lengths")
        key, _, value = text[length.end() : end - 1].partition(b"=")
        found[os.fsdecode(key)] = os.fsdecode(value)
        at = end
    return found
