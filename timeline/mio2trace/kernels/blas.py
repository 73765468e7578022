"""GEMMs of CLBlast, clBLAS and ViennaCL (dvdt-ck.md 5; CLBlast src/routines, 0.7 .. 1.7).

CLBlast: the direct kernels, GEMV and Convgemm carry real sizes. The indirect ones (Xgemm, its batched forms and SYRK's
XgemmUpper/Lower) carry sizes rounded up to tiles; the real ones are in the copies and transposes around them. A GEMM of
clBLAS or ViennaCL consists of several kernels, and its rate is computed from the times of all of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
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
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, Profile
from mio2trace.patterns import late

A, B, C = 1, 2, 4  # matrices, as bits of a mask

# Positions in (M, N, K) of the first and second dimension of A, B and C as the kernel wants them, per GEMMK
# (Xgemm::CalculateInternalDimensions: with GEMMK = 1 A and C are turned).
_INSIDE: dict[int, dict[int, tuple[int, int]]] = {
    0: {A: (0, 2), B: (1, 2), C: (0, 1)},
    1: {A: (2, 0), B: (1, 2), C: (1, 0)},
}


# --- kernels with their own real sizes ---


def _direct(context: Context, kernel: Activity) -> KernelFact:
    m, n, k = (size(argument(kernel.opencl.arguments, index)) for index in (0, 1, 2))
    return by_arguments(Gemm(m, n, k) if m and n and k else None)


def _batched(context: Context, kernel: Activity) -> KernelFact:
    gemm, gws = _direct(context, kernel).gemm, kernel.grid
    return by_arguments(Gemm(gemm.m, gemm.n, gemm.k, gws[2]) if gemm and gws and gws[2] > 0 else None)


def _gemv(context: Context, kernel: Activity) -> KernelFact:
    """y (m) = A (m x n) * x (n). A banded matrix (args 16, 17: kl, ku) has no such product."""
    stated = kernel.opencl.arguments
    m, n = size(argument(stated, 0)), size(argument(stated, 1))
    return by_arguments(Gemm(m, 1, n) if m and n and not any(map(number, stated[16:18])) else None)


# --- the indirect path ---


Pick = Callable[[tuple[str, ...]], Any]


class Helper(msgspec.Struct, frozen=True):
    """How a {Copy,Transpose}{,Pad}Matrix kernel states its work. ``sizes`` picks src_one, src_two, dest_one, dest_two.

    A Fast kernel has equal sizes on both sides and states none.
    """

    turned: bool
    before: bool
    after: bool
    buffers: Pick  # source, destination
    sizes: Pick | None


def _helpers(suffix: str, buffers: tuple[int, int], sizes: tuple[int, int, int, int]) -> dict[str, Helper]:
    out: dict[str, Helper] = {}
    ends, extents = itemgetter(*buffers), itemgetter(*sizes)
    for verb, turned in (("Copy", False), ("Transpose", True)):
        out[f"{verb}PadMatrix{suffix}"] = Helper(turned, True, False, ends, extents)
        out[f"{verb}Matrix{suffix}"] = Helper(turned, False, True, ends, extents)
        if not suffix:
            out[f"{verb}MatrixFast"] = Helper(turned, True, True, itemgetter(1, 2), None)
    return out


class Indirect(msgspec.Struct, frozen=True):
    """An indirect kernel: how to find its A, B, C and its auxiliary kernels. Buffers are separate, or one temporary."""

    buffers: Pick
    helpers: dict[str, Helper]
    batched: bool = False
    syrk: bool = False  # no M argument: 0 = N, 1 = K


_PLAIN = _helpers("", (4, 9), (0, 1, 5, 6))
_SYRK = Indirect(itemgetter(4, 5, 6), _PLAIN, syrk=True)
_INDIRECT: dict[str, Indirect] = {
    "Xgemm": Indirect(itemgetter(5, 6, 7), _PLAIN),
    "XgemmBatched": Indirect(itemgetter(5, 8, 11), _helpers("Batched", (4, 9), (0, 1, 5, 6)), batched=True),
    "XgemmStridedBatched": Indirect(
        itemgetter(5, 8, 11), _helpers("StridedBatched", (5, 11), (0, 1, 6, 7)), batched=True
    ),
    "XgemmUpper": _SYRK,
    "XgemmLower": _SYRK,
}
MOST_BEFORE = 5  # A, B and C; SYR2K before 1.5 prepares A and B twice


class Copy(msgspec.Struct, frozen=True):
    """An auxiliary kernel for the solver. ``matrix``: the mask of the kernel's matrices that it may have copied."""

    turned: bool
    sizes: tuple[str, str, str, str] | None
    matrix: int


class Around(msgspec.Struct, frozen=True):
    """The auxiliary kernels of one indirect kernel, in order."""

    before: tuple[Copy, ...]
    after: Copy | None
    shared: int  # matrices in the buffer of C, as a mask
    sources: tuple[str, str]  # the source buffers of A and B, to distinguish SYR2K from two SYRKs
    first: int  # indices, in the queue's kernels, of the first and the last kernel of the row
    last: int


def _around(
    context: Context, kind: Indirect, line: list[int], index: int, main: Activity, twin: Activity | None
) -> Around | None:
    """Return the auxiliary kernels directly around kernel ``index``; None if a necessary argument is unknown.

    ``twin``: the second run of an old SYR2K's kernel, directly after it.
    """
    activities = context.activities
    helpers = kind.helpers
    try:
        a, b, c = kind.buffers(main.opencl.arguments)
        a2, b2 = kind.buffers(twin.opencl.arguments)[:2] if twin else (a, b)
        if not (a and b and c and a2 and b2):
            return None
        source_a, source_b = a, b
        before: list[Copy] = []
        first = index
        most = MOST_BEFORE if kind.syrk else 3
        while first > 0 and len(before) < most:
            activity = activities[line[first - 1]]
            helper = helpers.get(activity.name)
            if helper is None or not helper.before:
                break
            source, dest = helper.buffers(activity.opencl.arguments)
            matrix = (A if dest in (a, a2) else 0) | (B if dest in (b, b2) else 0) | (C if dest == c else 0)
            if not matrix:
                if not dest:
                    return None
                break  # it belongs to another kernel
            if dest == a:
                source_a = source
            elif dest == b:
                source_b = source
            before.append(_copy(helper, activity, matrix))
            first -= 1
        before.reverse()
        last = index + (2 if twin else 1)
        after = None
        if last < len(line):
            activity = activities[line[last]]
            helper = helpers.get(activity.name)
            if helper is not None and helper.after and helper.buffers(activity.opencl.arguments)[0] == c:
                after = _copy(helper, activity, C)
                last += 1
    except IndexError:
        return None
    shared = (A if c in (a, a2) else 0) | (B if c in (b, b2) else 0)
    return Around(tuple(before), after, shared, (source_a, source_b), first, last - 1)


def _copy(helper: Helper, activity: Activity, matrix: int) -> Copy:
    return Copy(helper.turned, helper.sizes and helper.sizes(activity.opencl.arguments), matrix)


@functools.lru_cache(maxsize=1 << 14)
def solve(
    padded: Triple, before: tuple[Copy, ...], after: Copy | None, shared: int, gemmk: int | None, syrk: bool
) -> Triple | None:
    """Return the real (M, N, K) that explain every auxiliary kernel; None unless there is exactly one such triple.

    A, B and C are prepared in this order, each only if it must be padded or transposed: a matrix without an auxiliary
    kernel has its real sizes in the kernel's arguments. If it matters which matrix was copied, or whether the kernel
    needs A and C transposed, all readings are tried: a wrong one contradicts itself.
    """
    answers: set[Triple] = set()
    # A Fast copy directly before may be the end of the previous GEMM, into a matrix that this one reads.
    starts = (before, before[1:]) if before and before[0].sizes is None else (before,)
    for kernel, copies in itertools.product((0, 1) if gemmk is None else (gemmk,), starts):
        for whose in itertools.product((A, B, C), repeat=len(copies)):
            answer = _reading(padded, copies, whose, after, shared, _INSIDE[kernel], syrk)
            if answer:
                answers.add(answer)
    return answers.pop() if len(answers) == 1 else None


def _reading(
    padded: Triple,
    copies: tuple[Copy, ...],
    whose: tuple[int, ...],
    after: Copy | None,
    shared: int,
    inside: dict[int, tuple[int, int]],
    syrk: bool,
) -> Triple | None:
    """Return the sizes if auxiliary kernel i made matrix ``whose[i]``; None if that contradicts itself."""
    if any(not copy.matrix & matrix for copy, matrix in zip(copies, whose, strict=True)):
        return None
    if not syrk and any(later <= earlier for earlier, later in itertools.pairwise(whose)):
        return None
    # A buffer that an auxiliary kernel writes, or from which the result is copied, is temporary: such a kernel filled
    # it.
    temporary = shared if after else 0
    covered = 0
    for copy, matrix in zip(copies, whose, strict=True):
        temporary |= copy.matrix
        covered |= copy.matrix if syrk else matrix  # SYRK's A and B may be one copy; its buffers are separate
    if temporary & (A | B) & ~covered:
        return None
    real: list[int | None] = [None, None, None]

    def put(dimensions: tuple[int, int], values: tuple[int | None, int | None]) -> bool:
        for dimension, value in zip(dimensions, values, strict=True):
            if value is None or value > padded[dimension] or real[dimension] not in (None, value):
                return False
            real[dimension] = value
        return True

    def read(copy: Copy, matrix: int, outwards: bool) -> bool:
        dimensions = inside[matrix]
        as_padded = padded[dimensions[0]], padded[dimensions[1]]
        if copy.sizes is None:
            return put(dimensions, as_padded)
        one, two, to_one, to_two = (size(value) for value in copy.sizes)
        kernels, users = ((one, two), (to_one, to_two)) if outwards else ((to_one, to_two), (one, two))
        return kernels == as_padded and put(dimensions, users[::-1] if copy.turned else users)

    if not all(read(copy, matrix, False) for copy, matrix in zip(copies, whose, strict=True)):
        return None
    if after and not read(after, C, True):
        return None
    for matrix in (A, B):
        if not covered & matrix and not put(inside[matrix], (padded[inside[matrix][0]], padded[inside[matrix][1]])):
            return None
    m, n, k = real
    if m is None or n is None or k is None or (syrk and m != n):
        return None
    return m, n, k


class _Done(msgspec.Struct, frozen=True):
    """The SYRK that was just found: a second one after it, with A and B exchanged, is the other half of a SYR2K."""

    line: list[int]
    last: int
    sources: tuple[str, str]
    sizes: Triple
    name: str


def _find_indirect(context: Context, places: list[Place]) -> None:
    known: dict[KernelFact, KernelFact] = {}
    gemmks: dict[int | None, int | None] = {}
    done: _Done | None = None
    second: Place | None = None  # the second run of an old SYR2K
    for line, index in places:
        position = line[index]
        main = context.activities[position]
        context.facts[position] = MAIN
        if second is not None and second[0] is line and second[1] == index:
            continue
        kind = _INDIRECT[main.name]
        arguments = main.opencl.arguments
        twin = None
        if kind.syrk:
            n, k = size(argument(arguments, 0)), size(argument(arguments, 1))
            m = n
            twin = _second_run(main, context.kernel(line, index + 1))
            if twin:
                second = line, index + 1
        else:
            m, n, k = (size(argument(arguments, at)) for at in (0, 1, 2))
        batch = 1
        if kind.batched:
            batch = main.grid[2] if main.grid else 0
        if not (m and n and k and batch > 0):
            continue
        around = _around(context, kind, line, index, main, twin)
        if around is None:
            continue
        if main.opencl.program not in gemmks:
            gemmks[main.opencl.program] = _gemmk(context, main)
        padded = m, n, k
        real = solve(padded, around.before, around.after, around.shared, gemmks[main.opencl.program], kind.syrk)
        if real is None:
            continue
        if kind.syrk:
            half = (
                done is not None
                and done.line is line
                and done.last == around.first - 1
                and done.sources == around.sources[::-1]
                and around.sources[0] != around.sources[1]
                and (done.sizes, done.name) == (real, main.name)
            )
            done = None if half else _Done(line, around.last, around.sources, real, main.name)
            if half:
                continue
        helped = bool(around.before or around.after)
        by, tiles = "helpers" if helped else "arguments", padded if padded != real else None
        fact = KernelFact(role="main", gemm=Gemm(*real, batch), padded=tiles, gemm_by=by)
        context.facts[position] = known.setdefault(fact, fact)


def _second_run(main: Activity, following: Activity | None) -> Activity | None:
    """Before 1.5 SYR2K runs its kernel twice on the same C, with A and B exchanged and no kernel between."""
    if following is None or following.name != main.name:
        return None
    here, there = main.opencl.arguments, following.opencl.arguments
    same = all(argument(here, at) and argument(here, at) == argument(there, at) for at in (0, 1, 6))
    return following if same and argument(here, 4) != argument(there, 4) else None


_GEMMK = late(rb"#define[ \t]+GEMMK[ \t]+(\d{1,18})(?!\d)")


def _gemmk(context: Context, main: Activity) -> int | None:
    """Return which of the two kernels a program contains: its first definition (from the database; a default may
    follow).

    Sources before 1.4 do not have the macro and contain kernel 0. None if no source has it.
    """
    programs, linked = context.profile.opencl.programs, main.opencl.program
    with_source = [(at, program) for at, program in enumerate(programs) if b"Xgemm(" in program.source]
    matches = [_GEMMK.search(program.source) for at, program in with_source if at == linked] or [
        _GEMMK.search(program.source) for _, program in with_source
    ]
    told = {int(match[1]) if match else 0 for match in matches}
    answer = told.pop() if len(told) == 1 else None
    return answer if answer in _INSIDE else None


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
        at_end = line[index + len(parts) - 1] in context.ends
        count, sizes = divide(tuple(parts), at_end) if len(parts) > 1 or at_end else (1, block.sizes)
        taken[id(line)] = index + count
        if sizes is not None:
            facts[position] = by_arguments(Gemm(*sizes))


ROWS = (
    row("CLBlast", "XgemmDirect(NN|NT|TN|TT)", each_alone(_direct)),
    row("CLBlast", "XgemmDirect(Strided)?Batched(NN|NT|TN|TT)|Xconvgemm(Normal|Flip)?", each_alone(_batched)),
    row("CLBlast", "|".join(_INDIRECT), _find_indirect),
    row("CLBlast", "Xgemv(Fast|FastRot)?", each_alone(_gemv)),
    row("clBLAS", _CLBLAS.pattern, each_alone(_clblas)),
    row("ViennaCL", _VIENNACL.pattern, _find_viennacl),
)


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
