"""Layer lines whose stamps, or whose places in the file, really bound their layers (dvdt-ck.md 2.1, 2.3 c and d).

``caffe time`` prints all layer lines together after the last iteration: such stamps say nothing about layers. A program
that prints each line right after its layer ran leaves at least the layer's own time between two stamps. The stamps
decide, not the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from mio2trace.align.clocks.fit import MIDDLE_OF_2000_NS, STAMP_NS, local_ns
from mio2trace.align.layers.placement import LayerRun, Placement
from mio2trace.model.log import LayerTime

LINE_NS = 20_000
"""What printing a line may take: layer times that add up to no more than that say nothing about stamps."""


def stamps_bound(layers: Sequence[LayerTime]) -> bool:
    """Whether the stamps of ``layers``, in their own order, leave room for the layers' printed times.

    At least four fifths of the printed time (the first layer's aside, nothing precedes it) must fit between a stamp and
    the one before. Stamps of stock ``caffe time`` lie microseconds apart and hold none of it; where the layers took no
    longer than that, stamps cannot tell and bound nothing.
    """
    stamped = in_order(layers)
    if len(stamped) < 2 or len(stamped) < len(layers):
        return False
    room = total = 0
    for (before, _), (after, layer) in pairwise(stamped):
        total += layer.printed_ns
        if after - before + STAMP_NS >= layer.printed_ns * 0.95:
            room += layer.printed_ns
    return total > LINE_NS * len(stamped) and room >= 0.8 * total


def in_order(layers: Sequence[LayerTime]) -> list[tuple[int, LayerTime]]:
    """Layers with a stamp, as (local ns, layer), in the order of their stamps."""
    stamped = [(layer.stamp, layer) for layer in layers if layer.stamp is not None]
    if not stamped:
        return []
    first = stamped[0][0]
    near = local_ns(first, 0) if first.year else local_ns(first, MIDDLE_OF_2000_NS)
    return sorted(((local_ns(stamp, near), layer) for stamp, layer in stamped), key=lambda pair: pair[0])


def place_by_ends(
    placement: Placement,
    ends: Sequence[tuple[int, LayerTime]],
    iteration_of: Callable[[int], int],
    when: Callable[[int], int],
    reach_back: Callable[[int], int],
    by: str,
    host: Callable[[LayerTime], int | None],
) -> None:
    """Give each activity to the first layer whose end is not before it.

    ``ends``: (place on the axis, layer) in order; the axis is host time or lines. ``when`` places an activity on it.
    ``iteration_of`` tells the iteration of an end's number. The first layer of a row of layers, which nothing bounds
    from below, reaches back to ``reach_back`` of its number.
    """
    queues: dict[int, list[int]] = {}
    for position, activity in enumerate(placement.activities):
        queues.setdefault(activity.queue, []).append(position)
    done = dict.fromkeys(queues, 0)
    previous_end: int | None = None
    for number, (end, layer) in enumerate(ends):
        begin = reach_back(number)
        if begin < 0:
            begin = previous_end if previous_end is not None else end
        pass_ = placement.pass_id("iteration", iteration_of(number), layer.direction)
        host_end = host(layer)
        run = placement.add_run(
            LayerRun(
                layer=layer.layer,
                layer_index=layer.index,
                direction=layer.direction,
                pass_=pass_,
                printed_ns=layer.printed_ns,
                host_start_ns=None if host_end is None else host_end - layer.printed_ns,
                host_end_ns=host_end,
            )
        )
        for queue, positions in queues.items():
            at, count = done[queue], len(positions)
            while at < count and when(positions[at]) <= begin:
                at += 1
            first = at
            while at < count and when(positions[at]) <= end:
                at += 1
            done[queue] = at
            placement.place(positions[first:at], run, by)
        previous_end = end
