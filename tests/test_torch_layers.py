"""Layers of PyTorch's traces: modules and annotations, the innermost wins; the backward pass by sequence numbers."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.align import NONE, Alignment
from mio2trace.answer import text
from mio2trace.measures.iterations import StepKind, step_kinds
from mio2trace.ops.operation import operation_name
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, kineto_file, row, rows


def aligned(path: Path) -> Alignment:
    alignment = mio2trace.analyse([path]).run.alignment
    assert alignment is not None
    return alignment


def backward(at: float, sequence: int, number: int, **more: Any) -> list[Row]:
    """An op of the backward pass on a second thread, with one kernel."""
    name = "autograd::engine::evaluate_function: ConvolutionBackward0"
    return [
        row("cpu_op", name, 542, 639, at, 90, External_id=number, Sequence_number=sequence, Fwd_thread_id=1),
        row("cpu_op", "aten::mul", 542, 639, at + 5, 50, External_id=number + 1),
        row("cuda_runtime", "hipLaunchKernel", 542, 639, at + 10, 5, External_id=number + 1, correlation=number),
        row("kernel", f"gradient_{number}", 2, 0, at + 40, 5, correlation=number, **more),
    ]


def placed(folder: Path, events: list[Row]) -> dict[str, tuple[str, str | None, int | None, bool]]:
    """Of each kernel: layer, direction, iteration, whether that is sure."""
    alignment = aligned(kineto_file(folder, events))
    links = alignment.links
    found: dict[str, tuple[str, str | None, int | None, bool]] = {}
    for position, activity in enumerate(alignment.profile.activities):
        if activity.kind == "kernel" and links.run_of[position] >= 0:
            run = links.runs[links.run_of[position]]
            iteration = links.passes[run.pass_].iteration
            found[activity.name] = run.layer, run.direction, iteration, position not in links.layer_unsure
    return found


def test_a_gradient_is_in_the_layer_of_its_forward_op(tmp_path: Path) -> None:
    """Also on another thread, and in the iteration of the forward op."""
    found = placed(tmp_path, [*rows(), *backward(FIRST_US + 300, 7, 900)])
    assert found["igemm_fwd_gtcx3_nhwc_bf16"] == ("Conv2d_0", "forward", 3, True)
    assert found["gradient_900"] == ("Conv2d_0", "backward", 3, True)


def test_a_number_that_nobody_had_is_of_no_layer(tmp_path: Path) -> None:
    """So is one whose forward op comes later."""
    early = [*backward(FIRST_US - 300, 7, 900), *backward(FIRST_US + 300, 8, 910)]
    found = placed(tmp_path, [*rows(), *early])
    assert not {"gradient_900", "gradient_910"} & set(found)


def test_numbers_of_two_threads_make_it_unsure(tmp_path: Path) -> None:
    """Each thread counts its own ops."""
    other = row("cpu_op", "aten::mul", 542, 700, FIRST_US + 250, 9, External_id=70, Sequence_number=7)
    module = row("python_function", "nn.Module: ReLU_0", 542, 700, FIRST_US + 245, 20)
    found = placed(tmp_path, [*rows(), module, other, *backward(FIRST_US + 300, 7, 900)])
    assert found["gradient_900"] == ("ReLU_0", "backward", 3, False)


def test_the_innermost_of_annotations_and_modules_wins(tmp_path: Path) -> None:
    """An annotation around all modules names no kernel of theirs; one within a module does."""
    whole = row("user_annotation", "DistributedDataParallel.forward", 542, 542, FIRST_US + 0.5, 300)
    found = placed(tmp_path, [*rows(), whole])
    assert found["igemm_fwd_gtcx3_nhwc_bf16"][0] == "Conv2d_0"
    op = row("user_annotation", "aten::conv2d, op_id = 45", 542, 542, FIRST_US + 5, 150)
    assert placed(tmp_path, [*rows(), op])["igemm_fwd_gtcx3_nhwc_bf16"][0] == "Conv2d_0"
    within = row("user_annotation", "my block", 542, 542, FIRST_US + 5, 150)
    assert placed(tmp_path, [*rows(), within])["igemm_fwd_gtcx3_nhwc_bf16"][0] == "my block"


def launched(at: float, number: int, name: str) -> list[Row]:
    """A launch and its kernel."""
    return [
        row("cuda_runtime", "hipLaunchKernel", 542, 542, at, 5, correlation=number),
        row("kernel", name, 2, 0, at + 10, 5, correlation=number),
    ]


@pytest.mark.parametrize("called", ["nccl:all_reduce", "nccl:_all_gather_base", "gloo:barrier"])
def test_a_collective_is_an_operation_and_no_layer(called: str, tmp_path: Path) -> None:
    """PyTorch's annotation names the operation of a version that records no more. A module around it is a layer."""
    collective = [
        row("user_annotation", called, 542, 542, FIRST_US + 400, 100),
        row("cpu_op", "record_param_comms", 542, 542, FIRST_US + 401, 90, External_id=99),
        *launched(FIRST_US + 420, 990, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"),
    ]
    alignment = aligned(kineto_file(tmp_path, [*rows(), *collective]))
    (position,) = (at for at, one in enumerate(alignment.profile.activities) if one.name.startswith("nccl"))
    assert alignment.links.run_of[position] == NONE
    operation = alignment.links.operations[alignment.links.operation_of[position]]
    kinds = {"nccl:all_reduce": "AllReduce", "nccl:_all_gather_base": "AllGather", "gloo:barrier": "Barrier"}
    assert (operation_name(operation), operation.api) == (kinds[called], "record_param_comms")
    module = row("python_function", "nn.Module: Embedding_0", 542, 542, FIRST_US + 399, 150)
    assert placed(tmp_path, [*rows(), *collective, module])[alignment.profile.activities[position].name][0] == (
        "Embedding_0"
    )


def test_what_a_long_range_launched_is_in_the_step_of_its_launch(tmp_path: Path) -> None:
    """Nothing marks the steps: each begins with the first layer. Its first call holds all others."""
    events = []
    for step in range(3):
        at = FIRST_US + 10 + 200 * step
        events += [
            row("python_function", "nn.Module: Linear_0", 542, 542, at, 50 if step else 900),
            *launched(at + 10, 10 * step + 1, f"linear_{step}"),
            *launched(at + 100, 10 * step + 2, f"between_{step}"),
        ]
    found = placed(tmp_path, events)
    assert found == {
        f"{what}_{step}": ("Linear_0", "forward", step + 1, True) for step in range(3) for what in ("linear", "between")
    }
    runs = aligned(tmp_path / "made.json").links.runs
    assert len(runs) == 5  # the long range in each of three steps, the others once
    for run in runs[:3]:
        assert run.host_start_ns is not None
        assert run.host_end_ns is not None
        assert run.host_end_ns - run.host_start_ns <= 95_000, "from the first launch of a step to the last"


def test_a_part_that_the_model_runs_again_and_again_begins_no_step(tmp_path: Path) -> None:
    """Pieces of a compiled model have one name. The recording begins within a call of the model; its first whole call
    has no end."""
    events = []
    for step in range(3):
        at = FIRST_US + 10 + 200 * step
        if step:
            events.append(row("python_function", "nn.Module: Model_0", 542, 542, at, 800 if step == 1 else 150))
        for piece in range(4):
            begun = at + 5 + 30 * piece
            events += [
                row("python_function", "nn.Module: Piece_0", 542, 542, begun, 25),
                *launched(begun + 5, 10 * step + piece + 1, f"kernel_{step}_{piece}"),
            ]
    assert placed(tmp_path, events) == {
        f"kernel_{step}_{piece}": ("Piece_0", "forward", step + 1, True) for step in range(3) for piece in range(4)
    }


def test_what_comes_before_the_first_layer_by_sequence_is_set_up(tmp_path: Path) -> None:
    """A range of the user's around all begins before it, and is no step."""
    events = [row("user_annotation", "whole run", 542, 542, FIRST_US, 900), *launched(FIRST_US + 5, 1, "fill")]
    for step in range(2):
        at = FIRST_US + 100 + 300 * step
        for place, name in enumerate(("aten::conv2d", "aten::linear")):
            number = 100 * step + 10 * place + 2
            begun = at + 60 * place
            events += [
                row("cpu_op", name, 542, 542, begun, 50, External_id=number),
                *launched(begun + 10, number, f"{name[6:]}_{step}"),
            ]
        events += launched(at + 200, 100 * step + 90, f"dropout_{step}")
    links = aligned(kineto_file(tmp_path, events)).links
    passes = {
        activity.name: (links.passes[number].phase, links.passes[number].iteration)
        for activity, number in zip(links.activities, links.pass_of, strict=True)
    }
    assert passes == {"fill": ("setup", None)} | {
        f"{name}_{step}": ("iteration", step + 1) for name in ("conv2d", "linear", "dropout") for step in range(2)
    }


@pytest.mark.shared
def test_gradients_of_a_real_network_have_the_weights_of_their_layer() -> None:
    """Both directions of a module's convolution have one shape of weights; recomputed forward passes, too."""
    alignment = aligned(shared_folder() / "samples" / "rocm" / "kineto_mi300x_resnet_train_ddp.json.gz")
    links = alignment.links
    weights: dict[tuple[str, bool], set[tuple[int, ...]]] = defaultdict(set)
    for position in range(len(alignment.profile.activities)):
        if links.operation_of[position] >= 0 and links.run_of[position] >= 0:
            operation, run = links.operations[links.operation_of[position]], links.runs[links.run_of[position]]
            if operation.primitive == "conv":
                assert (run.direction == "forward") == (operation.direction == "forward")
                weights[run.layer, operation.direction == "forward"].add(operation.weights)
    layers = {layer for layer, forward in weights if not forward}
    assert len(layers) == 20
    assert not links.layer_unsure
    for layer in layers:
        assert len(weights[layer, True]) == 1
        assert weights[layer, False] == weights[layer, True]


# -- Steps of serving engines: phase, batch and tokens as their marks say, means by kind, and no step is a layer.


MARKS = {
    "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)_generation_0(sq0sk0sqsq0sqsk0)":
        ("prefill", 15, 15360),
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)": ("decode", 32, 32),
    "execute_context_2(100)_generation_3(3)": ("mixed", 5, 103),
    "execute_context_1(sq7sk7sqsq49sqsk49)_generation_4(sq8sk90sqsq16sqsk99)": ("mixed", 5, 15),
    "step[EXTEND bs=15 toks=15360]": ("prefill", 15, 15360),
    "step[DECODE bs=29]": ("decode", 29, None),
    "step[MIXED bs=4 toks=12 c=1 g=3]": ("mixed", 4, 12),
    "prefill[bs=3 tok=77 ctx=[1,2,3]]": ("prefill", 3, 77),
    "decode[bs=117/128 tok=117 d=1]": ("decode", 117, 117),
}  # fmt: skip


def served(marks: list[tuple[str, float]]) -> list[Row]:
    """Steps, each with a module and two kernels that take as long as stated, and the same step as a part of itself."""
    made = []
    at = FIRST_US
    for number, (mark, us) in enumerate(marks):
        key = 10 * number
        made += [
            row("user_annotation", mark, 7, 7, at, 60, External_id=1000 + key),
            row("python_function", "nn.Module: Attention_0", 7, 7, at + 5, 50, Python_id=key),
            row("cpu_op", "aten::mm", 7, 7, at + 10, 30, External_id=key + 1, Input_Dims=[[4, 8], [8, 2]],
                Input_type=["float", "float"]),
        ]  # fmt: skip
        for inner in (1, 2):
            made += [
                row("cuda_runtime", "hipLaunchKernel", 7, 7, at + 10 + inner, 1, External_id=key + 1,
                    correlation=key + inner, grid=[1, 1, 1], block=[64, 1, 1]),
                row("kernel", "gemm", 2, 0, at + 20 + inner * us, us, device=2, stream=0, correlation=key + inner),
            ]  # fmt: skip
        at += 5000
    return made


def kinds(folder: Path, events: list[Row]) -> tuple[list[StepKind], mio2trace.Run]:
    run = mio2trace.analyse([kineto_file(folder, events, "served.json")]).run
    return step_kinds(run.measures[0]), run


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_tells_phase_batch_and_tokens(mark: str, tmp_path: Path) -> None:
    """And is a step, never a layer."""
    found, run = kinds(tmp_path, served([(mark, 10.0), (mark, 10.0)]))
    phase, batch, tokens = MARKS[mark]
    (kind,) = found
    assert (kind.phase, kind.batch, kind.steps) == (phase, batch, 2)
    assert kind.tokens == (None if tokens is None else 2 * tokens)
    assert run.alignment is not None
    assert {run.layer for run in run.alignment.links.runs} == {"Attention_0"}


def test_prefill_and_decode_have_means_of_their_own(tmp_path: Path) -> None:
    """By phase and batch; the report's line says each."""
    decode, prefill = "step[DECODE bs=32]", "step[EXTEND bs=4 toks=100]"
    marks = [(prefill, 400.0), (decode, 20.0), (decode, 30.0), (prefill, 600.0), (decode, 40.0)]
    found, run = kinds(tmp_path, served(marks))
    assert [(one.name, one.steps, one.kernel_ns, one.kernels) for one in found] == [
        ("prefill, batch 4", 2, 1_000_000, 2), ("decode, batch 32", 3, 60_000, 2)
    ]  # fmt: skip
    assert [one.counts for one in found] == [True, False]
    assert found[0].tokens == 200
    said = text._steps(found)
    assert said.startswith("prefill, batch 4: ")
    assert "decode, batch 32: " in said
    assert said.endswith("per step, 3 steps")
    assert run.measures[0].steady.told.kinds


@pytest.mark.shared
@pytest.mark.parametrize("name", ["sglang_prefilldecode.json.gz", "vllm_decode_full.replay.json.gz"])
def test_steps_of_a_sample_are_its_annotations(name: str) -> None:
    """The outermost, by a reading of the test's own; none is a layer."""
    path = shared_folder() / "samples" / "rocm" / "graphs" / name
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marks = [one for one in events if one.get("cat") == "user_annotation" and one["name"].startswith(("exec", "step["))]
    spans = [(one["ts"], one["ts"] + one["dur"]) for one in marks]
    outer = [
        one
        for one, (start, end) in zip(marks, spans, strict=True)
        if not any(first <= start and end <= last and (first, last) != (start, end) for first, last in spans)
    ]
    run = mio2trace.analyse([path]).run
    assert run.alignment is not None
    assert len(run.alignment.steps) == len(outer)
    assert [(one.phase, one.batch, one.tokens) for one in run.alignment.steps] == [MARKS[one["name"]] for one in outer]
    layers = {one.layer for one in run.alignment.links.runs}
    assert layers
    assert not any(layer.startswith(("execute", "step[")) for layer in layers)
