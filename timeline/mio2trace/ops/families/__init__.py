"""Families of problems: each module describes what one family computes, and how its calls and commands state it.

This module collects the rows of all families: by API call, by the driver's base word, by the texts of level lines.
"""

from __future__ import annotations

from mio2trace.ops.families import collective, conv, elementwise, gemm, normalisation, pool, rnn
from mio2trace.ops.problem import Family, Op, Options, Word, direction_in

_MODULES = conv, pool, normalisation, rnn, gemm, collective, elementwise
FAMILIES: tuple[Family, ...] = tuple(module.FAMILY for module in _MODULES)

OPS: dict[str, Op] = {op.api: op for family in FAMILIES for op in family.ops}
"""By API name without ``_impl``. `miopenFindSolutions` and `miopenRunSolution` have no problem of their own."""
FIND_2 = frozenset(("miopenFindSolutions", "miopenRunSolution"))

WORDS: dict[str, Word] = {name: word for family in FAMILIES for name, word in family.words.items()}
"""By the driver's base word, without its type."""
OPTIONS: dict[str, Options] = {name: word.options for name, word in WORDS.items() if word.options is not None}
"""The base words for which commands are offered."""

INVOKED = tuple((name, primitive, direction_in(name)) for family in FAMILIES for name, primitive in family.invoked)
"""The beginning of an algorithm's name, its primitive and its direction."""
FIND_2_TENSORS = tuple(row for family in FAMILIES for row in family.find_2)
"""A part of a tensor's name in `miopenRunSolution`, and the primitive."""


def launches(api: str) -> bool:
    """Return whether a call of this name computes or benchmarks: all others launch nothing (miopen-log.md 5.7)."""
    return api in OPS or api in FIND_2
