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

    ``timed_ns``: the time of kernels with known times; ``untimed``: the number of others. ``copy_timed_ns`` and
    ``untimed_copies``: the same for copies. ``helpers_ns`` (auxiliary kernels), ``transposes_ns`` (a part of these) and
    ``naive_ns`` are parts of ``timed_ns``. ``known_flop``: the work of operations that ran, and of GEMMs outside of
    them; ``flop_by``: its sources; ``unknown_flop``: the number of operations of unknown work. ``known_bytes`` and
    ``unknown_bytes``: the same for the least traffic of operations. ``host_ns``: the time on the host, from the first
    call to the end of the last; ``host_by``: its source. ``unsure``: links of low confidence.
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
        """None if the time of one kernel is unknown."""
        return None if self.untimed else self.timed_ns

    @property
    def copy_ns(self) -> int | None:
        """None if the time of one copy is unknown."""
        return None if self.untimed_copies else self.copy_timed_ns

    @property
    def flop(self) -> int | None:
        """None without work, or if a part of it is unknown: the rate of the known part would look slow."""
        return None if self.unknown_flop else self.known_flop or None

    @property
    def bytes(self) -> int | None:
        """Least memory traffic; None if it is unknown for an operation, or if there are no operations."""
        return None if self.unknown_bytes else self.known_bytes or None

    @property
    def gflops(self) -> float | None:
        """The whole work divided by the time of all kernels."""
        return None if not self.timed_ns or self.untimed or self.flop is None else self.flop / self.timed_ns

    @property
    def launch_overhead_ns(self) -> int | None:
        """Host time minus kernel and copy time; None if the calls did not wait for the device."""
        if self.host_ns is None or self.kernel_ns is None or self.copy_ns is None:
            return None
        left = self.host_ns - self.kernel_ns - self.copy_ns
        return left if left >= 0 else None

    @property
    def sure(self) -> bool:
        return not self.unsure


_SUMMED = tuple(name for name in Cost.__struct_fields__ if name not in ("flop_by", "host_ns", "host_by"))


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs; ``host_ns`` is None if that of one is unknown."""
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


# -- Sums over activities, in columns by the number of the part to which they belong: a run may have a million ---------

Key = TypeVar("Key", bound=Hashable)


class Sums:
    """Columns of sums. Values that few parts have are in mappings without the other parts."""

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
        """Add work from the source ``told_by``; None is work of unknown size."""
        if flop is None:
            self.unknown_flop[number] += 1
            return
        column = self.flop_of_gemms if told_by == "gemm" else self.flop_of_operations
        before = column.get(number)
        # Most parts have one operation, so no new number is made.
        column[number] = flop if before is None else before + flop

    def _told_by(self, number: int) -> Iterator[str]:
        if number in self.flop_of_operations:
            yield "operation"
        if number in self.flop_of_gemms:
            yield "gemm"

    def activities(self, number: int) -> int:
        """Return the number of kernels and copies."""
        return self.kernels[number] + self.copies.get(number, 0)

    def flop(self, number: int) -> int | None:
        """Return the work, like `Cost.flop`."""
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
    """Return the duration in ns; None if unknown."""
    if activity.start_ns is None or activity.end_ns is None:
        return None
    return activity.end_ns - activity.start_ns


# -- Bandwidth of collectives, as in NCCL's tests: the message divided by the time, and the data on a rank's link ------


class Bandwidth(NamedTuple):
    """Bytes per ns, which is 10^9 bytes per second. The time is that of this rank's kernel, which includes waiting for
    others."""

    message_bytes: int
    algorithm: float
    bus: float | None


def bandwidth(operation: Operation, calls: float, kernel_ns: float) -> Bandwidth | None:
    """Return the bandwidths of ``calls`` calls of a collective with this total time; None for other operations."""
    problem = operation.problem
    message = None if problem is None else problem.message_bytes()
    if problem is None or message is None or kernel_ns <= 0:
        return None
    algorithm = message * calls / kernel_ns
    factor = problem.bus_factor()
    return Bandwidth(message, algorithm, None if factor is None else algorithm * factor)
