"""The report as one HTML file without script: it loads nothing, and its pictures are SVG. The frame and the tables are
those of every page of the program; Jinja2 fills the frame and escapes the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate, compress
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from mio2trace.answer import svg
from mio2trace.answer.content import (
    ROWS,
    ListRow,
    Report,
    Rest,
    Room,
    Section,
    Thumbnail,
    distinct,
    ms_cell,
    rank_cells,
    short_kernel,
    shown_names,
    spent_cells,
    step_cells,
)
from mio2trace.findings import Finding
from mio2trace.findings.rule import ms, percent, rate
from mio2trace.kernels.names import normalise
from mio2trace.measures.iterations import PARTS
from mio2trace.measures.statistics import fixed
from mio2trace.measures.steady import Node
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
    "MoE": "fusion", "norm": "layernorm", "activation": "activ", "rope": "tensor", "KV cache": "pool",
    "sampling": "softmax",
}  # fmt: skip
"""The colour class of each primitive, and of each purpose of kernels in no operation; ``other`` for all the rest."""


def part(head: str, **more: Any) -> dict[str, Any]:
    """Return a part of the page with every field that the template may use."""
    empty = {"note": "", "caption": "", "picture": None, "table": None}
    lists = dict.fromkeys(("legend", "findings", "texts", "facts", "tree"), ())
    return {"id": head.lower().replace(" ", "-"), "head": head, **empty, **lists, **more}


def key(colour: str, label: str, *, helps: bool = False) -> dict[str, Any]:
    """Return an entry of a legend."""
    return {"colour": colour, "helps": helps, "label": label}


Tile = tuple[str, str, str]
"""One of the few numbers at the top of a section: its label, its value, and more about it."""


def colour(primitive: str) -> str:
    return COLOURS.get(primitive, "other")


_WORDS = frozenset((
    "bound by", "cause", "class", "kernel", "layer", "level", "longest gap", "made late by", "operation", "part",
    "phase", "problem", "rank", "solver", "step", "text", "verdict",
))  # fmt: skip
"""Columns with words."""
_KINDS = dict.fromkeys(("cumul. %", "host ms", "interval"), "number wide") | {
    "B - A": "bars wide", "of the slowest": "bars", "parts": "bars",
}  # fmt: skip
"""The class of other columns that have no numbers, or that a narrow page leaves out (``wide``)."""


def grid(columns: Sequence[str | tuple[str, str]], rows: Sequence[dict[str, Any] | tuple[Any, ...]], rest: str) -> Any:
    """Return a table without columns that are empty in each row. ``columns``: headings; with their class if `_WORDS`
    and `_KINDS` do not have it.

    A row is a list of cells, or has ``cells`` and ``details``; the details are folded below the first cell under
    ``detail_head``.
    """
    classes = [
        one if isinstance(one, tuple) else (one, _KINDS.get(one, "" if one in _WORDS else "number")) for one in columns
    ]
    made = [{"cells": row, "details": ()} if isinstance(row, tuple) else row for row in rows]
    filled = [any(row["cells"][at] for row in made) for at in range(len(columns))]
    return {
        "columns": [{"head": head, "kind": kind} for head, kind in compress(classes, filled)],
        "rows": [{**row, "cells": [*compress(row["cells"], filled)]} for row in made],
        "open": OPEN if len(rows) > OPEN + 3 else len(rows),
        "rest": rest,
    }


def listing(
    head: str,
    columns: Sequence[str | tuple[str, str]],
    rows: Sequence[dict[str, Any] | tuple[Any, ...]],
    rest: str = "",
    **more: Any,
) -> dict[str, Any] | None:
    """Return a part with a table (`grid`); None without rows."""
    return part(head, table=grid(columns, rows, rest), **more) if rows else None


def _left(rows: Sequence[object], shown: Sequence[object], noun: str) -> str:
    left = len(rows) - len(shown)
    return f"{count(left, noun)} more." if left > 0 else ""


def _rest(section: Section, rows: Sequence[ListRow], shown: int, noun: str, none: Rest | None = None) -> str:
    """Return the sum of the rows that are left out, and the time that is in no row."""
    left = rows[shown:]
    said = []
    if left:
        ns = sum(row.ns or 0 for row in left)
        said.append(f"{count(len(left), noun)} more: {ms(ns)}, {percent(section.share(ns) or 0)}.")
    if none is not None:
        said.append(f"{none.name[0].upper()}{none.name[1:]}: {ms(none.ns)}, {percent(section.share(none.ns) or 0)}.")
    return " ".join(said)


def _times(section: Section, rows: Sequence[ListRow]) -> list[tuple[str, ...]]:
    """Return ms, percent of the page's denominator, and cumulative percent of each row."""
    shares = [section.share(row.ns) for row in rows]
    return [
        (ms_cell(row.ns), "", "") if share is None else (ms_cell(row.ns), fixed(100 * share, 1), fixed(100 * so_far, 1))
        for row, share, so_far in zip(rows, shares, accumulate(share or 0 for share in shares), strict=True)
    ]


def idle(section: Section, room: Room) -> dict[str, Any] | None:
    """The causes of idle time in a step or in the recording, and the host's calls meanwhile."""
    step, recording = section.step, section.recording
    if step is None and recording is None:
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
    note = "per step; % of the step" if step is not None else "% of the recording"
    heads = ("cause", "gaps", "ms", "%", "longest gap")
    return listing("Idle time", heads, rows, note=note, caption="Gaps by cause, most time first", id="idle")


IDLE = {
    "host": "host-bound: nothing was queued", "builds": "the host builds or loads programs",
    "queued": "queued: waits for other work", "unknown": "cause not recorded", "short": "gaps up to 1 us",
}  # fmt: skip


def ranks(section: Section, room: Room) -> dict[str, Any] | None:
    """The ranks of a job: which of them wait at the collectives, and which come last."""
    rows = [
        (*rank_cells(name, of, room.name), ms_cell(of.made_late_ns if of.made_late_by else None))
        for name, of in section.ranks[: room.rows]
    ]
    heads = ("rank", "transfer ms", "wait ms", "times last", "late ms", "made late by", "by ms")
    rest = _left(section.ranks, rows, "rank").replace("more.", "more: mio2trace ranks lists all.")
    said = [f"{visible(shortened(section.waiting, 400))}."]
    return listing("Ranks at the collectives", heads, rows, rest, texts=said, caption="Ranks, in order", id="ranks")


def steps(section: Section, room: Room) -> dict[str, Any] | None:
    """The steps of a serving engine: phase, batch, tokens, and the mean of each kind."""
    rows = [step_cells(kind) for kind in section.steps[: room.rows]]
    heads = ("phase", "batch", "tokens", "steps", "ms per step", "ms of kernels", "kernels")
    rest = _left(section.steps, rows, "kind")
    note = "; ".join(filter(None, ("means per step", section.between)))
    return listing("Steps", heads, rows, rest, note=note, caption="Steps by kind, most time first")


def classes(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.classes[: room.rows]
    names = shown_names(shown, room.name)
    rows = [(visible(name), *times) for name, times in zip(names, _times(section, shown), strict=True)]
    rest = _rest(section, section.classes, len(shown), "class", section.no_layer)
    note = f"layers of one class together, {section.of_layers}{section.shares_of}"
    return listing("Layer classes", ("class", *_TIMES), rows, rest, note=note, caption="Classes, most time first")


def layers(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.layers[: room.rows]
    longest = max((layer.ns for layer in shown), default=0)
    host = any(layer.host_ns is not None for layer in shown)
    rows = []
    for layer, name, times in zip(shown, shown_names(shown, room.name), _times(section, shown), strict=True):
        pieces = [
            svg.Piece(colour(own.primitive), own.ns, own.helps, f"{own.name}{', helpers' * own.helps}: {ms(own.ns)}")
            for own in layer.parts
        ] or [svg.Piece("other", layer.ns, False, ms(layer.ns))]
        bar = svg.stacked(pieces, longest, f"{visible(name)}: {ms(layer.ns)}")
        rows.append((visible(name), *times, *(ms_cell(layer.host_ns),) * host, bar))
    heads = ("layer", *_TIMES, *("host ms",) * host, "of the slowest")
    rest = _rest(section, section.layers, room.rows, "layer", section.no_layer)
    note = f"{section.of_layers}{section.shares_of}"
    return listing("Layers", heads, rows, rest, note=note, caption="Layers, most time first")


_TIMES = ("ms", "%", "cumul. %")


def operations(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.operations[: min(room.rows, OPERATIONS)]
    rows = [
        (visible(name), calls(row.calls), *times)
        for row, name, times in zip(shown, shown_names(shown, room.name), _times(section, shown), strict=True)
    ]
    rest = _rest(section, section.operations, len(shown), "operation", section.no_operation)
    note = f"in their layers, {section.each}{section.shares_of}"
    heads = ("operation", "calls", *_TIMES)
    return listing("Operations", heads, rows, rest, note=note, caption="Operations, most time first")


def problems(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.problems[: room.rows]
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
        cells += (shortened(problem.solver, 60),) * solvers
        driver = (shortened(problem.driver, 4 * room.name),) if problem.driver else ()
        rows.append({"cells": cells, "details": driver, "detail_head": "driver line"})
    heads = ["problem", "calls", *_TIMES, "GFLOP/s"]
    heads += ["% of peak", "bound by", "at most saved, ms"] * roof + ["solver"] * solvers
    rest = _rest(section, section.problems, room.rows, "problem", section.no_operation)
    note = f"operations of one shape together, {section.each}{section.shares_of}"
    most = "time" if section.whole_ns else "calls"
    return listing("Problems", heads, rows, rest, note=note, caption=f"Problems, most {most} first")


def calls(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else fixed(calls, 1)


def kernels(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.kernels[: min(room.rows, 25)]
    rows = []
    names = shown_names(shown, min(80, room.name))
    for kernel, short, times in zip(shown, names, _times(section, shown), strict=True):
        details = (shortened(kernel.name, min(KERNEL, 2 * room.name)),) if kernel.name != short else ()
        cells = (visible(short), calls(kernel.calls), *times)
        rows.append({"cells": cells, "details": details, "detail_head": "full name"})
    rest = _rest(section, section.kernels, len(shown), "kernel name")
    note = f"{section.each}{section.shares_of}"
    heads = ("kernel", "calls", *_TIMES)
    return listing("Kernels", heads, rows, rest, note=note, caption="Kernel names, most time first")


# -- The frame ---------------------------------------------------------------------------------------------------------

LIMIT = 150_000
"""Bytes of a page."""


def attempts(rooms: Sequence[Room], sections: int) -> Iterator[tuple[Room, int]]:
    """Yield smaller and smaller pages: fewer rows of each section, then fewer sections."""
    yield from ((room, sections) for room in rooms)
    yield from ((rooms[-1], fewer) for fewer in range(sections - 1, 0, -1))


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
    # text from input files is made visible and harmless; our own markup stays as it is
    frame = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )  # fmt: skip
    style = Markup(here.joinpath("page.css").read_text("utf-8").strip())  # noqa: S704 - our own file
    return frame.from_string(here.joinpath("page.html.j2").read_text("utf-8")), style


SCOPED, SCOPE, DRIVERS = 80, 8, 4
"""The most characters of a name in a finding, the most names, and the most driver lines."""
ROOMS = (Room(ROWS, 140, 25, 240), Room(30, 100, 15, 160), Room(15, 80, 9, 120), Room(6, 50, 5, 60), Room(3, 30, 3, 24))
"""Limits to try in turn until the page is small enough."""
STEPS, DEEPEST = 24, 6
"""The most steps that are shown one by one; the most levels of the tree."""
MOSTLY = 0.6
"""Nodes of the tree with at least this part of their level are open."""
_NAMELESS = {"layer": "in no layer", "operation": "in no operation"}
_PARTS = {
    "compute": "conv", "communication": "collective", "copy": "copies", "unrecorded": "first", "idle": "idle",
}  # fmt: skip
"""The class of colour of each part of a step."""
KINDS = {
    "steady": ("conv", "steady iterations"),
    "first": ("first", "first iteration, cold"),
    "cut": ("other", "iterations that are cut off"),
    "search": ("search", "searches"),
    "setup": ("setup", "outside iterations"),
    "copies": ("copies", "copies"),
}


def page(report: Report) -> str:
    """The file's text."""
    return fitted(
        _facts(report, room, report.sections[:shown]) for room, shown in attempts(ROOMS, len(report.sections))
    )


def _facts(report: Report, room: Room, shown: Sequence[Section]) -> dict[str, Any]:
    missing = len(report.sections) - len(shown) + report.left_out
    more = f" {count(missing, 'run')} more, not shown." if missing else ""
    return {
        "title": shortened(report.title, room.name),
        "kicker": "mio2trace report",
        "generator": report.generator,
        "sections": [_section(section, room) for section in shown],
        "footer": f"Made by {report.generator} from {shortened('; '.join(report.inputs), 1000)}.{more}",
    }


def _section(section: Section, room: Room) -> dict[str, Any]:
    reference = f"Without MIOpen's log {section.reference}." if section.reference else ""
    return {
        "name": shortened(section.name, room.name),
        "machine": " · ".join(filter(None, (section.machine, section.complete))),
        "verdict": shortened(section.verdict, 400),
        "evidence": shortened(" ".join(filter(None, (section.evidence, reference))), 400),
        "tiles": _tiles(section),
        "parts": [part for part in _parts(section, room) if part],
    }


def _tiles(section: Section) -> list[Tile]:
    found = []
    if section.step is not None:
        least, most = min(section.step.steps_ns), max(section.step.steps_ns)
        several = f"{ms(least)} to {ms(most)}" if most > least else ""
        found.append(
            ("Step", ms(section.step.step_ns), "without MIOpen's log" if section.timed_by_reference else several)
        )
    if section.kernel_ns:
        found.append((f"Kernels {section.each}", ms(section.kernel_ns), ""))
    if section.step is not None:
        more = " ".join(filter(None, ("of the step;", section.idle_because)))
        found.append(("Idle", percent(section.step.percent("idle") / 100), more))
    if section.first:
        cold, _, usual = section.first.removeprefix("first iteration ").partition(", then ")
        found.append(("First iteration", cold, f"then {usual}"))
    if section.searches:
        searches, _, more = section.searches.partition(" ran ")
        found.append(("MIOpen Find: searches", searches.split()[0], more))
    return found


def _parts(section: Section, room: Room) -> list[dict[str, Any] | None]:
    trust = [(label, shortened(value, 400)) for label, value in section.trust]
    return [
        _step(section),
        _findings(section, room),
        idle(section, room),
        _each_step(section, room),
        steps(section, room),
        ranks(section, room),
        _log(section, room),
        _compute(section),
        _tree(section, room),
        classes(section, room),
        layers(section, room),
        operations(section, room),
        problems(section, room),
        kernels(section, room),
        _roofline(section, room),
        _durations(section),
        _run(section, room),
        part("How far to trust it", facts=trust) if trust else None,
    ]


def _step(section: Section) -> dict[str, Any] | None:
    """The parts of the step: the same rows as in the answer block."""
    if not section.spent:
        return None
    pieces = [svg.Piece(_PARTS[one.part], one.ns, False, f"{one.label}: {ms(one.ns)}") for one in section.spent]
    whole = sum(piece.ns for piece in pieces)
    what = "the step" if section.step is not None else "the recording"
    picture = svg.stacked(pieces, whole, f"What {what} consists of", height=34, width=1000)
    legend = [key(_PARTS[one.part], one.label) for one in section.spent]
    length = ms(whole if section.step is None else section.step.step_ns)
    length += ", without MIOpen's log" * section.timed_by_reference
    return part(
        f"Where {what} goes",
        note="; ".join(filter(None, (length, section.device))),
        picture=picture,
        legend=legend,
        table=grid(("part", "ms", f"% of {what}", "cause"), spent_cells(section), ""),
        caption="Parts that add up to 100 %",
        id="where",
    )


def _each_step(section: Section, room: Room) -> dict[str, Any] | None:
    """Each steady step as a bar of its parts, all on one scale, to show the spread."""
    step = section.step
    if step is None:
        return None
    shown = [window.busy for window in step.windows if window.busy is not None]
    if len(shown) < 2:
        return None
    longest = max(busy.length_ns for busy in shown)
    rows = []
    for number, busy in [*zip(section.step_numbers, shown, strict=False)][: min(room.rows, STEPS)]:
        parts = {name: getattr(busy, f"{name}_ns") for name in PARTS}
        pieces = [svg.Piece(_PARTS[name], ns, False, f"{name}: {ms(ns)}") for name, ns in parts.items()]
        bar = svg.stacked(pieces, longest, f"step {number}: {ms(busy.length_ns)}")
        rows.append((f"step {number}", ms_cell(busy.length_ns), ms_cell(parts["idle"]), bar))
    note, rest = f"{ms(min(step.steps_ns))} to {ms(max(step.steps_ns))}", _left(shown, rows, "step")
    heads, caption = ("step", "ms", "idle ms", "parts"), "Steady steps in order"
    return listing("Each steady step", heads, rows, rest, note=note, caption=caption, id="each-step")


def _tree(section: Section, room: Room) -> dict[str, Any] | None:
    """Layers with their operations and kernels, as lists that open."""
    if not any(node.parts for node in section.tree):
        return None
    nodes = _nodes(section, section.tree, room, 0)
    note = f"ms {section.each}, % {section.of_whole}" + "; " * bool(section.beyond()) + section.beyond()
    return part("Layers, operations, kernels", note=note, tree=nodes, id="tree")


def _nodes(section: Section, parts: Sequence[Node], room: Room, depth: int) -> list[dict[str, Any]]:
    """Show the nodes with the most time; one line sums the rest of a level."""
    each = [round(node.total_ns / max(1, section.iterations)) for node in parts]
    least, whole = section.whole_ns / (8 * room.rows), sum(each)
    shown = parts[: sum(ns >= least for ns in each)][: max(room.rows // 2, 3)] if depth < DEEPEST else []
    names = [node.name or _NAMELESS.get(node.kind, "") for node in shown]
    short = [short_kernel(name) if node.kind == "kernel" else name for name, node in zip(names, shown, strict=True)]
    made = []
    for text, node, ns in zip(distinct(names, short, min(room.name, 90)), shown, each, strict=False):
        below = _nodes(section, node.in_order(), room, depth + 1) if node.parts else []
        made.append(_node(section, text, node.kind, ns, below, is_open=ns >= MOSTLY * whole))
    if shown and (left := each[len(shown) :]):
        made.append(_node(section, f"{len(left):,} more", "rest", sum(left), []))
    return made


def _node(
    section: Section, name: str, kind: str, ns: int, parts: list[dict[str, Any]], *, is_open: bool = False
) -> dict[str, Any]:
    share = f"{fixed(100 * (section.share(ns) or 0), 1)} %"
    return {"name": name, "kind": kind, "ms": ms_cell(ns), "percent": share, "parts": parts, "open": is_open}


def _compute(section: Section) -> dict[str, Any] | None:
    """The kernel time by the operation that the kernels compute."""
    if not section.parts:
        return None
    pieces, legend = [], []
    for own in section.parts:
        label = f"{own.name}{', helpers' * own.helps}"
        share = percent(section.share(own.ns) or 0)
        pieces.append(svg.Piece(colour(own.primitive), own.ns, own.helps, f"{label}: {ms(own.ns)}, {share}"))
        if own.ns >= 0.005 * section.kernel_ns:
            legend.append(key(colour(own.primitive), f"{label} {share}", helps=own.helps))
    picture = svg.stacked(pieces, section.kernel_ns, "What the kernels compute", height=34, width=1000)
    note = f"{ms(section.kernel_ns)} of kernels {section.each}; % {section.of_whole}"
    note += "; " * bool(section.beyond()) + section.beyond()
    if section.step_ns and section.kernel_ns > 1.005 * (section.step_ns - (section.idle_ns or 0)):
        note += "; kernels overlap"
    return part("What the kernels compute", note=note, picture=picture, legend=legend, id="computes")


def _findings(section: Section, room: Room) -> dict[str, Any] | None:
    if not section.findings:
        return None
    left = len(section.findings) - room.findings
    found = [_finding(one, room) for one in section.findings[: room.findings]]
    texts = [f"{count(left, 'finding')} more."] if left > 0 else []
    return part("Findings", findings=found, texts=texts, id="findings")


def _finding(finding: Finding, room: Room) -> dict[str, Any]:
    found = finding.found
    names = list(dict.fromkeys(shortened(normalise(name), min(SCOPED, room.name)) for name in found.scope[: 4 * SCOPE]))
    shown = "; ".join(names[:SCOPE]) + (f"; and {len(found.scope) - SCOPE} more" if len(names) > SCOPE else "")
    return {
        "severity": finding.severity,
        "title": finding.rule.title,
        "number": shortened(found.number, 5 * room.name),
        "scope": shown if len(names) > 1 else "",
        "advice": finding.advice,
        "rule": finding.rule.id,
        "drivers": [shortened(driver, 4 * room.name) for driver in found.drivers[:DRIVERS]],
    }


def _log(section: Section, room: Room) -> dict[str, Any] | None:
    """Errors and warnings of the log, with equal texts counted together."""
    rows = [
        (level, f"{number:,}", shortened(text, 2 * room.name))
        for level, number, text in section.log[: min(20, room.rows)]
    ]
    left = len(section.log) - len(rows)
    rest = f"{left} more: mio2trace messages lists all." if left > 0 else ""
    head, caption = "Errors and warnings of the log", "Errors, then warnings, as the log has them"
    return listing(head, ("level", "times", "text"), rows, rest, caption=caption, id="log")


def _run(section: Section, room: Room) -> dict[str, Any] | None:
    """A picture of the whole run."""
    thumbnail = section.thumbnail
    if thumbnail is None:
        return None
    layers = []
    legend = []
    for kind, (colour, label) in KINDS.items():
        parts = thumbnail.busy.get(kind)
        if parts:
            ns = sum(parts) * thumbnail.span_ns / len(parts)
            label = "kernels" if kind == "steady" and not section.iterations else label
            together = -(-len(parts) // room.bins)
            bins = [parts[at : at + together] for at in range(0, len(parts), together)]
            layers.append((colour, [sum(own) / len(own) for own in bins], f"{label}: {ms(ns)}"))
            legend.append(key(colour, f"{label} {ms(ns)}"))
    ticks = [(part, ms(part * thumbnail.span_ns) if part else "0") for part in (0, 0.25, 0.5, 0.75, 1)]
    picture = svg.timeline(layers, _bands(thumbnail, room.bins // 4), ticks, "When the device was busy, and with what")
    return part("The whole run", note=f"{ms(thumbnail.span_ns)}", picture=picture, legend=legend, id="run")


def _bands(thumbnail: Thumbnail, most: int) -> list[tuple[float, float, str, str]]:
    """The marks of iterations under the picture; more than ``most`` marks become one band."""
    found = thumbnail.iterations
    if len(found) > most:
        first, last = found[0], found[-1]
        said = f"iterations {first[0]} to {last[0]}"
        return [(first[1], last[2], said, said)]
    bands = []
    for number, start, end, steady in found:
        said = "warm-up" if number == 0 else f"iteration {number}"
        length = ms((end - start) * thumbnail.span_ns)
        bands.append((start, end, said, f"{said}: {length}{'' if steady else ', not counted'}"))
    return bands


def _roofline(section: Section, room: Room) -> dict[str, Any] | None:
    if section.gpu is None:
        return None
    points = [
        (
            problem.intensity, problem.gflops, problem.share or 0, colour(problem.primitive),
            f"{visible(shortened(problem.name, room.name))}: {rate(problem.gflops)}, {percent(problem.of_peak)} of the"
            f" peak, bound by {problem.bound}",
        )
        for problem in section.problems[: room.rows]
        if problem.intensity and problem.gflops and problem.of_peak is not None
    ]  # fmt: skip
    if not points:
        return None
    roofs = [
        (f"{dtype} {peak:,.1f} TFLOP/s, {section.gpu.bandwidth:,.0f} GB/s", peak * 1000, section.gpu.bandwidth)
        for dtype, peak in section.gpu.tflops.items()
        if dtype in section.dtypes
    ]
    picture = svg.roofline(points, roofs, "Problems under the roofline")
    return part("Roofline", note=f"{section.gpu.name}; {section.gpu.source}", picture=picture)


def _durations(section: Section) -> dict[str, Any] | None:
    if not section.durations:
        return None
    by = {duration.below_ns.bit_length(): duration for duration in section.durations}
    low, high = 11, min(max(max(by), 12), 31)  # first column: below 1 us; last one: above 0.5 s
    bins = []
    for bits in range(low, high + 1):
        of = [by[one] for one in by if min(max(one, low), high) == bits]
        ns, number = sum(one.ns for one in of), sum(one.count for one in of)
        edge = _edge(1 << (bits - 1))
        of_whole = percent(section.share(ns) or 0)
        kernels = f"{calls(round(number, 1))} kernel{'' if round(number, 1) == 1 else 's'}"
        said = f"under {edge}: {kernels}, {ms(ns)}, {of_whole}"
        share = of_whole.replace("under ", "< ") if ns else ""  # as wide as the column
        bins.append((f"< {edge}", ns, share, said))
    picture = svg.columns(bins, "Kernel time by how long the kernels are")
    return part("Kernels by duration", note=f"% {section.of_whole}", picture=picture, id="kernel-durations")


def _edge(ns: int) -> str:
    """Return a power of two of ns in the unit that a person would use: 1 us, 2 us, ... 1 ms."""
    us = ns / 1024
    if us < 1024:
        return f"{us:.0f} us"
    if us < 1 << 20:
        return f"{us / 1024:.0f} ms"
    return f"{us / (1 << 20):.0f} s"
