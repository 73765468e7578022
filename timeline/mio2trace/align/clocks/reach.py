"""Drop times that are days from the rest of a run: they are damage, and leave no room for it.

JSON holds 2^53 ns (104 days) exactly. Device and host times are each kept within twice `FAR_NS`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from mio2trace.align.links import NONE
from mio2trace.align.operations.rates import FEW
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NO, Numbers
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
    if any(device.clock == 0 for device in profile.devices) or (ranges and not profile.devices):
        begun = np.array([made.start_ns for made in ranges], np.int64)
        ended = np.array([made.end_ns for made in ranges], np.int64)
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
    stays = [place for place, made in enumerate(ranges) if _is_in(near, made.start_ns, made.end_ns)]
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
            one if one.range is None else replace(one, range=_known(int(new_place[one.range])))
            for one in profile.captured
        ),
    )


def _without(table: Any, far: NDArray[np.bool_], fields: Iterable[str]) -> Any:
    return table.changed(**{field: np.where(far, NO, getattr(table, field)) for field in fields})


def in_time_order(profile: Profile) -> Profile:
    """Sort the commands by time if their order is not at all that of their queues."""
    commands = profile.commands
    timed = np.flatnonzero(commands.start_ns != NO)
    order = timed[np.argsort(commands.queue[timed], kind="stable")]
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


def middle(times: Sequence[int]) -> int:
    """Return the median."""
    return sorted(times)[len(times) // 2]


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


def _is_in(near: _Near, *times: int) -> bool:
    return near is None or all(near[0] <= time <= near[1] for time in times)


def _known(place: int) -> int | None:
    return None if place == NONE else place
