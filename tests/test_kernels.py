"""``mio2trace kernels``: rows, sums, repetitions, GEMMs, layers, and what is said where something is missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.layers import repetitions as repeating
from mio2trace.align.layers.repetitions import Repetition, find_repetition
from mio2trace.kernels import find_gemms
from mio2trace.kernels.blas import find_parts
from mio2trace.model.profile import Activity, Profile
from mio2trace.model.tables import Numbers
from mio2trace.reports.kernels import gemm_table
from mio2trace.reports.ops import steady_table
from tests.commands import invoked, json_of, rows
from tests.made_up_costs import MS, Ran, measures, operation
from tests.often import present, saved
from tests.records import changed
from tests.small_runs import Program, as_json, benchmark
from tests.test_gemm import CLBLAS, cut, i32, kernel, profile

run = partial(invoked, "kernels", "--raw")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prof.json"


def test_a_kernel_without_a_recorded_launch_is_no_problem(tmp_path: Path) -> None:
    """A profile of kernels alone has no host times, and all sums of the device's."""
    path = tmp_path / "1_kernel_trace.csv"
    path.write_text(
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH",1,1,1,"own",1,1000,2000\n'
    )
    said = run(str(path)).stderr
    assert "note: kernel without host times: in no sum of the host's" in said
    assert "problem" not in said


def test_kernels_without_times_are_counted_and_said(path: Path) -> None:
    program = Program()
    program.enqueue("k", "0x60")
    del program.enqueue("k", "0x60")["profiling"]
    path.write_bytes(as_json(program.calls))
    done = run(str(path), "--by", "name")
    assert [(row["count"], row["p3_p2_sum_ns"]) for row in rows(done)] == [("2", "47000")]
    assert "kernel without device times: counted, in no sum" in done.stderr
    assert rows(run(str(path)))[1]["p3_p2_ns"] == ""


# -- repetitions -----------------------------------------------------------------------------------------------------


def write_kernels(path: Path, names: Sequence[str]) -> str:
    program = Program()
    for number, name in enumerate(names):
        program.enqueue(name, "0x60", us=10 + number)
    path.write_bytes(as_json(program.calls))
    return str(path)


def test_the_period_is_found_behind_a_set_up(path: Path) -> None:
    done = run(write_kernels(path, ["set", "up", *"abcabcabcabc", "end"]), "--by", "repetition")
    found = rows(done)
    assert [(row["kernel_index"], row["name"], row["count"]) for row in found] == [
        ("0", "a", "4"), ("1", "b", "4"), ("2", "c", "4"),
    ]  # fmt: skip
    assert "period: 3 kernels, 4 times, first at call 3; 3 of 15 kernels in no repetition" in done.stderr
    # the third kernel of all takes 12 us, 3 of them before p2
    statistics = [found[0][f"p3_p2_{name}_ns"] for name in ("min", "max", "mean", "median")]
    assert statistics == ["9000", "18000", "13500", "13500.0"]
    assert float(found[0]["p3_p2_std_ns"]) == pytest.approx(3872.98, abs=0.01)


def test_first_use_fills_do_not_hide_the_period(path: Path) -> None:
    names = ["fillbuffer_float", "a", "fillbuffer_float", "b", "c", *"abc"]
    done = run(write_kernels(path, names), "--by", "repetition")
    assert [(row["name"], row["count"]) for row in rows(done)] == [("a", "2"), ("b", "2"), ("c", "2")]
    assert "2 x kernel that only fills a buffer left out" in done.stderr


def test_no_period_is_said_and_is_an_error(path: Path) -> None:
    done = run(write_kernels(path, "abcdefghh"), "--by", "repetition")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "prof.json: no period in 9 kernels" in done.stderr
    assert "--per N" in done.stderr


def test_a_given_period_counts_from_the_first_kernel(path: Path) -> None:
    args = write_kernels(path, "xababa"), "--by", "repetition", "--per", "2"
    plain, skipped = run(*args), run(*args, "--skip", "1")
    assert [(row["name"], row["count"]) for row in rows(plain)] == [("x; b", "3"), ("a", "3")]
    assert "the kernels do not repeat every 2: 1 row with kernels of several names" in plain.stderr
    assert [(row["name"], row["count"]) for row in rows(skipped)] == [("a", "3"), ("b", "2")]
    assert "the last repetition has 1 of 2 kernels" in skipped.stderr
    assert "do not repeat" not in skipped.stderr


@pytest.mark.parametrize("args", ["--per 3", "--by name --skip 1", "--by repetition --skip 1", "--gemm --by name",
                                  "--by repetition --per 0", "--columns nothing", "--unit h"])  # fmt: skip
def test_options_that_do_not_go_together(path: Path, args: str) -> None:
    assert run(write_kernels(path, "ab"), *args.split()).exit_code == 2


def longest_stretch(items: Sequence[int]) -> tuple[int, int] | None:
    """(length, period) of the longest repeating stretch, the shortest period of several: by trying everything."""
    best: tuple[int, int] | None = None
    for period in range(1, len(items) // 2 + 1):
        same = 0
        for at in range(len(items) - period):
            same = same + 1 if items[at] == items[at + period] else 0
            if same >= period and (best is None or same + period > best[0]):
                best = same + period, period
    return best


@given(st.lists(st.integers(0, 2), max_size=40))
def test_the_longest_stretch_tells_the_unit(items: list[int]) -> None:
    found = find_repetition(items)
    expected = longest_stretch(items)
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    length, period = expected
    assert found.period == period
    units = {tuple(items[start : start + period]) for start in found.starts}
    assert len(units) == 1
    assert all(b - a >= period for a, b in zip(found.starts, found.starts[1:], strict=False))
    assert len(found.starts) >= length // period >= 2


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(3, 9),
    st.lists(st.integers(4, 9), max_size=20),
    st.integers(0, 8),
)
def test_a_stranger_among_repetitions_costs_no_other(unit: list[int], times: int, before: list[int], gap: int) -> None:
    """Elements of the set-up come nowhere else, so the unit is the repeated one, or what it repeats itself."""
    gap = min(gap, times - 2)
    items = [*unit * gap, 99, *unit * (times - gap)]
    found = present(find_repetition([*range(100, 100 + len(before)), *items]))
    assert len(unit) % found.period == 0 or found.covered > len(unit) * (times - gap)
    assert found.covered >= len(unit) * max(gap, times - gap)


def test_a_graph_launch_counts_as_its_kernels() -> None:
    """Blocks that repeat within the only step without a graph are no steps beside launches of a graph."""
    items = [1, 2, 3, 1, 2, 3, 7, 7, 7, 7]
    assert find_repetition(items) == Repetition(period=3, starts=(0, 3))
    assert find_repetition(items, [1] * 6 + [6] * 4) == Repetition(period=1, starts=(6, 7, 8, 9))


def test_a_million_kernels_take_no_time() -> None:
    found = present(find_repetition([*range(1000, 1500), *[number % 97 for number in range(1000)] * 300]))
    assert (found.period, found.starts[0], len(found.starts)) == (1000, 500, 300)
    assert find_repetition([7] * 300_000) == Repetition(period=1, starts=tuple(range(300_000)))
    assert find_repetition(list(range(100_000))) is find_repetition([]) is None


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements each comparison was of."""
    counts: list[int] = []
    alike = repeating._Compared._alike

    def counted(looked_at: repeating._Compared, one: Numbers, other: Numbers) -> int:
        counts.append(len(one))
        return alike(looked_at, one, other)

    monkeypatch.setattr(repeating._Compared, "_alike", counted)
    return counts


def test_candidates_that_cannot_be_the_longest_are_hardly_compared(compared: list[int]) -> None:
    """Few kernels in any order begin a thousand candidates at each anchor, none of them a stretch."""
    chance = random.Random(1)
    items = [chance.randrange(6) for _ in range(5000)]
    assert find_repetition(items) is not None
    assert 0 < len(compared) < 10 * len(items)


def test_rows_of_one_kernel_with_another_in_them_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch, compared: list[int]
) -> None:
    """No anchor has a stretch of half the sequence, and each has as many candidates as there are kernels."""
    monkeypatch.setattr(repeating, "_FREE_CANDIDATES", 0)
    monkeypatch.setattr(repeating, "_FREE_COMPARED", 0)
    taken = []
    for count in (500, 1000):
        compared.clear()
        found = present(find_repetition([7] * count + [8] + [7] * count))
        assert (found.period, len(found.starts)) == (1, 2 * count)
        taken.append(len(compared))
    assert 0 < taken[1] <= 2.6 * taken[0], taken


# -- GEMMs -----------------------------------------------------------------------------------------------------------


def timed(*ran: Activity | tuple[Activity, int]) -> Profile:
    """Kernels of one microsecond, or of the given nanoseconds."""
    each = [one if isinstance(one, tuple) else (one, 1000) for one in ran]
    times = [(10_000 * at, 10_000 * at + ns) for at, (_, ns) in enumerate(each)]
    return profile(
        changed(one, queued_ns=start, submit_ns=start, start_ns=start, end_ns=end, grid=(64, 1, 1))
        for (one, _), (start, end) in zip(each, times, strict=True)
    )


RELU = kernel("relu")


def test_a_gemm_of_several_kernels_has_the_rate_of_all() -> None:
    """ViennaCL's 50x64x500 is four blocks (dvdt-ck.md 5): the flop of all over the time of all."""
    blocks = zip(cut((50, 64, 500), (32, 64, 16)), (700, 50, 200, 50), strict=True)
    made = timed(*blocks, RELU, (cut((8, 8, 8), (8, 8, 8))[0], 512), RELU)
    facts = find_gemms(made)
    assert find_parts(made, facts) == {0: (0, 1, 2, 3), 5: (5,)}
    whole, single = gemm_table(made, facts).rows
    assert [whole[key] for key in ("M", "N", "K", "kernels", "p3_p2_ns")] == [50, 64, 500, 4, 1000]
    assert whole["gflops"] == 2 * 50 * 64 * 500 / 1000
    assert [whole[key] for key in ("bucket_M", "bucket_N", "bucket_K")] == [64, 64, 512]
    assert (single["kernels"], single["gflops"]) == (1, 2.0)


def test_clblas_corner_kernels_belong_to_their_gemm() -> None:
    rows_ = [kernel(f"sgemm_Col_NN_B0_M{a}064_N{b}064_KX08", *CLBLAS) for a, b in ("XX", "LX", "XL", "LL")]
    elsewhere = kernel("sgemm_Col_NN_B0_ML064_NX064_KX08", "dd" * 8, *CLBLAS[1:])
    made = timed(*rows_, RELU, *rows_[:2], elsewhere)
    facts = find_gemms(made)
    assert find_parts(made, facts) == {0: (0, 1, 2, 3), 5: (5, 6)}
    assert [row["p3_p2_ns"] for row in gemm_table(made, facts).rows] == [4000, 2000]


def test_gemms_as_json_have_their_sizes_together(path: Path) -> None:
    program = Program()
    program.program()
    program.kernel("XgemmDirectNN", "0x60")
    for index, value in enumerate((100, 50, 3)):
        program.argument("0x60", index, i32(value))
    program.enqueue("XgemmDirectNN", "0x60")
    path.write_bytes(as_json(program.calls))
    (row,) = json_of("kernels", "--raw", path, "--gemm")
    assert row["gemm"] == {"M": 100, "N": 50, "K": 3}
    assert row["bucket"] == {"bucket_M": 128, "bucket_N": 64, "bucket_K": 2}
    assert row["gflops"] == pytest.approx(2 * 100 * 50 * 3 / 47000)
    assert "padded" not in row
    (bucket,) = rows(run(str(path), "--by", "bucket"))
    assert (bucket["count"], bucket["percent_of_gemm_time"], bucket["flop"]) == ("1", "100.0", "30000")
    assert float(bucket["gflops"]) == pytest.approx(row["gflops"])


# -- by layer, bad input ---------------------------------------------------------------------------------------------


def test_kernels_by_layer(tmp_path: Path) -> None:
    calls, text = benchmark()
    (tmp_path / "prof.json").write_bytes(as_json(calls))
    found = rows(run(str(saved(tmp_path / "run.log", text)), str(tmp_path / "prof.json"), "--by", "layer"))
    assert [(row["pass"], row["layer"], row["count"]) for row in found] == [
        ("warm-up · forward", "conv1", "2"), ("warm-up · forward", "ip1", "2"),
        ("iteration 1 · forward", "conv1", "2"), ("iteration 1 · forward", "ip1", "2"),
    ]  # fmt: skip
    assert found[2]["names"] == "conv1_k0 1; conv1_k1 1"
    assert found[2]["layer_by"] == "timer marks 2"
    assert found[2]["iteration"] == "1"
    assert sum(float(row["percent_of_kernel_time"]) for row in found) == pytest.approx(100)
    indexes = [call["call"] == "clEnqueueNDRangeKernel" and call["name"] for call in calls]
    assert int(found[3]["first_call_index"]) == len(indexes) - 1 - indexes[::-1].index("ip1_k0")
    alone = run(str(tmp_path / "prof.json"), "--by", "layer")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "names no layer; expected also the log of the run" in alone.stderr
    log = run(str(tmp_path / "run.log"))
    assert (log.exit_code, log.stdout) == (1, "")
    assert log.stderr == "mio2trace: run.log: holds no GPU profile; expected one\n"


def test_a_profile_without_kernels(path: Path) -> None:
    program = Program()
    program.buffer()
    path.write_bytes(as_json(program.calls))
    assert run(str(path)).stdout.count("call_index") == 1
    assert rows(run(str(path))) == rows(run(str(path), "--by", "name")) == rows(run(str(path), "--by", "bucket")) == []
    assert run(str(path), "--by", "repetition").exit_code == 1


def test_what_is_not_known_to_be_a_part_is_none() -> None:
    """Other matrices, another name, or a kernel in between: then it is not the rest of the product before."""
    (first,) = cut((8, 8, 8), (8, 8, 8), name="_prod_NN")
    sizes = first.opencl.arguments
    unsized = changed(first, arguments=("00000000", *sizes[1:]))
    elsewhere = changed(first, arguments=("00000000", *sizes[1:3], "dd" * 8, *sizes[4:]))
    for following in ([elsewhere], [changed(unsized, name="_prod_TT")], [RELU, unsized]):
        made = timed(first, *following, RELU)
        facts = find_gemms(made)
        assert facts[len(following)].role == "main"
        assert facts[len(following)].gemm is None
        assert find_parts(made, facts) == {0: (0,)}
    made = timed(first, changed(first, arguments=sizes[:-1]), RELU)
    assert find_parts(made, find_gemms(made)) == {0: (0, 1)}  # all that tells matrices apart agrees


def test_helpers_are_summed_per_iteration() -> None:
    """A kernel that turns a tensor for a convolution, in two iterations."""
    ran = {
        number: [Ran("transpose_NCHW2CNHW_V1", number * MS, operation=0), Ran("miopenSp3AsmConv", 10 * MS, operation=0)]
        for number in (1, 3)
    }
    conv = operation(0)
    (row,) = steady_table([conv], measures(ran, [conv]), ()).rows
    assert (row["iterations"], row["kernel_ns"]) == (2, 12 * MS)
    assert row["helpers_ns"] == row["transposes_ns"] == 2 * MS
