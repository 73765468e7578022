"""The instructions of an XLA program, as far as they show what an op computes (xspace.md 6).

HloProto 1 module | HloModuleProto 3 computations | HloComputationProto 2 instructions | HloInstructionProto 1 name,
2 opcode, 3 shape, 7 metadata, 15 window, 16 dimension numbers, 28 custom call target, 35 id, 36 operands, 43 backend
config, 50 feature groups. Convolutions and matrix products are custom calls of libraries; the shapes of their operands
show the problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from mio2trace.model.profile import Inputs
from mio2trace.readers.tf.wire import BYTES, WireError, fields, numbers, signed, text

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
    """``operands``: shapes. ``given``: the inputs of the op for the table of operations; None for most."""

    opcode: str
    target: str
    path: str
    operands: tuple[Shape, ...]
    shape: Shape
    given: Inputs | None = None


class _Raw(NamedTuple):
    """The places of the parts of an instruction."""

    parts: Mapping[int, tuple[int, int]]
    operands: tuple[int, ...]


def instructions(data: bytes, wanted: frozenset[str]) -> dict[str, Instruction]:
    """Return the ``wanted`` instructions by name, as far as the program can be read."""
    raw: dict[str, _Raw] = {}
    shapes: dict[int, tuple[int, int]] = {}
    try:
        for span in chain.from_iterable(
            _parts(data, computation, 0x12)
            for module in _parts(data, (0, len(data)), 0x0A)
            for computation in _parts(data, module, 0x1A)
        ):
            name, number, one = _instruction(data, *span)
            if 3 in one.parts:
                shapes[number] = one.parts[3]
            if name in wanted:
                raw.setdefault(name, one)
    except WireError:
        pass  # complete instructions are kept
    found = {}
    for name, one in raw.items():
        try:
            found[name] = _told(data, one, shapes)
        except (WireError, ValueError, IndexError, KeyError, TypeError):
            continue
    return found


def _parts(data: bytes, span: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
    return ((at, stop) for tag, at, stop in fields(data, *span) if tag == wanted)


def _instruction(data: bytes, at: int, stop: int) -> tuple[str, int, _Raw]:
    name, number = "", 0
    parts: dict[int, tuple[int, int]] = {}
    operands: list[int] = []
    for tag, begin, end in fields(data, at, stop):
        field = tag >> 3
        if tag == 0x0A:
            name = text(data, begin, end)
        elif field == 35:
            number = signed(begin)
        elif field == 36:
            operands += numbers(data, begin, end) if tag & 7 == BYTES else [signed(begin)]
        else:
            parts[field] = begin, end
    return name, number, _Raw(parts, tuple(operands))


def _told(data: bytes, raw: _Raw, shapes: Mapping[int, tuple[int, int]]) -> Instruction:
    parts = raw.parts
    path = next((text(data, *span) for span in _parts(data, parts.get(7, (0, 0)), 0x12)), "")
    operands = tuple(_shape(data, shapes[one]) if one in shapes else Shape() for one in raw.operands[:8])
    target = text(data, *parts.get(28, (0, 0)))
    shape = _shape(data, parts[3]) if 3 in parts else Shape()
    made = Instruction(text(data, *parts.get(2, (0, 0))), target, path, operands, shape)
    if target in _WAYS:
        return made._replace(given=_convolution(data, raw, made))
    if target in _GEMMS or made.opcode == "dot":
        return made._replace(given=_product(data, raw, made))
    return made


def _shape(data: bytes, span: tuple[int, int], depth: int = 0) -> Shape:
    """Return a shape; for a tuple that of its first element: results are followed by scratch memory."""
    kind, lengths = 0, []
    for tag, at, stop in fields(data, *span):
        if tag == 0x10:
            kind = at
        elif tag >> 3 == 3:
            lengths += numbers(data, at, stop) if tag & 7 == BYTES else [signed(at)]
        elif tag == 0x22 and not depth:
            return _shape(data, (at, stop), 1)
    if len(lengths) > _MOST_DIMENSIONS or any(not 0 < one < _MOST_LENGTH for one in lengths):
        raise ValueError("no lengths")
    return Shape(tuple(lengths), _TYPES.get(kind, ""))


def _numbers_of(data: bytes, span: tuple[int, int]) -> dict[int, list[int]]:
    """Return the whole numbers of a message by field, single or packed."""
    found: dict[int, list[int]] = {}
    for tag, at, stop in fields(data, *span):
        values = numbers(data, at, stop) if tag & 7 == BYTES else [signed(at)]
        found.setdefault(tag >> 3, []).extend(values)
    return found


def _convolution(data: bytes, raw: _Raw, made: Instruction) -> Inputs:
    """Return x, w, y in the order N, C, spatial; pads, strides, dilations, groups. Raises `ValueError`, `KeyError`."""
    way = _WAYS[made.target]
    dims = _numbers_of(data, raw.parts[16])
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
    windows = [_numbers_of(data, span) for span in _parts(data, raw.parts[15], 0x0A)]
    if len(windows) != len(shapes[0]) - 2:
        raise ValueError("a window of other dimensions")
    pads = [one.get(3, [0])[0] for one in windows]
    strides = [max(1, one.get(2, [1])[0]) for one in windows]
    dilations = [max(1, one.get(5, [1])[0]) for one in windows]
    if any(max(1, one.get(6, [1])[0]) != 1 for one in windows) or min(pads) < 0:
        raise ValueError("a window that MIOpen has not got")
    groups = max(1, signed(raw.parts.get(50, (0, 0))[0]))
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


def _product(data: bytes, raw: _Raw, made: Instruction) -> Inputs | None:
    """Return the operands as <batch, m, k> and <batch, k, n>. Raises `ValueError`."""
    try:
        config = msgspec.json.decode(data[slice(*raw.parts[43])], type=_Config).gemm_backend_config
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
