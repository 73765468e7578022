"""The kernels of one queue against the calls that may have launched them."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align.links import NONE, Links
from mio2trace.align.operations import displaced
from mio2trace.align.operations.likeness import Likeness
from mio2trace.align.operations.paths import NARROW, WIDE, WIDEST, Path, PathFinder
from mio2trace.align.operations.windows import Windows
from mio2trace.evidence import BUFFERS, LAUNCH_LINE, NAME_AND_SIZES, ORDER, POSITION, Evidence
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import Operation

TOO_MANY = 100_000
"""Kernels of a stream that are too many to search widely: what is ambiguous is then found by `displaced` alone."""
COVERED = 0.9
"""Part of the library's kernels that a log must tell of for names and order alone to be believed."""
SURE = 2.0
"""How much worse, in points, the next best path must be."""


class Stream:
    """The kernels of one queue against the operations that may have launched them.

    ``shared`` are indexes of operations that may as well be another queue's; ``without``, evidence to leave out.
    """

    def __init__(
        self,
        profile: Profile,
        positions: Sequence[int],
        likeness: Likeness,
        windows: Windows,
        shared: frozenset[int],
        without: frozenset[str],
    ) -> None:
        self.profile = profile
        self.positions = positions
        self.operations = likeness.operations
        self.likeness = likeness
        self.windows = windows
        self.shared = shared
        self.without = without
        self.path: Path | None = None

    def link(self, links: Links) -> None:
        """Give the kernels to the operations of the best path."""
        if not self.operations:
            return
        path = self.path = self._best_path()
        for number, place in enumerate(path.operation):
            if place == NONE:
                continue
            by = self._by(number, place)
            if by in self.without:
                continue
            operation = self.operations[place]
            sure = path.margin[number] >= SURE and not self._is_torn(operation)
            links.give_operation((self.positions[number],), operation.index, by, sure=sure)
        if self._is_vague(path, links):
            links.doubt_operation(self.positions)
        moved = displaced.of_kernels(self.likeness, self.windows, path.operation)
        moved |= displaced.of_operations(self.likeness, self.windows, path.operation)
        links.doubt_operation(self.positions[number] for number in moved)

    def _is_vague(self, path: Path, links: Links) -> bool:
        """Whether names and order alone join what hardly covers each other: the log may be of anything."""
        if self.windows.by or any(
            links.operation_by[position] in (BUFFERS, LAUNCH_LINE) for position in self.positions
        ):
            return False
        library = [number for number in range(len(self.positions)) if self.likeness.kind(number).library]
        linked = sum(path.operation[number] != NONE for number in library)
        return linked < COVERED * len(library)

    def _is_torn(self, operation: Operation) -> bool:
        """Whether part of what the log said of the call is missing: its entry, or the entry's end."""
        if (
            self.likeness.entered
            and not operation.api.startswith("miopen")
            and operation.command_line != operation.line
        ):
            return True
        return operation.torn

    def _best_path(self) -> Path:
        """A narrow search, and wider ones where nothing bounds it and something is left over on either side."""
        path = self._path(NARROW)
        if self.windows.by or len(self.positions) > TOO_MANY:
            return path
        linked = set(path.operation)
        idle = any(
            place not in linked and operation.phase == "run" for place, operation in enumerate(self.operations)
        ) or any(place == NONE and self.likeness.kind(number).library for number, place in enumerate(path.operation))
        for width in (WIDE, WIDEST) if idle else ():
            wider = self._path(width)
            if wider.points <= path.points and width == WIDEST:
                break
            path = wider
        return path

    def _path(self, width: tuple[float, int]) -> Path:
        return PathFinder(self.likeness, len(self.positions), self.windows, self.shared, width).find()

    def _by(self, number: int, place: int) -> Evidence:
        """The strongest evidence that there is for this link."""
        if self.windows.by == POSITION:
            return POSITION
        fit = self.likeness.fit(number, place)
        if fit.buffers:
            return BUFFERS
        if fit.launched:
            return LAUNCH_LINE
        if self.windows.by and self.windows.first[number] == self.windows.last[number]:
            return self.windows.by
        return NAME_AND_SIZES if fit.named else ORDER
