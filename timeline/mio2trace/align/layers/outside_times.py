"""Activities that times placed and may belong elsewhere: those without times of their own, and other queues' work."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from statistics import median

from mio2trace.align.clocks.axis import STAMPS
from mio2trace.align.clocks.fit import STAMP_NS
from mio2trace.align.layers import durations, recurrence
from mio2trace.align.layers.attribution import Attribution

_BY_TIME = frozenset((STAMPS, durations.BY, recurrence.BY, "position"))


def doubt_what_has_no_times(attribution: Attribution, evidence: Sequence[str], groups: Sequence[int]) -> None:
    """An activity without host times may belong with either neighbour, where these are not of one group.

    Only what ``evidence`` placed is doubted; ``groups`` has a layer's run, or a pass, for each activity.
    """
    if attribution.times is None:
        return
    placement, unknown = attribution.placement, attribution.times.unknown
    for position in unknown:
        if placement.by[position] not in evidence:
            continue
        before, after = position - 1, position + 1
        while before in unknown:
            before -= 1
        while after in unknown:
            after += 1
        between = before >= 0 and after < len(groups)
        if not between or not groups[before] == groups[after] == groups[position]:
            placement.unsure.add(position)


def doubt_other_queues(attribution: Attribution) -> None:
    """The log's layers are one thread's: what another queue ran meanwhile may be another thread's work."""
    activities, placement = attribution.profile.activities, attribution.placement
    queues = Counter(activity.queue for activity in activities if activity.kind == "kernel")
    if len(queues) < 2:
        return
    # The thread that prints a layer's line has just waited for its own queue.
    lags: dict[int, list[int]] = {queue: [] for queue in queues}
    ends = sorted(run.host_end_ns for run in placement.runs if run.host_end_ns is not None)
    for queue, found in lags.items():
        done = [e.host_end_ns for e in activities if e.queue == queue and e.host_end_ns is not None]
        done.sort()
        for end in ends:
            before = bisect_right(done, end + STAMP_NS) - 1
            if before >= 0:
                found.append(end - done[before])
    main = min(queues, key=lambda queue: (median(lags[queue] or [1 << 62]), -queues[queue], queue))
    for position, activity in enumerate(activities):
        if activity.queue != main and placement.by[position] in _BY_TIME:
            placement.unsure.add(position)
