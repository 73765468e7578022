"""One axis for log lines and activities: host time, to which the log's clock is brought, or lines of a shared file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

from mio2trace.align.clocks.fit import LogClock, log_clock
from mio2trace.align.layers.caffe import boundaries
from mio2trace.align.layers.caffe.marks import Marked
from mio2trace.evidence import BOUNDARY_STAMPS, POSITION, Evidence
from mio2trace.model.log import FrameworkLog, LayerTime, LogEvent
from mio2trace.model.profile import Activity, Profile
from mio2trace.notes import InputError, Notes

LANDMARK_LATE_NS = 2_000_000_000
LANDMARK_EARLY_NS = 5_000_000
"""How far a landmark in the log may lie after (or before) its twin in the profile if both are of one run."""
ROUGH_LATE_NS = 8 * 60 * 1_000_000_000
"""The same where the log has no landmark but its last line."""
DISORDER_NS = 1_000_000
"""How far activities of several threads may be recorded out of order; more than that is a clock set back."""


class HostTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When each activity began (its first argument was set) and ended on the host, never decreasing.

    ``own_ends`` never decrease within a queue only: another thread's activity may last while this one goes on. An
    activity in ``unknown`` has no times of its own and stands right behind the one before it.
    """

    begins: list[int]
    called: list[int]
    ends: list[int]
    own_ends: list[int]
    unknown: frozenset[int]


def host_times(activities: Sequence[Activity], notes: Notes) -> HostTimes | None:
    """None where the host's clock tells no order: no times at all, or it was set back during the run."""
    calls = (activity.call for activity in activities if activity.call is not None)
    first = next((call.start_ns for call in calls if call.start_ns is not None and call.end_ns is not None), None)
    if first is None:
        return None
    begins, called, ends = [], [], []
    unknown = set()
    began = start = end = first
    for position, activity in enumerate(activities):
        call = activity.call
        if call is None or call.start_ns is None or call.end_ns is None:
            unknown.add(position)
            began = start = end
        else:
            host_start, host_end = call.start_ns, call.end_ns
            if host_start < start - DISORDER_NS or host_end < host_start:
                notes.add("host clock was set back during the run: stamps tell no layers")
                return None
            prepared = call.prepared_ns or host_start
            began = prepared if prepared > began else began
            start = host_start if host_start > start else start
            end = host_end if host_end > end else end
        begins.append(began)
        called.append(start)
        ends.append(end)
    if unknown:
        notes.add("enqueue without host times: placed between its neighbours", count=len(unknown))
    own_ends = ends
    if len({activity.queue for activity in activities}) > 1:
        own_ends = []
        latest: dict[int, int] = {}
        for activity, end in zip(activities, ends, strict=True):
            own = latest.get(activity.queue, 0)
            own = max(own, end if activity.host_end_ns is None else activity.host_end_ns)
            latest[activity.queue] = own
            own_ends.append(own)
    return HostTimes(begins=begins, called=called, ends=ends, own_ends=own_ends, unknown=frozenset(unknown))


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Places of log events and layer lines, and of activities by position, on one axis: lines, or host time in ns."""

    by_line: bool
    evidence: Evidence | None
    """What a link rests on that this axis tells; None where it stands on the links to operations itself."""
    event: Callable[[LogEvent], int | None]
    layer: Callable[[LayerTime], int | None]
    begins: Sequence[int]
    ends: Sequence[int]
    """Places of activities; ``ends`` never decrease within a queue."""

    def first_after(self, place: int) -> int:
        """The first activity that begins at or after a place."""
        return bisect_left(self.begins, place)


def common_axis(
    profile: Profile,
    events: Sequence[LogEvent],
    clock: LogClock | None,
    times: HostTimes | None,
    without: frozenset[str],
    notes: Notes,
) -> Timeline | None:
    """Lines where they are in order of execution, else host time where log and activities have it."""
    if POSITION not in without and _position_is_order(profile, events, clock, notes):
        source = profile.source
        lines = [activity.line for activity in profile.activities]
        return Timeline(
            by_line=True,
            evidence=POSITION,
            event=lambda event: event.line if event.source == source else None,
            layer=lambda layer: layer.line if layer.source == source and layer.line else None,
            begins=lines,
            ends=lines,
        )
    if clock is None or times is None:
        return None
    to_host = clock.to_host
    return Timeline(
        by_line=False,
        evidence=BOUNDARY_STAMPS,
        event=lambda event: None if event.stamp is None else to_host(event.stamp),
        layer=lambda layer: None if layer.stamp is None else to_host(layer.stamp),
        begins=times.called,
        ends=times.own_ends,
    )


def _position_is_order(profile: Profile, events: Sequence[LogEvent], clock: LogClock | None, notes: Notes) -> bool:
    """Blocks and log lines share a file, in order of execution as far as times tell: stdout was line buffered."""
    if not profile.interleaved or not profile.activities:
        return False
    events = [event for event in events if event.source == profile.source and event.stamp is not None]
    if clock is None or not events:
        return True
    lines = [activity.line for activity in profile.activities]
    wrong = 0
    for event in events:
        assert event.stamp is not None
        time = clock.to_host(event.stamp)
        at = bisect_left(lines, event.line)
        before = profile.activities[at - 1].host_end_ns if at else None
        after = profile.activities[at].host_start_ns if at < len(lines) else None
        wrong += (before is not None and before > time + 1_000_000) or (after is not None and after < time - 1_000_000)
    if wrong * 20 > len(events):
        notes.add("dv/dt blocks and log lines are not in order of execution (buffered): positions not used")
        return False
    return True


def relate_clocks(
    profile: Profile, logs: Sequence[FrameworkLog], marked: Marked | None, notes: Notes, *, same_run: bool = False
) -> LogClock | None:
    """The log's clock by the surest place that log and profile share; None when they share none.

    ``same_run``: the buffers of both show that they are of one run, however much more one of them covers. Raises
    `InputError` when that place shows that they are not of one run.
    """
    if profile.clocks[0].kind != "unix":
        return None  # a clock that counts from the boot tells no date: nothing relates a log's stamps to it
    landmark = _landmark(profile, logs, marked, notes)
    if landmark is None:
        return None
    clock, late = landmark
    if same_run:
        return clock
    if clock.residual_ns < 0 and _ends_early(profile, logs, clock):
        notes.add("log that ends before the profile does")
        return clock
    if not -LANDMARK_EARLY_NS <= clock.residual_ns <= late:
        raise InputError(
            f"the log and the profile are not of one run: {clock.method} differ by "
            f"{clock.residual_ns / 1e9:+.3f} s after the best whole quarter of an hour; "
            "expected -0.005 to +{:g} s (--align order goes on by order alone)".format(late / 1e9)
        )
    if marked is None and _iterations_are_later(profile, logs, clock):
        raise InputError(
            "the log and the profile are not of one run: the log's first iteration began after the last enqueue "
            "(--align order goes on by order alone)"
        )
    return clock


def _iterations_are_later(profile: Profile, logs: Sequence[FrameworkLog], clock: LogClock) -> bool:
    """Whether all of the log's iterations lie behind the profile: another run that ended soon after it."""
    begins = [
        clock.to_host(event.stamp) - event.duration_ns
        for log in logs
        for event in log.events
        if event.kind == "iteration" and event.stamp is not None and event.duration_ns is not None
    ]
    last = next((e.host_end_ns for e in reversed(profile.activities) if e.host_end_ns is not None), None)
    return bool(begins) and last is not None and min(begins) - LANDMARK_EARLY_NS > last


def _ends_early(profile: Profile, logs: Sequence[FrameworkLog], clock: LogClock) -> bool:
    """Whether the log was cut off within the profile's time: it lacks the lines that end a run."""
    if any(event.kind in ("benchmark ends", "total", "average iteration") for log in logs for event in log.events):
        return False
    first = next((e.host_start_ns for e in profile.activities if e.host_start_ns is not None), None)
    stamps = [clock.to_host(log.last_stamp) for log in logs if log.last_stamp is not None]
    return first is not None and bool(stamps) and first <= min(stamps)


def _landmark(
    profile: Profile, logs: Sequence[FrameworkLog], marked: Marked | None, notes: Notes
) -> tuple[LogClock, int] | None:
    """A clock, and how late its landmark may come in the log."""
    iterations = [e for log in logs for e in log.events if e.kind == "iteration" and e.stamp is not None]
    if marked is not None and iterations:
        by_number = {event.number: event for event in iterations}
        for number in range(marked.iterations, 0, -1):
            mark, event = marked.ends[number - 1], by_number.get(number)
            if event is not None and event.stamp is not None and mark.host_ns is not None:
                name = f"the end of iteration {number} in the log and its timer mark"
                return log_clock(event.stamp, mark.host_ns, name), LANDMARK_LATE_NS
    last = next((e.host_end_ns for e in reversed(profile.activities) if e.host_end_ns is not None), None)
    if last is None:
        return None
    if iterations:
        stamp = iterations[-1].stamp
        assert stamp is not None
        return log_clock(stamp, last, "the log's last iteration and the last enqueue"), LANDMARK_LATE_NS
    stamped = [pair for log in logs for pair in boundaries.in_order(log.layers)]
    if stamped:
        bound = any(boundaries.stamps_bound(log.layers) for log in logs)
        layer = max(stamped, key=lambda pair: pair[0])[1] if bound else min(stamped, key=lambda pair: pair[0])[1]
        assert layer.stamp is not None
        return log_clock(layer.stamp, last, "the log's layer lines and the last enqueue"), LANDMARK_LATE_NS
    for log in logs:
        if log.last_stamp is not None:
            clock = log_clock(log.last_stamp, last, "the log's last line and the last enqueue")
            notes.add("log without iterations or layer times: its clock is only roughly related", clock.method)
            return clock, ROUGH_LATE_NS
    return None
