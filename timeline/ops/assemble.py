"""A log's records to operations: an entry, its command and its level lines are one (miopen-log.md 10).

Records belong to the last compute or find call of their thread. A log without entries gives an operation per command;
one with level lines only gives one per search and per execution.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from timeline.model.miopen import Command, Entry, Message, MiopenLog, parse_params
from timeline.model.operation import GemmCall, Launch, Operation, OperationDirection, Phase
from timeline.ops import values
from timeline.ops.building import Build, Unknown, finish
from timeline.ops.command import form_of, parse, split, tag_direction
from timeline.ops.conv import ConvProblem
from timeline.ops.elementwise import OpTensorProblem, SoftmaxProblem
from timeline.ops.fusion import FusionProblem
from timeline.ops.keys import find_db_key, network_config
from timeline.ops.norm import BnormProblem, LrnProblem
from timeline.ops.plans import DescriptorTypes, Find2Problems, FusionPlans, run_tensors
from timeline.ops.pool import PoolProblem
from timeline.ops.problem import FORMS, CommandError, Form, Problem
from timeline.ops.rnn import RnnProblem
from timeline.ops.solvers import family, solver_name
from timeline.ops.table import OPS

Made = TypeVar("Made")

_KEPT = 1 << 14  # results of each kind
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
_TENSOR_OPS = frozenset(("optensor", "settensor", "scaletensor", "transformtensor"))
_ASSIGNED = re.compile(r"(\w+) = (-?\d{1,18})")
_SOLVER_ID = re.compile(r"solver_id = ([^,\s]+)")
_CHOSEN_TEXT = re.compile(r"(\w+) Chosen Algorithm: (\S+) , (\d{1,18}), ")
_INVOKER = re.compile(r"problem (\S+) and (algorithm|solver) (\S+)")
_REGISTERED = re.compile(r"Solver (\S+) registered as find 1.0 best for (\S+) in (\S+)")
_INVOKER_REGISTERED = re.compile(r"for algorithm (\S+) and solver (\S+)")
_KEY = re.compile(r"[Kk]ey:? (\S+)|^(\S+), content inserted: ")
_KERNEL_KEY = re.compile(r"key: miopenConvolution\w+ \"([^\"]+)\"")
_LAUNCH = re.compile(r"(?:kernel_name = )?([^,]+),.*?global_work_dim = \{([^}]*)\}(?:, local_work_dim = \{([^}]*)\})?")
_GEMM_FIELD = re.compile(r"(\w+) (-?[\w.+]+)")
_SUMMARY = re.compile(r"Problem=\"([^\"]*)\"(?: Solver=\"([^\"]*)\")?")
_PERFORMANCE = re.compile(r'"solution":"(?:\d+/)?([^"/]+)"')
_PHASE = re.compile(r'"phase":"(\w+)"')
_JSON_DIRECTION = re.compile(r'"direction":"([\w -]+)"')
_DRIVER_SOLUTION = re.compile(
    r"MIOpen (Forward|Backward Data|Backward Weights) Conv\. Algorithm: \d+, Solution: \d+/(\S+)"
)


def operations(log: MiopenLog) -> tuple[Operation, ...]:
    """Every compute and find call, in log order."""
    return _Assembly(log).result()


def log_form(log: MiopenLog) -> Form | None:
    """The form of the log's own commands; None when it has none."""
    return form_of({(record.tag, record.text) for record in log.records if isinstance(record, Command) and record.tag})


def driver_command(operation: Operation, form: Form = "newest") -> str:
    """``./bin/MIOpenDriver ...`` of an operation in a version's form. Raises `CommandError`."""
    if not isinstance(operation.problem, Problem):
        raise CommandError("the log does not tell the shapes")
    if form not in FORMS:
        raise CommandError(f"unknown form {form}")
    return "./bin/MIOpenDriver " + operation.problem.command(form)


class _Assembly:
    def __init__(self, log: MiopenLog) -> None:
        self.log = log
        self.done: list[Operation | Build] = []
        self.current: dict[int | None, Build] = {}
        self.types = DescriptorTypes()
        self.plans = FusionPlans()
        self.problems = Find2Problems()
        self.solvers: dict[tuple[str, str], str] = {}  # algorithm word, network config -> solver
        self.inserted: dict[int | None, str] = {}
        self.chosen: dict[ConvProblem, str] = {}  # the best solver that a search found
        self.memo: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}
        self.same: dict[tuple[object, ...], tuple[object, Operation]] = {}
        apis, tags, kinds = _what_there_is(log)
        self.entries = any(api in OPS for api in apis)
        tagged = any(tags)
        told = bool(kinds & {"search", "execution", "immediate", "summary", "chosen"})
        # A bare command is the driver's own first line when the log tells more than that.
        self.bare = not (self.entries or tagged or told)
        self.template: Problem | None = None
        form = log_form(log)
        self.weights_find_first = not self.entries and form in ("2.1", "2.3")
        self.other_command_seen = False
        self.weights_seen: set[Problem] = set()
        for record in log.records:
            if isinstance(record, Entry):
                self.entry(record)
            elif isinstance(record, Command):
                self.command(record)
            else:
                self.message(record)

    def result(self) -> tuple[Operation, ...]:
        return tuple(self._finished(at, one) for at, one in enumerate(self.done))

    def _finished(self, at: int, one: Operation | Build) -> Operation:
        return self._finish(at, one) if isinstance(one, Build) else one

    def _finish(self, at: int, build: Build) -> Operation:
        """The same as `finish`; what differs from an equal operation before is the place and the buffers."""
        command = build.command
        key = (
            build.api, build.primitive, build.phase, id(build.problem), build.dtype, build.dtype_by, build.algorithm,
            build.solver, build.workspace, build.thread, command.text if command is not None else None, *build.doubts,
        )  # fmt: skip
        found = self.same.get(key)
        if found is None or (build.dtype is None and build.launches):
            made = finish(at, build, self.log.source)
            if found is None and not (build.dtype is None and build.launches):
                if len(self.same) > _KEPT:
                    self.same.clear()
                self.same[key] = (build.problem, made)
            return made
        return msgspec.structs.replace(
            found[1],
            index=at,
            line=build.line,
            end_line=build.end_line,
            command_line=command.line if command is not None else 0,
            tensors=build.tensors,
            launches=tuple(build.launches),
            gemms=tuple(build.gemms),
            nested=tuple(build.nested),
            stamp=build.stamp,
            elapsed_ns=build.elapsed_ns,
        )

    def once(self, make: Callable[..., Made], *of: object) -> Made:
        """``make(*of)``, remembered by the identity of ``of``: problems are shared, and dear to compare."""
        key = (make, *map(id, of))
        found = self.memo.get(key)
        if found is None:
            if len(self.memo) > _KEPT:
                self.memo.clear()
            found = self.memo[key] = (of, make(*of))
        made: Made = found[1]
        return made

    def start(self, build: Build) -> Build:
        """The thread's operation from here on; the one before it is complete."""
        last = self.current.get(build.thread)
        if last is not None:
            self.done[last.index] = self._finish(last.index, last)
        build.index = len(self.done)
        self.done.append(build)
        self.current[build.thread] = build
        return build

    # Entries

    def entry(self, entry: Entry) -> None:
        call = entry.call
        if call.nested:
            build = self.current.get(entry.thread)
            if build is not None:
                self._nested(build, entry)
            return
        op = OPS.get(call.api)
        if op is not None:
            stated, buffers = _stated(entry)
            problem, types = stated.problem, stated.tensor
            build = self.start(Build(entry, call.api, op.primitive, op.phase, problem))
            self._open(build, entry, stated, buffers)
            if isinstance(problem, FusionProblem) and not problem.parts:
                build.problem, doubt = self.plans.execute(entry, problem)
                if doubt:
                    build.doubts.append(doubt)
            if types is not None:
                dtype, ambiguous = self.types.find(types)
                build.type(dtype, "descriptor")
                if ambiguous:
                    build.doubts.append("tensors of this shape had several data types: the last one is taken")
        elif entry.api == "miopenFindSolutions" or entry.api == "miopenRunSolution":
            find = entry.api == "miopenFindSolutions"
            conv = self.problems.find(entry) if find else self.problems.run(entry)
            kinds = {"Conv": "conv", "Activ": "activ", "Mha": "mha", "Softmax": "softmax", "miopenTensorB": "bnorm"}
            names = " ".join(run_tensors(entry))
            primitive = next((kind for part, kind in kinds.items() if part in names), "find2")
            build = Build(entry, entry.api, "conv" if conv else primitive, "find" if find else "run", conv)
            self._open(self.start(build), entry, *_stated(entry))
        elif entry.api.startswith("miopenSet"):
            if "TensorDescriptor" in entry.api and "Problem" not in entry.api:
                self.types.set(entry)
            elif entry.api == "miopenSetProblemTensorDescriptor":
                self.problems.set(entry)
        elif entry.api.startswith("miopenCreate"):
            if entry.api == "miopenCreateConvProblem":
                self.problems.create(entry)
            else:
                self.plans.add(entry)
        elif entry.api == "miopenCompileFusionPlan":
            self.plans.add(entry)

    def _nested(self, build: Build, entry: Entry) -> None:
        """An internal entry: its one literal names the GEMM path or one GEMM call's library (miopen-log.md 3.4)."""
        build.end_line = entry.end_line
        literal = entry.params[0][0].strip('"') if entry.params else entry.api
        build.nested.append(literal)
        if entry.api.startswith("CallGemm") and build.gemms and not build.gemms[-1].library:
            build.gemms[-1] = msgspec.structs.replace(build.gemms[-1], library=literal)

    def _open(self, build: Build, entry: Entry, stated: _Stated, buffers: tuple[tuple[str, int], ...]) -> None:
        build.entry = entry
        build.tensors = buffers
        build.end_line = entry.end_line
        if build.problem is None:
            build.doubts.append("the entry does not hold the problem" if entry.complete else "entry cut off")
        elif not entry.complete:
            build.doubts.append("entry cut off")
        number, workspace, solution = stated.algorithm, stated.workspace, stated.solution
        if number is not None and build.primitive in ("conv", "fusion") and 0 <= number < len(values.ALGORITHMS):
            build.algorithm = values.ALGORITHMS[number]
        build.workspace = workspace
        if solution is not None:
            build.solver = solver_name(solution)
            if isinstance(build.problem, ConvProblem):
                build.problem = self.once(_immediate, build.problem)

    # Commands

    def command(self, command: Command) -> None:
        problem = parse(command.text, command.tag)
        if not command.tag and not self.bare:
            self.template = problem
            return
        build = self.current.get(command.thread)
        if (
            build is not None
            and build.entry is not None
            and build.command is None
            and _belongs(build, command, problem)
        ):
            build.command = command
            build.end_line = command.line
            build.problem = self.once(_merged, build.problem, problem)
        else:
            primitive = problem.primitive if problem is not None else _primitive(command.text)
            build = self.start(Build(command, command.tag, primitive, self._phase(command, problem), problem))
            build.command = command
            if problem is None:
                build.doubts.append("the command is cut off or of an unknown kind")
        if problem is not None:
            build.type(problem.dtype, "command")
            if isinstance(problem, ConvProblem) and problem.solver_id:
                build.solver = solver_name(problem.solver_id) or build.solver

    def _phase(self, command: Command, problem: Problem | None) -> Phase:
        """Of a command without an entry (miopen-log.md 7.1): up to ROCm 5.3 the search of weights prints one, too."""
        if "Find" in command.tag:
            return "find"
        if not self.weights_find_first or command.tag != "LogCmdConvolution":
            self.other_command_seen = True
            return "run"
        if problem is None or problem.direction != "backward-weights":
            self.other_command_seen = True
            return "run"
        new = problem not in self.weights_seen
        self.weights_seen.add(problem)
        return "find" if new or not self.other_command_seen else "run"

    # Level lines

    def message(self, message: Message) -> None:
        kind = message.kind
        build = self.current.get(message.thread)
        if kind == "launch":
            launch = _launch(message)
            if build is not None and launch is not None:
                build.launches.append(launch)
                build.end_line = message.line
        elif kind == "gemm":
            call = _gemm_call(message)
            if build is not None and call is not None:
                last = build.gemms[-1] if build.gemms else None
                twice = call.sequential and last is not None and not last.library and not last.sequential
                if twice and last is not None and _size(last) == _size(call):
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
        template = self.template
        problem: Problem | None = None
        if isinstance(template, ConvProblem):
            problem = msgspec.structs.replace(template, direction=direction)
        build = self.start(Build(message, message.function, "conv", phase, problem))
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
                self.solvers[found[2], found[3]] = found[1]
        searching = build is not None and build.phase == "find" and not build.chosen
        if message.kind == "chosen":
            chosen = _CHOSEN_TEXT.search(text)
            if chosen is None or chosen[1] not in _CHOSEN:
                return
            direction = _CHOSEN[chosen[1]]
            if build is None or not searching or not build.runs(direction):
                build = self._level_build(message, "find", direction)
                self._shape(build, find_db_key(self.inserted.pop(message.thread, "")))
            build.chosen = True
            build.solver = chosen[2]
            build.algorithm = family(chosen[2]) or build.algorithm
            build.workspace = int(chosen[3])
            build.end_line = message.line
            if isinstance(build.problem, ConvProblem):
                self.chosen[_same(build.problem)] = chosen[2]
            return
        if build is None or not searching:
            if message.kind == "find-db insert" and (found := _KEY.search(text)) is not None:
                self.inserted[message.thread] = found[2] or ""  # of a search whose beginning is not in the log
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
            solver = self.chosen.get(_same(build.problem))
            known = {"Naive": "Direct"}.get(family(solver) or "", family(solver)) if solver else None
            if known is not None and known == build.algorithm:
                build.solver = solver
        found = _SOLVER_ID.search(message.text)
        if found:
            build.solver = (
                solver_name(int(found[1])) if found[1].isdigit() and len(found[1]) < 6 else found[1]
            ) or None

    def _invoker(self, message: Message, build: Build | None) -> None:
        found = _INVOKER.search(message.text)
        if found is None:
            return
        config, what, name = found.groups()
        if what == "algorithm" and not name.startswith("miopenConvolution"):
            row = next((row for row in _BY_ALGORITHM_WORD if name.startswith(row[0])), None)
            if row is not None and not self.entries and (build is None or build.primitive != row[1] or build.executed):
                build = self.start(Build(message, message.function, row[1], "run", Unknown(direction=row[2])))
            if row is not None and build is not None and build.primitive == row[1]:
                build.executed = True
                build.end_line = message.line
            return
        if build is None or build.primitive not in ("conv", "fusion"):
            return
        build.end_line = message.line
        self._shape(build, network_config(config, build.direction))
        if build.phase == "run" and build.solver is None:
            build.solver = name if what == "solver" else self.solvers.get((name, config))

    def _summary(self, message: Message, build: Build | None) -> None:
        found = _SUMMARY.search(message.text)
        if found is None:
            return
        problem = parse(found[1])
        mine = (
            build is not None and build.phase == "run" and build.primitive in ("conv", "fusion")
            and not build.summarised and problem is not None and problem.direction is not None
            and build.runs(problem.direction)
            and (build.problem is None or isinstance(build.problem, Unknown) or _same_shapes(build.problem, problem))
        )  # fmt: skip
        if build is None or not mine:
            build = self.start(Build(message, message.function, "conv", "run", problem))
        elif build.problem is None or isinstance(build.problem, Unknown):
            build.problem = problem
        build.summarised = True
        build.end_line = message.line
        if problem is not None:
            build.type(problem.dtype, "command")
        if found[2] and found[2] != "N/A":
            build.solver = found[2]


def _what_there_is(log: MiopenLog) -> tuple[set[str], set[str], set[str]]:
    """Functions of the entries, tags of the commands, kinds of the messages."""
    calls, tags, kinds = set(), set(), set()
    for record in log.records:
        if isinstance(record, Entry):
            calls.add(record.call.api)
        elif isinstance(record, Command):
            tags.add(record.tag)
        else:
            kinds.add(record.kind)
    return calls, tags, kinds


class _Stated(msgspec.Struct, frozen=True):
    """What an entry states apart from the buffers' addresses. ``tensor`` is the one whose type counts.

    ``names`` are the parameters that hold an address, in order, "" for those that are no buffers of the device.
    """

    problem: Problem | None
    tensor: values.Tensor | None
    algorithm: int | None
    workspace: int | None
    solution: int | None
    names: tuple[str, ...]


def _stated(entry: Entry) -> tuple[_Stated, tuple[tuple[str, int], ...]]:
    """As `_Stated`, and the buffers. Entries that differ in their buffers only share one problem object."""
    stated = _stated_by(entry.call.api, entry.call.template)
    if not entry.addresses:
        return stated, ()
    found = zip(stated.names, entry.addresses.split(b","), strict=False)
    return stated, tuple([(name, int(address, 16)) for name, address in found if name])


@lru_cache(maxsize=1 << 14)
def _stated_by(api: str, template: bytes) -> _Stated:
    body = template.replace(b"0x\0", b"0x1").replace(b"\0", b"0x1")
    params = dict(parse_params(body))
    op = OPS.get(api)
    names = ("xDesc", "dxDesc", "inputDesc", "aDesc", "yDesc", "dyDesc", "paramDesc", "probsDesc")
    sizes = ("workSpaceSize", "workspaceSizeInBytes", "workspaceSize")
    return _Stated(
        op.build(params, op) if op is not None else None,
        next((found for found in (values.tensor(params.get(name, "")) for name in names) if found), None),
        values.number(params.get("algo")),
        values.number(next((params[name] for name in sizes if name in params), None)),
        values.number(params.get("solution_id")),
        tuple(
            "" if name.endswith("Desc") or name.startswith(("alpha", "beta")) or name in _NO_BUFFERS else name
            for name, value in parse_params(body)
            if value == "0x1" or value.startswith("stream: 0x1, device_id")
        ),
    )


_NO_BUFFERS = frozenset(("handle", "args", "problem", "solution", "options", "solutions"))


def _primitive(text: str) -> str:
    word = split(text)[0]
    known = ("conv", "pool", "bnorm", "activ", "softmax", "lrn", "rnn", "tensorop", "reduce", "dropout", "ctc")
    name = next((name for name in known if word.startswith(name)), word)
    return {"tensorop": "optensor", "CBAInfer": "fusion"}.get(name, name)


def _belongs(build: Build, command: Command, problem: Problem | None) -> bool:
    """Whether a command is the one that an entry's call printed."""
    if problem is None:
        return _primitive(command.text) == build.primitive
    if "Find" in command.tag and build.phase != "find":
        return False
    if problem.primitive in _TENSOR_OPS and build.primitive in _TENSOR_OPS:
        return isinstance(problem, OpTensorProblem) and (
            not isinstance(build.problem, OpTensorProblem) or _padded(build.problem.a) == problem.a
            or _padded(build.problem.output) == problem.a
        )  # fmt: skip
    if problem.primitive != build.primitive:
        return False
    if build.problem is None:
        return True
    api_direction = tag_direction(command.tag) if command.tag.startswith("miopen") else None
    if None not in (problem.direction, build.direction) and problem.direction != build.direction:
        return False
    if api_direction is not None and build.direction is not None and api_direction != build.direction:
        return False
    return _same_shapes(build.problem, problem)


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1, 1, 1, 1)[:4] if len(shape) < 4 else shape


def _same_shapes(mine: Problem, theirs: Problem) -> bool:
    if not mine.input or not theirs.input or isinstance(theirs, RnnProblem):
        return True
    if _padded(mine.input) != _padded(theirs.input):
        return False
    return not (isinstance(mine, ConvProblem) and isinstance(theirs, ConvProblem)) or mine.w[2:] == theirs.w[2:]


def _merged(mine: Problem | None, told: Problem | None) -> Problem | None:
    """The entry's problem with what only the command tells."""
    if told is None or mine is None:
        return mine if told is None else told
    replace = msgspec.structs.replace
    if isinstance(mine, ConvProblem) and isinstance(told, ConvProblem):
        return replace(mine, solver_id=told.solver_id)
    if isinstance(mine, PoolProblem) and isinstance(told, PoolProblem):
        return replace(mine, index_mode=told.index_mode)
    if isinstance(mine, OpTensorProblem) and isinstance(told, OpTensorProblem):
        return replace(mine, scaling=told.scaling)
    if isinstance(mine, SoftmaxProblem) and isinstance(told, SoftmaxProblem):
        return replace(mine, alpha=told.alpha, beta=told.beta)
    if isinstance(mine, BnormProblem) and isinstance(told, BnormProblem):
        return replace(mine, scale_dtype=told.scale_dtype, activation=told.activation)
    if isinstance(mine, LrnProblem) and isinstance(told, LrnProblem) and not mine.window:
        return told
    if isinstance(mine, RnnProblem) and isinstance(told, RnnProblem):
        return replace(told, w=mine.w)
    return mine


def _immediate(problem: ConvProblem) -> ConvProblem:
    return msgspec.structs.replace(problem, solver_id=0)


def _same(problem: ConvProblem) -> ConvProblem:
    """The problem without what records of one call may state differently."""
    return msgspec.structs.replace(problem, dtype=None, solver_id=None, layouts=("", "", ""))


def _size3(text: str | None) -> tuple[int, int, int] | None:
    numbers = values.integers(text or "")
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _launch(message: Message) -> Launch | None:
    found = _LAUNCH.match(message.text)
    if found is None:
        return None
    return Launch(line=message.line, name=found[1].strip(), gws=_size3(found[2]), lws=_size3(found[3]))


def _size(call: GemmCall) -> tuple[int, int, int, int]:
    return call.m, call.n, call.k, call.batch


def _gemm_call(message: Message) -> GemmCall | None:
    fields = dict(_GEMM_FIELD.findall(message.text.partition("{")[2]))
    names = ("m", "n", "k", "batch_count", "transA", "transB", "isColMajor")
    numbers = {name: values.number(fields.get(name)) for name in names}
    m, n, k = numbers["m"], numbers["n"], numbers["k"]
    if m is None or n is None or k is None:
        return None
    a, b = bool(numbers["transA"]), bool(numbers["transB"])
    if numbers["isColMajor"]:
        m, n, a, b = n, m, b, a  # the same product, read by columns
    return GemmCall(
        line=message.line,
        m=m,
        n=n,
        k=k,
        batch=numbers["batch_count"] or 1,
        trans_a=a,
        trans_b=b,
        sequential=message.function.endswith("Sequential"),
    )
