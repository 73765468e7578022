"""Names that a tool cut off, as narrow tables do: the meaning that all names with this beginning share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from typing import TypeVar

from mio2trace.kernels.names import PATTERNS, WORK, KernelName, kernel_name, normalise

FEWEST = 3
"""Names were cut off at the length of the longest name if at least this many different names have that length."""
HELPER = "helper"
_ENDS = re.compile(r"\$|\(\?!")
"""Characters in a row's expression that mark the end of a name."""
_T = TypeVar("_T")


def cut_at(names: AbstractSet[str]) -> int:
    """Return the length at which these names were cut off, 0 if they were not.

    Several names have the length of the longest one, and one of them is not a name of MIOpen but the beginning of one.
    """
    longest = max(map(len, names), default=0)
    ends = [name for name in names if len(name) == longest]
    if len(ends) < FEWEST:
        return 0
    begins = _beginnings()
    begun = [name for name in ends if normalise(name) in begins]
    return longest if any(kernel_name(name) is None and cut_name(name) for name in begun) else 0


def left_of(name: str, cut: int) -> str:
    """Return the part of a whole name that is left if names were cut off at that length; 0: all."""
    return name[:cut] if cut else name


@cache
def _beginnings() -> frozenset[str]:
    """Return every beginning of the literal beginnings in the table."""
    return frozenset(begin[:end] for begins, _, _ in PATTERNS for begin in begins for end in range(1, len(begin) + 1))


@lru_cache(maxsize=1 << 12)
def cut_name(name: str) -> KernelName | None:
    """Return the common meaning of all names of MIOpen that begin with ``name``; None if there is no such name.

    The role is empty if the kernel may be a main or an auxiliary one; so is the algorithm if there are several.
    """
    plain = normalise(name)
    meanings = [means for means in _meanings(plain) if means.miopen]
    if not meanings:
        return None
    roles = [means.role for means in meanings]
    algorithms = [means.algorithm for means in meanings]
    return KernelName(
        role=_role(roles),
        miopen=True,
        primitives=_all(means.primitives for means in meanings),
        directions=_all(means.directions for means in meanings),
        algorithm=algorithms[0] if len(set(algorithms)) == 1 else "",
    )


def in_full(name: str, among: Collection[str]) -> str | None:
    """Return the one of these names that begins with ``name``; ``name`` if there is none, None if there are several."""
    whole = [one for one in among if one.startswith(name)]
    return name if not whole else whole[0] if len(whole) == 1 else None


def _meanings(plain: str) -> list[KernelName]:
    """Return the rows to which a name with this beginning may belong; none after a row that matches the name as it is.

    A row whose beginning is followed by any text is also possible; by itself it shows nothing.
    """
    meanings, is_one = [], False
    for begins, form, means in PATTERNS:
        fits = plain.startswith(begins) and form.match(plain) is not None
        if fits or any(begin.startswith(plain) for begin in begins):
            meanings.append(means)
            is_one = True
        elif "\\w" in form.pattern and any(begin and plain.startswith(begin) for begin in begins):
            meanings.append(means)
        if fits and not _ENDS.search(form.pattern):
            break
    return meanings if is_one else []


def _role(roles: Sequence[str]) -> str:
    if len(set(roles)) == 1:
        return roles[0]
    works = {role in WORK for role in roles}
    return "" if len(works) > 1 else "main" if works.pop() else HELPER


def _all(choices: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    """Return the values of all choices; empty (any value) if one choice is empty."""
    rows = [*choices]
    return tuple(dict.fromkeys(one for row in rows for one in row)) if all(rows) else ()
