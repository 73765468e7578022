"""The readers' records as JSON lines, one per record, with the fields and names of `mio2trace.model`.

    {"record": "profile", "source": 0, "records": 2231, "activities": 204, ...}
    {"record": "activity", "number": 11, "kind": "kernel", "name": "fillbuffer_float", ...}

A record that holds others (a profile, a log) comes first, with their number in place of the records. A field that is
None is left out. Bytes (texts of programs) are replaced by their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from mio2trace.model.miopen import Entry
from mio2trace.model.profile import OpenCl

_WORDS = re.compile(r"(?<!^)(?=[A-Z])")


def lines(record: msgspec.Struct) -> Iterator[str]:
    """Yield the line of a record and of all records in it, each with a line end."""
    parts: list[Sequence[msgspec.Struct]] = []
    shown: dict[str, Any] = {"record": kind_of(record)}
    for name, value in _with_side_tables(record):
        if _holds_records(value):
            parts.append(value)
            shown[name] = len(value)
        else:
            _add(shown, name, value)
    yield _dumps(shown)
    for held in parts:
        for part in held:
            yield line(part)


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


def line(record: msgspec.Struct) -> str:
    show = _SHOWN.get(type(record))
    shown: dict[str, Any] = {"record": kind_of(record)}
    for name, value in (show(record) if show else _fields(record)).items():
        _add(shown, name, value)
    return _dumps(shown)


def kind_of(record: msgspec.Struct) -> str:
    """``BufferCreated`` -> ``buffer_created``."""
    return _WORDS.sub("_", type(record).__name__).lower()


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _entry(record: Any) -> dict[str, Any]:
    """Return an entry with all its fields. In memory, equal entries share the fields that they have in common."""
    return {
        "source": record.source,
        "line": record.line,
        "end_line": record.end_line,
        "api": record.api,
        "params": record.params,
        "thread": record.thread,
        "nested": record.nested,
        "complete": record.complete,
        "stamp": record.stamp,
        "elapsed_ns": record.elapsed_ns,
    }


_SHOWN: Mapping[type, Callable[[Any], dict[str, Any]]] = {Entry: _entry}


def _add(shown: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, bytes):
        shown[f"{name}_bytes"] = len(value)
    elif value is not None:
        shown[name] = value


def _default(value: Any) -> Any:
    """Convert a value that orjson does not know; bytes inside other records become their number."""
    if isinstance(value, msgspec.Struct):
        shown: dict[str, Any] = {}
        for name, field in _fields(value).items():
            _add(shown, name, field)
        return shown
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
