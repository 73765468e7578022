"""Rules on what the numbers rest on: what nothing claims, what is in doubt, what a log complains of."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from mio2trace.evidence import SEQUENCE
from mio2trace.findings.rule import Found, Rule, severity_of
from mio2trace.findings.subject import Subject
from mio2trace.findings.words import count, ms, percent
from mio2trace.kernels.names import kernel_name, normalise
from mio2trace.model.profile import NAMELESS
from mio2trace.ops.naming import problem_name

OUTSIDE, DOUBT, GRAPH, MODULES = 0.05, 0.01, 0.05, 0.05


def _workspace(subject: Subject) -> Iterator[Found]:
    lines = sorted(message.line for message in subject.messages if message.kind == "workspace warning")
    operations = sorted(subject.measures.operation_at.values(), key=lambda one: one.line)
    if not lines:
        return
    starts = [operation.line for operation in operations]
    names: Counter[str] = Counter()
    for line in lines:
        place = bisect_right(starts, line) - 1
        if place >= 0:
            names[problem_name(operations[place])] += 1
    of_problem = {problem.name: problem.ns for problem in subject.problems}
    ns = sum(of_problem.get(name, 0) for name in names)
    yield Found(
        ns=subject.each(ns) if ns else None,
        share=subject.share(ns) if ns else None,
        count=len(lines),
        number=f"{count(len(lines), 'warning')} that a workspace is too small"
        + (f", of {count(len(names), 'problem')} with {percent(subject.share(ns))} of the kernel time." if ns else "."),
        scope=tuple(sorted(names, key=lambda name: (-of_problem.get(name, 0), name))),
        severity=None if ns else "low",
    )


def _unattributed(subject: Subject) -> Iterator[Found]:
    outside = subject.makeup.outside
    ns = sum(ns for _, ns in outside.values())
    if not subject.measures.operation_at or subject.share(ns) < OUTSIDE:
        return
    names = sorted(outside, key=lambda name: (-outside[name][1], name))
    ours = {name for name in names if (meaning := kernel_name(name)) is not None and meaning.miopen}
    of_ours = subject.share(sum(outside[name][1] for name in ours))
    said = f", {percent(of_ours)} by their names MIOpen's or of its libraries" if ours else ""
    yield Found(
        ns=subject.each(ns),
        share=subject.share(ns),
        count=subject.each(sum(number for number, _ in outside.values())),
        number=f"{percent(subject.share(ns))} of the kernel time ({subject.time(ns)}) is in no operation{said}:"
        f" {', '.join(dict.fromkeys(normalise(name)[:60] for name in names[:3]))}.",
        scope=tuple(names),
        severity=severity_of(of_ours) or "info",
    )


def _doubt(subject: Subject) -> Iterator[Found]:
    number, ns = subject.makeup.unsure
    if number and subject.share(ns) >= DOUBT:
        elsewhere = subject.share(subject.makeup.elsewhere_ns)
        kernels = count(subject.each(number), "kernel")
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=subject.each(number),
            number=f"{percent(subject.share(ns))} of the kernel time ({kernels}{subject.per}) may belong to another"
            f" layer or operation; by how probable each link is, {percent(elsewhere)} does.",
            severity=severity_of(elsewhere) or "info",
        )


def _nameless(subject: Subject) -> Iterator[Found]:
    """Wherever in the run: without names nothing tells what they are part of."""
    activities, counted, whole = subject.alignment.profile.activities, subject.steady.counted, subject.measures.whole
    numbers = {number for number, name in enumerate(counted.names) if name in NAMELESS}
    positions = [at for at, number in enumerate(counted.name_of) if number in numbers] if numbers else []
    replayed = [activities[at] for at in positions if activities[at].is_replayed]
    ns = sum((one.end_ns or 0) - (one.start_ns or 0) for one in replayed)
    if ns and ns >= GRAPH * whole.timed_ns:
        launches = len({id(one.call) for one in replayed})
        yield Found(
            ns=ns,
            share=ns / whole.timed_ns,
            count=len(replayed),
            number=f"{count(launches, 'launch')} of graphs ran {ms(ns)} of kernels, {percent(ns / whole.timed_ns)} of"
            " all kernel time recorded, without their names; rocprofv3 records these.",
        )


def _graph(subject: Subject) -> Iterator[Found]:
    number, ns = subject.makeup.graph
    if next(_nameless(subject), None) is not None:
        return  # which says more
    if number and subject.share(ns) >= GRAPH:
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=subject.each(number),
            number=f"{percent(subject.share(ns))} of the kernel time: graphs launched them, no capture tells of"
            " these kernels, and they are in no operation.",
        )


def _counter_run(subject: Subject) -> Iterator[Found]:
    profile = subject.alignment.profile
    kernels = sum(bool(activity.counters) for activity in profile.activities)
    if kernels:
        yield Found(
            ns=None,
            share=None,
            count=kernels,
            number=f"{count(len(profile.counters), 'hardware counter')} of {count(kernels, 'kernel')} were collected.",
            scope=tuple(counter.name for counter in profile.counters),
            severity="low",
        )


def _modules(subject: Subject) -> Iterator[Found]:
    links, of_steady = subject.alignment.links, subject.steady.counted
    times = [
        ns for position, ns in zip(of_steady.kernels, of_steady.ns, strict=True) if links.layer_by[position] == SEQUENCE
    ]
    ns = sum(times)
    if ns and subject.share(ns) >= MODULES:
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=subject.each(len(times)),
            number=f"{percent(subject.share(ns))} of the kernel time is in layers that are named by kind and position"
            " (conv 1, linear 2), and what is between them is in none.",
            severity="info",
        )


RULES = (
    Rule(
        id="workspace",
        title="Solvers were lost for lack of workspace.",
        fires="the log warns that a workspace is too small (IsEnoughWorkspace)",
        formula="number of warnings; time and share of T of the problems in whose calls they stand, low where that is"
        " not known",
        advice="Ask for the size (miopenConvolution*GetWorkSpaceSize, GetSolutionWorkspaceSize) and give it; PyTorch"
        " and TensorFlow give less when memory is short.",
        find=_workspace,
    ),
    Rule(
        id="unattributed",
        title="Part of the time is in no operation.",
        fires="log or profile tell operations, and kernels outside of them, those of graphs apart, are >= 5 % of T",
        formula="their time per steady iteration; share of T; severity by the share of those that by their names are"
        " MIOpen's or its libraries', info where these are under 0.5 % of T",
        advice="They are the program's own kernels or those of another library, or the log is incomplete: see"
        " `mio2trace kernels`; with ROCm record MIOpen's ranges (MIOPEN_ENABLE_LOGGING_ROCTX=1).",
        find=_unattributed,
    ),
    Rule(
        id="doubt",
        title="Part of the attribution is in doubt.",
        fires="kernels with `sure: false` are >= 1 % of T",
        formula="their time per steady iteration; share of T; severity by the share that is elsewhere by the"
        " confidences of their links, info where that is under 0.5 % of T",
        advice="Record what tells exactly: ranges (MIOPEN_ENABLE_LOGGING_ROCTX=1) or entries with buffers"
        " (MIOPEN_ENABLE_LOGGING=1); `--explain 'kernel N'` gives the reasons.",
        find=_doubt,
    ),
    Rule(
        id="nameless",
        title="Graphs replay kernels that the profile does not name.",
        fires="kernels launched by a graph, of which the profile (RPD) has no name, are >= 5 % of all kernel time",
        formula="their time in the whole run; share of all kernel time recorded, set-up included",
        advice="Record with rocprofv3, which names each kernel of a replay, so that its layer can be told; or profile"
        " iterations without graph capture.",
        find=_nameless,
    ),
    Rule(
        id="modules",
        title="The profile has no modules.",
        fires="kernels in layers that are told by the sequence of ops alone are >= 5 % of T",
        formula="their time per steady iteration; share of T; always info",
        advice="Record modules: torch.profiler.profile(..., with_modules=True), or with_stack=True, and"
        " record_shapes=True.",
        find=_modules,
    ),
    Rule(
        id="graph",
        title="Graphs launch kernels that are in no operation.",
        fires="kernels that a graph launched and that no capture tells of are >= 5 % of T, and `nameless` does not"
        " fire",
        formula="their time per steady iteration; share of T",
        advice="Record the capture, too: run torch.profiler (record_shapes=True, with_stack=True) while the graphs are"
        " captured (the server's warm-up, the first call of a compiled model), then `mio2trace replay.json.gz"
        " capture.json.gz`. The times of the kernels hold without it.",
        find=_graph,
    ),
    Rule(
        id="counter-run",
        title="Hardware counters were collected: the times are not those of a plain run.",
        fires="the profile has values of hardware counters",
        formula="number of kernels that have values",
        advice="Take times, idle time and overlap from a run without --pmc; counters run kernels one at a time. Take"
        " bytes and FLOP from this run.",
        find=_counter_run,
    ),
)
