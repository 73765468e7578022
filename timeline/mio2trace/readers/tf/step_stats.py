"""One step's statistics by device, as the nodes of a profile that tfprof would make (tfprof.md 3.1).

RunMetadata holds them as bytes, `--trace_file` prints them as text; both become `DeviceStats` first. This module reads
the bytes of a RunMetadata of one ``session.run``, or of only its StepStats (tfprof.md 8):

    0a 86 d9 06                    step_stats, 109702 bytes
       0a 82 d9 06                 dev_stats, one per device
          0a 2c /job:localhost/... device; 12 4d: node_stats { 0a name, 10 all_start_micros, 20 op_end_rel_micros }

Read: names, times in us, memory, output shapes, labels. A cut file is read up to its end; a damaged record is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from mio2trace.model.tf import Execution, NodeStep, OpMemory, Shape, TfNode, TfProfile
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.tf.profile_proto import LAST_US, LONGEST_US, MOST_COMPONENTS
from mio2trace.readers.tf.wire import Walk, WireError, fields, integers, signed, text, unexpected, varint
from mio2trace.source import Source

NOT_NODES = ("RecvTensor", "_SOURCE")
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
    count: int = 0
    executions: list[Execution] = field(default_factory=list)
    memory: list[OpMemory] = field(default_factory=list)
    shapes: list[tuple[int, Shape]] = field(default_factory=list)


class Collector:
    """Assigns records to nodes. Records of another device than a node's canonical one are counted and left out."""

    def __init__(self, place: str, notes: Notes) -> None:
        self._place = place
        self._notes = notes
        self._nodes: dict[str, _Node] = {}

    def add(self, name: str, op: str, execution: Execution) -> _Node | None:
        """Add an execution of ``name``; None if it is not kept."""
        if name.count("/") >= MOST_COMPONENTS or not name:
            self._notes.add("record without a possible name: skipped", self._place)
            return None
        node = self._nodes.setdefault(name, _Node())
        if execution.kind == "cpu":
            if node.device not in ("", execution.device):
                self._notes.add("op on a second device left out, as in tfprof", f"{self._place}: {name}")
                return None
            node.device = execution.device
            node.count += 1
        node.op = node.op or op
        node.executions.append(execution)
        return node

    def finish(self, source: int, *, memory_known: bool) -> TfProfile:
        """Return the profile of the one step. Raises `InputError` if nothing ran."""
        if not self._nodes:
            raise InputError(f"{self._place}: no op with a time; expected the ops of a step")
        nodes = []
        for name, node in sorted(self._nodes.items()):
            start = min(one.start_ns for one in node.executions)
            end = max(one.start_ns + one.dur_ns for one in node.executions)
            step = NodeStep(0, node.count, start, end, tuple(node.executions), tuple(node.memory))
            op, shapes = node.op or name, tuple(node.shapes)
            types = tuple(filter(None, (op, node.device)))
            nodes.append(
                TfNode(name=name, op=op, op_types=types, device=node.device, output_shapes=shapes, steps=(step,))
            )
        known = {"numbered": False, "memory_known": memory_known, "graph_known": False}
        return TfProfile(source=source, steps=(0,), nodes=tuple(nodes), **known)


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
        return named, op.label
    of, _, what = node.partition("#")[0].rpartition(":")
    # In text from another node, the end of its name is unknown.
    return (what if of == op.name.partition(":")[0] and _TYPE.fullmatch(what) else named), kernel


NAME = "TensorFlow step statistics (RunMetadata)"


def sniff(head: bytes) -> bool:
    """Return whether it begins with two or three nested first fields, the innermost a device's name."""
    return _depth(head) > 0


def _depth(head: bytes) -> int:
    """Return 2 for StepStats, 3 for RunMetadata, 0 for anything else."""
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


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the step. Raises `InputError` if none of its records can be read."""
    data = source.read()
    return [collect(list(_Decoder(data, source.name, notes).devices(_depth(data))), source.index, source.name, notes)]


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
                    ops.append(self._op(a, b))
                except WireError as error:
                    self._notes.add("damaged record of an op: skipped", f"{self._place}: {error}")
        return device, ops

    def _op(self, at: int, stop: int) -> OpStats:
        data = self._data
        op = OpStats(shapes=[])
        for tag, a, b in fields(data, at, stop):
            if tag == 0x0A:
                op.name = text(data, a, b)
            elif tag == 0x10:
                op.start_us = signed(a)
            elif tag == 0x20:
                op.op_end_us = signed(a)
            elif tag == 0x42:
                op.label = text(data, a, b)
            elif tag == 0x32:
                memory = integers(data, a, b)
                op.total_bytes += memory[2]
                op.peak_bytes += memory[3]
                op.live_bytes += memory[4]
                op.in_use_bytes = memory.get(5, op.in_use_bytes)
            elif tag == 0x3A:
                self._output(op, a, b)
            elif tag == 0x62:
                memory = integers(data, a, b)
                op.temporary_bytes += memory[1]
                op.kept_bytes += memory[3]
            elif tag >> 3 in (1, 2, 4, 6, 7, 8, 12):
                raise unexpected(tag, at)
        return op

    def _output(self, op: OpStats, at: int, stop: int) -> None:
        data = self._data
        slot, shape = 0, None
        for tag, a, b in fields(data, at, stop):
            if tag == 0x08:
                slot = signed(a)
            elif tag == 0x1A:
                for inner, c, d in fields(data, a, b):
                    if inner == 0x12:
                        shape = self._shape(c, d)
                    elif inner == 0x22:
                        allocation = integers(data, c, d)
                        op.output_bytes += max(allocation[1], allocation[2])
        if shape is not None:
            op.shapes.append((slot, shape))

    def _shape(self, at: int, stop: int) -> Shape | None:
        """Return a tensor's shape; a scalar is (1,), as in a ProfileProto."""
        dims: list[int] = []
        for tag, a, b in fields(self._data, at, stop):
            if tag == 0x12:
                dims.append(next((signed(value) for inner, value, _ in fields(self._data, a, b) if inner == 0x08), 0))
            elif tag == 0x18 and a:
                return None
        return tuple(dims) or (1,)
