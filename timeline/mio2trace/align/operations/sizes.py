"""Whether a kernel's sizes can be those of an operation (miopen-log.md 6, 11; dvdt-ck.md 5)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mio2trace.model.gemm import Gemm
from mio2trace.ops.operation import Operation

_LARGEST_TILE = 256
"""Elements of the result that one work item of MIOpenGEMM computes at most, padding included."""


def is_part(gemm: Gemm, operation: Operation) -> bool:
    """Whether a GEMM of these sizes is one that a convolution is made of: for one image or for all, either way round.

    Row-major libraries compute the transpose, so M and N may change places. Forward and backward data have the images
    in N, backward weights in K; what is batched in one is a row of GEMMs in another (miopen-log.md 6, 11.1).
    """
    return any({gemm.m, gemm.n} == {m, n} and gemm.k == k for m, n, k in parts(operation))


def parts(operation: Operation) -> Iterator[tuple[int, int, int]]:
    """The (M, N, K) that a convolution may be computed by."""
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
            for m, n, _ in parts(operation)
            for items in (-(-m // 2) * n, m * -(-n // 2))
        )
    if name == "miog_betac_alphaab":
        fits = any(m * n <= _LARGEST_TILE * work_items and work_items <= 8 * m * n for m, n, _ in parts(operation))
        return None if fits else False
    return None


def step_fits(offset: int, operation: Operation) -> bool:
    """Whether a GEMM that begins so many elements into a buffer can be of a later image or group of a convolution."""
    groups = operation.groups or 1
    shapes = [operation.input[1:], operation.output[1:], operation.weights]
    if operation.input and operation.output:
        shapes.append((operation.input[1], *operation.output[2:]))  # the input, subsampled
    return any(shape and offset % max(1, prod(shape) // groups) == 0 for shape in shapes)
