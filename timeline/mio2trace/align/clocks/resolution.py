"""Find the resolution of times in the data, whatever their format can hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NO
from mio2trace.ops.operation import Operation

STAMP_NS = 1000
"""Stamps are truncated to microseconds or more: the true time is up to this much later."""
COARSEST_NS = 1_000_000_000
ENOUGH = 8
"""Fewer times may all end in zeros by chance."""


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
    lines = (line for log in logs for lines in (log.events, log.layers) for line in lines)
    return resolution((line.stamp.ns for line in lines if line.stamp is not None), STAMP_NS)


def host_resolution(profile: Profile) -> int:
    ends = profile.commands.host_end_ns
    return resolution(map(int, ends[ends != NO]), STAMP_NS)


def stamp_of_call(operation: Operation) -> LocalTime | None:
    """Return the stamp of a call; without a date the time since the log's first line."""
    if operation.stamp is not None or operation.elapsed_ns is None:
        return operation.stamp
    return LocalTime(2000, 7, 1, operation.elapsed_ns)
