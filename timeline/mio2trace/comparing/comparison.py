"""Compare two sides part by part: matches, verdicts, causes, parts that only one side has, and the limits of a gate.

Parts are matched by what they compute, not by their names. Problems are matched by their name, which describes the
computation; then by all of it except the batch. Layers are matched by the longest common subsequence of primitive,
direction and output; equal names are preferred. Kernels outside of operations are matched by name. The others are then
matched by place: a kernel between the same neighbours with as many calls was renamed.

Verdict and interval follow the rule of `mio2trace.comparing.statistics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from mio2trace.answer.content import distinct, short_kernel
from mio2trace.comparing.record import KINDS, Facts, Kind, Part, RunRecord, StepDoubt, cut, longest_parts, same_parts
from mio2trace.comparing.statistics import FEWEST, LEAST_SHARE, Word, separated, verdict
from mio2trace.measures.statistics import median
from mio2trace.notes import InputError
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.reports import Table


How = Literal["name", "structure", "batch", "place", ""]
_SAME_LIKE, _SAME_NAME = 2, 3
_MUCH_LONGER = 3
"""Times of a renamed kernel differ by less than this factor."""
_SEVERAL = 1.5
"""If most parts have more times as many calls in an iteration, it is several of the other side."""
_SAME_NET = 0.5
"""The places of kernels are compared only if kernels with equal names have at least this part of the time."""
_MAYBE_SMALL = "or too short on the other side for the base to keep it"
_LONGEST = 4_000_000
"""The most cells in the table of the longest common subsequence; if there are more layers, only names are compared."""


class SidePart(NamedTuple):
    """A part in all runs of a side that have it. ``samples``: by run. ``part``: from the first of these runs."""

    part: Part
    samples: tuple[tuple[float, ...], ...]

    @property
    def mean_ns(self) -> float:
        return sum(sum(run) / len(run) for run in self.samples) / len(self.samples)


class Pair(NamedTuple):
    """A part of either side, or of both. ``how``: the property by which they were matched."""

    a: SidePart | None
    b: SidePart | None
    how: How = ""

    @property
    def first(self) -> SidePart:
        part = self.a if self.a is not None else self.b
        assert part is not None
        return part


def parts(runs: Sequence[RunRecord]) -> dict[Kind, list[SidePart]]:
    """Return the parts of a side by kind, in order of place."""
    by_kind: dict[Kind, list[SidePart]] = {kind: [] for kind in KINDS}
    for (kind, _), own in same_parts(runs).items():
        by_kind[kind].append(SidePart(own[0], tuple(part.samples_ns for part in own)))
    for found in by_kind.values():
        found.sort(key=lambda one: one.part.place)
    return by_kind


def matched(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> Iterator[Pair]:
    of_a, of_b = parts(a), parts(b)
    yield from _problems(of_a["problem"], of_b["problem"])
    yield from _kernels_alike(of_a["kernel"], of_b["kernel"])
    yield from _layers(of_a["layer"], of_b["layer"])


def _by_name(a: Sequence[SidePart], b: Sequence[SidePart]) -> tuple[list[Pair], list[SidePart], list[SidePart]]:
    """Return pairs of equal name, and the unmatched parts of each side."""
    other = {one.part.name: one for one in b}
    pairs = [Pair(one, other[one.part.name], "name") for one in a if one.part.name in other]
    mine = {one.part.name for one in a}
    return pairs, [one for one in a if one.part.name not in other], [one for one in b if one.part.name not in mine]


def _problems(a: Sequence[SidePart], b: Sequence[SidePart]) -> Iterator[Pair]:
    pairs, left_a, left_b = _by_name(a, b)
    yield from pairs
    count_a, count_b = (Counter(one.part.like for one in left) for left in (left_a, left_b))
    alike = {one.part.like: one for one in left_b if count_a[one.part.like] == count_b[one.part.like] == 1}
    for one in left_a:
        other = alike.get(one.part.like)
        yield Pair(one, other, "batch" if other is not None else "")
    yield from (Pair(None, one) for one in left_b if one.part.like not in alike)


def _kernels_alike(a: Sequence[SidePart], b: Sequence[SidePart]) -> Iterator[Pair]:
    pairs, left_a, left_b = _by_name(a, b)
    yield from pairs
    same = {pair.first.part.name for pair in pairs}
    ran = sum(one.mean_ns for one in (*a, *b))
    if sum(one.mean_ns for one in (*a, *b) if one.part.name in same) < _SAME_NET * ran:
        yield from (*(Pair(one, None) for one in left_a), *(Pair(None, one) for one in left_b))
        return
    where = _neighbours(b, same)
    waiting: dict[tuple[str, str], list[SidePart]] = {}
    for one in left_b:
        waiting.setdefault(where[one.part.name], []).append(one)
    renamed: set[str] = set()
    here = _neighbours(a, same)
    for one in left_a:
        others = waiting.get(here[one.part.name], [])
        other = next((other for other in others if _is_like(one, other)), None)
        if other is not None:
            others.remove(other)
            renamed.add(other.part.name)
        yield Pair(one, other, "place" if other is not None else "")
    yield from (Pair(None, one) for one in left_b if one.part.name not in renamed)


def _is_like(a: SidePart, b: SidePart) -> bool:
    """Return whether one kernel may be the other by a new name: as many calls, equal roles, and a similar time."""
    short, long = sorted((a.mean_ns, b.mean_ns))
    roles = [[inside.role for inside in one.part.kernels] for one in (a, b)]
    return a.part.calls == b.part.calls and roles[0] == roles[1] and long <= _MUCH_LONGER * short


def _neighbours(parts: Sequence[SidePart], same: set[str]) -> dict[str, tuple[str, str]]:
    """Return, for each part that only this side has, the parts before and after it that both sides have."""
    where: dict[str, tuple[str, str]] = {}
    before = ""
    waiting: list[str] = []
    for one in parts:
        name = one.part.name
        if name not in same:
            waiting.append(name)
            continue
        where.update((each, (before, name)) for each in waiting)
        waiting, before = [], name
    where.update((each, (before, "")) for each in waiting)
    return where


def _layers(a: Sequence[SidePart], b: Sequence[SidePart]) -> Iterator[Pair]:
    """Match in the order of the net. Layers that the order does not match are matched by name, because a layer may have
    a new shape."""
    pairs = list(_in_order(a, b))
    left = {pair.b.part.name: pair.b for pair in pairs if pair.a is None and pair.b is not None}
    again = {pair.a.part.name for pair in pairs if pair.b is None and pair.a is not None} & left.keys()
    for pair in pairs:
        name = pair.first.part.name
        if pair.b is None and name in again:
            yield Pair(pair.a, left[name], "name")
        elif pair.a is not None or name not in again:
            yield pair


def _in_order(a: Sequence[SidePart], b: Sequence[SidePart]) -> Iterator[Pair]:
    first = 0
    while first < min(len(a), len(b)) and _alike(a[first], b[first]) == _SAME_NAME:
        yield Pair(a[first], b[first], "name")
        first += 1
    rest_a, rest_b = a[first:], b[first:]
    if len(rest_a) * len(rest_b) > _LONGEST:
        pairs, left_a, left_b = _by_name(rest_a, rest_b)
        yield from (*pairs, *(Pair(one, None) for one in left_a), *(Pair(None, one) for one in left_b))
        return
    best = _table(rest_a, rest_b)
    at_a = at_b = 0
    while at_a < len(rest_a) and at_b < len(rest_b):
        likeness = _alike(rest_a[at_a], rest_b[at_b])
        if likeness and best[at_a][at_b] == likeness + best[at_a + 1][at_b + 1]:
            yield Pair(rest_a[at_a], rest_b[at_b], "name" if likeness == _SAME_NAME else "structure")
            at_a, at_b = at_a + 1, at_b + 1
        elif best[at_a + 1][at_b] >= best[at_a][at_b + 1]:
            yield Pair(rest_a[at_a], None)
            at_a += 1
        else:
            yield Pair(None, rest_b[at_b])
            at_b += 1
    yield from (Pair(one, None) for one in rest_a[at_a:])
    yield from (Pair(None, one) for one in rest_b[at_b:])


def _table(a: Sequence[SidePart], b: Sequence[SidePart]) -> list[list[int]]:
    """Return the highest similarity that is possible from each pair of places to the end."""
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for at_a in reversed(range(len(a))):
        row, below = best[at_a], best[at_a + 1]
        for at_b in reversed(range(len(b))):
            likeness = _alike(a[at_a], b[at_b])
            most = max(below[at_b], row[at_b + 1])
            row[at_b] = max(most, likeness + below[at_b + 1]) if likeness else most
    return best


def _alike(a: SidePart, b: SidePart) -> int:
    if a.part.like and b.part.like and a.part.like != b.part.like:
        return 0
    if a.part.name == b.part.name:
        return _SAME_NAME
    return _SAME_LIKE if a.part.like and a.part.like == b.part.like else 0


# -- Two sides, part by part -------------------------------------------------------------------------------------------


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one kind: the same program on the same machine with the same versions."""

    name: str
    runs: tuple[RunRecord, ...]

    @property
    def facts(self) -> Facts:
        return self.runs[0].facts

    @property
    def whole(self) -> bool:
        """Whether no iterations of any run are known."""
        return all(run.whole for run in self.runs)

    @property
    def samples(self) -> tuple[tuple[float, ...], ...]:
        return tuple(run.samples_ns for run in self.runs)


_Whole = Literal["iteration", "step", "once", "rank"]
_STEP_DOUBTS: Mapping[StepDoubt, str] = {
    "cold": "the only step may be cold",
    "stacks": "stacks were recorded, which slows the host",
    "counters": "hardware counters were recorded, which makes gaps",
    "repetition": "no mark says where a step ends, only the repetition of kernels",
    "searches": "the repetitions may be searches, or parts of iterations",
}


class Compared(NamedTuple):
    """A part of an iteration on both sides, times in ns; None on a side that lacks it.

    ``share``: its part of the longer iteration. ``other_size``: it computes something else and is not judged. ``pair``:
    the two matched parts; None for a row that is not a part. ``undecided``: why the runs cannot decide, however many
    there are.
    """

    kind: Kind | _Whole
    name: str
    a_ns: float | None
    b_ns: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    word: Word | Literal["only in A", "only in B", "other size"] = "~"
    runs_needed: int = 0
    cause: str = ""
    how: How = ""
    runs: tuple[int, int] = (0, 0)
    share: float = 0.0
    command: str = ""
    pair: Pair | None = None
    undecided: str = ""

    def unless(self, why: str) -> Compared:
        """Return the row with the reason why its runs cannot decide; unchanged without one, or without a verdict."""
        if not why or self.ratio is None or self.word == "other size":
            return self
        return self._replace(word="~", runs_needed=0, undecided=why)

    @property
    def more_ns(self) -> float:
        """Time of the second side minus time of the first."""
        return (self.b_ns or 0) - (self.a_ns or 0)


class Failure(NamedTuple):
    """An exceeded limit: the part, its ratio, the limit, and why nothing is decided (empty: it is)."""

    name: str
    ratio: float
    limit: float
    undecided: str = ""

    @property
    def decided(self) -> bool:
        return not self.undecided


class Comparison:
    """The comparison of side ``b`` with side ``a``."""

    def __init__(self, a: Side, b: Side) -> None:
        kinds = {run.told_by for side in (a, b) for run in side.runs}
        if len(kinds) > 1:
            raise InputError(
                f"{a.name}, {b.name}: one has a GPU profile, the other only printed layer times; expected the same kind"
                " on both sides"
            )
        if any(run.names_cut for side in (a, b) for run in side.runs):
            a, b = (msgspec.structs.replace(side, runs=tuple(map(cut, side.runs))) for side in (a, b))
        self.a, self.b = a, b

    @cached_property
    def _pairs(self) -> Sequence[Pair]:
        return [*matched(self.a.runs, self.b.runs)]

    @cached_property
    def _unlike(self) -> str:
        """Why nothing can be decided on iterations and their parts; empty if it can."""
        runs = *self.a.runs, *self.b.runs
        if len({run.whole for run in runs}) > 1:
            return "an iteration is compared with a whole run"
        if any("repetition" in run.step_doubts for run in runs):
            both = [(one.a, one.b) for one in self._pairs if one.a and one.b and one.a.part.calls and one.b.part.calls]
            several = [(a, b) for a, b in both if not 1 / _SEVERAL < a.part.calls / b.part.calls < _SEVERAL]
            if 2 * sum(a.mean_ns for a, _ in several) > sum(a.mean_ns for a, _ in both):
                return "an iteration of one side seems to be several of the other, as no mark says where it ends"
        return ""

    @cached_property
    def iteration(self) -> Compared:
        return self._judged("iteration", "iteration", self.a.samples, self.b.samples).unless(self._unlike)

    @cached_property
    def rows(self) -> tuple[Compared, ...]:
        """Every part of both sides once, by kind, largest change first."""
        instead = _instead(self._pairs)
        rows = self._with_others([self._row(pair, instead).unless(self._unlike) for pair in self._pairs])
        order = {"problem": 0, "kernel": 1, "layer": 2}
        return tuple(sorted(rows, key=lambda row: (order[row.kind], -abs(row.more_ns))))

    def _with_others(self, rows: list[Compared]) -> list[Compared]:
        """If a base keeps no small parts: sum up the small parts of the other side, and compare them with the sum in
        the base."""
        of_a, of_b = (sum(run.others_ns for run in side.runs) / len(side.runs) for side in (self.a, self.b))
        if not of_a and not of_b:
            return rows
        small = [
            row
            for row in rows
            if (of_a and row.word == "only in B" and row.more_ns <= self._least(self.a, row.kind))
            or (of_b and row.word == "only in A" and -row.more_ns <= self._least(self.b, row.kind))
        ]
        lacks = {"only in B": of_a, "only in A": of_b}
        kept = [
            row._replace(cause=row.cause or _MAYBE_SMALL) if row.kind != "layer" and lacks.get(row.word) else row
            for row in rows
            if row not in small
        ]
        others_a = of_a + sum(row.a_ns or 0 for row in small if row.kind != "layer")
        others_b = of_b + sum(row.b_ns or 0 for row in small if row.kind != "layer")
        ratio = others_b / others_a if others_a and others_b else None
        return [*kept, Compared("kernel", "(smaller parts together)", others_a, others_b, ratio)]

    @cached_property
    def uncompared(self) -> tuple[float, float] | None:
        """How long a part may be that a base does not keep, and all of these together, each as a share of the
        iteration; None if bases keep all parts."""
        found = []
        for side in (self.a, self.b):
            left, whole = sum(run.others_ns for run in side.runs), sum(run.mean_ns for run in side.runs)
            if left and whole:
                kept = [ns for (kind, _), ns in longest_parts(side.runs).items() if kind != "layer"]
                least = min(kept, default=whole) * len(side.runs)
                found.append((min(least, left) / whole, left / whole))
        return max(found, default=None)

    @staticmethod
    def _least(side: Side, kind: str) -> float:
        """Return the largest time of a part that the base may not have kept. Layers have neither a sum nor a cause that
        shows it, so a layer that became much longer is also left out."""
        factor = _MUCH_LONGER if kind == "layer" else 1
        return factor * max(
            (min((p.mean_ns for p in run.parts if p.kind == kind), default=0) for run in side.runs), default=0
        )

    @cached_property
    def once(self) -> tuple[Compared, ...]:
        """Costs that occur once, if a side has them: a cold first iteration, searches, program builds."""
        rows = []
        fields = {"first iteration": "first_ns", "searches": "find_ns", "building programs": "build_ns"}
        for name, field in fields.items():
            of_a, of_b = ([getattr(run, field) or 0 for run in side.runs] for side in (self.a, self.b))
            # A run with one iteration has no separate first iteration.
            if (any(of_a) or any(of_b)) and (name != "first iteration" or (all(of_a) and all(of_b))):
                row = self._judged("once", name, [(one,) for one in of_a], [(one,) for one in of_b])
                is_unsure = field == "find_ns" and any(one.is_find_unsure for one in (*self.a.runs, *self.b.runs))
                rows.append(row.unless("not sure")._replace(name=f"{name} (not sure)") if is_unsure else row)
        return tuple(rows)

    @cached_property
    def steps(self) -> tuple[Compared, ...]:
        """The length of a step and its parts, if every run of both sides shows them."""
        if not all(run.steps for side in (self.a, self.b) for run in side.runs):
            return ()
        of_a, of_b = ([dict(run.steps) for run in side.runs] for side in (self.a, self.b))
        rows = [
            self._judged("step", name, [one.get(name, ()) for one in of_a], [one.get(name, ()) for one in of_b])
            for name in of_a[0]
        ]
        if why := "; ".join(said for sides, said in self.doubts_of_step if sides != "both") or self._unlike:
            rows = [row.unless(why) for row in rows]
        return tuple(row for row in rows if row.a_ns or row.b_ns)

    @property
    def step(self) -> Compared | None:
        """The length of a step; None if a run does not show it."""
        return next((row for row in self.steps if row.name == "step"), None)

    @property
    def doubts_of_step(self) -> Iterator[tuple[str, str]]:
        """Yield why a step may not take the time that the program needs: the sides (``A``, ``B`` or ``both``), and a
        sentence. A doubt of both sides changes no verdict; one of a single side may be the cause of the change, so
        nothing is decided. Steps that both sides find by repetition end at the same kernel: that is no doubt."""
        of_a, of_b = ({doubt for run in side.runs for doubt in run.step_doubts} for side in (self.a, self.b))
        for doubt, said in _STEP_DOUBTS.items():
            if doubt in of_a | of_b:
                sides = "both" if doubt in of_a & of_b else "A" if doubt in of_a else "B"
                if (doubt, sides) == ("repetition", "both"):
                    continue
                yield sides, f"{sides}: {said}"

    @cached_property
    def ranks(self) -> tuple[Compared, ...]:
        """The iteration of each rank of a job, largest change first: they show which ranks changed the mean."""
        of_a, of_b = (_by_rank(side.runs) for side in (self.a, self.b))
        rows = [
            self._judged("rank", name, of_a[name], of_b[name]).unless(self._unlike) for name in of_a if name in of_b
        ]
        if of_a and of_b:
            rows += [_alone("rank", name, of_a[name], in_a=True) for name in of_a if name not in of_b]
            rows += [_alone("rank", name, of_b[name], in_a=False) for name in of_b if name not in of_a]
        return tuple(sorted(rows, key=lambda row: -abs(row.more_ns)))

    def _judged(self, kind: _Whole, name: str, a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Compared:
        row = Compared(kind, name, *verdict(a, b), runs=(len(a), len(b)), share=1.0 if kind == "iteration" else 0.0)
        if row.a_ns and row.b_ns:
            return row
        return row._replace(word="~" if row.a_ns == row.b_ns else "only in B" if not row.a_ns else "only in A")

    def _row(self, pair: Pair, instead: Mapping[int, str]) -> Compared:
        part = pair.first.part
        longest = max(self.iteration.a_ns or 0, self.iteration.b_ns or 0)
        a, b = pair.a, pair.b
        share = max(one.mean_ns for one in (a, b) if one is not None) / longest if longest else 0.0
        runs = (0 if a is None else len(a.samples), 0 if b is None else len(b.samples))
        if a is None or b is None:
            row = _alone(part.kind, part.name, pair.first.samples, in_a=b is None)
            return row._replace(
                cause=instead.get(id(part), ""), runs=runs, share=share, command=part.command, pair=pair
            )
        said = verdict(a.samples, b.samples, is_part=True)
        row = Compared(part.kind, part.name, *said, cause(pair), pair.how, runs, share, part.command, pair)
        return row._replace(word="other size", runs_needed=0) if pair.how == "batch" else row

    @cached_property
    def differs(self) -> tuple[str, ...]:
        """Yield the differences of the sides apart from times: device, versions, variables, kinds of files. Say also
        whether the files are equal."""
        said = []
        here, there = (
            dict((*((n, v) for n, v in (("device", one.device), ("MIOpen", one.miopen)) if v), *one.environment))
            for one in (self.a.facts, self.b.facts)
        )
        for name, of_a in here.items():
            if there.get(name, of_a) != of_a:  # a value that one side does not state is no difference
                said.append(f"{name} {of_a} -> {there[name]}")
        formats = [{one for run in side.runs for one, _ in run.facts.inputs} for side in (self.a, self.b)]
        only = [", ".join(sorted(one - other)) for one, other in (formats, formats[::-1])]
        if all(only):
            said.append(f"files {only[0]} -> {only[1]}")
        same = set.intersection(*({one for run in side.runs for one in run.facts.inputs} for side in (self.a, self.b)))
        if same:
            said.append(f"{len(same)} input file{'s are' if len(same) > 1 else ' is'} the same on both sides")
        return tuple(said)

    @property
    def table(self) -> Table:
        """A table with one row per part; the iteration comes last."""
        from mio2trace.comparing.text import table

        return table(self)

    def failures(self, total: float | None, problem: float | None, step: float | None = None) -> tuple[Failure, ...]:
        """Return the exceeded limits. ``total``: for the kernel time of the iteration. ``problem``: for each part of at
        least `LEAST_SHARE` of the iteration. ``step``: for the length of a step. 0.05 means 5 %.

        With fewer than `FEWEST` runs per side, a failure of the total or of the step is an alarm that is not
        ``decided``, and parts cannot be judged: then ``problem`` raises ValueError. So does ``step`` if a run does not
        show its steps.
        """
        fewest = min(len(self.a.runs), len(self.b.runs))
        found = [*self._too_long(self.iteration, self.a.samples, self.b.samples, total)]
        if step is not None:
            if self.step is None:
                raise ValueError("step: a run does not show the length of its steps")
            of_a, of_b = ([dict(run.steps)["step"] for run in side.runs] for side in (self.a, self.b))
            found += self._too_long(self.step, of_a, of_b, step)
        if problem is not None:
            if self._unlike:
                raise ValueError(f"problem: {self._unlike}")
            if fewest < FEWEST:
                raise ValueError(f"problem: {count(fewest, 'run')} per side cannot decide on problems; {FEWEST} can")
            found += [
                Failure(row.name, row.ratio, problem)
                for row in self.rows
                if row.word == "slower"
                and row.ratio is not None
                and row.ratio > 1 + problem
                and row.share >= LEAST_SHARE
            ]
        return tuple(found)

    def _too_long(
        self, row: Compared, a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], limit: float | None
    ) -> Iterator[Failure]:
        if limit is None or row.ratio is None or row.ratio <= 1 + limit:
            return
        is_few = min(map(len, (a, b))) < FEWEST
        if is_few or separated(a, b):
            few = f"fewer than {FEWEST} runs per side cannot decide" if is_few else ""
            yield Failure(row.name, row.ratio, limit, "; ".join(filter(None, (few, row.undecided))))


def _alone(kind: Kind | _Whole, name: str, samples: Sequence[Sequence[float]], *, in_a: bool) -> Compared:
    """Return the row of something that only one side has. ``samples``: of its runs."""
    ns = median([*map(median, samples)])
    if in_a:
        return Compared(kind, name, ns, None, word="only in A")
    return Compared(kind, name, None, ns, word="only in B")


def _instead(pairs: Sequence[Pair]) -> dict[int, str]:
    """Return, for problems that only one side has, the problem that the other side computes in the same layer (by the
    identity of the part)."""
    alone = [pair for pair in pairs if (pair.a is None) != (pair.b is None) and pair.first.part.kind == "problem"]
    by_layer: dict[tuple[bool, str], list[Part]] = {}
    for pair in alone:
        for layer in pair.first.part.layers:
            by_layer.setdefault((pair.a is None, layer), []).append(pair.first.part)
    said = {}
    for pair in alone:
        part = pair.first.part
        for layer in part.layers:
            others = [other for other in by_layer.get((pair.a is not None, layer), ()) if _kind(other) == _kind(part)]
            if len(others) == 1:
                said[id(part)] = f"{layer}: there {others[0].name}"
                break
    return said


def _by_rank(runs: Sequence[RunRecord]) -> dict[str, list[Sequence[float]]]:
    found: dict[str, list[Sequence[float]]] = {}
    for rank in (rank for run in runs for rank in run.ranks):
        found.setdefault(rank.name, []).append(rank.samples_ns)
    return found


def _kind(part: Part) -> str:
    """Return primitive and direction: the words of a problem's name before its shapes."""
    return " ".join(takewhile(lambda word: not word[0].isdigit(), part.name.split()))


# ----------------------------------------------------------------------------------------------------------------------
# The causes of a difference in a few words. Kernels are compared only inside a matched part.

_LONGEST_NAME = 40


def cause(pair: Pair) -> str:
    """Return statements on what changed, with ``; `` between them; empty if only the time changed."""
    if pair.a is None or pair.b is None:
        return ""
    return "; ".join(_differences(pair, pair.a.part, pair.b.part))


def _differences(pair: Pair, a: Part, b: Part) -> Iterator[str]:
    if pair.how == "batch":
        yield f"another batch: {b.name}"
    elif pair.how == "place" or (pair.how == "structure" and a.name != b.name):
        yield f"renamed: {b.name}"
    elif a.like != b.like and a.like and b.like and a.kind == "layer":
        yield "another shape"
    if _has_other_solvers(a, b):
        yield f"solver {_words(a.solvers)} -> {_words(b.solvers)}"
    if a.kernels and b.kernels:
        yield from _kernels(a, b, bool(a.kind == "problem"))
    if a.calls and b.calls and round(a.calls, 3) != round(b.calls, 3):
        yield f"{a.calls:g} -> {b.calls:g} calls"


def _kernels(a: Part, b: Part, named: bool) -> Iterator[str]:
    naive_a, naive_b = (any(one.naive for one in part.kernels) for part in (a, b))
    if naive_a != naive_b:
        yield "naive now" if naive_b else "naive no more"
    roles_a, roles_b = _roles(a), _roles(b)
    for role in dict.fromkeys((*roles_a, *roles_b)):
        more = round(roles_b[role] - roles_a[role], 3)
        if role != "main" and role and more:
            yield f"{more:+g} {role}{'s' if abs(more) != 1 else ''}"
    main_a, main_b = _main(a), _main(b)
    if named and main_a and main_b and main_a != main_b and not _has_other_solvers(a, b):
        names = sorted({*main_a, *main_b})
        shown = dict(
            zip(names, distinct(names, [short_kernel(name) or name for name in names], _LONGEST_NAME), strict=True)
        )
        yield f"kernels {' -> '.join(_words(tuple(shown[name] for name in main)) for main in (main_a, main_b))}"


def _has_other_solvers(a: Part, b: Part) -> bool:
    """Return whether both sides state solvers, and others. A log without solvers shows no change of them."""
    return bool(a.solvers and b.solvers) and a.solvers != b.solvers


def _roles(part: Part) -> Counter[str]:
    """Return the number of kernels of each role, per call."""
    roles: Counter[str] = Counter()
    for one in part.kernels:
        roles[one.role] += one.count / (part.calls or 1)  # type: ignore[assignment]
    return roles


def _main(part: Part) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in part.kernels if one.role in ("main", "")))


def _words(names: tuple[str, ...]) -> str:
    short = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..." for name in names[:3]]
    return ", ".join(short) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
