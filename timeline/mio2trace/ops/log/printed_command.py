"""Whether a command is the one that an entry's call printed, and what it adds to the entry's problem."""

from __future__ import annotations

from mio2trace.model.miopen import Command
from mio2trace.ops.command import base, tag_direction
from mio2trace.ops.driver_options import first_word
from mio2trace.ops.log.draft import Draft
from mio2trace.ops.problem import Problem
from mio2trace.ops.table import WORDS


def primitive_of(text: str) -> str:
    """The primitive of a command, by its base word."""
    word = first_word(text)
    name = base(word)[0]
    row = WORDS.get(name) or next((row for begin, row in WORDS.items() if name.startswith(begin)), None)
    return row.primitive if row is not None else word or "command"


def belongs(draft: Draft, command: Command, problem: Problem | None) -> bool:
    """Whether ``command``, of the problem ``problem``, is the one that the call printed."""
    entry, direction = draft.problem, draft.direction
    if problem is None:
        return primitive_of(command.text) == draft.primitive
    if ("Find" in command.tag and draft.phase != "find") or not problem.may_print(draft.primitive):
        return False
    by_call = tag_direction(command.tag) if command.tag.startswith("miopen") else None
    if direction is not None and any(way not in (None, direction) for way in (problem.direction, by_call)):
        return False
    return entry is None or problem.fits(entry)


def merged(entry: Problem | None, command: Problem | None) -> Problem | None:
    """The entry's problem with what only the command tells."""
    if entry is None or command is None:
        return entry or command
    return entry.with_command(command)
