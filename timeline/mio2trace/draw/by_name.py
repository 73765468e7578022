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
from mio2trace.draw.base import Ids, TimeBase
from mio2trace.draw.device import DeviceSide
from mio2trace.draw.lanes import packed_spans
from mio2trace.ops.naming import operation_type
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
