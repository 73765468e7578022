"""The readers' records as JSON lines, one per record, with the fields and names of `mio2trace.model`.

    {"record": "profile", "source": 0, "records": 2231, "activities": 204, ...}
    {"record": "activity", "number": 11, "kind": "kernel", "name": "fillbuffer_float", ...}

A record that holds others (a profile, a log) comes first, with their number in place of the records. A field that is
None is left out. Bytes (texts of programs) are replaced by their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from mio2trace.model.miopen import Entry
from mio2trace.model.profile import OpenCl

_WORDS = re.compile(r"(?<!^)(?=[A-Z])")
_OF_ENTRY = (
    "source", "line", "end_line", "api", "params", "thread", "nested", "complete", "stamp", "elapsed_ns",
)  # fmt: skip
"""The fields of an entry. In memory, equal entries share the fields that they have in common."""


def lines(record: msgspec.Struct) -> Iterator[str]:
    """Yield the line of a record and of all records in it, each with a line end."""
    fields = dict(_with_side_tables(record))
    parts = {name: value for name, value in fields.items() if _holds_records(value)}
    yield _line(record, fields | {name: len(part) for name, part in parts.items()})
    for part in parts.values():
        for one in part:
            yield _line(one, _fields(one))


def _with_side_tables(record: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Return the fields of a record, including those of its side tables."""
    for name, value in _fields(record).items():
        if isinstance(value, OpenCl):
            yield from _fields(value).items()
        else:
            yield name, value


def _holds_records(value: object) -> bool:
    """Whether a field is a sequence of records, of which a file may have millions."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, (str, bytes))
        and len(value) > 0
        and isinstance(value[0], msgspec.Struct)
    )


def _line(record: msgspec.Struct, fields: Mapping[str, Any]) -> str:
    return _dumps({"record": kind_of(record), **_shown(fields)})


def kind_of(record: msgspec.Struct) -> str:
    """``BufferCreated`` -> ``buffer_created``."""
    return _WORDS.sub("_", type(record).__name__).lower()


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    names = _OF_ENTRY if isinstance(record, Entry) else record.__struct_fields__
    return {name: getattr(record, name) for name in names}


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}_bytes" if isinstance(value, bytes) else name: len(value) if isinstance(value, bytes) else value
        for name, value in fields.items()
        if value is not None
    }


def _default(value: Any) -> Any:
    """Convert a value that orjson does not know; bytes inside other records become their number."""
    if isinstance(value, msgspec.Struct):
        return _shown(_fields(value))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _dumps(shown: dict[str, Any]) -> str:
    try:
        return orjson.dumps(shown, default=_default, option=orjson.OPT_NON_STR_KEYS).decode() + "\n"
    except TypeError:  # a number of more than 64 bits, or text that is not valid UTF-8
        return msgspec.json.encode(_plain(shown)).decode() + "\n"


def _plain(value: Any) -> Any:
    """Replace the values that JSON writers refuse: such numbers become text, such characters are replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _plain(_default(value))
