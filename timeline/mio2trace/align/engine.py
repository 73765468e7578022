"""One engine for all that belongs to slots in order: kernels and calls to layers, layer lines to rows of kernels.

Who asks states factors: how well each item fits each of its states, and what leads from a state to the next item's.
`solved` weighs all ways, forward and backward. Its answers are probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.rates import BROKEN, CUT, LOST
from mio2trace.model.tables import Numbers

Weights = NDArray[np.float64]
LEAST_IN_PART = 1e-200
"""The least silence of all slots of a part together: floats have no less than 1e-308."""


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


class Pairs(NamedTuple):
    """Each state before, in rows, with each state of the item, in columns."""

    weights: Weights

    def ahead(self, before: Weights) -> Weights:
        return before @ self.weights

    def back(self, behind: Weights) -> Weights:
        return self.weights @ behind


class _Passed:
    """Slots that are passed over, each with its probability of no item."""

    def __init__(self, silent: Weights) -> None:
        self._count, self._parts = len(silent) + 1, list[tuple[slice, Weights, float]]()
        nats = np.append(0.0, np.log(silent).cumsum())
        part = nats // np.log(LEAST_IN_PART)
        begins = [0, *(1 + np.flatnonzero(np.diff(part))).tolist(), self._count]
        for begin, end in pairwise(begins):
            here = nats[begin:end]
            self._parts.append((slice(begin, end), np.exp(here - here[0]), silent[begin - 1] if begin else 0.0))

    def sums(self, held: Weights) -> Weights:
        """Return of each place what is held there, and before it with what is passed over in between."""
        if len(self._parts) == 1:
            return np.add.accumulate(held / self._parts[0][1]) * self._parts[0][1]
        sums, before = np.empty(self._count), 0.0
        for part, worth, silent in self._parts:
            sums[part] = (np.add.accumulate(held[part] / worth) + before * silent) * worth
            before = sums[part.stop - 1]
        return sums


class _InSlot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An item is in the slot of the item before, in a later one, or in none: rows 1 and 0 of its states, by slot.

    State 0 is before the first slot. ``far``: of passing over any slots."""

    fit: Weights
    over: _Passed
    over_back: _Passed
    far: float
    enters: float
    stays: float

    def ahead(self, before: Weights) -> Weights:
        held = before[0] + before[1]
        former = held[:-1]
        states = np.zeros_like(before)
        states[0] = held * BROKEN
        into = self.over.sums(former) + np.add.accumulate(former) * self.far
        states[1, 1:] = (into * self.enters + held[1:] * self.stays) * self.fit
        return states

    def back(self, behind: Weights) -> Weights:
        own = behind[1, 1:] * self.fit
        last_first = own[::-1]
        into = self.over_back.sums(last_first) + np.add.accumulate(last_first) * self.far
        on = behind[0] * BROKEN
        on[:-1] += into[::-1] * self.enters
        on[1:] += own * self.stays
        return np.array((on, on))


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
    each = np.array(silent, float)
    over, over_back = _Passed(each[:-1]), _Passed(each[:-1][::-1])
    steps = [
        _InSlot(
            fit=fit, over=over, over_back=over_back, far=lost if number or begun else cut, enters=enters, stays=stays
        )
        for number, (fit, enters, stays) in enumerate(zip(fits, entered, again, strict=False))
    ]
    begin = np.zeros((2, count + 1))
    begin[0, 0] = 1.0
    end = np.append(np.multiply.accumulate(each[::-1])[::-1], 1.0) + (lost if ended else cut)
    chances = np.empty((len(steps), count))
    for number, states in enumerate(solved(begin, steps, np.array((end, end))), 1):
        chances[-number] = states[1, 1:]
    return chances


MOST_PLACES, MOST_WAYS = 400, 3
"""Places where an item may end, and ways to each, that are kept: cheap ones that reach far, dear ones that do not."""
MOST_APART = 40.0
"""Places that cost so many nats more than the best one have no probability."""


class Ways(NamedTuple):
    """The cheapest ways to where an item ends, in columns, by place; of one place each reaches less far than cheaper
    ones. ``before``: the way of the item before that it continues."""

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
"""For an item's number, places before it, its own places, and how far the items before reach: what it costs there, and
how far it reaches."""


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
