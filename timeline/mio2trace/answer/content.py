"""The content of a report, before it becomes text, Markdown or a page.

Each profile or log has a `Section`, with the names and cells of its rows. The machine and the versions are here as far
as the files of the run record them.

Every number comes from `mio2trace.measures` or from a finding. Times are per steady iteration unless the name says
otherwise.

`records` is the report as one JSON document for programs: the same numbers as in the answer block, with units in their
names. docs/report.schema.json is its schema. Unknown numbers are null. A new key does not change the version. Removing
a key, or changing its meaning, raises `VERSION`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mio2trace.findings import Finding
from mio2trace.findings.rule import WHOLE, ms, of_one, percent
from mio2trace.findings.subject import Gpu
from mio2trace.kernels.names import distinct, short_kernel
from mio2trace.measures.completeness import Completeness
from mio2trace.measures.device_time import Busy
from mio2trace.measures.gaps import Cause
from mio2trace.measures.iterations import PARTS, StepKind, StepTime
from mio2trace.measures.statistics import fixed
from mio2trace.measures.steady import Node
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import primitive_name
from mio2trace.outgoing import json_text, shortened, visible, without_middle
from mio2trace.patterns import late

if TYPE_CHECKING:
    from mio2trace.ranks import RankTotal

ROWS = 50
"""The most rows of a table; its last line sums the rows that are left out."""


class Room(NamedTuple):
    """Limits of a section: rows of a table, characters of a name, findings, bins of the picture of the run."""

    rows: int
    name: int
    findings: int = 0
    bins: int = 0


LEAST_OF_KERNELS = 0.005
"""A smaller part of the kernel time is not listed in what the kernels compute."""
LEAST_BETWEEN = 0.01
"""A smaller part of the time between the steps of a serving engine is not mentioned."""
LEAST_PART = 0.0005
"""Parts of the step with a smaller share (0.1 %) are not shown."""
LEAST_HEAD = 20
"""The characters that stay of the first word of an operation's name."""
_LABELS = {
    "compute": "compute", "communication": "communication", "copy": "copies", "unrecorded": "not recorded",
    "idle": "idle",
}  # fmt: skip
_HINTS = {
    "communication": "exposed", "copy": "exposed",
    "unrecorded": "work is missing (the device worked, but the profile lacks it)",
}  # fmt: skip


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel time of a primitive (empty if unknown). ``helps``: of its auxiliary kernels, else of the kernels that
    compute."""

    primitive: str
    helps: bool
    ns: int

    @property
    def name(self) -> str:
        return part_name(self.primitive)


def part_name(primitive: str) -> str:
    return primitive_name(primitive) if primitive else "other kernels"


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A layer in one direction. ``host_ns``: its time on the host, None if unknown. ``parts`` add up to ``ns``."""

    name: str
    direction: str
    ns: int
    host_ns: int | None = None
    parts: tuple[Part, ...] = ()


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of one class in one direction (``Conv2d_3`` and ``Conv2d_7``). ``layers``: their number."""

    name: str
    direction: str
    layers: int
    ns: int


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    """A problem. ``calls``: per iteration. ``ns`` and ``share``: None without a profile. With ``--gpu``, ``bound`` is
    what limits the problem (memory or compute), ``of_peak`` its part of that limit, ``saved_ns`` its time above the
    least possible time."""

    name: str
    primitive: str
    calls: float
    ns: int | None
    share: float | None = None
    gflops: float | None = None
    solver: str = ""
    driver: str = ""
    of_peak: float | None = None
    bound: str = ""
    saved_ns: int | None = None
    intensity: float | None = None


class OperationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation in its layer (empty: in none). ``calls``: per iteration."""

    name: str
    layer: str
    calls: float
    ns: int


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel name. ``calls``: per iteration."""

    name: str
    calls: float
    ns: int


ListRow = LayerRow | ClassRow | OperationRow | ProblemRow | KernelRow
"""A row of a list of the report."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step (or of the recording). ``share``: 0 to 1; the shares of all parts add up to 1."""

    part: str
    label: str
    ns: int
    share: float
    hint: str = ""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel time that is in no row of a table. ``name``: ``in no layer`` or ``in no operation``."""

    name: str
    ns: int
    share: float


class Find(msgspec.Struct, frozen=True, kw_only=True):
    """MIOpen Find in the whole run: the number of its searches with kernels, and the time of these kernels."""

    searches: int
    kernel_ns: int
    is_sure: bool


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of a steady iteration that take less than ``below_ns``, but at least half of it."""

    below_ns: int
    count: float
    ns: int


class Thumbnail(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run in bins of equal length: the part of each bin in which a device was busy, by kind of work.

    ``busy``: kinds are `search`, `setup`, `first`, `steady`, `cut`, `copies`. ``iterations``: number, begin and end as
    parts of the run (0 to 1), and whether the iteration is steady.
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
    """The denominator of times if iterations are known."""
    kernel_ns: int = 0
    is_sure: bool = True
    """False if a part of ``kernel_ns`` may be searches or other iterations."""
    find: Find | None = None
    step: StepTime | None = None
    """Length and parts of a steady step on the slowest device; None if they are not known."""
    recording: Busy | None = None
    """If no steps are known: how that device spent the whole recording."""
    device: str = ""
    """The name of the slowest device if the process uses several."""
    steps_ns: tuple[int, ...] = ()
    """If the process uses several devices: the length of the steady step of each."""
    causes: tuple[Cause, ...] = ()
    """The causes of idle time in all steady iterations; in the recording if no steps are known."""
    completeness: Completeness | None = None
    """Whether the profile holds all work; None without a profile."""
    machine: str = ""
    """GPU and versions, as far as the files state them."""
    idle_because: str = ""
    """In two words, the cause of most idle time."""
    reference: str = ""
    """Step and idle time of the run that was recorded without MIOpen's log."""
    timed_by_reference: bool = False
    """Whether ``step`` and ``causes`` come from that run."""
    copy_ns: int = 0
    first: str = ""
    searches: str = ""
    parts: tuple[Part, ...] = ()
    findings: tuple[Finding, ...] = ()
    thumbnail: Thumbnail | None = None
    layers: tuple[LayerRow, ...] = ()
    printed: str = ""
    """The meaning of the times of layers if a log prints them; empty: kernel time."""
    classes: tuple[ClassRow, ...] = ()
    """The classes of layers; none if a log names the layers, or if each class has one layer."""
    no_layer: Rest | None = None
    tree: tuple[Node, ...] = ()
    """Layers with their operations and kernels, over all steady iterations; in pages only."""
    step_numbers: tuple[int, ...] = ()
    """The numbers of the steady steps of ``step``."""
    operations: tuple[OperationRow, ...] = ()
    problems: tuple[ProblemRow, ...] = ()
    no_operation: Rest | None = None
    kernels: tuple[KernelRow, ...] = ()
    durations: tuple[Duration, ...] = ()
    gpu: Gpu | None = None
    dtypes: tuple[str, ...] = ()
    log: tuple[tuple[str, int, str], ...] = ()
    steps: tuple[StepKind, ...] = ()
    """The steps of a serving engine, by kind."""
    phases: tuple[StepKind, ...] = ()
    """The same by phase alone."""
    idle_between: float | None = None
    """Part of the time of all of these in which the device is idle between two steps."""
    waiting: str = ""
    """Which ranks of a job wait for others at the collectives; in the section of its first process only."""
    ranks: tuple[tuple[str, RankTotal], ...] = ()
    trust: tuple[tuple[str, str], ...] = ()

    def makeup(self) -> str:
        """``MoE 69.1 %, Gemm 11.5 %, other kernels 6.9 %``: what the kernels compute, most first."""
        return ", ".join(
            f"{part.name}{' (helpers)' * part.helps} {percent(self.share(part.ns) or 0)}"
            for part in self.parts
            if part.ns >= LEAST_OF_KERNELS * self.kernel_ns
        )

    @property
    def between(self) -> str:
        """``idle between steps 12.3 %``; empty under `LEAST_BETWEEN`, and if no serving engine marks its steps."""
        part = self.idle_between
        return f"idle between steps {percent(part)}" if part is not None and part >= LEAST_BETWEEN else ""

    @property
    def step_ns(self) -> int | None:
        """Length of a steady step."""
        return None if self.step is None else self.step.step_ns

    @property
    def whole_step_ns(self) -> int | None:
        """The denominator of percentages of the step: the sum over all devices, as times of layers, operations and
        kernels are. None if the length of the step is not known."""
        return sum(self.steps_ns) or self.step_ns

    @property
    def idle_ns(self) -> int | None:
        """Idle time of the device in a steady step."""
        return None if self.step is None else self.step.idle_ns

    @property
    def whole_ns(self) -> int:
        """The denominator of all percentages of layers, operations and kernels: the step, or the kernel time if the
        length of the step is not known."""
        return self.whole_step_ns or self.kernel_ns

    @property
    def of_whole(self) -> str:
        """The name of `whole_ns` after a percentage."""
        if self.steps_ns:
            return f"of the steps of {len(self.steps_ns)} devices"
        return "of the step" if self.step_ns else "of the kernel time"

    @property
    def shares_of(self) -> str:
        """``; % of the step`` after the denominator of times; empty if no share is known."""
        return f"; % {self.of_whole}" if self.whole_ns else ""

    def beyond(self, *, in_parts: bool = True) -> str:
        """Return why a share of kernel time is above 100 %; empty if no share is. ``in_parts``: also those of
        `parts`."""
        lists: tuple[Sequence[ListRow], ...] = (self.layers, self.classes, self.operations, self.problems, self.kernels)
        times = [*(rows[0].ns for rows in lists if rows), *(part.ns for part in self.parts if in_parts)]
        rests = (self.layers, self.no_layer), (self.operations, self.no_operation)
        times += [rest.ns for rows, rest in rests if rows and rest is not None]
        longest = max((ns for ns in times if ns is not None), default=0)
        return "kernels overlap, so a share may exceed 100 %" if 0 < self.whole_ns < longest else ""

    def share(self, ns: int | None) -> float | None:
        """Return the part of `whole_ns` that a time is."""
        return None if ns is None or not self.whole_ns else ns / self.whole_ns

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The parts of the step, or of the recording if no steps are known. Parts under 0.1 % are left out."""
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
        """The verdict on the completeness of the profile; empty without a profile."""
        if self.completeness is None:
            return ""
        return "profile complete" if self.completeness.complete else f"PROFILE INCOMPLETE: {self.completeness.said}"

    @property
    def each(self) -> str:
        """The words that follow a time and give its denominator."""
        return of_one(self.noun) if self.iterations else "in all"

    @property
    def of_layers(self) -> str:
        """``kernel time, per iteration``: the meaning of the times of layers."""
        return self.printed or f"kernel time, {self.each}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One report: its sections, its inputs (format, size, start of the hash), and the program that wrote it."""

    title: str
    generator: str
    sections: tuple[Section, ...]
    inputs: tuple[str, ...]
    left_out: int = 0
    notes: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        return len(self.sections) > 1


__all__ = ["distinct", "ms_cell", "rank_cells", "short_kernel", "shown_names", "spent_cells", "step_cells"]


def shown_names(rows: Sequence[ListRow], width: int, *, count_calls: bool = False) -> list[str]:
    """Return the names of the rows of a list, the same in every form of the answer. The number of layers follows the
    name of a class. The number of calls follows that of a problem if no column shows it: without a profile, or with
    ``count_calls``."""
    calls = [
        f" x {row.layers:,}"
        if isinstance(row, ClassRow) and row.layers > 1
        else f" x {row.calls:,.0f}"
        if isinstance(row, ProblemRow) and (row.ns is None or count_calls)
        else ""
        for row in rows
    ]
    width -= max(map(len, calls), default=0)
    names = [_name(row, width) for row in rows]
    count = Counter(names)
    for at, row in enumerate(rows):
        if count[names[at]] > 1 and isinstance(row, OperationRow) and row.layer:
            names[at] = _in_layer(row.name, row.layer, width)
    short = [
        short_kernel(name) if isinstance(row, KernelRow) else _with_sizes(name, width)
        for name, row in zip(names, rows, strict=True)
    ]
    return [f"{name}{times}" for name, times in zip(distinct(names, short, width), calls, strict=True)]


def _name(row: ListRow, width: int) -> str:
    if isinstance(row, LayerRow | ClassRow):
        return f"{row.name} {row.direction}" if row.direction else row.name
    if isinstance(row, OperationRow) and row.layer:
        return f"{row.name} in {row.layer}" if len(row.name) + len(row.layer) + 4 <= width else row.name
    return row.name.removeprefix("void ") if isinstance(row, KernelRow) else row.name


def _with_sizes(name: str, width: int) -> str:
    """Leave out the middle of a long first word (``aten::cudn...ckward_input 32x64x56x56``) if the sizes fit then."""
    head, _, sizes = name.partition(" ")
    room = width - 1 - len(sizes)
    return f"{without_middle(head, room)} {sizes}" if sizes and LEAST_HEAD <= room < len(head) else name


def _in_layer(name: str, layer: str, width: int) -> str:
    """Shorten an operation whose name is not unique: its layer matters more than the end of its name."""
    longest = width // 2
    if len(layer) > longest:
        layer = f"{layer[: longest // 3]}...{layer[3 + longest // 3 - longest :]}"
    return f"{shortened(name, width - len(layer) - 4)} in {layer}"


def ms_cell(ns: float | None) -> str:
    """Return milliseconds; empty if the time is not known."""
    return "" if ns is None else fixed(ns / 1e6, 3)


def spent_cells(section: Section) -> list[tuple[str, ...]]:
    """Return name, ms, percent and cause of each part of the step."""
    return [
        (one.label, ms_cell(one.ns), fixed(100 * one.share, 1), one.hint if one.part != "compute" else "")
        for one in section.spent
    ]


def step_cells(kind: StepKind) -> tuple[str, ...]:
    """Return phase, batch, tokens, number, ms per step, ms of kernels, and kernels for a kind of steps."""
    return (
        kind.phase,
        "" if kind.batch is None else f"{kind.batch:,}",
        "" if kind.tokens is None else f"{kind.tokens / kind.steps:,.0f}",
        f"{kind.steps:,}",
        ms_cell(kind.step_ns),
        ms_cell(kind.kernel_ns),
        f"{kind.kernels:,.0f}",
    )


def rank_cells(name: str, row: RankTotal, width: int) -> tuple[str, ...]:
    """Return name, transfer time, waiting time, times last, lateness and its cause for a rank."""
    return (
        visible(shortened(name, width)),
        ms_cell(row.transfer_ns),
        ms_cell(row.wait_ns),
        f"{row.times_arrived_last:,}",
        ms_cell(row.late_ns),
        visible(shortened(row.made_late_by, width)),
    )


_VALUE = late(
    r"(?P<name>\bHIP|\bMIOpen|\bMIOPEN_[A-Z0-9_]{1,60})(?: version | ?= ?)(?P<value>[\w.()+-]{1,60})", re.ASCII
)
"""Such as ``MIOpen version 3.5.1.5b515cf1bc`` or ``MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)``."""


_GFX = late(r"\bgfx(?:9[0-9a-f]{2}|1[0-9a-f]{3}|[78][0-9]{2})(?=\b|_|[0-9]{2,3}\b)", re.ASCII)
"""Such as ``gfx942``, even if the number of compute units follows: ``gfx942304``."""
_ISA = late(r"_ISA([0-9a-fA-F]{3,4})(?=_|$)", re.ASCII)
"""The architecture in the name of a Tensile kernel."""
_NUMBERED = late(r"(?i)(?:device|gpu|agent) ?\d+(?: \(TensorFlow\))?")
"""A name that a reader makes up if the profile has none."""


def is_product(name: str) -> bool:
    """Return whether a device's name is a product name and not only a number."""
    return bool(name) and not _NUMBERED.fullmatch(name)


def stated_values(libraries: Iterable[MiopenLog]) -> Iterator[tuple[str, str]]:
    """Names and values of versions and variables that MIOpen's logs state."""
    for log in libraries:
        for record in log.records:
            if isinstance(record, Message) and record.kind in ("version", "environment"):
                for one in _VALUE.finditer(record.text):
                    yield one["name"], one["value"]


def machine(profile: Profile | None, libraries: Sequence[MiopenLog], device_name: str = "") -> str:
    """``MI300X x4 · MIOpen 3.5.1``; empty if the files name nothing."""
    devices = Counter(device.name for device in (profile.devices if profile is not None else ()))
    named = {name: number for name, number in devices.items() if is_product(name)}
    named = named or dict.fromkeys([device_name] if device_name else _named_by_logs(libraries), 1)
    parts = [f"{name} x{number}" if number > 1 else name for name, number in named.items()][:3]
    values = dict(stated_values(libraries))
    parts += [f"{name} {values[name]}" for name in ("HIP", "MIOpen") if name in values]
    return " · ".join(parts)


def _named_by_logs(libraries: Iterable[MiopenLog]) -> Iterator[str]:
    """The architectures of the devices that MIOpen's logs name."""
    for log in libraries:
        for record in log.records:
            if isinstance(record, Message) and record.kind == "device":
                yield from (found[0] for found in _GFX.finditer(record.text))


def versions(profiles: Sequence[Profile], libraries: Sequence[MiopenLog], names: Iterable[str]) -> dict[str, list[str]]:
    """Collect GPUs, their architectures, HIP and MIOpen from names of devices, from logs and from names of kernels.

    ``names``: of devices that logs name. A list is empty if the files do not state it.
    """
    values: dict[str, set[str]] = {"HIP": set(), "MIOpen": set()}
    for name, value in stated_values(libraries):
        if name in values:
            values[name].add(value)
    devices = {device.name for profile in profiles for device in profile.devices} | set(names)
    texts = [record.text for log in libraries for record in log.records if isinstance(record, Message)]
    found = {match[0] for text in (*texts, *devices) for match in _GFX.finditer(text)}
    kernels = {name for profile in profiles for name in profile.commands.name.used}
    found |= {f"gfx{match[1].lower()}" for name in kernels if (match := _ISA.search(name)) is not None}
    named = set(filter(is_product, devices))
    return {"gpu": sorted(named), "gfx": sorted(found), **{name: sorted(of) for name, of in values.items()}}


VERSION = 1


def records(report: Report) -> str:
    """The document, indented."""
    import orjson

    document = {
        "schema": VERSION,
        "generator": report.generator,
        "title": report.title,
        "inputs": list(report.inputs),
        "notes": list(report.notes),
        "left_out_runs": report.left_out,
        "runs": [_run(section) for section in report.sections],
    }
    return json_text(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()) + "\n"


def _run(section: Section) -> dict[str, Any]:
    step = section.step
    complete = section.completeness
    return {
        "name": section.name,
        "machine": section.machine or None,
        "verdict": section.verdict,
        "completeness": None if complete is None else {"complete": complete.complete, "counts": dict(complete.counts)},
        "steady_iterations": section.iterations,
        "kernel_ns": section.kernel_ns,
        "kernel_ns_is_sure": section.is_sure,
        "find": None if section.find is None else msgspec.structs.asdict(section.find),
        "copy_ns": section.copy_ns,
        "step": None
        if step is None
        else {
            **step.record(),
            "length_of_each_ns": list(step.steps_ns),
            "step_of_each_device_ns": list(section.steps_ns or (step.step_ns,)),
        },
        "steps_by_kind": [*map(_kind, section.steps)],
        "steps_by_phase": [*map(_kind, section.phases)],
        "idle_between_steps_percent": None if section.idle_between is None else round(100 * section.idle_between, 3),
        "recording": None
        if section.recording is None
        else {"length_ns": section.recording.length_ns}
        | {f"{name}_ns": getattr(section.recording, f"{name}_ns") for name in PARTS},
        "idle": [
            {
                "why": one.why,
                "gaps": one.count,
                "ns": one.ns,
                "longest_gap_ns": one.longest_ns,
                "during": [{"name": n, "ns": ns} for n, ns in one.during],
            }
            for one in section.causes
        ],
        "layers": _listed(section, section.layers, section.no_layer),
        "layer_classes": _listed(section, section.classes, None),
        "operations": _listed(section, section.operations, section.no_operation),
        "problems": _listed(section, section.problems, section.no_operation),
        "kernels": _listed(section, section.kernels, None),
        "findings": [finding.record() for finding in section.findings],
        "log": [{"level": level, "count": number, "text": text} for level, number, text in section.log],
    }


def _kind(kind: StepKind) -> dict[str, Any]:
    return {
        "name": kind.name, "phase": kind.phase, "batch": kind.batch, "most_batch": kind.most_batch,
        "tokens": kind.tokens, "steps": kind.steps, "step_ns": None if kind.step_ns is None else round(kind.step_ns),
        "kernel_ns": round(kind.kernel_ns), "kernels": round(kind.kernels, 3), "is_in_means": kind.counts,
    }  # fmt: skip


def _listed(section: Section, rows: Sequence[ListRow], rest: Rest | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        cells: dict[str, Any] = {"name": row.name, "ns": row.ns, **_shares(section, row.ns)}
        if isinstance(row, LayerRow | ClassRow):
            cells["direction"] = row.direction or None
        else:
            cells["calls"] = row.calls
        if isinstance(row, ClassRow):
            cells["layers"] = row.layers
        if isinstance(row, OperationRow):
            cells["layer"] = row.layer or None
        if isinstance(row, ProblemRow):
            cells |= {
                "primitive": row.primitive, "solver": row.solver or None, "gflops": row.gflops,
                "command": row.driver or None,
            }  # fmt: skip
        found.append(cells)
    if rest is not None:
        found.append({"name": None, "outside": rest.name, "ns": rest.ns, **_shares(section, rest.ns)})
    return found


def _shares(section: Section, ns: int | None) -> dict[str, float | None]:
    def percent(whole: int | None) -> float | None:
        return None if ns is None or not whole else round(100 * ns / whole, 3)

    return {"percent_of_kernel_time": percent(section.kernel_ns), "percent_of_step": percent(section.whole_step_ns)}
