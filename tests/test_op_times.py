"""``ops`` and ``driver`` with a profile: times of operations against the truth and the profile itself."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.attribution import names, samples
from mio2trace.cli import cli
from tests.conftest import shared_folder

FOLDER = samples(shared_folder())
SETS = [name for name in names(FOLDER) if (FOLDER / name / "prof.json").exists()]


def files_of(name: str) -> tuple[str, str]:
    return str(FOLDER / name / "run.log"), str(FOLDER / name / "prof.json")


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
    true: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for line, kernel, ns in kernels(name):
        true[line or 0].append((kernel, ns))
    each = rows("ops", *files_of(name), "--each")
    whole = sum(ns for _, _, ns in kernels(name))
    for row in each:
        ran = true[row["line"]]
        time = sum(ns for _, ns in ran)
        assert row["kernels"] == len(ran)
        assert row.get("kernel_ns", 0) == time
        assert row.get("transposes_ns", 0) == sum(ns for kernel, ns in ran if kernel.startswith("transpose_"))
        assert row.get("percent_of_kernel_time", 0) == pytest.approx(100 * time / whole)
        assert ("gflops" in row) is bool(row["phase"] == "run" and row.get("flop") and time)
        assert row.get("gflops", 0) == pytest.approx(row["flop"] / time if "gflops" in row else 0)
    assert sum(row.get("kernel_ns", 0) for row in each) == sum(ns for line in true if line for _, ns in true[line])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m290-alexnet-infer-10it", "m290-resnet-infer-immediate-fused"])
def test_groups_sum_their_operations(name: str) -> None:
    """Of steady iterations: calls, mean, rate, helpers; most time first; each search beside what it is for."""
    iterations = range(2, 11) if "10it" in name else (1,)
    each: dict[str, list[dict[str, Any]]] = defaultdict(list)
    searched: Counter[str] = Counter()
    for row in rows("ops", *files_of(name), "--each"):
        if row["phase"] == "find":
            searched[row["problem"]] += row.get("kernel_ns", 0)
        elif row["kernels"] and row["iteration"] in iterations:
            each[row["problem"]].append(row)
    groups = rows("ops", *files_of(name), "--group-by", "problem")
    assert {group["problem"] for group in groups} == each.keys()
    times = [group["kernel_ns"] for group in groups]
    assert times == sorted(times, reverse=True)
    whole = sum(ns for _, _, ns in kernels(name)) if len(iterations) == 1 else 190118541
    for group in groups:
        members = each[group["problem"]]
        ran, helpers = (sum(row.get(key, 0) for row in members) for key in ("kernel_ns", "helpers_ns"))
        assert group["calls"] == len(members) / len(iterations)
        assert group["kernel_ns"] == pytest.approx(ran / len(iterations))
        assert group["percent_of_kernel_time"] == pytest.approx(100 * ran / whole)
        assert "gflops" not in group or group["gflops"] == pytest.approx(sum(row["flop"] for row in members) / ran)
        assert group.get("helpers_ns", 0) == pytest.approx(helpers / len(iterations))
        assert group.get("find_ns", 0) == searched[group["problem"]]


@pytest.mark.shared
def test_which_files_make_a_table_with_times() -> None:
    """A log that holds its profile has times, a log alone none; the profile may come first."""
    alone = rows("ops", str(FOLDER / "m121-alexnet-infer-interleaved" / "run.log"), "--each")
    assert sum(row["kernels"] for row in alone) == 58
    log, profile = files_of("m121-lenet-infer")
    assert run("ops", log, profile, "--format", "csv") == run("ops", profile, log, "--format", "csv")
    assert "kernel_ns" not in run("ops", log, "--format", "csv").splitlines()[0]


@pytest.mark.shared
def test_driver_lines_tell_the_time_of_an_iteration() -> None:
    """Of a steady one, over the calls that a command stands for; the command that takes most first."""
    files = files_of("m290-alexnet-infer-10it")
    expected = [
        (row["command"], f"{row['kernel_ns'] / 1e6:.3f} ms in a steady iteration")
        for row in rows("ops", *files, "--group-by", "command")
        if "command" in row
    ]
    assert len(expected) > 5
    lines = [line.partition(" # ") for line in run("driver", *files).splitlines()]
    assert [(command, said.rpartition(", ")[2]) for command, _, said in lines if " ms " in said] == expected
    assert " ms " not in run("driver", files[0])


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
