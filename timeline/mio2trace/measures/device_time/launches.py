"""Launches whose work the profile does not hold, and the gaps in which the device did such work.

The work of a launch without a kernel was filtered out, was lost, or ran after the recording ended. Launches into a
stream capture do not count: they run only with the graph.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from typing import NamedTuple

from mio2trace.align import NONE, Alignment
from mio2trace.measures.device_time.busy import Commands, Covered, Span, has_common_clock, known
from mio2trace.model.profile import Activity, Call, Profile
from mio2trace.patterns import late

LEAST_BLOCKED_NS = 1_000_000
"""A shorter wait in a synchronising call is normal."""
MOST_COPIED = 1 << 20
"""Bytes: a larger copy may begin long after its call, because its pages are pinned or staged first."""
_LAUNCH = late(r"^(?:hip|cuda|cu)\w*Launch(?!HostFunc)|^clEnqueue(?:NDRangeKernel|Task)$")
_WAIT = late(r"Synchronize|EventQuery|StreamQuery|WaitForEvents|clFinish|Memcpy")
"""Calls in which the host waits for a device."""
_FOREVER = (1 << 63) - 1


class Launches:
    """The launches of a profile without a recorded command."""

    def __init__(self, profile: Profile, *, has_common_clock: bool) -> None:
        self._profile = profile
        self._common = has_common_clock

    @cached_property
    def without_kernels(self) -> tuple[Call, ...]:
        """Launches of kernels whose kernel is not recorded, in order of time."""
        return tuple(call for call in self._unanswered if "GraphLaunch" not in call.name)

    @cached_property
    def graphs_without_kernels(self) -> tuple[Call, ...]:
        """Launches of graphs without a recorded command."""
        return tuple(call for call in self._unanswered if "GraphLaunch" in call.name)

    @cached_property
    def _unanswered(self) -> tuple[Call, ...]:
        if self._profile.calls_wait:
            return ()
        found = [call for call in self._profile.other_calls if _LAUNCH.search(call.name) and call.start_ns is not None]
        captures = self._captures if found else Covered((), ())
        kept = [call for call in found if not captures.within(call.start_ns or 0, (call.start_ns or 0) + 1)]
        return tuple(call for call in kept if not self._is_within_another(call))

    @cached_property
    def _captures(self) -> Covered:
        """The times of stream captures."""
        spans: list[Span] = []
        begun: list[int] = []
        for call in self._profile.other_calls:
            if call.start_ns is None:
                continue
            if "BeginCapture" in call.name:
                begun.append(call.start_ns)
            elif "EndCapture" in call.name and begun:
                spans.append((begun.pop(), call.start_ns))
        return Covered.of([*spans, *((start, _FOREVER) for start in begun)])

    def _is_within_another(self, call: Call) -> bool:
        """Return whether it is the inner one of two calls of the same launch."""
        starts, calls = self._answered.get(call.thread, ([], []))
        at = bisect_right(starts, call.start_ns or 0) - 1
        return at >= 0 and (calls[at].end_ns or 0) >= (call.end_ns or 0) and calls[at] is not call

    @cached_property
    def _answered(self) -> dict[int, tuple[list[int], list[Call]]]:
        """The launches that ran something, by thread, in order."""
        by_thread: dict[int, dict[int, Call]] = defaultdict(dict)
        for activity in self._profile.activities:
            call = activity.call
            if call is not None and call.start_ns is not None and call.end_ns is not None:
                by_thread[call.thread][id(call)] = call
        found = {}
        for thread, calls in by_thread.items():
            ordered = sorted(calls.values(), key=lambda call: call.start_ns or 0)
            found[thread] = [call.start_ns or 0 for call in ordered], ordered
        return found

    # -- work that was not recorded ----------------------------------------------------------------------------------

    def lead(self, own: Sequence[int], is_main: Sequence[bool], commands: Commands, covered: Covered) -> Sequence[Span]:
        """Return the time of earlier work: from the launch of the main stream's first command to its begin, if hardly
        any recorded command ran in that time. ``own``: the positions of a device's commands with times; then which of
        them are on the main stream; their spans."""
        if not self._common:
            return ()
        starts, main = commands.starts, [*compress(own, is_main)]
        begun = min(known(map(starts.__getitem__, main)), default=None)
        if begun is None:
            return ()
        first = min((at for at in main if starts[at] == begun), key=lambda at: commands.ends[at] or 0)
        returned = commands.returned[first]
        if returned is None or begun - returned < LEAST_BLOCKED_NS:
            return ()
        return ((returned, begun),) if 2 * covered.within(returned, begun) < begun - returned else ()

    def blocked(self, own: Sequence[int], lead: Sequence[Span], commands: Commands, covered: Covered) -> list[Span]:
        """Return when a device did unrecorded work although no recorded command ran: in its `lead`, and in gaps.
        ``own``, ``covered``: as in `lead`.

        Such a gap has at least a millisecond, the host waits for the device during it, and there is a sign of pending
        work: a launch without a command, or a small copy that began long after its call.
        """
        if not self._common:
            return []
        found = Covered.of([*lead, *self._blocked_gaps(own, commands, covered)])
        return [*zip(found.starts, found.ends, strict=True)]

    def _blocked_gaps(self, own: Sequence[int], commands: Commands, covered: Covered) -> Iterator[Span]:
        called_of: dict[int | None, int | None] = {}  # of the command that ended then, when it was launched
        for until, start in zip(covered.ends, covered.starts[1:], strict=False):
            if start - until < LEAST_BLOCKED_NS:
                continue
            wait = self._longest_wait((until, start))
            if wait is None or wait[1] - wait[0] < LEAST_BLOCKED_NS:
                continue
            if not called_of:
                called_of = {commands.ends[at]: commands.called[at] for at in own}
            since = called_of[until]
            if self._is_pending(until if since is None else since, wait):
                yield wait

    def _is_pending(self, since: int, wait: Span) -> bool:
        """Return whether there was work to wait for: launched since then, or a copy that had not begun."""
        starts = self._unanswered_starts
        at = bisect_right(starts, since)
        return (at < len(starts) and starts[at] < wait[1]) or 2 * self._late_copies.within(*wait) > wait[1] - wait[0]

    def _longest_wait(self, gap: Span) -> Span | None:
        waits = self._waits
        at = bisect_right(waits.ends, gap[0])
        best: Span | None = None
        while at < len(waits.starts) and waits.starts[at] < gap[1]:
            start, end = max(gap[0], waits.starts[at]), min(gap[1], waits.ends[at])
            if best is None or end - start > best[1] - best[0]:
                best = start, end
            at += 1
        return best

    @cached_property
    def _waits(self) -> Covered:
        """Return when the host was in a call that waits for a device, for at least a millisecond."""
        calls = (*self._profile.other_calls, *(one.call for one in self._profile.activities if one.kind != "kernel"))
        return Covered.of(
            (call.start_ns, call.end_ns)
            for call in calls
            if call is not None
            and call.start_ns is not None
            and call.end_ns is not None
            and call.end_ns - call.start_ns >= LEAST_BLOCKED_NS
            and _WAIT.search(call.name) is not None
            and not call.name.endswith("Async")
        )

    @cached_property
    def _late_copies(self) -> Covered:
        """Return when a small copy was launched but had not begun, for at least a millisecond."""
        return Covered.of(
            (called, one.start_ns)
            for one in self._profile.activities
            if one.kind == "copy"
            and one.size_bytes <= MOST_COPIED
            and one.start_ns is not None
            and (called := one.host_start_ns) is not None
            and one.start_ns - called >= LEAST_BLOCKED_NS
        )

    @cached_property
    def _unanswered_starts(self) -> list[int]:
        return sorted(call.start_ns or 0 for call in self._unanswered)


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


def graph_gaps(profile: Profile, own: Sequence[int], covered: Covered, *, has_common_clock: bool) -> list[Span]:
    """Return when a device did such work. ``own``: the positions of its commands with times; ``covered``: their
    spans."""
    begun: dict[int, int] = {}
    launched_at: dict[int, list[Call]] = defaultdict(list)
    nodes = 0
    for activity in map(profile.activities.__getitem__, own):
        call = activity.call
        if call is None or "GraphLaunch" not in call.name or (start := activity.start_ns) is None:
            continue
        nodes += 1
        begun[id(call)] = min(begun.get(id(call), start), start)
        launched_at[start].append(call)
    if not nodes:
        return []
    within: list[Span] = []
    before: list[Span] = []
    for until, start in zip(covered.ends, covered.starts[1:], strict=False):
        calls = launched_at.get(start, ())
        if any(begun[id(call)] < start for call in calls):
            within.append((until, start))
        elif has_common_clock:
            returned = [call.end_ns for call in calls if call.end_ns is not None]
            before += [(max(until, min(returned)), start)] if returned else []
    least = max(LEAST_NS, TIMES_USUAL * _usual([start - until for until, start in within], nodes - len(begun)))
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


def queue_ns(activity: Activity, *, on_one_clock: bool) -> int | None:
    """Return the time of a kernel in its queue. ``on_one_clock``: host and device times can be compared."""
    call, start = activity.call, activity.start_ns
    if activity.kind != "kernel" or start is None or activity.is_replayed:
        return None
    if activity.queued_ns is not None:
        return max(0, start - activity.queued_ns)
    if call is None or call.start_ns is None or call.end_ns is None or not on_one_clock or start < call.start_ns:
        return None
    return max(0, start - call.end_ns)


def queue_times(activities: Iterable[Activity], *, on_one_clock: bool) -> list[int | None]:
    """`queue_ns` of each."""
    times: list[int | None] = []
    for activity in activities:
        call, start = activity.call, activity.start_ns
        if call is not None and start is not None and on_one_clock and activity.queued_ns is None:  # true of nearly all
            begun, returned = call.start_ns, call.end_ns
            is_known = activity.kind == "kernel" and begun is not None and returned is not None and start >= begun
            if not is_known or "GraphLaunch" in call.name:
                times.append(None)
            else:
                times.append(start - returned if start > returned else 0)  # type: ignore[operator]
        else:
            times.append(queue_ns(activity, on_one_clock=on_one_clock))
    return times


def launch_times(alignment: Alignment, positions: Iterable[int], number_of: Sequence[int], count: int) -> LaunchTimes:
    """Sum the launch times of the kernels at ``positions``, by their number below ``count``. A call that launched
    several kernels counts once."""
    on_one_clock = has_common_clock(alignment)
    activities = alignment.profile.activities
    made = LaunchTimes([None] * count, [None] * count)
    unknown: tuple[set[int], set[int]] = set(), set()
    before: dict[int, Call] = {}
    for position in positions:
        number, activity = number_of[position], activities[position]
        if number == NONE or activity.kind != "kernel":
            continue
        call = activity.call
        api = None
        if call is not None and not activity.is_replayed and call.start_ns is not None and call.end_ns is not None:
            api = 0 if before.get(number) is call else call.end_ns - call.start_ns
            before[number] = call
        for sums, lacking, ns in zip(made, unknown, (api, queue_ns(activity, on_one_clock=on_one_clock)), strict=True):
            if ns is None:
                lacking.add(number)
            else:
                sums[number] = (sums[number] or 0) + ns
    for sums, lacking in zip(made, unknown, strict=True):
        for number in lacking:
            sums[number] = None
    return made
