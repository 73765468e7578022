"""The device's side: kernels and copies under layers under passes, one nested track per queue (trace-contract.md 1)."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import ne, or_
from typing import Literal, NamedTuple

from mio2trace.align import NONE
from mio2trace.draw.base import ROW, Ids, TimeBase, merged
from mio2trace.draw.device.commands import Commands
from mio2trace.draw.device.containers import Containers, Span
from mio2trace.draw.lanes import by_queue, indistinct, packed, unbroken
from mio2trace.draw.selection import Chosen
from mio2trace.measures import Measures
from mio2trace.model.profile import Activity, Profile, Queue
from mio2trace.trace import Columns, Process, Slices, Track

APART = 0.1
"""A stream with at least this part of a device's kernel time is shown even if the group of the device is closed."""
Fold = Literal["find", "set-up", "warm-up"]
"""Work that may have a track of its own, so that the iterations are alone on theirs: searches, all work before the
warm-up, the warm-up."""
_FOLDED = {"find": "Find", "set-up": "Set-up", "warm-up": "Warm-up"}

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
    """The drawn slices of some of a lane's commands: passes, layers and operations that begin with one of them; the
    commands, by their number in the lane; the commands that begin unbroken rows of all three."""

    spans: Sequence[Sequence[Span]]
    commands: Sequence[int]
    begins: Sequence[int]


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
        self._levels = [
            links.pass_of if links.passes else None,
            links.run_of if links.runs else None,
            links.operation_of if self._has_operations else None,
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
        self._first_of = {queue: track for (queue, *other), track in self._tracks.items() if other == [0, ""]}
        activities = alignment.profile.activities
        self._elsewhere = {
            id(activities[position]): self._tracks[lane]
            for lane, positions in self._lanes.items()
            if lane[1] or lane[2]
            for position in positions
        }
        self.indistinct = indistinct(activities, [self._lanes[lane] for lane in self._bare])

    def show_only(self, chosen: Chosen) -> None:
        """Draw only the chosen part from now on; numbers and lanes stay."""
        self._chosen = chosen

    def track_of(self, activity: Activity) -> int:
        """Return the track of an activity with device times."""
        track = self._elsewhere.get(id(activity)) if self._elsewhere else None
        return self._first_of[activity.queue] if track is None else track

    def _pack(self) -> dict[_Lane, Sequence[int]]:
        """Return the positions of each lane in order of start; folded parts come last."""
        of_queues = by_queue(self._alignment.profile.activities)
        rows: dict[tuple[str, int], Sequence[int]] = {("", queue): positions for queue, positions in of_queues.items()}
        if self._fold:
            apart: dict[tuple[str, int], list[int]] = {}
            for queue, positions in of_queues.items():
                for position in positions:
                    apart.setdefault((self._folded(position), queue), []).append(position)
            rows = {**apart}
        order = ["", *_FOLDED]
        ordered = {row: rows[row] for row in sorted(rows, key=lambda row: (order.index(row[0]), row[1]))}
        lanes: dict[_Lane, Sequence[int]] = {}
        for lane in packed(self._alignment.profile.activities, ordered):
            folded, queue = lane.row
            lanes[queue, lane.number, folded] = lane.positions
            if lane.bare:
                self._bare.add((queue, lane.number, folded))
        return lanes

    def _folded(self, position: int) -> str:
        """Return the track for folded parts on which an activity is drawn."""
        links = self._alignment.links
        operation = self._operations.get(self._alignment.links.operation_of[position])
        if "find" in self._fold and operation is not None and operation.phase == "find":
            return "find"
        number = links.pass_of[position]
        phase = "" if number == NONE else links.passes[number].phase
        if phase == "setup" and "set-up" in self._fold:
            return "set-up"
        return "warm-up" if phase == "warm-up" and "warm-up" in self._fold else ""

    def first_ns(self) -> int | None:
        return min((self._base.device(device, start) for device, start, _ in self._reaches()), default=None)

    def last_ns(self) -> int | None:
        return max((self._base.device(device, end) for device, _, end in self._reaches()), default=None)

    def _reaches(self) -> Iterator[tuple[int, int, int]]:
        """Return (device, start, end) of the first and the last slice of each lane."""
        activities = self._alignment.profile.activities
        chosen = self._chosen
        for (queue, _, _), positions in self._lanes.items():
            if chosen is not None:
                positions = [position for position in positions if chosen.drawn[position]]
            if positions:
                start, end = activities[positions[0]].start_ns, activities[positions[-1]].end_ns
                yield self._device_of.get(queue, 0), start or 0, end or 0

    def processes(self) -> list[Process]:
        devices: dict[int, set[int]] = {}
        for queue, _, _ in self._shown_lanes():
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
        for key in self._shown_lanes():
            queue, lane, folded = key
            what = _NO_TIME if key in self._bare else usual
            row, is_named = names.get(queue, (f"queue {queue}", False))
            name = f"{row[0].upper()}{row[1:]}: {what}" if several or is_named else what[0].upper() + what[1:]
            if folded:
                name = f"{_FOLDED[folded]}, {row}" if several or is_named else _FOLDED[folded]
                name += f": {what}"
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
        for lane in self._shown_lanes():
            if lane[1:] == (0, ""):
                device = self._device_of.get(lane[0], 0)
                most[device] = max(most.get(device, lane), lane, key=lambda one: len(self._lanes[one]))
        return set(most.values())

    @functools.cached_property
    def _apart(self) -> set[_Lane]:
        """Return other lanes with more than `APART` of a device's kernel time, such as the stream of the
        collectives."""
        activities = self._alignment.profile.activities
        lanes = [lane for lane in self._shown_lanes() if lane[1:] == (0, "")]
        several = Counter(self._device_of.get(lane[0], 0) for lane in lanes)
        took: dict[_Lane, int] = {}
        of_device: Counter[int] = Counter()
        for lane in lanes:
            device = self._device_of.get(lane[0], 0)
            if several[device] > 1:
                own = (activities[position] for position in self._lanes[lane])
                took[lane] = sum((one.end_ns or 0) - (one.start_ns or 0) for one in own if one.kind == "kernel")
                of_device[device] += took[lane]
        large = {lane for lane, ns in took.items() if ns > APART * of_device[self._device_of.get(lane[0], 0)]}
        return large - self._main

    def apart(self) -> Iterator[tuple[int, str, int, Sequence[int]]]:
        """Return for each lane that is shown apart: device, name of its row, track, positions in order of start."""
        names = row_names(self._alignment.profile)
        for lane in self._shown_lanes():
            if lane in self._apart:
                name, _ = names.get(lane[0], (f"queue {lane[0]}", False))
                yield self._device_of.get(lane[0], 0), name, self._tracks[lane], self._lanes[lane]

    def counter_track(self, process: int) -> int | None:
        """Return the track beside which a device's counters belong: its main one, or the first drawn one."""
        return self._counter_tracks.get(process)

    @functools.cached_property
    def _counter_tracks(self) -> dict[int, int]:
        beside: dict[int, int] = {}
        for track in self.tracks():
            if track.main or track.process not in beside:
                beside[track.process] = track.id
        return beside

    def _shown_lanes(self) -> list[_Lane]:
        return [lane for lane in self._lanes if self._chosen is None or next(self._chunks(lane), None) is not None]

    def _what(self) -> str:
        levels = ["layers"] if self._alignment.links.runs else []
        levels += ["operations"] if self._has_operations else []
        return " > ".join([*levels, "kernels"])

    def events(self, origin: int) -> Iterator[Slices]:
        """Yield the commands of each lane in columns, with their containers among them."""
        of_level = self.containers.passes, self.containers.layers, self.containers.operations
        for lane in self._shown_lanes():
            track, positions = self._tracks[lane], self._lanes[lane]
            shift = self._base.shift.get(self._device_of.get(lane[0], 0), 0) - origin
            for spans_of, commands, begins in self._chunks(lane):
                columns: list[Columns] = []
                places: list[Iterable[int]] = []
                for level, (make, spans) in enumerate(zip(of_level, spans_of, strict=True)):
                    if spans:
                        columns.append(make(track, shift, positions, spans))
                        places.append([4 * first + level for _, first, _, _ in spans])
                if commands:
                    drawn = [positions[number] for number in commands]
                    columns.append(self.commands.drawn(track, shift, drawn, begins))
                    places.append([4 * number + 3 for number in commands])
                yield Slices(track, columns, merged(*places) if len(columns) > 1 else None)

    def rows(self) -> Iterator[tuple[int, int, Sequence[int], Sequence[int]]]:
        """Yield (device, operation or `NONE`, positions, drawn positions) of unbroken rows with any drawn command."""
        operation_of = self._alignment.links.operation_of
        chosen = self._chosen
        for (queue, _, _), positions in self._lanes.items():
            for index, first, last in unbroken(operation_of, positions, 0, len(positions)):
                row = drawn = positions[first:last]
                if chosen is not None:
                    drawn = [position for position in row if chosen.drawn[position]]
                    row = row if index != NONE else drawn
                if drawn:
                    yield self._device_of.get(queue, 0), index, row, drawn

    def inside(self, row: Sequence[int]) -> Sequence[int]:
        """Return those of a row that are inside the selection."""
        chosen = self._chosen
        return row if chosen is None else [position for position in row if chosen.inside[position]]

    def positions(self) -> dict[int, Sequence[int]]:
        """Return device -> its activities with times, in order of start."""
        found: dict[int, list[Sequence[int]]] = {}
        for (queue, _, _), positions in self._lanes.items():
            found.setdefault(self._device_of.get(queue, 0), []).append(positions)
        activities = self._alignment.profile.activities
        return {
            device: lanes[0]
            if len(lanes) == 1
            else sorted((p for lane in lanes for p in lane), key=lambda p: (activities[p].start_ns, p))
            for device, lanes in sorted(found.items())
        }

    def _chunks(self, lane: _Lane) -> Iterator[_Chunk]:
        """Yield the drawn slices of a lane, a limited number at once. A container spans an unbroken row of its
        activities.

        Commands without length are drawn one by one.
        """
        positions, chosen, is_bare = self._lanes[lane], self._chosen, lane in self._bare
        for first in range(0, len(positions), _AT_ONCE):
            here = positions[first : first + _AT_ONCE]
            last = first + len(here)
            is_first: Sequence[bool] = [is_bare] * len(here)
            levels: list[Sequence[int]] = []
            spans_of: list[Sequence[Span]] = []
            begins: Sequence[int] = ()
            for key_of in self._levels:
                if key_of is None:
                    spans_of.append(())
                    continue
                levels.append(key_of)
                keys = [key_of[position] for position in here]
                before = key_of[positions[first - 1]] if first else None
                is_first = list(map(or_, is_first, map(ne, keys, chain((before,), keys))))
                begins = list(compress(range(first, last), is_first))
                until = last if is_bare or keys[-1] == NONE else _until(levels, positions, last)
                rows = zip(begins, [*begins[1:], until], strict=False)
                spans = [(key, begin, end, False) for begin, end in rows if (key := keys[begin - first]) != NONE]
                spans_of.append(spans if chosen is None else list(self._narrowed(chosen, positions, spans)))
            if chosen is None:
                at = [begin - first for begin in begins]
                yield _Chunk(spans_of, range(first, last), at if at[:1] == [0] else [0, *at])
                continue
            drawn = [number for number in range(first, last) if chosen.drawn[positions[number]]]
            if drawn or any(spans_of):
                at = sorted({bisect_left(drawn, begin) for begin in (first, *begins)} - {len(drawn)})
                yield _Chunk(spans_of, drawn, at)

    def _narrowed(self, chosen: Chosen, positions: Sequence[int], spans: Sequence[Span]) -> Iterator[Span]:
        """Return the parts of drawn containers that are inside the selection."""
        activities = self._alignment.profile.activities
        for number, first, last, _ in spans:
            begin, end = chosen.narrowed(positions, first, last)
            if begin < end:
                start, until = activities[positions[begin]].start_ns, activities[positions[end - 1]].end_ns
                if chosen.holds(positions[begin:end], start or 0, until or 0):
                    yield number, begin, end, end - begin < last - first


def _until(levels: Sequence[Sequence[int]], positions: Sequence[int], number: int) -> int:
    """Return where the row of the position before this one ends."""
    before = positions[number - 1]
    keys = [key_of[before] for key_of in levels]
    while number < len(positions) and [key_of[positions[number]] for key_of in levels] == keys:
        number += 1
    return number


# -- The names of devices and their rows: from the profiler; OpenCL's have only numbers
# ---------------------------------


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
