"""The tree of layers, operations and kernels as a table: one row a node, parents before what they hold."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.measures.statistics import part_of
from mio2trace.measures.tree import Node, layer_tree
from mio2trace.reports.layers import Repetition
from mio2trace.reports.tables import Cell, Row, Table, Unit

_INDENT = "  "
_NAMELESS = {"all": "all kernels", "layer": "in no layer", "operation": "in no operation", "kernel": ""}


def tree_table(repetitions: Sequence[Repetition], unit: Unit) -> Table:
    """Of the first run that has a profile; times are means of a steady iteration.

    ``total`` is the time of a node with all nodes below it, ``own`` that of a layer's kernels outside of the layers
    within it. ``percent_of_kernel_time`` is ``total`` in percent of the kernel time of steady iterations, in every row.
    """
    measures = next(one.measures for one in repetitions if one.measures is not None)
    root = layer_tree(measures)
    iterations = max(1, len(measures.steady.iterations))
    rows: list[Row] = []
    path: list[int] = []
    for number, (level, node) in enumerate(root.walk()):
        del path[level:]
        parent: dict[str, Cell] = {"parent": path[-1]} if path else {}
        rows.append({"level": level, "node": number, **parent, **_cells(node, level, root.total_ns, iterations, unit)})
        path.append(number)
    own, total = unit.column("own"), unit.column("total")
    brief = ("tree", "kind", own, total, "percent_of_kernel_time", "kernels")
    columns = (*brief, "level", "node", "parent", "name")
    return Table(columns=columns, rows=rows, brief=brief, keys=("tree",), empty="no kernel in a steady iteration")


def _cells(node: Node, level: int, whole_ns: int, iterations: int, unit: Unit) -> dict[str, Cell]:
    name = node.name or _NAMELESS[node.kind]
    cells: dict[str, Cell] = {
        "tree": _INDENT * level + name,
        "kind": node.kind,
        "name": name,
        unit.column("own"): unit.of(part_of(node.own_ns, iterations)),
        unit.column("total"): unit.of(part_of(node.total_ns, iterations)),
        "kernels": part_of(node.total_kernels, iterations),
    }
    return cells | ({"percent_of_kernel_time": 100 * node.total_ns / whole_ns} if whole_ns else {})
