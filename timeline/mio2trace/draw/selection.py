"""The drawn part of a run: a time span, iterations, the longest kernels. Everything left out is counted.

Links and summary are always of the whole run; times keep the zero of the whole trace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import Alignment
from mio2trace.draw.base import TimeBase, on_axis
from mio2trace.measures import Measures
from mio2trace.model.tables import NO, Numbers, added, least, most, sorted_pool
from mio2trace.notes import Notes, OptionError
from mio2trace.patterns import late

_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_TIME = late(r"(\d{1,12})(?:\.(\d{1,9}))?\s*(ns|us|µs|ms|s|min)", re.ASCII)
_ITERATION = late(r"(?:iteration\s+(\d{1,9})|warm-up)(?:\s+(forward|backward))?", re.ASCII)
_ITERATIONS = late(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?", re.ASCII)
_WITH_DIRECTION = late(r"(.+?)(?<!\s)\s++(forward|backward)")
_EVER = 1 << 62
_LATEST = (1 << 63) - 1

Edge = Literal["from", "to"]


def parse_duration(text: str) -> int:
    """Return nanoseconds of ``10us``, ``1.5 ms``, ``2s``. Raises `OptionError`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise OptionError(
            f"{text!r} is no time; expected a number and one of {', '.join(_UNITS)}, such as 1.2s or 10us"
        )
    whole, fraction, unit = found.groups()
    digits = fraction or ""
    return int(int(whole + digits) * _UNITS[unit] // 10 ** len(digits))


def parse_iterations(text: str) -> tuple[tuple[int, int], ...]:
    """Return ranges of ``3``, ``2-4``, ``1,5-7``; both ends are included. Raises `OptionError`."""
    ranges = []
    for part in text.split(","):
        found = _ITERATIONS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise OptionError(f"--iterations {text}: expected numbers and ranges such as 3, 2-4 or 1,5-7")
        ranges.append((first, last))
    return tuple(ranges)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The selected part of the run, from the command's options; empty: all.

    ``begin`` and ``end``: times (``1.2s`` from the trace's zero), ``iteration 3`` (``warm-up``) or ``layer conv1``,
    followed by ``forward`` or ``backward`` if one of the two is meant.
    """

    begin: str = ""
    end: str = ""
    iterations: str = ""
    top: int | None = None
    min_duration: str = ""

    @property
    def everything(self) -> bool:
        return self == Selection()

    def options(self) -> str:
        """Return the options as they were given, for messages."""
        given = (("--from", self.begin), ("--to", self.end), ("--iterations", self.iterations),
                 ("--top", self.top), ("--min-duration", self.min_duration))  # fmt: skip
        return " ".join(f"{name} {value}" for name, value in given if value not in ("", None))


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """A selection applied to a profile; by the position of an activity, 1 or 0.

    ``inside``: in the time span and the iterations. ``drawn``: those of them that are long enough; only these are
    slices. ``begin`` and ``end``: the window on the axis. ``spans``: when its iterations begin, in
    order, and when they end, in order. ``runs``: the executions of layers around drawn activities; ``operations``:
    their operations. ``left_out_ns``: the time of the ``left_out`` kernels and copies.
    """

    begin: int
    end: int
    spans: tuple[Sequence[int], Sequence[int]]
    iterations: tuple[tuple[int, int], ...]
    longest_only: bool
    min_ns: int
    inside: NDArray[np.bool_]
    drawn: NDArray[np.bool_]
    runs: frozenset[int]
    operations: frozenset[int]
    left_out: int
    left_out_ns: int

    def has_iteration(self, iteration: int | None) -> bool:
        return _among(self.iterations, iteration)

    def clipped(self, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
        """Return the parts of spans of time in the window; a part that ends where it begins, or before, is none."""
        begin, end = (max(-_LATEST, min(at, _LATEST)) for at in (self.begin, self.end))
        return np.maximum(starts, begin), np.minimum(ends, end)

    def have_time(self, starts: Numbers, ends: Numbers) -> NDArray[np.bool_]:
        """Return whether each span of time touches the selection."""
        has = (ends >= self.begin) & (starts <= self.end)
        if self.iterations:
            since, until = (np.array(times, np.int64) for times in self.spans)
            has &= np.searchsorted(since, ends, "right") > np.searchsorted(until, starts)
        return has


def choose(selection: Selection, alignment: Alignment, base: TimeBase, origin: int, notes: Notes) -> Chosen:
    """Apply ``selection`` to a profile, and count in ``notes`` what it leaves out.

    Raises `OptionError` if it names something that is not in the run, or leaves nothing.
    """
    times = _times(alignment, base)
    iterations = parse_iterations(selection.iterations) if selection.iterations else ()
    min_ns = parse_duration(selection.min_duration) if selection.min_duration else 0
    passes = _Passes(alignment, times, iterations)
    begin, end = -_EVER, _EVER
    if selection.begin:
        begin = passes.moment(selection.begin, "from", origin, begin)
    if selection.end:
        end = passes.moment(selection.end, "to", origin, begin)
    if begin >= end:
        raise OptionError(f"{selection.options()}: ends before it begins")
    starts, ends, is_timed = times
    inside = is_timed & (starts < end) & ((ends > begin) | (starts >= begin)) & passes.chosen
    long_enough = drawn = inside & (ends - starts >= min_ns)
    if selection.top is not None:
        kernels = np.flatnonzero(long_enough & alignment.profile.commands.is_kernel)
        longest = np.argsort(starts[kernels] - ends[kernels], kind="stable")[: selection.top]
        drawn = np.zeros(len(starts), np.bool_)
        drawn[kernels[longest]] = True
    outside, short = int((is_timed & ~inside).sum()), int((inside & ~long_enough).sum())
    not_longest = int(long_enough.sum()) - int(drawn.sum())
    for kind, count in (
        ("kernel or copy outside --from, --to or --iterations: left out of the trace", outside),
        ("kernel or copy shorter than --min-duration: left out of the trace", short),
        ("kernel or copy not among the --top kernels: left out of the trace", not_longest),
    ):
        if count:
            notes.remark(kind, count=count)
    if not drawn.any() and is_timed.any():
        raise OptionError(f"{selection.options()}: leaves no kernel to draw")
    links = alignment.links
    left_out = is_timed & ~drawn
    return Chosen(
        begin=begin,
        end=end,
        spans=passes.spans(inside) if iterations else ((), ()),
        iterations=iterations,
        longest_only=selection.top is not None,
        min_ns=min_ns,
        inside=inside,
        drawn=drawn,
        runs=frozenset(np.asarray(links.run_of)[drawn].tolist()),
        operations=frozenset(np.asarray(links.operation_of)[drawn].tolist()),
        left_out=outside + short + not_longest,
        left_out_ns=added((ends - starts)[left_out]),
    )


_Times = tuple[Numbers, Numbers, NDArray[np.bool_]]
"""Start and end of each activity on the axis, and whether it has both."""


def _times(alignment: Alignment, base: TimeBase) -> _Times:
    return *on_axis(alignment.profile, base), alignment.profile.commands.has_times


def _reaches(times: _Times, codes: NDArray[Any], rows: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Return for each code of some activities with times from when to when these reach."""
    starts, ends, is_timed = times
    rows = rows & is_timed
    known, places = sorted_pool(codes[rows])
    first, last = least(places, starts[rows], len(known)), most(places, ends[rows], len(known))
    return dict(zip(known, zip(first.tolist(), last.tolist(), strict=True), strict=True))


def _among(ranges: Sequence[tuple[int, int]], number: int | None) -> bool:
    if not ranges:
        return True
    return number is not None and any(first <= number <= last for first, last in ranges)


class _Passes:
    """The passes and layers of a run on the axis."""

    def __init__(self, alignment: Alignment, times: _Times, iterations: tuple[tuple[int, int], ...]) -> None:
        self._links = links = alignment.links
        self._times = times
        self._pass_of = np.asarray(links.pass_of)
        kept = [_among(iterations, pass_.iteration) for pass_ in links.passes]
        if iterations and not any(kept):
            wanted = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in iterations)
            raise OptionError(f"--iterations {wanted}: no kernel is in them; {self._there_are()}")
        self.chosen: NDArray[np.bool_] = np.array([*kept, not iterations])[self._pass_of]
        """Whether each activity is in one of the iterations; all are if no iterations are chosen."""

    def _there_are(self) -> str:
        numbers = sorted({one.iteration for one in self._links.passes if one.iteration is not None})
        if not numbers:
            return "the run has no iterations"
        warm_up = " (0: the warm-up)" if any(one.phase == "warm-up" for one in self._links.passes) else ""
        first, last = numbers[0], numbers[-1]
        return f"the run has {f'iteration {first}' if first == last else f'iterations {first} to {last}'}{warm_up}"

    def spans(self, inside: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
        """Return when the first command of each chosen iteration begins, in order, and when its last one ends."""
        numbers = [NO if one.iteration is None else one.iteration for one in self._links.passes]
        reaches = _reaches(self._times, np.array([*numbers, NO])[self._pass_of], inside).values()
        return sorted(begin for begin, _ in reaches), sorted(end for _, end in reaches)

    def moment(self, text: str, edge: Edge, origin: int, after: int) -> int:
        """Return where ``text`` begins on the axis; for the edge ``to``, where it ends: the first such end after
        ``after``."""
        text = text.strip()
        if _TIME.fullmatch(text):
            return origin + parse_duration(text)
        found = _ITERATION.fullmatch(text)
        if found is not None:
            number, direction = int(found[1] or 0), found[2]
            wanted = [one.iteration == number and direction in (None, one.direction) for one in self._links.passes]
            rows = np.array([*wanted, False])[self._pass_of]
            spans = [*_reaches(self._times, np.broadcast_to(0, len(rows)), rows).values()]
        elif text.startswith("layer "):
            spans = self._of_layer(text.removeprefix("layer").strip())
        else:
            raise OptionError(f"--{edge} {text}: expected a time such as 1.2s, 'iteration 3' or 'layer conv1'")
        ends = [end for start, end in spans if end > after]
        if not spans or (edge == "to" and not ends):
            behind = " behind --from" if spans else ""
            what = "there is no such layer with kernels" if text.startswith("layer ") else self._there_are()
            raise OptionError(f"--{edge} {text}: nothing of it{behind}; {what}")
        return min(start for start, _ in spans) if edge == "from" else min(ends)

    def _of_layer(self, name: str) -> list[tuple[int, int]]:
        """Return the selected executions of a layer."""
        direction = None
        found = _WITH_DIRECTION.fullmatch(name)
        links = self._links
        layers = links.runs.layers()
        if found is not None and not any(key[1] == name for key in layers.values):
            name, direction = found[1], found[2]
        run_of = np.asarray(links.run_of)
        wanted = layers.where(lambda key: key[1] == name and direction in (None, key[2]))
        return [*_reaches(self._times, run_of, np.append(wanted, False)[run_of] & self.chosen).values()]


# -- The first view: one steady iteration ------------------------------------------------------------------------------


_MARGIN = 40
"""Part of its length, on either side."""
MOST_SLICES = 2_500_000
"""A run with more slices is drawn in part: about 300 MB in the native form. A browser gives up at three to six
million."""
WINDOW_SLICES = 800_000
"""Slices of a partly drawn run: a browser shows them without trouble."""


def steady_iteration(measures: Measures, base: TimeBase, chosen: Chosen | None) -> tuple[int, int] | None:
    """Return the first steady iteration on the axis, from its first command to its last, with a margin.

    None if no iterations are known, or if nothing of it is drawn.
    """
    told = measures.steady.told
    if told.told_by == "whole" or not told.steady:
        return None
    span = _spans(measures, base, chosen, told.steady[:1]).get(told.steady[0])
    if span is None:
        return None
    margin = (span[1] - span[0]) // _MARGIN + 1
    return span[0] - margin, span[1] + margin


def steady_iterations(measures: Measures, base: TimeBase, chosen: Chosen | None) -> dict[int, tuple[int, int]]:
    """Return begin and end of each steady iteration on the axis, by its number; none if no iterations are known."""
    told = measures.steady.told
    return {} if told.told_by == "whole" else _spans(measures, base, chosen, told.steady)


def _spans(
    measures: Measures, base: TimeBase, chosen: Chosen | None, numbers: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Return the spans of the iterations of these numbers, in their order, with any drawn command."""
    told = measures.steady.told
    wanted = frozenset(numbers)
    place_of = np.asarray(told.place_of)
    rows = np.array([*(one.number in wanted for one in told.all), False])[place_of]
    spans = _reaches(_times(measures.alignment, base), place_of, rows if chosen is None else rows & chosen.drawn)
    return {told.all[place].number: span for place, span in spans.items()}


def expected_slices(alignment: Alignment, with_calls: bool) -> int:
    """Return about how many slices a whole run has: commands, operations and layers, and on the host their calls."""
    profile, links = alignment.profile, alignment.links
    joined = len(links.operations) + len(links.runs)
    launches = int(np.count_nonzero(profile.commands.call >= 0))
    calls = launches + len(profile.other_calls) + len(profile.ranges) + bool(alignment.logs) * joined
    return len(profile.activities) + joined + with_calls * calls


def window(measured: Sequence[Measures], with_calls: bool) -> Selection:
    """Return the steady iterations in the middle of a run with more than `MOST_SLICES`: as many as have
    `WINDOW_SLICES`.

    Everything of a smaller run, and of a run in which a profile has no iterations. ``with_calls``: calls are drawn.
    """
    drawn = [one for one in measured if one.alignment.profile.activities]
    slices = sum(expected_slices(one.alignment, with_calls) for one in drawn)
    if slices <= MOST_SLICES:
        return Selection()
    told = [one.steady.told for one in drawn]
    common = set.intersection(*({one.number for one in each.all} for each in told))
    steady = [number for number in told[0].steady if number in common]
    wanted = max(len(told[0].all) * WINDOW_SLICES // slices, 1)
    if any(each.told_by == "whole" for each in told) or not steady:
        return Selection()
    first = max(len(steady) - wanted, 0) // 2
    chosen = steady[first : first + wanted]
    return Selection(iterations=f"{chosen[0]}-{chosen[-1]}")
