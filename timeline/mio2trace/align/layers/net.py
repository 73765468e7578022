"""The net of the logs: layers in order with printed times and shapes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mio2trace.model.log import Direction, FrameworkLog, LayerTime
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
    if all(places.get(layer.layer, layer.index) == layer.index for layer in log.layers):
        return log
    if not all(layer.layer in places for layer in log.layers):
        return log
    return msgspec.structs.replace(
        log, layers=tuple(msgspec.structs.replace(layer, index=places[layer.layer]) for layer in log.layers)
    )


def read_net(logs: Sequence[FrameworkLog], notes: Notes) -> Net:
    """Return the net of the log with most layers, completed by others. Contradicting names add a note."""
    best: Sequence[LayerTime] = max((log.layers for log in logs), key=len, default=())
    built = {layer.layer: layer for log in logs for layer in log.net}
    names: dict[int, str] = {}
    times: dict[tuple[int, Direction], list[int]] = {}
    for layer in best:
        names.setdefault(layer.index, layer.layer)
        times.setdefault((layer.index, layer.direction), []).append(layer.printed_ns)
    for log in logs:
        for layer in log.layers:
            if names.get(layer.index, layer.layer) != layer.layer:
                notes.add("sources name a layer differently", f"{names[layer.index]} / {layer.layer}")
    if set(names.values()) < built.keys():
        if names:
            notes.add("layer without a printed time", count=len(built) - len(names))
        names = dict(enumerate(built))
    gaps = len(names) and max(names) + 1 - len(names)
    if gaps:
        notes.add("layers missing from the numbering of per_layer_info", count=gaps)
    means = {key: sum(its) // len(its) for key, its in times.items()}
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
