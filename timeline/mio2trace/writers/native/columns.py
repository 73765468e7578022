"""Packets of slices in columns, made with numpy: a begin and an end of each slice, in order of time.

A packet has two parts: the part that it shares with similar packets, which is made once and kept, and its own part. The
own parts of all packets, and the ends between them, are one array of bytes (`_Board`). An argument of all slices is
written to it at once, in words of eight bytes; the next argument overwrites the surplus bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one thread for numpy's matrix products, which are not used here

import numpy as np
from numpy.typing import NDArray

from mio2trace.trace import Slice, Slices
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native.rows import Ends

if TYPE_CHECKING:
    from mio2trace.writers.native.rows import Row

_Ints = NDArray[np.int64]
_Words = NDArray[np.uint64]
_WORD = 8
_MOST = 1 << 56
"""Smaller integers have a varint of at most eight bytes."""
_BITS = [np.uint64(7 * number) for number in range(_WORD)]
_BYTES = [np.uint64(8 * number) for number in range(_WORD)]
_LOW_7, _LOW_8 = np.uint64(0x7F), np.uint64(0xFF)
_GOES_ON = np.array([sum(0x80 << 8 * number for number in range(size - 1)) for size in range(9)], np.uint64)
"""By the number of a varint's bytes: the bits that mark continuation."""
_KINDS: dict[type, int] = {int: tp.INT, bool: tp.BOOL, str: tp.TEXT, float: tp.REAL}
"""The fields of values."""
_ARROW = 10
"""Bytes of the field of an arrow: two for its tag, and its id."""


def add_columns(row: Row, slices: Slices, samples: Sequence[tuple[int, bytes]], out: list[bytes]) -> bool:
    """Add slices like `Row.rows`. Return False if they do not fit: arguments that are neither small numbers nor text,
    times out of order. Then only the packets that the row had kept back are added."""
    columns = _columns(row, slices)
    begins = row.begins([like for one in slices.columns for like in one.likes])
    times = _times(slices)
    if columns is None or times is None or times[1][0] < row.last:
        return False
    # A number for each: of a slice of a column its place, then those among them, then the samples. -1 is an end.
    order, starts, durations = times
    first_sample = len(slices)
    held, following = None, 0
    if row.ends:  # an arrow binds to the innermost slice: whether one more starts at this time shows with the next one
        following, last = int(starts[-1]), int(order[-1])
        row.let_go(int(starts[0]), out)
        held = _one(slices, last)
        order, starts, durations = order[:-1], starts[:-1], durations[:-1]
    sampled = np.array([at for at, _ in samples], np.int64)
    places = np.concatenate((2 * np.arange(len(starts)), 2 * np.searchsorted(starts, sampled, "right") - 1))
    items = np.argsort(places, kind="stable")
    numbers = np.concatenate((order, first_sample + np.arange(len(samples))))[items]
    moments, packets, is_open = _with_ends(
        np.concatenate((starts, sampled))[items], numbers, starts + durations, numbers < first_sample, row.open
    )
    passed = np.diff(moments, prepend=row.last)
    if len(passed) and passed.min() < 0:
        return False
    arrows = [_arrows(ends, starts, order, following) for ends in row.ends]
    if row.new:
        out.append(row.declare())

    shown = passed if row.counted else moments
    of_time = _sizes(shown)
    is_drawn = np.zeros(first_sample + 1, np.bool_)
    is_drawn[packets[packets < first_sample]] = True
    columns = [column.of(is_drawn) for column in columns]
    own = np.zeros(first_sample + len(samples) + 1, np.int64)
    for column in columns:
        own[column.rows] += len(column.head) + column.size
    for arrow in arrows:
        np.add.at(own, arrow.items, _ARROW)
    is_end = packets < 0
    # The byte before the own part of a packet is left out, because surplus bytes of an earlier write may reach it.
    length = np.where(is_end, len(row.end), 1 + len(row.tail) + own[packets]) + of_time
    ends_at = np.cumsum(length)
    begins_at = ends_at - length
    at = np.zeros(len(own), np.int64)
    at[packets] = begins_at + 1
    board = _Board(int(ends_at[-1]) if len(ends_at) else 0)
    for column in columns:
        board.column(column, at)
    for arrow in arrows:
        board.arrows(arrow, at)
    board.text(row.end, begins_at[is_end], of_time[is_end])
    board.text(row.tail, (ends_at - of_time - len(row.tail))[~is_end])
    board.exactly(_varints(shown, of_time), ends_at - of_time, of_time)

    text = board.made()
    cuts = [*begins_at[~is_end].tolist(), len(text)]
    pieces = [text[: cuts[0]]]
    whose = packets[~is_end]
    for number, size, time, begin, end in zip(
        whose.tolist(), own[whose].tolist(), of_time[~is_end].tolist(), cuts, cuts[1:], strict=False
    ):
        if number < first_sample:
            of = begins[number]
            head = of.headed.get(size << 4 | time) or row.headed(of, size, time)
            if of.behind:
                middle = begin + 1 + size
                pieces += (head, text[begin + 1 : middle], of.behind, text[middle:end])
                continue
        else:
            sample = samples[number - first_sample][1]
            head = row.head(len(sample), time) + sample
        pieces += (head, text[begin + 1 : end])
    out.append(b"".join(pieces))
    if len(moments):
        row.last = int(moments[-1])
    row.open, row.held = is_open, held
    return True


def _one(slices: Slices, number: int) -> Slice:
    for one in slices.columns:
        if number < len(one.starts):
            return one.slice(number)
        number -= len(one.starts)
    raise IndexError(number)


def _times(slices: Slices) -> tuple[_Ints, _Ints, _Ints] | None:
    """Return all slices in order: a number for each, starts, durations; None if they are out of order, or too late."""
    order = np.arange(len(slices)) if slices.order is None else np.array(slices.order, np.int64)
    try:
        starts = np.concatenate([np.array(one.starts, np.int64) for one in slices.columns])[order]
        durations = np.concatenate([np.array(one.durations, np.int64) for one in slices.columns])[order]
    except OverflowError:
        return None
    if (np.diff(starts) < 0).any() or starts[0] < 0 or durations.min() < 0:
        return None
    return (order, starts, durations) if int(starts[-1]) + int(durations.max()) < _MOST else None


def _with_ends(
    times: _Ints, numbers: _Ints, ends: _Ints, is_slice: NDArray[np.bool_], before: Sequence[int]
) -> tuple[_Ints, _Ints, list[int]]:
    """Insert the ends of slices between items; return times, numbers, and slices that are still open after them.

    ``ends``: of those items that are slices. ``before``: of slices that were open before. A slice ends before the first
    item after its own that begins no earlier than its end; of several slices the innermost ends first.
    """
    count, others = len(times), len(before)
    closing = np.concatenate((np.array(before, np.int64), ends))
    until = np.searchsorted(times, closing, "left")
    until[others:] = np.maximum(until[others:], np.flatnonzero(is_slice) + 1)
    closed = np.flatnonzero(until < count)
    order = np.lexsort((
        np.concatenate((-closed, np.zeros(count, np.int64))),
        np.concatenate((2 * until[closed], 2 * np.arange(count) + 1)),
    ))  # fmt: skip
    return (
        np.concatenate((closing[closed], times))[order],
        np.concatenate((np.full(len(closed), -1), numbers))[order],
        [int(end) for end in closing[until >= count]],
    )


class _Column(NamedTuple):
    """An argument of many slices: which slices have it; the bytes before each value, to whose second byte the ``size``
    of the value is added; the values, as words of ``size`` bytes."""

    rows: _Ints
    head: bytes
    values: _Words
    size: _Ints

    def of(self, is_drawn: NDArray[np.bool_]) -> _Column:
        here = is_drawn[self.rows]
        return self if here.all() else _Column(self.rows[here], self.head, self.values[here], self.size[here])


def _columns(row: Row, slices: Slices) -> list[_Column] | None:
    """Return their own arguments; None if one of them is of a kind that this module does not write."""
    columns: list[_Column] = []
    first = 0
    for one in slices.columns:
        for key, values in one.args.items():
            column = _of_key(row, key, values, first)
            if column is None:
                return None
            columns.append(column)
        first += len(one.starts)
    return columns


def _of_key(row: Row, key: str, values: Sequence[Any], first: int) -> _Column | None:
    """``values``: those of the slices from ``first`` on."""
    kinds = set(map(type, values))
    rows = np.arange(first, first + len(values))
    if type(None) in kinds:
        kinds.discard(type(None))
        rows = np.array([number for number, value in enumerate(values, first) if value is not None], np.int64)
        values = [value for value in values if value is not None]
    if key in row.colour_by or len(kinds) > 1 or not kinds <= _KINDS.keys():
        return None
    name = tp.integer(tp.KEY, row.key(key))
    kind = next(iter(kinds), int)
    if kind is float:
        head = name + tp.varint(_KINDS[float] << 3 | 1)
        reals = np.array(values, np.float64)
        if not (np.abs(reals) < tp.HUGE).all():
            return None
        each, place = np.unique(reals.view(np.uint64), return_inverse=True)
        words = np.array([int.from_bytes(tp.short(value), "little") for value in each.view(np.float64).tolist()], "<u8")
        return _column(rows, head, words[place], np.full(len(rows), _WORD))
    head = name + tp.varint(_KINDS[kind] << 3)
    if kind is str:
        numbers = {text: row.text(text) for text in dict.fromkeys(values)}
        values = [numbers[text] for text in values]
    try:
        whole = np.array(values, np.int64)
    except OverflowError:
        return None
    if len(whole) and not (whole.min() >= 0 and whole.max() < _MOST):
        return None
    size = _sizes(whole)
    return _column(rows, head, _varints(whole, size), size)


def _column(rows: _Ints, head: bytes, words: _Words, size: _Ints) -> _Column:
    return _Column(rows, tp.varint(tp.ANNOTATION << 3 | 2) + tp.varint(len(head)) + head, words, size)


class _Arrows(NamedTuple):
    """Ends of arrows: the slices, which of a slice's arrows, the two bytes before their ids, the ids."""

    items: _Ints
    ranks: _Ints
    tag: int
    ids: _Words


def _arrows(ends: Ends, starts: _Ints, order: _Ints, until: int) -> _Arrows:
    """Return the arrows of slices that start before ``until``; of several slices with equal starts the last one has
    them."""
    times, ids = (np.array(column) for column in ends.passed(until))
    at = np.searchsorted(starts, times.astype(np.int64), "right") - 1
    here = (at >= 0) & (starts[at] == times) if len(starts) else np.zeros(len(times), np.bool_)
    at = at[here]
    ranks = np.arange(len(at)) - np.searchsorted(at, at, "left")
    return _Arrows(order[at], ranks, int.from_bytes(ends.head, "little"), ids[here].astype(np.uint64))


def _sizes(values: _Ints) -> _Ints:
    """Return the number of bytes of each varint."""
    sizes = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for bits in range(7, 63, 7):
        if not largest >> bits:
            break
        sizes += values >= 1 << bits
    return sizes


def _varints(values: _Ints, sizes: _Ints) -> _Words:
    """Return the varint of each value as a word."""
    numbers = values.astype(np.uint64)
    words: _Words = numbers & _LOW_7
    for number in range(1, int(sizes.max(initial=1))):
        words |= (numbers >> _BITS[number] & _LOW_7) << _BYTES[number]
    words |= _GOES_ON[sizes]
    return words


class _Board:
    """Bytes that are written in any order; each write moves ``at``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = np.zeros(size + _WORD, np.uint8)
        self._words: _Words = np.ndarray((size + 1,), np.uint64, self._bytes, strides=(1,))  # one begins at each byte

    def column(self, column: _Column, at: _Ints) -> None:
        place = at[column.rows]
        head = np.uint64(int.from_bytes(column.head, "little"))
        self._words[place] = head + (column.size.astype(np.uint64) << _BYTES[1])
        place += len(column.head)
        self._words[place] = column.values
        at[column.rows] = place + column.size

    def arrows(self, arrows: _Arrows, at: _Ints) -> None:
        place = at[arrows.items] + _ARROW * arrows.ranks
        self._words[place] = arrows.ids << _BYTES[2] | np.uint64(arrows.tag)
        self._words[place + 2] = arrows.ids
        np.add.at(at, arrows.items, _ARROW)

    def text(self, text: bytes, at: _Ints, size: _Ints | None = None) -> None:
        """Write the same bytes at each place, with ``size`` added to the second byte."""
        for number, byte in enumerate(text):
            self._bytes[at + number] = byte if size is None or number != 1 else byte + size

    def exactly(self, words: _Words, at: _Ints, sizes: _Ints) -> None:
        """Write exactly ``sizes`` bytes of each word."""
        for number in range(int(sizes.max(initial=0))):
            has = sizes > number
            self._bytes[at[has] + number] = words[has] >> _BYTES[number] & _LOW_8

    def made(self) -> bytes:
        return self._bytes[: self._size].tobytes()
