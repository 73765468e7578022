"""Enqueues to layers: every kind of evidence in turn, strongest first (alignment.md; trace-contract.md 3)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence

import msgspec

from timeline.align import boundaries, durations, marks, recurrence
from timeline.align.clocks import LogClock, log_clock
from timeline.align.net import Net
from timeline.align.placement import NONE, LayerRun, Placement
from timeline.align.sequences import matches
from timeline.gemm import KernelFact
from timeline.model.log import Direction, FrameworkLog, LayerTime, LogEvent
from timeline.model.profile import Enqueue, Profile
from timeline.notes import InputError, Notes

STAMP_NS = 1000
LANDMARK_LATE_NS = 2_000_000_000
LANDMARK_EARLY_NS = 5_000_000
"""How far a landmark in the log may lie after (or before) its twin in the profile if both are of one run."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One axis for log events and enqueues: lines of a shared file, or host time."""

    by_line: bool
    event: Callable[[LogEvent], int | None]
    layer: Callable[[LayerTime], int | None]
    begin: Callable[[Enqueue], int]
    end: Callable[[Enqueue], int]

    @property
    def evidence(self) -> str:
        return "position" if self.by_line else STAMPS


STAMPS = "boundary stamps"
_DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


def place_layers(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    net: Net,
    facts: Mapping[int, KernelFact],
    without: frozenset[str],
    notes: Notes,
    *,
    by_order_alone: bool = False,
) -> tuple[Placement, LogClock | None]:
    """Place every enqueue of ``profile``, and relate the log's clock to the host's.

    Raises `InputError` when the log and the profile cannot be of one run (unless ``by_order_alone``).
    """
    return _Placer(profile, logs, net, facts, without, notes, by_order_alone).place()


class _Placer:
    def __init__(
        self,
        profile: Profile,
        logs: Sequence[FrameworkLog],
        net: Net,
        facts: Mapping[int, KernelFact],
        without: frozenset[str],
        notes: Notes,
        by_order_alone: bool,
    ) -> None:
        self.profile = profile
        self.logs = logs
        self.net = net
        self.facts = facts
        self.without = without
        self.notes = notes
        self.by_order_alone = by_order_alone
        self.placement = Placement(profile.enqueues)
        self.events = [event for log in logs for event in log.events]
        self.marked: marks.Marked | None = None
        self.clock: LogClock | None = None

    def place(self) -> tuple[Placement, LogClock | None]:
        grammar = None
        if marks.BY not in self.without:
            grammar = marks.read_marks(self.profile.marks, self.net, self._iterations(), self.notes)
        if grammar is not None:
            self.marked = marks.place_by_marks(self.placement, self.profile.marks, self.net, *grammar)
            marks.check_against_printed(self.placement, self.net, self.notes)
        self.clock = None if self.by_order_alone else self._relate_clocks()
        axis = self._axis()
        if axis is not None:
            self._bounded(axis)
        self._durations()
        self._rest(axis)
        return self.placement, self.clock

    # -- clocks ------------------------------------------------------------------------------------------------------

    def _relate_clocks(self) -> LogClock | None:
        landmark = self._landmark()
        if landmark is None:
            return None
        clock, late = landmark
        if not -LANDMARK_EARLY_NS <= clock.residual_ns <= late:
            raise InputError(
                f"the log and the profile are not of one run: {clock.method} differ by "
                f"{clock.residual_ns / 1e9:+.3f} s after the best whole quarter of an hour; "
                "expected -0.005 to +{:g} s (--align order goes on by order alone)".format(late / 1e9)
            )
        return clock

    def _landmark(self) -> tuple[LogClock, int] | None:
        """The surest place that log and profile share."""
        iterations = [event for event in self.events if event.kind == "iteration" and event.stamp is not None]
        if self.marked is not None and iterations:
            by_number = {event.number: event for event in iterations}
            for number in range(self.marked.iterations, 0, -1):
                mark, event = self.marked.ends[number - 1], by_number.get(number)
                if event is not None and event.stamp is not None and mark.host_ns is not None:
                    name = f"the end of iteration {number} in the log and its timer mark"
                    return log_clock(event.stamp, mark.host_ns, name), LANDMARK_LATE_NS
        last = max((e.host_end_ns for e in self.profile.enqueues if e.host_end_ns is not None), default=None)
        if last is None:
            return None
        if iterations:
            stamp = iterations[-1].stamp
            assert stamp is not None
            return log_clock(stamp, last, "the log's last iteration and the last enqueue"), LANDMARK_LATE_NS
        stamped = [pair for log in self.logs for pair in boundaries.in_order(log.layers)]
        if stamped:
            bound = any(boundaries.stamps_bound(log.layers) for log in self.logs)
            layer = max(stamped, key=lambda pair: pair[0])[1] if bound else min(stamped, key=lambda pair: pair[0])[1]
            assert layer.stamp is not None
            return log_clock(layer.stamp, last, "the log's layer lines and the last enqueue"), LANDMARK_LATE_NS
        for log in self.logs:
            if log.last_stamp is not None:
                clock = log_clock(log.last_stamp, last, "the log's last line and the last enqueue")
                self.notes.add("log without iterations or layer times: its clock is only roughly related", clock.method)
                return clock, 8 * 60 * 1_000_000_000
        return None

    # -- one axis ----------------------------------------------------------------------------------------------------

    def _axis(self) -> Timeline | None:
        clock = self.clock
        if "position" not in self.without and self._position_is_order():
            source = self.profile.source
            return Timeline(
                by_line=True,
                event=lambda event: event.line if event.source == source else None,
                layer=lambda layer: layer.line if layer.source == source and layer.line else None,
                begin=lambda enqueue: enqueue.line,
                end=lambda enqueue: enqueue.line,
            )
        if clock is None or any(e.host_start_ns is None or e.host_end_ns is None for e in self.profile.enqueues):
            return None
        to_host = clock.to_host
        return Timeline(
            by_line=False,
            event=lambda event: None if event.stamp is None else to_host(event.stamp),
            layer=lambda layer: None if layer.stamp is None else to_host(layer.stamp),
            begin=lambda enqueue: enqueue.host_start_ns or 0,
            end=lambda enqueue: enqueue.host_end_ns or 0,
        )

    def _position_is_order(self) -> bool:
        """Blocks and log lines share a file, in order of execution as far as times tell: stdout was line buffered."""
        profile = self.profile
        if not profile.interleaved or not profile.enqueues:
            return False
        events = [event for event in self.events if event.source == profile.source and event.stamp is not None]
        clock = self.clock
        if clock is None or not events:
            return True
        lines = [enqueue.line for enqueue in profile.enqueues]
        wrong = 0
        for event in events:
            assert event.stamp is not None
            time = clock.to_host(event.stamp)
            at = bisect_left(lines, event.line)
            before = profile.enqueues[at - 1].host_end_ns if at else None
            after = profile.enqueues[at].host_start_ns if at < len(lines) else None
            wrong += (before is not None and before > time + 1_000_000) or (
                after is not None and after < time - 1_000_000
            )
        if wrong * 20 > len(events):
            self.notes.add("dv/dt blocks and log lines are not in order of execution (buffered): positions not used")
            return False
        return True

    # -- evidence ----------------------------------------------------------------------------------------------------

    def _bounded(self, axis: Timeline) -> None:
        """Layer lines that really bound their layers."""
        by = axis.evidence
        if by in self.without:
            return
        for log in self.logs:
            if not boundaries.stamps_bound(log.layers):
                continue
            ends = [(place, layer) for layer in log.layers if (place := axis.layer(layer)) is not None]
            ends.sort(key=lambda pair: pair[0])
            iterations = _count_iterations([layer for _, layer in ends])
            boundaries.place_by_ends(
                self.placement,
                ends,
                iteration_of=iterations.__getitem__,
                when=lambda position: axis.end(self.placement.enqueues[position]),
                reach_back=self._reach_back(axis, ends, iterations),
                by=by,
                host=self._host_time,
            )

    def _host_time(self, layer: LayerTime) -> int | None:
        return None if self.clock is None or layer.stamp is None else self.clock.to_host(layer.stamp)

    def _reach_back(
        self, axis: Timeline, ends: Sequence[tuple[int, LayerTime]], iterations: Sequence[int]
    ) -> Callable[[int], int]:
        """Where the layer of an end begins when it is the first of its row; -1: at the end before it."""
        starts = sorted(
            place
            for event in self.events
            if event.kind in ("testing", "benchmark begins", "iteration") and (place := axis.event(event)) is not None
        )

        def reach(number: int) -> int:
            end, layer = ends[number]
            if number and iterations[number - 1] == iterations[number]:
                return -1
            floor = ends[number - 1][0] if number else -1
            earlier = bisect_left(starts, end) - 1
            if earlier >= 0:
                floor = max(floor, starts[earlier])
            if axis.by_line:
                return floor if floor >= 0 else end
            return max(floor, end - layer.printed_ns)

        return reach

    def _durations(self) -> None:
        if durations.BY in self.without or self.clock is None or self._all_marked():
            return
        windows = [w for w in self._windows() if all(self.placement.run_of[p] == NONE for p in w.positions)]
        order = self.net.execution_order()
        cut = durations.fit(self.placement, windows, order)
        if cut is None:
            return
        runs: dict[tuple[int, int], int] = {}
        for window in windows:
            for position in window.positions:
                if position not in cut.layer_of:
                    continue
                number, sure = cut.layer_of[position]
                run = runs.get((window.iteration, number))
                if run is None:
                    layer, direction = order[number]
                    pass_ = self.placement.pass_id("iteration", window.iteration, direction)
                    run = runs[window.iteration, number] = self._run(layer.index, direction, pass_)
                self.placement.place([position], run, durations.BY, sure=sure)

    def _windows(self) -> list[durations.Window]:
        """Benchmark iterations on the host's clock: [stamp - X ms, stamp]."""
        clock = self.clock
        assert clock is not None
        enqueues = self.profile.enqueues
        if any(e.host_start_ns is None or e.host_end_ns is None for e in enqueues):
            return []
        begins = [e.prepared_ns or e.host_start_ns or 0 for e in enqueues]
        ends = [e.host_end_ns or 0 for e in enqueues]
        spans = [
            (event.number, clock.to_host(event.stamp) - event.duration_ns, clock.to_host(event.stamp))
            for event in self.events
            if event.kind == "iteration" and event.stamp and event.duration_ns and event.number is not None
        ]
        if not spans:
            spans = self._printed_span(clock)
        stamps = sorted(
            clock.to_host(event.stamp)
            for event in self.events
            if event.kind in ("testing", "benchmark begins", "iteration") and event.stamp
        )
        windows = []
        for number, start, end in spans:
            # X is read after the stamp: the iteration began a little before stamp - X, but after the line before.
            earlier = bisect_left(stamps, end) - 1
            start = max(start - durations.TOLERANCE_NS, stamps[earlier]) if earlier >= 0 else start
            first = bisect_left(begins, start)
            last = bisect_right(ends, end + durations.TOLERANCE_NS)
            windows.append(
                durations.Window(iteration=number, start_ns=start, end_ns=end, positions=range(first, max(first, last)))
            )
        return windows

    def _printed_span(self, clock: LogClock) -> list[tuple[int, int, int]]:
        """With layer times alone (CK's digest): one iteration that ended just before printing began."""
        total = sum(layer.printed_ns(direction) or 0 for layer, direction in self.net.execution_order())
        for log in self.logs:
            stamped = boundaries.in_order(log.layers)
            if stamped and total and not boundaries.stamps_bound(log.layers) and log.iterations in (None, 1):
                stamp = stamped[0][1].stamp
                assert stamp is not None
                averages = (log.average_forward_ns or 0) + (log.average_backward_ns or 0)
                end = clock.to_host(stamp)
                return [(1, end - max(total, averages) - durations.TOLERANCE_NS // 2, end)]
        return []

    # -- what is left ------------------------------------------------------------------------------------------------

    def _rest(self, axis: Timeline | None) -> None:
        """Warm-up, set-up, and iterations that only their likeness to another one tells."""
        first_iteration = next(
            (i for i, pass_ in enumerate(self.placement.pass_of) if pass_ != NONE), len(self.profile.enqueues)
        )
        begins = self._benchmark_begins(axis)
        if begins is not None:
            first_iteration = min(first_iteration, begins)
        warm = self._warm_up(axis, first_iteration)
        for direction, positions in warm.items():
            pass_ = self.placement.pass_id("warm-up", 0, direction)
            reference = self._reference(direction)
            self._ended_lines(axis, direction, positions, pass_, reference)
            left = [p for p in positions if self.placement.run_of[p] == NONE]
            if recurrence.BY not in self.without and reference and len(left) == len(positions):
                recurrence.place_by_recurrence(
                    self.placement, reference, positions, self._runs_of_pass(pass_), self.facts, self._unlaunched()
                )
            self.placement.place_in_pass(positions, pass_)
        if not warm and begins is None:
            self._likely_warm_up(first_iteration)
        if warm or begins is not None:
            setup_end = min((positions.start for positions in warm.values()), default=first_iteration)
            setup = range(0, setup_end)
            if setup:
                self.placement.place_in_pass(setup, self.placement.pass_id("setup"))
        self._later_iterations()

    def _benchmark_begins(self, axis: Timeline | None) -> int | None:
        if axis is None:
            return None
        places = [place for event in self.events if event.kind == "benchmark begins" and (place := axis.event(event))]
        if not places:
            return None
        return self._first_after(axis, places[0])

    def _first_after(self, axis: Timeline, place: int) -> int:
        return bisect_left(self.profile.enqueues, place, key=axis.begin)

    def _warm_up(self, axis: Timeline | None, limit: int) -> dict[Direction, range]:
        """The warm-up's enqueues by direction, as the log's lines bound them; without a log, all before iteration 1."""
        if axis is not None:
            places = {
                event.kind: place
                for event in self.events
                if event.kind in ("forward begins", "forward ends", "backward begins", "benchmark begins")
                and (place := axis.event(event)) is not None
            }
            if "forward begins" in places:
                first = self._first_after(axis, places["forward begins"])
                last = self._first_after(axis, places["forward ends"]) if "forward ends" in places else limit
                warm: dict[Direction, range] = {"forward": range(first, max(first, min(last, limit)))}
                if "backward begins" in places:
                    begin = self._first_after(axis, places["backward begins"])
                    if begin < limit:
                        warm["backward"] = range(begin, limit)
                return {direction: positions for direction, positions in warm.items() if positions}
            if "benchmark begins" in places:
                return {}
        return {}

    def _likely_warm_up(self, limit: int) -> None:
        """Without the log's lines: what runs before iteration 1 is its warm-up if it runs most of what that runs."""
        reference = self._reference("forward")
        if recurrence.BY in self.without or not reference or limit >= len(self.profile.enqueues):
            return
        enqueues = self.profile.enqueues
        pairs = matches(
            [recurrence.signature(enqueues[i]) for i in reference], [recurrence.signature(e) for e in enqueues[:limit]]
        )
        if pairs is None or 2 * len(pairs) < len(reference):
            return
        pass_ = self.placement.pass_id("warm-up", 0, "forward")
        recurrence.place_by_recurrence(
            self.placement, reference, range(limit), self._runs_of_pass(pass_), self.facts, self._unlaunched()
        )
        self.placement.place_in_pass(range(limit), pass_)

    def _reference(self, direction: Direction) -> list[int]:
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

    def _ended_lines(
        self,
        axis: Timeline | None,
        direction: Direction,
        positions: range,
        pass_: int,
        reference: Sequence[int],
    ) -> None:
        """``debug_info`` lines in the warm-up: a layer's enqueues lie before its first line, after the line before it.

        The lines themselves run kernels (absolute sums, reads), before they are printed: which enqueues are the layer's
        own is told by iteration 1.
        """
        if axis is None or axis.evidence in self.without or not reference:
            return
        lines = [
            (place, event)
            for event in self.events
            if event.kind == "layer ended" and event.direction == direction and (place := axis.event(event)) is not None
        ]
        lines.sort(key=lambda pair: pair[0])
        index_of = {layer.layer: layer.index for layer in self.net.layers}
        runs_of = self._runs_of_pass(pass_)
        previous_place: int | None = None
        seen: set[str] = set()
        for place, event in lines:
            if event.text not in seen and event.text in index_of:
                seen.add(event.text)
                first = max(
                    positions.start, self._first_after(axis, previous_place) if previous_place else positions.start
                )
                last = min(positions.stop, self._first_after(axis, place))
                key = (index_of[event.text], direction)
                same = [p for p in reference if self._layer_key(p) == key]
                recurrence.place_by_recurrence(
                    self.placement, same, range(first, max(first, last)), runs_of, self.facts, by=axis.evidence
                )
            previous_place = place

    def _layer_key(self, position: int) -> recurrence.LayerKey | None:
        run = self.placement.run_of[position]
        if run == NONE:
            return None
        held = self.placement.runs[run]
        return held.layer_index, held.direction

    def _later_iterations(self) -> None:
        """Iterations that nothing placed (their marks or lines are missing), after one that something did."""
        if recurrence.BY in self.without or self.clock is None or self._all_marked():
            return
        placement = self.placement
        for window in self._windows():
            if not window.positions or any(placement.run_of[p] != NONE for p in window.positions):
                continue
            reference = [*self._reference("forward"), *self._reference("backward")]
            if not reference:
                return
            runs: dict[recurrence.LayerKey, int] = {}

            def run_for(
                key: recurrence.LayerKey, runs: dict[recurrence.LayerKey, int] = runs, w: durations.Window = window
            ) -> int:
                if key not in runs:
                    runs[key] = self._run(key[0], key[1], placement.pass_id("iteration", w.iteration, key[1]))
                return runs[key]

            recurrence.place_by_recurrence(
                placement, reference, window.positions, run_for, self.facts, self._unlaunched()
            )

    def _all_marked(self) -> bool:
        """Whether the timer marks leave nothing of the iterations to weaker evidence."""
        marked = self.marked
        return marked is not None and marked.grammar.layers > 0 and self._iterations() in (None, marked.iterations)

    # -- small things ------------------------------------------------------------------------------------------------

    def _iterations(self) -> int | None:
        counts = [event.number for event in self.events if event.kind == "testing"]
        return counts[0] if len(counts) == 1 else None

    def _unlaunched(self) -> dict[recurrence.LayerKey, int]:
        """Layers that took time in iteration 1 but enqueued nothing there, with their printed time."""
        launched = {self._layer_key(p) for d in _DIRECTIONS for p in self._reference(d)}
        return {
            (layer.index, direction): printed
            for layer, direction in self.net.execution_order()
            if (printed := layer.printed_ns(direction)) and (layer.index, direction) not in launched
        }

    def _runs_of_pass(self, pass_: int) -> Callable[[recurrence.LayerKey], int]:
        runs: dict[recurrence.LayerKey, int] = {}

        def run_for(key: recurrence.LayerKey) -> int:
            if key not in runs:
                runs[key] = self._run(key[0], key[1], pass_)
            return runs[key]

        return run_for

    def _run(self, layer_index: int, direction: Direction, pass_: int) -> int:
        layer = next(layer for layer in self.net.layers if layer.index == layer_index)
        printed = layer.printed_ns(direction) if self.placement.passes[pass_].phase == "iteration" else None
        return self.placement.add_run(
            LayerRun(layer=layer.layer, layer_index=layer_index, direction=direction, pass_=pass_, printed_ns=printed)
        )


def _count_iterations(layers: Sequence[LayerTime]) -> list[int]:
    """The iteration of each layer line, from 1: a new one begins when a layer and direction comes again."""
    iteration = 1
    seen: set[tuple[int, Direction]] = set()
    result = []
    for layer in layers:
        key = (layer.index, layer.direction)
        if key in seen:
            iteration += 1
            seen.clear()
        seen.add(key)
        result.append(iteration)
    return result
