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

from mio2trace.model.tf import Execution, NodeStep, OpMemory, Shape, TfNode, TfProfile
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.tf.wire import (
    CutError,
    Walk,
    WireError,
    fields,
    integers,
    last,
    repeated,
    signed,
    text,
    unexpected,
    varint,
)
from mio2trace.source import Source

NAME = "TFProf profile (ProfileProto)"

MOST_COMPONENTS = 200
"""Names nest by their slashes; TensorFlow makes no deeper name."""
LAST_US = 9 * 10**15
LONGEST_US = 10**13
"""Times beyond these (year 2255, 115 days) are damage; all others fit into 63 bits as nanoseconds."""
_ATTRIBUTES = {b"strides", b"ksize", b"dilations", b"padding", b"data_format", b"T"}


def sniff(head: bytes) -> bool:
    """Return whether it begins with a map entry: first the key, then a node with a name as first field."""
    if head[:1] != b"\x0a":
        return False
    try:
        size, at = varint(head, 1, len(head))
        if head[at : at + 1] != b"\x08" or size < 4:
            return False
        _, at = varint(head, at + 1, len(head))
        if head[at : at + 1] != b"\x12":
            return False
        inner, at = varint(head, at + 1, len(head))
    except WireError:
        return False
    return inner < size and head[at : at + 1] == b"\x0a"


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the profile. Raises `InputError` if no node can be read."""
    profile = _Decoder(source.read(), source.name, notes)
    profile.walk()
    return [profile.finish(source.index)]


class _Raw:
    """A decoded node; the shapes of its inputs are known when all nodes are."""

    __slots__ = ("attributes", "device", "float_ops", "inputs", "name", "op", "op_types", "outputs", "shape", "sources",
                 "steps", "trace")  # fmt: skip

    def __init__(self) -> None:
        self.name = self.op = self.device = ""
        self.op_types: list[str] = []
        self.shape: list[int] = []
        self.float_ops = 0
        self.inputs: dict[int, int] = {}
        self.sources: dict[int, int] = {}
        self.outputs: dict[int, Shape] = {}
        self.attributes: dict[str, str] = {}
        self.trace: tuple[int, int] | None = None
        self.steps: list[NodeStep] = []


class _Decoder:
    def __init__(self, data: bytes, place: str, notes: Notes) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self._nodes: dict[int, _Raw] = {}
        self._steps: list[int] = []
        self._strings: dict[int, str] = {}
        self._texts: dict[bytes, str] = {}
        self._places: dict[bytes, tuple[str, int]] = {}
        self._lost = 0
        self._problem = ""

    def walk(self) -> None:
        """Read the outermost message field by field, so that a cut file is read up to the cut."""
        data, found = self._data, Notes()
        walk = Walk(data, self._place, found, "TFProf profile damaged: read up to there")
        for tag, at, stop in walk.parts(0, len(data)):
            if walk.error is not None:
                break  # the field that was cut
            try:
                if tag == 0x0A:
                    self._entry(at, stop)
                elif tag in (0x18, 0x1A):
                    self._steps += repeated(data, tag, at, stop)
                elif tag == 0x22:
                    entry = last(fields(data, at, stop))
                    self._strings[signed(entry[0x08][0])] = text(data, *entry[0x12])
                elif tag >> 3 in (1, 4):
                    raise unexpected(tag, walk.start)
            except WireError as error:
                self._lost += 1
                self._problem = self._problem or str(error)
        if walk.error is not None and not self._nodes:
            cut = "file cut off: " if isinstance(walk.error, CutError) else ""
            raise InputError(f"{self._place}: {cut}{walk.error}; expected the nodes of a ProfileProto")
        self._notes.include(found)

    def _entry(self, at: int, stop: int) -> None:
        key, span = _pair(self._data, at, stop, 0x12)
        node = self._node(*span)
        if not node.name:
            raise WireError(at, "a node without a name")
        if node.name.count("/") >= MOST_COMPONENTS:
            raise WireError(at, f"a name of more than {MOST_COMPONENTS} components")
        self._nodes[key] = node

    def _text(self, at: int, stop: int) -> str:
        """Return a string; equal strings of many messages are one object."""
        raw = self._data[at:stop]
        known = self._texts.get(raw)
        if known is None:
            known = self._texts[raw] = raw.decode("utf-8", "replace")
        return known

    def _node(self, at: int, stop: int) -> _Raw:
        data = self._data
        node = _Raw()
        for tag, a, b in fields(data, at, stop):
            if tag == 0x62:
                node.steps.append(self._step(a, b))
            elif tag == 0x5A:
                self._attribute(node.attributes, a, b)
            elif tag == 0x0A:
                node.name = text(data, a, b)
            elif tag == 0x4A:
                node.op = self._text(a, b)
            elif tag == 0x2A:
                node.op_types.append(self._text(a, b))
            elif tag == 0x32:
                node.device = self._text(a, b)
            elif tag == 0x40:
                node.float_ops = signed(a)
            elif tag in (0x20, 0x22):
                node.shape += repeated(data, tag, a, b)
            elif tag == 0x12 or tag == 0x72:
                key, value = _pair(data, a, b, 0x10)
                (node.inputs if tag == 0x12 else node.sources)[key] = signed(value[0])
            elif tag == 0x7A:
                slot, span = _pair(data, a, b, 0x12)
                node.outputs[slot] = tuple(_tuple(data, *span))
            elif tag == 0x52:
                node.trace = a, b
            elif tag >> 3 in (1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 14, 15):
                raise unexpected(tag, at)
        return node

    def _attribute(self, attributes: dict[str, str], at: int, stop: int) -> None:
        data = self._data
        key = b""
        for tag, a, b in fields(data, at, stop):
            if tag == 0x0A:
                key = data[a:b]
                if key not in _ATTRIBUTES:
                    return
            elif tag == 0x12 and key:
                value = _attribute_text(data, a, b)
                if value:
                    attributes[key.decode()] = value

    def _step(self, at: int, stop: int) -> NodeStep:
        """Read an entry of the map from step id to ExecProfile."""
        data = self._data
        step = count = first = last = 0
        executions: list[Execution] = []
        memory: list[OpMemory] = []
        for tag, a, b in fields(data, at, stop):
            if tag == 0x08:
                step = signed(a)
                continue
            if tag != 0x12:
                raise unexpected(tag, at)
            for inner, c, d in fields(data, a, b):
                if inner == 0x2A:
                    self._times(executions, c, d, accelerator=False)
                elif inner == 0x3A:
                    got = integers(data, c, d, 1, 6, 7, 8, 9, 10)  # ExecMemory
                    memory.append(OpMemory(got[6], got[7], got[8], got[9], got[1] * 1000, got[10]))
                elif inner == 0x22:
                    self._times(executions, c, d, accelerator=True)
                elif inner == 0x08:
                    count = signed(c)
                elif inner == 0x10:
                    first = signed(c) * 1000
                elif inner == 0x18:
                    last = signed(c) * 1000
                elif inner >> 3 in (1, 2, 3, 4, 5, 7):
                    raise unexpected(inner, a)
        if not 0 < first <= last < LAST_US * 1000:
            first = last = 0
        return NodeStep(step, count, first, last, tuple(executions), tuple(memory))

    def _times(self, executions: list[Execution], at: int, stop: int, accelerator: bool) -> None:
        """Read an entry of the map from device to ExecTime: pairs of start and duration in us."""
        data = self._data
        device = ""
        pairs: list[list[int]] = []
        for tag, a, b in fields(data, at, stop):
            if tag == 0x0A:
                device = self._text(a, b)
            elif tag == 0x12:
                for inner, c, d in fields(data, a, b):
                    if inner != 0x0A:
                        raise unexpected(inner, a)
                    pairs.append(_tuple(data, c, d))
            else:
                raise unexpected(tag, at)
        for pair in pairs:
            if len(pair) != 2 or not (0 < pair[0] < LAST_US and 0 <= pair[1] < LONGEST_US):
                self._notes.add("execution without a possible time: skipped", f"{self._place}: byte {at}")
                continue
            kind = "accelerator" if accelerator else "cpu"
            executions.append(Execution(device, kind, pair[0] * 1000, pair[1] * 1000))  # type: ignore[arg-type]

    def finish(self, index: int) -> TfProfile:
        """Return the record. Raises `InputError` if it is empty."""
        notes = self._notes
        if not self._nodes:
            what = f"{self._problem}; no node can be read" if self._problem else "no nodes"
            raise InputError(f"{self._place}: {what}; expected a ProfileProto with nodes")
        if self._lost:
            notes.add("damaged part of a TFProf profile: skipped", f"{self._place}: {self._problem}", count=self._lost)
        ran = Counter(step.step for node in self._nodes.values() for step in node.steps)
        steps = sorted(set(self._steps))
        strange = sorted(ran.keys() - set(steps))
        if strange and not self._steps:
            notes.add("TFProf profile without its list of steps: they are those of the executions", self._place)
        elif strange:
            notes.add("step of an execution that the profile does not list", self._place, len(strange))
        nodes = tuple(self._finished(node) for node in sorted(self._nodes.values(), key=lambda node: node.name))
        return TfProfile(source=index, steps=tuple(sorted({*steps, *ran})), nodes=nodes)

    def _finished(self, node: _Raw) -> TfNode:
        return TfNode(
            name=node.name,
            op=node.op or node.name,
            op_types=tuple(node.op_types),
            device=node.device,
            shape=tuple(node.shape),
            float_ops=node.float_ops,
            input_shapes=tuple((slot, self._input(node, node.inputs[slot])) for slot in sorted(node.inputs)),
            output_shapes=tuple(sorted(node.outputs.items())),
            attributes=node.attributes,
            place=self._made_by(node.trace) if node.steps and node.trace else "",
            steps=tuple(sorted(node.steps, key=lambda step: step.step)),
        )

    def _input(self, node: _Raw, producer: int) -> Shape:
        """Return the shape of the used output, empty if unknown."""
        made = self._nodes.get(producer)
        return () if made is None else made.outputs.get(node.sources.get(producer, 0), ())

    def _made_by(self, trace: tuple[int, int]) -> str:
        """Return ``file.py:12`` of the innermost frame outside of TensorFlow; without the folder."""
        try:
            for tag, a, b in reversed(fields(self._data, *trace)):
                if tag != 0x0A:
                    continue
                raw = self._data[a:b]
                known = self._places.get(raw)
                if known is None:
                    frame = last(fields(self._data, a, b))
                    name = self._strings.get(signed(frame[0x30][0]), "") if 0x30 in frame else ""
                    known = self._places[raw] = name or text(self._data, *frame[0x0A]), signed(frame[0x10][0])
                file, line = known
                if file and "tensorflow/python/" not in file.replace("\\", "/"):
                    return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
        except WireError:
            self._notes.add("Python stack that cannot be read: skipped", self._place)
        return ""


# -- The parts of a node of a ProfileProto: pairs, shapes, memory, attributes (tfprof.md 2) ----------------------------

_WORD = re.compile(r"SAME|VALID|EXPLICIT|N[A-Z]{1,4}|N[A-Z]{1,3}_VECT_[A-Z]", re.ASCII)
"""Possible values of padding and data_format."""
_TYPES = {1: "float", 2: "double", 3: "int32", 9: "int64", 10: "bool", 14: "bfloat16", 19: "half"}


def _pair(data: bytes, at: int, stop: int, value: int) -> tuple[int, tuple[int, int]]:
    """Read an entry of a map from integers to fields with the tag ``value``: (key, field without its tag)."""
    key, span = 0, (0, 0)
    for tag, a, b in fields(data, at, stop):
        if tag == 0x08:
            key = signed(a)
        elif tag == value:
            span = a, b
        else:
            raise unexpected(tag, at)
    return key, span


def _tuple(data: bytes, at: int, stop: int) -> list[int]:
    """Read a Tuple: its integers, packed or not."""
    found: list[int] = []
    for tag, a, b in fields(data, at, stop):
        if tag not in (0x08, 0x0A):
            raise unexpected(tag, at)
        found += repeated(data, tag, a, b)
    return found


def _attribute_text(data: bytes, at: int, stop: int) -> str:
    """Return an AttrValue as text: ``SAME``, ``float``, ``1x2x2x1``; empty for any other value."""
    for tag, a, b in fields(data, at, stop):
        if tag == 0x12:
            word = text(data, a, b)
            return word if _WORD.fullmatch(word) else ""
        if tag == 0x30:
            return _TYPES.get(a, f"type {a}")
        if tag == 0x0A:
            lengths: list[int] = []
            for inner, c, d in fields(data, a, b):
                if inner in (0x18, 0x1A):
                    lengths += repeated(data, inner, c, d)
            return "x".join(map(str, lengths))
    return ""
