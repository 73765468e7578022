"""Compare two sides part by part: verdicts, causes, parts that only one side has, and the limits of a gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from mio2trace.comparing.match import How, Pair, matched
from mio2trace.comparing.record import Facts, Kind, Part, RunRecord, cut
from mio2trace.comparing.statistics import FEWEST, LEAST_SHARE, Word, separated, verdict
from mio2trace.measures.statistics import median
from mio2trace.notes import InputError
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.reports.tables import Table


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one kind: the same program on the same machine with the same versions."""

    name: str
    runs: tuple[RunRecord, ...]

    @property
    def facts(self) -> Facts:
        return self.runs[0].facts

    @property
    def samples(self) -> tuple[tuple[float, ...], ...]:
        return tuple(run.samples_ns for run in self.runs)


_Whole = Literal["iteration", "step", "once", "rank"]


class Compared(NamedTuple):
    """A part of an iteration on both sides, times in ns; None on a side that lacks it.

    ``share``: its part of the longer iteration. ``other_size``: it computes something else and is not judged. ``pair``:
    the two matched parts; None for a row that is not a part.
    """

    kind: Kind | _Whole
    name: str
    a_ns: float | None
    b_ns: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    word: Word | Literal["only in A", "only in B", "other size"] = "~"
    cause: str = ""
    how: How = ""
    runs: tuple[int, int] = (0, 0)
    share: float = 0.0
    command: str = ""
    runs_needed: int = 0
    pair: Pair | None = None

    @property
    def more_ns(self) -> float:
        """Time of the second side minus time of the first."""
        return (self.b_ns or 0) - (self.a_ns or 0)


class Failure(NamedTuple):
    """An exceeded limit: the part, its ratio, the limit, and whether there are enough runs to decide."""

    name: str
    ratio: float
    limit: float
    decided: bool


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
    def iteration(self) -> Compared:
        return self._judged("iteration", "iteration", self.a.samples, self.b.samples)

    @cached_property
    def rows(self) -> tuple[Compared, ...]:
        """Every part of both sides once, by kind, largest change first."""
        pairs = list(matched(self.a.runs, self.b.runs))
        instead = _instead(pairs)
        rows = self._with_others([self._row(pair, instead) for pair in pairs])
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
        kept = [row for row in rows if row not in small]
        others_a = of_a + sum(row.a_ns or 0 for row in small if row.kind != "layer")
        others_b = of_b + sum(row.b_ns or 0 for row in small if row.kind != "layer")
        ratio = others_b / others_a if others_a and others_b else None
        return [*kept, Compared("kernel", "(smaller parts together)", others_a, others_b, ratio)]

    @staticmethod
    def _least(side: Side, kind: str) -> float:
        return max((min((p.mean_ns for p in run.parts if p.kind == kind), default=0) for run in side.runs), default=0)

    @cached_property
    def once(self) -> tuple[Compared, ...]:
        """Costs that occur once, if a side has them: a cold first iteration, searches, program builds."""
        rows = []
        fields = {"first iteration": "first_ns", "searches": "find_ns", "building programs": "build_ns"}
        for name, field in fields.items():
            of_a, of_b = ([getattr(run, field) or 0 for run in side.runs] for side in (self.a, self.b))
            # A run with one iteration has no separate first iteration.
            if (any(of_a) or any(of_b)) and (name != "first iteration" or (all(of_a) and all(of_b))):
                rows.append(self._judged("once", name, [(one,) for one in of_a], [(one,) for one in of_b]))
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
        return tuple(row for row in rows if row.a_ns or row.b_ns)

    @cached_property
    def ranks(self) -> tuple[Compared, ...]:
        """The iteration of each rank of a job, largest change first: they show which ranks changed the mean."""
        of_a, of_b = (_by_rank(side.runs) for side in (self.a, self.b))
        rows = [self._judged("rank", name, of_a[name], of_b[name]) for name in of_a if name in of_b]
        if of_a and of_b:
            rows += [_alone("rank", name, of_a[name], in_a=True) for name in of_a if name not in of_b]
            rows += [_alone("rank", name, of_b[name], in_a=False) for name in of_b if name not in of_a]
        return tuple(sorted(rows, key=lambda row: -abs(row.more_ns)))

    def _judged(self, kind: _Whole, name: str, a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Compared:
        said = verdict(a, b)
        word: Word | Literal["only in A", "only in B"] = said.word
        if not said.a_ns or not said.b_ns:
            word = "~" if said.a_ns == said.b_ns else "only in B" if not said.a_ns else "only in A"
        return Compared(
            kind, name, said.a_ns, said.b_ns, said.ratio, said.low, said.high, word,
            runs=(len(a), len(b)), share=1.0 if kind == "iteration" else 0.0, runs_needed=said.runs_needed,
        )  # fmt: skip

    def _row(self, pair: Pair, instead: Mapping[int, str]) -> Compared:
        part = pair.first.part
        longest = max(self.iteration.a_ns or 0, self.iteration.b_ns or 0)
        a, b = pair.a, pair.b
        share = max(one.mean_ns for one in (a, b) if one is not None) / longest if longest else 0.0
        runs = (0 if a is None else len(a.samples), 0 if b is None else len(b.samples))
        if a is None or b is None:
            return _alone(part.kind, part.name, pair.first.samples, in_a=b is None)._replace(
                cause=instead.get(id(part), ""), runs=runs, share=share, command=part.command, pair=pair
            )
        said = verdict(a.samples, b.samples)
        return Compared(
            part.kind, part.name, said.a_ns, said.b_ns, said.ratio, said.low, said.high,
            "other size" if pair.how == "batch" else said.word, cause(pair), pair.how, runs, share, part.command,
            0 if pair.how == "batch" else said.runs_needed, pair,
        )  # fmt: skip

    @cached_property
    def differs(self) -> tuple[str, ...]:
        """Yield the differences of the sides apart from times: device, versions, variables; also whether the files are
        equal."""
        said = []
        here, there = (
            dict((*((n, v) for n, v in (("device", one.device), ("MIOpen", one.miopen)) if v), *one.environment))
            for one in (self.a.facts, self.b.facts)
        )
        for name, of_a in here.items():
            if there.get(name, of_a) != of_a:  # a value that one side does not state is no difference
                said.append(f"{name} {of_a} -> {there[name]}")
        same = set.intersection(*({one for run in side.runs for one in run.facts.inputs} for side in (self.a, self.b)))
        if same:
            said.append(f"{len(same)} input file{'s are' if len(same) > 1 else ' is'} the same on both sides")
        return tuple(said)

    @property
    def table(self) -> Table:
        """A table with one row per part; the iteration comes last."""
        from mio2trace.comparing.text import table

        return table(self)

    def failures(self, total: float | None, problem: float | None) -> tuple[Failure, ...]:
        """Return the exceeded limits. ``total``: for the iteration. ``problem``: for each part of at least
        `LEAST_SHARE` of the iteration. 0.05 means 5 %.

        With fewer than `FEWEST` runs per side, a failure of the total is an alarm that is not ``decided``, and parts
        cannot be judged: then ``problem`` raises ValueError.
        """
        fewest = min(len(self.a.runs), len(self.b.runs))
        found = []
        whole = self.iteration
        if total is not None and whole.ratio is not None and whole.ratio > 1 + total:
            decided = fewest >= FEWEST
            if not decided or separated(self.a.samples, self.b.samples):
                found.append(Failure(whole.name, whole.ratio, total, decided))
        if problem is not None:
            if fewest < FEWEST:
                raise ValueError(f"{count(fewest, 'run')} per side cannot decide on problems; {FEWEST} can")
            found += [
                Failure(row.name, row.ratio, problem, decided=True)
                for row in self.rows
                if row.word == "slower"
                and row.ratio is not None
                and row.ratio > 1 + problem
                and row.share >= LEAST_SHARE
            ]
        return tuple(found)


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
    if a.solvers != b.solvers and (a.solvers or b.solvers):
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
    if named and main_a and main_b and main_a != main_b and a.solvers == b.solvers:
        yield f"kernels {_words(main_a)} -> {_words(main_b)}"


def _roles(part: Part) -> Counter[str]:
    """Return the number of kernels of each role, per call."""
    roles: Counter[str] = Counter()
    for one in part.kernels:
        roles[one.role] += one.count / (part.calls or 1)  # type: ignore[assignment]
    return roles


def _main(part: Part) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in part.kernels if one.role in ("main", "")))


def _words(names: tuple[str, ...]) -> str:
    if not names:
        return "none"
    short = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..." for name in names[:3]]
    return ", ".join(short) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
