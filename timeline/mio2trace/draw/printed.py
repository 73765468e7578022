"""A log alone: the layer times it printed, laid end to end, and named for what they are. No kernel is made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mio2trace.align.clocks.fit import MIDDLE_OF_2000_NS, local_ns
from mio2trace.align.layers.net import read_net
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.notes import Notes
from mio2trace.trace import Event, Process, Slice, Track


class PrintedSide:
    """One iteration of printed means in execution order; and the iterations themselves where the log stamps them."""

    def __init__(self, logs: Sequence[FrameworkLog], process: int) -> None:
        self._process = process
        self._net = read_net(logs, Notes())
        self._iterations: list[tuple[int, int, str, dict[str, Any]]] = []
        for log in logs:
            for event in log.events:
                if event.kind == "iteration" and event.stamp is not None and event.duration_ns:
                    end = local_ns(event.stamp, MIDDLE_OF_2000_NS)
                    args: dict[str, Any] = {"line": event.line, "printed_ns": event.duration_ns}
                    if event.number is not None:
                        args["iteration"] = event.number
                    start = end - event.duration_ns
                    if self._iterations:
                        start = max(start, self._iterations[-1][1])
                    if end > start:
                        self._iterations.append((start, end, f"iteration {event.number}", args))

    def first_ns(self) -> int | None:
        return self._iterations[0][0] if self._iterations else 0

    def last_ns(self) -> int | None:
        return self._iterations[-1][1] if self._iterations else self._length()

    def _length(self) -> int:
        return sum(layer.printed_ns(direction) or 0 for layer, direction in self._net.execution_order())

    def processes(self) -> list[Process]:
        return [Process(id=self._process, name="Host (printed times only)")]

    def tracks(self) -> list[Track]:
        tracks = []
        if self._length():
            tracks.append(
                Track(id=self._process * 10 + 1, process=self._process, name="Printed layer times, laid end to end")
            )
        if self._iterations:
            tracks.append(Track(id=self._process * 10 + 2, process=self._process, name="Log", sort=1))
        return tracks

    def events(self, origin: int) -> Iterator[Event]:
        for start, end, name, args in self._iterations:
            yield Slice(self._process * 10 + 2, start - origin, end - start, name, "log", args)
        at = 0
        track = self._process * 10 + 1
        directions: tuple[Direction, ...] = ("forward", "backward")
        for direction in directions:
            layers = [
                (layer, printed)
                for layer, way in self._net.execution_order()
                if way == direction and (printed := layer.printed_ns(direction))
            ]
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
