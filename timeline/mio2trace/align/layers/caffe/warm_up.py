"""Set-up and warm-up: what runs before iteration 1. The warm-up runs each layer once and prints no times.

Log lines bound the warm-up; its layers follow from similarity to iteration 1."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise

from mio2trace.align.attribution import DIRECTIONS, Attribution
from mio2trace.align.clocks.axis import Timeline
from mio2trace.align.clocks.fit import STAMP_NS
from mio2trace.align.layers.caffe.by_names import place_by_names
from mio2trace.align.layers.recurrence import is_filler, place_by_recurrence, signature
from mio2trace.align.links import NONE
from mio2trace.align.operations.rates import FEW, LIKE, UNEVEN
from mio2trace.align.sequences import matches
from mio2trace.evidence import NAME_AND_SIZES, RECURRENCE
from mio2trace.model.log import Direction

_SHARED = 2
"""Buffers that a net fills once, with its first layer: its input, and one that its convolutions share."""
_OF_WARM_UP = frozenset(("forward begins", "forward ends", "backward begins"))


def place_before_iterations(attribution: Attribution) -> None:
    links, axis = attribution.links, attribution.axis
    first_iteration = next(
        (i for i, pass_ in enumerate(links.pass_of) if pass_ != NONE), len(attribution.profile.activities)
    )
    begins = _benchmark_begins(attribution, axis)
    if begins is not None and (first_iteration == len(links.pass_of) or not _coarse(attribution, axis)):
        first_iteration = min(first_iteration, begins)
    warm = _bounded(attribution, axis, first_iteration)
    for direction, positions in warm.items():
        pass_ = links.pass_id("warm-up", 0, direction)
        reference = attribution.reference(direction)
        runs_of = attribution.runs_of_pass(pass_)
        if RECURRENCE not in attribution.without and reference:
            place_by_recurrence(attribution, reference, positions, runs_of, attribution.unlaunched())
        # Where each layer's end is printed kernels run for the printing, too.
        if NAME_AND_SIZES not in attribution.without and not any(e.kind == "layer ended" for e in attribution.events):
            place_by_names(attribution, positions, direction, runs_of)
        links.give_pass(positions, pass_)
    kinds = {event.kind for event in attribution.events}
    if not warm and (begins is None or not kinds.isdisjoint(_OF_WARM_UP)):
        _place_by_likeness(attribution, first_iteration)
    if warm or begins is not None or (axis is None and _is_set_up(attribution, kinds, first_iteration)):
        setup = range(0, min((positions.start for positions in warm.values()), default=first_iteration))
    else:
        setup = range(0, _searched(attribution, first_iteration))
    if setup:
        links.give_pass(setup, links.pass_id("setup"))


def _is_set_up(attribution: Attribution, kinds: Set[str], limit: int) -> bool:
    """Return whether all that is before iteration 1 is set-up: the log has no warm-up, and nothing there has a pass."""
    links = attribution.links
    if "benchmark begins" not in kinds or not kinds.isdisjoint(_OF_WARM_UP) or limit >= len(links.pass_of):
        return False
    return links.iteration_of(limit) == 1 and all(pass_ == NONE for pass_ in links.pass_of[:limit])


def _searched(attribution: Attribution, limit: int) -> int:
    """Return the place behind the last search before all layers. 736 of 736 kernels of searches are in the set-up."""
    links = attribution.links
    if not attribution.net.layers:
        return 0
    limit = next((position for position in range(limit) if links.pass_of[position] != NONE), limit)
    searches = {operation.index for operation in links.operations if operation.phase == "find"}
    return next((1 + position for position in range(limit - 1, -1, -1) if links.operation_of[position] in searches), 0)


def _benchmark_begins(attribution: Attribution, axis: Timeline | None) -> int | None:
    if axis is None:
        return None
    places = [
        place for event in attribution.events if event.kind == "benchmark begins" and (place := axis.event(event))
    ]
    if not places:
        return None
    return axis.first_after(places[0])


def _bounded(attribution: Attribution, axis: Timeline | None, limit: int) -> dict[Direction, range]:
    """Return the warm-up's activities by direction, as the log's lines bound them."""
    if axis is not None:
        places = {
            event.kind: place
            for event in attribution.events
            if event.kind in ("forward begins", "forward ends", "backward begins", "benchmark begins")
            and (place := axis.event(event)) is not None
        }
        done = places.get("forward ends", places.get("backward begins"))
        if "forward begins" in places and (done is not None or attribution.net.backward is False):
            first = axis.first_after(places["forward begins"])
            last = limit if done is None else axis.first_after(done + _coarse(attribution, axis))
            warm: dict[Direction, range] = {"forward": range(first, max(first, min(last, limit)))}
            if "backward begins" in places:
                begin = axis.first_after(places["backward begins"])
                if begin < limit:
                    warm["backward"] = range(begin, limit)
            return {direction: positions for direction, positions in warm.items() if positions}
    return {}


def _coarse(attribution: Attribution, axis: Timeline | None) -> int:
    """The error of a line's stamp if stamps are coarse."""
    is_coarse = axis is not None and not axis.by_line and attribution.stamp_ns > STAMP_NS
    return attribution.stamp_ns if is_coarse else 0


def _place_by_likeness(attribution: Attribution, limit: int) -> None:
    """Without lines, what runs before iteration 1 is its warm-up if it has most of its kernels."""
    activities, links = attribution.profile.activities, attribution.links
    forward = attribution.reference("forward")
    if RECURRENCE in attribution.without or not forward or not 0 < limit < len(activities):
        return
    if links.iteration_of(forward[0]) != 1 or not attribution.net.is_whole:
        return  # an iteration that the log lost may come before it
    reference = [*forward, *attribution.reference("backward")]
    pairs = matches([signature(activities[i]) for i in reference], [signature(e) for e in activities[:limit]])
    if pairs is None or 2 * len(pairs) < len(forward):
        return
    # A warm-up runs nothing else, but that it prepares memory; searches run what an iteration does, and more.
    between = range(pairs[0][1], pairs[-1][1])
    others = sum(not is_filler(attribution, position) for position in between) - len(pairs)
    if others > FEW * len(pairs):
        return
    passes = {direction: links.pass_id("warm-up", 0, direction) for direction in (*DIRECTIONS, None)}
    runs = {direction: attribution.runs_of_pass(pass_) for direction, pass_ in passes.items()}
    place_by_recurrence(attribution, reference, range(limit), lambda key: runs[key[1]](key), attribution.unlaunched())
    # What comes before the first kernel that is known may as well be set-up: no line divides them.
    first = pairs[0][1]
    if _is_prepared_as_others(attribution, [place for _, place in pairs]):
        links.doubt_layer(range(first), LIKE)
        first = 0
    for position in range(first):  # of made-up runs whose set-up writes first, 28 of 333 are the warm-up's
        links.take_layer(position)
    if 10 * len(pairs) < 9 * len(forward):
        # It may be something else; of 900 such links 95 % are right.
        links.doubt_layer((p for p in range(pairs[0][1], limit) if links.run_of[p] != NONE), UNEVEN)
    turn = next((p for p in range(limit) if links.pass_of[p] == passes["backward"]), limit)
    links.give_pass(range(turn), passes["forward"])
    links.give_pass(range(turn, limit), passes["backward"])


def _is_prepared_as_others(attribution: Attribution, known: Sequence[int]) -> bool:
    """Whether the warm-up writes and fills as much for a later kernel with the name of the first one that is ``known``:
    it makes the memory of each layer when this first runs. With the first one it makes what all share, and the input.
    """
    activities = attribution.profile.activities

    def prepared(start: int, stop: int) -> tuple[int, int]:
        fills = sum(activities[place].kind == "kernel" for place in range(start, stop))
        return stop - start - fills, fills

    writes, fills = prepared(0, known[0])
    later = [
        prepared(before + 1, after)
        for before, after in pairwise(known)
        if activities[after].name == activities[known[0]].name
    ]
    return any(writes <= its_writes and fills <= its_fills + _SHARED for its_writes, its_fills in later)
