"""Find the inputs of each run: by a shared profile, common buffers, fitting clocks, or a common folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import NamedTuple

from mio2trace.align import Relation, relation
from mio2trace.files import STANDARD_INPUT, Input
from mio2trace.jobs import Spans, Told, are_processes, is_of_rank, is_of_threads, is_told, same_job, same_process_twice
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.ops import operations
from mio2trace.ops.operation import Operation

_STRENGTH = {"apart": 0, "nothing": 1, "clocks": 2, "buffers": 3, "threads": 4}
_OWN = 5
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

    def is_of_job(self, other: Gathered, spans: Spans, *, near: bool) -> bool:
        """Return whether all processes of ``other`` are of the same job, or are the same processes. ``near``: a common
        folder is evidence."""
        if not self.held:
            return False
        new = [one for one in other.held if not any(same_process_twice(one, mine) for mine in self.held)]
        beside = near and bool(self.folders_of_ranks & other.folders_of_ranks)
        return bool(other.held) and (not new or same_job(self.held, new, near=beside, spans=spans))

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
    like: dict[object, dict[int, list[tuple[Profile, Gathered]]]] = {}
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
                like[outline] = {hash(_told(first[outline][0])): [first[outline]]}
            told = _told(profile)
            alike = like[outline].setdefault(hash(told), [])
            owner = next((owner for other, owner in alike if _told(other) == told), None)
            if owner is None:
                part.profiles.append(profile)
                alike.append((profile, part))
                continue
            notes.remark("profile that is in two inputs: used once")
            if owner is not part and not part.profiles:
                owner.take(part)
                part = owner
        if part not in parts:
            parts.append(part)
    return parts


def _with_captures(parts: Sequence[Gathered]) -> list[Gathered]:
    """Join profiles of graph captures with those of their replays: of the same process or rank, else of any.

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
    jobs: list[Gathered] = []
    others: list[Gathered] = []
    spans: Spans = {}
    for part in sorted(parts, key=_kernels, reverse=True):
        if not any(map(is_told, part.held)):
            others.append(part)
            continue
        job = next((job for job in jobs if job.is_of_job(part, spans, near=near)), None)
        if job is None:
            jobs.append(part)
            continue
        new = [one for one in part.profiles if not any(same_process_twice(one, other) for other in job.profiles)]
        if len(new) < len(part.profiles):
            notes.remark("process that is in two inputs: the more complete one is used", part.names)
            part.profiles = new
        job.take(part)
    alone = {id(part) for part in (*jobs, *others)}
    return [part for part in parts if id(part) in alone]


def _kernels(part: Gathered) -> int:
    """Return the number of kernels of the largest process."""
    return max((int(profile.commands.is_kernel.sum()) for profile in part.profiles), default=0)


def _most_to_tell(file: Input) -> tuple[bool, bool]:
    """Sort so that of two equal profiles the first is the better one: with places in a log, or with a machine."""
    profiles = [record for record in file.records if isinstance(record, Profile)]
    return (
        not any(profile.interleaved for profile in profiles),
        not any(profile.clocks[0].scope for profile in profiles),
    )


def _outline(profile: Profile) -> object:
    commands = profile.commands
    ends = [0, -1][: len(commands)] if len(commands) else []
    names = [commands.name.values[code] for code in commands.name.codes[ends].tolist()]
    starts, called = commands.start_ns[ends].tolist(), commands.host_start_ns[ends].tolist()
    return profile.records, len(commands), *names, *starts, *called


def _told(profile: Profile) -> tuple[object, ...]:
    """Return the values that two files of one profile share."""
    commands = profile.commands
    columns = commands.number, commands.start_ns, commands.host_start_ns
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
    taken = [_Candidate(Gathered(run.inputs, ()), _OWN, True)] if run.has_log else []
    alone = []
    for candidate in sorted(candidates, key=lambda one: (-one.strength, not one.same_folder)):
        against = _against(candidate, taken)
        if against is None:
            if candidate.log.logs or candidate.log.operations:  # many logs may hold nothing of use
                taken.append(candidate)
            run.take(candidate.log)
            continue
        if strict and candidate[1:] == against[1:] and candidate.strength <= _STRENGTH["nothing"]:
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
    return {(layer.layer, layer.direction): layer.printed_ns for layer in log.layers}


def _runs_of_logs(logs: Sequence[Gathered]) -> list[Gathered]:
    """Return the runs if there is no profile: each log with times, and the logs that belong to it."""
    runs: list[Gathered] = []
    for part in (part for part in logs if part.has_times):
        run = next((run for run in runs if not _two_runs(part, run) and _may_be_one(part, run)), None)
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


def _may_be_one(part: Gathered, run: Gathered) -> bool:
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
