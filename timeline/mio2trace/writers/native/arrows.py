"""Arrows of a native trace: packets name those that leave and arrive, so they are known before the slices."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from mio2trace.trace import Flow, Trace
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native import protobuf as pb


class Arrows:
    """Where arrows leave and arrive: track -> (times in order, ids). Packets name them, so they are known before."""

    def __init__(self, trace: Trace) -> None:
        self.leave: dict[int, tuple[array[int], array[int]]] = {}
        self.arrive: dict[int, tuple[array[int], array[int]]] = {}
        leave, arrive = self.leave, self.arrive
        for part in trace.parts if trace.arrows is None else trace.arrows:
            for event in part():
                if type(event) is Flow:
                    number = event.id
                    try:
                        times, ids = leave[event.from_track]
                    except KeyError:
                        times, ids = leave[event.from_track] = array("q"), array("Q")
                    times.append(event.from_ns)
                    ids.append(number)
                    try:
                        times, ids = arrive[event.to_track]
                    except KeyError:
                        times, ids = arrive[event.to_track] = array("q"), array("Q")
                    times.append(event.to_ns)
                    ids.append(number)
        for ends in (self.leave, self.arrive):
            for track, (times, ids) in ends.items():
                if any(map(int.__gt__, times, times[1:])):
                    order = sorted(range(len(times)), key=times.__getitem__)
                    ends[track] = array("q", [times[n] for n in order]), array("Q", [ids[n] for n in order])


class Ends:
    """The arrows' ends on one track, taken as its slices come by in order of time."""

    __slots__ = ("_at", "_ids", "_last", "_times", "head")

    def __init__(self, ends: tuple[array[int], array[int]], field: int) -> None:
        self._times, self._ids = ends
        self.head = pb.varint(field << 3 | 1)
        self._at = 0
        self._last = len(self._times)

    def take(self, start: int, following: int | None) -> bytes:
        """The fields for a slice that starts at ``start``; the innermost of those that start there gets them."""
        at, times, last = self._at, self._times, self._last
        while at < last and times[at] < start:
            at += 1
        out = b""
        if following != start:
            while at < last and times[at] == start:
                out += self.head + pb.fixed64(self._ids[at])
                at += 1
        self._at = at
        return out

    def passed(self, until: int) -> tuple[array[int], array[int]]:
        """Times and ids of those before a time, which are taken with that."""
        begin, self._at = self._at, bisect_left(self._times, until, self._at)
        return self._times[begin : self._at], self._ids[begin : self._at]


def ends_of(arrows: Arrows, track: int) -> tuple[Ends, ...]:
    kinds = ((arrows.leave, tp.FLOW), (arrows.arrive, tp.FLOW_ENDS))
    return tuple(Ends(ends[track], field) for ends, field in kinds if track in ends)
