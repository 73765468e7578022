"""Costs, in which unknown values stay unknown; and work that hardware counters measured.

Hardware counters of a kernel have its bytes of memory and its floating-point operations, if they were collected.
``FETCH_SIZE`` and ``WRITE_SIZE`` are kilobytes of 1024 bytes from and to memory (AMD's description of these counters).
AMD's rocprof-compute computes the floating-point operations of a data type as

    64 * (SQ_INSTS_VALU_ADD_<T> + MUL_<T> + TRANS_<T> + 2 * FMA_<T>) + 512 * SQ_INSTS_VALU_MFMA_MOPS_<T>

because an instruction works on 64 lanes. A type counts if all of its counters were collected, or only its MFMA counter
if it has no others. Lanes that are switched off count as work, so the number is an upper bound.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE
from mio2trace.model.profile import Activity
from mio2trace.model.profile import Counter as HardwareCounter
from mio2trace.model.tables import Activities, Numbers, Pool, firsts, summed
from mio2trace.ops.operation import Operation


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cost of a part of a run: its kernels and copies, their times in ns, their work. A sum of costs is a cost.

    ``timed_ns``: the time of kernels with known times; ``untimed``: the number of others. ``copy_timed_ns`` and
    ``untimed_copies``: the same for copies. ``helpers_ns`` (auxiliary kernels), ``transposes_ns`` (a part of these) and
    ``naive_ns`` are parts of ``timed_ns``. ``known_flop``: the work of operations that ran, and of GEMMs outside of
    them; ``flop_by``: its sources; ``unknown_flop``: the number of operations of unknown work. ``known_bytes`` and
    ``unknown_bytes``: the same for the least traffic of operations. ``host_ns``: the time on the host, from the first
    call to the end of the last. ``unsure``: links of low confidence.
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
    unsure: int = 0

    @property
    def kernel_ns(self) -> int | None:
        """None if the time of one kernel is unknown."""
        return None if self.untimed else self.timed_ns

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
    def sure(self) -> bool:
        return not self.unsure


_SUMMED = tuple(name for name in Cost.__struct_fields__ if name not in ("flop_by", "host_ns"))


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
    )


# -- Sums over activities by the number of what they belong to ---------------------------------------------------------

Key = TypeVar("Key", bound=Hashable)


class Sums:
    """Columns of sums. Values that few parts have are in mappings without the other parts."""

    def __init__(self, numbers: NDArray[Any], count: int, commands: Activities, rows: Any = slice(None)) -> None:
        """Kernels, copies and their times, by a number below ``count``: that of each of some rows of the commands, or
        `NONE`."""
        is_kernel, has_times, ns = commands.is_kernel[rows], commands.has_times[rows], commands.time_ns[rows]
        kernels, copies = numbers[is_kernel], numbers[~is_kernel]
        self.kernels = whole(_counted(kernels, count))
        self.timed_ns = whole(_summed(kernels, ns[is_kernel], count))
        self.untimed = _few(_counted(numbers[is_kernel & ~has_times], count))
        self.copies = _few(_counted(copies, count))
        self.copy_timed_ns = _few(_summed(copies, ns[~is_kernel], count)) if self.copies else Counter()
        self.untimed_copies = _few(_counted(numbers[~is_kernel & ~has_times], count)) if self.copies else Counter()
        self.helpers_ns: Counter[int] = Counter()
        self.transposes_ns: Counter[int] = Counter()
        self.naive_ns: Counter[int] = Counter()
        self.flop_of_operations: dict[int, int] = {}
        self.flop_of_gemms: dict[int, int] = {}
        self.unknown_flop: Counter[int] = Counter()
        self.unsure: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.kernels)

    def add_parts(self, numbers: NDArray[Any], ns: Numbers, parts: Sequence[NDArray[np.bool_]]) -> None:
        """Say which of some kernels, with these times, help, are transposes, and are naive."""
        self.helpers_ns, self.transposes_ns, self.naive_ns = (
            _few(_summed(numbers[part], ns[part], len(self))) for part in parts
        )

    def add_unsure(self, numbers: NDArray[Any]) -> None:
        """Say to what the kernels and copies belong whose link has low confidence."""
        self.unsure = _few(_counted(numbers, len(self)))

    def add_work(self, number: int, flop: int | None, told_by: str) -> None:
        """Add work from the source ``told_by``; None is work of unknown size."""
        if flop is None:
            self.unknown_flop[number] += 1
            return
        column = self.flop_of_gemms if told_by == "gemm" else self.flop_of_operations
        before = column.get(number)
        # Most parts have one operation, so no new number is made.
        column[number] = flop if before is None else before + flop

    def activities(self, number: int) -> int:
        """Return the number of kernels and copies."""
        return self.kernels[number] + self.copies.get(number, 0)

    def flop(self, number: int) -> int | None:
        """Return the work, like `Cost.flop`."""
        if self.unknown_flop and number in self.unknown_flop:
            return None
        return self.flop_of_operations.get(number, 0) + self.flop_of_gemms.get(number, 0) or None

    def cost(self, *numbers: int, **more: Any) -> Cost:
        """Return the sum of what belongs to some numbers; ``more``: values that are not sums of commands."""
        if len(numbers) != 1:
            return msgspec.structs.replace(total(map(self.cost, numbers)), **more)
        (number,) = numbers
        sources = {"operation": self.flop_of_operations, "gemm": self.flop_of_gemms}
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
            flop_by=", ".join(source for source, flop_of in sources.items() if number in flop_of),
            unsure=self.unsure.get(number, 0),
            **more,
        )


def _counted(numbers: NDArray[Any], count: int) -> NDArray[Any]:
    return np.bincount(numbers[numbers != NONE], minlength=count)


def _summed(numbers: NDArray[Any], ns: Numbers, count: int) -> NDArray[Any]:
    return summed(numbers, ns, count + 1)[:count]  # the last one is of `NONE`


def whole(column: NDArray[Any]) -> array[int]:
    """Return the same numbers in a fifth of the memory of a list."""
    return array("q", column.astype(np.int64).tobytes())


def _few(sums: NDArray[Any]) -> Counter[int]:
    there = np.flatnonzero(sums)
    return Counter(dict(zip(there.tolist(), sums[there].tolist(), strict=True)))


def grouped(keys: Pool[Key], commands: Activities, chosen: NDArray[np.bool_] | None = None) -> dict[Key, Cost]:
    """Kernels, copies and their times by key, in order of first appearance; with ``chosen`` of some commands."""
    codes = keys.codes if chosen is None else np.where(chosen, keys.codes, NONE)
    sums = Sums(codes, len(keys.values), commands)
    first = firsts(codes, len(keys.values))
    numbers = [number for number in np.argsort(first, kind="stable").tolist() if first[number] != NONE]
    return {keys.values[number]: sums.cost(number) for number in numbers}


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


_BYTES = {"FETCH_SIZE": "read_bytes", "WRITE_SIZE": "write_bytes"}
_TYPES = ("F16", "F32", "F64")
_MFMA_TYPES = ("F8", "F6F4", "BF16", "XF32", *_TYPES)
_VALU = {"ADD": 64, "MUL": 64, "TRANS": 64, "FMA": 128}
_MOPS = 512
_MOST = 1 << 62


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """None: not collected. Rates use the kernel's time in this run, which counters make longer."""

    read_bytes: int | None = None
    write_bytes: int | None = None
    flop: int | None = None
    ns: int | None = None

    @property
    def bytes(self) -> int | None:
        """Traffic, if both directions were collected."""
        return None if self.read_bytes is None or self.write_bytes is None else self.read_bytes + self.write_bytes

    @property
    def gb_per_s(self) -> float | None:
        return self.bytes / self.ns if self.bytes is not None and self.ns else None

    @property
    def gflops(self) -> float | None:
        return self.flop / self.ns if self.flop is not None and self.ns else None

    @property
    def flop_per_byte(self) -> float | None:
        """The place of the kernel on the axis of a roofline."""
        return self.flop / self.bytes if self.flop is not None and self.bytes else None

    @property
    def shown(self) -> Mapping[str, int | float]:
        """Return the known values by their names in outputs."""
        values = {name: getattr(self, name) for name in MEASURED}
        return {name: value for name, value in values.items() if value is not None}


MEASURED = ("read_bytes", "write_bytes", "gb_per_s", "flop", "gflops", "flop_per_byte")


def values_of(activity: Activity, counters: Sequence[HardwareCounter]) -> dict[str, float]:
    """Return the counters of a kernel that have a value, by name."""
    pairs = zip(counters, activity.counters, strict=False)
    return {counter.name: value for counter, value in pairs if value is not None}


def measured(activity: Activity, counters: Sequence[HardwareCounter]) -> Measured:
    values = values_of(activity, counters)
    sizes = {field: _whole(values[name] * 1024) for name, field in _BYTES.items() if name in values}
    return Measured(**sizes, flop=_flop(values), ns=duration(activity))


def together(parts: Iterable[Measured]) -> Measured:
    """Return the sums over several kernels; None for a value that one of them lacks."""
    sums: dict[str, int | None] = {}
    for number, part in enumerate(parts):
        for name in Measured.__struct_fields__:
            value, before = getattr(part, name), sums.get(name) if number else 0
            sums[name] = None if value is None or before is None else before + value
    return Measured(**sums)


def _flop(values: Mapping[str, float]) -> int | None:
    """Return the operations; None if no data type has all of its counters."""
    total: float | None = None
    for kind in _MFMA_TYPES:
        valu = {f"SQ_INSTS_VALU_{word}_{kind}": lanes for word, lanes in _VALU.items()} if kind in _TYPES else {}
        mfma = f"SQ_INSTS_VALU_MFMA_MOPS_{kind}"
        if kind in _TYPES and not values.keys() >= {*valu, mfma}:
            continue
        if mfma in values:
            total = (total or 0) + _MOPS * values[mfma] + sum(values[name] * lanes for name, lanes in valu.items())
    return None if total is None else _whole(total)


def _whole(number: float) -> int | None:
    """Return a possible number; None for an impossible one, which a damaged file may state."""
    return round(number) if 0 <= number < _MOST else None


def plain(value: float) -> int | float:
    """Return a value as outputs show it: as an integer if it is whole."""
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
