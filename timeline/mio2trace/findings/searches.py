"""Rules on MIOpen Find (the solver search): the time that it takes, and when it runs."""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.findings.rule import Found, Rule, ms, percent
from mio2trace.findings.subject import Problem, Subject, drivers
from mio2trace.ops.choices import best
from mio2trace.ops.naming import problem_name
from mio2trace.outgoing import count

PART, LEAST_NS = 0.20, 100_000_000
SLOWER = 1.05
"""Two solvers whose times differ by less than this part count as equally fast."""


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
            number=f"{count(len(searches), 'search')} of MIOpen Find ran {ms(subject.each(ns))} of kernels per steady"
            f" iteration, in addition to {ms(subject.each(subject.total_ns))} of other kernels.",
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
            number=f"{count(len(costs), 'search')} of MIOpen Find ran {ms(ns)} of kernels, {percent(ns / whole)} of all"
            " kernel time recorded.",
            severity="info",
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
            if chosen.time_ms <= SLOWER * fastest.time_ms:
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
    yield Found(
        ns=subject.each(ns),
        share=subject.share(ns),
        count=len(lost),
        number=f"The find-db has a faster solver for {count(len(lost), 'problem')}: {subject.time(ns)} by its times."
        f" {at_line[names[0]]}: {worst[names[0]][1]}.{workspace}",
        names=(names[0],),
        scope=tuple(names),
        drivers=drivers(slower),
    )


RULES = (
    Rule(
        id="find-in-steady-state",
        title="MIOpen Find runs in steady iterations.",
        fires="a find call has kernels in a steady iteration; >= 0.5 % of T",
        formula="kernel time of these searches, per steady iteration; share of T",
        advice="Keep shapes fixed (pad or bucket batches), and keep the user find-db between runs"
        " (MIOPEN_USER_DB_PATH on a disk that stays). In PyTorch, set torch.backends.cudnn.benchmark = False if shapes"
        " change.",
        find=_in_steady_state,
    ),
    Rule(
        id="find-cost",
        title="MIOpen Find took a large part of the run.",
        fires="kernels of searches are > 20 % of all kernel time and > 100 ms",
        formula="kernel time of all searches; share of all kernel time recorded, set-up included",
        advice="Find runs once per shape and is in no number per iteration. MIOpen 2.0 and newer keep its results in"
        " the user find-db: keep this database between runs (MIOPEN_USER_DB_PATH). MIOpen 1 searches in each run.",
        find=_cost,
    ),
    Rule(
        id="not-the-best-solver",
        title="Problems run a solver that is not the fastest in the find-db.",
        fires="for a problem of steady iterations, the find-db has a solver that is more than 5 % faster than the"
        " solver in the log; >= 0.5 % of T. The find-db is a file, or records in the log",
        formula="difference of their times in the find-db, summed over the calls of steady iterations, per iteration;"
        " share of T",
        advice="Run Find again on this machine (MIOPEN_FIND_ENFORCE=3, or delete the user find-db), or give the"
        " workspace that the faster solver needs. Compare the two solvers with the driver line.",
        find=_not_the_best,
    ),
)
