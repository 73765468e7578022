"""The report as Markdown for a comment in an issue: at most `LIMIT` characters; it states what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from mio2trace.answer.content import (
    ListRow,
    Report,
    Rest,
    Room,
    Section,
    ms_cell,
    rank_cells,
    shown_names,
    spent_cells,
    step_cells,
)
from mio2trace.findings import Finding
from mio2trace.findings.rule import ms, percent
from mio2trace.measures.statistics import fixed
from mio2trace.outgoing import count, shortened, visible
from mio2trace.outgoing import markdown_text as _cell

LIMIT = 60_000
"""GitHub accepts 65,536 characters in a comment."""


ROOMS = (Room(10, 100, 20), Room(8, 60, 10), Room(5, 40, 6), Room(3, 20, 3))
"""Limits to try in turn until the first sections are small enough. If none fits, sections are left out."""


def comment(report: Report) -> str:
    """Write all sections, or as many of the first ones as fit; the first one is always written."""
    footer = f"\n<sub>{_cell(shortened(f'{report.generator}: ' + '; '.join(report.inputs), 800))}</sub>\n"
    for room in ROOMS:
        head = f"## {_cell(shortened(report.title, room.name))}\n"
        sections = ["".join(f"{line}\n" for line in _section(one, report.several, room)) for one in report.sections]
        left = LIMIT - 100 - len(head) - len(footer)
        if sum(map(len, sections)) <= left or room is ROOMS[-1]:
            break
    shown = [
        text for number, text in enumerate(sections) if not number or sum(map(len, sections[: number + 1])) <= left
    ]
    missing = len(report.sections) - len(shown) + report.left_out
    more = f"\n{count(missing, 'run')} more.\n" if missing else ""
    return f"{head}{''.join(shown)}{more}{footer}"


def _section(section: Section, several: bool, room: Room) -> Iterator[str]:
    if several:
        yield f"\n### {_cell(shortened(section.name, room.name))}"
    machine = " · ".join(filter(None, (section.machine, section.complete)))
    if machine:
        yield f"\n{_cell(shortened(machine, 200))}"
    yield f"\n**{_cell(shortened(section.verdict, 400))}**"
    yield ""
    reference = section.reference and f"without MIOpen's log {section.reference}"
    also = (section.first, reference, section.searches)
    yield _cell(shortened(" ".join(filter(None, (section.evidence, *map(_sentence, also)))), 600))
    what = "the step" if section.step is not None else "the recording"
    of = f": {section.device}" if section.device else ""
    yield from _table(f"Where {what} goes{of}", ("part", "ms", f"% of {what}", "cause"), spent_cells(section))
    if section.parts:
        beyond = f" {_sentence(section.beyond())}".rstrip()
        yield f"\nWhat the kernels compute, {section.of_whole}: {_cell(section.makeup())}.{beyond}"
    yield from _findings(section.findings, room)
    steps = [step_cells(kind) for kind in section.steps[: room.rows]]
    of_steps = ("phase", "batch", "tokens", "steps", "ms per step", "ms of kernels", "kernels")
    said = ", ".join(filter(None, ("Steps, by kind", section.between)))
    yield from _table(_of(said, section.steps, room), of_steps, steps)
    ranks = [rank_cells(*row, room.name) for row in section.ranks[: room.rows]]
    of_ranks = ("rank", "transfer, ms", "wait, ms", "times last", "late, ms", "made late by")
    yield from _table(_of("Ranks at the collectives", section.ranks, room), of_ranks, ranks)
    if ranks:
        yield f"\n{_cell(_sentence(shortened(section.waiting, 400)))}"
    log = [(level, f"{number:,}", shortened(text, 2 * room.name)) for level, number, text in section.log]
    yield from _table("Errors and warnings of the log", ("level", "times", "text"), log[: room.rows])
    yield from _listed(section, "layer class", section.classes, section.of_layers, room)
    yield from _listed(section, "layer", section.layers, section.of_layers, room)
    yield from _rest(section, section.no_layer, section.layers)
    yield from _listed(section, "operation", section.operations, f"in their layers, {section.each}", room)
    yield from _problems(section, room)
    yield from _rest(section, section.no_operation, section.problems)
    yield from _listed(section, "kernel", section.kernels, section.each, room)
    drivers = [shortened(visible(row.driver), 5 * room.name) for row in section.problems[: room.findings] if row.driver]
    if drivers:
        yield from _details("Driver lines", ["```sh", *(driver.replace("```", "") for driver in drivers), "```"])
    if section.trust:
        trust = [f"* {_cell(label)}: {_cell(shortened(value, 3 * room.name))}" for label, value in section.trust]
        yield from _details("How far to trust it", trust)


def _findings(findings: Sequence[Finding], room: Room) -> Iterator[str]:
    if findings:
        yield "\n#### Findings\n"
    for finding in findings[: room.findings]:
        rule = finding.rule
        yield (
            f"* **{finding.severity}: {_cell(rule.title)}** {_cell(shortened(finding.found.number, 5 * room.name))}"
            f" *Try:* {_cell(finding.advice)} (`{rule.id}`)"
        )
    if len(findings) > room.findings:
        yield f"* {len(findings) - room.findings} more"


def _listed(section: Section, noun: str, rows: Sequence[ListRow], of: str, room: Room) -> Iterator[str]:
    """Write a list of the answer block, with the same names and the same denominator. ``of``: what its times are."""
    shown = rows[: room.rows]
    cells = [
        (name, ms_cell(row.ns), _share(section, row.ns))
        for name, row in zip(shown_names(shown, room.name), shown, strict=True)
    ]
    head = f"{noun.capitalize()}{'es' if noun.endswith('s') else 's'} ({of})"
    yield from _table(_of(head, rows, room), (noun, "ms", f"% {section.of_whole}"), cells)


def _problems(section: Section, room: Room) -> Iterator[str]:
    shown = section.problems[: room.rows]
    cells = [
        (
            shortened(row.name, room.name),
            f"{row.calls:,.4g}",
            ms_cell(row.ns),
            _share(section, row.ns),
            "" if row.gflops is None else fixed(row.gflops, 2),
            shortened(row.solver, 60),
        )
        for row in shown
    ]
    heads = ("problem", "calls", "ms", f"% {section.of_whole}", "GFLOP/s", "solver")
    yield from _table(_of(f"Problems ({section.each})", section.problems, room), heads, cells)


def _rest(section: Section, rest: Rest | None, rows: Sequence[object]) -> Iterator[str]:
    if rest is not None and rows:
        share = percent(section.share(rest.ns) or 0)
        yield f"\n{rest.name[0].upper()}{rest.name[1:]}: {ms(rest.ns)}, {share} {section.of_whole}."


def _of(head: str, rows: Sequence[object], room: Room) -> str:
    return f"{head}, {room.rows} of {len(rows):,}" if len(rows) > room.rows else head


def _share(section: Section, ns: int | None) -> str:
    share = section.share(ns)
    return "" if share is None else fixed(100 * share, 1)


_TEXT = frozenset((
    "part", "cause", "layer class", "layer", "operation", "problem", "solver", "kernel", "level", "text", "rank",
    "made late by",
))  # fmt: skip
"""Columns with words; all others have numbers."""


def _table(head: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align words to the left and numbers to the right; leave out columns that are empty in each row. Empty if there
    are no rows."""
    if not rows:
        return
    filled = [any(row[at] for row in rows) for at in range(len(heads))]
    heads = [*compress(heads, filled)]
    yield f"\n#### {_cell(head)}\n"
    yield f"| {' | '.join(map(_cell, heads))} |"
    yield f"| {' | '.join('---' if name in _TEXT else '--:' for name in heads)} |"
    for row in rows:
        yield f"| {' | '.join(map(_cell, compress(row, filled)))} |"


def _details(head: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"\n<details><summary>{head}</summary>\n"
    yield from lines
    yield "\n</details>"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
