"""Cells with the cost of a steady iteration, and the table of kernels by name: the same in every table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from mio2trace.measures import Measures, total
from mio2trace.measures.counters import MEASURED, Measured, measured, together
from mio2trace.measures.device_time.launches import launch_times
from mio2trace.measures.ranking import Key, Ranking, SteadyCost
from mio2trace.measures.statistics import deviation, mean, median, part_of
from mio2trace.reports.tables import Cell, Row, Table, Unit, known

COST = ("kernel", "kernel_median", "kernel_min", "kernel_max", "kernel_std")
"""Times per steady iteration."""


def cost_columns(unit: Unit) -> tuple[str, ...]:
    """Return the columns of `ranked_rows` in order, except those that name the row."""
    first, *others = unit.columns(*COST)
    return (
        first, "percent_of_kernel_time", "cumulative_percent", *others, "calls", "kernels", "gflops",
        unit.column("find"), "find_kernels",
        unit.column("host"), unit.column("helpers"), unit.column("transposes"), "flop", "bytes_min",
        "iterations", "unsure",
    )  # fmt: skip


def cost_cells(costs: Sequence[SteadyCost[Any]], iterations: int, unit: Unit) -> dict[str, Cell]:
    """Return the kernel time of one row per steady iteration of one or several runs, and its other costs.

    ``iterations``: their number in all of the runs.
    """
    samples = [ns for cost in costs for ns in cost.per_iteration_ns]
    samples += [0] * (iterations - len(samples))  # absent in the iterations of the other runs
    whole = total(cost.cost for cost in costs)

    def part(number: int | None) -> float | None:
        return None if number is None or not iterations else part_of(number, iterations)

    cells: dict[str, Cell | None] = {
        "iterations": iterations,
        "calls": part(sum(cost.calls for cost in costs)),
        "kernels": part(whole.kernels),
        "copies": part(whole.copies),
        "flop": part(whole.flop),
        "bytes_min": part(whole.bytes),
        "unsure": whole.unsure or None,
    }
    times: dict[str, float | None] = {"host": part(whole.host_ns)}
    if samples and not whole.untimed:
        std = deviation(samples)
        scatter = (median(samples), min(samples), max(samples), std) if std is not None else (None,) * 4
        times |= zip(COST, (mean(samples), *scatter), strict=True)
        times |= {"helpers": part(whole.helpers_ns) or None, "transposes": part(whole.transposes_ns) or None}
        cells["gflops"] = whole.gflops
    searches = sum(cost.find_kernels for cost in costs)
    if searches:
        times["find"] = sum(cost.find_ns for cost in costs)
        cells["find_kernels"] = searches
    return known(cells) | unit.cells(times)


def ranked_rows(ranking: Ranking[Key], names: Mapping[Key, Row], unit: Unit) -> list[Row]:
    """Return a row for each entry of ``ranking``, with the cells ``names`` of its key."""
    iterations = len(ranking.total.per_iteration_ns)
    return [{**names[cost.key], **_shares(cost), **cost_cells([cost], iterations, unit)} for cost in ranking]


def ends(ranking: Ranking[Key], name: str, unit: Unit) -> list[Row]:
    """Return the last rows, named in the column ``name``: the time in no row, and the total."""
    iterations = len(ranking.total.per_iteration_ns)
    below: list[Row] = []
    for label, cost in (("" if ranking.rest is None else ranking.rest.key, ranking.rest), ("total", ranking.total)):
        if cost is not None:
            cells = cost_cells([cost], iterations, unit)
            for absent in ("gflops", "calls", unit.column("host")):
                cells.pop(absent, None)
            below.append({name: label, "percent_of_kernel_time": 100 * cost.share, **cells})
    return below


def _shares(cost: SteadyCost[Key]) -> dict[str, Cell]:
    if not cost.cumulative_share:
        return {}
    return {"percent_of_kernel_time": 100 * cost.share, "cumulative_percent": 100 * cost.cumulative_share}


def launch_cells(
    cost: SteadyCost[Any], unit: Unit, *, api_ns: int | None = None, queue_ns: int | None = None
) -> dict[str, Cell]:
    """Time per steady iteration in the launch calls and in the queue, each summed over all kernels."""
    if not cost.per_iteration_ns:
        return {}
    sums = (("api", api_ns), ("in_queue", queue_ns))
    return unit.cells({name: part_of(ns, len(cost.per_iteration_ns)) for name, ns in sums if ns is not None})


def kernel_table(measures: Measures, unit: Unit) -> Table:
    """Return one row per kernel name, most time per steady iteration first. Searches, set-up and warm-up are in the
    columns ``find``."""
    ranking, counted = measures.steady.kernels, measures.steady.counted
    times = launch_times(measures.alignment, counted.positions, counted.name_of, len(counted.names))
    in_queue = dict(zip(counted.names, times.queue_ns, strict=True))
    of_counters = _measured(measures)
    names = {
        cost.key: {
            "name": cost.key,
            **launch_cells(cost, unit, queue_ns=in_queue[cost.key]),
            **of_counters.get(cost.key, {}),
        }
        for cost in ranking
    }
    shown = [f"measured_{name}" for name in MEASURED if any(f"measured_{name}" in row for row in of_counters.values())]
    rows = ranked_rows(ranking, names, unit)
    columns = ["name", *(name for name in cost_columns(unit) if name not in ("kernels", "bytes_min"))]
    columns.insert(columns.index(unit.column("host")) + 1, unit.column("in_queue"))
    first, *others = unit.columns(*COST)
    brief = (
        "name", first, "percent_of_kernel_time", "cumulative_percent", "calls", *others, "gflops", unit.column("find"),
        unit.column("host"), unit.column("in_queue"),
    )  # fmt: skip
    columns += shown
    return Table(
        columns=tuple(columns), rows=rows, brief=(*brief, *shown), ends=ends(ranking, "name", unit) if rows else ()
    )


def _measured(measures: Measures) -> dict[str, dict[str, Cell]]:
    """Return the values of hardware counters by kernel name: bytes and operations per steady iteration, and rates over
    the kernel time. A name is left out if one of its kernels has no values."""
    profile, counted = measures.alignment.profile, measures.steady.counted
    iterations = max(1, len(measures.steady.iterations))
    parts: dict[str, list[Measured]] = defaultdict(list)
    for position in counted.kernels.tolist() if profile.counters else ():
        activity = profile.activities[position]
        parts[activity.name].append(measured(activity, profile.counters))
    cells: dict[str, dict[str, Cell]] = {}
    for name, of_name in parts.items():
        of_all = together(of_name)
        sums = {"read_bytes": of_all.read_bytes, "write_bytes": of_all.write_bytes, "flop": of_all.flop}
        means = {key: part_of(value, iterations) for key, value in sums.items() if value is not None}
        cells[name] = {f"measured_{key}": value for key, value in {**of_all.shown, **means}.items()}
    return cells
