"""Additional tracks: a row for each kernel name, a row for each type of operation.

The nested track has the same kernels and operations. The slices here have categories of their own (``kernel by name``,
``operation by type``), so that no query and no check counts a kernel twice, and no arrow ends at them. Their few
arguments lead to the slice on the nested track.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from mio2trace.align import NONE, Alignment
from mio2trace.align.clocks.axis import LONGEST_NS, MIDDLE_OF_2000_NS, local_ns
from mio2trace.align.layers.net import NetLayerSpec, read_net
from mio2trace.draw.base import Ids, TimeBase
from mio2trace.draw.device import DeviceSide
from mio2trace.draw.lanes import packed_spans
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.notes import Notes
from mio2trace.ops.operation import operation_type
from mio2trace.trace import Event, Process, Slice, Track

Tracks = Literal["kernels", "operations"]

_TITLES: dict[Tracks, str] = {"kernels": "Kernels by name", "operations": "Operations by type"}
_CATEGORIES: dict[Tracks, str] = {"kernels": "kernel by name", "operations": "operation by type"}
_HELP: dict[Tracks, str] = {
    "kernels": "One row per kernel name, most time first. Each slice has the name of the kernel's layer, if it has a"
    " layer; the kernel itself, with its arguments, is on the nested track.",
    "operations": "One row per type of operation, most time first. The operations themselves, with their arguments, are"
    " on the nested track.",
}
_NO_LAYER = "(no layer)"
_UNUSUAL = re.compile(r"[^\w .,:;<>()*&~+=-]+")


class _Shown(NamedTuple):
    start: int
    end: int
    name: str
    args: dict[str, Any]


class ByNameSide:
    """The rows of one profile, with a process for each device and kind. ``next_process``: the next free number."""

    def __init__(
        self,
        alignment: Alignment,
        base: TimeBase,
        device: DeviceSide,
        kinds: Sequence[Tracks],
        first_process: int,
        suffix: str,
        ids: Ids,
    ) -> None:
        self._ids = ids
        self._alignment = alignment
        self._base = base
        self._device = device
        self._kinds = [kind for kind in _TITLES if kind in kinds]
        self._suffix = suffix
        self._first_process = first_process
        self._processes: list[Process] = []
        self._tracks: list[tuple[Track, str, list[_Shown]]] = []
        self.next_process = first_process

    def fill(self) -> None:
        several = len(self._device.process_of) > 1
        for kind in self._kinds:
            for device, rows in sorted(self._found(kind).items()):
                title = f"{_TITLES[kind]}{f', device {device}' if several else ''}{self._suffix}"
                process = track = self._ids.take(self.next_process)
                self._processes.append(
                    Process(id=process, name=title, sort=-5 + len(self._processes), description=_HELP[kind])
                )
                order = sorted(rows, key=lambda name: (-sum(one.end - one.start for one in rows[name]), name))
                for name in order:
                    for lane, shown in enumerate(packed_spans(rows[name], lambda one: (one.start, one.end))):
                        track = self._ids.take(track + 1)
                        label = f"{name} ({lane + 1})" if lane else name
                        row = Track(id=track, process=process, name=label, sort=track)
                        self._tracks.append((row, _CATEGORIES[kind], shown))
                self.next_process = track - track % 100 + 100

    def _found(self, kind: Tracks) -> dict[int, dict[str, list[_Shown]]]:
        """Return device -> row -> its content."""
        commands = self._alignment.profile.commands
        links = self._alignment.links
        operations = {operation.index: operation for operation in self._alignment.links.operations}
        found: dict[int, dict[str, list[_Shown]]] = {}
        for device, index, row, drawn in self._device.rows():
            rows = found.setdefault(device, {})
            if kind == "operations":
                if index != NONE:
                    operation, row = operations[index], self._device.inside(row)
                    name, _ = self._device.containers.shown(operation)
                    span = [self._base.device(device, int(at))
                            for at in (commands.start_ns[row[0]], commands.end_ns[row[-1]])]  # fmt: skip
                    shown = _Shown(span[0], span[1], name, {"operation": index, **self._layer(row[0])})
                    rows.setdefault(f"{operation_type(operation)} calls", []).append(shown)
                continue
            for position in drawn[commands.is_kernel[drawn]].tolist():
                start, end = (
                    self._base.device(device, int(at[position])) for at in (commands.start_ns, commands.end_ns)
                )
                run = links.run_of[position]
                name = self._device.commands.slice_names[commands.name.values[commands.name.codes[position]]]
                args = {"call_index": int(commands.number[position]), **self._layer(position)}
                if index != NONE:
                    args["operation"] = index
                label = _NO_LAYER if links.runs else name
                label = label if run == NONE else links.runs[run].layer
                rows.setdefault(_UNUSUAL.sub("_", name), []).append(_Shown(start, end, label, args))
        return {device: rows for device, rows in found.items() if rows}

    def _layer(self, position: int) -> dict[str, Any]:
        run = self._alignment.links.run_of[position]
        return {} if run == NONE else {"layer": self._alignment.links.runs[run].layer}

    def first_ns(self) -> int | None:
        return None  # the time is the device's

    def last_ns(self) -> int | None:
        return None

    def processes(self) -> list[Process]:
        return self._processes

    def tracks(self) -> list[Track]:
        return [track for track, _, _ in self._tracks]

    def events(self, origin: int) -> Iterator[Event]:
        for track, category, shown in self._tracks:
            for one in shown:
                yield Slice(track.id, one.start - origin, one.end - one.start, one.name, category, one.args)


# -- A log without a profile: its printed layer times, end to end; no kernel is made up --------------------------------


class PrintedSide:
    """One iteration of printed means in execution order; and the iterations themselves if the log has their stamps."""

    def __init__(self, logs: Sequence[FrameworkLog], process: int, notes: Notes, ids: Ids, suffix: str = "") -> None:
        self._process = ids.take(process)
        self._suffix = suffix
        self._layers, self._log = ids.take(process * 10 + 1), ids.take(process * 10 + 2)
        self._net = read_net(logs, Notes())
        self._iterations: list[tuple[int, int, str, dict[str, Any]]] = []
        found = []
        for log in logs:
            for event in log.events:
                if event.kind == "iteration" and event.stamp is not None and event.duration_ns:
                    found.append((local_ns(event.stamp, MIDDLE_OF_2000_NS), event.duration_ns, event))
        around = sorted(end for end, _, _ in found)[len(found) // 2] if found else 0
        for end, duration, event in found:
            start = end - duration
            if max(end - around, around - start) > LONGEST_NS // 2:
                notes.add("iteration far in time from all others: left out")
                continue
            args: dict[str, Any] = {"line": event.line, "printed_ns": duration}
            if event.number is not None:
                args["iteration"] = event.number
            if self._iterations:
                start = max(start, self._iterations[-1][1])
            if end > start:
                self._iterations.append((start, end, f"iteration {event.number}", args))
        self._directions = self._laid_out(notes)

    def _laid_out(self, notes: Notes) -> dict[Direction, list[tuple[NetLayerSpec, int]]]:
        """Yield the layers with their printed times, as long as there is room for them."""
        room = LONGEST_NS
        found: dict[Direction, list[tuple[NetLayerSpec, int]]] = {"forward": [], "backward": []}
        for layer, direction in self._net.execution_order():
            printed = layer.printed_ns(direction) or 0
            if printed > room:
                notes.add("layer's printed time longer than a trace: left out")
            elif printed:
                room -= printed
                found[direction].append((layer, printed))
        return found

    def first_ns(self) -> int | None:
        return self._iterations[0][0] if self._iterations else 0

    def last_ns(self) -> int | None:
        return self._iterations[-1][1] if self._iterations else self._length()

    def _length(self) -> int:
        return sum(printed for layers in self._directions.values() for _, printed in layers)

    def processes(self) -> list[Process]:
        return [Process(id=self._process, name=f"Host (printed times only){self._suffix}")]

    def tracks(self) -> list[Track]:
        tracks = []
        if self._length():
            tracks.append(Track(id=self._layers, process=self._process, name="Printed layer times, laid end to end"))
        if self._iterations:
            tracks.append(Track(id=self._log, process=self._process, name="Log", sort=1))
        return tracks

    def events(self, origin: int) -> Iterator[Event]:
        for start, end, name, args in self._iterations:
            yield Slice(self._log, start - origin, end - start, name, "log", args)
        at = 0
        track = self._layers
        for direction, layers in self._directions.items():
            total = sum(printed for _, printed in layers)
            if not total:
                continue
            yield Slice(track, at, total, f"mean iteration · {direction}", "pass", {"direction": direction})
            for layer, printed in layers:
                shown: dict[str, Any] = {
                    "layer": layer.layer,
                    "layer_index": layer.index,
                    "direction": direction,
                    "printed_ns": printed,
                }
                if layer.output:
                    shown["output"] = layer.output
                yield Slice(track, at, printed, layer.layer, "layer", shown)
                at += printed
