"""All evidence together: strongest first, nothing overridden, nothing wrong without a doubt, whatever is missing."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mio2trace.align import NONE, Alignment, align
from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import Net, contradicts, types_of
from mio2trace.align.layers.repetitions import place_nameless_replays
from mio2trace.evidence import EVIDENCE, ORDER, TIMER_MARKS
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.profile import Activity, Call, Profile
from mio2trace.model.tables import Activities
from mio2trace.notes import InputError, Notes
from tests.commands import json_of, rows, stderr_of
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import row, trace
from tests.often import saved
from tests.records import changed, with_opencl
from tests.small_runs import Program, as_json, benchmark
from tests.synthetic_run import (
    MS,
    SECOND,
    START,
    US,
    Clocks,
    Kernel,
    Layer,
    Run,
    make_run,
    places_of,
    random_net,
    seeds,
    wrong_and_sure,
)
from tests.test_layers_report import run


def consistent(run: Run, found: Alignment) -> None:
    """A link names its evidence, lies in its layer's pass, and every number is one that exists."""
    links = found.links
    assert len(links.run_of) == len(links.pass_of) == len(links.layer_by) == len(run.profile.activities)
    for position, number in enumerate(links.run_of):
        assert (number == NONE) == (links.layer_by[position] == "")
        if number != NONE:
            assert links.layer_by[position] in EVIDENCE
            assert links.pass_of[position] == links.runs[number].pass_
    assert links.layer_unsure <= {p for p, number in enumerate(links.run_of) if number != NONE}


def random_run(rng: Random) -> Run:
    interleaved = rng.random() < 0.3
    return make_run(
        rng,
        random_net(rng, rng.randint(1, 10)),
        iterations=rng.randint(1, 3),
        backward=rng.random() < 0.5,
        warm_up=rng.random() < 0.7,
        marks=rng.random() < 0.5,
        interleaved=interleaved,
        boundary_lines=rng.random() < 0.4,
        extra_fills=rng.random() < 0.5,
        setup=rng.randint(0, 4),
        tail=rng.randint(0, 2),
        jitter=rng.choice([0, 0.3]),
        clocks=Clocks(zone_ns=rng.choice([0, -5 * 3600 * SECOND]), year=rng.random() < 0.5),
        gap=(20 * US, 90 * US),
    )


@given(seeds, st.sets(st.sampled_from(EVIDENCE)))
def test_any_evidence_may_be_left_out(rng: Random, without: set[str]) -> None:
    """What is left out is not used, the rest still is, and nothing gets wrong without a doubt."""
    run = random_run(rng)
    found = align(run.profile, [run.log], Notes(), without=frozenset(without))
    consistent(run, found)
    assert not without & set(found.links.layer_by)
    assert wrong_and_sure(run, found.links) == []


@given(seeds, st.floats(0, 0.6))
def test_enqueues_without_host_times_are_placed_with_their_neighbours_or_doubted(rng: Random, share: float) -> None:
    """They do not take the others' layers away, and the person is told."""
    net = random_net(rng, rng.randint(2, 8), empty=0, longest_ns=8 * MS)
    run = make_run(rng, net, marks=False, boundary_lines=True, gap=(20 * US, 90 * US))
    bare = [rng.random() < share for _ in run.profile.activities]
    lost = {"host_start_ns": None, "host_end_ns": None, "prepared_ns": None}
    enqueues = tuple(changed(e, **lost) if gone else e for e, gone in zip(run.profile.activities, bare, strict=True))
    notes = Notes()
    try:
        found = align(with_opencl(run.profile, activities=enqueues), [run.log], notes)
    except InputError:
        assert bare[-1]  # the last enqueue is the landmark
        return
    consistent(run, found)
    assert wrong_and_sure(run, found.links) == []
    if any(bare) and found.log_clock is not None:
        assert any("without host times" in note.kind for note in notes.problems)


def test_one_enqueue_without_host_times_costs_only_itself() -> None:
    """All others keep the layers that their stamps give."""
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=MS)] * 3) for i in range(5)]
    run = make_run(Random(3), net, marks=False, boundary_lines=True, warm_up=False)
    for position in range(4, 12):
        enqueues = list(run.profile.activities)
        enqueues[position] = changed(enqueues[position], host_start_ns=None, host_end_ns=None)
        found = align(with_opencl(run.profile, activities=tuple(enqueues)), [run.log], Notes()).links
        for other, (place, said) in enumerate(zip(run.places, places_of(found), strict=True)):
            if place is not None and other != position:
                assert said == place
                assert other not in found.layer_unsure
        # between two enqueues of one layer it can only be that layer's
        assert (position in found.layer_unsure) == (run.places[position - 1] != run.places[position + 1])


@pytest.mark.parametrize("step", [-5 * MS, -3 * SECOND])
@pytest.mark.parametrize("marks", [True, False])
def test_a_clock_set_back_during_the_run_tells_no_layers(step: int, marks: bool) -> None:
    """Its stamps are in no order: marks are, and the device's times, and the person is told."""
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=3 * MS)]) for i in range(10)]
    clocks = Clocks(wall=lambda ns: ns + step * (ns > START + 15 * MS))
    run = make_run(Random(4), net, marks=marks, boundary_lines=True, warm_up=False, clocks=clocks)
    notes = Notes()
    links = align(run.profile, [run.log], notes).links
    # The device's clock was not set: it bears the printed times out.
    assert all(place in (None, said) for place, said in zip(run.places, places_of(links), strict=True))
    assert wrong_and_sure(run, links) == []
    assert "boundary stamps" not in links.layer_by
    assert ("durations" in links.layer_by) != marks
    assert ("timer marks" in links.layer_by) == marks
    assert any("set back during the run" in note.kind for note in notes.problems)


def after(first: Run, second: Run) -> FrameworkLog:
    """One log that both runs were written into."""
    last = max(event.line for event in first.log.events)
    events, layers = (
        tuple(msgspec.structs.replace(record, line=record.line + last) for record in records)
        for records in (second.log.events, second.log.layers)
    )
    joined = {"events": (*first.log.events, *events), "layers": (*first.log.layers, *layers)}
    return first.with_log(**joined, iterations=second.log.iterations).log


@given(seeds, st.booleans(), st.booleans())
def test_a_log_of_several_runs_gives_what_the_profiles_own_run_gives(rng: Random, marks: bool, second: bool) -> None:
    """The others are left out, and that is said."""
    net = random_net(rng, rng.randint(2, 8), empty=0)
    runs = [
        make_run(rng, net, iterations=rng.randint(1, 3), marks=marks, clocks=Clocks(start_ns=start, offset_ns=0))
        for start in (START, START + 7 * 60 * SECOND)
    ]
    own, notes = runs[second], Notes()
    found = align(own.profile, [after(*runs)], notes)
    alone = align(own.profile, [own.log], Notes())
    assert wrong_and_sure(own, found.links) == []
    assert found.links.run_of == alone.links.run_of
    assert found.links.layer_by == alone.links.layer_by
    said = f"log of 2 runs: run {second + 1} ends with the profile, the others are left out"
    assert said in [note.kind for note in notes.problems]
    assert [event.kind for event in found.logs[0].events] == [event.kind for event in own.log.events]


def test_a_log_of_runs_of_different_nets_numbers_the_layers_of_each() -> None:
    """The index is the place in the profile's own net."""
    rng = Random(6)
    first, own = (
        make_run(
            rng,
            [Layer(name=f"{name}{i}", forward=[Kernel(name="k", ns=MS)]) for i in range(count)],
            clocks=Clocks(start_ns=start),
        )
        for name, count, start in (("x", 3, START), ("y", 4, START + 400 * SECOND))
    )
    log = after(first, own)
    layers = (*log.layers[:6], *(msgspec.structs.replace(x, index=x.index + 3) for x in log.layers[6:]))
    log = msgspec.structs.replace(log, layers=layers, net=(*first.log.net, *own.log.net))
    found = align(own.profile, [log], Notes())
    assert [(layer.index, layer.layer) for layer in found.net.layers] == [(i, f"y{i}") for i in range(4)]
    assert wrong_and_sure(own, found.links) == []
    assert "timer marks" in found.links.layer_by


def test_without_host_times_the_last_run_of_a_log_is_taken_and_that_is_said() -> None:
    """Nothing tells which it is."""
    rng = Random(7)
    net = random_net(rng, 4, empty=0)
    first, own = make_run(rng, net), make_run(rng, net)
    bare = tuple(changed(e, host_start_ns=None, host_end_ns=None) for e in own.profile.activities)
    marks = tuple(msgspec.structs.replace(mark, host_ns=None) for mark in own.profile.opencl.marks)
    notes = Notes()
    align(with_opencl(own.profile, activities=bare, marks=marks), [after(first, own)], notes)
    assert any("the last one is used" in note.kind for note in notes.problems)


@given(seeds, st.floats(0, 1), st.booleans())
@example(Random(655), 0.875, False)  # all layer lines but the last are lost
def test_a_log_cut_anywhere_gives_nothing_wrong(rng: Random, share: float, from_end: bool) -> None:
    """Its first or its last lines are lost; refused, or placed by what is left."""
    run = random_run(rng)
    last = max(event.line for event in run.log.events)
    kept = range(int(share * last) + 1) if from_end else range(int(share * last), last + 1)
    left = {
        name: tuple(one for one in getattr(run.log, name) if one.line in kept) for name in ("events", "layers", "net")
    }
    try:
        found = align(run.profile, [run.with_log(**left, iterations=None).log], Notes())
    except InputError:
        return
    consistent(run, found)
    assert wrong_and_sure(run, found.links) == []


@given(seeds, st.integers(-2, 2).filter(bool))
def test_a_log_with_more_or_fewer_iterations_than_the_profile_is_told_of(rng: Random, more: int) -> None:
    """Their lines lack or come too often: nothing wrong, and a word about it."""
    run = make_run(rng, random_net(rng, 5, empty=0), iterations=3)
    lost = [event for event in run.log.events if event.kind == "iteration"][min(more, 0) or 3 :]
    events = tuple(
        msgspec.structs.replace(event, number=3 + more) if event.kind == "testing" else event
        for event in run.log.events
        if event not in lost
    )
    notes = Notes()
    found = align(run.profile, [run.with_log(events=events, iterations=3 + more).log], notes)
    assert wrong_and_sure(run, found.links) == []
    assert any(f"the log says {3 + more}" in note.kind for note in notes.problems)


@pytest.mark.parametrize("backward", [False, True])
def test_an_iteration_whose_layer_lines_are_lost_is_like_one_that_has_them(backward: bool) -> None:
    """Every kernel of the others in its layer, by recurrence; the second is of the same kernels as the first."""
    net = random_net(Random(8), 6, empty=0)
    run = make_run(Random(8), net, iterations=3, backward=backward, marks=False, boundary_lines=True, warm_up=False)
    ends = [event.line for event in run.log.events if event.kind == "iteration"]
    kept = tuple(layer for layer in run.log.layers if not ends[0] < layer.line < ends[1])
    assert 0 < len(kept) < len(run.log.layers)
    found = align(run.profile, [run.with_log(layers=kept).log], Notes(), without=frozenset(["durations"])).links
    lost = [
        (place, said, by)
        for place, said, by in zip(run.places, places_of(found), found.layer_by, strict=True)
        if place is not None and place[0] == 2
    ]
    assert len(lost) >= 6
    assert lost == [(place, place, "recurrence") for place, _, _ in lost]


@pytest.mark.parametrize("iterations", [1, 3])
def test_layer_lines_without_iteration_lines_count_as_they_repeat(iterations: int) -> None:
    """A layer that comes again begins the next iteration."""
    net = random_net(Random(9), 4, empty=0)
    run = make_run(Random(9), net, iterations=iterations, marks=False, boundary_lines=True, warm_up=False)
    events = tuple(event for event in run.log.events if event.kind != "iteration")
    links = align(run.profile, [run.with_log(events=events, iterations=None).log], Notes()).links
    assert wrong_and_sure(run, links) == []
    placed = {links.iteration_of(p) for p, by in enumerate(links.layer_by) if by == "boundary stamps"}
    assert placed == set(range(1, iterations + 1))


def test_an_empty_net_and_an_empty_profile_are_no_trouble() -> None:
    """A log without layers, a profile without enqueues, or neither."""
    run = make_run(Random(1), random_net(Random(1), 3))
    nothing = FrameworkLog(source=0)
    for log in ([], [nothing], [run.log]):
        for profile in (run.profile, with_opencl(run.profile, activities=(), marks=())):
            assert len(align(profile, log, Notes()).links.layer_by) == len(profile.activities)
    assert align(run.profile, [nothing], Notes()).log_clock is None


def test_boundary_lines_that_contradict_the_marks_are_counted_and_lose() -> None:
    """Lines that stand one layer late say another layer than the marks, which are exact."""
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=2 * MS)], host_ns=0) for i in range(6)]
    run = make_run(Random(1), net, boundary_lines=True, warm_up=False)
    late = tuple(
        msgspec.structs.replace(layer, layer=next_.layer, index=next_.index)
        for layer, next_ in zip(run.log.layers, [*run.log.layers[1:], run.log.layers[0]], strict=True)
    )
    notes = Notes()
    links = align(run.profile, [run.log, FrameworkLog(source=2, layers=late)], notes).links
    assert wrong_and_sure(run, links) == []
    assert links.contradictions["boundary stamps against timer marks"] == 6
    assert any("contradicted: boundary stamps against timer marks" in note.kind for note in notes.problems)


# -- Kernels that are named after a type of layer, and what that says where times leave a choice.


@pytest.mark.parametrize(
    ("name", "layer_type", "direction", "odd"),
    [
        ("max_pool_forward_float", "Pooling", "forward", False),
        ("max_pool_forward_float", "Pooling", "backward", True),
        ("max_pool_forward_float", "ReLU", "forward", True),
        ("im2col_float", "Deconvolution", "backward", False),
        ("XgemmDirectTN", "InnerProduct", "forward", False),
        ("XgemmDirectTN", "Softmax", "forward", True),
        ("fillbuffer_float", "Softmax", "forward", False),
        ("max_pool_forward_float", "", "forward", False),
        ("mloPoolingG", "Pooling", "forward", False),
        ("mloPoolingG", "Convolution", "forward", True),
        ("MIOpenNeuronFwd", "ReLU", "forward", False),
        ("MIOpenNeuronFwd", "ReLU", "backward", True),
        ("SoftmaxBackward", "", "forward", True),
        ("OpTensorFwdBias", "Convolution", "backward", False),
        ("MIOpenCvFwd11x11", "Convolution", "backward", False),
    ],
)
def test_a_name_contradicts_types_and_directions(name: str, layer_type: str, direction: Direction, odd: bool) -> None:
    """Helpers are named after none; a layer of which nothing tells the type may have any kernel."""
    assert contradicts(name, types_of("res2a", layer_type), direction) is odd


@pytest.mark.parametrize(
    ("name", "layer", "odd"),
    [
        ("mloPoolingG", "relu5", True),
        ("mloPoolingG", "pool5", False),
        ("mloPoolingG", "inception_3a/pool", False),
        ("MIOpenConvUni", "inception_3a/pool_proj", False),
        ("mloPoolingG", "res2a", False),
        ("MIOpenActiveFwdLite", "conv5", True),
        ("MIOpenActiveFwdLite", "conv1_relu", False),
        ("MIOpenBatchNormFwdInferSpatialEst", "bn_relu_conv1", False),
        ("OpTensorFwdBias", "relu4", True),
        ("OpTensorFwdBias", "fc6", False),
        ("MIOpenLRNAcrossChannels4", "norm1", False),
        ("MIOpenNeuronFwd", "lstm1", False),
        ("mloPoolingG", "lstm1", True),
    ],
)
def test_where_the_log_tells_no_type_a_layers_name_does(name: str, layer: str, odd: bool) -> None:
    """By each of its words; a type that the log tells is the layer's."""
    assert contradicts(name, types_of(layer, ""), "forward") is odd
    assert types_of(layer, "Pooling") == {"Pooling"}


@pytest.mark.parametrize(
    ("name", "odd"),
    [("MIOpenNeuronFwd", True), ("mloPoolingG", False), ("OpTensorLeadingOnes", False), ("MIOpenConvUni", False)],
)
def test_a_net_that_names_a_type_names_all_of_it(name: str, odd: bool) -> None:
    """Where `res2a_relu` is a layer, `res2a` is none; convolutions have any name, and poolings that no layer is named
    after may be in one without words."""
    named = types_of("conv1", "") | types_of("res2a_relu", "")
    assert contradicts(name, types_of("res2a", ""), "forward", named) is odd
    assert not contradicts(name, types_of("res2a", ""), "forward")


def test_names_divide_two_layers_that_times_cannot() -> None:
    """Printed times that are a little off leave the kernel between two layers to either; its name does not."""
    kernels = [Kernel(name=name, ns=100 * US) for name in ("im2col_float", "XgemmDirectTN", "relu_forward_float")]
    net = [
        Layer(name="conv", forward=kernels[:2]),
        Layer(name="relu", forward=kernels[2:]),
        Layer(name="last", forward=[Kernel(name="XgemmDirectTN", ns=5 * MS)]),
    ]
    run = make_run(Random(4), net, marks=False, warm_up=False)
    types = {"conv": "Convolution", "relu": "ReLU", "last": "InnerProduct"}
    # The first layer's printed time is short of its second kernel, the second layer's holds both.
    times = {"conv": -100 * US, "relu": 100 * US, "last": 0}
    log = run.with_log(
        net=tuple(msgspec.structs.replace(layer, type=types[layer.layer]) for layer in run.log.net),
        layers=tuple(
            msgspec.structs.replace(
                layer, printed_ns=layer.printed_ns + times[layer.layer] * (layer.direction == "forward")
            )
            for layer in run.log.layers
        ),
    ).log
    said = places_of(align(run.profile, [log], Notes()).links)
    assert all(place in (None, of) for place, of in zip(run.places, said, strict=True))


# -- ``layers --tree``: totals of modules against the raw file; parents hold their parts; one denominator.


SAMPLES = shared_folder() / "samples" / "rocm"


nodes = partial(json_of, "layers", "--tree")


def raw_modules(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Own and total kernel time (ns) by module: those open at the launch, by time on its thread; innermost: own."""
    events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event["ph"] == "X"]
    modules = [
        (event["tid"], event["ts"], event["ts"] + event["dur"], event["name"].removeprefix("nn.Module: "))
        for event in events
        if event.get("cat") == "python_function" and event["name"].startswith("nn.Module: ")
    ]
    calls = {
        event["args"]["correlation"]: (event["tid"], event["ts"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for event in events:
        if event.get("cat") != "kernel":
            continue
        thread, at = calls[event["args"]["correlation"]]
        around = [(start, name) for tid, start, end, name in modules if tid == thread and start <= at < end]
        ns = round((event["ts"] + event["dur"]) * 1000) - round(event["ts"] * 1000)
        own[max(around)[1] if around else ""] += ns
        for name in {name for _, name in around}:
            total[name] += ns
    return own, total


@pytest.mark.shared
def test_totals_of_modules_are_those_of_the_file() -> None:
    path = SAMPLES / "kineto_mi300x_vit_infer.json.gz"
    own, total = raw_modules(path)
    found = [node for node in nodes(path) if node["kind"] == "layer"]
    assert len(found) == len({node["name"] for node in found}) > 100
    assert {node["name"]: node["total_ns"] for node in found} == pytest.approx(dict(total), abs=310)
    assert {node["name"]: node["own_ns"] for node in found} == pytest.approx({n: own[n] for n in total}, abs=310)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["kineto_mi300x_vit_infer", "kineto_mi300x_resnet_train_ddp", "kineto_mi300_bert_small"]
)
def test_what_a_node_holds_adds_up_to_it(name: str) -> None:
    """A layer's own time is that of its operations; with the layers within it, it is the total. Shares are of the same
    whole, which is that of the table of layers."""
    path = SAMPLES / f"{name}.json.gz"
    found = nodes(path)
    below: Counter[int] = Counter()
    operations: Counter[int] = Counter()
    for node in found:
        if "parent" in node:
            below[node["parent"]] += node["total_ns"]
            operations[node["parent"]] += node["total_ns"] if node["kind"] == "operation" else 0
    for node in found:
        if node["kind"] != "kernel":
            assert below[node["node"]] == pytest.approx(node["total_ns"], abs=0.01)
        if node["kind"] == "layer":
            assert operations[node["node"]] == pytest.approx(node["own_ns"], abs=0.01)
        assert node["percent_of_kernel_time"] == pytest.approx(100 * node["total_ns"] / found[0]["total_ns"])
    of_layers: Counter[str] = Counter()
    for one in json_of("layers", path):
        of_layers[one["layer"]] += one["kernel_ns"]
    own = {node["name"]: node["own_ns"] for node in found if node["kind"] == "layer"}
    assert {name: own[name] for name in of_layers} == pytest.approx(dict(of_layers))


def test_layers_of_a_log_are_a_flat_tree() -> None:
    """Caffe's log names no layer within another."""
    folder = ROOT / "traces" / "alexnet-b1-train"
    found = nodes(folder / "run.log", folder / "prof.json.gz")
    assert {node["level"] for node in found if node["kind"] == "layer"} == {1}
    assert [node for node in found if node["kind"] == "operation" and node["level"] == 2]


def nested(depth: int, *, turned: bool = False) -> bytes:
    """A module in a module, each ``depth`` deep; with ``turned`` a second call nests them the other way round."""
    events = []
    for base, order in ((0, 1), (100_000, -1)) if turned else ((0, 1),):
        for level, number in enumerate(list(range(depth))[::order]):
            events.append(row("python_function", f"nn.Module: M_{number}", 1, 1, base + level, 10_000 - 2 * level))
        call = base + depth + 10
        events.append(row("cuda_runtime", "hipLaunchKernel", 1, 1, call, 5, correlation=7 + base))
        events.append(row("kernel", "k", 0, 0, call + 20, 100, correlation=7 + base, device=0, stream=0))
    return trace(events)


@pytest.mark.parametrize(("depth", "turned"), [(3, False), (2, True), (200, False), (200, True)])
def test_any_nesting_ends(depth: int, turned: bool, tmp_path: Path) -> None:
    """Modules that call each other in turn are no endless tree; of very deep ones the outermost are left out."""
    found = nodes(saved(tmp_path / "trace.json", nested(depth, turned=turned)))
    layers = [node for node in found if node["kind"] == "layer"]
    assert sum(node["own_ns"] for node in layers) == pytest.approx(found[0]["total_ns"])
    assert max(node["level"] for node in layers) == min(depth, 64)
    if depth == 3:
        assert [node["tree"] for node in layers] == ["  M_0", "    M_1", "      M_2"]


# -- ``mio2trace layers`` on CK records: layers and whole-run times over their repetitions.


POINTS = sorted((shared_folder() / "samples").glob("ck/**/ckp-*.0001.json"))


of_points = pytest.mark.parametrize("path", POINTS, ids=lambda path: f"{path.parent.name[:30]}/{path.name[4:12]}")


TIMES = ("time_fw", "time_bw", "time_fwbw", "time_total")


def succeeded(path: Path) -> list[dict[str, Any]]:
    """The repetitions that count."""
    runs = [one["run"] for one in json.loads(path.read_bytes())["characteristics_list"]]
    return [one for one in runs if one["run_success"] == "yes"] or runs


def is_time(ms: float) -> bool:
    """More is a difference that went below zero and was printed unsigned."""
    return ms < 10**10


def test_there_are_points() -> None:
    assert len(POINTS) == 10 or not (shared_folder() / "samples").is_dir()


@of_points
def test_cks_repetitions(pandas: Any, path: Path) -> None:
    """Mean, deviation, extremes of each layer over the repetitions, by pandas from the record itself."""
    frame = pandas.DataFrame(
        {
            "key": (entry["index"], re.sub(r"^\d+: ", "", entry["label"]), entry["direction"]),
            "ns": round(entry["time_ms"] * 1_000_000),
        }
        for one in succeeded(path)
        for entry in one["per_layer_info"]
        if is_time(entry["time_ms"])
    )
    groups = frame.groupby("key")["ns"]
    done = run(path)
    found = {(int(row["layer_index"]), row["layer"], row["direction"]): row for row in rows(done)}
    assert set(found) == set(groups.groups)
    for key, expected in groups:
        row = found[key]
        assert int(row["printed_count"]) == len(expected)
        assert float(row["printed_ns"]) == pytest.approx(expected.mean(), rel=1e-12)
        if len(expected) > 1:
            assert float(row["printed_std_ns"]) == pytest.approx(expected.std(), rel=1e-9, abs=1e-3)
            assert (int(row["printed_min_ns"]), int(row["printed_max_ns"])) == (expected.min(), expected.max())
        else:
            assert row["printed_std_ns"] == ""
    assert ("repetitions" in done.stderr) == (len(succeeded(path)) > 1)


@of_points
def test_cks_execution_times(pandas: Any, path: Path) -> None:
    runs = succeeded(path)
    done = run(path, "--times", "--unit", "ms", "--format", "json")
    found = {row["measure"]: row for row in json.loads(done.stdout)}
    told = {measure: [one[f"{measure}_ms"] for one in runs if f"{measure}_ms" in one] for measure in TIMES}
    expected = {measure: list(filter(is_time, values)) for measure, values in told.items()}
    assert set(found) == {measure for measure, values in expected.items() if values}
    for measure, times in found.items():
        series = pandas.Series(expected[measure])
        assert times["values_ms"] == pytest.approx(series.tolist(), abs=1e-6)
        assert times["count"] == len(series)
        assert times["mean_ms"] == pytest.approx(series.mean(), abs=1e-6)
        if len(series) > 1:
            assert times["std_ms"] == pytest.approx(series.std(), rel=1e-6, abs=1e-6)
            percent = 100 * series.std() / series.mean() if series.mean() else 0
            assert times.get("std_percent", 0) == pytest.approx(percent, rel=1e-6)
    assert ("time that cannot be one left out" in done.stderr) == (told != expected)


def record(tmp_path: Path, repetitions: int = 3) -> Path:
    """A record whose repetitions hold their profiles; the second says that it failed."""
    runs = []
    for number in range(repetitions):
        calls, _ = benchmark(iterations=2, kernels=number + 1)
        layers = [
            {"direction": "forward", "index": index, "label": f"{index:02}: {name}", "time_ms": 0.1 * (number + 1)}
            for index, name in enumerate(("conv1", "ip1"))
        ]
        runs.append({"run": {
            "per_layer_info": layers, "dvdt_prof": json.loads(as_json(calls)), "time_fw_ms": 1.5 * (number + 1),
            "run_success": "no" if number == 1 else "yes", "REAL_ENV_CK_CAFFE_ITERATIONS": 2,
        }})  # fmt: skip
    return saved(tmp_path / "ckp-0123456789abcdef.0001.json", json.dumps({"characteristics_list": runs}))


def test_a_record_with_profiles_joins_each_repetition_with_its_own(tmp_path: Path) -> None:
    path = record(tmp_path)
    done = run(path)
    found = rows(done)
    assert [(row["layer"], row["printed_ns"], row["iterations"], row["kernels"]) for row in found] == [
        ("conv1", "200000", "4", "2"), ("ip1", "200000", "4", "2"),  # 1 and 3 kernels, twice each
    ]  # fmt: skip
    assert found[0]["kernel_ns"] == "94000"
    assert "1 x" not in done.stderr
    assert "repetition without success or without data left out" in done.stderr
    assert {row["repetition"] for row in rows(run(path, "--each"))} == {"0", "1"}
    times = rows(run(path, "--times"))
    assert [(row["measure"], row["count"], row["mean_ns"], row["values_ns"]) for row in times] == [
        ("time_fw", "2", "3000000", "1500000; 4500000")
    ]
    one = rows(run(path, "--repetition", "1"))
    assert (one[0]["printed_ns"], one[0]["kernels"]) == ("200000", "2")
    assert run(path, "--repetition", "3").exit_code == 1
    assert "no repetition 3; it has 3" in run(path, "--repetition", "3").stderr
    assert rows(run("-", stdin=gzip.compress(path.read_bytes()))) == found


@pytest.mark.parametrize(
    ("repetitions", "wanted", "said"),
    [
        ([], 0, "no repetition 0; it has 0"),
        ([], 3, "no repetition 3; it has 0"),
        (None, 1, "no repetition 1; it has 1"),
        (None, 0, ""),
    ],
)
def test_error_a_repetition_that_a_record_does_not_have(
    tmp_path: Path, repetitions: list[dict[str, Any]] | None, wanted: int, said: str
) -> None:
    """Of a record without any, and of one that is a single run; another one is never taken in its place."""
    single = {"per_layer_info": [{"label": "00: conv1", "index": 0, "direction": "forward", "time_ms": 1.5}]}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(single if repetitions is None else {"characteristics_list": repetitions}))
    done = run(path, "--repetition", str(wanted))
    assert (done.exit_code, said in done.stderr) == (int(bool(said)), True)
    assert "a fault of the program" not in done.stderr


def test_a_ck_directory(shared: Path) -> None:
    folder = shared / "samples" / "ck" / "ck-caffe-firefly-rk3399"
    done = run(folder, "--tags", "deepscale-squeezenet-1.1")
    assert len(rows(done)) == 150 - 8  # eight times of months, in each repetition
    assert "24 x layer entry that could not be read" in done.stderr
    assert "took the only point that fits" in done.stderr


def test_a_record_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ckp-0.0001.json"
    for text in (
        '{"characteristics_list": []}',
        '{"characteristics_list": [{"run": {}}]}',
        '{"characteristics_list": 3}',
    ):
        path.write_text(text)
        done = run(path)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"mio2trace: {path.name}:")


def test_a_program_without_marks_and_log(tmp_path: Path) -> None:
    """Layers of a record beside a profile of another program: nothing is attributed by force, and the line says why."""
    program = Program()
    program.enqueue("k", "0x60")
    (tmp_path / "prof.json").write_bytes(as_json(program.calls))
    entry = [{"direction": "forward", "index": 0, "label": "00: conv1", "time_ms": 1.0, "timestamp": ""}]
    said = stderr_of(run(saved(tmp_path / "layers.json", json.dumps(entry)), tmp_path / "prof.json"), 1)
    assert "log not used: nothing in it fits this profile (layers.json)" in said
    (row,) = rows(run(tmp_path / "layers.json"))
    assert (row["printed_ns"], row["kernels"]) == ("1000000", "")


# -- Replays of a graph whose kernels the profile does not name: each is an iteration of those that the log asked for.


@pytest.mark.parametrize("replays", [3, 400])
def test_nameless_replays_are_iterations_however_many_there_are(replays: int) -> None:
    """Columns make records in blocks, anew each time: what one launch replayed may lie in two of them."""
    launches = [Call("hipGraphLaunch", 0, 1000 * at, 1000 * at + 1) for at in range(replays + 1)]
    kernels = [
        Activity(3 * at + place, "kernel", f"k{place}" if not at else "Task", start_ns=1000 * at + 10 * place + 5,
                 end_ns=1000 * at + 10 * place + 9, call=launch)
        for at, launch in enumerate(launches) for place in range(3)
    ]  # fmt: skip
    table = Activities(kernels)
    profile = Profile(source=0, records=len(kernels), activities=table.take(slice(None)))
    log = FrameworkLog(source=1, iterations=replays + 1)
    net = Net().with_layers([(0, "conv1", "")], backward=False)
    attribution = Attribution(profile=profile, notes=Notes(), logs=(log,), net=net)
    links = attribution.links
    first = links.pass_id("iteration", 1, "forward")
    links.give_layer([0, 1, 2], attribution.run_for(first, (0, "forward")), TIMER_MARKS)
    place_nameless_replays(attribution)
    numbers = [links.passes[pass_].iteration for pass_ in links.pass_of]
    assert numbers == [1 + position // 3 for position in range(len(kernels))]
    assert {links.runs[number].layer for number in links.run_of} == {"conv1"}
    assert set(links.layer_by) == {TIMER_MARKS, ORDER}
