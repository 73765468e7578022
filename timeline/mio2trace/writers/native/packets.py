"""TracePacket and what it holds, by their numbers in perfetto_trace.proto (perfetto-chrome-trace.md 3)."""

from __future__ import annotations

from mio2trace.trace import Trace
from mio2trace.writers.native import protobuf as pb

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
"""Bytes of the CRC, which are the file's last."""

REALTIME, BOOTTIME, COUNTED = 1, 6, 64
"""Clocks: the two builtin ones, and the first of a sequence's own."""

NOBODYS = 1
"""The packet sequence that nothing is remembered of; the tracks' own follow it."""


def packet(*fields: bytes) -> bytes:
    """A packet of the trace."""
    return pb.message(PACKET, b"".join(fields))


def stateless(*fields: bytes) -> bytes:
    """A packet of the sequence that nothing is remembered of."""
    return packet(*fields, pb.integer(SEQUENCE, NOBODYS))


def marked(text: str) -> bytes:
    """A packet with ``text`` as its last bytes, which no viewer shows or complains of (`TracePacket.for_testing`)."""
    return packet(pb.integer(SEQUENCE, NOBODYS), pb.message(FOR_TESTING, pb.text(1, text)))


def uuids(trace: Trace) -> dict[tuple[int, int | None], int]:
    """Of a process (p, None) and of a track (p, t): from 1, in the order of the trace.

    A process and its main track are one: a group with slices of its own shows them before it is opened.
    """
    keys: list[tuple[int, int | None]] = [(process.id, None) for process in trace.processes]
    keys += [(track.process, track.id) for track in trace.tracks if not track.main]
    numbers = {key: number for number, key in enumerate(keys, 1)}
    return numbers | {(track.process, track.id): numbers[track.process, None] for track in trace.tracks if track.main}
