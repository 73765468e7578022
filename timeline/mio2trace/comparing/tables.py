"""Comparisons as tables: two sides part by part, or many beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.comparing.comparison import Compared, Comparison
from mio2trace.reports.tables import Cell, Row, Table

COLUMNS = (
    "part", "name", "runs", "a_ms", "b_ms", "more_ms", "ratio", "low", "high", "percent_of_iteration", "verdict",
    "cause", "matched_by", "command",
)  # fmt: skip
"""``ratio`` is B / A of medians, ``low`` to ``high`` 95 % of what it may be; ``percent_of_iteration`` is of
the kernel time of the longer side's iteration."""
_LAST = ("rank", "once", "iteration")
BRIEF = ("part", "name", "runs", "a_ms", "b_ms", "ratio", "low", "high", "verdict", "cause")


def table(comparison: Comparison) -> Table:
    """A row a part; then a job's ranks, what does not recur, and the iteration."""
    compared = (*comparison.rows, *comparison.ranks, *comparison.once, *comparison.steps, comparison.iteration)
    decimals = dict.fromkeys(("a_ms", "b_ms", "more_ms", "ratio", "low", "high"), 3)
    return Table(columns=COLUMNS, rows=[_row(one) for one in compared], brief=BRIEF, decimals=decimals)


def _row(one: Compared) -> Row:
    cells: dict[str, Cell | None] = {
        "part": one.kind,
        "name": one.name,
        "runs": f"{one.runs[0]}+{one.runs[1]}",
        "a_ms": _ms(one.a_ns),
        "b_ms": _ms(one.b_ns),
        "more_ms": _ms(one.more_ns),
        "ratio": _rounded(one.ratio),
        "low": _rounded(one.low),
        "high": _rounded(one.high),
        "percent_of_iteration": round(100 * one.share, 2) if one.share else None,
        "verdict": one.word,
        "cause": one.cause or None,
        "matched_by": one.how or None,
        "command": one.command or None,
    }
    return {name: cell for name, cell in cells.items() if cell is not None}


def pivot(comparisons: Sequence[Comparison]) -> Table:
    """Many sides: each part's time on each, and its ratio from the first to the last; all compared with the first."""
    names = _distinct([comparisons[0].a.name, *(one.b.name for one in comparisons)])
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for name, comparison in zip(names[1:], comparisons, strict=True):
        for one in (*comparison.rows, *comparison.ranks, *comparison.once, *comparison.steps, comparison.iteration):
            row = rows.setdefault((one.kind, one.name), {"part": one.kind, "name": one.name})
            for column, ns in ((f"{names[0]}_ms", one.a_ns), (f"{name}_ms", one.b_ns)):
                ms = _ms(ns)
                if ms is not None:
                    row[column] = ms
            if comparison is comparisons[-1]:
                ratio = _rounded(one.ratio)
                row |= {"verdict": one.word} | ({} if ratio is None else {"ratio": ratio})
                row |= {"cause": one.cause} if one.cause else {}
    last = [row for row in rows.values() if row["part"] in _LAST]
    others = [row for row in rows.values() if row["part"] not in _LAST]
    columns = ("part", "name", *(f"{name}_ms" for name in names), "ratio", "verdict", "cause")
    decimals = dict.fromkeys((*(f"{name}_ms" for name in names), "ratio"), 3)
    # Of these no column gives way to the others on a narrow terminal.
    keys = ("name", *(f"{name}_ms" for name in names), "ratio")
    return Table(columns=columns, rows=[*others, *last], decimals=decimals, keys=keys)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where two are the same."""
    return [name if names.count(name) == 1 else f"{name}#{number}" for number, name in enumerate(names, 1)]


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
