"""The whole run from Python: files in, a trace out, and what the files have in common counted once."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

import mio2trace
from mio2trace import readers
from mio2trace.conversion import Conversion, convert
from mio2trace.draw import selection
from mio2trace.files import replacing
from mio2trace.notes import InputError
from mio2trace.readers import READERS
from mio2trace.trace import Flow, Slice
from tests import made_up_format
from tests.commands import invoked
from tests.conftest import ROOT
from tests.kineto_files import kineto_file, row
from tests.often import saved
from tests.small_runs import Program, as_json, as_text, benchmark, kinds, small

CALLS, LOG = benchmark()
TIMER = {
    "per_layer_info": [
        {"direction": "forward", "index": index, "label": f"{index:02}: {name}", "time_ms": 0.12, "timestamp": ""}
        for index, name in enumerate(("conv1", "ip1"))
    ],
    "time_fw_ms": 0.24,
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    content = {
        "log": LOG.encode(),
        "prof": as_json(CALLS),
        "timer": json.dumps(TIMER).encode(),
        "other": as_json(small()),
        "text": as_text(CALLS),
        "mixed": LOG.encode() + b"[dv/dt] <<\n" + as_json(CALLS) + b"\n[dv/dt] >>\n",
    }
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    return {name: str(tmp_path / name) for name in content}


def output(*paths: str, **options: Any) -> tuple[bytes, Conversion]:
    file = io.BytesIO()
    result = convert(*paths, output=file, check=True, **options)
    return file.getvalue(), result


def kernels(trace: bytes) -> list[dict[str, Any]]:
    return [event for event in json.loads(trace)["traceEvents"] if event.get("cat") == "kernel"]


def layers_of(trace: bytes) -> list[tuple[str | None, int | None]]:
    return [(event["args"].get("layer"), event["args"].get("iteration")) for event in kernels(trace)]


WANTED = [(layer, iteration) for iteration in (0, 1) for layer in ("conv1", "conv1", "ip1", "ip1")]


@pytest.mark.parametrize(
    "names",
    [("log", "prof"), ("log", "text"), ("mixed",), ("log", "prof", "timer"), ("mixed", "timer"), ("prof", "timer")],
)
def test_a_run_is_joined_from_the_files_that_there_are(files: dict[str, str], names: tuple[str, ...]) -> None:
    """Each kernel under its layer, in the iteration that the timer marks tell."""
    trace, result = output(*(files[name] for name in names))
    warm_up = 4 * (names == ("prof", "timer"))
    assert layers_of(trace)[warm_up:] == WANTED[warm_up:]
    assert result.metadata["attribution"]["kernels"] == 8
    assert len(result.metadata["inputs"]) == len(names)


@pytest.mark.parametrize(
    "names", [("log", "prof"), ("log", "prof", "timer"), ("mixed", "prof", "timer"), ("log", "prof", "other")]
)
def test_the_order_of_the_files_changes_no_byte(files: dict[str, str], names: tuple[str, ...]) -> None:
    traces = {output(*(files[name] for name in order))[0] for order in itertools.permutations(names)}
    assert len(traces) == 1


@pytest.mark.parametrize(
    "names", [("mixed", "prof"), ("log", "prof", "prof"), ("log", "text", "prof"), ("log", "log", "prof")]
)
def test_the_same_profile_in_two_inputs_is_drawn_once(files: dict[str, str], names: tuple[str, ...]) -> None:
    """In the log and as a file; the same file twice; its text form beside it."""
    trace, result = output(*(files[name] for name in names))
    assert layers_of(trace) == WANTED
    once = ("profile that is in two inputs: used once", "input given twice: used once")
    assert sum(kinds(result.notes).get(kind, 0) for kind in once) == 1
    assert not result.notes.problems


def test_two_different_profiles_are_both_drawn_and_it_is_said(files: dict[str, str]) -> None:
    """The logs belong to the one with most kernels."""
    trace, result = output(files["other"], files["log"], files["prof"])
    assert layers_of(trace) == [*WANTED, (None, 1), (None, 2)]  # two that are alike: they repeat
    assert [note.kind for note in result.notes.problems] == [
        "2 different profiles: the logs are joined with the profile that they fit best"
    ]
    _, result = output(files["other"], files["prof"])
    assert [note.kind for note in result.notes.problems] == ["2 different profiles: their clocks are not related"]


def test_a_profile_alone_and_a_log_alone_are_traces(files: dict[str, str]) -> None:
    profile, _ = output(files["prof"])
    assert layers_of(profile) == [(None, 1)] * 4 + [(None, 2)] * 4  # what its kernels repeat
    for name in ("log", "timer"):
        trace, result = output(files[name])
        assert kernels(trace) == []
        assert any(
            event.get("cat") == "layer" and event["name"].startswith("conv1")
            for event in json.loads(trace)["traceEvents"]
        )
        assert result.metadata["attribution"]["kernels"] == 0


def test_convert_returns_what_it_documents(files: dict[str, str], tmp_path: Path) -> None:
    """The trace, its metadata, the notes and the report; without an output nothing is written."""
    before = set(tmp_path.iterdir())
    result = mio2trace.convert(Path(files["log"]), files["prof"])
    assert set(tmp_path.iterdir()) == before
    assert isinstance(result, mio2trace.Conversion)
    assert sum(getattr(event, "category", "") == "kernel" for event in result.trace.events()) == 8
    assert result.report[1].startswith("prof: dv/dt profile (JSON): profile of ")
    assert any(line.startswith("layers: 8 of 8 kernels and copies attributed") for line in result.report)
    assert list(result.notes) == []
    trace, _ = output(files["log"], files["prof"])
    assert json.loads(trace)["metadata"] == json.loads(json.dumps(result.metadata))


def test_an_output_is_a_path_or_an_open_file(files: dict[str, str], tmp_path: Path) -> None:
    """Compressed where the name says so; the same bytes each time; mode and link stay, as if written in place."""
    direct, _ = output(files["log"], files["prof"])
    (tmp_path / "real.json").touch(0o640)
    (tmp_path / "link.json").symlink_to("real.json")
    plain, zipped, again = (tmp_path / name for name in ("link.json", "out.json.gz", "again.json.gz"))
    for path in (plain, zipped, again):
        convert(files["log"], files["prof"], output=path)
    assert plain.is_symlink()
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o640
    assert plain.read_bytes() == direct
    # What is alike stands together where it is packed: the same events, in another order.
    found, expected = json.loads(gzip.decompress(zipped.read_bytes())), json.loads(direct)
    assert sorted(map(str, found.pop("traceEvents"))) == sorted(map(str, expected.pop("traceEvents")))
    assert found.pop("mio2trace_end")["slices"] == expected.pop("mio2trace_end")["slices"]
    assert found == expected
    assert zipped.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("lost", [b"[]", b'[{"call": "clCreateKernel", "program": "0x1", "kernel": "0x2", "name": "k"'])
def test_beside_an_empty_profile_a_log_keeps_its_picture(files: dict[str, str], tmp_path: Path, lost: bytes) -> None:
    """As it is drawn alone; the person is told."""
    empty = saved(tmp_path / "empty", lost)
    alone, _ = output(files["log"])
    beside, result = output(files["log"], str(empty))
    expected = json.loads(alone)["traceEvents"]
    assert any(event.get("cat") == "layer" for event in expected)
    assert json.loads(beside)["traceEvents"] == expected
    assert "no kernel, copy or build in the profile: it is not used" in [note.kind for note in result.notes.problems]


def test_large_handles_and_sizes_reach_the_trace(tmp_path: Path) -> None:
    """A trace holds 64-bit integers; what is larger is damage and said."""
    run = Program()
    run.buffer(size=(1 << 63) - 1)
    run.enqueue("k", "0xffffffffffffffff", gws=[1 << 62, 1, 1])
    trace, _ = output(str(saved(tmp_path / "prof", as_json(run.calls))), host_calls="all")
    assert kernels(trace)[0]["args"]["gws"] == f"{1 << 62}x1x1"


def test_error_options_that_are_none_are_refused_before_anything_is_read() -> None:
    """With a ValueError, for the caller's own mistakes."""
    for files, options, said in (
        (["missing"], {"without": ("luck", "order")}, r"^no such evidence: luck; expected range, .*, order"),
        (["missing"], {"output": "out.txt"}, r"^out\.txt: expected a name that ends in \.json, .*\.gz, or -$"),
        ([], {}, "^no input"),
    ):
        with pytest.raises(ValueError, match=said):
            convert(*files, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "^in: no kernel, copy or build in the profile: the program ran nothing on the device$"),
        (as_json(Program().calls), "^in: no kernel, copy or build in the profile"),
        (
            LOG.splitlines()[0].encode(),
            "^in: log lines without times of layers, as `caffe time` prints them; expected those, or the profile",
        ),
        (b'{"time_fw_ms": 5}', "^in: nothing that has a time"),
    ],
)
def test_error_inputs_with_nothing_to_draw_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert(saved(tmp_path / "in", content))


def test_error_strict_makes_problems_errors_and_writes_nothing(files: dict[str, str], tmp_path: Path) -> None:
    """Remarks are none; they do not fail it."""
    out = tmp_path / "out.json"
    convert(files["mixed"], files["prof"], output=out, strict=True)
    out.unlink()
    with pytest.raises(InputError, match=r"^--strict: 2 different profiles"):
        convert(files["other"], files["prof"], output=out, strict=True)
    assert not out.exists()


def test_error_a_fault_half_way_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    """It is raised as it is; the output is what it was, and nothing else stays behind."""
    out = saved(tmp_path / "out.json", "kept")

    def fail_half_way() -> None:
        with replacing(str(out)) as file:
            file.write(b"half")
            raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        fail_half_way()
    assert {path: path.read_text() for path in tmp_path.iterdir()} == {out: "kept"}


def test_what_python_sees_is_documented_and_tells_what_it_is(files: dict[str, str]) -> None:
    """Every public name is there and has a docstring; results say in a line what they hold."""
    assert all(name == "__version__" or getattr(mio2trace, name).__doc__ for name in mio2trace.__all__)
    analysis = mio2trace.analyse([files["log"], files["prof"]])
    assert repr(analysis.run) == "<Run 'prof' of log, prof: 8 enqueues, 2 layers>"
    assert repr(analysis.run.alignment) == "<Alignment of 8 enqueues: 8 in layers, 0 in operations>"
    assert repr(analysis.inputs[0]).startswith("<Input 'prof': dv/dt profile (JSON), ")
    assert repr(analysis) == f"<Analysis: 2 inputs, 0 kinds of notes, runs [{analysis.run!r}]>"
    assert repr(convert(files["log"], files["prof"])) == "<Conversion: 8 kernels, 0 copies, not written>"
    assert repr(analysis.notes) == "<Notes: none>"
    with pytest.raises(AttributeError, match="no attribute 'analyze'"):
        mio2trace.analyze  # noqa: B018


# -- A format that the program never saw: one module and one row, and all that follows is right.


# Asynchronous, two streams, two threads, one shared clock; kernel 4 has no launch, call 6 launched nothing, call 5 two.
TEXT = """made-up trace 1
range 7 1000 9000 net
range 7 1100 4000 net/conv1
call 7 1200 1300 launch 1
call 7 1400 1450 launch 2
range 7 4000 8900 net/fc
call 7 4100 4150 launch_graph 5
call 9 1250 1500 launch 3
call 9 1600 1700 malloc 6
kernel 0 1900 5000 1 conv
kernel 1 1800 2500 3 copy_layout
kernel 0 5000 5600 2 relu
kernel 1 2600 2700 4 of_nobody
kernel 0 5700 6000 5 gemm
kernel 1 5650 6100 5 gemm
"""


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the format, which is known while the test runs."""
    reader: Any = made_up_format
    monkeypatch.setattr(readers, "READERS", (reader, *READERS))
    return saved(tmp_path / "made-up.txt", TEXT)


def test_a_format_is_one_module_and_all_that_follows_is_right(made_up: Path) -> None:
    """Kernels lie on their streams at their times. Arrows lead from each launch, on its thread, to each of its kernels;
    none to a kernel that no recorded call launched. Calls lie in the ranges of their thread. No clock is made up."""
    assert len(Path(made_up_format.__file__).read_text("utf-8").splitlines()) <= 60
    result = mio2trace.convert(made_up, output=made_up.with_name("out.json"), check=True)
    assert list(result.notes) == []
    names = {track.id: track.name for track in result.trace.tracks}
    slices = [event for event in result.trace.events() if isinstance(event, Slice)]
    begin = 1000
    kernels = [event for event in slices if event.category == "kernel"]
    assert Counter((kernel.name, kernel.start_ns + begin, kernel.dur_ns) for kernel in kernels) == {
        ("conv", 1900, 3100): 1, ("copy_layout", 1800, 700): 1, ("relu", 5000, 600): 1,
        ("of_nobody", 2600, 100): 1, ("gemm", 5700, 300): 1, ("gemm", 5650, 450): 1,
    }  # fmt: skip
    streams = {kernel.name: names[kernel.track] for kernel in kernels if kernel.name != "gemm"}
    assert streams["conv"] == streams["relu"] != streams["copy_layout"] == streams["of_nobody"]
    flows = [event for event in result.trace.events() if isinstance(event, Flow)]
    assert {(names[arrow.from_track], arrow.from_ns + begin, arrow.to_ns + begin) for arrow in flows} == {
        ("Thread 7", 1200, 1900), ("Thread 7", 1400, 5000), ("Thread 9", 1250, 1800),
        ("Thread 7", 4100, 5700), ("Thread 7", 4100, 5650),
    }  # fmt: skip
    rows: dict[str, list[str]] = {}
    for event in slices:
        if event.category in ("range", "api"):
            rows.setdefault(names[event.track], []).append(event.name)
    assert rows == {
        "Thread 7": ["net", "net/conv1", "launch", "launch", "net/fc", "launch_graph"],
        "Thread 9": ["launch", "malloc"],
    }
    one_clock = {"offset_ns": 0, "error_ns": 0, "drift_ppb": 0, "method": "one clock"}
    assert result.trace.metadata["clock"] == {"device": one_clock}


def test_a_kernel_may_begin_while_its_launch_returns(made_up: Path, tmp_path: Path) -> None:
    """The arrow is left out only where the call had waited until its kernel ended, or where it would point back."""
    made_up.write_text(
        "made-up trace 1\n"
        "call 7 100 200 launch 1\nkernel 0 150 300 1 outlives_its_launch\n"
        "call 7 400 600 launch 2\nkernel 0 450 600 2 waited_for\n"
        "call 7 700 800 launch 3\nkernel 0 699 900 3 earlier_by_its_clock\n"
        "call 7 910 920 launch 4\nkernel 0 920 930 4 at_once\n"
    )
    result = mio2trace.convert(made_up, output=tmp_path / "out.json", check=True)
    begins = {event.to_ns + 100 for event in result.trace.events() if isinstance(event, Flow)}
    assert begins == {150, 920}


# -- Of a run that no viewer takes the steady iterations in its middle are drawn, and the conversion says so.


STEPS, KERNELS = 40, 12
SLICES = 1 + 2 * KERNELS
"""Of a step."""


def kineto(folder: Path, steps: int = STEPS, named: bool = True) -> Path:
    """Steps of twelve launches and their kernels; every step takes a millisecond."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        begin = step * 1000
        if named:
            events.append(row("user_annotation", f"ProfilerStep#{step + 5}", 1, 1, begin, 990))
        for at in range(KERNELS):
            number, start = step * KERNELS + at + 1, begin + 10 + 80 * at
            events.append(row("cuda_runtime", "hipLaunchKernel", 1, 1, start, 5, correlation=number))
            events.append(row("kernel", f"kernel{at}", 0, 7, start + 10, 20 + at, stream=7, correlation=number))
    return kineto_file(folder, events)


@pytest.fixture
def small_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer that takes 500 slices of the 1000, and shows 250 of them well: ten steps, each with its mark, its
    twelve kernels and their calls."""
    monkeypatch.setattr(selection, "MOST_SLICES", 500)
    monkeypatch.setattr(selection, "WINDOW_SLICES", 10 * SLICES)


def converted(path: Path, *options: str) -> tuple[str, list[dict[str, Any]]]:
    output = path.with_name("out.json")
    found = invoked("convert", path, "-o", output, *options)
    assert found.exit_code == 0, found.output
    return found.output, orjson.loads(output.read_bytes())["traceEvents"]


def starts(events: list[dict[str, Any]]) -> list[float]:
    return sorted(event["ts"] for event in events if event.get("cat") == "kernel")


def test_the_middle_of_a_large_run_is_drawn_and_named(tmp_path: Path, small_viewer: None) -> None:
    path = kineto(tmp_path)
    said, events = converted(path)
    named = re.search(
        r"only its iterations (\d+)-(\d+) are written; --all writes the whole run", " ".join(said.split())
    )
    assert named is not None, said
    first, last = map(int, named.groups())
    assert last - first + 1 == 10
    assert 5 + 10 <= first <= last <= 5 + 30, "in the middle of steps 5 to 44"
    assert len(starts(events)) == 10 * KERNELS
    whole = starts(converted(path, "--all")[1])
    assert starts(events) == whole[(first - 5) * KERNELS : (last - 4) * KERNELS], "at the times of the whole picture"


def test_the_numbers_are_of_the_whole_run(tmp_path: Path, small_viewer: None) -> None:
    path = kineto(tmp_path)
    part, whole = (
        mio2trace.convert(path, output=tmp_path / f"{everything}.pftrace", everything=everything)
        for everything in (False, True)
    )
    assert part.answer == whole.answer
    assert part.metadata["attribution"] == whole.metadata["attribution"]
    assert (part.trace.left_out, whole.trace.left_out) == ((STEPS - 10) * KERNELS, 0)


@pytest.mark.parametrize(
    ("made", "options", "most", "window", "drawn"),
    [
        ({}, ("--all",), 500, 250, STEPS),
        ({}, ("--iterations", "5-44"), 500, 250, STEPS),
        ({}, (), STEPS * SLICES, 240, STEPS),  # a viewer takes it
        ({"steps": 1, "named": False}, (), 10, 250, 1),  # without iterations
        ({}, (), 10, 1, 1),  # one at least
    ],
)
def test_how_much_is_drawn(
    made: Any,
    options: tuple[str, ...],
    most: int,
    window: int,
    drawn: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "MOST_SLICES", most)
    monkeypatch.setattr(selection, "WINDOW_SLICES", window)
    said, events = converted(kineto(tmp_path, **made), *options)
    assert len(starts(events)) == drawn * KERNELS
    assert ("--all" in said) == (drawn < made.get("steps", STEPS))


@pytest.mark.parametrize("calls", ["all", "none"])
def test_operations_layers_and_their_calls_count_as_slices(calls: Any) -> None:
    """A log may double what a viewer has to show: commands and calls alone say too little."""
    paths = [str(ROOT / "traces" / "alexnet-b1-miopen29" / name) for name in ("run.log.gz", "prof.json.gz")]
    trace, result = output(*paths, host_calls=calls)
    (measures,) = (each for run in result.runs for each in run.drawn)
    slices = sum(event["ph"] == "X" for event in orjson.loads(trace)["traceEvents"])
    assert (1 + (calls == "all")) * len(measures.alignment.profile.activities) < 0.75 * slices
    assert 0.75 < selection.expected_slices(measures.alignment, calls == "all") / slices < 1.33
