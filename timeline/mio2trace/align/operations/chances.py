"""How often calls are lost or launch nothing, learned from the run itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate, pairwise
from math import log
from typing import Literal

import msgspec

from mio2trace.align.links import NONE
from mio2trace.align.operations.habits import Habits
from mio2trace.align.operations.likelihood import Likelihood
from mio2trace.align.operations.posterior import Posterior
from mio2trace.align.operations.rates import (
    BESIDE_STRANGERS,
    CUT,
    HOLE,
    LOST,
    LOST_BESIDE_TORN,
    MAYBE_HOLES,
    SHORT_CLOSES,
    SILENT,
    SILENT_AGAIN,
    SILENT_SEARCH,
    STRANGERS,
    UNLOGGED,
)
from mio2trace.ops.operation import Operation

Kind = Literal["run", "search", "search again"]
FEWEST_STRETCHES = 3
"""A profile may have one or two holes; more stretches of silent calls are another process's."""
_BEFORE: Mapping[Kind, float] = {"run": SILENT, "search": SILENT_SEARCH, "search again": SILENT_AGAIN}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities of a lost call and of a silent call per kind. ``holes``: stretches that the profile lacks."""

    lost: float
    silent: Mapping[Kind, float]
    holes: float

    @classmethod
    def before(cls, *, entered: bool) -> Rates:
        """Return the rates before learning. ``entered``: the log has entries, not only commands."""
        return cls(lost=LOST if entered else UNLOGGED, silent=_BEFORE, holes=MAYBE_HOLES)

    def learned(self, posterior: Posterior, kinds: Sequence[Kind], elsewhere: Sequence[float]) -> Rates:
        """Return a posterior's rates; the rates before count as one event. ``elsewhere`` explains silence in part."""
        launched = [0.0] * len(kinds)
        for place, confidence in zip(posterior.operation, posterior.confidence, strict=True):
            if place != NONE:
                launched[place] = max(launched[place], confidence)
        lost = sum(max(0.0, now - before) for before, now in zip([0.0, *posterior.gone], posterior.gone, strict=False))
        calls: dict[Kind, float] = dict.fromkeys(self.silent, 0.0)
        silent = dict(calls)
        for kind, chance, other in zip(kinds, launched, elsewhere, strict=True):
            own = (1 - other) * self.silent[kind]
            nothing = (1 - chance) * own / (other + own)
            silent[kind] += nothing
            calls[kind] += chance + nothing
        return Rates(
            lost=_mean(self.lost, lost, sum(launched) + lost),
            silent={kind: _mean(before, silent[kind], calls[kind]) for kind, before in self.silent.items()},
            holes=HOLE,
        )

    def silence(self, kind: Kind, elsewhere: float) -> float:
        """Return the probability that a call launched nothing here."""
        return elsewhere + (1 - elsewhere) * self.silent[kind]


def cut_nats(calls: int) -> float:
    """That the profile begins or ends at any of the log's calls."""
    return log(CUT / max(1, calls))


def hole_nats(calls: int, holes: float) -> float:
    """That one of the profile's holes goes from any call to any later one."""
    return min(0.0, log(holes / max(1, calls * (calls + 1) / 2)))


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities along the calls: ``passed[j]`` calls 0 to j - 1 are passed over, ``begun[j]`` call j launches,
    ``lost[j]`` a call before j is lost; ``hole``, ``cut``: a stretch of calls is skipped."""

    passed: list[float]
    begun: list[float]
    lost: list[float]
    hole: float
    cut: float
    ahead: Ahead | None = None
    habits: Habits | None = None


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Possible gain in nats from kernel i on (``kernels``) and from call j on (``calls``); the smaller one bounds a
    way."""

    kernels: list[float]
    calls: list[float]


def kinds_of(operations: Sequence[Operation], class_of: Sequence[int]) -> list[Kind]:
    """Return whether each call searches, and whether its problem was searched before."""
    kinds: list[Kind] = []
    searched: set[int] = set()
    for operation, number in zip(operations, class_of, strict=True):
        if operation.phase == "run":
            kinds.append("run")
        else:
            kinds.append("search again" if number in searched else "search")
            searched.add(number)
    return kinds


def of_this_process(posterior: Posterior, operations: Sequence[Operation], elsewhere: Sequence[float]) -> float:
    """Return the highest confidence of links by names, sizes and order alone.

    It is below 1 if many calls were silent, because these may be another process's or run's. Calls that launched
    ``elsewhere`` do not count. Silent calls with the same problems as the others cannot be distinguished."""
    # A call of several parts counts once, and has launched if most of them did.
    first_of: list[int] = []
    for place, operation in enumerate(operations):
        is_part = place > 0 and operation is operations[place - 1]
        first_of.append(first_of[-1] if is_part else place)
    parts = Counter(first_of)
    launched = Counter(first_of[place] for place in {*posterior.operation} if place != NONE)
    if not launched:
        return 1.0
    launching = {place for place, count in launched.items() if 2 * count >= parts[place]}
    executing = [
        place
        for place in dict.fromkeys(first_of)
        if operations[place].phase == "run"
        and not operations[place].torn
        and (place in launching or elsewhere[place] <= 0.5)
    ]
    silent = [place for place in executing if place not in launching]
    stretches = sum(before in launching and after not in launching for before, after in pairwise(executing))
    # A process prints entries or it does not: commands alone among entries are another one's, or lost their entries.
    alone = [place for place in silent if operations[place].line == operations[place].command_line]
    others = 2 * len(alone) > len(silent) and any(one.line != one.command_line for one in operations)
    # A profile that has a hole, or begins late or ends early, leaves a stretch of calls, or two.
    scattered = len(silent) >= STRANGERS * len(executing) and (others or stretches >= FEWEST_STRETCHES)
    if not (scattered or 2 * len(silent) > len(executing)):
        return 1.0
    if launching and not scattered and _ended_early(operations, launching, silent):
        return 1.0
    posed = {_problem(operations[place]) for place in silent}
    alike = sum(_problem(operations[place]) in posed for place in executing if place in launching)
    return BESIDE_STRANGERS if 2 * alike < len(executing) - len(silent) else 0.5


def _ended_early(operations: Sequence[Operation], launching: Set[int], silent: Sequence[int]) -> bool:
    """Return whether the profile ended first: silent calls come last and are no searches."""
    end = max(launching)
    searches = [place for place, operation in enumerate(operations) if operation.phase == "find"]
    return bool(searches) and searches[-1] < min(silent) and end < min(silent)


def _problem(operation: Operation) -> object:
    return operation.primitive, operation.direction, operation.input, operation.weights, operation.output


def _mean(before: float, events: float, of: float) -> float:
    return min(0.9, (events + before) / (of + 1))


def chances_of(rates: Rates, kinds: Sequence[Kind], elsewhere: Sequence[float], holed: Sequence[bool]) -> Chances:
    """Return log-probabilities along the calls. ``elsewhere``: the probability per call of another queue."""
    passed, begun = [0.0], []
    for kind, other in zip(kinds, elsewhere, strict=True):
        silent = rates.silence(kind, other)
        passed.append(passed[-1] + log(silent))
        begun.append(log(1 - silent))
    usual, beside = log(rates.lost), log(max(rates.lost, LOST_BESIDE_TORN))
    lost = [
        beside if before or after else usual for before, after in zip([False, *holed], [*holed, False], strict=True)
    ]
    hole = hole_nats(len(kinds), rates.holes)
    return Chances(passed=passed, begun=begun, lost=lost, hole=hole, cut=cut_nats(len(kinds)))


def ahead(likelihood: Likelihood, before: Posterior, kinds: Sequence[Kind], habits: Habits) -> Ahead:
    """Return the possible gains by those of equal kernels and calls in an earlier posterior."""
    kernels = likelihood.kernels
    best: dict[int, float] = {}
    for at, (kind, place) in enumerate(zip(kernels.of, before.operation, strict=True)):
        if place != NONE:
            gain = likelihood.fit(at, place).nats + habits.nats(kind, place)
            best[kind] = max(best.get(kind, 0.0), gain)
    mean = sum(best.values()) / max(1, len(best))
    gains = [best.get(kind, mean) if kernels.kinds[kind].library else 0.0 for kind in kernels.of]
    of_call = [0.0] * len(kinds)
    for gain, place in zip(gains, before.operation, strict=True):
        if place != NONE:
            of_call[place] += gain
    sums: dict[object, list[float]] = {}
    for gain, number, sort in zip(of_call, likelihood.class_of, kinds, strict=True):
        if gain:
            sums.setdefault(number, []).append(gain)
            sums.setdefault(sort, []).append(gain)
    expected = []
    for number, sort in zip(likelihood.class_of, kinds, strict=True):
        # Where none tells, a search launches as many as lost calls do.
        like = sums.get(number) or sums.get(sort) or [mean if sort == "run" else mean / SHORT_CLOSES]
        expected.append(sum(like) / len(like))
    return Ahead(kernels=_from_behind(gains), calls=_from_behind(expected))


def _from_behind(gains: Sequence[float]) -> list[float]:
    return list(accumulate(reversed(gains), initial=0.0))[::-1]
