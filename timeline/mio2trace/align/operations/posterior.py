"""What the alignment says of each kernel."""

from __future__ import annotations

import msgspec

from mio2trace.align.links import NONE
from mio2trace.align.operations.likelihood import Fit

_ALIKE = 0.005
"""Probabilities nearer than this are the same."""


class Posterior(msgspec.Struct, kw_only=True):
    """``operation[i]``: the likeliest place of kernel i in the list of operations, `NONE` for none; ``confidence[i]``
    its probability; ``others[i]`` the next best ones with theirs; ``gone[i]`` the probability that it is of a call that
    the log lost; ``fits[i]`` how well it fits, where that is at hand. ``evidence`` is the log-likelihood ratio of all.
    """

    operation: list[int]
    confidence: list[float]
    others: list[tuple[tuple[int, float], ...]]
    gone: list[float]
    fits: list[Fit | None]
    evidence: float = 0.0

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

    def is_like(self, other: Posterior) -> bool:
        """Whether they say the same of each kernel, as surely."""
        return self.operation == other.operation and all(
            abs(own - its) < _ALIKE for own, its in zip(self.confidence, other.confidence, strict=True)
        )
