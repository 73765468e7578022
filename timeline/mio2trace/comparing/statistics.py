"""The rule for "slower". The unit is the run, because the iterations of one process are not independent.

A side is slower if all of its runs are slower (complete separation) and the ratio is above a floor. By chance, complete
separation occurs in 1 of 20 comparisons of 3 and 3 runs, and in 1 of 252 of 5 and 5. With fewer runs the verdict is at
most "maybe". Of 8 runs and more some may overlap (`_apart`): else a single slow run of many would hide each change.

A comparison has many parts, and each of them may be separated by chance. So the distance between the sides of a part
must also be larger than the scatter of its runs, or a fraction of that.

The interval of the ratio is a bootstrap with a fixed seed. With enough runs to decide, it resamples runs, so that it
contradicts no verdict. With fewer runs it resamples runs and then their iterations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from mio2trace.measures.statistics import median

Word = Literal["slower", "faster", "~", "maybe slower", "maybe faster"]

FEWEST = 3
"""The fewest runs per side that can decide."""
MANY = 5
"""The fewest runs per side for which the smaller floor holds."""
FLOOR, FLOOR_OF_FEW = 0.05, 0.10
"""The least change that is reported, with many and with few runs. Measured with 20 equal parts: complete separation and
a floor of 5 % give a false alarm in 17 of 100 comparisons of 3 runs, a floor of 10 % in none of 150. With 5 runs, a
floor of 5 % gives 1 or 2."""
SCATTER = 0.25
"""The least distance between the sides of a part, by the range of its runs; twice as much with 4 runs, four times with
3. Measured with 67 kernels of real steps: without it, 3 runs give a false alarm of any kernel in 30 of 100 comparisons,
5 runs in 10; with it in 5 and 3."""
LEAST_SHARE = 0.01
"""A part with a smaller share of the iteration fails no gate. In unchanged GPU records, layers that are more than 10 %
slower in all of 3 runs are smaller than this."""
RESAMPLES = 400
_SEED = 20170323
_TAIL = 0.025

Samples = Sequence[float]


class Verdict(NamedTuple):
    """Medians of both sides in ns, their ratio (B / A) with its interval, and the verdict.

    ``runs_needed``: the runs per side that would decide a possible change; 0 if nothing is open.
    """

    a_ns: float
    b_ns: float
    ratio: float | None
    low: float | None
    high: float | None
    word: Word
    runs_needed: int = 0


def verdict(a: Sequence[Samples], b: Sequence[Samples], *, is_part: bool = False) -> Verdict:
    """Judge the samples of each run of two sides, in ns; each side has at least one run with one sample.

    With a single sample on a side the variation is unknown, and there is no interval. ``is_part``: one of many.
    """
    a_runs, b_runs = [*map(median, a)], [*map(median, b)]
    a_ns, b_ns = median(a_runs), median(b_runs)
    if a_ns <= 0 or b_ns <= 0:
        return Verdict(a_ns, b_ns, None, None, None, "~")
    ratio = b_ns / a_ns
    low, high = interval(a, b)
    fewest = min(len(a), len(b))
    floor = floor_of(fewest)
    gap, scatter = _apart(a_runs, b_runs) if ratio > 1 else _apart(b_runs, a_runs)
    least = scatter * SCATTER * 2 ** max(MANY - fewest, 0) if is_part else 0
    change = ratio - 1 if ratio > 1 else 1 / ratio - 1
    told: tuple[float | None, float | None] = (None, None)
    if min(sum(map(len, a)), sum(map(len, b))) > 1:
        told = low, high
    if gap <= 0 or change <= FLOOR or low <= 1 <= high:  # the verdict never contradicts the interval
        return Verdict(a_ns, b_ns, ratio, *told, "~")
    if fewest >= FEWEST and change > floor and gap > least:
        return Verdict(a_ns, b_ns, ratio, *told, "slower" if ratio > 1 else "faster")
    needed = 2 * fewest if fewest >= MANY else FEWEST if fewest < FEWEST and change > FLOOR_OF_FEW else MANY
    return Verdict(a_ns, b_ns, ratio, *told, "maybe slower" if ratio > 1 else "maybe faster", needed)


def floor_of(runs: int) -> float:
    """Return the least change that is reported with this number of runs per side."""
    return FLOOR if runs >= MANY else FLOOR_OF_FEW


def separated(a: Sequence[Samples], b: Sequence[Samples]) -> bool:
    """Return whether the runs of ``b`` are slower than those of ``a``, by the rule of `_apart`."""
    return _apart([*map(median, a)], [*map(median, b)])[0] > 0


def _apart(fast: Sequence[float], slow: Sequence[float]) -> tuple[float, float]:
    """Return the distance between the sides, above 0 if all runs of ``slow`` are slower, and the larger range of a
    side. The fastest and the slowest runs of a side do not count: a quarter of the runs less one, none of 7 or fewer.

    By chance, equal sides of 8 runs or more are so apart in 1 of 100 comparisons at most.
    """
    sides = []
    for runs in (fast, slow):
        left_out = max(len(runs) // 4 - 1, 0)
        sides.append(sorted(runs)[left_out : len(runs) - left_out])
    below, above = sides
    return above[0] - below[-1], max(below[-1] - below[0], above[-1] - above[0])


def interval(a: Sequence[Samples], b: Sequence[Samples]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of medians (90 % with 3 runs). Runs are drawn with replacement; if there
    are few runs, also their samples: then it shows the scatter within these runs only.

    Equal samples give equal intervals.
    """
    if min(len(a), len(b)) >= FEWEST:
        a, b = ([(median(run),) for run in side] for side in (a, b))
    random = Random(_SEED)  # noqa: S311 - the same numbers every time are wanted
    below, above = _drawn(a, random), _drawn(b, random)
    ratios = sorted(of_b / of_a for of_a, of_b in zip(below, above, strict=True) if of_a > 0)
    if not ratios:
        return 0.0, 0.0
    last = len(ratios) - 1
    return ratios[round(_TAIL * last)], ratios[round((1 - _TAIL) * last)]


def _drawn(runs: Sequence[Samples], random: Random) -> list[float]:
    """Return `RESAMPLES` medians of a side that is drawn again.

    The possible medians of redrawn samples and their probabilities are known, so one draw per run is enough.
    """
    values: list[float] = []
    weights: list[float] = []
    for samples in runs:
        ordered = sorted(samples)
        for low, high, weight in _medians(len(ordered)):
            values.append((ordered[low] + ordered[high]) / 2)
            weights.append(weight)
    drawn = random.choices(values, weights, k=RESAMPLES * len(runs))
    if len(runs) == 1:
        return drawn
    return [median(drawn[at : at + len(runs)]) for at in range(0, len(drawn), len(runs))]


@functools.cache
def _medians(count: int) -> tuple[tuple[int, int, float], ...]:
    """Return the ordered places of the two samples around the median of redrawn samples, and their probability.

    All draws are equally likely, so the draws before, at and behind a place can be counted. With an odd number of
    samples both places are the same.
    """
    half = count // 2
    places = []
    for low in range(count):
        # Probability that the upper sample of the lower half (or the middle one) is this; then for each possible next
        # sample.
        own = _is_ordered(count, half if count % 2 == 0 else half + 1, low)
        if count % 2 == 0:
            for high in range(low + 1, count):
                up_to = (low + 1) ** half - low**half
                from_on = (count - high) ** half - (count - high - 1) ** half
                both = math.comb(count, half) * up_to * from_on / count**count
                places.append((low, high, both))
                own -= both
        places.append((low, low, own))
    return tuple(one for one in places if one[2] > 0)


def _is_ordered(count: int, number: int, place: int) -> float:
    """Return the probability that the ``number``-th smallest of ``count`` draws from as many samples is at
    ``place``."""

    def at_most(samples: int) -> float:
        part = samples / count
        return sum(
            math.comb(count, more) * part**more * (1 - part) ** (count - more) for more in range(number, count + 1)
        )

    return at_most(place + 1) - at_most(place)
