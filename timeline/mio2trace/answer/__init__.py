"""The report on a run: how its time was spent, its findings, and what to try.

`report_of` collects the content once: a `Section` for each profile, and one for logs without a profile (`content.py`).
`text.py` writes it as an answer block, `markdown.py` as a comment for an issue, `html.py` as a page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from math import inf
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

import mio2trace
from mio2trace.align import NONE
from mio2trace.align.clocks.axis import SAME
from mio2trace.align.links import WORDS
from mio2trace.analysis import Analysis, Run
from mio2trace.answer.content import (
    ClassRow,
    Duration,
    Find,
    KernelRow,
    LayerRow,
    OperationRow,
    Part,
    ProblemRow,
    Report,
    Rest,
    Section,
    Thumbnail,
    machine,
)
from mio2trace.evidence import EVIDENCE
from mio2trace.findings import Gpu, Problem, Subject, findings
from mio2trace.findings.kernels import bound
from mio2trace.findings.rule import ms, percent
from mio2trace.measures import LayerKey, Measures, Steady
from mio2trace.measures.device_time import DeviceTime, Window
from mio2trace.measures.executions import printed_passes, printed_times
from mio2trace.measures.iterations import Iterations, StepTime, idle_between, step_kinds
from mio2trace.measures.ranking import Part as PartKey
from mio2trace.measures.ranking import SteadyCost
from mio2trace.measures.statistics import mean, median
from mio2trace.measures.steady import class_of, layer_tree
from mio2trace.model.choices import GemmTable
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.tables import NEVER, NO, distinct
from mio2trace.ops.choices import Choices
from mio2trace.ops.log.statements import alarms
from mio2trace.ops.operation import Operation, problem_name
from mio2trace.outgoing import count, visible

# -- Logs alone: layers with the times that the log prints, operations with their counts, errors and warnings ----------


def of_logs(run: Run) -> list[Section]:
    """Return a section for a run without kernels; no section if its logs hold nothing to report."""
    printed = max(run.logs, key=lambda log: len(log.layers), default=None)
    layers = _logged_layers(printed) if printed is not None else []
    operations = run.operations
    complaints = tuple(complaints_of(run.libraries))
    total = sum(layer.ns for layer in layers)
    said = []
    iteration = _printed_iteration(run.logs)
    if layers:
        number = len({layer.name for layer in layers})
        directions = sorted({layer.direction for layer in layers if layer.direction}, reverse=True)
        both = f", {' and '.join(directions)}" if len(directions) > 1 else ""
        is_doubted = iteration is not None and not total / GUARD <= iteration <= GUARD * total
        passes = printed_passes(printed, total) if printed is not None else None
        whole = iteration if is_doubted else passes
        own = "" if whole is None else f" ({ms(whole)} by the log itself)"
        times = "the times" if len(layers) >= number * len(directions) else count(len(layers), "time")
        of_layers = f"the sum of {times} that the log prints for {count(number, 'layer')}{both}"
        said.append(f"{ms(total)} per iteration{own}: {of_layers}")
    elif iteration is not None:
        said.append(f"{ms(iteration)} per iteration: the time that the log prints, without times of layers")
    if operations:
        ran = [one for one in operations if one.phase == "run"]
        names = [*dict.fromkeys(map(problem_name, ran or operations))]
        problems, first = count(len(names), "problem"), "first " * (len(names) > 1)
        parts = [f"{count(len(ran), 'operation')} of {problems}"] if ran else []
        parts += [count(len(operations) - len(ran), "search")] if len(ran) < len(operations) else []
        sought = "" if ran else f" for {problems}, {first}{names[0]}"
        said.append(f"{' and '.join(parts)} in the log{sought}")
    if not said and run.libraries:
        said.append("MIOpen's log (`mio2trace messages` lists what it says), no operation")
    tables = [one for one in run.side_files if isinstance(one, GemmTable) and one.kind == "log"]
    if said and (gemms := [gemm for table in tables for gemm in table.gemms]):
        said.append(
            f"{count(sum(one.count for one in gemms), 'call')} of {count(len(gemms), 'GEMM')} of a BLAS library"
        )
    if not (said or complaints):
        return []
    lacks = "kernel in the profile" if run.profiles else "profile"
    return [
        Section(
            name=run.name,
            verdict="; ".join((*said, f"no {lacks}, so no times of kernels.")),
            machine=machine(None, run.libraries, next((log.device_name for log in run.logs if log.device_name), "")),
            completeness=next((one.completeness for one in run.measures if not one.completeness.complete), None),
            layers=tuple(layers),
            printed="the time that the log prints per iteration",
            problems=tuple(_problems(operations)),
            log=complaints,
        )
    ]


def printed_reference(logs: Sequence[FrameworkLog], without: Sequence[FrameworkLog]) -> str:
    """Return the printed times of an iteration in the logs of a run, and in those of the run ``without`` MIOpen's log
    and dv/dt."""
    usual, undisturbed = _printed_iteration(logs), _printed_iteration(without)
    if undisturbed is None:
        return ""
    beside = f" (with the log {ms(usual)})" if usual is not None else ""
    return f"the iteration takes {ms(undisturbed)}{beside}, by the times that the program prints"


def _printed_iteration(logs: Sequence[FrameworkLog]) -> float | None:
    """Return the median of the iterations that the log prints, without the first one if there are several; their
    printed mean if it prints none."""
    events = [event for log in logs for event in log.events]
    times = [one.duration_ns for one in events if one.kind == "iteration" and one.duration_ns is not None]
    averages = [one.duration_ns for one in events if one.kind == "average iteration" and one.duration_ns is not None]
    if not times:
        return mean(averages) if averages else None
    return median(times[1:] or times)


def _logged_layers(log: FrameworkLog) -> list[LayerRow]:
    """Return the mean printed time of each layer, most first. Times of months are ignored as damage."""
    printed = printed_times([log])
    rows = [
        LayerRow(name=name, direction=direction or "", ns=round(mean(times)))
        for (_, name, direction), times in printed.items()
    ]
    return sorted(rows, key=lambda row: -row.ns)


def _problems(operations: Iterable[Operation]) -> Iterator[ProblemRow]:
    """Sort by the number of calls, because their time is not known."""
    calls: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.phase == "run":
            calls[problem_name(operation)].append(operation)
    for name, of_name in sorted(calls.items(), key=lambda item: (-len(item[1]), item[0])):
        one = of_name[0]
        solver, driver = one.solver or one.algorithm or "", one.command or ""
        yield ProblemRow(name=name, primitive=one.primitive, calls=len(of_name), ns=None, solver=solver, driver=driver)


def complaints_of(libraries: Sequence[MiopenLog]) -> Iterator[tuple[str, int, str]]:
    """Yield (``error`` or ``warning``, count, text): errors first, then in the order of the log."""
    found = [alarm for log in libraries for alarm in alarms(log)]
    for alarm in sorted(found, key=lambda one: one.level):
        text = f"{alarm.function}: {alarm.text}" if alarm.function else alarm.text
        yield alarm.level, alarm.count, f"line {alarm.line}: {text}"


BINS = 240
"""The largest number of bars in the picture of a run."""
Depth = Literal["lines", "tables", "page"]
"""How much content is made: ``lines`` for the answer block, more for tables, everything for a page."""


def of_profile(subject: Subject, name: str, libraries: Sequence[MiopenLog] = (), *, depth: Depth = "page") -> Section:
    """Return the section of a profile, with the errors and warnings in its MIOpen logs."""
    fired = tuple(findings(subject))
    each, steady = subject.each, subject.steady
    timed = subject.timed
    step, steps = timed.step_time, _device_steps(timed)
    return Section(
        name=name,
        verdict=_verdict(subject),
        evidence=_evidence(subject) if depth != "lines" else "",
        iterations=len(steady.iterations) if subject.has_iterations else 0,
        noun=subject.noun,
        kernel_ns=each(subject.total_ns),
        is_sure=steady.is_sure,
        find=_find(subject.measures),
        step=step,
        recording=timed.steady.recording,
        device=_devices(timed, steps),
        steps_ns=steps,
        causes=timed.causes if timed.spent is not None else (),
        completeness=subject.measures.completeness,
        machine=machine(subject.profile, libraries),
        idle_because=_because(timed) if timed.spent is not None else "",
        reference=_timed_beside(subject) if step is not None else "",
        timed_by_reference=step is not None and timed is not subject,
        steps=tuple(step_kinds(subject.measures)),
        phases=tuple(step_kinds(subject.measures, of_batches=False)),
        idle_between=idle_between(subject.measures),
        copy_ns=each(steady.copies.copy_timed_ns),
        first=_first(subject),
        searches=_searches(subject),
        parts=_parts(subject.makeup.parts, subject.count),
        findings=fired,
        thumbnail=_thumbnail(subject) if depth == "page" else None,
        layers=tuple(_layers(subject)),
        classes=tuple(_classes(subject)),
        no_layer=_rest(subject, steady.layers.rest),
        tree=tuple(layer_tree(subject.measures).in_order()) if depth == "page" else (),
        step_numbers=tuple(timed.steady.told.all[window.place].number for window in step.windows if window.busy)
        if step is not None
        else (),
        operations=tuple(
            OperationRow(name=row.key[1], layer=row.key[0], calls=row.calls_per_iteration, ns=each(row.total_ns))
            for row in steady.operations
            if row.calls
        ),
        problems=tuple(_problem(subject, problem) for problem in subject.problems),
        no_operation=_rest(subject, steady.problems.rest),
        kernels=tuple(
            KernelRow(name=row.key, calls=row.calls_per_iteration, ns=each(row.total_ns))
            for row in steady.kernels
            if row.calls
        ),
        durations=tuple(
            Duration(below_ns=1 << bits, count=number / subject.count, ns=each(ns))
            for bits, (number, ns) in subject.makeup.by_log2.items()
        ),
        gpu=subject.gpu,
        dtypes=tuple(dict.fromkeys(problem.operation.dtype or "float" for problem in subject.problems)),
        log=tuple(complaints_of(libraries)),
        trust=tuple(_trust(subject)) if depth != "lines" else (),
    )


def _timed_beside(subject: Subject) -> str:
    """``an iteration takes 12.3 ms, 4.5 % of it idle (with the log 14.0 ms, 16.2 %)``"""
    timed = subject.timed
    if timed is subject or timed.step_time is None:
        return ""
    beside = f" (with the log {_step_and_idle(subject.step_time)})" if subject.step_time is not None else ""
    return f"{timed.noun} takes {_step_and_idle(timed.step_time)} of it idle{beside}"


def _step_and_idle(step: StepTime) -> str:
    return f"{ms(step.step_ns)}, {percent(step.percent('idle') / 100)}"


def _computing(told: Iterations) -> list[DeviceTime]:
    """Return the devices that ran kernels in the iterations. A device that only copies, to feed another one, does not
    count."""
    return [one for one in told.devices if any(window.kernels for window in one.windows)]


def _device_steps(subject: Subject) -> tuple[int, ...]:
    """Return the mean steady step of each device that ran kernels, if there are several."""
    told = subject.steady.told
    if len(told.devices) < 2 or subject.step_time is None:
        return ()
    places = frozenset(told.places)
    found = []
    for one in _computing(told):
        steps = [window.step_ns for window in one.windows if window.place in places and window.step_ns is not None]
        found += [round(sum(steps) / len(steps))] if steps else []
    return tuple(found) if len(found) > 1 else ()


def _devices(subject: Subject, steps: Sequence[int]) -> str:
    """Return ``device 1, the slowest of 4 (11.2 to 12.3 ms)``: the parts of the step are its own. Empty for a process
    with one device."""
    number = subject.steady.device_number
    if not steps or number is None:
        return ""
    least, most = ms(min(steps)), ms(max(steps))
    if least == most:
        return f"device {number}, one of {len(steps)} (each takes {most})"
    return f"device {number}, the slowest of {len(steps)} ({least} to {most})"


def _rest(subject: Subject, rest: SteadyCost[str] | None) -> Rest | None:
    return None if rest is None else Rest(name=rest.key, ns=subject.each(rest.total_ns), share=rest.share)


SPREAD = 1.1
"""Least and most are shown if the times of steady iterations differ by more than this factor."""
GUARD = 1.5
"""Sources that did not define the iterations may differ from their time by this factor."""
OUTSIDE = 0.1
"""Kernel time outside the iterations that count is mentioned from this share on."""


_BECAUSE = {
    "host": "mostly host-bound", "builds": "mostly program builds", "queued": "mostly queued",
    "unknown": "cause not recorded", "short": "short gaps",
}  # fmt: skip


def _because(timed: Subject) -> str:
    """Return the main cause of idle time. The gaps of a capture of graphs are by design; gaps may be work if much of
    the work is not in the profile; a profiler that reads hardware counters makes gaps."""
    if timed.is_capture:
        return "by design"
    if timed.lacks_work:
        return "or missing work"
    if timed.has_counters:
        return "or by the profiler"
    return _BECAUSE[timed.causes[0].why] if timed.causes else ""


def _verdict(subject: Subject) -> str:
    """Describe the profile and its time. A capture of graphs has no time of its own."""
    captured = subject.profile.captured if subject.is_capture else ()
    graphs = count(len({one.capture for one in captured}), "graph")
    return f"Capture of {graphs}, which ran elsewhere. Here: {_times(subject)}" if captured else _times(subject)


def _times(subject: Subject) -> str:
    told = subject.steady.told
    number, recorded = subject.count, len(told.all)
    if not subject.measures.whole.kernels:
        return "No kernel in the profile."
    if told.part:
        return f"{ms(subject.total_ns)} of kernels in the recorded part of iteration {told.steady[0]} ({told.part})."
    is_unsure = subject.measures.depends_on_searches(subject.total_ns)
    without = ", perhaps with MIOpen Find" if is_unsure else ""
    if any(cost.kernels for cost in subject.measures.searches.values()):
        without = f", without MIOpen Find{' (not sure)' if is_unsure else ''}"
    if told.is_warm_up:
        return f"{ms(subject.total_ns)} of kernels in the warm-up{without}; no iteration is known."
    if not subject.has_iterations:
        searched = sum(cost.timed_ns for cost in subject.measures.searches.values())
        set_up = (subject.measures.whole.timed_ns or 0) - subject.total_ns - searched
        if set_up > 0:
            is_set_up = any(one.phase == "setup" for one in subject.alignment.links.passes)
            what = "set-up" if is_set_up else "earlier work"
            without += f"{' and' if without.startswith(', without') else ', without'} {ms(set_up)} of {what}"
        overlapping = "overlapping " * (subject.total_ns > _longest(subject))
        return f"{ms(subject.total_ns)} of {overlapping}kernels{without}; no iterations are known."
    of = f"{number:,} steady of {recorded:,}" if number != recorded else count(number, "iteration")
    kind = f", {told.kinds[told.kind]}" if told.kinds[told.kind] else ""
    kind += f" each{_others(told)}" if kind.endswith((" kernel", " kernels")) else ""
    cold = ", may be cold" if told.may_be_cold else ""
    doubt = f"; not sure: {told.doubt}" if told.doubt else ""
    kernels_ns = subject.each(subject.total_ns)
    kernels = f"{ms(kernels_ns)} of {'overlapping ' * (kernels_ns > _longest(subject))}kernels"
    step = _step(subject)
    per = "" if step else " per iteration"
    if (devices := len(_computing(told))) > 1:
        per = f" on {devices} GPUs{per}"
    return f"{step}{kernels}{per} ({of}{kind}{cold}{_outside(subject)}{doubt}){_guarded(subject)}."


def _longest(subject: Subject) -> float:
    """Return the most time that kernels can take in a step if they do not overlap, on all devices; without steps in the
    recording."""
    step, recording = subject.step_time, subject.steady.recording
    if step is None:
        devices = {queue.device for queue in subject.profile.queues}
        return inf if recording is None else recording.length_ns * len(devices)
    return sum(_device_steps(subject)) or step.step_ns


def _others(told: Iterations) -> str:
    """Mention iterations of other kinds, which are in no number per iteration, if they have much of the kernel time."""
    others = [one for one in told.all if one.kind != told.kind and one.kernels and one.number not in told.incomplete]
    others_ns = sum(one.kernel_ns for one in others)
    if others_ns <= OUTSIDE * sum(one.kernel_ns for one in told.all):  # also without any time
        return ""
    kinds = "another kind" if len({one.kind for one in others}) == 1 else "other kinds"
    run, each = ("runs", "") if len(others) == 1 else ("run", " each")
    return f"; {len(others):,} of {kinds} {run} {ms(others_ns / len(others))}{each}"


def _outside(subject: Subject) -> str:
    """Say that only the order of kernels shows the iterations; mention much kernel time outside of unmarked ones."""
    told, whole_ns = subject.steady.told, subject.measures.whole.kernel_ns or 0
    alignment = subject.measures.alignment
    repeated = told.told_by == "repetition"
    is_marked = any(step.is_marked for step in alignment.steps)
    if not repeated and (is_marked or alignment.logs or subject.measures.searches):
        return ""
    outside_ns = whole_ns - sum(one.kernel_ns for one in told.all)
    much = outside_ns > OUTSIDE * whole_ns  # never without any time
    outside = f"; {100 * outside_ns / whole_ns:.1f} % of the kernel time is in no iteration" if much else ""
    return f"{', found by repetition' * repeated}{outside}"


def _step(subject: Subject) -> str:
    """Return ``18.84 ms per iteration (18.55 to 18.98 ms), ``; empty if the length of a step is not known."""
    step = subject.step_time
    if step is None or subject.timed is not subject:
        return ""
    least, most = min(step.steps_ns), max(step.steps_ns)
    spread = f" ({ms(least)} to {ms(most)})" if most > SPREAD * least else ""
    return f"{ms(step.step_ns)} per iteration{spread}, "


def _guarded(subject: Subject) -> str:
    """Mention a source that contradicts the time of the iterations: the distance between two iterations, or the log."""
    step = subject.step_time
    if step is None:
        return ""
    if len(step.windows) > 1 and subject.steady.told.told_by != "repetition":
        last, first = step.windows[-1], step.windows[0]
        apart = (last.begin_ns - first.begin_ns) / (last.place - first.place)
        if apart > GUARD * step.step_ns:
            return _apart(subject, step.windows, apart, GUARD * step.step_ns)
    printed = {
        event.number: event.duration_ns
        for log in subject.alignment.logs
        for event in log.events
        if event.kind == "iteration" and event.duration_ns
    }
    told = subject.steady.told
    both = [
        (window.step_ns, printed[number])
        for window in step.windows
        if window.step_ns and (number := told.all[window.place].number) in printed
    ]
    own, others = sum(one for one, _ in both), sum(other for _, other in both)
    if both and not own / GUARD <= others <= GUARD * own:
        return f", but the log prints {ms(others / len(both))} per iteration"
    return ""


def _apart(subject: Subject, windows: Sequence[Window], apart: float, least: float) -> str:
    """Say that iterations begin ``apart`` on average, or name the longest pause if most of them follow each other
    within ``least``, as two parts of a recording do."""
    pairs = [*pairwise(windows)]
    if median([(other.begin_ns - one.begin_ns) / (other.place - one.place) for one, other in pairs]) > least:
        return f", but an iteration begins only every {ms(apart)}"
    one, other = max(pairs, key=lambda pair: pair[1].begin_ns - pair[0].begin_ns)
    numbers = [subject.steady.told.all[window.place].number for window in (one, other)]
    pause = other.begin_ns - one.begin_ns - (one.step_ns or 0)
    return f", but {ms(pause)} pass between iterations {numbers[0]:,} and {numbers[1]:,}"


def _evidence(subject: Subject) -> str:
    """Count the kernels that have an operation and a layer, and those in searches, and name the evidence."""
    links = subject.alignment.links
    is_kernel = subject.profile.commands.is_kernel
    parts = []
    for what, words, unsure, known in (
        ("an operation", links.operation_by, links.operation_unsure, bool(links.operations)),
        ("a layer", links.layer_by, links.layer_unsure, bool(links.runs)),
    ):
        if known:
            counts = np.bincount(words.column[is_kernel], minlength=len(WORDS)).tolist()
            by = dict(zip(WORDS[1:], counts[1:], strict=True))
            evidence = ", ".join(word for word in EVIDENCE if by[word])
            doubt = int(is_kernel[[*unsure]].sum()) if unsure else 0
            parts.append(
                f"{sum(by.values()):,} of {count(int(is_kernel.sum()), 'kernel')} have {what}"
                + (f" ({evidence})" if evidence else "")
                + (f", {doubt:,} with low confidence" if doubt else "")
            )
    if parts and (searching := sum(cost.kernels for cost in subject.measures.searches.values())):
        parts.append(f"{searching:,} ran in searches")
    return (
        "; ".join(parts) + "." if parts else "No log, range or op names operations or layers: only kernels are known."
    )


def _first(subject: Subject) -> str:
    first = subject.first_iteration
    if first is None:
        return ""
    cold, usual, _, steady = first
    return f"first iteration {ms(cold)}, then {ms(usual)}{' (median)' * (steady > 1)}"


def _find(measures: Measures) -> Find | None:
    costs = [cost for cost in measures.searches.values() if cost.kernels]
    ns = sum(cost.timed_ns for cost in costs)
    return Find(searches=len(costs), kernel_ns=ns, is_sure=not measures.is_find_unsure) if costs else None


def _searches(subject: Subject) -> str:
    find, whole = _find(subject.measures), subject.measures.whole.timed_ns
    if find is None:
        return ""
    of_all = "of all kernel time" if find.is_sure else "of all (not sure)"
    return f"{count(find.searches, 'search')} ran {ms(find.kernel_ns)} of kernels" + (
        f", {percent(find.kernel_ns / whole)} {of_all}" if whole else ""
    )


def _parts(parts: Counter[PartKey], iterations: int) -> tuple[Part, ...]:
    """Return kernel time by primitive, most first; the computing kernels come before the auxiliary ones."""
    by: Counter[tuple[str, bool]] = Counter()
    whole: Counter[str] = Counter()
    for (primitive, _, helps), ns in parts.items():
        by[primitive, helps] += ns
        whole[primitive] += ns
    order = sorted(by, key=lambda key: (-whole[key[0]], key[0], key[1]))
    return tuple(Part(primitive=key[0], helps=key[1], ns=round(by[key] / iterations)) for key in order if by[key])


def _layers(subject: Subject) -> Iterator[LayerRow]:
    parts: defaultdict[LayerKey, Counter[PartKey]] = defaultdict(Counter)
    for (key, part), ns in subject.makeup.layers.items():
        parts[key][part] += ns
    for row in subject.steady.layers:
        if row.calls:
            _, name, direction = row.key
            yield LayerRow(
                name=name,
                direction=direction or "",
                ns=subject.each(row.total_ns),
                host_ns=None if row.host_ns is None else subject.each(row.host_ns),
                parts=_parts(parts[row.key], subject.count),
            )


def _classes(subject: Subject) -> list[ClassRow]:
    """Return the classes of layers. A log names its layers one by one, profilers number the modules of a class."""
    if any(log.layers for log in subject.alignment.logs):
        return []
    members = Counter((class_of(row.key[1]), row.key[2]) for row in subject.steady.layers if row.calls)
    if max(members.values(), default=1) == 1:
        return []
    return [
        ClassRow(
            name=row.key[1],
            direction=row.key[2] or "",
            layers=members[row.key[1:]],
            ns=subject.each(row.total_ns),
        )
        for row in subject.steady.classes
        if row.calls
    ]


def _problem(subject: Subject, problem: Problem) -> ProblemRow:
    limit = bound(problem, subject.gpu) if subject.gpu is not None else None
    return ProblemRow(
        name=problem.name,
        primitive=problem.operation.primitive,
        calls=problem.row.calls_per_iteration,
        ns=subject.each(problem.ns),
        share=subject.share(problem.ns),
        gflops=problem.gflops,
        solver=problem.solver,
        driver=problem.operation.command or "",
        of_peak=None if limit is None else limit.part,
        bound="" if limit is None else limit.by,
        saved_ns=None if limit is None or not limit.is_plausible else subject.each(problem.ns - limit.least_ns),
        intensity=problem.flop / problem.bytes if problem.flop and problem.bytes else None,
    )


_AT_ONCE = 1 << 20
"""Commands: a column of ten million takes 80 MB."""


def _thumbnail(subject: Subject) -> Thumbnail | None:
    """Use the device with the most commands: other devices may have other clocks."""
    alignment = subject.alignment
    commands, told = alignment.profile.commands, subject.steady.told
    clock_of = {queue.index: alignment.profile.clock_of(queue.device) for queue in alignment.profile.queues}
    clocks = [clock_of.get(queue, 0) for queue in commands.queues.values]
    counts: Counter[int] = Counter()
    for clock, number in zip(clocks, np.bincount(commands.queues.codes).tolist(), strict=False):
        counts[clock] += number
    if not counts:
        return None
    largest = min(counts, key=lambda clock: (-counts[clock], clock))
    rows = np.flatnonzero(commands.has_times & (np.array(clocks) == largest)[commands.queues.codes])
    if not len(rows):
        return None
    zero = int(commands.start_ns[rows].min())
    span = int(commands.end_ns[rows].max()) - zero
    if span <= 0:
        return None
    kinds = ["setup", "copies", "search", *(_kind(one.number, subject.steady) for one in told.all)]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    kind_of_place = np.array([*map(numbers.__getitem__, kinds[3:]), numbers["setup"]])
    bins = np.zeros((len(numbers), BINS))
    long: list[tuple[int, int, int]] = []
    begun, until = np.full(len(told.all), NEVER), np.full(len(told.all), NO)
    used: dict[int, None] = {}
    for begin in range(0, len(rows), _AT_ONCE):
        own = rows[begin : begin + _AT_ONCE]
        starts, ends = commands.start_ns[own] - zero, commands.end_ns[own] - zero
        places, operation_of = told.place_of[own], np.asarray(alignment.links.operation_of)[own]
        kind_of = kind_of_place[places]
        kind_of[np.isin(operation_of, [*subject.measures.searches])] = numbers["search"]
        kind_of[~commands.is_kernel[own]] = numbers["copies"]
        used |= dict.fromkeys(kind_of[distinct(kind_of)[0]].tolist())
        firsts, lasts = BINS * starts // span, BINS * ends // span
        is_short = (firsts == lasts) & (lasts < BINS)  # nearly all: only thousands of kernels are as long as one bin
        np.add.at(bins, (kind_of[is_short], firsts[is_short]), (BINS * (ends - starts) / span)[is_short])
        long += zip(*(column[~is_short].tolist() for column in (kind_of, starts, ends)), strict=True)
        inside = places != NONE
        np.minimum.at(begun, places[inside], starts[inside])
        np.maximum.at(until, places[inside], ends[inside])
    for kind, start, end in long:
        _fill(bins[kind], start, end, span)
    busy = {name: bins[numbers[name]].tolist() for name in map([*numbers].__getitem__, used)}
    reached = {
        told.all[place].number: (int(begun[place]), int(until[place]))
        for place in np.flatnonzero(until != NO).tolist()
        if subject.has_iterations
    }
    return Thumbnail(
        span_ns=span,
        busy=busy,
        iterations=tuple(
            (number, start / span, end / span, subject.steady.has(number))
            for number, (start, end) in sorted(reached.items())
        ),
    )


def _kind(number: int, steady: Steady) -> str:
    return "steady" if steady.has(number) else "first" if number in steady.told.cold else "cut"


def _fill(bins: NDArray[np.float64], start: int, end: int, span: int) -> None:
    """Add to each bin the part of it that lies between ``start`` and ``end``."""
    first, last = BINS * start // span, min(BINS * end // span, BINS - 1)
    if first >= last:
        bins[min(first, BINS - 1)] += BINS * (end - start) / span
        return
    bins[first] += first + 1 - BINS * start / span
    for number in range(first + 1, last):
        bins[number] += 1.0
    bins[last] += BINS * end / span - last


def _trust(subject: Subject) -> Iterator[tuple[str, str]]:
    """Which iterations count; evidence with counts; low confidence; clocks."""
    yield "Iterations", subject.steady.rule
    if subject.timed is not subject:
        yield "Iteration and idle time", f"from the run without MIOpen's log: {subject.timed.steady.rule}"
    alignment, measures = subject.alignment, subject.measures
    for what, evidence in (("operations", measures.operation_evidence), ("layers", measures.layer_evidence)):
        by = {word: evidence[word] for word in EVIDENCE if word in evidence}
        if by:
            outside = evidence.get("")
            words = [f"{word} {cost.kernels + cost.copies:,}" for word, cost in by.items()]
            words += [f"none {outside.kernels + outside.copies:,}"] if outside is not None else []
            yield f"Kernels and copies in {what}, by evidence", ", ".join(words)
    unsure = len(alignment.links.layer_unsure | alignment.links.operation_unsure)
    if measures.operation_at or alignment.net.layers:
        yield "Low confidence", count(unsure, "link")
    if alignment.links.contradictions:
        yield "Contradictions", str(alignment.links.contradictions.total())
    names = {device.index: device.name for device in alignment.profile.devices}
    for device, clock in sorted(alignment.clocks.items()):
        name = names.get(device, "")
        error = f"error {clock.error_ns / 1000:g} us ({clock.method})"
        said = "one clock for host and device" if clock == SAME else error
        yield f"Clock of device {device}", f"{name}: {said}" if name else said
    if (log := alignment.log_clock) is not None:
        read = f", as read beside the run, to {log.error_ns / 1000:g} us" if log.host_ns else ""
        yield "Clock of the log", f"UTC{log.offset_ns / 3.6e12:+g} h{read}"


__all__ = ["Report", "Section", "report_of", "subjects"]

LEAST_NAME = 3
"""The least letters that the files of a job have in common, to be in its title."""
MOST_SECTIONS = 8
"""The most sections (runs or processes) of a report; it states how many others there are."""


def report_of(analysis: Analysis, runs: Sequence[Run], gpu: Gpu | None = None, *, depth: Depth = "page") -> Report:
    """Return the content of the report on some of the runs; ``depth``: how much of it is needed."""
    sections: list[Section] = []
    profiles = 0
    for run in runs:
        shown, of_run = _sections(run, len(runs) > 1, gpu, MOST_SECTIONS - len(sections), depth=depth)
        sections += shown
        profiles += of_run
    titles = dict.fromkeys(_title(run, analysis) for run in runs)
    return Report(
        title=", ".join(list(titles)[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else ""),
        generator=f"mio2trace {mio2trace.__version__}",
        sections=tuple(sections),
        left_out=profiles - len(sections),
        inputs=tuple(
            sorted(f"{file.format} ({file.size:,} bytes, sha256 {file.sha256[:12]})" for file in analysis.inputs)
        ),
        notes=tuple(analysis.cleaner.quoted(str(note)) for note in analysis.notes if note.problem),
    )


def _title(run: Run, analysis: Analysis) -> str:
    """Return the name of a run. That of a job is the common beginning of its files' names, and the number of them."""
    names = [file.name.rpartition("/")[2].partition(".")[0] for file in run.inputs]
    alike = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    common = "".join(letters[0] for letters in alike).rstrip(" ._-")
    if not run.is_job or len(names) < 2:
        return run.name
    processes = count(len(run.alignments), "process")
    return f"{visible(analysis.cleaner.text(common))}: {processes}" if len(common) >= LEAST_NAME else processes


def _sections(run: Run, several: bool, gpu: Gpu | None, most: int, *, depth: Depth) -> tuple[list[Section], int]:
    """Return at most ``most`` sections, one for each profile that holds commands, and the number of such profiles.
    Without such a profile the sections are those of the logs."""
    sections = []
    for _, libraries, subject in islice(subjects(run, gpu), most):
        profile = subject.profile
        label = profile.process.label or profile.framework.name
        name = ", ".join(filter(None, (run.name if several or not label else "", label)))
        sections.append(of_profile(subject, name, libraries, depth=depth))
    if sections and run.is_job:
        sections[0] = _with_ranks(sections[0], run)
    number = sum(1 for measures in run.drawn if measures.alignment.profile.activities)
    if not number:
        of_run = of_logs(run)
        sections, number = of_run[:most], len(of_run)
    if sections and run.reference is not None and not any(section.reference for section in sections):
        printed = printed_reference(run.logs, run.reference.logs)
        sections[0] = msgspec.structs.replace(sections[0], reference=printed)
    return sections, number


def _with_ranks(section: Section, run: Run) -> Section:
    """Add which ranks wait for which; a run without a collective of all ranks stays as it is."""
    from mio2trace.ranks import meetings, said, totals

    of = totals(meetings(run.alignments), run.alignments)
    labels = [alignment.profile.process.label for alignment in run.alignments]
    if not of:
        return section
    return msgspec.structs.replace(section, waiting=said(of, labels), ranks=tuple(zip(labels, of, strict=True)))


def subjects(run: Run, gpu: Gpu | None = None) -> Iterator[tuple[int, Sequence[MiopenLog], Subject]]:
    """Yield the input of the rules for each profile of the run that holds commands: its place in `Run.drawn`, the
    MIOpen logs of its process, and its `Subject`."""
    measured = [at for at, measures in enumerate(run.drawn) if measures.alignment.profile.activities]
    for number, place in enumerate(measured):
        measures = run.drawn[place]
        libraries = _libraries(run, measures, number)
        messages = [record for log in libraries for record in log.records if isinstance(record, Message)]
        of, choices = run.reference, Choices(run.side_files, libraries)
        undisturbed = of.measures[of.of.index(place)] if of is not None and place in of.of else None
        processes = len(run.alignments) if run.is_job else 1
        yield place, libraries, Subject(measures, gpu, messages, undisturbed, choices, processes)


def _libraries(run: Run, measures: Measures, place: int) -> Sequence[MiopenLog]:
    """Return the MIOpen logs of a profile's process."""
    if measures in run.measures and run.shares:
        return run.shares[run.measures.index(measures)].libraries
    return run.libraries if not place else ()
