"""Queries in SQLite, which comes with Python: nothing is installed or downloaded, and no file is written for a run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from mio2trace.notes import InputError
from mio2trace.queries import Answer, prelude, what_there_is
from mio2trace.trace import NO_ARGS, Args, Slice

_VIEW = re.compile(r"(?i)\bcreate\s+(?:or\s+replace\s+)?perfetto\s+(view|table)\b")
_ARG = re.compile(r"arg!\(\s*'([^'\"]*)'\s*\)")
_UNKNOWN = ("no such table", "no such function", "no such module")
_NAMES = re.compile(r"no such (?:column|table)|ambiguous column")
_SLICES = "create table read (track_id integer, ts integer, dur integer, category text, name text, args text)"
_IN_ORDER = """
create table slice (id integer primary key, track_id integer, ts integer, dur integer, category text, name text,
  args text)
"""
_SORTED = """
insert into slice (track_id, ts, dur, category, name, args)
select track_id, ts, dur, category, name, args from read order by ts, dur desc, track_id, rowid
"""
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_READING_PRAGMAS = ("table_info", "table_xinfo", "table_list")

_LONGEST = 1 << 27
"""Bytes of one value, so that no step of a statement takes long."""


def answer(slices: Iterable[Slice], sql: str) -> Answer:
    """Return the answer of ``sql`` over a table ``slice`` of ``slices`` (``ts``, ``dur`` in ns) and the views of
    `prelude`.

    Each row of ``slice`` has an ``id`` in order of time, and its arguments as one JSON object with nested ones under
    their path; ``arg!('gemm.M')`` reads one. Raises `InputError` for SQL that is invalid or not for this engine.
    """
    database = sqlite3.connect(
        "", check_same_thread=False
    )  # in memory while it is small, then in a file that the engine removes
    try:
        database.execute("pragma synchronous = off")
        database.execute("pragma journal_mode = off")
        database.execute(_SLICES)
        try:
            database.executemany("insert into read values (?, ?, ?, ?, ?, ?)", _rows(slices))
        except (TypeError, OverflowError):
            raise InputError("SQL: a number of more than 64 bits, which no table keeps") from None
        database.execute(_IN_ORDER)
        database.execute(_SORTED)
        database.execute("drop table read")
        database.execute("create index slice_by_category on slice (category)")
        for statement in prelude():
            if _VIEW.search(statement):
                database.execute(translated(statement))
        database.set_authorizer(_only_reading)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        # A statement that never ends would keep its thread from handling a signal, so it runs in another thread.
        with ThreadPoolExecutor(1) as aside:
            try:
                return aside.submit(_asked, database, translated(sql)).result()
            except BaseException:
                database.interrupt()
                raise
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        more = " (--perfetto asks Perfetto's own engine)" if str(error).startswith(_UNKNOWN) else ""
        said = "expected one SELECT; nothing can be written" if str(error) == "not authorized" else error
        there = what_there_is(sql, _tables(database)) if _NAMES.match(str(error)) else ""
        raise InputError(f"SQL: {said}{there}{more}") from None
    finally:
        database.close()


def _tables(database: sqlite3.Connection) -> dict[str, list[str]]:
    names = [name for (name,) in database.execute("select name from sqlite_master where type in ('table', 'view')")]
    return {name: [row[1] for row in database.execute(f"pragma table_info({name})")] for name in names}


def _only_reading(action: int, name: str | None, *_: str | None) -> int:
    """Allow no statement that writes or opens another file."""
    reads = action in _READS or (action == sqlite3.SQLITE_PRAGMA and name in _READING_PRAGMAS)
    return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY


def _asked(database: sqlite3.Connection, sql: str) -> Answer:
    found = database.execute(sql)
    columns = tuple(column[0] for column in found.description or ())
    return Answer(columns, found.fetchall())


def translated(sql: str) -> str:
    """Translate the SQL of this program's queries from Perfetto's engine to SQLite: views, and ``arg!('key')``."""
    return _ARG.sub(r"""json_extract(args, '$."\1"')""", _VIEW.sub(r"create \1", sql))


def _rows(slices: Iterable[Slice]) -> Iterator[tuple[Any, ...]]:
    shared: dict[int, tuple[Args, dict[str, Any]]] = {id(NO_ARGS): (NO_ARGS, {})}
    for event in slices:
        held = shared.get(id(event.shared))
        if held is None:
            # The mapping is stored with its translation, so that no other mapping can get its id.
            held = shared[id(event.shared)] = event.shared, _flat(event.shared)
        args = orjson.dumps(held[1] | _flat(event.args)).decode()
        yield event.track, event.start_ns, event.dur_ns, event.category, event.name, args


def _flat(args: Args) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in args.items():
        if isinstance(value, Mapping):
            flat.update((f"{key}.{inner}", each) for inner, each in value.items())
        else:
            flat[key] = value
    return flat
