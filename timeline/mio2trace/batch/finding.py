"""Find the runs in folders by the first bytes of files and by their names; no file is read as a whole.

Folders in a folder hold its runs. Folders that are named for ranks, and a log beside one folder of profiles, are one
run. All files of a folder are one run if it has one profile, or if all profiles are of processes of one job
(``rank0.json``, ``4711_results.db``, tables of a set). Otherwise files with the same beginning are one run: ``a.log``,
``a.prof.json``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from mio2trace.analysis import HOMES
from mio2trace.notes import LEADS_OUT, InputError, Notes
from mio2trace.outgoing import visible
from mio2trace.privacy import Cleaner
from mio2trace.readers import PROFILES, READERS, refusal, run_log
from mio2trace.runs import is_of_rank
from mio2trace.source import ZIP_MAGIC, Source, is_tar, leads_out

JOURNAL = "_runs"
"""The journals of a dataset begin with this name; a folder with a journal holds no runs."""
_DATABASE = b"SQLite format 3\0"
_DATA_SUFFIX = re.compile(
    r"\.(json|db|sqlite3?|rpd|csv|log|txt|out|trace|pftrace|tfprof|zip|tar|tgz)(\.gz)?$", re.IGNORECASE
)
_PROFILE_LIKE = re.compile(r"prof|trace|results|\.(?:db|rpd)(?:\.gz)?$", re.IGNORECASE)
_OF_PROCESS = re.compile(r"^\d+_(?=results|agent_info|[a-z_]+_trace|[a-z_]+_stats)", re.IGNORECASE)
"""rocprofv3 begins the names of the files of a process like this."""
_OF_RANK = re.compile(r"(?<![a-z])(?:rank|r)[ _-]?\d{1,9}(?!\d)", re.IGNORECASE)
_FIRST_RANK = re.compile(r"rank|r[ _.-]?0$", re.IGNORECASE)
_WHAT = re.compile(
    r"(?:^|[-_ ])(?:results?|kernel|hip|hsa|rccl|marker|memory|copy|allocation|scratch|api|agent|info|stats|counter|"
    r"collection|trace|traces|profile|prof|run|log|stdout|stderr|output)$",
    re.IGNORECASE,
)
Kind = Literal["profile", "log", "archive", "other", "unknown"]
"""``other``: known not to belong to a run, such as a trace that this program wrote."""


class FoundRun(NamedTuple):
    """A run: its name, cleaned by the rules of docs/privacy.md, its files, their size in bytes."""

    name: str
    files: tuple[str, ...]
    size: int


class _File(NamedTuple):
    path: str
    kind: Kind
    size: int

    @property
    def stem(self) -> str:
        return os.path.basename(self.path).partition(".")[0] or "run"

    @property
    def key(self) -> str:
        """The beginning of its name, without words for the content, the rank and the process."""
        name, _, rest = os.path.basename(self.path).partition(".")
        name = _OF_PROCESS.sub("", name, count=1)
        if _OF_RANK.fullmatch(rest.partition(".")[0]):  # run.rank0.log
            name = _WHAT.sub("", name)
        name = _OF_RANK.sub("", name)
        while (shorter := _WHAT.sub("", name)) != name:
            name = shorter
        return name.strip("-_ ")

    @property
    def is_no_profile(self) -> bool:
        """Whether it looks like a profile only by its name."""
        name = os.path.basename(self.path)
        return self.kind == "unknown" and bool(_DATA_SUFFIX.search(name) and _PROFILE_LIKE.search(name))

    @property
    def is_of_process(self) -> bool:
        """Whether its name names one process of a job."""
        name = os.path.basename(self.path)
        return bool(_OF_PROCESS.search(name) or _OF_RANK.search(name))


class _Folder(NamedTuple):
    path: str
    name: str
    files: list[_File]
    folders: list[_Folder]

    @property
    def below(self) -> Iterator[_File]:
        yield from self.files
        for folder in self.folders:
            yield from folder.below


def find_runs(paths: Sequence[str], notes: Notes, leave_out: str = "") -> list[FoundRun]:
    """Return the runs in files and folders, by name; files that are no runs are counted in ``notes``. ``leave_out``:
    the dataset.

    Raises `InputError` for a missing path.
    """
    visited = {os.path.realpath(leave_out)} if leave_out else set()
    found: list[tuple[str, list[_File]]] = []
    alone: list[_File] = []
    for path in paths:
        if os.path.isdir(path):
            folder = _scanned(path, _first_name(path), visited, notes, os.path.realpath(path))
            found += [] if folder is None else _runs_of(folder, notes)
        elif os.path.lexists(path):
            alone.append(_file(path, _size(path)))
        else:
            raise InputError(f"{path}: no such file or folder; expected folders of runs, or files")
    found += _grouped(_Folder("", "", alone, []))
    return _named(found)


def _first_name(path: str) -> str:
    """Return the folder's name as given; empty if it is named for a person, or consists of dots."""
    name = os.path.basename(os.path.normpath(path))
    person = os.path.basename(os.path.dirname(os.path.realpath(path))) in HOMES
    return "" if person or name in ("", ".", "..") else name


def _size(path: str) -> int:
    """Return the bytes of a regular file; -1 for a pipe, a device, or a file whose size is unknown."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return -1


def _scanned(path: str, name: str, visited: set[str], notes: Notes, root: str) -> _Folder | None:
    """Return a folder and the folders in it; None if it was visited already or is a dataset. ``root``: the place of the
    given folder. A link in it that leads elsewhere was made by the author of the folder and is not followed."""
    real = os.path.realpath(path)
    if real in visited:
        return None
    visited.add(real)
    try:
        with os.scandir(path) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
            own = [entry for entry in shown if not (entry.is_symlink() and leads_out(entry.path, root))]
            inside = sorted((entry.name, _is_folder(entry)) for entry in own)
    except OSError as error:
        notes.add(f"folder that cannot be read: {error.strerror}", name or "the folder given")
        return None
    if len(own) < len(shown):
        notes.add(LEADS_OUT, name or "the folder given", len(shown) - len(own))
    if any(entry.startswith(JOURNAL) and entry.endswith(".jsonl") for entry, _ in inside):
        return None
    files, folders = [], []
    for entry, is_folder in inside:
        below = os.path.join(path, entry)
        if is_folder:
            folder = _scanned(below, f"{name}/{entry}" if name else entry, visited, notes, root)
            if folder is not None and (folder.files or folder.folders):
                folders.append(folder)
        elif (size := _size(below)) >= 0 or _DATA_SUFFIX.search(entry):
            files.append(_file(below, size))
    return _Folder(path, name, files, folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a path is a folder; a path whose state is unknown, such as a link to itself, is not."""
    with contextlib.suppress(OSError):
        return entry.is_dir()
    return False


def _file(path: str, size: int) -> _File:
    """Identify a file by its first bytes; a file without an end is not opened."""
    kind: Kind = "unknown"
    if size > 0:
        with contextlib.suppress(InputError, OSError), contextlib.closing(Source(path, 0, Notes())) as source:
            kind = _kind(source.head)
            if kind == "unknown" and run_log.sniff(source.head) and run_log.is_log_later(source):
                kind = "log"
    return _File(path, kind, max(size, 0))


def _kind(head: bytes) -> Kind:
    if head.startswith(ZIP_MAGIC) or is_tar(head):
        return "archive"
    if any(reader.sniff(head) for reader in PROFILES):
        return "profile"
    if any(reader.sniff(head) for reader in READERS if reader is not run_log):
        return "log"  # a digest or a framework's profile: it goes with a profile, or is a run of its own
    if run_log.sniff(head) and run_log.is_log(head):
        return "log"
    is_none = refusal(head, "") is not None and not head.startswith(_DATABASE)  # a file may be cut off
    return "other" if is_none else "unknown"


def _runs_of(folder: _Folder, notes: Notes) -> list[tuple[str, list[_File]]]:
    """Return the runs of a folder and of all folders in it, by name."""
    if not folder.folders:
        return _grouped(folder)
    has_profile = any(file.kind == "profile" for file in folder.files)
    has_log = any(file.kind == "log" for file in folder.files)
    of_run = [file for file in folder.below if file.kind in ("profile", "log") or file.is_no_profile]
    if not has_profile and _are_ranks([os.path.basename(below.path) for below in folder.folders]):
        archives = [file for below in folder.folders for file in below.below if file.kind == "archive"]
        return [(folder.name, [*of_run, *archives])]
    if has_log and not has_profile and len(folder.folders) == 1:
        kinds = {file.kind for file in folder.folders[0].below}
        if "profile" in kinds and not kinds & {"log", "archive"}:
            return [(folder.name, of_run)]
    found = []
    runs_below = any(file.kind in ("profile", "log", "archive") for below in folder.folders for file in below.below)
    if has_profile or (has_log and not runs_below) or any(file.kind == "archive" for file in folder.files):
        found += _grouped(folder)
    else:
        found += _by_themselves(folder, [file for file in folder.files if file.is_no_profile])
        for file in folder.files:
            if file.kind == "log":
                notes.remark("log beside folders of runs: skipped", file.stem)
    for below in folder.folders:
        if has_log and not runs_below:  # tables and texts of the run itself
            found += _by_themselves(below, [file for file in below.below if file.is_no_profile])
        else:
            found += _runs_of(below, notes)
    return found


def _are_ranks(names: Sequence[str]) -> bool:
    """Return whether folders are named for the ranks of a job. ``r17`` may be the 17th run as well: it is a rank only
    beside ``r0``."""
    return all(map(is_of_rank, names)) and any(map(_FIRST_RANK.match, names))


def _grouped(folder: _Folder) -> list[tuple[str, list[_File]]]:
    archives, profiles, logs = (
        [file for file in folder.files if file.kind == kind] for kind in ("archive", "profile", "log")
    )
    rest = [file for file in folder.files if file.kind == "unknown" and _DATA_SUFFIX.search(file.path)]
    by_key: dict[str, list[_File]] = {}
    for file in profiles or logs or rest:
        by_key.setdefault(file.key, []).append(file)
    apart = _damaged(rest, by_key, bool(profiles)) if profiles or logs else {}
    if profiles:
        only = next(iter(by_key)) if len(by_key) == 1 else None
        for file in logs:
            runs = apart if file.key in apart else by_key
            runs.setdefault(file.key if only is None or runs is apart else only, []).append(file)
    named = _by_themselves(folder, archives)
    named += [(_below(folder, key or files[0].stem), files) for key, files in apart.items()]
    if len(by_key) == 1 and folder.name and not named:
        return [(folder.name, files) for files in by_key.values()]
    for key, files in by_key.items():
        named.append((_below(folder, key) or files[0].stem, files))
    return named


def _damaged(rest: Iterable[_File], by_key: dict[str, list[_File]], has_profile: bool) -> dict[str, list[_File]]:
    """Assign a file that should be a profile to the run, or the process, that lacks one; reading it then fails with the
    name of this file. If no run lacks one, the beginning of the name decides."""
    apart: dict[str, list[_File]] = {}
    for file in rest:
        if not file.is_no_profile:
            continue
        key = next(iter(by_key)) if len(by_key) == 1 and not has_profile else file.key
        if key not in by_key:
            apart.setdefault(key, []).append(file)
        elif file.is_of_process or not has_profile:
            by_key[key].append(file)
    return apart


def _below(folder: _Folder, name: str) -> str:
    return "/".join(filter(None, (folder.name, name)))


def _by_themselves(folder: _Folder, files: Iterable[_File]) -> list[tuple[str, list[_File]]]:
    return [(_below(folder, file.stem), [file]) for file in files]


def _named(found: Iterable[tuple[str, list[_File]]]) -> list[FoundRun]:
    """Return names without private text; if two runs have the same name, a mark of the place is added."""
    cleaner = Cleaner()
    by_name: dict[str, list[FoundRun]] = {}
    for name, files in found:
        clean = _clean(os.fsencode(name or "run").decode(errors="replace"), cleaner)
        paths = tuple(file.path for file in files)
        by_name.setdefault(clean, []).append(FoundRun(clean, paths, sum(file.size for file in files)))
    runs = []
    for same in by_name.values():
        for run in same:
            place = hashlib.sha256(os.fsencode("\0".join(run.files))).hexdigest()[:8]
            runs.append(run if len(same) == 1 else run._replace(name=f"{run.name}~{place}"))
    return sorted(runs)


def _clean(name: str, cleaner: Cleaner) -> str:
    """Clean the name of each folder by itself, and leave out names of persons."""
    parts = name.split("/")
    whose = [before in HOMES for before in ("", *parts[:-1])]
    clean = ["(user)" if of_person else cleaner.text(part) for part, of_person in zip(parts, whose, strict=True)]
    return visible(cleaner.text("/".join(clean)))
