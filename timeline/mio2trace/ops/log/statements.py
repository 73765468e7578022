"""The content of single messages: solvers, times, workspaces, and the problems of database keys (miopen-log.md 8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from mio2trace.model.choices import SOLVER, SolverRecord, SolverTime, solver_record
from mio2trace.model.miopen import Message, OperationDirection
from mio2trace.ops.command import parse
from mio2trace.ops.log.keys import find_db_key, network_config, perf_db_values
from mio2trace.ops.log.level_lines import CHOSEN, INVOKER, INVOKER_REGISTERED, REGISTERED, SEARCHED
from mio2trace.ops.problem import Problem
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

_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{0,9})?(?:e[-+]?[0-9]{1,3})?)"
_BYTES = r"([0-9]{1,18})\b"
_SOLVER = r"([A-Za-z]\w*+(?:<[\w,-]*>)?)"
_WRITTEN = late(", content (?:inserted|overwritten): ")


def state(message: Message) -> Statement:
    """Return the content of a message, as far as it is known for its kind."""
    return _state(message.kind, message.function, message.text)


@lru_cache(maxsize=1 << 13)
def _state(kind: str, function: str, text: str) -> Statement:
    read = _WHOLE.get(kind)
    if read is not None:
        return read(function, text) or NOTHING
    for pattern, make in _FORMS.get(kind, ()):
        found = pattern.search(text)
        if found is not None:
            return make(found) or NOTHING
    return NOTHING


def _bytes(text: str | None) -> int | None:
    return None if text is None else int(text)


def _ms(text: str | None) -> float | None:
    """Return milliseconds; None for a value that means "none yet"."""
    value = None if text is None else float(text)
    return None if value is None or value > 1e30 else value


# -- Messages by the form of their text --------------------------------------------------------------------------------

_Read = Callable[[re.Match[str]], Statement | None]
_FORMS: dict[str, list[tuple[re.Pattern[str], _Read]]] = {}
"""By kind of message; the first form that matches counts."""


def _form(pattern: re.Pattern[str], *kinds: str) -> Callable[[_Read], _Read]:
    """Register a function that reads the matches of a pattern in messages of these kinds."""

    def registered(read: _Read) -> _Read:
        for kind in kinds:
            _FORMS.setdefault(kind, []).append((pattern, read))
        return read

    return registered


@_form(late(rf"(?<!\w)(\w++) Chosen Algorithm: (\S++) , {_BYTES}, {_NUMBER}"), "chosen")
def _chosen(choice: re.Match[str]) -> Statement:
    return Statement(
        solvers=(choice[2],),
        outcome="chosen",
        workspace_bytes=int(choice[3]),
        time_ms=_ms(choice[4]),
        direction=CHOSEN.get(choice[1]),
    )


@_form(late(rf"^(miopen\w++)\s+{_NUMBER}\s+{_BYTES}"), "result")
def _result(result: re.Match[str]) -> Statement:
    return Statement(
        algorithm=result[1], outcome="best of its algorithm", time_ms=_ms(result[2]), workspace_bytes=int(result[3])
    )


@_form(late(rf"^{_SOLVER}: (.*): {_NUMBER} (<|>=) \S+$", re.DOTALL), "benchmark")
def _benchmark(measured: re.Match[str]) -> Statement:
    outcome = "best so far" if measured[4] == "<" else "slower"
    return Statement(solvers=(measured[1],), outcome=outcome, kernels=measured[2] or None, time_ms=_ms(measured[3]))


@_form(late(rf"^Selected: {_SOLVER}: (.*?)(?:: {_NUMBER})?(?:, worksp\w*_sz = {_BYTES})?$", re.DOTALL), "selected")
def _selected(selected: re.Match[str]) -> Statement:
    return Statement(
        solvers=(selected[1],),
        outcome="selected",
        kernels=selected[2] or None,
        time_ms=_ms(selected[3]),
        workspace_bytes=_bytes(selected[4]),
    )


@_form(late(rf"^Perf Db: (record (?:loaded|not found))(?: for)?: {_SOLVER}"), "candidate")
def _tuned_before(record: re.Match[str]) -> Statement:
    return Statement(solvers=(record[2],), outcome=f"perf-db {record[1]}")


@_form(
    late(
        rf"(?:Solver <(?P<solver>[^<>]*+(?>(?:<[^<>]*+>)?))>, )?[Ww]orkspace required: (?P<required>{_BYTES})"
        rf"(?:, limit: (?P<limit>{_BYTES})|, provided ptr: \S+ size: (?P<size>{_BYTES}))?"
    ),
    "candidate",
    "workspace",
    "workspace warning",
)
def _workspace(required: re.Match[str]) -> Statement:
    given = required["limit"] or required["size"]
    return Statement(
        solvers=(required["solver"],) if required["solver"] else (),
        workspace_bytes=int(required["required"]),
        given_bytes=_bytes(given),
        outcome="too little" if given is not None and int(given) < int(required["required"]) else None,
    )


@_form(late(rf"^{_BYTES}$"), "workspace", "workspace warning")
def _answered(answered: re.Match[str]) -> Statement:
    return Statement(outcome="answered", workspace_bytes=int(answered[1]))


@_form(late(rf"^(Not searchable): {_SOLVER}$"), "candidate")
def _not_searchable(old: re.Match[str]) -> Statement:
    return Statement(solvers=(old[2],), outcome=old[1].lower())


@_form(late(rf"^{_SOLVER}(?:: ([^,]*))?(?: \((.*)\))?\.?$"), "candidate")
def _candidate(candidate: re.Match[str]) -> Statement:
    outcome = (candidate[2] or candidate[3] or "considered").strip(" .").lower()
    return Statement(solvers=(candidate[1],), outcome=outcome)


@_form(late(r"^Preparing kernel: (.*)$", re.DOTALL), "prepare")
def _prepare(prepared: re.Match[str]) -> Statement:
    return Statement(outcome="prepared", kernels=prepared[1])


@_form(late(rf"^{_SOLVER}: Searching the best solution among ([0-9]+)"), "tuning")
def _tuning_begins(among: re.Match[str]) -> Statement:
    return Statement(solvers=(among[1],), outcome=f"tuning begins, {among[2]} configurations")


@_form(late(r"^Done: ([0-9]+)/([0-9]+)/([0-9]+), best #[0-9]+ " + _NUMBER), "tuning")
def _tuning_ends(done: re.Match[str]) -> Statement:
    return Statement(outcome=f"tuning ends, {done[3]} configurations, {done[2]} failed", time_ms=_ms(done[4]))


@_form(late(rf"^Starting search: {_SOLVER}"), "tuning")
def _starting(starting: re.Match[str]) -> Statement:
    return Statement(solvers=(starting[1],), outcome="tuning begins")


@_form(late(rf"^Search failed for: {_SOLVER}"), "search failed")
def _search_failed(failed: re.Match[str]) -> Statement:
    return Statement(solvers=(failed[1],), outcome="search failed")


@_form(REGISTERED, "registered")
def _registered(registered: re.Match[str]) -> Statement:
    return Statement(
        solvers=(registered[1],),
        algorithm=registered[2],
        outcome="best, kept for later calls",
        problem=network_config(registered[3]),
        key=registered[3],
    )


@_form(INVOKER_REGISTERED, "invoker registered")
def _invoker_registered(registered: re.Match[str]) -> Statement:
    problem = network_config(registered[1])
    return Statement(solvers=(registered[2],), outcome="compiled", problem=problem, key=registered[1])


@_form(INVOKER, "invoker")
def _invoker(invoker: re.Match[str]) -> Statement:
    solver = (invoker[3],) if invoker[2] == "solver" else ()
    algorithm = invoker[3] if invoker[2] == "algorithm" else None
    problem = network_config(invoker[1], _of_algorithm(invoker[3]))
    return Statement(solvers=solver, algorithm=algorithm, problem=problem, key=invoker[1])


def _of_algorithm(name: str) -> OperationDirection | None:
    """Return the direction in the name of a convolution's algorithm."""
    for part, direction in (("Fwd", "forward"), ("BwdData", "backward-data"), ("BwdWeights", "backward-weights")):
        if part in name:
            return direction  # type: ignore[return-value]
    return None


@_form(late(rf"Contents found: {_SOLVER}"), "key found")
def _contents(contents: re.Match[str]) -> Statement:
    return Statement(solvers=(contents[1],), outcome="found")


@_form(late(r"(?:[Kk]ey:? |Key match: |Read record )([^\s=]+)"), "key", "key found")
def _key(key: re.Match[str]) -> Statement:
    outcome = "found" if key.string.startswith(("Key match", "Read record")) else "looked up"
    return Statement(outcome=outcome, problem=find_db_key(key[1]), key=key[1])


@_form(
    late(rf"^(\S*), content (?:inserted|overwritten): ([^:\s]+)(?::{_SOLVER}(?:,{_NUMBER},{_BYTES})?)?"),
    "find-db insert",
)
def _inserted(inserted: re.Match[str]) -> Statement:
    record = solver_record(_WRITTEN.sub("=", inserted.string, 1))
    if record is not None and record.solvers[0].time_ms is not None:
        (one, *_) = record.solvers
        return _of_record(record, one, "written")
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


@_form(late(r"^\[(.*)\]$"), "perf-db key")
def _perf_db_key(values: re.Match[str]) -> Statement:
    return Statement(outcome="looked up", problem=perf_db_values(values[1]), key=values[1])


@_form(late(r"key: miopenConvolution(\w+) \"([^\"]+)\""), "kernel key")
def _kernel_key(key: re.Match[str]) -> Statement:
    return Statement(problem=network_config(key[2], _of_algorithm(key[1])), key=key[2])


@_form(late(rf"id: [0-9]+,? algo: ([0-9]+), time: {_NUMBER}(?: ms)?, ws: {_BYTES}, name: {_SOLVER}"), "solutions")
def _solution(solution: re.Match[str]) -> Statement:
    return Statement(
        solvers=(solution[4],), outcome="known", time_ms=_ms(solution[2]), workspace_bytes=int(solution[3])
    )


@_form(late(rf"^{_SOLVER} Estimated WTI = (-?[0-9.]+)"), "solutions")
def _estimate(estimate: re.Match[str]) -> Statement:
    return Statement(solvers=(estimate[1],), outcome=f"estimated, {estimate[2]} of the best possible")


@_form(late(rf"(?:algo = ([0-9])|solver_id = ([^,\s]+)), workspace = {_BYTES}"), "execution", "immediate")
def _execution(executed: re.Match[str]) -> Statement:
    return Statement(solvers=(executed[2],) if executed[2] else (), outcome="executed", given_bytes=int(executed[3]))


@_form(
    late(r"Problem=\"([^\"]*)\"(?: Solver=\"([^\"]*)\")?(?: Config\S*=\"[^\"]*\")?(?: Time\S*=" + _NUMBER + ")?"),
    "summary",
)
def _summary(summary: re.Match[str]) -> Statement:
    solver = summary[2] if summary[2] and summary[2] != "N/A" else ""
    return Statement(
        solvers=(solver,) if solver else (),
        outcome="executed",
        time_ms=_ms(summary[3]),
        problem=parse(summary[1]),
    )


# -- Messages that need more than one pattern --------------------------------------------------------------------------

_SEARCH = late(rf"workspace = {_BYTES}")
_DRIVER_SOLUTION = late(r" Conv\. Algorithm: [0-9]++, Solution: [0-9]++/(\S+)")
_DRIVER_TIME = late(rf"Elapsed: {_NUMBER} ms")
_JSON_SOLUTION = late(r'"solution":"(?:[0-9]+/)?([^"/]+)"')
_JSON_TIME = late(rf'"(?:average_time_ms|time_ms)":{_NUMBER}')
_JSON_WORKSPACE = late(rf'"workspace_bytes":{_BYTES}')


def _search(function: str, text: str) -> Statement:
    given = _SEARCH.search(text)
    return Statement(outcome="begins", given_bytes=_bytes(given and given[1]), direction=SEARCHED.get(function))


def _database(function: str, text: str) -> Statement | None:
    """Read a record of a database, alone or pasted into a log: it was written long before."""
    record = solver_record(_WRITTEN.sub("=", text, 1))
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
    "driver": _driver,
    "performance": _performance,
}


# -- Records of MIOPEN_PERFORMANCE_LOGS: a JSON object per line and solution (miopen-side-files.md 5) ------------------

_BAD_ESCAPE = re.compile(r"\\u(?:[0-9a-fA-F]{0,3}[^0-9a-fA-F]|ffffff[0-9a-fA-F]{2})")
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
