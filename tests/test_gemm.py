"""Real sizes of GEMM kernels: every library row on made-up profiles, laws on any sizes, truth on real samples."""

from __future__ import annotations

import itertools
import json
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    return opencl_profile(
        source=0,
        records=0,
        programs=tuple(programs),
        buffers=tuple(made),
        activities=tuple(changed(enqueue, number=start + at) for at, enqueue in enumerate(enqueues)),
    )


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
    facts = find_gemms(profile([kernel(name)]))
    assert facts == ({0: KernelFact(role=role)} if role else {})
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

OWN: list[tuple[str, tuple[int | str, ...], Size3, Gemm | None]] = [
    *[(f"XgemmDirect{letters}", DIRECT, (8, 136, 1), Gemm(7, 129, 33)) for letters in ("NN", "NT", "TN", "TT")],
    ("XgemmDirectBatchedTT", (12, 18, 24, A, B, A, B, 24), (8, 16, 3), Gemm(12, 18, 24, 3)),
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
def test_real_sizes_in_the_arguments(
    name: str, arguments: tuple[int | str, ...], gws: Size3, expected: Gemm | None
) -> None:
    """CLBlast's direct, GEMV and Convgemm kernels are a GEMM each; unknown arguments leave the role."""
    facts = find_gemms(profile([OTHER, kernel(name, *arguments, grid=gws), OTHER]))
    by = "arguments" if expected else ""
    assert facts == {1: KernelFact(role="main", gemm=expected, gemm_by=by)}


def test_a_batch_needs_its_work_size() -> None:
    """Without gws the batch is not known, so the GEMM is not."""
    assert gemms(profile([kernel("XgemmDirectBatchedNN", 12, 18, 24)])) == {}


CLBLAS_PARTS = ("MX064_NX064", "ML064_NX064", "MX064_NL064", "ML064_NL064")


@pytest.mark.parametrize(
    ("m", "n", "enqueued", "carrier"),
    [(130, 100, (0, 1, 2, 3), 0), (128, 64, (0,), 0), (40, 100, (1, 3), 0), (130, 40, (2, 3), 0), (40, 40, (3,), 0),
     (128, 100, (0, 2), 0)],
)  # fmt: skip
def test_clblas_counts_a_gemm_once(m: int, n: int, enqueued: tuple[int, ...], carrier: int) -> None:
    """Tile, row, column and corner kernel state the same sizes: the first of them carries the GEMM."""
    arguments = (*CLBLAS[:5], m, n, *CLBLAS[7:])
    rows = [kernel(f"sgemm_Col_NN_B0_{CLBLAS_PARTS[part]}_KX08", *arguments) for part in enqueued]
    facts = find_gemms(profile([*rows, *rows]))
    assert [facts[at].role for at in facts] == ["main"] * 2 * len(rows)
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == {
        carrier: Gemm(m, n, 77),
        carrier + len(rows): Gemm(m, n, 77),
    }


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
    wanted = {
        "A": (k_i, m_i) if gemmk else (m_i, k_i),
        "B": (n_i, k_i),
        "C": (n_i, m_i) if gemmk else (m_i, n_i),
    }
    a = Matrix((k, m) if rotated[0] else (m, k), wanted["A"], rotated[0] != bool(gemmk), mem(users[0]), slack)
    b = Matrix((n, k) if rotated[1] else (k, n), wanted["B"], not rotated[1], mem(users[1]), slack)
    c = Matrix((n, m) if row_major else (m, n), wanted["C"], row_major != bool(gemmk), mem(users[2]), slack)
    offset, places = 0, []
    for name, matrix in (("A", a), ("B", b), ("C", c)):
        temporary = mem(f"temporary {call}") if one_temporary else mem(f"temporary {name} {call}")
        if matrix.as_is and not (syrk and name == "C"):
            places.append((matrix.buffer, 0))
        else:
            places.append((temporary, offset if one_temporary else 0))
            offset += matrix.wanted[0] * matrix.wanted[1]
    moved = [not matrix.as_is for matrix in (a, b, c)]
    if syrk:
        moved[2] = True
    out = [
        helper(matrix, False, place, kind, fast)
        for matrix, place, move in zip((a, b), places, moved, strict=False)
        if move
    ]
    if moved[2] and (beta or kind or syrk):
        out.append(helper(c, False, places[2], kind, fast))
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
    out.append(main)
    if moved[2]:
        post = helper(c, True, places[2], kind, fast and not syrk)
        out.append(post)
    return out


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
)
def test_indirect_sizes_are_recovered(calls: list[dict[str, Any]], gemmk: int, one_temporary: bool, kind: str) -> None:
    """Whatever sizes, tiles, layouts and transposes, and whatever call came right before: the caller's M, N, K."""
    one_temporary = one_temporary and not kind
    enqueues, expected = run(calls, gemmk=gemmk, one_temporary=one_temporary, kind=kind)
    facts = find_gemms(profile(enqueues, [clblast_program(gemmk)]))
    batch = 3 if kind else 1
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == {
        at: Gemm(*sizes, batch) for at, sizes in expected.items()
    }
    for at, sizes in expected.items():
        m, n, k = (size(value) for value in enqueues[at].opencl.arguments[:3])
        assert facts[at].padded == ((m, n, k) if (m, n, k) != sizes else None)
        assert facts[at].role == "main"
    assert all(facts[at].role in {"copy", "pad", "transpose"} for at in range(len(enqueues)) if at not in expected)


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


@pytest.mark.parametrize("one_temporary", [True, False])
def test_any_lost_argument_of_an_indirect_gemm(one_temporary: bool) -> None:
    """Whichever argument of whichever kernel is not known, sizes are right or absent."""
    part = indirect((50, 70, 90), tiles=(64, 96, 96), beta=True, one_temporary=one_temporary)
    needed = {(at, index) for at in range(3) for index in (0, 1, 5, 6, 9)}
    needed |= {(3, index) for index in (0, 1, 2, 5, 6, 7)} | {(4, index) for index in (0, 1, 5, 6)}
    for at, enqueue in enumerate(part):
        for index in range(len(enqueue.opencl.arguments)):
            lost = (*enqueue.opencl.arguments[:index], "", *enqueue.opencl.arguments[index + 1 :])
            short = enqueue.opencl.arguments[:index]
            for arguments in (lost, short):
                lacking = [*part[:at], changed(enqueue, arguments=arguments), *part[at + 1 :]]
                found = gemms(profile(lacking, [clblast_program(0)]))
                assert found in ({}, {3: Gemm(50, 70, 90)})
                if (at, index) in needed:
                    assert found == {}


@given(calls=st.lists(CALL, min_size=2, max_size=4))
def test_copies_may_lie_between(calls: list[dict[str, Any]]) -> None:
    """Reads and writes, and another queue's kernels, do not part a GEMM from its helpers."""
    enqueues, expected = run(calls)
    others = [changed(enqueue, queue=1) for enqueue in enqueues]
    mixed = [enqueue for pair in zip(enqueues, others, strict=True) for enqueue in (*pair, READ)]
    found = gemms(profile(mixed, [clblast_program(0)]))
    assert found == {3 * at + side: Gemm(*sizes) for at, sizes in expected.items() for side in (0, 1)}


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
    users = ("user A", "user B", "user C")
    common: dict[str, Any] = {
        "turned": (False, True),
        "syrk": "XgemmUpper",
        "one_temporary": False,
        "tiles": (64, 64, 16),
    }
    first = indirect((40, 40, 24), users=users, call=1, **common)
    second = indirect((40, 40, 24), users=(users[1], users[0], users[2]), beta=True, call=2, **common)
    found = gemms(profile([*first, *second, *first], [clblast_program(0)]))
    assert found == {3: Gemm(40, 40, 24), 2 * len(first) + 3: Gemm(40, 40, 24)}


def test_syr2k_before_1_5_is_one_gemm() -> None:
    """There the kernel ran twice between one set of helpers."""
    first = indirect((40, 40, 24), turned=(False, True), syrk="XgemmLower", one_temporary=False, tiles=(64, 64, 16))
    main = first[3]
    a, b = main.opencl.arguments[4:6]
    again = changed(main, arguments=(*main.opencl.arguments[:3], ONE, b, a, *main.opencl.arguments[6:]))
    facts = find_gemms(profile([*first[:4], again, *first[4:], *first], [clblast_program(0)]))
    assert facts[3].gemm == Gemm(40, 40, 24)
    assert facts[4] == KernelFact(role="main")
    assert [at for at, fact in facts.items() if fact.gemm] == [3, 9]


# --- ViennaCL ---


def prod(
    sizes: Sequence[int],
    starts: Sequence[tuple[int, int]],
    leading: Sequence[int],
    users: Sequence[str],
    beta: str,
    name: str,
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


@given(products=st.lists(PRODUCT, min_size=1, max_size=4))
def test_viennacl_blocks_sum_to_the_whole(products: list[dict[str, Any]]) -> None:
    """However a GEMM is cut, its first block carries all of it, and the flops are those of the blocks."""
    enqueues: list[Activity] = []
    expected: dict[int, Gemm] = {}
    for product in products:
        expected[len(enqueues)] = Gemm(*product["whole"])
        enqueues += cut(**product)
    facts = find_gemms(profile([*enqueues, READ]))
    assert {at: fact.gemm for at, fact in facts.items() if fact.gemm} == expected
    assert {fact.role for fact in facts.values()} == {"main"}
    blocks = [Gemm(*(size(value) or 0 for value in enqueue.opencl.arguments[:3])) for enqueue in enqueues]
    assert sum(block.flop for block in blocks) == sum(gemm.flop for gemm in expected.values())


@given(products=st.lists(PRODUCT, min_size=1, max_size=3), data=st.data())
def test_viennacl_at_the_end_of_a_cut_profile(products: list[dict[str, Any]], data: st.DataObject) -> None:
    """Blocks may be missing at the end: then there are no sizes, never those of a part."""
    enqueues: list[Activity] = []
    expected: dict[int, Gemm] = {}
    for product in products:
        expected[len(enqueues)] = Gemm(*product["whole"])
        enqueues += cut(**product)
    left = enqueues[: data.draw(st.integers(0, len(enqueues)))]
    assert gemms(profile(left)).items() <= expected.items()


def test_viennacl_knows_that_the_program_went_on() -> None:
    """A later call of any kind tells that a GEMM of one block is whole."""
    alone = profile(cut((20, 576, 25), (32, 64, 8)))
    assert find_gemms(alone) == {0: KernelFact(role="main")}
    assert gemms(with_opencl(alone, marks=(TimerMark(number=9),))) == {0: Gemm(20, 576, 25)}


def test_viennacl_bias_is_its_own_gemm() -> None:
    """Caffe's bias follows as a GEMM with K = 1 into the same C: not a remainder in K."""
    part = cut((50, 64, 500), (32, 64, 16))
    bias = cut((50, 64, 1), (32, 64, 16), users=("C", "bias", "ones"), beta=ONE)
    assert len(part) == 4
    assert gemms(profile([*part, *bias, *part, READ])) == {
        0: Gemm(50, 64, 500),
        4: Gemm(50, 64, 1),
        5: Gemm(50, 64, 500),
    }


def test_viennacl_queues_do_not_mix() -> None:
    """Blocks are consecutive in their queue."""
    part = cut((50, 70, 500), (32, 64, 16))
    mixed = [changed(block, queue=queue) for block in part for queue in (0, 1)]
    assert gemms(profile([*mixed, READ])) == {0: Gemm(50, 70, 500), 1: Gemm(50, 70, 500)}


@pytest.mark.parametrize("lost", [0, 2, 5, 11, 22])
def test_viennacl_with_lost_arguments_has_no_sizes(lost: int) -> None:
    """Where a block lies is part of the evidence."""
    (block,) = cut((20, 576, 25), (32, 64, 8))
    arguments = (*block.opencl.arguments[:lost], "", *block.opencl.arguments[lost + 1 :])
    assert find_gemms(profile([changed(block, arguments=arguments), READ])) == {0: KernelFact(role="main")}


def test_viennacl_remainders_in_k_add_up() -> None:
    """A block with the rest of K adds to the result (beta 1): one that replaces it is a GEMM of its own."""
    main, rest = cut((32, 64, 500), (32, 64, 16))
    assert gemms(profile([main, rest, READ])) == {0: Gemm(32, 64, 500)}
    replaces = changed(rest, arguments=(*rest.opencl.arguments[:-1], ZERO))
    assert gemms(profile([main, replaces, READ])) == {0: Gemm(32, 64, 496), 1: Gemm(32, 64, 4)}
    odd = changed(main, arguments=(*main.opencl.arguments[:5], "0000", *main.opencl.arguments[6:]))
    assert find_gemms(profile([odd, READ])) == {0: KernelFact(role="main")}


# --- LibDNN ---

Shape = dict[str, int]


def libdnn_source(layer: Shape) -> str:
    """The macros of a layer's program, in LibDNN's manner, and the heads of its three kernels."""
    fin, fout, g, kernel_size = layer["fin"], layer["fout"], layer["g"], layer["ks"]
    imsi, imso = layer["imsi"], layer["imso"]
    bias = "__global const Dtype* bias, " if layer.get("bias", 1) else ""
    sections = [
        ("conv_forward", (fout // g, imso, fin * kernel_size // g),
         {"v_B_off": fin * imsi, "v_C_off": fout * imso}, ""),
        ("conv_backward", (fin // g, imsi, fout * kernel_size // g),
         {"v_A_off": fin * fout * kernel_size, "v_B_off": fout * imso, "v_C_off": fin * imsi}, ""),
        ("conv_weights", (fout // g, fin * kernel_size // g, imso),
         {"v_A_off": fout * imso, "v_B_off": fin * imsi, "v_C_off": fin * fout * kernel_size}, ", int_tp batch_size"),
    ]  # fmt: skip
    text = ["#define Dtype float", "#define Dtype4 float4", "__kernel void fill_memory(const int_tp n) {", "}"]
    for name, (m, n, k), offsets, more in sections:
        macros = {"v_g": g, **offsets, "v_fout": fout, **({"v_bmul": "(float) 1"} if bias else {}),
                  "MG": m * g, "M": m, "N": n, "KG": k * g, "K": k, "TSM": 64, "TSN": 64, "TSK": 8, "RTSM": 16,
                  "RTSN": 16, "v_num_tiles": "(((K - 1)/(TSK*2) + 1)*2)"}  # fmt: skip
        for macro, value in macros.items():
            text += [f"#ifdef {macro}", f"#undef {macro}", "#endif", f"#define {macro} {value}"]
        text += [
            "__kernel",
            "__attribute__((reqd_work_group_size(16, 16, 1)))",
            f"void {name}(__global Dtype* in, {bias}{more}) {{",
            "}",
        ]
    return "\n".join(text)


def libdnn_kernel(at: int, layer: Shape, name: str, images: int, direct: bool = False) -> Activity:
    """Layer ``at``'s kernel; its buffers are told by the layer, its input is the layer before's output."""
    fin, fout, g, kernel_size = layer["fin"], layer["fout"], layer["g"], layer["ks"]
    m, n = {
        "conv_forward": (fout // g, layer["imso"]),
        "conv_backward": (fin // g, layer["imsi"]),
        "conv_weights": (fout // g, fin * kernel_size // g),
    }[name]
    bias = [f"bias {at}"] if layer.get("bias", 1) else []
    arguments: list[str | int] = {
        "conv_forward": [mem(x) for x in (f"data {at}", f"weights {at}", *bias, f"data {at + 1}")],
        "conv_backward": [mem(x) for x in (f"diff {at + 1}", f"weights {at}", *bias, f"diff {at}")],
        "conv_weights": [mem(x) for x in (f"data {at}", f"diff {at + 1}", *bias, f"weights diff {at}")] + [images],
    }[name]  # type: ignore[assignment]
    gws = (-(-n // 64) * 16, -(-m // 64) * 16, g if direct else g * images)
    return kernel(name, *arguments, grid=gws, kernel=f"0x{name}{at}")


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
    fin, fout, g, kernel_size = layer["fin"], layer["fout"], layer["g"], layer["ks"]
    m, n, k = {
        "conv_forward": (fout // g, layer["imso"], fin * kernel_size // g),
        "conv_backward": (fin // g, layer["imsi"], fout * kernel_size // g),
        "conv_weights": (fout // g, fin * kernel_size // g, layer["imso"]),
    }[name]
    return Gemm(m, n, k, images * g)


def as_json_string(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()


def as_json_object(text: str) -> bytes:
    half = len(text) // 2
    return json.dumps({"0": text[:half], "1": text[half:]}, indent="\t").encode()


FORMS: list[Callable[[str], bytes]] = [str.encode, as_json_string, as_json_object]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("with_buffers", [True, False])
def test_libdnn_finds_each_kernel_s_program(form: Callable[[str], bytes], images: int, with_buffers: bool) -> None:
    """Several programs have one work size: order of first use, or the buffers' sizes, tell them apart."""
    programs = [
        msgspec.structs.replace(program(at), source=form(libdnn_source(layer))) for at, layer in enumerate(FIRE)
    ]
    forward = [libdnn_kernel(at, layer, "conv_forward", images) for at, layer in enumerate(FIRE)]
    buffers = libdnn_buffers(FIRE, images) if with_buffers else []
    facts = find_gemms(profile([*forward, OTHER, *forward], programs, buffers))
    expected = [libdnn_expected(layer, "conv_forward", images) for layer in FIRE]
    assert [facts[at].gemm for at in range(5)] == expected
    assert [facts[at + 6].gemm for at in range(5)] == expected
    assert {fact.gemm_by for fact in facts.values()} == {"source"}


@settings(max_examples=60)
@given(order=st.permutations(range(5)), images=st.sampled_from([1, 2]), direct=st.booleans())
def test_libdnn_in_any_order_with_buffers(order: list[int], images: int, direct: bool) -> None:
    """Buffers tell a kernel's program whatever the order, also backward; conv_weights has two ways to batch."""
    programs = [program(at, libdnn_source(layer)) for at, layer in enumerate(FIRE)]
    enqueues, expected = [], []
    for at in order:
        for name in ("conv_forward", "conv_backward", "conv_weights"):
            enqueues.append(libdnn_kernel(at, FIRE[at], name, images, direct and name == "conv_weights"))
            expected.append(libdnn_expected(FIRE[at], name, images))
    facts = find_gemms(profile(enqueues, programs, libdnn_buffers(FIRE, images)))
    assert [facts[at].gemm for at in range(len(enqueues))] == expected


@settings(max_examples=60)
@given(order=st.permutations(range(5)), cut_at=st.integers(0, 5))
def test_libdnn_never_guesses(order: list[int], cut_at: int) -> None:
    """Without buffers a kernel has sizes only when they do not depend on which program it is."""
    programs = [program(at, libdnn_source(layer)) for at, layer in enumerate(FIRE)]
    enqueues = [libdnn_kernel(at, FIRE[at], "conv_weights", 1) for at in order[:cut_at]]
    for position, gemm in gemms(profile(enqueues, programs)).items():
        assert gemm == libdnn_expected(FIRE[order[position]], "conv_weights", 1)


def test_libdnn_backward_follows_forward_buffers() -> None:
    """Where sizes of buffers are not known, the weights of the forward kernel name the program."""
    layers = FIRE[1:3]
    programs = [program(at, libdnn_source(layer)) for at, layer in enumerate(layers)]
    forward = [libdnn_kernel(at, layer, "conv_forward", 1) for at, layer in enumerate(layers)]
    backward = [libdnn_kernel(at, layer, "conv_backward", 1) for at, layer in reversed(list(enumerate(layers)))]
    facts = find_gemms(profile([*forward, *backward], programs))
    assert [facts[at].gemm for at in (2, 3)] == [libdnn_expected(layer, "conv_backward", 1) for layer in layers[::-1]]
    assert gemms(profile(backward, programs)) == {}


def test_libdnn_program_without_source_is_not_ruled_out() -> None:
    """With a program made from a binary, a fitting work size alone proves nothing."""
    programs = [program(0, libdnn_source(FIRE[0])), program(1)]
    forward = [libdnn_kernel(0, FIRE[0], "conv_forward", 1)]
    assert gemms(profile(forward, programs)) == {}
    assert gemms(profile(forward, programs, libdnn_buffers(FIRE[:1], 1))) == {0: Gemm(16, 3136, 64)}
    assert gemms(profile([kernel("conv_forward")], programs)) == {}


def test_libdnn_kernels_that_fit_no_program() -> None:
    """More kernels than programs, other work sizes, macros that are gone, a link to another program, a wrong batch."""
    source = libdnn_source(FIRE[1])
    forward, weights = (libdnn_kernel(1, FIRE[1], name, 2) for name in ("conv_forward", "conv_weights"))
    other = libdnn_source(FIRE[2])
    twice = changed(forward, kernel="0x99")
    assert gemms(profile([forward, twice], [program(0, source)])) == dict.fromkeys((0, 1), Gemm(64, 3136, 16, 2))
    third = changed(forward, kernel="0x98")
    assert gemms(profile([forward, twice, third], [program(0, source), program(1, other)])) == {}
    assert gemms(profile([forward], [program(0, libdnn_source(FIRE[4]))])) == {}
    assert gemms(profile([forward], [program(0, source.replace("#define TSM 64", ""))])) == {}
    linked = changed(forward, program=1)
    assert gemms(profile([linked], [program(0, source), program(1, other)])) == {0: Gemm(64, 3136, 144, 2)}
    strange = changed(weights, arguments=(*weights.opencl.arguments[:-1], i32(5)))
    assert gemms(profile([weights, strange], [program(0, source)])) == {0: Gemm(64, 16, 3136, 2)}
    assert gemms(profile([forward], [program(0, source)], [("(nil)", 4), ("0x0", 4)])) == {0: Gemm(64, 3136, 16, 2)}


def test_libdnn_handles_are_recycled() -> None:
    """Of several buffers with one handle the last before the enqueue counts, against the order of first use too."""
    programs = [program(at, libdnn_source(layer)) for at, layer in enumerate(FIRE[1:3])]
    second = libdnn_kernel(1, FIRE[2], "conv_forward", 1)
    weights = f"0x{number(mem('weights 1')):x}"
    small, large = 4 * 16 * 64, 4 * 16 * 64 * 9
    assert gemms(profile([second], programs, [(weights, small), (weights, large)])) == {0: Gemm(64, 3136, 144)}
    assert gemms(profile([second], programs, [(weights, large), (weights, small)])) == {0: Gemm(64, 3136, 16)}
    assert gemms(profile([second], programs, [(weights, 10 * large)])) == {}
    assert gemms(profile([second], programs, [(weights, large + 64)])) == {0: Gemm(64, 3136, 144)}


# --- MIOpenGEMM ---


def miog_source(m: int, n: int, k: int, name: str, year: int = 2018, tile: tuple[int, int] = (128, 96)) -> str:
    macros: dict[str, object] = {"__K__" if year == 2017 else "KV__": k, "TFLOAT ": "float"}
    for matrix, length, step in (("A", m, tile[0]), ("B", n, tile[1])):
        macros |= {f"MACRO_TILE_LENGTH_{matrix}": step, f"N_GROUPS_{matrix}": -(-length // step)}
        if m % tile[0] or n % tile[1]:
            macros[f"PRESHIFT_FINAL_TILE_{matrix}"] = 1 + (length - 1) % step
        macros[f"MICRO_{matrix}_TILE_PLL_UNROLL"] = "1 "
    macros["GLOBAL_WORK_SIZE"] = 4096
    comment = f"/* tC0_tA0_tB0_colMaj1_m{m}_n{n}_k{k}_lda{m}_ldb{k}_ldc{m}_ws0_f32*/\n"
    return (
        comment
        + "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
        + f"__kernel void {name}\n(\n"
    )


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
    assert gemms(profile([main], [program(0, source)])) == {0: Gemm(512, 288, 512)}
    assert gemms(profile([changed(main, program=None)], [program(0, source)])) == {0: Gemm(512, 288, 512)}
    bad: list[tuple[Activity, list[Program]]] = [
        (changed(main, grid=(8192, 1, 1)), [program(0, source)]),
        (main, [program(0, source.replace("_m512_", "_m511_"))]),
        (main, [program(0, source.replace("KV__", "KX__"))]),
        (main, [program(0, source.replace("N_GROUPS_A 4", "N_GROUPS_A four"))]),
        (main, [program(0, "/* 20192 characters of kernel source removed */")]),
        (main, []),
        (changed(main, program=None), [program(0, source), program(1, source)]),
        (changed(main, program=None), [program(0, source), program(1)]),
    ]
    for enqueue, programs in bad:
        assert find_gemms(profile([enqueue], programs)) == {0: KernelFact(role="main")}


# --- ARM Compute Library ---

BLOCKS = "-DM0=4 -DN0=4 -DK0=16 -DPARTIAL_STORE_M0=1 -DPARTIAL_STORE_N0=2"
NEW = (A, 64, 4, B, 64, 4, C, 64, 4, 1000, 2000, 3000, 49, 50, 147)

ARM: list[tuple[str, tuple[int | str, ...], str, Size3, Gemm | None, str]] = [
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
    # M, N or K is cut away, contradicted by the work size, or not stated exactly
    ("gemm_mm_reshaped_lhs_nt_rhs_t", NEW, f"-DM=49 {BLOCKS}", (13, 13, 1), None, ""),
    ("gemm_mm_reshaped_lhs_nt_rhs_t", NEW, f"-DM=49 -DN=50 -DK=147 {BLOCKS}", (16, 13, 1), None, ""),
    ("gemm_mm_reshaped_lhs_nt_rhs_t", NEW[:-3], BLOCKS, (13, 13, 1), None, ""),
    ("gemm_mm_reshaped_lhs_nt_rhs_t", NEW, "", (13, 13, 1), None, ""),
    ("gemm_mm_reshaped_lhs_nt_rhs_t", (*NEW[:-1], ""), BLOCKS, (13, 13, 1), None, ""),
    ("gemm_mm_reshaped_lhs_nt_rhs_t", NEW, BLOCKS.replace("M0=1", "M0=3"), (13, 13, 1), None, ""),
    ("gemm_mm_floating_point_f32_bifrost", NEW, "-DCOLS_A=147 -DNUM_ELEMS_PROCESSED_PER_THREAD_X=4 "
     "-DNUM_ELEMS_PROCESSED_PER_THREAD_Y=4", (13, 13, 1), None, ""),
    ("gemm_mm_interleaved_transposed_f32_midgard", NEW, "-DCOLS_B=588", (13, 13, 1), None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options", "gws", "expected", "by"), ARM)
def test_arm_compute_library(
    name: str, arguments: tuple[int | str, ...], options: str, gws: Size3, expected: Gemm | None, by: str
) -> None:
    """Build options or the last three arguments, borne out by the block sizes; what is rounded up is left out."""
    enqueue = kernel(name, *arguments, grid=gws, program=0)
    facts = find_gemms(profile([enqueue], [program(0, "", options)]))
    assert facts == {0: KernelFact(role="main", gemm=expected, gemm_by=by)}


def test_arm_compute_library_without_a_link() -> None:
    """A kernel without program or work size keeps its role."""
    for enqueue in (kernel("gemm_mm_native", *NEW, grid=(13, 13, 1)), kernel("gemm_mm_native", *NEW, program=0)):
        assert find_gemms(profile([enqueue], [program(0, "", BLOCKS)])) == {0: KernelFact(role="main")}


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
    assert sources.defines(0, "a") == {"M": "1", "N": "2"}
    assert sources.defines(0, "b") == {"M": "3", "N": "2"}
    assert sources.defines(0, "c") == {}
    assert sources.defining("b") == (0, 1)
    assert sources.program_of(None, "a") == 0
    assert sources.program_of(None, "b") is None
    assert sources.program_of(1, "a") == 1
    assert sources.program_of(7, "a") is None


# --- real samples ---


def load(path: Path) -> Profile:
    return read(path.read_bytes())


def blas_sizes(call: dict[str, Any]) -> Gemm | None:
    """What a call of the truth file asked for."""
    match call["routine"]:
        case "Gemm" | "GemmBatched" | "GemmStridedBatched":
            return Gemm(call["M"], call["N"], call["K"], call.get("batch", 1))
        case "Gemv":  # the truth's M and N are those of the matrix
            m, n = (call["N"], call["M"]) if call["trans_a"] else (call["M"], call["N"])
            return Gemm(m, 1, n)
        case "Syrk":
            return Gemm(call["N"], call["N"], call["K"])
        case "Convgemm":
            patch = call["channels"] * call["kernel"] ** 2
            return Gemm(call["out_h"] * call["out_w"], call["num_kernels"], patch, call["batch"])
    return None


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["clblast-gemm-direct", "clblast-gemm-indirect-small", "clblast-lenet-seq-x3", "clblast-batched-small"]
)
def test_every_blas_call_of_a_sample(name: str, shared: Path) -> None:
    """Each call has its M, N, K and batch on exactly one of its kernels, and nothing else has any."""
    folder = shared / "samples" / "dvdt"
    profile_ = load(folder / f"{name}.prof.json")
    facts = find_gemms(profile_)
    calls = json.loads((folder / f"{name}.truth.json").read_text("utf-8"))
    by_call: dict[int, list[Gemm]] = {}
    for position, fact in facts.items():
        if fact.gemm:
            at = profile_.activities[position].number
            (op,) = [call["op"] for call in calls if call["first_call"] <= at <= call["last_call"]]
            by_call.setdefault(op, []).append(fact.gemm)
            assert fact.role == "main"
            assert fact.padded is None or all(
                padded >= real
                for padded, real in zip(fact.padded, (fact.gemm.m, fact.gemm.n, fact.gemm.k), strict=True)
            )
    expected = {call["op"]: [gemm] for call in calls if (gemm := blas_sizes(call))}
    assert by_call == expected
    assert expected


@pytest.mark.shared
def test_the_offline_parser_s_cut_handles_do_not_matter(shared: Path) -> None:
    """18 kernels that share 9 cut handles, each set before it runs, have the sizes of their uncut twins."""
    folder = shared / "samples" / "dvdt"
    whole = gemms(load(folder / "clblast-lenet-seq-x3.prof.json"))
    cut_ = load(folder / "offline-parser.prof.json")
    assert list(gemms(cut_).values()) == list(whole.values())


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


def area(shape: tuple[int, ...]) -> int:
    return shape[2] * shape[3]


def layer_gemms(layer: dict[str, Any], library: str) -> dict[str, list[Gemm]]:
    """What a layer runs, per direction: the GEMMs of Caffe's convolution and inner product layers."""
    images = layer["top"][0]
    if layer["type"] == "Convolution":
        g = int(layer.get("group", 1))
        out, channels, pixels = layer["top"][1], layer["bottom"][1], area(layer["top"])
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
    out, inputs = layer["top"][1], 1
    for length in layer["bottom"][1:]:
        inputs *= length
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
    folder = shared / "samples" / "dvdt"
    profile_ = load(folder / f"{name}.prof.json")
    facts = find_gemms(profile_)
    truth = json.loads((folder / f"{name}.truth.json").read_text("utf-8"))
    run_of = {enqueue["call_index"]: enqueue["l"] for enqueue in truth["enqueues"]}
    found: dict[int, list[Gemm]] = {}
    for position, fact in sorted(facts.items()):
        if fact.gemm:
            found.setdefault(run_of[profile_.activities[position].number], []).append(fact.gemm)
    layers = {layer["name"]: layer for layer in net_layers((folder / f"{name}.run.log").read_text("utf-8"))}
    assert len(layers) >= 4
    checked = 0
    for index, run_ in enumerate(truth["layers"]):
        if run_["layer"] not in layers:
            assert index not in found
            continue
        expected = layer_gemms(layers[run_["layer"]], library)
        have = Counter(found.get(index, []))
        checked += have.total()
        if run_["direction"] == "forward":
            assert have == Counter(expected["forward"]), run_
        else:  # the gradient of the data is not asked for by every net
            assert have - Counter(expected["data"]) == Counter(expected["weights"]), run_
            assert have >= Counter(expected["weights"]), run_
    assert checked == sum(map(len, found.values())) > 0


@pytest.mark.shared
def test_every_gemm_like_kernel_of_a_sample_is_known(shared: Path) -> None:
    """In profiles with sources no kernel of a BLAS library is left without its sizes, save parts of a larger GEMM."""
    for path in sorted((shared / "samples" / "dvdt").glob("*.prof.json")):
        profile_ = load(path)
        facts = find_gemms(profile_)
        for position, fact in facts.items():
            enqueue = profile_.activities[position]
            assert enqueue.kind == "kernel"
            if fact.role == "main" and not enqueue.name.startswith("_prod"):
                assert fact.gemm is not None, (path.name, enqueue.number)
        for position, enqueue in enumerate(profile_.activities):
            if enqueue.name.startswith(("Xgem", "_prod", "conv_", "im2col", "fill", "Xim2col")):
                assert facts[position].role, (path.name, enqueue.number)


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
