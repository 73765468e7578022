"""An operation under way, and what it becomes when its records are complete."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from mio2trace.model.gemm import Gemm
from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Command, Entry, Message, OperationDirection
from mio2trace.ops import values
from mio2trace.ops.command import refusal
from mio2trace.ops.driver_options import driver_line
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.families.elementwise import ActivProblem, OpTensorProblem, SoftmaxProblem
from mio2trace.ops.families.fusion import FusionProblem
from mio2trace.ops.families.norm import BnormProblem, LrnProblem
from mio2trace.ops.families.pool import PoolProblem
from mio2trace.ops.families.rnn import RnnProblem
from mio2trace.ops.operation import Buffers, GemmCall, Launch, Operation, Parameters, Phase
from mio2trace.ops.problem import CommandError, Form, Problem
from mio2trace.ops.solvers import family

_TYPE_IN_KERNEL = ((re.compile(r"(?i)bf16|bfp16|_bfloat"), "bfloat16"), (re.compile(r"(?i)fp16|_HHS_|_half"), "half"))


class Unknown(Problem, frozen=True, kw_only=True, gc=False):
    """Nothing but the direction is known."""

    @property
    def primitive(self) -> str:
        return "conv"

    def command(self, form: Form = "newest") -> str:
        raise CommandError("the log does not tell the shapes")


class Build:
    """An operation under way."""

    __slots__ = (
        "algorithm", "api", "arguments", "chosen", "command", "doubts", "dtype", "dtype_by", "elapsed_ns", "end_line",
        "entry", "executed", "gemms", "index", "launches", "line", "nested", "parameters", "phase", "primitive",
        "problem", "searched", "solver", "stamp", "summarised", "thread", "workspace",
    )  # fmt: skip

    def __init__(
        self,
        record: Entry | Command | Message,
        api: str,
        primitive: str,
        phase: Phase,
        problem: Problem | None,
    ) -> None:
        self.index = 0
        self.api = api
        self.primitive = primitive
        self.phase: Phase = phase
        self.problem = problem
        self.entry: Entry | None = None
        self.command: Command | None = None
        self.line = record.line
        self.end_line = record.line
        self.thread: int | None = record.thread
        self.stamp: LocalTime | None = record.stamp
        self.elapsed_ns: int | None = record.elapsed_ns
        self.algorithm: str | None = None
        self.solver: str | None = None
        self.workspace: int | None = None
        self.dtype: str | None = None
        self.dtype_by: str | None = None
        self.launches: list[Launch] = []
        self.gemms: list[GemmCall] = []
        self.parameters: Parameters | None = None
        self.arguments: Buffers = ()
        self.nested: list[str] = []
        self.doubts: list[str] = []
        self.searched = self.chosen = self.executed = self.summarised = False

    @property
    def direction(self) -> OperationDirection | None:
        return self.problem.direction if self.problem is not None else None

    def runs(self, direction: OperationDirection) -> bool:
        """Whether a level line of this direction can be its own; in transpose mode the other one's code runs."""
        if self.direction is None or self.direction == direction:
            return True
        transpose = isinstance(self.problem, ConvProblem) and self.problem.transpose
        return transpose and "backward-weights" not in (self.direction, direction)

    def type(self, dtype: str | None, by: str) -> None:
        """A weaker source never overrules a stronger one: they come in the order command, key, descriptor."""
        strength = ("command", "key", "descriptor", "kernel name")
        if dtype is not None and (self.dtype_by is None or strength.index(by) < strength.index(self.dtype_by)):
            self.dtype, self.dtype_by = dtype, by


class _Meaning(msgspec.Struct, frozen=True):
    """What follows from a problem alone; computed once for each."""

    gemm: Gemm | None
    flop: int | None
    bytes_min: int | None
    command: str | None
    reason: str
    doubt: str


@lru_cache(maxsize=1 << 13)
def _meaning(problem: Problem) -> _Meaning:
    try:
        command, reason = driver_line(problem), ""
    except CommandError as error:
        command, reason = None, str(error)
    return _Meaning(problem.gemm(), problem.flop(), problem.bytes_min(), command, reason, problem.check())


def _nothing_told(build: Build) -> str:
    """Why an operation without a problem has no command."""
    reason = "" if build.command is None else refusal(build.command.text)
    return f"no plain driver command: {reason}" if reason else "the log does not tell"


@lru_cache(maxsize=1 << 13)
def _typed(problem: Problem, dtype: str | None) -> Problem:
    """The problem with its data type; a fusion's convolution has the same."""
    typed = msgspec.structs.replace(problem, dtype=dtype)
    if isinstance(typed, FusionProblem) and typed.conv is not None:
        return msgspec.structs.replace(typed, conv=msgspec.structs.replace(typed.conv, dtype=dtype))
    return typed


def finish(build: Build, source: int) -> Operation:
    """The operation that ``build`` has become."""
    if build.dtype is None:
        for launch in build.launches:
            for pattern, dtype in _TYPE_IN_KERNEL:
                if pattern.search(launch.name):
                    build.type(dtype, "kernel name")
    problem = build.problem
    if problem is not None and build.dtype != problem.dtype:
        problem = _typed(problem, build.dtype)
    meaning = _meaning(problem) if problem is not None else _Meaning(None, None, None, None, _nothing_told(build), "")
    doubts = [*build.doubts, meaning.doubt] if meaning.doubt else build.doubts
    if meaning.command is not None and build.dtype is None:
        doubts = [*doubts, "the data type is not known: the command assumes float"]
    conv = problem.conv if isinstance(problem, FusionProblem) else problem if isinstance(problem, ConvProblem) else None
    pool = problem if isinstance(problem, PoolProblem) else None
    algorithm = build.algorithm
    if algorithm is None and build.solver is not None:
        algorithm = family(build.solver)
    elif build.solver is not None and family(build.solver) == "Naive":
        algorithm = "Naive"
    return Operation(
        index=build.index,
        source=source,
        line=build.line,
        end_line=build.end_line,
        api=build.api,
        primitive=build.primitive,
        direction=problem.direction if problem is not None else None,
        phase=build.phase,
        input=problem.input if problem is not None else (),
        weights=problem.weights if problem is not None else (),
        output=problem.output if problem is not None else (),
        pad=conv.pads if conv else pool.pads if pool else (),
        stride=conv.strides if conv else pool.strides if pool else (),
        dilation=conv.dilations if conv else (),
        groups=conv.groups if conv else None,
        mode=_mode(problem),
        window=pool.window if pool else (),
        layout=_layout(problem),
        dtype=build.dtype,
        dtype_by=build.dtype_by,
        algorithm=algorithm,
        solver=build.solver,
        workspace_bytes=build.workspace,
        gemm=meaning.gemm,
        flop=meaning.flop,
        bytes_min=meaning.bytes_min,
        command=meaning.command,
        command_reason=meaning.reason,
        command_line=build.command.line if build.command is not None else 0,
        logged_command=build.command.text if build.command is not None else "",
        parameters=build.parameters,
        addresses=build.entry.addresses if build.entry is not None else b"",
        arguments=build.arguments,
        launches=tuple(build.launches),
        gemms=tuple(build.gemms),
        nested=tuple(build.nested),
        thread=build.thread,
        stamp=build.stamp,
        elapsed_ns=build.elapsed_ns,
        doubts=tuple(doubts),
        problem=None if isinstance(problem, Unknown) else problem,
    )


def _mode(problem: Problem | None) -> str | None:
    """The primitive's variant, in the field's words."""
    if isinstance(problem, ConvProblem):
        return "transpose" if problem.transpose else "convolution"
    if isinstance(problem, PoolProblem):
        return problem.mode
    if isinstance(problem, BnormProblem):
        kind = "spatial" if problem.mode == 1 else "per-activation"
        return f"{kind} {'training' if problem.training else 'inference'}" if problem.direction == "forward" else kind
    if isinstance(problem, OpTensorProblem):
        return problem.op
    if isinstance(problem, FusionProblem):
        return "+".join(problem.parts) or None
    if isinstance(problem, LrnProblem) and problem.window:
        return "cross channel" if problem.mode == 1 else "within channel"
    if isinstance(problem, RnnProblem):
        return problem.mode
    if isinstance(problem, SoftmaxProblem):
        return ("fast", "accurate", "log")[problem.algorithm] if 0 <= problem.algorithm < 3 else None
    if isinstance(problem, ActivProblem):
        return values.ACTIVATIONS[problem.mode].lower() if 0 <= problem.mode < len(values.ACTIVATIONS) else None
    return None


def _layout(problem: Problem | None) -> str | None:
    if isinstance(problem, ConvProblem):
        return problem.layouts[0] or None
    if isinstance(problem, BnormProblem):
        return problem.layout or None
    if isinstance(problem, PoolProblem) and problem.x_strides:
        names = values.layouts(values.Tensor(problem.x, problem.x_strides))
        return names[0] if names else None
    return None
