"""Runs of a side, made of a real one: scattered as GPUs do, with a change in some of their parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
from click.testing import CliRunner, Result

from mio2trace.analysis import analyse
from mio2trace.cli import cli
from mio2trace.comparing import Part, RunRecord, Side
from mio2trace.comparing.record import collect, condensed
from mio2trace.comparing.sides import base_text
from mio2trace.notes import Notes
from tests.conftest import ROOT

ALEXNET = tuple(ROOT / "traces" / "alexnet-b1-miopen29" / name for name in ("run.log.gz", "prof.json.gz"))


def compare(*words: object) -> Result:
    """What the command does."""
    return CliRunner().invoke(cli, ["compare", *map(str, words)])


@functools.cache
def recorded(*files: Path) -> RunRecord:
    """A real run as comparisons keep it; AlexNet by MIOpen, with operations and layers, unless told."""
    record = collect(analyse(files or ALEXNET).run, Notes())
    assert record is not None
    return record


def base(folder: Path, name: str, side: Side) -> Path:
    """A base of the side."""
    (folder / f"{name}.json").write_bytes(base_text(side, "mio2trace"))
    return folder / f"{name}.json"


BETWEEN, WITHIN = 0.025, 0.03
"""Scatter between runs and within them that was measured on real GPUs."""


Change = Callable[[Part], Part | None]


def noisy(record: RunRecord, runs: int, seed: int, change: Change = lambda part: part, **more: object) -> Side:
    """Runs of a side as a GPU scatters them, with a change of some of their parts."""
    random = Random(seed)
    made = []
    for number in range(runs):
        parts = []
        whole = [0.0] * 5
        for part in record.parts:
            own = change(part)
            if own is None:
                continue
            speed = 1 + random.gauss(0, BETWEEN)
            samples = [max(1, round(own.mean_ns * speed * (1 + random.gauss(0, WITHIN)))) for _ in range(5)]
            parts.append(
                msgspec.structs.replace(own, samples_ns=condensed(samples), mean_ns=sum(samples) / len(samples))
            )
            if own.kind != "layer":
                whole = [before + ns for before, ns in zip(whole, samples, strict=True)]
        made.append(
            msgspec.structs.replace(
                record,
                name=f"run {number}",
                parts=tuple(parts),
                samples_ns=tuple(sorted(whole)),
                mean_ns=sum(whole) / 5,
                **more,
            )
        )
    return Side(name=f"side {seed}", runs=tuple(made))


def slower(name: str, factor: float) -> Change:
    def change(part: Part) -> Part:
        return msgspec.structs.replace(part, mean_ns=part.mean_ns * factor) if part.name == name else part

    return change


def largest(record: RunRecord, kind: str = "problem") -> Part:
    return max((part for part in record.parts if part.kind == kind), key=lambda part: part.mean_ns)


def renamed(name: str) -> Change:
    def change(part: Part) -> Part:
        if part.name != name or part.kind != "kernel":
            return part
        inside = tuple(msgspec.structs.replace(one, name="new_name") for one in part.kernels)
        return msgspec.structs.replace(part, name="new_name", kernels=inside)

    return change
