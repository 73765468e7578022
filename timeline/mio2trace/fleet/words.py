"""A fleet for a terminal: the answer, then what leads each table, in at most `MOST_LINES` lines of `WIDTH` columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from mio2trace.answer.names import distinct
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.findings.words import count
from mio2trace.fleet import Fleet, Row
from mio2trace.outgoing import shortened, visible

SHOWN = 3
"""Rows of a table."""
LABEL, TIME, RATIO, LAST = 12, 9, 7, 18
NAME = WIDTH - LABEL - TIME - RATIO - LAST
_Cells = tuple[str, str, str, str]


def lines(fleet: Fleet) -> Iterator[str]:
    """Times are kernel time per steady iteration, medians over runs."""
    found = [
        *textwrap.wrap(visible(fleet.verdict), WIDTH, subsequent_indent="  ", max_lines=3, placeholder=" ..."),
        f"{'ms per iteration':>{LABEL + NAME + TIME}}{'ratio':>{RATIO}}",
    ]
    slower = [row for row in fleet.regressions if row["clear"]] or fleet.regressions
    for head, rows in (
        ("slower", [(row["problem"], _ms(row), _ratio(row), f"{row['before']} -> {row['version']}") for row in slower]),
        ("problems", [(row["problem"], _ms(row), "", count(row["runs"], "run")) for row in fleet.problems]),
        (
            "outliers",
            [(_name(row), _ms(row), _ratio(row), f"of {count(row['runs'], 'run')}") for row in fleet.outliers],
        ),
        ("findings", [(row["id"], "", "", f"in {count(row['runs'], 'run')}") for row in fleet.odd]),
        ("failed", [(f"{row['run']}: {row['error']}", "", "", "") for row in fleet.failures]),
    ):
        found += _listed(head, rows)
    yield from found[:MOST_LINES]


def _listed(head: str, rows: Sequence[_Cells]) -> Iterator[str]:
    shown = rows[:SHOWN]
    names = [name for name, *_ in shown]
    wide = NAME - 1 if any(time or last for _, time, _, last in shown) else WIDTH - LABEL
    for at, (name, (_, time, ratio, last)) in enumerate(zip(distinct(names, names, wide), shown, strict=True)):
        more = f" (+{len(rows) - SHOWN})" if len(rows) > SHOWN and at == SHOWN - 1 else ""
        room = LAST - 2 - len(more)
        text = f"{head if not at else '':<{LABEL}}{visible(name):<{NAME}}"
        text += f"{time:>{TIME}}{ratio:>{RATIO}}  {visible(shortened(last, room))}{more}"
        yield text.rstrip()[:WIDTH]


def _ms(row: Row) -> str:
    return f"{row['kernel_ms']:,.3f}"


def _ratio(row: Row) -> str:
    return f"{row['ratio']:.2f}"


def _name(row: Row) -> str:
    return str(row["run"]) if row["rank"] is None else f"{row['run']}, rank {row['rank']}"
