"""Add level lines to operations: searches, executions, launches, keys, summaries (miopen-log.md 8, 9).

A message belongs to the last compute or find call of its thread if this call can have printed it; otherwise it makes an
operation of its own. The keys among them, of find-dbs and network configs, have shapes, layout, type and direction of a
convolution in one word (8.5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from mio2trace.model.miopen import Message, OperationDirection
from mio2trace.ops import values
from mio2trace.ops.command import parse
from mio2trace.ops.families import INVOKED
from mio2trace.ops.families.conv import ConvProblem, output_length, transposed_length
from mio2trace.ops.log.state import Draft, State
from mio2trace.ops.operation import GemmCall, Launch
from mio2trace.ops.problem import DATA, DIRECTIONS, FORWARD, WEIGHTS, DirectionOnly, Phase, Problem
from mio2trace.ops.values import KEY_DTYPES, ConvDescriptor, Shape, family, integers, solver_name
from mio2trace.patterns import late

_DIRECTIONS = dict(zip("FBW", DIRECTIONS, strict=True))
_FIND_DB = late(r"([0-9][0-9x-]*)-((?:[A-Z]{3}\w*+-)+?)(\w++)-([FBW])(?:_g([0-9]{1,6}))?(?:_.*)?", re.DOTALL)
_FIELD = late(r"-?[0-9]{1,9}")
_LAYOUT = late(r"N[CDHW]{2,4}\w*|C[DHW]{2,3}N\w*")


@lru_cache(maxsize=1 << 12)
def find_db_key(text: str) -> ConvProblem | None:
    """``C-H-W-YxX-K-OH-OW-N-PxQ-UxV-LxJ-bias-layout[-layout-layout]-type-direction[_gG]``; with depth in 3-D."""
    key = _FIND_DB.fullmatch(text)
    if key is None:
        return None
    fields = key[1].split("-")
    at = next((index for index, field in enumerate(fields) if "x" in field), 0)
    rank = at - 1
    if rank not in (2, 3) or len(fields) != 2 * rank + 8:
        return None
    if not all(field.isascii() and field.isdecimal() and len(field) < 10 for field in fields[at + 1 : at + 3 + rank]):
        return None
    first, window = integers("-".join(fields[:at]).replace("-", " ")), integers(fields[at].replace("x", " "))
    out, n = fields[at + 1 : at + 2 + rank], fields[at + 2 + rank]
    pads, strides, dilations = (integers(field.replace("x", " ")) for field in fields[at + 3 + rank : at + 6 + rank])
    descriptor = ConvDescriptor(pads, strides, dilations, "convolution", int(key[5] or "1"))
    layouts = tuple(key[2].rstrip("-").split("-"))
    return _problem(first, window, tuple(map(int, out)), int(n), descriptor, _DIRECTIONS[key[4]], layouts, key[3])


@lru_cache(maxsize=1 << 12)
def network_config(text: str, direction: OperationDirection | None = None) -> ConvProblem | None:
    """Read ``CxHxWxYxXxKxOHxOWxNxLAYOUT[xWLxOL]xTYPExPxQxUxVxLxJxG[xDIR][x...]``.

    ``direction``: known from elsewhere, for the older form that ends after the groups.
    """
    fields = text.split("x")
    at = next((index for index, field in enumerate(fields) if _LAYOUT.fullmatch(field)), 0)
    if at not in (9, 12):
        return None
    rank = 2 if at == 9 else 3
    end = at
    while end < len(fields) and _LAYOUT.fullmatch(fields[end]):
        end += 1
    rest = fields[end + 1 :]
    if len(rest) < 3 * rank + 1 or not all(_FIELD.fullmatch(field) for field in fields[:at] + rest[: 3 * rank + 1]):
        return None
    numbers = tuple(map(int, fields[:at]))
    *sizes, groups = map(int, rest[: 3 * rank + 1])
    pads, strides, dilations = (tuple(sizes[place : place + rank]) for place in range(0, 3 * rank, rank))
    descriptor = ConvDescriptor(pads, strides, dilations, "convolution", groups)
    letter = rest[3 * rank + 1] if len(rest) > 3 * rank + 1 else ""
    direction = _DIRECTIONS.get(letter, direction)
    if direction is None:
        return None
    first, window = numbers[: rank + 1], numbers[rank + 1 : 2 * rank + 1]
    second, batch = numbers[2 * rank + 1 : 3 * rank + 2], numbers[3 * rank + 2]
    return _problem(first, window, second, batch, descriptor, direction, tuple(fields[at:end]), fields[end])


_MIXED = late("|".join(sorted(KEY_DTYPES, key=len, reverse=True)))
"""The type of the input comes first. The types of input, weights and output are one word if they are equal."""


_PERF_DB_WORDS = 3
_PERF_DB_NUMBERS = 21


@lru_cache(maxsize=1 << 12)
def perf_db_values(text: str) -> ConvProblem | None:
    """Read ``layout,type,direction,spatial_dim,C,H,W,D,y,x,fd,K,N,p,q,pd,u,v,ud,l,j,ld,bias,groups`` of a perf-db
    look-up.

    These are the fields of `find_db_key` without the sizes after the window. For a gradient with a stride they do not
    determine the problem: None.
    """
    fields = text.split(",")
    words, rest = fields[:_PERF_DB_WORDS], fields[_PERF_DB_WORDS:]
    if len(rest) != _PERF_DB_NUMBERS or not all(map(_FIELD.fullmatch, rest)) or words[2] not in _DIRECTIONS:
        return None
    numbers = [int(field) for field in rest]
    rank, channels, outputs, batch, groups = numbers[0], numbers[1], numbers[8], numbers[9], numbers[20]
    if rank not in (2, 3):
        return None

    def sizes(at: int) -> Shape:
        height, width, depth = numbers[at : at + 3]
        return (depth, height, width) if rank == 3 else (height, width)

    lengths, window, pads, strides, dilations = map(sizes, (2, 5, 10, 13, 16))
    direction = _DIRECTIONS[words[2]]
    if min((*strides, *dilations, *window)) < 1 or (direction != "forward" and max(strides) > 1):
        return None
    behind = output_length if direction == "forward" else transposed_length
    second = tuple(behind(*dimension) for dimension in zip(lengths, pads, strides, dilations, window, strict=True))
    descriptor = ConvDescriptor(pads, strides, dilations, "convolution", groups)
    x, y = (channels, *lengths), (outputs, *second)
    return _problem(x, window, y, batch, descriptor, direction, (words[0],), words[1])


def _problem(
    first: Shape,
    window: Shape,
    second: Shape,
    batch: int,
    descriptor: ConvDescriptor,
    direction: OperationDirection,
    layouts: tuple[str, ...],
    dtype: str,
) -> ConvProblem | None:
    """Make the problem. ``first`` and ``second``: channels and sizes before and after the window. For gradients the
    first describes dy, the second x (miopen-log.md 8.5)."""
    groups, forward = descriptor.groups or 0, direction == "forward"
    x, y = (first, second) if forward else (second, first)
    if groups <= 0 or not x or x[0] % groups:
        return None
    if len(layouts) != 3:
        layouts = layouts[:1] * 3
    elif not forward:
        layouts = (layouts[2], layouts[1], layouts[0])
    stated = _MIXED.match(dtype)
    problem = ConvProblem(
        direction=direction, dtype=None if stated is None else KEY_DTYPES[stated[0]], x=(batch, *x),
        w=(y[0], x[0] // groups, *window), y=(batch, *y), pads=descriptor.pads, strides=descriptor.strides,
        dilations=descriptor.dilations, groups=groups, layouts=(layouts[0], layouts[1], layouts[2]),
    )  # fmt: skip
    return problem if problem.well_formed() else None


_FIND = ("FindConvFwdAlgorithm", "FindConvBwdDataAlgorithm", "FindConvBwdWeightsAlgorithm")
SEARCHED = dict(zip(_FIND, DIRECTIONS, strict=True))
CHOSEN = dict(zip(("FW", "BWD", "BWrW"), DIRECTIONS, strict=True))
_RUN = ("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardWeights")
_IMMEDIATE = ("ConvolutionForwardImmediate", "ConvolutionBackwardImmediate", "ConvolutionWrwImmediate")
_EXECUTED = dict(zip(_RUN + _IMMEDIATE, DIRECTIONS * 2, strict=True))
_DRIVER = dict(zip(("Forward", "Backward Data", "Backward Weights"), DIRECTIONS, strict=True)) | {
    "Backward": DATA, "fwd": FORWARD, "bwdd": DATA, "bwdw": WEIGHTS,
}  # fmt: skip
_ASSIGNED = late(r"(?<!\w)(\w++) = (-?[0-9]{1,18})")
REGISTERED = late(r"Solver (?P<solver>\S+) registered as find 1.0 best for (?P<algorithm>\S+) in (?P<key>\S+)")
INVOKER_REGISTERED = late(r"for algorithm (?P<key>\S+) and solver (?P<solver>\S+)")
INVOKER = late(r"problem (?P<key>\S+) and (?:algorithm (?P<algorithm>\S+)|solver (?P<solver>\S+))")
_SOLVER_ID = late(r"solver_id = ([^,\s]+)")
_CHOSEN_TEXT = late(r"(?<!\w)(\w++) Chosen Algorithm: (\S++) , ([0-9]{1,18}), ")
_KEY = late(r"[Kk]ey:? (\S+)|^(\S+), content inserted: ")
_KERNEL_KEY = late(r"key: miopenConvolution\w+ \"([^\"]+)\"")
_SUMMARY = late(r"Problem=\"([^\"]*)\"(?: Solver=\"([^\"]*)\")?")
_PERFORMANCE = late(r'"solution":"(?:\d+/)?([^"/]+)"')
_PHASE = late(r'"phase":"(\w+)"')
_JSON_DIRECTION = late(r'"direction":"([\w -]+)"')
_DRIVER_WAY = late(
    r"^(?:MIOpen |GPU Kernel (?:\w+ )?Time |stats: )?"
    r"(Forward|Backward(?: Convolution)?(?: Data| Weights)?|fwd|bwd[dw])\b|^GPU Kernel "
)
_DRIVER_SOLUTION = late(r" Conv\. Algorithm: \d+, Solution: \d+/(\S+)")


def invoked(message: Message) -> tuple[str, OperationDirection | None] | None:
    """Return primitive and direction of a call whose algorithm a message names; None for a convolution."""
    invoker = INVOKER.search(message.text)
    algorithm = invoker["algorithm"] if invoker is not None else None
    return next((row[1:] for row in INVOKED if algorithm and algorithm.startswith(row[0])), None)


class LevelLines:
    """Processes the messages of a log. ``entries``: whether the log has entries, which name every call."""

    def __init__(self, state: State, entries: bool) -> None:
        self._state = state
        self._entries = entries

    def take(self, message: Message) -> None:
        """Add the content of a message to the operation of its thread, or to a new one."""
        read = _KINDS.get(message.kind)
        if read is not None:
            read(self, message, self._state.current.get(message.thread))

    def _launch(self, message: Message, draft: Draft | None) -> None:
        printed = launch(message)
        if draft is not None and printed is not None:
            draft.launches.append(printed)
            draft.end_line = message.line

    def _gemm(self, message: Message, draft: Draft | None) -> None:
        call = gemm_call(message)
        if draft is None or call is None:
            return
        last = draft.gemms[-1] if draft.gemms else None
        if last is not None and call.sequential and not last.library and not last.sequential and same_size(last, call):
            draft.gemms.pop()  # a strided batched call calls the sequential one, and both print
        draft.gemms.append(call)
        draft.end_line = message.line

    def _gemm_library(self, message: Message, draft: Draft | None) -> None:
        if draft is not None and draft.gemms:
            draft.gemms[-1] = msgspec.structs.replace(draft.gemms[-1], library=message.text.strip())
            draft.end_line = message.line

    def _kernel_key(self, message: Message, draft: Draft | None) -> None:
        key = _KERNEL_KEY.search(message.text)
        if key and draft is not None:
            self._shape(draft, network_config(key[1], draft.direction))

    def _driver(self, message: Message, draft: Draft | None) -> None:
        """Add the driver's output to the operation of its direction."""
        stated = _DRIVER_WAY.search(message.text)
        if draft is None or stated is None:
            return
        way = _DRIVER[stated[1].replace(" Convolution", "")] if stated[1] else draft.direction
        while way in draft.further:
            draft = self._state.follow(draft, message.line)
        if draft.direction != way:
            return
        draft.end_line = message.line
        solution = _DRIVER_SOLUTION.search(message.text)
        if solution and draft.solver is None:
            draft.solver = solution[1]

    def _error(self, message: Message, draft: Draft | None) -> None:
        if message.level == "Error" and draft is not None and not draft.doubts:
            draft.doubts.append(f"an error was logged after this call (line {message.line})")

    def _performance(self, message: Message, draft: Draft | None) -> None:
        """Add a JSON record (miopen-log.md 9.3) of an execution: it names the solver of the call that has none yet."""
        if draft is None or draft.primitive != "conv" or draft.phase != "run" or draft.solver is not None:
            return
        executed = _PHASE.search(message.text)
        solution = _PERFORMANCE.search(message.text)
        if solution is None or (executed is not None and executed[1] != "execution"):
            return
        direction = _JSON_DIRECTION.search(message.text)
        if direction is None or draft.direction == _DRIVER.get(direction[1].title().replace("-", " ")):
            draft.solver = solution[1]
            draft.end_line = message.line

    def _level_draft(self, message: Message, phase: Phase, direction: OperationDirection) -> Draft:
        template = self._state.template
        problem: Problem = DirectionOnly(direction=direction)
        if template is not None and template.primitive == "conv":
            problem = msgspec.structs.replace(template, direction=direction)
        draft = self._state.start(Draft.of(message, message.function, "conv", phase, problem))
        draft.type(problem.dtype, "command")
        return draft

    def _search(self, message: Message, draft: Draft | None) -> None:
        direction = SEARCHED.get(message.function)
        if direction is None:
            return
        mine = (
            draft is not None and draft.phase == "find" and draft.primitive == "conv" and draft.runs(direction)
            and not draft.chosen and not (draft.searched and "requestAlgoCount" in message.text)
        )  # fmt: skip
        if draft is None or not mine:
            draft = self._level_draft(message, "find", direction)
        draft.searched = True
        if draft.measured is None and "requestAlgoCount" in message.text:
            draft.measured = False
        draft.end_line = message.line
        workspace = dict(_ASSIGNED.findall(message.text)).get("workspace")
        if workspace is not None and draft.workspace is None:
            draft.workspace = int(workspace)

    def _measuring(self, message: Message, draft: Draft | None) -> None:
        if draft is not None and draft.phase == "find":
            draft.measured = True

    def _shape(self, draft: Draft, problem: ConvProblem | None) -> None:
        """Add the statements of a key about a convolution: the problem if nothing else stated it, else the type."""
        if problem is None or draft.primitive != "conv":
            return
        stated = draft.problem
        if stated is None:
            return
        if not stated.is_shaped and stated.direction == problem.direction:
            stated = draft.problem = problem
        if stated.runs_other_gradient or (stated.input, stated.weights) == (problem.x, problem.w):
            draft.type(problem.dtype, "key")

    def _registered(self, message: Message, draft: Draft | None) -> None:
        """Return the best solver, with the shapes of the open search."""
        solver = REGISTERED.search(message.text)
        if solver:
            self._state.register(solver[2], solver[3], solver[1])
        if draft is not None and _is_searching(draft):
            draft.end_line = message.line
            self._shape(draft, network_config(solver[3] if solver else "", draft.direction))

    def _invoker_registered(self, message: Message, draft: Draft | None) -> None:
        if draft is not None and _is_searching(draft):
            draft.end_line = message.line
            config = INVOKER_REGISTERED.search(message.text)
            self._shape(draft, network_config(config[1] if config else "", draft.direction))

    def _key(self, message: Message, draft: Draft | None) -> None:
        """Add the find-db key of the open search, or of a search whose beginning is not in the log."""
        key = _KEY.search(message.text)
        if draft is not None and _is_searching(draft):
            draft.end_line = message.line
            if key:
                self._shape(draft, find_db_key(key[1] or key[2]))
        elif message.kind == "find-db insert" and key:
            self._state.inserted[message.thread] = key[2] or ""
            self._state.statements += 1

    def _choice(self, message: Message, draft: Draft | None) -> None:
        chosen = _CHOSEN_TEXT.search(message.text)
        if chosen is None or chosen[1] not in CHOSEN:
            return
        direction = CHOSEN[chosen[1]]
        if draft is None or not _is_searching(draft) or not draft.runs(direction):
            draft = self._level_draft(message, "find", direction)
            self._shape(draft, find_db_key(self._state.inserted.pop(message.thread, "")))
            self._state.statements += 1
        draft.chosen = True
        draft.solver = chosen[2]
        draft.algorithm = family(chosen[2]) or draft.algorithm
        draft.workspace = int(chosen[3])
        draft.end_line = message.line
        self._state.choose(draft.problem, draft.dtype, chosen[2])

    def _execution(self, message: Message, draft: Draft | None) -> None:
        direction = _EXECUTED.get(message.function)
        if direction is None:
            return
        mine = (
            draft is not None and draft.phase == "run" and draft.primitive in ("conv", "fusion") and not draft.executed
            and draft.runs(direction)
        )  # fmt: skip
        if draft is None or not mine:
            draft = self._level_draft(message, "run", direction)
        draft.executed = True
        draft.end_line = message.line
        numbers = dict(_ASSIGNED.findall(message.text))
        if "algo" in numbers and 0 <= int(numbers["algo"]) < len(values.ALGORITHMS):
            draft.algorithm = values.ALGORITHMS[int(numbers["algo"])]
        if "workspace" in numbers:
            draft.workspace = int(numbers["workspace"])
        if draft.solver is None:
            solver = self._state.chosen(draft.problem, draft.dtype)
            algorithm = {"Naive": "Direct"}.get(family(solver) or "", family(solver)) if solver else None
            if algorithm is not None and algorithm == draft.algorithm:
                draft.solver, draft.is_solver_inferred = solver, True
        solver_id = _SOLVER_ID.search(message.text)
        if solver_id:
            draft.solver = (
                solver_name(int(solver_id[1]))
                if solver_id[1].isascii() and solver_id[1].isdecimal() and len(solver_id[1]) < 6
                else solver_id[1]
            ) or None
            draft.is_solver_inferred = False

    def _invoker(self, message: Message, draft: Draft | None) -> None:
        invoker = INVOKER.search(message.text)
        if invoker is None:
            return
        config, algorithm, solver = invoker.groups()
        if algorithm is not None and not algorithm.startswith("miopenConvolution"):
            named = invoked(message)
            if named is None:
                return
            primitive, direction = named
            if not self._entries and (draft is None or draft.primitive != primitive or draft.executed):
                problem: Problem = DirectionOnly(direction=direction)
                template = self._state.template
                if template is not None and template.primitive == primitive and template.direction in (None, direction):
                    problem = problem if direction is None else template.of_way(direction)
                draft = self._state.start(Draft.of(message, message.function, primitive, "run", problem))
                draft.type(problem.dtype, "command")
            if draft is not None and draft.primitive == primitive:
                draft.executed = True
                draft.end_line = message.line
            return
        if draft is None or draft.primitive not in ("conv", "fusion"):
            return
        draft.end_line = message.line
        self._shape(draft, network_config(config, draft.direction))
        if draft.phase == "run" and (draft.solver is None or draft.is_solver_inferred):
            stated = self._state.registered(algorithm, config) if solver is None else solver
            if stated is not None:
                draft.solver, draft.is_solver_inferred = stated, False

    def _summary(self, message: Message, draft: Draft | None) -> None:
        summary = _SUMMARY.search(message.text)
        if summary is None:
            return
        problem = parse(summary[1])
        mine = (
            draft is not None and draft.phase == "run" and draft.primitive in ("conv", "fusion")
            and not draft.summarised and problem is not None and problem.direction is not None
            and draft.runs(problem.direction)
        )  # fmt: skip
        if draft is None or not mine:
            draft = self._state.start(Draft.of(message, message.function, "conv", "run", problem))
        elif draft.problem is None or not draft.problem.is_shaped:
            draft.problem = problem
        elif problem is not None and not problem.fits(draft.problem):
            draft.doubts.append("the log's summary of this execution has other sizes")
        draft.summarised = True
        draft.end_line = message.line
        if problem is not None:
            draft.type(problem.dtype, "command")
        if summary[2] and summary[2] != "N/A":
            draft.solver = summary[2]


def _is_searching(draft: Draft) -> bool:
    return draft.phase == "find" and not draft.chosen


_KINDS: Mapping[str, Callable[[LevelLines, Message, Draft | None], None]] = {
    "launch": LevelLines._launch,
    "gemm": LevelLines._gemm,
    "gemm library": LevelLines._gemm_library,
    "search": LevelLines._search,
    "measuring": LevelLines._measuring,
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


# -- Level lines of one launch or one GEMM library call (miopen-log.md 8.3) --------------------------------------------

_LAUNCH = late(
    r"(?>(?:kernel_name = )?)([^,]++),(?>.*?global_work_dim = \{)([^}]*+)\}(?:, local_work_dim = \{([^}]*+)\})?"
)
_GEMM_FIELD = late(r"(?<!\w)(\w++) (-?[\w.+]++)")


def launch(message: Message) -> Launch | None:
    """``kernel_name = K, ..., global_work_dim = { x, y, z }, local_work_dim = { a, b, c }``."""
    printed = _LAUNCH.match(message.text)
    if printed is None:
        return None
    return Launch(line=message.line, name=printed[1].strip(), gws=_size3(printed[2]), lws=_size3(printed[3]))


def _size3(text: str | None) -> tuple[int, int, int] | None:
    numbers = values.integers(text or "")
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def gemm_call(message: Message) -> GemmCall | None:
    """``gemm_desc: {isColMajor 0, transA 0, ..., m 64, n 12544, k 147, ...}``."""
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


def same_size(first: GemmCall, other: GemmCall) -> bool:
    """Return whether two calls multiply matrices of equal sizes."""
    return (first.m, first.n, first.k, first.batch) == (other.m, other.n, other.k, other.batch)
