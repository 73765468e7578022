"""Slices read back from a native trace of ours, with their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from mio2trace.trace import Slice
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native import protobuf as pb

_CHUNK = 1 << 20
_BEGINS, _END = b"\x48\x01", b"\x48\x02"
"""How our events begin, by their type; a counter's is neither."""


class _Row:
    """What a packet sequence, a track of ours, remembers."""

    def __init__(self) -> None:
        self.texts: dict[tuple[int, int], str] = {}
        self.counted = False
        self.at = 0
        self.open: list[tuple[int, bytes, str] | None] = []


def slices(file: BinaryIO, category: str | None = None) -> Iterator[Slice]:
    """The slices of a category, or all, each when it ends. What is no packet ends the reading without a word."""
    rows: dict[int, _Row] = {}
    for packet in _packets(file):
        try:
            held = dict(pb.fields(packet))
            row = rows.setdefault(_int(held, tp.SEQUENCE), _Row())
            if tp.INTERNED in held:
                for table, entry in pb.fields(_bytes(held, tp.INTERNED)):
                    assert isinstance(entry, bytes)
                    one = dict(pb.fields(entry))
                    row.texts[table, _int(one, 1)] = _bytes(one, 2).decode("utf-8", "replace")
            if tp.DEFAULTS in held:
                row.counted = _int(dict(pb.fields(_bytes(held, tp.DEFAULTS))), tp.CLOCK_ID) >= tp.COUNTED
            event = held.get(tp.TRACK_EVENT)
            if not isinstance(event, bytes):
                continue
            row.at = _int(held, tp.TIMESTAMP) + (row.at if row.counted else 0)
            if event.startswith(_BEGINS):
                row.open.append(_begin(row, event, category))
            elif event == _END and row.open and (begun := row.open.pop()) is not None:
                start, body, of_category = begun
                name = row.texts[tp.NAMES, _int(dict(pb.fields(body)), tp.NAME)]
                yield Slice(_int(held, tp.SEQUENCE), start, row.at - start, name, of_category, _args(row, body))
        except (ValueError, KeyError):
            return


def _begin(row: _Row, event: bytes, category: str | None) -> tuple[int, bytes, str] | None:
    """Where a slice of the category begins, with its event and category; None for any other."""
    for number, value in pb.fields(event):
        if number == tp.CATEGORY:
            assert isinstance(value, int)
            of_category = row.texts.get((tp.CATEGORIES, value), "")
            return (row.at, event, of_category) if category in (None, of_category) else None
    return None


def _args(row: _Row, event: bytes) -> dict[str, Any]:
    return dict(_annotation(row, body) for number, body in pb.fields(event) if number == tp.ANNOTATION)


def _annotation(row: _Row, body: int | bytes) -> tuple[str, Any]:
    """An argument's name and its value; None for a value of a type that we do not write."""
    assert isinstance(body, bytes)
    key, value, inside = "", None, {}
    for number, held in pb.fields(body):
        if isinstance(held, bytes):
            if number == tp.REAL:
                value = pb.from_double(held)[0]
            elif number == tp.ENTRIES:
                inner, inside_value = _annotation(row, held)
                inside[inner] = inside_value
        elif number == tp.KEY:
            key = row.texts[tp.KEYS, held]
        elif number == tp.INT:
            value = held - (1 << 64) if held >> 63 else held
        elif number == tp.TEXT:
            value = row.texts[tp.TEXTS, held]
        elif number == tp.BOOL:
            value = bool(held)
    return key, inside or value


def _packets(file: BinaryIO) -> Iterator[bytes]:
    data, at = b"", 0
    while True:
        try:
            if at >= len(data):
                raise IndexError
            if data[at] != 0x0A:
                return
            size, body = pb.read_varint(data, at + 1)
            if body + size > len(data):
                raise IndexError
        except IndexError:
            more = file.read(_CHUNK)
            if not more:
                return
            data, at = data[at:] + more, 0
            continue
        yield data[body : body + size]
        at = body + size


def _int(held: dict[int, int | bytes], number: int) -> int:
    value = held.get(number, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no integer")
    return value


def _bytes(held: dict[int, int | bytes], number: int) -> bytes:
    value = held.get(number, b"")
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is no text")
    return value
