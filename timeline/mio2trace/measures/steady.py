"""The kernel time of a steady iteration by layer, operation, problem and kernel name, slowest first.

Every ranking takes its order from here. `mio2trace.measures.iterations` decides which iterations are steady. Searches,
set-up and warm-up are in none of the sums, but in columns of their own (``find_ns``). All sums are exact integers.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact
from mio2trace.measures.cost import Cost, Sums, duration
from mio2trace.measures.device_time import DeviceTime, Window
from mio2trace.measures.device_time.gaps import Cause, causes
from mio2trace.measures.executions import LayerKey
from mio2trace.measures.iterations import Iterations, hull, iterations_of
from mio2trace.measures.ranking import (
    Key,
    Kind,
    Ranking,
    Rows,
    SteadyCost,
    begun_in,
    kind_of,
    names_as_run,
    numbered_names,
    problem_names,
    ranked,
)
from mio2trace.measures.step_time import StepTime, step_time
from mio2trace.model.profile import Activity

if TYPE_CHECKING:
    from mio2trace.measures import Measures

OperationKey = tuple[str, str]
"""Layer (empty: none) and name of the operation."""


class Steady:
    """The steady iterations of one profile that is joined with its log; summed on first use."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._alignment = measures.alignment

    # -- iterations --------------------------------------------------------------------------------------------------

    @cached_property
    def told(self) -> Iterations:
        """All iterations, and which of them count."""
        return iterations_of(self._alignment, self._measures.launches)

    @property
    def iterations(self) -> tuple[int, ...]:
        """The numbers of those that count."""
        return self.told.steady

    @property
    def cold(self) -> tuple[int, ...]:
        return self.told.cold

    def has(self, iteration: int | None) -> bool:
        """Return whether the iteration of this number counts; a single iteration may have no number."""
        return (1 if iteration is None else iteration) in self._numbers

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self.iterations)

    @property
    def rule(self) -> str:
        return self.told.rule

    @property
    def first_ns(self) -> int | None:
        return self.told.all[0].kernel_ns if self.told.all else None

    @property
    def samples_ns(self) -> tuple[int, ...]:
        return self.total.per_iteration_ns

    @property
    def mean_ns(self) -> float:
        return self.total.mean_ns

    # -- rankings ----------------------------------------------------------------------------------------------------

    @cached_property
    def total(self) -> SteadyCost[str]:
        """All kernels and copies of the steady iterations."""
        activities = self._alignment.profile.activities
        rows = self._summed(["total"], [0] * len(activities), (0,))
        rows.calls = list(rows.sums.kernels)
        rows.find_kernels = [sum(cost.kernels for cost in self._measures.searches.values())]
        rows.find_ns = [sum(cost.timed_ns for cost in self._measures.searches.values())]
        whole = rows.row(0, rows.sums.timed_ns[0])
        return msgspec.structs.replace(whole, cumulative_share=whole.share)

    @cached_property
    def layers(self) -> Ranking[LayerKey]:
        """By position in the net, name, direction."""
        return self._by_layer(*self.layer_rows)

    @cached_property
    def classes(self) -> Ranking[LayerKey]:
        """By class and direction: ``Conv2d_3`` and ``Conv2d_7`` are two modules of one class, ``conv 3`` and ``conv 7``
        two layers of one kind."""
        runs = self._alignment.links.runs
        keys, row_of = _keyed((0, class_of(run.layer), run.direction) for run in runs)
        return self._by_layer(keys, row_of)

    def _by_layer(self, keys: Sequence[LayerKey], row_of: Sequence[int]) -> Ranking[LayerKey]:
        runs = self._alignment.links.runs
        rows = self._summed(keys, self._alignment.links.run_of, row_of)
        place_of_pass = self._place_of_pass
        for number, run in enumerate(runs):
            rows.calls[row_of[number]] += place_of_pass[run.pass_] != NONE
        for (_, row), (start, end) in self._on_host(row_of).items():
            rows.host_ns[row] = (rows.host_ns[row] or 0) + end - start
        self._add_searches(rows, {index: row_of[run] for index, run in self._run_of_search.items()})
        return ranked(rows, self.total, "in no layer")

    @cached_property
    def layer_rows(self) -> tuple[Sequence[LayerKey], Sequence[int]]:
        """All layers, and the place of the layer of each execution."""
        return _keyed((run.layer_index, run.layer, run.direction) for run in self._alignment.links.runs)

    def _on_host(self, row_of: Sequence[int]) -> Mapping[tuple[int, int], tuple[int, int]]:
        """Return, by pass and row of a layer, when the host was in it: by bounds, else from first call to last end."""
        links, place_of_pass = self._alignment.links, self._place_of_pass
        activities = self._alignment.profile.activities
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        bounds: dict[tuple[int, int], tuple[int, int]] = {}
        for number, run in enumerate(links.runs):
            if place_of_pass[run.pass_] != NONE and run.host_start_ns is not None and run.host_end_ns is not None:
                key = run.pass_, row_of[number]
                bounds[key] = hull(bounds.get(key), run.host_start_ns, run.host_end_ns)
        pass_of, run_of = links.pass_of, links.run_of
        # The last one, for no layer, needs no value.
        is_told = [*((run.pass_, row) in bounds for run, row in zip(links.runs, row_of, strict=True)), True]
        for position in self.counted.positions:
            number = run_of[position]
            if is_told[number]:
                continue
            call = activities[position].call
            start = None if call is None else call.prepared_ns or call.start_ns
            if call is None or start is None or call.end_ns is None:
                continue
            key = pass_of[position], row_of[number]
            span = spans.get(key)
            spans[key] = (start, call.end_ns) if span is None else hull(span, start, call.end_ns)
        return spans | bounds

    @cached_property
    def operations(self) -> Ranking[OperationKey]:
        """By layer and name; operations that ran in no layer have none."""
        return self.by_operation(self.operation_key)

    def operation_key(self, index: int) -> OperationKey:
        """Return the key of an operation in `operations`: a search belongs to the layer that runs its problem."""
        run = self._run_of_operation[index]
        name = self._name_of[id(self._measures.operation_at[index].facts)]
        return "" if run == NONE else self._alignment.links.runs[run].layer, name

    @cached_property
    def _name_of(self) -> Mapping[int, str]:
        return names_as_run(self._measures.operation_at.values())

    def by_operation(self, key: Callable[[int], Key]) -> Ranking[Key]:
        """Rank by ``key`` of an operation's index."""
        return ranked(self._of_operations(key), self.total, "in no operation")

    @cached_property
    def _run_of_operation(self) -> Sequence[int]:
        """Return the run of a layer in which each operation began, by index. A search has the layer of its
        operation."""
        runs = self._begun_in[:]
        for index, run in self._run_of_search.items():
            runs[index] = run
        return runs

    @cached_property
    def _begun_in(self) -> array[int]:
        return begun_in(self._alignment.links, len(self._measures.first_of))

    @cached_property
    def problems(self) -> Ranking[str]:
        """By `problem_name`: equal problems of all layers together."""
        return self.by_operation(self.problem_of.__getitem__)

    @cached_property
    def problem_of(self) -> Sequence[str]:
        """The `problem_name` of each operation, by index."""
        return problem_names(self._measures.operation_at.values(), len(self._measures.first_of))

    @cached_property
    def kernels(self) -> Ranking[str]:
        activities, names = self._alignment.profile.activities, self.counted.name_of
        rows = self._summed(self.counted.names, names, range(len(self.counted.names)))
        rows.calls = list(rows.sums.kernels)
        host, unknown = [0] * len(rows.keys), set()
        for position in self.counted.positions:
            number = names[position]
            if number == NONE:
                continue
            # the kernels of a graph share its call
            call = None if activities[position].is_replayed else activities[position].call
            if call is None or (start := call.start_ns) is None or (end := call.end_ns) is None:
                unknown.add(number)
            else:
                host[number] += end - start
        searches = self._measures.searches
        operation_of = self._alignment.links.operation_of if searches else ()
        for position in [position for position, index in enumerate(operation_of) if index in searches]:
            if names[position] != NONE and self._counted_at(position) == NONE:
                rows.find_kernels[names[position]] += 1
                rows.find_ns[names[position]] += duration(activities[position]) or 0
        rows.host_ns = [ns if rows.calls[at] and at not in unknown else None for at, ns in enumerate(host)]
        return ranked(rows, self.total, "")

    @cached_property
    def copies(self) -> Cost:
        """Reads, writes and fills in the steady iterations."""
        sums = Sums(1)
        for _, activity in self.counted.others:
            if activity.kind != "kernel":
                sums.add(0, activity)
        return sums.cost(0)

    @property
    def device(self) -> DeviceTime | None:
        """The device whose steps are longest."""
        return self.told.device

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The steady iterations on that device whose end is known."""
        places = frozenset(self.told.places)
        return tuple(
            window
            for window in (self.device.windows if self.device is not None else ())
            if window.place in places and window.busy is not None
        )

    @cached_property
    def step_time(self) -> StepTime | None:
        """Length and parts of a steady step on that device.

        None if nothing shows steps, if no steady step has a known end, or if the profiler waited for each command.
        """
        if self.device is None or self.told.told_by == "whole" or self._alignment.profile.calls_wait:
            return None
        return step_time(self.device.device, self.windows)

    @cached_property
    def idle_causes(self) -> tuple[Cause, ...]:
        """The causes of idle time of that device in them, most time first."""
        if self.device is None:
            return ()
        spans = [(window.begin_ns, window.end_ns) for window in self.windows if window.end_ns is not None]
        return causes(self._alignment, self.device, spans)

    def of_operations(self) -> dict[int, float]:
        """By index of the operations that ran in the steady iterations: kernel time per iteration."""
        ran = self.by_operation(lambda index: index)
        return {cost.key: cost.mean_ns for cost in ran if cost.calls}

    # -- sums --------------------------------------------------------------------------------------------------------

    @cached_property
    def _counts(self) -> list[int]:
        """For each iteration, its place among the steady ones."""
        place = {number: at for at, number in enumerate(self.iterations)}
        return [place.get(one.number, NONE) for one in self.told.all]

    @cached_property
    def _place_of_pass(self) -> list[int]:
        """For each pass, the place of its iteration among the steady ones."""
        place = {number: at for at, number in enumerate(self.iterations)}
        told, passes = self.told, self._alignment.links.passes
        if told.told_by == "whole":
            return [NONE if one.phase in ("before", "setup") else 0 for one in passes]
        phase = "warm-up" if told.is_warm_up else "iteration"
        return [
            place.get(one.number, NONE) if one.phase == phase and one.number is not None else NONE for one in passes
        ]

    def _of_operations(self, key: Callable[[int], Key]) -> Rows[Key]:
        measures = self._measures
        indices = sorted(measures.operation_at)
        keys, row_of_index = _keyed(map(key, indices))
        row_of = [NONE] * len(measures.first_of)
        for row, index in zip(row_of_index, indices, strict=True):
            row_of[index] = row
        rows = self._summed(keys, self._alignment.links.operation_of, row_of)
        host, untold = [0] * len(keys), set()
        host_ns_of, operation_at = measures.host_ns_of, measures.operation_at
        for index in self._ran:
            row, host_ns, size = row_of[index], host_ns_of[index], operation_at[index].facts.bytes_min
            rows.calls[row] += 1
            if host_ns is None:
                untold.add(row)
            else:
                host[row] += host_ns
            if size is None:
                rows.unknown_bytes[row] += 1
            else:
                rows.known_bytes[row] += size
        rows.host_ns = [ns if rows.calls[row] and row not in untold else None for row, ns in enumerate(host)]
        self._add_searches(rows, {index: row_of[index] for index in measures.searches})
        return rows

    @cached_property
    def _ran(self) -> Sequence[int]:
        """Indices of the operations that begin in a steady iteration."""
        first_of, searches, counts_at = self._measures.first_of, self._measures.searches, self._counted_at
        return [
            index
            for index in self._measures.operation_at
            if first_of[index] != NONE and index not in searches and counts_at(first_of[index]) != NONE
        ]

    @cached_property
    def _run_of_search(self) -> Mapping[int, int]:
        """For each search, the layer's execution in which it ran, else the first one that runs its problem."""
        measures, problem_of = self._measures, self.problem_of
        if not measures.searches:
            return {}
        first: dict[str, int] = {}
        for index, run in enumerate(self._begun_in):
            if run != NONE and problem_of[index] not in first and measures.operation_at[index].phase == "run":
                first[problem_of[index]] = run
        runs: dict[int, int] = {}
        for index in measures.searches:
            own = self._begun_in[index]
            run = first.get(problem_of[index], NONE) if own == NONE else own
            if run != NONE:
                runs[index] = run
        return runs

    def _add_searches(self, rows: Rows[Key], row_of: Mapping[int, int]) -> None:
        for index, row in row_of.items():
            cost = self._measures.searches[index]
            rows.find_kernels[row] += cost.kernels
            rows.find_ns[row] += cost.timed_ns

    def _counted_at(self, position: int) -> int:
        """Return the place of an activity's iteration among the steady ones."""
        place = self.told.place_of[position]
        return NONE if place == NONE else self._counts[place]

    def _summed(self, keys: Sequence[Key], column: Sequence[int], row_of: Sequence[int]) -> Rows[Key]:
        """Return sums by the row of each activity's number in ``column``."""
        of_steady = self.counted
        rows = Rows(keys, len(self.iterations))
        sums, count = rows.sums, rows.iterations
        # One more row, the last, is for activities without a number.
        numbers = [*map(column.__getitem__, of_steady.kernels)]
        rows_of = [*row_of, len(keys)]
        for row, kernels in Counter(map(rows_of.__getitem__, numbers)).items():
            if row < len(keys):
                sums.kernels[row] = kernels
        begins = [row * count for row in rows_of]
        samples = [*rows.samples, *[0] * count]
        for begin, at, ns in zip(map(begins.__getitem__, numbers), of_steady.places, of_steady.ns, strict=True):
            samples[begin + at] += ns
        del samples[len(keys) * count :]
        rows.samples = samples
        sums.timed_ns = [
            sum(samples[first : first + count]) for first in range(0, len(samples), max(1, count))
        ] or sums.timed_ns
        rows.add_helping(of_steady.helping, column, row_of)
        for position, activity in of_steady.others:
            if column[position] != NONE:
                sums.add(row_of[column[position]], activity)
        for position in of_steady.unsure:
            if column[position] != NONE:
                sums.unsure[row_of[column[position]]] += 1
        flop_of = sums.flop_of_operations
        worked = map(rows_of.__getitem__, map(column.__getitem__, of_steady.worked))
        for row, flop in zip(worked, of_steady.work_of, strict=True):
            flop_of[row] = flop_of.get(row, 0) + flop
        flop_of.pop(len(keys), None)
        for position, other_flop, told_by in of_steady.other_work:
            if column[position] != NONE:
                sums.add_work(row_of[column[position]], other_flop, told_by)
        return rows

    @cached_property
    def counted(self) -> Counted:
        """The activities over which every sum goes."""
        counts = self._counts
        return counted(self._measures, [NONE if place == NONE else counts[place] for place in self.told.place_of])


_NUMBERED = re.compile(r"(.*[A-Za-z0-9)])[_ ]\d+", re.DOTALL)


def class_of(layer: str) -> str:
    """Return ``Conv2d`` for ``Conv2d_3``; a name without a number at its end is its own class."""
    found = _NUMBERED.fullmatch(layer)
    return layer if found is None else found[1]


def _keyed(keys: Iterator[Key]) -> tuple[list[Key], list[int]]:
    """Return the distinct keys in order of first appearance, and the place of each given key among them."""
    numbers: dict[Key, int] = {}
    row_of = [numbers.setdefault(key, len(numbers)) for key in keys]
    return list(numbers), row_of


# -- The kernels and copies of steady iterations in columns: every ranking sums over them ------------------------------


class Form(NamedTuple):
    """The common properties of kernels with equal names and facts. ``kind``; ``fact``: of the first one."""

    name: str
    kind: Kind
    fact: KernelFact | None


class Counted(NamedTuple):
    """``names`` and ``name_of``: of all kernels, from `numbered_names`.

    The activities of steady iterations: ``positions`` of all. For kernels with times: ``kernels`` has the position,
    ``places`` the iteration's place, ``ns`` the time, ``form_of`` the place in ``forms``.

    ``helping``: position, time and kind of auxiliary or naive kernels. ``others``: copies, and kernels without times.
    ``unsure``: positions of kernels with low confidence. ``worked``, ``work_of``: places where the work of operations
    counts, and the work. ``other_work``: other places, their work (None: unknown) and its source, as in
    `Measures.work`.
    """

    names: Sequence[str]
    name_of: Sequence[int]
    positions: Sequence[int]
    kernels: Sequence[int]
    places: Sequence[int]
    ns: Sequence[int]
    form_of: Sequence[int]
    forms: Sequence[Form]
    helping: Sequence[tuple[int, int, Kind]]
    others: Sequence[tuple[int, Activity]]
    unsure: Sequence[int]
    worked: Sequence[int]
    work_of: Sequence[int]
    other_work: Sequence[tuple[int, int | None, str]]


def counted(measures: Measures, places: Sequence[int]) -> Counted:
    """``places``: for each activity, the place of its iteration among the steady ones, `NONE` if it is in none."""
    links = measures.alignment.links
    activities = measures.alignment.profile.activities
    names, name_of = numbered_names(activities)
    # Numbers are kept in arrays: there may be a million.
    positions = array("q", [position for position, place in enumerate(places) if place != NONE])
    kernels = array("q")
    times: list[int] = []
    others: list[tuple[int, Activity]] = []
    for position in positions:
        activity = activities[position]
        start, end = activity.start_ns, activity.end_ns
        if start is None or end is None or name_of[position] == NONE:
            others.append((position, activity))
        else:
            kernels.append(position)
            times.append(end - start)
    form_of, forms = _forms(measures, kernels, name_of)
    worked, work_of, other_work = array("q"), [], []
    for position, _, flop, told_by in measures.work():
        if places[position] == NONE:
            continue
        if told_by == "operation" and flop is not None:
            worked.append(position)
            work_of.append(flop)
        else:
            other_work.append((position, flop, told_by))
    return Counted(
        names=names,
        name_of=name_of,
        positions=positions,
        kernels=kernels,
        places=array("q", map(places.__getitem__, kernels)),
        ns=times,
        form_of=form_of,
        forms=forms,
        helping=_helping(measures, kernels, times, form_of, forms),
        others=others,
        unsure=[position for position in links.layer_unsure | links.operation_unsure if places[position] != NONE],
        worked=worked,
        work_of=work_of,
        other_work=other_work,
    )


def _forms(measures: Measures, kernels: Sequence[int], name_of: Sequence[int]) -> tuple[Sequence[int], list[Form]]:
    """Return for each kernel the place of its form, and the forms: each is made once for all equal kernels."""
    facts, activities = measures.alignment.facts, measures.alignment.profile.activities
    keys: list[object] = [*map(name_of.__getitem__, kernels)]
    if facts:
        for place, position in enumerate(kernels):
            fact = facts.get(position)
            if fact is not None:
                keys[place] = keys[place], fact.role, fact.gemm is not None
    first: dict[object, int] = {}
    for place, key in enumerate(keys):
        if key not in first:
            first[key] = place
    numbers = {key: number for number, key in enumerate(first)}
    forms = []
    for place in first.values():
        position = kernels[place]
        name, fact = activities[position].name, facts.get(position)
        forms.append(Form(name, kind_of(name, fact), fact))
    return array("q", map(numbers.__getitem__, keys)), forms


def _helping(
    measures: Measures, kernels: Sequence[int], times: Sequence[int], form_of: Sequence[int], forms: Sequence[Form]
) -> list[tuple[int, int, Kind]]:
    naive, operation_of = measures.naive_operations, measures.alignment.links.operation_of
    told = [form.kind.helps or form.kind.naive or form.kind.role == "transpose" for form in forms]
    if not (any(told) or naive):
        return []
    helping = []
    chosen = map(told.__getitem__, form_of)
    if naive:
        chosen = map(bool.__or__, chosen, map(naive.__contains__, map(operation_of.__getitem__, kernels)))
    for position, ns, number in compress(zip(kernels, times, form_of, strict=True), chosen):
        kind = forms[number].kind
        helping.append((position, ns, kind._replace(naive=kind.naive or operation_of[position] in naive)))
    return helping
