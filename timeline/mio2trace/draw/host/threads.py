"""The host's threads as an asynchronous profiler saw them: API calls within the ranges that they were made in.

A call returns before what it launched has ended, one may launch many activities (a graph), and many threads may be
busy at once: each thread has its row, what does not nest in it goes to a second one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from mio2trace.draw.base import Axis, short_name
from mio2trace.draw.framework import Nodes, execution_args, inputs_args
from mio2trace.draw.host.api_calls import Arrow, times_of
from mio2trace.draw.lanes import FirstFit
from mio2trace.draw.selection import Chosen
from mio2trace.model.profile import Activity, Call, Profile, Range, Thread
from mio2trace.ops.ranges import shown_text
from mio2trace.trace import NO_ARGS, Event, Flow, Slice, Track

_HELP = "What the program and its libraries did on this thread; an arrow leads from a call to what it launched."

_Item = tuple[int, int, Call | Range]
"""(start, end, what) on the axis."""

_MOST = (1 << 63) - 1
_DEEPEST = 100
"""Slices in one another on a row: nobody looks further down."""


class _Row:
    """Items of one row, in order; there may be millions, so that their times are numbers of eight bytes."""

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


def _all_of(launched: Activity | list[Activity]) -> Sequence[Activity]:
    return launched if isinstance(launched, list) else (launched,)


class Threads:
    """Draws ranges and calls, a track a thread and more where they do not nest. ``number_of`` a row is its track's."""

    def __init__(
        self, profile: Profile, axis: Axis, process: int, number_of: Callable[[int], int], *, with_calls: bool = True
    ) -> None:
        self._axis = axis
        self._process = process
        self._number_of = number_of
        self._profile = profile
        self._launched: dict[int, Activity | list[Activity]] = {}
        """What each call launched, by its identity; a range where the profile tells no call. Most launch one thing."""
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
            # what takes no time gets a nanosecond of the row: a viewer shows it, and it can be pointed at
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
        """Draw no more than that from now on: calls of drawn activities, and what touches the time that is drawn."""
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
        """Times that all of it lies between, among others."""
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

    def events(self, origin: int, arrow: Arrow | None) -> Iterator[Event]:
        """The slices of each row, and the arrows that leave them where something makes these."""
        ranges = _Ranges(self._profile)
        for number, (_, _, items) in enumerate(self._rows):
            track = self._number_of(number)
            for start, end, what in items:
                launched = self._launched_by(what)
                if isinstance(what, Range):
                    yield ranges.slice(what, track, start - origin, end - start)
                else:
                    yield Slice(track, start - origin, end - start, what.name, "api", _call_args(what, launched))
                if arrow is None:
                    continue
                for activity in launched:
                    flow = arrow(activity, track, start, end)
                    if flow is not None:
                        yield flow

    def arrows(self, arrow: Arrow) -> Iterator[Flow]:
        """The arrows that `events` yields, alone."""
        for number, (_, _, items) in enumerate(self._rows):
            track = self._number_of(number)
            launched_by = map(self._launched.get, map(id, items.whats))
            for start, end, launched in zip(items.starts, items.ends, launched_by, strict=True):
                for activity in () if launched is None else _all_of(launched):
                    flow = arrow(activity, track, start, end)
                    if flow is not None:
                        yield flow


class _Ranges:
    """Makes the slice of each range; what equal ones share is one object."""

    def __init__(self, profile: Profile) -> None:
        self._nodes = Nodes(profile, with_layers=True)
        self._executions = {
            id(profile.ranges[place]): execution for place, execution in profile.framework.ranges.items()
        }
        self._inputs: dict[int, dict[str, Any]] = {}

    def slice(self, made: Range, track: int, start: int, dur: int) -> Slice:
        name = shown_text(made)[:200] or made.kind
        execution = self._executions.get(id(made))
        if execution is not None:
            own = execution_args(execution)
            return Slice(track, start, dur, name, made.kind, own, self._nodes.args(execution))
        if made.inputs is None:
            return Slice(track, start, dur, name, made.kind, NO_ARGS)
        inputs = self._inputs.get(id(made.inputs))
        if inputs is None:
            inputs = self._inputs[id(made.inputs)] = inputs_args(made.inputs)
        return Slice(track, start, dur, name, made.kind, NO_ARGS, inputs)


def _nested(items: _Row) -> list[_Row]:
    """Lanes in which items nest or are disjoint, by (start, longest first); each item in the first lane that fits."""
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
        if not in_first or (end <= in_first[-1] and len(in_first) < _DEEPEST):  # nearly always
            first.add(start, end, whats[at])
            in_first.append(end)
            continue
        lane = 1 + others.lane_of(start, end)
        if lane == len(lanes):
            lanes.append(_Row())
        lanes[lane].add(start, end, whats[at])
    return lanes


def _call_args(call: Call, launched: Sequence[Activity]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if call.correlation is not None:
        args["correlation_id"] = call.correlation
    elif call.number is not None:
        args["call_index"] = call.number
    if len(launched) == 1:
        args["kernel"] = short_name(launched[0].name)
    elif launched:
        args["activities"] = len(launched)
    return args
