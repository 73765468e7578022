"""The kernel time of a steady iteration by layer, operation, problem and kernel name, slowest first.

Every ranking takes its order from here. `mio2trace.measures.iterations` decides which iterations are steady. Searches,
set-up and warm-up are in none of the sums, but in columns of their own (``find_ns``). All sums are exact integers.

The same time is also a tree: layers within layers, their operations, and the kernels of these. A layer is within the
layer whose range was open during most of its calls. The own time of a layer is that of kernels in no layer within it;
the own time of an operation is that of all its kernels. Both directions of a layer are one node.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.exact import layers_of_ranges
from mio2trace.align.ranges import OpenRanges
from mio2trace.measures.cost import Cost, Sums, whole
from mio2trace.measures.device_time import Busy, DeviceTime, Span, Window
from mio2trace.measures.executions import LayerKey, on_host
from mio2trace.measures.gaps import Cause, causes
from mio2trace.measures.iterations import Iterations, StepTime, iterations_of, step_time
from mio2trace.measures.ranking import (
    Form,
    Key,
    Ranking,
    Rows,
    SteadyCost,
    name_as_run,
    ranked,
)
from mio2trace.measures.statistics import part_of
from mio2trace.model.tables import (
    NO,
    Codes,
    Numbers,
    Pool,
    distinct,
    firsts,
    present,
    sorted_pool,
    summed,
    summed_by,
)
from mio2trace.ops.operation import problem_name
from mio2trace.patterns import late

if TYPE_CHECKING:
    from mio2trace.measures import Measures


OperationKey = tuple[str, str]
"""Layer (empty: none) and name of the operation."""


class Steady:
    """The steady iterations of one profile that is joined with its log; summed on first use."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._alignment = measures.alignment
        self._commands = measures.alignment.profile.commands

    # -- iterations --------------------------------------------------------------------------------------------------

    @cached_property
    def told(self) -> Iterations:
        """All iterations, and which of them count."""
        return iterations_of(self._alignment, self._measures.launches, self._measures.is_undecided)

    @property
    def iterations(self) -> tuple[int, ...]:
        """The numbers of those that count."""
        return self.told.steady

    def has(self, iteration: int | None) -> bool:
        """Return whether the iteration of this number counts; a single iteration may have no number."""
        return (1 if iteration is None else iteration) in self._place

    @cached_property
    def _place(self) -> Mapping[int, int]:
        """The place of each iteration that counts, by its number."""
        return {number: at for at, number in enumerate(self.iterations)}

    @property
    def rule(self) -> str:
        return self.told.rule

    @property
    def first_ns(self) -> int | None:
        return self.told.all[0].kernel_ns if self.told.all else None

    @property
    def is_sure(self) -> bool:
        """Whether the kernels of these iterations are no searches', and the iterations are no parts of others."""
        return not self.told.doubt and not self._measures.depends_on_searches(self.total.total_ns)

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
        rows = self._summed(["total"], np.zeros(len(self._commands), np.int64), (0,))
        rows.calls = list(rows.sums.kernels)
        rows.find_kernels = [sum(cost.kernels for cost in self._measures.searches.values())]
        rows.find_ns = [sum(cost.timed_ns for cost in self._measures.searches.values())]
        whole = rows.row(0, rows.sums.timed_ns[0])
        return msgspec.structs.replace(whole, cumulative_share=whole.share)

    @cached_property
    def layers(self) -> Ranking[LayerKey]:
        """By position in the net, name, direction."""
        return self._by_layer(*self._alignment.links.runs.layers())

    @cached_property
    def classes(self) -> Ranking[LayerKey]:
        """By class and direction: ``Conv2d_3`` and ``Conv2d_7`` are two modules of one class, ``conv 3`` and ``conv 7``
        two layers of one kind."""
        layers = self._alignment.links.runs.layers().each()
        return self._by_layer(*Pool[LayerKey].of((0, class_of(name), direction) for _, name, direction in layers))

    def _by_layer(self, keys: Sequence[LayerKey], row_of: Codes) -> Ranking[LayerKey]:
        rows = self._summed(keys, self._alignment.links.run_of, row_of)
        pass_of = self._alignment.links.runs.column("pass_")
        counts = np.array([*self._place_of_pass, NONE], np.int64)[pass_of] != NONE
        rows.calls = np.bincount(row_of[counts], minlength=len(keys)).tolist()
        of_span, lengths = self._on_host(row_of.astype(np.int64), pass_of, counts)
        told = np.bincount(of_span, minlength=len(keys)).tolist()
        host_ns = summed(of_span, lengths, len(keys)).tolist()
        rows.host_ns = [ns if count else None for ns, count in zip(host_ns, told, strict=True)]
        self._add_searches(rows, {index: row_of[run] for index, run in self._run_of_search.items()})
        return ranked(rows, self.total, "in no layer")

    def _on_host(self, row_of: Numbers, pass_of: Numbers, counts: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Return, for each pass and layer where the host was in it, the layer's row and how long that was.
        ``row_of``, ``pass_of``, ``counts``: of each execution its layer's row, its pass, and whether this one
        counts."""
        links, commands, rows = self._alignment.links, self._commands, self.counted.positions
        first, group_of = distinct(pass_of * (int(row_of.max(initial=0)) + 1) + row_of)
        starts, ends = links.runs.column("host_start_ns"), links.runs.column("host_end_ns")
        is_bound = counts & (starts != NO) & (ends != NO)
        run_of = np.asarray(links.run_of)[rows]
        is_called = (run_of != NONE) & (commands.host_start_ns[rows] != NO) & (commands.host_end_ns[rows] != NO)
        bounds = np.where(is_bound, starts, NO), np.where(is_bound, ends, NO)
        ns, _ = on_host(commands, bounds, group_of, len(first), rows[is_called], group_of[run_of[is_called]])
        known = np.flatnonzero(ns[:-1] != NO)
        return row_of[first[known]], ns[known]

    @cached_property
    def operations(self) -> Ranking[OperationKey]:
        """By layer and name; operations that ran in no layer have none."""
        return self.by_operation(self.operation_key)

    def operation_key(self, index: int) -> OperationKey:
        """Return the key of an operation in `operations`: a search belongs to the layer that runs its problem."""
        return self._layers[index], self._names[index]

    @cached_property
    def _names(self) -> Sequence[str]:
        """By index; a search has the name of its operation."""
        shared = self._measures.shared
        return [*Pool([name_as_run(one.facts) for one in shared.values], shared.codes).each()]

    def by_operation(self, key: Callable[[int], Key]) -> Ranking[Key]:
        """Rank by ``key`` of an operation's index."""
        return ranked(self._of_operations(key), self.total, "in no operation")

    @cached_property
    def _layers(self) -> Sequence[str]:
        """The layer in which each operation began, by index, "" if in none. A search has the layer of its operation."""
        runs, layers = self._begun_in.copy(), self._alignment.links.runs.layers()
        for index, run in self._run_of_search.items():
            runs[index] = run
        names = Pool([*(key.layer for key in layers.values), ""], np.append(layers.codes, len(layers.values)))
        return [*names.take(runs).each()]  # `NONE` takes the last

    @cached_property
    def _begun_in(self) -> Numbers:
        """The first layer's execution of each operation, `NONE` for one in no layer."""
        run_of = np.asarray(self._alignment.links.run_of)
        operation_of = np.where(run_of == NONE, NONE, self._alignment.links.operation_of)
        return np.append(run_of, NONE)[firsts(operation_of, len(self._measures.first_of))].astype(np.int64)

    @cached_property
    def problems(self) -> Ranking[str]:
        """By `problem_name`: equal problems of all layers together."""
        return self.by_operation(self.problem_of.__getitem__)

    @cached_property
    def problem_of(self) -> Sequence[str]:
        """The `problem_name` of each operation, by index."""
        shared = self._measures.shared
        return [*Pool([problem_name(one) for one in shared.values], shared.codes).each()]

    @cached_property
    def kernels(self) -> Ranking[str]:
        commands, names = self._commands, self.counted.name_of
        count = len(self.counted.names)
        rows = self._summed(self.counted.names, names, range(count))
        rows.calls = list(rows.sums.kernels)
        positions = self.counted.positions
        positions = positions[names[positions] != NONE]
        called, returned = commands.host_start_ns[positions], commands.host_end_ns[positions]
        # the kernels of a graph share its call
        is_known = (called != NO) & (returned != NO) & ~commands.is_replayed[positions]
        numbers = names[positions]
        host = summed(numbers[is_known], (returned - called)[is_known], count).tolist()
        unknown = {*numbers[~is_known].tolist()}
        if self._measures.searches:
            is_searching = np.isin(self._alignment.links.operation_of, [*self._measures.searches])
            searching = np.flatnonzero(is_searching & (names != NONE) & (self.counted.place_of == NONE))
            rows.find_kernels = np.bincount(names[searching], minlength=count).tolist()
            rows.find_ns = summed(names[searching], commands.time_ns[searching], count).tolist()
        rows.host_ns = [ns if rows.calls[at] and at not in unknown else None for at, ns in enumerate(host)]
        return ranked(rows, self.total, "")

    @cached_property
    def copies(self) -> Cost:
        """Reads, writes and fills in the steady iterations."""
        positions = self.counted.positions
        copies = positions[~self._commands.is_kernel[positions]]
        return Sums(np.zeros(len(copies), np.int64), 1, self._commands, copies).cost(0)

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

    @property
    def device_number(self) -> int | None:
        """The number that the profiler gave that device: the second of two devices may be device 7."""
        if self.device is None:
            return None
        numbers = {one.index: one.number for one in self._alignment.profile.devices}
        shown = numbers.get(self.device.device)
        return self.device.device if shown is None else shown

    @cached_property
    def step_time(self) -> StepTime | None:
        """Length and parts of a steady step on that device.

        None if nothing shows steps, if no steady step has a known end, or if the profiler waited for each command.
        """
        number = self.device_number
        if number is None or self.told.told_by == "whole" or self._alignment.profile.calls_wait:
            return None
        return step_time(number, self.windows)

    @cached_property
    def recording(self) -> Busy | None:
        """How that device spent the time from its first to its last command, if nothing shows steps.

        None if the profiler waited for each command.
        """
        if self.device is None or self.told.told_by != "whole" or self._alignment.profile.calls_wait:
            return None
        return self.device.recording

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Begin and end of the steady iterations of `step_time` on that device; without these of its commands."""
        spans = tuple((window.begin_ns, window.end_ns) for window in self.windows if window.end_ns is not None)
        if spans or self.device is None:
            return spans
        end = int(self.device.occupation.commands.ends[-1])
        return ((end - self.device.recording.length_ns, end),)

    @cached_property
    def idle_causes(self) -> tuple[Cause, ...]:
        """The causes of idle time of that device in `spans`, most time first."""
        return () if self.device is None else causes(self._alignment, self.device, self.spans)

    def of_operations(self) -> dict[int, float]:
        """By index of the operations that ran in the steady iterations: kernel time per iteration."""
        of_steady, measures = self.counted, self._measures
        index = np.asarray(self._alignment.links.operation_of)[of_steady.kernels]
        linked = index != NONE
        ns = summed(index[linked], of_steady.ns[linked], len(measures.first_of)).tolist()
        return {index: part_of(ns[index], len(self.iterations)) for index in self._ran}

    # -- sums --------------------------------------------------------------------------------------------------------

    @cached_property
    def _place_of_pass(self) -> list[int]:
        """For each pass, the place of its iteration among the steady ones."""
        place = self._place
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
        keys, rows_of = Pool.of(map(key, indices))
        row_of = [NONE] * len(measures.first_of)
        for row, index in zip(rows_of.tolist(), indices, strict=True):
            row_of[index] = row
        rows = self._summed(keys, self._alignment.links.operation_of, row_of)
        host, untold = [0] * len(keys), set()
        host_ns_of, shared = measures.host_ns_of, measures.shared
        sizes, facts_of = [one.bytes_min for one in shared.values], shared.codes.tolist()
        for index in self._ran:
            row, host_ns, size = row_of[index], host_ns_of[index], sizes[facts_of[index]]
            rows.calls[row] += 1
            if host_ns == NO:
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
        first_of, searches = np.array(self._measures.first_of, np.int64), self._measures.searches
        is_counted = ((first_of != NONE) & (np.append(self.counted.place_of, NONE)[first_of] != NONE)).tolist()
        return [index for index in self._measures.operation_at if is_counted[index] and index not in searches]

    @cached_property
    def _run_of_search(self) -> Mapping[int, int]:
        """For each search, the layer's execution in which it ran, else the first execution that runs its problem."""
        measures, problem_of = self._measures, self.problem_of
        if not measures.searches:
            return {}
        first: dict[str, int] = {}
        for index, run in enumerate(self._begun_in.tolist()):
            if run != NONE and problem_of[index] not in first and measures.operation_at[index].phase == "run":
                first[problem_of[index]] = run
        runs: dict[int, int] = {}
        for index in measures.searches:
            own = int(self._begun_in[index])
            run = first.get(problem_of[index], NONE) if own == NONE else own
            if run != NONE:
                runs[index] = run
        return runs

    def _add_searches(self, rows: Rows[Key], row_of: Mapping[int, int]) -> None:
        for index, row in row_of.items():
            cost = self._measures.searches[index]
            rows.find_kernels[row] += cost.kernels
            rows.find_ns[row] += cost.timed_ns

    def _summed(
        self, keys: Sequence[Key], column: Sequence[int] | NDArray[Any], row_of: Sequence[int] | Codes
    ) -> Rows[Key]:
        """Return sums by the row of each activity's number in ``column``."""
        of_steady, count = self.counted, len(self.iterations)
        numbers = np.asarray(column)
        # One more row, the last, is for activities without a number.
        rows_of = np.append(np.asarray(row_of, np.int64), NONE)
        rows = rows_of[numbers[of_steady.kernels]]
        in_row = rows != NONE
        cells, ns = summed_by((rows * count + of_steady.places)[in_row], of_steady.ns[in_row])
        sums = Sums(rows_of[numbers[of_steady.positions]], len(keys), self._commands, of_steady.positions)
        helping, parts = of_steady.helping
        sums.add_parts(rows_of[numbers[helping]], self._commands.time_ns[helping], parts)
        sums.add_unsure(rows_of[numbers[of_steady.unsure]])
        flop_of = sums.flop_of_operations
        for row, flop in zip(whole(rows_of[numbers[of_steady.worked]]), of_steady.work_of, strict=True):
            flop_of[row] = flop_of.get(row, 0) + flop
        for position, other_flop, told_by in of_steady.other_work:
            sums.add_work(int(rows_of[numbers[position]]), other_flop, told_by)
        for few in (sums.unsure, flop_of, sums.flop_of_gemms, sums.unknown_flop):
            few.pop(NONE, None)
        summed_rows = Rows(keys, count, sums, cells, ns)
        summed_rows.is_find_unsure = self._measures.is_find_unsure
        return summed_rows

    @cached_property
    def counted(self) -> Counted:
        """The activities over which every sum goes."""
        measures, links, commands = self._measures, self._alignment.links, self._commands
        counts = np.array([*(self._place.get(one.number, NONE) for one in self.told.all), NONE], np.int32)
        place_of, forms = counts[self.told.place_of], measures.forms
        positions = np.flatnonzero(place_of != NONE)
        is_counted = commands.is_kernel[positions] & commands.has_times[positions]
        kernels = positions if is_counted.all() else positions[is_counted]  # a column of ten million takes 80 MB
        rows = _as_slice(kernels)
        of_kernels = forms.form_of[rows]
        used = present(of_kernels)
        worked, work_of, other_work = array("q"), [], []
        for position, _, flop, told_by in measures.work():
            if place_of[position] == NONE:
                continue
            if told_by == "operation" and flop is not None:
                worked.append(position)
                work_of.append(flop)
            else:
                other_work.append((position, flop, told_by))
        unsure = links.layer_unsure | links.operation_unsure
        is_whole = len(used) == len(forms.forms)
        return Counted(
            names=forms.names,
            name_of=forms.name_of,
            place_of=place_of,
            positions=positions,
            kernels=kernels,
            places=place_of[rows],
            ns=commands.time_ns[rows],
            form_of=of_kernels if is_whole else np.searchsorted(used, of_kernels).astype(np.int32),
            forms=[forms.forms[number] for number in used.tolist()],
            helping=measures.helping(kernels),
            unsure=np.array([position for position in unsure if place_of[position] != NONE], np.int64),
            worked=worked,
            work_of=work_of,
            other_work=other_work,
        )


_NUMBERED = late(r"(.*[A-Za-z0-9)])[_ ]\d+", re.DOTALL)


def class_of(layer: str) -> str:
    """Return ``Conv2d`` for ``Conv2d_3``; a name without a number at its end is its own class."""
    found = _NUMBERED.fullmatch(layer)
    return layer if found is None else found[1]


# -- The kernels and copies of steady iterations in columns: every ranking sums over them ------------------------------


class Counted(msgspec.Struct, frozen=True):
    """``names`` and ``name_of``: of all kernels, as in `Forms`.

    ``place_of``: of each activity its iteration's place among the steady ones, `NONE` where it is in none. The
    activities of steady iterations: ``positions`` of all. Of kernels with times: ``kernels`` the position, ``places``
    the iteration's place, ``ns`` the time, ``form_of`` the place in ``forms``.

    ``helping``: as `Measures.helping` of these. ``unsure``: positions of kernels with low confidence. ``worked``,
    ``work_of``: where the work of operations counts, and how much. ``other_work``: other places, their work (None:
    unknown) and its source, as in `Measures.work`.
    """

    names: Sequence[str]
    name_of: Codes
    place_of: Codes
    positions: Numbers
    kernels: Numbers
    places: Codes
    ns: Numbers
    form_of: Codes
    forms: Sequence[Form]
    helping: tuple[Numbers, Sequence[NDArray[np.bool_]]]
    unsure: Numbers
    worked: Sequence[int]
    work_of: Sequence[int]
    other_work: Sequence[tuple[int, int | None, str]]


def _as_slice(rows: Numbers) -> Numbers | slice:
    """Return rows that follow one another as a slice, of which numpy makes no copy."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


MOST_LAYERS = 64
"""The most nested layers; of more the outermost ones are left out."""
Kind = Literal["all", "layer", "operation", "kernel"]


class Node(msgspec.Struct, kw_only=True):
    """A node in the tree of layers, operations and kernels. ``own_ns`` and ``kernels``: over all steady iterations,
    without the nodes below. ``total_ns``, ``total_kernels``: with these. ``name``: empty for kernels in no layer or in
    no operation, and for the root."""

    kind: Kind
    name: str
    own_ns: int = 0
    kernels: int = 0
    total_ns: int = 0
    total_kernels: int = 0
    parts: dict[tuple[Kind, str], Node] = msgspec.field(default_factory=dict)

    def part(self, kind: Kind, name: str) -> Node:
        made = self.parts.get((kind, name))
        if made is None:
            made = self.parts[kind, name] = Node(kind=kind, name=name)
        return made

    def in_order(self) -> list[Node]:
        """Return the children, most time first; layers before operations of equal time."""
        return sorted(self.parts.values(), key=lambda node: -node.total_ns)

    def walk(self) -> Iterator[tuple[int, Node]]:
        """Yield the node and all nodes below with their depth, parents first."""
        waiting = [(0, self)]
        while waiting:
            level, node = waiting.pop()
            yield level, node
            waiting += [(level + 1, part) for part in reversed(node.in_order())]


def layer_tree(measures: Measures) -> Node:
    """Return the root, which holds all kernels with times of steady iterations."""
    links, steady = measures.alignment.links, measures.steady
    counted = steady.counted
    net = measures.alignment.net.layers
    inside = {**{one.layer: one.within for one in net if one.within}, **_parents(measures.alignment)}
    root = Node(kind="all", name="")
    around: dict[str, tuple[Node, ...]] = {"": (root, root.part("layer", ""))}

    def nodes(layer: str) -> tuple[Node, ...]:
        """Return the nodes from the root to a layer."""
        made = around.get(layer)
        if made is None:
            names = [layer]
            while (outer := inside.get(names[-1])) is not None and outer not in names and len(names) < MOST_LAYERS:
                names.append(outer)
            path = [root]
            for name in reversed(names):
                path.append(path[-1].part("layer", name))
            made = around[layer] = tuple(path)
        return made

    layer_of_run = Pool.of(["", *(run.layer for run in links.runs)])
    layers = layer_of_run.take(np.asarray(links.run_of)[counted.kernels] + 1)
    indexes, index_of = sorted_pool(np.asarray(links.operation_of)[counted.kernels])
    operations = Pool.of("" if index == NONE else steady.operation_key(index)[1] for index in indexes).take(index_of)
    names = counted.name_of[counted.kernels]
    keys = layers.codes.astype(np.int64) * len(operations.values) + operations.codes
    first, key_of = distinct(keys * len(counted.names) + names)
    columns = (
        layers.codes[first], operations.codes[first], names[first], summed(key_of, counted.ns, len(first)),
        np.bincount(key_of, minlength=len(first)),
    )  # fmt: skip
    for layer, problem, number, ns, kernels in zip(*(column.tolist() for column in columns), strict=True):
        path = nodes(layers.values[layer])
        path[-1].own_ns += ns
        path[-1].kernels += kernels
        operation = path[-1].part("operation", operations.values[problem])
        kernel = operation.part("kernel", counted.names[number])
        for node in (operation, kernel):
            node.own_ns += ns
            node.kernels += kernels
        for node in (*path, operation, kernel):
            node.total_ns += ns
            node.total_kernels += kernels
    root.parts = {key: node for key, node in root.parts.items() if node.kernels or node.parts}
    return root


def _parents(alignment: Alignment) -> Mapping[str, str]:
    """Return the parent of each layer that a range names: the layer of the range around most of its calls, the first
    one if two have as many.

    A layer that calls itself is within the first other one.
    """
    profile = alignment.profile
    layers = layers_of_ranges([made for made in profile.ranges if made.kind != "operator"], alignment.steps)
    kinds = Pool.of((made.kind, made.text) for made in profile.ranges)
    names = Pool.of(layers[kind][0] if kind in layers else None for kind in kinds.values)
    of_range = names.codes[kinds.codes]
    rows = np.flatnonzero(names.where(lambda name: name is not None)[kinds.codes])
    ranges = tuple(map(profile.ranges.__getitem__, rows.tolist()))
    reduced = msgspec.structs.replace(profile, ranges=ranges, activities=())
    parent_of = np.array([*OpenRanges(reduced).parent_of, NONE])
    name_of = np.append(of_range[rows], NONE)
    outer = parent_of[:-1]
    while (is_same := (outer != NONE) & (name_of[outer] == name_of[:-1])).any():
        outer = np.where(is_same, parent_of[outer], outer)
    pairs = name_of[:-1].astype(np.int64) * (len(names.values) + 1) + name_of[outer] + 1
    first, pair_of = distinct(pairs)
    columns = (name_of[:-1][first], name_of[outer][first], np.bincount(pair_of, minlength=len(first)))
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for inner, around, count in zip(*(column.tolist() for column in columns), strict=True):
        found[names.values[inner] or ""]["" if around == NONE else names.values[around] or ""] += count
    mostly = {name: counts.most_common(1)[0][0] for name, counts in found.items()}
    return {name: outer for name, outer in mostly.items() if outer}
