"""How devices spent their time: their work at each instant, work that was not recorded, and the bounds of each step.

At each instant a device computes, communicates, copies or does nothing. Only the first of these classes counts at an
instant: computation; communication (exposed); a copy or fill (exposed); work that the profile does not hold
(`unrecorded`); idle. So the parts of a window add up to its length.

The profile does not hold the work of some launches, and there are gaps in which the device did such work. The work of a
launch without a kernel was filtered out, was lost, or ran after the recording ended. Launches into a stream capture do
not count: they run only with the graph.

Steps, and the time between them, cover a device's time without gaps (`Window`):

* a step begins when the host begins it, but not before the last earlier command of the main stream has ended. So a
  device that is later than the host is not idle, and a beginning with host work only counts as a part of the step.
* a step ends with its host part or with its last command on the main stream, whichever is later, but not after the next
  step begins. The time until then is *between* steps.

The main stream is the one with most computation. Other streams move no boundary, so that a late all-reduce of one step
does not shorten the next one; but an only step ends with its last command on any stream. If host and device have no
common clock, only the commands bound a step. If only the repetition of kernels shows the steps, each lasts until the
next one begins, and the end of the last one is unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.clocks.axis import SAME
from mio2trace.align.ranges import begun_ns
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Profile
from mio2trace.model.tables import (
    KINDS,
    NEVER,
    NO,
    Activities,
    Calls,
    Codes,
    Numbers,
    by_code,
    firsts,
    least,
    most,
    present,
    summed,
)
from mio2trace.patterns import late

Span = tuple[int, int]
Class = Literal["compute", "communication", "copy"]
CLASSES: tuple[Class, ...] = ("compute", "communication", "copy")
_RUNTIME_COPIES = ("__amd_rocclr_copy", "__amd_rocclr_fill")
"""The beginnings of the HIP runtime's own kernels that copy and fill: `hipMemcpyAsync` on one device,
`hipMemsetAsync`."""


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """How a device spent a window, in ns; all fields except the first add up to ``length_ns``."""

    length_ns: int
    compute_ns: int = 0
    communication_ns: int = 0
    copy_ns: int = 0
    unrecorded_ns: int = 0
    idle_ns: int = 0


@lru_cache(maxsize=1 << 12)
def class_of_kernel(name: str) -> Class:
    if name.startswith(_RUNTIME_COPIES):
        return "copy"
    meaning = kernel_name(name)
    return "communication" if meaning is not None and meaning.role == "collective" else "compute"


def has_common_clock(alignment: Alignment) -> bool:
    """Whether host and device times can be compared to the nanosecond, and the profiler did not wait for commands."""
    clocks = alignment.clocks
    return bool(clocks) and all(clock == SAME for clock in clocks.values()) and not alignment.profile.calls_wait


class Covered:
    """Merged spans of time in ns, which cover parts of a window. ``starts``, ``ends``: their columns."""

    def __init__(self, starts: Numbers, ends: Numbers) -> None:
        # On most streams each command is behind the one before it.
        if not (bool(np.all(starts[:-1] < starts[1:])) and bool(np.all(starts[1:] > ends[:-1]))):
            order = np.lexsort((ends, starts))
            starts, until = starts[order], np.maximum.accumulate(ends[order])
            apart = starts[1:] > until[:-1]  # whether the next one begins behind all before it
            starts = np.concatenate((starts[:1], starts[1:][apart]))
            ends = np.concatenate((until[:-1][apart], until[-1:]))
        self.starts, self.ends = starts, ends
        self._before: NDArray[Any] = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(ends - starts, out=self._before[1:])
        if len(starts) and int(ends[-1]) - int(starts[0]) >= 1 << 63:  # a file of our own that somebody changed
            self._before = np.concatenate(([0], np.cumsum(ends.astype(object) - starts.astype(object))))

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Covered:
        """As from their starts and ends."""
        columns = np.array([*spans], np.int64).reshape(-1, 2)
        return cls(columns[:, 0], columns[:, 1])

    def within(self, begin: int, end: int) -> int:
        """Return the covered time of a window, in ns."""
        if end <= begin:
            return 0
        first, last = int(self.ends.searchsorted(begin, "right")), int(self.starts.searchsorted(end))
        if first >= last:
            return 0
        covered = int(self._before[last]) - int(self._before[first])
        return covered - max(0, begin - int(self.starts[first])) - max(0, int(self.ends[last - 1]) - end)

    def gaps(self, begin: int, end: int) -> tuple[Numbers, Numbers]:
        """When the parts of a window that nothing covers begin and end, in order."""
        first, last = int(self.ends.searchsorted(begin, "right")), int(self.starts.searchsorted(end))
        starts = np.concatenate(([begin], self.ends[first:last]))
        ends = np.concatenate((self.starts[first:last], [end]))
        is_gap = starts < ends
        return (starts, ends) if is_gap.all() else (starts[is_gap], ends[is_gap])


class Occupation:
    """One device's time by class. ``commands``: covered by a recorded command. ``held``: covered by a recorded command
    or by other work. ``unrecorded``: the times of this other work."""

    def __init__(
        self,
        starts: Numbers,
        ends: Numbers,
        classes: NDArray[np.int8],
        commands: Covered,
        unrecorded: Sequence[Span],
    ) -> None:
        """The commands' times and classes (places in `CLASSES`), a value each; what they cover."""
        self.commands = self.held = commands
        if unrecorded:
            more = np.array([*unrecorded]).T
            self.held = Covered(np.concatenate((commands.starts, more[0])), np.concatenate((commands.ends, more[1])))
        self.unrecorded = tuple(unrecorded)
        there = np.bincount(classes, minlength=len(CLASSES)).tolist()
        self._levels: list[Covered] = []
        for number in range(len(CLASSES)):
            if not any(there[number + 1 :]):
                self._levels.append(commands)
            elif self._levels and not there[number]:
                self._levels.append(self._levels[-1])
            else:
                is_in = classes <= number
                self._levels.append(Covered(starts[is_in], ends[is_in]))
        self._levels.append(self.held)

    def busy(self, begin: int, end: int) -> Busy:
        """Return how the window was spent."""
        compute, communication, copy, held = (level.within(begin, end) for level in self._levels)
        return Busy(
            length_ns=end - begin,
            compute_ns=compute,
            communication_ns=communication - compute,
            copy_ns=copy - communication,
            unrecorded_ns=held - copy,
            idle_ns=end - begin - held,
        )


# -- Exposed copies and fills by direction -----------------------------------------------------------------------------

DIRECTIONS = ("host to device", "device to host", "device to device", "copies", "copy kernels", "fills")
"""Copies of known direction; other copies; the runtime's kernels that copy, in any direction; fills."""
_BLOCKING = late(r"(?:hip|cuda)Memcpy(?!\w{0,24}Async)", re.ASCII)
"""Calls that return after the copy."""
_PAGEABLE, _PINNED = ", pageable", ", pinned"
"""The ends of names of copies whose memory the profiler names."""


class Exposed(msgspec.Struct, frozen=True, kw_only=True):
    """The exposed time of one of `DIRECTIONS`, in ns. If copies of two directions run at the same time, it is that of
    the first of them.

    The other fields are of all copies that begin in the same spans. ``count``: their number. ``bytes``, ``bytes_ns``:
    their size and their time as far as sizes are known. ``sized``: the part of their time with known sizes.
    ``blocking``: the part of their time whose calls block the host, None if no call is known. ``pageable``: the part
    of their time with pageable memory, None if the profiler names the memory of none.
    """

    direction: str
    ns: int
    count: int
    bytes: int
    bytes_ns: int
    sized: float
    blocking: float | None
    pageable: float | None


def exposed_copies(alignment: Alignment, device: int, spans: Sequence[Span]) -> list[Exposed]:
    """Return the exposed copies of a device in some spans of time, most time first. ``spans``: at least one, in order.

    The times of all directions add up to the part ``copy_ns`` of the spans (`Occupation.busy`).
    """
    profile, commands = alignment.profile, alignment.profile.commands
    rows = np.flatnonzero((profile.devices_of_commands == device) & commands.has_times)
    is_kernel, starts, ends = commands.is_kernel[rows], commands.start_ns[rows], commands.end_ns[rows]
    works = is_kernel & ~commands.name.where(lambda name: class_of_kernel(name) == "copy")[rows]
    is_filling = commands.name.where(lambda name: name.startswith(("fill", "__amd_rocclr_fill")))[rows]
    place = {direction: at for at, direction in enumerate(DIRECTIONS)}
    routes = np.array([place.get(route, place["copies"]) for route in commands.route.values], np.int8)
    direction_of = np.where(is_kernel, place["copy kernels"], routes[commands.route.codes[rows]])
    direction_of = np.where(is_filling, place["fills"], direction_of)
    memory_of = commands.name.where(lambda name: name.endswith((_PAGEABLE, _PINNED)))[rows]
    is_pageable = commands.name.where(lambda name: name.endswith(_PAGEABLE))[rows]
    begins, untils = np.array([*spans], np.int64).reshape(-1, 2).T
    span_of = np.searchsorted(begins, starts, side="right") - 1
    begins_inside: NDArray[np.bool_] = (span_of >= 0) & (starts < untils[span_of])
    calls = commands.calls.name.where(lambda name: _BLOCKING.match(name) is not None)
    call_of = commands.call[rows]
    blocks = (call_of >= 0) & (calls[call_of] if len(calls) else False)
    found = []
    held, level = works, Covered(starts[works], ends[works])
    before = sum(level.within(*span) for span in spans)
    for at, direction in enumerate(DIRECTIONS):
        own = ~works & (direction_of == at)
        if not own.any():
            continue
        held = held | own
        level = Covered(starts[held], ends[held])
        until = sum(level.within(*span) for span in spans)
        own &= begins_inside
        lengths, sizes = (ends - starts)[own], commands.size_bytes[rows][own]
        known = (call_of >= 0)[own]
        called = sum(lengths[known].tolist())
        named = sum(lengths[memory_of[own]].tolist())
        found.append(
            Exposed(
                direction=direction,
                ns=until - before,
                count=int(own.sum()),
                bytes=sum(sizes.tolist()),
                bytes_ns=sum(lengths[sizes > 0].tolist()),
                sized=sum(lengths[sizes > 0].tolist()) / max(1, sum(lengths.tolist())),
                blocking=sum(lengths[blocks[own]].tolist()) / called if called else None,
                pageable=sum(lengths[is_pageable[own]].tolist()) / named if named else None,
            )
        )
        before = until
    return sorted((one for one in found if one.ns), key=lambda one: -one.ns)


LEAST_BLOCKED_NS = 1_000_000
"""A shorter wait in a synchronising call is normal."""
MOST_COPIED = 1 << 20
"""Bytes: a larger copy may begin long after its call, because its pages are pinned or staged first."""
_LAUNCH = late(
    r"^(?:hip|cuda|cu)\w*Launch(?!HostFunc)|^clEnqueue(?:NDRangeKernel|Task)$"
    r"|^urEnqueueKernelLaunch|^zeCommandListAppendLaunch\w*Kernel"  # of Intel's GPUs
)
_WAIT = late(r"Synchronize|EventQuery|StreamQuery|WaitForEvents|clFinish|Memcpy")
"""Calls in which the host waits for a device."""
_FOREVER = (1 << 63) - 1


class Launches:
    """The launches of a profile without a recorded command."""

    def __init__(self, profile: Profile, *, has_common_clock: bool) -> None:
        self._profile = profile
        self._common = has_common_clock

    @cached_property
    def without_kernels(self) -> int:
        """How many launches of kernels there are whose kernel is not recorded."""
        return len(self._unanswered) - self.graphs_without_kernels

    @cached_property
    def graphs_without_kernels(self) -> int:
        """How many launches of graphs ran no recorded command."""
        return int(self._unanswered.name.where(lambda name: "GraphLaunch" in name).sum())

    @cached_property
    def _unanswered(self) -> Calls:
        """In order of the file."""
        calls = self._profile.lone_calls
        is_launch = calls.name.where(lambda name: _LAUNCH.search(name) is not None)
        rows = np.flatnonzero(is_launch & (calls.start_ns != NO) & (not self._profile.calls_wait))
        if len(rows):
            starts = calls.start_ns[rows].tolist()
            rows = rows[[not self._captures.within(start, start + 1) for start in starts]]
        found = calls.take(rows)
        return found.take(~self._is_within_another(found)) if len(found) else found

    @cached_property
    def _captures(self) -> Covered:
        """The times of stream captures."""
        calls = self._profile.lone_calls
        begins = calls.name.where(lambda name: "BeginCapture" in name)
        ends = calls.name.where(lambda name: "EndCapture" in name)
        rows = np.flatnonzero((begins | ends) & (calls.start_ns != NO))
        spans: list[Span] = []
        begun: list[int] = []
        for is_begin, start in zip(begins[rows].tolist(), calls.start_ns[rows].tolist(), strict=True):
            if is_begin:
                begun.append(start)
            elif begun:
                spans.append((begun.pop(), start))
        return Covered.of([*spans, *((start, _FOREVER) for start in begun)])

    def _is_within_another(self, calls: Calls) -> NDArray[np.bool_]:
        """Whether each call is inside another call for the same launch, which ran something."""
        others = self._profile.commands.calls
        others = others.take((others.start_ns != NO) & (others.end_ns != NO))
        is_inner = np.zeros(len(calls), bool)
        for thread in present(calls.thread).tolist():
            own = others.take(others.thread == thread)
            if len(own):
                order = np.argsort(own.start_ns, kind="stable")
                rows = np.flatnonzero(calls.thread == thread)
                at = np.searchsorted(own.start_ns[order], calls.start_ns[rows], "right") - 1
                is_inner[rows] = (at >= 0) & (own.end_ns[order][at] >= np.maximum(calls.end_ns[rows], 0))
        return is_inner

    # -- work that was not recorded ----------------------------------------------------------------------------------

    def lead(self, own: Numbers, is_main: NDArray[np.bool_], covered: Covered) -> Sequence[Span]:
        """Return the time of earlier work: from the launch of the main stream's first command to its begin, if hardly
        any recorded command ran in that time. ``own``: the positions of a device's commands with times; then which of
        them are on the main stream; their spans."""
        main = own[is_main]
        if not self._common or not len(main):
            return ()
        commands = self._profile.commands
        begun = int(commands.start_ns[main].min())
        earliest = main[commands.start_ns[main] == begun]
        returned = int(commands.host_end_ns[earliest[np.argmin(commands.end_ns[earliest])]])
        if returned == NO or begun - returned < LEAST_BLOCKED_NS:
            return ()
        return ((returned, begun),) if 2 * covered.within(returned, begun) < begun - returned else ()

    def blocked(self, own: Numbers, lead: Sequence[Span], covered: Covered) -> list[Span]:
        """Return the times in which a device did work that the profile does not hold: in its `lead`, and in gaps
        between the recorded commands. ``own``, ``covered``: as there.

        Such a gap has at least a millisecond, and the host waits for the device during the gap. There is also a sign of
        pending work: a launch without a command, or a small copy of the device that began long after its call.
        """
        if not self._common:
            return []
        found = Covered.of([*lead, *self._blocked_gaps(own, covered)])
        return [*zip(found.starts.tolist(), found.ends.tolist(), strict=True)]

    def _blocked_gaps(self, own: Numbers, covered: Covered) -> Iterator[Span]:
        commands = self._profile.commands
        long = np.flatnonzero(covered.starts[1:] - covered.ends[:-1] >= LEAST_BLOCKED_NS)
        gaps = zip(covered.ends[long].tolist(), covered.starts[long + 1].tolist(), strict=True)
        waits = [(gap[0], wait) for gap in gaps if (wait := self._longest_wait(gap)) is not None]
        waits = [(until, wait) for until, wait in waits if wait[1] - wait[0] >= LEAST_BLOCKED_NS]
        if not waits:
            return
        ends = commands.end_ns[own]
        order = np.argsort(ends, kind="stable")
        last = order[np.searchsorted(ends, [until for until, _ in waits], "right", sorter=order) - 1]
        late = self._late_copies(own)
        # of the command that ended then, when it was launched
        for (until, wait), since in zip(waits, commands.host_start_ns[own[last]].tolist(), strict=True):
            if self._is_pending(until if since == NO else since, wait, late):
                yield wait

    def _is_pending(self, since: int, wait: Span, late: Covered) -> bool:
        """Return whether there was work to wait for: launched since then, or a ``late`` copy that had not begun."""
        starts = self._unanswered_starts
        at = bisect_right(starts, since)
        return (at < len(starts) and starts[at] < wait[1]) or 2 * late.within(*wait) > wait[1] - wait[0]

    def _longest_wait(self, gap: Span) -> Span | None:
        waits = self._waits
        at = bisect_right(waits.ends, gap[0])
        best: Span | None = None
        while at < len(waits.starts) and waits.starts[at] < gap[1]:
            start, end = max(gap[0], int(waits.starts[at])), min(gap[1], int(waits.ends[at]))
            if best is None or end - start > best[1] - best[0]:
                best = start, end
            at += 1
        return best

    @cached_property
    def _waits(self) -> Covered:
        """Return when the host was in a call that waits for a device, for at least a millisecond."""
        commands = self._profile.commands
        of_others = commands.call[~commands.is_kernel]
        both = self._profile.lone_calls, commands.calls.take(of_others[of_others >= 0])
        return Covered(*map(np.concatenate, zip(*map(_waits_among, both), strict=True)))

    def _late_copies(self, own: Numbers) -> Covered:
        """Return when a small copy of a device was launched but had not begun, for at least a millisecond."""
        commands = self._profile.commands
        called, starts = commands.host_start_ns[own], commands.start_ns[own]
        sizes = commands.size_bytes[own]  # 0: not recorded
        is_small = (commands.kind[own] == KINDS.index("copy")) & (sizes > 0) & (sizes <= MOST_COPIED)
        is_late = is_small & (starts != NO) & (called != NO) & (starts - called >= LEAST_BLOCKED_NS)
        return Covered(called[is_late], starts[is_late])

    @cached_property
    def _unanswered_starts(self) -> list[int]:
        return sorted(self._unanswered.start_ns.tolist())


def _waits_among(calls: Calls) -> tuple[Numbers, Numbers]:
    """When those of some calls began and ended that wait for a device, a millisecond at least."""
    long = (calls.start_ns != NO) & (calls.end_ns != NO) & (calls.end_ns - calls.start_ns >= LEAST_BLOCKED_NS)
    waits = long & calls.name.where(lambda name: _WAIT.search(name) is not None and not name.endswith("Async"))
    return calls.start_ns[waits], calls.end_ns[waits]


# -- Gaps within the launch of a graph, in which a device did work that the profile does not hold ----------------------
#
# The nodes of a graph follow each other within microseconds: none of them waits for the host, and the device starts
# them by itself. So a long gap between two recorded nodes, in which nothing recorded runs, has nodes between them
# without a record. Profilers lose such nodes in part: of some graphs only the fills are recorded.
#
# If a profile has such gaps, its graphs may also lack their first nodes. Then a long wait of a graph that was launched
# already, before its first recorded node, is one, too.


LEAST_NS = 500_000
"""A shorter gap is normal."""
TIMES_USUAL = 100
"""A gap must last this many times as long as a usual gap between two nodes (the lower quartile of a device)."""


def graph_gaps(profile: Profile, own: Numbers, covered: Covered, *, has_common_clock: bool) -> list[Span]:
    """Return when a device did such work. ``own``: the positions of its commands with times; ``covered``: their
    spans."""
    commands = profile.commands
    nodes = own[commands.is_replayed[own]]
    if not len(nodes):
        return []
    nodes = nodes[np.argsort(commands.start_ns[nodes], kind="stable")]
    starts, calls = commands.start_ns[nodes], commands.call[nodes]
    is_first = starts == starts[firsts(calls, len(commands.calls))[calls]]
    returned = commands.calls.end_ns[calls]
    within: list[Span] = []
    before: list[Span] = []
    gap_starts, gap_ends = covered.ends[:-1], covered.starts[1:]
    first, last = np.searchsorted(starts, gap_ends, "left"), np.searchsorted(starts, gap_ends, "right")
    for gap in np.flatnonzero(first < last).tolist():
        until, start, part = int(gap_starts[gap]), int(gap_ends[gap]), slice(first[gap], last[gap])
        if not is_first[part].all():
            within.append((until, start))
        elif has_common_clock:
            known = returned[part][returned[part] != NO]
            before += [(max(until, int(known.min())), start)] if len(known) else []
    launches = len(present(calls))
    least = max(LEAST_NS, TIMES_USUAL * _usual([start - until for until, start in within], len(nodes) - launches))
    found = [span for span in within if span[1] - span[0] > least]
    return sorted(found + [span for span in before if span[1] - span[0] > least]) if found else []


def _usual(gaps: list[int], count: int) -> int:
    """Return the lower quartile of ``count`` gaps, of which only these are not 0."""
    place = count // 4 - (count - len(gaps))
    return sorted(gaps)[place] if 0 <= place < len(gaps) else 0


# -- The cost of launching kernels: host time in the calls that launched them, and their time in the queue -------------
#
# A kernel is in its queue from the return of the call that launched it until it starts: 0 if it starts before that. A
# device that records when a command was queued states it itself. The kernels of a graph share one call and wait for
# each other, so neither time is known for them.


class LaunchTimes(NamedTuple):
    """Sums by number; None if the time of one of its kernels is unknown."""

    api_ns: list[int | None]
    queue_ns: list[int | None]


def queued_ns(commands: Activities, *, on_one_clock: bool) -> Numbers:
    """Return the time of each kernel in its queue, `NO` where it is not known. ``on_one_clock``: host and device times
    can be compared."""
    starts, queued = commands.start_ns, commands.queued_ns
    called, returned = commands.host_start_ns, commands.host_end_ns
    is_launched = on_one_clock & (called != NO) & (returned != NO) & (starts >= called)
    since = np.where(queued != NO, queued, np.where(is_launched, returned, NO))
    is_known = commands.is_kernel & (starts != NO) & ~commands.is_replayed & (since != NO)
    found: Numbers = np.where(is_known, np.maximum(starts - since, 0), NO)
    return found


def launch_times(alignment: Alignment, positions: Numbers, number_of: Sequence[int] | Codes, count: int) -> LaunchTimes:
    """Sum the launch times of the kernels at ``positions``, by their number below ``count``. A call that launched
    several kernels counts once."""
    commands = alignment.profile.commands
    numbers = np.asarray(number_of)[positions]
    rows = positions[(numbers != NONE) & commands.is_kernel[positions]]
    rows = rows[np.argsort(np.asarray(number_of)[rows], kind="stable")]
    numbers, calls = np.asarray(number_of)[rows], commands.call[rows]
    called, returned = commands.host_start_ns[rows], commands.host_end_ns[rows]
    is_known = (called != NO) & (returned != NO) & ~commands.is_replayed[rows]
    is_again = np.zeros(len(rows), bool)
    is_again[1:] = (numbers[1:] == numbers[:-1]) & (calls[1:] == calls[:-1])
    in_queue = queued_ns(commands, on_one_clock=has_common_clock(alignment))[rows]
    return LaunchTimes(
        _sums(numbers, np.where(is_again & is_known, 0, returned - called), is_known, count),
        _sums(numbers, in_queue, in_queue != NO, count),
    )


def _sums(numbers: Numbers, values: Numbers, is_known: NDArray[np.bool_], count: int) -> list[int | None]:
    """Sums by number; None where one value is not known, or there is none."""
    lacks = np.bincount(numbers[~is_known], minlength=count) > 0
    has = np.bincount(numbers, minlength=count) > 0
    sums: list[int] = summed(numbers[is_known], values[is_known], count).tolist()
    return [ns if known else None for ns, known in zip(sums, (has & ~lacks).tolist(), strict=True)]


MOST_DEVICES = 64
"""If there are more devices, each has windows only for the steps in which it ran something."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A step on one device. ``place``: among all iterations. ``end_ns``, ``busy``: None if the end is unknown.

    ``kernels`` and ``kernel_ns`` count the commands launched in the step, whenever they ran. ``busy`` counts all
    commands that ran in it.
    """

    place: int
    begin_ns: int
    end_ns: int | None
    kernels: int
    kernel_ns: int
    busy: Busy | None

    @property
    def step_ns(self) -> int | None:
        return None if self.end_ns is None else self.end_ns - self.begin_ns


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one device, in order. ``recording``: from the start of its first command to the end of its last one,
    without those from before the recording.

    ``stream``: the place of its main stream among the profile's queues. ``blocked``: how often the host waited for
    unrecorded work. ``graph_gaps``: the number of gaps within graph launches that are such work.
    """

    device: int
    stream: int
    windows: tuple[Window, ...]
    recording: Busy
    occupation: Occupation
    blocked: int = 0
    graph_gaps: int = 0

    def total_ns(self, places: Sequence[int]) -> int:
        """Return the total length of some steps whose ends are known."""
        return sum(one.step_ns or 0 for one in self.windows if one.place in places)


class _Step(msgspec.Struct, frozen=True):
    """The bounds of a step on a device. ``ended``: on the main stream, of an only step on any; ``launched_before``:
    when what runs on the main stream and was launched before the step ended."""

    kernels: int
    kernel_ns: int
    first: int | None
    ended: int | None
    launched_before: int | None


def device_times(
    alignment: Alignment, place_of: Codes, count: int, launches: Launches, *, repeated: bool, contiguous: bool
) -> tuple[DeviceTime, ...]:
    """Return the steps of each device that ran commands. ``place_of``: for each activity, the place of its step among
    ``count``.

    ``repeated``: only the repetition of kernels shows the steps. ``contiguous``: a step lasts until the next begins.
    """
    profile, commands = alignment.profile, alignment.profile.commands
    rows = np.flatnonzero(commands.has_times)
    own_rows = dict(by_code(rows, profile.devices_of_commands[rows]))
    is_common = has_common_clock(alignment)
    hosts = _host_spans(alignment, place_of, count) if is_common else [None] * count
    is_early = np.array([*(pass_.phase == "before" for pass_ in alignment.links.passes), False])
    made = []
    for device, positions in own_rows.items():
        own = _Own(commands, positions)
        covered = Covered(own.starts, own.ends)
        lead = launches.lead(positions, own.is_main, covered)
        blocked = launches.blocked(positions, lead, covered)
        graphs = graph_gaps(profile, positions, covered, has_common_clock=is_common)
        occupation = Occupation(own.starts, own.ends, own.classes, covered, [*blocked, *graphs])
        own_places = place_of[positions]
        places = range(count) if len(own_rows) <= MOST_DEVICES else sorted({*own_places.tolist()} - {NONE})
        early = is_early[np.asarray(alignment.links.pass_of)[positions]]
        begun = int(own.starts[early if early.all() else ~early].min())
        steps = _steps(own, own_places, places, early, lead[0][1] if lead else None, is_only=count == 1)
        made.append(
            DeviceTime(
                device=device,
                stream=own.stream,
                windows=tuple(_windows(steps, hosts, occupation, repeated=repeated, contiguous=contiguous)),
                recording=occupation.busy(begun, int(covered.ends[-1])),
                occupation=occupation,
                blocked=len(blocked),
                graph_gaps=len(graphs),
            )
        )
    return tuple(made)


class _Own:
    """A device's commands that have times, in the profile's order: a column each. ``classes``: the class of their
    work; ``stream``: the one with most computation."""

    def __init__(self, commands: Activities, positions: Numbers) -> None:
        # No column is copied if all commands are the device's.
        own: Any = slice(None) if len(positions) == len(commands) else positions
        self.starts, self.ends = commands.start_ns[own], commands.end_ns[own]
        self.is_kernel = commands.is_kernel[own]
        names = commands.name
        of_name = np.array([CLASSES.index(class_of_kernel(name)) for name in names.values], np.int8)
        self.classes = np.where(self.is_kernel, of_name[names.codes[own]], CLASSES.index("copy"))
        streams, place_of = commands.queues.values, commands.queues.codes[own]
        computes = self.classes == CLASSES.index("compute")
        computing = summed(place_of[computes], commands.time_ns[own][computes], len(streams))
        there = np.bincount(place_of, minlength=len(streams)) > 0
        main = int(np.argmax(np.where(there, computing, -1)))
        self.stream, self.is_main = streams[main], place_of == main


def _host_spans(alignment: Alignment, place_of: Codes, count: int) -> list[Span | None]:
    """Return for each step the time in which the host was in it: between its marks, else from its first launch to the
    return of the last one."""
    commands = alignment.profile.commands
    called, returned = commands.host_start_ns, commands.host_end_ns
    rows = np.flatnonzero((place_of != NONE) & (called != NO) & (returned != NO))
    places = place_of[rows]
    begun, until = least(places, called[rows], count).tolist(), most(places, returned[rows], count).tolist()
    spans = [None if start == NEVER else (start, end) for start, end in zip(begun, until, strict=True)]
    times = begun_ns(alignment.profile) if alignment.steps else called
    rows = np.flatnonzero((place_of != NONE) & (times != NO)) if alignment.steps else rows[:0]
    for place, first in enumerate(firsts(place_of[rows], count).tolist()):
        step = None if first == NONE else alignment.step_at(int(times[rows[first]]))
        if step is not None:
            spans[place] = step.start_ns, step.end_ns
    return spans


def _steps(
    own: _Own,
    place_of: Codes,
    places: Sequence[int],
    is_early: NDArray[np.bool_],
    before: int | None,
    *,
    is_only: bool,
) -> dict[int, _Step]:
    """Return the bounds of each step of ``places`` on a device. For each of its commands, ``place_of`` has the step,
    and ``is_early`` whether it was launched before the recording. ``before``: the end of work from before the
    recording. ``is_only``: the profile has one step."""
    count = max([int(place_of.max(initial=NONE)), *places[-1:]], default=NONE) + 1
    inside, kernels = place_of != NONE, (place_of != NONE) & own.is_kernel
    main, outside = inside & own.is_main, ~inside & own.is_main
    held = np.bincount(place_of[kernels], minlength=count).tolist()
    held_ns = summed(place_of[kernels], (own.ends - own.starts)[kernels], count).tolist()
    first = least(place_of[inside], own.starts[inside], count).tolist()
    bounding = inside if is_only else main
    ended = most(place_of[bounding], own.ends[bounding], count).tolist()
    # what runs on the main stream and was launched before a step: by the first step that none before it reaches
    late = outside & ~is_early
    following = np.maximum.accumulate(place_of)[late] + 1
    others = most(following, own.ends[late], count + 1).tolist()
    early = own.ends[outside & is_early]
    before = _last(before, int(early.max(initial=NO)))
    steps: dict[int, _Step] = {}
    reached = 0
    for place in places:
        before = _last(before, max(others[reached : place + 1]))
        steps[place] = _Step(held[place], held_ns[place], _known(first[place]), _known(ended[place]), before)
        before, reached = _last(before, ended[place]), place + 1
    return steps


def _known(ns: int) -> int | None:
    return None if ns in (NO, NEVER) else ns


def _last(before: int | None, ns: int) -> int | None:
    """The later of two times; ``ns`` may be `NO`."""
    return before if ns == NO else ns if before is None else max(before, ns)


def _windows(
    steps: Mapping[int, _Step],
    hosts: Sequence[Span | None],
    occupation: Occupation,
    *,
    repeated: bool,
    contiguous: bool,
) -> list[Window]:
    begins: dict[int, int | None] = {}
    last: int | None = None
    for place, step in steps.items():
        host = hosts[place]
        candidates = [] if host is None else [host[0]]
        if host is None and step.first is not None:
            candidates.append(step.first)
        elif repeated and step.first is not None:  # the launches of its first commands may be unrecorded
            candidates = [min(candidates[0], step.first)]
        if candidates:
            candidates += [one for one in (step.launched_before, last) if one is not None]
        begins[place] = max(candidates) if candidates else None
        last = begins[place] if begins[place] is not None else last
    made: list[Window] = []
    following: int | None = None
    for place in reversed([*steps]):
        own, begin, host = steps[place], begins[place], hosts[place]
        if begin is None:
            continue
        ends = [one for one in (None if host is None else host[1], own.ended) if one is not None]
        end: int | None = max([begin, *ends])
        if repeated:
            end = following
        elif following is not None and end is not None:
            end = following if contiguous else min(end, following)
        made.append(
            Window(
                place=place,
                begin_ns=begin,
                end_ns=end,
                kernels=own.kernels,
                kernel_ns=own.kernel_ns,
                busy=None if end is None else occupation.busy(begin, end),
            )
        )
        following = begin
    return made[::-1]
