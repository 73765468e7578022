"""A profile is joined with its logs; where that fails, or nothing of a log fits, the profile stands without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from mio2trace.align import Alignment, align
from mio2trace.jobs import Share
from mio2trace.model.profile import Profile
from mio2trace.notes import NOT_JOINED, NOT_USED, Notes

FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of the program itself. Two files that can be read are both shown then, side by side."""


class Joined(NamedTuple):
    """``unused``: the sources of logs that the alignment does without."""

    alignment: Alignment
    unused: frozenset[int] = frozenset()


def join(profile: Profile, share: Share, name_of: Mapping[int, str], notes: Notes, **options: Any) -> Joined:
    """``profile`` with its ``share`` of the logs. ``name_of``: files by number. ``options``: of `mio2trace.align`.

    Raises `InputError` as that does.
    """
    given = share.sources - {profile.source}
    before = notes.copy()
    try:
        alignment = _aligned(profile, share, notes, **options)
    except FAULTS as error:
        if not given:
            raise
        notes.go_back_to(before)
        notes.add(NOT_JOINED, f"{_names(given, name_of)}: {_place(error)}")
        return Joined(_aligned(profile, share.but(given), notes, **options), given)
    if not alignment.unused:
        return Joined(alignment)
    notes.go_back_to(before)
    for source in sorted(alignment.unused):
        notes.add(NOT_USED, name_of.get(source, ""))
    rest = join(profile, share.but(alignment.unused), name_of, notes, **options)
    return Joined(rest.alignment, alignment.unused | rest.unused)


def _names(sources: frozenset[int], name_of: Mapping[int, str]) -> str:
    """The files of these sources."""
    return ", ".join(name_of.get(source, "?") for source in sorted(sources))


def _aligned(profile: Profile, share: Share, notes: Notes, **options: Any) -> Alignment:
    return align(profile, share.logs, notes, operations=share.operations, **options)


def _place(error: Exception) -> str:
    """Its type, and the line of the program."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {'/'.join(PurePath(last.filename).parts[-2:])}:{last.lineno}"
