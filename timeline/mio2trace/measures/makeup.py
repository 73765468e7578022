"""The composition of the time of steady kernels: primitives and roles, durations, evidence, graph launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

import msgspec

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact
from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.measures.executions import LayerKey

if TYPE_CHECKING:
    from mio2trace.measures import Measures

SHORT_NS = 10_000
"""A shorter kernel is short: launching one costs the host about as much."""

Part = tuple[str, str, bool]
"""Primitive (of the operation; else of the kernel itself, ``gemm``, ``collective``, or empty), role, whether it is
auxiliary."""


class Makeup(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels with times, counted and summed once. ``parts``: time by `Part`. ``layers``: time by layer and part.
    ``by_log2``: count and time by the bits of the duration in ns. ``naive``: by operation, ``NONE`` for kernels in no
    operation. ``outside``: by name, of kernels in no operation and no graph. ``unsure``, ``graph`` (in no operation),
    ``short``, ``all``: sums. ``elsewhere_ns``: the expected time of unsure kernels that belongs to another layer or
    operation, by the less probable of their two links."""

    parts: Counter[Part]
    layers: Counter[tuple[LayerKey, Part]]
    by_log2: dict[int, tuple[int, int]]
    naive: Counter[int]
    outside: dict[str, tuple[int, int]]
    unsure: tuple[int, int]
    elsewhere_ns: int
    graph: tuple[int, int]
    short: tuple[int, int]
    all: tuple[int, int]


def makeup(measures: Measures) -> Makeup:
    of_steady, links = measures.steady.counted, measures.alignment.links
    kernels, times = of_steady.kernels, of_steady.ns
    layers, layer_of = measures.steady.layer_rows
    primitives, primitive_of = _primitives(measures)
    operations = [*map(links.operation_of.__getitem__, kernels)]
    keys = zip(
        map([*layer_of, NONE].__getitem__, map(links.run_of.__getitem__, kernels)),
        map(primitive_of.__getitem__, operations),
        of_steady.form_of,
        strict=True,
    )
    alike: dict[tuple[int, int, int], list[int]] = {}  # times by layer, primitive of the operation, form
    for key, ns in zip(keys, times, strict=True):
        of_key = alike.get(key)
        if of_key is None:
            of_key = alike[key] = []
        of_key.append(ns)
    parts: Counter[Part] = Counter()
    in_layers: Counter[tuple[LayerKey, Part]] = Counter()
    outside: Counter[str] = Counter()
    outside_ns: Counter[str] = Counter()
    for (layer, primitive, number), all_of in alike.items():
        form, ns = of_steady.forms[number], sum(all_of)
        own = "" if primitive == NONE else primitives[primitive]
        part = own or _primitive(form.fact, kernel_name(form.name)), form.kind.role, form.kind.helps
        parts[part] += ns
        if layer != NONE:
            in_layers[layers[layer], part] += ns
        if primitive == NONE:
            outside[form.name] += len(all_of)
            outside_ns[form.name] += ns
    replayed = _replayed(measures)
    for position, index, ns in zip(kernels, operations, times, strict=True) if replayed else ():
        if position in replayed and index == NONE:
            name = measures.alignment.profile.activities[position].name
            outside[name] -= 1
            outside_ns[name] -= ns
    unsure = set(of_steady.unsure)
    in_doubt = [(position, ns) for position, ns in zip(kernels, times, strict=True) if position in unsure]
    likely, likely_layer = links.operation_confidence, links.layer_confidence
    untold = {position for position in replayed if links.operation_of[position] == NONE}
    return Makeup(
        parts=parts,
        layers=in_layers,
        by_log2=_by_log2(times),
        naive=_naive(measures),
        outside={name: (count, outside_ns[name]) for name, count in outside.items() if count},
        unsure=_counted([ns for _, ns in in_doubt]),
        elsewhere_ns=round(
            sum(ns * (1 - min(likely.get(place, 1.0), likely_layer.get(place, 1.0))) for place, ns in in_doubt)
        ),
        graph=_counted([*compress(times, map(untold.__contains__, kernels))] if replayed else ()),
        short=_counted([ns for ns in times if ns < SHORT_NS]),
        all=_counted(times),
    )


def _primitives(measures: Measures) -> tuple[list[str], list[int]]:
    """Return the primitives of the log's operations, and the place of each operation's primitive by index; the last one
    is for no operation."""
    places: dict[str, int] = {}
    place_of = [NONE] * (len(measures.first_of) + 1)
    for index, operation in measures.operation_at.items():
        # for an op without a family, its kernels show the primitive
        place_of[index] = places.setdefault("" if operation.is_plain else operation.primitive, len(places))
    return list(places), place_of


def _replayed(measures: Measures) -> frozenset[int]:
    """Return the positions of the kernels in steady iterations that graphs launched."""
    activities = measures.alignment.profile.activities
    calls = [activities[position].call for position in measures.steady.counted.kernels]
    if not any("GraphLaunch" in name for name in {call.name for call in calls if call is not None}):
        return frozenset()
    return frozenset(position for position in measures.steady.counted.kernels if activities[position].is_replayed)


def _naive(measures: Measures) -> Counter[int]:
    """Return the time of naive kernels by operation, in the order of the iterations."""
    of_steady, operation_of = measures.steady.counted, measures.alignment.links.operation_of
    naive: Counter[int] = Counter()
    if not any(kind.naive for _, _, kind in of_steady.helping):
        return naive
    place_of = dict(zip(of_steady.kernels, of_steady.places, strict=True))
    found = [(place_of[position], position, ns) for position, ns, kind in of_steady.helping if kind.naive]
    for _, position, ns in sorted(found):
        naive[operation_of[position]] += ns
    return naive


def _counted(times: Sequence[int]) -> tuple[int, int]:
    return len(times), sum(times)


def _by_log2(times: Sequence[int]) -> dict[int, tuple[int, int]]:
    counts, sums = Counter(map(int.bit_length, times)), Counter[int]()
    for ns in times:
        sums[ns.bit_length()] += ns
    return {bits: (count, sums[bits]) for bits, count in sorted(counts.items())}


def _primitive(fact: KernelFact | None, meaning: KernelName | None) -> str:
    """Return the primitive of a kernel in no operation."""
    if meaning is not None and meaning.primitive:
        return meaning.primitive
    if meaning is not None and meaning.role == "collective":
        return "collective"
    is_gemm = (fact is not None and fact.gemm is not None) or (meaning is not None and meaning.algorithm == "Gemm")
    return "gemm" if is_gemm else ""
