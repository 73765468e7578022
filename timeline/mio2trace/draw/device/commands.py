"""Kernels and copies as slices: their names and arguments (trace-contract.md 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, repeat, zip_longest
from operator import attrgetter, sub
from typing import Any

from mio2trace.align import NONE, LayerRun, Links
from mio2trace.align.links import SURE
from mio2trace.draw.base import columns as columns_of
from mio2trace.draw.base import in_columns, size_text, three_digits, told
from mio2trace.draw.device.containers import gemm_args
from mio2trace.draw.framework import Nodes, execution_args, executions_of
from mio2trace.kernels import KernelFact, role
from mio2trace.kernels.names import kernel_name
from mio2trace.kernels.shown import slice_names
from mio2trace.measures import Measures
from mio2trace.measures.counters import measured, values_of
from mio2trace.measures.device_time.launches import queue_times
from mio2trace.model.profile import Activity, Counter, Execution
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.schema import recorded
from mio2trace.trace import NO_ARGS, Columns, Slice

_ALGORITHMS = frozenset(("Direct", "Winograd", "ImplicitGemm", "Gemm", "FFT", "Naive"))
_LINKS = ("operation_by", "layer_by", "sure", "doubt", "phase", "layer", "layer_index", "direction")
_NAME, _KIND = attrgetter("name"), attrgetter("kind")
_SIZES = attrgetter("grid"), attrgetter("workgroup"), attrgetter("opencl.offset"), attrgetter("resources")
_Shown = tuple[str, str, dict[str, Any]]
"""Name, category, arguments."""
_DOUBT = {(False, False): "", (True, False): "layer", (False, True): "operation", (True, True): "both"}
"""The links of an activity that have low confidence, by (layer, operation)."""


class Commands:
    """Makes the slice of each activity of a profile; equal ones share one object."""

    def __init__(self, measures: Measures, process: str = "") -> None:
        self._measures = measures
        self._process = {"process": process} if process else {}
        self._alignment = alignment = measures.alignment
        self._links, self._facts = alignment.links, alignment.facts
        self._activities = alignment.profile.activities
        self._operations = measures.operation_at
        self._stands_for = alignment.links.only_main()
        self.several = self._gemm_parts()
        """For each kernel that represents a GEMM of several kernels: their number, the sum of their times, the last
        end."""
        self._names: dict[object, tuple[object, dict[str, str]]] = {}
        self._named_at: dict[int, dict[str, str]] = {NONE: {}}
        self._shown_rows: dict[object, int] = {}
        self._alike: defaultdict[int, dict[object, Slice]] = defaultdict(dict)
        profile = alignment.profile
        self.slice_names = slice_names({one.name for one in self._activities if one.kind == "kernel"})
        self._numbers = profile.numbers
        self._counters = profile.counters
        called = {activity.call.name for activity in self._activities if activity.call is not None}
        self._has_graphs = any("GraphLaunch" in name for name in called)
        self._on_one_clock = all(device.clock == 0 for device in profile.devices)
        several = len(profile.threads) > 1
        self._tids = (
            [thread.index if thread.tid is None else thread.tid for thread in profile.threads] if several else []
        )
        self._lines: list[str | None] = [*map(str, profile.lines), None] if profile.line_of else []
        """The text of each place; -1 is none."""
        self._streams = {q.index: q.number for q in profile.queues if q.kind == "stream" and q.number is not None}
        self._executions = executions_of(alignment.profile)
        self._nodes = Nodes(alignment.profile, with_layers=False)  # links state these
        links = alignment.links
        self._doubted = links.layer_confidence.keys() | links.operation_confidence.keys()
        self._iterations = [pass_.number for pass_ in links.passes]
        self._has_more = bool(self._executions or links.layer_unsure or links.operation_unsure)

    def _gemm_parts(self) -> dict[int, tuple[int, int, int]]:
        """Return the GEMMs of several kernels (ViennaCL's blocks, clBLAS's tiles), by the kernel that represents each.

        The rate is that of the whole GEMM.
        """
        activities = self._alignment.profile.activities
        spans_of = {}
        for position, parts in self._measures.gemm_parts.items():
            cost = self._measures.of(parts)
            ends = [end for part in parts if (end := activities[part].end_ns) is not None]
            if cost.kernel_ns is not None:
                spans_of[position] = len(parts), cost.kernel_ns, max(ends)
        return spans_of

    def drawn(
        self,
        track: int,
        shift: int,
        positions: Sequence[int],
        begins: Sequence[int],
    ) -> Columns:
        """Return the commands at ``positions``.

        ``begins``: where in ``positions`` unbroken rows of one pass, one execution of a layer and one operation begin.
        ``shift``: from the device's times to the trace's.
        """
        links = self._links
        activities = [self._activities[position] for position in positions]
        starts = [activity.start_ns or 0 for activity in activities]
        durations = list(map(sub, [activity.end_ns or 0 for activity in activities], starts))
        facts: Sequence[KernelFact | None] = list(map(self._facts.get, positions)) if self._facts else ()
        wholes: Sequence[Operation | None] = ()
        if self._stands_for:
            stands_for, operation_of, at = self._stands_for, links.operation_of, self._operations.get
            wholes = [at(operation_of[place]) if stands_for[place] else None for place in positions]
        executions: Sequence[Execution | None] = ()
        if self._executions:
            executions = list(map(self._executions.get, positions))
        of_rows, iterations, operations = self._of_rows(positions, begins)
        tells: list[Iterable[object]] = [
            of_rows,
            map(_NAME, activities),
            map(_KIND, activities),
            # Sizes and facts are interned: comparing their identities is fast.
            *(map(id, map(of, activities)) for of in _SIZES),
            map(links.layer_by.__getitem__, positions),
            self._rare(activities, positions, executions),
        ]
        if self._operations:
            tells.append(map(links.operation_by.__getitem__, positions))
        if facts:
            tells.append(map(id, facts))
        if wholes:
            tells.append([None if whole is None else id(whole.problem) for whole in wholes])
        alike = self._alike[track]
        likes: list[Slice] = []
        for number, key in enumerate(zip(*tells, strict=True)):
            like = alike.get(key)
            if like is None:
                position = positions[number]
                whole = wholes[number] if wholes else None
                execution = executions[number] if executions else None
                shown = self._shown(activities[number], position, whole, execution)
                like = alike[key] = Slice(track, 0, 0, shown[0], shown[1], NO_ARGS, shown[2])
            likes.append(like)
        columns: dict[str, Sequence[Any]] = {}
        # Arguments that are equal in every iteration come before this one: a compressor takes all of them at once.
        if facts or wholes:
            columns |= self._rates(positions, durations, facts, wholes)
        columns |= self._own(activities)
        if executions:
            columns |= in_columns([{} if one is None else execution_args(one) for one in executions])
        columns |= {"iteration": iterations, "operation": operations}
        if self._doubted and not self._doubted.isdisjoint(positions):
            columns["layer_confidence"] = _confidences(links.layer_confidence, positions)
            columns["operation_confidence"] = _confidences(links.operation_confidence, positions)
        columns["line"] = [activity.line or None for activity in activities]
        queued = [activity.queued_ns for activity in activities]
        if queued.count(None) < len(queued):
            submitted = [activity.submit_ns for activity in activities]
            both = [None not in times for times in zip(queued, submitted, strict=True)]
            for name, times in (("queued_ns", queued), ("submit_ns", submitted)):
                columns[name] = [(ns or 0) + shift if has else None for ns, has in zip(times, both, strict=True)]
        return columns_of(likes, [start + shift for start in starts], durations, told(columns))

    def _of_rows(
        self, positions: Sequence[int], begins: Sequence[int]
    ) -> tuple[list[int], list[int | None], list[int | None]]:
        """Return for each command a number for the content of its row, the iteration, and the operation."""
        links, shown_rows, activities = self._links, self._shown_rows, self._activities
        rows: list[int] = []
        iterations: list[int | None] = []
        operations: list[int | None] = []
        for begin, end in pairwise([*begins, len(positions)]):
            position, count = positions[begin], end - begin
            pass_, run, index = links.pass_of[position], links.run_of[position], links.operation_of[position]
            layer = None if run == NONE else links.runs[run]
            named = self._named_at.get(index)
            if named is None:
                named = self._named(index)
            key = (
                -1 if layer is None else layer.layer_index,
                "" if layer is None else layer.direction,
                index == NONE,
                id(named),
                _shown_phase(links, pass_),
                activities[position].queue if self._streams else 0,
            )
            rows += [shown_rows.setdefault(key, len(shown_rows))] * count
            iterations += [self._iterations[pass_] if pass_ != NONE else None] * count
            operations += [index if index != NONE else None] * count
        return rows, iterations, operations

    def _rare(
        self, activities: Sequence[Activity], positions: Sequence[int], executions: Sequence[Execution | None]
    ) -> Iterable[object]:
        """Return further values that distinguish activities; few runs have any."""
        layers, operations = self._links.layer_unsure, self._links.operation_unsure
        if self._has_more:
            nodes = [None if one is None else one.node for one in executions] if executions else repeat(None)
            return [
                (position in layers, position in operations, activity.size_bytes, activity.route, node)
                for activity, position, node in zip(activities, positions, nodes, strict=False)
            ]
        return [None if one.kind == "kernel" else (one.size_bytes, one.route) for one in activities]

    def _shown(
        self,
        activity: Activity,
        position: int,
        whole: Operation | None,
        execution: Execution | None,
    ) -> _Shown:
        """Return name, category and the arguments that an activity shares with equal ones."""
        links = self._links
        run, named = links.run_of[position], self._named_at[links.operation_of[position]]
        layer = None if run == NONE else links.runs[run]
        shared = named | self._args(activity, layer, position, whole)
        if execution is not None:
            shared |= self._nodes.args(execution)
        shared = _links_last(shared) | self._process
        if activity.kind != "kernel":
            return activity.name, "copy", shared
        name = self.slice_names[activity.name]
        if activity.name and name != activity.name:
            shared["full_name"] = activity.name
        return name, "kernel", shared

    def _rates(
        self,
        positions: Sequence[int],
        durations: Sequence[int],
        facts: Sequence[KernelFact | None],
        wholes: Sequence[Operation | None],
    ) -> dict[str, Sequence[Any]]:
        """Return the rates of kernels; for a GEMM of several kernels that of all of them, with their number and total
        time."""
        rates: list[float | None] = [None] * len(positions)
        kernels: list[int | None] = [None] * len(positions)
        kernel_ns: list[int | None] = [None] * len(positions)
        for number, (fact, whole) in enumerate(zip_longest(facts, wholes)):
            ns = durations[number]
            if ns <= 0:
                continue
            if fact is not None and fact.gemm is not None:
                parts = self.several.get(positions[number])
                if parts is not None:
                    kernels[number], ns, _ = parts
                    kernel_ns[number] = ns
                rates[number] = three_digits(fact.gemm.flop / ns)
            elif whole is not None and whole.flop:
                rates[number] = three_digits(whole.flop / ns)
        return {"gflops": rates, "gemm_kernels": kernels, "gemm_ns": kernel_ns}

    def _named(self, index: int) -> dict[str, str]:
        """Return the first arguments of a kernel for a reader: its operation, and the solver."""
        operation = self._operations[index]
        key = id(operation.problem), operation.primitive, operation.direction, operation.phase, operation.solver
        named = self._names.get(key)
        if named is None:
            made = {"operation_name": operation_name(operation)}
            if operation.solver:
                made["solver"] = operation.solver
            # The problem is kept, so that its identity represents it.
            named = self._names[key] = operation.problem, made
        self._named_at[index] = named[1]
        return named[1]

    def _own(self, activities: Sequence[Activity]) -> dict[str, Sequence[Any]]:
        """Return the arguments that only this activity has."""
        numbers: list[int | None] = [activity.number for activity in activities]
        if self._numbers == "call_index":
            return {"call_index": numbers}
        if self._numbers == "dispatch_id":
            numbers = [one.number if one.kind == "kernel" else None for one in activities]
        columns: dict[str, Sequence[Any]] = {
            self._numbers: numbers,
            "correlation_id": [activity.correlation for activity in activities],
        }
        if self._has_graphs:
            columns["graph"] = [one.correlation if one.is_replayed else None for one in activities]
        columns["queue_time_ns"] = queue_times(activities, on_one_clock=self._on_one_clock)
        if self._tids:
            columns["tid"] = [None if one.call is None else self._tids[one.call.thread] for one in activities]
        if self._counters:
            columns |= in_columns([_counter_args(one, self._counters) if one.counters else {} for one in activities])
        if self._lines:
            nowhere, texts = (-1, -1), self._lines
            places = [self._alignment.profile.line_of.get(activity.number, nowhere) for activity in activities]
            columns["source"] = [texts[line if own < 0 else own] for line, own in places]
            columns["library_source"] = [None if own in (line, -1) else texts[line] for line, own in places]
        return columns

    def _args(
        self, activity: Activity, layer: LayerRun | None, position: int, whole: Operation | None
    ) -> dict[str, Any]:
        """Return the arguments that an activity shares with equal ones in other iterations."""
        args = self._link_args(activity, layer, position)
        if activity.queue in self._streams:
            args["stream"] = self._streams[activity.queue]
        if activity.kind != "kernel":
            if activity.size_bytes or not (self._streams or self._executions):
                args["bytes"] = activity.size_bytes
            if activity.route:
                args["copy_direction"] = activity.route
            return args
        args |= recorded(activity.resources, "slice")
        if activity.grid is not None:
            args["gws"] = size_text(activity.grid)
        if activity.workgroup is not None:
            args["lws"] = size_text(activity.workgroup)
        if activity.opencl.offset is not None:
            args["gwo"] = size_text(activity.opencl.offset)
        linked = self._alignment.links.operation_of[position] != NONE
        name = kernel_name(activity.name) if linked else None
        fact = self._alignment.facts.get(position)
        kernel_role = role(activity.name, fact) if linked else fact.role if fact is not None else ""
        if kernel_role:
            args["role"] = kernel_role
        if name is not None and name.algorithm in _ALGORITHMS:
            args["algorithm"] = name.algorithm
        return args | _work_args(fact, whole, is_gemm=name is not None and name.algorithm == "Gemm")

    def _link_args(self, activity: Activity, layer: LayerRun | None, position: int) -> dict[str, Any]:
        """Return the links of an activity, with their evidence."""
        links = self._alignment.links
        args: dict[str, Any] = {}
        if layer is not None:
            args["layer"] = layer.layer
            args["layer_index"] = layer.layer_index
            if layer.direction is not None:
                args["direction"] = layer.direction
            args["layer_by"] = links.layer_by[position]
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


def _confidences(of: Mapping[int, float], positions: Sequence[int]) -> list[float | None]:
    """Return the probability that each link is right, with two digits; nothing if it is 1."""
    told = map(of.get, positions)
    return [None if one is None or one >= SURE else round(one, 2) for one in told]


def _work_args(fact: KernelFact | None, whole: Operation | None, *, is_gemm: bool) -> dict[str, Any]:
    """Return the work of a kernel: by its own sizes, else that of the operation if it does all of it."""
    args: dict[str, Any] = {}
    if fact is not None and fact.gemm is not None:
        gemm = fact.gemm
        args["gemm"] = {"M": gemm.m, "N": gemm.n, "K": gemm.k}
        if gemm.batch > 1:
            args["gemm"]["batch"] = gemm.batch
        if fact.padded is not None:
            m, n, k = fact.padded
            args["padded"] = {"M": m, "N": n, "K": k}
        args["gemm_by"] = fact.gemm_by
        args["flop"] = gemm.flop
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
    """Return the values of hardware counters, and derived values. A counter is a fraction even if its value is
    whole."""
    known = measured(activity, counters).shown
    shown = {name: three_digits(value) if isinstance(value, float) else value for name, value in known.items()}
    parts = {"counters": values_of(activity, counters), "measured": shown}
    return {name: part for name, part in parts.items() if part}


def _links_last(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a kernel shares with equal kernels, then those that it shares with its neighbours: each
    group compresses as one."""
    links = {key: args[key] for key in _LINKS if key in args}
    return {key: value for key, value in args.items() if key not in links} | links
