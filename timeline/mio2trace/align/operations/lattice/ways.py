from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from mio2trace.align.links import NONE
from mio2trace.align.operations.posterior import LEAST, Posterior

OUT, GONE, LONG, HELPERS, MAIN, WAITING = range(6)
GEMM = 8
"""Set if the call had a GEMM."""
STATES, PHASE = 16, 7
BEFORE = OUT


Scores = dict[int, float]
"""Nats of each state over all ways to it."""
_NEGLIGIBLE, _DIGITS = 1e-12, 9
"""Less probable ways are not followed back; smaller differences count as equal."""


Ways = tuple[float, Sequence[tuple[int, float]], Sequence[float], float]
"""Ways to a state: nats together, (state before, nats) each, weight of each relative to the best, sum of weights."""


def meet(ways: Sequence[tuple[int, float]]) -> Ways:
    """Combine ways (state before, nats); at least one."""
    if len(ways) == 1:
        return ways[0][1], ways, (1.0,), 1.0
    worth = [nats for _, nats in ways]
    best = max(worth)
    parts = [exp(nats - best) for nats in worth]
    together = sum(parts)
    return best + log(together), ways, parts, together


def settle(
    posterior: Posterior,
    started: int,
    steps: Sequence[Mapping[int, Ways]],
    end: Mapping[int, float],
    operations: Sequence[object] = (),
) -> None:
    """Fill in the kernels from ``started`` on. ``end``: nats of the states after the last one.

    ``operations``: by place, if some are parts of one call; the probabilities of parts are added. A state's probability
    is divided among its ways by their weights, backward."""
    nats, last, parts, together = meet(list(end.items()))
    posterior.evidence += nats
    chances = {state: part / together for (state, _), part in zip(last, parts, strict=True)}
    for at in range(started + len(steps) - 1, started - 1, -1):
        ways = steps[at - started]
        by_operation: dict[int, float] = {}
        earlier: dict[int, float] = {}
        for state, chance in chances.items():
            phase = state & PHASE
            operation = NONE if phase <= LONG else state // STATES - 1
            by_operation[operation] = by_operation.get(operation, 0.0) + chance
            if phase in (GONE, LONG):
                posterior.gone[at] += chance
            _, before, parts, together = ways[state]
            share = chance / together
            for (previous, _), part in zip(before, parts, strict=True):
                if share * part > _NEGLIGIBLE:
                    earlier[previous] = earlier.get(previous, 0.0) + share * part
        if len(by_operation) == 1:
            posterior.operation[at] = next(iter(by_operation))
        else:
            ranked = sorted(by_operation.items(), key=lambda item: (-round(item[1], _DIGITS), item[0]))
            if operations:
                ranked = _together(ranked, operations)
            posterior.operation[at] = ranked[0][0]
            posterior.confidence[at] = min(1.0, ranked[0][1])
            posterior.others[at] = tuple(item for item in ranked[1:4] if item[1] >= LEAST)
        chances = earlier


def _together(ranked: Sequence[tuple[int, float]], operations: Sequence[object]) -> list[tuple[int, float]]:
    """Add the probabilities of the parts of one operation."""
    merged: dict[int, tuple[int, float]] = {}
    for place, chance in ranked:
        key = NONE if place == NONE else id(operations[place])
        first, before = merged.get(key, (place, 0.0))
        merged[key] = first, before + chance
    return sorted(merged.values(), key=lambda item: (-round(item[1], _DIGITS), item[0]))
