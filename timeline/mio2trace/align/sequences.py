"""Match two sequences by the shortest edit script (Myers 1986); linear for few differences."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

MAX_EDITS = 1000
"""Sequences with more edits are not matched; this bounds the cost."""


def matches(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    """Return as many increasing pairs (i, j) with a[i] == b[j] as possible; None beyond `MAX_EDITS` edits."""
    head = 0
    while head < len(a) and head < len(b) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < len(a) - head and tail < len(b) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    middle = _myers(a[head : len(a) - tail], b[head : len(b) - tail])
    if middle is None:
        return None
    return [
        *((i, i) for i in range(head)),
        *((head + i, head + j) for i, j in middle),
        *((len(a) - tail + i, len(b) - tail + i) for i in range(tail)),
    ]


def _myers(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    n, m = len(a), len(b)
    if not n or not m:
        return []
    reach: dict[int, int] = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_EDITS) + 1):
        history.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            reach[k] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m)
    return None


def _walk_back(history: list[dict[int, int]], n: int, m: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    x, y = n, m
    for edits in range(len(history) - 1, -1, -1):
        before = start = (0, 0)
        if edits:
            reach, k = history[edits], x - y
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            previous = k + 1 if down else k - 1
            before = (reach[previous], reach[previous] - previous)
            start = (before[0], before[1] + 1) if down else (before[0] + 1, before[1])
        while (x, y) != start:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = before
    pairs.reverse()
    return pairs
