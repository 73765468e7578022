"""TracePacket and its content, by the numbers in perfetto_trace.proto (perfetto-chrome-trace.md 3); then the wire
format.

Messages are built from the inside out; the caller encodes repeated parts once and keeps them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from mio2trace.trace import Trace

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


def varint(number: int) -> bytes:
    """Return an integer of -2^63 .. 2^64-1 in the shortest form; negative ones are ten bytes."""
    if number < 0:
        number += 1 << 64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


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


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at ``at``, and the place of the next field.

    Raises IndexError if the data ends, ValueError if it has more than 64 bits.
    """
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            break
    if number >> 64:
        raise ValueError("more than 64 bits")
    return number, at + 1


def real_of(data: bytes) -> float:
    """Return the double in a fixed64. Raises ValueError if it is none, or no number."""
    if len(data) != _DOUBLE.size:
        raise ValueError("no double")
    (value,) = _DOUBLE.unpack(data)
    if not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return the fields of a message: varints as int (unsigned), all others as their bytes.

    Raises ValueError if the data is no message.
    """
    at = 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            kind = tag & 7
            if kind == 0:
                number, at = read_varint(data, at)
                yield tag >> 3, number
                continue
            if kind == 2:
                size, at = read_varint(data, at)
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
            else:
                raise ValueError(f"wire type {kind}")
            if at + size > len(data):
                raise ValueError("cut off")
            yield tag >> 3, data[at : at + size]
            at += size
    except IndexError:
        raise ValueError("cut off") from None
