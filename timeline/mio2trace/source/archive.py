"""Zip archives of strangers: unpacked into a folder of their own under limits, or refused with the member's name.

Nothing of the archive is trusted: neither the names in it, nor the sizes that it states, nor its directory.
What `mio2trace record` and `mio2trace bundle` write holds a ``manifest.json`` that says which members are inputs.
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
    import zipfile  # imported where it is used: no other input needs it

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""Of an archive, and of an empty one."""
MANIFEST = "manifest.json"
SCHEMA = "mio2trace archive 1"
MOST_MEMBERS = 10_000
DEEPEST = 32
"""Folders in folders: each of them takes far longer to make than to name."""
_MOST_OF_A_DIRECTORY = 4 << 20
"""Bytes: the directory of an archive is read as a whole before anything can be known of it."""
_NOT_IN_A_NAME = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:")
_PACKED = (0, 8)
"""How members may be packed: not at all, deflated (APPNOTE 4.4.5)."""
_PACKED_AGAIN = (*MAGIC, b"7z\xbc\xaf\x27\x1c", b"Rar!")


class Manifest(msgspec.Struct, frozen=True):
    """What is read of an archive's ``manifest.json``, as names of members. ``inputs``: what the archive stands for;
    ``beside``: what is read together with one of them. ``reference``: inputs of a run without MIOpen's log. ``told``:
    all that stands in it, as somebody wrote it.
    """

    schema: str = ""
    inputs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    told: dict[str, Any] = {}


class Unpacked(NamedTuple):
    """A folder with the members of an archive, by their names there; ``manifest`` where it is one of ours."""

    folder: str
    members: tuple[str, ...]
    manifest: Manifest | None


class _Bounded(io.FileIO):
    """A file of which no more than a directory's size is read at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > _MOST_OF_A_DIRECTORY:
            raise ValueError(f"its directory is larger than {_MOST_OF_A_DIRECTORY >> 20} MiB")
        return super().read(size)


def is_archive(path: str) -> bool:
    """Whether a regular file begins as a zip archive does."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(4) in MAGIC
    except (OSError, ValueError):
        return False


def is_unpacked(path: str) -> bool:
    """Whether a folder holds the manifest of an archive of ours."""
    try:
        manifest = os.path.join(path, MANIFEST)
        if not os.path.isfile(manifest):
            return False  # a pipe would be waited for
        with open(manifest, "rb") as file:
            return _manifest(file.read(_MOST_OF_A_DIRECTORY)) is not None
    except (OSError, ValueError):
        return False


def unpacked_in(folder: str) -> Unpacked:
    """The members of an archive that somebody unpacked into ``folder``. Raises `InputError` for what it lacks."""
    with open(os.path.join(folder, MANIFEST), "rb") as file:
        manifest = _manifest(file.read(_MOST_OF_A_DIRECTORY))
    assert manifest is not None
    members = _named(manifest, os.path.basename(folder))
    for member in members:
        path = os.path.join(folder, member)
        if not _is_inside(member) or leads_out(path, folder) or not os.path.isfile(path):
            raise InputError(f"{os.path.basename(folder)}: {member} is missing; {MANIFEST} names it as an input")
    return Unpacked(folder, members, manifest)


@contextmanager
def unpacked(path: str, max_input: int | None = None) -> Iterator[Unpacked]:
    """The members of the archive at ``path``, in a folder that goes when the context ends.

    All of them together hold at most ``max_input`` bytes; without it as many as any compressed input may
    (`FREE_EXPANSION`, `MAX_EXPANSION`). Raises `InputError` for what is damaged, locked, too large, an archive itself,
    or named to lie elsewhere.
    """
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
        # What begins as an archive does and lacks the list of its files, which is at the end.
        problem = "file cut off" if str(error) == "File is not a zip file" else f"damaged zip archive: {error}"
        raise InputError(f"{name}: {problem}; expected a whole zip archive") from None
    except OSError as error:
        raise InputError(f"{name}: cannot unpack it: {error.strerror or error}") from None


def _members(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """The files in it. Raises `InputError` for a file that may not be unpacked."""
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
        if info.compress_type not in _PACKED:  # others take memory as they please
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
    """Whether a member's name is one below its folder."""
    parts = name.split("/")
    return not (_NOT_IN_A_NAME.search(name) or "" in parts or ".." in parts or "." in parts)


def _wanted(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str
) -> tuple[list[zipfile.ZipInfo], Manifest | None]:
    """Those that are inputs by its manifest, all where it has none of ours."""
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
    """None of somebody else's."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
        manifest = msgspec.structs.replace(manifest, told=msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return manifest if manifest.schema.startswith("mio2trace ") else None


def _named(manifest: Manifest, name: str) -> tuple[str, ...]:
    """The members that it names. Raises `InputError` where it is of another version."""
    if manifest.schema != SCHEMA:
        raise InputError(f"{name}: {MANIFEST} is of {manifest.schema!r}; expected {SCHEMA!r}")
    return tuple(dict.fromkeys((*manifest.inputs, *manifest.beside, *manifest.reference)))


def _lay(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str, left: int, name: str, most: int) -> int:
    """Write a member to ``path``; how many bytes it has. Raises `InputError` when it has more than ``left``."""
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
