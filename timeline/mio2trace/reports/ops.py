"""Operations as tables: one row per operation; one row per file with the understood part; the CSV of the original
notebook.

The columns are the arguments of the trace's operation slices (docs/operations.md); unknown values are absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mio2trace.ops.naming import operation_name, problem_name
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.ops.values import shape_text
from mio2trace.reports.tables import Cell, Row, Table
from mio2trace.schema import LOGGED

COLUMNS = tuple(column.name for column in LOGGED)
"""The first columns of every row; with several files ``file`` precedes them."""
BRIEF = (
    "operation", "line", "phase", "problem", "dtype", "algorithm", "solver", "M", "N", "K", "batch", "flop",
    "bytes_min", "doubts",
)  # fmt: skip
GEMM = ("M", "N", "K", "batch")
_SHAPES = frozenset(("input", "weights", "output", "pad", "stride", "dilation", "window"))
_OF_FACTS = tuple(name for name in COLUMNS if name in OperationFacts.__struct_fields__ and name != "problem")
"""Columns that are fields of an operation's facts."""

SEED_COLUMNS = (
    "op", "in channels", "out channels", "kernel h", "kernel w", "pad h", "stride h", "out h", "out w",
)  # fmt: skip
_SEED_POOLS = {"max": "MaxPool", "average": "AvgPool", "average-inclusive": "AvgPool"}


def row(operation: Operation) -> dict[str, Cell]:
    """Return the cells of an operation. Shapes look like ``64x3x224x224``; ``batch`` is absent if it is 1."""
    gemm = operation.gemm
    cells: dict[str, Cell] = {
        "operation": operation.index,
        "line": operation.line,
        "name": operation_name(operation),
        "problem": problem_name(operation),
    }
    for name in _OF_FACTS:
        cell = getattr(operation.facts, name)
        if cell not in (None, "", ()):
            cells[name] = shape_text(cell) if name in _SHAPES else cell
    if gemm is not None:
        cells |= {"M": gemm.m, "N": gemm.n, "K": gemm.k}
        cells |= {"batch": gemm.batch} if gemm.batch > 1 else {}
    return cells


def table(logs: Sequence[tuple[str, Iterable[Operation]]]) -> Table:
    """Return one row per operation of each (file name, operations), in log order."""
    several = len(logs) > 1
    rows: list[Row] = [
        {"file": file, **row(operation)} if several else row(operation) for file, found in logs for operation in found
    ]
    first = ("file",) if several else ()
    return Table(columns=(*first, *COLUMNS), rows=rows, objects={"gemm": GEMM}, brief=(*first, *BRIEF))


def seed_table(operations: Iterable[Operation]) -> Table:
    """Return the table that the notebook "Interpreting AMD's MIOpen Logs" was meant to print (docs/operations.md).

    Forward convolutions, poolings and training batch norms, in log order, without searches. Channels are those of the
    tensors, all groups together. Of three dimensions the last two are shown.
    """
    rows = [cells for operation in operations if (cells := _seed_row(operation))]
    return Table(columns=SEED_COLUMNS, rows=rows)


def is_seed_operation(operation: Operation) -> bool:
    """Return whether the operation is of one of the notebook's three kinds; its shapes may be unknown."""
    problem = operation.problem
    return (
        operation.phase == "run"
        and operation.direction == "forward"
        and (operation.primitive in ("conv", "pool") or (problem is not None and problem.keeps_statistics))
    )


def _seed_row(operation: Operation) -> dict[str, Cell]:
    shapes = operation.input, operation.output
    if not is_seed_operation(operation) or min(map(len, shapes)) < 3:
        return {}
    op = "Conv" if operation.primitive == "conv" else _SEED_POOLS.get(operation.mode or "", "")
    if operation.primitive == "bnorm":
        op = "BatchNorm"
    window = operation.window or operation.weights[2:] if operation.primitive != "bnorm" else ()
    flat = (1, *operation.output[2:])  # a one-dimensional convolution has the height 1
    cells: dict[str, Cell] = {
        "op": op,
        "in channels": operation.input[1],
        "out channels": operation.output[1],
        "out h": flat[-2],
        "out w": flat[-1],
    }
    if window:
        cells["kernel h"], cells["kernel w"] = (1, *window)[-2:]
        if operation.pad and operation.stride:  # a cut line may have only the tensors
            cells["pad h"] = (0, *operation.pad)[-2]
            cells["stride h"] = (1, *operation.stride)[-2]
    return cells
