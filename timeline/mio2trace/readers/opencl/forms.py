"""dv/dt: calls that repeat except for their numbers are understood once (dvdt-ck.md 1.2).

    {"call":"clSetKernelArg",...,"arg_value":"01000000","timestamp":{"start":"2026-11-20T12:03:11.613408",...
     text, the same each time -------------------------------------------- a second ---------- . micro-

An iteration repeats the calls of the one before. A `Form` is the text of one or a few calls, cut into constant parts
and fields of fixed lengths. A text with this form decodes to the same calls except for the values of the fields. A
probe tests this when the form is made: a text whose fields all have different values. A field that had digits in the
first text must have digits; a field with letters and digits must have these. So a field can neither end a string nor
change the kind of a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from struct import Struct
from typing import Any, Literal, NamedTuple

import msgspec

from mio2trace.readers.opencl.records import (
    AnyCall,
    Began,
    Command,
    Counters,
    CreateBuffer,
    SetKernelArg,
    Stamps,
)

Kind = Literal["ignored", "second", "micro", "count", "word"]
"""The contents of fields: digits that are ignored, the seconds and microseconds of a stamp, a counter, a handle or
value in hexadecimal digits."""
Decode = Callable[[bytes], Sequence[AnyCall]]

_SECOND = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_STAMPS = re.compile(rb'"start"\s*:\s*"(' + _SECOND + rb')\.(\d{6})"\s*,\s*"end"\s*:\s*"(' + _SECOND + rb')\.(\d{6})"')
_COUNTERS = re.compile(
    rb'"queued"\s*:\s*(\d{1,18})\s*,\s*"submit"\s*:\s*(\d{1,18})\s*,\s*'
    rb'"start"\s*:\s*(\d{1,18})\s*,\s*"end"\s*:\s*(\d{1,18})\s*\}'
)
_VALUE = re.compile(rb'"arg_value"\s*:\s*"([0-9a-f]{16})"')
_BUFFER = re.compile(rb'"buffer"\s*:\s*"(0x[0-9a-f]+)"')
COUNTED = ("queued ns", "submit ns", "start ns", "end ns")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_WORDS = b"abcdefghijklmnopqrstuvwxyz"


class Field(NamedTuple):
    """A part of the text, in call ``call``, from byte ``first`` to ``last`` of the whole text."""

    first: int
    last: int
    kind: Kind
    call: int
    role: str
    """The field of the call's record: ``start``, ``end``, ``queued``, ``word`` and others; empty if it is ignored."""


class Form:
    """A text of ``size`` bytes with fields. ``places``: by call and role, the index in `fields_at`.

    ``units``: groups of calls that are folded one after another: the number of calls, their first and last byte, their
    effect.
    """

    __slots__ = ("fields_at", "last", "places", "size", "units")

    def __init__(self, text: bytes, fields: Sequence[Field]) -> None:
        self.size = len(text)
        self.places = {(field.call, field.role): n for n, field in enumerate(fields) if field.role}
        self.fields_at = _reader(text, fields)
        """Return the fields of the text at a place with enough room; None if it does not have the form."""
        self.last = -1
        """Its last place in the history; -1: none yet."""
        self.units: list[tuple[int, int, int, Any]] = []


def _reader(text: bytes, fields: Sequence[Field]) -> Callable[[bytes, int], Sequence[bytes] | None]:
    parts: list[bytes] = []
    layout: list[str] = []
    end = 0
    for field in fields:
        parts += text[end : field.first], text[field.first : field.last]
        layout.append(f"{field.first - end}x{field.last - field.first}s")
        end = field.last
    parts.append(text[end:])
    unpack = Struct("".join(layout)).unpack_from
    join, table = b"".join, _ZEROS
    is_digits = [field.kind != "word" for field in fields]
    zeros = join(compress(parts[1::2], is_digits)).translate(table)

    def of_digits(text: bytes, at: int) -> Sequence[bytes] | None:
        parts[1::2] = fields = unpack(text, at)
        # With its own fields filled in, the learned text is the original text.
        return fields if text.startswith(join(parts), at) and join(fields).translate(table) == zeros else None

    if all(is_digits):
        return of_digits
    is_word = [not digits for digits in is_digits]

    def with_words(text: bytes, at: int) -> Sequence[bytes] | None:
        parts[1::2] = fields = unpack(text, at)
        if (
            text.startswith(join(parts), at)
            and join(compress(fields, is_digits)).translate(table) == zeros
            and join(compress(fields, is_word)).isalnum()
        ):
            return fields
        return None

    return with_words


def fields_of(
    text: bytes, starts: Sequence[int], calls: Sequence[AnyCall], timed: Collection[int]
) -> list[Field] | None:
    """Return the fields of ``text``, whose calls begin at ``starts``; None if a call does not have the usual form.

    ``timed``: the calls whose stamps count.
    """
    fields: list[Field] = []
    for number, call in enumerate(calls):
        begin, end = starts[number], starts[number + 1] if number + 1 < len(starts) else len(text)
        stamps = _STAMPS.search(text, begin, end)
        if stamps is None:
            return None
        whole = isinstance(call, (Command, CreateBuffer))
        if number not in timed:
            fields.append(Field(stamps.start(1), stamps.end(4), "ignored", number, ""))
        else:
            fields.append(Field(*stamps.span(1), "second", number, "start"))
            fields.append(Field(*stamps.span(2), "micro", number, "start micro"))
            if whole:
                fields.append(Field(*stamps.span(3), "second", number, "end"))
                fields.append(Field(*stamps.span(4), "micro", number, "end micro"))
            else:
                fields.append(Field(stamps.start(3), stamps.end(4), "ignored", number, ""))
        if isinstance(call, Command):
            counters = _COUNTERS.search(text, begin, end)
            if counters is None:
                return None
            for group, role in enumerate(COUNTED, 1):
                fields.append(Field(*counters.span(group), "count", number, role))
        word = _VALUE if isinstance(call, SetKernelArg) else _BUFFER
        found = word.search(text, begin, end)
        if found is not None:
            fields.append(Field(*found.span(1), "word", number, "word"))
    return sorted(fields)


def proven(text: bytes, fields: Sequence[Field], calls: Sequence[AnyCall], decode: Decode) -> bool:
    """Return whether a text with other values in its fields has the same calls except for these values.

    The probe has a different value in each field, so its decoded calls show where each field goes.
    """
    probe = bytearray(text)
    filled: dict[tuple[int, str], bytes] = {}
    for number, field in enumerate(fields):
        size = field.last - field.first
        if field.kind == "ignored":
            put = text[field.first : field.last].translate(_ZEROS)
        elif field.kind == "second":
            put = b"%04d-01-01T00:00:00" % (number % 10000)
        elif field.kind == "micro":
            put = b"%06d" % number
        elif field.kind == "count":
            put = (b"%d" % (number % 9 + 1)) * size
        else:
            put = (b"%d" % number).rjust(size, _WORDS[number % 26 : number % 26 + 1])
        probe[field.first : field.last] = put
        filled[field.call, field.role] = put
    try:
        probed = decode(b"[%b]" % bytes(probe))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return list(probed) == [_with(call, number, filled) for number, call in enumerate(calls)]


def _with(call: Any, number: int, filled: dict[tuple[int, str], bytes]) -> Any:
    """Return the call with the values of its fields, as it must be decoded."""

    def stamp(role: str) -> str:
        if (number, role) not in filled:
            return "0000-00-00T00:00:00.000000"
        return f"{filled[number, role].decode()}.{filled[number, role + ' micro'].decode()}"

    changes: dict[str, Any] = {"timestamp": Began(stamp("start"))}
    if isinstance(call, (Command, CreateBuffer)) or not isinstance(call, SetKernelArg):
        changes["timestamp"] = Stamps(start=stamp("start"), end=stamp("end"))
    if isinstance(call, Command):
        changes["profiling"] = Counters(*(int(filled[number, role]) for role in COUNTED))
    word = filled.get((number, "word"))
    if word is not None:
        changes["arg_value" if isinstance(call, SetKernelArg) else "buffer"] = word.decode()
    return msgspec.structs.replace(call, **changes)
