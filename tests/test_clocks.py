"""Device, host and log clocks: bounds, drift, steps, zones, years."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align import align
from mio2trace.align.clocks.fit import ZONES_NS, DeviceClock, device_clocks, local_ns, log_clock
from mio2trace.model.log import LocalTime
from mio2trace.model.profile import Queue
from mio2trace.notes import InputError, Notes
from tests.records import changed, opencl_profile
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
    random_net,
    unix_ns,
)

randoms = st.integers(0, 2**32 - 1).map(Random)
"""Seeds, so that times stay as spread as they are meant to be while the rest of an example shrinks."""


def kernels(rng: Random, clocks: Clocks, count: int, between: tuple[int, int] = (1, 2 * MS)) -> Maker:
    make = Maker(rng, clocks)
    for _ in range(count):
        make.some(*between)
        make.enqueue(Kernel(name="k", ns=rng.choice([US, 40 * US, 5 * MS])), None)
    return make


def clock_of(make: Maker, notes: Notes | None = None) -> DeviceClock:
    return device_clocks(make.finish().profile, notes or Notes())[0]


def kinds(notes: Notes) -> list[str]:
    return [note.kind for note in notes]


@given(randoms, st.integers(1, 60), st.integers(-(2**62), 2**62))
def test_the_true_offset_lies_within_the_error(rng: Random, count: int, offset: int) -> None:
    """Whatever the offset, with stamps truncated to microseconds."""
    clock = clock_of(kernels(rng, Clocks(offset_ns=offset), count))
    assert clock.method == "intersection of bounds"
    assert abs(clock.offset_ns - offset) <= clock.error_ns
    assert clock.to_device(START) == START - clock.offset_ns


@given(randoms, st.floats(-300e-6, 300e-6).filter(lambda d: abs(d) > 20e-6))
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
    for true, enqueue in zip(make.starts, make.activities, strict=True):
        assert enqueue.host_start_ns is not None
        assert enqueue.queued_ns is not None
        assert abs(clock.to_device(true) - enqueue.queued_ns) <= clock.error_ns + 2
        assert clock.to_device(enqueue.host_start_ns) <= enqueue.queued_ns


@given(randoms, st.sampled_from([-HOUR, -3 * SECOND, -2 * MS, 2 * MS, 3 * SECOND, HOUR]))
def test_a_step_of_the_wall_clock_makes_stretches_each_right(rng: Random, step: int) -> None:
    """In both directions; calls whose host times came once are mapped right, and the person is told."""
    after = START + SECOND
    make = kernels(rng, Clocks(wall=lambda ns: ns + (step if ns >= after else 0)), 100, (1, 30 * MS))
    notes = Notes()
    clock = clock_of(make, notes)
    assert clock.method == "stretches"
    assert len(clock.pieces) == 2
    assert any("stepped: 2 stretches" in note.kind for note in notes.problems)
    host = [enqueue.host_start_ns or 0 for enqueue in make.activities]
    assert any("set back" in note.kind for note in notes.problems) == (host != sorted(host))
    assert host == sorted(host) or step < 0
    last_before = max(t for t in make.starts if t < after)
    first_after = min(t for t in make.starts if t >= after) + step
    for true, enqueue in zip(make.starts, make.activities, strict=True):
        assert enqueue.host_start_ns is not None
        assert enqueue.queued_ns is not None
        twice = first_after - 10 * MS <= enqueue.host_start_ns <= last_before + 10 * MS
        if not (true < after and twice):
            assert abs(clock.to_device(enqueue.host_start_ns) - enqueue.queued_ns) <= clock.error_ns + 5 * US


@given(randoms)
def test_drift_and_a_step_together_are_still_two_stretches(rng: Random) -> None:
    """Each with a line of its own."""
    wall = lambda ns: ns + (HOUR if ns >= START + SECOND else 0)  # noqa: E731
    make = kernels(rng, Clocks(drift=150e-6, wall=wall), 200, (1, 30 * MS))
    clock = clock_of(make)
    assert len(clock.pieces) == 2
    for enqueue in make.activities:
        assert enqueue.host_start_ns is not None
        assert enqueue.queued_ns is not None
        assert 0 <= enqueue.queued_ns - clock.to_device(enqueue.host_start_ns) <= 2 * clock.error_ns + 5 * US


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
    "lost",
    [("host_start_ns", "host_end_ns"), ("queued_ns", "submit_ns", "start_ns", "end_ns"), ("host_end_ns",)],
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


ZONES = ZONES_NS


@pytest.mark.parametrize("year", [True, False])
@pytest.mark.parametrize(
    "moment",
    [
        unix_ns(2026, 11, 20, 11),
        unix_ns(2026, 12, 31, 23, 59, 59.999),
        unix_ns(2027, 1, 1, 0, 0, 0.001),
        unix_ns(2028, 2, 29, 12),
        unix_ns(2028, 2, 28, 23, 59, 59.5),
        unix_ns(2028, 3, 1, 0, 0, 0.5),
        unix_ns(2027, 2, 28, 23, 59, 59.5),
    ],
)
def test_every_zone_is_found_also_without_a_year(moment: int, year: bool) -> None:
    """Whole quarters of an hour from -12 h to +14 h; the landmark lies a little later in the log."""
    for zone in ZONES:
        stamp = local(moment + 80 * US, zone, year=year)
        clock = log_clock(stamp, moment, "a landmark")
        assert clock.offset_ns == zone
        assert abs(clock.residual_ns - 80 * US) <= US
        assert abs(clock.to_host(stamp) - moment - 80 * US) <= US


@given(
    st.integers(unix_ns(2024, 1, 1), unix_ns(2032, 1, 1)),
    st.sampled_from(list(ZONES)),
    st.integers(-30 * 24 * HOUR, 24 * HOUR),
    st.booleans(),
)
def test_stamps_of_a_run_of_a_month_are_ordered_across_every_turn(
    moment: int, zone: int, since: int, year: bool
) -> None:
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


@given(randoms, st.sampled_from(list(ZONES)), st.booleans(), st.booleans())
def test_a_run_gets_its_zone_whatever_evidence_there_is(rng: Random, zone: int, marks: bool, year: bool) -> None:
    """Timer marks or the last enqueue are the landmark."""
    run = make_run(rng, random_net(rng, 4), marks=marks, clocks=Clocks(zone_ns=zone, year=year))
    clock = align(run.profile, [run.log], Notes()).log_clock
    assert clock is not None
    assert clock.offset_ns == zone


@pytest.mark.parametrize("start", [unix_ns(2026, 12, 31, 23, 59, 59.99), unix_ns(2028, 2, 28, 23, 59, 59.99)])
@pytest.mark.parametrize("year", [True, False])
def test_a_run_across_midnight_is_placed_as_any_other(start: int, year: bool) -> None:
    """New Year and 29 February, with boundary stamps on both sides of midnight."""
    rng = Random(5)
    clocks = Clocks(start_ns=start, zone_ns=0, year=year)
    net = random_net(rng, 12, longest_ns=8 * MS)
    run = make_run(rng, net, boundary_lines=True, marks=False, warm_up=False, clocks=clocks)
    links = align(run.profile, [run.log], Notes()).links
    in_iteration = [i for i, place in enumerate(run.places) if place is not None and place[0] == 1]
    assert len({stamp.day for layer in run.log.layers if (stamp := layer.stamp)}) == 2
    for i in in_iteration:
        place = run.places[i]
        assert place is not None
        assert links.layer_by[i] == "boundary stamps"
        assert links.runs[links.run_of[i]].layer == place[2]


def shifted(run: Run, by_ns: int) -> Run:
    """The log as if of a run at another time."""

    def moved(stamp: LocalTime | None) -> LocalTime | None:
        return None if stamp is None else local(local_ns(stamp, START) + by_ns, 0)

    log = msgspec.structs.replace(
        run.log,
        events=tuple(msgspec.structs.replace(e, stamp=moved(e.stamp)) for e in run.log.events),
        layers=tuple(msgspec.structs.replace(e, stamp=moved(e.stamp)) for e in run.log.layers),
    )
    return Run(profile=run.profile, log=log, places=run.places, starts=run.starts)


@pytest.mark.parametrize("minutes", [7, -7, 5 * 60 + 7, 1])
@pytest.mark.parametrize("marks", [True, False])
def test_files_of_different_runs_are_refused_in_one_line(minutes: int, marks: bool) -> None:
    """No whole quarter of an hour brings them together; by order alone they go on, without a clock of the log."""
    rng = Random(3)
    run = shifted(make_run(rng, random_net(rng, 5), marks=marks), minutes * 60 * SECOND)
    with pytest.raises(InputError, match="not of one run") as error:
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
    last = activities[-1].host_end_ns
    assert last is not None
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


@pytest.mark.parametrize("minutes", [15, -30, 7 * 60 + 45])
def test_what_is_no_zone_is_no_run_of_the_log(minutes: int) -> None:
    """Local times are whole hours ahead of UTC, and a few others: a quarter of an hour is none."""
    rng = Random(3)
    run = shifted(make_run(rng, random_net(rng, 5)), minutes * 60 * SECOND)
    with pytest.raises(InputError, match="not of one run"):
        align(run.profile, [run.log], Notes())


@pytest.mark.parametrize("ahead", [-800 * MS, 800 * MS, 5 * 3600 * SECOND + 30 * MS])
def test_marks_tell_how_far_a_log_is_ahead(ahead: int) -> None:
    """A log whose clock is not the host's: said, and its layers are those of one whose clock is."""
    rng = Random(3)
    true = make_run(rng, random_net(rng, 5))
    run = shifted(true, ahead)
    notes = Notes()
    found, expected = align(run.profile, [run.log], notes), align(true.profile, [true.log], Notes())
    assert found.log_clock is not None
    assert abs(found.log_clock.offset_ns - ahead) < MS
    assert any("log's clock" in note.kind for note in notes.problems)
    for position, place in enumerate(true.places):
        if place is not None and place[0] > 0:
            assert found.links.run_of[position] == expected.links.run_of[position]


def test_a_single_enqueue_has_a_clock() -> None:
    """Its error is the width of its call."""
    make = kernels(Random(1), Clocks(offset_ns=-5), 1)
    clock = clock_of(make)
    call = make.activities[0]
    assert call.host_start_ns is not None
    assert call.host_end_ns is not None
    assert abs(clock.offset_ns + 5) <= clock.error_ns <= call.host_end_ns - call.host_start_ns + US


def test_the_layers_of_a_drifting_run_keep_their_order_on_the_device() -> None:
    """The host's stamps are brought over by the line, increasing as they were."""
    rng = Random(8)
    run = make_run(rng, [Layer(name=f"l{i}", forward=[Kernel(name="k", ns=MS)]) for i in range(40)], iterations=9)
    clock = device_clocks(run.profile, Notes())[0]
    times = [clock.to_device(mark.host_ns) for mark in run.profile.opencl.marks if mark.host_ns is not None]
    assert len(times) == len(run.profile.opencl.marks)
    assert all(before <= after for before, after in pairwise(times))


def set_from(run: Run, line: int, by_ns: int) -> Run:
    """The log as its clock was set by so much before that line was printed."""
    later = shifted(run, by_ns).log
    log = msgspec.structs.replace(
        run.log,
        events=tuple(new if new.line >= line else old for old, new in zip(run.log.events, later.events, strict=True)),
        layers=tuple(new if new.line >= line else old for old, new in zip(run.log.layers, later.layers, strict=True)),
    )
    return Run(profile=run.profile, log=log, places=run.places, starts=run.starts)


@pytest.mark.parametrize("step", [MS, 4 * MS, -4 * MS, -30 * MS])
@pytest.mark.parametrize("seed", range(4))
def test_a_log_whose_clock_was_set_by_milliseconds_is_not_believed(step: int, seed: int) -> None:
    """Lines lie in calls of the thread that printed them, or go back: their order is used, and that is said."""
    net = [Layer(name=f"layer{number}", forward=[Kernel(name="k", ns=3 * MS)]) for number in range(9)]
    run = make_run(Random(seed), net, boundary_lines=True, marks=False, clocks=Clocks(zone_ns=0))
    notes = Notes()
    found = align(run.profile, [set_from(run, run.log.layers[4].line, step).log], notes)
    assert found.log_clock is None
    assert "boundary stamps" not in found.links.layer_by
    assert "the log's clock was set while the program ran: the order of lines is used" in kinds(notes)
    assert align(run.profile, [run.log], Notes()).log_clock is not None
