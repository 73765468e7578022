"""Calls and warnings of the library on the host: placed by their stamps, their kernels, and the lines around them.

A log's lines are in order of time. So a line is between the last one before it with a known host time and the first one
after it: lines with stamps, and calls whose kernels are in the profile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec

from mio2trace.align import Alignment
from mio2trace.draw.device.containers import operation_args, source_args
from mio2trace.measures import Measures
from mio2trace.model.log import LayerTime, LogEvent
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.ops.log.alarms import AlarmLevel, alarm_messages
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.ops.ranges import is_library_call

_LONGEST = 90
"""Characters of a log line in the name of a slice."""

_NEVER = 1 << 80
"""Later than any time."""

HOST_BY_KERNELS = "its kernels"
HOST_BY_STAMP = "own stamp"
HOST_BY_NEIGHBOURS = "lines around it"
"""The evidence for the times of a call (``host_by``). The last two mean only that it began and ended within
this time."""


class HostSpan(msgspec.Struct, frozen=True, gc=False):
    """A slice of the host's side; times in ns. ``args``: None for a call with kernels, which has an ``operation``."""

    start: int
    end: int
    name: str
    category: str
    args: dict[str, Any] | None
    operation: Operation | None = None

    def shown_args(self) -> dict[str, Any]:
        """Return its arguments; made on drawing, because a run may have a million calls."""
        if self.args is not None or self.operation is None:
            return self.args or {}
        args = {"operation": self.operation.index, **source_args(self.operation)}
        if self.operation.api:
            args["api"] = self.operation.api
        return args | {"phase": self.operation.phase, "host_by": HOST_BY_KERNELS}


def call_spans(
    measures: Measures, libraries: Sequence[MiopenLog], *, with_kernels: bool
) -> tuple[list[HostSpan], list[HostSpan]]:
    """Return (calls, lines of the log) with known host times, each in order of start.

    ``with_kernels``: also calls that launched kernels; calls without kernels are drawn nowhere else. If the profile has
    the library's own ranges, these are on their threads, and no call is drawn twice.
    """
    alignment = measures.alignment
    calls = {index: (start, end) for index, start, end in measures.host_spans()}
    ranged = any(is_library_call(made) for made in alignment.profile.ranges)
    sources = {operation.source for operation in alignment.links.operations} | {log.source for log in libraries}
    spans = list(_with_kernels(alignment, calls)) if with_kernels and not ranged else []
    lines: list[HostSpan] = []
    for source in sorted(sources):
        alarms = [[*alarm_messages(log)] for log in libraries if log.source == source]
        around = _Around(alignment, source, calls, [message.line for of_log in alarms for _, message in of_log])
        spans += [] if ranged else _without_kernels(alignment, source, calls, around)
        lines += chain.from_iterable(_alarms(of_log, around) for of_log in alarms)
    return sorted(spans, key=_times), sorted(lines, key=_times)


def _times(span: HostSpan) -> tuple[int, int]:
    return span.start, span.end


def _with_kernels(alignment: Alignment, calls: Mapping[int, tuple[int, int]]) -> Iterator[HostSpan]:
    names: dict[int, str] = {}  # by the facts that operations share
    for operation in alignment.links.operations:
        span = calls.get(operation.index)
        if span is not None:
            name = names.get(id(operation.facts))
            if name is None:
                name = names[id(operation.facts)] = operation_name(operation)
            yield HostSpan(*span, name, "call", None, operation)


class _Around:
    """The known times around lines of one log: those of calls without kernels, and ``asked``.

    Lines and calls with known times are not kept: there may be a million.
    """

    def __init__(
        self, alignment: Alignment, source: int, calls: Mapping[int, tuple[int, int]], asked: Iterable[int]
    ) -> None:
        clock = alignment.log_clock
        self.to_host: Callable[..., int] | None = None if clock is None else clock.to_host
        self._alignment, self._source, self._calls = alignment, source, calls
        own = (one for one in alignment.links.operations if one.source == source)
        self._lines = lines = sorted({*(one.line for one in own if one.index not in calls), *asked})
        # With several threads, or a clock that was set, the earlier time is the latest of all before.
        ended, began = [-_NEVER] * (len(lines) + 1), [-_NEVER] * (len(lines) + 1)
        following = [_NEVER] * (len(lines) + 1)
        for line, start, end in self._known() if lines else ():
            behind, before = bisect_right(lines, line), bisect_left(lines, line)
            if end > ended[behind]:
                ended[behind] = end
            if start > began[behind]:
                began[behind] = start
            if start < following[before]:
                following[before] = start
        self._ended, self._began = [*accumulate(ended, max)], [*accumulate(began, max)]
        self._next = [*accumulate(reversed(following), min)][::-1]

    def _known(self) -> Iterator[tuple[int, int, int]]:
        """Yield line, start and end of each line of the log with a known host time: lines with stamps, and calls."""
        source, calls, to_host = self._source, self._calls, self.to_host
        for log in self._alignment.logs if to_host is not None else ():
            assert to_host is not None
            records: Iterable[LogEvent | LayerTime] = chain(log.events, log.layers)
            for record in records:
                if record.source == source and record.stamp is not None and record.line:
                    at = to_host(record.stamp)
                    yield record.line, at, at
        for operation in self._alignment.links.operations:
            if operation.source == source and operation.index in calls:
                yield operation.line, *calls[operation.index]

    def call(self, line: int) -> tuple[int, int] | None:
        """Return the times that bound a call of this line: the line before it is over."""
        return self._between(line, self._ended)

    def message(self, line: int) -> tuple[int, int] | None:
        """Return the times that bound a message of this line: the call before it may still run."""
        return self._between(line, self._began)

    def _between(self, line: int, before: Sequence[int]) -> tuple[int, int] | None:
        place = bisect_left(self._lines, line)
        start, end = before[place], self._next[place + 1]
        return (start, end) if -_NEVER < start <= end < _NEVER else None


def _without_kernels(
    alignment: Alignment, source: int, calls: Mapping[int, tuple[int, int]], around: _Around
) -> Iterator[HostSpan]:
    """Yield calls that launched nothing; those with equal bounds share a slice."""
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


def _alarms(alarms: Iterable[tuple[AlarmLevel, Message]], around: _Around) -> Iterator[HostSpan]:
    """Yield warnings and errors as moments; those with equal bounds share one, named after the most severe."""
    together: dict[int, list[tuple[AlarmLevel, Message, int]]] = {}
    for level, message in alarms:
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
