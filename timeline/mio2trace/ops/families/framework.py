"""Ops of a framework that no other family models: their inputs, and the traffic of element-wise ops.

Rule for an element-wise op: each tensor is read once, with its size in memory if it is broadcast or expanded. The
result has the common shape of all and is written once. Its type is that of the widest input, one byte for a comparison.
A copy reads its source and writes its target, a fill only writes. FLOPs: one for each element of the result if the op
is a single operation of docs/operations.md on floating-point numbers; else none are defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mio2trace.model.profile import Inputs, Sizes
from mio2trace.ops.family import Family
from mio2trace.ops.problem import CommandError, Form, ShapedProblem
from mio2trace.ops.values import DTYPE_BYTES, Shape, product

_BYTES = DTYPE_BYTES | {"bool": 1, "uint8": 1, "int16": 2, "complex64": 8, "complex128": 16}
_FLOATS = frozenset(("half", "float", "bfloat16", "double", "float8", "bfloat8"))
_MOST = 1 << 40
_READ = (
    "fill zero uniform normal random bernoulli exponential",
    "neg abs exp log sqrt sin cos reciprocal logical_not isnan isinf isfinite bitwise_not rsqrt square erf exp2 expm1 "
    "log2 log10 log1p sign floor ceil round trunc clamp clamp_min clamp_max tan clone nan_to_num hardtanh mish "
    "softplus hardswish hardsigmoid sigmoid tanh relu silu gelu",
    "add sub rsub mul div eq ne lt le gt ge maximum minimum logical_and logical_or logical_xor copy pow atan2 fmod "
    "remainder bitwise_and bitwise_or bitwise_xor masked_fill",
    "addcmul addcdiv lerp where",
)
"""Ops that go element by element, by how many of their inputs, the first ones, are read; the op writes into a tensor
that is behind them."""
_COMPARED = "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite"
_SINGLE_OPERATIONS = "add sub rsub mul div eq ne lt le gt ge maximum minimum neg abs exp log sqrt sin cos reciprocal"
_ARITY = {word: number for number, words in enumerate(_READ) for word in words.split()}
_COMPARES, _SINGLE = frozenset(_COMPARED.split()), frozenset(_SINGLE_OPERATIONS.split())


class FrameworkProblem(ShapedProblem, frozen=True, kw_only=True, gc=False):
    """``x`` and ``w`` are its first two tensors, ``y`` the result where it follows from them. Of a list of ``tensors``
    tensors ``x`` is the number of their elements.
    """

    op: str
    tensors: int = 1
    traffic: int | None = None
    work: int | None = None

    @property
    def primitive(self) -> str:
        return self.op

    @property
    def variant(self) -> str | None:
        return f"{self.tensors} tensors" if self.tensors > 1 else None

    def flop(self) -> int | None:
        return self.work

    def bytes_min(self) -> int | None:
        return self.traffic

    def command(self, form: Form = "newest") -> str:
        raise CommandError(NOT_MIOPEN)


NOT_MIOPEN = "an op of the framework's own, not MIOpen's"
FAMILY = Family()


def framework_problem(name: str, inputs: Inputs) -> FrameworkProblem | None:
    """What an op was given; None where that is no tensor."""
    first = inputs.shapes[0] if inputs.shapes else None
    if first and isinstance(first[0], tuple):
        return _of_list(name, first)
    tensors = [_tensor(shape) for shape in inputs.shapes]
    given = [shape for shape in tensors if shape]
    if not given:
        return None
    dtype = next((dtype for dtype, shape in zip(inputs.dtypes, tensors, strict=False) if dtype and shape), "")
    word = name.rpartition("::")[2].removesuffix("_")
    arity = _ARITY.get(word) if name.startswith("aten::") else None
    if arity is None:
        return FrameworkProblem(op=name, x=given[0], w=given[1] if len(given) > 1 else (), dtype=dtype or None)
    read = tensors[:arity] if arity else tensors[:1]
    y = given[0] if arity == 0 or word == "copy" else _together([shape for shape in read if shape])
    work = product(y) if y and word in _SINGLE and _widest(inputs, read) in _FLOATS else None
    return FrameworkProblem(
        op=name, x=given[0], w=read[1] if len(read) > 1 else (), y=y, dtype=dtype or None,
        traffic=_traffic(word, inputs, read, y, arity), work=0 if word in ("copy", "clone") or not arity else work,
    )  # fmt: skip


def _of_list(name: str, sizes: Sequence[Any]) -> FrameworkProblem | None:
    elements = sum(product(shape) for shape in sizes if isinstance(shape, tuple) and min(shape, default=0) >= 0)
    return FrameworkProblem(op=name, x=(elements,), tensors=len(sizes)) if 0 < elements < _MOST else None


def _tensor(shape: Sizes | tuple[Sizes, ...] | None) -> Shape:
    """() for what is no tensor with sizes."""
    lengths = tuple(one for one in shape or () if isinstance(one, int) and 0 < one < _MOST)
    return lengths if shape is not None and len(lengths) == len(shape) <= 8 else ()


def _together(shapes: list[Shape]) -> Shape:
    """The shape of all of them, broadcast; () where they do not fit."""
    rank = max(map(len, shapes), default=0)
    filled = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    lengths = tuple(max(column) for column in zip(*filled, strict=True))
    fits = all(one in (1, length) for shape in filled for one, length in zip(shape, lengths, strict=True))
    return lengths if fits else ()


def _widest(inputs: Inputs, read: list[Shape]) -> str:
    typed = [dtype for dtype, shape in zip(inputs.dtypes, read, strict=False) if shape]
    return max(typed, key=lambda dtype: _BYTES.get(dtype, 0), default="")


def _traffic(word: str, inputs: Inputs, read: list[Shape], y: Shape, arity: int) -> int | None:
    """Bytes; None where a type or a shape is not known."""
    if not y:
        return None
    result = inputs.dtypes[0] if word == "copy" and inputs.dtypes else _widest(inputs, read)
    if word == "div" and result not in _FLOATS:
        return None
    size = 1 if word in _COMPARES else _BYTES.get(result)
    if size is None:
        return None
    moved = product(y) * size
    places = () if not arity else (1,) if word == "copy" else range(arity)
    for place in places:
        shape = read[place] if place < len(read) else ()
        if not shape:
            continue
        each = _BYTES.get(inputs.dtypes[place]) if place < len(inputs.dtypes) else None
        if each is None:
            return None
        strides = inputs.strides[place] if place < len(inputs.strides) else None
        stored = shape
        if strides and len(strides) == len(shape):
            stored = tuple(length for length, step in zip(shape, strides, strict=True) if step != 0)
        moved += product(stored) * each
    return moved
