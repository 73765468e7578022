"""Rows of slices that do not overlap: lanes for what does, and unbroken rows of one key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from mio2trace.model.profile import Enqueue

T = TypeVar("T")
Row = TypeVar("Row")


def packed(enqueues: Sequence[Enqueue], rows: Mapping[Row, list[int]]) -> Iterator[tuple[Row, int, list[int]]]:
    """(row, lane, positions in order of start) of each row of positions; lanes beyond 0 only where it overlaps."""
    for row, positions in rows.items():
        if _in_a_row(enqueues, positions):
            yield row, 0, positions
            continue

        def span(position: int) -> tuple[int, int]:
            start, end = enqueues[position].start_ns, enqueues[position].end_ns
            assert start is not None and end is not None
            return start, end

        for lane, found in enumerate(packed_spans(positions, span)):
            yield row, lane, found


def packed_spans(items: Sequence[T], span: Callable[[T], tuple[int, int]]) -> list[list[T]]:
    """Lanes of items in order of start, each in the first that is free."""
    lanes: list[list[T]] = []
    free: list[int] = []
    for item in sorted(items, key=span):
        start, end = span(item)
        lane = next((lane for lane, until in enumerate(free) if until <= start), len(free))
        if lane == len(free):
            free.append(end)
            lanes.append([])
        free[lane] = end
        lanes[lane].append(item)
    return lanes


def _in_a_row(enqueues: Sequence[Enqueue], positions: Sequence[int]) -> bool:
    """Whether these enqueues, in call order, ran one after another: then they need no sorting and one lane."""
    done = -1
    for position in positions:
        enqueue = enqueues[position]
        start, end = enqueue.start_ns, enqueue.end_ns
        if start is None or end is None or start < done:
            return False
        done = end
    return True


def unbroken(key_of: Sequence[int], positions: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Unbroken rows of one key within positions[first:last]: (key, begin, end)."""
    begin = first
    while begin < last:
        key = key_of[positions[begin]]
        end = begin + 1
        while end < last and key_of[positions[end]] == key:
            end += 1
        yield key, begin, end
        begin = end
