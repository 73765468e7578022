"""Names that fit into a column and differ wherever the full names differ; cells of a page and of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, ProblemRow, RankRow, Section
from mio2trace.kernels.names import distinct, short_kernel
from mio2trace.measures.statistics import fixed
from mio2trace.measures.step_time import StepKind
from mio2trace.outgoing import shortened, visible

__all__ = ["distinct", "ms_cell", "rank_cells", "short_kernel", "shown_names", "spent_cells", "step_cells"]


def shown_names(
    rows: Sequence[LayerRow | OperationRow | ProblemRow | KernelRow], width: int, *, count_calls: bool = False
) -> list[str]:
    """Return the names of the rows of a list, the same in every form of the answer. The number of calls follows the
    name of a problem if no column shows it: without a profile, or with ``count_calls``."""
    calls = [
        f" x {row.calls:,.0f}" if isinstance(row, ProblemRow) and (row.ns is None or count_calls) else ""
        for row in rows
    ]
    width -= max(map(len, calls), default=0)
    names = [_name(row, width) for row in rows]
    count = Counter(names)
    for at, row in enumerate(rows):
        if count[names[at]] > 1 and isinstance(row, OperationRow) and row.layer:
            names[at] = _in_layer(row.name, row.layer, width)
    short = [short_kernel(n) if isinstance(row, KernelRow) else n for n, row in zip(names, rows, strict=True)]
    return [f"{name}{times}" for name, times in zip(distinct(names, short, width), calls, strict=True)]


def _name(row: LayerRow | OperationRow | ProblemRow | KernelRow, width: int) -> str:
    if isinstance(row, LayerRow):
        return f"{row.name} {row.direction}" if row.direction else row.name
    if isinstance(row, OperationRow) and row.layer:
        return f"{row.name} in {row.layer}" if len(row.name) + len(row.layer) + 4 <= width else row.name
    return row.name.removeprefix("void ") if isinstance(row, KernelRow) else row.name


def _in_layer(name: str, layer: str, width: int) -> str:
    """Shorten an operation whose name is not unique: its layer matters more than the end of its name."""
    longest = width // 2
    if len(layer) > longest:
        layer = f"{layer[: longest // 3]}...{layer[3 + longest // 3 - longest :]}"
    return f"{shortened(name, width - len(layer) - 4)} in {layer}"


def ms_cell(ns: float | None) -> str:
    """Return milliseconds; empty if the time is not known."""
    return "" if ns is None else fixed(ns / 1e6, 3)


def spent_cells(section: Section) -> list[tuple[str, ...]]:
    """Return name, ms, percent and cause of each part of the step."""
    return [
        (one.label, ms_cell(one.ns), fixed(100 * one.share, 1), one.hint if one.part != "compute" else "")
        for one in section.spent
    ]


def step_cells(kind: StepKind) -> tuple[str, ...]:
    """Return phase, batch, tokens, number, ms per step, ms of kernels, and kernels for a kind of steps."""
    return (
        kind.phase,
        "" if kind.batch is None else f"{kind.batch:,}",
        "" if kind.tokens is None else f"{kind.tokens / kind.steps:,.0f}",
        f"{kind.steps:,}",
        ms_cell(kind.step_ns),
        ms_cell(kind.kernel_ns),
        f"{kind.kernels:,.0f}",
    )


def rank_cells(row: RankRow, width: int) -> tuple[str, ...]:
    """Return name, transfer time, waiting time, times last, lateness and its cause for a rank."""
    return (
        visible(shortened(row.name, width)),
        ms_cell(row.transfer_ns),
        ms_cell(row.wait_ns),
        f"{row.times_arrived_last:,}",
        ms_cell(row.late_ns),
        visible(shortened(row.made_late_by, width)),
    )
