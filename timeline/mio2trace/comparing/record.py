"""What is kept of a run to compare it: an iteration and its parts, in numbers; nothing private, a few kilobytes.

`mio2trace.comparing.collect` makes it of an analysed run, `mio2trace.comparing.base` keeps it in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mio2trace.measures.statistics import quantile

Kind = Literal["problem", "layer", "kernel"]
KINDS: tuple[Kind, ...] = ("problem", "kernel", "layer")
MOST_SAMPLES = 9
"""Of more iterations the quantiles at each eighth are kept: the median is exact, and so are least and most."""


class Inside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The kernels of one name within a part, in one iteration: how many, of what role, how long."""

    name: str
    role: str = ""
    count: float = 0
    ns: float = 0
    naive: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an iteration: the operations of one problem, the kernels of one name outside of any, a layer.

    ``samples_ns``: its kernel time in each steady iteration (printed times where there is no profile), or quantiles.
    ``place``: its place among the parts of its kind, as they first ran. ``like``: what it has in common with the same
    part of another run whose name differs: of a problem all but the batch, of a layer primitive, direction and output.
    ``layers``: those that a problem is computed in. ``primitive``: of a problem, and of a layer's first operation.
    """

    kind: Kind
    name: str
    samples_ns: tuple[float, ...]
    mean_ns: float
    calls: float = 0
    place: int = 0
    like: str = ""
    layers: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()
    command: str = ""
    primitive: str = ""
    kernels: tuple[Inside, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run was made with."""

    device: str = ""
    miopen: str = ""
    inputs: tuple[tuple[str, str], ...] = ()
    """(format, SHA-256) of each."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run. ``samples_ns``: kernel time of each steady iteration (``told_by`` kernels), or what its layers print.

    ``first_ns``: the first iteration, steady or not; ``find_ns``: kernels of searches; ``build_ns``: building
    programs, on the host; each in the whole run. ``others_ns``: mean of what parts too small to keep took.
    """

    name: str
    told_by: Literal["kernels", "printed"] = "kernels"
    iterations: int
    samples_ns: tuple[float, ...]
    mean_ns: float
    first_ns: float | None = None
    find_ns: float = 0
    build_ns: float = 0
    others_ns: float = 0
    parts: tuple[Part, ...] = ()
    facts: Facts = Facts()


def condensed(samples: Sequence[int]) -> tuple[float, ...]:
    """The samples in order, or their quantiles where there are many."""
    ordered = sorted(samples)
    if len(ordered) <= MOST_SAMPLES:
        return tuple(ordered)
    last = MOST_SAMPLES - 1
    return tuple(quantile(ordered, place / last) for place in range(MOST_SAMPLES))
