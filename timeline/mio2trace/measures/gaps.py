"""When the device had nothing to do: the pauses between its commands, by what it waited for.

A pause ends with a command. Where the call that launched it began after everything before had ended, the device waited
for the *host*; where it began before, for the *queue*; without calls on a clock that both share it is *unknown*.
What the host did besides, in a first iteration, the names of its calls tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
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


PREPARING: Mapping[str, str] = MappingProxyType({
    "clBuildProgram": "building kernels",
    "clCompileProgram": "building kernels",
    "clLinkProgram": "building kernels",
    "hiprtcCompileProgram": "building kernels",
    "hiprtcLinkComplete": "building kernels",
    "hipModuleLoad": "loading kernels",
    "hipModuleLoadData": "loading kernels",
    "hipModuleLoadDataEx": "loading kernels",
    "hipLibraryLoadData": "loading kernels",
    "clCreateBuffer": "allocating",
    "hipMalloc": "allocating",
    "hipMallocAsync": "allocating",
    "hipMallocManaged": "allocating",
    "hipExtMallocWithFlags": "allocating",
    "hipHostMalloc": "allocating",
    "hipHostAlloc": "allocating",
    "hipFree": "allocating",
})  # fmt: skip
"""What a call does that a program needs once, by its name."""


def prepared(alignment: Alignment, positions: Sequence[int]) -> dict[str, int]:
    """How many ns the calls of `PREPARING` took from the first to the last launch of these activities, most first.

    Of calls within each other, and of several threads, each moment counts once.
    """
    launches = [
        (start, end)
        for position in positions
        if (start := alignment.profile.activities[position].host_start_ns) is not None
        and (end := alignment.profile.activities[position].host_end_ns) is not None
    ]
    if not launches:
        return {}
    begin, until = min(start for start, _ in launches), max(end for _, end in launches)
    spans: dict[str, list[tuple[int, int]]] = {}
    for call in alignment.profile.other_calls:
        what = PREPARING.get(call.name)
        if what and call.start_ns is not None and call.end_ns is not None and begin <= call.start_ns < until:
            spans.setdefault(what, []).append((call.start_ns, min(call.end_ns, until)))
    took = {what: covered(of_one) for what, of_one in spans.items()}
    return dict(sorted(took.items(), key=lambda item: (-item[1], item[0])))


def covered(spans: list[tuple[int, int]]) -> int:
    """How long at least one of (start, end) lasts."""
    total, until = 0, None
    for start, end in sorted(spans):
        if until is None or start > until:
            total, until = total + end - start, end
        elif end > until:
            total, until = total + end - until, end
    return total
