"""The journal of a dataset: one line of JSON per run in ``_runs.jsonl``, appended when the run is done.

Each shard of a job array writes its own journal (``_runs.3-of-8.jsonl``). Readers join them: the last line of a run
counts. A line that a killed writer left unfinished does not count.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from mio2trace.notes import InputError
from mio2trace.snapshot.places import journals_of

State = Literal["converted", "failed"]


class Maker(NamedTuple):
    """The properties, besides the files, that decide whether tables are up to date: the version of the program, the
    layout of its tables (`mio2trace.batch.work.layout`), and the options."""

    version: str
    layout: str
    options: str


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended. ``inputs``: the hash of each file, never a path; empty if the files could not be read. ``rows``:
    the names of its runs in the tables, if there are several. ``layout``: of its tables. ``options``: those that differ
    from the defaults. ``ended``: seconds since 1970. ``error``: one line. ``cut``: notes on its files that are cut off.
    """

    run: str
    state: State
    inputs: tuple[str, ...]
    version: str
    seconds: float
    ended: float
    error: str | None = None
    kernels: int = 0
    bytes: int = 0
    cut: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    layout: str = ""
    options: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its runs in the tables."""
        return self.rows or (self.run,)

    @property
    def maker(self) -> Maker:
        return Maker(self.version, self.layout, self.options)


class Journal:
    """The journal to which this process appends; no other process may do so at the same time."""

    def __init__(self, folder: Path, shard: tuple[int, int] | None = None) -> None:
        name = "_runs.jsonl" if shard is None else f"_runs.{shard[0]}-of-{shard[1]}.jsonl"
        self._path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise InputError(f"{folder}: cannot write there: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise InputError(f"{self._path}: is no file; expected a journal, or none")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(self._file)
                raise InputError(f"{self._path}: another batch is writing to it; expected to be the only one") from None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._write(b"\n")  # an unfinished line stays a line of its own

    @property
    def name(self) -> str:
        return self._path.name

    def add(self, entry: Entry) -> None:
        """Append a line. Raises `InputError` if it cannot be written."""
        self._write(msgspec.json.encode(entry) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from None

    def close(self) -> None:
        os.close(self._file)


def read_journals(folder: Path) -> dict[str, Entry]:
    """Return the last line of each run in all journals of a dataset."""
    last: dict[str, Entry] = {}
    for path in journals_of(folder):
        for entry in _entries(path):
            if entry.run not in last or last[entry.run].ended <= entry.ended:
                last[entry.run] = entry
    return last


def _entries(path: Path) -> Iterator[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield decoder.decode(line)


def hashes(files: Sequence[str]) -> tuple[str, ...]:
    """Return the SHA-256 of each stored file, sorted. For anything but a regular file, which may have no end, return
    its kind.

    Raises OSError.
    """
    return tuple(sorted(map(_hash, files)))


def _hash(path: str) -> str:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        return f"no file, mode {stat.S_IFMT(mode):o}"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
