"""Comparisons as tables: two sides part by part, or many beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mio2trace.comparing.changes import groups, has_changed, headline, label
from mio2trace.comparing.comparison import Compared, Comparison, Side
from mio2trace.comparing.record import KINDS
from mio2trace.reports.tables import Cell, Row, Table

COLUMNS = (
    "part", "name", "runs", "a_ms", "b_ms", "more_ms", "ratio", "low", "high", "percent_of_iteration", "verdict",
    "cause", "matched_by", "command",
)  # fmt: skip
"""``ratio`` is B / A of medians, ``low`` to ``high`` 95 % of what it may be; ``percent_of_iteration`` is of
the kernel time of the longer side's iteration."""
BRIEF = ("part", "name", "runs", "a_ms", "b_ms", "ratio", "low", "high", "verdict", "cause")


def table(comparison: Comparison, *, everything: bool = True) -> Table:
    """The iteration, a row a part, then the step, a job's ranks, what does not recur. Without ``everything`` only parts
    that changed."""
    rows = [row for row in comparison.rows if everything or has_changed(row)]
    compared = (comparison.iteration, *comparison.steps, *rows, *comparison.ranks, *comparison.once)
    decimals = dict.fromkeys(("a_ms", "b_ms", "more_ms", "ratio", "low", "high"), 3)
    return Table(columns=COLUMNS, rows=[_row(one) for one in compared], brief=BRIEF, decimals=decimals)


def document(comparison: Comparison, *, everything: bool = False) -> dict[str, Any]:
    """The JSON form: the verdict, what was seen of both sides, groups of parts with one cause, and the rows."""
    made = table(comparison, everything=everything)
    return {
        "schema_version": 1,
        "verdict": label(comparison.iteration).lower(),
        "headline": headline(comparison),
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "differs": list(comparison.differs),
        "unchanged_rows": sum(not has_changed(row) for row in comparison.rows),
        "groups": [
            {**_row(group.row), "members": [row.name for row in group.members]}
            for group in groups([row for row in comparison.rows if row.kind != "layer"])
        ],
        "rows": list(made.rows),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "runs": len(side.runs),
        "iterations": [run.iterations for run in side.runs],
        "ranks": [len(run.ranks) or 1 for run in side.runs],
        "device": side.facts.device or None,
        "miopen": side.facts.miopen or None,
    }


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


def pivot(comparisons: Sequence[Comparison], *, everything: bool = True) -> Table:
    """Many sides: each part's time on each, and its ratio from the first to the last; all compared with the first."""
    names = _distinct([comparisons[0].a.name, *(one.b.name for one in comparisons)])
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for name, comparison in zip(names[1:], comparisons, strict=True):
        for one in (comparison.iteration, *comparison.steps, *comparison.rows, *comparison.ranks, *comparison.once):
            row = rows.setdefault((one.kind, one.name), {"part": one.kind, "name": one.name})
            for column, ns in ((f"{names[0]}_ms", one.a_ns), (f"{name}_ms", one.b_ns)):
                ms = _ms(ns)
                if ms is not None:
                    row[column] = ms
            if comparison is comparisons[-1]:
                ratio = _rounded(one.ratio)
                row |= {"verdict": one.word} | ({} if ratio is None else {"ratio": ratio})
                row |= {"cause": one.cause} if one.cause else {}
    changed = {(row.kind, row.name) for comparison in comparisons for row in comparison.rows if has_changed(row)}
    shown = [row for key, row in rows.items() if everything or key in changed or key[0] not in KINDS]
    columns = ("part", "name", *(f"{name}_ms" for name in names), "ratio", "verdict", "cause")
    decimals = dict.fromkeys((*(f"{name}_ms" for name in names), "ratio"), 3)
    # Of these no column gives way to the others on a narrow terminal.
    keys = ("name", *(f"{name}_ms" for name in names), "ratio")
    return Table(columns=columns, rows=shown, decimals=decimals, keys=keys)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where two are the same."""
    return [name if names.count(name) == 1 else f"{name}#{number}" for number, name in enumerate(names, 1)]


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
