"""What the collectives of a job cost each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from mio2trace.align import NONE
from mio2trace.measures.statistics import mean
from mio2trace.ranks.meetings import Meeting


class RankTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the collectives of a job, of one rank. ``skew_ns``: their mean, of all ranks together.

    ``late_ns``: the sum of its leads where it arrived last; ``made_late_by``: what explains most of them, with
    ``made_late_ns``.
    """

    place: int
    collectives: int
    collective_ns: int
    transfer_ns: int
    wait_ns: int
    skew_ns: float
    times_arrived_last: int
    late_ns: int
    made_late_by: str
    made_late_ns: int


def totals(meetings: Sequence[Meeting], ranks: int) -> list[RankTotal]:
    """Of each rank; none where there is no collective."""
    return [_total(meetings, place) for place in range(ranks)] if meetings else []


def _total(meetings: Sequence[Meeting], place: int) -> RankTotal:
    late = [one for one in meetings if one.last == place]
    causes: Counter[str] = Counter()
    for one in late:
        if one.made_late_by:
            causes[one.made_late_by] += one.made_late_ns
    cause = max(causes, key=lambda name: (causes[name], name), default="")
    return RankTotal(
        place=place,
        collectives=len(meetings),
        collective_ns=sum(one.durations_ns[place] for one in meetings),
        transfer_ns=sum(one.transfer_ns for one in meetings),
        wait_ns=sum(one.waits_ns[place] for one in meetings),
        skew_ns=mean([one.skew_ns for one in meetings]),
        times_arrived_last=len(late),
        late_ns=sum(one.lead_ns for one in late),
        made_late_by=cause,
        made_late_ns=causes[cause] if cause else 0,
    )


def straggler(of: Sequence[RankTotal]) -> int:
    """Return the place of the rank that arrived last most often, of equals the rank that waited least; `NONE`:
    nobody."""
    latest = min(of, key=lambda one: (-one.times_arrived_last, one.wait_ns, one.place), default=None)
    return latest.place if latest is not None and latest.times_arrived_last else NONE
