"""Layers by the order of their calls, where neither times nor lines bound them."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

import mio2trace
from benchmarks.damage import loaded
from benchmarks.damage_score import tallies
from benchmarks.damages.run import ENQUEUE, with_calls
from benchmarks.damages.sets import HANDLES
from mio2trace import analyse
from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import chances_between
from mio2trace.align.layers.calls import _Layers
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.rates import WHOLE
from mio2trace.answer import report_of
from mio2trace.evidence import BUFFERS
from mio2trace.model.log import FrameworkLog, LogEvent
from mio2trace.model.profile import Activity
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation
from tests.commands import json_of
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, kineto_alignment, kineto_file, launched, row
from tests.often import present, saved
from tests.records import made_operation, opencl_profile

NET = {
    "conv1": (
        "conv -n 2 -c 1 -H 28 -W 28 -k 20 -y 5 -x 5 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1", "Conv",
    ),
    "relu1": ("activ -n 2 -c 20 -H 24 -W 24 -m 3 --forw 1 -A 1 -B 1 -G 1", "Activ"),
    "pool1": ("pool -M 0 -n 2 -c 20 -H 24 -W 24 -y 2 -x 2 -p 0 -q 0 -v 2 -u 2 -m max -F 1 -t 1", "Pooling"),
    "drop1": ("", ""),
    "conv2": (
        "conv -n 2 -c 20 -H 12 -W 12 -k 50 -y 5 -x 5 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1", "Conv",
    ),
    "prob": ("softmax -n 2 -c 50 -H 8 -W 8 -F 1 -a 1 -m 1 -A 1.000000 -B 0.000000", "Softmax"),
}  # fmt: skip
OWN = ("lrn -A 0.0001 -B 0.75 -F 1 -H 23 -K 1 -N 5 -W 23 -c 16 -m 1 -n 1", "LRN")
KERNELS = {
    "LRN": "MIOpenLRNAcrossChannels4",
    "Conv": "MIOpenConvUni", "Activ": "MIOpenActiveFwdLite", "Pooling": "mloPoolingG", "Softmax": "SoftmaxForward",
}  # fmt: skip


GRIDS = {"Activ": 2 * 20 * 24 * 24 // 4, "Pooling": 2 * 20 * 12 * 12}
"""Work-items of kernels that have them by their tensors."""


def run_of(folder: Path, iterations: int, lost: tuple[int, ...] = ()) -> list[str]:
    """A log of commands without layer times, and a profile of names and times on a clock of its own; of the iterations
    in ``lost`` the log has no line that ends them. An own call comes before the benchmark and one behind it."""
    stamp = "I1120 11:39:13.866638   742 caffe.cpp:388] "
    log = [f"{stamp}Setting up {layer}" for layer in NET]
    profile = ['"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","BeginNs","EndNs"']

    def call(command: str, kind: str) -> None:
        log.append(f"MIOpen(HIP): Command [LogCmd{kind}] ./bin/MIOpenDriver {command}")
        at = 1_000_000 + 1000 * len(profile)
        profile.append(f'{len(profile) - 1},"{KERNELS[kind]}.kd",0,0,742,742,{GRIDS.get(kind, 256)},64,{at},{at + 500}')

    call(*OWN)
    log += [f"{stamp}*** Benchmark begins ***", f"{stamp}Testing for {iterations} iterations."]
    for number in range(1, iterations + 1):
        for command, kind in NET.values():
            if command:
                call(command, kind)
        if number not in lost:
            log.append(f"{stamp}Iteration: {number} forward-backward time: 1.5 ms.")
    log.append(f"{stamp}Average time per layer:")
    call(*OWN)
    paths = [str(folder / name) for name in ("run.log", "prof.csv")]
    for path, lines in zip(paths, (log, profile), strict=True):
        Path(path).write_text("\n".join([*lines, ""]))
    return paths


def told_of(paths: list[str]) -> list[tuple[int | None, str]]:
    """Of each kernel in a layer the iteration and layer that it is said to be of."""
    links = analyse(paths).run.alignments[0].links
    placed = [place for place, run in enumerate(links.run_of) if run != NONE]
    assert all(links.layer_confidence[place] < 1 for place in placed)  # as their operations at most
    return [(links.iteration_of(place), links.runs[links.run_of[place]].layer) for place in placed]


def whole(iterations: int) -> list[tuple[int | None, str]]:
    layers = [layer for layer, (command, _) in NET.items() if command]
    return [(number, layer) for number in range(1, iterations + 1) for layer in layers]


@pytest.mark.parametrize("lost", [(), (2,), (3,), (1, 2)])
def test_lines_of_iterations_and_the_nets_order_tell_the_layers(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Without any layer's time; a line that was lost leaves the passes before it countable. In doubt: nothing but the
    order tells."""
    assert told_of(run_of(tmp_path, 3, lost)) == whole(3)


LINES_BEFORE = len(NET) + 3  # the first iteration's
LINES_EACH = 6


def cut_run(folder: Path, *kept: slice) -> list[str]:
    """A run of five iterations of whose log only some lines are left."""
    paths = run_of(folder, 5)
    log = Path(paths[0]).read_text().splitlines(keepends=True)
    Path(paths[0]).write_text("".join(line for part in kept for line in log[part]))
    return paths


@pytest.mark.parametrize(
    "kept",
    [
        *[[slice(LINES_BEFORE + lines)] for lines in (5, 6, 7, 12, 13)],
        [slice(len(NET)), slice(LINES_BEFORE + 2 * LINES_EACH, None)],
    ],
)
def test_iterations_outside_of_the_log_are_those_that_come_again(tmp_path: Path, kept: list[slice]) -> None:
    """A log that was cut in an iteration, or between two: the profile's other iterations repeat the known one. One that
    has the net and what follows iteration 2: they are counted back; what is before the first iteration is in none."""
    assert told_of(cut_run(tmp_path, *kept)) == whole(5)


def test_a_kernel_that_was_lost_ends_the_count(tmp_path: Path) -> None:
    """Behind an iteration that is not as the known one, which iteration is which is not known."""
    paths = cut_run(tmp_path, slice(LINES_BEFORE + 2 * LINES_EACH))
    profile = Path(paths[1]).read_text().splitlines(keepends=True)
    del profile[2 + 5 * 3 + 2]  # of iteration 4
    Path(paths[1]).write_text("".join(profile))
    assert told_of(paths) == whole(3)


def test_a_search_behind_the_lost_line_of_its_layer_is_not_the_layers_before_it() -> None:
    """Each convolution searches while it is set up, and then an activation is set up. Where the line of a convolution
    is lost its search stands behind that of an activation, which searches nothing."""
    names = [f"{kind}{number}" for number in range(12) for kind in ("conv", "relu")]
    shapes = {name: (1, 8 + at // 2 % 3, 4, 4) for at, name in enumerate(names)}
    events: list[LogEvent] = []
    calls: list[Operation] = []
    for line, name in enumerate(names, 1):
        if name != "conv7":
            events.append(LogEvent(source=0, line=10 * line, kind="setting up", text=name))
        if name.startswith("conv"):
            posed = {"input": (1, 3, 4, 4), "weights": (shapes[name][1], 3, 1, 1), "output": shapes[name]}
            for phase, at in (("find", 10 * line + 5), ("run", 1000 + line)):
                calls.append(
                    made_operation(
                        index=len(calls), source=0, line=at, api="miopenConvolution", primitive="conv",
                        direction="forward", phase=phase, **posed,
                    )
                )  # fmt: skip
    layers = tuple(NetLayerSpec(index=index, layer=name) for index, name in enumerate(names))
    log = FrameworkLog(source=0, events=tuple(events))
    run = Attribution(opencl_profile(source=1), Notes(), logs=[log], operations=calls, net=Net(layers=layers))
    executing = [call for call in calls if call.phase == "run"]
    found = _Layers(run, log, calls).of(executing, 1, (True, True))
    assert [one and one.slot.layer and one.slot.layer.layer for one in found] == names[::2]


@pytest.mark.shared
def test_what_a_graph_replays_is_in_the_layers_of_what_it_captured() -> None:
    """Ten iterations of which nine are replayed: the log's calls are those of the first."""
    folder = shared_folder() / "samples" / "rocm-twins" / "alexnet-10it-graph"
    truth = orjson.loads((folder / "truth.json").read_bytes())
    layer_of = {kernel["dispatch_id"]: kernel["layer"] for kernel in truth["kernels"]}
    links = analyse([folder / "run.log", *folder.glob("rocpd/*")]).run.alignments[0].links
    told = Counter(
        (truth["layers"][number]["name"], f"iter{(links.iteration_of(place) or 0) - 1} {run.direction} {run.layer}")
        for place, activity in enumerate(links.activities)
        if activity.kind == "kernel" and links.run_of[place] != NONE
        for number, run in [(layer_of[activity.number], links.runs[links.run_of[place]])]
    )
    assert sum(told.values()) == 290
    assert all(true == said for true, said in told)


# -- How probable links to layers are said to be where times are coarse or nothing but calls tells.


@dataclass
class Call:
    """Of an operation, what places it in the log."""

    index: int
    line: int


def linked(calls: list[int], queues: list[int]) -> Links:
    """Links of kernels to the calls of these numbers, each call on the line of ten times its number; -1: to none."""
    activities = [Activity(number=place, kind="kernel", name="k", queue=queue) for place, queue in enumerate(queues)]
    links = Links(activities, [Call(number, 10 * number) for number in range(1 + max(calls))])  # type: ignore[misc]
    for position, number in enumerate(calls):
        if number != NONE:
            links.give_operation([position], number, BUFFERS)
    return links


def is_no_gemm(call: dict[str, Any]) -> bool:
    return "gemm" not in call["name"]


def is_long(call: dict[str, Any]) -> bool:
    """At least half a millisecond."""
    return bool(call["profiling"]["end"] - call["profiling"]["start"] >= 500_000)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "is_kept", "links", "right"),
    [
        ("alexnet-b1-fwd-nomarks", is_no_gemm, 0.8, 0),
        ("squeezenet11-b1-fwd-tz", is_no_gemm, 0.8, 0),
        ("alexnet-b1-fwd-nomarks", is_long, 0, 0.98),
        ("alexnet-b1-train", is_long, 0, 0.98),
        ("squeezenet11-b1-fwd-tz", is_long, 0, 0.98),
    ],
)
def test_what_was_written_for_kernels_that_a_tool_left_out_is_not_surely_another_layers(
    name: str, is_kept: Callable[[dict[str, Any]], bool], links: float, right: float, tmp_path: Path
) -> None:
    """Without GEMMs what a convolution wrote for them lies before the next layer's kernel; before a ReLU's, which has
    no parameters, lie the weights of the layer before."""
    run = loaded(shared_folder())[HANDLES][name]
    changed = with_calls(run, [call["call"] != ENQUEUE or is_kept(call) for call in run.profile])
    _, layers = tallies(changed, analyse(changed.write(tmp_path)))
    assert layers.links > links * layers.kernels
    assert layers.right > right * layers.kernels
    assert layers.wrong_and_sure == 0


@pytest.mark.parametrize(
    ("calls", "queues", "lines", "chances"),
    [
        # Three layers printed a line between the calls: of one of four; where none did, of theirs.
        ([1, NONE, 5, NONE, NONE, 5], [0] * 6, [11, 22, 33, 77], {1: WHOLE / 4, 3: WHOLE, 4: WHOLE}),
        ([NONE, 1, 2, NONE], [0] * 4, [11], {0: 0.0, 3: 0.0}),  # before a queue's first call, and behind its last one
        ([1, NONE, 2], [0, 1, 0], [11], {1: 0.0}),  # another queue's calls bound nothing
    ],
)
def test_between_two_calls_each_layer_is_as_likely(
    calls: list[int], queues: list[int], lines: list[int], chances: dict[int, float]
) -> None:
    found = chances_between(linked(calls, queues), lines)
    assert found == chances
    assert max(found.values()) < SURE


# -- Layers of a profile without modules: ops with parameters by kind and position; each is of one module.


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
    found = present(mio2trace.analyse([saved(tmp_path / "hidden.json", json.dumps(trace_of))]).run.alignment)
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


def step(ops: list[Op], first: float, key: int, mark: str = "") -> list[Row]:
    """Forward ops, each of one kernel, then those of the backward pass in reverse."""
    made = [row("user_annotation", mark, 7, 7, first, 900, External_id=key + 900)] if mark else []
    count = len(ops)
    for place, number in enumerate([*range(1, count + 1), *range(count, 0, -1)]):
        name, inner, dims = ops[number - 1]
        at = first + 20 * (place + 1)
        outer, called, own = name, inner, key + number
        if place >= count:
            outer, called, own = f"{BACKWARD}X", name, key + 50 + number
        made += [
            row("cpu_op", outer, 7, 7, at, 15, External_id=own + 500, Input_Dims=dims, Sequence_number=key + number),
            row("cpu_op", called, 7, 7, at + 2, 10, External_id=own, Input_Dims=dims),
            row("cuda_runtime", "hipLaunchKernel", 7, 7, at + 4, 1, External_id=own, correlation=own),
            row("kernel", "work", 2, 0, at + 8, 5, device=2, stream=0, correlation=own),
        ]
    return made


def told(folder: Path, events: list[Row]) -> list[tuple[str, str | None, int | None, bool]]:
    """(layer, direction, iteration, whether sure) of each kernel, all of which are told by sequence."""
    links = kineto_alignment(folder, events).links
    assert set(links.layer_by) == {"sequence"}
    runs = [links.runs[number] for number in links.run_of]
    return [
        (run.layer, run.direction, links.iteration_of(at), at not in links.layer_unsure) for at, run in enumerate(runs)
    ]


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
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    (spent,) = measures.steady.told.all
    assert spent.kernel_ns == 415_000
    assert spent.step_ns == 492_000 - 24_000


@pytest.mark.parametrize("is_trained", [True, False])
def test_an_unmarked_step_of_training_lasts_until_the_next(tmp_path: Path, is_trained: bool) -> None:
    """The loop loads its data in between, but not behind the last step, which is in no mean. An unmarked forward pass
    may answer a request: the time until the next one is in no step."""
    events = []
    for number in range(4):
        rows = step([ALIKE] * 3, FIRST_US + 1000 * number, 100 + 200 * number)
        events += (
            rows if is_trained else [*rows[:12], *step([POOLED], FIRST_US + 1000 * number + 100, 1000 + number)[:4]]
        )
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    lengths = [one.step_ns or 0 for one in measures.steady.told.all]
    assert [length // 1000 for length in lengths[:3]] == [1000 if is_trained else lengths[3] // 1000] * 3
    assert lengths[3] < 200_000
    assert measures.steady.told.steady == ((1, 2, 3) if is_trained else (1, 2, 3, 4))


def test_two_optimizers_in_a_row_end_one_step(tmp_path: Path) -> None:
    events = []
    for number in range(3):
        at = 1000 * number
        events += launched(10 * number, at + 50, 300, "forward", pid=7, call="hipGraphLaunch")
        for part in (1, 2):
            begun = at + 300 + 100 * part
            events.append(row("user_annotation", "Optimizer.step#Adam.step", 7, 7, FIRST_US + begun, 60))
            events += launched(10 * number + part, begun + 10, 20, "adam", pid=7)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    assert [one.kernel_ns for one in measures.steady.told.all] == [340_000] * 3


def test_what_a_training_launches_behind_its_layers_is_in_the_step(tmp_path: Path) -> None:
    """An optimizer that nothing names, between the backward pass and the next forward pass."""
    events = []
    for number in range(3):
        at = 1000 * number
        events += step([CONV, LINEAR], FIRST_US + at, 100 + 200 * number)
        events += launched(5000 + number, at + 500, 30, "adam", pid=7)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    assert [(one.kernels, one.kernel_ns) for one in measures.steady.told.all] == [(5, 50_000)] * 3


@pytest.mark.parametrize("evaluated", [0, 2])
def test_optimizers_end_steps_that_differ(evaluated: int, tmp_path: Path) -> None:
    """Each batch has a length of its own, or forward passes of an evaluation follow."""
    events = []
    for number in range(4 + evaluated):
        at = 1000 * number
        ops: list[Op] = [("aten::linear", "aten::addmm", [[1 if evaluated else number, 4], [4, 2]]), WIDE]
        rows = step(ops, FIRST_US + at, 100 + 200 * number)
        events += rows[: 8 if number >= 4 else None]
        if number < 4:
            events.append(row("user_annotation", "Optimizer.step#SGD.step", 7, 7, FIRST_US + at + 600, 50))
            events += launched(5000 + number, at + 610, 30, "sgd", pid=7)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    told = measures.steady.told
    assert [one.kernels for one in told.all] == [5] * 4 + [4] * (evaluated > 0)
    assert [one.step_ns for one in told.all[:3]] == [1_000_000] * 3


@pytest.mark.parametrize("is_region", [True, False])
def test_compiled_forward_passes_of_products_alone_are_steps(is_region: bool, tmp_path: Path) -> None:
    """They are blocks of two products. A region shows where a pass begins; a product outside of one is in no layer."""
    wide, narrow, last = (("aten::mm", "aten::mm", [[4, 4], [4, width]]) for width in (8, 4, 9))
    ops: list[Op] = [*[wide, narrow] * 3, *[last] * is_region]
    events = [row for at in range(4) for row in step(ops, FIRST_US + 1000 * at, 100 + 200 * at)[: 4 * len(ops)]]
    if is_region:
        events += [row("cpu_op", "Torch-Compiled Region: 0/0", 7, 7, FIRST_US + 1000 * at, 139) for at in range(4)]
    analysis = mio2trace.analyse([kineto_file(tmp_path, events)])
    found = [(one.kernels, one.step_ns) for one in analysis.run.measures[0].steady.told.all]
    assert found == ([(6, 109_000)] * 4 if is_region else [(24, 3_109_000)])
    (section,) = report_of(analysis, analysis.runs).sections
    assert ("(4 iterations; 14.3 % of the kernel time is in no iteration)" in section.verdict) is is_region


@pytest.mark.parametrize("is_graph", [True, False])
def test_steps_of_a_compiled_training_end_with_its_optimizer(tmp_path: Path, is_graph: bool) -> None:
    """No op of its forward pass has parameters: a graph runs it, or products in a compiled region. Nothing shows where
    the first step begins; an evaluation is in none."""
    events = []
    for number in range(4):
        at = 1000 * number
        call = "hipGraphLaunch" if is_graph else "hipLaunchKernel"
        events += launched(10 * number + 1, at + 50, 300, "forward", pid=7, call=call)
        if not is_graph:
            events.append(row("cpu_op", "aten::mm", 7, 7, FIRST_US + at + 40, 20, Input_Dims=[[4, 4], [4, 4]]))
        for what, begun in (("zero_grad", 400), ("step", 500)):
            events.append(row("user_annotation", f"Optimizer.{what}#Adam.{what}", 7, 7, FIRST_US + at + begun, 60))
        events += launched(10 * number + 2, at + 510, 20, "adam", pid=7)
    events += launched(99, 9000, 640, "evaluation", pid=7, call="hipGraphLaunch")
    analysis = mio2trace.analyse([kineto_file(tmp_path, events)])
    told = analysis.run.measures[0].steady.told
    assert [(one.kernels, one.kernel_ns, one.step_ns) for one in told.all] == [
        (2, 320_000, 510_000), *[(2, 320_000, 1_000_000)] * 3
    ]  # fmt: skip
    assert told.rule.startswith("iterations 2-4, of 4 recorded; the begin of 1 is not known")
    (section,) = report_of(analysis, analysis.runs).sections
    assert "(3 steady of 4; 33.3 % of the kernel time is in no iteration)" in section.verdict


@pytest.mark.parametrize(
    ("first_us", "is_built", "steady", "length_ns", "told"),
    [
        (0, False, (1, 2), 1_000_000, "the first is as warm"),
        (1000, False, (1,), 1_000_000, "only the length of 1 is known and may be cold"),
        (0, True, (2,), 1_000_000, "the end of 3 is not known"),
        (1000, True, (2,), 109_000, "the end of 2 is not known"),
    ],
)
def test_an_unmarked_last_step_makes_no_other_cold(
    tmp_path: Path, first_us: int, is_built: bool, steady: tuple[int, ...], length_ns: int, told: str
) -> None:
    """The loop loads data for most of each step. Nothing behind the last step is recorded, so it looks short."""
    events = [one for at in range(first_us, 3000, 1000) for one in step([ALIKE] * 3, FIRST_US + at, 100 + at // 5)]
    built = row("cuda_runtime", "hipModuleLoad", 7, 7, FIRST_US + first_us + 30, 1, correlation=9999)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, [*events, *[built] * is_built])]).run.measures
    assert measures.steady.told.steady == steady
    assert told in measures.steady.told.rule
    assert measures.steady.step_time is not None
    assert measures.steady.step_time.length_ns == length_ns


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
    found = kineto_alignment(tmp_path, events)
    iterations = [found.links.iteration_of(position) for position in range(len(found.profile.activities))]
    assert iterations == ([1] * 7 + [2] * 7 if is_each else [None, *[1] * 6, *[2] * 5])


def test_what_is_launched_outside_of_an_annotation_is_not_in_it(tmp_path: Path) -> None:
    """Though the same kernels are in the annotation of another step."""
    events = [row for at in (0, 1000) for row in step([LINEAR, SCALED, SCALED], FIRST_US + at, 100 + at)[:12]]
    events.append(row("user_annotation", "measured", 7, 7, FIRST_US + 1000, 300, External_id=1))
    links = kineto_alignment(tmp_path, events).links
    layers = [None if run == NONE else links.runs[run].layer for run in links.run_of]
    assert layers == ["linear 1", None, None, "linear 1", "measured", "measured"]


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
        found = present(mio2trace.analyse([kineto_file(tmp_path, made)], options).run.alignment)
        assert "sequence" not in found.links.layer_by


@pytest.mark.shared
@pytest.mark.parametrize("name", ["kineto_mi300x_vit_infer.json.gz", "kineto_mi300_resnet50_ddp4_rank0.json.gz"])
def test_classes_are_the_sums_of_their_layers(name: str) -> None:
    """By the layer's name without its number, and the direction: time, kernels, number of layers."""
    path = str(shared_folder() / "samples" / "rocm" / name)
    tables = []
    for by in ("layer", "class"):
        tables.append([one for one in json_of("layers", path, "--by", by, "-q") if "kernels" in one])
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
