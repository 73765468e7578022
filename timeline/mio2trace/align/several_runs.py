"""The profile's run, if a program ran several times into one file.

A run begins with calls in an order that occurs nowhere else in it. If they come again with equal calls behind them, the
program ran again; a killed run has the first of them. A profile with as many iterations as one run has one of them: by
buffers, else the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from mio2trace.align.operations.queues import same_process
from mio2trace.align.operations.rates import LAST
from mio2trace.model.profile import Activity, Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

Item = TypeVar("Item")
BEGINNING = 8
"""Calls or kernels that show the begin of a run; one may be lost."""
SET_UP = 2
"""Searches for different problems whose order no other layers of a net have."""
MORE = 1.5
"""Iterations of one run, relative to another run, that show more than one run."""
ALIKE = 0.9
"""Share of a run's calls that another run of the program has, too."""


def run_of_profile(
    profile: Profile, operations: Sequence[Operation], notes: Notes
) -> tuple[Sequence[Operation], float]:
    """Return the operations of the profile's run, and the probability of this choice."""
    starts = _starts(operations, _problem)
    if len(starts) < 2:
        return operations, 1.0
    runs = [operations[begin:end] for begin, end in zip(starts, [*starts[1:], len(operations)], strict=True)]
    kernels = [activity for activity in profile.activities if activity.kind == "kernel"]
    if _ends(kernels, _launch) >= MORE * _ends(max(runs, key=len), _problem):
        return operations, 1.0  # more comes again in the profile than in one of them: they are its iterations
    same = [same_process(profile, run) for run in runs]
    left = [run for run, told in zip(runs, same, strict=True) if told is not False]
    if same.count(True) == 1:
        left = [runs[same.index(True)]]
    if not left:
        return operations, 1.0
    if len(left) > 1:
        notes.add(
            f"log of {len(runs)} runs without evidence which one is the profile's: the last one is used, with low"
            " confidence"
        )
    return left[-1], LAST if len(left) > 1 else 1.0


def begun_again(operations: Sequence[Operation]) -> frozenset[int]:
    """Return indexes of calls with which a log begins twice (searches): the program was killed and ran again, or it set
    up two nets."""
    if not operations or operations[0].phase != "find":
        return frozenset()
    # Which commands are searches is guessed: those that a program begins with.
    problems = [(operation.api, operation.problem) for operation in operations]
    first = problems[:SET_UP]
    if len(set(first)) < SET_UP:
        return frozenset()
    for place in range(SET_UP, len(problems) - SET_UP + 1):
        if problems[place : place + SET_UP] == first:
            return frozenset(operation.index for operation in operations[: 2 * place])
    return frozenset()


def _problem(operation: Operation) -> Hashable:
    return operation.api, operation.phase, operation.problem


def _launch(activity: Activity) -> Hashable:
    return activity.name, activity.grid


def _starts(items: Sequence[Item], key: Callable[[Item], Hashable]) -> list[int]:
    """Return where the begin of a row comes again with the same items behind it; [0] if it does not."""
    starts = _places(items, key)
    if len(starts) < 2:
        return [0]
    runs = [[*map(key, items[begin:end])] for begin, end in zip(starts, [*starts[1:], len(items)], strict=True)]
    whole = max(runs, key=len)
    alike = all((Counter(whole[: len(run)]) & Counter(run)).total() >= ALIKE * len(run) for run in runs)
    return starts if alike else [0]


def _ends(items: Sequence[Item], key: Callable[[Item], Hashable]) -> int:
    """Return how often the row's end occurs: once per iteration."""
    return max(1, len(_places(items[::-1], key)))


def _places(items: Sequence[Item], key: Callable[[Item], Hashable]) -> list[int]:
    """Return the places of the row's begin."""
    if len(items) < 2 * BEGINNING:
        return [0]
    first = [key(item) for item in items[:BEGINNING]]
    places = [0]
    for place in range(BEGINNING, len(items) - BEGINNING + 1):
        if key(items[place]) != first[0] and key(items[place + 1]) != first[1]:
            continue
        here = [key(item) for item in items[place : place + BEGINNING]]
        if sum(a == b for a, b in zip(first, here, strict=True)) >= BEGINNING - 1:
            places.append(place)
    return places
