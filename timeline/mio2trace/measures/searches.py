"""Kernels that may be a search's (MIOpen Find) or something else's, by what the sure links leave open.

Names and order link no kernel surely, or none at all, if a search launched each of its candidates many times. Kernels
and calls of a queue have one order: between two sure links only the calls between these two launched anything."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.kernels.names import kernel_name
from mio2trace.model.tables import NEVER, Codes, Numbers, by_key

UNSURE = 0.05
"""A sum of times is not sure if a larger part of it may be a search's or may be not."""
MANY = 3
"""More kernels of the library for each call that executes are hardly an iteration's: searches launch that many."""


def undecided(alignment: Alignment) -> NDArray[np.bool_]:
    """Return of each activity whether it is a kernel that may be a search's or may be not."""
    commands, links = alignment.profile.commands, alignment.links
    found = np.zeros(len(commands), bool)
    searching = np.array([one.phase == "find" for one in links.operations], bool)
    if not searching.any():
        return found
    indices = np.array([one.index for one in links.operations], np.int64)
    searches, executions = np.sort(indices[searching]), np.sort(indices[~searching])
    measured = np.sort(indices[searching & ~np.array([one.is_answered for one in links.operations], bool)])
    operation_of = np.asarray(links.operation_of).astype(np.int64)
    is_sure = operation_of != NONE
    is_sure[[*links.operation_unsure]] = False
    is_search = np.isin(operation_of, searches)
    is_library = commands.name.where(lambda name: kernel_name(name) is not None)
    kernels = np.flatnonzero(commands.is_kernel)
    for _, rows in by_key(kernels, commands.queue[kernels]):
        own, sure = operation_of[rows], is_sure[rows]
        last = np.maximum.accumulate(np.where(sure, own, NONE))
        next_ = np.minimum.accumulate(np.where(sure, own, NEVER)[::-1])[::-1]
        between = np.minimum(last, next_), np.maximum(last, next_)
        may_search, may_execute = _any_of(measured, *between), _any_of(executions, *between)
        if_linked = np.where(is_search[rows], may_execute, may_search)
        found[rows] = ~sure & np.where(own == NONE, is_library[rows] & may_search, if_linked)
    return found


def _any_of(indices: Numbers, low: Numbers, high: Numbers) -> NDArray[np.bool_]:
    is_any: NDArray[np.bool_] = np.searchsorted(indices, high, "right") > np.searchsorted(indices, low, "left")
    return is_any


def doubt_of_iterations(alignment: Alignment, place_of: Codes, counted: int, is_undecided: NDArray[np.bool_]) -> str:
    """Return why iterations that the kernels repeat may be searches or parts of iterations; empty if they may not.

    ``place_of``: of each activity the place of its iteration; ``counted``: the number of iterations."""
    commands, operations = alignment.profile.commands, alignment.links.operations
    executed = Counter(
        (one.primitive, one.direction, one.input, one.weights, one.output) for one in operations if one.phase == "run"
    )
    # A log has a call that was captured into a graph once, however often it is replayed.
    if not executed or len(operations) == executed.total() or commands.is_replayed.any():
        return ""
    if counted > max(executed.values()):
        return "the log executes no call that often"
    rows = np.flatnonzero(place_of != NONE)
    ns, may_search = commands.time_ns[rows], is_undecided[rows]
    if MANY * executed.total() < np.count_nonzero(may_search) and UNSURE * ns.sum() < ns[may_search].sum():
        return "they may be searches"
    return ""
