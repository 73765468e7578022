"""What a device did at each instant: computation, communication, copies, nothing.

Of commands that run side by side the first of these classes counts, so that the parts of a window add up to its length:
computation; communication that no computation hides (exposed); a copy or fill that neither hides (exposed); work that
the profile does not hold (`unrecorded`); idle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Literal

import msgspec

from mio2trace.kernels.names import kernel_name

Span = tuple[int, int]
Class = Literal["compute", "communication", "copy"]
CLASSES: tuple[Class, ...] = ("compute", "communication", "copy")
_RUNTIME_COPIES = ("__amd_rocclr_copy", "__amd_rocclr_fill")
"""The HIP runtime's own kernels that copy and fill begin so: `hipMemcpyAsync` on one device, `hipMemsetAsync`."""


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """How a device spent a window, in ns; all but the first add up to ``length_ns``."""

    length_ns: int
    compute_ns: int = 0
    communication_ns: int = 0
    copy_ns: int = 0
    unrecorded_ns: int = 0
    idle_ns: int = 0


@lru_cache(maxsize=1 << 12)
def class_of_kernel(name: str) -> Class:
    """What a kernel does, by its name."""
    if name.startswith(_RUNTIME_COPIES):
        return "copy"
    meaning = kernel_name(name)
    return "communication" if meaning is not None and meaning.role == "collective" else "compute"


class Covered:
    """Spans of time, merged: which parts of a window they cover."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        starts, ends = self.starts, self.ends
        until = None
        for start, end in sorted(spans):
            if until is None or start > until:
                starts.append(start)
                ends.append(end)
                until = end
            elif end > until:
                ends[-1] = until = end
        self._before = [0, *accumulate(map(int.__sub__, ends, starts))]

    def within(self, begin: int, end: int) -> int:
        """How much of a window is covered, in ns."""
        if end <= begin:
            return 0
        first, last = bisect_right(self.ends, begin), bisect_left(self.starts, end)
        if first >= last:
            return 0
        covered = self._before[last] - self._before[first]
        return covered - max(0, begin - self.starts[first]) - max(0, self.ends[last - 1] - end)

    def gaps(self, begin: int, end: int) -> Iterator[Span]:
        """The parts of a window that nothing covers, in order."""
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
    """One device's time by class. ``commands``: covered by any recorded command; ``held``: or by other work, too;
    ``unrecorded``: when that ran."""

    def __init__(self, spans: Mapping[Class, Sequence[Span]], unrecorded: Sequence[Span] = ()) -> None:
        """``spans``: of each class the (start, end) of its commands; ``unrecorded``: when other work ran."""
        so_far: list[Span] = []
        self._levels: list[Covered] = []
        for own in (*(spans.get(of, ()) for of in CLASSES), unrecorded):
            so_far += own
            self._levels.append(Covered(so_far) if own or not self._levels else self._levels[-1])
        *_, self.commands, self.held = self._levels
        self.unrecorded = tuple(unrecorded)

    def busy(self, begin: int, end: int) -> Busy:
        """How the window was spent."""
        compute, communication, copy, held = (level.within(begin, end) for level in self._levels)
        return Busy(
            length_ns=end - begin,
            compute_ns=compute,
            communication_ns=communication - compute,
            copy_ns=copy - communication,
            unrecorded_ns=held - copy,
            idle_ns=end - begin - held,
        )
