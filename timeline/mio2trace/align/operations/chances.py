"""The alignment gives each kernel its most probable call, and shows by this how often calls of the run are lost or
launch nothing, and which kernels equal calls launch.

Learned from a posterior (miopen-log.md 10). A pair's own contribution is left out when it is judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import exp, log, prod
from operator import is_not
from typing import Literal

import msgspec
import numpy as np

from mio2trace.align.links import NONE
from mio2trace.align.operations.likelihood import OTHERS, Fit, Likelihood
from mio2trace.align.operations.rows import SEVERAL, KernelKind
from mio2trace.align.rates import (
    BESIDE_STRANGERS,
    CUT,
    FEW,
    HOLE,
    LOST,
    LOST_BESIDE_TORN,
    MAYBE_HOLES,
    MISSTATED,
    SHORT_CLOSES,
    SILENT,
    SILENT_AGAIN,
    SILENT_SEARCH,
    STRANGERS,
    UNKNOWN_NAME,
    UNLOGGED,
    calibrated,
)
from mio2trace.model.tables import present
from mio2trace.ops.operation import Operation

_ALIKE = 0.005
"""Probabilities nearer than this are the same."""
LEAST = 0.005
"""The least probability of another place that is kept."""


class Posterior(msgspec.Struct, kw_only=True):
    """``operation[i]``: the likeliest place of kernel i in the list of operations, `NONE` for none. ``confidence[i]``:
    its probability. ``others[i]``: the next best places with theirs. ``gone[i]``: the probability that the log lost the
    call of the kernel. ``fits[i]``: how well the kernel fits, where that is known. ``evidence``: the
    log-likelihood ratio of all. ``states``: how many the search kept."""

    operation: list[int]
    confidence: list[float]
    others: list[tuple[tuple[int, float], ...]]
    gone: list[float]
    fits: list[Fit | None]
    evidence: float = 0.0
    states: int = 0

    @classmethod
    def of_none(cls, count: int) -> Posterior:
        """Return the posterior of ``count`` kernels before anything is known: each is in no call."""
        return cls(
            operation=[NONE] * count,
            confidence=[1.0] * count,
            others=[()] * count,
            gone=[0.0] * count,
            fits=[None] * count,
        )

    def mixed(self, other: Posterior, share: float | None = None) -> Posterior:
        """Return the mean of two results, each weighed by its evidence. Links in both results stay.

        ``share``: the weight of ``other``; None: by the evidence."""
        share = 1 / (1 + exp(min(700.0, self.evidence - other.evidence))) if share is None else share
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
        """Give a doubtful link the measured confidence of such links (`rates.CALIBRATED`); the others get the rest."""
        before = self.confidence[at]
        after = self.confidence[at] = calibrated("operation", before)
        if after == before:
            return
        rest = (1 - after) / (1 - before)
        self.others[at] = tuple((place, chance * rest) for place, chance in self.others[at])
        self.gone[at] *= rest

    def doubt(self, at: int, at_most: float) -> None:
        self.confidence[at] = min(self.confidence[at], at_most)

    def chances(self, at: int) -> tuple[tuple[int, float], ...]:
        """Return the possible operations of a kernel, each with its probability."""
        return (self.operation[at], self.confidence[at]), *self.others[at]

    def is_like(self, other: Posterior) -> bool:
        """Return whether both have the same operation for each kernel, with the same confidence."""
        return self.operation == other.operation and all(
            abs(own - its) < _ALIKE for own, its in zip(self.confidence, other.confidence, strict=True)
        )


_SEARCH = "conv", "find"


class Habits:
    """Log-likelihood ratios of kinds of kernels in calls, by what other calls launched."""

    def __init__(self, likelihood: Likelihood, posterior: Posterior, *, rows: bool) -> None:
        self._likelihood = likelihood
        self._rows = rows
        kernels, classes = likelihood.kernels, likelihood.class_of
        self._of_kind = Counter(kernels.of)
        self._pairs: dict[tuple[int, int], float] = defaultdict(float)
        self._own: dict[tuple[int, int], float] = defaultdict(float)
        self._launching: set[int] = set()
        for kind, place, confidence in zip(kernels.of, posterior.operation, posterior.confidence, strict=True):
            if place != NONE:
                self._pairs[kind, classes[place]] += confidence
                self._own[kind, place] += confidence
                self._launching.add(place)
        self._calls = Counter[int](classes[place] for place in self._launching)
        self._launched: dict[int, float] = defaultdict(float)
        self._posed: dict[tuple[int, object], float] = defaultdict(float)
        self._of_problem: dict[object, float] = defaultdict(float)
        for (kind, number), count in self._pairs.items():
            problem = likelihood.problem_of[number]
            self._launched[number] += count
            self._posed[kind, problem] += count
            self._of_problem[problem] += count
        self._learn_work()
        self._learn_order(posterior)
        self._learn_names(posterior)
        self._nats: dict[tuple[int, int], float] = {}

    def nats(self, kind: int, place: int) -> float:
        """Return the ratio for a kernel of this kind in the call at ``place``."""
        number = self._likelihood.class_of[place]
        known = self._nats.get((kind, number))
        if known is None:
            known = self._nats[kind, number] = self._work_nats(kind, place, number)
        if self._likelihood.kernels.kinds[kind].is_strange:
            known += self._unknown_nats(kind, self._own.get((kind, place), 0.0))
        known += self._sort_nats(kind, place)
        if self._rows:
            known += self._chosen_nats(kind, place, number)
        if self._rows and self._calls[number] > 1:
            return known + self._row_nats(kind, place, number)
        return known

    def _learn_order(self, posterior: Posterior) -> None:
        """Count per direction whether searches try GEMM before (True) or after another algorithm."""
        kernels, operations = self._likelihood.kernels, self._likelihood.operations
        self._orders: dict[tuple[str | None, bool], float] = defaultdict(float)
        before, gemm_before = NONE, False
        for kind, place, confidence in zip(kernels.of, posterior.operation, posterior.confidence, strict=True):
            one = kernels.kinds[kind]
            if place == NONE or one.role != "main":
                continue
            operation = operations[place]
            if place == before and one.is_gemm != gemm_before and (operation.primitive, operation.phase) == _SEARCH:
                self._orders[operation.direction, gemm_before] += confidence
            before, gemm_before = place, one.is_gemm

    def order_nats(self, direction: str | None, *, gemm_first: bool) -> float:
        same, other = self._orders[direction, gemm_first], self._orders[direction, not gemm_first]
        return log(2 * (max(0.0, same - 1) + 1) / (max(0.0, same - 1) + other + 2))

    # Names: of kernels of lost calls, of those in no table, of helpers of any call

    def _learn_names(self, posterior: Posterior) -> None:
        """Count kernels of lost calls by name (some calls print nothing), and names by sort of call (`_sort`)."""
        kinds, operations = self._likelihood.kernels.kinds, self._likelihood.operations
        named, strange = Counter[str](), Counter[str]()
        lost: dict[str, float] = defaultdict(float)
        inside: dict[str, float] = defaultdict(float)
        for kind, gone in zip(self._likelihood.kernels.of, posterior.gone, strict=True):
            one = kinds[kind]
            counts, of_lost = (strange, inside) if one.is_strange else (named, lost)
            if one.is_strange or one.name is not None:
                counts[one.launch[0]] += 1
                of_lost[one.launch[0]] += gone
        self._strange, self._inside = strange, inside
        self._lost_nats: dict[str, float] = {}
        kernels, every = named.total(), sum(lost.values())
        for name, number in named.items():
            share, own = number / kernels, lost[name] / number
            self._lost_nats[name] = log((lost[name] - own + OTHERS * share) / (every - own + OTHERS) / share)
        self._sorts: Counter[object] = Counter()
        self._linked: dict[tuple[str, object], float] = defaultdict(float)
        for (kind, place), count in self._own.items():
            one, operation = kinds[kind], operations[place]
            self._sorts.update((operation.primitive, (operation.primitive, operation.direction)))
            sort, name = _sort(one, operation), one.launch[0]
            if sort is not None:
                self._linked[name, sort] += count
                self._linked[name, one.is_strange] += count
            if one.is_strange:
                inside[name] += count

    def lost_nats(self, kind: int) -> float:
        """Return the ratio for a kernel of a lost call."""
        one = self._likelihood.kernels.kinds[kind]
        return self._unknown_nats(kind, 0.0) if one.is_strange else self._lost_nats.get(one.launch[0], 0.0)

    def _unknown_nats(self, kind: int, own: float) -> float:
        """Return the ratio for an unknown name being the library's; all its kernels are one event."""
        name = self._likelihood.kernels.kinds[kind].launch[0]
        others = self._strange[name] - max(1.0, own)
        again = min(others, max(0.0, self._inside[name] - own))
        return log((again + UNKNOWN_NAME) / (others - again + 1 - UNKNOWN_NAME) / UNKNOWN_NAME)

    def _sort_nats(self, kind: int, place: int) -> float:
        """Return the ratio of a name by its links in calls of this sort and in all calls, without this pair's."""
        one = self._likelihood.kernels.kinds[kind]
        sort = _sort(one, self._likelihood.operations[place])
        if sort is None:
            return 0.0
        name, own = one.launch[0], self._own.get((kind, place), 0.0)
        alike, every = (self._linked.get((name, which), 0.0) for which in (sort, one.is_strange))
        share = (1 + self._sorts[sort]) / (1 + len(self._own))
        return log((max(0.0, alike - own) + share) / (max(0.0, every - own) + 1) / share)

    def _learn_work(self) -> None:
        likelihood = self._likelihood
        self._work: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
        self._items: dict[str, Counter[int]] = defaultdict(Counter)
        supported = Counter[tuple[str, float]]()
        for kind, kernels in self._of_kind.items():
            name, items = self._sized_name(kind)
            self._items[name][items] += kernels
        for (kind, number), count in self._pairs.items():
            name, items = self._sized_name(kind)
            elements = _elements(likelihood.operations[likelihood.first_of[number]])
            if items and elements:
                self._work[name][items / elements] += count
                supported[name, items / elements] += 1
        self._fixed = {
            name: sum(count for ratio, count in ratios.items() if supported[name, ratio] > 1) / sum(ratios.values())
            for name, ratios in self._work.items()
        }

    def _sized_name(self, kind: int) -> tuple[str, int]:
        one = self._likelihood.kernels.kinds[kind]
        name, grid = one.launch
        if grid is None or one.name is None or one.name.algorithm == "Gemm":
            return name, 0
        return name, prod(grid)

    def _work_nats(self, kind: int, place: int, number: int) -> float:
        name, items = self._sized_name(kind)
        ratios = self._work.get(name)
        elements = _elements(self._likelihood.operations[place])
        if not items or not elements or not ratios:
            return 0.0
        own = self._pairs.get((kind, number), 0.0)
        others = sum(ratios.values()) - own
        if others < 1:
            return 0.0
        usual = self._items[name][items] / (self._items[name].total() - self._items[name][0])
        fixed = self._fixed[name] * (1 - MISSTATED)
        again = max(0.0, ratios.get(items / elements, 0.0) - own) / others
        return log(((1 - fixed) * usual + fixed * again + MISSTATED * usual) / usual)

    def _row_nats(self, kind: int, place: int, number: int) -> float:
        """Return the ratio by other calls of the problem. Silent calls have as many witnesses."""
        each = self._launched[number] / self._calls[number]
        others = self._launched[number] - each
        launched = self._pairs.get((kind, number), 0.0)
        launched -= self._own.get((kind, place), 0.0) if place in self._launching else launched / self._calls[number]
        likelihood = self._likelihood
        nats, _, _ = likelihood.pair(kind, likelihood.first_of[number])
        expected = exp(min(0.0, nats + log(self._of_kind[kind] / len(likelihood.kernels))))
        return log((max(0.0, launched) + expected * each) / ((others + each) * expected))

    def _chosen_nats(self, kind: int, place: int, number: int) -> float:
        """Return the ratio for a kernel that both a problem's search and its execution launch."""
        likelihood = self._likelihood
        problem = likelihood.problem_of[number]
        others = self._of_problem.get(problem, 0.0) - self._launched.get(number, 0.0)
        both = self._posed.get((kind, problem), 0.0) - self._pairs.get((kind, number), 0.0)
        if others < 0.5 or both <= 0:
            return 0.0
        expected = min(1.0, exp(likelihood.pair(kind, place)[0]) * self._of_kind[kind] / len(likelihood.kernels))
        return log(1 - SHORT_CLOSES + SHORT_CLOSES * max(1.0, both / others / expected))


def _sort(kind: KernelKind, operation: Operation) -> object:
    """Return the primitive for a helper, primitive and direction for an unknown name, else None."""
    if kind.is_strange:
        return operation.primitive, operation.direction
    return operation.primitive if kind.name is not None and not kind.name.primitives else None


def _elements(operation: Operation) -> int:
    if operation.primitive in SEVERAL:
        return 0  # each of its kernels works on another part of the result
    shape = operation.output or operation.input
    return prod(shape) if shape else 0


Kind = Literal["run", "search", "search again", "answered"]
FEWEST_STRETCHES = 3
"""A profile may have one or two holes; more stretches of silent calls are another process's."""
_BEFORE: Mapping[Kind, float] = {
    "run": SILENT,
    "search": SILENT_SEARCH,
    "search again": SILENT_AGAIN,
    "answered": 1 - MISSTATED,
}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities of a lost call and of a silent call per kind. ``holes``: stretches that the profile lacks.

    ``by_database``: a database answered the run's searches."""

    lost: float
    silent: Mapping[Kind, float]
    holes: float
    by_database: bool = False

    @classmethod
    def before(cls, *, entered: bool) -> Rates:
        """Return the rates before learning. ``entered``: the log has entries, not only commands."""
        return cls(lost=LOST if entered else UNLOGGED, silent=_BEFORE, holes=MAYBE_HOLES)

    def answered(self) -> Rates:
        """Return these rates of a run whose searches a database answered: all of them, or nearly all."""
        silent: dict[Kind, float] = {**self.silent, "search": 1 - FEW, "search again": 1 - FEW}
        return msgspec.structs.replace(self, silent=silent, by_database=True)

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
            silent={
                # What the log says is not learned from the links.
                kind: before if kind == "answered" else _mean(before, silent[kind], calls[kind])
                for kind, before in self.silent.items()
            },
            holes=HOLE,
            by_database=self.by_database,
        )


def cut_nats(calls: int) -> float:
    """That the profile begins or ends at any of the log's calls."""
    return log(CUT / max(1, calls))


def hole_nats(calls: int, holes: float) -> float:
    """That one of the profile's holes goes from any call to any later one."""
    return min(0.0, log(holes / max(1, calls * (calls + 1) / 2)))


class Chances(msgspec.Struct, kw_only=True):
    """Log-probabilities: ``passed[j]`` over calls 0 to j - 1, ``begun[j]`` by call j, ``lost[j]`` before call j.

    ``following[i]``: the call after that of kernel i in an earlier posterior. ``ahead``: the possible gain in nats from
    kernel i and from call j on; the smaller one bounds a way."""

    passed: list[float]
    begun: list[float]
    lost: list[float]
    hole: float
    cut: float
    ahead: tuple[Sequence[float], Sequence[float]] | None = None
    habits: Habits | None = None
    following: Sequence[int] | None = None
    by_database: bool = False


def kinds_of(operations: Sequence[Operation], class_of: Sequence[int]) -> list[Kind]:
    """Return whether each call searches, whether its thread searched the problem before, and whether its lines say that
    it measured nothing.

    Behind an execution all searches are new ones: of another net, or of a program that begins again."""
    kinds: list[Kind] = []
    searched: dict[int | None, set[int]] = defaultdict(set)
    for operation, number in zip(operations, class_of, strict=True):
        own = searched[operation.thread]
        if operation.phase == "run":
            kinds.append("run")
            own.clear()
        else:
            kinds.append("answered" if operation.is_answered else "search again" if number in own else "search")
            own.add(number)
    return kinds


def of_this_process(posterior: Posterior, operations: Sequence[Operation], elsewhere: Sequence[float]) -> float:
    """Return the highest confidence of links by names, sizes and order alone.

    It is below 1 if many calls were silent, because these may be another process's or run's. Calls that launched
    ``elsewhere`` do not count. Silent calls with the same problems as the others cannot be distinguished."""
    # A call of several parts counts once, and has launched if most of them did.
    begins = np.ones(len(operations), bool)
    begins[1:] = np.fromiter(map(is_not, operations[1:], operations), bool, len(operations) - 1)
    first, call_of = np.flatnonzero(begins), np.cumsum(begins) - 1
    with_kernels = present(np.array(posterior.operation, np.int64))
    count = np.bincount(call_of[with_kernels[with_kernels != NONE]], minlength=len(first))
    if not count.any():
        return 1.0
    launched = (count > 0) & (2 * count >= np.bincount(call_of))
    of_calls = [operations[place] for place in first.tolist()]
    executes = np.array([one.phase == "run" and not one.torn for one in of_calls])
    executing = np.flatnonzero(executes & (launched | (np.array(elsewhere)[first] <= 0.5)))
    launching = launched[executing]
    silent, loud = executing[~launching], executing[launching]
    stretches = np.count_nonzero(launching[:-1] & ~launching[1:])
    # A process prints entries or it does not: where those that launched do and silent ones do not, these are another's.
    silent_alone, loud_alone = (
        sum(of_calls[call].line == of_calls[call].command_line for call in calls.tolist()) for calls in (silent, loud)
    )
    others = (2 * silent_alone > len(silent)) != (2 * loud_alone > len(loud))
    # A profile that has a hole, or begins late or ends early, leaves a stretch of calls, or two.
    scattered = len(silent) >= STRANGERS * len(executing) and (others or stretches >= FEWEST_STRETCHES)
    if not (scattered or len(silent) > len(loud)):
        return 1.0
    searches = [call for call, one in enumerate(of_calls) if one.phase == "find"]
    if searches and launched.any() and not scattered and max(searches[-1], np.flatnonzero(launched)[-1]) < silent[0]:
        return 1.0  # the profile ended first: silent calls come last
    posed = {_problem(of_calls[call]) for call in silent.tolist()}
    alike = sum(_problem(of_calls[call]) in posed for call in loud.tolist())
    return BESIDE_STRANGERS if 2 * alike < len(loud) else 0.5


def _problem(operation: Operation) -> object:
    return operation.primitive, operation.direction, operation.input, operation.weights, operation.output


def _mean(before: float, events: float, of: float) -> float:
    return min(0.9, (events + before) / (of + 1))


def chances_of(rates: Rates, kinds: Sequence[Kind], elsewhere: Sequence[float], holed: Sequence[bool]) -> Chances:
    """Return log-probabilities along the calls. ``elsewhere``: the probability per call of another queue."""
    passed, begun = [0.0], []
    for kind, other in zip(kinds, elsewhere, strict=True):
        silent = other + (1 - other) * rates.silent[kind]  # it launched nothing here
        passed.append(passed[-1] + log(silent))
        begun.append(log(1 - silent))
    usual, beside = log(rates.lost), log(max(rates.lost, LOST_BESIDE_TORN))
    lost = [
        beside if before or after else usual for before, after in zip([False, *holed], [*holed, False], strict=True)
    ]
    hole = hole_nats(len(kinds), rates.holes)
    cut = cut_nats(len(kinds))
    return Chances(passed=passed, begun=begun, lost=lost, hole=hole, cut=cut, by_database=rates.by_database)


def ahead(
    likelihood: Likelihood, before: Posterior, kinds: Sequence[Kind], habits: Habits
) -> tuple[Sequence[float], Sequence[float]]:
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
        # If no call shows it, a search launches as many kernels as lost calls do.
        like = sums.get(number) or sums.get(sort) or [mean if sort == "run" else mean / SHORT_CLOSES]
        expected.append(sum(like) / len(like))
    kernels_on, calls_on = (list(accumulate(reversed(each), initial=0.0))[::-1] for each in (gains, expected))
    return kernels_on, calls_on


def following(before: Posterior, calls: int) -> Sequence[int]:
    """Return for each kernel the next call that launched, behind its own; ``calls`` behind the last one."""
    found = []
    here = after = calls
    for place in reversed(before.operation):
        if place not in (NONE, here):
            here, after = place, here
        found.append(here if place == NONE else after)
    return found[::-1]
