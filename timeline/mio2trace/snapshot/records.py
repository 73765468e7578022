"""The records of a snapshot: a run and its alignments as they are kept, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mio2trace.align import (
    Alignment,
    DeviceClock,
    LayerRun,
    Links,
    LogClock,
    MarkedStep,
    Net,
    Pass,
    ProcessClock,
)
from mio2trace.files import Input
from mio2trace.kernels import KernelFact
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.model.tf import TfProfile
from mio2trace.ops.operation import Operation


class KeptLinks(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.align.Links`, column by column."""

    operations: tuple[Operation, ...]
    runs: tuple[LayerRun, ...]
    passes: tuple[Pass, ...]
    run_of: tuple[int, ...]
    pass_of: tuple[int, ...]
    layer_by: tuple[str, ...]
    layer_confidence: Mapping[int, float]
    layer_unsure: frozenset[int]
    operation_of: tuple[int, ...]
    operation_by: tuple[str, ...]
    operation_confidence: Mapping[int, float]
    operation_unsure: frozenset[int]
    contradictions: Mapping[str, int]


class KeptAlignment(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.align.Alignment`, but for how its links came about."""

    profile: Profile
    net: Net
    links: KeptLinks
    clocks: Mapping[int, DeviceClock]
    log_clock: LogClock | None
    facts: Mapping[int, KernelFact]
    logs: tuple[FrameworkLog, ...]
    process_clock: ProcessClock | None
    steps: tuple[MarkedStep, ...] = ()


class KeptShare(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.jobs.Share`."""

    logs: tuple[FrameworkLog, ...]
    libraries: tuple[MiopenLog, ...]
    operations: tuple[Operation, ...]


class KeptReference(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.analysis.Reference`."""

    alignments: tuple[KeptAlignment, ...] = ()
    of: tuple[int, ...] = ()
    logs: tuple[FrameworkLog, ...] = ()


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.Run`; ``inputs`` have their records, and no path."""

    name: str
    inputs: tuple[Input, ...]
    profiles: tuple[Profile, ...]
    logs: tuple[FrameworkLog, ...]
    libraries: tuple[MiopenLog, ...]
    tf_profiles: tuple[TfProfile, ...]
    operations_by_log: tuple[tuple[Operation, ...], ...]
    alignments: tuple[KeptAlignment, ...]
    framework: KeptAlignment | None
    shares: tuple[KeptShare, ...]
    complete: bool
    reference: KeptReference | None = None


class KeptNote(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.notes.Note`."""

    kind: str
    count: int
    places: tuple[str, ...]
    problem: bool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an analysis of one run. ``repetitions``: of a CK record with several, each as a run."""

    generator: str
    runs: tuple[KeptRun, ...]
    notes: tuple[KeptNote, ...] = ()
    repetitions: tuple[KeptRun, ...] = ()


# -- alignments ------------------------------------------------------------------------------------------------------


def kept_alignment(alignment: Alignment) -> KeptAlignment:
    links = alignment.links
    return KeptAlignment(
        profile=alignment.profile,
        net=alignment.net,
        links=KeptLinks(**{name: _column(getattr(links, name)) for name in KeptLinks.__struct_fields__}),
        clocks=alignment.clocks,
        log_clock=alignment.log_clock,
        facts=alignment.facts,
        logs=alignment.logs,
        process_clock=alignment.process_clock,
        steps=alignment.steps,
    )


def _column(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def restored_alignment(kept: KeptAlignment) -> Alignment:
    """The alignment, but for how its links came about."""
    fields = {name: getattr(kept.links, name) for name in KeptLinks.__struct_fields__}
    return Alignment(
        profile=kept.profile,
        net=kept.net,
        links=Links.restored(kept.profile.activities, **fields),
        clocks=kept.clocks,
        log_clock=kept.log_clock,
        facts=kept.facts,
        logs=kept.logs,
        process_clock=kept.process_clock,
        steps=kept.steps,
    )
