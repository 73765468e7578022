"""Costs, in which unknown values stay unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from mio2trace.model.profile import Activity
from mio2trace.ops.operation import Operation


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cost of a part of a run: its kernels and copies, their times in ns, their work. A sum of costs is a cost.

    ``timed_ns`` is what those kernels took whose times are known, ``untimed`` how many are not; ``copy_timed_ns``,
    ``untimed_copies`` alike. ``helpers_ns``, ``transposes_ns`` (of these) and ``naive_ns`` are parts of ``timed_ns``.
    ``known_flop`` is the work of operations that ran and of GEMMs outside of them; ``flop_by`` names its sources.
    ``unknown_flop`` counts those of unknown work. ``known_bytes`` and ``unknown_bytes`` are the same for the least
    traffic of operations. ``host_ns`` is the time on the host, from the first call to the end of the last; ``host_by``
    says by what it is known. ``unsure``: links of low confidence.
    """

    kernels: int = 0
    copies: int = 0
    timed_ns: int = 0
    untimed: int = 0
    copy_timed_ns: int = 0
    untimed_copies: int = 0
    helpers_ns: int = 0
    transposes_ns: int = 0
    naive_ns: int = 0
    known_flop: int = 0
    unknown_flop: int = 0
    flop_by: str = ""
    known_bytes: int = 0
    unknown_bytes: int = 0
    host_ns: int | None = None
    host_by: str = ""
    unsure: int = 0

    @property
    def kernel_ns(self) -> int | None:
        """None where the time of one kernel is not known."""
        return None if self.untimed else self.timed_ns

    @property
    def copy_ns(self) -> int | None:
        """None where the time of one copy is not known."""
        return None if self.untimed_copies else self.copy_timed_ns

    @property
    def flop(self) -> int | None:
        """None where there is no work that is told of, or some of unknown size: part of it would look slow."""
        return None if self.unknown_flop else self.known_flop or None

    @property
    def bytes(self) -> int | None:
        """Least memory traffic; None where it is not known of all operations, or there are none."""
        return None if self.unknown_bytes else self.known_bytes or None

    @property
    def gflops(self) -> float | None:
        """All of the work over the time of all kernels."""
        return None if not self.timed_ns or self.untimed or self.flop is None else self.flop / self.timed_ns

    @property
    def launch_overhead_ns(self) -> int | None:
        """Host time without work on the device; None if the calls did not wait for the device."""
        if self.host_ns is None or self.kernel_ns is None or self.copy_ns is None:
            return None
        left = self.host_ns - self.kernel_ns - self.copy_ns
        return left if left >= 0 else None

    @property
    def sure(self) -> bool:
        return not self.unsure


_SUMMED = tuple(name for name in Cost.__struct_fields__ if name not in ("flop_by", "host_ns", "host_by"))


def total(costs: Iterable[Cost]) -> Cost:
    """Their sum; ``host_ns`` is None where that of one is not known."""
    parts = list(costs)
    if len(parts) == 1:
        return parts[0]
    host = [part.host_ns for part in parts if part.host_ns is not None]
    words = dict.fromkeys(word for part in parts for word in part.flop_by.split(", ") if word)
    return Cost(
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED},
        flop_by=", ".join(words),
        host_ns=sum(host) if host and len(host) == len(parts) else None,
        host_by=", ".join(sorted({part.host_by for part in parts if part.host_by})),
    )


# -- Sums over activities by the number of what they belong to: columns, for a run may have a million of these ---------

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
        """Add work whose source is ``told_by``; None is work of unknown size."""
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


# -- Bandwidth of collectives, as NCCL's tests define it: the message over the time, and what a rank's link carries ----


class Bandwidth(NamedTuple):
    """In bytes per ns, which is 10^9 bytes per second. The time is this rank's kernel, its wait for others included."""

    message_bytes: int
    algorithm: float
    bus: float | None


def bandwidth(operation: Operation, calls: float, kernel_ns: float) -> Bandwidth | None:
    """Return the bandwidths of ``calls`` calls of a collective that took this time together; None for other
    operations."""
    problem = operation.problem
    message = None if problem is None else problem.message_bytes()
    if problem is None or message is None or kernel_ns <= 0:
        return None
    algorithm = message * calls / kernel_ns
    factor = problem.bus_factor()
    return Bandwidth(message, algorithm, None if factor is None else algorithm * factor)
