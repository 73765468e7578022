"""Activation, y = f(x), and softmax over channels or the whole instance (miopen-log.md 4.6, 5.3)."""

from __future__ import annotations

from typing import Any, ClassVar

from mio2trace.ops import values
from mio2trace.ops.problem import (
    BEFORE_2_3,
    SCALING,
    SIZES,
    CommandError,
    Family,
    Form,
    Line,
    Op,
    Params,
    Problem,
    SameShapeProblem,
    Word,
    base_word,
    nchw,
    ops,
    options,
    tensor,
    way_flag,
)


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

    def command(self, form: Form = "newest") -> str:
        if form in BEFORE_2_3:
            raise CommandError("activations printed nothing before 2.3")
        if self.direction is None or not self.alpha:
            raise CommandError("the log does not show the descriptor")
        way, word, sizes = way_flag(self.direction), base_word("activ", self.dtype), nchw(self.x, "activ")
        return f"{word} {sizes} -m {self.mode} --forw {way} -A {self.alpha} -B {self.beta} -G {self.gamma}"


def _activ_from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc", "yDesc", "dyDesc")
    if x is None:
        return None
    return ActivProblem(direction=op.direction, x=x.lengths, **values.activ_descriptor(params.get("activDesc", "")))


def _activ_from_command(line: Line) -> ActivProblem:
    """``-m mode --forw 1|2 -A -B -G``."""
    alpha, beta, gamma = (line.flags.get(name, "") for name in "ABG")
    return ActivProblem(
        direction=line.two_ways("forw"), dtype=line.dtype, x=line.integers("n c H W"), mode=int(line.flags["m"]),
        alpha=alpha, beta=beta, gamma=gamma,
    )  # fmt: skip


class SoftmaxProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``algorithm``: 0 fast, 1 accurate, 2 log. ``mode``: 0 instance, 1 channel. alpha, beta: only of commands."""

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

    def command(self, form: Form = "newest") -> str:
        if form in BEFORE_2_3:
            raise CommandError("softmax printed nothing before 2.3")
        way, word, sizes = way_flag(self.direction), base_word("softmax", self.dtype), nchw(self.x, "softmax")
        # The entry has pointers for alpha and beta, so the driver uses its defaults 1 and 0.
        scaling = f" -A {self.alpha} -B {self.beta}" if self.alpha and self.beta else ""
        return f"{word} {sizes} -F {way} -a {self.algorithm} -m {self.mode}{scaling}"


def _softmax_from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc", "yDesc", "dxDesc")
    if x is None:
        return None
    numbers = ((name, values.number(params.get(name))) for name in ("algorithm", "mode"))
    stated: dict[str, Any] = {name: number for name, number in numbers if number is not None}
    return SoftmaxProblem(direction=op.direction, x=x.lengths, **stated)


def _softmax_from_command(line: Line) -> SoftmaxProblem:
    """``-F 1|2 -a algorithm -m mode [-A alpha -B beta]``."""
    algorithm, mode = (int(line.flags.get(name, "1")) for name in "am")
    return SoftmaxProblem(
        direction=line.two_ways(), dtype=line.dtype, x=line.integers("n c H W"), algorithm=algorithm, mode=mode,
        alpha=line.flags.get("A", ""), beta=line.flags.get("B", ""),
    )  # fmt: skip


FAMILY = Family(
    ops=(
        *ops("ActivationForward ActivationBackward", "activ", _activ_from_entry),
        *ops("SoftmaxForward SoftmaxBackward SoftmaxForward_V2 SoftmaxBackward_V2", "softmax", _softmax_from_entry),
    ),
    words={
        "activ": Word(_activ_from_command, "activ", SIZES | SCALING | options(integer="m")),
        "softmax": Word(_softmax_from_command, "softmax", SIZES | SCALING | options(integer="m a")),
    },
    names={"activ": "Activation", "softmax": "Softmax"},
    invoked=(("miopenActivationForward", "activ"), ("miopenActivationBackward", "activ")),
    find_2=(("Activ", "activ"), ("Softmax", "softmax")),
)
