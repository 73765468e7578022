"""Operations as tables and as commands: a row per operation, the cost of its kernels, sums over equal problems, how
much of a log was decoded, lines for MIOpenDriver.

The columns are the arguments of the trace's operation slices (docs/operations.md); unknown values are absent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from mio2trace.align import NONE
from mio2trace.measures import Measures
from mio2trace.measures.cost import bandwidth
from mio2trace.measures.device_time import launch_times
from mio2trace.model.miopen import Command, MiopenLog
from mio2trace.ops.command import CutError, NotPlainError, offered, offered_bench, parse, refusal, split
from mio2trace.ops.families import launches
from mio2trace.ops.families.gemm import Library
from mio2trace.ops.operation import Operation, OperationFacts, operation_name, problem_name
from mio2trace.ops.problem import Form
from mio2trace.ops.values import shape_text
from mio2trace.outgoing import count, shortened, visible
from mio2trace.reports import Cell, Row, Table, cell_text, grouped, known
from mio2trace.reports.kernels import COST_COLUMNS, ends, launch_cells, ranked_rows
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


# -- How much of a log was decoded -------------------------------------------------------------------------------------

COVERAGE = (
    "file", "entries", "entries_decoded", "entries_cut", "entries_unknown", "commands", "commands_decoded",
    "commands_cut", "commands_without_shapes", "level_lines", "level_lines_classified", "level_lines_unknown",
    "level_lines_classified_percent", "other_records", "stray_lines", "foreign_lines", "operations", "kinds",
)  # fmt: skip

_NO_OPERATION = re.compile(
    r"miopen(?=\w*+\Z)"  # the rest is one word, so the search for these parts of it never goes on behind it
    r"(?:(?:Create|Destroy|Set|Get|Query|Compile|Init|Enable|Load|Save|Derive|Backend|Fusion)\w*"
    r"|\w*(?:WorkSpace|Workspace|Solution)\w*)"
)
"""Calls that neither compute nor search (miopen-log.md 5.7): they are known as soon as their parameters are known."""


def coverage_row(file: str, log: MiopenLog, operations: Sequence[Operation], foreign: int) -> dict[str, Cell]:
    """Count the records of each kind in a log, and the understood ones.

    An entry is decoded if it is complete, its function is known, and its problem (if the function computes) is known. A
    command is decoded if its problem is known; otherwise it is cut, or it leaves shapes to the driver's defaults. A
    level line is classified if its meaning is known. ``entries_cut`` begin or end outside the log, or stop in the
    middle. ``foreign_lines`` belong to no known program. ``kinds`` counts every kind of record.
    """
    counts = Counter(dict(log.counts))
    entries = log.count("entry ")
    cut = counts["cut entry"] + counts["entry "]
    unknown = sum(number for kind, number in log.counts if kind.startswith("entry ") and not _known(kind[6:]))
    unknown += sum(operation.unread for operation in operations)
    commands = [record for record in log.records if isinstance(record, Command)]
    unread = Counter((one.text, one.tag) for one in commands if parse(one.text, one.tag) is None)
    stopped = sum(number for (text, tag), number in unread.items() if _stops(text, tag))
    levels, other = log.count("level "), counts["level other"]
    return known(
        {
            "file": file,
            "entries": entries,
            "entries_decoded": max(entries - cut - unknown, 0),
            "entries_cut": cut,
            "entries_unknown": unknown,
            "commands": len(commands),
            "commands_decoded": len(commands) - unread.total(),
            "commands_cut": stopped,
            "commands_without_shapes": unread.total() - stopped,
            "level_lines": levels,
            "level_lines_classified": levels - other,
            "level_lines_unknown": other,
            "other_records": log.count("line "),
            "stray_lines": counts["stray"] + counts["brace alone"],
            "foreign_lines": foreign,
            "operations": len(operations),
            "kinds": dict(log.counts),
            "level_lines_classified_percent": round(100 * (levels - other) / levels, 2) if levels else None,
        }
    )


def _known(api: str) -> bool:
    """Return whether the function is known. Internal entries (miopen-log.md 3.4) have no ``miopen`` name; an entry
    without any name is cut."""
    return not api.startswith("miopen") or launches(api) or _NO_OPERATION.fullmatch(api) is not None


def _stops(text: str, tag: str) -> bool:
    """Return whether a command's line ends too early. In a complete line every flag has a value, and the lines of conv
    and pool end with ``-t 1`` in all versions of the library."""
    try:
        word, flags = split(text)
    except NotPlainError as reason:
        return isinstance(reason, CutError)
    return not flags or bool(tag and word.startswith(("conv", "pool")) and "t" not in flags)


# -- Operations as lines for MIOpenDriver (miopen-log.md 7) ------------------------------------------------------------


class Line(msgspec.Struct, kw_only=True):
    """One command. ``calls``: how many calls executed it. ``searches``: the number of find calls, which launch
    candidates but no operation.

    ``kernel_ns``: kernel time of the calls per steady iteration, of all ``ranks`` of a job; None without a profile.
    """

    command: str
    calls: int = 0
    searches: int = 0
    kernel_ns: float | None = None
    ranks: int = 1

    def __str__(self) -> str:
        """The line for a shell; count and time are a comment."""
        if not self.calls:
            times = "once" if self.searches == 1 else f"{self.searches} times"
            return f"{self.command} # searched {times}, not run"
        of_ranks = f" of {self.ranks} ranks" if self.ranks > 1 else ""
        time = f", {self.kernel_ns / 1e6:.3f} ms in a steady iteration{of_ranks}" if self.kernel_ns else ""
        if self.kernel_ns == 0:
            time = ", no kernel of it known in a steady iteration"
        return f"{self.command} # {count(self.calls, 'call')}{time}"


class Refused(msgspec.Struct, kw_only=True):
    """Operations without a command: their names, the reason, and ``text``, the first log text in place of a command."""

    primitive: str
    reason: str
    text: str = ""
    count: int = 0

    def __str__(self) -> str:
        return f"{self.count:,} x {self.primitive}: {self.reason}" + (f": {self.text}" if self.text else "")


_SHOWN = 100
"""The most characters of a logged command that is refused."""


class Times(NamedTuple):
    """The kernel time per steady iteration of each operation, by its `id`: ranks count their operations alike.
    ``ranks``: how many of a job have operations."""

    kernel_ns: Mapping[int, float]
    ranks: int


def times_of(measures: Iterable[Measures], operations: Iterable[Operation]) -> Times | None:
    """Return the times of ``operations``; None if one of them is joined with no profile."""
    wanted = {id(one) for one in operations}
    found: dict[int, float] = {}
    ranks = 0
    for of_process in measures:
        linked = [one for one in of_process.alignment.links.operations if id(one) in wanted]
        kernel_ns = of_process.steady.of_operations() if linked else {}
        found |= {id(one): kernel_ns.get(one.index, 0) for one in linked}
        ranks += bool(linked)
    return Times(found, ranks) if found.keys() == wanted != set() else None


FOR_AMD = "the run used GPUs of NVIDIA: these commands are for AMD's libraries, on an AMD GPU"


def driver_lines(
    operations: Iterable[Operation],
    form: Form = "newest",
    times: Times | None = None,
    library: Library = "hipblaslt",
) -> tuple[list[Line], list[Refused]]:
    """Return the commands in the form of a version (slowest first, then most frequent, then in log order), and the
    operations without a command.

    ``library``: the library whose bench program runs matrix products. ``times``: with a profile, the time of each
    operation (`times_of`).
    """
    lines: dict[str, Line] = {}
    refused: dict[tuple[str, str], Refused] = {}
    made: dict[object, tuple[str | None, str]] = {}
    for operation in operations:
        if operation.problem is not None and operation.problem.blas is not None:
            command, reason = offered_bench(operation.problem.blas, library)
        elif form == "newest" or operation.problem is None:
            command, reason = operation.command, operation.command_reason
        else:
            key = (operation.problem, operation.dtype)
            if key not in made:
                made[key] = offered(operation.problem, form)
            command, reason = made[key]
        if command is None:
            primitive = "ops of the framework" if operation.is_plain else operation.primitive
            what = primitive, reason or "the log does not show the shapes"
            if what not in refused:
                text = operation.logged_command
                shown = shortened(visible(text), _SHOWN) if text and refusal(text) else ""
                refused[what] = Refused(primitive=what[0], reason=what[1], text=shown)
            refused[what].count += 1
            continue
        line = lines.setdefault(command, Line(command=command))
        if operation.phase == "find":
            line.searches += 1
        else:
            line.calls += 1
        if times is not None:
            line.ranks = times.ranks
            ns = times.kernel_ns.get(id(operation), 0) if operation.phase == "run" else 0
            line.kernel_ns = (line.kernel_ns or 0) + ns
    found = sorted(lines.values(), key=lambda line: (-(line.kernel_ns or 0), -line.calls, -line.searches))
    return found, sorted(refused.values(), key=lambda one: -one.count)


PLACE = ("layer", "layer_direction", "iteration", "source")
"""Columns that show where an operation ran: the layer, the direction (forward or backward), the iteration, and the line
of the program that launched it."""
LAUNCHED = ("api_ns", "in_queue_ns")
"""Columns with the launches of an operation (`mio2trace.measures.device_time`)."""
EACH = ("kernel_ns", "percent_of_kernel_time", "kernels", "gflops", *LAUNCHED, "helpers_ns", "transposes_ns", "sure")
"""Columns of an operation. ``helpers`` is a part of ``kernel`` (im2col, fills, transposes, ...), ``transposes`` a part
of ``helpers``. ``percent_of_kernel_time``: of the kernel time of the whole recording. ``sure``: false if a link has low
confidence."""
BANDWIDTH = ("message_bytes", "algorithm_gb_per_s", "bus_gb_per_s")
"""Columns of collectives (`mio2trace.reports.ops`)."""
SUMMED = (
    "kernels", "kernel_ns", "mean_ns", "min_ns", "max_ns", "percent_of_kernel_time", "gflops",
    "helpers_percent", "transposes_percent",
)  # fmt: skip
"""Columns of a group. Mean, least and most are over its operations that have kernels; shares are shares of ``kernel``.
"""


def cost_table(operations: Iterable[Operation], measures: Measures) -> Table:
    """Return one row per operation, in log order, with its cost."""
    whole = measures.whole.timed_ns
    rows: list[Row] = []
    of_operation = measures.alignment.links.operation_of
    launched = launch_times(measures.alignment, np.arange(len(of_operation)), of_operation, len(measures.first_of))
    for operation in operations:
        index = operation.index
        cells = {**row(operation), "kernels": 0}
        if index in measures.operation_at and measures.first_of[index] != NONE:
            cost = measures.of_operation(index)
            facts: dict[str, Cell | None] = {name: of[index] for name, of in zip(LAUNCHED, launched, strict=True)}
            facts |= {"kernel_ns": cost.kernel_ns, "helpers_ns": cost.helpers_ns or None}
            facts |= {"transposes_ns": cost.transposes_ns or None, "kernels": cost.kernels, "gflops": cost.gflops}
            facts["sure"] = None if cost.sure else "false"
            cells |= known(facts) | _place(measures, index)
            if cost.kernel_ns is not None and whole:
                cells["percent_of_kernel_time"] = 100 * cost.kernel_ns / whole
        rows.append(cells)
    plain = table([("", ())])
    left = ("doubts", "flop", "bytes_min", "batch", "operation", "line")
    brief = [name for name in BRIEF if name not in left]
    return msgspec.structs.replace(
        plain,
        columns=(*plain.columns, *PLACE, *EACH),
        rows=rows,
        brief=("operation", "line", "layer", *EACH[:2], *brief, *EACH[2:], "doubts"),
        empty="the log has no operation",
    )


def steady_table(operations: Sequence[Operation], measures: Measures, by: Sequence[str]) -> Table:
    """Return one row for all operations with equal values in ``by`` (default: layer and name), by time per steady
    iteration.

    Searches are no calls: their time is in ``find``. A row has the cells that all of its operations share. Raises
    KeyError with the first unknown column.
    """
    plain = table([("", ())])
    for name in by:
        if name not in (*plain.columns, *PLACE):
            raise KeyError(name)
    steady = measures.steady
    own = {one.index: {**row(one), **_place(measures, one.index)} for one in operations}

    def key(index: int) -> tuple[str, ...]:
        layer_and_name = steady.operation_key(index)
        if not by:
            return layer_and_name
        # the name of a search differs from that of the operation that it serves
        return tuple(layer_and_name[1] if name == "name" else cell_text(own[index].get(name)) for name in by)

    shared: dict[tuple[str, ...], dict[str, Cell]] = {}
    for one in operations:
        if one.phase == "run":
            cells = own[one.index]
            before = shared.setdefault(key(one.index), cells)
            if before is not cells:
                shared[key(one.index)] = {name: cell for name, cell in before.items() if cells.get(name) == cell}
    ranking = steady.by_operation(key)
    collectives = _collectives(operations, key)
    launched = _launched(measures, key)
    first = tuple(by) or ("layer", "name")
    names: dict[tuple[str, ...], Row] = {}
    for cost in ranking:
        texts: dict[str, Cell] = {name: text for name, text in zip(first, cost.key, strict=True) if text}
        api_ns, queue_ns = launched.get(cost.key, (None, None))
        texts |= launch_cells(cost, api_ns=api_ns, queue_ns=queue_ns)
        one_of = collectives.get(cost.key)
        made = None if one_of is None else bandwidth(one_of, cost.calls, cost.total_ns)
        rates = {} if made is None else {name: rate for name, rate in zip(BANDWIDTH, made, strict=True) if rate}
        names[cost.key] = {**texts, **shared.get(cost.key, {}), **rates} if cost.key in shared else texts
    rows = [row for row in ranked_rows(ranking, names) if "phase" not in by or row.get("phase") != "find"]
    bandwidths = BANDWIDTH if collectives else ()
    others = (name for name in (*plain.columns, *PLACE) if name not in (*first, *COST_COLUMNS))
    columns = (*first, *COST_COLUMNS, *LAUNCHED, *bandwidths, *others)
    brief = (
        *first, *COST_COLUMNS[:3], "calls", "gflops",
        *(name for name in ("solver", "algorithm", "dtype") if name not in first),
        *COST_COLUMNS[3:7], "find_ns", "find_sure", "host_ns", *LAUNCHED, "helpers_ns", "transposes_ns",
        "kernels", "unsure", *bandwidths,
    )  # fmt: skip
    return msgspec.structs.replace(
        plain,
        columns=columns,
        rows=rows,
        brief=brief,
        ends=ends(ranking, first[0]) if rows else (),
        empty="no operation has kernels",
        keys=first,
    )


def _launched(
    measures: Measures, key: Callable[[int], tuple[str, ...]]
) -> Mapping[tuple[str, ...], tuple[int | None, int | None]]:
    """Return the sums of `launch_times` by key, over the operations that run in steady iterations."""
    steady, of_operation = measures.steady, measures.alignment.links.operation_of
    numbers: dict[tuple[str, ...], int] = {}
    row_of = [NONE] * (len(measures.first_of) + 1)  # the last one is for kernels in no operation
    for index, operation in measures.operation_at.items():
        if operation.phase == "run":
            row_of[index] = numbers.setdefault(key(index), len(numbers))
    column = np.array(row_of, np.int64)[np.asarray(of_operation)]
    times = launch_times(measures.alignment, steady.counted.positions, column, len(numbers))
    return {of: (times.api_ns[number], times.queue_ns[number]) for of, number in numbers.items()}


def _collectives(
    operations: Sequence[Operation], key: Callable[[int], tuple[str, ...]]
) -> Mapping[tuple[str, ...], Operation | None]:
    """Return by key one collective for all of its operations; None if the messages differ, or if not all have one."""
    found: dict[tuple[str, ...], Operation | None] = {}
    others: set[tuple[str, ...]] = set()
    for one in operations:
        if one.problem is None or one.problem.message_bytes() is None:
            others.add(key(one.index))
            continue
        other = found.setdefault(key(one.index), one)
        if other is not None and (other.facts.problem != one.problem):
            found[key(one.index)] = None
    for place in others & found.keys():
        found[place] = None
    return found


def _place(measures: Measures, index: int) -> dict[str, Cell]:
    """Return the layer of the operation; direction and iteration only if they are unique."""
    links, profile = measures.alignment.links, measures.alignment.profile
    runs = [links.runs[number] for number in measures.runs_of_operation.get(index, ())]
    cells: dict[str, Cell] = {}
    first = measures.first_of[index] if profile.line_of and index < len(measures.first_of) else NONE
    if first != NONE:
        line = profile.launched_by(profile.activities[first])
        if line:
            cells["source"] = line
    if not runs:
        return cells
    for name, values in (
        ("layer", tuple(dict.fromkeys(run.layer for run in runs))),
        ("layer_direction", tuple(dict.fromkeys(run.direction for run in runs if run.direction is not None))),
    ):
        if values:
            cells[name] = values[0] if len(values) == 1 else values
    iterations = {links.passes[run.pass_].iteration for run in runs}
    iteration = iterations.pop()
    return cells if iterations or iteration is None else {**cells, "iteration": iteration}


def summed(each: Table, by: Sequence[str]) -> Table:
    """Return one row for all rows of `table` with equal values in ``by``, most time first: calls, sum, mean, least and
    most.

    Raises KeyError with the first unknown column.
    """
    plain = msgspec.structs.replace(each, columns=tuple(name for name in each.columns if name not in EACH))
    together = grouped(plain, by, _sums)
    first = ("count", *by)
    return msgspec.structs.replace(
        together,
        columns=(*first, *SUMMED, *(name for name in together.columns if name not in first)),
        rows=sorted(together.rows, key=lambda row: -_number(row.get("kernel_ns"))),
        brief=(*first, *SUMMED, *(name for name in ("algorithm", "solver") if name not in by)),
    )


def _sums(rows: Sequence[Row]) -> Mapping[str, Cell]:
    ran = [_number(row["kernel_ns"]) for row in rows if "kernel_ns" in row]
    if not ran:
        return {"kernels": 0}
    total = sum(ran)

    def whole(name: str) -> float:
        return sum(_number(row.get(name)) for row in rows)

    sums: dict[str, Cell] = {
        "kernels": int(whole("kernels")),
        "percent_of_kernel_time": whole("percent_of_kernel_time"),
        **dict(zip(SUMMED[1:5], (total, total / len(ran), min(ran), max(ran)), strict=True)),
    }
    work = sum(_number(row.get("gflops")) * _number(row.get("kernel_ns")) for row in rows)
    if work and total:
        sums["gflops"] = work / total
    for name in ("helpers", "transposes"):
        if part := whole(f"{name}_ns"):
            sums[f"{name}_percent"] = 100 * part / total
    return sums


def _number(cell: Cell | None) -> float:
    return cell if isinstance(cell, (int, float)) else 0
