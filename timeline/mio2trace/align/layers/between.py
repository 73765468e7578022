"""What ran between two activities of one iteration, on one queue, ran in that iteration, whatever it was.

Kernels of the program itself, or of calls that the log does not have, are in no layer: the iteration goes on around
them all the same. Between its two directions nothing tells which one. What lies between two iterations is in neither.
"""

from __future__ import annotations

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
