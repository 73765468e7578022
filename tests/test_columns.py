"""Slices in columns are written as each alone would be: by numpy, one by one, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mio2trace.conversion import convert
from mio2trace.draw.base import merged
from mio2trace.measures.statistics import fixed
from mio2trace.model import tables
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers.rocm import database, pages, rocpd
from mio2trace.trace import (
    NO,
    NO_ARGS,
    Columns,
    CounterValue,
    Event,
    Flow,
    Pool,
    Slice,
    Slices,
    Trace,
    column,
    each,
    plain,
    whole,
)
from mio2trace.writers import chrome_json, native
from tests import rocm_made, rocpd_made
from tests.conftest import REQUIRED
from tests.drawn_sets import traced
from tests.native_packets import read_native
from tests.often import saved
from tests.rocm_files import records_of

TRACKS = (101, 102)


def of(events: Sequence[Event | Slices], values: Sequence[CounterValue] = ()) -> Trace:
    return traced(events, metadata={}, counters={0: lambda: iter(values)})


def columns(
    likes: Sequence[Slice], starts: Sequence[int], durations: Sequence[int], args: Mapping[str, Sequence[Any]]
) -> Columns:
    of_args = {key: column(values) for key, values in args.items()}
    codes = np.arange(len(likes), dtype=np.int32)
    return Columns(Pool(likes, codes), np.array(starts, np.int64), np.array(durations, np.int64), of_args)


def printed(events: Sequence[Event | Slices]) -> str:
    file = io.BytesIO()
    chrome_json.write(of(events), file)
    return file.getvalue().decode()


def packed(trace: Trace) -> bytes:
    file = io.BytesIO()
    native.write(trace, file)
    return file.getvalue()


def test_rows_of_slices_are_written_as_they_come() -> None:
    """A whole trace does not wait in memory for the end."""
    like = Slice(101, 0, 0, "k", "kernel", NO_ARGS)
    rows = [Slices(101, [columns([like] * 1000, range(at, at + 1000), [1] * 1000, {})]) for at in range(0, 20000, 1000)]
    made = io.BytesIO()

    def coming() -> Iterator[Event | Slices]:
        for number, row in enumerate(rows):
            yield row
            assert made.tell() > number * 1000

    native.write(msgspec.structs.replace(of([]), parts=(coming,), arrows=()), made)


NAMES = st.sampled_from(["", "k<int, 3>", 'a "call"\n', "café"])
COLUMNS = {
    "call_index": st.integers(0, 1 << 55),
    "small": st.integers(0, 300),
    "wide": st.integers(1 - (1 << 63), (1 << 63) - 1),
    "gflops": st.floats(allow_nan=False, allow_infinity=False),
    "source": st.sampled_from(["train.py:88", "a, b: \\", "ü"]),
    "any": st.one_of(
        st.integers(-5, 1 << 70), st.booleans(), st.dictionaries(st.sampled_from("MN"), st.integers(0, 9))
    ),
}


@st.composite
def pictures(draw: st.DrawFn) -> tuple[list[Slices], list[CounterValue], list[Flow]]:
    """A few rows of columns on each track, with others around some of them, values and arrows between them."""
    shared: list[Any] = [NO_ARGS, {"layer": "conv1"}, {"lws": "1x1", "M": 4}]
    found: list[Slices] = []
    values: list[CounterValue] = []
    starts_on: dict[int, list[int]] = {}
    for track in TRACKS:
        likes = [
            Slice(track, 0, 0, draw(NAMES), draw(st.sampled_from(["kernel", "api", "layer"])), NO_ARGS, one)
            for one in shared
        ]
        at, starts_on[track] = draw(st.sampled_from([0, 7, 1 << 40])), []
        for _ in range(draw(st.integers(1, 3))):
            keys = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True))
            chosen: list[Slice] = []
            starts: list[int] = []
            durations: list[int] = []
            outer: list[Slice] = []
            places: list[int] = []
            until = at
            for number in range(draw(st.integers(0, 8))):
                at += draw(st.sampled_from([0, 1, 200, 1 << 30]))
                if at >= until and draw(st.booleans()):
                    until = at + draw(st.sampled_from([0, 3, 500]))
                    own: dict[str, Any] = draw(st.sampled_from([{}, {"kernels": 3}, {"gemm": {"M": 1}}]))
                    outer.append(Slice(track, at, until - at, "outer", "operation", own, shared[1]))
                    places.append(2 * number)
                dur = draw(st.sampled_from([0, 1, 90]))
                dur = min(dur, until - at) if at < until else dur
                chosen.append(draw(st.sampled_from(likes)))
                starts.append(at)
                durations.append(dur)
                starts_on[track].append(at)
                at += dur
                if draw(st.integers(0, 4)) == 0:
                    values.append(
                        CounterValue(100, "Busy", "%", at + draw(st.integers(-3, 3)) if at > 3 else at, 1.5, track)
                    )
            at = max(at, until)
            args = {
                key: [
                    draw(st.one_of(st.none(), COLUMNS[key])) if draw(st.booleans()) else draw(COLUMNS[key])
                    for _ in starts
                ]
                for key in keys
            }
            if starts or outer:
                inner = columns(chosen, starts, durations, args)
                if not outer and draw(st.booleans()):
                    found.append(Slices(track, [inner]))
                else:
                    order = merged(np.array(places, np.int64), np.arange(1, 2 * len(starts), 2))
                    found.append(Slices(track, [whole(outer), inner], order))
    flows = []
    if all(starts_on.values()):
        for number in range(draw(st.integers(0, 9))):
            ends = draw(st.sampled_from(starts_on[101])), draw(st.sampled_from(starts_on[102]))
            flows.append(Flow(number + 1, "enqueue", 101, ends[0], 102, ends[1]))
    values.sort(key=lambda value: value.time_ns)
    return found, values, flows


def is_as_each_alone(found: Sequence[Slices], flows: Sequence[Flow] = (), values: Sequence[CounterValue] = ()) -> bytes:
    """The trace; read back by Perfetto's own classes it is as of slices one by one."""
    expected = read_native(packed(of([*each(found), *flows], values)))._replace(packets=0)
    written = packed(of([*found, *flows], values))
    assert read_native(written)._replace(packets=0) == expected  # texts may be told together
    assert len(list(native.slices(io.BytesIO(written)))) == sum(map(len, found))
    return written


@pytest.mark.thorough
@given(pictures())
def test_columns_are_written_as_their_slices_are(drawn: tuple[list[Slices], list[CounterValue], list[Flow]]) -> None:
    """Slices, arguments, arrows, values."""
    found, values, flows = drawn
    is_as_each_alone(found, flows, values)


@given(pictures())
def test_columns_are_printed_as_their_slices_are(drawn: tuple[list[Slices], list[CounterValue], list[Flow]]) -> None:
    """Whatever is in the text that stays, whatever the numbers: also those that no 64 bits hold."""
    expected = printed(list(each(drawn[0])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mio2trace.writers.events._FEWEST_IN_COLUMNS", 2)
        written = printed(drawn[0])
    # Of large numbers 1e16 and 1e+16 are the same; all that makes the file's end is that.
    assert written[: written.rindex("]")].replace("e+", "e") == expected[: expected.rindex("]")].replace("e+", "e")
    json.loads(written)


def test_a_packet_may_be_of_any_length() -> None:
    """Between short ones: a slice with many arguments, and one that many arrows leave."""
    short = Slice(101, 0, 0, "k", "kernel", NO_ARGS, {"layer": "conv1"})
    long = Slice(101, 0, 0, "long", "kernel", {"many": {f"key {number}": number for number in range(2000)}})
    row = columns([short, short, long, short], [0, 10, 20, 30], [5, 5, 5, 5], {"call_index": [1, None, 3, 4]})
    calls = whole([Slice(102, number, 1, "call", "api", NO_ARGS) for number in range(3000)])
    flows = [Flow(number + 1, "enqueue", 101, 10, 102, 10 + number) for number in range(2000)]
    is_as_each_alone([Slices(101, (row,)), Slices(102, (calls,))], flows)


def test_a_column_may_give_the_colour() -> None:
    """Where the slices have none in common."""
    likes = [Slice(101, 0, 0, "k", "kernel", NO_ARGS, shared) for shared in (NO_ARGS, {"gws": "1x1"}, NO_ARGS)]
    row = Slices(101, (columns(likes, [0, 10, 20], [5, 5, 5], {"layer": ["conv1", "fc1", None]}),))
    assert sum(map(len, read_native(is_as_each_alone([row])).correlations.values())) == 2


@pytest.mark.parametrize(
    "values",
    [[1, None, -1], [0.5, None, 0.0], ["a", None, "b"], [True, None, 1], [1 << 70, NO], [{"M": 1}, None, {"M": 1}]],
)
def test_columns_keep_what_python_has(values: list[Any]) -> None:
    assert plain(column(values)) == values
    assert list(map(type, plain(column(values)))) == list(map(type, values))


# -- A number above zero never reads as zero in a table.


def test_small_numbers() -> None:
    given = [(0, 1), (0.04, 1), (0.06, 1), (1234.56, 1), (0.0004, 3), (12.3, 0)]
    assert [fixed(value, digits) for value, digits in given] == ["0.0", "<0.1", "0.1", "1,234.6", "<0.001", "12"]


# -- Columns of numbers out of pages are those that SQLite gives cell by cell, whatever is stored, or the same error.


TABLES = {
    "rocpd_event": ("guid", "id", "category_id", "stack_id", "parent_stack_id"),
    "rocpd_region": ("guid", "pid", "tid", "start", "end", "name_id", "event_id"),
    "rocpd_kernel_dispatch": ("guid", "pid", "tid", "start", "end", "agent_id", "dispatch_id", "grid_size_x"),
}
CELLS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.builds(lambda sign, bits: sign << bits, st.sampled_from([1, -1]), st.integers(0, 62)),
    st.sampled_from([0, 1, 3, -1, -(1 << 63), (1 << 63) - 1, 10**15]),
    st.sampled_from([0.0, 1.0, 1.5, 1e300, float("inf"), None, "", "5", "g", "G", "x" * 2000, b"", b"g", b"\0" * 2000]),
)
ROWS = 200
"""More than a page has, of each table of `many`."""


@contextlib.contextmanager
def by_pages() -> Iterator[list[tuple[str, int]]]:
    """Read databases of any size page by page: the table and the number of rows of each batch."""
    read: list[tuple[str, int]] = []
    arrays = database.Database.arrays

    def counted(self: database.Database, table: str, key: str, columns: Sequence[str]) -> Iterator[tuple[Any, Any]]:
        for value, found in arrays(self, table, key, columns):
            read.append((table, len(found[0])))
            yield value, found

    with (
        mock.patch.object(database, "LARGE", 0),
        mock.patch.object(pages, "AT_ONCE", 1),
        mock.patch.object(pages, "ROWS", 1),
        mock.patch.object(database.Database, "arrays", counted),
    ):
        yield read


def outcome(path: Path) -> tuple[object, ...]:
    """All that is read, or the error."""
    try:
        found = records_of(path, rocpd, notes := Notes(), host_calls=True)
    except InputError as error:
        return (str(error),)
    profiles = [one for one in found if isinstance(one, Profile)]
    return profiles, [(note.kind, note.count) for note in notes]


def in_both_ways(path: Path) -> list[tuple[str, int]]:
    """The batches that were read from pages."""
    with mock.patch.object(database, "LARGE", 1 << 60):
        expected = outcome(path)
    with by_pages() as read:
        assert outcome(path) == expected
    return read


def stored(path: Path, data: bytes, then: str = "", size: int = 512) -> Path:
    """Write a database whose pages have ``size`` bytes."""
    path.write_bytes(data)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = {size}; VACUUM; {then}")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return stored(tmp_path / "run.db", rocm_made.rocpd(many()))


def many() -> rocm_made.Run:
    """A run whose tables have some pages."""
    one = rocm_made.run()
    at = 10**15 + 10_000
    kernels = [("k", at + 10 * key, at + 10 * key + 5, key, 7) for key in range(50, 50 + ROWS)]
    calls = [("hipLaunchKernel", at + 10 * key - 5, at + 10 * key - 1, key, 7) for key in range(50, 50 + ROWS)]
    return rocm_made.Run(kernels=one.kernels + kernels, calls=one.calls + calls, ranges=one.ranges, copies=one.copies)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, str, int, Any]:
    table = draw(st.sampled_from(sorted(TABLES)))
    return table, draw(st.sampled_from(TABLES[table])), draw(st.integers(1, ROWS)), draw(CELLS)


@settings(
    max_examples=150 if "thorough" in REQUIRED else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    made=st.lists(changes(), max_size=3),
    declared=st.sampled_from(["", " INTEGER", " REAL", " DOUBLE", " TEXT COLLATE NOCASE", " COLLATE unknown"]),
    key=st.sampled_from(["", " INTEGER PRIMARY KEY", " INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"]),
    size=st.sampled_from([512, 1024, 4096, 65536]),
)
def test_any_cells_are_read_as_cell_by_cell(
    made: list[tuple[str, str, int, Any]], declared: str, key: str, size: int, tmp_path: Path
) -> None:
    """On the first page or on a later one, in a column of numbers or of keys, whatever the column is declared as."""
    path = tmp_path / "run.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {size}")
        connection.create_collation("unknown", lambda one, other: (one > other) - (one < other))
        source = sqlite3.connect(":memory:")
        source.deserialize(DATA)
        for table in [name for (name,) in source.execute("SELECT name FROM sqlite_master")]:
            names = [row[1] for row in source.execute(f"PRAGMA table_info({table})")]
            types = dict.fromkeys(TABLES.get(table, ()), declared) | ({"id": key} if key and table in TABLES else {})
            listed = ", ".join(f'"{name}"{types.get(name) or ""}' for name in names)
            connection.execute(f"CREATE TABLE {table}({listed})")
            marks = ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", source.execute(f"SELECT * FROM {table}"))
        source.close()
        for table, column, row, value in made:
            with contextlib.suppress(sqlite3.IntegrityError):  # no id is text
                connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (value, row))
        connection.commit()
    in_both_ways(path)


DATA = rocm_made.rocpd(many())


def test_pages_are_read_where_they_may(run: Path) -> None:
    """The rows of events, calls and kernels in batches: these tests test something."""
    read = in_both_ways(run)
    with contextlib.closing(sqlite3.connect(run)) as connection:
        for table in TABLES:
            rows = [count for name, count in read if name == table]
            assert len(rows) > 5
            assert sum(rows) == connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.mark.parametrize("version", rocpd_made.VERSIONS)
def test_each_schema_is_read_alike(version: str, tmp_path: Path) -> None:
    assert in_both_ways(saved(tmp_path / "run.db", rocpd_made.database(rocpd_made.tables(version))))


@pytest.mark.parametrize(
    "changed",
    [
        "UPDATE rocpd_event SET guid = 'h' WHERE rowid = 2",
        "UPDATE rocpd_event SET guid = 103 WHERE rowid = 2",  # as many bytes, of the same value
        "UPDATE rocpd_event SET guid = zeroblob(500) WHERE rowid = 2",
        "UPDATE rocpd_event SET stack_id = zeroblob(500) WHERE rowid = 2",
        "UPDATE rocpd_event SET stack_id = 1.5 WHERE rowid = 2",
        "CREATE INDEX anything ON rocpd_event(guid, id, stack_id)",
        "ALTER TABLE rocpd_event RENAME TO one; CREATE TABLE two AS SELECT * FROM one LIMIT 0;"
        "CREATE VIEW rocpd_event AS SELECT * FROM one UNION ALL SELECT * FROM two",
        "DELETE FROM rocpd_event",
        "ALTER TABLE rocpd_event RENAME TO one; CREATE TABLE rocpd_event(guid, id, category_id, stack_id,"
        " parent_stack_id, extdata, PRIMARY KEY (id)) WITHOUT ROWID; INSERT INTO rocpd_event SELECT * FROM one",
        "ALTER TABLE rocpd_event DROP COLUMN stack_id; ALTER TABLE rocpd_event ADD COLUMN stack_id DEFAULT 5",
    ],
)
def test_what_cannot_be_read_from_pages_is_left_to_sqlite(changed: str, tmp_path: Path) -> None:
    read = in_both_ways(stored(tmp_path / "run.db", DATA, changed))
    assert "rocpd_event" not in dict(read)
    assert "rocpd_region" in dict(read)


@pytest.mark.parametrize("changed", ["stack_id = 'x'", "stack_id = 0.5", "guid = 'h'", "guid = 'G'"])
def test_another_cell_after_the_first_rows_is_left_to_sqlite(changed: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "run.db", DATA, f"UPDATE rocpd_event SET {changed} WHERE rowid > {ROWS}")
    rows = sum(count for name, count in in_both_ways(path) if name == "rocpd_event")
    assert 0 < rows <= ROWS


@pytest.mark.parametrize("table", ["rocpd_memory_copy", "rocpd_region"])
def test_rows_without_any_of_the_columns_are_rows(table: str, tmp_path: Path) -> None:
    then = f"DROP TABLE {table}; CREATE TABLE {table}(guid); INSERT INTO {table} VALUES ('g'), ('g')"
    in_both_ways(stored(tmp_path / "run.db", DATA, then))


def test_long_texts_behind_the_columns_change_nothing(tmp_path: Path) -> None:
    """They go on on other pages."""
    path = stored(tmp_path / "run.db", DATA, "UPDATE rocpd_event SET extdata = zeroblob(99999) WHERE rowid % 9 = 5")
    assert sum(count for name, count in in_both_ways(path) if name == "rocpd_event") > 2 * ROWS


def test_a_rows_id_is_no_cell(tmp_path: Path) -> None:
    """A column INTEGER PRIMARY KEY is stored as NULL; SQLite itself says which column it is."""
    then = (
        "ALTER TABLE rocpd_event RENAME TO one; CREATE TABLE rocpd_event(guid, id INTEGER PRIMARY KEY, category_id,"
        " stack_id, parent_stack_id, extdata); INSERT INTO rocpd_event SELECT * FROM one; DROP TABLE one"
    )
    read = in_both_ways(stored(tmp_path / "run.db", DATA, then))
    assert sum(count for name, count in read if name == "rocpd_event") > ROWS


def test_a_damaged_database_is_read_alike(run: Path) -> None:
    """A page, a header or a cell that is not what it says; the end is missing."""
    data = run.read_bytes()
    chance = random.Random(5)
    for number in range(30):
        damaged = bytearray(data)
        for _ in range(1 + number // 10):
            damaged[chance.randrange(512, len(data))] = chance.choice([0, 1, 5, 7, 13, 127, 128, 255])
        run.write_bytes(damaged[: len(data) if number % 10 else chance.randrange(512, len(data))])
        in_both_ways(run)


def test_a_page_without_rows_is_left_to_sqlite(run: Path) -> None:
    with contextlib.closing(sqlite3.connect(run)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rocpd_event'").fetchone()
    data = bytearray(run.read_bytes())
    place = int.from_bytes(data[(root - 1) * 512 + 12 :][:2], "big")
    first = int.from_bytes(data[(root - 1) * 512 + place :][:4], "big")
    assert data[(first - 1) * 512] == pages.LEAF
    data[(first - 1) * 512 + 3 : (first - 1) * 512 + 5] = bytes(2)
    run.write_bytes(data)
    assert "rocpd_event" not in dict(in_both_ways(run))


@pytest.mark.parametrize("cells", [0, 5])
def test_a_tree_that_leads_in_circles_is_left_to_sqlite(cells: int, run: Path) -> None:
    data = bytearray(run.read_bytes())
    with contextlib.closing(sqlite3.connect(run)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rocpd_event'").fetchone()
    begin = (root - 1) * 512
    assert data[begin] == pages.INNER
    data[begin + 3 : begin + 5] = cells.to_bytes(2, "big")
    data[begin + 8 : begin + 12] = root.to_bytes(4, "big")
    run.write_bytes(data)
    assert "rocpd_event" not in dict(in_both_ways(run))


def test_pages_of_several_tables_are_read_once(run: Path) -> None:
    """Else many tables of one tree would take minutes; SQLite's steps are limited."""
    with contextlib.closing(sqlite3.connect(run)) as connection:
        connection.execute("PRAGMA writable_schema = 1")
        of_calls = "(SELECT rootpage FROM sqlite_master WHERE name = 'rocpd_region')"
        connection.execute(f"UPDATE sqlite_master SET rootpage = {of_calls} WHERE name = 'rocpd_memory_copy'")
        connection.commit()
    names = dict(in_both_ways(run))
    assert "rocpd_region" in names
    assert "rocpd_memory_copy" not in names


def test_rows_of_very_many_forms_are_left_to_sqlite(tmp_path: Path) -> None:
    """Each form takes half a kilobyte."""
    path = stored(
        tmp_path / "run.db", DATA, f"UPDATE rocpd_event SET stack_id = 1 << 9 * (rowid % 7) WHERE rowid > {ROWS}"
    )
    with mock.patch.object(pages, "MOST_HEADERS", 4):
        rows = sum(count for name, count in in_both_ways(path) if name == "rocpd_event")
    assert 0 < rows <= ROWS + 50


def test_more_rows_than_the_file_can_hold_are_one_line(run: Path) -> None:
    with (
        by_pages(),
        mock.patch.object(database, "FEWEST_ROWS", 10),
        mock.patch.object(database, "BYTES_OF_A_ROW", 1 << 20),
        pytest.raises(
            InputError, match=r"run\.db: more rows than a file of its size can hold; expected a whole database"
        ),
    ):
        convert(run)


@pytest.mark.parametrize("name", ["a b.db", "what?.db", "a#b.db", "100%25.db", "file:x.db", "ü&mode=rwc.db", "'\".db"])
def test_any_name_is_a_name(name: str, run: Path, tmp_path: Path) -> None:
    named = tmp_path / "what?#" / name
    named.parent.mkdir()
    shutil.copy(run, named)
    assert in_both_ways(named)
    assert [path.name for path in named.parent.iterdir()] == [name]


def test_a_database_in_a_folder_that_cannot_be_written_is_read(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    folder.mkdir()
    shutil.copy(run, folder / "run.db")
    os.chmod(folder / "run.db", 0o400)
    os.chmod(folder, 0o500)
    try:
        assert in_both_ways(folder / "run.db")
    finally:
        os.chmod(folder, 0o700)


def test_rows_of_a_log_beside_it_are_read(run: Path) -> None:
    """From the copy that the log was moved into, which is then gone."""
    before = outcome(run)
    with contextlib.closing(sqlite3.connect(run)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE rocpd_kernel_dispatch SET grid_size_x = 640")
        writer.commit()
        assert in_both_ways(run)
        assert outcome(run) != before


def test_a_journal_that_goes_while_it_is_looked_at_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer removes it at the end of each transaction."""
    journal = saved(run.with_name(f"{run.name}-journal"), bytes(1024))
    asked = os.stat

    def then_gone(path: Any, **options: Any) -> os.stat_result:
        told = asked(path, **options)
        if os.fspath(path) == str(journal):
            journal.unlink()
        return told

    monkeypatch.setattr(os, "stat", then_gone)
    with pytest.raises(InputError, match=r"run\.db-journal: No such file or directory; expected to read it with"):
        convert(run)


def test_a_database_loads_no_other_reader_and_no_masked_arrays(run: Path, tmp_path: Path) -> None:
    loaded = (
        "import sys, mio2trace.conversion as c; c.convert(sys.argv[1], output=sys.argv[2]); print(*sorted(set("
        "('numpy.ma', 'orjson', 'gzip', 'mio2trace.writers.events', 'mio2trace.readers.kineto',"
        " 'mio2trace.readers.xla', 'mio2trace.readers.bundled', 'mio2trace.readers.opencl', 'mio2trace.readers.pieces',"
        " 'mio2trace.readers.ck', 'mio2trace.readers.rocm.v3_csv', 'mio2trace.readers.tf.step_stats',"
        " 'mio2trace.align.layers.durations')) & {*sys.modules}))"
    )
    command = [sys.executable, "-c", loaded, str(run), str(tmp_path / "out.pftrace")]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout == "\n"


@given(
    rows=st.lists(
        st.tuples(st.integers(-3, 3) | st.integers(-(1 << 62), 1 << 62), st.integers(-5, 1 << 62)), max_size=30
    )
)
def test_sums_by_code_are_exact_however_far_apart_the_codes_are(rows: list[tuple[int, int]]) -> None:
    codes, values = (np.array([row[part] for row in rows], np.int64) for part in (0, 1))
    wanted: dict[int, int] = {}
    for code, value in rows:
        wanted[code] = wanted.get(code, 0) + value
    found, sums = tables.summed_by(codes, values)
    assert list(zip(found.tolist(), sums.tolist(), strict=True)) == sorted(wanted.items())
