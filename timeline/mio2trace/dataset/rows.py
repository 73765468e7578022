"""The rows of a run's tables, and their typed columns before they become Parquet, Arrow or rows again.

The rows come from the tables that people print (`mio2trace.reports`) and from the measures. ``rank`` distinguishes the
processes of a job; a run of one process has none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import mio2trace
from mio2trace.align import Alignment
from mio2trace.analysis import Run
from mio2trace.answer import subjects
from mio2trace.answer.content import is_product
from mio2trace.comparing.record import facts
from mio2trace.findings import findings
from mio2trace.kernels import KernelFact, role
from mio2trace.measures import Measures
from mio2trace.measures.cost import measured
from mio2trace.measures.device_time import has_common_clock, queued_ns
from mio2trace.measures.executions import printed_times
from mio2trace.measures.iterations import PARTS, marked_of
from mio2trace.measures.statistics import mean, median
from mio2trace.model import Column
from mio2trace.model.choices import Gemm
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Activity
from mio2trace.model.tables import NO, Activities, Numbers, Pool, thin
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import visible
from mio2trace.privacy import Cleaner
from mio2trace.ranks import meetings, straggler, totals
from mio2trace.ranks import table as ranks_table
from mio2trace.reports import ColumnRows, Row, cell_text, layers, ops
from mio2trace.reports.kernels import named_columns, place_columns, spans
from mio2trace.schema import COPIES, KERNELS, TABLES, TableSchema, recorded, shown_in
from mio2trace.snapshot.database import Stream, nanoarrow

NULL = -1
"""The code of an unknown text."""
_LARGEST = (1 << 63) - 1
_AT_ONCE = 1 << 14
"""Rows that are made before they become columns: each takes a kilobyte."""
_ONE = frozenset({str, int, float, bool, NoneType})
_TYPES = {"int": np.int64, "float": np.float64, "flag": np.int8}


class Data:
    """The values of a column, which nobody may change. ``values``: int64, double or bytes (flags); for texts, int32
    places in ``words``, or `NULL`.

    ``present``: False where the value is unknown (``values`` then has 0); None if all are known, and for texts.
    """

    __slots__ = ("column", "present", "values", "words")

    def __init__(
        self,
        column: Column,
        values: NDArray[Any],
        present: NDArray[np.bool_] | None = None,
        words: Sequence[str] = (),
    ) -> None:
        self.column = column
        self.values = thin(values)
        self.present = None if present is None else thin(present)
        self.words = words

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_constant(self) -> bool:
        """Whether all rows are known to have one value."""
        return len(self) > 0 and not self.values.strides[0] and (self.present is None or not self.present.strides[0])

    def to_list(self) -> list[Any]:
        """Return all values; None is unknown."""
        values: list[Any] = self.values.tolist()
        if self.column.kind == "text":
            words = [*self.words, None]  # `NULL` is the last place
            return [words[code] for code in values]
        if self.column.kind == "flag":
            values = list(map(bool, values))
        if self.present is None:
            return values
        return [value if there else None for value, there in zip(values, self.present.tolist(), strict=True)]

    def first(self, count: int) -> Data:
        present = None if self.present is None else self.present[:count]
        return Data(self.column, self.values[:count], present, self.words)


def numbers(column: Column, values: Sequence[Any]) -> Data:
    """Return a column of numbers or flags. None is unknown; numbers of more than 64 bits become unknown."""
    kind = _TYPES[column.kind]
    present = None
    if values and values.count(None) == len(values):
        return Data(column, np.zeros(len(values), kind), np.zeros(len(values), bool))
    if None in values or (column.kind == "int" and any(abs(value) > _LARGEST for value in values)):
        present = np.array([value is not None and abs(value) <= _LARGEST for value in values], bool)
        values = [value if there else 0 for value, there in zip(values, present.tolist(), strict=True)]
    return Data(column, np.array(values, kind), present)


def of_numbers(column: Column, values: Numbers) -> Data:
    """Return a column of whole numbers; `NO` is unknown."""
    if len(values) and values.min() != NO:
        return Data(column, values)
    present = values != NO
    return Data(column, np.where(present, values, 0), None if present.all() else present)


def texts(column: Column, values: Iterable[str | None]) -> Data:
    """Return a column of texts; each distinct text is kept once."""
    return of_pool(column, Pool.of(values))


def of_pool(column: Column, pool: Pool[Any]) -> Data:
    """Return a column of texts, None for those that are unknown. The pool's need not be distinct, nor occur."""
    return of_places(column, pool.codes, pool.values)


def of_places(column: Column, places: NDArray[np.integer[Any]], values: Sequence[str | None]) -> Data:
    """As `of_pool`; the place -1 is the last of ``values``."""
    occurs = np.zeros(len(values), bool)
    occurs[places] = True
    code_of: dict[str, int] = {}
    codes = np.array(
        [
            NULL if text is None or not there else code_of.setdefault(text, len(code_of))
            for text, there in zip(values, occurs.tolist(), strict=True)
        ],
        np.int32,
    )
    return Data(column, codes[places], words=tuple(code_of))


def of_rows(
    schema: TableSchema, rows: Sequence[Mapping[str, Any]], of: Mapping[str, Any] | None = None
) -> dict[str, Data]:
    """Return all columns of a table from its rows, which leave out unknown values; ``of``: what each row has beside its
    own. Several texts in a cell are joined by semicolons."""
    if isinstance(rows, ColumnRows):
        return _of_columns(schema, dict(rows.columns), len(rows), of or {})
    parts = (rows[at : at + _AT_ONCE] for at in range(0, len(rows) or 1, _AT_ONCE))
    return joined([
        {column.name: _of_cells(column, part, (of or {}).get(column.name)) for column in schema.columns}
        for part in map(list, parts)
    ])  # fmt: skip


def _of_cells(column: Column, rows: Sequence[Mapping[str, Any]], otherwise: str | int | None) -> Data:
    name = column.name
    cells = [row.get(name, otherwise) for row in rows]
    if not {*map(type, cells)} <= _ONE:
        cells = [cell if isinstance(cell, (str, int, float, NoneType)) else cell_text(cell) for cell in cells]
    return (texts if column.kind == "text" else numbers)(column, cells)


def _of_columns(schema: TableSchema, cells: dict[str, Any], count: int, of: Mapping[str, Any]) -> dict[str, Data]:
    """Return all columns of a table. ``cells`` gives up each column that is done: one of ten million rows takes 80
    MB."""
    return {
        column.name: _of_column(column, cells.pop(column.name, None), of.get(column.name), count)
        for column in schema.columns
    }


def _of_column(column: Column, cells: Numbers | Pool[Any] | None, otherwise: str | int | None, count: int) -> Data:
    if isinstance(cells, np.ndarray):
        return of_numbers(column, cells)
    pool = Pool.same(otherwise, count) if cells is None else cells
    if column.kind == "text":
        is_text = {*map(type, pool.values)} <= {str, NoneType}
        return of_pool(column, pool if is_text else Pool([*map(_text, pool.values)], pool.codes))
    each = numbers(column, pool.values)
    return Data(column, each.values[pool.codes], None if each.present is None else each.present[pool.codes])


def _text(cell: Any) -> str | None:
    return cell if isinstance(cell, (str, NoneType)) else cell_text(cell)


def joined(parts: Sequence[Mapping[str, Data]]) -> dict[str, Data]:
    """Join the rows of several tables of one schema, one table after the other."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _under([part[name] for part in parts]) for name in parts[0]}


def _under(parts: Sequence[Data]) -> Data:
    column = parts[0].column
    if column.kind == "text":
        words: list[str | None] = []
        codes = []
        for part in parts:
            codes.append(np.where(part.values == NULL, 0, part.values + len(words) + 1))
            words += part.words
        return of_places(column, np.concatenate(codes), [None, *words])
    present = [np.ones(len(part), bool) if part.present is None else part.present for part in parts]
    there = np.concatenate(present)
    return Data(column, np.concatenate([part.values for part in parts]), None if there.all() else there)


# -- Columns as Arrow, through nanoarrow, which is small and has no dependencies ---------------------------------------

_LARGE = 1 << 31


def arrow_codes(columns: Sequence[Data]) -> Stream:
    """Return columns ``c0``, ``c1``, ...: flags as bytes, texts as places in their words. Constant ones are left out,
    but for the first where all are."""
    told = {f"c{at}": _numbers(data) for at, data in enumerate(columns) if not data.is_constant}
    return Stream([told or {"c0": _numbers(columns[0])}], len(columns[0]))


def arrow_table(columns: Mapping[str, Data]) -> Stream:
    """Return the columns under their names, with their final types."""
    convert = {"text": _texts, "flag": _flags}
    made = {name: convert.get(data.column.kind, _numbers)(data) for name, data in columns.items()}
    return Stream([made], len(next(iter(columns.values()), ())))


def _numbers(data: Data) -> Any:
    arrow = nanoarrow()
    kind = {"q": arrow.int64, "l": arrow.int64, "d": arrow.float64, "b": arrow.int8, "i": arrow.int32}[
        data.values.dtype.char
    ]()
    return arrow.c_array_from_buffers(kind, len(data), [_validity(data), np.ascontiguousarray(data.values)])


def _flags(data: Data) -> Any:
    arrow = nanoarrow()
    return arrow.c_array_from_buffers(arrow.bool_(), len(data), [_validity(data), bits(data.values)])


def _texts(data: Data) -> Any:
    arrow = nanoarrow()
    words = [*(word.encode("utf-8", "replace") for word in data.words), b""]  # `NULL` is the last place
    lengths = list(map(len, words))
    codes = data.values.tolist()
    offsets: Iterable[int] = accumulate((lengths[code] for code in codes), initial=0)
    text = b"".join([words[code] for code in codes])
    large = len(text) >= _LARGE
    kind = arrow.large_string() if large else arrow.string()
    return arrow.c_array_from_buffers(kind, len(data), [_validity(data), array("q" if large else "i", offsets), text])


def _validity(data: Data) -> bytes | None:
    present = data.values != NULL if data.column.kind == "text" else data.present
    return None if present is None or present.all() else bits(present)


def bits(flags: NDArray[Any]) -> bytes:
    """Pack flags into a bitmap, the first one in the lowest bit."""
    return np.packbits(flags.astype(bool), bitorder="little").tobytes()


# -- The tables of a run -----------------------------------------------------------------------------------------------

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
    columns: dict[str, list[dict[str, Data]]] = {table: [] for table in ("kernels", "copies", *_MAKE)}
    for process in processes:
        of = _of(name, process.rank)
        for table, make in _MAKE.items():
            columns[table].append(of_rows(TABLES[table], make(process), of))
        cells = _run_row(run, name, process)
        if notes is not None:
            clean = (cleaner or Cleaner()).text
            cells["problems"] = "; ".join(clean(visible(note.kind)) for note in notes.problems) or None
        rows["runs"].append(of | cells)
    ranks = [process.rank for process in processes]
    for place, _, subject in subjects(run):
        of = _of(name, ranks[place])
        rows["findings"] += [of | finding.record() for finding in findings(subject)]
    for place, row in _ranks(run):
        rows["ranks"].append({**_of(name, ranks[place]), **row})
    for process in processes:  # last, because these tables are the largest
        if process.measures is not None:
            columns["kernels"].append(kernels_of(process.measures, name, process.rank))
            columns["copies"].append(copies_of(process.measures, name, process.rank))
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
        of = totals(meetings(run.alignments), run.alignments)
        latest = straggler(of)
        for total, row in zip(of, ranks_table(of, [{}] * len(run.alignments)).rows, strict=True):
            yield total.place, {**row, "straggler": total.place == latest}


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


# -- one table after the other -----------------------------------------------------------------------------------------


def _operations(process: Process) -> Sequence[Row]:
    if process.measures is None:
        return ops.table([("", process.operations)]).rows
    return [
        {**row, "sure": row.get("sure") != "false"} if row.get("kernels") else row
        for row in ops.cost_table(process.operations, process.measures).rows
    ]


def _problems(process: Process) -> Sequence[Row]:
    measures = process.measures
    if measures is None:
        return ()
    of_profile = [operation for operation in process.operations if operation.index in measures.operation_at]
    rows = ops.steady_table(of_profile, measures, ("problem",)).rows
    return [
        {**row, "find_sure": row.get("find_sure") != "false"} if row.get("find_kernels") else row
        for row in rows
        if row.get("problem")
    ]


def _layers(process: Process) -> Sequence[Row]:
    printed = {key: mean(values) for key, values in printed_times(process.logs).items()}
    if process.measures is not None:
        of_profile = [layers.Repetition(layers.fullest(process.logs), process.measures)]
        ran = layers.execution_table(of_profile).rows
        if isinstance(ran, ColumnRows) and ran:
            keys = zip(*(ran.columns[name].values for name in ("layer_index", "layer", "direction")), strict=True)
            told = Pool([*map(printed.get, keys)], ran.columns["layer"].codes)
            return ColumnRows({**ran.columns, "printed_ns": told}, len(ran))
    rows: list[Row] = []
    for number, part in enumerate(layers.printed_runs(process.logs)):
        rows += [{"repetition": number, **row} for row in layers.layer_table([part]).rows]
    return rows


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


_MAKE: Mapping[str, Callable[[Process], Sequence[Row]]] = {
    "operations": _operations,
    "problems": _problems,
    "layers": _layers,
    "iterations": lambda process: [*_iterations(process)],
}


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
        "find_sure": not measures.is_find_unsure,
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


# -- The columns of the tables kernels and copies, from an aligned profile --------------------------------------------


def kernels_of(measures: Measures, run: str, rank: int | None) -> dict[str, Data]:
    """Return one row per kernel, equal to the rows that `mio2trace kernels` prints (`mio2trace.reports.kernels`)."""
    commands, rows, columns = _commands(measures, kernels=True)
    resources = commands.resources
    for column in shown_in("data"):
        values = [recorded(one, "data").get(column.name) for one in resources.values]
        columns[column.name] = Pool(values, resources.codes)
    columns["in_queue_ns"] = queued_ns(commands, on_one_clock=has_common_clock(measures.alignment))
    columns["operation_by"] = _words(measures.alignment.links.operation_by.pool, rows)
    # Kernels with equal values of hardware counters have equal ones.
    counted, counters = commands.counters, measures.alignment.profile.counters
    of_counters = [measured(Activity(0, "kernel", "", counters=values), counters) for values in counted.values]
    for name in ("read_bytes", "write_bytes", "flop"):
        columns[f"measured_{name}"] = Pool([getattr(one, name) for one in of_counters], counted.codes)
    columns |= _facts(measures.alignment, commands, rows)
    return _of_columns(KERNELS, columns, len(commands), _of(run, rank))


def copies_of(measures: Measures, run: str, rank: int | None) -> dict[str, Data]:
    commands, _, columns = _commands(measures, kernels=False)
    columns["copy_direction"] = _words(commands.route, slice(None))
    columns["bytes"] = np.where(commands.size_bytes == 0, NO, commands.size_bytes)
    return _of_columns(COPIES, columns, len(commands), _of(run, rank))


def _commands(measures: Measures, *, kernels: bool) -> tuple[Activities, Numbers | slice, dict[str, Any]]:
    """Return the kernels, or the copies; where they are among all commands; and the columns that both have."""
    alignment, links = measures.alignment, measures.alignment.links
    every = alignment.profile.commands
    positions = np.flatnonzero(every.is_kernel == kernels)
    is_all = len(positions) == len(every)
    rows = slice(None) if is_all else positions
    commands = every if is_all else every.take(positions)
    times = spans(commands, ("t1_t0", "p3_p2", "p2_p1", "p1_p0"))
    is_sure = np.ones(len(every), np.int8)
    is_sure[[*links.layer_unsure, *links.operation_unsure]] = 0
    columns = {
        **named_columns(commands),
        **place_columns(alignment, rows),
        "queue": commands.queue,
        "line": thin(np.where(commands.line == 0, NO, commands.line)),
        "start_ns": commands.start_ns,
        "queue_wait_ns": times["p1_p0"],
        "submit_wait_ns": times["p2_p1"],
        "kernel_ns" if kernels else "copy_ns": times["p3_p2"],
        "host_ns": times["t1_t0"],
        "layer_by": _words(links.layer_by.pool, rows),
        "sure": thin(is_sure[rows]),
    }
    return commands, rows, columns


def _facts(alignment: Alignment, commands: Activities, rows: Numbers | slice) -> dict[str, Pool[Any]]:
    """Return the role and the GEMM of each kernel. The name alone shows the role of most kernels."""
    names, facts = commands.name, alignment.facts
    roles: list[str | None] = [role(name, None) or None for name in names.values]
    codes = names.codes.copy()
    told: list[tuple[int, KernelFact]] = []
    if facts:
        positions = np.arange(len(alignment.profile.commands))[rows].tolist()
        row_of = dict(zip(positions, range(len(commands)), strict=True))
        told = [(row_of[at], fact) for at, fact in facts.items() if at in row_of]
    number_of: dict[tuple[str, str], int] = {}
    for row, fact in told:
        key = names.values[names.codes[row]], fact.role
        if key not in number_of:
            number_of[key] = len(roles)
            roles.append(role(key[0], fact) or None)
        codes[row] = number_of[key]
    sizes: dict[str, Callable[[Gemm], int | None]] = {
        "M": lambda gemm: gemm.m, "N": lambda gemm: gemm.n, "K": lambda gemm: gemm.k,
        "batch": lambda gemm: gemm.batch if gemm.batch > 1 else None, "flop": lambda gemm: gemm.flop,
    }  # fmt: skip
    gemms = Pool.of([None, *(fact.gemm for _, fact in told)])
    place = np.zeros(len(commands), np.int32)
    place[[row for row, _ in told]] = gemms.codes[1:]
    place = thin(place)
    return {"role": Pool(roles, codes)} | {
        name: Pool([None if gemm is None else number(gemm) for gemm in gemms.values], place)
        for name, number in sizes.items()
    }


def _words(pool: Pool[str], rows: Numbers | slice) -> Pool[str | None]:
    return Pool([word or None for word in pool.values], pool.codes[rows])
