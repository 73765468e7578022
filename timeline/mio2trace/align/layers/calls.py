"""Layers by calls, if nothing else bounds them but ``Iteration: K`` lines (alignment-internals.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise, starmap

import msgspec
import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.engine import Weights, in_slots
from mio2trace.align.layers.net import CALLING, NetLayerSpec, may_call, types_of
from mio2trace.align.links import DOUBTED, NONE, SURE
from mio2trace.align.rates import (
    BROKEN,
    LATE,
    MISSTATED,
    MOST_STRAY,
    NEVER,
    SILENT,
    UNLOGGED,
    WHOLE,
)
from mio2trace.evidence import DURATIONS, ORDER, RECURRENCE
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import by_key
from mio2trace.ops.operation import Operation

MOST_PASSES = 16
"""Passes between two lines that bound them; more lost lines show nothing."""
MOST_CELLS = 4_000_000
"""Pairs of call and layer that are computed, without repeated passes; a pass of ResNet-50's training needs 200,000."""


class Slot(msgspec.Struct, frozen=True):
    """A layer in pass number ``pass_``; layer None: after the last layer of the pass."""

    pass_: int
    layer: NetLayerSpec | None = None
    direction: Direction = "forward"


class Found(msgspec.Struct, frozen=True):
    """The most likely slot of a call and its probability; the next best layer and its probability."""

    slot: Slot
    chance: float
    next_layer: str = ""
    next_chance: float = 0.0


Stretch = tuple[tuple[int | None, ...], int, int | None]
"""The iterations between two lines, and these lines; None: the end of the log. First iteration None: its begin is
lost."""


def place_by_calls(attribution: Attribution) -> None:
    """Give the kernels of each call in an iteration to its most likely layer."""
    links = attribution.links
    if not links.has_operations or not attribution.net.layers:
        return
    bounded = _bounded(attribution)
    found_of: dict[int, tuple[int, Found]] = {}
    for log in attribution.logs:
        stretches = [one for one in _stretches(log, attribution.iterations()) if not bounded.issuperset(one[0])]
        calls = _calls(attribution, log) if stretches else []
        if not calls:
            continue
        layers = _Layers(attribution, log, calls)
        lines = [call.line for call in calls]
        for iterations, after, before in stretches:
            own = calls[bisect_left(lines, after) : None if before is None else bisect_left(lines, before)]
            bounds = iterations[0] is not None, before is not None
            for call, found in zip(own, layers.of(own, len(iterations), bounds), strict=True):
                iteration = None if found is None else iterations[found.slot.pass_]
                if found is not None and iteration is not None and iteration not in bounded:
                    found_of[call.index] = iteration, found
    if found_of:
        _give(attribution, found_of)


def _bounded(attribution: Attribution) -> set[int | None]:
    """Return iterations that marks or lines bound, unless most of their links are uncertain."""
    links = attribution.links
    rows = np.flatnonzero(links.layer_by.pool.where(lambda word: word not in ("", DURATIONS, RECURRENCE)))
    unsure = np.isin(rows, [*links.layer_unsure]).astype(np.int64)
    of_pass = by_key(unsure, np.asarray(links.pass_of)[rows])
    return {links.passes[pass_].iteration for pass_, its in of_pass if 2 * its.sum() < len(its)}


def _calls(attribution: Attribution, log: FrameworkLog) -> list[Operation]:
    """Return the log's calls by line. If several threads called, return those of the thread that printed the layers."""
    calls = [one for one in attribution.operations if one.source == log.source and one.line]
    calls.sort(key=lambda one: one.line)
    threads = {one.thread for one in calls}
    if len(threads) > 1:
        own = threads.intersection(log.threads)
        calls = [one for one in calls if one.thread in own] if len(own) == 1 else []
    return calls


def _stretches(log: FrameworkLog, asked_for: int | None) -> Iterator[Stretch]:
    """Yield the stretches between ``Iteration: K`` lines. ``asked_for``: the number of iterations."""
    ended = sorted(
        (event.line, event.number) for event in log.events if event.kind == "iteration" and event.number and event.line
    )
    first = ended[0][0] if ended else None
    before = [event for event in log.events if first is None or event.line < first]
    begins = [event.line for event in before if event.kind in ("testing", "benchmark begins")]
    line = max(begins or (event.line for event in before), default=0)
    number, begun = 0, bool(begins)
    for end, ends in ended:
        if not begun:
            yield (None, ends), line, end
        elif number < ends <= number + MOST_PASSES:
            yield tuple(range(number + 1, ends + 1)), line, end
        line, number, begun = end, ends, True
    rest = min(asked_for or number + 1, number + MOST_PASSES)
    if begun and rest > number:
        average = min((event.line for event in log.events if event.kind == "average begins"), default=None)
        yield tuple(range(number + 1, rest + 1)), line, average


class _Layers:
    """The net in order of execution, and how well a call fits each layer."""

    def __init__(self, attribution: Attribution, log: FrameworkLog, calls: Sequence[Operation]) -> None:
        net = attribution.net
        backward = net.backward or any((call.direction or "").startswith("backward") for call in calls)
        order = msgspec.structs.replace(net, backward=backward).execution_order()
        self._pass = [Slot(0, *one) for one in order] + [Slot(0)]
        self._types = {layer.index: types_of(layer.layer, layer.type) for layer in net.layers}
        self._silent = [self._silence(slot) for slot in self._pass]
        self._searched, output = _set_up(log, calls, {layer.layer: layer.index for layer in net.layers})
        types = self._types
        odd = {place for place, own in types.items() if own and not may_call("conv", own)}
        places = [place for its in self._searched.values() for place in its]
        # If layers of other types seem to have searched, one of two streams was buffered, and its lines are late.
        self._most = 1.0 if sum(place in odd for place in places) <= MOST_STRAY * len(places) else WHOLE
        if self._most < 1:
            self._searched, output = {}, {}
        # If only a few do, the line of the next layer is lost.
        self._searched = {posed: its for posed, its in self._searched.items() if its.isdisjoint(odd)}
        output = {place: shape for place, shape in output.items() if place not in odd}
        output |= {layer.index: _bare(layer.output.split("x")) for layer in net.layers if layer.output}
        self._outputs = [output.get(slot.layer.index) if slot.layer else None for slot in self._pass]
        self._fits: dict[object, Weights] = {}
        self._known: dict[object, list[Found | None]] = {}
        self._left = MOST_CELLS

    def of(self, calls: Sequence[Operation], passes: int, bounds: tuple[bool, bool]) -> list[Found | None]:
        """Return the layer of each call. ``bounds``: whether the begin of the first pass is known, and the last end."""
        key = passes, bounds, tuple(id(call.facts) for call in calls)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._solved(calls, passes, *bounds) or [None] * len(calls)
        return known

    def _solved(self, calls: Sequence[Operation], passes: int, begun: bool, ended: bool) -> list[Found | None]:
        self._left -= len(calls) * len(self._pass) * passes
        if self._left < 0:
            return []
        slots = [msgspec.structs.replace(slot, pass_=number) for number in range(passes) for slot in self._pass]
        fits = [np.tile(self._fit(call), passes) for call in calls]
        entered = [MISSTATED if call.primitive == "bias" and call.direction == "forward" else 1.0 for call in calls]
        again = [1.0, *starmap(_again, pairwise(calls))]
        solved = in_slots(fits, self._silent * passes, entered, again, begun=begun, ended=ended)
        # Calls of a second thread that runs the same net are those of each layer again.
        runs = [
            (at, id(call.facts))
            for at, call in zip(solved.argmax(1).tolist(), calls, strict=True)
            if call.phase == "run"
        ]
        if len(runs) - len({*runs}) > UNLOGGED * len(runs) or solved.sum() < (1 - UNLOGGED) * len(calls):
            return []
        return [_found(slots, chances, self._most) for chances in solved]

    def _silence(self, slot: Slot) -> float:
        if slot.layer is None:
            return 1.0
        types = self._types[slot.layer.index]
        if not types:
            return UNLOGGED
        return 1.0 if types.isdisjoint(CALLING) else SILENT

    def _fit(self, call: Operation) -> Weights:
        places = self._searched.get(_problem(call)) if call.primitive == "conv" else None
        key = _sort(call), call.direction, call.output, None if places is None else frozenset(places)
        if key not in self._fits:
            fits = [self._fit_of(call, places, slot) for slot in self._pass]
            if places is None and call.output:
                possible, pairs = (None, _bare(call.output)), zip(fits, self._outputs, strict=True)
                fits = [fit if output in possible else fit * MISSTATED for fit, output in pairs]
            self._fits[key] = np.array(fits)
        return self._fits[key]

    def _fit_of(self, call: Operation, places: AbstractSet[int] | None, slot: Slot) -> float:
        """Return how well a call fits a layer. ``places``: the layers that searched for its problem, if known."""
        direction = call.direction
        if slot.layer is None:
            return BROKEN if direction or places is not None else 1.0
        if direction is not None and not direction.startswith(slot.direction):
            return NEVER
        if places is not None:
            return 1.0 if direction is not None and slot.layer.index in places else NEVER
        types = self._types[slot.layer.index]
        if types and not may_call(_sort(call), types):
            return NEVER
        # Calls without a direction are mostly the solver's, behind the backward pass.
        return MISSTATED if direction is None and slot.direction == "backward" else 1.0


def _found(slots: Sequence[Slot], chances: Weights, most: float) -> Found | None:
    """Return the most likely slot; None if it has no layer or is unlikely. Changes ``chances``."""
    place = int(chances.argmax())
    slot, chance = slots[place], min(most, float(chances[place]))
    if slot.layer is None or chance < DOUBTED:
        return None
    chances[place] = 0.0
    place = int(chances.argmax())
    layer, next_chance = slots[place].layer, float(chances[place])
    return Found(slot, chance, layer.layer if layer and next_chance else "", next_chance)


def _set_up(
    log: FrameworkLog, calls: Sequence[Operation], index_of: Mapping[str, int]
) -> tuple[dict[object, set[int]], dict[int, tuple[str, ...]]]:
    """Return the layers that searched for each problem during the set-up, and the shapes of their outputs."""
    searched: dict[object, set[int]] = {}
    output: dict[int, tuple[str, ...]] = {}
    lines = [event.line for event in log.events]
    for call in calls:
        place = bisect_left(lines, call.line) - 1
        event = log.events[place] if place >= 0 else None
        if event is None or event.kind != "setting up" or event.text not in index_of or call.primitive != "conv":
            continue
        if call.phase == "run":
            continue  # an iteration's, after lines that are lost
        index = index_of[event.text]
        searched.setdefault(_problem(call), set()).add(index)
        if call.output:
            output[index] = _bare(call.output)
    return searched, output


def _again(before: Operation, call: Operation) -> float:
    """Return how well a call fits the layer of the call before it (1100 such calls: alignment-internals.md)."""
    if before.facts is call.facts and call.phase == "run":
        return MISSTATED
    if before.primitive == call.primitive == "conv" and before.direction == call.direction:
        return 1.0 if _problem(before) == _problem(call) else BROKEN
    same = before.primitive == call.primitive or {before.primitive, call.primitive} == {"conv", "bias"}
    return 1.0 if same else BROKEN


def _sort(call: Operation) -> str:
    """Return the primitive; the mode instead, if the call is recurrent and its mode is known."""
    return call.mode or call.primitive if call.primitive == "rnn" else call.primitive


def _problem(call: Operation) -> object:
    return call.input, call.weights, call.output


def _bare(shape: Sequence[object]) -> tuple[str, ...]:
    """Return sizes as text without ones at the end: an inner product has no rows and columns."""
    end = len(shape)
    while end > 1 and str(shape[end - 1]) == "1":
        end -= 1
    return tuple(map(str, shape[:end]))


def _give(attribution: Attribution, found_of: Mapping[int, tuple[int, Found]]) -> None:
    """Give each call's kernels to its layer, and what is between two kernels of one layer."""
    links = attribution.links
    for positions in attribution.of_queues().values():
        pending: list[int] = []
        before = NONE
        for position in positions:
            index = links.operation_of[position]
            if index == NONE:
                pending.append(position)
                continue
            run = NONE
            if index in found_of:
                iteration, found = found_of[index]
                layer, direction = found.slot.layer, found.slot.direction
                assert layer is not None
                pass_ = links.pass_id("iteration", iteration, direction)
                run = attribution.run_for(pass_, (layer.index, direction))
                at_most = LATE if attribution.late else 1.0
                likely = min(found.chance, at_most, links.operation_confidence.get(position, 1.0))
                if likely >= DOUBTED and (
                    links.run_of[position] == NONE or links.layer_confidence.get(position, 1.0) < likely
                ):
                    if links.run_of[position] != NONE:
                        links.take_layer(position)
                    attribution.give_layer([position], run, None, confidence=likely)
                    if found.next_layer and likely < SURE:
                        links.give_next_layer(position, found.next_layer, found.next_chance)
            if run != NONE and run == before:
                between = [one for one in pending if links.run_of[one] == NONE]
                links.give_layer(between, run, ORDER, confidence=WHOLE)
            before, pending = run, []
