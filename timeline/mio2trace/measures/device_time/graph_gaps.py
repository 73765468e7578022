"""Gaps within the launch of a graph, in which a device did work that the profile does not hold.

The nodes of a graph follow each other within microseconds: none of them waits for the host, and the device starts them
by itself. So a long gap between two recorded nodes, in which nothing recorded runs, has nodes between them without a
record. Profilers lose such nodes in part: of some graphs only the fills are recorded.

If a profile has such gaps, its graphs may also lack their first nodes. Then a long wait of a graph that was launched
already, before its first recorded node, is one, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mio2trace.measures.device_time.busy import Covered, Span
from mio2trace.model.profile import Call, Profile

LEAST_NS = 500_000
"""A shorter gap is an ordinary one."""
TIMES_USUAL = 100
"""How many times the usual gap between two nodes a gap must last. The usual one is the lower quartile of a device."""


def graph_gaps(profile: Profile, own: Sequence[int], covered: Covered, *, has_common_clock: bool) -> list[Span]:
    """When a device did such work. ``own``: the positions of its commands that have times, whose spans are
    ``covered``."""
    begun: dict[int, int] = {}
    launched_at: dict[int, list[Call]] = defaultdict(list)
    nodes = 0
    for activity in map(profile.activities.__getitem__, own):
        call = activity.call
        if call is None or "GraphLaunch" not in call.name or (start := activity.start_ns) is None:
            continue
        nodes += 1
        begun[id(call)] = min(begun.get(id(call), start), start)
        launched_at[start].append(call)
    if not nodes:
        return []
    within: list[Span] = []
    before: list[Span] = []
    for until, start in zip(covered.ends, covered.starts[1:], strict=False):
        calls = launched_at.get(start, ())
        if any(begun[id(call)] < start for call in calls):
            within.append((until, start))
        elif has_common_clock:
            returned = [call.end_ns for call in calls if call.end_ns is not None]
            before += [(max(until, min(returned)), start)] if returned else []
    least = max(LEAST_NS, TIMES_USUAL * _usual([start - until for until, start in within], nodes - len(begun)))
    found = [span for span in within if span[1] - span[0] > least]
    return sorted(found + [span for span in before if span[1] - span[0] > least]) if found else []


def _usual(gaps: list[int], count: int) -> int:
    """The lower quartile of ``count`` gaps, of which only these are not 0."""
    place = count // 4 - (count - len(gaps))
    return sorted(gaps)[place] if 0 <= place < len(gaps) else 0
