"""Activities and calls that a reader puts into columns; rows are made of them when somebody asks for one.

A column of numbers is an array with the name of the field. What many rows have in common is a form, of which each row
has the place. ``NONE`` stands for no number: all numbers here are 0 or more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar, overload

from mio2trace.model.activities import Activities, Rows
from mio2trace.model.profile import NOT_OPENCL, Activity, Call, Resources, Size3

T = TypeVar("T")
NONE = -1
_FEW = 16
"""One of so many rows may be made by itself; who wants more gets all."""


class CallForm(NamedTuple):
    """What calls have in common."""

    name: str
    thread: int


class Form(NamedTuple):
    """What activities have in common. ``thread`` launched those whose call is not recorded."""

    kind: Literal["kernel", "copy", "fill"]
    name: str
    queue: int
    grid: Size3 | None = None
    workgroup: Size3 | None = None
    resources: Resources | None = None
    size_bytes: int = 0
    route: str = ""
    graph_node: tuple[int, int] | None = None
    thread: int | None = None


class _Made(Rows[T]):
    """Rows that are made of columns, each once."""

    def __init__(self) -> None:
        self._rows = None
        self._some: dict[int, T] = {}
        self.form = array("i")
        self.start_ns = array("q")
        self.end_ns = array("q")
        self.line = array("q")
        self.correlation = array("q")

    @property
    def rows(self) -> tuple[T, ...]:
        if self._rows is None:
            rows = list(self._made(slice(None)))
            for at, row in self._some.items():
                rows[at] = row
            self._rows, self._some = tuple(rows), {}
        return self._rows

    def __len__(self) -> int:
        return len(self.form)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if self._rows is not None:
            return self._rows[at]
        if isinstance(at, slice):
            return tuple(map(self.__getitem__, range(len(self))[at]))
        at = range(len(self))[at]
        row = self._some.get(at)
        if row is None:
            if len(self._some) * _FEW > len(self):
                return self.rows[at]
            (row,) = self._made(slice(at, at + 1))
            self._some[at] = row
        return row

    def _made(self, part: slice) -> Iterator[T]:
        raise NotImplementedError


class Calls(_Made[Call]):
    """Calls in the order in which they were met. ``parent``: the id of the range in which each was made."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: dict[CallForm, int] = {}
        self.parent = array("q")

    def _made(self, part: slice) -> Iterator[Call]:
        names, threads = (_of_forms(self.forms, field, self.form[part]) for field in CallForm._fields)
        return map(
            Call, names, threads, _or_none(self.start_ns[part]), _or_none(self.end_ns[part]), self.line[part],
            repeat(None), _or_none(self.correlation[part]),
        )  # fmt: skip


class Recorded(Activities, _Made[Activity]):
    """Activities of a profiler that tells all their times. ``call``: the place of the call that launched each in
    ``launches``; ``counters``: of those that have any, by their place."""

    def __init__(self, launches: Calls) -> None:
        _Made.__init__(self)
        self.launches = launches
        self.forms: dict[Form, int] = {}
        self.number = array("q")
        self.call = array("i")
        self.range = array("q")
        self.counters: Mapping[int, tuple[float | None, ...]] = {}

    def put_in_order(self, order: Sequence[int]) -> None:
        """The row that is at ``order[0]`` becomes the first, and so on."""
        for name in ("form", "start_ns", "end_ns", "line", "correlation", "number", "call", "range"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, map(column.__getitem__, order)))
        if self.counters:
            self.counters = {new: self.counters[old] for new, old in enumerate(order) if old in self.counters}

    @property
    def threads(self) -> Sequence[int]:
        of = [form.thread for form in self.launches.forms]
        return array("i", map([*map(of.__getitem__, self.launches.form), 0].__getitem__, self.call))

    def distinct(self, field: str) -> set[Any]:
        return set(map(attrgetter(field), self.forms)) if field in Form._fields else super().distinct(field)

    @property
    def call_names(self) -> set[str]:
        return {form.name for form in self.launches.forms}

    def _column(self, field: str) -> Sequence[Any]:
        if field == "call":
            return list(map([*self.launches.rows, None].__getitem__, self.call))
        if field in Form._fields:
            return list(_of_forms(self.forms, field, self.form))
        column: array[int] = getattr(self, field)
        return list(_or_none(column)) if field in ("range", "correlation") else column

    def _of_call(self, field: str) -> Sequence[int | None]:
        column: array[int] = getattr(self.launches, field)
        if NONE in self.call or NONE in column:
            return list(map([*_or_none(column), None].__getitem__, self.call))
        return array("q", map(column.__getitem__, self.call))

    def _made(self, part: slice) -> Iterator[Activity]:
        calls: Iterable[Call | None]
        if part.stop is None:
            calls = self._column("call")
        else:
            calls = [None if at == NONE else self.launches[at] for at in self.call[part]]
        kinds, names, queues, grids, groups, resources, sizes, routes, nodes, _ = (
            _of_forms(self.forms, field, self.form[part]) for field in Form._fields
        )
        places = range(len(self))[part]
        return map(
            Activity, self.number[part], kinds, names, self.line[part], queues, repeat(None), repeat(None),
            self.start_ns[part], self.end_ns[part], calls, grids, groups, repeat(NOT_OPENCL), sizes, routes,
            _or_none(self.correlation[part]), _or_none(self.range[part]), resources, nodes,
            map(self.counters.get, places, repeat(())),
        )  # fmt: skip


def _of_forms(forms: Iterable[Any], field: str, places: Iterable[int]) -> Iterator[Any]:
    return map(list(map(attrgetter(field), forms)).__getitem__, places)


def _or_none(column: array[int]) -> Iterable[int | None]:
    return [None if value == NONE else value for value in column] if NONE in column else column
