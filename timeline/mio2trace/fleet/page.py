"""A fleet as one HTML page, in the report's frame: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from mio2trace.answer import svg, tables
from mio2trace.answer.frame import fitted
from mio2trace.findings.rule import ms
from mio2trace.fleet import Fleet, Row
from mio2trace.outgoing import shortened, visible

VERSIONS = 6
"""The last ones are shown."""
_TALL, _WIDE, _LEFT = 16, 1000, 330
_CELL = svg.Shown('<g><title>{}</title><rect class="{}" opacity="{}" x="{}" y="{}" width="{}" height="{}"/></g>')
_HOTTEST = 2.0
"""Times the median that is the darkest."""


class Room(NamedTuple):
    """How much is shown: rows of a table, runs and iterations of the picture, characters of a name."""

    rows: int
    runs: int
    iterations: int
    name: int


ROOMS = (Room(40, 60, 100, 100), Room(25, 40, 60, 80), Room(12, 24, 40, 60), Room(5, 8, 20, 40))
"""Tried until the page is small enough."""


def page(fleet: Fleet, generator: str) -> str:
    """The file's text."""
    return fitted(
        {
            "title": shortened(fleet.name, room.name),
            "kicker": "mio2trace report, many runs",
            "generator": generator,
            "sections": [_section(fleet, room)],
            "footer": f"Made by {generator}. Times are kernel time of a steady iteration: medians over runs.",
        }
        for room in ROOMS
    )


def _section(fleet: Fleet, room: Room) -> dict[str, Any]:
    parts = [
        _problems(fleet, room),
        _regressions(fleet, room),
        _outliers(fleet, room),
        _heat(fleet, room),
        _failures(fleet, room),
        _odd(fleet, room),
        _runs(fleet, room),
    ]
    return {
        "name": fleet.name,
        "machine": "",
        "verdict": shortened(fleet.verdict, 400),
        "evidence": f"Versions: {', '.join(shortened(one, 40) for one in fleet.versions[-12:])}."
        if fleet.versions
        else "",
        "tiles": _tiles(fleet),
        "parts": [part for part in parts if part is not None],
    }


def _tiles(fleet: Fleet) -> list[dict[str, str]]:
    kernels = sum(row["kernels"] or 0 for row in fleet.runs)
    runs = {row["run"] for row in fleet.runs}
    tiles = [{"label": "Runs", "value": f"{len(runs):,}", "more": f"{kernels:,} kernels"}]
    if len(fleet.versions) > 1:
        tiles.append(
            {"label": "Versions", "value": str(len(fleet.versions)), "more": f"the last: {fleet.versions[-1]}"}
        )
    slower = sum(bool(row["clear"]) for row in fleet.regressions)
    if len(fleet.versions) > 1:
        tiles.append({"label": "Slower problems", "value": str(slower), "more": "than in the version before"})
    if fleet.failures:
        tiles.append({"label": "Failed", "value": f"{len(fleet.failures):,}", "more": ""})
    return tiles


# -- tables ----------------------------------------------------------------------------------------------------------


def _problems(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    """A row a problem, a column a version."""
    if not fleet.by_version:
        return None
    versions: list[str | None] = [*fleet.versions[-VERSIONS:]] or [None]
    cells: dict[str, dict[str | None, Row]] = {}
    for row in fleet.by_version:
        cells.setdefault(row["problem"], {})[row["version"]] = row
    ranked = sorted(cells.items(), key=lambda item: (-max(row["ns"] for row in item[1].values()), item[0]))
    most = max(row["ns"] for row in fleet.by_version)
    rows = []
    for problem, of in ranked[: room.rows]:
        shown = [of[version] for version in versions if version in of]
        last = shown[-1] if shown else next(iter(of.values()))
        name = shortened(problem, room.name)
        ratio = f"{shown[-1]['ns'] / shown[0]['ns']:.2f}" if len(shown) > 1 and shown[0]["ns"] else ""
        piece = svg.Piece(
            tables.colour(last["primitive"] or ""), last["ns"], False, f"{visible(name)}: {ms(last['ns'])}"
        )
        times = [f"{of[version]['ns'] / 1e6:,.3f}" if version in of else "" for version in versions]
        more = (ratio,) if len(versions) > 1 else ()
        bar = svg.stacked([piece], most, f"{visible(name)}: {ms(last['ns'])}")
        driver = (shortened(last["command"], 4 * room.name),) if last["command"] else ()
        rows.append({"cells": (name, *times, *more, bar), "details": driver, "detail_head": "driver line"})
    heads = [("problem", "text"), *((f"{shortened(one, 24)}, ms" if one else "ms", "number") for one in versions)]
    heads += [("last / first", "number")] if len(versions) > 1 else []
    left = len(ranked) - len(rows)
    table = tables.grid([*heads, ("of the slowest", "bar")], rows, f"{left} more problems." if left > 0 else "")
    note = "ms in a steady iteration, by version" if len(versions) > 1 else "ms in a steady iteration"
    return tables.part("Problems", note=note, table=table, caption="Problems, most time first")


def _regressions(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    columns = (
        ("problem", "problem"), ("from", "before"), ("to", "version"), ("ms before", "before_ms"), ("ms", "kernel_ms"),
        ("times", "ratio"), ("clear", "clear"), ("runs", "runs"), ("solvers", "solvers"),
    )  # fmt: skip
    note = "against the version before it" if fleet.regressions else ""
    return _table("Slower", columns, fleet.regressions, room, "What became slower, most time first", note)


def _outliers(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    columns = (
        ("run", "run"), ("rank", "rank"), ("version", "version"), ("ms", "kernel_ms"), ("usual ms", "usual_ms"),
        ("times", "ratio"), ("deviations", "deviations"), ("of runs", "runs"),
    )  # fmt: skip
    return _table("Outlier runs", columns, fleet.outliers, room, "Runs unlike the others with the same problems")


def _failures(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    columns = (("run", "run"), ("error", "error"), ("seconds", "seconds"))
    return _table("Failures", columns, fleet.failures, room, "Runs that could not be used")


def _odd(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    columns = (
        ("rule", "id"), ("severity", "severity"), ("runs", "runs"), ("ms", "ms"), ("worst in", "worst_run"),
        ("try", "advice"),
    )  # fmt: skip
    return _table("Findings", columns, fleet.odd, room, "By the number of runs, worst first", "docs/findings.md")


def _runs(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    columns = (
        ("run", "run"), ("rank", "rank"), ("version", "version"), ("iterations", "iterations"), ("ms", "kernel_ms"),
        ("kernels", "kernels"), ("searches %", "find_percent"), ("slowest problem", "slowest_problem"),
    )  # fmt: skip
    return _table("Runs", columns, fleet.runs, room, "Runs by name")


def _table(
    head: str, columns: Sequence[tuple[str, str]], found: Sequence[Row], room: Room, caption: str, note: str = ""
) -> dict[str, Any] | None:
    """A part with a table, without columns that say nothing; None without a row."""
    if not found:
        return None
    kept = [(title, name) for title, name in columns if any(row[name] is not None for row in found)]
    numbers = {name for _, name in kept if all(isinstance(row[name], (int, float, type(None))) for row in found)} - {
        "every_run"
    }
    rows = [{"cells": tuple(_cell(row[name], room) for _, name in kept), "details": ()} for row in found[: room.rows]]
    left = len(found) - len(rows)
    table = tables.grid(
        [(title, "number" if name in numbers else "text") for title, name in kept],
        rows,
        f"{left:,} more." if left > 0 else "",
    )
    return tables.part(head, note=note, table=table, caption=caption)


def _cell(value: Any, room: Room) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:,.6g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else shortened(value, 2 * room.name)
    )


# -- the picture -----------------------------------------------------------------------------------------------------


def _heat(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    """A row a run and rank, a cell an iteration: the darker the longer it took beside the run's median."""
    rows: dict[tuple[str, int | None], list[Row]] = {}
    for row in fleet.iterations:
        rows.setdefault((row["run"], row["rank"]), []).append(row)
    several = {key: of for key, of in rows.items() if len(of) > 1}
    if not several:
        return None
    shown = list(several.items())[: room.runs]
    longest = min(max(len(of) for _, of in shown), room.iterations)
    wide = (_WIDE - _LEFT) / longest
    marks = []
    for place, ((run, rank), of) in enumerate(shown):
        name = visible(shortened(run if rank is None else f"{run}, rank {rank}", 48))
        y = place * _TALL
        marks.append(svg.Shown('<text class="end" x="{}" y="{}">{}</text>').format(_LEFT - 8, y + _TALL - 4, name))
        usual = median([row["ns"] for row in of if row["steady"]] or [row["ns"] for row in of])
        for at, row in enumerate(of[:longest]):
            more = row["ns"] / usual if usual else 1.0
            said = f"{name}, iteration {row['iteration']}: {ms(row['ns'])}, {more:.2f} times the median"
            dark = min(max(more - 0.5, 0.0) / (_HOTTEST - 0.5), 1.0)
            marks.append(
                _CELL.format(
                    said, "conv" if row["steady"] else "first", f"{0.08 + 0.92 * dark:.2f}",
                    f"{_LEFT + at * wide:.1f}", y, f"{max(wide - 1, 0.6):.1f}", _TALL - 2,
                )
            )  # fmt: skip
    picture = svg.Shown('<svg class="run" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDE, len(shown) * _TALL, "How long each iteration took", Markup("").join(marks)
    )
    legend = [
        {"colour": "conv", "helps": False, "label": f"steady; the darkest took {_HOTTEST:g} times the median or more"},
        {"colour": "first", "helps": False, "label": "cold, or cut off"},
    ]
    left = len(several) - len(shown)
    texts = [f"{left:,} more runs."] if left > 0 else []
    note = f"the first {longest}" if any(len(of) > longest for _, of in shown) else ""
    return tables.part("Iterations", note=note, picture=picture, legend=legend, texts=texts)
