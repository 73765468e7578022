"""Layers that a framework's own profile states by the op of an activity. No launch is recorded here."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import NONE, LayerRun, Links, neighbours
from mio2trace.evidence import BOUNDARY_STAMPS, RANGE
from mio2trace.model.log import Direction
from mio2trace.model.profile import Execution, Node, Profile, Range

_MOST_STEPS = 1 << 53
"""A larger number is no step; JSON could not hold it."""


class StatedLayers:
    """The layers that ops name, in order of their first run; layers with a backward pass only come last."""

    def __init__(self, ops: Iterable[Node]) -> None:
        named = list(dict.fromkeys((op.layer, op.direction or "forward") for op in ops if op.layer))
        named.sort(key=lambda layer: layer[1] == "backward")
        self._index: dict[str, int] = {}
        for layer, _ in named:
            self._index.setdefault(layer, len(self._index))
        self._runs: dict[tuple[str, Direction, int | None], int] = {}
        self.net = Net(
            layers=tuple(NetLayerSpec(index=index, layer=layer) for layer, index in self._index.items()),
            backward=any(direction == "backward" for _, direction in named),
        )

    def run(self, links: Links, op: Node, step: int | None) -> int:
        direction = op.direction or "forward"
        key = op.layer, direction, step
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = links.add_run(
                LayerRun(
                    layer=op.layer,
                    layer_index=self._index[op.layer],
                    direction=direction,
                    pass_=links.pass_id("iteration", iteration_of(step), direction),
                )
            )
        return run


def place_by_ops(attribution: Attribution) -> None:
    """Give each activity the layer and the iteration that its profile states, if no log names layers."""
    profile, links = attribution.profile, attribution.links
    if not profile.framework.nodes or attribution.net.layers:
        return
    layers = StatedLayers(ops_in_order(profile))
    attribution.net = layers.net
    executions = [execution_of(profile, position) for position in range(len(profile.activities))]
    for position, execution in enumerate(executions):
        if execution is not None and (op := profile.framework.nodes[execution.node]).layer:
            links.give_layer([position], layers.run(links, op, execution.step), RANGE)
    _place_between(links, executions)


def _place_between(links: Links, executions: Sequence[Execution | None]) -> None:
    """Set the pass of activities without layer: that of both neighbours, else their step's without a direction."""
    pass_of = np.array(links.pass_of, np.int64)
    before, after = (np.append(pass_of, NONE)[rows].tolist() for rows in neighbours(pass_of != NONE))
    for position, execution in enumerate(executions):
        if pass_of[position] == NONE and execution is not None:
            pass_, iteration = after[position], iteration_of(execution.step)
            is_inside = pass_ == before[position] != NONE and links.passes[pass_].iteration == iteration
            links.give_pass([position], pass_ if is_inside else links.pass_id("iteration", iteration))


def iteration_of(step: int | None) -> int | None:
    """Step 0 is iteration 1; None without a step."""
    return None if step is None or not 0 <= step < _MOST_STEPS else step + 1


def execution_of(profile: Profile, position: int) -> Execution | None:
    """Return what an activity executes, by its own record or by the range that launched it."""
    execution = profile.framework.activities.get(position)
    if execution is None:
        launched_by = profile.activities[position].range
        execution = None if launched_by is None else profile.framework.ranges.get(launched_by)
    return execution


def ops_in_order(profile: Profile) -> Iterable[Node]:
    """Return the ops in order of their first run on the host, then on a device."""
    framework = profile.framework
    starts = [(profile.ranges[place].start_ns, one.node) for place, one in framework.ranges.items()]
    on_device = [(profile.activities[at].start_ns or 0, one.node) for at, one in framework.activities.items()]
    return [framework.nodes[node] for _, node in (*sorted(starts), *sorted(on_device))]


def place_by_host_ops(attribution: Attribution) -> None:
    """Put kernels, not other threads' copies, into layers of ops of `Attribution.beside`, if no log names any."""
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
        while following < len(ops) and ops[following][0] <= at:
            _, end, run = ops[following]
            following += 1
            heapq.heappush(running, (end, run))
            runs[run] += 1
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


def _ops(attribution: Attribution) -> tuple[StatedLayers, list[tuple[int, int, int]]]:
    """Return the layers, and (start, end, run) of the ops on a device. Ops without a step number are left out."""
    ran: list[tuple[Range, Execution, Node, int]] = []
    for profile in attribution.beside:
        nodes, resolution_ns = profile.framework.nodes, profile.clocks[0].resolution_ns
        on_device = [
            (profile.ranges[place], execution, nodes[execution.node], resolution_ns)
            for place, execution in profile.framework.ranges.items()
            if execution.device is not None
        ]
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
        (
            range_.start_ns,
            range_.end_ns + resolution,
            layers.run(attribution.links, node, execution.step)
            if node.layer and execution.step is not None and execution.step >= 0
            else NONE,
        )
        for range_, execution, node, resolution in ran
    ]
