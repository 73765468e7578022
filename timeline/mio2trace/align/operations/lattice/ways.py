"""The ways that meet in a state, and the way back over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from mio2trace.align.links import NONE
from mio2trace.align.operations.posterior import LEAST, Posterior

OUT, GONE, LONG, HELPERS, MAIN, WAITING = range(6)
GEMM = 8
"""Set where a GEMM was among the call's kernels."""
STATES, PHASE = 16, 7
BEFORE = OUT
"""The state before the first operation."""


Scores = dict[int, float]
"""What all ways to each state are worth together, in nats."""
_NEGLIGIBLE, _DIGITS = 1e-12, 9
"""What is less probable is not followed back; what differs by less is as likely, and then the first is taken."""


Ways = tuple[float, Sequence[tuple[int, float]], Sequence[float], float]
"""All that meet in a state: what they are worth together; each as (state before, nats); of each what it is worth in
parts of the best one, and the sum of these."""


def meet(ways: Sequence[tuple[int, float]]) -> Ways:
    """``ways``: (state before, nats), at least one."""
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
    """Fill in the kernels from ``started`` on; ``end``: what all ways to the states after the last one are worth.

    ``operations``: by place, where some are several parts of one, whose chances count together.

    What comes after a kernel tells nothing of what came before it that the state in between does not: a state's
    probability is its ways', each as far as it is one of those that meet there.
    """
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
    """Of each operation its likeliest part, with what all of its parts have."""
    merged: dict[int, tuple[int, float]] = {}
    for place, chance in ranked:
        key = NONE if place == NONE else id(operations[place])
        first, before = merged.get(key, (place, 0.0))
        merged[key] = first, before + chance
    return sorted(merged.values(), key=lambda item: (-round(item[1], _DIGITS), item[0]))
