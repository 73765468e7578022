"""Tables written as Parquet by DuckDB: columns go over as Arrow, so neither NumPy, pandas nor PyArrow is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mio2trace.dataset import arrow
from mio2trace.dataset.columns import NULL, Data
from mio2trace.schema import SQL_TYPES, TABLES, VERSION, TableSchema
from mio2trace.snapshot.database import beside, file_name, for_writing, sql_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def write(tables: Mapping[str, Mapping[str, Data]], folder: str | os.PathLike[str], name: str) -> dict[str, int]:
    """Write each table to ``folder/<table>/<name>.parquet``; returns the rows of each.

    Each file is written beside and renamed, the runs' table last: a run that is in it is there as a whole.
    """
    rows: dict[str, int] = {}
    with for_writing() as database:
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
    with beside(path) as temporary:
        database.execute(
            f"COPY (SELECT {', '.join(cells)} FROM cells) TO {sql_text(temporary)} (FORMAT parquet,"  # noqa: S608
            f" PARQUET_VERSION v2, COMPRESSION zstd, KV_METADATA {{schema: '{VERSION}', \"table\": '{schema.name}'}})",
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
