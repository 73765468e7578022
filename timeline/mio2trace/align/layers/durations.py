"""Fit printed layer times to the sequence of activities, and find the iterations that they are of (dvdt-ck.md 2.3 b).

A printed time is not less than the host span of its layer's activities, and not more than the room up to the
neighbours. So a layer's end is bounded by the sum of printed times, and dynamic programming finds the best cuts.
Printed times are means, so iterations are first folded into one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from math import log as ln
from operator import itemgetter

import msgspec
import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import STAMP_NS, LogClock, in_order, stamps_bound
from mio2trace.align.engine import MOST_PLACES, Ways, Weights, cheapest, cheapest_places
from mio2trace.align.layers.net import NetLayerSpec, contradicts, types_of
from mio2trace.align.layers.repetitions import is_filler, matches, signature
from mio2trace.align.links import DOUBTED, NONE, SURE
from mio2trace.align.rates import (
    AT_END,
    CLOSE,
    DOUBT_NS,
    EXPLAINED,
    IN_PART,
    LINE_NS,
    MISFIT,
    TOLERANCE_NS,
    UNEVEN,
    WHOLE,
)
from mio2trace.evidence import DURATIONS
from mio2trace.model.log import Direction
from mio2trace.model.profile import Activity
from mio2trace.model.tables import NO, Activities, Numbers, present

LIMIT_NATS = -ln(1 - SURE)
"""An answer with this additional cost is as unlikely as a wrong sure link."""
STRAY = 1000
"""A cut's distance from evenly spread slack costs this part; it only decides between equal answers."""
MOST_CELLS = 1_000_000
"""Pairs of consecutive cuts; with more, times show nothing. Real fits need a tenth."""


class Window(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bounds of an iteration on the host's (else the device's) clock, and positions of its activities."""

    iteration: int
    start_ns: int
    end_ns: int
    positions: range


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration cut into layers so that their times fit the printed ones. ``layer_of``: (place in execution order,
    probability) by position. ``next_of``: of the next best layer."""

    layer_of: dict[int, tuple[int, float]]
    next_of: dict[int, tuple[int, float]]
    misfit_ns: int
    cost_ns: int


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Folded iterations: column c is one activity in all iterations.

    ``starts[c]``: weighted mean begin, from the iteration's start, of the first activity at or after c. ``ends[c]``:
    the same for the end of the last activity before c. Both have one element more than there are columns."""

    members: list[list[int]]
    starts: Numbers
    ends: Numbers


def fit(
    attribution: Attribution, windows: Sequence[Window], *, on_host: bool = False, may_go_on: bool = False
) -> Cut | None:
    """Cut the windows' activities into the layers; None if nothing fits.

    ``on_host``: by host times, else by device times. ``may_go_on``: activities behind the last layer may have none."""
    activities, order = attribution.profile.activities, attribution.net.execution_order()
    iterations = iterations_printed(attribution)
    error_ns = attribution.host_error_ns if on_host else 0
    windows = [window for window in windows if window.positions]
    if not windows or not order:
        return None
    printed = [layer.printed_ns(direction) for layer, direction in order]
    claimed = sum(time or 0 for time in printed)
    shares = _shares(windows, iterations, claimed * iterations)
    columns = _fold(attribution.profile.commands, windows, shares, on_host=on_host)
    if columns is None:
        return None
    length = sum((one.end_ns - one.start_ns) * share for one, share in zip(windows, shares, strict=True))
    slack = max(0, round(length) - claimed)
    # The printed mean includes iterations that are not in the windows. Their share may be any layer's.
    elsewhere_ns = length - sum(one.end_ns - one.start_ns for one in windows) / max(iterations, len(windows))
    # The place of a cut inside evenly spread slack is no evidence, even if coarse bounds leave much slack.
    spread_ns = LIMIT_NATS * slack / STRAY
    doubt_ns = DOUBT_NS + 2 * error_ns + elsewhere_ns + spread_ns
    # Names count more than times that are less exact.
    odd = _odd_names(activities, columns, order, max(DOUBT_NS, round(doubt_ns)))
    if may_go_on:
        printed.append(None)
        odd.append(np.zeros(1 + len(columns.members), np.int64))
    cuts = _best_cuts(columns, printed, odd, slack, doubt_ns)
    if cuts is None:
        return None
    positions, former, latter, misfit = cuts
    cuts_of = pairwise([0, *positions])
    cost = misfit
    misfit -= sum(int(names[last] - names[first]) for names, (first, last) in zip(odd, cuts_of, strict=True))
    if misfit > claimed / MISFIT + TOLERANCE_NS:
        return None
    layer_of: dict[int, tuple[int, float]] = {}
    next_of: dict[int, tuple[int, float]] = {}
    begin = 0
    for layer, end in enumerate(positions[: len(order)]):
        for column in range(begin, end):
            before, behind = float(former[column]), float(latter[column])
            for position in columns.members[column]:
                layer_of[position] = layer, max(0.0, 1 - before - behind)
                if before > behind:
                    next_of[position] = layer - 1, before
                elif behind and layer + 1 < len(order):
                    next_of[position] = layer + 1, behind
        begin = end
    return Cut(layer_of=layer_of, next_of=next_of, misfit_ns=round(misfit), cost_ns=round(cost))


def _shares(windows: Sequence[Window], iterations: int, in_all_ns: int) -> list[float]:
    """Return the weight of each window in the printed means. Others count like these, except the first."""
    if iterations <= len(windows):
        return [1 / len(windows)] * len(windows)
    lengths = [window.end_ns - window.start_ns for window in windows]
    usual = [len(windows) == 1 or window.iteration != 1 for window in windows]
    like = sum(length for length, one in zip(lengths, usual, strict=True) if one)
    more = 1 + max(0, in_all_ns - sum(lengths)) / max(1, like)
    return [(more if one else 1.0) / iterations for one in usual]


def _odd_names(
    activities: Sequence[Activity], columns: _Columns, order: Sequence[tuple[NetLayerSpec, Direction]], cost_ns: int
) -> list[Numbers]:
    """Return the cumulative cost, per layer and column, of kernels with another layer's name."""
    names = [activities[members[0]].name for members in columns.members]
    of_kind: dict[tuple[frozenset[str], Direction], Numbers] = {}
    kinds = [(types_of(layer.layer, layer.type), direction) for layer, direction in order]
    named = frozenset().union(*(types for types, _ in kinds))
    for types, direction in kinds:
        if (types, direction) not in of_kind:
            odd = [cost_ns * contradicts(name, types, direction, named) for name in names]
            of_kind[types, direction] = np.cumsum([0, *odd])
    return [of_kind[kind] for kind in kinds]


def _fold(
    activities: Activities, windows: Sequence[Window], shares: Sequence[float], *, on_host: bool
) -> _Columns | None:
    """Align all windows with the last one: the first one differs most (buffers, compilation)."""
    times = (activities.start_ns, activities.end_ns)
    if on_host:
        prepared = np.where(activities.prepared_ns > 0, activities.prepared_ns, activities.host_start_ns)
        times = (prepared, activities.host_end_ns)
    base = windows[-1]
    columns: list[list[int]] = [[position] for position in base.positions]
    keys = [signature(activities[position]) for position in base.positions]
    for window in windows[:-1]:
        pairs = matches(keys, [signature(activities[position]) for position in window.positions])
        if pairs is None:
            return None
        merged: list[list[int]] = []
        merged_keys = []
        done = 0
        place = window.positions.start
        for i, j in [*pairs, (len(columns), len(window.positions))]:
            merged += columns[done:i]
            merged_keys += keys[done:i]
            for extra in range(place, window.positions.start + j):
                merged.append([extra])
                merged_keys.append(signature(activities[extra]))
            if i < len(columns):
                columns[i].append(window.positions.start + j)
                merged.append(columns[i])
                merged_keys.append(keys[i])
            done, place = i + 1, window.positions.start + j + 1
        columns, keys = merged, merged_keys
    column_of = {position: number for number, members in enumerate(columns) for position in members}
    starts, ends = np.zeros(len(columns) + 1), np.zeros(len(columns) + 1)
    for window, share in zip(windows, shares, strict=True):
        rows = slice(window.positions.start, window.positions.stop)
        begun, ended = (
            np.where((time[rows] == NO) | (time[rows] == 0), 0, time[rows] - window.start_ns) for time in times
        )
        at = np.searchsorted([column_of[position] for position in window.positions], np.arange(len(starts)))
        starts += np.append(begun, window.end_ns - window.start_ns)[at] * share
        ends += np.append(0, ended)[at] * share
    return _Columns(members=columns, starts=starts.round().astype(np.int64), ends=ends.round().astype(np.int64))


def _earliest(
    columns: _Columns, first: Numbers, last: Numbers, printed: int | None, reach: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the misfit of a layer with columns [first, last) after layers that end at ``reach``, and its end."""
    starts, ends = columns.starts, columns.ends
    begin = np.maximum(reach, ends[first])
    # A layer without activities must find room between its neighbours.
    end = begin + (printed or 0)
    empty = end - starts[first] - LINE_NS, np.minimum(end, np.maximum(begin, starts[first]))
    if printed is None:
        misfit, end = begin - starts[first], np.maximum(ends[last], reach)
    else:
        begin = np.maximum(begin, ends[last] - printed)
        end = np.minimum(begin + printed, np.maximum(ends[last], starts[last]))
        is_late = begin > starts[first]
        misfit = np.where(is_late, begin - starts[first], begin + printed - starts[last])
        end = np.where(is_late, np.maximum(ends[last], reach), end)
    is_empty = first == last
    return np.maximum(0, np.where(is_empty, empty[0], misfit)), np.where(is_empty, empty[1], end)


def _best_cuts(
    columns: _Columns, printed: Sequence[int | None], odd: Sequence[Numbers], slack: int, doubt_ns: float
) -> tuple[list[int], Weights, Weights, float] | None:
    """Return the end of each layer in columns, how probable each column is in the layer before its own and in the one
    behind, and the misfit."""
    candidates, expected = _candidates(columns, printed, slack)
    open_to = [1, *map(len, candidates)]
    if sum(min(MOST_PLACES, before) * after for before, after in pairwise(open_to)) > MOST_CELLS:
        return None
    count, layers = len(columns.members), len(printed)
    # From behind: the same on the mirrored axis.
    mirrored = _Columns(members=columns.members, starts=-columns.ends[::-1], ends=-columns.starts[::-1])

    def odds(layer: int, first: Numbers, last: Numbers) -> Weights:
        early, late = expected[layer] - columns.starts[last], columns.ends[last] - expected[layer]
        stray = np.where((last == 0) | (last == count), 0, np.maximum(0, np.maximum(early, late))) / STRAY
        return np.where(first <= last, stray + odd[layer][last] - odd[layer][first], np.inf)

    def ahead(layer: int, first: Numbers, last: Numbers, reach: Numbers) -> tuple[Weights, Numbers]:
        misfit, end = _earliest(columns, first, last, printed[layer], reach)
        return misfit + odds(layer, first, last), end

    def back(step: int, last: Numbers, first: Numbers, reach: Numbers) -> tuple[Weights, Numbers]:
        layer = layers - 1 - step
        misfit, begin = _earliest(mirrored, count - last, count - first, printed[layer], reach)
        return misfit + odds(layer, first, last), begin

    forward = cheapest(Ways.at(0, 0), candidates, ahead)
    if forward is None:
        return None
    behind = cheapest(Ways.at(count, int(mirrored.ends[0])), [present(one.places) for one in forward[-2:0:-1]], back)
    assert behind is not None
    answer, total = cheapest_places(forward), float(forward[-1].costs[0])
    nat = (total * (CLOSE - 1) + doubt_ns) / LIMIT_NATS
    before, after = np.zeros(count), np.zeros(count)
    for number, (one, rest) in enumerate(zip(forward[1:-1], behind[:0:-1], strict=True), 1):
        # Only the columns of the layers that it divides: others have their own cuts.
        first, here, last = [0, *answer][number - 1 : number + 2]
        chances = np.bincount(*one.chances(rest, nat), count + 1)
        before[here:last] = chances[::-1].cumsum()[::-1][here + 1 : last + 1]
        after[first:here] = chances.cumsum()[first:here]
    return answer, before, after, total


def _candidates(columns: _Columns, printed: Sequence[int | None], slack: int) -> tuple[list[Numbers], Numbers]:
    """Return the possible ends of each layer, and when it ends if slack is spread evenly."""
    starts, ends = columns.starts, columns.ends
    claimed = np.cumsum([time or 0 for time in printed])
    # Time that no layer claims belongs to layers whose times are lost; else it is spread evenly.
    takes = np.cumsum([time is None or None not in printed for time in printed])
    expected = claimed + slack * takes // takes[-1]
    high = np.searchsorted(np.maximum.accumulate(ends[1:]), claimed + slack + TOLERANCE_NS, "right")
    low = np.searchsorted(np.maximum.accumulate(starts[:-1]), claimed - TOLERANCE_NS)
    bounds = zip(np.minimum(low, high), np.maximum(low, high) + 1, strict=True)
    candidates = [np.arange(begin, end) for begin, end in bounds]
    candidates[-1] = np.array([len(columns.members)])
    return candidates, expected


def place_by_host_times(attribution: Attribution) -> None:
    """Cut the iterations so that the printed layer times fit; add a note if they do not."""
    marked = attribution.marked
    if marked is not None and marked.layers and attribution.iterations() in (None, marked.iterations):
        return  # marks bound all iterations
    links = attribution.links
    windows = [w for w in _stamped_windows(attribution) if all(links.run_of[p] == NONE for p in w.positions)]
    cut = fit(attribution, windows, on_host=True)
    if cut is None:
        if any(window.positions for window in windows):
            attribution.notes.add("printed layer times do not fit the enqueues of the iterations: not used")
        return
    place(attribution, windows, cut, of_these_iterations(attribution, windows))
    for window in windows:
        links.doubt_layer(_at_the_ends(attribution, window), AT_END)


def place(attribution: Attribution, windows: Sequence[Window], cut: Cut, whole: float) -> None:
    """Give the windows' activities to the layers of the cut, with ``whole`` as the highest confidence."""
    links, order = attribution.links, attribution.net.execution_order()
    for window in windows:
        for position in window.positions:
            if position not in cut.layer_of:
                continue
            number, confidence = cut.layer_of[position]
            layer, direction = order[number]
            pass_ = links.pass_id("iteration", window.iteration, direction)
            run = attribution.run_for(pass_, (layer.index, direction))
            links.give_layer([position], run, DURATIONS, confidence=confidence * whole)
            if position in cut.next_of:
                beside, chance = cut.next_of[position]
                links.give_next_layer(position, order[beside][0].layer, chance * whole)


def _at_the_ends(attribution: Attribution, window: Window) -> Iterator[int]:
    """Yield activities that coarse times may have moved into an iteration, or from it into its neighbour."""
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


def of_these_iterations(attribution: Attribution, windows: Sequence[Window]) -> float:
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
    iterations, lines = attribution.iterations(), [event for event in attribution.events if event.kind == "iteration"]
    return max((event.number or 0 for event in lines), default=0) if iterations is None else iterations


def _stamped_windows(attribution: Attribution) -> list[Window]:
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
    begun = [event for event in attribution.events if event.kind in ("testing", "benchmark begins", "iteration")]
    stamps = sorted(clock.to_hosts(event.stamp for event in begun))
    windows = []
    coarse = _coarse(attribution)
    for number, start, end in spans:
        # X is read after the stamp: the iteration began a little before stamp - X, but after the line before.
        earlier = bisect_left(stamps, end) - 1
        start = max(start - TOLERANCE_NS, stamps[earlier]) if earlier >= 0 else start
        start -= coarse
        first = bisect_left(begins, start)
        # All activities of the iteration have ended when its line is stamped. Stamps are truncated.
        end += coarse
        last = bisect_right(ends, end + STAMP_NS)
        windows.append(Window(iteration=number, start_ns=start, end_ns=end, positions=range(first, max(first, last))))
    return windows


def _printed_span(attribution: Attribution, clock: LogClock) -> list[tuple[int, int, int]]:
    """Return one iteration that ended before printing began, if there are only layer times (CK's digest)."""
    total = sum(layer.printed_ns(direction) or 0 for layer, direction in attribution.net.execution_order())
    for log in attribution.logs:
        _, rows = in_order(log.times)
        if len(rows) and total and not stamps_bound(log.times) and log.iterations in (None, 1):
            stamp = log.times.stamp(int(rows[0]))
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
_Answer = tuple[int, list[Window], Cut, float]
"""Cost, iterations, their cut, and the probability of the bounds."""


class _Row:
    def __init__(self, commands: Activities) -> None:
        self.signatures = [signature(activity) for activity in commands]
        self.begins, self.ends = commands.start_ns.tolist(), commands.end_ns.tolist()
        self._left = COMPARED_EACH * len(commands)

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
    if attribution.links.runs or attribution.by_order_alone:
        return
    ways = _ways(attribution)
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
    for windows, likely, _ in bounds:
        cut = fit(attribution, windows, may_go_on=may_go_on)
        if cut is None or len(cut.layer_of) < EXPLAINED * len(attribution.profile.activities):
            continue  # a short time at the end of another run's profile has a few kernels, too
        # Here each kernel is in its own layer: none has the name of another layer.
        if cut.misfit_ns <= TOLERANCE_NS and cut.cost_ns - cut.misfit_ns < DOUBT_NS:
            answers.append((cut.cost_ns, windows, cut, likely))
    return min(answers, key=itemgetter(0), default=None)


def _ways(attribution: Attribution) -> list[list[_Bounds]]:
    """Return the possible iterations, the most likely ends first. Empty if device times are not in order."""
    commands, lasted = attribution.profile.commands, _lasted(attribution)
    times = commands.start_ns, commands.end_ns
    if (
        not lasted
        or not len(commands)
        or not commands.has_times.all()
        or any((np.diff(one) < 0).any() for one in times)
    ):
        return []
    if min(length for _, length in lasted) <= TOLERANCE_NS:
        return []  # bounds are no sharper than that
    claimed = sum(layer.printed_ns(direction) or 0 for layer, direction in attribution.net.execution_order())
    # Time that no layer claims may be behind the last activity, or before the first.
    unclaimed = max(0, sum(length for _, length in lasted) // len(lasted) - claimed) + TOLERANCE_NS
    row = _Row(commands)
    stops = range(len(row), max(0, len(row) - _MOST_BEHIND), -1)
    found = [one for stop in stops if (one := _windows(row, lasted, unclaimed, stop)) is not None]
    most = max((alike for *_, alike in found), default=0)
    # Repetition shows the end. Otherwise it is the end of the profile, or the kernel before the results are read.
    last = 1 + int(np.flatnonzero(commands.is_kernel).max(initial=-1))
    at_end = [one for one in found if one[0][-1].positions.stop in (len(row), last)]
    ways = [[one for one in found if one[2] == most]] if most else []
    return [*ways, at_end] if at_end else ways


def _windows(row: _Row, lasted: Sequence[tuple[int, int]], unclaimed: int, stop: int) -> _Bounds | None:
    """Return each iteration's activities if the last one ends before ``stop``; None if the profile is too short."""
    begins, ends = row.begins, row.ends
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
    """Return the most likely begin of the iteration that ends at ``stop``, and how many before and behind repeat."""
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
