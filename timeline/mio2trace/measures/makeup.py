"""What the time of some kernels is made up of: primitives and roles, durations, evidence, graph launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact
from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.measures.kinds import Kind, kind_of

if TYPE_CHECKING:
    from mio2trace.measures import Measures

SHORT_NS = 10_000
"""A kernel that is shorter is short: launching one costs a host about as much."""

Part = tuple[str, str, bool]
"""Primitive (the operation's; else the kernel's own, ``gemm``, ``collective``, or empty), role, whether it helps."""


class Makeup(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels with times, counted and summed once. ``parts``: time by `Part`; ``layers``: time by run of a layer and
    part. ``by_log2``: count and time by the bits of the duration in ns. ``naive``: by operation, ``NONE`` for those of
    no operation. ``outside``: by name, of no operation and no graph. ``unsure``, ``graph``, ``short``, ``all``: sums.
    """

    parts: Counter[Part]
    layers: Counter[tuple[int, Part]]
    by_log2: dict[int, tuple[int, int]]
    naive: Counter[int]
    outside: dict[str, tuple[int, int]]
    unsure: tuple[int, int]
    graph: tuple[int, int]
    short: tuple[int, int]
    all: tuple[int, int]


class _Kernel(msgspec.Struct):
    """What a kernel's name and facts say, looked up once."""

    kind: Kind
    primitive: str
    parts: dict[str, Part] = {}
    """By primitive."""


def makeup(measures: Measures, positions: Iterable[int]) -> Makeup:
    """Of the kernels with times among ``positions``."""
    alignment = measures.alignment
    links, facts, activities = alignment.links, alignment.facts, alignment.profile.activities
    operation_of, run_of = links.operation_of, links.run_of
    unsure_at = links.layer_unsure | links.operation_unsure
    naive_operations = measures.naive_operations
    primitive_of = {index: operation.primitive for index, operation in measures.operation_at.items()}
    in_runs: dict[tuple[int, Part], int] = {}
    naive: Counter[int] = Counter()
    times: list[int] = []
    unsure: list[int] = []
    graph: list[int] = []
    outside: dict[str, list[int]] = defaultdict(list)
    kinds: dict[tuple[str, str, bool], _Kernel] = {}
    for position in positions:
        activity = activities[position]
        start, end = activity.start_ns, activity.end_ns
        if activity.kind != "kernel" or start is None or end is None:
            continue
        ns, index, fact = end - start, operation_of[position], facts.get(position)
        key = activity.name, "" if fact is None else fact.role, fact is not None and fact.gemm is not None
        kernel = kinds.get(key)
        if kernel is None:
            meaning = kernel_name(activity.name)
            kernel = kinds[key] = _Kernel(kind_of(activity.name, fact), _primitive(fact, meaning))
        times.append(ns)
        primitive = primitive_of.get(index) or kernel.primitive
        part = kernel.parts.get(primitive)
        if part is None:
            part = kernel.parts[primitive] = primitive, kernel.kind.role, kernel.kind.helps
        in_run = run_of[position], part
        in_runs[in_run] = in_runs.get(in_run, 0) + ns
        if kernel.kind.naive or index in naive_operations:
            naive[index] += ns
        if activity.is_replayed:
            graph.append(ns)
        elif index == NONE:
            outside[activity.name].append(ns)
        if position in unsure_at:
            unsure.append(ns)
    parts: Counter[Part] = Counter()
    for (_, part), ns in in_runs.items():
        parts[part] += ns
    return Makeup(
        parts=parts,
        layers=Counter({in_run: ns for in_run, ns in in_runs.items() if in_run[0] != NONE}),
        by_log2=_by_log2(times),
        naive=naive,
        outside={name: _counted(of_name) for name, of_name in outside.items()},
        unsure=_counted(unsure),
        graph=_counted(graph),
        short=_counted([ns for ns in times if ns < SHORT_NS]),
        all=_counted(times),
    )


def _counted(times: Sequence[int]) -> tuple[int, int]:
    return len(times), sum(times)


def _by_log2(times: Sequence[int]) -> dict[int, tuple[int, int]]:
    counts, sums = Counter(map(int.bit_length, times)), Counter[int]()
    for ns in times:
        sums[ns.bit_length()] += ns
    return {bits: (count, sums[bits]) for bits, count in sorted(counts.items())}


def _primitive(fact: KernelFact | None, meaning: KernelName | None) -> str:
    """What a kernel of no operation is of."""
    if meaning is not None and meaning.primitive:
        return meaning.primitive
    if meaning is not None and meaning.role == "collective":
        return "collective"
    is_gemm = (fact is not None and fact.gemm is not None) or (meaning is not None and meaning.algorithm == "Gemm")
    return "gemm" if is_gemm else ""
