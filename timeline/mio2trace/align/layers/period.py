"""Find the unit that a sequence repeats, by its longest periodic stretch."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence

import msgspec

ANCHORS = 256
"""Places from which repetitions are searched; a stretch longer than two gaps between them is found."""
MOST_CANDIDATES = 4096
"""Candidates per anchor; a long row of one kernel has more."""
CANDIDATES_EACH, COMPARED_EACH = 32, 1000
"""Candidates and compared elements per element of the sequence. Runs need a half and a fifth; rows of one kernel with
few others would need millions."""
_FREE_CANDIDATES, _FREE_COMPARED = 1 << 15, 1 << 20
"""Additional budget, so that short sequences are searched completely."""
_FIRST_COMPARED = 8


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """``starts``: where each complete unit of ``period`` elements begins, without overlaps; at least two."""

    period: int
    starts: tuple[int, ...]

    @property
    def covered(self) -> int:
        return self.period * len(self.starts)


def find_repetition(sequence: Sequence[Hashable]) -> Repetition | None:
    """Return the repetition that covers most of the sequence, then the shortest; None if nothing repeats.

    The longest unbroken stretch gives the unit, which is then searched everywhere. The cost is linear."""
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
    """Compares parts of a sequence within a budget."""

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
        """Return whether ``least`` equal elements around both places are possible: half of them are on one side."""
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
        """Return how many elements from two places on are equal."""
        return self._alike(self.count - other, lambda alike, step: self._are_same(place + alike, other + alike, step))

    def before(self, place: int, other: int) -> int:
        """Return how many elements up to two places are equal."""
        return self._alike(place, lambda alike, step: self._are_same(place - alike - step, other - alike - step, step))

    @staticmethod
    def _alike(limit: int, goes_on: Callable[[int, int], bool]) -> int:
        """Return how many of ``limit`` elements are equal: double the step, then halve it."""
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
    """Return (start, end, period) of the longest periodic stretch around ``anchor``. ``best``: one that is known."""
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
    """Find the unit from the left, without overlaps (Knuth, Morris, Pratt)."""
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
