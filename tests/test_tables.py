"""Tables of commands and calls: records and columns say the same."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.model.profile import NOT_OPENCL, Activity, Call, OpenClLaunch, Profile, Resources
from mio2trace.model.tables import (
    NO,
    Activities,
    Calls,
    Growing,
    Index,
    Numbers,
    by_code,
    distinct,
    present,
    sorted_pool,
)

numbers = st.none() | st.integers(-(1 << 62), (1 << 63) - 1)
sizes = st.none() | st.tuples(*[st.integers(0, 1 << 31)] * 3)
calls = st.builds(
    Call, st.sampled_from(["hipLaunchKernel", "hipGraphLaunch", ""]), st.integers(0, 3), numbers, numbers,
    st.integers(0, 9), numbers, numbers, numbers,
)  # fmt: skip


@st.composite
def activities(draw: st.DrawFn) -> tuple[Activity, ...]:
    shared = draw(st.lists(calls, max_size=4))
    made = st.builds(
        Activity, st.integers(0, 1 << 62), st.sampled_from(["kernel", "copy", "fill"]), st.sampled_from("abc"),
        st.integers(0, 9), st.integers(0, 3), numbers, numbers, numbers, numbers, st.sampled_from([*shared, None]),
        sizes, sizes, st.sampled_from([NOT_OPENCL, OpenClLaunch("k", ("00",), 1, (1, 2, 3))]), st.integers(0, 1 << 62),
        st.sampled_from(["", "host to device"]), numbers, st.none() | st.integers(0, 5),
        st.sampled_from([None, Resources(8), Resources(8, None, 4, 0, 1)]),
        st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3)),
        st.sampled_from([(), (None, 1.5), (2.0, None)]),
    )  # fmt: skip
    return tuple(draw(st.lists(made, max_size=8)))


@given(activities())
def test_records_survive_as_columns(records: tuple[Activity, ...]) -> None:
    table = Activities(records)
    columns = {field: getattr(table, field) for field in Activity.__struct_fields__}
    again = Activities.of_columns(len(records), calls=table.calls, **columns)
    assert again == records
    assert tuple(again) == records
    same = {id(one.call): id(other.call) for one, other in zip(records, again, strict=True)}
    assert len(set(same.values())) == len(same)  # what shared a call shares one


@given(activities())
def test_columns_of_calls_are_those_of_the_records(records: tuple[Activity, ...]) -> None:
    table = Activities(records)
    for field in ("host_start_ns", "host_end_ns", "thread", "is_replayed"):
        found = [None if value == NO else value for value in getattr(table, field).tolist()]
        assert found == [getattr(one, field) for one in records]
    assert table.is_kernel.tolist() == [one.kind == "kernel" for one in records]


@given(st.lists(calls, max_size=8))
def test_calls_survive_as_columns(records: list[Call]) -> None:
    table = Calls(records)
    columns = {field: getattr(table, field) for field in Call.__struct_fields__}
    again = Calls.of_columns(len(records), **columns)
    assert again == records
    assert hash(again) == hash(tuple(records))
    assert table.take([at for at, one in enumerate(records) if one.thread == 1]) == [
        one for one in records if one.thread == 1
    ]


def test_a_profile_has_tables_whatever_it_is_made_of() -> None:
    activity = Activity(0, "kernel", "k", call=Call("hipLaunchKernel"))
    profile = Profile(source=0, records=1, activities=(activity,), other_calls=(Call("x"),))
    assert profile.commands.calls == (activity.call,)
    assert profile.lone_calls.name.values == ["x"]
    changed = msgspec.structs.replace(profile, activities=[activity, activity])
    assert changed.commands.call.tolist() == [0, 0]
    assert profile == Profile(source=0, records=1, activities=(activity,), other_calls=(Call("x"),))


@given(activities(), st.data())
def test_a_few_records_are_those_of_the_whole(records: tuple[Activity, ...], data: st.DataObject) -> None:
    """Also where the table makes no others."""
    many = records * 20
    table = Activities(many)
    columns = {field: getattr(table, field) for field in Activity.__struct_fields__}
    again = Activities.of_columns(len(many), calls=table.calls, **columns)
    if many:
        at = data.draw(st.integers(-len(many), len(many) - 1))
        assert again[at] == many[at]
        assert again[at : at + 2] == many[at : at + 2]
        assert again._records is None
    assert again[:1] == many[:1]
    assert tuple(again) == many
    rows = data.draw(st.lists(st.integers(0, max(0, len(many) - 1)), max_size=9 if many else 0))
    assert table.take(rows) == [many[row] for row in rows]


IDS = st.lists(st.sampled_from([NO, -7, 0, 1, 2, 3, 5, 1 << 40]), max_size=12) | st.lists(
    st.integers(0, 9), max_size=12
)


@given(IDS, IDS, st.booleans())
def test_an_index_finds_the_first_or_the_last_row(ids: list[int], asked: list[int], last: bool) -> None:
    """As a dictionary does; ids may be near each other or far apart."""
    rows = list(enumerate(ids))
    row_of = {one: row for row, one in (rows if last else rows[::-1]) if one != NO}
    index = Index(np.array(ids, np.int64), last=last)
    assert index.rows(np.array(asked, np.int64)).tolist() == [row_of.get(one, -1) for one in asked]
    assert bool(len(index)) == bool(row_of)


@given(st.lists(st.integers(-3, 9) | st.sampled_from([1 << 40, -(1 << 62)]), max_size=30))
def test_codes_are_told_apart_whether_they_are_counted_or_sorted(codes: list[int]) -> None:
    """First rows, distinct numbers, rows by code: as Python says, for numbers near each other and far apart."""
    column = np.array(codes, np.int64)
    first, place_of = distinct(column)
    assert column[first].tolist() == list(dict.fromkeys(codes))
    assert column[first][place_of].tolist() == codes
    assert present(column).tolist() == sorted({*codes})
    rows = np.arange(len(codes))
    assert [(code, own.tolist()) for code, own in by_code(rows, column)] == [
        (code, [row for row, one in enumerate(codes) if one == code]) for code in sorted({*codes})
    ]
    pool = sorted_pool(column)
    assert (list(pool.values), list(pool.each())) == (sorted({*codes}), codes)


@pytest.mark.parametrize(("find", "columns"), [(present, 2), (sorted_pool, 5)])
def test_numbers_far_apart_are_told_apart_in_little_memory(find: Callable[[Numbers], object], columns: float) -> None:
    """A column of ten million takes 80 MB."""
    column = np.arange(100_000) % 3000 * 10**9
    tracemalloc.start()
    try:
        find(column)
        assert tracemalloc.get_traced_memory()[1] < columns * column.nbytes
    finally:
        tracemalloc.stop()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(-9, 9)),
            st.tuples(st.just("extend"), st.integers(-9, 9) | st.lists(st.integers(-9, 9))),
            st.tuples(st.just("shift"), st.integers(-9, 9)),
            st.tuples(st.just("read"), st.none()),
        )
    )
)
def test_a_growing_column_is_a_list_of_numbers(steps: list[tuple[str, Any]]) -> None:
    """However its rows come, and whenever it is read."""
    rows = Growing(["a", "b"])
    a: list[int] = []
    b: list[int] = []
    for what, value in steps:
        if what == "add":
            rows.add((value, 1))
            a, b = [*a, value], [*b, 1]
        elif what == "extend":
            cells = value if isinstance(value, list) else 2 * [value]
            rows.extend(len(cells), a=np.array(cells, np.int64) if isinstance(value, list) else value, b=7)
            a, b = a + cells, b + [7] * len(cells)
        elif what == "shift":
            rows.shift(value, "a")
            a = [one + value for one in a]
        else:
            assert rows["a"].tolist() == a
    assert len(rows) == len(a)
    assert (rows["a"].tolist(), rows.pop("b").tolist()) == (a, b)


def test_a_column_of_one_number_is_kept_as_one_number() -> None:
    same = Growing(("number", "line"))
    for number in (4, 5):
        same.extend(2, number=np.array([number, number]), line=7)
    assert ([*same["line"]], same["line"].strides) == ([7] * 4, (0,))
