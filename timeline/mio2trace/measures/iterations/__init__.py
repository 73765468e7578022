"""Which iterations of a run count: those in which it is warm and whole.

Iterations are what the log or the profile names; without these, what the kernels repeat
(`mio2trace.align.layers.repetitions`); else the whole run is one. What is set up or warmed up, and what a search
launches, is in none. Then, in this order:

* an end that is only a part (the last iteration is the beginning of the one before, the first the end of the one
  after; or layers are missing, `ends`) is *cut*: the profile ends in it. Where none is whole that
  with most kernels counts, as the *part* that it is;
* the first of several that are left is *cold* where it launches searches, `MORE_KERNELS` times the kernels of the later
  ones' median, or takes more than `LONGER` times their median, in its kernels or on the host, where programs are built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.align.links import Phase
from mio2trace.measures.iterations.ends import FIRST_LOST, LAST_LOST, not_whole
from mio2trace.measures.statistics import median

MORE_KERNELS = 1.1
LONGER = 1.5
_NEVER = 1 << 64
"""Later than any time."""

Source = Literal["named", "repetition", "whole"]


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration, searches left out: its kernels, their time, when the host was in it, and when the device."""

    number: int
    kernels: int = 0
    kernel_ns: int = 0
    host_ns: int | None = None
    span_ns: int | None = None
    searches: int = 0
    """Kernels of searches that ran in it."""


class Iterations(msgspec.Struct, frozen=True, kw_only=True):
    """``all``: in order. ``steady``: numbers of those that count; ``cold``, ``cut``: of those that do not.

    ``place_of``: of each activity the place in ``all`` of the iteration that it is part of, `NONE` where it is in none
    or of a search. ``told_by``: ``named`` by a log or profile, a ``repetition`` of kernels, or the ``whole`` run.
    ``rule``: a sentence that says which count. ``is_warm_up``: only the warm-up ran, and stands for an iteration.
    ``part``: why the one that counts is not whole, where none is; else empty.
    """

    all: tuple[Iteration, ...]
    steady: tuple[int, ...]
    cold: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    place_of: Sequence[int]
    told_by: Source
    rule: str
    is_warm_up: bool = False
    part: str = ""


def iterations_of(alignment: Alignment) -> Iterations:
    """Of a profile that is joined with its log."""
    searches = frozenset(one.index for one in alignment.links.operations if one.phase == "find")
    number_of, told_by, phase = _numbered(alignment, searches)
    numbers = sorted({number for number in number_of if number != NONE})
    place = {number: at for at, number in enumerate(numbers)} | {NONE: NONE}
    place_of = [place[number] for number in number_of]
    searched: Counter[int] = Counter()
    if searches:
        for position, index in enumerate(alignment.links.operation_of):
            if index in searches and place_of[position] != NONE:
                searched[place_of[position]] += alignment.profile.activities[position].kind == "kernel"
                place_of[position] = NONE
    found = [
        msgspec.structs.replace(iteration, searches=searched[at])
        for at, iteration in enumerate(_measured(alignment, place_of, numbers))
    ]
    # One in which only searches ran is none.
    steady = [at for at, iteration in enumerate(found) if iteration.kernels or len(found) == 1]
    named = told_by == "named" and phase == "iteration"
    ends = not_whole(alignment, place_of, {at: numbers[at] for at in steady}) if named else {}
    cut = sorted({*ends, *(_cut(alignment, place_of, found, steady) if told_by == "named" else ())})
    part = ""
    if cut and len(cut) == len(steady):
        fullest = max(ends, key=lambda at: (found[at].kernels, -at))
        cut.remove(fullest)
        part = ends[fullest]
    steady = [at for at in steady if at not in cut]
    cold = _cold(found, steady) if told_by != "whole" else ""
    counted = steady[1:] if cold else steady
    is_warm_up = phase == "warm-up" and bool(counted)
    return Iterations(
        all=tuple(found),
        steady=tuple(found[at].number for at in counted),
        cold=(found[steady[0]].number,) if cold else (),
        cut=tuple(found[at].number for at in cut),
        place_of=place_of,
        told_by=told_by,
        rule="the warm-up, the only pass, may be cold"
        if is_warm_up
        else _rule(found, counted, cut, cold, told_by, ends),
        is_warm_up=is_warm_up,
        part=part,
    )


def _numbered(alignment: Alignment, searches: AbstractSet[int]) -> tuple[list[int], Source, Phase | None]:
    """Of each activity the number of its iteration, and what tells it; the phase of the passes that are iterations.

    Without any the warm-up is one, else all but set-up.
    """
    links = alignment.links
    kernels = Counter(
        number
        for number, activity in zip(links.pass_of, alignment.profile.activities, strict=True)
        if activity.kind == "kernel"
    )
    phases: tuple[Phase, ...] = ("iteration", "warm-up")
    for phase in phases:
        numbers = [NONE if one.phase != phase or one.number is None else one.number for one in links.passes]
        if any(kernels[at] for at, number in enumerate(numbers) if number != NONE):
            numbers.append(NONE)  # of what is in no pass
            repeated = any(one.repeated for one in links.passes)
            return [numbers[number] for number in links.pass_of], "repetition" if repeated else "named", phase
    set_up = {at for at, one in enumerate(links.passes) if one.phase == "setup"}
    inside = zip(links.pass_of, links.operation_of, strict=True)
    return [NONE if number in set_up or index in searches else 1 for number, index in inside], "whole", None


def _measured(alignment: Alignment, place_of: Sequence[int], numbers: Sequence[int]) -> Iterator[Iteration]:
    count = len(numbers)
    kernels, kernel_ns = [0] * count, [0] * count
    begun, ended = [_NEVER] * count, [-_NEVER] * count
    called, returned = [_NEVER] * count, [-_NEVER] * count
    for place, activity in zip(place_of, alignment.profile.activities, strict=True):
        if place == NONE:
            continue
        start, end = activity.start_ns, activity.end_ns
        if activity.kind == "kernel":
            kernels[place] += 1
            if start is not None and end is not None:
                kernel_ns[place] += end - start
        if start is not None and end is not None:
            if start < begun[place]:
                begun[place] = start
            if end > ended[place]:
                ended[place] = end
        call = activity.call
        if call is not None:
            start, end = call.start_ns, call.end_ns
            if start is not None and end is not None:
                if start < called[place]:
                    called[place] = start
                if end > returned[place]:
                    returned[place] = end
    for at, number in enumerate(numbers):
        yield Iteration(
            number=number,
            kernels=kernels[at],
            kernel_ns=kernel_ns[at],
            host_ns=None if called[at] == _NEVER else returned[at] - called[at],
            span_ns=None if begun[at] == _NEVER else ended[at] - begun[at],
        )


def hull(span: tuple[int, int] | None, start: int, end: int) -> tuple[int, int]:
    """A span that holds another one, too."""
    if span is None:
        return start, end
    if start < span[0] or end > span[1]:
        return min(span[0], start), max(span[1], end)
    return span


def _cut(alignment: Alignment, place_of: Sequence[int], found: Sequence[Iteration], steady: Sequence[int]) -> list[int]:
    """Places of the first and the last where the profile holds only the end, or the beginning, of them."""
    if len(steady) < 2:
        return []
    ends: dict[int, list[str]] = {at: [] for at in (*steady[:2], *steady[-2:])}
    for place, activity in zip(place_of, alignment.profile.activities, strict=True):
        if place in ends and activity.kind == "kernel":
            ends[place].append(activity.name)
    cut = []
    last, before = ends[steady[-1]], ends[steady[-2]]
    if len(last) < len(before) and before[: len(last)] == last:
        cut.append(steady[-1])
    first, after = ends[steady[0]], ends[steady[1]]
    if steady[1] not in cut and len(first) < len(after) and after[-len(first) :] == first:
        cut.insert(0, steady[0])
    return cut


def _cold(found: Sequence[Iteration], steady: Sequence[int]) -> str:
    """Why the first of several is cold; empty where it is not."""
    if len(steady) < 2:
        return ""
    first, later = found[steady[0]], [found[at] for at in steady[1:]]
    if first.searches:
        return "searches ran in it"
    if first.kernel_ns > LONGER * median([one.kernel_ns for one in later]):
        return f"its kernels took over {LONGER:g} times as long as later"
    hosts = [one.host_ns for one in later if one.host_ns is not None]
    if first.host_ns is not None and len(hosts) == len(later) and first.host_ns > LONGER * median(hosts):
        return f"the host was in it over {LONGER:g} times as long as later"
    if first.kernels > MORE_KERNELS * median([one.kernels for one in later]):
        return "it launched kernels that later ones do not"
    return ""


def _rule(
    found: Sequence[Iteration],
    counted: Sequence[int],
    cut: Sequence[int],
    cold: str,
    told_by: Source,
    why: Mapping[int, str],
) -> str:
    if told_by == "whole":
        return "the whole run as one iteration: nothing names iterations, and its kernels do not repeat"
    if not counted:
        return "no iteration has kernels"
    noun = "repetition" if told_by == "repetition" else "iteration"
    part = next((f"not whole: {why[at]}" for at in counted if at in why), "")
    if len(found) == 1:
        return f"{noun} {found[0].number}, the only one, {f'is {part}' if part else 'may be cold'}"
    numbers = _ranges([found[at].number for at in counted])
    whole = f"of {len(found)} recorded" if len(counted) < len(found) else f"all {len(found)} recorded"
    parts = [f"{noun}{'s' if len(counted) > 1 else ''} {numbers}, {whole}"]
    if cold:
        first = next(at for at, one in enumerate(found) if one.kernels and at not in cut)
        parts.append(f"{found[first].number} is cold: {cold}")
    parts += [f"{found[counted[0]].number} is {part}"] if part else []
    for at in cut:
        end = "begin" if at < counted[0] else "end"
        lost = why.get(at) in (FIRST_LOST, LAST_LOST)
        what = f"not whole: {why[at]}" if lost else f"cut off by the profile's {end}"
        parts.append(f"{found[at].number} is {what}")
    parts += [f"{one.number} has searches alone" for one in found if not one.kernels]
    if len(counted) + len(cut) + bool(cold) == len(found) == len(counted):
        parts.append("the first is as warm as the others")
    return "; ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    """``2-10``, ``1, 3-5``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
