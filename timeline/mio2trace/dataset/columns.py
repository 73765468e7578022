"""Typed columns: the form of a table's cells before they become Parquet, Arrow or rows. A run may have a
million rows."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from mio2trace.model.columns import Column
from mio2trace.schema import TableSchema
from mio2trace.snapshot.database import INSTALL, NotInstalled

Value = TypeVar("Value", bound=Hashable)
NULL = -1
"""The code of an unknown text."""
_LARGEST = (1 << 63) - 1


class Data:
    """The values of a column. ``values``: int64, double or bytes (flags); for texts, places in ``words``, or `NULL`.

    ``present``: one byte per row, 0 if the value is unknown (``values`` then has 0); None if all are known, and for
    texts.
    """

    __slots__ = ("column", "present", "values", "words")

    def __init__(
        self, column: Column, values: array[Any], present: bytearray | None = None, words: Sequence[str] = ()
    ) -> None:
        self.column = column
        self.values = values
        self.present = present
        self.words = words

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> str | int | float | bool | None:
        value = self.values[row]
        if self.column.kind == "text":
            return None if value == NULL else self.words[value]
        if self.present is not None and not self.present[row]:
            return None
        return bool(value) if self.column.kind == "flag" else value

    def to_list(self) -> list[Any]:
        """Return all values; None is unknown."""
        if self.column.kind == "text":
            words = [*self.words, None]  # `NULL` is the last place
            return [words[code] for code in self.values]
        values = self.values.tolist() if self.column.kind != "flag" else list(map(bool, self.values))
        if self.present is None:
            return values
        return [value if there else None for value, there in zip(values, self.present, strict=True)]

    def first(self, count: int) -> Data:
        present = None if self.present is None else self.present[:count]
        return Data(self.column, self.values[:count], present, self.words)


def numbers(column: Column, values: Sequence[Any]) -> Data:
    """Return a column of numbers or flags. None is unknown; numbers of more than 64 bits become unknown."""
    code = {"int": "q", "float": "d", "flag": "b"}[column.kind]
    try:
        return Data(column, array(code, values))
    except (TypeError, OverflowError):
        present = bytearray(value is not None and abs(value) <= _LARGEST for value in values)
        known = [value if there else 0 for value, there in zip(values, present, strict=True)]
        if column.kind == "int":
            known = [int(value) for value in known]
        return Data(column, array(code, known), present)


def texts(column: Column, values: Iterable[str | None]) -> Data:
    """Return a column of texts; each distinct text is kept once."""
    code_of: dict[str | None, int] = {None: NULL}
    words: list[str] = []
    codes = array("i")
    for value in values:
        code = code_of.get(value)
        if code is None:
            assert value is not None
            code = code_of[value] = len(words)
            words.append(value)
        codes.append(code)
    return Data(column, codes, words=words)


def named(column: Column, keys: Sequence[Value], text_of: Mapping[Value, str | None]) -> Data:
    """Return a column of texts from keys; ``text_of`` maps each key to its text."""
    code_of: dict[Value, int] = {}
    words: dict[str, int] = {}
    for key, text in text_of.items():
        code_of[key] = NULL if text is None else words.setdefault(text, len(words))
    return Data(column, array("i", [code_of[key] for key in keys]), words=tuple(words))


def constant(column: Column, value: str | int | None, count: int) -> Data:
    if column.kind == "text":
        text = value if isinstance(value, str) else None
        return Data(column, array("i", [NULL if text is None else 0]) * count, words=() if text is None else (text,))
    number = 0 if value is None else int(value)
    return Data(column, array("q", [number]) * count, bytearray(count) if value is None else None)


def of_rows(schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> dict[str, Data]:
    """Return all columns of a table from its rows, which leave out unknown values."""
    return {
        column.name: (texts if column.kind == "text" else numbers)(column, [row.get(column.name) for row in rows])
        for column in schema.columns
    }


def joined(parts: Sequence[Mapping[str, Data]]) -> dict[str, Data]:
    """Join the rows of several tables of one schema, one table after the other."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _under([part[name] for part in parts]) for name in parts[0]}


def _under(parts: Sequence[Data]) -> Data:
    column = parts[0].column
    if column.kind == "text":
        return texts(column, (part[row] for part in parts for row in range(len(part))))  # type: ignore[misc]
    values = array(parts[0].values.typecode)
    for part in parts:
        values.extend(part.values)
    if all(part.present is None for part in parts):
        return Data(column, values)
    present = bytearray().join(part.present if part.present is not None else b"\1" * len(part) for part in parts)
    return Data(column, values, present)


# -- Columns as Arrow, through nanoarrow, which is small and has no dependencies ---------------------------------------

_LARGE = 1 << 31


class Stream:
    """An object that offers an Arrow array of rows as a stream of one batch."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import nanoarrow

        return nanoarrow.c_array_stream(self._rows).__arrow_c_stream__(requested_schema)


def arrow_codes(columns: Sequence[Data]) -> Stream:
    """Return columns ``c0``, ``c1``, ...: flags as bytes, texts as places in their words."""
    return _stream({f"c{at}": _numbers(data) for at, data in enumerate(columns)}, columns)


def arrow_table(columns: Mapping[str, Data]) -> Stream:
    """Return the columns under their names, with their final types."""
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
    words = [*(word.encode("utf-8", "replace") for word in data.words), b""]  # `NULL` is the last place
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
    """Pack bytes of 0 and 1 into a bitmap, the first one in the lowest bit."""
    count = (len(flags) + 7) // 8
    packed = 0
    for bit in range(8):
        packed |= int.from_bytes(flags[bit::8], "little") << bit
    return packed.to_bytes(count, "little")
