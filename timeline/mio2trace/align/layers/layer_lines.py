"""Layer lines that really bound their layers: which iteration each is of, and how far back it reaches (dvdt-ck.md 2.1).

`boundaries` tells whether lines bound their layers, and cuts at them; here the log's other lines say what they end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from mio2trace.align.clocks.axis import Timeline
from mio2trace.align.layers import boundaries
from mio2trace.align.layers.attribution import Attribution
from mio2trace.model.log import Direction, LayerTime


def place_by_layer_lines(attribution: Attribution, axis: Timeline) -> None:
    """Cut the activities at the layer lines of each log whose stamps, or places in the file, bound its layers."""
    by = axis.evidence
    if by in attribution.without:
        return
    for log in attribution.logs:
        if not boundaries.stamps_bound(log.layers):
            continue
        ends = [(place, layer) for layer in log.layers if (place := axis.layer(layer)) is not None]
        ends.sort(key=lambda pair: pair[0])
        iterations = _iterations_of(attribution, ends, axis)
        boundaries.place_by_ends(
            attribution.placement,
            ends,
            iteration_of=iterations.__getitem__,
            when=axis.ends.__getitem__,
            reach_back=_reach_back(attribution, axis, ends, iterations),
            by=by,
            host=attribution.host_time,
        )


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
