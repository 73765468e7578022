"""The steps of a serving engine by kind: phase, batch and tokens, and how long one lasts (torch-graphs.md 5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mio2trace.align.layers.marked_steps import MarkedStep
from mio2trace.measures.statistics import mean

if TYPE_CHECKING:
    from mio2trace.measures import Measures
    from mio2trace.measures.iterations import Iteration


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one phase and batch: how many, their means. ``tokens``: of all of them; None where that is not told.

    ``step_ns``: from one to the next on the slowest device, None where no end is known; ``counts``: whether the means
    of layers, operations and kernels are over steps of this kind.
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
    """By phase and batch, most kernel time first; empty where no engine marks its steps."""
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
    """The marked step of each iteration, by its number."""
    if measures.steady.told.told_by != "named":
        return {}
    return {step.number: step for step in measures.alignment.steps}


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
