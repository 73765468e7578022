"""The work of a device at each instant: computation, communication, copies, nothing.

The parts of a window add up to its length, because at each instant the first of these classes counts: computation;
communication (exposed); a copy or fill (exposed); work that the profile does not hold (`unrecorded`); idle.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, compress, groupby
from operator import gt, lt, sub
from typing import Literal, NamedTuple

import msgspec

from mio2trace.align import Alignment
from mio2trace.align.clocks.fit import SAME
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Profile

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
    """Merged spans of time, which answer how much of a window they cover."""

    def __init__(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        # On most streams each command begins after the one before it has ended.
        if not (all(map(lt, starts, starts[1:])) and all(map(gt, starts[1:], ends))):
            ordered = sorted(zip(starts, ends, strict=True))
            starts = [start for start, _ in ordered]
            until = [*accumulate((end for _, end in ordered), max)]
            apart = [*map(gt, starts[1:], until)]  # whether the next one begins after all before it have ended
            starts = [*starts[:1], *compress(starts[1:], apart)]
            ends = [*compress(until, apart), *until[-1:]]
        self.starts, self.ends = starts, ends
        self._before: Sequence[int]
        try:
            self._before = array("q", accumulate(map(sub, self.ends, self.starts), initial=0))
        except OverflowError:  # a file of ours that somebody changed may have any times
            self._before = [*accumulate(map(sub, self.ends, self.starts), initial=0)]

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Covered:
        """As from their starts and ends."""
        held = [*spans]
        return cls([start for start, _ in held], [end for _, end in held])

    def within(self, begin: int, end: int) -> int:
        """Return the covered time of a window, in ns."""
        if end <= begin:
            return 0
        first, last = bisect_right(self.ends, begin), bisect_left(self.starts, end)
        if first >= last:
            return 0
        covered = self._before[last] - self._before[first]
        return covered - max(0, begin - self.starts[first]) - max(0, self.ends[last - 1] - end)

    def gaps(self, begin: int, end: int) -> Iterator[Span]:
        """Return the uncovered parts of a window, in order."""
        at = bisect_right(self.ends, begin)
        while begin < end:
            start = self.starts[at] if at < len(self.starts) else end
            if start > begin:
                yield begin, min(start, end)
            if start >= end:
                return
            begin = self.ends[at]
            at += 1


class Occupation:
    """One device's time by class. ``commands``: covered by a recorded command. ``held``: covered by a recorded command
    or by other work. ``unrecorded``: the times of this other work."""

    def __init__(
        self,
        starts: Sequence[int],
        ends: Sequence[int],
        classes: Sequence[Class],
        commands: Covered,
        unrecorded: Sequence[Span],
    ) -> None:
        """``starts``, ``ends``, ``classes``: of each command."""
        self.commands = self.held = commands
        if unrecorded:
            self.held = Covered.of([*zip(commands.starts, commands.ends, strict=True), *unrecorded])
        self.unrecorded = tuple(unrecorded)
        there = {*classes}
        self._levels: list[Covered] = []
        for number in range(1, len(CLASSES) + 1):
            so_far = frozenset(CLASSES[:number])
            if there <= so_far:
                self._levels.append(commands)
            elif self._levels and CLASSES[number - 1] not in there:
                self._levels.append(self._levels[-1])
            else:
                is_in = [*map(so_far.__contains__, classes)]
                self._levels.append(Covered([*compress(starts, is_in)], [*compress(ends, is_in)]))
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


# ----------------------------------------------------------------------------------------------------------------------
# What the measures ask of every command of a profile, as lists: a loop over a list costs a tenth of one over objects
#
# Made where it is needed and let go behind it: on a large profile each list is as long as the profile.

Times = list[int | None]


class Commands:
    """Columns with one value per activity: ``starts`` and ``ends`` on its device; ``called`` and ``returned`` of its
    launch, if recorded; ``devices``: the number of its device. Times are in ns."""

    def __init__(self, profile: Profile) -> None:
        self._activities = profile.activities
        self.starts: Times = [one.start_ns for one in profile.activities]
        self.ends: Times = [one.end_ns for one in profile.activities]
        device_of = {queue.index: queue.device for queue in profile.queues}
        self.devices = [device_of.get(one.queue, 0) for one in profile.activities]

    @cached_property
    def called(self) -> Times:
        return [None if (call := one.call) is None else call.start_ns for one in self._activities]

    @cached_property
    def returned(self) -> Times:
        return [None if (call := one.call) is None else call.end_ns for one in self._activities]


class Stretch(NamedTuple):
    """Neighbours in a list, from ``first`` to before ``end``, in the same iteration."""

    place: int
    first: int
    end: int


def stretches(place_of: Sequence[int]) -> Iterator[Stretch]:
    """Split a list of the places of iterations where the place changes."""
    first = 0
    for place, members in groupby(place_of):
        end = first + len(list(members))
        yield Stretch(place, first, end)
        first = end


def known(column: Iterable[int | None]) -> list[int]:
    return [one for one in column if one is not None]
