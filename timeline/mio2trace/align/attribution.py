"""The state that all steps of the alignment (`STEPS`) share: sources, clocks and links of one run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from mio2trace.align.clocks.axis import (
    MIDDLE_OF_2000_NS,
    HostTimes,
    LogClock,
    Timeline,
    axis_of_lines,
    axis_of_times,
    host_times,
    line_axis,
    nearest_zone,
    position_is_order,
    stamp_resolution,
)
from mio2trace.align.layers.marks import Reading
from mio2trace.align.layers.net import LayerKey, Net
from mio2trace.align.links import DOUBTED, NONE, LayerRun, Links
from mio2trace.align.ranges import MarkedStep, OpenRanges, marked_steps
from mio2trace.evidence import ORDER, POSITION, RANGE, Evidence
from mio2trace.kernels import KernelFact
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.model.tables import by_key
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

if TYPE_CHECKING:
    from mio2trace.align.graphs import Replay
    from mio2trace.align.operations.lattice import Late
    from mio2trace.align.operations.stream import Stream

HOST_LAYER_NS = 1_000_000
"""A layer that launches nothing and takes this long computes on the host."""
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


class Attribution(msgspec.Struct, eq=False, dict=True):
    """One run while its activities get layers and operations.

    ``weights_of``: the operation of the weights' gradient by that of the data's. ``beside``: other profiles of the run.
    ``without``: evidence to leave out. ``same_process``: whether buffers of log and profile agree. ``late``: the stream
    of the log that was buffered. ``fitted``: clocks from sure links, of lines (False) and of stamps of calls (True).
    ``keeps_time``: whether stamps match the profile. ``host_error_ns``: error of host times that have steps of
    ``host_step_ns``."""

    profile: Profile
    notes: Notes
    logs: Sequence[FrameworkLog] = ()
    operations: Sequence[Operation] = ()
    operation_of_range: Sequence[int] = ()
    opened: OpenRanges | None = None
    replays: Sequence[Replay] = ()
    beside: Sequence[Profile] = ()
    weights_of: Mapping[int, int] = msgspec.field(default_factory=dict)
    net: Net = msgspec.field(default_factory=Net)
    facts: Mapping[int, KernelFact] = msgspec.field(default_factory=dict)
    without: frozenset[str] = frozenset()
    same_process: bool | None = None
    by_order_alone: bool = False
    keep_reasons: bool = False
    host_error_ns: int = 0
    host_step_ns: int = 0
    marked: Reading | None = None
    streams: list[Stream] = msgspec.field(default_factory=list)
    late: Late = ""
    fitted: Mapping[bool, LogClock] = msgspec.field(default_factory=dict)
    keeps_time: bool | None = None

    def __post_init__(self) -> None:
        self.links = Links(self.profile.activities, self.operations)
        self.events = [event for log in self.logs for event in log.events]
        self._runs: dict[tuple[int, LayerKey], int] = {}
        self._known_runs = 0

    @cached_property
    def clock(self) -> LogClock | None:
        """The log's clock relative to the host's. Read it after the timer marks. Raises `InputError` for two runs."""
        if self.by_order_alone or self.profile.clocks[0].as_unix is None:
            return None  # nothing relates them
        from mio2trace.align.clocks.relate import relate_clocks

        same_run = bool(self.same_process)
        return relate_clocks(
            self.profile, self.logs, self.marked, self.notes,
            operations=self.operations, same_run=same_run, host_step_ns=self.host_step_ns,
        )  # fmt: skip

    def fit_clock(self, draft: Links) -> None:
        """Relate stamps to the host by the sure links of ``draft``, if nothing better does."""
        from mio2trace.align.clocks.relate import keeps_time, related

        clock, unix = self.clock, self.profile.clocks[0].as_unix
        near_ns = MIDDLE_OF_2000_NS if clock is None else clock.near_ns
        self.fitted = related(self.profile, self.logs, draft, near_ns)
        self.keeps_time = keeps_time(self.profile, self.logs, draft)
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
        """Host times of activities; None without these or without a clock of the log."""
        return None if self.clock is None else self.host_times

    @cached_property
    def host_times(self) -> HostTimes | None:
        return host_times(self.profile.commands, self.notes, self.host_error_ns)

    @cached_property
    def stamp_ns(self) -> int:
        """The resolution of the log's stamps."""
        return stamp_resolution(self.logs)

    @cached_property
    def shared_axis(self) -> Timeline | None:
        """The log's lines and the activities on one axis: lines if they are in order of execution, else host time.

        A clock with a large error is not used if there are calls."""
        clock, times, profile = self.clock, self.times, self.profile
        if clock is not None and clock.is_doubtful and self.operations:
            clock = times = None
        if POSITION not in self.without and position_is_order(profile, self.events, clock, self.notes):
            return axis_of_lines(profile.source, profile.commands.line.tolist(), POSITION)
        return None if clock is None or times is None else axis_of_times(clock, times)

    @cached_property
    def axis(self) -> Timeline | None:
        """`shared_axis`, else the log's lines with activities at the lines of their operations. Read after linking."""
        return self.shared_axis or line_axis(self.links)

    @cached_property
    def steps(self) -> tuple[MarkedStep, ...]:
        return () if RANGE in self.without else marked_steps(self.profile)

    @cached_property
    def rhythm(self) -> bool | None:
        """Whether the log's stamps keep time with the calls. To be asked for after these are linked."""
        from mio2trace.align.clocks.relate import keeps_time

        return self.keeps_time if self.fitted else keeps_time(self.profile, self.logs, self.links)

    def iterations(self) -> int | None:
        """The number of iterations that the logs state, if they agree."""
        counts = {event.number for event in self.events if event.kind == "testing"}
        counts |= {log.iterations for log in self.logs if log.iterations is not None}
        return counts.pop() if len(counts) == 1 else None

    def of_queues(self) -> dict[int, list[int]]:
        """Return the positions of each queue's activities."""
        queues = self.profile.commands.queue
        return {queue: rows.tolist() for queue, rows in by_key(np.arange(len(queues)), queues)}

    def layer_key(self, position: int) -> LayerKey | None:
        number = self.links.run_of[position]
        if number == NONE:
            return None
        run = self.links.runs[number]
        return run.layer_index, run.direction

    def reference(self, direction: Direction) -> list[int]:
        """Positions of iteration 1 (else the first iteration with layers) in this direction."""
        links = self.links
        pass_of, run_of = np.asarray(links.pass_of), np.asarray(links.run_of)
        wanted = [one.phase == "iteration" and one.direction == direction for one in links.passes]
        found = np.flatnonzero(np.array([*wanted, False])[pass_of] & (run_of != NONE))[:1]
        return [] if not len(found) else np.flatnonzero(pass_of == pass_of[found]).tolist()

    def unlaunched(self) -> dict[LayerKey, int]:
        """Printed times in ns of layers that took time in iteration 1 but surely enqueued nothing."""
        unsure = self.links.layer_unsure
        least = HOST_LAYER_NS if all(one.forward_ns is one.backward_ns is None for one in self.net.layers) else 0
        launched = {self.layer_key(p) for d in DIRECTIONS for p in self.reference(d) if p not in unsure}
        return {
            (layer.index, direction): printed
            for layer, direction in self.net.execution_order()
            if (printed := layer.printed_ns(direction) or least) and (layer.index, direction) not in launched
        }

    def give_layer(self, positions: Sequence[int], run: int, by: Evidence | None, *, confidence: float = 1.0) -> None:
        """Link activities to a layer's run. ``by`` None: evidence and confidence are the operation's."""
        if by is not None:
            self.links.give_layer(positions, run, by, confidence=confidence)
            return
        words, likely = self.links.operation_by, self.links.operation_confidence
        for position in positions:
            word = words[position]
            if not word and self.links.run_of[position] != NONE:
                continue  # a guess speaks against nothing
            least = min(confidence, likely.get(position, 1.0) if word else DOUBTED)
            self.links.give_layer([position], run, word or ORDER, confidence=least)

    def run_for(self, pass_: int, key: LayerKey) -> int:
        """Return the number of the last run of a layer in a pass. If there is none, it is added; its printed time only
        counts in iterations."""
        links, (index, direction) = self.links, key
        for number in range(self._known_runs, len(links.runs)):
            run = links.runs[number]
            self._runs[run.pass_, (run.layer_index, run.direction)] = number
        if (pass_, key) not in self._runs:
            layer = self.net.layers[bisect_left(self.net.layers, index, key=attrgetter("index"))]
            printed = layer.printed_ns(direction) if links.passes[pass_].phase == "iteration" else None
            run = LayerRun(
                layer=layer.layer, layer_index=index, direction=direction, pass_=pass_, printed_ns=printed
            )  # fmt: skip
            self._runs[pass_, key] = links.runs.add(run)
        self._known_runs = len(links.runs)
        return self._runs[pass_, key]
