"""A run as tables: in a program or a notebook (`load`, `Table`), or in a folder of Parquet files (`write_run`).

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
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mio2trace
from mio2trace.analysis import Analysis, AnalysisOptions, Run, analyse, snapshot_of
from mio2trace.answer import report_of
from mio2trace.conversion import convert, what_is_missing
from mio2trace.dataset.rows import Data, arrow_codes, arrow_table, of_rows, tables_of
from mio2trace.files import TABLES_SUFFIX, umask
from mio2trace.machine import give_back_freed_memory, without_garbage_collection
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import count, shortened, visible
from mio2trace.privacy import Cleaner
from mio2trace.reports import Table as Printed
from mio2trace.reports import shown_columns
from mio2trace.schema import SQL_TYPES, TABLES, VERSION, TableSchema
from mio2trace.snapshot import FOLDER, files, is_dataset
from mio2trace.snapshot.database import beside, file_name, for_writing, sql_text

if TYPE_CHECKING:
    import pandas
    import polars
    from duckdb import DuckDBPyConnection


__all__ = [
    "FOLDERS",
    "TABLES",
    "VERSION",
    "file_name",
    "replace",
    "require_anything",
    "tables_of",
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
            kept = snapshot_of((run, *beside), notes, cleaner, generator, repetitions)
            files.write(kept, Path(folder), file_name(name or run.name))
            del kept
            give_back_freed_memory()
        tables = tables_of(run, name, notes, cleaner)
        give_back_freed_memory()
        return write_tables(tables, folder, name or run.name)


def require_anything(runs: Sequence[Run], analysis: Analysis) -> None:
    """Raises `InputError` if no run holds anything for a table: inputs that `convert` refuses give no row either."""
    if not any(run.holds_anything for run in runs):
        raise InputError(f"{analysis.names}: {what_is_missing(runs[0], analysis.notes)}")


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
    rows: Counter[str] = Counter()
    try:
        for run in runs:
            others = [other for other in analysis.runs if other is not run] if len(runs) == 1 else []
            counts = write_run(
                run, new, notes=analysis.notes, cleaner=analysis.cleaner, beside=others, repetitions=repetitions
            )
            rows.update(counts)
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
    cells = [f'{_cell(columns[one.name], at, words)} AS "{one.name}"' for at, one in enumerate(schema.columns)]
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
    words[f"w{at}"] = data.first(1).to_list()[0]
    return f"$w{at}::{kind}"


HEIGHT = 640
"""Height in pixels of the report in a notebook."""


def load(*files: str | os.PathLike[str], **options: Any) -> LoadedRun:
    """Load the run of ``files``: logs, profiles, a folder of them, a dataset, or a file of a dataset.

    ``options``: those of `mio2trace.AnalysisOptions`. Raises `mio2trace.InputError` with a message of one line for an
    unusable input, and if the files are of several runs.
    """
    return LoadedRun(files, analyse(files, AnalysisOptions(**options)))


class _TableOfRun:
    """The table of a run that has the name of the attribute."""

    def __set_name__(self, owner: type[LoadedRun], name: str) -> None:
        self._name = name

    def __get__(self, loaded: LoadedRun, owner: type[LoadedRun]) -> Table:
        return loaded._tables[self._name]


class LoadedRun:
    """A run as tables; each table is made when it is first used. ``run`` and ``analysis`` hold everything else.

    ``runs``: one row for the run; for a job one row per process. ``layers``: one row per execution of a layer.
    ``ranks``: only for jobs with collectives, which ranks waited for which. A notebook shows its report.
    """

    runs, iterations, kernels, copies = _TableOfRun(), _TableOfRun(), _TableOfRun(), _TableOfRun()
    operations, layers, findings, ranks = _TableOfRun(), _TableOfRun(), _TableOfRun(), _TableOfRun()

    def __init__(self, files: Sequence[str | os.PathLike[str]], analysis: Analysis) -> None:
        self._files = files
        self.analysis = analysis
        self.run: Run = analysis.run

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def _tables(self) -> dict[str, Table]:
        with without_garbage_collection():
            tables = tables_of(self.run, notes=self.analysis.notes, cleaner=self.analysis.cleaner)
        return {name: Table(TABLES[name], columns) for name, columns in tables.items()}

    def problems(self) -> Table:
        """Most time per steady iteration first."""
        return self._tables["problems"]

    def write(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the run. ``.json`` or ``.pftrace``, plain or ``.gz``, is a trace of its files, with the ``options`` of
        `mio2trace.convert`; ``.parquet`` is a folder of its tables.

        Raises `mio2trace.InputError` if that cannot be written.
        """
        place = os.fspath(path)
        if place.lower().endswith(TABLES_SUFFIX):
            replace(place, [self.run], self.analysis)
        else:
            convert(*self._files, output=place, **options)

    def __repr__(self) -> str:
        return repr(self.run).replace("<Run ", "<LoadedRun ", 1)

    def _repr_html_(self) -> str:
        """Return the report in a frame, so that its style affects nothing else. It has no script."""
        from mio2trace.answer.html import page

        text = page(report_of(self.analysis, [self.run]))
        return (
            f'<iframe sandbox="" title="{escape(self.name)}" srcdoc="{escape(text)}" width="100%" height="{HEIGHT}"'
            ' style="border:0"></iframe>'
        )


# -- A table: typed columns, rows as dicts, and an Arrow stream for data frames ----------------------------------------


SHOWN = 20
"""The rows that a notebook shows."""
LONGEST = 80
"""The characters of a text that a notebook shows."""
_STYLE = (
    "<style>.mio2trace{border-collapse:collapse;font:13px/1.4 system-ui,sans-serif;font-variant-numeric:tabular-nums}"
    ".mio2trace caption{text-align:left;padding:4px 0}.mio2trace th,.mio2trace td{padding:2px 10px;text-align:left;"
    "border-bottom:1px solid #8884}.mio2trace .number{text-align:right}</style>"
)


class Table:
    """Rows of one of `mio2trace.dataset.TABLES`. ``schema``: names, kinds, units and meanings of its columns.

    Iteration gives dicts with all columns; None is unknown. ``__arrow_c_stream__`` (through nanoarrow, which the extra
    ``batch`` installs) makes it a source for pandas, Polars, DuckDB, PyArrow, Altair.
    """

    def __init__(self, schema: TableSchema, columns: Mapping[str, Data]) -> None:
        self.schema = schema
        self._columns = columns

    @property
    def columns(self) -> tuple[str, ...]:
        return self.schema.names

    def column(self, name: str) -> list[Any]:
        """Return the values of a column. Raises KeyError for an unknown name."""
        return self._columns[name].to_list()

    def __len__(self) -> int:
        return len(self._columns[self.columns[0]])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.columns
        for row in zip(*map(self.column, names), strict=True):
            yield dict(zip(names, row, strict=True))

    def to_dicts(self) -> list[dict[str, Any]]:
        return list(self)

    def head(self, count: int = 10) -> Table:
        return Table(self.schema, {name: data.first(count) for name, data in self._columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with nullable types: ``Int64``, ``float64``, ``boolean``, ``string``. Needs only
        pandas."""
        import pandas

        kinds: dict[str, Any] = {"int": "Int64", "float": "float64", "flag": "boolean", "text": "string"}
        series = {
            column.name: pandas.Series(self.column(column.name), dtype=kinds[column.kind])
            for column in self.schema.columns
        }
        return pandas.DataFrame(series)

    def to_polars(self) -> polars.DataFrame:
        """Return a Polars data frame. Needs Polars and nanoarrow."""
        import polars

        return polars.DataFrame(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Raises `mio2trace.InputError`, which is also an ImportError, if nanoarrow is missing."""
        return arrow_table(self._columns).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        size = f"{count(len(self), 'row')} of {count(len(self.columns), 'column')}"
        return f"<Table {self.schema.name!r}: {size}: {self.schema.row}>"

    def _repr_html_(self) -> str:
        """Return the first rows as a table of the report; columns without values are left out."""
        rows = [{name: cell for name, cell in row.items() if cell is not None} for row in self.head(SHOWN)]
        columns = shown_columns(Printed(columns=self.columns, rows=rows))
        kinds = [' class="number"' * column.is_number for column in columns]
        heads = [
            f'<th{kind} title="{escape(self._meaning(column.name))}">{escape(column.name)}</th>'
            for column, kind in zip(columns, kinds, strict=True)
        ]
        lines = []
        for texts in zip(*(column.cells for column in columns), strict=True):
            shown = (escape(visible(shortened(text, LONGEST))) for text in texts)
            cells = (f"<td{kind}>{text}</td>" for kind, text in zip(kinds, shown, strict=True))
            lines.append(f"<tr>{''.join(cells)}</tr>")
        more = f", the first {len(rows)}" if len(rows) < len(self) else ""
        caption = escape(f"{self.schema.name}: {count(len(self), 'row')}{more}; {self.schema.row}")
        return (
            f'{_STYLE}<table class="mio2trace"><caption>{caption}</caption><thead><tr>{"".join(heads)}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table>"
        )

    def _meaning(self, name: str) -> str:
        column = next(column for column in self.schema.columns if column.name == name)
        return f"{column.meaning} ({column.unit})" if column.unit else column.meaning
