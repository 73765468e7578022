"""A profile's own ranges: which are open at a launch, and which mark steps."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.links import NONE
from mio2trace.model.profile import Profile, Range
from mio2trace.model.tables import (
    NEVER,
    NO,
    Activities,
    Codes,
    Numbers,
    by_code,
    by_key,
    least,
    present,
    sorted_pool,
)
from mio2trace.ops.ranges import OPTIMIZER_STEP, WITH_PARAMETERS, is_library_call, is_module, kind_of
from mio2trace.patterns import late

if TYPE_CHECKING:
    from mio2trace.align.attribution import Attribution

ROUNDED_NS = 1000
"""A range of a trace in whole microseconds may end this much after the range around it."""


class Execution(msgspec.Struct, frozen=True):
    """A layer that ran, in host time. ``within``: the block around the layer. ``again``: the backward pass ran it
    again."""

    name: str
    start_ns: int
    end_ns: int
    confidence: float = 1.0
    within: str = ""
    again: bool = False


class Sequenced:
    """The layers found in the order of ops. Keys are places of ranges in the profile. ``executions``: by first range.
    ``first_of``: that by range. ``nowhere``: ranges that ran again without layer."""

    def __init__(self) -> None:
        self.executions: dict[int, Execution] = {}
        self.first_of: dict[int, int] = {}
        self.nowhere: set[int] = set()

    def add(self, places: Sequence[int], execution: Execution) -> None:
        self.executions[places[0]] = execution
        self.first_of.update(dict.fromkeys(places, places[0]))


class OpenRanges:
    """The nesting of ranges, and the range of each launch (`NONE`: none).

    ``parent_of[r]``: the innermost range around r on its thread. ``range_of[i]``: the innermost open range when
    activity i was launched, as ``stated[i]`` by the source, else by time. ``outermost_first``: all ranges, parents
    first."""

    def __init__(self, profile: Profile) -> None:
        ranges, commands = profile.ranges, profile.commands
        starts, ends, threads = (
            np.fromiter(map(attrgetter(field), ranges), np.int64, len(ranges))
            for field in ("start_ns", "end_ns", "thread")
        )
        is_mark = np.array([made.kind == "mark" for made in ranges], bool)
        self.parent_of = [NONE] * len(ranges)
        self.stated: NDArray[np.bool_] = commands.range >= 0
        self.range_of: Codes = commands.range.copy()
        self.outermost_first: list[int] = []
        changes = {}
        for thread, places in by_key(np.arange(len(ranges)), threads):
            places = places[np.lexsort((-ends[places], starts[places]))]
            self.outermost_first += places.tolist()
            changes[thread] = self._nest(*(column[places].tolist() for column in (starts, ends, is_mark)))
        rows = np.flatnonzero(~self.stated & (commands.host_start_ns != NO))
        for thread, own in by_code(rows, commands.thread[rows]):
            if thread in changes:
                times, innermost = changes[thread]
                called = commands.host_start_ns[own]
                self.range_of[own] = np.asarray(innermost)[np.searchsorted(np.asarray(times), called, "right")]
        self.range_of[before_recording(commands)] = NONE

    def _nest(
        self, starts: Sequence[int], ends: Sequence[int], are_marks: Sequence[bool]
    ) -> tuple[array[int], array[int]]:
        """Set the parents of one thread's ranges, the last ones of `outermost_first`. Returns when the innermost open
        range changes, and this range: before the first change, then from each change on."""
        parent_of = self.parent_of
        is_open = [(-NEVER - 1, NEVER + 1, NONE)]
        """Each open range: the negated time until which it is around others, its end, its place; the last one to end
        first."""
        times, innermost = array("q"), array("q", [NONE])

        def close(until: int) -> None:
            while is_open[-1][1] <= until:
                times.append(max(times[-1], is_open.pop()[1]))
                innermost.append(is_open[-1][2])

        places = self.outermost_first[-len(starts) :]
        for place, begun, end, is_mark in zip(places, starts, ends, are_marks, strict=True):
            if is_open[-1][1] <= begun:
                close(begun)
            at = len(is_open)
            if -is_open[-1][0] < end - ROUNDED_NS:  # what ends before this range does is not around it
                at = bisect_right(is_open, ROUNDED_NS - end, key=itemgetter(0))
            outer, _, parent_of[place] = is_open[at - 1]
            if not is_mark:
                is_open.insert(at, (max(outer, -end), end, place))
            times.append(begun)
            innermost.append(is_open[-1][2])
        close(NEVER)
        return times, innermost

    def launching(self, profile: Profile) -> Iterator[list[int]]:
        """Yield for each range with launches (not of graphs) its place and those of the ranges around it."""
        launched = present(self.range_of[~profile.commands.is_replayed])
        for place in launched[launched != NONE].tolist():
            yield [place, *self.around(place)]

    def around(self, place: int) -> Iterator[int]:
        """Yield the ranges around one, the innermost first."""
        while (place := self.parent_of[place]) != NONE:
            yield place

    def nearest(self, wanted: Sequence[int] | Numbers) -> Numbers:
        """Return the value of ``wanted`` for each range, else of the nearest range around it; `NONE` at the end."""
        found, outer = np.array([*wanted, NONE], np.int64), np.array([*self.parent_of, NONE])
        while (outer != NONE).any():
            found, outer = np.where(found == NONE, found[outer], found), outer[outer]
        return found


# -- Steps that the profiler, a framework or the user marks with ranges, and the commands launched in each -------------
# Marks, strongest first: a serving engine's steps (``step[DECODE bs=32]``; `torch-graphs.md` 5), numbered steps
# (``ProfilerStep#7``), ranges of one text that do not overlap and have nine tenths of the launches. A text may count
# (``train_step_7``).


Span = tuple[int, int]
"""Begin and end, in ns."""
LEAST_LAUNCHES = 0.9
"""Share of the launches that ranges of one text need to be steps."""
_MOST = 0.5
"""The same for numbered steps whose numbers repeat: an epoch may end with a validation, but parts of a forward pass
have no backward pass."""
_LONGEST = 400
_NUMBERED = late(r"(ProfilerStep|iteration|iter|step|batch)[ _#:=-]{0,3}(\d{1,9})", re.ASCII | re.IGNORECASE)
_COUNTED = late(r"([a-z][a-z _-]{0,40}?(?:iteration|iter|step|batch))[ _#:=-]{0,3}(\d{1,9})", re.ASCII | re.IGNORECASE)
_ENGINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    # vLLM. In 2025 it counted new requests and those that had a step before.
    (
        "execute",
        late(r"execute_(?:\d+_)?context_(?P<c>\d{1,18})\([^)]*\)_generation_(?P<g>\d{1,18})\([^)]*\)", re.ASCII),
    ),
    ("execute", late(r"execute_new_(?P<c>\d{1,18})_cached_(?P<g>\d{1,18})", re.ASCII)),
    ("execute", late(r"execute_model")),
    # SGLang
    ("step", late(r"step\[(?P<phase>\w+)(?P<fields>(?: \w+=\S+)*)\]", re.ASCII)),
    # ATOM
    ("phase", late(r"(?P<phase>prefill|decode|mixed)\[(?P<fields>[^\n]*)\]", re.ASCII)),
    # TensorRT-LLM
    (
        "executor",
        late(
            r"\[Executor\] _forward_step(?: \d{1,18})?: (?P<c>\d{1,18}) ctx reqs, (?:\d{1,18} ctx tokens, )?"
            r"(?P<g>\d{1,18}) gen reqs",
            re.ASCII,
        ),
    ),
    # LMDeploy: only decoding replays graphs
    ("cudagraph", late(r"forward_(?P<phase>eager|cudagraph)")),
    # xDiT
    ("execute", late(r"execute_diffusion_(?P<diffusion>\w+)", re.ASCII)),
)
"""The marks of serving engines, each with its family. The groups: requests in their prefill (``c``) and in their
decoding (``g``), or a phase and its fields."""
_BEGINNINGS = "execute_", "step[", "prefill[", "decode[", "mixed[", "[Executor] ", "forward_"
"""A fast check before the expressions."""
_AROUND = late(r"scheduler\.run_batch")
"""The mark of a whole batch, with its sampling, around the steps of an engine (SGLang)."""
_CAPTURE = late(r"capture_\d+_\w+", re.ASCII)
_BATCH = late(r"\bbs=(\d+)", re.ASCII)
_TOKENS = late(r"\btok(?:en)?s?=(\d+)", re.ASCII)
_EXECUTED = late(r"execute_(\d+)_context_", re.ASCII)
_IN_BRACKETS = late(r"\(([^()]*)\)", re.ASCII)
_QUERIES = late(r"^sq(\d+)", re.ASCII)
_PHASES = {
    "extend": "prefill",
    "split_prefill": "prefill",
    "cudagraph": "decode",
    "target_verify": "verify",
    "draft_extend": "draft",
    "draft_extend_v2": "draft",
}
"""Other words of engines for a phase. All else is the word itself."""


class MarkedStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A marked step with host times in ns. ``kind``: ``decode bs=32``, may be empty. ``batch``: requests.
    ``is_marked``: false if only optimizers show the steps, so the begin of the first one is not known."""

    number: int
    start_ns: int
    end_ns: int
    kind: str = ""
    phase: str = ""
    batch: int | None = None
    tokens: int | None = None
    is_marked: bool = True


def is_step(made: Range) -> bool:
    """Return whether a range marks a step or its capture, and so is no layer."""
    text = made.text.strip()
    if made.kind not in ("range", "annotation") or len(text) > _LONGEST:
        return False
    return _of_engine(text) is not None or any(
        pattern.fullmatch(text) is not None for pattern in (_NUMBERED, _CAPTURE, _AROUND)
    )


@lru_cache(maxsize=1 << 12)
def _of_engine(text: str) -> tuple[str, re.Match[str]] | None:
    """Return the family of an engine's mark, and the mark; None for any other text."""
    if not text.startswith(_BEGINNINGS):
        return None
    for family, pattern in _ENGINES:
        found = pattern.fullmatch(text)
        if found is not None:
            return family, found
    return None


def marked_steps(profile: Profile) -> tuple[MarkedStep, ...]:
    """Return the steps that ranges mark, by time and without overlaps."""
    engine: dict[str, list[Range]] = defaultdict(list)
    numbered: dict[str, list[Range]] = defaultdict(list)
    others: dict[str, list[Range]] = defaultdict(list)
    for made in profile.ranges:
        if made.kind not in ("range", "annotation") or len(made.text) > _LONGEST or is_library_call(made):
            continue
        text = made.text.strip()
        if (found := _NUMBERED.fullmatch(text)) is not None:
            numbered[found[1].lower()].append(made)
        elif (mark := _of_engine(text)) is not None:
            engine[mark[0]].append(made)
        elif text and _CAPTURE.fullmatch(text) is None:
            counted = _COUNTED.fullmatch(text)
            others[text if counted is None else f"{counted[1]} #"].append(made)
    for families in (engine, numbered):
        if families:  # of families within each other the outermost takes most time
            longest = max(families.values(), key=lambda ranges: sum(made.end_ns - made.start_ns for made in ranges))
            apart = outer_ranges(longest)
            is_anew = families is numbered and not _grow(_counts(apart))
            if is_anew and have_few(launch_times(profile), _spans(apart), _MOST):
                continue  # parts of a forward pass are counted anew in each, as the batches of an epoch are
            steps = _numbered(apart, own=families is numbered)
            if families is numbered:
                return steps
            around = [made for text, ranges in others.items() if _AROUND.fullmatch(text) for made in ranges]
            return _with_what_follows(profile, _batches(steps, outer_ranges(around)))
    return _of_equal_text(profile, others) or _by_optimizers(profile)


def _batches(steps: Sequence[MarkedStep], around: Sequence[Range]) -> tuple[MarkedStep, ...]:
    """Return a step for all marks within one range of ``around``: a batch. The others stay.

    A batch of several marks drafts and verifies tokens: its phase and batch are those of the prefill, else of the
    first mark, and it decodes.
    """
    members: dict[int, list[MarkedStep]] = defaultdict(list)
    found = []
    starts = [made.start_ns for made in around]
    for step in steps:
        place = bisect_right(starts, step.start_ns) - 1
        if place >= 0 and step.end_ns <= around[place].end_ns:
            members[place].append(step)
        else:
            found.append(step)
    for place, own in members.items():
        chosen = next((one for one in own if one.phase in ("prefill", "mixed")), own[0])
        phase = "decode" if len(own) > 1 and chosen.phase not in ("prefill", "mixed") else chosen.phase
        found.append(
            msgspec.structs.replace(
                chosen, start_ns=around[place].start_ns, end_ns=around[place].end_ns, phase=phase,
                kind=_kind(phase, chosen.batch), tokens=chosen.tokens if len(own) == 1 else None,
            )
        )  # fmt: skip
    found.sort(key=attrgetter("start_ns"))
    return tuple(msgspec.structs.replace(one, number=number) for number, one in enumerate(found, 1))


_FEW = 0.5
"""The most commands that follow a mark and are of its step, in parts of those within the mark."""


def _with_what_follows(profile: Profile, steps: Sequence[MarkedStep]) -> tuple[MarkedStep, ...]:
    """Return steps that end with what their engine launches behind their marks: sampling, copies of results.

    That is less than what it launches within the mark (another forward pass is a step that has no mark), and no pause
    before it is longer than the mark. Behind the last mark it is as many commands as behind most others: the rest is
    of the program's end.
    """
    commands = profile.commands
    rows = np.flatnonzero((commands.host_start_ns != NO) & (commands.host_end_ns != NO))
    rows = rows[np.argsort(commands.host_start_ns[rows], kind="stable")]
    starts, ends = commands.host_start_ns[rows], commands.host_end_ns[rows]
    found: list[MarkedStep] = []
    counts: list[int] = []
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        first, behind = np.searchsorted(starts, (step.start_ns, step.end_ns)).tolist()
        until = len(starts) if following is None else int(np.searchsorted(starts, following.start_ns))
        pauses = starts[behind:until] - np.maximum.accumulate(np.append(step.end_ns, ends[behind:until]))[:-1]
        is_long = pauses > step.end_ns - step.start_ns
        held = int(np.argmax(is_long)) if is_long.any() else until - behind
        if held > _FEW * (behind - first):
            held = 0
        if following is None:
            held = min(held, sorted(counts)[len(counts) // 2]) if counts else 0
        counts.append(held)
        if held:
            end = max(step.end_ns, int(ends[behind : behind + held].max()))
            end = end if following is None else min(end, following.start_ns)
            found.append(msgspec.structs.replace(step, end_ns=end))
        else:
            found.append(step)
    return tuple(found)


def _kind(phase: str, batch: int | None) -> str:
    return f"{phase} bs={batch}" if batch is not None else phase


def outer_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Sort by time and drop ranges that begin within an earlier one (another thread's mark of the step)."""
    kept: list[Range] = []
    for made in sorted(ranges, key=lambda one: (one.start_ns, -one.end_ns)):
        if not kept or made.start_ns >= kept[-1].end_ns:
            kept.append(made)
    return kept


def _numbered(ranges: Sequence[Range], *, own: bool) -> tuple[MarkedStep, ...]:
    """Return steps with their own numbers if these increase, else counted from 1."""
    numbers = _counts(ranges) if own else []
    if not _grow(numbers):
        numbers = [*range(1, len(ranges) + 1)]
    steps = []
    for number, made in zip(numbers, ranges, strict=True):
        phase, batch, tokens = ("", None, None) if own else _engine_step(made.text)
        steps.append(
            MarkedStep(
                number=number, start_ns=made.start_ns, end_ns=made.end_ns, kind=_kind(phase, batch),
                phase=phase.partition(" ")[0], batch=batch, tokens=tokens,
            )
        )  # fmt: skip
    return tuple(steps)


def _engine_step(text: str) -> tuple[str, int | None, int | None]:
    """Return (phase, batch, tokens) of a serving engine's step; ``("", None, None)`` for other texts."""
    text = text.strip()
    mark = _of_engine(text)
    if mark is None:
        return "", None, None
    given = mark[1].groupdict()
    if "c" in given:
        context, generation = int(given["c"]), int(given["g"])
        phase = "mixed" if context and generation else "prefill" if context else "decode"
        return phase, context + generation, _tokens_of(text)
    if "diffusion" in given:
        return f"diffusion {given['diffusion']}", None, None
    if "phase" not in given:
        return "", None, None
    fields = given.get("fields") or ""
    batch, tokens = _BATCH.search(fields), _TOKENS.search(fields)
    word = given["phase"].lower()
    return _PHASES.get(word, word), _number(batch[1]) if batch else None, _number(tokens[1]) if tokens else None


def _tokens_of(text: str) -> int | None:
    """Return vLLM's tokens: stated, else the query tokens of both parts, else the two numbers in brackets."""
    stated = _EXECUTED.match(text)
    if stated is not None:
        return _number(stated[1])
    parts = _IN_BRACKETS.findall(text)
    queries = [_QUERIES.search(part) for part in parts]
    numbers = [query[1] if query is not None else part for query, part in zip(queries, parts, strict=True)]
    known = [_number(number) for number in numbers]
    return sum(number or 0 for number in known) if known and None not in known else None


_MOST_DIGITS = 12
"""So the sum over all steps of a run has at most 64 bits."""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _MOST_DIGITS else None


def _of_equal_text(profile: Profile, by_text: dict[str, list[Range]]) -> tuple[MarkedStep, ...]:
    """Return ranges of one text, but for its number, that have most launches; the most frequent text first."""
    several = [ranges for ranges in by_text.values() if len(ranges) > 1]
    launches = launch_times(profile) if several else ()
    best: list[Range] = []
    for ranges in several if len(launches) else ():
        if len(ranges) <= len(best):
            continue
        apart = outer_ranges(ranges)
        if _are_counted(apart) and not _grow(_counts(apart)):
            continue  # parts of a step are counted anew in each step
        if len(apart) == len(ranges) and not have_few(launches, _spans(apart)):
            best = apart
    return _numbered(best, own=_are_counted(best))


def _by_optimizers(profile: Profile) -> tuple[MarkedStep, ...]:
    """Return the steps of a training without recorded layers (compiled, graphs): each ends with its last optimizer."""
    ends, launches = optimizer_ends(profile), launch_times(profile)
    if not ends or not len(launches):
        return ()
    if any(kind_of(made.text) in WITH_PARAMETERS or is_module(made) for made in profile.ranges):
        return ()
    begins = [min(int(launches[0]), ends[0]), *ends[:-1]]
    steps = enumerate(zip(begins, ends, strict=True), 1)
    return tuple(
        MarkedStep(number=number, start_ns=start, end_ns=end, is_marked=False) for number, (start, end) in steps
    )


def optimizer_ends(profile: Profile) -> list[int]:
    """Return when the last optimizers of the steps ended, if there are several steps. Nothing is launched between two
    optimizers of one step."""
    by_text: dict[str, list[Range]] = defaultdict(list)
    for made in profile.ranges:
        if made.text.startswith(OPTIMIZER_STEP):
            by_text[made.text].append(made)
    calls = [outer_ranges(ranges) for ranges in by_text.values()]
    last = max(calls, key=lambda ranges: (len(ranges), ranges[0].start_ns), default=[])
    launches = launch_times(profile)
    ends = [made.end_ns for made in last]
    if ends and len(launches):
        ended, begun = np.searchsorted(launches, ends), np.searchsorted(launches, [made.start_ns for made in last])
        ends = [end for end, at, next_ in zip(ends, ended, [*begun[1:], None], strict=True) if at != next_]
    return ends if len(ends) > 1 else []


def launch_times(profile: Profile) -> Numbers:
    """Return when commands were launched, in order."""
    called = profile.commands.host_start_ns
    starts: Numbers = np.sort(called[called != NO])
    return starts


def have_few(launches: Sequence[int] | Numbers, spans: Sequence[Span], least: float = LEAST_LAUNCHES) -> bool:
    """Return whether spans that do not overlap have less than this part of the launches."""
    begins, ends = np.array(spans, np.int64).reshape(-1, 2).T
    held = int((np.searchsorted(launches, ends, "right") - np.searchsorted(launches, begins)).sum())
    return held < least * len(launches)


def _spans(ranges: Iterable[Range]) -> list[Span]:
    return [(made.start_ns, made.end_ns) for made in ranges]


def _are_counted(ranges: Iterable[Range]) -> bool:
    return len({made.text.strip() for made in ranges}) > 1


def _grow(numbers: Sequence[int]) -> bool:
    return bool(numbers) and all(one < other for one, other in pairwise(numbers))


def _counts(ranges: Iterable[Range]) -> list[int]:
    """Return the number of each range; empty if one has none."""
    texts = [made.text.strip() for made in ranges]
    found = [_NUMBERED.fullmatch(text) or _COUNTED.fullmatch(text) for text in texts]
    return [] if None in found else [int(one[2]) for one in found if one is not None]


def place_marked_steps(attribution: Attribution) -> None:
    """Set passes: ``before`` the recording, the launch's step, set-up before the first step, else ``between``.

    A command without a recorded launch is of the step of its op, if the profile states the op, but not the step
    itself."""
    links, steps = attribution.links, attribution.steps
    early = before_recording(attribution.profile.commands)
    if len(early):
        links.give_pass(early, links.pass_id("before"))
    if not steps:
        return
    begun = begun_ns(attribution.profile)
    rows = np.setdiff1d(np.flatnonzero(begun != NO), early)
    place, is_inside = places_among(steps, begun[rows])
    for member, positions in by_code(rows, 2 * place + ((place != NONE) & ~is_inside)):
        if member >= 0 and not member % 2:
            links.give_pass(positions, links.pass_id("iteration", steps[member // 2].number))
        else:
            links.give_pass(positions, links.pass_id("setup" if member < 0 else "between"))


def begun_ns(profile: Profile) -> Numbers:
    """Return when the host launched each command, else when its op began if the profile states the op, else `NO`."""
    commands = profile.commands
    begun = commands.host_start_ns
    stated = np.flatnonzero((begun == NO) & (commands.range >= 0))
    if len(stated) and not profile.framework.nodes:
        begun = begun.copy()
        begun[stated] = [profile.ranges[place].start_ns for place in commands.range[stated].tolist()]
    return begun


def places_among(steps: Sequence[MarkedStep], host_ns: Sequence[int] | Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return for each host time the last step that began before (`NONE`: none), and whether the time is in it."""
    place = np.searchsorted([step.start_ns for step in steps], host_ns, "right") - 1
    return place, (place != NONE) & (host_ns < np.array([step.end_ns for step in steps])[place])


def step_at(steps: Sequence[MarkedStep], host_ns: int) -> MarkedStep | None:
    """Return the step at a host time, if there is one."""
    place = bisect_right(steps, host_ns, key=lambda step: step.start_ns) - 1
    return steps[place] if place >= 0 and host_ns < steps[place].end_ns else None


def before_recording(commands: Activities) -> Numbers:
    """Return positions of commands that started before the first recorded launch of their stream."""
    called, starts = commands.host_start_ns, commands.start_ns
    if (called != NO).all():
        return np.zeros(0, np.int64)
    queues, queue_of = sorted_pool(commands.queue)
    is_known = (starts != NO) & (called != NO)
    first = least(queue_of[is_known], starts[is_known], len(queues))[queue_of]
    return np.flatnonzero((called == NO) & (starts != NO) & (starts < np.where(first == NEVER, NONE, first)))
