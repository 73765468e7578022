"""The measuring of damage measures: each row's truth follows its damage, and links are counted for what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.damage import Result, loaded, reliability, shortfalls, unreliable
from benchmarks.damage_score import Tally, tallies
from benchmarks.damages import losses, processes
from benchmarks.damages.rows import ROWS, Row
from benchmarks.damages.run import CannotError, Run, with_log
from benchmarks.damages.sets import HANDLES, NO_FRAMEWORK, TWIN, twin
from mio2trace import analyse
from mio2trace.align import align
from mio2trace.align.layers.layer_lines import _numbered
from mio2trace.analysis import DEFAULTS, AnalysisOptions
from mio2trace.kernels.names import kernel_name, stem
from mio2trace.model.profile import Activity
from mio2trace.notes import Notes
from mio2trace.ops.families.rnn import RnnProblem
from mio2trace.ops.operation import Operation
from tests.conftest import shared_folder
from tests.records import enqueued, made_operation, opencl_profile

SMALL = "m121-lenet-infer"


@pytest.fixture(scope="module")
def small() -> Run:
    return loaded(shared_folder())[HANDLES][SMALL]


@pytest.mark.shared
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_calls_line_is_its_own_under_every_damage(row: Row, small: Run) -> None:
    """Where the truth says that an entry of a call is, the damaged log has that entry."""
    by_name = loaded(shared_folder())[HANDLES]
    others = list(by_name.values())
    names = ("m290-lenet-train-cmdonly", "m121-alexnet-infer-interleaved", "m290-alexnet-infer-10it")
    runs = [small, *(by_name[name] for name in names)]
    runs += loaded(shared_folder())[TWIN].values()
    seen = 0
    for run in runs:
        try:
            changed = row.change(run, Random(3), others)
        except CannotError:
            continue
        if changed.wrong:
            assert {(one["api_call"], one["layer"]) for one in changed.truth["enqueues"]} == {(None, None)}
            seen += 1
            continue
        for call in changed.truth["api_calls"]:
            if call.get("log_line"):
                assert call["name"].encode() in changed.log[call["log_line"] - 1]
                assert call["log_line"] not in changed.foreign
            if call.get("cmd_line"):
                assert b"MIOpenDriver" in changed.log[call["cmd_line"] - 1]
        seen += 1
    assert seen > 0


def test_lines_keep_their_numbers_when_others_come_between() -> None:
    """A call's line moves, another run's lines are nobody's, and of two copies the first one counts."""
    call = {"index": 0, "name": "miopenX", "log_line": 2, "lines_before": 1, "lines_after": 3}
    truth = {"layers": [], "api_calls": [call], "enqueues": []}
    run = Run("made up", [b"a\n", b"b\n", b"c\n", b"d\n"], [], truth)
    changed = with_log(run, [(b"z\n", None), (b"a\n", 1), (b"b\n", 2), (b"b\n", 2), (b"z\n", None), (b"c\n", 3)])
    assert changed.foreign == {1, 5}
    assert changed.copies == {4: 3}
    moved = changed.truth["api_calls"][0]
    assert (moved["log_line"], moved["lines_before"], moved["lines_after"]) == (3, 2, 6)
    assert with_log(changed, [(b"b\n", 4), (b"c\n", 6)]).truth["api_calls"][0]["log_line"] == 1


@pytest.mark.shared
def test_a_link_to_another_runs_line_is_wrong(small: Run, tmp_path: Path) -> None:
    """All links of an analysis are right, and none of them once their lines are another's."""
    analysis = analyse(small.write(tmp_path))
    operations, layers = tallies(small, analysis)
    assert (operations.right, layers.right) == (operations.kernels, layers.kernels) == (26, 26)
    assert operations.bins[-1] == [26, pytest.approx(26, rel=0.001), 26]
    strange = replace(small, foreign=frozenset(range(1, len(small.log) + 1)))
    operations, _ = tallies(strange, analysis)
    assert (operations.right, operations.wrong_and_sure, operations.believed) == (0, 26, 26)
    _, layers = tallies(processes.wrong(small), analysis)
    assert layers.wrong_and_sure == layers.links > 0


def test_what_is_below_the_promise_is_said() -> None:
    """Wrong and sure links, too few right ones, a refusal, a crash; of wrong runs links that are believed."""
    good = Tally(kernels=1000, right=1000, links=1000)
    bad = Tally(kernels=1000, right=900, wrong_and_sure=2, links=1000)
    assert list(shortfalls(Result("as recorded", HANDLES, 1, good, good))) == []
    texts = list(shortfalls(Result("as recorded", HANDLES, 1, bad, bad, ["x: no"], ["x 0: boom"])))
    assert len(texts) == 5
    believed = Tally(kernels=10, links=10, believed=1)
    assert len(list(shortfalls(Result("another run's log", HANDLES, 1, believed, Tally(), ["x: no"])))) == 1


def test_confidence_that_is_not_true_is_said() -> None:
    """Half true of links said with 0.9, and one in a hundred false of those said with 1."""
    tally = Tally()
    for number in range(200):
        tally.add(linked=True, right=True, true=number % 2 == 0, confidence=0.9, text="")
        tally.add(linked=True, right=True, true=number % 5 != 0, confidence=0.8, text="")
    assert [text.split(":")[0] for text in unreliable("operations", tally)] == ["operations said with 0.9"]
    total, _ = reliability([Result("as recorded", HANDLES, 1, tally)] * 2)
    assert total.bins[8] == [400, pytest.approx(320), 320]
    drawn, _ = reliability(
        [Result("as recorded", HANDLES, 1, tally), Result("2 % of lines lost", HANDLES, 2, tally)], 2
    )
    assert drawn.bins[8] == [300, pytest.approx(240), 240]  # a row without draws counts once, each of two draws half
    tally = Tally()
    for number in range(100):
        tally.add(linked=True, right=True, true=number > 0, confidence=1.0, text="")
    assert len(list(unreliable("operations", tally))) == 1


# -- Causes of wrong links, each by its kind: what contradicts itself, what a line says, what belongs to a profile.


def run_of(name: str, variant: str = HANDLES) -> Run:
    return loaded(shared_folder())[variant][name]


def rocm_twin(name: str, log: str, number: int) -> Run:
    folder = shared_folder() / "samples" / "rocm-twins" / name
    return twin(folder, log, folder / "rocpd" / f"{number}_results.db.gz")


def scored(run: Run, folder: Path, options: AnalysisOptions = DEFAULTS) -> tuple[Tally, Tally]:
    return tallies(run, analyse(run.write(folder), options))


@pytest.mark.parametrize("steps", [(3, 5), (5, 3), (1, 4, 2), (6, 6)])
def test_equal_kernels_are_divided_by_the_number_of_steps(steps: tuple[int, ...]) -> None:
    """Nothing but the length of their sequences tells calls apart whose kernels are the same."""
    operations: list[Operation] = []
    activities: list[Activity] = []
    truth: list[int] = []
    for index, count in enumerate(steps):
        problem = RnnProblem(direction="forward", steps=count, hidden=16, layers=1, mode="tanh")
        operations.append(
            made_operation(
                index=index, source=0, line=1 + 10 * index, end_line=9 + 10 * index, api="miopenRNNForwardInference",
                primitive="rnn", direction="forward", problem=problem, mode="tanh",
            )
        )  # fmt: skip
        names = ["miog_betac_alphaab", "Op3dTensorGeneric"]
        names += ["miog_betac_alphaab", "MIOpenNeuronFwd", "CopyTensor"] * count
        for name in names:
            number = len(activities)
            truth.append(index)
            activities.append(
                enqueued(
                    number=number, kind="kernel", name=name, start_ns=number * 1000, end_ns=number * 1000 + 500,
                    grid=(256, 1, 1),
                )
            )  # fmt: skip
    profile = opencl_profile(activities=tuple(activities))
    assert [*align(profile, (), Notes(), operations=operations).links.operation_of] == truth


def test_gemms_of_a_recurrent_call_are_counted_from_its_descriptor() -> None:
    """As MIOpen 1.2.1 launches them (samples/miopen-opencl/m121-rnn-infer-first); unknown is one part."""
    lstm = RnnProblem(direction="forward", steps=5, layers=1, mode="lstm")
    gru = RnnProblem(direction="forward", steps=4, layers=2, mode="gru")
    both_ways = RnnProblem(direction="forward", steps=3, layers=1, mode="tanh", bidirectional=True)
    assert [one.gemm_count(()) for one in (lstm, gru, both_ways)] == [6, 18, 7]
    assert lstm.gemm_count(("hx",)) == 5
    assert RnnProblem(direction="backward-data", steps=5, layers=1, mode="lstm").gemm_count(()) == 1
    assert RnnProblem(direction="forward").gemm_count(()) == 1


@pytest.mark.parametrize(
    ("places", "low", "high", "count", "expected"),
    [
        # An order that was inferred wrongly, between the lines of iterations 1 and 2: all of it is iteration 2.
        ((0, 2, 1, 3), 1, 2, None, [(0, 3, 2, True)]),
        # One line is lost: the layer that comes again tells where.
        ((0, 1, 2, 3, 0, 1, 2, 3), 1, 3, None, [(0, 3, 2, True), (4, 7, 3, True)]),
        # So it does where nothing behind tells, in order.
        ((0, 1, 2, 3), 4, None, 9, [(0, 3, 5, True)]),
        # A stretch is lost with the line in it: which of two iterations its sides are of is in doubt.
        ((0, 1, 3), 0, 2, 2, [(0, 2, 1, False)]),
        # The log begins late: what stands before a line without a gap is of its iteration.
        ((2, 3), None, 6, None, [(0, 1, 6, True)]),
        # One line twice, and no other one, is one iteration.
        ((0, 1, 1, 2, 3), 0, 1, None, [(0, 4, 1, True)]),
    ],
)  # fmt: skip
def test_a_line_outranks_an_order_that_was_inferred(
    places: Sequence[int],
    low: int | None,
    high: int | None,
    count: int | None,
    expected: list[tuple[int, int, int, bool]],
) -> None:
    assert [*_numbered(places, low, high, 3, count)] == expected


@pytest.mark.shared
@pytest.mark.parametrize(
    ("log", "profile"), [("log begins late", "profile ends early"), ("log ends early", "profile begins late")]
)
def test_iterations_that_log_and_profile_have_in_common_may_be_others(log: str, profile: str, tmp_path: Path) -> None:
    """Where both were cut each iteration of one fits each of the other: links are to a later one, and in doubt."""
    runs = loaded(shared_folder())[NO_FRAMEWORK]
    run, others = runs["m290-alexnet-infer-10it"], list(runs.values())
    for name in (log, profile):
        row = next(row for row in ROWS if row.name == name)
        run = row.change(run, Random(f"{name} 0"), others)
    operations, _ = scored(run, tmp_path)
    assert operations.links > 100
    assert operations.wrong_and_sure == 0


@pytest.mark.shared
def test_an_older_file_alone_is_a_log_of_its_own(tmp_path: Path) -> None:
    """Of `run.log.1` without `run.log` nothing is waited for; both are read in the order of their names' numbers."""
    run = run_of("m121-lenet-infer")
    cut = replace(losses.cut_log(run, Random(1)), rotated=0)
    paths = cut.write(tmp_path)
    older = paths[0].rename(tmp_path / "run.log.1")
    operations, _ = tallies(cut, analyse([older, *paths[1:]]))
    assert operations.wrong_and_sure == 0
    assert operations.right > 0


OWN_EVIDENCE = AnalysisOptions(without=frozenset(("range", "correlation")))


@pytest.mark.shared
@pytest.mark.parametrize("log", ["run.log", "run.hip.log"])
def test_times_printed_on_another_device_put_nothing_into_a_wrong_layer(log: str, tmp_path: Path) -> None:
    """Ranges tell which calls ran between two layers' lines; times of another backend's run cannot contradict that."""
    operations, layers = scored(rocm_twin("resnet-train-miopen-2threads", log, 45362), tmp_path)
    assert (operations.right, layers.right, layers.wrong_and_sure) == (591, 591, 0)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "number", "right", "mean"),
    [("alexnet-10it-graph", 46001, 83, 0.99), ("resnet-train-miopen-2threads", 45362, 589, 0)],
)
def test_calls_keep_to_their_stream_capture_and_thread(
    name: str, number: int, right: int, mean: float, tmp_path: Path
) -> None:
    """Without ranges, links before the capture are as sure as without it. The log's two ids are the profile's."""
    operations, _ = scored(rocm_twin(name, "run.hip.log", number), tmp_path, OWN_EVIDENCE)
    assert operations.right >= max(right, 0.995 * operations.links)
    assert operations.wrong_and_sure == 0
    assert operations.mean > mean


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("miog_betac_gfx942_v3_8_0", "miog_betac"),
        ("CopyTensor_gfx90a", "CopyTensor"),
        ("miopenconvuni", "MIOpenConvUni"),
        ("miopenSp3AsmConv_v30_3_1_gfx11_fp32_f2x3_stride1", "miopenSp3AsmConv_v30_3_1_gfx11_fp32_f2x3_stride1"),
        ("im2col", "im2col"),
        ("my_own_kernel", "my_own_kernel"),
    ],
)
def test_a_name_is_known_by_its_longest_stem(name: str, expected: str) -> None:
    assert stem(name) == expected
    assert kernel_name(name) == kernel_name(expected)
