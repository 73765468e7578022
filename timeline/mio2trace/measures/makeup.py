"""The composition of the time of steady kernels: primitives and roles, durations, evidence, graph launches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact
from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.measures.executions import LayerKey
from mio2trace.model.tables import Numbers, added, distinct, in_order_of, present, summed

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
    of_steady, links, commands = measures.steady.counted, measures.alignment.links, measures.alignment.profile.commands
    kernels, times = of_steady.kernels, of_steady.ns
    layers, layer_of = measures.steady.layer_rows
    primitives, primitive_of = _primitives(measures)
    operations = np.asarray(links.operation_of)[kernels]
    layer = np.array([*layer_of, NONE], np.int64)[np.asarray(links.run_of)[kernels]]
    primitive = np.array(primitive_of, np.int64)[operations]
    keys = ((layer + 1) * (len(primitives) + 1) + primitive + 1) * len(of_steady.forms) + of_steady.form_of
    first, key_of = distinct(keys)
    columns = (
        layer[first], primitive[first], of_steady.form_of[first], np.bincount(key_of, minlength=len(first)),
        summed(key_of, times, len(first)),
    )  # fmt: skip
    parts: Counter[Part] = Counter()
    in_layers: Counter[tuple[LayerKey, Part]] = Counter()
    outside: Counter[str] = Counter()
    outside_ns: Counter[str] = Counter()
    for at, of, number, count, ns in zip(*(column.tolist() for column in columns), strict=True):
        form = of_steady.forms[number]
        own = "" if of == NONE else primitives[of]
        part = own or _primitive(form.fact, kernel_name(form.name)), form.kind.role, form.kind.helps
        parts[part] += ns
        if at != NONE:
            in_layers[layers[at], part] += ns
        if of == NONE:
            outside[form.name] += count
            outside_ns[form.name] += ns
    untold = commands.is_replayed[kernels] & (operations == NONE)
    names = of_steady.name_of[kernels[untold]]
    for number in present(names).tolist():
        own_ns = times[untold][names == number]
        outside[of_steady.names[number]] -= len(own_ns)
        outside_ns[of_steady.names[number]] -= added(own_ns)
    is_unsure = np.isin(kernels, of_steady.unsure)
    in_doubt = zip(kernels[is_unsure].tolist(), times[is_unsure].tolist(), strict=True)
    likely, likely_layer = links.operation_confidence, links.layer_confidence
    return Makeup(
        parts=parts,
        layers=in_layers,
        by_log2=_by_log2(times),
        naive=_naive(measures),
        outside={name: (count, outside_ns[name]) for name, count in outside.items() if count},
        unsure=_counted(times[is_unsure]),
        elsewhere_ns=round(
            sum(ns * (1 - min(likely.get(place, 1.0), likely_layer.get(place, 1.0))) for place, ns in in_doubt)
        ),
        graph=_counted(times[untold]),
        short=_counted(times[times < SHORT_NS]),
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


def _naive(measures: Measures) -> Counter[int]:
    """Return the time of naive kernels by operation, in the order of the iterations."""
    of_steady, operation_of = measures.steady.counted, measures.alignment.links.operation_of
    naive: Counter[int] = Counter()
    positions, (_, _, is_naive) = of_steady.helping
    rows = positions[is_naive]
    rows = rows[in_order_of(of_steady.place_of[rows])]
    for position, ns in zip(rows.tolist(), measures.alignment.profile.commands.time_ns[rows].tolist(), strict=True):
        naive[operation_of[position]] += ns
    return naive


def _counted(times: Numbers) -> tuple[int, int]:
    return len(times), added(times)


def _by_log2(times: Numbers) -> dict[int, tuple[int, int]]:
    bits = np.searchsorted(1 << np.arange(63), abs(times), "right")
    counts = np.bincount(bits).tolist()
    sums = summed(bits, times, len(counts)).tolist()
    return {number: (count, ns) for number, (count, ns) in enumerate(zip(counts, sums, strict=True)) if count}


def _primitive(fact: KernelFact | None, meaning: KernelName | None) -> str:
    """Return the primitive of a kernel in no operation."""
    if meaning is not None and meaning.primitive:
        return meaning.primitive
    if meaning is not None and meaning.role == "collective":
        return "collective"
    is_gemm = (fact is not None and fact.gemm is not None) or (meaning is not None and meaning.algorithm == "Gemm")
    return "gemm" if is_gemm else ""
