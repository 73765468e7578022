"""Relate the log's clock to the host's: by what both know exactly, else by a landmark (alignment.md)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from itertools import pairwise
from math import inf
from math import log as ln

import msgspec
import numpy as np

from mio2trace.align.clocks.axis import (
    DAY_NS,
    DISORDER_NS,
    MAX_DRIFT,
    MIDDLE_OF_2000_NS,
    STAMP_NS,
    LogClock,
    bounded,
    host_resolution,
    host_span,
    in_order,
    local_ns,
    log_clock,
    nearest_zone,
    resolution,
    stamp_of_call,
    stamp_resolution,
    stamps_bound,
)
from mio2trace.align.layers.marks import Reading
from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.rates import (
    FEW,
    FIRST,
    LANDMARK_EARLY_NS,
    LANDMARK_LATE_NS,
    LINE_NS,
    MOST_STRAY,
    OTHERWISE,
    TOLERANCE_NS,
)
from mio2trace.evidence import BOUNDARY_STAMPS, POSITION
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile, UnixTime
from mio2trace.model.tables import NEVER, NO, Numbers, by_code, by_key, distinct, least, most, plain, present
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation

FEWEST = 4
MOST_WINDOWS = 200
TRIED = 6
"""The number of narrow windows at both ends that suggest rates of the clock."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """The log's clock is ahead of the profile's by ``low`` to ``high`` ns at the profile's time ``at_ns``. The
    calls between the two lines took ``took_ns``."""

    at_ns: int
    low: float
    high: float
    took_ns: float = 0.0


class StampedLines:
    """Lines and their times in the log; ``step_ns``: the resolution of stamps and host times."""

    def __init__(self, lines: Numbers, times: Numbers, step_ns: int) -> None:
        lines, times = _by_line(lines, times)
        self._lines: list[int] = lines.tolist()
        self._times: list[int] = times.tolist()
        self._step_ns = step_ns

    def between(self, after: int, before: int) -> tuple[int, int] | None:
        """Return the log's time from line ``after`` to that behind ``before``; None without stamps on both sides."""
        first, last = bisect_right(self._lines, after) - 1, bisect_right(self._lines, before)
        if first < 0 or last == len(self._lines):
            return None
        return self._times[first] - self._step_ns, self._times[last] + self._step_ns


def _by_line(lines: Numbers, times: Numbers) -> tuple[Numbers, Numbers]:
    """Return the lines that are known in order, each once, and their times."""
    order = np.argsort(lines, kind="stable")
    lines, times = lines[order], times[order]
    kept = np.append(lines[1:] != lines[:-1], True)[: len(lines)] & (lines != 0)
    return lines[kept], times[kept]


def _own_clock(near_ns: int) -> LogClock:
    """Return a clock of a log that leaves the log's times as they are, but for the year."""
    return LogClock(offset_ns=0, near_ns=near_ns, residual_ns=0, method="")


def keeps_time(profile: Profile, logs: Sequence[FrameworkLog], links: Links) -> bool | None:
    """Return whether the stamps match the calls that are linked without stamps; None if too few or too coarse."""
    told = [_told(windows) for _, windows in _each(profile, logs, links)]
    if True in told:
        return True
    return False if False in told else None


def comes_in_blocks(profile: Profile, logs: Sequence[FrameworkLog], links: Links) -> bool:
    """Return whether calls took more than twice the time between their lines, and `LANDMARK_EARLY_NS` more.

    No run prints so: one of the log's streams was buffered."""
    windows = (window for _, windows in _each(profile, logs, links) for window in windows)
    return any(one.low - one.high > max(one.took_ns / 2, LANDMARK_EARLY_NS) for one in windows)


def related(profile: Profile, logs: Sequence[FrameworkLog], links: Links, near_ns: int) -> dict[bool, LogClock]:
    """Return the clocks of the log's lines (False) and of stamps of calls (True), if sure links allow one offset."""
    clocks: dict[bool, LogClock] = {}
    for is_of_calls, windows in _each(profile, logs, links, links.operation_unsure, near_ns):
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
    links: Links,
    leaving_out: Set[int] = frozenset(),
    near_ns: int = MIDDLE_OF_2000_NS,
) -> Iterator[tuple[bool, list[Window]]]:
    """Yield windows for the clock of each log's lines, and for the clock of stamps of calls (True)."""
    spans = _spans(profile, links, leaving_out)
    streams = len(np.unique(profile.commands.thread[profile.commands.is_kernel]))
    host, own_clock = host_resolution(profile), _own_clock(near_ns)
    operations = links.operations
    sources = {operation.source for operation in operations} - {log.source for log in logs}
    for one in [*logs, *(FrameworkLog(source=source) for source in sources)]:
        own = [operation for operation in operations if operation.source == one.source]
        stamps = [(operation.line, at) for operation in own if (at := stamp_of_call(operation)) is not None]
        printed, times, _ = own_clock.stamped(one)
        lines = StampedLines(printed, times, max(host, stamp_resolution([one])))
        yield False, [*_windows(own, spans, lines, streams)]
        if stamps:
            step = resolution(stamp.ns for _, stamp in stamps)
            entered = np.array([(line, bounded(local_ns(stamp, near_ns))) for line, stamp in stamps], np.int64)
            lines = StampedLines(entered[:, 0], entered[:, 1], max(host, step))
            yield True, [*_windows(own, spans, lines, streams)]


def _spans(profile: Profile, links: Links, leaving_out: Set[int]) -> dict[int, tuple[int, int | None]]:
    """Return when the host launched the kernels of each operation. End None: unknown.

    Without host calls, a kernel after a gap on the device began when it was launched."""
    commands = profile.commands
    begins, ends = commands.host_start_ns, commands.host_end_ns
    is_told = (begins != NO) & (ends != NO)
    if not (ends != NO).any():
        begins = commands.start_ns
        is_told, busy_until = begins != NO, np.append(NO, np.maximum.accumulate(commands.end_ns))[:-1]
        waited = (busy_until == NO) | (begins - busy_until > TOLERANCE_NS)
        ends = np.where(waited, begins - TOLERANCE_NS, NO)
    is_told[list(leaving_out)] = False
    indices = np.asarray(links.operation_of)
    by = links.operation_by.pool.where(lambda word: word in (BOUNDARY_STAMPS, POSITION))
    rows = np.flatnonzero(is_told & (indices != NONE) & ~by)
    first, place_of = distinct(indices[rows])
    last = plain(most(place_of, ends[rows], len(first)))
    earliest = least(place_of, begins[rows], len(first)).tolist()
    return dict(zip(indices[rows[first]].tolist(), zip(earliest, last, strict=True), strict=True))


def _windows(
    operations: Sequence[Operation], spans: dict[int, tuple[int, int | None]], lines: StampedLines, streams: int
) -> Iterator[Window]:
    """Merge the bounds of calls between the same two lines. ``streams``: the number of launching threads."""
    from mio2trace.align.operations.lattice import lines_behind

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
        return True if nats <= ln(1 - SURE) else None
    if any(_offset(windows, rate)[0] <= most for rate in rates[len(possible) :]) and nats <= ln(1 - SURE):
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
            told.append(best[number] + (ln(room / width) if width > room else 0.0))
        best.append(min(told))
    return min(best, default=0.0)


def _prompt_nats(windows: Sequence[Window]) -> float:
    """The same as a line is printed right behind what it waited for: the highest offsets that the windows allow are one
    then, for about half of the windows. Those of another run are as near to it by chance."""
    closed = [window for window in windows if window.high < inf]
    least = min((window.high for window in closed), default=0.0)
    nats = ln(max(1, len(closed)))
    for before, after in pairwise(closed):
        width = 2 * OTHERWISE * (after.at_ns - before.at_ns)
        nats -= ln((1 + (after.high <= least + TOLERANCE_NS) * width / TOLERANCE_NS) / 2)
    return nats


_SET_UP = frozenset(("setting up",))
_WAS_SET = "the log's clock was set while the program ran: the order of lines is used"
ROUGH_LATE_NS = 8 * 60 * 1_000_000_000
"""How late the last line of a log may be after the last enqueue, if it is the only landmark."""


def relate_clocks(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    marked: Reading | None,
    notes: Notes,
    *,
    operations: Sequence[Operation] = (),
    same_run: bool = False,
    host_step_ns: int = 0,
) -> LogClock | None:
    """Relate the log's clock to the host's; None if nothing relates them or if the stamps contradict the profile.

    ``same_run``: buffers show one run. ``host_step_ns``: the resolution of host times. Raises `InputError` for two
    runs."""
    unix = profile.clocks[0].as_unix
    if unix is None:
        return None  # a clock that counts from the boot tells no date: nothing relates a log's stamps to it
    run = _Run(profile, unix, logs, operations, marked, host_step_ns)
    clock = _relate(run, notes, same_run=same_run)
    if clock is not None and _lie_in_calls(run, clock):
        notes.add(_WAS_SET)
        return None
    if clock is None or unix == UnixTime():
        return clock
    return msgspec.structs.replace(clock, host_ns=unix.offset_ns, error_ns=clock.error_ns + unix.error_ns)


class _Run(msgspec.Struct, eq=False, dict=True):
    """A profile with Unix time, and what may relate a log's stamps to it.

    ``first_ns``, ``last_ns``: begin of its first call and end of its last one."""

    profile: Profile
    unix: UnixTime
    logs: Sequence[FrameworkLog]
    operations: Sequence[Operation]
    marked: Reading | None
    host_step_ns: int

    def __post_init__(self) -> None:
        self.first_ns, self.last_ns = host_span(self.profile)

    @cached_property
    def went_back(self) -> bool:
        starts = self.profile.commands.host_start_ns
        return bool((np.diff(starts[starts != NO]) < -DISORDER_NS).any())

    def ends_ns(self) -> list[int]:
        """The end of the last call of each large queue: the log's lines may be of one thread only."""
        from mio2trace.align.operations.lattice import SEARCHED_QUEUES

        commands = self.profile.commands
        of_queues = [commands.host_end_ns[rows] for _, rows in by_key(np.arange(len(commands)), commands.queue)]
        of_queues.sort(key=len, reverse=True)
        last = [ends[ends != NO][-1:].tolist() for ends in of_queues[:SEARCHED_QUEUES]]
        return [end + self.unix.offset_ns for ends in last for end in ends]


def _relate(run: _Run, notes: Notes, *, same_run: bool) -> LogClock | None:
    landmark = _landmark(run, notes)
    if landmark is None:
        return None
    (clock, late), marked = landmark, run.marked
    step = max(stamp_resolution(run.logs), host_resolution(run.profile), run.host_step_ns)
    early = LANDMARK_EARLY_NS + (step if step > STAMP_NS else 0) + run.unix.error_ns
    if _goes_back(run, clock) or _was_set(run, clock):
        notes.add(_WAS_SET)
        return None
    for log in run.logs:
        if marked is None:
            break
        lines, times, _ = _own_clock(clock.near_ns).stamped(log)
        bounds = [*_by_marks(log, marked, StampedLines(lines, times, step), run.unix)]
        exact = agreed(bounds) if bounds else None
        # nearly a plain zone, as of any run of the program
        if exact is not None and (
            marked.same_run or all(abs(end - nearest_zone(int(end))) <= LANDMARK_LATE_NS for end in exact)
        ):
            bounded = _bounded(int(exact[0]), int(exact[1]), clock, notes)
            if marked.same_run or bounded.method == clock.method:
                return bounded
            clock = msgspec.structs.replace(bounded, error_ns=abs(bounded.residual_ns))
    if same_run:
        # Both are of one run, even if the landmark is late or early. The links decide the rest.
        is_near = -early <= clock.residual_ns <= LANDMARK_EARLY_NS
        if is_near or _cut_off(run, clock, early, Notes()) is not None:
            return clock
        return msgspec.structs.replace(clock, error_ns=abs(clock.residual_ns))
    if clock.error_ns:
        # Marks would go with any run of the program whose clock is off by as much.
        notes.add("the clock may be wrong, or the log is of another run: links have low confidence")
        return clock
    cut_off = _cut_off(run, clock, early, notes)
    if cut_off is not None:
        return cut_off
    is_far = not -LANDMARK_LATE_NS <= clock.residual_ns <= late
    if is_far and run.profile.clocks[0].kind != "unix":
        # Such a profile is of no date by itself: it goes on without a clock, as one that nobody read clocks beside.
        notes.add("the log's stamps contradict the clocks that were read during the run: these clocks are not used")
        return None
    if is_far:
        # A problem of the files may be the cause, mostly a profile that is cut off.
        problems = "".join(f"; {note}" for note in notes.problems[:2])
        ns = clock.residual_ns
        apart = f"{ns / 1e9:+.3f} s" if abs(ns) < DAY_NS else f"{ns / DAY_NS:+,.1f} days"
        raise InputError(
            f"the log and the profile are not of one run: {clock.method} differ by {apart}"
            " in the best time zone; "
            "expected -2 to +{:g} s (--align order joins them by order alone){}".format(late / 1e9, problems)
        )
    is_later = marked is None and step <= STAMP_NS and _iterations_are_later(run, clock)
    if is_later or clock.residual_ns < -early:
        error = max(LANDMARK_EARLY_NS + 1, abs(clock.residual_ns))
        return msgspec.structs.replace(clock, error_ns=error, is_apart=not ran_at_once(run.profile, run.logs))
    # Either the host was busy until it printed the line, or the clocks differ by this time: nothing decides.
    return clock if clock.residual_ns <= early else msgspec.structs.replace(clock, error_ns=clock.residual_ns)


def ran_at_once(profile: Profile, logs: Sequence[FrameworkLog]) -> bool:
    """Return whether the log was written, by its dates, during the profile."""
    first, last = host_span(profile)
    if first is None or last is None:
        return False
    for log in logs:
        if log.first_stamp is not None and log.last_stamp is not None:
            clock = log_clock(log.last_stamp, last, "")
            if clock.to_host(log.first_stamp) <= last and clock.to_host(log.last_stamp) >= first:
                return True
    return False


def _cut_off(run: _Run, clock: LogClock, early: int, notes: Notes) -> LogClock | None:
    """Return the clock, with a note, if the log or the profile ends before the other."""
    first, last, logs, marked = run.first_ns, run.last_ns, run.logs, run.marked
    if first is None or last is None:
        return None
    begins, ends = clock.to_hosts(log.first_stamp for log in logs), clock.to_hosts(log.last_stamp for log in logs)
    if clock.residual_ns < 0 and (_ends_early(first, logs, clock) or _lacks_its_last_iteration(last, logs, clock)):
        notes.add("log that ends before the profile does")
        return clock
    if clock.residual_ns < 0 and ends_at_set_up(logs) and ends and 0 <= first - max(ends) <= ROUGH_LATE_NS:
        notes.add("log that ends before the profile begins")
        return msgspec.structs.replace(clock, error_ns=-clock.residual_ns)
    if marked is None and clock.residual_ns > early and _is_in_warm_up(first, last, logs, clock):
        notes.add("profile that ends in the warm-up: links have low confidence, because it may be of another run")
        return msgspec.structs.replace(clock, error_ns=clock.residual_ns)
    is_later = clock.residual_ns > LANDMARK_LATE_NS or (marked is None and _iterations_are_later(run, clock))
    if is_later and begins and ends and min(begins) < first < last < max(ends):
        notes.remark("profile that begins after the log and ends before it")
        return clock
    return None


def _was_set(run: _Run, clock: LogClock) -> bool:
    """Return whether between two lines, further apart than the profile is long, more ran than their calls launch."""
    first, last = run.first_ns, run.last_ns
    if first is None or last is None:
        return False
    for log in run.logs:
        lines, times = _by_line(*clock.stamped(log)[:2])
        own = [operation for operation in run.operations if operation.source == log.source]
        apart = np.abs(np.diff(times)) > last - first
        for place in np.flatnonzero(apart & (lines[:-1] > (own[0].line if own else NEVER))).tolist():
            before, after = lines[place : place + 2].tolist()
            from_ns, to_ns = sorted(times[place : place + 2].tolist())
            commands, offset = run.profile.commands, run.unix.offset_ns - clock.host_ns
            starts = commands.host_start_ns[commands.is_kernel].tolist()
            count = sum(start != NO and from_ns < start + offset < to_ns for start in starts)
            phases = Counter(operation.phase for operation in own if before < operation.line < after)
            # Searches, and the call before, launch so many at most; the others what all of this run do in the mean.
            if count > (1 + phases["find"]) / FIRST + phases["run"] * len(starts) / len(own):
                return True
    return False


def _by_marks(log: FrameworkLog, marked: Reading, lines: StampedLines, unix: UnixTime) -> Iterator[Window]:
    """Yield bounds of the clock: the last mark of an iteration is made while its line is printed."""
    line_of = {event.number: event.line for event in log.events if event.kind == "iteration"}
    for number, mark in enumerate(marked.ends, 1):
        if mark.host_ns is not None and (line := line_of.get(number)) is not None:
            at, between = mark.host_ns + unix.offset_ns, lines.between(line, line)
            if between is not None:
                yield Window(at, between[0] - at - LINE_NS, between[1] - at + LINE_NS)


def _bounded(low: int, high: int, landmark: LogClock, notes: Notes) -> LogClock:
    zone = nearest_zone(low)
    for offset in (landmark.offset_ns, zone, nearest_zone(high)):
        if low <= offset <= high:
            residual = landmark.residual_ns + landmark.offset_ns - offset
            return msgspec.structs.replace(landmark, offset_ns=offset, residual_ns=residual)
    # A line is printed right after what it tells of; what comes after it is prepared first.
    offset = max(low, high - LINE_NS // 2)
    error = max(high - offset, offset - low)
    ahead = offset - nearest_zone(offset)
    notes.add(f"the log's clock is {ahead / 1e9:+.6f} s ahead of the profile's: the stamps are corrected by this time")
    return LogClock(
        offset_ns=offset, near_ns=landmark.near_ns, residual_ns=ahead, error_ns=error,
        method="what both know exactly",
    )  # fmt: skip


def _lacks_its_last_iteration(last: int, logs: Sequence[FrameworkLog], clock: LogClock) -> bool:
    """Return whether the line that ends the last iteration is lost: others are missing, but later lines fit."""
    for log in logs:
        numbers = {event.number for event in log.events if event.kind == "iteration"}
        behind = max((event.line for event in log.events if event.kind == "iteration"), default=0)
        goes_on = (log.iterations or 0) not in numbers or bool((log.times.line > behind).any())
        _, times, _ = clock.stamped(log)
        if len(times) and goes_on:
            return -LANDMARK_EARLY_NS <= int(times.max()) - last <= LANDMARK_LATE_NS
    return False


def _iterations_are_later(run: _Run, clock: LogClock) -> bool:
    """Return whether all iterations of the log come after the profile: another run."""
    begins = [
        clock.to_host(event.stamp) - event.duration_ns
        for log in run.logs
        for event in log.events
        if event.kind == "iteration" and event.stamp is not None and event.duration_ns is not None
    ]
    return bool(begins) and run.last_ns is not None and min(begins) - LANDMARK_EARLY_NS > run.last_ns


def _is_in_warm_up(first: int, last: int, logs: Sequence[FrameworkLog], clock: LogClock) -> bool:
    for log in logs:
        at = {event.kind: clock.to_host(event.stamp) for event in log.events if event.stamp is not None}
        if at.keys() >= {"forward begins", "benchmark begins"}:
            begins, ends = at["forward begins"] - LANDMARK_EARLY_NS, at["benchmark begins"] + LANDMARK_EARLY_NS
            return begins <= first and last <= ends
    return False


def ends_at_set_up(logs: Sequence[FrameworkLog]) -> bool:
    """Return whether the logs end before the program launched anything."""
    kinds = {event.kind for log in logs for event in log.events}
    return bool(kinds) and kinds <= _SET_UP and not any(log.layers for log in logs)


def _ends_early(first: int, logs: Sequence[FrameworkLog], clock: LogClock) -> bool:
    """Return whether the log was cut off during the profile: lines that end a run are missing."""
    if any(event.kind in ("benchmark ends", "total", "average iteration") for log in logs for event in log.events):
        return False
    told = [clock.to_hosts((log.last_stamp, *(layer.stamp for layer in log.layers[-1:]))) for log in logs]
    ends = [max(stamps, default=None) for stamps in told]
    return bool(ends) and all(end is None or first <= end for end in ends)


def _landmark(run: _Run, notes: Notes) -> tuple[LogClock, int] | None:
    """Return a clock by a landmark, and how late the landmark may come in the log."""
    logs, marked, last = run.logs, run.marked, run.last_ns
    iterations = [e for log in logs for e in log.events if e.kind == "iteration" and e.stamp is not None]
    if marked is not None and iterations:
        by_number = {event.number: event for event in iterations}
        ends = [*enumerate(marked.ends, 1)][::-1]
        for word, numbered in (("end", ends), ("beginning", enumerate(marked.begins, 1))):
            for number, mark in numbered:
                event = by_number.get(number)
                lasted = 0 if word == "end" or event is None else event.duration_ns or None
                if event is not None and event.stamp is not None and mark.host_ns is not None and lasted is not None:
                    ended_ns = mark.host_ns + lasted + run.unix.offset_ns
                    name = f"the {word} of iteration {number} in the log and its timer mark"
                    return log_clock(event.stamp, ended_ns, name), LANDMARK_LATE_NS
    if last is None:
        return None
    if iterations:
        stamp = iterations[-1].stamp
        assert stamp is not None
        what = "the log's last iteration and the last enqueue"
        clocks = [log_clock(stamp, last, what)]
        if clocks[0].residual_ns < -LANDMARK_EARLY_NS:  # another thread may have gone on
            clocks += [log_clock(stamp, at, f"{what} of a queue") for at in run.ends_ns()]
        likely = [clock for clock in clocks if clock.residual_ns >= -LANDMARK_EARLY_NS] or clocks
        return min(likely, key=lambda clock: abs(clock.residual_ns)), LANDMARK_LATE_NS
    stamped = [(times, log.times.take(rows)) for log in logs for times, rows in (in_order(log.times),) if len(rows)]
    if stamped:
        if any(stamps_bound(log.times) for log in logs):
            times, layers = max(stamped, key=lambda one: int(one[0][-1]))
            stamp = layers.stamp(int(np.searchsorted(times, times[-1])))
        else:
            stamp = min(stamped, key=lambda one: int(one[0][0]))[1].stamp(0)
        assert stamp is not None
        return log_clock(stamp, last, "the log's layer lines and the last enqueue"), LANDMARK_LATE_NS
    for log in logs:
        if log.last_stamp is not None:
            clock = log_clock(log.last_stamp, last, "the log's last line and the last enqueue")
            notes.add("log without iterations or layer times: its clock is only roughly related", clock.method)
            return clock, ROUGH_LATE_NS
    return None


def _goes_back(run: _Run, clock: LogClock) -> bool:
    """Return whether a thread's stamps go back, unless the host's clock was set back for log and profile alike."""
    if run.went_back:
        return False
    for log in run.logs:
        for _, lines, times in _by_thread(log, clock):
            order = np.argsort(lines, kind="stable")
            if (np.diff(times[order[lines[order] != 0]]) < -LINE_NS).any():
                return True
    return False


def _by_thread(log: FrameworkLog, clock: LogClock) -> Iterator[tuple[int | None, Numbers, Numbers]]:
    """Yield each thread, its lines that have a stamp, and their times on the host: events, then layers."""
    lines, times, threads = clock.stamped(log)
    for code, rows in by_code(np.arange(len(lines)), threads.codes):
        yield threads.values[code], lines[rows], times[rows]


def _lie_in_calls(run: _Run, clock: LogClock) -> bool:
    """Return whether a thread printed lines, by their stamps, while it was inside a call of each queue."""
    profile, unix = run.profile, run.unix
    if clock.is_doubtful or run.went_back:
        return False
    printed: dict[int | None, list[Numbers]] = {}
    for log in run.logs:
        for thread, _, times in _by_thread(log, clock):
            printed.setdefault(thread, []).append(times)
    for one in run.operations:
        if one.stamp is not None:
            printed.setdefault(one.thread, []).append(np.array([bounded(clock.to_host(one.stamp))]))
    away = LINE_NS + clock.error_ns + unix.error_ns
    after = away + max(run.host_step_ns, host_resolution(profile))
    before = away + stamp_resolution(run.logs)
    commands = profile.commands
    begins, ends = commands.host_start_ns + after, commands.host_end_ns - before
    is_long = (commands.host_start_ns != NO) & (commands.host_end_ns != NO) & (begins < ends)
    queues = dict(by_key(np.flatnonzero(is_long), commands.queue[is_long]))
    if len(queues) < len(present(commands.queue)):
        return False
    for parts in printed.values():
        following = np.append(np.sort(np.concatenate(parts)) - unix.offset_ns, NEVER)
        next_ = following[np.searchsorted(following, begins)]
        if all((next_[rows] < ends[rows]).any() for rows in queues.values()):
            return True
    return False
