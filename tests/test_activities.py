"""Activities as rows and as columns: both say the same, and a row is one object however it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mio2trace.model.activities import Activities
from mio2trace.model.profile import Activity, Clock, Profile
from mio2trace.model.recorded import Recorded
from mio2trace.notes import Notes
from mio2trace.readers.rocm import rocpd
from mio2trace.readers.rocm.assembly import Assembly
from tests import rocpd_made
from tests.test_rocpd_versions import profiles

COLUMNS = (
    *("numbers", "kinds", "names", "queues", "starts", "ends"),
    *("calls", "host_starts", "host_ends", "threads", "ranges"),
)
N = 40


def recorded() -> Profile:
    """Two calls of three kernels each and so on, some kernels without a call, one without a thread, a copy."""
    assembly = Assembly(0, Clock("boottime"), Notes(), "made")
    for at in range(N):
        if at % 5:
            assembly.call(
                f"hipLaunch{at % 2}", assembly.thread(at % 3), (at * 100, at * 100 + 9), at // 2, parent=at % 4
            )
    for at in range(N):
        thread = None if at % 7 == 0 else assembly.thread(at % 3)
        queue = assembly.queue(assembly.device("GPU"), at % 2)
        assembly.activity(
            "copy" if at % 11 == 0 else "kernel", f"k{at % 4}", queue, (at * 100 + 50, at * 100 + 60),
            number=None if at % 3 == 0 else 1000 + at, correlation=None if at % 13 == 0 else at // 2, thread=thread,
            grid=(at % 5, 1, 1), line=at,
        )  # fmt: skip
    return assembly.finish(every_call=True)


def as_rows(profile: Profile) -> Activities:
    return Activities([msgspec.structs.replace(one) for one in profile.activities])


def test_columns_are_those_of_the_rows() -> None:
    profile = recorded()
    assert isinstance(profile.activities, Recorded)
    columns = {name: list(getattr(profile.columns, name)) for name in COLUMNS}
    names, kinds = profile.columns.call_names, profile.columns.distinct("kind")
    rows = as_rows(profile)
    assert columns == {name: list(getattr(rows, name)) for name in COLUMNS}
    assert None in columns["host_starts"]
    assert any(columns["host_starts"])
    assert names >= rows.call_names >= {"hipLaunch0", "hipLaunch1"}
    assert kinds == rows.distinct("kind") == {"kernel", "copy"}


def by_place(activities: Activities) -> Iterator[Activity]:
    return (activities[at] for at in range(len(activities)))


def test_a_row_is_one_object_however_it_is_asked_for() -> None:
    profile = recorded()
    activities = profile.activities
    first, last = activities[3], activities[-1]
    assert first is activities[3]
    assert activities[3:5][0] is first
    rows = tuple(activities)
    assert rows[3] is first
    assert rows[-1] is last is activities[len(activities) - 1]
    assert all(one is other for one, other in zip(by_place(profile.columns), rows, strict=True))
    with pytest.raises(IndexError):
        activities[len(activities)]
    assert activities == rows
    assert activities == as_rows(profile)
    assert activities != rows[:-1]


def test_what_a_call_launched_has_one_object_for_it() -> None:
    """Whether rows are made one by one or all at once."""
    profile = recorded()
    some = [profile.activities[at] for at in (1, 2)]
    calls: dict[int | None, set[int]] = {}
    for one in (*profile.activities, *some):
        if one.call is not None and one.call.start_ns is not None:
            calls.setdefault(one.correlation, set()).add(id(one.call))
    assert len(calls) > 5
    assert all(len(ids) == 1 for ids in calls.values())


def test_a_profile_has_its_rows_as_activities() -> None:
    profile = recorded()
    rows = tuple(profile.activities)
    again = msgspec.structs.replace(profile, activities=rows)
    assert isinstance(again.activities, Activities)
    assert again.activities == profile.activities
    assert all(one is other for one, other in zip(again.activities, rows, strict=True))
    assert len(msgspec.structs.replace(profile, activities=()).columns) == 0


@pytest.mark.parametrize(
    "pieces",
    [
        [((1, 2, 3), (7, None, 9)), ((4, 5), (0, 3))],
        [((1, 2), (7, 8)), ((9, 4), (1, 2))],
        [((1, 2), (7, 8)), ((3, 3), (1, 2))],
        [((1, 2), (7, -1))],
        [((1, "a"), (7, b"x"))],
        [((1 << 40,), (7,)), ((1 << 41,), (8,))],
        [((5, 6), (1, 1.5)), ((7, None), (2, 3))],
        [((-3, -2), (1, 2))],
    ],
)
def test_numbers_of_ids_are_as_a_dict_has_them(pieces: list[tuple[tuple[object, ...], tuple[object, ...]]]) -> None:
    made = rocpd._OfIds()
    plain: dict[object, object] = {}
    for ids, values in pieces:
        made.add(ids, values)
        plain.update(zip(ids, values, strict=True))
    every = [*plain, 0, 10, -1, "b", None, 1 << 62]
    assert [made.get(one) for one in every] == [plain.get(one) for one in every]
    numbers = made.all(list(plain))
    expected = [-1 if value is None else value for value in plain.values()]
    assert numbers is None or list(numbers) == expected


@pytest.mark.parametrize("version", ["3.0.0", "4.1.0"])
def test_a_database_read_row_by_row_gives_the_same(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of whole pieces against the way of a piece in which something is odd."""
    data = rocpd_made.database(rocpd_made.tables(version))
    (usual,) = profiles(data, tmp_path)
    whole = rocpd._Reading._pieces
    taken: list[bool] = []

    def odd(*args: Any) -> Iterator[tuple[list[tuple[Any, ...]], None]]:
        for some, piece in whole(*args):
            taken.append(piece is not None)
            yield some, None

    monkeypatch.setattr(rocpd._Reading, "_pieces", odd)
    (by_rows,) = profiles(data, tmp_path)
    assert taken
    assert all(taken)
    assert usual.activities
    assert msgspec.structs.astuple(usual) == msgspec.structs.astuple(by_rows)
