"""``layers --tree``: totals of modules against the raw file; parents hold their parts; one denominator."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import row, trace

SAMPLES = shared_folder() / "samples" / "rocm"


def nodes(*arguments: str | Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, ["layers", "--tree", *map(str, arguments), "--format", "json"])
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def raw_modules(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Own and total kernel time (ns) by module: those open at the launch, by time on its thread; innermost: own."""
    events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event["ph"] == "X"]
    modules = [
        (event["tid"], event["ts"], event["ts"] + event["dur"], event["name"].removeprefix("nn.Module: "))
        for event in events
        if event.get("cat") == "python_function" and event["name"].startswith("nn.Module: ")
    ]
    calls = {
        event["args"]["correlation"]: (event["tid"], event["ts"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for event in events:
        if event.get("cat") != "kernel":
            continue
        thread, at = calls[event["args"]["correlation"]]
        around = [(start, name) for tid, start, end, name in modules if tid == thread and start <= at < end]
        ns = round((event["ts"] + event["dur"]) * 1000) - round(event["ts"] * 1000)
        own[max(around)[1] if around else ""] += ns
        for name in {name for _, name in around}:
            total[name] += ns
    return own, total


@pytest.mark.shared
def test_totals_of_modules_are_those_of_the_file() -> None:
    path = SAMPLES / "kineto_mi300x_vit_infer.json.gz"
    own, total = raw_modules(path)
    found = [node for node in nodes(path) if node["kind"] == "layer"]
    assert len(found) == len({node["name"] for node in found}) > 100
    assert {node["name"]: node["total_ns"] for node in found} == pytest.approx(dict(total), abs=310)
    assert {node["name"]: node["own_ns"] for node in found} == pytest.approx({n: own[n] for n in total}, abs=310)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["kineto_mi300x_vit_infer", "kineto_mi300x_resnet_train_ddp", "kineto_mi300_bert_small"]
)
def test_what_a_node_holds_adds_up_to_it(name: str) -> None:
    """A layer's own time is that of its operations; with the layers within it, it is the total. Shares are of the same
    whole, which is that of the table of layers."""
    path = SAMPLES / f"{name}.json.gz"
    found = nodes(path)
    below: Counter[int] = Counter()
    operations: Counter[int] = Counter()
    for node in found:
        if "parent" in node:
            below[node["parent"]] += node["total_ns"]
            operations[node["parent"]] += node["total_ns"] if node["kind"] == "operation" else 0
    for node in found:
        if node["kind"] != "kernel":
            assert below[node["node"]] == pytest.approx(node["total_ns"], abs=0.01)
        if node["kind"] == "layer":
            assert operations[node["node"]] == pytest.approx(node["own_ns"], abs=0.01)
        assert node["percent_of_kernel_time"] == pytest.approx(100 * node["total_ns"] / found[0]["total_ns"])
    result = CliRunner().invoke(cli, ["layers", str(path), "--format", "json"])
    rows = json.loads(result.stdout)
    of_layers: Counter[str] = Counter()
    for one in rows:
        of_layers[one["layer"]] += one["kernel_ns"]
    own = {node["name"]: node["own_ns"] for node in found if node["kind"] == "layer"}
    assert {name: own[name] for name in of_layers} == pytest.approx(dict(of_layers))


def test_layers_of_a_log_are_a_flat_tree() -> None:
    """Caffe's log names no layer within another."""
    folder = ROOT / "traces" / "alexnet-b1-train"
    found = nodes(folder / "run.log", folder / "prof.json.gz")
    assert {node["level"] for node in found if node["kind"] == "layer"} == {1}
    assert [node for node in found if node["kind"] == "operation" and node["level"] == 2]


def nested(depth: int, *, turned: bool = False) -> bytes:
    """A module in a module, each ``depth`` deep; with ``turned`` a second call nests them the other way round."""
    events = []
    for base, order in ((0, 1), (100_000, -1)) if turned else ((0, 1),):
        for level, number in enumerate(list(range(depth))[::order]):
            events.append(row("python_function", f"nn.Module: M_{number}", 1, 1, base + level, 10_000 - 2 * level))
        call = base + depth + 10
        events.append(row("cuda_runtime", "hipLaunchKernel", 1, 1, call, 5, correlation=7 + base))
        events.append(row("kernel", "k", 0, 0, call + 20, 100, correlation=7 + base, device=0, stream=0))
    return trace(events)


@pytest.mark.parametrize(("depth", "turned"), [(3, False), (2, True), (200, False), (200, True)])
def test_any_nesting_ends(depth: int, turned: bool, tmp_path: Path) -> None:
    """Modules that call each other in turn are no endless tree; of very deep ones the outermost are left out."""
    path = tmp_path / "trace.json"
    path.write_bytes(nested(depth, turned=turned))
    found = nodes(path)
    layers = [node for node in found if node["kind"] == "layer"]
    assert sum(node["own_ns"] for node in layers) == pytest.approx(found[0]["total_ns"])
    assert max(node["level"] for node in layers) == min(depth, 64)
    if depth == 3:
        assert [node["tree"] for node in layers] == ["  M_0", "    M_1", "      M_2"]
