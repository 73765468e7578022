"""Test whether a log's stamps match a profile: one offset relates them, whatever zero the log's clock has.

A call is launched between the stamped lines around its entry. Calls of one run allow one offset; another run is a
little slower or faster. A drift and one step of the clock are allowed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from math import inf, log

import msgspec

from mio2trace.align.clocks.fit import (
    MAX_DRIFT,
    MIDDLE_OF_2000_NS,
    STAMP_NS,
    LogClock,
    host_resolution,
    local_ns,
    resolution,
    stamp_of_call,
    stamp_resolution,
)
from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.operations.rates import FEW, LANDMARK_EARLY_NS, MOST_STRAY, OTHERWISE, TOLERANCE_NS
from mio2trace.align.operations.windows import lines_behind
from mio2trace.evidence import BOUNDARY_STAMPS, POSITION
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import Operation

FEWEST = 4
MOST_WINDOWS = 200
TRIED = 6
"""The number of narrow windows at both ends that suggest rates of the clock."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """The log's clock is ahead of the profile's by ``low`` to ``high`` ns at the profile's time ``at_ns``. What was
    called between the two lines took ``took_ns``."""

    at_ns: int
    low: float
    high: float
    took_ns: float = 0.0


class StampedLines:
    """A log's stamped lines; ``step_ns``: the resolution of stamps and host times."""

    def __init__(self, log: FrameworkLog, near_ns: int, step_ns: int, others: Sequence[tuple[int, LocalTime]]) -> None:
        stamps = {record.line: record.stamp for records in (log.events, log.layers) for record in records}
        stamps |= dict(others)
        placed = sorted(
            (line, local_ns(stamp, near_ns)) for line, stamp in stamps.items() if stamp is not None and line
        )
        self._lines = [line for line, _ in placed]
        self._times = [time for _, time in placed]
        self._step_ns = step_ns

    def between(self, after: int, before: int) -> tuple[int, int] | None:
        """Return the log's time from line ``after`` to that behind ``before``; None without stamps on both sides."""
        first, last = bisect_right(self._lines, after) - 1, bisect_right(self._lines, before)
        if first < 0 or last == len(self._lines):
            return None
        return self._times[first] - self._step_ns, self._times[last] + self._step_ns


def keeps_time(
    profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation], links: Links
) -> bool | None:
    """Return whether the stamps match the calls that are linked without stamps; None if too few or too coarse."""
    told = [_told(windows) for _, windows in _each(profile, logs, operations, links)]
    if True in told:
        return True
    return False if False in told else None


def comes_in_blocks(
    profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation], links: Links
) -> bool:
    """Return whether calls took more than twice the time between the lines around them, and `LANDMARK_EARLY_NS` more.

    No run prints so: one of the log's streams was buffered, and stamps say nothing of the calls beside them.
    """
    windows = (window for _, windows in _each(profile, logs, operations, links) for window in windows)
    return any(one.low - one.high > max(one.took_ns / 2, LANDMARK_EARLY_NS) for one in windows)


def related(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    links: Links,
    near_ns: int = MIDDLE_OF_2000_NS,
) -> dict[bool, LogClock]:
    """Return the clocks of the log's lines (False) and of stamps of calls (True), if sure links allow one offset."""
    clocks: dict[bool, LogClock] = {}
    for is_of_calls, windows in _each(profile, logs, operations, links, links.operation_unsure, near_ns):
        if is_of_calls in clocks or len(windows) < FEWEST or (exact := agreed(windows)) is None or exact[1] == inf:
            continue
        low, high = exact
        offset = int(low + high) // 2
        # A clock that goes a little wrong is off by as much as it contradicts any call.
        off = max(max(window.low - offset, offset - window.high) for window in windows)
        clocks[is_of_calls] = LogClock(
            offset_ns=offset, near_ns=near_ns - offset, residual_ns=0,
            error_ns=max(int(high - low + 1) // 2, int(off) + 1), method="calls whose kernels are sure",
            is_fitted=True,
        )  # fmt: skip
    return clocks


def agreed(windows: Sequence[Window]) -> tuple[float, float] | None:
    """Return the offsets that all windows but `MOST_STRAY` of them allow; None if there are none."""
    strays, at = _offset(windows)
    if strays > MOST_STRAY * len(windows):
        return None
    meeting = [window for window in windows if window.low <= at <= window.high]
    return max(window.low for window in meeting), min(window.high for window in meeting)


def _each(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    links: Links,
    leaving_out: Set[int] = frozenset(),
    near_ns: int = MIDDLE_OF_2000_NS,
) -> Iterator[tuple[bool, list[Window]]]:
    """Yield windows for the clock of each log's lines, and for the clock of stamps of calls (True)."""
    spans = _spans(profile, links, leaving_out)
    streams = len({activity.thread for activity in profile.activities if activity.kind == "kernel"})
    host = host_resolution(profile)
    sources = {operation.source for operation in operations} - {log.source for log in logs}
    for one in [*logs, *(FrameworkLog(source=source) for source in sources)]:
        own = [operation for operation in operations if operation.source == one.source]
        stamps = [(operation.line, at) for operation in own if (at := stamp_of_call(operation)) is not None]
        lines = StampedLines(one, near_ns, max(host, stamp_resolution([one])), ())
        yield False, [*_windows(own, spans, lines, streams)]
        if stamps:
            step = resolution((stamp.ns for _, stamp in stamps), STAMP_NS)
            bare = FrameworkLog(source=one.source)
            lines = StampedLines(bare, near_ns, max(host, step), stamps)
            yield True, [*_windows(own, spans, lines, streams)]


def _spans(profile: Profile, links: Links, leaving_out: Set[int]) -> dict[int, tuple[int, int | None]]:
    """Return when the host launched the kernels of each operation. End None: unknown.

    Without host calls, a kernel after a gap on the device began when it was launched."""
    has_calls = any(activity.host_end_ns is not None for activity in profile.activities)
    spans: dict[int, tuple[int, int | None]] = {}
    busy_until = -inf
    for position, activity in enumerate(profile.activities):
        start, end = activity.host_start_ns, activity.host_end_ns
        span: tuple[int, int | None] | None = None if start is None or end is None else (start, end)
        if not has_calls and (start := activity.start_ns) is not None:
            span = start, start - TOLERANCE_NS if start - busy_until > TOLERANCE_NS else None
        if activity.end_ns is not None:
            busy_until = max(busy_until, activity.end_ns)
        index, word = links.operation_of[position], links.operation_by[position]
        if index == NONE or span is None or word in (BOUNDARY_STAMPS, POSITION) or position in leaving_out:
            continue
        begin, last = spans.get(index, span)
        last = span[1] if last is None else last if span[1] is None else max(last, span[1])
        spans[index] = min(begin, span[0]), last
    return spans


def _windows(
    operations: Sequence[Operation], spans: dict[int, tuple[int, int | None]], lines: StampedLines, streams: int
) -> Iterator[Window]:
    """Merge the bounds of calls between the same two lines. ``streams``: the number of launching threads."""
    met: dict[tuple[int, int], Window] = {}
    for operation, behind in zip(operations, lines_behind(operations, streams), strict=True):
        span = spans.get(operation.index)
        if span is None:
            continue
        begin, end = span
        between = lines.between(operation.line, max(behind, operation.end_line))
        if between is None:
            continue
        after, before = between
        low, high = float(after - begin), inf if end is None else float(before - end)
        known = met.get(between)
        if known is not None:
            low, high = max(low, known.low), min(high, known.high)
        took = before - after - (high - low)
        met[between] = Window(begin if known is None else known.at_ns, low, high, took)
    yield from met.values()


def _told(windows: Sequence[Window]) -> bool | None:
    windows = sorted(windows, key=lambda window: window.at_ns)[:: 1 + len(windows) // MOST_WINDOWS]
    if len(windows) < FEWEST:
        return None
    rates = sorted({0.0, *_rates(windows)}, key=abs)
    possible = [rate for rate in rates if abs(rate) <= MAX_DRIFT]
    most, nats = MOST_STRAY * len(windows), min(_nats(windows), _prompt_nats(windows))
    if any(_offset(windows, rate)[0] <= most for rate in possible):
        return True if nats <= log(1 - SURE) else None
    if any(_offset(windows, rate)[0] <= most for rate in rates[len(possible) :]) and nats <= log(1 - SURE):
        return True
    strays, is_set = _with_a_step(windows)
    return None if is_set and strays <= most else False


def _offset(windows: Sequence[Window], rate: float = 0.0) -> tuple[int, float]:
    """Return how many windows the best offset misses, and this offset, if the log's clock gains ``rate``."""
    origin = windows[0].at_ns
    lows = sorted(window.low - rate * (window.at_ns - origin) for window in windows)
    highs = sorted(window.high - rate * (window.at_ns - origin) for window in windows)
    # The most windows meet at the low end of one of them.
    met, low = max((bisect_right(lows, low) - bisect_left(highs, low), low) for low in lows)
    return len(windows) - met, low


def _with_a_step(windows: Sequence[Window]) -> tuple[int, bool]:
    """Return how many windows two offsets miss at best, and whether the step is longer than the windows' time.

    Another run takes a little more or less time between two lines, never an hour."""
    best, jump = len(windows), 0.0
    for place in range(1, len(windows)):
        (before, at), (after, then) = _offset(windows[:place]), _offset(windows[place:])
        if before + after < best:
            best, jump = before + after, then - at
    return best, abs(jump) > windows[-1].at_ns - windows[0].at_ns


def _rates(windows: Sequence[Window]) -> Iterator[float]:
    """Yield the rates that the narrowest windows at both ends suggest."""
    third = len(windows) // 3
    ends = (sorted(part, key=lambda one: one.high - one.low)[:TRIED] for part in (windows[:third], windows[-third:]))
    first, last = ([one for one in end if one.high < inf] for end in ends)
    for before in first:
        for after in last:
            rate = (after.low + after.high - before.low - before.high) / 2 / max(1, after.at_ns - before.at_ns)
            if abs(rate) <= FEW:
                yield rate


def _nats(windows: Sequence[Window]) -> float:
    """Return the log-probability that stamps of another run, off by up to `OTHERWISE` of each time, fit as well."""
    closed = [window for window in windows if window.low <= window.high < inf]
    best: list[float] = []  # of the windows up to each, those that tell most and end with it
    for place, after in enumerate(closed):
        told = [0.0]
        for number, before in enumerate(closed[:place]):
            room = max(1.0, (before.high - before.low + after.high - after.low) / 2)
            width = 2 * OTHERWISE * (after.at_ns - before.at_ns)
            told.append(best[number] + (log(room / width) if width > room else 0.0))
        best.append(min(told))
    return min(best, default=0.0)


def _prompt_nats(windows: Sequence[Window]) -> float:
    """The same as a line is printed right behind what it waited for: the highest offsets that the windows allow are one
    then, for about half of the windows. Those of another run are as near to it by chance.
    """
    closed = [window for window in windows if window.high < inf]
    least = min((window.high for window in closed), default=0.0)
    nats = log(max(1, len(closed)))
    for before, after in pairwise(closed):
        width = 2 * OTHERWISE * (after.at_ns - before.at_ns)
        nats -= log((1 + (after.high <= least + TOLERANCE_NS) * width / TOLERANCE_NS) / 2)
    return nats
