"""What counts as a helper, and what as naive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact, helps, role
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Activity
from mio2trace.ops.operation import Operation
from mio2trace.ops.solvers import family


class Kind(NamedTuple):
    """What a kernel's role and name say of its time."""

    role: str
    helps: bool
    naive: bool


@lru_cache(maxsize=1 << 10)
def _is_naive(algorithm: str | None, solver: str | None) -> bool:
    return algorithm == "Naive" or (solver is not None and family(solver) == "Naive")


def is_naive(operation: Operation) -> bool:
    """Whether the log names a solver of the naive family for it."""
    return _is_naive(operation.algorithm, operation.solver)


def kind_of(name: str, fact: KernelFact | None) -> Kind:
    of_kernel = role(name, fact)
    meaning = kernel_name(name)
    return Kind(of_kernel, helps(of_kernel), meaning is not None and meaning.algorithm == "Naive")


def kind_at(kinds: dict[tuple[str, str], Kind], facts: Mapping[int, KernelFact], position: int, name: str) -> Kind:
    """What a kernel's role and name say of its time, looked up once for all that are alike."""
    fact = facts.get(position)
    key = name, "" if fact is None else fact.role
    kind = kinds.get(key)
    if kind is None:
        kind = kinds[key] = kind_of(name, fact)
    return kind


def numbered_names(activities: Sequence[Activity]) -> tuple[list[str], list[int]]:
    """The kernels' names, each once, in order of first appearance; of each activity the place of its own, `NONE` of
    what is no kernel."""
    own = [activity.name if activity.kind == "kernel" else None for activity in activities]
    names = [name for name in dict.fromkeys(own) if name is not None]
    places: dict[str | None, int] = {None: NONE, **{name: place for place, name in enumerate(names)}}
    return names, [*map(places.__getitem__, own)]
