"""The parts of steady iterations, from one pass over the kernels: problems and their kernels, layers, the rest.

The numbers are those of `mio2trace.measures.steady`, which has more of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mio2trace.align import NONE
from mio2trace.measures.executions import LayerKey
from mio2trace.measures.ranking import kind_of
from mio2trace.ops.naming import problem_name

if TYPE_CHECKING:
    from mio2trace.measures import Measures


class KernelsInside(msgspec.Struct, kw_only=True, gc=False):
    """The kernels of one name in one problem over all steady iterations; the time of each iteration in ns."""

    role: str
    naive: bool
    count: int
    per_iteration_ns: list[int]

    @property
    def total_ns(self) -> int:
        return sum(self.per_iteration_ns)


class LayerInside(msgspec.Struct, kw_only=True, gc=False):
    """The kernels of one layer in one direction: how often it ran with kernels, the time of each iteration in ns."""

    runs: int
    per_iteration_ns: list[int]


class InsideIterations(msgspec.Struct, frozen=True, kw_only=True):
    """``kernels``: by (problem, kernel name), as they first ran; ``""`` is the problem of kernels in no operation.

    ``names``: of each operation's index its problem, ``""`` of searches. ``calls``: of each problem the operations that
    begin in a steady iteration. ``find_ns``: kernels of searches, in the whole run.
    """

    kernels: Mapping[tuple[str, str], KernelsInside]
    layers: Mapping[LayerKey, LayerInside]
    names: Sequence[str]
    calls: Mapping[str, int]
    find_ns: int


def inside_iterations(measures: Measures) -> InsideIterations:
    """The parts of the steady iterations of a profile."""
    told = measures.steady.told
    count = len(told.steady)
    place_of = {number: at for at, number in enumerate(told.steady)}
    counted = [*(place_of.get(one.number, NONE) for one in told.all), NONE]  # the last is of what is in none
    names, searches = _problems(measures)
    links, facts = measures.alignment.links, measures.alignment.facts
    ran = bytearray(len(links.runs))
    keys = [(run.layer_index, run.layer, run.direction) for run in links.runs]
    layers: dict[LayerKey, LayerInside] = {}
    inside: dict[tuple[str, str], KernelsInside] = {}
    find_ns = 0
    columns = zip(measures.alignment.profile.activities, links.operation_of, told.place_of, links.run_of, strict=True)
    for position, (activity, index, place, run) in enumerate(columns):
        at = counted[place]
        if activity.kind != "kernel" or (at == NONE and index not in searches):
            continue
        start, end = activity.start_ns, activity.end_ns
        ns = 0 if start is None or end is None else end - start
        if at == NONE:
            find_ns += ns
            continue
        key = names[index], activity.name
        kernels = inside.get(key)
        if kernels is None:
            kind = kind_of(activity.name, facts.get(position))
            kernels = inside[key] = KernelsInside(
                role=kind.role, naive=kind.naive, count=0, per_iteration_ns=[0] * count
            )
        kernels.count += 1
        kernels.per_iteration_ns[at] += ns
        if run != NONE:
            layer = layers.get(keys[run])
            if layer is None:
                layer = layers[keys[run]] = LayerInside(runs=0, per_iteration_ns=[0] * count)
            if not ran[run]:
                ran[run] = 1
                layer.runs += 1
            layer.per_iteration_ns[at] += ns
    calls: dict[str, int] = {}
    for index, position in enumerate(measures.first_of):
        if position != NONE and names[index] and counted[told.place_of[position]] != NONE:
            calls[names[index]] = calls.get(names[index], 0) + 1
    return InsideIterations(kernels=inside, layers=layers, names=names, calls=calls, find_ns=find_ns)


def _problems(measures: Measures) -> tuple[list[str], frozenset[int]]:
    """Of each operation's index its problem's name, the last of no operation; and which are searches."""
    names = [""] * (len(measures.first_of) + 1)
    known: dict[object, str] = {}
    for index, operation in measures.operation_at.items():
        if operation.phase != "run":
            continue
        if operation.problem is None:
            names[index] = problem_name(operation)
            continue
        # The problem is kept: its identity stands for it. A log may have half a million operations of a few.
        key = id(operation.problem), operation.primitive, operation.direction, operation.dtype
        name = known.get(key)
        if name is None:
            name = known[key] = problem_name(operation)
        names[index] = name
    searches = frozenset(index for index, one in measures.operation_at.items() if one.phase == "find")
    return names, searches
