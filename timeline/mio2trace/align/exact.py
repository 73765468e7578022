"""Links that the profile itself states: the operation that was open at a launch, the layer around it, a framework's
ops.

Kernels of a graph are in no operation, because the captured call is not open any more (rocm-profiles.md 1, 8)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.layers.repetitions import matches
from mio2trace.align.links import DOUBTED, NONE, WORDS, LayerRun, Links, neighbours
from mio2trace.align.ranges import (
    MarkedStep,
    OpenRanges,
    Sequenced,
    Span,
    have_few,
    is_step,
    launch_times,
    places_among,
)
from mio2trace.evidence import BOUNDARY_STAMPS, CORRELATION, RANGE, SEQUENCE, Evidence
from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.model.log import Direction
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Execution, Node, Profile, Range
from mio2trace.model.tables import NEVER, NO, Numbers, by_key
from mio2trace.notes import Notes
from mio2trace.ops.aten import ROWS
from mio2trace.ops.families.collective import is_annotation
from mio2trace.ops.operation import Operation
from mio2trace.ops.problem import DATA, WEIGHTS
from mio2trace.ops.ranges import MODULE, is_library_call, is_module, is_training, operations_of_ranges, part_of_step
from mio2trace.ops.values import Shape, product
from mio2trace.patterns import late

_OF_MIOPEN = frozenset(name for name, row in ROWS.items() if row.miopen)


def logged_ops(ops: Sequence[Operation], logged: Sequence[Operation]) -> tuple[dict[int, int], int]:
    """Match PyTorch's ``ops`` with the ``logged`` calls of MIOpen, both by time. Return places of calls by places of
    ops, and the number of ops with several possible calls."""
    ours = [place for place, one in enumerate(ops) if one.api in _OF_MIOPEN and one.input]
    primitives = {ops[place].primitive for place in ours}
    executed = [place for place, one in enumerate(logged) if one.phase == "run" and one.input]
    calls = _data_first([place for place in executed if logged[place].primitive in primitives], logged)
    ours_by, calls_by = [_op_key(ops[place]) for place in ours], [_op_key(logged[place]) for place in calls]
    first, last = matches(ours_by, calls_by) or [], matches(ours_by[::-1], calls_by[::-1]) or []
    mirrored = {(len(ours) - 1 - op, len(calls) - 1 - call) for op, call in last}
    agreed = [pair for pair in first if pair in mirrored]
    return {ours[op]: calls[call] for op, call in agreed}, len(first) - len(agreed)


def _data_first(places: Sequence[int], logged: Sequence[Operation]) -> list[int]:
    """Order both gradients of a convolution as PyTorch does: the data's first."""
    ordered = list(places)
    for at in range(len(ordered) - 1):
        one, other = logged[ordered[at]], logged[ordered[at + 1]]
        if (one.direction, other.direction) == (WEIGHTS, DATA) and _shapes(one) == _shapes(other):
            ordered[at], ordered[at + 1] = ordered[at + 1], ordered[at]
    return ordered


def _shapes(operation: Operation) -> Hashable:
    return operation.primitive, operation.input, operation.weights, operation.output


def _op_key(operation: Operation) -> Hashable:
    if operation.primitive == "conv":
        return operation.direction, _shapes(operation)
    return operation.primitive, operation.direction, operation.input


_CHANNELS_LAST = late(r"nhwc|ndhwc|kernel_grouped_conv|kernel_batched_gemm", re.IGNORECASE)
_FINISHING = ("cast", "col2im", "reduce")
"""Helpers that belong to the kernel before them."""
_UNKNOWN = KernelName(role="")


def split(names: Sequence[str], data: Operation) -> tuple[list[int], list[int]] | None:
    """Divide an op's kernels (names in launch order) into both gradients; None if nothing shows which are whose."""
    meanings = [kernel_name(name) or _UNKNOWN for name in names]
    own = [place for place, meaning in enumerate(meanings) if meaning.primitive != "bias"]
    mains = [place for place in own if meanings[place].role == "main"]
    for first, second, tensor in ((DATA, WEIGHTS, data.input), (WEIGHTS, DATA, data.weights)):
        last = _last_of(first, second, [names[place] for place in mains], [meanings[place] for place in mains])
        if last is not None:
            behind = names[mains[last] + 1]
            turns = "CNHW2NCHW" in behind or _turns_back(names[mains[last]], data.layout or "", tensor)
            end = _end(meanings[: mains[last + 1]], mains[last], first, turns)
            parts = [place for place in own if place < end], [place for place in own if place >= end]
            return parts if first == DATA else parts[::-1]
    return None


def _may(meaning: KernelName, direction: OperationDirection) -> bool:
    return not meaning.directions or direction in meaning.directions


def _last_of(
    first: OperationDirection, second: OperationDirection, names: Sequence[str], meanings: Sequence[KernelName]
) -> int | None:
    """Return the last main kernel of the ``first`` gradient; None if impossible or ambiguous."""
    possible = [
        last
        for last in range(len(names) - 1)
        if all(_may(meaning, first) for meaning in meanings[: last + 1])
        and all(_may(meaning, second) for meaning in meanings[last + 1 :])
    ]
    if len(possible) > 1:  # one gradient may be several products: they are of one name
        possible = [last for last in possible if names[last] != names[last + 1]]
    return possible[0] if len(possible) == 1 else None


def _end(meanings: Sequence[KernelName], last: int, first: OperationDirection, turns: bool) -> int:
    """Return the first kernel behind ``last`` that prepares the other gradient: it fills or transposes again."""
    at = last + 1
    while at < len(meanings):
        meaning = meanings[at]
        if not _may(meaning, first):
            break
        if meaning.role == "transpose" and turns:
            turns = False
        elif meaning.role not in _FINISHING:
            break
        at += 1
    return at


def _turns_back(main: str, layout: str, tensor: Shape) -> bool:
    """Return whether the result has another layout than the tensor, and the layouts differ for these sizes."""
    if not _CHANNELS_LAST.search(main) or layout.endswith("C") or len(tensor) < 3:
        return False
    return tensor[1] > 1 and product(tensor[2:]) > 1


def forward_ops_of(profile: Profile) -> tuple[Numbers, frozenset[int]]:
    """Return the range of the forward op of each range, else `NONE`; and the ranges for which it is ambiguous.

    It is the last one of the same number that began before. If another thread also uses the number, none is sure."""
    ranges = profile.ranges
    parts = {text: part_of_step(text) for text in {made.text for made in ranges}}
    places = [at for at, made in enumerate(ranges) if made.sequence is not None and made.kind == "operator"]
    ops = [ranges[at] for at in places]
    number, start, thread = (
        np.array(column, np.int64)
        for column in ([one.sequence for one in ops], [one.start_ns for one in ops], [one.thread for one in ops])
    )
    is_forward = np.array([parts[made.text] != "backward" for made in ops], bool)
    place = np.array(places, np.int64)
    order = np.lexsort((place, is_forward, start, number))
    place, number, thread = place[order], number[order], thread[order]
    forward, backward = np.flatnonzero(is_forward[order]), np.flatnonzero(~is_forward[order])
    first = np.searchsorted(number[forward], number[forward])
    others = np.cumsum(thread[forward] != thread[forward[first]])
    last = np.searchsorted(forward, backward) - 1
    backward, last = backward[last >= 0], last[last >= 0]
    is_same = number[forward[last]] == number[backward]
    backward, last = backward[is_same], last[is_same]
    of = np.full(len(ranges), NONE)
    of[place[backward]] = place[forward[last]]
    return of, frozenset(place[backward[others[last] > others[first[last]]]].tolist())


_DIRECTIONS: dict[str, Direction] = {
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward",
}  # fmt: skip
_SET_UP = -1
"""The number of the iteration before the first one."""
_SPARSE = late(r"(?:cu|roc|hip)sparse::|\bcsrm[mv]", re.ASCII)
_NO_LAYERS, _COMPILING = ("aten::", "## Call CompiledFxGraph "), "(dynamo_timed)"


class Calls(msgspec.Struct, frozen=True):
    """The operations of a run, and the operation of each range (`NONE`: none).

    ``weights_of``: the operation of the weights' gradient by that of the data's, if a range is both."""

    operations: tuple[Operation, ...]
    of_range: tuple[int, ...]
    weights_of: Mapping[int, int] = {}
    opened: OpenRanges | None = None


def calls_of(profile: Profile, logged: Sequence[Operation], behind: int, notes: Notes) -> Calls:
    """Merge the log's operations with those of ranges by the longest common subsequence.

    Operations that only ranges state get indexes from ``behind`` on."""
    if not profile.ranges:
        return Calls(tuple(logged), ())
    opened = OpenRanges(profile)
    ranged, places = operations_of_ranges(profile, opened.launching(profile), _sparse(profile, opened))
    of_range = [NONE] * len(profile.ranges)
    operations = list(logged)
    logged_as = _logged_as(ranged, logged, notes) if ranged and logged else {}
    weights_of: dict[int, int] = {}
    for number, (operation, place) in enumerate(zip(ranged, places, strict=True)):
        if number in logged_as:
            index = operations[logged_as[number]].index
        else:
            index, behind = behind, behind + 1
            operations.append(msgspec.structs.replace(operation, index=index))
        if of_range[place] == NONE:
            of_range[place] = index
        else:
            weights_of[of_range[place]] = index
    return Calls(tuple(operations), tuple(of_range), weights_of, opened)


def _sparse(profile: Profile, opened: OpenRanges) -> set[int]:
    """Return the ranges that launched products of sparse matrices, and the ranges around these."""
    is_sparse = profile.commands.name.where(lambda name: _SPARSE.search(name) is not None)
    places = {*opened.range_of[is_sparse].tolist()} - {NONE}
    return places.union(*(opened.around(place) for place in places))


def _logged_as(ranged: Sequence[Operation], logged: Sequence[Operation], notes: Notes) -> dict[int, int]:
    if not any(one.api in ROWS or one.is_plain for one in ranged):  # calls of the library, no ops
        return dict(matches([_key(one) for one in ranged], [_key(one) for one in logged]) or ())
    logged_as, ambiguous = logged_ops(ranged, logged)
    if ambiguous:
        notes.remark("op that may be one of several calls in MIOpen's log: not joined with it", count=ambiguous)
    elif not logged_as:
        notes.add("no op of the profile is a call in MIOpen's log, by order and shapes: both are shown, not joined")
    return logged_as


def _key(operation: Operation) -> Hashable:
    return operation.api, operation.direction, operation.input, operation.weights, operation.output


def link_by_ranges(attribution: Attribution) -> None:
    profile, links = attribution.profile, attribution.links
    if not profile.ranges or profile.framework.nodes:  # which says itself what each op is of: `framework_ops`
        return
    without = attribution.without
    opened = attribution.opened or OpenRanges(profile)
    operation_of = opened.nearest(attribution.operation_of_range or [NONE] * len(profile.ranges))[opened.range_of]
    is_operator = np.array([*(made.kind == "operator" for made in profile.ranges), False])[opened.range_of]
    is_weights = np.isin(operation_of, [*attribution.weights_of])
    kinds: tuple[tuple[Evidence, NDArray[np.bool_]], ...] = (
        (CORRELATION, opened.stated & is_operator),
        (RANGE, ~(opened.stated & is_operator)),
    )
    for by, is_by in kinds:
        if by in without:
            continue
        rows = np.flatnonzero((operation_of != NONE) & ~is_weights & is_by)
        links.give_operations(rows, operation_of[rows], by)
        _give_gradients(attribution, np.flatnonzero(is_weights & is_by), operation_of, by)
    del operation_of, is_operator, is_weights, kinds  # of ten million commands each takes 80 MB, or 10
    if RANGE not in without:
        _Layers(attribution, opened).place()


def _give_gradients(attribution: Attribution, rows: Numbers, operation_of: Numbers, by: Evidence) -> None:
    links, names = attribution.links, attribution.profile.commands.name
    operations = {operation.index: operation for operation in attribution.operations} if len(rows) else {}
    for index, positions in by_key(rows, operation_of[rows]):
        parts = split([names.values[code] for code in names.codes[positions].tolist()], operations[index])
        if parts is None:
            links.give_operation(positions.tolist(), index, by, confidence=DOUBTED)
            continue
        links.give_operation(positions[parts[0]].tolist(), index, by)
        links.give_operation(positions[parts[1]].tolist(), attribution.weights_of[index], by)


def number_steps_as_the_log(attribution: Attribution) -> None:
    """Number steps as the log numbers iterations: by the iteration of most of a step's kernels."""
    links, steps = attribution.links, attribution.steps
    if not steps or links.layer_by.used <= {"", RANGE}:
        return
    called = attribution.profile.commands.host_start_ns
    run_of, pass_of = np.asarray(links.run_of), np.asarray(links.pass_of)
    place, is_inside = places_among(steps, called)
    numbers = np.array([step.number for step in steps])[place]
    iterations = np.array([*(NONE if one.iteration is None else one.iteration for one in links.passes), NONE])[pass_of]
    is_by_log = is_inside & (run_of != NONE) & (iterations != NONE) & (links.layer_by.column != WORDS.index(RANGE))
    is_unplaced = is_inside & (run_of == NONE)
    before, after = (np.append(pass_of, NONE)[rows] for rows in neighbours(run_of != NONE))
    inside = np.where(before == after, before, NONE)
    for number, positions in by_key(np.flatnonzero(is_by_log), numbers[is_by_log]):
        ((iteration, _),) = Counter(iterations[positions].tolist()).most_common(1)
        if not iteration:  # the warm-up is no step
            continue
        unplaced = np.flatnonzero(is_unplaced & (numbers == number))
        for pass_, rows in by_key(unplaced, inside[unplaced]):
            links.move_pass(rows, links.pass_id("iteration", iteration) if pass_ == NONE else pass_)


class _Layers:
    """Layers that ranges of the profile show: modules, ranges of the user, else blocks by the order of the ops."""

    def __init__(self, attribution: Attribution, opened: OpenRanges) -> None:
        self._attribution, self._profile, self._links = attribution, attribution.profile, attribution.links
        self._opened = opened
        self._ranges = ranges = attribution.profile.ranges
        # of framework's ops there are very many, and of texts there are few
        named = [(place, (made.kind, made.text)) for place, made in enumerate(ranges) if made.kind != "operator"]
        layers = layers_of_ranges([ranges[place] for place, _ in named], attribution.steps)
        self._layers = {place: layers[key] for place, key in named if key in layers}
        marks = {(step.start_ns, step.end_ns) for step in attribution.steps}
        inner = {
            place: layer
            for place, layer in self._layers.items()
            if (ranges[place].start_ns, ranges[place].end_ns) not in marks
        }
        self._layers = inner or self._layers
        self._sequenced = Sequenced()
        self._given: list[tuple[Numbers, int]] = []
        self._around: dict[int, Range] = {}
        """By unmarked step the range around all of it."""
        # A log that names layers knows them better, and numbers its iterations in its own way.
        if SEQUENCE not in attribution.without and not any(log.layers for log in attribution.logs):
            from mio2trace.align.layers.by_sequence import layers_by_sequence

            annotations = {place: ranges[place] for place in self._layers}
            self._sequenced = layers_by_sequence(attribution.profile, opened, attribution.steps, annotations)
            self._layers |= {place: (made.name, "forward") for place, made in self._sequenced.executions.items()}

    def place(self) -> None:
        """Put each activity into its innermost layer; launches of the backward pass into the forward op's."""
        ranges, opened, links = self._ranges, self._opened, self._links
        own = np.full(len(ranges) + 1, NONE)
        nowhere = self._sequenced.nowhere
        places = [*self._layers, *nowhere]
        own[places] = places
        for place, first in self._sequenced.first_of.items():
            own[place] = first
        of, unsure = forward_ops_of(self._profile)
        of = np.append(of, NONE)
        layer_of = opened.nearest(own[:-1])[of]
        is_gradient = (of != NONE) & (own == NONE) & (layer_of != NONE) & ~np.isin(layer_of, [*nowhere])
        innermost = opened.nearest(np.where(is_gradient, np.arange(len(own)), own)[:-1])[opened.range_of]
        placed = np.flatnonzero((innermost != NONE) & ~np.isin(innermost, [*nowhere]))
        placed = placed.astype(np.int32)  # each column of ten million commands takes 80 MB
        around = innermost[placed]
        del innermost
        is_own = own[around] != NONE
        # of its launch; a range may reach over several steps
        width = len(links.passes) + 1
        around *= width
        around += np.asarray(links.pass_of)[placed]
        around += 1
        backward: dict[tuple[int, float, int], list[tuple[Numbers, Range]]] = {}
        for key, rows in by_key(placed[~is_own], around[~is_own]):
            place, pass_ = key // width, key % width - 1
            of_layer = int(layer_of[place]), DOUBTED if place in unsure else 1.0, pass_
            backward.setdefault(of_layer, []).append((rows, ranges[place]))
        if not is_own.all():
            placed, around = placed[is_own], around[is_own]
        parts_of_own = by_key(placed, around)
        del placed, around, is_own
        used = {(key // width, key % width - 1): rows for key, rows in parts_of_own}
        executed = {place for place, _ in used} | {place for place, _, _ in backward}
        in_order = sorted(executed, key=lambda place: ranges[place].start_ns)
        self._index_of = self._net([self._layers[place] for place in in_order], bool(backward))
        begins = [] if self._attribution.steps else self._begins(in_order)
        iteration_of = self._iterations(begins, in_order)
        for place, pass_, iteration, positions, times in self._by_step(used, begins, iteration_of):
            _, direction = self._layers[place]
            self._give(positions, place, direction, self._pass(pass_, iteration, direction), times)
        by_start = sorted(backward.items(), key=lambda item: min(made.start_ns for _, made in item[1]))
        for (place, likely, pass_), gradient in by_start:
            times = min(made.start_ns for _, made in gradient), max(0, *(made.end_ns for _, made in gradient))
            rows = np.sort(np.concatenate([rows for rows, _ in gradient]))
            iteration, parts = iteration_of[place], [(iteration_of[place], rows)]
            if iteration == _SET_UP and pass_ == NONE:  # the range reaches over the steps
                parts = self._split(rows, begins, iteration)
            for number, positions in parts:
                self._give(positions, place, "backward", self._pass(pass_, number, "backward"), times, likely)
        if self._given:
            given, numbers = [rows for rows, _ in self._given], [number for _, number in self._given]
            links.give_layers(np.concatenate(given), np.repeat(numbers, [*map(len, given)]), RANGE)
        if not self._attribution.steps:
            self._place_during(begins)
            self._place_between(in_order)
            self._place_behind(begins)

    def _give(
        self, positions: Numbers, place: int, direction: Direction | None, pass_: int, times: tuple[int, int],
        likely: float = 1.0,
    ) -> None:  # fmt: skip
        made, (name, _) = self._sequenced.executions.get(place), self._layers[place]
        run = LayerRun(
            layer=name, layer_index=self._index_of[name], direction=direction, pass_=pass_,
            host_start_ns=times[0], host_end_ns=times[1],
        )  # fmt: skip
        number = self._links.runs.add(run)
        if made is not None:
            self._links.give_layer(positions.tolist(), number, SEQUENCE, confidence=min(likely, made.confidence))
        elif likely < 1:
            self._links.give_layer(positions.tolist(), number, RANGE, confidence=likely)
        else:
            self._given.append((positions, number))

    def _by_step(
        self, used: Mapping[tuple[int, int], Numbers], begins: Sequence[int], iteration_of: Mapping[int, int | None]
    ) -> Iterator[tuple[int, int, int | None, Numbers, tuple[int, int]]]:
        """Yield (range, pass of the launch, iteration, positions, host times) of each execution, one per step."""
        ranges, commands = self._ranges, self._profile.commands
        several = {place for place, count in Counter(place for place, _ in used).items() if count > 1}
        for place, pass_ in sorted(used, key=lambda key: (ranges[key[0]].start_ns, key[1])):
            begun_in = iteration_of[place]
            parts = [(begun_in, used[place, pass_])]
            if begins and pass_ == NONE and begun_in is not None:
                parts = self._split(used[place, pass_], begins, begun_in)
            made = self._sequenced.executions.get(place, ranges[place])
            for number, positions in parts:
                times = made.start_ns, made.end_ns
                if place in several or len(parts) > 1:
                    called = positions[commands.call[positions] != NONE]
                    starts, ends = commands.host_start_ns[called], commands.host_end_ns[called]
                    starts = np.where((starts == NO) | (starts == 0), times[0], starts)
                    if len(called):
                        times = int(starts.min()), max(0, int(ends.max()))
                yield place, pass_, number, positions, (times[0], max(times))

    def _split(self, positions: Numbers, begins: Sequence[int], begun_in: int) -> list[tuple[int | None, Numbers]]:
        """Return the positions by the unmarked step that launched them; ``begun_in`` if no launch is known."""
        launched = self._profile.commands.host_start_ns[positions]
        numbers = np.searchsorted(begins, launched, "right")
        numbers = np.where(launched == NO, begun_in, np.where(numbers == 0, _SET_UP, numbers))
        return [*by_key(positions, numbers)]

    def _pass(self, of_launch: int, iteration: int | None, direction: Direction | None) -> int:
        """Return the pass of an execution: the step that launched its commands, else the step in which its range
        begins."""
        links = self._links
        if of_launch != NONE:
            made = links.passes[of_launch]
            if made.phase != "iteration":
                return of_launch
            iteration = made.iteration
        if iteration is None:
            return links.pass_id("between")
        if iteration == _SET_UP:
            return links.pass_id("setup")
        return links.pass_id("iteration", iteration, direction)

    def _net(self, executed: Sequence[tuple[str, Direction | None]], backward: bool) -> dict[str, int]:
        """Return the index of each layer: the log's if it names layers, else by order of execution."""
        index_of = {layer.layer: layer.index for layer in self._attribution.net.layers}
        new = [name for name in dict.fromkeys(name for name, _ in executed) if name not in index_of]
        first = max(index_of.values(), default=-1) + 1
        index_of |= {name: first + number for number, name in enumerate(new)}
        if new:
            backward = backward or any(direction == "backward" for _, direction in executed)
            within = {made.name: made.within for made in self._sequenced.executions.values()}
            named = [(index_of[name], name, within.get(name, "")) for name in new]
            self._attribution.net = self._attribution.net.with_layers(named, backward=backward)
        return index_of

    def _begins(self, in_order: Sequence[int]) -> list[int]:
        """Return when each unmarked step began, by executions of the first layer; empty if there are none."""
        sequenced = sorted(
            (made.start_ns, made.name, place) for place, made in self._sequenced.executions.items() if not made.again
        )
        if sequenced:
            return self._with_ranges_around([place for _, name, place in sequenced if name == sequenced[0][1]])
        if not in_order:
            return []
        first = self._layers[in_order[0]]
        firsts = self._first_in_model([place for place in in_order if self._layers[place] == first])
        starts = [self._ranges[place].start_ns for place in firsts]
        are_steps = any(self._layers[place][1] for place in in_order) or self._hold_launches(in_order, starts)
        return starts if are_steps else []

    def _first_in_model(self, firsts: Sequence[int]) -> list[int]:
        """Drop executions but the first within one call of the outermost module: a model may run a part many times."""
        ranges, opened, part = self._ranges, self._opened, self._ranges[firsts[-1]].text
        modules = {
            place: [one for one in opened.around(place) if is_module(ranges[one]) and ranges[one].text != part]
            for place in firsts
        }
        if not modules[firsts[-1]]:
            return [*firsts]
        model = ranges[modules[firsts[-1]][-1]].text
        calls = [next((one for one in modules[place] if ranges[one].text == model), NONE) for place in firsts]
        return [place for place, call, last in zip(firsts, calls, [None, *calls], strict=False) if call != last]

    def _with_ranges_around(self, firsts: Sequence[int]) -> list[int]:
        """Return when steps began whose first ops are ``firsts``: with the outermost user range that holds no other."""
        ranges = self._ranges
        begins = [ranges[place].start_ns for place in firsts]
        for number, (place, last, next_) in enumerate(zip(firsts, [-1, *begins], [*begins[1:], NEVER], strict=False)):
            for around in self._opened.around(place):
                made = ranges[around]
                if made.start_ns <= last or next_ <= made.end_ns:
                    break
                if around in self._layers:
                    begins[number], self._around[number + 1] = made.start_ns, made
        return begins

    def _iterations(self, begins: Sequence[int], in_order: Sequence[int]) -> dict[int, int | None]:
        """Return the iteration in which each range began: that of the marked step, else by ``begins``."""
        steps, times = self._attribution.steps, [self._ranges[place].start_ns for place in in_order]
        numbers: list[int | None] = [None] * len(times)
        if steps:
            of_time = zip(*(column.tolist() for column in places_among(steps, times)), strict=True)
            numbers = [steps[place].number if is_inside else None for place, is_inside in of_time]
        elif begins:
            numbers = [number or _SET_UP for number in np.searchsorted(begins, times, "right").tolist()]
        return dict(zip(in_order, numbers, strict=True))

    def _hold_launches(self, in_order: Sequence[int], starts: Sequence[int]) -> bool:
        """Return whether steps that begin at ``starts`` have nearly all launches."""
        held: dict[int, Span] = {}
        for place in in_order:
            made = self._ranges[place]
            number = bisect_right(starts, made.start_ns)
            begin, end = held.get(number, (made.start_ns, 0))
            held[number] = begin, max(end, made.end_ns)
        called = launch_times(self._profile)
        return not have_few(called[np.searchsorted(called, min(held.values())[0]) :], [*held.values()])

    def _place_during(self, begins: Sequence[int]) -> None:
        """Set the pass of activities without layer that were launched in a range with a step, or in the only step."""
        links, called = self._links, self._profile.commands.host_start_ns
        spans = {number: (made.start_ns, made.end_ns) for number, made in self._around.items()}
        if len(begins) == 1:
            spans[1] = begins[0], NEVER
        for number, (start, end) in spans.items():
            is_during = (np.asarray(links.pass_of) == NONE) & (start <= called) & (called < end)
            if is_during.any():
                links.give_pass(np.flatnonzero(is_during), links.pass_id("iteration", number))

    def _place_between(self, in_order: Sequence[int]) -> None:
        """Set the pass of activities without layer: that of both neighbours; set-up before the first layer."""
        links, called = self._links, self._profile.commands.host_start_ns
        pass_of = np.asarray(links.pass_of)
        before, after = (np.append(pass_of, NONE)[rows] for rows in neighbours(pass_of != NONE))
        is_early = np.array([*(one.phase == "before" for one in links.passes), True])
        is_inside = (pass_of == NONE) & (before == after) & ~is_early[after]
        is_set_up = (pass_of == NONE) & ~is_inside & (called != NO)
        is_set_up &= called < (self._ranges[in_order[0]].start_ns if in_order else NO)
        for pass_, positions in by_key(np.flatnonzero(is_inside), before[is_inside]):
            links.give_pass(positions, pass_)
        if is_set_up.any():
            links.give_pass(np.flatnonzero(is_set_up), links.pass_id("setup"))

    def _place_behind(self, begins: Sequence[int]) -> None:
        """Set the pass of activities of a training that are still in none: a step lasts until the next one begins."""
        links, called = self._links, self._profile.commands.host_start_ns
        if begins and is_training(self._ranges):
            is_behind = (np.asarray(links.pass_of) == NONE) & (called != NO) & (called >= begins[0])
            rows = np.flatnonzero(is_behind)
            for number, positions in by_key(rows, np.searchsorted(begins, called[rows], "right")):
                links.give_pass(positions, links.pass_id("iteration", number))


def may_be_layer(made: Range) -> bool:
    """Return whether a range is a module's or the user's, and no step, op, collective or mark of the compiler."""
    text = made.text.strip()
    if is_step(made) or is_module(made):
        return not is_step(made)
    if made.kind not in ("range", "annotation") or is_library_call(made) or not text or is_annotation(text):
        return False
    return not text.startswith(_NO_LAYERS) and not text.endswith(_COMPILING)


_COUNTED = late(r"([^\d\n]*?)[ _#:.-]?(\d{1,18})([^\d\n]*)", re.ASCII)
_LETTER = late(r"[^\W\d_]")
_LEAST_COUNTED = 3
"""Fewer may be chance."""


def layers_of_ranges(
    ranges: Sequence[Range], steps: Sequence[MarkedStep]
) -> dict[tuple[str, str], tuple[str, Direction | None]]:
    """Return (name, direction) of all layers, by kind and text of their ranges.

    TorchRec counts its steps in the names of layers (``## forward 12 ##``). If steps are marked and each of these texts
    is in another step, the number is left out of the name.
    """
    one_of: dict[tuple[str, str], Range] = {(made.kind, made.text): made for made in ranges}
    found: dict[tuple[str, str], tuple[str, Direction | None]] = {
        key: layer_of_range(made) for key, made in one_of.items() if may_be_layer(made)
    }
    if len(steps) < _LEAST_COUNTED:
        return found
    counted: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for key in found:
        match = _COUNTED.fullmatch(key[1].strip()) if key[0] != "frame" else None
        if match is not None and _LETTER.search(match[1] + match[3]) is not None:  # else nothing of the name is left
            counted[key[0], match[1], match[3]].append(key)
    several = {key: same for same, keys in counted.items() if len(keys) >= _LEAST_COUNTED for key in keys}
    if not several:
        return found
    begins = [step.start_ns for step in steps]
    held: dict[tuple[str, str], set[int]] = defaultdict(set)
    for made in ranges:
        if (made.kind, made.text) in several:
            held[made.kind, made.text].add(bisect_right(begins, made.start_ns))
    for (_, before, after), keys in counted.items():
        if len(keys) < _LEAST_COUNTED:
            continue
        own = [step for key in keys for step in held[key]]
        if len(own) == len(keys) == len(set(own)):
            name = layer_of_range(msgspec.structs.replace(one_of[keys[0]], text=before + after))
            found.update(dict.fromkeys(keys, name))
    return found


def layer_of_range(made: Range) -> tuple[str, Direction | None]:
    """Return (name, direction) of ``conv1 forward``, ``backward: conv1``; a module's call is forward."""
    text = made.text.strip()
    if is_module(made):
        return text.removeprefix(MODULE), "forward"
    for separator in (" ", "/", ":", ".", "_"):
        for name, _, word in (text.rpartition(separator), text.partition(separator)[::-1]):
            if name.strip(" /:._") and word.lower() in _DIRECTIONS:
                return name.strip(" :"), _DIRECTIONS[word.lower()]
    return text, None


# -- Layers that a framework's own profile states by the op of an activity ---------------------------------------------


_MOST_STEPS = 1 << 53
"""A larger number is no step; JSON could not hold it."""


def _net_of(ops: Iterable[Node]) -> Net:
    """Return the layers that ops name, in order of their first run; layers with a backward pass only come last."""
    named = sorted({(op.layer, op.direction): None for op in ops if op.layer}, key=lambda one: one[1] == "backward")
    layers = enumerate(dict.fromkeys(layer for layer, _ in named))
    return Net(
        layers=tuple(NetLayerSpec(index=index, layer=layer) for index, layer in layers),
        backward=any(direction == "backward" for _, direction in named),
    )


def _run_of(attribution: Attribution, index_of: Mapping[str, int], op: Node, step: int | None) -> int:
    direction = op.direction or "forward"
    pass_ = attribution.links.pass_id("iteration", iteration_of(step), direction)
    return attribution.run_for(pass_, (index_of[op.layer], direction))


def place_by_ops(attribution: Attribution) -> None:
    """Give each activity the layer and the iteration that its profile states, if no log names layers."""
    profile, links = attribution.profile, attribution.links
    if not profile.framework.nodes or attribution.net.layers:
        return
    attribution.net = _net_of(ops_in_order(profile))
    index_of = {layer.layer: layer.index for layer in attribution.net.layers}
    executions = [execution_of(profile, position) for position in range(len(profile.activities))]
    for position, execution in enumerate(executions):
        if execution is not None and (op := profile.framework.nodes[execution.node]).layer:
            links.give_layer([position], _run_of(attribution, index_of, op, execution.step), RANGE)
    _place_between(links, executions)


def _place_between(links: Links, executions: Sequence[Execution | None]) -> None:
    """Set the pass of activities without layer: that of both neighbours, else their step's without a direction."""
    pass_of = np.array(links.pass_of, np.int64)
    before, after = (np.append(pass_of, NONE)[rows].tolist() for rows in neighbours(pass_of != NONE))
    for position, execution in enumerate(executions):
        if pass_of[position] == NONE and execution is not None:
            pass_, iteration = after[position], iteration_of(execution.step)
            is_inside = pass_ == before[position] != NONE and links.passes[pass_].iteration == iteration
            links.give_pass([position], pass_ if is_inside else links.pass_id("iteration", iteration))


def iteration_of(step: int | None) -> int | None:
    """Step 0 is iteration 1; None without a step."""
    return None if step is None or not 0 <= step < _MOST_STEPS else step + 1


def execution_of(profile: Profile, position: int) -> Execution | None:
    """Return what an activity executes, by its own record or by the range that launched it."""
    execution = profile.framework.activities.get(position)
    if execution is None:
        launched_by = profile.activities[position].range
        execution = None if launched_by is None else profile.framework.ranges.get(launched_by)
    return execution


def ops_in_order(profile: Profile) -> Iterable[Node]:
    """Return the ops in order of their first run on the host, then on a device."""
    framework = profile.framework
    starts = [(profile.ranges[place].start_ns, one.node) for place, one in framework.ranges.items()]
    on_device = [(profile.activities[at].start_ns or 0, one.node) for at, one in framework.activities.items()]
    return [framework.nodes[node] for _, node in (*sorted(starts), *sorted(on_device))]


def place_by_host_ops(attribution: Attribution) -> None:
    """Put kernels, not other threads' copies, into layers of ops of `Attribution.beside`, if no log names any."""
    profile, notes, links = attribution.profile, attribution.notes, attribution.links
    if not attribution.beside or attribution.net.layers:
        return
    without_layers = attribution.net
    ops = _ops(attribution)
    if not ops:
        notes.add("the framework's profile names no layer of an op on a GPU: its ops are no layers of the kernels")
        return
    kernels = np.flatnonzero(profile.commands.is_kernel)
    called = profile.commands.host_start_ns[kernels]
    kernels, called, without_times = kernels[called != NO], called[called != NO], int((called == NO).sum())
    begins, begun = np.array(sorted((begin, run) for begin, _, run in ops)).T
    ends, ended = np.array(sorted((end, run) for _, end, run in ops)).T
    before, over = np.searchsorted(begins, called, "right"), np.searchsorted(ends, called, "right")
    # Of all that began the number, and the sum of the runs, without what ended: if one is left, the sum is its run.
    running = np.append(0, np.cumsum(begun))[before] - np.append(0, np.cumsum(ended))[over]
    is_placed = (before - over == 1) & (running != NONE)
    links.give_layers(kernels[is_placed], running[is_placed], BOUNDARY_STAMPS)
    between = int((before - over > 1).sum())
    if between:
        notes.add("kernel enqueued while ops of several layers ran: not attributed", count=between)
    if without_times:
        notes.add("kernel without a host time: not attributed to a framework's op", count=without_times)
    if not is_placed.any():
        notes.add("no kernel was enqueued while one of the framework's ops ran: they are no layers of the kernels")
        attribution.net = without_layers


def _ops(attribution: Attribution) -> list[tuple[int, int, int]]:
    """Return (start, end, run) of the ops on a device, if they name layers, and set the net to these layers.

    Ops without a step number are left out. Ops of one run that overlap are one."""
    ran: list[tuple[Range, Execution, Node, int]] = []
    for profile in attribution.beside:
        nodes, resolution_ns = profile.framework.nodes, profile.clocks[0].resolution_ns
        on_device = [
            (profile.ranges[place], execution, nodes[execution.node], resolution_ns)
            for place, execution in profile.framework.ranges.items()
            if execution.device is not None
        ]
        numbered = [op for op in on_device if op[1].step is not None]
        if len(numbered) < len(on_device):
            attribution.notes.add(
                "the framework's profile does not number its step: its ops are no layers of the kernels"
            )
        ran += numbered
    ran.sort(key=lambda op: (op[0].start_ns, op[0].end_ns))
    net = _net_of(node for _, _, node, _ in ran)
    if not net.layers:
        return []
    attribution.net = net
    index_of = {layer.layer: layer.index for layer in net.layers}
    found: list[tuple[int, int, int]] = []
    last: dict[int, int] = {}
    for range_, execution, node, resolution in ran:
        begin, end, run = range_.start_ns, max(range_.start_ns, range_.end_ns + resolution), NONE
        if node.layer and execution.step is not None and execution.step >= 0:
            run = _run_of(attribution, index_of, node, execution.step)
        if run in last and begin <= found[last[run]][1]:
            begin, before, _ = found[last[run]]
            found[last[run]] = begin, max(before, end), run
        else:
            last[run] = len(found)
            found.append((begin, end, run))
    return found
