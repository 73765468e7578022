"""The ways that meet in a state, and the way back over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from mio2trace.align.links import NONE
from mio2trace.align.operations.lattice.states import GONE, LONG, PHASE, STATES
from mio2trace.align.operations.posterior import LEAST, Posterior

Scores = dict[int, float]
"""What all ways to each state are worth together, in nats."""
_NEGLIGIBLE, _DIGITS = 1e-12, 9
"""What is less probable is not followed back; what differs by less is as likely, and then the first is taken."""


class Ways(NamedTuple):
    """All that meet in a state: what they are worth together; the states before; of each what the ways through it are
    worth in parts of the best one, and the sum of these."""

    nats: float
    before: Sequence[int]
    parts: Sequence[float]
    together: float

    @classmethod
    def of(cls, ways: Sequence[tuple[int, float]]) -> Ways:
        """``ways``: (state before, nats), at least one."""
        before, nats = zip(*ways, strict=True)
        if len(ways) == 1:
            return cls(nats[0], before, (1.0,), 1.0)
        best = max(nats)
        parts = [exp(one - best) for one in nats]
        together = sum(parts)
        return cls(best + log(together), before, parts, together)


def settle(posterior: Posterior, started: int, steps: Sequence[Mapping[int, Ways]], end: Mapping[int, float]) -> None:
    """Fill in the kernels from ``started`` on; ``end``: what all ways to the states after the last one are worth.

    What comes after a kernel tells nothing of what came before it that the state in between does not: a state's
    probability is its ways', each as far as it is one of those that meet there.
    """
    last = Ways.of(list(end.items()))
    posterior.evidence += last.nats
    chances = {state: part / last.together for state, part in zip(last.before, last.parts, strict=True)}
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
            for previous, part in zip(before, parts, strict=True):
                if share * part > _NEGLIGIBLE:
                    earlier[previous] = earlier.get(previous, 0.0) + share * part
        if len(by_operation) == 1:
            posterior.operation[at] = next(iter(by_operation))
        else:
            ranked = sorted(by_operation.items(), key=lambda item: (-round(item[1], _DIGITS), item[0]))
            posterior.operation[at] = ranked[0][0]
            posterior.confidence[at] = min(1.0, ranked[0][1])
            posterior.others[at] = tuple(item for item in ranked[1:4] if item[1] >= LEAST)
        chances = earlier
