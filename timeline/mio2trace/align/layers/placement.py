"""Where each activity belongs: its pass, its layer, the evidence. Filled by the steps of `layers`, strongest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from mio2trace.model.log import Direction
from mio2trace.model.profile import Activity

Phase = Literal["setup", "warm-up", "iteration"]

EVIDENCE = (
    "range",
    "correlation",
    "timer marks",
    "position",
    "buffers",
    "launch line",
    "boundary stamps",
    "recurrence",
    "name and sizes",
    "durations",
    "order",
)
"""The evidence words, strongest first (trace-contract.md 3)."""

NONE = -1


class Pass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stretch of the run: set-up, or one direction of the warm-up (iteration 0) or of a benchmark iteration."""

    phase: Phase
    iteration: int | None = None
    direction: Direction | None = None

    @property
    def name(self) -> str:
        """As shown: ``iteration 1 · forward``."""
        if self.phase == "setup":
            return "set-up"
        name = "warm-up" if self.phase == "warm-up" else f"iteration {self.iteration}"
        return f"{name} · {self.direction}" if self.direction else name


class LayerRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One execution of a layer. Host times bound it where something on the host does."""

    layer: str
    layer_index: int
    direction: Direction
    pass_: int
    printed_ns: int | None = None
    host_start_ns: int | None = None
    host_end_ns: int | None = None


class Placement:
    """The growing answer: ``run_of[i]`` and ``pass_of[i]`` for activity i (`NONE` when unknown), with its evidence."""

    def __init__(self, activities: Sequence[Activity]) -> None:
        self.activities = activities
        self.numbers = [activity.number for activity in activities]
        self.passes: list[Pass] = []
        self.runs: list[LayerRun] = []
        self.pass_of = [NONE] * len(activities)
        self.run_of = [NONE] * len(activities)
        self.by = [""] * len(activities)
        self.unsure: set[int] = set()
        self.contradictions: Counter[str] = Counter()
        self._pass_ids: dict[Pass, int] = {}

    def pass_id(self, phase: Phase, iteration: int | None = None, direction: Direction | None = None) -> int:
        """The number of this pass, made when new."""
        key = Pass(phase=phase, iteration=iteration, direction=direction)
        number = self._pass_ids.get(key)
        if number is None:
            number = self._pass_ids[key] = len(self.passes)
            self.passes.append(key)
        return number

    def add_run(self, run: LayerRun) -> int:
        self.runs.append(run)
        return len(self.runs) - 1

    def place(self, positions: Iterable[int], run: int, by: str, *, sure: bool = True) -> None:
        """Put activities into a layer's run. A stronger link stays; where it says otherwise, that is counted."""
        pass_ = self.runs[run].pass_
        for position in positions:
            held = self.run_of[position]
            if held == NONE:
                self.run_of[position] = run
                self.pass_of[position] = pass_
                self.by[position] = by
                if not sure:
                    self.unsure.add(position)
            elif held != run and not self._same_layer(held, run):
                self.contradictions[f"{by} against {self.by[position]}"] += 1

    def place_in_pass(self, positions: Iterable[int], pass_: int) -> None:
        """Put activities that are in no pass yet into one."""
        for position in positions:
            if self.pass_of[position] == NONE:
                self.pass_of[position] = pass_

    def iteration_of(self, position: int) -> int | None:
        pass_ = self.pass_of[position]
        return None if pass_ == NONE else self.passes[pass_].iteration

    def _same_layer(self, one: int, other: int) -> bool:
        a, b = self.runs[one], self.runs[other]
        return a.layer_index == b.layer_index and a.pass_ == b.pass_
