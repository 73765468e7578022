"""Lanes for slices that overlap, and unbroken rows of one key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.model.tables import NO, Activities, Numbers, present
from mio2trace.trace import Track

T = TypeVar("T")
Row = TypeVar("Row")


class Lane(NamedTuple, Generic[Row]):
    """Positions by start. ``bare``: commands without length, each at the start of one in another lane."""

    row: Row
    number: int
    bare: bool
    positions: Numbers


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


def by_queue(commands: Activities) -> dict[int, Numbers]:
    """Return queue -> positions of its activities with times, in order."""
    timed = np.flatnonzero(commands.start_ns != NO).astype(np.int32)
    queue = commands.queue[timed]
    return {number: timed[queue == number] for number in present(queue).tolist()}


def packed(commands: Activities, rows: Mapping[Row, Numbers]) -> Iterator[Lane[Row]]:
    """Return the lanes of each row of positions; more than one only if commands overlap.

    Whatever the times are, no two commands of a lane (unless it is bare) start at once, and none starts before the last
    one ended: an unbroken part of a lane can be enclosed without another part in it.
    """
    for row, positions in rows.items():
        starts, ends = commands.start_ns[positions], commands.end_ns[positions]
        if _is_in_a_row(starts, ends):
            yield Lane(row, 0, False, positions)
            continue
        order = np.lexsort((-ends, starts))
        positions, starts, ends = positions[order], starts[order], ends[order]
        is_bare = np.append(False, starts[1:] == starts[:-1]) & (starts == ends)
        with_room = positions[~is_bare]
        lanes = [with_room]
        if not _is_in_a_row(starts[~is_bare], ends[~is_bare]):
            spans = zip(*(one[~is_bare].tolist() for one in (starts, ends, positions)), strict=True)
            found = packed_spans([*spans], itemgetter(0, 1))
            lanes = [np.array([position for _, _, position in lane], np.int64) for lane in found]
        for number, lane in enumerate(lanes):
            yield Lane(row, number, False, lane)
        if is_bare.any():
            yield Lane(row, len(lanes), True, positions[is_bare])


def _is_in_a_row(starts: Numbers, ends: Numbers) -> bool:
    """Return whether commands ran one after another, in this order: then they need no sorting and one lane."""
    one_by_one = (starts[1:] >= ends[:-1]) & (starts[1:] > starts[:-1])
    return bool(one_by_one.all() and (ends >= starts).all())


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


def indistinct(starts: Numbers, bare: Iterable[Numbers]) -> NDArray[np.bool_]:
    """Return whether an activity has no length and begins together with another one, on one of these lanes."""
    found = np.zeros(len(starts), np.bool_)
    for positions in bare:
        pairs = np.flatnonzero(starts[positions[1:]] == starts[positions[:-1]])
        found[positions[pairs]] = found[positions[pairs + 1]] = True
    return found


def _longest_first(span: tuple[int, int]) -> tuple[int, int]:
    return span[0], -span[1]


def unbroken(keys: NDArray[Any]) -> Numbers:
    """Return where unbroken rows of one value begin, and the end of the last one."""
    return np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])), len(keys))
