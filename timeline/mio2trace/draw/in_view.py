"""Where a viewer should look first: one steady iteration. Set-up and searches are most of many a picture."""

from __future__ import annotations

from mio2trace.draw.base import TimeBase
from mio2trace.draw.selection import Chosen
from mio2trace.measures import Measures

_MARGIN = 40
"""Of its length, on either side."""


def steady_iteration(measures: Measures, base: TimeBase, chosen: Chosen | None) -> tuple[int, int] | None:
    """On the axis, from the first command of the first steady iteration to its last, with a margin.

    None where nothing tells iterations, or what is drawn holds nothing of it.
    """
    told = measures.steady.told
    if told.told_by == "whole" or not told.steady:
        return None
    wanted = [one.number for one in told.all].index(told.steady[0])
    profile = measures.alignment.profile
    device_of = {queue.index: queue.device for queue in profile.queues}
    spans: dict[int, tuple[int, int]] = {}
    for position, (place, activity) in enumerate(zip(told.place_of, profile.activities, strict=True)):
        start, end = activity.start_ns, activity.end_ns
        if place != wanted or start is None or end is None or (chosen is not None and not chosen.drawn[position]):
            continue
        device = device_of.get(activity.queue, 0)
        first, last = spans.get(device, (start, end))
        spans[device] = min(first, start), max(last, end)
    if not spans:
        return None
    start = min(base.device(device, first) for device, (first, _) in spans.items())
    end = max(base.device(device, last) for device, (_, last) in spans.items())
    margin = (end - start) // _MARGIN + 1
    return start - margin, end + margin
