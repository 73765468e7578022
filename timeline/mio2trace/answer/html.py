"""The report as one HTML file: no script, nothing fetched, our own SVG; Jinja2 fills the frame."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mio2trace.answer import svg
from mio2trace.answer.content import (
    ROWS,
    KernelRow,
    LayerRow,
    Part,
    ProblemRow,
    Report,
    Section,
    Thumbnail,
    cumulative,
)
from mio2trace.findings import Finding
from mio2trace.findings.words import count, ms, percent, rate
from mio2trace.kernels.names import normalise
from mio2trace.ops.naming import primitive_name
from mio2trace.outgoing import shortened, visible

COLOURS = {
    "conv": "conv", "fusion": "conv", "gemm": "gemm", "mha": "gemm", "bnorm": "bnorm", "layernorm": "bnorm",
    "groupnorm": "bnorm", "pool": "pool", "activ": "activ", "rnn": "rnn", "softmax": "softmax", "lrn": "softmax",
    "optensor": "tensor", "bias": "tensor", "reduce": "tensor",
}  # fmt: skip
"""The class of colour of a primitive; ``other`` of all the rest."""
NAME, KERNEL, SCOPE = 140, 200, 12
"""Characters of a name that are shown, of a kernel's, problems that a finding lists."""
KINDS = {
    "steady": ("conv", "steady iterations"),
    "first": ("first", "first iteration, cold"),
    "search": ("search", "searches"),
    "setup": ("setup", "outside iterations"),
    "copies": ("copies", "copies"),
}


def page(report: Report) -> str:
    """The file's text."""
    here = files("mio2trace.answer")
    rows = max(5, ROWS // len(report.sections))
    frame = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = frame.from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    style = here.joinpath("page.css").read_text("utf-8")
    return template.render(
        page={
            "title": visible(report.title),
            "generator": report.generator,
            "kicker": "mio2trace report",
            "sections": [_section(section, rows) for section in report.sections],
            "footer": f"Made by {report.generator} from {'; '.join(report.inputs)}.",
        },
        style=Markup(style.strip()),  # noqa: S704 - our own file
    )


def _section(section: Section, rows: int) -> dict[str, Any]:
    return {
        "name": visible(section.name),
        "verdict": section.verdict,
        "evidence": section.evidence,
        "tiles": _tiles(section),
        "parts": [part for part in _parts(section, rows) if part],
    }


def _tiles(section: Section) -> list[dict[str, str]]:
    """The few numbers to look at first."""
    tiles = []
    if section.kernel_ns:
        what = "Kernels, an iteration" if section.iterations else "Kernels"
        tiles.append({"label": what, "value": ms(section.kernel_ns), "more": ""})
    if section.span_ns and section.idle_ns is not None:
        busy = 1 - section.idle_ns / section.span_ns
        tiles.append({"label": "Device busy", "value": percent(busy), "more": f"of {ms(section.span_ns)} an iteration"})
    if section.first:
        cold, _, usual = section.first.removeprefix("first iteration ").partition(", then ")
        tiles.append({"label": "First iteration", "value": cold, "more": f"then {usual}"})
    if section.searches:
        searches, _, more = section.searches.partition(" ran ")
        tiles.append({"label": "Searches", "value": searches.split()[0], "more": more})
    return tiles


def _part(head: str, **more: Any) -> dict[str, Any]:
    """A part of the page with all that the frame may ask for."""
    empty = {"note": "", "picture": None, "legend": (), "findings": (), "texts": (), "table": None, "facts": ()}
    return {"id": head.lower().replace(" ", "-"), "head": head, "caption": "", **empty, **more}


def _parts(section: Section, rows: int) -> list[dict[str, Any] | None]:
    return [
        _iteration(section),
        _findings(section),
        _log(section),
        _run(section),
        _layers(section, rows),
        _problems(section, rows),
        _kernels(section, rows),
        _roofline(section, rows),
        _durations(section),
        _part("How far to trust it", facts=section.trust) if section.trust else None,
    ]


def _name(part: Part) -> str:
    return primitive_name(part.primitive) if part.primitive else "other kernels"


def _colour(primitive: str) -> str:
    return COLOURS.get(primitive, "other")


def _iteration(section: Section) -> dict[str, Any] | None:
    """Everything of one iteration in one bar."""
    if not section.parts:
        return None
    whole = max(section.span_ns or 0, section.kernel_ns + section.copy_ns)
    pieces, legend = [], []
    for part in section.parts:
        label = f"{_name(part)}, helpers" if part.helps else _name(part)
        said = f"{label}: {ms(part.ns)}, {percent(part.ns / section.kernel_ns)} of the kernels"
        pieces.append(svg.Piece(_colour(part.primitive), part.ns, part.helps, said))
        if part.ns >= 0.005 * section.kernel_ns:
            short = f"{label} {percent(part.ns / section.kernel_ns)}"
            legend.append({"colour": _colour(part.primitive), "helps": part.helps, "label": short})
    if section.copy_ns:
        pieces.append(svg.Piece("copies", section.copy_ns, False, f"copies: {ms(section.copy_ns)}"))
        legend.append({"colour": "copies", "helps": False, "label": f"copies {ms(section.copy_ns)}"})
    rest = whole - sum(piece.ns for piece in pieces)
    if section.span_ns and rest > 0.005 * whole:
        pieces.append(svg.Piece("idle", rest, False, f"neither kernel nor copy: {ms(rest)}"))
        legend.append({"colour": "idle", "helps": False, "label": f"idle {percent(rest / whole)} of the iteration"})
    what = "an iteration" if section.iterations else "the run"
    note = f"{ms(whole)} from its first to its last command" if section.span_ns else ""
    picture = svg.stacked(pieces, whole, f"What {what} consists of", height=34, width=1000)
    return _part(f"Where {what} goes", note=note, picture=picture, legend=legend, id="where")


def _findings(section: Section) -> dict[str, Any] | None:
    if not section.findings:
        return None
    return _part("What is odd, what to try", findings=[_finding(one) for one in section.findings], id="findings")


def _finding(finding: Finding) -> dict[str, Any]:
    found = finding.found
    names = [shortened(visible(name), NAME) for name in found.scope]
    shown = "; ".join(names[:SCOPE]) + (f"; and {len(names) - SCOPE} more" if len(names) > SCOPE else "")
    return {
        "severity": finding.severity,
        "title": finding.rule.title,
        "number": visible(found.number),
        "scope": shown if len(names) > 1 else "",
        "advice": finding.rule.advice,
        "rule": finding.rule.id,
        "drivers": [visible(driver) for driver in found.drivers[:SCOPE]],
    }


def _log(section: Section) -> dict[str, Any] | None:
    """Errors and warnings of the log, by what they say."""
    if not section.log:
        return None
    rows = [
        {"cells": (level, f"{number:,}", visible(text)), "detail": "", "detail_head": ""}
        for level, number, text in section.log[:20]
    ]
    left = len(section.log) - len(rows)
    heads = ("level", "times", "text")
    table = {
        "columns": [{"head": head, "number": head == "times", "bar": False} for head in heads],
        "rows": rows,
        "total": (),
        "rest": f"{left} more: mio2trace messages lists all." if left > 0 else "",
    }
    return _part("What the log complains of", table=table, caption="Errors and warnings, most frequent first", id="log")


def _run(section: Section) -> dict[str, Any] | None:
    """The whole run as a picture."""
    thumbnail = section.thumbnail
    if thumbnail is None:
        return None
    layers = []
    legend = []
    for kind, (colour, label) in KINDS.items():
        parts = thumbnail.busy.get(kind)
        if parts:
            ns = sum(parts) * thumbnail.span_ns / len(parts)
            layers.append((colour, parts, f"{label}: {ms(ns)}"))
            legend.append({"colour": colour, "helps": False, "label": f"{label} {ms(ns)}"})
    ticks = [(part, ms(part * thumbnail.span_ns) if part else "0") for part in (0, 0.25, 0.5, 0.75, 1)]
    picture = svg.timeline(layers, _bands(thumbnail), ticks, "When the device was busy, and with what")
    return _part("The whole run", note=f"{ms(thumbnail.span_ns)}", picture=picture, legend=legend, id="run")


def _bands(thumbnail: Thumbnail) -> list[tuple[float, float, str, str]]:
    """Iterations below the picture; many are one band."""
    found = thumbnail.iterations
    if len(found) > 60:
        first, last = found[0], found[-1]
        said = f"iterations {first[0]} to {last[0]}"
        return [(first[1], last[2], said, said)]
    bands = []
    for number, start, end, steady in found:
        said = "warm-up" if number == 0 else f"iteration {number}"
        length = ms((end - start) * thumbnail.span_ns)
        bands.append((start, end, said, f"{said}: {length}{'' if steady else ', not counted'}"))
    return bands


def _table(columns: Sequence[tuple[str, str]], rows: list[dict[str, Any]], total: Sequence[Any], rest: str) -> Any:
    """``columns``: head and kind (``text``, ``number``, ``bar``)."""
    return {
        "columns": [{"head": head, "number": kind == "number", "bar": kind == "bar"} for head, kind in columns],
        "rows": rows,
        "total": total,
        "rest": rest,
    }


def _rest(rows: Sequence[LayerRow | ProblemRow | KernelRow], shown: int, noun: str) -> str:
    """What the rows that are left out add up to."""
    left = rows[shown:]
    if not left:
        return ""
    ns, share = sum(row.ns or 0 for row in left), sum(row.share or 0 for row in left)
    return f"{count(len(left), noun)} more: {ms(ns)}, {percent(share)}."


def _cells(ns: int | None, share: float | None, so_far: float) -> tuple[str, str, str]:
    if ns is None or share is None:
        return "", "", ""
    return f"{ns / 1e6:,.3f}", f"{100 * share:.1f}", f"{100 * so_far:.1f}"


def _layers(section: Section, most: int) -> dict[str, Any] | None:
    shown = section.layers[:most]
    if not shown:
        return None
    longest = max(layer.ns for layer in shown)
    host = any(layer.host_ns is not None for layer in shown)
    rows = []
    for layer, so_far in zip(shown, cumulative([layer.share for layer in shown]), strict=True):
        pieces = [
            svg.Piece(
                _colour(part.primitive), part.ns, part.helps, f"{_name(part)}{', helpers' * part.helps}: {ms(part.ns)}"
            )
            for part in layer.parts
        ] or [svg.Piece("other", layer.ns, False, ms(layer.ns))]
        name = shortened(visible(layer.name), NAME)
        cells: tuple[Any, ...] = (name, layer.direction, *_cells(layer.ns, layer.share, so_far))
        cells += (f"{layer.host_ns / 1e6:,.3f}" if layer.host_ns is not None else "",) if host else ()
        rows.append({"cells": (*cells, svg.stacked(pieces, longest, f"{name}: {ms(layer.ns)}")), "detail": ""})
    heads = [("layer", "text"), ("direction", "text"), ("ms", "number"), ("%", "number"), ("cumulative %", "number")]
    heads += [("host ms", "number")] if host else []
    table = _table([*heads, ("of the slowest", "bar")], rows, (), _rest(section.layers, most, "layer"))
    each = "an iteration" if section.iterations else "in all"
    return _part("Layers", note=f"{section.layers_by}, {each}", table=table, caption="Layers, most time first")


def _problems(section: Section, most: int) -> dict[str, Any] | None:
    shown = section.problems[:most]
    if not shown:
        return None
    roof = any(problem.of_peak is not None for problem in shown)
    rows = []
    for problem, so_far in zip(shown, cumulative([problem.share or 0 for problem in shown]), strict=True):
        cells: tuple[str, ...] = (
            shortened(visible(problem.name), NAME),
            _calls(problem.calls),
            *_cells(problem.ns, problem.share, so_far),
            "" if problem.gflops is None else f"{problem.gflops:,.2f}",
        )
        if roof:
            wrong = problem.of_peak is not None and problem.saved_ns is None
            cells += (
                "" if problem.of_peak is None else f"{100 * problem.of_peak:.1f}" + (" (?)" if wrong else ""),
                problem.bound,
                "" if problem.saved_ns is None else f"{problem.saved_ns / 1e6:,.3f}",
            )
        cells += (shortened(visible(problem.solver), 60),)
        rows.append({"cells": cells, "detail": visible(problem.driver), "detail_head": "driver line"})
    heads = [
        ("problem", "text"), ("calls", "number"), ("ms", "number"), ("%", "number"), ("cumulative %", "number"),
        ("GFLOP/s", "number"),
    ]  # fmt: skip
    heads += [("% of peak", "number"), ("bound by", "text"), ("at most saved, ms", "number")] if roof else []
    table = _table([*heads, ("solver", "text")], rows, (), _rest(section.problems, most, "problem"))
    each = "an iteration" if section.iterations else "in all"
    return _part("Problems", note=f"calls and kernel time {each}", table=table, caption="Problems, most time first")


def _calls(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.1f}"


def _kernels(section: Section, most: int) -> dict[str, Any] | None:
    shown = section.kernels[: min(most, 25)]
    if not shown:
        return None
    rows = []
    for kernel, so_far in zip(shown, cumulative([kernel.share for kernel in shown]), strict=True):
        short, whole = shortened(visible(normalise(kernel.name)), 80), visible(kernel.name)
        detail = shortened(whole, KERNEL) if whole != short else ""
        cells = (short, _calls(kernel.calls), *_cells(kernel.ns, kernel.share, so_far))
        rows.append({"cells": cells, "detail": detail, "detail_head": "full name"})
    heads = [("kernel", "text"), ("calls", "number"), ("ms", "number"), ("%", "number"), ("cumulative %", "number")]
    table = _table(heads, rows, (), _rest(section.kernels, len(shown), "kernel name"))
    return _part("Kernels", table=table, caption="Kernel names, most time first")


def _roofline(section: Section, most: int) -> dict[str, Any] | None:
    if section.gpu is None:
        return None
    points = [
        svg.Point(
            problem.intensity, problem.gflops, problem.share or 0, _colour(problem.primitive),
            f"{shortened(visible(problem.name), NAME)}: {rate(problem.gflops)}, {percent(problem.of_peak)} of the peak,"
            f" bound by {problem.bound}",
        )
        for problem in section.problems[:most]
        if problem.intensity and problem.gflops and problem.of_peak is not None
    ]  # fmt: skip
    if not points:
        return None
    roofs = [
        svg.Roof(f"{dtype} {peak:,.1f} TFLOP/s, {section.gpu.bandwidth:,.0f} GB/s", peak * 1000, section.gpu.bandwidth)
        for dtype, peak in section.gpu.tflops.items()
        if dtype in section.dtypes
    ]
    picture = svg.roofline(points, roofs, "Problems under the roofline")
    return _part("Roofline", note=f"{section.gpu.name}; {section.gpu.source}", picture=picture)


def _durations(section: Section) -> dict[str, Any] | None:
    if not section.durations:
        return None
    by = {duration.below_ns.bit_length(): duration for duration in section.durations}
    low, high = max(min(by), 10), max(max(by), 11)  # a column for all below 1 us
    bins = []
    for bits in range(low, high + 1):
        of = [by[each] for each in by if each == bits or (bits == low and each < low)]
        ns, number = sum(one.ns for one in of), sum(one.count for one in of)
        edge = _edge(1 << (bits - 1))
        said = f"under {edge}: {_calls(round(number, 1))} kernels, {ms(ns)}, {percent(ns / (section.kernel_ns or 1))}"
        share = percent(ns / section.kernel_ns) if section.kernel_ns and ns else ""
        bins.append(svg.Bin(f"< {edge}", ns, share, said))
    picture = svg.columns(bins, "Kernel time by how long the kernels are")
    return _part("Kernels by duration", note="share of the kernel time", picture=picture, id="durations")


def _edge(ns: int) -> str:
    """A power of two of ns as a person says it: 1 us, 2 us, ... 1 ms."""
    us = ns / 1024
    if us < 1024:
        return f"{us:.0f} us"
    if us < 1 << 20:
        return f"{us / 1024:.0f} ms"
    return f"{us / (1 << 20):.0f} s"
