"""Find the profiles of the processes of one job, and the logs that each process wrote."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from mio2trace.align.clocks.log_runs import of_threads
from mio2trace.align.operations.windows import same_process
from mio2trace.align.processes import MOST_WRONG_NS, begin_ns, end_ns
from mio2trace.evidence import BUFFERS
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

_FOLDER, _NAME, _BUFFERS, _THREADS, _OWN = range(5)
"""Strength of the evidence that a process wrote a log: its own folder, the file's name, common buffers, thread ids, one
file with the profile."""
_RANK = re.compile(r"(?<![a-z])(?:rank|r)[ _.-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)\d{2,10}(?!\d)")
_LIKE = 0.9
"""The least share of a process's kernels that another file of it has: some formats lack kernels."""


Spans = dict[int, tuple[int, int] | None]
"""First and last time of profiles, by the `id` of the profile."""


def are_processes(profiles: Sequence[Profile]) -> bool:
    """Return whether these are several, with distinct ids."""
    return (
        all(map(is_told, profiles))
        and len(profiles) > 1
        and len({_identity(profile) for profile in profiles}) == len(profiles)
    )


def is_told(profile: Profile) -> bool:
    """Return whether a profile records its process."""
    return profile.process.pid is not None or profile.process.rank is not None


def _identity(profile: Profile) -> tuple[str, int | None, int | None]:
    return profile.clocks[0].scope, profile.process.pid, profile.process.rank


def same_job(profiles: Sequence[Profile], others: Sequence[Profile], *, near: bool, spans: Spans) -> bool:
    """Return whether two inputs are of one job: different processes that ran at the same time on one clock. Without a
    common clock: ``near`` (they are in one folder, if that is evidence), or different ranks. ``spans`` keeps results
    for later calls."""
    if not profiles or not others or not are_processes([*profiles, *others]):
        return False
    told = [_at_once(profile, other, spans) for profile in profiles for other in others]
    if False in told:
        return False
    ranks = [profile.process.rank for profile in (*profiles, *others)]
    return near or True in told or (None not in ranks and len(set(ranks)) == len(ranks))


def _at_once(profile: Profile, other: Profile, spans: Spans) -> bool | None:
    """Return whether they ran at the same time on one machine; None if their clocks do not show it."""
    clock, of_other = profile.clocks[0], other.clocks[0]
    unix, of_its = clock.as_unix, of_other.as_unix
    same = clock.kind == of_other.kind and bool(clock.scope) and clock.scope == of_other.scope
    first, second = _span(profile, spans), _span(other, spans)
    if first is None or second is None:
        return None
    shift = room = 0
    if not same:
        if unix is None or of_its is None:
            return None
        shift = of_its.offset_ns - unix.offset_ns
        room = MOST_WRONG_NS if clock.scope != of_other.scope else 0
    if first[1] + room < second[0] + shift or second[1] + shift + room < first[0]:
        return False
    return True if same else None


def _span(profile: Profile, spans: Spans) -> tuple[int, int] | None:
    if id(profile) not in spans:
        begin, end = begin_ns(profile), end_ns(profile)
        spans[id(profile)] = None if begin is None or end is None else (begin, end)
    return spans[id(profile)]


def is_of_rank(folder: str) -> bool:
    """Return whether a folder is named for one rank of a job."""
    return _RANK.fullmatch(os.path.basename(folder)) is not None


def same_process_twice(profile: Profile, other: Profile) -> bool:
    """Return whether two files are of one process: the process ids and the times of nearly all kernels are equal."""
    if profile.process.pid is None or profile.process.pid != other.process.pid:
        return False
    kernels = [
        Counter((one.end_ns or 0) - (one.start_ns or 0) for one in of.activities if one.kind == "kernel")
        for of in (profile, other)
    ]
    least = min(counted.total() for counted in kernels)
    return least > 0 and (kernels[0] & kernels[1]).total() >= _LIKE * least


def same_processes(
    profiles: Sequence[Profile], others: Sequence[Profile], archive_of: Mapping[int, str]
) -> list[int | None]:
    """Return, for each process of a program's other run, the place of the same process in ``profiles``: the only one,
    the one of its rank, or the only one of its archive. ``archive_of``: the archive of each file, by number."""
    if len(profiles) == len(others) == 1:
        return [0]
    ranks, of_others = ([one.process.rank for one in of] for of in (profiles, others))
    archives, their = ([archive_of.get(one.source, "") for one in of] for of in (profiles, others))

    def place(own: Sequence[object], other: Sequence[object], value: object) -> int | None:
        return own.index(value) if value and own.count(value) == other.count(value) == 1 else None

    by_rank = [
        None if rank is None else place([*map(str, ranks)], [*map(str, of_others)], str(rank)) for rank in of_others
    ]
    by_archive = [place(archives, their, archive) for archive in their]
    return [rank if rank is not None else archive for rank, archive in zip(by_rank, by_archive, strict=True)]


def in_order(profiles: Iterable[Profile]) -> list[Profile]:
    """The processes of a job by rank and number."""
    unknown = 1 << 62
    return sorted(
        profiles,
        key=lambda one: tuple(unknown if n is None else n for n in (one.process.rank, one.process.pid)),
    )


def labelled(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the processes of a job, each with a distinct label; ranks if all differ."""
    ranks = [profile.process.rank for profile in profiles]
    if None in ranks or len(set(ranks)) < len(ranks):
        ranks = [None] * len(ranks)
    pids = [profile.process.pid for profile in profiles]
    of_pid = Counter(pids)
    result = []
    for number, (profile, rank, pid) in enumerate(zip(profiles, ranks, pids, strict=True)):
        label = f"rank {rank}" if rank is not None else f"pid {pid}"
        if rank is None and (pid is None or of_pid[pid] > 1):
            label = f"process {number}"
        process = msgspec.structs.replace(profile.process, rank=rank, label=label)
        result.append(msgspec.structs.replace(profile, processes=(process, *profile.processes[1:])))
    return result


# -- logs ------------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """The records of a file other than profiles. ``held``: the places in the job of profiles in this file. ``folder``:
    of the file; empty for standard input."""

    name: str
    logs: tuple[FrameworkLog, ...]
    libraries: tuple[MiopenLog, ...]
    operations: tuple[tuple[Operation, ...], ...]
    held: tuple[int, ...] = ()
    folder: str = ""

    @property
    def threads(self) -> set[int]:
        """The ids of threads at the beginning of its lines."""
        of_calls = {one.thread for operations in self.operations for one in operations}
        return {thread for log in self.logs for thread in log.threads} | {one for one in of_calls if one is not None}


class Share(NamedTuple):
    """The part of a job's logs that belongs to one process."""

    logs: tuple[FrameworkLog, ...] = ()
    libraries: tuple[MiopenLog, ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def sources(self) -> frozenset[int]:
        """The numbers of its files."""
        return frozenset(log.source for log in self.logs) | frozenset(log.source for log in self.libraries)

    def but(self, sources: AbstractSet[int]) -> Share:
        """Return the part without the files of these numbers."""
        return Share(
            logs=tuple(log for log in self.logs if log.source not in sources),
            libraries=tuple(log for log in self.libraries if log.source not in sources),
            operations=tuple(one for one in self.operations if one.source not in sources),
        )


def shares(profiles: Sequence[Profile], files: Sequence[Told], without: frozenset[str], notes: Notes) -> list[Share]:
    """Return each process's part of the logs: logs that it wrote alone, and the lines of its threads in shared logs.

    A log that no evidence assigns to a process is not used. Of two logs with equal content the one with stronger
    evidence is used.
    """
    in_folder: dict[str, set[int]] = {}
    for file in files:
        in_folder.setdefault(file.folder, set()).update(file.held)
    files = [file for file in files if file.logs or file.libraries]
    claims = [_claims(file, profiles, in_folder.get(file.folder, set()), without) for file in files]
    for file, claimed in zip(files, claims, strict=True):
        if not claimed:
            notes.add("log that nothing gives to one of the processes: not joined", file.name)
        elif _NAME in claimed.values():
            notes.remark("log given to a process by its file's name alone", file.name)
        elif _FOLDER in claimed.values():
            notes.remark("log given to the process whose profile alone is in its folder", file.name)
    used: set[str] = set()
    result = []
    for place, profile in enumerate(profiles):
        claimed_by_it = [(file, of, of[place]) for file, of in zip(files, claims, strict=True) if place in of]
        result.append(_share(profile, claimed_by_it, used, notes))
    for file, claimed in zip(files, claims, strict=True):
        if claimed and file.name not in used:
            notes.remark("log left out: another log has the same calls with better evidence", file.name)
    return result


def is_of_threads(file: Told, profiles: Sequence[Profile]) -> bool:
    """Return whether the lines of a log begin with ids of threads of these processes."""
    return any(not file.threads.isdisjoint(_tids(profile)) for profile in profiles)


def _claims(
    file: Told, profiles: Sequence[Profile], beside: AbstractSet[int], without: frozenset[str]
) -> Mapping[int, int]:
    """Yield the process that wrote a file's log, as a place in ``profiles``, and the strength of the evidence.
    ``beside``: the profiles in its folder."""
    if len(file.held) == 1:
        return {file.held[0]: _OWN}
    threads = file.threads
    by_threads = {place: _THREADS for place, profile in enumerate(profiles) if not threads.isdisjoint(_tids(profile))}
    if by_threads:
        return by_threads
    candidates = list(range(len(profiles)))
    if BUFFERS not in without:
        calls = [one for operations in file.operations for one in operations]
        same = [same_process(profile, calls) for profile in profiles]
        if same.count(True) == 1:
            return {same.index(True): _BUFFERS}
        candidates = [place for place in candidates if same[place] is not False]
    named = _named(file.name, [profiles[place] for place in candidates])
    if named is not None:
        return {candidates[named]: _NAME}
    return {place: _FOLDER for place in beside if file.folder and len(beside) == 1 and place in candidates}


def _tids(profile: Profile) -> set[int]:
    own = {thread.tid for thread in profile.threads if thread.tid is not None}
    return own if profile.process.pid is None else own | {profile.process.pid}


def _named(name: str, profiles: Sequence[Profile]) -> int | None:
    """Return the one process whose rank or number is in the file's name."""
    base = os.path.basename(name)
    ranks, numbers = {int(text) for text in _RANK.findall(base)}, {int(text) for text in _NUMBER.findall(base)}
    fitting = [
        place
        for place, profile in enumerate(profiles)
        if profile.process.rank in ranks or profile.process.pid in numbers
    ]
    return fitting[0] if len(fitting) == 1 else None


def is_named_for_another_rank(file: Told, profile: Profile, without: frozenset[str]) -> bool:
    """Return whether the name of a log contains another rank than the profile's, without exact evidence that this
    process wrote it."""
    base = os.path.basename(file.name)
    ranks = {int(match[1]) for match in _RANK.finditer(base) if "rank" in match[0].lower()}
    process = profile.process
    if not ranks or process.rank is None or process.rank in ranks or file.held:
        return False
    if is_of_threads(file, [profile]) or process.pid in {int(text) for text in _NUMBER.findall(base)}:
        return False
    calls = [one for operations in file.operations for one in operations]
    return BUFFERS in without or same_process(profile, calls) is None


_Claim = tuple[Told, Mapping[int, int], int]
"""(file, its process, strength of the evidence)."""


def _share(profile: Profile, claimed: Sequence[_Claim], used: set[str], notes: Notes) -> Share:
    """Return the file with calls and the file with layers that have the strongest evidence; a process's own file is
    preferred to a shared one."""
    surest = sorted(claimed, key=lambda one: (len(one[1]) > 1, -one[2], -sum(map(len, one[0].operations)), one[0].name))
    calls = next((one for one in surest if any(one[0].operations)), None)
    layers = next((one for one in surest if any(log.layers or log.events for log in one[0].logs)), None)
    tids = _tids(profile)
    share = Share()
    if layers is not None:
        used.add(layers[0].name)
        logs = layers[0].logs if len(layers[1]) == 1 else tuple(of_threads(log, tids) for log in layers[0].logs)
        share = share._replace(logs=logs)
    if calls is not None:
        file, whose, _ = calls
        used.add(file.name)
        operations = max(file.operations, key=len)
        libraries = file.libraries
        if len(whose) > 1:
            nobodys = sum(one.thread is None for one in operations)
            if nobodys:
                notes.add("call without a thread in a log of several processes: given to none", file.name, nobodys)
            operations = tuple(one for one in operations if one.thread in tids)
            libraries = tuple(
                msgspec.structs.replace(log, records=tuple(one for one in log.records if one.thread in tids))
                for log in libraries
            )
        share = share._replace(operations=operations, libraries=libraries)
    return share
