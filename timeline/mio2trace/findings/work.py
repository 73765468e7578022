"""Rules on work per second: problems slower than similar ones or than the device, and problems that are too small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from mio2trace.findings.gpus import Gpu
from mio2trace.findings.rule import Found, Rule, percent, rate
from mio2trace.findings.subject import Problem, Subject, drivers
from mio2trace.measures.statistics import median
from mio2trace.ops.naming import problem_name
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import count

PEERS, FASTER, OF_T = 4, 2.0, 0.01
NEAR = 2.0
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
        and work / NEAR <= _work(other) <= work * NEAR
        and intensity / NEAR <= _intensity(other) <= intensity * NEAR
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


def _slow(subject: Subject) -> Iterator[Found]:
    if subject.gpu is not None:
        return  # the rule on the peak of the device says more
    slow: dict[str, tuple[float, Problem, str]] = {}
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
            slow[problem.name] = problem.ns * (1 - own / usual), problem, like
    if slow:
        _, worst, _ = max(slow.values(), key=lambda one: one[0])
        yield from _saved(subject, list(slow.values()), _faster(subject, worst))


def _faster(subject: Subject, slow: Problem) -> str:
    """Say what to try for the slowest problem: exclude its algorithm if the faster similar problems use another one."""
    if slow.operation.primitive == "gemm":
        compare = "Compare its layout with that of the similar ones."
        if subject.is_nvidia:  # PyTorch's TunableOp has candidates for ROCm only
            return compare
        tune = "PYTORCH_TUNABLEOP_ENABLED=1 with PYTORCH_TUNABLEOP_TUNING=1" if subject.is_torch else "hipblaslt-bench"
        return f"Tune this GEMM: {tune}. {compare}"
    if subject.is_nvidia:
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
            of_peak = (
                f"{problem.at_line}, at {percent(limit.part)} of the peak of {subject.gpu.name} ({limit.by}-bound)"
            )
            below.append((saved, problem, of_peak))
            by[problem.name] = limit.by
    if below:
        _, worst, _ = max(below, key=lambda one: one[0])
        yield from _saved(subject, below, _NEARER[by[worst.name]])


_NEARER = {
    "compute": "Run the driver line with MIOPEN_FIND_ENFORCE=SEARCH. Prefer solvers on matrix units or half precision.",
    "memory": "Fuse it with the operation that reads its result, or use a smaller type: memory limits it.",
}


def _saved(subject: Subject, below: list[tuple[float, Problem, str]], advice: str) -> Iterator[Found]:
    """Make one finding for all of them; the sentence names the problem with the most time at stake."""
    below = sorted(below, key=lambda one: -one[0])
    saved = sum(ns for ns, _, _ in below)
    problems = [problem for _, problem, _ in below]
    yield Found(
        ns=subject.each(saved),
        share=subject.share(saved),
        count=len(below),
        number=f"{count(len(below), 'problem')}, at most {subject.time(saved)}"
        f" ({percent(subject.share(saved))} of the kernel time) to save. Largest: {below[0][2]}.",
        advice=advice,
        scope=tuple(problem.name for problem in problems),
        drivers=drivers(problems),
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
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=len(small),
            number=f"{count(len(small), 'problem')}, {percent(subject.share(ns))} of the kernel time. {most}.",
            scope=tuple(problem.name for problem, _ in small),
            drivers=drivers([problem for problem, _ in small]),
        )


RULES = (
    Rule(
        id="slow-for-its-kind",
        title="Problems are slower than similar ones.",
        fires="GFLOP/s below half the median of >= 4 similar problems; >= 1 % of T; only without --gpu. Similar"
        " problems have the same primitive, direction, type and filter size, half to twice the FLOPs, and half to"
        " twice the FLOPs per byte",
        formula="sum of (their time - their time at that median), per steady iteration; share of T; at most saved",
        advice="for the largest one. If faster problems use another algorithm: exclude the algorithm of this problem"
        " and run its driver line (MIOPEN_DEBUG_CONV_WINOGRAD=0, ..._DIRECT, ..._GEMM, ..._FFT, ..._IMPLICIT_GEMM). If"
        " MIOpen Find compared solvers in this run: compare layout, padding and sizes. A GEMM on ROCm: TunableOp or"
        " hipblaslt-bench. Else: tune with MIOPEN_FIND_ENFORCE=SEARCH.",
        find=_slow,
    ),
    Rule(
        id="roofline-gap",
        title="Problems are far below the peak of the device.",
        fires="with --gpu: time - max(FLOP / peak, bytes / bandwidth) >= 3 % of T, if the problem reaches at most 110 %"
        " of the peak",
        formula="sum of these differences, per steady iteration; share of T; at most saved, since no kernel reaches"
        " the peak",
        advice="for the largest one. Compute-bound: run the driver line with MIOPEN_FIND_ENFORCE=SEARCH, prefer solvers"
        " on matrix units or half precision. Memory-bound: fuse it with the operation that reads its result.",
        find=_gap,
    ),
    Rule(
        id="small-gemm",
        title="Problems are too small to fill the device.",
        fires="ceil(M/64) x ceil(N/64) x batch < compute units (of --gpu or of the device that the profile names);"
        " >= 1 % of T each",
        formula="their time per steady iteration; share of T",
        advice="Use larger batches, run independent problems on several streams, or choose solvers that split K.",
        find=_small,
    ),
)
