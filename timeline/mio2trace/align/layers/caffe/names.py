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
_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
_PRODUCTS = _CONVOLUTIONS | _RECURRENT | {"InnerProduct"}
_MULTIPLY = _PRODUCTS | {"BatchNorm", "Scale", "Bias", "Embed", "MVN"}
"""Types whose layers multiply matrices, if only by ones."""
_TYPES = (
    (late(r"pool"), frozenset(("Pooling",))),
    (late(r"relu"), frozenset(("ReLU", "PReLU"))),
    (late(r"^lrn_"), frozenset(("LRN",))),
    (late(r"^kernel_(?:channel|exp)|softmax", re.IGNORECASE), frozenset(("Softmax", "SoftmaxWithLoss"))),
    (late(r"dropout"), frozenset(("Dropout",))),
    (late(r"^concat"), frozenset(("Concat",))),
    (late(r"im2col|col2im|^conv_", re.IGNORECASE), _CONVOLUTIONS),
    (late(r"^Xgemm|^_prod_"), _MULTIPLY),
)
_OWN = frozenset().union(*(types for _, types in _TYPES)) - _MULTIPLY
_PASSES_ON = frozenset(
    ("Input", "Data", "DummyData", "HDF5Data", "ImageData", "MemoryData", "WindowData", "Flatten", "Reshape", "Silence")
)
_WRITES_NOTHING = frozenset(("ReLU", "Pooling", "LRN", "Softmax", "Concat"))
_OTHER: dict[Direction, re.Pattern[str]] = {
    "forward": late(r"bwd|backward", re.IGNORECASE),
    "backward": late(r"fwd|forward", re.IGNORECASE),
}
"""What a kernel is named after that runs in the other direction."""
_PRIMITIVES = {
    "conv": _PRODUCTS,  # an inner product may be a convolution
    "bias": _PRODUCTS,
    "optensor": _PRODUCTS | {"Eltwise", "Scale", "Bias", "Power", "BatchNorm"},
    "activ": frozenset(("ReLU", "PReLU", "ELU", "Sigmoid", "TanH", "AbsVal", "BNLL", "Power")),
    "pool": frozenset(("Pooling",)),
    "lrn": frozenset(("LRN",)),
    "softmax": frozenset(("Softmax", "SoftmaxWithLoss")),
    "bnorm": frozenset(("BatchNorm",)),
    "rnn": _RECURRENT,
    # Modes of recurrent calls; a layer that is called by the family's name may be of any.
    "lstm": frozenset(("LSTM", "RNN")),
    "gru": frozenset(("GRU", "RNN")),
    "tanh": frozenset(("RNN",)),
    "relu": frozenset(("RNN",)),
}
_LAUNCHING = _PRIMITIVES | {"activ": _PRIMITIVES["activ"] | _RECURRENT}
"""The same of kernels: a recurrent call launches activations."""
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
    "lstm": "LSTM",
    "bilstm": "LSTM",
    "gru": "GRU",
    "bigru": "GRU",
    "rnn": "RNN",
    "birnn": "RNN",
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
    """Whether a layer of this type may make a call of this primitive, or of a recurrent one in this mode."""
    types = _PRIMITIVES.get(primitive)
    return types is None or layer_type in types


def calls_nothing(layer_type: str) -> bool:
    """Whether a layer of this type makes no call: Caffe moves or counts what is there, or nothing at all."""
    return layer_type not in _CALLING


def launches(layer_type: str) -> bool:
    """Whether a layer of this type launches kernels, forward: Dropout does where it trains."""
    return layer_type in _PRODUCTS or (names_kernels(layer_type) and layer_type != "Dropout")


def runs_nothing(layer_type: str) -> bool:
    """Whether a layer of this type only has data, or passes on what it gets."""
    return layer_type in _PASSES_ON


def has_nothing_written(types: frozenset[str]) -> bool:
    """Whether layers of these types have neither parameters nor labels that the host writes once: of 235 such writes
    none is theirs.
    """
    return bool(types) and types <= _WRITES_NOTHING


def names_kernels(layer_type: str) -> bool:
    """Whether the kernels of a layer of this type are named after it, and not after what they compute."""
    return layer_type in _OWN


@lru_cache(maxsize=1 << 12)
def contradicts(name: str, types: frozenset[str], direction: Direction, named: frozenset[str] = frozenset()) -> bool:
    """Whether a kernel is named after another type of layer than ``types``, or the other direction.

    Of 749 whose layer's type is told, and 777 whose layer's name tells it, none is; of 665 that are named after a
    direction none runs in the other. MIOpen's convolutions are: a forward kernel computes gradients, too. ``named``:
    what the net's layers are named after. Who names some of its poolings so names all: of 924 kernels of such types
    none is in a layer whose name tells nothing, but convolutions and products have any name.
    """
    if ("backward" in name) if direction == "forward" else ("forward" in name):
        return True
    told = _told(name)
    is_product = not told.isdisjoint(_PRODUCTS - _RECURRENT)
    if told and not is_product and _OTHER[direction].search(name):
        return True
    if not types:
        return not told.isdisjoint(named - _RECURRENT) and not is_product
    return bool(told) and told.isdisjoint(types)


@lru_cache(maxsize=1 << 12)
def tells_type(name: str) -> bool:
    """Whether a kernel is named after a type of layer at all."""
    known = kernel_name(name)
    if known is not None and known.miopen:
        return any(primitive in _PRIMITIVES for primitive in known.primitives)
    return any(words.search(name) for words, _ in _TYPES)


def _told(name: str) -> frozenset[str]:
    """The types of layers that launch kernels of this name; empty where it tells nothing."""
    known = kernel_name(name)
    if known is not None and known.miopen:
        some = [_LAUNCHING.get(primitive, frozenset()) for primitive in known.primitives]
        return frozenset().union(*some) if all(some) else frozenset()
    return next((types for words, types in _TYPES if words.search(name)), frozenset())
