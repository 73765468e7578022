"""The library's calls and warnings as the host saw them: from their stamps, their kernels, and what stands around them.

A log's lines are in order of time, so a line lies between the last thing before it whose host time is known and the
first one after it: stamped lines, and calls whose kernels the profile has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import Any

import msgspec

from mio2trace.align import Alignment
from mio2trace.draw.operations import operation_args, source_args
from mio2trace.measures import Measures
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.ops.log.alarms import AlarmLevel, alarm_messages
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.ops.ranges import is_library_call

_LONGEST = 90
"""Characters of a line of the log that a slice is named by."""

HOST_BY_KERNELS = "its kernels"
HOST_BY_STAMP = "own stamp"
HOST_BY_NEIGHBOURS = "lines around it"
"""What the times of a call rest on (``host_by``): with the last two it began and ended in that time, no more."""


class HostSpan(msgspec.Struct, frozen=True, gc=False):
    """A slice of the host's side: times in ns. ``args`` is None for a call with kernels, ``operation`` for a line of
    the log.
    """

    start: int
    end: int
    name: str
    category: str
    args: dict[str, Any] | None
    operation: Operation | None = None

    def shown_args(self) -> dict[str, Any]:
        """Its arguments; a run may have a million calls, so theirs are made when they are drawn."""
        if self.args is not None or self.operation is None:
            return self.args or {}
        args = {"operation": self.operation.index, **source_args(self.operation)}
        if self.operation.api:
            args["api"] = self.operation.api
        return args | {"phase": self.operation.phase, "host_by": HOST_BY_KERNELS}


_Known = tuple[int, int, int]
"""The line, the start and the end of something of the log whose host time is known: a stamped line, or a call."""
_line, _start, _end = map(itemgetter, range(3))


def call_spans(
    measures: Measures, libraries: Sequence[MiopenLog], *, with_kernels: bool
) -> tuple[list[HostSpan], list[HostSpan]]:
    """(calls, lines of the log) whose host times are known, each in order of start.

    ``with_kernels``: calls that launched kernels, too; those that did not are drawn nowhere else. Where the profile
    has the library's own ranges, they lie on their threads: no call is drawn twice.
    """
    alignment, calls = measures.alignment, measures.host_spans()
    ranged = any(is_library_call(made) for made in alignment.profile.ranges)
    sources = {operation.source for operation in alignment.links.operations} | {log.source for log in libraries}
    spans = list(_with_kernels(alignment, calls)) if with_kernels and not ranged else []
    lines: list[HostSpan] = []
    for source in sorted(sources):
        around = _Around(alignment, source, calls)
        spans += [] if ranged else _without_kernels(alignment, source, calls, around)
        for log in libraries:
            if log.source == source:
                lines += _alarms(log, around)
    return sorted(spans, key=_times), sorted(lines, key=_times)


def _times(span: HostSpan) -> tuple[int, int]:
    return span.start, span.end


def _with_kernels(alignment: Alignment, calls: Mapping[int, tuple[int, int]]) -> Iterator[HostSpan]:
    for operation in alignment.links.operations:
        span = calls.get(operation.index)
        if span is not None:
            yield HostSpan(*span, operation_name(operation), "call", None, operation)


class _Around:
    """The known times around each line of one log; looked up when the first line asks."""

    def __init__(self, alignment: Alignment, source: int, calls: Mapping[int, tuple[int, int]]) -> None:
        clock = alignment.log_clock
        self.to_host: Callable[..., int] | None = None if clock is None else clock.to_host
        self._alignment, self._source, self._calls = alignment, source, calls

    @cached_property
    def _known(self) -> list[_Known]:
        source, calls, to_host = self._source, self._calls, self.to_host
        known: list[_Known] = []
        if to_host is not None:
            for log in self._alignment.logs:
                stamped = [(event.line, event.stamp) for event in log.events if event.source == source]
                stamped += [(layer.line, layer.stamp) for layer in log.layers if layer.source == source]
                for line, stamp in stamped:
                    if stamp is not None and line:
                        at = to_host(stamp)
                        known.append((line, at, at))
        for operation in self._alignment.links.operations:
            if operation.source == source and operation.index in calls:
                known.append((operation.line, *calls[operation.index]))
        known.sort(key=_line)  # three rows in order, which sorting by one number finds
        return known

    @cached_property
    def _lines(self) -> list[int]:
        return [*map(_line, self._known)]

    # Several threads, or a clock that was set: what came before is the latest of all before.

    @cached_property
    def _ended(self) -> list[int]:
        return [*accumulate(map(_end, self._known), max)]

    @cached_property
    def _began(self) -> list[int]:
        return [*accumulate(map(_start, self._known), max)]

    @cached_property
    def _next(self) -> list[int]:
        return [*accumulate(map(_start, reversed(self._known)), min)][::-1]

    def call(self, line: int) -> tuple[int, int] | None:
        """What a call of this line lies between: all before it is over."""
        return self._between(line, self._ended)

    def message(self, line: int) -> tuple[int, int] | None:
        """What a message of this line lies between: the call before it may still go on."""
        return self._between(line, self._began)

    def _between(self, line: int, before: Sequence[int]) -> tuple[int, int] | None:
        first, last = bisect_left(self._lines, line), bisect_right(self._lines, line)
        if first == 0 or last == len(self._lines):
            return None
        start, end = before[first - 1], self._next[last]
        return (start, end) if start <= end else None


def _without_kernels(
    alignment: Alignment, source: int, calls: Mapping[int, tuple[int, int]], around: _Around
) -> Iterator[HostSpan]:
    """Calls that launched nothing: those that nothing tells apart share a slice."""
    together: dict[tuple[int, int], list[Operation]] = {}
    for operation in alignment.links.operations:
        if operation.source != source or operation.index in calls:
            continue
        span = around.call(operation.line)
        if span is None:
            continue
        if operation.stamp is not None and around.to_host is not None:
            start = min(max(around.to_host(operation.stamp), span[0]), span[1])
            yield _idle(start, span[1], operation, HOST_BY_STAMP)
        else:
            together.setdefault(span, []).append(operation)
    for span, operations in together.items():
        first = operations[0]
        if len(operations) == 1:
            yield _idle(*span, first, HOST_BY_NEIGHBOURS)
            continue
        args: dict[str, Any] = {**source_args(first), "calls": len(operations), "host_by": HOST_BY_NEIGHBOURS}
        name = f"{operation_name(first)} and {len(operations) - 1} more without kernels"
        yield HostSpan(*span, name, "call", args, first)


def _idle(start: int, end: int, operation: Operation, host_by: str) -> HostSpan:
    args: dict[str, Any] = {"operation": operation.index, **source_args(operation), **operation_args(operation)}
    args |= {"kernels": 0, "kernel_ns": 0, "host_by": host_by}
    return HostSpan(start, end, operation_name(operation), "operation", args, operation)


def _alarms(log: MiopenLog, around: _Around) -> Iterator[HostSpan]:
    """Warnings and errors, as moments: those that nothing tells apart share one, named by the gravest."""
    together: dict[int, list[tuple[AlarmLevel, Message, int]]] = {}
    for level, message in alarm_messages(log):
        if message.stamp is not None and around.to_host is not None:
            together.setdefault(around.to_host(message.stamp), []).append((level, message, 0))
        elif (span := around.message(message.line)) is not None:
            together.setdefault(span[0], []).append((level, message, span[1] - span[0]))
    for at, messages in together.items():
        level, gravest, within = min(messages, key=lambda one: one[0])  # an error before a warning
        text = gravest.text.strip()
        name = f"{gravest.level}: {text}".rstrip()
        if len(name) > _LONGEST:
            name = name[: _LONGEST - 3] + "..."
        if len(messages) > 1:
            name += f" and {len(messages) - 1} more"
        args: dict[str, Any] = {"level": level, "line": gravest.line, "lines": len(messages)}
        if text:
            args["text"] = text
        args["host_by"] = HOST_BY_STAMP if gravest.stamp is not None else HOST_BY_NEIGHBOURS
        if within:
            args["within_ns"] = within
        yield HostSpan(at, at, name, "log", args)
