"""Records of the program as columns, class by class, and back; what is one object stays one.

Which classes there may be follows from the types of their fields, so a file cannot name any other; a value that its
field's type does not allow is damage. Text that no output may show (`mio2trace.privacy.fields`) is left empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import count
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from mio2trace.model import tf
from mio2trace.model.miopen import Message
from mio2trace.model.profile import BufferCreated
from mio2trace.ops.log.alarms import alarm_level
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.privacy.fields import NEVER_SHOWN
from mio2trace.snapshot.values import MOST, Damaged, Node, Packer, Unpacker

_LEFT_OUT: Mapping[type, frozenset[str]] = {
    **NEVER_SHOWN,
    OperationFacts: frozenset({"parameters"}),
    Operation: frozenset({"addresses", "arguments"}),
}
"""Addresses and what else has served when all is joined."""
_OTHER_NAMES: Mapping[type, str] = {tf.Execution: "TfExecution"}
"""Of classes that share theirs with another."""
_NUMBERED: Mapping[type, str] = {BufferCreated: "handle"}
"""Fields of which only matters which are equal."""


class Column(msgspec.Struct, frozen=True):
    """A field of ``count`` records of a class, in the order in which they were met."""

    part: str
    name: str
    count: int
    node: Node


# -- out -------------------------------------------------------------------------------------------------------------


def to_columns(root: msgspec.Struct) -> list[Column]:
    """``root`` and all records in it."""
    met: dict[type, list[Any]] = {}
    place: dict[int, int] = {}
    waiting: list[type] = []

    def refer(kind: type, records: Sequence[Any]) -> tuple[str, list[int]]:
        all_of = met.setdefault(kind, [])
        ids = list(map(id, records))
        new = {of: record for of, record in zip(ids, records, strict=True) if of not in place}
        if new:
            place.update(zip(new, count(len(all_of))))
            all_of += new.values()
            if kind not in waiting:
                waiting.append(kind)
        return name_of(kind), list(map(place.__getitem__, ids))

    refer(type(root), [root])
    packer = Packer(refer)
    packed: dict[type, int] = {}
    columns: list[Column] = []
    while waiting:
        kind = waiting.pop(0)
        records = met[kind][packed.get(kind, 0) :]
        packed[kind] = len(met[kind])
        for name in kind.__struct_fields__:  # type: ignore[attr-defined]
            values = list(map(attrgetter(name), records))
            if name == _NUMBERED.get(kind):
                number: dict[str, int] = {}
                values = [str(number.setdefault(value, len(number))) for value in values]
            elif kind is Message and name == "text":
                values = [message.text if _is_shown(message) else "" for message in records]
            elif name in _LEFT_OUT.get(kind, ()):
                values = list(map(_empty, values))
            columns.append(Column(name_of(kind), name, len(records), packer.pack(values)))
    return columns


def _is_shown(message: Message) -> bool:
    """Whether an output has its text: errors and warnings, and what tells a version."""
    return message.kind == "version" or alarm_level(message) is not None


def _empty(value: object) -> object:
    return type(value)() if isinstance(value, str | bytes | tuple) else None


# -- back ------------------------------------------------------------------------------------------------------------


def from_columns(root: type[msgspec.Struct], columns: Sequence[Column]) -> Any:
    """The one record of the class ``root``. Raises `Damaged`."""
    classes = classes_in(root)
    parts: dict[str, dict[str, list[Column]]] = {}
    for column in columns:
        if column.part not in classes:
            raise Damaged(f"records of {column.part!r}, of which there are none")
        parts.setdefault(column.part, {}).setdefault(column.name, []).append(column)
    made: dict[str, list[Any]] = {}
    begun: set[str] = set()

    def records(name: str) -> Sequence[Any]:
        if name not in made:
            if name in begun or name not in parts:
                raise Damaged(f"records of {name!r}, of which there are none")
            begun.add(name)
            made[name] = _records(classes[name], parts[name], unpacker)
        return made[name]

    unpacker = Unpacker(records)
    (only,) = records(name_of(root))
    return only


def _records(kind: type[msgspec.Struct], fields: Mapping[str, Sequence[Column]], unpacker: Unpacker) -> list[Any]:
    """All records of a class. A field that the file does not have is as its class leaves it."""
    unknown = set(fields) - set(kind.__struct_fields__)
    if unknown:
        raise Damaged(f"a field {kind.__name__}.{min(unknown)} of another version")
    hints = get_type_hints(kind)
    values: dict[str, list[Any]] = {}
    for name, segments in fields.items():
        if sum(segment.count for segment in segments) > MOST:
            raise Damaged("a column without end")
        column: list[Any] = []
        for segment in segments:
            column += unpacker.unpack(segment.node, segment.count)
        _check(column, hints[name], f"{kind.__name__}.{name}")
        values[name] = column
    if len(set(map(len, values.values()))) > 1:
        raise Damaged(f"columns of {kind.__name__} of different lengths")
    names = list(values)
    positional = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if positional[: len(names)] == names:
        return list(map(kind, *values.values()))
    return [kind(**dict(zip(names, row, strict=True))) for row in zip(*values.values(), strict=True)]


# -- types -----------------------------------------------------------------------------------------------------------


@cache
def classes_in(root: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The classes of all records that one of ``root`` may hold, by name."""
    classes: dict[str, type[msgspec.Struct]] = {}
    waiting: list[type[msgspec.Struct]] = [root]
    while waiting:
        kind = waiting.pop()
        if classes.setdefault(name_of(kind), kind) is not kind:
            raise TypeError(f"two classes are called {name_of(kind)}: {kind} needs another name")
        inside = [inner for hint in get_type_hints(kind).values() for inner in _records_in(hint)]
        waiting += [inner for inner in {*inside, *kind.__subclasses__()} if classes.get(name_of(inner)) is not inner]
    return classes


def name_of(kind: type) -> str:
    """As a file names it, wherever in the program it is."""
    return _OTHER_NAMES.get(kind, kind.__name__)


def _records_in(hint: Any) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [kind for argument in get_args(hint) for kind in _records_in(argument)]


def _choices(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, UnionType):
        return [choice for argument in get_args(hint) for choice in _choices(argument)]
    return [hint]


def _check(values: Sequence[Any], hint: Any, where: str) -> None:
    """Raises `Damaged` for a value that the type ``hint`` does not allow."""
    choices = _choices(hint)
    for kind in set(map(type, values)):
        fitting = [choice for choice in choices if _fits(kind, choice)]
        if not fitting:
            raise Damaged(f"{where} is of the type {kind.__name__}")
        arguments = [
            _members_of(choice) for choice in fitting if get_args(choice) and get_origin(choice) is not Literal
        ]
        if len(arguments) == 1 and kind in (tuple, dict, frozenset):
            _check_inside([value for value in values if type(value) is kind], kind, arguments[0], where)


def _members_of(hint: Any) -> Sequence[Any]:
    """The types of what is inside; a sequence is a tuple of any length."""
    return (*get_args(hint), Ellipsis) if get_origin(hint) is Sequence else get_args(hint)


def _check_inside(values: Sequence[Any], kind: type, arguments: Sequence[Any], where: str) -> None:
    if kind is dict:
        _check([key for value in values for key in value], arguments[0], where)
        _check([member for value in values for member in value.values()], arguments[1], where)
    elif kind is frozenset or (len(arguments) == 2 and arguments[1] is Ellipsis):
        _check([member for value in values for member in value], arguments[0], where)
    else:
        if set(map(len, values)) - {len(arguments)}:
            raise Damaged(f"{where} has not {len(arguments)} members")
        for at, argument in enumerate(arguments):
            _check([value[at] for value in values], argument, where)


def _fits(kind: type, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin is Literal:
        return any(type(value) is kind for value in get_args(hint))
    if hint is None or hint is NoneType:
        return kind is NoneType
    if origin is not None:
        bases = {tuple: tuple, Sequence: tuple, dict: dict, Mapping: dict, frozenset: frozenset}
        return kind is (frozenset if origin is AbstractSet else bases.get(origin))
    if hint is float:
        return kind in (float, int)
    return isinstance(hint, type) and issubclass(kind, hint) and (kind is not bool or hint is bool)
