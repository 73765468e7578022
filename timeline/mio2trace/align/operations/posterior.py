"""What the alignment says of each kernel."""

from __future__ import annotations

from math import exp

import msgspec

from mio2trace.align.links import NONE
from mio2trace.align.operations.likelihood import Fit
from mio2trace.align.operations.rates import calibrated

_ALIKE = 0.005
"""Probabilities nearer than this are the same."""
LEAST = 0.005
"""The least probability of another place that is kept."""


class Posterior(msgspec.Struct, kw_only=True):
    """``operation[i]``: the likeliest place of kernel i in the list of operations, `NONE` for none; ``confidence[i]``
    its probability; ``others[i]`` the next best ones with theirs; ``gone[i]`` the probability that it is of a call that
    the log lost; ``fits[i]`` how well it fits, where that is at hand. ``evidence`` is the log-likelihood ratio of all;
    ``states``, how many the search kept.
    """

    operation: list[int]
    confidence: list[float]
    others: list[tuple[tuple[int, float], ...]]
    gone: list[float]
    fits: list[Fit | None]
    evidence: float = 0.0
    states: int = 0

    @classmethod
    def of_none(cls, count: int) -> Posterior:
        """Of so many kernels, before anything is known: each is in no call."""
        return cls(
            operation=[NONE] * count,
            confidence=[1.0] * count,
            others=[()] * count,
            gone=[0.0] * count,
            fits=[None] * count,
        )

    def mixed(self, other: Posterior) -> Posterior:
        """What two searches say together, each as far as its evidence goes.

        A search keeps the ways that are best where it looks, so the two have some in common or none: where they say the
        same it stays, and what one of them has not looked at is left in doubt.
        """
        share = 1 / (1 + exp(min(700.0, self.evidence - other.evidence)))
        better, worse = (self, other) if share < 0.5 else (other, self)
        share = min(share, 1 - share)
        mixture = Posterior.of_none(len(self.operation))
        mixture.evidence = better.evidence
        for at, fit in enumerate(better.fits):
            chances = {place: chance * (1 - share) for place, chance in better.chances(at)}
            for place, chance in worse.chances(at):
                chances[place] = chances.get(place, 0.0) + chance * share
            ranked = sorted(chances.items(), key=lambda item: (-item[1], item[0]))
            mixture.operation[at], mixture.confidence[at] = ranked[0][0], min(1.0, ranked[0][1])
            mixture.others[at] = tuple(item for item in ranked[1:4] if item[1] >= LEAST)
            mixture.gone[at] = better.gone[at] * (1 - share) + worse.gone[at] * share
            mixture.fits[at] = fit if ranked[0][0] == better.operation[at] else None
        return mixture

    def calibrate(self, at: int) -> None:
        """Say of a link in doubt what was measured of as much doubt (`rates.CALIBRATED`); the rest is the others'."""
        before = self.confidence[at]
        after = self.confidence[at] = calibrated("operation", before)
        rest = (1 - after) / (1 - before) if after != before else 1.0
        self.others[at] = tuple((place, chance * rest) for place, chance in self.others[at])
        self.gone[at] *= rest

    def chances(self, at: int) -> tuple[tuple[int, float], ...]:
        """Where the kernel may be, and how probable each is."""
        return (self.operation[at], self.confidence[at]), *self.others[at]

    def is_like(self, other: Posterior) -> bool:
        """Whether they say the same of each kernel, as surely."""
        return self.operation == other.operation and all(
            abs(own - its) < _ALIKE for own, its in zip(self.confidence, other.confidence, strict=True)
        )
