"""The work of a device at each instant: computation, communication, copies, nothing.

The parts of a window add up to its length, because at each instant the first of these classes counts: computation;
communication (exposed); a copy or fill (exposed); work that the profile does not hold (`unrecorded`); idle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import Alignment
from mio2trace.align.clocks.fit import SAME
from mio2trace.kernels.names import kernel_name
from mio2trace.model.tables import Numbers

Span = tuple[int, int]
Class = Literal["compute", "communication", "copy"]
CLASSES: tuple[Class, ...] = ("compute", "communication", "copy")
_RUNTIME_COPIES = ("__amd_rocclr_copy", "__amd_rocclr_fill")
"""The beginnings of the HIP runtime's own kernels that copy and fill: `hipMemcpyAsync` on one device,
`hipMemsetAsync`."""


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """How a device spent a window, in ns; all fields except the first add up to ``length_ns``."""

    length_ns: int
    compute_ns: int = 0
    communication_ns: int = 0
    copy_ns: int = 0
    unrecorded_ns: int = 0
    idle_ns: int = 0


@lru_cache(maxsize=1 << 12)
def class_of_kernel(name: str) -> Class:
    """Return the class of a kernel by its name."""
    if name.startswith(_RUNTIME_COPIES):
        return "copy"
    meaning = kernel_name(name)
    return "communication" if meaning is not None and meaning.role == "collective" else "compute"


def has_common_clock(alignment: Alignment) -> bool:
    """Whether host and device times can be compared to the nanosecond, and the profiler did not wait for commands."""
    clocks = alignment.clocks
    return bool(clocks) and all(clock == SAME for clock in clocks.values()) and not alignment.profile.calls_wait


class Covered:
    """Spans of time in ns, merged: which parts of a window they cover. ``starts``, ``ends``: of the merged spans."""

    def __init__(self, starts: Numbers, ends: Numbers) -> None:
        # On most streams each command is behind the one before it.
        if not (bool(np.all(starts[:-1] < starts[1:])) and bool(np.all(starts[1:] > ends[:-1]))):
            order = np.lexsort((ends, starts))
            starts, until = starts[order], np.maximum.accumulate(ends[order])
            apart = starts[1:] > until[:-1]  # whether the next one begins behind all before it
            starts = np.concatenate((starts[:1], starts[1:][apart]))
            ends = np.concatenate((until[:-1][apart], until[-1:]))
        self.starts, self.ends = starts, ends
        self._before: NDArray[Any] = np.concatenate(([0], np.cumsum(ends - starts)))
        if len(starts) and int(ends[-1]) - int(starts[0]) >= 1 << 63:  # a file of our own that somebody changed
            self._before = np.concatenate(([0], np.cumsum(ends.astype(object) - starts.astype(object))))

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Covered:
        """As from their starts and ends."""
        columns = np.array([*spans], np.int64).reshape(-1, 2)
        return cls(columns[:, 0], columns[:, 1])

    def within(self, begin: int, end: int) -> int:
        """Return the covered time of a window, in ns."""
        if end <= begin:
            return 0
        first, last = bisect_right(self.ends, begin), bisect_left(self.starts, end)
        if first >= last:
            return 0
        covered = int(self._before[last]) - int(self._before[first])
        return covered - max(0, begin - int(self.starts[first])) - max(0, int(self.ends[last - 1]) - end)

    def gaps(self, begin: int, end: int) -> tuple[Numbers, Numbers]:
        """When the parts of a window that nothing covers begin and end, in order."""
        first, last = bisect_right(self.ends, begin), bisect_left(self.starts, end)
        starts = np.concatenate(([begin], self.ends[first:last]))
        ends = np.concatenate((self.starts[first:last], [end]))
        is_gap = starts < ends
        return starts[is_gap], ends[is_gap]


class Occupation:
    """One device's time by class. ``commands``: covered by a recorded command. ``held``: covered by a recorded command
    or by other work. ``unrecorded``: the times of this other work."""

    def __init__(
        self,
        starts: Numbers,
        ends: Numbers,
        classes: NDArray[np.int8],
        commands: Covered,
        unrecorded: Sequence[Span],
    ) -> None:
        """The commands' times and classes (places in `CLASSES`), a value each; what they cover."""
        self.commands = self.held = commands
        if unrecorded:
            more = np.array([*unrecorded]).T
            self.held = Covered(np.concatenate((commands.starts, more[0])), np.concatenate((commands.ends, more[1])))
        self.unrecorded = tuple(unrecorded)
        there = np.bincount(classes, minlength=len(CLASSES)).tolist()
        self._levels: list[Covered] = []
        for number in range(len(CLASSES)):
            if not any(there[number + 1 :]):
                self._levels.append(commands)
            elif self._levels and not there[number]:
                self._levels.append(self._levels[-1])
            else:
                is_in = classes <= number
                self._levels.append(Covered(starts[is_in], ends[is_in]))
        self._levels.append(self.held)

    def busy(self, begin: int, end: int) -> Busy:
        """Return how the window was spent."""
        compute, communication, copy, held = (level.within(begin, end) for level in self._levels)
        return Busy(
            length_ns=end - begin,
            compute_ns=compute,
            communication_ns=communication - compute,
            copy_ns=copy - communication,
            unrecorded_ns=held - copy,
            idle_ns=end - begin - held,
        )
