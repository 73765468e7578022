"""XSpace (``*.xplane.pb``): the files of JAX's and TensorFlow's profilers for a run on ROCm (xspace.md).

    /device:GPU:0   Stream #16(Kernel)   loop_transpose_fusion.kd  correlation_id 243, hlo_op, program_id 15, ...
    /host:CPU       Host Threads/583     hipModuleLaunchKernel     correlation_id 243
    /host:CPU       py_xla_execute/-147  jit_forward_3d_conv:XLA GPU module
    /host:metadata                       jit_forward_3d_conv(15)   the program of XLA
    Task Environment                     profile_start_time        Unix ns; all times count from there

Kernels and copies are the events of lines ``Stream #...``; lines that viewers derive from them are left out. The HIP
call of a kernel is the host event with the same correlation id. The kernel or its call names its HLO op. So for each
device and launching thread there are ranges of the programs, layers and ops whose kernels were launched, from the first
launch to the last. A layer is the path in an op's name (`layer_of`); its problem is that of the program's instruction.
Steps are ranges with a ``step_num``, else executions of the program with the most device time. Python calls are read
with ``--host-calls all`` only. Times are whole ps and are rounded to ns. TPU lines are not read.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, pairwise
from typing import Any, Literal, NamedTuple

import msgspec

from mio2trace import wire
from mio2trace.model import profile as model
from mio2trace.model.log import Direction
from mio2trace.model.profile import Inputs
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records, kernel_name
from mio2trace.source import Source

# -- The messages of an XSpace (xspace.md 2), read in place: only requested events are kept ----------------------------
#
#     XSpace 1 planes | XPlane 2 name, 3 lines, 4 event types, 5 names of stats, 6 stats
#     XLine 1 id, 2 name, 3 timestamp_ns, 4 events, 11 display name | XEvent 1 type, 2 offset_ps, 3 duration_ps, 4 stats
#     XStat 1 name, then 2 double, 3 uint64, 4 int64, 5 string, 6 bytes or 7 reference to a name
#
# Events may come before the tables that name them, so a plane is read twice. A file that is cut off is read up to the
# cut: a message without its end gives its complete fields.

DAMAGED = "damaged event of an XSpace: left out"
_LONGEST_VARINT = 1 << 14
_MOST_PS = 1 << 62
_DOUBLE = struct.Struct("<d")
Span = tuple[int, int]
"""The begin and end of a message."""
Value = int | float | str | Span


class EventType(NamedTuple):
    """A type of events. ``stats``: of all events of the type."""

    name: str
    stats: tuple[Span, ...]


class Plane(NamedTuple):
    name: str
    lines: tuple[Span, ...]
    types: Mapping[int, EventType]
    names: Mapping[int, str]
    """Names of stats; a text that occurs often is also stored as a name."""
    stats: tuple[Span, ...]


class Line(NamedTuple):
    id: int
    name: str
    timestamp_ns: int
    span: Span


class Event(NamedTuple):
    """Times in ps from the line's begin. ``stats``: its own, then those of its type."""

    type: EventType
    offset_ps: int
    duration_ps: int
    stats: tuple[Span, ...]


class Reader:
    """Reads the messages of one file."""

    def __init__(self, data: bytes, place: str, notes: Notes) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self.walk = wire.Walk(data, place, notes, "XSpace damaged: read up to there")

    def planes(self) -> Iterator[Plane]:
        for tag, at, stop in self.walk.parts(0, len(self._data)):
            if tag == 0x0A:
                yield self._plane(at, stop)

    def lines(self, plane: Plane) -> Iterator[Line]:
        for span in plane.lines:
            line = wire.last(self.walk.parts(*span))
            name = self._text(*line[0x5A]) or self._text(*line[0x12])
            yield Line(line[0x08][0], name, wire.signed(line[0x18][0]), span)

    def events(self, plane: Plane, line: Line) -> Iterator[Event]:
        """Yield the events of known types that have a time."""
        types = plane.types
        for tag, at, stop in self.walk.parts(*line.span):
            if tag != 0x22:
                continue
            kind = duration = 0
            offset: int | None = None
            is_timed = False
            stats: list[Span] = []
            try:
                for inner, begin, end in wire.fields(self._data, at, stop):
                    if inner == 0x08:
                        kind = wire.signed(begin)
                    elif inner == 0x10:
                        offset, is_timed = wire.signed(begin), True
                    elif inner == 0x18:
                        duration, is_timed = wire.signed(begin), True
                    elif inner == 0x22:
                        stats.append((begin, end))
                    elif inner == 0x28:  # the number of occurrences: a sum, and no event
                        kind = -1
                        break
            except wire.WireError as error:
                self._notes.add(DAMAGED, f"{self._place}: {error}")
                continue
            if kind == -1:
                continue
            known = types.get(kind)
            if known is None or not is_timed or duration < 0 or not 0 <= (offset or 0) + duration < _MOST_PS:
                self._notes.add(DAMAGED, self._place)
                continue
            yield Event(known, offset or 0, duration, (*stats, *known.stats))

    def stats(self, plane: Plane, spans: tuple[Span, ...]) -> dict[str, Value]:
        """Return the stats by name; the first one of a name counts. A text of bytes is returned as its place."""
        found: dict[str, Value] = {}
        for span in spans:
            try:
                name, value = self._stat(plane, span)
            except wire.WireError:
                continue
            if name and value is not None:
                found.setdefault(name, value)
        return found

    def bytes_at(self, span: Span) -> bytes:
        return self._data[span[0] : span[1]]

    def _stat(self, plane: Plane, span: Span) -> tuple[str, Value | None]:
        key = 0
        value: Value | None = None
        for tag, at, stop in wire.fields(self._data, *span):
            if tag == 0x08:
                key = wire.signed(at)
            elif tag == 0x11:
                value = _DOUBLE.unpack_from(self._data, at)[0]
            elif tag == 0x18:
                value = at
            elif tag == 0x20:
                value = wire.signed(at)
            elif tag == 0x2A:
                value = self._text(at, stop)
            elif tag == 0x32:
                value = at, stop
            elif tag == 0x38:
                value = plane.names.get(wire.signed(at), "")
        return plane.names.get(key, ""), value

    def _plane(self, at: int, stop: int) -> Plane:
        name = ""
        lines: list[Span] = []
        stats: list[Span] = []
        types: dict[int, EventType] = {}
        names: dict[int, str] = {}
        for tag, begin, end in self.walk.parts(at, stop):
            if tag == 0x12:
                name = self._text(begin, end)
            elif tag == 0x1A:
                lines.append((begin, end))
            elif tag == 0x32:
                stats.append((begin, end))
            elif tag in (0x22, 0x2A):
                entry = wire.last(self.walk.parts(begin, end))
                if 0x12 not in entry:
                    continue
                key, of = wire.signed(entry[0x08][0]), [*self.walk.parts(*entry[0x12])]
                title = self._text(*wire.last(of)[0x12])
                if tag == 0x22:
                    types[key] = EventType(title, tuple((a, b) for inner, a, b in of if inner == 0x2A))
                else:
                    names[key] = title
        return Plane(name, tuple(lines), types, names, tuple(stats))

    def _text(self, at: int, stop: int) -> str:
        return wire.text(self._data, at, min(stop, at + _LONGEST_VARINT))


# -- The instructions of an XLA program, as far as they show what an op computes (xspace.md 6) -------------------------
#
# HloProto 1 module | HloModuleProto 3 computations | HloComputationProto 2 instructions | HloInstructionProto 1 name, 2
# opcode, 3 shape, 7 metadata, 15 window, 16 dimension numbers, 28 custom call target, 35 id, 36 operands, 43 backend
# config, 50 feature groups. Convolutions and matrix products are custom calls of libraries; the shapes of their
# operands show the problem.

_TYPES = {2: "int8", 4: "int32", 6: "uint8", 10: "half", 11: "float", 12: "double", 16: "bfloat16"}
_TYPES |= {19: "float8", 20: "float8", 23: "float8", 24: "float8"}
_WAYS = {
    "__cudnn$convForward": "forward",
    "__cudnn$convBiasActivationForward": "forward",
    "__cudnn$convBackwardInput": "backward-data",
    "__cudnn$convBackwardFilter": "backward-weights",
}
_GEMMS = ("__cublas$gemm", "__cublas$lt$matmul", "__triton_gemm")
_MOST_DIMENSIONS = 16
_MOST_LENGTH = 1 << 40


class Shape(NamedTuple):
    lengths: tuple[int, ...] = ()
    dtype: str = ""


class Instruction(NamedTuple):
    """An HLO instruction. ``operands``: shapes. ``given``: the inputs of the op for the table of operations; None for
    most."""

    opcode: str
    target: str
    path: str
    operands: tuple[Shape, ...]
    shape: Shape
    given: Inputs | None = None


_INSTRUCTION: wire.Fields = {
    1: ("name", str), 2: ("opcode", str), 3: ("shape", slice), 7: ("metadata", slice), 15: ("window", slice),
    16: ("dimensions", slice), 28: ("target", str), 35: ("id", int), 36: ("operands", list), 43: ("config", slice),
    50: ("groups", int),
}  # fmt: skip


def instructions(data: bytes, wanted: frozenset[str]) -> dict[str, Instruction]:
    """Return the ``wanted`` instructions by name, as far as the program can be read."""
    raw: dict[str, wire.Message] = {}
    shapes: dict[int, tuple[int, int]] = {}
    try:
        for span in chain.from_iterable(
            _parts(data, computation, 0x12)
            for module in _parts(data, (0, len(data)), 0x0A)
            for computation in _parts(data, module, 0x1A)
        ):
            try:
                one = wire.message(data, wire.fields(data, *span), _INSTRUCTION)
            except wire.WireError:
                continue  # others do not need it
            if "shape" in one:
                shapes[wire.newest(one, "id", 0)] = one["shape"][-1]
            if (name := wire.newest(one, "name", "")) in wanted:
                raw.setdefault(name, one)
    except wire.WireError:
        pass  # those before the damage are kept
    found = {}
    for name, one in raw.items():
        try:
            found[name] = _told(data, one, shapes)
        except (wire.WireError, ValueError, IndexError, KeyError, TypeError):
            continue
    return found


def _parts(data: bytes, span: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
    return ((at, stop) for tag, at, stop in wire.fields(data, *span) if tag == wanted)


def _told(data: bytes, raw: wire.Message, shapes: Mapping[int, tuple[int, int]]) -> Instruction:
    spans = chain.from_iterable(_parts(data, metadata, 0x12) for metadata in raw.get("metadata", ())[-1:])
    path = next((wire.text(data, *span) for span in spans), "")
    operands = [_shape(data, shapes[one]) if one in shapes else Shape() for one in raw.get("operands", ())[:8]]
    target = wire.newest(raw, "target", "")
    shape = _shape(data, raw["shape"][-1]) if "shape" in raw else Shape()
    made = Instruction(wire.newest(raw, "opcode", ""), target, path, tuple(operands), shape)
    if target in _WAYS:
        return made._replace(given=_convolution(data, raw, made))
    if target in _GEMMS or made.opcode == "dot":
        return made._replace(given=_product(data, raw, made))
    return made


def _shape(data: bytes, span: tuple[int, int], depth: int = 0) -> Shape:
    """Return a shape; for a tuple that of its first element: results are followed by scratch memory."""
    kind, lengths = 0, []
    for tag, at, stop in wire.fields(data, *span):
        if tag == 0x10:
            kind = at
        elif tag >> 3 == 3:
            lengths += wire.repeated(data, tag, at, stop)
        elif tag == 0x22 and not depth:
            return _shape(data, (at, stop), 1)
    if len(lengths) > _MOST_DIMENSIONS or any(not 0 < one < _MOST_LENGTH for one in lengths):
        raise ValueError("no lengths")
    return Shape(tuple(lengths), _TYPES.get(kind, ""))


def _numbers_of(data: bytes, span: tuple[int, int]) -> dict[int, list[int]]:
    """Return the whole numbers of a message by field, single or packed."""
    found: dict[int, list[int]] = {}
    for tag, at, stop in wire.fields(data, *span):
        found.setdefault(tag >> 3, []).extend(wire.repeated(data, tag, at, stop))
    return found


def _convolution(data: bytes, raw: wire.Message, made: Instruction) -> Inputs:
    """Return x, w, y in the order N, C, spatial; pads, strides, dilations, groups. Raises `ValueError`, `KeyError`."""
    way = _WAYS[made.target]
    dims = _numbers_of(data, raw["dimensions"][-1])
    # of input, kernel and output: the two leading dimensions, then the spatial ones
    orders = [
        (dims.get(7, [0])[0], dims.get(8, [0])[0], *dims[11]),
        (dims.get(4, [0])[0], dims.get(3, [0])[0], *dims[6]),
        (dims.get(9, [0])[0], dims.get(10, [0])[0], *dims[12]),
    ]
    first, second = made.operands[0].lengths, made.operands[1].lengths
    result = made.shape.lengths
    x, w, y = {
        "forward": (first, second, result),
        "backward-data": (result, second, first),
        "backward-weights": (first, result, second),
    }[way]
    shapes = []
    for lengths, order in zip((x, w, y), orders, strict=True):
        if sorted(order) != list(range(len(lengths))):
            raise ValueError("dimension numbers that are none of the shape")
        shapes.append(tuple(lengths[place] for place in order))
    windows = [_numbers_of(data, span) for span in _parts(data, raw["window"][-1], 0x0A)]
    if len(windows) != len(shapes[0]) - 2:
        raise ValueError("a window of other dimensions")
    pads = [one.get(3, [0])[0] for one in windows]
    strides = [max(1, one.get(2, [1])[0]) for one in windows]
    dilations = [max(1, one.get(5, [1])[0]) for one in windows]
    if any(max(1, one.get(6, [1])[0]) != 1 for one in windows) or min(pads) < 0:
        raise ValueError("a window that MIOpen has not got")
    groups = max(1, wire.newest(raw, "groups", 0))
    values = ("conv", way, *map(str, (pads, strides, dilations, groups)))
    return Inputs(tuple(shapes), tuple(one.dtype for one in made.operands[:2]), (), values)


class _DotDimensions(msgspec.Struct, gc=False):
    lhs_contracting_dimensions: list[int | str] = []
    rhs_contracting_dimensions: list[int | str] = []
    lhs_batch_dimensions: list[int | str] = []


class _GemmConfig(msgspec.Struct, gc=False):
    dot_dimension_numbers: _DotDimensions = msgspec.field(default_factory=_DotDimensions)
    epilogue: Any = None


class _Config(msgspec.Struct, gc=False):
    gemm_backend_config: _GemmConfig | None = None


def _product(data: bytes, raw: wire.Message, made: Instruction) -> Inputs | None:
    """Return the operands as <batch, m, k> and <batch, k, n>. Raises `ValueError`."""
    try:
        config = msgspec.json.decode(data[slice(*raw["config"][-1])], type=_Config).gemm_backend_config
    except (msgspec.DecodeError, RecursionError):
        return None
    if config is None or len(made.operands) < 2:
        return None
    dims = config.dot_dimension_numbers
    left, right = made.operands[0].lengths, made.operands[1].lengths
    batch = _size(left, dims.lhs_batch_dimensions)
    k = _size(left, dims.lhs_contracting_dimensions)
    if not dims.lhs_contracting_dimensions or k != _size(right, dims.rhs_contracting_dimensions):
        return None
    m, n = _size(left, range(len(left))) // (batch * k), _size(right, range(len(right))) // (batch * k)
    if m < 1 or n < 1:
        return None
    return Inputs(((batch, m, k), (batch, k, n)), tuple(one.dtype for one in made.operands[:2]), (), ("gemm",))


def _size(lengths: tuple[int, ...], places: Sequence[int | str]) -> int:
    size = 1
    for place in places:
        if not 0 <= int(place) < len(lengths):
            raise ValueError("no such dimension")
        size *= lengths[int(place)]
    return size


# -- The profile -------------------------------------------------------------------------------------------------------

NAME = "XSpace of JAX or TensorFlow (.xplane.pb)"
FRAMEWORK = model.XLA
_PLANE = late(rb"(?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12.(?:/host:|/device:|Task Environment)", re.DOTALL)
_GPU = late(r"/device:GPU:(\d{1,5})", re.ASCII)
_STREAM = late(r"Stream #(\d{1,18})", re.ASCII)
_SYSTEM_THREAD = late(r"Host Threads/(\d{1,18})", re.ASCII)
_NUMBER_BEHIND = late(r"/-?\d{3,20}\Z", re.ASCII)
_DETAIL = late(r"([a-z_]{1,20}):([0-9,]{1,40})(?!\S)", re.ASCII)
_DERIVED = 0xDEADBEEF
_ENQUEUES = ":XLA GPU module"
_MOST_REGISTERS = 512
"""No GPU has more for a work-item; older builds for ROCm wrote a part of an address there."""
_UNIX_FROM_NS = 10**15
_MOST_NS = (1 << 62) - 1
_ROUTES = {
    **dict.fromkeys(("H2D", "HostToDevice"), "host to device"),
    **dict.fromkeys(("D2H", "DeviceToHost"), "device to host"),
    **dict.fromkeys(("D2D", "P2P", "DeviceToDevice", "PeerToPeer"), "device to device"),
}
_DETAILS = ("kernel_details", "memcpy_details", "memset_details")
_Kind = Literal["kernel", "copy", "fill"]
_PYTHON = "$"
_WAITS = late(r"(?:block_until_ready|device_get)$", re.ASCII)
"""Functions of JAX in which the program waits for a result; these Python frames are always kept."""
_Key = tuple[int | None, str, str]
"""(program, module, op)."""


class _Op(NamedTuple):
    """The op of a kernel. ``path``: the name that JAX or TensorFlow gave the op."""

    key: _Key
    path: str


class _Ran(NamedTuple):
    """A command of a device. Times are in ns."""

    name: str
    start: int
    end: int
    queue: int
    correlation: int | None
    op: _Op | None
    details: Mapping[str, Any]
    """Arguments of `Activity`."""
    kind: _Kind


class _Launched(NamedTuple):
    """A command with an op, and the time of its launch; without a call, the time at which it ran."""

    start: int
    end: int
    position: int
    op: _Op


def sniff(head: bytes) -> bool:
    """Return whether the first field is a plane whose first field, apart from its number, is a name."""
    if head[:1] != b"\x0a":
        return False
    try:
        _, at = wire.varint(head, 1, len(head))
    except wire.WireError:
        return False
    return _PLANE.match(head, at) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the profile of the host. Raises `InputError` if it has no event of a GPU or of its host."""
    return [_Assembly(source, Reader(source.read(), source.name, notes), notes, options.host_calls).profile()]


class _Assembly:
    def __init__(self, source: Source, reader: Reader, notes: Notes, every_call: bool) -> None:
        self._source = source
        self._reader = reader
        self._notes = notes
        self._every_call = every_call
        self._planes = list(reader.planes())
        begun = [reader.stats(plane, plane.stats).get("profile_start_time") for plane in self._planes]
        self._begun = next((one for one in begun if type(one) is int and 0 < one < _MOST_NS), None)
        self._threads: list[model.Thread] = []
        self._called: Counter[str] = Counter()
        self._devices: list[model.Device] = []
        self._queues: list[model.Queue] = []
        self._queue_of: dict[tuple[int, int], int] = {}
        self._ran: list[_Ran] = []
        self._calls: dict[int | None, tuple[model.Call, _Op | None]] = {}
        self._others: list[model.Call] = []
        self._ranges: list[model.Range] = []
        self._steps: list[model.Range] = []
        self._enqueued: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        """By program and thread: when the thread launched the program's kernels."""
        self._records = 0
        self._left_out = 0
        self._shared: dict[Any, Any] = {}

    def profile(self) -> model.Profile:
        for plane in self._planes:
            number = _GPU.fullmatch(plane.name)
            if number is not None:
                self._device(plane, int(number[1]))
        for plane in self._planes:
            if plane.name.startswith("/host:") and plane.lines:
                self._host(plane)
        is_of_tpu = any(plane.name.startswith("/device:TPU") for plane in self._planes)
        if not self._ran and (is_of_tpu or not (self._calls or self._ranges)):
            what = "the profile of a TPU" if is_of_tpu else "no event of a GPU or of its host"
            raise InputError(f"{self._source.name}: {what}; expected an XSpace of a run on a GPU")
        begun = {key: call.start_ns or 0 for key, (call, _) in self._calls.items()}
        self._ran.sort(key=lambda ran: (begun.get(ran.correlation, ran.start), ran.start))
        range_of = self._program_ranges()
        launches = {ran.correlation for ran in self._ran}
        others = [call for key, (call, _) in self._calls.items() if key not in launches] + self._others
        others.sort(key=lambda call: call.start_ns or 0)
        defects = {
            "cut-off": int(self._reader.walk.error is not None), "times-out-of-order": self._left_out,
            "program-without-kernels": self._without_kernels(),
        }  # fmt: skip
        return model.Profile(
            source=self._source.index,
            records=self._records,
            activities=tuple(self._activity(place, ran, range_of.get(place)) for place, ran in enumerate(self._ran)),
            other_calls=tuple(others),
            ranges=tuple(self._ranges),
            queues=tuple(self._queues),
            devices=tuple(self._devices),
            threads=tuple(self._threads),
            processes=(model.Process(index=0),),
            clocks=(model.Clock("opaque" if self._begun is None else "unix"),),
            numbers="event_index",
            framework=model.Framework(name=FRAMEWORK),
            defects={name: number for name, number in defects.items() if number},
        )

    def _without_kernels(self) -> int:
        """Count the executions of programs that launched no recorded kernel. Kernels of the program must be recorded
        in others. If calls are on lines of their own, a kernel that another thread launched meanwhile counts too."""
        starts: dict[int, list[int]] = defaultdict(list)
        threads_of: dict[str, set[int]] = defaultdict(set)
        for ran in self._ran:
            call, of_call = self._calls.get(ran.correlation, (None, None))
            if call is not None and call.thread is not None:
                starts[call.thread].append(call.start_ns or 0)
                op = ran.op or of_call
                threads_of[op.key[1] if op else ""].add(call.thread)
        on_all = sorted(chain.from_iterable(starts.values()))
        found = 0
        for (program, thread), spans in self._enqueued.items():
            threads = threads_of.get(program, set())
            if not threads:
                continue
            is_own = any((program, one) in self._enqueued for one in threads)
            launched = sorted(starts.get(thread, ())) if is_own else on_all
            until = -1
            for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                if end <= until:  # older builds have a range in an equal one
                    continue
                until = end
                at = bisect_left(launched, begin)
                found += at == len(launched) or launched[at] > end
        return found

    # -- times and stats ---------------------------------------------------------------------------------------------

    def _events(self, plane: Plane, line: Line) -> Iterator[tuple[Event, int, int]]:
        """Yield (event, start, end) in ns; events without a usable time are left out."""
        base = line.timestamp_ns
        if self._begun is not None and 0 <= base < _UNIX_FROM_NS:
            base += self._begun
        for event in self._reader.events(plane, line):
            self._records += 1
            start_ps = base * 1000 + event.offset_ps
            start, end = (start_ps + 500) // 1000, (start_ps + event.duration_ps + 500) // 1000
            if 0 <= start <= end <= _MOST_NS:
                yield event, start, end
            else:
                self._notes.add("event whose times are no numbers in order: left out", self._source.name)
                self._left_out += 1

    def _op(self, stats: Mapping[str, Value]) -> _Op | None:
        """Return the op: XLA's by its instruction, TensorFlow's by the op's own name."""
        hlo, path = _text(stats.get("hlo_op")), _text(stats.get("name"))
        scope = _text(stats.get("tf_op")).rpartition(":")[0]
        if scope == "XlaModule":
            scope = ""
        if not hlo and not scope:
            return None
        program = stats.get("program_id")
        key = program if type(program) is int else None, _text(stats.get("hlo_module")), hlo or scope
        op = _Op(key, path or scope)
        made: _Op = self._shared.setdefault(op, op)
        return made

    # -- devices -----------------------------------------------------------------------------------------------------

    def _device(self, plane: Plane, number: int) -> None:
        known = next((one for one in self._devices if one.number == number), None)
        device = known or model.Device(index=len(self._devices), name=f"GPU {number}", clock=0, number=number)
        begun = len(self._queues)
        for line in self._reader.lines(plane):
            stream = _STREAM.match(line.name)
            if stream is None or line.id >= _DERIVED:
                continue
            queue = self._queue(device.index, int(stream[1]))
            for event, start, end in self._events(plane, line):
                stats = self._reader.stats(plane, event.stats)
                details = _details(next(filter(None, (_text(stats.get(name)) for name in _DETAILS)), ""))
                name, key = event.type.name, _correlation(stats)
                self._ran.append(_Ran(name, start, end, queue, key, self._op(stats), details, _kind(name, stats)))
        if known is None and len(self._queues) > begun:  # a GPU without work has no lines
            self._devices.append(device)

    def _queue(self, device: int, number: int) -> int:
        """Return the queue of a stream: two lines of one stream are one queue."""
        index = self._queue_of.setdefault((device, number), len(self._queues))
        if index == len(self._queues):
            self._queues.append(model.Queue(index=index, device=device, kind="stream", number=number))
        return index

    def _activity(self, number: int, ran: _Ran, place: int | None) -> model.Activity:
        is_copy = ran.kind == "copy"
        route = next((route for word, route in _ROUTES.items() if word in ran.name), "") if is_copy else ""
        called = self._calls.get(ran.correlation)
        return model.Activity(
            number, ran.kind, f"copy {route}".strip() if is_copy else kernel_name(ran.name), queue=ran.queue,
            start_ns=ran.start, end_ns=ran.end, call=None if called is None else called[0], route=route,
            correlation=ran.correlation, range=place, **ran.details,
        )  # fmt: skip

    # -- the host ----------------------------------------------------------------------------------------------------

    def _thread(self, name: str, tid: int | None = None) -> int:
        self._called[name] += 1
        shown = name if self._called[name] == 1 else f"{name} ({self._called[name]})"
        self._threads.append(model.Thread(index=len(self._threads), tid=tid, name=shown))
        return self._threads[-1].index

    def _host(self, plane: Plane) -> None:
        for line in self._reader.lines(plane):
            if line.id >= _DERIVED and line.name in ("Steps", "XLA Modules", "XLA Ops", "Framework Ops"):
                continue
            system = _SYSTEM_THREAD.fullmatch(line.name)
            thread: int | None = None
            for event, start, end in self._events(plane, line):
                name = event.type.name
                if name.startswith(_PYTHON) and not self._every_call and not _WAITS.search(name):
                    continue
                if thread is None:
                    shown = "Host thread" if system else _NUMBER_BEHIND.sub("", line.name)
                    thread = self._thread(shown or "unnamed thread", int(system[1]) if system else None)
                self._of_host(plane, event, (start, end), thread)

    def _of_host(self, plane: Plane, event: Event, times: tuple[int, int], thread: int) -> None:
        """Take a HIP call, a step, or any other event of the host with a duration."""
        name = event.type.name
        stats = self._reader.stats(plane, event.stats) if event.stats else {}
        key, step = _correlation(stats), stats.get("step_num")
        if key is not None:
            call = model.Call(name, thread, *times, 0, None, key)
            if key in self._calls:
                self._others.append(call)
            else:
                self._calls[key] = call, self._op(stats)
        elif type(step) is int and 0 <= step < 10**9:
            self._steps.append(model.Range("annotation", f"step {step}", thread, *times))
        elif times[0] < times[1]:
            self._ranges.append(model.Range("frame", name.removeprefix(_PYTHON), thread, *times))
            if name.endswith(_ENQUEUES):
                self._enqueued[name.removesuffix(_ENQUEUES), thread].append(times)

    # -- programs ----------------------------------------------------------------------------------------------------

    def _program_ranges(self) -> dict[int, int]:
        """Make the ranges of programs, layers and ops that the host launched; return the place of each command's op."""
        lanes: dict[tuple[int, int | None], list[_Launched]] = defaultdict(list)
        for position, ran in enumerate(self._ran):
            call, of_call = self._calls.get(ran.correlation, (None, None))
            op = ran.op or of_call
            if op is None:
                continue
            device = self._queues[ran.queue].device
            if call is None:
                lanes[device, None].append(_Launched(ran.start, ran.end, position, op))
            else:
                times = call.start_ns or 0, call.end_ns or 0  # which it has
                lanes[device, call.thread].append(_Launched(*times, position, op))
        told = self._instructions({launched.op.key for lane in lanes.values() for launched in lane})
        executions: dict[int, list[list[_Launched]]] = defaultdict(list)
        range_of: dict[int, int] = {}
        for (device, _), lane in sorted(lanes.items(), key=lambda item: (item[0][0], item[1][0].start)):
            lane.sort(key=lambda launched: (launched.start, launched.position))
            thread = self._thread(f"{FRAMEWORK} programs, {self._devices[device].name}")
            for execution in _executions(lane):
                executions[device].append(execution)
                self._execution(execution, thread, told, range_of)
        self._ranges += self._steps or self._steps_of(executions)
        return range_of

    def _execution(
        self, execution: Sequence[_Launched], thread: int, told: Mapping[_Key, Instruction], range_of: dict[int, int]
    ) -> None:
        module = execution[0].op.key[1]
        if module:
            self._ranges.append(model.Range("frame", module, thread, *_span(execution)))
        paths = {one.op: one.op.path or (told[one.op.key].path if one.op.key in told else "") for one in execution}
        for (layer, direction), neighbours in groupby(execution, lambda one: layer_of(paths[one.op])):
            in_layer = [*neighbours]
            if layer:
                text = f"{layer} {direction}" if direction else layer
                self._ranges.append(model.Range("annotation", text, thread, *_span(in_layer)))
            for op, same in groupby(in_layer, lambda one: one.op):
                of_op, key = [*same], op.key
                range_of |= dict.fromkeys((one.position for one in of_op), len(self._ranges))
                text = f"{module}/{key[2]}" if module else key[2]
                inputs = self._given(told.get(key))
                self._ranges.append(model.Range("operator", text, thread, *_span(of_op), inputs=inputs))

    def _given(self, instruction: Instruction | None) -> model.Inputs | None:
        """Return the inputs for the table of operations; the opcode if nothing else is known."""
        if instruction is None:
            return None
        inputs = model.Inputs(values=(instruction.opcode,)) if instruction.given is None else instruction.given
        made: model.Inputs = self._shared.setdefault(inputs, inputs)
        return made

    def _instructions(self, keys: set[_Key]) -> dict[_Key, Instruction]:
        """Return the instructions of the programs that ran; a plane holds each program as bytes."""
        programs: dict[tuple[int, str], set[str]] = defaultdict(set)
        for program, module, op in keys:
            if program is not None:
                programs[program, module].add(op)
        found: dict[_Key, Instruction] = {}
        for plane in self._planes:
            if plane.name != "/host:metadata":
                continue
            by_name = {kind.name: kind for kind in plane.types.values()}
            for (program, module), ops in programs.items():
                kind = by_name.get(f"{module}({program})")
                span = None if kind is None else self._reader.stats(plane, kind.stats).get("Hlo Proto")
                if isinstance(span, tuple):
                    made = instructions(self._reader.bytes_at(span), frozenset(ops))
                    found |= {(program, module, op): one for op, one in made.items()}
        return found

    def _steps_of(self, executions: Mapping[int, Sequence[Sequence[_Launched]]]) -> list[model.Range]:
        """Return each execution of the program with the most device time, up to the next launch of it. The devices run
        it together; none if launches of one step and the next one overlap."""
        time: Counter[_Key] = Counter()
        for of_device in executions.values():
            for execution in of_device:
                for one in execution:
                    time[*one.op.key[:2], ""] += self._ran[one.position].end - self._ran[one.position].start
        if not time:
            return []
        main = max(time, key=lambda key: (time[key], key[1]))
        runs = [
            sorted(_span(one) for one in of_device if (*one[0].op.key[:2], "") == main)
            for of_device in executions.values()
        ]
        runs = [of_device for of_device in runs if of_device]
        count = max(map(len, runs), default=0)
        if not main[1] or count < 2 or any(len(of_device) != count for of_device in runs):
            return []
        begins = [min(of_device[number][0] for of_device in runs) for number in range(count)]
        ends = [max(of_device[number][1] for of_device in runs) for number in range(count)]
        if any(end > begin for end, begin in zip(ends, begins[1:], strict=False)):
            return []
        thread = self._thread(f"{FRAMEWORK} steps")
        spans = [*pairwise(begins), (begins[-1], ends[-1])]
        return [model.Range("annotation", f"step {number}", thread, *span) for number, span in enumerate(spans, 1)]


def _executions(lane: Sequence[_Launched]) -> Iterator[list[_Launched]]:
    """Split into executions: a new one begins with another program, or with the first op of the current one."""
    execution = [*lane[:1]]
    for launched in lane[1:]:
        first, last, key = execution[0].op.key, execution[-1].op.key, launched.op.key
        if key[:2] != first[:2] or (first[1] and key == first and last != first):
            yield execution
            execution = []
        execution.append(launched)
    yield execution


def _span(launched: Sequence[_Launched]) -> tuple[int, int]:
    return launched[0].start, max(one.end for one in launched)


@lru_cache(maxsize=1 << 14)
def _details(text: str) -> Mapping[str, Any]:
    """Read ``grid:16,1,1 block:512,1,1 private_mem:0 group_mem:0``: the number of blocks, and their size."""
    values = dict(_DETAIL.findall(text[:400]))
    blocks, group = _size3(values.get("grid", "")), _size3(values.get("block", ""))
    grid = None
    if blocks is not None and group is not None:
        grid = (blocks[0] * group[0], blocks[1] * group[1], blocks[2] * group[2])
    private, local, vgprs = (_integer(values.get(name)) for name in ("private_mem", "group_mem", "regs"))
    if vgprs is not None and vgprs > _MOST_REGISTERS:
        vgprs = None
    has_resources = private is not None or local is not None or vgprs is not None
    resources = model.Resources(vgprs=vgprs, lds_bytes=local, scratch_bytes=private) if has_resources else None
    size = _integer(values.get("size")) or 0
    return {"grid": grid, "workgroup": group, "resources": resources, "size_bytes": size}


def _correlation(stats: Mapping[str, Value]) -> int | None:
    key = stats.get("correlation_id")
    return key if type(key) is int and 0 <= key < 1 << 63 else None


def _kind(name: str, stats: Mapping[str, Value]) -> _Kind:
    """Return the kind by the details; older builds name copies after the call: ``CopyDeviceToDevice``."""
    if name.startswith("Memset") or "memset_details" in stats:
        return "fill"
    return "copy" if name.startswith("Memcpy") or "memcpy_details" in stats else "kernel"


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) else ""


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 19 else None


def _size3(text: str) -> model.Size3 | None:
    parts = [_integer(part) or 0 for part in text.split(",")]
    if len(parts) != 3 or not all(0 < part < 1 << 32 for part in parts):
        return None
    return parts[0], parts[1], parts[2]


# -- The part of a network that an op is in, by the path that JAX and TensorFlow give it (xspace.md 6) -----------------
#
# jit(train_step)/jvp(ResNet)/Block_3/Conv_0/conv_general_dilated             ResNet/Block_3/Conv_0, forward
# jit(train_step)/transpose(jvp(ResNet))/Block_3/Conv_0/conv_general_dilated  the same, backward
# gradient_tape/model/conv1/Conv2D/Conv2DBackpropFilter                       model/conv1/Conv2D, backward

_LONGEST, _DEEPEST = 4000, 40
_WRAPPED = late(r"([A-Za-z_][A-Za-z0-9_]{0,40})\((.*)\)", re.DOTALL)
_PROGRAMS = frozenset(("jit", "pjit", "pmap", "xla_call", "shard_map", "xmap", "named_call"))
"""Wrappers whose argument is a compiled function, which is no part of a network."""
_EINSUM = late(r"[^()/]{1,400}->[A-Za-z0-9. ]*")
"""``jnp.einsum`` names its op ``bsd,de->bse``, after what it computes and not after a part of a network."""
_PLUMBING = late(
    r"while|body|cond|scan|branch_\d+_fun|closed_call|core_call|remat2?|checkpoint|rematted_computation|pjit|shard_map"
    r"|custom_[jv][vj]p_call(?:_jaxpr)?|body_jaxpr|cond_jaxpr|gradient_tape|gradients|StatefulPartitionedCall(?:_\d+)?"
)


@lru_cache(maxsize=1 << 13)
def layer_of(path: str) -> tuple[str, Direction | None]:
    """Return (layer, direction) of an op; empty for an op in no named part. The last component is the op itself."""
    if len(path) > _LONGEST:
        return "", None
    layers: list[str] = []
    direction: Direction | None = None
    *scopes, _ = _components(path)
    if scopes[:1] in (["gradient_tape"], ["gradients"]):
        direction = "backward"
    for scope in scopes:
        for _ in range(_DEEPEST):
            wrapped = _WRAPPED.fullmatch(scope)
            if wrapped is None:
                break
            word, scope = wrapped[1], wrapped[2]
            if word in _PROGRAMS:
                scope = ""
            elif word == "transpose":
                direction = "backward"
            elif word == "jvp" and direction is None:
                direction = "forward"
        layers += [part for part in _components(scope) if not (_PLUMBING.fullmatch(part) or _EINSUM.fullmatch(part))]
    # Both slashes of an address stay, so that the privacy rules recognise it.
    layers = [part for before, part in zip(["", *layers], layers, strict=False) if part or before.endswith(":")]
    return "/".join(layers), direction if layers else None


def _components(path: str) -> list[str]:
    """Return the parts between slashes; slashes in parentheses do not count."""
    if "(" not in path:
        return path.split("/")
    found, begin, depth = [], 0, 0
    for at, letter in enumerate(path):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth = max(0, depth - 1)
        elif letter == "/" and not depth:
            found.append(path[begin:at])
            begin = at + 1
    return [*found, path[begin:]]
