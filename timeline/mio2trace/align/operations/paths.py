"""The best monotone path of kernels through operations, and how much worse the next best one is (alignment.md).

Kernels and operations keep their order: an operation owns none or a row of kernels, and between operations lie kernels
that belong to none. A path is scored by the `Likeness` of what it joins, by the operations that it passes over, and by
helpers left without the kernel they help. States that fall far behind are dropped, so where the evidence is strong one
state is left after nearly every kernel: the problem falls into short pieces, and cost grows with the kernels alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

import msgspec

from mio2trace.align.links import NONE
from mio2trace.align.operations.likeness import POST, PRE, SAME_BUFFERS, SHARED_BUFFERS, Likeness
from mio2trace.align.operations.windows import Windows
from mio2trace.evidence import BOUNDARY_STAMPS

# What each point decides: docs/alignment.md.
HELPERS_ONLY, HELPER_WAITS = -4.0, -3.0
"""Leaving an operation whose helpers ran but not what they help."""
HELPER_TOO_EARLY = -4.0
MAIN_AGAIN = -30.0
SKIP_RUN, SKIP_FIND, SKIP_OTHER_STREAM = -3.0, -0.5, -0.3
"""Passing over an operation: a call that computes launches something; a search may be answered from a database."""
NARROW, WIDE, WIDEST = (45.0, 16), (150.0, 48), (400.0, 100)
"""(how far behind the best a state may be, how many are kept)."""
NOT_BEGUN, WAITING_KEPT = 150.0, 96
"""The same for the state in which no operation of the log has begun: a log may have been switched on late."""
FEW = 4
"""So few operations in a kernel's window are all tried, without asking which of them fit."""
NEXT = 3
"""How many operations ahead, of each kind that fits a kernel, are tried."""

# Where in its operation a path stands; a state is 4 * operation + this.
_GAP, _HELPERS, _MAIN, _WAITING = range(4)


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """``operation[i]``: place in the list of operations, `NONE` for none. ``margin[i]``: how much a path that puts
    kernel i elsewhere falls short. ``points`` of the whole path.
    """

    operation: list[int]
    margin: list[float]
    points: float


_Edge = tuple[int, float]  # state before, points on the way
_Ready = tuple[int, float, int, float, float]  # operation, points, state, points for leaving it, points passed so far
_Step = dict[int, tuple[float, list[_Edge]]]


class PathFinder:
    """Finds the path for one stream of kernels, in order, and one row of operations.

    ``shared`` are indexes of operations that may as well be another stream's.
    """

    def __init__(
        self, likeness: Likeness, kernels: int, windows: Windows, shared: Collection[int], width: tuple[float, int]
    ) -> None:
        self._likeness = likeness
        self._kernels = kernels
        self._windows = windows
        self._behind, self._kept = width
        # Where stamps tell when the log had begun, waiting for it ends there.
        self._not_begun = NOT_BEGUN if windows.by != BOUNDARY_STAMPS else 1e9
        operations = likeness.operations
        self._by_kind: dict[tuple[str, str | None], list[int]] = {}
        self._by_pointer: dict[int, list[int]] = {}
        self._by_launch: dict[tuple[object, object], list[int]] = {}
        total, self._passed = 0.0, [0.0]
        for number, operation in enumerate(operations):
            skip = SKIP_FIND if operation.phase == "find" else SKIP_RUN
            total += SKIP_OTHER_STREAM if operation.index in shared else skip
            self._passed.append(total)
            self._by_kind.setdefault((operation.primitive, operation.direction), []).append(number)
            for pointer in likeness.pointers[number]:
                self._by_pointer.setdefault(pointer, []).append(number)
            for launch in {(launch.name, launch.gws) for launch in operation.launches}:
                self._by_launch.setdefault(launch, []).append(number)
        self._kinds_of: dict[int, list[list[int]]] = {}

    def find(self) -> Path:
        """The best path. Ties go to the earlier operation, and to an operation rather than none."""
        operation = [NONE] * self._kernels
        margin = [0.0] * self._kernels
        points = 0.0
        steps: list[_Step] = []
        current: _Step = {-4: (0.0, [])}
        started = 0
        for at in range(self._kernels):
            current = self._step(at, current)
            steps.append(current)
            if len(current) == 1:
                state, (score, _) = next(iter(current.items()))
                self._settle(steps, started, operation, margin, 0.0)
                points += score
                steps = []
                started = at + 1
                current = {state: (0.0, [])}
        if steps:
            points += max(score + self._end(state) for state, (score, _) in current.items())
            self._settle(steps, started, operation, margin, None)
        return Path(operation=operation, margin=margin, points=points)

    # One kernel

    def _step(self, at: int, states: _Step) -> _Step:
        likeness, passed = self._likeness, self._passed
        first, last = self._windows.first[at], self._windows.last[at]
        gap = likeness.gap(at)
        end = 4 * (len(likeness.operations) - 1)
        new: dict[int, tuple[float, list[_Edge]]] = {}

        def reach(state: int, before: int, score: float, gained: float) -> None:
            total = score + gained
            reached = new.get(state)
            if reached is None:
                new[state] = (total, [(before, gained)])
            else:
                reached[1].append((before, gained))
                if total > reached[0]:
                    new[state] = (total, reached[1])

        ready: list[_Ready] = []
        for state, (score, _) in states.items():
            index, phase = state >> 2, state & 3
            left = self._leave(phase)
            here = index
            if index < first - 1:
                # The operations up to the window's are over.
                here = first - 1
                left += self._over(index, here + 1)
            ready.append((index, score, state, left, passed[max(here, index) + 1]))
            together = likeness.together[at]
            # Before the first and after the last call of the log nothing is missing: it is not logged.
            outside = 0.0 if here << 2 in (-4, end) and gap < 0 else gap
            reach(here << 2, state, score, outside + left + (max(0.0, together) if phase == _GAP else 0.0))
            if phase != _GAP and first <= index <= last:
                gained, following = self._inside(at, index, phase)
                reach(index * 4 + following, state, score, gained + self._united(together, index))
        lowest = min(entry[0] for entry in ready)
        for target in self._targets(at, ready, first, last):
            if target <= lowest:
                continue
            gained, following = self._inside(at, target, _GAP)
            if gained < -12.0:
                continue
            edges = []
            for index, score, state, left, done in ready:
                if index < target:
                    over = passed[target] - done
                    edges.append((score + left + over, state, left + over))
            edges.sort(reverse=True)
            for total, state, lost in edges[:3]:
                reach(target * 4 + following, state, total - lost, lost + gained)
        return self._pruned(new)

    def _end(self, state: int) -> float:
        """Points for the profile's end in this state: what is left of the log launched nothing."""
        index = state >> 2
        return self._leave(state & 3) + self._over(index, len(self._passed) - 1)

    def _united(self, together: float, index: int) -> float:
        """Points for a kernel being in the same operation as the one before it."""
        operation = self._likeness.operations[index]
        if together == SAME_BUFFERS and operation.phase != "find":
            return SHARED_BUFFERS  # the same call may simply come again
        if together < 0 and operation.primitive != "conv":
            return 0.0
        return together

    def _over(self, index: int, target: int) -> float:
        """Points for passing over the operations between two."""
        return self._passed[target] - self._passed[index + 1]

    def _pruned(self, states: _Step) -> _Step:
        best = max(score for score, _ in states.values())
        behind, count = self._behind, self._kept
        if -4 in states:
            # The log may begin much later: what it then holds must not be given away to what looks alike before.
            behind, count = self._not_begun, WAITING_KEPT
        kept = {state: reached for state, reached in states.items() if reached[0] >= best - behind}
        if len(kept) > count:
            ranked = sorted(kept, key=lambda state: (-kept[state][0], state))[:count]
            kept = {state: kept[state] for state in ranked}
        waiting = states.get(-4)
        if waiting is not None and waiting[0] >= best - self._not_begun:
            kept[-4] = waiting
        return kept

    @staticmethod
    def _leave(phase: int) -> float:
        if phase == _HELPERS:
            return HELPERS_ONLY
        return HELPER_WAITS if phase == _WAITING else 0.0

    def _inside(self, at: int, index: int, phase: int) -> tuple[float, int]:
        """Points for the kernel in operation ``index`` that stands in ``phase``, and the phase after it."""
        likeness = self._likeness
        points = likeness.fit(at, index).points
        role = likeness.kind(at).role
        if likeness.is_main(at, index):
            if phase in (_MAIN, _WAITING) and self._is_single(at, index):
                points += MAIN_AGAIN
            return points, _MAIN
        if role in POST:
            return (points, _MAIN) if phase in (_MAIN, _WAITING) else (points + HELPER_TOO_EARLY, _HELPERS)
        if role in PRE:
            return points, _HELPERS if phase in (_GAP, _HELPERS) else _WAITING
        return points, _HELPERS if phase in (_GAP, _HELPERS) else phase

    def _is_single(self, at: int, index: int) -> bool:
        """Whether an execution launches one such kernel only (miopen-log.md 11.3)."""
        operation = self._likeness.operations[index]
        name = self._likeness.kind(at).name
        if operation.phase == "find" or name is None or operation.primitive in ("rnn", "mha", "find2"):
            return False
        if operation.launches:
            return False
        if name.algorithm is None:
            return len(name.primitives) > 0
        return name.algorithm in ("Direct", "Winograd", "Naive")

    def _targets(self, at: int, ready: Sequence[_Ready], first: int, last: int) -> list[int]:
        """Operations that the kernel may be the first one of."""
        if last - first < FEW:
            return list(range(max(0, first), last + 1))
        likeness = self._likeness
        targets: set[int] = set()
        handles = likeness.handles(at)
        rows = self._rows_of(at)
        for start in {max(entry[0], first - 1) for entry in ready}:
            for row in rows:
                begin = bisect_right(row, start)
                targets.update(row[begin : begin + NEXT])
            for handle in handles:
                row = self._by_pointer[handle]
                begin = bisect_right(row, start)
                targets.update(row[begin : begin + 2])
        return sorted(index for index in targets if first <= index <= last)

    def _rows_of(self, at: int) -> list[list[int]]:
        """The operations of each primitive and direction that the kernel's name fits."""
        number = self._likeness.kind_number(at)
        rows = self._kinds_of.get(number)
        if rows is None:
            likeness = self._likeness
            rows = [row for row in self._by_kind.values() if likeness.static_points(number, row[0]) > -15.0]
            launched = self._by_launch.get(likeness.kind(at).launch)
            if launched:
                rows.append(launched)
            self._kinds_of[number] = rows
        return rows

    # Back along the best path

    def _settle(
        self, steps: Sequence[_Step], started: int, operation: list[int], margin: list[float], end: float | None
    ) -> None:
        """Fill in the kernels from ``started`` on: for each the best operation over all paths, and its margin."""
        last = steps[-1]
        onward = {state: 0.0 if end is not None else self._end(state) for state in last}
        for offset in range(len(steps) - 1, -1, -1):
            step = steps[offset]
            by_operation: dict[int, float] = {}
            before: dict[int, float] = {}
            for state, (score, edges) in step.items():
                rest = onward.get(state)
                if rest is None:
                    continue
                index = NONE if state & 3 == _GAP else state >> 2
                total = score + rest
                if total > by_operation.get(index, -1e18):
                    by_operation[index] = total
                for previous, gained in edges:
                    value = gained + rest
                    if value > before.get(previous, -1e18):
                        before[previous] = value
            best = max(by_operation, key=lambda index: (by_operation[index], -index))
            others = [total for index, total in by_operation.items() if index != best]
            operation[started + offset] = best
            margin[started + offset] = by_operation[best] - max(others) if others else self._behind
            onward = before
