"""The report as Markdown that fits into a comment of an issue: `LIMIT` characters, the rest left out and said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mio2trace.answer.content import KernelRow, LayerRow, ProblemRow, Report, Rest, Section, cumulative
from mio2trace.findings import Finding
from mio2trace.findings.words import count, ms, percent
from mio2trace.kernels.names import normalise
from mio2trace.ops.naming import primitive_name
from mio2trace.outgoing import markdown_text, shortened, visible

LIMIT = 60_000
"""GitHub takes 65,536 characters in a comment."""


class Room(NamedTuple):
    """How much is shown: rows of a table, findings and driver lines, characters of a name."""

    rows: int
    findings: int
    name: int


ROOMS = (Room(10, 20, 100), Room(8, 10, 60), Room(5, 6, 40), Room(3, 3, 20))
"""Tried until the first sections are small enough; then sections are left out."""


def comment(report: Report) -> str:
    """All sections, or the first ones; the first is always there."""
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
    yield f"\n**{_cell(shortened(section.verdict, 400))}**"
    yield ""
    reference = section.reference and f"without MIOpen's log {section.reference}"
    also = (section.first, reference, section.searches)
    said = " ".join(filter(None, (section.evidence, *map(_sentence, also))))
    yield _cell(shortened(said, 600))
    if section.parts:
        whole = section.kernel_ns or 1
        parts = [
            f"{primitive_name(part.primitive) if part.primitive else 'other kernels'}{' (helpers)' * part.helps}"
            f" {percent(part.ns / whole)}"
            for part in section.parts
            if part.ns >= 0.005 * whole
        ]
        yield f"\nKernel time: {_cell(', '.join(parts))}."
    yield from _findings(section.findings, room)
    yield from _steps(section, room)
    yield from _ranks(section, room)
    if section.log:
        log = [(level, f"{number:,}", shortened(text, 2 * room.name)) for level, number, text in section.log]
        yield from _table("What the log complains of", ("level", "times", "text"), log[: room.rows])
    yield from _layers(section.layers, f"Layers ({section.layers_by}, {section.each})", room)
    yield from _rest(section.no_layer, section.layers)
    yield from _problems(section.problems, f"Problems ({section.each})", room)
    yield from _rest(section.no_operation, section.problems)
    yield from _kernels(section.kernels, f"Kernels ({section.each})", room)
    drivers = [shortened(visible(row.driver), 5 * room.name) for row in section.problems[: room.findings] if row.driver]
    if drivers:
        yield from _details("MIOpenDriver lines", ["```sh", *(driver.replace("```", "") for driver in drivers), "```"])
    if section.trust:
        trust = [f"* {_cell(label)}: {_cell(shortened(value, 3 * room.name))}" for label, value in section.trust]
        yield from _details("How far to trust it", trust)


def _findings(findings: Sequence[Finding], room: Room) -> Iterator[str]:
    if findings:
        yield "\n#### What is odd, what to try\n"
    for finding in findings[: room.findings]:
        rule = finding.rule
        yield (
            f"* **{finding.severity}: {_cell(rule.title)}** {_cell(shortened(finding.found.number, 5 * room.name))}"
            f" *Try:* {_cell(finding.advice)} (`{rule.id}`)"
        )
    if len(findings) > room.findings:
        yield f"* {len(findings) - room.findings} more"


def _steps(section: Section, room: Room) -> Iterator[str]:
    rows = [
        (
            kind.phase,
            "" if kind.batch is None else f"{kind.batch:,}",
            "" if kind.tokens is None else f"{kind.tokens / kind.steps:,.0f}",
            f"{kind.steps:,}",
            "" if kind.step_ns is None else f"{kind.step_ns / 1e6:,.3f}",
            f"{kind.kernel_ns / 1e6:,.3f}",
            f"{kind.kernels:,.0f}",
        )
        for kind in section.steps[: room.rows]
    ]
    heads = ("phase", "batch", "tokens", "steps", "ms per step", "ms of kernels", "kernels")
    yield from _table(_of("Steps, by kind", section.steps, room), heads, rows)


def _ranks(section: Section, room: Room) -> Iterator[str]:
    rows = [
        (
            shortened(row.name, room.name),
            f"{row.transfer_ns / 1e6:,.3f}",
            f"{row.wait_ns / 1e6:,.3f}",
            f"{row.times_arrived_last:,}",
            f"{row.late_ns / 1e6:,.3f}",
            shortened(row.made_late_by, room.name),
        )
        for row in section.ranks[: room.rows]
    ]
    heads = ("rank", "transfer, ms", "wait, ms", "times last", "late, ms", "made late by")
    yield from _table(_of("Ranks at the collectives", section.ranks, room), heads, rows)
    if rows:
        yield f"\n{_cell(_sentence(shortened(section.waiting, 400)))}"


def _layers(rows: Sequence[LayerRow], head: str, room: Room) -> Iterator[str]:
    shown = rows[: room.rows]
    so_far = cumulative([row.share for row in shown])
    cells = [
        (shortened(row.name, room.name), row.direction, f"{row.ns / 1e6:,.3f}", _share(row.share), _share(each))
        for row, each in zip(shown, so_far, strict=True)
    ]
    yield from _table(_of(head, rows, room), ("layer", "direction", "ms", "%", "cumulative %"), cells)


def _problems(rows: Sequence[ProblemRow], head: str, room: Room) -> Iterator[str]:
    shown = rows[: room.rows]
    so_far = cumulative([row.share or 0 for row in shown])
    cells = [
        (
            shortened(row.name, room.name),
            f"{row.calls:,.4g}",
            "" if row.ns is None else f"{row.ns / 1e6:,.3f}",
            "" if row.share is None else _share(row.share),
            "" if row.share is None else _share(each),
            "" if row.gflops is None else f"{row.gflops:,.2f}",
            shortened(row.solver, 60),
        )
        for row, each in zip(shown, so_far, strict=True)
    ]
    heads = ("problem", "calls", "ms", "%", "cumulative %", "GFLOP/s", "solver")
    yield from _table(_of(head, rows, room), heads, cells)


def _kernels(rows: Sequence[KernelRow], head: str, room: Room) -> Iterator[str]:
    cells = [
        (shortened(normalise(row.name), room.name), f"{row.calls:,.4g}", f"{row.ns / 1e6:,.3f}", _share(row.share))
        for row in rows[: room.rows]
    ]
    yield from _table(_of(head, rows, room), ("kernel", "calls", "ms", "%"), cells)


def _rest(rest: Rest | None, rows: Sequence[object]) -> Iterator[str]:
    if rest is not None and rows:
        yield f"\n{rest.name[0].upper()}{rest.name[1:]}: {ms(rest.ns)}, {percent(rest.share)}."


def _of(head: str, rows: Sequence[object], room: Room) -> str:
    return f"{head}, {room.rows} of {len(rows):,}" if len(rows) > room.rows else head


def _share(share: float) -> str:
    return f"{100 * share:.1f}"


def _table(head: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column and words are text, numbers stand right; nothing where there is no row."""
    if not rows:
        return
    text = {"layer", "direction", "problem", "solver", "kernel", "level", "text", "rank", "made late by"}
    yield f"\n#### {_cell(head)}\n"
    yield f"| {' | '.join(map(_cell, heads))} |"
    yield f"| {' | '.join('---' if name in text else '--:' for name in heads)} |"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _details(head: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"\n<details><summary>{head}</summary>\n"
    yield from lines
    yield "\n</details>"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _cell(text: str) -> str:
    return markdown_text(text)
