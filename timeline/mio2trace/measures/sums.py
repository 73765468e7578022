"""Sums over activities by the number of what they belong to: columns, for a run may have a million of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
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
        self.flop: dict[int, int] = {}
        self.flop_by: dict[int, str] = {}
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
        before = self.flop.get(number)
        if before is None:
            self.flop[number], self.flop_by[number] = flop, told_by
            return
        self.flop[number] = before + flop
        words = self.flop_by[number]
        if told_by not in words:
            self.flop_by[number] = f"{words}, {told_by}"

    def activities(self, number: int) -> int:
        """How many kernels and copies it has."""
        return self.kernels[number] + self.copies.get(number, 0)

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
            known_flop=self.flop.get(number, 0),
            unknown_flop=self.unknown_flop.get(number, 0),
            flop_by=self.flop_by.get(number, ""),
            unsure=self.unsure.get(number, 0),
        )


def grouped(pairs: Iterable[tuple[Key, Activity]]) -> dict[Key, Cost]:
    """Kernels, copies and their times by key, in order of first appearance."""
    numbers: dict[Key, int] = {}
    sums = Sums(0)
    for key, activity in pairs:
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(numbers)
            sums.kernels.append(0)
            sums.timed_ns.append(0)
        sums.add(number, activity)
    return {key: sums.cost(number) for key, number in numbers.items()}


def duration(activity: Activity) -> int | None:
    """How long it ran, in ns; None where that is not known."""
    if activity.start_ns is None or activity.end_ns is None:
        return None
    return activity.end_ns - activity.start_ns
