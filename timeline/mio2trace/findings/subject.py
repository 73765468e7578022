"""The data that the rules use: the kernels of steady iterations, their problems, their pauses.

T is the kernel time of a steady iteration (`mio2trace.measures.steady`); shares are of T.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter

import msgspec

from mio2trace.align import NONE
from mio2trace.findings.gpus import Gpu, known
from mio2trace.findings.rule import PART, WHOLE, ms, of_one
from mio2trace.kernels.names import kernel_name
from mio2trace.measures import Measures
from mio2trace.measures.device_time.gaps import Cause, causes, prepared
from mio2trace.measures.iterations import Iteration
from mio2trace.measures.makeup import Makeup, makeup
from mio2trace.measures.ranking import SteadyCost
from mio2trace.measures.statistics import median
from mio2trace.measures.step_time import StepTime
from mio2trace.model.miopen import Message
from mio2trace.ops.choices import Choices
from mio2trace.ops.operation import Operation

MOST_LOST = 0.1
"""Part of the launches without kernels, from which on gaps may be work that was not recorded."""

_COMPILED = re.compile(r"CompiledFxGraph|Torch-Compiled Region|CompiledFunction", re.ASCII)
is_replayed = attrgetter("is_replayed")
MOST_WORK = 2.0
"""A first iteration of another kind with more than this part of the usual kernel time does other work."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that steady iterations pose: its cost, the first call of it, the kernel time of each call in order."""

    row: SteadyCost[str]
    operation: Operation
    samples: tuple[int, ...]
    solver: str = ""
    calls: tuple[Operation, ...] = ()
    line: str = ""
    """Source line of the program that launched its first call; empty if it is not recorded."""

    @property
    def name(self) -> str:
        return self.row.key

    @property
    def at_line(self) -> str:
        """Its name, with the line that launches it."""
        return f"{self.name} ({self.line})" if self.line else self.name

    @property
    def ns(self) -> int:
        """Of all steady iterations."""
        return self.row.total_ns

    @property
    def flop(self) -> int | None:
        """Of all its calls in steady iterations; None where that of one is not known."""
        return self.row.cost.flop

    @property
    def bytes(self) -> int | None:
        """Least traffic of the same calls."""
        return self.row.cost.bytes

    @property
    def gflops(self) -> float | None:
        return self.row.cost.gflops


class Subject:
    """One profile with its logs, looked at by the rules. ``messages``: what its MIOpen logs say. ``reference``: the
    same process of a run without MIOpen's log, which slows the host. ``choices``: of databases, logs of libraries."""

    def __init__(
        self,
        measures: Measures,
        gpu: Gpu | None = None,
        messages: Sequence[Message] = (),
        reference: Measures | None = None,
        choices: Choices | None = None,
    ) -> None:
        self.measures = measures
        self.alignment = measures.alignment
        self.steady = measures.steady
        self.gpu = gpu
        self.messages = messages
        self._reference = reference
        self.choices = Choices() if choices is None else choices

    @cached_property
    def timed(self) -> Subject:
        """The run whose iteration and idle time are used: the run without MIOpen's log if its iterations are known,
        else this one."""
        if self._reference is not None:
            other = Subject(self._reference, self.gpu)
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
        """How many iterations are steady; at least 1, to divide by."""
        return max(1, len(self.steady.iterations))

    @property
    def total_ns(self) -> int:
        """Kernel time of all steady iterations: T times their number."""
        return self.steady.total.total_ns

    def each(self, ns: float) -> int:
        """Of all steady iterations to one of them."""
        return round(ns / self.count)

    @property
    def noun(self) -> str:
        """The denominator of a share: ``the iteration``, or a part of it if no iteration is complete."""
        return PART if self.steady.told.part else WHOLE

    @property
    def per(self) -> str:
        """What follows a number: `` per iteration``; nothing without iterations."""
        return f" {of_one(self.noun)}" if self.has_iterations else ""

    def time(self, ns: float) -> str:
        """Of all steady iterations, as words: ``1.2 ms per iteration``; without iterations ``1.2 ms``."""
        return f"{ms(self.each(ns))}{self.per}"

    def share(self, ns: float) -> float:
        """Part of the kernel time of all steady iterations."""
        return ns / self.total_ns if self.total_ns else 0.0

    @cached_property
    def stretches(self) -> list[array[int]]:
        """Positions of the kernels and copies of each steady iteration, in order."""
        told, counts = self.steady.told, self.steady.has
        of_place = [array("q") if counts(one.number) else None for one in told.all]
        for position, place in enumerate(told.place_of):
            if place != NONE and (stretch := of_place[place]) is not None:
                stretch.append(position)
        return [stretch for stretch in of_place if stretch is not None]

    @cached_property
    def makeup(self) -> Makeup:
        return makeup(self.measures)

    @property
    def step_time(self) -> StepTime | None:
        """How long a steady step lasts and what it consists of, on the slowest device."""
        return self.steady.step_time

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why that device idled."""
        return self.steady.idle_causes

    # -- what is in none of them -------------------------------------------------------------------------------------

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
        """The cold first iterations. The first one may run a few other kernels than the steady ones (an optimiser
        without state, gradients that are none yet): it is cold if it alone builds or loads programs."""
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
    def first_iteration(self) -> tuple[int, int, int] | None:
        """How long a cold first iteration took, the median of the steady ones, and the sum of all these.

        The length is that of the step, or of the host's part of it if that is longer and known of all. Steady ones of
        unknown length are left out. None if the first iteration is not cold.
        """
        cold = self.cold[:1]
        steady = [one for one in self.steady.told.all if self.steady.has(one.number)]
        if not (cold and steady):
            return None
        on_host = all(one.host_ns is not None for one in (*cold, *steady))
        first, *later = (max(one.step_ns or 0, one.host_ns or 0 if on_host else 0) for one in (*cold, *steady))
        known = [ns for ns in later if ns]
        return (first, round(median(known)), first + sum(known)) if first and known else None

    @cached_property
    def first_prepared(self) -> dict[str, int]:
        """What the host did in a cold first iteration that later ones need not, and how many ns, most first."""
        told, numbers = self.steady.told, {one.number for one in self.cold}
        places = {place for place, one in enumerate(told.all) if one.number in numbers}
        return prepared(self.alignment, [position for position, place in enumerate(told.place_of) if place in places])

    # -- what the program is: advice has to fit it -------------------------------------------------------------------

    @cached_property
    def is_torch(self) -> bool:
        """Whether PyTorch ran the kernels: its ops or its own kernels are in the profile."""
        profile = self.alignment.profile
        return any(one.text.startswith(("aten::", "ProfilerStep#")) for one in profile.ranges) or any(
            "at::native" in name for name in self.steady.counted.names
        )

    @cached_property
    def texts(self) -> frozenset[str]:
        """The texts of ops and ranges, each once: there may be a million of them."""
        return frozenset(one.text for one in self.alignment.profile.ranges)

    @cached_property
    def is_compiled(self) -> bool:
        """Whether torch.compile made kernels or regions of the run."""
        return any(name.startswith("triton_") for name in self.steady.counted.names) or any(
            map(_COMPILED.search, self.texts)
        )

    @property
    def is_capture(self) -> bool:
        """Whether the profile is the capture of graphs: most of what was launched went into graphs, and none of them
        ran."""
        profile = self.alignment.profile
        return len(profile.captured) > len(profile.activities) and not any(map(is_replayed, profile.activities))

    @property
    def has_stacks(self) -> bool:
        """Whether PyTorch recorded Python functions."""
        profile = self.alignment.profile
        return bool(profile.line_of or profile.functions)

    @cached_property
    def is_nvidia(self) -> bool:
        """Whether the GPUs are NVIDIA's, by their names or by the API that launched the kernels."""
        profile = self.alignment.profile
        calls = (one.call.name for one in profile.activities if one.call is not None)
        return any("NVIDIA" in device.name for device in profile.devices) or next(calls, "").startswith("cu")

    @cached_property
    def uses_miopen(self) -> bool:
        """Whether MIOpen computes an operation of the run."""
        return any("miopen" in one.api for one in self.measures.operation_at.values())

    @cached_property
    def algorithm_of(self) -> dict[str, str]:
        """By problem, the algorithm (``Winograd``, ``Gemm``) whose kernels take most of its time, by their names."""
        links, counted, activities = self.alignment.links, self.steady.counted, self.alignment.profile.activities
        times: dict[str, Counter[str]] = defaultdict(Counter)
        for position, ns in zip(counted.kernels, counted.ns, strict=True):
            index, meaning = links.operation_of[position], kernel_name(activities[position].name)
            if index != NONE and meaning is not None and meaning.algorithm and not meaning.helps:
                times[self.steady.problem_of[index]][meaning.algorithm] += ns
        return {problem: of.most_common(1)[0][0] for problem, of in times.items()}

    @property
    def waits(self) -> bool:
        """Whether the profiler waits for each command (dv/dt, OpenCL): gaps between commands say nothing then."""
        return self.alignment.profile.calls_wait

    @cached_property
    def replayed(self) -> float:
        """Part of the steady kernel time that graphs launched."""
        activities, counted = self.alignment.profile.activities, self.steady.counted
        pairs = zip(counted.kernels, counted.ns, strict=True)
        return self.share(sum(ns for position, ns in pairs if activities[position].is_replayed))

    @cached_property
    def host_bound(self) -> float | None:
        """Part of the step, or of the recording without steps, in which the GPU waits for the host; None if the profile
        does not show it."""
        step, device = self.step_time, self.steady.device
        if self.waits or device is None or self.lacks_work:
            return None
        if step is not None:
            of, whole = self.causes, step.step_ns * len(step.windows)
        else:
            covered, whole = device.occupation.commands, device.recording.length_ns
            of = causes(self.alignment, device, [(covered.starts[0], covered.ends[-1])])
        unknown = 2 * sum(cause.ns for cause in of if cause.why == "unknown") > sum(cause.ns for cause in of)
        ns = sum(cause.ns for cause in of if cause.why in ("host", "builds"))
        return None if unknown or not whole else ns / whole

    @property
    def lacks_work(self) -> bool:
        """Whether so much of the work is not in the profile that any gap may be work."""
        return self.lost_launches >= MOST_LOST or self.is_filtered

    @property
    def is_filtered(self) -> bool:
        """Whether rows were filtered out of the profile."""
        return "sampled" in self.measures.completeness.counts

    @cached_property
    def lost_launches(self) -> float:
        """Part of the launches whose kernels are not in the profile."""
        lost = self.measures.completeness.counts.get("launch-without-kernel", 0)
        return lost / (lost + self.measures.whole.kernels) if lost else 0.0

    # -- problems ----------------------------------------------------------------------------------------------------

    @cached_property
    def problems(self) -> list[Problem]:
        """Most time first; those that ran no kernel in steady iterations are left out."""
        calls: dict[str, list[int]] = {}
        problem_of = self.steady.problem_of
        positions = chain.from_iterable(self.stretches)
        for index in dict.fromkeys(map(self.alignment.links.operation_of.__getitem__, positions)):
            if index != NONE:
                calls.setdefault(problem_of[index], []).append(index)
        return [self._problem(row, calls[row.key]) for row in self.steady.problems if row.key in calls]

    def _problem(self, row: SteadyCost[str], indices: Sequence[int]) -> Problem:
        operations = [self.measures.operation_at[index] for index in indices]
        solvers = dict.fromkeys(word for one in operations if (word := one.solver or one.algorithm))
        return Problem(
            row=row,
            operation=operations[0],
            samples=tuple(self.measures.operations.timed_ns[index] for index in indices),
            solver=", ".join(solvers),
            calls=tuple(operations),
            line=self._line_of(indices[0]),
        )

    def _line_of(self, index: int) -> str:
        first, profile = self.measures.first_of[index], self.alignment.profile
        return "" if first == NONE else profile.launched_by(profile.activities[first])

    # -- the device --------------------------------------------------------------------------------------------------

    @cached_property
    def units(self) -> int | None:
        """Compute units: the given GPU's, else of the device that the profile names."""
        if self.gpu is not None:
            return self.gpu.units
        found = {gpu.units for device in self.alignment.profile.devices if (gpu := known(device.name)) is not None}
        return found.pop() if len(found) == 1 else None


def drivers(problems: Sequence[Problem]) -> tuple[str, ...]:
    """MIOpenDriver lines of those that have one."""
    return tuple(problem.operation.command for problem in problems if problem.operation.command)
