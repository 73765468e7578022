"""Rules on the evidence: kernels in no operation, links of low confidence, warnings of a log."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np

from mio2trace.evidence import SEQUENCE
from mio2trace.findings.rule import Found, Rule, add_rule, at_most_medium, ms, percent, severity_of
from mio2trace.findings.subject import Subject
from mio2trace.kernels.names import kernel_name, short_kernel
from mio2trace.measures.completeness import OUTLIER, outliers
from mio2trace.model.profile import NAMELESS
from mio2trace.model.tables import added, present
from mio2trace.ops.operation import problem_name
from mio2trace.outgoing import count

RULES: list[Rule] = []
rule = partial(add_rule, RULES)

OUTSIDE, DOUBT, GRAPH, MODULES, OUTLIERS = 0.05, 0.01, 0.05, 0.05, 0.005
REPLAYED = 0.5
_NOT_OURS = "Look at `mio2trace kernels`: the kernels are the program's own or another library's."
_REPLAYED = "Graphs launched most of these kernels: profile one run without graph capture to get exact evidence."
_EXACT = (
    "Record exact evidence: MIOpen's ranges (MIOPEN_ENABLE_LOGGING_ROCTX=1), or its entries with buffers"
    " (MIOPEN_ENABLE_LOGGING=1). `--explain 'kernel N'` shows the reasons."
)
_RECORD_MODULES = "Record modules: torch.profiler.profile(..., record_shapes=True, with_stack=True)."
_RECORD_CAPTURE = (
    "Record the capture as well: run torch.profiler (record_shapes=True, with_stack=True) while graphs are captured"
    " (server's warm-up, first call of a compiled model). Give both files to mio2trace."
)
_NO_CAPTURE = (
    "Profile one run without graph capture: its launches show the operations. The kernel times are right in any case."
)


@rule(
    id="capture",
    title="The file is a capture of graphs.",
    fires="more launches went into graphs than ran, and no graph ran",
    advice="Give it together with the profile of its replay: `mio2trace replay.json.gz capture.json.gz`. The"
    " replayed kernels then have ops and modules.",
)
def _capture(subject: Subject) -> Iterator[Found]:
    if subject.is_capture:
        captured = subject.profile.captured
        graphs = len({one.capture for one in captured})
        yield Found(
            count=graphs,
            number=f"{count(len(captured), 'launch')} went into {count(graphs, 'graph')} and ran nothing here. The GPU"
            " idles by design.",
            severity="low",
        )


@rule(
    id="workspace",
    title="Workspace is too small for some solvers.",
    fires="the log warns that a workspace is too small (IsEnoughWorkspace)",
    advice="Query the size (miopenConvolution*GetWorkSpaceSize, GetSolutionWorkspaceSize) and allocate it. PyTorch"
    " and TensorFlow give a smaller workspace if memory is short.",
)
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


@rule(
    id="unattributed",
    title="Part of the time is in no operation.",
    fires="the log or the profile has operations, and kernels outside of them (without those of graphs) are"
    " >= 5 % of T. It does not fire if no kernel has an operation and no log is given",
    advice="Look at `mio2trace kernels`: the kernels are the program's own or another library's, or the log is"
    " incomplete. If they are MIOpen's: record its ranges (MIOPEN_ENABLE_LOGGING_ROCTX=1).",
    is_of_evidence=True,
)
def _unattributed(subject: Subject) -> Iterator[Found]:
    outside = subject.makeup.outside
    ns = sum(ns for _, ns in outside.values())
    nothing_known = ns == subject.total_ns and not subject.alignment.logs
    if not subject.measures.operation_at or subject.share(ns) < OUTSIDE or nothing_known:
        return
    names = sorted(outside, key=lambda name: (-outside[name][1], name))
    ours = {name for name in names if (meaning := kernel_name(name)) is not None and meaning.miopen}
    of_ours = subject.share(sum(outside[name][1] for name in ours))
    said = f" ({percent(of_ours)} of the kernel time has names of MIOpen or its libraries)" if ours else ""
    yield subject.found(
        ns,
        count=subject.each(sum(number for number, _ in outside.values())),
        number=f"{percent(subject.share(ns))} of the kernel time ({subject.time(ns)}) is in no operation{said}:"
        f" {', '.join(dict.fromkeys(short_kernel(name)[:60] for name in names[:3]))}.",
        scope=tuple(names),
        severity=severity_of(of_ours) or "info",
        advice="" if ours or subject.alignment.logs else _NOT_OURS,
    )


@rule(
    id="doubt",
    title="Part of the attribution is uncertain.",
    fires="kernels with `sure: false` are >= 1 % of T",
    is_of_evidence=True,
)
def _doubt(subject: Subject) -> Iterator[Found]:
    number, ns = subject.makeup.unsure
    if number and subject.share(ns) >= DOUBT:
        elsewhere = subject.share(subject.makeup.elsewhere_ns)
        by_order = 2 * _by_order(subject) >= ns
        kernels = count(subject.each(number), "kernel")
        yield subject.found(
            ns,
            count=subject.each(number),
            number=f"{percent(subject.share(ns))} of the kernel time ({kernels}{subject.per}) may belong to another"
            f" layer or operation. The expected error is {percent(elsewhere)} of the kernel time.",
            severity="info" if by_order else severity_of(elsewhere) or "info",
            advice=_RECORD_MODULES if by_order else _REPLAYED if subject.replayed >= REPLAYED else _EXACT,
        )


def _by_order(subject: Subject) -> int:
    """Return the time of kernels whose layer has low confidence because only the order of ops shows it."""
    links, of_steady = subject.alignment.links, subject.steady.counted
    unsure = links.layer_unsure - links.operation_unsure
    in_blocks = {layer.within for layer in subject.alignment.net.layers if layer.within}
    runs = {number for number, run in enumerate(links.runs) if run.layer in in_blocks} if unsure else set()
    rows = [at for at, position in enumerate(of_steady.kernels.tolist()) if position in unsure] if unsure else []
    positions = zip(rows, of_steady.kernels[rows].tolist(), strict=True)
    chosen = [at for at, one in positions if links.layer_by[one] == SEQUENCE or links.run_of[one] in runs]
    return sum(of_steady.ns[chosen].tolist())


@rule(
    id="nameless",
    title="Graphs replay kernels that the profile does not name.",
    fires="a graph launched kernels that have no name in the profile (RPD), and they take >= 5 % of all kernel time",
    advice="Record with rocprofv3, which names each kernel of a graph launch, or profile iterations without graph"
    " capture.",
    is_of_evidence=True,
)
def _nameless(subject: Subject) -> Iterator[Found]:
    """Count kernels in the whole run, because nothing assigns kernels without names to iterations."""
    commands, counted, whole = subject.profile.commands, subject.steady.counted, subject.measures.whole
    numbers = [number for number, name in enumerate(counted.names) if name in NAMELESS]
    replayed = np.flatnonzero(np.isin(counted.name_of, numbers) & commands.is_replayed)
    ns = sum(commands.time_ns[replayed].tolist())
    if ns and ns >= GRAPH * whole.timed_ns:
        launches = len(present(commands.call[replayed]))
        yield Found(
            ns=ns,
            share=ns / whole.timed_ns,
            count=len(replayed),
            number=f"{count(launches, 'graph launch')} ran {ms(ns)} of kernels without names,"
            f" {percent(ns / whole.timed_ns)} of all kernel time recorded.",
            severity=at_most_medium(ns / whole.timed_ns),
        )


@rule(
    id="modules",
    title="The profile has no modules.",
    fires="kernels in layers that only the sequence of ops shows are >= 5 % of T",
    advice=_RECORD_MODULES,
    is_of_evidence=True,
)
def _modules(subject: Subject) -> Iterator[Found]:
    links, of_steady = subject.alignment.links, subject.steady.counted
    is_sequence = links.layer_by.pool.where(lambda word: word == SEQUENCE)
    times = of_steady.ns[is_sequence[of_steady.kernels]].tolist()
    ns = sum(times)
    if ns and subject.share(ns) >= MODULES:
        yield subject.found(
            ns,
            count=subject.each(len(times)),
            number=f"{percent(subject.share(ns))} of the kernel time is in layers that are named by kind and position"
            " (conv 1, block 2). The profile does not record where a block begins.",
            severity="info",
        )


@rule(
    id="graph",
    title="Graphs launch kernels that are in no operation.",
    fires="kernels that a graph launched and whose capture is not recorded are >= 5 % of T, other kernels have"
    " operations or PyTorch ran them, and `nameless` does not fire",
    is_of_evidence=True,
)
def _graph(subject: Subject) -> Iterator[Found]:
    number, ns = subject.makeup.graph
    if next(_nameless(subject), None) is not None or not (subject.is_torch or subject.measures.operation_at):
        return  # the other finding says more; or nothing in the run has an operation
    if number and subject.share(ns) >= GRAPH:
        yield subject.found(
            ns,
            count=subject.each(number),
            number=f"{percent(subject.share(ns))} of the kernel time was launched by graphs whose capture is not in the"
            " profile. These kernels are in no operation.",
            advice=_RECORD_CAPTURE if subject.is_torch else _NO_CAPTURE,
            severity=at_most_medium(subject.share(ns)),
        )


@rule(
    id="late-end",
    title="Some kernels have an end that cannot be right.",
    fires="kernels end after a later kernel of the same stream, by >= 0.5 % of T in sum. Kernels that may overlap"
    " in a stream do not count: those of graphs, and NVIDIA's dependent launches",
    advice="Record again. Until then ignore these kernels: all sums and shares contain their time. Profilers"
    " sometimes record an end late, ROCm's if the GPU stalls.",
)
def _late_end(subject: Subject) -> Iterator[Found]:
    counted = subject.steady.counted
    late = subject.measures.late_ns[counted.kernels]
    rows = np.flatnonzero(late)
    if not len(rows):
        return
    rows = rows[np.argsort(-late[rows], kind="stable")]
    names = [counted.names[at] for at in counted.name_of[counted.kernels[rows]].tolist()]
    ns, recorded, name = int(late.sum()), int(counted.ns[rows[0]]), short_kernel(names[0])[:60]
    yield subject.found(
        ns,
        count=len(rows),
        number=f"{percent(subject.share(ns))} of the kernel time ({subject.time(ns)}) is not real:"
        f" {count(len(rows), 'kernel')} {'ends' if len(rows) == 1 else 'end'} after a later one of the stream,"
        f" mostly {name} ({ms(recorded)}, at most {ms(recorded - int(late[rows[0]]))}).",
        scope=tuple(dict.fromkeys(names)),
        names=(name,),
    )


@rule(
    id="outlier",
    title=f"Some kernels take over {OUTLIER} times the median of their name and size.",
    fires="kernels take over 100 times the median of their name and size, if there are at least 5 such kernels. It"
    " is low if they are >= 0.5 % of T, else info. It never fires for collectives, and for kernels"
    " without a recorded grid (traces of rocprof, TensorFlow's own profiles)",
    advice="Look at them (`mio2trace kernels FILE --sort kernel --top 20`): they may do more work than their size"
    " shows, or an interrupted program, a page fault or the profiler made them long.",
    is_of_evidence=True,
)
def _outlier(subject: Subject) -> Iterator[Found]:
    rows, usual = outliers(subject.profile)
    if not len(rows):
        return
    commands = subject.profile.commands
    is_steady = np.isin(rows, subject.steady.counted.kernels)
    ns = added(commands.time_ns[rows[is_steady]])
    if ns:
        rows, usual = rows[is_steady], usual[is_steady]
    where = (
        f"{percent(subject.share(ns))} of the kernel time, and in all its numbers" if ns else "in no steady iteration"
    )
    names = [commands.name.at(at) for at in rows.tolist()]
    longest = short_kernel(names[0])[:60]
    yield subject.found(
        ns,
        count=len(rows),
        number=f"{count(len(rows), 'kernel')}, {where}. Longest: {longest},"
        f" {ms(commands.time_ns[rows[0]].item())} (median {ms(usual[0].item())}).",
        scope=tuple(dict.fromkeys(names)),
        severity="low" if subject.share(ns) >= OUTLIERS else "info",
        names=(longest,),
    )


@rule(
    id="counter-run",
    title="Hardware counters change the times.",
    fires="the profile has values of hardware counters",
    advice="Take times, idle time and overlap from a run without --pmc, because counters run kernels one at a time."
    " Take bytes and FLOP from this run.",
)
def _counter_run(subject: Subject) -> Iterator[Found]:
    profile = subject.profile
    kernels = int(profile.commands.counters.where(bool).sum())
    if kernels:
        yield Found(
            count=kernels,
            number=f"{count(kernels, 'kernel')} {'has' if kernels == 1 else 'have'} values of"
            f" {count(len(profile.counters), 'hardware counter')}.",
            scope=tuple(counter.name for counter in profile.counters),
            severity="low",
        )
