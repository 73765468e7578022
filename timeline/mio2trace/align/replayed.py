"""Which capture a graph's replay is of, by the names of its kernels (torch-graphs.md 3), and what that gives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from mio2trace.align.links import NONE
from mio2trace.align.sequences import matches
from mio2trace.evidence import Evidence
from mio2trace.model.log import Direction
from mio2trace.ops.operation import Operation

LEAST_KERNELS = 8
"""A shorter sequence that lacks its last launch may be another graph's."""
LEAST_IN_PART = 0.5
"""Share of a replay's kernels that a capture must have in the same order, for a guess."""
_TRIED = 4
"""Captures that are looked at for a part of a replay: those with most names in common."""


class Layer(NamedTuple):
    """``within``: the layer around it; ``confidence``: that the captured launch is of this layer."""

    name: str
    direction: Direction | None
    within: str = ""
    confidence: float = 1.0


class Fit(NamedTuple):
    """``places``: of each kernel the place of its launch in the capture, or `NONE`; ``sure``: of which that is sure."""

    capture: int
    places: Sequence[int]
    sure: frozenset[int]


class Replay(msgspec.Struct, frozen=True):
    """A graph's launch: the positions of its kernels that are joined, with their launches' operations and layers."""

    by: Evidence
    operations: Mapping[int, Sequence[int]]
    """By the index of the operation."""
    layers: Mapping[Layer, Sequence[int]]
    """Of those that are sure."""
    unsure: frozenset[int]


class Replays(NamedTuple):
    """``operations`` are those that the replays execute."""

    replays: tuple[Replay, ...] = ()
    operations: tuple[Operation, ...] = ()


class Matcher:
    """``tails``: replays that lack the last launch of their capture."""

    def __init__(self, captures: Sequence[tuple[str, ...]]) -> None:
        self._captures = captures
        self._equal: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, names in enumerate(captures):
            self._equal[names].append(number)
        self._turn: Counter[tuple[str, ...]] = Counter()
        self._others: dict[tuple[str, ...], Fit | None] = {}
        self.tails = 0

    def fit(self, names: tuple[str, ...]) -> Fit | None:
        """The capture that a replay is of, None where none fits; of equal ones each in its turn."""
        equal = self._equal.get(names)
        if equal:
            number = equal[self._turn[names] % len(equal)]
            self._turn[names] += 1
            whole = range(len(names))
            return Fit(number, whole, frozenset(whole) if len(equal) == 1 else frozenset())
        if names not in self._others:
            self._others[names] = self._without_tail(names) or self._in_part(names)
        fit = self._others[names]
        self.tails += fit is not None and bool(fit.sure)
        return fit

    def _without_tail(self, names: tuple[str, ...]) -> Fit | None:
        """Sure up to where equal names at the end leave open which of them is missing."""
        longer = [number for number, one in enumerate(self._captures) if one[:-1] == names]
        if len(longer) != 1 or len(names) < LEAST_KERNELS:
            return None
        last = self._captures[longer[0]][-1]
        sure = len(names)
        while sure and names[sure - 1] == last:
            sure -= 1
        return Fit(longer[0], range(len(names)), frozenset(range(sure)))

    def _in_part(self, names: tuple[str, ...]) -> Fit | None:
        """The same names in another order: the n-th of a name is the n-th of that name. Else the most in one order."""
        bag = Counter(names)
        common = sorted(
            (-(bag & Counter(one)).total(), number) for number, one in enumerate(self._captures)
        )[:_TRIED]  # fmt: skip
        for shared, number in common:
            if -shared == len(names) == len(self._captures[number]):
                places_of: dict[str, list[int]] = defaultdict(list)
                for place, name in enumerate(self._captures[number]):
                    places_of[name].append(place)
                seen: Counter[str] = Counter()
                places = []
                for name in names:
                    places.append(places_of[name][seen[name]])
                    seen[name] += 1
                return Fit(number, places, frozenset())
        best: tuple[int, int, list[tuple[int, int]]] | None = None
        for shared, number in common:
            if -shared < LEAST_IN_PART * len(names) or (best is not None and -shared <= best[0]):
                continue
            pairs = matches(names, self._captures[number])
            if pairs and len(pairs) >= LEAST_IN_PART * len(names) and (best is None or len(pairs) > best[0]):
                best = len(pairs), number, pairs
        if best is None:
            return None
        places = [NONE] * len(names)
        for at, place in best[2]:
            places[at] = place
        return Fit(best[1], places, frozenset())
