"""PyTorch's ops as operations: shapes, layout, FLOPs, driver line; gradients split; AMD's TraceLens as the measure."""

from __future__ import annotations

import ast
import gzip
import json
import math
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mio2trace import analyse
from mio2trace.align import Alignment
from mio2trace.align.exact import logged_ops, split
from mio2trace.conversion import convert
from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Inputs
from mio2trace.ops.aten import ROWS, operations_of, plain
from mio2trace.ops.operation import Operation, operation_name, problem_name
from mio2trace.trace import Slice
from tests.commands import invoked, stderr_of
from tests.conftest import shared_folder
from tests.kineto_files import (
    FIRST_US,
    aligned,
    kineto_alignment,
    kineto_file,
    launched,
    operations_by_kernel,
    row,
    rows,
    trace,
)
from tests.records import made_operation, other_operation
from tests.small_runs import Program, as_json
from tests.test_ops import entry

SAMPLES = shared_folder() / "samples" / "rocm"
PEERS = (
    "kineto_mi250_minitoy_train.json", "kineto_mi300_resnet50_ddp4_rank0.json.gz",
    "kineto_mi300_resnet50_ddp4_rank1.json.gz", "kineto_mi300x_flux_graph_capture.json.gz",
    "kineto_mi300x_resnet_train_ddp.json.gz", "kineto_mi300x_vit_infer.json.gz",
)  # fmt: skip
CONVOLUTION = "aten::convolution"
DISPATCHING = {CONVOLUTION, "aten::_convolution"}
"""Ops around the one of a library, which has the same work."""
BACKWARD = "aten::convolution_backward"
BATCH_NORM = {
    "aten::native_batch_norm", "aten::miopen_batch_norm", "aten::native_batch_norm_backward",
    "aten::miopen_batch_norm_backward",
}  # fmt: skip


def given(shapes: list[Any], values: list[str] | None = None, strides: list[Any] | None = None) -> Inputs:
    return Inputs(
        tuple(map(tuple, shapes)), tuple("half" if shape else "" for shape in shapes),
        tuple(map(tuple, strides or ())), tuple(values or ()),
    )  # fmt: skip


def events_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    events: list[dict[str, Any]] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]
    return events


def tracelens(name: str) -> Any:
    stem = name.removesuffix(".gz").removesuffix(".json")
    return json.loads((SAMPLES / "peer-tables" / f"{stem}.tracelens.json").read_text("utf-8"))


class Ours:
    """By op and its input shapes: executions, kernel time within it, FLOPs of its operations."""

    def __init__(self, path: Path) -> None:
        profile = aligned(path).profile
        ranges = profile.ranges
        own: Counter[int] = Counter()
        for activity in profile.activities:
            if activity.kind == "kernel" and activity.range is not None:
                own[activity.range] += (activity.end_ns or 0) - (activity.start_ns or 0)
        self.rows: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        stack: list[tuple[int, int]] = []
        order = sorted(range(len(ranges)), key=lambda n: (ranges[n].thread, ranges[n].start_ns, -ranges[n].end_ns))
        for place in order:
            made = ranges[place]
            while stack and (ranges[stack[-1][0]].thread != made.thread or stack[-1][1] <= made.start_ns):
                stack.pop()
            stack.append((place, made.end_ns))
            flop = 0
            if made.inputs and made.text not in DISPATCHING:
                flop = sum(one.flop or 0 for one in operations_of(made.text, made.inputs))
            for outer, _ in stack:
                row = self.rows[self.key(ranges[outer])]
                row[1] += own[place]
                row[2] += flop
            self.rows[self.key(made)][0] += 1

    @staticmethod
    def key(made: Any) -> tuple[str, str]:
        shapes = () if made.inputs is None else made.inputs.shapes
        return made.text, json.dumps([list(shape) if shape else [] for shape in shapes])


@pytest.mark.shared
@pytest.mark.parametrize("name", PEERS)
def test_against_the_tables_of_tracelens(name: str) -> None:
    """Each row of a convolution, a batch norm, a product: count, kernel time within 0.1 %, FLOPs.

    TraceLens counts the gradients of data and weights even if the mask asks only for that of the weights. It counts
    batch norms in another way: 9 FLOPs per element for one backward op, 4 for the other (docs/kineto.md).
    """
    ours = Ours(SAMPLES / name)
    by_shapes: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for theirs in tracelens(name)["modelled_ops"]:
        if theirs["op"] in {CONVOLUTION, BACKWARD, *BATCH_NORM} or theirs["table"] == "GEMM":
            by_shapes[theirs["op"], theirs["input_dims"]].append(theirs)
    for (op, dims), listed in by_shapes.items():
        count, kernel_ns, flop = ours.rows[op, dims]
        assert count == sum(theirs["count"] for theirs in listed)
        assert kernel_ns / 1000 == pytest.approx(sum(theirs["kernel_us_sum"] for theirs in listed), rel=1e-3)
        if op not in BATCH_NORM:
            stated = sum(theirs["gflop"] * theirs["count"] for theirs in listed)
            if op == BACKWARD and listed[0]["concrete"].endswith("'[False, True, False]']"):
                stated /= 2
            assert flop / 1e9 == pytest.approx(stated, rel=1e-3, abs=0.0001 * count)
    assert len(by_shapes) >= (2 if "minitoy" in name else 5)


@pytest.mark.shared
@pytest.mark.parametrize("name", PEERS)
def test_time_of_every_op_is_that_of_tracelens(name: str) -> None:
    """Each row of its table of all ops, attention, norms, element-wise ops and copies included: what the op itself
    launched, kernels and copies (it leaves out fills), within 0.1 %. Of ops that launched nothing it counts a part."""
    profile = aligned(SAMPLES / name).profile
    own: Counter[tuple[str, str]] = Counter()
    for activity in profile.activities:
        if activity.kind != "fill" and activity.range is not None:
            own[Ours.key(profile.ranges[activity.range])] += (activity.end_ns or 0) - (activity.start_ns or 0)
    count = Counter(Ours.key(made) for made in profile.ranges if made.kind == "operator")
    theirs: Counter[tuple[str, str]] = Counter()
    executed: Counter[tuple[str, str]] = Counter()
    for one in tracelens(name)["ops_unique_args"]:
        if one["input_dims"]:  # rows without dims are no ops
            key = one["op"], json.dumps(ast.literal_eval(one["input_dims"]))
            theirs[key] += one["direct_kernel_us"]
            executed[key] += one["count"]
    assert len(theirs) >= 13
    for key, us in theirs.items():
        assert own[key] / 1000 == pytest.approx(us, rel=1e-3, abs=0.002 * executed[key]), key
        assert count[key] >= executed[key], key


def stated(operation: dict[str, Any]) -> tuple[int | None, int | None]:
    """FLOPs and bytes of an op, from its row in the file and the definitions in docs/kineto.md and docs/operations.md:
    attention, layer norm, the forward pass of an activation, an addition."""
    args = operation["args"]
    dims = args["Input Dims"]
    size = {"c10::BFloat16": 2, "c10::Half": 2, "float": 4}[args["Input type"][0]]
    count = [math.prod(one) for one in dims]
    if operation["name"] == "aten::_flash_attention_forward":
        batch, queries, heads, width = dims[0]
        keys = dims[1][1]
        return 2 * 2 * batch * heads * queries * keys * width, size * (sum(count[:3]) + count[0])
    if operation["name"] == "aten::native_layer_norm":
        return 6 * count[0], size * 2 * count[0]
    if operation["name"] == "aten::add":
        largest = max(count[:2])
        return largest, size * (sum(count[:2]) + largest)
    return count[0], size * 2 * count[0]


@pytest.mark.shared
def test_work_of_attention_norms_and_element_wise_ops_is_by_its_definition() -> None:
    """TraceLens has no FLOPs for them (5 an element for layer norms, docs/kineto.md), so they are worked out here."""
    path = SAMPLES / "kineto_mi300x_vit_infer.json.gz"
    names = ("aten::_flash_attention_forward", "aten::native_layer_norm", "aten::add", "aten::gelu", "aten::tanh")
    made = [one for one in events_of(path) if one.get("name") in names and one["ph"] == "X"]
    found = Counter((one.api, one.flop, one.bytes_min) for one in aligned(path).links.operations if one.api in names)
    assert found == Counter((one["name"], *stated(one)) for one in made)
    assert len(made) == 12 + 25 + 25 + 12 + 1


@pytest.mark.parametrize(
    ("given", "shown"),
    [("/tmp/torchinductor_me/u7/rope.py", "rope.py"), ("k.py", "k.py"), ("/home/a b/k.py/", ""), ("a@b.py", ""),
     (5, ""), (None, ""), ("x" * 500 + ".py", ""),
     ("/a/flash_attn_2.py", "flash_attn_2.py"), ("/a/ab12cd34ef56.py", ""),
     (f"/tmp/u7/c{'u7sxdmwqcrvbjbabok6uykeip5u2ws3c4bb6ukwlikpb53tbw5t'}.py",
      "cu7sxdmwqcrvbjbabok6uykeip5u2ws3c4bb6ukwlikpb53tbw5t.py")],
)  # fmt: skip
def test_only_the_base_name_of_a_file_is_kept(given: object, shown: str, tmp_path: Path) -> None:
    """An op of Triton states the file that its kernel was compiled from."""
    events = rows()
    for one in events:
        if one["cat"] == "cpu_op":
            one["name"], one["args"]["kernel_file"] = "triton_poi_fused_0", given
    (operation,) = aligned(kineto_file(tmp_path, events)).links.operations
    assert (operation.facts.kernel_file or "") == shown


@pytest.mark.shared
@pytest.mark.parametrize("name", [name for name in PEERS if "resnet" in name])
def test_both_gradients_have_their_kernels(name: str) -> None:
    """Of each op of the backward pass: one main kernel at least of each gradient that it was asked for."""
    alignment = aligned(SAMPLES / name)
    names: dict[int, list[str]] = defaultdict(list)
    for activity, operation in zip(alignment.profile.activities, alignment.links.operation_of, strict=True):
        if activity.kind == "kernel":
            names[operation].append(activity.name)
    assert not alignment.links.operation_unsure
    backward = [one for one in alignment.links.operations if one.api == BACKWARD]
    assert len(backward) > 100
    for one in backward:
        assert names[one.index]
        others = ("igemm_bwd", "bwd_data") if one.direction == "backward-weights" else ("igemm_wrw", "bwd_weight")
        assert not any(other in kernel for kernel in names[one.index] for other in others)


TWINS = ("lenet-train-own-layers", "resnet-train-miopen-2threads", "resnet-immediate-2ranks", "alexnet-level6-none")
MIOPEN = {
    "miopenConvolutionForward": ("conv", "forward"),
    "miopenConvolutionForwardImmediate": ("conv", "forward"),
    "miopenConvolutionBackwardData": ("conv", "backward-data"),
    "miopenConvolutionBackwardWeights": ("conv", "backward-weights"),
    "miopenBatchNormalizationForwardTraining": ("bnorm", "forward"),
    "miopenBatchNormalizationForwardInference": ("bnorm", "forward"),
    "miopenBatchNormalizationBackward": ("bnorm", "backward-data"),
}


def of_a_twin(name: str) -> tuple[Any, Alignment, list[tuple[dict[str, Any], int]]]:
    """The truth, what was found, and each true kernel of the profile with its place in it."""
    folder = shared_folder() / "samples" / "rocm-twins" / name
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    alignment = aligned(folder / "kineto" / "rank0.pt.trace.json.gz")
    offset = truth["clock"]["unix_minus_profile_ns"]
    at = {activity.start_ns: position for position, activity in enumerate(alignment.profile.activities)}
    kernels = [one for one in truth["kernels"] if one.get("kineto") is not None and not one["rank"]]
    return truth, alignment, [(one, at[one["start"] + offset]) for one in kernels]


@pytest.mark.shared
@pytest.mark.parametrize("name", TWINS)
def test_kernels_of_a_twin_are_in_their_true_operation(name: str) -> None:
    """Convolutions and batch norms, by what they compute, in which direction, and which others they share it with."""
    truth, alignment, kernels = of_a_twin(name)
    together: dict[int, list[int]] = defaultdict(list)
    for kernel, position in kernels:
        if kernel["op"] is None or not kernel.get("kineto_launch", True):
            continue
        expected = MIOPEN.get(truth["operations"][kernel["op"]]["name"])
        if expected is not None:
            operation = alignment.links.operations[alignment.links.operation_of[position]]
            assert (operation.primitive, operation.direction) == expected
            assert alignment.links.operation_by[position] == "correlation"
            together[kernel["op"]].append(operation.index)
    assert sum(map(len, together.values())) > 5
    assert all(len(set(indexes)) == 1 for indexes in together.values())


EVERY = (*PEERS, "kineto_mi300_bert_small.json.gz", "kineto_mi300_vit_nsfw.json.gz", "kineto_mi210_gpu_only.json.gz",
         "graphs/sglang_prefilldecode.json.gz", "graphs/vllm_decode_full.capture.json.gz",
         "graphs/vllm_decode_full.replay.json.gz")  # fmt: skip


def launched_by_ops(path: Path) -> tuple[float, float]:
    """Kernel time that an op launched, and that of all but replayed kernels: by the raw rows alone.

    An op launched what its id names, on the kernel or its call, and what was called within it on its thread.
    """
    done = [event for event in events_of(path) if event.get("ph") == "X"]
    ids, spans, calls = set(), defaultdict(list), {}
    for event in done:
        stated = event.get("args") or {}
        if event["cat"] == "cpu_op":
            ids.add(stated.get("External id"))
            spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["cat"] in ("cuda_runtime", "cuda_driver"):
            calls[stated.get("correlation")] = event
    ids.discard(None)
    ours = whole = 0.0
    for event in done:
        call = calls.get(event["args"].get("correlation")) if event["cat"] == "kernel" else None
        if event["cat"] == "kernel" and not (call is not None and "GraphLaunch" in call["name"]):
            whole += event["dur"]
            named = {event["args"].get("External id"), call and call["args"].get("External id")}
            if named & ids or (
                call is not None and any(start <= call["ts"] < end for start, end in spans[call["pid"], call["tid"]])
            ):
                ours += event["dur"]
    return ours, whole


@pytest.mark.shared
@pytest.mark.parametrize("name", EVERY)
def test_every_kernel_that_an_op_launched_is_in_an_operation(name: str) -> None:
    """The share of the kernel time, replays of graphs left out, equals a count of the raw rows within 0.1 points."""
    ours, whole = launched_by_ops(SAMPLES / name)
    alignment = aligned(SAMPLES / name)
    held = total = 0
    for activity, operation in zip(alignment.profile.activities, alignment.links.operation_of, strict=True):
        if activity.kind == "kernel" and not activity.is_replayed:
            ns = (activity.end_ns or 0) - (activity.start_ns or 0)
            total += ns
            held += ns * (operation >= 0)
    assert total / 1000 == pytest.approx(whole)
    assert 100 * held / total == pytest.approx(100 * ours / whole, abs=0.1)
    assert ours or "gpu_only" in name


@pytest.mark.parametrize(
    ("name", "inputs", "x", "y", "traffic", "flop"),
    [
        ("aten::add_", Inputs(((4, 8), (4, 8), ()), ("half", "half", "")), (4, 8), (4, 8), 3 * 32 * 2, 32),
        ("aten::add", Inputs(((4, 8), (8,), ()), ("half", "half", "")), (4, 8), (4, 8), (32 + 8 + 32) * 2, 32),
        ("aten::add", Inputs(((4, 8), (4, 8)), ("half", "half"), ((8, 1), (0, 1))), (4, 8), (4, 8), (64 + 8) * 2, 32),
        ("aten::mul", Inputs(((4, 8), (), (4, 8)), ("float", "double", "float")), (4, 8), (4, 8), 2 * 32 * 4, 32),
        ("aten::add", Inputs(((4,), (4,)), ("int64", "int64")), (4,), (4,), 3 * 4 * 8, None),
        ("aten::eq", Inputs(((4, 8), ()), ("int64", "")), (4, 8), (4, 8), 32 * 8 + 32, None),
        ("aten::copy_", Inputs(((4, 8), (4, 8)), ("float", "bfloat16")), (4, 8), (4, 8), 32 * 4 + 32 * 2, 0),
        ("aten::fill_", Inputs(((4, 8), ()), ("float", "")), (4, 8), (4, 8), 32 * 4, 0),
        ("aten::rsqrt", Inputs(((4, 8),), ("float",)), (4, 8), (4, 8), 2 * 32 * 4, None),
        ("aten::add", Inputs(((4,), (3,)), ("float", "float")), (4,), (), None, None),
        ("aten::mul", Inputs(((4, 8), (4, 8)), ("int64", "half")), (4, 8), (4, 8), 32 * (8 + 2 + 2), 32),
        ("aten::mul_", Inputs(((4, 8), (4, 8)), ("half", "float")), (4, 8), (4, 8), 32 * (2 + 4 + 2), 32),
        ("aten::add", Inputs(((4,), (4,)), ("half", "bfloat16")), (4,), (4,), 4 * (2 + 2 + 4), 4),
        ("aten::where", Inputs(((4,), (4,), (4,)), ("int64", "half", "half")), (4,), (4,), 4 * (8 + 3 * 2), None),
        ("aten::mul", Inputs(((4,), ()), ("int64", "double")), (4,), (4,), None, None),
        ("aten::mul", Inputs(((4,), ()), ("int64", ""), values=("", "2")), (4,), (4,), 2 * 4 * 8, None),
        ("aten::mul", Inputs(((4,), ()), ("int64", ""), values=("", "0.5")), (4,), (4,), None, None),
        ("aten::sqrt", Inputs(((4,),), ("int64",)), (4,), (4,), None, None),
        ("aten::index_select", Inputs(((9, 4), (), (3,)), ("half", "", "int64")), (9, 4), (), None, None),
        ("vllm::add", Inputs(((4, 8), (4, 8)), ("half", "half")), (4, 8), (), None, None),
        ("aten::_foreach_add_", Inputs((((3, 2), (5,)), ((3, 2), (5,)), ()), ("", "", "")), (11,), (), None, None),
    ],
)  # fmt: skip
def test_traffic_of_what_goes_element_by_element(
    name: str, inputs: Inputs, x: tuple[int, ...], y: tuple[int, ...], traffic: int | None, flop: int | None
) -> None:
    """Each tensor read once as far as it is in memory, the result written once; FLOPs of single operations alone."""
    made = plain(name, inputs)
    assert (made.api, made.input, made.output) == (name, x, y)
    assert (made.bytes_min, made.flop) == (traffic, flop)
    assert operation_name(made).startswith(name)


def test_an_inner_op_launches_for_itself(tmp_path: Path) -> None:
    """An addition beside the convolution that ``aten::convolution`` dispatches to is an operation of its own; what a
    modelled op has launched by another stays the modelled one's."""
    events = [event for event in rows() if event["cat"] in ("cpu_op", "cuda_runtime", "kernel")]
    more = [row("cpu_op", "aten::convolution", 542, 542, FIRST_US + 5, 140, External_id=44)]
    made = (46, 15, "aten::zero_", "fill", 1), (47, 120, "aten::add_", "elementwise", 2)
    for key, at, name, kernel, tensors in made:
        inputs = {"Input_Dims": [[3]] * tensors, "Input_type": ["float"] * tensors}
        call = {"External_id": key, "correlation": key + 44}
        more += [
            row("cpu_op", name, 542, 542, FIRST_US + at, 20, External_id=key, **inputs),
            row("cuda_runtime", "hipLaunchKernel", 542, 542, FIRST_US + at + 1, 2, **call),
            row("kernel", kernel, 2, 0, FIRST_US + (29 if tensors == 1 else 200), tensors, device=2, stream=0,
                correlation=key + 44),
        ]  # fmt: skip
    alignment = kineto_alignment(tmp_path, [*more[:1], *events[:1], *more[1:], *events[1:]])
    assert [one.api for one in alignment.links.operations] == ["aten::miopen_convolution", "aten::add_"]
    of = operations_by_kernel(alignment)
    assert [one and one.api for one in (of["elementwise"], of["fill"])] == ["aten::add_", "aten::miopen_convolution"]


def only(name: str, inputs: Inputs | None) -> Operation:
    (operation,) = operations_of(name, inputs)
    return operation


@pytest.mark.parametrize(
    ("kernel", "flop"),
    [
        ("gemm", 2 * 9000**2 * 64),
        ("void cusparse::csrmm_v2_kernel<float, int>(x)", None),
        ("void rocsparse::csrmmnn_row_split_kernel<256u>(x)", None),
        ("csrmv_v3_kernel", None),
        ("sm80_xmma_sparse_gemm_f16f16_f16f16_f16_tn_n", 2 * 9000**2 * 64),  # of two in four elements
    ],
)
def test_the_work_of_a_sparse_product_is_not_that_of_its_sizes(kernel: str, flop: int | None, tmp_path: Path) -> None:
    """The layout of a matrix is not recorded, but the library that computes with it."""
    sizes = {"Input Dims": [[9000, 9000], [9000, 64]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    op = row("cpu_op", "aten::mm", 542, 542, FIRST_US, 90, External_id=7)
    op["args"] |= sizes
    alignment = kineto_alignment(tmp_path, [op, *launched(1, 5, 30, kernel, External_id=7)])
    (operation,) = operations_by_kernel(alignment).values()
    assert operation is not None
    assert (operation.api, operation.problem and operation.problem.flop()) == ("aten::mm", flop)


def test_a_convolution_has_all_that_the_log_would_tell(tmp_path: Path) -> None:
    """Its output, which the file does not hold, its layout by the strides, its command."""
    (operation,) = aligned(kineto_file(tmp_path)).links.operations
    assert operation.api == "aten::miopen_convolution"
    assert operation_name(operation) == "Conv fwd 10x64x56x56 k3x3"
    assert (operation.output, operation.layout, operation.dtype) == ((10, 64, 56, 56), "NCHW", "bfloat16")
    assert operation.flop == 2 * 10 * 64 * 56 * 56 * 64 * 9
    assert operation.command == (
        "./bin/MIOpenDriver convbfp16 -n 10 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1"
        " -m conv -g 1 -F 1 -t 1"
    )


def test_strides_tell_channels_last() -> None:
    """And groups, pads and strides are the right ones of the list."""
    values = ["", "", "", "[1, 0]", "[2, 1]", "[1]", "2", "False", "False"]
    strides = [[25088, 1, 896, 32], [144, 1, 48, 16]]
    operation = only("aten::miopen_convolution", given([[8, 32, 28, 28], [64, 16, 3, 3]], values, strides))
    assert (operation.layout, operation.pad, operation.stride, operation.groups) == ("NHWC", (1, 0), (2, 1), 2)
    assert operation.output == (8, 64, 14, 26)


@pytest.mark.parametrize(
    ("mask", "ways"),
    [("True, True, False", "data weights"), ("False, True, True", "weights"), ("True, False, False", "data")],
)
def test_a_gradient_is_of_what_the_mask_asks_for(mask: str, ways: str) -> None:
    """Data, weights, or both, in this order."""
    values = ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", f"[{mask}]"]
    made = operations_of(BACKWARD, given([[4, 8, 6, 6], [4, 3, 8, 8], [8, 3, 3, 3]], values))
    assert [one.direction for one in made] == [f"backward-{way}" for way in ways.split()]
    assert {one.flop for one in made} == {2 * 4 * 8 * 36 * 27}
    shown = {"data": "2 -t 1", "weights": "4 -t 1"}
    assert [str(one.command).split(" -F ")[1] for one in made] == [shown[way] for way in ways.split()]


FULL, CAUSAL = 4 * 12 * 197 * 197 * 64, 4 * 12 * (197 * 198 // 2) * 64
HEADS_IN, HEADS_OUT, IMAGE = [[4, 12, 197, 64]], [[4, 197, 12, 64]], [[2, 3, 8, 8]]
NORM, TRAINING = [[2, 3, 8, 8], [3], [3], [3], [3]], ["", "", "", "", "", "True"]
GROUPED, TURNED = [[4, 8, 16, 16], [6, 4, 3, 3]], [[4, 8, 5, 5], [8, 6, 3, 3]]
WHOLE = [[4, 8, 16, 16], [6, 8, 3, 3], [6]]
POOL = ["", "[3, 3]", "[2, 2]"]
COMPUTED = [
    ("mm", [[5, 7], [7, 3]], [], Gemm(5, 3, 7), 210),
    ("addmm", [[3], [5, 7], [7, 3]], [], Gemm(5, 3, 7), 225),
    ("bmm", [[2, 5, 7], [2, 7, 3]], [], Gemm(5, 3, 7, 2), 420),
    ("baddbmm", [[2, 5, 3], [2, 5, 7], [2, 7, 3]], [], Gemm(5, 3, 7, 2), 450),
    ("linear", [[2, 5, 7], [3, 7], [3]], [], Gemm(10, 3, 7), 420),
    ("matmul", [[2, 4, 5, 7], [7, 3]], [], Gemm(40, 3, 7), 1680),
    ("matmul", [[2, 4, 5, 7], [2, 4, 7, 3]], [], Gemm(5, 3, 7, 8), 1680),
    ("matmul", [[2, 1, 5, 7], [1, 4, 7, 3]], [], Gemm(5, 3, 7, 8), 1680),
    ("_flash_attention_forward", HEADS_OUT * 3, [""] * 8 + ["False"], "mha", 4 * FULL),
    ("_scaled_dot_product_flash_attention", HEADS_IN * 3, ["", "", "", "0.", "True"], "mha", 4 * CAUSAL),
    ("_efficient_attention_forward", HEADS_OUT * 3, [""] * 8 + ["0.", "1", "True"], "mha", 4 * CAUSAL),
    ("_efficient_attention_forward", HEADS_OUT * 3, [""] * 8 + ["0.", "0", "True"], "mha", 4 * FULL),
    ("_efficient_attention_backward", HEADS_OUT * 4, [""] * 14 + ["1"], "mha", 10 * CAUSAL),
    ("_scaled_dot_product_efficient_attention_backward", HEADS_IN * 4, [""] * 11 + ["False"], "mha", 10 * FULL),
    ("_scaled_dot_product_cudnn_attention", HEADS_IN * 3, ["", "", "", "", "False", "0.", "True"], "mha", 4 * CAUSAL),
    ("_scaled_dot_product_cudnn_attention_backward", HEADS_IN * 4, [""] * 14 + ["False"], "mha", 10 * FULL),
    ("max_pool2d_with_indices", IMAGE, [*POOL, "[1, 1]", "[1, 1]", "False"], "pool", 2 * 3 * 16 * 9),
    ("max_pool2d_with_indices", IMAGE, [*POOL, "[0, 0]", "[1, 1]", "True"], "pool", 2 * 3 * 16 * 9),
    ("max_pool2d_with_indices", [[2, 3, 5, 5]], ["", "[1, 1]", "[3, 3]", "[0, 0]", "[1, 1]", "True"], "pool", 24),
    ("max_pool2d_with_indices", IMAGE, ["", "[3, 3]", "[1, 1]", "[2, 2]", "[2, 2]", "False"], "pool", 2 * 3 * 64 * 9),
    ("avg_pool2d", IMAGE, [*POOL, "[0, 0]", "True", "False"], "pool", 2 * 3 * 16 * 9),
    ("avg_pool2d_backward", [[2, 3, 4, 4], *IMAGE], ["", "", "[2, 2]", "[]", "[0, 0]", "False", "True"], "pool",
     2 * 3 * 16 * 4),
    ("miopen_batch_norm", NORM, TRAINING, "bnorm", 2304),
    ("cudnn_batch_norm", NORM, TRAINING, "bnorm", 2304),
    ("cudnn_batch_norm_backward", IMAGE * 2, [], "bnorm", 3840),
    ("miopen_batch_norm_backward", IMAGE * 2, [], "bnorm", 3840),
    ("cudnn_convolution", GROUPED, ["", "", "[0, 1]", "[1, 2]", "[1, 1]", "2", "False"], "conv",
     2 * 4 * 6 * 14 * 8 * 4 * 9),
    ("_convolution", GROUPED, ["", "", "", "[1, 2]", "[0, 1]", "[1, 1]", "False", "[0, 0]", "2"], "conv",
     2 * 4 * 6 * 14 * 8 * 4 * 9),
    ("convolution", TURNED, ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[1, 1]", "1"], "conv",
     2 * 4 * 8 * 5 * 5 * 6 * 9),
    ("cudnn_convolution_transpose", TURNED, ["", "", "[0, 0]", "[1, 1]", "[2, 2]", "[1, 1]", "1"], "conv",
     2 * 4 * 8 * 5 * 5 * 6 * 9),
    ("cudnn_convolution_relu", WHOLE, ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "1"], "conv",
     2 * 4 * 6 * 8 * 8 * 8 * 9),
    ("cudnn_convolution_add_relu", [*WHOLE[:2], [4, 6, 8, 8], [], [6]],
     ["", "", "", "1", "", "[2, 2]", "[1, 1]", "[1, 1]", "1"], "conv", 2 * 4 * 6 * 8 * 8 * 8 * 9),
    ("clamp_min_", [[2, 3]], ["", "0"], "activ", 6),
    ("_softmax", [[2, 3]], ["", "-1", "False"], "softmax", 30),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "flop", "moved"),
    [("float8", 2 * 16 * 32 * 48, 16 * 48 + 48 * 32 + 2 * 16 * 32), ("", None, None), ("uint8", None, None)],
)
def test_a_scaled_product_is_of_float8_and_its_result_wider(dtype: str, flop: int | None, moved: int | None) -> None:
    """An element of float4 holds two numbers, so that its lengths are no sizes of the product."""
    inputs = Inputs(((16, 48), (48, 32), (), ()), (dtype, dtype, "float", "float"), values=("",) * 6 + ("15",))
    made = only("aten::_scaled_mm", inputs)
    assert (made.flop, made.bytes_min) == (flop, moved)


FLASH, EFFICIENT = "_flash_attention_forward", "_efficient_attention_forward"


@pytest.mark.parametrize(
    ("name", "mask", "queries", "keys", "pairs"),
    [
        (EFFICIENT, "1", 3, 5, 1 + 2 + 3),
        (EFFICIENT, "1", 5, 3, 1 + 2 + 3 + 3 + 3),
        (EFFICIENT, "2", 3, 5, 3 + 4 + 5),
        (EFFICIENT, "2", 5, 3, 1 + 2 + 3),
        (FLASH, "True", 3, 5, 3 + 4 + 5),
        (FLASH, "False", 3, 5, 15),
        (FLASH, "", 3, 5, None),
    ],
)
def test_causal_masks_are_aligned_as_ops_say(name: str, mask: str, queries: int, keys: int, pairs: int | None) -> None:
    """To the first or to the last key. If it is not recorded whether there is one, the work is unknown."""
    shapes = [[2, queries, 4, 8], [2, keys, 4, 8], [2, keys, 4, 8]]
    place = 9 if name == EFFICIENT else 8
    assert only(f"aten::{name}", given(shapes, [""] * place + [mask])).flop == (
        None if pairs is None else 4 * 2 * 4 * 8 * pairs
    )


@pytest.mark.parametrize(("window", "known"), [(["-1", "-1"], True), (["", ""], True), (["128", "0"], False)])
def test_work_within_a_window_of_keys_is_not_that_of_all(window: list[str], known: bool) -> None:
    values = [""] * 8 + ["False", "False", "", *window]
    assert (only(f"aten::{FLASH}", given(HEADS_OUT * 3, values)).flop is not None) == known


@pytest.mark.parametrize(
    ("name", "types", "values", "each"),
    [
        ("_softmax", "half", ["", "-1", "False"], 2 + 2),
        ("_softmax", "half", ["", "-1", "True"], 2 + 4),
        ("_log_softmax", "half", [], None),
        ("_log_softmax", "float", [], 4 + 4),
        ("_softmax_backward_data", "half half", ["", "", "-1", "5"], 2 + 2 + 2),
        ("_softmax_backward_data", "float float - -", ["", "", "-1", "15"], 4 + 4 + 2),
        ("_softmax_backward_data", "float float - -", ["", "", "-1", "6"], 4 + 4 + 4),
        ("_log_softmax_backward_data", "float float - -", [], None),
        ("_log_softmax_backward_data", "float float - half", [], 4 + 4 + 2),
    ],
)
def test_traffic_of_a_softmax_of_two_types(name: str, types: str, values: list[str], each: int | None) -> None:
    """Its result may be float though its input is half. If that was not recorded, the traffic is unknown."""
    dtypes = tuple(word.strip("-") for word in types.split())
    shapes = tuple((2, 3) if dtype else () for dtype in dtypes)
    made = only(f"aten::{name}", Inputs(shapes, dtypes, values=tuple(values)))
    assert made.bytes_min == (None if each is None else 6 * each)


def test_traffic_of_max_pooling_holds_the_places_of_the_maxima() -> None:
    """PyTorch writes them, and its gradient reads them: eight bytes each."""
    values = [*POOL, "[1, 1]", "[1, 1]", "False"]
    x, y = 2 * 3 * 8 * 8, 2 * 3 * 4 * 4
    assert only("aten::max_pool2d_with_indices", given(IMAGE, values)).bytes_min == 2 * (x + y) + 8 * y
    backward = given([[2, 3, 4, 4], *IMAGE], ["", *values])
    assert only("aten::max_pool2d_with_indices_backward", backward).bytes_min == 2 * (x + y) + 8 * y
    average = given(IMAGE, [*POOL, "[1, 1]", "False", "False"])
    assert only("aten::avg_pool2d", average).bytes_min == 2 * (x + y)


@pytest.mark.parametrize(
    ("name", "bias", "causal", "first", "times"),
    [(EFFICIENT, 3, 9, 0, 1), ("scaled_dot_product_attention", 3, 5, 0, 1),
     ("_scaled_dot_product_efficient_attention_backward", 4, 11, 1, 2),
     ("_scaled_dot_product_cudnn_attention_backward", 8, 14, 1, 2)],
)  # fmt: skip
def test_traffic_of_attention_holds_its_mask(name: str, bias: int, causal: int, first: int, times: int) -> None:
    """Once, in its own type; one that all heads and images share is in memory once."""
    values = [*[""] * causal, "0" if name == EFFICIENT else "False"]

    def moved(mask: tuple[int, ...], dtype: str, steps: tuple[int, ...]) -> int | None:
        before, after = [(2, 4, 4, 8)] * (3 + first), [()] * (bias - 3 - first)
        strides = [*[()] * bias, steps]
        types = [*["half"] * (3 + first), *[""] * len(after), dtype]
        shapes = (*before, *after, mask)
        return only(f"aten::{name}", Inputs(shapes, tuple(types), tuple(strides), tuple(values))).bytes_min

    data = times * 4 * 2 * 4 * 4 * 8 * 2
    whole = (2, 4, 4, 4)
    assert (moved((), "", ()), moved(whole, "", ())) == (data, None)
    assert moved(whole, "float", (0, 0, 4, 1)) == data + 4 * 4 * 4


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [(EFFICIENT, 4, ""), (EFFICIENT, 12, ""), (EFFICIENT, 13, "128"), (FLASH, 13, ""),
     ("_efficient_attention_backward", 6, ""), ("_efficient_attention_backward", 18, "64"),
     ("_flash_attention_backward", 6, "")],
)  # fmt: skip
def test_work_of_sequences_of_several_lengths_is_not_that_of_one(name: str, place: int, value: str) -> None:
    """They lie one after the other, as if they were one long one; a tensor has their limits. Nor is it that of all keys
    in a window."""
    first = 1 if "backward" in name else 0
    shapes = [*HEADS_OUT * (3 + first), *[[]] * 16]
    values = [""] * 20
    values[{EFFICIENT: 9, FLASH: 8, "_flash_attention_backward": 11}.get(name, 14)] = "1"
    assert only(f"aten::{name}", given(shapes, values)).flop is not None
    if value:
        values[place] = value
    else:
        shapes[place] = [5]
    made = only(f"aten::{name}", given(shapes, values))
    assert (made.flop, made.bytes_min) == (None, None)


@pytest.mark.parametrize(("name", "shapes", "values", "computes", "flop"), COMPUTED)
def test_what_an_op_computes(name: str, shapes: list[Any], values: list[str], computes: str | Gemm, flop: int) -> None:
    """Its primitive; of products m, n, k (what is added counts in its FLOPs), whose command is no MIOpenDriver's."""
    operation = only(f"aten::{name}", given(shapes, values))
    assert operation.flop == flop
    if isinstance(computes, Gemm):
        assert operation.gemm == computes
        assert str(operation.command).startswith("hipblaslt-bench ")
    else:
        assert operation.primitive == computes
        assert not operation.doubts


@pytest.mark.parametrize(
    ("name", "shapes", "shown"),
    [
        ("cudnn_convolution", [[32, 3, 8, 8], [64, 3, 7, 7], [], []], "Conv fwd 32x3x8x8 w64x3x7x7"),
        ("cudnn_convolution", [[32, 3, 8, 8], [96, 3, 7, 7], [], []], "Conv fwd 32x3x8x8 w96x3x7x7"),
        ("convolution_backward", [[2, 4, 7, 7], [2, 3, 8, 8], [4, 3, 2, 2]], "Conv bwd 2x3x8x8 w4x3x2x2"),
        ("max_pool2d_with_indices", [[2, 3, 8, 8], [], [], []], "Pool fwd 2x3x8x8"),
    ],
)
def test_ops_without_recorded_numbers_are_told_apart_by_their_shapes(name: str, shapes: list[Any], shown: str) -> None:
    """PyTorch before 2.1 records no ``Concrete Inputs``: no stride, but the shapes of all tensors."""
    operation = only(f"aten::{name}", given(shapes))
    assert operation.problem is None
    assert operation.doubts == ("the inputs do not show the problem",)
    assert (operation_name(operation), problem_name(operation)) == (shown, f"{shown} half")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("convolution_backward", "Conv bwd"),
        ("_cudnn_rnn_backward", "RNN bwd"),
        ("_cudnn_rnn", "RNN fwd"),
        ("mm", "Gemm"),
    ],
)
def test_both_gradients_of_an_op_without_inputs_are_not_named_like_all_directions(name: str, shown: str) -> None:
    operation = only(f"aten::{name}", None)
    assert operation.direction in (None, "forward")
    assert operation_name(operation) == problem_name(operation) == shown


def test_an_rnn_has_its_command() -> None:
    """``aten::miopen_rnn``: mode, sizes and whether both ways from the numbers among its inputs."""
    values = ["", "", "4", "", "", "2", "128", "2", "False", "0.", "True", "True", "[]", ""]
    operation = only("aten::miopen_rnn", given([[10, 32, 64], *[()] * 13], values))
    assert (operation.mode, operation.input, operation.output) == ("lstm", (10, 32, 64), (10, 32, 256))
    assert operation.command == "./bin/MIOpenDriver rnnfp16 -n 32 -W 64 -H 128 -l 2 -b 1 -m lstm -r 1 -k 10 -F 1"
    # clamping elsewhere is no activation
    assert operations_of("aten::clamp_min", given([[2, 3]], ["", "1e-12"])) == ()


def test_work_that_no_device_does_is_not_known() -> None:
    """Lengths that each could be, and make no number of a trace together."""
    long = [1 << 30] * 3
    product = only("aten::bmm", given([long, long]))
    assert (product.input, product.gemm, product.flop, product.bytes_min) == (tuple(long), None, None, None)


HOSTILE: list[Inputs | None] = [
    None,
    Inputs(),
    given([[0, 0], [0]], ["[]"] * 12),
    given([[1 << 60] * 4] * 3, ["9" * 4000] * 12),
    given([[2, 2, 2, 2]] * 3, ["[-1, 0]"] * 12),
    given([[2, 2, 2, 2]] * 3, ["[0, 0]"] * 12),
    given([[2, 2, 2, 2]] * 3, ["7"] * 12),
    Inputs(shapes=(((2, 3), (4,)),) * 12, values=("True",) * 12),
    Inputs(shapes=((2, 3, 4),) * 12, values=("",) * 12, strides=((1,),)),
]


@pytest.mark.parametrize("inputs", HOSTILE)
def test_inputs_of_another_form_are_a_doubt(inputs: Inputs | None) -> None:
    """No row ends in a traceback, and missing sizes are noted. An op without a row has no size that no device has."""
    for operation in (one for name in ROWS for one in operations_of(name, inputs)):
        assert operation.problem is not None or operation.doubts
        assert operation.flop is None or operation.flop >= 0
        assert operation_name(operation)
    for name in ("aten::add", "aten::copy_", "aten::_foreach_mul_", "mine::op"):
        made = plain(name, inputs)
        assert made.is_plain
        assert made.bytes_min is None or made.bytes_min < 1 << 53


NCHW = only("aten::miopen_convolution", given([[8, 32, 28, 28], [64, 32, 3, 3]], ["", "", "", "1", "1", "1", "1"]))
FILL, TURN, CAST = "SubTensorOpWithScalar1d", "batched_transpose_16x32_half", "SubTensorOpWithCastTensor1d"
DATA, WEIGHTS = "igemm_bwd_gtcx3_nhwc_bf16_bx0", "igemm_wrw_gtcx3_nhwc_bf16_bx0"
WINOGRAD, PRODUCT = "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_f2x3_stride1", "Cijk_Ailk_Bjlk_HHS_BH_MT64x128x32_MI16x16"


@pytest.mark.parametrize(
    ("data", "weights"),
    [
        ([FILL, TURN, TURN, DATA, CAST, TURN], [FILL, TURN, TURN, WEIGHTS, CAST, TURN]),
        ([FILL, TURN, TURN, DATA, CAST, TURN], [TURN, TURN, TURN, "kernel_grouped_conv_bwd_weight_xdl", TURN]),
        ([FILL, DATA, TURN], ["naive_conv_nonpacked_wrw_nchw_half_double_half"]),
        ([FILL, TURN, DATA, TURN], [WINOGRAD]),
        ([WINOGRAD], [WINOGRAD]),
        ([PRODUCT], [WINOGRAD]),
        ([PRODUCT], [FILL, TURN, TURN, WEIGHTS]),
        ([PRODUCT], [TURN, TURN, WEIGHTS]),
        ([FILL, "transpose_NCHW2CNHW_V2", PRODUCT, "transpose_CNHW2NCHW_V2"], [FILL, TURN, TURN, WEIGHTS, CAST]),
    ],
)
def test_where_the_weights_begin(data: list[str], weights: list[str]) -> None:
    """What finishes the first gradient is of the first, what prepares the second of the second: as seen."""
    whole = len(data) + len(weights)
    assert split(data + weights, NCHW) == ([*range(len(data))], [*range(len(data), whole)])


def test_where_no_beginning_is_known() -> None:
    """Weights before data, a bias of nobody, several products of one gradient: names are believed. Of three kernels
    that serve any direction, or none that computes, nothing is told."""
    names = ["MIOpenConvBwdB", "MIOpenCvBwdWrW", "MIOpenCvBwdWrW_rdc", "MIOpenConvUni"]
    assert split(names, NCHW) == ([3], [1, 2])
    assert split([FILL, "Im2d2Col", PRODUCT, "Im2d2Col", PRODUCT, "MIOpenConv1x1pquv"], NCHW) == ([5], [0, 1, 2, 3, 4])
    assert [split(names, NCHW) for names in ([WINOGRAD] * 3, [FILL, CAST], [])] == [None] * 3


def test_a_trace_alone_has_a_table_and_driver_lines(tmp_path: Path) -> None:
    """Without a log the ops are what the profile itself states; a profile that states none is refused as before."""
    path, bare = tmp_path / "made.json", tmp_path / "bare.json"
    path.write_bytes(trace())
    bare.write_bytes(trace([made for made in rows() if made["cat"] in ("kernel", "cuda_runtime")]))

    def run(*args: str | Path) -> Result:
        return invoked(*args, "-q")

    (line,) = json.loads(run("ops", "--format", "json", path).stdout)
    assert (line["api"], line["kernels"], line["kernel_ns"]) == ("aten::miopen_convolution", 2, 6_239 + 20_001)
    assert run("driver", path).stdout.startswith("./bin/MIOpenDriver convbfp16 -n 10 -c 64 ")
    for command in ("ops", "driver"):
        assert "holds no line of MIOpen; expected" in stderr_of(run(command, bare), 1)
    assert stderr_of(run("messages", path), 1).endswith(": holds no line of MIOpen; expected its log\n")


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "hipLaunchKernel"])
def test_driver_and_bundle_say_that_the_commands_are_for_amd_gpus(call: str, tmp_path: Path) -> None:
    events = rows()
    for made in events:
        if made["cat"] == "cuda_runtime" and made["name"].endswith("LaunchKernel"):
            made["name"] = call
    path = kineto_file(tmp_path, events)
    done = invoked("driver", path)
    assert done.stdout
    assert ("these commands are for AMD's libraries" in done.stderr) == (call == "cudaLaunchKernel")
    out = tmp_path / "bug.zip"
    bundled = invoked("bundle", path, "-o", out)
    with zipfile.ZipFile(out) as archive:
        first = archive.read("driver.txt").decode().partition("\n")[0]
    assert first.startswith("# the run used GPUs of NVIDIA") == (call == "cudaLaunchKernel")
    assert ("rocm version" in bundled.stderr) == (call == "hipLaunchKernel")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_driver_lines_of_a_job_have_the_time_of_every_rank(order: tuple[int, int], tmp_path: Path) -> None:
    """Each operation has the time of its own rank; a bundle has the same lines."""
    paths = []
    for rank in order:
        events = rows()
        for made in events:
            if made["cat"] == "kernel":
                made["dur"] *= 1 + rank
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_bytes(trace(events, distributedInfo={"backend": "nccl", "rank": rank}))
    done = invoked("driver", *paths)
    assert done.stdout.endswith(f" # 2 calls, {3 * (6_239 + 20_001) / 1e6:.3f} ms in a steady iteration of 2 ranks\n")
    invoked("bundle", *paths, "-o", tmp_path / "job.zip")
    assert zipfile.ZipFile(tmp_path / "job.zip").read("driver.txt").decode() == done.stdout


# -- Dropout's descriptor: setting it fills the states of its random numbers, which is a kernel of its own.


def test_filling_the_states_is_a_kernel_of_the_call_that_sets_the_descriptor(tmp_path: Path) -> None:
    """It is in no other call, and that call's own kernel is in its."""
    program = Program()
    program.program()
    for number, name in enumerate(("InitKernelState", "DropoutForward")):
        program.kernel(name, f"0x{60 + number}")
        program.enqueue(name, f"0x{60 + number}")
    (tmp_path / "prof.json").write_bytes(as_json(program.calls))
    states = {"dropout": 0.5, "states": "0x7f5c3a000000", "stateSizeInBytes": 3145728}
    tensors = {"xDesc": "64, 512", "x": "0x7f5c3b000000", "yDesc": "64, 512", "y": "0x7f5c3c000000"}
    log = entry("SetDropoutDescriptor", dropoutDesc="1,", **states)
    log += entry("DropoutForward", dropoutDesc="1,", **tensors)
    (tmp_path / "run.log").write_text(log)
    links = analyse([tmp_path / "prof.json", tmp_path / "run.log"]).run.alignments[0].links
    lines = {operation.index: operation.line for operation in links.operations}
    assert [lines.get(index) for index in links.operation_of] == [1, 7]


# -- Beside a MIOpen log of the same run: which call is which op, and what cannot be told.


CALL_OF = {
    "forward": "miopenConvolutionForward", "backward-data": "miopenConvolutionBackwardData",
    "backward-weights": "miopenConvolutionBackwardWeights",
}  # fmt: skip
LOGGED_TWINS = ["alexnet-level6-none", "lenet-train-own-layers", "resnet-train-miopen-2threads"]


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
@pytest.mark.parametrize("twin", LOGGED_TWINS)
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
    result = convert(log, kineto_file(tmp_path, name="trace.json"), by_order_alone=True)
    said = {note.kind for note in result.notes if note.problem}
    assert any(kind.startswith("no op of the profile is a call in MIOpen's log") for kind in said)


def test_how_tracks_and_gpus_are_called(tmp_path: Path) -> None:
    """PyTorch's ops are no calls of MIOpen, also those of an extension. Device 2 alone is GPU 2; what the profiler does
    not number is none of those that it does. Calls and kernels have `correlation_id`, by which SQL joins them."""
    op = row("cpu_op", "mine::scale", 542, 542, FIRST_US + 600, 50, External_id=90)
    trace = convert(kineto_file(tmp_path, [*rows(), op, *launched(91, 610, 20)], name="trace.json")).trace
    names = {track.name for track in trace.tracks}
    assert "PyTorch ops" in names
    assert not [name for name in names if "MIOpen" in name]
    assert {slice_.name for slice_ in trace.events() if isinstance(slice_, Slice)} >= {"mine::scale"}
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
