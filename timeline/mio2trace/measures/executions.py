"""Executions of layers, with their costs on the device and on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment, LayerRun
from mio2trace.align.links import WORDS
from mio2trace.measures.cost import Cost
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import NEVER, NO, Codes, Numbers, Pool, by_code, distinct, least, most, numbers, present

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
    keys, key_of = measures.steady.layer_rows
    # Runs of one layer in one pass are a group.
    passes = Pool.of(links.passes)
    place_of = passes.codes[[run.pass_ for run in links.runs]].astype(np.int64) if links.runs else _NOWHERE
    first, group_of_run = distinct(place_of * len(keys) + np.array([*key_of], np.int64))
    group_of: dict[int, dict[LayerKey, int]] = {}
    for group, run in enumerate(first.tolist()):
        group_of.setdefault(int(place_of[run]), {})[keys[key_of[run]]] = group
    runs_of = [own.tolist() for _, own in by_code(np.arange(len(links.runs)), group_of_run)]
    rows = np.flatnonzero(run_of != NONE)
    group_of_row = group_of_run[run_of[rows]]
    words = _words(links.layer_by.column[rows], group_of_row)
    on_host = _on_host(alignment, group_of_run, len(first), rows, group_of_row)
    del rows, group_of_row
    traffic = _traffic(measures, run_of, group_of_run)
    order = _order(alignment)
    ran: dict[LayerKey, list[Execution]] = {}
    in_order = sorted(group_of, key=lambda place: passes.values[place].iteration or 0)
    directed = {(one.iteration, one.direction) for one in map(passes.values.__getitem__, in_order) if one.direction}
    for place in in_order:
        pass_, groups = passes.values[place], group_of[place]
        for key in order:
            group = groups.get(key, NONE)
            elsewhere = pass_.direction != key[2] and (pass_.direction or (pass_.iteration, key[2]) in directed)
            if group == NONE and (elsewhere or pass_ in loose):
                continue
            host_ns, host_by = on_host[group]
            known, unknown = traffic.get(group, (0, 0))
            cost = measures.runs.cost(
                *(runs_of[group] if group != NONE else ()), host_ns=host_ns, host_by=host_by, known_bytes=known,
                unknown_bytes=unknown,
            )  # fmt: skip
            ran.setdefault(key, []).append(Execution(pass_.iteration, cost, words.get(group, {})))
    return ran


def _words(code: NDArray[np.uint8], group_of: Numbers) -> dict[int, dict[str, int]]:
    """Return by group how many activities each evidence placed, in the order of the first; ``code``: that of each."""
    first, place_of = distinct(group_of * len(WORDS) + code)
    words: dict[int, dict[str, int]] = {}
    for group, at, count in zip(
        group_of[first].tolist(), code[first].tolist(), np.bincount(place_of).tolist(), strict=True
    ):
        if WORDS[at]:
            words.setdefault(group, {})[WORDS[at]] = count
    known: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    return {group: known.setdefault((*of_group.items(),), of_group) for group, of_group in words.items()}


def _order(alignment: Alignment) -> list[LayerKey]:
    """Return layers and directions in order of execution; those without a direction come last."""
    keys = {_key(run) for run in alignment.links.runs}
    undirected = {key[:2] for key in keys if key[2] is None}
    in_net = [(layer.index, layer.layer, direction) for layer, direction in alignment.net.execution_order()]
    order: list[LayerKey] = [key for key in in_net if key in keys or key[:2] not in undirected]
    return order + sorted(keys.difference(order), key=lambda key: (key[0], key[1], key[2] or ""))


def _key(run: LayerRun) -> LayerKey:
    return run.layer_index, run.layer, run.direction


def _on_host(
    alignment: Alignment, group_of_run: Numbers, count: int, rows: Numbers, group_of_row: Numbers
) -> list[tuple[int | None, str]]:
    """Return by group its time on the host and the source of that; the last one is of no group. ``rows``: the
    activities in groups."""
    links, commands = alignment.links, alignment.profile.commands
    starts, ends = (
        numbers((getattr(run, name) for run in links.runs), len(links.runs))
        for name in ("host_start_ns", "host_end_ns")
    )
    begun = least(group_of_run, np.where(starts == NO, NEVER, starts), count)
    ended = most(group_of_run, ends, count)
    is_bound = (begun != NEVER) & (ended != NO)
    if not is_bound.all():
        is_told = ~is_bound[group_of_row]
        rows, group_of_row = rows[is_told], group_of_row[is_told]
        prepared = commands.prepared_ns[rows]
        called = np.where((prepared == NO) | (prepared == 0), commands.host_start_ns[rows], prepared)
        called = least(group_of_row, np.where(called == NO, NEVER, called), count)
        returned = most(group_of_row, commands.host_end_ns[rows], count)
        begun, ended = np.where(is_bound, begun, called), np.where(is_bound, ended, returned)
    is_known = ((begun != NEVER) & (ended != NO)).tolist()
    spans = zip(begun.tolist(), ended.tolist(), is_known, is_bound.tolist(), strict=True)
    times = [
        (end - start, "bounds" if bound else "calls") if known else (None, "") for start, end, known, bound in spans
    ]
    return [*times, (None, "")]


def _traffic(measures: Measures, run_of: Codes, group_of: Numbers) -> dict[int, tuple[int, int]]:
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
