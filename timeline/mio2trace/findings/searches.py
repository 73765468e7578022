"""Rules on searches (MIOpen's Find): what choosing a solver costs, and when."""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.findings.rule import Found, Rule
from mio2trace.findings.subject import Subject
from mio2trace.findings.words import count, ms, percent
from mio2trace.ops.naming import problem_name

PART, LEAST_NS = 0.20, 100_000_000


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
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=len(searches),
            number=f"{count(len(searches), 'search')} ran {ms(subject.each(ns))} of kernels in each steady iteration,"
            f" beside {ms(subject.each(subject.total_ns))} of work.",
            scope=tuple(dict.fromkeys(map(problem_name, operations))),
        )


def _cost(subject: Subject) -> Iterator[Found]:
    costs = [cost for cost in subject.measures.searches.values() if cost.timed_ns]
    ns, whole = sum(cost.timed_ns for cost in costs), subject.measures.whole.timed_ns
    if ns > PART * whole and ns > LEAST_NS:
        yield Found(
            ns=ns,
            share=ns / whole,
            count=len(costs),
            number=f"{count(len(costs), 'search')} ran {ms(ns)} of kernels, {percent(ns / whole)} of all kernel time"
            " recorded.",
            severity="info",
        )


RULES = (
    Rule(
        id="find-in-steady-state",
        title="Searches run in steady iterations.",
        fires="a find call has kernels in a steady iteration; >= 0.5 % of T",
        formula="kernel time of these searches, per steady iteration; share of T",
        advice="Keep shapes fixed (pad or bucket batches), and keep the user find-db between runs"
        " (MIOPEN_USER_DB_PATH on a disk that stays); in PyTorch torch.backends.cudnn.benchmark = False for"
        " changing shapes.",
        find=_in_steady_state,
    ),
    Rule(
        id="find-cost",
        title="Searches took a large part of the run.",
        fires="kernels of searches are > 20 % of all kernel time and > 100 ms",
        formula="kernel time of all searches; share of all kernel time recorded, set-up included",
        advice="It is paid once a shape: keep the user find-db between runs (MIOPEN_USER_DB_PATH), or"
        " MIOPEN_FIND_MODE=HYBRID; no reason to act where the run is long.",
        find=_cost,
    ),
)
