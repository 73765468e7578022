"""Slices read back from a native trace of ours: what is needed to find a place in it, no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from mio2trace.trace import Slice
from mio2trace.writers.native import protobuf as pb

_CHUNK = 1 << 20
_SEQUENCE, _TIMESTAMP, _TRACK_EVENT, _INTERNED, _DEFAULTS = 10, 8, 11, 12, 59
_BEGINS, _END = b"\x48\x01", b"\x48\x02"
"""How our events begin, by their type; a counter's is neither."""


class _Row:
    """What a packet sequence, a track of ours, remembers."""

    def __init__(self) -> None:
        self.texts: dict[tuple[int, int], str] = {}
        self.counted = False
        self.at = 0
        self.open: list[tuple[int, bytes] | None] = []


def slices(file: BinaryIO, category: str) -> Iterator[Slice]:
    """The slices of a category, each when it ends. What is no packet ends the reading without a word."""
    rows: dict[int, _Row] = {}
    for packet in _packets(file):
        try:
            held = dict(pb.fields(packet))
            row = rows.setdefault(_int(held, _SEQUENCE), _Row())
            if _INTERNED in held:
                for table, entry in pb.fields(_bytes(held, _INTERNED)):
                    assert isinstance(entry, bytes)
                    one = dict(pb.fields(entry))
                    row.texts[table, _int(one, 1)] = _bytes(one, 2).decode("utf-8", "replace")
            if _DEFAULTS in held:
                row.counted = _int(dict(pb.fields(_bytes(held, _DEFAULTS))), 58) >= 64
            event = held.get(_TRACK_EVENT)
            if not isinstance(event, bytes):
                continue
            row.at = _int(held, _TIMESTAMP) + (row.at if row.counted else 0)
            if event.startswith(_BEGINS):
                row.open.append(_begin(row, event, category))
            elif event == _END and row.open and (begun := row.open.pop()) is not None:
                start, body = begun
                found = dict(pb.fields(body))
                yield Slice(
                    _int(held, _SEQUENCE),
                    start,
                    row.at - start,
                    row.texts[2, _int(found, 10)],
                    category,
                    _args(row, body),
                )
        except (ValueError, KeyError):
            return


def _begin(row: _Row, event: bytes, category: str) -> tuple[int, bytes] | None:
    """Where a slice of the category begins, with its event; None for any other, and for what begins none."""
    for number, value in pb.fields(event):
        if number == 3:
            assert isinstance(value, int)
            return (row.at, event) if row.texts.get((1, value)) == category else None
    return None


def _args(row: _Row, event: bytes) -> dict[str, Any]:
    """Integers and texts; that is enough to tell one slice from another."""
    args: dict[str, Any] = {}
    for number, value in pb.fields(event):
        if number == 4 and isinstance(value, bytes):
            one = dict(pb.fields(value))
            key = row.texts[3, _int(one, 1)]
            if 4 in one:
                args[key] = _int(one, 4)
            elif 17 in one:
                args[key] = row.texts[29, _int(one, 17)]
    return args


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
