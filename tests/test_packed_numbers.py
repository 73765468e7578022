"""Columns of whole numbers come back from their bytes, each number in as few bytes as the column allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.model.tables import NO
from mio2trace.snapshot.numbers import packed, unpacked

EDGES = [sign * (1 << bits) + by for bits in (0, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for by in (-1, 0, 1)]
CELLS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([NO, (1 << 63) - 1, *EDGES]))


@given(st.lists(CELLS, max_size=40) | st.lists(st.sampled_from([NO, *EDGES]), max_size=3))
def test_any_numbers(cells: list[int]) -> None:
    assert unpacked(packed(np.array(cells, np.int64))).tolist() == cells


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.int32])
def test_numbers_of_fewer_bits(kind: Any) -> None:
    cells = [np.iinfo(kind).min, 0, 5, np.iinfo(kind).max]
    assert unpacked(packed(np.array(cells, kind))).tolist() == cells


@pytest.mark.parametrize(
    ("cells", "size"),
    [([], 1), ([127, -127, NO], 1), ([128], 2), ([-128], 2), ([32767, NO], 2), ([32768], 4), ([1 << 31], 8), ([NO], 1)],
)
def test_as_few_bytes_as_the_column_allows(cells: list[int], size: int) -> None:
    """The smallest number of a size is free for those that are unknown."""
    data = packed(np.array(cells, np.int64))
    assert (data[0], len(data)) == (size, 1 + size * len(cells))


@pytest.mark.parametrize("data", [b"", b"\0", b"\3\0\0\0", b"\xff\0", b"\2\0"])
def test_bytes_that_are_no_column(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|multiple"):
        unpacked(data)
