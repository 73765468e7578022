"""Whether a kernel's sizes can be those of an operation (miopen-log.md 6, 11; dvdt-ck.md 5)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mio2trace.model.gemm import Gemm
from mio2trace.ops.operation import Operation

# What each point decides: docs/alignment.md.
RIGHT_SIZES, WRONG_SIZES = 1.5, -1.5
_LARGEST_TILE = 256
"""Elements of the result that one work item of MIOpenGEMM computes at most, padding included."""


def is_part(gemm: Gemm, operation: Operation) -> bool:
    """Whether a GEMM of these sizes is one that a convolution is made of: for one image or for all, either way round.

    Row-major libraries compute the transpose, so M and N may change places. Forward and backward data have the images
    in N, backward weights in K; what is batched in one is a row of GEMMs in another (miopen-log.md 6, 11.1).
    """
    return any({gemm.m, gemm.n} == {m, n} and gemm.k == k for m, n, k in _parts(operation))


def _parts(operation: Operation) -> Iterator[tuple[int, int, int]]:
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
    """The same for MIOpenGEMM's kernels where their source is not at hand: by the number of work items alone.

    ``miog_betac`` scales two elements of the result with each work item, line by line, in work-groups of 256;
    ``miog_betac_alphaab`` computes a tile of the result with each, and no element twice. None where that tells nothing.
    """
    if name == "miog_betac":
        return any(
            work_items == -(-items // 256) * 256
            for m, n, _ in _parts(operation)
            for items in (-(-m // 2) * n, m * -(-n // 2))
        )
    if name == "miog_betac_alphaab":
        fits = any(m * n <= _LARGEST_TILE * work_items and work_items <= 8 * m * n for m, n, _ in _parts(operation))
        return None if fits else False
    return None


def stated_sizes(numbers: frozenset[int], operation: Operation) -> float:
    """Points for the operation's sizes being among the numbers that the kernel was built or called with."""
    shapes = [shape for shape in (operation.input, operation.weights, operation.output) if shape]
    sizes = {size for shape in shapes for size in shape if size > 3}
    if not sizes:
        return 0.0
    if sizes <= numbers:
        return RIGHT_SIZES
    if operation.primitive in ("conv", "pool", "lrn") and 2 * len(sizes & numbers) < len(sizes):
        return WRONG_SIZES
    # Element-wise kernels count elements, whatever their arrangement.
    return RIGHT_SIZES if any(prod(shape) in numbers for shape in shapes) else 0.0
