"""Two runs in one trace: steady iterations begin together, matched slices have their ratio, and the differences are
listed.

Each run is drawn by `mio2trace.draw`, without the host. All slices of an iteration are moved by the same time, so that
times between them stay the same. Slices outside of these steady iterations are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat, zip_longest
from typing import Any, NamedTuple

import msgspec

from mio2trace.analysis import Run
from mio2trace.comparing.comparison import Compared, Comparison
from mio2trace.comparing.sides import Source
from mio2trace.draw import FIRST_DEVICE, BuildOptions, RunToDraw, Selection, build
from mio2trace.draw.base import short_name
from mio2trace.measures import Measures
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import problem_name
from mio2trace.outgoing import shortened
from mio2trace.trace import Event, Part, Process, Slice, Trace, Track, each

MOST_ITERATIONS = 10
"""The most pairs of steady iterations that are drawn."""
MOST_DIFFERENCES = 20
"""Tracks of the list."""
_LEAST = 0.001
"""A difference is listed if it has at least this part of an iteration."""
_LIST = 1
_APART = 100
"""Smaller numbers of processes are those of the list; processes of a log without a profile begin here."""
_LIST_OF_DIFFERENCES = Process(
    id=_LIST,
    name="A -> B: largest differences first",
    sort=-1000,  # before devices (whose places are negative), and before "A: ..." if groups are sorted by name
    description="The parts that take longer or shorter in the second run, the largest difference first: each where it"
    " runs in B, or in A if only A has it. All times are medians of a steady iteration; ratio is B / A.",
)
_MOVED = ("queued_ns", "submit_ns")
"""Arguments that are times on the axis of the trace."""


class _Slot(NamedTuple):
    """A steady iteration of a run: slices that begin between ``start_ns`` and ``end_ns`` belong to it and are moved by
    ``shift_ns``."""

    start_ns: int
    end_ns: int
    shift_ns: int


class _Drawn(NamedTuple):
    """One of the two runs. ``slots`` is empty if no iterations are known; then everything is drawn. ``begins_ns`` is
    the start of the first slice, because the host, which is not drawn, may begin long before it."""

    letter: str
    trace: Trace
    measures: tuple[Measures, ...]
    slots: tuple[_Slot, ...]
    first_number: int
    begins_ns: int = 0

    @property
    def tracks(self) -> frozenset[int]:
        return frozenset(track.id for track in self.trace.tracks if track.process in self.processes)

    @property
    def processes(self) -> dict[int, Process]:
        """The processes that are drawn, by number: devices, or the processes of a log without a profile."""
        least = FIRST_DEVICE if self.measures else 0
        return {one.id: one for one in self.trace.processes if one.id >= least}


def picture(comparison: Comparison, a: Source, b: Source, metadata: Mapping[str, Any]) -> Trace:
    """Return the trace to write. If a side has several runs, it shows the run with the median iteration time.

    Raises `InputError` for a side without its files.
    """
    runs = [_middle(one) for one in (a, b)]
    # Notes on parts that were left out apply to the comparison, not to each run.
    traces = [
        build(
            [RunToDraw(measures=run.measures, logs=() if run.measures else run.logs)],
            BuildOptions(host_calls="none", selection=_selection(run)),
            {},
            Notes(),
        )
        for run in runs
    ]
    slots = _aligned([trace.steady() for trace in traces])
    first = 0 if runs[0].measures else _APART
    second = -(-max((first + track.id for track in traces[0].tracks), default=0) // 1000) * 1000
    drawn = [
        _Drawn(letter, trace, run.measures, own, number)
        for letter, trace, run, own, number in zip("AB", traces, runs, slots, (first, second), strict=True)
    ]
    if not slots[0]:
        drawn = [one._replace(begins_ns=_begins_ns(one)) for one in drawn]
    told = _Told(comparison)
    differences = _differences(comparison, drawn, told)
    parts = [partial(_slices, one, part, told, measures) for one in drawn for part, measures in _device_parts(one)]
    return Trace(
        processes=(
            *((_LIST_OF_DIFFERENCES,) if differences else ()),
            *(process for one in drawn for process in _processes(one, comparison)),
        ),
        tracks=(
            *(Track(id=_LIST + at, process=_LIST, name=one.name, sort=at) for at, one in enumerate(differences, 1)),
            *(track for one in drawn for track in _tracks(one)),
        ),
        metadata={**metadata, "comparison": _facts(comparison, drawn, differences)},
        parts=(partial(_list_slices, differences), *parts),
        in_view=partial(_in_view, drawn),
    )


def _middle(source: Source) -> Run:
    if not source.runs:
        raise InputError(f"{source.side.name}: --picture cannot use a base or a trace; expected the files of a run")
    order = sorted(range(len(source.runs)), key=lambda number: source.side.runs[number].mean_ns)
    return source.runs[order[(len(order) - 1) // 2]]


def _selection(run: Run) -> Selection:
    """Return the steady iterations of the run, if these have numbers; otherwise all of it."""
    if len(run.measures) != 1 or run.measures[0].steady.told.told_by == "whole":
        return Selection()
    numbers = run.measures[0].steady.iterations[:MOST_ITERATIONS]
    named = {one.iteration for one in run.measures[0].alignment.links.passes}
    if not set(numbers) <= named:
        return Selection()
    return Selection(iterations=",".join(map(str, numbers)))


def _begins_ns(one: _Drawn) -> int:
    events = (event for part, _ in _device_parts(one) for event in each(part()) if type(event) is Slice)
    tracks = one.tracks
    return min((event.start_ns for event in events if event.track in tracks), default=0)


def _aligned(steady: Sequence[Mapping[int, tuple[int, int]]]) -> list[tuple[_Slot, ...]]:
    """Let the n-th steady iterations of both runs begin together, after the longer one of the two before."""
    count = min(MOST_ITERATIONS, *map(len, steady))
    regions = [_regions(one)[:count] for one in steady]
    starts = [0]
    for pair in zip(*regions, strict=True):
        starts.append(starts[-1] + max(end - start for start, end in pair))
    return [
        tuple(_Slot(start, end, begin - start) for (start, end), begin in zip(own, starts, strict=False))
        for own in regions
    ]


def _regions(steady: Mapping[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans from the start of each iteration to the start of the next one if it follows in the run;
    otherwise to the end of the iteration."""
    numbers = list(steady)
    regions = []
    for number, following in zip_longest(numbers, numbers[1:]):
        start, end = steady[number]
        if following == number + 1 and steady[following][0] > start:
            end = steady[following][0]
        regions.append((start, end))
    return regions


def _moved(one: _Drawn, part: Part) -> Iterator[tuple[Slice, _Slot]]:
    """Yield the slices of the drawn iterations, each with its iteration. A nested slice belongs to the iteration of the
    slice around it."""
    starts = [slot.start_ns for slot in one.slots]
    track = until = -1
    slot: _Slot | None = None if starts else _Slot(0, 0, -one.begins_ns)
    for event in each(part()):
        if type(event) is not Slice:
            continue
        if starts and (event.track != track or event.start_ns >= until):
            track, until = event.track, event.start_ns + event.dur_ns
            at = bisect_right(starts, event.start_ns) - 1
            slot = one.slots[at] if at >= 0 and event.start_ns < one.slots[at].end_ns else None
        if slot is not None:
            yield event, slot


def _device_parts(one: _Drawn) -> Iterator[tuple[Part, Measures | None]]:
    """Yield the parts of the trace that draw devices: the first parts, one per profile; for a log alone all parts."""
    yield from zip(one.trace.parts, one.measures or repeat(None), strict=False)


def _slices(one: _Drawn, part: Part, told: _Told, measures: Measures | None) -> Iterator[Event]:
    tracks = one.tracks
    for event, slot in _moved(one, part):
        if event.track not in tracks:
            continue
        args, shift = event.args, slot.shift_ns
        row = told.of(one.letter, event, measures)
        if row is not None:
            args = {**_ratio_args(row, one.letter), **args}
        if shift and _MOVED[0] in args:
            args = {**args, **{key: args[key] + shift for key in _MOVED if key in args}}
        yield Slice(
            one.first_number + event.track, event.start_ns + shift, event.dur_ns, event.name, event.category, args,
            event.shared,
        )  # fmt: skip


class _Told:
    """Finds the row of a comparison to which a slice belongs: layers, operations that ran, kernels in no operation."""

    def __init__(self, comparison: Comparison) -> None:
        self._rows: dict[tuple[str, str, str], Compared] = {}
        for row in comparison.rows:
            for letter, side in (("A", row.pair and row.pair.a), ("B", row.pair and row.pair.b)):
                if side is not None:
                    self._rows[letter, row.kind, side.part.name] = row

    def of(self, letter: str, event: Slice, measures: Measures | None) -> Compared | None:
        if event.category == "layer":
            args = {**event.shared, **event.args}
            direction = args.get("direction")
            name = f"{event.name} {direction}" if direction else event.name
            return self._rows.get((letter, "layer", name))
        if event.category == "operation" and measures is not None:
            operation = measures.operation_at[event.args["operation"]]
            return self._rows.get((letter, "problem", problem_name(operation))) if operation.phase == "run" else None
        if event.category == "kernel" and "operation" not in event.args:
            return self._rows.get((letter, "kernel", event.shared.get("full_name", event.name)))
        return None


def _ratio_args(row: Compared, letter: str) -> dict[str, Any]:
    """Return the arguments of a matched slice: medians per iteration on both sides, in ns."""
    args: dict[str, Any] = {} if row.ratio is None else {"ratio": float(f"{row.ratio:.4g}")}
    args |= {"verdict": row.word, **_times(row)}
    if row.cause:
        args["cause"] = row.cause
    if row.pair is not None and row.pair.a is not None and row.pair.b is not None:
        of_a, of_b = row.pair.a.part.name, row.pair.b.part.name
        if of_a != of_b:
            args["matched"] = of_b if letter == "A" else of_a
    return args


class _Difference(NamedTuple):
    """A row of the list: its name, and its place in each iteration."""

    row: Compared
    name: str
    spans: tuple[tuple[int, int], ...]


def _differences(comparison: Comparison, drawn: Sequence[_Drawn], told: _Told) -> list[_Difference]:
    """Return the differences of layers if there are layers, else of problems, else of kernels."""
    kinds = {row.kind for row in comparison.rows}
    kind = next((kind for kind in ("layer", "problem", "kernel") if kind in kinds), "")
    least = _LEAST * max(comparison.iteration.a_ns or 0, comparison.iteration.b_ns or 0)
    rows = [row for row in comparison.rows if row.kind == kind and abs(row.more_ns) > least][:MOST_DIFFERENCES]
    wanted = {id(row): ("B" if row.pair and row.pair.b else "A") for row in rows}
    spans: dict[int, dict[int, tuple[int, int]]] = {}
    for one in drawn:
        for part, measures in _device_parts(one):
            for event, slot in _moved(one, part):
                row = told.of(one.letter, event, measures)
                if row is None or wanted.get(id(row)) != one.letter:
                    continue
                start = event.start_ns + slot.shift_ns
                own = spans.setdefault(id(row), {})
                first, last = own.get(slot.start_ns, (start, start))
                own[slot.start_ns] = min(first, start), max(last, start + event.dur_ns)
    named = [(row, f"{at}. {row.name}: {row.more_ns / 1e6:+.3f} ms") for at, row in enumerate(rows, 1)]
    # a viewer cuts the middle of names that do not fit beside a track
    return [_Difference(row, short_name(name), tuple(sorted(spans.get(id(row), {}).values()))) for row, name in named]


def _list_slices(differences: Sequence[_Difference]) -> Iterator[Event]:
    for number, one in enumerate(differences, 1):
        until, row = 0, one.row
        args = {**_ratio_args(row, "A"), "more_ns": round(row.more_ns)}
        ratio, word = "" if row.ratio is None else f" x {row.ratio:.2f}", "" if row.word == "~" else f", {row.word}"
        name = short_name(f"{shortened(row.name, 60)}{ratio}{word}")
        for start, end in one.spans:
            start = max(start, until)  # an iteration with several queues may begin before the last one has ended
            if end > start:
                yield Slice(_LIST + number, start, end - start, name, "difference", args)
                until = end


def _processes(one: _Drawn, comparison: Comparison) -> Iterator[Process]:
    side = comparison.a if one.letter == "A" else comparison.b
    for process in one.processes.values():
        yield msgspec.structs.replace(
            process,
            id=one.first_number + process.id,
            name=f"{one.letter}: {process.name}",
            sort=(0 if one.letter == "A" else 1000) + process.sort,
            description=f"{one.letter} is {side.name}. {process.description}".strip(),
        )


def _tracks(one: _Drawn) -> Iterator[Track]:
    """No track is the main one of its group: a viewer would draw groups of one track before the list."""
    for track in one.trace.tracks:
        if track.process in one.processes:
            yield msgspec.structs.replace(
                track, id=one.first_number + track.id, process=one.first_number + track.process, main=False
            )


def _in_view(drawn: Sequence[_Drawn]) -> tuple[int, int] | None:
    if not drawn[0].slots:
        return None
    long = max(slot.end_ns - slot.start_ns for one in drawn for slot in one.slots[:1])
    return 0, long + long // 40 + 1


def _facts(comparison: Comparison, drawn: Sequence[_Drawn], differences: Sequence[_Difference]) -> dict[str, Any]:
    whole = comparison.iteration
    return {
        "a": comparison.a.name,
        "b": comparison.b.name,
        "runs": f"{whole.runs[0]}+{whole.runs[1]}",
        "iterations": len(drawn[0].slots),
        "verdict": whole.word,
        "differences": [one.name for one in differences],
        **_times(whole),
    }


def _times(row: Compared) -> dict[str, int]:
    return {key: round(ns) for key, ns in (("a_ns", row.a_ns), ("b_ns", row.b_ns)) if ns is not None}
