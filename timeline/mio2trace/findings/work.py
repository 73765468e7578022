"""Rules on work a second: what is slower than its like, than the device, than it could be at its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from mio2trace.findings.gpus import Gpu
from mio2trace.findings.rule import Found, Rule
from mio2trace.findings.subject import Problem, Subject, drivers
from mio2trace.findings.words import count, percent, rate

PEERS, FASTER, OF_T = 4, 2.0, 0.01
NEAR = 2.0
GAP = 0.03
TILE = 64
TOO_GOOD = 1.1
"""More than this part of the peak: the peaks or the model of the work are wrong."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A problem under the roof: its least time on the device, and what sets it."""

    least_ns: float
    by: str
    part: float
    """Least time over the time it took: 1 is the roof."""

    @property
    def is_plausible(self) -> bool:
        return self.part <= TOO_GOOD


def bound(problem: Problem, gpu: Gpu) -> Bound | None:
    """None where its work, its traffic or the peak for its type is not known."""
    peak = gpu.flop_per_ns(problem.operation.dtype)
    if not problem.flop or problem.bytes is None or not problem.ns or peak is None:
        return None
    compute, memory = problem.flop / peak, problem.bytes / gpu.bandwidth
    least = max(compute, memory)
    return Bound(least_ns=least, by="compute" if compute >= memory else "memory", part=least / problem.ns)


def peers(problem: Problem, problems: Sequence[Problem]) -> list[Problem]:
    """Others of the same primitive, direction and type, with half to twice its FLOPs a call."""
    own, work = problem.operation, _work(problem)
    return [
        other
        for other in problems
        if other is not problem
        and (other.operation.primitive, other.operation.direction, other.operation.dtype)
        == (own.primitive, own.direction, own.dtype)
        and other.gflops
        and work / NEAR <= _work(other) <= work * NEAR
    ]


def _work(problem: Problem) -> float:
    return (problem.flop or 0) / problem.row.calls


def _slow(subject: Subject) -> Iterator[Found]:
    if subject.gpu is not None:
        return  # the roofline says it better
    slow: dict[str, tuple[float, Problem, str]] = {}
    for problem in subject.problems:
        own = problem.gflops
        if not own or subject.share(problem.ns) < OF_T or problem.operation.is_plain:
            continue
        others = [other.gflops or 0.0 for other in peers(problem, subject.problems)]
        if len(others) >= PEERS and own * FASTER < median(others):
            usual = median(others)
            like = f"{problem.name}, {rate(own)} where {count(len(others), 'problem')} like it have {rate(usual)}"
            slow[problem.name] = problem.ns * (1 - own / usual), problem, like
    yield from _saved(subject, list(slow.values()))


def _gap(subject: Subject) -> Iterator[Found]:
    if subject.gpu is None:
        return
    below: list[tuple[float, Problem, str]] = []
    for problem in subject.problems:
        limit = bound(problem, subject.gpu)
        if limit is None or not limit.is_plausible:
            continue
        saved = problem.ns - limit.least_ns
        if subject.share(saved) >= GAP:
            of_peak = f"{problem.name}, at {percent(limit.part)} of what {subject.gpu.name} can (bound by {limit.by})"
            below.append((saved, problem, of_peak))
    yield from _saved(subject, below)


def _saved(subject: Subject, below: list[tuple[float, Problem, str]]) -> Iterator[Found]:
    """One finding for all of them; the sentence names the one where most is at stake."""
    if not below:
        return
    below = sorted(below, key=lambda one: -one[0])
    saved = sum(ns for ns, _, _ in below)
    problems = [problem for _, problem, _ in below]
    yield Found(
        ns=subject.each(saved),
        share=subject.share(saved),
        count=len(below),
        number=f"{count(len(below), 'problem')}, at most {subject.time(saved)}"
        f" ({percent(subject.share(saved))}) saved; most at stake: {below[0][2]}.",
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
        most = f"{first.name} is {count(tiles, 'tile')} of 64 x 64 for {count(units, 'compute unit')}"
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=len(small),
            number=f"{count(len(small), 'problem')}, {percent(subject.share(ns))} of the kernel time; {most}.",
            scope=tuple(problem.name for problem, _ in small),
            drivers=drivers([problem for problem, _ in small]),
        )


RULES = (
    Rule(
        id="slow-for-its-kind",
        title="Problems are slower than others of their kind.",
        fires="GFLOP/s below half the median of >= 4 other problems of the same primitive, direction and type with"
        " half to twice its FLOPs; >= 1 % of T; only without --gpu",
        formula="sum of their time less the time at that median, per steady iteration; share of T; at most saved",
        advice="Run the driver line with MIOPEN_FIND_ENFORCE=SEARCH, look for another solver, and compare the layout"
        " and padding with those of its like.",
        find=_slow,
    ),
    Rule(
        id="roofline-gap",
        title="Problems are far below what the device can.",
        fires="with --gpu: time less max(FLOP / peak, bytes / bandwidth) >= 3 % of T, where the problem is at <="
        " 110 % of the peak",
        formula="sum of these differences, per steady iteration; share of T; at most saved, since no kernel reaches"
        " the peak",
        advice="Run the driver line with MIOPEN_FIND_ENFORCE=SEARCH; bound by compute: a solver on matrix units,"
        " half precision; bound by memory: fuse it with what reads its result.",
        find=_gap,
    ),
    Rule(
        id="small-gemm",
        title="Problems are too small to fill the device.",
        fires="ceil(M/64) x ceil(N/64) x batch < compute units (of --gpu or of the device that the profile names);"
        " >= 1 % of T each",
        formula="their time per steady iteration; share of T",
        advice="Larger batches; run independent ones on several streams; solvers that split K.",
        find=_small,
    ),
)
