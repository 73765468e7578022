"""The state of a log at a record: objects to which calls refer, the open operation of each thread, and the operations
that they became when their records were complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import compress
from typing import Any, TypeVar

import msgspec

from mio2trace.kernels.names import kernel_name
from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Command, Entry, LoggedCall, Message, OperationDirection, parse_params
from mio2trace.ops import values
from mio2trace.ops.command import facts_of as worked_out
from mio2trace.ops.command import offered, refusal
from mio2trace.ops.families import OPS
from mio2trace.ops.families.conv import ConvProblem, from_tensors
from mio2trace.ops.operation import Buffers, GemmCall, Launch, Operation, OperationFacts, Parameters
from mio2trace.ops.problem import DIRECTIONS, FORWARD, Phase, Problem
from mio2trace.ops.values import DTYPES, Shape, Tensor, family
from mio2trace.patterns import late

# -- Objects to which calls refer without their content: types of tensors, Find 2.0 problems (miopen-log.md 4.3, 4.8) --

_TENSOR = late(r"(?<!\w)(\w++): (\{[^{}]*+\}(?>(?:, \{[^{}]*+\})?))[^>{}]*-> (\w++)")
_NAME = late(r"(?<!\w)(\w++): ")
_WORD = late(r"\w+")
_LENGTH = late(r"[0-9]{1,12}")
_CONV_IDS = {"1": "x", "2": "w", "3": "y"}
_PROBLEM_DIRECTIONS = dict(zip("0124", (*DIRECTIONS, FORWARD), strict=True))
_SEARCHES_KEPT, _SOLUTIONS_KEPT = 64, 1 << 12


class DescriptorTypes:
    """The last type that was set for a tensor of given lengths (and strides): entries do not print types (4.3)."""

    def __init__(self) -> None:
        self._types: dict[tuple[Shape, Shape], list[str]] = {}

    def set(self, entry: Entry) -> None:
        """Add a ``miopenSet...TensorDescriptor...`` entry."""
        params = dict(entry.params)
        number = values.number(params.get("dataType"))
        if number is None or not 0 <= number < len(DTYPES):
            return
        lists = [values.integers(text) for name, text in params.items() if name.endswith(".values")]
        if lists:
            lengths, strides = lists[0], lists[1] if len(lists) > 1 and len(lists[1]) == len(lists[0]) else ()
        else:
            names = [params.get(name, "") for name in ("n", "c", "h", "w")]
            if not all(_LENGTH.fullmatch(text) for text in names):
                return
            lengths = tuple(map(int, names))
            more = [params.get(name, "") for name in ("nStride", "cStride", "hStride", "wStride")]
            strides = tuple(map(int, more)) if all(_LENGTH.fullmatch(text) for text in more) else ()
        for key in {(lengths, strides), (lengths, ())}:
            types = self._types.setdefault(key, [])
            if DTYPES[number] in types:
                types.remove(DTYPES[number])
            types.append(DTYPES[number])

    def find(self, tensor: Tensor) -> tuple[str | None, bool]:
        """Return the most recent type of such a tensor, and whether it had other types before."""
        types = self._types.get((tensor.lengths, tensor.strides)) or self._types.get((tensor.lengths, ()), [])
        return (types[-1], len(types) > 1) if types else (None, False)


class _Find2(msgspec.Struct):
    descriptor: str
    direction: OperationDirection
    tensors: dict[str, Tensor]


class _Found(msgspec.Struct, eq=False):
    """A problem that was searched. ``runs``: whether a solution of it ran."""

    problem: ConvProblem
    runs: bool = False


class Find2Problems:
    """Find 2.0's problems by pointer. The shapes of the tensors of its run assign a solution to a problem (4.8).

    If several problems have these shapes, such as the gradients, a new solution belongs to the first problem that
    has not run.
    """

    def __init__(self) -> None:
        self._created: list[_Find2] = []
        self._problems: dict[str, _Find2] = {}
        self._found: list[_Found] = []
        self._solutions: dict[int, _Found] = {}

    def create(self, entry: Entry) -> None:
        """``miopenCreateConvProblem``."""
        params = dict(entry.params)
        direction = _PROBLEM_DIRECTIONS.get(params.get("direction", ""), FORWARD)
        self._created.append(_Find2(params.get("operatorDesc", ""), direction, {}))

    def set(self, entry: Entry) -> None:
        """Add ``miopenSetProblemTensorDescriptor``. A new pointer is that of the last created problem."""
        params = dict(entry.params)
        pointer = params.get("problem", "")
        problem = self._problems.get(pointer)
        name, tensor = _CONV_IDS.get(params.get("id", "")), values.tensor(params.get("descriptor", ""))
        if self._created and (problem is None or (name in problem.tensors)):
            problem = self._problems[pointer] = self._created.pop()
            self._created.clear()
        if problem is not None and name and tensor is not None:
            problem.tensors[name] = tensor

    def find(self, entry: Entry) -> ConvProblem | None:
        """``miopenFindSolutions``."""
        problem = self._problems.get(dict(entry.params).get("problem", ""))
        made = _conv_of(problem) if problem is not None else None
        if made is not None:
            self._found.append(_Found(made))
            del self._found[:-_SEARCHES_KEPT]
        return made

    def run(self, entry: Entry) -> tuple[ConvProblem | None, list[str]]:
        """Return the searched problem with the shapes of a ``miopenRunSolution``, and doubts about it."""
        shapes = run_tensors(entry)
        wanted = {name[-1].lower(): lengths for name, (lengths, _) in shapes.items() if name.startswith("Conv")}
        fitting = [
            one for one in self._found if wanted and all(getattr(one.problem, name) == wanted[name] for name in wanted)
        ]
        if not fitting:
            return None, []
        solution = values.pointer(dict(entry.params).get("solution", ""))
        of_solution = self._solutions.get(solution)
        if of_solution is not None and of_solution in fitting:
            return of_solution.problem, []
        new = [one for one in fitting if not one.runs]
        found = new[0] if new else fitting[-1]
        found.runs = True
        if solution:
            if len(self._solutions) >= _SOLUTIONS_KEPT:
                self._solutions.clear()
            self._solutions[solution] = found
        several = any(one.problem != found.problem for one in new or fitting)
        doubt = "several problems of these shapes were searched, and the call does not show which it is"
        return found.problem, [doubt] if several else []


def run_tensors(entry: Entry) -> dict[str, tuple[Shape, int]]:
    """Return lengths and pointer of each tensor of a ``miopenRunSolution``, by its name."""
    out: dict[str, tuple[Shape, int]] = {}
    for _, text in entry.params:
        for name, descriptor, pointer in _TENSOR.findall(text):
            tensor = values.tensor(descriptor)
            if tensor is not None:
                out[name] = (tensor.lengths, values.pointer(pointer))
    return out


def run_buffers(entry: Entry) -> tuple[tuple[str, int], ...]:
    """Return name and address of each tensor of a ``miopenRunSolution``, also of those without a descriptor."""
    found = [pair for _, text in entry.params for pair in _pointed(text)]
    return tuple((name, address) for name, text in found if (address := values.pointer(text)))


def _pointed(text: str) -> Iterator[tuple[str, str]]:
    """Return ``NAME: ... -> POINTER`` of a text: the first name before each arrow."""
    at = 0
    while (arrow := text.find(">", at)) >= 0:
        pointer = _WORD.match(text, arrow + 2) if text[arrow - 1 : arrow + 2] == "-> " else None
        name = _NAME.search(text, at, arrow - 1) if pointer is not None else None
        at = arrow + 1
        if pointer is not None and name is not None:
            yield name[1], pointer[0]
            at = pointer.end()


def _conv_of(problem: _Find2) -> ConvProblem | None:
    descriptor = values.conv_descriptor(problem.descriptor)
    x, w, y = (problem.tensors.get(name) for name in "xwy")
    if descriptor is None or x is None or w is None:
        return None
    return from_tensors(problem.direction, (x, w, y), descriptor, descriptor.groups or 1)


# -- Fusion plans: which plan and which arguments an execution of fused operators has; the log shows neither -----------
#
#     miopenCreateFusionPlan, miopenCreateOp...      the plan: its input and its operators
#     miopenSetOpArgs...                             the operators' buffers: weights, bias, scale, statistics
#     miopenExecuteFusionPlan                        input and output
#
# Plans are not printed as pointers, arguments seldom are. An execution is tied to the plans with its input, those whose
# operators are the ones that arguments were just set for, and among these by order. Arguments set since the execution
# before are this one's; without any the plan keeps those it had.

_PARTS = (("ConvForward", "conv"), ("BiasForward", "bias"), ("Activ", "activ"), ("BatchNorm", "bnorm"))


class _Plan(msgspec.Struct):
    """A fusion plan. ``own``: arguments that were set directly after the plan was made. ``last``: those of its last
    execution."""

    input: str
    parts: list[str]
    conv: tuple[str, str] = ("", "")
    bn_mode: int | None = None
    activation: int | None = None
    kernel: str = ""
    own: dict[str, Buffers] = {}
    last: dict[str, Buffers] = {}

    @property
    def operators(self) -> tuple[tuple[str, ...], tuple[str, str], int | None, int | None]:
        return tuple(self.parts), self.conv, self.bn_mode, self.activation


class FusionPlans:
    """The plans and arguments so far."""

    def __init__(self) -> None:
        self._open: _Plan | None = None
        self._made: _Plan | None = None  # the last compiled plan, as long as nothing was executed since
        self._plans: dict[str, list[_Plan]] = {}
        self._next: dict[tuple[int, ...], int] = {}  # by the plans between which they are
        self._set: dict[tuple[int | None, str], dict[str, Buffers]] = {}  # by thread, and by ``args`` as printed

    def add(self, entry: Entry) -> None:
        """Add an entry between ``miopenCreateFusionPlan`` and ``miopenCompileFusionPlan``."""
        params = dict(entry.params)
        if entry.api == "miopenCreateFusionPlan":
            self._own_arguments(entry.thread)
            self._open = _Plan(params.get("inputDesc", ""), [])
            self._plans.setdefault(self._open.input, []).append(self._open)
        elif entry.api == "miopenCompileFusionPlan":
            self._made, self._open = self._open, None
        elif self._open is not None:
            part = _part(entry, "miopenCreateOp")
            if part:
                self._open.parts.append(part)
            if part == "conv":
                self._open.conv = (params.get("wDesc", ""), params.get("convDesc", ""))
            elif part == "bnorm":
                self._open.bn_mode = values.number(params.get("bn_mode"))
            elif part == "activ":
                self._open.activation = values.number(params.get("mode"))

    def arguments(self, entry: Entry, buffers: Buffers) -> None:
        part = _part(entry, "miopenSetOpArgs")
        if part:
            args = next((value for name, value in entry.params if name == "args"), "")
            given = self._set.setdefault((entry.thread, _pointer(args)), {})
            given.pop(part, None)  # the order is that of the calls
            given[part] = buffers

    def execute(self, entry: Entry, problem: Problem) -> tuple[Problem, Buffers, list[str]]:
        """Return the problem with its plan's operators, the buffers of their arguments, and doubts about either."""
        params, kernel = dict(entry.params), problem.plan_kernel or ""
        args = _pointer(params.get("args", ""))
        key = entry.thread, args
        # a set of arguments with a known pointer holds until it changes
        given = self._set.get(key, {}) if args else self._set.pop(key, {})
        doubts: list[str] = []
        plan = self._plan(params.get("inputDesc", ""), tuple(given), kernel, doubts)
        if plan is None:
            self._made = None
            return problem, _joined(given), doubts
        if plan.own and self._made is not None and plan is not self._made and not plan.last:
            # all arguments were set before, plan by plan: the rest belongs to the last plan
            self._own_arguments(entry.thread, given)
            given = plan.own
        self._made = None
        plan.last = given or plan.last or plan.own
        if not plan.last and set(plan.parts) - {"activ"}:  # a forward activation has no buffer of its own
            doubts.append("the arguments of the fused operators were not logged")
        plan.kernel = plan.kernel or kernel
        return problem.planned(*plan.operators), _joined(plan.last), doubts

    def _own_arguments(self, thread: int | None, given: dict[str, Buffers] | None = None) -> None:
        """Assign arguments that were set since the last plan was made, without an execution, to this plan."""
        if self._made is not None:
            self._made.own = self._set.pop((thread, ""), {}) if given is None else given
            self._made = None

    def _plan(self, text: str, given: tuple[str, ...], kernel: str, doubts: list[str]) -> _Plan | None:
        """Return the next plan with this input."""
        plans = self._plans.get(text, [])
        if not plans:
            doubts.append("the fusion plan was not logged")
            return None
        fitting = [plan for plan in plans if given and set(given) == set(plan.parts)] or plans
        fitting = [plan for plan in fitting if not kernel or plan.kernel in ("", kernel)] or fitting
        turn = tuple(map(id, fitting))
        at = self._next.get(turn, 0) % len(fitting)
        self._next[turn] = at + 1
        plan = fitting[at]
        if any(plan.operators != other.operators for other in fitting):
            doubts.append("several fusion plans with this input: taken in order")
        return plan


def _pointer(text: str) -> str:
    """Return a printed address; empty for any other text."""
    return text if values.pointer(text) else ""


def _part(entry: Entry, begin: str) -> str:
    """Return the operator in the name of a call; empty if it is none."""
    name = entry.api.removeprefix(begin)
    return next((part for beginning, part in _PARTS if name.startswith(beginning)), "")


def _joined(given: dict[str, Buffers]) -> Buffers:
    return tuple(pair for buffers in given.values() for pair in buffers)


# -- Operations --------------------------------------------------------------------------------------------------------

_TYPE_IN_KERNEL = (
    (late(r"(?i)bf16|bfp16|_bfloat|^naive_conv\w*_ushort_"), "bfloat16"),
    (late(r"(?i)fp16|_HHS_|_half"), "half"),
)


_STRENGTH = {"kernel name": 0, "descriptor": 1, "key": 2, "command": 3}


class Draft(msgspec.Struct, eq=False):
    """An open operation."""

    api: str
    primitive: str
    phase: Phase
    problem: Problem | None
    called: OperationDirection | None
    line: int
    end_line: int
    thread: int | None
    stamp: LocalTime | None
    elapsed_ns: int | None
    index: int = 0
    entry: Entry | None = None
    command: Command | None = None
    algorithm: str | None = None
    solver: str | None = None
    is_solver_inferred: bool = False
    """Whether the solver comes from a search of the same problem, not from a line of the call."""
    workspace: int | None = None
    dtype: str | None = None
    dtype_by: str | None = None
    launches: list[Launch] = []
    gemms: list[GemmCall] = []
    parameters: Parameters | None = None
    arguments: Buffers = ()
    nested: list[str] = []
    doubts: list[str] = []
    torn: bool = False
    unread: bool = False
    searched: bool = False
    chosen: bool = False
    measured: bool | None = None
    """Of a search whose first line is in the log: whether it said that it measures."""
    executed: bool = False
    summarised: bool = False
    further: tuple[OperationDirection, ...] = ()
    """The directions that its command runs after this operation."""

    @classmethod
    def of(cls, record: Command | Message, api: str, primitive: str, phase: Phase, problem: Problem | None) -> Draft:
        """Return the operation that a record begins."""
        line = record.line
        return cls(api, primitive, phase, problem, None, line, line, record.thread, record.stamp, record.elapsed_ns)

    @property
    def direction(self) -> OperationDirection | None:
        """The direction of its problem; for an entry without a problem, that of the function."""
        return self.problem.direction if self.problem is not None else self.called

    @property
    def is_answered(self) -> bool:
        """As `OperationFacts.is_answered`: a search without its last line may have lost others, too."""
        return self.measured is False and self.chosen and not self.launches and not self.gemms

    def runs(self, direction: OperationDirection) -> bool:
        """Return whether a level line of this direction can belong to it; in transpose mode the code of the other
        direction runs."""
        if self.direction is None or self.direction == direction:
            return True
        other = self.problem is None or self.problem.runs_other_gradient
        return other and "backward-weights" not in (self.direction, direction)

    def type(self, dtype: str | None, by: str) -> None:
        """Set the type. A weaker source never overrides a stronger one."""
        if dtype is not None and (self.dtype_by is None or _STRENGTH[by] > _STRENGTH[self.dtype_by]):
            self.dtype, self.dtype_by = dtype, by


_OF_BOTH = (
    "api", "primitive", "direction", "phase", "dtype", "dtype_by", "solver", "parameters", "thread", "torn", "unread",
    "is_answered",
)  # fmt: skip
"""The facts that a draft has under the same name."""


@lru_cache(maxsize=1 << 13)
def _meaning(problem: Problem) -> OperationFacts:
    """Return the values that follow from the problem alone; computed once per problem."""
    return worked_out(problem, offered(problem))


def _nothing_told(draft: Draft) -> OperationFacts:
    """Return the facts of an operation without a problem: the reason why it has no command."""
    reason = "" if draft.command is None else refusal(draft.command.text)
    said = f"no plain driver command: {reason}" if reason else "the log does not show it"
    return OperationFacts(command_reason=said)


@lru_cache(maxsize=1 << 13)
def _typed(problem: Problem, dtype: str | None) -> Problem:
    return problem.typed(dtype)


def facts_of(draft: Draft, source: int) -> OperationFacts:
    """Return the facts of a finished operation without its place and its buffers; equal calls share one object."""
    if draft.dtype is None:
        for name in dict.fromkeys(launch.name for launch in draft.launches):
            kernel = kernel_name(name)
            if kernel is not None and kernel.role == "transpose":
                continue  # named after the size of an element: "half" is any type of two bytes
            for pattern, dtype in _TYPE_IN_KERNEL:
                if pattern.search(name):
                    draft.type(dtype, "kernel name")
    problem = draft.problem
    if problem is not None and draft.dtype != problem.dtype:
        problem = _typed(problem, draft.dtype)
    meaning = _meaning(problem) if problem is not None else _nothing_told(draft)
    doubts = [*draft.doubts, *meaning.doubts]
    if meaning.command is not None and draft.dtype is None:
        doubts.append("the data type is not known: the command assumes float")
    algorithm = draft.algorithm
    if algorithm is None and draft.solver is not None:
        algorithm = family(draft.solver)
    elif draft.solver is not None and family(draft.solver) == "Naive":
        algorithm = "Naive"
    own = {name: getattr(draft, name) for name in _OF_BOTH}
    return msgspec.structs.replace(
        meaning, **own, source=source, algorithm=algorithm, nested=tuple(draft.nested), doubts=tuple(doubts),
        workspace_bytes=draft.workspace, logged_command=draft.command.text if draft.command is not None else "",
    )  # fmt: skip


def placed(facts: OperationFacts, draft: Draft) -> Operation:
    """Return the operation of ``draft``, with facts that it shares with equal operations."""
    return Operation(
        index=draft.index,
        line=draft.line,
        end_line=draft.end_line,
        facts=facts,
        command_line=draft.command.line if draft.command is not None else 0,
        addresses=draft.entry.addresses if draft.entry is not None else b"",
        arguments=draft.arguments,
        launches=tuple(draft.launches),
        gemms=tuple(draft.gemms),
        stamp=draft.stamp,
        elapsed_ns=draft.elapsed_ns,
    )


def known_by_problem(message: Message, problem: Problem, phase: Phase) -> Operation:
    """Return an operation of which only the problem is known, from ``message``."""
    draft = Draft.of(message, message.function, problem.primitive, phase, problem)
    draft.type(problem.dtype, "key")
    return placed(facts_of(draft, message.source), draft)


# ---------------------------------------------------------------------------------------------------------------------
# The content of an API entry itself: problem, algorithm, workspace, solution, and which of its addresses are buffers.

_TYPED = ("xDesc", "dxDesc", "inputDesc", "aDesc", "yDesc", "dyDesc", "paramDesc", "probsDesc")
_SIZES = ("workSpaceSize", "workspaceSizeInBytes", "workspaceSize")
_NO_BUFFERS = frozenset(
    ("handle", "args", "problem", "solution", "options", "solutions", "noise_shape", "perfResults", "returnedAlgoCount")
)

_NULLS = frozenset(("nullptr", "NULL", "(nil)", "0"))


class Stated(msgspec.Struct, frozen=True):
    """The content of an entry without the addresses of buffers. ``tensor``: the tensor whose type counts. ``of_two``: a
    parameter is there twice.

    ``parameters``: which addresses of the entry are device buffers: all except handles, descriptors, and the host's
    alpha and beta.
    """

    problem: Problem | None
    tensor: values.Tensor | None
    algorithm: int | None
    workspace: int | None
    solution: int | None
    parameters: Parameters
    of_two: bool


def stated(call: LoggedCall) -> Stated:
    """Return the content of one call's entries. Entries that differ only in their buffers share one problem object."""
    return _stated(call.api, call.template)


@lru_cache(maxsize=1 << 14)
def _stated(api: str, template: bytes) -> Stated:
    body = template.replace(b"0x\0", b"0x1").replace(b"\0", b"0x1")
    pairs = parse_params(body)
    params = dict(pairs)
    op = OPS.get(api)
    # the parameters that hold an address, in order: the addresses that were cut out are in the same order
    names = [name for name, value in pairs if value == "0x1" or value.startswith("stream: 0x1, device_id")]
    picked = tuple(_is_buffer(name) for name in names)
    return Stated(
        op.read(params, op) if op is not None else None,
        next((tensor for tensor in (values.tensor(params.get(name, "")) for name in _TYPED) if tensor), None),
        values.number(params.get("algo")),
        values.number(next((params[name] for name in _SIZES if name in params), None)),
        values.number(params.get("solution_id")),
        Parameters(
            tuple(compress(names, picked)),
            picked,
            frozenset(name for name, value in pairs if value in _NULLS and _is_buffer(name)),
            "handle" in params,
        ),
        len(params) < len(pairs),
    )


def _is_buffer(name: str) -> bool:
    return not (name.endswith(("Desc", "Op")) or name.startswith(("alpha", "beta")) or name in _NO_BUFFERS)


# -- The state at a record: the operations so far, the open operation of each thread, the content of earlier records ---

Made = TypeVar("Made")

_KEPT = 1 << 14  # results of each kind


class State:
    """Records are added in log order. ``statements``: counts statements that later operations may use."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.done: list[Operation | Draft] = []
        self.current: dict[int | None, Draft] = {}
        self.types = DescriptorTypes()
        self.plans = FusionPlans()
        self.problems = Find2Problems()
        self.statements = 0
        self.template: Problem | None = None
        """The problem in the driver's own first line, to which the log's level lines refer."""
        self.inserted: dict[int | None, str] = {}
        """By thread: the key that a search put into the find-db, if the beginning of the search is not in the log."""
        self._solvers: dict[tuple[str, str], str] = {}
        self._chosen: dict[Problem, str] = {}
        self._once: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}
        self._same: dict[tuple[object, ...], tuple[object, OperationFacts]] = {}

    def result(self) -> tuple[Operation, ...]:
        """Return every operation; the state cannot be used afterwards."""
        for thread in list(self.current):
            self.complete(thread)
        return tuple([made if isinstance(made, Operation) else self._finish(made) for made in self.done])

    def start(self, draft: Draft) -> Draft:
        """Begin a new operation of the thread. Its earlier operation is complete."""
        self.complete(draft.thread)
        draft.index = len(self.done)
        self.done.append(draft)
        self.current[draft.thread] = draft
        return draft

    def complete(self, thread: int | None) -> Operation | None:
        """Complete and return the operation of the thread: no further record belongs to it."""
        last = self.current.pop(thread, None)
        if last is None:
            return None
        made = self.done[last.index] = self._finish(last)
        if last.further:
            self.follow(last, last.end_line)
            self.complete(thread)
        return made

    def follow(self, draft: Draft, line: int) -> Draft:
        """Begin, at ``line``, the next operation of a command that runs several directions."""
        (direction, *further), draft.further = draft.further, ()
        assert draft.command is not None
        assert draft.problem is not None
        problem = draft.problem.of_way(direction)
        following = Draft.of(draft.command, draft.api, draft.primitive, draft.phase, problem)
        following.line = following.end_line = line
        following.command, following.further = draft.command, tuple(further)
        following.type(problem.dtype, "command")
        return self.start(following)

    def _finish(self, draft: Draft) -> Operation:
        """Return the operation; only place and buffers differ from an equal earlier operation."""
        command = draft.command
        names = () if draft.dtype is not None else tuple(launch.name for launch in draft.launches)  # that show it
        key = (
            draft.api, draft.primitive, draft.phase, id(draft.problem), draft.dtype, draft.dtype_by, draft.algorithm,
            draft.solver, draft.workspace, draft.thread, command.text if command is not None else None, names,
            draft.torn, draft.unread, draft.is_answered, id(draft.parameters), *draft.nested, None, *draft.doubts,
        )  # fmt: skip
        alike = self._same.get(key)
        if alike is None:
            if len(self._same) > _KEPT:
                self._same.clear()
            # the problem is kept like the parameters, so their identities can represent them
            alike = self._same[key] = draft.problem, facts_of(draft, self.source)
        return placed(alike[1], draft)

    def once(self, make: Callable[..., Made], *of: object) -> Made:
        """Return ``make(*of)``, kept by the identity of ``of``: problems are shared, and comparing them is slow."""
        key = (make, *map(id, of))
        kept = self._once.get(key)
        if kept is None:
            if len(self._once) > _KEPT:
                self._once.clear()
            kept = self._once[key] = (of, make(*of))
        made: Made = kept[1]
        return made

    # Statements of earlier records

    def registered(self, algorithm: str, config: str) -> str | None:
        """Return the solver that was registered as the best one of an algorithm for a network config."""
        return self._solvers.get((algorithm, config))

    def register(self, algorithm: str, config: str, solver: str) -> None:
        self.statements += self._solvers.get((algorithm, config)) != solver
        self._solvers[algorithm, config] = solver

    def chosen(self, problem: Problem | None, dtype: str | None) -> str | None:
        """Return the best solver that a search found: for type and layout, as far as they are known."""
        searched = () if problem is None else self.once(_searched, problem, dtype)
        return next((solver for one in searched if (solver := self._chosen.get(one)) is not None), None)

    def choose(self, problem: Problem | None, dtype: str | None, solver: str) -> None:
        """Store a solver for `chosen`."""
        for searched in () if problem is None else self.once(_searched, problem, dtype):
            self.statements += self._chosen.get(searched) != solver
            self._chosen[searched] = solver


def _searched(problem: Problem, dtype: str | None) -> tuple[Problem, ...]:
    return problem.searched(dtype)
