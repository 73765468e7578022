"""The device's side: kernels and copies under layers under passes, one nested track per queue (trace-contract.md 1);
and their names and arguments (trace-contract.md 2).
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, LayerRun, Links
from mio2trace.align.links import SURE
from mio2trace.draw.base import (
    ROW,
    Ids,
    Nodes,
    TimeBase,
    all_three_digits,
    execution_columns,
    executions_of,
    in_columns,
    layer_args,
    merged,
    shared_slices,
    shifted,
    three_digits,
    told,
)
from mio2trace.draw.containers import Containers, Spans, gemm_args, packed, unbroken
from mio2trace.draw.selection import Chosen
from mio2trace.kernels import KernelFact, role
from mio2trace.kernels.names import kernel_name, slice_names
from mio2trace.measures import Measures
from mio2trace.measures.cost import measured, values_of
from mio2trace.measures.device_time import queued_ns
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, Profile, Queue
from mio2trace.model.profile import Counter as HardwareCounter
from mio2trace.model.tables import Codes, Pool, Value, combined, numbers, present, sorted_pool
from mio2trace.ops.operation import Operation, operation_name
from mio2trace.schema import recorded
from mio2trace.trace import NO, NO_ARGS, Column, Columns, Numbers, Process, Slice, Slices, Track

_ALGORITHMS = frozenset(("Direct", "Winograd", "ImplicitGemm", "Gemm", "FFT", "Naive"))
_LINKS = ("operation_by", "layer_by", "sure", "doubt", "phase", "layer", "layer_index", "direction")
_DOUBT = {(False, False): "", (True, False): "layer", (False, True): "operation", (True, True): "both"}
"""The links of an activity that have low confidence, by (layer, operation)."""


class Commands:
    """Makes the slice of each activity of a profile; equal ones share one object."""

    def __init__(self, measures: Measures, process: str = "") -> None:
        self._measures = measures
        self._process = {"process": process} if process else {}
        self._alignment = alignment = measures.alignment
        self._links, self._facts = alignment.links, alignment.facts
        self._commands = commands = alignment.profile.commands
        self._operations = measures.operation_at
        operation_of = np.asarray(self._links.operation_of)
        executed = [operation.index for operation in self._links.operations if operation.phase == "run"]
        helps = commands.name.where(lambda name: (meaning := kernel_name(name)) is not None and meaning.helps)
        mains = np.flatnonzero(np.isin(operation_of, executed) & ~helps)
        indexes, first, count = np.unique(operation_of[mains], return_index=True, return_counts=True)
        self._whole_of = np.full(len(commands), NONE, np.int32)
        self._whole_of[mains[first[count == 1]]] = indexes[count == 1]
        """The index of the operation of each kernel that does all of its work; `NONE` for the others."""
        self._has_work = bool(self._facts) or bool((self._whole_of != NONE).any())
        self.several = self._gemm_parts()
        """For each kernel that represents a GEMM of several kernels: their number, the sum of their times, the last
        end."""
        self._names: dict[tuple[str, str | None], dict[str, str]] = {}
        self._alike: defaultdict[int, dict[int, Slice]] = defaultdict(dict)
        profile = alignment.profile
        kernels = present(commands.name.codes[commands.is_kernel]).tolist()
        self.slice_names = slice_names({commands.name.values[code] for code in kernels})
        self._numbers = profile.numbers
        self._counters = profile.counters
        self._on_one_clock = all(device.clock == 0 for device in profile.devices)
        several = len(profile.threads) > 1
        tids = [thread.index if thread.tid is None else thread.tid for thread in profile.threads]
        self._tids = np.array(tids if several else [], np.int64)
        self._lines: list[str | None] = [*map(str, profile.lines), None] if profile.line_of else []
        """The text of each place; -1 is none."""
        self._streams = {q.index: q.number for q in profile.queues if q.kind == "stream" and q.number is not None}
        self._executions = executions_of(alignment.profile)
        self._nodes = Nodes(alignment.profile, with_layers=False)  # links state these
        links = alignment.links
        self._confidences = {
            f"{kind}_confidence": _told_of(confidence, len(commands))
            for kind, confidence in (("layer", links.layer_confidence), ("operation", links.operation_confidence))
            if confidence
        }
        self._iterations = numbers([*(pass_.number for pass_ in links.passes), None], len(links.passes) + 1)
        self._pass_of, self._operation_of = np.asarray(links.pass_of), np.asarray(links.operation_of)

    def _gemm_parts(self) -> dict[int, tuple[int, int, int]]:
        """Return GEMMs of several kernels (ViennaCL's blocks, clBLAS's tiles), by the kernel that represents each."""
        spans_of = {}
        for position, parts in self._measures.gemm_parts.items():
            cost = self._measures.of(parts)
            if cost.kernel_ns is not None:
                spans_of[position] = len(parts), cost.kernel_ns, int(self._commands.end_ns[list(parts)].max())
        return spans_of

    def drawn(self, track: int, shift: int, positions: Numbers) -> Columns:
        """Return the commands at ``positions``. ``shift``: from the device's times to the trace's."""
        commands = self._commands
        likes = shared_slices(self._keys, positions, self._alike[track], partial(self._like, track))
        durations = commands.end_ns[positions] - commands.start_ns[positions]
        columns: dict[str, Column] = {}
        # Values that are equal in every iteration come first: they compress best in one piece.
        if self._has_work:
            columns |= self._rates(positions, durations)
        columns |= self._own(positions)
        columns |= execution_columns(self._executions, positions)
        columns["iteration"] = self._iterations[self._pass_of[positions]]
        operations = self._operation_of[positions].astype(np.int64)  # `NO` has no place in fewer bits
        columns["operation"] = np.where(operations == NONE, NO, operations)
        columns |= {name: values[positions] for name, values in self._confidences.items()}
        columns["line"] = np.where(commands.line[positions] == 0, NO, commands.line[positions])
        queued, submitted = commands.queued_ns[positions], commands.submit_ns[positions]
        has_both = (queued != NO) & (submitted != NO)
        if has_both.any():
            for name, times in (("queued_ns", queued), ("submit_ns", submitted)):
                columns[name] = np.where(has_both, shifted(np.where(has_both, times, 0), shift), NO)
        return Columns(likes, shifted(commands.start_ns[positions], shift), durations, told(columns))

    @cached_property
    def _keys(self) -> Codes:
        """A number for each command: equal if the commands have everything in common that their likes show."""
        keys = np.zeros(len(self._commands), np.int64)
        for part in self._shown():
            if len(part) and part.min() != part.max():
                keys = combined(keys, part)
        return sorted_pool(keys).codes

    def _shown(self) -> Iterator[NDArray[Any]]:
        """Yield numbers for what the likes show, one after the other: each takes as much memory as a column."""
        links, commands, count = self._links, self._commands, len(self._commands)
        index = self._operation_of
        layers = links.runs.layers()
        yield np.append(layers.codes, len(layers.values))[np.asarray(links.run_of)]
        used = present(index[index != NONE])
        named = np.zeros(int(index.max(initial=NONE)) + 2, np.int64)
        # The shown values of operations are interned, so their identity distinguishes them.
        named[used + 1] = 1 + self._of_operations(used, lambda one: id(self._named(one))).codes
        yield named[index + 1]
        yield index == NONE
        phases = Pool.of([*(_shown_phase(links, number) for number in range(len(links.passes))), ""])
        yield phases.codes[self._pass_of]
        is_doubted = np.zeros(count, np.int8)
        is_doubted[list(links.layer_unsure)] += 1
        is_doubted[list(links.operation_unsure)] += 2
        yield commands.queue if self._streams else is_doubted
        yield commands.name.codes
        yield commands.kind
        yield commands.grid.codes
        yield commands.workgroup.codes
        yield Pool.of(launch.offset for launch in commands.opencl.values).codes[commands.opencl.codes]
        yield commands.resources.codes
        yield links.layer_by.column
        yield links.operation_by.column
        yield is_doubted
        has_more = ~commands.is_kernel | bool(self._executions or links.layer_unsure or links.operation_unsure)
        sizes = np.where(has_more, commands.size_bytes, 0)
        if sizes.any():
            yield np.unique(sizes, return_inverse=True)[1]
        yield np.where(has_more, commands.route.codes, 0)
        for objects in (
            {position: one.node for position, one in self._executions.items()},
            {position: id(one) for position, one in self._facts.items()},
        ):
            if objects:
                codes = np.zeros(count, np.int32)
                codes[list(objects)] = 1 + Pool.of(objects.values()).codes
                yield codes
        wholes = np.flatnonzero(self._whole_of != NONE)
        codes = np.zeros(count, np.int32)
        work = self._of_operations(self._whole_of[wholes], lambda one: (one.gemm, one.flop, one.bytes_min))
        codes[wholes] = 1 + work.codes
        yield codes

    def _like(self, track: int, position: int) -> Slice:
        """Return what an activity has in common with similar ones."""
        links, commands = self._links, self._commands
        run, named = links.run_of[position], self._named(self._operations.get(links.operation_of[position]))
        layer = None if run == NONE else links.runs[run]
        shared = named | self._args(layer, position)
        execution = self._executions.get(position)
        if execution is not None:
            shared |= self._nodes.args(execution)
        shared = _links_last(shared) | self._process
        name = _at(commands.name, position)
        if not commands.is_kernel[position]:
            return Slice(track, 0, 0, name, "copy", NO_ARGS, shared)
        shown = self.slice_names[name]
        if name and shown != name:
            shared["full_name"] = name
        return Slice(track, 0, 0, shown, "kernel", NO_ARGS, shared)

    def _rates(self, positions: Numbers, durations: Numbers) -> dict[str, Column]:
        """Return the rates of kernels. Kernels of one GEMM have a common rate, their number, the sum of their times."""
        flop, kernels, kernel_ns = self._work
        kernels = np.where(durations > 0, kernels[positions], NO)
        kernel_ns = np.where(kernels == NO, NO, kernel_ns[positions])
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(durations > 0, flop[positions] / np.where(kernels == NO, durations, kernel_ns), np.nan)
        return {"gflops": all_three_digits(rates), "gemm_kernels": kernels, "gemm_ns": kernel_ns}

    @cached_property
    def _work(self) -> tuple[NDArray[np.float64], Numbers, Numbers]:
        """Each activity's work in FLOP; for kernels of one GEMM also their number and the sum of their times."""
        count = len(self._commands)
        flop, kernels, kernel_ns = np.full(count, np.nan), np.full(count, NO), np.full(count, NO)
        wholes = np.flatnonzero(self._whole_of != NONE)
        flop_of = self._of_operations(self._whole_of[wholes], lambda one: one.flop or np.nan)
        flop[wholes] = np.array(flop_of.values, float)[flop_of.codes]
        for position, fact in self._facts.items():
            if fact.gemm is not None:
                flop[position] = fact.gemm.flop
                if position in self.several:
                    kernels[position], kernel_ns[position], _ = self.several[position]
        return flop, kernels, kernel_ns

    def _of_operations(self, indexes: NDArray[Any], told: Callable[[Operation], Value]) -> Pool[Value]:
        """Return what is told of operations by their facts, which many share; equal values become one."""
        shared = self._measures.shared.take(indexes)
        values = Pool.of(map(told, shared.values))
        return Pool(values.values, values.codes[shared.codes])

    def _named(self, operation: Operation | None) -> dict[str, str]:
        """Return the first arguments of a kernel for a reader: its operation, and the solver."""
        if operation is None:
            return {}
        key = operation_name(operation), operation.solver
        named = self._names.get(key)
        if named is None:
            named = self._names[key] = {"operation_name": key[0]} | ({"solver": key[1]} if key[1] else {})
        return named

    def _own(self, positions: Numbers) -> dict[str, Column]:
        """Return what an activity has for itself, whatever it belongs to."""
        commands = self._commands
        number = commands.number[positions]
        if self._numbers == "call_index":
            return {"call_index": number}
        if self._numbers == "dispatch_id":
            number = np.where(commands.is_kernel[positions], number, NO)
        correlation = commands.correlation[positions]
        columns: dict[str, Column] = {
            self._numbers: number,
            "correlation_id": correlation,
            "graph": np.where(commands.is_replayed[positions], correlation, NO),
            "queue_time_ns": self._queue_times[positions],
        }
        if len(self._tids):
            columns["tid"] = np.where(commands.call[positions] < 0, NO, self._tids[commands.thread[positions]])
        if self._counters:
            activities = map(self._alignment.profile.activities.__getitem__, positions.tolist())
            columns |= in_columns([_counter_args(one, self._counters) if one.counters else {} for one in activities])
        if self._lines:
            places = [self._alignment.profile.line_of.get(at, (-1, -1)) for at in commands.number[positions].tolist()]
            line, own = np.array(places, np.int32).reshape(-1, 2).T
            columns["source"] = Pool(self._lines, np.where(own < 0, line, own) % len(self._lines))
            columns["library_source"] = Pool(
                self._lines, np.where((own == line) | (own == -1), -1, line) % len(self._lines)
            )
        return columns

    @cached_property
    def _queue_times(self) -> Numbers:
        return queued_ns(self._commands, on_one_clock=self._on_one_clock)

    def _args(self, layer: LayerRun | None, position: int) -> dict[str, Any]:
        """Return the arguments that an activity shares with similar ones in other iterations."""
        commands = self._commands
        args = self._link_args(layer, position)
        queue = int(commands.queue[position])
        if queue in self._streams:
            args["stream"] = self._streams[queue]
        if not commands.is_kernel[position]:
            size, route = int(commands.size_bytes[position]), _at(commands.route, position)
            if size:
                args["bytes"] = size
            if route:
                args["copy_direction"] = route
            return args
        args |= recorded(_at(commands.resources, position), "slice")
        offset = _at(commands.opencl, position).offset
        for key, of_kernel in (
            ("gws", _at(commands.grid, position)),
            ("lws", _at(commands.workgroup, position)),
            ("gwo", offset),
        ):
            if of_kernel is not None:
                args[key] = "x".join(map(str, of_kernel))
        linked = self._links.operation_of[position] != NONE
        full_name = _at(commands.name, position)
        name = kernel_name(full_name) if linked else None
        fact = self._facts.get(position)
        kernel_role = role(full_name, fact) if linked else fact.role if fact is not None else ""
        if kernel_role:
            args["role"] = kernel_role
        if name is not None and name.algorithm in _ALGORITHMS:
            args["algorithm"] = name.algorithm
        is_gemm = name is not None and name.algorithm == "Gemm"
        return args | _work_args(fact, self._operations.get(int(self._whole_of[position])), is_gemm=is_gemm)

    def _link_args(self, layer: LayerRun | None, position: int) -> dict[str, Any]:
        """Return the links of an activity, with their evidence."""
        links = self._alignment.links
        args = {} if layer is None else layer_args(layer) | {"layer_by": links.layer_by[position]}
        linked = links.operation_of[position] != NONE
        if linked:
            args["operation_by"] = links.operation_by[position]
        doubt = _DOUBT[position in links.layer_unsure, position in links.operation_unsure]
        if doubt:
            args["sure"] = False
            args["doubt"] = doubt
        pass_ = links.pass_of[position]
        phase = _shown_phase(links, pass_)
        if phase:
            args["phase"] = phase
        return args


def _shown_phase(links: Links, pass_: int) -> str:
    """Return the phase of an activity in no iteration and no warm-up."""
    phase = links.passes[pass_].phase if pass_ != NONE else ""
    return "" if phase in ("iteration", "warm-up") else phase


def _at(pool: Pool[Any], position: int) -> Any:
    return pool.values[pool.codes[position]]


def _told_of(confidence: Mapping[int, float], count: int) -> NDArray[np.float64]:
    """Return the probability that each link is right, with two digits; none if it is 1."""
    told_of = np.full(count, np.nan)
    for position, one in confidence.items():
        if one < SURE:
            told_of[position] = round(one, 2)
    return told_of


def _work_args(fact: KernelFact | None, whole: Operation | None, *, is_gemm: bool) -> dict[str, Any]:
    """Return the work of a kernel: by its own sizes, else that of the operation if it does all of it."""
    if fact is not None and fact.gemm is not None:
        padded = {} if fact.padded is None else {"padded": gemm_args(Gemm(*fact.padded))}
        return {"gemm": gemm_args(fact.gemm), **padded, "gemm_by": fact.gemm_by, "flop": fact.gemm.flop}
    if whole is None:
        return {}
    gemm = {"gemm": gemm_args(whole.gemm), "gemm_by": "operation"} if whole.gemm is not None and is_gemm else {}
    work = {"flop": whole.flop, "bytes_min": whole.bytes_min}
    return gemm | {name: value for name, value in work.items() if value is not None}


def _counter_args(activity: Activity, counters: Sequence[HardwareCounter]) -> dict[str, Any]:
    """Return values of hardware counters, and derived ones. A counter is a fraction even if its value is whole."""
    known = measured(activity, counters).shown
    shown = {name: three_digits(value) if isinstance(value, float) else value for name, value in known.items()}
    parts = {"counters": values_of(activity, counters), "measured": shown}
    return {name: part for name, part in parts.items() if part}


def _links_last(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a kernel shares with equal kernels, then those that it shares with its neighbours: each
    group compresses as one."""
    links = {key: args[key] for key in _LINKS if key in args}
    return {key: value for key, value in args.items() if key not in links} | links


APART = 0.1
"""A stream with at least this part of a device's kernel time is shown even if the group of the device is closed."""
Fold = Literal["find", "set-up", "warm-up"]
"""Work that may have a track of its own, so that the iterations are alone on theirs: searches, all work before the
warm-up, the warm-up."""
_FOLDED = {"find": "", "set-up": "setup", "warm-up": "warm-up"}
"""By the name of a folded part, its phase."""

_AT_ONCE = ROW // 2
"""The commands of a lane that are drawn at once; their containers are as many again."""
_Lane = tuple[int, int, str]
"""(queue, overflow lane, the folded part or nothing)."""

_HELP = (
    "Commands of one device, on its own clock; no time is altered. Kernels and copies are in their operations, these "
    "in their layers, those in the passes of the run; a level that is not known is left out."
)
_HELP_NESTED = (
    "Kernels and copies (innermost) in their operations and layers. Arguments name the evidence of each link "
    "(layer_by, operation_by); links of low confidence have sure = false."
)
_NO_TIME = "commands without length"
_HELP_NO_TIME = "Kernels and copies that took no time by the device's clock, each when another of the same queue began."
_HELP_OVERFLOW = "Kernels and copies that ran while others of the same queue did."
_HELP_FOLDED = "Work outside of the iterations, on its own track because of --fold."


_NONE = np.zeros(0, np.int64)
_NO_SPANS = Spans(_NONE, _NONE, _NONE, np.zeros(0, np.bool_))


class DeviceSide:
    """Draws one profile's activities that have device times. Overlaps that do not nest go to overflow lanes.

    ``process_of``: numbers of the devices' processes. ``track_of``: numbers of their lanes; viewers show them beside
    the names. ``fold``: parts of the run on tracks of their own. ``measures``: of the profile. ``process``:
    distinguishes its slices from those of other processes.
    """

    def __init__(
        self,
        measures: Measures,
        base: TimeBase,
        device_name: str,
        suffix: str,
        ids: Ids,
        fold: frozenset[Fold] = frozenset(),
        *,
        process: str = "",
    ) -> None:
        self.measures = measures
        self._alignment = alignment = measures.alignment
        links = alignment.links
        self._has_operations = links.has_operations  # searched once, not in each lane
        self._commands = alignment.profile.commands
        self._pass_of = np.asarray(links.pass_of)
        self._operation_of = np.asarray(links.operation_of)
        self._levels = [
            self._pass_of if links.passes else None,
            np.asarray(links.run_of) if links.runs else None,
            self._operation_of if self._has_operations else None,
        ]
        self._chosen: Chosen | None = None
        self._fold = fold
        self._base = base
        self._suffix = suffix
        self._device_name = device_name
        self._device_of = {queue.index: queue.device for queue in alignment.profile.queues}
        self._operations = measures.operation_at
        self.containers = Containers(measures, process)
        self.commands = Commands(measures, process)
        self._bare: set[_Lane] = set()
        self._lanes = self._pack()
        self.process_of: dict[int, int] = {}
        self._tracks: dict[_Lane, int] = {}
        lanes_of: dict[int, list[_Lane]] = {}
        for lane in self._lanes:
            lanes_of.setdefault(self._device_of.get(lane[0], 0), []).append(lane)
        for device in sorted({queue.device for queue in alignment.profile.queues} or {0}):
            self.process_of[device] = track = ids.take(ids.device)
            for lane in lanes_of.get(device, ()):
                self._tracks[lane] = track = ids.take(track + 1)
            ids.device = track - track % 100 + 100
        self.track_of = np.zeros(len(self._commands), np.int32)
        """The track of each activity with device times."""
        for lane, positions in self._lanes.items():
            self.track_of[positions] = self._tracks[lane]
        starts, self.indistinct = self._commands.start_ns, np.zeros(len(self._commands), np.bool_)
        """Whether an activity has no length and begins together with another one on its lane."""
        for positions in map(self._lanes.__getitem__, self._bare):
            pairs = np.flatnonzero(starts[positions[1:]] == starts[positions[:-1]])
            self.indistinct[positions[pairs]] = self.indistinct[positions[pairs + 1]] = True

    def show_only(self, chosen: Chosen) -> None:
        """Draw only the chosen part from now on; numbers and lanes stay."""
        self._chosen = chosen

    def _pack(self) -> dict[_Lane, Numbers]:
        """Return the positions of each lane in order of start; folded parts come last."""
        timed = np.flatnonzero(self._commands.start_ns != NO).astype(np.int32)
        queue = self._commands.queue[timed]
        rows = {("", number): timed[queue == number] for number in present(queue).tolist()}
        if self._fold:
            order = ["", *_FOLDED]
            folded = self._folded()
            rows = {
                (name, queue): positions[folded[positions] == number]
                for number, name in enumerate(order)
                for (_, queue), positions in rows.items()
            }
        lanes: dict[_Lane, Numbers] = {}
        for lane in packed(self._commands, {row: positions for row, positions in rows.items() if len(positions)}):
            name, queue = lane.row
            lanes[queue, lane.number, name] = lane.positions
            if lane.bare:
                self._bare.add((queue, lane.number, name))
        return lanes

    def _folded(self) -> NDArray[np.int64]:
        """Return for each activity the place of its track in ``_FOLDED``, from 1; 0 for the track of its queue."""
        links = self._alignment.links
        places = {phase: place for place, (name, phase) in enumerate(_FOLDED.items(), 1) if name in self._fold}
        folded: NDArray[np.int64] = np.array([*(places.get(one.phase, 0) for one in links.passes), 0])[self._pass_of]
        if "find" in self._fold:
            searches = [index for index, operation in self._operations.items() if operation.phase == "find"]
            folded[np.isin(self._operation_of, searches)] = 1
        return folded

    def bounds(self) -> Iterator[int]:
        """Yield when the first slice of each lane begins, and when the last one ends."""
        for (queue, _, _), positions in self._lanes.items():
            drawn = positions if self._chosen is None else positions[self._chosen.drawn[positions]]
            if len(drawn):
                for at in (self._commands.start_ns[drawn[0]], self._commands.end_ns[drawn[-1]]):
                    yield self._base.device(self._device_of.get(queue, 0), int(at))

    def begins(self) -> Iterator[int]:
        """Yield when the first slice of each lane begins, a container or a command."""
        for lane in self._shown_lanes:
            spans_of, commands = next(self._chunks(lane))
            first = min(each[0] for each in (*(spans.first for spans in spans_of), commands) if len(each))
            start = int(self._commands.start_ns[self._lanes[lane][first]])
            yield self._base.device(self._device_of.get(lane[0], 0), start)

    def processes(self) -> list[Process]:
        devices: dict[int, set[int]] = {}
        for queue, _, _ in self._shown_lanes:
            devices.setdefault(self._device_of.get(queue, 0), set()).add(queue)
        logged = self._device_name if len(devices) == 1 else ""
        result = []
        for device, queues in sorted(devices.items()):
            name = device_name(self._alignment.profile, device, queues, logged) + self._suffix
            result.append(Process(id=self.process_of[device], name=name, sort=-10 + device, description=_HELP))
        return result

    def tracks(self) -> list[Track]:
        several = len({queue for queue, _, _ in self._lanes}) > 1
        levels = "layers > " * bool(self._alignment.links.runs) + "operations > " * self._has_operations
        usual, names = f"{levels}kernels", row_names(self._alignment.profile)
        result = []
        for key in self._shown_lanes:
            queue, lane, folded = key
            what = _NO_TIME if key in self._bare else usual
            row, is_named = names.get(queue, (f"queue {queue}", False))
            name = f"{row[0].upper()}{row[1:]}: {what}" if several or is_named else what[0].upper() + what[1:]
            if folded:
                name = f"{folded.capitalize()}{f', {row}' if several or is_named else ''}: {what}"
            help_ = _HELP_OVERFLOW if lane else _HELP_FOLDED if folded else _HELP_NESTED
            track = self._tracks[key]
            result.append(
                Track(
                    id=track,
                    process=self.process_of[self._device_of.get(queue, 0)],
                    name=f"{name} ({lane + 1})" if lane and key not in self._bare else name,
                    sort=track,
                    description=_HELP_NO_TIME if key in self._bare else help_,
                    main=key in self._main,
                    apart=key in self._apart,
                    brief=f"{row[0].upper()}{row[1:]}" if (several or is_named) and not (lane or folded) else "",
                )
            )
        return result

    @functools.cached_property
    def _main(self) -> set[_Lane]:
        """Return the lane of each device with the most commands."""
        most: dict[int, _Lane] = {}
        for lane in self._shown_lanes:
            if lane[1:] == (0, ""):
                device = self._device_of.get(lane[0], 0)
                most[device] = max(most.get(device, lane), lane, key=lambda one: len(self._lanes[one]))
        return set(most.values())

    @functools.cached_property
    def _apart(self) -> set[_Lane]:
        """Return other lanes with more than `APART` of a device's kernel time, such as collectives'."""
        lanes = [lane for lane in self._shown_lanes if lane[1:] == (0, "")]
        several = Counter(self._device_of.get(lane[0], 0) for lane in lanes)
        took: dict[_Lane, float] = {}
        of_device: dict[int, float] = defaultdict(float)
        for lane in lanes:
            device = self._device_of.get(lane[0], 0)
            if several[device] > 1:
                own = self._lanes[lane]
                took[lane] = float(self._commands.time_ns[own][self._commands.is_kernel[own]].sum(dtype=np.float64))
                of_device[device] += took[lane]
        large = {lane for lane, ns in took.items() if ns > APART * of_device[self._device_of.get(lane[0], 0)]}
        return large - self._main

    def apart(self) -> Iterator[tuple[int, str, int, Numbers]]:
        """Return for each lane that is shown apart: device, name of its row, track, positions in order of start."""
        names = row_names(self._alignment.profile)
        for lane in self._shown_lanes:
            if lane in self._apart:
                name, _ = names.get(lane[0], (f"queue {lane[0]}", False))
                yield self._device_of.get(lane[0], 0), name, self._tracks[lane], self._lanes[lane]

    @functools.cached_property
    def counter_tracks(self) -> dict[int, int]:
        """By process, the track beside which a device's counters belong: its main one, or the first drawn one."""
        beside: dict[int, int] = {}
        for track in self.tracks():
            if track.main or track.process not in beside:
                beside[track.process] = track.id
        return beside

    @functools.cached_property
    def _shown_lanes(self) -> list[_Lane]:
        return [lane for lane in self._lanes if self._chosen is None or next(self._chunks(lane), None) is not None]

    def events(self, origin: int) -> Iterator[Slices]:
        """Yield the commands of each lane in columns, with their containers among them."""
        of_level = self.containers.passes, self.containers.layers, self.containers.operations
        for lane in self._shown_lanes:
            track, positions = self._tracks[lane], self._lanes[lane]
            shift = self._base.shift.get(self._device_of.get(lane[0], 0), 0) - origin
            for spans_of, commands in self._chunks(lane):
                columns: list[Columns] = []
                places: list[Numbers] = []
                for level, (make, spans) in enumerate(zip(of_level, spans_of, strict=True)):
                    if len(spans):
                        columns.append(make(track, shift, positions, spans))
                        places.append(4 * spans.first + level)
                if len(commands):
                    columns.append(self.commands.drawn(track, shift, positions[commands]))
                    places.append(4 * commands + 3)
                yield Slices(track, columns, merged(*places) if len(columns) > 1 else None)

    def rows(self) -> Iterator[tuple[int, int, Numbers, Numbers]]:
        """Return (device, operation or `NONE`, chosen part, the drawn ones) of each unbroken row with a drawn one."""
        chosen = self._chosen
        for (queue, _, _), positions in self._lanes.items():
            operations = self._operation_of[positions]
            for first, last in pairwise(unbroken(operations).tolist()):
                row = drawn = positions[first:last]
                if chosen is not None:
                    row, drawn = row[chosen.inside[row]], row[chosen.drawn[row]]
                if len(drawn):
                    yield self._device_of.get(queue, 0), int(operations[first]), row, drawn

    def unbroken_rows(self) -> Iterator[tuple[int, Numbers, Numbers, Numbers, Numbers]]:
        """Return of each lane the device, the operations of its unbroken rows with a drawn command, the first and the
        last position of each, and the drawn positions without operation."""
        for (queue, _, _), positions in self._lanes.items():
            operations = self._operation_of[positions]
            borders = unbroken(operations)
            drawn = np.ones(len(positions), bool) if self._chosen is None else self._chosen.drawn[positions]
            kept = np.flatnonzero((operations[borders[:-1]] != NONE) & np.logical_or.reduceat(drawn, borders[:-1]))
            firsts, lasts = borders[kept], borders[kept + 1] - 1
            outside = positions[drawn & (operations == NONE)]
            device = self._device_of.get(queue, 0)
            yield device, operations[firsts].astype(np.int64), positions[firsts], positions[lasts], outside

    def positions(self) -> dict[int, Numbers]:
        """Return device -> its activities with times, in order of start."""
        found: dict[int, list[Numbers]] = {}
        for (queue, _, _), positions in self._lanes.items():
            found.setdefault(self._device_of.get(queue, 0), []).append(positions)
        ordered: dict[int, Numbers] = {}
        for device, lanes in sorted(found.items()):
            ordered[device] = positions = lanes[0]
            if len(lanes) > 1:
                positions = np.concatenate(lanes)
                ordered[device] = positions[np.lexsort((positions, self._commands.start_ns[positions]))]
        return ordered

    def _chunks(self, lane: _Lane) -> Iterator[tuple[Sequence[Spans], Numbers]]:
        """Yield the drawn slices of a lane, a limited number at once: the passes, layers and operations that begin with
        one of some commands, and these commands by their number in the lane. A container spans an unbroken row of its
        activities.

        Commands without length are drawn one by one.
        """
        positions, chosen = self._lanes[lane], self._chosen
        begin, end = (0, len(positions)) if chosen is None else self._around(chosen, positions)
        is_first = np.full(end - begin, lane in self._bare)
        levels: list[Spans] = []
        for key_of in self._levels:
            if key_of is None:
                levels.append(_NO_SPANS)
                continue
            keys = key_of[positions[begin:end]]
            is_first |= np.append(True, keys[1:] != keys[:-1])[: len(keys)]
            begins = np.flatnonzero(is_first)
            numbers = keys[begins].astype(np.int64)
            begins += begin
            spans = Spans(numbers, begins, np.append(begins[1:], end), np.zeros(len(begins), np.bool_))
            spans = spans.take(spans.numbers != NONE)
            levels.append(spans if chosen is None else self._narrowed(chosen, positions, spans))
        for first in range(begin - begin % _AT_ONCE, end, _AT_ONCE):
            last = min(first + _AT_ONCE, len(positions))
            spans_of = [spans.take(slice(*np.searchsorted(spans.first, (first, last)))) for spans in levels]
            commands = np.arange(first, last)
            if chosen is not None:
                commands = commands[chosen.drawn[positions[first:last]]]
            if len(commands) or any(map(len, spans_of)):
                yield spans_of, commands

    def _around(self, chosen: Chosen, positions: Numbers) -> tuple[int, int]:
        """Return the begin and end of the commands of a lane inside a selection, with all of the containers there."""
        inside = np.flatnonzero(chosen.inside[positions])
        if not len(inside):
            return 0, 0
        begin, end = int(inside[0]), int(inside[-1]) + 1
        key_of = next((key_of for key_of in self._levels if key_of is not None), None)
        if key_of is None:
            return begin, end
        keys = key_of[positions]
        other = np.flatnonzero(keys[:begin] != keys[begin]), np.flatnonzero(keys[end:] != keys[end - 1])
        return int(other[0][-1]) + 1 if len(other[0]) else 0, end + int(other[1][0]) if len(other[1]) else len(keys)

    def _narrowed(self, chosen: Chosen, positions: Numbers, spans: Spans) -> Spans:
        """Return the parts of containers that are inside the selection, also unbroken rows: of each that is drawn, for
        one of its commands or for its own length."""
        inside = np.flatnonzero(chosen.inside[positions])
        since, until = np.searchsorted(inside, (spans.first, spans.last))
        is_inside = since < until
        since, until, spans = since[is_inside], until[is_inside], spans.take(is_inside)
        begin, end = inside[since], inside[until - 1] + 1
        ns = self._commands.end_ns[positions[end - 1]] - self._commands.start_ns[positions[begin]]
        drawn = np.searchsorted(np.flatnonzero(chosen.drawn[positions]), (begin, end))
        is_drawn = (drawn[0] < drawn[1]) | ((ns >= chosen.min_ns) & (not chosen.longest_only))
        return Spans(spans.numbers, begin, end, end - begin < spans.last - spans.first).take(is_drawn)


# -- The names of devices and their rows: from the profiler; OpenCL's have only numbers --------------------------------


def device_name(profile: Profile, device: int, queues: Collection[int], logged: str) -> str:
    """Return the name of a device from the profiler, in a job ``GPU 0 of rank 1 (AMD Instinct MI300X)``. OpenCL devices
    have no names: the log's name (``logged``) is used, else their queues."""
    if profile.calls_wait or device >= len(profile.devices):
        numbers = ", ".join(map(str, sorted(queues)))
        own = logged or f"OpenCL queue{'s' if len(queues) > 1 else ''} {numbers}"
        name = f"{'GPU 0' if logged else 'Device'} ({own})"
    elif profile.framework.nodes and profile.devices[device].name:  # numbered like the framework's
        name = profile.devices[device].name
    else:
        number: int | str | None = profile.devices[device].number
        if number is None:  # a device without the profiler's number, if others have one, is none of those
            numbered = any(one.number is not None for one in profile.devices)
            number = f"without number {device}" if numbered else device
        own = profile.devices[device].name or logged
        name = f"GPU {number} ({own})" if own and own != f"GPU {number}" else f"GPU {number}"
    head, bracket, rest = name.partition(" (")
    return f"{head} of {profile.process.label}{bracket}{rest}" if profile.process.label else name


def row_names(profile: Profile) -> dict[int, tuple[str, bool]]:
    """Return names by queue: ``queue 0``; for a stream the profiler's number or name, which is then always recorded. If
    another queue of the device has that name, the number of the queue is added."""
    own = {queue.index: _own_name(queue) for queue in profile.queues}
    several = Counter((queue.device, own[queue.index][0]) for queue in profile.queues)
    return {
        queue.index: (f"{own[queue.index][0]}, queue {queue.index}", True)
        if several[queue.device, own[queue.index][0]] > 1
        else own[queue.index]
        for queue in profile.queues
    }


def _own_name(queue: Queue) -> tuple[str, bool]:
    if queue.name:
        return queue.name, True
    if queue.kind == "stream":
        return f"stream {queue.index if queue.number is None else queue.number}", False
    return f"queue {queue.index}", False
