"""A comparison for a person: `MOST_LINES` lines of `WIDTH` columns for a terminal, Markdown for a comment, tables, and
a page with the frame of the report. The first lines of every form are the verdict and the parts that changed, grouped
by cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from markupsafe import Markup

from mio2trace.answer import html, svg
from mio2trace.answer.content import Room, distinct, ms_cell, part_name, short_kernel
from mio2trace.answer.html import attempts, fitted
from mio2trace.answer.text import MOST_LINES, WIDTH, wrapped
from mio2trace.comparing.comparison import Compared, Comparison, Side
from mio2trace.comparing.record import KINDS, Inside, Part
from mio2trace.comparing.statistics import FEWEST, FLOOR, FLOOR_OF_FEW, MANY, floor_of
from mio2trace.findings.rule import ms, percent
from mio2trace.outgoing import count, markdown_text, shortened, visible
from mio2trace.reports import Cell, Row, Table, known

# -- The first lines of a comparison -----------------------------------------------------------------------------------

_PERCENT = (0.5, 2.0)
"""Ratios between these two are printed in percent, others as a factor."""
_DECIDED = ("slower", "faster")
_GROUPED = ("slower", "faster", "maybe slower", "maybe faster", "~")


class Group(NamedTuple):
    """Parts that changed in the same way for the same reason. ``row``: their sum, or the part itself if it is alone."""

    row: Compared
    members: tuple[Compared, ...]


def change(ratio: float) -> str:
    """Format a ratio: ``+14.9 %`` (never ``-0.0 %``), or ``2.15 x`` if a side takes at least twice as long, ``3409 x``
    from 100 on."""
    least, most = _PERCENT
    percents = round(100 * (ratio - 1), 1) + 0.0
    return f"{percents:+.1f} %" if least < ratio < most else f"{ratio:.{2 if ratio < 100 else 0}f} x"


def interval(row: Compared) -> str:
    """Format the interval in the unit of `change`: ``12 to 17 %``; empty without an interval."""
    if row.ratio is None or row.low is None or row.high is None:
        return ""
    least, most = _PERCENT
    if not least < row.ratio < most:
        return f"{row.low:.2f} to {row.high:.2f} x"
    low, high = 100 * (row.low - 1), 100 * (row.high - 1)
    digits = 0 if high - low >= 1 else 1
    return f"{low + 0:.{digits}f} to {high + 0:.{digits}f} %"


def told_interval(row: Compared) -> str:
    """Return the interval and what it is: ``95 %: 12 to 17 %``. It covers the true ratio as often as 3 runs can, or it
    shows the scatter within the runs only."""
    fewest = min(row.runs)
    level = "within the runs" if fewest < FEWEST else "90 %" if fewest == FEWEST else "95 %"
    return f"{level}: {interval(row)}" if interval(row) else ""


def decision(row: Compared) -> str:
    """Return the meaning of change and interval: ``slower``, or the reason why nothing is decided."""
    fewest = min(row.runs)
    runs = count(fewest, "run")
    if row.word in ("slower", "faster") or row.ratio is None:
        return row.word
    if row.undecided:
        return row.undecided
    if row.ratio == 1 or _is_unchanged(row):
        return "no change is shown"
    if row.word.startswith("maybe") and fewest < FEWEST:
        return f"{runs} per side cannot decide, {row.runs_needed} can"
    if row.low is None or row.high is None:
        return "one iteration shows no scatter"
    if row.low <= 1 <= row.high:
        return "the interval includes no change"
    floor = floor_of(fewest)
    if row.word.startswith("maybe") and not 1 / (1 + floor) <= row.ratio <= 1 + floor:
        return "the runs of each side scatter too much"
    if row.word.startswith("maybe") or 1 / (1 + FLOOR) <= row.ratio <= 1 + FLOOR:
        return f"below the {100 * floor:.0f} % that {runs if fewest >= FEWEST else 'more runs'} can decide"
    return "the runs of both sides overlap"


def _is_unchanged(row: Compared) -> bool:
    """Return whether the interval contains "no change" and no change that is large enough to report."""
    return row.low is not None and row.high is not None and 1 / (1 + FLOOR) <= row.low <= 1 <= row.high <= 1 + FLOOR


def label(row: Compared) -> str:
    """Return the verdict in one or two words."""
    if row.word in ("slower", "faster"):
        return row.word.upper()
    if row.undecided:
        return "NOT DECIDED"
    return "NO CHANGE SHOWN" if row.ratio == 1 or _is_unchanged(row) else "NOT DECIDED"


def headline(comparison: Comparison) -> str:
    """``SLOWER: +14.9 % (95 %: 12 to 17 %); 21.60 -> 24.81 ms of kernels per iteration (medians); step ...``"""
    return "; ".join(headlines(comparison))


def headlines(comparison: Comparison) -> list[str]:
    """Return the verdict on the kernel time, that time, and the verdict on the length of a step with its time, if the
    runs show it."""
    row = comparison.iteration
    step = [said] if (said := step_headline(comparison)) else []
    if row.ratio is None or row.a_ns is None or row.b_ns is None:
        return ["NOT DECIDED: one side has no time per iteration", *step]
    of = "kernels" if comparison.a.runs[0].told_by == "kernels" else "printed layer times"
    runs = [*comparison.a.runs, *comparison.b.runs]
    several = len(runs) > 2 or any(run.iterations > 1 for run in runs)
    how = "; ".join(["medians"] * several + ["means over the ranks"] * any(len(run.ranks) > 1 for run in runs))
    whole = [side.whole for side in (comparison.a, comparison.b)]
    per = " in the whole run" if all(whole) else " per iteration"
    times = f"{ms(row.a_ns)} -> {ms(row.b_ns)} of {of}{per}{f' ({how})' if how else ''}"
    if any(whole):
        which = "" if all(whole) else f" on side {'AB'[whole.index(True)]}, whose whole run counts as one"
        times += f"; no iterations are known{which}"
    return [_verdict(row), times, *step]


def step_headline(comparison: Comparison) -> str:
    """``step FASTER: -19.2 % (95 %: -20 to -18 %), 268.0 -> 216.6 ms``; empty if a run does not show its steps."""
    step = comparison.step
    if step is None or step.a_ns is None or step.b_ns is None or step.ratio is None:
        return ""
    doubts = "".join(f"; {said}" for sides, said in comparison.doubts_of_step if sides == "both")
    return f"step {_verdict(step)}, {ms(step.a_ns)} -> {ms(step.b_ns)}{doubts}"


def _verdict(row: Compared) -> str:
    assert row.ratio is not None
    within = f" ({told_interval(row)})" if interval(row) else ""
    why = f", {decision(row)}" if label(row) == "NOT DECIDED" else ""
    return f"{label(row)}: {change(row.ratio)}{within}{why}"


def seen(side: Side) -> str:
    """Return what was compared of a side: ``3 runs of 9 iterations, 4 ranks each``."""
    iterations = [run.iterations for run in side.runs]
    least, most = min(iterations), max(iterations)
    each = " of " + (count(least, "iteration") if least == most else f"{least} to {most} iterations")
    each = "" if side.whole else each
    ranks = {len(run.ranks) or 1 for run in side.runs}
    processes = count(max(ranks), "rank") if len(ranks) == 1 else f"{min(ranks)} to {max(ranks)} ranks"
    return f"{count(len(side.runs), 'run')}{each}, {processes}{' each' if len(side.runs) > 1 else ''}"


def has_changed(row: Compared) -> bool:
    """Return whether a row is shown by default: its time or its cause changed, it is on one side only, or the
    difference is worth knowing although nothing is decided."""
    return row.word != "~" or bool(row.cause) or is_large(row)


def is_large(row: Compared) -> bool:
    """Whether the difference is at least `FLOOR` of the iteration."""
    if row.ratio is None or row.kind not in KINDS:
        return False
    nearest = min(row.ratio, 1 / row.ratio) if row.ratio else 0.0  # the part does not exist any more
    return row.share * (1 - nearest) >= FLOOR


def groups(rows: Sequence[Compared]) -> tuple[Group, ...]:
    """Return the rows that changed. Rows with equal verdict and cause are grouped; decided ones come first, then by
    time."""
    by_cause: dict[tuple[str, str, str], list[Compared]] = {}
    for row in rows:
        if has_changed(row):
            cause = common_cause(row) if row.word in _GROUPED else ""
            by_cause.setdefault((row.kind, row.word, cause or f"={row.name}"), []).append(row)
    made = [_group(key[2], members) for key, members in by_cause.items()]
    return tuple(sorted(made, key=lambda group: (group.row.word not in _DECIDED, -abs(group.row.more_ns))))


def common_cause(row: Compared) -> str:
    """Return the cause that groups a row: its stated cause, else the main kernel if it is the same on both sides."""
    if row.cause:
        return row.cause
    if row.kind != "problem" or row.pair is None or row.pair.a is None or row.pair.b is None:
        return ""
    longest = [
        max((one for one in side.part.kernels if one.role in ("main", "")), key=lambda one: one.ns, default=None)
        for side in (row.pair.a, row.pair.b)
    ]
    a, b = longest
    return f"all {short_kernel(a.name)}" if a is not None and b is not None and a.name == b.name else ""


def _group(cause: str, members: Sequence[Compared]) -> Group:
    first = members[0]
    if len(members) == 1:
        return Group(first, (first,))
    total = summed(members)._replace(
        name=f"{count(len(members), first.kind)}, {cause}", low=None, high=None,
        share=sum(row.share for row in members), command="", pair=None, how="",
        runs_needed=max(row.runs_needed for row in members),
    )  # fmt: skip
    return Group(total, tuple(members))


def summed(rows: Sequence[Compared]) -> Compared:
    """Return the first row with the times of all rows."""
    a_ns, b_ns = (sum(getattr(row, side) or 0 for row in rows) for side in ("a_ns", "b_ns"))
    return rows[0]._replace(a_ns=a_ns, b_ns=b_ns, ratio=b_ns / a_ns if a_ns else None)


def tally(comparison: Comparison) -> Iterator[str]:
    """Yield the number of parts that changed, that are not decided, and that were left out."""
    rows = comparison.rows
    judged = [row for row in rows if row.word not in ("only in A", "only in B", "other size")]
    slower, faster = (sum(row.word == word for row in judged) for word in _DECIDED)
    maybe = [row for row in judged if row.runs_needed]
    same = sum(not has_changed(row) for row in rows)
    needed = f" ({count(max(row.runs_needed for row in maybe), 'run')} per side can)" if maybe else ""
    yield f"{count(len(judged), 'part')}: {slower} slower, {faster} faster, {len(maybe)} not decided{needed}"
    if len(rows) > len(judged):
        yield f"{len(rows) - len(judged)} only on one side, or of another size"
    yield f"{same} unchanged"
    if comparison.uncompared is not None:
        largest, together = comparison.uncompared
        yield (f"a base keeps no parts below {percent(largest)} of the iteration, only their sum, {percent(together)}")


# -- The answer for a terminal, and Markdown for a comment ------------------------------------------------------------

LABEL, TIME, CHANGE = 12, 8, 11
NAME = WIDTH - LABEL - 2 * TIME - CHANGE
SHOWN = {"ranks": 3, "once": 3, "layers": 2}
"""The most rows of each of these kinds; parts use the rest of the lines."""
_LABELS = {"maybe slower": "not decided", "maybe faster": "not decided", "slower": "slower", "faster": "faster"}
_ALONE = {"only in A": "gone", "only in B": "new"}
LEAST_STEP = 0.01
"""A part of a step is shown if it changed by at least this share of the step."""
_SIDE, LEAST_SIDE = 32, 20
"""The most characters of the name of a side; the least that stay where its GPU needs room."""
MARKDOWN_ROWS = 40


def block(comparison: Comparison, *, everything: bool = False) -> list[str]:
    """Return the answer. ``everything``: every row, in as many lines as necessary."""
    verdict, *below = headlines(comparison)
    head = [*wrapped("", verdict), *(line for text in below for line in wrapped("", f"  {text}"))]
    head += _sides(comparison)
    hint = "" if everything else " (--all)"
    foot = [*wrapped("", "; ".join(tally(comparison)) + hint, most=3)]
    before = _rows("step", [row for row in _steps(comparison, everything) if row is not comparison.step])
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
    """Return the parts with verdict and cause in ``room`` lines; the last line sums the parts that do not fit. A cause
    that does not fit behind the name of a group is on a line of its own."""
    rows = [row if len(row.name) < NAME else row._replace(name=row.name.removesuffix(f", {row.cause}")) for row in rows]
    lines: list[str] = []
    before = ""
    for at, (row, line) in enumerate(zip(rows, _rows("", rows), strict=True)):
        label = _LABELS.get(row.word, "not decided" if is_large(row) else "changed")
        own = [f"{label if label != before else '':<{LABEL}}{line[LABEL:]}"]
        if row.cause and row.cause not in row.name:
            own += wrapped(" ", row.cause, at=LABEL + 2)
        if room is not None and len(lines) + len(own) + (at + 1 < len(rows)) > room:
            rest = summed(rows[at:])._replace(name=f"({len(rows) - at} more)", word="~", cause="")
            return lines + _rows("", [rest])
        lines += own
        before = label
    return lines


def _sides(comparison: Comparison) -> Iterator[str]:
    for letter, text in zip("AB", _named(comparison, WIDTH - 3), strict=True):
        yield visible(f"{letter}  {shortened(text, WIDTH - 3)}")
    if comparison.differs:
        yield from wrapped("sides", ", ".join(comparison.differs))


def _named(comparison: Comparison, width: int) -> list[str]:
    """Describe both sides: ``rocm-7.0: 3 runs of 9 iterations, 1 rank each, AMD Instinct MI210``. The name gives way to
    the GPU."""
    sides = comparison.a, comparison.b
    names = [side.name for side in sides]
    facts = [f": {seen(side)}{f', {side.facts.device}' if side.facts.device else ''}" for side in sides]
    room = max(min(_SIDE, width - max(map(len, facts))), LEAST_SIDE)
    return [f"{name}{fact}" for name, fact in zip(distinct(names, names, room), facts, strict=True)]


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
            f"{label if not at else '':<{LABEL}}{visible(text):<{NAME}}{times} {last + mark:>{CHANGE - 1}}".rstrip()
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
    for letter, text in zip("AB", _named(comparison, 2 * WIDTH), strict=True):
        yield f"* {letter}: {markdown_text(text)}"
    if comparison.differs:
        yield f"* sides: {markdown_text(', '.join(comparison.differs))}"
    yield f"* {markdown_text('; '.join(tally(comparison)))}"
    yield ""
    yield "| part | name | A ms | B ms | change | interval | verdict | cause |"
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
            ms_cell(row.a_ns), ms_cell(row.b_ns),
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
"""``ratio``: B / A of medians. ``low`` and ``high``: its interval. ``percent_of_iteration``: of the kernel time of
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
    made, step = table(comparison, everything=everything), comparison.step
    return {
        "schema_version": 1,
        "verdict": label(comparison.iteration).lower(),
        "headline": headline(comparison),
        "step_verdict": None if step is None else label(step).lower(),
        "step_headline": step_headline(comparison) or None,
        "step_doubts": [said for _, said in comparison.doubts_of_step],
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
        "whole": side.whole,
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
    """Compare many sides with the first: the time of each part on each side, its ratio to the first and its verdict.
    Those of the last side have no name of a side."""
    sides = [comparisons[0].a.name, *(one.b.name for one in comparisons)]
    names = [name if sides.count(name) == 1 else f"{name}#{number}" for number, name in enumerate(sides, 1)]
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for name, comparison in zip(names[1:], comparisons, strict=True):
        for one in (comparison.iteration, *comparison.steps, *comparison.rows, *comparison.ranks, *comparison.once):
            row = rows.setdefault((one.kind, one.name), {"part": one.kind, "name": one.name})
            row |= known({f"{names[0]}_ms": _ms_of(one.a_ns), f"{name}_ms": _ms_of(one.b_ns)})
            own = "" if comparison is comparisons[-1] else f"{name}_"
            row |= known({f"{own}verdict": one.word, f"{own}ratio": _rounded(one.ratio)})
            if not own and one.cause:
                row["cause"] = one.cause
    changed = {(row.kind, row.name) for comparison in comparisons for row in comparison.rows if has_changed(row)}
    shown = [row for key, row in rows.items() if everything or key in changed or key[0] not in KINDS]
    times, ratios = tuple(f"{name}_ms" for name in names), (*(f"{name}_ratio" for name in names[1:-1]), "ratio")
    verdicts = *(f"{name}_verdict" for name in names[1:-1]), "verdict"
    columns = ("part", "name", *times, *chain(*zip(ratios, verdicts, strict=True)), "cause")
    # On a narrow terminal the keys are left out last.
    keys = ("name", *times, *verdicts)
    return Table(columns=columns, rows=shown, decimals=dict.fromkeys((*times, *ratios), 3), keys=keys)


def _ms_of(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


ROOMS = (Room(50, 140), Room(30, 100), Room(15, 80), Room(6, 50), Room(3, 30))
"""Limits to try in turn until the page is small enough."""
_COLOURS = ("conv", "gemm", "bnorm", "pool", "activ", "rnn", "softmax", "tensor")
"""Colours, by rank, of parts without a known primitive."""
_CAUSE = 90
"""The characters of a cause that are shown before it is opened."""
_MARKS = {
    "slower": ("high", "search"), "maybe slower": ("medium", "bnorm"), "faster": ("low", "pool"),
    "maybe faster": ("low", "pool"), "only in A": ("info", "setup"), "only in B": ("info", "setup"),
    "other size": ("info", "setup"),
}  # fmt: skip
"""The class of the word and the colour of the bar for each verdict."""


class _Piece(NamedTuple):
    """Parts that share a piece of an iteration's bar."""

    name: str
    colour: str
    a_ns: float
    b_ns: float


def page(comparisons: Sequence[Comparison], generator: str) -> str:
    """Return the text of the file; all sides are compared with the same first one."""
    return fitted(
        {
            "title": _title(comparisons, room),
            "kicker": "mio2trace compare",
            "generator": generator,
            "sections": [_section(one, room) for one in comparisons[:shown]],
            "footer": _footer(comparisons, shown, generator),
        }
        for room, shown in attempts(ROOMS, len(comparisons))
    )


def _title(comparisons: Sequence[Comparison], room: Room) -> str:
    names = [comparisons[0].a.name, *(one.b.name for one in comparisons)]
    return shortened(" -> ".join(shortened(name, room.name) for name in names), 3 * room.name)


def _footer(comparisons: Sequence[Comparison], shown: int, generator: str) -> str:
    inputs = dict.fromkeys(
        f"{form} (sha256 {digest[:12]})"
        for side in (comparisons[0].a, *(one.b for one in comparisons))
        for run in side.runs
        for form, digest in run.facts.inputs
    )
    missing = len(comparisons) - shown
    more = f" {count(missing, 'side')} more, not shown." if missing else ""
    return f"Made by {generator} from {shortened('; '.join(inputs) or 'bases', 1000)}.{more}"


def _section(comparison: Comparison, room: Room) -> dict[str, Any]:
    names = shortened(comparison.a.name, room.name), shortened(comparison.b.name, room.name)
    parts = [row for row in comparison.rows if row.kind != "layer"]
    changed = groups(parts)
    same = [row for row in parts if not has_changed(row)]
    layers = [row for row in comparison.rows if row.kind == "layer"]
    noun = "Problem" if any(row.kind == "problem" for row in parts) else "Kernel"
    most = max((abs(row.more_ns) for row in comparison.rows), default=0.0)
    found = [
        _iteration(comparison, names, room),
        _table("Length of a step and its parts", comparison.steps, room, None, "Slowest device"),
        _table("What changed", changed, room, most, f"{noun}s, largest change of time first"),
        _table("Layers", layers, room, most, "Kernel time per iteration, by layer"),
        _table("Ranks", comparison.ranks, room, None, "Each rank; all other numbers are means over the ranks"),
        _table("Not in every iteration", comparison.once, room, None, "In the whole run"),
        _table("What did not change", same, room, most, f"{noun}s for which no change is shown"),
        html.part("How far to trust it", facts=_trust(comparison, names, room)),
    ]
    return {
        "name": f"{names[0]} -> {names[1]}",
        "machine": "",
        "verdict": headline(comparison),
        "evidence": shortened(". ".join((*comparison.differs, "; ".join(tally(comparison)))), 600),
        "tiles": _tiles(comparison, names),
        "parts": [part for part in found if part is not None],
    }


def _tiles(comparison: Comparison, names: tuple[str, str]) -> list[html.Tile]:
    whole = comparison.iteration
    tiles = [
        (f"{letter}: {shortened(name, 40)}", ms(ns or 0), seen(side))
        for letter, name, ns, side in (
            ("A", names[0], whole.a_ns, comparison.a),
            ("B", names[1], whole.b_ns, comparison.b),
        )
    ]
    if whole.ratio is not None:
        within = told_interval(whole) or "one iteration: no interval"
        tiles.append(("Change", change(whole.ratio), within))
    words = [row.word for row in comparison.rows if row.kind != "layer"]
    alone = sum(word.startswith("only in") for word in words)
    more = f"of {len(words) - alone} on both sides; {alone} on one only"
    tiles.append(("Parts slower, faster", f"{words.count('slower')}, {words.count('faster')}", more))
    return tiles


def _trust(comparison: Comparison, names: tuple[str, str], room: Room) -> list[tuple[str, str]]:
    fewest = min(len(comparison.a.runs), len(comparison.b.runs))
    rule = (
        f"all runs of one side are slower than all runs of the other, the interval does not contain 1, and the medians"
        f" differ by more than {percent(floor_of(fewest))}"
        if fewest >= FEWEST
        else f"each side has {FEWEST} runs (changes above {percent(FLOOR_OF_FEW)}) or {MANY} (above {percent(FLOOR)})"
    )
    kernels = comparison.a.runs[0].told_by == "kernels"
    facts = [
        ("A", f"{names[0]}: {seen(comparison.a)}"),
        ("B", f"{names[1]}: {seen(comparison.b)}"),
        ("Device", _both(comparison.a.facts.device, comparison.b.facts.device)),
        ("MIOpen", _both(comparison.a.facts.miopen, comparison.b.facts.miopen)),
        ("Times", "kernel time of a steady iteration" if kernels else "layer times that the log prints"),
        ("A change is decided if", rule),
        (
            "The interval",
            f"of the ratio of medians, {'runs' if fewest >= FEWEST else 'iterations'} drawn at random; B / A",
        ),
    ]
    return [(label, shortened(value, 4 * room.name)) for label, value in facts if value]


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a or 'not stated'} -> {b or 'not stated'}"


def _iteration(comparison: Comparison, names: tuple[str, str], room: Room) -> dict[str, Any] | None:
    """Draw the parts of an iteration on each side, as two bars of one scale."""
    pieces_of = _pieces(comparison)
    longest = max(sum(one.a_ns for one in pieces_of), sum(one.b_ns for one in pieces_of), 0)
    if not longest:
        return None
    bars = []
    for letter, name in zip("AB", names, strict=True):
        side = f"{letter.lower()}_ns"
        pieces = [
            svg.Piece(one.colour, ns, False, f"{one.name}: {ms(ns)}")
            for one in pieces_of
            for ns in [getattr(one, side)]
        ]
        medians, whole = sum(piece.ns for piece in pieces), getattr(comparison.iteration, side) or 0
        said = ms(whole)
        # The sum of medians is the median of sums only if the order of the runs is the same in every part.
        if abs(medians - whole) > 0.01 * medians:
            said += f"; the medians of its parts add up to {ms(medians)}"
        bar = svg.stacked(pieces, longest, f"What an iteration of {letter} consists of", height=34, width=1000)
        bars.append(svg.Shown('<p class="faint">{}: {}, {}</p>{}').format(letter, visible(name), said, bar))
    legend = [
        html.key(one.colour, f"{shortened(one.name, room.name)} {ms(one.a_ns)} -> {ms(one.b_ns)}")
        for one in pieces_of
        if max(one.a_ns, one.b_ns) >= 0.005 * longest
    ]
    return html.part("Where an iteration goes", picture=Markup("").join(bars), legend=legend, id="where")


def _pieces(comparison: Comparison) -> list[_Piece]:
    """Return the pieces by primitive, where one is known; else the longest parts one by one and the others together."""
    rows = [row for row in comparison.rows if row.kind != "layer"] or list(comparison.rows)
    sums: dict[tuple[str, str], list[float]] = {}
    has_problems = any(row.kind == "problem" for row in rows)
    longest = sorted(rows, key=lambda row: -max(row.a_ns or 0, row.b_ns or 0))[: len(_COLOURS)]
    colours = {row.name: colour for row, colour in zip(longest, _COLOURS, strict=False)}
    for row in rows:
        if has_problems:
            primitive = row.pair.first.part.primitive if row.pair is not None else ""
            key = part_name(primitive), html.colour(primitive)
        else:
            key = (row.name, colours[row.name]) if row.name in colours else ("all others", "other")
        of_group = sums.setdefault(key, [0.0, 0.0])
        of_group[0] += row.a_ns or 0
        of_group[1] += row.b_ns or 0
    pieces = [_Piece(name, colour, *both) for (name, colour), both in sums.items()]
    return sorted(pieces, key=lambda one: (one.colour == "other", -max(one.a_ns, one.b_ns)))


def _table(
    head: str, parts: Sequence[Compared | Group], room: Room, most: float | None, caption: str
) -> dict[str, Any] | None:
    """``most``: the change whose bar reaches the edge; None: the largest change of these rows."""
    made = [part if isinstance(part, Group) else Group(part, (part,)) for part in parts]
    rows = [group.row for group in made]
    if most is None:
        most = max((abs(row.more_ns) for row in rows), default=0.0)
    lines = [{"cells": _cells(group.row, most, room), **_details(group, room)} for group in made[: room.rows]]
    left = rows[room.rows :]
    a_ns, b_ns = sum(row.a_ns or 0 for row in left), sum(row.b_ns or 0 for row in left)
    rest = f"{len(left)} more: {ms(a_ns)} -> {ms(b_ns)}." if left else ""
    return html.listing(
        head, ("part", "A ms", "B ms", "change", "interval", "verdict", "B - A"), lines, rest, caption=caption
    )


def _cells(row: Compared, most: float, room: Room) -> tuple[Any, ...]:
    kind, colour = _MARKS.get(row.word, ("", "other"))
    said = row.word if row.ratio is None else label(row).lower()
    word: Any = said if not kind else Markup('<span class="{}"><b class="severity">{}</b></span>').format(kind, said)
    name = visible(shortened(row.name, room.name))
    sign = "+" if row.more_ns >= 0 else "-"
    bar = svg.change(colour, row.more_ns, most, f"{name}: {sign}{ms(abs(row.more_ns))}")
    times = ms_cell(row.a_ns), ms_cell(row.b_ns)
    return name, *times, "" if row.ratio is None else change(row.ratio), interval(row), word, bar


def _details(group: Group, room: Room) -> dict[str, Any]:
    """Return the cause and its evidence: solvers and kernels of both sides, and the line that runs the problem again.
    For a group also its members."""
    row = group.row
    if len(group.members) > 1:
        said = [f"{one.name}: {ms_cell(one.a_ns)} -> {ms_cell(one.b_ns)} ms" for one in group.members[: room.rows]]
        return {"details": [shortened(line, 4 * room.name) for line in said], "detail_head": "which"}
    lines = row.cause.split("; ") if len(row.cause) > _CAUSE else []
    if row.pair is not None and (row.cause or row.word != "~"):
        for letter, side in (("A", row.pair.a), ("B", row.pair.b)):
            if side is not None:
                lines += [f"{letter}: {line}" for line in _inside(side.part)]
    if row.command:
        lines.append(row.command)
    head = shortened(row.cause, _CAUSE) or ("driver line" if row.word == "~" else "inside")
    if row.cause and not lines:
        lines.append(row.cause)
    return {"details": [shortened(line, 4 * room.name) for line in lines], "detail_head": head}


def _inside(part: Part) -> Iterator[str]:
    """Return solvers and kernels of a part, if they are more specific than its name."""
    if part.solvers:
        yield f"solver {', '.join(part.solvers)}"
    if part.kind == "problem":
        yield from (_kernel(one) for one in part.kernels)


def _kernel(one: Inside) -> str:
    words = "naive" if one.naive else "", "" if one.role == "main" else one.role
    time = f", {ms(one.ns)}" if one.ns else ""
    return f"{one.count:g} x {one.name}{time}" + "".join(f" ({word})" for word in words if word)
