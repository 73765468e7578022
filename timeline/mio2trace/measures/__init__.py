"""Costs of operations, executions of layers, passes, problems and kernel names, summed once from an alignment.

A trace's arguments, the metadata, the tables and the report read them. The alignment (`mio2trace.align`) decides where
each activity belongs. The rules:

* a kernel's time is its end minus its start. A kernel without times is counted, and the sum is unknown (`Cost`).
* an operation's work counts once, at its first activity; a search has none. A GEMM counts itself if it is in no
  operation, or if the log does not record the operation's work.
* a kernel makes the sum unknown if it does the work of an operation or GEMM of unknown size.
* a kernel's role shows whether it is auxiliary (`mio2trace.kernels.role`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.kernels import helps, role
from mio2trace.kernels.split import find_parts
from mio2trace.measures.completeness import Completeness, completeness
from mio2trace.measures.cost import Cost, Sums, duration, grouped, total
from mio2trace.measures.device_time import has_common_clock
from mio2trace.measures.device_time.launches import Launches
from mio2trace.measures.executions import Execution, LayerKey, executions
from mio2trace.measures.ranking import Kind, host_spans, is_naive, kind_of
from mio2trace.measures.steady import Steady
from mio2trace.model.profile import Activity
from mio2trace.ops.naming import problem_name
from mio2trace.ops.operation import Operation

__all__ = ["Cost", "Execution", "LayerKey", "Measures", "Steady", "Sums", "duration", "total"]

_SEARCHES, _TOLD, _NOT_TOLD, _OF_KERNELS = range(4)
"""The source of an operation's work: it has none, the log, unknown, its kernels."""


class _Summed(NamedTuple):
    """Sums by operation, by execution of a layer, by pass; auxiliary kernels by primitive and role."""

    operations: Sums
    runs: Sums
    passes: Sums
    helpers: Counter[tuple[str, str]]


class Measures:
    """The costs of one alignment, computed on first use."""

    def __init__(self, alignment: Alignment) -> None:
        self.alignment = alignment
        self._activities = alignment.profile.activities
        self._facts = alignment.facts
        self._links = alignment.links

    # -- known facts about operations and kernels ----------------------------------------------------------------------

    @cached_property
    def operation_at(self) -> Mapping[int, Operation]:
        return {operation.index: operation for operation in self._links.operations}

    @cached_property
    def first_of(self) -> Sequence[int]:
        """By the operation's index: the position of its first activity with times, else of its first activity; `NONE`
        without any."""
        first = array("q", [NONE]) * (max(self.operation_at, default=NONE) + 1)
        activities = self._activities
        for position, index in enumerate(self._links.operation_of):
            if index != NONE:
                before = first[index]
                if before == NONE or (
                    activities[before].start_ns is None and activities[position].start_ns is not None
                ):
                    first[index] = position
        return first

    @cached_property
    def gemm_parts(self) -> Mapping[int, tuple[int, ...]]:
        """For each activity that represents a GEMM of several kernels: the positions of all of them, its own first."""
        if not any(fact.role == "main" and fact.gemm is None for fact in self._facts.values()):
            return {}
        parts = find_parts(self.alignment.profile, self._facts)
        return {position: members for position, members in parts.items() if len(members) > 1}

    @cached_property
    def _is_part(self) -> frozenset[int]:
        return frozenset(part for members in self.gemm_parts.values() for part in members[1:])

    @cached_property
    def _work_of(self) -> bytearray:
        """The kind of work of each operation, by index."""
        kinds = bytearray([_TOLD]) * len(self.first_of)
        for index, operation in self.operation_at.items():
            if operation.phase != "run":
                kinds[index] = _SEARCHES
            elif operation.flop is None:
                kinds[index] = _OF_KERNELS if operation.is_plain else _NOT_TOLD
        return kinds

    @cached_property
    def naive_operations(self) -> frozenset[int]:
        """Operations for which the log names a naive solver."""
        alike = {id(operation.facts): operation for operation in self.operation_at.values()}
        naive = {of for of, operation in alike.items() if is_naive(operation)}
        return frozenset(index for index, one in self.operation_at.items() if naive and id(one.facts) in naive)

    def _work_at(self, position: int, index: int) -> tuple[int | None, str]:
        """Return the work that counts at an activity of the operation ``index``, and its source; None: unknown work."""
        if index != NONE:
            kind = self._work_of[index]
            if kind == _TOLD and self.first_of[index] == position:
                return self.operation_at[index].flop, "operation"
            if kind == _OF_KERNELS:
                index = NONE
            elif kind != _NOT_TOLD:
                return 0, ""
        fact = self._facts.get(position)
        if fact is not None and fact.gemm is not None:
            return fact.gemm.flop, "gemm"
        if position in self._is_part:
            return 0, ""
        if fact is not None and fact.role == "main":
            return None, ""
        activity = self._activities[position]
        if index != NONE and activity.kind == "kernel" and not helps(role(activity.name, fact)):
            return None, ""
        return 0, ""

    # -- sums by number ----------------------------------------------------------------------------------------------

    @property
    def operations(self) -> Sums:
        """By the operation's index, without work and traffic, which `of_operation` has."""
        return self._summed.operations

    @property
    def runs(self) -> Sums:
        """By the number of the layer's execution."""
        return self._summed.runs

    @property
    def passes(self) -> Sums:
        """By the number of the pass; the last one is for activities in no pass."""
        return self._summed.passes

    @property
    def helpers(self) -> Mapping[tuple[str, str], int]:
        """Time of auxiliary kernels in operations that ran, by the operation's primitive and the kernel's role."""
        return self._summed.helpers

    def sum_up(self) -> None:
        """Compute the costs by number, and the source of the iterations, if necessary."""
        _ = self._summed, self.steady.told

    @cached_property
    def _summed(self) -> _Summed:
        links, facts = self._links, self._facts
        summed = _Summed(Sums(len(self.first_of)), Sums(len(links.runs)), Sums(len(links.passes) + 1), Counter())
        operations, runs, passes, _ = summed
        kinds: dict[tuple[str, str], Kind] = {}
        naive = self.naive_operations
        outside = len(links.passes)
        # A run may have a million kernels, so constant values are looked up once.
        in_pass, pass_ns, in_run, run_ns = passes.kernels, passes.timed_ns, runs.kernels, runs.timed_ns
        parts = [(sums.helpers_ns, sums.transposes_ns, sums.naive_ns) for sums in (operations, runs, passes)]
        fact_at = facts.get if facts else None
        columns = zip(self._activities, links.operation_of, links.run_of, links.pass_of, strict=True)
        for position, (activity, index, run, pass_) in enumerate(columns):
            if pass_ == NONE:
                pass_ = outside
            start, end = activity.start_ns, activity.end_ns
            if activity.kind != "kernel" or start is None or end is None:
                _add_others(summed, (index, run, pass_), activity)
                continue
            ns = end - start
            in_pass[pass_] += 1
            pass_ns[pass_] += ns
            if run != NONE:
                in_run[run] += 1
                run_ns[run] += ns
            if index != NONE:
                operations.kernels[index] += 1
                operations.timed_ns[index] += ns
            fact = None if fact_at is None else fact_at(position)
            key = activity.name, "" if fact is None else fact.role
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = kind_of(activity.name, fact)
            _, is_helper, is_naive_kernel = kind
            if is_helper or is_naive_kernel or (naive and index in naive):
                self._add_parts(summed.helpers, parts, (index, run, pass_), ns, kind)
        for sums, positions, number_of in (
            (operations, links.operation_unsure, links.operation_of),
            (runs, links.layer_unsure, links.run_of),
            (passes, links.layer_unsure, links.pass_of),
        ):
            sums.unsure.update(number_of[position] for position in positions)
        self._add_work(runs, passes)
        return summed

    def _add_work(self, runs: Sums, passes: Sums) -> None:
        """Add the work at each activity where any may count."""
        pass_of, run_of, outside = self._links.pass_of, self._links.run_of, len(passes) - 1
        for position, _, flop, told_by in self.work():
            pass_, run = pass_of[position], run_of[position]
            passes.add_work(outside if pass_ == NONE else pass_, flop, told_by)
            if run != NONE:
                runs.add_work(run, flop, told_by)

    def work(self) -> Iterator[tuple[int, int, int | None, str]]:
        """Yield the activities at which work counts: position, operation, FLOP (None: unknown), source."""
        kinds = self._work_of
        for index, position in enumerate(self.first_of):
            if position != NONE and kinds[index] == _TOLD:
                yield position, index, self.operation_at[index].flop or 0, "operation"
        for position in self._not_told():
            index = self._links.operation_of[position]
            flop, told_by = self._work_at(position, index)
            if told_by or flop is None:
                yield position, index, flop, told_by

    def _not_told(self) -> Iterator[int]:
        """Return where work may count that the log does not record: at GEMMs, and in operations of unknown work."""
        operation_of, kinds, facts = self._links.operation_of, self._work_of, self._facts
        for position, fact in facts.items():
            index = operation_of[position]
            if index == NONE or kinds[index] == _OF_KERNELS:
                if fact.gemm is not None or fact.role == "main":
                    yield position
            elif kinds[index] == _NOT_TOLD:
                yield position
        if _NOT_TOLD in kinds:
            for position, index in enumerate(operation_of):
                if index != NONE and kinds[index] == _NOT_TOLD and position not in facts:
                    yield position

    def _add_parts(
        self,
        helpers: Counter[tuple[str, str]],
        parts: Sequence[tuple[Counter[int], Counter[int], Counter[int]]],
        numbers: tuple[int, int, int],
        ns: int,
        kind: Kind,
    ) -> None:
        """Add the time of an auxiliary or naive kernel to these parts of the sums to which it belongs."""
        index = numbers[0]
        if index != NONE and self.operation_at[index].is_plain:
            # a copy is the work of such an op, and no auxiliary kernel
            index, numbers = NONE, (NONE, *numbers[1:])
        naive = kind.naive or index in self.naive_operations
        if kind.helps and index != NONE and self._work_of[index] != _SEARCHES:
            helpers[self.operation_at[index].primitive, kind.role] += ns
        wanted = kind.helps, kind.role == "transpose", naive
        for columns, number in zip(parts, numbers, strict=True):
            if number != NONE:
                for column in compress(columns, wanted):
                    # The same as `+=`, which would ask a counter for each missing key: most keys are new.
                    column[number] = column.get(number, 0) + ns

    def of(self, positions: Sequence[int]) -> Cost:
        """Return the cost of some activities, such as those of a layer on one of its queues: kernels, copies, times,
        work."""
        sums = Sums(1)
        for position in positions:
            sums.add(0, self._activities[position])
            flop, told_by = self._work_at(position, self._links.operation_of[position])
            if told_by or flop is None:
                sums.add_work(0, flop, told_by)
        return sums.cost(0)

    def kernels_of(self, positions: Sequence[int]) -> tuple[int, int, int]:
        """Return the number of kernels among some activities, their time, and their known work."""
        activities, operation_of = self._activities, self._links.operation_of
        times = [duration(activities[at]) or 0 for at in positions if activities[at].kind == "kernel"]
        return len(times), sum(times), sum([self._work_at(at, operation_of[at])[0] or 0 for at in positions])

    @cached_property
    def launches(self) -> Launches:
        return Launches(self.alignment.profile, has_common_clock=has_common_clock(self.alignment))

    @cached_property
    def completeness(self) -> Completeness:
        return completeness(self.alignment, self.launches, self.steady.told.devices)

    @cached_property
    def steady(self) -> Steady:
        """The slowest parts of a steady iteration: the source of every ranking."""
        return Steady(self)

    # -- by the parts that people ask about ----------------------------------------------------------------------------

    @cached_property
    def whole(self) -> Cost:
        return total(self.passes.cost(number) for number in range(len(self.passes)))

    def of_operation(self, index: int) -> Cost:
        """Return the cost of an operation; work and traffic come from the log, and a search has none."""
        operation = self.operation_at[index]
        cost = self.operations.cost(index)
        host_ns = self.host_ns_of[index]
        if host_ns is not None:
            cost = msgspec.structs.replace(cost, host_ns=host_ns, host_by="calls")
        if operation.phase != "run":
            return cost
        return msgspec.structs.replace(
            cost,
            known_flop=operation.flop or 0,
            unknown_flop=int(operation.flop is None),
            flop_by="operation" if operation.flop else "",
            known_bytes=operation.bytes_min or 0,
            unknown_bytes=int(operation.bytes_min is None),
        )

    @cached_property
    def host_ns_of(self) -> Sequence[int | None]:
        """By the operation's index: its time on the host."""
        host_ns: list[int | None] = [None] * len(self.first_of)
        for index, start, end in self.host_spans():
            host_ns[index] = end - start
        return host_ns

    @cached_property
    def runs_of_operation(self) -> Mapping[int, tuple[int, ...]]:
        """The executions of the layer of each operation, in order; more than one if a link has low confidence."""
        runs: dict[int, tuple[int, ...]] = {}
        for index, run in zip(self._links.operation_of, self._links.run_of, strict=True):
            if index != NONE and run != NONE and run not in runs.get(index, ()):
                runs[index] = (*runs.get(index, ()), run)
        return runs

    def host_spans(self) -> Iterator[tuple[int, int, int]]:
        """By the index of each operation with kernels: from its first call (or the arguments for it) to the end of its
        last call."""
        return host_spans(self.alignment, len(self.first_of))

    @cached_property
    def problems(self) -> Mapping[str, Cost]:
        """Costs of the operations that ran and have kernels, by `problem_name`; calls without kernels cost nothing."""
        parts: dict[str, list[Cost]] = {}
        for index, operation in self.operation_at.items():
            if operation.phase == "run" and self.first_of[index] != NONE:
                parts.setdefault(problem_name(operation), []).append(self.of_operation(index))
        return {name: total(costs) for name, costs in parts.items()}

    @cached_property
    def executions(self) -> Mapping[LayerKey, list[Execution]]:
        """Every execution of a layer in order, including the warm-up (iteration 0)."""
        return executions(self)

    @cached_property
    def layers(self) -> Mapping[LayerKey, Cost]:
        """The cost of all benchmark iterations; of the warm-up if there is nothing else."""
        benchmark = any(ran.iteration for all_of in self.executions.values() for ran in all_of)
        counted = {
            key: [ran.cost for ran in all_of if not benchmark or ran.iteration]
            for key, all_of in self.executions.items()
        }
        return {key: total(costs) for key, costs in counted.items() if costs}

    @cached_property
    def names(self) -> Mapping[str, Cost]:
        return grouped((activity.name, activity) for activity in self._activities if activity.kind == "kernel")

    @cached_property
    def names_outside(self) -> Mapping[str, Cost]:
        """Kernels in no operation, by name."""
        return grouped(
            (activity.name, activity)
            for activity, index in zip(self._activities, self._links.operation_of, strict=True)
            if index == NONE and activity.kind == "kernel"
        )

    @cached_property
    def layer_evidence(self) -> Mapping[str, Cost]:
        """Kernels and copies by the evidence of their layer; ``""`` is for those in no layer."""
        return grouped(zip(self._links.layer_by, self._activities, strict=True))

    @cached_property
    def operation_evidence(self) -> Mapping[str, Cost]:
        return grouped(zip(self._links.operation_by, self._activities, strict=True))

    @cached_property
    def searches(self) -> Mapping[int, Cost]:
        """By index, the searches that have kernels or copies."""
        return {
            index: self.operations.cost(index)
            for index, operation in self.operation_at.items()
            if operation.phase == "find" and self.first_of[index] != NONE
        }


def _add_others(summed: _Summed, numbers: tuple[int, int, int], activity: Activity) -> None:
    """Count a copy, or a kernel without times."""
    for sums, number in zip(summed[:3], numbers, strict=True):
        if number != NONE:
            sums.add(number, activity)
