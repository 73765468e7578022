"""Records of the program as typed tables, one per class, and back; an object that several records share stays one
object.

A table has a list for each field. The type of the list is that of the field, and the decoder checks it. If the field
holds records, the list has their numbers, counted over all tables in the order of the file. Each table refers only to
earlier ones, so there are no cycles. Every value takes at least one byte. So a file cannot hold more than its bytes,
except by sharing, which `MOST_SHARED` limits.

The types of the fields determine which classes are possible, so a file cannot name any other class. Text that no output
may show (`mio2trace.privacy`) is left empty.

A column of whole numbers is bytes: one with the size of a number, then the numbers, little-endian.
A number takes as few bytes as the column allows, and at least one: so a file cannot hold more rows than bytes. Two
forms make some columns shorter. They begin with a mark and a number of eight bytes. After `_FIRST` and the first number
come the steps from each number to the next. After `_BASE` comes a number that was subtracted from all others.
"""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, reduce
from itertools import accumulate, chain
from operator import attrgetter, or_
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.model import tf
from mio2trace.model.miopen import Message
from mio2trace.model.profile import Activity, BufferCreated, Call
from mio2trace.model.tables import KINDS, NO, Activities, Calls, Codes, Numbers, Pool
from mio2trace.ops.log.statements import alarm_level
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.privacy import never_shown
from mio2trace.runs import Share

TABLES: Mapping[type, type[Activities | Calls]] = {Activity: Activities, Call: Calls}
RECORDS: Mapping[type, type] = {table: kind for kind, table in TABLES.items()}
WEIGHTS: Mapping[type, int] = {Activity: 4, Call: 1}
"""The records that each row stands for: a command, its call, what OpenCL records of it, and its resources."""


class Damaged(Exception):
    """The data was not written here as such a table."""


# -- Commands and calls ------------------------------------------------------------------------------------------------
#
# They are stored column by column like all records, but without making records. `TABLES` has the class of the table
# by the class of its records. `column_of` gives a column of all tables of a class as one, and `table_of` makes a
# table of what was read.


class RowsOf(NamedTuple):
    """A column whose values are rows of a table; -1 for none."""

    table: Calls
    rows: Codes

    def packed(self, number: Mapping[int, int]) -> Numbers:
        """The rows as numbers of records, `NO` for none. ``number``: that of the table's first row, by the identity of
        the table."""
        start = number[id(self.table)]
        return np.where(self.rows < 0, NO, self.rows.astype(np.int64) + start)


Column = Numbers | Pool[Any] | RowsOf


def column_of(field: str, tables: Sequence[Activities | Calls]) -> Column:
    """Return a column of all tables of a class, one after the other."""
    if field == "call":
        return _launched([table for table in tables if isinstance(table, Activities)])
    if field == "kind":
        return _used([Pool(KINDS, table.kind.astype(np.int32)) for table in tables])  # type: ignore[union-attr]
    if field == "range":
        places = _together([table.range for table in tables])  # type: ignore[union-attr]
        return np.where(places < 0, NO, places.astype(np.int64))
    parts = [getattr(table, field) for table in tables]
    return _used(parts) if isinstance(parts[0], Pool) else _together(parts)


def _together(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


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
        there = np.zeros(len(pool.values), bool)
        there[pool.codes] = True
        new = [number.setdefault(value, len(number)) if is_there else -1
               for value, is_there in zip(pool.values, there.tolist(), strict=True)]  # fmt: skip
        is_same = new == list(range(len(new)))
        codes.append(pool.codes if is_same else np.array(new, np.int32)[pool.codes])
    return Pool(list(number), _together(codes))


def _launched(tables: Sequence[Activities]) -> RowsOf:
    """The calls that launched any of the commands."""
    own = [table.with_their_calls() for table in tables]
    starts = accumulate((len(table.calls) for table in own), initial=0)
    rows = [np.where(table.call < 0, -1, table.call + start) for table, start in zip(own, starts, strict=False)]
    calls = [table.calls for table in own]
    every: Calls = calls[0]
    if len(calls) > 1:
        columns = {field: column_of(field, calls) for field in Call.__struct_fields__}
        every = Calls.of_columns(sum(map(len, calls)), **columns)
    return RowsOf(every, np.concatenate(rows).astype(np.int32))


def held(kind: type, given: Numbers, earlier: Sequence[Any], starts: Mapping[int, int], where: str) -> Column:
    """Return the column of the records of the class ``kind`` that have these numbers. Raises `Damaged` if one has no
    such record."""
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
        if number != NO and not (0 <= number < len(earlier) and isinstance(earlier[number], kind)):
            raise _no_record(number, where)
        records.append(None if number == NO else earlier[number])
    return Pool(records, codes.astype(np.int32))


def rows_of(
    kind: type, given: Numbers, earlier: Sequence[Any], starts: Mapping[int, int], where: str
) -> Activities | Calls:
    """Return the rows of a table that have these numbers. Raises `Damaged` if one has no such row."""
    table, rows = _found(kind, given, earlier, starts, where)
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
    table = earlier[first] if 0 <= first < len(earlier) else None
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


MOST_SHARED = 100
"""The most occurrences of records per record of the file; each counts as often as others refer to it."""
_LEFT_OUT: Mapping[type, frozenset[str]] = {
    OperationFacts: frozenset({"parameters"}),
    Operation: frozenset({"addresses", "arguments"}),
}
"""Addresses, and other fields that are not needed after joining."""
_OTHER_NAMES: Mapping[type, str] = {tf.Execution: "TfExecution", Share: "KeptShare"}
"""Classes that have another name in a file."""
_NUMBERED: Mapping[type, str] = {BufferCreated: "handle"}
"""Fields whose values are only compared for equality."""
_WHOLE = int, int | None
_Number = Annotated[int, msgspec.Meta(ge=0)]


class Table(msgspec.Struct, frozen=True, array_like=True):
    """All records of a class, encoded."""

    part: str
    data: bytes | bytearray


# -- writing -----------------------------------------------------------------------------------------------------------


def to_tables(root: msgspec.Struct) -> list[Table]:
    """Return ``root`` and all records in it as tables. Raises OverflowError for a number of more than 64 bits."""
    order = _in_order(type(root))
    met: dict[type, dict[int, Any]] = {type(root): {id(root): root}}
    columns: dict[tuple[type, str], Any] = {}
    for kind in reversed(order):  # every class that refers to this one comes before it
        records = list(met.get(kind, {}).values())
        is_table = kind in TABLES and bool(records)
        for field in _fields(kind):
            if is_table and field.holds is None:
                continue  # made when it is written: it may be as large as all of the file
            # Read once: the members of a sequence may be made on each access.
            values: Any = column_of(field.name, records) if is_table else field.values(records)
            columns[kind, field.name] = values
            if field.holds is not None:
                for record in members(values) if is_table else field.holds.members(values):
                    met.setdefault(RECORDS.get(type(record), type(record)), {}).setdefault(id(record), record)
    number: dict[int, int] = {}
    count = 0
    tables = []
    for kind in order:
        records = list(met.get(kind, {}).values())
        sizes = [len(record) if kind in TABLES else 1 for record in records]
        number.update(zip(map(id, records), accumulate(sizes, initial=count), strict=False))
        count += sum(sizes)
        if not sum(sizes):
            continue
        packed = (
            (field.name, field.packed(_taken(columns, kind, field.name, records), number)) for field in _fields(kind)
        )
        tables.append(Table(name_of(kind), _mapping(len(_fields(kind)), packed)))
    return tables


def _taken(columns: dict[tuple[type, str], Any], kind: type, field: str, records: Sequence[Any]) -> Any:
    return columns.pop((kind, field)) if (kind, field) in columns else column_of(field, records)


def _mapping(count: int, items: Iterable[tuple[str, Any]]) -> bytearray:
    """Encode a mapping of fewer than 2^16 items, one after the other, so that each can be let go."""
    data = bytearray((0xDE, *count.to_bytes(2, "big")))
    for name, value in items:
        data += _encode(name)
        data += _encode(value)
    return data


def _hooked(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return packed(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | AbstractSet | array):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be kept")


_encode = msgspec.msgpack.Encoder(enc_hook=_hooked).encode


# -- reading -----------------------------------------------------------------------------------------------------------


def from_tables(root: type[msgspec.Struct], tables: Iterable[Table]) -> Any:
    """Return the one record of the class ``root``. Raises `Damaged`, or errors of the decoder or of a class."""
    classes = classes_in(root)
    order = {kind: at for at, kind in enumerate(_in_order(root))}
    last = -1
    records: list[Any] = []
    weights: list[int] = []
    starts: dict[int, int] = {}
    for table in tables:
        kind = classes.get(table.part)
        if kind is None:
            raise Damaged(f"records of {table.part!r}, of which there are none")
        if order[kind] <= last:
            raise Damaged(f"a table of {table.part!r} out of order")
        last = order[kind]
        made, sizes = _records(kind, table.data, records, weights, starts)
        records += made
        weights += sizes
    if not records or type(records[-1]) is not root or (len(records) > 1 and type(records[-2]) is root):
        raise Damaged(f"not one record of {name_of(root)!r}")
    if weights[-1] > MOST_SHARED * len(records) + 1000:
        raise Damaged(f"{len(records)} records that stand for {weights[-1]}")
    return records[-1]


def _records(
    kind: type[msgspec.Struct],
    data: bytes | bytearray,
    earlier: Sequence[Any],
    weights: Sequence[int],
    starts: dict[int, int],
) -> tuple[list[Any], list[int]]:
    """Return all records of a class, and the weight of each. A field that is missing in the file gets its default.

    A row of a table of commands or calls is the table itself, and ``starts`` has the number of its first row.
    """
    columns = msgspec.msgpack.decode(data, type=_wire(kind))
    values: dict[str, Any] = {}
    heavy: list[list[int]] = []
    for field in _fields(kind):
        column = getattr(columns, field.name)
        if column is None:
            continue
        where = f"{kind.__name__}.{field.name}"
        if kind in TABLES:
            values[field.name] = field.column(column, earlier, starts, where)
        elif field.holds is not None:
            values[field.name] = field.holds.restored(column, earlier, starts, where)
            heavy.append(field.holds.weights(column, values[field.name], weights))
        else:
            values[field.name] = field.unpacked(column, where)
    lengths = set(map(length, values.values()))
    if len(lengths) != 1:
        raise Damaged(f"columns of {kind.__name__} of different lengths")
    if kind in TABLES:
        table = table_of(kind, lengths.pop(), values)
        starts[id(table)] = len(earlier)
        return [table] * len(table), [WEIGHTS[kind]] * len(table)
    sizes = [1 + sum(row) for row in zip(*heavy, strict=True)]
    names = list(values)
    positional = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if positional[: len(names)] == names:
        made = list(map(kind, *values.values()))
    else:
        made = [kind(**dict(zip(names, row, strict=True))) for row in zip(*values.values(), strict=True)]
    return made, sizes or [1] * len(made)


# -- fields ----------------------------------------------------------------------------------------------------------


class _Coded(msgspec.Struct, frozen=True):
    """Values of which many are equal: the distinct values, and for each row the place of its value."""

    words: list[Any]
    codes: list[_Number]


class _Holds(NamedTuple):
    """How a field holds records of ``kinds``: one, or tuples (within tuples: ``depth``), or a mapping, or a table."""

    kinds: tuple[type, ...]
    depth: int = 0
    is_mapping: bool = False
    is_table: bool = False

    def members(self, values: Iterable[Any]) -> Iterator[Any]:
        """Return all records in the values of the field."""
        if self.is_mapping:
            return chain.from_iterable(value.values() for value in values)
        for _ in range(self.depth):
            values = chain.from_iterable(values)
        return (value for value in values if value is not None)

    def swapped(self, values: Iterable[Any], get: Callable[[Any], Any]) -> list[Any]:
        """Return the values with each record replaced by the result of ``get``."""
        if self.is_mapping:
            return [{key: get(one) for key, one in value.items()} for value in values]

        def inside(value: Any, depth: int) -> Any:
            if depth > 1:
                return tuple(inside(one, depth - 1) for one in value)
            return tuple(map(get, value)) if depth else None if value is None else get(value)

        return [inside(value, self.depth) for value in values]

    def weights(self, column: Sequence[Any], restored: Sequence[Any], known: Sequence[int]) -> list[int]:
        """Return the weight of all records of each row. ``known``: that of each record, by its number."""
        if self.is_table:
            return [WEIGHTS[self.kinds[0]] * len(table) for table in restored]
        return [sum(map(known.__getitem__, self.members([value]))) for value in column]

    def restored(
        self, column: Sequence[Any], earlier: Sequence[Any], starts: Mapping[int, int], where: str
    ) -> list[Any]:
        """Raises `Damaged` if a number refers to no earlier record, or to a record of another class."""
        if self.is_table:
            return [rows_of(self.kinds[0], unpacked(value), earlier, starts, where) for value in column]
        for number in set(self.members(column)):
            if number >= len(earlier) or not isinstance(earlier[number], self.kinds):
                raise _no_record(number, where)
        return self.swapped(column, earlier.__getitem__)


class _Field(NamedTuple):
    """A field of a stored record."""

    kind: type
    name: str
    hint: Any
    holds: _Holds | None
    is_coded: bool
    left_out: bool

    @property
    def wire(self) -> Any:
        if self.kind in TABLES:
            if self.holds is not None:
                return bytes
            return bytes if self.hint in _WHOLE else _coded(_of_decoder(self.hint), bytes)
        if self.holds is None:
            if self.hint in _WHOLE:
                return bytes
            inside = _of_decoder(self.hint)
            return _coded(inside, list[_Number]) if self.is_coded else GenericAlias(list, (inside,))
        if self.holds.is_table:
            return list[bytes]
        if self.holds.is_mapping:
            return GenericAlias(list, (GenericAlias(dict, (get_args(self.hint)[0], _Number)),))
        one: Any = _Number | None if NoneType in get_args(self.hint) else _Number
        for _ in range(self.holds.depth):
            one = GenericAlias(tuple, (one, Ellipsis))
        return GenericAlias(list, (one,))

    def values(self, records: Sequence[Any]) -> list[Any]:
        """Return the values in stored form; records stay as they are."""
        values = list(map(attrgetter(self.name), records))
        if self.name == _NUMBERED.get(self.kind):
            known: dict[str, int] = {}
            values = [str(known.setdefault(value, len(known))) for value in values]
        elif self.kind is Message and self.name == "text":
            # outputs show errors, warnings, and the machine's lines
            is_shown = (one.kind in ("version", "device") or alarm_level(one) is not None for one in records)
            values = [text if shown else "" for text, shown in zip(values, is_shown, strict=True)]
        elif self.left_out:
            values = [type(value)() if isinstance(value, str | bytes | tuple) else None for value in values]
        elif self.holds is not None and self.holds.depth == 1:
            values = list(map(tuple, values))
        return values

    def packed(self, values: Any, number: Mapping[int, int]) -> Any:
        if isinstance(values, RowsOf):
            return values.packed(number)
        if isinstance(values, Pool):
            if self.holds is None:
                return {"words": list(values.values), "codes": values.codes}
            records = [NO if record is None else number[id(record)] for record in values.values]
            return np.array(records, np.int64)[values.codes]
        if isinstance(values, np.ndarray):
            return values
        if self.holds is not None and self.holds.is_table:
            return [np.arange(len(table)) + number[id(table)] for table in values]
        if self.holds is not None:
            return self.holds.swapped(values, lambda record: number[id(record)])
        if self.is_coded:
            numbers = {word: at for at, word in enumerate(dict.fromkeys(values))}
            return _Coded(list(numbers), list(map(numbers.__getitem__, values)))
        if self.hint in _WHOLE:
            return np.array([NO if value is None else value for value in values], np.int64)
        return values

    def column(self, column: Any, earlier: Sequence[Any], starts: Mapping[int, int], where: str) -> Column:
        """Return the column of a table. Raises `Damaged` as `unpacked` and `_Holds.restored`."""
        if self.holds is not None:
            return held(self.holds.kinds[0], unpacked(column), earlier, starts, where)
        if isinstance(column, bytes):
            return self._numbers(column, where)
        codes = unpacked(column.codes)
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(column.words):
            raise Damaged(f"{where}: a code out of range")
        return Pool(column.words, codes.astype(np.int32))

    def _numbers(self, column: bytes, where: str) -> Numbers:
        values = unpacked(column)
        if self.hint is int and NO in values:
            raise Damaged(f"{where} is no number")
        return values

    def unpacked(self, column: Any, where: str) -> list[Any]:
        if self.hint in _WHOLE:
            return [None if number == NO else number for number in self._numbers(column, where).tolist()]
        if not self.is_coded:
            return list(column)
        words = column.words
        if any(_is_mixed(word) for word in words):
            raise Damaged(f"{where} is of several types")
        return [words[code] for code in column.codes]


def _is_mixed(value: object) -> bool:
    """Return whether a value is a tuple of tuples and numbers, whose type the decoder cannot decide."""
    return isinstance(value, tuple) and any(
        isinstance(one, tuple) and len(set(map(type, one))) > 1 and tuple in map(type, one) for one in value
    )


@cache
def _coded(inside: Any, codes: Any) -> Any:
    return msgspec.defstruct("Coded", [("words", list[inside]), ("codes", codes)], frozen=True)


@cache
def _wire(kind: type[msgspec.Struct]) -> Any:
    columns = [(field.name, field.wire | None, None) for field in _fields(kind)]
    return msgspec.defstruct(name_of(kind), columns, forbid_unknown_fields=True, kw_only=True)


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    hints, left_out = _hints(kind), never_shown(kind) | _LEFT_OUT.get(kind, frozenset())
    return tuple(
        _Field(kind, name, hints[name], _holds(hints[name]), _is_coded(hints[name]), name in left_out)
        for name in kind.__struct_fields__
    )


def _holds(hint: Any) -> _Holds | None:
    kinds = tuple(_records_in(hint))
    if not kinds:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Sequence and kinds[0] in TABLES:
        return _Holds(kinds, is_table=True)
    if origin in (tuple, Sequence):
        return _Holds(kinds, depth=1 + (get_origin(arguments[0]) in (tuple, Sequence)))
    return _Holds(kinds, is_mapping=origin is Mapping)


def _is_coded(hint: Any) -> bool:
    """Return whether a field has few distinct values: texts and tuples. Equal floats may still differ (-0.0)."""
    scalars = set(_scalars_in(hint))
    return (
        get_origin(hint) is not Mapping
        and bool(scalars)
        and scalars <= {str, bytes, tuple, NoneType, int, bool}
        and (str in scalars or bytes in scalars or tuple in scalars)
    )


def _scalars_in(hint: Any) -> Iterator[type]:
    origin = get_origin(hint)
    if origin is Literal:
        yield from map(type, get_args(hint))
    elif origin in (Union, UnionType):
        yield from chain.from_iterable(map(_scalars_in, get_args(hint)))
    elif origin in (tuple, Sequence):
        yield tuple
        yield from chain.from_iterable(_scalars_in(one) for one in get_args(hint) if one is not Ellipsis)
    elif origin is None:
        yield NoneType if hint is None else hint
    else:
        yield origin


def _of_decoder(hint: Any) -> Any:
    """Return ``hint`` in a form for the decoder, which cannot distinguish two kinds of tuples (`_is_mixed`)."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return GenericAlias(tuple, tuple(one if one is Ellipsis else _of_decoder(one) for one in arguments))
    tuples = [one for one in arguments if get_origin(one) is tuple]
    if origin in (Union, UnionType) and len(tuples) > 1:
        inside = reduce(or_, [get_args(one)[0] for one in tuples])
        others = [one for one in arguments if one not in tuples]
        return reduce(or_, [GenericAlias(tuple, (inside, Ellipsis)), *others])
    return hint


# -- classes ---------------------------------------------------------------------------------------------------------


def look_at_all(root: type[msgspec.Struct]) -> None:
    """Inspect all classes of records that one of ``root`` may hold: this takes as long as writing a small run."""
    for kind in _in_order(root):
        _fields(kind)


@cache
def classes_in(root: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """Return the classes of all records that one of ``root`` may hold, by name."""
    return {name_of(kind): kind for kind in _in_order(root)}


@cache
def _in_order(root: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return the same classes, each after all classes to which its records may refer. Raises TypeError if that is
    impossible."""
    order: dict[type[msgspec.Struct], bool] = {}
    names: dict[str, type] = {}

    def add(kind: type[msgspec.Struct]) -> None:
        if kind in order:
            if not order[kind]:
                raise TypeError(f"{kind} refers to itself")
            return
        if names.setdefault(name_of(kind), kind) is not kind:
            raise TypeError(f"two classes are called {name_of(kind)}: {kind} needs another name")
        order[kind] = False
        for hint in _hints(kind).values():
            for inner in _records_in(hint):
                add(inner)
                _add_subclasses(inner)
        del order[kind]
        order[kind] = True

    def _add_subclasses(kind: type[msgspec.Struct]) -> None:
        for inner in kind.__subclasses__():
            add(inner)
            _add_subclasses(inner)

    add(root)
    return list(order)


def name_of(kind: type) -> str:
    """Return the name of a class in a file, independent of its module."""
    return _OTHER_NAMES.get(kind, kind.__name__)


def _records_in(hint: Any) -> list[type[msgspec.Struct]]:
    if get_origin(hint) is ClassVar:
        return []
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [kind for argument in get_args(hint) for kind in _records_in(argument)]


_SIZES = (1, 2, 4, 8)
_BASE, _FIRST = 0x10, 0x20
_HEAD = 9
"""Bytes of a mark and its number."""


def _unknown(size: int) -> int:
    """Return the smallest number of ``size`` bytes, which stands for `NO`."""
    return -(1 << (8 * size - 1))


class _Form(NamedTuple):
    """How numbers are written. ``span``: the largest number less the least one. ``length``: the number of bytes.
    ``is_known``: which numbers are known, None if all are."""

    size: int
    base: int
    span: int
    length: int
    is_known: NDArray[np.bool_] | None

    def written(self, column: NDArray[np.signedinteger]) -> tuple[bytes, memoryview]:
        made = column if not self.base else column - self.base
        if self.is_known is not None:
            made = np.where(self.is_known, made, _unknown(self.size))
        head = _head(_BASE, self.base) if self.base else b""
        return head + bytes([self.size]), made.astype(f"<i{self.size}").data


def _head(mark: int, number: int) -> bytes:
    return bytes([mark]) + number.to_bytes(8, "little", signed=True)


def _size(least: int, most: int) -> int:
    return next(size for size in _SIZES if _unknown(size) < least and most <= -1 - _unknown(size))


def _form(column: NDArray[np.signedinteger]) -> _Form:
    least, most, is_known = 0, 0, None
    if len(column):
        least, most = int(column.min()), int(column.max())
    if least == NO:
        is_known = column != NO
        least = int(column.min(initial=most, where=is_known)) if most != NO else 0
        most = max(least, most)
    middle = (least + most) // 2
    plain, moved = (
        _Form(size, base, most - least, head + 1 + size * len(column), is_known)
        for size, base, head in ((_size(least, most), 0, 0), (_size(least - middle, most - middle), middle, _HEAD))
    )
    return moved if moved.length < plain.length else plain


def packed(column: NDArray[np.integer]) -> bytes:
    """Return the numbers, of which `NO` is unknown."""
    signed: NDArray[np.signedinteger] = column if column.dtype.kind == "i" else column.astype(np.int64)  # type: ignore[assignment]
    form = _form(signed)
    if form.size > 1 and form.is_known is None and form.span < 1 << (8 * signed.itemsize - 1):
        steps = np.diff(signed)
        of_steps = _form(steps)
        if _HEAD + of_steps.length < form.length:
            return b"".join((_head(_FIRST, int(signed[0])), *of_steps.written(steps)))
    return b"".join(form.written(signed))


def unpacked(data: bytes) -> Numbers:
    """Return the numbers; `NO` is unknown. Raises ValueError for bytes that are no column."""
    if data[:1] != bytes([_FIRST]):
        return _based(data, 0)
    steps = _based(data, _HEAD)
    numbers = np.full(1 + len(steps), _number(data, 0))
    numbers[1:] += np.cumsum(steps)
    return numbers


def _based(data: bytes, at: int) -> Numbers:
    """Return the numbers behind the place ``at``, which are no steps."""
    has_base = data[at : at + 1] == bytes([_BASE])
    start = at + _HEAD if has_base else at
    size = data[start] if start < len(data) else 0
    if size not in _SIZES:
        raise ValueError(f"numbers of {size} bytes")
    column = np.frombuffer(data, f"<i{size}", offset=start + 1)
    numbers = column.astype(np.int64)
    if has_base:
        numbers += _number(data, at)
    numbers[column == _unknown(size)] = NO
    return numbers


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 1 : at + _HEAD], "little", signed=True)
