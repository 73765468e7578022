"""When the device had nothing to do: the pauses between its commands, by what it waited for.

A pause ends with a command. Where the call that launched it began after everything before had ended, the device waited
for the *host*; where it began before, for the *queue*; without calls on a clock that both share it is *unknown*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from mio2trace.align import Alignment
from mio2trace.align.clocks.fit import SAME

Waits = Literal["host", "queue", "unknown"]
WAITS: tuple[Waits, ...] = ("host", "queue", "unknown")


class Pauses(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are, and how long by what they wait for; the sum is `Steady.idle_ns`'s."""

    count: int
    idle_ns: Mapping[Waits, int]


def pauses(alignment: Alignment, stretches: Sequence[Sequence[int]]) -> Pauses:
    """Between the commands of each stretch, positions of an iteration's kernels and copies, which count alike."""
    activities, profile = alignment.profile.activities, alignment.profile
    clocks = alignment.clocks
    shared = bool(clocks) and all(clock == SAME for clock in clocks.values()) and not profile.calls_wait
    count = 0
    idle: dict[Waits, int] = dict.fromkeys(WAITS, 0)
    for stretch in stretches:
        spans = sorted(
            (start, end, position)
            for position in stretch
            if (start := activities[position].start_ns) is not None and (end := activities[position].end_ns) is not None
        )
        until = spans[0][1] if spans else 0
        for start, end, position in spans:
            if start > until:
                launched = activities[position].host_start_ns if shared else None
                cause: Waits = "unknown" if launched is None else "host" if launched >= until else "queue"
                idle[cause] += start - until
                count += 1
            until = max(until, end)
    return Pauses(count=count, idle_ns=idle)
