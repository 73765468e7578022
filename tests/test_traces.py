"""The runs kept in traces/: what we make of them is exact, and true."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.cli import cli

TRACES = Path(__file__).resolve().parent.parent / "traces"
RUNS = sorted(folder.name for folder in TRACES.iterdir() if folder.is_dir())


def convert(run: str, output: Path, **options: Any) -> dict[str, Any]:
    inputs = [path for path in sorted((TRACES / run).iterdir()) if not re.search(r"\.(trace|truth)\.json$", path.name)]
    mio2trace.convert(*inputs, output=output, check=True, **options)
    trace: dict[str, Any] = json.loads(output.read_bytes())
    return trace


def call_of(numbers: dict[str, Any]) -> int:
    """What the profile calls a launch."""
    number: int = numbers["call_index"] if "call_index" in numbers else numbers["correlation_id"]
    return number


def commands(trace: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Arguments of kernels and copies by the number of their call."""
    found = [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "copy")]
    by_call = {call_of(event["args"]): event["args"] for event in found}
    assert len(by_call) == len(found)
    return by_call


def told(trace: dict[str, Any], truth: dict[int, Any]) -> dict[int, dict[str, Any]]:
    """`commands` that the truth tells of: every kernel, and copies where it recorded them."""
    kernels = {call_of(event["args"]) for event in trace["traceEvents"] if event.get("cat") == "kernel"}
    assert kernels <= truth.keys()
    return {call: args for call, args in commands(trace).items() if call in truth}


def expected_layers(run: str) -> dict[int, tuple[str, int, str | None, int] | None]:
    """(layer, index, direction, iteration) by the number of the call, None outside any layer."""
    truth = json.loads((TRACES / run / f"{run}.truth.json").read_bytes())
    layers = [
        (
            layer["layer"],
            layer["layer_index"],
            layer["direction"],
            0 if layer["pass"] == "init" else int(layer["pass"].removeprefix("iter")) + 1,
        )
        for layer in truth["layers"]
    ]
    return {call_of(e): None if e["l"] is None else layers[e["l"]] for e in truth["enqueues"]}


def test_there_are_runs() -> None:
    assert len(RUNS) >= 2


@pytest.mark.parametrize("run", RUNS)
def test_trace_is_the_golden_one(run: str, tmp_path: Path, golden: Callable[[Path, bytes], None]) -> None:
    output = tmp_path / "out.json"
    convert(run, output)
    # The version, and the checksum with it, is the one thing that may change without the picture changing.
    text = output.read_bytes().replace(f"mio2trace {mio2trace.__version__}".encode(), b"mio2trace VERSION")
    assert text.count(b"mio2trace VERSION") == 1
    text, sums = re.subn(rb'"crc32":"[0-9a-f]{8}"\}\}\n\Z', b'"crc32":"CHECKSUM"}}\n', text)
    assert sums == 1
    golden(TRACES / run / f"{run}.trace.json", text)


@pytest.mark.parametrize("run", RUNS)
def test_every_kernel_and_copy_is_in_its_true_layer(run: str, tmp_path: Path) -> None:
    expected = expected_layers(run)
    shown = {
        call: (a["layer"], a["layer_index"], a.get("direction"), a["iteration"]) if "layer" in a else None
        for call, a in told(convert(run, tmp_path / "out.json"), expected).items()
    }
    assert shown == expected


@pytest.mark.parametrize("run", RUNS)
def test_without_timer_marks_iteration_1_stays_true(run: str, tmp_path: Path) -> None:
    shown = commands(convert(run, tmp_path / "out.json", without=["timer marks"]))
    for call, layer in expected_layers(run).items():
        if layer is not None and layer[3] == 1:
            assert shown[call].get("layer") == layer[0], (call, layer)
            assert shown[call]["layer_by"] in ("durations", "boundary stamps", "range")


@pytest.mark.parametrize("run", RUNS)
def test_every_kernel_is_in_its_true_call(run: str, tmp_path: Path) -> None:
    """Where the run called MIOpen: a kernel's operation stands on the line of the log where its call does."""
    truth = json.loads((TRACES / run / f"{run}.truth.json").read_bytes())
    trace = convert(run, tmp_path / "out.json")
    expected = {call_of(enqueue): enqueue.get("line") for enqueue in truth["enqueues"]}
    slices = [event["args"] for event in trace["traceEvents"] if event.get("cat") == "operation"]
    line_of = {args["operation"]: args["line"] for args in slices}
    shown = {call: line_of.get(args.get("operation")) for call, args in told(trace, expected).items()}
    assert shown == expected


def test_a_layer_guessed_from_order_contradicts_no_range(tmp_path: Path) -> None:
    """A kernel of the application lies in no call of the log: what its neighbours suggest is no evidence."""
    files = [TRACES / "lenet-rocpd" / name for name in ("run.log.gz", "results.db.gz")]
    conversion = mio2trace.convert(*files, output=tmp_path / "out.json")
    counts = conversion.metadata["attribution"]
    assert counts["contradictions"] == 0
    assert counts["layer_by"]["range"] == 36


def test_a_link_by_range_is_explained(tmp_path: Path) -> None:
    """There was nothing to choose: the profile tells the operation, or that there is none."""
    files = [TRACES / "lenet-rocpd" / name for name in ("run.log.gz", "results.db.gz")]
    report = mio2trace.convert(*files, output=tmp_path / "out.json", explain=["kernel 29", "kernel 31"]).report
    at = next(number for number, line in enumerate(report) if line.startswith("kernel 29: OpTensorFwdBias"))
    assert report[at + 1] == "  layer: conv2, iteration 1 · forward, by range"
    assert report[at + 2] == "  operation 9, line 440: Bias fwd 2x50x8x8, by range"
    assert report[-3].startswith("kernel 31: inner_product")
    assert report[-1] == "  operation: none"


@pytest.mark.parametrize("files", ["lenet-rocpd/results.db.gz"])
def test_the_readme_shows_what_is_printed(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, to the line that says what was written."""
    shown = (TRACES.parent / "README.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    log = (TRACES / files).with_name("run.log.gz")
    done = CliRunner().invoke(cli, [str(log), str(TRACES / files), "-o", "out.pftrace"])
    assert done.exit_code == 0
    assert "".join(f"    {line}\n" for line in done.stderr.splitlines()) in shown


def test_no_run_tells_of_the_machine_that_it_was_measured_on() -> None:
    """Databases of ROCm hold the environment: `reduce.py` takes it out, with the names of host and user."""
    content = gzip.decompress((TRACES / "lenet-rocpd" / "results.db.gz").read_bytes())
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        processes = database.execute("SELECT command, environment, extdata FROM rocpd_info_process").fetchall()
        nodes = database.execute("SELECT machine_id, hostname FROM rocpd_info_node").fetchall()
    assert processes == [("", "{}", "{}")]
    assert nodes == [("", "")]
    assert b"/home/" not in content
