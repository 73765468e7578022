"""Facts about a kernel, reading of arguments, and the interface between `find_gemms` and the libraries: a library is a
row of kernel names and a function."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from mio2trace.kernels.sources import Sources
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity, Profile, Size3
from mio2trace.patterns import late

Triple = tuple[int, int, int]


class KernelFact(msgspec.Struct, frozen=True, gc=False):
    """The known facts about one enqueued kernel.

    ``role``: ``main`` for a kernel that computes a GEMM (or a part of one), else its kind of auxiliary kernel.
    ``gemm``: on one kernel per GEMM. ``padded``: (M, N, K) as that kernel ran it, if it differs. ``gemm_by``: the
    source of the sizes: ``arguments``, ``helpers``, ``source`` or ``build options``.
    """

    role: str = ""
    gemm: Gemm | None = None
    padded: Triple | None = None
    gemm_by: str = ""


MAIN = KernelFact(role="main")


def argument(arguments: tuple[str, ...], index: int) -> str:
    """Return argument ``index`` as logged, ``""`` if unknown."""
    return arguments[index] if index < len(arguments) else ""


@functools.lru_cache(maxsize=1 << 16)
def number(value: str) -> int | None:
    """Return a 4 or 8 byte argument as a little-endian unsigned integer (dvdt-ck.md 1.3)."""
    if len(value) not in (8, 16):
        return None
    try:
        return int.from_bytes(bytes.fromhex(value), "little")
    except ValueError:
        return None


@functools.lru_cache(maxsize=1 << 16)
def size(value: str) -> int | None:
    """Return a matrix dimension: a positive 4 byte integer."""
    if len(value) != 8:
        return None
    dimension = number(value)
    return dimension if dimension is not None and 0 < dimension < 1 << 31 else None


# -- Libraries ---------------------------------------------------------------------------------------------------------

# The kernels of one queue in order (positions in ``profile.activities``, without reads and writes), and an index into
# that list.
Place = tuple[list[int], int]


class Context:
    """The input of a library's function, and the place for its results."""

    def __init__(self, profile: Profile, facts: dict[int, KernelFact]) -> None:
        self.profile = profile
        self.activities = profile.activities
        self.sources = Sources(profile.opencl.programs)
        self.facts = facts
        self.last_if_final = _final(profile)

    def kernel(self, line: list[int], index: int) -> Activity | None:
        """Return the kernel at ``index`` of a queue's kernels, None beyond either end."""
        return self.activities[line[index]] if 0 <= index < len(line) else None


def _final(profile: Profile) -> int | None:
    """Return the last activity unless a later one is known: kernels that belong to it may be cut off."""
    if not profile.activities:
        return None
    calls = (
        events[-1].number
        for events in (profile.opencl.marks, profile.opencl.buffers, profile.opencl.programs)
        if events
    )
    return len(profile.activities) - 1 if int(profile.commands.number[-1]) > max(calls, default=-1) else None


class Row(NamedTuple):
    """A family of kernels whose sizes are found in one way. ``kernels`` matches whole names."""

    library: str
    kernels: re.Pattern[str]
    find: Callable[[Context, list[Place]], None]


def row(library: str, kernels: str, find: Callable[[Context, list[Place]], None]) -> Row:
    return Row(library, late(kernels), find)


def each_alone(read: Callable[[Context, Activity], KernelFact]) -> Callable[[Context, list[Place]], None]:
    """For kernels whose facts do not depend on the kernels around them."""

    def find(context: Context, places: list[Place]) -> None:
        known: dict[tuple[int, str, Size3 | None], KernelFact] = {}  # equal launches are one object
        for line, index in places:
            activity = context.activities[line[index]]
            key = id(activity.opencl), activity.name, activity.grid
            if key not in known:
                known[key] = read(context, activity)
            context.facts[line[index]] = known[key]

    return find


@functools.lru_cache(maxsize=1 << 12)
def by_arguments(gemm: Gemm | None) -> KernelFact:
    """Return the fact of a kernel whose arguments state its GEMM."""
    return MAIN if gemm is None else KernelFact(role="main", gemm=gemm, gemm_by="arguments")
