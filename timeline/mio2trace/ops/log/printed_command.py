"""Whether a command is the one that an entry's call printed, and what it adds to the entry's problem."""

from __future__ import annotations

from mio2trace.model.miopen import Command
from mio2trace.ops.command import base, tag_direction
from mio2trace.ops.driver_options import first_word
from mio2trace.ops.log.draft import Build
from mio2trace.ops.problem import Problem
from mio2trace.ops.table import WORDS


def primitive_of(text: str) -> str:
    """The primitive of a command, by its base word."""
    word = first_word(text)
    name = base(word)[0]
    row = WORDS.get(name) or next((row for known, row in WORDS.items() if name.startswith(known)), None)
    return row.primitive if row is not None else word or "command"


def belongs(build: Build, command: Command, told: Problem | None) -> bool:
    """Whether ``command``, of the problem ``told``, is the one that the call printed."""
    entry, direction = build.problem, build.direction
    if told is None:
        return primitive_of(command.text) == build.primitive
    if ("Find" in command.tag and build.phase != "find") or not told.may_print(build.primitive):
        return False
    if entry is None:
        return True
    by_call = tag_direction(command.tag) if command.tag.startswith("miopen") else None
    if direction is not None and any(way not in (None, direction) for way in (told.direction, by_call)):
        return False
    return told.fits(entry)


def merged(entry: Problem | None, command: Problem | None) -> Problem | None:
    """The entry's problem with what only the command tells."""
    if entry is None or command is None:
        return entry or command
    return entry.with_command(command)
