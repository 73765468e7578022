"""Which call launched each kernel of a queue: the calls that it may have, and how probable each is.

The calls that a queue may have follow from thread and buffers; those of a kernel from their entries' places among
stamped lines, or in a shared file. A pair hidden Markov model of kernels and calls gives the probability of each link
over all alignments. Unlikely states are dropped, so with strong evidence one state remains after most kernels and the
cost is linear."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice
from math import exp, log
from operator import neg
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from mio2trace.align.clocks.axis import STAMP_NS, HostTimes, LogClock, Timeline, bounded, resolution, stamp_of_call
from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.chances import LEAST, Chances, Posterior
from mio2trace.align.operations.likelihood import Fit, Likelihood
from mio2trace.align.operations.rows import POST, PRE, second_nats
from mio2trace.align.rates import (
    CANDIDATES_APART,
    CUT,
    LONG_CLOSES,
    LONG_GAP,
    NATS_BROKEN,
    NATS_MISSTATED,
    NATS_NEVER,
    SHORT_CLOSES,
    UNKNOWN_NAME,
)
from mio2trace.evidence import BOUNDARY_STAMPS, BUFFERS, POSITION, Evidence
from mio2trace.kernels.facts import buffers_among
from mio2trace.kernels.names import left_of
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.model.tables import NEVER, NO, Numbers, present
from mio2trace.ops.operation import Operation

# -- The calls that a queue or a kernel may have -----------------------------------------------------------------------

SEARCHED_QUEUES = 8
"""Calls without a known queue are searched in the largest queues. With more queues no link would be sure."""


Key = tuple[int, int]
"""The numbers of a queue and of a thread that launched kernels into it."""
Queues = Mapping[Key, Sequence[int]]
"""Their positions."""


def of_streams(
    profile: Profile, streams: Queues, operations: Sequence[Operation], without: frozenset[str]
) -> dict[Key, list[Operation]]:
    """Return the operations that each stream may have: by thread id, buffers, thread, else in all large streams."""
    if len(streams) == 1:
        return {key: list(operations) for key in streams}
    tid_of = {thread.index: thread.tid for thread in profile.threads}
    by_tid: dict[int | None, list[Key]] = {}
    for key in streams:
        by_tid.setdefault(tid_of.get(key[0]), []).append(key)
    stream_of = {} if BUFFERS in without else _streams_of_buffers(profile, streams)
    owner: list[Key | None] = []
    votes: dict[int | None, Counter[Key]] = {}
    for operation in operations:
        claims = {stream_of[address] for _, address in operation.tensors if address in stream_of}
        own = claims.pop() if len(claims) == 1 else None
        owner.append(own)
        if own is not None:
            votes.setdefault(operation.thread, Counter())[own] += 1
    of_thread = {
        thread: counter.most_common(1)[0][0]
        for thread, counter in votes.items()
        if thread is not None and len(counter) == 1
    }
    fullest = _fullest(streams, streams)
    by_tid = {tid: _fullest(keys, streams) for tid, keys in by_tid.items()}
    of_each: dict[Key, list[Operation]] = {key: [] for key in streams}
    for operation, own in zip(operations, owner, strict=True):
        if operation.thread is not None and operation.thread in by_tid:
            for key in by_tid[operation.thread]:
                of_each[key].append(operation)
            continue
        chosen = own if own is not None or operation.thread is None else of_thread.get(operation.thread)
        for each in fullest if chosen is None else [chosen]:
            of_each[each].append(operation)
    return of_each


def _streams_of_buffers(profile: Profile, streams: Queues) -> dict[int, Key | None]:
    stream_of: dict[int, Key | None] = {}
    for key, positions in streams.items():
        for position in positions:
            for address in buffers_among(profile.activities[position].opencl.arguments):
                if stream_of.setdefault(address, key) != key:
                    stream_of[address] = None
    return stream_of


def _fullest(keys: Iterable[Key], streams: Queues) -> list[Key]:
    most = set(sorted(keys, key=lambda key: -len(streams[key]))[:SEARCHED_QUEUES])
    return [key for key in streams if key in most]


def one_stream_each(links: Links, streams: Queues) -> None:
    """Doubt operations with kernels in two queues."""
    if len(streams) < 2:
        return
    indices = np.asarray(links.operation_of)
    launched = [present(indices[np.asarray(positions)]) for positions in streams.values()]
    several = [index for index, count in Counter(chain(*(its.tolist() for its in launched))).items() if count > 1]
    links.doubt_operation(np.flatnonzero(np.isin(indices, several)).tolist())


Late = Literal["", "lines", "calls"]
"""Lines that came late into the log in blocks, because their stream was buffered."""
BUFFERED: dict[Late, str] = {"lines": "the framework's lines", "calls": "MIOpen's lines"}
DISORDER = 50
"""One stamp in this number may be out of order; with more, stamps are not used."""


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel i can belong to the operations ``first[i]`` to ``last[i]`` (places; ``last[i]`` is ``first[i] - 1`` for
    none).

    Both never decrease. ``by``: the evidence."""

    first: Sequence[int]
    last: Sequence[int]
    by: Evidence | Literal[""]

    def reached(self, operations: int) -> list[bool]:
        """Return for each operation whether a kernel can belong to it."""
        first, last = np.asarray(self.first), np.asarray(self.last)
        first, last = first[first <= last], last[first <= last]
        begin, end = (np.bincount(one, minlength=operations + 1) for one in (np.maximum(first, 0), last + 1))
        reached: list[bool] = (np.cumsum(begin - end)[:-1] > 0).tolist()
        return reached


def by_lines(lines: Sequence[int], operations: Sequence[Operation], axis: Timeline) -> Windows | None:
    """Return windows of blocks in ``lines`` and entries of one file: a kernel's operation is the last one entered."""
    if not axis.by_line or not operations:
        return None
    begins = [operation.line for operation in operations]
    last = [bisect_right(begins, line) - 1 for line in lines]
    # Threads print between each other: the last one entered by each of them.
    latest: dict[int | None, int] = {}
    oldest = []
    for operation in operations:
        latest[operation.thread] = bisect_left(begins, operation.line)
        oldest.append(min(latest.values()))
    return Windows(first=[oldest[at] if at >= 0 else 0 for at in last], last=last, by=POSITION)


def by_stamps(
    positions: Sequence[int],
    operations: Sequence[Operation],
    lines: Stamped,
    calls: Stamped,
    times: HostTimes,
    streams: int,
    *,
    host_step_ns: int = 0,
    late: Late = "",
) -> Windows | None:
    """Return windows by the stamped lines around each entry; None if there are none, or out of order.

    ``lines``: the log's. ``calls``: entries with stamps. ``host_step_ns``: step of host times. ``late``: late lines
    bound nothing in front of them, late calls are not bound from the front by lines."""
    stamped = _in_order(np.concatenate((lines, calls)))
    wrong = int((stamped[1:, 2] < stamped[:-1, 1]).sum())
    if not len(stamped) or wrong * DISORDER > len(stamped):
        return None
    in_front, behind = (_in_order(calls) if late == word else stamped for word in ("calls", "lines"))
    low = np.maximum.accumulate(np.append(NO, in_front[:, 1]))
    high = np.minimum.accumulate(np.append(NEVER, behind[::-1, 2]))[::-1]
    begin = low[np.searchsorted(in_front[:, 0], [operation.line for operation in operations], "right")]
    end = high[np.searchsorted(behind[:, 0], lines_behind(operations, streams), "right")]
    end = np.minimum.accumulate(end[::-1])[::-1]
    called = np.asarray(times.called)[np.asarray(positions)]
    first = np.searchsorted(end, called - times.error_ns)
    last = np.searchsorted(begin, called + host_step_ns, "right") - 1
    return Windows(first=array("q", first.tobytes()), last=array("q", last.tobytes()), by=BOUNDARY_STAMPS)


def _in_order(stamped: Stamped) -> Stamped:
    """Return each once, in order."""
    columns = stamped[np.lexsort(stamped.T[::-1])]
    is_new = np.append(True, (np.diff(columns, axis=0) != 0).any(axis=1))[: len(columns)]
    found: Stamped = columns[is_new.astype(bool)]
    return found


Stamped = Numbers
"""Rows of a line, its earliest and its latest host time."""


def stamped_lines(
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    of_lines: LogClock | None,
    of_calls: LogClock | None,
    stamp_ns: int,
) -> tuple[Stamped, Stamped]:
    """Return the log's stamped lines and the stamped calls, each by its clock."""
    source = operations[0].source if operations else None
    lines: list[Stamped] = [_NONE_STAMPED]
    for one in logs if of_lines is not None else ():
        if one.source == source and of_lines is not None:
            printed, times, _ = of_lines.stamped(one)
            lines.append(_stamped(printed[printed != 0], times[printed != 0], of_lines, stamp_ns))
    own = [(one.line, at) for one in operations if of_calls is not None and (at := stamp_of_call(one)) is not None]
    if of_calls is None or not own:
        return np.concatenate(lines), _NONE_STAMPED
    step = stamp_ns if of_calls is of_lines else resolution(at.ns for _, at in own)
    entered = np.array([(line, bounded(of_calls.to_host(stamp))) for line, stamp in own], np.int64)
    return np.concatenate(lines), _stamped(entered[:, 0], entered[:, 1], of_calls, step)


_NONE_STAMPED: Stamped = np.empty((0, 3), np.int64)


def _stamped(lines: Numbers, times: Numbers, clock: LogClock, step: int) -> Stamped:
    error = clock.error_ns if clock.is_fitted else 0
    return np.stack((lines, times - STAMP_NS - error, times + step + error), axis=1)


def lines_behind(operations: Sequence[Operation], streams: int) -> list[int]:
    """Return the line after which a stamp surely follows the call: its own, or that of a later call of its stream."""
    threads = {operation.thread for operation in operations}
    if len(threads) == 1 and streams == 1:
        return [operation.line for operation in operations]
    if len(threads) == 1:
        # Another thread also prints the stamps. If streams share operations, an operation may be in any of a few.
        # While a call of several parts runs, the other threads make as many calls as it has parts.
        parts = Counter(operation.line for operation in operations)
        calls = [*parts]
        later = [
            calls[place + streams * count - 1] if place + streams * count <= len(calls) else NEVER
            for place, count in enumerate(parts.values())
        ]
        line_behind = dict(zip(calls, accumulate(later, max), strict=True))
        return [line_behind[operation.line] for operation in operations]
    following: dict[int | None, int] = {}
    ends = []
    for operation in reversed(operations):
        ends.append(following.get(operation.thread, NEVER))
        following[operation.thread] = operation.line
    return ends[::-1]


# -- The model ---------------------------------------------------------------------------------------------------------

LIKE_KERNELS = 16
"""Kernels in common before two places count as the same place of a repetition."""
CERTAIN = 0.999
"""Confidence of links that are copied although the windows of stamps differ."""


class Repeats:
    """Follows one queue; `after` is called when one state is left."""

    def __init__(self, likelihood: Likelihood, windows: Windows, chances: Chances) -> None:
        kernels = likelihood.kernels
        self._likelihood = likelihood
        self._windows = windows
        numbers: dict[object, int] = {}
        signs = zip(kernels.of, kernels.helped, kernels.apart, kernels.again, kernels.parted, strict=True)
        self._kernels = [numbers.setdefault(sign, len(numbers)) for sign in signs]
        numbers = {}
        calls = zip(likelihood.class_of, likelihood.continues, chances.begun, chances.lost, strict=False)
        self._calls = [numbers.setdefault(call, len(numbers)) for call in calls]
        self._settled: dict[object, tuple[int, int, float]] = {}

    def after(self, at: int, index: int, phase: int, posterior: Posterior) -> tuple[int, int]:
        """Fill in what repeats from kernel ``at`` and call ``index`` on. Returns where to continue."""
        if at < LIKE_KERNELS or index < 0:
            return at, index
        key = (tuple(self._kernels[at - LIKE_KERNELS : at]), self._calls[index], phase)
        before = self._settled.get(key)
        if before is not None:
            kernels, calls = at - before[0], index - before[1]
            evidence = posterior.evidence - before[2]
            fits: list[Fit | None] = []
            while self._repeats(at, index, kernels, calls, posterior, fits):
                self._copy(at, kernels, calls, posterior, fits)
                posterior.evidence += evidence
                at, index = at + kernels, index + calls
        self._settled[key] = at, index, posterior.evidence
        return at, index

    def _repeats(
        self, at: int, index: int, kernels: int, calls: int, posterior: Posterior, fits: list[Fit | None]
    ) -> bool:
        """Return whether the next kernels and calls equal those before; ``fits`` caches the fits of those before."""
        signs, own = self._kernels, self._calls
        if at + kernels > len(signs) or index + calls >= len(own):
            return False
        near = min(kernels, LIKE_KERNELS)  # a long repetition that goes on otherwise is not copied to find that out
        if signs[at : at + near] != signs[at - kernels : at - kernels + near]:
            return False
        if signs[at : at + kernels] != signs[at - kernels : at]:
            return False
        if own[index + 1 : index + calls + 1] != own[index - calls + 1 : index + 1]:
            return False
        launched, buffers = self._likelihood.kernels.sign_of, self._likelihood.calls.buffers_of
        first, last = self._windows.first, self._windows.last
        named, fit = self._likelihood.kernels.named, self._likelihood.fit
        for number, before in enumerate(range(at - kernels, at)):
            after, place = before + kernels, posterior.operation[before]
            if number == len(fits):
                fits.append(None if place == NONE else fit(before, place))
            if first[after] - first[before] != calls or last[after] - last[before] != calls:
                inside = place == NONE or first[after] <= place + calls <= last[after]
                if not inside or posterior.confidence[before] < CERTAIN:
                    return False
            if place == NONE:
                if len(named[before]) != len(named[after]):
                    return False
            elif launched[after] == launched[before] and buffers[place + calls] == buffers[place]:
                continue  # fits as well as before
            elif fit(after, place + calls) != fits[number]:
                return False
        return True

    @staticmethod
    def _copy(at: int, kernels: int, calls: int, posterior: Posterior, fits: Sequence[Fit | None]) -> None:
        stretch, to = slice(at - kernels, at), slice(at, at + kernels)
        moved = [place if place == NONE else place + calls for place in posterior.operation[stretch]]
        posterior.operation[to] = moved
        posterior.confidence[to] = posterior.confidence[stretch]
        posterior.gone[to] = posterior.gone[stretch]
        posterior.fits[to] = fits
        posterior.others[to] = [
            tuple((place if place == NONE else place + calls, chance) for place, chance in others) if others else ()
            for others in posterior.others[stretch]
        ]


OUT, GONE, LONG, HELPERS, MAIN, WAITING = range(6)
"""The phase after a kernel. The first three: in no call, in a lost call, in a long stretch of lost calls. The others
are in a call: before its main kernel, after it, between it and a further main kernel."""
GEMM = 8
"""Added to the phase if the call ran a GEMM."""
STATES, PHASE = 16, 7
"""A state is ``STATES * (index + 1) + phase``. ``index``: the last call that began, -1 before the first."""


Scores = dict[int, float]
_NEGLIGIBLE, _DIGITS = 1e-12, 9
"""Less probable ways are not followed back; smaller differences count as equal."""


Ways = tuple[float, Sequence[tuple[int, float]], Sequence[float], float]
"""Ways to a state: nats together, (state before, nats) each, weight of each relative to the best, sum of weights."""


def meet(ways: Sequence[tuple[int, float]]) -> Ways:
    """Combine ways (state before, nats); at least one."""
    if len(ways) == 1:
        return ways[0][1], ways, (1.0,), 1.0
    worth = [nats for _, nats in ways]
    best = max(worth)
    parts = [exp(nats - best) for nats in worth]
    together = sum(parts)
    return best + log(together), ways, parts, together


def settle(
    posterior: Posterior,
    started: int,
    steps: Sequence[Mapping[int, Ways]],
    end: Mapping[int, float],
    operations: Sequence[object] = (),
) -> None:
    """Fill in the kernels from ``started`` on. ``end``: nats of the states after the last one.

    ``operations``: by place, if some are parts of one call; the probabilities of parts are added. A state's probability
    is divided among its ways by their weights, backward."""
    nats, last, parts, together = meet(list(end.items()))
    posterior.evidence += nats
    chances = {state: part / together for (state, _), part in zip(last, parts, strict=True)}
    for at in range(started + len(steps) - 1, started - 1, -1):
        ways = steps[at - started]
        by_operation: dict[int, float] = {}
        earlier: dict[int, float] = {}
        for state, chance in chances.items():
            phase = state & PHASE
            operation = NONE if phase <= LONG else state // STATES - 1
            by_operation[operation] = by_operation.get(operation, 0.0) + chance
            if phase in (GONE, LONG):
                posterior.gone[at] += chance
            _, before, parts, together = ways[state]
            share = chance / together
            for (previous, _), part in zip(before, parts, strict=True):
                if share * part > _NEGLIGIBLE:
                    earlier[previous] = earlier.get(previous, 0.0) + share * part
        if len(by_operation) == 1:
            posterior.operation[at] = next(iter(by_operation))
        else:
            ranked = sorted(by_operation.items(), key=lambda item: (-round(item[1], _DIGITS), item[0]))
            if operations:
                ranked = _together(ranked, operations)
            posterior.operation[at] = ranked[0][0]
            posterior.confidence[at] = min(1.0, ranked[0][1])
            posterior.others[at] = tuple(item for item in ranked[1:4] if item[1] >= LEAST)
        chances = earlier


def _together(ranked: Sequence[tuple[int, float]], operations: Sequence[object]) -> list[tuple[int, float]]:
    merged: dict[int, tuple[int, float]] = {}
    for place, chance in ranked:
        key = NONE if place == NONE else id(operations[place])
        first, before = merged.get(key, (place, 0.0))
        merged[key] = first, before + chance
    return sorted(merged.values(), key=lambda item: (-round(item[1], _DIGITS), item[0]))


SOURCES = 6
"""The number of states from which an operation may begin."""


class Source(NamedTuple):
    """A state that an operation may begin from: its last operation, and nats of it and of passing over calls."""

    operation: int
    nats: float
    state: int
    passed: float
    least: float
    own: int


def ranked(sources: Sequence[Source], row: float) -> list[Sequence[Source]]:
    """Return the states in two orders: of their cost for near and for far operations. The best of both contain the best
    for any operation. There is one order for few states, or with ``row`` (the cost of dividing a row of GEMMs)."""
    if row or len(sources) <= 2 * SOURCES:
        return [sources]
    near = sorted(sources, key=lambda source: source.nats - source.passed, reverse=True)
    return [near, sorted(sources, key=lambda source: source.nats + source.least, reverse=True)]


def likeliest(
    orders: Sequence[Sequence[Source]], target: int, passed: float, of_class: int, row: float
) -> list[tuple[float, int]]:
    """Return (nats, state) of the most likely states before operation ``target``.

    A state costs ``max(passed one by one, a hole)``. ``passed``: all calls before ``target`` passed over. ``row``: of
    calls of other classes."""
    few = SOURCES if len(orders) > 1 else None
    before = [islice((source for source in order if source.operation < target), few) for order in orders]
    scores = [
        (
            nats + (passed - before if passed - before > least else least) + (0.0 if own in (NONE, of_class) else row),
            state,
        )
        for _, nats, state, before, least, own in {*chain.from_iterable(before)}
    ]
    scores.sort(reverse=True)
    return scores[:SOURCES]


FEW_TARGETS = 4
"""With so few operations in a kernel's window all of them are tried."""
NEXT = 3
"""How many operations ahead are tried, of each kind that fits a kernel."""


class Width(NamedTuple):
    """The largest distance to the best state in nats, and the number of states that are kept."""

    nats: float
    states: int


NARROW, WIDE, AHEAD = Width(12.0, 16), Width(100.0, 40), Width(60.0, 60)


_GAPS = {
    OUT: (0.0, 0.0),
    GONE: (log(SHORT_CLOSES), log(1 - SHORT_CLOSES)),
    LONG: (log(LONG_CLOSES), log(1 - LONG_CLOSES)),
}
_LONG = log(LONG_GAP)


class Lattice:
    """The pair hidden Markov model of a queue's kernels and calls. Scores are log-likelihood ratios."""

    def __init__(self, likelihood: Likelihood, windows: Windows, chances: Chances, width: Width) -> None:
        self._likelihood = likelihood
        self._kernels = likelihood.kernels
        self._windows = windows
        self._chances = chances
        self._width = width
        self._last = len(likelihood.operations) - 1
        # Each place where it begins or ends is equally probable.
        self._log_cut = log(CUT / max(1, len(self._kernels)))
        self._rows: dict[int, list[list[int]]] = {}
        self._worths: dict[tuple[int, int], float] = {}

    def solve(self) -> Posterior:
        count = len(self._kernels)
        whole = self._likelihood.operations if self._likelihood.divided else ()
        posterior = Posterior.of_none(count)
        edges: list[dict[int, Ways]] = []
        current: Scores = {OUT: 0.0}
        repeats = Repeats(self._likelihood, self._windows, self._chances)
        started = at = 0
        while at < count:
            current, ways = self._step(at, current)
            edges.append(ways)
            posterior.states += len(current)
            at += 1
            if len(current) == 1:
                state = next(iter(current))
                settle(posterior, started, edges, current, whole)
                edges = []
                index, phase = state // STATES - 1, state % STATES
                at, index = repeats.after(at, index, phase, posterior)
                started = at
                current = {STATES * (index + 1) + phase: 0.0}
        if edges:
            end = {state: nats + self._end(state) for state, nats in current.items()}
            settle(posterior, started, edges, end, whole)
        return posterior

    def _step(self, at: int, states: Scores) -> tuple[Scores, dict[int, Ways]]:
        kernels, windows = self._kernels, self._windows
        first, last = windows.first[at], windows.last[at]
        kind = kernels.kind(at)
        helped = kernels.helped[at]
        broken = (0.0, NATS_BROKEN, NATS_NEVER)[helped]
        row = NATS_MISSTATED * kernels.in_row[at]
        shuts = row + NATS_MISSTATED * kernels.after_helper[at]  # of lost calls nothing is cut off, either
        ways: dict[int, list[tuple[int, float]]] = {}
        gone, has_next = 0.0 if kind.library else log(UNKNOWN_NAME), self._likelihood.goes_on
        if self._chances.habits is not None:
            gone += self._chances.habits.lost_nats(kernels.of[at])
        ready: list[tuple[int, float, int]] = []
        for state, score in states.items():
            index, phase = state // STATES - 1, state & PHASE
            here = index
            over = 0.0
            if index < first - 1:
                here = first - 1
                over = self._over(index, here + 1)
            leave = self._leave(phase)
            base = STATES * (here + 1)
            lost = self._chances.lost[here + 1]
            if phase <= LONG:
                closes, goes_on = _GAPS[phase] if index >= 0 else (0.0, 0.0)
                closes += shuts * (phase != OUT)
                ready.append((index, score + closes + broken, state))
                if not kind.library:
                    left = over + (broken if phase != OUT else 0.0)
                    ways.setdefault(base + OUT, []).append((state, score + (left + closes)))
                if phase == OUT or over:
                    begun = over + gone + (broken if phase == OUT else 0.0)
                    ways.setdefault(base + GONE, []).append((state, score + (begun + lost)))
                    long = lost + _LONG if here >= 0 else self._log_cut
                    ways.setdefault(base + LONG, []).append((state, score + (begun + long)))
                else:
                    ways.setdefault(base + phase, []).append((state, score + (gone + goes_on)))
            else:
                left = leave + over + broken
                ready.append((index, score + leave + broken, state))
                if not kind.library:
                    ways.setdefault(base + OUT, []).append((state, score + left))
                left += gone + lost + row
                ways.setdefault(base + GONE, []).append((state, score + left))
                ways.setdefault(base + LONG, []).append((state, score + (left + _LONG)))
                if first <= index <= last:
                    inside, following = self._inside(at, index, state & (PHASE | GEMM), entering=False)
                    ways.setdefault(STATES * (index + 1) + following, []).append((state, score + inside))
                    if has_next[index]:
                        inside, following = self._inside(at, index + 1, OUT, entering=True)
                        inside += leave + self._chances.begun[index + 1]
                        ways.setdefault(STATES * (index + 2) + following, []).append((state, score + inside))
        passed, classes = self._chances.passed, self._likelihood.class_of
        # As `_over` has it; a row of GEMMs may be of two calls of one class, or begin one.
        sources = [
            Source(
                index, nats, state, passed[index + 1], self._chances.cut if index < 0 else self._chances.hole,
                NONE if state & PHASE <= LONG else classes[index],
            )
            for index, nats, state in ready
        ]  # fmt: skip
        orders = ranked(sources, row)
        for target in self._targets(at, ready, first, last):
            if from_each := likeliest(orders, target, passed[target], classes[target], row):
                inside, following = self._inside(at, target, OUT, entering=True)
                inside += self._chances.begun[target]
                to = ways.setdefault(STATES * (target + 1) + following, [])
                to += [(state, nats + inside) for nats, state in from_each]
        met = {state: meet(froms) for state, froms in ways.items()}
        kept = self._pruned(at, {state: way[0] for state, way in met.items()})
        return kept, {state: met[state] for state in kept}

    def _end(self, state: int) -> float:
        index, phase = state // STATES - 1, state & PHASE
        worth = self._leave(phase) + self._over(index, self._last + 1)
        if phase == LONG:
            worth += max(0.0, self._log_cut - self._chances.lost[index + 1] - _LONG)  # it ended early
        return worth

    def _over(self, index: int, target: int) -> float:
        if target == index + 1:
            return 0.0
        passed = self._chances.passed
        at_end = index < 0 or target > self._last
        return max(passed[target] - passed[index + 1], self._chances.cut if at_end else self._chances.hole)

    def _pruned(self, at: int, states: Scores) -> Scores:
        nats, count = self._width
        ahead = self._chances.ahead
        if ahead is None:
            hope = states
        else:
            most, calls = ahead[0][at + 1], ahead[1]
            hope = {state: score + min(most, calls[state // STATES]) for state, score in states.items()}
        least = max(hope.values()) - nats
        kept = {state: score for state, score in states.items() if hope[state] >= least}
        if len(kept) > count:
            ranked = sorted(kept, key=lambda state: (-hope[state], state))[:count]
            kept = {state: kept[state] for state in ranked}
        return kept

    @staticmethod
    def _leave(phase: int) -> float:
        return NATS_MISSTATED if phase in (HELPERS, WAITING) else 0.0

    def _inside(self, at: int, index: int, phase: int, *, entering: bool) -> tuple[float, int]:
        """Return the ratio of the kernel in operation ``index`` from ``phase`` on, and the phase after it."""
        likelihood, kernels = self._likelihood, self._kernels
        kind = kernels.kind(at)
        phase, gemm = phase & PHASE, phase & GEMM
        nats = self._worth(at, index)
        if not entering:
            if kernels.parted[at]:
                nats += NATS_BROKEN
            if kernels.apart[at] and likelihood.operations[index].primitive == "conv":
                nats += self._apart(at, index)
            if kernels.again[at] or likelihood.operations[index].launches:
                nats = min(nats, likelihood.most_after(at, index))
        if likelihood.goes_on[index] or likelihood.continues[index]:
            nats += likelihood.part_nats(kind, entering=entering, begun=gemm > 0)
            return nats, (HELPERS if kind.role == "scale" else MAIN) | gemm | GEMM * kind.is_gemm
        if likelihood.is_main(at, index):
            is_gemm = kind.is_gemm and likelihood.operations[index].primitive == "conv"
            if phase in (MAIN, WAITING):
                nats += second_nats(kind, likelihood.operations[index])
                nats += self._after(at, index, is_gemm=is_gemm, gemm=gemm > 0)
            return nats, MAIN | gemm | GEMM * is_gemm
        role = kind.role
        if role in POST:
            return (nats, MAIN | gemm) if phase in (MAIN, WAITING) else (nats + NATS_MISSTATED, HELPERS | gemm)
        if role in PRE:
            return nats, (HELPERS if phase in (OUT, HELPERS) else WAITING) | gemm
        return nats, (HELPERS if phase in (OUT, HELPERS) else phase) | gemm

    def _worth(self, at: int, index: int) -> float:
        kernels, habits = self._kernels, self._chances.habits
        key = None if kernels.named[at] else (kernels.of[at], index)
        nats = None if key is None else self._worths.get(key)
        if nats is None:
            nats = self._likelihood.fit(at, index).nats
            if habits is not None:
                nats += habits.nats(kernels.of[at], index)
            if key is not None:
                self._worths[key] = nats
        return nats

    def _after(self, at: int, index: int, *, is_gemm: bool, gemm: bool) -> float:
        """Further main kernels of a convolution: its GEMMs are equal, a search tries one algorithm after another."""
        kernels, operation = self._kernels, self._likelihood.operations[index]
        if operation.primitive != "conv" or is_gemm == gemm:
            if not is_gemm:
                return 0.0
            if not kernels.kinds[kernels.main_before[at]].is_gemm:
                return NATS_NEVER
            differs = kernels.kind(at).launch != kernels.kinds[kernels.gemm_before[at]].launch
            images = operation.input[0] * (operation.groups or 1) if operation.input else 2
            too_many = operation.phase == "run" and images == 1
            return NATS_MISSTATED if differs or too_many else 0.0
        if operation.phase != "find":
            return NATS_NEVER
        habits = self._chances.habits
        return 0.0 if habits is None else habits.order_nats(operation.direction, gemm_first=gemm)

    def _apart(self, at: int, index: int) -> float:
        """Neighbours in one convolution without common buffers: only candidates of a search."""
        kernels = self._kernels
        mains = kernels.kind(at).role == kernels.kind(at - 1).role == "main"
        if kernels.apart[at] == 1:
            return NATS_MISSTATED if mains and self._likelihood.operations[index].phase != "find" else 0.0
        if mains and self._likelihood.operations[index].phase == "find":
            return log(CANDIDATES_APART)
        return NATS_MISSTATED

    def _targets(self, at: int, ready: Sequence[tuple[int, float, int]], first: int, last: int) -> list[int]:
        if last - first < FEW_TARGETS:
            return list(range(max(0, first), last + 1))
        targets: set[int] = set()
        rows = self._rows_of(at)
        handles = self._kernels.named[at]
        for start in {max(entry[0], first - 1) for entry in ready}:
            for row in rows:
                begin = bisect_right(row, start)
                targets.update(row[begin : begin + NEXT])
            for handle in handles:
                row = self._by_pointer[handle]
                begin = bisect_right(row, start)
                targets.update(row[begin : begin + 2])
        following, ahead = self._chances.following, self._chances.ahead
        if following is not None:
            # Among equal calls it may be one right before the next link, or one behind the last link.
            for row in rows:
                begin = bisect_left(row, following[at])
                targets.update(row[max(0, begin - NEXT) : begin])
        if ahead is not None:
            # The call that is equally far from both ends: the profile may have begun late, or have a hole.
            start = bisect_left(ahead[1], -ahead[0][at], key=neg)
            for row in rows:
                begin = bisect_left(row, start)
                targets.update(row[max(0, begin - NEXT) : begin + NEXT])
        return sorted(index for index in targets if first <= index <= last)

    # These are not used if stamps leave few operations to each kernel.

    @cached_property
    def _by_kind(self) -> list[tuple[list[int], list[int]]]:
        """The calls of each primitive and direction, and the first one of each class."""
        rows: dict[object, list[int]] = {}
        for number, operation in enumerate(self._likelihood.operations):
            if not self._likelihood.continues[number]:
                # If a database answers all searches, all executions come behind all searches.
                is_answered = self._chances.by_database or operation.is_answered
                phase = operation.phase if is_answered else ""
                rows.setdefault((operation.primitive, operation.direction, phase), []).append(number)
        class_of = self._likelihood.class_of
        return [(row, [*{class_of[number]: number for number in reversed(row)}.values()]) for row in rows.values()]

    @cached_property
    def _by_pointer(self) -> Mapping[int, list[int]]:
        rows: dict[int, list[int]] = {}
        for number, pointers in enumerate(self._likelihood.pointers):
            for pointer in pointers:
                rows.setdefault(pointer, []).append(number)
        return rows

    @cached_property
    def _by_launch(self) -> Mapping[tuple[object, object], list[int]]:
        rows: dict[tuple[object, object], list[int]] = {}
        for number, operation in enumerate(self._likelihood.operations):
            for launch in {(left_of(launch.name, self._kernels.cut), launch.gws) for launch in operation.launches}:
                rows.setdefault(launch, []).append(number)
        return rows

    def _rows_of(self, at: int) -> list[list[int]]:
        """Return the operations of each primitive and direction that the kernel's name fits."""
        number = self._kernels.of[at]
        rows = self._rows.get(number)
        if rows is None:

            def fits(index: int) -> bool:
                nats, _, named = self._likelihood.pair(number, index)
                return named or nats > NATS_NEVER  # uncertain evidence excludes nothing

            # Calls of one row differ in mode and sizes: it goes if the name excludes all of them.
            rows = [row for row, firsts in self._by_kind if any(map(fits, firsts))]
            name, grid = self._kernels.kind(at).launch
            launched = self._by_launch.get((left_of(name, self._kernels.cut), grid))
            if launched:
                rows.append(launched)
            self._rows[number] = rows
        return rows
