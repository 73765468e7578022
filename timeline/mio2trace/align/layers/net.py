"""The net of the logs: layers in order with printed times and shapes; and the types of layers that a name allows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from mio2trace.kernels.names import kernel_name
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import LayerTimes, Pool, summed
from mio2trace.notes import Notes
from mio2trace.patterns import late

LayerKey = tuple[int, Direction | None]
"""Index and direction (if known) of a layer."""


class NetLayerSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A layer of the net; printed times are means or of one execution. ``within``: the layer around it."""

    index: int
    layer: str
    type: str = ""
    output: str = ""
    within: str = ""
    forward_ns: int | None = None
    backward_ns: int | None = None

    def printed_ns(self, direction: Direction | None) -> int | None:
        return {"forward": self.forward_ns, "backward": self.backward_ns}.get(direction or "")


class Net(msgspec.Struct, frozen=True, kw_only=True):
    """Layers in net order. ``backward``: whether a backward pass ran (None: unknown)."""

    layers: tuple[NetLayerSpec, ...] = ()
    backward: bool | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it has layers, all with printed times."""
        return bool(self.layers) and all(
            layer.forward_ns is not None or layer.backward_ns is not None for layer in self.layers
        )

    @property
    def is_whole(self) -> bool:
        """Whether no layer is missing from the numbering."""
        return not self.layers or self.layers[-1].index + 1 == len(self.layers)

    def with_layers(self, named: Sequence[tuple[int, str, str]], *, backward: bool) -> Net:
        """Return the net with further layers (index, name, layer around it)."""
        specs = [NetLayerSpec(index=index, layer=layer, within=within) for index, layer, within in named]
        return Net(layers=(*self.layers, *specs), backward=self.backward or backward)

    def execution_order(self) -> list[tuple[NetLayerSpec, Direction]]:
        """Return one iteration: forward in net order, then backward in reverse (dvdt-ck.md 2.1)."""
        order: list[tuple[NetLayerSpec, Direction]] = [(layer, "forward") for layer in self.layers]
        if self.backward:
            order += [(layer, "backward") for layer in reversed(self.layers)]
        return order


def by_place(log: FrameworkLog) -> FrameworkLog:
    """Number the layers by their places in the net of the set-up, if layer lines are lost."""
    places = {layer.layer: place for place, layer in enumerate(log.net)}
    keys = log.times.key
    if all(places.get(key.layer, key.place) == key.place for key in keys.values):
        return log
    if not all(key.layer in places for key in keys.values):
        return log
    place = np.array([places[key.layer] for key in keys.values], np.int64)[keys.codes]
    return msgspec.structs.replace(log, layers=log.times.changed(place=place))


def read_net(logs: Sequence[FrameworkLog], notes: Notes) -> Net:
    """Return the net of the log with most layers, completed by others. Contradicting names add a note."""
    best = max((log.times for log in logs), key=len, default=LayerTimes())
    built = {layer.layer: layer for log in logs for layer in log.net}
    names: dict[int, str] = {}
    for key in best.key.values:
        names.setdefault(key.place, key.layer)
    for log in logs:
        keys = log.times.key
        differ = keys.where(lambda key: names.get(key.place, key.layer) != key.layer)
        for key in keys.take(differ).each():
            notes.add("sources name a layer differently", f"{names[key.place]} / {key.layer}")
    if set(names.values()) < built.keys():
        if names:
            notes.add("layer without a printed time", count=len(built) - len(names))
        names = dict(enumerate(built))
    gaps = len(names) and max(names) + 1 - len(names)
    if gaps:
        notes.add("layers missing from the numbering of per_layer_info", count=gaps)
    of_way = Pool.of((key.place, key.direction) for key in best.key.values).take(best.key.codes)
    sums = summed(of_way.codes, best.printed_ns, len(of_way.values)).tolist()
    counts = np.bincount(of_way.codes).tolist()
    means = {way: total // count for way, total, count in zip(of_way.values, sums, counts, strict=True)}
    layers = [
        NetLayerSpec(
            index=index,
            layer=name,
            type=built[name].type if name in built else "",
            output=next(iter(built[name].tops), "") if name in built else "",
            forward_ns=means.get((index, "forward")),
            backward_ns=means.get((index, "backward")),
        )
        for index, name in sorted(names.items())
    ]
    return Net(layers=tuple(layers), backward=_backward(logs, layers))


def _backward(logs: Sequence[FrameworkLog], layers: Sequence[NetLayerSpec]) -> bool | None:
    """Return whether a backward pass ran. ``backward: 0 ms`` for all layers means no."""
    if any(layer.backward_ns for layer in layers):
        return True
    averages = [log.average_backward_ns for log in logs if log.average_backward_ns is not None]
    averages += [
        event.duration_ns
        for log in logs
        for event in log.events
        if event.kind == "average backward" and event.duration_ns is not None
    ]
    if averages:
        return any(averages)
    if any(layer.forward_ns is not None for layer in layers):
        return False
    kinds = {event.kind for log in logs for event in log.events}
    if "backward begins" in kinds:
        return True
    return False if {"forward begins", "benchmark begins"} <= kinds else None


# -- The types of layers that the name of a kernel or a layer allows: Caffe's own kernels are named after a type ---


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
"""Words in the names of kernels of the other direction."""
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


@lru_cache(maxsize=1 << 12)
def types_of(layer: str, type_: str) -> frozenset[str]:
    """Return the possible types of a layer: the log's, else by words of its name; empty if unknown."""
    named = (_WORDS[word] for word in _WORD.findall(layer.lower()) if word in _WORDS)
    return frozenset((type_,) if type_ else named)


def may_call(primitive: str, types: frozenset[str]) -> bool:
    """Return whether a layer of these types may make this primitive's call (or a recurrent call of this mode)."""
    return primitive not in _PRIMITIVES or not types.isdisjoint(_PRIMITIVES[primitive])


def has_nothing_written(types: frozenset[str]) -> bool:
    """Return whether these types have no parameters or labels: none of 235 writes is theirs."""
    return bool(types) and types <= _WRITES_NOTHING


@lru_cache(maxsize=1 << 12)
def contradicts(name: str, types: frozenset[str], direction: Direction, named: frozenset[str] = frozenset()) -> bool:
    """Return whether a kernel has the name of another type than ``types``, or of the other direction.

    No kernel does among 749 with a stated type, 777 with the type in the layer's name, and 665 with a direction in the
    name. ``named``: types in the net's names. 924 kernels of such types are in no layer without a type in its name,
    except convolutions and products."""
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
