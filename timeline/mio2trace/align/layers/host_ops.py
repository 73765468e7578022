"""Kernels that were enqueued while a framework, by a profile of its own of the same run, ran an op of a layer.

The host's time in the code of an op that runs on a device: what the host enqueues meanwhile is the op's, if no other op
runs at that moment. Both stamps are the host's wall clock. The threads of the two profiles are not related: where ops
of different layers run at once, an activity may be of any of them, and is not attributed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import NamedTuple

from mio2trace.align.attribution import Attribution
from mio2trace.align.framework_ops import StatedLayers
from mio2trace.align.links import NONE
from mio2trace.evidence import BOUNDARY_STAMPS
from mio2trace.model.profile import Execution, Node, Profile, Range


class _Op(NamedTuple):
    """An op's time on the host, and its layer's run (`NONE`: of no layer)."""

    start: int
    end: int
    run: int


def place_by_host_ops(attribution: Attribution) -> None:
    """Put kernels into the layers of the ops of `Attribution.beside`, where no log names any.

    Step N of a framework is iteration N + 1. Where nothing can be told - no host times, no op on a device, no layer's
    name, stamps that do not meet - a note says why. Copies are left alone: other threads than the op's enqueue them,
    too.
    """
    profile, notes, links = attribution.profile, attribution.notes, attribution.links
    if not attribution.beside or attribution.net.layers:
        return
    layers, ops = _ops(attribution)
    if not ops:
        notes.add("the framework's profile names no layer of an op on a GPU: its ops are no layers of the kernels")
        return
    times = [(e.host_start_ns, position) for position, e in enumerate(profile.activities)
             if e.kind == "kernel" and e.host_start_ns is not None]  # fmt: skip
    without_times = sum(e.kind == "kernel" for e in profile.activities) - len(times)
    placed = between = following = 0
    running: list[tuple[int, int]] = []
    runs: Counter[int] = Counter()
    for at, position in sorted(times):
        while following < len(ops) and ops[following].start <= at:
            op = ops[following]
            following += 1
            heapq.heappush(running, (op.end, op.run))
            runs[op.run] += 1
        while running and running[0][0] <= at:
            _, ended = heapq.heappop(running)
            runs[ended] -= 1
            if not runs[ended]:
                del runs[ended]
        if len(runs) > 1:
            between += 1
        elif runs and NONE not in runs:
            links.give_layer([position], next(iter(runs)), BOUNDARY_STAMPS)
            placed += 1
    if between:
        notes.add("kernel enqueued while ops of several layers ran: not attributed", count=between)
    if without_times:
        notes.add("kernel without a host time: not attributed to a framework's op", count=without_times)
    if not placed:
        notes.add("no kernel was enqueued while one of the framework's ops ran: they are no layers of the kernels")
        return
    attribution.net = layers.net


def _ops(attribution: Attribution) -> tuple[StatedLayers, list[_Op]]:
    """The layers, and every op on a device in order of start; none of profiles that do not number their steps."""
    ran: list[tuple[Range, Execution, Node, int]] = []
    for profile in attribution.beside:
        on_device = _on_devices(profile)
        numbered = [op for op in on_device if op[1].step is not None]
        if len(numbered) < len(on_device):
            attribution.notes.add(
                "the framework's profile does not number its step: its ops are no layers of the kernels"
            )
        ran += numbered
    ran.sort(key=lambda op: (op[0].start_ns, op[0].end_ns))
    layers = StatedLayers(node for _, _, node, _ in ran)
    if not layers.net.layers:
        return layers, []
    return layers, [
        _Op(
            range_.start_ns,
            range_.end_ns + resolution,
            layers.run(attribution.links, node, execution.step)
            if node.layer and execution.step is not None and execution.step >= 0
            else NONE,
        )
        for range_, execution, node, resolution in ran
    ]


def _on_devices(profile: Profile) -> list[tuple[Range, Execution, Node, int]]:
    """Each op's code on the host for a device, with how exact its times are: an op that runs on the host enqueues
    nothing.
    """
    framework = profile.framework
    return [
        (profile.ranges[place], execution, framework.nodes[execution.node], profile.clocks[0].resolution_ns)
        for place, execution in framework.ranges.items()
        if execution.device is not None
    ]
