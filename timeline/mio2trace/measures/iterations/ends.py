"""Whether the profile begins or ends within an iteration, as the log's net tells: of one that nothing is like.

An iteration is less where layers at its begin or end have no kernel, though layers of their type launch kernels
elsewhere, or though calls of the log before its first kernel, or behind its last, launched nothing; and where the timer
marks stop within one of its layers. It was cut by the profile, or by the log, which then tells of no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.caffe.names import types_of
from mio2trace.align.layers.net import LayerKey

BEGINS, ENDS = "the profile begins in it", "the profile ends in it"


def not_whole(alignment: Alignment, place_of: Sequence[int], numbers: Mapping[int, int]) -> dict[int, str]:
    """Why the first or the last iteration is not whole, by its place, where that is seen.

    ``numbers``: of iterations by their places (``place_of``: of each activity), in order.
    """
    if not numbers or not any(log.layers or log.net for log in alignment.logs):
        return {}
    links = alignment.links
    order = [(layer.index, direction) for layer, direction in alignment.net.execution_order()]
    kinds = {layer.index: types_of(layer.layer, layer.type) or layer.layer for layer in alignment.net.layers}

    def kind(key: LayerKey) -> Hashable:
        return kinds.get(key[0], key[0]), key[1]

    number_of = [(pass_.phase, pass_.number) for pass_ in links.passes]
    ran: dict[tuple[str, int | None], set[LayerKey]] = defaultdict(set)
    stopped = set()
    activities = alignment.profile.activities
    launched = {run for run, one in zip(links.run_of, activities, strict=True) if one.kind == "kernel"}
    for at, made in enumerate(links.runs):
        if at in launched:
            ran[number_of[made.pass_]].add((made.layer_index, made.direction))
        if made.host_start_ns is not None and made.host_end_ns is None:
            stopped.add(number_of[made.pass_])
    launching = {kind(key) for key in set[LayerKey]().union(*ran.values())}
    (first, *_), (*_, last) = numbers, numbers
    why: dict[int, str] = {}
    for place, at_end in ((first, False), (last, True)):
        number = "iteration", numbers[place]
        places = [at for at, key in enumerate(order) if key in ran.get(number, ())]
        if not places or (not at_end and any(phase == "warm-up" for phase, _ in ran)):
            continue
        missing = order[places[-1] + 1 :] if at_end else order[: places[0]]
        if not _is_at_edge(alignment, place_of, place, at_end):
            continue  # its kernels are there: only what they belong to is not known
        if (
            any(kind(key) in launching for key in missing)
            or (missing and _is_silent(alignment, at_end))
            or (at_end and number in stopped)
        ):
            why.setdefault(place, ENDS if at_end else BEGINS)
    return why


def _is_at_edge(alignment: Alignment, place_of: Sequence[int], place: int, at_end: bool) -> bool:
    """Whether the profile's first kernel, or its last, is in this iteration."""
    activities = alignment.profile.activities
    positions = range(len(activities))
    return place == next(
        (place_of[at] for at in (reversed(positions) if at_end else positions) if activities[at].kind == "kernel"), NONE
    )


def _is_silent(alignment: Alignment, at_end: bool) -> bool:
    """Whether calls that the log has behind all that launched a kernel, or before them, did not."""
    links = alignment.links
    linked = [index for index in links.operation_of if index != NONE]
    if not linked:
        return False
    edge = max(linked) if at_end else min(linked)
    return any((one.index > edge if at_end else one.index < edge) for one in links.operations if one.phase == "run")
