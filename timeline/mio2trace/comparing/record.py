"""The record of a run for comparisons: an iteration and its parts, in a few kilobytes of numbers.

Its texts are names of problems, layers, kernels, solvers and devices, cleaned by the rules of docs/privacy.md.

`mio2trace.comparing.collect` makes it from an analysed run, `mio2trace.comparing.sides` keeps it in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mio2trace.measures.statistics import quantile

Kind = Literal["problem", "layer", "kernel"]
KINDS: tuple[Kind, ...] = ("problem", "kernel", "layer")
MOST_SAMPLES = 9
"""If there are more iterations, the quantiles at each eighth are kept: median, least and most stay exact."""


CUT = 100
"""The characters of a kernel's name in a trace."""


class Inside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The kernels of one name within a part, per iteration: their number, their role and their time."""

    name: str
    role: str = ""
    count: float = 0
    ns: float = 0
    naive: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an iteration: the operations of one problem, the kernels of one name in no operation, or a layer.

    ``samples_ns``: kernel time in each steady iteration (printed times without a profile), or quantiles. ``calls``: per
    iteration, 0 if unknown. ``place``: its place among the parts of its kind, in order of first execution. ``like``:
    the properties that the part keeps if its name changes; for a problem everything except the batch, for a layer
    primitive, direction and output. ``layers``: the layers that compute a problem. ``primitive``: of a problem, or of
    the first operation of a layer.
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
    """The device and versions of a run. ``environment``: names and values in MIOpen's log (HIP's version,
    variables)."""

    device: str = ""
    miopen: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    """(format, SHA-256) of each."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a job: its name, and its kernel time in each steady iteration."""

    name: str
    samples_ns: tuple[float, ...]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run. ``samples_ns``: kernel time of each steady iteration (if ``told_by`` is kernels), or the printed times.

    ``first_ns``: the first iteration, steady or not. ``find_ns``: kernels of searches. ``build_ns``: program builds on
    the host. These three are times in the whole run. ``others_ns``: mean time of the parts that were too small to keep.
    ``ranks``: the processes of a job; all other numbers are means over them (`mio2trace.comparing.collect`).
    ``names_cut``: the names of kernels come from a trace and have at most `CUT` characters.
    """

    name: str
    told_by: Literal["kernels", "printed"] = "kernels"
    iterations: int
    samples_ns: tuple[float, ...]
    mean_ns: float
    steps: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """The length of each steady step and of each of its parts (`mio2trace.measures.step_time`), by name; empty if the
    source does not show them."""
    first_ns: float | None = None
    find_ns: float = 0
    build_ns: float = 0
    others_ns: float = 0
    parts: tuple[Part, ...] = ()
    facts: Facts = Facts()
    ranks: tuple[Rank, ...] = ()
    names_cut: bool = False


def condensed(samples: Sequence[float]) -> tuple[float, ...]:
    """Return the samples in order, or their quantiles if there are many."""
    ordered = sorted(samples)
    if len(ordered) <= MOST_SAMPLES:
        return tuple(ordered)
    last = MOST_SAMPLES - 1
    return tuple(quantile(ordered, place / last) for place in range(MOST_SAMPLES))


def kept(record: RunRecord) -> RunRecord:
    return msgspec.structs.replace(
        record,
        samples_ns=condensed(record.samples_ns),
        parts=tuple(msgspec.structs.replace(part, samples_ns=condensed(part.samples_ns)) for part in record.parts),
        steps=tuple((name, condensed(samples)) for name, samples in record.steps),
        ranks=tuple(msgspec.structs.replace(rank, samples_ns=condensed(rank.samples_ns)) for rank in record.ranks),
    )


def cut(record: RunRecord) -> RunRecord:
    """Cut the names of kernels as a trace does; kernels whose names are then equal become one."""
    if record.names_cut:
        return record
    parts: dict[tuple[Kind, str], Part] = {}
    for part in record.parts:
        name = part.name[:CUT] if part.kind == "kernel" else part.name
        inside = tuple(msgspec.structs.replace(one, name=one.name[:CUT]) for one in part.kernels)
        shown = msgspec.structs.replace(part, name=name, kernels=inside)
        before = parts.get((part.kind, name))
        if before is not None:
            samples = tuple(map(sum, zip(before.samples_ns, part.samples_ns, strict=False)))
            shown = msgspec.structs.replace(
                before, samples_ns=samples, mean_ns=before.mean_ns + part.mean_ns, calls=before.calls + part.calls
            )
        parts[part.kind, name] = shown
    return msgspec.structs.replace(record, parts=tuple(parts.values()), names_cut=True)
