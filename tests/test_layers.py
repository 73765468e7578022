"""All evidence together: strongest first, nothing overridden, nothing wrong without a doubt, whatever is missing."""

from __future__ import annotations

from itertools import combinations
from random import Random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mio2trace.align import NONE, Alignment, LayerRun, Links, align
from mio2trace.align.links import DOUBTED
from mio2trace.evidence import EVIDENCE
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Activity
from mio2trace.notes import InputError, Notes
from tests.records import changed, enqueued, with_opencl
from tests.synthetic_run import MS, SECOND, START, US, Clocks, Kernel, Layer, Run, make_run, random_net

seeds = st.integers(0, 2**32 - 1).map(Random)
USED = ("timer marks", "position", "boundary stamps", "recurrence", "durations")


def wrong_and_sure(run: Run, found: Alignment) -> list[int]:
    """Positions whose layer, direction or iteration is not the true one and was not doubted."""
    links = found.links
    wrong = []
    for position, place in enumerate(run.places):
        number = links.run_of[position]
        if number != NONE and position not in links.layer_unsure:
            held = links.runs[number]
            if (links.passes[held.pass_].iteration, held.direction, held.layer) != place:
                wrong.append(position)
    return wrong


def consistent(run: Run, found: Alignment) -> None:
    """A link names its evidence, lies in its layer's pass, and every number is one that exists."""
    links = found.links
    assert len(links.run_of) == len(links.pass_of) == len(links.layer_by) == len(run.profile.activities)
    for position, number in enumerate(links.run_of):
        assert (number == NONE) == (links.layer_by[position] == "")
        if number != NONE:
            assert links.layer_by[position] in EVIDENCE
            assert links.pass_of[position] == links.runs[number].pass_
    assert links.layer_unsure <= {p for p, number in enumerate(links.run_of) if number != NONE}


def random_run(rng: Random) -> Run:
    interleaved = rng.random() < 0.3
    return make_run(
        rng,
        random_net(rng, rng.randint(1, 10)),
        iterations=rng.randint(1, 3),
        backward=rng.random() < 0.5,
        warm_up=rng.random() < 0.7,
        marks=rng.random() < 0.5,
        interleaved=interleaved,
        boundary_lines=rng.random() < 0.4,
        extra_fills=rng.random() < 0.5,
        setup=rng.randint(0, 4),
        tail=rng.randint(0, 2),
        jitter=rng.choice([0, 0.3]),
        clocks=Clocks(zone_ns=rng.choice([0, -5 * 3600 * SECOND]), year=rng.random() < 0.5),
        gap=(20 * US, 90 * US),
    )


@given(seeds, st.sets(st.sampled_from(EVIDENCE)))
def test_any_evidence_may_be_left_out(rng: Random, without: set[str]) -> None:
    """What is left out is not used, the rest still is, and nothing gets wrong without a doubt."""
    run = random_run(rng)
    found = align(run.profile, [run.log], Notes(), without=frozenset(without))
    consistent(run, found)
    assert not without & set(found.links.layer_by)
    assert wrong_and_sure(run, found) == []


def test_every_subset_of_what_is_used_works_on_one_run() -> None:
    """All 32 of them; with nothing left out the marks do all of the iteration."""
    rng = Random(2)
    run = make_run(rng, random_net(rng, 6, empty=0), boundary_lines=True)
    for size in range(len(USED) + 1):
        for without in combinations(USED, size):
            found = align(run.profile, [run.log], Notes(), without=frozenset(without))
            consistent(run, found)
            assert wrong_and_sure(run, found) == []
            if not size:
                assert set(found.links.layer_by) == {"", "timer marks", "recurrence"}


@given(seeds, st.floats(0, 0.6))
def test_enqueues_without_host_times_are_placed_with_their_neighbours_or_doubted(rng: Random, share: float) -> None:
    """They do not take the others' layers away, and the person is told."""
    run = make_run(
        rng,
        random_net(rng, rng.randint(2, 8), empty=0, longest_ns=8 * MS),
        marks=False,
        boundary_lines=True,
        gap=(20 * US, 90 * US),
    )
    bare = [rng.random() < share for _ in run.profile.activities]
    lost = {"host_start_ns": None, "host_end_ns": None, "prepared_ns": None}
    enqueues = tuple(changed(e, **lost) if gone else e for e, gone in zip(run.profile.activities, bare, strict=True))
    cut = Run(profile=with_opencl(run.profile, activities=enqueues), log=run.log, places=run.places, starts=[])
    notes = Notes()
    try:
        found = align(cut.profile, [cut.log], notes)
    except InputError:
        assert bare[-1]  # the last enqueue is the landmark
        return
    consistent(cut, found)
    assert wrong_and_sure(cut, found) == []
    if any(bare) and found.log_clock is not None:
        assert any("without host times" in note.kind for note in notes.problems)


def test_one_enqueue_without_host_times_costs_only_itself() -> None:
    """All others keep the layers that their stamps give."""
    rng = Random(3)
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=MS)] * 3) for i in range(5)]
    run = make_run(rng, net, marks=False, boundary_lines=True, warm_up=False)
    lost = {"host_start_ns": None, "host_end_ns": None}
    for position in range(4, 12):
        enqueues = list(run.profile.activities)
        enqueues[position] = changed(enqueues[position], **lost)
        found = align(with_opencl(run.profile, activities=tuple(enqueues)), [run.log], Notes()).links
        for other, place in enumerate(run.places):
            if place is not None and other != position:
                assert found.runs[found.run_of[other]].layer == place[2]
                assert other not in found.layer_unsure
        # between two enqueues of one layer it can only be that layer's
        assert (position in found.layer_unsure) == (run.places[position - 1] != run.places[position + 1])


@pytest.mark.parametrize("step", [-5 * MS, -3 * SECOND])
@pytest.mark.parametrize("marks", [True, False])
def test_a_clock_set_back_during_the_run_tells_no_layers(step: int, marks: bool) -> None:
    """Its stamps are in no order: marks are, and the device's times, and the person is told."""
    rng = Random(4)
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=3 * MS)]) for i in range(10)]
    half = START + 15 * MS
    run = make_run(
        rng,
        net,
        marks=marks,
        boundary_lines=True,
        warm_up=False,
        clocks=Clocks(wall=lambda ns: ns + (step if ns > half else 0)),
    )
    notes = Notes()
    found = align(run.profile, [run.log], notes)
    assert wrong_and_sure(run, found) == []
    links = found.links
    assert "boundary stamps" not in links.layer_by
    # The device's clock was not set: it bears the printed times out.
    for place, number in zip(run.places, links.run_of, strict=True):
        assert place is None or links.runs[number].layer == place[2]
    assert ("durations" in links.layer_by) != marks
    assert ("timer marks" in found.links.layer_by) == marks
    assert any("set back during the run" in note.kind for note in notes.problems)


def after(first: Run, second: Run) -> FrameworkLog:
    """One log that both runs were written into."""
    last = max(event.line for event in first.log.events)
    shift = [
        tuple(msgspec.structs.replace(record, line=record.line + last) for record in records)
        for records in (second.log.events, second.log.layers)
    ]
    return msgspec.structs.replace(
        first.log,
        events=(*first.log.events, *shift[0]),
        layers=(*first.log.layers, *shift[1]),
        iterations=second.log.iterations,
    )


@given(seeds, st.booleans(), st.booleans())
def test_a_log_of_several_runs_gives_what_the_profiles_own_run_gives(rng: Random, marks: bool, second: bool) -> None:
    """The others are left out, and that is said."""
    net = random_net(rng, rng.randint(2, 8), empty=0)
    runs = [
        make_run(
            rng,
            net,
            iterations=rng.randint(1, 3),
            marks=marks,
            clocks=Clocks(start_ns=START + minutes * 60 * SECOND, offset_ns=0),
        )
        for minutes in (0, 7)
    ]
    log, own = after(*runs), runs[second]
    notes = Notes()
    found = align(own.profile, [log], notes)
    alone = align(own.profile, [own.log], Notes())
    assert wrong_and_sure(own, found) == []
    assert found.links.run_of == alone.links.run_of
    assert found.links.layer_by == alone.links.layer_by
    assert f"log of 2 runs: run {second + 1} ends with the profile, the others are left out" in [
        note.kind for note in notes.problems
    ]
    assert [event.kind for event in found.logs[0].events] == [event.kind for event in own.log.events]


def test_a_log_of_runs_of_different_nets_numbers_the_layers_of_each() -> None:
    """The index is the place in the profile's own net."""
    rng = Random(6)
    first = make_run(rng, [Layer(name=f"x{i}", forward=[Kernel(name="k", ns=MS)]) for i in range(3)])
    own = make_run(
        rng,
        [Layer(name=f"y{i}", forward=[Kernel(name="k", ns=MS)]) for i in range(4)],
        clocks=Clocks(start_ns=START + 400 * SECOND),
    )
    log = after(first, own)
    log = msgspec.structs.replace(
        log,
        layers=(*first.log.layers, *(msgspec.structs.replace(x, index=x.index + 3) for x in log.layers[6:])),
        net=(*first.log.net, *own.log.net),
    )
    found = align(own.profile, [log], Notes())
    assert [(layer.index, layer.layer) for layer in found.net.layers] == [(i, f"y{i}") for i in range(4)]
    assert wrong_and_sure(own, found) == []
    assert "timer marks" in found.links.layer_by


def test_without_host_times_the_last_run_of_a_log_is_taken_and_that_is_said() -> None:
    """Nothing tells which it is."""
    rng = Random(7)
    net = random_net(rng, 4, empty=0)
    first, own = make_run(rng, net), make_run(rng, net)
    bare = tuple(changed(e, host_start_ns=None, host_end_ns=None) for e in own.profile.activities)
    marks = tuple(msgspec.structs.replace(mark, host_ns=None) for mark in own.profile.opencl.marks)
    notes = Notes()
    align(with_opencl(own.profile, activities=bare, marks=marks), [after(first, own)], notes)
    assert any("the last one is used" in note.kind for note in notes.problems)


@given(seeds, st.floats(0, 1), st.booleans())
@example(Random(655), 0.875, False)  # all layer lines but the last are lost
def test_a_log_cut_anywhere_gives_nothing_wrong(rng: Random, share: float, from_end: bool) -> None:
    """Its first or its last lines are lost; refused, or placed by what is left."""
    run = random_run(rng)
    last = max(event.line for event in run.log.events)
    kept = range(int(share * last) + 1) if from_end else range(int(share * last), last + 1)
    log = msgspec.structs.replace(
        run.log,
        events=tuple(event for event in run.log.events if event.line in kept),
        layers=tuple(layer for layer in run.log.layers if layer.line in kept),
        net=tuple(layer for layer in run.log.net if layer.line in kept),
        iterations=None,
    )
    cut = Run(profile=run.profile, log=log, places=run.places, starts=run.starts)
    notes = Notes()
    try:
        found = align(cut.profile, [log], notes)
    except InputError:
        return
    consistent(cut, found)
    assert wrong_and_sure(cut, found) == []


@given(seeds, st.integers(-2, 2).filter(bool))
def test_a_log_with_more_or_fewer_iterations_than_the_profile_is_told_of(rng: Random, more: int) -> None:
    """Their lines lack or come too often: nothing wrong, and a word about it."""
    iterations = 3
    run = make_run(rng, random_net(rng, 5, empty=0), iterations=iterations)
    events = [
        msgspec.structs.replace(event, number=iterations + more) if event.kind == "testing" else event
        for event in run.log.events
    ]
    lines = [event for event in events if event.kind == "iteration"]
    if more < 0:
        events = [event for event in events if event not in lines[more:]]
    log = msgspec.structs.replace(run.log, events=tuple(events), iterations=iterations + more)
    cut = Run(profile=run.profile, log=log, places=run.places, starts=run.starts)
    notes = Notes()
    found = align(cut.profile, [log], notes)
    assert wrong_and_sure(cut, found) == []
    assert any(f"the log says {iterations + more}" in note.kind for note in notes.problems)


@pytest.mark.parametrize("backward", [False, True])
def test_an_iteration_whose_layer_lines_are_lost_is_like_one_that_has_them(backward: bool) -> None:
    """Every kernel of the others in its layer, by recurrence; the second is of the same kernels as the first."""
    net = random_net(Random(8), 6, empty=0)
    run = make_run(Random(8), net, iterations=3, backward=backward, marks=False, boundary_lines=True, warm_up=False)
    ends = [event.line for event in run.log.events if event.kind == "iteration"]
    kept = tuple(layer for layer in run.log.layers if not ends[0] < layer.line < ends[1])
    assert 0 < len(kept) < len(run.log.layers)
    log = msgspec.structs.replace(run.log, layers=kept)
    found = align(run.profile, [log], Notes(), without=frozenset(["durations"])).links
    lost = [position for position, place in enumerate(run.places) if place is not None and place[0] == 2]
    assert len(lost) >= 6
    for position in lost:
        assert found.layer_by[position] == "recurrence"
        held = found.runs[found.run_of[position]]
        assert (found.passes[held.pass_].iteration, held.direction, held.layer) == run.places[position]


@pytest.mark.parametrize("iterations", [1, 3])
def test_layer_lines_without_iteration_lines_count_as_they_repeat(iterations: int) -> None:
    """A layer that comes again begins the next iteration."""
    run = make_run(
        Random(9), random_net(Random(9), 4, empty=0), iterations=iterations, marks=False, boundary_lines=True,
        warm_up=False,
    )  # fmt: skip
    log = msgspec.structs.replace(
        run.log, events=tuple(event for event in run.log.events if event.kind != "iteration"), iterations=None
    )
    bare = Run(profile=run.profile, log=log, places=run.places, starts=run.starts)
    found = align(run.profile, [log], Notes())
    assert wrong_and_sure(bare, found) == []
    placed = {found.links.iteration_of(p) for p, by in enumerate(found.links.layer_by) if by == "boundary stamps"}
    assert placed == set(range(1, iterations + 1))


def test_an_empty_net_and_an_empty_profile_are_no_trouble() -> None:
    """A log without layers, a profile without enqueues, or neither."""
    run = make_run(Random(1), random_net(Random(1), 3))
    nothing = FrameworkLog(source=0)
    for log in ([], [nothing], [run.log]):
        for profile in (run.profile, with_opencl(run.profile, activities=(), marks=())):
            found = align(profile, log, Notes())
            assert len(found.links.layer_by) == len(profile.activities)
    assert align(run.profile, [nothing], Notes()).log_clock is None


def enqueue(position: int) -> Activity:
    return enqueued(number=position, kind="kernel", name="k")


def test_a_stronger_link_stays_and_the_contradiction_is_counted() -> None:
    """The same layer said twice is none; another iteration or layer is."""
    links = Links([enqueue(i) for i in range(4)])
    forward = links.pass_id("iteration", 1, "forward")
    assert links.pass_id("iteration", 1, "forward") == forward
    one, two, same = (
        links.add_run(LayerRun(layer=name, layer_index=index, direction="forward", pass_=forward))
        for name, index in (("a", 0), ("b", 1), ("a", 0))
    )
    links.give_layer([0, 1], one, "timer marks")
    links.give_layer([0, 1, 2], two, "durations", confidence=DOUBTED)
    links.give_layer([0], same, "recurrence")
    assert list(links.run_of) == [one, one, two, NONE]
    assert links.layer_by == ["timer marks", "timer marks", "durations", ""]
    assert links.layer_unsure == {2}
    assert links.contradictions == {"durations against timer marks": 2}
    later = links.add_run(
        LayerRun(layer="a", layer_index=0, direction="forward", pass_=links.pass_id("iteration", 2, "forward"))
    )
    links.give_layer([0], later, "position")
    assert links.contradictions["position against timer marks"] == 1
    links.give_pass(range(4), links.pass_id("setup"))
    assert list(links.pass_of) == [forward, forward, forward, 1 + links.passes[1:].index(links.passes[-1])]


def test_boundary_lines_that_contradict_the_marks_are_counted_and_lose() -> None:
    """Lines that stand one layer late say another layer than the marks, which are exact."""
    net = [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=2 * MS)], host_ns=0) for i in range(6)]
    run = make_run(Random(1), net, boundary_lines=True, warm_up=False)
    names = [layer.layer for layer in run.log.layers]
    late = tuple(
        msgspec.structs.replace(layer, layer=name, index=names.index(name))
        for layer, name in zip(run.log.layers, [*names[1:], names[0]], strict=True)
    )
    notes = Notes()
    found = align(run.profile, [run.log, FrameworkLog(source=2, layers=late)], notes)
    assert wrong_and_sure(run, found) == []
    assert found.links.contradictions["boundary stamps against timer marks"] == 6
    assert any("contradicted: boundary stamps against timer marks" in note.kind for note in notes.problems)
