"""Softmax over channels or the whole instance (miopen-log.md 5.3)."""

from __future__ import annotations

from typing import ClassVar

from mio2trace.ops import values
from mio2trace.ops.family import (
    DATA,
    FORWARD,
    INTEGER,
    SCALING,
    SIZES,
    Family,
    Line,
    Op,
    Params,
    Word,
    op,
    options,
    tensor,
)
from mio2trace.ops.problem import CommandError, Form, Problem, SameShapeProblem, base_word, nchw


class SoftmaxProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``algorithm`` 0 fast, 1 accurate, 2 log; ``mode`` 0 instance, 1 channel. alpha, beta: where a command told."""

    told_by_commands: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    algorithm: int = 1
    mode: int = 1
    alpha: str = ""
    beta: str = ""

    @property
    def primitive(self) -> str:
        return "softmax"

    @property
    def variant(self) -> str | None:
        return ("fast", "accurate", "log")[self.algorithm] if 0 <= self.algorithm < 3 else None

    def flop(self) -> int | None:
        """Per element: maximum, subtract, exponential, add, divide; the gradient: multiply, add, subtract, multiply."""
        return self.per_element(5, 4)

    def elements_moved(self) -> int | None:
        return self.per_element(2, 3)

    def command(self, form: Form = "newest") -> str:
        if form in ("1.2", "1.7", "2.0", "2.1"):
            raise CommandError("softmax printed nothing before 2.3")
        if self.direction is None:
            raise CommandError("the direction is unknown")
        word = base_word("softmax", self.dtype)
        # The entry has pointers for alpha and beta: left to the driver's defaults, 1 and 0.
        scaling = f" -A {self.alpha} -B {self.beta}" if self.alpha and self.beta else ""
        return (
            f"{word} {nchw(self.x, 'softmax')} -F {1 if self.direction == 'forward' else 2} -a {self.algorithm}"
            f" -m {self.mode}{scaling}"
        )


def from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc", "yDesc", "dxDesc")
    if x is None:
        return None
    algorithm, mode = values.number(params.get("algorithm")), values.number(params.get("mode"))
    return SoftmaxProblem(
        direction=op.direction,
        x=x.lengths,
        algorithm=1 if algorithm is None else algorithm,
        mode=1 if mode is None else mode,
    )


def from_command(line: Line) -> SoftmaxProblem | None:
    """``-F 1|2 -a algorithm -m mode [-A alpha -B beta]``."""
    try:
        return SoftmaxProblem(
            direction=line.two_ways(),
            dtype=line.dtype,
            x=line.integers("n c H W"),
            algorithm=int(line.flags.get("a", "1")),
            mode=int(line.flags.get("m", "1")),
            alpha=line.flags.get("A", ""),
            beta=line.flags.get("B", ""),
        )
    except (KeyError, ValueError):
        return None


FAMILY = Family(
    ops=(
        op("SoftmaxForward", "softmax", FORWARD, from_entry),
        op("SoftmaxBackward", "softmax", DATA, from_entry),
        op("SoftmaxForward_V2", "softmax", FORWARD, from_entry),
        op("SoftmaxBackward_V2", "softmax", DATA, from_entry),
    ),
    words={"softmax": Word(from_command, "softmax", SIZES | SCALING | options("m a", INTEGER))},
    names={"softmax": "Softmax"},
    find_2=(("Softmax", "softmax"),),
)
