"""Caffe's log: what its lines say, in every form of them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from mio2trace import analyse
from mio2trace.answer import of_logs
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.notes import Notes
from mio2trace.readers.caffe import CaffeDecoder
from tests.commands import invoked
from tests.conftest import shared_folder
from tests.often import saved
from tests.rocm_files import records_of
from tests.small_runs import kinds

STAMP = "I1120 10:46:48.020552  2155 caffe.cpp:465] "


LAYERS = ("data", "conv1", "conv1_split", "ip1")
NET = (
    *(f"{what} {name}" for name in LAYERS for what in ("Creating Layer", "Setting up")),
    *(f"{name} does not need backward computation." for name in LAYERS[::-1]),
    *(f"{name}\tforward: 1 ms." for name in LAYERS),
)
"""The net's construction and its times, as Caffe prints them."""


def log(*texts: str, notes: Notes | None = None, prefix: str = STAMP) -> FrameworkLog:
    decoder = CaffeDecoder(0, "run.log", Notes() if notes is None else notes)
    for number, text in enumerate(texts, 1):
        decoder.feed(number, f"{prefix}{text}\n".encode())
    return decoder.finish()


@pytest.mark.parametrize(
    ("prefix", "stamp"),
    [
        ("I1120 10:46:48.020552  2155 caffe.cpp:465] ", LocalTime(0, 11, 20, 38_808_020_552_000)),
        ("I20261120 05:46:51.769948  2308 caffe_fp16.cpp:473] ", LocalTime(2026, 11, 20, 20_811_769_948_000)),
        ("E0229 23:59:60.000001 1 net_speed_benchmark.cpp:9] ", LocalTime(0, 2, 29, 86_400_000_001_000)),
        ("[1,0]<stderr>:I1120 10:46:48.020552  2155 caffe.cpp:465] ", LocalTime(0, 11, 20, 38_808_020_552_000)),
        ("node7 | W1120 10:46:48.020552  2155 caffe.cpp:465] ", LocalTime(0, 11, 20, 38_808_020_552_000)),
    ],
)
def test_stamps_are_read_with_and_without_a_year_and_behind_foreign_prefixes(prefix: str, stamp: LocalTime) -> None:
    """A leap second is the second after it."""
    found = log("     conv1\tforward: 30.968 ms.", prefix=prefix)
    assert [(layer.layer, layer.printed_ns, layer.stamp) for layer in found.layers] == [("conv1", 30_968_000, stamp)]
    assert (found.first_stamp, found.last_stamp) == (stamp, stamp)


@pytest.mark.parametrize(
    "prefix",
    [
        *(f"I{date} 10:46:48.020552  2155 caffe.cpp:465] " for date in ("1320", "0230", "20230229", "00001120")),
        *(f"I1120 {time}.020552  2155 caffe.cpp:465] " for time in ("24:46:48", "10:46:99")),
        "I1120 10:46:48.020552  2155 caffe.cpp 465] ",
        "",
    ],
)
def test_error_a_stamp_that_is_no_moment_makes_no_log_line(prefix: str) -> None:
    assert log("     conv1\tforward: 30.968 ms.", prefix=prefix) == FrameworkLog(source=0)


def test_printed_times_become_ns_from_any_unit() -> None:
    """Milliseconds as %g prints them; seconds in the oldest programs."""
    texts = ["30.968 ms.", "0 ms.", "1.2e-05 ms.", "1.5e+03 ms.", "0.25 seconds.", "12.5 milli seconds."]
    found = [log(f"  relu1\tforward: {text}").layers[0].printed_ns for text in [*texts, "12.5 milliseconds"]]
    assert found == [30_968_000, 0, 12, 1_500_000_000, 250_000_000, 12_500_000, 12_500_000]


_TIMES = ["30.968 ", "0 ", "1.2e-05 ", "123456789 ", "1234567890 ", ".5 ", "1. ", "1.2.3 ", "1_0 ", "\u0661 ", " 2 "]
_TIMES += ["2  ", "-1 ", "1.8e+13 ", ""]


@pytest.mark.parametrize("name", ["conv1", "forward: x", "relu forward: 1 ms. more"])
def test_a_layer_line_like_one_before_is_read_like_the_first(name: str) -> None:
    """Whatever its time: what is known of the line's beginning is all that is taken over."""
    for text in (*(f"{time}ms." for time in _TIMES), "2 ms. ", "2 seconds."):
        line, notes, again = f"  {name}\tforward: {text}", Notes(), Notes()
        first = log(line, notes=notes).layers
        repeated = log(f"  {name}\tforward: 7 ms.", line, notes=again).layers[1:]
        assert [(one.layer, one.printed_ns) for one in repeated] == [(one.layer, one.printed_ns) for one in first]
        assert kinds(again) == kinds(notes)


@pytest.mark.parametrize("name", ["conv1", "fire2/squeeze1x1", "loss3/top-5", "bn.2a", "conv1 + relu1", "слой", "a:b"])
def test_a_layer_may_have_any_name(name: str) -> None:
    """CK's expression misses some of these, and its numbering then shifts; ours does not."""
    found = log(f"{name:>10}\tforward: 1 ms.", f"{name:>10}\tbackward: 2 ms.", "      next\tforward: 3 ms.")
    layers = [(layer.layer, layer.index, layer.direction) for layer in found.layers]
    assert layers == [(name, 0, "forward"), (name, 0, "backward"), ("next", 1, "forward")]


@pytest.mark.parametrize("text", ["1.8e+13 ms.", "-1 ms.", "nan ms.", "inf ms.", "-nan ms.", "1e999 ms."])
def test_error_a_time_that_cannot_be_is_counted_and_shifts_no_index(text: str) -> None:
    """A timer that went wrong is not a layer that is not there."""
    notes = Notes()
    found = log(f"conv1\tforward: {text}", "ip1\tforward: 1 ms.", notes=notes)
    assert [(layer.layer, layer.index) for layer in found.layers] == [("ip1", 1)]
    assert kinds(notes) == {"printed layer time that cannot be": 1}


EVENTS = {
    "Performing Forward": ("forward begins", None, None),
    "Initial loss: 0": ("forward ends", None, None),
    "Performing Backward": ("backward begins", None, None),
    "*** Benchmark begins ***": ("benchmark begins", None, None),
    "Testing for 2 iterations.": ("testing", 2, None),
    "Iteration: 1 forward-backward time: 535.215 ms.": ("iteration", 1, 535_215_000),
    "Iteration: 2 forward-backward time: 5e+02 ms.": ("iteration", 2, 500_000_000),
    "Average time per layer: ": ("average begins", None, None),
    "Average Forward pass: 535.215 ms.": ("average forward", None, 535_215_000),
    "Average Backward pass: 1.5 ms.": ("average backward", None, 1_500_000),
    "Average Forward-Backward: 540 ms.": ("average iteration", None, 540_000_000),
    "Total Time: 1080 ms.": ("total", None, 1_080_000_000),
    "*** Benchmark ends ***": ("benchmark ends", None, None),
}


def test_events_say_where_the_run_is() -> None:
    found = log(*EVENTS, "Memory required for data: 1234")
    events = [(event.line, (event.kind, event.number, event.duration_ns)) for event in found.events]
    assert events == list(enumerate(EVENTS.values(), 1))
    assert found.iterations == 2


def test_debug_lines_say_when_a_layer_has_ended() -> None:
    found = log(
        "    [Forward] Layer conv1, top blob conv1 data: 0.1",
        "    [Backward] Layer loss, with it, bottom blob ip2 diff: 0.1",
        "    [Forward] Layer ip1, param blob 0 data: 0.1",
    )
    ended = [(event.text, event.direction) for event in found.events if event.kind == "layer ended"]
    assert ended == [("conv1", "forward"), ("loss, with it", "backward"), ("ip1", "forward")]


def test_the_printed_net_gives_types_and_shapes() -> None:
    """Fields of a layer only; lines of other programs in between are not eaten."""
    decoder = CaffeDecoder(0, "run.log", Notes())
    net = (
        'name: "LeNet"\nlayer {\n  name: "conv1"\n  type: "Convolution"\n  weight_filler {\n    type: "xavier"\n  }\n}'
    )
    lines = [
        f"{STAMP}Initializing net from parameters: ",
        *net.splitlines(),
        "MIOpen(HIP): Info [get_device_name] Raw device name: gfx906",
        f"{STAMP}Setting up conv1",
        f"{STAMP}Top shape: 2 20 24 24 (23040)",
        f"{STAMP}Top shape: 2 (2)",
        '  type: "after the net"',
    ]
    taken = [decoder.feed(number, f"{line}\n".encode()) for number, line in enumerate(lines, 1)]
    assert taken == [True] * 9 + [False] + [True] * 3 + [False]
    (conv,) = [layer for layer in decoder.finish().net if layer.layer != "LeNet"]
    assert (conv.layer, conv.type, conv.tops, conv.line) == ("conv1", "Convolution", ("2x20x24x24", "2"), 11)


def test_marks_of_the_samples_are_no_layers() -> None:
    """They are the truth that we are measured by."""
    assert log("MARK begin iter0 forward 3 conv1", "MARK end iter0 forward 3 conv1").layers == ()


@pytest.mark.parametrize(
    "texts",
    [
        ["*** Benchmark begins ***", "*** Benchmark ends ***", "*** Benchmark begins ***"],
        ["Average time per layer: ", "conv1 forward: 2 ms.", "Average time per layer: ", "conv1 forward: 4 ms."],
        ["Average Forward-Backward: 48.4 ms.", "Average Forward-Backward: 66.9 ms."],
    ],
)
def test_a_log_of_two_benchmarks_says_so(texts: list[str]) -> None:
    notes = Notes()
    log(*texts, notes=notes)
    assert list(kinds(notes)) == ["log of several benchmarks: times are means over them"]
    assert not notes.problems


def test_layer_lines_of_two_runs_are_of_several_benchmarks() -> None:
    """People paste the times before and after a change into one issue, without the lines around them."""
    notes = Notes()
    decoder = CaffeDecoder(0, "log", notes)
    for number, thread in enumerate(("17120", "23689"), 1):
        line = STAMP.replace("2155", thread) + f"conv5\tforward: {number} ms.\n"
        decoder.feed(number, line.encode())
    decoder.finish()
    assert list(kinds(notes)) == ["log of several benchmarks: times are means over them"]


def test_error_long_lines_and_numbers_take_no_time() -> None:
    log(" " * 200_000 + "x", "Iteration: " + "1" * 5000 + " forward-backward time: 1 ms.", "x" + " " * 200_000)
    log("Testing for " + "9" * 5000 + " iterations.", "a" + "\t" * 3000 + "forward: x")


def sets() -> list[str]:
    folder = shared_folder() / "samples" / "dvdt"
    return sorted(path.name.removesuffix(".tmp-ck-timer.json") for path in folder.glob("*.tmp-ck-timer.json"))


@pytest.mark.shared
@pytest.mark.parametrize("name", sets())
def test_the_log_and_its_digest_by_ck_hold_the_same_layers(shared: Path, name: str) -> None:
    """Names, indices, times and stamps; where CK's expression finds any."""
    found = []
    for suffix in ("run.log", "tmp-ck-timer.json"):
        records = records_of(shared / "samples" / "dvdt" / f"{name}.{suffix}", None, notes := Notes())
        log = next(record for record in records if isinstance(record, FrameworkLog))
        found.append([(one.index, one.layer, one.direction, one.printed_ns, one.stamp) for one in log.layers])
        assert not notes.problems
    listed = orjson.loads((shared / "samples" / "dvdt" / f"{name}.tmp-ck-timer.json").read_bytes())["per_layer_info"]
    assert len(found[1]) == len(listed)
    assert found[0]
    assert found[1] == (found[0] if name != "squeezenet11-b1-fwd-tz" else []), "glog with a year"


@pytest.mark.parametrize("lost", range(len(NET)))
def test_a_lost_line_moves_no_layer(lost: int) -> None:
    """What one line of the net's construction no longer tells, others do: names, their order, and so their numbers."""
    found = log(*[line for number, line in enumerate(NET) if number != lost])
    assert [layer.layer for layer in found.net] == list(LAYERS)
    assert all(LAYERS[layer.index] == layer.layer for layer in found.layers)


def test_layers_that_are_printed_as_they_ran_are_numbered_forwards() -> None:
    """The backward pass prints from the last layer to the first; a layer whose forward line is lost has its place."""
    lines = ["a\tforward: 1 ms.", "c\tforward: 1 ms.", *(f"{name}\tbackward: 1 ms." for name in "cba")]
    assert {layer.layer: layer.index for layer in log(*lines).layers} == {"a": 0, "b": 1, "c": 2}


def test_what_one_telling_has_of_the_order_holds_between_two_others() -> None:
    """Neither set-up nor forward pass has both names, the backward pass has: its order of them is the net's."""
    setup = [f"Setting up {name}" for name in ("a", "b", "d", "e")]
    forward = [f"{name}\tforward: 1 ms." for name in ("a", "c", "e")]
    backward = [f"{name}\tbackward: 1 ms." for name in ("e", "d", "c", "b", "a")]
    assert [layer.layer for layer in log(*setup, *forward, *backward).net] == ["a", "b", "c", "d", "e"]


BY_STEPS = "the time that the log prints, without times of layers; no profile"
BY_LAYERS = "the sum of the times that the log prints"
PASSES = ["Average Forward pass: 4 ms.", "Average Backward pass: 7 ms."]
OF_LAYERS = ["conv1\tforward: 4 ms.", "conv1\tbackward: 6 ms."]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([f"Iteration: {ms} forward-backward time: {ms} ms." for ms in (65, 42, 40, 41)], f"41.00 ms{{}}: {BY_STEPS}"),
        ([f"Iteration: {ms} forward time: {ms} ms." for ms in (65, 42)], f"42.00 ms{{}}: {BY_STEPS}"),
        (["Average Forward pass: 7.5 ms.", "Average Forward-Backward: 12.5 ms."], f"12.50 ms{{}}: {BY_STEPS}"),
        ([*OF_LAYERS, "Average Forward-Backward: 15 ms."], f"10.00 ms{{}}: {BY_LAYERS}"),
        ([*OF_LAYERS, "Average Forward pass: 4 ms.", "Average Backward pass: 6.4 ms."], f"10.00 ms{{}}: {BY_LAYERS}"),
        # lines of other layers are missing, or the means include a cold iteration
        ([*OF_LAYERS, *PASSES], f"10.00 ms{{}} (11.00 ms by the log itself): {BY_LAYERS}"),
        ([*OF_LAYERS, "Average Forward-Backward: 16 ms."], f"10.00 ms{{}} (16.00 ms by the log itself): {BY_LAYERS}"),
    ],
)
def test_a_log_alone_has_the_time_of_an_iteration(texts: list[str], says: str, tmp_path: Path) -> None:
    """The first iteration is not counted among several. Without layers it was refused: `expected ... iterations`."""
    log = saved(tmp_path / "run.log", "".join(f"{STAMP}{text}\n" for text in texts))
    (section,) = of_logs(analyse([log]).run)
    assert section.verdict.startswith(says.format(" per iteration"))


def test_a_comparison_notes_what_the_layers_lack(tmp_path: Path) -> None:
    for lines, said in ((OF_LAYERS, 0), ([*OF_LAYERS, *PASSES], 1)):
        log = saved(tmp_path / f"run{said}.log", "".join(f"{STAMP}{text}\n" for text in lines))
        assert invoked("compare", log, log).stderr.count("the rest is not compared (run1: 90.9 % of 11.00 ms") == said


def test_error_a_training_log_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(f"{STAMP}Iteration 50 (2.25436 iter/s, 21.292s/48 iter), loss = 3.2\n")
    said = invoked("report", tmp_path / "run.log").stderr
    assert "log lines without times of layers, as `caffe time` prints them; expected those, or the profile" in said
