"""Host time in launching calls and time in the queue: equal to plain sums over the raw file."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.cli import cli
from mio2trace.measures.device_time.launches import queue_ns
from mio2trace.model.profile import Activity, Call
from tests.conftest import ROOT, shared_folder

SAMPLES = shared_folder() / "samples" / "rocm"


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*map(str, arguments), "--format", "json"])
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def raw(path: Path) -> list[tuple[str, int, int | None, int | None, bool]]:
    """Of each kernel of a Kineto file: name, correlation, time in the launching call, time in the queue (ns), and
    whether a graph launched it."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    calls = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and event.get("ph") == "X":
            start = round(event["ts"] * 1000)
            calls[event["args"].get("correlation")] = start, start + round(event["dur"] * 1000), event["name"]
    found = []
    for event in events:
        if event.get("cat") == "kernel":
            correlation = event["args"]["correlation"]
            start, end, name = calls.get(correlation, (None, None, ""))
            is_graph = "GraphLaunch" in name
            known = start is not None and end is not None and not is_graph
            queue = max(0, round(event["ts"] * 1000) - end) if known and end is not None else None
            api = end - start if known and start is not None and end is not None else None
            found.append((event["name"], correlation, api, queue, is_graph))
    return found


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["kineto_mi300x_vit_infer", "kineto_mi300_bert_small", "graphs/vllm_decode_full.replay"]
)
def test_times_in_the_queue_are_those_of_the_file(name: str) -> None:
    """By kernel name, to 2 ns per kernel; a kernel that a graph launched has none."""
    path = SAMPLES / f"{name}.json.gz"
    ours: dict[str, list[int | None]] = defaultdict(list)
    for row in rows("kernels", path):
        ours[row["name"]].append(row.get("in_queue_ns"))
    expected: dict[str, list[int | None]] = defaultdict(list)
    for kernel, _, _, queue, _ in raw(path):
        expected[kernel].append(queue)
    assert ours.keys() == expected.keys()
    for kernel, of_kernel in expected.items():
        assert ours[kernel].count(None) == of_kernel.count(None)
        known = [ns for ns in of_kernel if ns is not None]
        total = sum(ns for ns in ours[kernel] if ns is not None)
        assert total == pytest.approx(sum(known), abs=2 * len(known))
    data = mio2trace.load(path).kernels.column("in_queue_ns")
    assert sorted(ns or 0 for ns in data) == sorted(ns or 0 for of in ours.values() for ns in of)


@pytest.mark.shared
def test_times_of_operations_are_the_sums_of_their_kernels() -> None:
    """All 155 kernels of the sample are in operations: the tables' sums are those of the file."""
    path = SAMPLES / "kineto_mi300x_vit_infer.json.gz"
    of_file = raw(path)
    calls = {correlation: api or 0 for _, correlation, api, _, _ in of_file}
    expected = sum(calls.values()), sum(queue or 0 for _, _, _, queue, _ in of_file)
    assert len(of_file) == 155
    for arguments in (("--each",), (), ("--group-by", "primitive")):
        made = rows("ops", path, *arguments)
        found = tuple(sum(row.get(name, 0) for row in made) for name in ("api_ns", "in_queue_ns"))
        assert found == pytest.approx(expected, abs=2 * 155)
    operations = mio2trace.load(path).operations
    assert sum(ns or 0 for ns in operations.column("api_ns")) == pytest.approx(expected[0], abs=2 * 155)


@pytest.mark.shared
def test_a_graphs_call_is_not_counted_for_each_of_its_kernels() -> None:
    """421 kernels have one call in common: none of them has a host time, and no sum holds that time 421 times."""
    replay = SAMPLES / "graphs" / "vllm_decode_full.replay.json.gz"
    graph_names = {kernel for kernel, _, _, _, is_graph in raw(replay) if is_graph}
    made = {row["name"]: row for row in rows("kernels", replay, "--by", "name")}
    assert len(graph_names & made.keys()) > 10
    assert not [name for name in graph_names & made.keys() if {"host_ns", "in_queue_ns"} & made[name].keys()]


def test_a_queue_time_needs_one_clock_and_a_call_before_the_kernel() -> None:
    call = Call("hipLaunchKernel", start_ns=100, end_ns=150)
    kernel = Activity(0, "kernel", "k", start_ns=170, end_ns=200, call=call)
    late_call = Activity(0, "kernel", "k", start_ns=120, end_ns=200, call=call)
    too_early = Activity(0, "kernel", "k", start_ns=99, end_ns=200, call=call)
    queued = Activity(0, "kernel", "k", queued_ns=5, submit_ns=7, start_ns=12, end_ns=20)
    assert queue_ns(kernel, on_one_clock=True) == 20
    assert queue_ns(kernel, on_one_clock=False) is None
    assert queue_ns(late_call, on_one_clock=True) == 0
    assert queue_ns(too_early, on_one_clock=True) is None
    assert queue_ns(queued, on_one_clock=False) == 7


def test_a_device_that_records_the_queue_states_it_itself() -> None:
    """dv/dt: from queued to started, both on the device's clock."""
    made = rows("kernels", ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz")
    assert len(made) > 100
    assert all(row["in_queue_ns"] == row["start_ns"] - row["queued_ns"] for row in made)
