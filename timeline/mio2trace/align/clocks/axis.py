"""One axis for log lines and activities: host time, or lines of a shared file. Also: far times, and more exact ones.

Times that are days from the rest of a run are damage, and leave no room for it: JSON holds 2^53 ns (104 days) exactly.
Device and host times are each kept within twice `FAR_NS`."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from mio2trace.align.clocks.fit import (
    MIDDLE_OF_2000_NS,
    SAME,
    STAMP_NS,
    LogClock,
    device_clocks,
    host_resolution,
    local_ns,
    local_times,
    resolution,
)
from mio2trace.align.links import NONE, Links, neighbours
from mio2trace.align.operations.rates import FEW, LINE_NS, WHOLE
from mio2trace.evidence import BOUNDARY_STAMPS, POSITION, Evidence
from mio2trace.model.log import LogEvent
from mio2trace.model.profile import Activity, Profile
from mio2trace.model.tables import NO, Activities, LayerTimes, Numbers, added, by_key, in_order_of, present
from mio2trace.notes import Notes

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
    devices = commands.of_queue({queue.index: queue.device for queue in profile.queues}, 0)
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
    """Return whether most of the printed time fits between each stamp and the one before it."""
    times, rows = in_order(layers)
    if len(rows) < 2 or len(rows) < len(layers):
        return False
    step = resolution(map(int, times), STAMP_NS)
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

    ``own_ends`` never decrease per queue only. An activity in ``unknown`` has no times and follows the one before it.
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
    prepared = np.append(commands.calls.prepared_ns, NO)[commands.call]
    prepared = np.where((prepared == NO) | (prepared == 0), start, prepared)
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


def common_axis(
    profile: Profile,
    events: Sequence[LogEvent],
    clock: LogClock | None,
    times: HostTimes | None,
    without: frozenset[str],
    notes: Notes,
) -> Timeline | None:
    """Return lines if they are in order of execution, else host time if log and activities have it."""
    if POSITION not in without and _position_is_order(profile, events, clock, notes):
        return axis_of_lines(profile.source, [activity.line for activity in profile.activities], POSITION)
    if clock is None or times is None:
        return None
    to_host = clock.to_host
    return Timeline(
        by_line=False,
        evidence=BOUNDARY_STAMPS,
        event=lambda event: None if event.stamp is None else to_host(event.stamp),
        layers=clock.hosts_of,
        begins=times.called,
        ends=times.own_ends,
    )


def _position_is_order(profile: Profile, events: Sequence[LogEvent], clock: LogClock | None, notes: Notes) -> bool:
    """Return whether blocks and log lines are in order of execution (the output was line-buffered)."""
    if not profile.interleaved or not profile.activities:
        return False
    events = [event for event in events if event.source == profile.source and event.stamp is not None]
    if clock is None or not events:
        return True
    lines = [activity.line for activity in profile.activities]
    wrong = 0
    for event, time in zip(events, clock.to_hosts(event.stamp for event in events), strict=True):
        at = bisect_left(lines, event.line)
        before = profile.activities[at - 1].host_end_ns if at else None
        after = profile.activities[at].host_start_ns if at < len(lines) else None
        wrong += (before is not None and before > time + 1_000_000) or (after is not None and after < time - 1_000_000)
    if wrong * 20 > len(events):
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
    device_of = {queue.index: queue.device for queue in profile.queues}
    activities: list[Activity] = []
    last = 0
    for activity in profile.activities:
        call, clock = activity.call, clocks.get(device_of.get(activity.queue, 0))
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
