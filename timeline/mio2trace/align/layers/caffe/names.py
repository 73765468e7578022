"""What a kernel's name says of the layer that launched it: Caffe's own kernels are named after a type of layer."""

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
    "pool": frozenset(("Pooling",)),
    "lrn": frozenset(("LRN",)),
    "softmax": frozenset(("Softmax", "SoftmaxWithLoss")),
    "bnorm": frozenset(("BatchNorm",)),
}


@lru_cache(maxsize=1 << 12)
def contradicts(name: str, layer_type: str, direction: Direction) -> bool:
    """Whether a kernel is named after another type of layer, or the other direction: none of 749 is."""
    if ("backward" in name) if direction == "forward" else ("forward" in name):
        return True
    if not layer_type:
        return False
    known = kernel_name(name)
    if known is not None and known.miopen:
        types = [_PRIMITIVES.get(primitive) for primitive in known.primitives]
        return bool(types) and all(some is not None and layer_type not in some for some in types)
    for words, some in _TYPES:
        if words.search(name):
            return layer_type not in some
    return False
