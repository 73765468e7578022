"""The content of single messages: solvers, times, workspaces, and the problems behind database keys (miopen-log.md
8)."""

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

    ``solvers``: those it is about. ``outcome``: what became of the solver, or what was looked up and whether it was
    there, in few words. ``time_ms``: as printed. ``workspace_bytes``: what is needed; ``given_bytes``: what there is
    for it. ``key``: as logged.
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
_SEARCH = late(rf"workspace = {_BYTES}")
_CHOICE = late(rf"(?<!\w)(\w++) Chosen Algorithm: (\S++) , {_BYTES}, {_NUMBER}")
_RESULT = late(rf"^(miopen\w++)\s+{_NUMBER}\s+{_BYTES}")
_BENCHMARK = late(rf"^{_SOLVER}: (.*): {_NUMBER} (<|>=) \S+$", re.DOTALL)
_SELECTED = late(rf"^Selected: {_SOLVER}: (.*?)(?:: {_NUMBER})?(?:, worksp\w*_sz = {_BYTES})?$", re.DOTALL)
_CANDIDATE = late(rf"^{_SOLVER}(?:: ([^,]*))?(?: \((.*)\))?\.?$")
_OLD_CANDIDATE = late(rf"^(Not searchable): {_SOLVER}$")
_PREPARED = late(r"^Preparing kernel: (.*)$", re.DOTALL)
_PERF_DB = late(rf"^Perf Db: (record (?:loaded|not found))(?: for)?: {_SOLVER}")
_STARTING = late(rf"^Starting search: {_SOLVER}")
_FAILED = late(rf"^Search failed for: {_SOLVER}")
_TUNED = late(rf"^{_SOLVER}: Searching the best solution among ([0-9]+)")
_TUNING_DONE = late(r"^Done: ([0-9]+)/([0-9]+)/([0-9]+), best #[0-9]+ " + _NUMBER)
_KEY = late(r"(?:[Kk]ey:? |Key match: |Read record )([^\s=]+)")
_INSERTED = late(rf"^(\S*), content (?:inserted|overwritten): ([^:\s]+)(?::{_SOLVER}(?:,{_NUMBER},{_BYTES})?)?")
_WRITTEN = late(", content (?:inserted|overwritten): ")
_CONTENTS = late(rf"Contents found: {_SOLVER}")
_KERNEL_KEY = late(r"key: miopenConvolution(\w+) \"([^\"]+)\"")
_SOLUTION = late(rf"id: [0-9]+,? algo: ([0-9]+), time: {_NUMBER}(?: ms)?, ws: {_BYTES}, name: {_SOLVER}")
_ESTIMATE = late(rf"^{_SOLVER} Estimated WTI = (-?[0-9.]+)")
_REQUIRED = late(
    rf"(?:Solver <(?P<solver>[^<>]*+(?>(?:<[^<>]*+>)?))>, )?[Ww]orkspace required: (?P<required>{_BYTES})"
    rf"(?:, limit: (?P<limit>{_BYTES})|, provided ptr: \S+ size: (?P<size>{_BYTES}))?"
)
_ANSWERED = late(rf"^{_BYTES}$")
_SUMMARY = late(r"Problem=\"([^\"]*)\"(?: Solver=\"([^\"]*)\")?(?: Config\S*=\"[^\"]*\")?(?: Time\S*=" + _NUMBER + ")?")
_EXECUTED = late(rf"(?:algo = ([0-9])|solver_id = ([^,\s]+)), workspace = {_BYTES}")
_DRIVER_SOLUTION = late(r" Conv\. Algorithm: [0-9]++, Solution: [0-9]++/(\S+)")
_DRIVER_TIME = late(rf"Elapsed: {_NUMBER} ms")
_JSON_SOLUTION = late(r'"solution":"(?:[0-9]+/)?([^"/]+)"')
_JSON_TIME = late(rf'"(?:average_time_ms|time_ms)":{_NUMBER}')
_JSON_WORKSPACE = late(rf'"workspace_bytes":{_BYTES}')
_VALUES = late(r"^\[(.*)\]$")


def state(message: Message) -> Statement:
    """Return the content of a message, as far as it is known for its kind."""
    return _state(message.kind, message.function, message.text)


@lru_cache(maxsize=1 << 13)
def _state(kind: str, function: str, text: str) -> Statement:
    read = _READ.get(kind)
    return NOTHING if read is None else read(function, text) or NOTHING


def _bytes(text: str | None) -> int | None:
    return None if text is None else int(text)


def _ms(text: str | None) -> float | None:
    """Milliseconds; what stands for "none yet" is none."""
    value = None if text is None else float(text)
    return None if value is None or value > 1e30 else value


def _search(function: str, text: str) -> Statement:
    given = _SEARCH.search(text)
    return Statement(outcome="begins", given_bytes=_bytes(given and given[1]), direction=SEARCHED.get(function))


def _chosen(function: str, text: str) -> Statement | None:
    choice = _CHOICE.search(text)
    if choice is None:
        return None
    return Statement(
        solvers=(choice[2],),
        outcome="chosen",
        workspace_bytes=int(choice[3]),
        time_ms=_ms(choice[4]),
        direction=CHOSEN.get(choice[1]),
    )


def _result(function: str, text: str) -> Statement | None:
    result = _RESULT.search(text)
    if result is None:
        return None
    return Statement(
        algorithm=result[1], outcome="best of its algorithm", time_ms=_ms(result[2]), workspace_bytes=int(result[3])
    )


def _benchmark(function: str, text: str) -> Statement | None:
    measured = _BENCHMARK.search(text)
    if measured is None:
        return None
    outcome = "best so far" if measured[4] == "<" else "slower"
    return Statement(solvers=(measured[1],), outcome=outcome, kernels=measured[2] or None, time_ms=_ms(measured[3]))


def _selected(function: str, text: str) -> Statement | None:
    selected = _SELECTED.search(text)
    if selected is None:
        return None
    return Statement(
        solvers=(selected[1],),
        outcome="selected",
        kernels=selected[2] or None,
        time_ms=_ms(selected[3]),
        workspace_bytes=_bytes(selected[4]),
    )


def _candidate(function: str, text: str) -> Statement | None:
    record = _PERF_DB.search(text)
    if record is not None:
        return Statement(solvers=(record[2],), outcome=f"perf-db {record[1]}")
    required = _REQUIRED.search(text)
    if required is not None:
        return _workspace(function, text)
    old = _OLD_CANDIDATE.search(text)
    if old is not None:
        return Statement(solvers=(old[2],), outcome=old[1].lower())
    candidate = _CANDIDATE.search(text)
    if candidate is None:
        return None
    outcome = (candidate[2] or candidate[3] or "considered").strip(" .").lower()
    return Statement(solvers=(candidate[1],), outcome=outcome)


def _prepare(function: str, text: str) -> Statement | None:
    prepared = _PREPARED.search(text)
    return None if prepared is None else Statement(outcome="prepared", kernels=prepared[1])


def _tuning(function: str, text: str) -> Statement | None:
    among = _TUNED.search(text)
    if among is not None:
        return Statement(solvers=(among[1],), outcome=f"tuning begins, {among[2]} configurations")
    done = _TUNING_DONE.search(text)
    if done is not None:
        return Statement(outcome=f"tuning ends, {done[3]} configurations, {done[2]} failed", time_ms=_ms(done[4]))
    starting = _STARTING.search(text)
    return None if starting is None else Statement(solvers=(starting[1],), outcome="tuning begins")


def _search_failed(function: str, text: str) -> Statement | None:
    failed = _FAILED.search(text)
    return None if failed is None else Statement(solvers=(failed[1],), outcome="search failed")


def _registered(function: str, text: str) -> Statement | None:
    registered = REGISTERED.search(text)
    if registered is None:
        return None
    problem = network_config(registered[3])
    return Statement(
        solvers=(registered[1],),
        algorithm=registered[2],
        outcome="best, kept for later calls",
        problem=problem,
        key=registered[3],
    )


def _invoker_registered(function: str, text: str) -> Statement | None:
    registered = INVOKER_REGISTERED.search(text)
    if registered is None:
        return None
    problem = network_config(registered[1])
    return Statement(solvers=(registered[2],), outcome="compiled", problem=problem, key=registered[1])


def _invoker(function: str, text: str) -> Statement | None:
    invoker = INVOKER.search(text)
    if invoker is None:
        return None
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


def _key(function: str, text: str) -> Statement | None:
    key = _KEY.search(text)
    if key is None:
        return None
    outcome = "found" if text.startswith(("Key match", "Read record")) else "looked up"
    return Statement(outcome=outcome, problem=find_db_key(key[1]), key=key[1])


def _inserted(function: str, text: str) -> Statement | None:
    inserted = _INSERTED.search(text)
    if inserted is None:
        return None
    record = solver_record(_WRITTEN.sub("=", text, 1))
    if record is not None and record.solvers[0].time_ms is not None:
        (one, *_) = record.solvers
        return _of_record(record, one, "written")
    key, name, solver, time, workspace = inserted.groups()
    algorithm = name if solver is not None else None
    return Statement(
        solvers=(solver or name,),
        algorithm=algorithm,
        outcome="written",
        time_ms=_ms(time),
        workspace_bytes=_bytes(workspace),
        problem=find_db_key(key) if key else None,
        key=key or None,
    )


def _database(function: str, text: str) -> Statement | None:
    """A record of a database, alone or pasted into a log: it was written long before."""
    record = solver_record(_WRITTEN.sub("=", text, 1))
    if record is None:
        return None
    return _of_record(record, record.solvers[0], "tuned" if record.solvers[0].time_ms is None else "measured")


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


def _key_found(function: str, text: str) -> Statement | None:
    contents = _CONTENTS.search(text)
    return _key(function, text) if contents is None else Statement(solvers=(contents[1],), outcome="found")


def _perf_db_key(function: str, text: str) -> Statement | None:
    values = _VALUES.search(text)
    if values is None:
        return None
    return Statement(outcome="looked up", problem=perf_db_values(values[1]), key=values[1])


def _kernel_key(function: str, text: str) -> Statement | None:
    key = _KERNEL_KEY.search(text)
    if key is None:
        return None
    return Statement(problem=network_config(key[2], _of_algorithm(key[1])), key=key[2])


def _solutions(function: str, text: str) -> Statement | None:
    solution = _SOLUTION.search(text)
    if solution is not None:
        return Statement(
            solvers=(solution[4],), outcome="known", time_ms=_ms(solution[2]), workspace_bytes=int(solution[3])
        )
    estimate = _ESTIMATE.search(text)
    if estimate is None:
        return None
    return Statement(solvers=(estimate[1],), outcome=f"estimated, {estimate[2]} of the best possible")


def _workspace(function: str, text: str) -> Statement | None:
    required = _REQUIRED.search(text)
    if required is None:
        answered = _ANSWERED.search(text)
        return None if answered is None else Statement(outcome="answered", workspace_bytes=int(answered[1]))
    given = required["limit"] or required["size"]
    return Statement(
        solvers=(required["solver"],) if required["solver"] else (),
        workspace_bytes=int(required["required"]),
        given_bytes=_bytes(given),
        outcome="too little" if given is not None and int(given) < int(required["required"]) else None,
    )


def _execution(function: str, text: str) -> Statement | None:
    executed = _EXECUTED.search(text)
    if executed is None:
        return None
    return Statement(solvers=(executed[2],) if executed[2] else (), outcome="executed", given_bytes=int(executed[3]))


def _summary(function: str, text: str) -> Statement | None:
    summary = _SUMMARY.search(text)
    if summary is None:
        return None
    solver = summary[2] if summary[2] and summary[2] != "N/A" else ""
    return Statement(
        solvers=(solver,) if solver else (),
        outcome="executed",
        time_ms=_ms(summary[3]),
        problem=parse(summary[1]),
    )


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


_READ: Mapping[str, Callable[[str, str], Statement | None]] = {
    "search": _search,
    "search failed": _search_failed,
    "chosen": _chosen,
    "result": _result,
    "benchmark": _benchmark,
    "selected": _selected,
    "candidate": _candidate,
    "prepare": _prepare,
    "tuning": _tuning,
    "registered": _registered,
    "invoker registered": _invoker_registered,
    "invoker": _invoker,
    "key": _key,
    "find-db insert": _inserted,
    "find-db record": _database,
    "kernel key": _kernel_key,
    "key found": _key_found,
    "perf-db key": _perf_db_key,
    "solutions": _solutions,
    "workspace": _workspace,
    "workspace warning": _workspace,
    "execution": _execution,
    "immediate": _execution,
    "summary": _summary,
    "driver": _driver,
    "performance": _performance,
}


# -- Records of MIOPEN_PERFORMANCE_LOGS: a JSON object per line and solution (miopen-side-files.md 5) ------------------

_BAD_ESCAPE = re.compile(r"\\u(?:[0-9a-fA-F]{0,3}[^0-9a-fA-F]|ffffff[0-9a-fA-F]{2})")
_NEVER = (1 << 64) - 1


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """A line of MIOPEN_PERFORMANCE_LOGS: a solver, the time of its fastest configuration, the kernels of that one."""

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
    """A record of MIOPEN_PERFORMANCE_LOGS (miopen-side-files.md 5); None if it is none, or damaged.

    A configuration whose number of executions is the greatest of 64 bits was not timed.
    """
    try:
        told = _PERFORMANCE.decode(text)
    except msgspec.DecodeError:
        try:  # what is no ASCII may be written as an escape that JSON has not got
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
