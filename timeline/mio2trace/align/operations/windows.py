"""The operations that each kernel may have: by its entry's place among stamped lines, or in a shared file.

An entry is printed when its call begins, so its kernels are launched after the stamp before it and, with one thread,
before the stamp after it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple

import msgspec

from mio2trace.align.clocks.axis import HostTimes, Timeline
from mio2trace.align.clocks.fit import STAMP_NS, LogClock, resolution, stamp_of_call
from mio2trace.evidence import BOUNDARY_STAMPS, POSITION, Evidence
from mio2trace.model.log import FrameworkLog, LayerTime, LocalTime, LogEvent
from mio2trace.model.profile import Activity
from mio2trace.ops.operation import Operation

Late = Literal["", "lines", "calls"]
"""Lines that came late into the log in blocks, because their stream was buffered."""
BUFFERED: dict[Late, str] = {"lines": "the framework's lines", "calls": "MIOpen's lines"}
NEVER = 1 << 63
DISORDER = 50
"""One stamp in this number may be out of order; with more, stamps are not used."""


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel i can belong to the operations ``first[i]`` to ``last[i]`` (places; ``last[i]`` is ``first[i] - 1`` for
    none).

    Both never decrease. ``by``: the evidence."""

    first: Sequence[int]
    last: Sequence[int]
    by: Evidence | Literal[""]

    def reached(self, operations: int) -> list[bool]:
        """Return for each operation whether a kernel can belong to it."""
        begins = [0] * (operations + 1)
        for (first, last), _ in groupby(zip(self.first, self.last, strict=True)):
            if first <= last:
                begins[max(0, first)] += 1
                begins[last + 1] -= 1
        return [count > 0 for count in accumulate(begins[:-1])]


def everywhere(kernels: int, operations: int) -> Windows:
    return Windows(first=[0] * kernels, last=[operations - 1] * kernels, by="")


def by_lines(
    positions: Sequence[int], activities: Sequence[Activity], operations: Sequence[Operation], axis: Timeline
) -> Windows | None:
    """Return windows of blocks and entries in one file: a kernel's operation is the last one entered."""
    if not axis.by_line or not operations:
        return None
    begins = [operation.line for operation in operations]
    last = [bisect_right(begins, activities[position].line) - 1 for position in positions]
    # Threads print between each other: the last one entered by each of them.
    latest: dict[int | None, int] = {}
    oldest = []
    for operation in operations:
        latest[operation.thread] = bisect_left(begins, operation.line)
        oldest.append(min(latest.values()))
    return Windows(first=[oldest[at] if at >= 0 else 0 for at in last], last=last, by=POSITION)


def by_stamps(
    positions: Sequence[int],
    operations: Sequence[Operation],
    lines: Sequence[Stamped],
    calls: Sequence[Stamped],
    times: HostTimes,
    streams: int,
    *,
    host_step_ns: int = 0,
    late: Late = "",
) -> Windows | None:
    """Return windows by the stamped lines around each entry; None if there are none, or out of order.

    ``lines``: the log's. ``calls``: entries with stamps. ``host_step_ns``: step of host times. ``late``: late lines
    bound nothing in front of them, late calls are not bound from the front by lines."""
    stamped = sorted({*lines, *calls})
    wrong = sum(after.high < before.low for before, after in pairwise(stamped))
    if not stamped or wrong * DISORDER > len(stamped):
        return None
    in_front, behind = (sorted(calls) if late == word else stamped for word in ("calls", "lines"))
    lines_in_front, lines_behind_it = [one.line for one in in_front], [one.line for one in behind]
    low = [*accumulate((one.low for one in in_front), max)]
    high = [*accumulate((one.high for one in reversed(behind)), min)][::-1]
    ends = lines_behind(operations, streams)
    begin, end = [], []
    for number, operation in enumerate(operations):
        before = bisect_right(lines_in_front, operation.line) - 1
        begin.append(low[before] if before >= 0 else -NEVER)
        after = bisect_right(lines_behind_it, ends[number])
        end.append(high[after] if after < len(high) else NEVER)
    end = [*accumulate(reversed(end), min)][::-1]
    called = [times.called[position] for position in positions]
    error_ns = times.error_ns
    return Windows(
        first=array("q", [bisect_left(end, time - error_ns) for time in called]),
        last=array("q", [bisect_right(begin, time + host_step_ns) - 1 for time in called]),
        by=BOUNDARY_STAMPS,
    )


class Stamped(NamedTuple):
    """A line with its earliest and latest host time."""

    line: int
    low: int
    high: int


def stamped_lines(
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    of_lines: LogClock | None,
    of_calls: LogClock | None,
    stamp_ns: int,
) -> tuple[list[Stamped], list[Stamped]]:
    """Return the log's stamped lines and the stamped calls, each by its clock."""
    source = operations[0].source if operations else None
    records: list[LogEvent | LayerTime] = []
    for log in logs if of_lines is not None else ():
        if log.source == source:
            records += log.events
            records += log.layers
    own = [(one.line, at) for one in operations if of_calls is not None and (at := stamp_of_call(one)) is not None]
    step = stamp_ns if of_calls is of_lines else resolution((at.ns for _, at in own), STAMP_NS)
    return (
        [_stamped(record.line, record.stamp, of_lines, stamp_ns) for record in records if record.stamp and record.line],
        [_stamped(line, at, of_calls, step) for line, at in own],
    )


def _stamped(line: int, stamp: LocalTime, clock: LogClock | None, step: int) -> Stamped:
    assert clock is not None
    at, error = clock.to_host(stamp), clock.error_ns if clock.is_fitted else 0
    return Stamped(line, at - STAMP_NS - error, at + step + error)


def lines_behind(operations: Sequence[Operation], streams: int) -> list[int]:
    """Return the line after which a stamp surely follows the call: its own, or that of a later call of its stream."""
    threads = {operation.thread for operation in operations}
    if len(threads) == 1 and streams == 1:
        return [operation.line for operation in operations]
    if len(threads) == 1:
        # Another thread prints the stamps, too; where streams share operations, one of them may be in any of a few.
        # While a call of several parts runs the other threads make as many calls.
        parts = Counter(operation.line for operation in operations)
        calls = [*parts]
        later = [
            calls[place + streams * count - 1] if place + streams * count <= len(calls) else NEVER
            for place, count in enumerate(parts.values())
        ]
        line_behind = dict(zip(calls, accumulate(later, max), strict=True))
        return [line_behind[operation.line] for operation in operations]
    following: dict[int | None, int] = {}
    ends = [0] * len(operations)
    for number in range(len(operations) - 1, -1, -1):
        operation = operations[number]
        ends[number] = following.get(operation.thread, NEVER)
        following[operation.thread] = operation.line
    return ends
