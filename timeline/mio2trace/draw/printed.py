"""A log without a profile: its printed layer times, end to end, named as such. No kernel is made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mio2trace.align.clocks.fit import MIDDLE_OF_2000_NS, local_ns
from mio2trace.align.clocks.reach import LONGEST_NS, middle
from mio2trace.align.layers.net import NetLayerSpec, read_net
from mio2trace.draw.base import Ids
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.notes import Notes
from mio2trace.trace import Event, Process, Slice, Track


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
        around = middle([end for end, _, _ in found]) if found else 0
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
