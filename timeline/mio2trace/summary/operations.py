"""What the operations cost and what is in doubt about them: counts for the metadata, findings for the person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mio2trace.align import NONE, Alignment
from mio2trace.evidence import EVIDENCE
from mio2trace.kernels.names import kernel_name
from mio2trace.ops.operation import Operation
from mio2trace.ops.solvers import family

SHOWN = 3
"""How many names a line lists."""
SHARE = 0.005
"""Part of the kernel time below which a finding is not worth a line."""


def linked(alignments: Sequence[Alignment]) -> dict[str, Any]:
    """``operations``, ``operation_by``, ``outside_operations``, and times: every activity is counted once."""
    by: Counter[str] = Counter()
    time: Counter[str] = Counter()
    operations = without = find = find_kernels = 0
    for alignment in alignments:
        links = alignment.links
        searches = {operation.index for operation in links.operations if operation.phase == "find"}
        owning = set(links.operation_of)
        operations += len(links.operations)
        without += sum(operation.index not in owning for operation in links.operations)
        by.update(links.operation_by)
        for word, index, ns in zip(links.operation_by, links.operation_of, _kernel_times(alignment), strict=True):
            time[word] += ns
            if index in searches and ns:
                find += ns
                find_kernels += 1
    outside, outside_ns = by.pop("", 0), time.pop("", 0)
    return {
        "operations": operations,
        "operation_by": {word: by[word] for word in EVIDENCE if by[word]},
        "outside_operations": outside,
        "operations_without_kernels": without,
        "operation_kernel_ns": {word: time[word] for word in EVIDENCE if time[word]} | {"outside": outside_ns},
        "find": {"kernels": find_kernels, "kernel_ns": find},
    }


def _kernel_times(alignment: Alignment) -> Iterator[int]:
    """Of each enqueue the time that it ran, 0 for copies and where it is not known."""
    for activity in alignment.profile.activities:
        if activity.kind == "kernel" and activity.start_ns is not None and activity.end_ns is not None:
            yield activity.end_ns - activity.start_ns
        else:
            yield 0


def lines(alignments: Sequence[Alignment]) -> list[str]:
    """How many kernels have an operation and by what; what lacks one, by name and share of time; what stands out."""
    found = [alignment for alignment in alignments if alignment.links.operations]
    return [line for alignment in found for line in _lines(alignment)]


def _lines(alignment: Alignment) -> Iterator[str]:
    links, activities = alignment.links, alignment.profile.activities
    times = list(_kernel_times(alignment))
    whole = sum(times) or 1
    kernels = sum(activity.kind == "kernel" for activity in activities)
    has = sum(
        index != NONE and activity.kind == "kernel"
        for index, activity in zip(links.operation_of, activities, strict=True)
    )
    by = Counter(
        word
        for word, activity in zip(links.operation_by, activities, strict=True)
        if word and activity.kind == "kernel"
    )
    words = ", ".join(f"{word} {by[word]}" for word in EVIDENCE if by[word])
    unsure = sum(activities[position].kind == "kernel" for position in links.operation_unsure)
    yield (
        f"operations: {len(links.operations)} in {_told_by(links.operations)}; {has} of {kernels} kernels attributed"
        + (f" ({words})" if words else "")
        + (f", {unsure} of them not sure" if unsure else "")
    )
    yield from _outside(alignment, times, whole)
    yield from _without_kernels(alignment)
    yield from _findings(alignment, times, whole)


def _outside(alignment: Alignment, times: Sequence[int], whole: int) -> Iterator[str]:
    count: Counter[str] = Counter()
    time: Counter[str] = Counter()
    for activity, index, ns in zip(alignment.profile.activities, alignment.links.operation_of, times, strict=True):
        if index == NONE and activity.kind == "kernel":
            count[activity.name] += 1
            time[activity.name] += ns
    if count:
        total = sum(time.values())
        yield (
            f"outside any operation: {sum(count.values())} kernels, {100 * total / whole:.1f} % of the kernel time: "
            + _list([f"{name} {100 * ns / whole:.1f} % ({count[name]})" for name, ns in _most(time)], len(time))
        )


def _without_kernels(alignment: Alignment) -> Iterator[str]:
    links = alignment.links
    owning = set(links.operation_of)
    idle: Counter[str] = Counter()
    for operation in links.operations:
        if operation.index not in owning:
            idle[f"{'find ' if operation.phase == 'find' else ''}{operation.primitive}"] += 1
    if idle:
        yield f"operations without kernels: {sum(idle.values())}: " + _list(
            [f"{name} ({number})" for name, number in _most(idle)], len(idle)
        )


def _findings(alignment: Alignment, times: Sequence[int], whole: int) -> Iterator[str]:
    """Searches, naive solvers, layout transposes: what a slow network may be slow by."""
    links, activities = alignment.links, alignment.profile.activities
    operations = {operation.index: operation for operation in links.operations}
    find: Counter[int] = Counter()
    naive: Counter[int] = Counter()
    helpers: Counter[str] = Counter()
    convolution = 0
    for activity, index, ns in zip(activities, links.operation_of, times, strict=True):
        operation = operations.get(index)
        if operation is None or activity.kind != "kernel":
            continue
        if operation.phase == "find":
            find[index] += ns
            continue
        name = kernel_name(activity.name)
        if is_naive(operation) or (name is not None and name.algorithm == "Naive"):
            naive[index] += ns
        if operation.primitive == "conv":
            convolution += ns
            if name is not None and name.helps:
                helpers[name.role] += ns
    if find:
        share = 100 * sum(find.values()) / whole
        yield f"find: {len(find)} searches ran {_ms(sum(find.values()))} of kernels, {share:.1f} % of the kernel time"
    if sum(naive.values()) > SHARE * whole:
        slow = sum(naive.values())
        part = f"{100 * slow / whole:.1f} % of the kernel time"
        yield f"naive or fallback solvers: {len(naive)} operations, {_ms(slow)}, {part}"
    transposes = helpers.pop("transpose", 0)
    if transposes > SHARE * convolution:
        yield f"layout transposes: {_ms(transposes)}, {100 * transposes / convolution:.1f} % of the convolutions' time"
    if sum(helpers.values()) > SHARE * convolution:
        parts = [f"{role} {100 * ns / convolution:.1f} %" for role, ns in _most(helpers)]
        yield f"other helpers of convolutions: {_list(parts, len(helpers))} of the convolutions' time"


def is_naive(operation: Operation) -> bool:
    """Whether the log names a solver of the naive family for it."""
    return operation.algorithm == "Naive" or (operation.solver is not None and family(operation.solver) == "Naive")


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
