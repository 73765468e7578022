"""Columns of whole numbers in MessagePack: the bytes that msgspec writes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.model.tables import NO, plain
from mio2trace.snapshot.numbers import packed

EDGES = [sign * (1 << bits) + by for bits in (0, 5, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for by in (-1, 0, 1)]
CELLS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([NO, (1 << 63) - 1, *EDGES]))


def same(column: Any) -> None:
    assert packed(column) == msgspec.msgpack.encode(plain(column.astype(np.int64)))


@given(st.lists(CELLS, max_size=40))
def test_any_numbers(cells: list[int]) -> None:
    same(np.array(cells, np.int64))


@pytest.mark.parametrize("count", [0, 1, 15, 16, (1 << 16) - 1, 1 << 16, (1 << 16) + 1])
@pytest.mark.parametrize("of", [EDGES, [NO], [7], [0, NO]])
def test_any_length(count: int, of: list[int]) -> None:
    same(np.resize(np.array(of, np.int64), count))


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32])
def test_numbers_of_fewer_bits(kind: Any) -> None:
    same(np.array([np.iinfo(kind).min, -1, 0, 5, np.iinfo(kind).max], kind))
