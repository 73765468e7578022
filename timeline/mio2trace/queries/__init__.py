"""The queries that come with the program (files of SQL for traces and for datasets, in blocks with names), and the
engines that ask.

SQLite comes with Python: nothing is installed or downloaded, and no file is written for a run. Perfetto's trace
processor, through the perfetto package, is for any trace and all of Perfetto's tables. DuckDB asks the Parquet files of
a dataset: it reads nothing else, writes nothing, and loads nothing from the network.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from mio2trace.notes import InputError
from mio2trace.snapshot import FOLDER, RUNS, journals_of
from mio2trace.snapshot.database import asked, connection, literal, sql_text
from mio2trace.trace import NO_ARGS, Args, Slice

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


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


_ALL = "*.parquet"
_FREE, _FREE_TEXT, _FREE_MEMORY, _EXPANSION = 16 << 20, 256 << 20, 1 << 30, 1000
"""The most bytes of rows, of the text of an answer, and of a query; for larger files a multiple of their size."""
_OF_REGULAR = 10_000
"""That multiple for the rows of a table whose rows repeat, as kernels do: a million kernels that all run at a fixed
distance take 62 kB."""
_LARGEST = RUNS, "kernels"
_CELL = 8
_AT_ONCE = 128
"""Rows."""
_NESTED = re.compile(r"\]$|^(?:STRUCT|MAP|UNION|VARIANT)", re.IGNORECASE)
"""Types with which one row may claim any number of elements."""
_NUMBERS = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DOUBLE|FLOAT|DECIMAL.*|BOOLEAN")
_AS_IT_IS = "hive_partitioning=false"
"""A folder called ``version=2`` does not become a column."""
_JOURNAL = {
    "run": "VARCHAR", "state": "VARCHAR", "error": "VARCHAR", "version": "VARCHAR", "seconds": "DOUBLE",
    "ended": "DOUBLE", "kernels": "BIGINT", "bytes": "BIGINT",
}  # fmt: skip


RENAMED = {"percent_of_kernel_time": "share_percent"}
"""By column, its name in datasets of mio2trace 0.2, which have the same number under that name."""


class _Table(NamedTuple):
    """The files of a table, its number of columns, and the SQL that counts its rows."""

    folder: Path
    pattern: str
    columns: int = 0
    counting: str = ""

    def files(self) -> Iterable[Path]:
        return self.folder.glob(_ALL) if self.pattern == _ALL else (self.folder / self.pattern,)

    def bytes(self) -> int:
        with contextlib.suppress(OSError):
            return sum(file.stat().st_size for file in self.files())
        return 0

    def exists(self) -> bool:
        return any(file.is_file() for file in self.files())


class Dataset:
    """A dataset as views: one per table, and ``journal``."""

    def __init__(self, database: DuckDBPyConnection, path: str, tables: Mapping[str, _Table], snapshot: _Table) -> None:
        self._database = database
        self._path = path
        self._holds = (*tables.values(), snapshot)
        self._unchecked = {**tables}

    def ask(self, sql: str) -> Answer:
        """Return the answer of one SELECT. Raises `InputError` for invalid SQL, for a failing query, and for tables
        that claim more than their files can hold."""
        import duckdb

        allowed = duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN
        with asked(self._path):
            for table in [table for table in self._unchecked if re.search(rf"\b{table}\b", sql, re.IGNORECASE)]:
                self._require_small(table, self._unchecked.pop(table))
            try:
                statements = self._database.extract_statements(sql)
                if len(statements) != 1 or statements[0].type not in allowed:
                    raise InputError(f"{self._path}: expected one SELECT")
                result = self._database.execute(statements[0])
                columns = tuple(column[0] for column in result.description or ())
                return Answer(columns, self._fetched(result))
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                found = self._database.execute("SELECT table_name, column_name FROM information_schema.columns")
                tables: dict[str, list[str]] = {}
                for table, column in found.fetchall():
                    tables.setdefault(table, []).append(column)
                said = str(error).strip().splitlines()[0]
                raise InputError(f"{self._path}: {said}{what_there_is(sql, tables)}") from None

    def _require_small(self, name: str, table: _Table) -> None:
        """Refuse a large table: a column of equal values takes no space in a file, whatever the number of rows."""
        (rows,) = self._database.execute(table.counting).fetchall()[0]
        claimed = rows * table.columns * _CELL
        if claimed > _FREE and claimed > _FREE + (_EXPANSION if name == RUNS else _OF_REGULAR) * table.bytes():
            raise InputError(f"{self._path}: damaged: {rows} rows of {name!r} in {table.bytes()} bytes")

    def _fetched(self, result: DuckDBPyConnection) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        text, beyond = 0, 0
        while some := result.fetchmany(_AT_ONCE):
            rows += some
            text += sum(len(cell) for row in some for cell in row if type(cell) is str)
            cells = len(rows) * len(some[0]) * _CELL
            if text > _FREE_TEXT + beyond or cells > _FREE + beyond:
                beyond = _EXPANSION * sum(table.bytes() for table in self._holds)
                if text > _FREE_TEXT + beyond or cells > _FREE + beyond:
                    raise InputError(
                        f"{self._path}: the answer holds over {_EXPANSION} times what the dataset does; ask for fewer"
                        " rows or columns"
                    )
        return rows


@contextlib.contextmanager
def opened(path: str, tables: Mapping[str, Mapping[str, str]], threads: int | None = None) -> Iterator[Dataset]:
    """Open the dataset in a folder, or the one run to which a file in it belongs. ``tables``: the column types of each
    table. A table that an older version did not write has no rows; a missing column has no values.

    Raises `InputError` if there is no dataset.
    """
    place = Path(path)
    folder, pattern = (place, _ALL) if place.is_dir() else (place.resolve().parent.parent, place.name)
    own = literal(folder)
    found: dict[str, _Table] = {}
    given = sum(_Table(folder / table, pattern).bytes() for table in _LARGEST)
    with contextlib.closing(connection(threads)) as database:
        with asked(path):
            # Counting rows also reads the columns that a query reads.
            database.execute("SET parquet_metadata_cache = true")
            # DuckDB uses four fifths of the memory by default.
            of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5
            if (most := _FREE_MEMORY + _EXPANSION * given) < of_machine:
                database.execute(f"SET memory_limit = '{most >> 20}MiB'")
            if not _Table(folder / RUNS, pattern).exists():
                raise InputError(f"{path}: no table {RUNS!r}; expected a dataset")
            for table, columns in tables.items():
                files = sql_text(f"{own}/{table}/{pattern if pattern == _ALL else literal(pattern)}")
                rows = _no_rows(columns)
                if _Table(folder / table, pattern).exists():
                    rows = f"read_parquet({files}, {_AS_IT_IS})"
                described = database.execute(f"SELECT * FROM {rows} LIMIT 0").description or ()  # noqa: S608
                there = {column[0] for column in described}
                if nested := next((column[0] for column in described if _NESTED.search(str(column[1]))), None):
                    raise InputError(f"{path}: the column {nested!r} of {table!r} holds lists; expected plain values")
                for column, kind, *_ in described:
                    if column in columns and not _fits(str(kind), columns[column]):
                        raise InputError(
                            f"{path}: the column {column!r} of {table!r} holds {kind}; expected {columns[column]}"
                        )
                count = f"SELECT count(*) FROM {rows}"  # noqa: S608
                found[table] = _Table(folder / table, pattern, len(there), count)
                missing = [
                    f', "{RENAMED[column]}" AS "{column}"'
                    if RENAMED.get(column) in there
                    else f', NULL::{kind} AS "{column}"'
                    for column, kind in columns.items()
                    if column not in there
                ]
                database.execute(f"CREATE VIEW {table} AS SELECT *{''.join(missing)} FROM {rows}")  # noqa: S608
            journals = journals_of(folder) if place.is_dir() else []
            rows = _no_rows(_JOURNAL)
            if journals:
                names = ", ".join(sql_text(literal(file)) for file in journals)
                options = f"columns={_JOURNAL}, ignore_errors=true, {_AS_IT_IS}"
                rows = f"read_ndjson([{names}], {options})"
            database.execute(f"CREATE VIEW journal AS SELECT * FROM {rows}")  # noqa: S608
            database.execute(f"SET allowed_directories = [{sql_text(f'{folder}/')}, {sql_text(f'{own}/')}]")
            database.execute("SET enable_external_access = false")
            database.execute("SET lock_configuration = true")
        yield Dataset(database, path, found, _Table(folder / FOLDER, pattern))


def _no_rows(columns: Mapping[str, str]) -> str:
    nothing = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in columns.items())
    return f"(SELECT {nothing}) WHERE false"


def _fits(kind: str, wanted: str) -> bool:
    """Return whether a column may replace a text column, or a number column."""
    return kind == wanted if wanted == "VARCHAR" else _NUMBERS.fullmatch(kind) is not None
