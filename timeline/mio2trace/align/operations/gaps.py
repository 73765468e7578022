"""Where a long row of kernels has no operation, those on its sides may belong to its other end.

A program that repeats itself launches the same kernels at both: whether the log lost what is before a call or behind it
is told by nothing but where the row was taken to begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE
from mio2trace.evidence import BUFFERS, NAME_AND_SIZES, ORDER

_LONG = 10
"""Kernels without an operation: as many as no call launches."""
_COULD_BE_SHIFTED = frozenset((BUFFERS, NAME_AND_SIZES, ORDER))


def doubt_beside_gaps(attribution: Attribution) -> None:
    """Doubt links that hold as well at the other end of a gap: the same kernels, one after the other."""
    activities, links = attribution.profile.activities, attribution.links
    queues: dict[int, list[int]] = {}
    for position, activity in enumerate(activities):
        if activity.kind == "kernel":
            queues.setdefault(activity.queue, []).append(position)
    for positions in queues.values():
        names = [activities[position].name for position in positions]
        linked = [links.operation_of[position] != NONE for position in positions]
        shifted = [positions[place] for place in _shiftable(names, linked)]
        links.doubt_operation(one for one in shifted if links.operation_by[one] in _COULD_BE_SHIFTED)


def _shiftable(names: Sequence[str], linked: Sequence[bool]) -> Iterator[int]:
    """Places beside gaps whose kernels are those of the gap's far end."""
    begin = 0
    while begin < len(linked):
        if linked[begin]:
            begin += 1
            continue
        end = begin
        while end < len(linked) and not linked[end]:
            end += 1
        if end - begin >= _LONG and begin and end < len(linked):
            for away in range(min(begin, end - begin)):
                if not linked[begin - 1 - away] or names[begin - 1 - away] != names[end - 1 - away]:
                    break
                yield begin - 1 - away
            for away in range(min(len(linked) - end, end - begin)):
                if not linked[end + away] or names[end + away] != names[begin + away]:
                    break
                yield end + away
        begin = end
