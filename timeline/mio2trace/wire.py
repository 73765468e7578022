"""The encoding of protocol buffers: varints and fields, without schema or library.

    0a 03 08 96 01      field 1, 3 bytes long: { field 1, varint 150 }

https://protobuf.dev/programming-guides/encoding/ describes it. Places in errors are offsets into the decoded file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from mio2trace.notes import Notes

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WITH_VARINT = (BYTES, VARINT)
Field = tuple[int, int, int]
"""(tag, value, 0) for a varint; (tag, start, stop) for bytes and fixed numbers. The tag is number << 3 | wire type."""


class WireError(ValueError):
    """The bytes are no message; ``offset`` is the place of the error."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset}: {what}")


class CutError(WireError):
    """The bytes, or the message around a field, end before the field does. ``there``: the part of it that is there."""

    def __init__(self, offset: int, what: str, there: Field | None = None) -> None:
        super().__init__(offset, what)
        self.there = there


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at ``at`` and the place after it. Raises `WireError`, `CutError`."""
    value = shift = 0
    start = at
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise WireError(start, "a number of more than 10 bytes")
    raise CutError(start, "a number without its end")


def signed(value: int) -> int:
    """Return a varint as int64 (int32 has the same encoding)."""
    return value - (1 << 64) if value >> 63 else value


def fields(data: bytes, at: int, end: int) -> list[Field]:
    """Return the fields of the message in ``data[at:end]``, in file order. Raises `WireError`, `CutError`."""
    return [*each_field(data, at, end)]


def each_field(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields one by one, as `fields`. A `CutError` has the part of its field that is there."""
    while at < end:
        start = at
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, start, end)
        kind = tag & 7
        if tag < 8:
            raise WireError(start, "field number 0")
        if kind in _WITH_VARINT:
            if at >= end:
                raise CutError(start, "a field without its content")
            value = data[at]
            if value < 0x80:
                at += 1
            else:
                value, at = varint(data, at, end)
            if kind == VARINT:
                yield tag, value, 0
                continue
            stop = at + value
        elif kind == FIXED64:
            stop = at + 8
        elif kind == FIXED32:
            stop = at + 4
        else:
            raise WireError(start, f"wire type {kind}, which no field here has")
        if stop > end:
            there = (tag, at, end) if kind == BYTES else None
            raise CutError(start, f"a field of {stop - at} bytes where {end - at} are left", there)
        yield tag, at, stop
        at = stop


def last(found: Iterable[Field]) -> defaultdict[int, tuple[int, int]]:
    """Return the last field of each tag, without the tag; (0, 0), which is 0 and empty, for tags that are missing."""
    return defaultdict(lambda: (0, 0), ((tag, (at, end)) for tag, at, end in found))


Message = dict[str, list[Any]]
"""The fields of a message by name, each with all its values: numbers, texts, messages."""
Fields = dict[int, tuple[str, Any]]
"""By number: the name, and int, str, list (of int, packed or not), slice (its place alone), or a message's fields."""
Value = TypeVar("Value", int, str, Message)


class Whole(dict[int, tuple[str, Any]]):
    """The `Fields` of a message that has no others, as the entry of a map: any other field is damage."""


def message(data: bytes, found: Iterable[Field], known: Fields, begin: int = 0) -> Message:
    """Return the ``known`` ones among the fields of the message at ``begin``. Raises `WireError`, also if one has
    another wire type, or is unknown to a `Whole`."""
    made: Message = {}
    for tag, at, end in found:
        name, kind = known.get(tag >> 3, ("", None))
        if kind is None:
            if isinstance(known, Whole):
                raise unexpected(tag, begin)
            continue
        values = made.setdefault(name, [])
        wire = tag & 7
        if kind is list and wire in (VARINT, BYTES):
            values += repeated(data, tag, at, end)
        elif wire != (VARINT if kind is int else BYTES):
            raise unexpected(tag, begin)
        elif kind is int:
            values.append(signed(at))
        elif kind is str:
            values.append(text(data, at, end))
        else:
            values.append((at, end) if kind is slice else message(data, fields(data, at, end), kind, at))
    return made


def messages(of: Message, name: str) -> list[Message]:
    return [one for one in of.get(name, []) if isinstance(one, dict)]


def newest(of: Message, name: str, without: Value) -> Value:
    """Return the last value, as protocol buffers do; ``without`` if there is none of its type."""
    value = (of.get(name) or [without])[-1]
    return value if isinstance(value, type(without)) else without


class Walk:
    """Walks through messages field by field, up to the cut of a cut file. ``damaged``: the note on damage."""

    def __init__(self, data: bytes, place: str, notes: Notes, damaged: str) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self._damaged = damaged
        self._is_at_end = False
        self.error: WireError | None = None
        """The first error; None if everything could be read so far."""

    def parts(self, at: int, end: int) -> Iterator[Field]:
        """Yield fields one by one, as `fields`; in a message that is cut off, the last one ends with the data."""
        try:
            yield from each_field(self._data, at, end)
        except WireError as error:
            self._stop(error, end)
            if isinstance(error, CutError) and error.there is not None:
                yield error.there

    def _stop(self, error: WireError, end: int) -> None:
        """Only the end of the file counts as a cut; it ends all messages around it. ``end``: of the message."""
        if self._is_at_end:
            return
        self.error = self.error or error
        if isinstance(error, CutError) and end == len(self._data):
            self._is_at_end = True
            self._notes.cut_off(self._place, str(error))
        else:
            self._notes.add(self._damaged, f"{self._place}: {error}")


def numbers(data: bytes, at: int, end: int) -> list[int]:
    """Return packed varints as int64. Raises `WireError`, `CutError`."""
    found: list[int] = []
    while at < end:
        value = data[at]
        if value < 0x80:
            at += 1
        else:
            value, at = varint(data, at, end)
            if value >> 63:
                value -= 1 << 64
        found.append(value)
    return found


def repeated(data: bytes, tag: int, at: int, end: int) -> list[int]:
    """Return the int64 numbers of a field of several, packed or single. Raises `WireError`, `CutError`."""
    return numbers(data, at, end) if tag & 7 == BYTES else [signed(at)]


def text(data: bytes, at: int, end: int) -> str:
    """Return a string; bytes that are not valid UTF-8 become replacement characters."""
    return data[at:end].decode("utf-8", "replace")


def unexpected(tag: int, at: int) -> WireError:
    """Return the error for a known field with a wrong wire type."""
    return WireError(at, f"field {tag >> 3} with wire type {tag & 7}")
