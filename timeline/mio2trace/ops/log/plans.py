"""Objects to which calls refer without their content: types of tensors, Find 2.0 problems (miopen-log.md 4.3, 4.8),
fusion plans and their arguments (miopen-log.md 5.6)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mio2trace.model.miopen import Entry, OperationDirection
from mio2trace.ops import values
from mio2trace.ops.families.conv import ConvProblem, from_tensors
from mio2trace.ops.operation import Buffers
from mio2trace.ops.problem import DIRECTIONS, FORWARD, Operators, Problem
from mio2trace.ops.values import DTYPES, Shape, Tensor
from mio2trace.patterns import late

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
        self.version = 0
        """Changes whenever the result of `find` may change."""

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
            if types[-1:] == [DTYPES[number]]:
                continue
            if DTYPES[number] in types:
                types.remove(DTYPES[number])
            types.append(DTYPES[number])
            self.version += 1

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

    If several problems have these shapes, such as the gradients, a new solution belongs to the first one that has not
    run.
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
    """``own``: arguments that were set directly after the plan was made. ``last``: those of its last execution."""

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
        """Return whether two plans do the same."""
        mine, theirs = ((plan.input, plan.parts, plan.conv, plan.bn_mode, plan.activation) for plan in (self, other))
        return mine == theirs


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
        return problem.planned(plan.operators()), _joined(plan.last), doubts

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
        if not all(plan.same(other) for other in fitting):
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
