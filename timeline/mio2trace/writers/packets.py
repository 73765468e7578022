"""TracePacket and its content, by the numbers in perfetto_trace.proto (perfetto-chrome-trace.md 3); the wire; and the
slices of a native trace of ours, read back.

A single message is built from the inside out; the caller encodes repeated parts once and keeps them. Many packets at
once are rows of a table of bytes, and what a row has not got is left out. A field of the packets is a column of the
table. It holds words of up to eight bytes, or texts, which are parts of one long text. Words are written as eight
bytes; the next field overwrites what is too much.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mio2trace import wire
from mio2trace.patterns import late
from mio2trace.trace import Slice, Trace
from mio2trace.writers.ending import End, Found

Kind = TypeVar("Kind", int, bytes)

PACKET = 1
CLOCK_SNAPSHOT, TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, FLAGS = 6, 8, 10, 11, 12, 13
CLOCK_ID, DEFAULTS, TRACK_DESCRIPTOR, SERVICE_EVENT, ATTRIBUTES, FOR_TESTING = 58, 59, 60, 69, 126, 900
TRACING_STARTED, TRACING_DISABLED = 2, 5
STATE_CLEARED, NEEDS_STATE = 1, 2
CATEGORY, ANNOTATION, TYPE, NAME, TRACK_UUID = 3, 4, 9, 10, 11
COUNTER_INTEGER, COUNTER_REAL, FLOW, FLOW_ENDS, CORRELATION = 30, 44, 47, 48, 52
BEGIN, END, COUNTER = 1, 2, 4
KEY, BOOL, INT, REAL, ENTRIES, ITEMS, TEXT = 1, 2, 4, 5, 11, 12, 17
CATEGORIES, NAMES, KEYS, TEXTS = 1, 2, 3, 29
EXPLICIT_ORDER, NEVER_MERGED = 3, 2

END_MARK = "mio2trace_end"
BEGIN_MARK = "mio2trace: the last packet has the number of slices and a CRC-32 of all bytes before it"
CRC_TAIL = 8
"""Bytes of the CRC, the last bytes of the file."""

REALTIME, BOOTTIME, COUNTED = 1, 6, 64
"""Clocks: the two builtin ones, and the first one of a sequence's own."""

NOBODYS = 1
"""The packet sequence without state; the tracks' sequences follow it."""


def packet(*fields: bytes) -> bytes:
    """Return a packet of the trace."""
    return message(PACKET, b"".join(fields))


def stateless(*fields: bytes) -> bytes:
    """Return a packet of the sequence without state."""
    return packet(*fields, integer(SEQUENCE, NOBODYS))


def marked(mark: str) -> bytes:
    """Return a packet with ``mark`` as its last bytes, which no viewer shows or complains of
    (`TracePacket.for_testing`)."""
    return packet(integer(SEQUENCE, NOBODYS), message(FOR_TESTING, text(1, mark)))


def uuids(trace: Trace) -> dict[tuple[int, int | None], int]:
    """Return numbers for each process (p, None) and each track (p, t): from 1, in the order of the trace.

    A process and its main track have one number: a group with slices of its own shows them before it is opened.
    """
    keys: list[tuple[int, int | None]] = [(process.id, None) for process in trace.processes]
    keys += [(track.process, track.id) for track in trace.tracks if not track.main]
    numbers = {key: number for number, key in enumerate(keys, 1)}
    return numbers | {(track.process, track.id): numbers[track.process, None] for track in trace.tracks if track.main}


# -- Protobuf's wire format, as far as a writer of traces needs it -----------------------------------------------------

_HALF_OF_20_BITS = 1 + 2**-21
_DOUBLE = struct.Struct("<d")
double = _DOUBLE.pack
"""A fixed64 that holds a double."""
fixed64 = struct.Struct("<Q").pack
_ONE_BYTE = [bytes((number,)) for number in range(128)]


def varint(number: int) -> bytes:
    """Return an integer of -2^63 .. 2^64-1 in the shortest form; negative ones are ten bytes."""
    if 0 <= number < 128:
        return _ONE_BYTE[number]
    if number < 0:
        number += 1 << 64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


@lru_cache(maxsize=1 << 12)
def integer(field: int, value: int) -> bytes:
    """Return a field of a varint type: int64, uint64, bool, enum."""
    return varint(field << 3) + varint(value)


def short(value: float) -> bytes:
    """Return a double of a rate or a share: exact if it has three digits, so that a viewer shows no more; otherwise to
    one part in two million.

    The other digits were not measured, and they do not compress.
    """
    if not 1e-300 < abs(value) < 1e300 or float(f"{value:.3g}") == value:
        return double(value)
    # Half of the last kept bit is added first, to round; a value that needs no more bits is exact.
    return bytes(4) + double(value * _HALF_OF_20_BITS)[4:]


def message(field: int, value: bytes) -> bytes:
    """Return a field of type bytes, or of an encoded message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """Return a field of type string."""
    return message(field, value.encode())


def real_of(data: bytes) -> float:
    """Return the double in a fixed64. Raises ValueError if it is none, or no number."""
    if len(data) != _DOUBLE.size:
        raise ValueError("no double")
    (value,) = _DOUBLE.unpack(data)
    if not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Return the fields of a message by number: varints as int (unsigned), all others as their bytes.

    Raises `WireError`, a ValueError, if the data is no message.
    """
    return [(tag >> 3, data[at:end] if tag & 7 else at) for tag, at, end in wire.each_field(data, 0, len(data))]


# -- Many packets at once ----------------------------------------------------------------------------------------------

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_Bytes = NDArray[np.uint8]
_WORD = 8
_ONE_WORD = 56
"""Bits of an integer whose varint is one word."""
LONG = 4096
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
    """The word of each packet, or the place in ``text`` at which its bytes begin. ``sizes``: the number of its bytes.
    ``widest``: no word has more bytes."""

    values: Any
    sizes: Any
    widest: int = 0
    text: _Bytes | None = None


class Fields:
    """Fields of packets in sequence. ``rows``: the numbers of these packets in order; None: all packets."""

    def __init__(self, count: int, rows: Ints | None = None) -> None:
        self.rows = rows
        self._count = count
        self.fields: list[_Field] = []

    def word(self, values: Any, sizes: Any) -> None:
        """Add words of the given number of bytes each; 0 if a packet has no word. A number stands for the same word
        everywhere."""
        values = np.asarray(values).astype(np.uint64)
        widest = int(sizes.max(initial=0)) if np.ndim(sizes) else sizes
        if self.fields and self.fields[-1].text is None:
            before, of_before, most, _ = self.fields[-1]
            if most + widest <= _WORD:
                moved = values << np.asarray(8 * of_before).astype(np.uint64)
                self.fields[-1] = _Field(before | moved, of_before + sizes, most + widest)
                return
        self.fields.append(_Field(values, sizes, widest))

    def constant(self, text: bytes, has: Any = 1) -> None:
        """Add the same bytes everywhere, or where ``has`` is 1."""
        for at in range(0, len(text), _WORD):
            part = text[at : at + _WORD]
            self.word(np.uint64(int.from_bytes(part, "little")) * np.uint64(has), len(part) * has)

    def texts(self, texts: Texts, numbers: NDArray[Any]) -> None:
        self.fields.append(_Field(texts.starts[numbers], texts.sizes[numbers], text=texts.bytes))

    def varint(self, values: Ints, sizes: Any) -> None:
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


def sizes_of(values: Ints) -> Any:
    """Return how many bytes the varint of each has; one number if all have as many, as is usual."""
    if not len(values):
        return 1
    numbers = values.view(np.uint64)
    least, most = (max(1, -(-int(one).bit_length() // 7)) for one in (numbers.min(), numbers.max()))
    if least == most:
        return least
    sizes = np.full(len(values), least)
    for bits in range(7 * least, 7 * most, 7):
        sizes += numbers >= np.uint64(1 << bits)
    return sizes


def _varints(numbers: Words, sizes: Any) -> Words:
    """Return of each number of 56 bits its varint, as a word."""
    words: Words = numbers & _LOW_7
    for number in range(1, int(np.max(sizes, initial=1))):
        words |= (numbers >> _BITS[number] & _LOW_7) << _BYTES[number]
    words |= _GOES_ON[sizes]
    return words


def joined(parts: Sequence[Sequence[Fields]], count: int, long: Ints) -> bytes:
    """Return packets in sequence. ``parts``: the fields of each part of the packets, no two of the same packets;
    ``count``: the number of packets; ``long``: the places of packets above `LONG` bytes, in order.
    """
    return b"".join(_table(parts, first, last) for first, last in _pieces(count, long))


def _pieces(count: int, long: Ints) -> Iterator[tuple[int, int]]:
    first = 0
    for number in long.tolist():
        if first < number:
            yield first, number
        yield number, number + 1
        first = number + 1
    if first < count:
        yield first, count


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
                widest = field.widest if field.text is None else int(field.sizes[of_fields].max(initial=0))
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


# -- Slices with their arguments, read back. For any bytes it ends, and reports damage. --------------------------------

_CHUNK = 1 << 20
_LARGEST = 1 << 26
"""Bytes of a packet; a larger one was not written by this program."""
_BEGINS, _END = b"\x48\x01", b"\x48\x02"
"""The beginnings of our events, by their type; a counter's is neither."""
_ENDING = late(rf"{END_MARK} slices=(\d{{1,18}}) crc32=([0-9a-f]{{{CRC_TAIL}}})".encode())
_TIMES = 1 << 63


class _Row:
    """The state of a packet sequence, which is a track of ours."""

    def __init__(self) -> None:
        self.texts: dict[tuple[int, int], str] = {}
        self.counted = False
        self.at = 0
        self.open: list[tuple[int, bytes, str] | None] = []


def slices(file: BinaryIO, category: str | None, found: Found) -> Iterator[Slice]:
    """Yield the slices of a category, or all, each when it ends."""
    rows: dict[int, _Row] = {}
    promised = False
    for packet in _packets(file, found):
        if found.end is not None:
            found.goes_on = True
            found.end = None
        try:
            held = dict(_fields(packet))
            row = rows.setdefault(_int(held, SEQUENCE), _Row())
            if INTERNED in held:
                for table, entry in _fields(_bytes(held, INTERNED)):
                    one = dict(_fields(_is(bytes, entry)))
                    row.texts[table, _int(one, 1)] = _bytes(one, 2).decode()
            if DEFAULTS in held:
                row.counted = _int(dict(_fields(_bytes(held, DEFAULTS))), CLOCK_ID) >= COUNTED
            if FOR_TESTING in held:
                mark = _bytes(dict(_fields(_bytes(held, FOR_TESTING))), 1)
                promised |= mark == BEGIN_MARK.encode()
                if (end := _ENDING.fullmatch(mark)) is not None:
                    found.end = End(int(end[1]), int(end[2], 16), CRC_TAIL)
            if TRACK_EVENT not in held:
                continue
            event = _bytes(held, TRACK_EVENT)
            row.at = _int(held, TIMESTAMP) + (row.at if row.counted else 0)
            if event.startswith(_BEGINS):
                found.slices += 1
                row.open.append(None)  # a slice that cannot be read also begins
                row.open[-1] = _begin(row, event, category)
            elif event == _END:
                if not row.open:
                    raise ValueError("an end without a slice")
                if (begun := row.open.pop()) is not None:
                    start, body, of_category = begun
                    if not start <= row.at < _TIMES:
                        raise ValueError("a slice that ends before it begins")
                    name = row.texts[NAMES, _int(dict(_fields(body)), NAME)]
                    yield Slice(_int(held, SEQUENCE), start, row.at - start, name, of_category, _args(row, body))
        except (ValueError, KeyError):
            found.unread += 1
    found.unended = sum(len(row.open) for row in rows.values())
    found.is_cut |= promised and found.end is None and not found.goes_on


def _begin(row: _Row, event: bytes, category: str | None) -> tuple[int, bytes, str] | None:
    """Return the start of a slice of the category, with its event and category; None for any other packet."""
    for number, value in _fields(event):
        if number == CATEGORY:
            of_category = row.texts[CATEGORIES, _is(int, value)]
            return (row.at, event, of_category) if category in (None, of_category) else None
    raise ValueError("a slice without a category")


def _args(row: _Row, event: bytes) -> dict[str, Any]:
    return dict(_annotation(row, _is(bytes, body), 2) for number, body in _fields(event) if number == ANNOTATION)


def _annotation(row: _Row, body: bytes, deepest: int) -> tuple[str, Any]:
    """Return an argument's name and its value; None for a value of a type that this program does not write."""
    if not deepest:
        raise ValueError("arguments deeper than ours")
    key, inside = "", {}
    value: str | int | float | None = None
    for number, held in _fields(body):
        if number == REAL:
            value = real_of(_is(bytes, held))
        elif number == ENTRIES:
            inner, inside_value = _annotation(row, _is(bytes, held), deepest - 1)
            inside[inner] = inside_value
        elif number == KEY:
            key = row.texts[KEYS, _is(int, held)]
        elif number == INT:
            whole = _is(int, held)
            value = whole - (1 << 64) if whole >> 63 else whole
        elif number == TEXT:
            value = row.texts[TEXTS, _is(int, held)]
        elif number == BOOL:
            value = bool(_is(int, held))
    return key, inside or value


def _packets(file: BinaryIO, found: Found) -> Iterator[bytes]:
    data, at = b"", 0
    while True:
        missing = _CHUNK
        try:
            if at >= len(data):
                raise IndexError
            if data[at] != 0x0A:
                raise ValueError("no packet")
            size, body = wire.varint(data, at + 1, len(data))
            if size > _LARGEST:
                raise ValueError("no packet of ours")
            if body + size > len(data):
                # A packet of many chunks is read at once: reading it again for each chunk takes quadratic time.
                missing = max(_CHUNK, body + size - len(data))
                raise IndexError
        except (IndexError, wire.CutError):
            more = file.read(missing)
            if not more:
                found.is_cut |= at < len(data)
                return
            data, at = data[at:] + more, 0
            continue
        except ValueError:
            found.unread += 1
            return
        yield data[body : body + size]
        at = body + size


def _int(held: dict[int, int | bytes], number: int) -> int:
    return _is(int, held.get(number, 0))


def _bytes(held: dict[int, int | bytes], number: int) -> bytes:
    return _is(bytes, held.get(number, b""))


def _is(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind):
        raise ValueError(f"no {kind.__name__}")
    return value
