"""The kernels of one queue against the calls that may have launched them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mio2trace.align.clocks.axis import HostTimes, Timeline
from mio2trace.align.clocks.fit import LogClock
from mio2trace.align.operations import displaced as shifts
from mio2trace.align.operations import windows as places
from mio2trace.align.operations.likeness import Likeness
from mio2trace.align.operations.links import Links
from mio2trace.align.operations.paths import NARROW, OUTSIDE, WIDE, WIDEST, Path, PathFinder
from mio2trace.kernels import KernelFact
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import Operation

TOO_MANY = 100_000
"""Kernels of a stream that are too many to search widely: what is ambiguous is then found by `shifts` alone."""
COVERED = 0.9
"""Part of the library's kernels that a log must tell of for names and order alone to be believed."""
SURE = 2.0
"""How much worse, in points, the next best path must be."""


class Evidence:
    """What besides the kernels themselves bounds the operations: one axis with the log, or its stamps on the host's."""

    def __init__(
        self,
        logs: Sequence[FrameworkLog] = (),
        axis: Timeline | None = None,
        clock: LogClock | None = None,
        times: HostTimes | None = None,
    ) -> None:
        self.logs = logs
        self.axis = axis
        self.clock = clock
        self.times = times


class Stream:
    """The kernels of one queue against the operations that may have launched them."""

    def __init__(
        self,
        profile: Profile,
        positions: Sequence[int],
        operations: Sequence[Operation],
        facts: Mapping[int, KernelFact],
        evidence: Evidence,
        without: frozenset[str],
        shared: frozenset[int],
        streams: int,
    ) -> None:
        self.profile = profile
        self.positions = positions
        self.operations = operations
        self.facts = facts
        self.shared = shared
        # 1: a call is over before the next stamp; 2: before a stamp after the stream's next call; more: after some.
        self.slack = 1 if streams == 1 else 2 * streams if shared else 2
        self.without = without
        self.likeness = Likeness(profile, positions, operations, facts, without)
        self.windows = self._windows(evidence)
        self.path: Path | None = None

    def _windows(self, evidence: Evidence) -> places.Windows:
        found: places.Windows | None = None
        if evidence.axis is not None and "position" not in self.without:
            found = places.by_lines(self.positions, self.profile.activities, self.operations, evidence.axis)
        if found is None and "boundary stamps" not in self.without:
            found = places.by_stamps(
                self.positions, self.operations, evidence.logs, evidence.clock, evidence.times, self.slack
            )
        return found or places.everywhere(len(self.positions), len(self.operations))

    def link(self, links: Links) -> None:
        if not self.operations:
            return
        path = self.path = self._best_path()
        for number, place in enumerate(path.operation):
            if place == OUTSIDE:
                continue
            position = self.positions[number]
            by = self._by(number, place)
            if by in self.without:
                continue
            links.operation_of[position] = self.operations[place].index
            links.by[position] = by
            if path.margin[number] < SURE or self.is_torn(self.operations[place]):
                links.unsure.add(position)
        if self._is_vague(path, links):
            links.unsure.update(p for p in self.positions if links.operation_of[p] != OUTSIDE)
        doubted = shifts.of_kernels(self.likeness, self.windows, path.operation)
        doubted |= shifts.of_operations(self.likeness, self.windows, path.operation)
        links.unsure.update(self.positions[number] for number in doubted)

    def _is_vague(self, path: Path, links: Links) -> bool:
        """Whether names and order alone join what hardly covers each other: the log may be of anything."""
        if self.windows.by or any(links.by[position] in ("buffers", "launch line") for position in self.positions):
            return False
        library = [number for number in range(len(self.positions)) if self.likeness.kind(number).library]
        linked = sum(path.operation[number] != OUTSIDE for number in library)
        return linked < COVERED * len(library)

    def is_torn(self, operation: Operation) -> bool:
        """Whether part of what the log said of the call is missing: its entry, or the entry's end."""
        if (
            self.likeness.entered
            and not operation.api.startswith("miopen")
            and operation.command_line != operation.line
        ):
            return True
        return any("cut off" in doubt for doubt in operation.doubts)

    def _best_path(self) -> Path:
        """A narrow search, and wider ones where nothing bounds it and something is left over on either side."""
        path = self._path(NARROW)
        if self.windows.by or len(self.positions) > TOO_MANY:
            return path
        linked = set(path.operation)
        idle = any(
            place not in linked and operation.phase == "run" for place, operation in enumerate(self.operations)
        ) or any(place == OUTSIDE and self.likeness.kind(number).library for number, place in enumerate(path.operation))
        for width in (WIDE, WIDEST) if idle else ():
            wider = self._path(width)
            if wider.points <= path.points and width == WIDEST:
                break
            path = wider
        return path

    def _path(self, width: tuple[float, int]) -> Path:
        return PathFinder(self.likeness, len(self.positions), self.windows, self.shared, width).find()

    def _by(self, number: int, place: int) -> str:
        """The strongest evidence that there is for this link."""
        if self.windows.by == "position":
            return "position"
        fit = self.likeness.fit(number, place)
        if fit.buffers:
            return "buffers"
        if fit.launched:
            return "launch line"
        if self.windows.by and self.windows.first[number] == self.windows.last[number]:
            return self.windows.by
        return "name and sizes" if fit.named else "order"
