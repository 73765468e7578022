"""What counts as a helper, and what as naive."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from mio2trace.kernels import KernelFact, helps, role
from mio2trace.kernels.names import kernel_name
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
