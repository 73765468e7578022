"""The drawn part of a run: a time span, iterations, the longest kernels. Everything left out is counted.

Links and summary are always of the whole run; times keep the zero of the whole trace.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.draw.base import TimeBase
from mio2trace.measures import Measures
from mio2trace.notes import Notes, OptionError
from mio2trace.patterns import late

_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_TIME = late(r"(\d{1,12})(?:\.(\d{1,9}))?\s*(ns|us|µs|ms|s|min)", re.ASCII)
_ITERATION = late(r"(?:iteration\s+(\d{1,9})|warm-up)(?:\s+(forward|backward))?", re.ASCII)
_ITERATIONS = late(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?", re.ASCII)
_WITH_DIRECTION = late(r"(.+?)(?<!\s)\s++(forward|backward)")
_EVER = 1 << 62

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
    """What to draw, from the command's options; empty is all.

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
    slices. ``begin`` and ``end``: the window on the axis. ``spans``: the parts of it that the iterations take.
    ``calls``: call indexes of drawn activities; ``runs``: the executions of layers around them; ``operations``: their
    operations. ``left_out_ns``: the time of the ``left_out`` kernels and copies.
    """

    begin: int
    end: int
    spans: tuple[tuple[int, int], ...]
    iterations: tuple[tuple[int, int], ...]
    longest_only: bool
    min_ns: int
    inside: bytearray
    drawn: bytearray
    calls: frozenset[int]
    runs: frozenset[int]
    operations: frozenset[int]
    left_out: int
    left_out_ns: int

    def has_iteration(self, iteration: int | None) -> bool:
        return _among(self.iterations, iteration)

    def clip(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the part of a span in the window, None if there is none; a span with a length keeps one."""
        first, last = max(start, self.begin), min(end, self.end)
        return (first, last) if first < last or first == last == start == end else None

    def has_time(self, start: int, end: int) -> bool:
        """Return whether a span of time touches the selection."""
        if end < self.begin or start > self.end:
            return False
        return not self.iterations or any(start <= until and end >= since for since, until in self.spans)

    def holds(self, positions: Sequence[int], start: int, end: int) -> bool:
        """Return whether the container of these activities is drawn: because of one of them, or of its own length."""
        if not self.longest_only and end - start >= self.min_ns:
            return True
        drawn = self.drawn
        return any(drawn[position] for position in positions)

    def narrowed(self, positions: Sequence[int], first: int, last: int) -> tuple[int, int]:
        """Return the part of an unbroken row that is inside; it is also unbroken."""
        inside = self.inside
        while first < last and not inside[positions[first]]:
            first += 1
        while first < last and not inside[positions[last - 1]]:
            last -= 1
        return first, last


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
    inside, drawn = bytearray(len(times)), bytearray(len(times))
    outside = short = 0
    long_enough: list[tuple[int, int]] = []
    for position, span in enumerate(times):
        if span is None:
            continue
        start, stop = span
        if not (start < end and (stop > begin or start >= begin) and passes.chosen(position)):
            outside += 1
            continue
        inside[position] = 1
        if stop - start < min_ns:
            short += 1
        elif selection.top is None:
            drawn[position] = 1
        else:
            long_enough.append((stop - start, position))
    not_longest = 0
    if selection.top is not None:
        activities = alignment.profile.activities
        kernels = [(dur, -position) for dur, position in long_enough if activities[position].kind == "kernel"]
        for _, position in heapq.nlargest(selection.top, kernels):
            drawn[-position] = 1
        not_longest = len(long_enough) - sum(drawn)
    for kind, count in (
        ("kernel or copy outside --from, --to or --iterations: left out of the trace", outside),
        ("kernel or copy shorter than --min-duration: left out of the trace", short),
        ("kernel or copy not among the --top kernels: left out of the trace", not_longest),
    ):
        if count:
            notes.remark(kind, count=count)
    shown = [position for position, one in enumerate(drawn) if one]
    if not shown and any(span is not None for span in times):
        raise OptionError(f"{selection.options()}: leaves no kernel to draw")
    links = alignment.links
    return Chosen(
        begin=begin,
        end=end,
        spans=tuple(passes.spans(inside)) if iterations else (),
        iterations=iterations,
        longest_only=selection.top is not None,
        min_ns=min_ns,
        inside=inside,
        drawn=drawn,
        calls=frozenset(alignment.profile.activities[position].number for position in shown),
        runs=frozenset(links.run_of[position] for position in shown),
        operations=frozenset(links.operation_of[position] for position in shown),
        left_out=outside + short + not_longest,
        left_out_ns=sum(span[1] - span[0] for span, one in zip(times, drawn, strict=True) if span and not one),
    )


def _times(alignment: Alignment, base: TimeBase) -> list[tuple[int, int] | None]:
    """Return the times of each activity on the axis; None without device times."""
    shift = {queue.index: base.device(queue.device, 0) for queue in alignment.profile.queues}
    times: list[tuple[int, int] | None] = []
    for activity in alignment.profile.activities:
        start, end = activity.start_ns, activity.end_ns
        by = shift.get(activity.queue, 0)
        times.append(None if start is None or end is None else (start + by, end + by))
    return times


def _among(ranges: Sequence[tuple[int, int]], number: int | None) -> bool:
    if not ranges:
        return True
    return number is not None and any(first <= number <= last for first, last in ranges)


class _Passes:
    """The passes and layers of a run on the axis."""

    def __init__(
        self, alignment: Alignment, times: Sequence[tuple[int, int] | None], iterations: tuple[tuple[int, int], ...]
    ) -> None:
        self._links = links = alignment.links
        self._times = times
        self._iterations = iterations
        self._kept = [_among(iterations, pass_.iteration) for pass_ in links.passes]
        if iterations and not any(self._kept):
            raise OptionError(f"--iterations: no kernel is in one of them; {self._there_are()}")

    def _there_are(self) -> str:
        numbers = sorted({one.iteration for one in self._links.passes if one.iteration is not None})
        return f"there are {numbers[0]} to {numbers[-1]} (0: the warm-up)" if numbers else "the run has no iterations"

    def chosen(self, position: int) -> bool:
        if not self._iterations:
            return True
        pass_ = self._links.pass_of[position]
        return pass_ != NONE and self._kept[pass_]

    def spans(self, inside: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Return spans from the first to the last command of each chosen iteration."""
        found: dict[int | None, list[tuple[int, int]]] = {}
        for span, one, pass_ in zip(self._times, inside, self._links.pass_of, strict=True):
            if one and span is not None:
                found.setdefault(self._links.passes[pass_].iteration, []).append(span)
        for spans in found.values():
            yield min(start for start, _ in spans), max(end for _, end in spans)

    def moment(self, text: str, edge: Edge, origin: int, after: int) -> int:
        """Return where ``text`` begins on the axis; for the edge ``to``, where it ends: the first such end after
        ``after``."""
        text = text.strip()
        if _TIME.fullmatch(text):
            return origin + parse_duration(text)
        found = _ITERATION.fullmatch(text)
        if found is not None:
            number = int(found[1]) if found[1] else 0
            spans = self._of_passes(number, found[2])
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

    def _of_passes(self, number: int, direction: str | None) -> list[tuple[int, int]]:
        links = self._links
        wanted = {at for at, one in enumerate(links.passes)
                  if one.iteration == number and direction in (None, one.direction)}  # fmt: skip
        spans = [span for span, pass_ in zip(self._times, links.pass_of, strict=True) if span and pass_ in wanted]
        return [(min(start for start, _ in spans), max(end for _, end in spans))] if spans else []

    def _of_layer(self, name: str) -> list[tuple[int, int]]:
        """Return the selected executions of a layer."""
        direction = None
        found = _WITH_DIRECTION.fullmatch(name)
        links = self._links
        if found is not None and not any(run.layer == name for run in links.runs):
            name, direction = found[1], found[2]
        spans: dict[int, tuple[int, int]] = {}
        for position, (number, span) in enumerate(zip(links.run_of, self._times, strict=True)):
            if number == NONE or span is None or not self.chosen(position):
                continue
            run = links.runs[number]
            if run.layer == name and direction in (None, run.direction):
                start, end = spans.get(number, span)
                spans[number] = min(start, span[0]), max(end, span[1])
        return list(spans.values())


# -- The first view: one steady iteration
# --------------------------------------------------------------------------------


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
    counts = [one.number in wanted for one in told.all]
    profile = measures.alignment.profile
    shift = {queue.index: base.device(queue.device, 0) for queue in profile.queues}
    spans: dict[int, tuple[int, int]] = {}
    for position, (place, activity) in enumerate(zip(told.place_of, profile.activities, strict=True)):
        start, end = activity.start_ns, activity.end_ns
        if place == NONE or not counts[place] or start is None or end is None:
            continue
        if chosen is not None and not chosen.drawn[position]:
            continue
        by = shift.get(activity.queue)
        if by is None:
            by = base.device(0, 0)
        first, last = spans.get(place, (start + by, end + by))
        spans[place] = min(first, start + by), max(last, end + by)
    return {told.all[place].number: spans[place] for place in sorted(spans)}


def window(measured: Sequence[Measures], with_calls: bool) -> Selection:
    """Return the steady iterations in the middle of a run with more than `MOST_SLICES`: as many as have
    `WINDOW_SLICES`.

    Everything of a smaller run, and of a run in which a profile has no iterations. ``with_calls``: calls are drawn.
    """
    drawn = [one for one in measured if one.alignment.profile.activities]
    slices = 0
    for profile in (one.alignment.profile for one in drawn):
        slices += len(profile.activities) + with_calls * (len(profile.activities) + len(profile.other_calls))
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
