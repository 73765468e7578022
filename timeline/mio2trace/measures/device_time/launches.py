"""Launches whose work the profile does not hold, and the gaps in which the device did such work.

The work of a launch without a kernel was filtered out, was lost, or ran after the recording ended. Launches into a
stream capture do not count: they run only with the graph.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.measures.device_time.busy import Covered, Span, has_common_clock
from mio2trace.model.profile import Activity, Profile
from mio2trace.model.tables import KINDS, NO, Activities, Calls, Codes, Numbers, firsts, present, summed
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
    def without_kernels(self) -> int:
        """How many launches of kernels there are whose kernel is not recorded."""
        return len(self._unanswered) - self.graphs_without_kernels

    @cached_property
    def graphs_without_kernels(self) -> int:
        """How many launches of graphs ran no recorded command."""
        return int(self._unanswered.name.where(_of_graph).sum())

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
        """Whether each is the inner one of two calls that say the same launch: another one that ran something."""
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
        """When a device did work that the profile does not hold, though nothing recorded ran: in its `lead`, and in
        gaps. ``own``, ``covered``: as there.

        Such a gap has at least a millisecond, the host waits for the device during it, and there is a sign of pending
        work: a launch without a command, or a small copy that began long after its call.
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
        # of the command that ended then, when it was launched
        for (until, wait), since in zip(waits, commands.host_start_ns[own[last]].tolist(), strict=True):
            if self._is_pending(until if since == NO else since, wait):
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

    @cached_property
    def _late_copies(self) -> Covered:
        """Return when a small copy was launched but had not begun, for at least a millisecond."""
        commands = self._profile.commands
        called, starts = commands.host_start_ns, commands.start_ns
        sizes = commands.size_bytes  # 0: not recorded
        is_small = (commands.kind == KINDS.index("copy")) & (sizes > 0) & (sizes <= MOST_COPIED)
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


def _of_graph(name: str) -> bool:
    return "GraphLaunch" in name


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


def queued_ns(commands: Activities, *, on_one_clock: bool) -> Numbers:
    """`queue_ns` of all commands, `NO` where it is not known."""
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
