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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.measures.completeness import Completeness, completeness, late_ns
from mio2trace.measures.cost import Cost, Sums, duration, grouped, total, whole
from mio2trace.measures.device_time import Launches, has_common_clock
from mio2trace.measures.executions import Executions, LayerKey
from mio2trace.measures.ranking import Forms, Makeup, forms_of, is_naive, makeup
from mio2trace.measures.searches import UNSURE, undecided
from mio2trace.measures.steady import Steady
from mio2trace.model.tables import NEVER, NO, Numbers, Pool, distinct, firsts, most, summed
from mio2trace.ops.operation import Operation

__all__ = ["Cost", "Executions", "LayerKey", "Measures", "Steady", "Sums", "duration", "total"]

_NO_WORK, _TOLD, _NOT_TOLD, _OF_KERNELS = range(4)
"""The source of an operation's work: it has none, the log, unknown, its kernels."""


class _Summed(msgspec.Struct, frozen=True):
    """Sums by operation, by execution of a layer, by pass; auxiliary kernels by primitive and role."""

    operations: Sums
    runs: Sums
    passes: Sums
    helpers: Counter[tuple[str, str]]


class Measures:
    """The costs of one alignment, computed on first use."""

    def __init__(self, alignment: Alignment) -> None:
        self.alignment = alignment
        self._commands = alignment.profile.commands
        self._facts = alignment.facts
        self._links = alignment.links

    # -- known facts about operations and kernels ----------------------------------------------------------------------

    @cached_property
    def operation_at(self) -> Mapping[int, Operation]:
        return {operation.index: operation for operation in self._links.operations}

    @cached_property
    def shared(self) -> Pool[Operation]:
        """By the operation's index: an operation that has its facts, one for all that share them. An index without
        operation has any."""
        operations, codes = [*self.operation_at.values()], np.zeros(len(self.first_of), np.int32)
        facts = Pool.of(id(operation.facts) for operation in operations)
        codes[np.fromiter(self.operation_at, np.int64, len(operations))] = facts.codes
        return Pool([operations[at] for at in distinct(facts.codes)[0].tolist()], codes)

    @cached_property
    def first_of(self) -> Sequence[int]:
        """By the operation's index: the position of its first activity with times, else of its first activity; `NONE`
        without any."""
        operation_of = np.asarray(self._links.operation_of)
        count = max(self.operation_at, default=NONE) + 1
        first = firsts(operation_of, count)
        timed = firsts(np.where(self._commands.start_ns == NO, NONE, operation_of), count)
        return whole(np.where(timed == NONE, first, timed))

    @cached_property
    def forms(self) -> Forms:
        """The kernels by name and by form."""
        return forms_of(self._commands, self._facts)

    @cached_property
    def gemm_parts(self) -> Mapping[int, tuple[int, ...]]:
        """For each activity that represents a GEMM of several kernels: the positions of all of them, its own first."""
        if not any(fact.role == "main" and fact.gemm is None for fact in self._facts.values()):
            return {}
        from mio2trace.kernels.blas import find_parts

        parts = find_parts(self.alignment.profile, self._facts)
        return {position: members for position, members in parts.items() if len(members) > 1}

    @cached_property
    def _is_part(self) -> frozenset[int]:
        return frozenset(part for members in self.gemm_parts.values() for part in members[1:])

    @cached_property
    def _work_of(self) -> bytearray:
        """The kind of work of each operation, by index. One without kernels, such as one whose kernel was not recorded,
        has none that a rate could count."""
        kinds = [
            _NO_WORK if one.phase != "run"
            else _TOLD if one.flop is not None
            else _OF_KERNELS if one.is_plain else _NOT_TOLD
            for one in self.shared.values
        ]  # fmt: skip
        has_kernels = np.zeros(len(self.first_of) + 1, bool)  # the last one is of `NONE`
        has_kernels[np.asarray(self._links.operation_of)[self._commands.is_kernel]] = True
        return bytearray(np.where(has_kernels[:-1], np.array(kinds, np.uint8)[self.shared.codes], np.uint8(_NO_WORK)))

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
        form = int(self.forms.form_of[position])
        if index != NONE and form != NONE and not self.forms.forms[form].kind.helps:
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

    @cached_property
    def _summed(self) -> _Summed:
        links, commands = self._links, self._commands
        operation_of, run_of, pass_of = map(np.asarray, (links.operation_of, links.run_of, links.pass_of))
        pass_of = np.where(pass_of == NONE, len(links.passes), pass_of)
        operations = Sums(operation_of, len(self.first_of), commands)
        runs = Sums(run_of, len(links.runs), commands)
        passes = Sums(pass_of, len(links.passes) + 1, commands)
        rows, parts = self.helping(np.flatnonzero(commands.is_kernel & commands.has_times))
        ns = commands.time_ns[rows]
        # a copy is what an op that no family models does, and helps in nothing
        is_plain = np.append(self.shared.where(lambda one: one.is_plain), False)
        indices = np.where(is_plain[operation_of[rows]], NONE, operation_of[rows])
        for sums, numbers in ((operations, indices), (runs, run_of[rows]), (passes, pass_of[rows])):
            sums.add_parts(numbers, ns, parts)
        for sums, positions, number_of in (
            (operations, links.operation_unsure, operation_of),
            (runs, links.layer_unsure, run_of),
            (passes, links.layer_unsure, pass_of),
        ):
            sums.add_unsure(number_of[np.fromiter(positions, np.int64, len(positions))])
        for position, _, flop, told_by in self.work():
            passes.add_work(int(pass_of[position]), flop, told_by)
            if links.run_of[position] != NONE:
                runs.add_work(links.run_of[position], flop, told_by)
        helps = (
            parts[0]
            & (indices != NONE)
            & (np.append(np.frombuffer(self._work_of, np.uint8), _NO_WORK)[indices] != _NO_WORK)
        )
        return _Summed(operations, runs, passes, self._helpers(rows[helps]))

    def helping(self, rows: Numbers) -> tuple[Numbers, Sequence[NDArray[np.bool_]]]:
        """Those of some kernels that help or are naive; which of them help, are transposes, are naive."""
        kinds = [form.kind for form in self.forms.forms]
        of_naive = np.zeros(len(self.first_of) + 1, bool)
        of_naive[[*self.operation_at]] = self.shared.where(is_naive)[[*self.operation_at]]
        form_of, operation_of = self.forms.form_of[rows], np.asarray(self._links.operation_of)[rows]
        helps = np.array([kind.helps for kind in kinds], bool)[form_of]
        transposes = np.array([kind.role == "transpose" for kind in kinds], bool)[form_of]
        naive = np.array([kind.naive for kind in kinds], bool)[form_of] | of_naive[operation_of]
        chosen = helps | transposes | naive
        return rows[chosen], (helps[chosen], transposes[chosen], naive[chosen])

    def _helpers(self, rows: Numbers) -> Counter[tuple[str, str]]:
        """The time of helpers in operations that ran, by the operation's primitive and their role."""
        found: Counter[tuple[str, str]] = Counter()
        forms, indices = self.forms.form_of[rows], np.asarray(self._links.operation_of)[rows]
        first, place_of = distinct(indices.astype(np.int64) * len(self.forms.forms) + forms)
        times = summed(place_of, self._commands.time_ns[rows], len(first)).tolist()
        for index, form, ns in zip(indices[first].tolist(), forms[first].tolist(), times, strict=True):
            found[self.operation_at[index].primitive, self.forms.forms[form].kind.role] += ns
        return found

    def work(self) -> Iterator[tuple[int, int, int | None, str]]:
        """Yield the activities at which work counts: position, operation, FLOP (None: unknown), source."""
        kinds, flops = self._work_of, Pool([one.flop or 0 for one in self.shared.values], self.shared.codes)
        for index, (position, known) in enumerate(zip(self.first_of, flops.each(), strict=True)):
            if position != NONE and kinds[index] == _TOLD:
                yield position, index, known, "operation"
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
            is_untold = np.append(np.frombuffer(kinds, np.uint8) == _NOT_TOLD, False)[np.asarray(operation_of)]
            yield from (position for position in np.flatnonzero(is_untold).tolist() if position not in facts)

    def of(self, positions: Sequence[int]) -> Cost:
        """Return the cost of some activities, such as those of a layer on one of its queues: kernels, copies, times,
        work."""
        sums = Sums(np.zeros(len(positions), np.int64), 1, self._commands, np.asarray(positions, np.int64))
        for position in positions:
            flop, told_by = self._work_at(position, self._links.operation_of[position])
            if told_by or flop is None:
                sums.add_work(0, flop, told_by)
        return sums.cost(0)

    def kernels_of(self, positions: Sequence[int]) -> tuple[int, int, int]:
        """Return the number of kernels among some activities, their time, and their known work."""
        rows, operation_of = np.asarray(positions, np.int64), self._links.operation_of
        rows = rows[self._commands.is_kernel[rows]]
        times = self._commands.time_ns[rows].tolist()
        return len(times), sum(times), sum([self._work_at(at, operation_of[at])[0] or 0 for at in positions])

    @cached_property
    def launches(self) -> Launches:
        return Launches(self.alignment.profile, has_common_clock=has_common_clock(self.alignment))

    @cached_property
    def completeness(self) -> Completeness:
        return completeness(self.alignment, self.launches, self.steady.told.devices, self.late_ns)

    @cached_property
    def late_ns(self) -> Numbers:
        """By how much the end of each command is late at least (`mio2trace.measures.completeness`)."""
        return late_ns(self.alignment.profile)

    @cached_property
    def makeup(self) -> Makeup:
        """The composition of the time of steady kernels."""
        return makeup(self)

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
        cost = self.operations.cost(index, host_ns=self.host_ns(index))
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

    def host_ns(self, index: int) -> int | None:
        """Return the time of an operation on the host."""
        ns = self.host_ns_of[index]
        return None if ns == NO else ns

    @cached_property
    def host_ns_of(self) -> Sequence[int]:
        """By the operation's index: its time on the host, `NO` if it is unknown."""
        host_ns = np.full(len(self.first_of), NO)
        indices, starts, ends = self.host_spans()
        host_ns[indices] = ends - starts
        return whole(host_ns)

    @cached_property
    def runs_of_operation(self) -> Mapping[int, tuple[int, ...]]:
        """The executions of the layer of each operation, in order; more than one if a link has low confidence."""
        runs: dict[int, tuple[int, ...]] = {}
        operation_of, run_of = np.asarray(self._links.operation_of), np.asarray(self._links.run_of)
        rows = np.flatnonzero((operation_of != NONE) & (run_of != NONE))
        first, _ = distinct(operation_of[rows].astype(np.int64) * len(self._links.runs) + run_of[rows])
        for index, run in zip(operation_of[rows[first]].tolist(), run_of[rows[first]].tolist(), strict=True):
            runs[index] = (*runs.get(index, ()), run)
        return runs

    def host_spans(self) -> tuple[Numbers, Numbers, Numbers]:
        """The indices of operations with kernels, and for each from its first call (or the arguments for it) to the end
        of its last call."""
        commands, operation_of, count = self._commands, np.asarray(self._links.operation_of), len(self.first_of)
        first, last = firsts(operation_of, count), most(operation_of, np.arange(len(operation_of)), count + 1)[:count]
        indices = np.flatnonzero(first != NONE)
        first, last = first[indices], last[indices]
        begun, returned = commands.host_start_ns[first], commands.host_end_ns[last]
        prepared = commands.of_call(commands.calls.prepared_ns, NEVER)[first]
        start = np.where(prepared == NO, begun, np.minimum(begun, prepared))
        # of what a graph launches the host's time was when the graph was captured
        is_told = ~commands.is_replayed[first] & (begun != NO) & (returned != NO) & (start <= returned)
        return indices[is_told], start[is_told], returned[is_told]

    @cached_property
    def executions(self) -> Executions:
        """Every execution of a layer in order, including the warm-up (iteration 0)."""
        return Executions(self)

    @cached_property
    def names_outside(self) -> Mapping[str, Cost]:
        """Kernels in no operation, by name."""
        is_outside = self._commands.is_kernel & (np.asarray(self._links.operation_of) == NONE)
        return grouped(self._commands.name, self._commands, is_outside)

    @cached_property
    def layer_evidence(self) -> Mapping[str, Cost]:
        """Kernels and copies by the evidence of their layer; ``""`` is for those in no layer."""
        return grouped(self._links.layer_by.pool, self._commands)

    @cached_property
    def operation_evidence(self) -> Mapping[str, Cost]:
        return grouped(self._links.operation_by.pool, self._commands)

    @cached_property
    def searches(self) -> Mapping[int, Cost]:
        """By index, the searches that have kernels or copies."""
        return {
            index: self.operations.cost(index)
            for index, operation in self.operation_at.items()
            if operation.phase == "find" and self.first_of[index] != NONE
        }

    @cached_property
    def is_undecided(self) -> NDArray[np.bool_]:
        """Of each activity whether it is a kernel that may be a search's or may be not."""
        return undecided(self.alignment)

    @cached_property
    def is_find_unsure(self) -> bool:
        """Whether the time of all searches is not sure."""
        return self.depends_on_searches(sum(cost.timed_ns for cost in self.searches.values()))

    def depends_on_searches(self, ns: int) -> bool:
        """Return whether a sum of times with or without the searches is not sure."""
        return int(self._commands.time_ns[self.is_undecided].sum()) > UNSURE * ns
