"""Queries over the Parquet files of a dataset, in DuckDB. They read nothing else, write nothing, and load nothing from
the network."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mio2trace.notes import InputError
from mio2trace.queries import Answer, what_there_is
from mio2trace.snapshot.database import asked, connection, literal, sql_text
from mio2trace.snapshot.places import FOLDER, RUNS, journals_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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

    def bytes(self) -> int:
        with contextlib.suppress(OSError):
            if self.pattern != _ALL:
                return (self.folder / self.pattern).stat().st_size
            with os.scandir(self.folder) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".parquet"))
        return 0


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

        with asked(self._path), self._naming_columns(sql):
            for table in [table for table in self._unchecked if re.search(rf"\b{table}\b", sql, re.IGNORECASE)]:
                self._require_small(table, self._unchecked.pop(table))
            statements = self._database.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in (
                duckdb.StatementType.SELECT,
                duckdb.StatementType.EXPLAIN,
            ):
                raise InputError(f"{self._path}: expected one SELECT")
            result = self._database.execute(statements[0])
            columns = tuple(column[0] for column in result.description or ())
            return Answer(columns, self._fetched(result))

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
    def _naming_columns(self, sql: str) -> Iterator[None]:
        """Raises `InputError` that lists the existing columns if the SQL uses an unknown name."""
        import duckdb

        try:
            yield
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            rows = self._database.execute("SELECT table_name, column_name FROM information_schema.columns").fetchall()
            tables: dict[str, list[str]] = {}
            for table, column in rows:
                tables.setdefault(table, []).append(column)
            said = str(error).strip().splitlines()[0]
            raise InputError(f"{self._path}: {said}{what_there_is(sql, tables)}") from None


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
            if (most := _FREE_MEMORY + _EXPANSION * given) < _of_machine():
                database.execute(f"SET memory_limit = '{most >> 20}MiB'")
            if not _has(folder / RUNS, pattern):
                raise InputError(f"{path}: no table {RUNS!r}; expected a dataset")
            for table, columns in tables.items():
                files = sql_text(f"{own}/{table}/{pattern if pattern == _ALL else literal(pattern)}")
                rows = _no_rows(columns)
                if _has(folder / table, pattern):
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


def _of_machine() -> int:
    """Return the bytes that DuckDB uses by default: four fifths of the memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5


def _has(folder: Path, pattern: str) -> bool:
    """Return whether a table has files, or the given file."""
    try:
        if pattern != _ALL:
            return (folder / pattern).is_file()
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".parquet") for entry in entries)
    except OSError:
        return False
