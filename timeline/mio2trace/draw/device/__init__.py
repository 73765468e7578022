"""The device's side: kernels and copies under layers under passes, one nested track per queue (trace-contract.md 1)."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE
from mio2trace.draw.base import ROW, Ids, TimeBase, merged
from mio2trace.draw.device.commands import Commands
from mio2trace.draw.device.containers import Containers, Spans
from mio2trace.draw.lanes import by_queue, indistinct, packed, unbroken
from mio2trace.draw.selection import Chosen
from mio2trace.measures import Measures
from mio2trace.model.profile import Profile, Queue
from mio2trace.trace import Columns, Numbers, Process, Slices, Track

APART = 0.1
"""A stream with at least this part of a device's kernel time is shown even if the group of the device is closed."""
Fold = Literal["find", "set-up", "warm-up"]
"""Work that may have a track of its own, so that the iterations are alone on theirs: searches, all work before the
warm-up, the warm-up."""
_FOLDED = {"find": "", "set-up": "setup", "warm-up": "warm-up"}
"""By the name of a folded part, its phase."""

_AT_ONCE = ROW // 2
"""The commands of a lane that are drawn at once; their containers are as many again."""
_Lane = tuple[int, int, str]
"""(queue, overflow lane, the folded part or nothing)."""

_HELP = (
    "Commands of one device, on its own clock; no time is altered. Kernels and copies are in their operations, these "
    "in their layers, those in the passes of the run; a level that is not known is left out."
)
_HELP_NESTED = (
    "Kernels and copies (innermost) in their operations and layers. Arguments name the evidence of each link "
    "(layer_by, operation_by); links of low confidence have sure = false."
)
_NO_TIME = "commands without length"
_HELP_NO_TIME = "Kernels and copies that took no time by the device's clock, each when another of the same queue began."
_HELP_OVERFLOW = "Kernels and copies that ran while others of the same queue did."
_HELP_FOLDED = "Work outside of the iterations, on its own track because of --fold."


class _Chunk(NamedTuple):
    """The drawn part of some commands of a lane: the passes, layers and operations that begin with one of them; the
    commands, by their number in the lane.
    """

    spans: Sequence[Spans]
    commands: Numbers


_NONE = np.zeros(0, np.int64)
_NO_SPANS = Spans(_NONE, _NONE, _NONE, np.zeros(0, np.bool_))


class DeviceSide:
    """Draws one profile's activities that have device times. Overlaps that do not nest go to overflow lanes.

    ``process_of``: numbers of the devices' processes from ``first_process`` on. ``track_of``: numbers of their lanes;
    viewers show them beside the names. ``next_process``: the next free number. ``fold``: parts of the run on tracks of
    their own. ``measures``: of the profile. ``process``: distinguishes its slices from those of other processes.
    """

    def __init__(
        self,
        measures: Measures,
        base: TimeBase,
        first_process: int,
        device_name: str,
        suffix: str,
        ids: Ids,
        fold: frozenset[Fold] = frozenset(),
        *,
        process: str = "",
    ) -> None:
        self.measures = measures
        self._alignment = alignment = measures.alignment
        links = alignment.links
        self._has_operations = links.has_operations  # searched once, not in each lane
        self._commands = alignment.profile.commands
        self._pass_of = np.asarray(links.pass_of)
        self._operation_of = np.asarray(links.operation_of)
        self._levels = [
            self._pass_of if links.passes else None,
            np.asarray(links.run_of) if links.runs else None,
            self._operation_of if self._has_operations else None,
        ]
        self._chosen: Chosen | None = None
        self._fold = fold
        self._base = base
        self._suffix = suffix
        self._device_name = device_name
        self._device_of = {queue.index: queue.device for queue in alignment.profile.queues}
        self._operations = measures.operation_at
        measures.sum_up()  # once: a writer that draws in two processes asks in both
        self.containers = Containers(measures, process)
        self.commands = Commands(measures, process)
        self._bare: set[_Lane] = set()
        self._lanes = self._pack()
        self.process_of: dict[int, int] = {}
        self._tracks: dict[_Lane, int] = {}
        self.next_process = first_process
        lanes_of: dict[int, list[_Lane]] = {}
        for lane in self._lanes:
            lanes_of.setdefault(self._device_of.get(lane[0], 0), []).append(lane)
        for device in sorted({queue.device for queue in alignment.profile.queues} or {0}):
            self.process_of[device] = track = ids.take(self.next_process)
            for lane in lanes_of.get(device, ()):
                self._tracks[lane] = track = ids.take(track + 1)
            self.next_process = track - track % 100 + 100
        self.track_of = np.zeros(len(self._commands), np.int32)
        """The track of each activity with device times."""
        for lane, positions in self._lanes.items():
            self.track_of[positions] = self._tracks[lane]
        self.indistinct = indistinct(self._commands.start_ns, [self._lanes[lane] for lane in self._bare])

    def show_only(self, chosen: Chosen) -> None:
        """Draw only the chosen part from now on; numbers and lanes stay."""
        self._chosen = chosen

    def _pack(self) -> dict[_Lane, Numbers]:
        """Return the positions of each lane in order of start; folded parts come last."""
        rows = {("", queue): positions for queue, positions in by_queue(self._commands).items()}
        if self._fold:
            order = ["", *_FOLDED]
            folded = self._folded()
            rows = {
                (name, queue): positions[folded[positions] == number]
                for number, name in enumerate(order)
                for (_, queue), positions in rows.items()
            }
        lanes: dict[_Lane, Numbers] = {}
        for lane in packed(self._commands, {row: positions for row, positions in rows.items() if len(positions)}):
            name, queue = lane.row
            lanes[queue, lane.number, name] = lane.positions
            if lane.bare:
                self._bare.add((queue, lane.number, name))
        return lanes

    def _folded(self) -> NDArray[np.int64]:
        """Return for each activity the place of its track in ``_FOLDED``, from 1; 0 for the track of its queue."""
        links = self._alignment.links
        places = {phase: place for place, (name, phase) in enumerate(_FOLDED.items(), 1) if name in self._fold}
        folded: NDArray[np.int64] = np.array([*(places.get(one.phase, 0) for one in links.passes), 0])[self._pass_of]
        if "find" in self._fold:
            searches = [index for index, operation in self._operations.items() if operation.phase == "find"]
            folded[np.isin(self._operation_of, searches)] = 1
        return folded

    def first_ns(self) -> int | None:
        return min((self._base.device(device, start) for device, start, _ in self._reaches()), default=None)

    def last_ns(self) -> int | None:
        return max((self._base.device(device, end) for device, _, end in self._reaches()), default=None)

    def _reaches(self) -> Iterator[tuple[int, int, int]]:
        """Return (device, start, end) of the first and the last slice of each lane."""
        for (queue, _, _), positions in self._lanes.items():
            drawn = positions if self._chosen is None else positions[self._chosen.drawn[positions]]
            if len(drawn):
                start, end = self._commands.start_ns[drawn[0]], self._commands.end_ns[drawn[-1]]
                yield self._device_of.get(queue, 0), int(start), int(end)

    def processes(self) -> list[Process]:
        devices: dict[int, set[int]] = {}
        for queue, _, _ in self._shown_lanes:
            devices.setdefault(self._device_of.get(queue, 0), set()).add(queue)
        profile = self._alignment.profile
        names = device_names(profile, devices, self._device_name if len(devices) == 1 else "")
        result = []
        for device in sorted(devices):
            process = self.process_of[device]
            name = device_of(names[device], profile.process.label) + self._suffix
            result.append(Process(id=process, name=name, sort=-10 + device, description=_HELP))
        return result

    def tracks(self) -> list[Track]:
        several = len({queue for queue, _, _ in self._lanes}) > 1
        usual, names = self._what(), row_names(self._alignment.profile)
        result = []
        for key in self._shown_lanes:
            queue, lane, folded = key
            what = _NO_TIME if key in self._bare else usual
            row, is_named = names.get(queue, (f"queue {queue}", False))
            name = f"{row[0].upper()}{row[1:]}: {what}" if several or is_named else what[0].upper() + what[1:]
            if folded:
                name = f"{folded.capitalize()}{f', {row}' if several or is_named else ''}: {what}"
            help_ = _HELP_OVERFLOW if lane else _HELP_FOLDED if folded else _HELP_NESTED
            track = self._tracks[key]
            result.append(
                Track(
                    id=track,
                    process=self.process_of[self._device_of.get(queue, 0)],
                    name=f"{name} ({lane + 1})" if lane and key not in self._bare else name,
                    sort=track,
                    description=_HELP_NO_TIME if key in self._bare else help_,
                    main=key in self._main,
                    apart=key in self._apart,
                )
            )
        return result

    @functools.cached_property
    def _main(self) -> set[_Lane]:
        """Return the lane of each device with the most commands."""
        most: dict[int, _Lane] = {}
        for lane in self._shown_lanes:
            if lane[1:] == (0, ""):
                device = self._device_of.get(lane[0], 0)
                most[device] = max(most.get(device, lane), lane, key=lambda one: len(self._lanes[one]))
        return set(most.values())

    @functools.cached_property
    def _apart(self) -> set[_Lane]:
        """Return other lanes with more than `APART` of a device's kernel time, such as collectives'."""
        lanes = [lane for lane in self._shown_lanes if lane[1:] == (0, "")]
        several = Counter(self._device_of.get(lane[0], 0) for lane in lanes)
        took: dict[_Lane, float] = {}
        of_device: dict[int, float] = defaultdict(float)
        for lane in lanes:
            device = self._device_of.get(lane[0], 0)
            if several[device] > 1:
                own = self._lanes[lane]
                took[lane] = float(self._commands.time_ns[own][self._commands.is_kernel[own]].sum(dtype=np.float64))
                of_device[device] += took[lane]
        large = {lane for lane, ns in took.items() if ns > APART * of_device[self._device_of.get(lane[0], 0)]}
        return large - self._main

    def apart(self) -> Iterator[tuple[int, str, int, Numbers]]:
        """Return for each lane that is shown apart: device, name of its row, track, positions in order of start."""
        names = row_names(self._alignment.profile)
        for lane in self._shown_lanes:
            if lane in self._apart:
                name, _ = names.get(lane[0], (f"queue {lane[0]}", False))
                yield self._device_of.get(lane[0], 0), name, self._tracks[lane], self._lanes[lane]

    @functools.cached_property
    def counter_tracks(self) -> dict[int, int]:
        """By process, the track beside which a device's counters belong: its main one, or the first drawn one."""
        beside: dict[int, int] = {}
        for track in self.tracks():
            if track.main or track.process not in beside:
                beside[track.process] = track.id
        return beside

    @functools.cached_property
    def _shown_lanes(self) -> list[_Lane]:
        return [lane for lane in self._lanes if self._chosen is None or next(self._chunks(lane), None) is not None]

    def _what(self) -> str:
        levels = ["layers"] if self._alignment.links.runs else []
        levels += ["operations"] if self._has_operations else []
        return " > ".join([*levels, "kernels"])

    def events(self, origin: int) -> Iterator[Slices]:
        """Yield the commands of each lane in columns, with their containers among them."""
        of_level = self.containers.passes, self.containers.layers, self.containers.operations
        for lane in self._shown_lanes:
            track, positions = self._tracks[lane], self._lanes[lane]
            shift = self._base.shift.get(self._device_of.get(lane[0], 0), 0) - origin
            for spans_of, commands in self._chunks(lane):
                columns: list[Columns] = []
                places: list[Numbers] = []
                for level, (make, spans) in enumerate(zip(of_level, spans_of, strict=True)):
                    if len(spans):
                        columns.append(make(track, shift, positions, spans))
                        places.append(4 * spans.first + level)
                if len(commands):
                    columns.append(self.commands.drawn(track, shift, positions[commands]))
                    places.append(4 * commands + 3)
                yield Slices(track, columns, merged(*places) if len(columns) > 1 else None)

    def rows(self) -> Iterator[tuple[int, int, Numbers, Numbers]]:
        """Return (device, operation or `NONE`, positions, the drawn ones) of each unbroken row with a drawn one."""
        chosen = self._chosen
        for (queue, _, _), positions in self._lanes.items():
            operations = self._operation_of[positions]
            borders = unbroken(operations).tolist()
            for first, last in pairwise(borders):
                row = drawn = positions[first:last]
                index = int(operations[first])
                if chosen is not None:
                    drawn = row[chosen.drawn[row]]
                    row = row if index != NONE else drawn
                if len(drawn):
                    yield self._device_of.get(queue, 0), index, row, drawn

    def unbroken_rows(self) -> Iterator[tuple[int, Numbers, Numbers, Numbers, Numbers]]:
        """Return of each lane the device, the operations of its unbroken rows with a drawn command, the first and the
        last position of each, and the drawn positions without operation."""
        for (queue, _, _), positions in self._lanes.items():
            operations = self._operation_of[positions]
            borders = unbroken(operations)
            drawn = np.ones(len(positions), bool) if self._chosen is None else self._chosen.drawn[positions]
            kept = np.flatnonzero((operations[borders[:-1]] != NONE) & np.logical_or.reduceat(drawn, borders[:-1]))
            firsts, lasts = borders[kept], borders[kept + 1] - 1
            outside = positions[drawn & (operations == NONE)]
            device = self._device_of.get(queue, 0)
            yield device, operations[firsts].astype(np.int64), positions[firsts], positions[lasts], outside

    def inside(self, row: Numbers) -> Numbers:
        """Return the chosen part of a row."""
        return row if self._chosen is None else row[self._chosen.inside[row]]

    def positions(self) -> dict[int, Numbers]:
        """Return device -> its activities with times, in order of start."""
        found: dict[int, list[Numbers]] = {}
        for (queue, _, _), positions in self._lanes.items():
            found.setdefault(self._device_of.get(queue, 0), []).append(positions)
        return {device: self._by_start(lanes) for device, lanes in sorted(found.items())}

    def _by_start(self, lanes: Sequence[Numbers]) -> Numbers:
        if len(lanes) == 1:
            return lanes[0]
        positions = np.concatenate(lanes)
        return positions[np.lexsort((positions, self._commands.start_ns[positions]))]

    def _chunks(self, lane: _Lane) -> Iterator[_Chunk]:
        """Yield the drawn slices of a lane, a limited number at once. A container spans an unbroken row of its
        activities.

        Commands without length are drawn one by one.
        """
        positions, chosen = self._lanes[lane], self._chosen
        is_first = np.full(len(positions), lane in self._bare)
        levels: list[Spans] = []
        for key_of in self._levels:
            if key_of is None:
                levels.append(_NO_SPANS)
                continue
            keys = key_of[positions]
            is_first |= np.append(True, keys[1:] != keys[:-1])
            begins = np.flatnonzero(is_first)
            numbers = keys[begins].astype(np.int64)
            spans = Spans(numbers, begins, np.append(begins[1:], len(positions)), np.zeros(len(begins), np.bool_))
            spans = spans.take(spans.numbers != NONE)
            levels.append(spans if chosen is None else self._narrowed(chosen, positions, spans))
        for first in range(0, len(positions), _AT_ONCE):
            last = min(first + _AT_ONCE, len(positions))
            spans_of = [spans.take(slice(*np.searchsorted(spans.first, (first, last)))) for spans in levels]
            commands = np.arange(first, last)
            if chosen is not None:
                commands = commands[chosen.drawn[positions[first:last]]]
            if len(commands) or any(map(len, spans_of)):
                yield _Chunk(spans_of, commands)

    def _narrowed(self, chosen: Chosen, positions: Numbers, spans: Spans) -> Spans:
        """Return the parts of containers that are inside the selection, also unbroken rows: of each that is drawn, for
        one of its commands or for its own length."""
        inside = np.flatnonzero(chosen.inside[positions])
        since, until = np.searchsorted(inside, (spans.first, spans.last))
        is_inside = since < until
        since, until, spans = since[is_inside], until[is_inside], spans.take(is_inside)
        begin, end = inside[since], inside[until - 1] + 1
        ns = self._commands.end_ns[positions[end - 1]] - self._commands.start_ns[positions[begin]]
        drawn = np.searchsorted(np.flatnonzero(chosen.drawn[positions]), (begin, end))
        is_drawn = (drawn[0] < drawn[1]) | ((ns >= chosen.min_ns) & (not chosen.longest_only))
        return Spans(spans.numbers, begin, end, end - begin < spans.last - spans.first).take(is_drawn)


# -- The names of devices and their rows: from the profiler; OpenCL's have only numbers --------------------------------


def device_names(profile: Profile, queues: Mapping[int, Collection[int]], logged: str) -> dict[int, str]:
    """Return the names of the devices of ``queues`` from the profiler. OpenCL devices have no names: the log's name
    (``logged``) is used, else their queues."""
    numbered = any(device.number is not None for device in profile.devices)
    return {device: _device_name(profile, device, own, logged, numbered) for device, own in queues.items()}


def _device_name(profile: Profile, device: int, queues: Collection[int], logged: str, numbered: bool) -> str:
    if profile.calls_wait or device >= len(profile.devices):
        numbers = ", ".join(map(str, sorted(queues)))
        own = logged or f"OpenCL queue{'s' if len(queues) > 1 else ''} {numbers}"
        return f"{'GPU 0' if logged else 'Device'} ({own})"
    name = profile.devices[device].name
    number: int | str | None = profile.devices[device].number
    if number is None:  # a device without the profiler's number, if others have one, is none of those
        number = f"without number {device}" if numbered else device
    if profile.framework.nodes and name:  # numbered like the framework's
        return name
    own = name or logged
    return f"GPU {number} ({own})" if own and own != f"GPU {number}" else f"GPU {number}"


def device_of(name: str, process: str) -> str:
    """Return the name of a device in the trace of a job: ``GPU 0 of rank 1 (AMD Instinct MI300X)``."""
    if not process:
        return name
    head, bracket, rest = name.partition(" (")
    return f"{head} of {process}{bracket}{rest}"


def row_names(profile: Profile) -> dict[int, tuple[str, bool]]:
    """Return names by queue: ``queue 0``; for a stream the profiler's number or name, which is then always recorded. If
    another queue of the device has that name, the number of the queue is added."""
    own = {queue.index: _own_name(queue) for queue in profile.queues}
    several = Counter((queue.device, own[queue.index][0]) for queue in profile.queues)
    return {
        queue.index: (f"{own[queue.index][0]}, queue {queue.index}", True)
        if several[queue.device, own[queue.index][0]] > 1
        else own[queue.index]
        for queue in profile.queues
    }


def _own_name(queue: Queue) -> tuple[str, bool]:
    if queue.name:
        return queue.name, True
    if queue.kind == "stream":
        return f"stream {queue.index if queue.number is None else queue.number}", False
    return f"queue {queue.index}", False
