"""Events of the Chrome JSON of ROCm's tools, each on lines of its own that begin with a comma.

The writers do not escape quotes, and the file of a killed run ends anywhere. A file that is not valid JSON is read
event by event, and an invalid event by the order of its fields (rocm-profiles.md 3, 7, 11.5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import msgspec

from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import utf8

LAUNCHES = late(r"Launch|Mem[cs]|Copy|Fill")
"""Calls that may start something on a device."""


class Event(msgspec.Struct, gc=False):
    """An event. The types of its fields differ by version: numbers, or text with a number."""

    ph: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Any = None


class _Object(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")


_ARRAY = msgspec.json.Decoder(list[Event])
_OBJECT = msgspec.json.Decoder(_Object)
_ONE = msgspec.json.Decoder(Event)
_END = late(rb"\n\],?+\s*+(?:\"otherData\"|\}?+\s*+\Z)")
Rescue = Callable[[str], Event | None]
"""Return an event of invalid JSON; None if it does not have the known form."""


def events(data: bytes, rescue: Rescue, place: str, notes: Notes) -> list[Event]:
    """Return all events. Raises `InputError` if there are none."""
    data = utf8(data, place, notes)
    try:
        return _ARRAY.decode(data) if data.lstrip()[:1] == b"[" else _OBJECT.decode(data).events
    except (msgspec.DecodeError, RecursionError) as error:
        if "truncated" in str(error):
            notes.cut_off(place, f"byte {len(data)}")
        found = list(_one_by_one(data, rescue, place, notes))
        if not found:
            what = str(error) or "nested too deeply"
            raise InputError(f"{place}: {what}; expected the trace of a profiler") from None
        return found


def _one_by_one(data: bytes, rescue: Rescue, place: str, notes: Notes) -> Iterator[Event]:
    end = _END.search(data)
    pieces = (data if end is None else data[: end.start()]).split(b"\n,{")
    if end is None:
        notes.cut_off(place, f"byte {len(data)}")
    elif not any(note.is_cut for note in notes):
        notes.remark("JSON with quotes inside of quotes: read event by event", place)
    for number, piece in enumerate(pieces[1:], 1):
        try:
            event: Event | None = _ONE.decode(b"{" + piece)
        except (msgspec.DecodeError, RecursionError):
            if end is None and number == len(pieces) - 1:
                return  # the event that was cut
            event = rescue("{" + piece.decode(errors="replace"))
        if event is None:
            notes.unreadable(place)
        else:
            yield event


def number(value: object) -> int | None:
    """Return a whole number, also from text."""
    if isinstance(value, str):
        return int(value) if value.isdigit() and value.isascii() and len(value) <= 19 else None
    return value if type(value) is int else None


class Arrows:
    """Finds the call of a device's operation by arrows, whose ends are points in time, in us. An arrow begins at a
    point of its call, or where the operation began if that was earlier; it ends where the operation begins. So its call
    is the first one of its thread whose point is not before it."""

    def __init__(self, slack_us: int) -> None:
        """``slack_us``: the point may be this much earlier, because it is a sum of truncated numbers."""
        self._slack = slack_us
        self._begins: dict[int, tuple[Hashable, int]] = {}
        self._ends: dict[tuple[Hashable, int], list[int]] = {}
        self._points: dict[Hashable, list[tuple[int, int]]] = {}

    def call(self, lane: Hashable, point_us: int, key: int) -> None:
        self._points.setdefault(lane, []).append((point_us, key))

    def arrow(self, event: Event) -> None:
        lane, at, key = (number(event.pid), number(event.tid)), number(event.ts), number(event.id)
        if at is None or key is None:
            return
        if event.ph == "s":
            self._begins[key] = lane, at
        else:
            self._ends.setdefault((lane, at), []).append(key)

    def finish(self) -> None:
        """All calls and arrows are added; operations are then asked for in the order of the file."""
        for points in self._points.values():
            points.sort()
        for keys in self._ends.values():
            keys.reverse()

    def call_of(self, lane: Hashable, at_us: int) -> int | None:
        """Return the key of the call that launched the operation which began there."""
        keys = self._ends.get((lane, at_us))
        begin = self._begins.get(keys.pop()) if keys else None
        if begin is None:
            return None
        points = self._points.get(begin[0], [])
        exact = bisect_left(points, (begin[1], -1))
        if exact < len(points) and points[exact][0] == begin[1]:
            return points[exact][1]
        first = bisect_left(points, (begin[1] - self._slack, -1))
        return points[first][1] if first < len(points) else None
