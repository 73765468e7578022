"""Which part of a run is drawn, and what besides: what is left out is counted, the rest is as in the whole picture."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace import summary
from mio2trace.align import align
from mio2trace.conversion import Conversion
from mio2trace.draw import BuildOptions, RunToDraw, Selection, build
from mio2trace.draw.selection import parse_duration, parse_iterations
from mio2trace.measures import Measures
from mio2trace.model.profile import Queue
from mio2trace.notes import Notes, OptionError
from mio2trace.trace import CounterValue, Event, Flow, Slice, Trace, checked, each
from tests import kineto_files
from tests.commands import printed
from tests.conftest import ROOT, Engine
from tests.often import present, saved
from tests.records import enqueued, opencl_profile
from tests.test_trace import arguments as args
from tests.test_trace import tangled

TRACES = ROOT / "traces"
MIOPEN = (TRACES / "alexnet-b1-miopen29" / "run.log.gz", TRACES / "alexnet-b1-miopen29" / "prof.json.gz")
ROCPD = (TRACES / "lenet-rocpd" / "run.log.gz", TRACES / "lenet-rocpd" / "results.db.gz")
TRAIN = (TRACES / "alexnet-b1-train" / "run.log", TRACES / "alexnet-b1-train" / "prof.json.gz")
COMMANDS = ("kernel", "copy")
CONTAINERS = ("pass", "layer", "operation")


def convert(files: tuple[Path, ...], **options: Any) -> Conversion:
    return mio2trace.convert(*files, check=True, **options)


whole_of = functools.cache(convert)
"""Nothing is left out of it."""


def slices(trace: Trace, *categories: str) -> list[Slice]:
    return [e for e in trace.events() if isinstance(e, Slice) and (not categories or e.category in categories)]


def by_call(trace: Trace) -> dict[int, Slice]:
    return {args(event)["call_index"]: event for event in slices(trace, *COMMANDS)}


def place(event: Slice) -> tuple[int, int, str, str, str]:
    return event.start_ns, event.dur_ns, event.name, event.category, repr(sorted(args(event).items(), key=str))


def left_out(result: Conversion) -> int:
    return sum(count for kind, count in result.metadata["notes"].items() if "left out of the trace" in kind)


def test_durations_are_exact_and_iterations_are_numbers_and_ranges() -> None:
    texts = ("10us", "1.2s", "0.5 ms", "7ns", "2µs", "1min")
    assert [parse_duration(text) for text in texts] == [10_000, 1_200_000_000, 500_000, 7, 2000, 60 * 10**9]
    for text in ("", "10", "us", "-1us", "1e3us", "1.us", "10 hours", "nan s", "1,5ms"):
        with pytest.raises(OptionError, match="no time"):
            parse_duration(text)
    assert parse_iterations("3") == ((3, 3),)
    assert parse_iterations("0, 2-4,7 - 9") == ((0, 0), (2, 4), (7, 9))
    for text in ("", "x", "4-2", "1-", "-1", "1,,2", "1.5"):
        with pytest.raises(OptionError, match="--iterations"):
            parse_iterations(text)


@pytest.mark.parametrize(
    "options",
    [
        {"begin": "1.3s"},
        {"begin": "20ms", "end": "2s"},
        {"begin": "iteration 1"},
        {"iterations": "1"},
        {"top": 7},
        {"min_duration": "300us"},
        {"min_duration": "300us", "top": 3, "iterations": "1"},
        {"begin": "layer conv2", "end": "layer conv3"},
    ],
    ids=str,
)
@pytest.mark.parametrize("files", [MIOPEN, TRAIN], ids=["miopen", "train"])
def test_a_part_is_as_in_the_whole(files: tuple[Path, ...], options: dict[str, Any]) -> None:
    """Each kernel drawn is the same slice at the same time, each container not cut is; the rest is counted."""
    if files == MIOPEN and "1.3s" in options.values():
        with pytest.raises(OptionError):  # a run that is over by then
            convert(files, **options)
        return
    part, whole = convert(files, **options), whole_of(files)
    all_, some = by_call(whole.trace), by_call(part.trace)
    assert 0 < len(some) < len(all_)
    assert left_out(part) == part.trace.left_out == len(all_) - len(some)
    assert part.trace.left_out_ns == sum(e.dur_ns for call, e in all_.items() if call not in some)
    assert {call: place(event) for call, event in some.items()} == {call: place(all_[call]) for call in some}
    if options == {"top": 7}:
        longest = sorted(slices(whole.trace, "kernel"), key=lambda e: (-e.dur_ns, e.start_ns))[:7]
        assert Counter(map(place, some.values())) == Counter(map(place, longest))
    if options == {"min_duration": "300us"}:
        assert some.keys() == {call for call, event in all_.items() if event.dur_ns >= 300_000}
        assert min(event.dur_ns for event in slices(part.trace, *CONTAINERS)) >= 300_000
    known = Counter(place(event) for event in slices(whole.trace, *CONTAINERS))
    shown = Counter(place(event) for event in slices(part.trace, *CONTAINERS) if "cut" not in args(event))
    assert shown <= known
    for event in slices(part.trace, *CONTAINERS):
        if "cut" in args(event):
            assert args(event)["cut"] is True
            assert "gflops" not in event.args
        if "top" in options and "host_by" not in args(event) and "kernel_ns" in args(event):
            end = event.start_ns + event.dur_ns
            assert any(event.start_ns <= k.start_ns and k.start_ns + k.dur_ns <= end for k in some.values())
    # what was found is told of the whole run, whatever is drawn of it
    for fact in ("attribution", "clock"):
        assert part.metadata[fact] == whole.metadata[fact]


def arrows(trace: Trace) -> list[Flow]:
    return [event for event in trace.events() if isinstance(event, Flow)]


@pytest.mark.parametrize("options", [{"top": 5}, {"min_duration": "10us"}, {"begin": "1s", "end": "1.3s"}])
def test_arrows_lose_both_ends_together(options: dict[str, Any]) -> None:
    whole, part = whole_of(ROCPD), convert(ROCPD, **options)
    drawn = {(event.track, event.start_ns) for event in slices(part.trace, *COMMANDS)}
    ends = {(flow.to_track, flow.to_ns): (flow.from_track, flow.from_ns) for flow in arrows(whole.trace)}
    assert 0 < len(drawn) < len(ends)
    assert {(flow.to_track, flow.to_ns): (flow.from_track, flow.from_ns) for flow in arrows(part.trace)} == {
        end: begin for end, begin in ends.items() if end in drawn
    }
    calls = {(event.track, event.start_ns) for event in slices(part.trace, "api")}
    assert {(flow.from_track, flow.from_ns) for flow in arrows(part.trace)} <= calls
    assert [event for one in present(part.trace.arrows) for event in each(one())] == arrows(part.trace)


def test_a_layer_to_a_layer_is_the_stretch_from_its_start_to_the_others_end() -> None:
    whole = whole_of(TRAIN, iterations="1")
    part = convert(TRAIN, iterations="1", begin="layer conv2", end="layer conv3")
    forward = [e for e in slices(whole.trace, "layer") if "kernel_ns" in args(e) and args(e)["direction"] == "forward"]
    names = [event.name for event in forward]
    between = names[names.index("conv2") : len(names) - names[::-1].index("conv3")]
    shown = [e.name for e in slices(part.trace, "layer") if "kernel_ns" in args(e)]
    assert shown == between
    backward = convert(TRAIN, begin="layer conv2 backward", end="layer conv2 backward")
    drawn = {(args(e)["layer"], args(e)["direction"]) for e in by_call(backward.trace).values() if "layer" in args(e)}
    assert drawn == {("conv2", "backward")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"begin": "soon"}, "--from soon: expected a time"),
        ({"end": "iteration 9"}, "--to iteration 9: nothing of it; the run has iterations 0 to 1"),
        ({"begin": "layer conv99"}, "--from layer conv99: nothing of it; there is no such layer"),
        ({"iterations": "5"}, "--iterations 5: no kernel is in them; the run has iterations 0 to 1 .0: the warm-up."),
        ({"begin": "iteration 1", "end": "1ms"}, "ends before it begins"),
        ({"min_duration": "1min"}, "--min-duration 1min: leaves no kernel to draw"),
        ({"begin": "100s"}, "--from 100s: leaves no kernel to draw"),
    ],
)
def test_what_is_not_there_is_said(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    output = saved(tmp_path / "out.json", "as before")
    with pytest.raises(OptionError, match=message):
        mio2trace.convert(*TRAIN, output=output, **options)
    assert output.read_text() == "as before"


def test_of_several_runs_the_one_without_the_window_is_named(tmp_path: Path) -> None:
    (tmp_path / "prof.json").write_bytes(kineto_files.trace())
    with pytest.raises(
        OptionError, match=r"--iterations 1: no kernel is in them; the run has iteration 3; in test_of_several"
    ):
        mio2trace.convert(*TRAIN, tmp_path / "prof.json", iterations="1", several=True)


def test_the_steps_of_a_pytorch_trace_have_the_numbers_of_their_marks(tmp_path: Path) -> None:
    """And none of them is called a warm-up. A log alone has no kernels to choose from."""
    with pytest.raises(OptionError, match=r"--iterations 1, 4-5: no kernel is in them; the run has iteration 3$"):
        mio2trace.convert(saved(tmp_path / "trace.json", kineto_files.trace()), iterations="1,4-5")
    with pytest.raises(OptionError, match="--top 3: there is no GPU profile to choose from"):
        mio2trace.convert(TRAIN[0], top=3)


def test_counters_lie_in_the_part_drawn() -> None:
    whole, part = whole_of(MIOPEN), convert(MIOPEN, begin="layer conv2", end="layer conv3")
    drawn = slices(part.trace)
    first, last = min(e.start_ns for e in drawn), max(e.start_ns + e.dur_ns for e in drawn)
    values = [event for event in part.trace.events() if isinstance(event, CounterValue)]
    assert {value.name for value in values} >= {"Operations", "Memory traffic", "Device busy"}
    assert all(first <= value.time_ns <= last for value in values)
    rates = {(v.time_ns, v.name): v.value for v in whole.trace.events() if isinstance(v, CounterValue)}
    same = [v for v in values if v.name == "Operations" and v.value and (v.time_ns, v.name) in rates]
    assert same
    assert all(rates[value.time_ns, value.name] == value.value for value in same)


def test_without_arguments_the_picture_is_the_same() -> None:
    whole, bare = (list(made.trace.events()) for made in (whole_of(MIOPEN), convert(MIOPEN, with_args=False)))
    assert not any(args(event) for event in bare if isinstance(event, Slice))
    assert bare == [msgspec.structs.replace(e, args={}, shared={}) if isinstance(e, Slice) else e for e in whole]


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
@pytest.mark.parametrize(
    "options",
    [["--top", "9"], ["--iterations", "1", "--no-args"], ["--from", "layer conv2", "--to", "layer conv3"],
     ["--min-duration", "500us", "--host-calls", "all"],
     ["--tracks", "kernels", "--tracks", "operations", "--fold", "find", "--fold", "set-up"]],
    ids=" ".join,
)  # fmt: skip
def test_perfetto_finds_nothing_wrong_in_parts(suffix: str, options: list[str], tmp_path: Path, engine: Engine) -> None:
    output = tmp_path / f"out{suffix}"
    printed(*MIOPEN, "-o", output, "--check", *options)
    processor = engine(output)
    assert processor.errors() == []
    assert processor.failed_checks() == {}
    drawn = processor.query("select count(*) as n from slice where category in ('kernel', 'copy')")
    assert drawn[0]["n"] > 0


@given(
    st.integers(0, 2**32 - 1).map(Random),
    st.sampled_from(
        [
            Selection(top=2),
            Selection(iterations="1"),
            Selection(min_duration="50us"),
            Selection(begin="1ms"),
            Selection(begin="200us", end="4ms", top=5),
            Selection(end="iteration 1", min_duration="1us"),
        ]
    ),
    st.sampled_from([(), ("warm-up",), ("set-up", "warm-up", "find")]),
    st.sampled_from([(), ("kernels", "operations")]),
)
def test_the_invariants_hold_for_any_part(rng: Random, selection: Selection, fold: Any, tracks: Any) -> None:
    """Of messy profiles with several queues, too."""
    run = tangled(rng)
    notes = Notes()
    alignment = align(run.profile, [run.log], notes)
    options = BuildOptions(host_calls="all", selection=selection, fold=fold, tracks=tracks)
    facts = summary.metadata("test", [], [Measures(alignment)])
    try:
        trace = build([RunToDraw(measures=[Measures(alignment)], logs=[run.log])], options, facts, notes)
    except OptionError:
        return
    timed = [e for e in run.profile.activities if e.start_ns is not None and e.end_ns is not None]
    total = sum((e.end_ns or 0) - (e.start_ns or 0) for e in timed)
    events: list[Event] = list(checked(trace, len(timed), total))
    assert {e.track for e in events if isinstance(e, Slice)} <= {track.id for track in trace.tracks}
    used = {e.track for e in events if isinstance(e, Slice)}
    assert used == {track.id for track in trace.tracks}, "a track with nothing on it"
    assert {track.process for track in trace.tracks} == {process.id for process in trace.processes}
    drawn = [e for e in events if isinstance(e, Slice)]
    last = max(e.start_ns + e.dur_ns for e in drawn)
    first = min(e.start_ns for e in drawn)
    assert all(first <= e.time_ns <= last for e in events if isinstance(e, CounterValue))
    starts = {(e.track, e.start_ns) for e in drawn if e.category in COMMANDS}
    assert all((e.to_track, e.to_ns) in starts for e in events if isinstance(e, Flow))


# -- What is drawn besides the nested track, and that nothing is counted twice for it.


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


def test_errors_and_warnings_are_moments_however_long_others_must_be() -> None:
    every, kept = (
        [place(one) for one in slices(trace, "log") if "level" in args(one)]
        for trace in (whole_of(MIOPEN).trace, convert(MIOPEN, min_duration="1ms").trace)
    )
    assert len(every) == 8
    assert kept == every


def test_without_host_calls_there_are_neither_calls_nor_arrows() -> None:
    """Where the others are drawn is in the golden traces."""
    trace = convert(MIOPEN, host_calls="none").trace
    assert not slices(trace, "call", "api")
    assert trace.arrows == ()


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
        assert rates[max(time for time in rates if time <= event.start_ns)] == found["gflops"]
        for block in kernels[number + 1 : number + count]:
            assert block.name == event.name
            assert args(block)["role"] == "main"
            assert not {"gemm", "gflops", "flop"} & args(block).keys()
        several += count > 1
    assert several


def test_gemms_that_run_at_the_same_time_add_their_rates() -> None:
    """The counter is 0 only where no GEMM runs, also if they are on different queues."""
    notes = Notes()
    gemm = functools.partial(enqueued, kind="kernel", name="XgemmDirectNN", queued_ns=0, submit_ns=0)
    sizes, queues = ("40000000",) * 3, tuple(Queue(index=index, device=0, handle=f"q{index}") for index in range(2))
    enqueues = [gemm(n, queue=n, start_ns=50 * n, end_ns=50 * n + 100, arguments=sizes) for n in range(2)]
    alignment = align(opencl_profile(source=0, records=2, queues=queues, activities=enqueues), [], notes)
    trace = build([RunToDraw(measures=[Measures(alignment)])], BuildOptions(), {}, notes)
    rate = 2 * 64**3 / 100
    found = values(trace, "GEMM")
    assert list(found) == [0, 50, 100, 150]
    assert list(found.values()) == pytest.approx([rate, 2 * rate, rate, 0], rel=THREE_DIGITS)


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
