"""Which iteration each kernel of a twin belongs to, as `truth.json` says: for profiles joined with their log."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracle.events import Recording


@dataclass(frozen=True)
class Iterations:
    """Of a process: kernels and their time by iteration, in order. Set-up and searches are in none."""

    kernels: tuple[int, ...]
    kernel_ns: tuple[int, ...]


def iterations(folder: Path, recording: Recording) -> dict[int, Iterations]:
    """By process. What runs as a kernel in one format is a copy in another: what counts is what the recording has."""
    text = json.loads((folder / "truth.json").read_text())
    layers = text["layers"]
    number = {process["rank"]: process["pid"] for process in text["processes"]}
    true: dict[tuple[int, int], dict[str, Any]] = {
        (kernel["start"], kernel["end"]): kernel for kernel in text["kernels"]
    }
    shift = _shift(text, recording)
    found: dict[int, dict[int, list[int]]] = {process: defaultdict(list) for process in number.values()}
    for command in recording.commands:
        kernel = true.get((command.start - shift, command.end - shift))
        if command.kind != "kernel" or kernel is None or kernel["layer"] is None or kernel["find"]:
            continue
        iteration = layers[kernel["layer"]]["iteration"]
        if iteration is not None:
            found[number[kernel["rank"]]][iteration].append(command.end - command.start)
    return {
        process: Iterations(
            tuple(len(times) for _, times in sorted(of.items())), tuple(sum(times) for _, times in sorted(of.items()))
        )
        for process, of in found.items()
        if of
    }


def _shift(text: dict[str, Any], recording: Recording) -> int:
    """By how much the recording's clock is ahead of the truth's: that of PyTorch's profiler has a base of its own."""
    first = min(command.start for command in recording.commands if command.kind == "kernel")
    if any(kernel["start"] == first for kernel in text["kernels"]):
        return 0
    of = {command.process for command in recording.commands}
    ranks = {process["rank"] for process in text["processes"] if process["pid"] in of}
    true: int = min(one["start"] for one in text["kernels"] if "kineto" in one and one["rank"] in ranks)
    return first - true
