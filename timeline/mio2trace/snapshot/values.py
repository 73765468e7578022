"""Values of one kind under each other, as few bytes: the columns of `mio2trace.snapshot.objects`.

A column is a list that MessagePack takes: its kind first, then what that kind needs. A column of several kinds has a
kind for each value, and a column for each kind. How many values it has is told from outside.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain, compress, pairwise
from operator import sub
from typing import Any

import msgspec

Node = list[Any]
MOST = 1 << 26
"""Values that a column may have: what claims more is damaged."""
_WIDTHS = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_SCALARS = frozenset({int, str, float, bool, bytes, type(None)})
_EXACT = frozenset({int, str, bytes, type(None)})
"""Of these equal values are the same: 1 is True, and 0.0 is -0.0."""
_ONCE = 16
"""Fewer tuples than this are not looked through for equal ones."""


class Damaged(Exception):
    """What is read is no column that was written here."""


# -- whole numbers ---------------------------------------------------------------------------------------------------


def pack_ints(values: Sequence[int]) -> Node:
    """The same in all rows; differences, or the numbers above the least, byte by byte of equal weight; else texts."""
    if not values:
        return ["same", 0]
    if _all_same(values):
        least = values[0]
        return ["same", least] if -(1 << 63) <= least < 1 << 63 else ["texts", [str(value) for value in values]]
    least, most = min(values), max(values)
    if least < -(1 << 63) or most >= 1 << 63 or most - least >= 1 << 64:
        return ["texts", [str(value) for value in values]]
    steps = list(map(sub, values[1:], values))
    down, up = min(steps), max(steps)
    if up - down < most - least and up - down < 1 << 63:
        width = _width(up - down)
        return ["steps", values[0], down, width, _planes(steps, down, width)]
    width = _width(most - least)
    return ["above", least, width, _planes(values, least, width)]


def unpack_ints(node: Node, count: int) -> list[int]:
    """The numbers. Raises `Damaged`."""
    match node:
        case ["same", int(value)]:
            return [value] * count
        case ["texts", [*texts]] if len(texts) == count:
            return [int(text) for text in texts]
        case ["steps", int(first), int(down), int(width), bytes(data)]:
            steps = _from_planes(data, width, count - 1)
            return list(accumulate((step + down for step in steps), initial=first))
        case ["above", int(least), int(width), bytes(data)]:
            return [value + least for value in _from_planes(data, width, count)]
    raise Damaged("no column of numbers")


def _all_same(values: Sequence[Any]) -> bool:
    """Most columns are of one value: that is seen much faster than anything else of them."""
    first = values[0]
    return bool(first == values[-1] == values[len(values) // 2]) and values.count(first) == len(values)


def _width(most: int) -> int:
    return next(width for width, _ in _WIDTHS if most < 1 << (8 * width))


def _planes(values: Iterable[int], least: int, width: int) -> bytes:
    above = [value - least for value in values] if least else values
    data = array(dict(_WIDTHS)[width], above).tobytes()
    return data if width == 1 else b"".join([data[plane::width] for plane in range(width)])


def _from_planes(data: bytes, width: int, count: int) -> array[int]:
    code = dict(_WIDTHS).get(width)
    if code is None or count < 0 or len(data) != width * count:
        raise Damaged("a column of numbers that is cut off")
    whole = bytearray(len(data))
    for plane in range(width):
        whole[plane::width] = data[plane * count : (plane + 1) * count]
    values = array(code)
    values.frombytes(bytes(whole))
    return values


# -- any values ------------------------------------------------------------------------------------------------------


def kind_of(value: object) -> type:
    """What it is read back as: mappings as dict, sets as frozenset, sequences as tuple."""
    kind = type(value)
    if kind in _SCALARS or kind is tuple or isinstance(value, msgspec.Struct):
        return kind
    if isinstance(value, Mapping):
        return dict
    if isinstance(value, AbstractSet):
        return frozenset
    if isinstance(value, Sequence | array):
        return tuple
    raise TypeError(f"{kind.__name__} cannot be kept")


class Packer:
    """Packs columns. ``refer`` gives the name of a record's class, and the places of records among all of it."""

    def __init__(self, refer: Callable[[type, Sequence[Any]], tuple[str, list[int]]]) -> None:
        self._refer = refer
        self._kinds: dict[type, type] = {}

    def pack(self, values: Sequence[Any]) -> Node:
        """A column of any values."""
        types = set(map(type, values))
        kinds = sorted({self._kind(kind, values) for kind in types}, key=lambda kind: kind.__name__)
        if len(kinds) == 1:
            return self._of_kind(kinds[0], values)
        number = {kind: at for at, kind in enumerate(kinds)}
        number_of = {kind: number[self._kinds[kind]] for kind in types}
        codes = list(map(number_of.__getitem__, map(type, values)))
        parts = [list(compress(values, map(at.__eq__, codes))) for at in number.values()]
        columns = [self._of_kind(kind, part) for kind, part in zip(kinds, parts, strict=True)]
        return ["any", [len(part) for part in parts], pack_ints(codes), columns]

    def _kind(self, kind: type, values: Sequence[Any]) -> type:
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = kind_of(next(value for value in values if type(value) is kind))
        return found

    def _of_kind(self, kind: type, values: Sequence[Any]) -> Node:
        if kind is type(None):
            return ["none"]
        if kind is bool or kind is int:
            return [kind.__name__, pack_ints(values if kind is int else list(map(int, values)))]
        if kind is float:
            return ["float", array("d", values).tobytes()]
        if kind is str or kind is bytes:
            if _all_same(values):
                return [kind.__name__, [values[0]], pack_ints([0])]
            words = {word: at for at, word in enumerate(dict.fromkeys(values))}
            return [kind.__name__, list(words), pack_ints(list(map(words.__getitem__, values)))]
        if kind is tuple:
            return self._tuples(values)
        if kind is dict:
            keys = list(chain.from_iterable(values))
            inside = list(chain.from_iterable(value.values() for value in values))
            return ["dict", pack_ints(list(map(len, values))), len(keys), self.pack(keys), self.pack(inside)]
        if kind is frozenset:
            members = list(chain.from_iterable(map(sorted, values)))
            return ["set", pack_ints(list(map(len, values))), len(members), self.pack(members)]
        name, places = self._refer(kind, values)
        return ["record", name, pack_ints(places)]

    def _tuples(self, values: Sequence[Any]) -> Node:
        if len(values) > _ONCE:
            inside = set(map(type, chain.from_iterable(values)))
            if inside <= _EXACT:
                tuples = list(map(tuple, values))
                different = {value: at for at, value in enumerate(dict.fromkeys(tuples))}
                if 2 * len(different) < len(values):
                    codes = list(map(different.__getitem__, tuples))
                    return ["each", len(different), self._flat(list(different)), pack_ints(codes)]
        return self._flat(values)

    def _flat(self, values: Sequence[Any]) -> Node:
        members = list(chain.from_iterable(values))
        return ["tuple", pack_ints(list(map(len, values))), len(members), self.pack(members)]


class Unpacker:
    """Reads columns back. ``records`` gives all records of a class by its name."""

    def __init__(self, records: Callable[[str], Sequence[Any]]) -> None:
        self._records = records

    def unpack(self, node: Node, count: int) -> list[Any]:
        """The values. Raises `Damaged`, or what Python raises where a column is none."""
        if not 0 <= count <= MOST:
            raise Damaged("a column without end")
        match node:
            case ["any", [*counts], codes, [*columns]] if len(counts) == len(columns):
                parts = [iter(self.unpack(column, many)) for column, many in zip(columns, counts, strict=True)]
                return [next(parts[code]) for code in unpack_ints(codes, count)]
            case ["none"]:
                return [None] * count
            case ["int", numbers]:
                return unpack_ints(numbers, count)
            case ["bool", numbers]:
                return list(map(bool, unpack_ints(numbers, count)))
            case ["float", bytes(data)] if len(data) == 8 * count:
                return list(array("d", data))
            case ["str" | "bytes" as kind, [*words], codes]:
                if {kind} != {type(word).__name__ for word in words} and count:
                    raise Damaged("words of another kind")
                return [words[code] for code in unpack_ints(codes, count)]
            case ["each", int(many), different, codes]:
                tuples = self.unpack(different, many)
                return [tuples[code] for code in unpack_ints(codes, count)]
            case ["tuple", lengths, int(many), members]:
                return [tuple(part) for part in self._cut(lengths, count, self.unpack(members, many))]
            case ["set", lengths, int(many), members]:
                return [frozenset(part) for part in self._cut(lengths, count, self.unpack(members, many))]
            case ["dict", lengths, int(many), keys, values]:
                pairs = list(zip(self.unpack(keys, many), self.unpack(values, many), strict=True))
                return [dict(part) for part in self._cut(lengths, count, pairs)]
            case ["record", str(name), places]:
                records = self._records(name)
                return [records[place] for place in unpack_ints(places, count)]
        raise Damaged("a column of no kind")

    def _cut(self, lengths: Node, count: int, members: list[Any]) -> list[list[Any]]:
        ends = list(accumulate(unpack_ints(lengths, count), initial=0))
        if ends[-1] != len(members):
            raise Damaged("tuples that are cut off")
        return [members[start:end] for start, end in pairwise(ends)]
