"""Columns as Arrow, through nanoarrow, which is small and needs nothing."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from mio2trace.dataset.columns import NULL, Data
from mio2trace.snapshot.database import INSTALL, NotInstalled

_LARGE = 1 << 31


class Stream:
    """What offers an Arrow array of rows as a stream of one batch."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import nanoarrow

        return nanoarrow.c_array_stream(self._rows).__arrow_c_stream__(requested_schema)


def codes(columns: Sequence[Data]) -> Stream:
    """Columns ``c0``, ``c1``, ...: flags as bytes, texts as places in their words."""
    return _stream({f"c{at}": _numbers(data) for at, data in enumerate(columns)}, columns)


def whole(columns: Mapping[str, Data]) -> Stream:
    """The columns by their names, as what they are."""
    convert = {"text": _texts, "flag": _flags}
    return _stream(
        {name: convert.get(data.column.kind, _numbers)(data) for name, data in columns.items()}, list(columns.values())
    )


def _nanoarrow() -> Any:
    try:
        import nanoarrow
    except ImportError:
        raise NotInstalled(f"this needs nanoarrow, which is not installed: {INSTALL}") from None
    return nanoarrow


def _stream(children: Mapping[str, Any], columns: Sequence[Data]) -> Stream:
    arrow = _nanoarrow()
    schema = arrow.struct({name: child.schema for name, child in children.items()})
    count = len(columns[0]) if columns else 0
    return Stream(arrow.c_array_from_buffers(schema, count, [None], children=list(children.values())))


def _numbers(data: Data) -> Any:
    arrow = _nanoarrow()
    kind = {"q": arrow.int64, "d": arrow.float64, "b": arrow.int8, "i": arrow.int32}[data.values.typecode]()
    return arrow.c_array_from_buffers(kind, len(data), [_validity(data), data.values])


def _flags(data: Data) -> Any:
    arrow = _nanoarrow()
    return arrow.c_array_from_buffers(arrow.bool_(), len(data), [_validity(data), bits(bytes(data.values))])


def _texts(data: Data) -> Any:
    arrow = _nanoarrow()
    words = [*(word.encode("utf-8", "replace") for word in data.words), b""]  # `NULL` is the last
    lengths = list(map(len, words))
    offsets: Iterable[int] = accumulate((lengths[code] for code in data.values), initial=0)
    text = b"".join([words[code] for code in data.values])
    large = len(text) >= _LARGE
    kind = arrow.large_string() if large else arrow.string()
    return arrow.c_array_from_buffers(kind, len(data), [_validity(data), array("q" if large else "i", offsets), text])


def _validity(data: Data) -> bytes | None:
    if data.column.kind == "text":
        if data.values.typecode != "i" or NULL not in data.values:
            return None
        return bits(bytes(code != NULL for code in data.values))
    return None if data.present is None else bits(bytes(data.present))


def bits(flags: bytes) -> bytes:
    """Bytes of 0 and 1 as a bitmap, the first in the lowest bit."""
    count = (len(flags) + 7) // 8
    packed = 0
    for bit in range(8):
        packed |= int.from_bytes(flags[bit::8], "little") << bit
    return packed.to_bytes(count, "little")
