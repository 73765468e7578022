"""A log's operations as MIOpenDriver lines: each once, counted, most frequent first (miopen-log.md 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from timeline.model.operation import Operation
from timeline.ops import driver_command
from timeline.ops.problem import CommandError, Form

DriverForm = Literal["today", "log"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One command. ``calls`` executed it, ``searches`` are find calls, which launch candidates and no operation."""

    command: str
    calls: int
    searches: int

    def __str__(self) -> str:
        """For a shell: the count is a comment."""
        if not self.calls:
            return f"{self.command} # searched {_times(self.searches)}, not run"
        return f"{self.command} # {self.calls} {'call' if self.calls == 1 else 'calls'}"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Operations without a command: what they are, and why."""

    primitive: str
    reason: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} x {self.primitive}: {self.reason}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def lines(operations: Iterable[Operation], form: Form = "newest") -> tuple[list[Line], list[Refused]]:
    """The commands in a version's form, most frequent first, then in log order; and what has none."""
    calls: Counter[str] = Counter()
    searches: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    made: dict[object, tuple[str | None, str]] = {}
    order: dict[str, None] = {}
    for operation in operations:
        if form == "newest":
            command, reason = operation.command, operation.command_reason
        else:
            key = (operation.problem, operation.dtype)
            if key not in made:
                made[key] = _command(operation, form)
            command, reason = made[key]
        if command is None:
            refused[operation.primitive, reason or "the log does not tell the shapes"] += 1
        else:
            order.setdefault(command)
            (searches if operation.phase == "find" else calls)[command] += 1
    found = [Line(command=command, calls=calls[command], searches=searches[command]) for command in order]
    found.sort(key=lambda line: (-line.calls, -line.searches))
    return found, [
        Refused(primitive=primitive, reason=reason, count=count) for (primitive, reason), count in refused.most_common()
    ]


def _command(operation: Operation, form: Form) -> tuple[str | None, str]:
    try:
        return driver_command(operation, form), ""
    except CommandError as error:
        return None, str(error)
