"""TensorFlow's ProfileProto: all steps, every op, its executions, memory and graph attributes (tfprof.md 2).

    0a d8 03                       nodes: an entry of the map, 472 bytes
       08 d3 03  12 d2 03          key 467, the node
          0a 21 v/tower_0/...      name; 4a op, 6a id, 62 executions by step, ...

Read: nodes with name, op, types, devices, shapes, inputs, float_ops, executions, memory, allocations' counterpart in
memory, the attributes of convolutions and poolings, the file and line that made the node. Not read: other attributes,
the text of source lines, allocator events. Maps may be in any order; repeated integers may be packed. The step ids come
after all nodes: a cut file has none, and the ids of the executions are used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from sys import intern
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from mio2trace import wire
from mio2trace.model.tf import Execution, NodeStep, OpMemory, Shape, TfNode, TfProfile
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.source import Source

NAME = "TFProf profile (ProfileProto)"

MOST_COMPONENTS = 200
"""Names nest by their slashes; TensorFlow makes no deeper name."""
LAST_US = 9 * 10**15
LONGEST_US = 10**13
"""Times beyond these (year 2255, 115 days) are damage; all others fit into 63 bits as nanoseconds."""
_ATTRIBUTES = ("strides", "ksize", "dilations", "padding", "data_format", "T")
_WORD = re.compile(r"SAME|VALID|EXPLICIT|N[A-Z]{1,4}|N[A-Z]{1,3}_VECT_[A-Z]", re.ASCII)
"""Possible values of padding and data_format."""
_TYPES = {1: "float", 2: "double", 3: "int32", 9: "int64", 10: "bool", 14: "bfloat16", 19: "half"}


def _map(value: Any) -> wire.Fields:
    """Return the fields of an entry of a map from integers."""
    return wire.Whole({1: ("key", int), 2: ("value", value)})


_TUPLE: wire.Fields = wire.Whole({1: ("numbers", list)})
_TIMES: wire.Fields = wire.Whole({1: ("device", str), 2: ("times", wire.Whole({1: ("pairs", _TUPLE)}))})
_HELD = ("requested_bytes", "peak_bytes", "residual_bytes", "output_bytes", "read_us", "in_use_bytes")
_STEP: wire.Fields = {
    1: ("run_count", int), 2: ("first_us", int), 3: ("last_us", int), 4: ("accelerator", _TIMES), 5: ("cpu", _TIMES),
    7: ("memory", {number: (name, int) for number, name in zip((6, 7, 8, 9, 1, 10), _HELD, strict=True)}),
}  # fmt: skip
_ATTRIBUTE: wire.Fields = {1: ("list", {3: ("numbers", list)}), 2: ("text", str), 6: ("type", int)}
_NODE: wire.Fields = {
    1: ("name", str), 2: ("inputs", _map(int)), 4: ("shape", list), 5: ("op_types", str), 6: ("device", str),
    8: ("float_ops", int), 9: ("op", str), 10: ("trace", slice),
    11: ("attributes", {1: ("key", str), 2: ("value", slice)}),
    12: ("steps", _map(_STEP)), 14: ("sources", _map(int)), 15: ("outputs", _map(_TUPLE)),
}  # fmt: skip
_FILE: wire.Fields = {1: ("nodes", _map(_NODE)), 3: ("steps", list), 4: ("strings", _map(str))}


def sniff(head: bytes) -> bool:
    """Return whether it begins with a map entry: first the key, then a node with a name as first field."""
    if head[:1] != b"\x0a":
        return False
    try:
        size, at = wire.varint(head, 1, len(head))
        if head[at : at + 1] != b"\x08" or size < 4:
            return False
        _, at = wire.varint(head, at + 1, len(head))
        if head[at : at + 1] != b"\x12":
            return False
        inner, at = wire.varint(head, at + 1, len(head))
    except wire.WireError:
        return False
    return inner < size and head[at : at + 1] == b"\x0a"


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the profile. Raises `InputError` if no node can be read."""
    profile = _Decoder(source.read(), source.name, notes)
    profile.walk()
    return [profile.finish(source.index)]


class _Links(NamedTuple):
    """What a node refers to: its inputs and their slots at the nodes that make them, its own outputs, its stack."""

    inputs: dict[int, int]
    sources: dict[int, int]
    outputs: dict[int, Shape]
    trace: tuple[int, int]


class _Decoder:
    def __init__(self, data: bytes, place: str, notes: Notes) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self._nodes: dict[int, tuple[TfNode, _Links]] = {}
        self._steps: list[int] = []
        self._strings: dict[int, str] = {}
        self._places: dict[bytes, tuple[str, int]] = {}
        self._lost = 0
        self._problem = ""

    def walk(self) -> None:
        """Read the outermost message field by field, so that a cut file is read up to the cut."""
        data, found = self._data, Notes()
        walk = wire.Walk(data, self._place, found, "TFProf profile damaged: read up to there")
        begin = 0
        for field in walk.parts(0, len(data)):
            if walk.error is not None:
                break  # the field that was cut
            part: wire.Message = {}
            try:
                part = wire.message(data, [field], _FILE, begin)
                for entry in wire.messages(part, "nodes"):
                    self._nodes[wire.newest(entry, "key", 0)] = self._node(wire.newest(entry, "value", {}), field[1])
            except wire.WireError as error:
                self._lost += 1
                self._problem = self._problem or str(error)
            self._steps += part.get("steps", ())
            self._strings |= _pairs(part, "strings", "")
            begin = field[2] or wire.varint(data, wire.varint(data, begin, len(data))[1], len(data))[1]
        if walk.error is not None and not self._nodes:
            cut = "file cut off: " if isinstance(walk.error, wire.CutError) else ""
            raise InputError(f"{self._place}: {cut}{walk.error}; expected the nodes of a ProfileProto")
        self._notes.include(found)

    def _node(self, node: wire.Message, at: int) -> tuple[TfNode, _Links]:
        """Return a node without what only other nodes and the list of strings show."""
        name = wire.newest(node, "name", "")
        if not name:
            raise wire.WireError(at, "a node without a name")
        if name.count("/") >= MOST_COMPONENTS:
            raise wire.WireError(at, f"a name of more than {MOST_COMPONENTS} components")
        attributes = {
            key: self._attribute(*one["value"][-1])
            for one in wire.messages(node, "attributes")
            if (key := wire.newest(one, "key", "")) in _ATTRIBUTES and "value" in one
        }
        outputs = _pairs(node, "outputs", wire.Message())
        shapes: dict[int, Shape] = {slot: tuple(shape.get("numbers", ())) for slot, shape in outputs.items()}
        made = TfNode(
            name=name,
            op=intern(wire.newest(node, "op", "")) or name,
            op_types=tuple(map(intern, node.get("op_types", ()))),
            device=intern(wire.newest(node, "device", "")),
            shape=tuple(node.get("shape", ())),
            float_ops=wire.newest(node, "float_ops", 0),
            output_shapes=tuple(sorted(shapes.items())),
            attributes={key: shown for key, shown in attributes.items() if shown},
            steps=tuple(sorted(map(self._step, wire.messages(node, "steps")), key=lambda step: step.step)),
        )
        trace = (node.get("trace") or [(0, 0)])[-1]
        return made, _Links(_pairs(node, "inputs", 0), _pairs(node, "sources", 0), shapes, trace)

    def _attribute(self, at: int, stop: int) -> str:
        """Return an AttrValue as text: ``SAME``, ``float``, ``1x2x2x1``; empty for any other value."""
        value = wire.message(self._data, wire.fields(self._data, at, stop), _ATTRIBUTE, at)
        if "text" in value:
            return word if _WORD.fullmatch(word := value["text"][-1]) else ""
        if "type" in value:
            return _TYPES.get(value["type"][-1], f"type {value['type'][-1]}")
        return "x".join(str(number) for one in wire.messages(value, "list") for number in one.get("numbers", ()))

    def _step(self, entry: wire.Message) -> NodeStep:
        """Read an entry of the map from step id to ExecProfile."""
        ran = wire.newest(entry, "value", wire.Message())
        first, last = wire.newest(ran, "first_us", 0), wire.newest(ran, "last_us", 0)
        if not 0 < first <= last < LAST_US:
            first = last = 0
        memory = ([wire.newest(one, name, 0) for name in _HELD] for one in wire.messages(ran, "memory"))
        return NodeStep(
            wire.newest(entry, "key", 0), wire.newest(ran, "run_count", 0), first * 1000, last * 1000,
            (*self._executions(ran, "accelerator"), *self._executions(ran, "cpu")),
            tuple(OpMemory(own, peak, left, out, us * 1000, in_use) for own, peak, left, out, us, in_use in memory),
        )  # fmt: skip

    def _executions(self, ran: wire.Message, kind: Literal["accelerator", "cpu"]) -> Iterator[Execution]:
        """Read a map from device to ExecTime: pairs of start and duration in us."""
        for entry in wire.messages(ran, kind):
            device = intern(wire.newest(entry, "device", ""))
            tuples = (one for times in wire.messages(entry, "times") for one in wire.messages(times, "pairs"))
            for pair in (one.get("numbers", []) for one in tuples):
                if len(pair) != 2 or not (0 < pair[0] < LAST_US and 0 <= pair[1] < LONGEST_US):
                    self._notes.add("execution without a possible time: skipped", f"{self._place}: on {device}")
                else:
                    yield Execution(device, kind, pair[0] * 1000, pair[1] * 1000)

    def finish(self, index: int) -> TfProfile:
        """Return the record. Raises `InputError` if it is empty."""
        notes = self._notes
        if not self._nodes:
            what = f"{self._problem}; no node can be read" if self._problem else "no nodes"
            raise InputError(f"{self._place}: {what}; expected a ProfileProto with nodes")
        if self._lost:
            notes.add("damaged part of a TFProf profile: skipped", f"{self._place}: {self._problem}", count=self._lost)
        ran = Counter(step.step for node, _ in self._nodes.values() for step in node.steps)
        steps = sorted(set(self._steps))
        strange = sorted(ran.keys() - set(steps))
        if strange and not self._steps:
            notes.add("TFProf profile without its list of steps: they are those of the executions", self._place)
        elif strange:
            notes.add("step of an execution that the profile does not list", self._place, len(strange))
        nodes = tuple(self._finished(*one) for one in sorted(self._nodes.values(), key=lambda one: one[0].name))
        return TfProfile(source=index, steps=tuple(sorted({*steps, *ran})), nodes=nodes)

    def _finished(self, node: TfNode, links: _Links) -> TfNode:
        made_by = ((slot, self._nodes.get(links.inputs[slot]), links.inputs[slot]) for slot in sorted(links.inputs))
        shapes = (
            # that of the used output, empty if unknown
            (slot, () if of is None else of[1].outputs.get(links.sources.get(producer, 0), ()))
            for slot, of, producer in made_by
        )
        return replace(node, input_shapes=tuple(shapes), place=self._made_by(links.trace) if node.steps else "")

    def _made_by(self, trace: tuple[int, int]) -> str:
        """Return ``file.py:12`` of the innermost frame outside of TensorFlow; without the folder."""
        try:
            for tag, a, b in reversed(wire.fields(self._data, *trace)):
                if tag != 0x0A:
                    continue
                raw = self._data[a:b]
                known = self._places.get(raw)
                if known is None:
                    frame = wire.last(wire.fields(self._data, a, b))
                    name = self._strings.get(wire.signed(frame[0x30][0]), "") if 0x30 in frame else ""
                    known = self._places[raw] = name or wire.text(self._data, *frame[0x0A]), wire.signed(frame[0x10][0])
                file, line = known
                if file and "tensorflow/python/" not in file.replace("\\", "/"):
                    return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
        except wire.WireError:
            self._notes.add("Python stack that cannot be read: skipped", self._place)
        return ""


_Item = TypeVar("_Item", int, str, wire.Message)


def _pairs(of: wire.Message, name: str, without: _Item) -> dict[int, _Item]:
    """Return a map from integers."""
    return {wire.newest(one, "key", 0): wire.newest(one, "value", without) for one in wire.messages(of, name)}
