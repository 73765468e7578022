"""Which part of a run is drawn: what is left out is counted, what is drawn is as in the whole picture."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import mio2trace
from mio2trace import cli, summary
from mio2trace.align import align
from mio2trace.conversion import Conversion
from mio2trace.draw import BuildOptions, RunToDraw, Selection, build
from mio2trace.draw.selection import parse_duration, parse_iterations
from mio2trace.measures import Measures
from mio2trace.notes import Notes, OptionError
from mio2trace.trace import CounterValue, Event, Flow, Slice, Trace, checked, each
from tests import kineto_files
from tests.conftest import ROOT, Engine
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


def args(event: Slice) -> dict[str, Any]:
    return {**event.shared, **event.args}


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
    assert part.trace.arrows is not None
    assert [event for one in part.trace.arrows for event in each(one())] == arrows(part.trace)


def test_arrows_point_forward_from_the_end_of_a_call() -> None:
    """As viewers draw them: a call that waits for its kernel has none."""
    drawn = {(event.track, event.start_ns): event for event in slices(whole_of(ROCPD).trace, "api", *COMMANDS)}
    flows = arrows(whole_of(ROCPD).trace)
    for flow in flows:
        call = drawn[flow.from_track, flow.from_ns]
        assert call.start_ns + call.dur_ns <= drawn[flow.to_track, flow.to_ns].start_ns
    waiting = [event for event in drawn.values() if event.category == "copy"]
    assert len(flows) == len(slices(whole_of(ROCPD).trace, "kernel")) + 1
    assert len(waiting) > 30
    assert not arrows(whole_of(MIOPEN).trace)


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
    output = tmp_path / "out.json"
    output.write_text("as before")
    with pytest.raises(OptionError, match=message):
        mio2trace.convert(*TRAIN, output=output, **options)
    assert output.read_text() == "as before"


def test_the_steps_of_a_pytorch_trace_have_the_numbers_of_their_marks(tmp_path: Path) -> None:
    """And none of them is called a warm-up. A log alone has no kernels to choose from."""
    path = tmp_path / "trace.json"
    path.write_bytes(kineto_files.trace())
    with pytest.raises(OptionError, match=r"--iterations 1, 4-5: no kernel is in them; the run has iteration 3$"):
        mio2trace.convert(path, iterations="1,4-5")
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
def test_perfetto_finds_nothing_wrong_in_a_part(
    suffix: str, options: list[str], tmp_path: Path, engine: Engine
) -> None:
    output = tmp_path / f"out{suffix}"
    result = CliRunner().invoke(cli.cli, [*map(str, MIOPEN), "-o", str(output), "--check", *options])
    assert result.exit_code == 0, result.output
    processor = engine(output)
    assert processor.errors() == []
    assert processor.failed_checks() == {}
    drawn = processor.query("select count(*) as n from slice where category in ('kernel', 'copy')")
    assert drawn[0]["n"] > 0


def test_the_command_says_what_it_left_out(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    result = CliRunner().invoke(cli.cli, [*map(str, MIOPEN), "-o", str(output), "--top", "2"])
    assert result.exit_code == 0
    assert "not among the --top kernels: left out of the trace" in result.output
    wrong = CliRunner().invoke(cli.cli, [*map(str, MIOPEN), "-o", str(output), "--from", "whenever"])
    assert wrong.exit_code == 2
    assert "--from whenever: expected a time such as 1.2s, 'iteration 3' or 'layer conv1'" in wrong.output


@settings(max_examples=60)
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
