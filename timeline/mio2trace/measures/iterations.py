"""The iterations (steps) of a run that count: those that are warm, complete and of one kind. Also the length of such a
step.

Iterations are marked by the profile or named by the log. Without these, they are the repetitions of kernels
(`mio2trace.align.layers.repetitions`); otherwise the whole run is one iteration. Set-up, warm-up, searches, and
commands launched before the recording or between two steps are in no iteration. Then these rules apply, in this order:

* *kinds*: the mark of a serving engine (``decode bs=32``), else iterations whose kernels agree in `SAME_KIND`. The kind
  with most kernel time gives the numbers; others are listed beside it;
* *cut*: the recording begins or ends in it. The last iteration is cut if it has only the first kernels of the one
  before; the first one if it has only the last kernels of the one after. An iteration that lacks kernels in the middle
  is of another kind. For a single iteration, the net in the log may show that the profile ends in it (`not_whole`). If
  all are cut, the one with most kernels counts, as a *part*;
* *cold*: one of the first remaining iterations, if it launches searches, builds or loads programs that most later ones
  do not, launches `MORE_KERNELS` times as many kernels as the median of the later ones, or takes more than `LONGER`
  times their median (its kernels, or the step; the host if the lengths of steps are unknown). If two differ by as much,
  the shorter one counts;
* *endless*: the last of iterations that only repeat, if the lengths of others are known. Nothing shows where it ends.
  Nor is the last step of an unmarked training, or the last execution of an XLA program, as long as the others, which
  last until the next one begins. Its length makes no other one cold. Of steps that only optimizers show it is the first
  one: nothing shows where it begins.

A single complete iteration may be cold, and the rule says so, unless a warm-up phase ran its kernels before, or its
mark (``ProfilerStep#6``) shows that steps ran before it. So may the first of two repetitions.

`StepTime` has the length of a steady step and how the device spends it, computed once: trace metadata, tables, report,
JSON, dataset and comparison read it. It describes one device: the one whose steps are longest, because it bounds the
others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.net import LayerKey, types_of
from mio2trace.align.links import Phase
from mio2trace.align.ranges import MarkedStep, begun_ns
from mio2trace.measures.device_time import DeviceTime, Launches, Window, device_times, has_common_clock
from mio2trace.measures.gaps import PREPARING
from mio2trace.measures.searches import doubt_of_iterations
from mio2trace.measures.statistics import mean, median
from mio2trace.model.profile import XLA
from mio2trace.model.tables import NEVER, NO, Activities, Codes, least, most, present, summed
from mio2trace.ops.ranges import is_training
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.measures import Measures


MORE_KERNELS = 1.1
LONGER = 1.5
SAME_KIND = 0.9
"""The least share of kernels that two iterations of one kind have in common."""
MOST_KINDS = 32
"""The most kinds; later iterations of other kinds belong to the last one."""
_STEP = "ProfilerStep#"
WARM = 2
"""Steps before the first recorded one, from which on that is warm."""

Source = Literal["named", "repetition", "whole"]


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration without searches: its kernels, their time, its time on the host.

    ``step_ns``: its length on the slowest device, None if its end is unknown. ``kind``: an index into
    `Iterations.kinds`.
    """

    number: int
    kernels: int = 0
    kernel_ns: int = 0
    host_ns: int | None = None
    step_ns: int | None = None
    searches: int = 0
    """Kernels of searches that ran in it."""
    builds: int = 0
    """Calls in it that built or loaded programs."""
    kind: int = 0


class Iterations(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of a profile, and which of them count. ``all``: in order. ``steady``: numbers of the iterations
    that count. ``cold``, ``cut``, ``longer``, ``endless``: iterations of the same kind that do not count. ``kinds``:
    the names of kinds; ``kind``: that of the steady ones.

    ``place_of``: for each activity, the place in ``all`` of its iteration; `NONE` for an activity of no iteration or of
    a search. ``told_by``: ``named`` by a log or profile, a ``repetition`` of kernels, or the ``whole`` run. ``rule``: a
    sentence about which iterations count. ``is_warm_up``: only the warm-up ran, and is used as an iteration. ``part``:
    if no iteration is complete, why the counted one is not; else empty. ``may_be_cold``: only one is complete, or
    has a known length. ``doubt``: why they may be no iterations; else empty.
    ``devices``: the time of each device in these iterations; ``slowest``: the place of the device whose steps are
    shown.
    """

    all: tuple[Iteration, ...]
    steady: tuple[int, ...]
    cold: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    longer: tuple[int, ...] = ()
    endless: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ("",)
    kind: int = 0
    place_of: Codes
    told_by: Source
    rule: str
    is_warm_up: bool = False
    part: str = ""
    may_be_cold: bool = False
    doubt: str = ""
    devices: tuple[DeviceTime, ...] = ()
    slowest: int = 0

    @property
    def device(self) -> DeviceTime | None:
        """The device whose steps are longest; None if nothing ran."""
        return self.devices[self.slowest] if self.devices else None

    @property
    def incomplete(self) -> frozenset[int]:
        """The numbers of iterations of which only a part is recorded, or whose end is not known."""
        return frozenset((*self.cut, *self.endless))

    @property
    def places(self) -> tuple[int, ...]:
        """The places in ``all`` of the iterations that count."""
        counted = frozenset(self.steady)
        return tuple(at for at, one in enumerate(self.all) if one.number in counted)


def iterations_of(
    alignment: Alignment, launches: Launches | None = None, is_undecided: NDArray[np.bool_] | None = None
) -> Iterations:
    """Return the iterations of a profile that is joined with its log.

    ``is_undecided``: of each activity whether it may be a search's (`undecided`)."""
    if launches is None:
        launches = Launches(alignment.profile, has_common_clock=has_common_clock(alignment))
    searches = frozenset(one.index for one in alignment.links.operations if one.phase == "find")
    number_of, told_by, phase = _numbered(alignment, searches)
    commands = alignment.profile.commands
    there = present(number_of[number_of != NONE])
    numbers: list[int] = there.tolist()
    place_of = np.where(number_of == NONE, NONE, np.searchsorted(there, number_of)).astype(np.int32)
    searched: Mapping[int, int] = Counter()
    if searches:
        searching = np.isin(alignment.links.operation_of, [*searches]) & (place_of != NONE)
        searched = Counter(place_of[searching & commands.is_kernel].tolist())
        place_of[searching] = NONE
    windows = np.full_like(place_of, NONE) if told_by == "whole" else place_of
    # a training loop without marks also loads its data before the first op of a step
    contiguous = not alignment.steps and not alignment.logs and is_training(alignment.profile.ranges)
    devices = device_times(
        alignment, windows, len(numbers), launches, repeated=told_by == "repetition", contiguous=contiguous
    )
    slowest = _slowest(devices)
    step_ns = {one.place: one.step_ns for one in devices[slowest].windows} if devices else {}
    builds = _builds(alignment, place_of, len(numbers)) if told_by != "whole" else {}
    found = [
        msgspec.structs.replace(one, searches=searched[at], step_ns=step_ns.get(at), builds=builds.get(at, 0))
        for at, one in enumerate(_measured(alignment, place_of, numbers))
    ]
    # An iteration with only searches does not count.
    steady = [at for at, iteration in enumerate(found) if iteration.kernels or len(found) == 1]
    named = told_by == "named"
    names = _names(commands, place_of, len(found)) if named else []
    said = any(step.kind for step in alignment.steps)
    has_kinds = named and (said or len(steady) > 1)
    kinds, kind_of = _kinds(alignment, names, place_of) if has_kinds else (("",), [0] * len(found))
    alike = Counter(kind_of[at] for at in steady)
    # A step that the profiler marked began and ended while it recorded.
    by_log = named and phase == "iteration" and not alignment.steps
    ends: dict[int, str] = {}
    if by_log and 1 in alike.values():
        ends = not_whole(alignment, place_of, {at: numbers[at] for at in steady})
        ends = {at: why for at, why in ends.items() if alike[kind_of[at]] == 1}
    of_two = not said and len(kinds) == 2
    if of_two and _only_first_has_more([names[at] for at in steady], [kind_of[at] for at in steady]):
        kinds, kind_of = ("",), [0] * len(found)
    found = [msgspec.structs.replace(one, kind=kind) for one, kind in zip(found, kind_of, strict=True)]
    cut = sorted({*ends, *(_cut(names, steady) if named else ())})
    part = ""
    if cut and len(cut) == len(steady):
        fullest = max(cut, key=lambda at: (found[at].kernels, -at))
        cut.remove(fullest)
        part = ends.get(fullest, "")
    whole = [at for at in steady if at not in cut]
    kind = _fullest_kind(found, whole)
    of_kind = [at for at in whole if found[at].kind == kind]
    unmarked = len(found) - 1 if contiguous or _are_executions(alignment) else NONE
    # An unmarked step lasts until the next one begins. The last one ends with its last command, so it looks short.
    judged = [msgspec.structs.replace(one, step_ns=None) if at == unmarked else one for at, one in enumerate(found)]
    cold, longer = _cold(judged, of_kind) if told_by != "whole" else ({}, [])
    counted = [at for at in of_kind if at not in cold and at not in longer]
    is_warm_up = phase == "warm-up" and bool(counted)
    # The end of the last repetition is unknown: it is in no mean, so that all of them are over the same iterations.
    repeated = told_by == "repetition"
    beginless = 0 if alignment.steps and not alignment.steps[0].is_marked else NONE
    endless = [at for at in counted if at in (unmarked, beginless) or (repeated and found[at].step_ns is None)]
    if alignment.profile.calls_wait or len(endless) == len(counted):
        endless = []
    counted = [at for at in counted if at not in endless]
    is_one = len(of_kind) - (len(endless) if repeated or of_kind == [0, unmarked] else 0) == 1
    # The last one may lack what the others do for the step behind them, such as its copies. It is no other kind then.
    if unmarked in whole and unmarked not in of_kind and Counter(names[unmarked]) <= Counter(names[unmarked - 1]):
        endless.append(unmarked)
    told = Iterations(
        all=tuple(found),
        steady=tuple(found[at].number for at in counted),
        cold=tuple(found[at].number for at in cold),
        cut=tuple(found[at].number for at in cut),
        longer=tuple(found[at].number for at in longer),
        endless=tuple(found[at].number for at in endless),
        kinds=kinds,
        kind=kind,
        place_of=place_of,
        told_by=told_by,
        rule="",
        is_warm_up=is_warm_up,
        part=part,
        may_be_cold=told_by != "whole"
        and is_one
        and not _is_warmed_up(alignment, place_of, of_kind[0], numbers[of_kind[0]]),
        doubt=doubt_of_iterations(alignment, place_of, len(found), is_undecided)
        if told_by == "repetition" and is_undecided is not None
        else "",
        devices=devices,
        slowest=slowest,
    )
    rule = "the warm-up, the only pass, may be cold" if is_warm_up else _rule(told, counted, cut, cold, ends)
    if counted == [unmarked] and len(found) > 1:
        rule += f"; the end of {found[unmarked].number} is not known"
    return msgspec.structs.replace(told, rule=rule)


def _are_executions(alignment: Alignment) -> bool:
    """Return whether the steps are executions of an XLA program: each but the last ends where the next begins."""
    are_several = alignment.profile.framework.name == XLA and len(alignment.steps) > 1
    return are_several and all(one.end_ns == other.start_ns for one, other in pairwise(alignment.steps))


def _is_warmed_up(alignment: Alignment, place_of: Codes, place: int, number: int) -> bool:
    """Return whether a warm-up phase launched the kernels of the iteration at ``place`` before, or PyTorch counted
    `WARM` unrecorded steps before it. The steps of a serving engine have their own numbers."""
    texts = {one.text for one in alignment.profile.ranges if one.text.startswith(_STEP)}
    counted = {int(text[len(_STEP) :]) for text in texts if text[len(_STEP) :].isdecimal()}
    if counted and (number if number in counted else min(counted)) >= WARM:
        return True
    is_warm = np.array([*(one.phase == "warm-up" for one in alignment.links.passes), False])
    if not is_warm.any():
        return False
    commands = alignment.profile.commands
    names, is_own = commands.name, commands.is_kernel & (place_of == place)
    is_before = commands.is_kernel & ~is_own & is_warm[np.asarray(alignment.links.pass_of)]
    own, warm = (np.bincount(names.codes[rows], minlength=len(names.values)) for rows in (is_own, is_before))
    return bool(np.minimum(own, warm).sum() >= SAME_KIND * own.sum() > 0)


def _slowest(devices: Sequence[DeviceTime]) -> int:
    """Return the place of the device with the longest steps; if no length is known, with the most kernel time."""
    if not devices:
        return 0
    lengths = [(sum(w.step_ns or 0 for w in one.windows), sum(w.kernel_ns for w in one.windows)) for one in devices]
    return max(range(len(devices)), key=lambda at: (*lengths[at], devices[at].recording.compute_ns, -at))


def _numbered(alignment: Alignment, searches: AbstractSet[int]) -> tuple[Codes, Source, Phase | None]:
    """Return the number of the iteration of each activity, its source, and the phase of the passes that are iterations.

    Without iterations the warm-up is one, otherwise everything except set-up.
    """
    links, passes = alignment.links, alignment.links.passes
    pass_of = np.asarray(links.pass_of)
    is_launching = np.zeros(len(passes) + 1, bool)
    is_launching[pass_of[alignment.profile.commands.is_kernel]] = True
    phases: tuple[Phase, ...] = ("iteration", "warm-up")
    for phase in phases:
        numbers = [NONE if one.phase != phase or one.number is None else one.number for one in passes]
        numbers.append(NONE)  # of what is in no pass
        if any(number != NONE and is_launching[at] for at, number in enumerate(numbers)):
            repeated = any(one.repeated for one in passes)
            return np.array(numbers, np.int64)[pass_of], "repetition" if repeated else "named", phase
    is_set_up = np.array([*(one.phase in ("before", "setup") for one in passes), False])
    is_left_out = is_set_up[pass_of] | np.isin(links.operation_of, [*searches])
    return np.where(is_left_out, NONE, 1), "whole", None


def _measured(alignment: Alignment, place_of: Codes, numbers: Sequence[int]) -> Iterator[Iteration]:
    commands, count = alignment.profile.commands, len(numbers)
    rows = np.flatnonzero((place_of != NONE) & commands.is_kernel)
    kernels = np.bincount(place_of[rows], minlength=count).tolist()
    kernel_ns = summed(place_of[rows], commands.time_ns[rows], count).tolist()
    called, returned = commands.host_start_ns, commands.host_end_ns
    rows = np.flatnonzero((place_of != NONE) & (called != NO) & (returned != NO))
    begun = least(place_of[rows], called[rows], count).tolist()
    until = most(place_of[rows], returned[rows], count).tolist()
    for at, number in enumerate(numbers):
        yield Iteration(
            number=number,
            kernels=kernels[at],
            kernel_ns=kernel_ns[at],
            host_ns=None if until[at] == NO else until[at] - begun[at],
        )


def _builds(alignment: Alignment, place_of: Codes, count: int) -> Counter[int]:
    """Count calls that build or load programs, by the place of the iteration among whose launches they are."""
    calls, commands = alignment.profile.lone_calls, alignment.profile.commands
    is_building = calls.name.where(lambda name: PREPARING.get(name, "").endswith("kernels"))
    building = calls.start_ns[is_building & (calls.start_ns != NO)].tolist()
    if not building:
        return Counter()
    rows = np.flatnonzero((place_of != NONE) & (commands.host_start_ns != NO))
    begins = least(place_of[rows], commands.host_start_ns[rows], count).tolist()
    until = most(place_of[rows], commands.host_start_ns[rows], count).tolist()
    ordered = sorted((place for place in range(count) if begins[place] < NEVER), key=begins.__getitem__)
    starts = [begins[place] for place in ordered]
    found: Counter[int] = Counter()
    for start in building:
        at = bisect_right(starts, start) - 1
        if at >= 0 and start < until[ordered[at]]:
            found[ordered[at]] += 1
    return found


def _names(commands: Activities, place_of: Codes, count: int) -> list[list[int]]:
    """The names of each iteration's kernels, as they were launched, by their numbers."""
    rows = np.flatnonzero((place_of != NONE) & commands.is_kernel)
    places = place_of[rows]
    ordered = commands.name.codes[rows[np.argsort(places, kind="stable")]].tolist()
    ends = np.cumsum(np.bincount(places, minlength=count)).tolist()
    return [ordered[first:end] for first, end in pairwise([0, *ends])]


def _kinds(alignment: Alignment, names: Sequence[Sequence[int]], place_of: Codes) -> tuple[tuple[str, ...], list[int]]:
    if any(step.kind for step in alignment.steps):
        of_place = [""] * len(names)
        begun = begun_ns(alignment.profile)
        rows = np.flatnonzero((place_of != NONE) & (begun != NO))
        for place, start in zip(place_of[rows].tolist(), begun[rows].tolist(), strict=True):
            if not of_place[place]:
                step = alignment.step_at(start)
                of_place[place] = step.kind if step is not None else ""
        named = {kind: number for number, kind in enumerate(dict.fromkeys(of_place))}
        return tuple(named), [named[kind] for kind in of_place]
    kinds: list[Counter[int]] = []
    known: dict[tuple[int, ...], int] = {}
    found: list[int] = []
    for sequence in names:
        key = tuple(sequence)
        kind = known.get(key)
        if kind is None:
            held = Counter(sequence)
            kind = next((at for at, other in enumerate(kinds) if _agrees(held, other)), len(kinds))
            if kind == MOST_KINDS:
                kind -= 1
            elif kind == len(kinds):
                kinds.append(held)
            known[key] = kind
        found.append(kind)
    if len(kinds) <= 1:
        return ("",), [0] * len(names)
    return tuple(f"about {count(held.total(), 'kernel')}" for held in kinds), found


def _agrees(one: Counter[int], other: Counter[int]) -> bool:
    return (one & other).total() >= SAME_KIND * max(one.total(), other.total())


def _only_first_has_more(names: Sequence[Sequence[int]], kind_of: Sequence[int]) -> bool:
    """Return whether only the first iteration differs and contains the kernels of the next: it also has set-up work."""
    if kind_of[0] in kind_of[1:] or len(set(kind_of[1:])) != 1:
        return False
    first, later = Counter(names[0]), Counter(names[1])
    return first.total() > later.total() and (first & later).total() >= SAME_KIND * later.total()


def _fullest_kind(found: Sequence[Iteration], whole: Sequence[int]) -> int:
    """Return the kind with most kernel time. A kind of several iterations comes before a kind of one."""
    time: Counter[int] = Counter()
    for at in whole:
        time[found[at].kind] += found[at].kernel_ns
    return max(time, key=lambda kind: (time[kind], -kind), default=0)


def _cut(names: Sequence[Sequence[int]], steady: Sequence[int]) -> list[int]:
    """Return the places of the first and the last iteration if the recording holds only their end, or their
    beginning."""
    if len(steady) < 2:
        return []
    cut = []
    last, before = names[steady[-1]], names[steady[-2]]
    if len(last) < len(before) and Counter(before[: len(last)]) == Counter(last):
        cut.append(steady[-1])
    first, after = names[steady[0]], names[steady[1]]
    if steady[1] not in cut and len(first) < len(after) and Counter(after[-len(first) :]) == Counter(first):
        cut.insert(0, steady[0])
    return cut


def _cold(found: Sequence[Iteration], whole: Sequence[int]) -> tuple[dict[int, str], list[int]]:
    """Return why the first iterations are cold, and which of two is too long."""
    cold: dict[int, str] = {}
    left = list(whole)
    while len(left) > 1 and (why := _why_cold(found[left[0]], [found[at] for at in left[1:]])):
        cold[left.pop(0)] = why
    if len(left) == 2 and not cold and _why_cold(found[left[1]], [found[left[0]]], time_alone=True):
        return cold, left[1:]
    return cold, []


def _why_cold(first: Iteration, later: Sequence[Iteration], *, time_alone: bool = False) -> str:
    """Return why an iteration is cold compared with later ones; empty if it is not."""
    if not time_alone and first.searches and 2 * sum(bool(one.searches) for one in later) < len(later):
        return "searches ran in it"
    lengths = [one.step_ns for one in later if one.step_ns is not None]
    compared = [(first.kernel_ns, [one.kernel_ns for one in later], "its kernels took")]
    if first.step_ns is not None and lengths and len(lengths) >= len(later) - 1:
        # With all of the host's work but what it did while the device still had earlier work, which delayed nothing.
        compared.append((first.step_ns, lengths, "it took"))
    elif first.host_ns is not None:
        on_host = [one.host_ns for one in later if one.host_ns is not None]
        compared.append((first.host_ns, on_host, "the host was in it"))
    for own, others, what in compared:
        if others and len(others) >= len(later) - 1 and own > LONGER * median(others):
            return f"{what} over {LONGER:g} times as long as later"
    if time_alone:
        return ""
    if first.kernels > MORE_KERNELS * median([one.kernels for one in later]):
        return "it launched kernels that later ones do not"
    if first.builds and not median([one.builds for one in later]):
        return "programs were built or loaded in it"
    return ""


def _rule(
    told: Iterations, counted: Sequence[int], cut: Sequence[int], cold: Mapping[int, str], why: Mapping[int, str]
) -> str:
    found = told.all
    if told.told_by == "whole":
        return "the whole run as one iteration: no iterations are named, and its kernels do not repeat"
    if not counted:
        return "no iteration has kernels"
    noun = "repetition" if told.told_by == "repetition" else "iteration"
    part = next((f"not whole: {why[at]}" for at in counted if at in why), "")
    if len(found) == 1:
        cold_or = "may be cold" if told.may_be_cold or told.told_by == "repetition" else "ran after others"
        return f"{noun} {found[0].number}, the only one, {f'is {part}' if part else cold_or}"
    numbers = _ranges([found[at].number for at in counted])
    whole = f"of {len(found)} recorded" if len(counted) < len(found) else f"all {len(found)} recorded"
    parts = [f"{noun}{'s' if len(counted) > 1 else ''} {numbers}, {whole}"]
    parts += [f"{found[at].number} is cold: {reason}" for at, reason in list(cold.items())[:3]]
    parts += [f"{len(cold) - 3} more are cold"] if len(cold) > 3 else []
    parts += [f"{found[counted[0]].number} is {part}"] if part else []
    for at in cut:
        off = f"cut off by the profile's {'begin' if at < counted[0] else 'end'}"
        parts.append(f"{found[at].number} is {f'not whole: {why[at]}' if at in why else off}")
    parts += [f"{number} took over {LONGER:g} times as long as the other" for number in told.longer]
    for number in told.endless:
        parts.append(f"the {'begin' if number < found[counted[0]].number else 'end'} of {number} is not known")
    others = Counter(
        one.kind for one in found if one.kernels and one.kind != told.kind and one.number not in told.incomplete
    )
    parts += [f"{count} of another kind ({told.kinds[kind]})" for kind, count in others.most_common(3)]
    parts += [f"{one.number} has searches alone" for one in found if not one.kernels and one.searches]
    if told.doubt:
        parts.append(f"not sure: {told.doubt}")
    if told.may_be_cold and not part:
        only = f"only the length of {numbers} is known" if told.endless else f"{numbers} is the only whole one"
        parts.append(f"{only} and may be cold")
    elif len(counted) + len(told.endless) == len(found):
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


# ----------------------------------------------------------------------------------------------------------------------
# Whether the profile begins or ends within an iteration, as the log's net tells: of one that nothing is like
#
# An iteration is less where layers at its begin or end have no kernel, though layers of their type launch kernels
# elsewhere, or though calls of the log before its first kernel, or behind its last, launched nothing; and where the
# timer marks stop within one of its layers. It was cut by the profile, or by the log, which then tells of no more.

BEGINS, ENDS = "the profile begins in it", "the profile ends in it"


def not_whole(alignment: Alignment, place_of: Codes, numbers: Mapping[int, int]) -> dict[int, str]:
    """Return why the first or the last iteration is incomplete, by its place, if that can be seen.

    ``numbers``: of iterations by their places (``place_of``: of each activity), in order.
    """
    if not numbers or not any(log.layers or log.net for log in alignment.logs):
        return {}
    links = alignment.links
    order = [(layer.index, direction) for layer, direction in alignment.net.execution_order()]
    kinds = {layer.index: types_of(layer.layer, layer.type) or layer.layer for layer in alignment.net.layers}

    def kind(key: LayerKey) -> Hashable:
        return kinds.get(key[0], key[0]), key[1]

    number_of = [(pass_.phase, pass_.number) for pass_ in links.passes]
    ran: dict[tuple[str, int | None], set[LayerKey]] = defaultdict(set)
    stopped = set()
    launched = {*np.asarray(links.run_of)[alignment.profile.commands.is_kernel].tolist()}
    for at, made in enumerate(links.runs):
        if at in launched:
            ran[number_of[made.pass_]].add((made.layer_index, made.direction))
        if made.host_start_ns is not None and made.host_end_ns is None:
            stopped.add(number_of[made.pass_])
    launching = {kind(key) for key in set[LayerKey]().union(*ran.values())}
    (first, *_), (*_, last) = numbers, numbers
    why: dict[int, str] = {}
    for place, at_end in ((first, False), (last, True)):
        number = "iteration", numbers[place]
        places = [at for at, key in enumerate(order) if key in ran.get(number, ())]
        if not places or (not at_end and any(phase == "warm-up" for phase, _ in ran)):
            continue
        missing = order[places[-1] + 1 :] if at_end else order[: places[0]]
        kernels = np.flatnonzero(alignment.profile.commands.is_kernel)
        if not len(kernels) or place != int(place_of[kernels[-1 if at_end else 0]]):
            continue  # its kernels are present; only their links are unknown
        if (
            any(kind(key) in launching for key in missing)
            or (missing and _is_silent(alignment, at_end))
            or (at_end and number in stopped)
        ):
            why.setdefault(place, ENDS if at_end else BEGINS)
    return why


def _is_silent(alignment: Alignment, at_end: bool) -> bool:
    """Return whether the log's calls after (or before) all calls with kernels launched nothing."""
    links = alignment.links
    operation_of = np.asarray(links.operation_of)
    linked = operation_of[operation_of != NONE]
    if not len(linked):
        return False
    edge = int(linked.max() if at_end else linked.min())
    return any((one.index > edge if at_end else one.index < edge) for one in links.operations if one.phase == "run")


PARTS = ("compute", "communication", "copy", "unrecorded", "idle")
"""The parts of a step: computation, exposed communication, exposed copies and fills, work that was not recorded, idle
time."""
_SHOWN = {"communication": "exposed communication", "copy": "exposed copies", "unrecorded": "not recorded"}


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of the steady steps of the slowest device, in ns; `PARTS` add up to ``step_ns``.

    ``device``: its number by the profiler. ``steps_ns``: the length of each of these steps, ``windows``: the steps.
    """

    device: int
    step_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    unrecorded_ns: int
    idle_ns: int
    steps_ns: tuple[int, ...]
    windows: tuple[Window, ...]

    @property
    def length_ns(self) -> int:
        """The length of the step, by the name that it has in `Busy`."""
        return self.step_ns

    @property
    def parts(self) -> dict[str, int]:
        """By name in `PARTS`, in ns."""
        return {name: getattr(self, f"{name}_ns") for name in PARTS}

    def percent(self, part: str) -> float:
        """A part in percent of the step."""
        return 100 * self.parts[part] / self.step_ns if self.step_ns else 0.0

    def samples(self) -> dict[str, tuple[int, ...]]:
        """Return the step and each of its parts, by the name for people, for each steady step in order."""
        busy = [window.busy for window in self.windows if window.busy is not None]
        return {"step": tuple(one.length_ns for one in busy)} | {
            _SHOWN.get(name, name): tuple(getattr(one, f"{name}_ns") for one in busy) for name in PARTS
        }

    def record(self) -> dict[str, Any]:
        """Return the record in the trace's metadata and the JSON report."""
        return {
            "device": self.device,
            "steps": len(self.steps_ns),
            "step_ns": self.step_ns,
            "step_min_ns": min(self.steps_ns),
            "step_max_ns": max(self.steps_ns),
            **{f"{name}_ns": ns for name, ns in self.parts.items()},
            **{f"{name}_percent_of_step": round(self.percent(name), 3) for name in PARTS},
        }


def step_time(device: int, windows: Sequence[Window]) -> StepTime | None:
    """Return the mean of ``windows``, steady steps of one device with known ends; None without windows."""
    busy = [window.busy for window in windows if window.busy is not None]
    if not any(one.length_ns for one in busy):
        return None
    parts = {f"{name}_ns": round(sum(getattr(one, f"{name}_ns") for one in busy) / len(busy)) for name in PARTS}
    return StepTime(
        device=device,
        step_ns=sum(parts.values()),
        **parts,
        steps_ns=tuple(one.length_ns for one in busy),
        windows=tuple(windows),
    )


# ----------------------------------------------------------------------------------------------------------------------
# The steps of a serving engine by kind: phase, batch and tokens, and their length (torch-graphs.md 5).


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one phase and of one batch, or of all batches up to ``most_batch``: their number and their means.
    ``tokens``: of all of them; None if not recorded.

    ``step_ns``: from one to the next on the slowest device, None if no end is known. ``counts``: whether the means of
    layers, operations and kernels are over steps of this kind.
    """

    phase: str
    batch: int | None
    steps: int
    tokens: int | None
    step_ns: float | None
    kernel_ns: float
    kernels: float
    counts: bool
    most_batch: int | None = None

    @property
    def name(self) -> str:
        """``decode, batch 32``, ``decode, batch 29 to 32``"""
        if self.batch is None:
            return self.phase
        until = f" to {self.most_batch}" if self.most_batch not in (None, self.batch) else ""
        return f"{self.phase}, batch {self.batch}{until}"


def step_kinds(measures: Measures, *, of_batches: bool = True) -> list[StepKind]:
    """Return kinds by phase and batch, or by phase alone, most kernel time first; empty if no engine marks its
    steps."""
    told = measures.steady.told
    marked = marked_of(measures)
    kinds: dict[tuple[str, int | None], list[tuple[Iteration, MarkedStep]]] = defaultdict(list)
    for iteration in told.all:
        step = marked.get(iteration.number)
        if step is not None and step.phase and iteration.kernels:
            kinds[step.phase, step.batch if of_batches else None].append((iteration, step))
    counted = frozenset(told.steady)
    found = []
    for (phase, _), members in kinds.items():
        batches = [step.batch for _, step in members if step.batch is not None]
        lengths = [one.step_ns for one, _ in members if one.step_ns is not None]
        tokens = [step.tokens for _, step in members if step.tokens is not None]
        found.append(
            StepKind(
                phase=phase, batch=min(batches, default=None), most_batch=max(batches, default=None),
                steps=len(members),
                tokens=sum(tokens) if len(tokens) == len(members) else None,
                step_ns=mean(lengths) if lengths else None,
                kernel_ns=mean([one.kernel_ns for one, _ in members]) or 0.0,
                kernels=mean([one.kernels for one, _ in members]) or 0.0,
                counts=any(one.number in counted for one, _ in members),
            )
        )  # fmt: skip
    return sorted(found, key=lambda kind: (-kind.kernel_ns * kind.steps, kind.phase, kind.batch or 0))


def idle_between(measures: Measures) -> float | None:
    """Return the idle time between two steps of a serving engine on the slowest device, as a part of the time from its
    first step to the end of its last one.

    None if no engine marks its steps, or if fewer than two have known ends.
    """
    device = measures.steady.told.device
    ends = [] if device is None else [(one.begin_ns, one.end_ns) for one in device.windows if one.end_ns is not None]
    if device is None or len(ends) < 2 or not any(step.phase for step in marked_of(measures).values()):
        return None
    idle = sum(device.occupation.busy(end, begin).idle_ns for (_, end), (begin, _) in pairwise(ends))
    return idle / max(1, ends[-1][1] - ends[0][0])


def marked_of(measures: Measures) -> dict[int, MarkedStep]:
    """Return the marked step of each iteration, by its number."""
    if measures.steady.told.told_by != "named":
        return {}
    return {step.number: step for step in measures.alignment.steps}
