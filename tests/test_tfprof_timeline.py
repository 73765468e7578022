"""TensorFlow's ops in the picture: every execution once, under its scopes, in lanes; beside a GPU profile, layers."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align import align
from mio2trace.align.exact import iteration_of
from mio2trace.conversion import Conversion, convert
from mio2trace.draw import BuildOptions, RunToDraw, build
from mio2trace.measures import Measures
from mio2trace.model.tf import TfNode, TfProfile
from mio2trace.notes import InputError, Notes, OptionError
from mio2trace.readers.tf.executions import executions, layer_of
from mio2trace.trace import CounterValue, Flow, Slice, Trace, checked
from tests.commands import invoked, stderr_of
from tests.conftest import Engine
from tests.often import saved
from tests.small_runs import Program, as_json, benchmark
from tests.test_tfprof import ONE_STEP, SETS, content, sample
from tests.test_trace import arguments
from tests.tf_files import CPU, GPU, KERNELS, START_US, node, profile_proto, random_profile, run_metadata

seeds = st.integers(0, 2**32 - 1).map(Random)


def picture(*profiles: TfProfile) -> tuple[Trace, list[Slice], Notes]:
    notes = Notes()
    told = executions(profiles, notes)
    measures = () if told is None else (Measures(align(told, (), notes)),)
    trace = build([RunToDraw(measures=measures)], BuildOptions(), {"attribution": {}}, notes)
    activities = () if told is None else told.activities
    ran_ns = sum((activity.end_ns or 0) - (activity.start_ns or 0) for activity in activities)
    return trace, [event for event in checked(trace, len(activities), ran_ns) if isinstance(event, Slice)], notes


EXECUTIONS = ("operator", "kernel", "copy")
"""An op's code on the host, and what ran on a device."""
SAMPLES = (
    SETS[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in SETS[1:]),
    *(f"{SETS[0]}/{file}" for file in ONE_STEP),
    *(pytest.param(f"{SETS[2]}/{file}", marks=pytest.mark.thorough) for file in ONE_STEP),
)  # fmt: skip


def converted(*paths: Path | str, **options: Any) -> tuple[list[dict[str, Any]], Conversion]:
    out = io.BytesIO()
    result = convert(*map(str, paths), output=out, check=True, **options)
    return json.loads(out.getvalue())["traceEvents"], result


def of(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") in categories]


@given(seeds)
def test_every_execution_is_drawn_once_inside_its_scopes(rng: Random) -> None:
    """Start, duration, node and step; above an op on the host one slice for each scope of its name, steps around."""
    profile = random_profile(rng)
    ran = [(node.name, step.step, one) for node in profile.nodes for step in node.steps for one in step.executions]
    # on the host what takes no time gets a nanosecond of its row
    wanted = Counter((name, step, one.start_ns, one.dur_ns or int(one.kind == "cpu")) for name, step, one in ran)
    _, events, _ = picture(profile)
    origin = min((one.start_ns for *_, one in ran), default=0)
    stacks: dict[int, list[Slice]] = {}
    found: Counter[tuple[str, int, int, int]] = Counter()
    for event in events:
        stack = stacks.setdefault(event.track, [])
        while stack and stack[-1].start_ns + stack[-1].dur_ns <= event.start_ns:
            stack.pop()
        if event.category in EXECUTIONS:
            args = arguments(event)
            found[args["node"], args["step"], event.start_ns + origin, event.dur_ns] += 1
        if event.category == "operator":
            assert [scope.category for scope in stack] == ["frame"] * len(stack)
            assert [scope.name for scope in stack] == args["node"].split("/")[:-1]
        stack.append(event)
    assert found == wanted
    spans: dict[str, tuple[int, int]] = {}
    for _, step, one in ran:
        first, last = spans.get(f"step {step}", (one.start_ns, 0))
        first = min(first, one.start_ns)
        spans[f"step {step}"] = first, max(last, one.start_ns + one.dur_ns, first + 1)
    assert spans == {
        event.name: (event.start_ns + origin, event.start_ns + event.dur_ns + origin)
        for event in events
        if event.category == "annotation" and event.name[:4] == "step"
    }


def profile_of(*nodes: TfNode, steps: tuple[int, ...] = (0,)) -> TfProfile:
    return TfProfile(source=0, steps=steps, nodes=nodes)


def test_ops_that_overlap_go_to_lanes_and_stay_with_their_scope() -> None:
    """The lane whose last op is most alike; a scope is one slice as long as nothing comes between."""
    trace, events, _ = picture(
        profile_of(
            node("a/x", (0, 10, CPU)), node("b/y", (5, 10, CPU)), node("a/z", (20, 5, CPU)), node("b/w", (21, 5, CPU))
        )
    )
    names = {track.id: track.name for track in trace.tracks}
    ops = {arguments(event)["node"]: names[event.track] for event in events if event.category == "operator"}
    assert ops == {"a/x": "Ops, CPU 0", "b/y": "Ops, CPU 0 (2)", "a/z": "Ops, CPU 0", "b/w": "Ops, CPU 0 (2)"}
    scopes = [(event.name, event.start_ns, event.dur_ns) for event in events if event.category == "frame"]
    assert sorted(scopes) == [("a", 0, 25_000), ("b", 5_000, 21_000)]


def test_each_device_of_each_task_has_a_name_of_its_own() -> None:
    """Host times of ops on a GPU are never drawn as its time; devices may be built in no known way."""
    trace, events, _ = picture(
        profile_of(
            node("a", (0, 5, "/job:worker/replica:0/task:1/device:cpu:0")),
            node("b", (1, 6, "/job:ps/replica:0/task:0/device:cpu:0")),
            node("c", (2, 7, "/job:worker/replica:0/task:1/device:gpu:1")),
            node("d", (3, 8, "/job:worker/replica:0/task:1/gpu:12/stream:all")),
            node("e", (4, 9, "who knows")),
        )
    )
    process = {one.id: one.name for one in trace.processes}
    place = {track.id: (process[track.process], track.name) for track in trace.tracks}
    assert len(set(place.values())) == len(place)
    ran = [event for event in events if event.category in EXECUTIONS]
    drawn = {event.dur_ns // 1000: (*place[event.track], event.category) for event in ran}
    host = "Host (TensorFlow)"
    assert drawn == {
        5: (host, "Ops, CPU 0 of worker 1", "operator"),
        6: (host, "Ops, CPU 0 of ps 0", "operator"),
        7: (host, "Op scheduling, GPU 1 of worker 1", "operator"),
        8: ("GPU 12 of worker 1 (TensorFlow)", "Op kernels: kernels", "kernel"),
        9: (host, "Op scheduling, DEVICE 0 of no task", "operator"),
    }


def test_a_kernel_on_its_own_stream_is_not_drawn_under_all_streams_too(tmp_path: Path) -> None:
    """What is on no stream of its own stays under all. Timelines have the whole label, which repeats the op."""
    record = ("g:Relu", START_US + 3, 2, "void relu()@@g:Relu#")
    other = ("h:Relu", START_US + 9, 2, "void relu()@@h:Relu#")
    path = saved(tmp_path / "run.pb", run_metadata({KERNELS: [record, other], f"{GPU}/stream:7": [record]}))
    events, _ = converted(path)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    drawn = [(event["args"]["node"], event["name"], tracks[event["tid"]]) for event in of(events, "kernel")]
    assert sorted(drawn) == [("g", "relu", "Stream 7: kernels"), ("h", "relu", "Op kernels: kernels")]
    names = {1: f"{GPU}/stream:7 Compute", 2: f"{GPU}/memcpy Compute"}
    made = [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}} for pid, name in names.items()]
    op = {"ph": "X", "cat": "Op", "name": "Relu", "tid": 0, "ts": START_US, "dur": 3}
    label = {"name": "v/cg/Relu", "op": "Relu", "kernel": "void relu()@@v/cg/Relu:Relu#id=7#"}
    path.write_text(json.dumps({"traceEvents": [*made, op | {"pid": 1, "args": label}]}))
    [kernel] = of(converted(path)[0], "kernel")
    assert (kernel["name"], kernel["args"]["full_name"]) == ("relu", "void relu()")
    # A copy of the name of a kernel is a copy, also where the same node has both.
    both = [op | {"pid": pid, "ts": START_US + pid, "args": {"name": "v", "op": "Relu"}} for pid in names]
    path.write_text(json.dumps({"traceEvents": [*made, *both]}))
    drawn_events, _ = converted(path)
    assert [len(of(drawn_events, sort)) for sort in ("copy", "kernel")] == [1, 1]


def test_a_copy_is_recorded_on_its_stream_and_under_all_copies_and_is_one_copy(tmp_path: Path) -> None:
    """Its name is like that of a node: only the op, or the label, shows that it is a copy. A bundle keeps all of it."""
    stream, copies = f"{GPU}/stream:14", f"{GPU}/memcpy"
    label = "MEMCPYDtoH 4096 bytes (Device to Pageable)"
    told, silent = ("edge_22_MatMul:MEMCPYDtoH", START_US, 9, label), ("c:ConcatV2", START_US + 20, 2, "")
    kernel = ("m:MatMul", START_US + 40, 30, "")
    stats = {stream: [told, silent, kernel], copies: [told, silent], KERNELS: [kernel]}
    path = saved(tmp_path / "run.pb", run_metadata(stats))
    numbers = {name: at for at, name in enumerate(stats)}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": at, "args": {"name": f"{name} Compute"}}
        for name, at in numbers.items()
    ]
    for name, records in stats.items():
        for node_name, start, dur, _ in records:
            of_node, _, op = node_name.partition(":")
            event = {"ph": "X", "cat": "Op", "name": op, "pid": numbers[name], "tid": 0, "ts": start, "dur": dur}
            events.append({**event, "args": {"name": of_node, "op": op}})
    timeline, bundle = tmp_path / "run.json", tmp_path / "run.zip"
    timeline.write_text(json.dumps({"traceEvents": events}))
    assert invoked("bundle", path, "-o", bundle).exit_code == 0
    for file, size in ((path, 4096), (timeline, None), (bundle, 4096)):
        drawn = converted(file)[0]
        assert [(one["name"], one["dur"]) for one in of(drawn, "kernel")] == [("m", 30)]
        found = [(one["name"], one["args"]["node"], one["args"].get("bytes")) for one in of(drawn, "copy")]
        assert found == [("copy device to host", "edge_22_MatMul", size), ("copy", "c", None)]


def test_ops_of_one_type_that_differ_much_are_no_damage(tmp_path: Path) -> None:
    """Without a label a kernel has the name of its op, and never a size: those of a long and a short op differ."""
    kernels = [(f"conv{at}/Conv2D:Conv2D", START_US + 1000 * at, 3 if at < 9 else 900, "") for at in range(10)]
    path = saved(tmp_path / "run.pb", run_metadata({KERNELS: kernels}))
    assert "profile complete\n" in invoked("report", path).stdout


def test_events_behind_the_end_of_their_array_are_told(tmp_path: Path) -> None:
    named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "/job:localhost/device:CPU:0 Compute"}}
    op = {"ph": "X", "cat": "Op", "name": "Relu", "pid": 1, "tid": 0, "ts": START_US, "dur": 3, "args": {"name": "v"}}
    whole = json.dumps({"traceEvents": [named, op, {**op, "ts": START_US + 9}]})
    at = whole.rindex(", {")
    path = saved(tmp_path / "run.json", f"{whole[:at]}]{whole[at:]}")
    found = [note.kind for note in converted(path)[1].notes.problems]
    assert found == ["record of a profile that could not be read: skipped"]


@pytest.mark.parametrize(("steps", "said"), [(1, []), (3, ["timelines of 3 steps in one file"])])
def test_steps_that_a_script_merged_into_one_timeline_are_apart(steps: int, said: list[str], tmp_path: Path) -> None:
    """Scripts append the events of each step; devices of later ones may be others."""
    op = {"ph": "X", "cat": "Op", "tid": 0, "dur": 3}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{device} Compute"}}
        for pid, device in enumerate((KERNELS.partition("/stream")[0], KERNELS))
    ]
    for at in range(steps):
        for pid, name, kind in ((0, "_SOURCE", "NoOp"), (0, "m", "MatMul"), (1, "m", "MatMul")):
            times = {"pid": pid, "ts": START_US + 100 * at}
            events.append({**op, **times, "name": kind, "args": {"name": name, "op": kind}})
    path = saved(tmp_path / "run.json", json.dumps({"traceEvents": events}))
    drawn, result = converted(path)
    assert [note.kind.partition(":")[0] for note in result.notes.problems] == said
    passes = [(one["name"], one["dur"]) for one in of(drawn, "pass")]
    assert passes == ([(f"iteration {at + 1}", 3) for at in range(steps)] if steps > 1 else [("iteration", 3)])
    assert "0.0030 ms of kernels" in invoked("report", path).stdout
    assert f"1 run of {steps} iteration" in invoked("compare", path, path).stdout  # as a side like any other
    assert f"{steps} kernel" in invoked("batch", tmp_path, "-o", tmp_path / "ds").stderr


def test_devices_that_take_turns_in_a_timeline_are_one_step(tmp_path: Path) -> None:
    """Ops in the order of their times do not show where a step ends."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{device} Compute"}}
        for pid, device in enumerate((KERNELS.partition("/stream")[0], KERNELS))
    ]
    for at, (pid, name) in enumerate([(0, "_SOURCE"), (0, "m"), (1, "m"), (0, "n"), (1, "n")]):
        op = {"ph": "X", "cat": "Op", "tid": 0, "pid": pid, "ts": START_US + 10 * at, "dur": 3, "name": "MatMul"}
        events.append({**op, "args": {"name": name, "op": "MatMul"}})
    drawn, result = converted(saved(tmp_path / "run.json", json.dumps({"traceEvents": events})))
    assert [one["name"] for one in of(drawn, "pass")] == ["iteration"]
    assert [note.kind for note in result.notes.problems] == []


def test_streams_that_name_no_task_are_of_the_only_task(tmp_path: Path) -> None:
    """``/gpu:0/stream:7`` beside ``/job:localhost/replica:0/task:0/gpu:0``: one GPU, of no task to be told."""
    task = "/job:localhost/replica:0/task:0"
    ops = {f"{task}/gpu:0": [("m", START_US, 9, "m = MatMul()")], "/gpu:0/stream:7": [("m:MatMul", START_US, 9, "")]}
    path = saved(tmp_path / "run.pb", run_metadata(ops))
    names = {event["args"]["name"] for event in converted(path)[0] if event["name"] == "process_name"}
    assert {name for name in names if "GPU" in name} == {"GPU 0 (TensorFlow)"}


def test_an_execution_far_from_all_others_is_left_out_and_counted() -> None:
    """A trace holds no more than 104 days exactly."""
    nodes = [node(f"n{at}", (at, 5, CPU)) for at in range(5)]
    _, events, notes = picture(profile_of(*nodes, node("far", (200 * 86_400 * 10**6, 5, CPU))))
    assert "far" not in {arguments(event).get("node") for event in events}
    assert [(note.kind, note.count) for note in notes] == [("execution far from all others left out", 1)]


def test_the_same_step_in_two_files_is_drawn_once() -> None:
    """Said, too; other steps of the second file are drawn."""
    one = profile_of(node("a", (0, 5, CPU)))
    other = profile_of(node("a", (0, 6, CPU)), node("b", (9, 5, CPU)))
    _, events, notes = picture(one, msgspec.structs.replace(other, numbered=False))
    assert Counter(arguments(event)["node"] for event in events if event.category == "operator") == {"a": 1, "b": 1}
    assert [event.name for event in events if event.category == "annotation"] == ["step 0", "step"]
    assert [note.kind for note in notes] == ["execution that two of TensorFlow's profiles hold drawn once"]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("v/tower_0/cg/conv0/conv2d/Conv2D", ("conv0", "forward")),
        ("tower_0/v/cg/conv0/batchnorm0/FusedBatchNormV3", ("conv0", "forward")),
        ("v/tower_0/cg/batchnorm4/AssignMovingAvg/sub", ("batchnorm4", "forward")),
        ("v/tower_0/cg/resnet_v20/conv1/conv2d/Conv2D", ("resnet_v20/conv1", "forward")),
        ("v/tower_0/cg/resnet_v20/add", ("resnet_v20", "forward")),
        ("v/tower_0/cg/affine0/xw_plus_b/MatMul", ("affine0", "forward")),
        ("v/tower_0/cg/affine0/xw_plus_b", ("affine0", "forward")),
        ("v/tower_0/cg/spatial_mean0", ("spatial_mean0", "forward")),
        ("v/tower_0/cg/Relu_1", ("Relu_1", "forward")),
        ("v/tower_0/gradients/v/tower_0/cg/Relu_1_grad/ReluGrad", ("Relu_1", "backward")),
        ("v/tower_0/gradients/v/tower_0/cg/spatial_mean0_grad/Tile", ("spatial_mean0", "backward")),
        ("v/tower_0/gradients/v/tower_0/cg/affine0/xw_plus_b_grad/BiasAddGrad", ("affine0", "backward")),
        ("tower_1/v/gradients/tower_1/v/cg/conv0/conv2d/Conv2D_grad/ShapeN", ("tower_1/conv0", "backward")),
        ("v/cg/conv0/conv2d/kernel/read", None),
        ("v/tower_0/xentropy/xentropy_mean", None),
        ("GradientDescent/update_v/cg/affine0/weights/ApplyGradientDescent", None),
    ],
)
def test_layers_are_read_from_names(name: str, layer: tuple[str, str] | None) -> None:
    """The network's scope, without what is inside a layer; gradients are the same layer's backward."""
    assert layer_of(name) == layer


def test_layers_are_unbroken_rows_of_their_ops() -> None:
    """Another layer's op in between makes two."""
    first, second = "v/tower_0/cg/conv0/conv2d/Conv2D", "v/tower_0/cg/mpool0/MaxPool"
    conv = node(first, (0, 5, CPU), (5, 5, CPU), (20, 5, CPU))
    _, events, _ = picture(profile_of(conv, node(second, (10, 10, CPU)), node("x", (3, 1, CPU))))
    drawn = [(event.name, event.start_ns, event.dur_ns) for event in events if event.category == "annotation"]
    assert drawn == [
        ("step 0", 0, 25_000),
        ("conv0 · forward", 0, 10_000),
        ("mpool0 · forward", 10_000, 10_000),
        ("conv0 · forward", 20_000, 5_000),
    ]


def test_kernels_and_copies_are_their_nodes_layers_in_their_steps_iteration() -> None:
    """As the profile states; what is of no layer is in the iteration, and the graph is told of kernels, too."""
    conv = "v/tower_0/cg/conv0/conv2d/Conv2D"
    _, events, _ = picture(
        profile_of(
            msgspec.structs.replace(node(conv, (0, 3, GPU), (4, 5, KERNELS), step=1), output_shapes=((0, (2, 3)),)),
            node("x", (9, 1, KERNELS), step=1),
            steps=(1,),
        )
    )
    kernels = {event.name: arguments(event) for event in events if event.category == "kernel"}
    assert kernels["Conv2D"] == {
        "event_index": 0, "step": 1, "iteration": 2, "node": conv, "op": "Conv2D", "output_shape": "2x3",
        "layer_by": "range", "layer": "conv0", "layer_index": 0, "direction": "forward",
    }  # fmt: skip
    assert kernels["x"] == {"event_index": 1, "step": 1, "iteration": 2, "node": "x", "op": "x"}
    levels = [event.name for event in events if event.category in ("pass", "layer")]
    assert levels == ["iteration 2 · forward", "conv0", "iteration 2"]


def test_kernels_in_no_layer_are_in_the_iteration_of_their_step_also_with_an_op_of_the_host() -> None:
    """The profile counts steps from 0, and marks them on the host; all kernels have the number of the iteration."""
    names = ("v/tower_0/cg/conv0/conv2d/Conv2D", "y")
    made = [node(name, (at, 1, GPU), (at + 2, 1, KERNELS), step=7) for at, name in enumerate(names)]
    _, events, _ = picture(profile_of(*made, steps=(7,)))
    assert [arguments(event)["iteration"] for event in events if event.category == "kernel"] == [8, 8]


def test_what_runs_between_kernels_of_one_pass_is_in_it() -> None:
    """What runs between two passes, or in another step, is of its step's iteration alone."""
    conv, back = CONVS
    ran = [(conv, 0, 0), ("x", 1, 0), (conv, 2, 0), ("y", 3, 0), (back, 4, 0), ("z", 5, 1), (back, 6, 1)]
    nodes: dict[str, TfNode] = {}
    for name, at, step in ran:
        one = node(name, (at, 1, KERNELS), step=step)
        nodes[name] = msgspec.structs.replace(
            one, steps=(*nodes[name].steps, *one.steps) if name in nodes else one.steps
        )
    _, events, _ = picture(profile_of(*nodes.values(), steps=(0, 1)))
    assert [(event.name, event.dur_ns) for event in events if event.category == "pass"] == [
        ("iteration 1 · forward", 3_000), ("iteration 1", 1_000), ("iteration 1 · backward", 1_000),
        ("iteration 2", 1_000), ("iteration 2 · backward", 1_000),
    ]  # fmt: skip


def test_an_arrow_leads_from_an_op_to_its_kernels() -> None:
    """From its start on the host, inside its scopes, never back in time. The last launch before the kernel counts."""
    twice = node("b/z", (20, 3, GPU), (30, 3, GPU), (31, 5, KERNELS), (24, 2, KERNELS))
    profile = profile_of(
        node("a/x", (0, 3, GPU), (4, 5, KERNELS), (9, 5, KERNELS)), node("y", (6, 2, KERNELS), (50, 1, GPU)), twice
    )
    trace, events, _ = picture(profile)
    flows = [event for event in trace.events() if isinstance(event, Flow)]
    assert sorted((flow.from_ns // 1000, flow.to_ns // 1000) for flow in flows) == [(0, 4), (0, 9), (20, 24), (30, 31)]
    assert {flow.from_track for flow in flows} <= {event.track for event in events if event.category == "operator"}


def test_memory_and_graph_are_arguments() -> None:
    """Of the op's own slice; what is unknown is not there."""
    whole = msgspec.structs.replace(
        node("a/x", (0, 5, GPU), memory=77),
        output_shapes=((0, (2, 3)),),
        input_shapes=((0, (2, 9)), (1, ())),
        attributes={"strides": "1x2x2x1", "T": "float"},
        float_ops=99,
        place="model.py:3",
    )
    bare = msgspec.structs.replace(node("y", (9, 5, CPU)), output_shapes=((0, (-1,)),))
    _, events, _ = picture(profile_of(whole, bare))
    assert [arguments(event) for event in events if event.category == "operator"] == [
        {
            "node": "a/x", "op": "x", "output_shape": "2x3", "inputs": "(2,9)", "strides": "1x2x2x1",
            "dtypes": "float", "flop": 99, "place": "model.py:3", "step": 0, "requested_bytes": 77, "peak_bytes": 77,
            "output_bytes": 77,
        },
        {"node": "y", "op": "y", "step": 0},
    ]  # fmt: skip


def test_the_allocator_of_a_gpu_is_a_counter() -> None:
    """Where the picture reaches."""
    one = node("x", (0, 50, GPU), memory=1)
    [step] = one.steps
    memory = msgspec.structs.replace(step.memory[0], read_ns=(START_US + 50) * 1000, in_use_bytes=3_000_000)
    late = msgspec.structs.replace(memory, read_ns=(START_US + 51) * 1000)
    for held, expected in ((memory, [(50_000, 3.0)]), (late, [])):
        changed = msgspec.structs.replace(one, steps=(msgspec.structs.replace(step, memory=(held,)),))
        trace, _, _ = picture(profile_of(changed))
        found = [event for event in trace.events() if isinstance(event, CounterValue)]
        assert [(event.time_ns, event.value) for event in found] == expected


@pytest.mark.engine
@pytest.mark.shared
@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_the_samples_pictures_pass_all_checks(shared: Path, engine: Engine, tmp_path: Path, path: str) -> None:
    """Perfetto's engine finds nothing wrong, and counts every execution of the truth."""
    out = tmp_path / "out.json"
    folder = shared / "samples" / "tfprof" / path
    convert(folder if "/" in path else sample(path), output=out, check=True)
    processor = engine(out)
    assert processor.errors() == []
    assert processor.failed_checks() == {}
    if "/" in path:
        return
    expected = list(csv.DictReader(io.StringIO(content(folder / "expected_execs.csv.gz"))))
    found = processor.query(
        "select extract_arg(arg_set_id, 'args.step') as step, extract_arg(arg_set_id, 'args.node') as node,"
        " ts, dur from slice where category in ('operator', 'kernel', 'copy')"
    )
    origin = min(int(row["start_us"]) for row in expected) * 1000
    wanted = Counter(
        (int(row["step"]), row["node"], int(row["start_us"]) * 1000 - origin, int(row["dur_us"]) * 1000)
        for row in expected
    )
    assert Counter((row["step"], row["node"], row["ts"], row["dur"]) for row in found) == wanted


@pytest.mark.shared
def test_a_profile_and_the_trace_file_of_its_run_are_one_picture(shared: Path, tmp_path: Path) -> None:
    """They share the clock; the trace file's step is another one."""
    folder = shared / "samples" / "tfprof" / "tf215_resnet_v2"
    events, result = converted(folder / "profile.tfprof", folder / "trace_file.json.gz")
    steps = [event["name"] for event in of(events, "annotation") if event["name"].startswith("step")]
    assert steps == ["step", *(f"step {number}" for number in range(10))]
    assert list(result.notes) == []


CONVS = (
    "v/tower_0/cg/conv0/conv2d/Conv2D",
    "v/tower_0/gradients/v/tower_0/cg/conv0/conv2d/Conv2D_grad/Conv2DBackpropInput",
)
OPENED_US = 1_795_168_800_000_000
"""20 November 2026, 10:00 UTC: when the program of `small_runs` begins."""


def a_gpu_run() -> tuple[bytes, list[int]]:
    """A dv/dt profile of four kernels and a copy, and when the host enqueued each kernel, in us since 1970."""
    run = Program()
    run.program()
    run.kernel("k", "0x60")
    stamps = []
    for _ in range(4):
        stamps.append(OPENED_US + run.us)
        run.enqueue("k", "0x60")
    run.copy("clEnqueueReadBuffer")
    return as_json(run.calls), stamps


GPU_RUN, STAMPS = a_gpu_run()


def ops_at(*times: tuple[str, int, int], device: str = GPU) -> bytes:
    """A profile of ops: name, start and end in us since 1970."""
    nodes = [node(name, (start - START_US, end - start, device)) for name, start, end in times]
    return profile_proto(TfProfile(source=0, steps=(0,), nodes=tuple(nodes)))


def joined(tmp_path: Path, tf: bytes, gpu: bytes = GPU_RUN) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the drawn slices, and the notes."""
    (tmp_path / "prof.json").write_bytes(gpu)
    events, result = converted(tmp_path / "prof.json", saved(tmp_path / "profile.tfprof", tf))
    return events, {note.kind for note in result.notes}


def calls_of(events: list[dict[str, Any]]) -> list[float]:
    """When the host enqueued kernels."""
    return [event["ts"] for event in of(events, "api") if event["name"] == "clEnqueueNDRangeKernel"]


def links(events: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Of the GPU profile's kernels."""
    keys = ("layer", "direction", "iteration", "layer_by")
    kernels = [event["args"] for event in of(events, "kernel") if "node" not in event["args"]]
    return [tuple(args.get(key) for key in keys) for args in kernels]


def test_kernels_enqueued_while_an_op_ran_are_its_layers(tmp_path: Path) -> None:
    """Step 0 is iteration 1; what no op of a layer enclosed stays outside."""
    tf = ops_at(
        (CONVS[0], STAMPS[0] - 3, STAMPS[1] + 50),
        ("v/tower_0/cg/conv0/BiasAdd", STAMPS[1] - 2, STAMPS[1] + 40),  # beside the other one
        (CONVS[1], STAMPS[2], STAMPS[2] + 1),
        ("other", STAMPS[3], STAMPS[3] + 9),
    )
    events, _ = joined(tmp_path, tf)
    forward, backward = (("conv0", direction, 1, "boundary stamps") for direction in ("forward", "backward"))
    assert links(events) == [forward, forward, backward, (None,) * 4]
    # One axis: an op begins where the host's call that it made does, up to the clocks' error.
    drawn = {event["args"]["node"]: event["ts"] for event in of(events, "operator")}
    assert [drawn[CONVS[1]], drawn["other"]] == pytest.approx(calls_of(events)[2:], abs=1)


def test_a_kernel_that_two_layers_may_have_enqueued_is_not_attributed(tmp_path: Path) -> None:
    """No thread is known: it is counted instead."""
    tf = ops_at((CONVS[0], STAMPS[0] - 5, STAMPS[1] + 40), (CONVS[1], STAMPS[1] - 2, STAMPS[1] + 50))
    events, kinds = joined(tmp_path, tf)
    assert [link[0] for link in links(events)] == ["conv0", None, None, None]
    assert "kernel enqueued while ops of several layers ran: not attributed" in kinds


OTHER_TIME = "the framework's profile is of another time: its ops are left out"
NO_HOST = "the profile's clock is not related to the host's: the framework's ops are left out"
BARE = [{key: value for key, value in call.items() if key != "timestamp"} for call in json.loads(GPU_RUN)]


@pytest.mark.parametrize(
    ("moved_us", "device", "gpu", "said"),
    [
        (70 * 10**6, GPU, GPU_RUN, OTHER_TIME),
        (-70 * 10**6, KERNELS, GPU_RUN, OTHER_TIME),
        (-70 * 10**6, GPU, GPU_RUN, OTHER_TIME),
        (3 * 3600 * 10**6, KERNELS, GPU_RUN, OTHER_TIME),
        (0, GPU, json.dumps(BARE).encode(), NO_HOST),
        # ops of a CPU, and kernels, enqueue nothing
        (0, CPU, GPU_RUN, ""),
        (0, KERNELS, GPU_RUN, ""),
    ],
)
def test_other_times_are_not_drawn_together(tmp_path: Path, moved_us: int, device: str, gpu: bytes, said: str) -> None:
    """The kernels are drawn without layers; why the ops are not is said."""
    events, kinds = joined(tmp_path, ops_at((CONVS[0], STAMPS[0] + moved_us, STAMPS[3] + moved_us), device=device), gpu)
    assert not said or not of(events, "operator", "annotation", "frame")
    assert kinds & {OTHER_TIME, NO_HOST} == ({said} if said else set())
    assert [link[0] for link in links(events)] == [None] * 4


def test_a_log_alone_is_not_drawn_beside_the_ops(tmp_path: Path, alone: Path) -> None:
    """Nothing relates its layers to them, which is said."""
    events, result = converted(saved(tmp_path / "run.log", benchmark()[1]), alone)
    assert [event["args"]["node"] for event in of(events, "operator")] == [CONVS[0]]
    assert [note.kind for note in result.notes] == [
        "layers of a log left out: without a GPU profile their clock is not related to the framework's ops"
    ]


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A profile of one op of a CPU."""
    return saved(tmp_path / "profile.tfprof", ops_at((CONVS[0], START_US, START_US + 5), device=CPU))


def test_ops_of_a_cpu_without_a_gpu(alone: Path) -> None:
    """A report says what lists and draws them; they are no API calls; where nothing ran there is nothing to draw."""
    assert "`mio2trace tfprof` lists the ops, `-o out.pftrace` draws them" in stderr_of(invoked(alone), 1)
    said = stderr_of(invoked("kernels", alone), 1)
    assert "profile.tfprof: a profile of TensorFlow's own; `mio2trace report`" in said
    events, _ = converted(alone, host_calls="none")
    assert [event["args"]["node"] for event in of(events, "operator")] == [CONVS[0]]
    with pytest.raises(OptionError, match="no GPU profile to choose from"):
        converted(alone, iterations="2")
    alone.write_bytes(profile_proto(profile_of(node("a"), steps=())))
    with pytest.raises(InputError, match="nothing that has a time"):
        convert(alone)


def test_kernels_of_both_profiles_lie_on_one_axis(tmp_path: Path) -> None:
    """The framework's times are the host's, and are moved to the device's clock as the host's calls are."""
    events, _ = joined(tmp_path, ops_at((CONVS[0], STAMPS[2], STAMPS[2] + 7), device=KERNELS))
    [kernel] = [event for event in of(events, "kernel") if "node" in event["args"]]
    assert (kernel["ts"], kernel["dur"]) == pytest.approx((calls_of(events)[2], 7), abs=1)
    assert (kernel["args"]["layer"], kernel["args"]["layer_by"]) == ("conv0", "range")
    # Evidence left out leaves no layer: a kernel then tells its node.
    events, _ = converted(tmp_path / "profile.tfprof", without=["range"])
    [kernel] = of(events, "kernel")
    assert kernel["args"]["node"] == CONVS[0]
    assert kernel["args"].keys().isdisjoint({"layer", "direction", "layer_by"})


def test_a_part_of_the_kernels_is_chosen_as_of_any_profile(tmp_path: Path) -> None:
    """Iterations are the steps."""
    path = tmp_path / "profile.tfprof"
    one, other = (node("x", (at, 5, KERNELS), step=step) for step, at in ((0, 0), (1, 50)))
    both = msgspec.structs.replace(one, steps=(*one.steps, *other.steps))
    path.write_bytes(profile_proto(profile_of(both, steps=(0, 1))))
    events, _ = converted(path, iterations="2")
    assert [event["args"]["step"] for event in of(events, "kernel")] == [1]


def test_a_step_that_cannot_be_is_no_iteration() -> None:
    """What is a number of 64 bits there has no successor."""
    assert [iteration_of(step) for step in (None, -1, 0, 7, (1 << 63) - 1)] == [None, None, 1, 8, None]
