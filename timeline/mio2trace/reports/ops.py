"""Operations as tables and as commands: a row per operation, how much of a log was decoded, lines for MIOpenDriver.

The columns are the arguments of the trace's operation slices (docs/operations.md); unknown values are absent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mio2trace.model.miopen import Command, MiopenLog
from mio2trace.ops.command import CutError, NotPlainError, offered, offered_bench, parse, refusal, split
from mio2trace.ops.families import launches
from mio2trace.ops.families.gemm import Library
from mio2trace.ops.naming import operation_name, problem_name
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.ops.problem import Form
from mio2trace.ops.values import shape_text
from mio2trace.outgoing import count, shortened, visible
from mio2trace.reports.tables import Cell, Row, Table, known
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


def coverage_table(rows: Sequence[dict[str, Cell]]) -> Table:
    return Table(columns=COVERAGE, rows=rows, brief=tuple(name for name in COVERAGE if name != "kinds"))


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


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One command. ``calls``: how many calls executed it. ``searches``: the number of find calls, which launch
    candidates but no operation.

    ``kernel_ns``: kernel time of the calls per steady iteration, None without a profile.
    """

    command: str
    calls: int
    searches: int
    kernel_ns: float | None = None

    def __str__(self) -> str:
        """The line for a shell; count and time are a comment."""
        if not self.calls:
            times = "once" if self.searches == 1 else f"{self.searches} times"
            return f"{self.command} # searched {times}, not run"
        time = "" if self.kernel_ns is None else f", {self.kernel_ns / 1e6:.3f} ms in a steady iteration"
        return f"{self.command} # {count(self.calls, 'call')}{time}"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Operations without a command: their names, the reason, and ``text``, the first log text in place of a command."""

    primitive: str
    reason: str
    count: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.count:,} x {self.primitive}: {self.reason}" + (f": {self.text}" if self.text else "")


_SHOWN = 100
"""The most characters of a logged command that is refused."""


def driver_lines(
    operations: Iterable[Operation],
    form: Form = "newest",
    kernel_ns: Mapping[int, float] | None = None,
    library: Library = "hipblaslt",
) -> tuple[list[Line], list[Refused]]:
    """Return the commands in the form of a version (slowest first, then most frequent, then in log order), and the
    operations without a command.

    ``library``: the library whose bench program runs matrix products. ``kernel_ns``: with a profile, the time of each
    operation per steady iteration, by index.
    """
    time: dict[str, float] = {}
    calls: Counter[str] = Counter()
    searches: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    texts: dict[tuple[str, str], str] = {}
    made: dict[object, tuple[str | None, str]] = {}
    order: dict[str, None] = {}
    for operation in operations:
        if operation.problem is not None and operation.problem.has_bench:
            command, reason = offered_bench(operation.problem, library)
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
            refused[what] += 1
            if what not in texts:
                text = operation.logged_command
                texts[what] = shortened(visible(text), _SHOWN) if text and refusal(text) else ""
        else:
            order.setdefault(command)
            (searches if operation.phase == "find" else calls)[command] += 1
            if kernel_ns is not None and operation.phase == "run":
                time[command] = time.get(command, 0) + kernel_ns.get(operation.index, 0)
    found = [
        Line(
            command=command,
            calls=calls[command],
            searches=searches[command],
            kernel_ns=None if kernel_ns is None else time.get(command, 0),
        )
        for command in order
    ]
    found.sort(key=lambda line: (-(line.kernel_ns or 0), -line.calls, -line.searches))
    return found, [
        Refused(primitive=what[0], reason=what[1], count=count, text=texts[what])
        for what, count in refused.most_common()
    ]
