"""Three clocks: the device's counter, the host's UTC, the log's local time (dvdt-ck.md 1.6, 2.4; alignment.md).

The trace runs on the device's clock, so that no kernel time is ever altered: host times are brought to it.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from timeline.model.log import LocalTime
from timeline.model.profile import Enqueue, Profile
from timeline.notes import Notes

QUARTER_HOUR_NS = 15 * 60 * 1_000_000_000
DAY_NS = 24 * 3600 * 1_000_000_000
STAMP_NS = 1000
"""Host stamps are truncated to microseconds: the true time is up to this much later."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """From ``host_ns`` on, device = host - offset_ns - drift_ppb * (host - host_ns) / 1e9."""

    host_ns: int
    offset_ns: int
    drift_ppb: int = 0


class DeviceClock(msgspec.Struct, frozen=True, kw_only=True):
    """How a device's counter relates to the host: host = device + offset, with its error bound and how it was found."""

    pieces: tuple[Piece, ...]
    error_ns: int
    method: str

    @property
    def offset_ns(self) -> int:
        return self.pieces[0].offset_ns

    @property
    def drift_ppb(self) -> int:
        return self.pieces[0].drift_ppb

    def to_device(self, host_ns: int) -> int:
        """The device's time of a host time."""
        pieces = self.pieces
        piece = pieces[0]
        if len(pieces) > 1:
            position = bisect_right(pieces, host_ns, key=lambda p: p.host_ns) - 1
            piece = pieces[max(position, 0)]
        return host_ns - piece.offset_ns - piece.drift_ppb * (host_ns - piece.host_ns) // 1_000_000_000


class Bound(msgspec.Struct, frozen=True, gc=False):
    """One enqueue's bounds: host(queued) >= start and host(end) <= done (both host times, device times beside them)."""

    queued: int
    start: int
    end: int
    done: int


def device_clocks(profile: Profile, notes: Notes) -> dict[int, DeviceClock]:
    """A clock per device of ``profile``; none for a device whose enqueues lack host or device times."""
    device_of = {queue.index: queue.device for queue in profile.queues}
    bounds: dict[int, list[Bound]] = {}
    for enqueue in profile.enqueues:
        bound = _bound(enqueue)
        if bound is not None:
            bounds.setdefault(device_of.get(enqueue.queue, 0), []).append(bound)
    return {device: fit_device_clock(found, notes) for device, found in bounds.items()}


def _bound(enqueue: Enqueue) -> Bound | None:
    if enqueue.queued_ns is None or enqueue.end_ns is None:
        return None
    if enqueue.host_start_ns is None or enqueue.host_end_ns is None:
        return None
    if enqueue.host_end_ns < enqueue.host_start_ns:
        return None  # the wall clock was set back during the call
    return Bound(enqueue.queued_ns, enqueue.host_start_ns, enqueue.end_ns, enqueue.host_end_ns + STAMP_NS)


def fit_device_clock(bounds: Sequence[Bound], notes: Notes) -> DeviceClock:
    """The offset that all bounds allow; else a line between them (drift); else one offset per stretch (a step)."""
    lower = max(bound.start - bound.queued for bound in bounds)
    upper = min(bound.done - bound.end for bound in bounds)
    if lower <= upper:
        middle = (lower + upper) // 2
        return DeviceClock(
            pieces=(Piece(bounds[0].start, middle),), error_ns=(upper - lower + 1) // 2, method="intersection of bounds"
        )
    line = _line(bounds)
    if line is not None:
        piece, error = line
        notes.remark(f"device and host clock drift by {piece.drift_ppb} ppb: a line fitted inside the bounds")
        return DeviceClock(pieces=(piece,), error_ns=error, method="line inside the bounds")
    pieces, error = _windows(bounds)
    notes.add(f"host clock stepped: {len(pieces)} stretches, each with its own offset")
    return DeviceClock(pieces=pieces, error_ns=error, method="stretches")


def _line(bounds: Sequence[Bound]) -> tuple[Piece, int] | None:
    """A line host = device + offset(host) above all (queued, start) and below all (end, done), None when there is none.

    Of the lines that fit, the middle of the steepest and the flattest, as in trace synchronisation by convex hulls.
    """
    x0, y0 = bounds[0].queued, bounds[0].start
    floor = _hull([(b.queued - x0, b.start - y0 - (b.queued - x0)) for b in bounds], upper=True)
    roof = _hull([(b.end - x0, b.done - y0 - (b.end - x0)) for b in bounds], upper=False)
    # With y' = host - device, slopes are the drift itself and small.
    steepest = min(((ry - fy) / (rx - fx) for fx, fy in floor for rx, ry in roof if rx > fx), default=0.0)
    flattest = max(((ry - fy) / (rx - fx) for fx, fy in floor for rx, ry in roof if rx < fx), default=0.0)
    if flattest > steepest or not -1e-3 < (steepest + flattest) / 2 < 1e-3:
        return None
    slope = (steepest + flattest) / 2
    low = max(fy - slope * fx for fx, fy in floor)
    high = min(ry - slope * rx for rx, ry in roof)
    if low > high:
        return None
    middle = (low + high) / 2
    # Anchored at the first enqueue: host = y0 there corresponds to device = x0 (+ the residual middle).
    return Piece(y0, round(y0 - x0 + middle), round(slope * 1e9)), max(1, round((high - low) / 2))


def _hull(points: Iterable[tuple[int, int]], *, upper: bool) -> list[tuple[int, int]]:
    sign = 1 if upper else -1
    hull: list[tuple[int, int]] = []
    for x, y in sorted(points):
        while len(hull) >= 2:
            (ax, ay), (bx, by) = hull[-2], hull[-1]
            if sign * ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) < 0:
                break
            hull.pop()
        hull.append((x, y))
    return hull


def _windows(bounds: Sequence[Bound]) -> tuple[tuple[Piece, ...], int]:
    pieces: list[Piece] = []
    error = 0
    low, high, first = -(1 << 200), 1 << 200, bounds[0].start
    for bound in bounds:
        lower, upper = bound.start - bound.queued, bound.done - bound.end
        if max(low, lower) <= min(high, upper):
            low, high = max(low, lower), min(high, upper)
            continue
        pieces.append(Piece(first, (low + high) // 2))
        error = max(error, (high - low + 1) // 2)
        low, high, first = lower, max(lower, upper), bound.start
    pieces.append(Piece(first, (low + high) // 2))
    return tuple(pieces), max(error, (high - low + 1) // 2)


class LogClock(msgspec.Struct, frozen=True, kw_only=True):
    """The log's zone: UTC = local - offset_ns, a whole multiple of 15 minutes; ``near_ns`` finds a missing year.

    ``residual_ns`` is how far the landmark in the log lies after its twin in the profile.
    """

    offset_ns: int
    near_ns: int
    residual_ns: int
    method: str

    def to_host(self, stamp: LocalTime) -> int:
        """Unix time in ns of a stamp of the log."""
        return local_ns(stamp, self.near_ns + self.offset_ns) - self.offset_ns


def local_ns(stamp: LocalTime, near_ns: int) -> int:
    """Nanoseconds since 1970 of a local time, read as if UTC; a missing year is the one that comes nearest to
    ``near_ns``.
    """
    if stamp.year:
        return _epoch(stamp.year, stamp.month, stamp.day) + stamp.ns
    year = datetime.datetime.fromtimestamp(near_ns / 1e9, datetime.UTC).year
    return min(
        (_epoch(candidate, stamp.month, stamp.day) + stamp.ns for candidate in (year - 1, year, year + 1)),
        key=lambda ns: abs(ns - near_ns),
    )


def _epoch(year: int, month: int, day: int) -> int:
    try:
        return int(datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp()) * 1_000_000_000
    except ValueError:
        return 0  # 29 February in a year that has none: never the nearest


def log_clock(stamp: LocalTime, host_ns: int, method: str) -> LogClock:
    """The zone that brings the landmark ``stamp`` nearest to ``host_ns``."""
    ahead = local_ns(stamp, host_ns) - host_ns
    offset = round(ahead / QUARTER_HOUR_NS) * QUARTER_HOUR_NS
    return LogClock(offset_ns=offset, near_ns=host_ns, residual_ns=ahead - offset, method=method)
