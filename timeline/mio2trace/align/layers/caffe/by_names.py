"""Layers of the warm-up by names of kernels, in the net's order.

The warm-up runs each layer once. A kernel is in the layer of the kernel before it, in a later layer, or in none.
Caffe's kernels are named after a type of layer. Known layers show the rest: which types launch nothing, and which
kernels begin a layer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from math import prod

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.caffe.calls import chances_in_order
from mio2trace.align.layers.caffe.names import contradicts, launches, names_kernels, runs_nothing, tells_type, types_of
from mio2trace.align.layers.net import LayerKey, NetLayerSpec
from mio2trace.align.layers.recurrence import is_filler, prepares, signature
from mio2trace.align.links import DOUBTED, NONE, SURE
from mio2trace.align.operations.rates import FEW, LIKE, LINE_NS, MISSTATED, NEVER, SILENT, WHOLE
from mio2trace.evidence import NAME_AND_SIZES, RECURRENCE
from mio2trace.kernels.facts import size
from mio2trace.model.log import Direction

MOST_CELLS = 300_000
"""Pairs of kernel and layer that are computed; SqueezeNet needs 10,000."""
MOST_IN_A_PASS = 1_000_000
UNKNOWN_NS = 1 << 62
ELEMENT_BYTES = 4
_Types = frozenset[str]


def place_by_names(
    attribution: Attribution, positions: range, direction: Direction, run_for: Callable[[LayerKey], int]
) -> None:
    """Give kernels without layer to the most likely layer; kernels with a less likely layer move."""
    links, activities = attribution.links, attribution.profile.activities
    layers = attribution.net.layers if direction == "forward" else attribution.net.layers[::-1]
    kernels = [p for p in positions if activities[p].kind == "kernel" and not is_filler(attribution, p)]
    if not layers or all(links.run_of[p] != NONE for p in kernels) or len(kernels) * len(layers) > MOST_IN_A_PASS:
        return
    row = _Row(attribution, positions, kernels, layers, direction)
    chances = row.chances() if row.is_of_layers() else None
    if chances is None:
        return
    layer_of: dict[int, LayerKey] = {}
    shaky: set[int] = set()
    before = NONE
    for position, of_each in zip(kernels, chances, strict=True):
        place = of_each.index(max(of_each))
        chance = of_each[place]
        key = layers[place].index, direction
        held = attribution.layer_key(position)
        if held is not None and position not in row.liked:
            layer_of[position], before = held, row.places[held[0]]
            continue
        if held is not None and chance < SURE:
            own = [position, *_before(attribution, position, positions)]
            links.doubt_layer(own, min(WHOLE, of_each[row.places[held[0]]]))
        if chance < DOUBTED:
            continue
        layer_of[position] = key
        # What prepares a layer that the profile lost may be all that is left of it.
        if chance < SURE or any(one < DOUBTED for one in row.silent[before + 1 : place]):
            shaky.add(position)
        before = place
        if held == key:
            continue
        if held is not None:
            for one in (position, *_before(attribution, position, positions)):
                links.take_layer(one)
        attribution.give_layer([position], run_for(key), NAME_AND_SIZES, confidence=min(chance, WHOLE))
    launched = set(layer_of.values())
    unlaunched: dict[LayerKey, int] = {
        (layer.index, direction): layer.printed_ns(direction) or 0
        for layer in layers
        if (layer.index, direction) not in launched
    }
    known = {p for p in positions if links.run_of[p] != NONE} | layer_of.keys()
    prepared = prepares(attribution, positions, layer_of, known, shaky, unlaunched)
    for position, (own_key, by, in_doubt) in prepared.items():
        likely = min(WHOLE, links.layer_confidence.get(by, 1.0), LIKE if in_doubt else 1.0)
        attribution.give_layer([position], run_for(own_key), NAME_AND_SIZES, confidence=likely)


def _before(attribution: Attribution, position: int, positions: range) -> list[int]:
    """Return what is in the layer of a kernel because it prepares this kernel."""
    key = attribution.layer_key(position)
    first = position
    while first > positions.start and is_filler(attribution, first - 1) and attribution.layer_key(first - 1) == key:
        first -= 1
    return list(range(first, position))


class _Known:
    """What layers of other passes show about kernels, in one direction."""

    def __init__(self, attribution: Attribution, direction: Direction, without: range) -> None:
        links, net = attribution.links, attribution.net
        of_place = [types_of(layer.layer, layer.type) for layer in net.layers]
        places = {layer.index: place for place, layer in enumerate(net.layers)}
        self._named = frozenset().union(*of_place)
        self._signatures: dict[int, set[Hashable]] = defaultdict(set)
        self._begins: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._layers: Counter[_Types] = Counter()
        self._silent: Counter[_Types] = Counter()
        self._with: Counter[tuple[_Types, str]] = Counter()
        self.names: set[str] = set()
        seen: set[tuple[int, int, str]] = set()
        own = [0, 0]
        before: tuple[int, int, str] | None = None
        for position, activity in enumerate(attribution.profile.activities):
            if activity.kind != "kernel" or is_filler(attribution, position):
                continue
            key = attribution.layer_key(position)
            if key is None or key[1] != direction or position in links.layer_unsure or position in without:
                before = None
                continue
            pass_, place, name = links.pass_of[position], places[key[0]], activity.name
            if (pass_, place, name) not in seen:
                seen.add((pass_, place, name))
                self._with[of_place[place], name] += 1
            self.names.add(name)
            self._signatures[key[0]].add(signature(activity))
            begins = before is None or before[:2] != (pass_, place)
            self._layers[of_place[place]] += begins
            if of_place[place] and all(map(names_kernels, of_place[place])):
                own[tells_type(name)] += 1
            if before is not None and before[0] == pass_:
                self._begins[before[2], name][begins] += 1
                first, last = sorted((before[1], place))
                self._silent.update(of_place[first + 1 : last])
            before = pass_, place, name
        self._strange = (own[False] + MISSTATED) / (sum(own) + 1)
        """Share of kernels without a type in their name, in layers that name their kernels."""

    def likeness(self, layer: int, own: Hashable) -> float:
        """Return how well a kernel with this signature fits a layer."""
        signatures = self._signatures.get(layer)
        return DOUBTED if signatures is None else 1.0 if own in signatures else FEW

    def begins(self, before: str, name: str) -> float:
        """Return the probability that a kernel behind another one begins a layer."""
        again, begun = self._begins.get((before, name), (0, 0))
        return (begun + DOUBTED) / (begun + again + 1)

    def silent(self, types: _Types) -> float:
        """Return the probability that a layer launches nothing."""
        silent = self._silent[types]
        if types and all(map(runs_nothing, types)):
            return 1 - MISSTATED
        expected = SILENT if types and all(map(launches, types)) else DOUBTED
        return (silent + expected) / (silent + self._layers[types] + 1)

    def fit(self, name: str, types: _Types, direction: Direction) -> float:
        """Return how well a kernel's name fits these types."""
        if contradicts(name, types, direction, self._named):
            return NEVER
        if not types:
            return FEW if tells_type(name) else DOUBTED  # any type may be meant
        if all(map(runs_nothing, types)):
            return MISSTATED
        share = (self._with[types, name] + DOUBTED) / (self._layers[types] + 1)
        if share < DOUBTED and not tells_type(name) and all(map(names_kernels, types)):
            return share * self._strange
        return share


class _Row:
    def __init__(
        self,
        attribution: Attribution,
        positions: range,
        kernels: Sequence[int],
        layers: Sequence[NetLayerSpec],
        direction: Direction,
    ) -> None:
        self._attribution = attribution
        self._positions = positions
        self._kernels = kernels
        self._layers = layers
        self._direction: Direction = direction
        self._known = _Known(attribution, direction, without=positions)
        self._types = [types_of(layer.layer, layer.type) for layer in layers]
        self.places = {layer.index: place for place, layer in enumerate(layers)}
        self.silent = [self._known.silent(types) for types in self._types]
        words = attribution.links.layer_by
        self.liked = {p for p in kernels if words[p] in ("", RECURRENCE)}
        """Kernels without layer, or with a layer by similarity only."""

    def is_of_layers(self) -> bool:
        """Return whether most kernels have a type in their name, or the name of a kernel in a known layer."""
        names = [self._attribution.profile.activities[position].name for position in self._kernels]
        return sum(tells_type(name) or name in self._known.names for name in names) >= DOUBTED * len(names)

    def chances(self) -> list[list[float]] | None:
        names = [self._attribution.profile.activities[position].name for position in self._kernels]
        firsts = [1.0, *(self._known.begins(*pair) for pair in pairwise(names))]
        return chances_in_order(
            self._fits(),
            self.silent,
            firsts,
            [1 - first for first in firsts],
            begun=self._positions.start > 0,
            ended=self._positions.stop < len(self._attribution.profile.activities),
            at_most=MOST_CELLS,
        )

    def _fits(self) -> list[list[float]]:
        """Return how well each kernel fits each layer; a known layer excludes all others."""
        layers, activities = self._layers, self._attribution.profile.activities
        # Of 190 layers one in a hundred took four times as long in the warm-up as it is printed of iterations.
        lasted = [max(layer.printed_ns(self._direction) or UNKNOWN_NS, LINE_NS) for layer in layers]
        by_signature: dict[Hashable, list[float]] = {}
        fits = []
        for position, sized in zip(self._kernels, _sized(self._attribution, self._kernels, layers), strict=True):
            if position not in self.liked:
                key = self._attribution.layer_key(position)
                assert key is not None
                fits.append([NEVER] * len(layers))
                fits[-1][self.places[key[0]]] = 1.0
                continue
            own = signature(activities[position])
            fit = by_signature.get(own)
            if fit is None:
                fit = by_signature[own] = self._fit(activities[position].name, own)
            sized = {place for place in sized if fit[place] > NEVER}
            if sized:
                fit = [one * (1.0 if place in sized else FEW) for place, one in enumerate(fit)]
            took = (activities[position].end_ns or 0) - (activities[position].start_ns or 0)
            if took:
                fit = [one * min(1.0, most / took) for one, most in zip(fit, lasted, strict=True)]
            fits.append(fit)
        return fits

    def _fit(self, name: str, own: Hashable) -> list[float]:
        known, direction = self._known, self._direction
        return [
            max(NEVER, known.fit(name, types, direction) * known.likeness(layer.index, own))
            for layer, types in zip(self._layers, self._types, strict=True)
        ]


def _sized(attribution: Attribution, kernels: Sequence[int], layers: Sequence[NetLayerSpec]) -> list[set[int]]:
    """Return per kernel layers with as many outputs as an argument states. Frequent numbers do not count."""
    of_size: dict[int, set[int]] = defaultdict(set)
    for place, layer in enumerate(layers):
        sizes = layer.output.split("x")
        if all(map(str.isdecimal, sizes)):
            of_size[prod(map(int, sizes))].add(place)
    numbers = [_numbers(attribution, position) & of_size.keys() for position in kernels]
    common = Counter(number for some in numbers for number in some)
    return [
        set().union(*(of_size[number] for number in some if common[number] < DOUBTED * len(kernels)))
        for some in numbers
    ]


def _numbers(attribution: Attribution, position: int) -> set[int]:
    """Return what the arguments count, as elements and as bytes, and the size of the GEMM's result."""
    counts = {count for one in attribution.profile.activities[position].opencl.arguments if (count := size(one))}
    counts |= {count // ELEMENT_BYTES for count in counts if count % ELEMENT_BYTES == 0}
    fact = attribution.facts.get(position)
    if fact is not None and fact.gemm is not None:
        counts.add(fact.gemm.m * fact.gemm.n)
    return counts
