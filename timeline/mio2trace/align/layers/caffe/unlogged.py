"""Iterations that are not in the log, beside one that is: the same kernels right before or behind it.

One kernel more or less ends the count. What ran behind the last line of a cut log gets layers by names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.caffe.by_names import place_by_names
from mio2trace.align.layers.caffe.names import contradicts
from mio2trace.align.layers.net import LayerKey
from mio2trace.align.layers.recurrence import signature
from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.operations.rates import WHOLE
from mio2trace.evidence import DURATIONS, RECURRENCE
from mio2trace.model.log import Direction
from mio2trace.model.tables import by_key

COMPARED_EACH = 32
"""Comparisons per kernel; long rows of one kernel would need the square."""
_BEHIND = frozenset(("iteration", "average begins", "average iteration", "total", "benchmark ends"))


class _Known(NamedTuple):
    """An iteration's number and its places ``first`` to ``stop`` among all kernels."""

    number: int
    first: int
    stop: int


def place_unlogged_iterations(attribution: Attribution) -> None:
    """Label kernels beside the best known iteration, as far as they repeat it."""
    links = attribution.links
    if not links.runs or _tells_of_all(attribution):
        return
    kernels = np.flatnonzero(attribution.profile.commands.is_kernel).tolist()
    if not links.layer_confidence and (np.asarray(links.run_of)[kernels] != NONE).all():
        return  # nothing is left to say
    known = _best_known(attribution, kernels)
    if known is None:
        return
    row = _Row(attribution, kernels)
    runs = {
        (pass_.iteration, made.layer_index, made.direction): at
        for at, made in enumerate(links.runs)
        if (pass_ := links.passes[made.pass_]).phase == "iteration"
    }
    asked_for = attribution.iterations()
    for backward in (False, True):
        for number, first in _repetitions(row, known, backward=backward):
            is_other = number < 1 if backward else asked_for is not None and number > asked_for
            if is_other or not _label(attribution, kernels, runs, known, number, first):
                break


def place_behind_the_log(attribution: Attribution) -> None:
    """Give what ran behind the last layer line to the layers behind it, if the only iteration runs forward only."""
    links, activities = attribution.links, attribution.profile.activities
    if attribution.iterations() != 1 or any(event.kind in _BEHIND for event in attribution.events):
        return
    last = next((p for p in range(len(activities) - 1, -1, -1) if links.run_of[p] != NONE), NONE)
    if last == NONE or links.layer_by[last] in (RECURRENCE, DURATIONS):
        return
    pass_ = links.pass_of[last]
    if links.passes[pass_].phase != "iteration" or links.passes[pass_].direction != "forward":
        return
    left = [activities[p].name for p in range(last + 1, len(activities)) if activities[p].kind == "kernel"]
    if any(contradicts(name, frozenset(), "forward") for name in left):
        return  # it goes on backward, and with what updates the weights
    begun: dict[LayerKey, int] = {
        (run.layer_index, "forward"): number for number, run in enumerate(links.runs) if run.pass_ == pass_
    }
    place_by_names(attribution, range(last, len(activities)), "forward", attribution.runs_of_pass(pass_, begun))


def _tells_of_all(attribution: Attribution) -> bool:
    """Return whether all iterations are known from their first layer to their last one."""
    links, order = attribution.links, attribution.net.execution_order()
    asked_for = attribution.iterations()
    numbers = {pass_.iteration for pass_ in links.passes if pass_.phase == "iteration"}
    if asked_for is None or not order or len(numbers) < asked_for:
        return False
    ends = {(1, order[0][0].index, order[0][1]), (asked_for, order[-1][0].index, order[-1][1])}
    at_ends = {
        at for at, pass_ in enumerate(links.passes) if pass_.phase == "iteration" and pass_.iteration in (1, asked_for)
    }
    known = {
        (links.passes[run.pass_].iteration, run.layer_index, run.direction)
        for run in links.runs
        if run.pass_ in at_ends
    }
    return ends <= known


class _Row:
    def __init__(self, attribution: Attribution, kernels: Sequence[int]) -> None:
        self._activities = attribution.profile.activities
        self._kernels = kernels
        self._signatures: list[Hashable] = [None] * len(kernels)
        self._left = COMPARED_EACH * len(kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __getitem__(self, place: int) -> Hashable:
        found = self._signatures[place]
        if found is None:
            found = self._signatures[place] = signature(self._activities[self._kernels[place]])
        return found

    def repeats(self, known: _Known, first: int) -> bool:
        """Return whether the known iteration's kernels come again from ``first`` on, as far as the profile goes."""
        length = known.stop - known.first
        begin, end = max(0, -first), min(length, len(self) - first)
        for at in range(begin, end):
            self._left -= 1
            if self._left < 0 or self[known.first + at] != self[first + at]:
                return False
        return begin < end


def _best_known(attribution: Attribution, kernels: Sequence[int]) -> _Known | None:
    """Return the iteration with most sure kernels, then with most kernels, then the first one."""
    links = attribution.links
    wanted = [one.phase == "iteration" and one.iteration is not None and not one.repeated for one in links.passes]
    positions = np.array(kernels, np.int64)
    run_of, pass_of = np.asarray(links.run_of)[positions], np.asarray(links.pass_of)[positions]
    places = np.flatnonzero((run_of != NONE) & np.array([*wanted, False])[pass_of])
    iterations = np.array([*(one.iteration or 0 for one in links.passes), 0])[pass_of[places]]
    of_number = dict(by_key(places, iterations))
    if not of_number:
        return None
    unsure = Counter(iterations[np.isin(positions[places], [*links.layer_unsure])].tolist())
    number = max(
        of_number, key=lambda number: (len(of_number[number]) - unsure[number], len(of_number[number]), -number)
    )
    return _Known(number, int(of_number[number][0]), int(of_number[number][-1]) + 1)


def _repetitions(row: _Row, known: _Known, *, backward: bool = False) -> Iterator[tuple[int, int]]:
    """Yield number and first place of consecutive iterations at equal distances."""
    length, step = known.stop - known.first, -1 if backward else 1
    # What is in no layer lies between two iterations: a solver's kernels, fewer than the layers'.
    for period in range(length, 2 * length):
        at, number = known.first + step * period, known.number + step
        if not -length < at < len(row):
            return
        if row.repeats(known, at):
            while -length < at < len(row) and row.repeats(known, at):
                yield number, at
                at, number = at + step * period, number + step
            return


def _label(
    attribution: Attribution,
    kernels: Sequence[int],
    runs: dict[tuple[int | None, int, Direction | None], int],
    known: _Known,
    number: int,
    first: int,
) -> bool:
    """Give kernels without layer to the layers of the known iteration; False if they are in another pass."""
    links = attribution.links
    pairs = [
        (kernels[place], kernels[place + first - known.first])
        for place in range(known.first, known.stop)
        if 0 <= place + first - known.first < len(kernels)
    ]
    elsewhere = [
        position
        for _, position in pairs
        if links.pass_of[position] != NONE
        and (links.passes[links.pass_of[position]].phase, links.iteration_of(position)) != ("iteration", number)
    ]
    # What coarse bounds may as well have put into the iteration beside it repeats this one.
    if any(links.layer_confidence.get(position, 1.0) > DOUBTED for position in elsewhere):
        return False
    for position in elsewhere:
        links.take_layer(position)
    for like, position in pairs:
        key = attribution.layer_key(like)
        if key is None or links.run_of[position] != NONE:
            continue
        run = runs.get((number, *key))
        if run is None:
            run = runs[number, *key] = attribution.add_run(*key, links.pass_id("iteration", number, key[1]))
        confidence = min(WHOLE, links.layer_confidence.get(like, 1.0))
        attribution.give_layer([position], run, RECURRENCE, confidence=confidence)
    return True
