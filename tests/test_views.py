"""What is drawn besides the nested track, and that nothing is counted twice for it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mio2trace
from mio2trace.align import align
from mio2trace.draw import BuildOptions, RunToDraw, build
from mio2trace.measures import Measures
from mio2trace.model.profile import Queue
from mio2trace.notes import Notes, OptionError
from mio2trace.trace import CounterValue, Slice, Trace
from tests.records import enqueued, opencl_profile
from tests.test_selection import CONTAINERS, MIOPEN, TRAIN, args, by_call, convert, slices

THREE_DIGITS = 5e-3
"""How far a rate of three digits is from the rate itself, as a part of it: half of its last digit, in 1.00."""

RESNET = "samples/miopen-opencl/m290-resnet-train-entries-cmd"


def tracks(trace: Trace) -> dict[int, str]:
    return {track.id: track.name for track in trace.tracks}


def processes(trace: Trace) -> dict[int, str]:
    """Track -> the name of its process."""
    names = {process.id: process.name for process in trace.processes}
    return {track.id: names[track.process] for track in trace.tracks}


def values(trace: Trace, name: str) -> dict[int, float]:
    """Return the values of a counter by time."""
    return {one.time_ns: one.value for one in trace.events() if isinstance(one, CounterValue) and one.name == name}


# ---- more tracks


@pytest.mark.parametrize("files", [MIOPEN, TRAIN], ids=["miopen", "train"])
def test_a_row_for_each_kernel_name(files: tuple[Path, ...]) -> None:
    plain, more = convert(files).trace, convert(files, tracks=["kernels"]).trace
    assert [e for e in more.events() if getattr(e, "category", "") != "kernel by name"] == list(plain.events())
    kernels = {args(event)["call_index"]: event for event in slices(plain, "kernel")}
    rows = {args(event)["call_index"]: event for event in slices(more, "kernel by name")}
    assert len(slices(more, "kernel by name")) == len(rows)
    assert rows.keys() == kernels.keys()
    for call, event in rows.items():
        kernel = kernels[call]
        assert (event.start_ns, event.dur_ns) == (kernel.start_ns, kernel.dur_ns)
        assert (processes(more)[event.track], tracks(more)[event.track]) == ("Kernels by name", kernel.name)
        assert event.name == args(kernel).get("layer", "(no layer)")
        assert args(event).get("operation") == args(kernel).get("operation")
    time: Counter[str] = Counter()
    for event in kernels.values():
        time[event.name] += event.dur_ns
    shown = [track.name for track in more.tracks if processes(more)[track.id] == "Kernels by name"]
    assert shown == sorted(time, key=lambda name: (-time[name], name))


def test_a_row_for_each_type_of_operation() -> None:
    plain, more = convert(MIOPEN).trace, convert(MIOPEN, tracks=["operations"]).trace
    nested = [e for e in slices(plain, "operation") if args(e)["kernels"]]
    rows = slices(more, "operation by type")
    assert Counter((e.start_ns, e.dur_ns, e.name, args(e)["operation"]) for e in rows) == Counter(
        (e.start_ns, e.dur_ns, e.name, args(e)["operation"]) for e in nested
    )
    assert {tracks(more)[event.track] for event in rows} >= {"Find Conv fwd calls", "Conv fwd calls"}
    for event in rows:
        assert event.name.startswith(tracks(more)[event.track].removesuffix(" calls"))


def test_words_that_are_none_are_refused() -> None:
    with pytest.raises(OptionError, match="no such tracks: layers; expected kernels, operations"):
        mio2trace.convert(*TRAIN, tracks=["layers"])
    with pytest.raises(OptionError, match="no such fold: iterations; expected find, set-up, warm-up"):
        mio2trace.convert(*TRAIN, fold=["iterations"])


# ---- what is folded


def test_the_warm_up_stands_on_a_track_of_its_own() -> None:
    plain, folded = convert(TRAIN).trace, convert(TRAIN, fold=["warm-up", "set-up"]).trace
    where = {call: tracks(folded)[event.track] for call, event in by_call(folded).items()}
    for call, event in by_call(folded).items():
        found = args(event)
        if found.get("iteration") == 0:
            assert where[call].startswith("Warm-up: ")
        elif found.get("phase") == "setup":
            assert where[call].startswith("Set-up: ")
        else:
            assert where[call] == "Layers > kernels"
    assert set(where.values()) == {"Layers > kernels", "Warm-up: layers > kernels"}  # its set-up ran nothing
    plain_events, again = (
        Counter(repr(msgspec.structs.replace(e, track=0)) for e in slices(trace, "kernel", "copy", "layer", "pass"))
        for trace in (plain, folded)
    )
    assert plain_events == again, "only the tracks differ"


def test_searches_stand_on_a_track_of_their_own() -> None:
    folded = convert(MIOPEN, fold=["find"]).trace
    names = tracks(folded)
    for event in slices(folded, "operation"):
        if args(event)["kernels"]:
            assert names[event.track].startswith("Find: ") == (args(event)["phase"] == "find")
    assert sum(name.startswith("Find: ") for name in names.values()) == 1
    order = [track.name for track in folded.tracks if processes(folded)[track.id].startswith("Device")]
    assert order[0] == "Layers > operations > kernels", "the iterations come first"


# ---- the host's side


def test_calls_are_drawn_where_the_host_made_them() -> None:
    """A call reaches from its first enqueue to its last; a call without kernels lies on the host's side only."""
    trace = convert(MIOPEN, host_calls="all").trace
    enqueues = {args(e)["call_index"]: e for e in slices(trace, "api") if e.name.startswith("clEnqueue")}
    of_call: dict[int, list[Slice]] = defaultdict(list)
    for call, kernel in by_call(trace).items():
        if "operation" in args(kernel):
            of_call[args(kernel)["operation"]].append(enqueues[call])
    drawn = {args(event)["operation"]: event for event in slices(trace, "call") if "operation" in args(event)}
    assert drawn.keys() == of_call.keys()
    for index, calls in of_call.items():
        event = drawn[index]
        assert tracks(trace)[event.track] == "MIOpen calls"
        assert event.start_ns <= min(call.start_ns for call in calls)
        assert event.start_ns + event.dur_ns == max(call.start_ns + call.dur_ns for call in calls)
    assert not slices(convert(MIOPEN, host_calls="none").trace, "call", "api")
    assert convert(MIOPEN, host_calls="none").trace.arrows == ()


def test_calls_without_kernels_lie_between_their_neighbours(shared: Path) -> None:
    folder = shared / RESNET
    result = mio2trace.convert(folder / "run.log", folder / "prof.json", check=True)
    calls = slices(result.trace, "call")
    idle = [e for e in slices(result.trace, "operation", "call") if args(e).get("host_by") == "lines around it"]
    assert sum(args(e).get("calls", 1) for e in idle) == result.metadata["attribution"]["operations_without_kernels"]
    with_kernels = sorted((args(e)["line"], e.start_ns, e.start_ns + e.dur_ns) for e in calls if "operation" in args(e))
    for event in idle:
        line = args(event)["line"]
        assert max(end for at, _, end in with_kernels if at < line) <= event.start_ns
        assert event.start_ns + event.dur_ns <= min(start for at, start, _ in with_kernels if at > line)
        assert processes(result.trace)[event.track] == "Host"


# ---- counters and help


def test_the_rates_are_those_of_the_operations() -> None:
    trace = convert(MIOPEN).trace
    rate, traffic = values(trace, "Operations"), values(trace, "Memory traffic")
    ran = {e.start_ns: args(e)["gflops"] for e in slices(trace, "operation") if args(e).get("gflops")}
    moved = {event.start_ns: args(event)["bytes"] / event.dur_ns for event in slices(trace, "copy")}
    for event in slices(trace, "operation"):
        told = args(event)
        if told["phase"] == "run" and told.get("bytes_min") and told.get("kernel_ns"):
            moved[event.start_ns] = told["bytes_min"] / told["kernel_ns"]
    assert ran
    assert {at: rate[at] for at in ran} == pytest.approx(ran, rel=THREE_DIGITS)
    assert {at: traffic[at] for at in moved} == pytest.approx(moved, rel=THREE_DIGITS)
    assert [*traffic.values()][-1] == 0


@pytest.mark.parametrize("files", [MIOPEN, TRAIN], ids=["miopen", "train"])
def test_busy_shares_add_up_to_the_time_of_all_commands(files: tuple[Path, ...]) -> None:
    trace = convert(files).trace
    steps = [*values(trace, "Device busy").items()]
    assert all(0 <= share <= 100 for _, share in steps)
    assert steps[-1][1] == 0
    busy = sum(share / 100 * (end - start) for (start, share), (end, _) in itertools.pairwise(steps))
    ran = sum(event.dur_ns for event in slices(trace, "kernel", "copy"))
    whole = steps[-1][0] - steps[0][0]
    assert busy == pytest.approx(ran, abs=0.0006 * whole)  # shares have one digit


def test_groups_tracks_and_counters_have_help() -> None:
    trace = convert(MIOPEN, tracks=["kernels", "operations"], fold=["find"]).trace
    assert all(process.description for process in trace.processes)
    nested = [track for track in trace.tracks if " by " not in processes(trace)[track.id]]
    assert all(track.description for track in nested)
    names = {event.name for event in trace.events() if isinstance(event, CounterValue)}
    assert names <= trace.counter_descriptions.keys()


# ---- the rate of a GEMM of several kernels


def test_the_leastof_a_gemm_is_over_all_of_its_kernels(shared: Path) -> None:
    """ViennaCL computes a GEMM in blocks: the first stands for it, with its size, and its rate is the GEMM's."""
    files = [shared / "samples" / "dvdt" / f"lenet-b2-viennacl-fwd.{name}" for name in ("run.log", "prof.json")]
    trace = mio2trace.convert(*files).trace
    kernels, rates = slices(trace, "kernel"), values(trace, "GEMM")
    several = 0
    for number, event in enumerate(kernels):
        found: dict[str, Any] = args(event)
        if "gemm" not in found or not event.dur_ns:
            continue
        count = found.get("gemm_kernels", 1)
        time = sum(kernel.dur_ns for kernel in kernels[number : number + count])
        assert found["gflops"] == pytest.approx(found["flop"] / time, rel=THREE_DIGITS)
        assert found.get("gemm_ns", event.dur_ns) == time
        assert rates[event.start_ns] == found["gflops"]
        for block in kernels[number + 1 : number + count]:
            assert block.name == event.name
            assert args(block)["role"] == "main"
            assert not {"gemm", "gflops", "flop"} & args(block).keys()
        several += count > 1
    assert several


def test_overlaps_go_to_lanes_with_their_operations() -> None:
    """Operations' kernels that run at the same time as others of their queue have a track each."""
    notes = Notes()
    enqueues = tuple(
        enqueued(n, "kernel", f"k{n}", start_ns=start, end_ns=end, queued_ns=0, submit_ns=0)
        for n, (start, end) in enumerate([(0, 100), (50, 150), (100, 200), (120, 130)])
    )
    profile = opencl_profile(source=0, records=4, queues=(Queue(index=0, device=0, handle="q"),), activities=enqueues)
    alignment = align(profile, [], notes)
    metadata: dict[str, object] = {}
    trace = build([RunToDraw(measures=[Measures(alignment)])], BuildOptions(tracks=("kernels",)), metadata, notes)
    lanes = {e.name: tracks(trace)[e.track] for e in slices(trace, "kernel")}
    assert lanes == {"k0": "Kernels", "k1": "Kernels (2)", "k2": "Kernels", "k3": "Kernels (3)"}
    assert not slices(trace, *CONTAINERS)
    assert len(slices(trace, "kernel by name")) == 4
