"""Whether a log's tensors are of other sizes than the kernels work on: it is of a run with another batch or net then.

Activations and pooling tell it: how many work-items they launch depends on the whole tensor (`tensor_fits`).
"""

from __future__ import annotations

from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.rows.tensor_sizes import tensor_fits
from mio2trace.kernels.names import kernel_name

_WHOLE_TENSORS = frozenset(("activ", "pool"))


def are_sizes_others(links: Links) -> bool:
    """Whether most such kernels that are linked work on more or fewer elements than their operations' tensors have."""
    operations = {one.index: one for one in links.operations if one.primitive in _WHOLE_TENSORS}
    fitting = others = 0
    for position, index in enumerate(links.operation_of):
        operation = operations.get(index) if index != NONE else None
        if operation is None:
            continue
        activity = links.activities[position]
        name = kernel_name(activity.name)
        if name is None or name.primitives != (operation.primitive,) or not activity.grid:
            continue
        fits = tensor_fits(activity.name, activity.grid, activity.workgroup, operation)
        if fits is not None:
            fitting, others = fitting + fits, others + (not fits)
    return others > fitting
