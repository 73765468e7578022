"""When one side is slower than the other: the run is the unit, for the iterations of one process are not independent.

A side is slower when all of its runs are (complete separation: by chance in 1 of 20 comparisons of 3 and 3 runs, of
252 of 5 and 5) and the ratio is above a floor. What fewer runs say is never more than "maybe". The interval of the
ratio is a bootstrap over runs, then over their iterations, with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from mio2trace.measures.statistics import median

Word = Literal["slower", "faster", "~", "maybe slower", "maybe faster"]

FEWEST = 3
"""Runs a side below which nothing is decided."""
MANY = 5
"""Runs a side from which the smaller floor holds."""
FLOOR, FLOOR_OF_FEW = 0.05, 0.10
"""Least change that is called one, with many runs and with few: of 20 parts that are the same, complete separation and
5 % cry wolf in 17 of 100 comparisons of 3 runs, 10 % in none of 150, 5 % of 5 runs in 1 or 2."""
RESAMPLES = 400
_SEED = 20170323
_TAIL = 0.025

Samples = Sequence[float]


class Verdict(NamedTuple):
    """Medians of both sides in ns, their ratio (B / A) with its 95 % interval, and what that means.

    ``runs_needed``: a side, to decide what only looks like a change; 0: nothing is open.
    """

    a_ns: float
    b_ns: float
    ratio: float | None
    low: float | None
    high: float | None
    word: Word
    runs_needed: int = 0


def verdict(a: Sequence[Samples], b: Sequence[Samples]) -> Verdict:
    """Of the samples of each run of two sides, in ns, at least one run with one sample each."""
    a_runs, b_runs = [*map(median, a)], [*map(median, b)]
    a_ns, b_ns = median(a_runs), median(b_runs)
    if a_ns <= 0 or b_ns <= 0:
        return Verdict(a_ns, b_ns, None, None, None, "~")
    ratio = b_ns / a_ns
    low, high = interval(a, b)
    fewest = min(len(a), len(b))
    floor = floor_of(fewest)
    separated = min(b_runs) > max(a_runs) if ratio > 1 else max(b_runs) < min(a_runs)
    change = ratio - 1 if ratio > 1 else 1 / ratio - 1
    if not separated or change <= FLOOR or (fewest < FEWEST and low <= 1 <= high):
        return Verdict(a_ns, b_ns, ratio, low, high, "~")
    if fewest >= FEWEST and change > floor:
        return Verdict(a_ns, b_ns, ratio, low, high, "slower" if ratio > 1 else "faster")
    needed = FEWEST if change > FLOOR_OF_FEW else MANY
    return Verdict(a_ns, b_ns, ratio, low, high, "maybe slower" if ratio > 1 else "maybe faster", needed)


def floor_of(runs: int) -> float:
    """The least change that is called one, of so many runs a side."""
    return FLOOR if runs >= MANY else FLOOR_OF_FEW


def separated(a: Sequence[Samples], b: Sequence[Samples]) -> bool:
    """Whether every run of ``b`` is slower than every run of ``a``."""
    return min(map(median, b)) > max(map(median, a))


def interval(a: Sequence[Samples], b: Sequence[Samples]) -> tuple[float, float]:
    """95 % of the ratios of medians, runs and their samples drawn again with replacement. The same for the same."""
    random = Random(_SEED)  # noqa: S311 - numbers that are the same every time are wanted
    ratios = []
    for _ in range(RESAMPLES):
        below = _drawn(a, random)
        if below > 0:
            ratios.append(_drawn(b, random) / below)
    ratios.sort()
    if not ratios:
        return 0.0, 0.0
    last = len(ratios) - 1
    return ratios[round(_TAIL * last)], ratios[round((1 - _TAIL) * last)]


def _drawn(runs: Sequence[Samples], random: Random) -> float:
    medians = []
    for _ in runs:
        run = runs[int(random.random() * len(runs))] if len(runs) > 1 else runs[0]
        count = len(run)
        medians.append(run[0] if count == 1 else median([run[int(random.random() * count)] for _ in range(count)]))
    return median(medians)
