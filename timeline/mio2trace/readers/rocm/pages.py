"""Columns of whole numbers out of the pages of a SQLite table (sqlite.org/fileformat2.html): no cell becomes an object
of Python, which takes a fifth of the time.

A table is a tree of pages. Its leaves hold the rows: the number of bytes, the row's id, a header with the type of each
cell, the cells. Many rows have equal headers, so places and sizes of cells are looked up by the number of the header.
A file may be damaged or crafted: nothing outside its pages is read, and what is unusual is left to SQLite (`Unread`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import FileIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.model.tables import NO, Numbers

INNER, LEAF = 5, 13
"""Kinds of pages of a table."""
FIRST_PAGE = 100
"""The place of the header of its tree, after the file's own header."""
AT_ONCE = 1 << 19
"""Bytes of pages that are worked on together: they and the columns fit into the cache of a processor."""
ROWS = 1 << 15
"""Rows of a batch, at least."""
SMALLEST = 512
"""Bytes of the smallest page."""
MOST_HEADERS = 1 << 12
"""Different headers of rows; a table of a profiler has about ten. Each is compared with those before."""
_DEEPEST = 20
"""More levels than the tree of any table has."""
_MORE = 0x80
"""The bit of a byte that says that the number goes on in the next one."""
_WORD = 8
_NULL, _ZERO, _ONE, _BYTES = 0, 8, 9, 12
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - _BYTES) // 2 for kind in range(_BYTES, _MORE))])
"""By the type of a cell: its bytes."""
_IS_WHOLE = np.isin(np.arange(_MORE), [_NULL, 1, 2, 3, 4, 5, 6, _ZERO, _ONE])
"""By the type of a cell: whether it is a whole number or NULL."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_Bytes = NDArray[np.uint8]


class Unread(Exception):
    """SQLite must read the rows after those so far: a cell is no whole number, or the file is unusual or damaged."""


class Rows(NamedTuple):
    """Rows of a table: their ids, and the columns, with `NO` for NULL."""

    ids: Numbers
    columns: list[Numbers]


def rows_of(
    path: str, root: int, value: bytes, key: int, places: Sequence[int | None], read: bytearray
) -> Iterator[Rows]:
    """Yield the rows of the table whose tree has the page ``root``, all of which have the ``value`` in the column
    ``key``. ``places`` of the columns to read, among the table's own ones; None for a column that it does not have.
    ``read``: by page, whether it was read. A page is in one place of one tree, so no file is read more than once."""
    try:
        with FileIO(path) as file:
            pages = _Pages(file)
            some: list[Rows] = []
            for rows in _Reading(pages, value, key, places).rows(pages.leaves(root, read)):
                some.append(rows)
                if sum(len(each.ids) for each in some) >= ROWS:
                    yield _joined(some)
                    some = []
            if some:
                yield _joined(some)
    except OSError as error:
        raise Unread from error


def _joined(some: Sequence[Rows]) -> Rows:
    ids, columns = zip(*some, strict=True)
    return Rows(np.concatenate(ids), [np.concatenate(parts) for parts in zip(*columns, strict=True)])


class _Pages:
    """The pages of a database, from 1 on, of ``size`` bytes each, of which the first ``used`` hold data."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        head = bytearray(FIRST_PAGE)
        self._fill(memoryview(head), 0)
        self.size = int.from_bytes(head[16:18], "big")
        self.size = 1 << 16 if self.size == 1 else self.size
        self.used = self.size - head[20]
        if self.used < SMALLEST - 32 or self.size & self.size - 1:
            raise Unread
        self.count = file.seek(0, 2) // self.size

    def leaves(self, root: int, read: bytearray) -> Numbers:
        """Return the numbers of the leaves of a tree, in the order of its rows."""
        level = [root]
        for _ in range(_DEEPEST):
            below: list[int] = []
            for number in level:
                if not 0 < number < len(read) or read[number]:
                    raise Unread
                read[number] = True
            for number in level:
                page = bytearray(self.size)
                self.fill(memoryview(page), number)
                begin = FIRST_PAGE if number == 1 else 0
                if page[begin] != INNER:
                    if below or page[begin] != LEAF:
                        raise Unread
                    return np.array(level)
                below += children(page, begin)
                if len(below) > self.count:
                    raise Unread
            level = below
        raise Unread

    def fill(self, target: memoryview, number: int) -> None:
        """Fill ``target`` with the pages from this number on."""
        if not 0 < number <= self.count + 1 - len(target) // self.size:
            raise Unread
        self._fill(target, (number - 1) * self.size)

    def _fill(self, target: memoryview, at: int) -> None:
        self._file.seek(at)
        while target:
            count = self._file.readinto(target)
            if not count:
                raise Unread
            target = target[count:]


def cells_of(page: bytes | bytearray, begin: int, head: int) -> list[int]:
    """Return the places of the cells of a page whose header, of ``head`` bytes, begins there."""
    count = int.from_bytes(page[begin + 3 : begin + 5], "big")
    first = begin + head
    return [int.from_bytes(page[at : at + 2], "big") for at in range(first, min(first + 2 * count, len(page)), 2)]


def children(page: bytes | bytearray, begin: int) -> list[int]:
    """Return the pages below an inner page whose header begins there."""
    return [int.from_bytes(page[at : at + 4], "big") for at in (*cells_of(page, begin, 12), begin + 8)]


class _Reading:
    """Reads the columns at ``places`` of rows that have the ``value`` in the column ``key``."""

    def __init__(self, pages: _Pages, value: bytes, key: int, places: Sequence[int | None]) -> None:
        self._pages = pages
        self._value = value
        self._key = key
        self._places = places
        self._headers = _Headers([place for place in places if place is not None], key)

    def rows(self, leaves: Numbers) -> Iterator[Rows]:
        """Yield the rows of the pages with these numbers."""
        size = self._pages.size
        most = max(1, AT_ONCE // size)
        # A crafted row leads behind its page, but no further than this.
        data = np.zeros(most * size + 2 * _MORE * (_MORE + 1), np.uint8)
        view = memoryview(data)  # type: ignore[arg-type]
        for first in range(0, len(leaves), most):
            numbers = leaves[first : first + most]
            ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
            for begin, end in zip([0, *ends], ends, strict=False):
                self._pages.fill(view[begin * size : end * size], int(numbers[begin]))
            yield self._of_pages(data, np.arange(len(numbers)) * size)

    def _of_pages(self, data: _Bytes, pages: Numbers) -> Rows:
        """Return the rows of the pages that begin there."""
        size, used = self._pages.size, self._pages.used
        counts = _short(data, pages + 3)
        if (data[pages] != LEAF).any() or not 0 < int(counts.max()) <= (size - _WORD) // 2:
            raise Unread
        page = np.repeat(pages, counts)
        number = np.arange(len(page)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = _short(data, page + _WORD + 2 * number)
        if int(at.max(initial=0)) >= size:
            raise Unread
        at += page
        count, ids = self._passed(data, at), self._passed(data, at)
        headers = self._headers
        code = headers.numbers(data, at)
        # Of a row that is too long for a page, at least so much is on this one.
        here = np.where(count > used - 35, (used - 12) * 32 // 255 - 23, count)
        ends = headers.ends[code]
        is_damaged = headers.are_whole[code] & (ends != count)
        if (headers.are_odd[code] | is_damaged | (ends > here) | (at + ends > page + used)).any():
            raise Unread
        width = len(self._value)
        keys = _windows(data, width)[at + _of(headers.begins[self._key], code)]
        if np.any(_of(headers.sizes[self._key], code) != width) or keys.tobytes() != self._value * len(at):
            raise Unread
        return Rows(ids, [self._column(data, at, code, place) for place in self._places])

    @staticmethod
    def _passed(data: _Bytes, at: Numbers) -> Numbers:
        """Return the varint at each place, which is moved behind it."""
        values = np.zeros(len(at), np.int64)
        goes_on = np.ones(len(at), bool)
        for _ in range(_WORD):
            byte = data[at]
            values = np.where(goes_on, values << 7 | byte & _MORE - 1, values)
            at += goes_on
            goes_on &= byte >= _MORE
            if not goes_on.any():
                return values
        raise Unread

    def _column(self, data: _Bytes, at: Numbers, code: Numbers, place: int | None) -> Numbers:
        if place is None:
            return np.full(len(at), NO)
        headers = self._headers
        is_fixed, fixed = (_of(each[place], code) for each in (headers.are_fixed, headers.fixed))
        if np.all(is_fixed):
            return np.full(len(at), fixed)
        values: Numbers = _windows(data, _WORD)[at + _of(headers.begins[place], code)].astype(np.int64)
        values >>= _of(headers.shifts[place], code)
        if np.any(is_fixed):
            np.copyto(values, fixed, where=is_fixed)
        return values


class _Headers:
    """The different headers of rows, up to the last column that is read, by their numbers. What follows from them is by
    column and header, or by column only if all headers agree, as they often do.

    ``are_odd``: it cannot be read here, as it has another cell than whole numbers at ``places`` and bytes at ``key``.
    ``are_whole``: the columns that are read are all.
    """

    def __init__(self, places: Sequence[int], key: int) -> None:
        self._places, self._key = places, key
        self._bytes = 2 + max([*places, key])
        self._words = -(-self._bytes // _WORD)
        self._last = np.uint64(~((1 << 8 * (-self._bytes % _WORD)) - 1) & (1 << 64) - 1)
        self._known = np.empty((self._words, 0), np.uint64)
        self._mixed = np.empty(0, np.uint64)
        """A number for each that is known, in order; ``_order``: the number of the header."""
        self._order = np.empty(0, np.int64)

    def numbers(self, data: _Bytes, at: Numbers) -> Numbers:
        """Return the number of the header at each place."""
        windows = _windows(data, _WORD)
        words = [windows[at + _WORD * number].astype(np.uint64) for number in range(self._words)]
        words[-1] &= self._last
        mixed = words[0]
        for word in words[1:]:
            mixed = mixed * _ODD + word
        for _ in range(2):
            if len(self._mixed):
                code: Numbers = self._order[np.searchsorted(self._mixed[:-1], mixed)]
                if all((known[code] == word).all() for known, word in zip(self._known, words, strict=True)):
                    return code
            self._learn(words, mixed)
        raise Unread  # two headers have one mixture

    def _learn(self, words: Sequence[NDArray[np.uint64]], mixed: NDArray[np.uint64]) -> None:
        _, first = np.unique(mixed, return_index=True)
        first = first[~np.isin(mixed[first], self._mixed)]
        if len(self._mixed) + len(first) > MOST_HEADERS:
            raise Unread
        self._known = np.concatenate((self._known, [word[first] for word in words]), axis=1)
        mixtures = np.append(self._mixed, mixed[first])
        order = np.argsort(mixtures)
        numbers = np.append(self._order, np.arange(len(self._order), len(mixtures)))
        self._mixed, self._order = mixtures[order], numbers[order]
        told = np.ascontiguousarray(self._known.T).astype(">u8").view(np.uint8)[:, : self._bytes].T.astype(np.int64)
        size, kinds = told[0], told[1:]
        self.are_odd = (size >= _MORE) | (size < self._bytes) | (kinds >= _MORE).any(axis=0)
        kinds &= _MORE - 1
        self.are_odd |= (kinds[self._key] < _BYTES) | ~_IS_WHOLE[kinds[self._places]].all(axis=0)
        sizes = _SIZES[kinds]
        ends = size + np.cumsum(sizes, axis=0)
        self.ends: Numbers = ends[-1]
        self.are_whole = size == self._bytes
        are_fixed = sizes == 0
        self.sizes, self.begins, self.are_fixed, self.shifts, self.fixed = (
            [of[0] if (of == of[0]).all() else of for of in each]
            for each in (
                sizes,
                ends - sizes,
                are_fixed,
                np.where(are_fixed, 0, 8 * (_WORD - np.minimum(sizes, _WORD))),
                np.where(kinds == _NULL, NO, kinds - _ZERO),
            )
        )


def _of(values: Any, code: Numbers) -> Any:
    """Return the value of each header, or the one of all."""
    return values[code] if np.ndim(values) else values


def _short(data: _Bytes, at: Numbers) -> Numbers:
    """Return the numbers of two bytes."""
    return data[at].astype(np.int64) << 8 | data[at + 1]


def _windows(data: _Bytes, width: int) -> NDArray[Any]:
    """Return the bytes from each place on as one item: a number of eight bytes, the highest first, or bytes."""
    kind = ">i8" if width == _WORD else f"V{width}"
    return np.ndarray((len(data) - width + 1,), kind, data, 0, (1,))
