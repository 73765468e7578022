"""What each operation's kernels cost, as columns beside the operation's own, and summed over equal problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mio2trace.align import NONE
from mio2trace.measures import Cost, Measures
from mio2trace.measures.statistics import percent
from mio2trace.ops.operation import Operation
from mio2trace.reports import ops as report
from mio2trace.reports.tables import Cell, Row, Table, grouped

PLACE = ("layer", "layer_direction", "iteration")
"""Columns of where an operation ran: the layer, whether in its forward or backward pass, in which iteration."""
EACH = ("kernels", "kernel_ns", "share_percent", "gflops", "helpers_ns", "transposes_ns", "sure")
"""Columns of an operation: ``helpers_ns`` is part of ``kernel_ns`` (im2col, fills, transposes, ...), ``transposes_ns``
part of that; ``share_percent`` is of all kernels in the profile; ``sure`` is false when a link is not."""
SUMMED = (
    "kernels", "kernel_ns", "mean_ns", "min_ns", "max_ns", "share_percent", "gflops", "helpers_percent",
    "transposes_percent",
)  # fmt: skip
"""Columns of a group; means, least and most are of its operations that have kernels, shares of its ``kernel_ns``."""


def table(operations: Iterable[Operation], measures: Measures) -> Table:
    """One row an operation, in log order, with what it cost."""
    whole = measures.whole.timed_ns
    rows: list[Row] = []
    for operation in operations:
        cells = report.row(operation)
        cells["kernels"] = 0
        if operation.index in measures.operation_at and measures.first_of[operation.index] != NONE:
            cells |= _cells(measures.of_operation(operation.index), whole)
            cells |= _place(measures, operation.index)
        rows.append(cells)
    plain = report.table([("", ())])
    brief = [name for name in report.BRIEF if name not in ("doubts", "flop", "bytes_min", "batch")]
    return msgspec.structs.replace(
        plain, columns=(*plain.columns, *PLACE, *EACH), rows=rows, brief=(*brief, "layer", *EACH, "doubts")
    )


def _place(measures: Measures, index: int) -> dict[str, Cell]:
    """The layer that it ran in, with direction and iteration where that is one."""
    links = measures.alignment.links
    runs = [links.runs[number] for number in measures.runs_of_operation.get(index, ())]
    if not runs:
        return {}
    cells: dict[str, Cell] = {}
    for name, values in (
        ("layer", tuple(dict.fromkeys(run.layer for run in runs))),
        ("layer_direction", tuple(dict.fromkeys(run.direction for run in runs if run.direction is not None))),
    ):
        if values:
            cells[name] = values[0] if len(values) == 1 else values
    iterations = {links.passes[run.pass_].iteration for run in runs}
    iteration = iterations.pop()
    return cells if iterations or iteration is None else {**cells, "iteration": iteration}


def _cells(cost: Cost, whole: int) -> dict[str, Cell]:
    cells: dict[str, Cell | None] = {
        "kernels": cost.kernels,
        "kernel_ns": cost.kernel_ns,
        "share_percent": percent(cost.kernel_ns, whole) if cost.kernel_ns is not None else None,
        "gflops": cost.gflops,
        "helpers_ns": cost.helpers_ns or None,
        "transposes_ns": cost.transposes_ns or None,
        "sure": None if cost.sure else "false",
    }
    return {name: cell for name, cell in cells.items() if cell is not None}


def summed(each: Table, by: Sequence[str]) -> Table:
    """One row for all rows of `table` that agree in ``by``, most time first: calls, sum, mean, least and most.

    Raises KeyError with the first column that is not there.
    """
    together = grouped(msgspec.structs.replace(each, columns=tuple(c for c in each.columns if c not in EACH)), by)
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in each.rows:
        parts.setdefault(_key(row, by), []).append(row)
    rows: list[Row] = []
    for group in together.rows:
        own = {name: cell for name, cell in group.items() if name not in EACH}
        rows.append({**own, **_sums(parts[_key(group, by)])})
    rows.sort(key=lambda row: -_number(row.get("kernel_ns")))
    first = ("count", *by)
    return msgspec.structs.replace(
        together,
        columns=(*first, *SUMMED, *(name for name in together.columns if name not in first)),
        rows=rows,
        brief=(*first, *SUMMED, *(name for name in ("algorithm", "solver") if name not in by)),
    )


def _key(row: Row, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row.get(name, "")) for name in by)


def _sums(rows: Sequence[Row]) -> Mapping[str, Cell]:
    ran = [int(_number(row["kernel_ns"])) for row in rows if "kernel_ns" in row]
    if not ran:
        return {"kernels": 0}
    total = sum(ran)
    sums: dict[str, Cell] = {
        "kernels": int(sum(_number(row.get("kernels")) for row in rows)),
        "kernel_ns": total,
        "mean_ns": total / len(ran),
        "min_ns": min(ran),
        "max_ns": max(ran),
        "share_percent": sum(_number(row.get("share_percent")) for row in rows),
    }
    work = sum(_number(row.get("gflops")) * _number(row.get("kernel_ns")) for row in rows)
    if work and total:
        sums["gflops"] = work / total
    for name in ("helpers", "transposes"):
        part = sum(_number(row.get(f"{name}_ns")) for row in rows)
        if part:
            sums[f"{name}_percent"] = 100 * part / total
    return sums


def _number(cell: Cell | None) -> float:
    return cell if isinstance(cell, (int, float)) else 0
