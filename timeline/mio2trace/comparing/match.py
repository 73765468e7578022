"""Match the parts of two runs by what they compute, not by their names.

Problems are matched by their name, which describes the computation; then by all of it except the batch. Layers are
matched by the longest common subsequence of primitive, direction and output; equal names are preferred. Kernels outside
of operations are matched by name. The others are then matched by place: a kernel between the same neighbours with as
many calls was renamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from mio2trace.comparing.record import KINDS, Kind, Part, RunRecord

How = Literal["name", "structure", "batch", "place", ""]
_SAME_LIKE, _SAME_NAME = 2, 3
_MUCH_LONGER = 3
"""Times of a renamed kernel differ by less than this factor."""
_SAME_NET = 0.5
"""The places of kernels are compared only if kernels with equal names have at least this part of the time."""
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
    samples: dict[tuple[Kind, str], list[tuple[float, ...]]] = {}
    first: dict[tuple[Kind, str], Part] = {}
    for run in runs:
        for part in run.parts:
            samples.setdefault((part.kind, part.name), []).append(part.samples_ns)
            first.setdefault((part.kind, part.name), part)
    by_kind: dict[Kind, list[SidePart]] = {kind: [] for kind in KINDS}
    for key, part in first.items():
        by_kind[part.kind].append(SidePart(part, tuple(samples[key])))
    for found in by_kind.values():
        found.sort(key=lambda one: one.part.place)
    return by_kind


def matched(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> Iterator[Pair]:
    of_a, of_b = parts(a), parts(b)
    yield from _problems(of_a["problem"], of_b["problem"])
    yield from _kernels(of_a["kernel"], of_b["kernel"])
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


def _kernels(a: Sequence[SidePart], b: Sequence[SidePart]) -> Iterator[Pair]:
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
