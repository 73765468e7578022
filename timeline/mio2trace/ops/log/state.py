"""What is known at a record: the operations so far, each thread's one under way, what earlier records said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mio2trace.ops.log.draft import Build, placed, shared
from mio2trace.ops.log.fusion_plans import FusionPlans
from mio2trace.ops.log.plans import DescriptorTypes, Find2Problems
from mio2trace.ops.operation import Operation
from mio2trace.ops.problem import Problem

Made = TypeVar("Made")

_KEPT = 1 << 14  # results of each kind


class State:
    """Records add to it in log order. ``told`` changes whenever something was said that later operations may use."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.done: list[Operation | Build] = []
        self.current: dict[int | None, Build] = {}
        self.types = DescriptorTypes()
        self.plans = FusionPlans()
        self.problems = Find2Problems()
        self.told = 0
        self.template: Problem | None = None
        """That of the driver's own first line, which the log's level lines are about."""
        self.inserted: dict[int | None, str] = {}
        """By thread: the key put into the find-db by a search whose beginning is not in the log."""
        self._solvers: dict[tuple[str, str], str] = {}
        self._chosen: dict[Problem, str] = {}
        self._once: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}
        self._same: dict[tuple[object, ...], tuple[object, Operation]] = {}

    def result(self) -> tuple[Operation, ...]:
        """Every operation; the state is used up."""
        return tuple([one if isinstance(one, Operation) else self._finish(one) for one in self.done])

    def start(self, build: Build) -> Build:
        """The thread's operation from here on; the one before it is complete."""
        self.complete(build.thread)
        build.index = len(self.done)
        self.done.append(build)
        self.current[build.thread] = build
        return build

    def complete(self, thread: int | None) -> Operation | None:
        """No record belongs to the thread's operation any more: it is returned as it will be."""
        last = self.current.pop(thread, None)
        if last is None:
            return None
        made = self.done[last.index] = self._finish(last)
        return made

    def _finish(self, build: Build) -> Operation:
        """What differs from an equal operation before is the place and the buffers."""
        command = build.command
        key = (
            build.api, build.primitive, build.phase, id(build.problem), build.dtype, build.dtype_by, build.algorithm,
            build.solver, build.workspace, build.thread, command.text if command is not None else None, *build.doubts,
        )  # fmt: skip
        if build.dtype is None and build.launches:  # their names tell the type
            return placed(shared(build, self.source), build)
        alike = self._same.get(key)
        if alike is None:
            if len(self._same) > _KEPT:
                self._same.clear()
            # the problem is kept: its identity stands for it
            alike = self._same[key] = build.problem, shared(build, self.source)
        return placed(alike[1], build)

    def once(self, make: Callable[..., Made], *of: object) -> Made:
        """``make(*of)``, remembered by the identity of ``of``: problems are shared, and dear to compare."""
        key = (make, *map(id, of))
        found = self._once.get(key)
        if found is None:
            if len(self._once) > _KEPT:
                self._once.clear()
            found = self._once[key] = (of, make(*of))
        made: Made = found[1]
        return made

    # What earlier records said

    def registered(self, algorithm: str, config: str) -> str | None:
        """The solver registered as the best one of an algorithm for a network config."""
        return self._solvers.get((algorithm, config))

    def register(self, algorithm: str, config: str, solver: str) -> None:
        """See `registered`."""
        if self._solvers.get((algorithm, config)) != solver:
            self._solvers[algorithm, config] = solver
            self.told += 1

    def chosen(self, problem: Problem | None) -> str | None:
        """The best solver that a search found."""
        searched = None if problem is None else self.once(_searched, problem)
        return None if searched is None else self._chosen.get(searched)

    def choose(self, problem: Problem | None, solver: str) -> None:
        """See `chosen`."""
        searched = None if problem is None else self.once(_searched, problem)
        if searched is not None and self._chosen.get(searched) != solver:
            self._chosen[searched] = solver
            self.told += 1


def _searched(problem: Problem) -> Problem | None:
    return problem.searched()
