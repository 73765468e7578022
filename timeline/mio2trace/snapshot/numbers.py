"""Columns of whole numbers as bytes: one with the size of a number, then the numbers, little-endian.

A number takes as few bytes as the column allows, and at least one: so a file cannot hold more rows than bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mio2trace.model.tables import NO, Numbers

_SIZES = (1, 2, 4, 8)


def _unknown(size: int) -> int:
    """The smallest number of so many bytes, which stands for `NO`."""
    return -(1 << (8 * size - 1))


def packed(column: NDArray[np.integer]) -> bytes:
    """Return the numbers, of which `NO` is unknown."""
    is_known = column != NO
    least = int(column.min(initial=0, where=is_known))
    most = int(column.max(initial=0, where=is_known))
    size = next(size for size in _SIZES if _unknown(size) < least and most <= -1 - _unknown(size))
    made = column if is_known.all() else np.where(is_known, column, _unknown(size))
    return b"".join((bytes([size]), made.astype(f"<i{size}").data))


def unpacked(data: bytes) -> Numbers:
    """Return the numbers; `NO` is unknown. Raises ValueError for bytes that are no column."""
    size = data[0] if data else 0
    if size not in _SIZES:
        raise ValueError(f"numbers of {size} bytes")
    column = np.frombuffer(data, f"<i{size}", offset=1)
    return np.where(column == _unknown(size), NO, column.astype(np.int64))
