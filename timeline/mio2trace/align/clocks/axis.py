"""The clocks of device, host and log (dvdt-ck.md 1.6, 2.4), and one axis for log lines and activities.

Three clocks are related: the device's counter, the host's UTC, the log's local time. The axis is host time, or lines of
a shared file.

Times that are days away from the rest of a run are corrupt and are dropped: JSON holds only 2^53 ns (104 days) exactly.
Device and host times are each kept within twice `FAR_NS`."""

from __future__ import annotations

import datetime
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from math import ceil
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from mio2trace.align.links import NONE, Links, neighbours
from mio2trace.align.rates import FEW, LANDMARK_EARLY_NS, LINE_NS, WHOLE
from mio2trace.evidence import BOUNDARY_STAMPS, Evidence
from mio2trace.model.log import FrameworkLog, LocalTime, LogEvent
from mio2trace.model.profile import Activity, Profile
from mio2trace.model.tables import NO, Activities, LayerTimes, Numbers, Pool, added, by_key, in_order_of, present
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

# -- Clocks ------------------------------------------------------------------------------------------------------------

STAMP_NS = 1000
"""Stamps are truncated to microseconds or more: the true time is up to this much later."""
COARSEST_NS = 1_000_000_000
ENOUGH = 8


def resolution(times: Iterable[int]) -> int:
    """Return the step in ns (1 s, 1 ms, ...) of which all ``times`` are multiples; `STAMP_NS` if there are few."""
    step, count = COARSEST_NS, 0
    for time in times:
        count += 1
        while step > STAMP_NS and time % step:
            step //= 1000
        if step <= STAMP_NS:
            break
    return step if count >= ENOUGH else STAMP_NS


def stamp_resolution(logs: Sequence[FrameworkLog]) -> int:
    of_events = (event.stamp.ns for log in logs for event in log.events if event.stamp is not None)
    of_layers = (map(int, log.times.clock_ns[log.times.has_stamp]) for log in logs)
    return resolution(chain(of_events, *of_layers))


def host_resolution(profile: Profile) -> int:
    ends = profile.commands.host_end_ns
    return resolution(map(int, ends[ends != NO]))


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


_Bounds = Numbers
"""Bounds of the offset (host - device) by calls, as four rows: ``start``, the lower bound at that time, ``done``, and
the upper bound at that time."""
_Fitted = tuple[Piece, int]


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
    devices = profile.devices_of_commands[rows]
    for device, own in by_key(np.flatnonzero(possible), devices[possible]):
        if device not in clocks:
            bounds = np.stack([column[own] for column in (start, lower, done, upper)])
            clocks[device] = fit_device_clock(bounds, notes)
    return clocks


def fit_device_clock(bounds: _Bounds, notes: Notes) -> DeviceClock:
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
    if (np.diff(bounds[0]) < 0).any():
        notes.add("host clock was set back: of host times that came twice the later are shown right")
    return DeviceClock(pieces=tuple(pieces), error_ns=max(error for _, error in stretches), method="stretches")


def _constant(bounds: _Bounds) -> _Fitted | None:
    low, high = int(bounds[1].max()), int(bounds[3].min())
    return None if low > high else (Piece(int(bounds[0, 0]), (low + high) // 2), (high - low + 1) // 2)


def _line(bounds: _Bounds) -> _Fitted | None:
    """Fit a line of offsets between all bounds, with the middle of the possible slopes; None if there is none."""
    origin, level = int(bounds[0, 0]), int(bounds[1, 0])
    bounds = bounds - np.array([[origin], [level], [origin], [level]])
    flattest, steepest = _extreme_slope(bounds, -1), _extreme_slope(bounds, 1)
    if flattest is None or steepest is None or flattest > steepest:
        return None
    slope = (flattest + steepest) / 2
    if steepest - flattest > abs(slope):
        slope = min(max(flattest, 0.0), steepest)  # hardly determined: the least drift that will do
    drift_ppb = round(slope * 1_000_000_000)
    start, lower, done, upper = bounds
    slope = drift_ppb / 1_000_000_000
    low, high = ceil((lower - slope * start).max()), ceil((upper - slope * done).min())
    middle, error, first, last = (low + high) // 2, abs(high - low) // 2, int(start.min()), int(done.max())
    # Of all lines the flattest is the highest one at the begin, the steepest is the highest one at the end.
    for at, of_highest, of_lowest in ((first, flattest, steepest), (last, steepest, flattest)):
        here = middle + drift_ppb * at // 1_000_000_000
        top, bottom = (upper + of_highest * (at - done)).min(), (lower + of_lowest * (at - start)).max()
        error = max(error, ceil(top - here), ceil(here - bottom))
    return Piece(origin, level + middle, drift_ppb), max(1, error)


def _extreme_slope(bounds: _Bounds, sign: int) -> float | None:
    """Return the steepest slope of a line between all bounds (``sign`` -1: the flattest); None if there is none."""
    start, lower, done, upper = bounds
    slope = sign * MAX_DRIFT
    while True:
        floor, roof = (lower - slope * start).argmax(), (upper - slope * done).argmin()
        rise, after = int(upper[roof]) - int(lower[floor]), int(done[roof]) - int(start[floor])
        if slope * after <= rise:
            return slope
        if sign * after <= 0:
            return None  # only a steeper line would be between these two
        nearer = rise / after
        if sign * (slope - nearer) <= 0:
            return slope  # but for rounding
        slope = nearer


def _stretches(bounds: _Bounds) -> list[_Bounds]:
    """Cut where the offset jumps by more than a drift explains."""
    start, lower, done, upper = bounds
    jumps = np.maximum(lower[1:] - upper[:-1], lower[:-1] - upper[1:])
    apart = np.maximum(0, (done - upper)[1:] - (start - lower)[:-1])
    return np.split(bounds, np.flatnonzero(jumps > MAX_DRIFT * apart) + 1, axis=1)


def _fit_stretch(bounds: _Bounds) -> list[_Fitted]:
    """Fit as few pieces as possible, each as long as possible: double the length, then halve it."""
    pieces: list[_Fitted] = []
    while bounds.size:
        best, held, step, growing = _fit(bounds[:, :1]), 1, 1, True
        while step:
            part = bounds[:, : held + step]
            found = _fit(part) if part.shape[1] == held + step else None
            if found is not None:
                best, held = found, held + step
            growing = growing and found is not None
            step = step * 2 if growing else step // 2
        assert best is not None  # no bound contradicts itself
        pieces.append(best)
        bounds = bounds[:, held:]
    return pieces


def _fit(bounds: _Bounds) -> _Fitted | None:
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
        """Return whether the error is too large to find the commands between two lines."""
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

    def stamped(self, log: FrameworkLog) -> tuple[Numbers, Numbers, Pool[int | None]]:
        """Return the lines of the events, then of the layers, that have a stamp; their host times; their threads."""
        events = [event for event in log.events if event.stamp is not None]
        layers = log.times.take(log.times.has_stamp)
        times = [bounded(time) for time in self.to_hosts(event.stamp for event in events)]
        lines = np.array([event.line for event in events], np.int64)
        threads = Pool.joined((Pool.of(event.thread for event in events), layers.thread))
        return np.append(lines, layers.line), np.append(np.array(times, np.int64), self.hosts_of(layers)), threads


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
    # With years of 365.2425 days, only to find the near years, within the years that a calendar has.
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


# -- Times that are far away, and the axis -----------------------------------------------------------------------------

DAY_NS = 24 * 3600 * 10**9
FAR_NS = 10 * DAY_NS
LONGEST_NS = 1 << 53
"""The longest time span of a trace."""

_DEVICE = ("queued_ns", "submit_ns", "start_ns", "end_ns")
_HOST = ("start_ns", "end_ns", "prepared_ns")
_Near = tuple[int, int] | None


def within_reach(profile: Profile, notes: Notes) -> Profile:
    """Remove times further than `FAR_NS` from the median of their clock, with notes; ranges there are dropped."""
    commands, ranges = profile.commands, profile.ranges
    tables = commands.calls, profile.lone_calls
    devices = profile.devices_of_commands
    near_of: dict[int, _Near] = {}
    called = [profile.lone_calls.start_ns, commands.host_start_ns]
    returned = [profile.lone_calls.end_ns, commands.host_end_ns]
    begun = np.array([made.start_ns for made in ranges], np.int64)
    ended = np.array([made.end_ns for made in ranges], np.int64)
    if any(device.clock == 0 for device in profile.devices) or (ranges and not profile.devices):
        near = _near([*called, begun, commands.start_ns], [*returned, ended, commands.end_ns])
        near_of = dict.fromkeys((0, *(queue.device for queue in profile.queues)), near)
    else:
        near = _near(called, returned)
        for device in {0, *(queue.device for queue in profile.queues)}:
            own = devices == device
            near_of[device] = _near([commands.queued_ns[own]], [commands.end_ns[own]])
    if near is None and not any(near_of.values()):
        return profile
    unknown = [_is_far(near, calls.start_ns, calls.end_ns) for calls in tables]
    launched, lone = (_without(calls, far, _HOST) for calls, far in zip(tables, unknown, strict=True))
    far = np.zeros(len(commands), bool)
    for device, of_device in near_of.items():
        far |= (devices == device) & _is_far(of_device, commands.queued_ns, commands.start_ns, commands.end_ns)
    stays = np.flatnonzero(~_is_far(near, begun, ended)).tolist()
    new_of = {place: number for number, place in enumerate(stays)}
    new_place = np.full(len(ranges) + 1, NONE, np.int32)
    new_place[stays] = np.arange(len(stays))
    for what, count in (
        ("command far in time from all others: left out", int(far.sum())),
        ("host time far from all others: taken as unknown", int(sum(map(np.sum, unknown)))),
        ("range far in time from all others: left out", len(ranges) - len(stays)),
    ):
        if count:
            notes.add(what, count=count)
    return replace(
        profile,
        activities=_without(commands, far, _DEVICE).changed(calls=launched, range=new_place[commands.range]),
        other_calls=lone,
        ranges=tuple(ranges[place] for place in stays),
        captured=tuple(
            one if one.range is None else replace(one, range=new_of.get(one.range)) for one in profile.captured
        ),
    )


def _without(table: Any, far: NDArray[np.bool_], fields: Iterable[str]) -> Any:
    return table.changed(**{field: np.where(far, NO, getattr(table, field)) for field in fields})


def in_time_order(profile: Profile) -> Profile:
    """Sort the commands by time if their order is not at all that of their queues."""
    commands = profile.commands
    timed = np.flatnonzero(commands.start_ns != NO)
    order = timed[in_order_of(commands.queue[timed])]
    starts, queues = commands.start_ns[order], commands.queue[order]
    back = 0
    for own in np.split(starts, np.flatnonzero(np.diff(queues)) + 1):
        back += int((own[1:] < np.maximum.accumulate(own)[:-1]).sum())
    if back <= FEW * len(timed):
        return profile
    # what has no time stays behind the one before it
    known = np.maximum.accumulate(np.where(commands.start_ns == NO, -1, np.arange(len(commands))))
    keys = np.where(known < 0, starts.min(), commands.start_ns[known])
    return replace(profile, activities=commands.take(np.argsort(keys, kind="stable")))


def _near(begun: Sequence[Numbers], ended: Sequence[Numbers]) -> _Near:
    begins, ends = (all_of[all_of != NO] for all_of in map(np.concatenate, (begun, ended)))
    if not len(begins) or not len(ends):
        return None
    if int(ends.max()) - int(begins.min()) <= 2 * FAR_NS >= int(begins.max()) - int(ends.min()):
        return None
    at = int(np.partition(begins, len(begins) // 2)[len(begins) // 2])
    return at - FAR_NS, at + FAR_NS


def _is_far(near: _Near, *times: Numbers) -> NDArray[np.bool_]:
    far = np.zeros(len(times[0]), bool)
    if near is not None:
        for column in times:
            far |= (column != NO) & ((column < near[0]) | (near[1] < column))
    return far


def stamps_bound(layers: LayerTimes) -> bool:
    """Return whether most of the printed time fits between each stamp and the stamp before."""
    times, rows = in_order(layers)
    if len(rows) < 2 or len(rows) < len(layers):
        return False
    step = resolution(map(int, times))
    printed = layers.printed_ns[rows[1:]]
    total, room = added(printed), added(printed[np.diff(times) + step >= printed * 0.95])
    return total > max(LINE_NS, step) * len(rows) and room >= 0.8 * total


def in_order(layers: LayerTimes) -> tuple[Numbers, Numbers]:
    """Return (local ns, row) of the layers with a stamp, by stamp."""
    rows = np.flatnonzero(layers.has_stamp)
    first = layers.stamp(rows[0]) if len(rows) else None
    if first is None:
        return rows, rows
    near = local_ns(first, 0) if first.year else local_ns(first, MIDDLE_OF_2000_NS)
    times = local_times(layers, near)[rows]
    order = np.argsort(times, kind="stable")
    return times[order], rows[order]


DISORDER_NS = 1_000_000
"""Activities of several threads may be recorded out of order by this much; more means a clock that was set back."""


class HostTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Host times of activities, never decreasing: when the first argument was set, the call, its end.

    ``own_ends`` never decrease per queue only. An activity in ``unknown`` has no times and follows the activity before.
    """

    begins: Sequence[int]
    called: Sequence[int]
    ends: Sequence[int]
    own_ends: Sequence[int]
    unknown: frozenset[int]
    error_ns: int = 0


def host_times(commands: Activities, notes: Notes, error_ns: int = 0) -> HostTimes | None:
    """Return None if there are no host times or if the host's clock was set back."""
    start, end = commands.host_start_ns, commands.host_end_ns
    is_known = (start != NO) & (end != NO)
    if not is_known.any():
        return None
    first = start[is_known][0]
    ends = np.maximum.accumulate(np.where(is_known, end, first))
    called = np.maximum.accumulate(np.where(is_known, start, ends))
    before = np.append(first, called[:-1])
    if (is_known & ((start < before - DISORDER_NS - error_ns) | (end < start))).any():
        notes.add("host clock was set back during the run: stamps are not used for layers")
        return None
    prepared = np.where((commands.prepared_ns == NO) | (commands.prepared_ns == 0), start, commands.prepared_ns)
    begins = np.maximum.accumulate(np.where(is_known, prepared, ends))
    unknown = np.flatnonzero(~is_known).tolist()
    if unknown:
        notes.add("enqueue without host times: placed between its neighbours", count=len(unknown))
    own_ends = np.where(end == NO, ends, end)
    for queue in present(commands.queue):
        rows = commands.queue == queue
        own_ends[rows] = np.maximum.accumulate(own_ends[rows])
    columns = {"begins": begins, "called": called, "ends": ends, "own_ends": own_ends}
    packed = {name: array("q", column.tobytes()) for name, column in columns.items()}
    return HostTimes(**packed, unknown=frozenset(unknown), error_ns=error_ns)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Places of log events, layer lines and activities on one axis: lines, or host time in ns."""

    by_line: bool
    evidence: Evidence | None
    """The evidence of links by this axis; None if the axis itself depends on links to operations."""
    event: Callable[[LogEvent], int | None]
    layers: Callable[[LayerTimes], Numbers]
    """The place of each layer line, `NO` without."""
    begins: Sequence[int]
    ends: Sequence[int]
    """Places of activities; ``ends`` never decrease within a queue."""

    def first_after(self, place: int) -> int:
        return bisect_left(self.begins, place)


def axis_of_lines(source: int, lines: Sequence[int], evidence: Evidence | None) -> Timeline:
    """Use the lines of one file as axis; ``lines`` are those of the activities."""
    return Timeline(
        by_line=True,
        evidence=evidence,
        event=lambda event: event.line if event.source == source else None,
        layers=lambda layers: np.where((layers.source == source) & (layers.line != 0), layers.line, NO),
        begins=lines,
        ends=lines,
    )


def axis_of_times(clock: LogClock, times: HostTimes) -> Timeline:
    return Timeline(
        by_line=False,
        evidence=BOUNDARY_STAMPS,
        event=lambda event: None if event.stamp is None else clock.to_host(event.stamp),
        layers=clock.hosts_of,
        begins=times.called,
        ends=times.own_ends,
    )


def position_is_order(profile: Profile, events: Sequence[LogEvent], clock: LogClock | None, notes: Notes) -> bool:
    """Return whether blocks and log lines are in order of execution (the output was line-buffered)."""
    if not profile.interleaved or not profile.activities:
        return False
    events = [event for event in events if event.source == profile.source and event.stamp is not None]
    if clock is None or not events:
        return True
    commands, times = profile.commands, np.array([*map(bounded, clock.to_hosts(event.stamp for event in events))])
    at = np.searchsorted(commands.line, [event.line for event in events])
    before, after = np.append(commands.host_end_ns, NO)[at - 1], np.append(commands.host_start_ns, NO)[at]
    is_late = (before != NO) & (before > times + DISORDER_NS)
    is_early = (after != NO) & (after < times - DISORDER_NS)
    if (is_late | is_early).sum() * 20 > len(events):
        notes.add("dv/dt blocks and log lines are not in order of execution (buffered): positions not used")
        return False
    return True


def line_axis(links: Links) -> Timeline | None:
    """Return the log's lines as axis, with activities at the lines of their operations."""
    if not links.has_operations:
        return None
    line_of = {operation.index: operation.line for operation in links.operations}
    latest = np.maximum.accumulate([line_of.get(index, 0) for index in links.operation_of])
    return axis_of_lines(links.operations[0].source, latest.tolist(), None)


def chances_between(links: Links, layer_lines: Sequence[int]) -> dict[int, float]:
    """Return how likely an activity without operation is in the layer of the activity before; 0 at both ends."""
    line_of = {operation.index: operation.line for operation in links.operations}
    lines = np.array([line_of.get(index, NONE) for index in links.operation_of], np.int64)
    chances: dict[int, float] = {}
    for _, rows in by_key(np.arange(len(lines)), links.commands.queue):
        own = np.append(lines[rows], NONE)
        last, next_ = neighbours(own[:-1] != NONE)
        before = np.append(np.maximum.accumulate(own[:-1]), NONE)[last]
        layers = np.searchsorted(layer_lines, np.maximum(before, own[next_])) - np.searchsorted(layer_lines, before)
        chance = np.where((last != NONE) & (next_ < len(rows)), WHOLE / (1 + layers), 0.0)
        waiting = own[:-1] == NONE
        chances.update(zip(rows[waiting].tolist(), chance[waiting].tolist(), strict=True))
    return chances


def sharpened(profile: Profile, notes: Notes) -> tuple[Profile, int, int]:
    """Refine host times by the devices' clocks. Returns the profile, the error and the step of host times, in ns.

    A call that waits begins before its command is queued and ends after it. Times with a step of 1 us stay."""
    step = host_resolution(profile)
    if step <= STAMP_NS:
        return profile, 0, 0
    clocks = device_clocks(profile, Notes())  # joining says all of it
    clocks = {device: clock for device, clock in clocks.items() if clock != SAME}
    notes.add(f"host times are whole multiples of {step / 1e6:g} ms: refined by the clock of the device")
    if not clocks:
        return profile, step, step
    activities: list[Activity] = []
    last = 0
    for activity, device in zip(profile.activities, profile.devices_of_commands.tolist(), strict=True):
        call, clock = activity.call, clocks.get(device)
        queued, end, begun, ended = activity.queued_ns, activity.end_ns, activity.host_start_ns, activity.host_end_ns
        if call is None or clock is None or begun is None or ended is None or queued is None or end is None:
            activities.append(activity)
            continue
        start = min(max(begun, clock.to_host(queued)), begun + step - 1)
        done = max(start, min(max(ended, clock.to_host(end)), ended + step - 1))
        prepared = None if call.prepared_ns is None else min(start, max(call.prepared_ns, last))
        last = done
        call = replace(call, start_ns=start, end_ns=done, prepared_ns=prepared)
        activities.append(replace(activity, call=call))
    error = max(clock.error_ns for clock in clocks.values())
    return replace(profile, activities=tuple(activities)), min(error, step), step
