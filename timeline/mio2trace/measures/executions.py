"""Executions of layers, with their costs on the device and on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.links import WORDS, Pass
from mio2trace.measures.cost import Cost
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import (
    NEVER,
    NO,
    Activities,
    Numbers,
    Pool,
    by_code,
    by_key,
    distinct,
    firsts,
    in_order_of,
    least,
    most,
    numbers,
    present,
    summed,
)

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
        keys = log.times.key
        for code, rows in by_key(np.arange(len(keys.codes)), keys.codes.astype(np.int64)):
            printed.setdefault(keys.values[code], []).extend(log.times.printed_ns[rows].tolist())
    return printed


LACKING = 0.05
"""Layers that hold less than the printed passes by this share are not all: the rest of a pass is no layer's."""


def printed_passes(log: FrameworkLog, of_layers: float) -> int | None:
    """Return the mean time of the passes that the log prints, if the times ``of_layers`` (their sum) lack a part of
    it. CK records hold times that cannot be."""
    stated = {event.kind: event.duration_ns or 0 for event in log.events}
    forward = log.average_forward_ns or stated.get("average forward", 0)
    passes = forward + (log.average_backward_ns or stated.get("average backward", 0))
    return passes if of_layers < (1 - LACKING) * passes else None


class Executions:
    """Every execution of a layer in order, by layer, including the warm-up (iteration 0).

    A layer without kernels in a pass whose kernels are all attributed ran there without kernels. Each execution is a
    row, and rows of one layer are neighbours: ``layer`` is the place in ``layers``, ``iteration`` that of its pass
    (`NO`: none). ``rows``: those of each layer.

    ``host_by`` is ``bounds`` (timer marks, boundary stamps) or ``calls`` (from the first argument of its first activity
    to the end of its last activity).
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        alignment = measures.alignment
        links = alignment.links
        run_of = np.asarray(links.run_of)
        keys, key_of = links.runs.layers()
        # Runs of one layer in one pass are a group.
        passes, key_of_run = Pool.of(links.passes), key_of.astype(np.int64)
        pass_of = passes.codes[links.runs.column("pass_")].astype(np.int64) if links.runs else _NOWHERE
        first, self._group_of_run = distinct(pass_of * len(keys) + key_of_run)
        self._count = len(first)
        rows = np.flatnonzero(run_of != NONE)
        group_of_row = self._group_of_run[run_of[rows]]
        self._words = _words(links.layer_by.column[rows], group_of_row, self._count)
        bounds = links.runs.column("host_start_ns"), links.runs.column("host_end_ns")
        self._host_ns, self._host_by = on_host(
            alignment.profile.commands, bounds, self._group_of_run, self._count, rows, group_of_row
        )
        del rows, group_of_row
        order = _order(alignment)
        place, of_pass, group = _in_order(alignment, passes.values, order, keys, key_of_run[first], pass_of[first])
        begun, self.layer = distinct(place)
        self.layers = [order[number] for number in place[begun].tolist()]
        by_layer = in_order_of(self.layer)
        self.layer, self._group = self.layer[by_layer], group[by_layer]
        iterations = numbers((one.iteration for one in passes.values), len(passes.values))
        self.iteration = iterations[of_pass[by_layer]] if len(iterations) else _NOWHERE
        self.rows = {self.layers[number]: rows for number, rows in by_code(np.arange(len(group)), self.layer)}

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def layer_by(self) -> Pool[Mapping[str, int]]:
        """The kernels and copies of each by evidence."""
        return self._words.take(self._group)

    @cached_property
    def host_ns(self) -> Numbers:
        return self._host_ns[self._group]

    @cached_property
    def host_by(self) -> Pool[str]:
        return self._host_by.take(self._group)

    @cached_property
    def kernels(self) -> Numbers:
        return self._sum(np.asarray(self._measures.runs.kernels))

    @cached_property
    def copies(self) -> Numbers:
        return self._sum(self._measures.runs.copies)

    @cached_property
    def unsure(self) -> Numbers:
        return self._sum(self._measures.runs.unsure)

    @cached_property
    def kernel_ns(self) -> Numbers:
        """`NO` where the time of a kernel is unknown; ``copy_ns`` also."""
        sums = self._measures.runs
        return np.where(self._sum(sums.untimed) > 0, NO, self._sum(np.asarray(sums.timed_ns)))

    @cached_property
    def copy_ns(self) -> Numbers:
        sums = self._measures.runs
        return np.where(self._sum(sums.untimed_copies) > 0, NO, self._sum(sums.copy_timed_ns))

    @cached_property
    def launch_overhead_ns(self) -> Numbers:
        """Host time minus kernel and copy time; `NO` if the calls did not wait for the device."""
        parts = (self.host_ns, self.kernel_ns, self.copy_ns)
        left = parts[0] - parts[1] - parts[2]
        is_known = np.logical_and.reduce([part != NO for part in parts])
        return np.where(is_known & (left >= 0), left, NO)

    @cached_property
    def work(self) -> Pool[Cost]:
        """The kernels and the work of those that work is known or unknown of; an empty cost for others."""
        sums = self._measures.runs
        runs = np.array([*sums.flop_of_operations, *sums.flop_of_gemms, *sums.unknown_flop], np.int64)
        groups = present(self._group_of_run[runs])
        runs_of = dict(by_code(np.arange(len(self._group_of_run)), self._group_of_run))
        place = np.zeros(self._count + 1, np.int32)
        place[groups] = np.arange(1, len(groups) + 1)
        return Pool([Cost(), *(sums.cost(*runs_of[group].tolist()) for group in groups.tolist())], place[self._group])

    def _sum(self, of_runs: Numbers | Mapping[int, int]) -> Numbers:
        """The sum of a value of the runs of each; the values of runs that are not in a mapping are 0."""
        runs: Any = slice(None)
        if isinstance(of_runs, Mapping):
            runs = np.fromiter(of_runs.keys(), np.int64, len(of_runs))
            of_runs = np.fromiter(of_runs.values(), np.int64, len(of_runs))
        return summed(self._group_of_run[runs], of_runs, self._count + 1)[self._group]


def _in_order(
    alignment: Alignment,
    passes: Sequence[Pass],
    order: Sequence[LayerKey],
    layers: Sequence[LayerKey],
    layer_of: Numbers,
    pass_of: Numbers,
) -> tuple[Numbers, Numbers, Numbers]:
    """Return of each execution the place of its layer in ``order``, its pass and its group (`NONE`: it ran without
    kernels). ``layer_of``, ``pass_of``: of each group with kernels its layer (a place in ``layers``) and its pass."""
    links = alignment.links
    # passes that hold activities of no layer
    outside = present(np.asarray(links.pass_of)[np.asarray(links.run_of) == NONE]).tolist()
    loose = {None if number == NONE else links.passes[number] for number in outside}
    number_of = {key: number for number, key in enumerate(layers)}
    numbers_in_order = np.array([number_of.get(key, NONE) for key in order], np.int64)
    directions = Pool.of(key[2] for key in order)
    groups_of = dict(by_code(np.arange(len(pass_of)), pass_of))
    first = firsts(pass_of, len(passes)).tolist()
    by_first = sorted(groups_of, key=first.__getitem__)
    in_order = sorted(by_first, key=lambda place: passes[place].iteration or 0)
    directed = {(one.iteration, one.direction) for one in map(passes.__getitem__, in_order) if one.direction}
    parts = [(_NOWHERE,) * 3]
    for place in in_order:
        pass_, groups = passes[place], groups_of[place]
        group_of = np.full(len(layers) + 1, NONE)
        group_of[layer_of[groups]] = groups
        group_of = group_of[numbers_in_order]
        chosen = np.flatnonzero(group_of != NONE)
        if len(chosen) < len(order) and pass_ not in loose:
            may_be_there = [
                pass_.direction == word or not (pass_.direction or (pass_.iteration, word) in directed)
                for word in directions.values
            ]
            chosen = np.flatnonzero((group_of != NONE) | np.array(may_be_there)[directions.codes])
        parts.append((chosen, np.full(len(chosen), place), group_of[chosen]))
    numbers_of, of_pass, groups = map(np.concatenate, zip(*parts, strict=True))
    return numbers_of, of_pass, groups


def _words(code: NDArray[np.uint8], group_of: Numbers, count: int) -> Pool[Mapping[str, int]]:
    """Return by group how many activities each evidence placed, in the order of the first; ``code``: that of each. The
    last one is of no group."""
    first, place_of = distinct(group_of * len(WORDS) + code)
    groups, codes, counts = group_of[first], code[first], np.bincount(place_of, minlength=len(first))
    del place_of
    words: list[Mapping[str, int]] = [{}]
    place = np.zeros(count + 1, np.int32)
    is_alone = (np.bincount(groups, minlength=count) == 1)[groups]
    alone = np.flatnonzero(is_alone & (codes != 0))
    likes, like = distinct(counts[alone] * len(WORDS) + codes[alone])
    place[groups[alone]] = like + 1
    words += [{WORDS[codes[at]]: int(counts[at])} for at in alone[likes].tolist()]
    several: dict[int, dict[str, int]] = {}
    mixed = np.flatnonzero(~is_alone & (codes != 0))
    for group, at, number in zip(*(column[mixed].tolist() for column in (groups, codes, counts)), strict=True):
        several.setdefault(group, {})[WORDS[at]] = number
    known: dict[tuple[tuple[str, int], ...], int] = {}
    for group, of_group in several.items():
        place[group] = known.setdefault((*of_group.items(),), len(words))
        if place[group] == len(words):
            words.append(of_group)
    return Pool(words, place)


def _order(alignment: Alignment) -> list[LayerKey]:
    """Return layers and directions in order of execution; those without a direction come last."""
    keys = {*alignment.links.runs.layers().values}
    undirected = {key[:2] for key in keys if key[2] is None}
    in_net = [(layer.index, layer.layer, direction) for layer, direction in alignment.net.execution_order()]
    order: list[LayerKey] = [key for key in in_net if key in keys or key[:2] not in undirected]
    return order + sorted(keys.difference(order), key=lambda key: (key[0], key[1], key[2] or ""))


def on_host(
    commands: Activities,
    bounds: tuple[Numbers, Numbers],
    group_of_run: Numbers,
    count: int,
    rows: Numbers,
    group_of_row: Numbers,
) -> tuple[Numbers, Pool[str]]:
    """Return by group its time on the host, by bounds, else from its first call to the end of its last one; and the
    source of that. The last one is of no group. ``bounds``: of the executions; ``rows``: the activities in groups."""
    starts, ends = bounds
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
    is_known = (begun != NEVER) & (ended != NO)
    words = np.where(is_known, np.where(is_bound, 1, 2), 0).astype(np.int32)
    return np.append(np.where(is_known, ended - begun, NO), NO), Pool(["", "bounds", "calls"], np.append(words, 0))
