"""A table of named columns, printed for a person (text, Markdown) or for a program (CSV, JSON, JSON lines).

A cell is text, a number, a list of these, or a mapping of names to numbers; unknown values are absent. Programs get
every column and every digit. A person gets only columns with values, aligned numbers, and no line longer than the
terminal.

A person's column shows the decimals that its largest number has with `DIGITS` digits, so that the points are aligned.
If a line is longer than the terminal, texts are cut first, the widest one first, down to `NARROWEST` or
`NARROWEST_NAME`. Then columns are left out, the least important first (`mio2trace.schema`), of equally important ones
the right one. If one column is left, it is cut.
"""

from __future__ import annotations

import io
import math
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, overload

import msgspec
import orjson

from mio2trace.measures.statistics import deviation, mean, quantile
from mio2trace.model.tables import NO, Pool
from mio2trace.outgoing import count, csv_text, json_text, markdown_text, shortened, visible
from mio2trace.schema import base_of, rank_of

Cell = str | int | float | Sequence[str] | Sequence[int] | Sequence[float] | Mapping[str, int]
Row = Mapping[str, Cell]
Form = Literal["table", "csv", "json", "jsonl", "markdown"]
FORMS: tuple[Form, ...] = ("table", "csv", "json", "jsonl", "markdown")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table. ``columns``: in order; each row holds some of them.

    ``objects``: columns that JSON joins to one object, in the place of the first of them: ``{"gemm": ("M", "N",
    "K")}``. ``brief``: the columns for a person; empty: all. ``ends``: last rows for a person only, such as the total.
    ``empty``: the reason if there is no row. ``keys``: columns that name the row. ``decimals``: of columns that a
    person compares, in place of the number of decimals that their largest value gives. ``fixed``: columns that are no
    times even if their names end in ``_ns``: moments, hardware counters (`in_unit`).
    """

    columns: tuple[str, ...]
    rows: Sequence[Row]
    objects: Mapping[str, tuple[str, ...]] = {}
    brief: tuple[str, ...] = ()
    ends: Sequence[Row] = ()
    empty: str = ""
    keys: tuple[str, ...] = ()
    decimals: Mapping[str, int] = {}
    fixed: tuple[str, ...] = ()


def known(cells: Mapping[str, Cell | None]) -> dict[str, Cell]:
    """Leave out unknown values."""
    return {name: cell for name, cell in cells.items() if cell is not None}


class MadeRows(Sequence[Row]):
    """Rows that are made by place when they are needed: a profile may have millions."""

    def __init__(self, make: Callable[[int], Row], places: range) -> None:
        self._make = make
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        places = self._places[index]
        return MadeRows(self._make, places) if isinstance(places, range) else self._make(places)


class ColumnRows(MadeRows):
    """Rows of ``columns``: numbers, with `NO` for an unknown cell, or a pool, with None."""

    def __init__(self, columns: Mapping[str, Any], count: int) -> None:
        self.columns = columns
        super().__init__(self._row, range(count))

    def _row(self, at: int) -> Row:
        cells: dict[str, Cell] = {}
        for name, column in self.columns.items():
            cell = column.at(at) if isinstance(column, Pool) else column.item(at)
            if cell is not None and cell != NO:
                cells[name] = cell
        return cells


def grouped(table: Table, by: Sequence[str], sums: Callable[[Sequence[Row]], Row] = lambda rows: {}) -> Table:
    """Return one row for all rows with equal values in ``by``, with their ``count``, most frequent first, then in table
    order.

    A row keeps the cells that all rows of its group share, and gets the ``sums`` of the group. Raises KeyError with the
    first unknown column.
    """
    for name in by:
        if name not in table.columns:
            raise KeyError(name)
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(_hashable(row.get(name)) for name in by), []).append(row)
    rows: list[Row] = []
    for first_row, *others in sorted(groups.values(), key=lambda group: -len(group)):
        shared = dict(first_row)
        for row in others:
            if len(shared) > len(by):
                shared = {name: value for name, value in shared.items() if row.get(name) == value}
        rows.append({"count": 1 + len(others), **shared, **sums([first_row, *others])})
    first = ("count", *by)
    return msgspec.structs.replace(
        table,
        columns=(*first, *(name for name in table.columns if name not in by)),
        rows=rows,
        brief=(*first, *(name for name in table.brief if name not in by)) if table.brief else (),
        keys=tuple(by),
    )


def _hashable(cell: Cell | None) -> object:
    return cell if isinstance(cell, (str, int, float, type(None))) else cell_text(cell)


def stacked(parts: Sequence[tuple[Row, Table]]) -> Table:
    """Join tables of one kind, one below the other. The cells beside each table come before its columns."""
    if len(parts) == 1 and not parts[0][0]:
        return parts[0][1]
    first = tuple(dict.fromkeys(name for cells, _ in parts for name in cells))
    tables = [table for _, table in parts]
    brief = tuple(dict.fromkeys(name for table in tables for name in table.brief))
    stops = list(accumulate(len(table.rows) for table in tables))

    def row(at: int) -> Row:
        part = bisect_right(stops, at)
        return {**parts[part][0], **tables[part].rows[at - stops[part]]}

    return Table(
        columns=(*first, *dict.fromkeys(name for table in tables for name in table.columns)),
        rows=MadeRows(row, range(stops[-1] if stops else 0)),
        objects={name: held for table in tables for name, held in table.objects.items()},
        brief=(*first, *brief) if brief else (),
        ends=[{**cells, **row} for cells, table in parts for row in table.ends],
        empty=next((table.empty for table in tables if table.empty), ""),
        keys=tuple(dict.fromkeys(name for table in tables for name in table.keys)),
        fixed=tuple(dict.fromkeys(name for table in tables for name in table.fixed)),
    )


def print_table(table: Table, form: Form, width: int | None = None) -> Iterator[str]:
    """Yield the table in pieces of text, each with its line end. Equal tables give equal text.

    ``width``: the most characters in a line of the text form.
    """
    return aligned(table, width) if form == "table" else _PRINTERS[form](table)


def cell_text(cell: Cell | None) -> str:
    """Return the cell as one text, with every digit."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Mapping):
        return "; ".join(f"{name} {number}" for name, number in cell.items())
    if isinstance(cell, Sequence):
        return "; ".join(map(str, cell))
    return str(cell)


def _csv(table: Table) -> Iterator[str]:
    """Write RFC 4180 with a line feed as line end and always one header. No cell is a formula."""
    import csv

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_text, table.columns))
    for at, row in enumerate(table.rows):
        cells = map(row.get, table.columns)
        writer.writerow([str(cell) if isinstance(cell, (int, float)) else csv_text(cell_text(cell)) for cell in cells])
        if at % 1024 == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _object(table: Table, row: Row) -> dict[str, object]:
    inside = {name: parent for parent, names in table.objects.items() for name in names}
    out: dict[str, Any] = {}
    for name in table.columns:
        cell = row.get(name)
        if cell is None or (not isinstance(cell, (str, int, float)) and not cell):
            continue
        held = out.setdefault(inside[name], {}) if name in inside else out
        held[name] = dict(cell) if isinstance(cell, Mapping) else cell
    return out


def _dumps(cells: dict[str, object]) -> str:
    try:
        return json_text(orjson.dumps(cells).decode())
    except TypeError:  # a number of more than 64 bits
        import json

        return json.dumps(cells, separators=(",", ":"))


def _json(table: Table) -> Iterator[str]:
    """Write one array, with one line per object."""
    before = "["
    for row in table.rows:
        yield before + "\n" + _dumps(_object(table, row))
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


_PRINTERS: dict[str, Callable[[Table], Iterator[str]]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": lambda table: (_dumps(_object(table, row)) + "\n" for row in table.rows),
    "markdown": lambda table: markdown(table),
}


# -- Times, which tables have in ns until they are shown; statistics of several measurements of one quantity -----------

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds in each unit in which a table can be shown."""


def in_ns(*names: str) -> tuple[str, ...]:
    """Return the columns of times: ``p3_p2`` -> ``p3_p2_ns``."""
    return tuple(f"{name}_ns" for name in names)


def ns_cells(times: Mapping[str, float | None]) -> dict[str, Cell]:
    """Return a cell for each known time. ``times``: by name, without the unit."""
    return {f"{name}_ns": ns for name, ns in times.items() if ns is not None}


def in_unit(table: Table, unit: str, name_of: Callable[[str], str] = str) -> Table:
    """Return the table with its times in ``unit``, and its columns named by ``name_of``. Times in ns stay integers."""
    times = {name for name in table.columns if unit != "ns" and name.endswith("_ns") and name not in table.fixed}
    names = {
        name: name_of(name).removesuffix("ns") + unit if name in times else name_of(name) for name in table.columns
    }
    if all(name == shown for name, shown in names.items()):
        return table
    shown_times = [names[name] for name in times]

    def row(of: Row) -> Row:
        cells: dict[str, Any] = {names.get(name, name): cell for name, cell in of.items()}
        for name in shown_times:
            if (ns := cells.get(name)) is not None:
                cells[name] = [one / UNITS[unit] for one in ns] if isinstance(ns, list) else ns / UNITS[unit]
        return cells

    def rows(of: Sequence[Row]) -> MadeRows:
        return MadeRows(lambda at: row(of[at]), range(len(of)))

    return msgspec.structs.replace(
        table,
        columns=tuple(names.values()),
        rows=rows(table.rows),
        brief=tuple(names[name] for name in table.brief),
        ends=rows(table.ends),
    )


STATISTICS = ("mean", "std", "min", "q25", "median", "q75", "max")


def describe(values: Sequence[int]) -> dict[str, float]:
    """Return `STATISTICS` of one or more values; a single value has no ``std``."""
    if not values:
        return {}
    ordered = sorted(values)
    quartiles = (quantile(ordered, part) for part in (0.25, 0.5, 0.75))
    found = zip(STATISTICS, (mean(values), deviation(values), ordered[0], *quartiles, ordered[-1]), strict=True)
    return {name: value for name, value in found if value is not None}


# -- The selected part of a table: rows that meet conditions, their order and number, columns -------------------------

_CONDITION = re.compile(r"([\w.]+)\s*(<=|>=|!=|==|=|<|>|~)(.*)", re.DOTALL)
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class SelectionError(ValueError):
    """A selection that is impossible; the message is one line."""


def select(table: Table, columns: Sequence[str], sort: Sequence[str], top: int | None, where: Sequence[str]) -> Table:
    """Return the selected part of a table. Raises `SelectionError`.

    ``columns``: only these. ``sort``: columns, largest numbers first, texts from a to z; ``:up`` or ``:down`` after a
    name chooses the direction. ``top``: the most rows. ``where``: conditions such as ``kernel_ms>1``, ``layer=conv1``,
    ``name~gemm`` (contains); all of them must hold. A name may lack its unit, or have another one.
    """
    rows: Sequence[Row] = table.rows
    for condition in where:
        holds = _condition(table, condition)
        rows = [row for row in rows if holds(row)]
    if table.rows and not rows:
        empty = f"none of {count(len(table.rows), 'row')} has {' and '.join(where)}"
        table = msgspec.structs.replace(table, empty=empty)
    for key in reversed(sort):
        rows = _sorted(table, rows, key)
    if top is not None and len(rows) > top:
        rows = rows[:top]
    if rows is not table.rows:
        table = msgspec.structs.replace(table, rows=rows)
    chosen = tuple(column_named(table, name) for name in columns)
    if chosen:  # without its name, the total would look like a row
        named = [row for row in table.ends if any(isinstance(row.get(name), str) for name in chosen)]
        return msgspec.structs.replace(table, columns=chosen, brief=chosen, ends=named)
    by = [column_named(table, key.partition(":")[0]) for key in sort]
    if table.brief and by:  # a person sees what decides the order, also on a narrow terminal
        brief = tuple(dict.fromkeys((*table.brief, *by)))
        table = msgspec.structs.replace(table, brief=brief, keys=(*table.keys, *by))
    return table


def column_named(table: Table, name: str) -> str:
    """Return the column that ``name`` means, with any unit. Raises `SelectionError`."""
    if name in table.columns:
        return name
    base = base_of(name)[0]
    for column in table.columns:
        if base_of(column)[0] in (base, name) and base_of(column)[1]:
            return column
    import difflib

    near = difflib.get_close_matches(name, [*table.columns, *(base_of(column)[0] for column in table.columns)], 1)
    then = f"did you mean {near[0]}? There" if near else "there"
    raise SelectionError(f"no column {name!r}; {then} are {', '.join(table.columns)}")


def _condition(table: Table, text: str) -> Callable[[Row], bool]:
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise SelectionError(f"--where {text!r}: expected a column, one of = != < <= > >= ~, and a value")
    name, sign, value = found[1], found[2], found[3].strip()
    column = column_named(table, name)
    number = _number(value)
    given, own = base_of(name)[1], base_of(column)[1]
    if number is not None and given and own and column != name:
        number *= UNITS[given] / UNITS[own]
    if sign in _ORDERED:
        if number is None:
            raise SelectionError(f"--where {text!r}: {value!r} is no number")
        compare, limit = _ORDERED[sign], number
        return lambda row: isinstance(cell := row.get(column), (int, float)) and compare(cell, limit)
    if sign == "~":
        return lambda row: value.lower() in cell_text(row.get(column)).lower()

    def equal(row: Row) -> bool:
        cell = row.get(column)
        return cell == number if isinstance(cell, (int, float)) else cell_text(cell) == value

    return equal if sign != "!=" else lambda row: not equal(row)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _sorted(table: Table, rows: Sequence[Row], key: str) -> list[Row]:
    """Sort rows. Rows without a value come last in either direction; equal rows keep their order."""
    name, _, order = key.partition(":")
    if order not in ("", "up", "down"):
        raise SelectionError(f"--sort {key}: expected {name}:up or {name}:down")
    column = column_named(table, name)
    valued = [row for row in rows if row.get(column) is not None]
    rest = [row for row in rows if row.get(column) is None]
    numbers = all(isinstance(row[column], (int, float)) for row in valued)
    own: Callable[[Cell], Any] = (lambda cell: cell) if numbers else cell_text
    valued.sort(key=lambda row: own(row[column]), reverse=order == "down" or (numbers and not order))
    return valued + rest


# -- A table for a person ----------------------------------------------------------------------------------------------

DIGITS = 5
NARROWEST = 16
"""Characters of a text that are kept before a column is left out."""
NARROWEST_NAME = 40
"""The same for columns that name the row, on a line of twice as many characters or more."""
NARROWEST_HEAD = 16
"""The same for the heading of a number in the most important columns; it keeps its beginning and its end, which is its
unit."""
_MOST_DECIMALS = 6
_BETWEEN = "  "
_KERNELS = ("name", "kernel")


class Column(NamedTuple):
    """A column of a printed table. ``cells``: as they are shown. ``rank``: the least important columns have the
    highest."""

    name: str
    cells: list[str]
    is_number: bool
    rank: int

    @property
    def width(self) -> int:
        return max(map(len, (self.name, *self.cells)))


def aligned(table: Table, width: int | None = None) -> Iterator[str]:
    """Return lines of text. None is longer than ``width``, but a column that is alone is never cut: one copies it."""
    columns = [
        column._replace(name=visible(column.name), cells=list(map(visible, column.cells)))
        for column in shown_columns(table)
    ]
    width = None if len(columns) == 1 else width
    kept, widths = _fitted(columns, width)
    if not kept:
        yield "\n" * (1 + len(table.rows))
        return
    lines = zip(*([column.name, *_cut(column, size)] for column, size in zip(kept, widths, strict=True)), strict=True)
    for line in lines:
        cells = (
            _middle_cut(cell, size).rjust(size) if column.is_number else shortened(cell, size).ljust(size)
            for cell, size, column in zip(line, widths, kept, strict=True)
        )
        text = _BETWEEN.join(cells).rstrip()
        yield (text if width is None else shortened(text, max(width, 3))) + "\n"


def _cut(column: Column, size: int) -> list[str]:
    """Return the cells of a column; those of a column of names that is cut to ``size`` stay distinct: kernels are
    called as in the answer, and solvers keep their ends."""
    if size >= column.width or column.name not in (*_KERNELS, "solver"):
        return column.cells
    if column.name == "solver":
        return [_middle_cut(cell, size) for cell in column.cells]
    from mio2trace.kernels.names import distinct, short_kernel

    names = list(dict.fromkeys(column.cells))
    short = [short_kernel(name) if len(name) > size else name for name in names]
    shown = dict(zip(names, distinct(names, short, size), strict=True))
    return [shown[cell] for cell in column.cells]


def _middle_cut(text: str, size: int) -> str:
    """Return a text of at most ``size`` characters; a third of them are its end."""
    if len(text) <= size:
        return text
    end = (size - 3) // 3
    return f"{text[: size - 3 - end]}...{text[len(text) - end :]}"


def left_out(table: Table, width: int | None) -> list[str]:
    """Return the columns for which `aligned` has no room."""
    columns = shown_columns(table)
    kept = {column.name for column in _fitted(columns, width)[0]}
    return [column.name for column in columns if column.name not in kept]


def markdown(table: Table) -> Iterator[str]:
    columns = shown_columns(table)
    yield "| " + " | ".join(markdown_text(column.name) for column in columns) + " |\n"
    yield "|" + "|".join("---:" if column.is_number else "---" for column in columns) + "|\n"
    for line in zip(*(column.cells for column in columns), strict=True) if columns else [()] * len(table.rows):
        yield "| " + " | ".join(map(markdown_text, line)) + " |\n"


def shown_columns(table: Table) -> list[Column]:
    """Return the columns with any value."""
    rows: list[Row] = [*table.rows, *table.ends]
    columns = []
    for name in table.brief or table.columns:
        cells = [row.get(name) for row in rows]
        if rows and not any(map(cell_text, cells)):
            continue
        is_number = bool(rows) and all(isinstance(cell, (int, float, type(None))) for cell in cells)
        decimals = 1 if name.startswith("percent_of_") or name.endswith("_percent") else table.decimals.get(name)
        shown = _shown(cells, _decimals(cells) if decimals is None else decimals)
        columns.append(Column(name, shown, is_number, 0 if name in table.keys else rank_of(name)))
    return columns


def _decimals(cells: Sequence[Cell | None]) -> int | None:
    """Return the decimals that the largest number of a column needs; None if there are no fractions."""
    fractions = [cell for cell in cells if isinstance(cell, float) and math.isfinite(cell)]
    if not fractions:
        return None
    largest = max(abs(cell) for cell in cells if isinstance(cell, (int, float)) and math.isfinite(cell))
    whole = math.floor(math.log10(largest)) + 1 if largest else 1
    decimals = min(max(0, DIGITS - whole), _MOST_DECIMALS)
    exact = max(0 if one.is_integer() else len(repr(one).partition(".")[2]) or decimals for one in fractions)
    return min(decimals, exact)


def _shown(cells: Sequence[Cell | None], decimals: int | None) -> list[str]:
    return [
        _aligned(cell, decimals) if isinstance(cell, (int, float)) and decimals is not None else _text(cell)
        for cell in cells
    ]


def _aligned(cell: float, decimals: int) -> str:
    """Format a number; ``<0.1`` for a number that would round to nothing."""
    text = f"{cell:.{decimals}f}"
    return f"<{10**-decimals:.{decimals}f}" if cell > 0 and not float(text) else text


def _text(cell: Cell | None) -> str:
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        return "; ".join(part if isinstance(part, str) else f"{part:.{DIGITS}g}" for part in cell)
    return cell_text(cell)


def _fitted(columns: Sequence[Column], width: int | None) -> tuple[list[Column], list[int]]:
    """Return the columns that fit, and the width of each."""
    kept = list(columns)
    widths = [column.width for column in kept]
    if width is None:
        return kept, widths
    while len(kept) > 1 and _length([_least(column, width) for column in kept]) > width:
        worst = max(range(len(kept)), key=lambda at: (kept[at].rank, at))
        del kept[worst], widths[worst]
    over = _length(widths) - width
    while over > 0:
        texts = [at for at, column in enumerate(kept) if widths[at] > _least(column, width)]
        if not texts:
            break
        widest = max(texts, key=lambda at: (widths[at], at))
        others = max((widths[at] for at in texts if at != widest), default=0)
        least = max(_least(kept[widest], width), min(others, widths[widest] - 1))
        cut = min(over, widths[widest] - least)
        widths[widest] -= cut
        over -= cut
    return kept, widths


def _least(column: Column, width: int) -> int:
    if column.is_number:
        head = column.name if column.rank else column.name[:NARROWEST_HEAD]
        return max(map(len, (head, *column.cells)))
    least = NARROWEST if column.rank else min(NARROWEST_NAME, max(NARROWEST, width // 2))
    return min(column.width, max(least, len(column.name)))


def _length(widths: Sequence[int]) -> int:
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)
