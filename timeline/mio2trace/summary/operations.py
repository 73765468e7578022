"""What the operations cost and what is in doubt about them: counts for the metadata, findings for the person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mio2trace.align import NONE
from mio2trace.evidence import EVIDENCE
from mio2trace.measures import Measures
from mio2trace.ops.operation import Operation

SHOWN = 3
"""How many names a line lists."""
SHARE = 0.005
"""Part of the kernel time below which a finding is not worth a line."""


def linked(measured: Sequence[Measures]) -> dict[str, Any]:
    """``operations``, ``operation_by``, ``outside_operations``, and times: every activity is counted once."""
    by: Counter[str] = Counter()
    time: Counter[str] = Counter()
    operations = without = find = find_kernels = 0
    for measures in measured:
        operations += len(measures.operation_at)
        without += sum(measures.first_of[index] == NONE for index in measures.operation_at)
        for word, cost in measures.operation_evidence.items():
            by[word] += cost.kernels + cost.copies
            time[word] += cost.timed_ns
        for cost in measures.searches.values():
            find += cost.timed_ns
            find_kernels += cost.kernels
    outside, outside_ns = by.pop("", 0), time.pop("", 0)
    return {
        "operations": operations,
        "operation_by": {word: by[word] for word in EVIDENCE if by[word]},
        "outside_operations": outside,
        "operations_without_kernels": without,
        "operation_kernel_ns": {word: time[word] for word in EVIDENCE if time[word]} | {"outside": outside_ns},
        "find": {"kernels": find_kernels, "kernel_ns": find},
    }


def lines(measured: Sequence[Measures]) -> list[str]:
    """How many kernels have an operation and by what; what lacks one, by name and share of time; what stands out.

    Each line begins with the process where there are several.
    """
    said = []
    for measures in measured:
        label = measures.alignment.profile.process.label
        said += [f"{label}: {line}" if label else line for line in _lines(measures)] if measures.operation_at else []
    return said


def _lines(measures: Measures) -> Iterator[str]:
    by = {word: cost.kernels for word, cost in measures.operation_evidence.items() if word}
    words = ", ".join(f"{word} {by[word]}" for word in EVIDENCE if by.get(word))
    alignment = measures.alignment
    unsure = sum(alignment.profile.activities[at].kind == "kernel" for at in alignment.links.operation_unsure)
    yield (
        f"operations: {len(measures.operation_at)} in {_told_by(alignment.links.operations)};"
        + f" {sum(by.values())} of {measures.whole.kernels} kernels attributed"
        + (f" ({words})" if words else "")
        + (f", {unsure} of them not sure" if unsure else "")
    )
    whole = measures.whole.timed_ns or 1
    yield from _outside(measures, whole)
    yield from _without_kernels(measures)
    yield from _findings(measures, whole)


def _outside(measures: Measures, whole: int) -> Iterator[str]:
    outside = measures.names_outside
    if outside:
        time = Counter({name: cost.timed_ns for name, cost in outside.items()})
        yield (
            f"outside any operation: {sum(cost.kernels for cost in outside.values())} kernels,"
            f" {100 * time.total() / whole:.1f} % of the kernel time: "
            + _list(
                [f"{name} {100 * ns / whole:.1f} % ({outside[name].kernels})" for name, ns in _most(time)], len(time)
            )
        )


def _without_kernels(measures: Measures) -> Iterator[str]:
    idle: Counter[str] = Counter()
    for index, operation in measures.operation_at.items():
        if measures.first_of[index] == NONE:
            idle[f"{'find ' if operation.phase == 'find' else ''}{operation.primitive}"] += 1
    if idle:
        yield f"operations without kernels: {sum(idle.values())}: " + _list(
            [f"{name} ({number})" for name, number in _most(idle)], len(idle)
        )


def _findings(measures: Measures, whole: int) -> Iterator[str]:
    """Searches, naive solvers, layout transposes: what a slow network may be slow by."""
    searches = [cost for cost in measures.searches.values() if cost.kernels]
    if searches:
        ran = sum(cost.timed_ns for cost in searches)
        yield f"find: {len(searches)} searches ran {_ms(ran)} of kernels, {100 * ran / whole:.1f} % of the kernel time"
    sums = measures.operations
    executed = {index: operation for index, operation in measures.operation_at.items() if operation.phase == "run"}
    naive = [ns for index, ns in sums.naive_ns.items() if index in executed]
    if sum(naive) > SHARE * whole:
        part = f"{100 * sum(naive) / whole:.1f} % of the kernel time"
        yield f"naive or fallback solvers: {len(naive)} operations, {_ms(sum(naive))}, {part}"
    convolution = sum(sums.timed_ns[index] for index, operation in executed.items() if operation.primitive == "conv")
    helpers = Counter({role: ns for (primitive, role), ns in measures.helpers.items() if primitive == "conv"})
    transposes = helpers.pop("transpose", 0)
    if transposes > SHARE * convolution:
        yield f"layout transposes: {_ms(transposes)}, {100 * transposes / convolution:.1f} % of the convolutions' time"
    if sum(helpers.values()) > SHARE * convolution:
        parts = [f"{role} {100 * ns / convolution:.1f} %" for role, ns in _most(helpers)]
        yield f"other helpers of convolutions: {_list(parts, len(helpers))} of the convolutions' time"


def _most(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]


def _list(parts: Sequence[str], of: int) -> str:
    return ", ".join(parts) + (f" and {of - len(parts)} more" if of > len(parts) else "")


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms"


def _told_by(operations: Sequence[Operation]) -> str:
    """Where the calls are stated: lines of a log, ranges of the profile, or both."""
    logged = sum(operation.line > 0 for operation in operations)
    if logged == len(operations):
        return "the log"
    return "log and profile" if logged else "the profile's ranges"
