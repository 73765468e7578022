"""Rules on time beside kernels and on time that changes: pauses, first iterations, unsteady problems."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mio2trace.align import NONE
from mio2trace.findings.rule import Found, Rule
from mio2trace.findings.subject import Problem, Subject, drivers
from mio2trace.findings.words import count, ms, percent
from mio2trace.measures.bandwidth import bandwidth
from mio2trace.measures.device_time.gaps import Cause
from mio2trace.measures.statistics import deviation, mean, median
from mio2trace.ops.operation import Operation

IDLE = 0.15
COMMUNICATION = 0.10
RUNS, SLOWER = 3, 2.0
WORTH_NAMING = 0.01
MOST_CAUSES = 3
SAMPLES, SPREAD, OF_T = 10, 0.3, 0.05
_WHY = {
    "host": "host-bound",
    "builds": "program builds",
    "queued": "queued",
    "unknown": "of unknown cause (no calls recorded)",
    "short": "gaps of up to 1 us",
}


def cause(one: Cause, count: int) -> str:
    """``0.42 ms host-bound in 12 gaps (most in aten::mm, 0.31 ms)``; ``count``: of iterations."""
    gaps = max(1, round(one.count / count))
    name, ns = one.during[0] if one.during else ("", 0)
    most = f" (most in {name[:40]}, {ms(ns / count)})" if name else ""
    if one.why == "short":
        return f"{ms(one.ns / count)} in {_WHY[one.why]}"
    return f"{ms(one.ns / count)} {_WHY[one.why]} in {gaps:,} gap{'s' * (gaps != 1)}{most}"


_READS_BACK = re.compile(r"aten::(?:item|_local_scalar_dense|is_nonzero)", re.ASCII)
_SYNCHRONISES = re.compile(r"(?:hip|cuda)(?:Device|Stream|Event)Synchronize|clFinish", re.ASCII)
_COPIES = re.compile(r"(?:hip|cuda)Memcpy(?!\w{0,24}Async)", re.ASCII)
_ALLOCATES = re.compile(r"(?:hip|cuda)(?:Ext)?(?:Host)?(?:Malloc|Free|Alloc)", re.ASCII)
_LOADS_DATA = re.compile(r"dataloader", re.ASCII | re.IGNORECASE)
_ADVICE = (
    (_READS_BACK, "The host waits for a value of the GPU: take .item(), bool() and print of a tensor out of the step."),
    (_SYNCHRONISES, "The host waits for the GPU: remove this synchronisation from the step."),
    (_COPIES, "A blocking copy: use pinned memory and an asynchronous copy (non_blocking=True)."),
    (_ALLOCATES, "The host allocates memory in the step: allocate once before it, or use a caching allocator."),
    (_LOADS_DATA, "The step waits for data: use more loader workers, prefetching, pinned memory."),
)
_BUILDS = (
    "Programs are built or loaded in the step: warm up before measuring, and keep MIOpen's kernel cache"
    " (MIOPEN_CUSTOM_CACHE_DIR)."
)
_ONE_STEP = (
    "Record several steps, after a warm-up: the only whole one may include what runs once (builds, allocations)."
)
_QUEUED = "The work was launched in time: look for what it waits for (events between streams, copies, other processes)."
_NO_CALLS = "Record the host's calls, too, to see why: rocprofv3 --hip-trace, or the PyTorch profiler's CPU activity."
_GRAPHS = "The step is launched by graphs already: look at what the host does between two graph launches."
_LAUNCH_LESS = "The host launches too slowly: launch less (fusion, torch.compile, graph capture) or use larger batches."
MOST_REPLAYED = 0.5
"""Part of the kernel time that graphs launch, from which on "use graphs" is no advice."""


def _advice(subject: Subject) -> str:
    """What helps against the largest cause of idle time in this run."""
    if subject.steady.told.may_be_cold:
        return _ONE_STEP
    (largest, *_) = subject.causes
    if largest.why == "builds":
        return _BUILDS
    if largest.why == "queued":
        return _QUEUED
    if largest.why == "unknown":
        return _NO_CALLS
    name = largest.during[0][0] if largest.during else ""
    of_call = next((text for form, text in _ADVICE if form.search(name)), "")
    if of_call:
        return of_call
    replayed = sum(
        (one.end_ns or 0) - (one.start_ns or 0) for one in subject.alignment.profile.activities if one.is_replayed
    )
    whole = subject.measures.whole.timed_ns
    return _GRAPHS if replayed > MOST_REPLAYED * whole else _LAUNCH_LESS


def _idle(subject: Subject) -> Iterator[Found]:
    timed = subject.timed
    step = timed.step_time
    if step is None or step.idle_ns <= IDLE * step.step_ns:
        return
    number = len(step.windows)
    told = timed.steady.told
    alone = " Only one iteration is whole, and it may be cold." if told.may_be_cold and not told.part else ""
    without = ", measured without MIOpen's log" if timed is not subject else ""
    causes = "; ".join(cause(one, number) for one in timed.causes[:MOST_CAUSES])
    yield Found(
        ns=step.idle_ns,
        share=step.idle_ns / step.step_ns,
        count=round(sum(one.count for one in timed.causes) / number),
        number=f"{percent(step.idle_ns / step.step_ns)} of {timed.noun} ({ms(step.idle_ns)} of"
        f" {ms(step.step_ns)}{without}): {causes}.{alone}",
        advice=_advice(timed) if timed.causes else "",
    )


def _first(subject: Subject) -> Iterator[Found]:
    told = subject.steady.told
    first = subject.first_iteration
    if first is None or len(told.steady) < RUNS - 1 or first[0] <= SLOWER * first[1]:
        yield from _first_calls(subject)
        return
    cold, usual = first
    excess = cold - usual
    recorded = cold + usual * len(told.steady)
    parts = [f"{ms(ns)} {what}" for what, ns in subject.first_prepared.items() if ns >= WORTH_NAMING * excess]
    yield Found(
        ns=excess,
        share=excess / recorded,
        count=1,
        number=f"The first iteration took {ms(cold)}, a steady one {ms(usual)}: {ms(excess)} more, once, which is"
        f" {percent(excess / recorded)} of the iterations recorded{'; ' if parts else ''}{', '.join(parts)}.",
    )


def _first_calls(subject: Subject) -> Iterator[Found]:
    """By problem, where iterations do not tell: a program that runs once is all first calls."""
    excess = _first_calls_by_problem(subject)
    ns, whole = sum(excess.values()), sum(cost_ns for _, cost_ns in _calls(subject))
    if ns:
        name = next(iter(excess))
        yield Found(
            ns=round(ns),
            share=ns / whole,
            count=len(excess),
            number=f"{count(len(excess), 'problem')} took more than twice as long when first run: {ms(ns)} more than"
            f" usual, {percent(ns / whole)} of the time of all calls recorded; most in {name}, {ms(excess[name])}.",
            scope=tuple(excess),
        )


def _first_calls_by_problem(subject: Subject) -> dict[str, float]:
    """What the first call took more than the median of the others, where that is more than as much; most first."""
    runs: dict[str, list[int]] = {}
    problem_of = subject.steady.problem_of
    for index, ns in _calls(subject):
        runs.setdefault(problem_of[index], []).append(ns)
    excess = {
        name: times[0] - median(times[1:])
        for name, times in runs.items()
        if len(times) >= RUNS and times[0] > SLOWER * median(times[1:])
    }
    return dict(sorted(excess.items(), key=lambda item: (-item[1], item[0])))


def _calls(subject: Subject) -> list[tuple[int, int]]:
    """Of each operation that ran with kernels, in order: index and time, on the host where all have that. What is
    known of an op that no family models does not tell how long it takes."""
    measures = subject.measures
    ran = [
        index
        for index, one in measures.operation_at.items()
        if one.phase == "run" and measures.first_of[index] != NONE and _takes_its_own_time(one)
    ]
    on_host = [host_ns for index in ran if (host_ns := measures.host_ns_of[index]) is not None]
    if len(on_host) == len(ran):
        return [*zip(ran, on_host, strict=True)]
    return [(index, measures.operations.timed_ns[index]) for index in ran]


def _takes_its_own_time(operation: Operation) -> bool:
    """Whether what is known of it tells how long it takes: a collective waits for other ranks."""
    problem = operation.problem
    return not operation.is_plain and (problem is None or problem.message_bytes() is None)


def _communication(subject: Subject) -> Iterator[Found]:
    step = subject.timed.step_time
    if step is None or step.communication_ns <= COMMUNICATION * step.step_ns:
        return
    named = []
    for problem in subject.problems:
        rate = bandwidth(problem.operation, problem.row.calls, problem.ns)
        if rate is not None:
            bus = f", {rate.bus:.3g} GB/s on the bus" if rate.bus is not None else ""
            named.append((problem.name, f"{problem.name} ({subject.time(problem.ns)}{bus})"))
    most = f"; most in {named[0][1]}" if named else ""
    yield Found(
        ns=step.communication_ns,
        share=step.communication_ns / step.step_ns,
        count=len(named) or 1,
        number=f"{percent(step.communication_ns / step.step_ns)} of {subject.timed.noun}"
        f" ({ms(step.communication_ns)} of {ms(step.step_ns)}) runs collectives and nothing beside them{most}.",
        scope=tuple(name for name, _ in named),
    )


def _unsteady(subject: Subject) -> Iterator[Found]:
    found: list[tuple[float, Problem, str]] = []
    for problem in subject.problems:
        times = problem.samples
        if len(times) < SAMPLES or subject.share(problem.ns) < OF_T or not _takes_its_own_time(problem.operation):
            continue
        spread = (deviation(times) or 0.0) / (mean(times) or 1)
        if spread > SPREAD:
            usual = median(times)
            over = sum(max(0, ns - usual) for ns in times)
            said = (
                f"{problem.name}: {ms(min(times))} to {ms(max(times))}, median {ms(usual)}, over"
                f" {count(len(times), 'call')} (deviation {percent(spread)} of the mean)."
            )
            found.append((over, problem, said))
    if found:
        found.sort(key=lambda one: -one[0])
        over = sum(ns for ns, _, _ in found)
        yield Found(
            ns=subject.each(over),
            share=subject.share(over),
            count=len(found),
            number=found[0][2],
            scope=tuple(problem.name for _, problem, _ in found),
            drivers=drivers([problem for _, problem, _ in found]),
        )


RULES = (
    Rule(
        id="idle",
        title="GPU idle.",
        fires="the slowest device runs nothing for > 15 % of its steady iterations; never for dv/dt profiles, because"
        " dv/dt waits for each command",
        formula="time in gaps between commands, per steady iteration; share of the iteration's length. If"
        " `record --reference` recorded a run without MIOpen's log, that run is measured. Gaps in which the device did"
        " work that was not recorded are not idle time. Each gap has a cause: *host* - the next command was not"
        " launched yet (the finding names the call, op or range that the host was in for most of the gap); *builds* -"
        " the same, and that call builds or loads programs; *queued* - the launch had returned and the command waited;"
        " *unknown* - no calls are recorded; *short* - gaps of up to 1 us",
        advice="by the largest cause of this run: remove the call that waits (synchronisation, .item(), blocking copy,"
        " allocation, data loading), warm up before programs are built, look for what queued work waits for, or launch"
        " less (fusion, graph capture, larger batches).",
        find=_idle,
    ),
    Rule(
        id="communication",
        title="Collectives run alone.",
        fires="exposed communication is > 10 % of a steady iteration of the slowest device",
        formula="time in which a collective runs and no other kernel, per iteration; share of the iteration",
        advice="Overlap them with computation (DDP's buckets, FSDP's prefetch, more streams), send less (a smaller"
        " type, gradient accumulation), or let fewer ranks wait: `mio2trace ranks` says who comes last.",
        find=_communication,
    ),
    Rule(
        id="first-iteration",
        title="First runs are slow.",
        fires="the first iteration took > 2 x the median of >= 2 steady ones; else a problem with >= 3 calls whose"
        " first took > 2 x the median of the others",
        formula="first less median, once: of the iteration, or summed over these problems; from the first command to"
        " the last one's end, or from the first call to the last one's end where that is known of all and"
        " longer; share of the iterations, or calls, recorded; of it what the iteration's calls built, loaded or"
        " allocated, by their names, where that is 1 % of it",
        advice="It is compiling, allocating, loading: warm up before measuring; keep MIOpen's kernel cache"
        " (MIOPEN_CUSTOM_CACHE_DIR on a disk that stays) and user db between runs.",
        find=_first,
    ),
    Rule(
        id="unsteady",
        title="The time of one problem changes.",
        fires=">= 10 calls in steady iterations, standard deviation > 30 % of the mean, >= 5 % of T",
        formula="time above the median, per steady iteration; share of T",
        advice="Look at clocks and power (rocm-smi), at other programs on the device, at what runs beside it on"
        " other streams; report medians.",
        find=_unsteady,
    ),
)
