"""The exposed copies and fills of a device by direction: neither computation nor communication runs beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import Alignment
from mio2trace.measures.device_time.busy import Covered, Span, class_of_kernel

DIRECTIONS = ("host to device", "device to host", "device to device", "copies", "copy kernels", "fills")
"""Copies of known direction; other copies; the runtime's kernels that copy, in any direction; fills."""
_BLOCKING = re.compile(r"(?:hip|cuda)Memcpy(?!\w{0,24}Async)", re.ASCII)
"""Calls that return after the copy."""
_PAGEABLE, _PINNED = ", pageable", ", pinned"
"""The ends of names of copies whose memory the profiler names."""


class Exposed(msgspec.Struct, frozen=True, kw_only=True):
    """The exposed time of one of `DIRECTIONS`, in ns. If copies of two directions run at the same time, it is that of
    the first of them.

    Of all copies that begin in the same spans: ``count``; ``bytes`` and ``bytes_ns``, their size and their time as far
    as sizes are known; ``blocking``, the part of their time whose calls block the host, None if no call is known;
    ``pageable``, the part of their time with pageable memory, None if the profiler names the memory of none.
    """

    direction: str
    ns: int
    count: int
    bytes: int
    bytes_ns: int
    blocking: float | None
    pageable: float | None


def exposed_copies(alignment: Alignment, device: int, spans: Sequence[Span]) -> list[Exposed]:
    """Return the exposed copies of a device in some spans of time, most time first. ``spans``: at least one, in order.

    The times of all directions add up to the part ``copy_ns`` of the spans (`Occupation.busy`).
    """
    profile, commands = alignment.profile, alignment.profile.commands
    devices = commands.of_queue({queue.index: queue.device for queue in profile.queues}, 0)
    rows = np.flatnonzero((devices == device) & commands.has_times)
    is_kernel, starts, ends = commands.is_kernel[rows], commands.start_ns[rows], commands.end_ns[rows]
    works = is_kernel & ~commands.name.where(lambda name: class_of_kernel(name) == "copy")[rows]
    is_filling = commands.name.where(lambda name: name.startswith(("fill", "__amd_rocclr_fill")))[rows]
    place = {direction: at for at, direction in enumerate(DIRECTIONS)}
    routes = np.array([place.get(route, place["copies"]) for route in commands.route.values], np.int8)
    direction_of = np.where(is_kernel, place["copy kernels"], routes[commands.route.codes[rows]])
    direction_of = np.where(is_filling, place["fills"], direction_of)
    memory_of = commands.name.where(lambda name: name.endswith((_PAGEABLE, _PINNED)))[rows]
    is_pageable = commands.name.where(lambda name: name.endswith(_PAGEABLE))[rows]
    begins, untils = np.array([*spans], np.int64).reshape(-1, 2).T
    span_of = np.searchsorted(begins, starts, side="right") - 1
    begins_inside: NDArray[np.bool_] = (span_of >= 0) & (starts < untils[span_of])
    calls = commands.calls.name.where(lambda name: _BLOCKING.match(name) is not None)
    call_of = commands.call[rows]
    blocks = (call_of >= 0) & (calls[call_of] if len(calls) else False)
    found = []
    held, level = works, Covered(starts[works], ends[works])
    before = sum(level.within(*span) for span in spans)
    for at, direction in enumerate(DIRECTIONS):
        own = ~works & (direction_of == at)
        if not own.any():
            continue
        held = held | own
        level = Covered(starts[held], ends[held])
        until = sum(level.within(*span) for span in spans)
        own &= begins_inside
        lengths, sizes = (ends - starts)[own], commands.size_bytes[rows][own]
        known = (call_of >= 0)[own]
        called = sum(lengths[known].tolist())
        named = sum(lengths[memory_of[own]].tolist())
        found.append(
            Exposed(
                direction=direction,
                ns=until - before,
                count=int(own.sum()),
                bytes=sum(sizes.tolist()),
                bytes_ns=sum(lengths[sizes > 0].tolist()),
                blocking=sum(lengths[blocks[own]].tolist()) / called if called else None,
                pageable=sum(lengths[is_pageable[own]].tolist()) / named if named else None,
            )
        )
        before = until
    return sorted((one for one in found if one.ns), key=lambda one: -one.ns)
