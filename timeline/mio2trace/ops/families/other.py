"""Operations with shapes, but without an agreed number of FLOPs and without a family of their own (miopen-log.md 5.3,
5.4)."""

from __future__ import annotations

from mio2trace.ops.problem import FORWARD, Family, Line, Op, Params, Problem, ShapedProblem, Word, lengths, ops
from mio2trace.ops.values import product


class GenericProblem(ShapedProblem, frozen=True, kw_only=True, gc=False):
    """A problem with shapes but without agreed FLOPs: losses, optimisers, indexing, dropout, CTC, GLU, RoPE, PReLU."""

    kind: str
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def primitive(self) -> str:
        return self.kind

    def elements_moved(self) -> int | None:
        return 2 * product(self.x) if self.kind == "dropout" and self.x else None


def from_entry(params: Params, op: Op) -> Problem | None:
    """Make the problem of an entry. ``names``: input and output."""
    return GenericProblem(
        direction=op.direction, kind=op.primitive, x=lengths(params, *op.names[:1]), y=lengths(params, *op.names[1:])
    )


def from_command(line: Line) -> GenericProblem:
    """Read the shape if the common flags state it; the rest stays as printed."""
    x = line.shape
    return GenericProblem(
        direction=line.stated_way,
        dtype=line.dtype if line.name != "ctc" else None,
        kind=line.name,
        x=x if len(x) > 1 and line.name != "ctc" else (),  # their -c is the number of classes minus 1
        flags=tuple(line.flags.items()),
    )


_WORDS = (
    "ctc", "dropout", "cat", "getitem", "kthvalue", "prelu", "rope", "adam", "adamw", "ampadam", "ampadamw",
    "transformersadamw", "transformersampadamw", "glu", "softmarginloss", "multimarginloss", "sum", "argmax", "gemm",
)  # fmt: skip
FAMILY = Family(
    ops=(
        # it fills the states of the random numbers, by a kernel without a shape
        *ops("SetDropoutDescriptor", "dropoutstates", from_entry),
        *ops("DropoutForward", "dropout", from_entry, "xDesc yDesc"),
        *ops("DropoutBackward", "dropout", from_entry, "dxDesc dyDesc"),
        *ops("GLUForward", "glu", from_entry, "inputDesc outputDesc"),
        *ops("GLUBackward", "glu", from_entry, "inputDesc outputGradDesc"),
        *ops("PReLUBackward", "prelu", from_entry, "inputDesc doutputDesc"),
        *ops("RoPEForward", "rope", from_entry, "xDesc yDesc"),
        *ops("RoPEBackward", "rope", from_entry, "dxDesc dyDesc"),
        *ops("CatForward", "cat", from_entry, "xDescs yDesc"),
        *ops("GetitemBackward", "getitem", from_entry, "dxDesc dyDesc"),
        *ops("KthvalueForward", "kthvalue", from_entry, "inputDesc outputDesc"),
        *ops("MultiMarginLossForward", "multimarginloss", from_entry, "inputDesc outputDesc"),
        *ops("SoftMarginLossForward", "softmarginloss", from_entry, "inputDesc outputDesc"),
        *ops("SoftMarginLossBackward", "softmarginloss", from_entry, "inputDesc doutputDesc"),
        *ops("CTCLoss", "ctc", from_entry, "probsDesc gradientsDesc", FORWARD),
        *ops("FusedAdam TransformersAdamW", "adam", from_entry, "paramDesc paramDesc"),
        *ops("FusedAdamWithOutput TransformersAdamWWithOutput", "adam", from_entry, "paramInDesc paramDesc"),
    ),
    words={word: Word(from_command, word) for word in _WORDS},
    names={"dropout": "Dropout", "dropoutstates": "Dropout states", "mha": "MHA"},
    find_2=(("Mha", "mha"),),
)
