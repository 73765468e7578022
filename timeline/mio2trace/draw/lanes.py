"""Lanes for slices that overlap, and unbroken rows of one key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, compress, count, pairwise
from math import inf
from operator import ne
from typing import Generic, NamedTuple, TypeVar

import msgspec

from mio2trace.model.profile import Activity
from mio2trace.trace import Track

T = TypeVar("T")
Row = TypeVar("Row")


class Lane(NamedTuple, Generic[Row]):
    """Positions in order of start. ``bare``: commands without length, each at the start of a command in another
    lane."""

    row: Row
    number: int
    bare: bool
    positions: Sequence[int]


def distinct(tracks: Sequence[Track]) -> list[Track]:
    """Give the tracks of a process distinct names: names come from files, which may use one twice."""
    taken: dict[str, int] = {}
    named = []
    for track in tracks:
        name = track.name
        while name in taken:
            taken[name] += 1
            name = f"{name} #{taken[name]}"
        taken[name] = 1
        named.append(track if name == track.name else msgspec.structs.replace(track, name=name))
    return named


def by_queue(activities: Sequence[Activity]) -> dict[int, Sequence[int]]:
    """Return queue -> positions of its activities with times, in order."""
    timed: Sequence[int] = [at for at, activity in enumerate(activities) if activity.start_ns is not None]
    queues = {activity.queue for activity in activities}
    if len(queues) == 1:
        if len(timed) == len(activities):
            timed = range(len(activities))  # of a million numbers, without the numbers
        return {queues.pop(): timed} if timed else {}
    rows: dict[int, list[int]] = {}
    for position in timed:
        rows.setdefault(activities[position].queue, []).append(position)
    return {**rows}


def packed(activities: Sequence[Activity], rows: Mapping[Row, Sequence[int]]) -> Iterator[Lane[Row]]:
    """Return the lanes of each row of positions; more than one only if commands overlap.

    Whatever the times are, no two commands of a lane (unless it is bare) start at once, and none starts before the last
    one ended: an unbroken part of a lane can be enclosed without another part in it.
    """
    for row, positions in rows.items():
        if _in_a_row(activities, positions):
            yield Lane(row, 0, False, positions)
            continue

        def span(position: int) -> tuple[int, int]:
            start, end = activities[position].start_ns, activities[position].end_ns
            assert start is not None and end is not None
            return start, end

        with_room: list[int] = []
        bare: list[int] = []
        begun: int | None = None
        for position in sorted(positions, key=lambda position: _longest_first(span(position))):
            start, end = span(position)
            (bare if start == end == begun else with_room).append(position)
            begun = start
        lanes = packed_spans(with_room, span)
        for number, lane in enumerate(lanes):
            yield Lane(row, number, False, lane)
        if bare:
            yield Lane(row, len(lanes), True, bare)


def packed_spans(items: Sequence[T], span: Callable[[T], tuple[int, int]]) -> list[list[T]]:
    """Return lanes of items by start, longest first at equal starts; each in the first free lane."""
    if all(begin < start >= end for (begin, end), (start, _) in pairwise(map(span, items))):
        return [[*items]] if items else []  # one after another, like the calls of one thread
    lanes: list[list[T]] = []
    free: list[int] = []
    taken: list[tuple[int, int]] = []  # (end, lane)
    for item in sorted(items, key=lambda item: _longest_first(span(item))):
        start, end = span(item)
        while taken and taken[0][0] <= start:
            heappush(free, heappop(taken)[1])
        if free:
            lane = heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        heappush(taken, (end, lane))
        lanes[lane].append(item)
    return lanes


class FirstFit:
    """Lanes of spans that nest or are disjoint; each span, by start, goes into the first lane where it fits.

    ``deepest``: the most nested spans in a lane. A tree holds the end of each lane, so many lanes cost hardly more than
    few.
    """

    def __init__(self, deepest: int) -> None:
        self._deepest = deepest
        self._open_ends: list[list[int]] = []
        self._over: list[tuple[int, int]] = []  # (end, lane) of all open spans
        self._width = 1
        # [width + lane]: the latest end that fits; above it the later one of two lanes.
        self._takes: list[float] = [inf, inf]

    def lane_of(self, start: int, end: int) -> int:
        """Return the lane of this span; lanes are numbered from 0."""
        while self._over and self._over[0][0] <= start:
            lane = heappop(self._over)[1]
            self._open_ends[lane].pop()
            self._changed(lane)
        place = 1
        while place < self._width:
            place = 2 * place if self._takes[2 * place] >= end else 2 * place + 1
        lane = place - self._width
        if lane == len(self._open_ends):
            self._open_ends.append([])
        self._open_ends[lane].append(end)
        heappush(self._over, (end, lane))
        self._changed(lane)
        return lane

    def _changed(self, lane: int) -> None:
        ends = self._open_ends[lane]
        takes: float = inf if not ends else ends[-1] if len(ends) < self._deepest else -inf
        place = self._width + lane
        self._takes[place] = takes
        while place > 1:
            place //= 2
            self._takes[place] = max(self._takes[2 * place], self._takes[2 * place + 1])
        if lane == self._width - 1 and takes < inf:  # one lane is always empty
            self._takes = [0.0] * (2 * self._width) + self._takes[self._width :] + [inf] * self._width
            self._width *= 2
            for place in range(self._width - 1, 0, -1):
                self._takes[place] = max(self._takes[2 * place], self._takes[2 * place + 1])


def indistinct(activities: Sequence[Activity], bare: Iterable[Sequence[int]]) -> set[int]:
    """Return the identities of activities without length that begin at once on one of these lanes."""
    return {
        id(activities[position])
        for positions in bare
        for pair in pairwise(positions)
        if activities[pair[0]].start_ns == activities[pair[1]].start_ns
        for position in pair
    }


def _longest_first(span: tuple[int, int]) -> tuple[int, int]:
    return span[0], -span[1]


def _in_a_row(activities: Sequence[Activity], positions: Sequence[int]) -> bool:
    """Return whether these activities, in call order, ran one after another: then they need no sorting and one lane."""
    begun: int | None = None
    done = activities[positions[0]].start_ns if positions else None
    for position in positions:
        activity = activities[position]
        start, end = activity.start_ns, activity.end_ns
        if start is None or end is None or done is None or start < done or start == begun or end < start:
            return False
        begun, done = start, end
    return True


def unbroken(key_of: Sequence[int], positions: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Return unbroken rows of one key within positions[first:last]: (key, begin, end)."""
    begin = first
    while begin < last:
        key = key_of[positions[begin]]
        end = begin + 1
        while end < last and key_of[positions[end]] == key:
            end += 1
        yield key, begin, end
        begin = end


def borders(column: Sequence[int]) -> list[int]:
    """Return where unbroken rows of one value begin."""
    return list(compress(count(), map(ne, column, chain((None,), column))))
