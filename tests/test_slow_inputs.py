"""Inputs that are made to be slow take no longer than others."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mio2trace.align.operations import stream
from mio2trace.align.operations.chances import Posterior
from mio2trace.align.operations.lattice import NARROW, WIDE, Lattice, Width
from mio2trace.align.operations.stream import solve_together
from tests.commands import invoked, printed
from tests.fuzz.backtracking import limit
from tests.fuzz.crossed_loops import ALL
from tests.fuzz.slow_inputs import Slow

SMALL = 10_000
MOST_MORE = 2.6
"""So many times the calls of functions for twice the input: 2 where all is linear, 4 where all meets all."""
LONGEST = 20.0
"""CPU seconds for the largest. All take a quarter of it; what crosses everything with everything takes minutes."""


@pytest.mark.parametrize("name", ALL)
def test_twice_the_input_is_twice_the_work(name: str, tmp_path: Path) -> None:
    """Whatever comes of it: a trace, a table or one line that says why there is none. Counted in calls of functions,
    which no busy machine changes; what does not grow with the input is taken off."""
    _calls(name, 1_000, tmp_path)  # what is loaded and compiled at first
    calls = [_calls(name, size, tmp_path) for size in (SMALL, 2 * SMALL, 4 * SMALL)]
    # A small one may be tried in ways that a larger one is not, and caches hold what came before.
    for more in (8, 16):
        if not _is_linear(calls[-3:]):
            calls.append(_calls(name, more * SMALL, tmp_path))
    assert _is_linear(calls[-3:]), calls


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("calls that cross", "draw/containers.py"), ("calls that cross", "draw/host.py"),
        ("lost calls", "readers/opencl/__init__.py"), ("devices of one name", "readers/tf/executions.py"),
        ("calls of many iterations", "draw/selection.py"),
        ("benchmarks with layers", "align/same_run.py"), ("processes of one log", "align/same_run.py"),
    ],
)  # fmt: skip
def test_loops_within_one_function_are_not_crossed(name: str, module: str, tmp_path: Path) -> None:
    """Calls of functions do not show what a function repeats within itself: its lines are counted."""
    lines = [_lines(name, size, module, tmp_path) for size in (SMALL, 2 * SMALL)]
    assert 0 < lines[1] <= MOST_MORE * lines[0], lines


def _lines(name: str, size: int, module: str, folder: Path) -> int:
    """How many lines of ``module`` are run."""
    count = 0

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def begun(frame: FrameType, event: str, _: object) -> Any:
        return local if frame.f_code.co_filename.endswith(module) else None

    arguments = _written(ALL[name], size, folder)
    before = sys.gettrace()
    sys.settrace(begun)
    try:
        invoked(*arguments)
    finally:
        sys.settrace(before)
    return count


def _is_linear(calls: Sequence[int]) -> bool:
    """Whether twice the input, and twice that, adds about twice as many calls."""
    grown, grown_twice = calls[1] - calls[0], calls[2] - calls[1]
    return grown_twice <= MOST_MORE * max(0, grown) + SMALL // 100


def _calls(name: str, size: int, folder: Path) -> int:
    profiler = cProfile.Profile()
    slow = ALL[name]
    arguments = _written(slow, size, folder)
    with limit(LONGEST):
        profiler.enable()
        result = invoked(*arguments)
        profiler.disable()
    assert result.exit_code in (0, 1), result.output
    return sum(entry.callcount for entry in profiler.getstats())


def _written(slow: Slow, size: int, folder: Path) -> list[str]:
    """The command with files of about so many bytes."""
    paths = []
    for number, data in enumerate(slow.files(size)):
        paths.append(folder / f"{number}.log")
        paths[-1].write_bytes(data)
    arguments = [*slow.command.split(), *map(str, paths)]
    return [*arguments, "-o", str(folder / "out.json")] if arguments[0] == "convert" else arguments


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[Width]:
    """The widths of all searches."""
    found: list[Width] = []
    solve = Lattice.solve

    def counted(lattice: Lattice) -> Posterior:
        found.append(lattice._width)
        return solve(lattice)

    monkeypatch.setattr(Lattice, "solve", counted)
    return found


def test_a_search_that_links_nothing_is_widened_once(tmp_path: Path, widths: list[Width]) -> None:
    """What learns from its links has nothing to learn: a second wide search would be the first one again."""
    printed(*_written(ALL["idle operations"], 30_000, tmp_path))
    assert widths == [NARROW, WIDE]


@pytest.mark.parametrize(("vague", "expected"), [(10**9, {NARROW, WIDE}), (100, {NARROW})], ids=["never", "100"])
def test_where_nothing_tells_calls_apart_no_search_is_wide(
    vague: int, expected: set[Width], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widths: list[Width]
) -> None:
    monkeypatch.setattr(stream, "TOO_VAGUE", vague)
    assert invoked(*_written(ALL["kernels of any call"], SMALL, tmp_path)).exit_code == 0
    assert set(widths) >= expected
    assert (WIDE in widths) == (WIDE in expected)


class _Queue:
    """What `solve_together` asks of a stream: it launches ``calls``, whatever the others do."""

    def __init__(self, calls: dict[int, float]) -> None:
        self.operations = (1, 2)
        self.elsewhere = {1: 0.5, 2: 0.5}
        self.posterior = Posterior.of_none(1)
        self.calls = calls
        self.solved = 0

    def solve(self) -> Posterior:
        self.solved += 1
        return self.posterior

    def launched(self) -> dict[int, float]:
        return self.calls


@pytest.mark.parametrize(("calls", "times"), [({}, 1), ({1: 0.9}, 2)])
def test_queues_are_solved_again_where_another_one_tells_more(calls: dict[int, float], times: int) -> None:
    """Not where none launched anything, nor where the others say what they said before."""
    queues: list[Any] = [_Queue(calls), _Queue(calls)]
    solve_together(queues)
    assert [queue.solved for queue in queues] == [times, times]
