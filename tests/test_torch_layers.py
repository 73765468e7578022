"""Layers of PyTorch's traces: the innermost module or annotation, the backward pass, steps of engines, blocks."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.by_sequence import ForwardOp, find_blocks
from mio2trace.answer import of_profile, text
from mio2trace.answer.content import Section
from mio2trace.findings.subject import Subject
from mio2trace.measures.iterations import Iterations, StepKind, idle_between, step_kinds
from mio2trace.ops.operation import operation_name
from tests.commands import invoked, json_of, printed
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import FIRST_US, Row, aligned, kineto_alignment, kineto_file, launched, row, rows


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
    alignment = kineto_alignment(folder, events)
    links = alignment.links
    found: dict[str, tuple[str, str | None, int | None, bool]] = {}
    for position, activity in enumerate(alignment.profile.activities):
        if activity.kind == "kernel" and links.run_of[position] >= 0:
            run = links.runs[links.run_of[position]]
            iteration = links.passes[run.pass_].iteration
            found[activity.name] = run.layer, run.direction, iteration, position not in links.layer_unsure
    return found


MAIN, GRADIENT = "igemm_fwd_gtcx3_nhwc_bf16", "gradient_900"


def annotated(name: str, at: float, us: float) -> list[Row]:
    return [row("user_annotation", name, 542, 542, FIRST_US + at, us)]


@pytest.mark.parametrize(
    ("more", "kernel", "place"),
    [
        # a gradient is in the layer of its forward op, also on another thread, and in the iteration of the forward op
        (backward(FIRST_US + 300, 7, 900), MAIN, ("Conv2d_0", "forward", 3, True)),
        (backward(FIRST_US + 300, 7, 900), GRADIENT, ("Conv2d_0", "backward", 3, True)),
        # that of a number that nobody had is in no layer, nor is one whose forward op comes later
        (backward(FIRST_US - 300, 7, 900), GRADIENT, None),
        (backward(FIRST_US + 300, 8, 900), GRADIENT, None),
        # each thread counts its own ops
        ([row("python_function", "nn.Module: ReLU_0", 542, 700, FIRST_US + 245, 20),
          row("cpu_op", "aten::mul", 542, 700, FIRST_US + 250, 9, External_id=70, Sequence_number=7),
          *backward(FIRST_US + 300, 7, 900)], GRADIENT, ("ReLU_0", "backward", 3, False)),
        # an annotation around all modules names no kernel of theirs, nor does an op's; one within a module does
        (annotated("DistributedDataParallel.forward", 0.5, 300), MAIN, ("Conv2d_0", "forward", 3, True)),
        (annotated("aten::conv2d, op_id = 45", 5, 150), MAIN, ("Conv2d_0", "forward", 3, True)),
        (annotated("my block", 5, 150), MAIN, ("my block", None, 3, True)),
    ],
)  # fmt: skip
def test_the_layer_of_a_kernel_beside_a_module(
    more: list[Row], kernel: str, place: tuple[str, str | None, int, bool] | None, tmp_path: Path
) -> None:
    assert placed(tmp_path, [*rows(), *more]).get(kernel) == place


@pytest.mark.parametrize("called", ["nccl:all_reduce", "nccl:_all_gather_base", "gloo:barrier"])
def test_a_collective_is_an_operation_and_no_layer(called: str, tmp_path: Path) -> None:
    """PyTorch's annotation names the operation of a version that records no more. A module around it is a layer."""
    collective = [
        row("user_annotation", called, 542, 542, FIRST_US + 400, 100),
        row("cpu_op", "record_param_comms", 542, 542, FIRST_US + 401, 90, External_id=99),
        *launched(990, 420, 5, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"),
    ]
    alignment = kineto_alignment(tmp_path, [*rows(), *collective])
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
        at = 10 + 200 * step
        events += [
            row("python_function", "nn.Module: Linear_0", 542, 542, FIRST_US + at, 50 if step else 900),
            *launched(10 * step + 1, at + 10, 5, f"linear_{step}"),
            *launched(10 * step + 2, at + 100, 5, f"between_{step}"),
        ]
    found = placed(tmp_path, events)
    assert found == {
        f"{what}_{step}": ("Linear_0", "forward", step + 1, True) for step in range(3) for what in ("linear", "between")
    }
    runs = aligned(tmp_path / "made.json").links.runs
    assert len(runs) == 5  # the long range in each of three steps, the others once
    for run in [*runs][:3]:
        assert run.host_start_ns is not None
        assert run.host_end_ns is not None
        assert run.host_end_ns - run.host_start_ns <= 95_000, "from the first launch of a step to the last"


def test_what_has_no_recorded_launch_is_in_the_step_of_its_op(tmp_path: Path) -> None:
    """Also what is in no layer: a file may hold ops and kernels, but no calls."""
    events = []
    for step in range(3):
        at = FIRST_US + 1000 * step
        events += annotated(f"ProfilerStep#{step + 2}", 1000 * step, 900)
        events.append(row("python_function", "nn.Module: Linear_0", 542, 542, at, 60))
        for place, name in enumerate(("aten::mm", "aten::sum", "c10d::allreduce_", "aten::sort", "aten::topk")):
            number, begun = 10 * step + place + 1, at + 100 * place
            events += [
                row("cpu_op", name, 542, 542, begun, 50, External_id=number),
                row("kernel", name, 2, 0, begun + 20, 70, stream=0, correlation=900 + number, External_id=number),
            ]
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    links = measures.alignment.links
    assert [of >= 0 and links.passes[of].iteration for of in links.pass_of] == [2] * 5 + [3] * 5 + [4] * 5
    assert [one.step_ns for one in measures.steady.told.all] == [900_000] * 3, "as long as the host was in it"


def counted(texts: Sequence[str], *, also: Sequence[Row] = ()) -> list[Row]:
    """Rows of ranges with these texts, one after the other, each with two launches."""
    return [
        *also,
        *(
            made
            for at, text in enumerate(texts)
            for made in (
                *annotated(text, 1000 * at, 900),
                *launched(2 * at + 1, 1000 * at + 10, 5, "one"),
                *launched(2 * at + 2, 1000 * at + 200, 5, f"other_{at % 2}"),
            )
        ),
    ]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        ([f"train_step_{at}" for at in range(7, 12)], [7, 8, 9, 10, 11]),
        ([f"train_step-{at}" for at in range(5)], [0, 1, 2, 3, 4]),
        ([f"Training iteration {at}" for at in range(1, 6)], [1, 2, 3, 4, 5]),
        ([f"decode_step_{at:03d}" for at in range(8, 13)], [8, 9, 10, 11, 12]),
        ([f"global_step{at}" for at in range(5)], [0, 1, 2, 3, 4]),
        # parts that each step counts anew, parts of the model, sizes
        ([f"micro_step_{at % 2}" for at in range(5)], []),
        ([f"block_{at}" for at in range(5)], []),
        ([f"batch_size_{at}" for at in range(5)], []),
    ],
)
def test_ranges_that_count_steps_are_steps(texts: list[str], numbers: list[int], tmp_path: Path) -> None:
    assert [step.number for step in kineto_alignment(tmp_path, counted(texts)).steps] == numbers
    # one that holds fewer of the launches is none
    others = [made for at in range(3) for made in launched(100 + at, 6000 + 10 * at, 5)]
    assert kineto_alignment(tmp_path, counted(texts, also=others)).steps == ()


@pytest.mark.parametrize("text", ["step{}", "batch {}", "Iteration {}"])
def test_steps_that_are_counted_anew_need_most_launches(text: str, tmp_path: Path) -> None:
    """An epoch counts its batches anew, and may end with a validation. So does a model's forward pass with its parts,
    but the backward pass is in none."""
    for numbers in ((0, 1, 2, 0, 1), (0, 1, 2, 3, 4)):
        rows = counted([text.format(number) for number in numbers])
        for beside in (0, 2, 11):
            others = [made for at in range(beside) for made in launched(100 + at, 6000 + 10 * at, 5)]
            steps = kineto_alignment(tmp_path, rows + others).steps
            is_part = beside == 11 and numbers[3] == 0
            assert len(steps) == (0 if is_part else 5)


def test_a_profilers_step_is_stronger_than_counted_ranges(tmp_path: Path) -> None:
    marks = annotated("ProfilerStep#3", -1, 2000) + annotated("ProfilerStep#4", 2000, 3000)
    alignment = kineto_alignment(tmp_path, counted([f"train_step_{at}" for at in range(5)], also=marks))
    assert [step.number for step in alignment.steps] == [3, 4]


def test_parts_with_the_text_of_their_step_and_a_number_leave_the_steps(tmp_path: Path) -> None:
    """A step may count its parts, anew or on and on."""
    for number in (0, 1):
        parts = [made for at in range(3) for made in annotated(f"train_step_{number * at}", 1000 * at + 5, 100)]
        steps = kineto_alignment(tmp_path, counted(["train_step"] * 3, also=parts)).steps
        assert [step.end_ns - step.start_ns for step in steps] == [900_000] * 3


def test_a_part_that_the_model_runs_again_and_again_begins_no_step(tmp_path: Path) -> None:
    """Pieces of a compiled model have one name. The recording begins within a call of the model; its first whole call
    has no end."""
    events = []
    for step in range(3):
        at = 10 + 200 * step
        if step:
            length = 800 if step == 1 else 150
            events.append(row("python_function", "nn.Module: Model_0", 542, 542, FIRST_US + at, length))
        for piece in range(4):
            begun = at + 5 + 30 * piece
            events += [
                row("python_function", "nn.Module: Piece_0", 542, 542, FIRST_US + begun, 25),
                *launched(10 * step + piece + 1, begun + 5, 5, f"kernel_{step}_{piece}"),
            ]
    assert placed(tmp_path, events) == {
        f"kernel_{step}_{piece}": ("Piece_0", "forward", step + 1, True) for step in range(3) for piece in range(4)
    }


def test_what_comes_before_the_first_layer_by_sequence_is_set_up(tmp_path: Path) -> None:
    """A range of the user's around all begins before it, and is no step."""
    events = [row("user_annotation", "whole run", 542, 542, FIRST_US, 900), *launched(1, 5, 5, "fill")]
    for step in range(2):
        at = 100 + 300 * step
        for place, name in enumerate(("aten::conv2d", "aten::linear")):
            number = 100 * step + 10 * place + 2
            begun = at + 60 * place
            events += [
                row("cpu_op", name, 542, 542, FIRST_US + begun, 50, External_id=number),
                *launched(number, begun + 10, 5, f"{name[6:]}_{step}"),
            ]
        events += launched(100 * step + 90, at + 200, 5, f"dropout_{step}")
    links = kineto_alignment(tmp_path, events).links
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
    "execute_new_3_cached_0": ("prefill", 3, None),
    "execute_new_0_cached_32": ("decode", 32, None),
    "execute_new_1_cached_31": ("mixed", 32, None),
    "[Executor] _forward_step 7: 2 ctx reqs, 100 ctx tokens, 0 gen reqs": ("prefill", 2, None),
    "[Executor] _forward_step 8: 0 ctx reqs, 4 gen reqs": ("decode", 4, None),
    "[Executor] _forward_step: 1 ctx reqs, 4 gen reqs": ("mixed", 5, None),
    "forward_eager": ("eager", None, None),
    "forward_cudagraph": ("decode", None, None),
    "step[TARGET_VERIFY bs=6]": ("verify", 6, None),
    "step[DRAFT_EXTEND_V2 bs=6]": ("draft", 6, None),
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
                    correlation=5000 + key + inner, grid=[1, 1, 1], block=[64, 1, 1]),
                row("kernel", "gemm", 2, 0, at + 20 + inner * us, us, device=2, stream=0, External_id=key + 1,
                    correlation=5000 + key + inner),
            ]  # fmt: skip
        at += 5000
    return made


def kinds(folder: Path, events: list[Row]) -> tuple[list[StepKind], mio2trace.Run]:
    run = mio2trace.analyse([kineto_file(folder, events, "served.json")]).run
    return step_kinds(run.measures[0]), run


@pytest.mark.parametrize("has_calls", [True, False])
def test_prefill_and_decode_have_means_of_their_own(has_calls: bool, tmp_path: Path) -> None:
    """By phase and batch. A step ends with its second kernel, which begins 20 us and its own length after the mark.
    Also without the calls: the kernels state their ops."""
    decode, prefill = "step[DECODE bs=32]", "step[EXTEND bs=4 toks=100]"
    marks = [(prefill, 400.0), (decode, 20.0), (decode, 30.0), (prefill, 600.0), (decode, 40.0)]
    found, _ = kinds(tmp_path, [one for one in served(marks) if has_calls or one["cat"] != "cuda_runtime"])
    assert [
        (one.name, one.steps, one.tokens, one.step_ns, one.kernel_ns, one.kernels, one.counts) for one in found
    ] == [
        ("prefill, batch 4", 2, 200, 1_520_000, 1_000_000, 2, True),
        ("decode, batch 32", 3, None, 110_000, 60_000, 2, False),
    ]


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


# -- Ranges whose names count the steps (TorchRec).


COUNTED = {
    "each step its own": ("## forward {step} ##", 4, {"## forward ##"}),
    "ahead of the step": ("## copy_batch_to_gpu {later} ##", 4, {"## copy_batch_to_gpu ##"}),
    "with a separator": ("micro_batch_{step}", 4, {"micro_batch"}),
    "nothing but a number": ("{step}", 4, {"3", "4", "5", "6"}),
    "a number and a sign": ("#{step}", 4, {"#3", "#4", "#5", "#6"}),
    "the same in each step": ("## forward 3 ##", 4, {"## forward 3 ##"}),
    "several in each step": ("layer {step}{part}", 4, {f"layer {n}" for n in (30, 31, 40, 41, 50, 51, 60, 61)}),
    "of two steps": ("## forward {step} ##", 2, {"## forward 3 ##", "## forward 4 ##"}),
}


@pytest.mark.parametrize("what", COUNTED)
def test_a_layer_whose_name_counts_the_steps_is_one_layer(what: str, tmp_path: Path) -> None:
    """Its mean is over the steps; with a name for each step it was a part of that."""
    text, count, layers = COUNTED[what]
    parts = (0, 1) if "part" in text else (0,)
    events: list[Row] = []
    for step in range(3, 3 + count):
        at = FIRST_US + 1000 * step
        events.append(row("user_annotation", f"ProfilerStep#{step}", 542, 542, at, 900))
        for part in parts:
            name = text.format(step=step, later=step + 2, part=part)
            events.append(row("user_annotation", name, 542, 542, at + 100 * part, 60))
            events += launched(10 * step + part, 1000 * step + 100 * part + 20, 7.0)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    found = {layer.name: layer.ns for layer in of_profile(Subject(measures), "run").layers}
    assert {run.layer for run in measures.alignment.links.runs} == layers
    assert set(found.values()) == {7000 if len(layers) == 1 else 7000 // count}


# -- Blocks of made-up networks without modules: each op in the block that called it, or in none; no guess is sure.


Called = tuple[str, str, float, tuple[tuple[int, ...], ...]]
"""(where it is called, op, host time before it, shapes). ``where``: ``0``, ``1`` are blocks, all else is outside."""
TOKENS, WIDTH = 8, 16
HIDDEN = (TOKENS, WIDTH)
BETWEEN, MODULE, WITHIN = 30.0, 12.0, 3.0


def linear(where: str, out: int, gap: float = MODULE, into: int = WIDTH) -> Called:
    return where, "aten::linear", gap, ((TOKENS, into), (out, into))


def norm(where: str, gap: float = MODULE) -> Called:
    return where, "aten::layer_norm", gap, (HIDDEN, (WIDTH,))


def add(where: str) -> Called:
    return where, "aten::add", WITHIN, (HIDDEN, HIDDEN)


def block(number: int, *, norm_first: bool = True, wide: int = 64, more: Sequence[str] = ()) -> Iterator[Called]:
    """A layer of a transformer; the host takes longest before its first op. Its views have gradients."""
    where = str(number)
    yield where, "aten::view", MODULE, (HIDDEN,)
    if norm_first:
        yield norm(where, BETWEEN)
    yield from (linear(where, WIDTH, MODULE if norm_first or at else BETWEEN) for at in range(3))
    yield where, "aten::transpose", WITHIN, (HIDDEN,)
    yield from ((where, name, WITHIN, (HIDDEN,)) for name in more)
    yield where, "aten::scaled_dot_product_attention", WITHIN, (HIDDEN, HIDDEN)
    yield linear(where, WIDTH)
    yield add(where)
    yield norm(where, WITHIN + 1)
    yield linear(where, wide)
    yield where, "aten::gelu", WITHIN, ((TOKENS, wide),)
    yield linear(where, WIDTH, into=wide)
    yield add(where)
    if not norm_first:
        yield norm(where, WITHIN + 1)


def network(blocks: Iterable[Iterable[Called]], *, norm_first: bool = True, head: int = 50) -> list[Called]:
    """Around the blocks an embedding and a linear layer, which may share their weights."""
    last = norm("head", MODULE)
    first = norm("embedding", WITHIN + 1)
    return [
        ("embedding", "aten::embedding", MODULE, ((head, WIDTH), (TOKENS,))),
        add("embedding"),
        *(() if norm_first else (first,)),
        *(called for one in blocks for called in one),
        *((last,) if norm_first else ()),
        linear("head", head, BETWEEN),
    ]


def rows_of(
    calls: Sequence[Called], first: float, key: int, *, thread: int = 7, stream: int = 0, mark: str = ""
) -> list[Row]:
    """Ops of one kernel each, the backward pass in reverse on a thread of its own."""
    at = first
    made: list[Row] = []
    for number, (_, name, gap, dims) in enumerate(calls, key):
        at += gap
        made += op_launched("cpu_op", name, thread, at, number, stream, Input_Dims=dims, Sequence_number=number)
        at += 8
    for number in range(key + len(calls) - 1, key - 1, -1):
        at += 9
        name = "autograd::engine::evaluate_function: XBackward0"
        made += op_launched("cpu_op", name, thread + 1, at, 100_000 + number, stream, Sequence_number=number)
        at += 8
    if mark:
        made.append(row("user_annotation", mark, 7, thread, first, at - first + 5))
    return made


def op_launched(cat: str, name: str, thread: int, at: float, number: int, stream: int, **more: object) -> list[Row]:
    return [
        row(cat, name, 7, thread, at, 8, External_id=number, **more),
        row("cuda_runtime", "hipLaunchKernel", 7, thread, at + 3, 2, External_id=number, correlation=number),
        row("kernel", "work", 2, stream, at + 6, 2, device=2, stream=stream, correlation=number),
    ]


def places(found: Alignment) -> dict[int | None, int]:
    """Correlation -> position."""
    return {one.correlation: place for place, one in enumerate(found.profile.activities)}


def blocks_of(found: Alignment, calls: Sequence[Called], key: int, *, backward: bool = False) -> list[str]:
    """Of each op the block that it is in, itself or by its layer; no kernel of a block itself is sure."""
    links, within = found.links, {layer.layer: layer.within for layer in found.net.layers}
    at = places(found)
    told = []
    for number in range(key, key + len(calls)):
        position = at[number + 100_000 * backward]
        run = links.run_of[position]
        layer = links.runs[run].layer if run != NONE else ""
        if layer.startswith("block "):
            assert position in links.layer_unsure
        told.append(layer if layer.startswith("block ") else within.get(layer, ""))
    return told


def expected(calls: Sequence[Called]) -> list[str]:
    return [f"block {int(where) + 1}" if where.isdecimal() else "" for where, *_ in calls]


def llama(number: int) -> Iterator[Called]:
    """A layer whose norms are ops of their own; the host takes longest behind these, where no block begins."""
    where = str(number)
    for out, into, anchors in ((WIDTH, WIDTH, 3), (64, WIDTH, 2)):
        yield from ((where, f"aten::{name}", WITHIN, (HIDDEN,)) for name in ("pow", "mean", "rsqrt", "mul"))
        yield from (linear(where, out, BETWEEN, into) for _ in range(anchors))
        yield where, "aten::mul", WITHIN, (HIDDEN, HIDDEN)
        yield linear(where, WIDTH, into=out)
        yield add(where)


@pytest.mark.parametrize("count", [3, 8])
def test_a_block_ends_with_a_residual_sum(count: int, tmp_path: Path) -> None:
    """Whatever the gaps are: where the norms are ops of their own, only the sum shows it."""
    calls = network(llama(number) for number in range(count))
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1"))
    assert blocks_of(found, calls, 1000) == expected(calls)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("count", [3, 5, 7, 12])
def test_each_op_is_in_its_block(count: int, norm_first: bool, tmp_path: Path) -> None:
    """In both passes of both steps. Where a norm is, first or last, is told by the host's time alone; the head has the
    weights of the embedding."""
    calls = network((block(n, norm_first=norm_first) for n in range(count)), norm_first=norm_first)
    events = rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1")
    events += rows_of(calls, FIRST_US + 20_000, 3000, mark="ProfilerStep#2")
    found = kineto_alignment(tmp_path, events)
    for key in (1000, 3000):
        for backward in (False, True):
            assert blocks_of(found, calls, key, backward=backward) == expected(calls)
    assert found.links.run_of[places(found)[1001]] == NONE  # the sum of embeddings


@pytest.mark.parametrize("odd", [0, 3, 6])
@pytest.mark.parametrize("more", [(), ("aten::embedding",), ("aten::mul", "aten::mul")])
def test_a_block_that_differs_is_doubted(odd: int, more: tuple[str, ...], tmp_path: Path) -> None:
    """By an op more or by its width; the other blocks are as they were, and what is in the odd one is its own."""
    calls = network(block(n, more=more if n == odd else (), wide=32 if n == odd and not more else 64) for n in range(7))
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1"))
    told, wanted = blocks_of(found, calls, 1000), expected(calls)
    of_odd = {name for name, (where, *_) in zip(told, calls, strict=True) if where == str(odd)}
    if more or odd == 3:
        assert told == wanted
    else:  # no other block shows where the first or last one would end
        assert of_odd == {""}
    links = found.links
    at = places(found)
    for number, (where, name, *_) in enumerate(calls, 1000):
        if where == str(odd) and links.run_of[at[number]] != NONE and name == "aten::add":
            assert links.layer_confidence[at[number]] <= 0.5


def test_two_threads_have_their_own_blocks(tmp_path: Path) -> None:
    """Two networks at the same time, each on a thread and a stream: no block has ops of both."""
    calls = network(block(n) for n in range(4))
    events = rows_of(calls, FIRST_US, 1000, thread=10)
    events += rows_of(calls, FIRST_US + 40.5, 3000, thread=20, stream=1)
    found = kineto_alignment(tmp_path, events)
    told = [blocks_of(found, calls, key) for key in (1000, 3000)]
    for names in told:
        assert [bool(name) for name in names] == [bool(name) for name in expected(calls)]
        assert len(dict.fromkeys(names)) == 5
    assert not {*told[0]} & {*told[1]} - {""}


def test_two_streams_of_one_thread_are_never_sure(tmp_path: Path) -> None:
    """Ops of two networks in turns repeat as one does: what is in a block of both is a guess, said so."""
    one, other = (network(block(n) for n in range(4)) for _ in range(2))
    calls = [called for pair in zip(one, other, strict=True) for called in pair]
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000))
    blocks_of(found, calls, 1000)  # asserts it


@pytest.mark.parametrize(
    "calls",
    [
        network(block(n) for n in range(2)),
        network([[linear(str(n), WIDTH), add(str(n))] for n in range(9)]),
        network(block(n, wide=10 * n + 20) for n in range(6)),
    ],
    ids=["two", "one linear each", "each of another size"],
)
def test_what_repeats_less_is_no_block(calls: list[Called], tmp_path: Path) -> None:
    assert not any(blocks_of(kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000)), calls, 1000))


def test_a_part_that_the_user_named_stays_one(tmp_path: Path) -> None:
    """Ops without parameters stay in an annotation of less than half of the step, with any evidence of it."""
    calls = network(block(n) for n in range(4))
    events = rows_of(calls, FIRST_US, 1000)
    named = [one for one in events if one["name"] == "aten::scaled_dot_product_attention"][1]
    events.append(row("user_annotation", "my attention", 7, 7, named["ts"] - 1, 8 + 2))
    found = kineto_alignment(tmp_path, events)
    position = places(found)[named["args"]["External id"]]
    assert found.links.runs[found.links.run_of[position]].layer == "my attention"
    assert position not in found.links.layer_unsure


@pytest.mark.parametrize("segment", [(0, 4), (4, 16), (0, 30)])
def test_what_the_backward_pass_runs_again_is_in_its_layer(segment: tuple[int, int], tmp_path: Path) -> None:
    """Forward ops in a gradient (checkpoints) have sequence numbers; they are in no layer of that gradient's op."""
    calls = network((block(n) for n in range(4)), head=WIDTH)
    first, end = segment
    events = rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1")
    gradient = next(one for one in events if one["args"].get("External id") == 101_000 + end - 1)
    gradient["dur"] = 1000
    for one in events:
        one["ts"] += 1000 * (one["ts"] > gradient["ts"] + 7)
    for number, (_, name, _, dims) in enumerate(calls[first:end]):
        events += op_launched("cpu_op", name, 8, gradient["ts"] + 12 + 10 * number, 500_000 + number, 0,
                           Input_Dims=dims, Sequence_number=5 + number)  # fmt: skip
    found = kineto_alignment(tmp_path, [one for one in events if one["cat"] != "user_annotation"])
    at = places(found)
    links = found.links
    for number in range(first, end):
        runs = [links.run_of[at[key]] for key in (1000 + number, 500_000 + number - first)]
        if runs[1] == NONE:
            assert runs[0] == NONE
            continue
        if at[500_000 + number - first] not in links.layer_unsure:
            assert len({(links.runs[run].layer, links.runs[run].direction) for run in runs}) == 1
    sure = [number for number in range(first, end) if at[500_000 + number - first] not in links.layer_unsure]
    assert sure or segment == (4, 16)  # which is the first or the second block


def test_a_gradient_of_gradients_is_in_its_layer(tmp_path: Path) -> None:
    """With `create_graph` the ops of a gradient have sequence numbers, too; none of them has parameters."""
    calls = network(block(n) for n in range(4))
    events = rows_of(calls, FIRST_US, 1000)
    gradient = next(one for one in events if one["args"].get("External id") == 101_003)
    events += op_launched("cpu_op", "aten::mm", 8, gradient["ts"] + 6.5, 500_000, 0, Sequence_number=5)
    events[-3]["dur"] = events[-2]["dur"] = 0.5
    events[-2]["ts"] = events[-3]["ts"]
    found = kineto_alignment(tmp_path, events)
    run = found.links.runs[found.links.run_of[places(found)[500_000]]]
    assert (run.layer, run.direction) == ("norm 1", "backward")


@given(
    st.integers(3, 9),
    st.lists(st.sampled_from("abcd"), min_size=2, max_size=6),
    st.lists(st.sampled_from("xyz"), max_size=5),
    st.lists(st.sampled_from("xyz"), max_size=5),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_blocks_are_in_order_and_apart(
    count: int, anchors: list[str], before: list[str], behind: list[str], glue: list[int]
) -> None:
    """Whatever the ops: blocks do not overlap, are within the ops, and of a clear repetition there is one for each."""
    names = [(name, "") for name in before]
    for _ in range(count):
        for at, name in enumerate(anchors):
            names += [(name, name), *[("+", "")] * glue[at]]
    names += [(name, name) for name in behind]
    ops = [
        ForwardOp(at, name, "attention" if anchor else "", None, ord(name), 10 * at, 10 * at + 9, 0, -1)
        for at, (name, anchor) in enumerate(names)
    ]
    found = find_blocks(ops)
    for one, other in pairwise(found):
        assert 0 <= one.first < one.end <= other.first < other.end <= len(ops)
    doubled = anchors + anchors
    is_primitive = all(doubled[shift:][: len(anchors)] != anchors for shift in range(1, len(anchors)))
    if is_primitive and len(set(anchors)) == len(anchors):
        assert len(found) in (count - 1, count)


# -- Steps of serving engines on made-up traces: what belongs to a step, kinds, and the time between steps.


EVERY, MARKED = 1000.0, 60.0
"""us from step to step, and of a mark."""
DECODE, PREFILL = "step[DECODE bs=8]", "step[EXTEND bs=2 toks=90]"


def engine_steps(marks: list[str], after: list[float], *, us: float = 10.0, around: str = "") -> list[Row]:
    """Steps with a mark and four kernels of ``us``. ``after``: when a kernel of 3 us is launched after its begin.

    ``around``: a range around each mark, from 20 us before it to 200 us after its begin.
    """
    made = []
    for number, mark in enumerate(marks):
        begin = EVERY * number
        made.append(row("user_annotation", mark, 7, 7, FIRST_US + begin, MARKED, External_id=100 + number))
        if around:
            made.append(row("user_annotation", around, 7, 7, FIRST_US + begin - 20, 220, External_id=500 + number))
        for place in range(4):
            key = 1000 + 10 * number + place
            made += launched(key, begin + 6 * place, us, "gemm", pid=7, wait=30 + place * us - 6 * place)
        for place, at in enumerate(after):
            made += launched(5000 + 10 * number + place, begin + at, 3.0, "sample", pid=7, wait=100)
    return made


def analysed(folder: Path, events: list[Row]) -> tuple[Iterations, Section, float | None]:
    (measures,) = mio2trace.analyse([kineto_file(folder, events)]).run.measures
    return measures.steady.told, of_profile(Subject(measures), "run"), idle_between(measures)


AFTER = {
    "sampling": ([65.0], 5),
    "sampling and a copy of its result": ([65.0, 100.0], 6),
    "after a pause that is longer than the mark": ([200.0], 4),
    "sampling, and another thing after a pause": ([65.0, 300.0], 5),
    "as much as a step, which is another one without a mark": ([65.0, 70.0, 75.0], 4),
}


@pytest.mark.parametrize("what", AFTER)
@pytest.mark.parametrize("mark", ["execute_context_0(0)_generation_8(8)", DECODE, "execute_new_0_cached_8"])
def test_what_an_engine_launches_behind_its_mark_is_of_the_step(mark: str, what: str, tmp_path: Path) -> None:
    after, kernels = AFTER[what]
    told, _, _ = analysed(tmp_path, engine_steps([mark] * 4, after))
    assert [one.kernels for one in told.all] == [kernels] * 4


def test_what_follows_the_last_mark_alone_is_no_part_of_its_step(tmp_path: Path) -> None:
    """It is the end of the program. The only mark of a file has nothing to compare it with; numbered steps end with
    their ranges."""
    events = [*engine_steps([DECODE] * 4, []), *launched(9000, 3 * EVERY + 65, 3.0, "end", pid=7, wait=100)]
    told, _, _ = analysed(tmp_path, events)
    assert [one.kernels for one in told.all] == [4] * 4
    for marks in ([DECODE], [f"ProfilerStep#{number}" for number in range(3, 7)]):
        told, _, _ = analysed(tmp_path, engine_steps(marks, [65.0]))
        assert [one.kernels for one in told.all] == [4] * len(marks)


def test_a_range_around_the_marks_of_a_batch_is_the_step(tmp_path: Path) -> None:
    """Also with what it launches before and behind the mark, and with all marks in it; it is no layer."""
    events = engine_steps([DECODE, PREFILL, DECODE, DECODE], [-10.0, 65.0, 170.0], around="scheduler.run_batch")
    told, section, _ = analysed(tmp_path, events)
    assert [one.kernels for one in told.all] == [7] * 4
    assert told.kinds == ("decode bs=8", "prefill bs=2")
    assert not any("run_batch" in layer.name for layer in section.layers)


@pytest.mark.parametrize(
    ("marks", "kind"),
    [
        (("step[DECODE bs=8]", "step[TARGET_VERIFY bs=8]", "step[DRAFT_EXTEND_V2 bs=8]"), "decode bs=8"),
        (("step[TARGET_VERIFY bs=8]", "step[DRAFT_EXTEND bs=8]"), "decode bs=8"),
        (("step[EXTEND bs=2 toks=90]", "step[DRAFT_EXTEND bs=2]"), "prefill bs=2"),
        (("step[TARGET_VERIFY bs=8]",), "verify bs=8"),
    ],
)
def test_speculative_decoding_is_one_step(marks: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    """All that a batch drafts and verifies."""
    events = [one for one in engine_steps([DECODE] * 3, [], around="scheduler.run_batch") if one["name"] != DECODE]
    for step in range(3):
        for place, mark in enumerate(marks):
            begin = FIRST_US + EVERY * step + 9 * place
            events.append(row("user_annotation", mark, 7, 7, begin, 8, External_id=900 + 10 * step + place))
    told, _, _ = analysed(tmp_path, events)
    assert told.kinds == (kind,)
    assert [one.kernels for one in told.all] == [4] * 3


@pytest.mark.parametrize("decodes", [0, 3])
def test_a_prefill_is_of_its_own_kind_also_as_the_first_or_only_step(decodes: int, tmp_path: Path) -> None:
    """It runs the kernels of the later steps, and more: a first iteration with set-up work would do the same."""
    events = [*engine_steps([PREFILL, *[DECODE] * decodes], []), *launched(9000, 50, 3.0, "more", pid=7, wait=60)]
    told, section, _ = analysed(tmp_path, events)
    assert told.kinds == ("prefill bs=2", "decode bs=8")[: 1 + bool(decodes)]
    assert not told.cold
    assert told.kinds[told.kind] in section.verdict


def test_many_kinds_are_summed_by_phase_and_the_time_between_steps_is_said(tmp_path: Path) -> None:
    """A step ends with its mark or its last kernel: 70 us after its begin. So 930 of each 1000 us are idle."""
    marks = [PREFILL, *(f"step[DECODE bs={batch}]" for batch in (9, 11, 10, 8, 9))]
    _, section, between = analysed(tmp_path, engine_steps(marks, []))
    assert between == pytest.approx(5 * 930 / (5 * 1000 + 70), rel=1e-6)
    assert text._steps(section) == (
        "idle between steps 91.7 %; decode, batch 8 to 11: 0.070 ms per step, 5 steps; "
        "prefill, batch 2: 0.070 ms per step, 1 step"
    )
    assert [(kind.batch, kind.steps) for kind in section.steps if kind.phase == "decode"] == [
        (9, 2), (8, 1), (10, 1), (11, 1)
    ]  # fmt: skip
    _, section, between = analysed(tmp_path, engine_steps([f"ProfilerStep#{number}" for number in range(3, 7)], []))
    assert between is None
    assert not section.between


def test_json_has_the_kinds_of_the_text(tmp_path: Path) -> None:
    """Each kind, the sums by phase, and the idle time between steps: the numbers of the line `steps`."""
    import jsonschema

    marks = [
        "step[EXTEND bs=2 toks=90]",
        "step[EXTEND bs=3 toks=110]",
        *(f"step[DECODE bs={batch}]" for batch in (9, 8, 9)),
    ]
    path = kineto_file(tmp_path, engine_steps(marks, []))
    document = json_of("report", path, "--format", "json")
    jsonschema.validate(document, orjson.loads((ROOT / "docs" / "report.schema.json").read_bytes()))
    (run,) = document["runs"]
    mean = {"step_ns": 70_000, "kernel_ns": 40_000, "kernels": 4.0}
    decode = {"phase": "decode", "tokens": None, **mean}
    prefill = {"phase": "prefill", "is_in_means": False, **mean}
    assert run["steps_by_kind"] == [
        {**decode, "name": "decode, batch 9", "batch": 9, "most_batch": 9, "steps": 2, "is_in_means": True},
        {**decode, "name": "decode, batch 8", "batch": 8, "most_batch": 8, "steps": 1, "is_in_means": False},
        {**prefill, "name": "prefill, batch 2", "batch": 2, "most_batch": 2, "steps": 1, "tokens": 90},
        {**prefill, "name": "prefill, batch 3", "batch": 3, "most_batch": 3, "steps": 1, "tokens": 110},
    ]
    assert run["steps_by_phase"] == [
        {**decode, "name": "decode, batch 8 to 9", "batch": 8, "most_batch": 9, "steps": 3, "is_in_means": True},
        {**prefill, "name": "prefill, batch 2 to 3", "batch": 2, "most_batch": 3, "steps": 2, "tokens": 200},
    ]
    assert run["idle_between_steps_percent"] == pytest.approx(100 * 4 * 930 / (4 * 1000 + 70), abs=0.001)
    said = " ".join(printed("report", path, "-q").split())
    for kind in run["steps_by_phase"]:
        assert f"{kind['name']}: 0.070 ms per step, {kind['steps']} steps" in said
    assert f"idle between steps {run['idle_between_steps_percent']:.1f} %" in said


def test_a_run_without_an_engine_has_no_kinds_in_json(tmp_path: Path) -> None:
    path = kineto_file(tmp_path, engine_steps([f"ProfilerStep#{number}" for number in range(3, 7)], []))
    (run,) = json_of("report", path, "--format", "json")["runs"]
    assert (run["steps_by_kind"], run["steps_by_phase"], run["idle_between_steps_percent"]) == ([], [], None)


OF_NUMBERS = (
    "step[EXTEND bs={0} toks={0}]", "execute_context_{0}(sq{0}sk1)_generation_{0}(sq{0})", "execute_new_{0}_cached_{0}",
    "execute_{0}_context_{0}(0)_generation_{0}(0)", "prefill[bs={0} tok={0} d=1]",
)  # fmt: skip
DIGITS = (12, 13, 18, 19, 40, 300)


@pytest.mark.parametrize(
    ("mark", "digits"),
    [(mark, digits) for at, mark in enumerate(OF_NUMBERS) for to, digits in enumerate(DIGITS) if (at + to) % 3 == 0],
)
def test_numbers_of_any_length_in_a_mark_are_no_fault(mark: str, digits: int, tmp_path: Path) -> None:
    """Larger than a whole number of JSON or SQL can be, by themselves or summed over the steps."""
    path = kineto_file(tmp_path, engine_steps([mark.format("9" * digits)] * 12, []))
    for command in (("report", "--format", "json"), ("report",), ("report", "--format", "html")):
        assert invoked(*command, str(path), "-q").exit_code == 0
    tokens = {kind["tokens"] for kind in json_of("report", path, "--format", "json")["runs"][0]["steps_by_kind"]}
    assert all(number is None or 100_000 * number < 1 << 63 for number in tokens)
