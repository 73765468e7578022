"""Commands, calls and printed times of layers as columns: one array for each field, and records that are made only if
something asks for one.

A run may have ten million kernels. Their records take 600 bytes each and their columns 100, and numpy works on a column
two hundred times as fast as a loop works on records. A column has the name of the field of `Activity` or `Call` that it
holds. `NO` stands for None in a column of numbers. A column of few distinct values is a `Pool`.

A table is made from records or from columns (`Activities.of_columns`). It makes the other form, column by column, when
it is asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from struct import Struct
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from mio2trace.model.log import Direction, LayerTime, LocalTime
from mio2trace.model.profile import Activity, Call, OpenClLaunch, Resources, Size3, TimerMark

Numbers = NDArray[np.int64]
Codes = NDArray[np.int32]
Value = TypeVar("Value")
Record = TypeVar("Record")

NO = -(1 << 63)
"""No number. Readers refuse numbers of more than 63 bits, so that no file has this one."""
NEVER = (1 << 63) - 1
"""Later than any time."""
KINDS = ("kernel", "copy", "fill")
"""The kinds of activities by the number that the column ``kind`` has for them."""
KERNEL = 0
_MOST_KEYS = 1 << 62
_BLOCK = 256
"""Rows whose records are made together if one of them is asked for. All of a million take 2 s and 600 MB."""


class Pool(NamedTuple, Generic[Value]):
    """A column with few distinct values: ``values[codes[row]]`` is the value of a row."""

    values: Sequence[Value]
    codes: Codes

    def each(self) -> Iterator[Value]:
        """The value of each row."""
        return map(self.values.__getitem__, self.codes.tolist())

    def at(self, row: int) -> Value:
        """The value of a row."""
        value: Value = self.values[self.codes[row]]
        return value

    @property
    def used(self) -> list[Value]:
        """The values that a row has, each once, in the order of ``values``."""
        return [self.values[code] for code in np.flatnonzero(np.bincount(self.codes)).tolist()]

    def where(self, test: Callable[[Value], bool]) -> NDArray[np.bool_]:
        """For each row whether ``test``, which is called once for each distinct value, holds for its value."""
        holds: NDArray[np.bool_] = np.fromiter(map(test, self.values), bool, len(self.values))[self.codes]
        return holds

    @classmethod
    def of(cls, values: Iterable[Value]) -> Pool[Value]:
        """The pool of a value for each row. Values that are equal become one."""
        numbers: dict[Value, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in values]
        return cls(list(numbers), np.array(codes, np.int32))

    @classmethod
    def joined(cls, pools: Sequence[Pool[Value]]) -> Pool[Value]:
        """The rows of all pools, one pool after the other."""
        before = np.cumsum([0, *(len(pool.values) for pool in pools)])
        codes = [pool.codes + first for pool, first in zip(pools, before.tolist(), strict=False)]
        return cls([value for pool in pools for value in pool.values], np.concatenate(codes).astype(np.int32))

    def take(self, rows: Any) -> Pool[Value]:
        """The column of some rows; ``rows`` is anything that numpy takes as an index."""
        return Pool(self.values, self.codes[rows])

    @classmethod
    def same(cls, value: Value, count: int) -> Pool[Value]:
        """The pool of a column that has one value everywhere."""
        return cls([value], np.broadcast_to(np.int32(0), count))


def numbers(values: Iterable[int | None], count: int) -> Numbers:
    """A column of numbers, with `NO` for None."""
    return np.fromiter((NO if value is None else value for value in values), np.int64, count)


def added(values: Numbers) -> int:
    """The exact sum of some numbers."""
    if len(values) and max(int(values.max()), -int(values.min())) * len(values) >= 1 << 63:
        return sum(values.tolist())
    return int(values.sum())


def summed(codes: NDArray[Any], values: Numbers, count: int) -> NDArray[Any]:
    """The exact sum of the values of each code below ``count``. Python's integers, where 63 bits may be too few."""
    made: NDArray[Any] = np.zeros(count, np.int64)
    if len(values) and max(int(values.max()), -int(values.min())) * len(values) >= 1 << 63:
        made, values = made.astype(object), values.astype(object)
    np.add.at(made, codes, values)
    return made


def summed_by(codes: NDArray[Any], values: Numbers) -> tuple[Numbers, NDArray[Any]]:
    """The distinct codes in ascending order, and the exact sum of the values of each."""
    found, place_of = placed(codes)
    return found, summed(place_of, values, len(found))


def least(codes: NDArray[Any], values: Numbers, count: int) -> Numbers:
    """The least value of each code below ``count``, `NEVER` without values."""
    found = np.full(count, NEVER)
    np.minimum.at(found, codes, values)
    return found


def most(codes: NDArray[Any], values: Numbers, count: int) -> Numbers:
    """The largest value of each code below ``count``, `NO` without values."""
    found = np.full(count, NO)
    np.maximum.at(found, codes, values)
    return found


def firsts(codes: NDArray[Any], count: int) -> Numbers:
    """The first row of each code below ``count``, -1 for none. A code of -1 is none."""
    found = np.full(count + 1, -1)
    found[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal codes the last write counts
    return found[:count]


def placed(column: NDArray[Any]) -> tuple[Numbers, Codes]:
    """The distinct numbers of a column in ascending order, and for each row the place of its number among them. It
    takes the memory of the rows, however far apart the numbers are."""
    least, count = _span(column)
    if count:
        found = present(column)
        place = np.empty(count, np.int32)
        place[found - least] = np.arange(len(found))
        return found, place[_from(column, least)]
    # Neighbours are often equal: then few of them are sorted.
    begins = np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])
    heads = column[begins]
    order = np.argsort(heads, kind="stable")
    ordered = heads[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    found = ordered[is_first]
    del ordered, heads  # each may take as much memory as the column
    codes = np.empty(len(order), np.int32)
    codes[order] = np.cumsum(is_first, dtype=np.int32) - 1
    del order
    return found, np.repeat(codes, np.diff(begins, append=len(column)))


def present(column: NDArray[Any]) -> Numbers:
    """The distinct numbers of a column, in ascending order."""
    least, count = _span(column)
    if count:
        return np.flatnonzero(np.bincount(_from(column, least))) + least
    # `np.unique` loads masked arrays, which takes longer than all else of a small run.
    ordered = np.sort(column, kind="stable")
    found: Numbers = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def distinct(codes: NDArray[Any]) -> tuple[Numbers, Numbers]:
    """The first row of each distinct code, in order, and for each row the place of its code in that order."""
    least, count = _span(codes)
    if count:
        place_of: NDArray[Any] = _from(codes, least)
    else:
        found, place_of = placed(codes)
        count = len(found)
    first = firsts(place_of, count)
    there = np.flatnonzero(first >= 0)
    order = there[np.argsort(first[there])]
    place = np.empty(count, np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[place_of]


def _span(column: NDArray[Any]) -> tuple[int, int]:
    """The least number, and how many numbers there are from it to the largest: few, so that counting them is faster
    than sorting the column. Else 0 and 0."""
    if not len(column) or column.dtype == object:
        return 0, 0
    least, most = int(column.min()), int(column.max())
    return (least, most - least + 1) if most - least <= 2 * len(column) + 1000 else (0, 0)


def _from(column: NDArray[Any], least: int) -> NDArray[Any]:
    """The numbers counted from the least one; the column itself if that is 0, as ten million take 80 MB."""
    return column - least if least else column


def in_order_of(codes: NDArray[Any]) -> Numbers:
    """The rows in ascending order of their codes; rows of one code stay in order."""
    least, count = _span(codes)
    if 0 < count <= 1 << 16:  # numpy counts numbers of 16 bits instead of comparing them
        codes = (codes - least).astype(np.uint16)
    return np.argsort(codes, kind="stable")


def by_code(rows: Numbers, codes: NDArray[Any]) -> Iterator[tuple[int, Numbers]]:
    """Each code, in ascending order, and the rows that have it, in theirs."""
    if (codes[1:] < codes[:-1]).any():
        order = in_order_of(codes)
        rows, codes = rows[order], codes[order]
    if len(rows):
        begins = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]
        numbers = codes[begins].tolist()
        del codes
        for number, begin, end in zip(numbers, begins, [*begins[1:], len(rows)], strict=True):
            yield number, rows[begin:end]


class Index:
    """Finds rows by their ids. If several rows have one id, the first counts, or the last. `NO` is no id."""

    def __init__(self, ids: Numbers, *, last: bool = False) -> None:
        rows = np.arange(len(ids), dtype=np.int32)
        is_known = ids != NO
        if not is_known.all():
            ids, rows = ids[is_known], rows[is_known]
        if not last:
            ids, rows = ids[::-1], rows[::-1]
        self._least, self._count = _span(ids)
        if self._count:  # nearly always: a writer counts them
            self._row = np.full(self._count + 1, -1, np.int32)
            self._row[ids - self._least if self._least else ids] = rows  # of equal ids the last write counts
        else:
            self._ids, first = np.unique(ids[::-1], return_index=True)
            self._row = np.append(rows[::-1][first], np.int32(-1))

    def __len__(self) -> int:
        """The number of rows that are found."""
        return int(np.count_nonzero(self._row >= 0))

    def rows(self, ids: Numbers) -> Numbers:
        """The row of each id, -1 without."""
        if self._count:
            is_near = (ids >= self._least) & (ids < self._least + self._count)
            return self._row[np.where(is_near, ids - self._least, -1)].astype(np.int64)
        at = np.searchsorted(self._ids, ids)
        is_there = np.append(self._ids, NO)[at] == ids
        return self._row[np.where(is_there & (ids != NO), at, -1)].astype(np.int64)


def sorted_pool(column: NDArray[np.integer[Any]]) -> Pool[int]:
    """The pool of a column of numbers, its values in ascending order."""
    found, codes = placed(column)
    return Pool(found.tolist(), codes)


def combined(*parts: NDArray[Any]) -> Numbers:
    """Return a number for each row: equal if all parts are. The parts are numbers from 0."""
    key, size = np.zeros(len(parts[0]), np.int64), 1
    for part in parts:
        count = int(part.max(initial=0)) + 1
        if size * count > _MOST_KEYS:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max(initial=0)) + 1
        key, size = key * count + part, size * count
    return key


def by_key(rows: Numbers, keys: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Each key, in order of its first row, and the rows that have it."""
    first, place_of = distinct(keys)
    parts, found = by_code(rows, place_of), keys[first].tolist()
    del keys, place_of  # which `by_code` does not keep either
    for key, (_, its) in zip(found, parts, strict=True):
        yield key, its


def plain(column: Numbers) -> Sequence[int | None]:
    """The numbers of a column as Python has them, None for `NO`."""
    values: list[int] = column.tolist()
    return [None if value == NO else value for value in values] if NO in column else values


class Growing:
    """Columns of whole numbers while a reader fills them, row by row or, from numpy, many rows at once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._parts: dict[str, list[Numbers]] = {name: [] for name in names}
        self._count = 0
        self._cells = array("q")
        self._packed = Struct(f"{len(names)}q").pack

    def __len__(self) -> int:
        return self._count + len(self._cells) // len(self._parts)

    def add(self, row: tuple[int, ...]) -> None:
        """Add a row, with a number of 64 bits for each column."""
        self._cells.frombytes(self._packed(*row))  # twice as fast as `array.extend`

    def __getitem__(self, name: str) -> Numbers:
        self._settle()
        parts = self._parts[name]
        if len(parts) > 1:
            is_one = not any(part.strides[0] for part in parts) and len({int(part[0]) for part in parts}) == 1
            parts[:] = [np.broadcast_to(parts[0][0], sum(map(len, parts))) if is_one else np.concatenate(parts)]
        return parts[0] if parts else np.empty(0, np.int64)

    @property
    def last(self) -> tuple[int, ...]:
        """The last row, if it was added as a row."""
        return tuple(self._cells[-len(self._parts) :])

    def pop(self, name: str) -> Numbers:
        """The column, which is then no longer kept here."""
        column = self[name]
        self._parts[name] = []
        return column

    def _settle(self) -> None:
        """Put the rows that were added one by one into the columns."""
        if self._cells:
            rows = np.array(self._cells).reshape(-1, len(self._parts)).T
            del self._cells[:]
            self.extend(len(rows.T), **dict(zip(self._parts, map(np.ascontiguousarray, rows), strict=True)))

    def shift(self, by: int, *names: str) -> None:
        """Add a number to all cells of some columns."""
        for name in names if len(self) else ():
            self._parts[name] = [self[name] + by]

    def extend(self, count: int, **columns: Numbers | int) -> None:
        """Add ``count`` rows; a column that is one number has it in each row. Nobody may write into the columns
        afterwards."""
        self._settle()
        if not count:
            return
        self._count += count
        for name, parts in self._parts.items():
            parts.append(np.broadcast_to(np.asarray(columns[name], np.int64), count))


class _Table(Sequence[Record]):
    """Records of one class, each a row. ``_records`` is None until something asks for a record.

    A table declares the type of each column that has the name and the values of a field of its records: `Numbers`, or a
    `Pool`. Such a column is made of the records when it is first asked for."""

    of: ClassVar[type[Any]]
    """The class of the records."""
    fields: ClassVar[tuple[str, ...]]
    """The names of its columns, which are those of the fields unless a table says otherwise; one is ``line``."""
    whole: ClassVar[tuple[str, ...]] = ()
    """Fields that rows refer to: a selection of rows keeps them whole."""
    _is_pool: ClassVar[Mapping[str, bool]]
    _defaults: ClassVar[Mapping[str, Any]]
    _records: tuple[Record, ...] | None
    _count: int

    def __init_subclass__(cls) -> None:
        cls.fields = cls.__dict__.get("fields", cls.of.__struct_fields__)
        cls._is_pool = {field: kind.startswith("Pool") for field, kind in cls.__annotations__.items()}
        for field, is_pool in cls._is_pool.items():
            column = cached_property(partial(_of_records, field, is_pool))
            column.__set_name__(cls, field)
            setattr(cls, field, column)
        defaults = zip(cls.of.__struct_fields__[::-1], cls.of.__struct_defaults__[::-1], strict=False)
        cls._defaults = {field: value for field, value in defaults if field in cls._is_pool}

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = tuple(records)
        self._count = len(self._records)

    @classmethod
    def of_columns(cls, count: int, **columns: Any) -> Self:
        """A table of ``count`` rows from all its columns, by name. Columns that are left out are empty in every row."""
        table = cls.__new__(cls)
        table._records, table._count = None, count
        table.__dict__.update({name: thin(column) for name, column in columns.items()})
        for field, value in cls._defaults.items():
            if field not in columns:
                is_pool = cls._is_pool[field]
                same = Pool.same(value, count) if is_pool else np.broadcast_to(NO if value is None else value, count)
                table.__dict__[field] = same
        return table

    def _made(self, **cells: Iterable[Any]) -> Iterator[Record]:
        """All rows as records. ``cells``: the fields whose column has other values."""
        return map(self.of, *(cells.get(field) or _cells(getattr(self, field)) for field in self.fields))

    @property
    def records(self) -> tuple[Record, ...]:
        """All rows as records: the same objects each time."""
        if self._records is None:
            self._records = tuple(self._made())
        return self._records

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, at: int | slice) -> Record | tuple[Record, ...]:
        if self._records is None and isinstance(at, int):
            block, place = divmod(range(self._count)[at], _BLOCK)
            return self._block(block)[place]
        if self._records is None and isinstance(at, slice) and 8 * len(range(self._count)[at]) < self._count:
            return self.take(at).records
        return self.records[at]

    def _block(self, number: int) -> tuple[Record, ...]:
        blocks: dict[int, tuple[Record, ...]] = self.__dict__.setdefault("_blocks", {})
        if number not in blocks:
            blocks[number] = self.take(slice(number * _BLOCK, (number + 1) * _BLOCK)).records
        return blocks[number]

    def take(self, rows: Any) -> Self:
        """Some of the rows; ``rows`` is anything that numpy takes as an index."""
        columns = {field: _taken(getattr(self, field), rows) for field in self.fields}
        return self.of_columns(len(columns["line"]), **columns, **{name: getattr(self, name) for name in self.whole})

    def changed(self, **columns: Any) -> Self:
        """The same rows with these columns instead of their own."""
        own = {field: getattr(self, field) for field in (*self.fields, *self.whole)}
        return self.of_columns(len(self), **own | columns)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and self.records == tuple(other)

    def __hash__(self) -> int:
        return hash(self.records)

    def __repr__(self) -> str:
        return repr(self.records)


def _of_records(field: str, is_pool: bool, table: _Table[Any]) -> Numbers | Pool[Any]:
    values = map(attrgetter(field), table.records)
    return Pool.of(values) if is_pool else numbers(values, len(table))


def _cells(column: Numbers | Pool[Any]) -> Iterable[Any]:
    return column.each() if isinstance(column, Pool) else plain(column)


class Calls(_Table[Call]):
    """Calls of the host."""

    of = Call
    name: Pool[str]
    thread: Numbers
    start_ns: Numbers
    end_ns: Numbers
    line: Numbers
    number: Numbers
    correlation: Numbers
    prepared_ns: Numbers


class TimerMarks(_Table[TimerMark]):
    """Starts and Stops of Caffe's OpenCL timer in call order, two for each layer and iteration."""

    of = TimerMark
    number: Numbers
    line: Numbers
    host_ns: Numbers


def _of_call(column: str, without: int = NO) -> cached_property[Numbers]:
    return cached_property(lambda commands: commands.of_call(getattr(commands.calls, column), without))


class Activities(_Table[Activity]):
    """Commands that ran on devices, in the order in which they were enqueued.

    ``call`` is the row of ``calls`` with the call that launched the command, -1 for none; ``range`` the place of its
    range, -1 for none.
    """

    of, whole = Activity, ("calls",)
    number: Numbers

    @cached_property
    def kind(self) -> NDArray[np.int8]:
        """Places in `KINDS`."""
        return np.fromiter(map(KINDS.index, map(attrgetter("kind"), self.records)), np.int8, self._count)

    @cached_property
    def is_kernel(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.kind == KERNEL
        return found

    name: Pool[str]
    line: Numbers
    queue: Numbers
    queued_ns: Numbers
    submit_ns: Numbers
    start_ns: Numbers
    end_ns: Numbers

    @cached_property
    def has_times(self) -> NDArray[np.bool_]:
        """Whether a command has both times of the device."""
        found: NDArray[np.bool_] = (self.start_ns != NO) & (self.end_ns != NO)
        return found

    @cached_property
    def time_ns(self) -> Numbers:
        """How long each ran, 0 without times."""
        found: Numbers = np.where(self.has_times, self.end_ns - self.start_ns, 0)
        return found

    @cached_property
    def calls(self) -> Calls:
        """The calls that launched the commands, each once."""
        return Calls(self._calls[0])

    @cached_property
    def call(self) -> Codes:
        return self._calls[1]

    @cached_property
    def _calls(self) -> tuple[list[Call], Codes]:
        rows: dict[int, int] = {}
        made: list[Call] = []
        found = [-1] * self._count
        for place, activity in enumerate(self.records):
            call = activity.call
            if call is not None:
                row = rows.setdefault(id(call), len(made))
                if row == len(made):
                    made.append(call)
                found[place] = row
        return made, np.array(found, np.int32)

    host_start_ns = _of_call("start_ns")
    """When the call that launched each command began, `NO` without."""
    host_end_ns = _of_call("end_ns")
    """When that call returned, `NO` without."""
    prepared_ns = _of_call("prepared_ns")
    """When the program began to prepare that call, `NO` where that is not recorded."""
    thread = _of_call("thread", 0)
    """The thread that launched each; 0 where none is known."""

    @cached_property
    def is_replayed(self) -> NDArray[np.bool_]:
        """Whether a graph launched it."""
        launches = self.calls.name.where(lambda name: "GraphLaunch" in name)
        replayed: NDArray[np.bool_] = np.append(launches, False)[self.call]
        return replayed

    @cached_property
    def _calls_in_order(self) -> bool:
        """Whether each command has a call of its own, in its own row, as most profiles have it."""
        return bool(np.array_equal(self.call, np.arange(len(self), dtype=np.int32)))

    def of_call(self, column: Numbers, without: int = NO) -> Numbers:
        """The value of each command's call in a column of ``calls``; ``without`` for a command without call."""
        if len(column) and not column.strides[0] and (column[0] == without or bool((self.call >= 0).all())):
            return np.broadcast_to(column[0], len(self))
        if self._calls_in_order:
            return column[: len(self)]
        found: Numbers = np.append(column, without)[self.call]
        return found

    def of_queue(self, value_of: Mapping[int, int], other: int) -> Numbers:
        """The value of each command's queue; ``other`` of a queue that has none."""
        found: Numbers = np.array([value_of.get(queue, other) for queue in self.queues.values], np.int64)
        return found[self.queues.codes]

    @cached_property
    def queues(self) -> Pool[int]:
        """The same as ``queue``, by distinct queues in ascending order."""
        return sorted_pool(self.queue)

    grid: Pool[Size3 | None]
    workgroup: Pool[Size3 | None]
    opencl: Pool[OpenClLaunch]
    size_bytes: Numbers
    route: Pool[str]
    correlation: Numbers

    @cached_property
    def range(self) -> Codes:
        return np.fromiter((-1 if one.range is None else one.range for one in self.records), np.int32, self._count)

    resources: Pool[Resources | None]
    graph_node: Pool[tuple[int, int] | None]
    counters: Pool[tuple[float | None, ...]]

    @classmethod
    def of_columns(cls, count: int, **columns: Any) -> Self:
        return super().of_columns(count, **{"range": np.broadcast_to(np.int32(-1), count)} | columns)

    def _made(self, **cells: Iterable[Any]) -> Iterator[Activity]:
        if len(self.calls) > 2 * self._count:  # a few of many commands
            return self.with_their_calls()._made()
        calls, ranges = (*self.calls.records, None), self.range.tolist()
        return super()._made(
            kind=map(KINDS.__getitem__, self.kind.tolist()),
            call=map(calls.__getitem__, self.call.tolist()),
            range=(None if place < 0 else place for place in ranges),
        )

    def with_their_calls(self) -> Activities:
        """The same commands, whose ``calls`` are those that launched one of them."""
        launched = present(self.call[self.call >= 0])
        if len(launched) == len(self.calls):
            return self
        place = np.full(len(self.calls) + 1, -1, np.int32)
        place[launched] = np.arange(len(launched))
        return self.changed(calls=self.calls.take(launched), call=place[self.call])


def _taken(column: Any, rows: Any) -> Any:
    return column.take(rows) if isinstance(column, Pool) else column[rows]


def thin(column: Any) -> Any:
    """The same column; if all rows have one value, it takes no memory, and nobody may write into it."""
    if isinstance(column, Pool):
        return Pool(column.values, thin(column.codes))
    if isinstance(column, np.ndarray) and len(column) and (column == column[0]).all():
        return np.broadcast_to(column[0], column.shape)
    return column


# -- Printed times of layers: a run may have a million -----------------------------------------------------------------


class Day(NamedTuple):
    year: int
    month: int
    day: int


class LayerKey(NamedTuple):
    """Common fields of the lines of one layer and direction. ``place``: in the net, from 0."""

    place: int
    layer: str
    direction: Direction | None


class LayerTimes(_Table[LayerTime]):
    """Records of `LayerTime`. A stamp is two columns: the day (year, month, day), and the ns from midnight."""

    of = LayerTime
    fields = "source", "line", "place", "layer", "direction", "printed_ns", "thread", "day", "clock_ns"
    source: Numbers
    line: Numbers
    layer: Pool[str]
    direction: Pool[Direction]
    printed_ns: Numbers
    thread: Pool[int | None]

    @cached_property
    def place(self) -> Numbers:
        """``index`` of each."""
        return np.fromiter((one.index for one in self.records), np.int64, len(self))

    @cached_property
    def day(self) -> Pool[Day | None]:
        """None without a stamp."""
        stamps = (one.stamp for one in self.records)
        return Pool.of(None if stamp is None else Day(stamp.year, stamp.month, stamp.day) for stamp in stamps)

    @cached_property
    def clock_ns(self) -> Numbers:
        """0 without a stamp."""
        return np.fromiter((0 if one.stamp is None else one.stamp.ns for one in self.records), np.int64, len(self))

    @cached_property
    def has_stamp(self) -> NDArray[np.bool_]:
        """Whether its line has a stamp."""
        return self.day.where(lambda day: day is not None)

    @cached_property
    def key(self) -> Pool[LayerKey]:
        """Layer and direction of each, in the order of their first lines."""
        places = self.place - self.place.min(initial=0)
        first, codes = distinct(combined(places, self.layer.codes, self.direction.codes))
        layers, directions = self.layer.take(first).each(), self.direction.take(first).each()
        return Pool([*map(LayerKey, self.place[first].tolist(), layers, directions)], codes.astype(np.int32))

    def stamp(self, row: int) -> LocalTime | None:
        """When the line of a row was printed."""
        day = self.day.at(row)
        return None if day is None else LocalTime(day.year, day.month, day.day, int(self.clock_ns[row]))

    def _made(self, **cells: Iterable[Any]) -> Iterator[LayerTime]:
        columns = zip(
            self.source.tolist(), self.line.tolist(), self.place.tolist(), self.layer.each(), self.direction.each(),
            self.printed_ns.tolist(), self.day.each(), self.clock_ns.tolist(), self.thread.each(), strict=True,
        )  # fmt: skip
        for source, line, place, layer, direction, printed_ns, day, clock_ns, thread in columns:
            yield LayerTime(
                source=source, line=line, index=place, layer=layer, direction=direction, printed_ns=printed_ns,
                stamp=None if day is None else LocalTime(day.year, day.month, day.day, clock_ns), thread=thread,
            )  # fmt: skip
