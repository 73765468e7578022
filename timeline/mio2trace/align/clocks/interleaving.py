"""How far a log's clock is ahead, by where its stamps lie between the profile's calls.

A thread that waits for its commands prints nothing meanwhile: every stamp lies in a gap between two calls. Gaps are of
all lengths, so one offset puts all stamps into gaps, and of another run of the program, which takes a little more or
less time everywhere, none does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import log

from mio2trace.align.clocks.fit import local_ns
from mio2trace.align.clocks.log_bounds import OffsetBound
from mio2trace.align.layers.caffe import boundaries
from mio2trace.align.links import SURE
from mio2trace.align.operations.rates import MOST_STRAY, TOLERANCE_NS
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile

MOST_STAMPS = 64
MOST_GAPS = 20_000
ANCHORS = 3
"""Stamps that are tried in every gap: the last, the first, and one between them."""


def by_interleaving(profile: Profile, logs: Sequence[FrameworkLog], near_ns: int, step_ns: int) -> OffsetBound | None:
    """The one offset, if there is one, that puts the stamps into gaps of the fullest queue's calls by more than chance.

    ``step_ns``: how finely log and host are stamped.
    """
    stamps = _stamps(logs, near_ns)
    gaps = _Gaps(profile, step_ns)
    if len(stamps) < 2 or not gaps.starts:
        return None
    tried: list[tuple[float, OffsetBound]] = []
    last = len(stamps) - 1
    for anchor in {last, last // 2, 0}:
        for low, high in zip(gaps.starts, gaps.ends, strict=True):
            found = gaps.fitted(stamps, stamps[anchor] - high, stamps[anchor] - low + step_ns)
            if found is not None:
                tried.append(found)
    if not tried:
        return None
    nats, best = max(tried, key=lambda one: one[0])
    others = [its for its, bound in tried if bound.low > best.high or bound.high < best.low]
    # By chance a stamp lies anywhere in the profile.
    return best if nats + log(1 - SURE) >= max([*others, log(ANCHORS)]) else None


def _stamps(logs: Sequence[FrameworkLog], near_ns: int) -> list[int]:
    """Times of lines that were printed on the way, none right behind another; of many some."""
    times = {local_ns(event.stamp, near_ns) for log in logs for event in log.events if event.stamp is not None}
    for one in logs:
        if boundaries.stamps_bound(one.layers):
            times |= {local_ns(layer.stamp, near_ns) for layer in one.layers if layer.stamp is not None}
    stamps: list[int] = []
    for time in sorted(times):
        if not stamps or time - stamps[-1] > TOLERANCE_NS:
            stamps.append(time)
    return stamps[:: 1 + len(stamps) // MOST_STAMPS]


class _Gaps:
    """Times between the calls of the queue with most of them, and how improbable it is to hit one of them by chance."""

    def __init__(self, profile: Profile, step_ns: int) -> None:
        queues: dict[int, list[tuple[int, int]]] = {}
        for activity in profile.activities:
            start, end = activity.host_start_ns, activity.host_end_ns
            if start is not None and end is not None:
                queues.setdefault(activity.queue, []).append((start, end))
        fullest: list[tuple[int, int]] = max(queues.values(), key=len, default=[])
        calls = sorted(fullest)[-MOST_GAPS:]
        self._step = step_ns
        self.first = calls[0][0] if calls else 0
        self._span = max(1, max((end for _, end in calls), default=0) - self.first)
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._nats: list[float] = []
        for before, after in pairwise(calls):
            room = after[0] - before[1]
            if room <= 0:
                continue
            self.starts.append(before[1])
            self.ends.append(after[0])
            around = room + max(0, before[1] - before[0]) + max(0, after[1] - after[0])  # a host's clock may step back
            self._nats.append(max(0.0, log(around / (room + step_ns))))

    def fitted(self, stamps: Sequence[int], low: int, high: int) -> tuple[float, OffsetBound] | None:
        """By how much it is no chance that stamps lie in gaps with an offset from ``low`` to ``high``, and the offset.

        None where more than a few lie in none.
        """
        hit: set[int] = set()
        pending = list(stamps)
        strays = 0
        while pending:
            unclear: list[int] = []
            for stamp in pending:
                if stamp - low <= self.first or stamp - high >= self.ends[-1]:
                    continue  # before or after all that the profile has
                first = bisect_left(self.ends, stamp - high)
                last = bisect_right(self.starts, stamp + self._step - low) - 1
                if first > last:
                    strays += 1
                    if strays > MOST_STRAY * len(stamps):
                        return None
                elif first < last:
                    unclear.append(stamp)
                else:
                    hit.add(first)
                    low = max(low, stamp - self.ends[first])
                    high = min(high, stamp + self._step - self.starts[first])
            if len(unclear) == len(pending):
                break
            pending = unclear
        # As likely as each offset is beforehand, those that fit are.
        nats = log(max(1, high - low) / self._span) + strays * log(MOST_STRAY)
        return nats + sum(self._nats[number] for number in hit), OffsetBound(low, high)
