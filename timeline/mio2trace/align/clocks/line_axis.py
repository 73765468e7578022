"""The log's lines as an axis, where nothing else relates them to the activities: each is at its operation's line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from mio2trace.align.clocks.axis import Timeline, axis_of_lines
from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.rates import WHOLE


def line_axis(links: Links) -> Timeline | None:
    """Where no clock relates log and profile: the lines of the log, each activity at its operation's."""
    if not links.has_operations:
        return None
    line_of = {operation.index: operation.line for operation in links.operations}
    lines: list[int] = []
    latest = 0
    for index in links.operation_of:
        latest = max(latest, line_of.get(index, 0))
        lines.append(latest)
    return axis_of_lines(links.operations[0].source, lines, None)


def chances_between(links: Links, layer_lines: Sequence[int]) -> dict[int, float]:
    """Of each activity without an operation how probable it is in the layer of the operation before it: as much as in
    each that printed a line (``layer_lines``, sorted) up to the operation behind it.

    0 before the first operation and behind the last one: nothing bounds these.
    """
    line_of = {operation.index: operation.line for operation in links.operations}
    queues: dict[int, list[int]] = {}
    for position, activity in enumerate(links.activities):
        queues.setdefault(activity.queue, []).append(position)
    chances: dict[int, float] = {}
    for positions in queues.values():
        pending: list[int] = []
        before: int | None = None
        for position in positions:
            line = line_of.get(links.operation_of[position]) if links.operation_of[position] != NONE else None
            if line is None:
                pending.append(position)
                continue
            if pending:
                chance = 0.0
                if before is not None:
                    layers = bisect_left(layer_lines, max(before, line)) - bisect_left(layer_lines, before)
                    chance = WHOLE / (1 + layers)
                chances.update(dict.fromkeys(pending, chance))
                pending = []
            before = line if before is None else max(before, line)
        chances.update(dict.fromkeys(pending, 0.0))
    return chances
