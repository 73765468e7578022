"""Names that fit into a column, and differ from each other where the full names do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, ProblemRow
from mio2trace.kernels.shown import distinct, short_kernel

__all__ = ["distinct", "short_kernel", "shown_names"]


def shown_names(
    rows: Sequence[LayerRow | OperationRow | ProblemRow | KernelRow], width: int, *, count_calls: bool = False
) -> list[str]:
    """Return the names of the rows of a list, equal in every form of the answer. Problems have their calls behind them
    where no column has them: without a profile, or by ``count_calls``."""
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
    """An operation that reads as another one: its layer counts more than the end of its name."""
    longest = width // 2
    if len(layer) > longest:
        layer = f"{layer[: longest // 3]}...{layer[3 + longest // 3 - longest :]}"
    return f"{_end_cut(name, width - len(layer) - 4)} in {layer}"


def _end_cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
