"""Layer lines that really bound their layers: which iteration each is of, and how far back it reaches (dvdt-ck.md 2.1).

`boundaries` tells whether lines bound their layers, and cuts at them; here the log's other lines say what they end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import Timeline
from mio2trace.align.layers.caffe.boundaries import stamps_bound
from mio2trace.align.links import LayerRun
from mio2trace.model.log import Direction, LayerTime


def place_by_layer_lines(attribution: Attribution) -> None:
    """Cut the activities at the layer lines of each log whose stamps, or places in the file, bound its layers."""
    axis = attribution.shared_axis
    if axis is not None and axis.evidence not in attribution.without:
        _place_by_lines(attribution, axis)


def place_by_lines_of_operations(attribution: Attribution) -> None:
    """The same where nothing but the links to operations tells which activities ran between two lines of the log."""
    if attribution.shared_axis is None and attribution.axis is not None:
        _place_by_lines(attribution, attribution.axis)


def _place_by_lines(attribution: Attribution, axis: Timeline) -> None:
    for log in attribution.logs:
        if not stamps_bound(log.layers):
            continue
        ends = [(place, layer) for layer in log.layers if (place := axis.layer(layer)) is not None]
        ends.sort(key=lambda pair: pair[0])
        iterations = _iterations_of(attribution, ends, axis)
        _place_by_ends(attribution, axis, ends, iterations)


def _place_by_ends(
    attribution: Attribution, axis: Timeline, ends: Sequence[tuple[int, LayerTime]], iterations: Sequence[int]
) -> None:
    """Give each activity to the first layer whose end is not before it.

    ``ends``: (place on the axis, layer) in order; ``iterations``: of each. The first layer of a row of layers, which
    nothing bounds from below, reaches back to `_reach_back` of its number.
    """
    links, when = attribution.links, axis.ends
    reach_back = _reach_back(attribution, axis, ends, iterations)
    queues: dict[int, list[int]] = {}
    for position, activity in enumerate(attribution.profile.activities):
        queues.setdefault(activity.queue, []).append(position)
    # The queues by the time of the activity that each is at: an end looks only at those that it reaches
    lines = list(queues.values())
    done = [0] * len(lines)
    waiting = [(when[positions[0]], line) for line, positions in enumerate(lines)]
    heapify(waiting)
    previous_end: int | None = None
    for number, (end, layer) in enumerate(ends):
        begin = reach_back(number)
        if begin < 0:
            begin = previous_end if previous_end is not None else end
        host_end = attribution.host_time(layer)
        run = links.add_run(
            LayerRun(
                layer=layer.layer,
                layer_index=layer.index,
                direction=layer.direction,
                pass_=links.pass_id("iteration", iterations[number], layer.direction),
                printed_ns=layer.printed_ns,
                host_start_ns=None if host_end is None else host_end - layer.printed_ns,
                host_end_ns=host_end,
            )
        )
        reached = []
        while waiting and waiting[0][0] <= max(begin, end):
            reached.append(heappop(waiting)[1])
        for line in sorted(reached):
            positions = lines[line]
            at, count = done[line], len(positions)
            while at < count and when[positions[at]] <= begin:
                at += 1
            first = at
            while at < count and when[positions[at]] <= end:
                at += 1
            done[line] = at
            attribution.give_layer(positions[first:at], run, axis.evidence)
            if at < count:
                heappush(waiting, (when[positions[at]], line))
        previous_end = end


def _iterations_of(attribution: Attribution, ends: Sequence[tuple[int, LayerTime]], axis: Timeline) -> list[int]:
    """The iteration of each layer line: that of the ``Iteration: K`` line which follows it, else as they repeat."""
    lines = sorted(
        (place, event.number)
        for event in attribution.events
        if event.kind == "iteration" and event.number is not None and (place := axis.event(event)) is not None
    )
    if not lines:
        return _count_iterations([layer for _, layer in ends])
    numbers = [number for _, number in lines] + [lines[-1][1] + 1]  # the last one: of a run that was killed
    return [numbers[bisect_left(lines, (end, 0))] for end, _ in ends]


def _count_iterations(layers: Sequence[LayerTime]) -> list[int]:
    """The iteration of each layer line, from 1: a new one begins when a layer and direction comes again."""
    iteration = 1
    seen: set[tuple[int, Direction]] = set()
    result = []
    for layer in layers:
        key = (layer.index, layer.direction)
        if key in seen:
            iteration += 1
            seen.clear()
        seen.add(key)
        result.append(iteration)
    return result


def _reach_back(
    attribution: Attribution, axis: Timeline, ends: Sequence[tuple[int, LayerTime]], iterations: Sequence[int]
) -> Callable[[int], int]:
    """Where the layer of an end begins when it is the first of its row; -1: at the end before it."""
    starts = sorted(
        place
        for event in attribution.events
        if event.kind in ("testing", "benchmark begins", "iteration") and (place := axis.event(event)) is not None
    )

    def reach(number: int) -> int:
        end, layer = ends[number]
        if number and iterations[number - 1] == iterations[number]:
            return -1
        floor = ends[number - 1][0] if number else -1
        earlier = bisect_left(starts, end) - 1
        if earlier >= 0:
            floor = max(floor, starts[earlier])
        if axis.by_line:
            return floor if floor >= 0 else end
        return max(floor, end - layer.printed_ns)

    return reach
