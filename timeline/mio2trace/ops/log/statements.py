"""The content of single messages: solvers, times, workspaces, problems of database keys, alarms (miopen-log.md 8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from mio2trace.model.choices import SOLVER, SolverRecord, SolverTime, solver_record
from mio2trace.model.miopen import Message, MiopenLog, OperationDirection
from mio2trace.ops.command import parse
from mio2trace.ops.log.level_lines import (
    CHOSEN,
    INVOKER,
    INVOKER_REGISTERED,
    REGISTERED,
    SEARCHED,
    find_db_key,
    network_config,
    perf_db_values,
)
from mio2trace.ops.problem import DIRECTIONS, Problem
from mio2trace.patterns import late


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message about a search, a workspace or a problem; missing values are None.

    ``solvers``: those it mentions. ``outcome``: the result for the solver, or what was looked up and whether it exists,
    in a few words. ``time_ms``: as printed. ``workspace_bytes``: needed. ``given_bytes``: available. ``key``: as
    logged.
    """

    solvers: tuple[str, ...] = ()
    algorithm: str | None = None
    outcome: str | None = None
    kernels: str | None = None
    time_ms: float | None = None
    workspace_bytes: int | None = None
    given_bytes: int | None = None
    direction: OperationDirection | None = None
    problem: Problem | None = None
    key: str | None = None


NOTHING = Statement()

_WRITTEN = late(", content (?:inserted|overwritten): ")


def database_record(text: str, line: int = 0) -> SolverRecord | None:
    """Return the record of a database in a message: as in its file, or as MIOpen writes it."""
    return solver_record(_WRITTEN.sub("=", text, 1), line)


def state(message: Message) -> Statement:
    """Return the content of a message, as far as it is known for its kind."""
    return _state(message.kind, message.function, message.text)


@lru_cache(maxsize=1 << 13)
def _state(kind: str, function: str, text: str) -> Statement:
    read = _WHOLE.get(kind)
    if read is not None:
        return read(function, text) or NOTHING
    for pattern, outcome, problem in _FORMS.get(kind, ()):
        found = pattern.search(text)
        if found is not None:
            return _of_match(found, outcome, problem)
    return NOTHING


def _bytes(text: str | None) -> int | None:
    return None if text is None else int(text)


def _ms(text: str | None) -> float | None:
    """Return milliseconds; None for a value that means "none yet"."""
    value = None if text is None else float(text)
    return None if value is None or value > 1e30 else value


# -- Messages by the form of their text --------------------------------------------------------------------------------

_Match = re.Match[str]
_Outcome = str | Callable[[_Match], str | None] | None
_Read = Callable[[_Match], Problem | None] | None


def _of_match(found: _Match, outcome: _Outcome, problem: _Read) -> Statement:
    """Return the values of an expression's groups, by their names. A text as ``outcome`` may contain such names."""
    parts = found.groupdict()
    return Statement(
        solvers=(parts["solver"],) if parts.get("solver") else (),
        algorithm=parts.get("algorithm"),
        outcome=outcome.format_map(parts) if isinstance(outcome, str) else outcome and outcome(found),
        kernels=parts.get("kernels") or None,
        time_ms=_ms(parts.get("time")),
        workspace_bytes=_bytes(parts.get("size")),
        given_bytes=_bytes(parts.get("given") or parts.get("limit")),
        direction=CHOSEN.get(parts.get("way") or ""),
        problem=problem and problem(found),
        key=parts.get("key"),
    )


def _is_too_little(found: _Match) -> str | None:
    given = found["limit"] or found["given"]
    return "too little" if given is not None and int(given) < int(found["size"]) else None


def _of_algorithm(name: str) -> OperationDirection | None:
    """Return the direction in the name of a convolution's algorithm."""
    ways = zip(("Fwd", "BwdData", "BwdWeights"), DIRECTIONS, strict=True)
    return next((direction for part, direction in ways if part in name), None)


_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{0,9})?(?:e[-+]?[0-9]{1,3})?"
_BYTES = r"[0-9]{1,18})\b"
_TIME, _SIZE, _GIVEN = f"(?P<time>{_NUMBER})", f"(?P<size>{_BYTES}", f"(?P<given>{_BYTES}"
_SOLVER = r"(?P<solver>[A-Za-z]\w*+(?:<[\w,-]*>)?)"
_ROWS: tuple[tuple[str, re.Pattern[str], _Outcome, _Read], ...] = (
    ("chosen", late(rf"(?<!\w)(?P<way>\w++) Chosen Algorithm: (?P<solver>\S++) , {_SIZE}, {_TIME}"), "chosen", None),
    ("result", late(rf"^(?P<algorithm>miopen\w++)\s+{_TIME}\s+{_SIZE}"), "best of its algorithm", None),
    ("benchmark",
     late(rf"^(?:solution\(current vs best\):)?{_SOLVER}: (?P<kernels>.*): {_TIME} (?P<than><|>=) \S+$", re.DOTALL),
     lambda measured: "best so far" if measured["than"] == "<" else "slower", None),
    ("benchmark", late(rf"^Evaluating Solver: (?P<algorithm>\w+):{_SOLVER}$"), "tried", None),
    ("benchmark",
     late(r"^Skipping (?:Naive|\(Slow\)|last-resort \(slow\)) Solver: (?P<algorithm>\w+):"
          rf"{_SOLVER}(?: {_TIME} > \S+)?$"), "skipped", None),
    ("benchmark", late(r"^Find (?P<way>Start|Ended): (?P<key>[^\s,]+)"),
     lambda found: "begins" if found["way"] == "Start" else "ends", lambda found: find_db_key(found["key"])),
    ("selected",
     late(rf"^Selected: {_SOLVER}: (?P<kernels>.*?)(?:: {_TIME})?(?:, worksp\w*_sz = {_SIZE})?$", re.DOTALL),
     "selected", None),
    ("candidate", late(rf"^Perf Db: (?P<record>record (?:loaded|not found))(?: for)?: {_SOLVER}"), "perf-db {record}",
     None),
    ("candidate|workspace|workspace warning",
     late(rf"(?:Solver <(?P<solver>[^<>]*+(?>(?:<[^<>]*+>)?))>, )?[Ww]orkspace required: {_SIZE}"
          rf"(?:, limit: (?P<limit>{_BYTES}|, provided ptr: \S+ size: {_GIVEN})?"), _is_too_little, None),
    ("workspace|workspace warning", late(f"^{_SIZE}$"), "answered", None),
    ("candidate", late(f"^Not searchable: {_SOLVER}$"), "not searchable", None),
    ("candidate", late(rf"^{_SOLVER}(?:: (?P<said>[^,]*))?(?: \((?P<why>.*)\))?\.?$"),
     lambda candidate: (candidate["said"] or candidate["why"] or "considered").strip(" .").lower(), None),
    ("prepare", late(r"^Preparing kernel: (?P<kernels>.*)$", re.DOTALL), "prepared", None),
    ("tuning", late(rf"^{_SOLVER}: Searching the best solution among (?P<all>[0-9]+)"),
     "tuning begins, {all} configurations", None),
    ("tuning", late(rf"^Done: [0-9]+/(?P<failed>[0-9]+)/(?P<all>[0-9]+), best #[0-9]+ {_TIME}"),
     "tuning ends, {all} configurations, {failed} failed", None),
    ("tuning", late(f"^Starting search: {_SOLVER}"), "tuning begins", None),
    ("search failed", late(f"^Search failed for: {_SOLVER}"), "search failed", None),
    ("registered", REGISTERED, "best, kept for later calls", lambda registered: network_config(registered["key"])),
    ("invoker registered", INVOKER_REGISTERED, "compiled", lambda registered: network_config(registered["key"])),
    ("invoker", INVOKER, None,
     lambda invoker: network_config(invoker["key"], _of_algorithm(invoker["algorithm"] or invoker["solver"]))),
    ("key found", late(f"Contents found: {_SOLVER}"), "found", None),
    ("key|key found", late(r"(?:[Kk]ey:? |Key match: |Read record )(?P<key>[^\s=]+)"),
     lambda key: "found" if key.string.startswith(("Key match", "Read record")) else "looked up",
     lambda key: find_db_key(key["key"])),
    ("perf-db key", late(r"^\[(?P<key>.*)\]$"), "looked up", lambda values: perf_db_values(values["key"])),
    ("kernel key", late(r"key: miopenConvolution(?P<name>\w+) \"(?P<key>[^\"]+)\""), None,
     lambda key: network_config(key["key"], _of_algorithm(key["name"]))),
    ("solutions", late(rf"id: [0-9]+,? algo: [0-9]+, time: {_TIME}(?: ms)?, ws: {_SIZE}, name: {_SOLVER}"), "known",
     None),
    ("solutions", late(rf"^{_SOLVER} Estimated WTI = (?P<part>-?[0-9.]+)"), "estimated, {part} of the best possible",
     None),
    ("execution|immediate", late(rf"(?:algo = [0-9]|solver_id = (?P<solver>[^,\s]+)), workspace = {_GIVEN}"),
     "executed", None),
    ("summary",
     late(r"Problem=\"(?P<problem>[^\"]*)\"(?: Solver=\"(?:N/A|(?P<solver>[^\"]*))\")?(?: Config\S*=\"[^\"]*\")?"
          rf"(?: Time\S*={_TIME})?"), "executed", lambda summary: parse(summary["problem"])),
)  # fmt: skip
"""Kinds, the form of the text, the outcome, the problem. The first form of a kind that matches counts."""
_FORMS: dict[str, list[tuple[re.Pattern[str], _Outcome, _Read]]] = {}
for _kinds, _pattern, _outcome, _problem in _ROWS:
    for _kind in _kinds.split("|"):
        _FORMS.setdefault(_kind, []).append((_pattern, _outcome, _problem))


# -- Messages that need more than one pattern --------------------------------------------------------------------------

_SEARCH = late(f"workspace = {_GIVEN}")
_DRIVER_SOLUTION = late(r" Conv\. Algorithm: [0-9]++, Solution: [0-9]++/(\S+)")
_DRIVER_TIME = late(f"Elapsed: {_TIME} ms")
_JSON_SOLUTION = late(r'"solution":"(?:[0-9]+/)?([^"/]+)"')
_JSON_TIME = late(f'"(?:average_time_ms|time_ms)":{_TIME}')
_JSON_WORKSPACE = late(f'"workspace_bytes":{_SIZE}')
_INSERTED = late(
    rf"^(?P<key>\S*), content (?:inserted|overwritten): (?P<name>[^:\s]+)(?::{_SOLVER}(?:,{_TIME},{_SIZE})?)?"
)


def _search(function: str, text: str) -> Statement:
    given = _SEARCH.search(text)
    return Statement(outcome="begins", given_bytes=_bytes(given and given[1]), direction=SEARCHED.get(function))


def _inserted(function: str, text: str) -> Statement | None:
    inserted = _INSERTED.search(text)
    if inserted is None:
        return None
    record = database_record(text)
    if record is not None and record.solvers[0].time_ms is not None:
        return _of_record(record, record.solvers[0], "written")
    key, name, solver, time, workspace = inserted.groups()
    return Statement(
        solvers=(solver or name,),
        algorithm=name if solver is not None else None,
        outcome="written",
        time_ms=_ms(time),
        workspace_bytes=_bytes(workspace),
        problem=find_db_key(key) if key else None,
        key=key or None,
    )


def _of_record(record: SolverRecord, one: SolverTime, outcome: str) -> Statement:
    return Statement(
        solvers=(one.solver,),
        algorithm=one.algorithm or None,
        outcome=outcome,
        time_ms=one.time_ms,
        workspace_bytes=None if one.time_ms is None else one.workspace_bytes,
        problem=find_db_key(record.key),
        key=record.key,
    )


def _database(function: str, text: str) -> Statement | None:
    """Read a record of a database, alone or pasted into a log: it was written long before."""
    record = database_record(text)
    if record is None:
        return None
    return _of_record(record, record.solvers[0], "tuned" if record.solvers[0].time_ms is None else "measured")


def _driver(function: str, text: str) -> Statement | None:
    solution, elapsed = _DRIVER_SOLUTION.search(text), _DRIVER_TIME.search(text)
    if solution is None and elapsed is None:
        return None
    return Statement(solvers=(solution[1],) if solution else (), time_ms=_ms(elapsed and elapsed[1]))


def _performance(function: str, text: str) -> Statement | None:
    told = performance(text)
    if told is not None:
        return Statement(
            solvers=(told.solver,),
            outcome=told.phase.replace("_", " ") or None,
            time_ms=told.time_ms,
            workspace_bytes=told.workspace_bytes,
            kernels=", ".join(told.kernels) or None,
        )
    solution, time = _JSON_SOLUTION.search(text), _JSON_TIME.search(text)
    workspace = _JSON_WORKSPACE.search(text)
    return Statement(
        solvers=(solution[1],) if solution else (),
        time_ms=_ms(time and time[1]),
        workspace_bytes=_bytes(workspace and workspace[1]),
    )


_WHOLE: Mapping[str, Callable[[str, str], Statement | None]] = {
    "search": _search,
    "find-db record": _database,
    "find-db insert": _inserted,
    "driver": _driver,
    "performance": _performance,
}


# -- Records of MIOPEN_PERFORMANCE_LOGS: a JSON object per line and solution (miopen-side-files.md 5) ------------------

_BAD_ESCAPE = late(r"\\u(?:[0-9a-fA-F]{0,3}[^0-9a-fA-F]|ffffff[0-9a-fA-F]{2})")
_NEVER = (1 << 64) - 1


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """A line of MIOPEN_PERFORMANCE_LOGS: a solver, the time of its fastest configuration, and the kernels of
    that one."""

    solver: str
    phase: str = ""
    time_ms: float | None = None
    workspace_bytes: int | None = None
    kernels: tuple[str, ...] = ()


class _Kernel(msgspec.Struct, gc=False):
    kernel_name: str = ""


class _Config(msgspec.Struct, gc=False):
    exec_number: int = 0
    time_ms: float = 0.0
    kernels: list[_Kernel] | None = None


class _Performance(msgspec.Struct, gc=False):
    solution: str
    performance_configs: list[_Config] | None = None
    phase: str = ""
    workspace_bytes: int | None = None


_PERFORMANCE = msgspec.json.Decoder(_Performance)


def performance(text: str) -> Performance | None:
    """Return a record of MIOPEN_PERFORMANCE_LOGS (miopen-side-files.md 5); None if it is none, or damaged.

    A configuration whose number of executions is the greatest number of 64 bits was not timed.
    """
    try:
        told = _PERFORMANCE.decode(text)
    except msgspec.DecodeError:
        try:  # characters outside of ASCII may be written as escapes that JSON does not have
            told = _PERFORMANCE.decode(_BAD_ESCAPE.sub("?", text))
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
    except (UnicodeEncodeError, RecursionError):
        return None
    solver = told.solution.rpartition("/")[2]
    if told.performance_configs is None or SOLVER.fullmatch(solver) is None:
        return None
    timed = [one for one in told.performance_configs if one.exec_number < _NEVER and 0 < one.time_ms < 1e9]
    fastest = min(timed, key=lambda one: one.time_ms, default=None)
    size = told.workspace_bytes
    return Performance(
        solver=solver,
        phase=told.phase[:40],
        time_ms=None if fastest is None else fastest.time_ms,
        workspace_bytes=size if size is not None and 0 <= size < 1 << 62 else None,
        kernels=() if fastest is None else tuple(kernel.kernel_name for kernel in (fastest.kernels or ())[:64]),
    )


AlarmLevel = Literal["error", "warning"]


# -- Errors and warnings: each once, with its count and its first line -------------------------------------------------

_WARNING_KINDS = frozenset(("warning", "workspace warning"))
_NUMBERS = late(r"0x[0-9a-fA-F]+|\b[0-9A-F]{16}\b|[0-9]+")


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Errors or warnings that differ only in their numbers.

    ``kind``: the kind of the message (`Message.kind`). ``line``, ``function`` and ``text`` are the first message's.
    ``function`` is empty for a message without a level.
    """

    level: AlarmLevel
    kind: str
    count: int
    line: int
    text: str
    function: str = ""


def alarm_level(message: Message) -> AlarmLevel | None:
    """Return ``error``, ``warning``, or None for any other message: a search reports its progress as warnings."""
    if message.level in ("Error", "Fatal"):
        return "error"
    return "warning" if message.level == "Warning" and message.kind in _WARNING_KINDS else None


def alarm_messages(log: MiopenLog) -> Iterator[tuple[AlarmLevel, Message]]:
    """Yield each error and warning, in the order of the log's lines."""
    for record in log.records:
        if isinstance(record, Message):
            level = alarm_level(record)
            if level is not None:
                yield level, record


def alarms(log: MiopenLog) -> tuple[Alarm, ...]:
    """Return errors, then warnings, each in the order of their first lines."""
    first: dict[tuple[AlarmLevel, str, str, str], tuple[Message, int]] = {}
    for level, message in alarm_messages(log):
        key = level, message.kind, message.function, without_numbers(message.text)
        earliest, count = first.get(key, (message, 0))
        first[key] = earliest, count + 1
    found = [
        Alarm(
            level=key[0],
            kind=message.kind,
            count=count,
            line=message.line,
            text=message.text,
            function=message.function,
        )
        for key, (message, count) in first.items()
    ]
    return tuple(sorted(found, key=lambda alarm: (alarm.level != "error", alarm.line)))


def without_numbers(text: str) -> str:
    """Return the text that messages of one form share, with ``0`` for numbers and addresses."""
    return _NUMBERS.sub("0", text)
