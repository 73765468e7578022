"""Tables of a run's layers: what was printed of each, what the host saw, what its kernels took; and of the whole run.

A run may come several times (a CK record's repetitions, a log of several runs); each is joined with its own profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mio2trace.align import NONE, Alignment, LayerRun
from mio2trace.kernels.parts import find_parts
from mio2trace.model.log import Direction, FrameworkLog, LayerTime, NetLayer
from mio2trace.reports.numbers import Unit, deviation, mean, percent
from mio2trace.reports.tables import Cell, Row, Table

LayerKey = tuple[int, str, Direction | None]
"""Position in the net, name, direction where it has one."""


class Repetition(NamedTuple):
    """One run: its log (the one with most layers), and its profile joined with it, if there is one."""

    log: FrameworkLog | None
    alignment: Alignment | None


class Execution(NamedTuple):
    """One time that a layer ran, in ns.

    ``host_ns`` is its time as the host saw it, ``host_by`` says by what: ``bounds`` (timer marks, boundary stamps), or
    ``calls``, from its first activity's first argument to the end of its last activity. A time is None where it is not
    known; ``flop`` is None where it is not known of all that it computes; ``flop_by`` says from what it is known.
    """

    repetition: int
    iteration: int | None
    kernels: int
    copies: int
    kernel_ns: int | None
    copy_ns: int | None
    host_ns: int | None = None
    host_by: str = ""
    flop: int | None = None
    flop_by: str = ""
    layer_by: Mapping[str, int] = {}
    unsure: int = 0

    @property
    def overhead_ns(self) -> int | None:
        """What the host spent in the layer while nothing of it ran on the device."""
        if self.host_ns is None or self.kernel_ns is None or self.copy_ns is None:
            return None
        return self.host_ns - self.kernel_ns - self.copy_ns


# -- what there is ---------------------------------------------------------------------------------------------------


class _Work:
    """The floating point operations of a layer's activities: those of the operations that they belong to (each counted
    once, where its first activity is), and of the GEMMs outside of any. What a search runs is no work of the layer."""

    def __init__(self, alignment: Alignment) -> None:
        self._facts = alignment.facts
        self._operation_of = alignment.links.operation_of
        self._operations = {one.index: one for one in alignment.links.operations}
        self._first: dict[int, int] = {}
        for position, index in enumerate(self._operation_of):
            self._first.setdefault(index, position)
        parts = find_parts(alignment.profile, alignment.facts)
        self._parts = {position for found in parts.values() for position in found}

    def of(self, positions: Sequence[int]) -> tuple[int | None, str]:
        """(flop, what tells it); None where there is no such work, or some of unknown size."""
        flop = 0
        told_by: dict[str, None] = {}
        for position in positions:
            index = self._operation_of[position]
            operation = self._operations.get(index)
            fact = self._facts.get(position)
            if operation is not None and operation.flop is not None:
                if operation.phase == "run" and self._first[index] == position:
                    flop += operation.flop
                    told_by["operation"] = None
            elif fact is not None and fact.gemm is not None:
                flop += fact.gemm.flop
                told_by["gemm"] = None
            elif fact is not None and fact.role == "main" and position not in self._parts:
                return None, ""
        return (flop, ", ".join(told_by)) if flop else (None, "")


def executions(number: int, alignment: Alignment) -> dict[LayerKey, list[Execution]]:
    """Every time that a layer ran in repetition ``number``, in order, the warm-up (iteration 0) included.

    A layer without kernels in a pass whose kernels are all attributed ran there with none.
    """
    links, activities = alignment.links, alignment.profile.activities
    inside: dict[tuple[int, LayerKey], list[int]] = {}
    loose = set()  # passes that hold activities of no layer
    for position in range(len(activities)):
        run = links.run_of[position]
        if run == NONE:
            loose.add(links.pass_of[position])
        else:
            inside.setdefault((links.runs[run].pass_, _key(links.runs[run])), []).append(position)
    bounds: dict[tuple[int, LayerKey], list[LayerRun]] = {}
    for layer_run in links.runs:
        bounds.setdefault((layer_run.pass_, _key(layer_run)), []).append(layer_run)
    work = _Work(alignment)
    found: dict[LayerKey, list[Execution]] = {}
    passes = sorted({pass_ for pass_, _ in (*inside, *bounds)}, key=lambda pass_: links.passes[pass_].iteration or 0)
    for pass_ in passes:
        for layer, direction in alignment.net.execution_order():
            key = (layer.index, layer.layer, direction)
            if links.passes[pass_].direction not in (None, direction):
                continue
            positions = inside.get((pass_, key), [])
            runs = bounds.get((pass_, key), [])
            if not positions and not runs and pass_ in loose:
                continue
            found.setdefault(key, []).append(_execution(number, alignment, work, pass_, positions, runs))
    return found


def _key(run: LayerRun) -> LayerKey:
    return run.layer_index, run.layer, run.direction


def _execution(
    number: int, alignment: Alignment, work: _Work, pass_: int, positions: Sequence[int], runs: Sequence[LayerRun]
) -> Execution:
    links = alignment.links
    activities = [alignment.profile.activities[position] for position in positions]
    times: dict[str, list[int | None]] = {"kernel": [], "copy": []}
    for activity in activities:
        known = activity.start_ns is not None and activity.end_ns is not None
        times["kernel" if activity.kind == "kernel" else "copy"].append(
            (activity.end_ns or 0) - (activity.start_ns or 0) if known else None
        )
    starts = [run.host_start_ns for run in runs if run.host_start_ns is not None]
    ends = [run.host_end_ns for run in runs if run.host_end_ns is not None]
    host_by = "bounds"
    if not starts or not ends:
        starts = [start for e in activities if (start := e.prepared_ns or e.host_start_ns) is not None]
        ends = [e.host_end_ns for e in activities if e.host_end_ns is not None]
        host_by = "calls"
    host_ns = max(ends) - min(starts) if starts and ends else None
    flop, flop_by = work.of(positions)
    return Execution(
        repetition=number,
        iteration=links.passes[pass_].iteration,
        kernels=len(times["kernel"]),
        copies=len(times["copy"]),
        kernel_ns=_total(times["kernel"]),
        copy_ns=_total(times["copy"]),
        host_ns=host_ns,
        host_by=host_by if host_ns is not None else "",
        flop=flop,
        flop_by=flop_by,
        layer_by=Counter(word for position in positions if (word := links.layer_by[position])),
        unsure=sum(position in links.layer_unsure for position in positions),
    )


def _total(times: Sequence[int | None]) -> int | None:
    """None when one is not known."""
    known = [ns for ns in times if ns is not None]
    return sum(known) if len(known) == len(times) else None


def _printed(repetitions: Sequence[Repetition]) -> dict[LayerKey, list[int]]:
    """What was printed of each layer, in the order of the lines, once for each repetition (or line)."""
    found: dict[LayerKey, list[int]] = {}
    for repetition in repetitions:
        layers: Sequence[LayerTime] = repetition.log.layers if repetition.log is not None else ()
        for layer in layers:
            found.setdefault((layer.index, layer.layer, layer.direction), []).append(layer.printed_ns)
    return found


# -- the tables ------------------------------------------------------------------------------------------------------

_FIRST = ("layer_index", "layer", "direction", "type", "output")
_LAST = ("flop", "gflops", "flop_by", "host_by", "layer_by", "unsure")


def layer_table(repetitions: Sequence[Repetition], unit: Unit) -> Table:
    """One row a layer and direction, in the order of the log's lines, over all benchmark iterations of all repetitions.

    ``printed`` is what the log or record prints, the mean where it does so several times (``printed_count``). ``host``,
    ``kernel`` and ``launch_overhead`` are means and deviations over ``iterations`` executions (without the warm-up,
    unless there is nothing else), ``kernels`` and ``copies`` means. ``gflops`` is flop over all of the kernel time.
    """
    printed = _printed(repetitions)
    ran: dict[LayerKey, list[Execution]] = {}
    for number, repetition in enumerate(repetitions):
        if repetition.alignment is not None:
            for key, found in executions(number, repetition.alignment).items():
                ran.setdefault(key, []).extend(found)
    benchmark = any(one.iteration for found in ran.values() for one in found)
    built = {layer.layer: layer for r in repetitions if r.log is not None for layer in r.log.net}
    whole = sum(map(mean, printed.values()))
    rows: list[Row] = []
    for key in _in_order(printed, ran):
        cells = _name_cells(key, built)
        values = printed.get(key)
        if values:
            cells[unit.column("printed")] = unit.of(mean(values))
            share = percent(mean(values), whole)
            if share is not None:
                cells["printed_share_percent"] = share
            cells["printed_count"] = len(values)
            std = deviation(values)
            if std is not None:
                cells |= {
                    unit.column("printed_std"): unit.of(std),
                    unit.column("printed_min"): unit.of(min(values)),
                    unit.column("printed_max"): unit.of(max(values)),
                }
        counted = [one for one in ran.get(key, ()) if not benchmark or one.iteration]
        if counted:
            cells |= _mean_cells(counted, unit)
        rows.append(cells)
    printed_names = ("printed", "printed_std", "printed_min", "printed_max")
    measured = [f"{name}{word}" for name in ("host", "kernel", "launch_overhead") for word in ("_mean", "_std")]
    columns = (
        *_FIRST, *map(unit.column, printed_names), "printed_share_percent", "printed_count", "iterations", "kernels",
        "copies", *map(unit.column, measured), unit.column("copy_mean"), *_LAST,
    )  # fmt: skip
    brief = (
        *_FIRST[:3], *map(unit.column, printed_names[:2]), "printed_share_percent", "iterations", "kernels",
        *map(unit.column, measured), "flop", "gflops", "unsure",
    )  # fmt: skip
    return Table(columns=columns, rows=rows, brief=brief)


def execution_table(repetitions: Sequence[Repetition], unit: Unit) -> Table:
    """One row for each time that a layer ran, the warm-up (iteration 0) included, in order of execution."""
    built = {layer.layer: layer for r in repetitions if r.log is not None for layer in r.log.net}
    rows: list[Row] = []
    for number, repetition in enumerate(repetitions):
        if repetition.alignment is None:
            continue
        found = [(key, one) for key, ran in executions(number, repetition.alignment).items() for one in ran]
        found.sort(key=lambda pair: (pair[1].iteration is None, pair[1].iteration))  # stable: layers as they ran
        for key, one in found:
            cells: dict[str, Cell] = {"repetition": number, **_name_cells(key, built), **_cells(one, unit)}
            if one.iteration is not None:
                cells["iteration"] = one.iteration
            rows.append(cells)
    measured = tuple(map(unit.column, ("host", "kernel", "launch_overhead")))
    columns = ("repetition", "iteration", *_FIRST, "kernels", "copies", *measured, unit.column("copy"), *_LAST)
    several = ("repetition",) if len(repetitions) > 1 else ()
    brief = (*several, "iteration", *_FIRST[:3], "kernels", *measured, "flop", "gflops", "layer_by", "unsure")
    return Table(columns=columns, rows=rows, brief=brief)


def _in_order(printed: Mapping[LayerKey, object], ran: Mapping[LayerKey, object]) -> list[LayerKey]:
    """Net order, forward before backward, as `caffe time` prints."""
    return sorted({**printed, **ran}, key=lambda key: (key[0], key[2] == "backward", key[1]))


def _name_cells(key: LayerKey, built: Mapping[str, NetLayer]) -> dict[str, Cell]:
    index, layer, direction = key
    cells: dict[str, Cell] = {"layer_index": index, "layer": layer}
    if direction is not None:
        cells["direction"] = direction
    of_net = built.get(layer)
    if of_net is not None:
        if of_net.type:
            cells["type"] = of_net.type
        if of_net.tops:
            cells["output"] = of_net.tops[0]
    return cells


def _cells(one: Execution, unit: Unit) -> dict[str, Cell]:
    cells: dict[str, Cell | None] = {
        "kernels": one.kernels,
        "copies": one.copies,
        unit.column("host"): None if one.host_ns is None else unit.of(one.host_ns),
        unit.column("kernel"): None if one.kernel_ns is None else unit.of(one.kernel_ns),
        unit.column("launch_overhead"): None if one.overhead_ns is None else unit.of(one.overhead_ns),
        unit.column("copy"): None if one.copy_ns is None else unit.of(one.copy_ns),
        **_shared_cells([one]),
    }
    return {name: cell for name, cell in cells.items() if cell is not None}


def _mean_cells(found: Sequence[Execution], unit: Unit) -> dict[str, Cell]:
    cells: dict[str, Cell] = {
        "iterations": len(found),
        "kernels": mean([one.kernels for one in found]),
        "copies": mean([one.copies for one in found]),
    }
    for name, values in (
        ("host", [one.host_ns for one in found]),
        ("kernel", [one.kernel_ns for one in found]),
        ("launch_overhead", [one.overhead_ns for one in found]),
        ("copy", [one.copy_ns for one in found]),
    ):
        known = [ns for ns in values if ns is not None]
        if len(known) != len(values):
            continue  # a mean over some of them would not be that of the layer
        cells[unit.column(f"{name}_mean")] = unit.of(mean(known))
        std = deviation(known)
        if std is not None and name != "copy":
            cells[unit.column(f"{name}_std")] = unit.of(std)
    return cells | _shared_cells(found)


def _shared_cells(found: Sequence[Execution]) -> dict[str, Cell]:
    """Work and evidence. ``flop`` is there when it is known of every execution: the mean."""
    cells: dict[str, Cell] = {}
    flops = [one.flop for one in found if one.flop is not None]
    times = [one.kernel_ns for one in found if one.kernel_ns is not None]
    if len(flops) == len(found):
        cells["flop"] = mean(flops)
        cells["flop_by"] = found[0].flop_by
        time = sum(times)
        if len(times) == len(found) and time:
            cells["gflops"] = sum(flops) / time
    ways = {one.host_by for one in found if one.host_by}
    if ways:
        cells["host_by"] = ", ".join(sorted(ways))
    evidence: Counter[str] = Counter()
    for one in found:
        evidence.update(one.layer_by)
    if evidence:
        cells["layer_by"] = dict(evidence)
    unsure = sum([one.unsure for one in found])
    if unsure:
        cells["unsure"] = unsure
    return cells


# -- times of the whole run ------------------------------------------------------------------------------------------

_MEASURES = {
    "average forward": "time_fw",
    "average backward": "time_bw",
    "average iteration": "time_fwbw",
    "total": "time_total",
    "iteration": "iteration",
}


def times_of_log(log: FrameworkLog) -> Iterator[tuple[str, int]]:
    """(measure, ns) of all that tells one, by CK's names; ``iteration`` for every benchmark iteration."""
    if log.average_forward_ns is not None:
        yield "time_fw", log.average_forward_ns
    if log.average_backward_ns is not None:
        yield "time_bw", log.average_backward_ns
    for event in log.events:
        measure = _MEASURES.get(event.kind)
        if measure is not None and event.duration_ns is not None:
            yield measure, event.duration_ns


def times_table(times: Sequence[Mapping[str, Sequence[int]]], unit: Unit) -> Table:
    """One row a measure, with its value in each repetition (``values``), their mean and deviation.

    ``time_fw``, ``time_bw``, ``time_fwbw``: forward pass, backward pass, both, each a mean over the iterations;
    ``time_total``: all iterations; ``iteration``: each of them.
    """
    rows: list[Row] = []
    for measure in dict.fromkeys((*_MEASURES.values(), *(name for found in times for name in found))):
        values = [ns for found in times for ns in found.get(measure, ())]
        if not values:
            continue
        cells: dict[str, Cell] = {"measure": measure, "count": len(values), unit.column("mean"): unit.of(mean(values))}
        std = deviation(values)
        if std is not None:
            cells[unit.column("std")] = unit.of(std)
            if sum(values):
                cells["std_percent"] = 100 * std * len(values) / sum(values)
        cells[unit.column("min")] = unit.of(min(values))
        cells[unit.column("max")] = unit.of(max(values))
        cells[unit.column("values")] = [unit.of(value) for value in values]
        rows.append(cells)
    columns = ("measure", "count", *map(unit.column, ("mean", "std")), "std_percent")
    return Table(columns=(*columns, *map(unit.column, ("min", "max", "values"))), rows=rows)
