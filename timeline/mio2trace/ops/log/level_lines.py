"""Level lines to operations: searches, executions, launches, keys, summaries (miopen-log.md 8, 9).

A message belongs to the last compute or find call of its thread when that can have printed it, else it makes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from mio2trace.model.miopen import Message, OperationDirection
from mio2trace.ops import values
from mio2trace.ops.command import parse
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.log.draft import Build
from mio2trace.ops.log.keys import find_db_key, network_config
from mio2trace.ops.log.launch_lines import gemm_call, launch, same_size
from mio2trace.ops.log.state import State
from mio2trace.ops.operation import Phase
from mio2trace.ops.problem import DirectionOnly, Problem
from mio2trace.ops.solvers import family, solver_name
from mio2trace.ops.table import INVOKED

_SEARCHED: dict[str, OperationDirection] = {
    "FindConvFwdAlgorithm": "forward",
    "FindConvBwdDataAlgorithm": "backward-data",
    "FindConvBwdWeightsAlgorithm": "backward-weights",
}
_EXECUTED: dict[str, OperationDirection] = {
    "ConvolutionForward": "forward",
    "ConvolutionBackwardData": "backward-data",
    "ConvolutionBackwardWeights": "backward-weights",
    "ConvolutionForwardImmediate": "forward",
    "ConvolutionBackwardImmediate": "backward-data",
    "ConvolutionWrwImmediate": "backward-weights",
}
_CHOSEN: dict[str, OperationDirection] = {"FW": "forward", "BWD": "backward-data", "BWrW": "backward-weights"}
_DRIVER: dict[str, OperationDirection] = {
    "Forward": "forward",
    "Backward Data": "backward-data",
    "Backward Weights": "backward-weights",
}
_ASSIGNED = re.compile(r"(?<!\w)(\w++) = (-?[0-9]{1,18})")
_SOLVER_ID = re.compile(r"solver_id = ([^,\s]+)")
_CHOSEN_TEXT = re.compile(r"(?<!\w)(\w++) Chosen Algorithm: (\S++) , ([0-9]{1,18}), ")
_INVOKER = re.compile(r"problem (\S+) and (algorithm|solver) (\S+)")
_REGISTERED = re.compile(r"Solver (\S+) registered as find 1.0 best for (\S+) in (\S+)")
_INVOKER_REGISTERED = re.compile(r"for algorithm (\S+) and solver (\S+)")
_KEY = re.compile(r"[Kk]ey:? (\S+)|^(\S+), content inserted: ")
_KERNEL_KEY = re.compile(r"key: miopenConvolution\w+ \"([^\"]+)\"")
_SUMMARY = re.compile(r"Problem=\"([^\"]*)\"(?: Solver=\"([^\"]*)\")?")
_PERFORMANCE = re.compile(r'"solution":"(?:\d+/)?([^"/]+)"')
_PHASE = re.compile(r'"phase":"(\w+)"')
_JSON_DIRECTION = re.compile(r'"direction":"([\w -]+)"')
_DRIVER_SOLUTION = re.compile(
    r"MIOpen (Forward|Backward Data|Backward Weights) Conv\. Algorithm: \d+, Solution: \d+/(\S+)"
)


class LevelLines:
    """Takes the messages of a log. ``entries``: whether the log has entries, which name every call."""

    def __init__(self, state: State, entries: bool) -> None:
        self._state = state
        self._entries = entries

    def take(self, message: Message) -> None:
        """Add what the message says to the operation of its thread, or to one of its own."""
        read = _KINDS.get(message.kind)
        if read is not None:
            read(self, message, self._state.current.get(message.thread))

    def _launch(self, message: Message, build: Build | None) -> None:
        printed = launch(message)
        if build is not None and printed is not None:
            build.launches.append(printed)
            build.end_line = message.line

    def _gemm(self, message: Message, build: Build | None) -> None:
        call = gemm_call(message)
        if build is None or call is None:
            return
        last = build.gemms[-1] if build.gemms else None
        if last is not None and call.sequential and not last.library and not last.sequential and same_size(last, call):
            build.gemms.pop()  # a strided batched call hands over to the sequential one: both print
        build.gemms.append(call)
        build.end_line = message.line

    def _gemm_library(self, message: Message, build: Build | None) -> None:
        if build is not None and build.gemms:
            build.gemms[-1] = msgspec.structs.replace(build.gemms[-1], library=message.text.strip())
            build.end_line = message.line

    def _kernel_key(self, message: Message, build: Build | None) -> None:
        key = _KERNEL_KEY.search(message.text)
        if key and build is not None:
            self._shape(build, network_config(key[1], build.direction))

    def _driver(self, message: Message, build: Build | None) -> None:
        solution = _DRIVER_SOLUTION.search(message.text)
        if solution and build is not None and build.direction == _DRIVER[solution[1]] and build.solver is None:
            build.solver = solution[2]
            build.end_line = message.line

    def _error(self, message: Message, build: Build | None) -> None:
        if message.level == "Error" and build is not None and not build.doubts:
            build.doubts.append(f"an error was logged after this call (line {message.line})")

    def _performance(self, message: Message, build: Build | None) -> None:
        """A JSON record (miopen-log.md 9.3) of an execution: it names the solver of the call that has none yet."""
        if build is None or build.primitive != "conv" or build.phase != "run" or build.solver is not None:
            return
        executed = _PHASE.search(message.text)
        told = _PERFORMANCE.search(message.text)
        if told is None or (executed is not None and executed[1] != "execution"):
            return
        direction = _JSON_DIRECTION.search(message.text)
        if direction is None or build.direction == _DRIVER.get(direction[1].title().replace("-", " ")):
            build.solver = told[1]
            build.end_line = message.line

    def _level_build(self, message: Message, phase: Phase, direction: OperationDirection) -> Build:
        template = self._state.template
        problem: Problem = DirectionOnly(direction=direction)
        if template is not None and template.primitive == "conv":
            problem = msgspec.structs.replace(template, direction=direction)
        build = self._state.start(Build(message, message.function, "conv", phase, problem))
        build.type(problem.dtype, "command")
        return build

    def _search(self, message: Message, build: Build | None) -> None:
        direction = _SEARCHED.get(message.function)
        if direction is None:
            return
        mine = (
            build is not None and build.phase == "find" and build.primitive == "conv" and build.runs(direction)
            and not build.chosen and not (build.searched and "requestAlgoCount" in message.text)
        )  # fmt: skip
        if build is None or not mine:
            build = self._level_build(message, "find", direction)
        build.searched = True
        build.end_line = message.line
        workspace = dict(_ASSIGNED.findall(message.text)).get("workspace")
        if workspace is not None and build.workspace is None:
            build.workspace = int(workspace)

    def _shape(self, build: Build, problem: ConvProblem | None) -> None:
        """What a key says about a convolution: its problem when nothing else told it, else its type."""
        if problem is None or build.primitive != "conv":
            return
        stated = build.problem
        if stated is None:
            return
        if not stated.is_shaped and stated.direction == problem.direction:
            stated = build.problem = problem
        if stated.runs_other_gradient or (stated.input, stated.weights) == (problem.x, problem.w):
            build.type(problem.dtype, "key")

    def _registered(self, message: Message, build: Build | None) -> None:
        """Which solver is the best, with the shapes of the search under way."""
        solver = _REGISTERED.search(message.text)
        if solver:
            self._state.register(solver[2], solver[3], solver[1])
        if build is not None and _is_searching(build):
            build.end_line = message.line
            self._shape(build, network_config(solver[3] if solver else "", build.direction))

    def _invoker_registered(self, message: Message, build: Build | None) -> None:
        if build is not None and _is_searching(build):
            build.end_line = message.line
            config = _INVOKER_REGISTERED.search(message.text)
            self._shape(build, network_config(config[1] if config else "", build.direction))

    def _key(self, message: Message, build: Build | None) -> None:
        """A find-db key: that of the search under way, or of one whose beginning is not in the log."""
        key = _KEY.search(message.text)
        if build is not None and _is_searching(build):
            build.end_line = message.line
            if key:
                self._shape(build, find_db_key(key[1] or key[2]))
        elif message.kind == "find-db insert" and key:
            self._state.inserted[message.thread] = key[2] or ""
            self._state.told += 1

    def _choice(self, message: Message, build: Build | None) -> None:
        chosen = _CHOSEN_TEXT.search(message.text)
        if chosen is None or chosen[1] not in _CHOSEN:
            return
        direction = _CHOSEN[chosen[1]]
        if build is None or not _is_searching(build) or not build.runs(direction):
            build = self._level_build(message, "find", direction)
            self._shape(build, find_db_key(self._state.inserted.pop(message.thread, "")))
            self._state.told += 1
        build.chosen = True
        build.solver = chosen[2]
        build.algorithm = family(chosen[2]) or build.algorithm
        build.workspace = int(chosen[3])
        build.end_line = message.line
        self._state.choose(build.problem, chosen[2])

    def _execution(self, message: Message, build: Build | None) -> None:
        direction = _EXECUTED.get(message.function)
        if direction is None:
            return
        mine = (
            build is not None and build.phase == "run" and build.primitive in ("conv", "fusion") and not build.executed
            and build.runs(direction)
        )  # fmt: skip
        if build is None or not mine:
            build = self._level_build(message, "run", direction)
        build.executed = True
        build.end_line = message.line
        numbers = dict(_ASSIGNED.findall(message.text))
        if "algo" in numbers and 0 <= int(numbers["algo"]) < len(values.ALGORITHMS):
            build.algorithm = values.ALGORITHMS[int(numbers["algo"])]
        if "workspace" in numbers:
            build.workspace = int(numbers["workspace"])
        if build.solver is None:
            solver = self._state.chosen(build.problem)
            known = {"Naive": "Direct"}.get(family(solver) or "", family(solver)) if solver else None
            if known is not None and known == build.algorithm:
                build.solver = solver
        found = _SOLVER_ID.search(message.text)
        if found:
            build.solver = (
                solver_name(int(found[1]))
                if found[1].isascii() and found[1].isdecimal() and len(found[1]) < 6
                else found[1]
            ) or None

    def _invoker(self, message: Message, build: Build | None) -> None:
        found = _INVOKER.search(message.text)
        if found is None:
            return
        config, what, name = found.groups()
        if what == "algorithm" and not name.startswith("miopenConvolution"):
            row = next((row for row in INVOKED if name.startswith(row[0])), None)
            if row is None:
                return
            _, primitive, direction = row
            if not self._entries and (build is None or build.primitive != primitive or build.executed):
                problem = DirectionOnly(direction=direction)
                build = self._state.start(Build(message, message.function, primitive, "run", problem))
            if build is not None and build.primitive == primitive:
                build.executed = True
                build.end_line = message.line
            return
        if build is None or build.primitive not in ("conv", "fusion"):
            return
        build.end_line = message.line
        self._shape(build, network_config(config, build.direction))
        if build.phase == "run" and build.solver is None:
            build.solver = name if what == "solver" else self._state.registered(name, config)

    def _summary(self, message: Message, build: Build | None) -> None:
        found = _SUMMARY.search(message.text)
        if found is None:
            return
        problem = parse(found[1])
        mine = (
            build is not None and build.phase == "run" and build.primitive in ("conv", "fusion")
            and not build.summarised and problem is not None and problem.direction is not None
            and build.runs(problem.direction)
            and (build.problem is None or problem.fits(build.problem))
        )  # fmt: skip
        if build is None or not mine:
            build = self._state.start(Build(message, message.function, "conv", "run", problem))
        elif build.problem is None or not build.problem.is_shaped:
            build.problem = problem
        build.summarised = True
        build.end_line = message.line
        if problem is not None:
            build.type(problem.dtype, "command")
        if found[2] and found[2] != "N/A":
            build.solver = found[2]


def _is_searching(build: Build) -> bool:
    return build.phase == "find" and not build.chosen


_KINDS: Mapping[str, Callable[[LevelLines, Message, Build | None], None]] = {
    "launch": LevelLines._launch,
    "gemm": LevelLines._gemm,
    "gemm library": LevelLines._gemm_library,
    "search": LevelLines._search,
    "chosen": LevelLines._choice,
    "registered": LevelLines._registered,
    "invoker registered": LevelLines._invoker_registered,
    "find-db insert": LevelLines._key,
    "key": LevelLines._key,
    "execution": LevelLines._execution,
    "immediate": LevelLines._execution,
    "invoker": LevelLines._invoker,
    "summary": LevelLines._summary,
    "kernel key": LevelLines._kernel_key,
    "driver": LevelLines._driver,
    "performance": LevelLines._performance,
    "error": LevelLines._error,
}
