"""Costs of steady iterations by a key, in order of time; and the composition of the time of steady kernels: primitives
and roles, durations, evidence, graph launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact, helps, role
from mio2trace.kernels.names import kernel_name
from mio2trace.kernels.purposes import purpose
from mio2trace.measures.cost import Cost, Sums, whole
from mio2trace.measures.executions import LayerKey
from mio2trace.measures.statistics import part_of
from mio2trace.model.tables import (
    Activities,
    Codes,
    Numbers,
    Pool,
    added,
    distinct,
    firsts,
    in_order_of,
    present,
    summed,
)
from mio2trace.ops.operation import Operation, OperationFacts, name_of
from mio2trace.ops.values import family

if TYPE_CHECKING:
    from mio2trace.measures import Measures


Key = TypeVar("Key", bound=Hashable)


class SteadyCost(msgspec.Struct, Generic[Key], frozen=True, kw_only=True):
    """The cost of ``key`` over the steady iterations.

    ``cost``: the sum. ``iterations``: their number. ``places``, ``ns``: those with kernel time, in ascending order, and
    that time. ``calls``: executions of a layer, operations, or kernels of a name. ``share``: the part of the kernel
    time of these iterations, 0 to 1. ``cumulative_share``: of this row and all rows before it. ``find_ns``,
    ``find_kernels``: its searches in the whole run (``is_find_unsure``: these may be more or fewer).
    """

    key: Key
    cost: Cost
    iterations: int
    places: Sequence[int]
    ns: Sequence[int]
    calls: int
    share: float = 0.0
    cumulative_share: float = 0.0
    find_ns: int = 0
    find_kernels: int = 0
    is_find_unsure: bool = False

    @property
    def total_ns(self) -> int:
        return self.cost.timed_ns

    @property
    def per_iteration_ns(self) -> tuple[int, ...]:
        """Kernel time in each of the iterations."""
        found = [0] * self.iterations
        for place, ns in zip(self.places, self.ns, strict=True):
            found[place] = ns
        return tuple(found)

    @property
    def mean_ns(self) -> float:
        """Mean kernel time per iteration; an integer if it is whole."""
        return part_of(sum(self.ns), self.iterations) if self.iterations else 0

    @property
    def host_ns(self) -> int | None:
        """Time on the host over all of these iterations: launching, compiling, waiting. None if unknown."""
        return self.cost.host_ns

    @property
    def calls_per_iteration(self) -> float:
        return self.calls / self.iterations if self.iterations else 0


class Ranking(list[SteadyCost[Key]]):
    """Costs, most kernel time first, equal ones in order of execution. ``total``: of all steady kernels.

    ``rest``: the part of it that is in no row, such as kernels in no layer; None if there is none.
    """

    def __init__(
        self, rows: Sequence[SteadyCost[Key]], total: SteadyCost[str], rest: SteadyCost[str] | None = None
    ) -> None:
        super().__init__(rows)
        self.total = total
        self.rest = rest

    def of(self, key: Key) -> SteadyCost[Key] | None:
        return self._by_key.get(key)

    @cached_property
    def _by_key(self) -> Mapping[Key, SteadyCost[Key]]:
        return {row.key: row for row in self}


class Rows(Generic[Key]):
    """Sums by key, of steady iterations and of searches. ``cells``: each pair of a key and an
    iteration with kernel time, as key * iterations + iteration, in ascending order. ``ns``: the time of each pair."""

    def __init__(self, keys: Sequence[Key], iterations: int, sums: Sums, cells: Numbers, ns: NDArray[Any]) -> None:
        self.keys = keys
        self.iterations = iterations
        self.sums = sums
        self._begins = np.searchsorted(cells, np.arange(len(keys) + 1) * iterations).tolist()
        self._places = whole(cells % max(iterations, 1))
        self._ns = ns.tolist() if ns.dtype == object else whole(ns)
        self.calls = [0] * len(keys)
        self.known_bytes = [0] * len(keys)
        self.unknown_bytes = [0] * len(keys)
        self.host_ns: list[int | None] = [None] * len(keys)
        self.find_ns = [0] * len(keys)
        self.find_kernels = [0] * len(keys)
        self.is_find_unsure = False

    def row(self, number: int, whole_ns: int) -> SteadyCost[Key]:
        own = slice(self._begins[number], self._begins[number + 1])
        cost = msgspec.structs.replace(
            self.sums.cost(number),
            known_bytes=self.known_bytes[number],
            unknown_bytes=self.unknown_bytes[number],
            host_ns=self.host_ns[number],
        )
        return SteadyCost(
            key=self.keys[number],
            cost=cost,
            iterations=self.iterations,
            places=self._places[own],
            ns=self._ns[own],
            calls=self.calls[number],
            share=cost.timed_ns / whole_ns if whole_ns else 0.0,
            find_ns=self.find_ns[number],
            find_kernels=self.find_kernels[number],
            is_find_unsure=self.is_find_unsure and self.find_kernels[number] > 0,
        )

    def has(self, number: int) -> bool:
        """Return whether the row has any cost."""
        return bool(self.sums.activities(number) or self.calls[number] or self.find_kernels[number])


def ranked(rows: Rows[Key], whole: SteadyCost[str], rest_name: str) -> Ranking[Key]:
    """Return the rows with any cost, most kernel time first; ``whole`` is the denominator of shares."""
    whole_ns = whole.total_ns
    ran = [rows.row(number, whole_ns) for number in range(len(rows.keys)) if rows.has(number)]
    ran.sort(key=lambda row: -row.total_ns)
    in_order = []
    before = 0
    for row in ran:
        before += row.total_ns
        in_order.append(msgspec.structs.replace(row, cumulative_share=before / whole_ns if whole_ns else 0.0))
    return Ranking(in_order, whole, _rest(in_order, whole, rest_name))


def _rest(ran: Sequence[SteadyCost[Key]], whole: SteadyCost[str], name: str) -> SteadyCost[str] | None:
    kernels = whole.cost.kernels - sum(row.cost.kernels for row in ran)
    if not kernels:
        return None
    left = whole.total_ns - sum(row.total_ns for row in ran)
    rest = dict(zip(whole.places, whole.ns, strict=True))
    for row in ran:
        for place, ns in zip(row.places, row.ns, strict=True):
            rest[place] -= ns
    rest = {place: ns for place, ns in rest.items() if ns}
    return SteadyCost(
        key=name,
        cost=Cost(kernels=kernels, timed_ns=left, untimed=whole.cost.untimed - sum(row.cost.untimed for row in ran)),
        iterations=whole.iterations,
        places=list(rest),
        ns=list(rest.values()),
        calls=kernels,
        share=left / whole.total_ns if whole.total_ns else 0.0,
        cumulative_share=1.0 if whole.total_ns else 0.0,
    )


# -- Auxiliary kernels and naive kernels -------------------------------------------------------------------------------


class Kind(msgspec.Struct, frozen=True):
    """The kind of a kernel's time, from its role and name."""

    role: str
    helps: bool
    naive: bool


def is_naive(operation: Operation) -> bool:
    """Return whether the log names a naive solver for it."""
    return operation.algorithm == "Naive" or (operation.solver is not None and family(operation.solver) == "Naive")


def kind_of(name: str, fact: KernelFact | None) -> Kind:
    of_kernel = role(name, fact)
    meaning = kernel_name(name)
    return Kind(of_kernel, helps(of_kernel), meaning is not None and meaning.algorithm == "Naive")


class Form(msgspec.Struct, frozen=True):
    """Common properties of kernels with equal name and facts: ``kind``, and the fact of the first kernel."""

    name: str
    kind: Kind
    fact: KernelFact | None


class Forms(msgspec.Struct, frozen=True):
    """The kernels of a profile by name and by form, both in order of first appearance.

    ``name_of``, ``form_of``: of each activity the place of its own, `NONE` of what is no kernel.
    """

    names: Sequence[str]
    name_of: Codes
    forms: Sequence[Form]
    form_of: Codes


def forms_of(commands: Activities, facts: Mapping[int, KernelFact]) -> Forms:
    """The forms: looked up once for all kernels that are alike. ``facts``: by position."""
    codes = commands.name.codes
    if not commands.is_kernel.all():
        codes = np.where(commands.is_kernel, codes, np.int32(NONE))
    first, name_of = _in_order(codes, len(commands.name.values))
    names = [commands.name.values[code] for code in commands.name.codes[first].tolist()]
    form_of = name_of
    if facts:
        kinds: dict[tuple[str, bool], int] = {}
        told = [kinds.setdefault((fact.role, fact.gemm is not None), len(kinds)) + 1 for fact in facts.values()]
        told_of = np.zeros(len(commands), np.int64)
        told_of[np.fromiter(facts, np.int64, len(facts))] = told
        several = len(kinds) + 1
        keys = np.where(name_of == NONE, NONE, name_of * several + told_of)
        first, form_of = _in_order(keys, len(names) * several)
    forms = []
    for position, number in zip(first.tolist(), name_of[first].tolist(), strict=True):
        name, fact = names[number], facts.get(position)
        forms.append(Form(name, kind_of(name, fact), fact))
    return Forms(names, name_of, forms, form_of)


def _in_order(codes: NDArray[Any], count: int) -> tuple[Numbers, Codes]:
    """The first row of each code that is there, in order; of each row the place of its code in that order."""
    first = firsts(codes, count)
    there = np.flatnonzero(first != NONE)
    there = there[np.argsort(first[there])]
    place = np.full(count + 1, NONE, np.int32)
    place[there] = np.arange(len(there))
    is_in_order = len(there) == count and codes.dtype == np.int32 and bool((place[:-1] == np.arange(count)).all())
    return first[there], codes if is_in_order else place[codes]


def name_as_run(facts: OperationFacts) -> str:
    """Return the name of an operation when it runs; a search gets the name of its operation."""
    return name_of(msgspec.structs.replace(facts, phase="run") if facts.phase == "find" else facts)


SHORT_NS = 10_000
"""A shorter kernel is short: launching one costs the host about as much."""

Part = tuple[str, str, bool]
"""Primitive (of the operation; else of the kernel itself, ``gemm``, ``collective``, or empty), role, whether it is
auxiliary."""


class Makeup(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels with times, counted and summed once. ``parts``: time by `Part`. ``layers``: time by layer and part.
    ``by_log2``: count and time by the bits of the duration in ns. ``naive``: by operation, ``NONE`` for kernels in no
    operation. ``outside``: by name, of kernels in no operation and no graph. ``unsure``, ``graph`` (in no operation),
    ``short``, ``all``: sums. ``elsewhere_ns``: the expected time of unsure kernels that belongs to another layer or
    operation, by the less probable of their two links."""

    parts: Counter[Part]
    layers: Counter[tuple[LayerKey, Part]]
    by_log2: dict[int, tuple[int, int]]
    naive: Counter[int]
    outside: dict[str, tuple[int, int]]
    unsure: tuple[int, int]
    elsewhere_ns: int
    graph: tuple[int, int]
    short: tuple[int, int]
    all: tuple[int, int]


def makeup(measures: Measures) -> Makeup:
    of_steady, links, commands = measures.steady.counted, measures.alignment.links, measures.alignment.profile.commands
    kernels, times = of_steady.kernels, of_steady.ns
    layers, layer_of = links.runs.layers()
    # for an op without a family, its kernels show the primitive
    primitives, of_shared = Pool.of("" if one.is_plain else one.primitive for one in measures.shared.values)
    primitive_of = np.append(of_shared[measures.shared.codes].astype(np.int64), NONE)  # the last one: no operation
    operations = np.asarray(links.operation_of)[kernels]
    layer = np.append(layer_of, NONE).astype(np.int64)[np.asarray(links.run_of)[kernels]]
    primitive = primitive_of[operations]
    keys = ((layer + 1) * (len(primitives) + 1) + primitive + 1) * len(of_steady.forms) + of_steady.form_of
    first, key_of = distinct(keys)
    columns = (
        layer[first], primitive[first], of_steady.form_of[first], np.bincount(key_of, minlength=len(first)),
        summed(key_of, times, len(first)),
    )  # fmt: skip
    parts: Counter[Part] = Counter()
    in_layers: Counter[tuple[LayerKey, Part]] = Counter()
    outside: Counter[str] = Counter()
    outside_ns: Counter[str] = Counter()
    for at, of, number, count, ns in zip(*(column.tolist() for column in columns), strict=True):
        form = of_steady.forms[number]
        own = "" if of == NONE else primitives[of]
        part = own or _primitive(form.fact, form.name), form.kind.role, form.kind.helps
        parts[part] += ns
        if at != NONE:
            in_layers[layers[at], part] += ns
        if of == NONE:
            outside[form.name] += count
            outside_ns[form.name] += ns
    untold = commands.is_replayed[kernels] & (operations == NONE)
    names = of_steady.name_of[kernels[untold]]
    for number in present(names).tolist():
        own_ns = times[untold][names == number]
        outside[of_steady.names[number]] -= len(own_ns)
        outside_ns[of_steady.names[number]] -= added(own_ns)
    is_unsure = np.isin(kernels, of_steady.unsure)
    in_doubt = zip(kernels[is_unsure].tolist(), times[is_unsure].tolist(), strict=True)
    likely, likely_layer = links.operation_confidence, links.layer_confidence
    return Makeup(
        parts=parts,
        layers=in_layers,
        by_log2=_by_log2(times),
        naive=_naive(measures),
        outside={name: (count, outside_ns[name]) for name, count in outside.items() if count},
        unsure=_counted(times[is_unsure]),
        elsewhere_ns=round(
            sum(ns * (1 - min(likely.get(place, 1.0), likely_layer.get(place, 1.0))) for place, ns in in_doubt)
        ),
        graph=_counted(times[untold]),
        short=_counted(times[times < SHORT_NS]),
        all=_counted(times),
    )


def _naive(measures: Measures) -> Counter[int]:
    """Return the time of naive kernels by operation, in the order of the iterations."""
    of_steady, operation_of = measures.steady.counted, measures.alignment.links.operation_of
    naive: Counter[int] = Counter()
    positions, (_, _, is_naive) = of_steady.helping
    rows = positions[is_naive]
    rows = rows[in_order_of(of_steady.place_of[rows])]
    for position, ns in zip(rows.tolist(), measures.alignment.profile.commands.time_ns[rows].tolist(), strict=True):
        naive[operation_of[position]] += ns
    return naive


def _counted(times: Numbers) -> tuple[int, int]:
    return len(times), added(times)


def _by_log2(times: Numbers) -> dict[int, tuple[int, int]]:
    bits = np.searchsorted(1 << np.arange(63), abs(times), "right")
    counts = np.bincount(bits).tolist()
    sums = summed(bits, times, len(counts)).tolist()
    return {number: (count, ns) for number, (count, ns) in enumerate(zip(counts, sums, strict=True)) if count}


def _primitive(fact: KernelFact | None, name: str) -> str:
    """Return the primitive of a kernel in no operation, else its purpose by its name."""
    meaning = kernel_name(name)
    if meaning is not None and meaning.primitive:
        return meaning.primitive
    if meaning is not None and meaning.role == "collective":
        return "collective"
    is_gemm = (fact is not None and fact.gemm is not None) or (meaning is not None and meaning.algorithm == "Gemm")
    return "gemm" if is_gemm else purpose(name)
