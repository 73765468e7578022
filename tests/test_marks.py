"""Timer marks: the cut is the true one or none, for whole runs, cut ones, and logs that say something else."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress, pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from benchmarks.damage import measured
from benchmarks.damage_score import Tally, tallies
from benchmarks.damages.profiles import part_lost
from benchmarks.damages.run import ENQUEUE
from benchmarks.damages.sets import HANDLES, caffe
from mio2trace import analyse
from mio2trace.align import NONE, Alignment, align
from mio2trace.notes import Notes
from tests.conftest import shared_folder
from tests.records import changed, with_opencl
from tests.synthetic_run import Kernel, Layer, Run, make_run, places_of, random_net, seeds

MARKS_ONLY = frozenset({"recurrence", "durations", "boundary stamps", "position", "name and sizes"})


def check_exact(run: Run, found: Alignment) -> None:
    """Every enqueue of an iteration in its true layer, every other in none."""
    assert places_of(found.links) == [true if true is not None and true[0] > 0 else None for true in run.places]


def ended(run: Run, end: int) -> Run:
    """The profile up to a call."""
    marks = tuple(mark for mark in run.profile.opencl.marks if mark.number < end)
    kept = [at for at, enqueue in enumerate(run.profile.activities) if enqueue.number < end]
    return run.of_some(kept, marks=marks, records=end)


@given(seeds, st.integers(1, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_sequences_are_cut_as_built(rng: Random, layers: int, iterations: int, backward: bool, warm_up: bool) -> None:
    """Forward only and with backward, any net and number of iterations; the host spans hold their enqueues."""
    net = random_net(rng, layers)
    run = make_run(rng, net, iterations=iterations, backward=backward, warm_up=warm_up, tail=2)
    notes = Notes()
    found = align(run.profile, [run.log], notes, without=MARKS_ONLY)
    check_exact(run, found)
    assert not notes.problems
    spans = [(one.host_start_ns or 0, one.host_end_ns or 0) for one in found.links.runs]
    assert len(spans) == iterations * layers * (2 if backward else 1)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    for enqueue, number in zip(run.profile.activities, found.links.run_of, strict=True):
        if number != NONE:
            start, end = spans[number]
            assert start <= (enqueue.host_start_ns or 0) <= (enqueue.host_end_ns or 0) <= end


@given(seeds, st.integers(1, 8), st.integers(1, 4), st.booleans(), st.data())
def test_a_killed_run_is_cut_as_far_as_its_marks_go(
    rng: Random, layers: int, iterations: int, backward: bool, data: st.DataObject
) -> None:
    """The log has no layer times then, only the net that was set up: whole iterations are right, nothing is wrong."""
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    marks = run.profile.opencl.marks
    in_first_layer = st.just(marks[4].number)
    cut = ended(run, data.draw(in_first_layer | st.integers(marks[0].number + 1, run.profile.records)))
    whole = min(iterations, (len(cut.profile.opencl.marks) - 1) // ((len(marks) - 2) // iterations))
    assume(whole < iterations)
    printed = [e for e in run.log.events if e.kind == "iteration"]
    before = [e for e in run.log.events if e.line < printed[0].line]
    log = run.with_log(layers=(), events=(*before, *printed[:whole])).log
    notes = Notes()
    found = align(cut.profile, [log], notes, without=MARKS_ONLY)
    for said, true in zip(places_of(found.links), cut.places, strict=True):
        assert said in (None, true)
        if true is not None and 0 < true[0] <= whole and layers > 1:
            assert said == true
    if cut.in_iterations():
        assert any("timer marks" in note.kind for note in notes.problems)


@given(seeds, st.integers(2, 8), st.integers(1, 4), st.booleans(), st.integers(-2, 2), st.data())
def test_a_profile_that_ended_is_cut_into_the_logs_layers_or_not_at_all(
    rng: Random, layers: int, iterations: int, backward: bool, more: int, data: st.DataObject
) -> None:
    """The log goes on; where it tells of more layers or fewer than there are, the printed times show that."""
    assume(layers + more > 0)
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    marks = run.profile.opencl.marks
    cut = ended(run, data.draw(st.integers(marks[0].number + 1, marks[-1].number)))
    other = make_run(Random(1), random_net(rng, layers + more), iterations=1, backward=backward)
    log = run.with_log(layers=other.log.layers, net=()).log if more else run.log
    found = align(cut.profile, [log], Notes(), without=MARKS_ONLY, by_order_alone=True)
    assert all(said in (None, true) for said, true in zip(places_of(found.links), cut.places, strict=True))


@given(seeds, st.integers(2, 12), st.integers(1, 6), st.booleans(), st.integers(-5, 5).filter(bool))
@example(Random(1), 10, 3, False, -3)  # 7 layers in 4 iterations leave as many marks
def test_a_net_of_other_layers_is_unused(rng: Random, layers: int, iterations: int, backward: bool, more: int) -> None:
    """Also when by chance the number of marks fits another number of iterations: what lies between layers tells."""
    assume(layers + more > 0)
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    other = make_run(Random(1), random_net(rng, layers + more), iterations=1, backward=backward)
    events = tuple(event for event in run.log.events if event.kind not in ("testing", "iteration", "average begins"))
    log = run.with_log(layers=other.log.layers, net=(), events=events, iterations=None).log
    notes = Notes()
    found = align(run.profile, [log], notes, without=MARKS_ONLY, by_order_alone=True)
    assert set(found.links.layer_by) == {""}
    assert any("timer marks do not fit" in note.kind for note in notes.problems)


@given(seeds, st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_marks_of_passes_alone_tell_the_passes(rng: Random, layers: int, iterations: int, backward: bool) -> None:
    """Newer programs mark layers only on demand: iteration and direction are then exact, layers left to others."""
    run = make_run(rng, random_net(rng, layers, empty=0), iterations=iterations, backward=backward)
    of_pass = [True, *[False] * (2 * layers), True]
    is_kept = [True, *[True, *of_pass * (2 if backward else 1), True] * iterations, True]
    profile = with_opencl(run.profile, marks=tuple(compress(run.profile.opencl.marks, is_kept)))
    links = align(profile, [run.log], Notes(), without=MARKS_ONLY).links
    assert len(is_kept) == len(run.profile.opencl.marks)
    assert set(links.layer_by) == {""}
    for true, number in zip(run.places, links.pass_of, strict=True):
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
    events = tuple(
        msgspec.structs.replace(event, number=said) if event.kind == "testing" else event for event in run.log.events
    )
    notes = Notes()
    log = run.with_log(events=events, iterations=said).log
    check_exact(run, align(run.profile, [log], notes, without=MARKS_ONLY))
    assert f"timer marks show 2 iterations, the log says {said}" in [note.kind for note in notes.problems]


def test_ambiguous_marks_are_not_used() -> None:
    """One layer, no word on backward: five forward-only iterations and three with backward leave as many marks."""
    run = make_run(Random(3), [Layer(name="data")], iterations=5)
    assert len(run.profile.opencl.marks) == 2 + 3 * (6 + 4)
    notes = Notes()
    found = align(run.profile, [run.with_log(layers=(), events=(), iterations=None).log], notes)
    assert not found.links.runs
    assert any("do not fit" in note.kind for note in notes.problems)


def test_kernels_between_the_marks_of_layers_are_counted() -> None:
    """They are in no layer; a stock program has none, so the person is told."""
    run = make_run(Random(4), [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=100_000)]) for i in range(3)])
    stop, start = run.profile.opencl.marks[4:6]
    assert start.number == stop.number + 1
    odd = changed(run.profile.activities[-3], number=stop.number)
    enqueues = sorted([*run.profile.activities, odd], key=lambda e: e.number)
    notes = Notes()
    found = align(with_opencl(run.profile, activities=tuple(enqueues)), [run.log], notes, without=MARKS_ONLY)
    assert found.links.run_of[enqueues.index(odd)] == NONE
    assert any("between the timer marks" in note.kind and note.count == 1 for note in notes.problems)


def test_times_at_the_marks_that_are_not_the_printed_ones_are_told_of() -> None:
    """The log of another run of the same net: the marks are still the profile's own."""
    run = make_run(Random(5), random_net(Random(5), 6, empty=0))
    layers = tuple(msgspec.structs.replace(layer, printed_ns=3 * layer.printed_ns) for layer in run.log.layers)
    notes = Notes()
    found = align(run.profile, [run.with_log(layers=layers).log], notes, without=MARKS_ONLY)
    check_exact(run, found)
    assert any("differ from the printed ones" in note.kind for note in notes.problems)
    assert found.links.layer_unsure == {p for p, word in enumerate(found.links.layer_by) if word == "timer marks"}


def scored(run: Any, folder: Path) -> Tally:
    """Its links to layers."""
    return tallies(run, analyse(run.write(folder)))[1]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "part", "least"),
    [
        *[("alexnet-b1-train", hole, 0.95) for hole in ((0.05, 0.35), (0.75, 0.85), (0.85, 0.95))],
        ("alexnet-b3-libdnn-train-iter2", (0.85, 1), 1),
    ],
)
def test_marks_beside_a_part_that_is_lost(name: str, part: tuple[float, float], least: float, tmp_path: Path) -> None:
    """Those that put kernels into layers of another type are not used: marks that the profile lost in the middle leave
    the rest where an iteration that was cut has others. In a second iteration that the profile cuts, some layers are
    marked in both, whose mean is printed, some in the first alone."""
    layers = scored(part_lost(*part)(caffe(DVDT / f"{name}.run.log"), Random(0)), tmp_path)
    assert layers.wrong_and_sure == 0
    assert layers.right >= least * layers.kernels - 2 * (least == 1)


DVDT = shared_folder() / "samples" / "dvdt"


@pytest.mark.parametrize("iterations", [1, 2])
def test_no_marks_at_all_is_no_problem(iterations: int) -> None:
    """Other frameworks leave none; here nothing else may tell layers either, and that is said."""
    run = make_run(Random(6), random_net(Random(6), 4), iterations=iterations, marks=False)
    notes = Notes()
    assert set(align(run.profile, [run.log], notes, without=MARKS_ONLY).links.layer_by) == {""}
    assert all("cannot be related to the profile" in note.kind for note in notes.problems)


@pytest.mark.shared
@pytest.mark.parametrize("row", ["profile ends early", "iterations only in the log"])
def test_a_first_iteration_that_took_longer_than_the_mean_has_its_marks(row: str) -> None:
    """Printed times are means of two, of which the profile has one: its layers took no more than both did."""
    layers = measured(shared_folder(), (row, "alexnet-b3-libdnn-train-iter2", HANDLES, 0)).layers
    assert layers.right >= layers.kernels - 2
    assert layers.wrong_and_sure == 0
    assert layers.bins[4][0] == 0, "the iteration's beginning tells the clock: nothing is in doubt for that"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-train", "squeezenet11-b1-libdnn-fwd"])
def test_another_runs_kernels_between_timer_marks_are_in_no_layer(name: str, tmp_path: Path) -> None:
    """Two runs' profiles in one file, some calls of one between some of the other: the other's queue has kernels that
    are named after other types of layers."""
    own, other = caffe(DVDT / f"{name}.run.log"), caffe(DVDT / "lenet-b2-fwd.run.log")
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
    layers = scored(replace(own, calls=calls, truth={**own.truth, "enqueues": enqueues}), tmp_path)
    assert layers.wrong_and_sure == 0
    assert layers.links > 50
    assert layers.right > 0.4 * layers.kernels
