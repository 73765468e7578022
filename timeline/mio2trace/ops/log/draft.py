"""An open operation, the operation that it becomes when its records are complete, and the state of a log at a
record."""

from __future__ import annotations

from collections.abc import Callable
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
from mio2trace.ops.log.plans import DescriptorTypes, Find2Problems, FusionPlans
from mio2trace.ops.operation import Buffers, GemmCall, Launch, Operation, OperationFacts, Parameters
from mio2trace.ops.problem import Phase, Problem
from mio2trace.ops.values import family
from mio2trace.patterns import late

_TYPE_IN_KERNEL = (
    (late(r"(?i)bf16|bfp16|_bfloat|^naive_conv\w*_ushort_"), "bfloat16"),
    (late(r"(?i)fp16|_HHS_|_half"), "half"),
)


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
    executed: bool = False
    summarised: bool = False

    @classmethod
    def of(
        cls,
        record: Entry | Command | Message,
        api: str,
        primitive: str,
        phase: Phase,
        problem: Problem | None,
        called: OperationDirection | None = None,
    ) -> Draft:
        """Return the operation that a record begins."""
        line = record.line
        return cls(api, primitive, phase, problem, called, line, line, record.thread, record.stamp, record.elapsed_ns)

    @property
    def direction(self) -> OperationDirection | None:
        """The direction of its problem; for an entry without a problem, that of the function."""
        return self.problem.direction if self.problem is not None else self.called

    def runs(self, direction: OperationDirection) -> bool:
        """Return whether a level line of this direction can belong to it; in transpose mode the code of the other
        direction runs."""
        if self.direction is None or self.direction == direction:
            return True
        other = self.problem is None or self.problem.runs_other_gradient
        return other and "backward-weights" not in (self.direction, direction)

    def type(self, dtype: str | None, by: str) -> None:
        """Set the type. A weaker source never overrides a stronger one: the order is command, key, descriptor."""
        strength = ("command", "key", "descriptor", "kernel name")
        if dtype is not None and (self.dtype_by is None or strength.index(by) < strength.index(self.dtype_by)):
            self.dtype, self.dtype_by = dtype, by


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
    return msgspec.structs.replace(
        meaning,
        source=source,
        api=draft.api,
        primitive=draft.primitive,
        direction=draft.direction,
        phase=draft.phase,
        dtype=draft.dtype,
        dtype_by=draft.dtype_by,
        algorithm=algorithm,
        solver=draft.solver,
        workspace_bytes=draft.workspace,
        logged_command=draft.command.text if draft.command is not None else "",
        parameters=draft.parameters,
        nested=tuple(draft.nested),
        thread=draft.thread,
        doubts=tuple(doubts),
        torn=draft.torn,
        unread=draft.unread,
    )


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
    parameter stands twice.

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
        return tuple([made if isinstance(made, Operation) else self._finish(made) for made in self.done])

    def start(self, draft: Draft) -> Draft:
        """Begin a new operation of the thread; the one before it is complete."""
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
        return made

    def _finish(self, draft: Draft) -> Operation:
        """Return the operation; only place and buffers differ from an equal earlier operation."""
        command = draft.command
        key = (
            draft.api, draft.primitive, draft.phase, id(draft.problem), draft.dtype, draft.dtype_by, draft.algorithm,
            draft.solver, draft.workspace, draft.thread, command.text if command is not None else None,
            draft.torn, draft.unread, id(draft.parameters), *draft.nested, None, *draft.doubts,
        )  # fmt: skip
        if draft.dtype is None and draft.launches:  # their names show the type
            return placed(facts_of(draft, self.source), draft)
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
        if self._solvers.get((algorithm, config)) != solver:
            self._solvers[algorithm, config] = solver
            self.statements += 1

    def chosen(self, problem: Problem | None, dtype: str | None) -> str | None:
        """Return the best solver that a search found: for type and layout, as far as they are known."""
        searched = () if problem is None else self.once(_searched, problem, dtype)
        return next((solver for one in searched if (solver := self._chosen.get(one)) is not None), None)

    def choose(self, problem: Problem | None, dtype: str | None, solver: str) -> None:
        """Store a solver for `chosen`."""
        for searched in () if problem is None else self.once(_searched, problem, dtype):
            if self._chosen.get(searched) != solver:
                self._chosen[searched] = solver
                self.statements += 1


def _searched(problem: Problem, dtype: str | None) -> tuple[Problem, ...]:
    return problem.searched(dtype)
