"""Executions of layers, with their costs on the device and on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment, LayerRun, Links, Pass
from mio2trace.align.links import WORDS
from mio2trace.measures.cost import Cost
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import NO, Codes, Numbers, Pool, distinct, in_order_of, present

if TYPE_CHECKING:
    from mio2trace.measures import Measures

LayerKey = tuple[int, str, Direction | None]
"""Position in the net, name, direction if it has one."""
_NOWHERE = np.empty(0, np.int64)


def in_net_order(key: LayerKey) -> tuple[int, bool, str]:
    """Sort layers in the order of the net, forward before backward, as `caffe time` prints them."""
    return key[0], key[2] == "backward", key[1]


def printed_times(logs: Iterable[FrameworkLog]) -> dict[LayerKey, list[int]]:
    """Return the printed times of each layer, in ns, in the order of the lines."""
    printed: dict[LayerKey, list[int]] = {}
    for log in logs:
        for layer in log.layers:
            printed.setdefault((layer.index, layer.layer, layer.direction), []).append(layer.printed_ns)
    return printed


class Execution(NamedTuple):
    """One execution of a layer. ``layer_by``: its kernels and copies by evidence.

    ``host_by`` of the cost is ``bounds`` (timer marks, boundary stamps) or ``calls`` (from the first argument of its
    first activity to the end of its last activity).
    """

    iteration: int | None
    cost: Cost
    layer_by: Mapping[str, int]


def executions(measures: Measures) -> dict[LayerKey, list[Execution]]:
    """Return every execution of a layer in order, including the warm-up (iteration 0).

    A layer without kernels in a pass whose kernels are all attributed ran there without kernels.
    """
    alignment = measures.alignment
    links = alignment.links
    run_of, pass_of = np.asarray(links.run_of), np.asarray(links.pass_of)
    # passes that hold activities of no layer
    loose = {None if number == NONE else links.passes[number] for number in present(pass_of[run_of == NONE]).tolist()}
    keys = Pool.of(_where(links, run) for run in links.runs)
    rows = np.flatnonzero(run_of != NONE)
    group_of_row = keys.codes[run_of[rows]]
    words = _words(links.layer_by.column[rows], group_of_row)
    rows = rows[in_order_of(group_of_row)]
    ends = [0, *np.cumsum(np.bincount(group_of_row, minlength=len(keys.values))).tolist()]
    traffic = _traffic(measures, run_of, keys.codes)
    numbers: dict[int, list[int]] = {}
    for number, group in enumerate(keys.codes.tolist()):
        numbers.setdefault(group, []).append(number)
    group_of: dict[Pass, dict[LayerKey, int]] = {}
    for group, (pass_, key) in enumerate(keys.values):
        group_of.setdefault(pass_, {})[key] = group
    order = _order(alignment)
    ran: dict[LayerKey, list[Execution]] = {}
    passes = sorted(group_of, key=lambda pass_: pass_.iteration or 0)
    directed = {(pass_.iteration, pass_.direction) for pass_ in passes if pass_.direction is not None}
    for pass_ in passes:
        groups = group_of[pass_]
        for key in order:
            group = groups.get(key, NONE)
            elsewhere = pass_.direction != key[2] and (pass_.direction or (pass_.iteration, key[2]) in directed)
            if group == NONE and (elsewhere or pass_ in loose):
                continue
            runs = numbers.get(group, [])
            of_group = rows[ends[group] : ends[group + 1]] if runs else rows[:0]
            host_ns, host_by = _on_host(alignment, [links.runs[number] for number in runs], of_group)
            known, unknown = traffic.get(group, (0, 0))
            more = {"host_ns": host_ns, "host_by": host_by, "known_bytes": known, "unknown_bytes": unknown}
            cost = measures.runs.cost(*runs, **more)
            ran.setdefault(key, []).append(Execution(pass_.iteration, cost, words.get(group, {})))
    return ran


def _words(code: NDArray[np.uint8], group_of: Codes) -> dict[int, dict[str, int]]:
    """Return by group how many activities each evidence placed, in the order of the first; ``code``: that of each."""
    first, place_of = distinct(group_of.astype(np.int64) * len(WORDS) + code)
    words: dict[int, dict[str, int]] = {}
    for group, at, count in zip(
        group_of[first].tolist(), code[first].tolist(), np.bincount(place_of).tolist(), strict=True
    ):
        if WORDS[at]:
            words.setdefault(group, {})[WORDS[at]] = count
    known: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    return {group: known.setdefault((*of_group.items(),), of_group) for group, of_group in words.items()}


def _where(links: Links, run: LayerRun) -> tuple[Pass, LayerKey]:
    return links.passes[run.pass_], _key(run)


def _order(alignment: Alignment) -> list[LayerKey]:
    """Return layers and directions in order of execution; those without a direction come last."""
    keys = {_key(run) for run in alignment.links.runs}
    undirected = {key[:2] for key in keys if key[2] is None}
    in_net = [(layer.index, layer.layer, direction) for layer, direction in alignment.net.execution_order()]
    order: list[LayerKey] = [key for key in in_net if key in keys or key[:2] not in undirected]
    return order + sorted(keys.difference(order), key=lambda key: (key[0], key[1], key[2] or ""))


def _key(run: LayerRun) -> LayerKey:
    return run.layer_index, run.layer, run.direction


def _on_host(alignment: Alignment, runs: Sequence[LayerRun], positions: Numbers) -> tuple[int | None, str]:
    starts = [run.host_start_ns for run in runs if run.host_start_ns is not None]
    ends = [run.host_end_ns for run in runs if run.host_end_ns is not None]
    if starts and ends:
        return max(ends) - min(starts), "bounds"
    commands = alignment.profile.commands
    prepared = commands.prepared_ns[positions]
    begun = np.where((prepared == NO) | (prepared == 0), commands.host_start_ns[positions], prepared)
    returned = commands.host_end_ns[positions]
    begun, returned = begun[begun != NO], returned[returned != NO]
    return (int(returned.max()) - int(begun.min()), "calls") if len(begun) and len(returned) else (None, "")


def _traffic(measures: Measures, run_of: Codes, group_of: Codes) -> dict[int, tuple[int, int]]:
    """Return by group the least bytes of the operations that begin in it, and the number of operations for which they
    are unknown. ``group_of``: of each run."""
    found: dict[int, tuple[int, int]] = {}
    for index, operation in measures.operation_at.items():
        first = measures.first_of[index]
        if operation.phase == "run" and first != NONE and run_of[first] != NONE:
            group, size = int(group_of[run_of[first]]), operation.bytes_min
            known, unknown = found.get(group, (0, 0))
            found[group] = known + (size or 0), unknown + (size is None)
    return found
