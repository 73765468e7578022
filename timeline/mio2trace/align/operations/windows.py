"""The operations that each queue and kernel may have: by thread and buffers; by their entries' place among
stamped lines, or in a shared file."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

import msgspec
import numpy as np

from mio2trace.align.clocks.axis import STAMP_NS, HostTimes, LogClock, Timeline, bounded, resolution, stamp_of_call
from mio2trace.align.links import Links
from mio2trace.align.operations.rows import buffers_among
from mio2trace.evidence import BOUNDARY_STAMPS, BUFFERS, POSITION, Evidence
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NEVER, NO, Numbers
from mio2trace.ops.operation import Operation

SEARCHED_QUEUES = 8
"""Calls without a known queue are searched in the largest queues. With more queues no link would be sure."""


def of_streams(
    profile: Profile,
    streams: Mapping[tuple[int, int], Sequence[int]],
    operations: Sequence[Operation],
    without: frozenset[str],
) -> dict[tuple[int, int], list[Operation]]:
    """Return the operations that each stream may have: by thread id, buffers, thread, else in all large streams."""
    if len(streams) == 1:
        return {key: list(operations) for key in streams}
    tid_of = {thread.index: thread.tid for thread in profile.threads}
    by_tid: dict[int | None, list[tuple[int, int]]] = {}
    for key in streams:
        by_tid.setdefault(tid_of.get(key[0]), []).append(key)
    stream_of = {} if BUFFERS in without else _streams_of_buffers(profile, streams)
    owner: list[tuple[int, int] | None] = []
    votes: dict[int | None, Counter[tuple[int, int]]] = {}
    for operation in operations:
        claims = {stream_of[address] for _, address in operation.tensors if address in stream_of}
        own = claims.pop() if len(claims) == 1 else None
        owner.append(own)
        if own is not None:
            votes.setdefault(operation.thread, Counter())[own] += 1
    of_thread = {
        thread: counter.most_common(1)[0][0]
        for thread, counter in votes.items()
        if thread is not None and len(counter) == 1
    }
    fullest = _fullest(streams, streams)
    by_tid = {tid: _fullest(keys, streams) for tid, keys in by_tid.items()}
    of_each: dict[tuple[int, int], list[Operation]] = {key: [] for key in streams}
    for operation, own in zip(operations, owner, strict=True):
        if operation.thread is not None and operation.thread in by_tid:
            for key in by_tid[operation.thread]:
                of_each[key].append(operation)
            continue
        chosen = own if own is not None or operation.thread is None else of_thread.get(operation.thread)
        for each in fullest if chosen is None else [chosen]:
            of_each[each].append(operation)
    return of_each


def _streams_of_buffers(
    profile: Profile, streams: Mapping[tuple[int, int], Sequence[int]]
) -> dict[int, tuple[int, int] | None]:
    stream_of: dict[int, tuple[int, int] | None] = {}
    for key, positions in streams.items():
        for position in positions:
            for address in buffers_among(profile.activities[position].opencl.arguments):
                if stream_of.setdefault(address, key) != key:
                    stream_of[address] = None
    return stream_of


def _fullest(
    keys: Iterable[tuple[int, int]], streams: Mapping[tuple[int, int], Sequence[int]]
) -> list[tuple[int, int]]:
    most = set(sorted(keys, key=lambda key: -len(streams[key]))[:SEARCHED_QUEUES])
    return [key for key in streams if key in most]


def one_stream_each(links: Links, streams: Mapping[tuple[int, int], Sequence[int]]) -> None:
    """Doubt operations with kernels in two queues."""
    if len(streams) < 2:
        return
    keys_of: dict[int, set[tuple[int, int]]] = {}
    for key, positions in streams.items():
        for position in positions:
            keys_of.setdefault(links.operation_of[position], set()).add(key)
    links.doubt_operation(at for at, index in enumerate(links.operation_of) if len(keys_of.get(index, ())) > 1)


Late = Literal["", "lines", "calls"]
"""Lines that came late into the log in blocks, because their stream was buffered."""
BUFFERED: dict[Late, str] = {"lines": "the framework's lines", "calls": "MIOpen's lines"}
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
        first, last = np.asarray(self.first), np.asarray(self.last)
        first, last = first[first <= last], last[first <= last]
        begin, end = (np.bincount(one, minlength=operations + 1) for one in (np.maximum(first, 0), last + 1))
        reached: list[bool] = (np.cumsum(begin - end)[:-1] > 0).tolist()
        return reached


def everywhere(kernels: int, operations: int) -> Windows:
    return Windows(first=[0] * kernels, last=[operations - 1] * kernels, by="")


def by_lines(lines: Sequence[int], operations: Sequence[Operation], axis: Timeline) -> Windows | None:
    """Return windows of blocks in ``lines`` and entries of one file: a kernel's operation is the last one entered."""
    if not axis.by_line or not operations:
        return None
    begins = [operation.line for operation in operations]
    last = [bisect_right(begins, line) - 1 for line in lines]
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
    lines: Stamped,
    calls: Stamped,
    times: HostTimes,
    streams: int,
    *,
    host_step_ns: int = 0,
    late: Late = "",
) -> Windows | None:
    """Return windows by the stamped lines around each entry; None if there are none, or out of order.

    ``lines``: the log's. ``calls``: entries with stamps. ``host_step_ns``: step of host times. ``late``: late lines
    bound nothing in front of them, late calls are not bound from the front by lines."""
    stamped = _in_order(np.concatenate((lines, calls)))
    wrong = int((stamped[1:, 2] < stamped[:-1, 1]).sum())
    if not len(stamped) or wrong * DISORDER > len(stamped):
        return None
    in_front, behind = (_in_order(calls) if late == word else stamped for word in ("calls", "lines"))
    low = np.maximum.accumulate(np.append(NO, in_front[:, 1]))
    high = np.minimum.accumulate(np.append(NEVER, behind[::-1, 2]))[::-1]
    begin = low[np.searchsorted(in_front[:, 0], [operation.line for operation in operations], "right")]
    end = high[np.searchsorted(behind[:, 0], lines_behind(operations, streams), "right")]
    end = np.minimum.accumulate(end[::-1])[::-1]
    called = np.asarray(times.called)[np.asarray(positions)]
    first = np.searchsorted(end, called - times.error_ns)
    last = np.searchsorted(begin, called + host_step_ns, "right") - 1
    return Windows(first=array("q", first.tobytes()), last=array("q", last.tobytes()), by=BOUNDARY_STAMPS)


def _in_order(stamped: Stamped) -> Stamped:
    """Return each once, in order."""
    columns = stamped[np.lexsort(stamped.T[::-1])]
    is_new = np.append(True, (np.diff(columns, axis=0) != 0).any(axis=1))[: len(columns)]
    found: Stamped = columns[is_new.astype(bool)]
    return found


Stamped = Numbers
"""Rows of a line, its earliest and its latest host time."""


def stamped_lines(
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    of_lines: LogClock | None,
    of_calls: LogClock | None,
    stamp_ns: int,
) -> tuple[Stamped, Stamped]:
    """Return the log's stamped lines and the stamped calls, each by its clock."""
    source = operations[0].source if operations else None
    lines: list[Stamped] = [_NONE_STAMPED]
    for log in logs if of_lines is not None else ():
        if log.source == source and of_lines is not None:
            events = [(event.line, event.stamp) for event in log.events if event.stamp is not None and event.line]
            layers = log.times.take(log.times.has_stamp & (log.times.line != 0))
            lines.append(_stamped_events(events, of_lines, stamp_ns))
            lines.append(_stamped(layers.line, of_lines.hosts_of(layers), of_lines, stamp_ns))
    own = [(one.line, at) for one in operations if of_calls is not None and (at := stamp_of_call(one)) is not None]
    if of_calls is None or not own:
        return np.concatenate(lines), _NONE_STAMPED
    step = stamp_ns if of_calls is of_lines else resolution((at.ns for _, at in own), STAMP_NS)
    return np.concatenate(lines), _stamped_events(own, of_calls, step)


_NONE_STAMPED: Stamped = np.empty((0, 3), np.int64)


def _stamped_events(events: Sequence[tuple[int, LocalTime]], clock: LogClock, step: int) -> Stamped:
    lines = np.array([line for line, _ in events], np.int64)
    times = np.array([bounded(clock.to_host(stamp)) for _, stamp in events], np.int64)
    return _stamped(lines, times, clock, step)


def _stamped(lines: Numbers, times: Numbers, clock: LogClock, step: int) -> Stamped:
    error = clock.error_ns if clock.is_fitted else 0
    return np.stack((lines, times - STAMP_NS - error, times + step + error), axis=1)


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
    ends = []
    for operation in reversed(operations):
        ends.append(following.get(operation.thread, NEVER))
        following[operation.thread] = operation.line
    return ends[::-1]
