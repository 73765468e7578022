"""What is quick for many gives what the plain way gives for few."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.clocks import fit

POINTS = st.lists(st.tuples(st.integers(0, 200), st.integers(-500, 500)), min_size=1, max_size=40)


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
