"""Databases that nobody finished, that somebody writes, that a stranger filled: one line, or what is there."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mio2trace.conversion import Conversion, convert
from mio2trace.notes import InputError
from tests import rocm_made

FORMS = {"rocpd": rocm_made.rocpd, "RPD": rocm_made.rpd, "rocprof v1": rocm_made.v1_database}


@pytest.fixture(params=FORMS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    path.write_bytes(FORMS[request.param](rocm_made.run()))
    return path


def drawn(path: Path) -> Any:
    """Kernels and copies of a database that can be read."""
    found = convert(path).metadata["attribution"]
    return found["kernels"], found["copies"]


def state(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def in_one_line(path: Path) -> Conversion | None:
    try:
        return convert(path, check=True)
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert said.startswith("run.db: ")
    return None


def rows_of(connection: sqlite3.Connection) -> list[str]:
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in tables.fetchall()]


def columns(path: Path) -> Iterator[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in rows_of(connection):
            for column in connection.execute(f'PRAGMA table_info("{table}")').fetchall():
                yield table, column[1]


def test_a_database_that_its_writer_locks_is_read_as_it_was_left(database: Path) -> None:
    """What is not committed is not there; nothing is changed beside it."""
    whole = drawn(database)
    with contextlib.closing(sqlite3.connect(database)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        for table in rows_of(writer):
            writer.execute(f'DELETE FROM "{table}"')
        before = state(database.parent)
        assert drawn(database) == whole
        assert state(database.parent) == before


def test_pages_of_a_killed_writer_are_moved_back(database: Path, tmp_path: Path) -> None:
    """Its journal lies beside the file and is left as it is; a copy without it would be something half done."""
    whole = drawn(database)
    killed = tmp_path / "killed"
    killed.mkdir()
    with contextlib.closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("PRAGMA cache_spill = 1")
        writer.execute("BEGIN")
        for table in rows_of(writer):
            writer.execute(f'DELETE FROM "{table}"')
        writer.execute("CREATE TABLE more(text)")
        writer.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,)] * 200)
        for end in ("", "-journal"):
            shutil.copyfile(f"{database}{end}", killed / f"run.db{end}")
    assert (killed / "run.db").read_bytes()[: database.stat().st_size] != database.read_bytes()
    before = state(killed)
    assert drawn(killed / "run.db") == whole
    assert state(killed) == before


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_database_that_was_cut_off_is_one_line_or_what_is_left(share: float, database: Path) -> None:
    data = database.read_bytes()
    database.write_bytes(data[: int(len(data) * share)])
    in_one_line(database)


def test_a_database_of_others_is_named(tmp_path: Path) -> None:
    """Also one whose tables have a name in common with a profiler's."""
    path = tmp_path / "run.db"
    for script in ("CREATE TABLE notes(id, text)", "CREATE TABLE rocpd_string(x); CREATE TABLE rocpd_op(y)"):
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
        assert in_one_line(path) is None


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63), "soon", 1e300, b"\xff\0", None])
def test_one_column_of_a_value_that_no_profiler_writes(value: Any, database: Path) -> None:
    """Each column in turn: a trace that keeps its own rules, or one line."""
    whole = database.read_bytes()
    for table, column in list(columns(database)):
        database.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
            connection.commit()
        in_one_line(database)
