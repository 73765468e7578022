"""Databases that nobody finished, that somebody writes, that a stranger filled: one line, or what is there."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import shutil
import sqlite3
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mio2trace.conversion import Conversion, convert
from mio2trace.notes import InputError
from mio2trace.readers.rocm import database as database_module
from mio2trace.readers.rocm.assembly import LONGEST_NAME
from tests import rocm_made
from tests.often import saved

FORMS = {
    "rocpd": rocm_made.rocpd,
    "large rocpd": rocm_made.rocpd,
    "RPD": rocm_made.rpd,
    "rocprof v1": rocm_made.v1_database,
}


@pytest.fixture(params=FORMS)
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param.startswith("large"):
        monkeypatch.setattr(database_module, "LARGE", 0)
    return saved(tmp_path / "run.db", FORMS[request.param](rocm_made.run()))


def rocpd(folder: Path, then: str = "") -> Path:
    """The file of a run; ``then``: SQL that changes what was written."""
    return saved(folder / "run.db", rocm_made.rocpd(rocm_made.run(), then))


def change(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join(statements))


def tables_of(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return [name for (name,) in found]


def columns(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        of = {table: connection.execute(f'PRAGMA table_info("{table}")').fetchall() for table in tables_of(path)}
    return [(table, column[1]) for table, found in of.items() for column in found]


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
    assert re.fullmatch(r"run\.db: [^\n]*", said)
    return None


def test_a_database_that_its_writer_locks_is_read_as_it_was_left(database: Path) -> None:
    """What is not committed is not there; nothing is changed beside it."""
    whole = drawn(database)
    tables = tables_of(database)
    with contextlib.closing(sqlite3.connect(database)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        for table in tables:
            writer.execute(f'DELETE FROM "{table}"')
        before = state(database.parent)
        assert drawn(database) == whole
        assert state(database.parent) == before


def test_a_name_that_is_no_utf8_is_a_name(database: Path, tmp_path: Path) -> None:
    """The system's file names are bytes; SQLite is handed them as such, in place and copied."""
    named = tmp_path / os.fsdecode(b"\xff\xfe.db")
    shutil.copy(database, named)
    whole = drawn(named)
    with contextlib.closing(sqlite3.connect(os.fsencode(named))) as writer:  # its log lies beside it: it is copied
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE another(a)")
        writer.commit()
        assert drawn(named) == whole


def test_pages_of_a_killed_writer_are_moved_back(database: Path, tmp_path: Path) -> None:
    """Its journal lies beside the file and is left as it is; a copy without it would be something half done."""
    whole = drawn(database)
    killed = tmp_path / "killed"
    killed.mkdir()
    emptied = "; ".join(f'DELETE FROM "{table}"' for table in tables_of(database))
    with contextlib.closing(sqlite3.connect(database)) as writer:
        writer.executescript(f"PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; {emptied}")
        writer.execute("CREATE TABLE more(text)")
        writer.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,)] * 200)
        for end in ("", "-journal"):
            shutil.copyfile(f"{database}{end}", killed / f"run.db{end}")
    assert (killed / "run.db").read_bytes()[: database.stat().st_size] != database.read_bytes()
    before = state(killed)
    assert drawn(killed / "run.db") == whole
    assert state(killed) == before


@pytest.mark.parametrize("checksum", [0, 1])
def test_a_journal_that_names_a_file_deletes_nothing(checksum: int, database: Path, tmp_path: Path) -> None:
    """SQLite deletes the file that a journal of several databases names, whichever that is."""
    named = saved(tmp_path / "named.txt", "of somebody else\n")
    data, name = database.read_bytes(), os.fsencode(named)
    page, magic = int.from_bytes(data[16:18], "big"), bytes.fromhex("d9d505f920a163d7")
    head = struct.pack(">8s5I", magic, 0, 1, len(data) // page, 512, page).ljust(512, b"\0")
    end = struct.pack(">2I", len(name), sum(name) + checksum)
    saved(tmp_path / "run.db-journal", head + struct.pack(">I", (1 << 30) // page + 1) + name + end + magic)
    with pytest.raises(InputError, match=r"run\.db-journal: names another file; expected the journal"):
        convert(database)
    assert named.read_text() == "of somebody else\n"


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
        change(path, script)
        assert in_one_line(path) is None


@pytest.mark.thorough
@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63), "soon", 1e300, b"\xff\0", None])
def test_one_column_of_a_value_that_no_profiler_writes(value: Any, database: Path) -> None:
    """Each column in turn: a trace that keeps its own rules, or one line."""
    whole = database.read_bytes()
    for table, column in columns(database):
        database.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
            connection.commit()
        in_one_line(database)


_ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT stored.* FROM stored, c"


@pytest.mark.parametrize(
    "shown",
    [
        _ENDLESS,
        f"{_ENDLESS} WHERE x < 0",
        "SELECT stored.* FROM stored, stored AS a, stored AS b",
        "SELECT * FROM stored UNION ALL SELECT * FROM stored",
        "SELECT zeroblob(900000000) AS id, zeroblob(900000000) AS start",
        "SELECT printf('%.*c', 400000000, 'x') AS id FROM stored",
        "SELECT * FROM (SELECT * FROM stored)",
        "SELECT * FROM more",
        "CREATE VIRTUAL TABLE {} USING fts5(id)",
        "CREATE TABLE {}(id, x AS (id * 2))",
    ],
)
def test_what_computes_its_rows_is_refused_and_not_asked(shown: str, database: Path) -> None:
    """A view may be endless, or larger than any memory: by its text, whatever it would give."""
    (table, *_) = set(tables_of(database)) & {"rocpd_region", "rocpd_op", "HIP"}
    change(database, f'ALTER TABLE "{table}" RENAME TO stored', "CREATE VIEW more AS SELECT * FROM stored")
    change(database, shown.format(table) if shown.startswith("CREATE") else f'CREATE VIEW "{table}" AS {shown}')
    with pytest.raises(InputError, match=f"run.db: {table} is computed; expected a profiler's tables, or views that"):
        convert(database)


def test_a_view_that_shows_tables_as_they_are_is_read(tmp_path: Path) -> None:
    """As rocprofv3 and ``rocpd merge`` make them, however they are spelled."""
    database = rocpd(tmp_path)
    whole, listed = drawn(database), columns(database)
    for number, table in enumerate(tables_of(database)):
        shown = "*" if number % 2 else ", ".join(f"`{name}`" for of, name in listed if of == table)
        change(
            database,
            f'ALTER TABLE "{table}" RENAME TO "stored {number}"',
            f'CREATE TABLE "none {number}" AS SELECT * FROM "stored {number}" LIMIT 0',
            f'create view "{table}" as\nSELECT {shown} FROM  [stored {number}] union all select * from "none {number}"',
        )
    assert drawn(database) == whole


def test_events_of_one_id_do_not_meet_all_calls(tmp_path: Path) -> None:
    """Each call is there once, however many events have the id of its own."""
    again = "".join(f"INSERT INTO {table} SELECT * FROM {table};" * 8 for table in ("rocpd_event", "rocpd_region"))
    path = rocpd(tmp_path, f"UPDATE rocpd_event SET id = 5; UPDATE rocpd_region SET event_id = 5; {again}")
    (profile,) = convert(path, host_calls="all").runs[0].profiles
    assert len(profile.other_calls) + len(profile.ranges) == 6 << 8
    assert sum(one.kind == "kernel" for one in profile.activities) == 2


@pytest.mark.parametrize("length", [500, 3000, 1 << 20])
def test_bytes_that_many_rows_name_are_not_copied_for_each(length: int, tmp_path: Path) -> None:
    """A blob where a number should be, in a row that thousands of rows name."""
    columns = ("category_id", "stack_id", "parent_stack_id")
    then = "UPDATE rocpd_region SET event_id = 1; UPDATE rocpd_event SET id = 1;"
    then += "".join(f"UPDATE rocpd_event SET {column} = zeroblob({length});" for column in columns)
    path = rocpd(tmp_path, then + "INSERT INTO rocpd_region SELECT * FROM rocpd_region;" * 10)
    begun = time.process_time()
    assert (in_one_line(path) is None) == (length > database_module.LONG_TEXT)
    assert time.process_time() - begun < 5, "64 times its size are 0.1 s"


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_signal_within_sqlite_ends_the_program(moment: int, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sqlite3 calls back into Python, where a signal arrives, and forgets what it raised."""
    calls = iter(range(1, 1000))
    take = database_module._Steps.take

    def interrupted(steps: database_module._Steps) -> int:
        if next(calls) == moment:
            raise KeyboardInterrupt
        return take(steps)

    monkeypatch.setattr(database_module._Steps, "take", interrupted)
    monkeypatch.setattr(database_module, "STEPS_AT_ONCE", 10)
    with pytest.raises(KeyboardInterrupt):
        convert(database)


# -- what lies beside a database --------------------------------------------------------------------------------------

PAGES = 1 << 28


def journal_of(database: bytes, pages: int) -> bytes:
    """A rollback journal of nothing but a header: the database had so many pages."""
    page = int.from_bytes(database[16:18], "big")
    return struct.pack(">8s5I", bytes.fromhex("d9d505f920a163d7"), 0, 1, pages, 512, page).ljust(512, b"\0")


def log_of(database: bytes, pages: int) -> bytes:
    """A write-ahead log of two pages, the first and the last, after whose commit the database has so many."""
    page = int.from_bytes(database[16:18], "big")
    first, last = bytearray(database[:page]), database[(pages - 1) * page :][:page].ljust(page, b"\0")
    first[18:20], first[28:32] = b"\2\2", pages.to_bytes(4, "big")
    log = struct.pack(">6I", 0x377F0683, 3007000, page, 0, 1, 2)
    sums = checksum(log, (0, 0))
    log += struct.pack(">2I", *sums)
    for number, commit, content in ((1, 0, bytes(first)), (pages, pages, last)):
        frame = struct.pack(">2I", number, commit)
        sums = checksum(frame + content, sums)
        log += frame + log[16:24] + struct.pack(">2I", *sums) + content
    return log


def checksum(data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's of a log."""
    first, second = sums
    words = struct.unpack(f">{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


@pytest.mark.parametrize("packed", [False, True], ids=["beside", "in an archive"])
@pytest.mark.parametrize(("end", "made"), [("-journal", journal_of), ("-wal", log_of)])
def test_a_journal_that_claims_more_than_was_given_lifts_no_limit(
    end: str, made: Callable[[bytes, int], bytes], packed: bool, database: Path, tmp_path: Path
) -> None:
    whole, data = drawn(database), database.read_bytes()
    page = int.from_bytes(data[16:18], "big")
    if end == "-wal":
        data = data[:18] + b"\2\2" + data[20:]
        database.write_bytes(data)
    own = len(data) // page
    for pages, is_refused in ((own, False), (own + 4, True), (PAGES, True)):
        beside = made(data, pages)
        (tmp_path / f"run.db{end}").write_bytes(beside)
        given = database
        if packed:
            given = tmp_path / "run.zip"
            with zipfile.ZipFile(given, "w") as archive:
                archive.write(database, "run.db")
                archive.write(tmp_path / f"run.db{end}", f"run.db{end}")
        before = state(tmp_path)
        if is_refused:
            with pytest.raises(InputError, match="its journal claims more than both hold; expected a whole database"):
                convert(given)
        else:
            assert drawn(given) == whole
        assert state(tmp_path) == before


def test_a_log_that_was_written_counts_its_own_bytes(database: Path, tmp_path: Path) -> None:
    """Rows that are in it alone are read, and are no more than it holds."""
    whole = drawn(database)
    live = tmp_path / "live"
    live.mkdir()
    with contextlib.closing(sqlite3.connect(database)) as writer:
        writer.executescript("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE more(text)")
        writer.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,)] * 200)
        writer.commit()
        for end in ("", "-wal"):
            shutil.copyfile(f"{database}{end}", live / f"run.db{end}")
    assert (live / "run.db-wal").stat().st_size > 4 * (live / "run.db").stat().st_size
    assert drawn(live / "run.db") == whole


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_max_input_counts_what_lies_beside_a_database(end: str, database: Path, tmp_path: Path) -> None:
    size = database.stat().st_size
    with open(f"{database}{end}", "wb") as file:
        file.truncate(3 << 30)  # of holes
    with pytest.raises(
        InputError, match=r"^run\.db: with its journal, more than 10 MB; --max-input sets another limit$"
    ):
        convert(database, max_input=10_000_000)
    os.truncate(f"{database}{end}", 1000)
    assert drawn(database)
    with pytest.raises(InputError, match="with its journal, more than"):
        convert(database, max_input=size + 999)
    convert(database, max_input=size + 1000)


def test_a_journal_that_cannot_be_read_is_one_line(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the database would be something half done."""
    journal = f"{database}-wal"
    Path(journal).write_bytes(bytes(1000))
    opened = open

    def refuse(path: Any, *args: Any, **options: Any) -> Any:
        if path == journal:
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"^run\.db-wal: Permission denied; expected to read it with its database$"):
        convert(database)


@pytest.mark.parametrize("packed", [True, False], ids=["compressed", "with a journal"])
def test_no_room_for_a_copy_is_one_line(packed: bool, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for temporary files is full, or not there."""
    if packed:
        database.write_bytes(gzip.compress(database.read_bytes()))
    else:
        Path(f"{database}-wal").write_bytes(bytes(1000))
    monkeypatch.setattr("tempfile.tempdir", str(database.parent / "gone"))
    with pytest.raises(
        InputError, match=r"^run\.db: cannot be copied into the folder for temporary files: No such file"
    ):
        convert(database)


@pytest.mark.parametrize("value", [f"'{'x' * 2000}'", "zeroblob(2000)"], ids=["text", "bytes"])
def test_texts_that_pages_repeat_are_counted(value: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages may lead to the same text again and again: no more of it is read than a file of its size can hold."""
    monkeypatch.setattr(database_module, "TEXT_PER_BYTE", 0)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        for table, column in columns(database):
            if column in ("string", "Name"):
                connection.execute(f'UPDATE "{table}" SET "{column}" = ?', ("x" * 2000,))
        connection.commit()
    with pytest.raises(InputError, match="more text than a file of its size can hold"):
        convert(database)


def test_a_long_name_is_not_written_for_each_of_its_kernels(tmp_path: Path) -> None:
    """It is stated once: what is written would be any number of times the database."""
    path, written = tmp_path / "run.db", tmp_path / "out.json"
    name, at = "conv, " * 20_000, 10**15
    kernels = [(name, at + 9 * count, at + 9 * count + 5, count, 7) for count in range(50)]
    path.write_bytes(rocm_made.rpd(msgspec.structs.replace(rocm_made.run(), kernels=kernels)))
    made = convert(path, output=written)
    assert written.stat().st_size < 50 * (LONGEST_NAME + 2000)
    assert [note.count for note in made.notes if "letters cut" in note.kind] == [1]


def test_what_is_no_text_is_a_name_as_it_is_shown(tmp_path: Path) -> None:
    """Numbers and bytes in a column of names; nothing in one is an empty name."""
    path = tmp_path / "run.db"
    then = "UPDATE rocpd_string SET string = CASE id % 3 WHEN 0 THEN x'6b31' WHEN 1 THEN 17 END"
    path.write_bytes(rocm_made.rpd(rocm_made.run(), then))
    names = {activity.name for activity in convert(path).runs[0].profiles[0].activities}
    assert names <= {"b'k1'", "17", "", "copy"}
    assert len(names) > 1


@pytest.mark.parametrize("how", ["circle", "text"])
def test_a_schema_that_leads_in_circles_is_refused(how: str, tmp_path: Path) -> None:
    """SQLite reads and parses all of it, whatever is asked; rows of it may share what they run over into."""
    path = rocpd(tmp_path)
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    if how == "text":
        cell = int.from_bytes(data[108:110], "big")
        data[cell : cell + 3] = b"\xff\xff\x7f"
    else:
        pages = len(data) // page
        data[28:32] = (pages + 2).to_bytes(4, "big")
        inner = struct.pack(">BHHHBI", 5, 0, 3, page - 15, 0, pages + 1)
        inner += struct.pack(">3H", page - 5, page - 10, page - 15)
        data[100 : 100 + len(inner)] = inner
        data[page - 15 : page] = b"".join(struct.pack(">IB", pages + 1, 100 - at) for at in range(3))
        data += struct.pack(">BHHHB", 13, 0, 0, page, 0).ljust(page, b"\0") + bytes(page)
    path.write_bytes(data)
    with pytest.raises(InputError, match="a schema that leads in circles; expected a whole database"):
        convert(path)


@pytest.mark.parametrize(("table", "column"), [("rocpd_info_process", "environment"), ("rocpd_event", "extdata")])
def test_json_in_a_cell_that_no_parser_follows_tells_nothing(table: str, column: str, tmp_path: Path) -> None:
    whole = drawn(rocpd(tmp_path))
    json = '{"x": ' + "[" * 100_000 + '"message"'
    assert drawn(rocpd(tmp_path, f"UPDATE {table} SET {column} = '{json}'")) == whole
