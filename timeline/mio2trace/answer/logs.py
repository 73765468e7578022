"""The content of a report from logs alone: layers with the times that the log prints, operations with their counts.
Also the errors and warnings of any log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mio2trace.analysis import Run
from mio2trace.answer.content import LayerRow, ProblemRow, Section
from mio2trace.findings.rule import ms
from mio2trace.measures.executions import printed_times
from mio2trace.measures.statistics import mean, median
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.ops.log.alarms import alarms
from mio2trace.ops.naming import problem_name
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import count


def of_logs(run: Run) -> list[Section]:
    """Return a section for a run without kernels; no section if its logs hold nothing to report."""
    printed = max(run.logs, key=lambda log: len(log.layers), default=None)
    layers = _layers(printed) if printed is not None else []
    operations = run.operations
    complaints = tuple(complaints_of(run.libraries))
    total = sum(layer.ns for layer in layers)
    said = []
    if layers:
        said.append(
            f"{ms(total)} per iteration: the sum of the times that the log prints for {count(len(layers), 'layer')}"
        )
    if operations:
        ran = [one for one in operations if one.phase == "run"]
        problems = len(set(map(problem_name, ran)))
        parts = [f"{count(len(ran), 'operation')} of {count(problems, 'problem')}"] if ran else []
        parts += [count(len(operations) - len(ran), "search")] if len(ran) < len(operations) else []
        said.append(f"{' and '.join(parts)} in the log")
    if not said and any(log.records for log in run.libraries):
        said.append("MIOpen's log (`mio2trace messages` lists what it says), no operation")
    if not (said or complaints):
        return []
    return [
        Section(
            name=run.name,
            verdict="; ".join(said) + "; no profile, so no times of kernels.",
            layers=tuple(layers),
            layers_by="the time that the log prints",
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
    """Return the median of the iterations that the log prints, without the first one if there are several."""
    times = [
        event.duration_ns
        for log in logs
        for event in log.events
        if event.kind == "iteration" and event.duration_ns is not None
    ]
    return median(times[1:] or times) if times else None


def _layers(log: FrameworkLog) -> list[LayerRow]:
    """Return the mean printed time of each layer, most first. Times of months are ignored as damage."""
    printed = printed_times([log])
    total = sum(map(mean, printed.values())) or 1
    rows = [
        LayerRow(name=name, direction=direction or "", ns=round(mean(times)), share=mean(times) / total)
        for (_, name, direction), times in printed.items()
    ]
    return sorted(rows, key=lambda row: -row.ns)


def _problems(operations: Iterable[Operation]) -> Iterator[ProblemRow]:
    """Sort by the number of calls, because their time is not known."""
    calls: Counter[str] = Counter()
    first: dict[str, Operation] = {}
    for operation in operations:
        if operation.phase == "run":
            name = problem_name(operation)
            calls[name] += 1
            first.setdefault(name, operation)
    for name, number in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
        one = first[name]
        yield ProblemRow(
            name=name,
            primitive=one.primitive,
            calls=number,
            ns=None,
            share=None,
            solver=one.solver or one.algorithm or "",
            driver=one.command or "",
        )


def complaints_of(libraries: Sequence[MiopenLog]) -> Iterator[tuple[str, int, str]]:
    """Yield (``error`` or ``warning``, count, text): errors first, then in the order of the log."""
    found = [alarm for log in libraries for alarm in alarms(log)]
    for alarm in sorted(found, key=lambda one: one.level):
        text = f"{alarm.function}: {alarm.text}" if alarm.function else alarm.text
        yield alarm.level, alarm.count, f"line {alarm.line}: {text}"
