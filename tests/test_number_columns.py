"""Columns of numbers through ADBC's driver are those that SQLite gives cell by cell, whatever is stored, or the same
error."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mio2trace.conversion import convert
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import arrow, database, rocpd
from mio2trace.source import Source
from tests import rocm_made, rocpd_made

pytest.importorskip("adbc_driver_sqlite")
ROWS = 4
"""Rows of a batch in these tests. The small runs have several batches."""
TABLES = {
    "rocpd_event": ("guid", "id", "category_id", "stack_id", "parent_stack_id"),
    "rocpd_region": ("guid", "pid", "tid", "start", "end", "name_id", "event_id"),
    "rocpd_kernel_dispatch": ("guid", "pid", "tid", "start", "end", "agent_id", "dispatch_id", "grid_size_x"),
}
CELLS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, 1, 3, -1, -(1 << 63), (1 << 63) - 1, 10**15]),
    st.sampled_from([0.0, 1.0, 1.5, 1e300, float("inf"), None, "", "5", "g", "G", "x" * 2000, b"", b"g", b"\0" * 2000]),
)


@contextlib.contextmanager
def by_the_driver() -> Iterator[list[int]]:
    """Read databases of any size in batches of `ROWS`; the rows of each batch that the driver read."""
    read: list[int] = []
    columns = arrow.columns

    def counted(uri: str, query: str) -> Iterator[list[Any]]:
        for found in columns(uri, query):
            read.append(len(found[0]))
            yield found

    with (
        mock.patch.object(database, "LARGE", 0),
        mock.patch.object(arrow, "AT_ONCE", ROWS),
        mock.patch.object(arrow, "columns", counted),
    ):
        yield read


def outcome(path: Path) -> tuple[object, ...]:
    """All that is read, or the error."""
    notes = Notes()
    source = Source(str(path), 0, notes)
    try:
        found = rocpd.read(source, ReadOptions(host_calls=True), notes)
    except InputError as error:
        return (str(error),)
    finally:
        source.close()
    profiles = [one for one in found if isinstance(one, Profile)]
    return profiles, [(note.kind, note.count) for note in notes]


def in_both_ways(path: Path) -> list[int]:
    """Rows of the batches that the driver read."""
    expected = outcome(path)
    with by_the_driver() as read:
        assert outcome(path) == expected
    return read


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    path.write_bytes(rocm_made.rocpd(many()))
    return path


def many() -> rocm_made.Run:
    """A run of some batches."""
    one = rocm_made.run()
    at = 10**15 + 10_000
    kernels = [("k", at + 10 * key, at + 10 * key + 5, key, 7) for key in range(50, 80)]
    calls = [("hipLaunchKernel", at + 10 * key - 5, at + 10 * key - 1, key, 7) for key in range(50, 80)]
    return rocm_made.Run(kernels=one.kernels + kernels, calls=one.calls + calls, ranges=one.ranges, copies=one.copies)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, str, int, Any]:
    table = draw(st.sampled_from(sorted(TABLES)))
    return table, draw(st.sampled_from(TABLES[table])), draw(st.integers(1, 36)), draw(CELLS)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    made=st.lists(changes(), max_size=3),
    declared=st.sampled_from(["", " INTEGER", " TEXT COLLATE NOCASE", " COLLATE unknown"]),
)
def test_any_cells_are_read_as_cell_by_cell(
    made: list[tuple[str, str, int, Any]], declared: str, tmp_path: Path
) -> None:
    """In the first batch or in a later one, in a column of numbers or of keys, whatever the column is declared as."""
    path = tmp_path / "run.db"
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(rocm_made.rocpd(many()))
        connection.create_collation("unknown", lambda one, other: (one > other) - (one < other))
        for table, columns in TABLES.items():
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            typed = ", ".join(f'"{name}"{declared if name in columns else ""}' for name in names)
            connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
            connection.execute(f"CREATE TABLE {table}({typed})")
            connection.execute(f"INSERT INTO {table} SELECT * FROM old_{table}")
        for table, column, row, value in made:
            connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (value, row))
        connection.commit()
        path.write_bytes(connection.serialize())
    in_both_ways(path)


def test_the_driver_reads_what_it_may(run: Path) -> None:
    """38 events, calls and kernels in batches, the last ones not full: these tests test something."""
    read = in_both_ways(run)
    assert sum(read) > 100
    assert {*read} >= {ROWS, 1}


@pytest.mark.parametrize("version", rocpd_made.VERSIONS)
def test_each_schema_is_read_alike(version: str, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(rocpd_made.database(rocpd_made.tables(version)))
    assert in_both_ways(path)


@pytest.mark.parametrize(
    "changed",
    [
        "UPDATE rocpd_event SET guid = 'h' WHERE rowid = 2",
        "UPDATE rocpd_event SET guid = zeroblob(500) WHERE rowid = 2",
        "UPDATE rocpd_event SET stack_id = zeroblob(500) WHERE rowid = 2",
        "UPDATE rocpd_event SET stack_id = 1.5 WHERE rowid = 2",
        "CREATE INDEX anything ON rocpd_event(guid, id, stack_id)",
        "ALTER TABLE rocpd_event RENAME TO one; CREATE TABLE two AS SELECT * FROM one LIMIT 0;"
        "CREATE VIEW rocpd_event AS SELECT * FROM one UNION ALL SELECT * FROM two",
        "DELETE FROM rocpd_event",
    ],
)
def test_what_the_driver_must_not_read_is_left_to_sqlite3(changed: str, tmp_path: Path) -> None:
    """Texts are found before it reads them, and no order of rows is relied upon that SQLite may choose."""
    path = tmp_path / "run.db"
    path.write_bytes(rocm_made.rocpd(many(), changed))
    with mock.patch.object(arrow, "columns", wraps=arrow.columns) as columns, by_the_driver():
        in_both_ways(path)
    asked = [str(call.args[1]) for call in columns.call_args_list]
    assert asked
    assert not any("rocpd_event" in query for query in asked) or "1.5" in changed


@pytest.mark.parametrize("changed", ["stack_id = 'x'", "stack_id = 0.5", "guid = 'h'", "guid = 'G'", "guid = x'67'"])
def test_another_cell_after_the_first_rows_ends_the_drivers_reading(changed: str, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(rocm_made.rocpd(many(), f"UPDATE rocpd_event SET {changed} WHERE rowid > 9"))
    with mock.patch.object(arrow, "columns", wraps=arrow.columns) as columns, by_the_driver() as read:
        in_both_ways(path)
    assert "rocpd_event" in columns.call_args_list[0].args[1]
    assert read[:2] == [ROWS, ROWS]


def test_more_rows_than_the_file_can_hold_are_one_line(run: Path) -> None:
    with (
        by_the_driver(),
        mock.patch.object(database, "FEWEST_ROWS", 10),
        mock.patch.object(database, "BYTES_OF_A_ROW", 1 << 20),
        pytest.raises(
            InputError, match=r"run\.db: more rows than a file of its size can hold; expected a whole database"
        ),
    ):
        convert(run)


@pytest.mark.parametrize("lost", ["adbc_driver_sqlite", "adbc_driver_manager", "nanoarrow"])
def test_without_a_library_all_is_read(lost: str, run: Path) -> None:
    with mock.patch.dict(sys.modules, {lost: None}):
        assert in_both_ways(run) == []


def test_with_a_broken_driver_all_is_read(run: Path) -> None:
    with mock.patch("adbc_driver_sqlite.connect", side_effect=OSError("no such symbol")):
        assert in_both_ways(run) == []


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


def test_a_small_database_loads_no_driver(run: Path) -> None:
    loaded = (
        "import sys, mio2trace.conversion as c; c.convert(sys.argv[1]); print('adbc_driver_manager' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", loaded, str(run)], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
