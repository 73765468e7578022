"""Where log and profile cover different stretches, a row of calls may fit several rows of kernels equally well.

Iterations repeat with the same buffers: when the log holds fewer of them than the profile (or more), nothing but the
clocks tells which. The path takes one; this finds the links that another one would have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mio2trace.align.links import NONE
from mio2trace.align.operations.likeness import Likeness
from mio2trace.align.operations.windows import Windows

TRIED = 3
"""How many places in a stretch without links are tried for the link next to it."""


def of_kernels(likeness: Likeness, windows: Windows, operation: Sequence[int]) -> set[int]:
    """Kernels whose operation may as well own an equal one in a stretch of the library's kernels without a call."""
    count = len(operation)
    idle = [place == NONE and likeness.kind(at).library for at, place in enumerate(operation)]

    def may_move(at: int, to: int) -> bool:
        place = operation[at]
        if not likeness.alike(at, to):
            return False
        return place == NONE or windows.first[to] <= place <= windows.last[to]

    doubted: set[int] = set()
    for begin, end in _stretches(idle):
        for start, step in ((begin - 1, -1), (end, 1)):
            if not 0 <= start < count or operation[start] == NONE:
                continue
            inside = range(begin, end) if step < 0 else range(end - 1, begin - 1, -1)
            tried = [to for to in inside if likeness.alike(start, to)][:TRIED]
            for to in tried:
                _spread(start, to - start, step, count, may_move, doubted)
    return {at for at in doubted if operation[at] != NONE}


def of_operations(likeness: Likeness, windows: Windows, operation: Sequence[int]) -> set[int]:
    """Kernels that may as well belong to an equal call in a stretch of calls without kernels."""
    calls = len(likeness.operations)
    kernels: dict[int, list[int]] = {}
    for at, place in enumerate(operation):
        if place != NONE:
            kernels.setdefault(place, []).append(at)
    idle = [place not in kernels and likeness.operations[place].phase == "run" for place in range(calls)]

    def may_move(place: int, to: int) -> bool:
        if likeness.operation_class(place) != likeness.operation_class(to):
            return False
        if likeness.pointers[place] != likeness.pointers[to]:
            return False
        return all(windows.first[at] <= to <= windows.last[at] for at in kernels.get(place, ()))

    doubted: set[int] = set()
    for begin, end in _stretches(idle):
        for start, step in ((begin - 1, -1), (end, 1)):
            if not 0 <= start < calls or start not in kernels:
                continue
            inside = range(begin, end) if step < 0 else range(end - 1, begin - 1, -1)
            tried = [to for to in inside if may_move(start, to)][:TRIED]
            for to in tried:
                _spread(start, to - start, step, calls, may_move, doubted)
    return {at for place in doubted for at in kernels.get(place, ())}


def _stretches(idle: Sequence[bool]) -> list[tuple[int, int]]:
    """Unbroken rows of True: (begin, end)."""
    stretches = []
    begin = -1
    for at, is_idle in enumerate([*idle, False]):
        if is_idle and begin < 0:
            begin = at
        elif not is_idle and begin >= 0:
            stretches.append((begin, at))
            begin = -1
    return stretches


def _spread(
    start: int, shift: int, step: int, count: int, may_move: Callable[[int, int], bool], doubted: set[int]
) -> None:
    """Doubt ``start`` and what lies before (or after) it, as far as all of it could move by ``shift``."""
    at = start
    while 0 <= at < count and 0 <= at + shift < count and at not in doubted and may_move(at, at + shift):
        doubted.add(at)
        at += step
