"""Activation, y = f(x), and softmax over channels or the whole instance (miopen-log.md 4.6, 5.3)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

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


class ActivProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``mode``: the number of the activation. Values keep their text."""

    primitive: ClassVar[str] = "activ"

    mode: int = 0
    alpha: str = ""
    beta: str = ""
    gamma: str = ""

    @property
    def variant(self) -> str | None:
        return values.ACTIVATIONS[self.mode].lower() if 0 <= self.mode < len(values.ACTIVATIONS) else None

    def flop(self) -> int | None:
        """1 per element for any function; 2 for the gradient, which also multiplies by dy."""
        return self.per_element(1, 2)

    def elements_moved(self) -> int | None:
        """Forward: x, y. Backward: one of x and y, dy, dx."""
        return self.per_element(2, 3)

    def command(self, form: Form = "newest") -> str:
        if form in ("1.2", "1.7", "2.0", "2.1"):
            raise CommandError("activations printed nothing before 2.3")
        if self.direction is None or not self.alpha:
            raise CommandError("the log does not show the descriptor")
        word = base_word("activ", self.dtype)
        return (
            f"{word} {nchw(self.x, 'activ')} -m {self.mode} --forw {1 if self.direction == 'forward' else 2}"
            f" -A {self.alpha} -B {self.beta} -G {self.gamma}"
        )


def _activ_from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc", "yDesc", "dyDesc")
    if x is None:
        return None
    descriptor = values.activ_descriptor(params.get("activDesc", ""))
    stated = {} if descriptor is None else msgspec.structs.asdict(descriptor)
    return ActivProblem(direction=op.direction, x=x.lengths, **stated)


def _activ_from_command(line: Line) -> ActivProblem | None:
    """``-m mode --forw 1|2 -A -B -G``."""
    return ActivProblem(
        direction=line.two_ways("forw"),
        dtype=line.dtype,
        x=line.integers("n c H W"),
        mode=int(line.flags["m"]),
        alpha=line.flags.get("A", ""),
        beta=line.flags.get("B", ""),
        gamma=line.flags.get("G", ""),
    )


class SoftmaxProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``algorithm``: 0 fast, 1 accurate, 2 log. ``mode``: 0 instance, 1 channel. alpha, beta: if a command
    states them."""

    primitive: ClassVar[str] = "softmax"
    told_by_commands: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    algorithm: int = 1
    mode: int = 1
    alpha: str = ""
    beta: str = ""

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
        # The entry has pointers for alpha and beta, so the driver uses its defaults 1 and 0.
        scaling = f" -A {self.alpha} -B {self.beta}" if self.alpha and self.beta else ""
        return (
            f"{word} {nchw(self.x, 'softmax')} -F {1 if self.direction == 'forward' else 2} -a {self.algorithm}"
            f" -m {self.mode}{scaling}"
        )


def _softmax_from_entry(params: Params, op: Op) -> Problem | None:
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


def _softmax_from_command(line: Line) -> SoftmaxProblem | None:
    """``-F 1|2 -a algorithm -m mode [-A alpha -B beta]``."""
    return SoftmaxProblem(
        direction=line.two_ways(),
        dtype=line.dtype,
        x=line.integers("n c H W"),
        algorithm=int(line.flags.get("a", "1")),
        mode=int(line.flags.get("m", "1")),
        alpha=line.flags.get("A", ""),
        beta=line.flags.get("B", ""),
    )


FAMILY = Family(
    ops=(
        op("ActivationForward", "activ", FORWARD, _activ_from_entry),
        op("ActivationBackward", "activ", DATA, _activ_from_entry),
        op("SoftmaxForward", "softmax", FORWARD, _softmax_from_entry),
        op("SoftmaxBackward", "softmax", DATA, _softmax_from_entry),
        op("SoftmaxForward_V2", "softmax", FORWARD, _softmax_from_entry),
        op("SoftmaxBackward_V2", "softmax", DATA, _softmax_from_entry),
    ),
    words={
        "activ": Word(_activ_from_command, "activ", SIZES | SCALING | options("m", INTEGER)),
        "softmax": Word(_softmax_from_command, "softmax", SIZES | SCALING | options("m a", INTEGER)),
    },
    names={"activ": "Activation", "softmax": "Softmax"},
    invoked=(("miopenActivationForward", "activ", FORWARD), ("miopenActivationBackward", "activ", DATA)),
    find_2=(("Activ", "activ"), ("Softmax", "softmax")),
)
