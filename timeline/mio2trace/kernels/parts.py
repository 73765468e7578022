"""Which kernels compute a GEMM that is more than one of them (dvdt-ck.md 5): its rate is over all of their times."""

from __future__ import annotations

from collections.abc import Mapping

from mio2trace.kernels import clblas, viennacl
from mio2trace.kernels.facts import MAIN, KernelFact, argument
from mio2trace.model.profile import Activity, Profile
from mio2trace.patterns import late

_VIENNACL = late("|".join(row.kernels.pattern for row in viennacl.ROWS))
_CLBLAS = late("|".join(row.kernels.pattern for row in clblas.ROWS))
_CLBLAS_SHARED = (0, 1, 2, 5, 6, 7)
"""A, B, C; M, N, K."""
_VIENNACL_SHARED = (3, 4, 7, 8, 9, 10, 13, 14, 15, 16, 19, 20)
"""Buffer, leading dimension and strides of C, A and B."""


def find_parts(profile: Profile, facts: Mapping[int, KernelFact]) -> dict[int, tuple[int, ...]]:
    """For each activity that stands for a GEMM: the positions of all kernels that compute it, its own first."""
    parts: dict[int, list[int]] = {}
    open_gemms: dict[int, int] = {}  # per queue: the GEMM whose blocks may follow
    for position, activity in enumerate(profile.activities):
        if activity.kind != "kernel":
            continue
        fact = facts.get(position)
        if fact is not None and fact.gemm is not None:
            parts[position] = [position]
            open_gemms[activity.queue] = position
            continue
        first = open_gemms.get(activity.queue)
        if first is not None and fact == MAIN and _belongs(profile.activities[first], activity):
            parts[first].append(position)
        else:
            open_gemms.pop(activity.queue, None)
    return {position: tuple(found) for position, found in parts.items()}


def _belongs(first: Activity, other: Activity) -> bool:
    """Whether ``other`` computes a part of the GEMM that ``first`` stands for."""
    if _VIENNACL.fullmatch(first.name):
        return first.name == other.name and _agree(first, other, _VIENNACL_SHARED)
    if _CLBLAS.fullmatch(first.name) and _CLBLAS.fullmatch(other.name):
        return _agree(first, other, _CLBLAS_SHARED)
    return False


def _agree(one: Activity, other: Activity, indexes: tuple[int, ...]) -> bool:
    return all(argument(one.opencl.arguments, index) == argument(other.opencl.arguments, index) for index in indexes)
