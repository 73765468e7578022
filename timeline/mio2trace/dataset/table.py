"""A table in a program or a notebook: typed columns, rows as dicts, an Arrow stream that every data frame takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from mio2trace.dataset import columns
from mio2trace.dataset.columns import Data
from mio2trace.outgoing import shortened, visible
from mio2trace.reports.tables import Table as Printed
from mio2trace.reports.tables.person import shown_columns
from mio2trace.schema import TableSchema

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN = 20
"""Rows that a notebook shows."""
LONGEST = 80
"""Characters of a text that it shows."""
_STYLE = (
    "<style>.mio2trace{border-collapse:collapse;font:13px/1.4 system-ui,sans-serif;font-variant-numeric:tabular-nums}"
    ".mio2trace caption{text-align:left;padding:4px 0}.mio2trace th,.mio2trace td{padding:2px 10px;text-align:left;"
    "border-bottom:1px solid #8884}.mio2trace .number{text-align:right}</style>"
)


class Table:
    """Rows of one of `mio2trace.dataset.TABLES`. ``schema`` has names, kinds, units and meanings of its columns.

    Iteration gives dicts with all columns; None is unknown. ``__arrow_c_stream__`` (through nanoarrow, which the extra
    ``batch`` installs) makes it a source for pandas, Polars, DuckDB, PyArrow, Altair.
    """

    def __init__(self, schema: TableSchema, columns: Mapping[str, Data]) -> None:
        self.schema = schema
        self._columns = columns

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in order."""
        return self.schema.names

    def column(self, name: str) -> list[Any]:
        """The values of a column. Raises KeyError with a name that is none."""
        return self._columns[name].to_list()

    def __len__(self) -> int:
        return len(self._columns[self.columns[0]])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.columns
        for row in zip(*map(self.column, names), strict=True):
            yield dict(zip(names, row, strict=True))

    def to_dicts(self) -> list[dict[str, Any]]:
        """All rows."""
        return list(self)

    def head(self, count: int = 10) -> Table:
        """The first rows."""
        return Table(self.schema, {name: data.first(count) for name, data in self._columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """With nullable types: ``Int64``, ``float64``, ``boolean``, ``string``. Needs pandas alone."""
        import pandas

        kinds: dict[str, Any] = {"int": "Int64", "float": "float64", "flag": "boolean", "text": "string"}
        series = {
            column.name: pandas.Series(self.column(column.name), dtype=kinds[column.kind])
            for column in self.schema.columns
        }
        return pandas.DataFrame(series)

    def to_polars(self) -> polars.DataFrame:
        """Needs Polars and nanoarrow."""
        import polars

        return polars.DataFrame(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Raises `mio2trace.InputError`, an ImportError too, where nanoarrow is missing."""
        return columns.arrow_table(self._columns).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<Table {self.schema.name!r}: {len(self)} rows of {len(self.columns)} columns: {self.schema.row}>"

    def _repr_html_(self) -> str:
        """The first rows, as the report shows tables; columns in which nothing is known are left out."""
        rows = [{name: cell for name, cell in row.items() if cell is not None} for row in self.head(SHOWN)]
        heads, lines = [], []
        columns = list(shown_columns(Printed(columns=self.columns, rows=rows)))
        for name, _, is_number in columns:
            heads.append(f'<th{_class(is_number)} title="{escape(self._meaning(name))}">{escape(name)}</th>')
        for at in range(len(rows)):
            cells = (
                f"<td{_class(is_number)}>{escape(visible(shortened(texts[at], LONGEST)))}</td>"
                for _, texts, is_number in columns
            )
            lines.append(f"<tr>{''.join(cells)}</tr>")
        more = f", the first {len(rows)}" if len(rows) < len(self) else ""
        caption = escape(f"{self.schema.name}: {len(self)} rows{more}; {self.schema.row}")
        return (
            f'{_STYLE}<table class="mio2trace"><caption>{caption}</caption><thead><tr>{"".join(heads)}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table>"
        )

    def _meaning(self, name: str) -> str:
        column = next(column for column in self.schema.columns if column.name == name)
        return f"{column.meaning} ({column.unit})" if column.unit else column.meaning


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
