"""Device, host and log clocks: bounds, drift, steps, zones, years."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.damage import loaded
from benchmarks.damages.profiles import part_lost
from benchmarks.damages.sets import HANDLES
from mio2trace import analyse, machine
from mio2trace.align import NONE, Links, align
from mio2trace.align.clocks.axis import (
    ZONES_NS,
    DeviceClock,
    device_clocks,
    fit_device_clock,
    local_ns,
    log_clock,
    stamps_bound,
)
from mio2trace.align.layers.layer_lines import Lines, Times, likeliest_rows
from mio2trace.align.rates import LINE_NS
from mio2trace.conversion import convert
from mio2trace.measures.iterations import BEGINS, ENDS, Iterations
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Queue
from mio2trace.notes import InputError, Notes
from mio2trace.summary import explain
from mio2trace.trace import Slice
from tests.commands import invoked
from tests.conftest import shared_folder
from tests.often import present, saved
from tests.records import changed, opencl_profile
from tests.rocm_files import records_of
from tests.small_runs import benchmark, kinds
from tests.synthetic_run import (
    HOUR,
    MS,
    SECOND,
    START,
    US,
    Clocks,
    Kernel,
    Layer,
    Maker,
    Run,
    local,
    make_run,
    places_of,
    random_net,
    seeds,
    unix_ns,
    wrong_and_sure,
)


def kernels(rng: Random, clocks: Clocks, count: int, between: tuple[int, int] = (1, 2 * MS)) -> Maker:
    make = Maker(rng, clocks)
    for _ in range(count):
        make.some(*between)
        make.enqueue(Kernel(name="k", ns=rng.choice([US, 40 * US, 5 * MS])), None)
    return make


def clock_of(make: Maker, notes: Notes | None = None) -> DeviceClock:
    return device_clocks(make.finish().profile, notes or Notes())[0]


@given(seeds, st.integers(1, 60), st.integers(-(2**62), 2**62))
def test_the_true_offset_lies_within_the_error(rng: Random, count: int, offset: int) -> None:
    """Whatever the offset, with stamps truncated to microseconds."""
    clock = clock_of(kernels(rng, Clocks(offset_ns=offset), count))
    assert clock.method == "intersection of bounds"
    assert abs(clock.offset_ns - offset) <= clock.error_ns
    assert clock.to_device(START) == START - clock.offset_ns


@given(seeds, st.floats(-300e-6, 300e-6).filter(lambda d: abs(d) > 20e-6))
def test_drift_is_found_to_the_error_with_its_sign(rng: Random, drift: float) -> None:
    """A line inside the bounds: every true device time is met within the error, and no call is put after its kernel."""
    make = kernels(rng, Clocks(drift=drift), 300, (1, 30 * MS))
    notes = Notes()
    clock = clock_of(make, notes)
    assert clock.method == "line inside the bounds"
    seconds = (make.now - START) / SECOND
    assert abs(clock.drift_ppb / 1e9 - drift) <= 2 * clock.error_ns / SECOND / seconds + 1e-7
    assert any("drift by" in kind for kind in kinds(notes))
    assert not notes.problems
    for true, host, queued in times(make):
        assert abs(clock.to_device(true) - queued) <= clock.error_ns + 2
        assert clock.to_device(host) <= queued


@given(seeds, st.sampled_from([-HOUR, -3 * SECOND, -2 * MS, 2 * MS, 3 * SECOND, HOUR]))
def test_a_step_of_the_wall_clock_makes_stretches_each_right(rng: Random, step: int) -> None:
    """In both directions; calls whose host times came once are mapped right, and the person is told."""
    after = START + SECOND
    make = kernels(rng, Clocks(wall=lambda ns: ns + step * (ns >= after)), 100, (1, 30 * MS))
    notes = Notes()
    clock = clock_of(make, notes)
    assert clock.method == "stretches"
    assert len(clock.pieces) == 2
    assert any("stepped: 2 stretches" in note.kind for note in notes.problems)
    hosts = [host for _, host, _ in times(make)]
    assert any("set back" in note.kind for note in notes.problems) == (hosts != sorted(hosts))
    assert hosts == sorted(hosts) or step < 0
    last_before = max(t for t in make.starts if t < after)
    first_after = min(t for t in make.starts if t >= after) + step
    for true, host, queued in times(make):
        twice = first_after - 10 * MS <= host <= last_before + 10 * MS
        if not (true < after and twice):
            assert abs(clock.to_device(host) - queued) <= clock.error_ns + 5 * US


@given(seeds)
def test_drift_and_a_step_together_are_still_two_stretches(rng: Random) -> None:
    """Each with a line of its own."""
    wall = lambda ns: ns + HOUR * (ns >= START + SECOND)  # noqa: E731
    make = kernels(rng, Clocks(drift=150e-6, wall=wall), 200, (1, 30 * MS))
    clock = clock_of(make)
    assert len(clock.pieces) == 2
    assert all(0 <= queued - clock.to_device(host) <= 2 * clock.error_ns + 5 * US for _, host, queued in times(make))


def test_a_stretch_begins_with_its_first_call() -> None:
    """A call of another thread that began earlier and is recorded later does not take times of the stretch before."""
    queued = np.array([0, 1000, 2000, 4000, 4100, 5000, 6000]) * MS
    offset = np.where(np.arange(7) < 3, 0, HOUR + queued * 150 // 10**6)
    begun = np.where(queued == 4100 * MS, 1500 * MS, queued)
    clock = fit_device_clock(np.stack([begun, offset - queued + begun - US, queued, offset + US]), Notes())
    assert [piece.host_ns for piece in clock.pieces] == [0, 4000 * MS]
    assert clock.to_device(2000 * MS) == 2000 * MS


def test_two_devices_have_two_clocks() -> None:
    """Each from the calls of its own queues."""
    one = kernels(Random(1), Clocks(offset_ns=5), 20)
    two = kernels(Random(2), Clocks(offset_ns=-70 * SECOND), 20)
    profile = opencl_profile(
        source=0,
        records=1000,
        queues=tuple(Queue(index=i, device=i // 2, handle=str(i)) for i in range(3)),
        activities=(*one.activities, *(changed(e, queue=2) for e in two.activities)),
    )
    clocks = device_clocks(profile, Notes())
    assert abs(clocks[0].offset_ns - 5) <= clocks[0].error_ns
    assert abs(clocks[1].offset_ns + 70 * SECOND) <= clocks[1].error_ns


@pytest.mark.parametrize(
    "lost", [("host_start_ns", "host_end_ns"), ("queued_ns", "submit_ns", "start_ns", "end_ns"), ("host_end_ns",)]
)
def test_without_host_or_device_times_there_is_no_clock(lost: tuple[str, ...]) -> None:
    """Nothing is made up."""
    make = kernels(Random(1), Clocks(), 5)
    bare = [changed(e, **dict.fromkeys(lost)) for e in make.activities]
    assert device_clocks(opencl_profile(source=0, records=9, activities=tuple(bare)), Notes()) == {}


def test_counters_that_do_not_fit_into_their_call_are_left_out_and_counted() -> None:
    """Garbage in one enqueue does not take the clock away from the others."""
    make = kernels(Random(1), Clocks(offset_ns=77), 20)
    bad = changed(make.activities[7], end_ns=(make.activities[7].end_ns or 0) + HOUR)
    back = changed(make.activities[9], host_end_ns=(make.activities[9].host_end_ns or 0) - SECOND)
    make.activities[7], make.activities[9] = bad, back
    notes = Notes()
    clock = clock_of(make, notes)
    assert clock.method == "intersection of bounds"
    assert abs(clock.offset_ns - 77) <= clock.error_ns
    assert [note.count for note in notes.problems if "longer on the device" in note.kind] == [2]


@given(
    st.integers(unix_ns(2024, 1, 1), unix_ns(2032, 1, 1)),
    st.sampled_from(list(ZONES_NS)),
    st.integers(-30 * 24 * HOUR, 24 * HOUR),
    st.booleans(),
)
def test_stamps_of_a_month_are_ordered_across_every_turn(moment: int, zone: int, since: int, year: bool) -> None:
    """Midnight, month's end, New Year, 29 February: the landmark's year is found again for each stamp."""
    clock = log_clock(local(moment, zone, year=year), moment, "a landmark")
    assert abs(clock.to_host(local(moment + since, zone, year=year)) - moment - since) <= US


@pytest.mark.parametrize(
    "stamp", [LocalTime(2027, 2, 30, 0), LocalTime(0, 2, 30, 0), LocalTime(0, 0, 0, 0), LocalTime(0, 13, 45, 0)]
)
@pytest.mark.parametrize("near", [0, unix_ns(2026, 1, 1), -(10**20), 10**22])
def test_a_stamp_that_is_no_date_breaks_nothing(stamp: LocalTime, near: int) -> None:
    """It is only never near anything."""
    assert isinstance(local_ns(stamp, near), int)


@given(seeds, st.sampled_from(list(ZONES_NS)), st.booleans(), st.booleans())
def test_a_run_gets_its_zone_whatever_evidence_there_is(rng: Random, zone: int, marks: bool, year: bool) -> None:
    """Timer marks or the last enqueue are the landmark."""
    run = make_run(rng, random_net(rng, 4), marks=marks, clocks=Clocks(zone_ns=zone, year=year))
    clock = present(align(run.profile, [run.log], Notes()).log_clock)
    assert clock.offset_ns == zone


@pytest.mark.parametrize("start", [unix_ns(2026, 12, 31, 23, 59, 59.99), unix_ns(2028, 2, 28, 23, 59, 59.99)])
@pytest.mark.parametrize("year", [True, False])
def test_a_run_across_midnight_is_placed_as_any_other(start: int, year: bool) -> None:
    """New Year and 29 February, with boundary stamps on both sides of midnight."""
    rng = Random(5)
    net = random_net(rng, 12, longest_ns=8 * MS)
    clocks = Clocks(start_ns=start, year=year)
    run = make_run(rng, net, boundary_lines=True, marks=False, warm_up=False, clocks=clocks)
    links = align(run.profile, [run.log], Notes()).links
    assert len({stamp.day for layer in run.log.layers if (stamp := layer.stamp)}) == 2
    for place, said, by in zip(run.places, places_of(links), links.layer_by, strict=True):
        if place is not None:
            assert (said, by) == (place, "boundary stamps")


@pytest.mark.parametrize("minutes", [7, -7, 5 * 60 + 7, 1, 15, -30, 7 * 60 + 45, 5 * 24 * 60])
@pytest.mark.parametrize("marks", [True, False])
def test_files_of_different_runs_are_refused_in_one_line(minutes: int, marks: bool) -> None:
    """No hour, and no quarter that is a zone, brings them together; by order alone they go on, without the clock."""
    rng = Random(3)
    run = restamped(make_run(rng, random_net(rng, 5), marks=marks), lambda _, ns: ns + minutes * 60 * SECOND)
    unit = "days" if minutes > 24 * 60 else "s"
    with pytest.raises(InputError, match=rf"not of one run.* differ by [-+][\d.]+ {unit} in the best") as error:
        align(run.profile, [run.log], Notes())
    assert "\n" not in str(error.value)
    found = align(run.profile, [run.log], Notes(), by_order_alone=True)
    assert found.log_clock is None
    assert set(found.links.layer_by) <= {"", "timer marks", "recurrence"}
    assert ("timer marks" in found.links.layer_by) == marks


def test_the_logs_last_iteration_may_be_that_of_one_of_two_threads() -> None:
    """Another thread goes on with its own queue and prints nothing: the last enqueue is not what the line ends."""
    rng = Random(3)
    run = make_run(rng, random_net(rng, 5), marks=False)
    activities = run.profile.activities
    last = present(activities[-1].host_end_ns)
    count = len(activities)
    later = [
        changed(one, number=(one.number or 0) + 10 * count, queue=1, host_start_ns=at, host_end_ns=at + US)
        for number, one in enumerate(activities)
        for at in (last + SECOND // 2 + number * MS,)
    ]
    both = msgspec.structs.replace(run.profile, activities=(*activities, *later))
    clock, expected = (align(profile, [run.log], Notes()).log_clock for profile in (both, run.profile))
    assert clock is not None
    assert expected is not None
    assert clock.offset_ns == expected.offset_ns


@pytest.mark.parametrize("ahead", [-800 * MS, 800 * MS, 5 * 3600 * SECOND + 30 * MS])
def test_marks_tell_how_far_a_log_is_ahead(ahead: int) -> None:
    """A log whose clock is not the host's: said, and its layers are those of one whose clock is."""
    rng = Random(3)
    true = make_run(rng, random_net(rng, 5))
    notes = Notes()
    found = align(true.profile, [restamped(true, lambda _, ns: ns + ahead).log], notes)
    expected = align(true.profile, [true.log], Notes())
    assert abs(present(found.log_clock).offset_ns - ahead) < MS
    assert any("log's clock" in note.kind for note in notes.problems)
    for place, run, of in zip(true.places, found.links.run_of, expected.links.run_of, strict=True):
        assert place is None or place[0] == 0 or run == of


@pytest.mark.parametrize("step", [MS, 4 * MS, -4 * MS, -30 * MS])
@pytest.mark.parametrize("seed", range(4))
def test_a_log_whose_clock_was_set_by_milliseconds_is_not_believed(step: int, seed: int) -> None:
    """Lines lie in calls of the thread that printed them, or go back: their order is used, and that is said."""
    net = [Layer(name=f"layer{number}", forward=[Kernel(name="k", ns=3 * MS)]) for number in range(9)]
    run = make_run(Random(seed), net, boundary_lines=True, marks=False)
    set_at = run.log.layers[4].line
    notes = Notes()
    found = align(run.profile, [restamped(run, lambda line, ns: ns + step * (line >= set_at)).log], notes)
    assert found.log_clock is None
    assert "boundary stamps" not in found.links.layer_by
    assert "the log's clock was set while the program ran: the order of lines is used" in kinds(notes)
    assert align(run.profile, [run.log], Notes()).log_clock is not None


# -- An iteration that the profile or the log cuts is not said to be whole.


IN_LAST_LAYER, IN_FIRST_LAYER = 27, 24
"""Calls of a small run up to there in iteration 1."""


def small_run(folder: Path, calls: int | None) -> list[Path]:
    made, log = benchmark()
    (folder / "prof.json").write_text(json.dumps(made[:calls]))
    return [saved(folder / "run.log", log), folder / "prof.json"]


def told_of(*files: Path) -> Iterations:
    return analyse(files).runs[0].measures[0].steady.told


@pytest.mark.parametrize("calls", [IN_LAST_LAYER, IN_FIRST_LAYER])
def test_the_only_iteration_counts_as_the_part_that_it_is(tmp_path: Path, calls: int) -> None:
    """Marks that stop in a layer say that the profile ends there."""
    cut = told_of(*small_run(tmp_path, calls))
    assert (cut.steady, cut.cut, cut.part) == ((1,), (), ENDS)
    assert cut.rule == f"iteration 1, the only one, is not whole: {ENDS}"
    assert told_of(*small_run(tmp_path, None)).part == ""


@pytest.mark.shared
def test_a_warm_up_alone_is_never_called_an_iteration(tmp_path: Path) -> None:
    """Of a profile that ended in it."""
    run = shared_folder() / "samples" / "dvdt" / "squeezenet11-b1-fwd-tz"
    content = run.with_suffix(".prof.json").read_bytes()
    (tmp_path / "prof.json").write_bytes(content[: len(content) * 65 // 100])
    said = " ".join(convert(run.with_suffix(".run.log"), tmp_path / "prof.json").answer)
    assert "499.4 ms of kernels in the warm-up; no iteration" in said


def test_a_part_is_never_called_an_iteration(tmp_path: Path) -> None:
    """Not in the ten lines, nor on a page or in a comment; tables and comparisons say it, too."""
    files = [str(path) for path in small_run(tmp_path, IN_LAST_LAYER)]
    converted = convert(*files)
    answer = " ".join(" ".join(converted.answer).split())
    passes = [one for one in converted.trace.events() if isinstance(one, Slice) and one.category == "pass"]
    assert {one.name: one.args.get("part") for one in passes if "kernels" in one.args} == {
        "warm-up · forward": None, "iteration 1 · forward": ENDS
    }  # fmt: skip
    assert f" 0.141 ms of kernels in the recorded part of iteration 1 ({ENDS}). " in answer
    for name, said in (
        (
            "page.html",
            ("Kernels in the recorded part of the iteration", "of kernels in the recorded part of the iteration"),
        ),
        ("comment.md", ("Kernels (in the recorded part of the iteration)",)),
    ):
        assert not invoked("report", *files, "-o", tmp_path / name).exit_code
        text = (tmp_path / name).read_text()
        assert all(words in text for words in said)
        assert " an iteration" not in text.replace("of an iteration", "")
    for command in (["kernels", *files, "--by", "name"], ["compare", ",".join(files), ",".join(files)]):
        assert f"iteration 1, the only one, is not whole: {ENDS}" in invoked(*command).output


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "part", "why"),
    [
        ("squeezenet11-b1-fwd-tz", (1, 1), ""),
        ("squeezenet11-b1-fwd-tz", (0.7, 1), ENDS),  # marks
        ("alexnet-b1-fwd-nomarks", (0.9, 1), ENDS),  # types of layers
        ("m121-lenet-infer", (0.95, 1), ENDS),  # calls without kernels
        ("m121-lenet-infer", (0, 0.5), ""),  # of the set-up
        ("m121-resnet-train-entries-cmd", (0.9, 1), ""),  # after the last layer
        ("m121-resnet-train-entries-cmd", (0.7, 1), ENDS),
        ("m121-resnet-train-entries-cmd", (0, 0.6), BEGINS),
    ],
)
def test_parts_of_real_runs_are_told(tmp_path: Path, name: str, part: tuple[float, float], why: str) -> None:
    """Of 153 that a profile cuts, 145 are; of 112 whole ones none is."""
    run = loaded(shared_folder())[HANDLES][name]
    told = told_of(*(part_lost(*part)(run, Random(1)) if part[0] < part[1] else run).write(tmp_path))
    assert (told.steady, told.part) == ((1,), why)


@pytest.mark.shared
def test_an_iteration_of_other_kernels_that_is_cut_does_not_count(tmp_path: Path) -> None:
    """The second one is no beginning of the first, which builds more; the log shows what it lacks."""
    run = loaded(shared_folder())[HANDLES]["alexnet-b3-libdnn-train-iter2"]
    told = told_of(*part_lost(0.95, 1)(run, Random(1)).write(tmp_path))
    assert (told.steady, told.cut, told.part) == ((1,), (2,), "")
    assert told.rule.startswith("iteration 1, of 2 recorded; 2 is not whole: the profile ends in it")
    assert told.may_be_cold


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m121-lenet-train-debugbuild", "m121-lenet-infer"])
def test_a_log_that_ends_early_is_not_blamed_on_the_profile(tmp_path: Path, name: str) -> None:
    """The profile holds the kernels: which layer they belong to does not decide whether the iteration is whole."""
    folder = shared_folder() / "samples" / "miopen-opencl" / name
    lines = (folder / "run.log").read_bytes().splitlines(keepends=True)
    (tmp_path / "run.log").write_bytes(b"".join(lines[: len(lines) * 85 // 100]))
    assert told_of(tmp_path / "run.log", folder / "prof.json").part == ""


# -- Layers whose lines were printed as they ended, in logs that lost lines or have poor stamps.


def times(make: Maker) -> list[tuple[int, int, int]]:
    """Of each enqueue the true time, the host's and the device's."""
    pairs = zip(make.starts, make.activities, strict=True)
    return [(true, one.host_start_ns or 0, one.queued_ns or 0) for true, one in pairs]


def boundary_run(rng: Random, iterations: int) -> Run:
    net = random_net(rng, 8, longest_ns=8 * MS)
    return make_run(
        rng, net, iterations=iterations, backward=True, marks=False, boundary_lines=True, tail=2, gap=(20_000, 90_000)
    )


def judged(run: Run, links: Links) -> tuple[int, int]:
    """How many activities of the iterations are in their layers; how many are in a wrong one and sure."""
    right = sum(said == true for said, true in zip(places_of(links), run.places, strict=True) if true and true[0] > 0)
    return right, len(wrong_and_sure(run, links))


def restamped(run: Run, change: Callable[[int, int], int]) -> Run:
    """``change`` gives the new time of a line by its number and old time."""

    def moved(one: Any) -> Any:
        stamp = None if one.stamp is None else local(change(one.line, local_ns(one.stamp, START)), 0)
        return msgspec.structs.replace(one, stamp=stamp)

    return run.with_log(events=tuple(map(moved, run.log.events)), layers=tuple(map(moved, run.log.layers)))


@given(seeds, st.sampled_from([0.02, 0.2, 0.5]))
def test_what_ran_in_a_layer_whose_line_is_lost_is_in_no_other(rng: Random, share: float) -> None:
    """A layer reaches back by its printed time, not to the line before it; and all others keep their layers."""
    run = boundary_run(rng, 3)
    layers = tuple(layer for layer in run.log.layers if rng.random() > share)
    events = tuple(event for event in run.log.events if event.kind != "iteration" or rng.random() > share)
    log = run.with_log(layers=layers, events=events).log
    links = align(run.profile, [log], Notes(), without=frozenset({"recurrence", "durations"})).links
    assert wrong_and_sure(run, links) == []


@pytest.mark.parametrize("lost", [{1}, {1, 2}, {2}])
def test_a_layer_that_comes_again_begins_an_iteration(lost: set[int]) -> None:
    """Where the lines that end iterations are lost, all or some, layers keep their iterations."""
    run = boundary_run(Random(5), 3)
    log = run.with_log(events=tuple(e for e in run.log.events if e.kind != "iteration" or e.number not in lost)).log
    links = align(run.profile, [log], Notes(), without=frozenset({"recurrence"})).links
    assert judged(run, links) == (run.in_iterations(), 0)


def test_what_ended_before_the_line_of_an_iteration_is_in_no_layer_of_the_next() -> None:
    """However long the next layer's printed time is: a mean may be longer than this execution was."""
    run = boundary_run(Random(5), 3)
    behind = run.places.index((2, "forward", "layer0"))
    starts = [one.host_start_ns or 0 for one in run.profile.activities]
    layers = list(run.log.layers)
    lost = len(layers) // 3 - 1  # what tells that the kernel before is another layer's
    longer = layers[lost + 1].printed_ns + starts[behind] - starts[behind - 1]
    layers[lost : lost + 2] = [msgspec.structs.replace(layers[lost + 1], printed_ns=longer)]
    log = run.with_log(layers=tuple(layers)).log
    links = align(run.profile, [log], Notes(), without=frozenset({"recurrence", "durations"})).links
    assert run.places[behind - 1] == (1, "backward", "layer0")
    assert links.run_of[behind - 1] == NONE
    assert links.run_of[behind] != NONE


def test_stamps_in_milliseconds_give_right_layers_or_unsure_ones() -> None:
    """Their resolution is seen in the stamps; printed times say the rest, and most of it."""
    count = right = wrong = 0
    for seed in range(40):
        run = boundary_run(Random(seed), 2)
        log = restamped(run, lambda _, ns: ns // MS * MS).log
        in_layers, wrong_ones = judged(run, align(run.profile, [log], Notes(), without=frozenset({"recurrence"})).links)
        right, wrong, count = right + in_layers, wrong + wrong_ones, count + run.in_iterations()
    assert wrong <= count / 1000
    assert right >= 0.9 * count


def test_of_a_layer_in_doubt_the_next_best_is_told() -> None:
    """With what is left, or less; `--explain` says both, and of what only neighbours are known, these."""
    named = beside = 0
    for seed in range(6):
        run = boundary_run(Random(seed), 2)
        log = restamped(run, lambda _, ns: ns // MS * MS).log
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
    log = restamped(run, lambda line, ns: ns + hours * HOUR * (line >= middle)).log
    links = align(run.profile, [log], Notes(), without=frozenset({"recurrence"})).links
    assert wrong_and_sure(run, links) == []


def test_an_activity_that_two_layers_may_have_is_as_probable_as_the_time_that_gives_it() -> None:
    """Stamps of a tenth of a second: the second layer's end can be before or after the third activity's."""
    stamps = np.array([0, 100_000_000])
    printed = np.array([40_000_000, 60_000_000])
    lines = Lines(stamps, stamps + 100_000_000, printed, np.zeros(2, bool), np.zeros(2, np.int64))
    times = Times(begins=[10_000_000, 60_000_000, 160_000_000], ends=[20_000_000, 90_000_000, 170_000_000])
    rows = likeliest_rows(lines, times)
    assert all(one.own >= 0.5 for one in rows.unsure.get(0, ()))
    assert rows.unsure[1]
    assert all(0.5 <= one.own < 1 for one in rows.unsure[1])


def test_host_times_in_milliseconds_are_as_good_as_the_devices_clock() -> None:
    """Their resolution is seen in them; within it, the device's times tell."""
    run = boundary_run(Random(3), 2)
    activities = tuple(
        changed(one, host_start_ns=(one.host_start_ns or 0) // MS * MS, host_end_ns=(one.host_end_ns or 0) // MS * MS)
        for one in run.profile.activities
    )
    profile = msgspec.structs.replace(run.profile, activities=activities)
    notes = Notes()
    found = align(profile, [run.log], notes, without=frozenset({"recurrence"}))
    right, wrong = judged(run, found.links)
    assert wrong == 0
    assert right >= 0.9 * run.in_iterations()
    assert found.profile is profile, "what is drawn is what was recorded"
    assert any("whole multiples" in note.kind for note in notes.problems)


# -- Layer lines that bound their layers, and those that only say when printing began.


SAMPLES = shared_folder() / "samples"
MIOPEN = [folder.name for folder in sorted((SAMPLES / "miopen-opencl").glob("*")) if folder.is_dir()]
LINES_BOUND = [name for name in MIOPEN if name not in ("m121-resnet-infer-2it", "m290-alexnet-infer-10it")]
"""Sets whose program printed each layer's line right after the layer."""
PRINTED_AT_END = [name for name in MIOPEN if name not in LINES_BOUND]


@given(seeds, st.integers(2, 12), st.integers(1, 3), st.booleans())
def test_lines_right_after_their_layers_bound_them(rng: Random, layers: int, iterations: int, backward: bool) -> None:
    """By stamps, or by position where the profile's blocks lie between the lines; every iteration by itself."""
    net = random_net(rng, layers, longest_ns=8 * MS)
    for interleaved, evidence in ((False, "boundary stamps"), (True, "position")):
        run = make_run(
            rng, net, iterations=iterations, backward=backward, marks=False, boundary_lines=True,
            interleaved=interleaved, tail=2, gap=(20_000, 90_000),
        )  # fmt: skip
        if sum(layer.printed_ns for layer in run.log.layers[1:]) <= LINE_NS * len(run.log.layers):
            assert not stamps_bound(run.log.times)  # layers that took no time leave no room to see
            continue
        found = align(run.profile, [run.log], Notes(), without=frozenset({"recurrence", "name and sizes"})).links
        for place, said, by in zip(run.places, places_of(found), found.layer_by, strict=True):
            assert (said, by) == ((place, evidence) if place and place[0] else (None, ""))


@given(seeds, st.integers(1, 12), st.integers(1, 3), st.booleans())
def test_means_printed_together_never_bound_a_layer(rng: Random, layers: int, iterations: int, backward: bool) -> None:
    """As stock ``caffe time`` prints them, whatever the net; nothing is placed by them."""
    run = make_run(rng, random_net(rng, layers, longest_ns=9 * MS), iterations=iterations, backward=backward)
    assert not stamps_bound(run.log.times)


def read_log(path: Path) -> list[FrameworkLog]:
    try:
        return [record for record in records_of(path) if isinstance(record, FrameworkLog)]
    except InputError:
        return []


@pytest.mark.shared
def test_no_published_record_has_stamps_that_bound(shared: Path) -> None:
    """All CK records and the real logs of ``caffe time``: printed together."""
    paths = list((shared / "samples" / "ck").rglob("ckp-*.0001.json"))
    paths += (shared / "samples" / "dvdt").glob("*.run.log")
    paths += (shared / "samples" / "dvdt").glob("*.tmp-ck-timer.json")
    stamped = 0
    for path in paths:
        for log in read_log(path):
            stamped += any(layer.stamp is not None for layer in log.layers)
            assert not stamps_bound(log.times), path
    assert stamped > 20


@pytest.mark.shared
def test_real_boundaries_are_seen(shared: Path) -> None:
    """Stamps that are layer ends, as CK's form and as lines of a log."""
    paths = list((shared / "samples" / "dvdt").glob("*.boundary.per_layer_info.json"))
    assert paths
    paths += [shared / "samples" / "miopen-opencl" / name / "run.log" for name in LINES_BOUND]
    for path in paths:
        assert any(stamps_bound(log.times) for log in read_log(path)), path
    for name in PRINTED_AT_END:
        path = shared / "samples" / "miopen-opencl" / name / "run.log"
        assert not any(stamps_bound(log.times) for log in read_log(path)), path


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-train", "squeezenet11-b1-fwd-tz"])
def test_ck_stamps_that_are_layer_ends_give_what_the_marks_give(shared: Path, name: str) -> None:
    """The same information in another form gives the same answer; nothing of the warm-up is in a layer by stamps."""
    folder = shared / "samples" / "dvdt"
    trace = convert(
        folder / f"{name}.boundary.per_layer_info.json", folder / f"{name}.prof.json", without=["timer marks"]
    ).trace
    by_marks = convert(folder / f"{name}.run.log", folder / f"{name}.prof.json").trace
    keys = ("layer", "layer_index", "direction", "iteration")

    def places(events: Any) -> dict[int, list[Any]]:
        args = ({**e.shared, **e.args} for e in events if isinstance(e, Slice) and e.category in ("kernel", "copy"))
        return {a["call_index"]: [a.get(key) for key in keys] for a in args}

    stamped = [e for e in trace.events() if isinstance(e, Slice) and e.shared.get("layer_by") == "boundary stamps"]
    assert stamped
    assert all(event.args["iteration"] == 1 for event in stamped)
    assert places(trace.events()) == places(by_marks.events())


def test_little_memory_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the allocator cannot be taught to keep what is freed, it keeps nothing."""
    monkeypatch.setattr(machine, "_KEPT", 1 << 60)
    machine.keep_freed_blocks()


@pytest.mark.parametrize(("size", "kept"), [(None, True), (2 << 20, True), (1000, False)])
def test_freed_columns_are_kept_for_large_inputs(tmp_path: Path, size: int | None, kept: bool) -> None:
    """The system gives a large column page by page: that takes time for the first one only.

    Without a ``size`` the input is a folder."""
    if size is not None:
        (tmp_path / "trace.json").write_bytes(bytes(size))
    script = """
import resource, sys
from mio2trace.machine import keep_freed_columns
keep_freed_columns(["--all", "no\\0file", *sys.argv[1:]])
faults = []
for _ in range(5):
    bytearray(80_000_000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[0])
"""
    given = str(tmp_path if size is None else tmp_path / "trace.json")
    done = subprocess.run([sys.executable, "-c", script, given], capture_output=True, text=True, check=True)
    assert (int(done.stdout) < 1000) is kept
