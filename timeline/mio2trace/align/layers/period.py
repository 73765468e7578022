"""After how many kernels a run repeats itself: the longest stretch of a sequence that is one unit over and over."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

ANCHORS = 256
"""Places from which repetitions are looked for. A stretch that repeats and is longer than two of the gaps between them
is found."""
MOST_CANDIDATES = 4096
"""Of one anchor: how often its element may come again before the anchor is given up (a long row of one kernel)."""


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
    stretch tells the unit, and then the unit is looked for everywhere. Cost: linear but for `ANCHORS`.
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
    for anchor in range(0, count, step):
        if any(first <= anchor < last for first, last in known):
            continue
        around = next((one for one in stretches if one[0] <= anchor < one[1] - one[2]), None)
        found = _longest_stretch(items, anchor, places[items[anchor]], around)
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
    return Repetition(period=period, starts=tuple(_occurrences(items, items[start : start + period])))


def _longest_stretch(
    items: Sequence[int], anchor: int, places: Sequence[int], best: tuple[int, int, int] | None
) -> tuple[int, int, int] | None:
    """(start, end, period) of the longest stretch around ``anchor`` that is its first ``period`` elements repeated.

    ``best``: one of them that is known already.
    """
    count = len(items)
    tried = 0
    for place in places:
        period = place - anchor
        if period <= 0:
            continue
        if best is not None and place < best[1] and period % best[2] == 0:
            continue  # the same stretch, with several of its periods as one
        tried += 1
        if tried > MOST_CANDIDATES:
            break
        last = anchor
        while last + period < count and items[last] == items[last + period]:
            last += 1
        first = anchor
        while first and items[first - 1] == items[first - 1 + period]:
            first -= 1
        if last - first >= period and (best is None or last + period - first > best[1] - best[0]):
            best = first, last + period, period
    return best


def _occurrences(items: Sequence[int], unit: Sequence[int]) -> list[int]:
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
