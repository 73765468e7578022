"""Which kernels the problems of a steady iteration consist of, and those that belong to none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from mio2trace.align import NONE
from mio2trace.measures.kinds import kind_of
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


def kernels_inside(measures: Measures) -> Mapping[tuple[str, str], KernelsInside]:
    """By (problem, kernel name), as they first ran; ``""`` is the problem of kernels in no operation."""
    steady = measures.steady
    place_of = {number: at for at, number in enumerate(steady.iterations)}
    counted = [place_of.get(one.number, NONE) for one in steady.told.all]
    problems = [""] * (len(measures.first_of) + 1)
    for index, operation in measures.operation_at.items():
        if operation.phase == "run":
            problems[index] = problem_name(operation)
    facts = measures.alignment.facts
    inside: dict[tuple[str, str], KernelsInside] = {}
    columns = zip(
        measures.alignment.profile.activities, measures.alignment.links.operation_of, steady.told.place_of, strict=True
    )
    for position, (activity, index, place) in enumerate(columns):
        at = NONE if place == NONE else counted[place]
        if at == NONE or activity.kind != "kernel":
            continue
        key = "" if index == NONE else problems[index], activity.name
        kernels = inside.get(key)
        if kernels is None:
            kind = kind_of(activity.name, facts.get(position))
            kernels = inside[key] = KernelsInside(
                role=kind.role, naive=kind.naive, count=0, per_iteration_ns=[0] * len(steady.iterations)
            )
        kernels.count += 1
        if activity.start_ns is not None and activity.end_ns is not None:
            kernels.per_iteration_ns[at] += activity.end_ns - activity.start_ns
    return inside
