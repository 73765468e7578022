"""What ran between two activities of one iteration, on one queue, ran in that iteration, whatever it was.

Kernels of the program itself, or of calls that the log does not have, are in no layer: the iteration goes on around
them all the same. Between its two directions nothing tells which one. What lies between two iterations is in neither.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE, Links
from mio2trace.model.profile import Activity


def place_between(attribution: Attribution) -> None:
    """Passes of what is in none yet, by its neighbours on its queue."""
    links = attribution.links
    if not links.passes or NONE not in links.pass_of:
        return
    before: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    for position in _in_order(attribution.profile.activities):
        queue, pass_ = attribution.profile.activities[position].queue, links.pass_of[position]
        if pass_ == NONE:
            waiting.setdefault(queue, []).append(position)
            continue
        between = waiting.pop(queue, ())
        if between and (around := _around(links, before.get(queue, NONE), pass_)) != NONE:
            links.give_pass(between, around)
        before[queue] = pass_


def _in_order(activities: Sequence[Activity]) -> Iterable[int]:
    """Positions as they ran; as they were launched, if the times of some are not known."""
    starts = [activity.start_ns for activity in activities]
    known = [start for start in starts if start is not None]
    return sorted(range(len(starts)), key=known.__getitem__) if len(known) == len(starts) else range(len(starts))


def _around(links: Links, before: int, after: int) -> int:
    """The pass that two are, or the iteration that both are of; else `NONE`. What ran before the recording is known
    by its start alone: nothing else belongs to it."""
    if before != NONE and links.passes[before].phase == "before":
        return NONE
    if before in (after, NONE):
        return before
    one, other = links.passes[before], links.passes[after]
    if (one.phase, one.iteration, one.repeated) != (other.phase, other.iteration, other.repeated):
        return NONE
    return links.pass_id(one.phase, one.iteration, repeated=one.repeated)


def place_updates(attribution: Attribution) -> None:
    """Kernels of calls between an iteration's last layer line and its own line, where they follow its kernels."""
    links = attribution.links
    lines: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in attribution.events:
        if event.kind == "iteration" and event.number is not None:
            lines[event.source].append((event.line, event.number))
    if not lines:
        return
    layers: dict[int, list[int]] = defaultdict(list)
    for log in attribution.logs:
        for layer in log.layers:
            layers[layer.source].append(layer.line)
    for printed in lines.values():
        printed.sort()
    for rows in layers.values():
        rows.sort()
    iteration_of: dict[int, int] = {}
    for operation in links.operations:
        own, layer_lines, line = lines[operation.source], layers[operation.source], operation.line
        place, following = bisect_left(own, (line, 0)), bisect_right(layer_lines, line)
        if operation.phase != "run" or place == len(own):
            continue
        end, iteration = own[place]
        if following == len(layer_lines) or layer_lines[following] > end:
            iteration_of[operation.index] = iteration
    if not iteration_of:
        return
    before: dict[int, int | None] = {}
    for position, (activity, pass_) in enumerate(zip(attribution.profile.activities, links.pass_of, strict=True)):
        if pass_ != NONE:
            before[activity.queue] = links.passes[pass_].iteration
            continue
        iteration = iteration_of.get(links.operation_of[position], 0)
        if iteration and iteration == before.get(activity.queue):
            links.give_pass([position], links.pass_id("iteration", iteration))
