"""Level lines to operations: searches, executions, launches, keys, summaries (miopen-log.md 8, 9).

A message belongs to the last compute or find call of its thread when that can have printed it, else it makes one.
"""

from __future__ import annotations

import re

import msgspec

from mio2trace.model.miopen import Message, OperationDirection
from mio2trace.ops import values
from mio2trace.ops.command import parse
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.log.draft import Build, Unknown
from mio2trace.ops.log.keys import find_db_key, network_config
from mio2trace.ops.log.launch_lines import gemm_call, launch, same_size
from mio2trace.ops.log.printed_command import same_shapes
from mio2trace.ops.log.state import State
from mio2trace.ops.operation import Phase
from mio2trace.ops.problem import Problem
from mio2trace.ops.solvers import family, solver_name

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
_BY_ALGORITHM_WORD: tuple[tuple[str, str, OperationDirection | None], ...] = (
    ("miopenBatchNormForward", "bnorm", "forward"),
    ("miopenBatchNormBackward", "bnorm", "backward-data"),
    ("miopenBatchNormalizationForward", "bnorm", "forward"),
    ("miopenBatchNormalizationBackward", "bnorm", "backward-data"),
    ("miopenPooling2dForward", "pool", "forward"),
    ("miopenPoolingNdForward", "pool", "forward"),
    ("miopenPooling2dBackward", "pool", "backward-data"),
    ("miopenPoolingNdBackward", "pool", "backward-data"),
    ("miopenActivationForward", "activ", "forward"),
    ("miopenActivationBackward", "activ", "backward-data"),
)
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
        kind = message.kind
        build = self._state.current.get(message.thread)
        if kind == "launch":
            one = launch(message)
            if build is not None and one is not None:
                build.launches.append(one)
                build.end_line = message.line
        elif kind == "gemm":
            call = gemm_call(message)
            if build is not None and call is not None:
                last = build.gemms[-1] if build.gemms else None
                twice = call.sequential and last is not None and not last.library and not last.sequential
                if twice and last is not None and same_size(last, call):
                    build.gemms.pop()  # a strided batched call hands over to the sequential one: both print
                build.gemms.append(call)
                build.end_line = message.line
        elif kind == "gemm library":
            if build is not None and build.gemms:
                build.gemms[-1] = msgspec.structs.replace(build.gemms[-1], library=message.text.strip())
                build.end_line = message.line
        elif kind == "search":
            self._search(message, build)
        elif kind in ("chosen", "registered", "invoker registered", "find-db insert", "key"):
            self._found(message, build)
        elif kind == "execution" or kind == "immediate":
            self._execution(message, build)
        elif kind == "invoker":
            self._invoker(message, build)
        elif kind == "summary":
            self._summary(message, build)
        elif kind == "kernel key":
            found = _KERNEL_KEY.search(message.text)
            if found and build is not None:
                self._shape(build, network_config(found[1], build.direction))
        elif kind == "driver":
            found = _DRIVER_SOLUTION.search(message.text)
            if found and build is not None and build.direction == _DRIVER[found[1]] and build.solver is None:
                build.solver = found[2]
                build.end_line = message.line
        elif kind == "performance":
            self._performance(message, build)
        elif kind == "error" and message.level == "Error" and build is not None and not build.doubts:
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
        problem: Problem | None = None
        if isinstance(template, ConvProblem):
            problem = msgspec.structs.replace(template, direction=direction)
        build = self._state.start(Build(message, message.function, "conv", phase, problem))
        if problem is not None:
            build.type(problem.dtype, "command")
        else:
            # the direction is all that is known so far
            build.problem = Unknown(direction=direction)
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
        if isinstance(build.problem, Unknown) and build.problem.direction == problem.direction:
            build.problem = problem
        same = isinstance(build.problem, ConvProblem) and (
            build.problem.transpose or (build.problem.x, build.problem.w) == (problem.x, problem.w)
        )
        if same:
            build.type(problem.dtype, "key")

    def _found(self, message: Message, build: Build | None) -> None:
        text = message.text
        if message.kind == "registered":
            found = _REGISTERED.search(text)
            if found:
                self._state.register(found[2], found[3], found[1])
        searching = build is not None and build.phase == "find" and not build.chosen
        if message.kind == "chosen":
            chosen = _CHOSEN_TEXT.search(text)
            if chosen is None or chosen[1] not in _CHOSEN:
                return
            direction = _CHOSEN[chosen[1]]
            if build is None or not searching or not build.runs(direction):
                build = self._level_build(message, "find", direction)
                self._shape(build, find_db_key(self._state.inserted.pop(message.thread, "")))
                self._state.told += 1
            build.chosen = True
            build.solver = chosen[2]
            build.algorithm = family(chosen[2]) or build.algorithm
            build.workspace = int(chosen[3])
            build.end_line = message.line
            if isinstance(build.problem, ConvProblem):
                self._state.choose(build.problem, chosen[2])
            return
        if build is None or not searching:
            if message.kind == "find-db insert" and (found := _KEY.search(text)) is not None:
                self._state.inserted[message.thread] = found[2] or ""
                self._state.told += 1
            return
        build.end_line = message.line
        if message.kind in ("key", "find-db insert"):
            found = _KEY.search(text)
            if found:
                self._shape(build, find_db_key(found[1] or found[2]))
        else:
            registered = _REGISTERED.search(text)
            config = registered[3] if registered else ""
            if not config:
                found = _INVOKER_REGISTERED.search(text)
                config = found[1] if found else ""
            self._shape(build, network_config(config, build.direction))

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
        if build.solver is None and isinstance(build.problem, ConvProblem):
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
            row = next((row for row in _BY_ALGORITHM_WORD if name.startswith(row[0])), None)
            if row is not None and not self._entries and (build is None or build.primitive != row[1] or build.executed):
                build = self._state.start(Build(message, message.function, row[1], "run", Unknown(direction=row[2])))
            if row is not None and build is not None and build.primitive == row[1]:
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
            and (build.problem is None or isinstance(build.problem, Unknown) or same_shapes(build.problem, problem))
        )  # fmt: skip
        if build is None or not mine:
            build = self._state.start(Build(message, message.function, "conv", "run", problem))
        elif build.problem is None or isinstance(build.problem, Unknown):
            build.problem = problem
        build.summarised = True
        build.end_line = message.line
        if problem is not None:
            build.type(problem.dtype, "command")
        if found[2] and found[2] != "N/A":
            build.solver = found[2]
