"""The host's threads from an asynchronous profiler: API calls within the ranges in which they were made.

A call returns before its command has ended, one call may launch many activities (a graph), and many threads may be busy
at once: each thread has its row, and overlaps that do not nest go to a second one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import sub
from typing import Any

from mio2trace.draw.base import ROW, Axis, columns, in_columns, short_name, told
from mio2trace.draw.framework import Nodes, execution_args, inputs_args
from mio2trace.draw.lanes import FirstFit
from mio2trace.draw.selection import Chosen
from mio2trace.model.profile import Activity, Call, Profile, Range, Thread
from mio2trace.ops.ranges import shown_text
from mio2trace.trace import NO_ARGS, Args, Event, Flow, Slice, Slices, Track

_HELP = "What the program and its libraries did on this thread; an arrow leads from a call to what it launched."

_Item = tuple[int, int, Call | Range]
"""(start, end, item) on the axis."""

_MOST = (1 << 63) - 1
_MOST_LIKES = 1 << 16
_DEEPEST = 100
"""The most nested slices on a row: nobody looks further down."""


class _Row:
    """Items of one row, in order; there may be millions, so times are numbers of eight bytes."""

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.whats: list[Call | Range] = []

    def add(self, start: int, end: int, what: Call | Range) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.whats.append(what)

    def __iter__(self) -> Iterator[_Item]:
        return zip(self.starts, self.ends, self.whats, strict=True)

    def __len__(self) -> int:
        return len(self.whats)

    def part(self, first: int, stop: int) -> _Row:
        row = _Row()
        row.starts, row.ends, row.whats = self.starts[first:stop], self.ends[first:stop], self.whats[first:stop]
        return row


def _all_of(launched: Activity | list[Activity]) -> Sequence[Activity]:
    return launched if isinstance(launched, list) else (launched,)


class Threads:
    """Draws ranges and calls: one track per thread, and more for overlaps that do not nest. ``number_of``: the track of
    a row."""

    def __init__(
        self, profile: Profile, axis: Axis, process: int, number_of: Callable[[int], int], *, with_calls: bool = True
    ) -> None:
        self._axis = axis
        self._process = process
        self._number_of = number_of
        self._profile = profile
        self._launched: dict[int, Activity | list[Activity]] = {}
        """The activities that each call launched, by its identity; a range if the profile has no call. Most
        launch one."""
        calls: dict[int, Call] = {}
        for activity in profile.activities:
            call = activity.call
            if with_calls and call is not None and times_of(call) is not None:
                calls[id(call)] = call
                self._add(id(call), activity)
            elif with_calls and call is None and activity.range is not None:
                self._add(id(profile.ranges[activity.range]), activity)
        others = profile.other_calls if with_calls else ()
        made = [*calls.values(), *(call for call in others if times_of(call) is not None)]
        by_thread: dict[int, _Row] = {}
        everything: Iterator[Call | Range] = chain(profile.ranges, made)
        offset = axis.offset
        for what in everything:
            start, end = what.start_ns or 0, what.end_ns or 0
            if offset is not None:
                start, end = start - offset, end - offset
            else:
                start, end = axis.at(start), axis.at(end)
            row = by_thread.get(what.thread)
            if row is None:
                row = by_thread[what.thread] = _Row()
            # an item without duration gets a nanosecond, so that a viewer shows it and it can be selected
            if end <= start or end > _MOST:
                start = min(start, _MOST - 1)
                end = min(max(end, start + 1), _MOST)
            row.add(start, end, what)
        self._rows: list[tuple[Thread, int, _Row]] = []
        for thread in sorted(by_thread):
            known = profile.threads[thread] if thread < len(profile.threads) else Thread(index=thread)
            for lane, items in enumerate(_nested(by_thread.pop(thread))):
                self._rows.append((known, lane, items))

    def _add(self, key: int, activity: Activity) -> None:
        before = self._launched.setdefault(key, activity)
        if isinstance(before, list):
            before.append(activity)
        elif before is not activity:
            self._launched[key] = [before, activity]

    def _launched_by(self, what: Call | Range) -> Sequence[Activity]:
        launched = self._launched.get(id(what))
        return () if launched is None else _all_of(launched)

    def show_only(self, chosen: Chosen) -> None:
        """Draw only the chosen part from now on: calls of drawn activities, and items that touch the drawn time."""
        drawn = {id(a) for a, shown in zip(self._profile.activities, chosen.drawn, strict=True) if shown}
        for number, (thread, lane, items) in enumerate(self._rows):
            kept = _Row()
            for start, end, what in items:
                clipped = chosen.clip(start, end)
                launched = self._launched_by(what)
                wanted = any(id(activity) in drawn for activity in launched) or (
                    not chosen.longest_only and chosen.has_time(start, end) and end - start >= chosen.min_ns
                )
                if clipped is not None and clipped[0] < clipped[1] and wanted:
                    kept.add(*clipped, what)
            self._rows[number] = thread, lane, kept
        self._rows = [row for row in self._rows if len(row[2])]
        launches, self._launched = self._launched, {}
        for key, launched_by_it in launches.items():
            for activity in _all_of(launched_by_it):
                if id(activity) in drawn:
                    self._add(key, activity)

    def bounds(self) -> Iterator[int]:
        """Return times that bound everything, among others."""
        for _, _, items in self._rows:
            yield items.starts[0]
            yield max(items.ends)

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

    def events(self, origin: int, arrow: Arrow | None) -> Iterator[Event | Slices]:
        """Yield the slices of each row, and their arrows if ``arrow`` makes them."""
        looks = _Looks(self._profile)
        for number, (_, _, items) in enumerate(self._rows):
            track = self._number_of(number)
            for first in range(0, len(items), ROW):
                yield looks.drawn(track, origin, items.part(first, first + ROW), self._launched)
            if arrow is not None:
                yield from self._arrows_of(track, items, arrow)

    def arrows(self, arrow: Arrow) -> Iterator[Flow]:
        """Yield only the arrows of `events`."""
        for number, (_, _, items) in enumerate(self._rows):
            yield from self._arrows_of(self._number_of(number), items, arrow)

    def _arrows_of(self, track: int, items: _Row, arrow: Arrow) -> Iterator[Flow]:
        launched_by = map(self._launched.get, map(id, items.whats))
        for start, end, launched in zip(items.starts, items.ends, launched_by, strict=True):
            for activity in () if launched is None else _all_of(launched):
                flow = arrow(activity, track, start, end)
                if flow is not None:
                    yield flow


class _Looks:
    """Makes the slices of ranges and calls; equal ones share one object."""

    def __init__(self, profile: Profile) -> None:
        self._nodes = Nodes(profile, with_layers=True)
        self._executions = {
            id(profile.ranges[place]): execution for place, execution in profile.framework.ranges.items()
        }
        self._inputs: dict[int, dict[str, Any]] = {}
        self._likes: dict[tuple[object, ...], Slice] = {}

    def drawn(
        self, track: int, origin: int, items: _Row, launched_by: Mapping[int, Activity | list[Activity]]
    ) -> Slices:
        """Draw ``items`` in columns. ``launched_by``: the activities that each launched, by its identity."""
        likes: list[Slice] = []
        known, executions = self._likes, self._executions
        if len(known) > _MOST_LIKES:
            known.clear()
        ids: list[int | None] = []
        indices: list[int | None] = []
        counts: list[int | None] = []
        owns: list[Mapping[str, Any]] = []
        for what, launched in zip(items.whats, map(launched_by.get, map(id, items.whats)), strict=True):
            key: tuple[object, ...]
            if type(what) is Range:
                execution = executions.get(id(what)) if executions else None
                if executions:
                    owns.append(NO_ARGS if execution is None else execution_args(execution))
                key = track, what.text, what.kind, id(what.inputs), None if execution is None else execution.node
                ids.append(None)
                indices.append(None)
                counts.append(None)
            else:
                several = type(launched) is list
                key = track, what.name, None if launched is None or several else launched.name  # type: ignore[union-attr]
                number = what.correlation  # type: ignore[union-attr]
                ids.append(number)
                indices.append(what.number if number is None else None)  # type: ignore[union-attr]
                counts.append(len(launched) if several else None)  # type: ignore[arg-type]
                if executions:
                    owns.append(NO_ARGS)
            like = known.get(key)
            if like is None:
                like = known[key] = self._like(track, what, launched)
            likes.append(like)
        starts = [start - origin for start in items.starts]
        args = {"correlation_id": ids, "call_index": indices, "activities": counts, **in_columns(owns)}
        return Slices(track, (columns(likes, starts, list(map(sub, items.ends, items.starts)), told(args)),))

    def _like(self, track: int, what: Call | Range, launched: Activity | list[Activity] | None) -> Slice:
        if isinstance(what, Call):
            shared: Args = {"kernel": short_name(launched.name)} if isinstance(launched, Activity) else NO_ARGS
            return Slice(track, 0, 0, what.name, "api", NO_ARGS, shared)
        name = shown_text(what)[:200] or what.kind
        execution = self._executions.get(id(what))
        shared = NO_ARGS
        if execution is not None:
            shared = self._nodes.args(execution)
        elif what.inputs is not None:
            if id(what.inputs) not in self._inputs:
                self._inputs[id(what.inputs)] = inputs_args(what.inputs)
            shared = self._inputs[id(what.inputs)]
        return Slice(track, 0, 0, name, what.kind, NO_ARGS, shared)


def _nested(items: _Row) -> list[_Row]:
    """Return lanes in which items nest or are disjoint, by (start, longest first); each item in the first lane that
    fits."""
    starts, ends, whats = items.starts, items.ends, items.whats
    first = _Row()
    lanes: list[_Row] = [first]
    in_first: list[int] = []
    others = FirstFit(_DEEPEST)
    spans = [(start << 64) - end for start, end in zip(starts, ends, strict=True)]
    for at in sorted(range(len(items)), key=spans.__getitem__):
        start, end = starts[at], ends[at]
        while in_first and in_first[-1] <= start:
            in_first.pop()
        if not in_first or (end <= in_first[-1] and len(in_first) < _DEEPEST):  # true of nearly all
            first.add(start, end, whats[at])
            in_first.append(end)
            continue
        lane = 1 + others.lane_of(start, end)
        if lane == len(lanes):
            lanes.append(_Row())
        lanes[lane].add(start, end, whats[at])
    return lanes


# -- The calls of a program that waits for each: one row, in the order of the calls
# --------------------------------------


_HELP_IN_A_ROW = "OpenCL calls that the profiler recorded; an arrow leads from an enqueue to what it enqueued."
_LONG_AGO = -(1 << 62)


class ApiCalls:
    """Draws the calls of one thread on one track. ``axis``: converts host times to the axis of the trace."""

    def __init__(self, profile: Profile, axis: Axis, process: int, track: int) -> None:
        self._profile = profile
        self._axis = axis
        self._process = process
        self._track = track
        self._activities = [
            activity
            for activity in profile.activities
            if (call := activity.call) is not None and call.start_ns is not None and call.end_ns is not None
        ]
        self._others = [call for call in profile.other_calls if times_of(call) is not None]
        self._calls = self._in_order()
        self._earliest = _LONG_AGO

    def show_only(self, chosen: Chosen) -> None:
        self._earliest = self._first_call()
        drawn = zip(self._profile.activities, chosen.drawn, strict=True)
        self._activities = [activity for activity, shown in drawn if shown and times_of(activity.call) is not None]
        self._others = [] if chosen.longest_only else [call for call in self._others if self._is_shown(call, chosen)]
        self._calls = self._in_order()

    def _is_shown(self, call: Call, chosen: Chosen) -> bool:
        start, end = self._axis.at(call.start_ns or 0), self._axis.at(call.end_ns or 0)
        return chosen.has_time(start, end) and end - start >= chosen.min_ns

    def _in_order(self) -> list[Activity | Call]:
        """Return the activities of the calls, and the calls, in drawing order: one after another."""
        calls: list[Activity | Call] = [*self._activities, *self._others]
        if self._others:
            calls.sort(key=_number)
        return calls

    def _first_call(self) -> int:
        """Return the begin of the first call: later calls begin no earlier."""
        times = times_of(_call(self._calls[0])) if self._calls else None
        return _LONG_AGO if times is None else self._axis.at(times[0])

    def bounds(self) -> Iterator[int]:
        """Return times that bound everything, among others. A call after a later one begins with that one."""
        if not self._calls:
            return
        earliest = max(self._earliest, self._first_call())
        yield earliest
        for calls in (self._activities, self._others):
            for call in (*calls[:1], *calls[-1:]):
                for at in times_of(_call(call)) or ():
                    yield max(self._axis.at(at), earliest)

    def tracks(self) -> list[Track]:
        if not self._activities and not self._others:
            return []
        return [Track(id=self._track, process=self._process, name="OpenCL API", sort=1, description=_HELP_IN_A_ROW)]

    def _placed(self) -> Iterator[tuple[Activity | Call, Call, int, int]]:
        """Return the activities of the API calls, and the calls, in order, with their times on the axis."""
        offset = self._axis.offset
        done = self._earliest
        for call in self._calls:
            made = _call(call)
            start, end = made.start_ns or 0, made.end_ns or 0
            if offset is not None:
                start, end = start - offset, end - offset
            else:
                start, end = self._axis.at(start), self._axis.at(end)
            # Calls of one thread do not overlap; they only seem to if a wall clock was set back.
            if start < done:
                start = done
            if end <= start:
                end = start + 1  # two calls in one microsecond must not look nested
            done = end
            yield call, made, start, end

    def events(self, origin: int) -> Iterator[Slices]:
        """Yield the slices. No arrow leaves them: a call that waits ends when its command has ended."""
        track = self._track
        likes: dict[tuple[str, str | None], Slice] = {}
        placed = self._placed()
        while row := list(islice(placed, ROW)):
            drawn = []
            for call, made, _, _ in row:
                kernel = call.name if type(call) is Activity and call.kind == "kernel" else None
                like = likes.get((made.name, kernel))
                if like is None:
                    shared = NO_ARGS if kernel is None else {"kernel": short_name(kernel)}
                    like = likes[made.name, kernel] = Slice(track, 0, 0, made.name, "api", NO_ARGS, shared)
                drawn.append(like)
            starts = [start - origin for _, _, start, _ in row]
            durations = [end - start for _, _, start, end in row]
            numbers = [call.number for call, _, _, _ in row]
            yield Slices(track, (columns(drawn, starts, durations, {"call_index": numbers}),))


Arrow = Callable[[Activity, int, int, int], Flow | None]
"""Makes the arrow to an activity from a call on a track that begins and ends at times on the axis."""


def _call(call: Activity | Call) -> Call:
    if isinstance(call, Activity):
        assert call.call is not None
        return call.call
    return call


def _number(call: Activity | Call) -> int:
    return call.number or 0


def times_of(call: Call | None) -> tuple[int, int] | None:
    """Return the host times of a call, None if the source has none."""
    if call is None or call.start_ns is None or call.end_ns is None:
        return None
    return call.start_ns, call.end_ns
