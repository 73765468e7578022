"""Many runs at a glance: problems by version, problems that became slower, outliers, iterations, failures.

`gather` runs the stored queries (`mio2trace.queries`) on a dataset, `page` makes one HTML file with the frame of the
report, without script, `lines` a few lines of text.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from mio2trace.answer import html, svg
from mio2trace.answer.content import distinct
from mio2trace.answer.html import fitted
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.findings import RULES
from mio2trace.findings.rule import ms
from mio2trace.measures.statistics import fixed, median
from mio2trace.outgoing import count, shortened, visible
from mio2trace.queries import DATASET, Dataset, shipped

Row = Mapping[str, Any]
_NO_NAME = "(no name)"
_NAMES = frozenset(("run", "problem", "id", "worst_run"))
"""Columns without which a row has no meaning; a file may lack any value."""
_VERSIONS = """
select version, count(distinct run) as runs
from runs where version is not null and state is distinct from 'failed' group by version
order by list_transform(regexp_extract_all(version, '[0-9]+'), lambda part: try_cast(part as bigint)), version
"""
_BY_VERSION = """
select problem, device, any_value(primitive) as primitive, version, count(distinct runs.run) as runs,
  median(problems.kernel_ns) as ns,
  first(command order by problems.kernel_ns desc, problems.run, command) filter (command is not null) as command
from problems join runs on runs.run = problems.run and runs.rank is not distinct from problems.rank
where problems.kernel_ns > 0 group by problem, device, version
"""
_ITERATIONS = """
select run, rank, iteration, steady, coalesce(step_ns, kernel_ns) as ns
from iterations where kernels > 0 order by run, rank, iteration
"""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the report on a dataset. ``by_version``: kernel time of each problem in each version, medians over
    runs. ``iterations``: of every run. The others are the answers of the queries with these names."""

    name: str
    versions: tuple[str, ...]
    runs: Sequence[Row]
    by_version: Sequence[Row]
    problems: Sequence[Row]
    regressions: Sequence[Row]
    outliers: Sequence[Row]
    iterations: Sequence[Row]
    failures: Sequence[Row]
    odd: Sequence[Row]

    @property
    def verdict(self) -> str:
        """Return one sentence: slower problems, the number of runs, failures."""
        runs = count(len({row["run"] for row in self.runs}), "run")
        if len(self.versions) > 1:
            runs += f" of {count(len(self.versions), 'version')}"
        devices = {row["device"] for row in self.runs if row["device"]}
        if len(devices) > 1:
            runs += f" on {count(len(devices), 'kind')} of GPU"
        words = [runs]
        slower = [row for row in self.regressions if row["clear"]]
        undecided = sum(row["clear"] is None for row in self.regressions)
        if slower:
            worst = slower[0]
            words.append(
                f"{count(len(slower), 'problem')} clearly slower than in the version before, most of all"
                f" {worst['problem']}: {worst['before_ms']:g} -> {worst['kernel_ms']:g} ms"
            )
        elif undecided:
            words.append(
                f"{count(undecided, 'problem')} slower than in the version before, but fewer than 3 runs of a version"
                " decide nothing"
            )
        elif len(self.versions) > 1:
            words.append("no problem is clearly slower than in the version before")
        elif self.problems:
            first = self.problems[0]
            words.append(f"most time in {first['problem']}: {first['kernel_ms']:g} ms per iteration")
        words.append(count(len(self.outliers), "outlier") if self.outliers else "no outlier")
        words.append(f"{count(len(self.failures), 'run')} failed" if self.failures else "no run failed")
        return "; ".join(words) + "."


def gather(dataset: Dataset, name: str) -> Fleet:
    """Run every query once. Raises `mio2trace.notes.InputError`."""
    queries = shipped(DATASET)

    def rows(sql: str) -> list[Row]:
        answer = dataset.ask(sql)
        return [dict(zip(answer.columns, map(_named, answer.columns, row), strict=True)) for row in answer.rows]

    return Fleet(
        name=name,
        versions=tuple(row["version"] for row in rows(_VERSIONS)),
        runs=rows(queries["runs"].sql),
        by_version=rows(_BY_VERSION),
        problems=rows(queries["slowest problems"].sql),
        regressions=rows(queries["regressions"].sql),
        outliers=rows(queries["outlier runs"].sql),
        iterations=rows(_ITERATIONS),
        failures=rows(queries["failures"].sql),
        odd=rows(queries["what is odd"].sql),
    )


def _named(column: str, value: Any) -> Any:
    return _NO_NAME if value is None and column in _NAMES else value


# ---------------------------------------------------------------------------------------------------------------------
# A fleet for a terminal: the answer, then the first rows of each table, in at most `MOST_LINES` lines of `WIDTH`
# columns.

SHOWN = 3
"""Rows of a table."""
LABEL, TIME, RATIO, LAST = 12, 9, 7, 18
NAME = WIDTH - LABEL - TIME - RATIO - LAST
_Cells = tuple[str, str, str, str]


def lines(fleet: Fleet) -> Iterator[str]:
    """Return the lines. Times are kernel time per steady iteration, medians over runs."""
    found = [
        *textwrap.wrap(visible(fleet.verdict), WIDTH, subsequent_indent="  ", max_lines=3, placeholder=" ..."),
        f"{'ms per iteration':>{LABEL + NAME + TIME}}{'ratio':>{RATIO}}",
    ]
    clear = [row for row in fleet.regressions if row["clear"]]
    slower = clear or fleet.regressions
    for head, rows in (
        (
            "slower" if clear else "slower?",
            [(row["problem"], _ms(row), _ratio(row), f"{row['before']} -> {row['version']}") for row in slower],
        ),
        ("problems", [(row["problem"], _ms(row), "", count(row["runs"], "run")) for row in fleet.problems]),
        (
            "outliers",
            [(_name(row), _ms(row), _ratio(row), f"of {count(row['runs'], 'run')}") for row in fleet.outliers],
        ),
        ("findings", [(row["id"], "", "", f"in {count(row['runs'], 'run')}") for row in fleet.odd]),
        ("failed", [(f"{row['run']}: {row['error']}", "", "", "") for row in fleet.failures]),
    ):
        found += _listed(head, rows)
    yield from found[:MOST_LINES]


def _listed(head: str, rows: Sequence[_Cells]) -> Iterator[str]:
    shown = rows[:SHOWN]
    names = [name for name, *_ in shown]
    wide = NAME - 1 if any(time or last for _, time, _, last in shown) else WIDTH - LABEL
    for at, (name, (_, time, ratio, last)) in enumerate(zip(distinct(names, names, wide), shown, strict=True)):
        more = f" (+{len(rows) - SHOWN})" if len(rows) > SHOWN and at == SHOWN - 1 else ""
        room = LAST - 2 - len(more)
        text = f"{head if not at else '':<{LABEL}}{visible(name):<{NAME}}"
        text += f"{time:>{TIME}}{ratio:>{RATIO}}  {visible(shortened(last, room))}{more}"
        yield text.rstrip()[:WIDTH]


def _ms(row: Row) -> str:
    return fixed(row["kernel_ms"], 3)


def _ratio(row: Row) -> str:
    return f"{row['ratio']:.2f}"


def _name(row: Row) -> str:
    return str(row["run"]) if row["rank"] is None else f"{row['run']}, rank {row['rank']}"


# -- A fleet as a page -------------------------------------------------------------------------------------------------

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


def _tiles(fleet: Fleet) -> list[html.Tile]:
    kernels = sum(row["kernels"] or 0 for row in fleet.runs)
    runs = {row["run"] for row in fleet.runs}
    tiles = [("Runs", f"{len(runs):,}", count(kernels, "kernel"))]
    if len(fleet.versions) > 1:
        slower = sum(bool(row["clear"]) for row in fleet.regressions)
        tiles.append(("Versions", str(len(fleet.versions)), f"the last: {fleet.versions[-1]}"))
        tiles.append(("Slower problems", str(slower), "than in the version before"))
    if fleet.failures:
        tiles.append(("Failed", f"{len(fleet.failures):,}", ""))
    return tiles


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
        piece = svg.Piece(html.colour(last["primitive"] or ""), last["ns"], False, f"{visible(name)}: {ms(last['ns'])}")
        times = [fixed(of[version]["ns"] / 1e6, 3) if version in of else "" for version in versions]
        more = (ratio,) if len(versions) > 1 else ()
        bar = svg.stacked([piece], most, f"{visible(name)}: {ms(last['ns'])}")
        driver = (shortened(last["command"], 4 * room.name),) if last["command"] else ()
        rows.append({"cells": (name, *times, *more, bar), "details": driver, "detail_head": "driver line"})
    heads = ["problem", *(f"{shortened(one, 24)}, ms" if one else "ms" for one in versions)]
    heads += ["last / first"] if len(versions) > 1 else []
    left = len(ranked) - len(rows)
    rest = f"{count(left, 'more problem')}." if left > 0 else ""
    note = "ms in a steady iteration, by version" if len(versions) > 1 else "ms in a steady iteration"
    heads_and_bar: list[str | tuple[str, str]] = [*heads, ("of the slowest", "wide bars")]
    return html.listing("Problems", heads_and_bar, rows, rest, note=note, caption="Problems, most time first")


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
    return html.part("Findings", note="by severity, with the advice for the worst run", findings=found)


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
    kept = [one for one in columns if any(row[one[1]] is not None for row in found)]
    numbers = {name for _, name, _ in kept if all(type(row[name]) in (int, float, type(None)) for row in found)}
    rows = [
        {"cells": tuple(_cell(row[name], name, room) for _, name, _ in kept), "details": ()}
        for row in found[: room.rows]
    ]
    left = len(found) - len(rows)
    heads = [(title, f"{wide}{' number' * (name in numbers)}".strip()) for title, name, wide in kept]
    return html.listing(head, heads, rows, f"{left:,} more." if left > 0 else "", note=note, caption=caption)


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
    legend = [html.key("conv", steady), html.key("first", "cold, or cut off")]
    left = len(several) - len(shown)
    texts = [f"{count(left, 'more run')}."] if left > 0 else []
    note = f"the first {longest}" if any(len(of) > longest for _, of in shown) else ""
    return html.part("Iterations", note=note, picture=picture, legend=legend, texts=texts)
