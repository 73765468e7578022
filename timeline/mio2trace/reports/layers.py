"""Tables of a run's layers (printed time, host time and kernel time of each), and of the whole run.

A run may come several times (a CK record's repetitions, a log of several runs); each is joined with its own profile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mio2trace.align.layers.net import by_place
from mio2trace.align.same_run import split
from mio2trace.measures import Executions, LayerKey, Measures, Steady
from mio2trace.measures.executions import in_net_order, printed_times
from mio2trace.measures.ranking import SteadyCost
from mio2trace.measures.statistics import deviation, mean, part_of, percent
from mio2trace.measures.steady import Node, class_of, layer_tree
from mio2trace.model.log import FrameworkLog, NetLayer
from mio2trace.model.tables import NO, Numbers, Pool, present
from mio2trace.reports import Cell, ColumnRows, Row, Table, in_ns, known, ns_cells
from mio2trace.reports.kernels import SCATTER, cost_cells, last_rows


class Repetition(NamedTuple):
    """One run: its log (the one with most layers), and the costs of its profile joined with it, if there is one."""

    log: FrameworkLog | None
    measures: Measures | None


def fullest(logs: Sequence[FrameworkLog]) -> FrameworkLog | None:
    """Return the log with the most layers: a log and CK's digest of it hold the same layers twice."""
    return max(logs, key=lambda log: len(log.layers), default=None)


def printed_runs(logs: Sequence[FrameworkLog]) -> list[Repetition]:
    """Return the runs in the log with the most layers, without a profile."""
    log = fullest(logs)
    return [] if log is None else [Repetition(by_place(part), None) for part in split(log)]


_FIRST = ("layer_index", "layer", "direction", "type", "output")
_LAST = ("flop", "gflops", "flop_by", "host_by", "layer_by", "unsure")
_HOST = in_ns("host", "host_std", "launch_overhead", "launch_overhead_std")
_TIMES = in_ns("host", "kernel", "launch_overhead", "copy")


def layer_table(repetitions: Sequence[Repetition]) -> Table:
    """Return one row per layer and direction, most kernel time first, over the steady iterations of all repetitions.

    ``kernel``: kernel time per steady iteration (`mio2trace.measures.steady`). ``find``: time of its searches. ``host``
    and ``launch_overhead``: means over the executions in these iterations. ``printed``: the time that the log or record
    prints, the mean of ``printed_count`` values; without a profile it gives the order.
    """
    printed = printed_times(one.log for one in repetitions if one.log is not None)
    ran: dict[LayerKey, list[tuple[Executions, Numbers]]] = {}
    costs: dict[LayerKey, list[SteadyCost[LayerKey]]] = {}
    measured = [repetition.measures for repetition in repetitions if repetition.measures is not None]
    for measures in measured:
        made = measures.executions
        numbers = present(made.iteration).tolist()
        steady_ones = [number for number in numbers if measures.steady.has(None if number == NO else number)]
        is_steady = np.isin(made.iteration, steady_ones)
        for key, rows_of in made.rows.items():
            own = ran.setdefault(key, [])
            own += [(made, rows_of[is_steady[rows_of]])] if is_steady[rows_of].any() else []
        for cost in measures.steady.layers:
            costs.setdefault(cost.key, []).append(cost)
    steady = [measures.steady for measures in measured]
    time_of = {key: sum(cost.total_ns for cost in own) for key, own in costs.items()}
    net = _net(repetitions)
    whole_printed = sum(map(mean, printed.values()))
    iterations = sum(len(of.iterations) for of in steady)
    whole_ns = sum(of.total.total_ns for of in steady)
    keys = sorted({*printed, *ran, *costs}, key=in_net_order)
    keys.sort(key=lambda key: -time_of.get(key, 0))
    if not whole_ns:
        keys.sort(key=lambda key: -mean(printed[key]) if key in printed else 0)
    rows: list[Row] = []
    before = 0
    for key in keys:
        cells = _name_cells(key, net) | _printed_cells(printed.get(key, ()), whole_printed)
        if ran.get(key):
            cells |= _host_cells(ran[key])
        if key in costs and (costs[key][0].cost.kernels or ran.get(key)):
            before += time_of[key]
            cells |= cost_cells(costs[key], iterations) | _shares(time_of[key], before, whole_ns)
        elif ran.get(key):
            cells |= {"iterations": iterations, "kernels": 0, "copies": 0, "kernel_ns": 0}
        rows.append(cells)
    columns = (
        *_FIRST, "kernel_ns", "percent_of_kernel_time", "cumulative_percent", *SCATTER, "iterations", "kernels",
        "find_ns", "find_kernels", "find_sure", *_HOST, "copies", "copy_ns", "printed_ns", "printed_std_ns",
        "printed_min_ns", "printed_max_ns", "percent_of_printed_time", "printed_count", *_LAST,
    )  # fmt: skip
    brief = (
        *_FIRST[1:3], "kernel_ns", "percent_of_kernel_time", "cumulative_percent", *SCATTER, "kernels", "gflops",
        "find_ns", "find_sure", "host_ns", "launch_overhead_ns", "printed_ns", "printed_std_ns",
        "percent_of_printed_time", "unsure",
    )  # fmt: skip
    return Table(columns=columns, rows=rows, brief=brief, ends=_ends(steady, "layer", iterations))


def class_table(repetitions: Sequence[Repetition]) -> Table:
    """Return one row per class of modules and direction, most kernel time first, over the steady iterations."""
    steady = [repetition.measures.steady for repetition in repetitions if repetition.measures is not None]
    costs: defaultdict[LayerKey, list[SteadyCost[LayerKey]]] = defaultdict(list)
    members: defaultdict[LayerKey, set[str]] = defaultdict(set)
    for of in steady:
        for cost in of.classes:
            costs[cost.key].append(cost)
        for one in of.layers:
            _, layer, direction = one.key
            members[0, class_of(layer), direction].add(layer)
    iterations = sum(len(of.iterations) for of in steady)
    whole_ns = sum(of.total.total_ns for of in steady)
    rows: list[Row] = []
    before = 0
    for key in sorted(costs, key=lambda key: -sum(cost.total_ns for cost in costs[key])):
        ns = sum(cost.total_ns for cost in costs[key])
        before += ns
        cells = known({"class": key[1], "layers": len(members[key]), "direction": key[2]})
        rows.append(cells | cost_cells(costs[key], iterations) | _shares(ns, before, whole_ns))
    columns = (
        "class", "direction", "layers", "kernel_ns", "percent_of_kernel_time", "cumulative_percent", *SCATTER, "calls",
        "kernels", "gflops", "host_ns", "flop", "bytes_min", "iterations", "unsure",
    )  # fmt: skip
    brief = (*columns[:6], "calls", "kernels", "gflops")
    return Table(columns=columns, rows=rows, brief=brief, ends=_ends(steady, "class", iterations))


def _shares(ns: int, before: int, whole_ns: int) -> dict[str, Cell]:
    """Return the share of a row, and of it with all rows ``before`` it."""
    if not whole_ns:
        return {}
    return {"percent_of_kernel_time": 100 * ns / whole_ns, "cumulative_percent": 100 * before / whole_ns}


def _ends(steady: Sequence[Steady], name: str, iterations: int) -> list[Row]:
    """Return the last rows: kernels in no layer, and the total."""
    rests = [of.layers.rest for of in steady if of.layers.rest is not None]
    totals = [of.total for of in steady]
    if not sum(cost.total_ns for cost in totals):
        return []
    parts = {"in no layer": rests} if rests else {}
    return last_rows(name, {**parts, "total": totals}, iterations)


def _printed_cells(values: Sequence[int], whole: float) -> dict[str, Cell]:
    if not values:
        return {}
    std = deviation(values)
    extremes = {} if std is None else {"printed_std": std, "printed_min": min(values), "printed_max": max(values)}
    cells = {"printed_count": len(values), "percent_of_printed_time": percent(mean(values), whole)}
    return known(cells) | ns_cells({"printed": mean(values), **extremes})


def execution_table(repetitions: Sequence[Repetition]) -> Table:
    """Return one row per execution of a layer, also in the warm-up (iteration 0), in order of execution."""
    net = _net(repetitions)
    parts = [
        _executed(number, one.measures.executions, net)
        for number, one in enumerate(repetitions)
        if one.measures is not None
    ]
    rows = parts[0] if len(parts) == 1 else [row for part in parts for row in part]
    columns = ("repetition", "iteration", *_FIRST, "kernels", "copies", *_TIMES, *_LAST)
    several = ("repetition",) if len(repetitions) > 1 else ()
    brief = (*several, "iteration", *_FIRST[:3], "kernels", *_TIMES[:3], "flop", "gflops", "layer_by", "unsure")
    return Table(columns=columns, rows=rows, brief=brief)


def _executed(repetition: int, ran: Executions, net: Mapping[str, NetLayer]) -> ColumnRows:
    count = len(ran.layer)
    order = np.lexsort((ran.iteration, ran.iteration == NO))  # layers stay in order of execution
    names = [_name_cells(key, net) for key in ran.layers]
    layer = ran.layer[order].astype(np.int32)
    columns: dict[str, Numbers | Pool[Any]] = {name: Pool([of.get(name) for of in names], layer) for name in _FIRST}
    work = ran.work.take(order)
    flops = [cost.flop for cost in work.values]
    by = ran.host_by.take(order)
    columns |= {
        "repetition": np.broadcast_to(repetition, count),
        "iteration": ran.iteration[order],
        "kernels": ran.kernels[order],
        "copies": ran.copies[order],
        **{name: getattr(ran, name)[order] for name in _TIMES},
        "flop": Pool(flops, work.codes),
        "flop_by": Pool([None if cost.flop is None else cost.flop_by for cost in work.values], work.codes),
        "gflops": Pool([cost.gflops for cost in work.values], work.codes),
        "host_by": Pool([word or None for word in by.values], by.codes),
        "layer_by": Pool([evidence or None for evidence in ran.layer_by.values], ran.layer_by.codes[order]),
        "unsure": np.where(ran.unsure == 0, NO, ran.unsure)[order],
    }
    return ColumnRows(columns, count)


def _net(repetitions: Sequence[Repetition]) -> Mapping[str, NetLayer]:
    return {layer.layer: layer for one in repetitions if one.log is not None for layer in one.log.net}


def _name_cells(key: LayerKey, net: Mapping[str, NetLayer]) -> dict[str, Cell]:
    index, layer, direction = key
    of_net = net.get(layer)
    facts = {} if of_net is None else {"type": of_net.type or None, "output": next(iter(of_net.tops), None)}
    return known({"layer_index": index, "layer": layer, "direction": direction, **facts})


def _host_cells(ran: Sequence[tuple[Executions, Numbers]]) -> dict[str, Cell]:
    """Return means over executions if all have the value, and the values that these have in common. ``ran``: rows of
    the executions of each run."""

    def column(name: str) -> list[int]:
        values: list[int] = np.concatenate([getattr(of, name)[rows] for of, rows in ran]).tolist()
        return values

    times: dict[str, float | None] = {}
    for name in ("host", "launch_overhead", "copy"):
        values = column(f"{name}_ns")
        if NO not in values:  # a mean over some of the executions would not be that of the layer
            times |= {name: mean(values), f"{name}_std": None if name == "copy" else deviation(values)}
    evidence: Counter[str] = Counter()
    for words in (words for of, rows in ran for words in of.layer_by.take(rows).each()):
        evidence.update(words)
    work = [cost for of, rows in ran for cost in of.work.take(rows).each()]
    flops = [cost.flop for cost in work if cost.flop is not None]
    cells: dict[str, Cell | None] = {}
    if len(flops) == len(work):
        each_ns = column("kernel_ns")
        whole_ns = 0 if NO in each_ns else sum(each_ns)
        rate = sum(flops) / whole_ns if whole_ns else None
        cells = {"flop": mean(flops), "flop_by": work[0].flop_by, "gflops": rate}
    host_by = {word for of, rows in ran for word in of.host_by.take(rows).each() if word}
    cells |= {"host_by": ", ".join(sorted(host_by)) or None, "layer_by": dict(evidence) or None}
    unsure: int = sum(column("unsure"))
    return ns_cells(times) | known({**cells, "unsure": unsure or None})


_MEASURES = {
    "average forward": "time_fw",
    "average backward": "time_bw",
    "average iteration": "time_fwbw",
    "total": "time_total",
    "iteration": "iteration",
}


def times_of_log(log: FrameworkLog) -> Iterator[tuple[str, int]]:
    """Yield (measure, ns) of all events with a time, by CK's names; ``iteration`` for every benchmark iteration."""
    averages = (("time_fw", log.average_forward_ns), ("time_bw", log.average_backward_ns))
    for measure, ns in (*averages, *((_MEASURES.get(event.kind), event.duration_ns) for event in log.events)):
        if measure is not None and ns is not None:
            yield measure, ns


def times_table(times: Sequence[Mapping[str, Sequence[int]]]) -> Table:
    """Return one row per measure, with its value in each repetition (``values``), their mean and deviation.

    ``time_fw``, ``time_bw``, ``time_fwbw``: forward pass, backward pass, both, each a mean over the iterations.
    ``time_total``: all iterations. ``iteration``: each of them.
    """
    rows: list[Row] = []
    for measure in dict.fromkeys((*_MEASURES.values(), *(name for found in times for name in found))):
        values = [ns for found in times for ns in found.get(measure, ())]
        if not values:
            continue
        std = deviation(values)
        part = None if std is None or not sum(values) else 100 * std * len(values) / sum(values)
        cells = known({"measure": measure, "count": len(values), "std_percent": part})
        cells |= ns_cells({"mean": mean(values), "std": std, "min": min(values), "max": max(values)})
        rows.append({**cells, "values_ns": values})
    columns = ("measure", "count", "mean_ns", "std_ns", "std_percent", "min_ns", "max_ns", "values_ns")
    return Table(columns=columns, rows=rows)


# -- The tree of layers, operations and kernels as a table: one row per node, parents before children -----------------

_INDENT = "  "
_NAMELESS = {"all": "all kernels", "layer": "in no layer", "operation": "in no operation", "kernel": ""}


def tree_table(repetitions: Sequence[Repetition]) -> Table:
    """Return the rows of the first run with a profile; times are means per steady iteration.

    ``total``: the time of a node with all nodes below it. ``own``: the time of a layer's kernels outside of the layers
    in it. ``percent_of_kernel_time``: in every row, ``total`` in percent of the kernel time of steady iterations.
    """
    measures = next(one.measures for one in repetitions if one.measures is not None)
    root = layer_tree(measures)
    iterations = max(1, len(measures.steady.iterations))
    rows: list[Row] = []
    path: list[int] = []
    for number, (level, node) in enumerate(root.walk()):
        del path[level:]
        parent: dict[str, Cell] = {"parent": path[-1]} if path else {}
        rows.append({"level": level, "node": number, **parent, **_tree_cells(node, level, root.total_ns, iterations)})
        path.append(number)
    brief = ("tree", "kind", "own_ns", "total_ns", "percent_of_kernel_time", "kernels")
    columns = (*brief, "level", "node", "parent", "name")
    return Table(columns=columns, rows=rows, brief=brief, keys=("tree",), empty="no kernel in a steady iteration")


def _tree_cells(node: Node, level: int, whole_ns: int, iterations: int) -> dict[str, Cell]:
    name = node.name or _NAMELESS[node.kind]
    return known(
        {
            "tree": _INDENT * level + name,
            "kind": node.kind,
            "name": name,
            "own_ns": part_of(node.own_ns, iterations),
            "total_ns": part_of(node.total_ns, iterations),
            "kernels": part_of(node.total_kernels, iterations),
            "percent_of_kernel_time": 100 * node.total_ns / whole_ns if whole_ns else None,
        }
    )
