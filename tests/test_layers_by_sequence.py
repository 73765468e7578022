"""Layers of a profile without modules: ops with parameters by kind and position; each is of one module."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import mio2trace
from mio2trace.align import NONE, Alignment, align
from mio2trace.cli import cli
from mio2trace.notes import Notes
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, row, trace

SAMPLES = (
    "kineto_mi300x_resnet_train_ddp.json.gz", "kineto_mi300x_vit_infer.json.gz", "kineto_mi300_bert_small.json.gz",
    "kineto_mi300x_flux_graph_capture.json.gz", "graphs/sglang_prefilldecode.json.gz",
)  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", SAMPLES)
def test_with_modules_hidden_a_layer_is_of_one_module(name: str) -> None:
    """At least 95 % of the kernel time of these layers; none is sure and of two modules."""
    found = mio2trace.analyse([shared_folder() / "samples" / "rocm" / name]).run.alignment
    assert found is not None
    profile = found.profile
    ranges = tuple(
        replace(one, text="hidden") if one.text.startswith("nn.Module: ") else one for one in profile.ranges
    )  # fmt: skip
    hidden = align(replace(profile, ranges=ranges), (), Notes())
    time: dict[str, Counter[str]] = defaultdict(Counter)
    sure: dict[str, set[str]] = defaultdict(set)
    for position, activity in enumerate(profile.activities):
        if activity.kind != "kernel" or hidden.links.layer_by[position] != "sequence":
            continue
        assert activity.start_ns is not None
        assert activity.end_ns is not None
        layer = hidden.links.runs[hidden.links.run_of[position]].layer
        run = found.links.run_of[position]
        module = found.links.runs[run].layer if run != NONE else ""
        time[layer][module] += activity.end_ns - activity.start_ns
        if position not in hidden.links.layer_unsure:
            sure[layer].add(module)
    whole = sum(one.total() for one in time.values())
    assert whole
    assert sum(max(one.values()) for one in time.values()) >= 0.95 * whole
    assert all(len(modules) == 1 for modules in sure.values())
    assert not any(word == "sequence" for word in found.links.layer_by)


CONV = "aten::conv2d", "aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]]
LINEAR = "aten::linear", "aten::addmm", [[1, 4], [4, 2]]
WIDE = "aten::linear", "aten::addmm", [[1, 4], [4, 9]]
Op = tuple[str, str, list[list[int]]]
Called = tuple[str, str, list[list[int]], int, str | int]


def step(ops: list[Op], first: float, key: int, mark: str = "") -> list[Row]:
    """Forward ops, each of one kernel, then those of the backward pass in reverse."""
    made = [row("user_annotation", mark, 7, 7, first, 900, External_id=key + 900)] if mark else []
    forward: list[Called] = [(name, inner, dims, key + at, "forward") for at, (name, inner, dims) in enumerate(ops, 1)]
    backward: list[Called] = []
    for at_op, (name, inner, dims) in enumerate(ops, 1):
        backward.insert(0, (name, inner, dims, key + 50 + at_op, at_op))
    at = first
    for name, inner, dims, own, way in (*forward, *backward):
        at += 20
        if isinstance(way, str):
            outer, called, sequence = name, inner, own
        else:
            outer, called, sequence = "autograd::engine::evaluate_function: X", name, key + way
        made += [
            row("cpu_op", outer, 7, 7, at, 15, External_id=own + 500, Input_Dims=dims, Sequence_number=sequence),
            row("cpu_op", called, 7, 7, at + 2, 10, External_id=own, Input_Dims=dims),
            row("cuda_runtime", "hipLaunchKernel", 7, 7, at + 4, 1, External_id=own, correlation=own),
            row("kernel", "work", 2, 0, at + 8, 5, device=2, stream=0, correlation=own),
        ]
    return made


def told(folder: Path, events: list[Row]) -> list[tuple[str, str | None, int | None, bool]]:
    """(layer, direction, iteration, whether sure) of each kernel."""
    path = folder / "made.json"
    path.write_bytes(trace(events))
    found = mio2trace.analyse([path]).run.alignment
    assert found is not None
    return [layer_at(found, position) for position in range(len(found.profile.activities))]


def layer_at(found: Alignment, position: int) -> tuple[str, str | None, int | None, bool]:
    links = found.links
    assert links.layer_by[position] == "sequence"
    run = links.runs[links.run_of[position]]
    return run.layer, run.direction, links.iteration_of(position), position not in links.layer_unsure


@pytest.mark.parametrize("marks", [("", ""), ("ProfilerStep#4", "ProfilerStep#5")])
def test_kinds_are_counted_in_each_step(tmp_path: Path, marks: tuple[str, str]) -> None:
    """Marked or repeated; the backward pass in the layers of its forward ops, though it calls such ops itself."""
    ops = [CONV, LINEAR, CONV, WIDE]
    events = [*step(ops, FIRST_US, 100, marks[0]), *step(ops, FIRST_US + 1000, 300, marks[1])]
    names = ["conv 1", "linear 1", "conv 2", "linear 2"]
    first = 4 if marks[0] else 1
    assert told(tmp_path, events) == [
        (name, way, first + number, True)
        for number in (0, 1)
        for way, order in (("forward", names), ("backward", names[::-1]))
        for name in order
    ]


def test_a_step_of_other_ops_is_a_guess(tmp_path: Path) -> None:
    """Its positions may be others: two steps agree, the third has an op less."""
    ops = [CONV, LINEAR, WIDE]
    events = [
        *step(ops, FIRST_US, 100, "ProfilerStep#1"), *step(ops, FIRST_US + 1000, 300, "ProfilerStep#2"),
        *step([CONV, WIDE], FIRST_US + 2000, 600, "ProfilerStep#3"),
    ]  # fmt: skip
    found = told(tmp_path, events)
    assert {iteration for _, _, iteration, sure in found if sure} == {1, 2}
    assert {iteration for _, _, iteration, sure in found if not sure} == {3}


def test_modules_are_better(tmp_path: Path) -> None:
    """Where one is recorded, nothing is named by its position; without the evidence neither."""
    events = step([CONV, LINEAR], FIRST_US, 100)
    module = row("python_function", "nn.Module: Conv2d_0", 7, 7, FIRST_US + 15, 30, Python_id=1)
    for made, options in (
        ([module, *events], mio2trace.AnalysisOptions()),
        (events, mio2trace.AnalysisOptions(without=frozenset(("sequence",)))),
    ):
        path = tmp_path / "made.json"
        path.write_bytes(trace(made))
        found = mio2trace.analyse([path], options).run.alignment
        assert found is not None
        assert "sequence" not in found.links.layer_by


@pytest.mark.shared
@pytest.mark.parametrize("name", ["kineto_mi300x_vit_infer.json.gz", "kineto_mi300_resnet50_ddp4_rank0.json.gz"])
def test_classes_are_the_sums_of_their_layers(name: str) -> None:
    """By the layer's name without its number, and the direction: time, kernels, number of layers."""
    path = str(shared_folder() / "samples" / "rocm" / name)
    tables = []
    for by in ("layer", "class"):
        result = CliRunner().invoke(cli, ["layers", path, "--by", by, "--format", "json", "-q"])
        tables.append([one for one in json.loads(result.stdout) if "kernels" in one])
    layers, classes = tables
    sums: dict[tuple[str, str | None], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for one in layers:
        if one["layer"] in ("in no layer", "total"):
            continue
        key = re.sub(r"[_ ][0-9]+$", "", one["layer"]), one.get("direction")
        if one["kernels"]:
            sums[key] = [a + b for a, b in zip(sums[key], (one["kernel_ns"], one["kernels"], 1), strict=True)]
    found = {
        (one["class"], one.get("direction")): [one["kernel_ns"], one["kernels"], one["layers"]]
        for one in classes
        if one["class"] not in ("in no layer", "total") and one["kernels"]
    }
    assert set(found) == set(sums)
    for key, cells in found.items():
        assert cells[:2] == pytest.approx(sums[key][:2])
        assert cells[2] >= sums[key][2]
