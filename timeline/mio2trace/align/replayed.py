"""The capture of each graph replay, by names of kernels (torch-graphs.md 3)."""

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
"""A shorter sequence without its last launch may be another graph's."""
LEAST_IN_PART = 0.5
"""Share of a replay's kernels that a capture must have in the same order for a guess."""
_TRIED = 4
"""Captures that are compared with a part of a replay: those with most common names."""


class Layer(NamedTuple):
    """``within``: the layer around it. ``confidence``: of the captured launch."""

    name: str
    direction: Direction | None
    within: str = ""
    confidence: float = 1.0


class Fit(NamedTuple):
    """``places``: of each kernel's launch in the capture, or `NONE`. ``sure``: kernels with a sure launch."""

    capture: int
    places: Sequence[int]
    sure: frozenset[int]


class Replay(msgspec.Struct, frozen=True):
    """A graph launch: positions of kernels by index of their operation, and by layer if sure."""

    by: Evidence
    operations: Mapping[int, Sequence[int]]
    layers: Mapping[Layer, Sequence[int]]
    unsure: frozenset[int]


class Replays(NamedTuple):
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
        """Return the capture of a replay; equal captures take turns."""
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
        """The end is unsure where equal names leave open which launch is missing."""
        longer = [number for number, one in enumerate(self._captures) if one[:-1] == names]
        if len(longer) != 1 or len(names) < LEAST_KERNELS:
            return None
        last = self._captures[longer[0]][-1]
        sure = len(names)
        while sure and names[sure - 1] == last:
            sure -= 1
        return Fit(longer[0], range(len(names)), frozenset(range(sure)))

    def _in_part(self, names: tuple[str, ...]) -> Fit | None:
        """Match equal names in another order by count, else the longest common subsequence."""
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
