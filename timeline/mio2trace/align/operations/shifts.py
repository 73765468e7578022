"""Whether all links may be some iterations away, because a program repeats itself.

If log and profile begin or end at different places, kernels of one iteration fit the calls of another. The place with
the fewest cut ends is the most likely."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property

from mio2trace.align.links import NONE
from mio2trace.align.operations.likelihood import Likelihood
from mio2trace.align.operations.posterior import Posterior
from mio2trace.align.operations.rates import CUT
from mio2trace.align.operations.windows import Windows

ALIKE_ROW = 10
"""Equal kernels in a row that show an equal place."""
MOST_SHIFTS, MOST_COMPARED = 16, 200_000
"""Places and kernels that are compared; the rest counts as equal."""


def chance_of_place(likelihood: Likelihood, windows: Windows, posterior: Posterior) -> float:
    """Return the probability that the links are not all some iterations earlier or later."""
    row = _Row(likelihood, windows, posterior)
    # Where no end was cut any other place cuts two: far less likely.
    if len(row.linked) < ALIKE_ROW or not (own := row.cuts(0)):
        return 1.0
    others = [(shift, row.cuts(shift)) for shift in row.shifts() if row.is_alike(shift)]
    if not others:
        return 1.0
    # One more cut just there where the other side ends as well: at any kernel of an iteration, each as likely.
    cut = CUT / min(abs(shift) for shift, _ in others)
    return float(1 / (1 + sum(cut ** (cuts - own) for _, cuts in others)))


class _Row:
    """The library's kernels of one queue with their calls."""

    def __init__(self, likelihood: Likelihood, windows: Windows, posterior: Posterior) -> None:
        kernels = likelihood.kernels
        self._kernels, self._windows = kernels, windows
        self._at = [at for at, kind in enumerate(kernels.of) if kernels.kinds[kind].library]
        self._places = [posterior.operation[at] for at in self._at]
        self.linked = [number for number, place in enumerate(self._places) if place != NONE]
        called = [self._places[number] for number in self.linked]
        executing = [place for place, operation in enumerate(likelihood.operations) if operation.phase == "run"]
        self._before = bool(called) and min(called) > 0
        self._behind = bool(called) and any(place > max(called) for place in executing[-1:])
        self._left = MOST_COMPARED

    @cached_property
    def _signs(self) -> list[Hashable]:
        of, named = self._kernels.of, self._kernels.named
        return [(of[at], named[at]) for at in self._at]

    def cuts(self, shift: int) -> int:
        """Return at how many ends one side has more than the other if all calls moved by ``shift`` kernels."""
        first, last = self.linked[0] + shift, self.linked[-1] + shift
        return (first != 0 or self._before) + (last != len(self._at) - 1 or self._behind)

    def shifts(self) -> Iterator[int]:
        """Yield shifts to places that are equal to the first linked kernels, or to the profile's begin."""
        first, last = self.linked[0], self.linked[-1]
        found = [place - first for place in self._like(first, 0, len(self._signs)) if place != first]
        found += [-place for place in self._like(0, first + 1, last + 1)]
        yield from sorted(set(found), key=abs)[:MOST_SHIFTS]

    def _like(self, number: int, begin: int, end: int) -> Sequence[int]:
        signs = self._signs
        own = signs[number : number + ALIKE_ROW]
        return [at for at in range(begin, end) if signs[at] == own[0] and signs[at : at + ALIKE_ROW] == own]

    def is_alike(self, shift: int) -> bool:
        """Return whether all linked kernels have an equal one there that their call may be."""
        first, last, signs = self._windows.first, self._windows.last, self._signs
        count = 0
        for number in self.linked:
            if not 0 <= number + shift < len(signs):
                continue
            at, place = self._at[number + shift], self._places[number]
            if signs[number + shift] != signs[number] or not first[at] <= place <= last[at]:
                return False
            count += 1
            self._left -= 1
            if self._left < 0:
                break
        return count >= ALIKE_ROW
