"""``ops`` and ``driver`` with a profile: times of operations against the truth and the profile itself."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.attribution import names, samples
from mio2trace import convert
from mio2trace.cli import cli
from tests.conftest import shared_folder

FOLDER = samples(shared_folder())
SETS = [name for name in names(FOLDER) if (FOLDER / name / "prof.json").exists()]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*arguments, "--format", "json"))
    return found


def kernels(name: str) -> list[tuple[int | None, str, int]]:
    """(line of the true call, kernel's name, its time) of every kernel, from truth and profile alone."""
    truth = json.loads((FOLDER / name / "truth.json").read_bytes())
    calls = json.loads((FOLDER / name / "prof.json").read_bytes())
    found = []
    for enqueue in truth["enqueues"]:
        api = None if enqueue["api_call"] is None else truth["api_calls"][enqueue["api_call"]]
        times = calls[enqueue["prof_index"]]["profiling"]
        line = None if api is None else api.get("log_line") or api.get("cmd_line")
        found.append((line, enqueue["name"], times["end"] - times["start"]))
    return found


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_times_are_those_of_the_true_kernels(name: str) -> None:
    """Kernels, time and share of every operation; the time of transposes; nothing is counted twice."""
    files = str(FOLDER / name / "run.log"), str(FOLDER / name / "prof.json")
    count: Counter[int] = Counter()
    time: Counter[int] = Counter()
    transposes: Counter[int] = Counter()
    for line, kernel, ns in kernels(name):
        if line is not None:
            count[line] += 1
            time[line] += ns
            transposes[line] += ns if kernel.startswith("transpose_") else 0
    each = rows("ops", *files, "--each")
    whole = sum(ns for _, _, ns in kernels(name))
    for row in each:
        line = row["line"]
        assert row["kernels"] == count[line]
        assert row.get("kernel_ns", 0) == time[line]
        assert row.get("transposes_ns", 0) == transposes[line]
        assert row.get("percent_of_kernel_time", 0) == pytest.approx(100 * time[line] / whole)
        if row["phase"] == "run" and row.get("flop") and time[line]:
            assert row["gflops"] == pytest.approx(row["flop"] / time[line])
        else:
            assert "gflops" not in row
    assert sum(row.get("kernel_ns", 0) for row in each) == sum(time.values())


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_an_operation_has_one_name(name: str) -> None:
    """Its slices on device and host, in rows by name too, are called what the table calls it."""
    files = FOLDER / name / "run.log", FOLDER / name / "prof.json"
    names = {row["operation"]: row["name"] for row in rows("ops", *map(str, files), "--each")}
    out = io.BytesIO()
    convert(*files, output=out, tracks=("operations",))
    named = [
        (event["args"]["operation"], event["name"])
        for event in json.loads(out.getvalue())["traceEvents"]
        if event.get("cat") in ("operation", "call") and "operation" in event.get("args", {})
    ]
    assert len(named) > len(names) / 2
    assert [(index, names[index]) for index, _ in named] == named


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m290-alexnet-infer-10it", "m290-resnet-infer-immediate-fused"])
def test_groups_sum_their_operations(name: str) -> None:
    """Of steady iterations: calls, mean, rate, helpers; most time first; each search beside what it is for."""
    files = str(FOLDER / name / "run.log"), str(FOLDER / name / "prof.json")
    iterations = range(2, 11) if "10it" in name else (1,)
    each: dict[str, list[dict[str, Any]]] = defaultdict(list)
    searched: Counter[str] = Counter()
    for row in rows("ops", *files, "--each"):
        if row["phase"] == "find":
            searched[row["problem"]] += row.get("kernel_ns", 0)
        elif row["kernels"] and row["iteration"] in iterations:
            each[row["problem"]].append(row)
    groups = rows("ops", *files, "--group-by", "problem")
    assert {group["problem"] for group in groups} == each.keys()
    times = [group["kernel_ns"] for group in groups]
    assert times == sorted(times, reverse=True)
    whole = sum(ns for _, _, ns in kernels(name)) if len(iterations) == 1 else 190118541
    for group in groups:
        members = each[group["problem"]]
        ran = sum(row["kernel_ns"] for row in members)
        assert group["calls"] == len(members) / len(iterations)
        assert group["kernel_ns"] == pytest.approx(ran / len(iterations))
        assert group["percent_of_kernel_time"] == pytest.approx(100 * ran / whole)
        if "gflops" in group:
            assert group["gflops"] == pytest.approx(sum(row["flop"] for row in members) / ran)
        helpers = sum(row.get("helpers_ns", 0) for row in members)
        assert group.get("helpers_ns", 0) == pytest.approx(helpers / len(iterations))
        assert group.get("find_ns", 0) == searched[group["problem"]]


@pytest.mark.shared
def test_the_interleaved_log_needs_no_second_file_and_order_does_not_matter() -> None:
    """A log that holds its profile has times; the profile may come first."""
    alone = rows("ops", str(FOLDER / "m121-alexnet-infer-interleaved" / "run.log"), "--each")
    assert sum(row["kernels"] for row in alone) == 58
    files = [str(FOLDER / "m121-lenet-infer" / file) for file in ("run.log", "prof.json")]
    assert run("ops", *files, "--format", "csv") == run("ops", *reversed(files), "--format", "csv")


@pytest.mark.shared
def test_a_log_alone_has_no_columns_of_time() -> None:
    text = run("ops", str(FOLDER / "m121-lenet-infer" / "run.log"), "--format", "csv")
    assert "kernel_ns" not in next(csv.reader(io.StringIO(text)))


@pytest.mark.shared
def test_driver_lines_tell_the_time_of_an_iteration() -> None:
    """Of a steady one, over the calls that a command stands for; the command that takes most first."""
    name = "m290-alexnet-infer-10it"
    files = str(FOLDER / name / "run.log"), str(FOLDER / name / "prof.json")
    expected = [
        (row["command"], f"{row['kernel_ns'] / 1e6:.3f} ms in a steady iteration")
        for row in rows("ops", *files, "--group-by", "command")
        if "command" in row
    ]
    assert len(expected) > 5
    lines = [line.partition(" # ") for line in run("driver", *files).splitlines()]
    shown = [(command, comment.rpartition(", ")[2]) for command, _, comment in lines if " ms " in comment]
    assert shown == expected
    assert " ms " not in run("driver", files[0])


def test_a_profile_without_a_log_is_one_clear_line(tmp_path: Path) -> None:
    """There is nothing to time."""
    file = tmp_path / "prof.json"
    file.write_text("[]")
    result = CliRunner().invoke(cli, ["ops", str(file)])
    assert result.exit_code == 1
    assert "holds no line of MIOpen; expected its log" in result.stderr


@pytest.mark.shared
def test_what_only_the_profile_states_is_in_every_table(tmp_path: Path) -> None:
    """Beside MIOpen's calls PyTorch's own ops: each has its row, and time by problem is that of the kernels."""
    twin = shared_folder() / "samples" / "rocm-twins" / "lenet-train-own-layers"
    files = str(twin / "run.hip.log"), str(twin / "kineto" / "rank0.pt.trace.json.gz")
    kernel_ns = sum(row["kernel_ns"] for row in rows("kernels", *files) if "operation" in row)
    each = rows("ops", *files, "--each")
    assert {"aten::addmm", "miopenConvolutionForward"} <= {row["api"] for row in each}
    assert sum(row.get("kernel_ns", 0) for row in each) == kernel_ns
    assert sum(row["kernel_ns"] for row in rows("ops", *files, "--group-by", "problem")) == kernel_ns
    run(*files, "-o", str(tmp_path / "out.parquet"))
    assert rows("ops", str(tmp_path / "out.parquet"), "--each") == each
