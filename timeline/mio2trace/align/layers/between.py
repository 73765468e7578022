"""Iterations of activities without layer: what ran on a queue between two activities of one iteration is in it.

Between two directions it has none. Between two iterations it is in neither."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE, Links, neighbours
from mio2trace.model.tables import NO, Activities, Numbers, by_key, in_order_of, numbers


def place_between(attribution: Attribution) -> None:
    """Set passes by the neighbours on the queue."""
    links, commands = attribution.links, attribution.profile.commands
    if not links.passes or NONE not in links.pass_of:
        return
    order = _in_order(commands)
    order = order[in_order_of(commands.queue[order])]
    passes, queues, rows = np.asarray(links.pass_of)[order], commands.queue[order], np.arange(len(order))
    last, next_ = neighbours(passes != NONE)
    waiting = np.flatnonzero((passes == NONE) & (next_ < len(rows)))
    waiting = waiting[queues[next_[waiting]] == queues[waiting]]
    last, next_ = last[waiting], next_[waiting]
    before = np.where((last != NONE) & (queues[last] == queues[waiting]), passes[last], NONE)
    count = len(links.passes)
    keys = (before.astype(np.int64) + 1) * count + passes[next_]
    # as they ran, for passes are numbered in that order
    rank = np.empty_like(order)
    rank[_in_order(commands)] = rows
    ran = np.argsort(rank[order[next_]], kind="stable")
    for key, positions in by_key(order[waiting][ran], keys[ran]):
        one, other = divmod(key, count)
        if (around := _around(links, one - 1, other)) != NONE:
            links.give_pass(positions, around)


def _in_order(commands: Activities) -> Numbers:
    """Return positions by start; by launch if some times are unknown."""
    starts = commands.start_ns
    return np.arange(len(starts)) if (starts == NO).any() else np.argsort(starts, kind="stable")


def _around(links: Links, before: int, after: int) -> int:
    """Return the pass of both, or their iteration; else `NONE`, also next to commands from before the recording."""
    if before != NONE and links.passes[before].phase == "before":
        return NONE
    if before in (after, NONE):
        return before
    one, other = links.passes[before], links.passes[after]
    if (one.phase, one.iteration, one.repeated) != (other.phase, other.iteration, other.repeated):
        return NONE
    return links.pass_id(one.phase, one.iteration, repeated=one.repeated)


def place_updates(attribution: Attribution) -> None:
    """Set passes of kernels of calls between the last layer line of an iteration and its own line."""
    links = attribution.links
    ended = sorted(
        (event.source, event.line, event.number)
        for event in attribution.events
        if event.kind == "iteration" and event.number is not None
    )
    layer_lines = sorted((layer.source, layer.line) for log in attribution.logs for layer in log.layers)
    iteration_of: dict[int, int] = {}
    for operation in links.operations if ended else ():
        own = operation.source, operation.line
        place, following = bisect_left(ended, (*own, 0)), bisect_right(layer_lines, own)
        if operation.phase != "run" or place == len(ended) or ended[place][0] != operation.source:
            continue
        source, end, iteration = ended[place]
        if following == len(layer_lines) or layer_lines[following] > (source, end):
            iteration_of[operation.index] = iteration
    if not iteration_of or not len(attribution.profile.activities):
        return
    passes = np.asarray(links.pass_of)
    iterations = numbers((one.iteration for one in links.passes), len(links.passes))
    indices = np.asarray(links.operation_of)
    ended_by = np.zeros(max(int(indices.max(initial=NONE)), *iteration_of) + 2, np.int64)
    ended_by[list(iteration_of)] = list(iteration_of.values())
    given: list[Numbers] = []
    for _, rows in by_key(np.arange(len(passes)), attribution.profile.commands.queue):
        last, _ = neighbours(passes[rows] != NONE)
        known = (passes[rows] == NONE) & (last != NONE) & (ended_by[indices[rows]] > 0)
        rows, last = rows[known], rows[last[known]]
        given.append(rows[iterations[passes[last]] == ended_by[indices[rows]]])
    updates = np.sort(np.concatenate(given))
    for iteration, rows in by_key(updates, ended_by[indices[updates]]):
        links.give_pass(rows, links.pass_id("iteration", iteration))
