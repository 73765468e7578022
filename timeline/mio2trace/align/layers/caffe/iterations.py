"""Cut benchmark iterations by printed layer times.

An ``Iteration: K`` line ends an iteration and states its time; CK's digest has layer times only (dvdt-ck.md 2.3 b).
Iterations with stronger evidence are left out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from operator import itemgetter

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import in_order, stamps_bound
from mio2trace.align.clocks.fit import STAMP_NS, LogClock
from mio2trace.align.layers.caffe import durations
from mio2trace.align.layers.caffe.durations import Window
from mio2trace.align.layers.recurrence import is_filler, signature
from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.operations.rates import AT_END, DOUBT_NS, EXPLAINED, IN_PART, TOLERANCE_NS, UNEVEN, WHOLE
from mio2trace.evidence import DURATIONS


def place_by_durations(attribution: Attribution) -> None:
    """Cut the iterations so that the printed layer times fit; add a note if they do not."""
    marked = attribution.marked
    if attribution.clock is None:
        return
    if marked is not None and marked.layers and attribution.iterations() in (None, marked.iterations):
        return  # marks bound all iterations
    net, links = attribution.net, attribution.links
    windows = [w for w in _stamped_windows(attribution) if all(links.run_of[p] == NONE for p in w.positions)]
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
    if len({sum(not is_filler(attribution, position) for position in window.positions) for window in windows}) > 1:
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


def iterations_printed(attribution: Attribution) -> int:
    """Return how many iterations were asked for, else the largest number of a line; 0 if unknown."""
    iterations = attribution.iterations()
    if iterations is None:
        iterations = max((e.number or 0 for e in attribution.events if e.kind == "iteration"), default=0)
    return iterations


def _stamped_windows(attribution: Attribution) -> list[durations.Window]:
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
        stamped = in_order(log.layers)
        if stamped and total and not stamps_bound(log.layers) and log.iterations in (None, 1):
            stamp = stamped[0][1].stamp
            assert stamp is not None
            averages = (log.average_forward_ns or 0) + (log.average_backward_ns or 0)
            end = clock.to_host(stamp)
            return [(1, end - max(total, averages) - TOLERANCE_NS // 2, end)]
    return []


_FEWEST = 2
_MOST_CANDIDATES, _MOST_EARLIER, _MOST_COMPARED = 64, 16, 256
"""Possible begins of an iteration; earlier activities compared with each; the length of each comparison."""
COMPARED_EACH = 256
"""Comparisons per activity; real runs need a tenth. Rows of one kernel would need the square."""
_MOST_BEHIND = 8
"""Activities that a program may run after its last iteration."""
_Bounds = tuple[list[Window], float, int]
"""Iterations, their probability, and how many activities at their bounds repeat."""
_Answer = tuple[int, list[Window], durations.Cut, float]
"""Cost, iterations, their cut, and the probability of the bounds."""


class _Row:
    def __init__(self, signatures: Sequence[Hashable]) -> None:
        self.signatures = signatures
        self._left = COMPARED_EACH * len(signatures)

    def __len__(self) -> int:
        return len(self.signatures)

    def alike(self, one: int, other: int, step: int, most: int) -> int:
        """Return how many activities from two places on are equal, up to ``most``."""
        row, count = self.signatures, 0
        most = min(most, self._left)
        while count < most and row[one + step * count] == row[other + step * count]:
            count += 1
        self._left -= 1 + count
        return count


def place_by_device_times(attribution: Attribution) -> None:
    """Cut the iterations so that the printed layer times fit, without a clock; add a note if they do not."""
    net = attribution.net
    if attribution.times is not None or attribution.links.runs or not net.layers or attribution.by_order_alone:
        return
    if any(layer.forward_ns is None and layer.backward_ns is None for layer in net.layers):
        return
    ways = _bounds(attribution)
    answer = next((found for bounds in ways if (found := _best(attribution, bounds)) is not None), None)
    if answer is None:
        if ways:
            attribution.notes.add("printed layer times do not fit the kernels of the iterations: not used")
        return
    _, windows, cut, bounded = answer
    place(attribution, windows, cut, min(bounded, of_these_iterations(attribution, windows)))


def _best(attribution: Attribution, bounds: Sequence[_Bounds]) -> _Answer | None:
    """Return the best cut; if a solver runs behind the layers, without its kernels."""
    answer = _answer(attribution, bounds, may_go_on=False)
    if answer is None or answer[0] > TOLERANCE_NS:
        beyond = _answer(attribution, bounds, may_go_on=True)
        if beyond is not None and (answer is None or beyond[0] + TOLERANCE_NS < answer[0]):
            return beyond
    return answer


def _answer(attribution: Attribution, bounds: Sequence[_Bounds], *, may_go_on: bool) -> _Answer | None:
    """Return the best cut that fits. ``may_go_on``: activities behind the last layer may have none."""
    answers = []
    activities = attribution.profile.activities
    for windows, likely, _ in bounds:
        cut = durations.fit(
            activities,
            windows,
            attribution.net.execution_order(),
            iterations=iterations_printed(attribution),
            spans=durations.on_device,
            may_go_on=may_go_on,
        )
        if cut is None or len(cut.layer_of) < EXPLAINED * len(activities):
            continue  # a short time at the end of another run's profile has a few kernels, too
        # Of kernels in their own layers none has another layer's name.
        if cut.misfit_ns <= TOLERANCE_NS and cut.cost_ns - cut.misfit_ns < DOUBT_NS:
            answers.append((cut.cost_ns, windows, cut, likely))
    return min(answers, key=itemgetter(0), default=None)


def _bounds(attribution: Attribution) -> list[list[_Bounds]]:
    """Return the possible iterations, the most likely ends first. Empty if device times are not in order."""
    activities, lasted = attribution.profile.activities, _lasted(attribution)
    begins = [activity.start_ns for activity in activities if activity.start_ns is not None]
    ends = [activity.end_ns for activity in activities if activity.end_ns is not None]
    if not lasted or not len(begins) == len(ends) == len(activities) > 0:
        return []
    if min(length for _, length in lasted) <= TOLERANCE_NS:
        return []  # bounds are no sharper than that
    if begins != sorted(begins) or ends != sorted(ends):
        return []
    claimed = sum(layer.printed_ns(direction) or 0 for layer, direction in attribution.net.execution_order())
    # What no layer claims may have passed behind the last activity, or before the first.
    unclaimed = max(0, sum(length for _, length in lasted) // len(lasted) - claimed) + TOLERANCE_NS
    row = _Row([signature(activity) for activity in activities])
    stops = range(len(row), max(0, len(row) - _MOST_BEHIND), -1)
    found = [one for stop in stops if (one := _windows(row, begins, ends, lasted, unclaimed, stop)) is not None]
    most = max((alike for *_, alike in found), default=0)
    # What comes again tells it; else it ended with what the profile ends with, or before its results were read.
    kernels = [activity.kind == "kernel" for activity in activities]
    last = len(row) - kernels[::-1].index(True) if True in kernels else 0
    at_end = [one for one in found if one[0][-1].positions.stop in (len(row), last)]
    ways = [[one for one in found if one[2] == most]] if most else []
    return [*ways, at_end] if at_end else ways


def _windows(
    row: _Row,
    begins: Sequence[int],
    ends: Sequence[int],
    lasted: Sequence[tuple[int, int]],
    unclaimed: int,
    stop: int,
) -> _Bounds | None:
    """Return each iteration's activities if the last one ends before ``stop``; None if the profile is too short."""
    found: list[Window] = []
    bounded = in_all = 0
    for number, length in reversed(lasted):
        if not stop or ends[stop - 1] - length < begins[0] - TOLERANCE_NS:
            return None  # it began before the profile
        earliest = ends[stop - 1] - length
        candidates = range(
            bisect_left(begins, earliest - TOLERANCE_NS), min(stop, bisect_left(begins, earliest + unclaimed) + 1)
        )
        first, ended, begun = _likeliest(row, candidates[:_MOST_CANDIDATES], stop)
        if ended + begun < _FEWEST:
            first, ended, begun = bisect_left(begins, earliest), 0, 0
        if first >= stop:
            return None
        # It may have ended later than its last activity, as long as it does not begin later than its first.
        later = min(max(0, begins[first] - earliest), unclaimed)
        bounds = min(begins[first], earliest), ends[stop - 1] + later
        found.append(Window(iteration=number, start_ns=bounds[0], end_ns=bounds[1], positions=range(first, stop)))
        bounded += ended > 0
        in_all += ended + begun
        stop = first
    likely = WHOLE if bounded == len(found) else IN_PART
    return found[::-1], likely, in_all


def _lasted(attribution: Attribution) -> list[tuple[int, int]]:
    lines = [
        (event.number, event.duration_ns)
        for event in attribution.events
        if event.kind == "iteration" and event.number is not None and event.duration_ns
    ]
    asked_for = attribution.iterations()
    if [number for number, _ in lines] != list(range(1, 1 + len(lines))) or asked_for not in (None, len(lines)):
        return []
    return lines


def _likeliest(row: _Row, candidates: range, stop: int) -> tuple[int, int, int]:
    """Return the most likely begin of the iteration that ends at ``stop``, and how many activities before and behind
    repeat."""
    earliest = candidates.start
    places: dict[Hashable, list[int]] = {begin: [] for begin in row.signatures[candidates.start : candidates.stop]}
    # The pass before has the same kernels; the warm-up prepares memory besides.
    for at in range(earliest - 1, max(0, earliest - 3 * (stop - earliest)) - 1, -1):
        known = places.get(row.signatures[at])
        if known is not None and len(known) < _MOST_EARLIER:
            known.append(at)

    def told(first: int) -> tuple[int, int, int]:
        ended = row.alike(first - 1, stop - 1, -1, min(_MOST_COMPARED, first, stop - first))
        if ended <= first - earliest:
            ended = 0  # an iteration may end as it begins
        most = min(_MOST_COMPARED, stop - first)
        return first, ended, max((row.alike(at, first, 1, most) for at in places[row.signatures[first]]), default=0)

    return max(map(told, candidates), key=lambda one: (one[1] + one[2], -one[0]), default=(stop, 0, 0))
