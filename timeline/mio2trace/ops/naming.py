"""What a person calls an operation."""

from __future__ import annotations

from mio2trace.ops.operation import Operation
from mio2trace.ops.values import shape_text

_NAMES = {
    "conv": "Conv",
    "pool": "Pool",
    "bnorm": "BatchNorm",
    "activ": "Activation",
    "softmax": "Softmax",
    "lrn": "LRN",
    "bias": "Bias",
    "optensor": "TensorOp",
    "settensor": "SetTensor",
    "scaletensor": "ScaleTensor",
    "transformtensor": "TransformTensor",
    "fusion": "Fusion",
    "rnn": "RNN",
    "reduce": "Reduce",
    "dropout": "Dropout",
    "mha": "MHA",
    "layernorm": "LayerNorm",
    "groupnorm": "GroupNorm",
}
_DIRECTIONS = {"forward": "fwd", "backward-data": "bwd data", "backward-weights": "bwd weights"}
_TWO_WAYS = frozenset(("conv", "fusion"))
"""Primitives whose backward pass has two calls, one for the data and one for the weights."""


def operation_name(operation: Operation) -> str:
    """``Conv fwd 64x64x56x56 -> 64x256x56x56 k1x1``; searches begin with ``Find``."""
    words = [operation_type(operation)]
    if operation.input:
        words.append(shape_text(operation.input))
        if operation.output and operation.output != operation.input:
            words += ["->", shape_text(operation.output)]
    kernel = operation.weights[2:] if operation.primitive in _TWO_WAYS else operation.window
    if kernel:
        words.append(f"k{shape_text(kernel)}")
    for letter, values, usual in (("s", operation.stride, 1), ("d", operation.dilation, 1)):
        if any(value != usual for value in values):
            words.append(letter + (str(values[0]) if len(set(values)) == 1 else shape_text(values)))
    if operation.groups is not None and operation.groups > 1:
        words.append(f"g{operation.groups}")
    return " ".join(words)


def operation_type(operation: Operation) -> str:
    """``Conv fwd``, ``Find Conv bwd weights``: what the names of like operations begin with."""
    words = ["Find"] if operation.phase == "find" else []
    words.append(_NAMES.get(operation.primitive, operation.primitive))
    if operation.direction is not None:
        short = _DIRECTIONS[operation.direction]
        words.append(short if operation.primitive in _TWO_WAYS else short.partition(" ")[0])
    return " ".join(words)
