"""Sums over activities by the number of what they belong to: columns, for a run may have a million of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from mio2trace.measures.cost import Cost
from mio2trace.model.profile import Activity

Key = TypeVar("Key", bound=Hashable)


class Sums:
    """What few have is in mappings that lack the others."""

    def __init__(self, count: int) -> None:
        self.kernels = [0] * count
        self.timed_ns = [0] * count
        self.helpers_ns: Counter[int] = Counter()
        self.transposes_ns: Counter[int] = Counter()
        self.naive_ns: Counter[int] = Counter()
        self.untimed: Counter[int] = Counter()
        self.copies: Counter[int] = Counter()
        self.copy_timed_ns: Counter[int] = Counter()
        self.untimed_copies: Counter[int] = Counter()
        self.flop_of_operations: dict[int, int] = {}
        self.flop_of_gemms: dict[int, int] = {}
        self.unknown_flop: Counter[int] = Counter()
        self.unsure: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.kernels)

    def add(self, number: int, activity: Activity) -> None:
        """Count an activity, and its time."""
        ns = duration(activity)
        if activity.kind == "kernel":
            self.kernels[number] += 1
            self.timed_ns[number] += ns or 0
            if ns is None:
                self.untimed[number] += 1
            return
        self.copies[number] += 1
        if ns is None:
            self.untimed_copies[number] += 1
        else:
            self.copy_timed_ns[number] += ns

    def add_work(self, number: int, flop: int | None, told_by: str) -> None:
        """Add work that ``told_by`` tells; None is some of unknown size."""
        if flop is None:
            self.unknown_flop[number] += 1
            return
        column = self.flop_of_gemms if told_by == "gemm" else self.flop_of_operations
        before = column.get(number)
        column[number] = flop if before is None else before + flop  # most have one: no new number for it

    def _told_by(self, number: int) -> Iterator[str]:
        if number in self.flop_of_operations:
            yield "operation"
        if number in self.flop_of_gemms:
            yield "gemm"

    def activities(self, number: int) -> int:
        """How many kernels and copies it has."""
        return self.kernels[number] + self.copies.get(number, 0)

    def flop(self, number: int) -> int | None:
        """Its work, as `Cost.flop`."""
        if self.unknown_flop and number in self.unknown_flop:
            return None
        return self.flop_of_operations.get(number, 0) + self.flop_of_gemms.get(number, 0) or None

    def cost(self, number: int) -> Cost:
        return Cost(
            kernels=self.kernels[number],
            copies=self.copies.get(number, 0),
            timed_ns=self.timed_ns[number],
            untimed=self.untimed.get(number, 0),
            copy_timed_ns=self.copy_timed_ns.get(number, 0),
            untimed_copies=self.untimed_copies.get(number, 0),
            helpers_ns=self.helpers_ns.get(number, 0),
            transposes_ns=self.transposes_ns.get(number, 0),
            naive_ns=self.naive_ns.get(number, 0),
            known_flop=self.flop_of_operations.get(number, 0) + self.flop_of_gemms.get(number, 0),
            unknown_flop=self.unknown_flop.get(number, 0),
            flop_by=", ".join(self._told_by(number)),
            unsure=self.unsure.get(number, 0),
        )


def grouped(pairs: Iterable[tuple[Key, Activity]]) -> dict[Key, Cost]:
    """Kernels, copies and their times by key, in order of first appearance."""
    groups: dict[Key, list[int]] = {}
    for key, activity in pairs:
        group = groups.get(key)
        if group is None:
            group = groups[key] = [0] * 6
        start, end = activity.start_ns, activity.end_ns
        at = 0 if activity.kind == "kernel" else 3
        group[at] += 1
        if start is None or end is None:
            group[at + 2] += 1
        else:
            group[at + 1] += end - start
    return {
        key: Cost(
            kernels=kernels,
            timed_ns=timed_ns,
            untimed=untimed,
            copies=copies,
            copy_timed_ns=copy_timed_ns,
            untimed_copies=untimed_copies,
        )
        for key, (kernels, timed_ns, untimed, copies, copy_timed_ns, untimed_copies) in groups.items()
    }


def duration(activity: Activity) -> int | None:
    """How long it ran, in ns; None where that is not known."""
    if activity.start_ns is None or activity.end_ns is None:
        return None
    return activity.end_ns - activity.start_ns
