"""The tables of the page: rows of cells, a bar in a cell, what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mio2trace.answer import svg
from mio2trace.answer.content import KernelRow, LayerRow, Part, ProblemRow, Rest, Section, cumulative
from mio2trace.findings.words import count, ms, percent
from mio2trace.kernels.names import normalise
from mio2trace.ops.naming import primitive_name
from mio2trace.outgoing import shortened, visible

KERNEL = 200
"""Characters that are shown of a kernel's whole name."""
OPEN = 15
"""Rows of a table that are not folded away."""
COLOURS = {
    "conv": "conv", "fusion": "fusion", "gemm": "gemm", "mha": "mha", "bnorm": "bnorm", "layernorm": "layernorm",
    "groupnorm": "groupnorm", "pool": "pool", "activ": "activ", "rnn": "rnn", "softmax": "softmax", "lrn": "lrn",
    "collective": "collective", "optensor": "tensor", "bias": "bias", "reduce": "reduce",
}  # fmt: skip
"""The class of colour of a primitive, its own; ``other`` of all the rest."""


class Room(NamedTuple):
    """How much is shown of a section: rows of a table, characters of a name, findings, bins of the run's picture."""

    rows: int
    name: int
    findings: int
    bins: int


def part(head: str, **more: Any) -> dict[str, Any]:
    """A part of the page with all that the frame may ask for."""
    empty = {"note": "", "picture": None, "legend": (), "findings": (), "texts": (), "table": None, "facts": ()}
    return {"id": head.lower().replace(" ", "-"), "head": head, "caption": "", **empty, **more}


def part_name(part: Part) -> str:
    return primitive_name(part.primitive) if part.primitive else "other kernels"


def colour(primitive: str) -> str:
    return COLOURS.get(primitive, "other")


def grid(columns: Sequence[tuple[str, str]], rows: list[dict[str, Any]], rest: str) -> Any:
    """``columns``: head and kind (``text``, ``number``, ``bar``). A row has ``cells``, and ``details`` that are folded
    below the first of them under ``detail_head``."""
    return {
        "columns": [{"head": head, "number": kind == "number", "bar": kind == "bar"} for head, kind in columns],
        "rows": rows,
        "open": OPEN if len(rows) > OPEN + 3 else len(rows),
        "rest": rest,
    }


def _rest(rows: Sequence[LayerRow | ProblemRow | KernelRow], shown: int, noun: str, none: Rest | None = None) -> str:
    """What the rows that are left out add up to, and what is in no row at all."""
    left = rows[shown:]
    said = []
    if left:
        ns, share = sum(row.ns or 0 for row in left), sum(row.share or 0 for row in left)
        said.append(f"{count(len(left), noun)} more: {ms(ns)}, {percent(share)}.")
    if none is not None:
        said.append(f"{none.name[0].upper()}{none.name[1:]}: {ms(none.ns)}, {percent(none.share)}.")
    return " ".join(said)


def _cells(ns: int | None, share: float | None, so_far: float) -> tuple[str, str, str]:
    if ns is None or share is None:
        return "", "", ""
    return f"{ns / 1e6:,.3f}", f"{100 * share:.1f}", f"{100 * so_far:.1f}"


def ranks(section: Section, room: Room) -> dict[str, Any] | None:
    """Of a job: who waits at the collectives, who comes last."""
    shown = section.ranks[: room.rows]
    if not shown:
        return None
    rows = [
        {
            "cells": (
                visible(shortened(row.name, room.name)),
                f"{row.transfer_ns / 1e6:,.3f}",
                f"{row.wait_ns / 1e6:,.3f}",
                f"{row.times_arrived_last:,}",
                f"{row.late_ns / 1e6:,.3f}",
                visible(shortened(row.made_late_by, room.name)),
                f"{row.made_late_ns / 1e6:,.3f}" if row.made_late_by else "",
            ),
            "details": (),
        }
        for row in shown
    ]
    heads = [
        ("rank", "text"), ("transfer ms", "number"), ("wait ms", "number"), ("times last", "number"),
        ("late ms", "number"), ("made late by", "text"), ("by ms", "number"),
    ]  # fmt: skip
    left = len(section.ranks) - len(shown)
    table = grid(heads, rows, f"{count(left, 'rank')} more: mio2trace ranks lists all." if left else "")
    said = visible(shortened(section.waiting, 400))
    return part("Ranks at the collectives", texts=[f"{said}."], table=table, caption="Ranks, in order", id="ranks")


def steps(section: Section, room: Room) -> dict[str, Any] | None:
    """Of a serving engine: phase, batch and tokens of its steps, and the mean of each kind."""
    shown = section.steps[: room.rows]
    if not shown:
        return None
    rows = [
        {
            "cells": (
                kind.phase,
                "" if kind.batch is None else f"{kind.batch:,}",
                "" if kind.tokens is None else f"{kind.tokens / kind.steps:,.0f}",
                f"{kind.steps:,}",
                "" if kind.step_ns is None else f"{kind.step_ns / 1e6:,.3f}",
                f"{kind.kernel_ns / 1e6:,.3f}",
                f"{kind.kernels:,.0f}",
            ),
            "details": (),
        }
        for kind in shown
    ]
    heads = [
        ("phase", "text"), ("batch", "number"), ("tokens", "number"), ("steps", "number"), ("ms per step", "number"),
        ("ms of kernels", "number"), ("kernels", "number"),
    ]  # fmt: skip
    left = len(section.steps) - len(shown)
    table = grid(heads, rows, f"{count(left, 'kind')} more." if left else "")
    return part("Steps", note="means per step", table=table, caption="Steps by kind, most time first", id="steps")


def layers(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.layers[: room.rows]
    if not shown:
        return None
    longest = max(layer.ns for layer in shown)
    host = any(layer.host_ns is not None for layer in shown)
    rows = []
    for layer, so_far in zip(shown, cumulative([layer.share for layer in shown]), strict=True):
        pieces = [
            svg.Piece(
                colour(own.primitive), own.ns, own.helps, f"{part_name(own)}{', helpers' * own.helps}: {ms(own.ns)}"
            )
            for own in layer.parts
        ] or [svg.Piece("other", layer.ns, False, ms(layer.ns))]
        name = visible(shortened(layer.name, room.name))
        cells: tuple[Any, ...] = (name, layer.direction, *_cells(layer.ns, layer.share, so_far))
        cells += (f"{layer.host_ns / 1e6:,.3f}" if layer.host_ns is not None else "",) if host else ()
        rows.append({"cells": (*cells, svg.stacked(pieces, longest, f"{name}: {ms(layer.ns)}")), "details": ()})
    heads = [("layer", "text"), ("direction", "text"), ("ms", "number"), ("%", "number"), ("cumul. %", "number")]
    heads += [("host ms", "number")] if host else []
    table = grid([*heads, ("of the slowest", "bar")], rows, _rest(section.layers, room.rows, "layer", section.no_layer))
    return part("Layers", note=f"{section.layers_by}, {section.each}", table=table, caption="Layers, most time first")


def problems(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.problems[: room.rows]
    if not shown:
        return None
    roof = any(problem.of_peak is not None for problem in shown)
    solvers = any(problem.solver for problem in shown)
    rows = []
    for problem, so_far in zip(shown, cumulative([problem.share or 0 for problem in shown]), strict=True):
        cells: tuple[str, ...] = (
            shortened(problem.name, room.name),
            calls(problem.calls),
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
        cells += (shortened(problem.solver, 60),) if solvers else ()
        driver = (shortened(problem.driver, 4 * room.name),) if problem.driver else ()
        rows.append({"cells": cells, "details": driver, "detail_head": "driver line"})
    heads = [
        ("problem", "text"), ("calls", "number"), ("ms", "number"), ("%", "number"), ("cumul. %", "number"),
        ("GFLOP/s", "number"),
    ]  # fmt: skip
    heads += [("% of peak", "number"), ("bound by", "text"), ("at most saved, ms", "number")] if roof else []
    heads += [("solver", "text")] if solvers else []
    table = grid(heads, rows, _rest(section.problems, room.rows, "problem", section.no_operation))
    return part(
        "Problems", note=f"calls and kernel time {section.each}", table=table, caption="Problems, most time first"
    )


def calls(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.1f}"


def kernels(section: Section, room: Room) -> dict[str, Any] | None:
    shown = section.kernels[: min(room.rows, 25)]
    if not shown:
        return None
    rows = []
    for kernel, so_far in zip(shown, cumulative([kernel.share for kernel in shown]), strict=True):
        short, whole = shortened(normalise(kernel.name), min(80, room.name)), kernel.name
        details = (shortened(whole, min(KERNEL, 2 * room.name)),) if whole != short else ()
        cells = (short, calls(kernel.calls), *_cells(kernel.ns, kernel.share, so_far))
        rows.append({"cells": cells, "details": details, "detail_head": "full name"})
    heads = [("kernel", "text"), ("calls", "number"), ("ms", "number"), ("%", "number"), ("cumul. %", "number")]
    table = grid(heads, rows, _rest(section.kernels, len(shown), "kernel name"))
    return part("Kernels", table=table, caption="Kernel names, most time first")
