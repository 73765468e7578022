"""The records of the sources: every record as a JSON line, and the messages of MIOpen's logs as a table.

    {"record": "profile", "source": 0, "records": 2231, "activities": 204, ...}
    {"record": "activity", "number": 11, "kind": "kernel", "name": "fillbuffer_float", ...}

A record that holds others (a profile, a log) comes first, with their number in place of the records. A field that is
None is left out. Bytes (texts of programs) are replaced by their number. Fields and names are those of
`mio2trace.model`.

In the table (errors, warnings, searches, workspaces, problems behind keys, and others), messages that differ only in
their numbers share a row, with their count and their first line. Errors come first; the rest is ordered by subject and
line. Solvers with the same result in one search share a row.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from mio2trace.model.miopen import Command, Entry, Message, MiopenLog
from mio2trace.model.profile import OpenCl
from mio2trace.ops.command import parse
from mio2trace.ops.log.state import known_by_problem
from mio2trace.ops.log.statements import Statement, alarm_level, state, without_numbers
from mio2trace.ops.operation import Operation, problem_name
from mio2trace.reports import Cell, Row, Table, known

COLUMNS = (
    "subject", "kind", "count", "line", "level", "function", "solver", "outcome", "algorithm", "ms",
    "workspace_bytes", "given_bytes", "phase", "problem", "kernels", "key", "command", "text",
)  # fmt: skip
"""The first columns of every row; with several files ``file`` precedes them."""
BRIEF = (
    "kind", "count", "line", "outcome", "solver", "ms", "workspace_bytes", "given_bytes", "problem", "text",
)  # fmt: skip
BRIEF_OF_DATABASES = ("problem", "solver", "ms", "workspace_bytes")
"""The text of their records repeats these; kind and count are those of all."""
_FOLDED = frozenset(("candidate", "prepare"))
"""Kinds of which a search prints a line per solver, without numbers."""
_ENTRY, _COMMAND = "entry", "command"
OWN_SUBJECTS: Mapping[str, str] = {_ENTRY: "calls", _COMMAND: "calls"}
"""Subjects of the records that are no messages."""


class _Group(msgspec.Struct):
    message: Message | Command | Entry
    kind: str
    statement: Statement
    operation: Operation | None
    count: int = 0
    solvers: dict[str, None] = {}
    least_ms: float | None = None


def table(
    logs: Sequence[tuple[str, MiopenLog, Sequence[Operation]]], subjects: Mapping[str, str], order: Sequence[str]
) -> Table:
    """Return the rows of each (file name, log, its operations). ``subjects``: by kind of message. ``order``: of the
    subjects."""
    several = len(logs) > 1
    rows: list[Row] = []
    for file, log, operations in logs:
        own: Row = {"file": file} if several else {}
        rows += [{**own, **row} for row in _rows(log, operations, {**subjects, **OWN_SUBJECTS}, order)]
    first = ("file",) if several else ()
    of_databases = bool(rows) and all(row["kind"] == "find-db record" for row in rows)
    brief = BRIEF_OF_DATABASES if of_databases else BRIEF
    return Table(columns=(*first, *COLUMNS), rows=rows, brief=(*first, *brief), keys=("kind",))


def _rows(
    log: MiopenLog, operations: Sequence[Operation], subjects: Mapping[str, str], order: Sequence[str]
) -> list[Row]:
    around = _around(operations)
    groups: dict[object, _Group] = {}
    for record in log.records:
        kind, statement, texts = _told(record)
        operation = around(record)
        solvers = () if kind in _FOLDED else statement.solvers
        problem = statement.problem or (operation and (operation.phase, operation.problem))
        key = (kind, getattr(record, "level", ""), solvers, statement.outcome, statement.algorithm, problem, texts)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(record, kind, statement, operation, solvers={})
        group.count += 1
        group.solvers.update(dict.fromkeys(statement.solvers))
        if (time_ms := statement.time_ms) is not None:
            group.least_ms = time_ms if group.least_ms is None else min(time_ms, group.least_ms)
    place = {subject: number for number, subject in enumerate(order)}
    found = [(place[subjects[group.kind]], group.message.line, group) for group in groups.values()]
    found.sort(key=lambda one: one[:2])
    return [_row(group, order[number]) for number, _, group in found]


def _told(record: Message | Command | Entry) -> tuple[str, Statement, str]:
    """Return kind, statement, and a text that distinguishes the record if the statement does not."""
    if isinstance(record, Entry):
        return _ENTRY, Statement(), record.api
    if isinstance(record, Command):
        problem = parse(record.text, record.tag)
        told = problem is not None and problem.dtype is not None  # None: cut off
        return _COMMAND, Statement(problem=problem), record.tag if told else record.text
    statement = state(record)
    told = bool(statement.solvers or statement.problem) and alarm_level(record) is None
    return record.kind, statement, record.function if told else f"{record.function} {without_numbers(record.text)}"


def _row(group: _Group, subject: str) -> Row:
    record, statement, operation = group.message, group.statement, group.operation
    if statement.problem is not None:
        phase = operation.phase if operation is not None else "run"
        source = Message(record.source, record.line, "", "", "")
        operation = known_by_problem(source, statement.problem, "find" if phase == "find" else "run")
    solvers = list(group.solvers)
    cells: dict[str, Cell | None] = {
        "subject": subject,
        "kind": group.kind,
        "count": group.count,
        "line": record.line,
        "solver": solvers if len(solvers) > 1 else next(iter(solvers), None),
        "outcome": statement.outcome,
        "algorithm": statement.algorithm,
        "ms": group.least_ms,
        "workspace_bytes": statement.workspace_bytes,
        "given_bytes": statement.given_bytes,
        "kernels": statement.kernels,
        "key": statement.key,
    }
    if isinstance(record, Message):
        cells |= {"level": record.level, "function": record.function or None, "text": record.text or None}
    elif isinstance(record, Command):
        cells |= {"function": record.tag or None, "text": record.text}
    else:
        cells |= dict.fromkeys(("function", "text"), record.api or None)
    if operation is not None and operation.problem is not None:
        cells |= {"problem": problem_name(operation), "command": operation.command}
        cells["phase"] = operation.phase if statement.problem is None else None
    return known(cells)


def _around(operations: Sequence[Operation]) -> Callable[[Message | Command | Entry], Operation | None]:
    """Return a function that finds the operation that was running at a record's line, in the same thread."""
    by_thread: defaultdict[int | None, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_thread[operation.thread].append(operation)
    lines = {thread: [one.line for one in own] for thread, own in by_thread.items()}

    def around(record: Message | Command | Entry) -> Operation | None:
        place = bisect_right(lines.get(record.thread, ()), record.line) - 1
        own = by_thread[record.thread]
        operation = own[place] if place >= 0 else None
        while operation is not None and place and operation.command_line == own[place - 1].command_line != 0:
            if own[place - 1].end_line < record.line:
                break
            place -= 1  # of a command that runs several directions, the first one that reaches to the line
            operation = own[place]
        return operation if operation is not None and record.line <= operation.end_line else None

    return around


def subject_counts(rows: Sequence[Row]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts[str(row["subject"])] += int(str(row["count"]))
    return counts


_WORDS = re.compile(r"(?<!^)(?=[A-Z])")
_OF_ENTRY = (
    "source", "line", "end_line", "api", "params", "thread", "nested", "complete", "stamp", "elapsed_ns",
)  # fmt: skip
"""The fields of an entry. In memory, equal entries share the fields that they have in common."""


def lines(record: msgspec.Struct) -> Iterator[str]:
    """Yield the line of a record and of all records in it, each with a line end."""
    fields: dict[str, Any] = {}
    for name, value in _fields(record).items():
        fields |= _fields(value) if isinstance(value, OpenCl) else {name: value}
    parts = {name: value for name, value in fields.items() if _holds_records(value)}
    yield _line(record, fields | {name: len(part) for name, part in parts.items()})
    for part in parts.values():
        for one in part:
            yield _line(one, _fields(one))


def _holds_records(value: object) -> bool:
    """Whether a field is a sequence of records, of which a file may have millions."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, (str, bytes))
        and len(value) > 0
        and isinstance(value[0], msgspec.Struct)
    )


def _line(record: msgspec.Struct, fields: Mapping[str, Any]) -> str:
    return _dumps({"record": kind_of(record), **_shown(fields)})


def kind_of(record: msgspec.Struct) -> str:
    """``BufferCreated`` -> ``buffer_created``."""
    return _WORDS.sub("_", type(record).__name__).lower()


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    names = _OF_ENTRY if isinstance(record, Entry) else record.__struct_fields__
    return {name: getattr(record, name) for name in names}


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}_bytes" if isinstance(value, bytes) else name: len(value) if isinstance(value, bytes) else value
        for name, value in fields.items()
        if value is not None
    }


def _default(value: Any) -> Any:
    """Convert a value that orjson does not know; bytes inside other records become their number."""
    if isinstance(value, msgspec.Struct):
        return _shown(_fields(value))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _dumps(shown: dict[str, Any]) -> str:
    try:
        return orjson.dumps(shown, default=_default, option=orjson.OPT_NON_STR_KEYS).decode() + "\n"
    except TypeError:  # a number of more than 64 bits, or text that is not valid UTF-8
        return msgspec.json.encode(_plain(shown)).decode() + "\n"


def _plain(value: Any) -> Any:
    """Replace the values that JSON writers refuse: such numbers become text, such characters are replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _plain(_default(value))
