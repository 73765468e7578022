"""Timer marks: the cut is the true one or none, for whole runs, cut ones, and logs that say something else."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.damage import measured
from benchmarks.damage_score import tallies
from benchmarks.damages.profiles import part_lost
from benchmarks.damages.run import ENQUEUE
from benchmarks.damages.sets import HANDLES, caffe
from mio2trace import analyse
from mio2trace.align import NONE, Alignment, align
from mio2trace.model.log import FrameworkLog, LogEvent
from mio2trace.notes import Notes
from tests.conftest import shared_folder
from tests.records import changed, with_opencl
from tests.synthetic_run import Kernel, Layer, Run, make_run, random_net

seeds = st.integers(0, 2**32 - 1).map(Random)
MARKS_ONLY = frozenset({"recurrence", "durations", "boundary stamps", "position", "name and sizes"})


def place(found: Alignment, position: int) -> tuple[int | None, str | None, str] | None:
    """(iteration, direction, layer) that an enqueue was given."""
    run = found.links.run_of[position]
    if run == NONE:
        return None
    layer = found.links.runs[run]
    return found.links.passes[layer.pass_].iteration, layer.direction, layer.layer


def check_exact(run: Run, found: Alignment) -> None:
    """Every enqueue of an iteration in its true layer, every other in none."""
    for position, true in enumerate(run.places):
        assert place(found, position) == (true if true is not None and true[0] > 0 else None)


def replaced(run: Run, **changes: object) -> FrameworkLog:
    return msgspec.structs.replace(run.log, **changes)


@given(seeds, st.integers(1, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_sequences_are_cut_as_they_were_built(
    rng: Random, layers: int, iterations: int, backward: bool, warm_up: bool
) -> None:
    """Forward only and with backward, any net and number of iterations; the host spans hold their enqueues."""
    net = random_net(rng, layers)
    run = make_run(rng, net, iterations=iterations, backward=backward, warm_up=warm_up, tail=2)
    notes = Notes()
    found = align(run.profile, [run.log], notes, without=MARKS_ONLY)
    check_exact(run, found)
    assert not notes.problems
    runs = found.links.runs
    assert len(runs) == iterations * layers * (2 if backward else 1)
    assert all(a.host_end_ns <= b.host_start_ns for a, b in pairwise(runs) if a.host_end_ns and b.host_start_ns)
    for enqueue, number in zip(run.profile.activities, found.links.run_of, strict=True):
        if number != NONE:
            held = runs[number]
            assert held.host_start_ns is not None
            assert held.host_end_ns is not None
            assert enqueue.host_start_ns is not None
            assert enqueue.host_end_ns is not None
            assert held.host_start_ns <= enqueue.host_start_ns <= enqueue.host_end_ns <= held.host_end_ns


@given(seeds, st.integers(1, 8), st.integers(1, 4), st.booleans(), st.data())
def test_a_killed_run_is_cut_as_far_as_its_marks_go(
    rng: Random, layers: int, iterations: int, backward: bool, data: st.DataObject
) -> None:
    """The log has no layer times then, only the net that was set up: whole iterations are right, nothing is wrong."""
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    benchmark = run.profile.opencl.marks[0].number
    end = data.draw(st.integers(benchmark + 1, run.profile.records))
    marks = tuple(mark for mark in run.profile.opencl.marks if mark.number < end)
    enqueues = tuple(enqueue for enqueue in run.profile.activities if enqueue.number < end)
    printed = [e for e in run.log.events if e.kind == "iteration"]
    per_iteration = (len(run.profile.opencl.marks) - 2) // iterations
    whole = min(iterations, (len(marks) - 1) // per_iteration)
    assume(whole < iterations)
    kept = {event.line for event in printed[:whole]}
    before = [e for e in run.log.events if e.line < printed[0].line]
    log = replaced(run, layers=(), events=(*before, *(e for e in printed if e.line in kept)))
    cut = Run(
        profile=with_opencl(run.profile, marks=marks, activities=enqueues, records=end),
        log=log,
        places=run.places[: len(enqueues)],
        starts=run.starts,
    )
    notes = Notes()
    found = align(cut.profile, [log], notes, without=MARKS_ONLY)
    for position, true in enumerate(cut.places):
        assert place(found, position) in (None, true)
        if true is not None and 0 < true[0] <= whole and layers > 1:
            assert place(found, position) == true
    if any(true is not None and true[0] > 0 for true in cut.places):
        assert any("timer marks" in note.kind for note in notes.problems)


@given(seeds, st.integers(2, 8), st.integers(1, 4), st.booleans(), st.integers(-2, 2), st.data())
def test_a_profile_that_ended_is_cut_into_the_logs_layers_or_not_at_all(
    rng: Random, layers: int, iterations: int, backward: bool, more: int, data: st.DataObject
) -> None:
    """The log goes on; where it tells of more layers or fewer than there are, the printed times show that."""
    assume(layers + more > 0)
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    end = data.draw(st.integers(run.profile.opencl.marks[0].number + 1, run.profile.opencl.marks[-1].number))
    marks = tuple(mark for mark in run.profile.opencl.marks if mark.number < end)
    enqueues = tuple(enqueue for enqueue in run.profile.activities if enqueue.number < end)
    profile = with_opencl(run.profile, marks=marks, activities=enqueues, records=end)
    other = make_run(Random(1), random_net(rng, layers + more), iterations=1, backward=backward)
    log = replaced(run, layers=other.log.layers, net=()) if more else run.log
    found = align(profile, [log], Notes(), without=MARKS_ONLY, by_order_alone=True)
    for position, true in enumerate(run.places[: len(enqueues)]):
        assert place(found, position) in (None, true)


@given(seeds, st.integers(2, 12), st.integers(1, 6), st.booleans(), st.integers(-5, 5).filter(bool))
def test_a_net_with_the_wrong_number_of_layers_is_never_used(
    rng: Random, layers: int, iterations: int, backward: bool, more: int
) -> None:
    """Also when by chance the number of marks fits another number of iterations: what lies between layers tells."""
    assume(layers + more > 0)
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    other = make_run(Random(1), random_net(rng, layers + more), iterations=1, backward=backward)
    events = tuple(event for event in run.log.events if event.kind not in ("testing", "iteration", "average begins"))
    log = replaced(run, layers=other.log.layers, net=(), events=events, iterations=None)
    notes = Notes()
    found = align(run.profile, [log], notes, without=MARKS_ONLY, by_order_alone=True)
    assert set(found.links.layer_by) == {""}
    assert any("timer marks do not fit" in note.kind for note in notes.problems)


def test_the_chance_fit_of_the_wrong_number_of_layers_is_possible() -> None:
    """10 layers in 3 iterations and 7 layers in 4 leave as many marks: the check above is needed."""
    run = make_run(Random(1), random_net(Random(1), 10, empty=0), iterations=3)
    assert len(run.profile.opencl.marks) == 2 + 3 * (4 + 2 * 10) == 2 + 4 * (4 + 2 * 7)


@given(seeds, st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_marks_of_passes_alone_tell_the_passes(rng: Random, layers: int, iterations: int, backward: bool) -> None:
    """Newer programs mark layers only on demand: iteration and direction are then exact, layers left to others."""
    net = random_net(rng, layers, empty=0)
    run = make_run(rng, net, iterations=iterations, backward=backward)
    per_layer = range(2 * layers)
    kept = [run.profile.opencl.marks[0]]
    rest = iter(run.profile.opencl.marks[1:-1])
    for _ in range(iterations):
        kept.append(next(rest))
        for _ in range(2 if backward else 1):
            kept.append(next(rest))
            for _ in per_layer:
                next(rest)
            kept.append(next(rest))
        kept.append(next(rest))
    kept.append(run.profile.opencl.marks[-1])
    profile = with_opencl(run.profile, marks=tuple(kept))
    found = align(profile, [run.log], Notes(), without=MARKS_ONLY)
    links = found.links
    assert set(links.layer_by) == {""}
    for position, true in enumerate(run.places):
        number = links.pass_of[position]
        if true is not None and true[0] > 0:
            assert (links.passes[number].iteration, links.passes[number].direction) == true[:2]
        else:
            assert number == NONE or links.passes[number].phase != "iteration"


def test_marks_without_a_log_place_nothing() -> None:
    """The net is not known: no layer can be named."""
    run = make_run(Random(1), random_net(Random(1), 5))
    found = align(run.profile, [], Notes())
    assert set(found.links.layer_by) == {""}
    assert all(one.repeated for one in found.links.passes)


@pytest.mark.parametrize("said", [1, 3, 50])
def test_a_log_that_says_another_number_of_iterations_is_told_of(said: int) -> None:
    """The marks are the profile's own; what they show is used, and the difference is a problem."""
    run = make_run(Random(2), random_net(Random(2), 6, empty=0), iterations=2)

    def changed(event: LogEvent) -> LogEvent:
        return msgspec.structs.replace(event, number=said) if event.kind == "testing" else event

    log = replaced(run, events=tuple(map(changed, run.log.events)), iterations=said)
    notes = Notes()
    found = align(run.profile, [log], notes, without=MARKS_ONLY)
    check_exact(run, found)
    assert f"timer marks show 2 iterations, the log says {said}" in [note.kind for note in notes.problems]


def test_ambiguous_marks_are_not_used() -> None:
    """One layer, no word on backward: five forward-only iterations and three with backward leave as many marks."""
    empty = [Layer(name="data"), Layer(name="loss")]
    run = make_run(Random(3), empty[:1], iterations=5)
    assert len(run.profile.opencl.marks) == 2 + 3 * (6 + 4)
    log = replaced(run, layers=(), events=(), iterations=None)
    notes = Notes()
    found = align(run.profile, [log], notes)
    assert not found.links.runs
    assert any("do not fit" in note.kind for note in notes.problems)


def test_kernels_between_the_marks_of_layers_are_counted() -> None:
    """They are in no layer; a stock program has none, so the person is told."""
    rng = Random(4)
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=100_000)]) for i in range(3)]
    run = make_run(rng, net)
    stop, start = run.profile.opencl.marks[4], run.profile.opencl.marks[5]
    assert start.number == stop.number + 1
    odd = changed(run.profile.activities[-3], number=stop.number)
    enqueues = sorted([*run.profile.activities, odd], key=lambda e: e.number)
    profile = with_opencl(run.profile, activities=tuple(enqueues))
    notes = Notes()
    found = align(profile, [run.log], notes, without=MARKS_ONLY)
    assert found.links.run_of[enqueues.index(odd)] == NONE
    assert any("between the timer marks" in note.kind and note.count == 1 for note in notes.problems)


def test_times_at_the_marks_that_are_not_the_printed_ones_are_told_of() -> None:
    """The log of another run of the same net: the marks are still the profile's own."""
    run = make_run(Random(5), random_net(Random(5), 6, empty=0))
    layers = tuple(msgspec.structs.replace(layer, printed_ns=3 * layer.printed_ns) for layer in run.log.layers)
    notes = Notes()
    found = align(run.profile, [replaced(run, layers=layers)], notes, without=MARKS_ONLY)
    check_exact(run, found)
    assert any("differ from the printed ones" in note.kind for note in notes.problems)
    links = found.links
    assert links.layer_unsure == {p for p, word in enumerate(links.layer_by) if word == "timer marks"}


@pytest.mark.parametrize("iterations", [1, 2])
def test_no_marks_at_all_is_no_problem(iterations: int) -> None:
    """Other frameworks leave none; here nothing else may tell layers either, and that is said."""
    run = make_run(Random(6), random_net(Random(6), 4), iterations=iterations, marks=False)
    notes = Notes()
    found = align(run.profile, [run.log], notes, without=MARKS_ONLY)
    assert set(found.links.layer_by) == {""}
    assert all("nothing relates to the profile" in note.kind for note in notes.problems)


@pytest.mark.shared
@pytest.mark.parametrize("row", ["profile ends early", "iterations only in the log"])
def test_a_first_iteration_that_took_longer_than_the_mean_has_its_marks(row: str) -> None:
    """Printed times are means of two, of which the profile has one: its layers took no more than both did."""
    layers = measured(shared_folder(), (row, "alexnet-b3-libdnn-train-iter2", HANDLES, 0)).layers
    assert layers.right >= layers.kernels - 2
    assert layers.wrong_and_sure == 0
    assert layers.bins[4][0] == 0, "the iteration's beginning tells the clock: nothing is in doubt for that"


@pytest.mark.shared
@pytest.mark.parametrize("hole", [(0.05, 0.35), (0.75, 0.85), (0.85, 0.95)])
def test_marks_that_put_kernels_into_layers_of_another_type_are_not_used(
    hole: tuple[float, float], tmp_path: Path
) -> None:
    """Marks that the profile lost in the middle leave the rest where an iteration that was cut has others."""
    run = caffe(shared_folder() / "samples" / "dvdt" / "alexnet-b1-train.run.log")
    lost = part_lost(*hole)(run, Random(0))
    layers = tallies(lost, analyse(lost.write(tmp_path)))[1]
    assert layers.wrong_and_sure == 0
    assert layers.right >= 0.95 * layers.kernels


@pytest.mark.shared
def test_a_second_iteration_that_the_profile_cuts_has_its_marks(tmp_path: Path) -> None:
    """Some layers are marked in both iterations, whose mean is printed, some in the first alone."""
    run = part_lost(0.85, 1)(caffe(shared_folder() / "samples/dvdt/alexnet-b3-libdnn-train-iter2.run.log"), Random(0))
    layers = tallies(run, analyse(run.write(tmp_path)))[1]
    assert layers.right >= layers.kernels - 2
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-train", "squeezenet11-b1-libdnn-fwd"])
def test_another_runs_kernels_between_timer_marks_are_in_no_layer(name: str, tmp_path: Path) -> None:
    """Two runs' profiles in one file, some calls of one between some of the other: the other's queue has kernels that
    are named after other types of layers."""
    folder = shared_folder() / "samples" / "dvdt"
    own, other = caffe(folder / f"{name}.run.log"), caffe(folder / "lenet-b2-fwd.run.log")
    each = 30
    calls: list[Any] = []
    place: dict[int, int] = {}
    for begin in range(0, max(len(own.profile), len(other.profile)), each):
        for number, call in enumerate(own.profile[begin : begin + each], begin):
            place[number] = len(calls)
            calls.append(call)
        calls += other.profile[begin : begin + each]
    enqueues = [{**one, "prof_index": place[one["prof_index"]]} for one in own.truth["enqueues"]]
    theirs = sorted(set(range(len(calls))) - set(place.values()))
    enqueues += [
        {**enqueues[0], "index": 10**6 + at, "prof_index": at, "name": calls[at]["name"], "layer": None}
        for at in theirs
        if calls[at]["call"] == ENQUEUE
    ]
    mixed = replace(own, calls=calls, truth={**own.truth, "enqueues": enqueues})
    layers = tallies(mixed, analyse(mixed.write(tmp_path)))[1]
    assert layers.wrong_and_sure == 0
    assert layers.links > 50
    assert layers.right > 0.4 * layers.kernels
