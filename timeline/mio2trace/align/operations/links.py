"""The answer: which operation each activity belongs to, by which evidence, and how sure that is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mio2trace.align.clocks.axis import Timeline
from mio2trace.align.layers.placement import NONE, Placement
from mio2trace.align.operations.paths import OUTSIDE
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Activity
from mio2trace.ops.operation import Operation

if TYPE_CHECKING:
    from mio2trace.align.operations.stream import Stream

BY_OPERATION = "by operation"
"""Stands in for the evidence word until the link of each kernel lends its own."""


class Links:
    """The answer: ``operation_of[i]`` for activity i (an index, `OUTSIDE` for none) with its evidence."""

    def __init__(self, activities: Sequence[Activity], operations: Sequence[Operation]) -> None:
        self.operations = tuple(operations)
        self.operation_of = [OUTSIDE] * len(activities)
        self.by = [""] * len(activities)
        self._names = [activity.name for activity in activities]
        self.unsure: set[int] = set()
        self.contradictions: Counter[str] = Counter()
        self.streams: list[Stream] = []
        """What the links were found with, kept where somebody wants to know why."""

    def lend_evidence(self, placement: Placement, axis: Timeline) -> None:
        """Layers that an operation's place in the log told (`line_axis`) are as well known as the operation itself."""
        if axis.by != BY_OPERATION:
            return
        for position, word in enumerate(placement.by):
            if word == BY_OPERATION:
                placement.by[position] = self.by[position] or "order"
                if not self.by[position] or position in self.unsure:
                    placement.unsure.add(position)

    def keep_whole(self, placement: Placement) -> None:
        """An operation lies in one layer: where a fit of durations cuts it, its kernels go where most of them are."""
        first_run: dict[int, int] = {}
        cut: dict[int, list[int]] = {}
        for index, run in zip(self.operation_of, placement.run_of, strict=True):
            if index != OUTSIDE and first_run.setdefault(index, run) != run:
                cut[index] = []
        if cut:
            for position, index in enumerate(self.operation_of):
                if index in cut:
                    cut[index].append(position)
        for positions in cut.values():
            self._keep_whole(placement, positions)

    def _keep_whole(self, placement: Placement, positions: Sequence[int]) -> None:
        self.contradictions["operation in several layers"] += 1
        runs = Counter(placement.run_of[position] for position in positions)
        fitted = [position for position in positions if placement.by[position] in ("durations", "")]
        kept = max(runs, key=lambda run: (runs[run], -run))
        if kept == NONE or len(fitted) < len(positions):
            self.unsure.update(positions)
            return
        for position in fitted:
            if placement.run_of[position] != kept:
                placement.run_of[position] = kept
                placement.pass_of[position] = placement.runs[kept].pass_
                placement.by[position] = "durations"
                placement.unsure.add(position)

    def doubt_all(self) -> None:
        """No link is sure."""
        self.unsure.update(position for position, index in enumerate(self.operation_of) if index != OUTSIDE)

    @property
    def found(self) -> bool:
        """Whether any activity has an operation."""
        return any(index != OUTSIDE for index in self.operation_of)

    def only_main(self) -> dict[int, int]:
        """Position -> operation, for the one kernel that does all of an executed operation's work."""
        mains: dict[int, int] = {}
        several: set[int] = set()
        executed = {operation.index for operation in self.operations if operation.phase == "run"}
        for position, index in enumerate(self.operation_of):
            if index in executed:
                name = kernel_name(self._names[position])
                if name is None or not name.helps:
                    if index in mains:
                        several.add(index)
                    mains[index] = position
        return {position: index for index, position in mains.items() if index not in several}

    def kernels_of(self) -> dict[int, list[int]]:
        """Positions of each operation's activities, in call order."""
        found: dict[int, list[int]] = defaultdict(list)
        for position, index in enumerate(self.operation_of):
            if index != OUTSIDE:
                found[index].append(position)
        return dict(found)


def line_axis(links: Links) -> Timeline | None:
    """Where no clock relates log and profile: the lines of the log, each activity at its operation's."""
    if not links.operations or all(index == OUTSIDE for index in links.operation_of):
        return None
    source = links.operations[0].source
    line_of = {operation.index: operation.line for operation in links.operations}
    lines: list[int] = []
    latest = 0
    for index in links.operation_of:
        latest = max(latest, line_of.get(index, 0))
        lines.append(latest)
    return Timeline(
        by_line=True,
        by=BY_OPERATION,
        event=lambda event: event.line if event.source == source else None,
        layer=lambda layer: layer.line if layer.source == source and layer.line else None,
        begins=lines,
        ends=lines,
    )
