"""The host's threads from an asynchronous profiler: API calls within the ranges in which they were made.

A call returns before its command has ended, one call may launch many activities (a graph), and many threads may be busy
at once: each thread has its row, and overlaps that do not nest go to a second one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mio2trace.draw.base import ROW, Axis, shared_slices, shifted, short_name, told
from mio2trace.draw.framework import Nodes, execution_columns, inputs_args
from mio2trace.draw.lanes import FirstFit
from mio2trace.draw.selection import Chosen
from mio2trace.model.profile import Profile, Thread
from mio2trace.model.tables import NO, Numbers, Pool, numbers
from mio2trace.ops.ranges import shown_text
from mio2trace.trace import NO_ARGS, Args, Column, Columns, Flows, Slice, Slices, Track

_HELP = "What the program and its libraries did on this thread; an arrow leads from a call to what it launched."

_MOST = (1 << 63) - 1
_DEEPEST = 100
"""Slices in one another on a row: nobody looks further down."""


class _Row(NamedTuple):
    """Items of one row, in order: when each begins and ends on the axis, and its number among all items."""

    starts: Numbers
    ends: Numbers
    items: Numbers

    def take(self, rows: Any) -> _Row:
        """Return some of them; ``rows`` is anything that numpy takes as an index."""
        return _Row(self.starts[rows], self.ends[rows], self.items[rows])


class Threads:
    """Draws ranges and calls, one or more tracks for each thread. ``number_of`` gives the number of a row's track.

    Items are numbered: the ranges, then the calls that launched something, then the others.
    """

    def __init__(
        self, profile: Profile, axis: Axis, process: int, number_of: Callable[[int], int], *, with_calls: bool = True
    ) -> None:
        self._process = process
        self._number_of = number_of
        self._profile = profile
        self._commands = commands = profile.commands
        ranges, calls, others = profile.ranges, commands.calls, profile.lone_calls
        self._first_call, self._first_other = len(ranges), len(ranges) + len(calls)
        starts, ends, threads = (
            np.concatenate((numbers((getattr(one, name) for one in ranges), len(ranges)), *of_calls))
            for name, *of_calls in (
                ("start_ns", calls.start_ns, others.start_ns),
                ("end_ns", calls.end_ns, others.end_ns),
                ("thread", calls.thread, others.thread),
            )
        )
        is_drawn = (starts != NO) & (ends != NO)
        is_drawn[self._first_call :] &= with_calls
        item_of = np.where(commands.call < 0, commands.range, commands.call + self._first_call)
        item_of[~np.append(is_drawn, False)[item_of]] = -1
        self._item_of = item_of if with_calls else np.full(len(commands), -1)
        """For each activity the item that launched it: a range if no call is known; -1 for none."""
        # What begins and ends together is drawn in this order: a call when its first activity comes.
        first = np.zeros(len(calls) + 1, np.int64)  # the last is of what has no call
        first[commands.call[::-1]] = np.arange(len(commands))[::-1]
        order = np.arange(len(starts))
        order[self._first_call : self._first_other] = self._first_call + np.argsort(first[:-1], kind="stable")
        order = order[is_drawn[order]]
        starts, ends = axis.all_at(starts[order]), axis.all_at(ends[order])
        # What takes no time gets a nanosecond of the row: a viewer shows it, and users can point at it.
        is_short = ends <= starts
        starts = np.where(is_short, np.minimum(starts, _MOST - 1), starts)
        ends = np.where(is_short, np.maximum(ends, starts + 1), ends)
        everything, of_thread = _Row(starts, ends, order), threads[order]
        self._rows: list[tuple[Thread, int, _Row]] = []
        for thread in np.unique(of_thread).tolist():
            known = profile.threads[thread] if thread < len(profile.threads) else Thread(index=thread)
            for lane, row in enumerate(_nested(everything.take(of_thread == thread))):
                self._rows.append((known, lane, row))

    def show_only(self, chosen: Chosen) -> None:
        """Draw no more than that from now on: calls of drawn activities, and what overlaps the drawn time."""
        self._item_of = np.where(chosen.drawn, self._item_of, -1)
        launched = np.bincount(self._item_of + 1, minlength=self._first_other + len(self._profile.lone_calls) + 1)[1:]
        rows = []
        for thread, lane, row in self._rows:
            starts, ends = chosen.clipped(row.starts, row.ends)
            wanted = launched[row.items] > 0
            if not chosen.longest_only:
                wanted |= chosen.have_time(row.starts, row.ends) & (row.ends - row.starts >= chosen.min_ns)
            kept = _Row(starts, ends, row.items).take((starts < ends) & wanted)
            if len(kept.items):
                rows.append((thread, lane, kept))
        self._rows = rows

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
            tracks.append(Track(id=track, process=self._process, name=name, sort=10 + number, description=_HELP))
        return tracks

    def events(self, origin: int, arrows: Arrows | None) -> Iterator[Slices | Flows]:
        """Yield the slices of each row, and the arrows that leave them, if ``arrows`` makes these."""
        looks = _Looks(self._profile, self._item_of, self._first_call, self._first_other)
        for number, (_, _, row) in enumerate(self._rows):
            track = self._number_of(number)
            for first in range(0, len(row.items), ROW):
                yield looks.drawn(track, origin, row.take(slice(first, first + ROW)))
            if arrows is not None:
                yield from self._arrows_of(track, row, arrows)

    def arrows(self, arrows: Arrows) -> Iterator[Flows]:
        """Yield the arrows that `events` yields, alone."""
        for number, (_, _, row) in enumerate(self._rows):
            yield from self._arrows_of(self._number_of(number), row, arrows)

    def _arrows_of(self, track: int, row: _Row, arrows: Arrows) -> Iterator[Flows]:
        by_item = np.argsort(self._item_of, kind="stable")
        launchers = self._item_of[by_item]
        for begin in range(0, len(row.items), ROW):
            here = row.take(slice(begin, begin + ROW))
            first, last = (np.searchsorted(launchers, here.items, side) for side in ("left", "right"))
            counts = last - first
            places = np.repeat(np.arange(len(counts)), counts)
            within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
            yield arrows(by_item[first[places] + within], track, here.starts[places], here.ends[places])


class _Looks:
    """Makes the slices of ranges and calls; equal ones share one object."""

    def __init__(self, profile: Profile, item_of: Numbers, first_call: int, first_other: int) -> None:
        self._profile = profile
        self._nodes = Nodes(profile, with_layers=True)
        self._executions = profile.framework.ranges
        self._inputs: dict[int, dict[str, Any]] = {}
        self._likes: defaultdict[int, dict[int, Slice]] = defaultdict(dict)
        self._first_call = first_call
        commands, calls, others = profile.commands, profile.commands.calls, profile.lone_calls
        count = first_other + len(others)
        is_launched = item_of >= 0
        self._launched = np.bincount(item_of[is_launched], minlength=count)
        self._activity = np.zeros(count, np.int64)
        """One of those that each launched."""
        self._activity[item_of[is_launched]] = np.flatnonzero(is_launched)
        nothing = np.full(first_call, NO)
        self._correlation = np.concatenate((nothing, calls.correlation, others.correlation))
        number = np.concatenate((nothing, calls.number, others.number))
        self._call_index = np.where(self._correlation == NO, number, NO)
        self._names = [*calls.name.values, *others.name.values]
        self._name = np.concatenate((nothing, calls.name.codes, others.name.codes + len(calls.name.values)))
        kernel = np.where(self._launched == 1, commands.name.codes[self._activity] + 1, 0) if len(commands) else 0
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
        self._keys = np.asarray(len(ranges.values) + self._name * (len(commands.name.values) + 1) + kernel, np.int64)
        self._keys[:first_call] = ranges.codes

    def drawn(self, track: int, origin: int, row: _Row) -> Slices:
        items = row.items
        likes = shared_slices(self._keys, items, self._likes[track], partial(self._like, track))
        launched = self._launched[items]
        is_call = items >= self._first_call
        columns: dict[str, Column] = {
            "correlation_id": self._correlation[items],
            "call_index": self._call_index[items],
            "activities": np.where((launched > 1) & is_call, launched, NO),
        }
        columns |= execution_columns(self._executions, items)
        return Slices(track, (Columns(likes, shifted(row.starts, -origin), row.ends - row.starts, told(columns)),))

    def _like(self, track: int, item: int) -> Slice:
        if item >= self._first_call:
            shared: Args = NO_ARGS
            if self._launched[item] == 1:
                name = self._profile.commands.name
                shared = {"kernel": short_name(name.values[name.codes[self._activity[item]]])}
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


def _nested(row: _Row) -> list[_Row]:
    """Return lanes in which items nest or are disjoint; by start, longest first, each in the first that fits."""
    row = row.take(np.lexsort((-row.ends, row.starts)))
    if _is_nested(row):
        return [row]
    lanes: list[list[int]] = [[]]
    in_first: list[int] = []
    others = FirstFit(_DEEPEST)
    for place, (start, end) in enumerate(zip(row.starts.tolist(), row.ends.tolist(), strict=True)):
        while in_first and in_first[-1] <= start:
            in_first.pop()
        if not in_first or (end <= in_first[-1] and len(in_first) < _DEEPEST):  # nearly always
            lanes[0].append(place)
            in_first.append(end)
            continue
        lane = 1 + others.lane_of(start, end)
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(place)
    return [row.take(lane) for lane in lanes]


def _is_nested(row: _Row) -> bool:
    """Return whether items in order nest or are disjoint, not too deep."""
    depth = np.arange(len(row.starts)) - np.searchsorted(np.sort(row.ends), row.starts, "right")
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


# -- The calls of a program that waits for each: one row, in the order of the calls
# --------------------------------------


_HELP_IN_A_ROW = "OpenCL calls that the profiler recorded; an arrow leads from an enqueue to what it enqueued."
_LONG_AGO = -(1 << 62)


class ApiCalls:
    """Draws the calls of one thread on one track. ``axis`` brings host times to the axis of the trace.

    Items are numbered: the activities, then the calls that launched none.
    """

    def __init__(self, profile: Profile, axis: Axis, process: int, track: int) -> None:
        self._process = process
        self._track = track
        self._commands, self._others = commands, others = profile.commands, profile.lone_calls
        starts, ends = (
            np.concatenate((commands.host_start_ns, others.start_ns)),
            np.concatenate((commands.host_end_ns, others.end_ns)),
        )
        self._numbers = np.concatenate((commands.number, others.number))
        items = np.flatnonzero((starts != NO) & (ends != NO))
        self._starts, self._ends = starts, ends
        self._starts[items], self._ends[items] = axis.all_at(starts[items]), axis.all_at(ends[items])
        self._items = self._in_order(items)
        self._earliest = _LONG_AGO

    def show_only(self, chosen: Chosen) -> None:
        self._earliest = self._first_call()
        count = len(self._commands)
        starts, ends, items = self._starts[self._items], self._ends[self._items], self._items
        is_shown = chosen.have_time(starts, ends) & (ends - starts >= chosen.min_ns) & (not chosen.longest_only)
        drawn = np.append(chosen.drawn, np.zeros(len(self._others), np.bool_))[items]
        self._items = self._in_order(np.sort(items[np.where(items < count, drawn, is_shown)]))

    def _in_order(self, items: Numbers) -> Numbers:
        """``items`` as they are drawn: one after another."""
        if len(items) and items[-1] >= len(self._commands):
            numbers = self._numbers[items]
            return items[np.argsort(np.where(numbers == NO, 0, numbers), kind="stable")]
        return items

    def _first_call(self) -> int:
        """Return when the first of the calls begins: those after it, drawn with it or alone, begin no earlier."""
        return int(self._starts[self._items[0]]) if len(self._items) else _LONG_AGO

    def bounds(self) -> Iterator[int]:
        """Times that all of it lies between, among others. A call that stands behind a later one begins with that."""
        if not len(self._items):
            return
        earliest = max(self._earliest, self._first_call())
        yield earliest
        items = np.sort(self._items)
        is_other = items >= len(self._commands)
        for own in (items[~is_other], items[is_other]):
            for item in own[[0, -1]].tolist() if len(own) else ():
                yield max(int(self._starts[item]), earliest)
                yield max(int(self._ends[item]), earliest)

    def tracks(self) -> list[Track]:
        if not len(self._items):
            return []
        return [Track(id=self._track, process=self._process, name="OpenCL API", sort=1, description=_HELP_IN_A_ROW)]

    def events(self, origin: int) -> Iterator[Slices]:
        """Yield the slices. No arrow leaves them: a call that waits ended after its activity had."""
        track, items, commands, calls = self._track, self._items, self._commands, self._commands.calls
        starts, ends = _one_after_another(self._starts[items], self._ends[items], self._earliest)
        names = [*calls.name.values, *self._others.name.values]
        of_calls = np.append(calls.name.codes, -1)[commands.call]
        name = np.append(of_calls, self._others.name.codes + len(calls.name.values))
        kernel = np.append(
            np.where(commands.is_kernel, commands.name.codes + 1, 0), np.zeros(len(self._others), np.int64)
        )
        keys = name * (len(commands.name.values) + 1) + kernel
        likes: dict[int, Slice] = {}

        def like(item: int) -> Slice:
            launched = kernel[item]
            shared = {"kernel": short_name(commands.name.values[launched - 1])} if launched else NO_ARGS
            return Slice(track, 0, 0, names[name[item]], "api", NO_ARGS, shared)

        for first in range(0, len(items), ROW):
            here, own = slice(first, first + ROW), items[first : first + ROW]
            of_keys = shared_slices(keys, own, likes, like)
            durations, args = ends[here] - starts[here], told({"call_index": self._numbers[own]})
            yield Slices(track, (Columns(of_keys, shifted(starts[here], -origin), durations, args),))


def _one_after_another(starts: Numbers, ends: Numbers, earliest: int) -> tuple[Numbers, Numbers]:
    """Return the times of calls, none before the one before it has ended.

    Calls of one thread do not overlap; only a wall clock that was set back makes it look so. Two calls in one
    microsecond must not look nested.
    """
    if (ends > starts).all() and (starts[1:] >= ends[:-1]).all() and (starts[:1] >= earliest).all():
        return starts, ends
    placed = []
    done = earliest
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        start = min(max(start, done), _MOST - 1)
        done = min(max(end, start + 1), _MOST)
        placed.append((start, done))
    begun, ended = np.array(placed, np.int64).reshape(-1, 2).T
    return begun, ended


Arrows = Callable[[Numbers, int, Numbers, Numbers], Flows]
"""Makes the arrows to activities, at these positions, from calls on a track that begin and end at times on the axis."""
