"""The net of the logs: layers in order with printed times and shapes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import LayerTimes, Pool, summed
from mio2trace.notes import Notes

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
    layers = []
    for index, name in sorted(names.items()):
        known = built.get(name)
        layers.append(
            NetLayerSpec(
                index=index,
                layer=name,
                type=known.type if known else "",
                output=known.tops[0] if known and known.tops else "",
                forward_ns=means.get((index, "forward")),
                backward_ns=means.get((index, "backward")),
            )
        )
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
