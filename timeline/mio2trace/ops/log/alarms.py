"""The errors and warnings of a MIOpen log: each once, with its count and its first line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.patterns import late

AlarmLevel = Literal["error", "warning"]
_WARNING_KINDS = frozenset(("warning", "workspace warning"))
_NUMBERS = late(r"0x[0-9a-fA-F]+|\b[0-9A-F]{16}\b|[0-9]+")


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Errors or warnings that differ only in their numbers.

    ``kind``: the kind of the message (`Message.kind`). ``line``, ``function``, ``text``: of the first one; ``function``
    is empty for a message without a level.
    """

    level: AlarmLevel
    kind: str
    count: int
    line: int
    text: str
    function: str = ""


def alarm_level(message: Message) -> AlarmLevel | None:
    """Return ``error``, ``warning``, or None for any other message: a search reports its progress as warnings."""
    if message.level in ("Error", "Fatal"):
        return "error"
    return "warning" if message.level == "Warning" and message.kind in _WARNING_KINDS else None


def alarm_messages(log: MiopenLog) -> Iterator[tuple[AlarmLevel, Message]]:
    """Yield each error and warning, in the order of the log's lines."""
    for record in log.records:
        if isinstance(record, Message):
            level = alarm_level(record)
            if level is not None:
                yield level, record


def alarms(log: MiopenLog) -> tuple[Alarm, ...]:
    """Return errors, then warnings, each in the order of their first lines."""
    first: dict[tuple[AlarmLevel, str, str, str], tuple[Message, int]] = {}
    for level, message in alarm_messages(log):
        key = level, message.kind, message.function, without_numbers(message.text)
        earliest, count = first.get(key, (message, 0))
        first[key] = earliest, count + 1
    found = [
        Alarm(
            level=key[0],
            kind=message.kind,
            count=count,
            line=message.line,
            text=message.text,
            function=message.function,
        )
        for key, (message, count) in first.items()
    ]
    return tuple(sorted(found, key=lambda alarm: (alarm.level != "error", alarm.line)))


def without_numbers(text: str) -> str:
    """Return the text that messages of one form share, with ``0`` for numbers and addresses."""
    return _NUMBERS.sub("0", text)
