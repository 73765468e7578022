"""Iterations that nothing names: what the kernels repeat."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.period import find_repetition
from mio2trace.align.links import NONE, Links
from mio2trace.model.profile import Activity

REPEATED = 0.9
"""Part of the kernel time from the first repetition on that the repetitions must cover to be iterations: set-up and
warm-up lie before it."""
MOST_SET_UP = 0.5
"""Part of all kernels that may lie before the first repetition."""


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
    items = _items(activities, kernels)
    repetition = find_repetition([tuple((activities[at].name, activities[at].grid) for at in item) for item in items])
    if repetition is None:
        return
    first, last = repetition.starts[0], repetition.starts[-1] + repetition.period
    took = [sum(_duration(activities[at]) for at in item) for item in items]
    before = sum(map(len, items[:first]))
    if before > MOST_SET_UP * len(kernels) or sum(took[first:last]) < REPEATED * sum(took[first:]):
        return
    begins = [items[start][0] for start in repetition.starts]
    ends = [*begins[1:], items[last][0] if last < len(items) else len(activities)]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        links.give_pass(range(begin, end), links.pass_id("iteration", number, repeated=True))


def _items(activities: Sequence[Activity], kernels: Sequence[int]) -> list[list[int]]:
    """What may repeat: each kernel, but all kernels of one graph launch together. RPD names none of these."""
    items: list[list[int]] = []
    call = None
    for position in kernels:
        activity = activities[position]
        if activity.is_replayed and activity.call is call:
            items[-1].append(position)
        else:
            items.append([position])
        call = activity.call
    return items


def _duration(activity: Activity) -> int:
    return 0 if activity.start_ns is None or activity.end_ns is None else activity.end_ns - activity.start_ns
