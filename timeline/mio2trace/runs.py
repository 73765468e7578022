"""Find the inputs of each run: by a shared profile, common buffers, fitting clocks, or a common folder. Find the
profiles of the processes of one job, and the logs that each process wrote.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import combinations, product
from typing import NamedTuple

import msgspec
import numpy as np

from mio2trace.align import Relation, relation
from mio2trace.align.processes import MOST_WRONG_NS, begin_ns, end_ns
from mio2trace.align.same_run import of_threads, same_process
from mio2trace.evidence import BUFFERS
from mio2trace.files import STANDARD_INPUT, Input
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import Entry, MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NO, distinct, least, most
from mio2trace.notes import InputError, Notes
from mio2trace.ops import operations
from mio2trace.ops.operation import Operation
from mio2trace.patterns import late

_FOLDER, _NAME, _BUFFERS, _THREADS, _OWN = range(5)
"""Strength of the evidence that a process wrote a log: its own folder, the file's name, common buffers, thread ids, one
file with the profile."""
_RANK = late(r"(?<![a-z])(?:rank|r)[ _.-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = late(r"(?<!\d)\d{2,10}(?!\d)")
_SHARED_DEVICE = "GPU that several processes used at the same time: what looks idle in one may be the work of another"
_LIKE = 0.9
"""The least share of a process's kernels that another file of it has: some formats lack kernels."""


_CLOCK_NS, _CLOCK_RATE = 10_000, 1e-3
"""Two clocks differ by less than this and this share of the time since they were related."""

_ANY = "any"
"""In a key in place of a number or rank: whatever it is."""
_SAME_TIMES = "table with the times of another: its counters are left out (give it alone to see them)"
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


def _may_be_one(profile: Profile, other: Profile) -> bool:
    """Return whether nothing states that these are profiles of two processes: equal times may be those of two ranks."""
    states = zip(_process(profile), _process(other), strict=True)
    return all(own is None or of_other is None or own == of_other for own, of_other in states)


def _identity(profile: Profile) -> tuple[str, int | None, int | None]:
    clock = profile.clocks[0]
    return "" if clock.is_of_a_file else clock.scope, *_process(profile)


def _process(profile: Profile) -> tuple[int | None, int | None]:
    """Return what a profile states of its process: the number and the rank."""
    return profile.process.pid, profile.process.rank


def same_job(
    profiles: Sequence[Profile], others: Sequence[Profile], *, near: bool, spans: Spans, apart: bool = False
) -> bool:
    """Return whether two inputs are of one job: different processes that ran at the same time on one clock. Without a
    common clock: ``near`` (they are in one folder, if that is evidence), or different ranks. ``spans`` keeps results
    for later calls. ``apart``: their clocks may be those of two machines."""
    if not profiles or not others or not are_processes([*profiles, *others]):
        return False
    told = [_at_once(profile, other, spans, apart=apart) for profile in profiles for other in others]
    if False in told:
        return False
    ranks = [profile.process.rank for profile in (*profiles, *others)]
    return near or True in told or (None not in ranks and len(set(ranks)) == len(ranks))


def _at_once(profile: Profile, other: Profile, spans: Spans, *, apart: bool = False) -> bool | None:
    """Return whether they ran at the same time on one machine; None if their clocks do not show it. ``apart``: if
    neither states its machine, they may be of two."""
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
        room = MOST_WRONG_NS if clock.scope != of_other.scope or (apart and not clock.scope) else 0
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


def same_process_twice(profile: Profile, other: Profile, spans: Spans) -> bool:
    """Return whether two files hold one recording of a process. The process ids and the durations of nearly all kernels
    are equal, and nothing shows two times: PyTorch's schedule writes a file for each of its cycles. ``spans``: as of
    `same_job`."""
    if profile.process.pid is None or profile.process.pid != other.process.pid or not _may_be_one(profile, other):
        return False
    at_once = _at_once(profile, other, spans)
    if at_once is False or (at_once is None and not _in_step(profile, other)):
        return False
    kernels = [Counter(of.commands.time_ns[of.commands.is_kernel].tolist()) for of in (profile, other)]
    least = min(counted.total() for counted in kernels)
    return least > 0 and (kernels[0] & kernels[1]).total() >= _LIKE * least


def _in_step(profile: Profile, other: Profile) -> bool:
    """Return whether equally many kernels begin at the same distances, as far as clocks keep time; else nothing shows
    that they do not."""
    starts = [np.sort(of.commands.start_ns[of.commands.is_kernel & of.commands.has_times]) for of in (profile, other)]
    if len(starts[0]) != len(starts[1]) or not len(starts[0]):
        return True
    low, high = np.percentile(starts[1] - starts[0], (10, 90))
    return bool(high - low <= _CLOCK_NS + _CLOCK_RATE * (starts[0][-1] - starts[0][0]))


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


_PART_OF_JOB = late(
    r"(?<![a-z])(rank|worker|node|gpu|device|dev|dp|tp|pp|ep|cp|sp|fsdp|shard|stage|replica|proc|process|client|server"
    r"|actor|critic|rollout|trainer|learner|generator|encoder|decoder|prefill|decode|draft)"
    r"(?:[ _.-]?(\d{1,5})(?!\d)|(?![a-z\d]))",
    re.IGNORECASE,
)
"""Words for a process in the name of its file. No other word of a name is shown: a trace has no names of files."""
_SMALL = late(r"\d{1,4}", re.ASCII)
_DIGITS, _BETWEEN = late(r"\d+"), late(r"\D+")


def _labels_by_file(names: Sequence[str]) -> list[str]:
    """Return what the names of files say about their processes (``file rank0``): the words by which they differ, or the
    number. Empty if the files remain equal by that."""
    found = [[f"{match[1]}{match[2] or ''}".lower() for match in _PART_OF_JOB.finditer(name)] for name in names]
    common = set.intersection(*map(set, found))
    own = [" ".join(word for word in words if word not in common) for words in found]
    if not all(own):
        columns = [*zip(*(_BETWEEN.split(name) for name in names), strict=False)]
        differing = [column for column in columns if len(set(column)) > 1]
        is_number = len(differing) == 1 and all(map(_SMALL.fullmatch, differing[0]))
        own = [*differing[0]] if is_number and len({_DIGITS.sub("0", name) for name in names}) == 1 else []
    return [f"file {one}" for one in own] if len(set(own)) == len(names) else []


def labelled(profiles: Sequence[Profile], names: Mapping[int, str]) -> list[Profile]:
    """Return the processes of a job, each with a distinct label: ranks if all differ, else what the ``names`` of their
    files (by number) say, else process ids."""
    ranks = [profile.process.rank for profile in profiles]
    if None in ranks or len(set(ranks)) < len(ranks):
        ranks = [None] * len(ranks)
    by_file = _labels_by_file([names.get(profile.source, "") for profile in profiles]) if None in ranks else []
    pids = [profile.process.pid for profile in profiles]
    if set(by_file) == {f"file {pid}" for pid in pids}:
        by_file = []
    of_pid = Counter(pids)
    result = []
    for number, (profile, rank, pid) in enumerate(zip(profiles, ranks, pids, strict=True)):
        label = f"rank {rank}" if rank is not None else f"pid {pid}"
        if rank is None and (pid is None or of_pid[pid] > 1):
            label = f"process {number}"
        if by_file:
            label = by_file[number]
        process = msgspec.structs.replace(profile.process, rank=rank, label=label)
        result.append(msgspec.structs.replace(profile, processes=(process, *profile.processes[1:])))
    return result


def note_shared_devices(profiles: Sequence[Profile], notes: Notes) -> None:
    """Note which processes of a job had commands on one GPU at the same time. A pause, or a slow kernel, of one process
    may be the work of another. Nothing is noted if the profiler does not number the machine's GPUs."""
    users: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for place, profile in enumerate(profiles):
        unit_of = {queue.index: profile.devices[queue.device].unit for queue in profile.queues}
        known = {queue: unit for queue, unit in unit_of.items() if unit is not None}
        if not known or not profile.clocks[0].scope:
            continue
        commands, on_unit = profile.commands, profile.commands.of_queue(known, NO)
        timed = np.flatnonzero(commands.has_times & (on_unit != NO))
        first, unit = distinct(on_unit[timed])
        begins = least(unit, commands.start_ns[timed], len(first)).tolist()
        ends = most(unit, commands.end_ns[timed], len(first)).tolist()
        for number, begin, end in zip(on_unit[timed][first].tolist(), begins, ends, strict=True):
            users.setdefault((profile.clocks[0].scope, number), []).append((begin, end, place))
    for used in users.values():
        last_end, last = min(used)[0], 0
        together = set[int]()
        for begin, end, place in sorted(used):
            if begin < last_end:
                together |= {last, place}
            if end > last_end:
                last_end, last = end, place
        if together:
            notes.add(
                _SHARED_DEVICE, ", ".join(profiles[place].process.label for place in sorted(together)), problem=False
            )


# -- logs ------------------------------------------------------------------------------------------------------------


class Told(msgspec.Struct, frozen=True):
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


class Share(msgspec.Struct, frozen=True):
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
        if sources.isdisjoint(self.sources):
            return self
        return Share(
            logs=tuple(log for log in self.logs if log.source not in sources),
            libraries=tuple(log for log in self.libraries if log.source not in sources),
            operations=tuple(one for one in self.operations if one.source not in sources),
        )


def shares(profiles: Sequence[Profile], files: Sequence[Told], without: frozenset[str], notes: Notes) -> list[Share]:
    """Return each process's part of the logs: logs that it wrote alone, and the lines of its threads in shared logs.

    A log that no evidence assigns to a process is not used. If two logs have equal content, the one with stronger
    evidence is used.
    """
    in_folder: dict[str, set[int]] = {}
    for file in files:
        in_folder.setdefault(file.folder, set()).update(file.held)
    files = [file for file in files if file.logs or file.libraries]
    claims = [_claims(file, profiles, in_folder.get(file.folder, set()), without) for file in files]
    for file, claimed in zip(files, claims, strict=True):
        if not claimed:
            notes.add("log that no evidence assigns to a process: not joined", file.name)
        elif _NAME in claimed.values():
            notes.remark("log assigned to a process by its file's name alone", file.name)
        elif _FOLDER in claimed.values():
            notes.remark("log assigned to the only process whose profile is in its folder", file.name)
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
        share = msgspec.structs.replace(share, logs=logs)
    if calls is not None:
        file, whose, _ = calls
        used.add(file.name)
        operations = max(file.operations, key=len)
        libraries = file.libraries
        if len(whose) > 1:
            nobodys = sum(one.thread is None for one in operations)
            if nobodys:
                notes.add("call without a thread in a log of several processes: assigned to none", file.name, nobodys)
            operations = tuple(one for one in operations if one.thread in tids)
            libraries = tuple(
                msgspec.structs.replace(log, records=tuple(one for one in log.records if one.thread in tids))
                for log in libraries
            )
        share = msgspec.structs.replace(share, operations=operations, libraries=libraries)
    return share


_STRENGTH = {"apart": 0, "nothing": 1, "clocks": 2, "buffers": 3, "threads": 4}
_ITS_OWN = 5
"""Evidence for a log that is in one file with the profile: no other evidence is as strong."""


class Gathered:
    """Inputs that belong together, and their profiles, the fullest first. A profile in several inputs counts once."""

    def __init__(self, inputs: Sequence[Input], profiles: Sequence[Profile]) -> None:
        self.inputs = list(inputs)
        self.profiles = sorted(profiles, key=_fullest)
        self.captures: list[Profile] = []
        self._operations_of: dict[int, tuple[Operation, ...]] = {}

    @property
    def logs(self) -> list[FrameworkLog]:
        return [record for file in self.inputs for record in file.records if isinstance(record, FrameworkLog)]

    @property
    def libraries(self) -> list[MiopenLog]:
        return [record for file in self.inputs for record in file.records if isinstance(record, MiopenLog)]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the MIOpen log that has most of them: one process writes one log."""
        return max(self.operations_by_log, key=len, default=())

    @property
    def operations_by_log(self) -> tuple[tuple[Operation, ...], ...]:
        """The operations of each of `libraries`."""
        for log in self.libraries:
            if id(log) not in self._operations_of:
                self._operations_of[id(log)] = operations(log)
        return tuple(self._operations_of[id(log)] for log in self.libraries)

    def drop_entries(self) -> None:
        """Free the entries of the logs; their operations stay."""
        for log, made in zip(self.libraries, self.operations_by_log, strict=True):
            others = tuple(record for record in log.records if not isinstance(record, Entry)) if made else log.records
            msgspec.structs.force_setattr(log, "freed", log.freed + len(log.records) - len(others))
            msgspec.structs.force_setattr(log, "records", others)

    @property
    def names(self) -> str:
        return ", ".join(file.name for file in self.inputs)

    @property
    def folders(self) -> set[str]:
        return {os.path.dirname(os.path.abspath(file.path)) for file in self.inputs if file.path != STANDARD_INPUT}

    @cached_property
    def folders_of_ranks(self) -> set[str]:
        """The same as `folders`, but with the parent of an archive, and of a folder that is named for a rank
        (``rank0``): the other ranks are in the same parent."""
        archives = {os.path.abspath(file.archive) for file in self.inputs if file.archive}
        outside = {os.path.dirname(path) if path in archives else path for path in self.folders}
        return {os.path.dirname(path) if is_of_rank(path) else path for path in outside}

    @property
    def held(self) -> list[Profile]:
        """The profiles that hold anything."""
        return [profile for profile in self.profiles if profile.activities or profile.other_calls]

    def told(self, profiles: Sequence[Profile]) -> list[Told]:
        """Return the records of each input besides ``profiles``."""
        held = {id(profile): place for place, profile in enumerate(profiles)}
        of_libraries = dict(zip(map(id, self.libraries), self.operations_by_log, strict=True))
        files = []
        for file in self.inputs:
            libraries = tuple(record for record in file.records if isinstance(record, MiopenLog))
            files.append(
                Told(
                    name=file.name,
                    logs=tuple(record for record in file.records if isinstance(record, FrameworkLog)),
                    libraries=libraries,
                    operations=tuple(of_libraries[id(log)] for log in libraries),
                    held=tuple(held[id(record)] for record in file.records if id(record) in held),
                    folder="" if file.path == STANDARD_INPUT else os.path.dirname(os.path.abspath(file.path)),
                )
            )
        return files

    @property
    def is_job(self) -> bool:
        """Whether its profiles are of several processes."""
        return are_processes(self.held)

    def is_of_job(self, other: Gathered, spans: Spans, *, near: bool, apart: bool = False) -> bool:
        """Return whether all processes of ``other`` are of the same job, or are the same processes. ``near``: a common
        folder is evidence. ``apart``: as of `same_job`."""
        if not self.held:
            return False
        new = [one for one in other.held if not any(same_process_twice(one, mine, spans) for mine in self.held)]
        beside = near and bool(self.folders_of_ranks & other.folders_of_ranks)
        return bool(other.held) and (not new or same_job(self.held, new, near=beside, spans=spans, apart=apart))

    @property
    def has_profile(self) -> bool:
        """Whether a profile holds anything."""
        return bool(self.held)

    @property
    def has_log(self) -> bool:
        return bool(self.logs or self.libraries)

    @property
    def has_times(self) -> bool:
        """Whether its logs alone have times to draw."""
        return any(map(has_times, self.logs))

    def but(self, sources: AbstractSet[int]) -> Gathered:
        """Return the same without the inputs of these numbers."""
        rest = Gathered([file for file in self.inputs if file.source not in sources], self.profiles)
        rest._operations_of = self._operations_of
        return rest

    @property
    def contents(self) -> set[str]:
        return {file.content_sha256 for file in self.inputs}

    def each_once(self, notes: Notes) -> None:
        """Keep one of equal inputs: one of `profiles`, or one beside a profile."""
        own = {id(profile) for profile in self.profiles}
        holding = {file.source for file in self.inputs if any(id(record) in own for record in file.records)}
        folders = {os.path.dirname(file.path) for file in self.inputs if file.source in holding}

        def order(file: Input) -> tuple[bool, bool, str]:
            return file.source not in holding, os.path.dirname(file.path) not in folders, file.path

        first: dict[object, Input] = {}
        for file in sorted(self.inputs, key=order):
            kept = first.setdefault((file.content_sha256, file.repetition), file)
            if kept is not file and not any(isinstance(record, Profile) for record in file.records):
                notes.remark("input given twice: used once", file.name)
        kept_ones = {id(file) for file in first.values()}
        self.inputs = [file for file in self.inputs if id(file) in kept_ones]

    def take(self, other: Gathered) -> None:
        """Add the inputs of ``other``."""
        self.inputs += other.inputs
        self.__dict__.pop("folders_of_ranks", None)
        self.profiles = sorted([*self.profiles, *other.profiles], key=_fullest)
        self.captures += other.captures
        self._operations_of |= other._operations_of


def has_times(log: FrameworkLog) -> bool:
    """Return whether a log alone has times to draw."""
    return bool(log.layers) or _iterations(log)


class _Candidate(NamedTuple):
    """A log that may belong to a profile's run."""

    log: Gathered
    strength: int
    same_folder: bool


def gather(
    inputs: Sequence[Input],
    without: frozenset[str],
    by_order_alone: bool,
    notes: Notes,
    *,
    strict: bool = True,
    copies: bool = False,
    near: bool = True,
) -> list[Gathered]:
    """Return the runs: those with the fullest profiles first, then logs that belong to no profile, each by itself.

    One profile and one log count as one run; joining them checks it. Raises `InputError` if no log fits any profile
    (unless ``by_order_alone``), or if nothing shows which of several logs fits. If not ``strict``, these logs become
    runs of their own. Files of a run with the same content count once, except with ``copies``. ``near``: profiles of
    several processes in one folder belong to one job unless something contradicts; otherwise only those that state it.
    """
    parts = _sharing_jobs(_with_captures(_sharing_profiles(inputs, notes)), notes, near=near)
    with_profile = sorted((part for part in parts if part.has_profile), key=lambda part: _fullest(part.profiles[0]))
    logs = [part for part in parts if not part.has_profile and part.has_log]
    rest = [part for part in parts if not part.has_profile and not part.has_log]
    if with_profile:
        alone = _join_logs(with_profile, logs, without, by_order_alone, strict)
        for part in alone:
            notes.add("log that fits no profile here: not joined", part.names)
        runs = [*with_profile, *alone]
    else:
        runs = _runs_of_logs(logs)
    for part in rest:  # profiles of another kind, or without content: nothing shows to which run they belong
        if runs:
            runs[0].take(part)
        else:
            runs.append(part)
    for run in runs if not copies else ():
        if not run.is_job:  # processes of a job may print the same
            run.each_once(notes)
    return runs


def _fullest(profile: Profile) -> tuple[int, bool]:
    """Sort by size; of equal profiles, the one whose places in the log are known comes first."""
    return -len(profile.activities), not profile.interleaved


def _sharing_profiles(inputs: Sequence[Input], notes: Notes) -> list[Gathered]:
    """Return each input by itself, but inputs with the same profile (in a log and as a file) together."""
    parts: list[Gathered] = []
    like: dict[object, dict[object, tuple[Profile, Gathered]]] = {}
    first: dict[object, tuple[Profile, Gathered]] = {}
    for file in sorted(inputs, key=_most_to_tell):
        held = [record for record in file.records if isinstance(record, Profile)]
        part = Gathered([file], [])
        for profile in sorted(held, key=_fullest):
            outline = _outline(profile)
            if outline not in first:
                first[outline] = profile, part
                part.profiles.append(profile)
                continue
            # Profiles are compared as a whole only if their outlines are equal.
            if outline not in like:
                other = first[outline][0]
                like[outline] = dict.fromkeys(_as_stated(other, hash(_told(other))), first[outline])
            told = _told(profile)
            alike = like[outline]
            found = next((alike[key] for key in _as_asked(profile, hash(told)) if key in alike), None)
            if found is None or _told(found[0]) != told:
                part.profiles.append(profile)
                for key in _as_stated(profile, hash(told)):
                    alike.setdefault(key, (profile, part))
                continue
            owner = found[1]
            is_pass = bool(profile.counters) and _told_of_counters(profile) != _told_of_counters(found[0])
            notes.remark(
                _SAME_TIMES if is_pass else "profile that is in two inputs: used once", part.names if is_pass else ""
            )
            if owner is not part and not part.profiles:
                owner.take(part)
                part = owner
        if part not in parts:
            parts.append(part)
    return parts


def _with_captures(parts: Sequence[Gathered]) -> list[Gathered]:
    """Join profiles of graph captures with those of their replays, by the same process or rank, else any.

    A profile that replays its own graphs is a run as well; its captures are also used for other runs of its process.
    """
    if len(parts) < 2 or not any(one.captured for part in parts for one in part.held):
        return list(parts)
    replaying = [part for part in parts if any(map(_replays, part.held))]
    capturing = [
        part for part in parts if part.held and all(one.captured and not _replays(one) for one in part.held)
    ]  # fmt: skip
    if not replaying:
        return list(parts)
    for part in replaying:
        captures = [one for one in part.held if one.captured and one.process.pid is not None]
        processes = {(one.process.pid, one.process.rank) for one in captures}
        for other in replaying:
            is_one = processes & {(one.process.pid, one.process.rank) for one in other.held}
            if is_one and not any(one.captured for one in other.held):
                other.captures += captures
    for part in capturing:
        of_part = {(one.process.pid, one.process.rank) for one in part.held}
        ranks = {one.process.rank for one in part.held}
        same = [one for one in replaying if of_part & {(it.process.pid, it.process.rank) for it in one.held}]
        alike = [one for one in replaying if ranks & {it.process.rank for it in one.held}]
        captures, part.profiles = part.profiles, []
        home = (same or alike or replaying)[0]
        home.captures += captures
        home.take(part)
    return [part for part in parts if not any(part is one for one in capturing)]


def _replays(profile: Profile) -> bool:
    return bool(profile.commands.is_replayed.any())


def _sharing_jobs(parts: Sequence[Gathered], notes: Notes, *, near: bool) -> list[Gathered]:
    """Join profiles of the processes of one job. A process that two profilers recorded counts once."""
    if len(parts) < 2:
        return list(parts)
    spans: Spans = {}
    jobs = sorted((part for part in parts if any(map(is_told, part.held))), key=_completeness, reverse=True)
    others = [part for part in parts if not any(map(is_told, part.held))]
    for beside in (True, False):  # the files of one folder first: several jobs may run at once
        apart, jobs = jobs, []
        for part in apart:
            near_ones = (job for job in jobs if not beside or job.folders_of_ranks & part.folders_of_ranks)
            job = next((job for job in near_ones if job.is_of_job(part, spans, near=near)), None)
            if job is None:
                jobs.append(part)
                continue
            held = job.profiles
            new = [one for one in part.profiles if not any(same_process_twice(one, other, spans) for other in held)]
            known = {id(one) for one in part.profiles} - {id(one) for one in new}
            for file in part.inputs:
                if any(id(record) in known for record in file.records):
                    notes.remark("process that is in two inputs: the more complete one is used", file.name)
            part.profiles = new
            job.take(part)
    _join_machines(jobs, notes, spans)
    alone = {id(part) for part in (*jobs, *others)}
    return [part for part in parts if id(part) in alone]


def _join_machines(jobs: list[Gathered], notes: Notes, spans: Spans) -> None:
    """Join the ranks of machines whose clocks differ by more than the recording took.

    Cycles of one schedule also follow each other. So the ranks are joined only if one way gives each rank once."""

    def may_join(job: Gathered, other: Gathered) -> bool:
        ranks, of_other = ({one.process.rank for one in part.held} for part in (job, other))
        return not ranks & of_other and job.is_of_job(other, spans, near=False, apart=True)

    for job in [*jobs]:
        fitting = [one for one in jobs if one is not job and may_join(job, one)]
        if any(one is job for one in jobs) and all(may_join(*pair) for pair in combinations(fitting, 2)):
            doubt = "ranks that did not run at once by their clocks: joined, one job only if these are wrong"
            for one in fitting:
                notes.add(doubt, one.names)
                job.take(one)
            jobs[:] = [one for one in jobs if not any(one is other for other in fitting)]


def _completeness(part: Gathered) -> tuple[int, bool, int]:
    """Return the number of the program's own kernels in the largest process, whether launches are known, and the number
    of all kernels.

    rocprof's table has no launches, and the runtime's kernels that copy; its database and JSON have copies instead.
    """
    return max(map(_of_process, part.profiles), default=(0, False, 0))


def _of_process(profile: Profile) -> tuple[int, bool, int]:
    commands = profile.commands
    is_own = commands.is_kernel & ~commands.name.where(lambda name: name.startswith("__amd_rocclr_"))
    return int(is_own.sum()), bool((commands.host_start_ns != NO).any()), int(commands.is_kernel.sum())


def _most_to_tell(file: Input) -> tuple[bool, bool, bool]:
    """Sort so that of two equal profiles the first is the better one: without counters, with places in a log, or with
    a machine."""
    profiles = [record for record in file.records if isinstance(record, Profile)]
    return (
        any(profile.counters for profile in profiles),
        not any(profile.interleaved for profile in profiles),
        not any(profile.clocks[0].scope for profile in profiles),
    )


def _as_stated(profile: Profile, told: int) -> Iterator[object]:
    """Yield the keys under which a profile is found by those that may be of its process."""
    return product((told,), *((value, _ANY) for value in _process_of_times(profile)))


def _as_asked(profile: Profile, told: int) -> Iterator[object]:
    """Yield the keys of profiles that may be of this one's process: they state the same or nothing, where it does."""
    return product((told,), *((_ANY,) if value is None else (value, None) for value in _process_of_times(profile)))


def _process_of_times(profile: Profile) -> tuple[int | None, int | None]:
    """Return what a profile states of the process whose times it has. rocprofiler-compute writes the times of one run
    into the tables of all passes that count. These have process numbers of their own."""
    pid, rank = _process(profile)
    return None if profile.counters else pid, rank


def _told_of_counters(profile: Profile) -> tuple[object, ...]:
    return tuple(profile.counters), tuple(profile.commands.counters.each())


def _outline(profile: Profile) -> object:
    commands = profile.commands
    ends = [0, -1][: len(commands)] if len(commands) else []
    names = [commands.name.values[code] for code in commands.name.codes[ends].tolist()]
    starts, called = commands.start_ns[ends].tolist(), commands.host_start_ns[ends].tolist()
    return profile.records, len(commands), *names, *starts, *called


def _told(profile: Profile) -> tuple[object, ...]:
    """Return the values that two files of one profile share. Tools number the kernels from 0 or from 1."""
    commands = profile.commands
    columns = commands.start_ns, commands.host_start_ns
    return profile.records, tuple(commands.name.each()), *(tuple(column.tolist()) for column in columns)


def _join_logs(
    runs: Sequence[Gathered], logs: Sequence[Gathered], without: frozenset[str], by_order_alone: bool, strict: bool
) -> list[Gathered]:
    """Add each log to its run; return those that fit no run."""
    if len(runs) == len(logs) == 1 and not runs[0].has_log:
        runs[0].take(logs[0])
        return []
    if len(runs) == 1 and runs[0].is_job:  # the process that wrote each log is found later
        for log in logs:
            runs[0].take(log)
        return []
    candidates: list[list[_Candidate]] = [[] for _ in runs]
    alone: list[Gathered] = []
    reasons: list[str] = []
    for log in logs:
        found = [_relation(run, log, without) for run in runs]
        chosen = max(range(len(runs)), key=lambda number: (*_fit(found[number], runs[number], log), -number))
        strength, same_folder, _ = _fit(found[chosen], runs[chosen], log)
        if strength:
            candidates[chosen].append(_Candidate(log, strength, same_folder))
        else:
            alone.append(log)
            reasons.append(found[chosen].why)
    if strict and alone and not any(candidates) and not any(run.has_log for run in runs):
        if not by_order_alone:
            raise InputError(reasons[0] if len(alone) == 1 else f"none of {len(alone)} logs: {reasons[0]}")
        candidates[0] = [_Candidate(log, 0, bool(log.folders & runs[0].folders)) for log in alone]
        alone = []
    for run, own in zip(runs, candidates, strict=True):
        alone += _chosen(run, own, strict)
    return alone


def _relation(run: Gathered, log: Gathered, without: frozenset[str]) -> Relation:
    """Return the closest relation of a log to any of a run's processes."""
    if any(is_of_threads(told, run.held) for told in log.told(())):
        return Relation(by="threads")
    profiles = run.held if run.is_job else run.profiles[:1]
    relations = [relation(profile, log.logs, log.operations, without) for profile in profiles]
    return max(relations, key=lambda one: (_STRENGTH[one.by], -one.away_ns))


def _fit(found: Relation, run: Gathered, log: Gathered) -> tuple[int, bool, int]:
    return _STRENGTH[found.by], bool(run.folders & log.folders), -found.away_ns


def _chosen(run: Gathered, candidates: Sequence[_Candidate], strict: bool) -> list[Gathered]:
    """Add logs to ``run``, the ones with the strongest evidence first; return logs that contradict these.

    Raises `InputError` if two logs contradict each other and nothing shows which is right.
    """
    if run.is_job:
        for candidate in candidates:
            run.take(candidate.log)
        return []
    taken = [_Candidate(Gathered(run.inputs, ()), _ITS_OWN, True)] if run.has_log else []
    alone = []
    for candidate in sorted(candidates, key=lambda one: (-one.strength, not one.same_folder)):
        against = _against(candidate, taken)
        if against is None:
            if candidate.log.logs or candidate.log.operations:  # many logs may hold nothing of use
                taken.append(candidate)
            run.take(candidate.log)
            continue
        are_equal = (candidate.strength, candidate.same_folder) == (against.strength, against.same_folder)
        if strict and are_equal and candidate.strength <= _STRENGTH["nothing"]:
            raise InputError(
                f"{against.log.names} and {candidate.log.names} are logs of two runs, and nothing shows which "
                "belongs to the profile; expected one of them"
            )
        alone.append(candidate.log)
    return alone


def _against(candidate: _Candidate, taken: Sequence[_Candidate]) -> _Candidate | None:
    """Return the first log that cannot be of the candidate's run, or that fits better than the candidate."""
    logs, operations = bool(candidate.log.logs), bool(candidate.log.operations)
    for other in taken:
        if operations and candidate.strength < other.strength and other.log.operations:
            return other
        if logs and _two_runs(candidate.log, other.log):
            return other
    return None


def _two_runs(part: Gathered, other: Gathered) -> bool:
    """Return whether both have layer times or iterations of a run, and neither is a digest of the other."""
    if part.contents <= other.contents:
        return False
    near = bool(part.folders & other.folders)
    return any(
        ((log.layers and another.layers) or (_iterations(log) and _iterations(another)))
        and not _agree(log, another, near)
        for log in part.logs
        for another in other.logs
    )


def _iterations(log: FrameworkLog) -> bool:
    return any(event.kind == "iteration" for event in log.events)


def _agree(log: FrameworkLog, other: FrameworkLog, near: bool) -> bool:
    """Return whether both print the same layers: with equal times, or one is a digest in the other's folder."""
    times, others = _printed(log), _printed(other)
    if not times or not others or not (times.keys() <= others.keys() or others.keys() <= times.keys()):
        return False
    common = times.keys() & others.keys()
    if 2 * sum(times[key] == others[key] for key in common) >= len(common):
        return True
    return near and not (log.events and other.events)


def _printed(log: FrameworkLog) -> dict[tuple[str, str], int]:
    names = zip(log.times.layer.each(), log.times.direction.each(), strict=True)
    return dict(zip(names, log.times.printed_ns.tolist(), strict=True))


def _runs_of_logs(logs: Sequence[Gathered]) -> list[Gathered]:
    """Return the runs if there is no profile: each log with times, and the logs that belong to it."""
    runs: list[Gathered] = []
    for part in (part for part in logs if part.has_times):
        run = next((run for run in runs if not _two_runs(part, run) and __may_be_one(part, run)), None)
        if run is None:
            runs.append(part)
        else:
            run.take(part)
    timed = list(runs)
    for part in (part for part in logs if not part.has_times):
        beside = [run for run in timed if run.folders & part.folders] or timed
        if len(beside) == 1 and not (part.operations and beside[0].operations):
            beside[0].take(part)
        else:
            runs.append(part)
    return runs


def __may_be_one(part: Gathered, run: Gathered) -> bool:
    """Return whether they are in one folder, or are equal; equal files in another folder are another run."""
    if part.folders & run.folders:
        return True
    return not part.contents & run.contents and any(
        _agree(log, other, near=False) for log in part.logs for other in run.logs
    )


def complete(runs: Iterable[Gathered]) -> list[Gathered]:
    """Return the inputs that are a run alone: a profile with its log; without a profile, a log with times."""
    runs = list(runs)
    if any(run.has_profile for run in runs):
        return [run for run in runs if run.has_profile and run.has_log]
    return [run for run in runs if run.has_times]
