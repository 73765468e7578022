"""A comparison for a person: `MOST_LINES` lines of `WIDTH` columns for a terminal, and Markdown for a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from mio2trace.answer.names import distinct
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.comparing.comparison import (
    Compared,
    Comparison,
    Side,
    change,
    decision,
    groups,
    has_changed,
    headline,
    interval,
    is_large,
    label,
    seen,
    summed,
    tally,
)
from mio2trace.comparing.record import KINDS
from mio2trace.measures.statistics import fixed
from mio2trace.outgoing import markdown_text, shortened, visible
from mio2trace.reports.tables import Cell, Row, Table, known

LABEL, TIME, CHANGE = 12, 8, 11
NAME = WIDTH - LABEL - 2 * TIME - CHANGE
SHOWN = {"ranks": 3, "once": 3, "layers": 2}
"""The most rows of each of these kinds; parts use the rest of the lines."""
_LABELS = {"maybe slower": "not decided", "maybe faster": "not decided", "slower": "slower", "faster": "faster"}
_ALONE = {"only in A": "gone", "only in B": "new"}
LEAST_STEP = 0.01
"""A part of a step is shown if it changed by at least this share of the step."""
_SIDE = 32
"""The most characters of a side's name."""
MARKDOWN_ROWS = 40


def block(comparison: Comparison, *, everything: bool = False) -> list[str]:
    """Return the answer. ``everything``: every row, in as many lines as necessary."""
    verdict, _, times = headline(comparison).partition("; ")
    head = [*_wrapped(verdict, 2), *_wrapped(f"  {times}", 1), *_sides(comparison)]
    foot = _wrapped("; ".join(tally(comparison)), 2)
    before = _rows("step", _steps(comparison, everything))
    layers = [row for row in comparison.rows if row.kind == "layer"]
    if not everything:
        layers = [one.row for one in groups(layers)]
    behind: list[str] = []
    for name, rows in (("layers", layers), ("ranks", comparison.ranks), ("once", comparison.once)):
        behind += _rows(name, rows if everything else rows[: SHOWN[name]])
    parts = [row for row in comparison.rows if row.kind != "layer"]
    room = None
    if not everything:
        parts = [one.row for one in groups(parts)]
        room = max(MOST_LINES - len(head) - len(before) - len(behind) - len(foot) - 1, 2)
    body = [*before, *_parts(parts, room), *behind]
    if body:
        body.insert(0, f"{'':<{LABEL + NAME}}{'A ms':>{TIME}}{'B ms':>{TIME}}{'change':>{CHANGE - 2}}")
    lines = [*head, *body, *foot]
    return lines if everything else lines[:MOST_LINES]


def _parts(rows: Sequence[Compared], room: int | None) -> list[str]:
    """Return the parts with verdict and cause in ``room`` lines; the last line sums the parts that do not fit."""
    lines: list[str] = []
    before = ""
    for at, (row, line) in enumerate(zip(rows, _rows("", rows), strict=True)):
        label = _LABELS.get(row.word, "not decided" if is_large(row) else "changed")
        own = [f"{label if label != before else '':<{LABEL}}{line[LABEL:]}"]
        if row.cause and row.cause not in row.name:
            own += _wrapped(f"{'':<{LABEL + 2}}{row.cause}", 1)
        if room is not None and len(lines) + len(own) + (at + 1 < len(rows)) > room:
            rest = summed(rows[at:])._replace(name=f"({len(rows) - at} more)", word="~", cause="")
            return lines + _rows("", [rest])
        lines += own
        before = label
    return lines


def _sides(comparison: Comparison) -> Iterator[str]:
    for letter, text in zip("AB", _named(comparison), strict=True):
        yield visible(f"{letter}  {shortened(text, WIDTH - 3)}")
    if comparison.differs:
        yield from _wrapped(f"differs     {', '.join(comparison.differs)}", 2, indent=LABEL)


def _named(comparison: Comparison) -> list[str]:
    """Describe both sides: ``rocm-7.0: 3 runs of 9 iterations, 1 rank each, AMD Instinct MI210``."""
    sides = comparison.a, comparison.b
    names = [side.name for side in sides]
    devices = [f", {side.facts.device}" if side.facts.device else "" for side in sides]
    return [
        f"{name}: {seen(side)}{device}"
        for name, side, device in zip(distinct(names, names, _SIDE), sides, devices, strict=True)
    ]


def _wrapped(text: str, most: int, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        visible(text), WIDTH, subsequent_indent=" " * indent, max_lines=most, placeholder=" ...", break_on_hyphens=False
    )


def _steps(comparison: Comparison, everything: bool) -> list[Compared]:
    """Return the length of a step, and its parts that changed."""
    rows = list(comparison.steps)
    whole = max((row.a_ns or 0 for row in rows[:1]), default=0)
    return [row for row in rows if everything or row.name == "step" or abs(row.more_ns) >= LEAST_STEP * whole]


def _rows(label: str, rows: Sequence[Compared]) -> list[str]:
    """Put ``label`` before the first row. A question mark follows a change that is not decided."""
    names = [row.name for row in rows]
    lines = []
    for at, (text, row) in enumerate(zip(distinct(names, names, NAME - 1), rows, strict=True)):
        both = row.a_ns, row.b_ns
        largest = max(ns or 0 for ns in both)
        times = "".join(f"{'-' if ns is None else _ms(ns, largest):>{TIME}}" for ns in both)
        last = _ALONE.get(row.word, row.word if row.ratio is None else change(row.ratio))
        mark = " ?" if row.word.startswith("maybe") or (row.word == "~" and is_large(row)) else "  "
        lines.append(
            f"{label if not at else '':<{LABEL}}{visible(text):<{NAME}}{times}{last + mark:>{CHANGE}}".rstrip()
        )
    return lines


def _ms(ns: float, largest: float) -> str:
    """Format milliseconds with the decimals that the larger side needs."""
    digits = next((digits for least, digits in _DIGITS if largest >= least), 4)
    return f"{ns / 1e6:,.{digits}f}"


_DIGITS = ((1e9, 0), (1e8, 1), (1e7, 2), (1e4, 3))
"""Least time in ns."""


def comment(comparisons: Sequence[Comparison], *, everything: bool = False) -> str:
    """Write Markdown: for each side that is compared with the first, the verdict, what was compared, and what
    changed."""
    return "\n".join(line for comparison in comparisons for line in _comment(comparison, everything)) + "\n"


def _comment(comparison: Comparison, everything: bool) -> Iterator[str]:
    verdict, _, rest = headline(comparison).partition(": ")
    yield f"**{markdown_text(verdict)}**: {markdown_text(rest)}"
    yield ""
    for letter, text in zip("AB", _named(comparison), strict=True):
        yield f"* {letter}: {markdown_text(text)}"
    if comparison.differs:
        yield f"* differs: {markdown_text(', '.join(comparison.differs))}"
    yield f"* {markdown_text('; '.join(tally(comparison)))}"
    yield ""
    yield "| part | name | A ms | B ms | change | 95 % | verdict | cause |"
    yield "| --- | --- | --: | --: | --: | --: | --- | --- |"
    rows = [comparison.iteration, *_steps(comparison, everything)]
    if everything:
        rows += [*comparison.rows, *comparison.ranks, *comparison.once]
    else:
        changed = [one.row for one in groups(comparison.rows)]
        rows += [*changed[:MARKDOWN_ROWS], *comparison.ranks, *comparison.once]
    for row in rows:
        cells = (
            row.kind, shortened(row.name, 100),
            *("" if ns is None else fixed(ns / 1e6, 3) for ns in (row.a_ns, row.b_ns)),
            "" if row.ratio is None else change(row.ratio), interval(row), decision(row), shortened(row.cause, 100),
        )  # fmt: skip
        yield f"| {' | '.join(map(markdown_text, cells))} |"
    if not everything and len(changed) > MARKDOWN_ROWS:
        yield f"\n{len(changed) - MARKDOWN_ROWS} more that changed."
    yield ""


# -- Comparisons as tables: two sides part by part, or many sides in columns ------------------------------------------

COLUMNS = (
    "part", "name", "runs", "a_ms", "b_ms", "more_ms", "ratio", "low", "high", "percent_of_iteration", "verdict",
    "cause", "matched_by", "command",
)  # fmt: skip
"""``ratio``: B / A of medians. ``low`` and ``high``: its 95 % interval. ``percent_of_iteration``: of the kernel time of
the longer iteration."""
BRIEF = ("part", "name", "runs", "a_ms", "b_ms", "ratio", "low", "high", "verdict", "cause")


def table(comparison: Comparison, *, everything: bool = True) -> Table:
    """Return the iteration, one row per part, then the step, the ranks of a job, and costs that occur once. Without
    ``everything`` only parts that changed."""
    rows = [row for row in comparison.rows if everything or has_changed(row)]
    compared = (comparison.iteration, *comparison.steps, *rows, *comparison.ranks, *comparison.once)
    decimals = dict.fromkeys(("a_ms", "b_ms", "more_ms", "ratio", "low", "high"), 3)
    return Table(columns=COLUMNS, rows=[_row(one) for one in compared], brief=BRIEF, decimals=decimals)


def document(comparison: Comparison, *, everything: bool = False) -> dict[str, Any]:
    """Return the JSON form: the verdict, what was compared of both sides, groups of parts with one cause, and
    the rows."""
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
    return known(
        {
            "part": one.kind,
            "name": one.name,
            "runs": f"{one.runs[0]}+{one.runs[1]}",
            "a_ms": _ms_of(one.a_ns),
            "b_ms": _ms_of(one.b_ns),
            "more_ms": _ms_of(one.more_ns),
            "ratio": _rounded(one.ratio),
            "low": _rounded(one.low),
            "high": _rounded(one.high),
            "percent_of_iteration": round(100 * one.share, 2) if one.share else None,
            "verdict": one.word,
            "cause": one.cause or None,
            "matched_by": one.how or None,
            "command": one.command or None,
        }
    )


def pivot(comparisons: Sequence[Comparison], *, everything: bool = True) -> Table:
    """Compare many sides with the first: the time of each part on each side, and its ratio from the first to
    the last."""
    sides = [comparisons[0].a.name, *(one.b.name for one in comparisons)]
    names = [name if sides.count(name) == 1 else f"{name}#{number}" for number, name in enumerate(sides, 1)]
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for name, comparison in zip(names[1:], comparisons, strict=True):
        for one in (comparison.iteration, *comparison.steps, *comparison.rows, *comparison.ranks, *comparison.once):
            row = rows.setdefault((one.kind, one.name), {"part": one.kind, "name": one.name})
            row |= known({f"{names[0]}_ms": _ms_of(one.a_ns), f"{name}_ms": _ms_of(one.b_ns)})
            if comparison is comparisons[-1]:
                row |= known({"verdict": one.word, "ratio": _rounded(one.ratio), "cause": one.cause or None})
    changed = {(row.kind, row.name) for comparison in comparisons for row in comparison.rows if has_changed(row)}
    shown = [row for key, row in rows.items() if everything or key in changed or key[0] not in KINDS]
    numbers = (*(f"{name}_ms" for name in names), "ratio")
    columns = ("part", "name", *numbers, "verdict", "cause")
    # On a narrow terminal the keys are left out last.
    return Table(columns=columns, rows=shown, decimals=dict.fromkeys(numbers, 3), keys=("name", *numbers))


def _ms_of(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
