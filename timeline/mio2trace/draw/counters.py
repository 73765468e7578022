"""Counters: what the GEMMs achieve, and how much memory the program has created."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from mio2trace.align import Alignment
from mio2trace.draw.base import ROW, TimeBase, highest_shown, six_digits, three_digits
from mio2trace.draw.device import DeviceSide
from mio2trace.trace import CounterValue, CounterValues

_PAUSE = 20
"""GEMMs that follow each other within a twentieth of the time of the former have no 0 between them: a hair of screen
is not worth what it takes in the file."""


def events(
    alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int, last: int
) -> Iterator[CounterValue | CounterValues]:
    """``GEMM GFLOP/s`` per device (0 between GEMMs, short pauses apart), ``OpenCL buffers MB``; within the picture."""
    yield from _gemm(alignment, base, side, origin)
    yield from _buffers(alignment, base, side, origin, last)


def _gemm(alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int) -> Iterator[CounterValues]:
    device_of = {queue.index: queue.device for queue in alignment.profile.queues}
    activities = alignment.profile.activities
    of_several = side.commands.several
    rates: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for position, fact in alignment.facts.items():
        gemm = fact.gemm
        if gemm is None:
            continue
        activity = activities[position]
        start, end = activity.start_ns, activity.end_ns
        if start is not None and end is not None and start < end:
            duration = end - start
            several = of_several.get(position)
            if several is not None:  # the rate is the whole GEMM's
                _, duration, end = several
            rates[device_of.get(activity.queue, 0)].append((start, end, gemm.flop / duration))
    for device, found in sorted(rates.items()):
        found.sort()
        shift = base.device(device, -origin)
        highest = highest_shown([rate for _, _, rate in found])
        process = side.process_of[device]
        track = side.counter_track(process)
        times: list[int] = []
        values: list[float] = []
        following = [*(start for start, _, _ in found[1:]), math.inf]
        for (start, end, rate), next_start in zip(found, following, strict=True):
            times.append(start + shift)
            values.append(three_digits(min(rate, highest)))
            if (next_start - end) * _PAUSE > end - start:
                times.append(end + shift)
                values.append(0)
            if len(times) >= ROW:
                yield CounterValues(process, "GEMM", "GFLOP/s", times, values, track)
                times, values = [], []
        if times:
            yield CounterValues(process, "GEMM", "GFLOP/s", times, values, track)


def _buffers(alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int, last: int) -> Iterator[CounterValue]:
    """Bytes of buffers created. Releases are not profiled: a handle that comes again was released before."""
    live: dict[str, int] = {}
    total = 0
    # Beside the first device that anything is drawn of: without one they would be all that there is of it.
    tracks = [(process, side.counter_track(process)) for process in sorted(side.process_of.values())]
    process, track = next(((process, track) for process, track in tracks if track is not None), (0, None))
    if track is None:
        return
    pending: CounterValue | None = None
    shown: float | None = None
    for buffer in alignment.profile.opencl.buffers:
        if live.get(buffer.handle) == buffer.size_bytes:
            continue  # nothing changes
        total += buffer.size_bytes - live.get(buffer.handle, 0)
        live[buffer.handle] = buffer.size_bytes
        at = None if buffer.end_ns is None else base.host(buffer.end_ns)
        if at is None or at > last:
            continue
        at = max(at, origin) - origin
        if pending is not None:
            if pending.time_ns > at:
                at = pending.time_ns
            if pending.time_ns != at and pending.value != shown:
                yield pending
                shown = pending.value
        pending = CounterValue(process, "OpenCL buffers", "MB", at, six_digits(total / 1e6), track)
    if pending is not None and pending.value != shown:
        yield pending
