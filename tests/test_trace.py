"""The whole picture of random profiles: what must hold whatever went in."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import mio2trace
from mio2trace import summary
from mio2trace.align import NONE, Alignment, align
from mio2trace.draw import BuildOptions, RunToDraw, build
from mio2trace.measures import Measures
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Activity, BufferCreated, Call, Profile, Queue
from mio2trace.notes import Notes
from mio2trace.trace import Event, Flow, InvariantError, Process, Slice, Trace, Track, checked
from tests.records import changed, with_opencl
from tests.synthetic_run import MS, SECOND, US, Clocks, Run, make_run, random_net

HostCalls = Literal["all", "enqueue", "none"]
seeds = st.integers(0, 2**32 - 1).map(Random)
FAR = {"queued_ns": None, "submit_ns": None, "start_ns": None, "end_ns": None}
BARE = {"host_start_ns": None, "host_end_ns": None, "prepared_ns": None}


def tangled(rng: Random) -> Run:
    """Several queues on two devices, kernels that overlap, take no time or have no times, in and outside of layers."""
    run = make_run(
        rng,
        random_net(rng, rng.randint(1, 6)),
        iterations=rng.randint(1, 2),
        backward=rng.random() < 0.5,
        marks=rng.random() < 0.7,
        boundary_lines=rng.random() < 0.3,
        tail=2,
        extra_fills=True,
        clocks=Clocks(drift=rng.choice([0, 0, 80e-6]), zone_ns=3600 * SECOND),
    )
    queues = rng.choice([1, 1, 3])
    messy = rng.random() < 0.6
    enqueues: list[Activity] = []
    for enqueue in run.profile.activities:
        if queues > 1:
            enqueue = changed(enqueue, queue=rng.randrange(queues))
        if messy and rng.random() < 0.1:
            enqueue = changed(enqueue, **FAR)
        elif messy and rng.random() < 0.2:
            longer = rng.choice([-1, 1, 1]) * rng.randint(0, 2 * MS)
            assert enqueue.start_ns is not None
            assert enqueue.end_ns is not None
            enqueue = changed(enqueue, end_ns=max(enqueue.start_ns, enqueue.end_ns + longer))
        if messy and rng.random() < 0.05:
            enqueue = changed(enqueue, **BARE)
        enqueues.append(enqueue)
    last = run.profile.records
    calls = tuple(
        Call("clBuildProgram", 0, e.host_end_ns, e.host_end_ns, number=number)
        for number, e in zip(range(last, last + 3), enqueues, strict=False)
    )
    buffers = tuple(
        BufferCreated(number=last + 3 + n, handle=rng.choice("ab"), size_bytes=n * 1000, end_ns=e.host_end_ns)
        for n, e in zip(range(4), enqueues, strict=False)
    )
    profile = with_opencl(
        run.profile,
        activities=tuple(enqueues),
        queues=tuple(Queue(index=i, device=i // 2, handle=str(i)) for i in range(queues)),
        other_calls=calls,
        buffers=buffers,
    )
    return Run(profile=profile, log=run.log, places=run.places, starts=run.starts)


def picture(run: Run, host_calls: HostCalls = "enqueue", logs: bool = True) -> tuple[Trace, Alignment]:
    notes = Notes()
    log: list[FrameworkLog] = [run.log] if logs else []
    alignment = align(run.profile, log, notes)
    facts = summary.metadata("test", [], [Measures(alignment)])
    drawn = RunToDraw(measures=[Measures(alignment)], logs=log)
    return build([drawn], BuildOptions(host_calls=host_calls), facts, notes), alignment


def drawn(profile: Profile) -> dict[int, Activity]:
    return {e.number: e for e in profile.activities if e.start_ns is not None and e.end_ns is not None}


def arguments(event: Slice) -> dict[str, Any]:
    return {**event.shared, **event.args}


@given(seeds, st.sampled_from(["all", "enqueue", "none"]), st.booleans())
def test_the_invariants_hold_for_any_profile(rng: Random, host_calls: HostCalls, logs: bool) -> None:
    """No kernel lost, doubled or altered; children inside parents; siblings disjoint; no arrow back; the same again."""
    run = tangled(rng)
    trace, alignment = picture(run, host_calls, logs)
    expected = {number: ((e.start_ns or 0), (e.end_ns or 0), e.queue) for number, e in drawn(run.profile).items()}
    events = list(checked(trace, len(expected), sum(end - start for start, end, _ in expected.values())))
    kernels = {a["call_index"]: e for e in slices(events, "kernel", "copy") if (a := arguments(e))}
    assert kernels.keys() == expected.keys()
    shifts: dict[int, set[int]] = {}
    for index, event in kernels.items():
        start, end, queue = expected[index]
        assert event.dur_ns == end - start
        shifts.setdefault(run.profile.queues[queue].device, set()).add(event.start_ns - start)
    assert all(len(shift) == 1 for shift in shifts.values())
    again, _ = picture(run, host_calls, logs)
    assert list(trace.events()) == list(again.events()) == events
    assert again.metadata == trace.metadata
    assert len(alignment.links.layer_by) == len(run.profile.activities)


def slices(events: list[Event], *categories: str) -> Iterator[Slice]:
    return (event for event in events if isinstance(event, Slice) and event.category in categories)


@given(seeds)
def test_layers_and_passes_sum_what_they_hold(rng: Random) -> None:
    """``kernels`` and ``kernel_ns`` are of the kernels inside the slice, and only of those with its own arguments."""
    trace, _ = picture(tangled(rng))
    events = list(trace.events())
    devices = {track.id for track in trace.tracks if track.process >= 100}
    commands = list(slices(events, "kernel", "copy"))
    for parent in slices(events, "layer", "pass"):
        begin, end = parent.start_ns, parent.start_ns + parent.dur_ns
        inside = [
            e for e in commands if e.track == parent.track and begin <= e.start_ns and e.start_ns + e.dur_ns <= end
        ]
        if parent.track not in devices or any(event.dur_ns == 0 for event in inside):
            continue  # one without duration stands on a border, inside both or neither
        args = arguments(parent)
        own = [e for e in inside if parent.category == "pass" or arguments(e).get("layer") == args["layer"]]
        kernels = [event.dur_ns for event in own if event.category == "kernel"]
        assert (args["kernels"], args["kernel_ns"]) == (len(kernels), sum(kernels))
        assert (begin, end) == (min(e.start_ns for e in own), max(e.start_ns + e.dur_ns for e in own))


@given(seeds, st.booleans())
def test_arguments_are_what_the_contract_says(rng: Random, logs: bool) -> None:
    """Absent when unknown, one type per key, set-up without an iteration, the warm-up as iteration 0."""
    run = tangled(rng)
    trace, alignment = picture(run, logs=logs)
    links = alignment.links
    position = {enqueue.number: number for number, enqueue in enumerate(run.profile.activities)}
    types: dict[str, set[type]] = {}
    for event in slices(list(trace.events()), "kernel", "copy", "layer", "pass"):
        args = arguments(event)
        for key, value in args.items():
            types.setdefault(key, set()).add(type(value))
        if event.category == "pass" and args.get("phase") == "setup":
            assert "iteration" not in args
        if event.category not in ("kernel", "copy"):
            continue
        at = position[args["call_index"]]
        assert ("layer" in args) == ("layer_by" in args) == (links.run_of[at] != NONE)
        assert args.get("sure", True) == (at not in links.layer_unsure)
        if "layer" in args:
            held = links.runs[links.run_of[at]]
            assert args["layer"] == held.layer
            assert args["direction"] == held.direction
            assert args["iteration"] == links.passes[held.pass_].iteration
            assert "phase" not in args
        else:
            assert not {"layer", "layer_index", "direction", "sure"} & args.keys()
        assert ("bytes" in args) == ("copy_direction" in args) == (event.category == "copy")
    assert all(len(kinds) == 1 for kinds in types.values())
    assert type(None) not in {kind for kinds in types.values() for kind in kinds}


@given(seeds)
def test_every_arrow_leads_from_a_call_to_a_kernel(rng: Random) -> None:
    trace, _ = picture(tangled(rng), "all")
    events = list(trace.events())
    begins, calls = (
        {(e.track, e.start_ns) for e in slices(events, *kinds)} for kinds in (("kernel", "copy"), ("api",))
    )
    flows = [event for event in events if isinstance(event, Flow)]
    assert len({flow.id for flow in flows}) == len(flows)
    for flow in flows:
        assert flow.from_ns <= flow.to_ns
        assert (flow.to_track, flow.to_ns) in begins
        assert (flow.from_track, flow.from_ns) in calls


@given(seeds)
def test_layers_on_the_host_are_those_of_the_marks(rng: Random) -> None:
    """A layer that launches nothing is there too; each spans the kernels that it launched."""
    trace, alignment = picture(make_run(rng, random_net(rng, 6, empty=0.5), backward=True, iterations=2))
    host = next(track.id for track in trace.tracks if track.name == "Layers on the host")
    events = list(trace.events())
    layers = [event for event in slices(events, "layer") if event.track == host]
    assert Counter(event.name for event in layers) == {f"layer{n}": 4 for n in range(6)}

    def place(event: Slice) -> list[Any]:
        return [arguments(event).get(key) for key in ("layer", "direction", "iteration")]

    error = alignment.clocks[0].error_ns
    for kernel in slices(events, "kernel", "copy"):
        if arguments(kernel).get("iteration"):
            (span,) = (event for event in layers if place(event) == place(kernel))
            assert span.start_ns - error <= kernel.start_ns
            assert kernel.start_ns + kernel.dur_ns <= span.start_ns + span.dur_ns + error + 2 * US


@given(seeds)
def test_the_summary_adds_up(rng: Random) -> None:
    run = tangled(rng)
    _, alignment = picture(run)
    found = summary.attribution([Measures(alignment)])
    assert sum(found["layer_by"].values()) + found["unattributed"] == found["kernels"] + found["copies"]
    assert found["kernels"] + found["copies"] == len(run.profile.activities)
    assert found.get("without_device_times", 0) == len(run.profile.activities) - len(drawn(run.profile))
    assert found["unsure"] == len(alignment.links.layer_unsure)
    kernels = [e for e in drawn(run.profile).values() if e.kind == "kernel"]
    assert sum(found["kernel_ns"].values()) == sum((e.end_ns or 0) - (e.start_ns or 0) for e in kernels)


def trace_of(*events: Event) -> Trace:
    return Trace(
        processes=(Process(id=1, name="p"),),
        tracks=(Track(id=1, process=1, name="t"),),
        metadata={},
        parts=(lambda: iter(events),),
    )


def one(start: int, duration: int, category: str = "layer", track: int = 1, **args: Any) -> Slice:
    return Slice(track, start, duration, "s", category, args)


SOUND = [
    one(0, 10), one(0, 10), one(0, 5, "kernel", layer="a", layer_by="order"), one(5, 5, "copy"), one(10, 3), one(10, 0),
]  # fmt: skip
"""Nested, equal and touching slices are no overlap."""


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([one(0, 10), one(5, 10)], "overlaps"),
        ([one(0, 10), one(0, 20)], "out of order"),
        ([one(5, 1), one(0, 1)], "out of order"),
        ([one(-1, 5)], "below zero"),
        ([one(0, -5)], "below zero"),
        ([one(0, 5, track=7)], "no such track"),
        ([Flow(1, "f", 1, 10, 1, 9)], "back in time"),
        ([one(0, 5, "kernel")], "drawn"),
        ([one(0, 10, "kernel", layer="a")], "without its evidence"),
        ([one(0, 10, "kernel", layer_by="order")], "without its evidence"),
    ],
)
def test_a_broken_picture_is_found_and_a_sound_one_passes(events: list[Event], complaint: str) -> None:
    with pytest.raises(InvariantError, match=complaint):
        list(checked(trace_of(*events), 0, 0))
    assert list(checked(trace_of(*SOUND), 2, 10)) == SOUND
    in_part = replace(trace_of(*SOUND), left_out=1, left_out_ns=7)
    assert list(checked(in_part, 3, 17)) == SOUND
    with pytest.raises(InvariantError, match="2 kernels and copies of 10 ns drawn and 1 of 7 ns left out, 2 of 10 ns"):
        list(checked(in_part, 2, 10))


# -- The runs kept in traces/: what we make of them is exact, and true.


TRACES = Path(__file__).resolve().parent.parent / "traces"
RUNS = sorted(folder.name for folder in TRACES.iterdir() if folder.is_dir())
assert len(RUNS) >= 2


@functools.cache
def written(run: str, *without: str) -> bytes:
    inputs = [path for path in sorted((TRACES / run).iterdir()) if not re.search(r"\.(trace|truth)\.json$", path.name)]
    output = io.BytesIO()
    mio2trace.convert(*inputs, output=output, check=True, without=without)
    return output.getvalue()


def convert(run: str, *without: str) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(written(run, *without))
    return trace


@functools.cache
def truth_of(run: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((TRACES / run / f"{run}.truth.json").read_bytes())
    return truth


def call_of(numbers: dict[str, Any]) -> int:
    """What the profile calls a launch."""
    return int(numbers["call_index"] if "call_index" in numbers else numbers["correlation_id"])


def commands(trace: dict[str, Any], *kinds: str) -> dict[int, dict[str, Any]]:
    """Arguments of kernels and copies by the number of their call."""
    found = [event["args"] for event in trace["traceEvents"] if event.get("cat") in (kinds or ("kernel", "copy"))]
    by_call = {call_of(args): args for args in found}
    assert len(by_call) == len(found)
    return by_call


def told(trace: dict[str, Any], truth: dict[int, Any]) -> dict[int, dict[str, Any]]:
    """`commands` that the truth tells of: every kernel, and copies where it recorded them."""
    assert commands(trace, "kernel").keys() <= truth.keys()
    return {call: args for call, args in commands(trace).items() if call in truth}


def expected_layers(run: str) -> dict[int, tuple[str, int, str | None, int] | None]:
    """(layer, index, direction, iteration) by the number of the call, None outside any layer."""
    layers = [
        (
            layer["layer"],
            layer["layer_index"],
            layer["direction"],
            0 if layer["pass"] == "init" else int(layer["pass"].removeprefix("iter")) + 1,
        )
        for layer in truth_of(run)["layers"]
    ]
    return {call_of(e): None if e["l"] is None else layers[e["l"]] for e in truth_of(run)["enqueues"]}


@pytest.mark.parametrize("run", RUNS)
def test_trace_is_the_golden_one(run: str, golden: Callable[[Path, bytes], None]) -> None:
    # The version, and the checksum with it, is the one thing that may change without the picture changing.
    text = written(run).replace(f"mio2trace {mio2trace.__version__}".encode(), b"mio2trace VERSION")
    assert text.count(b"mio2trace VERSION") == 1
    text, sums = re.subn(rb'"crc32":"[0-9a-f]{8}"\}\}\n\Z', b'"crc32":"CHECKSUM"}}\n', text)
    assert sums == 1
    golden(TRACES / run / f"{run}.trace.json", text)


@pytest.mark.parametrize("run", RUNS)
def test_every_kernel_and_copy_is_in_its_true_layer(run: str) -> None:
    expected = expected_layers(run)
    shown = {
        call: (a["layer"], a["layer_index"], a.get("direction"), a["iteration"]) if "layer" in a else None
        for call, a in told(convert(run), expected).items()
    }
    assert shown == expected


@pytest.mark.parametrize("run", RUNS)
def test_without_timer_marks_iteration_1_stays_true(run: str) -> None:
    shown = commands(convert(run, "timer marks"))
    for call, layer in expected_layers(run).items():
        if layer is not None and layer[3] == 1:
            assert shown[call].get("layer") == layer[0], (call, layer)
            assert shown[call]["layer_by"] in ("durations", "boundary stamps", "range")


@pytest.mark.parametrize("run", RUNS)
def test_every_kernel_is_in_its_true_call(run: str) -> None:
    """Where the run called MIOpen: a kernel's operation stands on the line of the log where its call does."""
    trace = convert(run)
    expected = {call_of(enqueue): enqueue.get("line") for enqueue in truth_of(run)["enqueues"]}
    slices = [event["args"] for event in trace["traceEvents"] if event.get("cat") == "operation"]
    line_of = {args["operation"]: args["line"] for args in slices}
    shown = {call: line_of.get(args.get("operation")) for call, args in told(trace, expected).items()}
    assert shown == expected


def test_a_link_by_range_is_explained(tmp_path: Path) -> None:
    """There was nothing to choose: the profile tells the operation, or that there is none."""
    files = [TRACES / "lenet-rocpd" / name for name in ("run.log.gz", "results.db.gz")]
    report = mio2trace.convert(*files, output=tmp_path / "out.json", explain=["kernel 29", "kernel 31"]).report
    at = next(number for number, line in enumerate(report) if line.startswith("kernel 29: OpTensorFwdBias"))
    assert report[at + 1] == "  layer: conv2, iteration 1 · forward, by range"
    assert report[at + 2] == "  operation 9, line 440: Bias fwd 2x50x8x8, by range"
    assert report[-3].startswith("kernel 31: inner_product")
    assert report[-1] == "  operation: none"


def test_no_run_tells_of_the_machine_that_it_was_measured_on() -> None:
    """Databases of ROCm hold the environment: `reduce.py` takes it out, with the names of host and user."""
    content = gzip.decompress((TRACES / "lenet-rocpd" / "results.db.gz").read_bytes())
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        processes = database.execute("SELECT command, environment, extdata FROM rocpd_info_process").fetchall()
        nodes = database.execute("SELECT machine_id, hostname FROM rocpd_info_node").fetchall()
    assert (processes, nodes) == ([("", "{}", "{}")], [("", "")])
    assert b"/home/" not in content
