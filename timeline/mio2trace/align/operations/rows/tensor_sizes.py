"""Whether a kernel has as many work-items as the tensors of an operation need that is no convolution.

Laws of MIOpen 1.2 to 2.9, in all launches with ground truth (`benchmarks/rates.py`). None where no law tells.
"""

from __future__ import annotations

import re
from math import prod

from mio2trace.model.profile import Size3
from mio2trace.ops.operation import Operation

_BY_FOURS = re.compile(r"MIOpen(?:Active|Neuron)(?:Fwd|Bwd)|Op4dTensorLite$")
"""What works on each element alone: a work-item takes four."""
_POOLING = re.compile(r"mloPooling(?:G|AveBwd|MaxBwd)$")
_BIAS = re.compile(r"OpTensorFwdBias$")
_NORM = re.compile(r"(?:MIOpen)?BatchNorm\w*Spatial")
_BIAS_GROUP, _MOST_GROUPS = 256, 4096
"""Work-items of a group that adds a bias, and how many groups there are at most."""


def tensor_fits(name: str, grid: Size3, workgroup: Size3 | None, operation: Operation) -> bool | None:
    """Whether the kernel works on tensors of these sizes.

    Element by element: a work-item for 4 elements, 2 or 1 where the tensor, or a row of one that is not packed, is no
    multiple of that. Pooling has a plane of work-items for each plane of the tensor. A bias has a work-group for each
    channel, of one image or of all; so has batch normalisation, of any number of work-items.
    """
    sizes, primitive = operation.input, operation.primitive
    if not sizes or min(sizes) < 1 or min(grid) < 1:
        return None
    items = prod(grid)
    if primitive in ("activ", "optensor") and _BY_FOURS.match(name):
        group = prod(workgroup) if workgroup else 1
        elements = prod(sizes)
        # A runtime may launch whole work-groups alone.
        return any(0 <= items - elements // unit < max(1, group) for unit in {_at_once(elements), _at_once(sizes[-1])})
    if len(sizes) != 4:
        return None
    images, channels = sizes[:2]
    if primitive == "pool" and _POOLING.match(name):
        planes = images * channels
        # rocprof v1 has the product of all dimensions.
        return items % planes == 0 if grid[1:] == (1, 1) else grid[2] == planes
    if primitive in ("bias", "optensor") and _BIAS.match(name):
        return items in {_BIAS_GROUP * min(_MOST_GROUPS, groups) for groups in (channels, channels * images)}
    if primitive == "bnorm" and _NORM.match(name):
        return items % channels == 0 if grid[1:] == (1, 1) else channels in grid[:2]
    return None


def _at_once(length: int) -> int:
    """How many elements a work-item takes of rows of this length."""
    return next(unit for unit in (4, 2, 1) if length % unit == 0)
