"""Parts of a run that no line of the log divides into layers: set-up and warm-up, and iterations that the log lacks.

Their layers follow from similarity to known iterations, or from names of kernels in the net's order
(alignment-internals.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import pairwise
from math import prod

import msgspec
import numpy as np

from mio2trace.align.attribution import DIRECTIONS, Attribution
from mio2trace.align.clocks.axis import STAMP_NS, Timeline
from mio2trace.align.engine import Weights, in_slots
from mio2trace.align.layers.net import (
    LAUNCHING,
    NAMING,
    PASSING_ON,
    LayerKey,
    NetLayerSpec,
    contradicts,
    tells_type,
    types_of,
)
from mio2trace.align.layers.repetitions import is_filler, matches, place_by_recurrence, prepares, signature
from mio2trace.align.links import DOUBTED, NONE, SURE
from mio2trace.align.rates import FEW, LIKE, LINE_NS, MISSTATED, NEVER, SILENT, UNEVEN, WHOLE
from mio2trace.evidence import DURATIONS, NAME_AND_SIZES, RECURRENCE
from mio2trace.kernels.facts import size
from mio2trace.model.log import Direction, LogEventKind
from mio2trace.model.tables import by_key

MOST_CELLS = 1_000_000
"""Pairs of kernel and layer that are computed; SqueezeNet needs 10,000."""
UNKNOWN_NS = 1 << 62
ELEMENT_BYTES = 4
_Types = frozenset[str]


def place_by_names(attribution: Attribution, positions: range, direction: Direction, pass_: int) -> None:
    """Give kernels without layer to the most likely layer; kernels with a less likely layer move."""
    links, activities = attribution.links, attribution.profile.activities
    layers = attribution.net.layers if direction == "forward" else attribution.net.layers[::-1]
    kernels = [p for p in positions if activities[p].kind == "kernel" and not is_filler(attribution, p)]
    if not layers or all(links.run_of[p] != NONE for p in kernels) or len(kernels) * len(layers) > MOST_CELLS:
        return
    known, names = _Known(attribution, direction, without=positions), [activities[p].name for p in kernels]
    if sum(tells_type(name) or name in known.names for name in names) < DOUBTED * len(names):
        return  # hardly any is of a layer
    places = {layer.index: place for place, layer in enumerate(layers)}
    # Kernels without layer, or with a layer by similarity only.
    liked = {p for p in kernels if links.layer_by[p] in ("", RECURRENCE)}
    silent = [known.silent(types_of(layer.layer, layer.type)) for layer in layers]
    firsts = [1.0, *(known.begins(*pair) for pair in pairwise(names))]
    chances = in_slots(
        _fits(attribution, known, kernels, layers, direction, liked), silent, firsts, [1 - first for first in firsts],
        begun=positions.start > 0, ended=positions.stop < len(activities),
    )  # fmt: skip
    layer_of: dict[int, LayerKey] = {}
    shaky: set[int] = set()
    before = NONE
    for position, of_each in zip(kernels, chances, strict=True):
        place = int(of_each.argmax())
        chance = float(of_each[place])
        key = layers[place].index, direction
        held = attribution.layer_key(position)
        if held is not None and position not in liked:
            layer_of[position], before = held, places[held[0]]
            continue
        if held is not None and chance < SURE:
            own = [position, *_before(attribution, position, positions)]
            links.doubt_layer(own, min(WHOLE, float(of_each[places[held[0]]])))
        if chance < DOUBTED:
            continue
        layer_of[position] = key
        # If the profile lost a layer, the kernels that prepare it may be all that is left of it.
        if chance < SURE or any(one < DOUBTED for one in silent[before + 1 : place]):
            shaky.add(position)
        before = place
        if held == key:
            continue
        if held is not None:
            for one in (position, *_before(attribution, position, positions)):
                links.take_layer(one)
        run = attribution.run_for(pass_, key)
        attribution.give_layer([position], run, NAME_AND_SIZES, confidence=min(chance, WHOLE))
    launched = set(layer_of.values())
    printed = {(layer.index, direction): layer.printed_ns(direction) or 0 for layer in layers}
    unlaunched: dict[LayerKey, int] = {key: ns for key, ns in printed.items() if key not in launched}
    placed = {p for p in positions if links.run_of[p] != NONE} | layer_of.keys()
    prepared = prepares(attribution, positions, layer_of, placed, shaky, unlaunched)
    for position, (own_key, by, in_doubt) in prepared.items():
        likely = min(WHOLE, links.layer_confidence.get(by, 1.0), LIKE if in_doubt else 1.0)
        attribution.give_layer([position], attribution.run_for(pass_, own_key), NAME_AND_SIZES, confidence=likely)


def _before(attribution: Attribution, position: int, positions: range) -> list[int]:
    """Return what is in the layer of a kernel because it prepares this kernel."""
    key = attribution.layer_key(position)
    first = position
    while first > positions.start and is_filler(attribution, first - 1) and attribution.layer_key(first - 1) == key:
        first -= 1
    return list(range(first, position))


class _Known:
    """Kernels of layers of other passes, in one direction."""

    def __init__(self, attribution: Attribution, direction: Direction, without: range) -> None:
        links, net = attribution.links, attribution.net
        of_place = [types_of(layer.layer, layer.type) for layer in net.layers]
        places = {layer.index: place for place, layer in enumerate(net.layers)}
        self._named = frozenset().union(*of_place)
        self._signatures: dict[int, set[Hashable]] = defaultdict(set)
        self._begins: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._layers: Counter[_Types] = Counter()
        self._silent: Counter[_Types] = Counter()
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
            seen.add((pass_, place, name))
            self._signatures[key[0]].add(signature(activity))
            begins = before is None or before[:2] != (pass_, place)
            self._layers[of_place[place]] += begins
            if of_place[place] and of_place[place] <= NAMING:
                own[tells_type(name)] += 1
            if before is not None and before[0] == pass_:
                self._begins[before[2], name][begins] += 1
                first, last = sorted((before[1], place))
                self._silent.update(of_place[first + 1 : last])
            before = pass_, place, name
        self._with = Counter((of_place[place], name) for _, place, name in seen)
        self.names = {name for *_, name in seen}
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
        if types and types <= PASSING_ON:
            return 1 - MISSTATED
        expected = SILENT if types and types <= LAUNCHING else DOUBTED
        return (silent + expected) / (silent + self._layers[types] + 1)

    def fit(self, name: str, types: _Types, direction: Direction) -> float:
        """Return how well a kernel's name fits these types."""
        if contradicts(name, types, direction, self._named):
            return NEVER
        if not types:
            return FEW if tells_type(name) else DOUBTED  # any type may be meant
        if types <= PASSING_ON:
            return MISSTATED
        share = (self._with[types, name] + DOUBTED) / (self._layers[types] + 1)
        if share < DOUBTED and not tells_type(name) and types <= NAMING:
            return share * self._strange
        return share


def _fits(
    attribution: Attribution, known: _Known, kernels: Sequence[int], layers: Sequence[NetLayerSpec],
    direction: Direction, liked: Set[int],
) -> list[Weights]:  # fmt: skip
    """Return how well each kernel fits each layer. A kernel that is not ``liked`` fits only its known layer."""
    indexes = np.array([layer.index for layer in layers])
    # One in a hundred of 190 layers took four times as long in the warm-up as in the printed iterations.
    lasted = np.array([max(layer.printed_ns(direction) or UNKNOWN_NS, LINE_NS) for layer in layers])

    @cache
    def fit_of(name: str, own: Hashable) -> Weights:
        pairs = ((layer.index, types_of(layer.layer, layer.type)) for layer in layers)
        return np.array([max(NEVER, known.fit(name, of, direction) * known.likeness(at, own)) for at, of in pairs])

    fits = []
    for position, sized in zip(kernels, _sized(attribution, kernels, layers), strict=True):
        activity, key = attribution.profile.activities[position], attribution.layer_key(position)
        if position not in liked and key is not None:
            fits.append(np.where(indexes == key[0], 1.0, NEVER))
            continue
        fit = fit_of(activity.name, signature(activity))
        is_sized = np.isin(np.arange(len(layers)), [*sized]) & (fit > NEVER)
        if is_sized.any():
            fit = np.where(is_sized, fit, fit * FEW)
        took = (activity.end_ns or 0) - (activity.start_ns or 0)
        fits.append(fit * np.minimum(1.0, lasted / took) if took else fit)
    return fits


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


_SHARED = 2
"""The number of buffers that a net fills once, with its first layer: its input and a buffer of all convolutions."""
_OF_WARM_UP = frozenset(("forward begins", "forward ends", "backward begins"))


def place_before_iterations(attribution: Attribution) -> None:
    links, axis = attribution.links, attribution.axis
    first_iteration = next(
        (i for i, pass_ in enumerate(links.pass_of) if pass_ != NONE), len(attribution.profile.activities)
    )
    places: dict[LogEventKind, int] = {}
    for event in attribution.events:  # the first of each kind
        if axis is not None and (place := axis.event(event)) is not None:
            places.setdefault(event.kind, place)
    begins = axis.first_after(places["benchmark begins"]) if axis is not None and "benchmark begins" in places else None
    if begins is not None and (first_iteration == len(links.pass_of) or not _coarse_ns(attribution, axis)):
        first_iteration = min(first_iteration, begins)
    warm = {} if axis is None else _bounded(attribution, axis, places, first_iteration)
    for direction, positions in warm.items():
        pass_ = links.pass_id("warm-up", 0, direction)
        reference = attribution.reference(direction)
        if RECURRENCE not in attribution.without and reference:
            passes = dict.fromkeys((*DIRECTIONS, None), pass_)
            place_by_recurrence(attribution, reference, positions, passes)
        # If the end of each layer is printed, kernels also run for the printing.
        if NAME_AND_SIZES not in attribution.without and not any(e.kind == "layer ended" for e in attribution.events):
            place_by_names(attribution, positions, direction, pass_)
        links.give_pass(positions, pass_)
    kinds = {event.kind for event in attribution.events}
    if not warm and (begins is None or not kinds.isdisjoint(_OF_WARM_UP)):
        _place_by_likeness(attribution, first_iteration)
    if warm or begins is not None or (axis is None and _is_set_up(attribution, kinds, first_iteration)):
        setup = range(0, min((positions.start for positions in warm.values()), default=first_iteration))
    else:
        setup = range(0, _searched(attribution, first_iteration))
    if setup:
        links.give_pass(setup, links.pass_id("setup"))


def _is_set_up(attribution: Attribution, kinds: Set[str], limit: int) -> bool:
    """Return whether all that is before iteration 1 is set-up: the log has no warm-up, and nothing there has a pass."""
    links = attribution.links
    if "benchmark begins" not in kinds or not kinds.isdisjoint(_OF_WARM_UP) or limit >= len(links.pass_of):
        return False
    return links.iteration_of(limit) == 1 and all(pass_ == NONE for pass_ in links.pass_of[:limit])


def _searched(attribution: Attribution, limit: int) -> int:
    """Return the place behind the last search before all layers. 736 of 736 kernels of searches are in the set-up."""
    links = attribution.links
    if not attribution.net.layers:
        return 0
    limit = next((position for position in range(limit) if links.pass_of[position] != NONE), limit)
    searches = {operation.index for operation in links.operations if operation.phase == "find"}
    return next((1 + position for position in range(limit - 1, -1, -1) if links.operation_of[position] in searches), 0)


def _bounded(
    attribution: Attribution, axis: Timeline, places: Mapping[LogEventKind, int], limit: int
) -> dict[Direction, range]:
    """Return the warm-up's activities by direction, as the log's lines bound them."""
    done = places.get("forward ends", places.get("backward begins"))
    if "forward begins" not in places or (done is None and attribution.net.backward is not False):
        return {}
    first = axis.first_after(places["forward begins"])
    last = limit if done is None else axis.first_after(done + _coarse_ns(attribution, axis))
    warm: dict[Direction, range] = {"forward": range(first, max(first, min(last, limit)))}
    if "backward begins" in places:
        warm["backward"] = range(axis.first_after(places["backward begins"]), limit)
    return {direction: positions for direction, positions in warm.items() if positions}


def _coarse_ns(attribution: Attribution, axis: Timeline | None) -> int:
    """The error of a line's stamp if stamps are coarse."""
    is_coarse = axis is not None and not axis.by_line and attribution.stamp_ns > STAMP_NS
    return attribution.stamp_ns if is_coarse else 0


def _place_by_likeness(attribution: Attribution, limit: int) -> None:
    """Without lines, what runs before iteration 1 is its warm-up if it has most of its kernels."""
    activities, links = attribution.profile.activities, attribution.links
    forward = attribution.reference("forward")
    if RECURRENCE in attribution.without or not forward or not 0 < limit < len(activities):
        return
    if links.iteration_of(forward[0]) != 1 or not attribution.net.is_whole:
        return  # an iteration that the log lost may come before it
    reference = [*forward, *attribution.reference("backward")]
    pairs = matches([signature(activities[i]) for i in reference], [signature(e) for e in activities[:limit]])
    if pairs is None or 2 * len(pairs) < len(forward):
        return
    # A warm-up runs nothing else, but that it prepares memory; searches run what an iteration does, and more.
    between = range(pairs[0][1], pairs[-1][1])
    others = sum(not is_filler(attribution, position) for position in between) - len(pairs)
    if others > FEW * len(pairs):
        return
    passes = {direction: links.pass_id("warm-up", 0, direction) for direction in (*DIRECTIONS, None)}
    place_by_recurrence(attribution, reference, range(limit), passes)
    # Kernels before the first known kernel may also be set-up: no line divides them.
    first = pairs[0][1]
    if _is_prepared_as_others(attribution, [place for _, place in pairs]):
        links.doubt_layer(range(first), LIKE)
        first = 0
    for position in range(first):  # of made-up runs whose set-up writes first, 28 of 333 are the warm-up's
        links.take_layer(position)
    if 10 * len(pairs) < 9 * len(forward):
        # It may be something else; of 900 such links 95 % are right.
        links.doubt_layer((p for p in range(pairs[0][1], limit) if links.run_of[p] != NONE), UNEVEN)
    turn = next((p for p in range(limit) if links.pass_of[p] == passes["backward"]), limit)
    links.give_pass(range(turn), passes["forward"])
    links.give_pass(range(turn, limit), passes["backward"])


def _is_prepared_as_others(attribution: Attribution, known: Sequence[int]) -> bool:
    """Return whether the warm-up writes and fills as much for a later kernel named as the first ``known`` one."""
    activities = attribution.profile.activities

    def prepared(start: int, stop: int) -> tuple[int, int]:
        fills = sum(activities[place].kind == "kernel" for place in range(start, stop))
        return stop - start - fills, fills

    writes, fills = prepared(0, known[0])
    later = [
        prepared(before + 1, after)
        for before, after in pairwise(known)
        if activities[after].name == activities[known[0]].name
    ]
    return any(writes <= its_writes and fills <= its_fills + _SHARED for its_writes, its_fills in later)


COMPARED_EACH = 32
"""Comparisons per kernel; long rows of one kernel would need the square."""
_BEHIND = frozenset(("iteration", "average begins", "average iteration", "total", "benchmark ends"))


class _Iteration(msgspec.Struct, frozen=True):
    """An iteration's number and its places ``first`` to ``stop`` among all kernels."""

    number: int
    first: int
    stop: int


def place_unlogged_iterations(attribution: Attribution) -> None:
    """Label kernels beside the best known iteration, as far as they repeat it. Ranges alone show all that there is."""
    links = attribution.links
    is_ranged = not attribution.logs and bool(attribution.profile.ranges)
    if not links.runs or is_ranged or _tells_of_all(attribution):
        return
    kernels = np.flatnonzero(attribution.profile.commands.is_kernel).tolist()
    if not links.layer_confidence and (np.asarray(links.run_of)[kernels] != NONE).all():
        return  # nothing is left to say
    known = _best_known(attribution, kernels)
    if known is None:
        return
    asked_for, activities, left = attribution.iterations(), attribution.profile.activities, COMPARED_EACH * len(kernels)

    @cache
    def sign(place: int) -> Hashable:
        return signature(activities[kernels[place]])

    def repeats(first: int) -> bool:
        """Return whether the known iteration's kernels come again from ``first`` on, as far as the profile goes."""
        nonlocal left
        begin, end = max(0, -first), min(known.stop - known.first, len(kernels) - first)
        for at in range(begin, end):
            left -= 1
            if left < 0 or sign(known.first + at) != sign(first + at):
                return False
        return begin < end

    for backward in (False, True):
        for number, first in _repetitions(repeats, len(kernels), known, backward=backward):
            is_other = number < 1 if backward else asked_for is not None and number > asked_for
            if is_other or not _label(attribution, kernels, known, number, first):
                break


def place_behind_the_log(attribution: Attribution) -> None:
    """Give the activities behind the last layer line to the layers behind it, if the only iteration runs forward
    only."""
    links, activities = attribution.links, attribution.profile.activities
    if attribution.iterations() != 1 or any(event.kind in _BEHIND for event in attribution.events):
        return
    last = next((p for p in range(len(activities) - 1, -1, -1) if links.run_of[p] != NONE), NONE)
    if last == NONE or links.layer_by[last] in (RECURRENCE, DURATIONS):
        return
    pass_ = links.pass_of[last]
    if links.passes[pass_].phase != "iteration" or links.passes[pass_].direction != "forward":
        return
    left = [activities[p].name for p in range(last + 1, len(activities)) if activities[p].kind == "kernel"]
    if any(contradicts(name, frozenset(), "forward") for name in left):
        return  # it goes on backward, and with what updates the weights
    place_by_names(attribution, range(last, len(activities)), "forward", pass_)


def _tells_of_all(attribution: Attribution) -> bool:
    """Return whether all iterations are known from their first layer to their last one."""
    links, order = attribution.links, attribution.net.execution_order()
    asked_for = attribution.iterations()
    numbers = {pass_.iteration for pass_ in links.passes if pass_.phase == "iteration"}
    if asked_for is None or not order or len(numbers) < asked_for:
        return False
    ends = {(1, order[0][0].index, order[0][1]), (asked_for, order[-1][0].index, order[-1][1])}
    wanted = [("iteration", 1), ("iteration", asked_for)]
    at_ends = np.array([(pass_.phase, pass_.iteration) in wanted for pass_ in links.passes], bool)
    its = [links.runs[row] for row in np.flatnonzero(at_ends[links.runs.column("pass_")]).tolist()]
    return ends <= {(links.passes[run.pass_].iteration, run.layer_index, run.direction) for run in its}


def _best_known(attribution: Attribution, kernels: Sequence[int]) -> _Iteration | None:
    """Return the iteration with most sure kernels, then with most kernels, then the first one."""
    links = attribution.links
    wanted = [one.phase == "iteration" and one.iteration is not None and not one.repeated for one in links.passes]
    positions = np.array(kernels, np.int64)
    run_of, pass_of = np.asarray(links.run_of)[positions], np.asarray(links.pass_of)[positions]
    places = np.flatnonzero((run_of != NONE) & np.array([*wanted, False])[pass_of])
    iterations = np.array([*(one.iteration or 0 for one in links.passes), 0])[pass_of[places]]
    of_number = dict(by_key(places, iterations))
    if not of_number:
        return None
    unsure = Counter(iterations[np.isin(positions[places], [*links.layer_unsure])].tolist())
    number = max(
        of_number, key=lambda number: (len(of_number[number]) - unsure[number], len(of_number[number]), -number)
    )
    return _Iteration(number, int(of_number[number][0]), int(of_number[number][-1]) + 1)


def _repetitions(
    repeats: Callable[[int], bool], count: int, known: _Iteration, *, backward: bool
) -> Iterator[tuple[int, int]]:
    """Yield number and first place of consecutive iterations at equal distances. ``count``: of all kernels."""
    length, step = known.stop - known.first, -1 if backward else 1
    # Kernels in no layer are between two iterations: a solver's kernels, fewer than those of the layers.
    for period in range(length, 2 * length):
        at, number = known.first + step * period, known.number + step
        if not -length < at < count:
            return
        if repeats(at):
            while -length < at < count and repeats(at):
                yield number, at
                at, number = at + step * period, number + step
            return


def _label(attribution: Attribution, kernels: Sequence[int], known: _Iteration, number: int, first: int) -> bool:
    """Give kernels without layer to the layers of the known iteration; False if they are in another pass."""
    links = attribution.links
    pairs = [
        (kernels[place], kernels[place + first - known.first])
        for place in range(known.first, known.stop)
        if 0 <= place + first - known.first < len(kernels)
    ]
    elsewhere = [
        position
        for _, position in pairs
        if links.pass_of[position] != NONE
        and (links.passes[links.pass_of[position]].phase, links.iteration_of(position)) != ("iteration", number)
    ]
    # Activities that coarse bounds may have moved into the neighbouring iteration are like those of this one.
    if any(links.layer_confidence.get(position, 1.0) > DOUBTED for position in elsewhere):
        return False
    for position in elsewhere:
        links.take_layer(position)
    for like, position in pairs:
        key = attribution.layer_key(like)
        if key is None or links.run_of[position] != NONE:
            continue
        run = attribution.run_for(links.pass_id("iteration", number, key[1]), key)
        confidence = min(WHOLE, links.layer_confidence.get(like, 1.0))
        attribution.give_layer([position], run, RECURRENCE, confidence=confidence)
    return True
