"""PyTorch's ops and a MIOpen log of the same run: which call is which op, and what cannot be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mio2trace.align.exact import logged_ops
from mio2trace.analysis import analyse
from mio2trace.conversion import convert
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.operation import Operation
from mio2trace.trace import Slice
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, kineto_file, row, rows
from tests.records import made_operation, other_operation

CALL_OF = {
    "forward": "miopenConvolutionForward", "backward-data": "miopenConvolutionBackwardData",
    "backward-weights": "miopenConvolutionBackwardWeights",
}  # fmt: skip
TWINS = ["alexnet-level6-none", "lenet-train-own-layers", "resnet-train-miopen-2threads"]


def op(channels: int, direction: OperationDirection = "forward") -> Operation:
    api = "aten::miopen_convolution" if direction == "forward" else "aten::convolution_backward"
    return made_operation(
        index=0, source=0, line=0, end_line=0, api=api, primitive="conv", direction=direction,
        input=(1, channels, 8, 8), weights=(4, channels, 3, 3), output=(1, 4, 6, 6),
    )  # fmt: skip


def call(channels: int, direction: OperationDirection = "forward") -> Operation:
    return other_operation(op(channels, direction), api=CALL_OF[direction], line=1)


def test_one_call_for_each_op_is_joined_in_order() -> None:
    """What either has besides (other operations, searches) does not disturb it."""
    search = other_operation(call(3), phase="find")
    other = other_operation(call(3), primitive="activ")
    found = logged_ops([op(3), op(4)], [search, call(3), other, call(4)])
    assert found == ({0: 1, 1: 3}, 0)


def test_gradients_are_joined_whichever_the_program_asked_for_first() -> None:
    """PyTorch's one op is the data's gradient first; Caffe asks for the weights' first."""
    data, weights = op(3, "backward-data"), op(3, "backward-weights")
    found = logged_ops([data, weights], [call(3, "backward-weights"), call(3, "backward-data")])
    assert found == ({0: 1, 1: 0}, 0)


def test_a_step_that_the_log_holds_twice_is_joined_with_neither() -> None:
    """Nothing tells which of them was traced."""
    assert logged_ops([op(3), op(4)], [call(3), call(4), call(3), call(4)]) == ({}, 2)


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_joined_calls_are_the_true_ones(twin: str) -> None:
    """Of every kernel whose operation has a line of the log, the truth names that call's entry; and many have one."""
    folder = shared_folder() / "samples" / "rocm-twins" / twin
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    log = folder / "run.hip.log"
    # PyTorch adds the bias within its op; here it was a call of its own
    name_of = {one["index"]: one["name"] for one in truth["operations"]}
    line_of = {
        kernel["kineto"]: kernel["log_line"]["run.hip.log"]
        for kernel in truth["kernels"]
        if kernel.get("kineto") is not None and kernel["log_line"] and "Bias" not in name_of[kernel["op"]]
    }
    (trace_file,) = folder.glob("kineto/*.gz")
    (alignment,) = analyse([log, trace_file]).run.alignments
    operations = {one.index: one for one in alignment.links.operations}
    kernels = sorted(
        (activity.start_ns or 0, position)
        for position, activity in enumerate(alignment.profile.activities)
        if activity.kind == "kernel"
    )
    by_time = sorted(
        (kernel["start"], kernel["kineto"]) for kernel in truth["kernels"] if kernel.get("kineto") is not None
    )
    assert len(by_time) == len(kernels)
    joined = 0
    for (_, position), (_, number) in zip(kernels, by_time, strict=True):
        operation = operations.get(alignment.links.operation_of[position])
        if operation is not None and operation.line and number in line_of:
            joined += 1
            assert operation.line <= line_of[number] <= operation.end_line
    assert joined > 5


def test_a_log_of_other_calls_is_said_to_be_beside(tmp_path: Path) -> None:
    """Ops and calls are told side by side, with a problem that says so."""
    log = tmp_path / "run.log"
    log.write_text(
        "MIOpen(HIP): miopenStatus_t miopenConvolutionForward(miopenHandle_t){\n"
        "xDesc = 1, 3, 8, 8\nwDesc = 4, 3, 3, 3\nconvDesc = 0, 0, 1, 1, 1, 1, \nyDesc = 1, 4, 6, 6\n}\n"
    )
    profile = kineto_file(tmp_path, name="trace.json")
    result = convert(log, profile, by_order_alone=True)
    said = {note.kind for note in result.notes if note.problem}
    assert any(kind.startswith("no op of the profile is a call in MIOpen's log") for kind in said)


def test_the_track_of_ops_is_called_after_what_is_on_it(tmp_path: Path) -> None:
    """PyTorch's ops are no calls of MIOpen."""
    names = {track.name for track in convert(kineto_file(tmp_path, name="trace.json")).trace.tracks}
    assert "PyTorch ops" in names
    assert "MIOpen calls" not in names


def test_a_gpu_has_the_number_that_hip_gives_it(tmp_path: Path) -> None:
    """Device 2 alone is GPU 2."""
    names = [process.name for process in convert(kineto_file(tmp_path, name="trace.json")).trace.processes]
    assert "GPU 2 (AMD Instinct MI300X)" in names


def test_a_gpu_without_a_number_is_not_drawn_as_another(tmp_path: Path) -> None:
    """What the profiler does not number is none of those that it does."""
    events = rows()
    events[8]["pid"] = -1
    names = [process.name for process in convert(kineto_file(tmp_path, events, "trace.json")).trace.processes]
    assert {"GPU 2 (AMD Instinct MI300X)", "GPU without number 1 (AMD Instinct MI300X)"} <= set(names)


def test_calls_and_kernels_name_their_correlation_alike(tmp_path: Path) -> None:
    """`correlation_id`, in both; SQL joins them by it."""
    trace = convert(kineto_file(tmp_path, name="trace.json")).trace
    slices = [event for event in trace.events() if isinstance(event, Slice)]
    of_calls, of_kernels = (
        {one.args.get("correlation_id") for one in slices if one.category == category} for category in ("api", "kernel")
    )
    assert {71, 72} <= of_calls & of_kernels
    assert not any("correlation" in one.args for one in slices)


def test_a_thread_without_an_id_is_not_drawn_as_another(tmp_path: Path) -> None:
    """Its place among the threads is no id."""
    events = [
        *rows(), row("cpu_op", "aten::a", 542, None, FIRST_US, 5), row("cpu_op", "aten::b", 542, 1, FIRST_US, 5),
    ]  # fmt: skip
    names = [track.name for track in convert(kineto_file(tmp_path, events, "trace.json")).trace.tracks]
    assert {"Thread 1", "Thread without id", "Thread 542"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("word", "kept"), [("range", {"correlation"}), ("correlation", set())])
def test_what_the_profile_itself_states_may_be_left_out(word: str, kept: set[str], tmp_path: Path) -> None:
    """Each of the two by itself: ranges give layers, correlation gives operations."""
    found = convert(kineto_file(tmp_path, name="trace.json"), without=[word]).metadata["attribution"]
    assert set(found.get("operation_by", {})) == kept
    assert set(found["layer_by"]) == (set() if word == "range" else {"range"})


def test_gradients_are_told_apart_beside_a_log_of_several_threads(tmp_path: Path) -> None:
    """Calls of threads that the profile does not have are left out: an operation's index is then no place in a list."""
    backward = row(
        "cpu_op", "aten::convolution_backward", 542, 543, FIRST_US + 300, 100, External_id=90,
        Input_Dims=[[10, 64, 54, 54], [10, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], [], []],
        Input_type=["float", "float", "float", *["ScalarList"] * 4, "Scalar", "ScalarList", "Scalar", "Scalar"],
        Concrete_Inputs=["", "", "", "[]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
    )  # fmt: skip
    events = [*rows(), backward]
    for number, name in enumerate(("igemm_bwd_gtcx3_nhwc_fp32", "igemm_wrw_gtcx3_nhwc_fp32")):
        ids = {"External_id": 90, "correlation": 200 + number}
        start = FIRST_US + 310 + 20 * number
        events.append(row("cuda_runtime", "hipExtModuleLaunchKernel", 542, 543, start, 5, **ids))
        events.append(row("kernel", name, 2, 0, start + 10, 5, **ids))
    profile = kineto_file(tmp_path, events, "trace.json")
    entry = (
        "node1 {tid} MIOpen(HIP): miopenStatus_t miopenConvolutionForward(miopenHandle_t){{\n"
        "node1 {tid} MIOpen(HIP): xDesc = 10, 64, 56, 56\nnode1 {tid} MIOpen(HIP): wDesc = 64, 64, 3, 3\n"
        "node1 {tid} MIOpen(HIP): convDesc = 1, 1, 1, 1, 1, 1, \nnode1 {tid} MIOpen(HIP): yDesc = 10, 64, 56, 56\n"
        "node1 {tid} MIOpen(HIP): }}\n"
    )
    log = tmp_path / "run.log"
    log.write_text("".join(entry.format(tid=tid) for tid in (8000, 8001, 8002, 542)))
    (alignment,) = analyse([log, profile]).run.alignments
    operations = {one.index: one for one in alignment.links.operations}
    direction_of = {
        activity.name: operations[index].direction
        for activity, index in zip(alignment.profile.activities, alignment.links.operation_of, strict=True)
        if index in operations
    }
    assert direction_of["igemm_bwd_gtcx3_nhwc_fp32"] == "backward-data"
    assert direction_of["igemm_wrw_gtcx3_nhwc_fp32"] == "backward-weights"
