"""Columns of whole numbers as bytes: one with the size of a number, then the numbers, little-endian.

A number takes as few bytes as the column allows, and at least one: so a file cannot hold more rows than bytes. Two
forms make some columns shorter. They begin with a mark and a number of eight bytes. After `_FIRST` and the first number
come the steps from each number to the next. After `_BASE` comes a number that was subtracted from all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.model.tables import NO, Numbers

_SIZES = (1, 2, 4, 8)
_BASE, _FIRST = 0x10, 0x20
_HEAD = 9
"""Bytes of a mark and its number."""


def _unknown(size: int) -> int:
    """The smallest number of so many bytes, which stands for `NO`."""
    return -(1 << (8 * size - 1))


class _Form(NamedTuple):
    """How numbers are written. ``span``: the largest number less the least one. ``length``: the number of bytes.
    ``is_known``: which numbers are known, None if all are."""

    size: int
    base: int
    span: int
    length: int
    is_known: NDArray[np.bool_] | None

    def written(self, column: NDArray[np.signedinteger]) -> tuple[bytes, memoryview]:
        made = column if not self.base else column - self.base
        if self.is_known is not None:
            made = np.where(self.is_known, made, _unknown(self.size))
        head = _head(_BASE, self.base) if self.base else b""
        return head + bytes([self.size]), made.astype(f"<i{self.size}").data


def _head(mark: int, number: int) -> bytes:
    return bytes([mark]) + number.to_bytes(8, "little", signed=True)


def _size(least: int, most: int) -> int:
    return next(size for size in _SIZES if _unknown(size) < least and most <= -1 - _unknown(size))


def _form(column: NDArray[np.signedinteger]) -> _Form:
    least, most, is_known = 0, 0, None
    if len(column):
        least, most = int(column.min()), int(column.max())
    if least == NO:
        is_known = column != NO
        least = int(column.min(initial=most, where=is_known)) if most != NO else 0
        most = max(least, most)
    middle = (least + most) // 2
    plain, moved = (
        _Form(size, base, most - least, head + 1 + size * len(column), is_known)
        for size, base, head in ((_size(least, most), 0, 0), (_size(least - middle, most - middle), middle, _HEAD))
    )
    return moved if moved.length < plain.length else plain


def packed(column: NDArray[np.integer]) -> bytes:
    """Return the numbers, of which `NO` is unknown."""
    signed: NDArray[np.signedinteger] = column if column.dtype.kind == "i" else column.astype(np.int64)  # type: ignore[assignment]
    form = _form(signed)
    if form.size > 1 and form.is_known is None and form.span < 1 << (8 * signed.itemsize - 1):
        steps = np.diff(signed)
        of_steps = _form(steps)
        if _HEAD + of_steps.length < form.length:
            return b"".join((_head(_FIRST, int(signed[0])), *of_steps.written(steps)))
    return b"".join(form.written(signed))


def unpacked(data: bytes) -> Numbers:
    """Return the numbers; `NO` is unknown. Raises ValueError for bytes that are no column."""
    if data[:1] != bytes([_FIRST]):
        return _based(data, 0)
    steps = _based(data, _HEAD)
    numbers = np.full(1 + len(steps), _number(data, 0))
    numbers[1:] += np.cumsum(steps)
    return numbers


def _based(data: bytes, at: int) -> Numbers:
    """Return the numbers behind the place ``at``, which are no steps."""
    has_base = data[at : at + 1] == bytes([_BASE])
    start = at + _HEAD if has_base else at
    size = data[start] if start < len(data) else 0
    if size not in _SIZES:
        raise ValueError(f"numbers of {size} bytes")
    column = np.frombuffer(data, f"<i{size}", offset=start + 1)
    numbers = column.astype(np.int64)
    if has_base:
        numbers += _number(data, at)
    numbers[column == _unknown(size)] = NO
    return numbers


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 1 : at + _HEAD], "little", signed=True)
