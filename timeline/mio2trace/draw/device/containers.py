"""The containers of commands: passes, layers, operations as slices over unbroken rows (trace-contract.md 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import sub
from typing import Any

from mio2trace.align import NONE, LayerRun
from mio2trace.draw.base import columns, three_digits, told
from mio2trace.measures import Measures, Sums
from mio2trace.measures.cost import bandwidth
from mio2trace.model.gemm import Gemm
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.ops.values import shape_text
from mio2trace.trace import NO_ARGS, Columns, Slice

Span = tuple[int, int, int, bool]
"""The number of the container, the first command and the one after the last among the positions of a track, and whether
the container is cut there."""
_OF_THE_WHOLE = ("flop", "bytes_min")
_OUTSIDE = ("before", "setup", "between")
_COSTS = ("percent_of_kernel_time", "gflops", "kernel_ns", "kernels", "cut", "flop")
_OF_OPERATION = (
    "percent_of_kernel_time", "cut", "goes_on", "gflops", "algorithm_gb_per_s", "bus_gb_per_s",
    "kernel_ns", "kernels", "operation", "line",
)  # fmt: skip


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
        self._iterations = [pass_.number for pass_ in measures.alignment.links.passes]
        self._outputs = {layer.index: layer.output for layer in measures.alignment.net.layers}

    def _columns(
        self,
        shift: int,
        positions: Sequence[int],
        spans: Sequence[Span],
        likes: Sequence[Slice],
        args: Mapping[str, Sequence[Any]],
    ) -> Columns:
        activities = self._alignment.profile.activities
        starts = [activities[positions[first]].start_ns or 0 for _, first, _, _ in spans]
        ends = [activities[positions[last - 1]].end_ns or 0 for _, _, last, _ in spans]
        return columns(likes, [start + shift for start in starts], list(map(sub, ends, starts)), told(args))

    def _costs(
        self, sums: Sums, positions: Sequence[int], spans: Sequence[Span], passes: Sequence[int]
    ) -> dict[str, Sequence[Any]]:
        """Return the costs of containers of passes, or of their parts in these rows of activities, whether drawn or
        not.

        Work is not shown for a cut part, nor for a part of a container of unknown work.
        """
        rows: list[tuple[float | None, float | None, int, int, bool | None, int | None]] = []
        for (number, first, last, cut), pass_ in zip(spans, passes, strict=True):
            kernels, kernel_ns, flop = sums.kernels[number], sums.timed_ns[number], sums.flop(number)
            if sums.activities(number) != last - first:
                kernels, kernel_ns, known = self.measures.kernels_of(positions[first:last])
                flop = None if flop is None else known
            if cut:
                rows.append((None, None, kernel_ns, kernels, True, None))
            else:
                rate = three_digits(flop / kernel_ns) if flop and kernel_ns else None
                rows.append((self._share(pass_, kernel_ns), rate, kernel_ns, kernels, None, flop))
        return dict(zip(_COSTS, zip(*rows, strict=True), strict=True))

    def _share(self, pass_: int, kernel_ns: int) -> float | None:
        """Return ``percent_of_kernel_time`` of the iteration; nothing outside of iterations."""
        whole = self._iteration_ns[pass_] if pass_ != NONE else 0
        return three_digits(100 * kernel_ns / whole) if whole else None

    @cached_property
    def _iteration_ns(self) -> list[int]:
        """Return the kernel time of the iteration of each pass, both directions together; 0 for set-up."""
        passes, timed_ns = self._alignment.links.passes, self.measures.passes.timed_ns
        sums: Counter[object] = Counter()
        for one, ns in zip(passes, timed_ns, strict=False):
            sums[one.phase, one.iteration] += ns
        return [0 if one.phase in _OUTSIDE else sums[one.phase, one.iteration] for one in passes]

    def passes(self, track: int, shift: int, positions: Sequence[int], spans: Sequence[Span]) -> Columns:
        numbers, steady = [number for number, _, _, _ in spans], self.measures.steady
        passes = [self._alignment.links.passes[number] for number in numbers]
        steadily = [one.phase != "iteration" or steady.has(one.number) for one in passes]
        args = self._costs(self.measures.passes, positions, spans, numbers) | {
            "phase": [one.phase if one.phase in _OUTSIDE else None for one in passes],
            "direction": [one.direction for one in passes],
            "iteration": [one.number for one in passes],
            "steady": [None if is_steady else False for is_steady in steadily],
            "part": [
                steady.told.part or None if one.phase == "iteration" and is_steady else None
                for one, is_steady in zip(passes, steadily, strict=True)
            ],
        }
        likes = [Slice(track, 0, 0, one.name, "pass", NO_ARGS, self._process) for one in passes]
        return self._columns(shift, positions, spans, likes, args)

    def layers(self, track: int, shift: int, positions: Sequence[int], spans: Sequence[Span]) -> Columns:
        runs = [self._alignment.links.runs[number] for number, _, _, _ in spans]
        args = self._costs(self.measures.runs, positions, spans, [run.pass_ for run in runs])
        args["iteration"] = [self._iterations[run.pass_] for run in runs]
        likes = []
        for run in runs:
            key = track, run.layer_index, run.direction, run.printed_ns
            like = self._likes.get(key)
            if like is None:
                like = self._likes[key] = Slice(track, 0, 0, run.layer, "layer", NO_ARGS, self._of_layer(run))
            likes.append(like)
        return self._columns(shift, positions, spans, likes, args)

    def _of_layer(self, run: LayerRun) -> dict[str, Any]:
        """Return the arguments that executions of the layer share."""
        shared: dict[str, Any] = {} if run.printed_ns is None else {"printed_ns": run.printed_ns}
        output = self._outputs.get(run.layer_index)
        if output:
            shared["output"] = output
        # The following kernels begin with the same arguments.
        shared |= {"layer": run.layer, "layer_index": run.layer_index}
        if run.direction is not None:
            shared["direction"] = run.direction
        return shared | self._process

    def operations(self, track: int, shift: int, positions: Sequence[int], spans: Sequence[Span]) -> Columns:
        sums, first_of, pass_of = self.measures.operations, self.measures.first_of, self._alignment.links.pass_of
        rows: list[tuple[Any, ...]] = []
        likes = []
        for index, first, last, cut in spans:
            operation = self._operations[index]
            facts, whole_ns = operation.facts, sums.timed_ns[index]
            kernels, kernel_ns, goes_on = sums.kernels[index], whole_ns, False
            if sums.activities(index) != last - first:
                part = positions[first:last]
                kernels, kernel_ns, _ = self.measures.kernels_of(part)
                # The work of an operation counts once, where it begins.
                goes_on = not cut and first_of[index] not in part
            share = None if cut or facts.phase == "find" else self._share(pass_of[positions[first]], kernel_ns)
            rate = algorithm = bus = None
            if not cut and not goes_on:
                if facts.phase == "run" and facts.flop and whole_ns and not sums.untimed.get(index):
                    rate = three_digits(facts.flop / whole_ns)
                moved = bandwidth(operation, 1, whole_ns)
                if moved is not None:
                    algorithm = three_digits(moved.algorithm)
                    bus = None if moved.bus is None else three_digits(moved.bus)
            flags = cut or None, goes_on or None
            rows.append((share, *flags, rate, algorithm, bus, kernel_ns, kernels, index, operation.line or None))
            likes.append(self._like(track, operation, goes_on))
        args: dict[str, Sequence[Any]] = dict(zip(_OF_OPERATION, zip(*rows, strict=True), strict=True))
        args["range"] = [None if line else True for line in args["line"]]
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
            id(facts.problem), facts.api, facts.phase, facts.algorithm, facts.solver,
            facts.workspace_bytes, facts.dtype, facts.command, facts.primitive, facts.direction,
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


def operation_args(operation: Operation) -> dict[str, Any]:
    """Return the arguments of the operation itself, the most important first; place, kernels and rate belong to the
    slice."""
    args: dict[str, Any] = {"solver": operation.solver} if operation.solver else {}
    if operation.algorithm:
        args["algorithm"] = operation.algorithm
    for key, shape in (
        ("input", operation.input),
        ("weights", operation.weights),
        ("output", operation.output),
        ("pad", operation.pad),
        ("stride", operation.stride),
        ("dilation", operation.dilation),
        ("window", operation.window),
    ):
        if shape:
            args[key] = shape_text(shape)
    for key, value in (
        ("groups", operation.groups),
        ("mode", operation.mode),
        ("dtype", operation.dtype),
        ("dtype_by", None if operation.dtype_by == "command" else operation.dtype_by),
        ("layout", operation.layout),
        ("workspace_bytes", operation.workspace_bytes),
        ("flop", operation.flop if operation.phase == "run" else None),
        ("bytes_min", operation.bytes_min if operation.phase == "run" else None),
        ("command", operation.command),
    ):
        if value is not None and value != "":
            args[key] = value
    message = None if operation.problem is None else operation.problem.message_bytes()
    if message is not None:
        args["message_bytes"] = message
    if operation.gemm is not None:
        args["gemm"] = gemm_args(operation.gemm)
    if operation.api:
        args["api"] = operation.api
    args["primitive"] = operation.primitive
    if operation.direction is not None:
        args["direction"] = operation.direction
    args["phase"] = operation.phase
    return args
