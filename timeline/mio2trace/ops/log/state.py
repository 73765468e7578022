"""What is known at a record: the operations so far, each thread's one under way, what earlier records said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.log.draft import Build, finish
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
        self._chosen: dict[ConvProblem, str] = {}
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
        """The same as `finish`; what differs from an equal operation before is the place and the buffers."""
        command = build.command
        key = (
            build.api, build.primitive, build.phase, id(build.problem), build.dtype, build.dtype_by, build.algorithm,
            build.solver, build.workspace, build.thread, command.text if command is not None else None, *build.doubts,
        )  # fmt: skip
        found = self._same.get(key)
        by_name = build.dtype is None and build.launches  # their names tell the type
        if found is None or by_name:
            made = finish(build, self.source)
            if not by_name:
                if len(self._same) > _KEPT:
                    self._same.clear()
                self._same[key] = (build.problem, made)
            return made
        return msgspec.structs.replace(
            found[1],
            index=build.index,
            line=build.line,
            end_line=build.end_line,
            command_line=command.line if command is not None else 0,
            parameters=build.parameters,
            addresses=build.entry.addresses if build.entry is not None else b"",
            arguments=build.arguments,
            launches=tuple(build.launches),
            gemms=tuple(build.gemms),
            nested=tuple(build.nested),
            stamp=build.stamp,
            elapsed_ns=build.elapsed_ns,
        )

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

    def chosen(self, problem: ConvProblem) -> str | None:
        """The best solver that a search found."""
        return self._chosen.get(self.once(_bare, problem))

    def choose(self, problem: ConvProblem, solver: str) -> None:
        """See `chosen`."""
        bare = self.once(_bare, problem)
        if self._chosen.get(bare) != solver:
            self._chosen[bare] = solver
            self.told += 1


def _bare(problem: ConvProblem) -> ConvProblem:
    """The problem without what records of one call may state differently."""
    return msgspec.structs.replace(problem, dtype=None, solver_id=None, layouts=("", "", ""))
