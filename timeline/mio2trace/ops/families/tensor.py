"""Tensor arithmetic (set, scale, copy, c = op(a, b) + beta c), a bias as a call of its own, and reductions of a tensor
(sums, extremes, calculations): miopen-log.md 5.1, 5.4."""

from __future__ import annotations

from typing import ClassVar

from mio2trace.ops import values
from mio2trace.ops.families import other
from mio2trace.ops.family import (
    DECIMAL,
    DIMENSIONS,
    FORWARD,
    INTEGER,
    SCALING,
    SIZES,
    WEIGHTS,
    Family,
    Line,
    Op,
    Params,
    Word,
    lengths,
    op,
    options,
)
from mio2trace.ops.problem import CommandError, Form, Problem, base_word, four_lengths, nchw, work
from mio2trace.ops.values import TENSOR_OPS, Shape, product

_OF_ONE = {"set": "settensor", "scale": "scaletensor", "copy": "transformtensor"}
_PRIMITIVES = frozenset((*_OF_ONE.values(), "optensor"))


class OpTensorProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``op``: ``set``, ``scale`` or ``copy`` on a and c, or ``add``, ``mul``, ``min``, ``max``: c = op(a, b) + beta c.

    ``scaling``: -A, -B, -G (or -v) if a command states them; entries have only pointers.
    """

    told_by_commands: ClassVar[tuple[str, ...]] = ("scaling",)

    op: str
    a: Shape
    b: Shape = ()
    c: Shape = ()
    scaling: tuple[tuple[str, str], ...] = ()

    @property
    def primitive(self) -> str:
        return _OF_ONE.get(self.op, "optensor")

    @property
    def input(self) -> Shape:
        return self.a

    @property
    def weights(self) -> Shape:
        """The second operand."""
        return self.b

    @property
    def output(self) -> Shape:
        return self.c or self.a

    @property
    def variant(self) -> str:
        return self.op

    def check(self) -> str:
        if (
            self.b
            and self.c
            and len(self.b) == len(self.c)
            and any(n not in (1, m) for n, m in zip(self.b, self.c, strict=True))
        ):
            return "the second operand does not broadcast to the result"
        return ""

    def flop(self) -> int | None:
        """1 per element of the result; none for set and copy."""
        elements = work(self.output)
        return None if elements is None else elements * (0 if self.op in ("set", "copy") else 1)

    def elements_moved(self) -> int | None:
        elements = work(self.output)
        if elements is None:
            return None
        if self.op == "set":
            return elements
        return elements + product(self.a) + (product(self.b) if self.b else 0)

    def command(self, form: Form = "newest") -> str:
        if form in ("1.2", "1.7", "2.0", "2.1"):
            raise CommandError("tensor operations printed nothing before 2.3")
        if form == "newest":
            if self.op == "copy":
                raise CommandError("the driver has no tensor copy")
            if self.dtype not in (None, "float"):
                raise CommandError(f"the driver's tensorop is for float, not {self.dtype}")
            if self.b and not self.a == self.b == self.c:
                raise CommandError("the driver's tensorop takes three tensors of one shape")
        word = base_word("tensorop", self.dtype)
        code = {"set": 0, "scale": 1, "copy": 2}.get(self.op)  # the log shows a copy as an addition
        if code is None:
            if self.op not in TENSOR_OPS:
                raise CommandError(f"tensor operation {self.op}")
            code = 2 + TENSOR_OPS.index(self.op)
        before = "".join(f" -{name} {value}" for name, value in self.scaling if name != "v")
        after = "".join(f" -{name} {value}" for name, value in self.scaling if name == "v")
        return f"{word}{before} {nchw(self.a, 'tensorop')} -o {code}{after}"

    def may_print(self, primitive: str) -> bool:
        """The driver has one word for all of these primitives."""
        return primitive in _PRIMITIVES

    def fits(self, entry: Problem) -> bool:
        """Compare the input or the result."""
        return not entry.input or self.a in (four_lengths(entry.input), four_lengths(entry.output))


class BiasProblem(Problem, frozen=True, kw_only=True, gc=False):
    """The bias of a convolution: y += b, or db = sum of dy; b is <1, k, 1, 1>."""

    primitive: ClassVar[str] = "bias"

    y: Shape
    b: Shape = ()

    @property
    def input(self) -> Shape:
        return self.y

    @property
    def weights(self) -> Shape:
        return self.b

    @property
    def output(self) -> Shape:
        return self.y

    def check(self) -> str:
        if self.b and len(self.y) > 1 and product(self.b) != self.y[1]:
            return "the bias does not have one value per channel"
        return ""

    def flop(self) -> int | None:
        return work(self.y)

    def elements_moved(self) -> int | None:
        elements = work(self.y)
        if elements is None:
            return None
        return elements * (2 if self.direction == "forward" else 1) + product(self.b)

    def command(self, form: Form = "newest") -> str:
        raise CommandError("the driver runs a bias only as part of a convolution or fusion")


def _of_two(params: Params, op: Op) -> Problem | None:
    a, b, c = (lengths(params, name) for name in ("aDesc", "bDesc", "cDesc"))
    number = values.number(params.get("tensorOp"))
    if not a or number is None or not 0 <= number < len(TENSOR_OPS):
        return None
    return OpTensorProblem(op=TENSOR_OPS[number], a=a, b=b, c=c)


def _of_one(params: Params, op: Op) -> Problem | None:
    """``names``: the operation, then the input and the result."""
    a, c = lengths(params, op.names[1]), lengths(params, op.names[-1])
    return OpTensorProblem(op=op.names[0], a=a, c=c) if a else None


def _of_bias(params: Params, op: Op) -> Problem | None:
    y = lengths(params, op.names[0])
    return BiasProblem(direction=op.direction, y=y, b=lengths(params, op.names[1])) if y else None


def _tensor_from_command(line: Line) -> OpTensorProblem | None:
    """``[-A a1 -B a2 -G beta] -n -c -H -W -o code [-v value]``: one shape for all (the first operand's)."""
    x, code = line.integers("n c H W"), int(line.flags["o"])
    names = ("set", "scale", *TENSOR_OPS)
    if not 0 <= code < len(names):
        return None
    scaling = tuple((name, line.flags[name]) for name in ("A", "B", "G", "v") if name in line.flags)
    return OpTensorProblem(dtype=line.dtype, op=names[code], a=x, scaling=scaling)


class ReduceProblem(Problem, frozen=True, kw_only=True, gc=False):
    """a reduced to c: dimensions that are 1 in c but not in a are reduced. ``flags``: as stated by a command."""

    kind: str = "reduce"
    a: Shape
    c: Shape = ()
    op: int | None = None
    comp: int | None = None
    nan: int | None = None
    indices: int | None = None

    @property
    def primitive(self) -> str:
        return self.kind

    @property
    def input(self) -> Shape:
        return self.a

    @property
    def output(self) -> Shape:
        return self.c

    def check(self) -> str:
        if self.c and len(self.c) == len(self.a) and any(n not in (1, m) for n, m in zip(self.c, self.a, strict=True)):
            return "the result is no reduction of the input"
        return ""

    def flop(self) -> int | None:
        """1 per element of the input."""
        return work(self.a)

    def elements_moved(self) -> int | None:
        elements = work(self.a)
        return None if elements is None else elements + (product(self.c) if self.c else 0)

    def command(self, form: Form = "newest") -> str:
        if self.kind != "reduce":
            raise CommandError(f"the driver's options for {self.kind} are not covered")
        raise CommandError("the entry has no values for alpha and beta, and the driver needs them")


def _reduce_from_entry(params: Params, op: Op) -> Problem | None:
    a = lengths(params, *op.names[:2])
    if not a:
        return None
    stated = [value[0] for value in map(values.integers, params.get("reduceTensorDesc", "").split(" : ")[1:]) if value]
    kind, comp, nan, indices = (number if number >= 0 else None for number in (*stated, -1, -1, -1, -1)[:4])
    c = lengths(params, *op.names[2:])
    return ReduceProblem(kind=op.primitive, a=a, c=c, op=kind, comp=comp, nan=nan, indices=indices)


def _reduce_from_command(line: Line) -> Problem | None:
    """``-D lengths -R dimensions [-O operation]``; without these flags, the shape that the common flags state."""
    flags = line.flags
    if "D" not in flags or "R" not in flags:
        return other.from_command(line) if line.name not in _TYPES else None
    shape, dimensions = values.integers(flags["D"]), values.integers(flags["R"])
    number = flags.get("O", "")
    return ReduceProblem(
        dtype=_TYPES.get(line.word, line.dtype),
        a=shape,
        c=tuple(1 if at in dimensions else length for at, length in enumerate(shape)),
        op=int(number) if number.isdecimal() else None,
    )


_TYPES = {"reduceint": "int32", "reducefp": "float"}
"""Types of the base words that have a suffix of their own."""
_OPTIONS = SIZES | SCALING | options("D R", DIMENSIONS) | options("C I N O", INTEGER)
FAMILY = Family(
    ops=(
        op("OpTensor", "optensor", None, _of_two),
        op("SetTensor", "settensor", None, _of_one, ("set", "yDesc")),
        op("ScaleTensor", "scaletensor", None, _of_one, ("scale", "yDesc")),
        op("TransformTensor", "transformtensor", None, _of_one, ("copy", "xDesc", "yDesc")),
        op("ConvolutionForwardBias", "bias", FORWARD, _of_bias, ("yDesc", "bDesc")),
        op("ConvolutionBackwardBias", "bias", WEIGHTS, _of_bias, ("dyDesc", "dbDesc")),
        op("ReduceTensor", "reduce", None, _reduce_from_entry, ("aDesc", "xDesc", "cDesc")),
        op("SumForward", "sum", FORWARD, _reduce_from_entry, ("xDesc", "xDesc", "yDesc")),
        op("ReduceCalculationForward", "reducecalculation", FORWARD, _reduce_from_entry,
           ("xDesc", "xDesc", "reduceDesc")),
        op("ArgmaxForward", "argmax", FORWARD, _reduce_from_entry, ("xDesc", "xDesc", "yDesc")),
        op("ReduceExtremeForward", "reduceextreme", FORWARD, _reduce_from_entry,
           ("xDesc", "xDesc", "yDesc", "indiceDesc")),
    ),
    words={
        "tensorop": Word(_tensor_from_command, "optensor", SIZES | SCALING | {"o": INTEGER, "v": DECIMAL}),
        **{word: Word(_reduce_from_command, "reduce", _OPTIONS) for word in ("reduce", *_TYPES)},
        **{word: Word(_reduce_from_command, "reduce") for word in ("reduceextreme", "reducecalculation")},
    },
    names={
        "optensor": "TensorOp", "settensor": "SetTensor", "scaletensor": "ScaleTensor",
        "transformtensor": "TransformTensor", "bias": "Bias", "reduce": "Reduce",
    },
)  # fmt: skip
