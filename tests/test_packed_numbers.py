"""Columns of whole numbers come back from their bytes, each number in as few bytes as the column allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.model.tables import NO
from mio2trace.snapshot.objects import packed, unpacked

HEAD = b"\x10" + bytes(8)
EDGES = [sign * (1 << bits) + by for bits in (0, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for by in (-1, 0, 1)]
CELLS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([NO, (1 << 63) - 1, *EDGES]))


@given(st.lists(CELLS, max_size=40) | st.lists(st.sampled_from([NO, *EDGES]), max_size=3))
def test_any_numbers(cells: list[int]) -> None:
    assert unpacked(packed(np.array(cells, np.int64))).tolist() == cells


@given(
    by=st.sampled_from([0, 1, -(1 << 62), (1 << 62) + 3]),
    cells=st.lists(st.integers(-300, 300) | st.just(NO), max_size=40),
    summed=st.booleans(),
)
def test_numbers_near_each_other(by: int, cells: list[int], summed: bool) -> None:
    column = np.array([one if one == NO else one + by for one in cells], np.int64)
    if summed:
        column = np.cumsum(np.where(column == NO, 0, column - by))
    assert unpacked(packed(column)).tolist() == column.tolist()


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.int32])
def test_numbers_of_fewer_bits(kind: Any) -> None:
    cells = [np.iinfo(kind).min, 0, 5, np.iinfo(kind).max]
    assert unpacked(packed(np.array(cells, kind))).tolist() == cells


NEAR, MOST = [1 << 40] * 48, (1 << 63) - 1
LENGTHS = [
    # the smallest number of a size is free for those that are unknown
    ([], 1),
    ([127, -127, NO], 4),
    ([128], 3),
    ([-128], 3),
    ([32767, NO], 5),
    ([32768], 5),
    ([1 << 31], 9),
    ([NO], 2),
    # what is near or in steps takes less, but for the numbers in front
    ([*NEAR, *NEAR[:2]], 60),
    ([1 << 40, (1 << 40) + 254, *NEAR], 60),
    ([1 << 40, (1 << 40) + 255, *NEAR], 108),
    ([NO, *[MOST] * 49], 60),
    ([1 + NO] * 50, 60),
    ([*range(0, 50_000, 1000)], 68),
    ([*range(0, 5000, 100)], 59),
    ([NO, *range(0, 100_000, 2000)], 205),
    ([1 + NO, MOST], 17),
]


@pytest.mark.parametrize(("cells", "length"), LENGTHS)
def test_as_few_bytes_as_the_column_allows(cells: list[int], length: int) -> None:
    data = packed(np.array(cells, np.int64))
    assert unpacked(data).tolist() == cells
    assert len(data) == length
    if length < 10:
        assert data[0] == (length - 1) // max(1, len(cells)) or not cells


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\3\0\0\0", b"\xff\0", b"\2\0", b"\x10", HEAD, b"\x20", b"\x20" + HEAD[1:] + HEAD,
             HEAD + b"\x20" * 9]
)  # fmt: skip
def test_bytes_that_are_no_column(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|multiple"):
        unpacked(data)
