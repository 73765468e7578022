"""Whether a kernel's sizes can be those of an operation (miopen-log.md 6, 11; dvdt-ck.md 5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Size3
from mio2trace.ops.operation import Operation
from mio2trace.patterns import late

_IM2COL, _COL2IM = late(r"Im(?:2d)?2Col$"), late(r"Col2Im(?:2d)?$")
_SUM = late(r"M[IL]OpenCvBwdWrW\w*_rdc$")
_GRADIENT = late(r"M[IL]OpenCvBwdWrW$")
_MAPS_AT_ONCE = (1, 4)
"""Input channels for which one work-group of `_GRADIENT` computes the weights' gradient."""
_PERMUTED = late(r"transpose_(?:NCHW2CNHW|CNHW2NCHW)|SubSample$|UpSample$")
_INTO, _BACK = late(r"transpose_NCHW2CNHW"), late(r"transpose_CNHW2NCHW")
_TILE_WIDTH, _TILE_HEIGHT, _GROUP = 32, 8, 256
"""Tile and work items of an im2col work-group for one channel; for four if small and without stride."""
_LARGEST_TILE = 256
"""The most elements of the result per work item of MIOpenGEMM, with padding."""


def is_part(gemm: Gemm, operation: Operation) -> bool:
    """Return whether a convolution may run a GEMM of these sizes; M and N may be swapped (miopen-log.md 6, 11.1)."""
    return any({gemm.m, gemm.n} == {m, n} and gemm.k == k for m, n, k in parts(operation))


def parts(operation: Operation) -> Iterator[tuple[int, int, int]]:
    """Yield the (M, N, K) that a convolution may be computed by."""
    whole = operation.gemm
    if whole is None:
        return
    yield whole.m, whole.n, whole.k
    images = operation.input[0] if operation.input else 1
    if operation.direction != "backward-weights":
        yield whole.m, whole.n * images, whole.k
    elif whole.k % images == 0:
        yield whole.m, whole.n, whole.k // images


def may_be_part(name: str, work_items: int, operation: Operation) -> bool | None:
    """Return the same by work items alone (MIOpenGEMM without source); None if unknown.

    ``miog_betac`` scales two elements per work item, line by line, in groups of 256; ``miog_betac_alphaab`` computes a
    tile per work item, each element once."""
    if name == "miog_betac":
        return any(
            work_items == -(-items // 256) * 256
            for m, n, _ in parts(operation)
            for items in (-(-m // 2) * n, m * -(-n // 2))
        )
    if name == "miog_betac_alphaab":
        fits = any(m * n <= _LARGEST_TILE * work_items and work_items <= 8 * m * n for m, n, _ in parts(operation))
        return None if fits else False
    return None


def _step_fits(offset: int, operation: Operation) -> bool:
    """Return whether a GEMM that begins at this element may be a later image's or group's."""
    groups = operation.groups or 1
    shapes = [operation.input[1:], operation.output[1:], operation.weights]
    if operation.input and operation.output:
        shapes.append((operation.input[1], *operation.output[2:]))  # the input, subsampled
    return any(shape and offset % max(1, prod(shape) // groups) == 0 for shape in shapes)


def items_fit(name: str, grid: Size3, workgroup: Size3 | None, operation: Operation) -> bool | None:
    """Return whether a kernel has the work items that its call's problem needs; None if unknown.

    im2col: a work-group per channel and tile. col2im: an item per input element. Sum of gradients: an item per weight.
    Rearrangement: an item per element or per four, for a filter of one element. Gradient of the weights: a row of
    work-groups per channel of the input, or per four. Other calls: `tensor_fits`."""
    if operation.primitive != "conv":
        return tensor_fits(name, grid, workgroup, operation)
    x, w, y = operation.input, operation.weights, operation.output
    if len(x) != 4 or len(w) != 4 or len(y) != 4:
        return None
    work_items = prod(grid)
    if _IM2COL.match(name):
        tiles = -(-y[3] // _TILE_WIDTH) * -(-y[2] // _TILE_HEIGHT)
        small = max(y[2:]) <= _TILE_HEIGHT and set(operation.stride) <= {1} and x[1] % 4 == 0
        return work_items == _GROUP * tiles * (x[1] // 4 if small else x[1])
    if _COL2IM.match(name):
        return work_items == prod(x[1:])
    if _SUM.match(name):
        return work_items == prod(w)
    if _PERMUTED.match(name):
        return max(w[2:]) == 1 and bool({work_items, 4 * work_items} & _rearranged(name, operation))
    if _GRADIENT.match(name) and workgroup is not None and workgroup[0] > 0 and (operation.groups or 1) == 1:
        return _rows_fit(grid, workgroup, x[1])
    return None


def _rearranged(name: str, operation: Operation) -> set[int]:
    """Return possible element counts of a rearranged tensor: a GEMM's input before it, its output behind it."""
    x, y = operation.input, operation.output
    of_input, of_output = {prod(x), x[0] * x[1] * prod(y[2:])}, {prod(y)}
    into, back = _INTO.match(name) is not None, _BACK.match(name) is not None
    if into == back or operation.mode == "transpose" or operation.direction not in ("forward", "backward-data"):
        return of_input | of_output
    return of_input if into == (operation.direction == "forward") else of_output


def _rows_fit(grid: Size3, workgroup: Size3, channels: int) -> bool:
    row = grid[0] // workgroup[0]
    rows = [max(1, -(-channels // maps)) for maps in _MAPS_AT_ONCE]
    if grid[1:] == (1, 1):  # rocprof v1 has the product of all dimensions
        return any(row % one == 0 for one in rows)
    return row in rows


def has_channels(stated: tuple[int, ...], operation: Operation) -> bool:
    """Return whether a convolution has these (output, input) channels; backward data computes the input."""
    groups = operation.groups or 1
    possible = {
        (operation.weights[0], operation.weights[1] * groups),
        (operation.weights[0] // groups, operation.weights[1]),
    }
    if operation.direction == "backward-data" or operation.direction is None or operation.mode == "transpose":
        possible |= {(inputs, outputs) for outputs, inputs in possible}
    return stated in possible


def gemm_key(m: int, n: int, k: int) -> tuple[int, int, int]:
    """M and N may be swapped."""
    return min(m, n), max(m, n), k


def steps_fit(offsets: Sequence[int], operation: Operation) -> bool:
    return all(_step_fits(offset, operation) for offset in offsets)


_BY_FOURS = late(r"MIOpen(?:Active|Neuron)(?:Fwd|Bwd)|Op4dTensorLite$")
"""Element-wise kernels: four elements per work item."""
_POOLING = late(r"mloPooling(?:G|AveBwd|MaxBwd)$")
_BIAS = late(r"OpTensorFwdBias$")
_NORM = late(r"(?:MIOpen)?BatchNorm\w*Spatial")
_WAVEFRONT = 64
_BIAS_GROUP, _MOST_GROUPS = 256, 4096
"""Work items per group that adds a bias, and the largest number of groups."""


def tensor_fits(name: str, grid: Size3, workgroup: Size3 | None, operation: Operation) -> bool | None:
    """Return whether the kernel works on tensors of these sizes; None if unknown.

    Element-wise: an item for 4, 2 or 1 elements that divide the tensor or a row. Pooling: a plane of items per plane.
    Bias and batch normalisation: a work-group per channel, of one image or all. A call in steps: an activation per
    step, of one gate or several."""
    sizes, primitive = operation.input, operation.primitive
    if primitive == "rnn" and _BY_FOURS.match(name):
        of_step = operation.problem.step_elements() if operation.problem is not None else ()
        fitting = any(0 <= prod(grid) - count // _at_once(count) < _padding(workgroup) for count in of_step)
        return fitting if of_step else None
    if not sizes or min(sizes) < 1 or min(grid) < 1:
        return None
    items = prod(grid)
    if primitive in ("activ", "optensor") and _BY_FOURS.match(name):
        elements = prod(sizes)
        padding = _padding(workgroup)
        return any(0 <= items - elements // unit < padding for unit in {_at_once(elements), _at_once(sizes[-1])})
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


def _padding(workgroup: Size3 | None) -> int:
    """Return the bound of additional work items: a runtime may launch whole work-groups only."""
    group = prod(workgroup) if workgroup else 1
    return group if group > 0 and group % _WAVEFRONT == 0 else 1


def _at_once(length: int) -> int:
    """Return how many elements of a row of this length a work item takes."""
    return next(unit for unit in (4, 2, 1) if length % unit == 0)
