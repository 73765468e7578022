"""What is kept of a run beside its tables comes back as it was, holds nothing private, and is trusted with nothing."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.analysis import snapshot_of
from mio2trace.answer.content import machine
from mio2trace.files import Input
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.profile import Activity, BufferCreated, Call, Inputs, OpenCl, OpenClLaunch, Profile, Program, Range
from mio2trace.model.tables import NO, Activities, Calls, Pool
from mio2trace.model.tf import TfNode
from mio2trace.notes import InputError, Notes
from mio2trace.privacy import never_shown, records
from mio2trace.queries import opened
from mio2trace.snapshot import RUNS, files, is_dataset, snapshots_of
from mio2trace.snapshot.database import connection, sql_text
from mio2trace.snapshot.files import KeptRun, Snapshot, read, write
from mio2trace.snapshot.objects import Damaged, Table, classes_in, from_tables, name_of, packed, to_tables, unpacked
from tests.commands import invoked
from tests.conftest import ROOT

SQUEEZENET = [ROOT / "traces" / "squeezenet11-b1-libdnn-fwd" / name for name in ("run.log", "prof.json.gz")]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    analysis = mio2trace.analyse(SQUEEZENET)
    return snapshot_of([analysis.run], analysis.notes, analysis.cleaner, "mio2trace")


def kept(snapshot: Snapshot, folder: Path) -> Path:
    """The file of the snapshot; the folder is a dataset."""
    write(snapshot, folder, "x.parquet")
    (folder / "runs").mkdir()
    (folder / "runs" / "x.parquet").write_bytes(b"PAR1")
    return folder / "snapshot" / "x.parquet"


SHAPE = st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple)
INPUTS = st.builds(
    Inputs,
    shapes=st.lists(st.none() | SHAPE | st.lists(SHAPE, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
    dtypes=st.lists(st.text(), max_size=3).map(tuple),
)
TIME = st.none() | st.integers(1 - (1 << 63), (1 << 63) - 1)
CALLS = st.builds(Call, st.text(), start_ns=TIME, end_ns=TIME)
ACTIVITIES = st.builds(
    Activity,
    st.integers(0, (1 << 63) - 1),
    st.sampled_from(["kernel", "copy", "fill"]),
    st.text(),
    start_ns=TIME,
    call=st.none() | CALLS,
    grid=st.none() | st.tuples(*[st.integers(0, 9)] * 3),
)
RANGES = st.builds(
    Range,
    kind=st.sampled_from(["range", "operator"]),
    text=st.text(),
    thread=st.just(0),
    start_ns=st.integers(-5, 5),
    end_ns=st.integers(0, (1 << 64) - 1),
    inputs=st.none() | INPUTS,
)


@given(st.lists(ACTIVITIES, max_size=8), st.lists(RANGES, max_size=5), st.dictionaries(st.text(), st.integers(0, 9)))
def test_records_come_back(activities: list[Activity], ranges: list[Range], defects: dict[str, int]) -> None:
    """Of any values, in any order."""
    profile = Profile(source=0, records=1, activities=tuple(activities), ranges=tuple(ranges), defects=defects)
    back = from_tables(Profile, to_tables(profile))
    assert repr(back) == repr(profile)  # which tells 1 from True, a tuple from a list


def test_what_was_one_object_is_one_again() -> None:
    """A graph's launch started several kernels."""
    call = Call("hipGraphLaunch", start_ns=5, end_ns=9)
    activities = tuple(Activity(number, "kernel", "k", call=call, grid=(64, 1, 1)) for number in range(40))
    back = from_tables(Profile, to_tables(Profile(source=0, records=40, activities=activities)))
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
    tables = to_tables(profile)
    assert not any(b"dead" in table.data for table in tables)
    back = from_tables(Profile, tables)
    assert back.activities[0].opencl == OpenClLaunch("", (), 0, (1, 0, 0))
    first, second, third = (buffer.handle for buffer in back.opencl.buffers)
    assert first == third != second


def test_the_lines_that_name_the_machine_are_kept() -> None:
    """The answer on a dataset names the GPU and the versions as the answer on the log does."""
    texts = {"device": "Raw device name: gfx942", "version": "HIP version 7.2, MIOpen version 3.5.1"}
    records = tuple(Message(0, line, "Info", "f", text, kind) for line, (kind, text) in enumerate(texts.items(), 1))
    log = MiopenLog(source=0, records=records)
    back = from_tables(MiopenLog, to_tables(log))
    assert machine(None, [back]) == machine(None, [log]) == "gfx942 · HIP 7.2 · MIOpen 3.5.1"


def test_no_memory_is_kept_in_cycles(snapshot: Snapshot) -> None:
    """The collector is off while a snapshot is made. A function in a function that calls itself would keep the numbers
    of all records."""
    to_tables(snapshot)  # it also fills the caches of the classes
    gc.collect()
    to_tables(snapshot)
    assert not gc.collect()


def test_nothing_of_a_real_run_that_is_never_shown_is_kept(snapshot: Snapshot, tmp_path: Path) -> None:
    """Field by field of the table that the privacy filter goes by."""
    write(snapshot, tmp_path, "x.parquet")
    back = read(tmp_path / "snapshot" / "x.parquet")
    looked = 0
    for table in to_tables(back):
        columns = msgspec.msgpack.decode(table.data)
        for kind in records():
            if table.part == name_of(kind) and kind is not BufferCreated:
                for field in never_shown(kind):
                    column = columns[field]
                    shown = column["words"] if isinstance(column, dict) else column
                    assert not any(shown), (table.part, field)
                    looked += 1
    assert looked > 4


def test_every_record_that_a_run_may_hold_has_a_name() -> None:
    """No two classes share one, and all problems of MIOpen are among them."""
    names = classes_in(Snapshot)
    assert {"Execution", "TfExecution", "ConvProblem"} <= set(names)
    assert len(names) == len(set(names.values())) > 50


PROFILE = Profile(
    source=0,
    records=3,
    activities=tuple(Activity(number, "kernel", "k") for number in range(3)),
    ranges=(Range("range", "r", 0, 0, 1),),
)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("nothing", [0], "unknown field"),
        ("queue", [b"\1\0\0\0"] * 2, "different lengths"),
        ("queue", [b"\1\0\0"], "different lengths"),
        ("queue", [0], "Expected"),
        ("queue", [b"\1\0\0\x80"], "no number"),
        ("queue", [b"\x20" + bytes(8) + b"\3" + bytes(9)], "numbers of 3 bytes"),
        ("queue", [b"\0"], "numbers of 0 bytes"),
        ("queue", [b"\2\0\0\0"], "multiple"),
        ("kind", {"words": [["thing"]], "codes": [0]}, "Invalid enum value"),
        ("kind_of", [b"\1\0\0\1"], "out of range"),
        ("name_of", [b"\1\0\0\1"], "out of range"),
        ("name_of", [b"\1\0\0\xff"], "out of range"),
        ("name_of", [b""], "numbers of 0 bytes"),
        ("grid", {"words": [[[1, 2]]], "codes": [0]}, "length 3"),
        ("calls", [2], "no record of its kind"),
        ("calls", [-1], "Expected"),
        ("call", [b"\1\0\0\0"], "out of range"),
        ("call", [b"\1\xfe\xfe\xfe"], "out of range"),
        ("range", [b"\5" + bytes(24)], "numbers of 5 bytes"),
        ("range", [b"\10" + bytes(16) + b"\0\0\0\x80\0\0\0\0"], "out of range"),
        ("number", None, "number"),
        ("", None, "Expected `object`"),
    ],
)
def test_what_is_damaged_is_refused(field: str, value: object, said: str) -> None:
    """Unknown fields, other lengths and types, numbers of records that are none, or of another class."""
    tables = to_tables(PROFILE)
    at = next(at for at, table in enumerate(tables) if table.part == "Activities")
    columns = msgspec.msgpack.decode(tables[at].data)
    changed = msgspec.msgpack.encode(columns | {field: value} if field else [columns])
    with pytest.raises((Damaged, LookupError, TypeError, ValueError, msgspec.MsgspecError), match=said):
        from_tables(Profile, [*tables[:at], Table("Activities", [changed]), *tables[at + 1 :]])


@pytest.mark.parametrize(
    "root",
    [
        TfNode(name="n", op="n", input_shapes=((0, (64, 101)), (1, ())), output_shapes=((2, (1,)),)),
        Range("operator", "op", 0, 0, 1, inputs=Inputs(((5, 6), None, ((2, 3), (4,)), (7, (8, 9))))),
    ],
)
def test_shapes_of_every_form_come_back(root: msgspec.Struct) -> None:
    """With the place of an input, of a list of tensors, and where a list holds more than tensors."""
    assert from_tables(type(root), to_tables(root)) == root


def test_tables_that_do_not_belong_are_refused() -> None:
    """Of unknown classes, twice, in another order, without the last."""
    tables = to_tables(PROFILE)
    for wrong in ([*tables, Table("Nothing", [b""])], tables[::-1], [tables[0], *tables], tables[:-1], []):
        with pytest.raises(Damaged):
            from_tables(Profile, wrong)


def test_what_is_shared_again_and_again_is_refused() -> None:
    """A range that a profile names 400,000 times; a thousand times is no fault."""
    tables = to_tables(PROFILE)
    columns = msgspec.msgpack.decode(tables[-1].data)
    (ranges,) = columns["ranges"]
    for times, is_refused in ((300, False), (400_000, True)):
        changed = msgspec.msgpack.encode(columns | {"ranges": [ranges * times]})
        with pytest.raises(Damaged, match="that stand for") if is_refused else contextlib.nullcontext():
            from_tables(Profile, [*tables[:-1], Table(tables[-1].part, [changed])])


def test_commands_that_profiles_share_again_and_again_are_refused() -> None:
    """All profiles of a run may be of the same commands, but not 10,000 of them."""
    commands = Activities.of_columns(
        9000, number=np.arange(9000), name=Pool.same("k", 9000), kind=np.zeros(9000, np.int8), calls=Calls(),
        call=np.full(9000, -1),
    )  # fmt: skip
    profile = Profile(source=0, records=9000, activities=commands)
    for times, is_refused in ((10, False), (10_000, True)):
        root = Input(
            source=0, name="", path="", format="", size=0, sha256="", content_sha256="", records=(profile,) * times
        )
        with pytest.raises(Damaged, match="that stand for") if is_refused else contextlib.nullcontext():
            back = from_tables(Input, to_tables(root))
            assert len({id(one.activities) for one in back.records}) == 1


@pytest.mark.parametrize(("more", "said"), [(0, "its checksum differs"), (1 << 25, "no snapshot of a run")])
def test_a_snapshot_with_other_bytes_is_one_line(snapshot: Snapshot, tmp_path: Path, more: int, said: str) -> None:
    """Whatever Parquet says: one bit, or much more than the file can hold."""
    place = kept(snapshot, tmp_path)
    with contextlib.closing(connection()) as database:
        rows = database.execute(f"SELECT part, data FROM read_parquet({sql_text(place)})").fetchall()
        pairs = database.execute(f"SELECT key, value FROM parquet_kv_metadata({sql_text(place)})").fetchall()
        said_of = ", ".join(f"{key.decode()}: {sql_text(value.decode())}" for key, value in pairs)
        part, data = rows[-1]
        rows[-1] = part, data + bytes(more) if more else data[:-1] + bytes([data[-1] ^ 1])
        database.execute(
            "COPY (SELECT unnest($parts::VARCHAR[]) AS part, unnest($data::BLOB[]) AS data)"
            f" TO {sql_text(place)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{said_of}}})",
            {"parts": [part for part, _ in rows], "data": [data for _, data in rows]},
        )
    with pytest.raises(InputError, match=said) as told:
        read(place)
    assert "\n" not in str(told.value)


EMPTIED = [
    "runs",
    *(name for name in KeptRun.__struct_fields__ if name not in ("name", "framework", "complete", "reference")),
]


@pytest.mark.parametrize("field", EMPTIED)
def test_a_field_of_nothing_is_read_or_refused_in_a_line(field: str, snapshot: Snapshot, tmp_path: Path) -> None:
    """Its checksum is right: a stranger may write any sequence empty."""
    (run,) = snapshot.runs
    runs = () if field == "runs" else (msgspec.structs.replace(run, **{field: ()}),)
    changed = msgspec.structs.replace(snapshot, runs=runs)
    place = kept(changed, tmp_path)
    for command in ("kernels", "report"):
        result = invoked(command, tmp_path)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == 0 or result.stderr.count("\n") == 1
    if field == "runs":
        with pytest.raises(InputError, match="no run"):
            read(place)


def test_a_very_regular_run_is_no_bomb(snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million kernels of one length, one after another, in tables of many pieces: packed well, they would be
    refused as a file that grows too much."""
    monkeypatch.setattr(files, "_FREE", 0)
    count = 1 << 19
    starts = 1000 * np.arange(count)
    commands = Activities.of_columns(
        count, number=np.arange(count), name=Pool.same("k", count), start_ns=starts, end_ns=starts + 900,
        kind=np.zeros(count, np.int8), calls=Calls(), call=np.full(count, -1),
    )  # fmt: skip
    profile = msgspec.structs.replace(snapshot.runs[0].profiles[0], activities=commands, ranges=(), opencl=OpenCl())
    nothing: dict[str, Any] = dict.fromkeys(("logs", "libraries", "operations_by_log", "alignments", "shares"), ())
    run = msgspec.structs.replace(snapshot.runs[0], profiles=(profile,), **nothing)
    inputs = (msgspec.structs.replace(run.inputs[0], records=(profile,)),)
    write(msgspec.structs.replace(snapshot, runs=(msgspec.structs.replace(run, inputs=inputs),)), tmp_path, "x")
    back = read(tmp_path / "snapshot" / "x").runs[0].profiles[0].commands
    assert np.array_equal(back.start_ns, starts)
    assert np.array_equal(back.end_ns, starts + 900)


def test_a_snapshot_of_an_older_version_says_what_to_do(tmp_path: Path) -> None:
    """As 0.2 wrote them: nothing of it is decoded; the tables beside it can be asked."""
    place = tmp_path / "x.parquet"
    with contextlib.closing(connection()) as database:
        database.execute(
            f"COPY (SELECT 'Run' AS part, 'name' AS name, 1 AS count, '\\x91'::BLOB AS data) TO {sql_text(place)}"
            " (FORMAT parquet, KV_METADATA {snapshot: '2', generator: 'mio2trace 0.2.0'})"
        )
    with pytest.raises(InputError, match=r"version 2, this reads 7: its tables can be asked .*write the dataset again"):
        read(place)


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
    place = kept(snapshot, tmp_path)
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
    (tmp_path / "out" / "host").mkdir(parents=True)
    (tmp_path / "out" / "host" / "7_KERNEL_DISPATCH.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"a table of no dataset of mio2trace; .*rocprofv3"):
        mio2trace.analyse(tmp_path / "out" / "host" / "7_KERNEL_DISPATCH.parquet")


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
    kept(snapshot, tmp_path)
    with pytest.raises(InputError, match=expected):
        mio2trace.analyse(tmp_path, mio2trace.AnalysisOptions(**options))
    with pytest.raises(InputError, match="datasets alone"):
        mio2trace.analyse([tmp_path, SQUEEZENET[0]])


def test_notes_come_back(snapshot: Snapshot, tmp_path: Path) -> None:
    """With count, places and whether they are problems."""
    notes = Notes()
    notes.add("line cut off", "run.log:5", 3)
    notes.remark("file: skipped")
    analysis = mio2trace.analyse(SQUEEZENET)
    kept(snapshot_of([analysis.run], notes, analysis.cleaner, "mio2trace"), tmp_path)
    assert list(map(repr, mio2trace.analyse(tmp_path).notes)) == list(map(repr, notes))


# -- Columns of whole numbers come back from their bytes, each number in as few bytes as the column allows.


HEAD = b"\x20" + bytes(8)
EDGES = [sign * (1 << bits) + by for bits in (0, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for by in (-1, 0, 1)]
CELLS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([NO, (1 << 63) - 1, *EDGES]))


@given(st.lists(CELLS, max_size=40) | st.lists(st.sampled_from([NO, *EDGES]), max_size=3))
def test_any_numbers(cells: list[int]) -> None:
    assert unpacked(packed(np.array(cells, np.int64))).tolist() == cells


@given(
    by=st.sampled_from([0, 1, -(1 << 62), (1 << 62) + 3]),
    cells=st.lists(st.integers(-300, 300) | st.just(NO), max_size=40),
    summed=st.booleans(),
)
def test_numbers_near_each_other(by: int, cells: list[int], summed: bool) -> None:
    column = np.array([one if one == NO else one + by for one in cells], np.int64)
    if summed:
        column = np.cumsum(np.where(column == NO, 0, column - by))
    assert unpacked(packed(column)).tolist() == column.tolist()


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.int32])
def test_numbers_of_fewer_bits(kind: Any) -> None:
    cells = [np.iinfo(kind).min, 0, 5, np.iinfo(kind).max]
    assert unpacked(packed(np.array(cells, kind))).tolist() == cells


NEAR, MOST = [1 << 40] * 48, (1 << 63) - 1
LENGTHS = [
    # the smallest number of a size is free for those that are unknown
    ([], 1),
    ([127, -127, NO], 4),
    ([128], 3),
    ([-128], 3),
    ([32767, NO], 5),
    ([32768], 5),
    ([1 << 31], 9),
    ([NO], 2),
    # steps take less, but for the number in front
    ([*NEAR, *NEAR[:2]], 59),
    ([1 << 40, (1 << 40) + 127, *NEAR], 59),
    ([1 << 40, (1 << 40) + 128, *NEAR], 108),
    ([NO, *[MOST] * 49], 401),
    ([1 + NO] * 50, 59),
    ([*range(0, 50_000, 1000)], 108),
    ([*range(0, 5000, 100)], 59),
    ([NO, *range(0, 100_000, 2000)], 205),
    ([1 + NO, MOST], 17),
]


@pytest.mark.parametrize(("cells", "length"), LENGTHS)
def test_as_few_bytes_as_the_column_allows(cells: list[int], length: int) -> None:
    data = packed(np.array(cells, np.int64))
    assert unpacked(data).tolist() == cells
    assert len(data) == length
    if length < 10:
        assert data[0] == (length - 1) // max(1, len(cells)) or not cells


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\3\0\0\0", b"\xff\0", b"\2\0", b"\x20", HEAD, HEAD + b"\2\0", HEAD + b"\x20" * 9]
)
def test_bytes_that_are_no_column(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|multiple"):
        unpacked(data)
