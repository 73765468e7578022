"""Whether a profile holds all commands: missing and doubtful records, counted by class.

The id of a class never changes (docs/stability.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType

import msgspec

from mio2trace.align import Alignment
from mio2trace.measures.device_time import DeviceTime
from mio2trace.measures.device_time.busy import class_of_kernel
from mio2trace.measures.device_time.launches import Launches
from mio2trace.measures.statistics import quantile
from mio2trace.patterns import late

CLASSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "cut-off": ("file cut off", "files cut off"),
    "dropped-records": ("record that the profiler says it dropped", "records that the profiler says it dropped"),
    "sampled": ("op filtered out of the file", "ops filtered out of the file"),
    "before-recording": ("kernel launched before the recording", "kernels launched before the recording"),
    "launch-without-kernel": ("launch without its kernel", "launches without their kernels"),
    "graph-without-kernels": ("graph launch without kernels", "graph launches without kernels"),
    "lost-graph-kernels": ("kernel of a graph launch not recorded", "kernels of graph launches not recorded"),
    "graph-gap": ("gap in a graph launch", "gaps in graph launches"),
    "blocked": ("wait for work that is not recorded", "waits for work that is not recorded"),
    "kernel-without-launch": ("kernel without its launch", "kernels without their launches"),
    "overlap-on-stream": (
        "kernel that overlaps an earlier kernel of its stream",
        "kernels that overlap an earlier kernel of their stream",
    ),
    "outlier": ("kernel over 100 times its median", "kernels over 100 times their median"),
    "times-out-of-order": ("row whose times are not in order", "rows whose times are not in order"),
    "repeated-correlation": ("correlation id used twice", "correlation ids used twice"),
})  # fmt: skip
"""By id, the noun for one and for several; classes that affect most numbers come first."""

_SIDE_BY_SIDE = late(r"GraphLaunch|LaunchKernelEx")
"""Calls whose kernels may run at the same time as the one before: branches of a graph, NVIDIA's dependent launches."""
OVERLAP_NS = 1_000
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


def completeness(alignment: Alignment, launches: Launches, devices: tuple[DeviceTime, ...]) -> Completeness:
    """Count the records that a profile lacks, by its own evidence."""
    profile, links = alignment.profile, alignment.links
    early = {number for number, pass_ in enumerate(links.passes) if pass_.phase == "before"}
    has_launches = any(one.host_start_ns is not None for one in profile.activities)
    counts: dict[str, int] = defaultdict(int, profile.defects)
    counts["launch-without-kernel"] += len(launches.without_kernels)
    counts["graph-without-kernels"] += len(launches.graphs_without_kernels)
    counts["blocked"] += sum(one.blocked for one in devices)
    counts["graph-gap"] += sum(one.graph_gaps for one in devices)
    streams = {number for number, queue in enumerate(profile.queues) if queue.kind == "stream"}
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    durations: dict[tuple[str, object], list[int]] = defaultdict(list)
    names = {one.call.name for one in profile.activities if one.call is not None}
    side_by_side = {name for name in names if _SIDE_BY_SIDE.search(name)}
    without = before = 0
    for activity, pass_ in zip(profile.activities, links.pass_of, strict=True):
        if activity.kind != "kernel":
            continue
        call = activity.call
        if has_launches and (call is None or call.start_ns is None):
            if pass_ in early:
                before += 1
            else:
                without += 1
        start, end = activity.start_ns, activity.end_ns
        if start is not None and end is not None:
            # RPD records neither names nor sizes of the kernels of a graph
            if activity.grid is not None or call is None or "GraphLaunch" not in call.name:
                durations[activity.name, activity.grid].append(end - start)
            if activity.queue in streams and (call is None or call.name not in side_by_side):
                spans[activity.queue].append((start, end))
    counts["before-recording"] += before
    counts["kernel-without-launch"] += without
    counts["overlap-on-stream"] += sum(map(_overlaps, spans.values()))
    for (name, _), times in durations.items():
        if len(times) < LEAST_SAMPLES or class_of_kernel(name) == "communication":  # it waits for other processes
            continue
        times.sort()
        most = OUTLIER * quantile(times, 0.5)
        if most > 0:
            counts["outlier"] += len(times) - bisect_right(times, most)
    return Completeness(counts={name: counts[name] for name in CLASSES if counts.get(name)})


def _overlaps(spans: list[tuple[int, int]]) -> int:
    """Count the kernels of a stream that start more than `OVERLAP_NS` before an earlier one ends."""
    spans.sort()
    until = accumulate((end for _, end in spans), max)
    starts = [start + OVERLAP_NS for start, _ in spans]
    return sum(map(int.__lt__, starts[1:], until))
