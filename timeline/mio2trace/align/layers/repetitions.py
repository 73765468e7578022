"""Iterations that nothing names: what the kernels repeat."""

from __future__ import annotations

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.period import find_repetition
from mio2trace.align.links import NONE, Links
from mio2trace.model.profile import Activity

REPEATED = 0.9
"""Part of the kernel time that what repeats must cover, for its repetitions to be iterations."""


def place_repetitions(attribution: Attribution) -> None:
    """Where no pass has a kernel, what the kernels repeat is one."""
    number_repetitions(attribution.links)


def number_repetitions(links: Links) -> None:
    """Passes of repeated kernels, from 1, each with what follows until the next; none where a pass has a kernel.

    Kernels of set-up and of searches are passed over when the repetition is looked for; a search lies in the repetition
    that it interrupts.
    """
    activities = links.activities
    set_up = {number for number, pass_ in enumerate(links.passes) if pass_.phase in ("before", "setup")}
    in_iterations = (
        activity.kind == "kernel" and number != NONE and number not in set_up
        for number, activity in zip(links.pass_of, activities, strict=True)
    )
    if any(in_iterations):
        return
    searches = {operation.index for operation in links.operations if operation.phase == "find"}
    kernels = [
        position
        for position, (number, index) in enumerate(zip(links.pass_of, links.operation_of, strict=True))
        if activities[position].kind == "kernel" and number not in set_up and index not in searches
    ]
    repetition = find_repetition([(activities[at].name, activities[at].grid) for at in kernels])
    if repetition is None:
        return
    first, last = repetition.starts[0], repetition.starts[-1] + repetition.period
    took = [_duration(activities[at]) for at in kernels]
    if sum(took[first:last]) < REPEATED * sum(took):
        return
    begins = [kernels[start] for start in repetition.starts]
    ends = [*begins[1:], kernels[last] if last < len(kernels) else len(activities)]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        links.give_pass(range(begin, end), links.pass_id("iteration", number, repeated=True))


def _duration(activity: Activity) -> int:
    return 0 if activity.start_ns is None or activity.end_ns is None else activity.end_ns - activity.start_ns
