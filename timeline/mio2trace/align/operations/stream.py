"""The alignment of one queue's kernels with the calls that may have launched them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.operations.chances import (
    Habits,
    Kind,
    Posterior,
    Rates,
    ahead,
    chances_of,
    following,
    kinds_of,
    of_this_process,
)
from mio2trace.align.operations.lattice import AHEAD, NARROW, NEXT, WIDE, Lattice, Width, Windows
from mio2trace.align.operations.likelihood import Fit, Likelihood
from mio2trace.align.rates import CUT, LONG_GAP, WHOLE
from mio2trace.evidence import BUFFERS, LAUNCH_LINE, NAME_AND_SIZES, ORDER, POSITION, RECURRENCE, Evidence
from mio2trace.model.profile import Profile

ALIKE_ROW = 10
MOST_SHIFTS, MOST_COMPARED = 16, 200_000
"""Places and kernels that are compared; the rest counts as equal."""


def chance_of_place(likelihood: Likelihood, windows: Windows, posterior: Posterior) -> float:
    """Return the probability that the links are not all some iterations earlier or later."""
    kernels = likelihood.kernels
    library = [at for at, kind in enumerate(kernels.of) if kernels.kinds[kind].library]
    places = [posterior.operation[at] for at in library]
    linked = [number for number, place in enumerate(places) if place != NONE]
    if len(linked) < ALIKE_ROW:
        return 1.0
    first, last = linked[0], linked[-1]
    latest = max(places)
    executing = [place for place, operation in enumerate(likelihood.operations) if operation.phase == "run"]
    left_before = min(places[number] for number in linked) > 0
    left_behind = bool(executing) and executing[-1] > latest

    def cuts(shift: int) -> int:
        """Return at how many ends one side has more than the other if all calls moved by ``shift`` kernels."""
        return (first + shift != 0 or left_before) + (last + shift != len(library) - 1 or left_behind)

    # Where no end was cut any other place cuts two: far less likely.
    if not cuts(0):
        return 1.0
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
    # One more cut just there where the other side ends as well: at any kernel of an iteration, each as likely.
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
    library = [at for at, number in enumerate(kernels.of) if kernels.kinds[number].library]
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

    def link(self, links: Links) -> None:
        """Link each kernel to its most likely operation."""
        if not self.operations:
            return
        posterior = self.posterior or self.solve()
        own = self.of_this_process()
        # Where more is left on both sides than is linked, calls and kernels may be others'.
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
        parts = Counter(operation.index for operation in self.operations)
        launched = Counter(self.operations[place].index for place in set(posterior.operation) - {NONE})
        return {index for index, count in launched.items() if count < parts[index]}

    def of_this_process(self) -> float:
        """Return the highest confidence of links by names, sizes and order (`chances`)."""
        posterior = self.posterior or self.solve()
        # What stamps put before or behind the profile tells nothing.
        elsewhere = [
            other if reached else 1.0
            for other, reached in zip(self._elsewhere(), self.windows.reached(len(self.operations)), strict=True)
        ]
        return min(self.at_most, of_this_process(posterior, self.operations, elsewhere))

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
        posterior = self.posterior or self.solve()
        return sum(self._left(posterior)) / max(1, int(self.likelihood.kernels.library.sum()))

    def _left(self, posterior: Posterior) -> list[bool]:
        """Return of each kernel whether it is the library's and has no call."""
        left: list[bool] = ((np.array(posterior.operation) == NONE) & self.likelihood.kernels.library).tolist()
        return left

    def leaves_calls(self, posterior: Posterior | None = None) -> bool:
        """Return whether a call that executes has no kernels."""
        linked = {*(posterior or self.posterior or self.solve()).operation}
        return any(place not in linked and operation.phase == "run" for place, operation in enumerate(self.operations))

    def _elsewhere(self) -> list[float]:
        return [self.elsewhere.get(operation.index, 0.0) for operation in self.operations]

    def solve(self) -> Posterior:
        """Search narrowly; if doubt remains, learn rates and habits for wider searches."""
        rates = Rates.before(entered=self.likelihood.entered)
        kinds = kinds_of(self.operations, self.likelihood.class_of)
        posterior = self._posterior(rates, kinds, NARROW)
        is_vague = posterior.states > max(TOO_VAGUE, NARROW.states * len(self.positions) // 3)
        may_be_wide = self.windows.by != POSITION and len(self.positions) <= TOO_MANY and not is_vague
        repeats = RECURRENCE not in self.without
        if may_be_wide and self._leaves_a_row(posterior):
            # What is learned from a way that took other calls makes it likelier yet.
            posterior = posterior.mixed(self._posterior(rates, kinds, AHEAD, None, posterior))
        before, habits, moved = posterior, None, False
        for number in range(ROUNDS):
            wide = may_be_wide and (self.leaves_calls(posterior) or any(self._left(posterior)))
            if min(posterior.confidence) >= SURE and not wide:
                break
            if number and set(posterior.operation) == {NONE}:
                break  # nothing is linked, so there is nothing to learn
            rates, habits = (
                rates.learned(posterior, kinds, self._elsewhere()),
                Habits(self.likelihood, posterior, rows=repeats and number > 0),
            )
            before = posterior
            posterior = self._posterior(rates, kinds, WIDE if wide else NARROW, habits, before)
            if wide:
                moved |= posterior.operation != before.operation
                if number and posterior.is_like(before):
                    break  # That what is left over launched nothing was known before.
        if moved or (may_be_wide and (self._is_at_edge(posterior) or self._leaves_a_row(posterior))):
            habits = habits or Habits(self.likelihood, posterior, rows=False)
            for _ in range(ROUNDS):
                left = posterior.operation.count(NONE)
                posterior = posterior.mixed(self._posterior(rates, kinds, AHEAD, habits, posterior))
                if left < posterior.operation.count(NONE) + LONG_ROW:
                    break  # what more calls launched tells better how far to look
        _doubt_changes(before, posterior, self.operations)
        # No link is surer than that all of them are not some iterations away.
        chance = 1.0 if self.windows.by == POSITION else chance_of_place(self.likelihood, self.windows, posterior)
        is_vague |= self.likelihood.kernels.is_blurred
        for number, place in enumerate(posterior.operation) if is_vague or chance < 1 else ():
            if place != NONE:
                # Where no wide search follows, only buffers and launch lines are sure.
                vague = is_vague and self._by(number, place, posterior.fits[number]) not in (BUFFERS, LAUNCH_LINE)
                posterior.doubt(number, min(chance, WHOLE) if vague else chance)
        doubt_repeats(self.likelihood, posterior, rates)
        self.posterior = posterior
        return posterior

    def _leaves_a_row(self, posterior: Posterior) -> bool:
        """Return whether a long row of kernels has no call although others have."""
        if {*posterior.operation} <= {NONE}:
            return False  # nothing in the log fits, so a wider search finds nothing either
        rows = groupby(zip(posterior.operation, self._left(posterior), strict=True), lambda pair: pair[0] == NONE)
        return any(sum(left for _, left in row) >= LONG_ROW for is_left, row in rows if is_left)

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
        self,
        rates: Rates,
        kinds: Sequence[Kind],
        width: Width,
        habits: Habits | None = None,
        before: Posterior | None = None,
    ) -> Posterior:
        """``before``: an earlier posterior."""
        likelihood = self.likelihood
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
    """Solve queues that may have the same calls: what one launched, others did not. No link by this alone is sure."""
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
        posterior = stream.posterior
        assert posterior is not None
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
