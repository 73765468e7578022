"""Where a viewer should look first: one steady iteration. Set-up and searches are most of many a picture.

Of a run that is too large for a viewer a few steady iterations are all that is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align import NONE
from mio2trace.draw.base import TimeBase
from mio2trace.draw.selection import Chosen, Selection
from mio2trace.measures import Measures

_MARGIN = 40
"""Of its length, on either side."""
MOST_SLICES = 2_500_000
"""A run with more is drawn in part: about 300 MB in the native form. A browser gives up at three to six million."""
WINDOW_SLICES = 800_000
"""Of a run that is drawn in part: a browser shows them without trouble."""


def steady_iteration(measures: Measures, base: TimeBase, chosen: Chosen | None) -> tuple[int, int] | None:
    """On the axis, from the first command of the first steady iteration to its last, with a margin.

    None where nothing tells iterations, or what is drawn holds nothing of it.
    """
    told = measures.steady.told
    if told.told_by == "whole" or not told.steady:
        return None
    span = _spans(measures, base, chosen, told.steady[:1]).get(told.steady[0])
    if span is None:
        return None
    margin = (span[1] - span[0]) // _MARGIN + 1
    return span[0] - margin, span[1] + margin


def steady_iterations(measures: Measures, base: TimeBase, chosen: Chosen | None) -> dict[int, tuple[int, int]]:
    """Of each steady iteration, by its number, from when to when it is on the axis; none where nothing tells them."""
    told = measures.steady.told
    return {} if told.told_by == "whole" else _spans(measures, base, chosen, told.steady)


def _spans(
    measures: Measures, base: TimeBase, chosen: Chosen | None, numbers: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Of the iterations of these numbers, in their order, that hold a command that is drawn."""
    told = measures.steady.told
    wanted = frozenset(numbers)
    counts = [one.number in wanted for one in told.all]
    profile = measures.alignment.profile
    shift = {queue.index: base.device(queue.device, 0) for queue in profile.queues}
    spans: dict[int, tuple[int, int]] = {}
    for position, (place, activity) in enumerate(zip(told.place_of, profile.activities, strict=True)):
        start, end = activity.start_ns, activity.end_ns
        if place == NONE or not counts[place] or start is None or end is None:
            continue
        if chosen is not None and not chosen.drawn[position]:
            continue
        by = shift.get(activity.queue)
        if by is None:
            by = base.device(0, 0)
        first, last = spans.get(place, (start + by, end + by))
        spans[place] = min(first, start + by), max(last, end + by)
    return {told.all[place].number: spans[place] for place in sorted(spans)}


def window(measured: Sequence[Measures], with_calls: bool) -> Selection:
    """The steady iterations in the middle of a run of more than `MOST_SLICES`: as many as have `WINDOW_SLICES`.

    Everything of a smaller run, and of one in which some profile has no iterations. ``with_calls``: calls are drawn.
    """
    drawn = [one for one in measured if one.alignment.profile.activities]
    slices = 0
    for profile in (one.alignment.profile for one in drawn):
        slices += len(profile.activities) + with_calls * (len(profile.activities) + len(profile.other_calls))
    if slices <= MOST_SLICES:
        return Selection()
    told = [one.steady.told for one in drawn]
    common = set.intersection(*({one.number for one in each.all} for each in told))
    steady = [number for number in told[0].steady if number in common]
    wanted = max(len(told[0].all) * WINDOW_SLICES // slices, 1)
    if any(each.told_by == "whole" for each in told) or not steady:
        return Selection()
    first = max(len(steady) - wanted, 0) // 2
    chosen = steady[first : first + wanted]
    return Selection(iterations=f"{chosen[0]}-{chosen[-1]}")
