"""The cost of the kernels of each operation, as columns beside those of the operation, and sums over equal problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from mio2trace.align import NONE
from mio2trace.measures import Measures
from mio2trace.measures.cost import bandwidth
from mio2trace.measures.device_time.launches import launch_times
from mio2trace.ops.operation import Operation
from mio2trace.reports import ops as report
from mio2trace.reports.steady import cost_columns, ends, launch_cells, ranked_rows
from mio2trace.reports.tables import Cell, Row, Table, Unit, cell_text, grouped, known

PLACE = ("layer", "layer_direction", "iteration", "source")
"""Columns that show where an operation ran: the layer, the direction (forward or backward), the iteration, and the line
of the program that launched it."""
LAUNCHED = ("api", "in_queue")
"""Columns with the launches of an operation (`mio2trace.measures.device_time.launches`)."""
EACH = ("kernel", "percent_of_kernel_time", "kernels", "gflops", *LAUNCHED, "helpers", "transposes", "sure")
"""Columns of an operation. ``helpers`` is a part of ``kernel`` (im2col, fills, transposes, ...), ``transposes`` a part
of ``helpers``. ``percent_of_kernel_time``: of the kernel time of the whole recording. ``sure``: false if a link has low
confidence."""
BANDWIDTH = ("message_bytes", "algorithm_gb_per_s", "bus_gb_per_s")
"""Columns of collectives (`mio2trace.reports.op_times`)."""
_TIMES = ("kernel", *LAUNCHED, "helpers", "transposes", "mean", "min", "max")
SUMMED = (
    "kernels", "kernel", "mean", "min", "max", "percent_of_kernel_time", "gflops",
    "helpers_percent", "transposes_percent",
)  # fmt: skip
"""Columns of a group. Mean, least and most are over its operations that have kernels; shares are shares of ``kernel``.
"""
NS = Unit("ns")


def _named(names: Iterable[str], unit: Unit) -> tuple[str, ...]:
    return tuple(unit.column(name) if name in _TIMES else name for name in names)


def cost_table(operations: Iterable[Operation], measures: Measures, unit: Unit = NS) -> Table:
    """Return one row per operation, in log order, with its cost."""
    whole = measures.whole.timed_ns
    rows: list[Row] = []
    of_operation = measures.alignment.links.operation_of
    launched = launch_times(measures.alignment, np.arange(len(of_operation)), of_operation, len(measures.first_of))
    for operation in operations:
        index = operation.index
        cells = {**report.row(operation), "kernels": 0}
        if index in measures.operation_at and measures.first_of[index] != NONE:
            cost = measures.of_operation(index)
            times: dict[str, float | None] = {name: sums[index] for name, sums in zip(LAUNCHED, launched, strict=True)}
            parts = {"helpers": cost.helpers_ns or None, "transposes": cost.transposes_ns or None}
            times |= {"kernel": cost.kernel_ns, **parts}
            facts = {"kernels": cost.kernels, "gflops": cost.gflops, "sure": None if cost.sure else "false"}
            cells |= known(facts) | unit.cells(times) | _place(measures, index)
            if cost.kernel_ns is not None and whole:
                cells["percent_of_kernel_time"] = 100 * cost.kernel_ns / whole
        rows.append(cells)
    plain = report.table([("", ())])
    left = ("doubts", "flop", "bytes_min", "batch", "operation", "line")
    brief = [name for name in report.BRIEF if name not in left]
    each = _named(EACH, unit)
    return msgspec.structs.replace(
        plain,
        columns=(*plain.columns, *PLACE, *each),
        rows=rows,
        brief=("operation", "line", "layer", *each[:2], *brief, *each[2:], "doubts"),
        empty="the log has no operation",
    )


def steady_table(operations: Sequence[Operation], measures: Measures, by: Sequence[str], unit: Unit) -> Table:
    """Return one row for all operations with equal values in ``by`` (default: layer and name), by time per steady
    iteration.

    Searches are no calls: their time is in ``find``. A row has the cells that all of its operations share. Raises
    KeyError with the first unknown column.
    """
    plain = report.table([("", ())])
    for name in by:
        if name not in (*plain.columns, *PLACE):
            raise KeyError(name)
    steady = measures.steady
    own = {one.index: {**report.row(one), **_place(measures, one.index)} for one in operations}

    def key(index: int) -> tuple[str, ...]:
        layer_and_name = steady.operation_key(index)
        if not by:
            return layer_and_name
        # the name of a search differs from that of the operation that it serves
        return tuple(layer_and_name[1] if name == "name" else cell_text(own[index].get(name)) for name in by)

    shared: dict[tuple[str, ...], dict[str, Cell]] = {}
    for one in operations:
        if one.phase == "run":
            cells = own[one.index]
            before = shared.setdefault(key(one.index), cells)
            if before is not cells:
                shared[key(one.index)] = {name: cell for name, cell in before.items() if cells.get(name) == cell}
    ranking = steady.by_operation(key)
    collectives = _collectives(operations, key)
    launched = _launched(measures, key)
    first = tuple(by) or ("layer", "name")
    names: dict[tuple[str, ...], Row] = {}
    for cost in ranking:
        texts: dict[str, Cell] = {name: text for name, text in zip(first, cost.key, strict=True) if text}
        api_ns, queue_ns = launched.get(cost.key, (None, None))
        texts |= launch_cells(cost, unit, api_ns=api_ns, queue_ns=queue_ns)
        one_of = collectives.get(cost.key)
        made = None if one_of is None else bandwidth(one_of, cost.calls, cost.total_ns)
        rates = {} if made is None else {name: rate for name, rate in zip(BANDWIDTH, made, strict=True) if rate}
        names[cost.key] = {**texts, **shared.get(cost.key, {}), **rates} if cost.key in shared else texts
    rows = [row for row in ranked_rows(ranking, names, unit) if "phase" not in by or row.get("phase") != "find"]
    costs = cost_columns(unit)
    bandwidths = BANDWIDTH if collectives else ()
    others = (name for name in (*plain.columns, *PLACE) if name not in (*first, *costs))
    columns = (*first, *costs, *unit.columns(*LAUNCHED), *bandwidths, *others)
    brief = (
        *first, *costs[:3], "calls", "gflops",
        *(name for name in ("solver", "algorithm", "dtype") if name not in first),
        *costs[3:7], *unit.columns("find", "host", *LAUNCHED, "helpers", "transposes"),
        "kernels", "unsure", *bandwidths,
    )  # fmt: skip
    return msgspec.structs.replace(
        plain,
        columns=columns,
        rows=rows,
        brief=brief,
        ends=ends(ranking, first[0], unit) if rows else (),
        empty="no operation has kernels",
        keys=first,
    )


def _launched(
    measures: Measures, key: Callable[[int], tuple[str, ...]]
) -> Mapping[tuple[str, ...], tuple[int | None, int | None]]:
    """Return the sums of `launch_times` by key, over the operations that run in steady iterations."""
    steady, of_operation = measures.steady, measures.alignment.links.operation_of
    numbers: dict[tuple[str, ...], int] = {}
    row_of = [NONE] * (len(measures.first_of) + 1)  # the last one is for kernels in no operation
    for index, operation in measures.operation_at.items():
        if operation.phase == "run":
            row_of[index] = numbers.setdefault(key(index), len(numbers))
    column = np.array(row_of, np.int64)[np.asarray(of_operation)]
    times = launch_times(measures.alignment, steady.counted.positions, column, len(numbers))
    return {of: (times.api_ns[number], times.queue_ns[number]) for of, number in numbers.items()}


def _collectives(
    operations: Sequence[Operation], key: Callable[[int], tuple[str, ...]]
) -> Mapping[tuple[str, ...], Operation | None]:
    """Return by key one collective for all of them, if they send equal messages; None if the messages differ."""
    found: dict[tuple[str, ...], Operation | None] = {}
    for one in operations:
        if one.problem is None or one.problem.message_bytes() is None:
            continue
        other = found.setdefault(key(one.index), one)
        if other is not None and (other.facts.problem != one.problem):
            found[key(one.index)] = None
    return found


def _place(measures: Measures, index: int) -> dict[str, Cell]:
    """Return the layer of the operation; direction and iteration only if they are unique."""
    links, profile = measures.alignment.links, measures.alignment.profile
    runs = [links.runs[number] for number in measures.runs_of_operation.get(index, ())]
    cells: dict[str, Cell] = {}
    first = measures.first_of[index] if profile.line_of and index < len(measures.first_of) else NONE
    if first != NONE:
        line = profile.launched_by(profile.activities[first])
        if line:
            cells["source"] = line
    if not runs:
        return cells
    for name, values in (
        ("layer", tuple(dict.fromkeys(run.layer for run in runs))),
        ("layer_direction", tuple(dict.fromkeys(run.direction for run in runs if run.direction is not None))),
    ):
        if values:
            cells[name] = values[0] if len(values) == 1 else values
    iterations = {links.passes[run.pass_].iteration for run in runs}
    iteration = iterations.pop()
    return cells if iterations or iteration is None else {**cells, "iteration": iteration}


def summed(each: Table, by: Sequence[str], unit: Unit = NS) -> Table:
    """Return one row for all rows of `table` with equal values in ``by``, most time first: calls, sum, mean, least and
    most.

    Raises KeyError with the first unknown column.
    """
    own_columns = _named(EACH, unit)
    plain = tuple(name for name in each.columns if name not in own_columns)
    together = grouped(msgspec.structs.replace(each, columns=plain), by)
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in each.rows:
        parts.setdefault(_key(row, by), []).append(row)
    rows: list[Row] = []
    for group in together.rows:
        own = {name: cell for name, cell in group.items() if name not in own_columns}
        rows.append({**own, **_sums(parts[_key(group, by)], unit)})
    rows.sort(key=lambda row: -_number(row.get(unit.column("kernel"))))
    first = ("count", *by)
    named = _named(SUMMED, unit)
    return msgspec.structs.replace(
        together,
        columns=(*first, *named, *(name for name in together.columns if name not in first)),
        rows=rows,
        brief=(*first, *named, *(name for name in ("algorithm", "solver") if name not in by)),
    )


def _key(row: Row, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row.get(name, "")) for name in by)


def _sums(rows: Sequence[Row], unit: Unit) -> Mapping[str, Cell]:
    kernel = unit.column("kernel")
    ran = [_number(row[kernel]) for row in rows if kernel in row]
    if not ran:
        return {"kernels": 0}
    total = sum(ran)

    def whole(name: str) -> float:
        return sum(_number(row.get(name)) for row in rows)

    sums: dict[str, Cell] = {
        "kernels": int(whole("kernels")),
        "percent_of_kernel_time": whole("percent_of_kernel_time"),
        **dict(zip(_named(SUMMED[1:5], unit), (total, total / len(ran), min(ran), max(ran)), strict=True)),
    }
    work = sum(_number(row.get("gflops")) * _number(row.get(kernel)) for row in rows)
    if work and total:
        sums["gflops"] = work / total
    for name in ("helpers", "transposes"):
        if part := whole(unit.column(name)):
            sums[f"{name}_percent"] = 100 * part / total
    return sums


def _number(cell: Cell | None) -> float:
    return cell if isinstance(cell, (int, float)) else 0
