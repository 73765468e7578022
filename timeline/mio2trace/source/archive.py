"""Zip archives from strangers: unpacked into a new folder within limits, or refused with the name of the member.

The archive is not trusted: neither the names in it, nor the sizes that it states, nor its directory. Archives of
`mio2trace record` and `mio2trace bundle` hold a ``manifest.json`` that names the members that are inputs.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mio2trace.notes import InputError
from mio2trace.source import BLOCK, FREE_EXPANSION, MAX_EXPANSION, leads_out

if TYPE_CHECKING:
    import zipfile  # imported where it is used: other inputs do not need it

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of an archive, and of an empty archive."""
MANIFEST = "manifest.json"
SCHEMA = "mio2trace archive 1"
MOST_MEMBERS = 10_000
DEEPEST = 32
"""The most nested folders: each takes far longer to create than to name."""
_MOST_OF_A_DIRECTORY = 4 << 20
"""Bytes: the directory of an archive is read as a whole before anything is known about it."""
_NOT_IN_A_NAME = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:")
_PACKED = (0, 8)
"""Accepted compression methods: none, and deflate (APPNOTE 4.4.5)."""
_PACKED_AGAIN = (*MAGIC, b"7z\xbc\xaf\x27\x1c", b"Rar!")


class Manifest(msgspec.Struct, frozen=True):
    """The used part of an archive's ``manifest.json``, as names of members. ``inputs``: the files that the archive
    represents. ``beside``: files that are read together with one of them. ``reference``: inputs of a run without
    MIOpen's log. ``told``: the whole manifest, as somebody wrote it."""

    schema: str = ""
    inputs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    told: dict[str, Any] = {}


class Unpacked(NamedTuple):
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
    """Return whether a regular file begins like a zip archive."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(4) in MAGIC
    except (OSError, ValueError):
        return False


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
    members = _named(manifest, os.path.basename(folder))
    for member in members:
        path = os.path.join(folder, member)
        if not _is_inside(member) or leads_out(path, folder) or not os.path.isfile(path):
            raise InputError(f"{os.path.basename(folder)}: {member} is missing; {MANIFEST} names it as an input")
    return Unpacked(folder, members, manifest)


@contextmanager
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
        yield _unpack(path, name, folder, most)
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
            raise InputError(f"{shown}: a name that leads out of the archive, or is none; expected a plain file")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise InputError(f"{shown}: a link or a device in the archive; expected a plain file")
        if info.flag_bits & 1:
            raise InputError(f"{shown}: locked with a password; expected an archive without")
        if info.compress_type not in _PACKED:  # other methods use any amount of memory
            raise InputError(f"{shown}: packed by method {info.compress_type}; expected deflate, or nothing")
        if info.filename in names:
            raise InputError(f"{shown}: twice in the archive; expected it once")
        names.add(info.filename)
    _require_few_folders(names, name)
    return files


def _require_few_folders(names: Iterable[str], archive: str) -> None:
    folders: set[str] = set()
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
    named = _named(manifest, name)
    missing = [one for one in named if one not in by_name]
    if missing:
        raise InputError(f"{name}: {missing[0]} is missing; {MANIFEST} names it as an input")
    return [by_name[one] for one in named], manifest


def _manifest(text: bytes) -> Manifest | None:
    """Return the manifest; None if it is not ours."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
        manifest = msgspec.structs.replace(manifest, told=msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return manifest if manifest.schema.startswith("mio2trace ") else None


def _named(manifest: Manifest, name: str) -> tuple[str, ...]:
    """Return the members that it names. Raises `InputError` if it is of another version."""
    if manifest.schema != SCHEMA:
        raise InputError(f"{name}: {MANIFEST} is of {manifest.schema!r}; expected {SCHEMA!r}")
    return tuple(dict.fromkeys((*manifest.inputs, *manifest.beside, *manifest.reference)))


def _lay(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str, left: int, name: str, most: int) -> int:
    """Write a member to ``path`` and return its bytes. Raises `InputError` if it has more than ``left``."""
    size = 0
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with archive.open(info) as packed, open(path, "xb") as file:
        while block := packed.read(BLOCK):
            if not size and block.startswith(_PACKED_AGAIN):
                raise InputError(f"{name}: {info.filename}: an archive in an archive; expected logs and profiles")
            size += len(block)
            if size > left:
                raise InputError(f"{name}: unpacked, more than {most // 1_000_000} MB; --max-input sets another limit")
            file.write(block)
    return size
