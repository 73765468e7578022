"""Kernels and copies as slices: their names and arguments (trace-contract.md 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from mio2trace.align import NONE, LayerRun, Links
from mio2trace.align.links import SURE
from mio2trace.draw.base import size_text, three_digits
from mio2trace.draw.framework import Nodes, execution_args, executions_of
from mio2trace.draw.operations import gemm_args
from mio2trace.kernels import KernelFact, role
from mio2trace.kernels.names import kernel_name
from mio2trace.kernels.shown import slice_names
from mio2trace.measures import Measures
from mio2trace.measures.counters import measured, values_of
from mio2trace.measures.launch_times import queue_ns
from mio2trace.model.profile import Activity, Counter, Execution
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.schema import recorded
from mio2trace.trace import Slice

_ALGORITHMS = frozenset(("Direct", "Winograd", "ImplicitGemm", "Gemm", "FFT", "Naive"))
_LINKS = ("operation_by", "layer_by", "sure", "doubt", "phase", "layer", "layer_index", "direction")
_LOOK = attrgetter("name", "kind", "grid", "workgroup", "resources", "size_bytes", "route", "line", "opencl.offset")
_Shown = tuple[str, str, dict[str, Any]]
"""Name, category, arguments."""
_DOUBT = {(False, False): "", (True, False): "layer", (False, True): "operation", (True, True): "both"}
"""Which links of an activity are not sure, by (layer, operation)."""


class Commands:
    """Makes the slice of each activity of a profile; what equal ones share is one object."""

    def __init__(self, measures: Measures, process: str = "") -> None:
        self._measures = measures
        self._process = {"process": process} if process else {}
        self._alignment = alignment = measures.alignment
        self._links, self._facts = alignment.links, alignment.facts
        self._activities = alignment.profile.activities
        self._operations = measures.operation_at
        self._stands_for = alignment.links.only_main()
        self._parts = self._gemm_parts()
        self._names: dict[object, tuple[object, dict[str, str]]] = {}
        self._named_at: dict[int, dict[str, str]] = {NONE: {}}
        self._alike: dict[object, dict[object, _Shown]] = {}
        profile = alignment.profile
        self.slice_names = slice_names({one.name for one in self._activities if one.kind == "kernel"})
        self._numbers = profile.numbers
        self._is_numbered = profile.numbers == "call_index"
        self._counters = profile.counters
        self._on_one_clock = all(device.clock == 0 for device in profile.devices)
        several = len(profile.threads) > 1
        self._tids = (
            [thread.index if thread.tid is None else thread.tid for thread in profile.threads] if several else []
        )
        self._has_lines = bool(profile.line_of)
        self._streams = {q.index: q.number for q in profile.queues if q.kind == "stream" and q.number is not None}
        self._executions = executions_of(alignment.profile)
        self._nodes = Nodes(alignment.profile, with_layers=False)  # links tell those
        links = alignment.links
        self._doubted = links.layer_confidence.keys() | links.operation_confidence.keys()
        self._iterations = [pass_.number for pass_ in links.passes]
        apart = (links.layer_unsure, links.operation_unsure, self._parts.keys())
        self._apart = [positions for positions in apart if positions]
        """Of these is shown what is not shown of others like them."""
        self._is_plain = self._is_numbered and not (self._executions or self._tids or self._streams)
        self._has_more = bool(self._executions or links.layer_unsure or links.operation_unsure)

    def gemm_of_several(self, position: int) -> tuple[int, int, int] | None:
        """Of the kernel that stands for a GEMM of several: their number, the sum of their times, when the last ends."""
        return self._parts.get(position)

    def look(self, first: int, activities: Sequence[Activity]) -> tuple[Sequence[object], ...] | None:
        """In columns what tells apart how activities from position ``first`` on are shown, but for times and numbers.

        None where that depends on more than is looked at here.
        """
        links, positions = self._links, range(first, first + len(activities))
        if not self._is_plain or not all(apart.isdisjoint(positions) for apart in self._apart):
            return None
        return (
            *zip(*map(_LOOK, activities), strict=True),
            list(map(self._facts.get, positions)) if self._facts else (),
            self._stands_for[first : positions.stop],
            links.layer_by[first : positions.stop],
            links.operation_by[first : positions.stop],
        )

    def work(self, position: int) -> int:
        """What the rate of a kernel is of, where it shows one; else 0."""
        fact = self._facts.get(position)
        stands_for = self._stands_for and self._stands_for[position]
        whole = self._operations.get(self._links.operation_of[position]) if stands_for else None
        if fact is not None and fact.gemm is not None:
            return fact.gemm.flop
        return 0 if whole is None else whole.flop or 0

    def _gemm_parts(self) -> dict[int, tuple[int, int, int]]:
        """The GEMMs that take several kernels (ViennaCL's blocks, clBLAS's tiles), at the one that stands for each.

        The rate is the whole GEMM's.
        """
        activities = self._alignment.profile.activities
        spans_of = {}
        for position, parts in self._measures.gemm_parts.items():
            cost = self._measures.of(parts)
            ends = [end for part in parts if (end := activities[part].end_ns) is not None]
            if cost.kernel_ns is not None:
                spans_of[position] = len(parts), cost.kernel_ns, max(ends)
        return spans_of

    def slices(self, track: int, shift: int, positions: Sequence[int]) -> Iterator[Slice]:
        """Those of an unbroken row: of one pass, one run of a layer, one operation."""
        links, activities = self._links, self._activities
        index, layer, fixed, alike = self._of_row(positions[0])
        layer_by, operation_by, operation_of = links.layer_by, links.operation_by, links.operation_of
        fact_of, stands_for, executions = self._facts.get, self._stands_for, self._executions
        is_numbered, doubted, has_more = self._is_numbered, self._doubted, self._has_more
        execution = whole = None
        for position in positions:
            activity = activities[position]
            start, end, queued, submit = activity.start_ns, activity.end_ns, activity.queued_ns, activity.submit_ns
            assert start is not None and end is not None
            fact = fact_of(position)
            if stands_for:
                whole = self._operations.get(operation_of[position]) if stands_for[position] else None
            # Whatever is the same in every iteration stands before this: a compressor takes all of it at once.
            args: dict[str, Any] = {}
            if fact is not None or whole is not None:
                args = self._rate(position, end - start, fact, whole)
            if is_numbered:
                args["call_index"] = activity.number
            else:
                args |= self._own(activity)
            if executions:
                execution = executions.get(position)
                if execution is not None:
                    args |= execution_args(execution)
            args |= fixed
            if position in doubted:
                args |= _confidence_args(links, position)
            if activity.line:
                args["line"] = activity.line
            if queued is not None and submit is not None:
                args["queued_ns"] = queued + shift
                args["submit_ns"] = submit + shift
            # Sizes and facts are interned: their identity tells them apart, and is quick to compare.
            key = (
                activity.name,
                activity.kind,
                layer_by[position],
                operation_by[position],
                None if whole is None else id(whole.problem),
                id(activity.grid),
                id(activity.workgroup),
                id(activity.opencl.offset),
                id(fact),
                id(activity.resources),
                self._rare(activity, position, execution) if has_more or activity.kind != "kernel" else None,
            )
            shown = alike.get(key)
            if shown is None:
                shown = alike[key] = self._shown(activity, self._named_at[index], layer, position, whole, execution)
            yield Slice(track, start + shift, end - start, shown[0], shown[1], args, shown[2])

    def _of_row(self, position: int) -> tuple[int, LayerRun | None, dict[str, int], dict[object, _Shown]]:
        """What all activities of a row have: operation, run of a layer, own arguments; what is shown of such ones."""
        links = self._links
        pass_, run, index = links.pass_of[position], links.run_of[position], links.operation_of[position]
        layer = None if run == NONE else links.runs[run]
        own: dict[str, int] = {}
        if pass_ != NONE and (iteration := self._iterations[pass_]) is not None:
            own["iteration"] = iteration
        if index != NONE:
            own["operation"] = index
        named = self._named_at.get(index)
        if named is None:
            named = self._named(index)
        key = (
            -1 if layer is None else layer.layer_index,
            "" if layer is None else layer.direction,
            index == NONE,
            id(named),
            _shown_phase(links, pass_),
            self._activities[position].queue if self._streams else 0,
        )
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = {}
        return index, layer, own, alike

    def _rare(self, activity: Activity, position: int, execution: Execution | None) -> tuple[object, ...]:
        """What else tells apart what is shown of activities: little that most runs have."""
        return (
            position in self._links.layer_unsure,
            position in self._links.operation_unsure,
            activity.size_bytes,
            activity.route,
            None if execution is None else execution.node,
        )

    def _shown(
        self,
        activity: Activity,
        named: dict[str, str],
        layer: LayerRun | None,
        position: int,
        whole: Operation | None,
        execution: Execution | None,
    ) -> _Shown:
        """Name, category and the arguments that an activity has in common with its like."""
        shared = named | self._args(activity, layer, position, whole)
        if execution is not None:
            shared |= self._nodes.args(execution)
        shared = _links_last(shared) | self._process
        if activity.kind != "kernel":
            return activity.name, "copy", shared
        name = self.slice_names[activity.name]
        if name != activity.name:
            shared["full_name"] = activity.name
        return name, "kernel", shared

    def _rate(self, position: int, ns: int, fact: KernelFact | None, whole: Operation | None) -> dict[str, Any]:
        """What a kernel achieved; of a GEMM of several what all of them did."""
        if ns <= 0:
            return {}
        if fact is not None and fact.gemm is not None:
            parts = self._parts.get(position)
            if parts is None:
                return {"gflops": three_digits(fact.gemm.flop / ns)}
            return {"gflops": three_digits(fact.gemm.flop / parts[1]), "gemm_kernels": parts[0], "gemm_ns": parts[1]}
        return {"gflops": three_digits(whole.flop / ns)} if whole is not None and whole.flop else {}

    def _named(self, index: int) -> dict[str, str]:
        """What a reader wants to know first of a kernel: which operation it is for, and who solved that."""
        operation = self._operations[index]
        key = id(operation.problem), operation.primitive, operation.direction, operation.phase, operation.solver
        named = self._names.get(key)
        if named is None:
            made = {"operation_name": operation_name(operation)}
            if operation.solver:
                made["solver"] = operation.solver
            # The problem is kept: its identity stands for it.
            named = self._names[key] = operation.problem, made
        self._named_at[index] = named[1]
        return named[1]

    def _own(self, activity: Activity) -> dict[str, Any]:
        """What is an activity's alone, whatever it belongs to."""
        args: dict[str, Any] = {}
        if activity.kind == "kernel" or self._numbers != "dispatch_id":
            args[self._numbers] = activity.number
        if activity.correlation is not None:
            args["correlation_id"] = activity.correlation
            if activity.is_replayed:
                args["graph"] = activity.correlation
        waited = queue_ns(activity, on_one_clock=self._on_one_clock)
        if waited is not None:
            args["queue_time_ns"] = waited
        if self._tids and activity.call is not None:
            args["tid"] = self._tids[activity.call.thread]
        if activity.counters:
            args |= _counter_args(activity, self._counters)
        if self._has_lines:
            line, own = self._alignment.profile.source_lines(activity)
            if line is not None:
                args["source"] = str(own or line)
                if own is not None and own is not line:
                    args["library_source"] = str(line)
        return args

    def _args(
        self, activity: Activity, layer: LayerRun | None, position: int, whole: Operation | None
    ) -> dict[str, Any]:
        """The arguments that an activity shares with its like in other iterations."""
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
        """What an activity belongs to, and by what."""
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
    """Of what is in no iteration and no warm-up: what it is in."""
    phase = links.passes[pass_].phase if pass_ != NONE else ""
    return "" if phase in ("iteration", "warm-up") else phase


def _confidence_args(links: Links, position: int) -> dict[str, float]:
    """The probability that each link is right, in two digits; nothing where they say 1."""
    both = (
        ("layer_confidence", links.layer_confidence.get(position, 1.0)),
        ("operation_confidence", links.operation_confidence.get(position, 1.0)),
    )
    return {name: round(confidence, 2) for name, confidence in both if confidence < SURE}


def _work_args(fact: KernelFact | None, whole: Operation | None, *, is_gemm: bool) -> dict[str, Any]:
    """What a kernel computes: by its own sizes, else as the operation that it does all of."""
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
    """The values of hardware counters, and what they measured. A counter is a fraction even if it is whole here."""
    known = measured(activity, counters).shown
    shown = {name: three_digits(value) if isinstance(value, float) else value for name, value in known.items()}
    parts = {"counters": values_of(activity, counters), "measured": shown}
    return {name: part for name, part in parts.items() if part}


def _links_last(args: dict[str, Any]) -> dict[str, Any]:
    """What a kernel has in common with its like, then what it has in common with its neighbours: each packs as one."""
    links = {key: args[key] for key in _LINKS if key in args}
    return {key: value for key, value in args.items() if key not in links} | links
