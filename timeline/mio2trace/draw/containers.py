"""Rows of slices: lanes for slices that overlap, unbroken rows of one key, and the containers of commands over such
rows, which are passes, layers and operations (trace-contract.md 2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import LayerRun
from mio2trace.draw.base import all_three_digits, flags, layer_args, shifted, told
from mio2trace.measures import Measures, Sums
from mio2trace.measures.cost import bandwidth
from mio2trace.model.choices import Gemm
from mio2trace.model.tables import NO, Activities, Numbers, Pool, by_code, numbers
from mio2trace.ops.operation import Operation, operation_name
from mio2trace.ops.values import shape_text
from mio2trace.trace import NO_ARGS, Column, Columns, Slice, Track, column

Row = TypeVar("Row")


class Lane(NamedTuple, Generic[Row]):
    """Positions by start. ``bare``: commands without length, each at the start of one in another lane."""

    row: Row
    number: int
    bare: bool
    positions: Numbers


def distinct(tracks: Sequence[Track]) -> list[Track]:
    """Give the tracks of a process distinct names: names come from files, which may use one twice."""
    taken: dict[str, int] = {}
    named = []
    for track in tracks:
        name = track.name
        while name in taken:
            taken[name] += 1
            name = f"{name} #{taken[name]}"
        taken[name] = 1
        named.append(track if name == track.name else msgspec.structs.replace(track, name=name))
    return named


def packed(commands: Activities, rows: Mapping[Row, Numbers]) -> Iterator[Lane[Row]]:
    """Return the lanes of each row of positions; more than one only if commands overlap.

    In a lane that is not bare, no two commands start at once, and none starts before the previous command ended. So
    an unbroken part of a lane can be enclosed alone.
    """
    for row, positions in rows.items():
        starts, ends = commands.start_ns[positions], commands.end_ns[positions]
        if _is_in_a_row(starts, ends):
            yield Lane(row, 0, False, positions)
            continue
        order = np.lexsort((-ends, starts))
        positions, starts, ends = positions[order], starts[order], ends[order]
        is_bare = np.append(False, starts[1:] == starts[:-1]) & (starts == ends)
        with_room = positions[~is_bare]
        lanes = in_lanes(starts[~is_bare], ends[~is_bare])
        for number, lane in enumerate(lanes):
            yield Lane(row, number, False, with_room[lane])
        if is_bare.any():
            yield Lane(row, len(lanes), True, positions[is_bare])


def _is_in_a_row(starts: Numbers, ends: Numbers) -> bool:
    """Return whether commands ran one after another, in this order: then they need no sorting and one lane."""
    one_by_one = (starts[1:] >= ends[:-1]) & (starts[1:] > starts[:-1])
    return bool(one_by_one.all() and (ends >= starts).all())


def in_lanes(starts: Numbers, ends: Numbers, deepest: int = 1) -> list[Numbers]:
    """Return the rows of each lane, by start, longest first at equal starts; each in the first lane where it fits."""
    if _is_in_a_row(starts, ends):  # like the calls of one thread
        return [np.arange(len(starts))] if len(starts) else []
    order, fit = np.lexsort((-ends, starts)), FirstFit(deepest)
    lanes = [fit.lane_of(*span) for span in zip(starts[order].tolist(), ends[order].tolist(), strict=True)]
    return [rows for _, rows in by_code(order, np.array(lanes, np.int32))]


class FirstFit:
    """Lanes of spans that nest or are disjoint; each span, by start, goes into the first lane where it fits.

    ``deepest``: the most nested spans in a lane. A tree holds the end of each lane, so many lanes cost little more
    than one lane.
    """

    def __init__(self, deepest: int) -> None:
        self._deepest = deepest
        self._open_ends: list[list[int]] = []
        self._over: list[tuple[int, int]] = []  # (end, lane) of all open spans
        self._width = 1
        # [width + lane]: the latest end that fits; above it the later one of two lanes.
        self._takes: list[float] = [inf, inf]

    def lane_of(self, start: int, end: int) -> int:
        """Return the lane of this span; lanes are numbered from 0."""
        while self._over and self._over[0][0] <= start:
            lane = heappop(self._over)[1]
            self._open_ends[lane].pop()
            self._changed(lane)
        place = 1
        while place < self._width:
            place = 2 * place if self._takes[2 * place] >= end else 2 * place + 1
        lane = place - self._width
        if lane == len(self._open_ends):
            self._open_ends.append([])
        self._open_ends[lane].append(end)
        heappush(self._over, (end, lane))
        self._changed(lane)
        return lane

    def _changed(self, lane: int) -> None:
        ends = self._open_ends[lane]
        takes: float = inf if not ends else ends[-1] if len(ends) < self._deepest else -inf
        place = self._width + lane
        self._takes[place] = takes
        while place > 1:
            place //= 2
            self._takes[place] = max(self._takes[2 * place], self._takes[2 * place + 1])
        if lane == self._width - 1 and takes < inf:  # one lane is always empty
            self._takes = [0.0] * (2 * self._width) + self._takes[self._width :] + [inf] * self._width
            self._width *= 2
            for place in range(self._width - 1, 0, -1):
                self._takes[place] = max(self._takes[2 * place], self._takes[2 * place + 1])


def unbroken(keys: NDArray[Any]) -> Numbers:
    """Return where unbroken rows of one value begin, and the end of the last one."""
    return np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])), len(keys))


class Spans(msgspec.Struct, frozen=True, gc=False):
    """Unbroken rows of commands: for each the number of its container, its first position on a track, the position
    behind its last, and whether it is cut there.
    """

    numbers: Numbers
    first: Numbers
    last: Numbers
    cut: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> Spans:
        """Return some of them; ``rows`` is anything that numpy takes as an index."""
        return Spans(*(column[rows] for column in (self.numbers, self.first, self.last, self.cut)))


_OF_THE_WHOLE = ("flop", "bytes_min")
_OUTSIDE = ("before", "setup", "between")


class Containers:
    """Makes the slices of a profile's passes, layers and operations; equal ones share one object."""

    def __init__(self, measures: Measures, process: str = "") -> None:
        self.measures = measures
        self._alignment = measures.alignment
        self._operations = measures.operation_at
        self._likes: dict[object, Slice] = {}
        self._names: dict[tuple[object, ...], tuple[str, dict[str, Any]]] = {}
        self._shown: dict[int, tuple[str, dict[str, Any]]] = {}
        self._process = {"process": process} if process else {}
        passes = measures.alignment.links.passes
        self._iterations = numbers((pass_.number for pass_ in passes), len(passes))
        self._pass_of = np.asarray(measures.alignment.links.pass_of)
        self._outputs = {layer.index: layer.output for layer in measures.alignment.net.layers}

    def _columns(
        self, shift: int, positions: Numbers, spans: Spans, likes: Sequence[Slice], args: Mapping[str, Column]
    ) -> Columns:
        """``likes``: of each span, one object for many."""
        commands = self._alignment.profile.commands
        starts = commands.start_ns[positions[spans.first]]
        ends = commands.end_ns[positions[spans.last - 1]]
        distinct = {id(one): one for one in likes}
        places = {name: place for place, name in enumerate(distinct)}
        codes = np.fromiter((places[id(one)] for one in likes), np.int32, len(likes))
        return Columns(Pool([*distinct.values()], codes), shifted(starts, shift), ends - starts, told(args))

    def _costs(self, sums: Sums, positions: Numbers, spans: Spans, passes: NDArray[Any]) -> dict[str, Column]:
        """Return the costs of containers of passes, or of the parts that are in these rows of activities, drawn or not.

        Work is left out for a cut container, and for a part if the work of the whole is unknown.
        """
        kernels, kernel_ns, is_part = self._kernels(sums, positions, spans)
        flop: list[int | None] = [None] * len(spans)
        if sums.flop_of_operations or sums.flop_of_gemms:
            flop = [sums.flop(number) for number in spans.numbers.tolist()]
            for place in np.flatnonzero(is_part).tolist():
                if flop[place]:
                    part = positions[spans.first[place] : spans.last[place]].tolist()
                    flop[place] = self.measures.kernels_of(part)[2]
            flop = [None if cut else one for one, cut in zip(flop, spans.cut.tolist(), strict=True)]
        work = np.array([one or np.nan for one in flop], np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(kernel_ns > 0, work / kernel_ns, np.nan)
        return {
            "percent_of_kernel_time": np.where(spans.cut, np.nan, self._shares(passes, kernel_ns)),
            "gflops": all_three_digits(rates),
            "kernel_ns": kernel_ns,
            "kernels": kernels,
            "cut": flags(spans.cut),
            "flop": column(flop),
        }

    def _kernels(self, sums: Sums, positions: Numbers, spans: Spans) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """Return of each span its number of kernels, the sum of their times, and whether its container has more."""
        commands = self._alignment.profile.commands
        kernels, kernel_ns = (np.asarray(column)[spans.numbers] for column in (sums.kernels, sums.timed_ns))
        copies = np.array([sums.copies.get(number, 0) for number in spans.numbers.tolist()] if sums.copies else 0)
        is_part = kernels + copies != spans.last - spans.first
        if is_part.any():
            first = int(spans.first[0])
            here = positions[first : int(spans.last.max())]
            is_kernel = commands.is_kernel[here]
            # Sums of times may be beyond 63 bits, their differences are not.
            before = np.append(0, np.cumsum(is_kernel)), np.append(0, np.cumsum(commands.time_ns[here] * is_kernel))
            own, own_ns = (one[spans.last - first] - one[spans.first - first] for one in before)
            kernels, kernel_ns = np.where(is_part, own, kernels), np.where(is_part, own_ns, kernel_ns)
        return kernels, kernel_ns, is_part

    def _shares(self, passes: NDArray[Any], kernel_ns: Numbers) -> NDArray[np.float64]:
        """Return ``percent_of_kernel_time`` of the iteration; none outside of iterations."""
        wholes = self._iteration_ns[passes]
        with np.errstate(divide="ignore", invalid="ignore"):
            return all_three_digits(np.where(wholes > 0, 100.0 * kernel_ns / wholes, np.nan))

    @cached_property
    def _iteration_ns(self) -> NDArray[np.float64]:
        """The kernel time of the iteration of each pass, both directions together; 0 for set-up, and at the end for no
        pass."""
        passes, timed_ns = self._alignment.links.passes, self.measures.passes.timed_ns
        sums: Counter[object] = Counter()
        for one, ns in zip(passes, timed_ns, strict=False):
            sums[one.phase, one.iteration] += ns
        return np.array([*(0 if one.phase in _OUTSIDE else sums[one.phase, one.iteration] for one in passes), 0], float)

    def passes(self, track: int, shift: int, positions: Numbers, spans: Spans) -> Columns:
        steady = self.measures.steady
        passes = [self._alignment.links.passes[number] for number in spans.numbers.tolist()]
        steadily = [one.phase != "iteration" or steady.has(one.number) for one in passes]
        args = self._costs(self.measures.passes, positions, spans, spans.numbers) | {
            "phase": column([one.phase if one.phase in _OUTSIDE else None for one in passes]),
            "direction": column([one.direction for one in passes]),
            "iteration": column([one.number for one in passes]),
            "steady": column([None if is_steady else False for is_steady in steadily]),
            "part": column([
                steady.told.part or None if one.phase == "iteration" and is_steady else None
                for one, is_steady in zip(passes, steadily, strict=True)
            ]),
        }  # fmt: skip
        likes = [Slice(track, 0, 0, one.name, "pass", NO_ARGS, self._process) for one in passes]
        return self._columns(shift, positions, spans, likes, args)

    def layers(self, track: int, shift: int, positions: Numbers, spans: Spans) -> Columns:
        runs, numbers = self._alignment.links.runs, spans.numbers
        passes = runs.column("pass_")[numbers]
        args = self._costs(self.measures.runs, positions, spans, passes)
        args["iteration"] = self._iterations[passes]
        likes = []
        shown = (runs.column(name)[numbers].tolist() for name in ("layer", "printed_ns"))
        for number, *of_run in zip(numbers.tolist(), *shown, strict=True):
            key = track, *of_run
            like = self._likes.get(key)
            if like is None:
                run = runs[number]
                like = self._likes[key] = Slice(track, 0, 0, run.layer, "layer", NO_ARGS, self._of_layer(run))
            likes.append(like)
        return self._columns(shift, positions, spans, likes, args)

    def _of_layer(self, run: LayerRun) -> dict[str, Any]:
        """Return the arguments that executions of the layer share."""
        shared: dict[str, Any] = {} if run.printed_ns is None else {"printed_ns": run.printed_ns}
        output = self._outputs.get(run.layer_index)
        if output:
            shared["output"] = output
        return shared | layer_args(run) | self._process  # the following kernels begin with the same arguments

    def operations(self, track: int, shift: int, positions: Numbers, spans: Spans) -> Columns:
        sums = self.measures.operations
        numbers, cut = spans.numbers.tolist(), spans.cut
        kernels, kernel_ns, is_part = self._kernels(sums, positions, spans)
        goes_on = np.zeros(len(numbers), bool)
        for place in np.flatnonzero(is_part & ~cut).tolist():
            # The work of an operation counts once, at its beginning.
            part = positions[spans.first[place] : spans.last[place]]
            goes_on[place] = self.measures.first_of[numbers[place]] not in part
        operations = [self._operations[number] for number in numbers]
        of_rates = ("gflops", "algorithm_gb_per_s", "bus_gb_per_s")
        rates = np.full((len(of_rates), len(numbers)), np.nan)
        for place in np.flatnonzero(~cut & ~goes_on).tolist():
            operation, whole_ns = operations[place], sums.timed_ns[numbers[place]]
            if operation.facts.phase == "run" and operation.facts.flop and whole_ns:
                rates[0, place] = np.nan if sums.untimed.get(numbers[place]) else operation.facts.flop / whole_ns
            moved = bandwidth(operation, 1, whole_ns)
            if moved is not None:
                rates[1:, place] = moved.algorithm, np.nan if moved.bus is None else moved.bus
        is_search = np.array([operation.facts.phase == "find" for operation in operations], bool)
        passes = self._pass_of[positions[spans.first]]
        lines = np.array([operation.line for operation in operations], np.int64)
        args: dict[str, Column] = {
            "percent_of_kernel_time": np.where(cut | is_search, np.nan, self._shares(passes, kernel_ns)),
            "cut": flags(cut),
            "goes_on": flags(goes_on),
            **dict(zip(of_rates, map(all_three_digits, rates), strict=True)),
            "kernel_ns": kernel_ns,
            "kernels": kernels,
            "operation": spans.numbers,
            "line": np.where(lines == 0, NO, lines),
            "range": flags(lines == 0),
            "sure": Pool((None, False), (is_search & self.measures.is_find_unsure).astype(np.int32)),
        }
        likes = [self._like(track, *one) for one in zip(operations, goes_on.tolist(), strict=True)]
        return self._columns(shift, positions, spans, likes, args)

    def _like(self, track: int, operation: Operation, goes_on: bool) -> Slice:
        """Return the part that an operation's slice shares with equal ones."""
        key = track, id(operation.facts), goes_on
        like = self._likes.get(key)
        if like is None:
            name, shared = self.shown(operation)
            if goes_on:
                shared = {key: value for key, value in shared.items() if key not in _OF_THE_WHOLE}
            like = self._likes[key] = Slice(track, 0, 0, name, "operation", NO_ARGS, shared)
        return like

    def shown(self, operation: Operation) -> tuple[str, dict[str, Any]]:
        """Return the name and the arguments that an operation shares with equal ones."""
        facts = operation.facts
        known = self._shown.get(id(facts))
        if known is not None:
            return known
        key = (
            id(facts if facts.problem is None else facts.problem), facts.api, facts.phase, facts.algorithm,
            facts.solver, facts.workspace_bytes, facts.dtype, facts.dtype_by, facts.mode, facts.flop, facts.bytes_min,
            facts.command, facts.primitive, facts.direction,
        )  # fmt: skip
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = operation_name(operation), operation_args(operation) | self._process
        # The run keeps its operations, so the identities of their facts represent them.
        self._shown[id(facts)] = found
        return found


# -- The arguments of operations, as the contract has them (trace-contract.md 2) ---------------------------------------


def gemm_args(gemm: Gemm) -> dict[str, int]:
    """Return ``{M, N, K, batch}``; ``batch`` only if it is more than 1."""
    sizes = {"M": gemm.m, "N": gemm.n, "K": gemm.k}
    if gemm.batch > 1:
        sizes["batch"] = gemm.batch
    return sizes


def source_args(operation: Operation) -> dict[str, Any]:
    """Return where an operation is stated: the log's line, or a range of the profile."""
    return {"line": operation.line} if operation.line else {"range": True}


_SHAPES = ("input", "weights", "output", "pad", "stride", "dilation", "window")


def operation_args(operation: Operation) -> dict[str, Any]:
    """Return the arguments of the operation, the most important first; others belong to its slice."""
    ran = operation.phase == "run"
    args = {
        "solver": operation.solver,
        "algorithm": operation.algorithm,
        **{key: shape_text(shape) for key in _SHAPES if (shape := getattr(operation, key))},
        "groups": operation.groups,
        "mode": operation.mode,
        "dtype": operation.dtype,
        "dtype_by": None if operation.dtype_by == "command" else operation.dtype_by,
        "layout": operation.layout,
        "workspace_bytes": operation.workspace_bytes,
        "flop": operation.flop if ran else None,
        "bytes_min": operation.bytes_min if ran else None,
        "command": operation.command,
        "message_bytes": None if operation.problem is None else operation.problem.message_bytes(),
        "gemm": None if operation.gemm is None else gemm_args(operation.gemm),
        "api": operation.api,
        "primitive": operation.primitive,
        "direction": operation.direction,
        "phase": operation.phase,
    }
    return {key: value for key, value in args.items() if value is not None and value != ""}
