"""Whether a log's tensors are of other sizes than the kernels work on: it is of a run with another batch or net then.

A work-item of MIOpen's activation kernels takes 4 elements, 2 or 1 where the tensor, or a row of one that is not
packed, is no multiple of that: so in all of 232 launches of MIOpen 1.2 to 2.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mio2trace.align.links import NONE, Links
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Activity


def are_sizes_others(links: Links) -> bool:
    """Whether most activations that are linked work on more or fewer elements than their operations' tensors have."""
    operations = {operation.index: operation for operation in links.operations if operation.primitive == "activ"}
    fitting = others = 0
    for position, index in enumerate(links.operation_of):
        operation = operations.get(index) if index != NONE else None
        if operation is None or not operation.input:
            continue
        fits = _fits(links.activities[position], operation.input)
        if fits is not None:
            fitting, others = fitting + fits, others + (not fits)
    return others > fitting


def _fits(activity: Activity, sizes: Sequence[int]) -> bool | None:
    """Whether as many work-items are launched as a tensor of these sizes needs; None where no rule tells."""
    name = kernel_name(activity.name)
    if name is None or not name.miopen or name.primitives != ("activ",) or not activity.grid:
        return None
    elements, launched = prod(sizes), prod(activity.grid)
    group = prod(activity.workgroup) if activity.workgroup else 1
    # A runtime may launch whole work-groups alone.
    return any(0 <= launched - elements // unit < max(1, group) for unit in {_at_once(elements), _at_once(sizes[-1])})


def _at_once(length: int) -> int:
    """How many elements a work-item takes of rows of this length."""
    return next(unit for unit in (4, 2, 1) if length % unit == 0)
