"""One engine for all that belongs to slots in order: kernels and calls to layers, layer lines to rows of kernels.

Who asks states factors: how well each item fits each of its states, and what leads from a state to the next item's.
`solved` weighs all ways, forward and backward. Its answers are probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.rates import BROKEN, CUT, LOST
from mio2trace.model.tables import Numbers

Weights = NDArray[np.float64]


class Step(Protocol):
    """What leads from the states before an item to its own states."""

    def ahead(self, before: Weights) -> Weights:
        """Return what all ways to each state of the item are worth. ``before``: to each state before."""

    def back(self, behind: Weights) -> Weights:
        """Return what all ways on from each state before are worth. ``behind``: from each state of the item."""


def solved(begin: Weights, steps: Sequence[Step], end: Weights) -> Iterator[Weights]:
    """Yield the probability of each state of each item, from the last item on. ``begin``, ``end``: of both ends.

    If hundreds of items contradict each other, all are too small for a float: each is 0 then."""
    forward, behind = [begin], end
    for step in steps:
        reached = step.ahead(forward[-1])
        forward.append(reached / reached.max())
    for step in reversed(steps):
        ways = forward.pop() * behind
        yield ways / (ways.sum() or 1.0)
        behind = step.back(behind)
        behind /= behind.max() or 1.0


class Pairs(msgspec.Struct, frozen=True):
    """Each state before, in rows, with each state of the item, in columns."""

    weights: Weights

    def ahead(self, before: Weights) -> Weights:
        return before @ self.weights

    def back(self, behind: Weights) -> Weights:
        return self.weights @ behind


class _InSlot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An item is in the slot of the item before, in a later one, or in none: rows 1 and 0 of its states, by slot.

    State 0 is before the first slot. ``silence``: nats of passing over the slots before each. ``far``: over any."""

    fit: Weights
    silence: Weights
    far: float
    enters: float
    stays: float

    def ahead(self, before: Weights) -> Weights:
        held = before[0] + before[1]
        states = np.array((held * BROKEN, held))
        states[1, 1:] = (self._passed(held[:-1], self.silence) * self.enters + held[1:] * self.stays) * self.fit
        states[1, 0] = 0.0
        return states

    def back(self, behind: Weights) -> Weights:
        own = behind[1, 1:] * self.fit
        on = behind[0] * BROKEN
        on[:-1] += self._passed(own[::-1], -self.silence[::-1])[::-1] * self.enters
        on[1:] += own * self.stays
        return np.array((on, on))

    def _passed(self, held: Weights, silence: Weights) -> Weights:
        """Return for each slot what is held up to there, after passing over the slots in between."""
        near = np.logaddexp.accumulate(np.log(held) - silence) + silence
        return np.exp(near) + np.add.accumulate(held) * self.far


def in_slots(
    fits: Sequence[Weights],
    silent: Sequence[float],
    entered: Sequence[float],
    again: Sequence[float],
    *,
    begun: bool = False,
    ended: bool = False,
) -> Weights:
    """Return the probability of each item, in rows, in each slot; the rest is "in none".

    ``fits``: per item and slot. ``silent``: probability per slot of no item. ``entered``, ``again``: how well an item
    is the first or a further one of a slot. ``begun``, ``ended``: the row of slots is complete there."""
    count = len(silent)
    lost, cut = LOST / max(1, count), CUT / max(1, count)
    silence = np.append(0.0, np.log(silent).cumsum())
    factors = enumerate(zip(fits, entered, again, strict=False))
    steps = [
        _InSlot(fit=fit, silence=silence[:-1], far=lost if at or begun else cut, enters=enters, stays=stays)
        for at, (fit, enters, stays) in factors
    ]
    begin = np.zeros((2, count + 1))
    begin[0, 0] = 1.0
    end = np.exp(silence[-1] - silence) + (lost if ended else cut)
    chances = np.empty((len(steps), count))
    with np.errstate(divide="ignore"):  # of states without a way there
        for number, states in enumerate(solved(begin, steps, np.array((end, end))), 1):
            chances[-number] = states[1, 1:]
    return chances


MOST_PLACES, MOST_WAYS = 400, 3
"""The number of places where an item may end, and of ways to each place, that are kept."""
MOST_APART = 40.0
"""A place whose cost is this many nats (natural logarithms) above the best one has no probability."""


class Ways(msgspec.Struct, frozen=True):
    """The cheapest ways to the places where an item ends, in columns, ordered by place.

    A dearer way to the same place is kept only if it reaches less far, so that the next item has more room.
    ``before``: the way of the previous item that each way continues."""

    places: Numbers
    costs: Weights
    reach: Numbers
    before: Numbers

    @classmethod
    def at(cls, place: int, reach: int) -> Ways:
        """Return the only way to where all begins."""
        return cls(np.array([place]), np.zeros(1), np.array([reach]), np.zeros(1, np.int64))

    def chances(self, rest: Ways, nat: float) -> tuple[Numbers, Weights]:
        """Return the places, and the probability of each. ``rest``: the ways on from them. ``nat``: what one costs."""
        costs = self.costs[:, None] + rest.costs + np.maximum(0, self.reach[:, None] + rest.reach)
        costs[self.places[:, None] != rest.places] = np.inf
        first = np.flatnonzero(np.diff(self.places, prepend=-1))
        over = np.minimum.reduceat(costs.min(1), first)
        over = (over - over.min()) / nat
        weights = np.where(over < MOST_APART, np.exp(-over), 0.0)
        return self.places[first], weights / weights.sum()


Worth = Callable[[int, Numbers, Numbers, Numbers], tuple[Weights, Numbers]]
"""Takes the number of an item, the places before it, its own places, and how far the items before it reach. Returns
the cost of each pair of places, and how far the item reaches there."""


def cheapest(begin: Ways, places: Sequence[Numbers], worth: Worth) -> list[Ways] | None:
    """Return the ways to the places where each item may end, after those of the begin; None if an item has none."""
    found = [begin]
    for number, own in enumerate(places):
        before = found[-1]
        more, reach = worth(number, before.places[:, None], own, before.reach[:, None])
        costs = before.costs[:, None] + more
        order = np.lexsort((reach, costs), axis=0)
        costs, reach = np.take_along_axis(costs, order, 0), np.take_along_axis(reach, order, 0)
        is_kept = costs < np.inf
        is_kept[1:] &= reach[1:] < np.minimum.accumulate(reach)[:-1]
        is_kept &= is_kept.cumsum(0) <= MOST_WAYS
        is_kept[:, np.argsort(costs[0], kind="stable")[MOST_PLACES:]] = False
        at, row = np.nonzero(is_kept.T)
        if not len(at):
            return None
        found.append(Ways(own[at], costs[row, at], reach[row, at], order[row, at]))
    return found


def cheapest_places(found: Sequence[Ways]) -> list[int]:
    """Return the place where each item of the cheapest answer ends."""
    answer, way = list[int](), int(found[-1].costs.argmin())
    for one in found[:0:-1]:
        answer.append(int(one.places[way]))
        way = int(one.before[way])
    return answer[::-1]
