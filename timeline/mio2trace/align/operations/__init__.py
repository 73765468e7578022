"""Kernels to operations: each queue's best path, its evidence, what is in doubt (alignment.md; miopen-log.md 10)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from mio2trace.align.operations.links import Links, line_axis
from mio2trace.align.operations.paths import OUTSIDE
from mio2trace.align.operations.queues import of_streams, one_stream_each, same_process
from mio2trace.align.operations.rows import learn
from mio2trace.align.operations.stream import Evidence, Stream
from mio2trace.kernels import KernelFact
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import Operation


def link_operations(
    profile: Profile,
    operations: Sequence[Operation],
    facts: Mapping[int, KernelFact],
    evidence: Evidence,
    without: frozenset[str],
    *,
    keep: bool = False,
) -> Links:
    """Give each kernel to the operation that launched it, or to none. ``keep`` holds on to what told it."""
    links = Links(profile.activities, operations)
    if not operations:
        return links
    streams: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, activity in enumerate(profile.activities):
        if activity.kind == "kernel":
            streams[activity.thread, activity.queue].append(position)
    of_stream = of_streams(profile, streams, operations, without)
    claims = Counter(operation.index for found in of_stream.values() for operation in found)
    shared = frozenset(index for index, count in claims.items() if count > 1)
    for key, positions in sorted(streams.items()):
        stream = Stream(profile, positions, of_stream[key], facts, evidence, without, shared, len(streams))
        stream.link(links)
        if "recurrence" not in without:
            learn(stream, links)
        if keep:
            links.streams.append(stream)
    one_stream_each(links, streams)
    return links


__all__ = ["OUTSIDE", "Evidence", "Links", "Stream", "line_axis", "link_operations", "same_process"]
