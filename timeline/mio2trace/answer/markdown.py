"""The report as Markdown that fits into a comment of an issue: `LIMIT` characters, the rest left out and said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mio2trace.answer.content import KernelRow, LayerRow, ProblemRow, Report, Section, cumulative
from mio2trace.findings import Finding
from mio2trace.findings.words import count, percent
from mio2trace.kernels.names import normalise
from mio2trace.ops.naming import primitive_name
from mio2trace.outgoing import markdown_text, shortened, visible

LIMIT = 60_000
"""GitHub takes 65,536 characters in a comment."""
ROWS, NAME, DRIVERS = 10, 100, 20


def comment(report: Report) -> str:
    """Sections until `LIMIT` is reached; the first is always there."""
    footer = f"\n<sub>{_cell(report.generator)}: {_cell('; '.join(report.inputs)[:2000])}</sub>\n"
    text = f"## {_cell(shortened(report.title, NAME))}\n"
    left = report.left_out
    for number, section in enumerate(report.sections):
        lines = "".join(f"{line}\n" for line in _section(section, report.several))
        if number and len(text) + len(lines) + len(footer) > LIMIT - 100:
            left += len(report.sections) - number
            break
        text += lines
    if left:
        text += f"\n{count(left, 'run')} more.\n"
    return text + footer


def _section(section: Section, several: bool) -> Iterator[str]:
    if several:
        yield f"\n### {_cell(shortened(section.name, NAME))}"
    yield f"\n**{_cell(section.verdict)}**"
    yield ""
    yield _cell(" ".join(filter(None, (section.evidence, _sentence(section.first), _sentence(section.searches)))))
    if section.parts:
        whole = section.kernel_ns or 1
        parts = [
            f"{primitive_name(part.primitive) if part.primitive else 'other kernels'}{' (helpers)' * part.helps}"
            f" {percent(part.ns / whole)}"
            for part in section.parts
            if part.ns >= 0.005 * whole
        ]
        yield f"\nKernel time: {_cell(', '.join(parts))}."
    yield from _findings(section.findings)
    if section.log:
        yield from _table(
            "What the log complains of",
            ("level", "times", "text"),
            [(level, f"{number:,}", shortened(text, 2 * NAME)) for level, number, text in section.log[:ROWS]],
        )
    each = "an iteration" if section.iterations else "in all"
    yield from _layers(section.layers, f"Layers ({section.layers_by}, {each})")
    yield from _problems(section.problems, f"Problems ({each})")
    yield from _kernels(section.kernels, f"Kernels ({each})")
    drivers = [visible(row.driver) for row in section.problems[:DRIVERS] if row.driver]
    if drivers:
        yield from _details("MIOpenDriver lines", ["```sh", *(driver.replace("```", "") for driver in drivers), "```"])
    if section.trust:
        yield from _details(
            "How far to trust it",
            [f"* {_cell(label)}: {_cell(shortened(value, 400))}" for label, value in section.trust],
        )


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield "\n#### What is odd, what to try\n"
    for finding in findings[:DRIVERS]:
        rule = finding.rule
        yield (
            f"* **{finding.severity}: {_cell(rule.title)}** {_cell(shortened(finding.found.number, 600))}"
            f" *Try:* {_cell(rule.advice)} (`{rule.id}`)"
        )
    if len(findings) > DRIVERS:
        yield f"* {len(findings) - DRIVERS} more"


def _layers(rows: Sequence[LayerRow], head: str) -> Iterator[str]:
    shown = rows[:ROWS]
    so_far = cumulative([row.share for row in shown])
    cells = [
        (shortened(row.name, NAME), row.direction, f"{row.ns / 1e6:,.3f}", _share(row.share), _share(each))
        for row, each in zip(shown, so_far, strict=True)
    ]
    yield from _table(_of(head, rows), ("layer", "direction", "ms", "%", "cumulative %"), cells)


def _problems(rows: Sequence[ProblemRow], head: str) -> Iterator[str]:
    shown = rows[:ROWS]
    so_far = cumulative([row.share or 0 for row in shown])
    cells = [
        (
            shortened(row.name, NAME),
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
    yield from _table(_of(head, rows), heads, cells)


def _kernels(rows: Sequence[KernelRow], head: str) -> Iterator[str]:
    cells = [
        (shortened(normalise(row.name), NAME), f"{row.calls:,.4g}", f"{row.ns / 1e6:,.3f}", _share(row.share))
        for row in rows[:ROWS]
    ]
    yield from _table(_of(head, rows), ("kernel", "calls", "ms", "%"), cells)


def _of(head: str, rows: Sequence[object]) -> str:
    return f"{head}, {ROWS} of {len(rows):,}" if len(rows) > ROWS else head


def _share(share: float) -> str:
    return f"{100 * share:.1f}"


def _table(head: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column and words are text, numbers stand right; nothing where there is no row."""
    if not rows:
        return
    text = {"layer", "direction", "problem", "solver", "kernel", "level", "text"}
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
