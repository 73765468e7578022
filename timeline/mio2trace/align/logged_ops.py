"""Find the log's calls that are ops of PyTorch's profiler, by order and shapes.

A trace of some steps may fit at several places of the log. Matches from the begin and from the end must agree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from mio2trace.align.sequences import matches
from mio2trace.ops.aten import ROWS
from mio2trace.ops.family import DATA, WEIGHTS
from mio2trace.ops.operation import Operation

_OF_MIOPEN = frozenset(name for name, row in ROWS.items() if row.miopen)


class LoggedOps(NamedTuple):
    """``logged_as``: place of the call by place of the op. ``ambiguous``: the number of ops with several possible
    calls."""

    logged_as: dict[int, int]
    ambiguous: int


def is_op(operation: Operation) -> bool:
    """Return whether it is an op, not a call of the library."""
    return operation.api in ROWS or operation.is_plain


def logged_ops(ops: Sequence[Operation], logged: Sequence[Operation]) -> LoggedOps:
    """Match ``ops`` with ``logged`` calls, both by time."""
    ours = [place for place, one in enumerate(ops) if one.api in _OF_MIOPEN and one.input]
    primitives = {ops[place].primitive for place in ours}
    calls = [
        place
        for place, one in enumerate(logged)
        if one.phase == "run" and one.primitive in primitives and one.input
    ]  # fmt: skip
    calls = _data_first(calls, logged)
    ours_by, calls_by = [_key(ops[place]) for place in ours], [_key(logged[place]) for place in calls]
    first, last = matches(ours_by, calls_by) or [], matches(ours_by[::-1], calls_by[::-1]) or []
    mirrored = {(len(ours) - 1 - op, len(calls) - 1 - call) for op, call in last}
    agreed = [pair for pair in first if pair in mirrored]
    return LoggedOps({ours[op]: calls[call] for op, call in agreed}, len(first) - len(agreed))


def _data_first(places: Sequence[int], logged: Sequence[Operation]) -> list[int]:
    """Order both gradients of a convolution as PyTorch does: the data's first."""
    ordered = list(places)
    for at in range(len(ordered) - 1):
        one, other = logged[ordered[at]], logged[ordered[at + 1]]
        if (one.direction, other.direction) == (WEIGHTS, DATA) and _shapes(one) == _shapes(other):
            ordered[at], ordered[at + 1] = ordered[at + 1], ordered[at]
    return ordered


def _shapes(operation: Operation) -> Hashable:
    return operation.primitive, operation.input, operation.weights, operation.output


def _key(operation: Operation) -> Hashable:
    """Return what op and call both state."""
    if operation.primitive == "conv":
        return operation.direction, _shapes(operation)
    return operation.primitive, operation.direction, operation.input
