"""Of each operation when the host was in it, the layer's run that it began in, what it and its problem are called."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from mio2trace.align import NONE, Alignment, Links
from mio2trace.ops.naming import name_of, problem_name
from mio2trace.ops.operation import Operation


def host_spans(alignment: Alignment, count: int) -> Iterator[tuple[int, int, int]]:
    """Of each of ``count`` operations with kernels its index; from its first call, or the arguments for it, to its
    last's end.
    """
    # One more, the last, is of what has no operation.
    first_at = array("q", [NONE]) * (count + 1)
    last_at = first_at[:]
    for position, index in enumerate(alignment.links.operation_of):
        if first_at[index] == NONE:
            first_at[index] = position
        last_at[index] = position
    activities = alignment.profile.activities
    for index in range(count):
        if last_at[index] == NONE:
            continue
        if activities[first_at[index]].is_replayed:
            continue  # its host's time was when the graph was captured
        first, last = activities[first_at[index]].call, activities[last_at[index]].call
        if first is None or last is None or first.start_ns is None or last.end_ns is None:
            continue
        start = first.start_ns if first.prepared_ns is None else min(first.start_ns, first.prepared_ns)
        if start <= last.end_ns:
            yield index, start, last.end_ns


def begun_in(links: Links, count: int) -> array[int]:
    """Of each of ``count`` operations the first layer's run that it is in, `NONE` where it is in none."""
    runs = array("q", [NONE]) * count
    for index, run in zip(links.operation_of, links.run_of, strict=True):
        if run != NONE and index != NONE and runs[index] == NONE:
            runs[index] = run
    return runs


def names_as_run(operations: Iterable[Operation]) -> Mapping[int, str]:
    """By the identity of their facts: what they are called when they run, also what searches for it."""
    alike = {id(one.facts): one.facts for one in operations}
    return {
        of: name_of(msgspec.structs.replace(facts, phase="run") if facts.phase == "find" else facts)
        for of, facts in alike.items()
    }


def problem_names(operations: Collection[Operation], count: int) -> list[str]:
    """By index, of ``count`` at most, what their problems are called."""
    alike = {id(one.facts): one for one in operations}
    names = {of: problem_name(one) for of, one in alike.items()}
    names_of = [""] * count
    for one in operations:
        names_of[one.index] = names[id(one.facts)]
    return names_of
