"""The API calls of a program that waits for each: one row, in the order in which they were made.

Stamps of whole microseconds let two calls in one look nested, or at once: here one begins where the other has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from mio2trace.draw.base import ROW, Axis, short_name
from mio2trace.draw.selection import Chosen
from mio2trace.model.profile import Activity, Call, Profile
from mio2trace.trace import NO_ARGS, Columns, Flow, Slice, Slices, Track

_HELP = "OpenCL calls that the profiler recorded; an arrow leads from an enqueue to what it enqueued."
_LONG_AGO = -(1 << 62)


class ApiCalls:
    """Draws the calls of one thread on one track. ``axis`` brings host times to the axis of the trace."""

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
        """Draw no more than that from now on."""
        self._earliest = self._first_call()
        drawn = zip(self._profile.activities, chosen.drawn, strict=True)
        self._activities = [activity for activity, shown in drawn if shown and times_of(activity.call) is not None]
        self._others = [] if chosen.longest_only else [call for call in self._others if self._is_shown(call, chosen)]
        self._calls = self._in_order()

    def _is_shown(self, call: Call, chosen: Chosen) -> bool:
        start, end = self._axis.at(call.start_ns or 0), self._axis.at(call.end_ns or 0)
        return chosen.has_time(start, end) and end - start >= chosen.min_ns

    def _in_order(self) -> list[Activity | Call]:
        """What made the calls, and these, as they are drawn: one after another."""
        calls: list[Activity | Call] = [*self._activities, *self._others]
        if self._others:
            calls.sort(key=_number)
        return calls

    def _first_call(self) -> int:
        """When the first of the calls begins: those after it, drawn with it or alone, begin no earlier."""
        times = times_of(_call(self._calls[0])) if self._calls else None
        return _LONG_AGO if times is None else self._axis.at(times[0])

    def bounds(self) -> Iterator[int]:
        """Times that all of it lies between, among others. A call that stands behind a later one begins with that."""
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
        return [Track(id=self._track, process=self._process, name="OpenCL API", sort=1, description=_HELP)]

    def _placed(self) -> Iterator[tuple[Activity | Call, Call, int, int]]:
        """What made the API calls, and these, in order, with their times on the axis."""
        offset = self._axis.offset
        done = self._earliest
        for call in self._calls:
            made = _call(call)
            start, end = made.start_ns or 0, made.end_ns or 0
            if offset is not None:
                start, end = start - offset, end - offset
            else:
                start, end = self._axis.at(start), self._axis.at(end)
            # Calls of one thread do not overlap; only a wall clock that was set back makes it look so.
            if start < done:
                start = done
            if end <= start:
                end = start + 1  # two calls in one microsecond must not look nested
            done = end
            yield call, made, start, end

    def events(self, origin: int) -> Iterator[Slices]:
        """The slices. No arrow leaves them: a call that waits ended when what it launched had."""
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
            yield Slices(track, (Columns(drawn, starts, durations, {"call_index": numbers}),))


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
    """Host times of a call, None where the source has none."""
    if call is None or call.start_ns is None or call.end_ns is None:
        return None
    return call.start_ns, call.end_ns
