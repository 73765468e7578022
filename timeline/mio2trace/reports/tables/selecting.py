"""What of a table is shown: rows that meet conditions, in an order, so many of them, some columns."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from mio2trace.reports.numbers import UNITS
from mio2trace.reports.tables import Cell, Row, Table, cell_text
from mio2trace.schema import base_of

_CONDITION = re.compile(r"([\w.]+)\s*(<=|>=|!=|==|=|<|>|~)(.*)", re.DOTALL)
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class SelectionError(ValueError):
    """Why nothing can be selected so, in one line."""


class TableSelection(NamedTuple):
    """``where``: conditions such as ``kernel_ms>1``, ``layer=conv1``, ``name~gemm`` (contains), all of which must hold.

    ``sort``: columns, numbers most first, texts from a to z; ``:up`` and ``:down`` behind one say it. ``top``: rows.
    ``columns``: only these. A name may lack its unit, or have another one.
    """

    columns: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    top: int | None = None
    where: tuple[str, ...] = ()


def select(table: Table, chosen: TableSelection) -> Table:
    """The part of a table. Raises `SelectionError`."""
    rows: Sequence[Row] = table.rows
    count = len(rows)
    for condition in chosen.where:
        holds = _condition(table, condition)
        rows = [row for row in rows if holds(row)]
    if chosen.where and not rows:
        conditions = " and ".join(chosen.where)
        table = msgspec.structs.replace(table, empty=f"none of {count} rows has {conditions}" if count else table.empty)
    for key in reversed(chosen.sort):
        rows = _sorted(table, rows, key)
    if chosen.top is not None and len(rows) > chosen.top:
        rows = rows[: chosen.top]
    if rows is not table.rows:
        table = msgspec.structs.replace(table, rows=rows)
    return table.chosen([column_named(table, name) for name in chosen.columns]) if chosen.columns else table


def column_named(table: Table, name: str) -> str:
    """The column that ``name`` means, whatever the unit. Raises `SelectionError`."""
    if name in table.columns:
        return name
    base = base_of(name)[0]
    for column in table.columns:
        if base_of(column)[0] in (base, name) and base_of(column)[1]:
            return column
    near = difflib.get_close_matches(name, [*table.columns, *(base_of(column)[0] for column in table.columns)], 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise SelectionError(f"no column {name!r}{meant} There are {', '.join(table.columns)}" if near else
                         f"no column {name!r}; there are {', '.join(table.columns)}")  # fmt: skip


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
    """Rows without a cell come last, whatever the order; equals stay as they are."""
    name, _, order = key.partition(":")
    if order not in ("", "up", "down"):
        raise SelectionError(f"--sort {key}: expected {name}:up or {name}:down")
    column = column_named(table, name)
    cells: list[tuple[Cell, Row]] = [(cell, row) for row in rows if (cell := row.get(column)) is not None]
    rest = [row for row in rows if row.get(column) is None]
    numbers = all(isinstance(cell, (int, float)) for cell, _ in cells)
    falls = order == "down" or (numbers and not order)
    if numbers:
        cells.sort(key=lambda pair: pair[0], reverse=falls)  # type: ignore[arg-type,return-value]
    else:
        cells.sort(key=lambda pair: cell_text(pair[0]), reverse=falls)
    return [row for _, row in cells] + rest
