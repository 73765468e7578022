"""The device's side: kernels and copies under layers under passes, one nested track per queue (trace-contract.md 1)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

from mio2trace.align import NONE
from mio2trace.draw.base import ROW, TimeBase
from mio2trace.draw.device.commands import Commands
from mio2trace.draw.device.containers import Containers
from mio2trace.draw.ids import Ids
from mio2trace.draw.lanes import by_queue, indistinct, packed, unbroken
from mio2trace.draw.names import device_names, device_of, row_names
from mio2trace.draw.selection import Chosen
from mio2trace.measures import Measures
from mio2trace.model.profile import Activity
from mio2trace.trace import Process, Slice, Slices, Track

APART = 0.1
"""Part of a device's kernel time, from which on a stream is shown without opening the group of the device."""
Fold = Literal["find", "set-up", "warm-up"]
"""What may stand on a track of its own, so that the iterations stand alone: searches, all before the warm-up, it."""
_FOLDED = {"find": "Find", "set-up": "Set-up", "warm-up": "Warm-up"}

_Lane = tuple[int, int, str]
"""(queue, overflow lane, what is folded there or nothing)."""

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


class DeviceSide:
    """Draws one profile's activities that have device times. Overlaps that do not nest go to overflow lanes.

    ``process_of`` numbers the devices' processes from ``first_process`` on, ``track_of`` the lanes within; viewers show
    the numbers beside the names. ``next_process`` is free. ``fold`` puts parts of the run on tracks of their own.
    ``measures`` are the profile's; ``process`` tells its slices from those of others of the picture.
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
        self._has_operations = alignment.links.has_operations  # looked for once, not in each lane
        self._chosen: Chosen | None = None
        self._fold = fold
        self._base = base
        self._suffix = suffix
        self._device_name = device_name
        self._device_of = {queue.index: queue.device for queue in alignment.profile.queues}
        self._operations = measures.operation_at
        measures.sum_up()  # once: where a writer draws in two processes both ask for it
        self.containers = Containers(measures, base, process)
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
        """Draw no more than that from now on; numbers and lanes stay."""
        self._chosen = chosen

    def track_of(self, activity: Activity) -> int:
        """The track that an activity with device times is drawn on."""
        track = self._elsewhere.get(id(activity)) if self._elsewhere else None
        return self._first_of[activity.queue] if track is None else track

    def _pack(self) -> dict[_Lane, Sequence[int]]:
        """Lane -> positions in order of start; what is folded comes last."""
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
        """On which of the tracks for what is folded an activity is drawn."""
        links = self._alignment.links
        operation = self._operations.get(self._alignment.links.operation_of[position])
        if "find" in self._fold and operation is not None and operation.phase == "find":
            return "find"
        number = links.pass_of[position]
        phase = "" if number == NONE else links.passes[number].phase
        if phase == "setup" and "set-up" in self._fold:
            return "set-up"
        return "warm-up" if phase == "warm-up" and "warm-up" in self._fold else ""

    def first_ns(self, *, inside: bool = False) -> int | None:
        """When the first of what is drawn begins; ``inside``: of what layers that are drawn may begin with."""
        return min((self._base.device(device, start) for device, start, _ in self._reaches(inside)), default=None)

    def last_ns(self) -> int | None:
        return max((self._base.device(device, end) for device, _, end in self._reaches()), default=None)

    def _reaches(self, inside: bool = False) -> Iterator[tuple[int, int, int]]:
        """(device, start, end) of the first and the last that each lane draws."""
        activities = self._alignment.profile.activities
        chosen = self._chosen
        for (queue, _, _), positions in self._lanes.items():
            if chosen is not None:
                shown = chosen.inside if inside else chosen.drawn
                positions = [position for position in positions if shown[position]]
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
        """Of each device the lane on which most ran."""
        most: dict[int, _Lane] = {}
        for lane in self._shown_lanes():
            if lane[1:] == (0, ""):
                device = self._device_of.get(lane[0], 0)
                most[device] = max(most.get(device, lane), lane, key=lambda one: len(self._lanes[one]))
        return set(most.values())

    @functools.cached_property
    def _apart(self) -> set[_Lane]:
        """Other lanes that take more than `APART` of a device's kernel time, such as the stream of the collectives."""
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
        """Of each lane that is shown apart: device, name of its row, track, positions in order of start."""
        names = row_names(self._alignment.profile)
        for lane in self._shown_lanes():
            if lane in self._apart:
                name, _ = names.get(lane[0], (f"queue {lane[0]}", False))
                yield self._device_of.get(lane[0], 0), name, self._tracks[lane], self._lanes[lane]

    def counter_track(self, process: int) -> int | None:
        """The track beside whose slices a device's counters belong: its main one, or the first that is drawn."""
        return self._counter_tracks.get(process)

    @functools.cached_property
    def _counter_tracks(self) -> dict[int, int]:
        beside: dict[int, int] = {}
        for track in self.tracks():
            if track.main or track.process not in beside:
                beside[track.process] = track.id
        return beside

    def _shown_lanes(self) -> list[_Lane]:
        """Those on which anything is drawn."""
        chosen = self._chosen
        if chosen is None:
            return list(self._lanes)
        return [
            lane for lane, positions in self._lanes.items() if next(self._pieces(lane, positions, 0), None) is not None
        ]

    def _what(self) -> str:
        levels = ["layers"] if self._alignment.links.runs else []
        levels += ["operations"] if self._has_operations else []
        return " > ".join([*levels, "kernels"])

    def events(self, origin: int) -> Iterator[Slices]:
        """Of each lane its commands in columns, with what they are in among them."""
        for lane in self._shown_lanes():
            track, shift = self._tracks[lane], self._base.shift.get(self._device_of.get(lane[0], 0), 0) - origin
            drawn: list[int] = []
            begins: list[int] = []
            among: list[tuple[int, Slice]] = []
            for piece in self._pieces(lane, self._lanes[lane], origin):
                if isinstance(piece, Slice):
                    among.append((len(drawn), piece))
                else:
                    begins.append(len(drawn))
                    drawn += piece
                if len(drawn) + len(among) >= ROW:
                    yield self.commands.drawn(track, shift, drawn, begins, among)
                    drawn, begins, among = [], [], []
            if drawn or among:
                yield self.commands.drawn(track, shift, drawn, begins, among)

    def rows(self) -> Iterator[tuple[int, int, Sequence[int], Sequence[int]]]:
        """(device, operation or `NONE`, positions, those of them that are drawn) of unbroken rows, if any is drawn."""
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
        """Those of a row that are in what is chosen."""
        chosen = self._chosen
        return row if chosen is None else [position for position in row if chosen.inside[position]]

    def positions(self) -> dict[int, Sequence[int]]:
        """Device -> its activities with times, in order of start."""
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

    def _pieces(self, lane: _Lane, positions: Sequence[int], origin: int) -> Iterator[Slice | Sequence[int]]:
        """What is drawn of a lane, in order: slices, and the positions of commands of one pass, run and operation.

        Where commands have no length each stands for itself.
        """
        rows = [[position] for position in positions] if lane in self._bare else [positions]
        return chain.from_iterable(self._row(lane, row, origin) for row in rows)

    def _row(self, lane: _Lane, positions: Sequence[int], origin: int) -> Iterator[Slice | Sequence[int]]:
        """Passes, the layers in them, and their kernels; a container spans an unbroken row of its activities."""
        track, device = self._tracks[lane], self._device_of.get(lane[0], 0)
        for pass_, *in_pass in unbroken(self._alignment.links.pass_of, positions, 0, len(positions)):
            first, last, cut = self._narrowed(positions, *in_pass)
            if pass_ != NONE and self._is_shown(positions, first, last):
                yield self.containers.of_pass(track, device, pass_, positions[first:last], origin, cut)
            yield from self._in_pass(track, device, positions, in_pass, origin)

    def _in_pass(
        self, track: int, device: int, positions: Sequence[int], in_pass: Sequence[int], origin: int
    ) -> Iterator[Slice | Sequence[int]]:
        links = self._alignment.links
        operation_of = links.operation_of if self._has_operations else None
        everything, of_operation = self._chosen is None, self.containers.of_operation
        for run, *in_run in unbroken(links.run_of, positions, *in_pass):
            begin, end, cut = self._narrowed(positions, *in_run)
            if run != NONE and self._is_shown(positions, begin, end):
                yield self.containers.of_layer(track, device, run, positions[begin:end], origin, cut)
            if operation_of is None:
                yield from self._commands(positions[begin:end])
                continue
            for index, first, last in unbroken(operation_of, positions, *in_run):
                if everything and last - first <= ROW:  # as below, without the questions
                    row = positions[first:last]
                    if index != NONE:
                        yield of_operation(track, device, index, row, origin, False)
                    yield row
                    continue
                opened, closed, cut = self._narrowed(positions, first, last)
                if index != NONE and self._is_shown(positions, opened, closed):
                    yield of_operation(track, device, index, positions[opened:closed], origin, cut)
                yield from self._commands(positions[opened:closed])

    def _commands(self, positions: Sequence[int]) -> Iterator[Sequence[int]]:
        """Those of a row that are drawn, not too many at once."""
        if self._chosen is not None:
            drawn = self._chosen.drawn
            positions = [position for position in positions if drawn[position]]
        for begin in range(0, len(positions), ROW):
            yield positions[begin : begin + ROW]

    def _narrowed(self, positions: Sequence[int], first: int, last: int) -> tuple[int, int, bool]:
        """The part of a row that is inside what is chosen, and whether that is less than all of it."""
        if self._chosen is None:
            return first, last, False
        begin, end = self._chosen.narrowed(positions, first, last)
        return begin, end, end - begin < last - first

    def _is_shown(self, positions: Sequence[int], first: int, last: int) -> bool:
        """Whether a container of this row is drawn."""
        if self._chosen is None:
            return True
        if first == last:
            return False
        activities = self._alignment.profile.activities
        start, end = activities[positions[first]].start_ns, activities[positions[last - 1]].end_ns
        return self._chosen.holds(positions[first:last], start or 0, end or 0)
