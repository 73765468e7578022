"""A fleet as one HTML page with the frame of the report: it has no script and loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from mio2trace.answer import svg, tables
from mio2trace.answer.tables import fitted
from mio2trace.findings import RULES
from mio2trace.findings.rule import ms
from mio2trace.fleet import Fleet, Row
from mio2trace.measures.statistics import fixed, median
from mio2trace.outgoing import count, shortened, visible

VERSIONS = 6
"""The most versions that are shown; the last ones are kept."""
_WIDE = 1000
_CELL = svg.Shown('<g><title>{}</title><rect class="{}" opacity="{}" x="{}" y="0" width="{}" height="14"/></g>')
_ROW = svg.Shown(
    '<span>{}</span><svg viewBox="0 0 {} 14" preserveAspectRatio="none" role="img"'
    ' aria-label="Iterations of {}">{}</svg>'
)
_HOTTEST = 2.0
"""Cells at this many times the median have the fullest colour."""


class Room(NamedTuple):
    """Limits: rows of a table, runs and iterations of the picture, characters of a name."""

    rows: int
    runs: int
    iterations: int
    name: int


ROOMS = (Room(40, 60, 100, 100), Room(25, 40, 60, 80), Room(12, 24, 40, 60), Room(5, 8, 20, 40))
"""Limits to try in turn until the page is small enough."""


def page(fleet: Fleet, generator: str) -> str:
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
        _table("Outlier runs", _OUTLIERS, fleet.outliers, room, "Runs unlike the others with the same problems"),
        _heat(fleet, room),
        _table("Failures", _FAILURES, fleet.failures, room, "Runs that could not be used"),
        _odd(fleet, room),
        _table("Runs", _RUNS, fleet.runs, room, "Runs by name; Find: MIOpen Find's part of all kernel time"),
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
    tiles = [("Runs", f"{len(runs):,}", count(kernels, "kernel"))]
    if len(fleet.versions) > 1:
        slower = sum(bool(row["clear"]) for row in fleet.regressions)
        tiles.append(("Versions", str(len(fleet.versions)), f"the last: {fleet.versions[-1]}"))
        tiles.append(("Slower problems", str(slower), "than in the version before"))
    if fleet.failures:
        tiles.append(("Failed", f"{len(fleet.failures):,}", ""))
    return [{"label": label, "value": value, "more": more} for label, value, more in tiles]


def _problems(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    """One row per problem and kind of GPU, one column per version."""
    if not fleet.by_version:
        return None
    versions: list[str | None] = [*fleet.versions[-VERSIONS:]] or [None]
    cells: dict[tuple[str, str | None], dict[str | None, Row]] = {}
    for row in fleet.by_version:
        cells.setdefault((row["problem"], row["device"]), {})[row["version"]] = row
    kinds = Counter(problem for problem, _ in cells)
    ranked = sorted(cells.items(), key=lambda item: (-max(row["ns"] for row in item[1].values()), str(item[0])))
    most = max(row["ns"] for row in fleet.by_version)
    rows = []
    for (problem, device), of in ranked[: room.rows]:
        shown = [of[version] for version in versions if version in of]
        last = shown[-1] if shown else next(iter(of.values()))
        name = shortened(problem if kinds[problem] == 1 else f"{problem} on {device or 'an unknown GPU'}", room.name)
        ratio = f"{shown[-1]['ns'] / shown[0]['ns']:.2f}" if len(shown) > 1 else ""
        piece = svg.Piece(
            tables.colour(last["primitive"] or ""), last["ns"], False, f"{visible(name)}: {ms(last['ns'])}"
        )
        times = [fixed(of[version]["ns"] / 1e6, 3) if version in of else "" for version in versions]
        more = (ratio,) if len(versions) > 1 else ()
        bar = svg.stacked([piece], most, f"{visible(name)}: {ms(last['ns'])}")
        driver = (shortened(last["command"], 4 * room.name),) if last["command"] else ()
        rows.append({"cells": (name, *times, *more, bar), "details": driver, "detail_head": "driver line"})
    heads = [("problem", "text"), *((f"{shortened(one, 24)}, ms" if one else "ms", "number") for one in versions)]
    heads += [("last / first", "number")] if len(versions) > 1 else []
    left = len(ranked) - len(rows)
    rest = f"{count(left, 'more problem')}." if left > 0 else ""
    table = tables.grid([*heads, ("of the slowest", "wide bar")], rows, rest)
    note = "ms in a steady iteration, by version" if len(versions) > 1 else "ms in a steady iteration"
    return tables.part("Problems", note=note, table=table, caption="Problems, most time first")


def _regressions(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    columns = [
        ("problem", "problem", ""), ("from", "before", "wide"), ("to", "version", "wide"),
        ("ms before", "before_ms", ""),
        ("ms", "kernel_ms", ""), ("times", "ratio", ""), ("clear", "clear", ""), ("runs", "runs", "wide"),
        ("solvers", "solvers", "wide"),
    ]  # fmt: skip
    pairs = {(row["before"], row["version"]) for row in fleet.regressions}
    note = "against the version before it"
    if len(pairs) == 1:
        ((before, version),) = pairs
        note = f"{shortened(version, 24)} against {shortened(before, 24)}"
        columns = [one for one in columns if one[1] not in ("before", "version")]
    rows = [{**row, "clear": "too few runs" if row["clear"] is None else row["clear"]} for row in fleet.regressions]
    return _table("Slower", columns, rows, room, "Problems that became slower, most time first", note)


def _odd(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    """The findings by rule, each with the advice for the worst run."""
    if not fleet.odd:
        return None
    titles = {rule.id: rule.title for rule in RULES}
    runs = len({row["run"] for row in fleet.runs})
    found = []
    for row in fleet.odd[: room.rows]:
        at_stake = f", {ms(1e6 * row['worst_ms'])} there" if row["worst_ms"] else ""
        found.append(
            {
                "severity": row["severity"],
                "title": titles.get(row["id"], f"{row['id']}."),
                "number": f"In {row['runs']:,} of {count(runs, 'run')};"
                f" worst in {shortened(row['worst_run'], room.name)}{at_stake}.",
                "scope": "",
                "advice": shortened(row["advice"] or "", 4 * room.name),
                "rule": row["id"],
                "drivers": (),
            }
        )
    return tables.part("Findings", note="by severity, with the advice for the worst run", findings=found)


_OUTLIERS = (
    ("run", "run", ""), ("rank", "rank", ""), ("version", "version", "wide"), ("ms", "kernel_ms", ""),
    ("usual ms", "usual_ms", ""), ("times", "ratio", ""), ("deviations", "deviations", "wide"),
    ("of runs", "runs", "wide"),
)  # fmt: skip
_FAILURES = (("run", "run", ""), ("error", "error", ""), ("seconds", "seconds", "wide"))
_RUNS = (
    ("run", "run", ""), ("rank", "rank", "wide"), ("version", "version", "wide"), ("iterations", "iterations", ""),
    ("ms", "kernel_ms", ""), ("kernels", "kernels", "wide"), ("Find %", "find_percent", "wide"),
    ("slowest problem", "slowest_problem", "wide"),
)  # fmt: skip
"""Columns of tables: the heading, the name in the query, and the class."""


def _table(
    head: str,
    columns: Sequence[tuple[str, str, str]],
    found: Sequence[Row],
    room: Room,
    caption: str,
    note: str = "",
) -> dict[str, Any] | None:
    """Return a part with a table, without empty columns; None without rows. A narrow page leaves out ``wide``
    columns."""
    if not found:
        return None
    kept = [one for one in columns if any(row[one[1]] is not None for row in found)]
    numbers = {name for _, name, _ in kept if all(type(row[name]) in (int, float, type(None)) for row in found)}
    rows = [
        {"cells": tuple(_cell(row[name], name, room) for _, name, _ in kept), "details": ()}
        for row in found[: room.rows]
    ]
    left = len(found) - len(rows)
    table = tables.grid(
        [(title, f"{wide} {'number' if name in numbers else 'text'}".strip()) for title, name, wide in kept],
        rows,
        f"{left:,} more." if left > 0 else "",
    )
    return tables.part(head, note=note, table=table, caption=caption)


_DIGITS = {"before_ms": 3, "kernel_ms": 3, "usual_ms": 3, "ratio": 2, "deviations": 1, "find_percent": 1, "seconds": 1}


def _cell(value: Any, name: str, room: Room) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _DIGITS:
        return fixed(value, _DIGITS[name])
    return f"{value:,}" if isinstance(value, int) else shortened(str(value), 2 * room.name)


def _heat(fleet: Fleet, room: Room) -> dict[str, Any] | None:
    """One row per run and rank, one cell per iteration; longer iterations have a fuller colour."""
    rows: dict[tuple[str, int | None], list[Row]] = {}
    for row in fleet.iterations:
        rows.setdefault((row["run"], row["rank"]), []).append(row)
    several = {key: of for key, of in rows.items() if len(of) > 1}
    if not several:
        return None
    shown = list(several.items())[: room.runs]
    longest = min(max(len(of) for _, of in shown), room.iterations)
    wide = _WIDE / longest
    rows_shown = []
    for (run, rank), of in shown:
        name = visible(shortened(run if rank is None else f"{run}, rank {rank}", 48))
        usual = median([row["ns"] for row in of if row["steady"]] or [row["ns"] for row in of])
        cells = []
        for at, row in enumerate(of[:longest]):
            more = row["ns"] / usual if usual else 1.0
            said = f"{name}, iteration {row['iteration']}: {ms(row['ns'])}, {more:.2f} times the median"
            dark = min(max(more - 0.5, 0.0) / (_HOTTEST - 0.5), 1.0)
            cells.append(
                _CELL.format(
                    said, "conv" if row["steady"] else "first", f"{0.08 + 0.92 * dark:.2f}",
                    f"{at * wide:.1f}", f"{max(wide - 1, 0.6):.1f}",
                )
            )  # fmt: skip
        rows_shown.append(_ROW.format(name, _WIDE, name, Markup("").join(cells)))
    picture = Markup('<div class="heat">') + Markup("").join(rows_shown) + Markup("</div>")
    steady = f"steady; full colour: {_HOTTEST:g} times the median or more"
    legend = [
        {"colour": colour, "helps": False, "label": label}
        for colour, label in (("conv", steady), ("first", "cold, or cut off"))
    ]
    left = len(several) - len(shown)
    texts = [f"{count(left, 'more run')}."] if left > 0 else []
    note = f"the first {longest}" if any(len(of) > longest for _, of in shown) else ""
    return tables.part("Iterations", note=note, picture=picture, legend=legend, texts=texts)
