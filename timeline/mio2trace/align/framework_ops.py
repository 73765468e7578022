"""Layers that a framework's own profile states: of the op that an activity executes, or of the range that launched it.

`exact` has the layers of ranges that are open at a launch. Here no launch is recorded: the op's name tells the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import NONE, LayerRun, Links
from mio2trace.evidence import RANGE
from mio2trace.model.log import Direction
from mio2trace.model.profile import Execution, Node, Profile

_MOST_STEPS = 1 << 53
"""A step of this number is none; as the next larger ones it has no place in JSON."""


class StatedLayers:
    """The layers that ops name, numbered as they first ran: forward ones, then what has only a backward pass."""

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
        """The run of the layer of ``op`` in a step of the framework's."""
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
    """Give each activity the layer and the iteration that its profile states, where no log names layers."""
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
    """Passes of what is of no layer: its neighbours', where both are of one; else its step's without a direction."""
    before = NONE
    waiting: list[tuple[int, int | None]] = []
    for position, pass_ in enumerate([*links.pass_of, NONE]):
        if pass_ == NONE and position < len(executions):
            execution = executions[position]
            if execution is not None:
                waiting.append((position, iteration_of(execution.step)))
            continue
        for between, iteration in waiting:
            if pass_ == before != NONE and links.passes[pass_].iteration == iteration:
                links.give_pass([between], pass_)
            else:
                links.give_pass([between], links.pass_id("iteration", iteration))
        waiting, before = [], pass_


def iteration_of(step: int | None) -> int | None:
    """Step 0 is iteration 1; None where the step is not told, or comes before."""
    return None if step is None or not 0 <= step < _MOST_STEPS else step + 1


def execution_of(profile: Profile, position: int) -> Execution | None:
    """What an activity executes: as told of itself, or of the range that launched it."""
    execution = profile.framework.activities.get(position)
    if execution is None:
        launched_by = profile.activities[position].range
        execution = None if launched_by is None else profile.framework.ranges.get(launched_by)
    return execution


def ops_in_order(profile: Profile) -> Iterable[Node]:
    """The ops as they first ran, on the host or, where nothing is told of that, on a device."""
    framework = profile.framework
    starts = [(profile.ranges[place].start_ns, execution.node) for place, execution in framework.ranges.items()]
    starts.sort()
    on_device = [
        (profile.activities[position].start_ns or 0, execution.node)
        for position, execution in framework.activities.items()
    ]
    on_device.sort()
    return [framework.nodes[node] for _, node in (*starts, *on_device)]
