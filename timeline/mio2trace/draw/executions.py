"""TensorFlow's ops: steps, layers and scopes over op executions, by device and stream (tfprof.md 7).

A lane is a row of executions that do not overlap; the profile has no threads. Scopes enclose an unbroken row of
executions of a lane in one step: a scope whose ops run on several lanes, or in between others, is drawn in parts.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mio2trace.align.clocks.reach import LONGEST_NS, middle
from mio2trace.align.layers.scopes import Device, layer_of
from mio2trace.draw.base import TimeBase, six_digits
from mio2trace.draw.ids import Ids
from mio2trace.draw.lanes import packed_alike, packed_spans
from mio2trace.model.tf import Execution, OpMemory, TfNode, TfProfile
from mio2trace.notes import Notes
from mio2trace.trace import CounterValue, Event, Process, Slice, Track

_TASK = re.compile(r"/job:(?P<job>[a-z_]{1,20})(?:/replica:(?P<replica>\d+))?(?:/task:(?P<task>\d+))?")
_STREAM = re.compile(r"(?:.*/)?stream:(\d{1,9})", re.ASCII)
_FAR_NS = LONGEST_NS // 2
"""What lies further from the middle of all is damage."""
_DEEPEST = 60


class _Run(NamedTuple):
    """An execution to draw. ``step`` is its step's place among those of all profiles."""

    start: int
    end: int
    step: int
    path: tuple[str, ...]
    node: TfNode
    args: dict[str, Any]


_Step = tuple[int, int | None]
"""(which profile, its step); the step is None where the profile does not tell it."""


class _Found(NamedTuple):
    """An execution as read. ``memory`` is that of an op, where the source has one for each."""

    node: TfNode
    step: _Step
    execution: Execution
    memory: OpMemory | None


class _Span(NamedTuple):
    """A step or a layer: a slice that is made of executions."""

    start: int
    end: int
    name: str
    category: str
    args: dict[str, Any]


_FAR_RUN_NS = 60 * 10**9
"""What ran a minute before or after the profile is of another run: its program had ended, or not yet begun."""


def execution_side(
    profiles: Sequence[TfProfile],
    base: TimeBase | None,
    profiled: tuple[int, int] | None,
    process: int,
    first_device: int,
    notes: Notes,
    ids: Ids,
    suffix: str = "",
) -> ExecutionSide | None:
    """TensorFlow's part of the picture, on the axis of ``base``, or on the host's where there is no other profile.

    ``profiled`` is from when to when the other profile reaches on its axis. None, with a note, where the clocks are not
    related or the profiles are of different runs: where the ops would lie is not known then, and not guessed.
    """
    if base is None:
        return ExecutionSide(profiles, lambda ns: ns, process, first_device, notes, ids, suffix)
    starts = [one.start_ns for profile in profiles for node in profile.nodes for step in node.steps
              for one in step.executions]  # fmt: skip
    first = base.host(min(starts)) if starts else 0
    last = base.host(max(starts)) if starts else 0
    if first is None or last is None:
        notes.add("the profile's clock is not related to the host's: TensorFlow's ops are not drawn beside it")
        return None
    if profiled is not None and (first > profiled[1] + _FAR_RUN_NS or last < profiled[0] - _FAR_RUN_NS):
        notes.add("TensorFlow's profile is of another time than the other: its ops are not drawn beside it")
        return None

    def to_axis(ns: int) -> int:
        at = base.host(ns)
        assert at is not None
        return at

    return ExecutionSide(profiles, to_axis, process, first_device, notes, ids, suffix)


class _Row:
    """A track and its overflow lanes: runs, or spans. ``rank``: its place among those of its process, then by name."""

    def __init__(self, process: int, name: str, rank: int = 2) -> None:
        self.process = process
        self.name = name
        self.rank = rank
        self.lanes: list[list[_Run]] = []
        self.spans: list[list[_Span]] = []
        self.tracks: list[int] = []


class ExecutionSide:
    """Draws the executions of TensorFlow profiles, on the axis that ``to_axis`` brings host times to.

    ``process`` is the number of the host's process; devices follow from ``first_device``, where the tracks' numbers
    begin, too. Of several profiles an execution that two of them hold is drawn once.
    """

    def __init__(
        self,
        profiles: Sequence[TfProfile],
        to_axis: Callable[[int], int],
        process: int,
        first_device: int,
        notes: Notes,
        ids: Ids,
        suffix: str = "",
    ) -> None:
        self._ids = ids
        self._suffix = suffix
        self._host = ids.take(process)
        self._next = first_device
        self._notes = notes
        self._shared: dict[str, dict[str, Any]] = {}
        self._rows: dict[object, _Row] = {}
        self._processes: dict[tuple[str, str, int], Process] = {}
        self._counters: dict[tuple[int, str], dict[int, int]] = {}
        found = list(self._gathered(profiles))
        if found:
            at = middle([one.execution.start_ns for one in found])
            near = [
                one
                for one in found
                if at - _FAR_NS < one.execution.start_ns <= one.execution.start_ns + one.execution.dur_ns < at + _FAR_NS
            ]
            if len(near) < len(found):
                notes.add("execution far from all others left out", count=len(found) - len(near))
            self._tasks = {Device.of(one.execution.device).host for one in near}
            self._fill(near, to_axis)
        # Where a profile's executions end the picture does, whatever its steps say.
        self.first = min((run.start for run in self._runs()), default=None)
        self.last = max((run.end for run in self._runs()), default=None)
        self._number()

    def _gathered(self, profiles: Sequence[TfProfile]) -> Iterator[_Found]:
        """Every execution once, with its memory where the source has one for each."""
        seen: set[tuple[str, str, int]] = set()
        twice = 0
        for number, profile in enumerate(profiles):
            held: list[tuple[str, str, int]] = []
            streams = _on_streams(profile)
            for node in profile.nodes:
                for step in node.steps:
                    ops = [one for one in step.executions if one.kind == "cpu"]
                    memory: Iterator[OpMemory] = iter(step.memory if len(step.memory) == len(ops) else ())
                    key = number, step.step if profile.numbered else None
                    for one in step.executions:
                        own = next(memory, None) if one.kind == "cpu" else None
                        if one.kind == "accelerator" and streams[node.name, one.start_ns, one.dur_ns] > 0:
                            streams[node.name, one.start_ns, one.dur_ns] -= 1  # drawn on its own stream
                            continue
                        place = node.name, one.device, one.start_ns
                        if place in seen:
                            twice += 1
                            continue
                        held.append(place)
                        yield _Found(node, key, one, own)
            seen.update(held)
        if twice:
            self._notes.remark("execution that two of TensorFlow's profiles hold drawn once", count=twice)

    def _fill(self, found: Sequence[_Found], to_axis: Callable[[int], int]) -> None:
        by_row: dict[object, list[_Run]] = {}
        steps: dict[_Step, list[tuple[int, int, Execution]]] = {}
        layers: dict[int, list[tuple[int, int, int, _Step, str, str]]] = {}
        order = {step: at for at, step in enumerate(dict.fromkeys(one.step for one in found))}
        for node, step, one, memory in found:
            device = Device.of(one.device)
            start = to_axis(one.start_ns)
            end = max(start, to_axis(one.start_ns + one.dur_ns))
            args = _step_args(step)
            if memory is not None:
                args["requested_bytes"] = memory.requested_bytes
                args["peak_bytes"] = memory.peak_bytes
                args["output_bytes"] = memory.output_bytes
                if device.kind == "gpu" and memory.in_use_bytes:
                    self._count(device, to_axis(memory.read_ns), memory.in_use_bytes)
            row = self._row(device, one.kind)
            path = tuple(filter(None, node.name.split("/")[:-1]))[:_DEEPEST]
            by_row.setdefault(row, []).append(_Run(start, end, order[step], path, node, args))
            steps.setdefault(step, []).append((start, end, one))
            layer = layer_of(node.name)
            if layer is not None:
                process = self._rows[row].process
                layers.setdefault(process, []).append((start, end, one.dur_ns, step, *layer))
        for row, runs in by_row.items():
            self._rows[row].lanes = packed_alike(runs, _room, _scopes)
        self._steps(steps)
        for process, spans in layers.items():
            self._layers(process, spans)

    def _count(self, device: Device, at: int, size: int) -> None:
        self._counters.setdefault((self._process_of(device, "cpu"), self._named(device)), {})[at] = size

    def _steps(self, steps: dict[_Step, list[tuple[int, int, Execution]]]) -> None:
        spans = []
        for step, found in steps.items():
            args = {**_step_args(step), "ops": len(found)}
            for key, kinds in (("op_ns", ("cpu",)), ("accelerator_ns", ("accelerator", "stream"))):
                total = sum(one.dur_ns for _, _, one in found if one.kind in kinds)
                if total:
                    args[key] = total
            start = min(start for start, _, _ in found)
            spans.append(_Span(start, max(end for _, end, _ in found), _step_name(step), "step", args))
        row = self._rows["steps"] = _Row(self._host_process(), "Steps", 0)
        row.spans = packed_spans(spans, _room)

    def _layers(self, process: int, found: list[tuple[int, int, int, _Step, str, str]]) -> None:
        """An unbroken row of a layer's executions in a step is a slice; other layers' in between make it two."""
        spans: list[_Span] = []
        found.sort(key=lambda one: (one[0], -one[1]))
        for key, row in itertools.groupby(found, key=lambda one: one[3:]):
            parts = list(row)
            step, layer, direction = key
            args = {"layer": layer, "direction": direction, **_step_args(step), "ops": len(parts)}
            args["op_ns"] = sum(dur for _, _, dur, _, _, _ in parts)
            spans.append(_Span(parts[0][0], max(end for _, end, *_ in parts), layer, "layer", args))
        row_of_layers = self._rows["layers", process] = _Row(process, "Layers (name scopes)", 1)
        row_of_layers.spans = packed_spans(spans, _room)

    def _named(self, device: Device) -> str:
        """``GPU 0``, and of which task where there are several."""
        name = f"{device.kind.upper()} {device.number}"
        if len(self._tasks) > 1:
            task = _TASK.match(device.host)
            name += f" of {task['job']} {task['task'] or 0}" if task else " of no task"
        return name

    def _process_of(self, device: Device, kind: str) -> int:
        """The process that an execution is drawn in: ops are the host's, kernels the device's."""
        if kind == "cpu":
            return self._host_process()
        key = device.host, device.kind, device.number
        found = self._processes.get(key)
        if found is None:
            name = self._named(device)
            alike = sum(process.name.startswith(f"{name} (TensorFlow)") for process in self._processes.values())
            label = f"{name} (TensorFlow)" + " '" * alike + self._suffix
            found = Process(id=self._ids.take(self._next), name=label, sort=10 + len(self._processes))
            self._processes[key] = found
            self._next = found.id + 1
        return found.id

    def _host_process(self) -> int:
        self._processes.setdefault(
            ("host", "", 0), Process(id=self._host, name=f"Host (TensorFlow){self._suffix}", sort=20)
        )
        return self._host

    def _row(self, device: Device, kind: str) -> object:
        key = (device, kind == "cpu")
        if key not in self._rows:
            process = self._process_of(device, kind)
            if kind != "cpu":
                stream = _STREAM.fullmatch(device.stream)
                name = "Op kernels" if "stream:all" in device.stream else device.stream
                if name not in ("Op kernels", "memcpy"):
                    name = "Other work" if stream is None else f"Stream {stream[1]}"
            elif device.kind == "cpu":
                name = f"Ops, {self._named(device)}"
            else:
                name = f"Op scheduling, {self._named(device)}"
            self._rows[key] = _Row(process, name)
        return key

    def _runs(self) -> Iterator[_Run]:
        for row in self._rows.values():
            for lane in row.lanes:
                yield from lane

    def _number(self) -> None:
        """Tracks: steps and layers first, then by name; names of one process differ."""
        taken: set[tuple[int, str]] = set()
        track = self._next = self._next - self._next % 100 + 100
        ordered = sorted(
            self._rows.values(),
            key=lambda row: (row.process, row.rank, row.name),
        )
        for row in ordered:
            while (row.process, row.name) in taken:
                row.name += " '"
            taken.add((row.process, row.name))
            for _ in row.lanes or row.spans:
                track = self._ids.take(track + 1)
                row.tracks.append(track)
        self._ordered = [row for row in ordered if row.tracks]
        self.next_process = track - track % 100 + 100

    def first_ns(self) -> int | None:
        return self.first

    def last_ns(self) -> int | None:
        return self.last

    def processes(self) -> list[Process]:
        drawn = {row.process for row in self._ordered}
        return [process for process in self._processes.values() if process.id in drawn]

    def tracks(self) -> list[Track]:
        return [
            Track(id=track, process=row.process, name=f"{row.name} ({lane + 1})" if lane else row.name, sort=track)
            for row in self._ordered
            for lane, track in enumerate(row.tracks)
        ]

    def events(self, origin: int) -> Iterator[Event]:
        for row in self._ordered:
            for track, spans in zip(row.tracks, row.spans, strict=False):
                for span in spans:
                    yield Slice(track, span.start - origin, span.end - span.start, span.name, span.category, span.args)
            for track, runs in zip(row.tracks, row.lanes, strict=False):
                yield from self._lane(track, runs, origin)
        yield from self._allocators(origin)

    def _lane(self, track: int, runs: Sequence[_Run], origin: int) -> Iterator[Slice]:
        """Executions under the scopes that they share with their neighbours in the lane."""
        for at, run in enumerate(runs):
            before = runs[at - 1] if at else None
            common = 0
            if before is not None and before.step == run.step:
                common = _common(before.path, run.path)
            for depth in range(common, len(run.path)):
                prefix = run.path[: depth + 1]
                last = at
                while last + 1 < len(runs) and runs[last + 1].step == run.step:
                    if runs[last + 1].path[: depth + 1] != prefix:
                        break
                    last += 1
                args: dict[str, Any] = {"scope": "/".join(prefix), "ops": last - at + 1}
                if "step" in run.args:
                    args["step"] = run.args["step"]
                until = max(runs[last].end, runs[last].start + 1)  # what takes no time is inside, too
                yield Slice(track, run.start - origin, until - run.start, prefix[-1], "scope", args)
            name = run.node.name.rpartition("/")[2]
            yield Slice(track, run.start - origin, run.end - run.start, name, "op", run.args, self._of(run.node))

    def _of(self, node: TfNode) -> dict[str, Any]:
        """The arguments that a node's executions share."""
        known = self._shared.get(node.name)
        if known is not None:
            return known
        args: dict[str, Any] = {"node": node.name, "op": node.op}
        layer = layer_of(node.name)
        if layer is not None:
            args["layer"], args["direction"] = layer
        first = dict(node.output_shapes).get(0, ())
        if first and min(first) >= 0:
            args["output_shape"] = "x".join(map(str, first))
        shapes = "|".join(f"{slot}:{'x'.join(map(str, shape))}" for slot, shape in node.input_shapes if shape)
        if shapes:
            args["input_shapes"] = shapes
        for name in ("strides", "ksize", "dilations", "padding", "data_format"):
            if node.attributes.get(name):
                args[name] = node.attributes[name]
        if node.attributes.get("T"):
            args["dtype"] = node.attributes["T"]
        if node.float_ops > 0:
            args["flop"] = node.float_ops
        if node.place:
            args["place"] = node.place
        self._shared[node.name] = args
        return args

    def _allocators(self, origin: int) -> Iterator[CounterValue]:
        """Bytes that each GPU's allocator has handed out, where the picture reaches."""
        for (process, name), values in self._counters.items():
            for at, size in sorted(values.items()):
                if self.first is not None and self.last is not None and self.first <= at <= self.last:
                    yield CounterValue(process, f"{name} allocator", "MB", at - origin, six_digits(size / 1e6))


def _on_streams(profile: TfProfile) -> Counter[tuple[str, int, int]]:
    """(node, start, duration) of what ran on single streams: the same kernels are under ``stream:all``, too."""
    return Counter(
        (node.name, one.start_ns, one.dur_ns)
        for node in profile.nodes
        for step in node.steps
        for one in step.executions
        if one.kind == "stream"
    )


def _step_args(step: _Step) -> dict[str, Any]:
    return {} if step[1] is None else {"step": step[1]}


def _step_name(step: _Step) -> str:
    return "step" if step[1] is None else f"step {step[1]}"


def _room(one: _Run | _Span) -> tuple[int, int]:
    """What takes no time takes its nanosecond of the lane, so that nothing else begins there."""
    return one.start, max(one.end, one.start + 1)


def _scopes(run: _Run) -> list[tuple[int, tuple[str, ...]]]:
    """The name scopes that a run is in, the widest first, each of its step."""
    return [(run.step, run.path[:depth]) for depth in range(1, len(run.path) + 1)]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many components two paths begin with alike."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
