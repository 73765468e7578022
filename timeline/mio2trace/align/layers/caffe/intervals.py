"""Give activities to layers with a printed end: a hidden Markov model of the cuts between them.

A layer is in [end - printed, end]. Layers do not overlap, no activity crosses an end, and nothing is enqueued between
two consecutive layers. A state is the row of activities of a layer. Forward and backward sums give probabilities."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from math import exp

import msgspec

from mio2trace.align.operations.rates import CONTRADICTED, LINE_NS, STRAY, TOLERANCE_NS

_SOON_NS = LINE_NS // 4
_GAP_NS = 8 * LINE_NS
MOST_STATES = 64
MOST_CELLS = 16
"""Parts of an uncertain moment, and cuts in each, that are tried."""


class Printed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A layer line: the layer's end is in [``stamp``, ``latest``] on the host's clock, or a little before.

    ``floor``: the first activity that may be in it. ``follows``: nothing ran between it and the layer before."""

    stamp: int
    latest: int
    printed_ns: int
    follows: bool
    floor: int = 0


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A layer's activities; ``confidences``: None if all are 1; ``others``: (place, probability) of the next best
    layer."""

    first: int
    stop: int
    confidences: Sequence[float] | None = None
    others: Sequence[tuple[int, float] | None] = ()


class _State(msgspec.Struct, frozen=True, gc=False):
    first: int
    stop: int
    earliest: int
    latest: int
    weight: float


class Times(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Host begins and ends of one queue's activities, never decreasing, and their error."""

    begins: Sequence[int]
    ends: Sequence[int]
    error_ns: int = 0


def rows(layers: Sequence[Printed], times: Times) -> list[Row]:
    """Return the most likely row of each layer; activities that are rather in none are in no row.

    The list is cut between two certain layers, because they do not depend on each other."""
    given: list[Row] = []
    opening: _State | None = None
    stretch: list[list[_State]] = []

    def solve() -> None:
        first = len(given)
        for row in _solved(opening, layers[first : first + len(stretch)], stretch):
            others = [other and (other[0] + first, other[1]) for other in row.others]
            given.append(msgspec.structs.replace(row, others=others) if first and others else row)

    for layer, bound in zip(layers, _bounds(layers), strict=True):
        states = _states(layer, *bound, times)
        if stretch and len(stretch[-1]) == len(states) == 1 and _between(stretch[-1][0], states[0], layer) == 1:
            solve()
            opening = stretch[-1][0]
            stretch.clear()
        stretch.append(states)
    if stretch:
        solve()
    return given


def _bounds(layers: Sequence[Printed]) -> list[tuple[int, int]]:
    """Return the possible ends of each layer, as layers do not overlap; its own bounds if lines contradict."""
    low: list[int] = []
    before: int | None = None
    for layer in layers:
        least = (
            layer.stamp - LINE_NS if before is None else max(layer.stamp - LINE_NS, before + layer.printed_ns - LINE_NS)
        )
        before = least if least <= layer.latest else layer.stamp - LINE_NS
        low.append(before)
    high: list[int] = []
    after: int | None = None
    for number in range(len(layers) - 1, -1, -1):
        layer = layers[number]
        most = layer.latest if after is None else min(layer.latest, after - layers[number + 1].printed_ns + LINE_NS)
        after = most if most >= layer.stamp - LINE_NS else layer.latest
        high.append(after)
    high.reverse()
    return [
        (least, most) if least <= most else (layer.stamp - LINE_NS, layer.latest)
        for layer, least, most in zip(layers, low, high, strict=True)
    ]


def _states(layer: Printed, low: int, high: int, times: Times) -> list[_State]:
    """Return the possible rows of a layer that ends between ``low`` and ``high``, weighted by time."""
    printed, error = layer.printed_ns, times.error_ns
    stop = bisect_left(times.begins, low - error)
    if stop == bisect_right(times.ends, high + error):
        first = bisect_left(times.begins, low - printed - error)
        if layer.floor <= first <= stop and first == bisect_right(times.ends, high - printed + error):
            return [_State(first, stop, low, high, 1.0)]  # no cut but these, as mostly
    states = [
        _State(first, stop, begun + printed, until + printed, _weight(begun + printed, until + printed, layer))
        for cell in _cells(low, high)
        for stop, earliest, latest in _cuts(*cell, times)
        for cut, begun, until in _cuts(earliest - printed, latest - printed, times)
        if (first := _behind(layer.floor, cut, until, times)) <= stop
    ]
    if states:
        return states[:: 1 + len(states) // MOST_STATES]
    # An activity goes on across the end or the begin wherever these are: a time is wrong.
    stop = bisect_right(times.ends, high + error)
    first = max(layer.floor, bisect_left(times.begins, low - printed - LINE_NS - error))
    return [_State(min(first, stop), stop, low, high, CONTRADICTED)]


def _behind(floor: int, first: int, begin: int, times: Times) -> int:
    """Return the first activity of a layer that begins at ``begin``, not before its floor; beyond all if impossible."""
    if first >= floor:
        return first
    late = times.ends[floor - 1] - times.error_ns - begin
    return floor if late <= TOLERANCE_NS else len(times.begins) + 1


def _cells(low: int, high: int) -> Iterator[tuple[int, int]]:
    width = max(2 * LINE_NS, (high - low) // MOST_CELLS + 1)
    for start in range(low, high + 1, width + 1):
        yield start, min(start + width, high)


def _weight(earliest: int, latest: int, layer: Printed) -> float:
    """Return the probability that the end is between two times: a line comes soon after it."""

    def before(time: int) -> float:
        return _SOON_NS * exp((time - layer.stamp) / _SOON_NS) if time < layer.stamp else _SOON_NS + time - layer.stamp

    return (before(latest + 1) - before(earliest)) / (_SOON_NS + 1 + layer.latest - layer.stamp)


def _cuts(low: int, high: int, times: Times) -> Iterator[tuple[int, int, int]]:
    """Yield (place, earliest, latest) of the cuts that are possible from ``low`` to ``high``."""
    begins, ends, error = times.begins, times.ends, times.error_ns
    count = len(begins)
    least, most = bisect_left(begins, low - error), bisect_right(ends, high + error)
    for place in range(least, most + 1, 1 + max(0, most - least) // MOST_CELLS):
        earliest = max(low, ends[place - 1] - error) if place else low
        latest = min(high, begins[place] + error) if place < count else high
        if earliest <= latest:
            yield place, earliest, latest


def _solved(opening: _State | None, layers: Sequence[Printed], states: Sequence[Sequence[_State]]) -> list[Row]:
    if len(states) == 1 and len(states[0]) == 1:
        state = states[0][0]
        sure = state.weight > CONTRADICTED and _between(opening, state, layers[0]) == 1
        return [
            Row(first=state.first, stop=state.stop, confidences=None if sure else [0.5] * (state.stop - state.first))
        ]
    forward: list[list[float]] = []
    before: Sequence[_State | None] = [opening]
    reached = [1.0]
    for layer, after in zip(layers, states, strict=True):
        reached = _scaled(
            [
                state.weight
                * sum(weight * _between(other, state, layer) for other, weight in zip(before, reached, strict=True))
                for state in after
            ]
        )
        forward.append(reached)
        before = after
    backward: list[list[float]] = [[1.0] * len(states[-1])]
    for number in range(len(states) - 2, -1, -1):
        after, beyond, layer = states[number + 1], backward[-1], layers[number + 1]
        backward.append(
            _scaled(
                [
                    sum(
                        state.weight * weight * _between(one, state, layer)
                        for state, weight in zip(after, beyond, strict=True)
                    )
                    for one in states[number]
                ]
            )
        )
    backward.reverse()
    shares: list[dict[int, float]] = []
    for of_layer, ahead, behind in zip(states, forward, backward, strict=True):
        weights = _scaled([a * b for a, b in zip(ahead, behind, strict=True)])
        share: dict[int, float] = {}
        for state, weight in zip(of_layer, weights, strict=True):
            if weight > CONTRADICTED:
                certain = weight if state.weight > CONTRADICTED else weight / 2
                for place in range(state.first, state.stop):
                    share[place] = share.get(place, 0.0) + certain
        shares.append(share)
    return _chosen(shares)


def _chosen(shares: Sequence[dict[int, float]]) -> list[Row]:
    """Put each activity into its most likely layer, unless it is rather in none."""
    best: dict[int, tuple[float, int]] = {}
    for number, share in enumerate(shares):
        for place, probability in share.items():
            if probability >= 0.5 and probability > best.get(place, (0.0, 0))[0]:
                best[place] = probability, number
    given: list[Row] = []
    for number, share in enumerate(shares):
        places = sorted(place for place in share if best.get(place, (0.0, -1))[1] == number)
        if not places:
            given.append(Row(first=0, stop=0))
            continue
        first, stop = places[0], places[-1] + 1
        confidences = [
            min(1.0, share[place]) if best.get(place, (0.0, -1))[1] == number else 0.0 for place in range(first, stop)
        ]
        others = [_next_best(shares, place, number) for place in range(first, stop)]
        given.append(Row(first=first, stop=stop, confidences=confidences, others=others))
    return given


def _next_best(shares: Sequence[dict[int, float]], place: int, number: int) -> tuple[int, float] | None:
    beside = [one for one in (number - 1, number + 1) if 0 <= one < len(shares) and shares[one].get(place, 0.0) > 0]
    best = max(beside, key=lambda one: shares[one][place], default=None)
    return None if best is None else (best, shares[best][place])


def _between(before: _State | None, after: _State, layer: Printed) -> float:
    """Return how likely two rows are as neighbours: they do not overlap, and what is between them is in no layer."""
    stop = layer.floor if before is None else max(before.stop, layer.floor)
    if before is not None:
        gap = after.latest - layer.printed_ns - before.earliest
        if after.first < before.stop or gap < -LINE_NS:
            return float(CONTRADICTED**2)
    if not layer.follows:
        return 1.0
    strays = float(STRAY ** min(after.first - stop, 3)) if after.first > stop else 1.0
    if before is None:
        return strays
    gap = after.earliest - layer.printed_ns - before.latest
    return strays if gap <= _GAP_NS else strays * max(STRAY, exp(1 - gap / _GAP_NS))


def _scaled(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights] if total > 0 else [1 / len(weights)] * len(weights)
