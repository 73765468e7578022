"""What each operation's kernels cost, as columns beside the operation's own, and summed over equal problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.kernels.names import kernel_name
from mio2trace.ops.operation import Operation
from mio2trace.reports import ops as report
from mio2trace.reports.tables import Cell, Row, Table, grouped

EACH = ("kernels", "kernel_ns", "share_percent", "gflops", "helpers_ns", "transposes_ns", "sure")
"""Columns of an operation: ``helpers_ns`` is part of ``kernel_ns`` (im2col, fills, transposes, ...), ``transposes_ns``
part of that; ``share_percent`` is of all kernels in the profile; ``sure`` is false when a link is not."""
SUMMED = (
    "kernels", "kernel_ns", "mean_ns", "min_ns", "max_ns", "share_percent", "gflops", "helpers_percent",
    "transposes_percent",
)  # fmt: skip
"""Columns of a group; means, least and most are of its operations that have kernels, shares of its ``kernel_ns``."""


class Cost(msgspec.Struct, kw_only=True):
    """Of one operation: how many kernels it launched and what they took, in ns."""

    kernels: int = 0
    kernel_ns: int = 0
    helpers_ns: int = 0
    transposes_ns: int = 0
    sure: bool = True


def costs(alignment: Alignment) -> tuple[dict[int, Cost], int]:
    """By operation index, and the time of all kernels of the profile in ns."""
    links = alignment.links
    found: dict[int, Cost] = {}
    whole = 0
    for position, (index, activity) in enumerate(zip(links.operation_of, alignment.profile.activities, strict=True)):
        if activity.kind != "kernel":
            continue
        ns = 0 if activity.start_ns is None or activity.end_ns is None else activity.end_ns - activity.start_ns
        whole += ns
        if index == NONE:
            continue
        cost = found.setdefault(index, Cost())
        cost.kernels += 1
        cost.kernel_ns += ns
        name = kernel_name(activity.name)
        if name is not None and name.helps:
            cost.helpers_ns += ns
            if name.role == "transpose":
                cost.transposes_ns += ns
        cost.sure = cost.sure and position not in links.operation_unsure
    return found, whole


def table(operations: Iterable[Operation], alignment: Alignment) -> Table:
    """One row an operation, in log order, with what it cost."""
    found, whole = costs(alignment)
    rows: list[Row] = []
    for operation in operations:
        cells = report.row(operation)
        cost = found.get(operation.index)
        cells["kernels"] = 0
        if cost is not None:
            cells |= {"kernels": cost.kernels, "kernel_ns": cost.kernel_ns}
            cells |= {"share_percent": 100 * cost.kernel_ns / whole} if whole else {}
            if operation.flop and cost.kernel_ns and operation.phase == "run":
                cells["gflops"] = operation.flop / cost.kernel_ns
            if cost.helpers_ns:
                cells["helpers_ns"] = cost.helpers_ns
            if cost.transposes_ns:
                cells["transposes_ns"] = cost.transposes_ns
            if not cost.sure:
                cells["sure"] = "false"
        rows.append(cells)
    plain = report.table([("", ())])
    brief = [name for name in report.BRIEF if name not in ("doubts", "flop", "bytes_min", "batch")]
    return msgspec.structs.replace(
        plain, columns=(*plain.columns, *EACH), rows=rows, brief=(*brief, *(name for name in EACH), "doubts")
    )


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
