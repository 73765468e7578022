"""Local response normalisation (miopen-log.md 4.7, 5.2, 7.3)."""

from __future__ import annotations

import msgspec

from mio2trace.ops import values
from mio2trace.ops.family import (
    DATA,
    DECIMAL,
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
    tensor,
)
from mio2trace.ops.problem import CommandError, Form, Problem, SameShapeProblem, base_word

_MODES = ("within", "cross")


class LrnProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``window`` neighbours; ``mode`` 0 within channel, 1 cross channel; alpha, beta, k keep their text."""

    mode: int = 1
    window: int = 0
    alpha: str = ""
    beta: str = ""
    k: str = ""

    @property
    def primitive(self) -> str:
        return "lrn"

    @property
    def variant(self) -> str | None:
        if not self.window:
            return None
        return "cross channel" if self.mode == 1 else "within channel"

    def flop(self) -> int | None:
        """Per element: 2 per neighbour and 3; the gradient 4 per neighbour and 5 (docs/operations.md)."""
        if not self.window:
            return None
        neighbours = self.window if self.mode == 1 else self.window**2
        return self.per_element(2 * neighbours + 3, 4 * neighbours + 5)

    def elements_moved(self) -> int | None:
        """Forward x, y; backward x, y, dy, dx."""
        return self.per_element(2, 4)

    def command(self, form: Form = "newest") -> str:
        if self.direction is None or not self.x or not self.window:
            raise CommandError("the log does not show the descriptor")
        word = base_word("lrn", self.dtype)
        n, c, h, w = (*self.x, 1, 1, 1)[:4]
        if len(self.x) > 4:
            raise CommandError("the driver's lrn takes 4 lengths")
        return (
            f"{word} -A {self.alpha} -B {self.beta} -F {1 if self.direction == 'forward' else 2} -H {h} -K {self.k}"
            f" -N {self.window} -W {w} -c {c} -m {self.mode} -n {n}"
        )

    def with_command(self, command: Problem) -> Problem:
        """All of it, where the entry does not tell the descriptor."""
        return command if type(command) is type(self) and not self.window else self


def from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc", "yDesc", "dxDesc")
    if x is None:
        return None
    descriptor = values.lrn_descriptor(params.get("lrnDesc", ""))
    stated = {} if descriptor is None else msgspec.structs.asdict(descriptor)
    return LrnProblem(direction=op.direction, x=x.lengths, **stated)


def from_command(line: Line) -> LrnProblem | None:
    """``-N window -m mode -A alpha -B beta -K k -F 1|2``."""
    flags = line.flags
    try:
        return LrnProblem(
            direction=line.two_ways(),
            dtype=line.dtype,
            x=line.integers("n c H W"),
            mode=_MODES.index(flags["m"]) if flags["m"] in _MODES else int(flags["m"]),
            window=int(flags["N"]),
            alpha=flags["A"],
            beta=flags["B"],
            k=flags["K"],
        )
    except (KeyError, ValueError):
        return None


FAMILY = Family(
    ops=(op("LRNForward", "lrn", FORWARD, from_entry), op("LRNBackward", "lrn", DATA, from_entry)),
    words={
        "lrn": Word(from_command, "lrn", SIZES | SCALING | {"m": f"{INTEGER}|within|cross", "N": INTEGER, "K": DECIMAL})
    },
    names={"lrn": "LRN"},
)
