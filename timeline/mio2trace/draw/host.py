"""The host's side: its API calls with arrows to the commands that they launched; layers, library calls, log lines.

A log's lines are in order of time. So a line without a time lies between two lines with known host times. Those are
lines with stamps, and calls whose kernels are in the profile.

With an asynchronous profiler a call returns before its command has ended. One call may launch many activities (a
graph), and many threads may be busy at once. Each thread has its row; overlaps that do not nest go to a second row.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment, Links, Pass
from mio2trace.align.clocks.axis import LONGEST_NS, bounded
from mio2trace.draw.base import (
    ROW,
    Ids,
    Nodes,
    TimeBase,
    execution_columns,
    flags,
    inputs_args,
    layer_args,
    merged,
    on_axis,
    reach_of,
    shared_slices,
    shifted,
    short_name,
    six_digits,
    told,
)
from mio2trace.draw.containers import distinct, in_lanes, operation_args, source_args
from mio2trace.draw.device import DeviceSide
from mio2trace.draw.selection import Chosen
from mio2trace.measures import Measures
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.profile import Profile, Thread
from mio2trace.model.tables import (
    NEVER,
    NO,
    Activities,
    Codes,
    Numbers,
    Pool,
    by_code,
    combined,
    least,
    most,
    numbers,
    present,
    sorted_pool,
)
from mio2trace.model.tables import distinct as rows_of
from mio2trace.notes import Notes
from mio2trace.ops.aten import ROWS
from mio2trace.ops.log.statements import AlarmLevel, alarm_messages
from mio2trace.ops.operation import Operation, operation_name
from mio2trace.ops.ranges import is_library_call, shown_text
from mio2trace.trace import (
    NO_ARGS,
    Args,
    Column,
    Columns,
    CounterValue,
    Event,
    Flows,
    Process,
    Slice,
    Slices,
    Track,
    whole,
)

_LONGEST = 90
"""Characters of a log line in the name of a slice."""

HOST_BY_KERNELS = "its kernels"
HOST_BY_STAMP = "own stamp"
HOST_BY_NEIGHBOURS = "lines around it"
"""The evidence for the times of a call (``host_by``). The last two mean only that it began and ended within
this time."""


class HostSpan(msgspec.Struct, frozen=True):
    """A slice of the host's side; times in ns."""

    start: int
    end: int
    name: str
    category: str
    args: dict[str, Any]
    operation: Operation | None = None


class HostSpans(NamedTuple):
    """Slices in columns, by start, because a run may have a million: ``places[i]`` is that of a call with kernels among
    ``operations``, or -1 - that of another slice among ``others``. ``is_cut``: whether only a part of it is drawn."""

    starts: Numbers
    ends: Numbers
    places: Numbers
    is_cut: NDArray[np.bool_]
    operations: Sequence[Operation] = ()
    others: Sequence[HostSpan] = ()

    @classmethod
    def of(cls, spans: Sequence[HostSpan]) -> HostSpans:
        """The columns of some slices."""
        starts, ends = (np.array([bounded(getattr(one, name)) for one in spans], np.int64) for name in ("start", "end"))
        return cls(starts, ends, -1 - np.arange(len(spans)), np.zeros(len(spans), bool), (), spans)

    def take(self, rows: Any) -> HostSpans:
        """Some of the slices."""
        starts, ends, places, is_cut = (column[rows] for column in self[:4])
        return self._replace(starts=starts, ends=ends, places=places, is_cut=is_cut)

    def are_of(self, indices: AbstractSet[int]) -> NDArray[np.bool_]:
        """Whether each is of an operation with one of these indices."""
        of_each = (self.operations[at] if at >= 0 else self.others[-1 - at].operation for at in self.places.tolist())
        return np.array([one is not None and one.index in indices for one in of_each], bool)


def call_spans(
    measures: Measures, libraries: Sequence[MiopenLog], *, with_kernels: bool
) -> tuple[HostSpans, HostSpans]:
    """Return (calls, lines of the log) with known host times, each in order of start.

    ``with_kernels``: also calls that launched kernels; calls without kernels are drawn nowhere else. If the profile has
    the library's own ranges, these are on their threads, and no call is drawn twice.
    """
    alignment = measures.alignment
    operations = alignment.links.operations
    launching = _launching(measures)
    is_idle = np.ones(len(operations), bool)
    is_idle[launching.places] = False
    idle = [operations[place] for place in np.flatnonzero(is_idle).tolist()]
    ranged = any(is_library_call(made) for made in alignment.profile.ranges)
    sources = {operation.source for operation in operations} | {log.source for log in libraries}
    others: list[HostSpan] = []
    lines: list[HostSpan] = []
    for source in sorted(sources):
        alarms = [[*alarm_messages(log)] for log in libraries if log.source == source]
        own = [one for one in idle if one.source == source]
        asked = [*(one.line for one in own), *(message.line for of_log in alarms for _, message in of_log)]
        around = _Around(alignment, source, launching, asked)
        others += [] if ranged else _without_kernels(own, around)
        lines += chain.from_iterable(_alarms(of_log, around) for of_log in alarms)
    drawn = launching if with_kernels and not ranged else launching.take(slice(0))
    rest = HostSpans.of(others)
    columns = map(np.concatenate, zip(drawn[:4], rest[:4], strict=True))
    return _by_start(HostSpans._make((*columns, operations, others))), _by_start(HostSpans.of(lines))


def _by_start(spans: HostSpans) -> HostSpans:
    return spans.take(np.lexsort((spans.ends, spans.starts)))


def _launching(measures: Measures) -> HostSpans:
    """Return the calls with kernels, in the order of the operations."""
    operations = measures.alignment.links.operations
    indices, starts, ends = measures.host_spans()
    own = np.array([one.index for one in operations], np.int64)
    row_of = np.full(max(len(measures.first_of), int(own.max(initial=NONE)) + 1), NONE)
    row_of[indices] = np.arange(len(indices))
    rows = row_of[own]
    places = np.flatnonzero(rows != NONE)
    return HostSpans(starts[rows[places]], ends[rows[places]], places, np.zeros(len(places), bool), operations)


class _Around:
    """The known times around lines of one log: those of calls without kernels, and ``asked``.

    Lines and calls with known times are not kept: there may be a million.
    """

    def __init__(self, alignment: Alignment, source: int, launching: HostSpans, asked: Iterable[int]) -> None:
        clock = alignment.log_clock
        self.to_host: Callable[..., int] | None = None if clock is None else clock.to_host
        self._alignment, self._source, self._launching = alignment, source, launching
        self._lines = lines = sorted({*asked})
        # With several threads, or a clock that was set, the earlier time is the latest of all before.
        known, starts, ends = self._known() if lines else np.empty((3, 0), np.int64)
        behind, before = np.searchsorted(lines, known, "right"), np.searchsorted(lines, known)
        count = len(lines) + 1
        self._ended, self._began = (np.maximum.accumulate(most(behind, times, count)) for times in (ends, starts))
        self._next = np.minimum.accumulate(least(before, starts, count)[::-1])[::-1]

    def _known(self) -> Numbers:
        """Return line, start and end of each line of the log with a known host time: lines with stamps, and calls."""
        source, clock, calls = self._source, self._alignment.log_clock, self._launching
        called = [calls.operations[place] for place in calls.places.tolist()]
        is_own = np.array([one.source == source for one in called], bool)
        lines = np.array([one.line for one in called], np.int64)
        columns = [np.stack((lines, calls.starts, calls.ends))[:, is_own]]
        for log in self._alignment.logs if clock is not None else ():
            assert clock is not None
            own = [one for one in log.events if one.source == source and one.stamp is not None and one.line]
            times = np.array([bounded(clock.to_host(one.stamp)) for one in own if one.stamp is not None], np.int64)
            columns.append(np.stack((np.array([one.line for one in own], np.int64), times, times)))
            layers = log.times
            layers = layers.take((layers.source == source) & layers.has_stamp & (layers.line != 0))
            times = clock.hosts_of(layers)
            columns.append(np.stack((layers.line, times, times)))
        return np.concatenate(columns, axis=1)

    def call(self, line: int) -> tuple[int, int] | None:
        """Return the times that bound a call of this line: the line before it is over."""
        return self._between(line, self._ended)

    def message(self, line: int) -> tuple[int, int] | None:
        """Return the times that bound a message of this line: the call before it may still run."""
        return self._between(line, self._began)

    def _between(self, line: int, before: Numbers) -> tuple[int, int] | None:
        place = bisect_left(self._lines, line)
        start, end = int(before[place]), int(self._next[place + 1])
        return (start, end) if NO < start <= end < NEVER else None


def _without_kernels(idle: Sequence[Operation], around: _Around) -> Iterator[HostSpan]:
    """Yield calls that launched nothing; those with equal bounds share a slice."""
    together: dict[tuple[int, int], list[Operation]] = {}
    for operation in idle:
        span = around.call(operation.line)
        if span is None:
            continue
        if operation.stamp is not None and around.to_host is not None:
            start = min(max(around.to_host(operation.stamp), span[0]), span[1])
            yield _idle(start, span[1], operation, HOST_BY_STAMP)
        else:
            together.setdefault(span, []).append(operation)
    for span, operations in together.items():
        first = operations[0]
        if len(operations) == 1:
            yield _idle(*span, first, HOST_BY_NEIGHBOURS)
            continue
        args: dict[str, Any] = {**source_args(first), "calls": len(operations), "host_by": HOST_BY_NEIGHBOURS}
        name = f"{operation_name(first)} and {len(operations) - 1} more without kernels"
        yield HostSpan(*span, name, "call", args, first)


def _idle(start: int, end: int, operation: Operation, host_by: str) -> HostSpan:
    args: dict[str, Any] = {"operation": operation.index, **source_args(operation), **operation_args(operation)}
    args |= {"kernels": 0, "kernel_ns": 0, "host_by": host_by}
    return HostSpan(start, end, operation_name(operation), "operation", args, operation)


def _alarms(alarms: Iterable[tuple[AlarmLevel, Message]], around: _Around) -> Iterator[HostSpan]:
    """Yield warnings and errors as moments; those with equal bounds share one, named after the most severe."""
    together: dict[int, list[tuple[AlarmLevel, Message, int]]] = {}
    for level, message in alarms:
        if message.stamp is not None and around.to_host is not None:
            together.setdefault(around.to_host(message.stamp), []).append((level, message, 0))
        elif (span := around.message(message.line)) is not None:
            together.setdefault(span[0], []).append((level, message, span[1] - span[0]))
    for at, messages in together.items():
        level, gravest, within = min(messages, key=lambda one: one[0])  # an error before a warning
        text = gravest.text.strip()
        name = f"{gravest.level}: {text}".rstrip()
        if len(name) > _LONGEST:
            name = name[: _LONGEST - 3] + "..."
        if len(messages) > 1:
            name += f" and {len(messages) - 1} more"
        args: dict[str, Any] = {"level": level, "line": gravest.line, "lines": len(messages)}
        if text:
            args["text"] = text
        args["host_by"] = HOST_BY_STAMP if gravest.stamp is not None else HOST_BY_NEIGHBOURS
        if within:
            args["within_ns"] = within
        yield HostSpan(at, at, name, "log", args)


# -- Threads of an asynchronous profiler: API calls within the ranges in which they were made --------------------------

_HELP_THREAD = "What the program and its libraries did on this thread; an arrow leads from a call to what it launched."

_MOST = (1 << 63) - 1
_DEEPEST = 100
"""Slices in one another on a row: nobody looks further down."""
_AT_ONCE = 1 << 20
"""Items that are compared at once."""


_Shown = Callable[[str], str]
"""Gives the name of the slice of a command with this name."""


class Row(NamedTuple):
    """Items of one row, in order: when each begins and ends on the axis, and its number among all items."""

    starts: Numbers
    ends: Numbers
    items: Numbers | Codes

    def take(self, rows: Any) -> Row:
        """Return some of them; ``rows`` is anything that numpy takes as an index."""
        return Row(self.starts[rows], self.ends[rows], self.items[rows])


class Threads:
    """Draws ranges and calls, one or more tracks for each thread. ``number_of`` gives the number of a row's track.

    Items are numbered: the ranges, then the calls that launched something, then the others.
    """

    def __init__(
        self,
        profile: Profile,
        base: TimeBase,
        process: int,
        number_of: Callable[[int], int],
        shown: _Shown,
        *,
        with_calls: bool = True,
    ) -> None:
        self._process = process
        self._shown = shown
        self._number_of = number_of
        self._profile = profile
        self._commands = commands = profile.commands
        ranges, calls, others = profile.ranges, commands.calls, profile.lone_calls
        self._first_call, self._first_other = len(ranges), len(ranges) + len(calls)
        starts, ends, threads = (
            np.concatenate(
                (np.fromiter(map(attrgetter(name), ranges), np.int64, len(ranges)), *of_calls),
                dtype=kind,
                casting="same_kind",
            )
            for name, kind, *of_calls in (
                ("start_ns", np.int64, calls.start_ns, others.start_ns),
                ("end_ns", np.int64, calls.end_ns, others.end_ns),
                ("thread", np.int32, calls.thread, others.thread),
            )
        )
        is_drawn = (starts != NO) & (ends != NO)
        is_drawn[self._first_call :] &= with_calls
        # Slices with equal begin and end are drawn in this order: a call at the place of its first activity.
        first = np.zeros(len(calls) + 1, np.int32)  # the last is of what has no call
        first[commands.call[::-1]] = np.arange(len(commands), dtype=np.int32)[::-1]
        order = np.arange(len(starts), dtype=np.int32)
        if (first[1:-1] < first[:-2]).any():
            order[self._first_call : self._first_other] = self._first_call + np.argsort(first[:-1], kind="stable")
        order = order[is_drawn[order]]
        del first
        threads = threads[order]  # each column of ten million calls takes 80 MB: here one after the other is made
        starts = base.all_hosts(starts[order])
        ends = base.all_hosts(ends[order])
        # A slice without a length gets one nanosecond: a viewer shows it, and users can point at it.
        is_short = ends <= starts
        np.minimum(starts, _MOST - 1, out=starts, where=is_short)
        np.maximum(ends, starts + 1, out=ends, where=is_short)
        own = [
            (thread, rows[np.argsort(starts[rows], kind="stable")])
            for thread, rows in by_code(np.arange(len(order), dtype=np.int32), threads)
        ]
        del threads, is_short
        in_order = np.concatenate([order[:0], *(rows for _, rows in own)])
        counts = [(thread, len(rows)) for thread, rows in own]
        del own
        starts = starts[in_order]
        ends = ends[in_order]
        everything = Row(starts, ends, order[in_order])
        del starts, ends, order, in_order
        self._rows: list[tuple[Thread, int, Row]] = []
        begin = 0
        for thread, count in counts:
            known = profile.threads[thread] if thread < len(profile.threads) else Thread(index=thread)
            row = everything.take(slice(begin, begin + count))
            if (row.starts[1:] == row.starts[:-1]).any():
                row = row.take(np.lexsort((-row.ends, row.starts)))  # the longest first
            for lane, nested in enumerate(_nested(row)):
                self._rows.append((known, lane, nested))
            begin += count
        item_of = np.where(commands.call < 0, commands.range, commands.call + self._first_call)
        item_of[~np.append(is_drawn, False)[item_of]] = -1
        self._item_of = item_of if with_calls else np.full(len(commands), -1)
        """For each activity the item that launched it: a range if no call is known; -1 for none."""

    def show_only(self, chosen: Chosen) -> None:
        """Draw no more than that from now on: calls of drawn activities, and what overlaps the drawn time."""
        self._item_of = np.where(chosen.drawn, self._item_of, -1)
        launched = np.zeros(self._first_other + len(self._profile.lone_calls) + 1, bool)
        launched[self._item_of] = True  # the last is of no item: -1
        rows = []
        for thread, lane, row in self._rows:
            # each column of ten million calls takes 80 MB
            parts = [
                self._chosen(row.take(slice(first, first + _AT_ONCE)), launched, chosen)
                for first in range(0, len(row.items), _AT_ONCE)
            ]
            kept = Row(*map(np.concatenate, zip(*parts, strict=True)))
            if len(kept.items):
                rows.append((thread, lane, kept))
        self._rows = rows

    def _chosen(self, row: Row, launched: NDArray[np.bool_], chosen: Chosen) -> Row:
        """Return what of a row is drawn. ``launched``: whether each item launched a drawn activity."""
        starts, ends = chosen.clipped(row.starts, row.ends)
        wanted = launched[row.items]
        if not chosen.longest_only:
            wanted |= chosen.have_time(row.starts, row.ends) & (row.ends - row.starts >= chosen.min_ns)
        return Row(starts, ends, row.items).take((starts < ends) & wanted)

    def bounds(self) -> Iterator[int]:
        """Times that all of it lies between, among others."""
        for _, _, row in self._rows:
            yield int(row.starts[0])
            yield int(row.ends.max())

    def tracks(self) -> list[Track]:
        tracks = []
        for number, (thread, lane, _) in enumerate(self._rows):
            if thread.tid is None:
                name = thread.name or "Thread without id"
            else:
                name = f"Thread {thread.tid}" + (f" {thread.name}" if thread.name else "")
            name += f" ({lane + 1})" if lane else ""
            track = self._number_of(number)
            tracks.append(Track(id=track, process=self._process, name=name, sort=10 + number, description=_HELP_THREAD))
        return tracks

    def events(self, origin: int, arrows: Arrows | None) -> Iterator[Slices | Flows]:
        """Yield the slices of each row, and the arrows that leave them, if ``arrows`` makes these."""
        looks = _Looks(self._profile, self._item_of, self._first_call, self._first_other, self._shown)
        launches = None if arrows is None else self._launches()
        for number, (_, _, row) in enumerate(self._rows):
            track = self._number_of(number)
            for first in range(0, len(row.items), ROW):
                yield looks.drawn(track, origin, row.take(slice(first, first + ROW)))
            if arrows is not None and launches is not None:
                yield from _arrows_of(track, row, launches, arrows)

    def arrows(self, arrows: Arrows) -> Iterator[Flows]:
        """Yield the arrows that `events` yields, alone."""
        launches = self._launches()
        for number, (_, _, row) in enumerate(self._rows):
            yield from _arrows_of(self._number_of(number), row, launches, arrows)

    def _launches(self) -> tuple[Codes, Codes, Codes]:
        """Return activities, and for each item the place among them where those begin that it launched, and how many
        these are."""
        item_of = self._item_of
        counts = np.bincount(item_of + 1, minlength=self._first_other + len(self._profile.lone_calls) + 1)
        activities = np.argsort(item_of, kind="stable").astype(np.int32)
        return activities, np.cumsum(counts)[:-1].astype(np.int32), counts[1:].astype(np.int32)


def _arrows_of(track: int, row: Row, launches: tuple[Codes, Codes, Codes], arrows: Arrows) -> Iterator[Flows]:
    activities, begins, all_counts = launches
    for begin in range(0, len(row.items), ROW):
        here = row.take(slice(begin, begin + ROW))
        first, counts = begins[here.items], all_counts[here.items]
        places = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield arrows(activities[first[places] + within], track, here.starts[places], here.ends[places])


class _Looks:
    """Makes the slices of ranges and calls; equal ones share one object."""

    def __init__(
        self, profile: Profile, item_of: Numbers | Codes, first_call: int, first_other: int, shown: _Shown
    ) -> None:
        self._profile = profile
        self._shown = shown
        self._nodes = Nodes(profile, with_layers=True)
        self._executions = profile.framework.ranges
        self._inputs: dict[int, dict[str, Any]] = {}
        self._likes: defaultdict[int, dict[int, Slice]] = defaultdict(dict)
        self._first_call = first_call
        commands, calls, others = profile.commands, profile.commands.calls, profile.lone_calls
        count = first_other + len(others)
        is_launched = item_of >= 0
        self._launched = np.bincount(item_of[is_launched], minlength=count).astype(np.int32)
        names = Pool.joined([calls.name, others.name])
        self._names, self._name = names.values, np.append(np.zeros(first_call, np.int32), names.codes)
        self._kernel = np.zeros(count, np.int32)
        """The name of the only command that each launched, from 1; of a call that waits only a kernel's."""
        is_told = is_launched & (commands.is_kernel | (not profile.calls_wait))
        self._kernel[item_of[is_told]] = commands.name.codes[is_told] + 1
        self._kernel[self._launched != 1] = 0
        ranges = Pool.of(
            (
                one.text,
                one.kind,
                id(one.inputs),
                None if (execution := self._executions.get(place)) is None else execution.node,
            )
            for place, one in enumerate(profile.ranges)
        )
        # A number for each item: equal if the items have everything in common that their likes show.
        keys = len(ranges.values) + self._name * np.int64(len(commands.name.values) + 1) + self._kernel
        keys[:first_call] = ranges.codes
        self._keys = sorted_pool(keys).codes

    def drawn(self, track: int, origin: int, row: Row) -> Slices:
        items = row.items
        likes = shared_slices(self._keys, items, self._likes[track], partial(self._like, track))
        launched = self._launched[items].astype(np.int64)  # `NO` has no place in fewer bits
        is_call = items >= self._first_call
        correlation = self._of_calls("correlation", items)
        columns: dict[str, Column] = {
            "correlation_id": correlation,
            "call_index": np.where(correlation == NO, self._of_calls("number", items), NO),
            "activities": np.where((launched > 1) & is_call, launched, NO),
        }
        columns |= execution_columns(self._executions, items)
        return Slices(track, (Columns(likes, shifted(row.starts, -origin), row.ends - row.starts, told(columns)),))

    def _of_calls(self, field: str, items: Numbers | Codes) -> Numbers:
        """Return a column of the calls for these items; `NO` for ranges."""
        found, first = np.full(len(items), NO), self._first_call
        for calls in (self._profile.commands.calls, self._profile.lone_calls):
            here = (items >= first) & (items < first + len(calls))
            found[here] = getattr(calls, field)[items[here] - first]
            first += len(calls)
        return found

    def _like(self, track: int, item: int) -> Slice:
        if item >= self._first_call:
            kernel, names = self._kernel[item], self._profile.commands.name.values
            shared: Args = {"kernel": self._shown(names[kernel - 1])} if kernel else NO_ARGS
            return Slice(track, 0, 0, self._names[self._name[item]], "api", NO_ARGS, shared)
        what = self._profile.ranges[item]
        name_of = shown_text(what)[:200] or what.kind
        execution = self._executions.get(item)
        shared = NO_ARGS
        if execution is not None:
            shared = self._nodes.args(execution)
        elif what.inputs is not None:
            if id(what.inputs) not in self._inputs:
                self._inputs[id(what.inputs)] = inputs_args(what.inputs)
            shared = self._inputs[id(what.inputs)]
        return Slice(track, 0, 0, name_of, what.kind, NO_ARGS, shared)


def _nested(row: Row) -> list[Row]:
    """Return lanes in which items, by start and longest first, nest or are disjoint, each in the first that fits."""
    if _is_nested(row):
        return [row]
    return [row.take(rows) for rows in in_lanes(row.starts, row.ends, _DEEPEST)]


def _is_nested(row: Row) -> bool:
    """Return whether items in order nest or are disjoint, not too deep."""
    depth, ends = np.arange(len(row.starts), dtype=np.int32), np.sort(row.ends)
    for first in range(0, len(depth), _AT_ONCE):
        rows = slice(first, first + _AT_ONCE)
        depth[rows] -= np.searchsorted(ends, row.starts[rows], "right").astype(np.int32)
    deepest = int(depth.max(initial=0))
    if deepest >= _DEEPEST:
        return False
    outer = np.flatnonzero(depth == 0)
    for level in range(1, deepest + 1):
        inner = np.flatnonzero(depth == level)
        around = outer[np.searchsorted(outer, inner) - 1]
        if (row.ends[inner] > row.ends[around]).any():
            return False
        outer = inner
    return True


# -- The calls of a program that waits for each: one row, in the order of the calls ------------------------------------


_HELP_IN_A_ROW = "OpenCL calls that the profiler recorded; an arrow leads from an enqueue to what it enqueued."


class ApiCalls(Threads):
    """Draws the calls of one thread on one track. ``base`` brings host times to the axis of the trace.

    No arrow leaves them: a call that waits ended after its activity had.
    """

    def __init__(self, profile: Profile, base: TimeBase, process: int, track: int, shown: _Shown) -> None:
        self._process = process
        self._shown = shown
        self._number_of = lambda _: track
        self._profile = profile
        self._item_of = profile.commands.call
        self._first_call, self._first_other = 0, len(profile.commands.calls)
        starts, ends, numbers = (
            np.concatenate([getattr(calls, field) for calls in (profile.commands.calls, profile.lone_calls)])
            for field in ("start_ns", "end_ns", "number")
        )
        items = np.flatnonzero((starts != NO) & (ends != NO))
        if len(items) and items[-1] >= self._first_other:
            numbers = np.where(numbers == NO, 0, numbers)[items]
            items = items[np.argsort(numbers, kind="stable")]
        times = _one_after_another(base.all_hosts(starts[items]), base.all_hosts(ends[items]))
        self._rows = [(Thread(index=0), 0, Row(*times, items))] if len(items) else []

    def _chosen(self, row: Row, launched: NDArray[np.bool_], chosen: Chosen) -> Row:
        """Return whole calls. A call that launched something is drawn if one of its activities is."""
        is_drawn = chosen.have_time(row.starts, row.ends) & (row.ends - row.starts >= chosen.min_ns)
        is_drawn &= not chosen.longest_only
        return row.take(np.where(row.items < self._first_other, launched[row.items], is_drawn))

    def tracks(self) -> list[Track]:
        track = self._number_of(0)
        tracks = [Track(id=track, process=self._process, name="OpenCL API", sort=1, description=_HELP_IN_A_ROW)]
        return tracks if self._rows else []


def _one_after_another(starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return the times of calls; no call begins before the previous call has ended.

    Calls of one thread do not overlap; only a wall clock that was set back makes it look so. Two calls in one
    microsecond must not look nested.
    """
    if (ends > starts).all() and (starts[1:] >= ends[:-1]).all():
        return starts, ends
    placed = []
    done = -_MOST
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        start = min(max(start, done), _MOST - 1)
        done = min(max(end, start + 1), _MOST)
        placed.append((start, done))
    begun, ended = np.array(placed, np.int64).reshape(-1, 2).T
    return begun, ended


Arrows = Callable[[Numbers, int, Numbers, Numbers], Flows]
"""Makes the arrows to activities, at these positions, from calls on a track that begin and end at times on the axis."""


# -- The host's side as a whole ----------------------------------------------------------------------------------------

_API = 1
_LAYERS = 2
_LOG = 3
_CALLS = 4
_MESSAGES = 5
_MORE = 6
_THREADS = 300
"""Track numbers within the process: additional lanes begin here, threads at 300."""
DISORDER_NS = 1_000_000
"""The clock counts as set back only if host times of successive calls are out of order by more than this."""


_HELP = "The program on the host, on the device's clock: host times are moved by the profile's offset."
_HELP_LAYERS = (
    "From a layer's start to its end as the host saw it: beside its kernels, a layer that waits for the host."
)
_HELP_LOG = "Warm-up and iterations as the framework's log bounds them."
_CALLED = "MIOpen calls"
_HELP_CALLS = (
    "Operations. With kernels: from its first enqueue to the end of its last. Without: it began and ended in this "
    "time, which the log's lines and calls around it bound."
)
_HELP_MESSAGES = (
    "Warnings and errors of MIOpen. One without a stamp came at this time or up to within_ns later: what is around it "
    "bounds it."
)


class HostSide:
    """Draws the host of one profile; nothing if host times are missing or not related to the device's."""

    def __init__(
        self,
        alignment: Alignment,
        base: TimeBase,
        device: DeviceSide,
        host_calls: str,
        suffix: str,
        notes: Notes,
        ids: Ids,
        *,
        libraries: Sequence[MiopenLog] = (),
    ) -> None:
        self._alignment = alignment
        self._chosen: Chosen | None = None
        self._base = base
        self._device = device
        self._wanted = ids.host
        ids.host += 1
        self._process = ids.take(self._wanted)
        self._number = functools.cache(ids.take)  # the lane of a track, by its number in a small trace
        self._suffix = suffix
        related = base.host(0) is not None
        profile = alignment.profile
        if related and not base.on_host and _was_set_back(profile.commands):
            notes.add("host clock was set back during the run: the host's side is left out")
            related = False
        self._api: Threads | None = None
        names = device.commands.slice_names

        def shown(name: str) -> str:
            return names.get(name) or short_name(name)

        calls_drawn = related and host_calls != "none"
        if calls_drawn and (profile.calls_wait and not profile.ranges and len(profile.threads) < 2):
            self._api = ApiCalls(profile, base, self._process, self._track(_API), shown)
        elif calls_drawn or (related and profile.ranges):
            self._api = Threads(
                profile, base, self._process, lambda row: self._number(self._wanted * 1000 + _THREADS + row), shown,
                with_calls=calls_drawn,
            )  # fmt: skip
        self._middle = self._somewhere()
        self._far = 0
        links = alignment.links
        starts, ends = links.runs.column("host_start_ns"), links.runs.column("host_end_ns")
        runs = np.flatnonzero((starts != NO) & (ends != NO) & (starts <= ends)) if related else np.empty(0, np.int64)
        runs = runs[self._are_near(starts[runs], ends[runs])]
        self._layers = Row(base.all_hosts(starts[runs]), base.all_hosts(ends[runs]), runs)
        """The executions of layers by their numbers."""
        first, place_of = rows_of(links.runs.column("pass_")[runs])
        bounds = least(place_of, starts[runs], len(first)), most(place_of, ends[runs], len(first))
        begin, end = (base.all_hosts(times).tolist() for times in bounds)
        numbers_of = links.runs.column("pass_")[runs[first]].tolist()
        self._passes = dict(zip(numbers_of, zip(begin, end, strict=True), strict=True))
        self._log = HostSpans.of(self._log_spans(alignment.logs) if related else [])
        self._calls: list[HostSpans] = []
        self._messages: list[HostSpans] = []
        self._called = _called(alignment)
        if related:
            calls, messages = call_spans(device.measures, libraries, with_kernels=calls_drawn)
            self._calls, self._messages = self._rows(calls), self._rows(messages)
        if self._far:
            notes.add("time of the log far from the profile: left out", count=self._far)

    def _somewhere(self) -> int:
        """Return any host time within the profile."""
        commands, calls = self._alignment.profile.commands, self._alignment.profile.lone_calls
        starts = np.append(commands.host_start_ns[:1000], calls.start_ns[:1000])
        ends = np.append(commands.host_end_ns[:1000], calls.end_ns[:1000])
        known = starts[(starts != NO) & (ends != NO)]
        return int(known[0]) if len(known) else 0

    def _are_near(self, starts: Numbers, ends: Numbers) -> NDArray[np.bool_]:
        """Return whether each span of host times can be drawn with the profile."""
        near: NDArray[np.bool_] = ends - LONGEST_NS // 3 < self._middle
        near &= self._middle < starts + LONGEST_NS // 3
        self._far += len(near) - int(near.sum())
        return near

    def _rows(self, spans: HostSpans) -> list[HostSpans]:
        """Return lanes of spans on the axis."""
        spans = spans.take(self._are_near(spans.starts, spans.ends))
        starts = self._base.all_hosts(spans.starts)
        ends = np.maximum(starts, self._base.all_hosts(spans.ends))  # a clock may have been set back meanwhile
        spans = spans._replace(starts=starts, ends=ends)
        return [spans.take(rows) for rows in in_lanes(starts, np.maximum(ends, starts + 1))]

    def show_only(self, chosen: Chosen) -> None:
        self._chosen = chosen
        if self._api is not None:
            self._api.show_only(chosen)
        links, (starts, ends, runs) = self._alignment.links, self._layers
        has_iteration = np.array([chosen.has_iteration(one.iteration) for one in links.passes], bool)
        first, last = chosen.clipped(starts, ends)
        is_drawn = has_iteration[links.runs.column("pass_")[runs]]
        is_drawn &= (first < last) | ((first == last) & (starts == ends))
        if chosen.longest_only:
            is_drawn &= np.isin(runs, [*chosen.runs])
        else:
            is_drawn &= ends - starts >= chosen.min_ns
        self._layers = self._layers.take(is_drawn)
        log = self._log
        first, last = chosen.clipped(log.starts, log.ends)
        is_drawn = np.array([chosen.has_iteration(one.args.get("iteration")) for one in log.others], bool)
        is_drawn &= (first < last) & (last - first >= chosen.min_ns)
        is_cut = (first != log.starts) | (last != log.ends)
        self._log = log._replace(starts=first, ends=last, is_cut=is_cut).take(is_drawn)
        self._calls = [kept for row in self._calls if len((kept := self._kept(row, chosen)).starts)]
        self._messages = [kept for row in self._messages if len((kept := self._kept(row, chosen)).starts)]

    @staticmethod
    def _kept(row: HostSpans, chosen: Chosen) -> HostSpans:
        """Return the library calls and lines of the log that belong to drawn kernels or to the drawn time."""
        starts, ends = row.starts, row.ends
        is_moment, is_wanted = starts == ends, chosen.have_time(starts, ends) & (ends - starts >= chosen.min_ns)
        first, last = chosen.clipped(starts, ends)
        is_shown = np.where(
            is_moment,
            chosen.have_time(starts, ends + 1) & (not chosen.longest_only),
            (first < last) & (row.are_of(chosen.operations) | (is_wanted & (not chosen.longest_only))),
        )
        first, last = np.where(is_moment, starts, first), np.where(is_moment, ends, last)
        kept = row._replace(starts=first, ends=last, is_cut=(first != starts) | (last != ends))
        return kept.take(is_shown)

    def _log_spans(self, logs: Sequence[FrameworkLog]) -> list[HostSpan]:
        """Return the spans that the log itself bounds: warm-up and iterations, as printed."""
        clock = self._alignment.log_clock
        if clock is None:
            return []
        spans: list[HostSpan] = []
        for log in logs:
            opened: tuple[int, str] | None = None
            events = [(event, clock.to_host(event.stamp)) for event in log.events if event.stamp is not None]
            ends = np.array([bounded(host) for _, host in events], np.int64)
            starts = np.array([bounded(host - (event.duration_ns or 0)) for event, host in events], np.int64)
            shown = self._base.all_hosts(ends).tolist()
            for (event, _), at, is_near in zip(events, shown, self._are_near(starts, ends).tolist(), strict=True):
                if not is_near:
                    continue
                if event.kind in ("forward begins", "backward begins"):
                    opened = at, f"warm-up · {'forward' if event.kind == 'forward begins' else 'backward'}"
                elif event.kind in ("forward ends", "benchmark begins") and opened is not None:
                    spans.append(HostSpan(opened[0], at, opened[1], "log", {"iteration": 0, "line": event.line}))
                    opened = None
                elif event.kind == "iteration" and event.duration_ns is not None:
                    args: dict[str, Any] = {"line": event.line, "printed_ns": event.duration_ns}
                    if event.number is not None:
                        args["iteration"] = event.number
                    spans.append(HostSpan(at - event.duration_ns, at, f"iteration {event.number}", "log", args))
        kept: list[HostSpan] = []
        for span in sorted(spans, key=lambda span: span.start):
            start = max(span.start, kept[-1].end) if kept else span.start
            if span.end > start:
                kept.append(msgspec.structs.replace(span, start=start))
        return kept

    def bounds(self) -> Iterator[int]:
        """Yield times that bound the whole host's side, among others."""
        if self._api is not None:
            yield from self._api.bounds()
        if self._chosen is None:
            for span in self._passes.values():
                yield from span
        else:  # cut to the window, as they are drawn
            for column in self._clipped(*self._layers[:2]):
                yield from present(column)[[0, -1]].tolist() if len(column) else ()
        for row in (self._log, *self._calls, *self._messages):
            yield from (int(row.starts[0]), int(row.ends.max())) if len(row.starts) else ()

    def begins(self) -> Iterator[int]:
        """Yield when rows of passes and layers begin."""
        return (row.start_ns for row in self._drawn_layers(0))

    def _drawn_layers(self, origin: int) -> Iterator[Slices]:
        return host_layers(
            self._alignment.links, self._layers, self._passes, self._clipped, self._track(_LAYERS), origin
        )

    def processes(self) -> list[Process]:
        if not self.tracks():
            return []
        process, of = self._alignment.profile.process, self._alignment.profile.framework.name
        name = f"Host {process.label}".rstrip() + (f" ({of})" if of else "")
        if process.label and process.pid is not None and process.label != f"pid {process.pid}":
            name += f" (pid {process.pid})"
        return [Process(id=self._process, name=f"{name}{self._suffix}", sort=0, description=_HELP)]

    def _track(self, which: int) -> int:
        return self._number(self._wanted * 10 + which)

    def tracks(self) -> list[Track]:
        present = (
            (_LAYERS, "Layers on the host", _HELP_LAYERS, len(self._layers.items) > 0),
            (_LOG, "Log", _HELP_LOG, len(self._log.starts) > 0),
        )
        tracks = [] if self._api is None else self._api.tracks()
        tracks += [
            Track(id=self._track(which), process=self._process, name=name, sort=which, description=help_)
            for which, name, help_, drawn in present
            if drawn
        ]
        for number, (name, lane, help_, _) in self._lanes():
            label = f"{name} ({lane + 1})" if lane else name
            tracks.append(
                Track(id=self._number(number), process=self._process, name=label, sort=number % 10, description=help_)
            )
        if len(tracks) > 1:
            # If the program waits, its calls are not beside its layers.
            main = next(
                (n for n, one in enumerate(tracks) if one.id == self._track(_LAYERS) and len(self._layers.items)), 0
            )
            tracks[main] = msgspec.structs.replace(tracks[main], main=True)
        return distinct(tracks)

    def _lanes(self) -> Iterator[tuple[int, tuple[str, int, str, HostSpans]]]:
        """The lanes of library calls and of the log's messages, by the number of their track in a small trace."""
        more = self._wanted * 1000 + _MORE
        for which, name, help_, rows in (
            (_CALLS, self._called, _HELP_CALLS, self._calls),
            (_MESSAGES, "MIOpen log", _HELP_MESSAGES, self._messages),
        ):
            for lane, row in enumerate(rows):
                if lane:
                    more += 1
                yield (more if lane else self._wanted * 10 + which), (name, lane, help_, row)

    def events(self, origin: int, *, arrows: bool = True) -> Iterator[Event | Slices | Flows]:
        """Yield everything; without ``arrows`` everything else."""
        if len(self._log.starts):
            yield from _as_slices(self._track(_LOG), self._log, origin)
        yield from self._drawn_layers(origin)
        for number, (_, _, _, row) in self._lanes():
            yield from _as_slices(self._number(number), row, origin)
        if self._api is not None:
            yield from self._api.events(origin, self._arrows(origin) if arrows else None)
        if self._alignment.profile.framework.allocated:
            yield from self._allocators(origin)

    def _allocators(self, origin: int) -> Iterator[CounterValue]:
        """Yield the bytes that the framework's allocator of each device has handed out, within the drawn time."""
        profile, reach = self._alignment.profile, reach_of(self, self._device)
        names = {device.index: device.name for device in profile.devices}
        for held in profile.framework.allocated if reach is not None else ():
            at = self._base.host(held.time_ns)
            if at is not None and reach is not None and reach[0] <= at <= reach[1]:
                name = f"{names[held.device]} allocator"
                yield CounterValue(self._process, name, "MB", at - origin, six_digits(held.size_bytes / 1e6))

    def _clipped(self, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
        """Return the part of each span in the drawn window."""
        return (starts, ends) if self._chosen is None else self._chosen.clipped(starts, ends)

    def arrows(self, origin: int) -> Iterator[Flows]:
        """Yield only the arrows of `events`."""
        arrows = self._arrows(origin)
        if self._api is not None and arrows is not None:
            yield from self._api.arrows(arrows)

    def _arrows(self, origin: int) -> Arrows | None:
        """Return a maker of the arrows from a track to what its calls launched.

        There is none from a call that waited: it ended after its activity, and viewers draw an arrow from the end of a
        slice. An arrow never points back in time, even if the stamps of two clocks do. Equal times have
        none: Perfetto takes that of the native form for an end without a begin.
        """
        profile, commands, device = self._alignment.profile, self._alignment.profile.commands, self._device
        if profile.calls_wait:
            return None
        begins, ends = on_axis(profile, self._base)
        can_be_shown = commands.has_times & ~device.indistinct
        number = (self._process - 1) << 32  # unique over the profiles of a trace

        def arrows(positions: Numbers, track: int, starts: Numbers, stops: Numbers) -> Flows:
            nonlocal number
            begin, end = begins[positions], ends[positions]
            is_shown = can_be_shown[positions] & (begin > starts) & ~((end <= stops) & (stops > begin))
            shown = positions[is_shown]
            ids = number + 1 + np.arange(len(shown))
            number += len(shown)
            from_ns, to_ns = shifted(starts[is_shown], -origin), shifted(begin[is_shown], -origin)
            return Flows("enqueue", track, ids, from_ns, device.track_of[shown], to_ns)

        return arrows


def _called(alignment: Alignment) -> str:
    """Return what the library's calls and the framework's ops are together: ``MIOpen calls and PyTorch ops``."""
    framework = alignment.profile.framework.name or "PyTorch"
    are_ops = {  # an op that a log tells more about has the line of that
        one.api in ROWS or not (one.line or one.api.startswith("miopen")) for one in alignment.links.operations
    }
    return " and ".join([_CALLED] * (False in are_ops) + [f"{framework} ops"] * (True in are_ops))


def _was_set_back(commands: Activities) -> bool:
    """Return whether a later call began clearly earlier: then one host time stands for two moments."""
    starts = commands.host_start_ns[commands.host_start_ns != NO]
    return bool((starts < np.maximum.accumulate(np.maximum(starts, 0)) - DISORDER_NS).any())


def _as_slices(track: int, lane: HostSpans, origin: int) -> Iterator[Slices]:
    """Yield the slices of a lane, a limited number at once."""
    for first in range(0, len(lane.starts), ROW):
        spans = lane.take(slice(first, first + ROW))
        has_kernels = spans.places >= 0
        columns, places = [], []
        for make, found in ((_with_kernels, has_kernels), (_alone, ~has_kernels)):
            if found.any():
                places.append(np.flatnonzero(found))
                columns.append(make(track, spans.take(found), origin))
        yield Slices(track, columns, merged(*places) if len(columns) > 1 else None)


def _with_kernels(track: int, spans: HostSpans, origin: int) -> Columns:
    """Return calls with kernels."""
    operations = [spans.operations[place] for place in spans.places.tolist()]
    facts = Pool.of(id(one.facts) for one in operations)
    first, _ = rows_of(facts.codes)
    names = Pool.of([operation_name(operations[row]) for row in first.tolist()])
    lines = np.array([one.line for one in operations], np.int64)
    args = told({
        "operation": np.array([one.index for one in operations], np.int64),
        "line": np.where(lines == 0, NO, lines),
        "range": flags(lines == 0),
        "api": Pool.of([one.facts.api or None for one in operations]),
        "phase": Pool.of([one.facts.phase for one in operations]),
        "host_by": Pool.same(HOST_BY_KERNELS, len(operations)),
        "cut": flags(spans.is_cut),
    })  # fmt: skip
    likes = Pool([Slice(track, 0, 0, name, "call", NO_ARGS) for name in names.values], names.codes[facts.codes])
    return Columns(likes, shifted(spans.starts, -origin), spans.ends - spans.starts, args)


def _alone(track: int, spans: HostSpans, origin: int) -> Columns:
    slices = []
    for start, end, place, is_cut in zip(*(column.tolist() for column in spans[:4]), strict=True):
        one = spans.others[-1 - place]
        args = {**one.args, "cut": True} if is_cut else one.args
        slices.append(Slice(track, start - origin, end - start, one.name, one.category, args))
    return whole(slices)


# -- Layers with known times on the host, inside their passes, on one track --------------------------------------------


_Clip = Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]


def host_layers(
    links: Links, layers: Row, passes: Mapping[int, tuple[int, int]], clip: _Clip, track: int, origin: int
) -> Iterator[Slices]:
    """Return the slices in order, passes among their layers.

    Times are on the axis; passes by number. Overlaps are clipped, because containers may be. A span without duration
    occupies one nanosecond of the track, so that nothing else begins there. ``clip``: the drawn parts of spans.
    """
    pass_of = links.runs.column("pass_")[layers.items]
    first, place_of = rows_of(pass_of)
    numbers_of = pass_of[first]
    bounds = np.array([passes[number] for number in numbers_of.tolist()], np.int64).reshape(-1, 2)
    in_time = np.lexsort(bounds.T[::-1])
    bounds = bounds[in_time]
    rank = np.empty_like(in_time)
    rank[in_time] = np.arange(len(in_time))
    order = np.lexsort((layers.ends, layers.starts, rank[place_of]))
    given = layers.take(order)
    drawn = Row(*clip(given.starts, given.ends), given.items)
    is_cut = (drawn.starts != given.starts) | (drawn.ends != given.ends)
    counts = np.bincount(rank[place_of], minlength=len(first))
    begins, ends = clip(*bounds.T)
    is_pass_cut = (begins != bounds[:, 0]) | (ends != bounds[:, 1])
    drawn, begins, ends = _beside(drawn, begins, ends, counts)
    of_time = [links.passes[number] for number in numbers_of[in_time].tolist()]
    iterations = numbers((one.iteration for one in of_time), len(of_time))
    keys = links.runs.layers().codes[drawn.items]
    behind = np.cumsum(counts)
    opened = 0
    while opened < len(counts):  # whole passes, of `ROW` layers together
        before = int(behind[opened - 1]) if opened else 0
        until = min(int(np.searchsorted(behind, before + ROW)) + 1, len(counts))
        rows, own = slice(before, int(behind[until - 1])), slice(opened, until)
        args = told({
            "iteration": np.repeat(iterations[own], counts[own]),
            "cut": flags(is_cut[rows]),
        })  # fmt: skip
        starts = drawn.starts[rows]
        columns = Columns(
            _likes(links, drawn.items[rows], keys[rows], track), starts - origin, drawn.ends[rows] - starts, args
        )
        around = zip(of_time[own], begins[own].tolist(), ends[own].tolist(), is_pass_cut[own].tolist(), strict=True)
        containers = [
            Slice(track, begin - origin, end - begin, one.name, "pass", _pass_args(one, is_cut=cut))
            for one, begin, end, cut in around
        ]
        places = 2 * (behind[own] - counts[own] - before)
        opened = until
        yield Slices(track, (whole(containers), columns), merged(places, np.arange(1, 2 * len(starts), 2)))


def _beside(layers: Row, begins: Numbers, ends: Numbers, counts: Numbers) -> tuple[Row, Numbers, Numbers]:
    """Return spans without overlaps: layers, in their order, and begins and ends of the passes around ``counts`` of
    them each."""
    # The track is done up to max(done before + 1 of a layer, what the span itself takes): a running maximum of what
    # each takes, less the number of layers up to it. A pass begins and ends without taking time of its own.
    behind = np.cumsum(counts)
    opens = behind - counts + 2 * np.arange(len(counts))
    closes = opens + counts + 1
    is_layer = np.ones(len(layers.items) + 2 * len(counts), bool)
    is_layer[opens] = is_layer[closes] = False
    takes = np.empty(len(is_layer), np.int64)
    takes[is_layer] = np.maximum(layers.ends, layers.starts + 1)
    takes[opens], takes[closes] = begins, ends
    more = np.cumsum(is_layer)
    done = np.maximum.accumulate(takes - more) + more
    starts = np.maximum(layers.starts, np.append(0, done)[:-1][is_layer])
    stops = np.maximum(starts, layers.ends)
    begins = done[opens]
    latest = np.maximum.reduceat(stops, behind - counts) if len(counts) else stops
    return Row(starts, stops, layers.items), begins, np.maximum(np.maximum(begins, ends), latest)


def _likes(links: Links, runs: Numbers | Codes, keys: Codes, track: int) -> Pool[Slice]:
    """Return a slice like that of each layer; many have the same printed time. ``keys``: equal if layers are."""
    printed_ns = links.runs.column("printed_ns")[runs]
    first, place_of = rows_of(combined(keys, np.where(printed_ns == NO, 0, printed_ns + 1)))
    likes = []
    for run in map(links.runs.__getitem__, runs[first].tolist()):
        printed = {} if run.printed_ns is None else {"printed_ns": run.printed_ns}
        likes.append(Slice(track, 0, 0, run.layer, "layer", NO_ARGS, layer_args(run) | printed))
    return Pool(likes, place_of.astype(np.int32))


def _pass_args(of: Pass, *, is_cut: bool) -> dict[str, Any]:
    iteration = {} if of.iteration is None else {"iteration": of.iteration}
    args = iteration if of.direction is None else {"direction": of.direction, **iteration}
    return {**args, "cut": True} if is_cut else args
