"""Which primitives launch whose kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.operation import Operation

TENSOR = frozenset(("settensor", "scaletensor", "transformtensor", "optensor", "bias"))
_USES: Mapping[str, frozenset[str]] = {
    "rnn": frozenset(("optensor", "activ", "gemm", "dropout", "softmax")) | TENSOR,
    "mha": frozenset(("gemm", "softmax", "dropout", "reduce")) | TENSOR,
    "fusion": frozenset(("conv", "bnorm", "activ", "bias")),
    "find2": frozenset(("conv", "bnorm", "activ", "mha", "softmax", "fusion")),
    "settensor": TENSOR, "scaletensor": TENSOR, "transformtensor": TENSOR,
    "optensor": frozenset(("bias",)),
    "bias": frozenset(("optensor",)),
    "sum": frozenset(("reduce",)),
}  # fmt: skip
"""Primitives whose kernels another one launches, too."""
_TRANSPOSED: Mapping[str | None, OperationDirection] = {"forward": "backward-data", "backward-data": "forward"}
"""A transposed convolution runs the other one's kernels (miopen-log.md 6)."""


def serves(primitives: Sequence[str], directions: Sequence[str], operation: Operation, way: int = 1) -> bool:
    """Whether a kernel of these primitives and directions may be one of the call's; ``way`` -1: run the other way."""
    primitive = operation.primitive
    if primitive not in primitives and _USES.get(primitive, frozenset()).isdisjoint(primitives):
        return False
    direction = operation.direction
    if (operation.mode == "transpose") != (way < 0):
        direction = _TRANSPOSED.get(direction, direction)
    if not directions or direction is None or direction in directions:
        return True
    if "gemm" in primitives and primitive != "conv":
        return True  # the directions are those that its beta leaves a convolution
    return not (primitive in primitives or primitive == "fusion")
