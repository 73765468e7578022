"""Lower the confidence of layers by missing times, a clock with an error, other queues, or names of kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import exp, log

import numpy as np

from mio2trace import evidence as by
from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import contradicts, tells_type, types_of
from mio2trace.align.links import DOUBTED, NONE, neighbours
from mio2trace.align.rates import HARDLY_ANY, MISSTATED, NATS_NEVER, ONE_THREAD, WHOLE
from mio2trace.model.tables import NO, Numbers, by_key, present
from mio2trace.ops.operation import Operation

STATED = (by.RANGE, by.CORRELATION, by.GRAPH_NODE, by.CAPTURE, by.SEQUENCE)
OF_ITS_OWN = frozenset((*STATED, by.TIMER_MARKS, ""))
"""Evidence about the kernel itself, whatever its queue; or none."""


def doubt_between_layers(attribution: Attribution) -> None:
    """Doubt layers by stamps or times of activities without host times."""
    if attribution.times is None or not attribution.times.unknown:
        return
    links, run_of = attribution.links, np.append(attribution.links.run_of, NONE)
    is_unknown = np.zeros(len(run_of) - 1, bool)
    is_unknown[list(attribution.times.unknown)] = True
    before, after = neighbours(~is_unknown)
    is_between = (before != NONE) & (after < len(is_unknown)) & (run_of[before] == run_of[after])
    is_alone = is_unknown & ~(is_between & (run_of[before] == run_of[:-1]))
    is_timed = links.layer_by.pool.where(lambda word: word in (by.BOUNDARY_STAMPS, by.DURATIONS))
    links.doubt_layer(np.flatnonzero(is_alone & is_timed).tolist())


def doubt_by_clock(attribution: Attribution) -> None:
    """Doubt layers by times if the log's clock has a large error: a layer is as likely as its share of this error."""
    clock, links = attribution.clock, attribution.links
    if clock is None or not clock.is_doubtful:
        return
    for position in links.layer_by.rows((by.BOUNDARY_STAMPS, by.DURATIONS)):
        lasted = links.runs[links.run_of[position]].printed_ns or 0
        links.weigh_layer(position, lasted / (2 * clock.error_ns), DOUBTED)


def doubt_other_queues(attribution: Attribution) -> None:
    """Doubt layers of queues that may be another thread's: names of kernels show which thread printed the layers."""
    commands, links = attribution.profile.commands, attribution.links
    if len(present(commands.queue)) < 2:
        return
    told = OF_ITS_OWN - {by.TIMER_MARKS} if _are_marks_among_others(attribution) else OF_ITS_OWN
    placed = np.flatnonzero(links.layer_by.pool.where(lambda word: word not in told))
    kernels = placed[commands.is_kernel[placed]]
    of_queue = {queue: rows.tolist() for queue, rows in by_key(kernels, commands.queue[kernels])}
    spans = sorted((its[0], its[-1]) for its in of_queue.values())
    if all(before[1] < after[0] for before, after in pairwise(spans)):
        return  # one queue, or each after the other: nothing ran meanwhile
    hardly_any = HARDLY_ANY * sum(map(len, of_queue.values()))
    likely = {queue: its for queue, its in of_queue.items() if len(its) > hardly_any}
    own = dict(zip(likely, _printing(attribution, list(likely.values())), strict=True))
    for position, queue in zip(placed.tolist(), commands.queue[placed].tolist(), strict=True):
        links.weigh_layer(position, own.get(queue, ONE_THREAD))


def _are_marks_among_others(attribution: Attribution) -> bool:
    """Return whether calls of another thread or run are among the marked ones: between layers, or at other times."""
    marked, links = attribution.marked, attribution.links
    if marked is None or marked.between:
        return marked is not None
    rows = links.layer_by.rows((by.TIMER_MARKS,))
    called, runs = attribution.profile.commands.host_start_ns[rows], np.asarray(links.run_of)[rows]
    begin, end = links.runs.column("host_start_ns")[runs], links.runs.column("host_end_ns")[runs]
    is_outside = ((begin != NO) & (called < begin)) | ((end != NO) & (called > end))
    return bool((is_outside & (called != NO)).any())


def _printing(attribution: Attribution, rows: Sequence[Sequence[int]]) -> list[float]:
    """Return per queue the probability that its thread printed the layers: one queue is right, or all seem so."""
    if len(rows) < 2:
        return [1.0] * len(rows)
    telling = _Telling(attribution, np.concatenate(rows))
    statements = [[*telling.by_names(row)] for row in rows]
    by_chance = [len(its) * log(0.5) for its in statements]
    right = [sum(is_odd for _, is_odd, _ in its) * NATS_NEVER for its in statements]
    everything = sum(by_chance)
    ways = [everything - chance + of_layers for chance, of_layers in zip(by_chance, right, strict=True)]
    ways.append(sum(right))
    best = max(ways)
    weights = [exp(way - best) for way in ways]
    return [(WHOLE * weight + DOUBTED * weights[-1]) / sum(weights) for weight in weights[:-1]]


_Posed = tuple[str, object]
_Statement = tuple[int, bool, float]
"""The position of a kernel, whether it contradicts its layer, and how often this happens by chance."""


def doubt_by_kernels(attribution: Attribution) -> None:
    """Doubt layers of a pass by its kernels that do not match their layers."""
    commands, links = attribution.profile.commands, attribution.links
    is_placed = commands.is_kernel & links.layer_by.pool.where(lambda word: word not in OF_ITS_OWN)
    placed = np.flatnonzero(is_placed)
    if len(present(commands.queue[is_placed])) > 1:
        return  # another thread's kernels go with no layers, either (`doubt_other_queues`)
    telling = _Telling(attribution, placed)
    if not telling.is_anything_odd():
        return
    of_pass: dict[int, list[int]] = {}
    for position in placed.tolist():
        of_pass.setdefault(links.pass_of[position], []).append(position)
    for positions in of_pass.values():
        statements = telling.of(positions)
        nats = sum(
            log(by_chance / MISSTATED if is_odd else (1 - by_chance) / (1 - MISSTATED))
            for _, is_odd, by_chance in statements
        )
        odd = {position for position, is_odd, _ in statements if is_odd}
        chance = 1 / (1 + exp(min(nats, 700.0)))
        for position in positions if odd else ():
            links.weigh_layer(position, chance, DOUBTED if position in odd else 1.0)


class _Telling:
    """Evidence about layers in the names of kernels and in the problems of their calls."""

    def __init__(self, attribution: Attribution, rows: Numbers) -> None:
        self._links = links = attribution.links
        self._names_at = attribution.profile.commands.name
        self._types = {layer.index: types_of(layer.layer, layer.type) for layer in attribution.net.layers}
        self._runs, self._operations = np.asarray(links.run_of)[rows], np.asarray(links.operation_of)[rows]
        self._called = self._names_at.take(rows)
        self._names: Counter[str] = Counter()
        for name, count in zip(self._called.values, np.bincount(self._called.codes).tolist(), strict=False):
            self._names[name] += count if tells_type(name) else 0
        self._names = +self._names
        of_facts: dict[int, _Posed | None] = {}
        self._posed_of: dict[int, _Posed | None] = {NONE: None}
        """By operation."""
        for operation in links.operations:
            key = id(operation.facts)
            if key not in of_facts:
                of_facts[key] = _posed(operation)
            self._posed_of[operation.index] = of_facts[key]
        self._problems: Counter[_Posed] = Counter()
        for index, count in Counter(self._operations.tolist()).items():
            posed = self._posed_of[index]
            if posed is not None:
                self._problems[posed] += count
        self._shares: dict[object, float] = {}

    def is_anything_odd(self) -> bool:
        layers = self._links.runs.layers()
        names, of = self._called.values, layers.codes[self._runs]
        pairs = present(self._called.codes.astype(np.int64) * len(layers.values) + of)
        for name, layer in zip(*(part.tolist() for part in np.divmod(pairs, len(layers.values))), strict=True):
            index, _, direction = layers.values[layer]
            types, called = self._types[index], names[name]
            is_told = direction is not None and types and called in self._names
            if is_told and contradicts(called, types, direction):
                return True
        is_next = np.append(True, (np.diff(self._runs) != 0) | (np.diff(self._operations) != 0))[: len(self._runs)]
        each = zip(self._runs[is_next].tolist(), self._operations[is_next].tolist(), strict=True)
        posed = {(run, one) for run, index in each if (one := self._posed_of[index]) is not None}
        return len(posed) > len({(run, one[0]) for run, one in posed})

    def by_names(self, positions: Sequence[int]) -> Iterator[_Statement]:
        """Yield the statements of kernels that have a type of layer in their name."""
        for position in positions:
            run = self._links.runs[self._links.run_of[position]]
            types, name = self._types[run.layer_index], self._names_at.at(position)
            if run.direction is not None and types and name in self._names:
                key = types, run.direction
                if key not in self._shares:
                    odd = sum(count for one, count in self._names.items() if contradicts(one, *key))
                    self._shares[key] = _likely(odd / self._names.total())
                yield position, contradicts(name, types, run.direction), self._shares[key]

    def of(self, positions: Sequence[int]) -> list[_Statement]:
        """Return the statements of names and of problems."""
        statements = [*self.by_names(positions)]
        of_run: dict[tuple[int, str], list[tuple[int, _Posed]]] = {}
        for position in positions:
            posed = self._posed_of[self._links.operation_of[position]]
            if posed is not None:
                of_run.setdefault((self._links.run_of[position], posed[0]), []).append((position, posed))
        for its in of_run.values():
            own, _ = Counter(posed for _, posed in its).most_common(1)[0]
            first = next(self._links.operation_of[position] for position, posed in its if posed == own)
            alike = sum(count for posed, count in self._problems.items() if posed[0] == own[0])
            share = _likely(1 - self._problems[own] / alike)
            # A call without another call beside it is no evidence.
            others = [(position, posed) for position, posed in its if self._links.operation_of[position] != first]
            statements += [(position, posed != own, share) for position, posed in others]
        return statements


def _likely(share: float) -> float:
    return min(1 - MISSTATED, max(MISSTATED, share))


def _posed(operation: Operation | None) -> _Posed | None:
    """Return direction and problem of a convolution; a layer has one of each."""
    if operation is None or operation.primitive != "conv" or not operation.weights:
        return None
    return f"{operation.direction}", (operation.input, operation.weights, operation.output)
