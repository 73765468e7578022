"""Units of time, and what a table says of several measurements of one thing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds in each unit that a table can be printed in."""


class Unit(msgspec.Struct, frozen=True):
    """A unit of time: what column names end in, and how nanoseconds are brought to it (integers stay so in ns)."""

    name: str

    def of(self, ns: float) -> float:
        """A time in ns, in this unit."""
        return ns if self.name == "ns" else ns / UNITS[self.name]

    def column(self, name: str) -> str:
        """``p3_p2`` -> ``p3_p2_us``."""
        return f"{name}_{self.name}"


def mean(values: Sequence[int]) -> float:
    """An integer when it is one. Raises ZeroDivisionError for no value."""
    whole, rest = divmod(sum(values), len(values))
    return whole if not rest else sum(values) / len(values)


def deviation(values: Sequence[int]) -> float | None:
    """The standard deviation of a sample (n - 1), from exact integer sums; None for fewer than two values."""
    count = len(values)
    if count < 2:
        return None
    first = values[0]  # sums of small numbers: times since boot have 19 digits
    total = sum(value - first for value in values)
    squares = sum((value - first) ** 2 for value in values)
    return math.sqrt((count * squares - total * total) / (count * (count - 1)))


def quantile(ordered: Sequence[int], part: float) -> float:
    """Between the two values around place ``part`` of (n - 1), in proportion, as numpy and pandas do by default."""
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    rest = place - below
    low = ordered[below]
    return low if not rest else low + rest * (ordered[below + 1] - low)


STATISTICS = ("mean", "std", "min", "q25", "median", "q75", "max")


def describe(values: Sequence[int]) -> dict[str, float]:
    """`STATISTICS` of one value or more; ``std`` is not there for a single one."""
    if not values:
        return {}
    ordered = sorted(values)
    std = deviation(values)
    return {
        "mean": mean(values),
        **({} if std is None else {"std": std}),
        "min": ordered[0],
        "q25": quantile(ordered, 0.25),
        "median": quantile(ordered, 0.5),
        "q75": quantile(ordered, 0.75),
        "max": ordered[-1],
    }


def percent(part: float, whole: float) -> float | None:
    """None when there is no whole."""
    return 100 * part / whole if whole else None
