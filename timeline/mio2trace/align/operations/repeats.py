"""Copy links of an iteration that is equal to the one before it instead of solving it again.

Kernels, their relations, classes of calls and each fit are verified."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align.links import NONE
from mio2trace.align.operations.chances import Chances
from mio2trace.align.operations.likelihood import Fit, Likelihood
from mio2trace.align.operations.posterior import Posterior
from mio2trace.align.operations.windows import Windows

REACH = 16
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
        if at < REACH or index < 0:
            return at, index
        key = (tuple(self._kernels[at - REACH : at]), self._calls[index], phase)
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
        near = min(kernels, REACH)  # a long repetition that goes on otherwise is not copied to find that out
        if signs[at : at + near] != signs[at - kernels : at - kernels + near]:
            return False
        if signs[at : at + kernels] != signs[at - kernels : at]:
            return False
        if own[index + 1 : index + calls + 1] != own[index - calls + 1 : index + 1]:
            return False
        first, last, named, fit = (
            self._windows.first,
            self._windows.last,
            self._likelihood.kernels.named,
            self._likelihood.fit,
        )
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
