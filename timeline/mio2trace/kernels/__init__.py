"""The real M, N and K of the GEMM-like kernels in a profile, and their auxiliary kernels (dvdt-ck.md 5).

Sizes come from the arguments of the kernel, from the kernels around it, from program sources and from build options.
They are never guessed: an unknown size is left out. A library is a row of `rows`.
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter

import numpy as np

from mio2trace.kernels.facts import Context, KernelFact, Place, Row
from mio2trace.kernels.names import WORK, kernel_name
from mio2trace.model.profile import Profile

__all__ = ["KernelFact", "find_gemms", "helps", "role"]

_MARKS = "gem", "conv_", "_prod_", "alphaab"
"""Every name that a row knows contains one of them. Without such a name the rows are not loaded."""


@cache
def rows() -> tuple[Row, ...]:
    from mio2trace.kernels import blas, compiled

    return blas.ROWS + compiled.ROWS


def _row_of(name: str) -> Row | None:
    if not any(mark in name for mark in _MARKS):
        return None
    return next((row for row in rows() if row.kernels.fullmatch(name)), None)


def find_gemms(profile: Profile) -> dict[int, KernelFact]:
    """Return facts by position in ``profile.activities``, only for kernels about which something is known."""
    commands = profile.commands
    names, is_kernel = commands.name, commands.is_kernel
    row_of = {name: _row_of(name) for name in names.values}
    # the facts that the names of auxiliary kernels alone show
    fact_of = {
        name: KernelFact(role=meaning.role)
        for name, row in row_of.items()
        if row is None and (meaning := kernel_name(name)) is not None and meaning.role != "main"
    }
    shown = names.where(fact_of.__contains__) & is_kernel
    facts = dict(zip(np.flatnonzero(shown).tolist(), map(fact_of.__getitem__, names.take(shown).each()), strict=True))
    found: dict[Row, list[Place]] = {}
    listed = names.where(lambda name: row_of[name] is not None) & is_kernel
    lines = {
        queue: np.flatnonzero(is_kernel & (commands.queue == queue)) for queue in set(commands.queue[listed].tolist())
    }
    places = [
        (position, line, index)
        for positions, line in ((its, its.tolist()) for its in lines.values())
        for index, position in ((at, line[at]) for at in np.flatnonzero(listed[positions]).tolist())
    ]
    for position, line, index in sorted(places, key=itemgetter(0)):
        row = row_of[names.values[names.codes[position]]]
        assert row is not None
        found.setdefault(row, []).append((line, index))
    context = Context(profile, facts)
    for row, its in found.items():
        row.find(context, its)
    return facts


def role(name: str, fact: KernelFact | None) -> str:
    """Return the role of a kernel from its arguments and neighbours, else from its name; empty if unknown."""
    if fact is not None and fact.role:
        return fact.role
    meaning = kernel_name(name)
    return meaning.role if meaning is not None else ""


def helps(kernel_role: str) -> bool:
    """Return whether a kernel of this role only prepares or finishes the work of another one."""
    return kernel_role not in ("", *WORK)
