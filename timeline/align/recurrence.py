"""The same kernel sequence comes again: an attributed stretch labels another one (trace-contract.md 3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType

from timeline.align.placement import NONE, Placement
from timeline.align.sequences import matches
from timeline.gemm import KernelFact
from timeline.model.log import Direction
from timeline.model.profile import Enqueue

BY = "recurrence"

LayerKey = tuple[int, Direction]

HOST_LAYER_NS = 1_000_000
"""A layer that launches nothing and takes this long computes on the host; below, it hardly does anything."""


def signature(enqueue: Enqueue) -> Hashable:
    """What stays the same when an enqueue comes again: name, sizes and scalar arguments, not the buffers."""
    if enqueue.kind != "kernel":
        return enqueue.kind, enqueue.size_bytes
    return enqueue.name, enqueue.gws, enqueue.lws, tuple([a for a in enqueue.arguments if len(a) <= 8])


def is_filler(position: int, placement: Placement, facts: Mapping[int, KernelFact]) -> bool:
    """Whether an enqueue only prepares memory: a write, or a kernel that fills a buffer."""
    enqueue = placement.enqueues[position]
    if enqueue.kind != "kernel":
        return enqueue.kind == "write"
    fact = facts.get(position)
    return fact is not None and fact.role == "fill"


def place_by_recurrence(
    placement: Placement,
    reference: Sequence[int],
    target: Sequence[int],
    run_for: Callable[[LayerKey], int],
    facts: Mapping[int, KernelFact],
    unlaunched: Mapping[LayerKey, int] = MappingProxyType({}),
    by: str = BY,
) -> None:
    """Label ``target`` after the attributed ``reference``; ``run_for`` gives the target's run of a layer.

    A fill or write without a counterpart goes to the layer of the kernel that follows it, if that has one. Where a
    layer that launches nothing (its work ran on the host; ``unlaunched`` has its printed time in ns) lies in between,
    it may be that layer's and is not sure; it goes there if the host was busy between it and the kernel.
    """
    enqueues = placement.enqueues
    pairs = matches([signature(enqueues[i]) for i in reference], [signature(enqueues[i]) for i in target])
    if pairs is None:
        return
    layer_of: dict[int, LayerKey] = {}
    for i, j in pairs:
        run = placement.run_of[reference[i]]
        if run != NONE:
            layer_of[target[j]] = (placement.runs[run].layer_index, placement.runs[run].direction)
    matched = {target[j] for _, j in pairs}
    unsure = {target[j] for i, j in pairs if reference[i] in placement.unsure}
    following: LayerKey | None = None
    following_unsure = False
    next_begin: int | None = None
    host_layer: LayerKey | None = None
    for position in reversed(target):
        enqueue = enqueues[position]
        if position not in matched and is_filler(position, placement, facts):
            if following is not None:
                before = _layer_on_host(following, unlaunched)
                if before is not None:
                    unsure.add(position)
                    if host_layer is None and _busy(enqueue.host_end_ns, next_begin, unlaunched[before]):
                        host_layer = before
                layer_of[position] = host_layer or following
                if following_unsure:
                    unsure.add(position)
        else:
            # A kernel without a layer is the program's own: what prepares it is no layer's either.
            following, host_layer, following_unsure = layer_of.get(position), None, position in unsure
        next_begin = enqueue.prepared_ns or enqueue.host_start_ns
    for position in target:
        key = layer_of.get(position)
        if key is not None:
            placement.place([position], run_for(key), by, sure=position not in unsure)


def _layer_on_host(following: LayerKey, unlaunched: Mapping[LayerKey, int]) -> LayerKey | None:
    """The layer just before ``following`` in execution order, if it launches nothing and computes on the host."""
    index, direction = following
    before = (index - 1 if direction == "forward" else index + 1, direction)
    return before if unlaunched.get(before, 0) >= HOST_LAYER_NS else None


def _busy(done_ns: int | None, next_ns: int | None, printed_ns: int) -> bool:
    """Whether the host did something worth an eighth of the layer's printed mean between two enqueues."""
    return done_ns is not None and next_ns is not None and 8 * (next_ns - done_ns) >= printed_ns
