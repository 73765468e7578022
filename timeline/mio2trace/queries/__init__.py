"""The queries that come with the program (files of SQL for traces and for datasets, in blocks with names), and the
engines that ask a trace.

SQLite comes with Python: nothing is installed or downloaded, and no file is written for a run. Perfetto's trace
processor, through the perfetto package, is for any trace and all of Perfetto's tables.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any, NamedTuple

import orjson

from mio2trace.notes import InputError
from mio2trace.trace import NO_ARGS, Args, Slice

DATASET = "dataset.sql"
"""The queries of datasets."""
_QUERY = re.compile(r"(?m)^-- query: *")
_COMMENT = re.compile(r"(?m)^--.*\n")


class Query(NamedTuple):
    """A query: its name, its answer in one line, and its SQL, which needs the prelude."""

    name: str
    about: str
    sql: str


def text(file: str = "queries.sql") -> str:
    """Return the text of the file, also for the viewer's query page."""
    return (resources.files(__name__) / file).read_text("utf-8")


def prelude() -> list[str]:
    """Return the statements that every query needs before it: they make the views that the file documents."""
    head = _QUERY.split(text())[0]
    statements = _COMMENT.sub("", head).split(";")
    return [statement.strip() for statement in statements if statement.strip()]


def shipped(file: str = "queries.sql") -> dict[str, Query]:
    """Return the queries by name, in the file's order: for a trace, or (``dataset.sql``) for a dataset."""
    found = {}
    for block in _QUERY.split(text(file))[1:]:
        name, _, rest = block.partition("\n")
        about = " ".join(line[2:].strip() for line in rest.splitlines() if line.startswith("--"))
        sql = _COMMENT.sub("", rest).strip().removesuffix(";")
        found[name.strip()] = Query(name.strip(), about, sql)
    return found


# -- The answer of a query, in any engine ------------------------------------------------------------------------------


class Answer(NamedTuple):
    """Named columns, and rows with one value for each: text, number, bytes or None."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


MOST_NAMES = 40


def what_there_is(sql: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return ``; columns of kernels: name, ts, ...`` for the tables that the SQL names, or for all tables if it names
    none."""
    named = {table: columns for table, columns in tables.items() if re.search(rf"\b{re.escape(table)}\b", sql, re.I)}
    found = [f"; columns of {table}: {_listed(columns)}" for table, columns in named.items()]
    return "".join(found) or f"; tables: {_listed([*tables])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


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


def answer_in_sqlite(slices: Iterable[Slice], sql: str) -> Answer:
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


CACHE = "~/.local/share/perfetto/prebuilts"
"""The folder in which the perfetto package keeps downloaded engines."""


def engine(chosen: str | None, download: bool) -> str | None:
    """Return the path of the engine; None lets the package download one, if that is allowed. Raises `InputError`
    without one."""
    chosen = chosen or os.environ.get("MIO2TRACE_ENGINE")
    if chosen:
        if not os.access(chosen, os.X_OK) or not os.path.isfile(chosen):
            raise InputError(f"{chosen}: is no program; expected a trace_processor_shell")
        return os.path.abspath(chosen)
    path = _installed()
    if path is None and not download:
        raise InputError(
            "no trace processor here: name one with --engine PATH, or fetch the perfetto package's own with --download;"
            " without --perfetto, a trace of mio2trace needs none"
        )
    return path


def _installed() -> str | None:
    """Return an installed engine. A script of that name would download one, so it does not count."""
    import shutil
    from pathlib import Path

    on_path = shutil.which("trace_processor_shell")
    cache = Path(CACHE).expanduser()
    cached = sorted(cache.glob("trace_processor_shell-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in (*([Path(on_path)] if on_path else []), *cached):
        try:
            with path.open("rb") as file:
                if os.access(path, os.X_OK) and file.read(2) != b"#!" and path.suffix != ".tmp":
                    return str(path)
        except OSError:
            continue
    return None


def answer_in_perfetto(trace: str, sql: str, engine: str | None) -> Answer:
    """Return the answer of ``sql`` over the file ``trace``, with the views of `prelude`. Raises `InputError`."""
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError as error:
        raise InputError(f"the perfetto package cannot be used ({error}): pip install 'mio2trace[query]'") from None
    processor = None
    try:
        # Output of the package is for the person, not for the table. The path gets a prefix: the package would
        # interpret a part before a colon as a kind of place.
        with open(trace, "rb") as file, contextlib.redirect_stdout(sys.stderr):
            processor = TraceProcessor(trace=file, config=TraceProcessorConfig(bin_path=engine))
            for statement in prelude():
                processor.query(statement)
            result = processor.query(sql)
        columns = tuple(result.column_names)
        return Answer(columns, [tuple(getattr(row, name) for name in columns) for row in result])
    except Exception as error:
        raise InputError(_what_went_wrong(error, trace, engine)) from None
    finally:
        if processor is not None:
            processor.close()


def _what_went_wrong(error: Exception, trace: str, engine: str | None) -> str:
    """Return one line: the last line of the error has the reason, the lines before it the place."""
    text = str(error)
    if text.startswith("Trace processor failed to start"):
        said = text.partition("stderr:")[2].partition("If this is a slow")[0].strip().splitlines()
        return f"{engine}: does not start as a trace processor" + (f": {said[-1].strip()}" if said else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{trace}: {lines[-1] if lines else type(error).__name__}"
