"""Which launches went into a graph: those in a stream capture that ran nothing (torch-graphs.md 1).

A capture is from ``hipStreamBeginCapture`` to the next ``hipStreamEndCapture`` of the process, whatever the thread.
Without such calls, filtered out perhaps, all launches that ran nothing are one capture if the process launched a graph.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from mio2trace.model.profile import Call


def captured_launches(
    calls: Mapping[int, Call], others: Sequence[Call], launched: Iterable[tuple[int, str]], ran: AbstractSet[int]
) -> list[tuple[int, int, Call]]:
    """(number of the capture, id of the call, the call), in order of time; ``launched``: ids with a kernel's name,
    ``ran``: ids of calls that ran something."""
    waiting = [(call.start_ns, key) for key, _ in launched if key not in ran and (call := calls.get(key)) is not None]
    if not waiting:
        return []
    every = (*calls.values(), *others)
    begun = sorted(call.start_ns or 0 for call in every if "StreamBeginCapture" in call.name)
    ended = sorted(call.start_ns or 0 for call in every if "StreamEndCapture" in call.name)
    if not begun and not any("GraphLaunch" in call.name for call in every):
        return []
    found = []
    for start, key in sorted((start or 0, key) for start, key in waiting):
        capture = bisect_right(begun, start) - 1
        if begun:
            if capture < 0:
                continue
            end = bisect_right(ended, begun[capture])
            if end < len(ended) and ended[end] < start:
                continue
        found.append((max(capture, 0), key, calls[key]))
    return found
