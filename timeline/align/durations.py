"""Fit printed layer times to the sequence of enqueues when nothing better tells (dvdt-ck.md 2.3 b).

An iteration lies in [stamp - X ms, stamp]. Its enqueues are cut into consecutive runs, in execution order, so that
every layer's printed time covers the host span of its run: not less than from its first to its last enqueue, not more
than the room up to its neighbours. Layers run one after another, so layer j ends between the sum of the printed times
up to j and that sum plus all the time that no layer claims: few cuts are possible at all, and the best sequence of
them is found by dynamic programming. Printed times are means, so several iterations are folded into one before the
cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from timeline.align.net import NetLayerSpec
from timeline.align.placement import Placement
from timeline.align.recurrence import signature
from timeline.align.sequences import matches
from timeline.model.log import Direction

BY = "durations"
TOLERANCE_NS = 200_000
"""What an iteration's bounds and a timer's own cost may be off."""
NOISE_NS = 20_000
"""Differences in misfit below this decide nothing."""
CLOSE = 1.1
MAX_STATES = 400


class Window(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One iteration: its bounds on the host's clock and the positions of its enqueues."""

    iteration: int
    start_ns: int
    end_ns: int
    positions: range


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for all windows: (layer's place in execution order, sure) for each position."""

    layer_of: dict[int, tuple[int, bool]]
    misfit_ns: int


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations folded: column c is the same enqueue of every iteration that has it.

    ``starts[c]``: the mean over iterations of when the first enqueue at or after c began, from the iteration's start;
    ``ends[c]``: of when the last one before c ended (so both have one element more than there are columns).
    """

    members: list[list[int]]
    starts: list[int]
    ends: list[int]


def fit(placement: Placement, windows: Sequence[Window], order: Sequence[tuple[NetLayerSpec, Direction]]) -> Cut | None:
    """Cut the windows' enqueues into the layers of ``order``; None when there is nothing to fit or it does not fit."""
    windows = [window for window in windows if window.positions]
    if not windows or not order:
        return None
    columns = _fold(placement, windows)
    if columns is None:
        return None
    printed = [layer.printed_ns(direction) or 0 for layer, direction in order]
    length = sum(window.end_ns - window.start_ns for window in windows) // len(windows)
    slack = max(0, length - sum(printed))
    cuts = _best_cuts(columns, printed, slack)
    if cuts is None:
        return None
    positions, unsure, misfit = cuts
    if misfit > sum(printed) / 2:
        return None
    layer_of: dict[int, tuple[int, bool]] = {}
    begin = 0
    for layer, end in enumerate(positions):
        for column in range(begin, end):
            for position in columns.members[column]:
                layer_of[position] = layer, column not in unsure
        begin = end
    return Cut(layer_of=layer_of, misfit_ns=round(misfit))


def _fold(placement: Placement, windows: Sequence[Window]) -> _Columns | None:
    """Align every window with the last one: the first differs most (buffers are made, kernels compiled)."""
    enqueues = placement.enqueues
    base = windows[-1]
    columns: list[list[int]] = [[position] for position in base.positions]
    keys = [signature(enqueues[position]) for position in base.positions]
    for window in windows[:-1]:
        pairs = matches(keys, [signature(enqueues[position]) for position in window.positions])
        if pairs is None:
            return None
        merged: list[list[int]] = []
        merged_keys = []
        done = 0
        place = window.positions.start
        for i, j in [*pairs, (len(columns), len(window.positions))]:
            merged += columns[done:i]
            merged_keys += keys[done:i]
            for extra in range(place, window.positions.start + j):
                merged.append([extra])
                merged_keys.append(signature(enqueues[extra]))
            if i < len(columns):
                merged.append([*columns[i], window.positions.start + j])
                merged_keys.append(keys[i])
            done, place = i + 1, window.positions.start + j + 1
        columns, keys = merged, merged_keys
    starts = [0] * (len(columns) + 1)
    ends = [0] * (len(columns) + 1)
    for window in windows:
        mine = [-1] * len(columns)
        for number, members in enumerate(columns):
            for position in members:
                if position in window.positions:
                    mine[number] = position
        at = window.end_ns - window.start_ns
        starts[-1] += at
        for number in range(len(columns) - 1, -1, -1):
            if mine[number] >= 0:
                enqueue = enqueues[mine[number]]
                at = (enqueue.prepared_ns or enqueue.host_start_ns or window.start_ns) - window.start_ns
            starts[number] += at
        at = 0
        for number, position in enumerate(mine):
            ends[number] += at
            if position >= 0:
                at = (enqueues[position].host_end_ns or window.start_ns) - window.start_ns
        ends[-1] += at
    count = len(windows)
    return _Columns(members=columns, starts=[start // count for start in starts], ends=[end // count for end in ends])


def _cost(columns: _Columns, first: int, last: int, printed: int) -> int:
    """How far ``printed`` is from what columns [first, last) allow."""
    if first == last:
        # A layer without enqueues must find room between its neighbours.
        return max(0, printed - max(0, columns.starts[first] - columns.ends[first]) - NOISE_NS)
    span = columns.ends[last] - columns.starts[first]
    room = columns.starts[last] - columns.ends[first]
    return max(0, span - printed) + max(0, printed - room)


def _best_cuts(columns: _Columns, printed: Sequence[int], slack: int) -> tuple[list[int], set[int], float] | None:
    """For every layer the number of columns that end with it; the columns of which that is in doubt; the misfit.

    A column is in doubt when the best answer that puts it into another layer costs hardly more.
    """
    candidates = _candidates(columns, printed, slack)
    forward: list[dict[int, float]] = [{0: 0.0}]
    back: list[dict[int, int]] = []
    for number, (time, cuts) in enumerate(zip(printed, candidates, strict=True)):
        reached: dict[int, float] = {}
        came_from: dict[int, int] = {}
        for cut, stray in cuts:
            for before, cost in forward[number].items():
                if before <= cut:
                    total = cost + _cost(columns, before, cut, time) + stray
                    if cut not in reached or total < reached[cut]:
                        reached[cut], came_from[cut] = total, before
        if not reached:
            return None
        if len(reached) > MAX_STATES:
            reached = dict(sorted(reached.items(), key=lambda item: item[1])[:MAX_STATES])
        forward.append(reached)
        back.append(came_from)
    count = len(columns.members)
    total = forward[-1][count]
    answer = [count]
    for came_from in reversed(back):
        answer.append(came_from[answer[-1]])
    answer = answer[-2::-1]
    unsure = _doubtful(columns, printed, candidates, forward, answer, total * CLOSE + NOISE_NS)
    return answer, unsure, total


def _candidates(columns: _Columns, printed: Sequence[int], slack: int) -> list[list[tuple[int, float]]]:
    """Where each layer's run of columns can end at all, with a small cost that decides only where nothing else does."""
    count = len(columns.members)
    candidates: list[list[tuple[int, float]]] = []
    claimed = low = high = 0
    for number, time in enumerate(printed):
        claimed += time
        while high < count and columns.ends[high + 1] <= claimed + slack + TOLERANCE_NS:
            high += 1
        while low < count and columns.starts[low] < claimed - TOLERANCE_NS:
            low += 1
        expected = claimed + slack * (number + 1) // len(printed)
        candidates.append(
            [
                (cut, abs((columns.starts[cut] + columns.ends[cut]) // 2 - expected) / 100 if 0 < cut < count else 0.0)
                for cut in range(min(low, high), max(low, high) + 1)
            ]
        )
    candidates[-1] = [(count, 0.0)]
    return candidates


def _doubtful(
    columns: _Columns,
    printed: Sequence[int],
    candidates: Sequence[Sequence[tuple[int, float]]],
    forward: Sequence[dict[int, float]],
    answer: Sequence[int],
    limit: float,
) -> set[int]:
    """Columns that some answer below ``limit`` puts into an earlier or a later layer."""
    layers = len(printed)
    behind: dict[int, float] = {len(columns.members): 0.0}
    unsure: set[int] = set()
    for number in range(layers - 1, 0, -1):
        # The best whole answer in which layer `number` begins at a cut.
        ahead: dict[int, float] = {}
        stray = dict(candidates[number])
        for before in forward[number]:
            ahead[before] = min(
                (
                    cost + stray[cut] + _cost(columns, before, cut, printed[number])
                    for cut, cost in behind.items()
                    if cut >= before
                ),
                default=float("inf"),
            )
        behind = ahead
        here = answer[number - 1]
        close = [cut for cut, cost in ahead.items() if forward[number][cut] + cost <= limit]
        unsure.update(range(min(close, default=here), here))
        unsure.update(range(here, max(close, default=here)))
    return unsure
