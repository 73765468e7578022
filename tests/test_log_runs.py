"""Several runs in one log: which of its lines are the profile's, and what is said where nothing tells."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.damage import loaded
from benchmarks.damage_score import Tally, tallies
from benchmarks.damages import clocks, losses, processes
from benchmarks.damages.run import Mutation, Run, with_lines
from benchmarks.damages.sets import HANDLES, NO_FRAMEWORK, TWIN, without_framework
from mio2trace import analyse
from mio2trace.align.rates import LAST
from mio2trace.align.same_run import _parts_of, split
from mio2trace.model.log import FrameworkLog, LogEvent, LogEventKind
from tests.conftest import shared_folder

pytestmark = pytest.mark.shared


def run_of(name: str, variant: str = HANDLES) -> Run:
    return loaded(shared_folder())[variant][name]


def scored(run: Run, folder: Path) -> tuple[Tally, Tally]:
    return tallies(run, analyse(run.write(folder)))


def test_two_processes_in_one_log_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    """Their lines stand between each other's; layers are those of the log alone."""
    run = run_of("lenet-b2-fwd")
    mixed = processes.log_mixed(run, run_of("lenet-b2-viennacl-fwd"), Random(2), ids=True)
    operations, layers = scored(mixed, tmp_path)
    assert layers.right == layers.kernels == len(run.truth["enqueues"])
    assert operations.right == operations.kernels
    assert operations.wrong_and_sure == layers.wrong_and_sure == 0


@pytest.mark.parametrize("change", [processes.earlier_run, processes.later_run])
def test_where_nothing_tells_the_runs_apart_every_call_is_in_doubt(change: Mutation, tmp_path: Path) -> None:
    """The same with stamps of seconds: no link to a call is likelier than that it is the last run's. The layers are
    those of either."""
    run = change(run_of("twin-resnet-immediate-2ranks-run.rank0-rocpd", TWIN), Random(1))
    run = clocks.stamps_coarse(1_000_000)(run, Random(1))
    operations, layers = scored(run, tmp_path)
    assert operations.links > 0
    assert operations.wrong_and_sure == layers.wrong_and_sure == 0
    assert operations.said <= LAST * operations.links + 1e-6
    assert layers.right == layers.links


@pytest.mark.parametrize("change", [processes.earlier_run, processes.later_run])
def test_of_runs_that_only_miopen_logged_buffers_tell_the_profiles(change: Mutation, tmp_path: Path) -> None:
    """The same program twice in one log without a framework's lines."""
    run = without_framework(run_of("m290-resnet-infer-immediate-fused"))
    operations, _ = scored(change(run, Random(1)), tmp_path)
    assert operations.links > 0
    assert operations.wrong_and_sure == 0
    assert operations.right == operations.kernels


def test_iterations_are_no_runs(tmp_path: Path) -> None:
    """What comes again in the profile, too, is one run of the program."""
    run = run_of("m290-alexnet-infer-10it", NO_FRAMEWORK)
    setup = next(layer["lines_before"] for layer in run.truth["layers"] if layer["name"].startswith("iter0"))
    bare = with_lines(run, [line >= setup for line in range(len(run.log))])
    operations, _ = scored(bare, tmp_path)
    assert operations.links > 200
    assert operations.right == operations.kernels


def test_a_process_of_which_only_layers_are_left_has_its_calls(tmp_path: Path) -> None:
    """Two processes, one of which lost all lines but those of its layers."""
    run = run_of("m290-alexnet-infer-10it")
    mixed = processes.log_mixed(run, run_of("m290-resnet-infer-immediate-fused"), Random(2), ids=True)
    told = [b"] Setting up", b"Iteration", b"Benchmark", b"Testing", b"Average", b"Total", b"caffe.cpp:361]"]
    bare = with_lines(mixed, [b" 4711 " not in line or not any(word in line for word in told) for line in mixed.log])
    operations, layers = scored(bare, tmp_path)
    assert operations.links > 0
    assert layers.wrong_and_sure == 0


def test_iterations_that_only_the_log_has_are_no_clock_that_stepped(tmp_path: Path) -> None:
    """Where most calls have not as many rows of kernels, those that have as many tell nothing of the log's clock."""
    changed = losses.longer_log(run_of("m290-alexnet-infer-10it"), Random(0))
    analysis = analyse(changed.write(tmp_path))
    operations, _ = tallies(changed, analysis)
    assert (operations.right, operations.kernels) == (278, 278)
    assert not any("stepped" in str(note) for note in analysis.notes)


def test_runs_of_a_log_whose_lines_are_in_any_order() -> None:
    """A damaged log may leave a run without any event."""
    empty = 0
    for seed in range(300):
        random = Random(seed)
        kinds: list[LogEventKind] = ["benchmark begins", "setting up", "iteration"]
        events = tuple(LogEvent(source=0, kind=random.choice(kinds), line=random.randrange(9)) for _ in range(8))
        log = FrameworkLog(source=0, events=events)
        empty += any(not run.events for run in split(log))
        assert sum(len(parts) for parts in _parts_of(log)) == len(split(log))
    assert empty
