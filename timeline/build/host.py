"""The host's side: profiled API calls with arrows to what they enqueued, and layers and passes as the host saw them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from timeline.align import Alignment
from timeline.build.base import TimeBase
from timeline.build.device import DeviceSide, short_name
from timeline.model.log import FrameworkLog
from timeline.model.profile import Enqueue, HostCall
from timeline.trace import NO_ARGS, Args, Event, Flow, Process, Slice, Track

_API = 1
_LAYERS = 2
_LOG = 3

_Span = tuple[int, int, str, str, Args, Args]
"""(start, end, name, category, arguments, arguments shared with others), on the axis of the trace."""


class HostSide:
    """Draws the host of one profile; nothing where host times are missing or not related to the device's."""

    def __init__(
        self,
        alignment: Alignment,
        base: TimeBase,
        device: DeviceSide,
        process: int,
        logs: Sequence[FrameworkLog],
        host_calls: str,
        suffix: str,
    ) -> None:
        self._alignment = alignment
        self._base = base
        self._process = process
        self._suffix = suffix
        self._device = device
        self._device_of = {queue.index: queue.device for queue in alignment.profile.queues}
        self._calls = self._select(host_calls)
        self._layers = self._layer_spans()
        self._log = self._log_spans(logs)

    def _select(self, host_calls: str) -> list[tuple[int, Enqueue | HostCall]]:
        """Calls that can be drawn, in call order: (position among the enqueues or -1, call)."""
        if host_calls == "none" or self._base.host(0) is None:
            return []
        profile = self._alignment.profile
        calls: list[tuple[int, Enqueue | HostCall]] = [
            (position, enqueue)
            for position, enqueue in enumerate(profile.enqueues)
            if enqueue.host_start_ns is not None and enqueue.host_end_ns is not None
        ]
        others = [(-1, call) for call in profile.host_calls if call.start_ns is not None and call.end_ns is not None]
        if others:
            calls += others
            calls.sort(key=lambda pair: pair[1].call_index)
        return calls

    def _layer_spans(self) -> list[_Span]:
        """Layers whose host span is known, inside their passes."""
        placement = self._alignment.placement
        by_pass: dict[int, list[_Span]] = {}
        shared: dict[tuple[int, str, int | None], dict[str, Any]] = {}
        for run in placement.runs:
            if run.host_start_ns is None or run.host_end_ns is None:
                continue
            start, end = self._base.host(run.host_start_ns), self._base.host(run.host_end_ns)
            if start is None or end is None or end < start:
                continue
            key = (run.layer_index, run.direction, run.printed_ns)
            same = shared.get(key)
            if same is None:
                same = shared[key] = {
                    "layer": run.layer,
                    "layer_index": run.layer_index,
                    "direction": run.direction,
                }
                if run.printed_ns is not None:
                    same["printed_ns"] = run.printed_ns
            by_pass.setdefault(run.pass_, []).append((start, end, run.layer, "layer", same, NO_ARGS))
        spans: list[_Span] = []
        for number, layers in by_pass.items():
            layers = _without_overlap(layers)
            pass_ = placement.passes[number]
            args: dict[str, Any] = {}
            if pass_.direction is not None:
                args["direction"] = pass_.direction
            if pass_.iteration is not None:
                args["iteration"] = pass_.iteration
                iteration = {"iteration": pass_.iteration}
            else:
                iteration = {}
            spans.append((layers[0][0], max(layer[1] for layer in layers), pass_.name, "pass", args, NO_ARGS))
            spans += [(start, end, name, category, iteration, one) for start, end, name, category, one, _ in layers]
        spans.sort(key=lambda span: (span[0], -span[1]))
        return spans if _nested(spans) else []

    def _log_spans(self, logs: Sequence[FrameworkLog]) -> list[tuple[int, int, str, dict[str, Any]]]:
        """What the log itself bounds: warm-up and iterations, as printed."""
        clock = self._alignment.log_clock
        if clock is None:
            return []
        spans: list[tuple[int, int, str, dict[str, Any]]] = []
        for log in logs:
            opened: tuple[int, str] | None = None
            for event in log.events:
                if event.stamp is None:
                    continue
                at = self._base.host(clock.to_host(event.stamp))
                if at is None:
                    continue
                if event.kind in ("forward begins", "backward begins"):
                    opened = at, f"warm-up · {'forward' if event.kind == 'forward begins' else 'backward'}"
                elif event.kind in ("forward ends", "benchmark begins") and opened is not None:
                    spans.append((opened[0], at, opened[1], {"iteration": 0, "line": event.line}))
                    opened = None
                elif event.kind == "iteration" and event.duration_ns is not None:
                    args: dict[str, Any] = {"line": event.line, "printed_ns": event.duration_ns}
                    if event.number is not None:
                        args["iteration"] = event.number
                    spans.append((at - event.duration_ns, at, f"iteration {event.number}", args))
        spans.sort(key=lambda span: span[0])
        kept: list[tuple[int, int, str, dict[str, Any]]] = []
        for start, end, name, args in spans:
            start = max(start, kept[-1][1]) if kept else start
            if end > start:
                kept.append((start, end, name, args))
        return kept

    def first_ns(self) -> int | None:
        starts = [span[0] for span in self._layers[:1]] + [span[0] for span in self._log[:1]]
        starts += [start for _, call in self._calls[:1] if (start := self._base.host(_times(call)[0])) is not None]
        return min(starts, default=None)

    def last_ns(self) -> int | None:
        ends = [span[1] for span in self._layers] + [span[1] for span in self._log[-1:]]
        ends += [end for _, call in self._calls[-1:] if (end := self._base.host(_times(call)[1])) is not None]
        return max(ends, default=None)

    def processes(self) -> list[Process]:
        if not self._calls and not self._layers and not self._log:
            return []
        return [Process(id=self._process, name=f"Host{self._suffix}", sort=0)]

    def _track(self, which: int) -> int:
        return self._process * 10 + which

    def tracks(self) -> list[Track]:
        present = (
            (_API, "OpenCL API", self._calls),
            (_LAYERS, "Layers on the host", self._layers),
            (_LOG, "Log", self._log),
        )
        return [
            Track(id=self._track(which), process=self._process, name=name, sort=which)
            for which, name, content in present
            if content
        ]

    def events(self, origin: int) -> Iterator[Event]:
        for start, end, name, printed in self._log:
            yield Slice(self._track(_LOG), start - origin, end - start, name, "log", printed)
        track = self._track(_LAYERS)
        for start, end, name, category, args, shared in self._layers:
            yield Slice(track, start - origin, end - start, name, category, args, shared)
        yield from self._api(origin)

    def _api(self, origin: int) -> Iterator[Event]:
        track = self._track(_API)
        shift = self._base.shift
        offset = self._base.constant_offset
        device_of = self._device_of
        done = -(1 << 62)
        number = (self._process - 1) << 32  # unique over the profiles of a trace
        shared: dict[str, dict[str, Any]] = {}
        for position, call in self._calls:
            start, end = _times(call)
            if offset is not None:
                start, end = start - offset, end - offset
            else:
                start, end = self._base.host(start) or 0, self._base.host(end) or 0
            # Calls of one thread do not overlap; only a wall clock that was set back makes it look so.
            if start < done:
                start = done
            if end < start:
                end = start
            done = end
            args = {"call_index": call.call_index}
            if not isinstance(call, Enqueue):
                yield Slice(track, start - origin, end - start, call.name, "api", args)
                continue
            if call.kind == "kernel":
                kernel = shared.get(call.name)
                if kernel is None:
                    kernel = shared[call.name] = {"kernel": short_name(call.name)}
                yield Slice(track, start - origin, end - start, "clEnqueueNDRangeKernel", "api", args, kernel)
            else:
                yield Slice(track, start - origin, end - start, call.name, "api", args)
            if call.start_ns is not None:
                begin = call.start_ns + shift.get(device_of.get(call.queue, 0), 0)
                if start <= begin:
                    number += 1
                    target = self._device.track_of(position)
                    yield Flow(number, "enqueue", track, start - origin, target, begin - origin)


def _times(call: Enqueue | HostCall) -> tuple[int, int]:
    """Host times of a call that was selected for having them."""
    start, end = (call.host_start_ns, call.host_end_ns) if isinstance(call, Enqueue) else (call.start_ns, call.end_ns)
    assert start is not None and end is not None
    return start, end


def _without_overlap(layers: list[_Span]) -> list[_Span]:
    """Layers in order, each clipped to the end of the one before (containers may be clipped, kernels never)."""
    kept: list[_Span] = []
    done = layers[0][0] if layers else 0
    for start, end, name, category, args, shared in sorted(layers, key=lambda span: (span[0], span[1])):
        start = max(start, done)
        done = max(start, end)
        kept.append((start, done, name, category, args, shared))
    return kept


def _nested(spans: Sequence[_Span]) -> bool:
    """Passes must not overlap each other; where stamps make them, nothing is drawn rather than something wrong."""
    passes = [span for span in spans if span[3] == "pass"]
    return all(before[1] <= after[0] for before, after in pairwise(passes))
