"""The real samples with truth as runs: MIOpen on OpenCL, Caffe, and the twins that ROCm's tools would have recorded."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from benchmarks.damages.run import FRAMEWORK, Run, masked, with_lines

TWINS: tuple[tuple[str, str, str], ...] = (
    ("alexnet-level6-none", "run.hip.log", "rocpd/45919_results.db.gz"),
    ("alexnet-level6-none", "run.hip.log", "rocprof-v1/results.csv"),
    ("lenet-cmdonly-kernel-trace", "run.hip.log", "rocpd/41242_results.db.gz"),
    ("resnet-immediate-2ranks", "run.rank0.log", "rocpd/42730_results.db.gz"),
    ("resnet-immediate-2ranks", "run.log", "rocpd/42730_results.db.gz"),
)
"""Set, log, profile: those without ranges. Logs in the text of the twin's source have that run's own ids and times."""
HANDLES, HIDDEN, NO_FRAMEWORK, TWIN, BARE_TWIN = "handles", "hidden", "nf", "twin", "twin nf"
VARIANTS = (HANDLES, HIDDEN, NO_FRAMEWORK, TWIN, BARE_TWIN)


def every_set(shared: Path) -> Iterator[Run]:
    """All runs with truth, by name."""
    samples = shared / "samples"
    yield from (Run.load(path.parent) for path in sorted((samples / "miopen-opencl").glob("*/truth.json")))
    for path in sorted((samples / "dvdt").glob("*.run.log")):
        if path.with_name(path.name.replace(".run.log", ".truth.json")).exists():
            yield caffe(path)
    for name, log, profile in TWINS:
        folder = samples / "rocm-twins" / name
        yield twin(folder, log, folder / profile)


def variants(run: Run) -> Iterator[tuple[str, Run]]:
    """The run in each of `VARIANTS` that it can have. No profile of a twin holds a pointer that the log could name."""
    if run.files:
        yield TWIN, run
        yield BARE_TWIN, without_framework(run)
        return
    yield HANDLES, run
    if any(call.get("log_line") for call in run.truth["api_calls"]):
        run = masked(run)
        yield HIDDEN, run
    if run.truth["api_calls"]:
        yield NO_FRAMEWORK, without_framework(run)


def without_framework(run: Run) -> Run:
    """The run of a program that prints nothing: only MIOpen wrote, and nothing tells a kernel's layer."""
    bare = with_lines(run, [FRAMEWORK.match(line) is None for line in run.log])
    return replace(bare, has_layers=False)


def caffe(log: Path) -> Run:
    """A run of Caffe's: layers are all that is known of it."""
    stem = log.name.removesuffix(".run.log")
    told = orjson.loads(log.with_name(f"{stem}.truth.json").read_bytes())
    layers = [{"name": _layer(layer), "lines_before": 0, "lines_after": 0} for layer in told["layers"]]
    enqueues = [
        {"index": index, "name": one["name"], "prof_index": one["call_index"], "layer": one["l"], "api_call": None}
        for index, one in enumerate(told["enqueues"])
    ]
    truth = {"layers": layers, "api_calls": [], "enqueues": enqueues, "other_commands": []}
    calls = orjson.loads(log.with_name(f"{stem}.prof.json").read_bytes())
    return Run(stem, log.read_bytes().splitlines(keepends=True), calls, truth)


def _layer(layer: Mapping[str, Any]) -> str:
    """As MIOpen's truth files name it; the pass before the benchmark has no number there."""
    name: str = layer["pass"] if layer["pass"] != "init" else "warm-up"
    return f"{name} {layer['direction']} {layer['layer']}"


def twin(folder: Path, log: str, profile: Path) -> Run:
    """A twin with one of its logs and one of its profiles; calls of other processes stay as lines of the log."""
    told = orjson.loads((folder / "truth.json").read_bytes())
    lines = (folder / log).read_bytes().splitlines(keepends=True)
    process = next((one for one in told["processes"] if str(one["pid"]) in profile.name), told["processes"][0])
    calls = [_call(call, log) for call in told["operations"]]
    _stretch(calls, lines)
    key = "v1" if "rocprof-v1" in str(profile) else "dispatch_id"
    enqueues = [
        {"index": index, "name": one["name"], "prof_index": one[key], "layer": one["layer"], "api_call": one["op"]}
        for index, one in enumerate(one for one in told["kernels"] if one["rank"] == process["rank"])
    ]
    truth = {"layers": told["layers"], "api_calls": calls, "enqueues": enqueues, "other_commands": []}
    data = profile.read_bytes()
    data = gzip.decompress(data) if profile.suffix == ".gz" else data
    name = f"twin-{folder.name}-{log.removesuffix('.log')}-{profile.parent.name}"
    return Run(name, lines, None, truth, {profile.name.removesuffix(".gz"): data})


def _call(call: Mapping[str, Any], log: str) -> dict[str, Any]:
    lines = {key: (call[key] or {}).get(log) for key in ("log_line", "cmd_line")}
    return {"index": call["index"], "name": call["name"], **lines, "lines_before": 0, "lines_after": 0}


def _stretch(calls: Sequence[dict[str, Any]], log: Sequence[bytes]) -> None:
    """Each call's own lines: up to the next call's first, without those of the program after its last."""
    starts = [(call["log_line"] or call["cmd_line"], call) for call in calls if call["log_line"] or call["cmd_line"]]
    starts.sort(key=lambda item: item[0])
    for place, (line, call) in enumerate(starts):
        end = starts[place + 1][0] - 1 if place + 1 < len(starts) else len(log)
        while end > line and FRAMEWORK.match(log[end - 1]):
            end -= 1
        call["lines_before"], call["lines_after"] = line - 1, end
