"""One step's statistics by device, as the nodes of a profile that tfprof would make (tfprof.md 3.1): TensorFlow's
RunMetadata as bytes, StepStats as text, the Chrome JSON of its timeline.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from mio2trace.model.tf import Execution, NodeStep, OpMemory, Shape, TfNode, TfProfile
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import Format, ReadOptions, Records
from mio2trace.readers.pieces import UNREADABLE, Event, EventArray
from mio2trace.readers.tf.profile_proto import LAST_US, LONGEST_US, MOST_COMPONENTS
from mio2trace.source import Source
from mio2trace.wire import Fields, Message, Walk, WireError, fields, message, messages, newest, text, varint

_BEGIN = "_SOURCE"
"""Runs once on each device of a step."""
NOT_NODES = ("RecvTensor", _BEGIN)
_HOST_SIDE = late(r"(?:.*/)?(?:device:)?(?:cpu|gpu):\d+", re.ASCII)
"""A device (lower case) whose records tfprof counts as the op's code on the host."""
_TYPE = late(r"(?:_(?=[A-Z][a-z]))?[A-Za-z]\w*(?:>\w+)*", re.ASCII)
"""A possible op type; any other text after a colon is part of a name that contains a colon."""
_ON_HOST = late(r".*? = (?P<op>\w+)\(", re.DOTALL)


class OpStats(msgspec.Struct, gc=False):
    """The used part of NodeExecStats: times in us, memory in bytes."""

    name: str = ""
    start_us: int = 0
    op_end_us: int = 0
    label: str = ""
    total_bytes: int = 0
    peak_bytes: int = 0
    live_bytes: int = 0
    kept_bytes: int = 0
    temporary_bytes: int = 0
    output_bytes: int = 0
    in_use_bytes: int = 0
    shapes: list[tuple[int, Shape]] = []


DeviceStats = tuple[str, list[OpStats]]
"""DeviceStepStats: a device by its own name, and the ops that ran there."""


def possible(start_us: int, dur_us: int) -> bool:
    """Return whether these can be a start since 1970 and a duration."""
    return 0 < start_us < LAST_US and 0 <= dur_us < LONGEST_US


@dataclass(slots=True)
class _Node:
    """The records of a node. Its first device that is a CPU or a GPU stays its canonical one."""

    op: str = ""
    device: str = ""
    executions: dict[int, list[Execution]] = field(default_factory=dict)
    """By step."""
    memory: list[OpMemory] = field(default_factory=list)
    shapes: list[tuple[int, Shape]] = field(default_factory=list)


class Collector:
    """Assigns records to nodes. Records of another device than a node's canonical one are counted and left out."""

    def __init__(self, place: str, notes: Notes) -> None:
        self._place = place
        self._notes = notes
        self._nodes: dict[str, _Node] = {}

    def add(self, name: str, op: str, execution: Execution, step: int = 0) -> _Node | None:
        """Add an execution of ``name`` in a step; None if it is not kept."""
        if name.count("/") >= MOST_COMPONENTS or not name:
            self._notes.add("record without a possible name: skipped", self._place)
            return None
        node = self._nodes.setdefault(name, _Node())
        if execution.kind == "cpu":
            if node.device not in ("", execution.device):
                self._notes.add("op on a second device left out, as in tfprof", f"{self._place}: {name}")
                return None
            node.device = execution.device
        node.op = node.op or op
        node.executions.setdefault(step, []).append(execution)
        return node

    def finish(self, source: int, *, memory_known: bool, steps: int = 1) -> TfProfile:
        """Return the profile; several steps are numbered from 0. Raises `InputError` if nothing ran."""
        if not self._nodes:
            raise InputError(f"{self._place}: no op with a time; expected the ops of a step")
        nodes = []
        for name, node in sorted(self._nodes.items()):
            ran = []
            for step, executions in node.executions.items():
                start = min(one.start_ns for one in executions)
                end = max(one.start_ns + one.dur_ns for one in executions)
                on_host = sum(one.kind == "cpu" for one in executions)
                ran.append(NodeStep(step, on_host, start, end, tuple(executions), tuple(node.memory)))
            op, shapes = node.op or name, tuple(node.shapes)
            types = tuple(filter(None, (op, node.device)))
            nodes.append(
                TfNode(name=name, op=op, op_types=types, device=node.device, output_shapes=shapes, steps=tuple(ran))
            )
        known = {"numbered": steps > 1, "memory_known": memory_known, "graph_known": False}
        return TfProfile(source=source, steps=tuple(range(steps)), nodes=tuple(nodes), **known)


def kind_of(device: str) -> str:
    """Return tfprof's kind of a device (lower case); empty: none."""
    if "stream:all" in device:
        return "accelerator"
    if _HOST_SIDE.fullmatch(device):
        return "cpu"
    return "stream" if "/stream:" in device or device.endswith("/memcpy") else ""


def collect(stats: Iterable[DeviceStats], source: int, place: str, notes: Notes) -> TfProfile:
    """Return the profile of a step. Raises `InputError` if nothing ran in it."""
    collector = Collector(place, notes)
    for named, ops in stats:
        device = named.lower()
        kind = kind_of(device)
        for op in ops:
            name = op.name.split(":", 1)[0]
            if name in NOT_NODES or (kind != "stream" and "MEMCPY" in name):
                continue
            if not kind:
                notes.add("record of an unknown sort of device: skipped", f"{place}: {named}")
                continue
            if op.start_us == 0:
                notes.remark("record without a start: skipped, as in tfprof", f"{place}: {name}")
                continue
            if not possible(op.start_us, op.op_end_us):
                notes.add("execution without a possible time: skipped", f"{place}: {name}")
                continue
            what, label = _label(op, kind)
            times = op.start_us * 1000, max(1, op.op_end_us) * 1000
            node = collector.add(name, what, Execution(device, kind, *times, label))  # type: ignore[arg-type]
            if node is not None and kind == "cpu":
                both, read_ns = op.temporary_bytes + op.kept_bytes, (op.start_us + op.op_end_us) * 1000
                requested, peak, residual = op.total_bytes + both, op.peak_bytes + both, op.live_bytes + op.kept_bytes
                # tfprof's sums (tfprof.md 2, ExecMemory)
                node.memory.append(OpMemory(requested, peak, residual, op.output_bytes, read_ns, op.in_use_bytes))
                known = {slot for slot, _ in node.shapes}
                node.shapes += [pair for pair in op.shapes if pair[0] not in known]
    return collector.finish(source, memory_known=True)


def _label(op: OpStats, kind: str) -> tuple[str, str]:
    if kind == "cpu":
        found = _ON_HOST.match(op.label)
        return ("" if found is None else found["op"]), ""
    named = op.name.partition(":")[2]
    if not _TYPE.fullmatch(named):
        named = ""
    # KERNEL@@NODE:OP#ID
    kernel, at, node = op.label[: op.label.rfind("#") + 1].rpartition("@@")
    if not at:
        return named, op.label or (named if named.startswith("MEMCPY") else "")
    of, _, what = node.partition("#")[0].rpartition(":")
    # In text from another node, the end of its name is unknown.
    return (what if of == op.name.partition(":")[0] and _TYPE.fullmatch(what) else named), kernel


def _number(of: Message, name: str) -> int:
    return newest(of, name, 0)


def _op(node: Message) -> OpStats:
    start, end = _number(node, "all_start_micros"), _number(node, "op_end_rel_micros")
    op = OpStats(newest(node, "node_name", ""), start, end, newest(node, "timeline_label", ""), shapes=[])
    for allocator in messages(node, "memory"):
        op.total_bytes += _number(allocator, "total_bytes")
        op.peak_bytes += _number(allocator, "peak_bytes")
        op.live_bytes += _number(allocator, "live_bytes")
        op.in_use_bytes = newest(allocator, "allocator_bytes_in_use", op.in_use_bytes)
    for memory in messages(node, "memory_stats"):
        op.temporary_bytes += _number(memory, "temp_memory_size")
        op.kept_bytes += _number(memory, "persistent_memory_size")
    for output in messages(node, "output"):
        for tensor in messages(output, "tensor_description"):
            for allocation in messages(tensor, "allocation_description"):
                op.output_bytes += max(_number(allocation, "requested_bytes"), _number(allocation, "allocated_bytes"))
            for shape in messages(tensor, "shape"):
                if "unknown_rank" not in shape:
                    # A scalar is (1,), as in a ProfileProto.
                    sizes = tuple(_number(dim, "size") for dim in messages(shape, "dim")) or (1,)
                    op.shapes.append((_number(output, "slot"), sizes))
    return op


# -- Bytes of a RunMetadata of one ``session.run``, or of only its StepStats (tfprof.md 8) -----------------------------
#
#     0a 86 d9 06                    step_stats, 109702 bytes
#        0a 82 d9 06                 dev_stats, one per device
#           0a 2c /job:localhost/... device; 12 4d: node_stats { 0a name, 10 all_start_micros, 20 op_end_rel_micros }
#
# Read: names, times in us, memory, output shapes, labels. A cut file is read up to its end; a damaged record is
# skipped.


def _depth(head: bytes) -> int:
    """Return the number of nested first fields, the innermost a device's name: 2 for StepStats, 3 for RunMetadata, 0
    for anything else."""
    at, left = 0, 1 << 63
    for depth in range(1, 4):
        if head[at : at + 1] != b"\x0a":
            break
        try:
            size, at = varint(head, at + 1, len(head))
        except WireError:
            break
        if size >= left:
            break
        left = size
        if depth > 1 and head[at : at + 5] in (b"/job:", b"/devi"):
            return depth
    return 0


def _read_bytes(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the step. Raises `InputError` if none of its records can be read."""
    data = source.read()
    return [collect(list(_Decoder(data, source.name, notes).devices(_depth(data))), source.index, source.name, notes)]


_SHAPE = {2: ("dim", {1: ("size", int)}), 3: ("unknown_rank", int)}
_ALLOCATION = {1: ("requested_bytes", int), 2: ("allocated_bytes", int)}
_NODE: Fields = {
    1: ("node_name", str), 2: ("all_start_micros", int), 4: ("op_end_rel_micros", int), 8: ("timeline_label", str),
    6: ("memory", {
        2: ("total_bytes", int), 3: ("peak_bytes", int), 4: ("live_bytes", int), 5: ("allocator_bytes_in_use", int),
    }),
    7: ("output", {
        1: ("slot", int),
        3: ("tensor_description", {2: ("shape", _SHAPE), 4: ("allocation_description", _ALLOCATION)}),
    }),
    12: ("memory_stats", {1: ("temp_memory_size", int), 3: ("persistent_memory_size", int)}),
}  # fmt: skip


class _Decoder:
    def __init__(self, data: bytes, place: str, notes: Notes) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self._walk = Walk(data, place, notes, "step statistics damaged: read up to there")

    def devices(self, depth: int) -> Iterator[DeviceStats]:
        whole = [(0x0A, 0, len(self._data))]
        for tag, at, stop in self._walk.parts(0, len(self._data)) if depth == 3 else whole:
            for inner, a, b in self._walk.parts(at, stop) if tag == 0x0A else ():
                if inner == 0x0A:
                    yield self._device(a, b)

    def _device(self, at: int, stop: int) -> DeviceStats:
        ops: list[OpStats] = []
        device = ""
        for tag, a, b in self._walk.parts(at, stop):
            if tag == 0x0A:
                device = text(self._data, a, b)
            elif tag == 0x12:
                try:
                    ops.append(_op(message(self._data, fields(self._data, a, b), _NODE, a)))
                except WireError as error:
                    self._notes.add("damaged record of an op: skipped", f"{self._place}: {error}")
        return device, ops


BYTES = Format("TensorFlow step statistics (RunMetadata)", lambda head: _depth(head) > 0, _read_bytes)


# -- StepStats as text: the output of ``--trace_file`` without Chrome's format (tfprof.md 8) ---------------------------
#
#     dev_stats {
#       device: "/job:localhost/replica:0/task:0/device:CPU:0"
#       node_stats {
#         node_name: "v/tower_0/cg/Relu"
#         all_start_micros: 1795171473772142
#         ...
#
# The text format of protocol buffers, in any layout. A record that is cut off is skipped.

_DEVICES = late(rb"\s*+(?>(?:#[^\n]*+\s*+)*)(?:step_stats\s*+:?\s*+\{\s*+)?dev_stats\s*+:?\s*+[{<]")
"""The beginning of a text: that of a device's statistics."""
_TOKEN = late(
    rb"\s*+(?>(?:#[^\n]*+\n\s*+)*)(?:(?P<name>[A-Za-z_]\w*)|(?P<sign>[{}<>:;,\[\]])"
    rb"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')|(?P<number>[-+.\w]+))"
)
_ESCAPE = late(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_INTEGER = late(rb"[-+]?[0-9]+")
_LONGEST_INTEGER = 21
_DEEPEST = 100


def _read_text(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the step. Raises `InputError` if none of its records can be read."""
    whole = parse(source.read(), source.name, notes)
    stats = [
        (newest(device, "device", ""), [_op(op) for op in messages(device, "node_stats")])
        for step in messages(whole, "step_stats") or [whole]
        for device in messages(step, "dev_stats")
    ]
    return [collect(stats, source.index, source.name, notes)]


def parse(data: bytes, place: str, notes: Notes) -> Message:
    """Return the fields of a message by name: numbers, texts, messages. A cut part is left out, with a note."""
    stack: list[Message] = [{}]
    name = ""
    at, size = 0, len(data.rstrip())
    while at < size and (found := _TOKEN.match(data, at)) is not None:
        if found["name"] and not name:
            name = found["name"].decode()
        elif (sign := found["sign"]) is not None:
            if sign in b"{<" and name and len(stack) <= _DEEPEST:
                inner: Message = {}
                stack[-1].setdefault(name, []).append(inner)
                stack.append(inner)
                name = ""
            elif sign in b"}>" and not name and len(stack) > 1:
                stack.pop()
            elif sign not in b":;,":
                break
        elif not name:
            break
        else:
            stack[-1].setdefault(name, []).append(_value(found, place, notes))
            name = ""
        at = found.end()
    if at < size or len(stack) > 1 or name:
        line = data.count(b"\n", 0, at) + 1
        if b"\n" not in data[at:].rstrip():
            notes.cut_off(place, f"line {line}")
        else:
            notes.add("step statistics damaged: read up to there", f"{place}: line {line}")
        for outer, inner in pairwise(stack):
            if outer.get("node_stats", [None])[-1] is inner:  # the incomplete record of an op
                outer["node_stats"].pop()
                break
    return stack[0]


def _value(found: re.Match[bytes], place: str, notes: Notes) -> int | str:
    """Return a text, a word, or a number, which has 64 bits as in the binary message."""
    quoted = found["text"]
    if quoted is not None:
        return _ESCAPE.sub(_unescaped, quoted[1:-1]).decode("utf-8", "replace")
    raw: bytes = found["number"] or found["name"]
    if _INTEGER.fullmatch(raw) is None:
        return raw.decode(errors="replace")
    if len(raw) > _LONGEST_INTEGER or not -(1 << 63) <= int(raw) < 1 << 64:
        notes.add("number of more than 64 bits: skipped", place)
        return ""
    return int(raw)


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = found.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    return _LETTERS.get(letter, letter)


TEXT = Format("TensorFlow step statistics (text)", lambda head: _DEVICES.match(head) is not None, _read_text)


# -- The Chrome JSON of TensorFlow 1's ``timeline.Timeline``: steps with times (tfprof.md 8) ---------------------------
#
#     {"traceEvents": [
#       {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "/job:localhost/.../device:CPU:0 Compute"}},
#       {"ph": "X", "cat": "Op", "name": "Relu", "pid": 1, "tid": 0, "ts": 1795171473772168, "dur": 10,
#        "args": {"name": "v/tower_0/cg/Relu", "op": "Relu", "input0": "..."}}, ...]}
#
# Read: the ops. ``tid`` is a lane that the writer chose; it is not used. ``dur`` includes the op's clean-up and may be
# 0, so it differs from tfprof's time by design. Scripts append the events of several steps, each device after another:
# a step ends where a device or its ``_SOURCE`` comes again. Not read: tensors, arrows, the memory of allocators over
# time; the memory of an op is not recorded. tfprof's own ``-output timeline`` is refused: most of its views have no
# real times.

_EVENTS = late(rb'\s*\{\s*"traceEvents"\s*:\s*\[')
_PROCESS = late(
    rb'"name"\s*:\s*"(?:Allocators|(?>[^"]*?/device:)[^"]* (?:Compute|Tensors)'
    rb'|Op (?:execution|scheduling) threads: [^"]*)"'
)
"""A process name in TensorFlow's form."""
_OWN = late(r"Op (?:execution|scheduling) threads: |mem usage on:")
_UNKNOWN = ("", "unknown")


def _read_timeline(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the steps. Raises `InputError` if none of their ops can be read."""
    place = source.name
    events = [event for some in EventArray(source.blocks(), place, notes).pieces() for event in some]
    devices: dict[object, str] = {}
    for event in events:
        if event.ph == "M" and event.name == "process_name" and event.pid is not None:
            name = _text_of(event.args.name)
            if _OWN.match(name):
                raise InputError(f"{place}: the timeline that tfprof itself writes; expected timeline.Timeline's")
            if name.endswith(" Compute"):
                devices[event.pid] = name.removesuffix(" Compute").lower()
    collector = Collector(place, notes)
    ops = [event for event in events if event.ph == "X" and event.cat == "Op"]
    steps, step_of = _steps(ops)
    for event, step in zip(ops, step_of, strict=True):
        device, name, kernel = devices.get(event.pid, ""), _text_of(event.args.name), event.args.kernel
        kind = kind_of(device)
        if not name or not kind:
            notes.add("event of an op that names no node or no device: skipped", place)
            continue
        if not isinstance(event.ts, int) or not isinstance(event.dur, int) or not possible(event.ts, event.dur):
            notes.add("execution without a possible time: skipped", f"{place}: {name}")
            continue
        if name.split(":", 1)[0] in NOT_NODES:
            continue
        op = event.name if event.name not in _UNKNOWN else ""
        label = kernel if isinstance(kernel, str) else op if op.startswith("MEMCPY") else ""
        execution = Execution(device, kind, event.ts * 1000, event.dur * 1000, label)  # type: ignore[arg-type]
        collector.add(name, op, execution, step)
    if steps > 1:
        read = "all are" if any(step_of) else "read as one step,"
        notes.add(f"timelines of {steps} steps in one file: {read} on the devices of the first", place)
    return [collector.finish(source.index, memory_known=False, steps=max(step_of, default=0) + 1)]


def _steps(ops: Sequence[Event]) -> tuple[int, Sequence[int]]:
    """Return the number of steps and the step of each op; no step is told if other events are between a device's."""
    step_of, step, last = [], 0, ""
    seen: set[str] = set()
    begun: set[str] = set()
    begins: Counter[str] = Counter()
    for op in ops:
        device = str(op.pid)
        is_begin = _text_of(op.args.name) == _BEGIN
        if (device in seen and device != last) or (is_begin and device in begun):
            step += 1
            seen, begun = set(), set()
        seen.add(device)
        if is_begin:
            begun.add(device)
            begins[device] += 1
        step_of.append(step)
        last = device
    steps = max(begins.values(), default=1)
    return steps, step_of if step + 1 == steps else [0] * len(step_of)


def _text_of(raw: msgspec.Raw) -> str:
    """Return a text in JSON; empty for anything else."""
    try:
        return msgspec.json.decode(raw, type=str)
    except UNREADABLE:
        return ""


TIMELINE = Format(
    "TensorFlow timeline (Chrome JSON)",
    lambda head: _EVENTS.match(head) is not None and _PROCESS.search(head) is not None,
    _read_timeline,
)
