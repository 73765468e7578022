from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from mio2trace.align.links import NONE
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NEVER, NO, Codes, Numbers, by_code, by_key, numbers, present


class OpenRanges:
    """The nesting of ranges, and the range of each launch (`NONE`: none).

    ``parent_of[r]``: the innermost range around r on its thread. ``range_of[i]``: the innermost open range when
    activity i was launched, as ``stated[i]`` by the source, else by time. ``outermost_first``: all ranges, parents
    first."""

    def __init__(self, profile: Profile) -> None:
        ranges, commands = profile.ranges, profile.commands
        starts, ends, threads = (
            numbers(map(attrgetter(field), ranges), len(ranges)) for field in ("start_ns", "end_ns", "thread")
        )
        is_mark = np.array([made.kind == "mark" for made in ranges], bool)
        self.parent_of = [NONE] * len(ranges)
        self.stated: NDArray[np.bool_] = commands.range >= 0
        self.range_of: Codes = commands.range.copy()
        self.outermost_first: list[int] = []
        self._ends = np.append(ends, NEVER)
        begins_of, of_last = {}, {}
        for thread, places in by_key(np.arange(len(ranges)), threads):
            places = places[np.lexsort((-ends[places], starts[places]))]
            self.outermost_first += places.tolist()
            begins_of[thread] = starts[places]
            begun, ended, are_marks = (column[places].tolist() for column in (starts, ends, is_mark))
            of_last[thread] = self._nest(begun, ended, are_marks, places.tolist())
        rows = np.flatnonzero(~self.stated & (commands.host_start_ns != NO))
        lifts = self._lifts() if len(rows) else []
        for thread, own in by_code(rows, commands.thread[rows]):
            if thread in begins_of:
                called = commands.host_start_ns[own]
                self.range_of[own] = self._open_at(called, begins_of[thread], of_last[thread], lifts)

    def _nest(
        self, starts: Sequence[int], ends: Sequence[int], are_marks: Sequence[bool], places: Sequence[int]
    ) -> Sequence[int]:
        """Set the parents of one thread's ranges, which are in order. Returns the innermost open range after each
        begin."""
        parent_of = self.parent_of
        is_open: list[tuple[int, int]] = []
        """Of each open range its end and its place."""
        innermost = []
        for place, begun, end, is_mark in zip(places, starts, ends, are_marks, strict=True):
            while is_open and is_open[-1][0] <= begun:
                is_open.pop()
            if is_open:
                parent_of[place] = is_open[-1][1]
            if not is_mark:
                is_open.append((end, place))
            innermost.append(is_open[-1][1] if is_open else NONE)
        return innermost

    def _lifts(self) -> list[tuple[Numbers, Numbers]]:
        """Return for 1, 2, 4, ... levels: when all ranges up to there have ended, and the next outer range."""
        lifts = [(self._ends, np.array([*self.parent_of, NONE]))]
        while (lifts[-1][1] != NONE).any():
            ends, next_ = lifts[-1]
            lifts.append((np.maximum(ends, np.where(next_ == NONE, ends, ends[next_])), next_[next_]))
        return lifts

    def _open_at(
        self, times: Numbers, begins: Numbers, innermost: Sequence[int], lifts: Sequence[tuple[Numbers, Numbers]]
    ) -> Numbers:
        """Return the innermost open range at each time. ``begins``, ``innermost``: of the thread's ranges in order."""
        found = np.array([*innermost, NONE])[np.searchsorted(begins, times, "right") - 1]
        for ends, next_ in reversed(lifts):
            found = np.where((found != NONE) & (ends[found] <= times), next_[found], found)
        return found

    def launching(self, profile: Profile) -> Iterator[list[int]]:
        """Yield each range with launches (not of graphs) and the ranges around it."""
        launched = present(self.range_of[~profile.commands.is_replayed])
        for place in launched[launched != NONE].tolist():
            yield [place, *self.around(place)]

    def around(self, place: int) -> Iterator[int]:
        """Yield the ranges around one, the innermost first."""
        while (place := self.parent_of[place]) != NONE:
            yield place

    def nearest(self, wanted: Sequence[int] | Numbers) -> Numbers:
        """Return the value of ``wanted`` for each range, else of the nearest range around it; `NONE` at the end."""
        found, outer = np.array([*wanted, NONE], np.int64), np.array([*self.parent_of, NONE])
        while (outer != NONE).any():
            found, outer = np.where(found == NONE, found[outer], found), outer[outer]
        return found
