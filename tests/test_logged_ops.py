"""PyTorch's ops and a MIOpen log of the same run: which call is which op, and what cannot be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mio2trace.align.exact import logged_ops
from mio2trace.conversion import convert
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.operation import Operation
from mio2trace.trace import Slice
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, aligned, kineto_file, operations_by_kernel, row, rows
from tests.records import made_operation, other_operation
from tests.test_aten import BACKWARD
from tests.test_ops import entry

CALL_OF = {
    "forward": "miopenConvolutionForward", "backward-data": "miopenConvolutionBackwardData",
    "backward-weights": "miopenConvolutionBackwardWeights",
}  # fmt: skip
TWINS = ["alexnet-level6-none", "lenet-train-own-layers", "resnet-train-miopen-2threads"]


def op(channels: int, direction: OperationDirection = "forward") -> Operation:
    api = "aten::miopen_convolution" if direction == "forward" else BACKWARD
    return made_operation(
        index=0, source=0, line=0, end_line=0, api=api, primitive="conv", direction=direction,
        input=(1, channels, 8, 8), weights=(4, channels, 3, 3), output=(1, 4, 6, 6),
    )  # fmt: skip


def call(channels: int, direction: OperationDirection = "forward") -> Operation:
    return other_operation(op(channels, direction), api=CALL_OF[direction], line=1)


def test_which_calls_are_joined_with_which_ops() -> None:
    """One call for each op in order, whatever either has besides (other operations, searches). PyTorch's one op is the
    data's gradient first, Caffe asks for the weights' first. A step that the log holds twice is joined with neither."""
    search, other = other_operation(call(3), phase="find"), other_operation(call(3), primitive="activ")
    assert logged_ops([op(3), op(4)], [search, call(3), other, call(4)]) == ({0: 1, 1: 3}, 0)
    data, weights = op(3, "backward-data"), op(3, "backward-weights")
    called = [call(3, "backward-weights"), call(3, "backward-data")]
    assert logged_ops([data, weights], called) == ({0: 1, 1: 0}, 0)
    assert logged_ops([op(3), op(4)], [call(3), call(4), call(3), call(4)]) == ({}, 2)


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_joined_calls_are_the_true_ones(twin: str) -> None:
    """Of every kernel whose operation has a line of the log, the truth names that call's entry; and many have one."""
    folder = shared_folder() / "samples" / "rocm-twins" / twin
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    name_of = {one["index"]: one["name"] for one in truth["operations"]}
    (trace_file,) = folder.glob("kineto/*.gz")
    alignment = aligned(folder / "run.hip.log", trace_file)
    operations = {one.index: one for one in alignment.links.operations}
    kernels = sorted(
        (activity.start_ns or 0, position)
        for position, activity in enumerate(alignment.profile.activities)
        if activity.kind == "kernel"
    )
    by_time = sorted((one for one in truth["kernels"] if one.get("kineto") is not None), key=lambda one: one["start"])
    joined = 0
    for (_, position), kernel in zip(kernels, by_time, strict=True):
        operation = operations.get(alignment.links.operation_of[position])
        line = kernel["log_line"] and kernel["log_line"]["run.hip.log"]
        # PyTorch adds the bias within its op; here it was a call of its own
        if operation is not None and operation.line and line and "Bias" not in name_of[kernel["op"]]:
            joined += 1
            assert operation.line <= line <= operation.end_line
    assert joined > 5


def test_a_log_of_other_calls_is_said_to_be_beside(tmp_path: Path) -> None:
    """Ops and calls are told side by side, with a problem that says so."""
    log = tmp_path / "run.log"
    shapes = {"xDesc": "1, 3, 8, 8", "wDesc": "4, 3, 3, 3", "yDesc": "1, 4, 6, 6"}
    log.write_text(entry("ConvolutionForward", "1.2", convDesc="0, 0, 1, 1, 1, 1, ", **shapes))
    profile = kineto_file(tmp_path, name="trace.json")
    result = convert(log, profile, by_order_alone=True)
    said = {note.kind for note in result.notes if note.problem}
    assert any(kind.startswith("no op of the profile is a call in MIOpen's log") for kind in said)


def test_how_tracks_and_gpus_are_called(tmp_path: Path) -> None:
    """PyTorch's ops are no calls of MIOpen. Device 2 alone is GPU 2; what the profiler does not number is none of those
    that it does. Calls and kernels have `correlation_id`, by which SQL joins them."""
    trace = convert(kineto_file(tmp_path, name="trace.json")).trace
    names = {track.name for track in trace.tracks}
    assert "PyTorch ops" in names
    assert "MIOpen calls" not in names
    assert "GPU 2 (AMD Instinct MI300X)" in [process.name for process in trace.processes]
    slices = [event for event in trace.events() if isinstance(event, Slice)]
    of_calls, of_kernels = (
        {one.args.get("correlation_id") for one in slices if one.category == category} for category in ("api", "kernel")
    )
    assert {71, 72} <= of_calls & of_kernels
    assert not any("correlation" in one.args for one in slices)


def test_what_has_no_number_is_not_drawn_as_another(tmp_path: Path) -> None:
    """A GPU, and a thread, whose place among the threads is no id."""
    events = [
        *rows(), row("cpu_op", "aten::a", 542, None, FIRST_US, 5), row("cpu_op", "aten::b", 542, 1, FIRST_US, 5),
    ]  # fmt: skip
    events[8]["pid"] = -1
    trace = convert(kineto_file(tmp_path, events, "trace.json")).trace
    gpus = {process.name for process in trace.processes}
    assert {"GPU 2 (AMD Instinct MI300X)", "GPU without number 1 (AMD Instinct MI300X)"} <= gpus
    names = [track.name for track in trace.tracks if track.name.startswith("Thread")]
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
    events = [*rows(), row(
        "cpu_op", BACKWARD, 542, 543, FIRST_US + 300, 100, External_id=90,
        Input_Dims=[[10, 64, 54, 54], [10, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], [], []],
        Input_type=["float", "float", "float", *["ScalarList"] * 4, "Scalar", "ScalarList", "Scalar", "Scalar"],
        Concrete_Inputs=["", "", "", "[]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
    )]  # fmt: skip
    expected = {"igemm_bwd_gtcx3_nhwc_fp32": "backward-data", "igemm_wrw_gtcx3_nhwc_fp32": "backward-weights"}
    for number, name in enumerate(expected):
        ids = {"External_id": 90, "correlation": 200 + number}
        start = FIRST_US + 310 + 20 * number
        events.append(row("cuda_runtime", "hipExtModuleLaunchKernel", 542, 543, start, 5, **ids))
        events.append(row("kernel", name, 2, 0, start + 10, 5, **ids))
    x, w = "10, 64, 56, 56", "64, 64, 3, 3"
    call = entry("ConvolutionForward", "1.2", xDesc=x, wDesc=w, convDesc="1, 1, 1, 1, 1, 1, ", yDesc=x)
    log = tmp_path / "run.log"
    log.write_text("".join(f"node1 {tid} {line}\n" for tid in (8000, 8001, 8002, 542) for line in call.splitlines()))
    found = operations_by_kernel(aligned(log, kineto_file(tmp_path, events, "trace.json")))
    assert {name: one.direction for name, one in found.items() if name in expected and one} == expected
