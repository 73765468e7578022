"""Activities that times placed and may belong elsewhere: by a clock that may be off, and other queues' work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.caffe.names import contradicts, tells_type, types_of
from mio2trace.align.links import DOUBTED
from mio2trace.align.operations.rates import HARDLY_ANY, MISSTATED, ONE_THREAD, WHOLE
from mio2trace.evidence import (
    BOUNDARY_STAMPS,
    CAPTURE,
    CORRELATION,
    DURATIONS,
    GRAPH_NODE,
    RANGE,
    SEQUENCE,
    TIMER_MARKS,
)

OF_ITS_OWN = frozenset((RANGE, CORRELATION, GRAPH_NODE, CAPTURE, SEQUENCE, TIMER_MARKS, ""))
"""What tells of a kernel itself, whatever its queue; or nothing."""


def doubt_by_clock(attribution: Attribution) -> None:
    """What times placed is in doubt where the log's clock may be off by more than a landmark is: a layer's lines hold a
    kernel at so many of the possible offsets as the layer took of them. What is less likely than not stays outside.
    """
    clock, links = attribution.clock, attribution.links
    if clock is None or not clock.is_doubtful:
        return
    for position, word in enumerate(links.layer_by):
        if word in (BOUNDARY_STAMPS, DURATIONS):
            lasted = links.runs[links.run_of[position]].printed_ns or 0
            chance = lasted / (2 * clock.error_ns)
            if chance < DOUBTED:
                links.take_layer(position)
            else:
                links.doubt_layer((position,), DOUBTED)


def doubt_other_queues(attribution: Attribution) -> None:
    """The log's layers are one thread's: what another queue ran meanwhile may be another thread's work.

    Which queue is that of the thread that printed them the names of kernels tell: another thread's are of any layer. A
    queue with hardly any kernels of layers is not it.
    """
    activities, links = attribution.profile.activities, attribution.links
    told = OF_ITS_OWN - {TIMER_MARKS} if _are_marks_among_others(attribution) else OF_ITS_OWN
    placed = [position for position, word in enumerate(links.layer_by) if word not in told]
    of_queue: dict[int, list[int]] = {}
    for position in placed:
        if activities[position].kind == "kernel":
            of_queue.setdefault(activities[position].queue, []).append(position)
    spans = sorted((its[0], its[-1]) for its in of_queue.values())
    if all(before[1] < after[0] for before, after in pairwise(spans)):
        return  # one queue, or each after the other: nothing ran meanwhile
    hardly_any = HARDLY_ANY * sum(map(len, of_queue.values()))
    likely = {queue: its for queue, its in of_queue.items() if len(its) > hardly_any}
    own = dict(zip(likely, _printing(attribution, list(likely.values())), strict=True))
    for position in placed:
        chance = own.get(activities[position].queue, ONE_THREAD)
        if chance < DOUBTED:
            links.take_layer(position)
        elif chance < 1:
            links.doubt_layer([position], chance)


def _are_marks_among_others(attribution: Attribution) -> bool:
    """Whether another thread's calls, or another run's, are among those of the thread that marked its layers: some lie
    between two layers, or began at another time than the marks around them.
    """
    marked, activities, links = attribution.marked, attribution.profile.activities, attribution.links
    if marked is None:
        return False
    if marked.between:
        return True
    for position, word in enumerate(links.layer_by):
        at = activities[position].host_start_ns
        if word == TIMER_MARKS and at is not None:
            run = links.runs[links.run_of[position]]
            begin, end = run.host_start_ns, run.host_end_ns
            if (begin is not None and at < begin) or (end is not None and at > end):
                return True
    return False


def _printing(attribution: Attribution, rows: Sequence[Sequence[int]]) -> list[float]:
    """Of each queue's kernels in layers, how probable it is that they are the thread's that printed the layers.

    Either one queue's are, or all seem to be: a kernel of a layer has hardly ever another layer's name, one that has
    nothing to do with it as often as not, if it is not of the same net. Where all seem to be, one of two is: of 421
    links 50 %.
    """
    if len(rows) == 1:
        return [1.0]
    told = [_telling(attribution, row) for row in rows]
    by_chance = [count * log(0.5) for count, _ in told]
    right = [odd * log(MISSTATED) + (count - odd) * log(1 - MISSTATED) for count, odd in told]
    everything = sum(by_chance)
    ways = [everything - chance + of_layers for chance, of_layers in zip(by_chance, right, strict=True)]
    ways.append(sum(right))
    best = max(ways)
    weights = [exp(way - best) for way in ways]
    return [(WHOLE * weight + DOUBTED * weights[-1]) / sum(weights) for weight in weights[:-1]]


def _telling(attribution: Attribution, row: Sequence[int]) -> tuple[int, int]:
    """How many kernels have a name that tells a type of layer, and how many of them another one than their layer's."""
    activities, links = attribution.profile.activities, attribution.links
    types = {layer.index: types_of(layer.layer, layer.type) for layer in attribution.net.layers}
    count = odd = 0
    for position in row:
        run = links.runs[links.run_of[position]]
        of_layer = types[run.layer_index]
        if run.direction is not None and of_layer and tells_type(activities[position].name):
            count += 1
            odd += contradicts(activities[position].name, of_layer, run.direction)
    return count, odd
