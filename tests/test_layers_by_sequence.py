"""Layers of a profile without modules: ops with parameters by kind and position; each is of one module."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.align import Alignment
from mio2trace.cli import cli
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, row, trace

SAMPLES = {
    "kineto_mi300x_resnet_train_ddp.json.gz": "",
    "kineto_mi300x_vit_infer.json.gz": "",
    "kineto_mi300_vit_nsfw.json.gz": "",
    "kineto_mi300_bert_small.json.gz": "",
    "kineto_mi300x_flux_graph_capture.json.gz": "graphs/flux_graph_capture.truth.json.gz",
    "graphs/sglang_prefilldecode.json.gz": "",
}
"""With modules; to those with graphs the truth of what was captured."""
BACKWARD = "autograd::engine::evaluate_function: "
Modules = tuple[str, tuple[object, ...]]
"""The direction of a kernel's launch, and the calls of modules around it or around its forward op, outermost first."""


def unpacked(name: str) -> Any:
    return json.loads(gzip.decompress((shared_folder() / "samples" / "rocm" / name).read_bytes()))


def around(rows: list[tuple[float, float, Any]], at: float) -> tuple[Any, ...]:
    return tuple(what for start, end, what in rows if start <= at < end)


def modules_of(events: list[Any], kernels: list[Any], truth: str) -> list[Modules]:
    """By hand: modules open at the launch on its thread; of a gradient those of the last op with its number; of a
    graph's kernel those of the truth."""
    modules: dict[int, list[tuple[float, float, Any]]] = defaultdict(list)
    gradients: dict[int, list[tuple[float, float, Any]]] = defaultdict(list)
    numbered: dict[int, list[tuple[float, int]]] = defaultdict(list)
    calls: dict[int, tuple[int, float]] = {}
    for number, event in enumerate(events):
        kind, name, own = event.get("cat"), event["name"], event.get("args", {})
        span = event["ts"], event["ts"] + event["dur"]
        if kind == "python_function" and name.startswith("nn.Module: "):
            modules[event["tid"]].append((*span, number))
        elif kind == "cpu_op" and "Sequence number" in own:
            if name.startswith(BACKWARD):
                gradients[event["tid"]].append((*span, own["Sequence number"]))
            elif "Backward" not in name:
                numbered[own["Sequence number"]].append((event["ts"], event["tid"]))
        elif kind in ("cuda_runtime", "cuda_driver") and "correlation" in own:
            calls[own["correlation"]] = event["tid"], event["ts"]
    for rows in modules.values():
        rows.sort()
    captured: dict[int, Iterator[list[str]]] = {}
    for replay in unpacked(truth)["replays"] if truth else ():
        nodes = unpacked(truth)["captures"][replay["capture"]]["nodes"]
        places = range(replay["kernels"]) if replay["map"] == "identity" else replay["map"]
        captured[replay["correlation"]] = iter([nodes[place]["modules"] for place in places])
    found: list[Modules] = []
    for kernel in kernels:
        correlation = kernel["args"]["correlation"]
        if correlation in captured:
            found.append(("forward", tuple(next(captured[correlation]))))
            continue
        thread, at = calls.get(correlation, (0, -1.0))
        held = around(modules[thread], at)
        of = around(gradients[thread], at)
        if not held and of:
            begun, thread = max((one for one in numbered[of[-1]] if one[0] < at), default=(-1.0, 0))
            held = around(modules[thread], begun)
            found.append(("backward", held) if held else ("", ()))
            continue
        found.append(("forward", held) if held else ("", ()))
    return found


@pytest.mark.shared
@pytest.mark.parametrize("name", SAMPLES)
def test_with_modules_hidden_a_layer_is_of_one_module(name: str, tmp_path: Path) -> None:
    """At least 95 % of the modules' kernel time is in a layer whose ops are those of one module; none is sure and of
    two. Of a layer without blocks within it all kernels have one innermost module; a block has, with its layers, the
    kernels of one call of a module, no more and no fewer, unless no finer module is recorded (compiled regions)."""
    trace_of = unpacked(name)
    events = [event for event in trace_of["traceEvents"] if event.get("ph") == "X"]
    kernels = sorted(
        (event for event in events if event.get("cat") == "kernel"),
        key=lambda event: (event["ts"], event["args"]["stream"]),
    )
    of = modules_of(events, kernels, SAMPLES[name])
    trace_of["traceEvents"] = [one for one in trace_of["traceEvents"] if one.get("cat") != "python_function"]
    path = tmp_path / "hidden.json"
    path.write_text(json.dumps(trace_of))
    found = mio2trace.analyse([path]).run.alignment
    assert found is not None
    links = found.links
    positions = [at for at, one in enumerate(found.profile.activities) if one.kind == "kernel"]
    positions.sort(key=lambda at: found.profile.activities[at].start_ns or 0)
    assert [found.profile.activities[at].name for at in positions] == [kernel["name"] for kernel in kernels]
    held: dict[int, set[int]] = defaultdict(set)
    for number, position in enumerate(positions):
        if links.layer_by[position] in ("sequence", "capture"):
            held[links.run_of[position]].add(number)
    whole = {run: set(numbers) for run, numbers in held.items()}
    within = {layer.layer: layer.within for layer in found.net.layers if layer.within}
    blocks = {(links.runs[run].layer, links.runs[run].direction): run for run in held}
    assert len(blocks) == len(held) or not within  # a block is one execution, as these samples have one step
    for run, numbers in held.items():
        made = links.runs[run]
        if made.layer in within and (within[made.layer], made.direction) in blocks:
            whole[blocks[within[made.layer], made.direction]] |= numbers
    of_call: dict[tuple[str, object], set[int]] = defaultdict(set)
    for number, (way, calls) in enumerate(of):
        for call in calls:
            of_call[way, call].add(number)
    right = set()
    for run, numbers in held.items():
        ways = {(of[number][0], of[number][1][-1:]) for number in numbers}
        way, calls = of[min(numbers)]
        is_block = links.runs[run].layer in within.values()
        is_finest = not is_block or (calls and isinstance(calls[-1], str))  # the truth of graphs has names, not calls
        is_whole = any(of_call[way, call] == whole[run] for call in calls)
        if is_whole or (len(ways) == 1 and calls and is_finest):
            right |= numbers
        else:
            assert all(positions[number] in links.layer_unsure for number in numbers), links.runs[run]

    def time(numbers: Iterable[int]) -> float:
        return sum(float(kernels[number]["dur"]) for number in numbers)

    all_of_modules = {number for number, (_, calls) in enumerate(of) if calls}
    covered = all_of_modules & set().union(*held.values())
    share = time(right & all_of_modules) / time(all_of_modules)
    print(f"{name}: in layers by sequence {time(covered) / time(all_of_modules):.1%}, of one module {share:.1%}")
    assert share >= 0.95


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


ALIKE: Op = "aten::linear", "aten::addmm", []
CONVOLVED: Op = "aten::conv2d", "aten::convolution", []
NORMED: Op = "aten::batch_norm", "aten::native_batch_norm", []
POOLED: Op = "aten::max_pool2d", "aten::max_pool2d_with_indices", []


@pytest.mark.parametrize(
    ("ops", "is_trained"),
    [([ALIKE] * 3, True), ([CONVOLVED, NORMED] * 3, True), ([CONVOLVED, NORMED] * 3 + [POOLED], False)],
)
def test_layers_that_are_alike_are_no_steps(tmp_path: Path, ops: list[Op], is_trained: bool) -> None:
    """Without shapes and marks, ops that repeat within a step are told from steps by what else runs in each step."""
    events = []
    for number in range(4):
        rows = step(ops, FIRST_US + 1000 * number, 100 + 200 * number)
        events += rows if is_trained else rows[: 4 * len(ops)]
    found = told(tmp_path, events[: -4 if is_trained else None])  # the last step may lack its end
    assert [iteration for _, direction, iteration, _ in found if direction == "forward"] == [
        number for number in range(1, 5) for _ in ops
    ]
    assert len({layer for layer, _, _, _ in found}) == len(ops)


def test_two_layers_that_are_alike_are_one_forward_pass(tmp_path: Path) -> None:
    """Without shapes, a linear layer, an activation and a linear layer are no two steps, the second without its end."""
    relu: Op = "aten::relu", "aten::clamp_min", []
    found = told(tmp_path, step([ALIKE, relu, ALIKE], FIRST_US, 100)[:12])
    assert [(layer, iteration) for layer, _, iteration, _ in found] == [("linear 1", 1), ("relu 1", 1), ("linear 2", 1)]


def test_an_only_step_holds_and_awaits_what_follows_its_layers(tmp_path: Path) -> None:
    """An all-reduce behind the last layer, on another stream and longer than the main one."""
    relu: Op = "aten::relu", "aten::clamp_min", []
    events = [
        *step([ALIKE, relu, ALIKE], FIRST_US, 100)[:12],
        row("cuda_runtime", "hipLaunchKernel", 7, 7, FIRST_US + 90, 1, correlation=199),
        row("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2, 5, FIRST_US + 92, 400, device=2, stream=5,
            correlation=199),
    ]  # fmt: skip
    path = tmp_path / "made.json"
    path.write_bytes(trace(events))
    (measures,) = mio2trace.analyse([path]).run.measures
    (spent,) = measures.steady.told.all
    assert spent.kernel_ns == 415_000
    assert spent.step_ns == 492_000 - 24_000


@pytest.mark.parametrize("is_trained", [True, False])
def test_an_unmarked_step_of_training_lasts_until_the_next(tmp_path: Path, is_trained: bool) -> None:
    """The loop loads its data in between. An unmarked forward pass may answer a request: the time until the next one
    is in no step."""
    events = []
    for number in range(4):
        rows = step([ALIKE] * 3, FIRST_US + 1000 * number, 100 + 200 * number)
        events += (
            rows if is_trained else [*rows[:12], *step([POOLED], FIRST_US + 1000 * number + 100, 1000 + number)[:4]]
        )
    path = tmp_path / "made.json"
    path.write_bytes(trace(events))
    (measures,) = mio2trace.analyse([path]).run.measures
    lengths = [one.step_ns or 0 for one in measures.steady.told.all]
    assert [length // 1000 for length in lengths[:3]] == [1000 if is_trained else lengths[3] // 1000] * 3
    assert lengths[3] < 200_000


SCALED: Op = "aten::mul", "aten::mul", []


@pytest.mark.parametrize("is_each", [True, False])
def test_ranges_around_unmarked_steps_leave_nothing_out(tmp_path: Path, is_each: bool) -> None:
    """A range around one step begins it, and holds what other threads launch. Of one around all, each part is in the
    step that launched it; such steps begin with the first layer."""
    events = []
    for number in range(2):
        first, key = FIRST_US + 1000 * number, 100 + 200 * number
        events += step([SCALED, CONV, LINEAR], first, key, f"train {'ab'[number]}" if is_each else "")
        events += [
            row("cuda_runtime", "hipLaunchKernel", 7, 8, first + 890, 1, correlation=key + 99),
            row("kernel", "sum", 2, 0, first + 895, 5, device=2, stream=0, correlation=key + 99),
        ]
    if not is_each:
        events = [
            row("user_annotation", "train", 7, 7, FIRST_US, 3000, External_id=1),
            *(one for one in events if one["name"] != "sum" and one["tid"] != 8),
        ]
    path = tmp_path / "made.json"
    path.write_bytes(trace(events))
    found = mio2trace.analyse([path]).run.alignment
    assert found is not None
    iterations = [found.links.iteration_of(position) for position in range(len(found.profile.activities))]
    assert iterations == ([1] * 7 + [2] * 7 if is_each else [None, *[1] * 6, *[2] * 5])


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
