"""Real sizes of GEMM kernels: every library row on made-up profiles, laws on any sizes, truth on real samples."""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import score
from mio2trace import kernels
from mio2trace.kernels import KernelFact, find_gemms
from mio2trace.kernels.facts import Sources, number, plain_text, size
from mio2trace.kernels.names import kernel_name
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, BufferCreated, Profile, Program, Size3, TimerMark
from tests.records import changed, enqueued, opencl_profile, with_opencl
from tests.small_runs import read

ONE, ZERO = struct.pack("<f", 1.0).hex(), struct.pack("<f", 0.0).hex()


def i32(value: int) -> str:
    return struct.pack("<i", value).hex()


def mem(name: object) -> str:
    """A cl_mem handle, the same for the same name."""
    return struct.pack("<Q", 0x55AA_0000_0000 + zlib.crc32(str(name).encode())).hex()


def kernel(name: str, *arguments: int | str, **more: Any) -> Activity:
    """An enqueued kernel; ints become 4 byte arguments."""
    values = tuple(i32(value) if isinstance(value, int) else value for value in arguments)
    return enqueued(number=0, kind="kernel", name=name, arguments=values, **more)


READ = enqueued(number=0, kind="read", name="clEnqueueReadBuffer")
OTHER = kernel("relu_forward_float", 10, mem("x"), mem("x"), ZERO)


def profile(
    enqueues: Iterable[Activity], programs: Sequence[Program] = (), buffers: Sequence[tuple[str, int]] = ()
) -> Profile:
    """Buffers and programs first, then the enqueues."""
    made = [BufferCreated(number=at, handle=handle, size_bytes=size) for at, (handle, size) in enumerate(buffers)]
    start = len(made) + len(programs)
    activities = [changed(enqueue, number=start + at) for at, enqueue in enumerate(enqueues)]
    return opencl_profile(programs=programs, buffers=made, activities=activities)


def program(index: int, source: str = "", options: str = "") -> Program:
    return Program(index=index, number=index, handle=f"0x{index + 16:x}", source=source.encode(), options=options)


def gemms(profile: Profile) -> dict[int, Gemm]:
    return {at: fact.gemm for at, fact in find_gemms(profile).items() if fact.gemm}


# --- the record ---


def test_arguments_are_little_endian_hex() -> None:
    """A dimension is a positive 4 byte int; anything else is not known."""
    assert size("2c010000") == 300
    assert number("2c01000000000000") == 300
    assert [size(value) for value in ("", "2c01", "00000000", "ffffffff", "2c01000000000000", "zz010000")] == [None] * 6
    assert number("nothexa!") is None


# --- roles ---

ROLES = {
    "im2col_float": "im2col", "im2col_nd_float": "im2col", "col2im_float": "col2im", "fillbuffer_float": "fill",
    "fill_float": "fill", "fill_memory": "fill", "Im2Col": "im2col", "Im2d2Col": "im2col", "Im2d2Col_v2": "im2col",
    "Im3d2Col": "im2col", "Col2Im": "col2im", "Col2Im2d": "col2im", "Col2Im3dU": "col2im",
    "transpose_NCHW2CNHW": "transpose", "transpose_CNHW2NCHW_opt": "transpose",
    "batched_transpose_32x32_dword": "transpose", "SubTensorOpWithScalar1d": "fill", "SetTensor": "fill",
    "SubTensorOpWithCastTensor4d": "cast", "SubTensorOpWithSubTensor2d": "copy", "CopyPadMatrix": "pad",
    "TransposePadMatrixBatched": "transpose", "TransposeMatrix": "transpose", "CopyMatrixFast": "copy",
    "Xim2colKernelNormal": "im2col", "Xim2colKernelFlip": "im2col", "im2col": "im2col", "miog_betac": "scale",
    "miog_betac_a": "",
    "tg_copya": "copy", "gemm_reshape_lhs_matrix_nt": "reshape", "gemm_interleave4x4": "reshape",
    "gemm_transpose1xW": "transpose", "gemm_accumulate_biases": "bias", "gemm_ma_f32": "bias",
    "im2col3x3_nhwc": "im2col", "fill_image_borders_constant": "pad", "MIOpenCvBwdWrW_rdc": "reduce",
    "__amd_rocclr_fillBufferAligned": "fill", "miog_copya": "copy", "SubSample": "subsample", "UpSample": "upsample",
    "MIOpenBatchNormFwdTrainSpatialFinalMeanVariance": "statistics", "MIOpenConvFFT_fwd_in": "transform",
    "relu_forward_float": "", "MIOpenConvUni": "", "reshape_layer": "", "fill": "", "concat_float": "", "Xcopy": "",
}  # fmt: skip


@pytest.mark.parametrize(("name", "role"), ROLES.items())
def test_a_name_tells_a_helper(name: str, role: str) -> None:
    """Helpers have a role by name; an ordinary kernel has none, and no fact at all."""
    assert find_gemms(profile([kernel(name)])) == ({0: KernelFact(role=role)} if role else {})
    meaning = kernel_name(name)
    assert role == (meaning.role if meaning is not None and meaning.role != "main" else "")


def test_reads_and_writes_have_no_facts() -> None:
    """Only kernels are looked at, whatever a copy's name."""
    assert find_gemms(profile([READ, enqueued(number=0, kind="write", name="im2col_float")])) == {}
    assert find_gemms(profile([])) == {}


# --- kernels with their own sizes ---

A, B, C = mem("A"), mem("B"), mem("C")
DIRECT = (7, 129, 33, ONE, ZERO, A, 0, 7, B, 0, 33, C, 0, 7, 0, 0, 0)
GEMV = (1000, 4096, ONE, ZERO, 1, A, 0, 4096, B, 0, 1, C, 0, 1, 0, 0)
CONVGEMM = (25, 4, 18, A, 0, B, 0, 100, C, 0, 9, 9, 2, 3, 3, 1, 1, 2, 2, 1, 1, 5, 5)
CLBLAS = (A, B, C, ONE, ZERO, 130, 100, 77, 130, 77, 130, 0, 0, 0)

OWN = [
    *[(f"XgemmDirect{letters}", DIRECT, (8, 136, 1), Gemm(7, 129, 33)) for letters in ("NN", "NT", "TN", "TT")],
    ("XgemmDirectBatchedTT", (12, 18, 24, A, B, A, B, 24), (8, 16, 3), Gemm(12, 18, 24, 3)),
    ("XgemmDirectBatchedNN", (12, 18, 24), None, None),  # the batch is in the work size alone
    ("XgemmDirectStridedBatchedTN", (24, 36, 48, ONE, ZERO), (16, 24, 2), Gemm(24, 36, 48, 2)),
    ("Xgemv", (*GEMV, 0, 0), (1024, 1, 1), Gemm(1000, 1, 4096)),
    ("XgemvFast", (*GEMV, 0, 0), (1024, 1, 1), Gemm(1000, 1, 4096)),
    ("XgemvFastRot", GEMV, (1000, 1, 1), Gemm(1000, 1, 4096)),
    ("Xgemv", (*GEMV, 2, 0), (1024, 1, 1), None),
    ("XconvgemmNormal", CONVGEMM, (32, 8, 3), Gemm(25, 4, 18, 3)),
    ("XconvgemmFlip", CONVGEMM, (32, 8, 1), Gemm(25, 4, 18)),
    ("Xconvgemm", CONVGEMM[:11], (32, 8, 2), Gemm(25, 4, 18, 2)),
    ("XgemmDirectNN", DIRECT[:2], (8, 136, 1), None),
    ("XgemmDirectNN", ("", *DIRECT[1:]), (8, 136, 1), None),
    ("XgemmDirectNN", (), (8, 136, 1), None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "gws", "expected"), OWN)
def test_real_sizes_in_the_arguments(name: str, arguments: Any, gws: Size3 | None, expected: Gemm | None) -> None:
    """CLBlast's direct, GEMV and Convgemm kernels are a GEMM each; unknown arguments leave the role."""
    facts = find_gemms(profile([OTHER, kernel(name, *arguments, grid=gws), OTHER]))
    assert facts == {1: KernelFact(role="main", gemm=expected, gemm_by="arguments" if expected else "")}


@pytest.mark.parametrize(
    ("m", "n", "parts"),
    [(130, 100, "XX LX XL LL"), (128, 64, "XX"), (40, 100, "LX LL"), (130, 40, "XL LL"), (40, 40, "LL"),
     (128, 100, "XX XL")],
)  # fmt: skip
def test_clblas_counts_a_gemm_once(m: int, n: int, parts: str) -> None:
    """Tile, row, column and corner kernel state the same sizes: the first of them carries the GEMM."""
    arguments = (*CLBLAS[:5], m, n, *CLBLAS[7:])
    rows = [kernel(f"sgemm_Col_NN_B0_M{part[0]}064_N{part[1]}064_KX08", *arguments) for part in parts.split()]
    facts = find_gemms(profile([*rows, *rows]))
    assert [fact.role for fact in facts.values()] == ["main"] * 2 * len(rows)
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == dict.fromkeys((0, len(rows)), Gemm(m, n, 77))


def test_clblas_that_may_be_a_piece_has_no_sizes() -> None:
    """Some square leading dimensions make clBLAS cut a GEMM into products that look whole."""
    arguments = (*CLBLAS[:5], 4096, 4096, 2048, 8192, 8192, 8192, 0, 0, 0)
    assert gemms(profile([kernel("sgemm_Col_NT_B1_MX128_NX128_KX16", *arguments)])) == {}
    assert gemms(profile([kernel("sgemm_Col_NT_B1_MX128_NX128_KX16", *CLBLAS)])) == {}, "no whole tile: not its kernel"
    suffixed = kernel("sgemm_Col_NT_B1_MX032_NX064_KX16_ROW", *arguments)
    assert find_gemms(profile([suffixed])) == {0: KernelFact(role="main")}


# --- CLBlast's indirect path ---


class Matrix:
    """A matrix as CLBlast sees it: stored one x two, wanted one_i x two_i, turned or not."""

    def __init__(self, stored: tuple[int, int], wanted: tuple[int, int], turn: bool, buffer: str, slack: int) -> None:
        self.stored, self.wanted, self.turn, self.buffer, self.ld = stored, wanted, turn, buffer, stored[0] + slack
        self.as_is = stored == wanted and not slack and not turn


def helper(matrix: Matrix, out: bool, place: tuple[str, int], kind: str, fast: bool) -> Activity:
    """The kernel that brings a matrix into its temporary, or (``out``) the result back to the user."""
    verb = "Transpose" if matrix.turn else "Copy"
    user, temporary = (
        (*matrix.stored, matrix.ld, 0, matrix.buffer),
        (*matrix.wanted, matrix.wanted[0], place[1], place[0]),
    )
    source, dest = (temporary, user) if out else (user, temporary)
    if fast and not kind and source[:4] == dest[:4]:
        return kernel(f"{verb}MatrixFast", source[2], source[4], dest[4], ONE)
    name = f"{verb}{'' if out else 'Pad'}Matrix{kind}"
    if kind == "StridedBatched":
        return kernel(name, *source[:4], 5000, source[4], *dest[:4], 5000, dest[4], 0)
    if kind == "Batched":
        return kernel(name, *source[:3], mem("offsets"), source[4], *dest[:3], mem("offsets i"), dest[4], 0)
    return kernel(name, *source, *dest, ONE, *((0, 0, 0) if out else (0,)))


def indirect(
    sizes: tuple[int, int, int],
    tiles: tuple[int, int, int] = (64, 32, 16),
    row_major: bool = True,
    turned: tuple[bool, bool] = (False, False),
    gemmk: int = 0,
    beta: bool = False,
    kind: str = "",
    one_temporary: bool = True,
    slack: int = 0,
    fast: bool = True,
    call: int = 0,
    syrk: str = "",
    users: tuple[str, str, str] = ("user A", "user B", "user C"),
) -> list[Activity]:
    """The kernels of one call on CLBlast's indirect path."""
    m, n, k = sizes
    m_i, n_i, k_i = (-(-length // tile) * tile for length, tile in zip(sizes, tiles, strict=True))
    rotated = [turn != row_major for turn in turned]
    wanted_a, wanted_c = ((k_i, m_i), (n_i, m_i)) if gemmk else ((m_i, k_i), (m_i, n_i))
    a = Matrix((k, m) if rotated[0] else (m, k), wanted_a, rotated[0] != bool(gemmk), mem(users[0]), slack)
    b = Matrix((n, k) if rotated[1] else (k, n), (n_i, k_i), not rotated[1], mem(users[1]), slack)
    c = Matrix((n, m) if row_major else (m, n), wanted_c, row_major != bool(gemmk), mem(users[2]), slack)
    c.as_is = c.as_is and not syrk
    offset, places = 0, []
    for name, matrix in (("A", a), ("B", b), ("C", c)):
        if matrix.as_is:
            places.append((matrix.buffer, 0))
        elif one_temporary:
            places.append((mem(f"temporary {call}"), offset))
            offset += matrix.wanted[0] * matrix.wanted[1]
        else:
            places.append((mem(f"temporary {name} {call}"), 0))
    before = ((a, places[0]), (b, places[1]), *[(c, places[2])] * bool(beta or kind or syrk))
    out = [helper(matrix, False, place, kind, fast) for matrix, place in before if not matrix.as_is]
    scale = ONE if beta else ZERO
    (at_a, _), (at_b, b_offset), (at_c, c_offset) = places
    if syrk:
        main = kernel(syrk, n_i, k_i, ONE, scale, at_a, at_b, at_c, grid=(8, 8, 1))
    elif kind:
        ins = (at_a, *a.wanted, at_b, *b.wanted, at_c, *c.wanted)
        main = kernel(f"Xgemm{kind}", m_i, n_i, k_i, ONE, scale, *ins, grid=(8, 8, 3))
    else:
        ends = (b_offset // 2, c_offset // 2) if one_temporary else ()
        main = kernel("Xgemm", m_i, n_i, k_i, ONE, scale, at_a, at_b, at_c, *ends, grid=(8, 8, 1))
    after = [] if c.as_is else [helper(c, True, places[2], kind, fast and not syrk)]
    return [*out, main, *after]


def clblast_program(gemmk: int | None) -> Program:
    define = "" if gemmk is None else f"#define GEMMK {gemmk}\n"
    return program(0, f"{define}#ifndef GEMMK\n  #define GEMMK 0\n#endif\n__kernel void Xgemm(const int kSizeM) {{}}\n")


DIMENSION = st.integers(1, 200)
TILE = st.sampled_from([8, 16, 32, 64])
CALL = st.fixed_dictionaries(
    {
        "sizes": st.tuples(DIMENSION, DIMENSION, DIMENSION)
        | st.sampled_from([(64, 64, 64), (128, 64, 32), (64, 64, 63), (63, 64, 64), (64, 32, 64), (32, 64, 32)]),
        "tiles": st.tuples(TILE, TILE, TILE),
        "row_major": st.booleans(),
        "turned": st.tuples(st.booleans(), st.booleans()),
        "beta": st.booleans(),
        "slack": st.sampled_from([0, 0, 3]),
        "fast": st.booleans(),
    }
)


def run(calls: list[dict[str, Any]], **common: Any) -> tuple[list[Activity], dict[int, tuple[int, int, int]]]:
    """The enqueues of some calls and, by position of the main kernel, the sizes asked for."""
    enqueues: list[Activity] = []
    expected: dict[int, tuple[int, int, int]] = {}
    for number_, call in enumerate(calls):
        part = indirect(**call, **common, call=number_)
        main = next(at for at, enqueue in enumerate(part) if enqueue.name.startswith("Xgemm"))
        expected[len(enqueues) + main] = call["sizes"]
        enqueues += part
    return enqueues, expected


@given(
    calls=st.lists(CALL, min_size=1, max_size=4),
    gemmk=st.sampled_from([0, 1]),
    one_temporary=st.booleans(),
    kind=st.sampled_from(["", "", "Batched", "StridedBatched"]),
    mixed=st.booleans(),
)
def test_indirect_sizes_are_recovered(
    calls: list[dict[str, Any]], gemmk: int, one_temporary: bool, kind: str, mixed: bool
) -> None:
    """Whatever sizes, tiles, layouts and transposes, and whatever call came right before: the caller's M, N, K.

    Reads, writes and another queue's kernels do not part a GEMM from its helpers.
    """
    enqueues, expected = run(calls, gemmk=gemmk, one_temporary=one_temporary and not kind, kind=kind)
    if mixed:
        enqueues = [more for one in enqueues for more in (one, changed(one, queue=1), READ)]
        expected = {3 * at + side: sizes for at, sizes in expected.items() for side in (0, 1)}
    facts = find_gemms(profile(enqueues, [clblast_program(gemmk)]))
    batch = 3 if kind else 1
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == {
        at: Gemm(*sizes, batch) for at, sizes in expected.items()
    }
    for at, sizes in expected.items():
        m, n, k = (size(value) for value in enqueues[at].opencl.arguments[:3])
        assert facts[at].padded == ((m, n, k) if (m, n, k) != sizes else None)
        assert facts[at].role == "main"
    assert all(fact.role in {"copy", "pad", "transpose"} for at, fact in facts.items() if at not in expected)
    assert len(facts) == len(enqueues) - sum(one is READ for one in enqueues)


@given(
    calls=st.lists(CALL, min_size=1, max_size=3),
    gemmk=st.sampled_from([0, 1]),
    told=st.booleans(),
    one_temporary=st.booleans(),
    data=st.data(),
)
def test_indirect_sizes_are_never_wrong(
    calls: list[dict[str, Any]], gemmk: int, told: bool, one_temporary: bool, data: st.DataObject
) -> None:
    """A profile that is cut, arguments that are lost, a source that is not there: no sizes, or the right ones."""
    enqueues, expected = run(calls, gemmk=gemmk, one_temporary=one_temporary)
    cut = data.draw(st.integers(0, len(enqueues)))
    enqueues = enqueues[:cut]
    for _ in range(data.draw(st.integers(0, 2)) if enqueues else 0):
        at = data.draw(st.integers(0, len(enqueues) - 1))
        arguments = list(enqueues[at].opencl.arguments)
        lost = data.draw(st.integers(0, len(arguments)))
        arguments[lost:] = data.draw(st.sampled_from([[], ["", *arguments[lost + 1 :]]]))
        enqueues[at] = changed(enqueues[at], arguments=tuple(arguments))
    found = gemms(profile(enqueues, [clblast_program(gemmk)] if told else []))
    assert {at: (gemm.m, gemm.n, gemm.k) for at, gemm in found.items()}.items() <= expected.items()


def test_another_routine_s_copies_are_not_helpers() -> None:
    """A copy whose result the GEMM does not read says nothing about it."""
    stray = helper(Matrix((70, 90), (96, 96), False, mem("their matrix"), 0), False, (mem("their copy"), 0), "", False)
    part = indirect((128, 128, 128), tiles=(64, 64, 64), row_major=False, turned=(False, True))
    assert [enqueue.name for enqueue in part] == ["Xgemm"]
    facts = find_gemms(profile([stray, *part, stray], [clblast_program(0)]))
    assert facts[1] == KernelFact(role="main", gemm=Gemm(128, 128, 128), gemm_by="arguments")


@pytest.mark.parametrize("gemmk", [0, 1])
def test_the_kernel_variant_comes_from_the_source(gemmk: int) -> None:
    """GEMMK decides which way A and C lie; without a source the helpers must agree among themselves."""
    call: dict[str, Any] = {"sizes": (50, 60, 64), "tiles": (64, 64, 64), "row_major": False, "turned": (False, True)}
    part = indirect(**call, gemmk=gemmk)
    expected = {2: Gemm(50, 60, 64)}
    assert [enqueue.name for enqueue in part][2] == "Xgemm"
    assert gemms(profile(part, [clblast_program(gemmk)])) == expected
    assert gemms(profile(part, [clblast_program(1 - gemmk)])) == {}, "the source contradicts the helpers"
    assert gemms(profile(part, [clblast_program(7)])) == expected, "a variant that is not known tells nothing"
    assert gemms(profile(part, [clblast_program(None)])) == (expected if gemmk == 0 else {}), "before 1.4"
    assert gemms(profile(part)) == expected
    linked = [changed(enqueue, program=1) for enqueue in part]
    both = [clblast_program(1 - gemmk), msgspec.structs.replace(clblast_program(gemmk), index=1)]
    assert gemms(profile(linked, both)) == expected


@pytest.mark.parametrize("name", ["XgemmUpper", "XgemmLower"])
@given(call=CALL, gemmk=st.sampled_from([0, 1]))
def test_syrk_is_n_n_k(name: str, call: dict[str, Any], gemmk: int) -> None:
    """SYRK has no M; C always has a copy of its own."""
    _, n, k = call["sizes"]
    tile = call["tiles"][0]
    call |= {"sizes": (n, n, k), "tiles": (tile, tile, call["tiles"][2]), "turned": (False, True)}
    part = indirect(**call, gemmk=gemmk, syrk=name, one_temporary=False, users=("user A", "user A", "user C"))
    main = [enqueue.name for enqueue in part].index(name)
    facts = find_gemms(profile([*part, *part], [clblast_program(gemmk)]))
    found = {at: fact.gemm for at, fact in facts.items() if fact.gemm}
    assert found == {main: Gemm(n, n, k), main + len(part): Gemm(n, n, k)}


def test_syr2k_is_one_gemm() -> None:
    """SYR2K runs SYRK's kernels twice, the second time with A and B exchanged: one (n, n, k) in all."""
    common: dict[str, Any] = {
        "sizes": (40, 40, 24), "turned": (False, True), "one_temporary": False, "tiles": (64, 64, 16)
    }  # fmt: skip
    first = indirect(**common, syrk="XgemmUpper", call=1)
    second = indirect(**common, syrk="XgemmUpper", users=("user B", "user A", "user C"), beta=True, call=2)
    found = gemms(profile([*first, *second, *first], [clblast_program(0)]))
    assert found == dict.fromkeys((3, 2 * len(first) + 3), Gemm(40, 40, 24))
    # before 1.5 the kernel ran twice between one set of helpers
    main = first[3]
    a, b = main.opencl.arguments[4:6]
    again = changed(main, arguments=(*main.opencl.arguments[:3], ONE, b, a, *main.opencl.arguments[6:]))
    facts = find_gemms(profile([*first[:4], again, *first[4:], *first], [clblast_program(0)]))
    assert facts[4] == KernelFact(role="main")
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == dict.fromkeys((3, 9), Gemm(40, 40, 24))


# --- ViennaCL ---


def prod(
    sizes: Sequence[int], starts: Sequence[Any], leading: Sequence[int], users: Sequence[str], beta: str, name: str
) -> Activity:
    matrices = [
        part for user, ld, start in zip(users, leading, starts, strict=True) for part in (mem(user), ld, *start, 1, 1)
    ]
    return kernel(name, *sizes, *matrices, ONE, beta, grid=(8, 8, 1))


def cut(
    whole: tuple[int, int, int],
    tile: tuple[int, int, int],
    flips: tuple[bool, bool, bool] = (False, False, False),
    base: tuple[int, int] = (0, 0),
    users: Sequence[str] = ("C", "A", "B"),
    beta: str = ZERO,
    name: str = "_prod_TT",
) -> list[Activity]:
    """How ViennaCL enqueues a GEMM: the part in whole tiles, then the remainders; small ones in one piece."""
    if any(length < step for length, step in zip(whole, tile, strict=True)):
        tile = whole
    main = [length // step * step for length, step in zip(whole, tile, strict=True)]
    out = []
    for place in itertools.product((0, 1), repeat=3):
        sizes = [length - at if rest else at for length, at, rest in zip(whole, main, place, strict=True)]
        if 0 in sizes:
            continue
        m, n, k = (at if rest else 0 for at, rest in zip(main, place, strict=True))
        starts = [(start[::-1] if flip else start) for start, flip in zip(((m, n), (m, k), (k, n)), flips, strict=True)]
        starts[0] = (starts[0][0] + base[0], starts[0][1] + base[1])
        out.append(prod(sizes, starts, (whole[1], whole[2], whole[1]), users, ONE if place[2] else beta, name))
    return out


PRODUCT = st.fixed_dictionaries(
    {
        "whole": st.tuples(DIMENSION, DIMENSION, DIMENSION),
        "tile": st.tuples(TILE, TILE, TILE),
        "flips": st.tuples(st.booleans(), st.booleans(), st.booleans()),
        "base": st.sampled_from([(0, 0), (3200, 0), (0, 64)]),
        "users": st.sampled_from([("C", "A", "B"), ("C", "bias", "ones"), ("D", "A", "B")]),
        "beta": st.sampled_from([ZERO, ONE]),
        "name": st.sampled_from(["_prod_TT", "_prod_NN"]),
    }
)


@given(products=st.lists(PRODUCT, min_size=1, max_size=4), queues=st.sampled_from([1, 1, 2]), data=st.data())
def test_viennacl_blocks_sum_to_the_whole(products: list[dict[str, Any]], queues: int, data: st.DataObject) -> None:
    """However a GEMM is cut, its first block carries all of it, and the flops are those of the blocks.

    Blocks are consecutive in their queue. At the end of a profile they may be missing: then there are no sizes.
    """
    enqueues: list[Activity] = []
    expected: dict[int, Gemm] = {}
    for product in products:
        expected[queues * len(enqueues)] = Gemm(*product["whole"])
        enqueues += cut(**product)
    expected = {at + queue: gemm for at, gemm in expected.items() for queue in range(queues)}
    enqueues = [changed(one, queue=queue) for one in enqueues for queue in range(queues)]
    facts = find_gemms(profile([*enqueues, *(changed(READ, queue=queue) for queue in range(queues))]))
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == expected
    assert {fact.role for fact in facts.values()} == {"main"}
    blocks = [Gemm(*(size(value) or 0 for value in enqueue.opencl.arguments[:3])) for enqueue in enqueues]
    assert sum(block.flop for block in blocks) == sum(gemm.flop for gemm in expected.values())
    left = enqueues[: data.draw(st.integers(0, len(enqueues)))]
    assert gemms(profile(left)).items() <= expected.items()


def test_viennacl_parts_that_are_their_own() -> None:
    """Caffe's bias follows as a GEMM with K = 1 into the same C: not a remainder in K. A block with the rest of K adds
    to the result (beta 1); a block that replaces the result is a GEMM of its own. The place of a block is part of the
    evidence. If any call follows, a GEMM of one block is whole."""
    part = cut((50, 64, 500), (32, 64, 16))
    bias = cut((50, 64, 1), (32, 64, 16), users=("C", "bias", "ones"), beta=ONE)
    whole = Gemm(50, 64, 500)
    assert gemms(profile([*part, *bias, *part, READ])) == {0: whole, 4: Gemm(50, 64, 1), 5: whole}
    main, rest = cut((32, 64, 500), (32, 64, 16))
    assert gemms(profile([main, rest, READ])) == {0: Gemm(32, 64, 500)}
    replaces = changed(rest, arguments=(*rest.opencl.arguments[:-1], ZERO))
    assert gemms(profile([main, replaces, READ])) == {0: Gemm(32, 64, 496), 1: Gemm(32, 64, 4)}
    (block,) = cut((20, 576, 25), (32, 64, 8))
    for lost, value in ((0, ""), (2, ""), (5, ""), (5, "0000"), (11, ""), (22, "")):
        arguments = (*block.opencl.arguments[:lost], value, *block.opencl.arguments[lost + 1 :])
        assert find_gemms(profile([changed(block, arguments=arguments), READ])) == {0: KernelFact(role="main")}
    assert find_gemms(profile([block])) == {0: KernelFact(role="main")}
    assert gemms(with_opencl(profile([block]), marks=(TimerMark(number=9),))) == {0: Gemm(20, 576, 25)}


# --- LibDNN ---

Shape = dict[str, int]


def libdnn_sizes(layer: Shape) -> dict[str, tuple[int, int, int]]:
    """M, N, K of the layer's kernels."""
    fin, fout, g, patch = layer["fin"], layer["fout"], layer["g"], layer["fin"] * layer["ks"] // layer["g"]
    return {
        "conv_forward": (fout // g, layer["imso"], patch),
        "conv_backward": (fin // g, layer["imsi"], fout * layer["ks"] // g),
        "conv_weights": (fout // g, patch, layer["imso"]),
    }


def libdnn_source(layer: Shape) -> str:
    """The macros of a layer's program, in LibDNN's manner, and the heads of its three kernels."""
    g, ins, outs = layer["g"], layer["fin"] * layer["imsi"], layer["fout"] * layer["imso"]
    weights = layer["fin"] * layer["fout"] * layer["ks"]
    bias = "__global const Dtype* bias, " if layer.get("bias", 1) else ""
    offsets = {
        "conv_forward": {"v_B_off": ins, "v_C_off": outs},
        "conv_backward": {"v_A_off": weights, "v_B_off": outs, "v_C_off": ins},
        "conv_weights": {"v_A_off": outs, "v_B_off": ins, "v_C_off": weights},
    }
    text = ["#define Dtype float", "#define Dtype4 float4", "__kernel void fill_memory(const int_tp n) {", "}"]
    for name, (m, n, k) in libdnn_sizes(layer).items():
        macros = {"v_g": g, **offsets[name], "v_fout": layer["fout"], **({"v_bmul": "(float) 1"} if bias else {}),
                  "MG": m * g, "M": m, "N": n, "KG": k * g, "K": k, "TSM": 64, "TSN": 64, "TSK": 8, "RTSM": 16,
                  "RTSN": 16, "v_num_tiles": "(((K - 1)/(TSK*2) + 1)*2)"}  # fmt: skip
        for macro, value in macros.items():
            text += [f"#ifdef {macro}", f"#undef {macro}", "#endif", f"#define {macro} {value}"]
        more = ", int_tp batch_size" if name == "conv_weights" else ""
        text += ["__kernel", "__attribute__((reqd_work_group_size(16, 16, 1)))"]
        text += [f"void {name}(__global Dtype* in, {bias}{more}) {{", "}"]
    return "\n".join(text)


def libdnn_kernel(at: int, layer: Shape, name: str, images: int, direct: bool = False) -> Activity:
    """Layer ``at``'s kernel; its buffers are told by the layer, its input is the layer before's output."""
    m, n, _ = libdnn_sizes(layer)[name]
    bias = [f"bias {at}"] if layer.get("bias", 1) else []
    buffers = {
        "conv_forward": (f"data {at}", f"weights {at}", *bias, f"data {at + 1}"),
        "conv_backward": (f"diff {at + 1}", f"weights {at}", *bias, f"diff {at}"),
        "conv_weights": (f"data {at}", f"diff {at + 1}", *bias, f"weights diff {at}"),
    }[name]
    gws = (-(-n // 64) * 16, -(-m // 64) * 16, layer["g"] * (1 if direct else images))
    return kernel(name, *map(mem, buffers), *[images] * (name == "conv_weights"), grid=gws, kernel=f"0x{name}{at}")


def libdnn_buffers(layers: Sequence[Shape], images: int) -> list[tuple[str, int]]:
    out: dict[str, int] = {}
    for at, layer in enumerate(layers):
        ins, outs = layer["fin"] * layer["imsi"] * images, layer["fout"] * layer["imso"] * images
        weights = layer["fin"] * layer["fout"] * layer["ks"] // layer["g"]
        sizes = {f"data {at}": ins, f"diff {at}": ins, f"data {at + 1}": outs, f"diff {at + 1}": outs}
        sizes |= {f"weights {at}": weights, f"weights diff {at}": weights, f"bias {at}": layer["fout"]}
        out |= {name: max(4 * size, out.get(name, 0)) for name, size in sizes.items()}
    return [(f"0x{number(mem(name)):x}", size) for name, size in out.items()]


FIRE: list[Shape] = [
    {"fin": 64, "fout": 16, "g": 1, "ks": 1, "imsi": 3136, "imso": 3136},
    {"fin": 16, "fout": 64, "g": 1, "ks": 1, "imsi": 3136, "imso": 3136},
    {"fin": 16, "fout": 64, "g": 1, "ks": 9, "imsi": 3136, "imso": 3136},
    {"fin": 96, "fout": 256, "g": 2, "ks": 25, "imsi": 729, "imso": 729, "bias": 0},
    {"fin": 256, "fout": 384, "g": 1, "ks": 9, "imsi": 169, "imso": 169},
]


def libdnn_expected(layer: Shape, name: str, images: int) -> Gemm:
    return Gemm(*libdnn_sizes(layer)[name], images * layer["g"])


def libdnn_programs(layers: Sequence[Shape], form: Callable[[str], bytes] = str.encode) -> list[Program]:
    return [msgspec.structs.replace(program(at), source=form(libdnn_source(layer))) for at, layer in enumerate(layers)]


def as_json_string(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()


def as_json_object(text: str) -> bytes:
    half = len(text) // 2
    return json.dumps({"0": text[:half], "1": text[half:]}, indent="\t").encode()


FORMS = [str.encode, as_json_string, as_json_object]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("with_buffers", [True, False])
def test_libdnn_finds_each_kernel_s_program(form: Callable[[str], bytes], images: int, with_buffers: bool) -> None:
    """Several programs have one work size: order of first use, or the buffers' sizes, tell them apart."""
    forward = [libdnn_kernel(at, layer, "conv_forward", images) for at, layer in enumerate(FIRE)]
    buffers = libdnn_buffers(FIRE, images) if with_buffers else []
    facts = find_gemms(profile([*forward, OTHER, *forward], libdnn_programs(FIRE, form), buffers))
    expected = [libdnn_expected(layer, "conv_forward", images) for layer in FIRE]
    assert [facts[at].gemm for at in (*range(5), *range(6, 11))] == expected * 2
    assert {fact.gemm_by for fact in facts.values()} == {"source"}


@settings(max_examples=60)
@given(order=st.permutations(range(5)), images=st.sampled_from([1, 2]), direct=st.booleans())
def test_libdnn_in_any_order_with_buffers(order: list[int], images: int, direct: bool) -> None:
    """Buffers tell a kernel's program whatever the order, also backward; conv_weights has two ways to batch."""
    ran = [(at, name) for at in order for name in ("conv_forward", "conv_backward", "conv_weights")]
    enqueues = [libdnn_kernel(at, FIRE[at], name, images, direct and name == "conv_weights") for at, name in ran]
    facts = find_gemms(profile(enqueues, libdnn_programs(FIRE), libdnn_buffers(FIRE, images)))
    assert [facts[at].gemm for at in range(15)] == [libdnn_expected(FIRE[at], name, images) for at, name in ran]


@settings(max_examples=60)
@given(order=st.permutations(range(5)), cut_at=st.integers(0, 5))
def test_libdnn_never_guesses(order: list[int], cut_at: int) -> None:
    """Without buffers a kernel has sizes only when they do not depend on which program it is."""
    enqueues = [libdnn_kernel(at, FIRE[at], "conv_weights", 1) for at in order[:cut_at]]
    for position, gemm in gemms(profile(enqueues, libdnn_programs(FIRE))).items():
        assert gemm == libdnn_expected(FIRE[order[position]], "conv_weights", 1)


def test_libdnn_backward_follows_forward_buffers() -> None:
    """Where sizes of buffers are not known, the weights of the forward kernel name the program."""
    layers = FIRE[1:3]
    programs = libdnn_programs(layers)
    forward = [libdnn_kernel(at, layer, "conv_forward", 1) for at, layer in enumerate(layers)]
    backward = [libdnn_kernel(at, layers[at], "conv_backward", 1) for at in (1, 0)]
    facts = find_gemms(profile([*forward, *backward], programs))
    assert [facts[at].gemm for at in (2, 3)] == [libdnn_expected(layer, "conv_backward", 1) for layer in layers[::-1]]
    assert gemms(profile(backward, programs)) == {}


def test_libdnn_kernels_that_fit_no_program() -> None:
    """More kernels than programs, other work sizes, macros that are gone, a link to another program, a wrong batch.

    With a program made from a binary, a fitting work size alone proves nothing.
    """
    sources = [libdnn_source(layer) for layer in FIRE]

    def found(kernels: Sequence[Activity], *texts: str, buffers: Sequence[tuple[str, int]] = ()) -> dict[int, Gemm]:
        return gemms(profile(kernels, [program(at, text) for at, text in enumerate(texts)], buffers))

    forward, weights = (libdnn_kernel(1, FIRE[1], name, 2) for name in ("conv_forward", "conv_weights"))
    twice, third = changed(forward, kernel="0x99"), changed(forward, kernel="0x98")
    whole = Gemm(64, 3136, 16, 2)
    assert found([forward, twice], sources[1]) == {0: whole, 1: whole}
    assert found([forward, twice, third], *sources[1:3]) == found([forward], sources[4]) == {}
    assert found([forward], sources[1].replace("#define TSM 64", "")) == {}
    assert found([changed(forward, program=1)], *sources[1:3]) == {0: Gemm(64, 3136, 144, 2)}
    strange = changed(weights, arguments=(*weights.opencl.arguments[:-1], i32(5)))
    assert found([weights, strange], sources[1]) == {0: Gemm(64, 16, 3136, 2)}
    assert found([forward], sources[1], buffers=[("(nil)", 4), ("0x0", 4)]) == {0: whole}
    first = [libdnn_kernel(0, FIRE[0], "conv_forward", 1)]
    assert found(first, sources[0], "") == found([kernel("conv_forward")], sources[0], "") == {}
    assert found(first, sources[0], "", buffers=libdnn_buffers(FIRE[:1], 1)) == {0: Gemm(16, 3136, 64)}


def test_libdnn_handles_are_recycled() -> None:
    """Of several buffers with one handle the last before the enqueue counts, against the order of first use too."""
    second = libdnn_kernel(1, FIRE[2], "conv_forward", 1)
    small, large = 4 * 16 * 64, 4 * 16 * 64 * 9
    few, many = {0: Gemm(64, 3136, 16)}, {0: Gemm(64, 3136, 144)}
    for sizes, expected in (
        ((small, large), many), ((large, small), few), ((10 * large,), {}), ((large + 64,), many)
    ):  # fmt: skip
        buffers = [(f"0x{number(mem('weights 1')):x}", size) for size in sizes]
        assert gemms(profile([second], libdnn_programs(FIRE[1:3]), buffers)) == expected


# --- MIOpenGEMM ---


def miog_source(m: int, n: int, k: int, name: str, year: int = 2018, tile: tuple[int, int] = (128, 96)) -> str:
    macros: dict[str, object] = {"__K__" if year == 2017 else "KV__": k, "TFLOAT ": "float"}
    for matrix, length, step in (("A", m, tile[0]), ("B", n, tile[1])):
        macros |= {f"MACRO_TILE_LENGTH_{matrix}": step, f"N_GROUPS_{matrix}": -(-length // step)}
        if m % tile[0] or n % tile[1]:
            macros[f"PRESHIFT_FINAL_TILE_{matrix}"] = 1 + (length - 1) % step
        macros[f"MICRO_{matrix}_TILE_PLL_UNROLL"] = "1 "
    macros["GLOBAL_WORK_SIZE"] = 4096
    lines = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
    return f"/* tC0_tA0_tB0_colMaj1_m{m}_n{n}_k{k}_lda{m}_ldb{k}_ldc{m}_ws0_f32*/\n{lines}__kernel void {name}\n(\n"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(512, 288, 512), (1000, 2000, 3000), (20, 576, 25), (128, 97, 1)])
@pytest.mark.parametrize(("name", "year"), [("miog_betac_alphaab", 2018), ("miog_alphaab", 2018), ("tg_alphaab", 2017)])
def test_miopengemm_sizes_are_macros(
    form: Callable[[str], bytes], sizes: tuple[int, int, int], name: str, year: int
) -> None:
    """The main kernel carries the GEMM, its helpers a role."""
    source = form(miog_source(*sizes, name, year))
    programs = [msgspec.structs.replace(program(0), source=source), program(1, miog_source(7, 7, 7, "miog_betac"))]
    helper_ = kernel(f"{name.split('_')[0]}_betac", C, 0, ZERO, program=1)
    main = kernel(name, A, 0, B, 0, C, 0, ONE, grid=(4096, 1, 1), program=0)
    assert find_gemms(profile([helper_, main], programs)) == {
        0: KernelFact(role="scale"),
        1: KernelFact(role="main", gemm=Gemm(*sizes), gemm_by="source"),
    }


def test_miopengemm_that_contradicts_itself_has_no_sizes() -> None:
    """Another program's work size, another geometry, a source that is gone: the role remains."""
    source = miog_source(512, 288, 512, "miog_alphaab")
    main = kernel("miog_alphaab", grid=(4096, 1, 1), program=0)
    unlinked = changed(main, program=None)
    for enqueue in (main, unlinked):
        assert gemms(profile([enqueue], [program(0, source)])) == {0: Gemm(512, 288, 512)}
    for enqueue, *sources in (
        (changed(main, grid=(8192, 1, 1)), source),
        (main, source.replace("_m512_", "_m511_")),
        (main, source.replace("KV__", "KX__")),
        (main, source.replace("N_GROUPS_A 4", "N_GROUPS_A four")),
        (main, "/* 20192 characters of kernel source removed */"),
        (main,),
        (unlinked, source, source),
        (unlinked, source, ""),
    ):
        programs = [program(at, text) for at, text in enumerate(sources)]
        assert find_gemms(profile([enqueue], programs)) == {0: KernelFact(role="main")}


# --- ARM Compute Library ---

BLOCKS = "-DM0=4 -DN0=4 -DK0=16 -DPARTIAL_STORE_M0=1 -DPARTIAL_STORE_N0=2"
NEW = (A, 64, 4, B, 64, 4, C, 64, 4, 1000, 2000, 3000, 49, 50, 147)

ARM = [
    ("gemm_mm_reshaped_lhs_nt_rhs_t", (A, 1, B), f"-DDATA_TYPE=float -DK=147 {BLOCKS} -DM=49 -DN=50", (13, 13, 1),
     Gemm(49, 50, 147), "build options"),
    ("gemm_mm_reshaped_lhs_t_rhs_nt_texture", (A, 1, B), "-DM=49 -DN=50 -DK=147", (13, 13, 2),
     Gemm(49, 50, 147, 2), "build options"),
    ("gemm_mm_native", (A, 1, B), f"-DM=49 -DN=50 -DK=147 {BLOCKS} -DDUMMY_WORK_ITEMS", (16, 16, 1),
     Gemm(49, 50, 147), "build options"),
    ("gemm_mm_reshaped_only_rhs_nt", NEW, BLOCKS, (13, 13, 3), Gemm(49, 50, 147, 3), "arguments"),
    ("gemm_mm_reshaped_only_rhs_t_texture", NEW, BLOCKS, (13, 13, 1), Gemm(49, 50, 147), "arguments"),
    ("gemm_mm_reshaped_only_rhs_nt_mmul", NEW, "-DM0=4 -DN0=4 -DM0_LEFTOVER=1 -DN0_LEFTOVER=2", (64, 4, 1),
     Gemm(49, 50, 147), "arguments"),
    ("gemm_mm_native", NEW, BLOCKS, None, None, ""),
    # M, N or K is cut away, contradicted by the work size, or not stated exactly
    *(("gemm_mm_reshaped_lhs_nt_rhs_t", arguments, options, (width, 13, 1), None, "") for arguments, options, width in (
        (NEW, f"-DM=49 {BLOCKS}", 13), (NEW, f"-DM=49 -DN=50 -DK=147 {BLOCKS}", 16), (NEW[:-3], BLOCKS, 13),
        (NEW, "", 13), ((*NEW[:-1], ""), BLOCKS, 13), (NEW, BLOCKS.replace("M0=1", "M0=3"), 13))),
    ("gemm_mm_floating_point_f32_bifrost", NEW, "-DCOLS_A=147 -DNUM_ELEMS_PROCESSED_PER_THREAD_X=4 "
     "-DNUM_ELEMS_PROCESSED_PER_THREAD_Y=4", (13, 13, 1), None, ""),
    ("gemm_mm_interleaved_transposed_f32_midgard", NEW, "-DCOLS_B=588", (13, 13, 1), None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options", "gws", "expected", "by"), ARM)
def test_arm_compute_library(
    name: str, arguments: Any, options: str, gws: Size3 | None, expected: Gemm | None, by: str
) -> None:
    """Build options or the last three arguments, borne out by the block sizes; what is rounded up is left out."""
    enqueue, programs = kernel(name, *arguments, grid=gws, program=0), [program(0, "", options)]
    assert find_gemms(profile([enqueue], programs)) == {0: KernelFact(role="main", gemm=expected, gemm_by=by)}
    assert find_gemms(profile([changed(enqueue, program=None)], programs)) == {0: KernelFact(role="main")}


# --- program sources ---


def test_a_damaged_source_still_has_lines() -> None:
    """Cut in the middle of an escape, macros before it can be read."""
    cut_ = as_json_string("#define M 96\n#define N 3025\nvoid conv_forward(") + b"\\"
    assert plain_text(cut_).splitlines()[:2] == ["#define M 96", "#define N 3025"]
    assert "\n#define N 1\n" in plain_text(json.dumps({"0": "#define M 96\n#define N 1\n"}).encode()[:-4] + b"\\n")


def test_the_last_definition_before_a_kernel_counts() -> None:
    """A macro may be defined again for the next kernel."""
    text = "#define M 1\n  # define\tN   2 \r\nvoid a(int x) {}\n#undef M\n#define M 3\nvoid b (int x) {}\n"
    sources = Sources((program(0, text), program(1, "void b(")))
    assert [sources.defines(0, name) for name in "abc"] == [{"M": "1", "N": "2"}, {"M": "3", "N": "2"}, {}]
    assert sources.defining("b") == (0, 1)
    of = ((None, "a"), (None, "b"), (1, "a"), (7, "a"))
    assert [sources.program_of(*one) for one in of] == [0, None, 1, None]


# --- real samples ---


def sample(shared: Path, name: str) -> tuple[Profile, Any]:
    """A recorded profile and its truth."""
    folder = shared / "samples" / "dvdt"
    return load(folder / f"{name}.prof.json"), json.loads((folder / f"{name}.truth.json").read_bytes())


def load(path: Path) -> Profile:
    return read(path.read_bytes())


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["clblast-gemm-direct", "clblast-gemm-indirect-small", "clblast-lenet-seq-x3", "clblast-batched-small"]
)
def test_every_blas_call_of_a_sample(name: str, shared: Path) -> None:
    """Each call has its M, N, K and batch on exactly one of its kernels, and nothing else has any."""
    profile_, calls = sample(shared, name)
    by_call: dict[int, list[Gemm]] = {}
    for position, fact in find_gemms(profile_).items():
        if fact.gemm:
            at = profile_.activities[position].number
            (op,) = [call["op"] for call in calls if call["first_call"] <= at <= call["last_call"]]
            by_call.setdefault(op, []).append(fact.gemm)
            assert fact.role == "main"
            real = fact.gemm.m, fact.gemm.n, fact.gemm.k
            assert all(padded >= length for padded, length in zip(fact.padded or real, real, strict=True))
    asked = {call["op"]: score.sizes(call) for call in calls}
    expected = {op: [Gemm(of["M"], of["N"], of["K"], of["batch"])] for op, of in asked.items() if of}
    assert by_call == expected != {}


@pytest.mark.shared
def test_the_offline_parser_s_cut_handles_do_not_matter(shared: Path) -> None:
    """18 kernels that share 9 cut handles, each set before it runs, have the sizes of their uncut twins."""
    names = ("clblast-lenet-seq-x3", "offline-parser")
    whole, cut_ = (load(shared / "samples" / "dvdt" / f"{name}.prof.json") for name in names)
    assert list(gemms(cut_).values()) == list(gemms(whole).values())


# What a net's layers ask for, from the log: Caffe's net text and the top shapes that it prints.


def net_layers(log: str) -> list[dict[str, Any]]:
    """Convolutions and inner products: name, type, bottom and top shape, and their numbers."""
    text = log[log.index("Initializing net from parameters") :]
    shapes: dict[str, tuple[int, ...]] = {}
    current = ""
    for line in text.splitlines():
        if match := re.search(r"Setting up (\S+)$", line):
            current = match[1]
        elif match := re.search(r"Top shape: ([\d ]+)\(", line):
            shapes.setdefault(current, tuple(map(int, match[1].split())))
    layers = []
    top_shape: dict[str, tuple[int, ...]] = {}
    for block in re.findall(r"^layer \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        found = dict(re.findall(r'^ {2,4}(name|type|num_output|kernel_size|group): "?([^"\n]+)', block, re.MULTILINE))
        bottoms = re.findall(r'^  bottom: "(.*)"', block, re.MULTILINE)
        for top in re.findall(r'^  top: "(.*)"', block, re.MULTILINE)[:1]:
            if found["type"] in {"Convolution", "InnerProduct"}:
                layers.append({**found, "bottom": top_shape[bottoms[0]], "top": shapes[found["name"]]})
            top_shape[top] = shapes[found["name"]]
    return layers


def layer_gemms(layer: dict[str, Any], library: str) -> dict[str, list[Gemm]]:
    """What a layer runs, per direction: the GEMMs of Caffe's convolution and inner product layers."""
    images = layer["top"][0]
    if layer["type"] == "Convolution":
        g = int(layer.get("group", 1))
        out, channels, pixels = layer["top"][1], layer["bottom"][1], layer["top"][2] * layer["top"][3]
        patch = channels // g * int(layer["kernel_size"]) ** 2
        if library == "libdnn":
            return {
                "forward": [Gemm(out // g, pixels, patch, images * g)],
                "weights": [Gemm(out // g, patch, pixels, images * g)],
                "data": [],
            }
        per_image = [Gemm(out // g, pixels, patch)] * g + [Gemm(out, pixels, 1)]
        weights = [Gemm(out, 1, pixels)] * images + [Gemm(out // g, patch, pixels)] * g * images
        return {"forward": per_image * images, "weights": weights, "data": [Gemm(patch, pixels, out // g)] * g * images}
    out, inputs = layer["top"][1], math.prod(layer["bottom"][1:])
    if library == "libdnn":
        return {"forward": [], "weights": [], "data": []}  # see NO_BLAS
    if images == 1:  # a matrix-vector product, and an axpy for the bias
        return {
            "forward": [Gemm(out, 1, inputs)],
            "weights": [Gemm(out, inputs, 1), Gemm(out, 1, 1)],
            "data": [Gemm(inputs, 1, out)],
        }
    return {
        "forward": [Gemm(images, out, inputs), Gemm(images, out, 1)],
        "weights": [Gemm(out, inputs, images), Gemm(out, 1, images)],
        "data": [Gemm(images, inputs, out)],
    }


NETS = [
    ("alexnet-b1-fwd-nomarks", "clblast"),
    ("alexnet-b1-train", "clblast"),
    ("alexnet-b3-libdnn-train-iter2", "libdnn"),
    ("lenet-b2-fwd", "clblast"),
    ("lenet-b2-viennacl-fwd", "viennacl"),
    ("squeezenet11-b1-fwd-tz", "clblast"),
    ("squeezenet11-b1-libdnn-fwd", "libdnn"),
]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "library"), NETS)
def test_every_layer_of_a_net(name: str, library: str, shared: Path) -> None:
    """Each layer's GEMMs, in each pass, are those that its shapes ask for; no other layer has any."""
    profile_, truth = sample(shared, name)
    run_of = {enqueue["call_index"]: enqueue["l"] for enqueue in truth["enqueues"]}
    found: defaultdict[int, Counter[Gemm]] = defaultdict(Counter)
    for position, gemm in gemms(profile_).items():
        found[run_of[profile_.activities[position].number]][gemm] += 1
    log = (shared / "samples" / "dvdt" / f"{name}.run.log").read_text("utf-8")
    layers = {layer["name"]: layer for layer in net_layers(log)}
    assert len(layers) >= 4
    assert {truth["layers"][index]["layer"] for index in found} <= layers.keys()
    assert found
    for index, run_ in enumerate(truth["layers"]):
        if run_["layer"] in layers:
            expected = layer_gemms(layers[run_["layer"]], library)
            if run_["direction"] == "forward":
                assert found[index] == Counter(expected["forward"]), run_
            else:  # the gradient of the data is not asked for by every net
                assert found[index] - Counter(expected["data"]) == Counter(expected["weights"]), run_
                assert found[index] >= Counter(expected["weights"]), run_


@pytest.mark.shared
def test_every_gemm_like_kernel_of_a_sample_is_known(shared: Path) -> None:
    """In profiles with sources no kernel of a BLAS library is left without its sizes, save parts of a larger GEMM."""
    for path in (shared / "samples" / "dvdt").glob("*.prof.json"):
        profile_ = load(path)
        facts = find_gemms(profile_)
        for at, one in enumerate(profile_.activities):
            like = one.name.startswith(("Xgem", "_prod", "conv_", "im2col", "fill", "Xim2col"))
            assert facts[at].role if like else one.kind == "kernel" or at not in facts, (path.name, one.number)
            if at in facts and facts[at].role == "main" and not one.name.startswith("_prod"):
                assert facts[at].gemm is not None, (path.name, one.number)


@pytest.mark.shared
def test_sources_that_were_taken_out_give_no_sizes(shared: Path) -> None:
    """MIOpenGEMM kernels whose source is gone are still main kernels and helpers."""
    for path in sorted((shared / "samples" / "miopen-opencl").glob("*/prof.json")):
        profile_ = load(path)
        facts = find_gemms(profile_)
        assert all(fact.gemm is None for fact in facts.values())
        roles = {profile_.activities[position].name: fact.role for position, fact in facts.items()}
        assert roles["miog_alphaab"] == "main"
        assert set(roles.values()) >= {"main", "scale"}
        assert ("im2col" in roles.values()) == any(name.startswith("Im2") for name in roles), path


def test_every_name_that_a_row_knows_has_a_mark() -> None:
    """Without a mark in the names the rows are not loaded."""
    for row in kernels.rows():
        plain = row.kernels.pattern
        while (shorter := re.sub(r"\([^()]*\)\??|\[[^]]*\]", " ", plain)) != plain:
            plain = shorter
        for alternative in plain.split("|"):
            assert any(mark in alternative for mark in kernels._MARKS), row.kernels.pattern
