"""Units of time, and what a table says of several measurements of one thing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mio2trace.measures.statistics import deviation, mean, quantile

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
