"""The engine of the alignment against trying every way."""

from __future__ import annotations

import tracemalloc
from itertools import product
from math import exp, inf, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.engine import Pairs, Ways, Weights, cheapest, cheapest_places, in_slots, solved
from mio2trace.align.layers import durations
from mio2trace.align.rates import BROKEN, CUT, LOST
from mio2trace.model.tables import Numbers
from tests.often import present

PART = st.floats(0.01, 1.0)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[list[float]], list[float], list[float], list[float]]:
    calls, slots = draw(st.integers(0, 4)), draw(st.integers(1, 3))

    def parts(count: int) -> list[float]:
        return draw(st.lists(PART, min_size=count, max_size=count))

    return [parts(slots) for _ in range(calls)], parts(slots), parts(calls), parts(calls)


@given(rows(), st.booleans(), st.booleans())
def test_chances_are_those_of_all_ways(
    given_: tuple[list[list[float]], list[float], list[float], list[float]], begun: bool, ended: bool
) -> None:
    """Each way by itself, worth its product: of each call the ways with it in a slot, in parts of all."""
    fits, silent, entered, again = given_
    count = len(silent)
    worth = [[0.0] * count for _ in fits]
    total = 0.0
    for way in product(range(-1, count), repeat=len(fits)):  # -1: in no slot
        at, value = 0, 1.0  # slots up to there are behind
        for number, slot in enumerate(way):
            far = (LOST if number or begun else CUT) / count
            if slot < 0:
                value *= BROKEN
            elif slot < at - 1:
                value = 0.0
            else:
                entering = (prod(silent[at:slot]) + far) * entered[number] if slot >= at else 0.0
                value *= (entering if slot >= at else again[number]) * fits[number][slot]
                at = slot + 1
        value *= prod(silent[at:]) + (LOST if ended else CUT) / count
        total += value
        for number, slot in enumerate(way):
            if slot >= 0:
                worth[number][slot] += value
    found_in_order = in_slots([*map(np.array, fits)], silent, entered, again, begun=begun, ended=ended)
    for found, of_call in zip(found_in_order, worth, strict=True):
        assert found == pytest.approx([one / total for one in of_call], rel=1e-9, abs=1e-12)


def test_calls_that_contradict_each_other_by_the_hundred_are_no_fault() -> None:
    """Half of them are of the last slot, and then half of the first one."""
    fits = [np.array([1e-7, 1.0])] * 200 + [np.array([1.0, 1e-7])] * 200
    found = in_slots(fits, [0.02, 0.02], [1.0] * 400, [1.0] * 400)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.sum(1) <= 1 + 1e-9).all()


def test_in_a_long_net_each_call_is_found() -> None:
    """A thousand slots, a call of each: passing over all of them is less probable than a float can say."""
    count = 1000
    fits = [*np.where(np.eye(count) > 0, 1.0, 1e-5)]
    ones = [1.0] * count
    assert in_slots(fits, [0.02] * count, ones, ones, begun=True).diagonal().min() > 0.99


@given(st.lists(st.lists(PART, min_size=6, max_size=6), min_size=1, max_size=4))
def test_states_in_pairs_have_the_chances_of_all_ways(weights: list[list[float]]) -> None:
    """Two states before, then three, two, three and so on."""
    sizes = [2 + number % 2 for number in range(len(weights) + 1)]
    pairs = [np.array(one).reshape(sizes[at : at + 2]) for at, one in enumerate(weights)]
    ways = {way: prod(one[way[at], way[at + 1]] for at, one in enumerate(pairs)) for way in product(*map(range, sizes))}
    found = [*solved(np.ones(2), [*map(Pairs, pairs)], np.ones(sizes[-1]))][::-1]
    for at, chances in enumerate(found, 1):
        of_each = [sum(worth for way, worth in ways.items() if way[at] == state) for state in range(sizes[at])]
        assert chances == pytest.approx([one / sum(ways.values()) for one in of_each])


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.floats(0.5, 5.0),
)
def test_the_cheapest_places_are_those_of_all_answers(takes: list[int], items: list[int], nat: float) -> None:
    """Slots follow each other and take a time each, and so do their items. A slot that ends behind its items costs."""
    ends = [sum(items[:at]) for at in range(len(items) + 1)]

    def worth(number: int, before: Numbers, own: Numbers, reach: Numbers) -> tuple[Weights, Numbers]:
        until = np.maximum(reach + takes[number], np.array(ends)[own])
        over: Weights = np.where(before <= own, np.maximum(0.0, until - np.array(ends)[own]), inf)
        return over, until

    every = {}
    for way in product(range(len(ends)), repeat=len(takes) - 1):
        cuts, reach, cost = (*way, len(items)), 0, 0.0
        for number, (before, own) in enumerate(zip((0, *cuts), cuts, strict=False)):
            reach = max(reach + takes[number], ends[own])
            cost += inf if own < before else reach - ends[own]
        every[cuts] = cost
    places = [np.arange(len(ends))] * (len(takes) - 1) + [np.array([len(items)])]
    found = present(cheapest(Ways.at(0, 0), places, worth))
    assert found[-1].costs[0] == min(every.values()) == every[tuple(cheapest_places(found))]
    last = found[-1]
    on = Ways(last.places[:1], np.zeros(1), np.full(1, -100_000), np.zeros(1, np.int64))
    assert last.chances(on, nat)[1].tolist() == [1.0]


def test_a_place_that_costs_a_nat_more_is_less_likely_by_e() -> None:
    """Two ways lead to one place. The dearer one counts, because the next item has room after it."""
    zeros = np.zeros(3, np.int64)
    ways = Ways(np.array([4, 4, 7]), np.array([0.0, 2.0, 3.0]), np.array([9, 0, 0]), zeros)
    on = Ways(np.array([4, 7]), np.zeros(2), np.array([0, -5]), zeros[:2])
    places, chances = ways.chances(on, 1.0)
    assert places.tolist() == [4, 7]
    assert chances[0] / chances[1] == pytest.approx(exp(1))


def test_printed_times_of_many_layers_take_the_room_of_their_cuts() -> None:
    """Not of all pairs of layer and kernel: a long iteration would take gigabytes."""
    layers, each = 800, 20
    starts = np.arange(layers * each + 1) * 100_000
    columns = durations._Columns(
        members=[[at] for at in range(layers * each)], starts=starts, ends=np.append(0, starts[:-1] + 90_000)
    )
    tracemalloc.start()
    try:
        found = durations._best_cuts(columns, [each * 100_000] * layers, [np.zeros_like(starts)] * layers, 0, 1e5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert present(found)[0] == [*range(each, layers * each + 1, each)]
    assert peak < 8 * layers * len(starts) / 4
