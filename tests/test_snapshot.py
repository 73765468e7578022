"""What is kept of a run beside its tables comes back as it was, holds nothing private, and is trusted with nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.analysis.kept import snapshot_of
from mio2trace.model.profile import Activity, BufferCreated, Call, OpenCl, OpenClLaunch, Profile, Program
from mio2trace.notes import InputError, Notes
from mio2trace.privacy.fields import NEVER_SHOWN
from mio2trace.queries.dataset import opened
from mio2trace.snapshot.database import connection, sql_text
from mio2trace.snapshot.files import read, write
from mio2trace.snapshot.objects import Column, classes_in, from_columns, name_of, to_columns
from mio2trace.snapshot.places import RUNS, is_dataset, snapshots_of
from mio2trace.snapshot.records import Snapshot
from mio2trace.snapshot.values import Damaged, Packer, Unpacker, pack_ints, unpack_ints
from tests.conftest import ROOT

SQUEEZENET = [ROOT / "traces" / "squeezenet11-b1-libdnn-fwd" / name for name in ("run.log", "prof.json.gz")]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    analysis = mio2trace.analyse(SQUEEZENET)
    return snapshot_of([analysis.run], analysis.notes, analysis.cleaner, "mio2trace")


@given(st.lists(st.integers(-(1 << 70), 1 << 70)) | st.lists(st.integers(0, 300)) | st.lists(st.integers(0).map(hash)))
def test_numbers_come_back(values: list[int]) -> None:
    """Of any size, in any order."""
    node = msgspec.msgpack.decode(msgspec.msgpack.encode(pack_ints(values)))
    assert unpack_ints(node, len(values)) == values


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inside: (
        st.lists(inside).map(tuple)
        | st.dictionaries(st.text(), inside)
        | st.frozensets(st.integers(-5, 5))
        | st.tuples(st.integers(0, 2), st.integers(0, 2))
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """With what `==` does not tell: types, and the order of a mapping."""
    if isinstance(value, dict):
        return [(key, typed(member)) for key, member in value.items()]
    return type(value), sorted(value) if isinstance(value, frozenset) else (
        tuple(map(typed, value)) if isinstance(value, tuple) else repr(value)
    )


@given(st.lists(VALUES, max_size=40))
def test_values_of_any_kind_come_back(values: list[Any]) -> None:
    """With their types: 1 is not True, a tuple no list."""

    def no_record(*_: Any) -> Any:
        raise AssertionError("there is none")

    node = msgspec.msgpack.decode(msgspec.msgpack.encode(Packer(no_record).pack(values)))
    back = Unpacker(no_record).unpack(node, len(values))
    assert back == values
    assert list(map(typed, back)) == list(map(typed, values))
    packed = Packer(no_record).pack(values * 20)  # equal ones are kept once
    assert list(map(typed, Unpacker(no_record).unpack(packed, 20 * len(values)))) == list(map(typed, values * 20))


def test_what_was_one_object_is_one_again() -> None:
    """A graph's launch started several kernels."""
    call = Call("hipGraphLaunch", start_ns=5, end_ns=9)
    activities = tuple(Activity(number, "kernel", "k", call=call, grid=(64, 1, 1)) for number in range(40))
    back = from_columns(Profile, to_columns(Profile(source=0, records=40, activities=activities)))
    assert back.activities == activities
    assert len({id(activity.call) for activity in back.activities}) == 1
    assert len({id(activity.grid) for activity in back.activities}) == 1, "sizes are told apart by identity"


def test_what_is_never_shown_is_left_out() -> None:
    """Addresses, arguments, sources; of buffers it stays which of them are equal."""
    launch = OpenClLaunch("0xdead01", ("0100000002dead", "7fdead00"), 0, (1, 0, 0))
    profile = Profile(
        source=0,
        records=3,
        activities=(Activity(0, "kernel", "k", opencl=launch),),
        opencl=OpenCl(
            programs=(Program(index=0, number=1, handle="0xdead02", source=b"dead03", options="-I dead"),),
            buffers=tuple(
                BufferCreated(number=number, handle=handle, size_bytes=8)
                for number, handle in enumerate(("0xdead04", "0xdead05", "0xdead04"))
            ),
        ),
    )
    columns = to_columns(profile)
    assert b"dead" not in msgspec.msgpack.encode([column.node for column in columns])
    back = from_columns(Profile, columns)
    assert back.activities[0].opencl == OpenClLaunch("", (), 0, (1, 0, 0))
    first, second, third = (buffer.handle for buffer in back.opencl.buffers)
    assert first == third != second


def test_nothing_of_a_real_run_that_is_never_shown_is_kept(snapshot: Snapshot, tmp_path: Path) -> None:
    """Field by field of the table that the privacy filter goes by."""
    write(snapshot, tmp_path, "x.parquet")
    back = read(tmp_path / "snapshot" / "x.parquet")
    looked = 0
    for column in to_columns(back):
        for kind, fields in NEVER_SHOWN.items():
            if column.part == name_of(kind) and column.name in fields and kind is not BufferCreated:
                shown = Unpacker(lambda name: ()).unpack(column.node, column.count)
                assert not any(shown), (column.part, column.name)
                looked += 1
    assert looked > 4


def test_every_record_that_a_run_may_hold_has_a_name() -> None:
    """No two classes share one, and all problems of MIOpen are among them."""
    names = classes_in(Snapshot)
    assert {"Execution", "TfExecution", "ConvProblem"} <= set(names)
    assert len(names) == len(set(names.values())) > 50


@pytest.mark.parametrize(
    "change",
    [
        lambda column: Column("Nothing", column.name, column.count, column.node),
        lambda column: Column(column.part, "nothing", column.count, column.node),
        lambda column: Column(column.part, column.name, column.count + 1, column.node),
        lambda column: Column(column.part, column.name, 1 << 40, column.node),
        lambda column: Column(column.part, column.name, column.count, ["record", column.part, ["same", 0]]),
        lambda column: Column(column.part, column.name, column.count, ["str", ["x"], ["same", 0]]),
        lambda column: Column(column.part, column.name, column.count, ["none"]),
        lambda column: Column(column.part, column.name, column.count, ["above", 0, 3, b"xy"]),
        lambda column: Column(column.part, column.name, column.count, [["deep"]]),
    ],
)
def test_what_is_damaged_is_refused(change: Any) -> None:
    """Unknown classes and fields, counts without end, values of another type, cycles."""
    activities = tuple(Activity(number, "kernel", "k") for number in range(3))
    columns = to_columns(Profile(source=0, records=3, activities=activities))
    at = next(at for at, column in enumerate(columns) if (column.part, column.name) == ("Activity", "queue"))
    with pytest.raises((Damaged, LookupError, TypeError, ValueError)):
        from_columns(Profile, [*columns[:at], change(columns[at]), *columns[at + 1 :]])


def test_names_in_a_table_that_are_no_utf8_are_one_line(tmp_path: Path) -> None:
    """DuckDB hands them over as they are, or fails at it."""
    table = tmp_path / RUNS / "a.parquet"
    table.parent.mkdir()
    with contextlib.closing(connection()) as database:
        database.execute(f"COPY (SELECT 1 AS odd_column) TO {sql_text(table)} (FORMAT parquet)")
    table.write_bytes(table.read_bytes().replace(b"odd_column", b"odd\xff\xfecolum"))
    with pytest.raises(InputError) as refused, opened(str(tmp_path), {RUNS: {"run": "VARCHAR"}}) as dataset:
        dataset.ask(f"SELECT * FROM {RUNS}")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_none_is_one_line(snapshot: Snapshot, tmp_path: Path) -> None:
    """Cut off, overwritten, of another kind."""
    write(snapshot, tmp_path, "x.parquet")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.parquet").write_bytes(b"PAR1")
    place = tmp_path / "snapshot" / "x.parquet"
    whole = place.read_bytes()
    assert is_dataset(tmp_path)
    assert snapshots_of(tmp_path) == snapshots_of(tmp_path / "runs" / "x.parquet") == ([place], 0)
    for data in (whole[: len(whole) // 2], b"PAR1", b"", whole[:200] + bytes(2000) + whole[2200:]):
        place.write_bytes(data)
        with pytest.raises(InputError, match=r"x\.parquet: ") as told:
            mio2trace.analyse(tmp_path)
        assert "\n" not in str(told.value)
    place.unlink()
    with pytest.raises(InputError, match="a run that failed"):
        mio2trace.analyse(tmp_path)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="tables alone"):
        mio2trace.analyse(tmp_path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"without": frozenset({"order"})}, "leave out evidence"),
        ({"every_message": True}, "every message"),
        ({"keep": ("paths",)}, "what is private"),
    ],
)
def test_what_only_the_sources_tell_is_refused(
    options: dict[str, Any], expected: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    """A dataset holds a run as it was joined, and nothing private."""
    write(snapshot, tmp_path, "x.parquet")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=expected):
        mio2trace.analyse(tmp_path, mio2trace.AnalysisOptions(**options))
    with pytest.raises(InputError, match="datasets alone"):
        mio2trace.analyse([tmp_path, SQUEEZENET[0]])


def test_notes_come_back(snapshot: Snapshot, tmp_path: Path) -> None:
    """With count, places and whether they are problems."""
    notes = Notes()
    notes.add("line cut off", "run.log:5", 3)
    notes.remark("file passed over")
    analysis = mio2trace.analyse(SQUEEZENET)
    write(snapshot_of([analysis.run], notes, analysis.cleaner, "mio2trace"), tmp_path, "x.parquet")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.parquet").write_bytes(b"PAR1")
    assert list(map(repr, mio2trace.analyse(tmp_path).notes)) == list(map(repr, notes))
