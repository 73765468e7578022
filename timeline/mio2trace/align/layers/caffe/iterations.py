"""Cut benchmark iterations by printed layer times.

An ``Iteration: K`` line ends an iteration and states its time; CK's digest has layer times only (dvdt-ck.md 2.3 b).
Iterations with stronger evidence are left out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.fit import LogClock
from mio2trace.align.clocks.resolution import STAMP_NS
from mio2trace.align.layers.caffe import boundaries, durations
from mio2trace.align.layers.recurrence import is_filler
from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.operations.rates import AT_END, IN_PART, TOLERANCE_NS, UNEVEN
from mio2trace.evidence import DURATIONS


def place_by_durations(attribution: Attribution) -> None:
    """Cut the iterations so that the printed layer times fit; add a note if they do not."""
    if attribution.clock is None or attribution.all_marked():
        return
    net, links = attribution.net, attribution.links
    windows = [w for w in _windows(attribution) if all(links.run_of[p] == NONE for p in w.positions)]
    order = net.execution_order()
    if any(layer.forward_ns is None and layer.backward_ns is None for layer in net.layers):
        return
    cut = durations.fit(
        attribution.profile.activities, windows, order, attribution.host_error_ns, iterations_printed(attribution)
    )
    if cut is None:
        if order and any(window.positions for window in windows):
            attribution.notes.add("printed layer times do not fit the enqueues of the iterations: not used")
        return
    place(attribution, windows, cut, of_these_iterations(attribution, windows))
    for window in windows:
        links.doubt_layer(_at_the_ends(attribution, window), AT_END)


def place(attribution: Attribution, windows: Sequence[durations.Window], cut: durations.Cut, whole: float) -> None:
    """Give the windows' activities to the layers of the cut, with ``whole`` as the highest confidence."""
    links, order = attribution.links, attribution.net.execution_order()
    runs: dict[tuple[int, int], int] = {}
    for window in windows:
        for position in window.positions:
            if position not in cut.layer_of:
                continue
            number, confidence = cut.layer_of[position]
            run = runs.get((window.iteration, number))
            if run is None:
                layer, direction = order[number]
                pass_ = links.pass_id("iteration", window.iteration, direction)
                run = runs[window.iteration, number] = attribution.add_run(layer.index, direction, pass_)
            links.give_layer([position], run, DURATIONS, confidence=confidence * whole)
            if position in cut.next_of:
                beside, chance = cut.next_of[position]
                links.give_next_layer(position, order[beside][0].layer, chance * whole)


def _at_the_ends(attribution: Attribution, window: durations.Window) -> Iterator[int]:
    """What coarse times may have put into an iteration, or into the one beside it."""
    coarse, times = _coarse(attribution), attribution.times
    if not coarse or times is None:
        return
    for position in window.positions:
        after = times.begins[position] - window.start_ns - coarse
        before = window.end_ns - times.ends[position]
        if min(after, before) <= coarse + TOLERANCE_NS:
            yield position


def _coarse(attribution: Attribution) -> int:
    """The uncertainty of an iteration's bounds if stamps or host times are coarse."""
    step = max(attribution.stamp_ns, attribution.host_step_ns)
    return step if step > STAMP_NS else 0


def of_these_iterations(attribution: Attribution, windows: Sequence[durations.Window]) -> float:
    """Return the probability that the printed means are those of these iterations and of all layers."""
    iterations = iterations_printed(attribution)
    length = sum(window.end_ns - window.start_ns for window in windows) // max(1, len(windows), iterations)
    order = attribution.net.execution_order()
    printed = sum(layer.printed_ns(direction) or 0 for layer, direction in order)
    if not attribution.net.is_whole or any(layer.printed_ns(direction) is None for layer, direction in order):
        return IN_PART
    if len({_others_than_fillers(attribution, window) for window in windows}) > 1:
        return UNEVEN  # the profile lost some of what was printed
    if length - printed > TOLERANCE_NS * (1 + len(order)) + length // 20:
        # CK's digest leaves out layers with unusual names; a log that sets the net up has all of them.
        told = {layer.layer for log in attribution.logs for layer in log.net}
        return IN_PART if told.issuperset(layer.layer for layer in attribution.net.layers) else DOUBTED
    fitted = {window.iteration for window in windows if window.positions}
    printed_of = set(range(1, iterations + 1))
    if fitted < printed_of:
        return UNEVEN  # the means are of some more, which may have taken their time otherwise
    return 1.0 if fitted == printed_of else DOUBTED


def _others_than_fillers(attribution: Attribution, window: durations.Window) -> int:
    return sum(not is_filler(attribution, position) for position in window.positions)


def iterations_printed(attribution: Attribution) -> int:
    """Return how many iterations were asked for, else the largest number of a line; 0 if unknown."""
    iterations = attribution.iterations()
    if iterations is None:
        iterations = max((e.number or 0 for e in attribution.events if e.kind == "iteration"), default=0)
    return iterations


def _windows(attribution: Attribution) -> list[durations.Window]:
    """Return iterations on the host's clock: [stamp - X ms, stamp]."""
    clock = attribution.clock
    assert clock is not None
    if attribution.times is None:
        return []
    begins, ends = attribution.times.begins, attribution.times.ends
    spans = [
        (event.number, clock.to_host(event.stamp) - event.duration_ns, clock.to_host(event.stamp))
        for event in attribution.events
        if event.kind == "iteration" and event.stamp and event.duration_ns and event.number is not None
    ]
    if not spans:
        spans = _printed_span(attribution, clock)
    stamps = sorted(
        clock.to_host(event.stamp)
        for event in attribution.events
        if event.kind in ("testing", "benchmark begins", "iteration") and event.stamp
    )
    windows = []
    coarse = _coarse(attribution)
    for number, start, end in spans:
        # X is read after the stamp: the iteration began a little before stamp - X, but after the line before.
        earlier = bisect_left(stamps, end) - 1
        start = max(start - TOLERANCE_NS, stamps[earlier]) if earlier >= 0 else start
        start -= coarse
        first = bisect_left(begins, start)
        # What the iteration ran has ended when its line is stamped; stamps are truncated.
        end += coarse
        last = bisect_right(ends, end + STAMP_NS)
        windows.append(
            durations.Window(iteration=number, start_ns=start, end_ns=end, positions=range(first, max(first, last)))
        )
    return windows


def _printed_span(attribution: Attribution, clock: LogClock) -> list[tuple[int, int, int]]:
    """Return one iteration that ended before printing began, if there are only layer times (CK's digest)."""
    total = sum(layer.printed_ns(direction) or 0 for layer, direction in attribution.net.execution_order())
    for log in attribution.logs:
        stamped = boundaries.in_order(log.layers)
        if stamped and total and not boundaries.stamps_bound(log.layers) and log.iterations in (None, 1):
            stamp = stamped[0][1].stamp
            assert stamp is not None
            averages = (log.average_forward_ns or 0) + (log.average_backward_ns or 0)
            end = clock.to_host(stamp)
            return [(1, end - max(total, averages) - TOLERANCE_NS // 2, end)]
    return []
