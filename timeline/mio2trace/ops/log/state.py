"""The state at a record: the operations so far, the open operation of each thread, the content of earlier records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mio2trace.ops.log.draft import Draft, facts_of, placed
from mio2trace.ops.log.fusion_plans import FusionPlans
from mio2trace.ops.log.plans import DescriptorTypes, Find2Problems
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.ops.problem import Problem

Made = TypeVar("Made")

_KEPT = 1 << 14  # results of each kind


class State:
    """Records add to it in log order. ``statements`` counts what was said that later operations may use."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.done: list[Operation | Draft] = []
        self.current: dict[int | None, Draft] = {}
        self.types = DescriptorTypes()
        self.plans = FusionPlans()
        self.problems = Find2Problems()
        self.statements = 0
        self.template: Problem | None = None
        """That of the driver's own first line, which the log's level lines are about."""
        self.inserted: dict[int | None, str] = {}
        """By thread: the key put into the find-db by a search whose beginning is not in the log."""
        self._solvers: dict[tuple[str, str], str] = {}
        self._chosen: dict[Problem, str] = {}
        self._once: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}
        self._same: dict[tuple[object, ...], tuple[object, OperationFacts]] = {}

    def result(self) -> tuple[Operation, ...]:
        """Every operation; the state is used up."""
        return tuple([made if isinstance(made, Operation) else self._finish(made) for made in self.done])

    def start(self, draft: Draft) -> Draft:
        """The thread's operation from here on; the one before it is complete."""
        self.complete(draft.thread)
        draft.index = len(self.done)
        self.done.append(draft)
        self.current[draft.thread] = draft
        return draft

    def complete(self, thread: int | None) -> Operation | None:
        """No record belongs to the thread's operation any more: it is returned as it will be."""
        last = self.current.pop(thread, None)
        if last is None:
            return None
        made = self.done[last.index] = self._finish(last)
        return made

    def _finish(self, draft: Draft) -> Operation:
        """What differs from an equal operation before is the place and the buffers."""
        command = draft.command
        key = (
            draft.api, draft.primitive, draft.phase, id(draft.problem), draft.dtype, draft.dtype_by, draft.algorithm,
            draft.solver, draft.workspace, draft.thread, command.text if command is not None else None,
            draft.torn, draft.unread, id(draft.parameters), *draft.nested, None, *draft.doubts,
        )  # fmt: skip
        if draft.dtype is None and draft.launches:  # their names tell the type
            return placed(facts_of(draft, self.source), draft)
        alike = self._same.get(key)
        if alike is None:
            if len(self._same) > _KEPT:
                self._same.clear()
            # the problem is kept, as the parameters are: their identities stand for them
            alike = self._same[key] = draft.problem, facts_of(draft, self.source)
        return placed(alike[1], draft)

    def once(self, make: Callable[..., Made], *of: object) -> Made:
        """``make(*of)``, remembered by the identity of ``of``: problems are shared, and dear to compare."""
        key = (make, *map(id, of))
        kept = self._once.get(key)
        if kept is None:
            if len(self._once) > _KEPT:
                self._once.clear()
            kept = self._once[key] = (of, make(*of))
        made: Made = kept[1]
        return made

    # What earlier records said

    def registered(self, algorithm: str, config: str) -> str | None:
        """The solver registered as the best one of an algorithm for a network config."""
        return self._solvers.get((algorithm, config))

    def register(self, algorithm: str, config: str, solver: str) -> None:
        if self._solvers.get((algorithm, config)) != solver:
            self._solvers[algorithm, config] = solver
            self.statements += 1

    def chosen(self, problem: Problem | None, dtype: str | None) -> str | None:
        """The best solver that a search found: of this type and layout, or of what is told of either."""
        searched = () if problem is None else self.once(_searched, problem, dtype)
        return next((solver for one in searched if (solver := self._chosen.get(one)) is not None), None)

    def choose(self, problem: Problem | None, dtype: str | None, solver: str) -> None:
        """See `chosen`."""
        for searched in () if problem is None else self.once(_searched, problem, dtype):
            if self._chosen.get(searched) != solver:
                self._chosen[searched] = solver
                self.statements += 1


def _searched(problem: Problem, dtype: str | None) -> tuple[Problem, ...]:
    return problem.searched(dtype)
