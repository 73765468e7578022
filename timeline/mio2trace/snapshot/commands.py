"""Tables of commands and of calls in a snapshot: stored column by column like all records, but without making records.

`TABLES` has the class of the table by the class of its records. `columns` gives the columns of all tables of a class as
one, and `table_of` makes a table of what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mio2trace.model.profile import Activity, Call
from mio2trace.model.tables import KINDS, NO, Activities, Calls, Codes, Numbers, Pool, numbers

TABLES: Mapping[type, type[Activities | Calls]] = {Activity: Activities, Call: Calls}
RECORDS: Mapping[type, type] = {table: kind for kind, table in TABLES.items()}
WEIGHTS: Mapping[type, int] = {Activity: 4, Call: 1}
"""The records that each row stands for: a command, its call, what OpenCL records of it, and its resources."""


class Damaged(Exception):
    """The data was not written here as such a table."""


class RowsOf(NamedTuple):
    """A column whose values are rows of a table; -1 for none."""

    table: Calls
    rows: Codes

    def packed(self, number: Mapping[int, int]) -> list[int | None]:
        """The rows as numbers of records. ``number``: that of the table's first row, by the identity of the table."""
        start = number[id(self.table)]
        return [None if row < 0 else start + row for row in self.rows.tolist()]


Column = Numbers | Pool[Any] | RowsOf


def columns(kind: type, tables: Sequence[Activities | Calls]) -> dict[str, Column]:
    """Return the columns of all tables of a class, one after the other, by field."""
    found: dict[str, Column] = {}
    for field in kind.__struct_fields__:  # type: ignore[attr-defined]
        if field == "call":
            found[field] = _launched([table for table in tables if isinstance(table, Activities)])
        elif field == "kind":
            found[field] = _used([Pool(KINDS, table.kind.astype(np.int32)) for table in tables])  # type: ignore[union-attr]
        elif field == "range":
            places = np.concatenate([table.range for table in tables]).astype(np.int64)  # type: ignore[union-attr]
            found[field] = np.where(places < 0, NO, places)
        else:
            parts = [getattr(table, field) for table in tables]
            found[field] = _used(parts) if isinstance(parts[0], Pool) else np.concatenate(parts)
    return found


def length(column: Column | Sequence[Any]) -> int:
    """Return the number of rows."""
    return len(column.codes if isinstance(column, Pool) else column.rows if isinstance(column, RowsOf) else column)


def members(column: Column) -> Iterator[Any]:
    """The records, or the table, that a column refers to."""
    if isinstance(column, RowsOf):
        yield column.table
    elif isinstance(column, Pool):
        yield from (value for value in column.values if value is not None)


def _used(pools: Sequence[Pool[Any]]) -> Pool[Any]:
    """One pool of several, without values that no row has."""
    number: dict[Any, int] = {}
    codes = []
    for pool in pools:
        there = np.bincount(pool.codes, minlength=len(pool.values)) > 0
        new = [number.setdefault(value, len(number)) if is_there else -1
               for value, is_there in zip(pool.values, there.tolist(), strict=True)]  # fmt: skip
        codes.append(np.array(new, np.int32)[pool.codes] if new else pool.codes)
    return Pool(list(number), np.concatenate(codes))


def _launched(tables: Sequence[Activities]) -> RowsOf:
    """The calls that launched any of the commands."""
    own = [table.with_their_calls() for table in tables]
    starts = accumulate((len(table.calls) for table in own), initial=0)
    rows = [np.where(table.call < 0, -1, table.call + start) for table, start in zip(own, starts, strict=False)]
    calls = [table.calls for table in own]
    every: Calls = calls[0] if len(calls) == 1 else Calls.of_columns(sum(map(len, calls)), **columns(Call, calls))
    return RowsOf(every, np.concatenate(rows).astype(np.int32))


def held(
    kind: type, column: Sequence[int | None], earlier: Sequence[Any], starts: Mapping[int, int], where: str
) -> Column:
    """Return the column of the records of the class ``kind`` that have these numbers. Raises `Damaged` if one has no
    such record."""
    given = numbers(column, len(column))
    if kind in TABLES:
        launched = given != NO
        table, rows = _found(kind, given[launched], earlier, starts, where)
        used, row_of = np.unique(rows, return_inverse=True)
        places = np.full(len(given), -1, np.int32)
        places[launched] = row_of
        return RowsOf(table.take(used), places)
    distinct, codes = np.unique(given, return_inverse=True)
    records: list[Any] = []
    for number in distinct.tolist():
        if number != NO and (number >= len(earlier) or not isinstance(earlier[number], kind)):
            raise _no_record(number, where)
        records.append(None if number == NO else earlier[number])
    return Pool(records, codes.astype(np.int32))


def rows_of(
    kind: type, column: Sequence[int], earlier: Sequence[Any], starts: Mapping[int, int], where: str
) -> Activities | Calls:
    """Return the rows of a table that have these numbers. Raises `Damaged` if one has no such row."""
    table, rows = _found(kind, numbers(column, len(column)), earlier, starts, where)
    if np.array_equal(rows, np.arange(len(table))):
        return table  # type: ignore[no-any-return]
    some = table.take(rows)
    return some.with_their_calls() if isinstance(some, Activities) else some


def _found(
    kind: type, given: Numbers, earlier: Sequence[Any], starts: Mapping[int, int], where: str
) -> tuple[Any, Numbers]:
    """Return the table of these numbers of records, and their rows in it."""
    if not len(given):
        return TABLES[kind](), given
    first = int(given[0])
    table = earlier[first] if first < len(earlier) else None
    if not isinstance(table, TABLES[kind]):
        raise _no_record(first, where)
    rows = given - starts[id(table)]
    wrong = (rows < 0) | (rows >= len(table))
    if wrong.any():
        raise _no_record(int(given[wrong][0]), where)
    return table, rows


def _no_record(number: int, where: str) -> Damaged:
    return Damaged(f"{where} holds {number}, which is no record of its kind")


def table_of(kind: type, count: int, read: Mapping[str, Column]) -> Activities | Calls:
    """Return the table of ``count`` rows. A column that the file does not have is empty; raises `Damaged` if records
    need it."""
    missing = [one.name for one in msgspec.structs.fields(kind) if one.required and one.name not in read]
    if missing:
        raise Damaged(f"no {kind.__name__}.{missing[0]}, a number or name that every record has")
    given: dict[str, Any] = dict(read)
    if kind is Activity:
        call = given.pop("call", None)
        given["calls"], given["call"] = call or (Calls(), np.full(count, -1, np.int32))
        given["kind"] = np.array([KINDS.index(one) for one in given["kind"].values], np.int8)[given["kind"].codes]
        if "range" in given:
            places = np.where(given["range"] == NO, -1, given["range"])
            given["range"] = places.astype(np.int32)
            if (given["range"] != places).any():
                raise Damaged("a range of more than 32 bits")
    made: Activities | Calls = TABLES[kind].of_columns(count, **given)
    return made
