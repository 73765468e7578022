"""Kernels and copies as slices: their names and arguments (trace-contract.md 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, LayerRun, Links
from mio2trace.align.links import SURE
from mio2trace.draw.base import (
    all_three_digits,
    in_columns,
    layer_args,
    shared_slices,
    shifted,
    size_text,
    three_digits,
    told,
)
from mio2trace.draw.device.containers import gemm_args
from mio2trace.draw.framework import Nodes, execution_columns, executions_of
from mio2trace.kernels import KernelFact, role
from mio2trace.kernels.names import kernel_name, slice_names
from mio2trace.measures import Measures
from mio2trace.measures.counters import measured, values_of
from mio2trace.measures.device_time.launches import queued_ns
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, Counter
from mio2trace.model.tables import Codes, Pool, Value, combined, numbers, present, sorted_pool
from mio2trace.model.tables import distinct as rows_of
from mio2trace.ops.operation import Operation, operation_name
from mio2trace.schema import recorded
from mio2trace.trace import NO, NO_ARGS, Column, Columns, Numbers, Slice

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
        self.several = self._gemm_parts()
        """For each kernel that represents a GEMM of several kernels: their number, the sum of their times, the last
        end."""
        self._names: dict[object, tuple[object, dict[str, str]]] = {}
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
        # Whatever is the same in every iteration comes before this: a compressor takes all of it at once.
        if self._facts or (self._whole_of != NONE).any():
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
        runs = Pool.of((run.layer_index, run.direction) for run in links.runs)
        yield np.append(runs.codes, len(runs.values))[np.asarray(links.run_of)]
        used = present(index[index != NONE])
        named = np.zeros(int(index.max(initial=NONE)) + 2, np.int64)
        # What operations show is interned: its identity distinguishes it.
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
        codes[wholes] = 1 + self._of_operations(self._whole_of[wholes], lambda one: id(one.problem)).codes
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
        """Return the rates of kernels; of a GEMM of several: that of all, their number, the sum of their times."""
        flop, kernels, kernel_ns = self._work
        kernels = np.where(durations > 0, kernels[positions], NO)
        kernel_ns = np.where(kernels == NO, NO, kernel_ns[positions])
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(durations > 0, flop[positions] / np.where(kernels == NO, durations, kernel_ns), np.nan)
        return {"gflops": all_three_digits(rates), "gemm_kernels": kernels, "gemm_ns": kernel_ns}

    @cached_property
    def _work(self) -> tuple[NDArray[np.float64], Numbers, Numbers]:
        """For each activity its work in FLOP; of a GEMM of several kernels their number and the sum of their times."""
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
        facts = Pool.of(id(self._operations[index].facts) for index in indexes.tolist())
        first, _ = rows_of(facts.codes)
        values = Pool.of(told(self._operations[index]) for index in indexes[first].tolist())
        return Pool(values.values, values.codes[facts.codes])

    def _named(self, operation: Operation | None) -> dict[str, str]:
        """Return the first arguments of a kernel for a reader: its operation, and the solver."""
        if operation is None:
            return {}
        key = id(operation.problem), operation.primitive, operation.direction, operation.phase, operation.solver
        named = self._names.get(key)
        if named is None:
            made = {"operation_name": operation_name(operation)}
            if operation.solver:
                made["solver"] = operation.solver
            # The problem is kept, so that its identity represents it.
            named = self._names[key] = operation.problem, made
        return named[1]

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
            if size or not (self._streams or self._executions):
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
                args[key] = size_text(of_kernel)
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
    args: dict[str, Any] = {}
    if fact is not None and fact.gemm is not None:
        args["gemm"] = gemm_args(fact.gemm)
        if fact.padded is not None:
            args["padded"] = gemm_args(Gemm(*fact.padded))
        args["gemm_by"] = fact.gemm_by
        args["flop"] = fact.gemm.flop
    elif whole is not None:
        if whole.gemm is not None and is_gemm:
            args["gemm"] = gemm_args(whole.gemm)
            args["gemm_by"] = "operation"
        if whole.flop is not None:
            args["flop"] = whole.flop
        if whole.bytes_min is not None:
            args["bytes_min"] = whole.bytes_min
    return args


def _counter_args(activity: Activity, counters: Sequence[Counter]) -> dict[str, Any]:
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
