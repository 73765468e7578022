"""Records of the program as typed tables, one per class, and back; an object that several records share stays one
object.

A table has a list for each field. The type of the list is that of the field, and the decoder checks it. If the field
holds records, the list has their numbers, counted over all tables in the order of the file. Each table refers only to
earlier ones, so there are no cycles. Every value takes at least one byte. So a file cannot hold more than its bytes,
except by sharing, which `MOST_SHARED` limits.

The types of the fields determine which classes are possible, so a file cannot name any other class. Text that no output
may show (`mio2trace.privacy`) is left empty.

A column of whole numbers is bytes: one with the size of a number, then the numbers, little-endian.
A number takes as few bytes as the column allows, and at least one: so a file cannot hold more rows than bytes. If it is
shorter, the column is the mark `_STEPS`, the first number in eight bytes, and the steps from each number to the next.
"""

from __future__ import annotations

import inspect
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, reduce
from itertools import chain
from operator import attrgetter, or_
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import LayerRun, Links, Pass
from mio2trace.align.links import Words
from mio2trace.evidence import Evidence
from mio2trace.model import tf
from mio2trace.model.miopen import Message
from mio2trace.model.profile import Activity, BufferCreated, Call
from mio2trace.model.tables import KINDS, NO, Activities, Calls, Codes, Numbers, Pool
from mio2trace.ops.log.statements import alarm_level
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.privacy import never_shown
from mio2trace.runs import Share


class Damaged(Exception):
    """The data was not written here as such a table."""


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


PIECE = 1 << 20
"""Bytes. Tables are made and kept in pieces of this size: the columns of ten million rows take half a GB, and to copy
them all at once would take as much again."""


class Table(NamedTuple):
    """All records of a class, encoded."""

    part: str
    pieces: Sequence[bytes | memoryview]

    @property
    def data(self) -> bytes:
        """All pieces, one after the other."""
        return b"".join(self.pieces)


# -- Commands, calls and links -----------------------------------------------------------------------------------------
#
# What has columns is one record, a *form*, with a field for each of them. Whole numbers are bytes, as everywhere. Of
# other values the distinct ones are stored and, as bytes, of each row the place of its value among them, -1 for none.

_PLACES = ("call", "range")


def _form_of(table: type[Activities | Calls], *more: tuple[str, Any]) -> type[msgspec.Struct]:
    columns: list[Any] = [*more]
    hints = get_type_hints(table.of)
    for field in msgspec.structs.fields(table.of):
        hint, default = hints[field.name], () if field.required else (b"",)
        if hint in _WHOLE or field.name in _PLACES:
            columns.append((field.name, bytes, *default))
            continue
        if NoneType in get_args(hint):
            hint = reduce(or_, [one for one in get_args(hint) if one is not NoneType])
        columns += [(field.name, GenericAlias(tuple, (hint, Ellipsis)), ()), (f"{field.name}_of", bytes, *default)]
    return msgspec.defstruct(table.__name__, columns, frozen=True, kw_only=True)


_CALLS = _form_of(Calls)
_ACTIVITIES = _form_of(Activities, ("calls", _CALLS))


class KeptLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Links, except how they were found."""

    activities: Sequence[Activity]
    operations: tuple[Operation, ...]
    runs: tuple[LayerRun, ...]
    passes: tuple[Pass, ...]
    contradictions: Mapping[str, int]
    pass_of: bytes
    run_of: bytes
    layer_by: tuple[Evidence | Literal[""], ...]
    layer_by_of: bytes
    layer_confidence: Mapping[int, float]
    layer_unsure: frozenset[int]
    operation_of: bytes
    operation_by: tuple[Evidence | Literal[""], ...]
    operation_by_of: bytes
    operation_confidence: Mapping[int, float]
    operation_unsure: frozenset[int]


_FORMS: Mapping[Any, type[msgspec.Struct]] = {Sequence[Call]: _CALLS, Sequence[Activity]: _ACTIVITIES, Links: KeptLinks}
_FORMED: Mapping[Any, type[Activities | Calls | Links]] = {_CALLS: Calls, _ACTIVITIES: Activities, KeptLinks: Links}


def _stored(whole: Activities | Calls | Links) -> msgspec.Struct:
    """Return the form. Numbers become bytes when they are written: they may be as large as all else."""
    if isinstance(whole, Activities):
        whole = whole.with_their_calls()
    form = next(form for form, kind in _FORMED.items() if isinstance(whole, kind))
    cells: dict[str, Any] = {}
    for field in form.__struct_fields__:
        if field in cells or (column := getattr(whole, field, None)) is None:
            continue
        if isinstance(column, Words):
            column = column.pool
        elif field == "kind":
            column = Pool(KINDS, column)
        if isinstance(column, Pool):
            is_used = np.zeros(len(column.values), bool)
            is_used[column.codes] = True
            known: dict[Any, int] = {}
            places = [
                known.setdefault(value, len(known)) if used and value is not None else -1
                for value, used in zip(column.values, is_used.tolist(), strict=True)
            ]
            cells[field], cells[f"{field}_of"] = tuple(known), packed(np.array(places, np.int32)[column.codes])
        else:
            cells[field] = np.asarray(column) if isinstance(column, array) else column
    made: msgspec.Struct = form(**cells)
    return made


def _restored(form: Any) -> Activities | Calls | Links:
    """Return what a form is of. Raises `Damaged`."""
    if not isinstance(form, KeptLinks):
        return _table_of(form)
    cells = {name: getattr(form, name) for name in KeptLinks.__struct_fields__ if not name.endswith("_of")}
    for name in ("pass_of", "run_of", "operation_of"):
        cells[name] = _places(getattr(form, name), -1, 1 << 31, name)
    for name in ("layer_by", "operation_by"):
        cells[name] = Pool(cells[name], _places(getattr(form, f"{name}_of"), 0, len(cells[name]), name))
    return Links.restored(**cells)


def _table_of(form: Any) -> Activities | Calls:
    table = Activities if isinstance(form, _ACTIVITIES) else Calls
    columns: dict[str, Any] = {}
    hints = get_type_hints(table.of)
    for field in msgspec.structs.fields(table.of):
        name, hint, where = field.name, hints[field.name], f"{table.__name__}.{field.name}"
        is_pool = hasattr(form, f"{name}_of")
        data = getattr(form, f"{name}_of" if is_pool else name)
        if not data and not field.required:
            continue
        if is_pool:
            words: tuple[Any, ...] = getattr(form, name)
            codes = _places(data, -1 if NoneType in get_args(hint) else 0, len(words), where)
            is_none = codes < 0
            if is_none.any():
                words, codes = (*words, None), np.where(is_none, np.int32(len(words)), codes)
            columns[name] = Pool(words, codes)
        elif name in _PLACES:
            columns[name] = _places(data, -1, len(form.calls) if name == "call" else 1 << 31, where)
        else:
            columns[name] = _known(data, hint, where)
    lengths = {len(one.codes if isinstance(one, Pool) else one) for one in columns.values()}
    if len(lengths) != 1:
        raise Damaged(f"columns of {table.__name__} of different lengths")
    if table is Activities:
        columns["calls"] = form.calls
        kinds = columns["kind"]
        columns["kind"] = np.array([KINDS.index(one) for one in kinds.values], np.int8)[kinds.codes]
    made: Activities | Calls = table.of_columns(lengths.pop(), **columns)
    return made


def _places(data: bytes, least: int, count: int, where: str) -> Codes:
    codes = unpacked(data)
    if len(codes) and not least <= codes.min() <= codes.max() < count:
        raise Damaged(f"{where}: a place out of range")
    return codes.astype(np.int32)


# -- writing -----------------------------------------------------------------------------------------------------------


def to_tables(root: msgspec.Struct) -> list[Table]:
    """Return ``root`` and all records in it as tables. Raises OverflowError for a number of more than 64 bits."""
    order = _in_order(type(root))
    met: dict[type, dict[int, Any]] = {type(root): {id(root): root}}
    columns: dict[tuple[type, str], Any] = {}
    forms: dict[int, Any] = {}
    for kind in reversed(order):  # every class that refers to this one comes before it
        records = list(met.get(kind, {}).values())
        for field in _fields(kind):
            # Read once: the members of a sequence may be made on each access.
            values = columns[kind, field.name] = field.values(records, forms)
            for record in () if field.holds is None else field.holds.members(values):
                met.setdefault(type(record), {}).setdefault(id(record), record)
    number: dict[int, int] = {}
    tables = []
    for kind in order:
        records = list(met.get(kind, {}).values())
        number.update(zip(map(id, records), itertools.count(len(number)), strict=False))
        if records:
            packed = ((one.name, one.packed(columns.pop((kind, one.name)), number)) for one in _fields(kind))
            tables.append(Table(name_of(kind), list(_cut(_mapping(len(_fields(kind)), packed)))))
    return tables


def _mapping(count: int, items: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """Encode a mapping of fewer than 2^16 items, one after the other, so that each can be let go."""
    yield bytes((0xDE, *count.to_bytes(2, "big")))
    for name, value in items:
        yield _encode(name)
        yield _encode(value)


def _cut(parts: Iterable[bytes]) -> Iterator[memoryview]:
    """The same bytes in pieces of `PIECE` bytes."""
    rest = memoryview(b"")
    for part in parts:
        data = memoryview(b"".join((rest, part)))
        whole = len(data) - len(data) % PIECE
        yield from (data[at : at + PIECE] for at in range(0, whole, PIECE))
        rest = data[whole:]
    if rest:
        yield rest


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
    rows = 0
    for table in tables:
        kind = classes.get(table.part)
        if kind is None:
            raise Damaged(f"records of {table.part!r}, of which there are none")
        if order[kind] <= last:
            raise Damaged(f"a table of {table.part!r} out of order")
        last = order[kind]
        made, heavy = _records(kind, table.data, records, weights)
        own = list(map(len, made)) if kind in (_CALLS, _ACTIVITIES) else [1] * len(made)
        records += made
        weights += map(sum, zip(own, *heavy, strict=True))
        rows += sum(own)
    if not records or type(records[-1]) is not root or (len(records) > 1 and type(records[-2]) is root):
        raise Damaged(f"not one record of {name_of(root)!r}")
    if weights[-1] > MOST_SHARED * rows + 1000:
        raise Damaged(f"{rows} records that stand for {weights[-1]}")
    return records[-1]


def _records(
    kind: type[msgspec.Struct], data: bytes, earlier: Sequence[Any], weights: Sequence[int]
) -> tuple[list[Any], list[list[int]]]:
    """Return all records of a class, and by field the weight of the records that each holds. A field that is missing in
    the file gets its default."""
    columns = msgspec.msgpack.decode(data, type=_wire(kind))
    values: dict[str, Any] = {}
    heavy: list[list[int]] = []
    for field in _fields(kind):
        column = getattr(columns, field.name)
        if column is None:
            continue
        where = f"{kind.__name__}.{field.name}"
        if field.holds is not None:
            values[field.name] = field.holds.restored(column, earlier, where)
            heavy.append(field.holds.weights(column, weights))
        else:
            values[field.name] = field.unpacked(column, where)
    if len(set(map(len, values.values()))) != 1:
        raise Damaged(f"columns of {kind.__name__} of different lengths")
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
    return list(map(_restored, made)) if kind in _FORMED else made, heavy


# -- fields ----------------------------------------------------------------------------------------------------------


class _Coded(msgspec.Struct, frozen=True):
    """Values of which many are equal: the distinct values, and for each row the place of its value."""

    words: list[Any]
    codes: list[_Number]


class _Holds(NamedTuple):
    """How a field holds records of ``kinds``: one, or tuples (within tuples: ``depth``), or a mapping."""

    kinds: tuple[type, ...]
    depth: int = 0
    is_mapping: bool = False

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
        return [_swapped(value, self.depth, get) for value in values]

    def weights(self, column: Sequence[Any], known: Sequence[int]) -> list[int]:
        """Return the weight of all records of each row. ``known``: that of each record, by its number."""
        return [sum(map(known.__getitem__, self.members([value]))) for value in column]

    def restored(self, column: Sequence[Any], earlier: Sequence[Any], where: str) -> list[Any]:
        """Raises `Damaged` if a number refers to no earlier record, or to a record of another class."""
        for number in set(self.members(column)):
            if number >= len(earlier) or not isinstance(earlier[number], self.kinds):
                raise Damaged(f"{where} holds {number}, which is no record of its kind")
        return self.swapped(column, earlier.__getitem__)


def _swapped(value: Any, depth: int, get: Callable[[Any], Any]) -> Any:
    # No function inside `swapped`: one that calls itself is a cycle, which would keep all that `get` refers to.
    if depth > 1:
        return tuple(_swapped(one, depth - 1, get) for one in value)
    return tuple(map(get, value)) if depth else None if value is None else get(value)


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
        if self.holds is None:
            if self.hint in _WHOLE:
                return bytes
            return _coded(self.hint) if self.is_coded else GenericAlias(list, (self.hint,))
        if self.holds.is_mapping:
            return GenericAlias(list, (GenericAlias(dict, (get_args(self.hint)[0], _Number)),))
        one: Any = _Number | None if NoneType in get_args(self.hint) else _Number
        for _ in range(self.holds.depth):
            one = GenericAlias(tuple, (one, Ellipsis))
        return GenericAlias(list, (one,))

    def values(self, records: Sequence[Any], forms: dict[int, Any]) -> list[Any]:
        """Return the values in stored form; records stay as they are. ``forms``: by what they are of."""
        values = list(map(attrgetter(self.name), records))
        if self.hint in _FORMED:
            forms |= {id(value): _stored(value) for value in values if id(value) not in forms}
            values = [forms[id(value)] for value in values]
        elif self.name == _NUMBERED.get(self.kind):
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

    def packed(self, values: Sequence[Any], number: Mapping[int, int]) -> Any:
        if self.holds is not None:
            return self.holds.swapped(values, lambda record: number[id(record)])
        if self.is_coded:
            numbers = {word: at for at, word in enumerate(dict.fromkeys(values))}
            return _Coded(list(numbers), list(map(numbers.__getitem__, values)))
        if self.hint in _WHOLE:
            return np.array([NO if value is None else value for value in values], np.int64)
        return values

    def unpacked(self, column: Any, where: str) -> list[Any]:
        if self.hint in _WHOLE:
            return [None if number == NO else number for number in _known(column, self.hint, where).tolist()]
        if not self.is_coded:
            return list(column)
        return [column.words[code] for code in column.codes]


def _known(data: bytes, hint: Any, where: str) -> Numbers:
    """Return a column of numbers. Raises `Damaged` if one is missing that every record has."""
    values = unpacked(data)
    if hint is int and NO in values:
        raise Damaged(f"{where} is no number")
    return values


@cache
def _coded(inside: Any) -> Any:
    return msgspec.defstruct("Coded", [("words", list[inside]), ("codes", list[_Number])], frozen=True)


@cache
def _wire(kind: type[msgspec.Struct]) -> Any:
    columns = [(field.name, field.wire | None, None) for field in _fields(kind)]
    return msgspec.defstruct(name_of(kind), columns, forbid_unknown_fields=True, kw_only=True)


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: _FORMS.get(hint, hint) for name, hint in get_type_hints(kind).items()}


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    hints, left_out = _hints(kind), never_shown(kind) | _LEFT_OUT.get(kind, frozenset())
    return tuple(
        _Field(kind, name, hints[name], _holds(hints[name]), _is_coded(hints[name]), name in left_out)
        for name in kind.__struct_fields__
    )


def _holds(hint: Any) -> _Holds | None:
    kinds = tuple(_FORMED.get(kind, kind) for kind in _records_in(hint))
    if not kinds:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (tuple, Sequence):
        return _Holds(kinds, depth=1 + (get_origin(arguments[0]) in (tuple, Sequence)))
    return _Holds(kinds, is_mapping=origin is Mapping)


def _is_coded(hint: Any) -> bool:
    """Return whether a field has few distinct values: texts and tuples. Equal floats may still differ (-0.0)."""
    scalars = set(_scalars_in(hint))
    return (
        get_origin(hint) is not Mapping
        and bool(scalars)
        and scalars <= {str, tuple, NoneType, int, bool}
        and (str in scalars or tuple in scalars)
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


# -- Columns of whole numbers ------------------------------------------------------------------------------------------

_SIZES = (1, 2, 4, 8)
_STEPS = 0x20
_HEAD = 9
"""Bytes of that mark and of the first number."""


def _unknown(size: int) -> int:
    """Return the smallest number of ``size`` bytes, which stands for `NO`."""
    return -(1 << (8 * size - 1))


def _size(column: NDArray[np.signedinteger]) -> int:
    """Return the fewest bytes that each number needs."""
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    if least == NO and most != NO:
        least = int(column.min(initial=most, where=column != NO))
    bounds = [one for one in (least, most) if one != NO]
    return next(size for size in _SIZES if all(_unknown(size) < one <= -1 - _unknown(size) for one in bounds))


def packed(column: NDArray[np.integer]) -> bytes:
    """Return the numbers, of which `NO` is unknown."""
    signed: NDArray[np.signedinteger] = column if column.dtype.kind == "i" else column.astype(np.int64)  # type: ignore[assignment]
    size = _size(signed)
    least, most = (int(signed.min()), int(signed.max())) if len(signed) else (0, 0)
    if size > 1 and least != NO and most - least < 1 << (8 * signed.itemsize - 1):
        steps = np.diff(signed)
        of_steps = _size(steps)
        if _HEAD + of_steps * len(steps) < size * len(signed):
            head = bytes([_STEPS]) + int(signed[0]).to_bytes(8, "little", signed=True) + bytes([of_steps])
            return b"".join((head, steps.astype(f"<i{of_steps}").data))
    made = np.where(signed == NO, _unknown(size), signed) if least == NO else signed
    return b"".join((bytes([size]), made.astype(f"<i{size}").data))


def unpacked(data: bytes) -> Numbers:
    """Return the numbers; `NO` is unknown. Raises ValueError for bytes that are no column."""
    start = _HEAD if data[:1] == bytes([_STEPS]) else 0
    size = data[start] if start < len(data) else 0
    if size not in _SIZES:
        raise ValueError(f"numbers of {size} bytes")
    column = np.frombuffer(data, f"<i{size}", offset=start + 1)
    if start:
        first = int.from_bytes(data[1:_HEAD], "little", signed=True)
        return np.cumsum(np.append(first, column.astype(np.int64)))
    numbers = column.astype(np.int64)
    numbers[column == _unknown(size)] = NO
    return numbers
