"""The frame of every page (one HTML file without script that loads nothing), and its tables. Jinja2 fills the frame and
escapes the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from mio2trace.answer import svg
from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, Part, ProblemRow, Rest, Section, cumulative
from mio2trace.answer.names import ms_cell, rank_cells, shown_names, step_cells
from mio2trace.findings.rule import ms, percent
from mio2trace.measures.statistics import fixed
from mio2trace.ops.naming import primitive_name
from mio2trace.outgoing import count, shortened, visible

KERNEL = 200
"""The most characters of a kernel's full name."""
OPERATIONS = 25
"""The most rows of the table of operations; the tables of problems and the tree show more."""
OPEN = 15
"""The number of rows of a table that are not folded away."""
COLOURS = {
    "conv": "conv", "fusion": "fusion", "gemm": "gemm", "mha": "mha", "bnorm": "bnorm", "layernorm": "layernorm",
    "groupnorm": "groupnorm", "pool": "pool", "activ": "activ", "rnn": "rnn", "softmax": "softmax", "lrn": "lrn",
    **dict.fromkeys(("allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast"), "collective"),
    "collective": "collective", "optensor": "tensor", "bias": "bias", "reduce": "reduce",
}  # fmt: skip
"""The colour class of each primitive; ``other`` for all the rest."""


class Room(NamedTuple):
    """Limits of a section: rows of a table, characters of a name, findings, bins of the picture of the run."""

    rows: int
    name: int
    findings: int
    bins: int


def part(head: str, **more: Any) -> dict[str, Any]:
    """Return a part of the page with every field that the template may use."""
    empty = {"note": "", "caption": "", "picture": None, "table": None}
    lists = dict.fromkeys(("legend", "findings", "texts", "facts", "tree"), ())
    return {"id": head.lower().replace(" ", "-"), "head": head, **empty, **lists, **more}


def part_name(part: Part) -> str:
    return primitive_name(part.primitive) if part.primitive else "other kernels"


def colour(primitive: str) -> str:
    return COLOURS.get(primitive, "other")


_KINDS = {"cumul. %": "number wide", "host ms": "number wide", "95 %": "number wide", "B - A": "bars wide"}
"""Columns that a narrow page leaves out."""


def grid(columns: Sequence[tuple[str, str]], rows: Sequence[dict[str, Any] | tuple[Any, ...]], rest: str) -> Any:
    """Return a table. ``columns``: heading and kind (``text``, ``number``, ``bar``; a narrow page leaves out ``wide
    ...``).

    A row is a list of cells, or has ``cells`` and ``details``; the details are folded below the first cell under
    ``detail_head``.
    """
    return {
        "columns": [
            {"head": head, "kind": _KINDS.get(head, kind.replace("text", "").replace("bar", "bars").strip())}
            for head, kind in columns
        ],
        "rows": [{"cells": row, "details": ()} if isinstance(row, tuple) else row for row in rows],
        "open": OPEN if len(rows) > OPEN + 3 else len(rows),
        "rest": rest,
    }


def _rest(
    section: Section,
    rows: Sequence[LayerRow | OperationRow | ProblemRow | KernelRow],
    shown: int,
    noun: str,
    none: Rest | None = None,
) -> str:
    """Return the sum of the rows that are left out, and the time that is in no row."""
    left = rows[shown:]
    said = []
    if left:
        ns = sum(row.ns or 0 for row in left)
        said.append(f"{count(len(left), noun)} more: {ms(ns)}, {percent(section.share(ns) or 0)}.")
    if none is not None:
        said.append(f"{none.name[0].upper()}{none.name[1:]}: {ms(none.ns)}, {percent(section.share(none.ns) or 0)}.")
    return " ".join(said)


def _times(section: Section, rows: Sequence[LayerRow | OperationRow | ProblemRow | KernelRow]) -> list[tuple[str, ...]]:
    """Return ms, percent of the page's denominator, and cumulative percent of each row."""
    shares = [section.share(row.ns) for row in rows]
    return [
        ("", "", "")
        if row.ns is None or share is None
        else (ms_cell(row.ns), fixed(100 * share, 1), fixed(100 * so_far, 1))
        for row, share, so_far in zip(rows, shares, cumulative([share or 0 for share in shares]), strict=True)
    ]


def idle(section: Section, room: Room) -> dict[str, Any] | None:
    """The causes of idle time in a step or in the recording, and the host's calls meanwhile."""
    step, recording = section.step, section.recording
    if not section.causes or (step is None and recording is None):
        return None
    count_of, rows = 1 if step is None else len(step.steps_ns), []
    whole = step.step_ns if step is not None else recording.length_ns if recording is not None else 0
    for cause in section.causes[: room.rows]:
        each = cause.ns / count_of
        during = [f"{name}: {ms(ns / count_of)}" for name, ns in cause.during]
        during += [f"ended by launches from {cause.line}"] if cause.line else []
        longest = ms(cause.longest_ns) + (f" in {cause.longest_during}" if cause.longest_during else "")
        cells = (
            IDLE[cause.why], calls(cause.count / count_of), ms_cell(each),
            fixed(100 * each / whole, 1), shortened(longest, room.name),
        )  # fmt: skip
        rows.append({"cells": cells, "details": during, "detail_head": "host calls during these gaps"})
    heads = [("cause", "text"), ("gaps", "number"), ("ms", "number"), ("%", "number"), ("longest gap", "text")]
    table = grid(heads, rows, "")
    return part(
        "Idle time",
        note="per step; % of the step" if step is not None else "% of the recording",
        table=table,
        caption="Gaps by cause, most time first",
        id="idle",
    )


IDLE = {
    "host": "host-bound: nothing was queued", "builds": "the host builds or loads programs",
    "queued": "queued: waits for other work", "unknown": "cause not recorded", "short": "gaps up to 1 us",
}  # fmt: skip


def ranks(section: Section, room: Room) -> dict[str, Any] | None:
    """The ranks of a job: which of them wait at the collectives, and which come last."""
    shown = section.ranks[: room.rows]
    if not shown:
        return None
    rows = [(*rank_cells(row, room.name), ms_cell(row.made_late_ns if row.made_late_by else None)) for row in shown]
    heads = [
        ("rank", "text"), ("transfer ms", "number"), ("wait ms", "number"), ("times last", "number"),
        ("late ms", "number"), ("made late by", "text"), ("by ms", "number"),
    ]  # fmt: skip
    left = len(section.ranks) - len(shown)
    table = grid(heads, rows, f"{count(left, 'rank')} more: mio2trace ranks lists all." if left else "")
    said = visible(shortened(section.waiting, 400))
    return part("Ranks at the collectives", texts=[f"{said}."], table=table, caption="Ranks, in order", id="ranks")


def steps(section: Section, room: Room) -> dict[str, Any] | None:
    """The steps of a serving engine: phase, batch, tokens, and the mean of each kind."""
    shown = section.steps[: room.rows]
    if not shown:
        return None
    heads = [
        ("phase", "text"), ("batch", "number"), ("tokens", "number"), ("steps", "number"), ("ms per step", "number"),
        ("ms of kernels", "number"), ("kernels", "number"),
    ]  # fmt: skip
    left = len(section.steps) - len(shown)
    table = grid(heads, [step_cells(kind) for kind in shown], f"{count(left, 'kind')} more." if left else "")
    return part("Steps", note="means per step", table=table, caption="Steps by kind, most time first", id="steps")


def layers(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.layers[: room.rows]
    if not shown:
        return None
    longest = max(layer.ns for layer in shown)
    host = any(layer.host_ns is not None for layer in shown)
    rows = []
    for layer, name, times in zip(shown, shown_names(shown, room.name), _times(section, shown), strict=True):
        pieces = [
            svg.Piece(
                colour(own.primitive), own.ns, own.helps, f"{part_name(own)}{', helpers' * own.helps}: {ms(own.ns)}"
            )
            for own in layer.parts
        ] or [svg.Piece("other", layer.ns, False, ms(layer.ns))]
        cells: tuple[Any, ...] = (visible(name), *times)
        cells += (ms_cell(layer.host_ns),) if host else ()
        bar = svg.stacked(pieces, longest, f"{visible(name)}: {ms(layer.ns)}")
        rows.append((*cells, bar))
    heads = [("layer", "text"), *_HEADS, *([("host ms", "number")] if host else []), ("of the slowest", "bar")]
    rest = _rest(section, section.layers, room.rows, "layer", section.no_layer)
    note = f"{section.layers_by}, {section.each}; % {section.of_whole}"
    return part("Layers", note=note, table=grid(heads, rows, rest), caption="Layers, most time first")


_HEADS = (("ms", "number"), ("%", "number"), ("cumul. %", "number"))


def operations(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.operations[: min(room.rows, OPERATIONS)]
    if not shown:
        return None
    rows = [
        (visible(name), calls(row.calls), *times)
        for row, name, times in zip(shown, shown_names(shown, room.name), _times(section, shown), strict=True)
    ]
    table = grid(
        [("operation", "text"), ("calls", "number"), *_HEADS],
        rows,
        _rest(section, section.operations, len(shown), "operation", section.no_operation),
    )
    note = f"in their layers, {section.each}; % {section.of_whole}"
    return part("Operations", note=note, table=table, caption="Operations, most time first")


def problems(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.problems[: room.rows]
    if not shown:
        return None
    roof = any(problem.of_peak is not None for problem in shown)
    solvers = any(problem.solver for problem in shown)
    rows = []
    for problem, times in zip(shown, _times(section, shown), strict=True):
        cells: tuple[str, ...] = (
            shortened(problem.name, room.name), calls(problem.calls), *times,
            "" if problem.gflops is None else fixed(problem.gflops, 2),
        )  # fmt: skip
        if roof:
            wrong = problem.of_peak is not None and problem.saved_ns is None
            cells += (
                "" if problem.of_peak is None else fixed(100 * problem.of_peak, 1) + (" (?)" if wrong else ""),
                problem.bound,
                ms_cell(problem.saved_ns),
            )
        cells += (shortened(problem.solver, 60),) if solvers else ()
        driver = (shortened(problem.driver, 4 * room.name),) if problem.driver else ()
        rows.append({"cells": cells, "details": driver, "detail_head": "driver line"})
    heads = [("problem", "text"), ("calls", "number"), *_HEADS, ("GFLOP/s", "number")]
    heads += [("% of peak", "number"), ("bound by", "text"), ("at most saved, ms", "number")] if roof else []
    heads += [("solver", "text")] if solvers else []
    table = grid(heads, rows, _rest(section, section.problems, room.rows, "problem", section.no_operation))
    note = f"operations of one shape together, {section.each}; % {section.of_whole}"
    return part("Problems", note=note, table=table, caption="Problems, most time first")


def calls(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else fixed(calls, 1)


def kernels(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.kernels[: min(room.rows, 25)]
    if not shown:
        return None
    rows = []
    names = shown_names(shown, min(80, room.name))
    for kernel, short, times in zip(shown, names, _times(section, shown), strict=True):
        details = (shortened(kernel.name, min(KERNEL, 2 * room.name)),) if kernel.name != short else ()
        cells = (visible(short), calls(kernel.calls), *times)
        rows.append({"cells": cells, "details": details, "detail_head": "full name"})
    heads = [("kernel", "text"), ("calls", "number"), *_HEADS]
    table = grid(heads, rows, _rest(section, section.kernels, len(shown), "kernel name"))
    note = f"{section.each}; % {section.of_whole}"
    return part("Kernels", note=note, table=table, caption="Kernel names, most time first")


# -- The frame ---------------------------------------------------------------------------------------------------------

LIMIT = 150_000
"""Bytes of a page."""


def fitted(attempts: Iterable[Mapping[str, Any]]) -> str:
    """Return the first page that is small enough, else the last one. Each attempt has the fields of ``page.html.j2``:
    ``title``, ``kicker``, ``generator``, ``footer`` and ``sections`` with their parts (`part`)."""
    template, style = _frame()
    text = ""
    for page in attempts:
        text = template.render(page=page, style=style)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            break
    return text


@cache
def _frame() -> tuple[Template, Markup]:
    """Return the compiled template with its style; kept because compiling takes longer than filling it."""
    here = files("mio2trace.answer")
    frame = Environment(autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True)
    style = Markup(here.joinpath("page.css").read_text("utf-8").strip())  # noqa: S704 - our own file
    return frame.from_string(here.joinpath("page.html.j2").read_text("utf-8")), style


def _visible(value: Any) -> Any:
    """Make text from input files visible and harmless; leave our own markup as it is."""
    return visible(value) if type(value) is str else value
