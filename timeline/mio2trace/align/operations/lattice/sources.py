from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mio2trace.align.links import NONE

SOURCES = 6
"""The number of states from which an operation may begin."""


class Source(NamedTuple):
    """A state that an operation may begin from. ``operation``: the last one; ``nats``: state and leaving it;
    ``passed``: all calls up to there passed over; ``least``: any number of calls passed over; ``own``: class of the
    current call, or `NONE`."""

    operation: int
    nats: float
    state: int
    passed: float
    least: float
    own: int


class Sources:
    """The states before one kernel, ranked once for all operations that it may begin.

    A state costs ``max(passed one by one, a hole)``. Both have one order for all operations, so the best of both orders
    contain the best. ``row``: the cost of dividing a row of GEMMs, except for calls of one class."""

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
        """Return (nats, state) of the most likely states. ``passed``: all calls before ``target`` passed over."""
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
