"""Logs that hold the same bytes: in one folder they are one log, in folders of different runs one of each run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.comparing.sides import side
from mio2trace.notes import Notes
from tests.batch_work import content
from tests.commands import csv_of, printed
from tests.conftest import ROOT
from tests.kineto_files import FIRST_US, rows, trace

COMMAND = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n 10 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 "
    "-p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n"
)
LEFT_OUT = "left out"


def a_run(folder: Path, number: int, *, rank: int | None = None, factor: float = 1.0) -> Path:
    """A profile of three steps and a log of commands, which every run prints alike."""
    folder.mkdir(parents=True)
    events = []
    for step in range(3):
        for event in rows(FIRST_US + 10_000_000 * number + 2_000 * step + 50 * (rank or 0)):
            args = dict(event["args"])
            for key in ("correlation", "External id"):
                if key in args:
                    args[key] += 1000 * step
            duration = event["dur"] * factor + 0.1 * number if event["cat"] == "kernel" else event["dur"]
            name = event["name"].replace("#3", f"#{3 + step}")
            events.append({**event, "dur": duration, "name": name, "args": args})
    pid = 542 if rank is None else 542 + rank
    for event in events:
        if event["pid"] == 542:
            event["pid"] = event["tid"] = pid
    of_rank = {"backend": "nccl", "rank": 3 if rank is None else rank}
    (folder / "trace.json").write_bytes(trace(events, distributedInfo=of_rank))
    (folder / "run.log").write_text(COMMAND * 3)
    return folder


def a_side(folder: Path, factor: float = 1.0) -> Path:
    for number in range(3):
        a_run(folder / f"run{number}", number, factor=factor)
    return folder


def test_compare_uses_every_run_of_both_sides(tmp_path: Path) -> None:
    """Three and three, none left out, by the Python interface and by the command."""
    sides = a_side(tmp_path / "before"), a_side(tmp_path / "after", 1.5)
    for path in sides:
        notes = Notes()
        found = side([str(path)], AnalysisOptions(repetition="every"), notes)
        assert len(found.runs) == 3
        assert len({run.mean_ns for run in found.runs}) == 3
        assert not [note for note in notes if LEFT_OUT in note.kind or "used once" in note.kind]
    assert {one["runs"] for one in csv_of("compare", *sides, "--all")} == {"3+3"}


@pytest.mark.parametrize("name", ["lenet-rocpd", "alexnet-b1-train"])
def test_a_copy_of_a_run_is_that_run(name: str, tmp_path: Path) -> None:
    """Profile and log in two folders: one run, with one log."""
    for folder in ("a", "b"):
        shutil.copytree(ROOT / "traces" / name, tmp_path / folder, ignore=shutil.ignore_patterns("*.json"))
    inputs = [
        path for path in sorted(tmp_path.rglob("*")) if path.name.startswith(("run.log", "results.db", "prof.json"))
    ]
    notes = Notes()
    run = analyse(inputs, notes=notes).run
    alone = analyse([path for path in inputs if path.parent.name == "a"]).run
    assert [(log.layers, log.events) for log in run.logs] == [(log.layers, log.events) for log in alone.logs]
    assert len(run.libraries) == len(alone.libraries)
    assert list(run.alignments[0].links.layer_by) == list(alone.alignments[0].links.layer_by)
    assert "input given twice: used once" in {note.kind for note in notes}


def test_each_rank_has_the_log_beside_its_profile(tmp_path: Path) -> None:
    """Ranks print the same commands: a log is the rank's whose profile alone is in its folder."""
    for rank in range(2):
        a_run(tmp_path / f"rank{rank}", 0, rank=rank, factor=1 + 0.01 * rank)
    files = [tmp_path / f"rank{rank}" / name for rank in range(2) for name in ("trace.json", "run.log")]
    notes = Notes()
    run = analyse(files, AnalysisOptions(by_order_alone=True), notes=notes).run
    assert run.is_job
    assert [len(share.operations) for share in run.shares] == [3, 3]
    assert "log that no evidence assigns to a process: not joined" not in {note.kind for note in notes}


def test_batch_has_each_run_with_its_log(warm: None, tmp_path: Path) -> None:
    """A dataset of three runs, each with the operations of its log."""
    pytest.importorskip("duckdb")
    pytest.importorskip("nanoarrow")
    a_side(tmp_path / "runs")
    dataset = tmp_path / "dataset"
    printed("batch", tmp_path / "runs", "-o", dataset)
    operations = {name: len(found) for name, found in content(dataset).items() if name.startswith("operations/")}
    assert len(operations) == 3
    assert len(set(operations.values())) == 1
    assert min(operations.values()) > 3
