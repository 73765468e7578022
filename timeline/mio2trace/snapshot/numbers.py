"""Columns of whole numbers in MessagePack, as msgspec writes a list of them, but without a Python object for each."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.model.tables import NO, Numbers

_BOUNDS = np.array([-(1 << 31), -(1 << 15), -(1 << 7), -(1 << 5), 1 << 7, 1 << 8, 1 << 16, 1 << 32])
_SIZES = np.array([9, 5, 3, 2, 1, 2, 3, 5, 9], np.int8)
"""Bytes of a number below each bound; the last size is of all other numbers."""
_MARKS = (0xD3, 0xD2, 0xD1, 0xD0, None, 0xCC, 0xCD, 0xCE, 0xCF)
"""The first of these bytes."""
_NIL = 0xC0
_AT_ONCE = 1 << 16
"""Rows whose bytes are made together."""
_encode = msgspec.msgpack.Encoder().encode


def packed(column: Numbers) -> bytes:
    """Return the array of the numbers, of which `NO` stands for nil."""
    count = len(column)
    head = _head(count)
    if count and (column == column[0]).all():
        only = int(column[0])
        return head + (bytes([_NIL]) if only == NO else _encode(only)) * count
    parts = (_packed(column[at : at + _AT_ONCE].astype(np.int64)) for at in range(0, count, _AT_ONCE))
    return b"".join((head, *parts))


def _head(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 | count])
    size, mark = (2, 0xDC) if count < 1 << 16 else (4, 0xDD)
    return bytes([mark, *count.to_bytes(size, "big")])


def _packed(column: Numbers) -> bytes:
    is_nil = column == NO
    column = np.where(is_nil, 0, column)
    kind = np.searchsorted(_BOUNDS, column, side="right")
    sizes = _SIZES[kind]
    ends = np.cumsum(sizes, dtype=np.int64)
    begins = ends - sizes
    made: NDArray[np.uint8] = np.empty(int(ends[-1]), np.uint8)
    for number in np.flatnonzero(np.bincount(kind)).tolist():
        rows = np.flatnonzero(kind == number)
        at, size, mark = begins[rows], int(_SIZES[number]), _MARKS[number]
        raw = column[rows].astype(">i8").view(np.uint8).reshape(-1, 8)
        if mark is not None:
            made[at] = mark
        for place in range(mark is not None, size):
            made[at + place] = raw[:, 8 - size + place]
    made[begins[is_nil]] = _NIL
    return made.tobytes()
