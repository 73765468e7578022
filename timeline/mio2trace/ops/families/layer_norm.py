"""Layer norm and its relatives, group norm (miopen-log.md 5.2)."""

from __future__ import annotations

from mio2trace.ops import values
from mio2trace.ops.family import DATA, FORWARD, Family, Line, Op, Params, Word, lengths, op
from mio2trace.ops.problem import Problem, SameShapeProblem
from mio2trace.ops.values import Shape


class NormProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """Layer norm and its relatives; ``kind`` is the primitive. ``normalized`` is the first normalised dimension."""

    kind: str
    scale: Shape = ()
    mode: int | None = None
    normalized: int | None = None
    groups: int | None = None

    @property
    def primitive(self) -> str:
        return self.kind

    @property
    def weights(self) -> Shape:
        return self.scale

    def flop(self) -> int | None:
        """As batch norm in training: 6 per element, gradient 10; T5's root mean square saves the mean: 4 and 8."""
        more = {"t5layernorm": -2, "addlayernorm": 1}.get(self.kind, 0)
        return self.per_element(6 + more, 10 + more)

    def elements_moved(self) -> int | None:
        return self.per_element(3 if self.kind == "addlayernorm" else 2, 3)


def from_entry(params: Params, op: Op) -> Problem | None:
    x = lengths(params, "xDesc", "dyDesc")
    if not x:
        return None
    return NormProblem(
        direction=op.direction,
        kind=op.primitive,
        x=x,
        scale=lengths(params, "weightDesc"),
        mode=values.number(params.get("mode")),
        normalized=values.number(params.get("normalized_dim")),
        groups=values.number(params.get("num_groups")),
    )


def from_command(line: Line) -> NormProblem:
    """Its shape where the common flags tell it."""
    return NormProblem(direction=line.stated_way, dtype=line.dtype, kind=line.name, x=line.shape)


FAMILY = Family(
    ops=(
        op("LayerNormForward", "layernorm", FORWARD, from_entry),
        op("AddLayerNormForward", "addlayernorm", FORWARD, from_entry),
        op("T5LayerNormForward", "t5layernorm", FORWARD, from_entry),
        op("T5LayerNormBackward", "t5layernorm", DATA, from_entry),
        op("GroupNormForward", "groupnorm", FORWARD, from_entry),
    ),
    words={word: Word(from_command, word) for word in ("layernorm", "addlayernorm", "t5layernorm", "groupnorm")},
    names={"layernorm": "LayerNorm", "groupnorm": "GroupNorm"},
)
