"""What tells one call's kernels from another's, each alone: sizes of helpers, transfers, algorithms, directions."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from math import exp, prod
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest

from benchmarks.damage import loaded, measured
from benchmarks.damage_score import tallies
from benchmarks.damages.rows import ROWS
from benchmarks.damages.sets import HIDDEN, NO_FRAMEWORK, TWIN
from mio2trace import analyse, load
from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.repetitions import place_between
from mio2trace.align.links import NONE
from mio2trace.align.operations import stream
from mio2trace.align.operations import stream as stream_module
from mio2trace.align.operations.chances import Habits, Posterior, cut_nats, following, hole_nats, kinds_of
from mio2trace.align.operations.lattice import AHEAD, WIDE, Lattice, Width
from mio2trace.align.operations.likelihood import Launches, items_fit
from mio2trace.align.rates import CUT, HOLE, WHOLE
from mio2trace.conversion import convert
from mio2trace.evidence import LAUNCH_LINE, Evidence
from mio2trace.measures.searches import doubt_of_iterations
from mio2trace.model.profile import Activity, Profile, Size3
from mio2trace.notes import Notes
from mio2trace.ops.families.rnn import RnnProblem
from mio2trace.ops.operation import Launch, Operation
from tests.commands import invoked
from tests.conftest import shared_folder
from tests.records import made_operation, other_operation
from tests.rocm_files import samples, truth
from tests.test_operation_links import CONV, CONV_GEMM, Maker, conv, hexed

RESNET = "m290-resnet-train-entries-cmd"
OPERATION = made_operation(index=0, source=0, line=1, end_line=2, api="miopenX", primitive="conv", direction="forward")


def of_sizes(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], stride: int = 1) -> Operation:
    return other_operation(OPERATION, input=x, weights=w, output=y, stride=(stride, stride))


HALVED = of_sizes((2, 64, 8, 8), (96, 64, 1, 1), (2, 96, 4, 4), 2)
GRADIENT_OF_20 = of_sizes((2, 20, 12, 12), (50, 20, 5, 5), (2, 50, 8, 8))
GRADIENT_OF_800 = of_sizes((2, 800, 1, 1), (100, 800, 1, 1), (2, 100, 1, 1))


def of_kind(primitive: str, sizes: tuple[int, ...]) -> Operation:
    return other_operation(OPERATION, primitive=primitive, direction=None, input=sizes, output=sizes)


def of_step(mode: str | None) -> Operation:
    """A recurrent call, whose activation works on a gate of a step's batch, or on several."""
    problem = RnnProblem(direction="forward", batches=(2,), steps=5, hidden=24, layers=1, mode=mode)
    return other_operation(OPERATION, primitive="rnn", problem=problem, input=(), output=())


@pytest.mark.parametrize(
    ("name", "grid", "workgroup", "operation", "fits"),
    [
        # Helpers of convolutions
        ("Im2d2Col", 8192, 64, of_sizes((1, 16, 11, 11), (32, 16, 5, 5), (1, 32, 11, 11)), True),
        ("Im2d2Col", 1536, 64, of_sizes((1, 24, 5, 5), (24, 24, 3, 3), (1, 24, 5, 5)), True),
        ("Im2Col", 16384, 64, of_sizes((2, 64, 9, 9), (24, 64, 1, 1), (2, 24, 5, 5), 2), True),
        ("Im2Col", 4096, 64, of_sizes((2, 64, 9, 9), (24, 64, 1, 1), (2, 24, 5, 5), 2), False),
        ("Col2Im2d", 2880, 64, GRADIENT_OF_20, True),
        ("MIOpenCvBwdWrW_rdc", 25000, 64, GRADIENT_OF_20, True),
        ("MIOpenCvBwdWrW_rdc", 500, 64, GRADIENT_OF_20, False),
        ("transpose_CNHW2NCHW_opt", 192, 64, of_sizes((2, 64, 8, 8), (24, 64, 1, 1), (2, 24, 4, 4), 2), True),
        ("SubSample", 512, 64, HALVED, True),
        ("Im2d2Col_v2", 512, 64, HALVED, None),
        ("Im2d2Col", 512, 64, OPERATION, None),
        # What the GEMM reads is the input, forward; filters of one element alone need no im2col.
        ("transpose_NCHW2CNHW", 3072, 64, HALVED, False),
        ("transpose_NCHW2CNHW", 2048, 64, HALVED, True),
        ("transpose_NCHW2CNHW", 8192, 64, of_sizes((2, 64, 8, 8), (96, 64, 3, 3), (2, 96, 4, 4), 2), False),
        # What is no convolution
        ("MIOpenActiveFwdLite", 2048, 256, of_kind("activ", (2, 64, 8, 8)), True),
        ("MIOpenActiveFwdLite", 2048, 256, of_kind("activ", (2, 32, 16, 16)), False),
        ("Op4dTensorLite", 512, 256, of_kind("optensor", (1, 96, 4, 4)), True),  # whole work-groups
        ("Op4dTensorLite", 512, 256, of_kind("optensor", (1, 64, 8, 8)), False),
        ("mloPoolingG", (8, 8, 40), 256, of_kind("pool", (2, 20, 24, 24)), True),
        ("mloPoolingG", (8, 8, 40), 256, of_kind("pool", (4, 20, 24, 24)), False),
        ("mloPoolingMaxBwd", 2560, 256, of_kind("pool", (2, 20, 24, 24)), True),  # the product of all dimensions
        ("mloPoolingMaxBwd", 2560, 256, of_kind("pool", (2, 24, 24, 24)), False),
        ("OpTensorFwdBias", 10240, 256, of_kind("bias", (2, 20, 24, 24)), True),
        ("OpTensorFwdBias", 12800, 256, of_kind("bias", (2, 50, 8, 8)), True),
        ("OpTensorFwdBias", 5120, 256, of_kind("bias", (2, 50, 8, 8)), False),
        ("MIOpenBatchNormFwdTrainSpatial", 24576, 256, of_kind("bnorm", (2, 96, 4, 4)), True),
        ("MIOpenBatchNormFwdTrainSpatial", 24576, 256, of_kind("bnorm", (2, 100, 4, 4)), False),
        ("BatchNormBwdSpatial", (96, 64, 1), 256, of_kind("bnorm", (2, 24, 5, 5)), False),
        ("SoftmaxForward", 256, 256, of_kind("softmax", (2, 10, 1, 1)), None),
        ("mloPoolingG", (8, 8, 40), 256, of_kind("pool", ()), None),
        # Steps of a recurrent call: a group that was cut is no longer than needed
        ("MIOpenNeuronFwd", 36, 36, of_step("lstm"), True),  # three gates of 2 x 24
        ("MIOpenNeuronFwd", 12, 12, of_step("lstm"), True),
        ("MIOpenNeuronFwd", 36, 36, of_step("tanh"), False),
        ("MIOpenNeuronFwd", 64, 64, of_step("tanh"), True),  # whole work-groups
        ("MIOpenNeuronFwd", 128, 64, of_step("tanh"), False),
        ("MIOpenNeuronFwd", 12, 12, of_step(None), None),
        # Gradients of weights: a work-group for each channel of the input or for four; of a product of all dimensions
        # the row is a part
        ("MIOpenCvBwdWrW", (1280, 25, 2), 64, GRADIENT_OF_20, True),
        ("MIOpenCvBwdWrW", (5120, 13, 2), 256, GRADIENT_OF_20, True),
        ("MIOpenCvBwdWrW", (12800, 2, 1), 64, GRADIENT_OF_800, True),
        ("MIOpenCvBwdWrW", (12800, 2, 1), 64, GRADIENT_OF_20, False),
        ("MIOpenCvBwdWrW", (1280, 25, 2), 64, GRADIENT_OF_800, False),
        ("MIOpenCvBwdWrW", 64000, 64, GRADIENT_OF_20, True),
        ("MIOpenCvBwdWrW", 1280, 64, GRADIENT_OF_800, False),
        ("MIOpenCvBwdWrW", (1280, 25, 2), None, GRADIENT_OF_20, None),
        ("MIOpenCvBwdWrW", (1280, 25, 2), 64, other_operation(GRADIENT_OF_20, groups=2), None),
        ("MIOpenCvBwdWrW_8x8map", (1280, 25, 2), 64, GRADIENT_OF_20, None),
        ("MIOpenCvBwdWrW_8x8map", (1280, 25, 2), 64, GRADIENT_OF_800, None),
    ],
)
def test_work_items(
    name: str, grid: Size3 | int, workgroup: int | None, operation: Operation, fits: bool | None
) -> None:
    """A grid of one dimension is a number."""
    sizes = (grid, 1, 1) if isinstance(grid, int) else grid
    assert items_fit(name, sizes, None if workgroup is None else (workgroup, 1, 1), operation) is fits


@pytest.mark.shared
@pytest.mark.parametrize(
    ("log", "profile", "name", "variant", "seed"),
    [
        ("middle fifth of the log lost", "names, times, sizes only", RESNET, NO_FRAMEWORK, 0),
        ("3 of 10 names hashed", "5 % of calls lost", RESNET, HIDDEN, 0),
        ("3 of 10 names hashed", "5 % of calls lost", RESNET, NO_FRAMEWORK, 4),
        ("3 of 10 names hashed", "5 % of calls lost", "m121-resnet-train-entries-cmd", HIDDEN, 0),
        ("every line twice", "5 % of calls lost", "twin-alexnet-level6-none-run.hip-rocprof-v1", TWIN, 0),
    ],
)
def test_two_damages_leave_no_wrong_link_sure(
    log: str, profile: str, name: str, variant: str, seed: int, tmp_path: Path
) -> None:
    """What the lost call's kernels have in common with the next call's does not outweigh what they have not: so many
    work-items, one kernel for a call that is no convolution, GEMMs whose result an unknown kernel may have scaled.
    Where it left its launch line, that is not the call's before it."""
    runs = loaded(shared_folder())[variant]
    run, random = runs[name], Random(f"{log} & {profile} {seed} {name}")
    for one in (log, profile):
        run = next(row for row in ROWS if row.name == one).change(run, random, list(runs.values()))
    operations, _ = tallies(run, analyse(run.write(tmp_path)))
    assert operations.right > 0.94 * operations.kernels
    assert operations.wrong_and_sure == 0


@pytest.mark.parametrize(
    ("name", "grid", "launched"),
    [
        ("k", (64, 5, 2), True), ("j", (64, 5, 2), False), ("k", (64, 5, 1), False), ("k", (640, 1, 1), True),
        ("k", (320, 2, 1), False), ("k", None, True), ("j", None, False),
    ],
)  # fmt: skip
def test_a_printed_launch_is_a_kernel_of_its_size(name: str, grid: tuple[int, int, int] | None, launched: bool) -> None:
    """rocprof v1 has no sizes in a database, and the product of all dimensions in a table."""
    launches = Launches([Launch(line=1, name="k", gws=(64, 5, 2)), Launch(line=2, name="k", gws=None)], {"k"}, cut=0)
    assert (launches.count(name, grid) > 0) is launched


def test_a_printed_launch_is_a_kernel_whose_name_was_cut() -> None:
    """Both begin alike, as far as anything is left."""
    printed = [Launch(line=1, name="MIOpenConvUni", gws=(64, 5, 2)), Launch(line=2, name="j", gws=(64, 1, 1))]
    cut = Launches(printed, {"MIOpenConvUn"}, cut=12)
    assert cut.count("MIOpenConvUn", (64, 5, 2)) == cut.count("MIOpenConvUn...", None) == 1
    assert cut.count("MIOpenConv1x", (64, 5, 2)) == 0
    assert cut.of_others == {(64, 1, 1)}
    assert Launches(printed, {"MIOpenConvUn"}, cut=0).count("MIOpenConvUn", (64, 5, 2)) == 0


def with_buffers(activity: Activity, buffer: int) -> Activity:
    arguments = tuple(hexed(buffer) for _ in activity.opencl.arguments)
    return msgspec.structs.replace(activity, opencl=msgspec.structs.replace(activity.opencl, arguments=arguments))


def iteration(maker: Maker) -> None:
    """Of a small net and an own kernel, with buffers of its own."""
    for _ in range(4):
        x, w, y, z = (maker.buffer() for _ in range(4))
        maker.kernel("MIOpenConvUni", x, w, y, of=conv(maker, x, w, y))
        maker.kernel("inner_product", x, z)
        maker.kernel("MIOpenActiveFwdLite", y, z, of=maker.call("activ", tensors=(("x", y), ("y", z))))
    maker.kernel("mloPoolingG", z, x, of=maker.call("pool", tensors=(("x", z), ("y", x))))


def search(maker: Maker, direction: Any = "forward", **more: Any) -> int:
    return maker.call("conv", direction, phase="find", **{**CONV, "gemm": CONV_GEMM, **more})


def test_transfers_part_calls() -> None:
    """Two searches whose kernels fit both: what the program copied in between tells where the second begins."""
    maker = Maker()
    for names in (("MIOpenConvUni",), ("MIOpenConv1x1", "MIOpenConvUni", "MIOpenConv1x1", "MIOpenConvUni")):
        of = search(maker, input=(2, 16 * len(names), 8, 8))
        for name in names:
            maker.kernel(name, of=of)
        copy = msgspec.structs.replace(maker.activities[-1], kind="copy", name="copy", route="host to device")
        maker.activities.append(copy)
        maker.truth.append(NONE)
    assert list(maker.links().operation_of) == [0, NONE, 1, 1, 1, 1, NONE]


def test_a_fusion_plan_multiplies_no_matrices() -> None:
    """Kernels of a convolution that the log lost are not of the plan beside it."""
    maker = Maker()
    for _ in range(3):
        of = maker.call("conv", gemm=CONV_GEMM, **CONV)
        maker.kernel("Im2Col", of=of, grid=(1024, 1, 1))
        maker.kernel("miog_alphaab", of=of)
        of = maker.call("fusion", input=(2, 32, 8, 8), output=(2, 32, 8, 8))
        maker.kernel("MIOpenBatchNormActivInferSpatialEst", of=of)
    del maker.operations[2]
    assert not {1, 3}.intersection(maker.links().operation_of[3:5])


def test_gemms_of_two_sizes_are_of_two_calls() -> None:
    """A convolution's GEMMs are all alike: where another size begins, another call does."""
    maker = Maker()
    for items, count in ((64, 1), (256, 5), (1024, 1)):
        of = search(maker, input=(2, items, 8, 8))
        for _ in range(count):
            maker.kernel("Cijk_Ailk_Bljk_SB_MT32x32", of=of, grid=(items, 1, 1))
    maker.right()


def test_an_iteration_like_the_one_before_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many equal iterations the first ones are, and all are right and sure."""
    maker = Maker()
    for _ in range(50):
        iteration(maker)
    solved: list[int] = []
    step = Lattice._step

    def counted(self: Lattice, at: int, states: Any) -> Any:
        solved.append(at)
        return step(self, at, states)

    monkeypatch.setattr(Lattice, "_step", counted)
    assert not maker.right().operation_unsure
    assert len(solved) < len(maker.truth) / 5


def test_an_iteration_that_only_looks_like_the_one_before_is_solved() -> None:
    """The same kernels, but one of another call's buffers: it is not taken for that of the repetition."""
    maker = Maker()
    for _ in range(12):
        iteration(maker)
    of = maker.operations[-1]
    strange = [number for number, one in enumerate(maker.truth) if one == of.index]
    other = maker.buffer()
    for number in strange:
        maker.activities[number] = with_buffers(maker.activities[number], other)
    maker.operations[-1] = msgspec.structs.replace(of, arguments=tuple((name, other) for name, _ in of.arguments))
    maker.right()


def test_calls_that_launched_nothing_here_and_there_are_anothers() -> None:
    """Then a name tells too little to be sure of whose call a kernel is; right it is all the same."""
    maker = Maker()
    for number in range(12):
        of = maker.call("pool" if number % 3 else "activ", input=(2, 8, 8, 8))
        maker.kernel("mloPoolingG" if number % 3 else "MIOpenActiveFwdLite", of=of)
        if number % 2:
            maker.call("lrn", input=(2, 8, 8, 8))
    links = maker.right()
    assert set(links.operation_unsure) == set(range(12))
    assert all(0.5 < chance < 0.995 for chance in links.operation_confidence.values())


def test_no_link_is_sure_if_nothing_tells_calls_apart_and_no_search_was_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what launch lines tell."""
    monkeypatch.setattr(stream, "TOO_VAGUE", 0)
    solve = stream.Stream.solve
    vague: list[tuple[float, Evidence]] = []

    def looked_at(one: stream.Stream) -> Posterior:
        posterior = solve(one)
        vague.extend(
            (posterior.confidence[number], one._by(number, place, posterior.fits[number]))
            for number, place in enumerate(posterior.operation)
            if place != NONE
        )
        return posterior

    monkeypatch.setattr(stream.Stream, "solve", looked_at)
    measured(shared_folder(), ("lines lost in bursts", "m290-lenet-train-cmdonly", "nf", 0))
    assert vague
    assert all(confidence <= WHOLE for confidence, by in vague if by != LAUNCH_LINE)


@pytest.mark.shared
def test_a_queue_is_looked_ahead_once_whatever_is_learned_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that looks ahead costs as much as one that does not."""
    searches: list[list[Width]] = []
    solved, solve = stream.Stream.solve, Lattice.solve

    def begun(one: stream.Stream) -> Posterior:
        searches.append([])
        return solved(one)

    def counted(lattice: Lattice) -> Posterior:
        searches[-1].append(lattice._width)
        return solve(lattice)

    monkeypatch.setattr(stream.Stream, "solve", begun)
    monkeypatch.setattr(Lattice, "solve", counted)
    measured(shared_folder(), ("lines lost in bursts", "m121-resnet-infer-2it", "nf", 0))
    assert any(widths[-1] == AHEAD and WIDE in widths for widths in searches)
    assert all(widths.count(AHEAD) <= 1 for widths in searches)


# -- What has no layer, between activities that have: which pass it ran in.


SET_UP, FORWARD, BACKWARD, NEXT = "s", "f", "b", "n"


def passes_of(row: str, queues: str = "") -> str:
    """Passes after the step; of each activity a letter before it, ``.`` where none is known, and its queue."""
    activities = tuple(
        Activity(number, "kernel", "k", queue=int(queue)) for number, queue in enumerate(queues or "0" * len(row))
    )
    attribution = Attribution(Profile(source=0, records=len(row), activities=activities), Notes())
    links = attribution.links
    number_of = {
        SET_UP: links.pass_id("setup"),
        FORWARD: links.pass_id("iteration", 1, "forward"),
        BACKWARD: links.pass_id("iteration", 1, "backward"),
        NEXT: links.pass_id("iteration", 2, "forward"),
    }
    for position, letter in enumerate(row):
        if letter != ".":
            links.give_pass([position], number_of[letter])
    place_between(attribution)
    letter_of = {number: letter for letter, number in number_of.items()} | {NONE: "."}
    undirected = links.pass_id("iteration", 1)
    return "".join("1" if number == undirected else letter_of[number] for number in links.pass_of)


@pytest.mark.parametrize(
    ("row", "after"),
    [
        ("f.f..f", "ffffff"),
        ("s.s", "sss"),
        ("f..b", "f11b"),  # of the iteration; of which direction nothing tells
        ("f.n", "f.n"),  # between two iterations: of neither
        ("b.n", "b.n"),
        ("s.f", "s.f"),
        (".f.", ".f."),  # what comes before the first, or after the last
        ("f.n.f", "f.n.f"),
        ("...", "..."),
    ],
)
def test_what_lies_between_two_of_one_iteration_is_in_it(row: str, after: str) -> None:
    """With its direction where both have the same; what lies between two passes stays in none."""
    assert passes_of(row) == after


def test_each_queue_tells_of_its_own() -> None:
    """What another queue ran meanwhile may be anyone's; a pass of another queue ends none."""
    assert passes_of("f.f", "010") == "f.f"
    assert passes_of("fn.f", "0100") == "fnff"
    assert passes_of("f.nf", "0010") == "ffnf"


@pytest.mark.shared
@pytest.mark.parametrize("form", ["rocprofv3-csv/*_kernel_trace.csv", "rocpd/*.db.gz"])
def test_kernels_of_no_layer_do_not_cut_an_iteration_in_pieces(tmp_path: Path, form: str) -> None:
    """Each pass is one bar of all that truly ran in it, the update too; sums are of as many kernels."""
    twin = "lenet-cmdonly-kernel-trace"
    folder = samples() / "rocm-twins" / twin
    analysis = analyse([folder / "run.log", *folder.glob(form)])
    (alignment,) = analysis.runs[0].alignments
    links = alignment.links
    layers = orjson.loads((folder / "truth.json").read_bytes())["layers"]
    phase_of = {row["dispatch_id"]: layers[row["layer"]]["phase"] for row in truth(twin)}
    found = Counter(
        (phase_of[activity.number], links.passes[number].direction or links.passes[number].phase)
        for activity, number in zip(alignment.profile.activities, links.pass_of, strict=True)
    )
    assert found == {
        ("setup", "setup"): 86, ("forward", "forward"): 12, ("backward", "backward"): 18, ("update", "iteration"): 8,
    }  # fmt: skip
    convert(folder / "run.log", *folder.glob(form), output=tmp_path / "out.json")
    events = orjson.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    bars = [(event["name"], event["args"]["kernels"]) for event in events if event.get("cat") == "pass"]
    assert bars == [("set-up", 86), ("iteration 1 · forward", 12), ("iteration 1 · backward", 18), ("iteration 1", 8)]
    (measures,) = analysis.runs[0].measures
    assert [one.kernels for one in measures.steady.told.all] == [38]


# -- Calls whose kernels the profile does not have: it ended early, or has a hole.


REPEATING = "m290-alexnet-infer-10it"


@pytest.mark.parametrize("calls", [1, 2, 30, 1000])
def test_holes_are_as_likely_as_holes_are(calls: int) -> None:
    """All places where a hole may begin and end have the probability of one; so have all ends."""
    assert calls * (calls + 1) / 2 * exp(hole_nats(calls, HOLE)) == pytest.approx(HOLE)
    assert calls * exp(cut_nats(calls)) == pytest.approx(CUT)


def test_what_was_searched_before_is_what_the_thread_did_since_it_executed() -> None:
    """Two ranks that search for the same problems repeat nothing; nor does a program that begins again."""
    calls = [(1, "find"), (2, "find"), (2, "find"), (1, "run"), (1, "find"), (2, "find")]
    operations = [made_operation(index=at, thread=thread, phase=phase) for at, (thread, phase) in enumerate(calls)]
    told = ["search", "search", "search again", "run", "search", "search again"]
    assert kinds_of(operations, [0] * len(calls)) == told


def test_the_call_after_a_kernels_own_is_the_next_that_launched() -> None:
    posterior = Posterior.of_none(6)
    posterior.operation[:] = [NONE, 3, 3, NONE, 7, 7]
    assert following(posterior, 9) == [3, 7, 7, 7, 9, 9]


@pytest.mark.shared
def test_a_call_beside_a_hole_is_no_likelier_than_the_one_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls of one problem the one that launched the kernel is told by as many others as one that launched none."""
    told: list[tuple[float, float]] = []

    class Watched(Habits):
        def __init__(self, likelihood, posterior, *, rows) -> None:  # type: ignore[no-untyped-def]
            super().__init__(likelihood, posterior, rows=rows)
            launching = {place for place in posterior.operation if place != NONE}
            of_class = {
                number: place
                for place, number in enumerate(likelihood.class_of)
                if place not in launching and likelihood.operations[place].phase == "run"
            }
            for kind, place, confidence in zip(
                likelihood.kernels.of, posterior.operation, posterior.confidence, strict=True
            ):
                other = None if place == NONE or confidence < 0.9999 else of_class.get(likelihood.class_of[place])
                if rows and other is not None:
                    told.append((self.nats(kind, place), self.nats(kind, other)))

    monkeypatch.setattr(stream_module, "Habits", Watched)
    measured(shared_folder(), ("profile ends early", REPEATING, NO_FRAMEWORK, 0))
    assert len(told) > 100
    assert max(abs(own - other) for own, other in told) < 0.01


SEARCHED = (
    # input, weights, output, pad, algorithm's number, the kernel that was chosen
    ("32, 64, 56, 56", "64, 64, 3, 3", "32, 64, 56, 56", 1, 5, "igemm_fwd_gtcx3_nhwc_fp16_bx0"),
    ("32, 64, 56, 56", "128, 64, 1, 1", "32, 128, 56, 56", 0, 0, "Cijk_Ailk_Bljk_HHS_BH_MT64x64x16"),
    ("32, 128, 28, 28", "128, 128, 3, 3", "32, 128, 28, 28", 1, 3, "miopenSp3AsmConv_v30_3_1_gfx9_fp16_f2x3_stride1"),
    ("32, 128, 28, 28", "256, 128, 1, 1", "32, 256, 28, 28", 0, 5, "igemm_fwd_gtcx3_nhwc_fp16_bx1"),
)
CANDIDATES = (
    "naive_conv_ab_nonpacked_fwd_nchw_half_double_half",
    "igemm_fwd_gtcx3_nhwc_fp16_bx9",
    "gridwise_convolution_implicit_gemm_v4r4_nchw_kcyx_nkhw",
)


ASKED = "[FindConvFwdAlgorithm] requestAlgoCount = 1, workspace = 0"
MEASURES = "[TryLoad] Find-db regenerating."
LAUNCHED = "[run] kernel_name = a, global_work_dim = { 256, 1, 1 }, local_work_dim = { 64, 1, 1 }"
CHOSE = "[FillFindReturnParameters] FW Chosen Algorithm: ConvBinWinogradRxSf2x3 , 0, 0.05"


SLOW = partial(pytest.param, marks=pytest.mark.thorough)


def a_searching_run(
    folder: Path,
    times: int,
    iterations: int = 30,
    *,
    recorded: int | None = None,
    alone: bool = False,
    own: bool = True,
    says: bool = False,
) -> tuple[int, int]:
    """Each problem's search launches each candidate ``times`` times, then all problems run. Returns the time of
    searches and of an iteration in ns.

    ``recorded``: iterations in the profile, if it ended early. ``alone``: only one candidate is tried, the one that is
    chosen. ``own``: the program launches its own kernels between the calls of an iteration. ``says``: the log has the
    lines of level 5, which show whether a search measured."""
    rows = ["Kind,Agent_Id,Queue_Id,Thread_Id,Dispatch_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp"]
    rows[0] += ",Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
    lines: list[str] = []
    random, at, of_search, of_steps = Random(1), 10**15, 0, 0

    def launched(name: str, ns: int, items: int = 8192) -> int:
        nonlocal at
        number = len(rows)
        rows.append(f"K,Agent 1,1,7,{number},{name},{number},{at},{at + ns},64,1,1,{items},1,1")
        at += ns + 5000
        return ns

    def called(api: str, place: int, *more: str) -> None:
        x, w, y, pad, _, _ = SEARCHED[place]
        told = f"conv2d, miopenConvolution, miopenPaddingDefault, {{{pad}, {pad}}}, {{1, 1}}, {{1, 1}}, "
        lines.append(f"miopenStatus_t {api}(miopenHandle_t, const miopenTensorDescriptor_t){{")
        lines.extend(f"\t{name}Desc = {{{sizes}}}, {{1, 1, 1, 1}}, " for name, sizes in zip("xw", (x, w), strict=True))
        lines.extend([f"\tconvDesc = {told}", f"\tyDesc = {{{y}}}, {{1, 1, 1, 1}}, ", *more, "}"])

    items = [prod(map(int, y.split(","))) // 4 for _, _, y, *_ in SEARCHED]
    for place, (_, weights, _, _, _, chosen) in enumerate(SEARCHED):
        called("miopenFindConvolutionForwardAlgorithm", place, "\trequestAlgoCount = 1")
        direct = "MIOpenConvUniC" if weights.endswith("3, 3") else "miopenGcnAsmConv1x1U"
        for name in (chosen,) if alone else (direct, *CANDIDATES, chosen):
            of_search += sum(launched(name, random.randrange(20_000, 90_000), items[place]) for _ in range(times))
        if says:
            lines += [f"Info {line}" for line in (ASKED, *[MEASURES][:times], CHOSE)]
    for number in range(iterations):
        for place, (_, _, _, _, algorithm, chosen) in enumerate(SEARCHED):
            called("miopenConvolutionForward", place, f"\talgo = {algorithm}")
            if recorded is not None and number >= recorded:
                continue
            of_steps += launched(chosen, 50_000 + 10_000 * place, items[place])
            if own:
                launched("relu_of_the_program", 8000)
        at += 200_000
    (folder / "7_kernel_trace.csv").write_text("\n".join([*rows, ""]))
    (folder / "run.log").write_text("".join(f"MIOpen(HIP): {line}\n" for line in lines))
    return of_search, of_steps // iterations


@pytest.mark.parametrize("times", [1, 2, 5])
def test_searches_have_all_kernels_that_they_launch_a_few_times(times: int, tmp_path: Path) -> None:
    """With many launches of each candidate some are missing, and the time of the searches is in doubt."""
    of_search, of_step = a_searching_run(tmp_path, times)
    found = convert(tmp_path).metadata["attribution"]
    sums = {"kernels": 20 * times, "kernel_ns": of_search}
    assert found["find"] == (sums if times > 1 else {**sums, "sure": False})
    assert found["operations_without_kernels"] == 0
    assert sum(ns for by, ns in found["operation_kernel_ns"].items() if by != "outside") == of_search + 30 * of_step


@pytest.mark.parametrize(
    ("times", "iterations", "own"),
    [(2, 30, True), (5, 10, False), (1, 1, True), (5, 1, False), (8, 10, True), (12, 10, False), SLOW(30, 10, True)],
)
def test_time_of_searches_is_in_doubt_with_their_links(times: int, iterations: int, own: bool, tmp_path: Path) -> None:
    """Each place that has their time says so, also if most of their links are sure and others have none."""
    of_search, _ = a_searching_run(tmp_path, times, iterations, own=own)
    answer = invoked(tmp_path).stdout
    (line,) = (line for line in answer.splitlines() if line.startswith("MIOpen Find"))
    is_right = f"{of_search / 1e6:.3f} ms" in line
    assert is_right == (times < 8 and iterations > 1)
    assert is_right or iterations > 1 or "without MIOpen Find (not sure); no iterations are known." in answer
    assert line.endswith("% of all kernel time" if is_right else "% of all (not sure)")
    told = invoked("ops", tmp_path).stderr
    assert (re.search(r"^find: .* of all kernel time, not sure$", told, re.MULTILINE) is None) == is_right


@pytest.mark.parametrize(("times", "is_sure"), [(2, True), (12, False)])
def test_the_doubt_about_searches_is_in_data(times: int, is_sure: bool, analysed_once: None, tmp_path: Path) -> None:
    """In the JSON of the report, in printed tables, in the tables of a dataset, and in a trace."""
    (tmp_path / "run").mkdir()
    a_searching_run(tmp_path / "run", times, 10)

    def told(*command: str) -> Any:
        return orjson.loads(invoked(*command, tmp_path / "run", "--format", "json").stdout)

    (run,) = told("report")["runs"]
    assert (run["find"]["is_sure"], run["kernel_ns_is_sure"]) == (is_sure, is_sure)
    metadata = convert(tmp_path / "run", output=tmp_path / "out.json").metadata["attribution"]["find"]
    assert metadata.pop("kernel_ns") == run["find"]["kernel_ns"]
    assert metadata.get("sure", True) == is_sure
    for rows in (told("ops"), told("kernels", "--by", "name")):
        assert {row.get("find_sure") for row in rows if row.get("find_kernels")} == {None if is_sure else "false"}
        assert all("find_sure" not in row for row in rows if not row.get("find_kernels"))
    of_data = load(tmp_path / "run")
    assert {row["find_sure"] for row in of_data.problems() if row.get("find_kernels")} == {is_sure}
    assert {row["find_sure"] for row in of_data.runs} == {is_sure}
    slices = orjson.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    searches = [
        one["args"] for one in slices if one.get("args", {}).get("phase") == "find" and one["cat"] == "operation"
    ]
    assert {args.get("sure", True) for args in searches} == {is_sure}


@pytest.mark.parametrize(("times", "decided"), [(5, True), (12, False)])
def test_a_change_of_searches_is_not_decided_if_kernels_are_not_sure(times: int, decided: bool, tmp_path: Path) -> None:
    for folder, launches in (("a", 2), ("b", times)):
        (tmp_path / folder).mkdir()
        a_searching_run(tmp_path / folder, launches, 10)
    run = invoked("compare", tmp_path / "a", tmp_path / "b", "--format", "json")
    (row,) = (row for row in orjson.loads(run.stdout)["rows"] if row["name"].startswith("searches"))
    assert (row["name"], row["verdict"]) == (("searches", "maybe slower") if decided else ("searches (not sure)", "~"))


def test_repetitions_that_the_log_does_not_have_are_in_doubt(tmp_path: Path) -> None:
    """The kernels of searches, or a part of an iteration, may come again more often than any call of the log."""
    a_searching_run(tmp_path, 2, 10)
    assert "not sure" not in invoked(tmp_path).stdout
    log = tmp_path / "run.log"
    entries = log.read_text().split("miopenStatus_t")
    log.write_text("miopenStatus_t".join(entries[: 1 + 4 + 5 * 4]))
    answer = " ".join(invoked(tmp_path).stdout.split())
    assert "found by repetition" in answer
    assert "not sure: the log executes no call that often)" in answer


def test_iterations_of_many_kernels_that_may_be_searches_are_in_doubt(tmp_path: Path) -> None:
    a_searching_run(tmp_path, 5, 3)
    alignment = analyse([tmp_path]).run.alignments[0]
    places = np.zeros(len(alignment.profile.commands), np.int32)
    for may_search, why in ((True, "they may be searches"), (False, "")):
        assert doubt_of_iterations(alignment, places, 1, np.full(len(places), may_search)) == why


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((ASKED, CHOSE), "answered"),
        ((ASKED, MEASURES, CHOSE), "search"),
        # what stood between may be lost, or never was printed
        ((MEASURES, CHOSE), "search"),
        ((ASKED,), "search"),
        ((CHOSE,), "search"),
        ((), "search"),
        ((ASKED, LAUNCHED, CHOSE), "search"),
    ],
)
def test_a_search_that_does_not_say_that_it_measures_was_answered(
    lines: tuple[str, ...], kind: str, tmp_path: Path
) -> None:
    """Since MIOpen prints how many algorithms are asked for, it prints that it measures."""
    a_searching_run(tmp_path, 1, 1)
    log = tmp_path / "run.log"
    first, second = (f"miopenStatus_t{entry}" for entry in log.read_text().split("miopenStatus_t")[1:3])
    log.write_text("MIOpen(HIP): " + first + "".join(f"MIOpen(HIP): Info {line}\n" for line in lines) + second)
    one, other = analyse([tmp_path]).run.alignments[0].links.operations
    assert kinds_of([one, other], [0, 1]) == [kind, "search"]


def wrong_and_sure_links(folder: Path, searched: int, per_call: int) -> tuple[int, int]:
    """Return the number of wrong links, and of sure ones; none may be both.

    The first ``searched`` kernels are of a search each, then each ``per_call`` kernels of an execution, the first one
    MIOpen's."""
    links = analyse([folder]).run.alignments[0].links
    wrong = sure = 0
    for position, found in enumerate(links.operation_of):
        call, place = divmod(position - searched, per_call)
        true = position if position < searched else NONE if place else len(SEARCHED) + call
        wrong += found != true
        sure += found != NONE and position not in links.operation_unsure
        assert found in (true, NONE) or position in links.operation_unsure
    return wrong, sure


CUT_OFF = [(4, 3), (10, 9), (10, 8)]
"""Iterations in the log and in the profile."""


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("candidates", "iterations", "recorded", "says"),
    [
        *((0, iterations, None, False) for iterations in (1, 2, 3, 10)),
        SLOW(0, 30, None, False),
        *((0, iterations, None, True) for iterations in (1, 2, 10)),
        *((1, *both, False) for both in ((2, 1), *CUT_OFF)),
        *(SLOW(1, 30, recorded, False) for recorded in (29, 20)),
        *((1, *both, True) for both in CUT_OFF),
    ],
)
def test_no_link_of_a_searching_run_is_wrong_and_sure(
    candidates: int, iterations: int, recorded: int | None, says: bool, own: bool, tmp_path: Path
) -> None:
    """A database answered the searches, or each tried one candidate and the last iterations are missing: then all
    kernels are as if a database had answered. Own kernels of the program between the calls show that searches launched
    nothing, or the log says it."""
    a_searching_run(tmp_path, candidates, iterations, recorded=recorded, alone=candidates == 1, own=own, says=says)
    wrong, sure = wrong_and_sure_links(tmp_path, candidates * len(SEARCHED), 1 + own)
    if says and not candidates:
        assert (wrong, sure) == (0, len(SEARCHED) * iterations)
    elif not candidates and own:
        assert (wrong, convert(tmp_path).metadata["attribution"]["find"]["kernels"]) == (0, 0)
        assert sure == len(SEARCHED) * iterations or iterations < 3
    elif not candidates:
        assert sure == 0 or wrong == 0
