"""Of a run that no viewer takes the steady iterations in its middle are drawn, and the conversion says so."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace import cli
from mio2trace.draw import selection

STEPS, KERNELS = 40, 12


def kineto(folder: Path, steps: int = STEPS, named: bool = True) -> Path:
    """Steps of twelve launches and their kernels; every step takes a millisecond."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        begin = step * 1000
        if named:
            mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 5}", "pid": 1, "tid": 1}
            events.append(mark | {"ts": begin, "dur": 990})
        for at in range(KERNELS):
            number = step * KERNELS + at + 1
            ids = {"correlation": number, "External id": number}
            start = begin + 10 + 80 * at
            call = {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 1, "tid": 1, "args": ids}
            events.append(call | {"ts": start, "dur": 5})
            ran = {"device": 0, "stream": 7, "correlation": number}
            kernel = {"ph": "X", "cat": "kernel", "name": f"kernel{at}", "pid": 0, "tid": 7, "args": ran}
            events.append(kernel | {"ts": start + 10, "dur": 20 + at})
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(orjson.dumps({"schemaVersion": 1, "traceEvents": events})))
    return path


@pytest.fixture
def small_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer that takes 500 slices of the 960, and shows 240 of them well: ten steps of twelve kernels and calls."""
    monkeypatch.setattr(selection, "MOST_SLICES", 500)
    monkeypatch.setattr(selection, "WINDOW_SLICES", 240)


def converted(path: Path, *options: str) -> tuple[str, list[dict[str, Any]]]:
    output = path.with_name("out.json")
    found = CliRunner().invoke(cli.cli, ["convert", str(path), "-o", str(output), *options])
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


def test_all_draws_everything_and_says_nothing(tmp_path: Path, small_viewer: None) -> None:
    said, events = converted(kineto(tmp_path), "--all")
    assert len(starts(events)) == STEPS * KERNELS
    assert "--all" not in said


def test_the_numbers_are_of_the_whole_run(tmp_path: Path, small_viewer: None) -> None:
    path = kineto(tmp_path)
    part, whole = (
        mio2trace.convert(path, output=tmp_path / f"{everything}.pftrace", everything=everything)
        for everything in (False, True)
    )
    assert part.answer == whole.answer
    assert part.metadata["attribution"] == whole.metadata["attribution"]
    assert part.trace.left_out == (STEPS - 10) * KERNELS
    assert whole.trace.left_out == 0


def test_what_somebody_chose_is_drawn(tmp_path: Path, small_viewer: None) -> None:
    said, events = converted(kineto(tmp_path), "--iterations", "5-44")
    assert len(starts(events)) == STEPS * KERNELS
    assert "--all" not in said


def test_a_run_that_a_viewer_takes_is_drawn_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_SLICES", 2 * STEPS * KERNELS)
    monkeypatch.setattr(selection, "WINDOW_SLICES", 240)
    said, events = converted(kineto(tmp_path))
    assert len(starts(events)) == STEPS * KERNELS
    assert "--all" not in said


def test_a_run_without_iterations_is_drawn_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_SLICES", 10)
    said, events = converted(kineto(tmp_path, steps=1, named=False))
    assert len(starts(events)) == KERNELS
    assert "--all" not in said


def test_one_iteration_at_least_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_SLICES", 10)
    monkeypatch.setattr(selection, "WINDOW_SLICES", 1)
    assert len(starts(converted(kineto(tmp_path))[1])) == KERNELS
