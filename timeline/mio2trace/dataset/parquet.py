"""Tables written as Parquet by DuckDB: columns go over as Arrow, so neither NumPy, pandas nor PyArrow is needed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mio2trace.dataset import arrow
from mio2trace.dataset.columns import NULL, Data
from mio2trace.dataset.schema import SQL_TYPES, TABLES, VERSION, TableSchema
from mio2trace.notes import InputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

INSTALL = "pip install 'mio2trace[batch]'"
_QUIET = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
"""Nothing is fetched; and with one thread the same rows give the same bytes."""
_PLAIN = " +=,@()"


def connection(**settings: str) -> DuckDBPyConnection:
    """To a database in memory. Raises `InputError` where DuckDB is not installed."""
    try:
        import duckdb
    except ImportError:
        raise InputError(f"this needs DuckDB, which is not installed: {INSTALL}") from None
    return duckdb.connect(":memory:", config={**_QUIET, **settings})


def file_name(name: str) -> str:
    """The file of a run of this name: no other run has it, and it is in no other folder."""
    quoted = quote(name, safe=_PLAIN)
    return f"%2E{quoted[1:]}.parquet" if quoted.startswith(".") else f"{quoted}.parquet"


def write(tables: Mapping[str, Mapping[str, Data]], folder: str | os.PathLike[str], name: str) -> dict[str, int]:
    """Write each table to ``folder/<table>/<name>.parquet``; returns the rows of each.

    Each file is written beside and renamed, the runs' table last: a run that is in it is there as a whole.
    """
    rows: dict[str, int] = {}
    with contextlib.closing(connection()) as database:
        for table in sorted(tables, key=lambda table: table == "runs"):
            rows[table] = _write(database, TABLES[table], tables[table], Path(folder) / table / file_name(name))
    return rows


def _write(database: DuckDBPyConnection, schema: TableSchema, columns: Mapping[str, Data], path: Path) -> int:
    count = len(next(iter(columns.values())))
    words: dict[str, object] = {}
    cells = []
    for at, column in enumerate(schema.columns):
        cell = _cell(columns[column.name], at, words)
        cells.append(f'{cell}::{SQL_TYPES[column.kind]} AS "{column.name}"')
    database.register("cells", arrow.codes([columns[column.name] for column in schema.columns]))
    with _beside(path) as temporary:
        place = str(temporary).replace("'", "''")
        database.execute(
            f"COPY (SELECT {', '.join(cells)} FROM cells) TO '{place}' (FORMAT parquet, PARQUET_VERSION v2,"  # noqa: S608
            f" COMPRESSION zstd, KV_METADATA {{schema: '{VERSION}', \"table\": '{schema.name}'}})",
            words,
        )
    database.unregister("cells")
    return count


def _cell(data: Data, at: int, words: dict[str, object]) -> str:
    """The SQL of column ``at``; ``words`` gains what it names. A column of one value is that value."""
    if data.column.kind == "text":
        if not data.words:
            return "NULL"
        if len(data.words) == 1 and NULL not in data.values:
            words[f"w{at}"] = data.words[0]
            return f"$w{at}"
        words[f"w{at}"] = list(data.words)
        return f"list_extract($w{at}::VARCHAR[], c{at} + 1)"
    return "NULL" if data.present is not None and 1 not in data.present else f"c{at}"


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A place to write that takes the place of ``path``, or leaves no trace."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".mio2trace-", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    os.close(handle)
    try:
        yield Path(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        import duckdb

        if isinstance(error, OSError | duckdb.IOException):
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise InputError(f"{path}: {reason}; what was there before is unchanged") from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
