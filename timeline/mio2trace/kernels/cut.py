"""Names that a tool cut off, as narrow tables do: what all names mean that begin so."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from typing import TypeVar

from mio2trace.kernels.names import PATTERNS, WORK, KernelName, kernel_name, normalise

FEWEST = 3
"""So many different names are as long as the longest one where names were cut off there."""
HELPER = "helper"
_ENDS = re.compile(r"\$|\(\?!")
"""What a row says of where its names end."""
_T = TypeVar("_T")


def cut_at(names: AbstractSet[str]) -> int:
    """The length at which these names were cut off, 0 where they were not.

    Several are as long as the longest one, and one of them is none of MIOpen's as it stands but the beginning of one.
    """
    longest = max(map(len, names), default=0)
    ends = [name for name in names if len(name) == longest]
    if len(ends) < FEWEST:
        return 0
    begins = _beginnings()
    begun = [name for name in ends if normalise(name) in begins]
    return longest if any(kernel_name(name) is None and cut_name(name) for name in begun) else 0


def left_of(name: str, cut: int) -> str:
    """What of a whole name is left where names were cut off at that length; 0: all."""
    return name[:cut] if cut else name


@cache
def _beginnings() -> frozenset[str]:
    """All that one of the table's literal beginnings may begin with."""
    return frozenset(begin[:end] for begins, _, _ in PATTERNS for begin in begins for end in range(1, len(begin) + 1))


@lru_cache(maxsize=1 << 12)
def cut_name(name: str) -> KernelName | None:
    """What all of MIOpen's names that begin with ``name`` have in common; None where there is none.

    The role is empty where it may be work or a helper's; so is the algorithm where there are several.
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
    """The one of these names that begins so, ``name`` where none does, None where several do."""
    whole = [one for one in among if one.startswith(name)]
    return name if not whole else whole[0] if len(whole) == 1 else None


def _meanings(plain: str) -> list[KernelName]:
    """The rows that a name which begins so may be of: none behind one that fits as it stands.

    Where anything may follow what a row begins with, it may be of that one, too; that alone tells nothing.
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
    """What any of them has; empty, which is any, where one is."""
    rows = [*choices]
    return tuple(dict.fromkeys(one for row in rows for one in row)) if all(rows) else ()
