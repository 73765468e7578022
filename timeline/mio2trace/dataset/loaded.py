"""A run in a program or a notebook: its tables, its report, and a way to write it as a trace or as tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from mio2trace.analysis import Analysis, AnalysisOptions, Run, analyse
from mio2trace.answer import report_of
from mio2trace.answer.html import page
from mio2trace.conversion import convert
from mio2trace.dataset import replace
from mio2trace.dataset import rows as columns
from mio2trace.dataset.rows import Data, tables_of
from mio2trace.files import TABLES_SUFFIX
from mio2trace.memory import without_garbage_collection
from mio2trace.outgoing import count, shortened, visible
from mio2trace.reports import Table as Printed
from mio2trace.reports import shown_columns
from mio2trace.schema import TABLES, TableSchema

if TYPE_CHECKING:
    import pandas
    import polars


HEIGHT = 640
"""Height in pixels of the report in a notebook."""


def load(*files: str | os.PathLike[str], **options: Any) -> LoadedRun:
    """Load the run of ``files``: logs, profiles, a folder of them, a dataset, or a file of a dataset.

    ``options``: those of `mio2trace.AnalysisOptions`. Raises `mio2trace.InputError` with a message of one line for an
    unusable input, and if the files are of several runs.
    """
    return LoadedRun(files, analyse(files, AnalysisOptions(**options)))


class LoadedRun:
    """A run as tables; each table is made when it is first used. ``run`` and ``analysis`` hold everything else.

    A notebook shows its report.
    """

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

    @property
    def runs(self) -> Table:
        """One row for the run; for a job one row per process."""
        return self._tables["runs"]

    @property
    def iterations(self) -> Table:
        return self._tables["iterations"]

    @property
    def kernels(self) -> Table:
        return self._tables["kernels"]

    @property
    def copies(self) -> Table:
        return self._tables["copies"]

    @property
    def operations(self) -> Table:
        return self._tables["operations"]

    @property
    def layers(self) -> Table:
        """One row per execution of a layer."""
        return self._tables["layers"]

    @property
    def findings(self) -> Table:
        return self._tables["findings"]

    @property
    def ranks(self) -> Table:
        """Only for jobs with collectives: which ranks waited for which."""
        return self._tables["ranks"]

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
        return columns.arrow_table(self._columns).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        size = f"{count(len(self), 'row')} of {count(len(self.columns), 'column')}"
        return f"<Table {self.schema.name!r}: {size}: {self.schema.row}>"

    def _repr_html_(self) -> str:
        """Return the first rows as a table of the report; columns without values are left out."""
        rows = [{name: cell for name, cell in row.items() if cell is not None} for row in self.head(SHOWN)]
        heads, lines = [], []
        columns = shown_columns(Printed(columns=self.columns, rows=rows))
        for name, _, is_number, _ in columns:
            heads.append(f'<th{_class(is_number)} title="{escape(self._meaning(name))}">{escape(name)}</th>')
        for at in range(len(rows)):
            cells = (
                f"<td{_class(is_number)}>{escape(visible(shortened(texts[at], LONGEST)))}</td>"
                for _, texts, is_number, _ in columns
            )
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


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
