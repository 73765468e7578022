"""Layers whose lines were printed as they ended, in logs that lost lines or have poor stamps."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align import NONE, Links, align
from mio2trace.align.layers.caffe.layer_lines import Printed, Times, likeliest_rows
from mio2trace.model.log import FrameworkLog, LayerTime, LogEvent
from mio2trace.notes import Notes
from mio2trace.summary import explain
from tests.records import changed
from tests.synthetic_run import MS, Run, make_run, random_net

_Line = TypeVar("_Line", LayerTime, LogEvent)
seeds = st.integers(0, 2**32 - 1).map(Random)


def boundary_run(rng: Random, iterations: int) -> Run:
    net = random_net(rng, 8, longest_ns=8 * MS)
    return make_run(
        rng, net, iterations=iterations, backward=True, marks=False, boundary_lines=True, tail=2, gap=(20_000, 90_000)
    )


def judged(run: Run, links: Links) -> tuple[int, int]:
    """How many activities of the iterations are in their layers; how many are in a wrong one and sure."""
    right = wrong_and_sure = 0
    for position, place in enumerate(run.places):
        number = links.run_of[position]
        held = None if number == NONE else links.runs[number]
        found = None if held is None else (links.passes[held.pass_].iteration, held.direction, held.layer)
        right += place is not None and place[0] > 0 and found == place
        wrong_and_sure += found not in (None, place) and position not in links.layer_unsure
    return right, wrong_and_sure


def restamped(log: FrameworkLog, change: Callable[[int, int], int]) -> FrameworkLog:
    """``change`` gives the new time of day of a line's number and old one, in ns."""

    def line(one: _Line) -> _Line:
        assert one.stamp is not None
        return msgspec.structs.replace(one, stamp=msgspec.structs.replace(one.stamp, ns=change(one.line, one.stamp.ns)))

    return msgspec.structs.replace(log, events=tuple(map(line, log.events)), layers=tuple(map(line, log.layers)))


@given(seeds, st.sampled_from([0.02, 0.2, 0.5]))
def test_what_ran_in_a_layer_whose_line_is_lost_is_in_no_other(rng: Random, share: float) -> None:
    """A layer reaches back by its printed time, not to the line before it; and all others keep their layers."""
    run = boundary_run(rng, 3)
    layers = tuple(layer for layer in run.log.layers if rng.random() > share)
    events = tuple(event for event in run.log.events if event.kind != "iteration" or rng.random() > share)
    lost = msgspec.structs.replace(run.log, layers=layers, events=events)
    links = align(run.profile, [lost], Notes(), without=frozenset({"recurrence", "durations"})).links
    assert judged(run, links)[1] == 0


def test_a_layer_that_comes_again_begins_an_iteration() -> None:
    """Where the lines that end iterations are lost, all or some, layers keep their iterations."""
    for lost in ({1}, {1, 2}, {2}):
        run = boundary_run(Random(5), 3)
        events = tuple(e for e in run.log.events if e.kind != "iteration" or e.number not in lost)
        log = msgspec.structs.replace(run.log, events=events)
        links = align(run.profile, [log], Notes(), without=frozenset({"recurrence"})).links
        in_iterations = sum(place is not None and place[0] > 0 for place in run.places)
        assert judged(run, links) == (in_iterations, 0)


def test_what_ended_before_the_line_of_an_iteration_is_in_no_layer_of_the_next() -> None:
    """However long the next layer's printed time is: a mean may be longer than this execution was."""
    run = boundary_run(Random(5), 3)
    behind = run.places.index((2, "forward", "layer0"))
    starts = [one.host_start_ns or 0 for one in run.profile.activities]
    layers = list(run.log.layers)
    lost = len(layers) // 3 - 1  # what tells that the kernel before is another layer's
    longer = layers[lost + 1].printed_ns + starts[behind] - starts[behind - 1]
    layers[lost : lost + 2] = [msgspec.structs.replace(layers[lost + 1], printed_ns=longer)]
    log = msgspec.structs.replace(run.log, layers=tuple(layers))
    links = align(run.profile, [log], Notes(), without=frozenset({"recurrence", "durations"})).links
    assert run.places[behind - 1] == (1, "backward", "layer0")
    assert links.run_of[behind - 1] == NONE
    assert links.run_of[behind] != NONE


def test_stamps_in_milliseconds_give_right_layers_or_unsure_ones() -> None:
    """Their resolution is seen in the stamps; printed times say the rest, and most of it."""
    count = right = wrong = 0
    for seed in range(40):
        run = boundary_run(Random(seed), 2)
        log = restamped(run.log, lambda _, ns: ns // MS * MS)
        links = align(run.profile, [log], Notes(), without=frozenset({"recurrence"})).links
        in_layers, wrong_and_sure = judged(run, links)
        right, wrong = right + in_layers, wrong + wrong_and_sure
        count += sum(place is not None and place[0] > 0 for place in run.places)
    assert wrong <= count / 1000
    assert right >= 0.9 * count


def test_of_a_layer_in_doubt_the_next_best_is_told() -> None:
    """With what is left, or less; `--explain` says both, and of what only neighbours are known, these."""
    named = beside = 0
    for seed in range(6):
        run = boundary_run(Random(seed), 2)
        log = restamped(run.log, lambda _, ns: ns // MS * MS)
        alignment = align(run.profile, [log], Notes(), keep_reasons=True)
        links = alignment.links
        for position in links.layer_unsure:
            told = list(explain(alignment, f"kernel {run.profile.activities[position].number}"))[2]
            layer = links.runs[links.run_of[position]].layer
            name, chance = links.next_layer.get(position, ("", 0.0))
            assert chance <= 1.001 - links.layer_confidence[position]
            if name not in ("", layer) and chance >= 0.005:
                named += 1
                assert f"the next best is {name}, " in told
            else:
                beside += 1
                assert ": else " in told
    assert named > 0 < beside


@pytest.mark.parametrize("hours", [1, -1])
@given(seeds)
def test_a_step_of_the_logs_clock_puts_nothing_into_a_wrong_layer(hours: int, rng: Random) -> None:
    """As at the end of summer time, in the middle of the run."""
    run = boundary_run(rng, 2)
    middle = run.log.layers[len(run.log.layers) // 2].line
    log = restamped(run.log, lambda line, ns: ns + (hours * 3600 * 10**9 if line >= middle else 0))
    links = align(run.profile, [log], Notes(), without=frozenset({"recurrence"})).links
    assert judged(run, links)[1] == 0


def test_an_activity_that_two_layers_may_have_is_as_probable_as_the_time_that_gives_it() -> None:
    """Stamps of a tenth of a second: the second layer's end can be before or after the third activity's."""
    printed = [
        Printed(stamp=0, latest=100_000_000, printed_ns=40_000_000, follows=False),
        Printed(stamp=100_000_000, latest=200_000_000, printed_ns=60_000_000, follows=False),
    ]
    times = Times(begins=[10_000_000, 60_000_000, 160_000_000], ends=[20_000_000, 90_000_000, 170_000_000])
    first, second = likeliest_rows(printed, times)
    assert first.confidences is None or min(first.confidences) >= 0.5
    assert second.confidences is not None
    assert all(0.5 <= confidence < 1 for confidence in second.confidences)


def test_host_times_in_milliseconds_are_as_good_as_the_devices_clock() -> None:
    """Their resolution is seen in them; within it, the device's times tell."""
    run = boundary_run(Random(3), 2)
    activities = tuple(
        changed(one, host_start_ns=one.host_start_ns // MS * MS, host_end_ns=one.host_end_ns // MS * MS)
        for one in run.profile.activities
        if one.host_start_ns is not None and one.host_end_ns is not None
    )
    profile = msgspec.structs.replace(run.profile, activities=activities)
    notes = Notes()
    found = align(profile, [run.log], notes, without=frozenset({"recurrence"}))
    right, wrong = judged(run, found.links)
    assert wrong == 0
    assert right >= 0.9 * sum(place is not None and place[0] > 0 for place in run.places)
    assert found.profile is profile, "what is drawn is what was recorded"
    assert any("whole multiples" in note.kind for note in notes.problems)
