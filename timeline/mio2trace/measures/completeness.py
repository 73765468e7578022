"""Whether a profile holds all commands: missing and doubtful records, counted by class.

The id of a class never changes (docs/stability.md).

The recorded end of a kernel cannot be right if a later kernel of the same stream ends before it. A stream runs its
kernels in order. ROCm's profilers sometimes record the end of a kernel milliseconds or seconds late (AMD-AGI/TraceLens,
issue 669; ROCm/rocm-systems, pull request 1568). A few such records can be most of a run's kernel time. Copies are not
judged: some profilers record the copies of all streams under one number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import Alignment
from mio2trace.measures.device_time import DeviceTime, Launches, class_of_kernel, has_common_clock
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NO, Numbers, by_code, distinct, least, most, thin
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


CLASSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "cut-off": ("file cut off", "files cut off"),
    "unreadable": ("record that could not be read", "records that could not be read"),
    "dropped-records": ("record that the profiler says it dropped", "records that the profiler says it dropped"),
    "sampled": ("op filtered out of the file", "ops filtered out of the file"),
    "times-out-of-order": ("row whose times are not in order", "rows whose times are not in order"),
    "before-recording": ("kernel launched before the recording", "kernels launched before the recording"),
    "launch-without-kernel": ("launch without its kernel", "launches without their kernels"),
    "graph-without-kernels": ("graph launch without kernels", "graph launches without kernels"),
    "program-without-kernels": (
        "execution of an XLA program without kernels", "executions of XLA programs without kernels",
    ),
    "lost-graph-kernels": ("kernel of a graph launch not recorded", "kernels of graph launches not recorded"),
    "graph-gap": ("gap in a graph launch", "gaps in graph launches"),
    "blocked": ("wait for work that is not recorded", "waits for work that is not recorded"),
    "kernel-without-launch": ("kernel without its launch", "kernels without their launches"),
    "start-before-launch": ("kernel that starts before its launch", "kernels that start before their launch"),
    "late-end": (
        "kernel that ends after a later kernel of its stream",
        "kernels that end after a later kernel of their stream",
    ),
    "overlap-on-stream": (
        "kernel that overlaps an earlier kernel of its stream",
        "kernels that overlap an earlier kernel of their stream",
    ),
    "outlier": ("kernel over 100 times its median", "kernels over 100 times their median"),
    "repeated-correlation": ("correlation id used twice", "correlation ids used twice"),
})  # fmt: skip
"""By id, the noun for one and for several; classes that affect most numbers come first."""

EARLY_NS = 1_000
"""Clocks of host and device that agree this well put no kernel that much before the begin of its launch."""
OUTLIER = 100
LEAST_SAMPLES = 5
"""The fewest kernels of one name and size that give a median."""


class Completeness(msgspec.Struct, frozen=True, kw_only=True):
    """``counts``: by the id of each class that occurred, in the order of `CLASSES`."""

    counts: Mapping[str, int]

    @property
    def complete(self) -> bool:
        return not self.counts

    @property
    def said(self) -> str:
        """``757 kernels launched before the recording, 1 launch without its kernel``; empty if nothing is missing."""
        return ", ".join(f"{number:,} {CLASSES[name][number != 1]}" for name, number in self.counts.items())


def completeness(
    alignment: Alignment, launches: Launches, devices: tuple[DeviceTime, ...], late: Numbers
) -> Completeness:
    """Count the records that a profile lacks, by its own evidence. ``late``: see `late_ns`."""
    profile, links, commands = alignment.profile, alignment.links, alignment.profile.commands
    counts: dict[str, int] = defaultdict(int, profile.defects)
    counts["launch-without-kernel"] += launches.without_kernels
    counts["graph-without-kernels"] += launches.graphs_without_kernels
    counts["blocked"] += sum(one.blocked for one in devices)
    counts["graph-gap"] += sum(one.graph_gaps for one in devices)
    kernels, called = commands.is_kernel, commands.host_start_ns
    if (called != NO).any():
        is_lone = kernels & (called == NO)
        is_early = np.array([*(pass_.phase == "before" for pass_ in links.passes), False])[np.asarray(links.pass_of)]
        counts["before-recording"] += int((is_lone & is_early).sum())
        counts["kernel-without-launch"] += int((is_lone & ~is_early).sum())
    if has_common_clock(alignment):
        timed = kernels & commands.has_times
        counts["start-before-launch"] += int((timed & (called != NO) & (commands.start_ns < called - EARLY_NS)).sum())
    counts["late-end"] += int((late > 0).sum())
    counts["overlap-on-stream"] += _overlaps(profile, late)
    counts["outlier"] += len(outliers(profile)[0])
    return Completeness(counts={name: counts[name] for name in CLASSES if counts.get(name)})


def _overlaps(profile: Profile, late: Numbers) -> int:
    """Count the kernels of a stream that start more than `OVERLAP_NS` before an earlier one ends. ``late``: see
    `late_ns`: a kernel does not overlap an earlier kernel whose true end came before."""
    commands = profile.commands
    found = 0
    for own in by_stream(profile, late):
        starts, ends = commands.start_ns[own], commands.end_ns[own] - late[own]
        found += int((starts[1:] + OVERLAP_NS < np.maximum.accumulate(ends)[:-1]).sum())
    return found


def outliers(profile: Profile) -> tuple[Numbers, Numbers]:
    """Return the kernels that take over `OUTLIER` times the median of their name and grid, longest first, and these
    medians in ns."""
    commands = profile.commands
    # one kernel computes problems of very different sizes: rocprof's traces and TensorFlow's profiles have no size
    is_told = commands.grid.where(lambda grid: grid is not None)
    is_own = commands.name.where(
        lambda name: class_of_kernel(name) != "communication"
    )  # which waits for other processes
    rows = np.flatnonzero(commands.is_kernel & commands.has_times & is_told & is_own)
    keys = commands.name.codes[rows].astype(np.int64) * len(commands.grid.values) + commands.grid.codes[rows]
    first, key_of = distinct(keys)
    times = commands.time_ns[rows]
    # nearly all are of names and grids without one
    may_have = most(key_of, times, len(first)) > float(OUTLIER) * least(key_of, times, len(first))
    some = np.flatnonzero(may_have[key_of])
    rows, keys, times = rows[some], keys[some], times[some]
    order = np.lexsort((times, keys))
    rows, times = rows[order], times[order]
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    counts = np.diff(begins, append=len(rows))
    low, high = times[begins + (counts - 1) // 2], times[begins + counts // 2]
    usual = np.repeat(np.where(counts < LEAST_SAMPLES, 0, low + 0.5 * (high - low)), counts)
    found = np.flatnonzero((usual > 0) & (times > OUTLIER * usual))
    found = found[np.argsort(-times[found], kind="stable")]
    return rows[found], usual[found]
