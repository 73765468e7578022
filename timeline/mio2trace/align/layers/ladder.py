"""Activities to layers: every kind of evidence in turn, strongest first (alignment.md; trace-contract.md 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mio2trace.align.clocks.axis import STAMPS, common_axis, host_times, relate_clocks
from mio2trace.align.clocks.fit import LogClock
from mio2trace.align.layers import durations, marks, recurrence
from mio2trace.align.layers.attribution import Attribution
from mio2trace.align.layers.iterations import place_by_durations, place_later_iterations
from mio2trace.align.layers.layer_lines import place_by_layer_lines
from mio2trace.align.layers.net import Net
from mio2trace.align.layers.outside_times import doubt_other_queues, doubt_what_has_no_times
from mio2trace.align.layers.placement import Placement
from mio2trace.align.layers.warm_up import place_before_iterations
from mio2trace.align.operations import Evidence, Links, line_axis, link_operations
from mio2trace.kernels import KernelFact
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where every activity belongs: its layer and its operation; how the log's clock relates to the host's."""

    placement: Placement
    links: Links
    clock: LogClock | None


def place_activities(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    net: Net,
    facts: Mapping[int, KernelFact],
    without: frozenset[str],
    notes: Notes,
    *,
    by_order_alone: bool = False,
    same_run: bool = False,
    keep_reasons: bool = False,
) -> Placed:
    """Place every activity of ``profile`` in its layer and its operation, and relate the log's clock to the host's.

    ``same_run``: the buffers show that log and profile are of one run. Raises `InputError` when they cannot be of one
    run (unless ``by_order_alone``).
    """
    attribution = Attribution(profile, logs, net, facts, without, notes)
    placement = attribution.placement

    # Timer marks bound layers without any clock, and relate the log's clock to the host's best.
    _place_by_marks(attribution)
    if not by_order_alone:
        attribution.clock = relate_clocks(profile, logs, attribution.marked, notes, same_run=same_run)
    if attribution.clock is not None:
        attribution.times = host_times(profile.activities, notes)

    # Lines of the log next to the activities, on one axis; where there is none, the operations' links may make one.
    clock, times = attribution.clock, attribution.times
    axis = common_axis(profile, attribution.events, clock, times, without, notes)
    told = Evidence(logs=logs, axis=axis, clock=clock, times=times)
    links = link_operations(profile, operations, facts, told, without, keep=keep_reasons)
    if axis is None:
        axis = line_axis(links)
    if axis is not None:
        place_by_layer_lines(attribution, axis)
        links.lend_evidence(placement, axis)

    # Printed times, then likeness to what is placed already.
    place_by_durations(attribution)
    doubt_what_has_no_times(attribution, (STAMPS, durations.BY), placement.run_of)
    place_before_iterations(attribution, axis)
    place_later_iterations(attribution)
    if axis is not None and not axis.by_line:
        doubt_what_has_no_times(attribution, (recurrence.BY,), placement.pass_of)

    doubt_other_queues(attribution)
    links.keep_whole(placement)
    return Placed(placement=placement, links=links, clock=clock)


def _place_by_marks(attribution: Attribution) -> None:
    """Cut at the timer marks, where a grammar explains them."""
    if marks.BY in attribution.without:
        return
    net, notes, placement = attribution.net, attribution.notes, attribution.placement
    printed = sum(event.kind == "iteration" for event in attribution.events)
    cuts = marks.cut(placement, attribution.profile.opencl.marks)
    grammar = marks.read_marks(cuts, net, attribution.iterations(), printed, notes)
    if grammar is not None:
        attribution.marked = marks.place_by_marks(placement, cuts, net, *grammar)
        marks.check(cuts, net, attribution.marked, notes)
