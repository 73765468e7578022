"""Read slices with their arguments back from a native trace of ours. For any bytes it ends, and reports damage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from mio2trace.trace import Slice
from mio2trace.writers.ending import End, Found
from mio2trace.writers.native import packets as tp

_CHUNK = 1 << 20
_LARGEST = 1 << 26
"""Bytes of a packet; a larger one was not written by this program."""
_BEGINS, _END = b"\x48\x01", b"\x48\x02"
"""The beginnings of our events, by their type; a counter's is neither."""
_ENDING = re.compile(rf"{tp.END_MARK} slices=(\d{{1,18}}) crc32=([0-9a-f]{{{tp.CRC_TAIL}}})".encode())
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
            held = dict(tp.fields(packet))
            row = rows.setdefault(_int(held, tp.SEQUENCE), _Row())
            if tp.INTERNED in held:
                for table, entry in tp.fields(_bytes(held, tp.INTERNED)):
                    one = dict(tp.fields(_is_bytes(entry)))
                    row.texts[table, _int(one, 1)] = _bytes(one, 2).decode()
            if tp.DEFAULTS in held:
                row.counted = _int(dict(tp.fields(_bytes(held, tp.DEFAULTS))), tp.CLOCK_ID) >= tp.COUNTED
            if tp.FOR_TESTING in held:
                mark = _bytes(dict(tp.fields(_bytes(held, tp.FOR_TESTING))), 1)
                promised |= mark == tp.BEGIN_MARK.encode()
                if (end := _ENDING.fullmatch(mark)) is not None:
                    found.end = End(int(end[1]), int(end[2], 16), tp.CRC_TAIL)
            if tp.TRACK_EVENT not in held:
                continue
            event = _bytes(held, tp.TRACK_EVENT)
            row.at = _int(held, tp.TIMESTAMP) + (row.at if row.counted else 0)
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
                    name = row.texts[tp.NAMES, _int(dict(tp.fields(body)), tp.NAME)]
                    yield Slice(_int(held, tp.SEQUENCE), start, row.at - start, name, of_category, _args(row, body))
        except (ValueError, KeyError):
            found.unread += 1
    found.unended = sum(len(row.open) for row in rows.values())
    found.is_cut |= promised and found.end is None and not found.goes_on


def _begin(row: _Row, event: bytes, category: str | None) -> tuple[int, bytes, str] | None:
    """Return the start of a slice of the category, with its event and category; None for any other packet."""
    for number, value in tp.fields(event):
        if number == tp.CATEGORY:
            of_category = row.texts[tp.CATEGORIES, _is_int(value)]
            return (row.at, event, of_category) if category in (None, of_category) else None
    raise ValueError("a slice without a category")


def _args(row: _Row, event: bytes) -> dict[str, Any]:
    return dict(_annotation(row, _is_bytes(body), 2) for number, body in tp.fields(event) if number == tp.ANNOTATION)


def _annotation(row: _Row, body: bytes, deepest: int) -> tuple[str, Any]:
    """Return an argument's name and its value; None for a value of a type that this program does not write."""
    if not deepest:
        raise ValueError("arguments deeper than ours")
    key, inside = "", {}
    value: str | int | float | None = None
    for number, held in tp.fields(body):
        if number == tp.REAL:
            value = tp.real_of(_is_bytes(held))
        elif number == tp.ENTRIES:
            inner, inside_value = _annotation(row, _is_bytes(held), deepest - 1)
            inside[inner] = inside_value
        elif number == tp.KEY:
            key = row.texts[tp.KEYS, _is_int(held)]
        elif number == tp.INT:
            whole = _is_int(held)
            value = whole - (1 << 64) if whole >> 63 else whole
        elif number == tp.TEXT:
            value = row.texts[tp.TEXTS, _is_int(held)]
        elif number == tp.BOOL:
            value = bool(_is_int(held))
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
            size, body = tp.read_varint(data, at + 1)
            if size > _LARGEST:
                raise ValueError("no packet of ours")
            if body + size > len(data):
                # A packet of many chunks is read at once: reading it again for each chunk takes quadratic time.
                missing = max(_CHUNK, body + size - len(data))
                raise IndexError
        except ValueError:
            found.unread += 1
            return
        except IndexError:
            more = file.read(missing)
            if not more:
                found.is_cut |= at < len(data)
                return
            data, at = data[at:] + more, 0
            continue
        yield data[body : body + size]
        at = body + size


def _int(held: dict[int, int | bytes], number: int) -> int:
    return _is_int(held.get(number, 0))


def _bytes(held: dict[int, int | bytes], number: int) -> bytes:
    return _is_bytes(held.get(number, b""))


def _is_int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("no integer")
    return value


def _is_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("no bytes")
    return value
