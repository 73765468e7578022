"""Lanes of stretches of time that do not overlap, as the threads that ran them are not recorded."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Protocol, TypeVar

_COMPARED = 64
"""Of so many free lanes the one is looked for whose last stretch is most like the next."""


class Stretch(Protocol):
    """From when to when, in ns."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


S = TypeVar("S", bound=Stretch)


def in_lanes(stretches: Iterable[S], alike: Callable[[S, S], int] = lambda last, following: 0) -> list[list[S]]:
    """Each goes to the free lane whose last stretch is most ``alike``, of equal ones to the first.

    What takes no time takes its nanosecond of the lane, so that nothing else begins there.
    """
    lanes: list[list[S]] = []
    busy: list[tuple[int, int]] = []  # (until when, lane), a heap
    free: list[int] = []  # in order
    for stretch in sorted(stretches, key=lambda stretch: (stretch.start, -stretch.end)):
        while busy and busy[0][0] <= stretch.start:
            insort(free, heappop(busy)[1])
        best, most_alike = -1, -1
        for lane in free[:_COMPARED]:
            how_alike = alike(lanes[lane][-1], stretch)
            if how_alike > most_alike:
                best, most_alike = lane, how_alike
        if best < 0:
            best = len(lanes)
            lanes.append([])
        else:
            free.remove(best)
        lanes[best].append(stretch)
        heappush(busy, (max(stretch.end, stretch.start + 1), best))
    return lanes
