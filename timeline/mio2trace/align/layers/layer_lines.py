"""Layer lines that bound their layers: the iteration of each, and its activities (dvdt-ck.md 2.1)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import exp
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import Timeline, chances_between, stamps_bound
from mio2trace.align.engine import Pairs, Weights, solved
from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.rates import CONTRADICTED, LIKE, LINE_NS, MOST_STRAY, STRAY, TOLERANCE_NS
from mio2trace.evidence import ORDER
from mio2trace.model.log import Direction, LogEvent
from mio2trace.model.tables import NO, LayerTimes, Numbers, by_key, combined, distinct

_SOON_NS = LINE_NS // 4
_GAP_NS = 8 * LINE_NS
_EVER = 1 << 62
_DIGITS = 9
"""Smaller differences of probabilities count as equal."""
MOST_STATES = 64
MOST_PARTS = 16
"""Parts of an uncertain moment, and cuts in each, that are tried."""


class Lines(msgspec.Struct, frozen=True):
    """Layer lines in columns: a layer's end is in [``stamp``, ``latest``] on the host's clock, or a little before.

    ``floor``: the first activity that may be in it. ``follows``: nothing ran between it and the layer before."""

    stamp: Numbers
    latest: Numbers
    printed_ns: Numbers
    follows: NDArray[np.bool_]
    floor: Numbers


class Chance(NamedTuple):
    """How probable it is that an activity is in its row, and the next best row with its probability."""

    own: float
    other: tuple[int, float] | None = None


class Rows(msgspec.Struct, frozen=True):
    """The activities of each layer line, from ``first`` to before ``stop``. ``unsure``: how probable each of them is,
    for rows in which one may be elsewhere."""

    first: Numbers
    stop: Numbers
    unsure: dict[int, list[Chance]]

    @property
    def are_apart(self) -> bool:
        """Whether each activity is in one row at most, and later rows have later ones."""
        full = np.flatnonzero(self.first < self.stop)
        return not (self.first[full][1:] < np.maximum.accumulate(self.stop[full])[:-1]).any()


class _States(NamedTuple):
    """Possible rows of a layer, in columns: its end, if it has the row, is between ``earliest`` and ``latest``."""

    first: Numbers
    stop: Numbers
    earliest: Numbers
    latest: Numbers
    weight: Weights

    @classmethod
    def of(cls, states: Sequence[tuple[int, int, int, int, float]]) -> _States:
        first, stop, earliest, latest = np.array([state[:4] for state in states], np.int64).T
        return cls(first, stop, earliest, latest, np.array([state[4] for state in states]))

    def part(self, which: slice | tuple[slice, None]) -> _States:
        first, stop, earliest, latest = (column[which] for column in self[:4])
        return _States(first, stop, earliest, latest, self.weight[which])


_IN_ROWS = slice(None), None
_ANY = _States.of([(0, 0, -_EVER, _EVER, 1.0)])
"""Before all layers."""


class Times(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Host begins and ends of one queue's activities, never decreasing, and their error."""

    begins: Sequence[int]
    ends: Sequence[int]
    error_ns: int = 0


def likeliest_rows(lines: Lines, times: Times) -> Rows:
    """Return the most likely row of each layer; activities that are rather in none are in no row.

    A layer with a single possible row needs no solving if the layer before also has a single row and both fit
    together."""
    count = len(lines.stamp)
    low, high = _possible_ends(lines)
    first, stop, is_plain = _plain(lines, low, high, times)

    known = _States(first.copy(), stop.copy(), low.copy(), high.copy(), np.ones(count))
    is_known, several = is_plain.copy(), dict[int, _States]()
    for at in np.flatnonzero(~is_plain).tolist():
        possible = _possible(lines, at, int(low[at]), int(high[at]), times)
        is_known[at] = len(possible.first) == 1
        if not is_known[at]:
            several[at] = possible
            continue
        for column, values in zip(known, possible, strict=True):
            column[at] = values[0]

    def states(at: int) -> _States:
        return known.part(slice(at, at + 1)) if is_known[at] else several[at]

    follow = _beside(known.part(slice(-1)), known.part(slice(1, None)), lines, slice(1, None)) == 1
    follow &= is_known[1:] & is_known[:-1]
    begins = np.flatnonzero(np.append(True, follow)) if count else np.empty(0, np.int64)
    ends = np.append(begins[1:], count)
    given = Rows(first, stop, {})
    is_solved = is_plain[begins] & (ends == begins + 1) & (begins > 0)
    for begin, end in zip(begins[~is_solved].tolist(), ends[~is_solved].tolist(), strict=True):
        stretch = range(begin, end)
        rows = _solved(states(begin - 1) if begin else _ANY, [*map(states, stretch)], lines, begin)
        for at, (row, chances) in zip(stretch, rows, strict=True):
            first[at], stop[at] = row.start, row.stop
            if chances is not None:
                given.unsure[at] = chances
    return given


def _possible_ends(lines: Lines) -> tuple[Numbers, Numbers]:
    """Return the possible ends of each layer, as layers do not overlap; its own bounds if lines contradict."""
    stamps, latest, printed = lines.stamp.tolist(), lines.latest.tolist(), lines.printed_ns.tolist()
    low: list[int] = []
    before = -_EVER
    for stamp, last, took in zip(stamps, latest, printed, strict=True):
        own = stamp - LINE_NS
        least = max(own, before + took - LINE_NS)
        before = least if least <= last else own
        low.append(before)
    high: list[int] = []
    after = _EVER  # when the layer behind begins
    for stamp, last, took in zip(stamps[::-1], latest[::-1], printed[::-1], strict=True):
        most = min(last, after + LINE_NS)
        end = most if most >= stamp - LINE_NS else last
        high.append(end)
        after = end - took
    earliest, ends = np.array(low, np.int64), np.array(high[::-1], np.int64)
    agree = earliest <= ends
    return np.where(agree, earliest, lines.stamp - LINE_NS), np.where(agree, ends, lines.latest)


def _plain(lines: Lines, low: Numbers, high: Numbers, times: Times) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Return first and stop of each layer that ends between ``low`` and ``high``, and whether no other cut is
    possible, as mostly."""
    begins, ends = np.asarray(times.begins, np.int64), np.asarray(times.ends, np.int64)
    printed, error = lines.printed_ns, times.error_ns
    stop = np.searchsorted(begins, low - error)
    first = np.searchsorted(begins, low - printed - error)
    is_plain = (stop == np.searchsorted(ends, high + error, "right")) & (lines.floor <= first) & (first <= stop)
    return first, stop, is_plain & (first == np.searchsorted(ends, high - printed + error, "right"))


def _possible(lines: Lines, at: int, low: int, high: int, times: Times) -> _States:
    """Return the states of a layer that ends between ``low`` and ``high``, weighted by time."""
    stamp, latest, printed, floor = (int(one[at]) for one in (lines.stamp, lines.latest, lines.printed_ns, lines.floor))

    def before(time: int) -> float:  # a line comes soon after the end
        return _SOON_NS * exp((time - stamp) / _SOON_NS) if time < stamp else _SOON_NS + time - stamp

    states = []
    for cell in _cells(low, high):
        for stop, earliest, last in _cuts(*cell, times):
            for first, begun, until in _cuts(earliest - printed, last - printed, times):
                # Rounded or late host times may put one before the floor that is behind it.
                late = first < floor and times.ends[floor - 1] - times.error_ns - until > TOLERANCE_NS
                if max(first, floor) <= stop and not late:
                    weight = before(until + printed + 1) - before(begun + printed)
                    weight /= _SOON_NS + 1 + latest - stamp
                    states.append((max(first, floor), stop, begun + printed, until + printed, weight))
    if states:
        return _States.of(states[:: 1 + len(states) // MOST_STATES])
    # An activity goes on across the end or the begin wherever these are: a time is wrong.
    stop = bisect_right(times.ends, high + times.error_ns)
    first = max(floor, bisect_left(times.begins, low - printed - LINE_NS - times.error_ns))
    return _States.of([(min(first, stop), stop, low, high, CONTRADICTED)])


def _cells(low: int, high: int) -> Iterator[tuple[int, int]]:
    width = max(2 * LINE_NS, (high - low) // MOST_PARTS + 1)
    for start in range(low, high + 1, width + 1):
        yield start, min(start + width, high)


def _cuts(low: int, high: int, times: Times) -> Iterator[tuple[int, int, int]]:
    """Yield (place, earliest, latest) of the cuts that are possible from ``low`` to ``high``."""
    begins, ends, error = times.begins, times.ends, times.error_ns
    count = len(begins)
    least, most = bisect_left(begins, low - error), bisect_right(ends, high + error)
    for place in range(least, most + 1, 1 + max(0, most - least) // MOST_PARTS):
        earliest = max(low, ends[place - 1] - error) if place else low
        latest = min(high, begins[place] + error) if place < count else high
        if earliest <= latest:
            yield place, earliest, latest


_Solved = tuple[range, list[Chance] | None]
"""A row, and how probable its activities are: None if all are sure."""


def _solved(opening: _States, states: Sequence[_States], lines: Lines, number: int) -> Sequence[_Solved]:
    """Solve a stretch of layers. ``number``: the number of the first layer."""
    pairs = enumerate(pairwise([opening, *states]), number)
    steps = [Pairs(_beside(before.part(_IN_ROWS), after, lines, at) * after.weight) for at, (before, after) in pairs]
    if len(steps) == 1 and steps[0].weights.size == 1:
        row = range(int(states[0].first[0]), int(states[0].stop[0]))
        return [
            (row, None if steps[0].weights[0, 0] == states[0].weight[0] > CONTRADICTED else [Chance(0.5)] * len(row))
        ]
    shares: list[dict[int, float]] = []
    for one, chances in zip(reversed(states), solved(np.ones(1), steps, np.ones(len(states[-1].first))), strict=True):
        share: dict[int, float] = {}
        certain = np.where(one.weight > CONTRADICTED, chances, chances / 2)
        for state in np.flatnonzero(chances > CONTRADICTED).tolist():
            for place in range(one.first[state], one.stop[state]):
                share[place] = share.get(place, 0.0) + float(certain[state])
        shares.append({place: round(chance, _DIGITS) for place, chance in share.items()})
    return [*_chosen(shares[::-1], number)]


def _chosen(shares: Sequence[dict[int, float]], first: int) -> Iterator[_Solved]:
    """Put each activity into its most likely layer, unless it is rather in none. ``first``: the first layer."""
    best: dict[int, tuple[float, int]] = {}
    for number, share in enumerate(shares):
        for place, probability in share.items():
            if probability >= 0.5 and probability > best.get(place, (0.0, 0))[0]:
                best[place] = probability, number
    own: list[dict[int, float]] = [{} for _ in shares]
    for place, (probability, number) in sorted(best.items()):
        own[number][place] = min(1.0, probability)
    for number, chances in enumerate(own):
        beside = [one for one in (number - 1, number + 1) if 0 <= one < len(shares)]
        places = range(min(chances), max(chances) + 1) if chances else range(0)
        given = []
        for place in places:
            others = [(first + one, shares[one][place]) for one in beside if shares[one].get(place, 0.0) > 0]
            given.append(Chance(chances.get(place, 0.0), max(others, key=itemgetter(1), default=None)))
        yield places, given


def _beside(before: _States, after: _States, lines: Lines, at: int | slice) -> Weights:
    """Return how likely two rows are as neighbours: they do not overlap, and what is between them is in no layer.

    ``before``, ``after``: rows of line ``at`` and of the line before, one by one, or in rows and in columns."""
    begins, ends = after.earliest - lines.printed_ns[at], after.latest - lines.printed_ns[at]
    strays = np.clip(after.first - np.maximum(before.stop, lines.floor[at]), 0, 3)
    gaps = np.maximum(1, (begins - before.latest) / _GAP_NS)
    weights = np.where(lines.follows[at], STRAY**strays * np.maximum(STRAY, np.exp(1 - gaps)), 1.0)
    is_apart = (after.first >= before.stop) & (ends - before.earliest >= -LINE_NS)
    return np.where(is_apart, weights, CONTRADICTED**2)


_BEGIN = ("testing", "benchmark begins")
MOST_QUEUES = 8
"""Queues with rows of their own; with more, no link would be sure."""


def place_by_layer_lines(attribution: Attribution) -> None:
    """Cut at the layer lines whose stamps or places bound layers, else by the calls between two lines."""
    axis = attribution.axis
    if axis is None or axis.evidence in attribution.without:
        return
    for log in attribution.logs:
        layers = log.times
        if not stamps_bound(layers):
            continue
        places = axis.layers(layers)
        rows = np.flatnonzero(places != NO)
        lines = layers.line[rows]
        rows = rows[np.argsort(lines if lines.all() else places[rows], kind="stable")]
        rows = rows[~_copies(layers.take(rows))]
        _place(attribution, axis, layers.take(rows), places[rows])


def _copies(layers: LayerTimes) -> NDArray[np.bool_]:
    """Return whether each layer line repeats the previous line."""
    columns = (
        layers.source,
        layers.key.codes,
        layers.printed_ns,
        layers.day.codes,
        layers.clock_ns,
        layers.thread.codes,
    )
    copies = layers.has_stamp.copy()
    copies[:1] = False
    for column in columns:
        copies[1:] &= column[1:] == column[:-1]
    return copies


def _place(attribution: Attribution, axis: Timeline, layers: LayerTimes, places: Numbers) -> None:
    """Give each activity to its most likely layer; each layer line is a run. ``places``: where the lines
    are on the axis."""
    links, net = attribution.links, attribution.net
    at = _places(attribution, layers)
    iterations, chances_of = _iterations_of(attribution, axis, layers, places, at)
    host_ends = places
    if axis.by_line:
        clock = attribution.clock
        host_ends = np.full(len(layers), NO) if clock is None else clock.hosts_of(layers)
    first, place_of = distinct(combined(iterations, layers.direction.codes))
    opening = zip(iterations[first].tolist(), layers.direction.take(first).each(), strict=True)
    passes = np.array([links.pass_id("iteration", iteration, direction) for iteration, direction in opening], np.int64)
    runs = links.runs.add_columns(
        layers.key,
        pass_=passes[place_of],
        printed_ns=layers.printed_ns,
        host_start_ns=np.where(host_ends == NO, NO, host_ends - layers.printed_ns),
        host_end_ns=host_ends,
    )
    begun, begun_by = _begun(attribution, layers)
    # Coarse stamps do not show the cut at the place of the line.
    opened = np.append([event.line for event in begun], NO)[begun_by if axis.by_line else np.full(len(layers), NONE)]
    # Whether no line is lost between a layer line and the one before.
    follows: NDArray[np.bool_] = (at == 0) & (opened > np.append(-1, layers.line[:-1]))
    follows[1:] |= (iterations[1:] == iterations[:-1]) & (at[1:] - 1 == at[:-1])
    follows &= net.is_whole
    chances = {} if axis.evidence else chances_between(links, np.sort(layers.line).tolist())
    for positions in _rows_of_queues(attribution, axis):
        given = _rows(attribution, axis, Lines(places, places, layers.printed_ns, follows, begun_by), begun, positions)
        one_by_one: Sequence[int] = range(len(runs))
        if axis.evidence is not None and given.are_apart:
            is_sure = chances_of >= 1
            is_sure[[*given.unsure]] = False
            sure = np.flatnonzero(is_sure & (given.first < given.stop))
            of_run = (given.stop - given.first)[sure]
            rows = np.arange(of_run.sum()) + np.repeat(given.first[sure] - (np.cumsum(of_run) - of_run), of_run)
            links.give_layers(np.asarray(positions)[rows], np.repeat(runs[sure], of_run), axis.evidence)
            one_by_one = np.flatnonzero(~is_sure).tolist()
        for number in one_by_one:
            run, of_number = int(runs[number]), float(chances_of[number])
            of_row = positions[given.first[number] : given.stop[number]]
            for position in of_row if chances else ():  # those without operation between those with one
                if links.run_of[position] == NONE and chances.get(position, 0.0) >= DOUBTED:
                    links.give_layer([position], run, ORDER, confidence=chances[position])
            if of_number == 1 and number not in given.unsure:
                alone = [one for one in of_row if one not in chances] if chances else of_row
                attribution.give_layer(alone, run, axis.evidence)
                continue
            unsure = given.unsure.get(number) or [Chance(1.0)] * len(of_row)
            for position, (own, other) in zip(of_row, unsure, strict=True):
                confidence = of_number * own
                if confidence >= DOUBTED and position not in chances:
                    attribution.give_layer([position], run, axis.evidence, confidence=confidence)
                    if other is not None:
                        links.give_next_layer(position, layers.layer.at(other[0]), other[1])


def _rows_of_queues(attribution: Attribution, axis: Timeline) -> Iterator[list[int]]:
    """Yield the activities of each queue; the smaller queues beyond MOST_QUEUES together in host order."""
    queues = attribution.of_queues()
    fullest = set(sorted(queues, key=lambda queue: -len(queues[queue]))[:MOST_QUEUES])
    rest: list[int] = []
    for queue, positions in queues.items():
        if queue in fullest:
            yield positions
        else:
            rest += positions
    if rest:
        host = attribution.host_times
        assert axis.by_line or host is not None
        rest.sort(key=axis.ends.__getitem__ if host is None or axis.by_line else host.called.__getitem__)
        yield rest


def _rows(
    attribution: Attribution, axis: Timeline, lines: Lines, begun: Sequence[LogEvent], positions: Sequence[int]
) -> Rows:
    """Return the activities of each layer. ``lines``: stamps are their places on the axis, floors the events of
    ``begun`` that began their iterations."""
    host, clock, ends = attribution.host_times, attribution.clock, _latest(axis.ends, positions)
    error = 0 if host is None else host.error_ns
    if clock is not None and clock.is_fitted and not axis.by_line:
        error += clock.error_ns
    # Activities that ended before the first line of the iteration are in none of its layers.
    sharp = 0 if axis.by_line else error
    floors = [0 if (place := axis.event(event)) is None else bisect_right(ends, place - sharp) for event in begun]
    lines = msgspec.structs.replace(lines, floor=np.array([*floors, 0], np.int64)[lines.floor])
    if axis.by_line:
        stops = np.searchsorted(np.asarray(ends), lines.stamp, "right")
        first = np.maximum(lines.floor, np.append(0, stops)[: len(stops)])
        between = Rows(first, np.maximum(first, stops), {})
        if host is None:
            return between
    assert host is not None
    if axis.ends is not host.own_ends:
        ends = _latest(host.own_ends, positions)
    times = Times(begins=_latest(host.called, positions), ends=ends, error_ns=error)
    if not axis.by_line:
        return likeliest_rows(msgspec.structs.replace(lines, latest=lines.stamp + attribution.stamp_ns), times)
    # Its end is between the last activity before its line and the first one behind.
    begins, own_ends = np.asarray(times.begins), np.asarray(times.ends)
    stamp = np.where(stops > 0, own_ends[stops - 1], begins[0])
    behind = begins[np.minimum(stops, len(positions) - 1)]
    latest = np.where(stops < len(positions), np.maximum(stamp, behind), stamp + lines.printed_ns)
    return _between_lines(
        likeliest_rows(msgspec.structs.replace(lines, stamp=stamp, latest=latest), times), lines.follows, between
    )


def _latest(times: Sequence[int], positions: Sequence[int]) -> Sequence[int]:
    return array("q", np.maximum.accumulate(np.asarray(times, np.int64)[np.asarray(positions)]).tobytes())


def _between_lines(given: Rows, follows: NDArray[np.bool_], between: Rows) -> Rows:
    """Restrict rows by printed times to the activities between two lines (``between``).

    If they disagree often, printed times are not this profile's (a log of another device), and only lines count."""
    is_full = given.first < given.stop
    crossing = is_full & ((given.first < between.first) | (between.stop < given.stop))
    strange = np.count_nonzero(crossing) > MOST_STRAY * np.count_nonzero(is_full)
    first = np.maximum(between.first, given.first)
    kept = Rows(first, np.maximum(first, np.minimum(between.stop, given.stop)), {})
    for at in range(len(first)) if strange else [*given.unsure]:
        if strange and follows[at]:
            kept.first[at], kept.stop[at] = between.first[at], between.stop[at]
            continue
        begin, end = int(kept.first[at] - given.first[at]), int(kept.stop[at] - given.first[at])
        chances = given.unsure[at][begin:end] if at in given.unsure else [Chance(1.0)] * (end - begin)
        kept.unsure[at] = [one._replace(own=min(DOUBTED, one.own)) for one in chances] if strange else chances
    return kept


def _begun(attribution: Attribution, layers: LayerTimes) -> tuple[list[LogEvent], Numbers]:
    """Return the events that end or begin iterations, in order, and which of them is the last before each layer."""
    source = int(layers.source[0]) if layers else None
    events = [event for event in attribution.events if event.kind in (*_BEGIN, "iteration") and event.source == source]
    events = sorted((event for event in events if event.line), key=lambda event: event.line)
    return events, np.searchsorted(np.array([event.line for event in events], np.int64), layers.line) - 1


def _places(attribution: Attribution, layers: LayerTimes) -> Numbers:
    """Return the places of layers in the order of execution, `NONE` for a layer that is not in the net."""
    order = enumerate(attribution.net.execution_order())
    place_of: dict[tuple[int, Direction | None], int] = {
        (layer.index, direction): place for place, (layer, direction) in order
    }
    at = np.array([place_of.get((key.place, key.direction), NONE) for key in layers.key.values], np.int64)
    return at[layers.key.codes]


def _iterations_of(
    attribution: Attribution, axis: Timeline, layers: LayerTimes, places: Numbers, at: Numbers
) -> tuple[Numbers, NDArray[np.float64]]:
    """Return the iteration of each layer line, and its probability. ``at``: their places in the order of execution.

    An ``Iteration: K`` line ends iteration K. If one is lost, repeated layers show where an iteration ends."""
    by_line = bool(layers.line.all())

    def place_of(event: LogEvent) -> int | None:
        return event.line if by_line else axis.event(event)

    source = int(layers.source[0]) if layers else None
    events = [event for event in attribution.events if event.source == source]
    ended = sorted(
        (place, event.number)
        for event in events
        if event.kind == "iteration" and event.number is not None and (place := place_of(event)) is not None
    )
    begun = [place for event in events if event.kind in _BEGIN and (place := place_of(event)) is not None]
    own = layers.line if by_line else places
    befores = np.searchsorted([place for place, _ in ended], own)
    end = len(attribution.net.execution_order()) - 1
    iterations, chances = np.ones(len(layers), np.int64), np.ones(len(layers))
    is_begun = bool(begun) and min(begun) <= own[0]
    count = attribution.iterations()
    for before, members in by_key(np.arange(len(layers)), befores):
        low = ended[before - 1][1] if before else 0 if is_begun else None
        high = ended[before][1] if before < len(ended) else None
        for first, last, iteration, is_told in _numbered(at[members].tolist(), low, high, end, count):
            told = slice(members[first], members[last] + 1)
            iterations[told], chances[told] = max(1, iteration), 1.0 if is_told else LIKE
    return iterations, chances


def _numbered(
    ats: Sequence[int], low: int | None, high: int | None, end: int, count: int | None
) -> Iterator[tuple[int, int, int, bool]]:
    """Divide layer lines between the ends of iterations ``low`` and ``high``: (first, last, number, whether it is
    certain).

    ``ats``: places in the order of execution, up to ``end``. ``count``: the number of iterations."""
    cuts: list[tuple[bool, int, int]] = []
    seen: set[int] = set()
    for place, (before, at) in enumerate(pairwise(ats), 1):
        seen.add(before)
        if 0 <= at <= before:
            cuts.append((at in seen, before - at, place))
            seen = set() if at in seen else seen
    exactly = None if low is None or high is None else max(1, high - low)
    most = exactly or max(1, (high or count or len(ats)) - (low or 0))
    again = [cut for cut in cuts if cut[0]]
    taken = sorted(place for *_, place in sorted(again if exactly is None else cuts, reverse=True)[: most - 1])
    is_told = exactly == 1 or len(again) == most - 1 == len(taken) or (low is high is None and not cuts)
    rows = [*zip([0, *taken], [*(place - 1 for place in taken), len(ats) - 1], strict=True)]
    for number, (first, last) in enumerate(rows):
        # Without a gap: a lost stretch may have the end of one iteration and the beginning of the next.
        is_whole = all(after == before + 1 for before, after in pairwise(ats[first : last + 1]))
        beside_low = low is not None and not number and ats[first] == 0 and is_whole
        beside_high = high is not None and number == len(rows) - 1 and ats[last] == end and is_whole
        from_behind = None if high is None else high - (len(rows) - 1 - number)
        counted = from_behind if low is None or beside_high else low + 1 + number
        yield first, last, 1 + number if counted is None else counted, is_told or beside_low or beside_high
