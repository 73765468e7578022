"""What the steps of `layers` share: one run's sources, how its clocks relate, and the placement that they fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mio2trace.align.clocks.axis import HostTimes
from mio2trace.align.clocks.fit import LogClock
from mio2trace.align.layers.marks import Marked
from mio2trace.align.layers.net import Net
from mio2trace.align.layers.placement import NONE, LayerRun, Placement
from mio2trace.align.layers.recurrence import LayerKey
from mio2trace.kernels import KernelFact
from mio2trace.model.log import Direction, FrameworkLog, LayerTime
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


class Attribution:
    """One run while its activities are given to layers: what is given, what was found on the way, what is placed.

    ``marked``, ``clock`` and ``times`` are None until a step finds them, and stay so where nothing tells; ``facts`` are
    by position; ``without`` are the kinds of evidence to leave out.
    """

    def __init__(
        self,
        profile: Profile,
        logs: Sequence[FrameworkLog],
        net: Net,
        facts: Mapping[int, KernelFact],
        without: frozenset[str],
        notes: Notes,
    ) -> None:
        self.profile = profile
        self.logs = logs
        self.net = net
        self.facts = facts
        self.without = without
        self.notes = notes
        self.placement = Placement(profile.activities)
        self.events = [event for log in logs for event in log.events]
        self.marked: Marked | None = None
        self.clock: LogClock | None = None
        self.times: HostTimes | None = None

    # -- what the sources say ----------------------------------------------------------------------------------------

    def iterations(self) -> int | None:
        """How many iterations the logs say were asked for, if they agree."""
        counts = {event.number for event in self.events if event.kind == "testing"}
        counts |= {log.iterations for log in self.logs if log.iterations is not None}
        return counts.pop() if len(counts) == 1 else None

    def all_marked(self) -> bool:
        """Whether the timer marks leave nothing of the iterations to weaker evidence."""
        marked = self.marked
        return marked is not None and marked.grammar.layers > 0 and self.iterations() in (None, marked.iterations)

    def host_time(self, layer: LayerTime) -> int | None:
        """When a layer line was printed, in ns on the host's clock; None without a stamp or a clock."""
        return None if self.clock is None or layer.stamp is None else self.clock.to_host(layer.stamp)

    # -- what is placed so far ---------------------------------------------------------------------------------------

    def layer_key(self, position: int) -> LayerKey | None:
        """The layer and direction of the activity at ``position``, where it has one."""
        run = self.placement.run_of[position]
        if run == NONE:
            return None
        held = self.placement.runs[run]
        return held.layer_index, held.direction

    def reference(self, direction: Direction) -> list[int]:
        """Iteration 1 (else the first with layers) in this direction: the stretch whose layers are known."""
        placement = self.placement
        chosen: int | None = None
        for position, pass_ in enumerate(placement.pass_of):
            if pass_ != NONE and placement.run_of[position] != NONE:
                held = placement.passes[pass_]
                if held.phase == "iteration" and held.direction == direction:
                    chosen = pass_
                    break
        return [] if chosen is None else [p for p, pass_ in enumerate(placement.pass_of) if pass_ == chosen]

    def unlaunched(self) -> dict[LayerKey, int]:
        """Printed times, in ns, of layers that took time in iteration 1 but, as far as is sure, enqueued nothing."""
        unsure = self.placement.unsure
        launched = {self.layer_key(p) for d in DIRECTIONS for p in self.reference(d) if p not in unsure}
        return {
            (layer.index, direction): printed
            for layer, direction in self.net.execution_order()
            if (printed := layer.printed_ns(direction)) and (layer.index, direction) not in launched
        }

    # -- runs of layers ----------------------------------------------------------------------------------------------

    def add_run(self, layer_index: int, direction: Direction, pass_: int) -> int:
        """The number of a new run of a layer of the net; its printed time is that of iterations, not of the warm-up."""
        layer = next(layer for layer in self.net.layers if layer.index == layer_index)
        printed = layer.printed_ns(direction) if self.placement.passes[pass_].phase == "iteration" else None
        return self.placement.add_run(
            LayerRun(layer=layer.layer, layer_index=layer_index, direction=direction, pass_=pass_, printed_ns=printed)
        )

    def runs_of_pass(self, pass_: int) -> Callable[[LayerKey], int]:
        """The run of each layer in a pass, added when it is first asked for."""
        runs: dict[LayerKey, int] = {}

        def run_for(key: LayerKey) -> int:
            if key not in runs:
                runs[key] = self.add_run(key[0], key[1], pass_)
            return runs[key]

        return run_for
