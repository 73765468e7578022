"""Host times that are coarser than calls are long: the device's clock tells more exactly when they were made."""

from __future__ import annotations

from msgspec.structs import replace

from mio2trace.align.clocks.fit import SAME, device_clocks
from mio2trace.align.clocks.resolution import STAMP_NS, host_resolution
from mio2trace.model.profile import Activity, Call, Profile
from mio2trace.notes import Notes


def sharpened(profile: Profile, notes: Notes) -> tuple[Profile, int, int]:
    """``profile`` with host times as its devices' clocks have them, within their resolution, their error and the
    step in which they were recorded, in ns.

    A call that waits begins before its command is queued and ends after that has ended. Nothing changes where host
    times are exact to the microsecond; where devices have no times of their own the error is the resolution.
    """
    step = host_resolution(profile)
    if step <= STAMP_NS:
        return profile, 0, 0
    clocks = device_clocks(profile, Notes())  # joining says all of it
    clocks = {device: clock for device, clock in clocks.items() if clock != SAME}
    notes.add(f"host times are whole multiples of {step / 1e6:g} ms: placed within them as the device's clock tells")
    if not clocks:
        return profile, step, step
    device_of = {queue.index: queue.device for queue in profile.queues}
    activities: list[Activity] = []
    last = 0
    for activity in profile.activities:
        call, clock = activity.call, clocks.get(device_of.get(activity.queue, 0))
        queued, end = activity.queued_ns, activity.end_ns
        if (
            call is None
            or call.start_ns is None
            or call.end_ns is None
            or clock is None
            or queued is None
            or end is None
        ):
            activities.append(activity)
            continue
        start = min(max(call.start_ns, clock.to_host(queued)), call.start_ns + step - 1)
        done = max(start, min(max(call.end_ns, clock.to_host(end)), call.end_ns + step - 1))
        prepared = None if call.prepared_ns is None else min(start, max(call.prepared_ns, last))
        last = done
        activities.append(replace(activity, call=_at(call, start, done, prepared)))
    error = max(clock.error_ns for clock in clocks.values())
    return replace(profile, activities=tuple(activities)), min(error, step), step


def _at(call: Call, start: int, end: int, prepared: int | None) -> Call:
    return replace(call, start_ns=start, end_ns=end, prepared_ns=prepared)
