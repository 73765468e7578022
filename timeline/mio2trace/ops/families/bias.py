"""The bias of a convolution as a call of its own (miopen-log.md 5.1)."""

from __future__ import annotations

from mio2trace.ops.family import FORWARD, WEIGHTS, Family, Op, Params, lengths, op
from mio2trace.ops.problem import CommandError, Form, Problem, work
from mio2trace.ops.values import Shape, product


class BiasProblem(Problem, frozen=True, kw_only=True, gc=False):
    """y += b, or db = sum of dy: b <1, k, 1, 1>."""

    y: Shape
    b: Shape = ()

    @property
    def primitive(self) -> str:
        return "bias"

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


def from_entry(params: Params, op: Op) -> Problem | None:
    y = lengths(params, op.names[0])
    return BiasProblem(direction=op.direction, y=y, b=lengths(params, op.names[1])) if y else None


FAMILY = Family(
    ops=(
        op("ConvolutionForwardBias", "bias", FORWARD, from_entry, ("yDesc", "bDesc")),
        op("ConvolutionBackwardBias", "bias", WEIGHTS, from_entry, ("dyDesc", "dbDesc")),
    ),
    names={"bias": "Bias"},
)
