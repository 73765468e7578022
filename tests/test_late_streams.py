"""Lines that came into a log late, as the stream that they were printed to was buffered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.clocks.log_bounds import OffsetBound, come_late

SECOND = 1_000_000_000
TIMES = st.lists(st.integers(1, 50), min_size=24, max_size=60)


def _bounds(lengths: list[int], block: int, *, drift: float, step: int) -> list[OffsetBound]:
    """Calls back to back, in ms, each between two stamps of lines, one after each ``block`` calls; the log's clock runs
    fast by ``drift`` and is set by ``step`` ns in the middle.
    """
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length * 1_000_000)
    stamps = [int(ends[at] * (1 + drift)) + (step if 2 * at >= len(ends) else 0) for at in range(0, len(ends), block)]
    bounds = []
    for number in range(len(lengths)):
        gap = number // block
        if gap + 1 < len(stamps):
            after, before = stamps[gap], stamps[gap + 1]
            bounds.append(OffsetBound(after - ends[number], before - ends[number + 1], after, before))
    return bounds


@given(lengths=TIMES, block=st.integers(2, 8), drift=st.floats(-0.1, 0.1), step=st.integers(-5, 5))
def test_no_stream_is_buffered_where_a_clock_drifts_or_steps(
    lengths: list[int], block: int, drift: float, step: int
) -> None:
    assert not come_late(_bounds(lengths, block, drift=drift, step=step * SECOND))


def test_calls_between_lines_that_came_late_ran_longer_than_the_time_between_these() -> None:
    """Four blocks of lines about 5 ms each; between them all calls of 200 ms."""
    bounds = []
    for block in range(4):
        after, before = block * 200_000_000, block * 200_000_000 + 5_000_000
        for call in range(10):
            begin = block * 200_000_000 + call * 20_000_000
            bounds.append(OffsetBound(after - begin, before - begin - 20_000_000, after, before))
    assert come_late(bounds)
    assert come_late([bound.moved(SECOND) for bound in bounds])
