"""Which plan and which arguments an execution of fused operators has: the log shows neither (miopen-log.md 5.6).

    miopenCreateFusionPlan, miopenCreateOp...      the plan: its input and its operators
    miopenSetOpArgs...                             the operators' buffers: weights, bias, scale, statistics
    miopenExecuteFusionPlan                        input and output

Plans are not printed as pointers, arguments seldom are. An execution is tied to the plans with its input, those whose
operators are the ones that arguments were just set for, and among these by order. Arguments set since the execution
before are this one's; without any the plan keeps those it had.
"""

from __future__ import annotations

import msgspec

from mio2trace.model.miopen import Entry
from mio2trace.ops import values
from mio2trace.ops.problem import Operators, Problem

Buffers = tuple[tuple[str, int], ...]

_CREATED = (
    ("CreateOpConvForward", "conv"),
    ("CreateOpBiasForward", "bias"),
    ("CreateOpActivation", "activ"),
    ("CreateOpBatchNorm", "bnorm"),
)
_SET = (("ConvForward", "conv"), ("BiasForward", "bias"), ("Activ", "activ"), ("BatchNorm", "bnorm"))


class _Plan(msgspec.Struct):
    """``own`` are arguments set right after the plan was made, ``last`` those of its last execution."""

    input: str
    parts: list[str]
    conv: tuple[str, str] = ("", "")
    bn_mode: int | None = None
    activation: int | None = None
    kernel: str = ""
    own: dict[str, Buffers] = {}
    last: dict[str, Buffers] = {}

    def operators(self) -> Operators:
        return Operators(tuple(self.parts), self.conv, self.bn_mode, self.activation)

    def same(self, other: _Plan) -> bool:
        """Whether two plans do the same."""
        mine, theirs = ((plan.input, plan.parts, plan.conv, plan.bn_mode, plan.activation) for plan in (self, other))
        return mine == theirs


class FusionPlans:
    """Plans and arguments so far."""

    def __init__(self) -> None:
        self._open: _Plan | None = None
        self._made: _Plan | None = None  # the last one compiled, as long as nothing has been executed since
        self._plans: dict[str, list[_Plan]] = {}
        self._next: dict[tuple[int, ...], int] = {}  # by the plans that it is between
        self._set: dict[tuple[int | None, str], dict[str, Buffers]] = {}  # by thread and ``args`` as printed

    def add(self, entry: Entry) -> None:
        """An entry between ``miopenCreateFusionPlan`` and ``miopenCompileFusionPlan``."""
        params = dict(entry.params)
        if entry.api == "miopenCreateFusionPlan":
            self._own_arguments(entry.thread)
            self._open = _Plan(params.get("inputDesc", ""), [])
            self._plans.setdefault(self._open.input, []).append(self._open)
        elif entry.api == "miopenCompileFusionPlan":
            self._made, self._open = self._open, None
        elif self._open is not None:
            part = next((part for name, part in _CREATED if name in entry.api), "")
            if part:
                self._open.parts.append(part)
            if part == "conv":
                self._open.conv = (params.get("wDesc", ""), params.get("convDesc", ""))
            elif part == "bnorm":
                self._open.bn_mode = values.number(params.get("bn_mode"))
            elif part == "activ":
                self._open.activation = values.number(params.get("mode"))

    def arguments(self, entry: Entry, buffers: Buffers) -> None:
        name = entry.api.removeprefix("miopenSetOpArgs")
        part = next((part for begin, part in _SET if name.startswith(begin)), "")
        if part:
            args = next((value for name, value in entry.params if name == "args"), "")
            given = self._set.setdefault((entry.thread, _pointer(args)), {})
            given.pop(part, None)  # the order is that of the calls
            given[part] = buffers

    def execute(self, entry: Entry, problem: Problem) -> tuple[Problem, Buffers, list[str]]:
        """The problem with its plan's operators, the buffers of their arguments, and what is doubtful about either."""
        params, kernel = dict(entry.params), problem.plan_kernel or ""
        args = _pointer(params.get("args", ""))
        key = entry.thread, args
        # a set of arguments known by its pointer holds until it is changed
        given = self._set.get(key, {}) if args else self._set.pop(key, {})
        doubts: list[str] = []
        plan = self._plan(params.get("inputDesc", ""), tuple(given), kernel, doubts)
        if plan is None:
            self._made = None
            return problem, _joined(given), doubts
        if plan.own and self._made is not None and plan is not self._made and not plan.last:
            # all arguments were set up front, plan by plan: what is left over is the last plan's
            self._own_arguments(entry.thread, given)
            given = plan.own
        self._made = None
        plan.last = given or plan.last or plan.own
        if not plan.last and _takes_arguments(plan.parts):
            doubts.append("the arguments of the fused operators were not logged")
        plan.kernel = plan.kernel or kernel
        return problem.planned(plan.operators()), _joined(plan.last), doubts

    def _own_arguments(self, thread: int | None, given: dict[str, Buffers] | None = None) -> None:
        """What was set since the last plan was made, with nothing executed in between, is that plan's own."""
        if self._made is not None:
            self._made.own = self._set.pop((thread, ""), {}) if given is None else given
            self._made = None

    def _plan(self, text: str, given: tuple[str, ...], kernel: str, doubts: list[str]) -> _Plan | None:
        """The plan with this input whose turn it is."""
        plans = self._plans.get(text, [])
        if not plans:
            doubts.append("the fusion plan was not logged")
            return None
        fitting = [plan for plan in plans if given and set(given) == set(filter(_has_arguments, plan.parts))] or plans
        fitting = [plan for plan in fitting if not kernel or plan.kernel in ("", kernel)] or fitting
        turn = tuple(map(id, fitting))
        at = self._next.get(turn, 0) % len(fitting)
        self._next[turn] = at + 1
        plan = fitting[at]
        if not all(plan.same(other) for other in fitting):
            doubts.append("several fusion plans with this input: taken in order")
        return plan


def _pointer(text: str) -> str:
    """A printed address; empty for anything else."""
    return text if values.pointer(text) else ""


def _has_arguments(part: str) -> bool:
    return part in ("conv", "bias", "bnorm", "activ")


def _takes_arguments(parts: list[str]) -> bool:
    """Whether some operator has a buffer of its own: an activation forward has none."""
    return any(part in ("conv", "bias", "bnorm") for part in parts)


def _joined(given: dict[str, Buffers]) -> Buffers:
    return tuple(pair for buffers in given.values() for pair in buffers)
