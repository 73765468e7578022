"""Relate three clocks: the device's counter, the host's UTC, the log's local time (dvdt-ck.md 1.6, 2.4)."""

from __future__ import annotations

import datetime
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from math import ceil

import msgspec
import numpy as np

from mio2trace.align.operations.rates import LANDMARK_EARLY_NS
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NO, LayerTimes, Numbers, by_key
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

STAMP_NS = 1000
"""Stamps are truncated to microseconds or more: the true time is up to this much later."""
COARSEST_NS = 1_000_000_000
ENOUGH = 8


def resolution(times: Iterable[int], finest_ns: int) -> int:
    """Return the step in ns (1 s, 1 ms, ...) of which all ``times`` are multiples; ``finest_ns`` if there are few."""
    step = COARSEST_NS
    count = 0
    for time in times:
        count += 1
        while step > finest_ns and time % step:
            step //= 1000
        if step <= finest_ns:
            return finest_ns
    return step if count >= ENOUGH else finest_ns


def stamp_resolution(logs: Sequence[FrameworkLog]) -> int:
    of_events = (event.stamp.ns for log in logs for event in log.events if event.stamp is not None)
    of_layers = (map(int, log.times.clock_ns[log.times.has_stamp]) for log in logs)
    return resolution(chain(of_events, *of_layers), STAMP_NS)


def host_resolution(profile: Profile) -> int:
    ends = profile.commands.host_end_ns
    return resolution(map(int, ends[ends != NO]), STAMP_NS)


def host_span(profile: Profile) -> tuple[int | None, int | None]:
    """Return the begin of the first call and the end of the last one, in Unix time; None if unknown."""
    unix, commands = profile.clocks[0].as_unix, profile.commands
    starts, ends = commands.host_start_ns, commands.host_end_ns
    first, last = starts[starts != NO][:1].tolist(), ends[ends != NO][-1:].tolist()
    if unix is None:
        return None, None
    return first[0] + unix.offset_ns if first else None, last[0] + unix.offset_ns if last else None


def stamp_of_call(operation: Operation) -> LocalTime | None:
    """Return the stamp of a call; without a date the time since the log's first line."""
    if operation.stamp is not None or operation.elapsed_ns is None:
        return operation.stamp
    return LocalTime(2000, 7, 1, operation.elapsed_ns)


MINUTE_NS = 60 * 1_000_000_000
ZONES_NS = tuple(
    sorted(
        60 * MINUTE_NS * hours + MINUTE_NS * minutes
        for hours, minutes in (
            *((hours, 0) for hours in range(-12, 15)),
            *((-10, 30), (-4, 30), (-3, 30), (3, 30), (4, 30), (5, 30), (5, 45), (6, 30), (8, 45), (9, 30), (10, 30)),
            *((12, 45), (13, 45)),
        )
    )
)
"""Offsets of local time to UTC, with -9:30, -3:30 and -2:30 (summer time)."""
MAX_DRIFT = 1e-3
"""The largest drift of a clock that counts as a clock."""
MIDDLE_OF_2000_NS = 962_000_000 * 1_000_000_000
"""Replaces an unknown year if only differences count; 2000 is a leap year, so it has every date."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """From ``host_ns`` on, device = host - offset_ns - drift_ppb * (host - host_ns) / 1e9."""

    host_ns: int
    offset_ns: int
    drift_ppb: int = 0


class DeviceClock(msgspec.Struct, frozen=True, kw_only=True):
    """A device's clock: host = device + offset. ``error_ns``: the bound of the error."""

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
        pieces = self.pieces
        piece = pieces[0]
        if len(pieces) > 1:
            position = bisect_right(pieces, host_ns, key=lambda p: p.host_ns) - 1
            piece = pieces[max(position, 0)]
        return host_ns - piece.offset_ns - piece.drift_ppb * (host_ns - piece.host_ns) // 1_000_000_000

    def to_host(self, device_ns: int) -> int:
        """Return the host's time of a device time."""
        near = device_ns
        for _ in range(2 if len(self.pieces) > 1 or self.drift_ppb else 1):
            near += device_ns - self.to_device(near)
        return near


SAME = DeviceClock(pieces=(Piece(0, 0),), error_ns=0, method="one clock")


class Bound(msgspec.Struct, frozen=True, gc=False):
    """Bounds of the offset (host - device) by one call: ``lower`` at ``start``, ``upper`` at ``done``."""

    start: int
    lower: int
    done: int
    upper: int


def device_clocks(profile: Profile, notes: Notes) -> dict[int, DeviceClock]:
    """Return a clock per device; none if activities lack host or device times, or if calls do not wait for commands."""
    clocks = {device.index: SAME for device in profile.devices if device.clock == 0}
    if len(clocks) == len(profile.devices) > 0 or not profile.calls_wait:
        return clocks
    commands = profile.commands
    queued, end, start, done = commands.queued_ns, commands.end_ns, commands.host_start_ns, commands.host_end_ns
    rows = np.flatnonzero((queued != NO) & (start != NO) & (done != NO) & (end != NO) & (end >= queued))
    queued, end, start, done = queued[rows], end[rows], start[rows], done[rows] + host_resolution(profile)
    lower, upper = start - queued, done - end
    possible = (lower <= upper) | (lower - upper <= MAX_DRIFT * (done - start))
    if not possible.all():  # garbage counters, or the wall clock was set back during the call
        count = int((~possible).sum())
        notes.add("kernel longer on the device than its call on the host: not used for the clocks", "", count)
    devices = commands.of_queue({queue.index: queue.device for queue in profile.queues}, 0)[rows]
    for device, own in by_key(np.flatnonzero(possible), devices[possible]):
        if device in clocks:
            continue
        low, high, first = int(lower[own].max()), int(upper[own].min()), int(start[own[0]])
        bounds = [Bound(first, low, first, high)]  # mostly one offset satisfies all of them
        if low > high:
            bounds = [*map(Bound, *(column[own].tolist() for column in (start, lower, done, upper)))]
        clocks[device] = fit_device_clock(bounds, notes)
    return clocks


def fit_device_clock(bounds: Sequence[Bound], notes: Notes) -> DeviceClock:
    """Return the offset within all bounds, else a line (drift), else one of these per stretch (the clock stepped)."""
    found = _constant(bounds)
    if found is not None:
        return DeviceClock(pieces=(found[0],), error_ns=found[1], method="intersection of bounds")
    found = _line(bounds)
    if found is not None:
        piece, error = found
        notes.remark(f"device and host clock drift by {piece.drift_ppb} ppb: a line fitted inside the bounds")
        return DeviceClock(pieces=(piece,), error_ns=error, method="line inside the bounds")
    stretches = [fitted for stretch in _stretches(bounds) for fitted in _fit_stretch(stretch)]
    pieces = sorted((piece for piece, _ in stretches), key=lambda piece: piece.host_ns)
    notes.add(f"host clock stepped: {len(pieces)} stretches, each with its own offset")
    if any(after.start < before.start for before, after in pairwise(bounds)):
        notes.add("host clock was set back: of host times that came twice the later are shown right")
    return DeviceClock(pieces=tuple(pieces), error_ns=max(error for _, error in stretches), method="stretches")


_Corner = tuple[int, int]
_Fitted = tuple[Piece, int]


def _constant(bounds: Sequence[Bound]) -> _Fitted | None:
    lower, upper = max([bound.lower for bound in bounds]), min([bound.upper for bound in bounds])
    if lower > upper:
        return None
    return Piece(bounds[0].start, (lower + upper) // 2), (upper - lower + 1) // 2


def _line(bounds: Sequence[Bound]) -> _Fitted | None:
    """Fit a line of offsets between all bounds, with the middle of the possible slopes; None if there is none."""
    origin, level = bounds[0].start, bounds[0].lower
    floor = _hull([(b.start - origin, b.lower - level) for b in bounds], upper=True)
    roof = _hull([(b.done - origin, b.upper - level) for b in bounds], upper=False)
    steepest = min([MAX_DRIFT, *(slope for corner in floor for slope in _touching(corner, roof, after=True))])
    flattest = max([-MAX_DRIFT, *(slope for corner in floor for slope in _touching(corner, roof, after=False))])
    if flattest > steepest:
        return None
    slope = (flattest + steepest) / 2
    if steepest - flattest > abs(slope):
        slope = min(max(flattest, 0.0), steepest)  # hardly determined: the least drift that will do
    drift_ppb = round(slope * 1_000_000_000)

    def drifted(x: int) -> int:
        return drift_ppb * x // 1_000_000_000

    low = max(fy - drifted(fx) for fx, fy in floor)
    high = min(ry - drifted(rx) for rx, ry in roof)
    middle = (low + high) // 2
    error = abs(high - low) // 2
    for x in (0, max(bound.done for bound in bounds) - origin):
        here = middle + drifted(x)
        top = max(
            min(ry + slope * (x - rx) for rx, ry in _corners(roof, slope, rising=True))
            for slope in _slopes(roof, flattest, steepest)
        )
        bottom = min(
            max(fy + slope * (x - fx) for fx, fy in _corners(floor, slope, rising=False))
            for slope in _slopes(floor, flattest, steepest)
        )
        error = max(error, ceil(top - here), ceil(here - bottom))
    return Piece(origin, level + middle, drift_ppb), max(1, error)


def _slopes(hull: Sequence[tuple[int, int]], flattest: float, steepest: float) -> list[float]:
    edges = ((by - ay) / (bx - ax) for (ax, ay), (bx, by) in pairwise(hull) if bx > ax)
    return [flattest, steepest, *(slope for slope in edges if flattest < slope < steepest)]


def _touching(corner: _Corner, roof: Sequence[_Corner], *, after: bool) -> list[float]:
    """Return slopes from a corner to corners of the convex ``roof`` after (or before) it that a line touches first."""
    x, y = corner
    if after:
        first, last = bisect_right(roof, x, key=_place), len(roof)
    else:
        first, last = 0, bisect_left(roof, x, key=_place)

    def beyond(number: int) -> bool:
        (ax, ay), (bx, by) = roof[number], roof[number + 1]
        return (by - ay) * abs(ax - x) >= (ay - y) * (bx - ax) * (1 if after else -1)

    if first == last:
        return []
    best = bisect_left(range(first, last - 1), True, key=beyond) + first
    near = roof[max(first, best - 1) : min(last, best + 2)]
    return [(ry - y) / (rx - x) for rx, ry in near]


def _corners(hull: Sequence[_Corner], slope: float, *, rising: bool) -> Sequence[_Corner]:
    """Return the corners of ``hull`` that a line of this slope may touch."""

    def steeper(number: int) -> bool:
        (ax, ay), (bx, by) = hull[number], hull[number + 1]
        return ((by - ay) >= slope * (bx - ax)) is rising

    at = bisect_left(range(len(hull) - 1), True, key=steeper)
    return hull[max(0, at - 1) : at + 2]


def _place(corner: _Corner) -> int:
    return corner[0]


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


def _stretches(bounds: Sequence[Bound]) -> list[Sequence[Bound]]:
    """Cut where the offset jumps by more than a drift explains."""
    cuts = [0]
    for number, (before, after) in enumerate(pairwise(bounds), 1):
        jump = max(after.lower - before.upper, before.lower - after.upper)
        if jump > MAX_DRIFT * max(0, (after.done - after.upper) - (before.start - before.lower)):
            cuts.append(number)
    return [bounds[first:last] for first, last in pairwise([*cuts, len(bounds)])]


def _fit_stretch(bounds: Sequence[Bound]) -> list[_Fitted]:
    """Fit as few pieces as possible, each as long as possible: double the length, then halve it."""
    pieces: list[_Fitted] = []
    first = 0
    while first < len(bounds):
        held = 1
        step = 1
        best = _fit(bounds[first : first + 1])
        assert best is not None  # no bound contradicts itself
        growing = True
        while step:
            last = first + held + step
            found = _fit(bounds[first:last]) if last <= len(bounds) else None
            if found is not None:
                best, held = found, held + step
            growing = growing and found is not None
            step = step * 2 if growing else step // 2
        pieces.append(best)
        first += held
    return pieces


def _fit(bounds: Sequence[Bound]) -> _Fitted | None:
    return _constant(bounds) or _line(bounds)


class LogClock(msgspec.Struct, frozen=True, kw_only=True):
    """The log's zone: UTC = local - offset_ns. ``near_ns`` finds a missing year.

    ``residual_ns``: how late the landmark of the log is. ``error_ns``: the error if the clocks differ by more than a
    zone. ``host_ns``: offset of the profile's host times to Unix time. ``is_fitted``: the offset comes from links, so
    it is no zone. ``is_apart``: the log was not written during the profile."""

    offset_ns: int
    near_ns: int
    residual_ns: int
    method: str
    error_ns: int = 0
    host_ns: int = 0
    is_fitted: bool = False
    is_apart: bool = False

    @property
    def is_doubtful(self) -> bool:
        """Whether the error is too large to show what ran between two lines."""
        return self.error_ns > LANDMARK_EARLY_NS

    def to_host(self, stamp: LocalTime) -> int:
        """Convert a stamp to the profile's host clock, in ns."""
        offset = self.offset_ns
        return _day(stamp.year, stamp.month, stamp.day, self.near_ns + offset) + stamp.ns - offset - self.host_ns

    def hosts_of(self, layers: LayerTimes) -> Numbers:
        """Convert the stamps of layers; `NO` without one."""
        times = local_times(layers, self.near_ns + self.offset_ns)
        return np.where(layers.has_stamp, times - self.offset_ns - self.host_ns, NO)

    def to_hosts(self, stamps: Iterable[LocalTime | None]) -> list[int]:
        return [self.to_host(stamp) for stamp in stamps if stamp is not None]


def local_ns(stamp: LocalTime, near_ns: int) -> int:
    """Return ns since 1970 of a local time as if it were UTC; a missing year becomes the one nearest to ``near_ns``."""
    return _day(stamp.year, stamp.month, stamp.day, near_ns) + stamp.ns


def local_times(layers: LayerTimes, near_ns: int) -> Numbers:
    """Return `local_ns` of the stamp of each layer."""
    days = [0 if day is None else bounded(_day(*day, near_ns)) for day in layers.day.values]
    times: Numbers = np.array(days, np.int64)[layers.day.codes] + layers.clock_ns
    return times


_EARLIEST, _LATEST = -(1 << 62), (1 << 63) - 10**17
"""From these times a zone, or the offset of a clock to Unix time, leads to no number of more than 64 bits."""


def bounded(time_ns: int) -> int:
    """Return a time that fits into a column. A time that no trace can have becomes the nearest limit."""
    return min(max(time_ns, _EARLIEST), _LATEST)


@lru_cache(maxsize=256)
def _day(year: int, month: int, day: int, near_ns: int) -> int:
    """Cached, because a log has thousands of lines per day."""
    if year:
        return _epoch(year, month, day)
    # Of a year of 365.2425 days, only to find which years are near; none is beyond what a calendar has.
    about = 1970 + min(max(near_ns // 31_556_952_000_000_000, -1969), 8029)
    noon = 12 * 3600 * 1_000_000_000
    return min(
        (_epoch(candidate, month, day) for candidate in (about - 1, about, about + 1)),
        key=lambda ns: abs(ns + noon - near_ns),
    )


def _epoch(year: int, month: int, day: int) -> int:
    try:
        return int(datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp()) * 1_000_000_000
    except ValueError:
        return 0  # 29 February in a year that has none: never the nearest


def log_clock(stamp: LocalTime, host_ns: int, method: str) -> LogClock:
    """Return the clock with the zone that brings ``stamp`` nearest to ``host_ns``."""
    ahead = local_ns(stamp, host_ns) - host_ns
    offset = nearest_zone(ahead)
    return LogClock(offset_ns=offset, near_ns=host_ns, residual_ns=ahead - offset, method=method)


def nearest_zone(ahead_ns: int) -> int:
    return min(ZONES_NS, key=lambda zone: abs(ahead_ns - zone))
