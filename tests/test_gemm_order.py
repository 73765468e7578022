"""Calls of a BLAS library's log joined with GEMM kernels by order: a made-up run with its truth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from mio2trace.align import NONE, Alignment
from mio2trace.analysis import analyse
from tests.kineto_files import FIRST_US, row, trace


class Gemm(NamedTuple):
    m: int
    n: int
    k: int
    trans: str = "NN"

    @property
    def kernel(self) -> str:
        a, b = ("il", "li")[self.trans[0] == "T"], ("lj", "jl")[self.trans[1] == "T"]
        return f"Cijk_A{a}k_B{b}k_HHS_BH_MT{self.m}x{self.n}x{self.k}_SN"

    @property
    def bench(self) -> str:
        return (
            f"hipblaslt-bench --api_method c -m {self.m} -n {self.n} -k {self.k} --lda {self.m}"
            f" --transA {self.trans[0]} --transB {self.trans[1]} --batch_count 1 --a_type f16_r"
            " --b_type f16_r --c_type f16_r --d_type f16_r"
            " --compute_type f32_r --solution_index 7"
        )

    @property
    def rocblas(self) -> str:
        return (
            f"./rocblas-bench -f gemm_ex -m {self.m} -n {self.n} -k {self.k} --transposeA {self.trans[0]}"
            f" --transposeB {self.trans[1]} --a_type f16_r --compute_type f32_r"
        )


A, B, C, D = Gemm(64, 32, 128), Gemm(256, 64, 16, "TN"), Gemm(8, 1024, 64, "NT"), Gemm(512, 32, 128)
STEP = (A, B, B, C, D, A)


def aligned(folder: Path, kernels: Sequence[str], lines: Sequence[str], *, ops: bool = False) -> Alignment:
    """A profile of PyTorch's profiler that holds kernels and their launches alone, beside a log."""
    events = []
    for number, name in enumerate(kernels):
        at, key = FIRST_US + 100 * number, 1000 + number
        if ops:
            events.append(row("cpu_op", "aten::mm", 1, 1, at - 1, 20, External_id=1 + number,
                              Input_Dims=[[4, 4], [4, 4]], Input_type=["float", "float"]))  # fmt: skip
        events.append(
            row("cuda_runtime", "hipExtModuleLaunchKernel", 1, 1, at, 5, correlation=key, External_id=1 + number)
        )
        events.append(row("kernel", name, 0, 0, at + 20, 50, correlation=key, device=0, stream=0))
    (folder / "trace.json").write_bytes(trace(events))
    (folder / "blas.log").write_text("\n".join(["a line of the program", *lines, ""]))
    analysis = analyse([folder / "trace.json", folder / "blas.log"])
    (alignment,) = analysis.run.alignments
    return alignment


def found(alignment: Alignment) -> list[tuple[int, int, int] | None]:
    """Of each kernel the sizes of the call that it is given to; every such link is in doubt and by order."""
    links = alignment.links
    of_index = {operation.index: operation for operation in links.operations}
    sizes: list[tuple[int, int, int] | None] = []
    for position, index in enumerate(links.operation_of):
        if index == NONE:
            sizes.append(None)
            continue
        assert links.operation_by[position] == "order"
        assert position in links.operation_unsure
        gemm = of_index[index].gemm
        assert gemm is not None
        sizes.append((gemm.m, gemm.n, gemm.k))
    return sizes


@pytest.mark.parametrize("before", [(), (D, A), STEP, (A, C)])
@pytest.mark.parametrize("after", [(), STEP[:3]])
def test_every_kernel_has_the_call_that_ran_it(before: Sequence[Gemm], after: Sequence[Gemm], tmp_path: Path) -> None:
    """The log also has calls from before the profile began and after it ended; each call is an operation of its own."""
    ran = STEP * 3
    lines = [gemm.bench for gemm in (*before, *ran, *after)]
    alignment = aligned(tmp_path, ["fill", *(gemm.kernel for gemm in ran), "other"], lines)
    assert found(alignment) == [None, *((gemm.m, gemm.n, gemm.k) for gemm in ran), None]
    assert len(set(alignment.links.operation_of) - {NONE}) == len(ran)
    assert {one.solver for one in alignment.links.operations} == {"hipBLASLt 7"}


def test_kernels_that_finish_a_gemm_are_of_its_call(tmp_path: Path) -> None:
    """Split along K: the sum of the parts is a kernel of its own."""
    kernels = [name for gemm in STEP for name in (gemm.kernel, "Cijk_HHS_BH_PostGSU4_VW4")]
    alignment = aligned(tmp_path, kernels, [gemm.bench for gemm in STEP])
    expected = [(gemm.m, gemm.n, gemm.k) for gemm in STEP for _ in range(2)]
    assert found(alignment) == expected


def test_calls_that_two_libraries_print_count_once(tmp_path: Path) -> None:
    """rocBLAS hands calls on to hipBLASLt: of both the log of one library fits."""
    lines = [line for gemm in STEP for line in (gemm.rocblas, gemm.bench)]
    alignment = aligned(tmp_path, [gemm.kernel for gemm in STEP], lines)
    assert found(alignment) == [(gemm.m, gemm.n, gemm.k) for gemm in STEP]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([gemm.bench for gemm in STEP[:-1]], id="a call is missing"),
        pytest.param([gemm.bench for gemm in (*STEP[:3], *STEP[4:], A, B)], id="a call in the middle is missing"),
        pytest.param([gemm.bench for gemm in reversed(STEP)], id="another order"),
        pytest.param([gemm.bench for gemm in (A, B, C, C, D, A)], id="equal kernels of unlike calls"),
        pytest.param([Gemm(9, 9, 9, gemm.trans).bench for gemm in STEP], id="unlike kernels of equal calls"),
        pytest.param([f"4 {gemm.bench}" for gemm in STEP], id="counted lines"),
        pytest.param([gemm.bench for gemm in (*STEP, A, *(gemm._replace(k=gemm.k + gemm.m) for gemm in STEP))],
                     id="two places that fit"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_joined(lines: Sequence[str], tmp_path: Path) -> None:
    alignment = aligned(tmp_path, [gemm.kernel for gemm in STEP], lines)
    assert found(alignment) == [None] * len(STEP)


def test_a_kernel_that_an_op_launched_stays_there(tmp_path: Path) -> None:
    alignment = aligned(tmp_path, [gemm.kernel for gemm in STEP], [gemm.bench for gemm in STEP], ops=True)
    assert set(alignment.links.operation_by) == {"correlation"}


@pytest.mark.parametrize("seed", range(20))
def test_damaged_logs_give_no_sure_link(seed: int, tmp_path: Path) -> None:
    """Lines lost, doubled, exchanged: what is joined has the transposes of its kernel, and is in doubt (`found`)."""
    chance = random.Random(seed)
    ran = [chance.choice((A, B, C, D)) for _ in range(30)]
    lines = [gemm.bench for gemm in ran]
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        if chance.random() < 0.5:
            del lines[at]
        else:
            lines.insert(chance.randrange(len(lines)), lines[at])
    alignment = aligned(tmp_path, [gemm.kernel for gemm in ran], lines)
    assert len(found(alignment)) == len(ran)
