"""What all steps of the ladder share: one run's sources, how its clocks relate, and the links that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from mio2trace.align.clocks.axis import HostTimes, Timeline, common_axis, host_times, line_axis
from mio2trace.align.clocks.fit import MIDDLE_OF_2000_NS, LogClock, nearest_zone
from mio2trace.align.clocks.relate import ends_at_set_up, relate_clocks
from mio2trace.align.clocks.resolution import stamp_resolution
from mio2trace.align.clocks.rhythm import keeps_time, related
from mio2trace.align.layers.caffe.marks import Marked
from mio2trace.align.layers.marked_steps import MarkedStep, marked_steps
from mio2trace.align.layers.net import LayerKey, Net
from mio2trace.align.links import NONE, LayerRun, Links
from mio2trace.align.open_ranges import OpenRanges
from mio2trace.align.operations.stream import Stream
from mio2trace.align.operations.windows import Late
from mio2trace.align.replayed import Replays
from mio2trace.evidence import ORDER, RANGE, Evidence
from mio2trace.kernels import KernelFact
from mio2trace.model.log import Direction, FrameworkLog, LayerTime
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

HOST_LAYER_NS = 1_000_000
"""A layer that launches nothing and takes this long computes on the host; below, it hardly does anything."""
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


@dataclass(eq=False)
class Attribution:
    """One run while its activities are given to layers and operations.

    ``operation_of_range`` has the operation that each range of the profile is, ``weights_of`` of one that is two, the
    gradients of data and of weights, the second by the first; ``opened`` is which range was open at each launch;
    ``beside`` is what others profiled of the same run;
    ``facts`` are by position; ``without`` are the kinds of evidence to leave out. ``same_process``: whether the buffers
    of log and profile say so; None where they do not tell. ``marked`` is None until the timer marks are read; ``late``
    is what links to operations show to have come into the log late. What the steps find is in ``links``; ``streams`` is
    how those to operations came about, where ``keep_reasons``. ``fitted``: where no date relates them, how the clock of
    the log's lines (False), and that of its calls' own stamps (True), relate to the host's, by the surest links;
    ``keeps_time``: whether these links show that the stamps are this run's.
    ``host_error_ns``: how exact host times are that were recorded in steps of ``host_step_ns``; 0: to the microsecond.
    """

    profile: Profile
    notes: Notes
    _: KW_ONLY
    logs: Sequence[FrameworkLog] = ()
    operations: Sequence[Operation] = ()
    operation_of_range: Sequence[int] = ()
    opened: OpenRanges | None = None
    replays: Replays = field(default_factory=Replays)
    beside: Sequence[Profile] = ()
    weights_of: Mapping[int, int] = field(default_factory=dict)
    net: Net = field(default_factory=Net)
    facts: Mapping[int, KernelFact] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    same_process: bool | None = None
    by_order_alone: bool = False
    keep_reasons: bool = False
    host_error_ns: int = 0
    host_step_ns: int = 0
    marked: Marked | None = None
    streams: list[Stream] = field(default_factory=list)
    late: Late = ""
    fitted: Mapping[bool, LogClock] = field(default_factory=dict)
    keeps_time: bool | None = None

    def __post_init__(self) -> None:
        self.links = Links(self.profile.activities, self.operations)
        self.events = [event for log in self.logs for event in log.events]

    # -- clocks ------------------------------------------------------------------------------------------------------

    @cached_property
    def clock(self) -> LogClock | None:
        """How the log's clock relates to the host's. The timer marks tell best: to be asked for after they are read.

        Raises `InputError` when log and profile cannot be of one run.
        """
        if self.by_order_alone:
            return None
        same_run = bool(self.same_process)
        return relate_clocks(
            self.profile, self.logs, self.marked, self.notes,
            operations=self.operations, same_run=same_run, host_step_ns=self.host_step_ns,
        )  # fmt: skip

    def fit_clock(self, draft: Links) -> None:
        """Relate stamps to the host by the links of ``draft`` that are sure, where nothing better does."""
        clock, unix = self.clock, self.profile.clocks[0].as_unix
        near_ns = MIDDLE_OF_2000_NS if clock is None else clock.near_ns
        self.fitted = related(self.profile, self.logs, self.operations, draft, near_ns)
        self.keeps_time = keeps_time(self.profile, self.logs, self.operations, draft)
        of_lines = self.fitted.get(False)
        if clock is None or unix is None or of_lines is None or not (self.same_process or self.keeps_time):
            return
        offset = of_lines.offset_ns - unix.offset_ns
        is_right = abs(offset - clock.offset_ns) <= of_lines.error_ns
        if not is_right:
            self.notes.add(
                f"the log's clock is {(offset - nearest_zone(offset)) / 1e9:+.6f} s ahead of the profile's: the"
                " stamps are corrected by this time"
            )
        self.clock = (
            replace(clock, error_ns=unix.error_ns)
            if is_right
            else replace(of_lines, offset_ns=offset, near_ns=clock.near_ns, host_ns=unix.offset_ns)
        )
        for word in ("times", "shared_axis"):
            self.__dict__.pop(word, None)

    @cached_property
    def times(self) -> HostTimes | None:
        """When each activity ran on the host; None where that or the log's clock is not known."""
        return None if self.clock is None else self.host_times

    @cached_property
    def host_times(self) -> HostTimes | None:
        """The same, where no log's clock is asked for."""
        return host_times(self.profile.activities, self.notes, self.host_error_ns)

    @cached_property
    def stamp_ns(self) -> int:
        """How finely the log's lines are stamped."""
        return stamp_resolution(self.logs)

    @cached_property
    def shared_axis(self) -> Timeline | None:
        """The log's lines next to the activities, on one axis; not by a clock that may be off where there are calls."""
        clock, times = self.clock, self.times
        if clock is not None and clock.is_doubtful and self.operations:
            clock = times = None
        return common_axis(self.profile, self.events, clock, times, self.without, self.notes)

    @cached_property
    def axis(self) -> Timeline | None:
        """`shared_axis`; where there is none, the lines of the log as the links to operations place activities there.

        To be asked for after these are given.
        """
        return self.shared_axis or line_axis(self.links)

    @cached_property
    def steps(self) -> tuple[MarkedStep, ...]:
        """The steps that the profile's own ranges mark; none where such evidence is left out."""
        return () if RANGE in self.without else marked_steps(self.profile)

    # -- what the sources say ----------------------------------------------------------------------------------------

    def iterations(self) -> int | None:
        """How many iterations the logs say were asked for, if they agree."""
        counts = {event.number for event in self.events if event.kind == "testing"}
        counts |= {log.iterations for log in self.logs if log.iterations is not None}
        return counts.pop() if len(counts) == 1 else None

    def tells_net_alone(self) -> bool:
        """Whether the logs end while the net is set up: every run of the program prints the same."""
        return ends_at_set_up(self.logs)

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
        number = self.links.run_of[position]
        if number == NONE:
            return None
        run = self.links.runs[number]
        return run.layer_index, run.direction

    def reference(self, direction: Direction) -> list[int]:
        """Iteration 1 (else the first with layers) in this direction: the stretch whose layers are known."""
        links = self.links
        pass_of, run_of = np.asarray(links.pass_of), np.asarray(links.run_of)
        wanted = [one.phase == "iteration" and one.direction == direction for one in links.passes]
        found = np.flatnonzero(np.array([*wanted, False])[pass_of] & (run_of != NONE))[:1]
        return [] if not len(found) else np.flatnonzero(pass_of == pass_of[found]).tolist()

    def unlaunched(self) -> dict[LayerKey, int]:
        """Printed times, in ns, of layers that took time in iteration 1 but, as far as is sure, enqueued nothing.

        Where none are printed at all, any of these may have taken some: `HOST_LAYER_NS`.
        """
        unsure = self.links.layer_unsure
        least = HOST_LAYER_NS if all(one.forward_ns is one.backward_ns is None for one in self.net.layers) else 0
        launched = {self.layer_key(p) for d in DIRECTIONS for p in self.reference(d) if p not in unsure}
        return {
            (layer.index, direction): printed
            for layer, direction in self.net.execution_order()
            if (printed := layer.printed_ns(direction) or least) and (layer.index, direction) not in launched
        }

    # -- runs of layers ----------------------------------------------------------------------------------------------

    def give_layer(
        self,
        positions: Sequence[int],
        run: int,
        by: Evidence | None,
        *,
        sure: bool = True,
        confidence: float = 1.0,
    ) -> None:
        """Link activities to a layer's run. Without a word of its own the link rests on those to the operations.

        That is where the log's lines lie next to the activities because of their operations (`line_axis`): the layer is
        as well known as the operation.
        """
        if by is not None:
            self.links.give_layer(positions, run, by, sure=sure, confidence=confidence)
            return
        words, likely = self.links.operation_by, self.links.operation_confidence
        for position in positions:
            word = words[position]
            if not word and self.links.run_of[position] != NONE:
                continue  # a guess speaks against nothing
            least = min(confidence, likely.get(position, 1.0))
            self.links.give_layer([position], run, word or ORDER, sure=sure and word != "", confidence=least)

    def add_run(self, layer_index: int, direction: Direction | None, pass_: int) -> int:
        """The number of a new run of a layer of the net; its printed time is that of iterations, not of the warm-up."""
        layer = next(layer for layer in self.net.layers if layer.index == layer_index)
        printed = layer.printed_ns(direction) if self.links.passes[pass_].phase == "iteration" else None
        return self.links.add_run(
            LayerRun(layer=layer.layer, layer_index=layer_index, direction=direction, pass_=pass_, printed_ns=printed)
        )

    def runs_of_pass(self, pass_: int, begun: Mapping[LayerKey, int] | None = None) -> Callable[[LayerKey], int]:
        """The run of each layer in a pass, added when it is first asked for; ``begun``: those that there are."""
        runs = dict(begun or {})

        def run_for(key: LayerKey) -> int:
            if key not in runs:
                runs[key] = self.add_run(key[0], key[1], pass_)
            return runs[key]

        return run_for
