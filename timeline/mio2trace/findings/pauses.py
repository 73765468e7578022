"""Rules on time beside kernels and on time that changes: pauses, first iterations, unsteady problems."""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.align import NONE
from mio2trace.findings.rule import Found, Rule
from mio2trace.findings.subject import Problem, Subject, drivers
from mio2trace.findings.words import count, ms, percent
from mio2trace.measures.gaps import WAITS
from mio2trace.measures.statistics import deviation, mean, median

IDLE = 0.15
RUNS, SLOWER = 3, 2.0
WORTH_NAMING = 0.01
SAMPLES, SPREAD, OF_T = 10, 0.3, 0.05
_WAITS = {"host": "for the host to launch", "queue": "though launched", "unknown": "no calls tell why"}


def _idle(subject: Subject) -> Iterator[Found]:
    timed = subject.timed
    if timed.alignment.profile.calls_wait or not timed.has_iterations:
        return
    idle, span = timed.idle_ns, timed.span_ns
    if idle > IDLE * span:
        pauses = timed.pauses
        causes = [f"{percent(pauses.idle_ns[word] / span)} {_WAITS[word]}" for word in WAITS if pauses.idle_ns[word]]
        told = timed.steady.told
        alone = "; it is the only one recorded, and may be cold" if len(told.all) == 1 and not told.part else ""
        without = "; measured without MIOpen's log" if timed is not subject else ""
        yield Found(
            ns=timed.each(idle),
            share=idle / span,
            count=timed.each(pauses.count),
            number=f"{percent(idle / span)} of {timed.noun} ({ms(timed.each(idle))} of {ms(timed.each(span))}) runs"
            f" neither kernel nor copy: {', '.join(causes)}{without}{alone}.",
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
    """Of each operation that ran with kernels, in order: index and time, on the host where all have that."""
    measures = subject.measures
    ran = [i for i, one in measures.operation_at.items() if one.phase == "run" and measures.first_of[i] != NONE]
    on_host = [host_ns for index in ran if (host_ns := measures.host_ns_of[index]) is not None]
    if len(on_host) == len(ran):
        return [*zip(ran, on_host, strict=True)]
    return [(index, measures.operations.timed_ns[index]) for index in ran]


def _unsteady(subject: Subject) -> Iterator[Found]:
    found: list[tuple[float, Problem, str]] = []
    for problem in subject.problems:
        times = problem.samples
        if len(times) < SAMPLES or subject.share(problem.ns) < OF_T:
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
        title="The device waits.",
        fires="span of a steady iteration less the union of its kernels and copies > 15 % of the span; never for"
        " dv/dt, which waits for each command itself",
        formula="that difference, per steady iteration, all devices together (of the run without MIOpen's log, where"
        " `record --reference` made one); share of the span; each pause by what"
        " it waits for: *host* where the call that launched the next command began after everything before had"
        " ended, *queue* where before, *unknown* without calls",
        advice="Host: launch less (fusion, graphs), move work off the launching thread, no synchronisation within an"
        " iteration; compare with a run without the profiler's host options, which slow the host. Queue: look"
        " for dependencies between streams and for copies.",
        find=_idle,
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
