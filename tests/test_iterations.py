"""Which iterations are steady: each way in which one is not, and one that just is; what a made-up run costs by hand."""

from __future__ import annotations

from array import array
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align import NONE
from mio2trace.align.clocks import axis
from mio2trace.align.clocks.axis import LogClock, local_ns, local_times
from mio2trace.align.layers.repetitions import MAX_EDITS, matches, number_repetitions
from mio2trace.draw.device import Commands
from mio2trace.measures import Measures
from mio2trace.model.log import LayerTime, LocalTime
from mio2trace.model.tables import NO, LayerTimes, plain
from mio2trace.notes import Notes
from mio2trace.readers.opencl import ProfileFolder
from tests.made_up_costs import MS, SETUP, Ran, measures, operation
from tests.often import present

A, B, C = Ran("a", 2 * MS), Ran("b", 5 * MS), Ran("c", 1 * MS)


def in_no_pass(made: Measures) -> Measures:
    """The same run, of which nothing names iterations."""
    made.alignment.links._pass_of[:] = array("i", [NONE]) * len(made.alignment.profile.activities)
    number_repetitions(made.alignment.profile, made.alignment.links)
    return made


def test_iterations_that_are_alike_all_count() -> None:
    """Without the warm-up and the set-up; the time of one is their mean."""
    of = measures({SETUP: [C] * 9, 0: [A, B, C], 1: [A, B], 2: [A, B], 3: [A, B]}).steady
    assert (of.iterations, of.told.cold, of.told.cut, of.mean_ns) == ((1, 2, 3), (), (), 7 * MS)
    assert of.rule == "iterations 1-3, all 3 recorded; the first is as warm as the others"
    assert [(row.key, row.mean_ns, row.calls_per_iteration) for row in of.kernels if row.calls] == [
        ("b", 5 * MS, 1), ("a", 2 * MS, 1),
    ]  # fmt: skip


TEN, WHOLE = [B] * 10, [A, B, C, A]
"""Ten kernels of 50 ms in all, and four of 10 ms."""
SLOW = [B, Ran("b", 5 * MS, after_ns=5 * MS), B]
"""Twenty milliseconds, a quarter of them idle."""
FIND, SEARCH, WORK = operation(1, phase="find"), [Ran("try", 5 * MS, 1)], [Ran("a", 10 * MS, 0), Ran("b", 10 * MS, 0)]
TRIED = [operation(0), FIND]
ALL = "iterations 1-3, all 3 recorded; the first is as warm as the others"
OVER = "1 is cold: its kernels took over 1.5 times as long as later"
ENDLESS = "the whole run as one iteration: no iterations are named, and its kernels do not repeat"
STEADY = [
    # as many kernels, half a millisecond more in one; 1.1 times the kernels: not more, and just more
    (measures({1: [Ran("a", 3 * MS), *[B] * 9], 2: TEN, 3: TEN}), (1, 2, 3), (), (), 148, ALL),
    (measures({1: [*TEN, C], 2: TEN, 3: TEN}), (1, 2, 3), (), (), 151, ALL),
    (measures({1: [*TEN, C, C], 2: TEN, 3: TEN}), (2, 3), (1,), (), 100,
     "iterations 2-3, of 3 recorded; 1 is cold: it launched kernels that later ones do not"),
    # 75 ms against 50: not over 1.5 times as long, and just over
    (measures({1: [*[B] * 9, Ran("b", 30 * MS)], 2: TEN, 3: TEN}), (1, 2, 3), (), (), 175, ALL),
    (measures({1: [*[B] * 9, Ran("b", 30 * MS + 1)], 2: TEN, 3: TEN}), (2, 3), (1,), (), 100,
     f"iterations 2-3, of 3 recorded; {OVER}"),
    # the same kernels; with the host's work it is more than 1.5 times as long as the later one, or just not
    (measures({1: SLOW, 2: SLOW}, host_ns={1: 10 * MS}), (1, 2), (), (), 30,
     "iterations 1-2, all 2 recorded; the first is as warm as the others"),
    (measures({1: SLOW, 2: SLOW}, host_ns={1: 10 * MS + 1}), (2,), (1,), (), 15,
     "iteration 2, of 2 recorded; 1 is cold: it took over 1.5 times as long as later"),
    # the beginning of the one before, the end of the one after; one with other kernels is whole
    (measures({1: WHOLE, 2: WHOLE, 3: [A, B]}), (1, 2), (), (3,), 20,
     "iterations 1-2, of 3 recorded; 3 is cut off by the profile's end"),
    (measures({1: [C, A], 2: WHOLE, 3: WHOLE}), (2, 3), (), (1,), 20,
     "iterations 2-3, of 3 recorded; 1 is cut off by the profile's begin"),
    (measures({1: WHOLE, 2: WHOLE, 3: [B, C]}), (1, 2), (), (), 20,
     "iterations 1-2, of 3 recorded; 1 of another kind (about 2 kernels)"),
    # what is said to be cold, or cut off by the profile's begin, is the first that does work
    (measures({1: SEARCH, 2: [Ran("a", 50 * MS, 0), *WORK[1:]], 3: WORK, 4: WORK}, TRIED), (3, 4), (2,), (), 40,
     f"iterations 3-4, of 4 recorded; {OVER.replace('1', '2', 1)}; 1 has searches alone"),
    (measures({1: SEARCH, 2: WORK[1:], 3: WORK, 4: WORK}, TRIED), (3, 4), (), (2,), 40,
     "iterations 3-4, of 4 recorded; 2 is cut off by the profile's begin; 1 has searches alone"),
    # a warm-up alone is what there is
    (measures({SETUP: [C], 0: [A, B]}), (0,), (), (), 7, "the warm-up, the only pass, may be cold"),
    # what the kernels repeat, where that is nine tenths of their time; each with what follows until the next. The
    # length of two repetitions is that of the first alone: the last one has no known end
    (in_no_pass(measures({1: [C, A, B, A, B, A, B]})), (1, 2), (), (), 14,
     "repetitions 1-2, of 3 recorded; the end of 3 is not known; the first is as warm as the others"),
    (in_no_pass(measures({1: [C, A, B, A, B]})), (1,), (), (), 7,
     "repetition 1, of 2 recorded; the end of 2 is not known; only the length of 1 is known and may be cold"),
    # a search lies in the repetition that it interrupts, and makes the first of them cold
    (in_no_pass(measures({1: [A, Ran("try", 90 * MS, 1), B, A, B, A, B]}, TRIED)), (2,), (1,), (), 7,
     "repetition 2, of 3 recorded; 1 is cold: searches ran in it; the end of 3 is not known; not sure: the log executes"
     " no call that often"),
    (in_no_pass(measures({1: [C, C, C, Ran("long", 900 * MS)]})), (1,), (), (), 903, ENDLESS),
    (in_no_pass(measures({1: [A, B, C]})), (1,), (), (), 8, ENDLESS),
]  # fmt: skip


@pytest.mark.parametrize(("run", "iterations", "cold", "cut", "total_ms", "rule"), STEADY)
def test_which_iterations_are_steady(
    run: Measures, iterations: tuple[int, ...], cold: tuple[int, ...], cut: tuple[int, ...], total_ms: int, rule: str
) -> None:
    """A first one is cold against the median of the later ones."""
    of = run.steady
    assert (of.iterations, of.told.cold, of.told.cut, of.rule) == (iterations, cold, cut, rule)
    assert of.total.total_ns == total_ms * MS
    told_by = "repetition" if rule.startswith("repetition") else "whole" if rule == ENDLESS else "named"
    assert (of.told.told_by, of.told.may_be_cold) == (told_by, "may be cold" in rule)


def test_a_first_iteration_with_searches_is_cold_and_they_count_for_nothing() -> None:
    """Their time stands beside what they are for."""
    find, run = operation(0, phase="find"), operation(1, input=(1, 8, 9, 9))
    search, kernel = Ran("a", 90 * MS, operation=0, layer="x"), Ran("a", 2 * MS, operation=1, layer="x")
    of = measures({1: [search, kernel], 2: [kernel]}, [find, run]).steady
    assert (of.iterations, of.told.cold, of.first_ns) == ((2,), (1,), 2 * MS)
    assert {row.key[1] for row in of.layers} == {"x"}
    assert sum(row.total_ns for row in of.layers) == 2 * MS
    assert (sum(row.find_ns for row in of.layers), sum(row.find_kernels for row in of.layers)) == (90 * MS, 1)
    assert [(row.key[0], row.find_ns) for row in of.operations] == [("x", 90 * MS)]
    alone = measures({1: [search, kernel]}, [find, run]).steady
    assert (alone.iterations, alone.rule) == ((1,), "iteration 1, the only one, may be cold")
    assert (alone.total.total_ns, alone.kernels[0].find_ns) == (2 * MS, 90 * MS)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 99))
def test_kernels_and_length_are_means_over_the_same_repetitions(each: list[int], last: int) -> None:
    """Kernels that follow each other at once fill the step, however long the last repetition runs: it has no end."""
    steps = [[Ran("a", ns * MS), Ran("b", ns * MS)] for ns in (*each, last)]
    of = in_no_pass(measures({1: [C, *(ran for step in steps for ran in step)]})).steady
    assert (of.told.told_by, of.told.endless) == ("repetition", (len(steps),) if of.step_time else ())
    if of.step_time is not None:
        assert of.step_time.step_ns == of.step_time.compute_ns == round(of.mean_ns)
        assert len(of.step_time.steps_ns) == len(of.iterations)


def test_an_iteration_zero_is_no_warm_up() -> None:
    """PyTorch's steps count from 0: what layers ran in one counts as in any other."""
    made = measures({number: [Ran("a", 2 * MS, layer="x")] for number in (1, 2)})
    links = made.alignment.links
    links._passes[:] = [msgspec.structs.replace(one, iteration=(one.iteration or 0) - 1) for one in links.passes]
    of = made.steady
    assert (of.iterations, [row.calls for row in of.layers]) == ((0, 1), [1, 1])
    assert of.rule.startswith("iterations 0-1")


def test_statistics_over_iterations_in_some_of_which_a_kernel_is_not() -> None:
    """It takes no time there; shares and what lies before are of all kernels; copies and pauses stand apart."""
    pause = Ran("a", 2 * MS, after_ns=3 * MS)
    many = [B] * 12
    of = measures({1: [*many, Ran("copy", MS, copy=True)], 2: [*many, A], 3: [*many, pause]}).steady
    row = present(of.kernels.of("a"))
    assert row.per_iteration_ns == (0, 2 * MS, 2 * MS)
    assert row.mean_ns == pytest.approx(4 * MS / 3)
    assert row.share == pytest.approx(4 / 184)
    assert row.cumulative_share == 1
    assert (of.copies.copies, of.copies.copy_timed_ns) == (1, MS)
    assert of.step_time is not None
    assert of.step_time.samples()["idle"] == (0, 0, 3 * MS)
    assert of.step_time.samples()["exposed copies"] == (MS, 0, 0)


def test_a_kernel_without_times_is_counted_and_has_no_time() -> None:
    """Nor has the whole."""
    made = measures({1: [A, B]})
    activities = list(made.alignment.profile.activities)
    activities[0] = msgspec.structs.replace(activities[0], start_ns=None, end_ns=None)
    profile = msgspec.structs.replace(made.alignment.profile, activities=tuple(activities))
    of = Measures(msgspec.structs.replace(made.alignment, profile=profile)).steady
    assert (of.total.cost.kernels, of.total.cost.kernel_ns, of.total.total_ns) == (2, None, 5 * MS)


def test_nothing_at_all() -> None:
    """No iteration, no row, no time."""
    of = measures({SETUP: [C]}).steady
    assert (of.mean_ns, len(of.kernels), of.kernels.rest) == (0, 0, None)


def test_what_kernels_of_repetitions_share_is_made_once() -> None:
    """However many there are: a run has thousands."""
    of = in_no_pass(measures({number: [A, B, C] for number in range(1, 41)}))
    commands = Commands(of)
    passes = of.alignment.links.pass_of
    assert len(set(passes)) == 40
    drawn = commands.drawn(1, 0, np.arange(len(passes)))
    assert len(drawn.starts) == 120
    assert len(drawn.likes.values) == 3


# -- What is quick for many gives what the plain way gives for few.


POINT = st.tuples(st.integers(0, 200), st.integers(-500, 500))


@given(st.lists(st.tuples(POINT, POINT), min_size=1, max_size=40))
def test_a_line_between_bounds_is_as_steep_and_as_flat_as_all_pairs_allow(
    bounds: list[tuple[tuple[int, int], tuple[int, int]]],
) -> None:
    """The steepest and the flattest line, wherever the bounds lie; none if two pairs contradict each other."""
    steepest, flattest, possible = 1.0, -1.0, True
    for x, y in (low for low, _ in bounds):
        for rx, ry in (high for _, high in bounds):
            if rx > x:
                steepest = min(steepest, (ry - y) / (rx - x))
            elif rx < x:
                flattest = max(flattest, (ry - y) / (rx - x))
            else:
                possible &= y <= ry
    rows = np.array([[*low, *high] for low, high in bounds]).T
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(axis, "MAX_DRIFT", 1.0)
        found = axis._extreme_slope(rows, -1), axis._extreme_slope(rows, 1)
    assert (None in found) == (not possible or flattest > steepest)
    assert None in found or found == (flattest, steepest)


# -- The shortest edit script between two sequences.


letters = st.lists(st.sampled_from("abc"), max_size=24)


def longest_common(a: list[str], b: list[str]) -> int:
    """By the plain table."""
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
    return row[-1]


@given(letters, letters)
def test_as_many_pairs_as_possible_and_all_in_order(a: list[str], b: list[str]) -> None:
    """Equal elements only, increasing in both, as long as the longest common subsequence."""
    pairs = present(matches(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    assert len(pairs) == longest_common(a, b)


def test_sequences_without_likeness_have_nothing_to_say() -> None:
    """Beyond the limit there is no answer, and it does not take forever to find out."""
    assert matches(list(range(MAX_EDITS)), list(range(-MAX_EDITS, 0))) is None
    some = matches(["x", *range(MAX_EDITS - 1)], ["y", *range(MAX_EDITS - 1)])
    assert some == [(i, i) for i in range(1, MAX_EDITS)]


# -- Printed times of layers as columns, and stamps that are read many at a time, equal what each gives by itself.


stamps = st.none() | st.builds(
    LocalTime,
    year=st.sampled_from([0, 2000, 2024]),
    month=st.integers(1, 12),
    day=st.integers(1, 28),
    ns=st.integers(0, 86_399_999_999_999),
)
layers = st.builds(
    LayerTime,
    source=st.integers(0, 1),
    line=st.integers(0, 9),
    index=st.integers(0, 3),
    layer=st.sampled_from(["conv1", "relu1"]),
    direction=st.sampled_from(["forward", "backward"]),
    printed_ns=st.integers(0, 10**16),
    stamp=stamps,
    thread=st.none() | st.integers(0, 1 << 70),
)


@given(st.lists(layers, max_size=6))
def test_columns_hold_what_records_do(records: list[LayerTime]) -> None:
    table = LayerTimes(records).changed()
    assert list(table) == records
    assert list(table.take(slice(1, None))) == records[1:]
    assert [(key.place, key.layer, key.direction) for key in table.key.each()] == [
        (one.index, one.layer, one.direction) for one in records
    ]
    assert [table.stamp(row) for row in range(len(table))] == [one.stamp for one in records]


@given(st.lists(layers, max_size=6))
def test_a_column_of_stamps_is_converted_like_each_stamp(records: list[LayerTime]) -> None:
    clock = LogClock(offset_ns=3600 * 10**9, near_ns=1_700_000_000 * 10**9, residual_ns=0, method="", host_ns=7)
    table = LayerTimes(records)
    assert plain(clock.hosts_of(table)) == [None if one.stamp is None else clock.to_host(one.stamp) for one in records]
    told = local_times(table, clock.near_ns)[table.has_stamp].tolist()
    assert told == [local_ns(one.stamp, clock.near_ns) for one in records if one.stamp is not None]


texts = st.sampled_from([
    "", "2018-02-09T10:36:48.553314", "2018-02-09T10:36:48.000000", "2018-02-09T10:36:49.000001",
    "2018-02-09T10:36:48.55 314", "2018-02-09T10:36:48.+53314", "2018-02-30T10:36:48.553314", "2018-02-09T10:36:48",
    "1970-01-01 00:00:00.553314", "2018-02-09T10:36:48.5533\u0661\u0661", "2018-02-09T10:36:48.553314999",
])  # fmt: skip


@given(st.lists(texts, max_size=6))
def test_stamps_are_read_together_like_each_by_itself(given_texts: list[str]) -> None:
    together, alone = (ProfileFolder(0, Notes(), "") for _ in range(2))
    times = [NO if (time := alone._host(text)) is None else time for text in given_texts]
    assert together._unix_ns(given_texts).tolist() == times
    assert str(together._notes) == str(alone._notes)
