"""GEMMs that consist of several kernels (dvdt-ck.md 5): those of clBLAS and ViennaCL, and the kernels of each.

The rate of such a GEMM is computed from the times of all of its kernels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mio2trace.kernels.facts import (
    MAIN,
    Context,
    KernelFact,
    Place,
    Triple,
    argument,
    by_arguments,
    each_alone,
    number,
    row,
    size,
)
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity, Profile
from mio2trace.patterns import late

# -- clBLAS ------------------------------------------------------------------------------------------------------------
#
# clBLAS src/library/blas/xgemm.cc: one GEMM is a tile, a row, a column and a corner kernel.
#
# Each is enqueued only where the sizes leave something for it, and all of them carry the same M, N, K. Row-major
# callers arrive here as column-major ones with A and B, M and N exchanged: the sizes are those of the kernels.

# Row, column and corner kernels have L (less than a tile) for X; hand-made ones have a suffix and a tile kernel beside
# them (GemmSpecialCases.cpp).
_CLBLAS = late(
    r"[sdcz]gemm_(?:Col|Row)_[NTC]{2}_B[01]_M(?P<m>[XL])(?P<rows>0{0,3}[1-9][0-9]{0,8})"
    r"_N(?P<n>[XL])(?P<columns>0{0,3}[1-9][0-9]{0,8})_KX[0-9]+"
    r"(?P<beside>_ROW|_COLUMN|_SINGLE)?"
)
_MAY_BE_SPLIT = late(r"sgemm_Col_NT_B1_MX(128_NX128|096_NX096)_KX16")


def _clblas(context: Context, kernel: Activity) -> KernelFact:
    """The GEMM belongs to its first kernel, which is the tile kernel if there is one."""
    arguments, match = kernel.opencl.arguments, _CLBLAS.fullmatch(kernel.name)
    m, n, k = (size(argument(arguments, index)) for index in (5, 6, 7))
    if match is None or match["beside"] or not (m and n and k):
        return MAIN
    # Which of the four come first follows from the sizes: tile and column need a whole tile of rows, tile and row a
    # whole tile of columns.
    rows, columns = m // int(match["rows"]) > 0, n // int(match["columns"]) > 0
    if (match["m"] == "X", match["n"] == "X") != (rows, columns):
        return MAIN
    if _MAY_BE_SPLIT.fullmatch(kernel.name):
        lda, ldb = size(argument(arguments, 8)), size(argument(arguments, 9))
        if lda is None or (lda == ldb and lda in (6144, 7168, 8192)):
            return MAIN  # perhaps one of the 4 or 16 products into which clBLAS divides such a GEMM
    return by_arguments(Gemm(m, n, k))


# -- ViennaCL ----------------------------------------------------------------------------------------------------------
#
# viennacl/device_specific/templates/matrix_product_template.hpp.
#
# One GEMM is cut into a part whose sizes are multiples of the tile and the remainders in M, N and K: up to eight
# consecutive activities in the order of three nested loops, M outermost. A block states its sizes and where in A, B
# and C it starts, so a block belongs to the GEMM exactly when it starts where the main part ends.

_VIENNACL = late("_prod_[NT]{2}")
# 0-2 M, N, K; then of C, A and B each: buffer, leading dimension, two starts, two strides; 21 alpha, 22 beta.
_C, _A, _B, _ALPHA, _BETA = 3, 9, 15, 21, 22
_ONE = {"003c", "0000803f", "000000000000f03f"}
MOST = 8

Starts = tuple[int, int]


class Block(NamedTuple):
    """One activity. ``matrices``: the arguments that all blocks of a GEMM share."""

    sizes: Triple
    starts: tuple[Starts, Starts, Starts]  # of C, A, B
    beta: str
    matrices: tuple[str, ...]


@functools.lru_cache(maxsize=1 << 12)
def _block(arguments: tuple[str, ...]) -> Block | None:
    m, n, k = (size(argument(arguments, index)) for index in (0, 1, 2))
    if not (m and n and k) or len(arguments) != _BETA + 1 or "" in arguments:
        return None
    starts: list[Starts] = []
    for matrix in (_C, _A, _B):
        first, second = number(arguments[matrix + 2]), number(arguments[matrix + 3])
        if first is None or second is None:
            return None
        starts.append((first, second))
    shared = [arguments[matrix + offset] for matrix in (_C, _A, _B) for offset in (0, 1, 4, 5)]
    return Block((m, n, k), (starts[0], starts[1], starts[2]), arguments[_BETA], (*shared, arguments[_ALPHA]))


# The number of parts of M, N and K; the most blocks first.
_SHAPES: list[Triple] = [
    (2, 2, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 1, 1), (1, 2, 1), (1, 1, 2),
]  # fmt: skip

Part = tuple[Triple, tuple[Starts, Starts, Starts], str]


@functools.lru_cache(maxsize=1 << 12)
def divide(parts: tuple[Part, ...], at_end: bool) -> tuple[int, Triple | None]:
    """Return how many of these blocks (which share their matrices) belong to the first GEMM, and its sizes.

    ``at_end``: the profile ends with the last of them, so blocks of the GEMM may be missing. Then its sizes are None
    unless no larger GEMM begins like this.
    """
    for shape in _SHAPES:
        whole = shape[0] * shape[1] * shape[2]
        if len(parts) < whole and not at_end:
            continue
        sizes = _fit(parts[:whole], shape)
        if sizes is not None:
            return (whole, sizes) if len(parts) >= whole else (len(parts), None)
    return 1, parts[0][0]


def _fit(parts: tuple[Part, ...], shape: Triple) -> Triple | None:
    """Return the sizes of a GEMM that is cut into ``shape`` (M, N, K) parts, if these are its first blocks."""
    main, origin, beta = parts[0]
    rest: list[int | None] = [None, None, None]
    for place, (sizes, starts, scale) in zip(itertools.product(*map(range, shape)), parts, strict=False):
        for dimension, remainder in enumerate(place):
            if not remainder:
                if sizes[dimension] != main[dimension]:
                    return None
            else:
                if sizes[dimension] >= main[dimension] or rest[dimension] not in (None, sizes[dimension]):
                    return None
                rest[dimension] = sizes[dimension]
        if scale not in _ONE if place[2] else scale != beta:
            return None
        m, n, k = (main[dimension] * place[dimension] for dimension in range(3))
        # Rows and columns change places with layout and transposition, so the two shifts are compared without order.
        for begin, zero, shift in zip(starts, origin, ((m, n), (m, k), (k, n)), strict=True):
            if sorted((begin[0] - zero[0], begin[1] - zero[1])) != sorted(shift):
                return None
    return main[0] + (rest[0] or 0), main[1] + (rest[1] or 0), main[2] + (rest[2] or 0)


def _find_viennacl(context: Context, places: list[Place]) -> None:
    facts, activities = context.facts, context.activities
    last = context.last_if_final
    taken: dict[int, int] = {}  # per queue: index of the first kernel that is not yet part of a GEMM
    for line, index in places:
        position = line[index]
        facts[position] = MAIN
        if index < taken.get(id(line), 0):
            continue
        first = activities[position]
        block = _block(first.opencl.arguments)
        if block is None:
            continue
        parts: list[Part] = [block[:3]]
        while len(parts) < MOST:
            following = context.kernel(line, index + len(parts))
            other = _block(following.opencl.arguments) if following and following.name == first.name else None
            if other is None or other.matrices != block.matrices:
                break
            parts.append(other[:3])
        at_end = line[index + len(parts) - 1] == last
        count, sizes = divide(tuple(parts), at_end) if len(parts) > 1 or at_end else (1, block.sizes)
        taken[id(line)] = index + count
        if sizes is not None:
            facts[position] = by_arguments(Gemm(*sizes))


CLBLAS_ROWS = (row("clBLAS", _CLBLAS.pattern, each_alone(_clblas)),)
VIENNACL_ROWS = (row("ViennaCL", _VIENNACL.pattern, _find_viennacl),)


# -- The kernels of each GEMM ------------------------------------------------------------------------------------------

_CLBLAS_SHARED = (0, 1, 2, 5, 6, 7)
"""A, B, C; M, N, K."""
_VIENNACL_SHARED = (3, 4, 7, 8, 9, 10, 13, 14, 15, 16, 19, 20)
"""Buffer, leading dimension and strides of C, A and B."""


def find_parts(profile: Profile, facts: Mapping[int, KernelFact]) -> dict[int, tuple[int, ...]]:
    """Return, for each activity with a GEMM, the positions of all kernels that compute it, its own first."""
    parts: dict[int, list[int]] = {}
    open_gemms: dict[int, int] = {}  # per queue: the GEMM whose blocks may follow
    activities, commands = profile.activities, profile.commands
    rows = np.flatnonzero(commands.is_kernel)
    for position, queue in zip(rows.tolist(), commands.queue[rows].tolist(), strict=True):
        fact = facts.get(position)
        if fact is not None and fact.gemm is not None:
            parts[position] = [position]
            open_gemms[queue] = position
            continue
        first = open_gemms.get(queue)
        if first is not None and fact == MAIN and _belongs(activities[first], activities[position]):
            parts[first].append(position)
        else:
            open_gemms.pop(queue, None)
    return {position: tuple(found) for position, found in parts.items()}


def _belongs(first: Activity, other: Activity) -> bool:
    """Return whether ``other`` computes a part of the GEMM of ``first``."""
    if _VIENNACL.fullmatch(first.name):
        return first.name == other.name and _agree(first, other, _VIENNACL_SHARED)
    if _CLBLAS.fullmatch(first.name) and _CLBLAS.fullmatch(other.name):
        return _agree(first, other, _CLBLAS_SHARED)
    return False


def _agree(one: Activity, other: Activity, indexes: tuple[int, ...]) -> bool:
    return all(argument(one.opencl.arguments, index) == argument(other.opencl.arguments, index) for index in indexes)
