"""Many runs at a glance: problems by version, problems that became slower, outliers, iterations, failures.

`gather` runs the stored queries (`mio2trace.queries`) on a dataset, `page.page` makes one HTML file with the frame of
the report, `lines` a few lines of text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mio2trace.answer.names import distinct
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.measures.statistics import fixed
from mio2trace.outgoing import count, shortened, visible
from mio2trace.queries import DATASET, shipped
from mio2trace.queries.dataset import Dataset

Row = Mapping[str, Any]
_NO_NAME = "(no name)"
_NAMES = frozenset(("run", "problem", "id", "worst_run"))
"""Columns without which a row has no meaning; a file may lack any value."""
_VERSIONS = """
select version, count(*) as runs
from runs where version is not null and state is distinct from 'failed' group by version
order by list_transform(regexp_extract_all(version, '[0-9]+'), lambda part: try_cast(part as bigint)), version
"""
_BY_VERSION = """
select problem, device, any_value(primitive) as primitive, version, count(*) as runs, median(problems.kernel_ns) as ns,
  any_value(command) as command
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
