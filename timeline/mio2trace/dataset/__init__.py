"""A run as tables: in memory (`tables_of`, `Table`), or in a folder of Parquet files (`write_run`).

    from mio2trace.dataset import write_run
    rows = write_run(run, folder, name, notes, cleaner=analysis.cleaner)     # {"runs": 1, "kernels": 18300, ...}

`write_run` writes one `mio2trace.Run` of an analysis to ``folder/<table>/<name>.parquet`` for each of `schema.TABLES`
(zstd). Each file gets its name when it is complete, ``runs`` last: a run that has a file there is complete. The column
``run`` holds ``name`` unchanged (the run's own name if it is empty). In names of files `file_name` escapes what is not
allowed there (``a/b`` is ``a%2Fb.parquet``). ``notes`` and ``cleaner`` are those of the analysis (docs/privacy.md).
``folder/snapshot/<name>.parquet`` makes the run an input of every command (`mio2trace.snapshot`); ``tables_only``
leaves it out. Equal runs give equal bytes. The extra ``batch`` is needed. Without it, or if nothing can be written, it
raises `mio2trace.InputError`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mio2trace
from mio2trace.analysis import Analysis, Run
from mio2trace.analysis.kept import snapshot_of
from mio2trace.conversion import what_is_missing
from mio2trace.dataset.rows import Data, arrow_codes, failed_run, of_rows, tables_of
from mio2trace.memory import give_back_freed_memory, without_garbage_collection
from mio2trace.notes import InputError, Notes
from mio2trace.privacy import Cleaner
from mio2trace.schema import SQL_TYPES, TABLES, VERSION, TableSchema
from mio2trace.snapshot import files
from mio2trace.snapshot.database import beside, file_name, for_writing, sql_text, umask
from mio2trace.snapshot.places import FOLDER, is_dataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "FOLDERS",
    "TABLES",
    "VERSION",
    "file_name",
    "replace",
    "require_anything",
    "tables_of",
    "write_failed",
    "write_run",
]

FOLDERS = (*TABLES, FOLDER)
"""The tables of a dataset; each has one file per run."""


def write_run(
    run: Run,
    folder: str | os.PathLike[str],
    name: str = "",
    notes: Notes | None = None,
    *,
    cleaner: Cleaner | None = None,
    tables_only: bool = False,
    beside: Sequence[Run] = (),
    repetitions: Sequence[Run] = (),
) -> dict[str, int]:
    """Write the tables of a run, and return the number of rows of each.

    ``beside``: inputs of the analysis that belong to no run. ``repetitions``: all repetitions of a CK record.
    """
    notes, cleaner = notes or Notes(), cleaner or Cleaner()
    with without_garbage_collection():
        if not tables_only:
            generator = f"mio2trace {mio2trace.__version__}"
            snapshot = snapshot_of((run, *beside), notes, cleaner, generator, repetitions)
            files.write(snapshot, Path(folder), file_name(name or run.name))
        tables = tables_of(run, name, notes, cleaner)
        give_back_freed_memory()
        return write_tables(tables, folder, name or run.name)


def require_anything(runs: Sequence[Run], analysis: Analysis) -> None:
    """Raises `InputError` if no run holds anything for a table: inputs that `convert` refuses give no row either."""
    if not any(run.holds_anything for run in runs):
        raise InputError(f"{analysis.names}: {what_is_missing(runs[0], analysis.notes)}")


def write_failed(folder: str | os.PathLike[str], name: str, error: str) -> None:
    """Write the row of a run that failed; the dataset has nothing else of this run."""
    write_tables({"runs": failed_run(name, error)}, folder, name)


def replace(path: str, runs: Sequence[Run], analysis: Analysis, repetitions: Sequence[Run] = ()) -> dict[str, int]:
    """Write a dataset of ``runs`` to the folder ``path``, replacing an existing dataset. Return the number of rows by
    table.

    Raises `InputError` if something else is there, which then stays, or if the place cannot be written.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not (place.is_dir() and (is_dataset(place) or not any(place.iterdir()))):
        raise InputError(f"{path}: is there, and no dataset; expected a new folder")
    try:
        new = Path(tempfile.mkdtemp(prefix=".mio2trace-", dir=place.parent))
    except OSError as error:
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    rows: dict[str, int] = {}
    alone = len(runs) == 1
    try:
        for run in runs:
            others = [other for other in analysis.runs if other is not run] if alone else []
            counts = write_run(
                run, new, notes=analysis.notes, cleaner=analysis.cleaner, beside=others, repetitions=repetitions
            )
            rows = {table: rows.get(table, 0) + count for table, count in counts.items()}
        os.chmod(new, 0o777 & ~umask())
        if place.exists():
            old = Path(tempfile.mkdtemp(prefix=".mio2trace-", dir=place.parent))
            os.replace(place, old)
            os.replace(new, place)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(new, place)
    except BaseException as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"{path}: {error.strerror or error}; what was there before is unchanged") from None
        raise
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# Tables written as Parquet by DuckDB. Columns are handed over as Arrow, so NumPy, pandas and PyArrow are not needed.


_empty: dict[str, bytes] = {}
"""By table, a file without rows, which is the same for every run: writing one takes as long as writing rows."""


def keep_empty_tables() -> None:
    """Make these files for all writing of this process and of its forks; none if there is no place for them."""
    with contextlib.suppress(OSError, InputError), tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        write_tables({name: of_rows(schema, ()) for name, schema in TABLES.items()}, folder, "")
        _empty.update({name: (Path(folder) / name / file_name("")).read_bytes() for name in TABLES})


def write_tables(tables: MutableMapping[str, Any], folder: str | os.PathLike[str], name: str) -> dict[str, int]:
    """Write each table to ``folder/<table>/<name>.parquet``, and let it go; return the number of rows of each.

    Each file gets its name when it is complete, the runs' table last: a run in that table is complete.
    """
    rows: dict[str, int] = {}
    with for_writing() as database:
        for table in sorted(tables, key=lambda table: table == "runs"):
            rows[table] = _write(database, TABLES[table], tables.pop(table), Path(folder) / table / file_name(name))
    return rows


def _write(database: DuckDBPyConnection, schema: TableSchema, columns: Mapping[str, Data], path: Path) -> int:
    count = len(next(iter(columns.values())))
    if not count and schema.name in _empty:
        with beside(path) as temporary:
            temporary.write_bytes(_empty[schema.name])
        return 0
    words: dict[str, object] = {}
    cells = []
    for at, column in enumerate(schema.columns):
        cells.append(f'{_cell(columns[column.name], at, words)} AS "{column.name}"')
    database.register("cells", arrow_codes([columns[column.name] for column in schema.columns]))
    with beside(path) as temporary:
        database.execute(
            f"COPY (SELECT {', '.join(cells)} FROM cells) TO {sql_text(temporary)} (FORMAT parquet,"  # noqa: S608
            f" PARQUET_VERSION v2, COMPRESSION zstd, KV_METADATA {{schema: '{VERSION}', \"table\": '{schema.name}'}})",
            words,
        )
    database.unregister("cells")
    return count


_MANY, _FEW = 1 << 14, 1000
"""From `_MANY` rows on, a column of at most `_FEW` texts is written as numbers of these texts. This takes a tenth of
the time and no memory for the texts. Readers of the file still see texts."""


def _cell(data: Data, at: int, words: dict[str, object]) -> str:
    """Return the SQL for column ``at``, and add the values that it refers to to ``words``. A column of equal values
    becomes this value."""
    kind = SQL_TYPES[data.column.kind]
    if data.column.kind == "text":
        if not data.words:
            return f"NULL::{kind}"
        of_few = kind
        if len(data) >= _MANY and len(data.words) <= _FEW:
            of_few = f"ENUM({', '.join(map(sql_text, data.words))})"
        if data.is_constant:
            words[f"w{at}"] = data.words[0]
            return f"$w{at}::{kind}::{of_few}"
        words[f"w{at}"] = list(data.words)
        return f"list_extract($w{at}::{kind}[]::{of_few}[], c{at} + 1)::{of_few}"
    if not data.is_constant:
        return f"c{at}::{kind}"
    words[f"w{at}"] = data[0]
    return f"$w{at}::{kind}"
