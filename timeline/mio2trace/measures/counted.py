"""The kernels and copies of steady iterations in columns: everything that is ranked sums over them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact
from mio2trace.measures.kinds import Kind, kind_of
from mio2trace.model.profile import Activity

if TYPE_CHECKING:
    from mio2trace.measures import Measures


class Counted(NamedTuple):
    """The activities of steady iterations: of kernels with times the position, the iteration's place, the time in ns.

    ``helping``: position, time and kind of those kernels that help, or are naive. ``others``: copies, and kernels
    without times. ``unsure``: positions of those in doubt. ``work``: where work
    counts, how much, and what tells it, as `Measures.work`.
    """

    kernels: array[int]
    places: array[int]
    ns: array[int]
    helping: Sequence[tuple[int, int, Kind]]
    others: Sequence[tuple[int, Activity]]
    unsure: Sequence[int]
    work: Sequence[tuple[int, int | None, str]]


def counted(measures: Measures, places: Sequence[int]) -> Counted:
    """``places``: of each activity its iteration's place among the steady ones, `NONE` where it is in none."""
    alignment, naive = measures.alignment, measures.naive_operations
    facts, operation_of = alignment.facts, alignment.links.operation_of
    kinds: dict[tuple[str, str], Kind] = {}
    kernels, place_of, times = array("q"), array("q"), array("q")
    helping: list[tuple[int, int, Kind]] = []
    others: list[tuple[int, Activity]] = []
    for position, (activity, place) in enumerate(zip(alignment.profile.activities, places, strict=True)):
        if place == NONE:
            continue
        start, end = activity.start_ns, activity.end_ns
        if activity.kind != "kernel" or start is None or end is None:
            others.append((position, activity))
            continue
        kernels.append(position)
        place_of.append(place)
        times.append(end - start)
        kind = kind_at(kinds, facts, position, activity.name)
        is_naive = kind.naive or operation_of[position] in naive
        if kind.helps or is_naive or kind.role == "transpose":
            helping.append((position, end - start, kind._replace(naive=is_naive)))
    links = alignment.links
    unsure = [position for position in links.layer_unsure | links.operation_unsure if places[position] != NONE]
    work = [(position, flop, told_by) for position, _, flop, told_by in measures.work() if places[position] != NONE]
    return Counted(kernels, place_of, times, helping, others, unsure, work)


def kind_at(kinds: dict[tuple[str, str], Kind], facts: Mapping[int, KernelFact], position: int, name: str) -> Kind:
    """What a kernel's role and name say of its time, looked up once for all that are alike."""
    fact = facts.get(position)
    key = name, "" if fact is None else fact.role
    kind = kinds.get(key)
    if kind is None:
        kind = kinds[key] = kind_of(name, fact)
    return kind
