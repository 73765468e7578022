"""What something cost, with what is unknown kept unknown."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a stretch of a run: its kernels and copies, their times in ns, their work. A sum of costs is a cost.

    ``timed_ns`` is what those kernels took whose times are known, ``untimed`` how many are not; ``copy_timed_ns``,
    ``untimed_copies`` alike. ``helpers_ns``, ``transposes_ns`` (of these) and ``naive_ns`` are parts of ``timed_ns``.
    ``known_flop`` is the work of operations that ran and of GEMMs outside of any, by what ``flop_by`` names;
    ``unknown_flop`` counts those of unknown work; ``known_bytes`` and ``unknown_bytes`` alike are the least traffic of
    operations. ``host_ns`` is the time on the host, from the first call to the end of the last; ``host_by`` says by
    what it is known. ``unsure``: links in doubt.
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
        """What the host spent while nothing of it ran on the device; None where its calls did not wait for what ran."""
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
