"""What holds commands: passes, layers, operations as slices over unbroken rows (trace-contract.md 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from mio2trace.align import NONE
from mio2trace.draw.base import TimeBase, three_digits
from mio2trace.draw.operations import operation_args, source_args
from mio2trace.measures import Measures, Sums
from mio2trace.measures.bandwidth import bandwidth
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.trace import Slice

_OF_THE_WHOLE = ("flop", "bytes_min")


class Containers:
    """Makes the slices of a profile's passes, layers and operations; what equal ones share is one object."""

    def __init__(self, measures: Measures, base: TimeBase, process: str = "") -> None:
        self.measures = measures
        self._alignment = measures.alignment
        self._base = base
        self._operations = measures.operation_at
        self._shared: dict[object, dict[str, Any]] = {}
        self._names: dict[tuple[object, ...], tuple[str, dict[str, Any]]] = {}
        self._shown: dict[int, tuple[str, dict[str, Any]]] = {}
        self._process = {"process": process} if process else {}
        self._iterations = [pass_.number for pass_ in measures.alignment.links.passes]
        self._outputs = {layer.index: layer.output for layer in measures.alignment.net.layers}

    def _span(self, device: int, positions: Sequence[int], origin: int) -> tuple[int, int]:
        activities = self._alignment.profile.activities
        start, end = activities[positions[0]].start_ns, activities[positions[-1]].end_ns
        assert start is not None and end is not None
        return self._base.device(device, start) - origin, end - start

    def _cost_args(self, sums: Sums, number: int, pass_: int, positions: Sequence[int], cut: bool) -> dict[str, Any]:
        """What a container of a pass cost, or the part of it that is in this row of its activities, drawn themselves or
        not.

        Work is not told of what is cut, nor of a part where that of the whole is not known.
        """
        kernels, kernel_ns, flop = sums.kernels[number], sums.timed_ns[number], sums.flop(number)
        if sums.activities(number) != len(positions):
            kernels, kernel_ns, known = self.measures.kernels_of(positions)
            flop = None if flop is None else known
        args: dict[str, Any] = self._share(pass_, kernel_ns, cut)
        if flop and kernel_ns and not cut:
            args["gflops"] = three_digits(flop / kernel_ns)
        args["kernel_ns"] = kernel_ns
        args["kernels"] = kernels
        if cut:
            args["cut"] = True
        elif flop is not None:
            args["flop"] = flop
        return args

    def _share(self, pass_: int, kernel_ns: int, cut: bool) -> dict[str, float]:
        """``percent_of_kernel_time``: of the iteration; nothing outside of iterations, or for a cut part."""
        whole = self._iteration_ns[pass_] if pass_ != NONE and not cut else 0
        return {"percent_of_kernel_time": three_digits(100 * kernel_ns / whole)} if whole else {}

    @cached_property
    def _iteration_ns(self) -> list[int]:
        """Of each pass the kernel time of its iteration, both directions together; 0 for set-up."""
        passes, timed_ns = self._alignment.links.passes, self.measures.passes.timed_ns
        sums: Counter[object] = Counter()
        for one, ns in zip(passes, timed_ns, strict=False):
            sums[one.phase, one.iteration] += ns
        return [0 if one.phase in ("before", "setup", "between") else sums[one.phase, one.iteration] for one in passes]

    def of_pass(self, track: int, device: int, number: int, positions: Sequence[int], origin: int, cut: bool) -> Slice:
        pass_ = self._alignment.links.passes[number]
        start, duration = self._span(device, positions, origin)
        args = self._cost_args(self.measures.passes, number, number, positions, cut)
        if pass_.phase in ("before", "setup", "between"):
            args["phase"] = pass_.phase
        if pass_.direction is not None:
            args["direction"] = pass_.direction
        if pass_.number is not None:
            args["iteration"] = pass_.number
        if pass_.phase == "iteration":
            steady = self.measures.steady
            if not steady.has(pass_.number):
                args["steady"] = False
            elif steady.told.part:
                args["part"] = steady.told.part
        return Slice(track, start, duration, pass_.name, "pass", args | self._process)

    def of_layer(self, track: int, device: int, number: int, positions: Sequence[int], origin: int, cut: bool) -> Slice:
        links = self._alignment.links
        run = links.runs[number]
        start, duration = self._span(device, positions, origin)
        args = self._cost_args(self.measures.runs, number, run.pass_, positions, cut)
        iteration = self._iterations[run.pass_]
        if iteration is not None:
            args["iteration"] = iteration
        key = (run.layer_index, run.direction, run.printed_ns)
        shared = self._shared.get(key)
        if shared is None:
            shared = {} if run.printed_ns is None else {"printed_ns": run.printed_ns}
            output = self._outputs.get(run.layer_index)
            if output:
                shared["output"] = output
            # The kernels that follow begin their own with the same.
            shared |= {"layer": run.layer, "layer_index": run.layer_index}
            if run.direction is not None:
                shared["direction"] = run.direction
            shared |= self._process
            self._shared[key] = shared
        return Slice(track, start, duration, run.layer, "layer", args, shared)

    def of_operation(
        self, track: int, device: int, index: int, positions: Sequence[int], origin: int, cut: bool
    ) -> Slice:
        operation = self._operations[index]
        start, duration = self._span(device, positions, origin)
        sums = self.measures.operations
        name, shared = self.shown(operation)
        whole_ns = sums.timed_ns[index]
        kernels, kernel_ns, goes_on = sums.kernels[index], whole_ns, False
        if sums.activities(index) != len(positions):
            kernels, kernel_ns, _ = self.measures.kernels_of(positions)
            goes_on = self.measures.first_of[index] not in positions
        pass_ = self._alignment.links.pass_of[positions[0]]
        args: dict[str, Any] = {} if operation.phase == "find" else self._share(pass_, kernel_ns, cut)
        if cut:
            args["cut"] = True
        elif goes_on:
            # What an operation does counts once, where it begins.
            args["goes_on"] = True
            shared = {key: value for key, value in shared.items() if key not in _OF_THE_WHOLE}
        elif operation.phase == "run" and operation.flop and whole_ns and not sums.untimed.get(index):
            args["gflops"] = three_digits(operation.flop / whole_ns)
        rate = None if cut or goes_on else bandwidth(operation, 1, whole_ns)
        if rate is not None:
            args["algorithm_gb_per_s"] = three_digits(rate.algorithm)
            if rate.bus is not None:
                args["bus_gb_per_s"] = three_digits(rate.bus)
        args |= {"kernel_ns": kernel_ns, "kernels": kernels, "operation": index, **source_args(operation)}
        return Slice(track, start, duration, name, "operation", args, shared)

    def shown(self, operation: Operation) -> tuple[str, dict[str, Any]]:
        """The name and the arguments that an operation shares with its like."""
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
        # The run keeps its operations: the identities of what they are stand for it.
        self._shown[id(facts)] = found
        return found
