"""The launches that a call's lines print, by what a profile may have of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod

from mio2trace.kernels.cut import left_of
from mio2trace.model.profile import Size3
from mio2trace.ops.operation import Launch


class Launches:
    """Those of one call. ``names``: all of the queue's kernels; ``cut``: the length at which a tool cut them, or 0.

    ``of_others``: the work items of those whose names no kernel of the queue has.
    """

    def __init__(self, launches: Sequence[Launch], names: Collection[str], cut: int) -> None:
        self._cut = cut
        self._named: Counter[str] = Counter()
        self._sized: Counter[tuple[str, Size3]] = Counter()
        others: set[Size3] = set()
        for launch in launches:
            label, work_items = left_of(launch.name, cut), launch.gws
            self._named[label] += 1
            if work_items is None:
                continue
            # rocprof v1 has the product of all dimensions in a table.
            for grid in {work_items, (prod(work_items), 1, 1)}:
                self._sized[label, grid] += 1
            if label not in names:
                others.add(work_items)
        self.of_others = frozenset(others)

    def count(self, name: str, grid: Size3 | None) -> int:
        """How many may be a kernel's, as far as the profile has its name and sizes (rocprof v1's databases none)."""
        label = left_of(name, self._cut)
        return self._named[label] if grid is None else self._sized[label, grid]
