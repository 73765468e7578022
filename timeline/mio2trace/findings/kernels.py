"""Rules on kernels and the work that they do: naive solvers, layouts, casts, auxiliary kernels, short kernels, kernels
to fuse. Rules on the time of searches, and on problems that are too small, or slower than similar ones or the device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod

import msgspec
import numpy as np

from mio2trace.align import NONE
from mio2trace.findings.rule import SEVERITIES, Found, Rule, Severity, add_rule, ms, percent, rate, severity_of
from mio2trace.findings.subject import Gpu, Problem, Subject, drivers
from mio2trace.kernels.names import kernel_name, normalise, short_kernel
from mio2trace.measures.device_time import class_of_kernel
from mio2trace.measures.statistics import median
from mio2trace.model.tables import distinct, summed
from mio2trace.ops.choices import best
from mio2trace.ops.operation import Operation, problem_name
from mio2trace.outgoing import count
from mio2trace.patterns import late

RULES: list[Rule] = []
rule = partial(add_rule, RULES)

OF_CONVOLUTIONS, MANY_OF_CONVOLUTIONS = 0.10, 0.20
CASTS, HELPERS = 0.02, 0.10
MANY_SHORT, SHORT_BY_COUNT, SHORT_BY_TIME = 20, 0.50, 0.05
HOST_BOUND = 0.15
"""Launches limit short kernels if the GPU waits for the host in at least this part of the step."""
IN_GRAPHS = 0.5
""""Use graphs" is no advice if graphs launch at least this part of the kernel time."""
_NO_HELPERS = frozenset(("transpose", "cast", "statistics"))
"""Roles that have a rule of their own, and the kernels for means and variances, which are half of a normalisation's
work."""


PART, LEAST_NS = 0.20, 100_000_000
SLOWER_SOLVER = 1.05
"""Two solvers whose times differ by less than this part count as equally fast."""


@rule(
    id="find-in-steady-state",
    title="MIOpen Find runs in steady iterations.",
    fires="a find call has kernels in a steady iteration; >= 0.5 % of T",
    advice="Keep shapes fixed (pad or bucket batches), and keep the user find-db between runs"
    " (MIOPEN_USER_DB_PATH on a disk that stays). In PyTorch, set torch.backends.cudnn.benchmark = False if shapes"
    " change.",
)
def _in_steady_state(subject: Subject) -> Iterator[Found]:
    searches = {
        index: subject.measures.searches[index].timed_ns
        for index in subject.steady_searches
        if subject.measures.searches[index].timed_ns
    }
    if searches:
        ns = sum(searches.values())
        by_time = sorted(searches, key=lambda index: (-searches[index], index))
        operations = [subject.measures.operation_at[index] for index in by_time]
        yield subject.found(
            ns,
            count=len(searches),
            number=f"{count(len(searches), 'search')} of MIOpen Find ran {ms(subject.each(ns))} of kernels per steady"
            f" iteration, in addition to {ms(subject.each(subject.total_ns))} of other kernels.",
            scope=tuple(dict.fromkeys(map(problem_name, operations))),
        )


@rule(
    id="find-cost",
    title="MIOpen Find took a large part of the run.",
    fires="kernels of searches are > 20 % of all kernel time and > 100 ms",
    advice="Find runs once per shape; no number per iteration includes it. MIOpen 2.0 and newer keep its results in"
    " the user find-db: keep this database between runs (MIOPEN_USER_DB_PATH). MIOpen 1 searches in each run.",
)
def _cost(subject: Subject) -> Iterator[Found]:
    costs = [cost for cost in subject.measures.searches.values() if cost.timed_ns]
    ns, whole = sum(cost.timed_ns for cost in costs), subject.measures.whole.timed_ns
    if ns > PART * whole and ns > LEAST_NS:
        yield Found(
            ns=ns,
            share=ns / whole,
            count=len(costs),
            number=f"{count(len(costs), 'search')} of MIOpen Find ran {ms(ns)} of kernels, {percent(ns / whole)} of all"
            f" kernel time recorded{' (not sure)' if subject.measures.is_find_unsure else ''}.",
            severity="info",
        )


@rule(
    id="not-the-best-solver",
    title="Problems run a solver that is not the fastest in the find-db.",
    fires="for a problem of steady iterations, the find-db has a solver that is more than 5 % faster than the"
    " solver in the log; >= 0.5 % of T. The find-db is a file, or records in the log",
    advice="Run Find again on this machine (MIOPEN_FIND_ENFORCE=3, or delete the user find-db), or give the"
    " workspace that the faster solver needs. Compare the two solvers with the driver line.",
)
def _not_the_best(subject: Subject) -> Iterator[Found]:
    """Compare solvers by the times of the Find step. They may come from another machine, so only their difference
    counts."""
    lost: dict[str, float] = {}
    worst: dict[str, tuple[float, str]] = {}
    short_of_workspace: set[str] = set()
    slower: list[Problem] = []
    for problem in subject.problems:
        for call in problem.calls:
            record = subject.choices.of(call) if call.phase == "run" and call.solver else None
            chosen = next((one for one in record.solvers if one.solver == call.solver), None) if record else None
            if record is None or chosen is None or chosen.time_ms is None:
                continue
            fastest = best(record)
            assert fastest.time_ms is not None
            if chosen.time_ms <= SLOWER_SOLVER * fastest.time_ms:
                continue
            if problem.name not in lost:
                slower.append(problem)
            lost[problem.name] = lost.get(problem.name, 0) + chosen.time_ms - fastest.time_ms
            said = f"{chosen.solver} {chosen.time_ms:.4g} ms, {fastest.solver} {fastest.time_ms:.4g} ms"
            worst.setdefault(problem.name, (chosen.time_ms - fastest.time_ms, said))
            if call.workspace_bytes is not None and call.workspace_bytes < fastest.workspace_bytes:
                short_of_workspace.add(problem.name)
    if not lost:
        return
    at_line = {problem.name: problem.at_line for problem in slower}
    names = sorted(lost, key=lambda name: (-lost[name], name))
    ns = round(sum(lost.values()) * 1e6)
    workspace = f" {count(len(short_of_workspace), 'problem')} had too little workspace." if short_of_workspace else ""
    yield subject.found(
        ns,
        count=len(lost),
        number=f"The find-db has a faster solver for {count(len(lost), 'problem')}: {subject.time(ns)} by its times."
        f" {at_line[names[0]]}: {worst[names[0]][1]}.{workspace}",
        names=(names[0],),
        scope=tuple(names),
        drivers=drivers(slower),
    )


@rule(
    id="naive",
    title="Naive solvers are used.",
    fires="kernels of a naive solver, by the log's solver or the kernel's name, outside searches; >= 0.5 % of T",
    advice="Let Find run once (MIOPEN_FIND_MODE=NORMAL, or MIOPEN_FIND_ENFORCE=SEARCH), and give it workspace."
    " Check that MIOpen's kernel database for this GPU is installed.",
)
def _naive(subject: Subject) -> Iterator[Found]:
    naive = subject.makeup.naive
    ns = naive.total()
    if not ns:
        return
    by_problem: Counter[str] = Counter()
    drivers: dict[str, str] = {}
    for index, time in naive.items():
        if index != NONE:
            operation = subject.measures.operation_at[index]
            name = problem_name(operation)
            by_problem[name] += time
            if operation.command:
                drivers[name] = operation.command
    names = [name for name, _ in sorted(by_problem.items(), key=lambda item: (-item[1], item[0]))]
    calls = sum(index != NONE for index in naive)
    where = count(len(names), "problem") if names else "unknown problems"
    tried = "" if names or subject.has_iterations else " Without MIOpen's log, kernels that Find only tried also count."
    yield subject.found(
        ns,
        count=calls,
        number=f"{subject.time(ns)}, {percent(subject.share(ns))} of the kernel time, in {where}.{tried}",
        scope=tuple(names),
        drivers=tuple(drivers[name] for name in names if name in drivers),
    )


@rule(
    id="layout-transposes",
    title="Layouts are transposed around convolutions.",
    fires="kernels of role transpose are >= 10 % of the time of convolutions, and >= 0.5 % of T",
)
def _transposes(subject: Subject) -> Iterator[Found]:
    parts = subject.makeup.parts
    of_convolutions = sum(ns for (primitive, _, _), ns in parts.items() if primitive == "conv")
    ns = sum(ns for (primitive, role, _), ns in parts.items() if primitive == "conv" and role == "transpose")
    of_all = severity_of(subject.share(ns))
    if ns and ns >= OF_CONVOLUTIONS * of_convolutions and of_all is not None:
        part = ns / of_convolutions
        of_these: Severity = "high" if part >= MANY_OF_CONVOLUTIONS else "medium"
        yield subject.found(
            ns,
            number=f"{subject.time(ns)}, {percent(part)} of the time of convolutions.",
            severity=max(of_all, of_these, key=SEVERITIES.index),
            advice=_layout(subject),
        )


def _layout(subject: Subject) -> str:
    """Say how to avoid transposes in this run: advise NHWC only if its convolutions do not use it already."""
    by_layout: Counter[str] = Counter()
    for problem in subject.problems:
        if problem.operation.primitive == "conv":
            by_layout[problem.operation.layout or ""] += problem.ns
    if by_layout and by_layout.most_common(1)[0][0].endswith("C"):
        return "Tensors are NHWC already: compare solvers with the driver line, because this one transposes."
    how = "memory_format=torch.channels_last" + ", PYTORCH_MIOPEN_SUGGEST_NHWC=1" * (not subject.profile.is_nvidia)
    return f"Keep tensors in the layout of the kernels, NHWC{f' ({how})' * subject.is_torch}."


_OF_MIOPEN = "SubTensorOpWithCast"
_CAST_BY_SOLVER = (
    "MIOpen's solver works in another type and casts its result: compare solvers with MIOPEN_FIND_ENFORCE=SEARCH."
)


@rule(id="casts", title="Tensors are cast.", fires="kernels of role cast are >= 2 % of T")
def _casts(subject: Subject) -> Iterator[Found]:
    ns = sum(ns for (_, role, _), ns in subject.makeup.parts.items() if role == "cast")
    if ns and subject.share(ns) >= CASTS:
        forms = subject.steady.counted.forms
        of_miopen = any(form.kind.role == "cast" and form.name.startswith(_OF_MIOPEN) for form in forms)
        yield subject.found(
            ns,
            number=f"{subject.time(ns)}, {percent(subject.share(ns))} of the kernel time.",
            advice=_CAST_BY_SOLVER if of_miopen else "Keep one type from layer to layer.",
        )


@rule(
    id="helpers",
    title="Auxiliary kernels take much of the time.",
    fires="kernels of one auxiliary role (im2col, fill, copy, transform, ...) are >= 10 % of their primitive's"
    " time, and >= 0.5 % of T",
)
def _helpers(subject: Subject) -> Iterator[Found]:
    of_primitive: Counter[str] = Counter()
    of_role: Counter[tuple[str, str]] = Counter()
    for (primitive, role, helps), ns in subject.makeup.parts.items():
        of_primitive[primitive] += ns
        if primitive and helps and role not in _NO_HELPERS:
            of_role[primitive, role] += ns
    for (primitive, role), ns in sorted(of_role.items(), key=lambda item: (-item[1], item[0])):
        if ns >= HELPERS * of_primitive[primitive]:
            yield subject.found(
                ns,
                number=f"{role}: {subject.time(ns)}, {percent(ns / of_primitive[primitive])} of the time"
                f" of {primitive}, {percent(subject.share(ns))} of the kernel time.",
                scope=(primitive,),
                advice=_BY_ROLE.get(role, _OTHER_ROLE),
            )


_GEMM = "Use a solver other than Gemm: give more workspace, or run Find again."
_BY_ROLE = {
    "im2col": _GEMM,
    "col2im": _GEMM,
    "fill": "Do not set tensors to zero before each call, unless the solver needs it.",
    "transform": "The transforms are part of Winograd: compare with another solver (driver line).",
}
_OTHER_ROLE = "Look at the program and the layout: these kernels only prepare or finish the work of others."


@rule(
    id="short-kernels",
    title="Many kernels are very short.",
    fires="kernels shorter than 10 us are >= 20 per iteration, >= 50 % of the kernels and >= 5 % of T. It is"
    " low, because `idle` has the cost of launches. Only info if less than 15 % of the step is host-bound idle"
    " time, or if the profile does not show that. It never fires for captures of graphs, or if hardware counters"
    " were collected",
)
def _short(subject: Subject) -> Iterator[Found]:
    (short, ns), (everything, _) = subject.makeup.short, subject.makeup.all
    enough = short >= MANY_SHORT * subject.count
    if enough and short >= SHORT_BY_COUNT * everything and subject.share(ns) >= SHORT_BY_TIME:
        limited = subject.host_bound
        why, advice = "", _launched(subject)
        severity: Severity = "low"  # the rule on idle time has what launches cost
        if subject.has_counters or subject.is_capture:
            return
        if limited is None:
            why, severity = " The profile does not show whether launches limit them.", "info"
        elif limited < HOST_BOUND:
            why, severity, advice = " They run back to back: launches do not limit them.", "info", _BACK_TO_BACK
        yield subject.found(
            ns,
            count=subject.each(short),
            number=f"{subject.each(short):,} of {count(subject.each(everything), 'kernel')}{subject.per} are shorter"
            f" than 10 us. They take {percent(subject.share(ns))} of the kernel time.{why}",
            severity=severity,
            advice=advice,
        )


_BACK_TO_BACK = "Launching less will not help. Fusion may still save memory traffic."


def _launched(subject: Subject) -> str:
    """How this program can launch fewer or longer kernels."""
    if subject.profile.calls_wait:
        return "Fuse operations (MIOpen's fusion plans), or use larger batches."
    fuse = "Fuse kernels" + (
        " (torch.compile)" * (not subject.is_compiled)
        if subject.is_torch
        else " (MIOpen's fusion plans)" * subject.uses_miopen
    )
    if subject.replayed > IN_GRAPHS:
        return f"{fuse}, or use larger batches: graphs launch them already."
    return f"{fuse}, capture the iteration in a graph, or use larger batches: a launch costs as much as such a kernel."


PEERS, FASTER, OF_T = 4, 2.0, 0.01
ALIKE = 2.0
GAP = 0.03
TILE = 64
TOO_GOOD = 1.1
"""A problem above this part of the peak shows that the peak, or the model of the work, is wrong."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of a problem on a device: its least time, and what sets it (memory or compute)."""

    least_ns: float
    by: str
    part: float
    """Least time divided by measured time: 1 is the limit."""

    @property
    def is_plausible(self) -> bool:
        return self.part <= TOO_GOOD


def bound(problem: Problem, gpu: Gpu) -> Bound | None:
    """Return the limit of a problem; None if its work, its traffic or the peak for its type is not known."""
    peak = gpu.flop_per_ns(problem.operation.dtype)
    if not problem.flop or problem.bytes is None or not problem.ns or peak is None:
        return None
    compute, memory = problem.flop / peak, problem.bytes / gpu.bandwidth
    least = max(compute, memory)
    return Bound(least_ns=least, by="compute" if compute >= memory else "memory", part=least / problem.ns)


def peers(problem: Problem, problems: Sequence[Problem]) -> list[Problem]:
    """Return similar problems: same primitive, direction, type and filter size, half to twice the FLOPs per call, and
    half to twice the FLOPs per byte. (A problem that moves more bytes for the same work has less GFLOP/s with any
    solver.)"""
    work, intensity = _work(problem), _intensity(problem)
    return [
        other
        for other in problems
        if other is not problem
        and _likeness(other.operation) == _likeness(problem.operation)
        and other.gflops
        and work / ALIKE <= _work(other) <= work * ALIKE
        and intensity / ALIKE <= _intensity(other) <= intensity * ALIKE
    ]


def _likeness(operation: Operation) -> tuple[object, ...]:
    """Return the properties that similar problems share. A 1x1 and a 3x3 convolution have different kernels."""
    filter_ = (operation.weights or ())[2:] if operation.primitive == "conv" else ()
    return operation.primitive, operation.direction, operation.dtype, filter_


def _work(problem: Problem) -> float:
    return (problem.flop or 0) / problem.row.calls


def _intensity(problem: Problem) -> float:
    """FLOPs per byte of the least traffic; 0 if that is not known."""
    return (problem.flop or 0) / problem.bytes if problem.bytes else 0.0


@rule(
    id="slow-for-its-kind",
    title="Problems are slower than similar ones.",
    fires="GFLOP/s below half the median of >= 4 similar problems; >= 1 % of T; only without --gpu. Similar"
    " problems have the same primitive, direction, type and filter size, half to twice the FLOPs, and half to"
    " twice the FLOPs per byte",
)
def _slow(subject: Subject) -> Iterator[Found]:
    if subject.gpu is not None:
        return  # the rule on the peak of the device says more
    slow: list[tuple[float, Problem, str]] = []
    for problem in subject.problems:
        own = problem.gflops
        if not own or subject.share(problem.ns) < OF_T or problem.operation.is_plain:
            continue
        others = [other.gflops or 0.0 for other in peers(problem, subject.problems)]
        if len(others) >= PEERS and own * FASTER < median(others):
            usual = median(others)
            by = subject.algorithm_of.get(problem.name)
            like = (
                f"{problem.at_line} ({f'{by}, ' if by else ''}{rate(own)}); {len(others)} similar problems have"
                f" {rate(usual)}"
            )
            slow.append((problem.ns * (1 - own / usual), problem, like))
    yield from _saved(subject, slow, lambda worst: _faster(subject, worst))


def _faster(subject: Subject, slow: Problem) -> str:
    """Say what to try for the slowest problem: exclude its algorithm if the faster similar problems use another one."""
    if slow.operation.primitive == "gemm":
        compare = "Compare its layout with that of the similar ones."
        if subject.profile.is_nvidia:  # PyTorch's TunableOp has candidates for ROCm only
            return compare
        tune = "PYTORCH_TUNABLEOP_ENABLED=1 with PYTORCH_TUNABLEOP_TUNING=1" if subject.is_torch else "hipblaslt-bench"
        return f"Tune this GEMM: {tune}. {compare}"
    if subject.profile.is_nvidia:
        return "Compare its layout, padding and sizes with those of the similar ones."
    own = subject.algorithm_of.get(slow.name)
    faster = Counter(
        by
        for other in peers(slow, subject.problems)
        if (other.gflops or 0) > FASTER * (slow.gflops or 0) and (by := subject.algorithm_of.get(other.name))
    )
    other, _ = faster.most_common(1)[0] if faster else ("", 0)
    if own in _SWITCHES and other and other != own:
        return (
            f"Most of the faster ones use {other}: run the driver line with {_SWITCHES[own]}=0, which excludes {own}"
            " (`mio2trace driver FILE --top 5`)."
        )
    searched = {problem_name(subject.measures.operation_at[index]) for index in subject.measures.searches}
    if slow.name in searched:
        return "MIOpen Find compared the solvers in this run: compare layout, padding and sizes with the faster ones."
    return (
        "Tune it: run the driver line with MIOPEN_FIND_ENFORCE=SEARCH (`mio2trace driver FILE --top 5`). Compare layout"
        " and padding with the faster ones."
    )


_SWITCHES: Mapping[str | None, str] = {
    name: f"MIOPEN_DEBUG_CONV_{word}"
    for name, word in (
        ("Winograd", "WINOGRAD"), ("Direct", "DIRECT"), ("Gemm", "GEMM"), ("FFT", "FFT"),
        ("ImplicitGemm", "IMPLICIT_GEMM"),
    )
}  # fmt: skip
"""The variable that excludes the solvers of an algorithm if it is set to 0."""


@rule(
    id="roofline-gap",
    title="Problems are far below the peak of the device.",
    fires="with --gpu: time - max(FLOP / peak, bytes / bandwidth) >= 3 % of T, if the problem reaches at most 110 %"
    " of the peak",
)
def _gap(subject: Subject) -> Iterator[Found]:
    if subject.gpu is None:
        return
    below: list[tuple[float, Problem, str]] = []
    by: dict[str, str] = {}
    for problem in subject.problems:
        limit = bound(problem, subject.gpu)
        if limit is None or not limit.is_plausible:
            continue
        saved = problem.ns - limit.least_ns
        if subject.share(saved) >= GAP:
            peak = f"{percent(limit.part)} of the peak of {subject.gpu.name} ({limit.by}-bound)"
            below.append((saved, problem, f"{problem.at_line}, at {peak}"))
            by[problem.name] = limit.by
    yield from _saved(subject, below, lambda worst: _NEARER[by[worst.name]])


_NEARER = {
    "compute": "Run the driver line with MIOPEN_FIND_ENFORCE=SEARCH. Prefer solvers on matrix units or half precision.",
    "memory": "Fuse it with the operation that reads its result, or use a smaller type: memory limits it.",
}


def _saved(
    subject: Subject, below: list[tuple[float, Problem, str]], advice: Callable[[Problem], str]
) -> Iterator[Found]:
    """Make one finding for all of them, if there are any; sentence and advice are about the problem with the most time
    at stake."""
    if below:
        below = sorted(below, key=lambda one: -one[0])
        saved, (_, worst, said) = sum(ns for ns, _, _ in below), below[0]
        yield subject.found_in(
            [problem for _, problem, _ in below],
            saved,
            number=f"{count(len(below), 'problem')}, at most {subject.time(saved)}"
            f" ({percent(subject.share(saved))} of the kernel time) to save. Largest: {said}.",
            advice=advice(worst),
        )


@rule(
    id="small-gemm",
    title="Problems are too small to fill the device.",
    fires="ceil(M/64) x ceil(N/64) x batch < compute units (of --gpu or of the device that the profile names);"
    " >= 1 % of T each",
    advice="Choose solvers that split K, run independent problems on several streams, or use larger batches (these"
    " do not help a gradient of weights: only its K grows).",
)
def _small(subject: Subject) -> Iterator[Found]:
    units = subject.units
    if units is None:
        return
    small = []
    for problem in subject.problems:
        gemm = problem.operation.gemm
        if gemm is not None and subject.share(problem.ns) >= OF_T:
            tiles = -(-gemm.m // TILE) * -(-gemm.n // TILE) * gemm.batch
            if tiles < units:
                small.append((problem, tiles))
    if small:
        ns = sum(problem.ns for problem, _ in small)
        first, tiles = small[0]
        most = f"{first.at_line} has {count(tiles, 'tile')} of 64 x 64 for {count(units, 'compute unit')}"
        yield subject.found_in(
            [problem for problem, _ in small],
            ns,
            number=f"{count(len(small), 'problem')}, {percent(subject.share(ns))} of the kernel time. {most}.",
        )


# -- Kernels that a program could run as fewer ones: attention in several kernels, element-wise kernels ----------------

ATTENTION = 0.3
ELEMENT_WISE, MOSTLY_ELEMENT_WISE = 0.25, 0.5
NEAR = 8
"""The most operations between a product and the softmax (scale, mask, cast, dropout, copies)."""
_FUSED = late(r"scaled_dot_product|flash_attn|mem_efficient|fmha", re.IGNORECASE | re.ASCII)
_NATIVE = "at::native::"
_OF_ELEMENTS = late(
    r"elementwise_kernel|CatArrayBatchedCopy|layer_norm|LayerNorm|RowwiseMoments|GroupNorm|rms_norm"
    r"|reduce_kernel<.{0,40}ReduceOp",
    re.DOTALL,
)


_OF_CAFFE = late(
    r"(?:(?:p?relu|elu|tanh|sigmoid|threshold|dropout|max|bias|scale|scale_bias)_(?:param_)?(?:for|back)ward"
    r"|concat|slice|tile|crop_copy|axpy|mul|div|add|add_scalar|sub|abs|exp|log|sqrt|powx|sign)_(?:float|double|half)$",
    re.ASCII,
)
_MIOPENS_OWN = (("activ",), ("bias", "optensor"), ("cat",), ("prelu",), ("glu",), ("dropout",))
"""Primitives that a program calls. Other operations on tensors may be parts of an RNN."""
_MOVES = ("fill", "copy", "cast", "scale")
_COMPILE = "Fuse them: torch.compile(model) makes fewer kernels of them, which read and write memory less often."
_FILL = "Fill only memory to which kernels add: memory that a kernel writes as a whole needs no fill before it."
_FUSE = (
    "Fuse them with the kernels that write their inputs{plans}, or let them work in place. Each should take only as"
    " long as its memory traffic."
)


def _parts(subject: Subject, softmax: int, order: Sequence[int]) -> list[int]:
    """Return the operations of an attention around a softmax: a product that writes its matrix, a product that reads
    the result, and the operations between them with the same number of elements. Empty if one of the products is
    missing.

    ``order``: indices of operations in the order of execution. ``softmax``: a place in it.
    """
    at = subject.measures.operation_at
    elements = prod(at[order[softmax]].input)
    before = [order[place] for place in range(softmax - 1, max(-1, softmax - 2 - NEAR), -1)]
    after = [*order[softmax + 1 : softmax + 2 + NEAR]]
    first = next((n for n, index in enumerate(before) if _is_product(at[index], elements, gives=True)), NONE)
    last = next((n for n, index in enumerate(after) if _is_product(at[index], elements, gives=False)), NONE)
    if NONE in (first, last):
        return []
    between = [index for index in (*before[:first], *after[:last]) if prod(at[index].input) == elements]
    return [before[first], order[softmax], *between, after[last]]


def _is_product(operation: Operation, elements: int, *, gives: bool) -> bool:
    """Return whether the operation is a batched product that writes (``gives``), or reads, a matrix of ``elements``
    elements."""
    gemm = operation.gemm
    return gemm is not None and gemm.batch > 1 and gemm.batch * gemm.m * (gemm.n if gives else gemm.k) == elements


def _attentions(subject: Subject) -> list[list[int]]:
    """The operations of each attention that runs as several kernels in steady iterations; empty if a fused one runs."""
    has_softmax = subject.is_torch and any(one.operation.primitive == "softmax" for one in subject.problems)
    if not has_softmax or any(map(_FUSED.search, subject.texts)):
        return []
    at = subject.measures.operation_at
    found = []
    for order in subject.stretches:
        for place, index in enumerate(order):
            if at[index].primitive == "softmax" and at[index].input:
                parts = _parts(subject, place, order)
                if parts:
                    found.append(parts)
    return found


@rule(
    id="unfused-attention",
    title="Attention runs as several kernels.",
    fires="PyTorch runs softmaxes between two batched products of matching sizes, and no fused attention"
    " (scaled_dot_product_attention, FlashAttention). The softmaxes, the products and the operations between them"
    " are >= 30 % of T",
    advice='Call torch.nn.functional.scaled_dot_product_attention (transformers: attn_implementation="sdpa"). It'
    " runs attention as one kernel, which never writes the large matrix.",
)
def _attention(subject: Subject) -> Iterator[Found]:
    attentions = _attentions(subject)
    timed = subject.measures.operations.timed_ns
    ns = sum(timed[index] for index in {index for parts in attentions for index in parts})
    if not ns or subject.share(ns) < ATTENTION:
        return
    softmaxes = Counter[str]()
    for parts in attentions:
        softmaxes[problem_name(subject.measures.operation_at[parts[1]])] += sum(timed[index] for index in parts)
    names = [name for name, _ in softmaxes.most_common()]
    yield subject.found(
        ns,
        count=subject.each(len(attentions)),
        number=f"{subject.time(ns)}, {percent(subject.share(ns))} of the kernel time, in"
        f" {count(subject.each(len(attentions)), 'group')} of product, softmax and product; most with {names[0]}.",
        names=(names[0],),
        scope=tuple(names),
    )


def _is_of_elements(name: str, *, is_torch: bool) -> bool:
    """Return whether a kernel does little work on each element: in PyTorch those that torch.compile would fuse, in
    other programs Caffe's, and MIOpen's activations."""
    if is_torch:
        return _NATIVE in name and _OF_ELEMENTS.search(name) is not None
    meaning = kernel_name(name)
    if meaning is None:
        return _OF_CAFFE.match(normalise(name)) is not None
    if meaning.miopen:
        return not meaning.helps and meaning.primitives in _MIOPENS_OWN
    return meaning.role in _MOVES and class_of_kernel(name) != "copy"  # the finding on copies has the runtime's


@rule(
    id="element-wise",
    title="Element-wise kernels take much of the time.",
    fires="kernels with little work per element are > 25 % of T, and less than 15 % of the step is host-bound idle"
    " time. In PyTorch these are its element-wise, copy, concatenate, reduce and normalise kernels. In other"
    " programs these are Caffe's activations, additions, copies and fills, and MIOpen's activations. It is medium"
    " at most up to 50 %. Kernels of `unfused-attention` are not counted. It never fires if torch.compile or XLA"
    " compiled a part of the program, or if an iteration is one kernel",
)
def _element_wise(subject: Subject) -> Iterator[Found]:
    of_steady = subject.steady.counted
    is_alone = len(of_steady.kernels) <= subject.count
    if (subject.host_bound or 0) >= HOST_BOUND or subject.is_compiled or subject.is_xla or is_alone:
        return
    is_torch = subject.is_torch
    of_elements = {
        number for number, form in enumerate(of_steady.forms) if _is_of_elements(form.name, is_torch=is_torch)
    }
    attention = {index for parts in _attentions(subject) for index in parts}
    operation_of = np.asarray(subject.alignment.links.operation_of)[of_steady.kernels]
    chosen = np.isin(of_steady.form_of, [*of_elements]) & ~np.isin(operation_of, [*attention])
    first, form_of = distinct(of_steady.form_of[chosen])
    times: Counter[str] = Counter()
    sums = summed(form_of, of_steady.ns[chosen], len(first)).tolist()
    for number, ns in zip(of_steady.form_of[chosen][first].tolist(), sums, strict=True):
        times[of_steady.forms[number].name] += ns
    kernels = int(chosen.sum())
    ns = times.total()
    if subject.share(ns) > ELEMENT_WISE:
        scope = tuple(name for name, _ in times.most_common())
        largest, meaning = short_kernel(scope[0])[:60], kernel_name(scope[0])
        own = _FUSE.format(plans=" (MIOpen's fusion plans)" * subject.uses_miopen)
        yield subject.found(
            ns,
            count=subject.each(kernels),
            number=f"{count(subject.each(kernels), 'kernel')}{subject.per} that add, activate, fill, copy, join or"
            f" normalise take {percent(subject.share(ns))} of the kernel time ({subject.time(ns)}), the most in"
            f" {largest}.",
            scope=scope,
            names=(largest,),
            advice=_COMPILE if is_torch else _FILL if meaning and meaning.role == "fill" else own,
            severity=None if subject.share(ns) > MOSTLY_ELEMENT_WISE else "medium",  # fusion saves a part of it
        )
