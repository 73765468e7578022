from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mio2trace.align.links import NONE
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NEVER, NO, Codes, Numbers, by_code, present


class OpenRanges:
    """The nesting of ranges, and the range of each launch (`NONE`: none).

    ``parent_of[r]``: the innermost range around r on its thread. ``range_of[i]``: the innermost open range when
    activity i was launched, as ``stated[i]`` by the source, else by time. ``outermost_first``: all ranges, parents
    first."""

    def __init__(self, profile: Profile) -> None:
        ranges, commands = profile.ranges, profile.commands
        self.parent_of = [NONE] * len(ranges)
        self.stated: NDArray[np.bool_] = commands.range >= 0
        self.range_of: Codes = commands.range.copy()
        self.outermost_first: list[int] = []
        self._ends = np.array([*(made.end_ns for made in ranges), NEVER], np.int64)
        of_thread: dict[int, list[int]] = defaultdict(list)
        for place, made in enumerate(ranges):
            of_thread[made.thread].append(place)
        is_asked = ~self.stated & (commands.host_start_ns != NO)
        of_last = {}
        for thread, places in of_thread.items():
            # most profiles have them in this order
            spans = [(ranges[place].start_ns << 64) - ranges[place].end_ns for place in places]
            if any(map(int.__gt__, spans, spans[1:])):
                spans_of = dict(zip(places, spans, strict=True))
                places.sort(key=spans_of.__getitem__)
            self.outermost_first += places
            of_last[thread] = self._nest(profile, places)
        rows = np.flatnonzero(is_asked)
        lifts = self._lifts() if len(rows) else []
        for thread, own in by_code(rows, commands.thread[rows]):
            if thread in of_thread:
                begins = [ranges[place].start_ns for place in of_thread[thread]]
                self.range_of[own] = self._open_at(commands.host_start_ns[own], begins, of_last[thread], lifts)

    def _nest(self, profile: Profile, places: Sequence[int]) -> list[int]:
        """Set the parents of one thread's ranges. Returns the innermost open range after each begin."""
        ranges, parent_of = profile.ranges, self.parent_of
        is_open: list[int] = []
        innermost = []
        for place in places:
            made = ranges[place]
            begun = made.start_ns
            while is_open and ranges[is_open[-1]].end_ns <= begun:
                is_open.pop()
            if is_open:
                parent_of[place] = is_open[-1]
            if made.kind != "mark":
                is_open.append(place)
            innermost.append(is_open[-1] if is_open else NONE)
        return innermost

    def _lifts(self) -> list[tuple[Numbers, Numbers]]:
        """Return for 1, 2, 4, ... levels: when all ranges up to there have ended, and the next outer range."""
        lifts = [(self._ends, np.array([*self.parent_of, NONE]))]
        while (lifts[-1][1] != NONE).any():
            ends, next_ = lifts[-1]
            lifts.append((np.maximum(ends, np.where(next_ == NONE, ends, ends[next_])), next_[next_]))
        return lifts

    def _open_at(
        self, times: Numbers, begins: Sequence[int], innermost: Sequence[int], lifts: Sequence[tuple[Numbers, Numbers]]
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
