"""Many packets at once: each is a row of a table of bytes, and what a row has not got is left out.

A field of the packets is a column of the table: words of up to eight bytes, or texts that are taken from one long text
by the place at which they begin. Words are written as eight bytes; the next field overwrites what is too much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_Bytes = NDArray[np.uint8]
_WORD = 8
_ONE_WORD = 56
"""Bits of an integer whose varint is one word."""
_LONG = 4096
"""Bytes: a packet that has more is a table of its own, as all rows of a table are as wide as the widest."""
_BITS = [np.uint64(7 * number) for number in range(_WORD)]
_BYTES = [np.uint64(8 * number) for number in range(_WORD)]
_LOW_7 = np.uint64(0x7F)
_GOES_ON = np.array([sum(0x80 << 8 * number for number in range(size - 1)) for size in range(9)], np.uint64)
"""By the number of a varint's bytes: the bits which say that it goes on."""
_ALL_GO_ON = np.uint64(int.from_bytes(b"\x80" * 8, "little"))
_ONES: Words = np.array([sum(1 << 8 * number for number in range(size)) for size in range(9)], np.uint64)
"""By the size of a word: a byte of 1 for each of its own."""


class Texts:
    """Byte strings, to be taken by their numbers."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.sizes: Ints = np.fromiter(map(len, texts), np.int64, len(texts))
        self.starts: Ints = np.cumsum(self.sizes) - self.sizes
        self.bytes: _Bytes = np.frombuffer(b"".join(texts) + bytes(int(self.sizes.max(initial=0))), np.uint8)


class _Field(NamedTuple):
    """Of each packet its word, or where in ``text`` its bytes begin; how many bytes it has."""

    values: Any
    sizes: Any
    text: _Bytes | None = None


class Fields:
    """Fields of packets, one behind the other. ``rows``: the numbers of these packets in order, None: they are all."""

    def __init__(self, count: int, rows: Ints | None = None) -> None:
        self.rows = rows
        self._count = count
        self.fields: list[_Field] = []

    def word(self, values: Any, sizes: Any) -> None:
        """Add words of so many bytes each, 0 where it has none. A number stands for the same one everywhere."""
        values = np.asarray(values).astype(np.uint64)
        if self.fields and self.fields[-1].text is None:
            before, of_before, _ = self.fields[-1]
            if np.max(of_before, initial=0) + np.max(sizes, initial=0) <= _WORD:
                moved = values << np.asarray(8 * of_before).astype(np.uint64)
                self.fields[-1] = _Field(before | moved, of_before + sizes)
                return
        self.fields.append(_Field(values, sizes))

    def constant(self, text: bytes, has: Any = 1) -> None:
        """Add the same bytes everywhere, or where ``has`` is 1."""
        for at in range(0, len(text), _WORD):
            part = text[at : at + _WORD]
            self.word(np.uint64(int.from_bytes(part, "little")) * np.uint64(has), len(part) * has)

    def texts(self, texts: Texts, numbers: NDArray[Any]) -> None:
        self.fields.append(_Field(texts.starts[numbers], texts.sizes[numbers], texts.bytes))

    def varint(self, values: Ints, sizes: Ints) -> None:
        """Add varints of integers of 64 bits, whose ``sizes`` are as `sizes_of` says, or 0 where there is none."""
        numbers = values.view(np.uint64)
        if not len(numbers) or int(numbers.max()) >> _ONE_WORD == 0:
            self.word(_varints(numbers, sizes), sizes)
            return
        high = numbers >> np.uint64(_ONE_WORD)
        low = _varints(numbers & np.uint64((1 << _ONE_WORD) - 1), np.minimum(sizes, _WORD))
        self.word(np.where(sizes > _WORD, low | _ALL_GO_ON, low), np.minimum(sizes, _WORD))
        of_high = np.maximum(sizes - _WORD, 0)
        self.word(_varints(high, of_high), of_high)

    @property
    def sizes(self) -> Ints:
        """How many bytes each has in all."""
        total = np.zeros(self._count, np.int64)
        for field in self.fields:
            total += field.sizes
        return total


def sizes_of(values: Ints) -> Ints:
    """Return how many bytes the varint of each has."""
    numbers = values.view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    largest = int(numbers.max(initial=0))
    for bits in range(7, 64, 7):
        if not largest >> bits:
            break
        sizes += numbers >= np.uint64(1 << bits)
    return sizes


def _varints(numbers: Words, sizes: Ints) -> Words:
    """Return of each number of 56 bits its varint, as a word."""
    words: Words = numbers & _LOW_7
    for number in range(1, int(sizes.max(initial=1))):
        words |= (numbers >> _BITS[number] & _LOW_7) << _BYTES[number]
    words |= _GOES_ON[sizes]
    return words


def joined(parts: Sequence[Sequence[Fields]], sizes: Ints) -> bytes:
    """Return packets, one behind the other. ``parts``: the fields of each part of them, no two of the same packets;
    ``sizes``: of the packets.
    """
    return b"".join(_table(parts, first, last) for first, last in _pieces(sizes))


def _pieces(sizes: Ints) -> Iterator[tuple[int, int]]:
    first = 0
    for long in np.flatnonzero(sizes > _LONG).tolist():
        if first < long:
            yield first, long
        yield long, long + 1
        first = long + 1
    if first < len(sizes):
        yield first, len(sizes)


def _table(parts: Sequence[Sequence[Fields]], first: int, last: int) -> bytes:
    """Return the packets of these numbers."""
    placed: list[tuple[_Field, slice, Any, int, int]] = []
    width = 0
    for part in parts:
        begin, end = width, width
        for fields in part:
            of_fields, rows = slice(first, last), slice(None)
            if fields.rows is not None:
                of_fields = slice(*np.searchsorted(fields.rows, (first, last)).tolist())
                rows = fields.rows[of_fields] - first  # type: ignore[assignment]
            at = begin
            for field in fields.fields:
                widest = int(np.max(field.sizes[of_fields] if np.ndim(field.sizes) else field.sizes, initial=0))
                if widest:
                    placed.append((field, of_fields, rows, at, widest))
                    at += widest
            end = max(end, at)
        width = end
    shape = last - first, width + _WORD  # what is too much of the last word has room
    table, is_there = np.empty(shape, np.uint8), np.zeros(shape, np.bool_)
    for field, of_fields, rows, at, widest in placed:
        values, sizes = (one[of_fields] if np.ndim(one) else one for one in field[:2])
        if field.text is None:
            _column(table, at, _WORD)[rows] = values
            _column(is_there, at, _WORD)[rows] = _ONES[sizes]
        else:
            _column(table, at, widest)[rows] = _windows(field.text, widest)[values]
            ones = np.repeat(np.array([1, 0], np.uint8), widest)
            _column(is_there, at, widest)[rows] = _windows(ones, widest)[widest - sizes]
    return table[is_there].tobytes()


def _column(table: NDArray[Any], at: int, width: int) -> NDArray[Any]:
    """Return the bytes of each row from ``at`` on as one item."""
    kind = np.uint64 if width == _WORD else f"V{width}"
    return np.ndarray((len(table),), kind, table, at, (table.shape[1],))


def _windows(text: _Bytes, width: int) -> NDArray[Any]:
    """Return the bytes from each place on as one item."""
    kind = np.uint64 if width == _WORD else f"V{width}"
    return np.ndarray((len(text) - width + 1,), kind, text, 0, (1,))
