"""The rows of a run's tables. They come from the tables that people print (`mio2trace.reports`) and from the measures.

``rank`` distinguishes the processes of a job; a run of one process has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import sub
from typing import Any, NamedTuple

import mio2trace
from mio2trace.align import NONE, Alignment
from mio2trace.align.clocks.log_runs import split
from mio2trace.align.layers.net import by_place
from mio2trace.analysis import Run
from mio2trace.answer import subjects
from mio2trace.answer.machine import is_product
from mio2trace.comparing.collect import facts
from mio2trace.dataset.columns import Data, constant, joined, named, numbers, of_rows
from mio2trace.findings import findings
from mio2trace.kernels import role
from mio2trace.measures import Measures
from mio2trace.measures.counters import measured
from mio2trace.measures.device_time import has_common_clock
from mio2trace.measures.device_time.launches import queue_ns
from mio2trace.measures.executions import printed_times
from mio2trace.measures.statistics import mean, median
from mio2trace.measures.step_time import PARTS, marked_of
from mio2trace.model.columns import Column
from mio2trace.model.gemm import Gemm
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Activity, Size3
from mio2trace.notes import Notes
from mio2trace.ops.naming import operation_name, problem_name
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import visible
from mio2trace.privacy import Cleaner
from mio2trace.ranks import meetings, straggler, totals
from mio2trace.ranks import table as ranks_table
from mio2trace.reports import layers, op_times, ops
from mio2trace.reports.tables import Row, Unit, cell_text
from mio2trace.schema import COPIES, KERNELS, TABLES, TableSchema, recorded, shown_in

NS = Unit("ns")
_GENERATOR = f"mio2trace {mio2trace.__version__}"


class Process(NamedTuple):
    """A process of a run, or the run itself: ``measures`` if it has a profile, its logs, and its operations."""

    rank: int | None
    measures: Measures | None
    logs: Sequence[FrameworkLog]
    operations: Sequence[Operation]


def tables_of(
    run: Run, name: str = "", notes: Notes | None = None, cleaner: Cleaner | None = None
) -> dict[str, dict[str, Data]]:
    """Return the columns of each of `TABLES`. ``name`` replaces the name of the run. ``notes`` and ``cleaner``: of the
    analysis."""
    name = name or run.name
    processes = list(_processes(run))
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    columns: dict[str, list[dict[str, Data]]] = {"kernels": [], "copies": []}
    for process in processes:
        of = _of(name, process.rank)
        for table, make in _MAKE.items():
            rows[table] += [{**of, **_plain(row)} for row in make(process)]
        cells = _run_row(run, name, process)
        if notes is not None:
            clean = (cleaner or Cleaner()).text
            cells["problems"] = "; ".join(clean(visible(note.kind)) for note in notes.problems) or None
        rows["runs"].append(of | cells)
        if process.measures is not None:
            columns["kernels"].append(kernels_of(process.measures, name, process.rank))
            columns["copies"].append(copies_of(process.measures, name, process.rank))
    ranks = [process.rank for process in processes]
    for place, _, subject in subjects(run):
        of = _of(name, ranks[place])
        rows["findings"] += [{**of, **_plain(finding.record())} for finding in findings(subject)]
    for place, row in _ranks(run):
        rows["ranks"].append({**_of(name, ranks[place]), **row})
    return {
        table: joined(columns[table]) if columns.get(table) else of_rows(schema, rows[table])
        for table, schema in TABLES.items()
    }


def failed_run(name: str, error: str) -> dict[str, Data]:
    """Return the table ``runs`` for a run that failed; ``error`` is cleaned (docs/privacy.md)."""
    row = {"run": name, "state": "failed", "error": error, "version": _folder(name), "generator": _GENERATOR}
    return of_rows(TABLES["runs"], [row])


def _folder(name: str) -> str | None:
    """Return the innermost folder around a run whose name may be a version: `rocm-7.0` of `runs/rocm-7.0/resnet50`."""
    *folders, _ = name.split("/")
    return next((folder for folder in reversed(folders) if any(letter.isdigit() for letter in folder)), None)


def _ranks(run: Run) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the rows that `mio2trace ranks` prints for each process of a job."""
    if run.is_job:
        of = totals(meetings(run.alignments), len(run.alignments))
        latest = straggler(of)
        for total, row in zip(of, ranks_table(of, [{}] * len(run.alignments), NS).rows, strict=True):
            yield total.place, {**_plain(row), "straggler": total.place == latest}


def _of(name: str, rank: int | None) -> dict[str, Any]:
    return {"run": name} if rank is None else {"run": name, "rank": rank}


def _processes(run: Run) -> Iterator[Process]:
    if not run.drawn:
        yield Process(None, None, run.logs, run.operations)
        return
    for place, measures in enumerate(run.drawn):
        alignment = measures.alignment
        of_job = run.is_job and place < len(run.measures)
        of_log = run.shares[place].operations if of_job else run.operations if not place else ()
        process = alignment.profile.process
        several = len(run.drawn) > 1
        rank = (place if process.rank is None else process.rank) if several else process.rank
        yield Process(rank, measures, alignment.logs, alignment.with_stated(of_log))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return cells with one value each: several texts are joined by semicolons."""
    return {
        name: cell if cell is None or isinstance(cell, (str, int, float)) else cell_text(cell)
        for name, cell in row.items()
    }


# -- one table after the other -----------------------------------------------------------------------------------------


def _operations(process: Process) -> Iterable[Row]:
    if process.measures is None:
        return ops.table([("", process.operations)]).rows
    return [
        {**row, "sure": row.get("sure") != "false"} if row.get("kernels") else row
        for row in op_times.table(process.operations, process.measures, NS).rows
    ]


def _problems(process: Process) -> Iterable[Row]:
    measures = process.measures
    if measures is None:
        return ()
    of_profile = [operation for operation in process.operations if operation.index in measures.operation_at]
    rows = op_times.steady_table(of_profile, measures, ("problem",), NS).rows
    return [row for row in rows if row.get("problem")]


def _layers(process: Process) -> Iterable[Row]:
    printed = {key: mean(values) for key, values in printed_times(process.logs).items()}
    rows: list[dict[str, Any]] = []
    if process.measures is not None:
        of_profile = [layers.Repetition(_fullest(process.logs), process.measures)]
        rows = [dict(row) for row in layers.execution_table(of_profile, NS).rows]
        for row in rows:
            row["printed_ns"] = printed.get((row["layer_index"], row["layer"], row.get("direction")))
    if not rows:
        for number, part in enumerate(split(log) if (log := _fullest(process.logs)) is not None else ()):
            of_part = [layers.Repetition(by_place(part), None)]
            rows += [{"repetition": number, **row} for row in layers.layer_table(of_part, NS).rows]
    return rows


def _fullest(logs: Sequence[FrameworkLog]) -> FrameworkLog | None:
    return max(logs, key=lambda log: len(log.layers), default=None)


def _iterations(process: Process) -> Iterator[Row]:
    if process.measures is None:
        return
    steady = process.measures.steady
    device = steady.device
    windows = {window.place: window for window in device.windows} if device is not None else {}
    marked = marked_of(process.measures)
    for place, iteration in enumerate(steady.told.all):
        window = windows.get(place)
        busy = window.busy if window is not None and not process.measures.alignment.profile.calls_wait else None
        step = marked.get(iteration.number)
        cells: dict[str, Any] = {
            "iteration": iteration.number,
            "steady": steady.has(iteration.number),
            "kernels": iteration.kernels,
            "kernel_ns": iteration.kernel_ns,
            "kind": steady.told.kinds[iteration.kind] or None,
            "step_ns": iteration.step_ns,
            "host_ns": iteration.host_ns,
            "find_kernels": iteration.searches,
        }
        if busy is not None:
            cells |= {f"{part}_ns": getattr(busy, f"{part}_ns") for part in PARTS}
        if step is not None and step.phase:
            cells |= {"phase": step.phase, "batch": step.batch, "tokens": step.tokens}
        yield cells


_MAKE = {"operations": _operations, "problems": _problems, "layers": _layers, "iterations": _iterations}


def _run_row(run: Run, name: str, process: Process) -> dict[str, Any]:
    of_run = facts(run)
    printed = printed_times(process.logs)
    cells: dict[str, Any] = {
        "state": "converted",
        "version": of_run.miopen or _folder(name),
        "device": of_run.device or None,
        "miopen": of_run.miopen or None,
        "operations": len(process.operations),
        "layers": len(printed),
        "printed_ns": sum(map(mean, printed.values())) if printed else None,
        "inputs": "; ".join(sorted(f"{kind} {sha256}" for kind, sha256 in of_run.inputs)),
        "generator": _GENERATOR,
    }
    return cells if process.measures is None else cells | _measured_cells(process.measures, len(printed))


def _measured_cells(measures: Measures, printed: int) -> dict[str, Any]:
    alignment, steady = measures.alignment, measures.steady
    whole, samples, links = measures.whole, steady.samples_ns, alignment.links
    devices = alignment.profile.devices
    cells: dict[str, Any] = {
        "iterations": len(steady.told.all),
        "steady_iterations": len(steady.iterations),
        "told_by": steady.told.told_by,
        "kernels": whole.kernels,
        "copies": whole.copies,
        "whole_ns": whole.kernel_ns,
        "find_ns": steady.total.find_ns,
        "layers": len(measures.executions) or printed,
        "unsure": len(links.layer_unsure | links.operation_unsure),
        "framework": alignment.profile.framework.name or None,
        "complete": measures.completeness.complete,
        "incomplete": ", ".join(f"{name} {count}" for name, count in measures.completeness.counts.items()) or None,
    }
    step = steady.step_time
    if step is not None:
        cells |= {"step_ns": step.step_ns, **{f"{part}_ns": ns for part, ns in step.parts.items()}}
    if samples and not whole.untimed:
        cells |= {"kernel_ns": steady.mean_ns, "kernel_median_ns": median(samples)}
    clock = next((alignment.clocks[number] for number in sorted(alignment.clocks)), None)
    if clock is not None:
        cells |= {"clock_method": clock.method, "clock_error_ns": clock.error_ns}
    if devices and is_product(devices[0].name):
        cells["device"] = devices[0].name
    return cells


# -- The columns of the tables kernels and copies, from an aligned profile; a few microseconds per command -------------


def kernels_of(measures: Measures, run: str, rank: int | None) -> dict[str, Data]:
    """Return one row per kernel, equal to the rows that `mio2trace kernels` prints (`mio2trace.reports.kernels`)."""
    positions = _positions(measures, kernels=True)
    made = _Commands(measures, positions, KERNELS, run, rank)
    made.common("kernel_ns")
    made.of_kernels()
    return made.in_order()


def copies_of(measures: Measures, run: str, rank: int | None) -> dict[str, Data]:
    positions = _positions(measures, kernels=False)
    made = _Commands(measures, positions, COPIES, run, rank)
    made.common("copy_ns")
    made.texts("copy_direction", [activity.route or None for activity in made.activities])
    made.numbers("bytes", [activity.size_bytes for activity in made.activities])
    return made.in_order()


class _Commands:
    """Fills one column after the other: this is fast for a million rows, which rows of thirty cells are not."""

    def __init__(
        self, measures: Measures, positions: Sequence[int], schema: TableSchema, run: str, rank: int | None
    ) -> None:
        self._measures = measures
        self._positions = positions
        self._schema: Mapping[str, Column] = {column.name: column for column in schema.columns}
        activities = measures.alignment.profile.activities
        self.activities: list[Activity] = [activities[at] for at in positions]
        self.columns: dict[str, Data] = {}
        self.columns["run"] = constant(self._schema["run"], run, len(positions))
        self.columns["rank"] = constant(self._schema["rank"], rank, len(positions))

    def in_order(self) -> dict[str, Data]:
        return {name: self.columns[name] for name in self._schema}

    @property
    def _alignment(self) -> Alignment:
        return self._measures.alignment

    def numbers(self, name: str, values: Sequence[Any]) -> None:
        self.columns[name] = numbers(self._schema[name], values)

    def texts(self, name: str, values: Sequence[str | None]) -> None:
        self.columns[name] = named(self._schema[name], values, {text: text for text in dict.fromkeys(values)})

    def common(self, duration: str) -> None:
        """Fill the columns that kernels and copies share. ``duration``: the column of their own time."""
        activities = self.activities
        self.numbers("call_index", [activity.number for activity in activities])
        self.texts("name", [activity.name for activity in activities])
        self.numbers("queue", [activity.queue for activity in activities])
        self.numbers("line", [activity.line or None for activity in activities])
        starts, ends = [activity.start_ns for activity in activities], [activity.end_ns for activity in activities]
        queued = [activity.queued_ns for activity in activities]
        submitted = [activity.submit_ns for activity in activities]
        self.numbers("start_ns", starts)
        self.numbers("queue_wait_ns", _spans(queued, submitted))
        self.numbers("submit_wait_ns", _spans(submitted, starts))
        self.numbers(duration, _spans(starts, ends))
        self.numbers("host_ns", [_host_ns(activity) for activity in activities])
        self._layers()

    def _layers(self) -> None:
        links, positions = self._alignment.links, self._positions
        run_of = [links.run_of[at] for at in positions]
        runs = links.runs
        self._of("layer", run_of, [run.layer for run in runs])
        self._of("layer_index", run_of, [run.layer_index for run in runs])
        self._of("direction", run_of, [run.direction for run in runs])
        pass_of = [links.pass_of[at] for at in positions]
        self._of("iteration", pass_of, [pass_.iteration for pass_ in links.passes])
        phases: list[str | None] = [*(pass_.phase for pass_ in links.passes), None]
        searches = {operation.index for operation in links.operations if operation.phase == "find"}
        self.texts(
            "phase",
            [
                "find" if links.operation_of[at] in searches else phases[pass_]
                for at, pass_ in zip(positions, pass_of, strict=True)
            ],
        )
        self.texts("layer_by", [links.layer_by[at] or None for at in positions])
        unsure = links.layer_unsure | links.operation_unsure
        self.numbers("sure", [at not in unsure for at in positions] if unsure else b"\1" * len(positions))

    def _of(self, name: str, places: Sequence[int], values: Sequence[Any]) -> None:
        """Fill a column from places in ``values``; `NONE` (no value) is the last place."""
        values = [*values, None]
        column = self._schema[name]
        if column.kind == "text":
            self.columns[name] = named(column, places, {NONE: None} | dict(enumerate(values)))
        else:
            self.columns[name] = numbers(column, [values[place] for place in places])

    def of_kernels(self) -> None:
        """Fill the columns that only kernels have: sizes, operation, role, GEMM."""
        activities, positions, facts = self.activities, self._positions, self._alignment.facts
        links = self._alignment.links
        counters = self._alignment.profile.counters
        counted = [measured(activity, counters) for activity in activities] if counters else []
        for name in ("measured_read_bytes", "measured_write_bytes", "measured_flop"):
            self.columns[name] = constant(self._schema[name], None, len(activities))
            if counted:
                self.numbers(name, [getattr(one, name.removeprefix("measured_")) for one in counted])
        for column in shown_in("data"):
            values = [recorded(activity.resources, "data").get(column.name) for activity in activities]
            (self.texts if column.kind == "text" else self.numbers)(column.name, values)
        on_one_clock = has_common_clock(self._alignment)
        self.numbers("in_queue_ns", [queue_ns(activity, on_one_clock=on_one_clock) for activity in activities])
        self._sizes("gws", [activity.grid for activity in activities])
        self._sizes("lws", [activity.workgroup for activity in activities])
        self._sizes("gwo", [activity.opencl.offset for activity in activities])
        indices = [links.operation_of[at] for at in positions]
        self.numbers("operation_index", [None if index == NONE else index for index in indices])
        operations = {index: self._measures.operation_at[index] for index in dict.fromkeys(indices) if index != NONE}
        text_of: dict[str, Callable[[Operation], str | None]] = {
            "operation": operation_name, "problem": problem_name, "solver": lambda operation: operation.solver,
        }  # fmt: skip
        for name, of in text_of.items():
            names = {index: of(operation) for index, operation in operations.items()}
            self.columns[name] = named(self._schema[name], indices, {NONE: None} | names)
        self.texts("operation_by", [links.operation_by[at] or None for at in positions])
        roles: dict[tuple[str, str], str | None] = {}
        keys = [
            (activity.name, "" if at not in facts else facts[at].role)
            for activity, at in zip(activities, positions, strict=True)
        ]
        for key, at in dict(zip(keys, positions, strict=True)).items():
            roles[key] = role(key[0], facts.get(at)) or None
        self.columns["role"] = named(self._schema["role"], keys, roles)
        gemms = [None if (fact := facts.get(at)) is None else fact.gemm for at in positions]
        number_of: dict[str, Callable[[Gemm], int | None]] = {
            "M": lambda gemm: gemm.m, "N": lambda gemm: gemm.n, "K": lambda gemm: gemm.k,
            "batch": lambda gemm: gemm.batch if gemm.batch > 1 else None, "flop": lambda gemm: gemm.flop,
        }  # fmt: skip
        for name, number in number_of.items():
            self.numbers(name, [None if gemm is None else number(gemm) for gemm in gemms])

    def _sizes(self, name: str, sizes: Sequence[Size3 | None]) -> None:
        text_of = {size: None if size is None else "x".join(map(str, size)) for size in dict.fromkeys(sizes)}
        self.columns[name] = named(self._schema[name], sizes, text_of)


def _positions(measures: Measures, *, kernels: bool) -> list[int]:
    activities = measures.alignment.profile.activities
    return [at for at, activity in enumerate(activities) if (activity.kind == "kernel") is kernels]


def _spans(starts: Sequence[int | None], ends: Sequence[int | None]) -> list[int | None]:
    """Return the times from each start to its end; None if one of them is not known."""
    try:
        return list(map(sub, ends, starts))
    except TypeError:
        pairs = zip(starts, ends, strict=True)
        return [None if start is None or end is None else end - start for start, end in pairs]


def _host_ns(activity: Activity) -> int | None:
    call = activity.call
    if call is None or call.start_ns is None or call.end_ns is None:
        return None
    return call.end_ns - call.start_ns
