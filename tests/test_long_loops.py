"""What is quick for many gives what the plain way gives for few."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.clocks import fit, log_bounds
from mio2trace.draw.lanes import packed_alike
from tests.records import enqueued, made_operation, opencl_profile

RUN = st.tuples(st.integers(0, 30), st.integers(1, 12), st.text("ab", max_size=3))
POINTS = st.lists(st.tuples(st.integers(0, 200), st.integers(-500, 500)), min_size=1, max_size=40)


def _scopes(run: tuple[int, int, str]) -> list[str]:
    return [run[2][:depth] for depth in range(1, len(run[2]) + 1)]


def _alike(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(st.lists(RUN, max_size=40))
def test_lanes_of_what_is_alike_are_those_of_a_search_through_all(runs: list[tuple[int, int, str]]) -> None:
    """Each in the free lane, the first of those whose last one shares most scopes."""
    lanes: list[list[tuple[int, int, str]]] = []
    for run in sorted(runs, key=lambda run: (run[0], -run[1])):
        free = [at for at, lane in enumerate(lanes) if lane[-1][0] + lane[-1][1] <= run[0]]
        best = max(free, key=lambda at: (_alike(lanes[at][-1][2], run[2]), -at), default=None)
        if best is None:
            lanes.append([run])
        else:
            lanes[best].append(run)
    assert packed_alike(runs, lambda run: (run[0], run[0] + run[1]), _scopes) == lanes


@given(POINTS, POINTS)
def test_slopes_between_two_hulls_are_those_of_all_their_corners(
    below: list[tuple[int, int]], above: list[tuple[int, int]]
) -> None:
    """The steepest and the flattest line, wherever the hulls lie."""
    floor, roof = fit._hull(below, upper=True), fit._hull(above, upper=False)
    for after in (True, False):
        slopes = [
            (ry - y) / (rx - x) for x, y in floor for rx, ry in roof if (rx > x if after else rx < x)
        ]  # fmt: skip
        quick = [slope for corner in floor for slope in fit._touching(corner, roof, after=after)]
        best = min if after else max
        assert (best(quick) if quick else None) == (best(slopes) if slopes else None)


@given(POINTS, st.integers(0, 200))
def test_a_line_touches_a_hull_where_it_would_be_found_among_all_corners(points: list[tuple[int, int]], x: int) -> None:
    """For the slope of each edge, and for some steeper than all."""
    for upper, extreme in ((True, max), (False, min)):
        hull = fit._hull(points, upper=upper)
        edges = [(by - ay) / (bx - ax) for (ax, ay), (bx, by) in pairwise(hull) if bx > ax]
        for slope in (-1e4, 0.0, 1e4, *edges):
            corners = fit._corners(hull, slope, rising=not upper)
            assert extreme(ry + slope * (x - rx) for rx, ry in corners) == extreme(
                ry + slope * (x - rx) for rx, ry in hull
            )


def _lines_run(iterations: int) -> int:
    """How many lines `by_buffers` runs for iterations whose calls share the weights and have buffers of their own."""
    weights = 1 << 20
    activities, operations = [], []
    for number in range(iterations):
        own = weights + (number + 1 << 12)
        words = tuple(address.to_bytes(8, "little").hex() for address in (weights, own))
        activities.append(enqueued(number, "kernel", "gcnAsmConv1x1U", arguments=words))
        tensors = (("w", weights), ("x", own))
        operations.append(
            made_operation(index=number, source=0, line=1, end_line=1, api="", primitive="conv", arguments=tensors)
        )
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line" and frame.f_code.co_filename == log_bounds.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        bounds = list(log_bounds.by_buffers(opencl_profile(activities=activities), operations, _NoLines()))
    finally:
        sys.settrace(before)
    assert bounds == []
    return count


class _NoLines(log_bounds.StampedLines):
    def __init__(self) -> None:
        """None is stamped."""

    def bound(self, *_: int) -> None:
        return None


def test_calls_on_the_same_weights_are_not_compared_with_each_other() -> None:
    """A thousand iterations name the weights; each kernel is looked for among the calls on its own buffers."""
    assert _lines_run(200) < 2.5 * _lines_run(100)
