"""The answer block: how the time of a run was spent, in at most `MOST_LINES` lines of `WIDTH` columns.

Lines are plain text; the command line colours those that begin with a severity.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice

from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, ProblemRow, Report, Rest, Section
from mio2trace.answer.names import shown_names
from mio2trace.findings import Finding
from mio2trace.findings.rule import ms, percent
from mio2trace.measures.statistics import fixed
from mio2trace.measures.step_time import StepKind
from mio2trace.outgoing import count, shortened, visible, without_middle

WIDTH = 78
MOST_LINES = 20
FULL = 1
"""The number of sections (processes, runs) that are shown in full; of each other section only the first line is shown.
"""
SHOWN = 3
LEAST_FOR_FINDING = 4
"""Lines reserved for the worst finding and its advice; lists become shorter to make room."""
SENTENCE, LONGEST_SENTENCE = 2, 3
"""The least and the most lines of a finding's number and of its advice."""
LEAST_NAME = 16
"""The characters that stay of a long name in a sentence."""
_CLAUSE = re.compile(r"(?<=[.;]) (?=[\w`(])")
"""The end of a sentence, or of a part of one."""
LABEL = 12
TIME, SHARE = 11, 9
NAME = WIDTH - LABEL - TIME - SHARE
BAR = 16
TOGETHER = 1.5
"""Problems are listed instead of operations in layers if the first problem takes this many times as long as the first
operation of a layer: its calls are then in many layers."""
LEAST_REST = 0.2
"""Time in no layer, or in no operation, replaces the third row if it has at least this share of the kernel time."""


def lines(report: Report) -> Iterator[str]:
    """Return the block of the first section and the first line of others."""
    for number, section in enumerate(report.sections):
        if number < FULL:
            yield from block(section, report.several)
        else:
            yield from _wrapped("", f"{section.name}: {section.verdict}")
    if report.left_out:
        yield f"and {report.left_out} more"


def block(section: Section, several: bool = False) -> list[str]:
    """The lines of one section."""
    found = [*_head(section, several), *_spent(section)]
    real = _real(section.findings)
    needs = (
        max(LEAST_FOR_FINDING, len(_lines_of(real[0], LONGEST_SENTENCE)) + (len(section.findings) > 1)) if real else 1
    )
    rows = SHOWN
    while rows > 1 and MOST_LINES - len(found) - len([*_lists(section, rows)]) < needs:
        rows -= 1
    found += _lists(section, rows)
    found += _beside(section, MOST_LINES - len(found) - needs)
    return found + _findings(section.findings, MOST_LINES - len(found))


# -- the heading


def _head(section: Section, several: bool) -> Iterator[str]:
    machine = visible(" · ".join(filter(None, (section.name if several else "", section.machine))))
    if section.completeness is None:
        if machine:
            yield machine[:WIDTH]
    elif section.completeness.complete or len(machine) + len(section.complete) + 2 <= WIDTH:
        yield _ends(machine, section.complete)
    else:
        if machine:
            yield machine[:WIDTH]
        yield from _wrapped("", section.complete, most=2)
    yield from _wrapped("", section.verdict, most=3)


def _ends(left: str, right: str) -> str:
    """Put two texts at the two ends of a line; the right one is never cut, and begins the line if it is alone."""
    if not left:
        return right
    room = WIDTH - len(right) - 2
    return f"{left if len(left) <= room else left[: room - 3] + '...':<{room}}  {right}"


def _wrapped(label: str, text: str, *, most: int = 2, at: int = LABEL) -> Iterator[str]:
    """Return a label and, in column ``at``, a text of at most ``most`` lines. Without a label the text begins the
    line."""
    indent = " " * (at if label else 2)
    first = f"{label:<{at}}" if label else ""
    yield from textwrap.wrap(
        visible(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )


# -- the step and its parts --------------------------------------------------------------------------------------------


def _spent(section: Section) -> Iterator[str]:
    """A line for each part of the step that is not 0, with a bar; their percentages add up to 100."""
    for one in section.spent:
        bar = "█" * round(BAR * one.share) or "▏"
        line = f"  {one.label:<{LABEL + 1}}{ms(one.ns):>{TIME}}{percent(one.share):>{SHARE + 3}}  {bar:<{BAR}}"
        room = WIDTH - len(line) - 2
        hint = one.hint if len(one.hint) <= room else one.hint.partition(" (")[0]
        yield f"{line}  {shortened(hint, room)}".rstrip()


# -- layers, operations, kernels ---------------------------------------------------------------------------------------


def _lists(section: Section, most: int) -> Iterator[str]:
    operations: tuple[str, Sequence[OperationRow | ProblemRow]] = "operations", section.operations or section.problems
    if section.operations and section.problems:
        alone, together = section.operations[0].ns, section.problems[0].ns or 0
        if together >= TOGETHER * alone:
            operations = "problems", section.problems
    listed: list[tuple[str, Sequence[LayerRow | OperationRow | ProblemRow | KernelRow], Rest | None]] = [
        ("layers", section.layers, section.no_layer),
        (*operations, section.no_operation),
        ("kernels", section.kernels, None),
    ]
    if not any(rows for _, rows, _ in listed):
        return
    if section.steps_ns or (section.step is None and section.kernel_ns):
        yield f"{'% ' + section.of_whole:>{WIDTH}}"
    for label, rows, rest in listed:
        timed = [*islice((row for row in rows if row.ns != 0), most)]  # an op that only copies runs no kernel
        yield from _rows(section, label, timed, rest, most)


def _rows(
    section: Section,
    label: str,
    rows: Sequence[LayerRow | OperationRow | ProblemRow | KernelRow],
    rest: Rest | None,
    most: int,
) -> Iterator[str]:
    """The first rows of a list; the rest that is in none of them takes the last place if it is large."""
    with_rest = rest is not None and rest.share >= LEAST_REST and bool(rows) and most > 1
    shown = rows[: most - with_rest]
    texts = shown_names(shown, NAME - 1, count_calls=True)
    entries: list[tuple[str, int | None]] = [(text, row.ns) for text, row in zip(texts, shown, strict=True)]
    if rest is not None and with_rest:
        entries.append((f"({rest.name})", rest.ns))
    for at, (text, ns) in enumerate(entries):
        head = f"{label if not at else '':<{LABEL}}{visible(text):<{NAME}}"
        yield (head if ns is None else f"{head}{_ms(ns):>{TIME}}{_share(section, ns):>{SHARE}}").rstrip()


def _ms(ns: int) -> str:
    """Format a time in ms, the unit of all rows."""
    return f"{fixed(ns / 1e6, 3 if ns < 100_000_000 else 1)} ms"


def _share(section: Section, ns: int) -> str:
    share = section.share(ns)
    return "" if share is None else f"{fixed(100 * share, 1)} %"


# -- further lines


def _beside(section: Section, room: int) -> list[str]:
    """Return the lines that fit: devices, kinds of steps, the first iteration, searches, ranks, errors of the log."""
    said = []
    if section.device:
        said.append(("device", section.device.removeprefix("device ")))
    if section.steps:
        said.append(("steps", _steps(section.steps)))
    if section.waiting:
        said.append(("ranks", section.waiting.removeprefix("ranks ")))
    if section.reference:
        said.append(("reference", f"without MIOpen's log {section.reference}"))
    if section.first:
        said.append(("first", section.first.removeprefix("first ")))
    if section.searches:
        said.append(("MIOpen Find", section.searches))
    if section.log:
        said.append(("log", _complaints(section.log)))
    longer = ("steps", "ranks", "reference")
    lines = [line for label, text in said for line in _wrapped(label, text, most=1 + (label in longer))]
    return lines[: max(2 * bool(section.reference), room)]


def _real(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.severity != "info"]


def _findings(findings: Sequence[Finding], room: int) -> list[str]:
    """Return the findings that fit, worst first, each with its number and its advice."""
    found: list[str] = []
    shown = 0
    for one in findings:
        left = len(findings) - shown - 1
        own = _lines_of(one, LONGEST_SENTENCE)
        if len(found) + len(own) + bool(left) > room:
            own = _lines_of(one, SENTENCE)
        if len(found) + len(own) + bool(left) > room and found:
            break
        found += own
        shown += 1
    rest = list(dict.fromkeys(one.rule.id for one in findings[shown:]))
    if rest:
        found += list(_wrapped("also", ", ".join(rest), most=1, at=8))
    return found[: max(room, 0)]


def _lines_of(one: Finding, most: int) -> list[str]:
    """Return a finding: its number and its advice, each in at most ``most`` lines."""
    label = one.severity.upper() if one.severity != "info" else "info"
    found = _sentence(label, f"{one.rule.title.rstrip('.')}: {one.found.number}", one.found.names, most)
    if one.severity != "info" and one.advice:
        found += _sentence("     ->", one.advice, one.found.names, most)
    return found


def _sentence(label: str, text: str, names: Sequence[str], most: int) -> list[str]:
    """Shorten names as far as necessary if the text is longer than ``most`` lines. Then leave out its last sentences or
    clauses, if these take a line; else cut its end."""
    longest = max((len(name) for name in names if name in text), default=LEAST_NAME)
    for room in range(max(longest, LEAST_NAME), LEAST_NAME - 1, -1):
        shorter = text
        for name in names:
            shorter = shorter.replace(name, without_middle(name, room))
        whole = [*_wrapped(label, shorter, most=most + 1, at=8)]
        if len(whole) <= most:
            return whole
    clauses = _CLAUSE.split(shorter)
    while len(clauses) > 1:
        clauses.pop()
        whole = [*_wrapped(label, f"{' '.join(clauses).rstrip('.;')}.", most=most + 1, at=8)]
        if len(whole) <= most:
            return whole if len(whole) >= most - 1 else [*_wrapped(label, shorter, most=most, at=8)]
    return [*_wrapped(label, shorter, most=most, at=8)]


def _steps(steps: Sequence[StepKind]) -> str:
    """``decode, batch 32: 5.7 ms per step, 20 steps; prefill, batch 4: ...``"""
    said = []
    for kind in steps[:SHOWN]:
        length = ms(kind.step_ns if kind.step_ns is not None else kind.kernel_ns)
        said.append(f"{kind.name}: {length} per step, {count(kind.steps, 'step')}")
    if len(steps) > SHOWN:
        said.append(count(len(steps) - SHOWN, "more kind"))
    return "; ".join(said)


def _complaints(log: Sequence[tuple[str, int, str]]) -> str:
    parts = []
    for level in ("error", "warning"):
        of = [(number, text) for word, number, text in log if word == level]
        if of:
            parts.append(f"{count(sum(number for number, _ in of), level)}: {of[0][1][:100]}")
    return "; ".join(parts)
