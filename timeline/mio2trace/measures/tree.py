"""The kernel time of steady iterations as a tree: layers within layers, their operations, and the kernels of these.

A layer is within the layer whose range was open during most of its calls. The own time of a layer is that of kernels in
no layer within it; the own time of an operation is that of all its kernels. Both directions of a layer are one node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
import numpy as np

from mio2trace.align import NONE
from mio2trace.align.exact import layer_of_range, may_be_layer
from mio2trace.align.open_ranges import OpenRanges
from mio2trace.measures import Measures
from mio2trace.model.profile import Profile
from mio2trace.model.tables import Pool, distinct, sorted_pool, summed

MOST_LAYERS = 64
"""The most nested layers; of more the outermost ones are left out."""
Kind = Literal["all", "layer", "operation", "kernel"]


class Node(msgspec.Struct, kw_only=True):
    """``own_ns`` and ``kernels``: over all steady iterations, without the nodes below. ``total_ns``, ``total_kernels``:
    with these. ``name``: empty for kernels in no layer or in no operation, and for the root."""

    kind: Kind
    name: str
    own_ns: int = 0
    kernels: int = 0
    total_ns: int = 0
    total_kernels: int = 0
    parts: dict[tuple[Kind, str], Node] = msgspec.field(default_factory=dict)

    def part(self, kind: Kind, name: str) -> Node:
        made = self.parts.get((kind, name))
        if made is None:
            made = self.parts[kind, name] = Node(kind=kind, name=name)
        return made

    def in_order(self) -> list[Node]:
        """Return the children, most time first; layers before operations of equal time."""
        return sorted(self.parts.values(), key=lambda node: -node.total_ns)

    def walk(self) -> Iterator[tuple[int, Node]]:
        """Yield the node and all nodes below with their depth, parents first."""
        waiting = [(0, self)]
        while waiting:
            level, node = waiting.pop()
            yield level, node
            waiting += [(level + 1, part) for part in reversed(node.in_order())]


def layer_tree(measures: Measures) -> Node:
    """Return the root, which holds all kernels with times of steady iterations."""
    links, steady = measures.alignment.links, measures.steady
    counted = steady.counted
    net = measures.alignment.net.layers
    inside = {**{one.layer: one.within for one in net if one.within}, **_parents(measures.alignment.profile)}
    root = Node(kind="all", name="")
    around: dict[str, tuple[Node, ...]] = {"": (root, root.part("layer", ""))}

    def nodes(layer: str) -> tuple[Node, ...]:
        """Return the nodes from the root to a layer."""
        made = around.get(layer)
        if made is None:
            names = [layer]
            while (outer := inside.get(names[-1])) is not None and outer not in names and len(names) < MOST_LAYERS:
                names.append(outer)
            path = [root]
            for name in reversed(names):
                path.append(path[-1].part("layer", name))
            made = around[layer] = tuple(path)
        return made

    layer_of_run = Pool.of(["", *(run.layer for run in links.runs)])
    layers = layer_of_run.take(np.asarray(links.run_of)[counted.kernels] + 1)
    indexes, index_of = sorted_pool(np.asarray(links.operation_of)[counted.kernels])
    operations = Pool.of("" if index == NONE else steady.operation_key(index)[1] for index in indexes).take(index_of)
    names = counted.name_of[counted.kernels]
    keys = layers.codes.astype(np.int64) * len(operations.values) + operations.codes
    first, key_of = distinct(keys * len(counted.names) + names)
    columns = (
        layers.codes[first], operations.codes[first], names[first], summed(key_of, counted.ns, len(first)),
        np.bincount(key_of, minlength=len(first)),
    )  # fmt: skip
    for layer, problem, number, ns, kernels in zip(*(column.tolist() for column in columns), strict=True):
        path = nodes(layers.values[layer])
        path[-1].own_ns += ns
        path[-1].kernels += kernels
        operation = path[-1].part("operation", operations.values[problem])
        kernel = operation.part("kernel", counted.names[number])
        for node in (operation, kernel):
            node.own_ns += ns
            node.kernels += kernels
        for node in (*path, operation, kernel):
            node.total_ns += ns
            node.total_kernels += kernels
    root.parts = {key: node for key, node in root.parts.items() if node.kernels or node.parts}
    return root


def _parents(profile: Profile) -> Mapping[str, str]:
    """Return the parent of each layer that a range names: the layer of the range around most of its calls; of two, the
    first.

    A layer that calls itself is within the first other one.
    """
    ranges = tuple(made for made in profile.ranges if made.kind != "operator" and may_be_layer(made))
    reduced = msgspec.structs.replace(profile, ranges=ranges, activities=())
    parent_of = OpenRanges(reduced).parent_of
    names = [layer_of_range(made)[0] for made in ranges]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for place, name in enumerate(names):
        outer = parent_of[place]
        while outer != NONE and names[outer] == name:
            outer = parent_of[outer]
        found[name]["" if outer == NONE else names[outer]] += 1
    mostly = {name: counts.most_common(1)[0][0] for name, counts in found.items()}
    return {name: outer for name, outer in mostly.items() if outer}
