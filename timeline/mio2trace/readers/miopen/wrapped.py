"""Commands that a terminal wrapped: a line of options right behind a command goes on with it (miopen-log.md 7)."""

from __future__ import annotations

from itertools import compress, pairwise

import msgspec

from mio2trace.model.miopen import Command
from mio2trace.patterns import late
from mio2trace.readers.miopen.records import Collected

_OPTION = late(r"--?[A-Za-z]\w*")
_VALUE = late(r"-?[\w.]+")
_LONGEST, _MOST_LINES = 400, 6


class WrappedCommands:
    """``end``: the last line of the command that begins in line ``begin``."""

    def __init__(self, out: Collected) -> None:
        self._out = out
        self._begin = self._end = 0

    def ends_before(self, number: int) -> Command | None:
        """The command that line ``number`` may go on with."""
        command = self._out.records[-1] if self._out.records else None
        if not isinstance(command, Command) or number > command.line + _MOST_LINES:
            return None
        end = self._end if self._begin == command.line else command.line
        return command if number == end + 1 else None

    def takes(self, number: int, line: bytes) -> bool:
        """Take line ``number`` where it goes on with a command in the line before it."""
        if b"-" not in line or len(line) > _LONGEST:
            return False
        command = self.ends_before(number)
        if command is None:
            return False
        more = line.rstrip().decode(errors="replace")
        tokens = more.split()
        if not _are_options(tokens):
            return False
        text = _joined(command.text, more, tokens)
        if _repeated(text) > _repeated(command.text):
            return False  # another program's: MIOpen prints no option twice
        self._out.records[-1] = msgspec.structs.replace(command, text=text)
        self._begin, self._end = command.line, number
        return True


def _are_options(tokens: list[str]) -> bool:
    """Whether all are options with their values, but for the rest of one that the line before began."""
    values = [_OPTION.fullmatch(token) is None for token in tokens]
    return (
        not all(values)
        and all(map(_VALUE.fullmatch, compress(tokens, values)))
        and not any(before and value for before, value in pairwise(values[1:]))
    )


def _repeated(text: str) -> int:
    """How many of a command's options it has already."""
    options = [token for token in text.split() if _OPTION.fullmatch(token)]
    return len(options) - len(set(options))


def _joined(text: str, more: str, tokens: list[str]) -> str:
    """A command and what follows, with the space between them that the end of its line may have lost."""
    if text.endswith("-"):
        return text + more
    if more[:1].isspace() or more.startswith("-"):
        return f"{text} {more.lstrip()}"
    completes_option = len(tokens) > 1 and not _OPTION.fullmatch(tokens[1])
    after_option = _OPTION.fullmatch(text.rpartition(" ")[2]) is not None
    return f"{text} {more}" if after_option and not completes_option else text + more
