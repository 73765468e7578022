"""What the time of some kernels is made up of: primitives and roles, durations, evidence, graph launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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


def makeup(measures: Measures, positions: Iterable[int]) -> Makeup:
    """Of the kernels with times among ``positions``."""
    alignment = measures.alignment
    links, facts, activities = alignment.links, alignment.facts, alignment.profile.activities
    operation_of, run_of = links.operation_of, links.run_of
    unsure_at = links.layer_unsure | links.operation_unsure
    naive_operations = measures.naive_operations
    primitive_of = {index: operation.primitive for index, operation in measures.operation_at.items()}
    parts: Counter[Part] = Counter()
    layers: Counter[tuple[int, Part]] = Counter()
    naive: Counter[int] = Counter()
    by_log2: dict[int, list[int]] = {}
    outside: dict[str, list[int]] = {}
    unsure, graph, short, everything = [0, 0], [0, 0], [0, 0], [0, 0]
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
        part = primitive_of.get(index) or kernel.primitive, kernel.kind.role, kernel.kind.helps
        parts[part] += ns
        run = run_of[position]
        if run != NONE:
            layers[run, part] += ns
        _add(by_log2.setdefault(ns.bit_length(), [0, 0]), ns)
        if kernel.kind.naive or index in naive_operations:
            naive[index] += ns
        if activity.is_replayed:
            _add(graph, ns)
        elif index == NONE:
            _add(outside.setdefault(activity.name, [0, 0]), ns)
        if position in unsure_at:
            _add(unsure, ns)
        if ns < SHORT_NS:
            _add(short, ns)
        _add(everything, ns)
    return Makeup(
        parts=parts,
        layers=layers,
        by_log2={bits: (count, ns) for bits, (count, ns) in sorted(by_log2.items())},
        naive=naive,
        outside={name: (count, ns) for name, (count, ns) in outside.items()},
        unsure=(unsure[0], unsure[1]),
        graph=(graph[0], graph[1]),
        short=(short[0], short[1]),
        all=(everything[0], everything[1]),
    )


def _add(pair: list[int], ns: int) -> None:
    pair[0] += 1
    pair[1] += ns


def _primitive(fact: KernelFact | None, meaning: KernelName | None) -> str:
    """What a kernel of no operation is of."""
    if meaning is not None and meaning.primitive:
        return meaning.primitive
    if meaning is not None and meaning.role == "collective":
        return "collective"
    is_gemm = (fact is not None and fact.gemm is not None) or (meaning is not None and meaning.algorithm == "Gemm")
    return "gemm" if is_gemm else ""
