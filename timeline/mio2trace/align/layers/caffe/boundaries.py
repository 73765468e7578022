"""Find out whether layer lines bound their layers, by stamps or places in the file (dvdt-ck.md 2.1, 2.3 c and d).

``caffe time`` prints all layer lines after the last iteration: these stamps bound nothing. A program that prints a line
after each layer leaves the layer's time between two stamps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mio2trace.align.clocks.fit import MIDDLE_OF_2000_NS, local_ns
from mio2trace.align.clocks.resolution import STAMP_NS, resolution
from mio2trace.align.operations.rates import LINE_NS
from mio2trace.model.log import LayerTime


def stamps_bound(layers: Sequence[LayerTime]) -> bool:
    """Return whether at least four fifths of the printed time fits between each stamp and the one before it.

    If layers are as short as the lines take, stamps bound nothing."""
    stamped = in_order(layers)
    if len(stamped) < 2 or len(stamped) < len(layers):
        return False
    step = resolution([time for time, _ in stamped], STAMP_NS)
    room = total = 0
    for (before, _), (after, layer) in pairwise(stamped):
        total += layer.printed_ns
        if after - before + step >= layer.printed_ns * 0.95:
            room += layer.printed_ns
    return total > max(LINE_NS, step) * len(stamped) and room >= 0.8 * total


def in_order(layers: Sequence[LayerTime]) -> list[tuple[int, LayerTime]]:
    """Return (local ns, layer) of the layers with a stamp, by stamp."""
    stamped = [(layer.stamp, layer) for layer in layers if layer.stamp is not None]
    if not stamped:
        return []
    first = stamped[0][0]
    near = local_ns(first, 0) if first.year else local_ns(first, MIDDLE_OF_2000_NS)
    return sorted(((local_ns(stamp, near), layer) for stamp, layer in stamped), key=lambda pair: pair[0])
