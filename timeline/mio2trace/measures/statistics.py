"""Statistics of repeated measurements, from exact integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def mean(values: Sequence[int]) -> float:
    """Return the mean, an integer if it is whole. Raises ZeroDivisionError without values."""
    return part_of(sum(values), len(values))


def part_of(whole: int, count: int) -> float:
    """Return ``whole / count``, an integer if it is whole. Raises ZeroDivisionError for a count of 0."""
    each, rest = divmod(whole, count)
    return each if not rest else whole / count


def deviation(values: Sequence[int], zeros: int = 0) -> float | None:
    """Return the standard deviation of a sample (n - 1) of ``values`` and of ``zeros`` more values that are 0, from
    exact integer sums; None for fewer than two values."""
    count = len(values) + zeros
    if count < 2:
        return None
    first = 0 if zeros else values[0]  # sums of small numbers: times since boot have 19 digits
    total = sum(value - first for value in values)
    squares = sum((value - first) ** 2 for value in values)
    return math.sqrt((count * squares - total * total) / (count * (count - 1)))


def quantile(ordered: Sequence[float], part: float) -> float:
    """Interpolate between the two values around place ``part`` of (n - 1), as numpy and pandas do by default."""
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    rest = place - below
    low = ordered[below]
    return low if not rest else low + rest * (ordered[below + 1] - low)


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two in the middle. Raises IndexError without values."""
    return quantile(sorted(values), 0.5)


def fixed(value: float, digits: int) -> str:
    """Format a number of a table: ``1,234.5``; ``<0.1`` for a number that would round to nothing."""
    text = f"{value:,.{digits}f}"
    return f"<{10**-digits:.{digits}f}" if value > 0 and float(text.replace(",", "")) == 0 else text


def percent(part: float, whole: float) -> float | None:
    """Return percent; None if the whole is 0."""
    return 100 * part / whole if whole else None
