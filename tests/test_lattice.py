"""The lattice's parts against trying everything: the ways back, and the states that an operation is begun from."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.links import NONE
from mio2trace.align.operations.chances import Posterior
from mio2trace.align.operations.lattice import (
    GONE,
    LONG,
    MAIN,
    OUT,
    SOURCES,
    STATES,
    Source,
    likeliest,
    meet,
    ranked,
    settle,
)

_STATES = (OUT, GONE, STATES + OUT, STATES + MAIN, STATES + LONG, 2 * STATES + MAIN)
_NATS = st.floats(-9.0, 9.0)
_Steps = Sequence[dict[int, list[tuple[int, float]]]]


@st.composite
def steps(draw: st.DrawFn) -> _Steps:
    """Of each kernel's states the states before, and what the step alone is worth."""
    out: list[dict[int, list[tuple[int, float]]]] = []
    before: tuple[int, ...] = (OUT,)
    for _ in range(draw(st.integers(1, 4))):
        states = draw(st.lists(st.sampled_from(_STATES), min_size=1, max_size=4, unique=True))
        froms = st.lists(st.sampled_from(before), min_size=1, max_size=4, unique=True)
        out.append({state: [(one, draw(_NATS)) for one in draw(froms)] for state in states})
        before = tuple(states)
    return out


def every_way(steps: _Steps) -> list[tuple[tuple[int, ...], float]]:
    """(states, nats) of each way through all kernels."""
    ways: list[tuple[tuple[int, ...], float]] = [((OUT,), 0.0)]
    for step in steps:
        ways = [
            ((*states, state), nats + worth)
            for states, nats in ways
            for state, froms in step.items()
            for before, worth in froms
            if before == states[-1]
        ]
    return ways


@given(steps())
def test_probabilities_are_the_shares_of_all_ways(steps: _Steps) -> None:
    """Of every kernel: by operation, and of a call that the log lost."""
    scores, met = {OUT: 0.0}, []
    for step in steps:
        met.append({state: meet([(one, scores[one] + nats) for one, nats in ways]) for state, ways in step.items()})
        scores = {state: ways[0] for state, ways in met[-1].items()}
    posterior = Posterior.of_none(len(steps))
    settle(posterior, 0, met, scores)

    ways = every_way(steps)
    total = sum(exp(nats) for _, nats in ways)
    assert exp(posterior.evidence) == pytest.approx(total)
    for at in range(len(steps)):
        chances: dict[int, float] = {}
        gone = 0.0
        for states, nats in ways:
            state = states[at + 1]
            operation = NONE if state % STATES <= LONG else state // STATES - 1
            chances[operation] = chances.get(operation, 0.0) + exp(nats) / total
            gone += exp(nats) / total * (state % STATES in (GONE, LONG))
        said = dict(posterior.chances(at))
        assert posterior.operation[at] in chances
        assert posterior.confidence[at] == pytest.approx(max(chances.values()), abs=1e-8)
        for operation, chance in chances.items():
            assert said.get(operation, 0.0) == pytest.approx(chance, abs=0.0051 if operation not in said else 1e-8)
        assert posterior.gone[at] == pytest.approx(gone, abs=1e-8)


@st.composite
def sources(draw: st.DrawFn) -> list[Source]:
    """As the lattice has them: what is passed over is worth less the further one goes."""
    drops = draw(st.lists(st.floats(0.0, 4.0), min_size=7, max_size=7))
    passed = [-sum(drops[:number]) for number in range(8)]
    out = []
    for state in range(draw(st.integers(1, 40))):
        operation = draw(st.integers(-1, 5))
        least = draw(st.sampled_from((-3.0, -11.5))) if operation < 0 else -11.5
        own = draw(st.sampled_from((NONE, 0, 1)))
        out.append(Source(operation, draw(_NATS), state, passed[operation + 1], least, own))
    return out


@given(sources(), st.integers(0, 6), st.floats(-20.0, 0.0), st.sampled_from((0.0, -3.9)))
def test_the_likeliest_sources_are_those_of_all(ones: list[Source], target: int, passed: float, row: float) -> None:
    scores = sorted(
        (
            one.nats + max(passed - one.passed, one.least) + (row if one.own == 1 else 0.0)
            for one in ones
            if one.operation < target
        ),
        reverse=True,
    )
    taken = likeliest(ranked(ones, row), target, passed, 0, row)
    assert [nats for nats, _ in taken] == pytest.approx(scores[:SOURCES])
    assert all(ones[state].operation < target for _, state in taken)
    assert len({state for _, state in taken}) == len(taken)
