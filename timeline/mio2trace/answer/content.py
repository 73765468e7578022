"""The content of a report, before it is text, Markdown or a page: a `Section` for each profile or log.

Every number is that of `mio2trace.measures` or of a finding; times are of one steady iteration unless named otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mio2trace.findings import Finding
from mio2trace.findings.gpus import Gpu
from mio2trace.findings.rule import WHOLE, ms, of_one
from mio2trace.measures.completeness import Completeness
from mio2trace.measures.device_time import Busy
from mio2trace.measures.device_time.gaps import Cause
from mio2trace.measures.step_time import StepKind, StepTime

ROWS = 50
"""The most rows of a table; the last line sums the rows that are left out."""


LEAST_PART = 0.0005
"""Share of the step below which a part is not shown: less than 0.1 %."""
_LABELS = {
    "compute": "compute", "communication": "communication", "copy": "copies", "unrecorded": "not recorded",
    "idle": "idle",
}  # fmt: skip
_HINTS = {
    "communication": "exposed", "copy": "exposed",
    "unrecorded": "work is missing (the device worked, but the profile lacks it)",
}  # fmt: skip


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel time of a primitive (empty: unknown), of what does its work or of what only helps."""

    primitive: str
    helps: bool
    ns: int


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A layer in one direction. ``host_ns``: on the host, where known; ``parts`` add up to ``ns``."""

    name: str
    direction: str
    ns: int
    share: float
    host_ns: int | None = None
    parts: tuple[Part, ...] = ()


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    """A problem. ``calls`` an iteration; ``ns`` and ``share`` are None where there is no profile. ``bound``: what
    limits it under the roof of ``--gpu``, ``of_peak`` how near it is, ``saved_ns`` what is above the least time.
    """

    name: str
    primitive: str
    calls: float
    ns: int | None
    share: float | None
    gflops: float | None = None
    solver: str = ""
    driver: str = ""
    of_peak: float | None = None
    bound: str = ""
    saved_ns: int | None = None
    intensity: float | None = None


class OperationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation in its layer (empty: none); ``calls`` an iteration."""

    name: str
    layer: str
    calls: float
    ns: int
    share: float


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel name; ``calls`` an iteration."""

    name: str
    calls: float
    ns: int
    share: float


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a job, over the collectives that all ranks ran (`mio2trace.ranks`)."""

    name: str
    transfer_ns: int
    wait_ns: int
    times_arrived_last: int
    late_ns: int
    made_late_by: str = ""
    made_late_ns: int = 0


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """A layer, an operation or a kernel name with what is below it, most time first; ``ns`` per iteration, with all
    below."""

    kind: str
    name: str
    ns: int
    kernels: float
    parts: tuple[TreeNode, ...] = ()


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step (or of the recording): ``share`` of it; the shares of all parts add up to 1."""

    part: str
    label: str
    ns: int
    share: float
    hint: str = ""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel time that is in no row: ``in no layer``, ``in no operation``."""

    name: str
    ns: int
    share: float


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of a steady iteration that take less than ``below_ns`` and at least half of it."""

    below_ns: int
    count: float
    ns: int


class Thumbnail(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run in bins of equal length: how much of each a device was busy, by what.

    ``busy``: by kind (`search`, `setup`, `first`, `steady`, `cut`, `copies`). ``iterations``: number, from, to, as
    parts of the whole, whether it counts.
    """

    span_ns: int
    busy: dict[str, list[float]]
    iterations: tuple[tuple[int, float, float, bool], ...] = ()


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The content for a profile with its logs, or for logs alone."""

    name: str
    verdict: str
    evidence: str = ""
    iterations: int = 0
    noun: str = WHOLE
    """What times are of where there are iterations."""
    kernel_ns: int = 0
    step: StepTime | None = None
    """How long a steady step lasts on the slowest device, and what it consists of; None if that is not known."""
    recording: Busy | None = None
    """Without steps: how that device spent the whole recording."""
    device: str = ""
    """The content for several devices of a process."""
    steps_ns: tuple[int, ...] = ()
    """Of each of several devices how long its steady step lasts."""
    causes: tuple[Cause, ...] = ()
    """Why it idles, in all steady iterations."""
    completeness: Completeness | None = None
    """Whether the profile holds all work; None without a profile."""
    machine: str = ""
    """GPU and versions, as far as the files state them."""
    idle_because: str = ""
    """In two words, the cause of most idle time."""
    reference: str = ""
    """What the run without MIOpen's log says of the two."""
    timed_by_reference: bool = False
    """Whether both are of that run."""
    waits: bool = False
    """The profiler waited for each command."""
    copy_ns: int = 0
    first: str = ""
    searches: str = ""
    parts: tuple[Part, ...] = ()
    findings: tuple[Finding, ...] = ()
    thumbnail: Thumbnail | None = None
    layers: tuple[LayerRow, ...] = ()
    layers_by: str = "kernel time"
    no_layer: Rest | None = None
    tree: tuple[TreeNode, ...] = ()
    """Layers with their operations and kernels; in pages only."""
    step_numbers: tuple[int, ...] = ()
    """What the steady steps of ``step`` are called."""
    operations: tuple[OperationRow, ...] = ()
    problems: tuple[ProblemRow, ...] = ()
    no_operation: Rest | None = None
    kernels: tuple[KernelRow, ...] = ()
    durations: tuple[Duration, ...] = ()
    gpu: Gpu | None = None
    dtypes: tuple[str, ...] = ()
    log: tuple[tuple[str, int, str], ...] = ()
    steps: tuple[StepKind, ...] = ()
    """Those of a serving engine, by kind."""
    waiting: str = ""
    """Which ranks of a job wait for others at the collectives; in the section of its first process only."""
    ranks: tuple[RankRow, ...] = ()
    trust: tuple[tuple[str, str], ...] = ()

    @property
    def step_ns(self) -> int | None:
        """How long a steady step lasts."""
        return None if self.step is None else self.step.step_ns

    @property
    def all_steps_ns(self) -> int | None:
        """How long a steady step lasts on all devices together, as times of layers, operations and kernels are sums."""
        return sum(self.steps_ns) or self.step_ns

    @property
    def idle_ns(self) -> int | None:
        """How long the device is idle in a steady step."""
        return None if self.step is None else self.step.idle_ns

    @property
    def whole_ns(self) -> int:
        """The denominator of all percentages of layers, operations and kernels: the step. With several devices it is
        the sum of their steps, because times are sums over the devices. It is the kernel time if the length of the step
        is not known."""
        return self.all_steps_ns or self.kernel_ns

    @property
    def of_whole(self) -> str:
        """The name of `whole_ns` after a percentage."""
        if self.steps_ns:
            return f"of the steps of {len(self.steps_ns)} devices"
        return "of the step" if self.step_ns else "of the kernel time"

    def share(self, ns: int | None) -> float | None:
        """A time as a part of `whole_ns`."""
        return None if ns is None or not self.whole_ns else ns / self.whole_ns

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The parts of the step, without those of less than 0.1 %. A run without steps has the parts of the
        recording."""
        of = self.step or self.recording
        parts = {} if of is None else {name: int(getattr(of, f"{name}_ns")) for name in _LABELS}
        whole = sum(parts.values())
        if not whole:
            return ()
        hints = {**_HINTS, "idle": self.idle_because}
        hints["compute"] = "% of the step" if self.step is not None else f"% of the recording ({ms(whole)})"
        return tuple(
            Spent(part=name, label=_LABELS[name], ns=ns, share=ns / whole, hint=hints[name])
            for name, ns in parts.items()
            if ns >= LEAST_PART * whole or name in ("compute", "idle")
        )

    @property
    def complete(self) -> str:
        """The verdict on the profile; empty without one."""
        if self.completeness is None:
            return ""
        return "profile complete" if self.completeness.complete else f"PROFILE INCOMPLETE: {self.completeness.said}"

    @property
    def each(self) -> str:
        """The words after a time: what it is the time of."""
        return of_one(self.noun) if self.iterations else "in all"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One page: its sections, the inputs (format, size, start of the hash), what made it."""

    title: str
    generator: str
    sections: tuple[Section, ...]
    inputs: tuple[str, ...]
    left_out: int = 0
    notes: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        return len(self.sections) > 1


def cumulative(shares: Sequence[float]) -> list[float]:
    """Of each the sum up to it."""
    sums, so_far = [], 0.0
    for share in shares:
        so_far += share
        sums.append(so_far)
    return sums
