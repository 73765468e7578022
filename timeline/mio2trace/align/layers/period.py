"""After how many kernels a run repeats itself: the longest stretch of a sequence that is one unit over and over."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence

import msgspec

ANCHORS = 256
"""Places from which repetitions are looked for. A stretch that repeats and is longer than two of the gaps between them
is found."""
MOST_CANDIDATES = 4096
"""Of one anchor: how often its element may come again before the anchor is given up (a long row of one kernel)."""
CANDIDATES_EACH, COMPARED_EACH = 32, 1000
"""Of all anchors together, for each element of the sequence: so many candidates are tried, so many elements compared.
Runs take a half of the one and a fifth of the other; rows of one kernel with a few others in them would take millions.
"""
_FREE_CANDIDATES, _FREE_COMPARED = 1 << 15, 1 << 20
"""Of a short sequence nothing is given up."""
_FIRST_COMPARED = 8


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """``starts``: where the unit of ``period`` elements begins, each time that all of it comes; at least twice.

    They do not overlap. Elements outside of them belong to no whole repetition.
    """

    period: int
    starts: tuple[int, ...]

    @property
    def covered(self) -> int:
        return self.period * len(self.starts)


def find_repetition(sequence: Sequence[Hashable]) -> Repetition | None:
    """The repetition that covers most of the sequence, the shortest period of several; None when nothing repeats.

    A set-up before it, other work after it, and strangers between two repetitions do no harm: the longest unbroken
    stretch tells the unit, and then the unit is looked for everywhere. Cost: linear, by `CANDIDATES_EACH`.
    """
    symbols: dict[Hashable, int] = {}
    items = [symbols.setdefault(item, len(symbols)) for item in sequence]
    count = len(items)
    places: dict[int, list[int]] = {}
    for position, item in enumerate(items):
        places.setdefault(item, []).append(position)
    best: tuple[int, int, int] | None = None  # (length, -period, -start)
    step = max(1, count // ANCHORS)
    known: list[tuple[int, int]] = []  # anchors in there give a stretch that is known
    stretches: list[tuple[int, int, int]] = []
    looked_at = _Compared(items)
    for anchor in range(0, count, step):
        if any(first <= anchor < last for first, last in known):
            continue
        around = next((one for one in stretches if one[0] <= anchor < one[1] - one[2]), None)
        found = _longest_stretch(looked_at, anchor, places[items[anchor]], around)
        if found is not None:
            start, end, period = found
            best = max(best or (0, 0, 0), (end - start, -period, -start))
            if found != around:
                stretches.append(found)
            if 2 * (end - start) > count:
                known.append((start, end - period))
    if best is None:
        return None
    _, period, start = best[0], -best[1], -best[2]
    return Repetition(period=period, starts=tuple(occurrences(items, items[start : start + period])))


class _Compared:
    """Which elements of a sequence are alike, as long as there is something left to be spent on it."""

    def __init__(self, items: Sequence[int]) -> None:
        self.count = len(items)
        self.candidates = CANDIDATES_EACH * self.count + _FREE_CANDIDATES
        self._elements = COMPARED_EACH * self.count + _FREE_COMPARED
        held = array("q", items)
        self._items, self._data, self._each = items, held.tobytes(), held.itemsize

    @property
    def is_spent(self) -> bool:
        return self.candidates <= 0 or self._elements <= 0

    def may_be(self, place: int, other: int, least: int) -> bool:
        """Whether so many elements in a row around two places, the second behind the first, may be the same.

        Of a row of 2 n + 1 the n behind the middle or the n before it are on one side of any element in it.
        """
        half = (least - 1) // 2
        items = self._items
        return (
            other + half < self.count
            and items[place + half] == items[other + half]
            and self._are_all_same(place, other, half)
        ) or (
            place >= half
            and items[place - half] == items[other - half]
            and self._are_all_same(place - half, other - half, half)
        )

    def after(self, place: int, other: int) -> int:
        """How many elements from two places on, the second behind the first, are the same."""
        return self._alike(self.count - other, lambda alike, step: self._are_same(place + alike, other + alike, step))

    def before(self, place: int, other: int) -> int:
        """How many elements up to two places, the second behind the first, are the same."""
        return self._alike(place, lambda alike, step: self._are_same(place - alike - step, other - alike - step, step))

    @staticmethod
    def _alike(limit: int, goes_on: Callable[[int, int], bool]) -> int:
        """How many of ``limit`` elements are the same, when ``goes_on`` tells it of so many behind so many."""
        alike, step = 0, _FIRST_COMPARED
        while alike < limit:
            step = min(step, limit - alike)
            if goes_on(alike, step):
                alike += step
                step *= 2
            else:
                limit = alike + step - (step == 1)
                step = max(1, step // 2)
        return alike

    def _are_all_same(self, place: int, other: int, count: int) -> bool:
        """`_are_same`, where few of many may be."""
        at, step = 0, _FIRST_COMPARED
        while at < count:
            step = min(step, count - at)
            if not self._are_same(place + at, other + at, step):
                return False
            at += step
            step *= 2
        return True

    def _are_same(self, place: int, other: int, count: int) -> bool:
        self._elements -= count
        each, data = self._each, self._data
        return data[place * each : (place + count) * each] == data[other * each : (other + count) * each]


def _longest_stretch(
    items: _Compared, anchor: int, places: Sequence[int], best: tuple[int, int, int] | None
) -> tuple[int, int, int] | None:
    """(start, end, period) of the longest stretch around ``anchor`` that is its first ``period`` elements repeated.

    ``best``: one of them that is known already.
    """
    tried = 0
    for place in places[bisect_right(places, anchor) :]:
        period = place - anchor
        if best is not None and place < best[1] and period % best[2] == 0:
            continue  # the same stretch, with several of its periods as one
        tried += 1
        items.candidates -= 1
        if tried > MOST_CANDIDATES or items.is_spent:
            break
        longest = 0 if best is None else best[1] - best[0]
        if not items.may_be(anchor, place, max(period, longest - period + 1)):
            continue
        last = anchor + items.after(anchor, place)
        first = anchor - items.before(anchor, place)
        if last - first >= period and last + period - first > longest:
            best = first, last + period, period
    return best


def occurrences(items: Sequence[Hashable], unit: Sequence[Hashable]) -> list[int]:
    """Where the unit comes, from the left, without overlaps (Knuth, Morris, Pratt: linear)."""
    fallback = [0] * len(unit)
    matched = 0
    for position in range(1, len(unit)):
        while matched and unit[position] != unit[matched]:
            matched = fallback[matched - 1]
        matched += unit[position] == unit[matched]
        fallback[position] = matched
    found = []
    matched = 0
    for position, item in enumerate(items):
        while matched and item != unit[matched]:
            matched = fallback[matched - 1]
        matched += item == unit[matched]
        if matched == len(unit):
            found.append(position + 1 - matched)
            matched = 0
    return found
