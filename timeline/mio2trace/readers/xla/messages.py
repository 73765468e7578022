"""The messages of an XSpace (xspace.md 2), read in place: only requested events are kept.

    XSpace 1 planes | XPlane 2 name, 3 lines, 4 event types, 5 names of stats, 6 stats
    XLine 1 id, 2 name, 3 timestamp_ns, 4 events, 11 display name | XEvent 1 type, 2 offset_ps, 3 duration_ps, 4 stats
    XStat 1 name, then 2 double, 3 uint64, 4 int64, 5 string, 6 bytes or 7 reference to a name

Events may come before the tables that name them, so a plane is read twice. A file that is cut off is read up to the
cut: a message without its end gives its complete fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mio2trace.notes import Notes
from mio2trace.readers.tf.wire import Walk, WireError, fields, last, signed, text

DAMAGED = "damaged event of an XSpace: left out"
_LONGEST = 1 << 14
_MOST_PS = 1 << 62
_DOUBLE = struct.Struct("<d")
Span = tuple[int, int]
"""The begin and end of a message."""
Value = int | float | str | Span


class EventType(NamedTuple):
    """A type of events. ``stats``: of all events of the type."""

    name: str
    stats: tuple[Span, ...]


class Plane(NamedTuple):
    name: str
    lines: tuple[Span, ...]
    types: Mapping[int, EventType]
    names: Mapping[int, str]
    """Names of stats; a text that occurs often is also stored as a name."""
    stats: tuple[Span, ...]


class Line(NamedTuple):
    id: int
    name: str
    timestamp_ns: int
    span: Span


class Event(NamedTuple):
    """Times in ps from the line's begin. ``stats``: its own, then those of its type."""

    type: EventType
    offset_ps: int
    duration_ps: int
    stats: tuple[Span, ...]


class Reader:
    """Reads the messages of one file."""

    def __init__(self, data: bytes, place: str, notes: Notes) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self.walk = Walk(data, place, notes, "XSpace damaged: read up to there")

    def planes(self) -> Iterator[Plane]:
        for tag, at, stop in self.walk.parts(0, len(self._data)):
            if tag == 0x0A:
                yield self._plane(at, stop)

    def lines(self, plane: Plane) -> Iterator[Line]:
        for span in plane.lines:
            line = last(self.walk.parts(*span))
            name = self._text(*line[0x5A]) or self._text(*line[0x12])
            yield Line(line[0x08][0], name, signed(line[0x18][0]), span)

    def events(self, plane: Plane, line: Line) -> Iterator[Event]:
        """Yield the events of known types that have a time."""
        types = plane.types
        for tag, at, stop in self.walk.parts(*line.span):
            if tag != 0x22:
                continue
            kind = duration = 0
            offset: int | None = None
            is_timed = False
            stats: list[Span] = []
            try:
                for inner, begin, end in fields(self._data, at, stop):
                    if inner == 0x08:
                        kind = signed(begin)
                    elif inner == 0x10:
                        offset, is_timed = signed(begin), True
                    elif inner == 0x18:
                        duration, is_timed = signed(begin), True
                    elif inner == 0x22:
                        stats.append((begin, end))
                    elif inner == 0x28:  # the number of occurrences: a sum, and no event
                        kind = -1
                        break
            except WireError as error:
                self._notes.add(DAMAGED, f"{self._place}: {error}")
                continue
            if kind == -1:
                continue
            known = types.get(kind)
            if known is None or not is_timed or duration < 0 or not 0 <= (offset or 0) + duration < _MOST_PS:
                self._notes.add(DAMAGED, self._place)
                continue
            yield Event(known, offset or 0, duration, (*stats, *known.stats))

    def stats(self, plane: Plane, spans: tuple[Span, ...]) -> dict[str, Value]:
        """Return the stats by name; the first one of a name counts. A text of bytes is returned as its place."""
        found: dict[str, Value] = {}
        for span in spans:
            try:
                name, value = self._stat(plane, span)
            except WireError:
                continue
            if name and value is not None:
                found.setdefault(name, value)
        return found

    def bytes_at(self, span: Span) -> bytes:
        return self._data[span[0] : span[1]]

    def _stat(self, plane: Plane, span: Span) -> tuple[str, Value | None]:
        key = 0
        value: Value | None = None
        for tag, at, stop in fields(self._data, *span):
            if tag == 0x08:
                key = signed(at)
            elif tag == 0x11:
                value = _DOUBLE.unpack_from(self._data, at)[0]
            elif tag == 0x18:
                value = at
            elif tag == 0x20:
                value = signed(at)
            elif tag == 0x2A:
                value = self._text(at, stop)
            elif tag == 0x32:
                value = at, stop
            elif tag == 0x38:
                value = plane.names.get(signed(at), "")
        return plane.names.get(key, ""), value

    def _plane(self, at: int, stop: int) -> Plane:
        name = ""
        lines: list[Span] = []
        stats: list[Span] = []
        types: dict[int, EventType] = {}
        names: dict[int, str] = {}
        for tag, begin, end in self.walk.parts(at, stop):
            if tag == 0x12:
                name = self._text(begin, end)
            elif tag == 0x1A:
                lines.append((begin, end))
            elif tag == 0x32:
                stats.append((begin, end))
            elif tag in (0x22, 0x2A):
                entry = last(self.walk.parts(begin, end))
                if 0x12 not in entry:
                    continue
                key, of = signed(entry[0x08][0]), [*self.walk.parts(*entry[0x12])]
                title = self._text(*last(of)[0x12])
                if tag == 0x22:
                    types[key] = EventType(title, tuple((a, b) for inner, a, b in of if inner == 0x2A))
                else:
                    names[key] = title
        return Plane(name, tuple(lines), types, names, tuple(stats))

    def _text(self, at: int, stop: int) -> str:
        return text(self._data, at, min(stop, at + _LONGEST))
