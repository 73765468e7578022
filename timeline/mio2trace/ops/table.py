"""The rows of all families together: by API call, by the driver's base word, by what level lines say."""

from __future__ import annotations

from mio2trace.ops.families import FAMILIES
from mio2trace.ops.family import Op, Options, Word

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
