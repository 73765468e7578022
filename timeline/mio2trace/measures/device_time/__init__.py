"""Begin and end of each step on each device, and how the device spent it.

Steps, and the time between them, cover a device's time without gaps (`Window`):

* a step begins when the host begins it, but not before the last earlier command of the main stream has ended. So a
  device that is later than the host is not idle, and a beginning with host work only counts as a part of the step.
* a step ends with its host part or with its last command on the main stream, whichever is later, but not after the next
  step begins. The time until then is *between* steps.

The main stream is the one with most computation. Other streams move no boundary, so that a late all-reduce of one step
does not shorten the next one. If host and device have no common clock, only the commands bound a step. If only the
repetition of kernels shows the steps, each lasts until the next one begins, and the end of the last one is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import TypeVar

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.measures.device_time.busy import (
    Busy,
    Class,
    Commands,
    Covered,
    Occupation,
    Span,
    class_of_kernel,
    has_common_clock,
    known,
    stretches,
)
from mio2trace.measures.device_time.launches import Launches, graph_gaps

_Value = TypeVar("_Value")
MOST_DEVICES = 64
"""If there are more devices, each has windows only for the steps in which it ran something."""
__all__ = ["Busy", "DeviceTime", "Window", "device_times", "has_common_clock"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A step on one device. ``place``: among all iterations. ``end_ns``, ``busy``: None if the end is unknown.

    ``kernels`` and ``kernel_ns`` count the commands launched in the step, whenever they ran. ``busy`` counts all
    commands that ran in it.
    """

    place: int
    begin_ns: int
    end_ns: int | None
    kernels: int
    kernel_ns: int
    busy: Busy | None

    @property
    def step_ns(self) -> int | None:
        return None if self.end_ns is None else self.end_ns - self.begin_ns


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one device, in order. ``recording``: from the start of its first command to the end of its last one.

    ``stream``: the place of its main stream among the profile's queues. ``blocked``: how often the host waited for
    unrecorded work. ``graph_gaps``: the number of gaps within graph launches that are such work.
    """

    device: int
    stream: int
    windows: tuple[Window, ...]
    recording: Busy
    occupation: Occupation
    blocked: int = 0
    graph_gaps: int = 0

    def total_ns(self, places: Sequence[int]) -> int:
        """Return the total length of some steps whose ends are known."""
        return sum(one.step_ns or 0 for one in self.windows if one.place in places)


class _Step:
    """A step on a device while its bounds are being found."""

    __slots__ = ("ended", "first", "kernel_ns", "kernels", "launched_before")

    def __init__(self) -> None:
        self.kernels = self.kernel_ns = 0
        self.first: int | None = None
        self.ended: int | None = None
        self.launched_before: int | None = None


def device_times(
    alignment: Alignment, place_of: Sequence[int], count: int, launches: Launches, *, repeated: bool
) -> tuple[DeviceTime, ...]:
    """Return the steps of each device that ran commands. ``place_of``: for each activity, the place of its step among
    ``count``.

    ``repeated``: only the repetition of kernels shows the steps.
    """
    commands = Commands(alignment.profile)
    timed: dict[int, list[int]] = defaultdict(list)
    columns = zip(commands.devices, commands.starts, commands.ends, strict=True)
    ran_on = [NONE if start is None or end is None else device for device, start, end in columns]
    for position, device in enumerate(ran_on):
        if device != NONE:
            timed[device].append(position)
    is_common = has_common_clock(alignment)
    hosts = _host_spans(alignment, commands, place_of, count) if is_common else [None] * count
    early = {number for number, pass_ in enumerate(alignment.links.passes) if pass_.phase == "before"}
    made = []
    for device, positions in sorted(timed.items()):
        own = _Own(alignment, commands, positions)
        covered = Covered(own.starts, own.ends)
        lead = launches.lead(positions, own.is_main, commands, covered)
        blocked = launches.blocked(positions, lead, commands, covered)
        graphs = graph_gaps(alignment.profile, positions, covered, has_common_clock=is_common)
        occupation = Occupation(own.starts, own.ends, own.classes, covered, [*blocked, *graphs])
        own_places = _at(place_of, positions)
        places = range(count) if len(timed) <= MOST_DEVICES else {*own_places} - {NONE}
        is_early = [pass_ in early for pass_ in _at(alignment.links.pass_of, positions)]
        steps = _steps(own, own_places, places, is_early, lead[0][1] if lead else None)
        made.append(
            DeviceTime(
                device=device,
                stream=own.stream,
                windows=tuple(_windows(steps, hosts, occupation, repeated=repeated)),
                recording=occupation.busy(covered.starts[0], covered.ends[-1]),
                occupation=occupation,
                blocked=len(blocked),
                graph_gaps=len(graphs),
            )
        )
    return tuple(made)


class _Own:
    """A device's commands with times, in the profile's order, in columns. ``classes``: the class of their work.
    ``stream``: the one with most computation."""

    def __init__(self, alignment: Alignment, commands: Commands, positions: Sequence[int]) -> None:
        self.starts, self.ends = known(_at(commands.starts, positions)), known(_at(commands.ends, positions))
        activities = _at(alignment.profile.activities, positions)
        self.is_kernel = [one.kind == "kernel" for one in activities]
        queues = [one.queue for one in activities]
        classes = _Classes()
        self.classes = [classes[one.name] if one.kind == "kernel" else "copy" for one in activities]
        computing = dict.fromkeys(sorted({*queues}), 0)
        if len(computing) > 1:
            columns = zip(queues, self.starts, self.ends, strict=True)
            for queue, start, end in compress(columns, map("compute".__eq__, self.classes)):
                computing[queue] += end - start
        self.stream = max(computing, key=computing.__getitem__)
        self.is_main = [queue == self.stream for queue in queues]


def _at(column: Sequence[_Value], positions: Sequence[int]) -> Sequence[_Value]:
    """Return the values of a column at these positions, which are in order and mostly include all."""
    return column if len(column) == len(positions) else [*map(column.__getitem__, positions)]


class _Classes(dict[str, Class]):
    """Finds the class of work of each kernel's name."""

    def __missing__(self, name: str) -> Class:
        self[name] = class_of_kernel(name)
        return self[name]


def _host_spans(alignment: Alignment, commands: Commands, place_of: Sequence[int], count: int) -> list[Span | None]:
    """Return for each step the time in which the host was in it: between its marks, else from its first launch to the
    return of the last one."""
    spans: list[Span | None] = [None] * count
    firsts: dict[int, int] = {}
    for place, first, end in stretches(place_of):
        if place == NONE:
            continue
        calls = [
            (called, returned)
            for called, returned in zip(commands.called[first:end], commands.returned[first:end], strict=True)
            if called is not None and returned is not None
        ]
        if calls:
            firsts.setdefault(place, calls[0][0])
            span = spans[place]
            begun, until = min(calls)[0], max(returned for _, returned in calls)
            spans[place] = (begun, until) if span is None else (min(span[0], begun), max(span[1], until))
    for place, start in firsts.items():
        step = alignment.step_at(start)
        if step is not None:
            spans[place] = step.start_ns, step.end_ns
    return spans


def _steps(
    own: _Own, place_of: Sequence[int], places: Iterable[int], is_early: Sequence[bool], before: int | None
) -> dict[int, _Step]:
    """Return the bounds of each step of ``places`` on a device. For each of its commands, ``place_of`` has the step,
    and ``is_early`` whether it was launched before the recording. ``before``: the end of work from before the
    recording."""
    steps = {place: _Step() for place in sorted(places)}
    # ``before``: the end of commands on the main stream that were launched before a step.
    reached = NONE
    others: dict[int, int] = {}
    for place, first, end in stretches(place_of):
        ends, is_main = own.ends[first:end], own.is_main[first:end]
        if place == NONE:
            early = [ns for ns, main, at in zip(ends, is_main, is_early[first:end], strict=True) if main and at]
            late = [ns for ns, main, at in zip(ends, is_main, is_early[first:end], strict=True) if main and not at]
            before = max(early if before is None else [before, *early], default=None)
            if late:
                others[reached + 1] = max([others.get(reached + 1, late[0]), *late])
            continue
        step = steps[place]
        reached = max(reached, place)
        starts, is_kernel = own.starts[first:end], own.is_kernel[first:end]
        step.kernels += sum(is_kernel)
        step.kernel_ns += sum(compress(ends, is_kernel)) - sum(compress(starts, is_kernel))
        begun = min(starts)
        step.first = begun if step.first is None else min(step.first, begun)
        ended = max(compress(ends, is_main), default=None)
        if ended is not None and (step.ended is None or ended > step.ended):
            step.ended = ended
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
        elif repeated and step.first is not None:  # the launches of its first commands may be unrecorded
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
            )
        )
        following = begin
    return made[::-1]
