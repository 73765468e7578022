"""The causes of a device's idle time: each gap between its commands, and what the host did meanwhile.

A gap ends with a command. The causes of gaps longer than a microsecond are:

* ``host``: the host had not launched that command yet. The host's work during most of the gap is named: the call, else
  the innermost op or range of the launching thread, else the function in which another thread waited for a result,
  else the innermost Python function;
* ``builds``: the same, and that call builds or loads programs;
* ``queued``: the launch had returned, and the command waited for another one. A gap is divided at that return;
* ``unknown``: no calls are recorded on a common clock.

Gaps up to a microsecond are ``short``. Gaps in which unrecorded work ran are not idle time
(`mio2trace.measures.device_time`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.ranges import is_step
from mio2trace.measures.device_time import Covered, DeviceTime, Span, has_common_clock
from mio2trace.model.profile import Range
from mio2trace.model.tables import NO, Numbers, Pool, added, by_code, least
from mio2trace.ops.ranges import shown_text
from mio2trace.patterns import late

Why = Literal["host", "builds", "queued", "unknown", "short"]
SHORT_NS = 1_000
MOST_NAMES = 10
WAITS = late(r"block_until_ready|device_get", re.ASCII)
"""Functions of JAX that wait for results. XLA's launching threads are idle meanwhile."""
NAMED = 5_000
"""The most gaps (the longest) for which the host's call is searched; the others are too short to matter one by one."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The gaps with one cause. ``during``: the host's work (a call, an op, a range, a Python function) during most of a
    gap, with its part of these gaps, longest first, as far as known. ``line``: the
    source line of the launch that ended most gaps of the first work; empty if it is not recorded. ``longest_ns``: the
    longest gap; ``longest_during``, ``longest_during_ns``: the host's work in it, and its part of it.
    ``to_graphs_ns``, ``to_nodes_ns``: queued time before the first recorded node of a graph launch, and before its
    other nodes."""

    why: Why
    count: int
    ns: int
    during: tuple[tuple[str, int], ...] = ()
    line: str = ""
    longest_ns: int = 0
    longest_during: str = ""
    longest_during_ns: int = 0
    to_graphs_ns: int = 0
    to_nodes_ns: int = 0


def causes(alignment: Alignment, device: DeviceTime, windows: Sequence[Span]) -> tuple[Cause, ...]:
    """Return the causes of the idle time in some windows of a device, longest first."""
    return tuple(_Gaps(alignment, device).causes(windows))


class _Gaps:
    """Finds why a device was idle: the gaps between its commands, beside the calls and ranges of the host."""

    def __init__(self, alignment: Alignment, device: DeviceTime) -> None:
        self._profile = alignment.profile
        self._commands = alignment.profile.commands
        self._device = device
        self._common = has_common_clock(alignment)
        self._to_graphs = 0, 0

    def causes(self, windows: Sequence[Span]) -> Iterator[Cause]:
        count: Counter[Why] = Counter()
        took: Counter[Why] = Counter()
        during: dict[Why, Counter[str]] = defaultdict(Counter)
        lines: dict[tuple[Why, str], Counter[str]] = defaultdict(Counter)
        longest: dict[Why, tuple[int, str, int]] = {}
        kinds, (starts, ends, positions) = self._sort_out(windows)
        for why, (number, ns, longest_ns) in kinds.items():
            if number:
                count[why], took[why], longest[why] = number, ns, (longest_ns, "", 0)
        named = self._longest(starts, ends, positions)
        if len(named) < len(starts):
            count["host"] = len(starts) - len(named)
            took["host"] = added(ends - starts) - added(ends[named] - starts[named])
        starts, ends, positions = (column[named] for column in (starts, ends, positions))
        self._named = starts, ends
        threads = self._commands.thread[positions]
        columns = (column.tolist() for column in (starts, ends, positions, threads))
        for at, (start, end, position, of_launch) in enumerate(zip(*columns, strict=True)):
            length = end - start
            thread = None if position == NONE else of_launch
            why, name, of_gap = self._on_host(at, start, end, thread)
            if name and position != NONE:
                launch = self._profile.activities[position] if self._profile.line_of else None
                lines[why, name]["" if launch is None else self._profile.launched_by(launch)] += length
            if not name and self._functions:
                name, of_gap = self._in_function(start, end, thread)
            during[why][name] += of_gap
            count[why] += 1
            took[why] += length
            longest[why] = length, name, of_gap  # they are in order of length
        for why in sorted(took, key=lambda why: (-took[why], why)):
            del during[why][""]
            most = sorted(during[why].items(), key=lambda item: (-item[1], item[0]))
            of_first = lines[why, most[0][0]] if most else Counter[str]()
            line = min(of_first, key=lambda line: (-of_first[line], line), default="")
            length, name, of_gap = longest[why]
            to_graphs, to_nodes = self._to_graphs if why == "queued" else (0, 0)
            yield Cause(
                why=why, count=count[why], ns=took[why], during=tuple(most[:MOST_NAMES]), line=line,
                longest_ns=length, longest_during=name, longest_during_ns=of_gap,
                to_graphs_ns=to_graphs, to_nodes_ns=to_nodes,
            )  # fmt: skip

    def _sort_out(
        self, windows: Sequence[Span]
    ) -> tuple[Mapping[Why, tuple[int, int, int]], tuple[NDArray[Any], NDArray[Any], Numbers]]:
        """Return two results, with times in ns. For the gaps in which the device did not wait for the host: their
        number, their sum and the longest gap, by cause. For each gap in which it waited: begin, end, and the command
        whose launch ended the gap (`NONE`: a step or other work ended it)."""
        commands = self._commands
        found = [self._device.occupation.held.gaps(*window) for window in windows] or [(np.zeros(0, np.int64),) * 2]
        # There may be ten million, so that a column of them takes 80 MB.
        starts, ends = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        del found
        is_long = ends - starts > SHORT_NS
        kinds: dict[Why, tuple[int, int, int]] = {"short": _told(ends[~is_long] - starts[~is_long])}
        if not is_long.all():
            starts, ends = starts[is_long], ends[is_long]
        if not self._common:
            kinds["unknown"], none = _told(ends - starts), starts[:0]
            return kinds, (none, none, none)
        position = self._begun_at(ends)  # `NONE`: what ends it is the end of the step, or other work
        is_command = position != NONE
        called, returned = commands.host_start_ns[position], commands.host_end_ns[position]
        is_unknown = is_command & ((called == NO) | (returned == NO))
        is_launched = (returned <= starts) | ((called <= starts) & commands.is_replayed[position])
        del called
        is_queued = is_command & ~is_unknown & is_launched
        until = np.where(is_command & (returned < ends), returned, ends)
        del returned
        on_host = ~is_unknown & ~is_queued
        is_last = on_host & (until < ends)
        kinds["queued"] = _told(np.concatenate((ends[is_queued] - starts[is_queued], ends[is_last] - until[is_last])))
        kinds["unknown"] = _told(ends[is_unknown] - starts[is_unknown])
        is_replayed = is_command & commands.is_replayed[position]
        if is_replayed.any():
            waited = np.where(is_queued, ends - starts, np.where(on_host, ends - until, 0))
            launched = np.flatnonzero((commands.call >= 0) & commands.has_times)
            first_of = least(commands.call[launched], commands.start_ns[launched], len(commands.calls) + 1)
            is_first = first_of[commands.call[position]] == ends
            self._to_graphs = added(waited[is_replayed & is_first]), added(waited[is_replayed & ~is_first])
        del ends
        return kinds, (starts[on_host], until[on_host], position[on_host])

    def _begun_at(self, times: NDArray[Any]) -> Numbers:
        """The first command of the device that began at each time, `NONE` without one."""
        commands, is_own = self._commands, self._profile.devices_of_commands == self._device.device
        rows = np.flatnonzero(is_own & (commands.start_ns != NO))
        starts = commands.start_ns[slice(None) if len(rows) == len(commands) else rows]
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            rows, starts = rows[order], starts[order]
        at = np.minimum(np.searchsorted(starts, times), len(rows) - 1)
        found: Numbers = np.where(starts[at] == times, rows[at], NONE)
        return found

    def _longest(self, starts: NDArray[Any], ends: NDArray[Any], positions: Numbers) -> Numbers:
        """Places of the `NAMED` longest gaps, by length, begin, end, position."""
        rows, chosen = np.arange(len(starts)), list[Numbers]()
        for of in (ends - starts, starts):  # many have one length
            left = NAMED - sum(map(len, chosen))
            if len(rows) > left:
                values = of[rows]
                # If many numbers are equal, numpy finds a small number faster than a large one.
                np.negative(values, out=values)
                smallest = np.partition(values, left - 1)[left - 1]
                chosen.append(rows[values < smallest])
                rows = rows[values == smallest]
        rows = np.concatenate([*chosen, rows])
        order = np.lexsort((positions[rows], ends[rows], starts[rows], ends[rows] - starts[rows]))
        longest: Numbers = rows[order[-NAMED:]]
        return longest

    # -- what the host did -------------------------------------------------------------------------------------------

    def _on_host(self, at: int, start: int, end: int, thread: int | None) -> tuple[Why, str, int]:
        """The cause of a gap, the host's work during most of it, and how long this was. ``at``: its place among the
        named ones."""
        threads = sorted(self._calls) if thread is None else [thread]
        for names, times in (self._found[one] for one in threads if one in self._found):
            call = names[at]
            if call is not None:
                is_build = PREPARING.get(call, "") in ("building kernels", "loading kernels")
                return "builds" if is_build else "host", call, times[at]
        for one in threads:
            name, ns = self._range(one, start, end)
            if name:
                return "host", name, ns
        for one in sorted(self._ranges.keys() - {*threads}):
            name, ns = self._range(one, start, end, WAITS)
            if name:
                return "host", name, ns
        return "host", "", 0

    @cached_property
    def _found(self) -> dict[int, tuple[list[str | None], list[int]]]:
        """By thread, for each named gap the call during most of it, and how long the thread was in that call."""
        return {thread: self._during_most(*calls) for thread, calls in self._calls.items()}

    def _during_most(self, begins: Numbers, ends: Numbers, names: Pool[str]) -> tuple[list[str | None], list[int]]:
        """Return a value of `_found` for a thread with these calls. Only the last call that began before the gap and
        the 63 calls after it are searched."""
        start, end = self._named
        first = np.maximum(np.searchsorted(begins, start, "right") - 1, 0)
        stop = np.minimum(np.searchsorted(begins, end), first + 64)
        best, most = np.full(len(start), -1), (end - start) // 2
        for step in range(int((stop - first).max(initial=0))):
            rows = np.flatnonzero(first + step < stop)
            at = first[rows] + step
            overlap = np.minimum(ends[at], end[rows]) - np.maximum(begins[at], start[rows])
            is_more = overlap > most[rows]
            best[rows[is_more]], most[rows[is_more]] = at[is_more], overlap[is_more]
        shown = [*names.values, None]
        return [shown[code] for code in np.where(best < 0, -1, names.codes[best]).tolist()], most.tolist()

    @cached_property
    def _calls(self) -> dict[int, tuple[Numbers, Numbers, Pool[str]]]:
        """Begins, ends and names of the calls by thread, in order of time, if they are long enough for the gaps that
        are named."""
        both = (self._commands.calls, self._profile.lone_calls)
        starts, ends, threads = (
            np.concatenate([getattr(calls, name) for calls in both]) for name in ("start_ns", "end_ns", "thread")
        )
        names = Pool.joined([calls.name for calls in both])
        longer_than = int((self._named[1] - self._named[0]).min()) // 2
        rows = np.flatnonzero((starts != NO) & (ends != NO) & (ends - starts > longer_than))
        rows = rows[np.argsort(starts[rows], kind="stable")]
        return {thread: (starts[own], ends[own], names.take(own)) for thread, own in by_code(rows, threads[rows])}

    def _range(self, thread: int, start: int, end: int, form: re.Pattern[str] | None = None) -> tuple[str, int]:
        """Return the innermost op or range during most of a gap, and its time. With ``form``: only spans with this text
        in their name."""
        for made in _during(self._ranges.get(thread), start, end):
            name, ns = shown_text(made), min(made.end_ns, end) - max(made.start_ns, start)
            if form is None:
                return name, ns
            if (found := form.search(name)) is not None:
                return found[0], ns
        return "", 0

    def _in_function(self, start: int, end: int, thread: int | None) -> tuple[str, int]:
        """Return the innermost Python function during most of a gap, and its time."""
        for one in sorted(self._functions) if thread is None else [thread]:
            for made in _during(self._functions.get(one), start, end):
                return made.text, min(made.end_ns, end) - max(made.start_ns, start)
        return "", 0

    @cached_property
    def _functions(self) -> dict[int, _Nested]:
        return _nested(self._profile.functions)

    @cached_property
    def _ranges(self) -> dict[int, _Nested]:
        return _nested([made for made in self._profile.ranges if made.kind != "mark" and not is_step(made)])


def _told(lengths: Numbers) -> tuple[int, int, int]:
    """How many gaps, their time, and the longest."""
    return len(lengths), added(lengths), int(lengths.max(initial=0))


class _Nested(msgspec.Struct, frozen=True):
    """Ranges of a thread in order of time, and the place of the range around each, -1: none."""

    starts: list[int]
    ranges: list[Range]
    parents: list[int]


def _nested(made: Sequence[Range]) -> dict[int, _Nested]:
    by_thread: dict[int, list[Range]] = defaultdict(list)
    for one in made:
        by_thread[one.thread].append(one)
    found = {}
    for thread, ranges in by_thread.items():
        ranges.sort(key=lambda one: (one.start_ns, -one.end_ns))
        parents: list[int] = []
        is_open: list[int] = []
        for at, one in enumerate(ranges):
            while is_open and ranges[is_open[-1]].end_ns <= one.start_ns:
                is_open.pop()
            parents.append(is_open[-1] if is_open else -1)
            is_open.append(at)
        found[thread] = _Nested([one.start_ns for one in ranges], ranges, parents)
    return found


def _during(nested: _Nested | None, start: int, end: int) -> Iterator[Range]:
    """The ranges around the middle of a gap that last for most of it, innermost first."""
    if nested is None:
        return
    middle = (start + end) // 2
    at = bisect_right(nested.starts, middle) - 1
    while at >= 0:
        one = nested.ranges[at]
        if one.end_ns > middle and 2 * (min(one.end_ns, end) - max(one.start_ns, start)) > end - start:
            yield one
        at = nested.parents[at]


PREPARING: Mapping[str, str] = MappingProxyType({
    "clBuildProgram": "building kernels",
    "clCompileProgram": "building kernels",
    "clLinkProgram": "building kernels",
    "hiprtcCompileProgram": "building kernels",
    "hiprtcLinkComplete": "building kernels",
    "hipModuleLoad": "loading kernels",
    "hipModuleLoadData": "loading kernels",
    "hipModuleLoadDataEx": "loading kernels",
    "hipLibraryLoadData": "loading kernels",
    "clCreateBuffer": "allocating",
    "hipMalloc": "allocating",
    "hipMallocAsync": "allocating",
    "hipMallocManaged": "allocating",
    "hipExtMallocWithFlags": "allocating",
    "hipHostMalloc": "allocating",
    "hipHostAlloc": "allocating",
    "hipFree": "allocating",
})  # fmt: skip
"""One-time work (building, loading, allocating), by the name of the call."""


def prepared(alignment: Alignment, positions: Numbers) -> dict[str, int]:
    """How many ns the calls of `PREPARING` took from the first to the last launch of these activities, most first.

    Nested calls, and calls of several threads at the same time, count once.
    """
    commands, calls = alignment.profile.commands, alignment.profile.lone_calls
    called, returned = commands.host_start_ns[positions], commands.host_end_ns[positions]
    is_launched = (called != NO) & (returned != NO)
    if not is_launched.any():
        return {}
    begin, until = int(called[is_launched].min()), int(returned[is_launched].max())
    of_name = calls.name.where(PREPARING.__contains__)
    is_inside = (calls.end_ns != NO) & (begin <= calls.start_ns) & (calls.start_ns < until)
    spans: dict[str, list[Span]] = {}
    for call in calls.take(of_name & is_inside & (calls.start_ns != NO)):
        if call.start_ns is not None and call.end_ns is not None:
            spans.setdefault(PREPARING[call.name], []).append((call.start_ns, min(call.end_ns, until)))
    took = {what: Covered.of(of_one).within(begin, until) for what, of_one in spans.items()}
    return dict(sorted(took.items(), key=lambda item: (-item[1], item[0])))
