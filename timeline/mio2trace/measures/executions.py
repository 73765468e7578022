"""Executions of layers, with their costs on the device and on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from mio2trace.align import NONE, Alignment, LayerRun, Links, Pass
from mio2trace.measures.cost import Cost, total
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import NO, Numbers, Pool

if TYPE_CHECKING:
    from mio2trace.measures import Measures

LayerKey = tuple[int, str, Direction | None]
"""Position in the net, name, direction if it has one."""


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
    loose = {None if number == NONE else links.passes[number] for number in np.unique(pass_of[run_of == NONE]).tolist()}
    rows = np.flatnonzero(run_of != NONE)
    keys = Pool.of(_where(links, run) for run in links.runs)
    group_of = keys.codes[run_of[rows]]
    by_group = np.argsort(group_of, kind="stable")
    groups, begins = np.unique(group_of[by_group], return_index=True)
    wheres = [keys.values[group] for group in groups.tolist()]
    inside = dict(zip(wheres, np.split(rows[by_group], begins[1:]), strict=False))
    numbers: dict[tuple[Pass, LayerKey], list[int]] = {}
    for number, where in enumerate(keys.each()):
        numbers.setdefault(where, []).append(number)
    order = _order(alignment)
    ran: dict[LayerKey, list[Execution]] = {}
    passes = sorted(dict.fromkeys(pass_ for pass_, _ in numbers), key=lambda pass_: pass_.iteration or 0)
    directed = {(pass_.iteration, pass_.direction) for pass_ in passes if pass_.direction is not None}
    for pass_ in passes:
        for key in order:
            elsewhere = pass_.direction != key[2] and (pass_.direction or (pass_.iteration, key[2]) in directed)
            if elsewhere and (pass_, key) not in numbers:
                continue
            positions = inside.get((pass_, key), rows[:0])
            runs = numbers.get((pass_, key), [])
            if not runs and pass_ in loose:
                continue
            cost = total(measures.runs.cost(number) for number in runs)
            host_ns, host_by = _on_host(alignment, [links.runs[number] for number in runs], positions)
            words: Counter[str] = Counter(word for at in positions.tolist() if (word := links.layer_by[at]))
            known, unknown = _traffic(measures, positions)
            cost = msgspec.structs.replace(
                cost, host_ns=host_ns, host_by=host_by, known_bytes=known, unknown_bytes=unknown
            )
            ran.setdefault(key, []).append(Execution(pass_.iteration, cost, words))
    return ran


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


def _traffic(measures: Measures, positions: Numbers) -> tuple[int, int]:
    """Return the least bytes of the operations that begin here, and the number of operations for which they are
    unknown."""
    operation_of, operations = np.asarray(measures.alignment.links.operation_of)[positions], measures.operation_at
    known = unknown = 0
    for position, index in zip(positions.tolist(), operation_of.tolist(), strict=True):
        if index != NONE and measures.first_of[index] == position and operations[index].phase == "run":
            size = operations[index].bytes_min
            known += size or 0
            unknown += size is None
    return known, unknown
