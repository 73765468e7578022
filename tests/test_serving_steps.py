"""Steps of serving engines: phase, batch and tokens as their marks say, means by kind, and no step is a layer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import mio2trace
from mio2trace.answer import text
from mio2trace.measures.step_time import StepKind, step_kinds
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, row, trace

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
    path = folder / "served.json"
    path.write_bytes(trace(events))
    run = mio2trace.analyse([path]).run
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
