"""What a kernel's name says of the layer that launched it: Caffe's own kernels are named after a type of layer.

Where no log tells the layer's type, its own name does as far as people name layers: all words that are a type's.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mio2trace.kernels.names import kernel_name
from mio2trace.model.log import Direction
from mio2trace.patterns import late

_CONVOLUTIONS = frozenset(("Convolution", "Deconvolution"))
_PRODUCTS = _CONVOLUTIONS | {"InnerProduct", "LSTM", "RNN"}
_TYPES = (
    (late(r"pool"), frozenset(("Pooling",))),
    (late(r"relu"), frozenset(("ReLU", "PReLU"))),
    (late(r"^lrn_"), frozenset(("LRN",))),
    (late(r"^kernel_(?:channel|exp)|softmax", re.IGNORECASE), frozenset(("Softmax", "SoftmaxWithLoss"))),
    (late(r"dropout"), frozenset(("Dropout",))),
    (late(r"^concat"), frozenset(("Concat",))),
    (late(r"im2col|col2im|^conv_", re.IGNORECASE), _CONVOLUTIONS),
    (late(r"^Xgemm|^_prod_"), _PRODUCTS),
)
_PRIMITIVES = {
    "conv": _PRODUCTS,  # an inner product may be a convolution
    "bias": _PRODUCTS,
    "optensor": _PRODUCTS | {"Eltwise", "Scale", "Bias", "Power", "BatchNorm"},
    "activ": frozenset(("ReLU", "PReLU", "ELU", "Sigmoid", "TanH", "AbsVal", "BNLL", "Power")),
    "pool": frozenset(("Pooling",)),
    "lrn": frozenset(("LRN",)),
    "softmax": frozenset(("Softmax", "SoftmaxWithLoss")),
    "bnorm": frozenset(("BatchNorm",)),
}
_CALLING = frozenset().union(*_PRIMITIVES.values())
_WORD = late(r"[a-z]+")
_WORDS = {
    "conv": "Convolution",
    "deconv": "Deconvolution",
    "proj": "Convolution",
    "ip": "InnerProduct",
    "fc": "InnerProduct",
    "relu": "ReLU",
    "pool": "Pooling",
    "norm": "LRN",
    "lrn": "LRN",
    "bn": "BatchNorm",
    "batchnorm": "BatchNorm",
    "scale": "Scale",
    "prob": "Softmax",
    "softmax": "Softmax",
    "loss": "SoftmaxWithLoss",
    "drop": "Dropout",
    "dropout": "Dropout",
    "concat": "Concat",
}
"""What people call layers of a type, with a number or another word behind it; a fused layer has several such words."""


def types_of(layer: str, type_: str) -> frozenset[str]:
    """The types that a layer may be of: the one that the log tells, else those that its name has words for; empty where
    nothing tells."""
    return frozenset((type_,)) if type_ else _named_types(layer)


@lru_cache(maxsize=1 << 12)
def _named_types(layer: str) -> frozenset[str]:
    return frozenset(_WORDS[word] for word in _WORD.findall(layer.lower()) if word in _WORDS)


def may_call(primitive: str, layer_type: str) -> bool:
    """Whether a layer of this type may make a call of this primitive."""
    types = _PRIMITIVES.get(primitive)
    return types is None or layer_type in types


def calls_nothing(layer_type: str) -> bool:
    """Whether a layer of this type makes no call: Caffe moves or counts what is there, or nothing at all."""
    return layer_type not in _CALLING


@lru_cache(maxsize=1 << 12)
def contradicts(name: str, types: frozenset[str], direction: Direction) -> bool:
    """Whether a kernel is named after another type of layer than ``types``, or the other direction.

    Of 749 whose layer's type is told, and 777 whose layer's name tells it, none is.
    """
    if ("backward" in name) if direction == "forward" else ("forward" in name):
        return True
    return bool(types) and all(_is_of_another(name, type_) for type_ in types)


@lru_cache(maxsize=1 << 12)
def tells_type(name: str) -> bool:
    """Whether a kernel is named after a type of layer at all."""
    known = kernel_name(name)
    if known is not None and known.miopen:
        return any(primitive in _PRIMITIVES for primitive in known.primitives)
    return any(words.search(name) for words, _ in _TYPES)


def _is_of_another(name: str, layer_type: str) -> bool:
    known = kernel_name(name)
    if known is not None and known.miopen:
        types = [_PRIMITIVES.get(primitive) for primitive in known.primitives]
        return bool(types) and all(some is not None and layer_type not in some for some in types)
    for words, some in _TYPES:
        if words.search(name):
            return layer_type not in some
    return False
