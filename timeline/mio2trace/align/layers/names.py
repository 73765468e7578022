"""The types of layers that a kernel's name allows: Caffe's own kernels are named after a type."""

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
"""Types whose layers multiply matrices."""
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
NAMING = frozenset().union(*(types for _, types in _TYPES)) - _MULTIPLY
"""Types whose kernels are named after them."""
LAUNCHING = _PRODUCTS | NAMING - {"Dropout"}
"""Types that launch kernels, forward."""
PASSING_ON = frozenset(
    ("Input", "Data", "DummyData", "HDF5Data", "ImageData", "MemoryData", "WindowData", "Flatten", "Reshape", "Silence")
)
"""Types that only have or pass on data."""
_WRITES_NOTHING = frozenset(("ReLU", "Pooling", "LRN", "Softmax", "Concat"))
_OTHER: dict[Direction, re.Pattern[str]] = {
    "forward": late(r"bwd|backward", re.IGNORECASE),
    "backward": late(r"fwd|forward", re.IGNORECASE),
}
"""What the name of a kernel of the other direction has."""
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
_LAUNCHED_BY = _PRIMITIVES | {"activ": _PRIMITIVES["activ"] | _RECURRENT}
CALLING = frozenset().union(*_PRIMITIVES.values())
"""Types that make calls of the library."""
_WORD = late(r"[a-z]+")
_NAMED_AS = {
    "Convolution": "conv proj", "Deconvolution": "deconv", "InnerProduct": "ip fc", "ReLU": "relu", "Pooling": "pool",
    "LRN": "norm lrn", "BatchNorm": "bn batchnorm", "Scale": "scale", "Softmax": "prob softmax",
    "SoftmaxWithLoss": "loss", "Dropout": "drop dropout", "Concat": "concat", "LSTM": "lstm bilstm",
    "GRU": "gru bigru", "RNN": "rnn birnn",
}  # fmt: skip
"""Words in names of layers by type, before a number or another word; a fused layer has several words."""
_WORDS = {word: type_ for type_, words in _NAMED_AS.items() for word in words.split()}


def types_of(layer: str, type_: str) -> frozenset[str]:
    """Return the possible types of a layer: the log's, else by words of its name; empty if unknown."""
    return frozenset((type_,)) if type_ else _named_types(layer)


@lru_cache(maxsize=1 << 12)
def _named_types(layer: str) -> frozenset[str]:
    return frozenset(_WORDS[word] for word in _WORD.findall(layer.lower()) if word in _WORDS)


def may_call(primitive: str, types: frozenset[str]) -> bool:
    """Return whether a layer of these types may make this primitive's call (or a recurrent call of this mode)."""
    return primitive not in _PRIMITIVES or not types.isdisjoint(_PRIMITIVES[primitive])


def has_nothing_written(types: frozenset[str]) -> bool:
    """Return whether these types have no parameters or labels: none of 235 writes is theirs."""
    return bool(types) and types <= _WRITES_NOTHING


@lru_cache(maxsize=1 << 12)
def contradicts(name: str, types: frozenset[str], direction: Direction, named: frozenset[str] = frozenset()) -> bool:
    """Return whether a kernel has the name of another type than ``types``, or of the other direction.

    Of 749 kernels with a stated type, and 777 with the type in the layer's name, none has. Of 665 with a direction in
    the name none has the other one. ``named``: types in the net's names. 924 kernels of such types are in no layer
    without a type in its name, except convolutions and products."""
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
    """Return whether a kernel is named after a type of layer."""
    known = kernel_name(name)
    if known is not None and known.miopen:
        return any(primitive in _PRIMITIVES for primitive in known.primitives)
    return any(words.search(name) for words, _ in _TYPES)


def _told(name: str) -> frozenset[str]:
    """Return the types whose layers launch kernels of this name; empty if unknown."""
    known = kernel_name(name)
    if known is not None and known.miopen:
        some = [_LAUNCHED_BY.get(primitive, frozenset()) for primitive in known.primitives]
        return frozenset().union(*some) if all(some) else frozenset()
    return next((types for words, types in _TYPES if words.search(name)), frozenset())
