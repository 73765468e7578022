"""Lanes of spans that nest or are disjoint."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mio2trace.draw.lanes import FirstFit


def _looked_through(spans: Sequence[tuple[int, int]], deepest: int) -> list[int]:
    """Each span's lane, all lanes asked one after another."""
    lanes: list[list[int]] = []
    taken = []
    for start, end in spans:
        for ends in lanes:
            while ends and ends[-1] <= start:
                ends.pop()
        fitting = (number for number, ends in enumerate(lanes) if not ends or (len(ends) < deepest and end <= ends[-1]))
        lane = next(fitting, len(lanes))
        lanes += [[]] * (lane == len(lanes))
        lanes[lane] = [*lanes[lane], end]
        taken.append(lane)
    return taken


@pytest.mark.parametrize("deepest", [1, 2, 100])
@pytest.mark.parametrize("latest", [5, 50, 1000])
def test_each_span_goes_into_the_first_lane_where_it_fits(latest: int, deepest: int) -> None:
    chance = random.Random(f"{latest} {deepest}")
    for _ in range(50):
        begun = [chance.randrange(latest) for _ in range(chance.randrange(1, 80))]
        spans = sorted(((at, at + chance.randrange(1, latest)) for at in begun), key=lambda one: (one[0], -one[1]))
        lanes = FirstFit(deepest)
        assert [lanes.lane_of(*span) for span in spans] == _looked_through(spans, deepest)
