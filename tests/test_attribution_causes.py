"""Causes of wrong links, each by its kind: what contradicts itself, what a line says, what belongs to a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.damage import loaded, measured
from benchmarks.damage_score import Tally, tallies
from benchmarks.damages import losses, prints, processes, profiles
from benchmarks.damages.run import Mutation, Run
from benchmarks.damages.sets import HANDLES, HIDDEN, NO_FRAMEWORK, TWIN, twin
from mio2trace import analyse
from mio2trace.align import align
from mio2trace.align.layers.caffe.layer_lines import _numbered
from mio2trace.align.links import NONE, SURE
from mio2trace.align.operations.likelihood import Likelihood
from mio2trace.align.operations.rates import NATS_NEVER
from mio2trace.analysis import Analysis, AnalysisOptions
from mio2trace.kernels.names import kernel_name, stem
from mio2trace.model.profile import Activity
from mio2trace.notes import Notes
from mio2trace.ops.families.rnn import RnnProblem
from mio2trace.ops.operation import Operation
from tests.conftest import shared_folder
from tests.records import enqueued, made_operation, opencl_profile


def run_of(name: str, variant: str = HANDLES) -> Run:
    return loaded(shared_folder())[variant][name]


def scored(run: Run, folder: Path) -> tuple[Tally, Tally]:
    return tallies(run, analyse(run.write(folder)))


def contradictions(analysis: Analysis) -> list[tuple[str, str]]:
    """Pairs of a call that launched nothing and a kernel without a call, between the same two links, that fit."""
    found = []
    for run in analysis.runs:
        for alignment in run.alignments:
            links, profile = alignment.links, alignment.profile
            kernels = [place for place, one in enumerate(profile.activities) if one.kind == "kernel"]
            operations = links.operations
            likelihood = Likelihood(profile, kernels, operations, alignment.facts, frozenset())
            place_of = {operation.index: place for place, operation in enumerate(operations)}
            linked = [place_of.get(links.operation_of[place], NONE) for place in kernels]
            silent = set(range(len(operations))) - set(linked)
            before, behind = -1, len(operations)
            highs = [behind := place if place != NONE else behind for place in reversed(linked)][::-1]
            for at, (place, high) in enumerate(zip(linked, highs, strict=True)):
                before = max(before, place)
                if place != NONE or not likelihood.kernels.kind(at).library:
                    continue
                for call in silent & set(range(before + 1, high)):
                    nats, _, named = likelihood.pair(likelihood.kernels.of[at], call)
                    if named and nats > NATS_NEVER and operations[call].phase == "run":
                        found.append((profile.activities[kernels[at]].name, operations[call].api))
    return found


@pytest.mark.shared
@pytest.mark.parametrize("variant", [HIDDEN, NO_FRAMEWORK])
def test_no_call_without_kernels_stands_beside_a_kernel_that_fits_it(variant: str, tmp_path: Path) -> None:
    """Of whole runs, whatever is left out of their logs: the two would be one link."""
    for name, run in loaded(shared_folder())[variant].items():
        if run.truth["api_calls"] and "cmdonly" not in name:
            folder = tmp_path / name
            folder.mkdir()
            assert contradictions(analyse(run.write(folder))) == [], name


@pytest.mark.shared
@pytest.mark.parametrize("variant", [HANDLES, HIDDEN, NO_FRAMEWORK])
def test_calls_of_many_kernels_end_where_their_descriptors_say(variant: str) -> None:
    """Recurrent layers one after another, and what comes behind the last one."""
    operations = measured(shared_folder(), ("as recorded", "m121-rnn-infer-first", variant, 0)).operations
    assert operations.right == operations.kernels == 157


def recurrent(steps: Sequence[int]) -> tuple[list[int], list[int], list[float]]:
    """Of RNN calls with so many steps one after another, the true and the found call of each kernel, and how sure."""
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
    links = align(profile, (), Notes(), operations=operations).links
    return truth, [*links.operation_of], [links.operation_confidence.get(at, 1.0) for at in range(len(truth))]


@pytest.mark.parametrize("steps", [(3, 5), (5, 3), (1, 4, 2), (6, 6)])
def test_equal_kernels_are_divided_by_the_number_of_steps(steps: tuple[int, ...]) -> None:
    """Nothing but the length of their sequences tells calls apart whose kernels are the same."""
    truth, found, _ = recurrent(steps)
    assert found == truth


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
@pytest.mark.parametrize("kind", [*prints.LINES])
def test_lines_that_stand_twice_change_no_link(kind: str, tmp_path: Path) -> None:
    run = run_of("m121-resnet-infer-2it")
    operations, layers = scored(prints.doubled(kind)(run, Random(5)), tmp_path)
    assert (operations.right, layers.right) == (operations.kernels, layers.kernels)
    assert operations.wrong_and_sure == layers.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize(
    ("change", "variants"),
    [
        (prints.rotated, (HANDLES, HIDDEN, NO_FRAMEWORK)),
        (processes.two_loops, (HANDLES, HIDDEN)),
        (processes.ranks_mixed, (HANDLES, HIDDEN)),
        (profiles.sorted_by_name, (HANDLES, HIDDEN, NO_FRAMEWORK)),
        (profiles.names_versioned, (HANDLES, HIDDEN, NO_FRAMEWORK)),
    ],
)
def test_all_that_is_the_profiles_is_joined(change: Mutation, variants: Sequence[str], tmp_path: Path) -> None:
    """A log in two files, two loops, a launcher's ranks with equal ids, rows that somebody sorted, names of a build."""
    for variant in variants:
        folder = tmp_path / variant
        folder.mkdir()
        operations, layers = scored(change(run_of("m121-lenet-infer", variant), Random(1)), folder)
        assert operations.right == operations.kernels
        assert operations.wrong_and_sure == layers.wrong_and_sure == 0


@pytest.mark.shared
def test_runs_of_another_time_in_the_same_log_are_not_joined(tmp_path: Path) -> None:
    """What ran a minute before the profile is none of it."""
    run = processes.earlier_run(run_of("m121-lenet-infer", HIDDEN), Random(1))
    operations, layers = scored(run, tmp_path)
    assert operations.right == operations.kernels
    assert layers.right == layers.kernels


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


@pytest.mark.shared
def test_calls_in_a_stream_capture_are_bounded_by_it() -> None:
    """Without ranges: what ran before the capture is as sure as without one, and none of it is a captured call's."""
    folder = shared_folder() / "samples" / "rocm-twins" / "alexnet-10it-graph"
    run = twin(folder, "run.hip.log", folder / "rocpd" / "46001_results.db.gz")
    without = AnalysisOptions(without=frozenset(("range", "correlation")))
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        operations, _ = tallies(run, analyse(run.write(Path(temporary)), without))
    assert operations.links == 83
    assert operations.right == 83
    assert operations.mean > 0.99


@pytest.mark.shared
def test_threads_that_are_all_the_profiles_keep_their_calls(tmp_path: Path) -> None:
    """Both ids of the log are the profile's own."""
    folder = shared_folder() / "samples" / "rocm-twins" / "resnet-train-miopen-2threads"
    run = twin(folder, "run.hip.log", folder / "rocpd" / "45362_results.db.gz")
    without = AnalysisOptions(without=frozenset(("range", "correlation")))
    operations, _ = tallies(run, analyse(run.write(tmp_path), without))
    assert operations.right >= 0.995 * operations.kernels
    assert operations.wrong_and_sure == 0


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


@pytest.mark.shared
def test_stamps_of_another_run_relate_no_clock(tmp_path: Path) -> None:
    """A log of the program's run at another time: nothing that was linked is believed."""
    case = ("the program's log of another time, the same ids", "twin-alexnet-level6-none-run.hip-rocpd", TWIN, 0)
    result = measured(shared_folder(), case)
    assert result.operations.believed == 0
    assert tmp_path.exists()


@pytest.mark.shared
@pytest.mark.parametrize("row", ["another program's log before", "another's lines between, without ids"])
def test_of_two_programs_of_one_log_the_other_has_no_layers_here(row: str) -> None:
    """Calls that tell no thread, and addresses that both were given, do not make two programs one."""
    layers = measured(shared_folder(), (row, "m290-resnet-infer-immediate-fused", HANDLES, 0)).layers
    assert layers.right == layers.links == layers.kernels > 0


@pytest.mark.shared
@pytest.mark.parametrize("variant", [HANDLES, HIDDEN])
def test_loops_one_after_another_have_layers_on_their_own_queues(variant: str) -> None:
    """What did not run meanwhile is no other thread's work."""
    row, name = "two loops in one process", "m290-resnet-infer-immediate-fused"
    layers = measured(shared_folder(), (row, name, variant, 0)).layers
    assert layers.right == layers.links == layers.kernels > 0
    assert layers.mean > SURE


@pytest.mark.shared
def test_a_call_with_fewer_products_than_it_launches_has_no_sure_end() -> None:
    """Of two recurrent calls of which the profile lost a part, either may have what lies between them."""
    case = ("middle fifth of the profile lost", "m121-rnn-infer-first", NO_FRAMEWORK, 0)
    operations = measured(shared_folder(), case).operations
    assert operations.wrong_and_sure == 0
    assert operations.right < operations.links


@pytest.mark.shared
def test_commands_alone_among_entries_are_another_processs() -> None:
    """A process prints entries or it does not: where both are of one net, no link by names is sure."""
    case = ("another's lines between, without ids", "m290-lenet-train-cmdonly", NO_FRAMEWORK, 0)
    operations = measured(shared_folder(), case).operations
    assert operations.wrong_and_sure == 0
    assert operations.mean < 0.6


@pytest.mark.shared
@pytest.mark.parametrize("row", ["stamps step by 5 ms", "stamps run 2 % fast"])
def test_a_clock_that_goes_wrong_is_no_other_run_if_its_dates_are_the_profiles(row: str) -> None:
    """Another run of the program would have to run beside this one."""
    operations = measured(shared_folder(), (row, "m290-alexnet-infer-10it", HIDDEN, 0)).operations
    assert operations.right == operations.links
    assert operations.mean > 0.9


@pytest.mark.shared
@pytest.mark.parametrize(("row", "variant"), [("lines cut at 80", NO_FRAMEWORK), ("lines cut at 200", HANDLES)])
def test_lines_that_are_cut_off_leave_descriptors(row: str, variant: str) -> None:
    """Of a convolution whose own descriptor is cut the tensors remain."""
    operations = measured(shared_folder(), (row, "m290-resnet-train-entries-cmd", variant, 0)).operations
    assert operations.right == operations.kernels
    assert operations.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize("variant", [HIDDEN, NO_FRAMEWORK])
def test_what_moves_the_channels_is_of_the_convolution_beside_it(variant: str) -> None:
    """Batch norms and activations around it launch no transposes, whatever their other calls seem to have launched."""
    operations = measured(
        shared_folder(), ("transposes around convolutions", "m121-resnet-infer-2it", variant, 0)
    ).operations
    assert operations.right == operations.kernels
