"""The report in ten lines, for a terminal and the end of each conversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, ProblemRow, Report, Section
from mio2trace.findings.words import count, ms, percent
from mio2trace.kernels.names import normalise
from mio2trace.measures.step_kinds import StepKind
from mio2trace.outgoing import visible

FULL = 2
"""Sections that have all their lines; of others there is the first."""
SHOWN = 3
NAME = 44
"""Characters of a name: three stand in a line."""
LABEL = 11
LEAST = 0.01
"""Share of the kernel time in no layer, or no operation, that is worth a word."""


def lines(report: Report) -> Iterator[str]:
    """About ten for a section."""
    for number, section in enumerate(report.sections):
        if number < FULL:
            yield from _section(section, report.several)
        else:
            yield visible(f"{section.name}: {section.verdict}")
    if report.left_out:
        yield f"and {report.left_out} more"


def _section(section: Section, several: bool) -> Iterator[str]:
    yield visible(f"{section.name}: {section.verdict}" if several else section.verdict)
    if section.step is not None or section.recording is not None:
        yield _line("device", spent(section))
    if not section.completeness.complete:
        yield _line("incomplete", section.completeness.said)
    if section.steps:
        yield _line("steps", _steps(section.steps))
    if section.first:
        yield _line("first", section.first.removeprefix("first "))
    if section.reference:
        yield _line("reference", f"without MIOpen's log {section.reference}")
    if section.searches:
        yield _line("searches", section.searches)
    if section.waiting:
        yield _line("ranks", section.waiting.removeprefix("ranks "))
    for label, rows, without in (
        ("layers", section.layers, section.no_layer),
        ("operations", section.operations or section.problems, section.no_operation),
        ("kernels", section.kernels, None),
    ):
        if rows:
            names = [row.name for row in rows[:SHOWN]]
            said = [", ".join(_row(row, names.count(row.name) > 1) for row in rows[:SHOWN])]
            said += [f"{len(rows) - SHOWN:,} more"] if len(rows) > SHOWN else []
            said += (
                [f"{percent(without.share)} {without.name}"] if without is not None and without.share > LEAST else []
            )
            yield _line(label, "; ".join(said))
    for finding in section.findings[:SHOWN]:
        yield _line(finding.severity, f"{finding.rule.title} {finding.found.number} [{finding.rule.id}]")
    if len(section.findings) > SHOWN:
        rest = dict.fromkeys(finding.rule.id for finding in section.findings[SHOWN:])
        yield _line("also", ", ".join(rest))
    if section.log:
        yield _line("log", _complaints(section.log))
    advice = next((finding.rule.advice for finding in section.findings if finding.severity != "info"), "")
    if advice:
        yield _line("try", advice)


def spent(section: Section) -> str:
    """``compute 92.1 %, exposed communication 5.1 %, exposed copies 0.4 %, idle 2.4 % of the iteration``."""
    of = section.step or section.recording
    length = section.step_ns or (section.recording.length_ns if section.recording is not None else 0)
    if of is None or not length:
        return ""
    parts = [
        ("compute", of.compute_ns, True),
        ("exposed communication", of.communication_ns, False),
        ("exposed copies", of.copy_ns, False),
        ("not recorded", of.unrecorded_ns, False),
        ("idle", of.idle_ns, True),
    ]
    said = ", ".join(f"{name} {percent(ns / length)}" for name, ns, always in parts if ns or always)
    what = "iteration" if section.step is not None else f"recording ({ms(length)})"
    return f"{said} of the {what}" + (f"; {section.device}" if section.device else "")


def _line(label: str, text: str) -> str:
    return visible(f"{label:<{LABEL}} {text}")


def _row(row: LayerRow | OperationRow | ProblemRow | KernelRow, is_one_of_several: bool) -> str:
    """``is_one_of_several``: others of this name stand beside it; operations are told apart by their layers."""
    name = row.name
    if isinstance(row, KernelRow):
        name = normalise(name)
    elif isinstance(row, LayerRow) and row.direction:
        name = f"{name} {row.direction}"
    cut = name if len(name) <= NAME else f"{name[: NAME - 3]}..."
    if row.ns is None or row.share is None:
        return f"{cut} x {row.calls:,.0f}" if not isinstance(row, LayerRow) else cut
    place = f" in {row.layer}" if is_one_of_several and isinstance(row, OperationRow) and row.layer else ""
    return f"{cut}{place} {percent(row.share)} ({ms(row.ns)})"


def _steps(steps: Sequence[StepKind]) -> str:
    """``decode, batch 32: 5.7 ms per step, 20 steps; prefill, batch 4: ...``"""
    said = []
    for kind in steps[:SHOWN]:
        length = f"{ms(kind.step_ns)}" if kind.step_ns is not None else f"{ms(kind.kernel_ns)} of kernels"
        said.append(f"{kind.name}: {length} per step, {count(kind.steps, 'step')}")
    if len(steps) > SHOWN:
        said.append(f"{count(len(steps) - SHOWN, 'kind')} more")
    return "; ".join(said)


def _complaints(log: Sequence[tuple[str, int, str]]) -> str:
    parts = []
    for level in ("error", "warning"):
        of = [(number, text) for word, number, text in log if word == level]
        if of:
            parts.append(f"{count(sum(number for number, _ in of), level)}: {of[0][1][:100]}")
    return "; ".join(parts)
