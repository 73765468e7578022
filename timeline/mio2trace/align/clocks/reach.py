"""What a profile's times reach over: what lies days from the rest of a run is damage, and leaves no room for it.

A reader of JSON holds 2^53 ns, 104 days, exactly. A device's times and the host's are each kept within twice `FAR_NS`:
however they are related, they stay below that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from mio2trace.align.operations.rates import FEW
from mio2trace.model.profile import Activity, Call, Profile, Range
from mio2trace.notes import Notes

DAY_NS = 24 * 3600 * 10**9
FAR_NS = 10 * DAY_NS
LONGEST_NS = 1 << 53
"""What a trace reaches over, at most."""

_DEVICE = dict.fromkeys(("queued_ns", "submit_ns", "start_ns", "end_ns"))
_HOST = dict.fromkeys(("start_ns", "end_ns", "prepared_ns"))
_QUEUED, _STARTS, _ENDS = map(attrgetter, ("queued_ns", "start_ns", "end_ns"))
_Near = tuple[int, int] | None
"""From when to when times are kept; None where that is all of them."""


def within_reach(profile: Profile, notes: Notes) -> Profile:
    """``profile`` without the times that lie further than `FAR_NS` from the middle of their clock's; they are noted.

    A command without device times is not drawn; one without host times is placed between its neighbours; ranges out of
    reach are left out. If host and device share a clock, one middle is computed from all times.
    """
    activities, ranges = profile.activities, profile.ranges
    calls = [*profile.other_calls, *(call for one in activities if (call := one.call) is not None)]
    device_of = {queue.index: queue.device for queue in profile.queues}
    near_of: dict[int, _Near] = {}
    if any(device.clock == 0 for device in profile.devices) or (ranges and not profile.devices):
        near = _near(_STARTS, [*calls, *ranges, *activities])
        near_of = dict.fromkeys((0, *device_of.values()), near)
    else:
        near = _near(_STARTS, calls)
        for device, of_device in _by_device(activities, device_of).items():
            near_of[device] = _near(_QUEUED, of_device)
    if near is None and not any(near_of.values()):
        return profile
    unknown = {id(call): replace(call, **_HOST) for call in calls if not _is_in(near, call.start_ns, call.end_ns)}
    stays = [place for place, made in enumerate(ranges) if _is_in(near, made.start_ns, made.end_ns)]
    new_place = {old: new for new, old in enumerate(stays)}
    kept: list[Activity] = []
    far = 0
    for one in activities:
        if not _is_in(near_of.get(device_of.get(one.queue, 0)), one.queued_ns, one.start_ns, one.end_ns):
            one = replace(one, **_DEVICE)
            far += 1
        if one.call is not None and id(one.call) in unknown:
            one = replace(one, call=unknown[id(one.call)])
        kept.append(one if one.range is None else replace(one, range=new_place.get(one.range)))
    for what, count in (
        ("command far in time from all others: left out", far),
        ("host time far from all others: taken as unknown", len(unknown)),
        ("range far in time from all others: left out", len(ranges) - len(stays)),
    ):
        if count:
            notes.add(what, count=count)
    return replace(
        profile,
        activities=tuple(kept),
        other_calls=tuple(unknown.get(id(call), call) for call in profile.other_calls),
        ranges=tuple(ranges[place] for place in stays),
        captured=tuple(
            one if one.range is None else replace(one, range=new_place.get(one.range)) for one in profile.captured
        ),
    )


def _by_device(activities: Sequence[Activity], device_of: Mapping[int, int]) -> Mapping[int, Sequence[Activity]]:
    devices = set(device_of.values()) or {0}
    if len(devices) == 1:
        return dict.fromkeys(devices, activities)
    groups: dict[int, list[Activity]] = {}
    for one in activities:
        groups.setdefault(device_of.get(one.queue, 0), []).append(one)
    return groups


def in_time_order(profile: Profile) -> Profile:
    """``profile`` with its rows as its queues ran them, where that is not at all their order: somebody sorted them."""
    queues: dict[int, list[int]] = {}
    for one in profile.activities:
        start = one.start_ns
        if start is not None:
            own = queues.get(one.queue)
            if own is None:
                own = queues[one.queue] = []
            own.append(start)
    timed = sum(map(len, queues.values()))
    back = sum(sum(map(int.__lt__, own[1:], accumulate(own, max))) for own in queues.values())
    if back <= FEW * timed:
        return profile
    last = min(one.start_ns for one in profile.activities if one.start_ns is not None)
    keyed: list[tuple[int, Activity]] = []
    for one in profile.activities:
        last = last if one.start_ns is None else one.start_ns
        keyed.append((last, one))
    return replace(profile, activities=tuple(one for _, one in sorted(keyed, key=lambda pair: pair[0])))


def middle(times: Sequence[int]) -> int:
    """The time of which half lie before it."""
    return sorted(times)[len(times) // 2]


def _near(begin_of: Callable[[Any], int | None], some: Sequence[Activity | Call | Range]) -> _Near:
    begun = [time for time in map(begin_of, some) if time is not None]
    ended = [time for time in map(_ENDS, some) if time is not None]
    if not begun or not ended or max(ended) - min(begun) <= 2 * FAR_NS >= max(begun) - min(ended):
        return None
    at = middle(begun)
    return at - FAR_NS, at + FAR_NS


def _is_in(near: _Near, *times: int | None) -> bool:
    return near is None or all(time is None or near[0] <= time <= near[1] for time in times)
