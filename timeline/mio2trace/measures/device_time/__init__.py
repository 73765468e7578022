"""When each step began and ended on each device, and how the device spent it.

Steps, and the time between them, tile a device's time (`Window`):

* a step begins when the host begins it, but not before the last earlier command of the main stream has ended: a device
  that lags behind the host is not idle, and a start that only the host works in counts;
* it ends with the host's part of it or with its last command on the main stream, whichever is later, but not after
  the next step began. What follows until then is *between* steps.

The main stream is the one with most computation. Other streams move no boundary, so that a late all-reduce of one step
does not eat into the next. Where host and device have no clock in common, the commands alone bound a step. Of steps
that only the repetition of kernels shows, each lasts until the next begins, and the last one's end is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.align.clocks.fit import SAME
from mio2trace.measures.device_time.busy import CLASSES, Busy, Class, Occupation, Span, class_of_kernel
from mio2trace.measures.device_time.launches import Launches

MOST_DEVICES = 64
"""Of more devices each has windows only for the steps in which it ran something."""
__all__ = ["Busy", "DeviceTime", "Window", "device_times"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A step on one device. ``place``: among all iterations. ``end_ns``, ``busy``: None where the end is not known.

    ``kernels``, ``kernel_ns``: of what was launched in the step, whenever it ran; ``busy``: of whatever ran in it.
    ``between_ns``: from its end until the next step.
    """

    place: int
    begin_ns: int
    end_ns: int | None
    kernels: int
    kernel_ns: int
    busy: Busy | None
    between_ns: int = 0

    @property
    def step_ns(self) -> int | None:
        return None if self.end_ns is None else self.end_ns - self.begin_ns


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one device, in order; ``recording``: from its first command's start to the last one's end.

    ``stream``: the place of its main stream among the profile's queues.
    """

    device: int
    stream: int
    windows: tuple[Window, ...]
    recording: Busy
    occupation: Occupation

    def total_ns(self, places: Sequence[int]) -> int:
        """How long some of the steps took together, as far as their ends are known."""
        return sum(one.step_ns or 0 for one in self.windows if one.place in places)


class _Step:
    """A step on a device while it is bounded."""

    __slots__ = ("called", "ended", "first", "kernel_ns", "kernels", "launched_before", "returned")

    def __init__(self) -> None:
        self.kernels = self.kernel_ns = 0
        self.first: int | None = None
        self.ended: int | None = None
        self.launched_before: int | None = None
        self.called: int | None = None
        self.returned: int | None = None


def has_common_clock(alignment: Alignment) -> bool:
    """Whether host and device times can be compared to the nanosecond, and the profiler did not wait for commands."""
    clocks = alignment.clocks
    return bool(clocks) and all(clock == SAME for clock in clocks.values()) and not alignment.profile.calls_wait


def device_times(
    alignment: Alignment, place_of: Sequence[int], count: int, launches: Launches, *, repeated: bool
) -> tuple[DeviceTime, ...]:
    """Of each device that ran commands; ``place_of``: of each activity the place of its step among ``count``.

    ``repeated``: only the repetition of kernels shows the steps.
    """
    profile = alignment.profile
    device_of = {queue.index: queue.device for queue in profile.queues}
    spans: dict[int, dict[Class, list[Span]]] = defaultdict(lambda: {of: [] for of in CLASSES})
    computing: dict[int, int] = defaultdict(int)
    positions: dict[int, list[int]] = defaultdict(list)
    for position, activity in enumerate(profile.activities):
        start, end = activity.start_ns, activity.end_ns
        if start is None or end is None:
            continue
        of = class_of_kernel(activity.name) if activity.kind == "kernel" else "copy"
        device = device_of.get(activity.queue, 0)
        spans[device][of].append((start, end))
        positions[device].append(position)
        computing[activity.queue] += end - start if of == "compute" else 0
    streams: dict[int, int] = {}
    for queue in sorted(computing):
        device = device_of.get(queue, 0)
        if device not in streams or computing[queue] > computing[streams[device]]:
            streams[device] = queue
    hosts = _host_spans(alignment, place_of, count) if has_common_clock(alignment) else [None] * count
    made = []
    for device in sorted(spans):
        occupation = Occupation(dict(spans[device]), launches.blocked(device))
        bounds = (streams[device], launches.begun(device))
        own = positions[device]
        places = range(count) if len(spans) <= MOST_DEVICES else {*(place_of[at] for at in own)} - {NONE}
        steps = _steps(alignment, place_of, places, bounds, own)
        covered = occupation.commands
        made.append(
            DeviceTime(
                device=device,
                stream=streams[device],
                windows=tuple(_windows(steps, hosts, occupation, repeated=repeated)),
                recording=occupation.busy(covered.starts[0], covered.ends[-1]),
                occupation=occupation,
            )
        )
    return tuple(made)


def _host_spans(alignment: Alignment, place_of: Sequence[int], count: int) -> list[Span | None]:
    """Of each step when the host was in it: between its marks, else from its first launch to the last one's return."""
    spans: list[Span | None] = [None] * count
    first: dict[int, int] = {}
    for place, activity in zip(place_of, alignment.profile.activities, strict=True):
        call = activity.call
        if place == NONE or call is None or call.start_ns is None or call.end_ns is None:
            continue
        start, end = call.start_ns, call.end_ns
        first.setdefault(place, start)
        span = spans[place]
        spans[place] = (start, end) if span is None else (min(span[0], start), max(span[1], end))
    for place, start in first.items():
        step = alignment.step_at(start)
        if step is not None:
            spans[place] = step.start_ns, step.end_ns
    return spans


def _steps(
    alignment: Alignment,
    place_of: Sequence[int],
    places: Iterable[int],
    of: tuple[int, int | None],
    positions: Sequence[int],
) -> dict[int, _Step]:
    """What bounds each step of ``places`` on a device, whose commands are at ``positions``; ``of``: its main stream,
    and when work from before the recording ended."""
    stream, before = of
    steps = {place: _Step() for place in sorted(places)}
    links = alignment.links
    early = {number for number, pass_ in enumerate(links.passes) if pass_.phase == "before"}
    # ``before``: the end of what runs on the main stream and was launched before a step.
    reached = NONE
    others: dict[int, int] = {}
    for position in positions:
        place, activity = place_of[position], alignment.profile.activities[position]
        start, end = activity.start_ns, activity.end_ns
        if start is None or end is None:
            continue
        if place == NONE:
            if activity.queue != stream:
                continue
            if links.pass_of[position] in early:
                before = end if before is None else max(before, end)
            else:
                others[reached + 1] = max(others.get(reached + 1, end), end)
            continue
        step = steps[place]
        reached = max(reached, place)
        if activity.kind == "kernel":
            step.kernels += 1
            step.kernel_ns += end - start
        if step.first is None or start < step.first:
            step.first = start
        if activity.queue == stream and (step.ended is None or end > step.ended):
            step.ended = end
        call = activity.call
        if call is not None and call.start_ns is not None and (step.called is None or call.start_ns < step.called):
            step.called = call.start_ns
    waiting = sorted(others.items(), reverse=True)
    for place, step in steps.items():
        while waiting and waiting[-1][0] <= place:
            _, end = waiting.pop()
            before = end if before is None else max(before, end)
        step.launched_before = before
        if step.ended is not None:
            before = step.ended if before is None else max(before, step.ended)
    return steps


def _windows(
    steps: Mapping[int, _Step], hosts: Sequence[Span | None], occupation: Occupation, *, repeated: bool
) -> list[Window]:
    begins: dict[int, int | None] = {}
    last: int | None = None
    for place, step in steps.items():
        host = hosts[place]
        candidates = [] if host is None else [host[0]]
        if host is None and step.first is not None:
            candidates.append(step.first)
        elif repeated and step.first is not None:  # the launches of its first commands may not be recorded
            candidates = [min(candidates[0], step.first)]
        if candidates:
            candidates += [one for one in (step.launched_before, last) if one is not None]
        begins[place] = max(candidates) if candidates else None
        last = begins[place] if begins[place] is not None else last
    made: list[Window] = []
    following: int | None = None
    for place in reversed([*steps]):
        own, begin, host = steps[place], begins[place], hosts[place]
        if begin is None:
            continue
        ends = [one for one in (None if host is None else host[1], own.ended) if one is not None]
        end: int | None = max([begin, *ends])
        if repeated:
            end = following
        elif following is not None and end is not None:
            end = min(end, following)
        made.append(
            Window(
                place=place,
                begin_ns=begin,
                end_ns=end,
                kernels=own.kernels,
                kernel_ns=own.kernel_ns,
                busy=None if end is None else occupation.busy(begin, end),
                between_ns=0 if end is None or following is None else following - end,
            )
        )
        following = begin
    return made[::-1]
