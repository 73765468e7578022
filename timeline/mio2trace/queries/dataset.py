"""Queries over the Parquet files of a dataset, in DuckDB. It reads nothing else, writes nothing and fetches nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mio2trace.notes import InputError
from mio2trace.queries.answer import Answer, what_there_is
from mio2trace.snapshot.database import asked, connection, sql_text
from mio2trace.snapshot.places import RUNS, journals_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ALL = "*.parquet"
_AS_IT_IS = "hive_partitioning=false"
"""A folder that is called ``version=2`` is no column."""
_JOURNAL_COLUMNS = (
    "{run: 'VARCHAR', state: 'VARCHAR', error: 'VARCHAR', version: 'VARCHAR', seconds: 'DOUBLE', ended: 'DOUBLE',"
    " kernels: 'BIGINT', bytes: 'BIGINT'}"
)
_NO_JOURNAL = (
    "SELECT NULL::VARCHAR AS run, NULL::VARCHAR AS state, NULL::VARCHAR AS error, NULL::VARCHAR AS version,"
    " NULL::DOUBLE AS seconds, NULL::DOUBLE AS ended, NULL::BIGINT AS kernels, NULL::BIGINT AS bytes WHERE false"
)


RENAMED = {"percent_of_kernel_time": "share_percent"}
"""By column its name in datasets of mio2trace 0.2, which have the same number under that name."""


class Dataset:
    """A dataset as views, one a table, and ``journal``."""

    def __init__(self, database: DuckDBPyConnection, path: str) -> None:
        self._database = database
        self._path = path

    def ask(self, sql: str) -> Answer:
        """What one SELECT answers. Raises `InputError` for SQL that is none, or that fails."""
        import duckdb

        with asked(self._path), self._naming_columns(sql):
            statements = self._database.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in (
                duckdb.StatementType.SELECT,
                duckdb.StatementType.EXPLAIN,
            ):
                raise InputError(f"{self._path}: expected one SELECT")
            result = self._database.execute(statements[0])
            columns = tuple(column[0] for column in result.description or ())
            return Answer(columns, result.fetchall())

    @contextlib.contextmanager
    def _naming_columns(self, sql: str) -> Iterator[None]:
        """Raises `InputError` with the columns that there are for a name that is none."""
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
    """The dataset in the folder ``path``, or of the one run that a file in it is of. ``tables``: of each the types of
    its columns. A table that the dataset has not, written by an older version, has no rows; a column no values.

    Raises `InputError` where there is none.
    """
    place = Path(path)
    folder, pattern = (place, _ALL) if place.is_dir() else (place.resolve().parent.parent, place.name)
    own = _literal(str(folder))
    with contextlib.closing(connection(threads)) as database:
        with asked(path):
            if not _has(folder / RUNS, pattern):
                raise InputError(f"{path}: no table {RUNS!r}; expected a dataset")
            for table, columns in tables.items():
                files = sql_text(f"{own}/{table}/{pattern if pattern == _ALL else _literal(pattern)}")
                nothing = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in columns.items())
                rows = f"(SELECT {nothing}) WHERE false"
                if _has(folder / table, pattern):
                    rows = f"read_parquet({files}, {_AS_IT_IS})"
                cursor = database.execute(f"SELECT * FROM {rows} LIMIT 0")  # noqa: S608
                there = {column[0] for column in cursor.description or ()}
                missing = [
                    f', "{RENAMED[column]}" AS "{column}"'
                    if RENAMED.get(column) in there
                    else f', NULL::{kind} AS "{column}"'
                    for column, kind in columns.items()
                    if column not in there
                ]
                database.execute(f"CREATE VIEW {table} AS SELECT *{''.join(missing)} FROM {rows}")  # noqa: S608
            journals = journals_of(folder) if place.is_dir() else []
            journal = _NO_JOURNAL
            if journals:
                names = ", ".join(sql_text(_literal(str(file))) for file in journals)
                options = f"columns={_JOURNAL_COLUMNS}, ignore_errors=true, {_AS_IT_IS}"
                journal = f"SELECT * FROM read_ndjson([{names}], {options})"  # noqa: S608
            database.execute(f"CREATE VIEW journal AS {journal}")
            database.execute(f"SET allowed_directories = [{sql_text(f'{folder}/')}, {sql_text(f'{own}/')}]")
            database.execute("SET enable_external_access = false")
            database.execute("SET lock_configuration = true")
        yield Dataset(database, path)


def _has(folder: Path, pattern: str) -> bool:
    """Whether a table has files, or the one."""
    try:
        if pattern != _ALL:
            return (folder / pattern).is_file()
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".parquet") for entry in entries)
    except OSError:
        return False


def _literal(path: str) -> str:
    """A path that means itself where names may have wildcards."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
