"""Activation: y = f(x) (miopen-log.md 4.6, 5.3)."""

from __future__ import annotations

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
    """``mode`` is the activation's number; the values keep their text."""

    mode: int = 0
    alpha: str = ""
    beta: str = ""
    gamma: str = ""

    @property
    def primitive(self) -> str:
        return "activ"

    @property
    def variant(self) -> str | None:
        return values.ACTIVATIONS[self.mode].lower() if 0 <= self.mode < len(values.ACTIVATIONS) else None

    def flop(self) -> int | None:
        """1 per element, whatever the function; its gradient multiplies by dy: 2."""
        return self.per_element(1, 2)

    def elements_moved(self) -> int | None:
        """x, y; backward: one of x and y, dy, dx."""
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


def from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc", "yDesc", "dyDesc")
    if x is None:
        return None
    descriptor = values.activ_descriptor(params.get("activDesc", ""))
    stated = {} if descriptor is None else msgspec.structs.asdict(descriptor)
    return ActivProblem(direction=op.direction, x=x.lengths, **stated)


def from_command(line: Line) -> ActivProblem | None:
    """``-m mode --forw 1|2 -A -B -G``."""
    try:
        return ActivProblem(
            direction=line.two_ways("forw"),
            dtype=line.dtype,
            x=line.integers("n c H W"),
            mode=int(line.flags["m"]),
            alpha=line.flags.get("A", ""),
            beta=line.flags.get("B", ""),
            gamma=line.flags.get("G", ""),
        )
    except (KeyError, ValueError):
        return None


FAMILY = Family(
    ops=(op("ActivationForward", "activ", FORWARD, from_entry), op("ActivationBackward", "activ", DATA, from_entry)),
    words={"activ": Word(from_command, "activ", SIZES | SCALING | options("m", INTEGER))},
    names={"activ": "Activation"},
    invoked=(("miopenActivationForward", "activ", FORWARD), ("miopenActivationBackward", "activ", DATA)),
    find_2=(("Activ", "activ"),),
)
