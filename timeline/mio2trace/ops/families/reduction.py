"""Reductions of a tensor: sums, extremes, calculations (miopen-log.md 5.4)."""

from __future__ import annotations

from mio2trace.ops import values
from mio2trace.ops.families.other import from_command as any_from_command
from mio2trace.ops.family import (
    DIMENSIONS,
    FORWARD,
    INTEGER,
    SCALING,
    SIZES,
    Family,
    Line,
    Op,
    Params,
    Word,
    lengths,
    op,
    options,
)
from mio2trace.ops.problem import CommandError, Form, Problem, work
from mio2trace.ops.values import Shape, product


class ReduceProblem(Problem, frozen=True, kw_only=True, gc=False):
    """a reduced to c: the reduced dimensions are those where c is 1 and a is not. ``flags`` as a command told."""

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


def from_entry(params: Params, op: Op) -> Problem | None:
    a = lengths(params, *op.names[:2])
    if not a:
        return None
    numbers = [value[0] for value in map(values.integers, params.get("reduceTensorDesc", "").split(" : ")[1:]) if value]
    numbers += [-1] * (4 - len(numbers))
    return ReduceProblem(
        kind=op.primitive,
        a=a,
        c=lengths(params, *op.names[2:]),
        op=numbers[0] if numbers[0] >= 0 else None,
        comp=numbers[1] if numbers[1] >= 0 else None,
        nan=numbers[2] if numbers[2] >= 0 else None,
        indices=numbers[3] if numbers[3] >= 0 else None,
    )


def from_command(line: Line) -> Problem | None:
    """``-D lengths -R dimensions [-O operation]``; without them what any other command tells."""
    flags = line.flags
    if "D" not in flags or "R" not in flags:
        return any_from_command(line) if line.name not in _TYPES else None
    shape, dimensions = values.integers(flags["D"]), values.integers(flags["R"])
    number = flags.get("O", "")
    return ReduceProblem(
        dtype=_TYPES.get(line.word, line.dtype),
        a=shape,
        c=tuple(1 if at in dimensions else length for at, length in enumerate(shape)),
        op=int(number) if number.isdecimal() else None,
    )


_TYPES = {"reduceint": "int32", "reducefp": "float"}
"""Of words that end in one of their own."""
_OPTIONS = SIZES | SCALING | options("D R", DIMENSIONS) | options("C I N O", INTEGER)
FAMILY = Family(
    ops=(
        op("ReduceTensor", "reduce", None, from_entry, ("aDesc", "xDesc", "cDesc")),
        op("SumForward", "sum", FORWARD, from_entry, ("xDesc", "xDesc", "yDesc")),
        op("ReduceCalculationForward", "reducecalculation", FORWARD, from_entry, ("xDesc", "xDesc", "reduceDesc")),
        op("ArgmaxForward", "argmax", FORWARD, from_entry, ("xDesc", "xDesc", "yDesc")),
        op("ReduceExtremeForward", "reduceextreme", FORWARD, from_entry, ("xDesc", "xDesc", "yDesc", "indiceDesc")),
    ),
    words={
        **{word: Word(from_command, "reduce", _OPTIONS) for word in ("reduce", *_TYPES)},
        **{word: Word(from_command, "reduce") for word in ("reduceextreme", "reducecalculation")},
    },
    names={"reduce": "Reduce"},
)
