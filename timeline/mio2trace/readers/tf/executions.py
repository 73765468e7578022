"""The executions in TensorFlow's profiles, as a profile like any other (tfprof.md 3, 7).

An op's code on the host is a range of a thread; a kernel or copy is an activity of a stream. All times are the host's
wall clock. The profiles do not record which thread ran an op. Ops of one device that overlap were on different threads,
so each row of ops that do not overlap is a thread here. A name scope encloses successive ops of such a thread in one
step; a layer encloses its successive ops on all of them.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from mio2trace.model import profile as model
from mio2trace.model.log import Direction
from mio2trace.model.tf import Execution as Ran
from mio2trace.model.tf import OpMemory, TfNode, TfProfile
from mio2trace.notes import Notes
from mio2trace.patterns import late

NAME = "TensorFlow"
_STREAM = late(r"(?:.*/)?stream:(\d{1,9})", re.ASCII)
_COPY = late(r"MEMCPY(?P<from>[HD])to(?P<to>[HD])(?: (?P<size>\d{1,18}) bytes)?", re.IGNORECASE | re.ASCII)
_ANY_COPY = late(r"MEMCPY[A-Z]to[A-Z]\b", re.IGNORECASE)
_TASK = late(r"/job:(?P<job>[a-z_]{1,20})(?:/replica:(?P<replica>\d+))?(?:/task:(?P<task>\d+))?")
_FAR_NS = 10 * 24 * 3600 * 10**9
"""Times further from the median are damage."""
_DEEPEST = 60
_MOST_SLOTS = 256
_begin = itemgetter(0)

_Step = tuple[int, int | None]
"""(index of the profile, its step); the step is None if the profile does not state it."""


class _Op(NamedTuple):
    """An execution as read. ``memory``: of an op on the host, if the source has a value for each op."""

    node: TfNode
    path: tuple[str, ...]
    """The scopes in the node's name."""
    step: _Step
    ran: Ran
    memory: OpMemory | None
    is_copy: bool

    @property
    def start(self) -> int:
        return self.ran.start_ns

    @property
    def end(self) -> int:
        return self.ran.start_ns + self.ran.dur_ns


class _Span(NamedTuple):
    """A named span of time: a step, or successive ops of a layer."""

    start: int
    end: int
    text: str


def executions(profiles: Sequence[TfProfile], notes: Notes) -> model.Profile | None:
    """Return the executions of one run's profiles, each once; None if nothing ran."""
    ops = _near(list(_each_once(profiles, notes)), notes)
    if not ops:
        return None
    return _Assembly(ops).profile(profiles[0].source)


def _each_once(profiles: Sequence[TfProfile], notes: Notes) -> Iterator[_Op]:
    seen: set[tuple[str, str, int]] = set()
    twice = 0
    for number, profile in enumerate(profiles):
        here: list[tuple[str, str, int]] = []
        # ``stream:all`` has the same kernels as the streams, ``memcpy`` the same copies
        on_streams: Counter[tuple[str, int, int]] = Counter()
        copies: Counter[tuple[str, int, int]] = Counter()
        for node in profile.nodes:
            for step in node.steps:
                for ran in step.executions:
                    if ran.kind == "stream":
                        of_kind = copies if _is_of_copies(ran) else on_streams
                        of_kind[node.name, ran.start_ns, ran.dur_ns] += 1
        for node in profile.nodes:
            path = tuple(filter(None, node.name.split("/")[:-1]))[:_DEEPEST]
            for step in node.steps:
                on_host = sum(ran.kind == "cpu" for ran in step.executions)
                memory: Iterator[OpMemory] = iter(step.memory if len(step.memory) == on_host else ())
                key = number, step.step if profile.numbered else None
                for ran in step.executions:
                    own = next(memory, None) if ran.kind == "cpu" else None
                    times = node.name, ran.start_ns, ran.dur_ns
                    is_of_copies = _is_of_copies(ran)
                    if (is_of_copies or ran.kind == "accelerator") and on_streams[times] > 0:
                        on_streams[times] -= 1  # recorded in its own stream
                        continue
                    is_copy = ran.kind != "cpu" and (is_of_copies or _ANY_COPY.search(_told(node, ran)) is not None)
                    if ran.kind == "stream" and not is_of_copies and copies[times] > 0:
                        copies[times] -= 1
                        is_copy = True
                    place = node.name, ran.device, ran.start_ns
                    if place in seen:
                        twice += 1
                        continue
                    here.append(place)
                    yield _Op(node, path, key, ran, own, is_copy)
        seen.update(here)
    if twice:
        notes.remark("execution that two of TensorFlow's profiles hold drawn once", count=twice)


def _is_of_copies(ran: Ran) -> bool:
    return ran.kind == "stream" and ran.device.endswith("/memcpy")


def _told(node: TfNode, ran: Ran) -> str:
    """Return the texts that may show a copy: ``MEMCPYHtoD 128 bytes (Pageable to Device)``, ``e:MEMCPYHtoD``."""
    return f"{ran.label}\n{node.name}"


def _near(ops: list[_Op], notes: Notes) -> list[_Op]:
    """Return the ops whose times are near the median."""
    if not ops:
        return []
    middle = sorted(op.start for op in ops)[len(ops) // 2]
    near = [op for op in ops if middle - _FAR_NS < op.start <= op.end < middle + _FAR_NS]
    if len(near) < len(ops):
        notes.add("execution far from all others left out", count=len(ops) - len(near))
    return near


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} #{number}"


class _Assembly:
    """Builds a profile: steps, layers and rows of ops as threads; streams with their kernels and copies."""

    def __init__(self, ops: Sequence[_Op]) -> None:
        self._ops = ops
        self._tasks = {DeviceName.of(op.ran.device).host for op in ops}
        named = [task for task in self._tasks if _TASK.match(task)]
        self._only_task = named[0] if len(named) == 1 else ""
        """The task of devices that name none: ``/gpu:0/stream:7`` beside ``/job:localhost/../gpu:0``."""
        if self._only_task:
            self._tasks.discard("")
        self._devices: dict[tuple[str, str, int], model.Device] = {}
        self._called: Counter[str] = Counter()
        self._nodes: dict[str, int] = {}
        self._records: list[model.Node] = []
        self._threads: list[model.Thread] = []
        self._ranges: list[model.Range] = []
        self._executed: dict[int, model.Execution] = {}
        self._allocated: dict[tuple[int, int], model.Allocated] = {}
        self._on_host: dict[tuple[str, _Step], list[tuple[int, int]]] = {}
        """(start, range) of a node's executions in a step."""

    def profile(self, source: int) -> model.Profile:
        self._steps()
        rows: dict[tuple[str, DeviceName], list[_Op]] = {}
        for op in self._ops:
            device = self._place(op)
            if op.ran.kind == "cpu":
                what = "Ops" if device.kind == "cpu" else "Op scheduling"
                rows.setdefault((f"{what}, {self._named(device)}", device), []).append(op)
        self._layers([op for row in rows.values() for op in row])
        names: Counter[str] = Counter()
        for (name, device), row in sorted(rows.items(), key=lambda item: item[0][0]):
            names[name] += 1
            for number, lane in enumerate(_in_lanes(row, _scopes_in_common)):
                self._row(self._thread(_numbered(name, names[name]), number), device, lane)
        activities, queues, told = self._activities()
        return model.Profile(
            source=source,
            records=len(self._ops),
            activities=activities,
            ranges=tuple(self._ranges),
            queues=queues,
            devices=tuple(self._devices.values()),
            threads=tuple(self._threads),
            processes=(model.Process(index=0),),
            clocks=(model.Clock("unix", 1000),),
            numbers="event_index",
            framework=model.Framework(
                name=NAME,
                nodes=tuple(self._records),
                ranges=self._executed,
                activities=told,
                allocated=tuple(sorted(self._allocated.values(), key=lambda held: (held.device, held.time_ns))),
            ),
        )

    # -- the host ----------------------------------------------------------------------------------------------------

    def _steps(self) -> None:
        ran: dict[_Step, list[_Op]] = {}
        for op in self._ops:
            ran.setdefault(op.step, []).append(op)
        spans = []
        for (_, number), ops in ran.items():
            text = "step" if number is None else f"step {number}"
            spans.append(_Span(min(op.start for op in ops), max(op.end for op in ops), text))
        self._annotations("Steps", spans)

    def _layers(self, ops: Iterable[_Op]) -> None:
        """Make one range of successive ops of a layer in a step; ops of other layers in between separate ranges."""
        placed = [(op, op.step, layer) for op in ops if (layer := layer_of(op.node.name)) is not None]
        placed.sort(key=lambda item: (item[0].start, -item[0].end))
        spans = []
        for (_, (layer_name, direction)), row in itertools.groupby(placed, key=lambda item: item[1:]):
            of_row = [op for op, _, _ in row]
            spans.append(_Span(of_row[0].start, max(op.end for op in of_row), f"{layer_name} · {direction}"))
        self._annotations("Layers (name scopes)", spans)

    def _annotations(self, name: str, spans: Sequence[_Span]) -> None:
        for number, lane in enumerate(_in_lanes(spans)):
            thread = self._thread(name, number)
            self._ranges += [model.Range("annotation", span.text, thread, span.start, span.end) for span in lane]

    def _thread(self, name: str, number: int) -> int:
        index = len(self._threads)
        self._threads.append(model.Thread(index=index, name=f"{name} ({number + 1})" if number else name))
        return index

    def _row(self, thread: int, device: DeviceName, ops: Sequence[_Op]) -> None:
        """Make ranges for ops under the scopes that they share with their neighbours, outermost first."""
        launches_on = None if device.kind == "cpu" else self._device(device).index
        for place, op in enumerate(ops):
            common = _scopes_in_common(ops[place - 1], op) if place else 0
            for depth in range(common, len(op.path)):
                prefix = op.path[: depth + 1]
                last = place
                while (
                    last + 1 < len(ops) and ops[last + 1].step == op.step and ops[last + 1].path[: depth + 1] == prefix
                ):
                    last += 1
                until = max(ops[last].end, ops[last].start + 1)  # a range without duration is also inside
                self._ranges.append(model.Range("frame", prefix[-1], thread, op.start, until))
            number, node, memory = len(self._ranges), self._node(op.node), op.memory
            inputs = self._records[node].inputs if self._records[node].inputs.shapes else None
            self._ranges.append(model.Range("operator", _leaf(op.node.name), thread, op.start, op.end, inputs=inputs))
            used = None
            if memory is not None:
                used = model.Memory(memory.requested_bytes, memory.peak_bytes, memory.output_bytes)
            self._executed[number] = model.Execution(node, op.step[1], launches_on, used)
            if memory is not None and memory.in_use_bytes and launches_on is not None and device.kind == "gpu":
                at = launches_on, memory.read_ns
                self._allocated[at] = model.Allocated(*at, memory.in_use_bytes)
            self._on_host.setdefault((op.node.name, op.step), []).append((op.start, number))

    # -- devices -----------------------------------------------------------------------------------------------------

    def _activities(self) -> tuple[tuple[model.Activity, ...], tuple[model.Queue, ...], dict[int, model.Execution]]:
        queues: dict[DeviceName, model.Queue] = {}
        activities: list[model.Activity] = []
        executed: dict[int, model.Execution] = {}
        ran = [op for op in self._ops if op.ran.kind != "cpu"]
        on_host = {key: sorted(calls, key=_begin) for key, calls in self._on_host.items()}
        for name in sorted({self._place(op) for op in ran}):
            queues[name] = self._queue(len(queues), name)
        for number, op in enumerate(sorted(ran, key=lambda op: (op.start, op.end, op.node.name))):
            name = self._place(op)
            launched_by = None
            calls = on_host.get((op.node.name, op.step), ())
            if before := bisect_right(calls, op.start, key=_begin):
                # The first of those that began last before it.
                launched_by = calls[bisect_left(calls, calls[before - 1][0], key=_begin)][1]
            kind: Literal["kernel", "copy"] = "copy" if op.is_copy else "kernel"
            of: dict[str, Any] = {"queue": queues[name].index, "start_ns": op.start, "end_ns": op.end}
            # ``void relu()`` of ``void relu()@@v/cg/Relu:Relu#id=7#``, else the op's name
            shown = op.ran.label.partition("@@")[0] or _leaf(op.node.name)
            if op.is_copy:
                copy = _COPY.search(_told(op.node, op.ran))
                route = "" if copy is None else f"{_SIDES[copy['from'].upper()]} to {_SIDES[copy['to'].upper()]}"
                shown = f"copy {route}".rstrip()
                of |= {"route": route, "size_bytes": int((copy and copy["size"]) or 0)}
            activities.append(model.Activity(number, kind, shown, range=launched_by, **of))
            executed[number] = model.Execution(self._node(op.node), op.step[1], queues[name].device)
        return tuple(activities), tuple(queues.values()), executed

    def _queue(self, index: int, name: DeviceName) -> model.Queue:
        device, stream = self._device(name).index, _STREAM.fullmatch(name.stream)
        if stream is not None:
            return model.Queue(index=index, device=device, kind="stream", number=int(stream[1]))
        words = {"memcpy": "memcpy"}.get(name.stream, "Op kernels" if "stream:all" in name.stream else "Other work")
        return model.Queue(index=index, device=device, kind="stream", name=words)

    def _device(self, name: DeviceName) -> model.Device:
        key = name.host, name.kind, name.number
        device = self._devices.get(key)
        if device is None:
            label = self._named(name)
            self._called[label] += 1
            shown = _numbered(f"{label} ({NAME})", self._called[label])
            device = self._devices[key] = model.Device(index=len(self._devices), name=shown, clock=0)
        return device

    def _place(self, op: _Op) -> DeviceName:
        name = DeviceName.of(op.ran.device)
        return name if name.host else name._replace(host=self._only_task)

    def _named(self, device: DeviceName) -> str:
        """Return ``GPU 0``, with its task if there are several."""
        name = f"{device.kind.upper()} {device.number}"
        if len(self._tasks) > 1:
            task = _TASK.match(device.host)
            name += f" of {task['job']} {task['task'] or 0}" if task else " of no task"
        return name

    # -- the graph ---------------------------------------------------------------------------------------------------

    def _node(self, node: TfNode) -> int:
        """Return the place of a node's record; if two profiles have it, that of the first."""
        place = self._nodes.setdefault(node.name, len(self._records))
        if place == len(self._records):
            self._records.append(_record(node))
        return place


_SIDES: Mapping[str, str] = {"H": "host", "D": "device"}


def _record(node: TfNode) -> model.Node:
    layer = layer_of(node.name)
    output = dict(node.output_shapes).get(0, ())
    shapes = {slot: shape for slot, shape in node.input_shapes if shape and 0 <= slot < _MOST_SLOTS}
    by_slot: tuple[model.Sizes | None, ...] = tuple(shapes.get(slot) for slot in range(max(shapes, default=-1) + 1))
    dtype = node.attributes.get("T")
    return model.Node(
        name=node.name,
        op=node.op,
        layer="" if layer is None else layer[0],
        direction=None if layer is None else layer[1],
        inputs=model.Inputs(by_slot, (dtype,) if dtype else ()),
        output=output if output and min(output) >= 0 else (),
        attributes={key: value for key, value in node.attributes.items() if key != "T" and value},
        flop=node.float_ops if node.float_ops > 0 else None,
        place=node.place,
    )


def _leaf(name: str) -> str:
    return name.rpartition("/")[2]


def _scopes_in_common(last: _Op, following: _Op) -> int:
    if last.step != following.step:
        return 0
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(last.path, following.path, strict=False))
    )


# -- Lanes for spans of time that do not overlap, because the threads that ran them are not recorded -------------------

_COMPARED = 64
"""At most this many free lanes are compared; the lane whose last span is most similar is chosen."""


S = TypeVar("S", _Op, _Span)


def _in_lanes(stretches: Iterable[S], alike: Callable[[S, S], int] = lambda last, following: 0) -> list[list[S]]:
    """Assign each span to the free lane whose last span is most ``alike``, of equal ones to the first. A span without
    duration occupies one nanosecond of the lane, so that nothing else begins there."""
    lanes: list[list[S]] = []
    busy: list[tuple[int, int]] = []  # (end, lane), a heap
    free: list[int] = []  # in order
    for stretch in sorted(stretches, key=lambda stretch: (stretch.start, -stretch.end)):
        while busy and busy[0][0] <= stretch.start:
            insort(free, heappop(busy)[1])
        best, most_alike = -1, -1
        for lane in free[:_COMPARED]:
            how_alike = alike(lanes[lane][-1], stretch)
            if how_alike > most_alike:
                best, most_alike = lane, how_alike
        if best < 0:
            best = len(lanes)
            lanes.append([])
        else:
            free.remove(best)
        lanes[best].append(stretch)
        heappush(busy, (max(stretch.end, stretch.start + 1), best))
    return lanes


# ----------------------------------------------------------------------------------------------------------------------
# Names of TensorFlow and tf_cnn_benchmarks: devices, and the layer that a node's scopes name (tfprof.md 1, 7)

_DEVICE = late(
    r"(?P<host>(?:/(?:job|replica|task):[^/]*)*)/(?:device:)?(?P<kind>[a-z_]+):(?P<number>\d{1,9})(?:/(?P<stream>.*))?",
    re.DOTALL,
)
_TOWER = late(
    r"(?:v/tower_(?P<a>\d+)|tower_(?P<b>\d+)/v|v/(?P<c>task_\d+_tower_\d+))/"
    r"(?P<backward>gradients/(?:v/tower_\d+|tower_\d+/v|v/task_\d+_tower_\d+)/)?cg/(?P<path>.+)"
)
_LAYER = late(r"(?:conv|mpool|apool|affine|batchnorm|lrn|dropout|spatial_mean|resnet_v\d)\d+|incept_\w+", re.ASCII)
_BATCH_NORM = late(r"batchnorm\d+", re.ASCII)


class DeviceName(NamedTuple):
    """The parts of a device's name: ``cpu`` 0 of ``/job:localhost/replica:0/task:0``, perhaps one of its streams."""

    host: str
    kind: str
    number: int
    stream: str

    @classmethod
    def of(cls, name: str) -> DeviceName:
        """Return the parts; a name of unknown form is a device of its own kind."""
        match = _DEVICE.fullmatch(name)
        if match is None:
            return cls(name, "device", 0, "")
        return cls(match["host"], match["kind"], int(match["number"]), match["stream"] or "")


def layer_of(name: str) -> tuple[str, Direction] | None:
    """Return (layer, direction) of a node of tf_cnn_benchmarks; None for a node outside of layers (tfprof.md 1, 7).
    ``v/tower_0/gradients/v/tower_0/cg/conv0/conv2d/Conv2D_grad/Conv2DBackpropInput`` -> ``conv0``, backward."""
    match = _TOWER.fullmatch(name)
    if match is None:
        return None
    *scopes, op = match["path"].split("/")
    if match["backward"]:
        scopes = [scope.removesuffix("_grad") for scope in scopes]
    else:
        scopes.append(op)
    # A batch norm inside another scope belongs to that scope.
    named = [at for at, scope in enumerate(scopes) if _LAYER.fullmatch(scope)]
    layers = [at for at in named if not at or _BATCH_NORM.fullmatch(scopes[at]) is None]
    if layers:
        scopes = scopes[: layers[-1] + 1]
    elif not scopes:
        return None
    elif len(scopes) > 1 and not match["backward"]:
        scopes.pop()
    tower = (match["a"] or match["b"] or "").lstrip("0")
    if match["c"] or tower:
        scopes.insert(0, match["c"] or f"tower_{tower}")
    return "/".join(scopes), "backward" if match["backward"] else "forward"
