"""What the profile itself states: the operation whose range was open at a kernel's launch, and the layer around that.

Ranges that the user or a framework pushed (ROCTx, ``record_function``) are layers, the innermost outside the operation
wins; steps are marked (`mio2trace.align.layers.marked_steps`), else one begins where the first layer comes again. What
was launched by a graph is in no operation: the range of the captured call is not open any more (rocm-profiles.md 1, 8).
What ran before the recording is in no operation and no layer, whatever it states.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from mio2trace.align.attribution import Attribution
from mio2trace.align.gradients import ForwardOps, split
from mio2trace.align.layers.by_sequence import Sequenced, layers_by_sequence
from mio2trace.align.layers.marked_steps import LEAST_LAUNCHES, before_recording, is_step, step_at
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import NONE, LayerRun, Links
from mio2trace.align.logged_ops import is_op, logged_ops
from mio2trace.align.open_ranges import OpenRanges
from mio2trace.align.sequences import matches
from mio2trace.evidence import CORRELATION, RANGE, SEQUENCE, Evidence
from mio2trace.model.log import Direction
from mio2trace.model.profile import Profile, Range
from mio2trace.notes import Notes
from mio2trace.ops.families.collective import is_annotation
from mio2trace.ops.operation import Operation
from mio2trace.ops.ranges import is_library_call, operations_of_ranges

_DIRECTIONS: dict[str, Direction] = {
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward",
}  # fmt: skip
_MODULE = "nn.Module: "
_SET_UP = -1
"""The number of what was executed before the first iteration."""
_NO_LAYERS, _COMPILING = ("aten::", "## Call CompiledFxGraph "), "(dynamo_timed)"


class Calls(NamedTuple):
    """The operations of a run, and of each range of the profile which of them it is (`NONE`: none).

    ``weights_of``: the operation of the weights' gradient by that of the data's, where a range is both.
    """

    operations: tuple[Operation, ...]
    of_range: tuple[int, ...]
    weights_of: Mapping[int, int] = {}
    opened: OpenRanges | None = None


def calls_of(profile: Profile, logged: Sequence[Operation], behind: int, notes: Notes) -> Calls:
    """The log's operations with those that the profile's ranges carry: the same calls, told twice, are one.

    Both are in order and say the same of a call: what corresponds is the longest common sequence. What only a range
    tells has the indexes from ``behind`` on: no operation of the log has these, of another run or thread neither.
    """
    if not profile.ranges:
        return Calls(tuple(logged), ())
    opened = OpenRanges(profile)
    _leave_out_early(opened, profile)
    ranged, places = operations_of_ranges(profile, opened.launching(profile))
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


def _leave_out_early(opened: OpenRanges, profile: Profile) -> None:
    """What ran before the recording is in no range, whatever it states."""
    for position in before_recording(profile.commands).tolist():
        opened.range_of[position] = NONE


def _logged_as(ranged: Sequence[Operation], logged: Sequence[Operation], notes: Notes) -> dict[int, int]:
    """Which of the log's calls a range is, by their places."""
    if not any(map(is_op, ranged)):
        return dict(matches([_key(one) for one in ranged], [_key(one) for one in logged]) or ())
    found = logged_ops(ranged, logged)
    if found.ambiguous:
        notes.remark("op that may be one of several calls in MIOpen's log: not joined with it", count=found.ambiguous)
    elif not found.logged_as:
        notes.add("no op of the profile is a call in MIOpen's log, by order and shapes: both are shown, not joined")
    return found.logged_as


def _key(operation: Operation) -> Hashable:
    return operation.api, operation.direction, operation.input, operation.weights, operation.output


def link_by_ranges(attribution: Attribution) -> None:
    """Operations and layers by the ranges that were open at each launch."""
    profile, links = attribution.profile, attribution.links
    if not profile.ranges or profile.framework.nodes:  # which says itself what each op is of: `framework_ops`
        return
    without = attribution.without
    opened = attribution.opened
    if opened is None:
        opened = OpenRanges(profile)
        _leave_out_early(opened, profile)
    operation_of = opened.nearest(attribution.operation_of_range or [NONE] * len(profile.ranges), opened.range_of)
    groups: dict[tuple[int, bool], list[int]] = {}
    for position, place in enumerate(opened.range_of):
        if operation_of[place] != NONE:
            by_id = bool(opened.stated[position]) and profile.ranges[place].kind == "operator"
            groups.setdefault((operation_of[place], by_id), []).append(position)
    operations = {operation.index: operation for operation in attribution.operations}
    for (index, by_id), positions in groups.items():
        by: Evidence = CORRELATION if by_id else RANGE
        if by in without:
            continue
        weights = attribution.weights_of.get(index)
        if weights is None:
            links.give_operation(positions, index, by)
            continue
        names = [profile.activities[position].name for position in positions]
        parts = split(names, operations[index])
        if parts is None:
            links.give_operation(positions, index, by, sure=False)
            continue
        links.give_operation([positions[at] for at in parts.data], index, by)
        links.give_operation([positions[at] for at in parts.weights], weights, by)
    if RANGE not in without:
        _Layers(attribution, opened).place()


def number_steps_as_the_log(attribution: Attribution) -> None:
    """One number for an iteration: a profile's steps count from 0 or from where it began, a log's iterations from 1.

    What lies in no layer in a step is in the iteration that most of the step's kernels are in by the log.
    """
    profile, links, steps = attribution.profile, attribution.links, attribution.steps
    if not steps or all(word in ("", RANGE) for word in links.layer_by):
        return
    logged: dict[int, Counter[int]] = {}
    unplaced: dict[int, list[int]] = {}
    for position, (activity, run) in enumerate(zip(profile.activities, links.run_of, strict=True)):
        step = step_at(steps, activity.host_start_ns)
        if step is None:
            continue
        iteration = links.iteration_of(position)
        if run == NONE:
            unplaced.setdefault(step.number, []).append(position)
        elif iteration is not None and links.layer_by[position] != RANGE:
            logged.setdefault(step.number, Counter())[iteration] += 1
    before = _pass_of_nearest(links, range(len(links.run_of)))
    after = _pass_of_nearest(links, range(len(links.run_of) - 1, NONE, -1))
    for number, iterations in logged.items():
        ((iteration, _),) = iterations.most_common(1)
        if not iteration:  # the warm-up is no step
            continue
        for position in unplaced.get(number, ()):
            inside = before[position] if before[position] == after[position] else NONE
            links.move_pass([position], links.pass_id("iteration", iteration) if inside == NONE else inside)


def _pass_of_nearest(links: Links, positions: Sequence[int]) -> list[int]:
    """Of each activity the pass of the last one before it, in this order, that is in a layer."""
    passes = [NONE] * len(positions)
    last = NONE
    for position in positions:
        if links.run_of[position] != NONE:
            last = links.pass_of[position]
        passes[position] = last
    return passes


class _Layers:
    """User ranges as executions of layers."""

    def __init__(self, attribution: Attribution, opened: OpenRanges) -> None:
        self._attribution = attribution
        self._opened = opened
        ranges = attribution.profile.ranges
        # of framework's ops there are very many
        named = [place for place, made in enumerate(ranges) if made.kind != "operator"]
        self._layers = {place: layer_of_range(ranges[place]) for place in named if may_be_layer(ranges[place])}
        marks = {(step.start_ns, step.end_ns) for step in attribution.steps}
        inner = {
            place: layer
            for place, layer in self._layers.items()
            if (ranges[place].start_ns, ranges[place].end_ns) not in marks
        }
        self._layers = inner or self._layers
        self._sequenced = Sequenced()
        # A log that names layers knows them better, and numbers its iterations in its own way.
        if SEQUENCE not in attribution.without and not any(log.layers for log in attribution.logs):
            annotations = {place: ranges[place] for place in self._layers}
            self._sequenced = layers_by_sequence(attribution.profile, opened, attribution.steps, annotations)
            self._layers |= {place: (made.name, "forward") for place, made in self._sequenced.executions.items()}

    def place(self) -> None:
        """Each activity in the innermost layer; what an op of the backward pass launched in its forward op's."""
        ranges, opened, links = self._attribution.profile.ranges, self._opened, self._attribution.links
        own = [NONE] * len(ranges)
        nowhere = self._sequenced.nowhere
        for place in (*self._layers, *nowhere):
            own[place] = place
        for place, first in self._sequenced.first_of.items():
            own[place] = first
        forward = ForwardOps(self._attribution.profile)
        layer_of = opened.nearest(own, forward.of)
        gradients = list(own)
        for place, other in enumerate(forward.of):
            if other != NONE and own[place] == NONE and layer_of[other] != NONE and layer_of[other] not in nowhere:
                gradients[place] = place
        innermost = opened.nearest(gradients, opened.range_of)
        used: dict[tuple[int, int], list[int]] = {}
        backward: dict[tuple[int, bool, int], _Gradient] = {}
        for position, place in enumerate(opened.range_of):
            around = innermost[place]
            if around == NONE or around in nowhere:
                continue
            pass_ = links.pass_of[position]  # of its launch; a range may reach over several steps
            if own[around] != NONE:
                used.setdefault((around, pass_), []).append(position)
                continue
            key = layer_of[forward.of[around]], around not in forward.unsure, pass_
            backward.setdefault(key, _Gradient()).add(position, ranges[around])
        executed = {place for place, _ in used} | {place for place, _, _ in backward}
        in_order = sorted(executed, key=lambda place: ranges[place].start_ns)
        index_of = self._net([self._layers[place] for place in in_order], bool(backward))
        begins = [] if self._attribution.steps else self._begins(in_order)
        iteration_of = {place: self._iteration(begins, ranges[place].start_ns) for place in in_order}
        for place, pass_, iteration, positions, times in self._by_step(used, begins, iteration_of):
            name, direction = self._layers[place]
            run = self._run(name, index_of[name], direction, self._pass(pass_, iteration, direction), times)
            self._give(positions, run, place)
        for (place, sure, pass_), gradient in sorted(backward.items(), key=lambda item: item[1].start_ns):
            name, _ = self._layers[place]
            times = gradient.start_ns, gradient.end_ns
            run = self._run(name, index_of[name], "backward", self._pass(pass_, iteration_of[place], "backward"), times)
            self._give(gradient.positions, run, place, sure=sure)
        if not self._attribution.steps:
            self._place_between(in_order)

    def _give(self, positions: Sequence[int], run: LayerRun, place: int, *, sure: bool = True) -> None:
        links = self._attribution.links
        made = self._sequenced.executions.get(place)
        by: Evidence = RANGE if made is None else SEQUENCE
        confidence = 1.0 if made is None else made.confidence
        links.give_layer(positions, links.add_run(run), by, sure=sure, confidence=confidence)

    def _by_step(
        self, used: Mapping[tuple[int, int], list[int]], begins: Sequence[int], iteration_of: Mapping[int, int | None]
    ) -> Iterator[tuple[int, int, int | None, list[int], tuple[int, int]]]:
        """(range, pass of the launch, iteration, positions, begin and end on the host) of each execution, in order.

        A range that launched something in several steps is an execution in each, from the first launch to the last.
        """
        ranges, activities = self._attribution.profile.ranges, self._attribution.profile.activities
        passes = Counter(place for place, _ in used)
        for place, pass_ in sorted(used, key=lambda key: (ranges[key[0]].start_ns, key[1])):
            parts: dict[int | None, list[int]] = {}
            for position in used[place, pass_]:
                launched = activities[position].host_start_ns if begins and pass_ == NONE else None
                number = iteration_of[place] if launched is None else self._iteration(begins, launched)
                parts.setdefault(number, []).append(position)
            made = self._sequenced.executions.get(place, ranges[place])
            for number, positions in parts.items():
                times = made.start_ns, made.end_ns
                calls = [call for at in positions if (call := activities[at].call) is not None]
                if passes[place] + len(parts) > 2 and calls:
                    times = min(call.start_ns or times[0] for call in calls), max(call.end_ns or 0 for call in calls)
                yield place, pass_, number, positions, (times[0], max(times))

    def _pass(self, of_launch: int, iteration: int | None, direction: Direction | None) -> int:
        """The pass of a layer's execution: its direction of the step that its commands were launched in, else of the
        one that the range began in."""
        links = self._attribution.links
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

    def _run(self, name: str, index: int, direction: Direction | None, pass_: int, times: tuple[int, int]) -> LayerRun:
        return LayerRun(
            layer=name, layer_index=index, direction=direction, pass_=pass_,
            host_start_ns=times[0], host_end_ns=times[1],
        )  # fmt: skip

    def _net(self, executed: Sequence[tuple[str, Direction | None]], backward: bool) -> dict[str, int]:
        """Layers by their places in the net: the log's where it names them, else in the order in which they ran."""
        index_of = {layer.layer: layer.index for layer in self._attribution.net.layers}
        new = [name for name in dict.fromkeys(name for name, _ in executed) if name not in index_of]
        first = max(index_of.values(), default=-1) + 1
        index_of |= {name: first + number for number, name in enumerate(new)}
        if new:
            backward = backward or any(direction == "backward" for _, direction in executed)
            within = {made.name: made.within for made in self._sequenced.executions.values()}
            specs = tuple(
                NetLayerSpec(index=index_of[name], layer=name, within=within.get(name, "")) for name in new
            )  # fmt: skip
            net = self._attribution.net
            self._attribution.net = Net(layers=(*net.layers, *specs), backward=net.backward or backward)
        return index_of

    def _begins(self, in_order: Sequence[int]) -> list[int]:
        """When each step that nothing marks began: with each execution of the first layer. Empty if there are none.

        Layers by sequence come once in a step, ranges of the user's need not.
        """
        sequenced = sorted((made.start_ns, made.name) for made in self._sequenced.executions.values() if not made.again)
        if sequenced:
            return [start for start, name in sequenced if name == sequenced[0][1]]
        if not in_order:
            return []
        first = self._layers[in_order[0]]
        starts = [
            self._attribution.profile.ranges[place].start_ns for place in in_order if self._layers[place] == first
        ]
        are_steps = any(self._layers[place][1] for place in in_order) or self._hold_launches(in_order, starts)
        return starts if are_steps else []

    def _iteration(self, begins: Sequence[int], time_ns: int) -> int | None:
        """The iteration at a time of the host: of the marked step around it, None outside of these; where no step is
        marked, by ``begins``."""
        if self._attribution.steps:
            step = step_at(self._attribution.steps, time_ns)
            return None if step is None else step.number
        return (bisect_right(begins, time_ns) or _SET_UP) if begins else None

    def _hold_launches(self, in_order: Sequence[int], starts: Sequence[int]) -> bool:
        """Whether the executions of one step, from the first one's begin to the last one's end, hold nearly all
        launches from the first on: a range that comes again here and there is no step."""
        ranges = self._attribution.profile.ranges
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for place in in_order:
            number = bisect_right(starts, ranges[place].start_ns)
            begins.setdefault(number, ranges[place].start_ns)
            ends[number] = max(ends.get(number, 0), ranges[place].end_ns)
        starts = sorted(
            start for one in self._attribution.profile.activities if (start := one.host_start_ns) is not None
        )
        if not starts or not begins:
            return True
        held = sum(bisect_right(starts, ends[number]) - bisect_left(starts, begin) for number, begin in begins.items())
        return held >= LEAST_LAUNCHES * (len(starts) - bisect_left(starts, min(begins.values())))

    def _place_between(self, in_order: Sequence[int]) -> None:
        """Passes of what lies in no layer: its neighbours', where both are of one; set-up before the first layer."""
        profile, links = self._attribution.profile, self._attribution.links
        begun = profile.ranges[in_order[0]].start_ns if in_order else None
        before = NONE
        waiting: list[int] = []
        for position, pass_ in enumerate([*links.pass_of, NONE]):
            last = position == len(profile.activities)
            if pass_ == NONE and not last:
                waiting.append(position)
                continue
            for between in waiting:
                launched = profile.activities[between].host_start_ns
                if pass_ == before != NONE and links.passes[pass_].phase != "before":
                    links.give_pass([between], pass_)
                elif begun is not None and launched is not None and launched < begun:
                    links.give_pass([between], links.pass_id("setup"))
            waiting, before = [], pass_


class _Gradient:
    """What the backward pass of one execution of a layer launched, and from when to when."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.start_ns, self.end_ns = 1 << 63, 0

    def add(self, position: int, made: Range) -> None:
        self.positions.append(position)
        self.start_ns, self.end_ns = min(self.start_ns, made.start_ns), max(self.end_ns, made.end_ns)


def may_be_layer(made: Range) -> bool:
    """Whether a range is of a module or of the user's, and no step."""
    return not is_step(made) and (_is_user_range(made) or _is_module(made))


def _is_user_range(made: Range) -> bool:
    """Whether it may be a layer; PyTorch's ops, its collectives and what its compiler marks are none."""
    text = made.text.strip()
    if made.kind not in ("range", "annotation") or is_library_call(made) or not text or is_annotation(text):
        return False
    return not text.startswith(_NO_LAYERS) and not text.endswith(_COMPILING)


def _is_module(made: Range) -> bool:
    return made.kind == "frame" and made.text.startswith(_MODULE)


def layer_of_range(made: Range) -> tuple[str, Direction | None]:
    """(name, direction): ``conv1 forward``, ``backward: conv1``; a name that says no direction has none, a module's
    call is of the forward pass."""
    text = made.text.strip()
    if _is_module(made):
        return text.removeprefix(_MODULE), "forward"
    for separator in (" ", "/", ":", ".", "_"):
        name, _, word = text.rpartition(separator)
        if name.strip(" /:._") and word.lower() in _DIRECTIONS:
            return name.strip(" :"), _DIRECTIONS[word.lower()]
        word, _, name = text.partition(separator)
        if name.strip(" /:._") and word.lower() in _DIRECTIONS:
            return name.strip(" :"), _DIRECTIONS[word.lower()]
    return text, None
