"""Which of a profile's ranges lies in which, and in which range each activity was launched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mio2trace.align.links import NONE
from mio2trace.model.profile import Profile


class OpenRanges:
    """``parent_of[r]`` is the innermost range around range r on its thread, ``range_of[i]`` the innermost one that was
    open when activity i was launched (`NONE` where there is none): as the source states it, else by the time of the
    launch on its thread. ``stated[i]``: whether the source does. ``outermost_first`` are all ranges, parents first.
    """

    def __init__(self, profile: Profile) -> None:
        ranges = profile.ranges
        self.parent_of = [NONE] * len(ranges)
        self.range_of = [NONE] * len(profile.activities)
        self.stated = bytearray(len(profile.activities))
        self.outermost_first: list[int] = []
        launched: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for position, activity in enumerate(profile.activities):
            if activity.range is not None:
                self.range_of[position] = activity.range
                self.stated[position] = 1
            elif activity.call is not None and activity.call.start_ns is not None:
                launched[activity.call.thread].append((activity.call.start_ns, position))
        of_thread: dict[int, list[int]] = defaultdict(list)
        for place, made in enumerate(ranges):
            of_thread[made.thread].append(place)
        for thread, places in of_thread.items():
            # most profiles have them in this order
            spans = [(ranges[place].start_ns << 64) - ranges[place].end_ns for place in places]
            if any(map(int.__gt__, spans, spans[1:])):
                spans_of = dict(zip(places, spans, strict=True))
                places.sort(key=spans_of.__getitem__)
            self.outermost_first += places
            self._sweep(profile, places, sorted(launched.get(thread, ())))

    def _sweep(self, profile: Profile, places: Sequence[int], launches: Sequence[tuple[int, int]]) -> None:
        """One thread's ranges and launches, each in order of time."""
        ranges, parent_of, at, count = profile.ranges, self.parent_of, 0, len(places)
        is_open: list[int] = []
        for start, position in [*launches, (1 << 64, NONE)]:
            while at < count:
                place = places[at]
                made = ranges[place]
                begun = made.start_ns
                if begun > start:
                    break
                while is_open and ranges[is_open[-1]].end_ns <= begun:
                    is_open.pop()
                if is_open:
                    parent_of[place] = is_open[-1]
                if made.kind != "mark":
                    is_open.append(place)
                at += 1
            while is_open and ranges[is_open[-1]].end_ns <= start:
                is_open.pop()
            if position != NONE:
                self.range_of[position] = is_open[-1] if is_open else NONE

    def launching(self, profile: Profile) -> Iterator[list[int]]:
        """Of each range that launched something its place, then those around it; a graph's launch is none of them."""
        parent_of = self.parent_of
        met: set[int] = set()
        for place, activity in zip(self.range_of, profile.activities, strict=True):
            if place not in met and place != NONE and not activity.is_replayed:
                met.add(place)
        for place in met:
            around = []
            while place != NONE:
                around.append(place)
                place = parent_of[place]
            yield around

    def nearest(self, wanted: Sequence[int], places: Iterable[int]) -> dict[int, int]:
        """Of each of these ranges the value that ``wanted`` has for it or, where that is `NONE`, for the nearest range
        around it; of those on the way, too."""
        parent_of = self.parent_of
        found = {NONE: NONE}
        for place in places:
            path = []
            while place not in found:
                value = wanted[place]
                if value != NONE:
                    found[place] = value
                    break
                path.append(place)
                place = parent_of[place]
            if path:
                value = found[place]
                for inner in path:
                    found[inner] = value
        return found
