"""The log's lines as an axis, where nothing else relates them to the activities: each is at its operation's line."""

from __future__ import annotations

from mio2trace.align.clocks.axis import Timeline
from mio2trace.align.links import Links


def line_axis(links: Links) -> Timeline | None:
    """Where no clock relates log and profile: the lines of the log, each activity at its operation's."""
    if not links.has_operations:
        return None
    source = links.operations[0].source
    line_of = {operation.index: operation.line for operation in links.operations}
    lines: list[int] = []
    latest = 0
    for index in links.operation_of:
        latest = max(latest, line_of.get(index, 0))
        lines.append(latest)
    return Timeline(
        by_line=True,
        evidence=None,
        event=lambda event: event.line if event.source == source else None,
        layer=lambda layer: layer.line if layer.source == source and layer.line else None,
        begins=lines,
        ends=lines,
    )
