"""Whether the log's clock was set while the program ran: what its stamps show beside the profile's calls, or alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from mio2trace.align.clocks.axis import DISORDER_NS
from mio2trace.align.clocks.fit import LogClock
from mio2trace.align.clocks.resolution import host_resolution, stamp_resolution
from mio2trace.align.operations.rates import LINE_NS
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import Operation


def goes_back(profile: Profile, logs: Sequence[FrameworkLog], clock: LogClock) -> bool:
    """Whether a thread's line has an earlier stamp than the one that it printed before; not where the host's clock was
    set back for log and profile alike.
    """
    if _host_went_back(profile):
        return False
    for log in logs:
        records = [one for its in (log.events, log.layers) for one in its if one.line]
        latest: dict[int | None, int] = {}
        for one in sorted(records, key=lambda one: one.line):
            if one.stamp is not None:
                at = clock.to_host(one.stamp)
                if at < latest.get(one.thread, at) - LINE_NS:
                    return True
                latest[one.thread] = at
    return False


def lie_in_calls(
    profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation], clock: LogClock, host_step_ns: int
) -> bool:
    """Whether a thread printed lines, by their stamps, while it was in a call.

    Which queue's calls that thread makes is not known: it may be any in whose calls none of its stamps lies.
    """
    unix = profile.clocks[0].as_unix
    if clock.is_doubtful or unix is None or _host_went_back(profile):
        return False
    stamps: dict[int | None, set[int]] = {}
    for one in (*(one for log in logs for its in (log.events, log.layers) for one in its), *operations):
        if one.stamp is not None:
            stamps.setdefault(one.thread, set()).add(clock.to_host(one.stamp) - unix.offset_ns)
    away = LINE_NS + clock.error_ns + unix.error_ns
    after = away + max(host_step_ns, host_resolution(profile))
    before = away + stamp_resolution(logs)
    queues: dict[int, list[tuple[int, int]]] = {}
    for activity in profile.activities:
        start, end = activity.host_start_ns, activity.host_end_ns
        if start is not None and end is not None and end - start > after + before:
            queues.setdefault(activity.queue, []).append((start + after, end - before))
    silent = len({activity.queue for activity in profile.activities}) - len(queues)
    return not silent and any(
        all(_any_within(calls, its) for calls in queues.values()) for its in map(sorted, stamps.values())
    )


def _host_went_back(profile: Profile) -> bool:
    starts = [activity.host_start_ns for activity in profile.activities if activity.host_start_ns is not None]
    return any(after < before - DISORDER_NS for before, after in pairwise(starts))


def _any_within(spans: Sequence[tuple[int, int]], times: Sequence[int]) -> bool:
    """Whether any of the times, which are sorted, lies within one of the spans."""
    return any(bisect_left(times, start) < bisect_left(times, end) for start, end in spans)
