"""From which states an operation may be begun: the likeliest few of all that may come before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mio2trace.align.links import NONE

SOURCES = 6
"""From so many states an operation may be begun, the likeliest."""


class Source(NamedTuple):
    """A state that an operation may be begun from.

    ``operation``: the last one begun; ``nats``: what the state and leaving it are worth; ``passed``: what all calls
    up to there are worth if they were passed over; ``least``: what passing over any number of them is worth at least;
    ``own``: the class of the call that the kernel before is in, or none.
    """

    operation: int
    nats: float
    state: int
    passed: float
    least: float
    own: int


class Sources:
    """The states before one kernel, ranked once for all operations that it may begin.

    An operation is ``max(passed over one by one, a hole)`` away from a state. Either has an order of the states that is
    the same for all operations, so the likeliest of both orders have the likeliest among them. ``row``: what it costs
    to tear a row of GEMMs apart; one of a class with the operation's does not. Then all are looked at.
    """

    def __init__(self, sources: Sequence[Source], row: float) -> None:
        self._sources = sources
        self._row = row
        self.first = min([source.operation for source in sources])
        self._ranked: list[list[Source]] = []
        if not row and len(sources) > 2 * SOURCES:
            near = sorted(sources, key=lambda source: source.nats - source.passed, reverse=True)
            far = sorted(sources, key=lambda source: source.nats + source.least, reverse=True)
            self._ranked = [near, far]
        self._likeliest = self._before(max([source.operation for source in sources]) + 1)
        self._last = max([source.operation for source in self._likeliest])

    def of(self, target: int, passed: float, of_class: int) -> list[tuple[float, int]]:
        """(nats, state) of the likeliest, in order. ``passed``: what all calls before ``target`` are worth."""
        scores = [
            (
                nats
                + (passed - before if passed - before > least else least)
                + (0.0 if own in (NONE, of_class) else self._row),
                state,
            )
            for operation, nats, state, before, least, own in (
                self._likeliest if target > self._last else self._before(target)
            )
            if operation < target
        ]
        scores.sort(reverse=True)
        return scores[:SOURCES]

    def _before(self, target: int) -> Sequence[Source]:
        if not self._ranked:
            return self._sources
        candidates = {}
        for ranked in self._ranked:
            left = SOURCES
            for source in ranked:
                if source.operation < target:
                    candidates[source.state] = source
                    left -= 1
                    if not left:
                        break
        return list(candidates.values())
