"""A table for a person: only columns with values, aligned numbers, no line longer than the terminal.

A column shows the decimals that its largest number has with `DIGITS` digits, so that the points are aligned. If a line
is longer than the terminal, texts are cut first, the widest one first, down to `NARROWEST` or `NARROWEST_NAME`. Then
columns are left out, the least important first (`mio2trace.schema`), of equally important ones the right one. If one
column is left, it is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mio2trace.outgoing import markdown_text, shortened, visible
from mio2trace.reports.tables import Cell, Row, Table, cell_text
from mio2trace.schema import rank_of

DIGITS = 5
NARROWEST = 16
"""Characters of a text that are kept before a column is left out."""
NARROWEST_NAME = 40
"""The same for columns that name the row."""
NARROWEST_HEAD = 16
"""The same for the heading of a number in the most important columns; it keeps its beginning and its end, which is its
unit."""
_MOST_DECIMALS = 6
_BETWEEN = "  "
_KERNELS = ("name", "kernel")


class Column(NamedTuple):
    """``cells``: as they are shown. ``rank``: the least important columns have the highest."""

    name: str
    cells: list[str]
    is_number: bool
    rank: int

    @property
    def width(self) -> int:
        return max(map(len, (self.name, *self.cells)))


def aligned(table: Table, width: int | None = None) -> Iterator[str]:
    """Return lines of text; none is longer than ``width``."""
    columns = [
        column._replace(name=visible(column.name), cells=list(map(visible, column.cells)))
        for column in shown_columns(table)
    ]
    kept, widths = _fitted(columns, width)
    if not kept:
        yield "\n" * (1 + len(table.rows))
        return
    for line in zip(*([column.name, *column.cells] for column in kept), strict=True):
        cells = (
            _middle_cut(cell, size).rjust(size) if column.is_number else _cut(column.name, cell, size).ljust(size)
            for cell, size, column in zip(line, widths, kept, strict=True)
        )
        text = _BETWEEN.join(cells).rstrip()
        yield (text if width is None else shortened(text, max(width, 3))) + "\n"


def _cut(column: str, text: str, size: int) -> str:
    """Return a text of at most ``size`` characters. Kernel names often begin with the same words, so they keep their
    ends."""
    return _middle_cut(text, size) if column in _KERNELS else shortened(text, size)


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
        _number(cell, decimals) if isinstance(cell, (int, float)) and decimals is not None else _text(cell)
        for cell in cells
    ]


def _number(cell: float, decimals: int) -> str:
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
    while len(kept) > 1 and _length([_least(column) for column in kept]) > width:
        worst = max(range(len(kept)), key=lambda at: (kept[at].rank, at))
        del kept[worst], widths[worst]
    over = _length(widths) - width
    while over > 0:
        texts = [at for at, column in enumerate(kept) if widths[at] > _least(column)]
        if not texts:
            break
        widest = max(texts, key=lambda at: (widths[at], at))
        others = max((widths[at] for at in texts if at != widest), default=0)
        least = max(_least(kept[widest]), min(others, widths[widest] - 1))
        cut = min(over, widths[widest] - least)
        widths[widest] -= cut
        over -= cut
    return kept, widths


def _least(column: Column) -> int:
    if column.is_number:
        head = column.name if column.rank else column.name[:NARROWEST_HEAD]
        return max(map(len, (head, *column.cells)))
    least = NARROWEST if column.rank else NARROWEST_NAME
    return min(column.width, max(least, len(column.name)))


def _length(widths: Sequence[int]) -> int:
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)
