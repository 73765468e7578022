"""The data that the rules use: the kernels of steady iterations, their problems, their gaps; peak performance of GPUs.

T is the kernel time per steady iteration (`mio2trace.measures.steady`); shares are shares of T.

A row of the table of GPUs is one device as profilers list it. An MI250 or MI250X is two devices, one per die. A peak is
compute units x clock x operations per clock and unit (dense; vector or matrix unit, whichever is faster). Bandwidth is
that of the memory. These are the numbers of AMD's data sheets (`SOURCES`). No program reaches them: use the share of
the peak to compare runs, not as a verdict.
"""

from __future__ import annotations

import functools
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np

from mio2trace.align import NONE
from mio2trace.findings.rule import PART, RECORDING, WHOLE, Found, ms, of_one, part_of, percent
from mio2trace.kernels.names import kernel_name
from mio2trace.measures import Measures
from mio2trace.measures.device_time import Busy
from mio2trace.measures.gaps import Cause, prepared
from mio2trace.measures.iterations import Iteration, StepTime
from mio2trace.measures.ranking import Makeup, SteadyCost
from mio2trace.measures.statistics import median
from mio2trace.model.miopen import Message
from mio2trace.model.profile import XLA
from mio2trace.model.tables import distinct, in_order_of, summed
from mio2trace.notes import InputError, OptionError
from mio2trace.ops.choices import Choices
from mio2trace.ops.operation import Operation
from mio2trace.ops.ranges import part_of_step
from mio2trace.patterns import late

SOURCES: Final[Mapping[str, str]] = MappingProxyType({
    "CDNA 4": "AMD CDNA 4 white paper; AMD Instinct MI350X and MI355X data sheets",
    "CDNA 3": "AMD CDNA 3 white paper; AMD Instinct MI300A, MI300X and MI325X data sheets",
    "CDNA 2": "AMD CDNA 2 white paper; AMD Instinct MI210, MI250 and MI250X data sheets (halves of the latter two)",
    "CDNA": "AMD CDNA white paper; AMD Instinct MI100 data sheet",
    "GCN 5.1": "AMD Vega 20 product pages: Radeon Instinct MI50, MI60",
    "GCN 5": "AMD Vega 10 product page: Radeon Instinct MI25",
    "GCN 4": "AMD Polaris product pages: Radeon Instinct MI6, Radeon RX 580",
    "GCN 3": "AMD Fiji product page: Radeon Instinct MI8",
    "RDNA 3": "AMD Radeon RX 7900 XTX product page",
    "RDNA 2": "AMD Radeon RX 6900 XT product page",
})  # fmt: skip
"""Sources for the numbers of each architecture; compute units of newer ones also at
https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html"""

_PER_CLOCK: Mapping[str, Mapping[str, int]] = MappingProxyType({
    "CDNA 4": {"double": 128, "float": 256, "half": 4096, "bfloat16": 4096, "int8": 8192, "float8": 8192},
    "CDNA 3": {"double": 256, "float": 256, "half": 2048, "bfloat16": 2048, "int8": 4096, "float8": 4096},
    "CDNA 2": {"double": 256, "float": 256, "half": 1024, "bfloat16": 1024, "int8": 1024},
    "CDNA": {"double": 64, "float": 256, "half": 1024, "bfloat16": 512, "int8": 1024},
    "GCN 5.1": {"double": 64, "float": 128, "half": 256, "int8": 512},
    "GCN 5": {"double": 8, "float": 128, "half": 256},
    "GCN 4": {"double": 8, "float": 128, "half": 128},
    "GCN 3": {"double": 8, "float": 128, "half": 128},
    "RDNA 3": {"double": 8, "float": 256, "half": 512, "bfloat16": 512},
    "RDNA 2": {"double": 8, "float": 128, "half": 256},
})  # fmt: skip
"""Floating point (int8: integer) operations per clock and compute unit, by the name of the data type in an operation.
"""

_ROWS: tuple[tuple[str, str, int, int, float], ...] = (
    # name, architecture, compute units, peak clock in MHz, memory in GB/s
    ("MI355X", "CDNA 4", 256, 2400, 8000),
    ("MI350X", "CDNA 4", 256, 2200, 8000),
    ("MI325X", "CDNA 3", 304, 2100, 6000),
    ("MI300X", "CDNA 3", 304, 2100, 5300),
    ("MI300A", "CDNA 3", 228, 2100, 5300),
    ("MI250X", "CDNA 2", 110, 1700, 1638.4),
    ("MI250", "CDNA 2", 104, 1700, 1638.4),
    ("MI210", "CDNA 2", 104, 1700, 1638.4),
    ("MI100", "CDNA", 120, 1502, 1228.8),
    ("MI60", "GCN 5.1", 64, 1800, 1024),
    ("MI50", "GCN 5.1", 60, 1725, 1024),
    ("MI25", "GCN 5", 64, 1500, 484),
    ("MI8", "GCN 3", 64, 1000, 512),
    ("MI6", "GCN 4", 36, 1237, 224),
    ("RX 580", "GCN 4", 36, 1340, 256),
    ("RX 7900 XTX", "RDNA 3", 96, 2500, 960),
    ("RX 6900 XT", "RDNA 2", 80, 2250, 512),
)


_SAME_RATE = {"bfloat8": "float8"}


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks of a device. ``tflops``: by the data type of an operation; ``bandwidth``: GB/s; ``units``: compute
    units."""

    name: str
    tflops: Mapping[str, float]
    bandwidth: float
    units: int | None = None
    source: str = ""

    def flop_per_ns(self, dtype: str | None) -> float | None:
        """Return the peak for a data type in operations per nanosecond; an unknown type has the peak of ``float``."""
        peak = self.tflops.get(_SAME_RATE.get(dtype or "float", dtype or "float"))
        return None if peak is None else peak * 1000


def _gpu(name: str, architecture: str, units: int, clock_mhz: int, bandwidth: float) -> Gpu:
    peaks = {dtype: units * clock_mhz * each / 1e6 for dtype, each in _PER_CLOCK[architecture].items()}
    return Gpu(name=name, tflops=peaks, bandwidth=bandwidth, units=units, source=SOURCES[architecture])


GPUS: Mapping[str, Gpu] = MappingProxyType({row[0]: _gpu(*row) for row in _ROWS})
"""By name."""


def known(name: str) -> Gpu | None:
    """Return the device whose name occurs in ``name`` as whole words, in any case; None if there is none."""
    lower = name.lower()  # the expression is slow, and few rows need it
    return next((gpu for own, gpu in GPUS.items() if own.lower() in lower and _as_words(own).search(name)), None)


@functools.cache
def _as_words(name: str) -> re.Pattern[str]:
    """Return a pattern that matches a row's name as whole words."""
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE | re.ASCII)


def gpu_of(text: str) -> Gpu:
    """Return a device of the table, or the one of the file that ``text`` names.

    A file is a JSON object: ``name``, ``mem_bw_gbps``, ``compute_units``, and ``max_achievable_tflops`` by ``matrix_``
    or ``vector_`` and type (``matrix_fp16``, ``vector_fp32``, ...); the greater of both counts. Raises `OptionError`.
    """
    gpu = known(text)
    if gpu is not None and text.strip().lower().endswith(gpu.name.lower()):
        return gpu
    try:
        with open(text, "rb") as file:
            data = file.read(1 << 20)
    except (OSError, ValueError):
        raise OptionError(f"--gpu {text}: neither a file nor one of {', '.join(GPUS)}") from None
    return _from_json(data, text)


_TYPES = {"fp64": "double", "fp32": "float", "fp16": "half", "bf16": "bfloat16", "int8": "int8", "fp8": "float8"}


def _from_json(data: bytes, path: str) -> Gpu:
    """Raises `InputError`, which names what is missing."""
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: expected the peaks of a GPU as JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a JSON object with mem_bw_gbps and max_achievable_tflops")
    bandwidth, stated = found.get("mem_bw_gbps"), found.get("max_achievable_tflops")
    if bandwidth is None or not _is_amount(bandwidth):
        raise InputError(f"{path}: mem_bw_gbps: expected the memory's GB/s, found {bandwidth!r}")
    tflops: dict[str, float] = {}
    for name, value in stated.items() if isinstance(stated, dict) else ():
        dtype = _TYPES.get(str(name).rpartition("_")[2])
        if dtype is not None and _is_amount(value):
            tflops[dtype] = max(tflops.get(dtype, 0.0), float(value))
    if not tflops:
        raise InputError(f"{path}: max_achievable_tflops: expected TFLOPS by type, such as matrix_fp16")
    units = found.get("compute_units")
    return Gpu(
        name=str(found.get("name") or "the file's GPU")[:80],
        tflops=tflops,
        bandwidth=float(bandwidth),
        units=units if isinstance(units, int) and _is_amount(units) else None,
        source="the file given",
    )


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


MOST_LOST = 0.1
"""Gaps may be work that was not recorded if at least this part of the launches has no kernel."""
AS_LONG = 0.05
"""A cold first iteration is nothing special if more than this part of the steady ones take as long."""
_COMPILED = late(r"CompiledFxGraph|Torch-Compiled Region|CompiledFunction", re.ASCII)
MOST_WORK = 2.0
"""A first iteration of another kind with more than this many times the usual kernel time does other work."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of steady iterations: its cost, its first call, and the kernel time of each call in order."""

    row: SteadyCost[str]
    operation: Operation
    samples: Sequence[int]
    solver: str = ""
    calls: tuple[Operation, ...] = ()
    line: str = ""
    """Source line of the program that launched the first call; empty if it is not recorded."""

    @property
    def name(self) -> str:
        return self.row.key

    @property
    def at_line(self) -> str:
        """The name of the problem, with the line that launches it."""
        return f"{self.name} ({self.line})" if self.line else self.name

    @property
    def ns(self) -> int:
        """Kernel time in all steady iterations."""
        return self.row.total_ns

    @property
    def flop(self) -> int | None:
        """FLOPs of all its calls in steady iterations; None if those of one call are not known."""
        return self.row.cost.flop

    @property
    def bytes(self) -> int | None:
        """Least memory traffic of the same calls, in bytes."""
        return self.row.cost.bytes

    @property
    def gflops(self) -> float | None:
        return self.row.cost.gflops


class Subject:
    """One profile with its logs, as the rules see it. ``messages``: of its MIOpen logs. ``reference``: the same process
    in a run without MIOpen's log, which slows the host. ``choices``: solvers that databases and logs of libraries name.
    ``processes``: the number of profiles of its job that are here.
    """

    def __init__(
        self,
        measures: Measures,
        gpu: Gpu | None = None,
        messages: Sequence[Message] = (),
        reference: Measures | None = None,
        choices: Choices | None = None,
        processes: int = 1,
    ) -> None:
        self.measures = measures
        self.alignment = measures.alignment
        self.profile = measures.alignment.profile
        self.steady = measures.steady
        self.gpu = gpu
        self.messages = messages
        self._reference = reference
        self.choices = Choices() if choices is None else choices
        self.processes = processes

    @cached_property
    def timed(self) -> Subject:
        """The run that gives the length and idle time of iterations: the run without MIOpen's log if its iterations are
        known, else this one."""
        if self._reference is not None:
            other = Subject(self._reference, self.gpu, processes=self.processes)
            if other.step_time is not None:
                return other
        return self

    # -- the steady iterations ---------------------------------------------------------------------------------------

    @property
    def has_iterations(self) -> bool:
        """Return whether iterations are known, from a log, a profile or the repetition of kernels."""
        return self.steady.told.told_by != "whole"

    @property
    def count(self) -> int:
        """The number of steady iterations; at least 1, because it is a divisor."""
        return max(1, len(self.steady.iterations))

    @property
    def total_ns(self) -> int:
        """Kernel time of all steady iterations: T times their number."""
        return self.steady.total.total_ns

    def each(self, ns: float) -> int:
        """Divide a sum over all steady iterations by their number."""
        return round(ns / self.count)

    @property
    def noun(self) -> str:
        """The denominator of a share: ``the iteration``, or a part of it if no iteration is complete."""
        return PART if self.steady.told.part else WHOLE

    @property
    def per(self) -> str:
        """The words that follow a number: `` per iteration``; empty if no iterations are known."""
        return f" {of_one(self.noun)}" if self.has_iterations else ""

    def time(self, ns: float) -> str:
        """Format a sum over all steady iterations: ``1.2 ms per iteration``; without iterations ``1.2 ms``."""
        return f"{ms(self.each(ns))}{self.per}"

    def share(self, ns: float) -> float:
        """Return the part of the kernel time of all steady iterations."""
        return ns / self.total_ns if self.total_ns else 0.0

    def found(self, ns: float, **more: Any) -> Found:
        """Return a finding about a sum over all steady iterations, such as `T`; ``more``: its other fields."""
        return Found(ns=self.each(ns), share=self.share(ns), **more)

    def found_in(self, problems: Sequence[Problem], ns: float, **more: Any) -> Found:
        """Return a finding about some problems."""
        names = tuple(problem.name for problem in problems)
        return self.found(ns, count=len(problems), scope=names, drivers=drivers(problems), **more)

    @cached_property
    def stretches(self) -> list[Sequence[int]]:
        """Operations of the kernels and copies of each steady iteration, in order, each once."""
        counted = self.steady.counted
        positions = counted.positions[in_order_of(counted.place_of[counted.positions])]
        operations = np.asarray(self.alignment.links.operation_of)[positions]
        ends = np.cumsum(np.bincount(counted.place_of[positions], minlength=len(self.steady.iterations)))
        parts = np.split(operations, ends[:-1])
        return [array("q", (index for index in dict.fromkeys(part.tolist()) if index != NONE)) for part in parts]

    @property
    def makeup(self) -> Makeup:
        return self.measures.makeup

    @property
    def step_time(self) -> StepTime | None:
        """Length and parts of a steady step on the slowest device."""
        return self.steady.step_time

    @property
    def spent(self) -> StepTime | Busy | None:
        """The time of that device to which shares of idle time, communication and copies refer: a steady step, or the
        recording if no steps are known."""
        return self.step_time if self.step_time is not None else self.steady.recording

    def of_spent(self, ns: int, more: str = "") -> str:
        """``83.8 % of the iteration (234.0 of 279.3 ms)``: a part of this time. ``more``: words at the end of the
        brackets."""
        spent = self.spent
        whole = 0 if spent is None else spent.length_ns
        noun, ends = self.noun, ""
        if self.step_time is None:
            of = f" of device {self.steady.device_number}" if len(self.steady.told.devices) > 1 else ""
            noun, ends = RECORDING + of, ", first to last command"
        return f"{percent(ns / whole if whole else 0)} of {noun} ({part_of(ns, whole)}{more}{ends})"

    def recorded_anew(self, *, calls: bool = False) -> str:
        """Say how to record steps of this program after a warm-up. ``calls``: also the host's calls."""
        if self.is_torch:
            return "record some steps after a warm-up with torch.profiler (schedule, profiler.step())"
        if self.is_xla:
            by = "jax.profiler.StepTraceAnnotation" if self.jitted else "tf.profiler.experimental.Trace"
            return f'record after a warm-up, with {by}("step", step_num=1) around each step'
        by = " (ROCTx, rocprofv3 --marker-trace)" * (self.profile.numbers == "dispatch_id")
        also = " and the host's calls (--hip-trace)" if calls and by else " and the host's calls" if calls else ""
        return f'record after a warm-up, with a range such as "step 1" around each step{by}{also}'

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of idle time on that device."""
        return self.steady.idle_causes

    # -- outside the steady iterations -------------------------------------------------------------------------------

    @cached_property
    def steady_searches(self) -> list[int]:
        """Indices of searches that have kernels in a steady iteration."""
        links, told = self.alignment.links, self.steady.told
        if told.told_by == "whole":
            return []
        found = []
        for index in self.measures.searches:
            pass_ = links.pass_of[self.measures.first_of[index]]
            if pass_ == NONE:
                continue
            iteration = links.passes[pass_].iteration
            if iteration is not None and self.steady.has(iteration):
                found.append(index)
        return found

    @cached_property
    def cold(self) -> list[Iteration]:
        """The cold first iterations. The first one counts as cold even if it runs a few other kernels than the steady
        ones (an optimiser without state, missing gradients), provided that it alone builds or loads programs."""
        told = self.steady.told
        cold = [one for one in told.all if one.number in told.cold]
        steady = [one for one in told.all if self.steady.has(one.number)]
        first = told.all[0] if told.all else None
        if cold or not steady or first is None or first.kind == told.kind or first.number in told.cut:
            return cold
        usual = median([one.kernel_ns for one in steady])
        return [first] if self.first_builds and first.kernel_ns <= MOST_WORK * usual else []

    @cached_property
    def first_builds(self) -> bool:
        """Whether the first iteration builds or loads programs, and no steady one does."""
        told = self.steady.told
        builds = bool(told.all) and told.all[0].builds > 0
        return builds and not any(one.builds for one in told.all if self.steady.has(one.number))

    @cached_property
    def first_iteration(self) -> tuple[int, int, int, int] | None:
        """Time of a cold first iteration, median of the steady ones, sum of it and these, and how many these are; None
        if the first one is not cold.

        The length is that of the step. If it is unknown, it is that of the host's part of the step. Steady iterations
        of unknown length are left out.
        """
        first, known = self._first_and_steady
        return (first, round(median(known)), first + sum(known), len(known)) if first and known else None

    @property
    def first_is_usual(self) -> bool:
        """Whether more than `AS_LONG` of the steady iterations take as long as a cold first one."""
        first, known = self._first_and_steady
        return sum(ns >= first for ns in known) > AS_LONG * len(known)

    @cached_property
    def _first_and_steady(self) -> tuple[int, list[int]]:
        cold = self.cold[:1]
        steady = [one for one in self.steady.told.all if self.steady.has(one.number)]
        if not (cold and steady):
            return 0, []
        is_told = cold[0].step_ns is not None and any(one.step_ns is not None for one in steady)
        first, *later = ((one.step_ns if is_told else one.host_ns) or 0 for one in (*cold, *steady))
        return first, [ns for ns in later if ns]

    @cached_property
    def first_prepared(self) -> dict[str, int]:
        """Return the work of the host in a cold first iteration only (builds, loads, allocations), in ns, most
        first."""
        told, numbers = self.steady.told, {one.number for one in self.cold}
        places = {place for place, one in enumerate(told.all) if one.number in numbers}
        return prepared(self.alignment, np.flatnonzero(np.isin(told.place_of, [*places])))

    # -- the kind of program: advice has to fit it -------------------------------------------------------------------

    @cached_property
    def is_torch(self) -> bool:
        """Whether PyTorch ran the kernels: its ops or its own kernels are in the profile."""
        return any(text.startswith(("aten::", "ProfilerStep#")) for text in self.texts) or any(
            "at::native" in name for name in self.steady.counted.names
        )

    @property
    def has_all_ranks(self) -> bool:
        """Whether the profiles of all ranks of the job are here, as far as the profile or its collectives say it."""
        problems = (problem.operation.problem for problem in self.problems)
        groups = [one.members() or 0 for one in problems if one is not None]
        return 1 < max(self.profile.process.ranks or 0, *groups, 0) <= self.processes

    @property
    def is_xla(self) -> bool:
        """Whether XLA ran the kernels, for JAX or TensorFlow."""
        return self.profile.framework.name == XLA

    @cached_property
    def jitted(self) -> frozenset[str]:
        """The functions that JAX compiled, each to a program: ``jit_train_step``."""
        return frozenset(text.partition("/")[0] for text in self.texts if text.startswith("jit_") and "/" in text)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The distinct texts of ops and ranges, of which there may be a million."""
        return frozenset(one.text for one in self.profile.ranges)

    @property
    def infers(self) -> bool:
        """Whether PyTorch's ops are recorded, and none of a backward pass or an optimizer."""
        return any(text.startswith("aten::") for text in self.texts) and not any(map(part_of_step, self.texts))

    @cached_property
    def is_compiled(self) -> bool:
        """Whether torch.compile made kernels or regions of the run."""
        return any(name.startswith("triton_") for name in self.steady.counted.names) or any(
            map(_COMPILED.search, self.texts)
        )

    @property
    def is_capture(self) -> bool:
        """Whether the profile is the capture of graphs: most launches went into graphs, and no graph ran."""
        profile = self.profile
        return len(profile.captured) > len(profile.activities) and not profile.commands.is_replayed.any()

    @cached_property
    def uses_miopen(self) -> bool:
        """Whether MIOpen computes an operation of the run."""
        return any("miopen" in one.api for one in self.measures.operation_at.values())

    @cached_property
    def algorithm_of(self) -> dict[str, str]:
        """The algorithm (``Winograd``, ``Gemm``) of the kernels that take most of a problem's time, by the names of the
        kernels."""
        counted = self.steady.counted
        operations, names = (
            np.asarray(self.alignment.links.operation_of)[counted.kernels],
            counted.name_of[counted.kernels],
        )
        first, key_of = distinct((operations + 1) * np.int64(len(counted.names)) + names)
        columns = operations[first], names[first], summed(key_of, counted.ns, len(first))
        times: dict[str, Counter[str]] = defaultdict(Counter)
        for index, number, ns in zip(*(column.tolist() for column in columns), strict=True):
            meaning = kernel_name(counted.names[number])
            if index != NONE and meaning is not None and meaning.algorithm and not meaning.helps:
                times[self.steady.problem_of[index]][meaning.algorithm] += ns
        return {problem: of.most_common(1)[0][0] for problem, of in times.items()}

    @property
    def has_counters(self) -> bool:
        """Whether the profiler read hardware counters. It runs kernels one at a time then, so gaps are its own."""
        return bool(self.profile.counters)

    @cached_property
    def replayed(self) -> float:
        """The part of the steady kernel time that graphs launched."""
        counted = self.steady.counted
        is_replayed = self.profile.commands.is_replayed[counted.kernels]
        return self.share(sum(counted.ns[is_replayed].tolist()))

    @cached_property
    def host_bound(self) -> float | None:
        """The part of the step (of the recording without steps) in which the GPU waits for the host; None if the
        profile does not show it."""
        if self.profile.calls_wait or self.steady.device is None or self.lacks_work:
            return None
        of, whole = self.causes, sum(end - begin for begin, end in self.steady.spans)
        unknown = 2 * sum(cause.ns for cause in of if cause.why == "unknown") > sum(cause.ns for cause in of)
        ns = sum(cause.ns for cause in of if cause.why in ("host", "builds"))
        return None if unknown or not whole else ns / whole

    @property
    def lacks_work(self) -> bool:
        """Whether so much work is missing from the profile that any gap may be work."""
        return self.lost_launches >= MOST_LOST or self.is_filtered

    @property
    def is_filtered(self) -> bool:
        """Whether rows were filtered out of the profile."""
        return "sampled" in self.measures.completeness.counts

    @cached_property
    def lost_launches(self) -> float:
        """The part of the launches whose kernels are not in the profile."""
        lost = self.measures.completeness.counts.get("launch-without-kernel", 0)
        return lost / (lost + self.measures.whole.kernels) if lost else 0.0

    # -- problems ----------------------------------------------------------------------------------------------------

    @cached_property
    def problems(self) -> list[Problem]:
        """The problems of steady iterations that ran a kernel, most time first."""
        calls: dict[str, array[int]] = {}
        problem_of, is_known = self.steady.problem_of, bytearray(len(self.measures.first_of))
        for index in chain.from_iterable(self.stretches):
            if not is_known[index]:
                is_known[index] = 1
                calls.setdefault(problem_of[index], array("q")).append(index)
        return [self._problem(row, calls[row.key]) for row in self.steady.problems if row.key in calls]

    def _problem(self, row: SteadyCost[str], indices: Sequence[int]) -> Problem:
        operations = [self.measures.operation_at[index] for index in indices]
        solvers = dict.fromkeys(word for one in operations if (word := one.solver or one.algorithm))
        return Problem(
            row=row,
            operation=operations[0],
            samples=array("q", map(self.measures.operations.timed_ns.__getitem__, indices)),
            solver=", ".join(solvers),
            calls=tuple(operations),
            line=self._line_of(indices[0]),
        )

    def _line_of(self, index: int) -> str:
        first, profile = self.measures.first_of[index], self.profile
        return "" if first == NONE or not profile.line_of else profile.launched_by(profile.activities[first])

    # -- the device --------------------------------------------------------------------------------------------------

    @cached_property
    def units(self) -> int | None:
        """Return the number of compute units of the given GPU, else of the device that the profile names."""
        if self.gpu is not None:
            return self.gpu.units
        found = {gpu.units for device in self.profile.devices if (gpu := known(device.name)) is not None}
        return found.pop() if len(found) == 1 else None


def drivers(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return the MIOpenDriver lines of the problems that have one."""
    return tuple(problem.operation.command for problem in problems if problem.operation.command)
