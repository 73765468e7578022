"""The ladder: the steps that give activities to layers and operations (alignment.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mio2trace import evidence as by
from mio2trace.align.attribution import Attribution
from mio2trace.align.exact import link_by_ranges, number_steps_as_the_log
from mio2trace.align.framework_ops import place_by_host_ops, place_by_ops
from mio2trace.align.graphs import link_replays
from mio2trace.align.layers.between import place_between, place_updates
from mio2trace.align.layers.caffe.calls import place_by_calls
from mio2trace.align.layers.caffe.iterations import place_by_device_times, place_by_durations
from mio2trace.align.layers.caffe.layer_lines import place_by_layer_lines, place_by_lines_of_operations
from mio2trace.align.layers.caffe.marks import cut, read_marks
from mio2trace.align.layers.caffe.unlogged import place_behind_the_log, place_unlogged_iterations
from mio2trace.align.layers.caffe.warm_up import place_before_iterations
from mio2trace.align.layers.marked_steps import place_marked_steps
from mio2trace.align.layers.outside_times import (
    doubt_between_layers,
    doubt_by_clock,
    doubt_by_kernels,
    doubt_other_queues,
)
from mio2trace.align.layers.repetitions import place_nameless_replays, place_repetitions
from mio2trace.align.operations.steps import doubt_begun_again, link_operations


class Step(NamedTuple):
    """``take`` gives links by ``evidence`` and is left out with all of it."""

    evidence: tuple[by.Evidence, ...]
    take: Callable[[Attribution], None]


def place_by_marks(attribution: Attribution) -> None:
    """Cut at the timer marks, if a grammar explains them."""
    notes, links = attribution.notes, attribution.links
    printed = sum(event.kind == "iteration" for event in attribution.events)
    cuts = cut(attribution.profile.commands, attribution.profile.opencl.marks)
    asked_for = attribution.iterations()
    reading = read_marks(cuts, attribution.net, asked_for, printed, notes)
    if reading is not None:
        attribution.marked = marked = reading.place(links)
        if not reading.check(marked.between, notes, asked_for or 0, attribution.host_step_ns):
            links.doubt_layer(position for position, word in enumerate(links.layer_by) if word == by.TIMER_MARKS)


STEPS: tuple[Step, ...] = (
    # Where launches are recorded, nothing else decides in which marked step a command is.
    Step((), place_marked_steps),
    Step((by.RANGE, by.CORRELATION), link_by_ranges),
    # The capture tells of what is within the range around a graph's launch.
    Step((by.GRAPH_NODE, by.CAPTURE), link_replays),
    # Marks bound layers without any clock, and relate the log's clock to the host's best: everything else asks it.
    Step((by.TIMER_MARKS,), place_by_marks),
    Step(
        (by.POSITION, by.BUFFERS, by.LAUNCH_LINE, by.BOUNDARY_STAMPS, by.RECURRENCE, by.NAME_AND_SIZES, by.ORDER),
        link_operations,
    ),
    Step((), doubt_begun_again),
    Step((by.POSITION, by.BOUNDARY_STAMPS), place_by_layer_lines),
    Step((), place_by_lines_of_operations),
    Step((by.DURATIONS,), place_by_durations),
    Step((), doubt_between_layers),
    Step((), doubt_by_clock),
    Step((), doubt_by_kernels),
    Step((), place_by_calls),
    Step((by.DURATIONS,), place_by_device_times),
    # Likeness goes on from what is placed, doubts included.
    Step((), place_before_iterations),
    Step((by.RECURRENCE,), place_unlogged_iterations),
    Step((by.NAME_AND_SIZES,), place_behind_the_log),
    Step((), doubt_other_queues),
    # Where no log names layers, the steps above have none to give.
    Step((by.RANGE,), place_by_ops),
    Step((by.BOUNDARY_STAMPS,), place_by_host_ops),
    Step((by.RANGE,), number_steps_as_the_log),
    Step((), place_updates),
    Step((), place_between),
    Step((by.ORDER,), place_nameless_replays),
    Step((), place_repetitions),
)
"""Strongest first. `Links` never overrides stronger links, so a step only adds what is missing."""


def climb(attribution: Attribution) -> None:
    """Run all steps whose evidence is not left out. Raises `InputError` for two runs."""
    for step in STEPS:
        if not step.evidence or not attribution.without.issuperset(step.evidence):
            step.take(attribution)
