"""Relate the clocks of a job's processes: one clock, Unix time, or collectives that must overlap; never a guess."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.kernels.names import kernel_name
from mio2trace.model import profile as model
from mio2trace.model.profile import Activity, Anchors, Clock, Profile, Range, Reading, UnixTime
from mio2trace.model.tables import NO, Activities, Numbers
from mio2trace.notes import Notes
from mio2trace.ops.families.collective import is_annotation
from mio2trace.patterns import late

STEPPED_NS = 1_000_000
"""A synchronised Unix clock is slewed by less during a run; a larger change means that somebody set it."""


def anchored(profile: Profile, anchors: Anchors, notes: Notes) -> Profile:
    """Return ``profile`` with Unix time, or unchanged if its times are outside the readings."""
    clock = profile.clocks[0]
    begin, end = begin_ns(profile), end_ns(profile)
    if begin is None or end is None:
        return profile
    both = (anchors.start, anchors.end)
    sides = [side for side in _sides(clock.kind, both) if side[0] <= begin and end <= side[1] + clock.resolution_ns]
    if not sides:
        notes.remark("times outside of the recording: the clocks that were read during it are not used")
        return profile
    # If the profile may use several of these clocks, all their offsets are possible.
    low = min(offset for _, _, *offsets in sides for offset in offsets)
    high = max(offset for _, _, *offsets in sides for offset in offsets)
    width = 0 if clock.kind == "unix" else (max(one.width_ns for one in both) + 1) // 2
    wrong = [one.wrong_ns for one in both if one.wrong_ns is not None]
    before, after = (one.unix_ns - one.boottime_ns for one in both)
    changed = abs(after - before)
    if changed > STEPPED_NS:
        notes.add(f"the system's Unix clock was set while the program ran, by {changed / 1e9:.6f} s")
    unix = UnixTime(
        offset_ns=(low + high) // 2,
        error_ns=(high - low + 1) // 2 + width,
        wrong_ns=max(wrong) if len(wrong) == len(both) and changed <= STEPPED_NS else None,
    )
    of_machine = clock.kind in ("unix", "boottime") and anchors.boot
    scope = f"boot {anchors.boot}" if of_machine else clock.scope
    new = msgspec.structs.replace(clock, scope=scope, unix=unix)
    return msgspec.structs.replace(profile, clocks=(new, *profile.clocks[1:]))


def _sides(kind: str, both: Sequence[Reading]) -> list[tuple[int, int, int, int]]:
    """For each clock that the profile may use: first and last reading, and the offset to Unix time at each."""
    clocks = {
        "unix": [(one.unix_ns, one.unix_ns) for one in both],
        "boottime": [(one.boottime_ns, one.unix_ns) for one in both],
        "monotonic": [(one.monotonic_ns, one.unix_ns) for one in both],
    }
    of = [clocks[kind]] if kind in clocks else list(clocks.values())
    return [(start, end, at_start - start, at_end - end) for (start, at_start), (end, at_end) in of]


_OF_ALL = late(r"all_?reduce|all_?gather|reduce_?scatter", re.IGNORECASE)
_OR_EXCHANGE = late(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE)
EXCHANGE = "alltoall"
"""A rank needs data of those alone that send it any."""
MOST_WRONG_NS = 1_000_000_000
"""Synchronised Unix clocks do not differ by more."""
LEAST = 2
"""Collectives that relate clocks without other relation."""
MOST_SIDES = 32
"""Processes whose collectives are compared with another one; clocks that fit none of these fit hardly any."""


class ProcessClock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of a process in a job. ``shift_ns`` converts host times to those of the job's first process.

    ``error_ns``: the bound of the error, None if unknown. ``method``: text for the user."""

    shift_ns: int = 0
    error_ns: int | None = 0
    method: str = "its own clock"


def relate_processes(profiles: Sequence[Profile]) -> list[ProcessClock | None]:
    """Return the clock of each process; None if nothing relates it."""
    clocks: list[ProcessClock | None] = [ProcessClock(), *[None] * (len(profiles) - 1)]
    at_once = _at_once(profiles)
    processes = [_Process(*one, [*collectives_of(one[0])]) for one in zip(profiles, at_once, strict=True)]
    ways = [*map(_ways, processes)]
    with_way: dict[Hashable, list[int]] = {}
    for process, of_process in enumerate(ways):
        for way in of_process:
            with_way.setdefault(way, []).append(process)
    asked: Counter[Hashable] = Counter()
    sides = [0]
    for side in sides:  # it grows
        through = clocks[side]
        assert through is not None
        asked.update(ways[side])
        near = {process for way in ways[side] if asked[way] <= MOST_SIDES for process in with_way[way]}
        for other in sorted(process for process in near if clocks[process] is None):
            clock = _pair(processes[side], processes[other])
            if clock is not None:
                if side:  # through another process
                    errors = through.error_ns, clock.error_ns
                    error = None if None in errors else sum(one or 0 for one in errors)
                    shift = through.shift_ns + clock.shift_ns
                    clock = ProcessClock(shift_ns=shift, error_ns=error, method=clock.method)
                clocks[other] = clock
                sides.append(other)
    return clocks


def _ways(process: _Process) -> list[Hashable]:
    """Return the properties by which another process may be related to this one."""
    profile, at_once, collectives = process.profile, process.at_once, process.collectives
    clock = profile.clocks[0]
    ways: list[Hashable] = [("clock", clock.kind, clock.scope)] if clock.scope else []
    if clock.as_unix is not None:
        ways.append("Unix time")
    if len(collectives) >= LEAST:
        ways.append(("collectives", *(one.which for one in collectives)))
    return ways if at_once is None else [*ways, ("at once", at_once)]


def _at_once(profiles: Sequence[Profile]) -> list[Hashable]:
    """Return for processes without a machine's clock the group of its file that ran at the same time."""
    spans: dict[Hashable, list[tuple[int, int, int]]] = {}
    for process, profile in enumerate(profiles):
        clock, begin, end = profile.clocks[0], begin_ns(profile), end_ns(profile)
        if begin is not None and end is not None and not clock.scope:
            spans.setdefault((profile.source, clock.kind), []).append((begin, end, process))
    groups: list[Hashable] = [None] * len(profiles)
    for key, of_file in spans.items():
        of_file.sort()
        number, latest = 0, of_file[0][0]
        for begin, end, process in of_file:
            number += begin > latest
            latest = max(latest, end)
            groups[process] = key, number
    return groups


def from_start(profiles: Sequence[Profile]) -> list[ProcessClock | None]:
    """Let each process begin when the first one did."""
    begins = [begin_ns(profile) or 0 for profile in profiles]
    method = "each from its own start: not related"
    return [
        ProcessClock(),
        *(ProcessClock(shift_ns=begins[0] - begin, error_ns=None, method=method) for begin in begins[1:]),
    ]


def begin_ns(profile: Profile) -> int | None:
    """Return the host time of the first thing in the profile."""
    moments = _moments(profile)
    return int(moments.min()) if len(moments) else None


def end_ns(profile: Profile) -> int | None:
    moments = _moments(profile)
    return int(moments.max()) if len(moments) else None


def _moments(profile: Profile) -> Numbers:
    commands = profile.commands
    on_host = [device.index for device in profile.devices if device.clock == 0]
    is_on_host = np.isin(profile.devices_of_commands, on_host)
    start, end = commands.start_ns[is_on_host], commands.end_ns[is_on_host]
    ranges = np.array([made.start_ns for made in profile.ranges], np.int64)
    moments = np.concatenate((commands.host_start_ns, start, end[start != NO], profile.lone_calls.start_ns, ranges))
    found: Numbers = moments[moments != NO]
    return found


def _pair(process: _Process, other: _Process) -> ProcessClock | None:
    clock, of_other = process.profile.clocks[0], other.profile.clocks[0]
    if clock.kind == of_other.kind and clock.scope and clock.scope == of_other.scope:
        what = "time since the boot of one machine" if clock.kind == "boottime" else "one clock"
        return ProcessClock(method=what)
    own, others = of_common_groups([process.collectives, other.collectives])
    bounds = _bounds(own, others)
    count = len(own)
    overlap = f"{count} collectives overlap"
    dated = _by_unix_time(clock, of_other)
    if bounds is not None and (dated is not None or count >= LEAST):
        least, most = bounds
        # Without a shift: unrelated clocks do not agree so well.
        shift = 0 if dated is None else dated.shift_ns
        if least <= shift <= most:
            error = max(shift - least, most - shift)
            if dated is not None and dated.error_ns is not None:
                error = min(error, dated.error_ns)
            method = overlap if dated is None else f"{dated.method}, {overlap}"
            return ProcessClock(shift_ns=shift, error_ns=error, method=method)
        if dated is None or -MOST_WRONG_NS <= (least + most) // 2 - shift <= MOST_WRONG_NS:
            # They end everywhere at once, but begin apart if a rank is late.
            ends = sorted(one.end_ns - of_them.end_ns for one, of_them in paired((own, others)))
            shift = min(max(ends[count // 2], least), most)
            return ProcessClock(shift_ns=shift, error_ns=max(shift - least, most - shift), method=overlap)
    if dated is not None:
        return dated
    if process.at_once is not None and process.at_once == other.at_once:
        return ProcessClock(error_ns=None, method="one file, which names no machine; they ran at once")
    return None


def _by_unix_time(clock: Clock, other: Clock) -> ProcessClock | None:
    """Relate by Unix time; the error is known if both systems state one."""
    unix, of_other = clock.as_unix, other.as_unix
    if unix is None or of_other is None:
        return None
    wrong = (unix.wrong_ns, of_other.wrong_ns)
    return ProcessClock(
        shift_ns=of_other.offset_ns - unix.offset_ns,
        error_ns=None if None in wrong else unix.error_ns + of_other.error_ns + sum(one or 0 for one in wrong),
        method="Unix time" if clock.unix is None or other.unix is None else "Unix time, read before and after the runs",
    )


class _Process(msgspec.Struct, frozen=True):
    """A process whose clock is to be related. ``at_once``: the group of its file that ran at the same time, if it names
    no machine."""

    profile: Profile
    at_once: Hashable
    collectives: Sequence[Collective]


class Collective(msgspec.Struct, frozen=True):
    """A kernel of a collective with host times; ``position``: among the activities. ``members``: the ranks of its
    group, empty if not recorded. ``ranks``: how many these are, 0 if not recorded. ``message``: elements sent and
    received, and their type."""

    which: str
    start_ns: int
    end_ns: int
    position: int
    members: tuple[int, ...] = ()
    ranks: int = 0
    message: tuple[int, int, str] = (0, 0, "")

    @property
    def kind(self) -> tuple[str, tuple[int, ...]]:
        """This is equal on all ranks of a collective."""
        return self.which, self.members

    @property
    def kind_and_message(self) -> Hashable:
        """This is equal on all ranks unless they send different parts."""
        return self.kind, self.message


def of_common_groups(lists: Sequence[Sequence[Collective]]) -> list[list[Collective]]:
    """Return the collectives of the groups that each process has: those of other groups need other processes."""
    common = set[tuple[int, ...]].intersection(*({one.members for one in ran} for ran in lists)) if lists else set()
    return [[one for one in ran if one.members in common] for ran in lists]


def paired(lists: Sequence[Sequence[Collective]]) -> list[tuple[Collective, ...]]:
    """Match the n-th collectives of lists of equal kinds, or of equal messages: two streams may run collectives in
    another order on each process. Return none if the kinds differ."""
    if len({tuple(one.kind for one in ran) for ran in lists}) != 1:
        return []
    counts = [Counter(one.kind_and_message for one in ran) for ran in lists]
    if any(count != counts[0] for count in counts):
        return list(zip(*lists, strict=True))
    place = {message: at for at, message in enumerate(counts[0])}
    in_order = [sorted(ran, key=lambda one: place[one.kind_and_message]) for ran in lists]
    return sorted(zip(*in_order, strict=True), key=lambda ran: ran[0].start_ns)


def _bounds(collectives: Sequence[Collective], others: Sequence[Collective]) -> tuple[int, int] | None:
    """Return the least and largest shift of the other's times; None if the collectives differ."""
    pairs = paired((collectives, others))
    if not pairs:
        return None
    least = max(one.start_ns - other.end_ns for one, other in pairs)
    most = min(one.end_ns - other.start_ns for one, other in pairs)
    return (least, most) if least <= most else None


def collectives_of(profile: Profile, *, exchanges: bool = False) -> Iterator[Collective]:
    """Yield the kernels of collectives that need data of all processes, by start. ``exchanges``: also each `EXCHANGE`,
    which may end on one process before it begins on another."""
    commands = profile.commands
    on_host = [queue.index for queue in profile.queues if profile.clock_of(queue.device) == 0]
    rows = np.flatnonzero(communicates(commands) & np.isin(commands.queue, on_host))
    if not len(rows):
        return
    # PyTorch annotates collectives (``nccl:all_reduce``): RCCL's kernels may have one name.
    annotations = _named((made, made.text) for made in profile.ranges if is_annotation(made.text))
    groups = _groups(profile)
    form = _OR_EXCHANGE if exchanges else _OF_ALL
    for position in rows[np.argsort(commands.start_ns[rows], kind="stable")].tolist():
        activity = profile.activities[position]
        which = form.search(activity.name) or form.search(_around(annotations, activity) or "")
        if which is not None and activity.start_ns is not None and activity.end_ns is not None:
            told = _around(groups, activity) or model.Collective("")
            name = which[0].replace("_", "").lower()
            message = told.sent, told.received, told.dtype
            times = activity.start_ns, activity.end_ns
            yield Collective(name, *times, position, told.members, told.ranks or 0, message)


def communicates(commands: Activities) -> NDArray[np.bool_]:
    """Return which commands are kernels that communicate with other devices, and have times."""
    found: NDArray[np.bool_] = commands.is_kernel & commands.has_times & commands.name.where(is_collective)
    return found


def is_collective(name: str) -> bool:
    meaning = kernel_name(name)
    return meaning is not None and meaning.role == "collective"


_Told = TypeVar("_Told")
_Named = dict[int, list[tuple[int, int, _Told]]]
"""By thread, begin and end of ranges in order, and the facts that they state on the calls in them."""


def _groups(profile: Profile) -> _Named[model.Collective]:
    """Return the data of each collective that are recorded: its group, its message."""
    return _named(
        (made, made.inputs.collective)
        for made in profile.ranges
        if made.inputs is not None and made.inputs.collective is not None
    )


def _named(told: Iterable[tuple[Range, _Told]]) -> _Named[_Told]:
    found: _Named[_Told] = {}
    for made, what in told:
        found.setdefault(made.thread, []).append((made.start_ns, made.end_ns, what))
    return {thread: sorted(named, key=itemgetter(0, 1)) for thread, named in found.items()}


def _around(named: _Named[_Told], activity: Activity) -> _Told | None:
    of_thread, at = named.get(activity.thread, []), activity.host_start_ns
    if at is None:
        return None
    place = bisect_right(of_thread, at, key=itemgetter(0)) - 1
    return of_thread[place][2] if place >= 0 and at <= of_thread[place][1] else None
