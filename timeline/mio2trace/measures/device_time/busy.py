"""The work of a device at each instant: computation, communication, copies, nothing.

The parts of a window add up to its length, because at each instant the first of these classes counts: computation;
communication (exposed); a copy or fill (exposed); work that the profile does not hold (`unrecorded`); idle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import Alignment
from mio2trace.align.clocks.axis import SAME
from mio2trace.kernels.names import kernel_name
from mio2trace.model.tables import Numbers
from mio2trace.patterns import late

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
        self._before: NDArray[Any] = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(ends - starts, out=self._before[1:])
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
        first, last = int(self.ends.searchsorted(begin, "right")), int(self.starts.searchsorted(end))
        if first >= last:
            return 0
        covered = int(self._before[last]) - int(self._before[first])
        return covered - max(0, begin - int(self.starts[first])) - max(0, int(self.ends[last - 1]) - end)

    def gaps(self, begin: int, end: int) -> tuple[Numbers, Numbers]:
        """When the parts of a window that nothing covers begin and end, in order."""
        first, last = int(self.ends.searchsorted(begin, "right")), int(self.starts.searchsorted(end))
        starts = np.concatenate(([begin], self.ends[first:last]))
        ends = np.concatenate((self.starts[first:last], [end]))
        is_gap = starts < ends
        return (starts, ends) if is_gap.all() else (starts[is_gap], ends[is_gap])


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


# -- Exposed copies and fills by direction -----------------------------------------------------------------------------

DIRECTIONS = ("host to device", "device to host", "device to device", "copies", "copy kernels", "fills")
"""Copies of known direction; other copies; the runtime's kernels that copy, in any direction; fills."""
_BLOCKING = late(r"(?:hip|cuda)Memcpy(?!\w{0,24}Async)", re.ASCII)
"""Calls that return after the copy."""
_PAGEABLE, _PINNED = ", pageable", ", pinned"
"""The ends of names of copies whose memory the profiler names."""


class Exposed(msgspec.Struct, frozen=True, kw_only=True):
    """The exposed time of one of `DIRECTIONS`, in ns. If copies of two directions run at the same time, it is that of
    the first of them.

    Of all copies that begin in the same spans: ``count``; ``bytes`` and ``bytes_ns``, their size and their time as far
    as sizes are known; ``blocking``, the part of their time whose calls block the host, None if no call is known;
    ``pageable``, the part of their time with pageable memory, None if the profiler names the memory of none.
    """

    direction: str
    ns: int
    count: int
    bytes: int
    bytes_ns: int
    blocking: float | None
    pageable: float | None


def exposed_copies(alignment: Alignment, device: int, spans: Sequence[Span]) -> list[Exposed]:
    """Return the exposed copies of a device in some spans of time, most time first. ``spans``: at least one, in order.

    The times of all directions add up to the part ``copy_ns`` of the spans (`Occupation.busy`).
    """
    profile, commands = alignment.profile, alignment.profile.commands
    devices = commands.of_queue({queue.index: queue.device for queue in profile.queues}, 0)
    rows = np.flatnonzero((devices == device) & commands.has_times)
    is_kernel, starts, ends = commands.is_kernel[rows], commands.start_ns[rows], commands.end_ns[rows]
    works = is_kernel & ~commands.name.where(lambda name: class_of_kernel(name) == "copy")[rows]
    is_filling = commands.name.where(lambda name: name.startswith(("fill", "__amd_rocclr_fill")))[rows]
    place = {direction: at for at, direction in enumerate(DIRECTIONS)}
    routes = np.array([place.get(route, place["copies"]) for route in commands.route.values], np.int8)
    direction_of = np.where(is_kernel, place["copy kernels"], routes[commands.route.codes[rows]])
    direction_of = np.where(is_filling, place["fills"], direction_of)
    memory_of = commands.name.where(lambda name: name.endswith((_PAGEABLE, _PINNED)))[rows]
    is_pageable = commands.name.where(lambda name: name.endswith(_PAGEABLE))[rows]
    begins, untils = np.array([*spans], np.int64).reshape(-1, 2).T
    span_of = np.searchsorted(begins, starts, side="right") - 1
    begins_inside: NDArray[np.bool_] = (span_of >= 0) & (starts < untils[span_of])
    calls = commands.calls.name.where(lambda name: _BLOCKING.match(name) is not None)
    call_of = commands.call[rows]
    blocks = (call_of >= 0) & (calls[call_of] if len(calls) else False)
    found = []
    held, level = works, Covered(starts[works], ends[works])
    before = sum(level.within(*span) for span in spans)
    for at, direction in enumerate(DIRECTIONS):
        own = ~works & (direction_of == at)
        if not own.any():
            continue
        held = held | own
        level = Covered(starts[held], ends[held])
        until = sum(level.within(*span) for span in spans)
        own &= begins_inside
        lengths, sizes = (ends - starts)[own], commands.size_bytes[rows][own]
        known = (call_of >= 0)[own]
        called = sum(lengths[known].tolist())
        named = sum(lengths[memory_of[own]].tolist())
        found.append(
            Exposed(
                direction=direction,
                ns=until - before,
                count=int(own.sum()),
                bytes=sum(sizes.tolist()),
                bytes_ns=sum(lengths[sizes > 0].tolist()),
                blocking=sum(lengths[blocks[own]].tolist()) / called if called else None,
                pageable=sum(lengths[is_pageable[own]].tolist()) / named if named else None,
            )
        )
        before = until
    return sorted((one for one in found if one.ns), key=lambda one: -one.ns)
