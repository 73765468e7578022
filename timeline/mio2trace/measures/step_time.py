"""The length of a steady step and how the device spends it: the numbers of every answer, computed once.

Trace metadata, tables, report, JSON, dataset and comparison read `StepTime`. It describes one device: the one whose
steps are longest, because it bounds the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mio2trace.align.ranges import MarkedStep
from mio2trace.measures.device_time import Window
from mio2trace.measures.statistics import mean

if TYPE_CHECKING:
    from mio2trace.measures import Measures
    from mio2trace.measures.iterations import Iteration

PARTS = ("compute", "communication", "copy", "unrecorded", "idle")
"""The parts of a step: computation, exposed communication, exposed copies and fills, work that was not recorded, idle
time."""
_SHOWN = {"communication": "exposed communication", "copy": "exposed copies", "unrecorded": "not recorded"}


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of the steady steps of the slowest device, in ns; `PARTS` add up to ``step_ns``.

    ``device``: its number. ``steps_ns``: the length of each of these steps. ``windows``: the steps themselves.
    """

    device: int
    step_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    unrecorded_ns: int
    idle_ns: int
    steps_ns: tuple[int, ...]
    windows: tuple[Window, ...]

    @property
    def length_ns(self) -> int:
        """The length of the step, by the name that it has in `Busy`."""
        return self.step_ns

    @property
    def parts(self) -> dict[str, int]:
        """By name in `PARTS`, in ns."""
        return {name: getattr(self, f"{name}_ns") for name in PARTS}

    def percent(self, part: str) -> float:
        """A part in percent of the step."""
        return 100 * self.parts[part] / self.step_ns if self.step_ns else 0.0

    def samples(self) -> dict[str, tuple[int, ...]]:
        """Return the step and each of its parts, by the name for people, for each steady step in order."""
        busy = [window.busy for window in self.windows if window.busy is not None]
        return {"step": tuple(one.length_ns for one in busy)} | {
            _SHOWN.get(name, name): tuple(getattr(one, f"{name}_ns") for one in busy) for name in PARTS
        }

    def record(self) -> dict[str, Any]:
        """Return the record in the trace's metadata and the JSON report."""
        return {
            "device": self.device,
            "steps": len(self.steps_ns),
            "step_ns": self.step_ns,
            "step_min_ns": min(self.steps_ns),
            "step_max_ns": max(self.steps_ns),
            **{f"{name}_ns": ns for name, ns in self.parts.items()},
            **{f"{name}_percent_of_step": round(self.percent(name), 3) for name in PARTS},
        }


def step_time(device: int, windows: Sequence[Window]) -> StepTime | None:
    """Return the mean of ``windows``, steady steps of one device with known ends; None without windows."""
    busy = [window.busy for window in windows if window.busy is not None]
    if not any(one.length_ns for one in busy):
        return None
    parts = {f"{name}_ns": round(sum(getattr(one, f"{name}_ns") for one in busy) / len(busy)) for name in PARTS}
    return StepTime(
        device=device,
        step_ns=sum(parts.values()),
        **parts,
        steps_ns=tuple(one.length_ns for one in busy),
        windows=tuple(windows),
    )


# ----------------------------------------------------------------------------------------------------------------------
# The steps of a serving engine by kind: phase, batch and tokens, and their length (torch-graphs.md 5).


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one phase and batch: their number and their means. ``tokens``: of all of them; None if not recorded.

    ``step_ns``: from one to the next on the slowest device, None if no end is known. ``counts``: whether the means of
    layers, operations and kernels are over steps of this kind.
    """

    phase: str
    batch: int | None
    steps: int
    tokens: int | None
    step_ns: float | None
    kernel_ns: float
    kernels: float
    counts: bool

    @property
    def name(self) -> str:
        """``decode, batch 32``"""
        return self.phase + (f", batch {self.batch}" if self.batch is not None else "")


def step_kinds(measures: Measures) -> list[StepKind]:
    """Return kinds by phase and batch, most kernel time first; empty if no engine marks its steps."""
    told = measures.steady.told
    marked = marked_of(measures)
    kinds: dict[tuple[str, int | None], list[tuple[Iteration, MarkedStep]]] = defaultdict(list)
    for iteration in told.all:
        step = marked.get(iteration.number)
        if step is not None and step.phase and iteration.kernels:
            kinds[step.phase, step.batch].append((iteration, step))
    counted = frozenset(told.steady)
    found = []
    for (phase, batch), members in kinds.items():
        lengths = [one.step_ns for one, _ in members if one.step_ns is not None]
        found.append(
            StepKind(
                phase=phase, batch=batch, steps=len(members),
                tokens=_sum([step.tokens for _, step in members]),
                step_ns=mean(lengths) if lengths else None,
                kernel_ns=mean([one.kernel_ns for one, _ in members]) or 0.0,
                kernels=mean([one.kernels for one, _ in members]) or 0.0,
                counts=any(one.number in counted for one, _ in members),
            )
        )  # fmt: skip
    return sorted(found, key=lambda kind: (-kind.kernel_ns * kind.steps, kind.phase, kind.batch or 0))


def marked_of(measures: Measures) -> dict[int, MarkedStep]:
    """Return the marked step of each iteration, by its number."""
    if measures.steady.told.told_by != "named":
        return {}
    return {step.number: step for step in measures.alignment.steps}


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
