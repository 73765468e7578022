"""Families of problems: each module holds what one family computes, and how its calls and commands state it.

The rows of all families are here together: by API call, by the driver's base word, by what level lines say.
"""

from __future__ import annotations

from mio2trace.ops.families import (
    activation,
    collective,
    conv,
    fusion,
    gemm,
    normalisation,
    other,
    pool,
    rnn,
    tensor,
)
from mio2trace.ops.family import Family, Op, Options, Word

FAMILIES: tuple[Family, ...] = (
    conv.FAMILY,
    fusion.FAMILY,
    pool.FAMILY,
    normalisation.FAMILY,
    activation.FAMILY,
    tensor.FAMILY,
    rnn.FAMILY,
    gemm.FAMILY,
    collective.FAMILY,
    other.FAMILY,
)

OPS: dict[str, Op] = {op.api: op for family in FAMILIES for op in family.ops}
"""By API name without ``_impl``. `miopenFindSolutions` and `miopenRunSolution` have no problem of their own."""
FIND_2 = frozenset(("miopenFindSolutions", "miopenRunSolution"))

WORDS: dict[str, Word] = {name: word for family in FAMILIES for name, word in family.words.items()}
"""By the driver's base word, without its type."""
OPTIONS: dict[str, Options] = {name: word.options for name, word in WORDS.items() if word.options is not None}
"""Of the base words that we offer."""

INVOKED = tuple(row for family in FAMILIES for row in family.invoked)
"""What the name of an algorithm begins with, its primitive and its direction."""
FIND_2_TENSORS = tuple(row for family in FAMILIES for row in family.find_2)
"""What the name of a tensor of `miopenRunSolution` holds, and the primitive."""


def launches(api: str) -> bool:
    """Whether a call of this name computes or benchmarks: all others launch nothing (miopen-log.md 5.7)."""
    return api in OPS or api in FIND_2
