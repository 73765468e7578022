"""Begin and end of each step on each device, and how the device spent it.

Steps, and the time between them, cover a device's time without gaps (`Window`):

* a step begins when the host begins it, but not before the last earlier command of the main stream has ended. So a
  device that is later than the host is not idle, and a beginning with host work only counts as a part of the step.
* a step ends with its host part or with its last command on the main stream, whichever is later, but not after the next
  step begins. The time until then is *between* steps.

The main stream is the one with most computation. Other streams move no boundary, so that a late all-reduce of one step
does not shorten the next one; but an only step ends with its last command on any stream. If host and device have no
common clock, only the commands bound a step. If only the repetition of kernels shows the steps, each lasts until the
next one begins, and the end of the last one is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.measures.device_time.busy import (
    CLASSES,
    Busy,
    Covered,
    Occupation,
    Span,
    class_of_kernel,
    has_common_clock,
)
from mio2trace.measures.device_time.launches import Launches, graph_gaps
from mio2trace.model.tables import NEVER, NO, Activities, Codes, Numbers, by_code, firsts, least, most, summed

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
    """The steps of one device, in order. ``recording``: from the start of its first command to the end of its last one,
    without those from before the recording.

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


class _Step(NamedTuple):
    """What bounds a step on a device. ``ended``: on the main stream, of an only step on any; ``launched_before``: when
    what runs on the main stream and was launched before the step ended."""

    kernels: int
    kernel_ns: int
    first: int | None
    ended: int | None
    launched_before: int | None


def device_times(
    alignment: Alignment, place_of: Codes, count: int, launches: Launches, *, repeated: bool, contiguous: bool
) -> tuple[DeviceTime, ...]:
    """Return the steps of each device that ran commands. ``place_of``: for each activity, the place of its step among
    ``count``.

    ``repeated``: only the repetition of kernels shows the steps. ``contiguous``: a step lasts until the next begins.
    """
    profile, commands = alignment.profile, alignment.profile.commands
    devices = commands.of_queue({queue.index: queue.device for queue in profile.queues}, 0)
    rows = np.flatnonzero(commands.has_times)
    own_rows = dict(by_code(rows, devices[rows]))
    is_common = has_common_clock(alignment)
    hosts = _host_spans(alignment, place_of, count) if is_common else [None] * count
    is_early = np.array([*(pass_.phase == "before" for pass_ in alignment.links.passes), False])
    made = []
    for device, positions in own_rows.items():
        own = _Own(commands, positions)
        covered = Covered(own.starts, own.ends)
        lead = launches.lead(positions, own.is_main, covered)
        blocked = launches.blocked(positions, lead, covered)
        graphs = graph_gaps(profile, positions, covered, has_common_clock=is_common)
        occupation = Occupation(own.starts, own.ends, own.classes, covered, [*blocked, *graphs])
        own_places = place_of[positions]
        places = range(count) if len(own_rows) <= MOST_DEVICES else sorted({*own_places.tolist()} - {NONE})
        early = is_early[np.asarray(alignment.links.pass_of)[positions]]
        begun = int(own.starts[early if early.all() else ~early].min())
        steps = _steps(own, own_places, places, early, lead[0][1] if lead else None, is_only=count == 1)
        made.append(
            DeviceTime(
                device=device,
                stream=own.stream,
                windows=tuple(_windows(steps, hosts, occupation, repeated=repeated, contiguous=contiguous)),
                recording=occupation.busy(begun, int(covered.ends[-1])),
                occupation=occupation,
                blocked=len(blocked),
                graph_gaps=len(graphs),
            )
        )
    return tuple(made)


class _Own:
    """A device's commands that have times, in the profile's order: a column each. ``classes``: of what class their work
    is; ``stream``: the one with most computation."""

    def __init__(self, commands: Activities, positions: Numbers) -> None:
        # No column is copied if all commands are the device's.
        own: Any = slice(None) if len(positions) == len(commands) else positions
        self.starts, self.ends = commands.start_ns[own], commands.end_ns[own]
        self.is_kernel = commands.is_kernel[own]
        names = commands.name
        of_name = np.array([CLASSES.index(class_of_kernel(name)) for name in names.values], np.int8)
        self.classes = np.where(self.is_kernel, of_name[names.codes[own]], CLASSES.index("copy"))
        streams, place_of = commands.queues.values, commands.queues.codes[own]
        computes = self.classes == CLASSES.index("compute")
        computing = summed(place_of[computes], commands.time_ns[own][computes], len(streams))
        there = np.bincount(place_of, minlength=len(streams)) > 0
        main = int(np.argmax(np.where(there, computing, -1)))
        self.stream, self.is_main = streams[main], place_of == main


def _host_spans(alignment: Alignment, place_of: Codes, count: int) -> list[Span | None]:
    """Return for each step the time in which the host was in it: between its marks, else from its first launch to the
    return of the last one."""
    commands = alignment.profile.commands
    called, returned = commands.host_start_ns, commands.host_end_ns
    rows = np.flatnonzero((place_of != NONE) & (called != NO) & (returned != NO))
    places = place_of[rows]
    begun, until = least(places, called[rows], count), most(places, returned[rows], count)
    spans: list[Span | None] = [None] * count
    for place, first in enumerate(firsts(places, count).tolist()):
        if first != NONE:
            step = alignment.step_at(int(called[rows[first]]))
            spans[place] = (int(begun[place]), int(until[place])) if step is None else (step.start_ns, step.end_ns)
    return spans


def _steps(
    own: _Own,
    place_of: Codes,
    places: Sequence[int],
    is_early: NDArray[np.bool_],
    before: int | None,
    *,
    is_only: bool,
) -> dict[int, _Step]:
    """Return the bounds of each step of ``places`` on a device. For each of its commands, ``place_of`` has the step,
    and ``is_early`` whether it was launched before the recording. ``before``: the end of work from before the
    recording. ``is_only``: the profile has one step."""
    count = max([int(place_of.max(initial=NONE)), *places[-1:]], default=NONE) + 1
    inside, kernels = place_of != NONE, (place_of != NONE) & own.is_kernel
    main, outside = inside & own.is_main, ~inside & own.is_main
    held = np.bincount(place_of[kernels], minlength=count).tolist()
    held_ns = summed(place_of[kernels], (own.ends - own.starts)[kernels], count).tolist()
    first = least(place_of[inside], own.starts[inside], count).tolist()
    bounding = inside if is_only else main
    ended = most(place_of[bounding], own.ends[bounding], count).tolist()
    # what runs on the main stream and was launched before a step: by the first step that none before it reaches
    late = outside & ~is_early
    following = np.maximum.accumulate(place_of)[late] + 1
    others = most(following, own.ends[late], count + 1).tolist()
    early = own.ends[outside & is_early]
    before = _last(before, int(early.max(initial=NO)))
    steps: dict[int, _Step] = {}
    reached = 0
    for place in places:
        before = _last(before, max(others[reached : place + 1]))
        steps[place] = _Step(held[place], held_ns[place], _known(first[place]), _known(ended[place]), before)
        before, reached = _last(before, ended[place]), place + 1
    return steps


def _known(ns: int) -> int | None:
    return None if ns in (NO, NEVER) else ns


def _last(before: int | None, ns: int) -> int | None:
    """The later of two times; ``ns`` may be `NO`."""
    return before if ns == NO else ns if before is None else max(before, ns)


def _windows(
    steps: Mapping[int, _Step],
    hosts: Sequence[Span | None],
    occupation: Occupation,
    *,
    repeated: bool,
    contiguous: bool,
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
            end = following if contiguous else min(end, following)
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
