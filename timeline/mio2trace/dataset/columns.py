"""Typed columns: the form of a table's cells before they become Parquet, Arrow or rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mio2trace.model.columns import Column
from mio2trace.model.tables import NO, Numbers, Pool
from mio2trace.schema import TableSchema
from mio2trace.snapshot.database import INSTALL, NotInstalled

NULL = -1
"""The code of an unknown text."""
_LARGEST = (1 << 63) - 1
_TYPES = {"int": np.int64, "float": np.float64, "flag": np.int8}


class Data:
    """The values of a column. ``values``: int64, double or bytes (flags); for texts, int32 places in ``words``, or
    `NULL`.

    ``present``: False where the value is unknown (``values`` then has 0); None if all are known, and for texts.
    """

    __slots__ = ("column", "present", "values", "words")

    def __init__(
        self,
        column: Column,
        values: NDArray[Any],
        present: NDArray[np.bool_] | None = None,
        words: Sequence[str] = (),
    ) -> None:
        self.column = column
        self.values = np.ascontiguousarray(values)
        self.present = present
        self.words = words

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> str | int | float | bool | None:
        found: str | int | float | bool | None = Data(
            self.column, self.values[[row]], None if self.present is None else self.present[[row]], self.words
        ).to_list()[0]
        return found

    def to_list(self) -> list[Any]:
        """Return all values; None is unknown."""
        values: list[Any] = self.values.tolist()
        if self.column.kind == "text":
            words = [*self.words, None]  # `NULL` is the last place
            return [words[code] for code in values]
        if self.column.kind == "flag":
            values = list(map(bool, values))
        if self.present is None:
            return values
        return [value if there else None for value, there in zip(values, self.present.tolist(), strict=True)]

    def first(self, count: int) -> Data:
        present = None if self.present is None else self.present[:count]
        return Data(self.column, self.values[:count], present, self.words)


def numbers(column: Column, values: Sequence[Any]) -> Data:
    """Return a column of numbers or flags. None is unknown; numbers of more than 64 bits become unknown."""
    kind = _TYPES[column.kind]
    present = None
    if None in values or (column.kind == "int" and any(abs(value) > _LARGEST for value in values)):
        present = np.array([value is not None and abs(value) <= _LARGEST for value in values], bool)
        values = [value if there else 0 for value, there in zip(values, present.tolist(), strict=True)]
    return Data(column, np.array(values, kind), present)


def of_numbers(column: Column, values: Numbers) -> Data:
    """Return a column of whole numbers; `NO` is unknown."""
    present = values != NO
    return Data(column, np.where(present, values, 0), None if present.all() else present)


def texts(column: Column, values: Iterable[str | None]) -> Data:
    """Return a column of texts; each distinct text is kept once."""
    return of_pool(column, Pool.of(values))


def of_pool(column: Column, pool: Pool[Any]) -> Data:
    """Return a column of texts, None for those that are unknown. The pool's need not be distinct, nor occur."""
    return of_places(column, pool.codes, pool.values)


def of_places(column: Column, places: NDArray[np.integer[Any]], values: Sequence[str | None]) -> Data:
    """As `of_pool`; the place -1 is the last of ``values``."""
    occurs = np.zeros(len(values), bool)
    occurs[places] = True
    code_of: dict[str, int] = {}
    codes = np.array(
        [
            NULL if text is None or not there else code_of.setdefault(text, len(code_of))
            for text, there in zip(values, occurs.tolist(), strict=True)
        ],
        np.int32,
    )
    return Data(column, codes[places], words=tuple(code_of))


def constant(column: Column, value: str | int | None, count: int) -> Data:
    if column.kind == "text":
        text = value if isinstance(value, str) else None
        return of_pool(column, Pool.same(text, count))
    return of_numbers(column, np.full(count, NO if value is None else int(value)))


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
        words: list[str | None] = []
        codes = []
        for part in parts:
            codes.append(np.where(part.values == NULL, 0, part.values + len(words) + 1))
            words += part.words
        return of_places(column, np.concatenate(codes), [None, *words])
    present = [np.ones(len(part), bool) if part.present is None else part.present for part in parts]
    there = np.concatenate(present)
    return Data(column, np.concatenate([part.values for part in parts]), None if there.all() else there)


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
    kind = {"q": arrow.int64, "l": arrow.int64, "d": arrow.float64, "b": arrow.int8, "i": arrow.int32}[
        data.values.dtype.char
    ]()
    return arrow.c_array_from_buffers(kind, len(data), [_validity(data), data.values])


def _flags(data: Data) -> Any:
    arrow = _nanoarrow()
    return arrow.c_array_from_buffers(arrow.bool_(), len(data), [_validity(data), bits(data.values)])


def _texts(data: Data) -> Any:
    arrow = _nanoarrow()
    words = [*(word.encode("utf-8", "replace") for word in data.words), b""]  # `NULL` is the last place
    lengths = list(map(len, words))
    codes = data.values.tolist()
    offsets: Iterable[int] = accumulate((lengths[code] for code in codes), initial=0)
    text = b"".join([words[code] for code in codes])
    large = len(text) >= _LARGE
    kind = arrow.large_string() if large else arrow.string()
    return arrow.c_array_from_buffers(kind, len(data), [_validity(data), array("q" if large else "i", offsets), text])


def _validity(data: Data) -> bytes | None:
    present = data.values != NULL if data.column.kind == "text" else data.present
    return None if present is None or present.all() else bits(present)


def bits(flags: NDArray[Any]) -> bytes:
    """Pack flags into a bitmap, the first one in the lowest bit."""
    return np.packbits(flags.astype(bool), bitorder="little").tobytes()
