"""Kernels whose recorded end cannot be right: a later kernel of the same stream ends before them.

A stream runs its kernels in order. ROCm's profilers sometimes record the end of a kernel milliseconds or seconds late
(AMD-AGI/TraceLens, issue 669; ROCm/rocm-systems, pull request 1568). A few such records can be most of a run's kernel
time. Copies are not judged: some profilers record the copies of all streams under one number.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mio2trace.model.profile import Profile
from mio2trace.model.tables import Numbers, by_code, thin
from mio2trace.patterns import late

OVERLAP_NS = 1_000
"""Ends and starts in a stream that are wrong by this much are usual."""

_SIDE_BY_SIDE = late(r"GraphLaunch|LaunchKernelEx")
"""Calls whose kernels may overlap the kernel before: branches of a graph, NVIDIA's dependent launches."""


def in_order(profile: Profile) -> NDArray[np.bool_]:
    """Return which kernels with times are in a stream that runs them one after the other."""
    commands = profile.commands
    side_by_side = commands.calls.name.where(lambda name: _SIDE_BY_SIDE.search(name) is not None)
    streams = commands.of_queue({at: 1 for at, queue in enumerate(profile.queues) if queue.kind == "stream"}, 0)
    is_ordered: NDArray[np.bool_] = (streams > 0) & ~np.append(side_by_side, False)[commands.call]
    return is_ordered & commands.is_kernel & commands.has_times


def late_ns(profile: Profile) -> Numbers:
    """Return for each command by how much its end is late at least, in ns; 0 if the end is possible.

    If a later kernel of its stream ends before a kernel, the kernel ended at the latest when the next one started.
    """
    commands = profile.commands
    found = np.zeros(len(commands), np.int64)
    for own in by_stream(profile):
        starts, ends = commands.start_ns[own], commands.end_ns[own]
        if (ends[1:] >= ends[:-1]).all():
            continue  # nearly always
        first_end = np.minimum.accumulate(ends[::-1])[::-1]
        is_late = np.flatnonzero(ends[:-1] - OVERLAP_NS > first_end[1:])
        found[own[is_late]] = ends[is_late] - starts[is_late + 1]
    late: Numbers = thin(found)
    return late


def by_stream(profile: Profile, late: Numbers | None = None) -> Iterator[Numbers]:
    """Return the kernels of each stream that runs them one after the other, by start and then by end, which may be
    ``late``."""
    commands = profile.commands
    rows = np.flatnonzero(in_order(profile))
    for _, own in by_code(rows, commands.queue[rows]):
        starts = commands.start_ns[own]
        if (starts[1:] > starts[:-1]).all():  # nearly always: they are in the order of their launches
            yield own
        else:
            ends = commands.end_ns[own]
            yield own[np.lexsort((ends if late is None else ends - late[own], starts))]
