"""What the alignment says of each kernel."""

from __future__ import annotations

import msgspec


class Posterior(msgspec.Struct, kw_only=True):
    """``operation[i]``: the likeliest place of kernel i in the list of operations, `NONE` for none; ``confidence[i]``
    its probability; ``others[i]`` the next best ones with theirs; ``gone[i]`` the probability that it is of a call that
    the log lost. ``evidence`` is the log-likelihood ratio of all of it.
    """

    operation: list[int]
    confidence: list[float]
    others: list[tuple[tuple[int, float], ...]]
    gone: list[float]
    evidence: float = 0.0
