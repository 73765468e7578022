"""Values of hardware counters of a kernel: bytes of memory and floating-point operations, if they were collected.

``FETCH_SIZE`` and ``WRITE_SIZE`` are kilobytes of 1024 bytes from and to memory (AMD's description of these counters).
AMD's rocprof-compute computes the floating-point operations of a data type as

    64 * (SQ_INSTS_VALU_ADD_<T> + MUL_<T> + TRANS_<T> + 2 * FMA_<T>) + 512 * SQ_INSTS_VALU_MFMA_MOPS_<T>

because an instruction works on 64 lanes. A type counts if all of its counters were collected, or only its MFMA counter
if it has no others. Lanes that are switched off count as work, so the number is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mio2trace.model.profile import Activity, Counter

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


def values_of(activity: Activity, counters: Sequence[Counter]) -> dict[str, float]:
    """Return the counters of a kernel that have a value, by name."""
    pairs = zip(counters, activity.counters, strict=False)
    return {counter.name: value for counter, value in pairs if value is not None}


def measured(activity: Activity, counters: Sequence[Counter]) -> Measured:
    values = values_of(activity, counters)
    sizes = {field: _whole(values[name] * 1024) for name, field in _BYTES.items() if name in values}
    start, end = activity.start_ns, activity.end_ns
    ns = None if start is None or end is None else end - start
    return Measured(**sizes, flop=_flop(values), ns=ns)


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
