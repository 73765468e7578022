"""Each queue's kernels with the calls that may have launched them, and the steps that link both."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise, permutations
from math import exp, inf, log

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.operations.chances import (
    LEAST,
    Habits,
    Posterior,
    Rates,
    ahead,
    chances_of,
    following,
    kinds_of,
    of_this_process,
)
from mio2trace.align.operations.lattice import (
    AHEAD,
    BUFFERED,
    NARROW,
    NEXT,
    WIDE,
    Key,
    Late,
    Lattice,
    Queues,
    Width,
    Windows,
    by_lines,
    by_stamps,
    of_streams,
    one_stream_each,
    stamped_lines,
)
from mio2trace.align.operations.likelihood import Fit, Likelihood
from mio2trace.align.operations.rows import divided
from mio2trace.align.rates import BESIDE_STRANGERS, CUT, FEW, HARDLY_ANY, LONG_GAP, NATS_MISSTATED, WHOLE
from mio2trace.evidence import (
    BOUNDARY_STAMPS,
    BUFFERS,
    EXACT,
    LAUNCH_LINE,
    NAME_AND_SIZES,
    ORDER,
    POSITION,
    RECURRENCE,
    Evidence,
)
from mio2trace.model.profile import Profile
from mio2trace.model.tables import by_key, combined, sorted_pool
from mio2trace.ops.operation import Operation

ALIKE_ROW = 10
MOST_SHIFTS, MOST_COMPARED = 16, 200_000
"""Places and kernels that are compared; the rest counts as equal."""


def chance_of_place(likelihood: Likelihood, windows: Windows, posterior: Posterior) -> float:
    """Return the probability that the links are not all some iterations earlier or later."""
    kernels = likelihood.kernels
    rows = np.flatnonzero(kernels.library)
    places_of_rows = np.array(posterior.operation, np.int64)[rows]
    with_call = np.flatnonzero(places_of_rows != NONE)
    if len(with_call) < ALIKE_ROW:
        return 1.0
    first, last = int(with_call[0]), int(with_call[-1])
    latest = int(places_of_rows.max())
    executing = [place for place, operation in enumerate(likelihood.operations) if operation.phase == "run"]
    left_behind = bool(executing) and executing[-1] > latest
    earliest = int(places_of_rows[with_call].min())
    # If no search launched, a database answered them: that leaves no call, unless a cut is needed anyway.
    launched = {likelihood.operations[place].phase for place in {*places_of_rows[with_call].tolist()}}
    left_before = earliest > 0 and (left_behind or "find" in launched or executing[0] < earliest)

    def cuts(shift: int) -> int:
        """Return at how many ends one side has more than the other if all calls moved by ``shift`` kernels."""
        return (first + shift != 0 or left_before) + (last + shift != len(rows) - 1 or left_behind)

    # If no end was cut, any other place cuts two ends, which is far less likely.
    if not cuts(0):
        return 1.0
    library, places, linked = rows.tolist(), places_of_rows.tolist(), with_call.tolist()
    signs = [(kernels.of[at], kernels.named[at]) for at in library]

    def like(number: int, begin: int, end: int) -> list[int]:
        own = signs[number : number + ALIKE_ROW]
        return [at for at in range(begin, end) if signs[at] == own[0] and signs[at : at + ALIKE_ROW] == own]

    # Places that are equal to the first linked kernels, or to the profile's begin.
    shifts = {place - first for place in like(first, 0, len(signs)) if place != first}
    shifts |= {-place for place in like(0, first + 1, last + 1)}
    others, left = list[int](), MOST_COMPARED
    for shift in sorted(shifts, key=abs)[:MOST_SHIFTS]:
        inside = [number for number in linked if 0 <= number + shift < len(signs)][: left + 1]
        alike = 0  # linked kernels that have an equal one there, which their call may be
        for number in inside:
            at = library[number + shift]
            if signs[number + shift] != signs[number] or not windows.first[at] <= places[number] <= windows.last[at]:
                break
            alike += 1
        left = max(0, left - alike)
        if alike == len(inside) >= ALIKE_ROW:
            others.append(shift)
    if not others:
        return 1.0
    # One more cut exactly at the end of the other side. Each kernel of an iteration is equally probable.
    cut = CUT / min(map(abs, others))
    return float(1 / (1 + sum(cut ** (cuts(shift) - cuts(0)) for shift in others)))


def doubt_repeats(likelihood: Likelihood, posterior: Posterior, rates: Rates) -> None:
    """Doubt searches that stand alone between kernels of lost calls, if other layers also search for their problems.

    They may be the searches of those layers, which the log lost: then it lost one stretch, not two, and those that it
    has launched nothing, as what was searched before."""
    kernels, operations = likelihood.kernels, likelihood.operations
    problems = [likelihood.problem_of[number] for number in likelihood.class_of]
    posed = Counter(problem for problem, one in zip(problems, operations, strict=True) if one.phase == "run")
    twice = 2 * min(posed.values(), default=0)
    library = array("q", np.flatnonzero(kernels.library).tobytes())
    rows = [(linked, [*row]) for linked, row in groupby(library, lambda at: posterior.operation[at] != NONE)]
    for linked, row in rows[1:-1]:
        calls = {posterior.operation[at] for at in row}
        if not linked or any(operations[one].phase == "run" or posed[problems[one]] < twice for one in calls):
            continue
        odds = rates.silent["search again"] ** len(calls) / (rates.lost * LONG_GAP)
        for at in row:
            posterior.doubt(at, 1 / (1 + odds))


LONG_ROW = 10
"""More kernels without operation than one call launches."""
ROUNDS = 3
TOO_MANY, TOO_VAGUE = 20_000, 8_000
"""Too many kernels for a wide search, and too many states of a narrow one."""


class Stream(msgspec.Struct, eq=False, dict=True):
    """One queue's kernels and the operations that may have launched them.

    ``elsewhere``: probability by index that an operation is another queue's. ``without``: evidence to leave out.
    ``at_most``: highest confidence of links by names, sizes and order alone."""

    profile: Profile
    positions: Sequence[int]
    likelihood: Likelihood
    windows: Windows
    elsewhere: Mapping[int, float]
    without: frozenset[str]
    at_most: float = 1.0
    posterior: Posterior | None = None

    def __post_init__(self) -> None:
        self.operations = self.likelihood.operations
        self._kinds = kinds_of(self.operations, self.likelihood.class_of)

    @property
    def result(self) -> Posterior:
        return self.posterior or self.solve()

    def link(self, links: Links) -> None:
        """Link each kernel to its most likely operation."""
        if not self.operations:
            return
        posterior, own = self.result, self.of_this_process()
        # If more calls and kernels are left than linked, they may be of other processes.
        is_scant = self.left_over() > 1 / 2 and self.leaves_calls()
        in_part = self._launched_in_part(posterior)
        certain: dict[Evidence, tuple[array[int], array[int]]] = {}
        for number, place in enumerate(posterior.operation):
            if place == NONE:
                continue
            by = self._by(number, place, posterior.fits[number])
            if by in self.without:
                continue
            posterior.calibrate(number)
            confidence = posterior.confidence[number]
            if own < 1 and by in (NAME_AND_SIZES, ORDER, LAUNCH_LINE):
                confidence *= own
            scant = is_scant and by in (NAME_AND_SIZES, ORDER)
            index = self.operations[place].index
            if by == ORDER or scant or index in in_part or self.likelihood.may_be_two(place):
                confidence = min(confidence, WHOLE)
            if confidence < 1:
                links.give_operation((self.positions[number],), index, by, confidence=confidence)
                continue
            positions, indices = certain.setdefault(by, (array("q"), array("q")))
            positions.append(self.positions[number])
            indices.append(index)
        for by, (positions, indices) in certain.items():
            links.give_operations(np.asarray(positions), np.asarray(indices), by)

    def _launched_in_part(self, posterior: Posterior) -> set[int]:
        """Return the indices of operations of which some parts have kernels and some have none."""
        with_kernels = {*posterior.operation}
        parts = {(operation.index, place in with_kernels) for place, operation in enumerate(self.operations)}
        return {index for index, is_launched in parts if is_launched and (index, False) in parts}

    def of_this_process(self) -> float:
        """Return the highest confidence of links by names, sizes and order (`chances`)."""
        # Calls that stamps put before or behind the profile are no evidence.
        elsewhere = [
            other if reached else 1.0
            for other, reached in zip(self._elsewhere(), self.windows.reached(len(self.operations)), strict=True)
        ]
        return min(self.at_most, of_this_process(self.result, self.operations, elsewhere))

    def launched(self) -> dict[int, float]:
        """Return the probability by index that an operation launched kernels of this queue."""
        posterior = self.posterior or Posterior.of_none(0)
        chances: dict[int, float] = {}
        for place, confidence in zip(posterior.operation, posterior.confidence, strict=True):
            if place != NONE:
                index = self.operations[place].index
                chances[index] = max(chances.get(index, 0.0), confidence)
        return chances

    def left_over(self) -> float:
        """Return the share of the library's kernels without a call."""
        return int(self._left(self.result).sum()) / max(1, int(self.likelihood.kernels.library.sum()))

    def _left(self, posterior: Posterior) -> NDArray[np.bool_]:
        """Return of each kernel whether it is the library's and has no call."""
        left: NDArray[np.bool_] = (np.array(posterior.operation) == NONE) & self.likelihood.kernels.library
        return left

    def leaves_calls(self, posterior: Posterior | None = None) -> bool:
        """Return whether a call that executes has no kernels."""
        linked = {*(posterior or self.result).operation}
        return any(place not in linked and operation.phase == "run" for place, operation in enumerate(self.operations))

    def _elsewhere(self) -> list[float]:
        return [self.elsewhere.get(operation.index, 0.0) for operation in self.operations]

    def solve(self) -> Posterior:
        """Search narrowly, as if searches launched and as if a database answered them; then refine what is likely."""
        rates = Rates.before(entered=self.likelihood.entered)
        begun = [(rates, self._posterior(rates, NARROW))]
        share = 0.0
        if self._may_be_answered(begun[0][1]):
            rates = rates.answered()
            begun.append((rates, self._posterior(rates, NARROW)))
            share = self._share_answered(begun[0][1], begun[1][1])
            begun = begun[share > LEAST :] if share >= SURE else begun[: 1 + (share > LEAST)]
        rates, posterior = self._refined(*begun[0])
        for also in begun[1:]:
            others, other = self._refined(*also)
            posterior, rates = posterior.mixed(other, share), others if share > 1 / 2 else rates
            # The learned habits may have led both to the same answer, so no link is more probable than before.
            weighed = begun[0][1].mixed(begun[1][1], share)
            for at, place in enumerate(posterior.operation):
                posterior.doubt(at, dict(weighed.chances(at)).get(place, LEAST))
        # No link is surer than that all of them are not some iterations away.
        chance = 1.0 if self.windows.by == POSITION else chance_of_place(self.likelihood, self.windows, posterior)
        is_vague = self._is_vague(begun[-1][1]) or self.likelihood.kernels.is_blurred
        for number, place in enumerate(posterior.operation) if is_vague or chance < 1 else ():
            if place != NONE:
                # If no wide search follows, only links by buffers and launch lines are sure.
                vague = is_vague and self._by(number, place, posterior.fits[number]) not in (BUFFERS, LAUNCH_LINE)
                posterior.doubt(number, min(chance, WHOLE) if vague else chance)
        doubt_repeats(self.likelihood, posterior, rates)
        self.posterior = posterior
        return posterior

    def _may_be_answered(self, posterior: Posterior) -> bool:
        """Return whether executing calls without kernels may have launched what searches have."""
        if self.windows.by == POSITION or not self.leaves_calls(posterior):
            return False
        return any(place != NONE and self.operations[place].phase == "find" for place in posterior.operation)

    def _share_answered(self, launching: Posterior, answered: Posterior) -> float:
        """Return the probability that a database answered the searches; before the run is seen both are as likely."""
        pairs = zip(launching.operation, answered.operation, strict=True)
        if all(place in (other, NONE) or self.operations[place].phase == "run" for place, other in pairs):
            return 0.0  # both say the same of what searches launched
        nats = launching.evidence - answered.evidence
        if not self.leaves_calls(answered):
            # Otherwise the profile ended with an iteration before the last one: likelier than at any other call.
            classes = self.likelihood.class_of
            of_runs = [classes[place] for place, one in enumerate(self.operations) if one.phase == "run"]
            iterations = len(of_runs) // len({*of_runs})
            nats += log(max(1, len(self.operations) / max(1, iterations - 1)))
        nats += self._between_nats(launching, answered)
        return 1 / (1 + exp(min(700.0, nats)))

    def _between_nats(self, launching: Posterior, answered: Posterior) -> float:
        """Return the log-likelihood ratio, by the program's own kernels between supposed searches. If the same kernels
        are between later executions, the supposed searches are rather executions."""
        classes, kinds = self.likelihood.class_of, self.likelihood.kernels.of
        places = answered.operation
        later: dict[tuple[int, int], Sequence[int]] = {}
        searched = list[tuple[tuple[int, int], Sequence[int]]]()
        for one, other in pairwise(at for at, place in enumerate(places) if place != NONE):
            key, between = (classes[places[one]], classes[places[other]]), kinds[one + 1 : other]
            calls = launching.operation[one], launching.operation[other]
            if all(place != NONE and self.operations[place].phase == "find" for place in calls):
                searched.append((key, between))
            else:
                later.setdefault(key, between)
        compared = [later[key] == between for key, between in searched if later.get(key)]
        if not compared:
            return 0.0
        return NATS_MISSTATED if 2 * sum(compared) > len(compared) else -NATS_MISSTATED

    def _is_vague(self, posterior: Posterior) -> bool:
        return posterior.states > max(TOO_VAGUE, NARROW.states * len(self.positions) // 3)

    def _refined(self, rates: Rates, posterior: Posterior) -> tuple[Rates, Posterior]:
        """If doubt remains, learn rates and habits for wider searches."""
        may_be_wide = self.windows.by != POSITION and len(self.positions) <= TOO_MANY and not self._is_vague(posterior)
        repeats = RECURRENCE not in self.without
        if may_be_wide and self._leaves_a_row(posterior):
            # Habits that were learned from a solution with other calls would make this solution more probable.
            posterior = posterior.mixed(self._posterior(rates, AHEAD, None, posterior))
        before, habits, moved = posterior, None, False
        for number in range(ROUNDS):
            wide = may_be_wide and (self.leaves_calls(posterior) or bool(self._left(posterior).any()))
            if min(posterior.confidence) >= SURE and not wide:
                break
            if number and set(posterior.operation) == {NONE}:
                break  # nothing is linked, so there is nothing to learn
            rates, habits = (
                rates.learned(posterior, self._kinds, self._elsewhere()),
                Habits(self.likelihood, posterior, rows=repeats and number > 0),
            )
            before = posterior
            posterior = self._posterior(rates, WIDE if wide else NARROW, habits, before)
            if wide:
                moved |= posterior.operation != before.operation
                if number and posterior.is_like(before):
                    break  # That what is left over launched nothing was known before.
        if moved or (may_be_wide and (self._is_at_edge(posterior) or self._leaves_a_row(posterior))):
            habits = habits or Habits(self.likelihood, posterior, rows=False)
            for _ in range(ROUNDS):
                left = posterior.operation.count(NONE)
                posterior = posterior.mixed(self._posterior(rates, AHEAD, habits, posterior))
                if left < posterior.operation.count(NONE) + LONG_ROW:
                    break  # what more calls launched tells better how far to look
        _doubt_changes(before, posterior, self.operations)
        return rates, posterior

    def _leaves_a_row(self, posterior: Posterior) -> bool:
        """Return whether a long row of kernels has no call although others have."""
        has_call = np.array(posterior.operation) != NONE
        if not has_call.any():
            return False  # nothing in the log fits, so a wider search finds nothing either
        rows = np.cumsum(has_call)[self._left(posterior)]
        return bool((np.bincount(rows) >= LONG_ROW).any())

    def _is_at_edge(self, posterior: Posterior) -> bool:
        """Return whether a link without buffers goes as far as the search tries, with more behind."""
        kinds = [(operation.primitive, operation.direction) for operation in self.operations]
        of_kind: dict[object, list[int]] = {}
        for place, kind in enumerate(kinds):
            of_kind.setdefault(kind, []).append(place)
        before = NONE
        for number, place in enumerate(posterior.operation):
            if place == NONE or place <= before:
                continue
            alike = of_kind[kinds[place]]
            own = bisect_left(alike, place)
            steps, before = own + 1 - bisect_right(alike, before), place
            behind = own + 1 < len(alike) and alike[own + 1] <= self.windows.last[number]
            if steps < NEXT or not behind:
                continue
            fit = posterior.fits[number] or self.likelihood.fit(number, place)
            if not (fit.buffers or fit.launched):
                return True
        return False

    def _posterior(
        self, rates: Rates, width: Width, habits: Habits | None = None, before: Posterior | None = None
    ) -> Posterior:
        """``before``: an earlier posterior."""
        likelihood, kinds = self.likelihood, self._kinds
        holed = [likelihood.is_holed(place) for place in range(len(self.operations))]
        chances = chances_of(rates, kinds, self._elsewhere(), holed)
        chances.habits = habits
        if before is not None:
            chances.following = following(before, len(kinds))
            if width is AHEAD:
                chances.ahead = ahead(likelihood, before, kinds, habits or Habits(likelihood, before, rows=False))
        return Lattice(likelihood, self.windows, chances, width).solve()

    def _by(self, number: int, place: int, fit: Fit | None) -> Evidence:
        if self.windows.by == POSITION:
            return POSITION
        fit = fit or self.likelihood.fit(number, place)
        if fit.buffers:
            return BUFFERS
        if fit.launched:
            return LAUNCH_LINE
        first, last = self.windows.first[number], self.windows.last[number]
        if self.windows.by and first <= last and self.operations[first] is self.operations[last]:
            return self.windows.by
        return NAME_AND_SIZES if fit.named else ORDER


def solve_together(streams: Sequence[Stream]) -> None:
    """Solve queues that may have the same calls: a call that one queue launched is taken from the others. Links that
    rest on this alone are not sure."""
    solved = [stream for stream in streams if stream.operations]
    alone = [stream.solve() for stream in solved]
    for _ in range(ROUNDS - 1):
        launched = [stream.launched() for stream in solved]
        if not any(launched):
            break  # no queue has a call that another one has not
        for number, stream in enumerate(solved):
            others = [chances for other, chances in enumerate(launched) if other != number]
            elsewhere = {
                index: min(WHOLE, max((chances.get(index, 0.0) for chances in others), default=0.0))
                for index in stream.elsewhere
            }
            if elsewhere != stream.elsewhere:
                stream.elsewhere = elsewhere
                stream.solve()
    for stream, before in zip(solved, alone, strict=True):
        posterior = stream.posterior or stream.solve()
        for number, confidence in enumerate(before.confidence):
            changed = before.operation[number] != posterior.operation[number]
            if changed or confidence < SURE:
                posterior.doubt(number, WHOLE)


def _doubt_changes(before: Posterior, posterior: Posterior, operations: Sequence[object] = ()) -> None:
    """Doubt links that were elsewhere before the last round learned. ``operations``: parts of one are one place."""
    pairs = zip(before.operation, before.confidence, posterior.operation, posterior.confidence, strict=True)
    for number, (other, likely, place, confidence) in enumerate(pairs):
        if place == other or likely < 0.5 or confidence <= WHOLE:
            continue
        if not operations or NONE in (place, other) or operations[place] is not operations[other]:
            posterior.confidence[number] = WHOLE


# -- The steps of `STEPS` that link kernels to operations --------------------------------------------------------------


MOST_THREADS = 4
"""Up to this number of threads, all assignments to queues are tried."""


def link_operations(attribution: Attribution) -> None:
    """Link each kernel to the operation that launched it, or to none."""
    profile, links, without = attribution.profile, attribution.links, attribution.without
    commands = profile.commands
    any_replayed = bool(commands.is_replayed.any())
    captured: Mapping[int, float] = {}
    rows = np.flatnonzero(commands.is_kernel & ~commands.is_replayed)
    threads = sorted_pool(commands.thread[rows])
    keys = combined(threads.codes, commands.queues.codes[rows])
    streams = {
        (int(commands.thread[own[0]]), int(commands.queue[own[0]])): array("q", own.tobytes())
        for _, own in by_key(rows, keys)
    }
    of_stream = of_streams(profile, streams, attribution.operations, without)
    joined = _joined(attribution, streams, of_stream)
    if (attribution.clock is None or attribution.clock.is_doubtful) and attribution.host_times is not None:
        together = [*joined]
        draft = Links(profile.activities, attribution.operations)
        for stream in together:
            stream.link(draft)
        attribution.fit_clock(draft)
        captured = _captured(attribution) if any_replayed else {}
        launching = [one for one in attribution.operations if captured.get(one.index, 0) <= 1 / 2]
        of_stream = of_streams(profile, streams, launching, without) if captured else of_stream
        joined = _joined(attribution, streams, of_stream) if attribution.fitted else iter(together)
    for stream in joined:
        stream.link(links)
        if attribution.keep_reasons:
            attribution.streams.append(stream)
    one_stream_each(links, streams)
    if any_replayed:
        # Captured calls launched nothing themselves, so the order does not show which calls of the log they are.
        guessed = (position for position, word in enumerate(links.operation_by) if word and word not in EXACT)
        links.doubt_operation(
            position for position in guessed if not captured or links.operation_of[position] in captured
        )


def _captured(attribution: Attribution) -> dict[int, float]:
    """Return for calls that were printed during a stream capture the share of their time within it."""
    ends = sorted(
        (call.start_ns, call.end_ns or call.start_ns, "BeginCapture" in call.name)
        for call in attribution.profile.other_calls
        if call.start_ns is not None and ("BeginCapture" in call.name or "EndCapture" in call.name)
    )
    captures = [(begin, end) for (begin, _, opens), (_, end, goes_on) in pairwise(ends) if opens and not goes_on]
    of_lines, of_calls = attribution.fitted.get(False), attribution.fitted.get(True)
    lines, calls = stamped_lines(attribution.logs, attribution.operations, of_lines, of_calls, attribution.stamp_ns)
    own = {line: (low, high) for line, low, high in calls.tolist()}
    around = sorted(lines.tolist())
    at = [line for line, _, _ in around]
    captured: dict[int, float] = {}
    for operation in attribution.operations if captures else ():
        stamped = own.get(operation.line)
        place = bisect_left(at, operation.line)
        if stamped is None and not 0 < place < len(around):
            continue
        low, high = (around[place - 1][1], around[place][2]) if stamped is None else stamped
        inside = max(min(high, end) - max(low, begin) for begin, end in captures)
        if inside > 0:
            captured[operation.index] = inside / (high - low)
    return captured


def _joined(
    attribution: Attribution, streams: Queues, of_stream: Mapping[Key, Sequence[Operation]]
) -> Iterator[Stream]:
    """Return each queue with its likely operations, by the most likely assignment of threads."""
    joined = _streams(attribution, streams, of_stream)
    if len(streams) > 1:
        together = [*joined]
        of_threads = _queue_of_each_thread(attribution, streams, together)
        return iter(together) if of_threads is None else _streams(attribution, streams, of_threads)
    return (_of_buffered(attribution, _of_one_writer(attribution, stream)) for stream in joined)


def _streams(
    attribution: Attribution, streams: Queues, of_stream: Mapping[Key, Sequence[Operation]]
) -> Iterator[Stream]:
    claims = Counter(operation.index for operations in of_stream.values() for operation in operations)
    # If nothing else is known, each queue that may have a call is equally probable.
    elsewhere = {index: 1 - 1 / count for index, count in claims.items() if count > 1}
    # 1: a call is over before the next stamp; 2: before a stamp after the stream's next call; more: after some.
    slack = 1 if len(streams) == 1 else 2 * len(streams) if elsewhere else 2
    joined = (_stream(attribution, streams[key], of_stream[key], slack, elsewhere) for key in sorted(streams))
    if not elsewhere:
        return joined
    together = [*joined]
    solve_together(together)
    return iter(together)


def _stream(
    attribution: Attribution,
    positions: Sequence[int],
    operations: Sequence[Operation],
    slack: int,
    elsewhere: Mapping[int, float],
    late: Late = "",
) -> Stream:
    profile, without = attribution.profile, attribution.without
    operations = divided(operations, 2 * len(positions))
    windows = _windows(attribution, positions, operations, slack, late)
    likelihood = Likelihood(profile, positions, operations, attribution.facts, without)
    return Stream(profile, positions, likelihood, windows, elsewhere, without)


def _queue_of_each_thread(
    attribution: Attribution, streams: Queues, joined: Sequence[Stream]
) -> dict[Key, list[Operation]] | None:
    """Return the operations of each queue if each thread of the log fills one, and one assignment is far more likely.

    None if ids or buffers decide, or if fewer calls launch then: threads share queues."""
    operations = joined[0].operations
    of_thread: dict[int | None, list[Operation]] = {}
    for operation in operations:
        of_thread.setdefault(operation.thread, []).append(operation)
    several = 1 < len(of_thread) == len(streams) <= MOST_THREADS and None not in of_thread
    if not several or any(len(stream.operations) != len(operations) for stream in joined):
        return None
    tried = {
        (key, thread): _stream(attribution, positions, its, 2, {})
        for key, positions in streams.items()
        for thread, its in of_thread.items()
    }
    evidence = {pair: stream.solve().evidence for pair, stream in tried.items()}
    ways = [list(zip(sorted(streams), threads, strict=True)) for threads in permutations(of_thread)]
    worth = [sum(evidence[pair] for pair in way) for way in ways]
    best = ways[worth.index(max(worth))]
    launching = sum(len(tried[pair].launched()) for pair in best)
    mixed = len({index for stream in joined for index in stream.launched()})
    if not _is_one_far_likelier(worth) or launching < (1 - HARDLY_ANY) * mixed:
        return None
    return {key: of_thread[thread] for key, thread in best}


def _is_one_far_likelier(worth: Sequence[float], without: float = -inf) -> bool:
    """Return whether one way is so much likelier than the others, and than none (``without``), that it is sure."""
    best, second = sorted((*worth, -inf), reverse=True)[:2]
    return best + log(1 - SURE) >= max(second, without)


def _of_one_writer(attribution: Attribution, stream: Stream) -> Stream:
    """Return the queue with the calls of one writer if others launched little: they are another process's."""
    operations = stream.operations
    # Buffers are better evidence than versions, also for calls whose entries were mixed up.
    writers = [one.thread for one in operations] if attribution.same_process else _writers(operations)
    known = sorted({writer for writer in writers if writer is not None})
    if not 1 < len(known) <= MOST_THREADS or stream.of_this_process() == 1:
        return stream
    alone = [
        _stream(
            attribution, stream.positions,
            [one for one, its in zip(operations, writers, strict=True) if its in (writer, None)], 1, {},
        )
        for writer in known
    ]  # fmt: skip
    worth = [one.solve().evidence for one in alone]
    best = alone[worth.index(max(worth))]
    is_likelier = _is_one_far_likelier(worth, stream.result.evidence)
    if not is_likelier or len(best.launched()) < (1 - HARDLY_ANY) * len(stream.launched()):
        return stream
    best.at_most = BESIDE_STRANGERS
    return best


def _writers(operations: Sequence[Operation]) -> list[int | None]:
    """Return who printed each call: the thread, else the library's version (by its handle, or command), or None."""
    threads = [operation.thread for operation in operations]
    if len({*threads} - {None}) > 1:
        return threads
    entries = Counter(one.api for one in operations if one.parameters is not None)
    stating = Counter(one.api for one in operations if one.parameters is not None and one.parameters.with_handle)
    with_handle = {api for api, count in stating.items() if count > FEW * entries[api]}  # others' entries were mixed up
    commanded = {one.api for one in operations if one.logged_command} - with_handle
    forms = [
        None
        if one.torn or one.parameters is None
        else int(one.parameters.with_handle)
        if one.api in with_handle
        else int(bool(one.logged_command))
        if one.api in commanded
        else None
        for one in operations
    ]
    is_few = min(forms.count(0), forms.count(1)) <= HARDLY_ANY * len(forms)
    return threads if is_few or not with_handle else forms


def _of_buffered(attribution: Attribution, stream: Stream) -> Stream:
    """Return the queue as if one stream of the log was buffered, if this is far more likely and links more kernels."""
    left = stream.left_over() if stream.windows.by == BOUNDARY_STAMPS else 0.0
    if left <= HARDLY_ANY or not stream.leaves_calls():
        return stream
    ways = {late: _stream(attribution, stream.positions, stream.operations, 1, {}, late) for late in BUFFERED}
    worth = {late: one.solve().evidence + log(1 - SURE) for late, one in ways.items()}
    late = max(ways, key=worth.__getitem__)
    if worth[late] < stream.result.evidence or ways[late].left_over() >= left - HARDLY_ANY:
        return stream
    attribution.late = late
    attribution.notes.add(f"{BUFFERED[late]} came into the log late, in blocks (a buffered stream)")
    return ways[late]


def _windows(
    attribution: Attribution, positions: Sequence[int], operations: Sequence[Operation], slack: int, late: Late
) -> Windows:
    """Return the operations that each kernel may have by lines of one file, else by stamps."""
    axis, windows = attribution.shared_axis, None
    if axis is not None and POSITION not in attribution.without:
        windows = by_lines(attribution.profile.commands.line[positions].tolist(), operations, axis)
    if windows is None and BOUNDARY_STAMPS not in attribution.without:
        clock, times = attribution.clock, attribution.times or attribution.host_times
        of_lines = of_calls = (
            None if clock is not None and clock.is_doubtful else clock
        )  # the order of calls still tells
        if clock is None:
            of_lines, of_calls = attribution.fitted.get(False), attribution.fitted.get(True)
        if times is not None:
            windows = by_stamps(
                positions, operations,
                *stamped_lines(attribution.logs, operations, of_lines, of_calls, attribution.stamp_ns),
                times, slack, host_step_ns=attribution.host_step_ns, late=late,
            )  # fmt: skip
    count = len(positions)
    return windows or Windows(first=[0] * count, last=[len(operations) - 1] * count, by="")
