"""What the run itself tells of how often calls are lost or launch nothing: rates, learned from its posterior."""

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
"""A profile may have a hole, or two; more stretches of calls that launched nothing are another process's."""
_BEFORE: Mapping[Kind, float] = {"run": SILENT, "search": SILENT_SEARCH, "search again": SILENT_AGAIN}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities: that a call was lost; that one of each kind launched nothing. ``holes``: how many stretches of
    calls the profile does not have, or another process wrote.
    """

    lost: float
    silent: Mapping[Kind, float]
    holes: float

    @classmethod
    def before(cls, *, entered: bool) -> Rates:
        """As they are before the run is seen; ``entered``: the log has entries, not commands alone."""
        return cls(lost=LOST if entered else UNLOGGED, silent=_BEFORE, holes=MAYBE_HOLES)

    def learned(self, posterior: Posterior, kinds: Sequence[Kind], elsewhere: Sequence[float]) -> Rates:
        """As the posterior has them; what they were before counts as one event. A call that may be ``elsewhere`` and
        launched nothing here is silent as far as that is not why.
        """
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
        """How probable it is that a call launched nothing here."""
        return elsewhere + (1 - elsewhere) * self.silent[kind]


def cut_nats(calls: int) -> float:
    """That the profile began or ended between the log's first and last call: at any, each as likely."""
    return log(CUT / max(1, calls))


def hole_nats(calls: int, holes: float) -> float:
    """That the profile has one of so many holes there: from any call to any later one, each as likely."""
    return min(0.0, log(holes / max(1, calls * (calls + 1) / 2)))


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities that the run itself tells (`em`): ``passed[j]`` that calls 0 to j - 1 were all passed over,
    ``begun[j]`` that call j launches here, ``lost[j]`` that the log lost what follows call j - 1; ``hole`` that calls
    were passed over together, ``cut`` at the log's begin or end.
    """

    passed: list[float]
    begun: list[float]
    lost: list[float]
    hole: float
    cut: float
    ahead: Ahead | None = None
    habits: Habits | None = None


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be gained, in nats, from kernel i on (``kernels[i]``) and from call j on (``calls[j]``), as far as can
    be said beforehand: no way gains more than the less of both, so one that has used up its calls is behind.
    """

    kernels: list[float]
    calls: list[float]


def kinds_of(operations: Sequence[Operation], class_of: Sequence[int]) -> list[Kind]:
    """Of each call whether it searches, and whether the same was searched for before."""
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
    """The highest confidence of links that rest on names, sizes and order alone.

    It is 1 unless many of the log's calls launched no kernel: these calls may be of another process or of another run.
    A call that probably launched ``elsewhere``, in another queue, does not count. If the silent calls have the same
    problems as the calls that launched, the two cannot be distinguished.
    """
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
    """Whether the profile ended while its run went on: what launched nothing comes last, and none of it is a search,
    as another run of the program would begin with."""
    end = max(launching)
    searches = [place for place, operation in enumerate(operations) if operation.phase == "find"]
    return bool(searches) and searches[-1] < min(silent) and end < min(silent)


def _problem(operation: Operation) -> object:
    return operation.primitive, operation.direction, operation.input, operation.weights, operation.output


def _mean(before: float, events: float, of: float) -> float:
    return min(0.9, (events + before) / (of + 1))


def chances_of(rates: Rates, kinds: Sequence[Kind], elsewhere: Sequence[float], holed: Sequence[bool]) -> Chances:
    """Log-probabilities along a row of calls; ``elsewhere``: how probable it is of each that it is another queue's."""
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
    """What kernels and calls have to gain, by what like ones gained in an earlier posterior."""
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
