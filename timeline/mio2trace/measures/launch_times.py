"""What the launch of kernels cost: host time in the calls that launched them, and their time in the queue.

A kernel is in its queue from the return of the call that launched it until it starts: 0 if it starts before that. A
device that records when a command was queued states it itself. The kernels of a graph have one call in common and wait
for each other, so neither time is known for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mio2trace.align import NONE, Alignment
from mio2trace.measures.device_time import has_common_clock
from mio2trace.model.profile import Activity, Call


class LaunchTimes(NamedTuple):
    """Sums by number; None if the time of one of its kernels is not known."""

    api_ns: list[int | None]
    queue_ns: list[int | None]


def queue_ns(activity: Activity, *, on_one_clock: bool) -> int | None:
    """How long a kernel was in its queue; ``on_one_clock``: host and device times can be compared."""
    call, start = activity.call, activity.start_ns
    if activity.kind != "kernel" or start is None or activity.is_replayed:
        return None
    if activity.queued_ns is not None:
        return max(0, start - activity.queued_ns)
    if call is None or call.start_ns is None or call.end_ns is None or not on_one_clock or start < call.start_ns:
        return None
    return max(0, start - call.end_ns)


def queue_times(activities: Iterable[Activity], *, on_one_clock: bool) -> list[int | None]:
    """`queue_ns` of each."""
    times: list[int | None] = []
    for activity in activities:
        call, start = activity.call, activity.start_ns
        if call is not None and start is not None and on_one_clock and activity.queued_ns is None:  # as nearly all
            begun, returned = call.start_ns, call.end_ns
            is_known = activity.kind == "kernel" and begun is not None and returned is not None and start >= begun
            if not is_known or "GraphLaunch" in call.name:
                times.append(None)
            else:
                times.append(start - returned if start > returned else 0)  # type: ignore[operator]
        else:
            times.append(queue_ns(activity, on_one_clock=on_one_clock))
    return times


def launch_times(alignment: Alignment, positions: Iterable[int], number_of: Sequence[int], count: int) -> LaunchTimes:
    """Sum the launch times of the kernels at ``positions``, by their number below ``count``. A call that launched
    several kernels counts once."""
    on_one_clock = has_common_clock(alignment)
    activities = alignment.profile.activities
    made = LaunchTimes([None] * count, [None] * count)
    unknown: tuple[set[int], set[int]] = set(), set()
    before: dict[int, Call] = {}
    for position in positions:
        number, activity = number_of[position], activities[position]
        if number == NONE or activity.kind != "kernel":
            continue
        call = activity.call
        api = None
        if call is not None and not activity.is_replayed and call.start_ns is not None and call.end_ns is not None:
            api = 0 if before.get(number) is call else call.end_ns - call.start_ns
            before[number] = call
        for sums, lacking, ns in zip(made, unknown, (api, queue_ns(activity, on_one_clock=on_one_clock)), strict=True):
            if ns is None:
                lacking.add(number)
            else:
                sums[number] = (sums[number] or 0) + ns
    for sums, lacking in zip(made, unknown, strict=True):
        for number in lacking:
            sums[number] = None
    return made
