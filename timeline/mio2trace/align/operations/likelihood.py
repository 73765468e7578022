"""Log-likelihood ratios of a kernel in a call: names, sizes, launch lines, buffers.

A match counts more if few kernels of the run have it. A mismatch is a rare event (`rates`). Unknown values count
nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf, log, prod
from typing import TypeVar

import msgspec

from mio2trace.align.operations.rates import (
    MISSTATED,
    NATS_MISSTATED,
    NATS_NEVER,
    UNKNOWN_NAME,
)
from mio2trace.align.operations.rows.calls import TENSOR, Calls, serves
from mio2trace.align.operations.rows.kinds import KernelKind, Kernels
from mio2trace.align.operations.sizes import (
    gemm_key,
    has_channels,
    is_part,
    items_fit,
    may_be_part,
    parts,
    steps_fit,
)
from mio2trace.evidence import BUFFERS, LAUNCH_LINE, NAME_AND_SIZES
from mio2trace.kernels import KernelFact
from mio2trace.kernels.names import left_of
from mio2trace.model.profile import Profile, Size3
from mio2trace.ops.operation import Launch, Operation
from mio2trace.ops.values import pointer

_RUNTIMES = "__amd_rocclr_"
"""Kernels of the HIP runtime, which MIOpen's launch lines never have."""
_REACH = 16
"""How far back another launch of a search is looked for."""
ONE_HELPER = frozenset(("settensor", "scaletensor", "transformtensor"))
"""Calls that launch what is a helper of other calls."""
OTHERS = 24
"""Assumed number of other kernels or calls of a run, so that a share is never below one in this number."""


Item = TypeVar("Item")
_Named = tuple[tuple[str, ...], tuple[str, ...]]


class Fit(msgspec.Struct, frozen=True, gc=False):
    """The ratio of a kernel in a call, and its evidence."""

    nats: float
    buffers: int
    launched: bool
    named: bool


class Likelihood:
    """Ratios of all pairs of kernel and call; equal pairs are computed once."""

    def __init__(
        self,
        profile: Profile,
        positions: Sequence[int],
        operations: Sequence[Operation],
        facts: Mapping[int, KernelFact],
        without: frozenset[str],
    ) -> None:
        self.operations = operations
        self._launches = LAUNCH_LINE not in without
        self._names = NAME_AND_SIZES not in without
        made = Counter(address for buffer in profile.opencl.buffers if (address := pointer(buffer.handle)))
        self._recycled = {handle for handle, count in made.items() if count > 1}
        self._made = bool(made)
        self.calls = calls = Calls(operations, with_buffers=BUFFERS not in without)
        self.class_of, self.first_of, self.problem_of = calls.class_of, calls.first_of, calls.problem_of
        self.pointers = calls.pointers
        self._sorts: dict[tuple[str, str | None, bool], tuple[Operation, int]] = {}
        for number, count in Counter(calls.class_of).items():
            operation = operations[calls.first_of[number]]
            sort = operation.primitive, operation.direction, operation.mode == "transpose"
            self._sorts[sort] = operation, self._sorts.get(sort, (operation, 0))[1] + count
        same = [operations[place] is operations[place - 1] for place in range(1, len(operations))]
        self.goes_on = bytearray([*same, False])  # the next one is another part of the same call
        self.continues = bytearray([False, *same])
        self.divided = any(same)
        self.kernels = Kernels(profile, positions, facts, calls.namings.keys(), calls.workspaces)
        self._printed = {one.name for operation in operations for one in operation.launches}
        # A log of commands alone has none of the calls that print no command (miopen-log.md 7).
        self.entered = any(operation.line != operation.command_line for operation in operations)
        self._count_kernels()
        self._static: dict[tuple[int, int], tuple[float, bool, bool]] = {}
        self._shares: dict[object, float] = {}
        self._launches_of: dict[int, Launches] = {}

    def _count_kernels(self) -> None:
        """Count how often each statement is true of the queue's kernels."""
        kernels = self.kernels
        self._library = self._beginning = 0
        self._named: Counter[_Named] = Counter()
        self._launched: Counter[object] = Counter()
        self._gemms: Counter[tuple[int, int, int]] = Counter()
        self._sized: Counter[tuple[str, int | None]] = Counter()
        self._numbers: Counter[int] = Counter()
        self._offsets: Counter[tuple[int, ...]] = Counter()
        self._items: dict[str, Counter[tuple[Size3, Size3 | None]]] = {}
        self._renamed: Counter[Size3 | None] = Counter()
        self._with_numbers = 0
        for number, count in Counter(kernels.of).items():
            kind = kernels.kinds[number]
            if kind.is_unknown:
                self._renamed[kind.launch[1]] += count
            if not kind.library:
                continue
            self._library += count
            self._beginning += count * (kind.is_gemm or kind.role == "scale")
            self._launched[kind.launch] += count
            if kind.name is None:
                continue
            if kind.launch[1] is not None:
                self._items.setdefault(kind.launch[0], Counter())[kind.launch[1], kind.workgroup] += count
            if kind.name.primitives:
                self._named[kind.name.primitives, kind.directions] += count
            if kind.gemm is not None:
                self._gemms[gemm_key(kind.gemm.m, kind.gemm.n, kind.gemm.k)] += count
            elif kind.name.algorithm == "Gemm" and kind.launch[1] is not None:
                self._sized[kind.launch[0], kind.launch[1][0]] += count
            if kind.offsets:
                self._offsets[kind.offsets] += count
            if kind.numbers:
                self._with_numbers += count
                for value in kind.numbers:
                    self._numbers[value] += count

    # Pairs

    def fit(self, at: int, index: int) -> Fit:
        """Return the ratio of the ``at``-th kernel in the call at place ``index``."""
        kernels = self.kernels
        number = kernels.of[at]
        nats, launched, named = self.pair(number, index)
        handles, pointers = kernels.named[at], self.pointers[index]
        if not handles or not pointers:
            return Fit(nats, 0, launched, named)
        holed = self.calls.holed[index]
        own, others = handles, handles.difference(pointers)
        if others:
            own = handles - others
            if others - self._recycled:
                nats += NATS_MISSTATED if holed or not self._made else NATS_NEVER
        if not own:
            return Fit(nats if holed else nats + NATS_MISSTATED, 0, launched, named)
        if launched or kernels.kinds[number].library or (len(own) > 1 and own >= set(pointers) - self.calls.workspaces):
            # A program's own kernels work on the same tensors: what is of no known name must have them all.
            namings = self.calls.namings
            rarest = min([namings[handle] for handle in own])
            nats += log((OTHERS + len(self.operations)) / rarest)
        written, read = kernels.written[at], kernels.read[at]
        if (written in own and self.calls.only_reads(index, written)) or (
            read in own and self.calls.only_writes(index, read)
        ):
            nats += NATS_NEVER
        return Fit(nats, len(own), launched, named)

    def pair(self, number: int, index: int) -> tuple[float, bool, bool]:
        """Return (ratio, launch line, name) of a kind of kernels without buffers."""
        key = (number, self.class_of[index])
        static = self._static.get(key)
        if static is None:
            static = self._static[key] = self._alike(self.kernels.kinds[number], index)
        return static

    def _alike(self, kind: KernelKind, index: int) -> tuple[float, bool, bool]:
        operation = self.operations[index]
        nats = 0.0
        launched = False
        if self._launches and operation.launches:
            launched = self._launches_in(index).count(*kind.launch) > 0
            if launched:
                nats += self._rareness(self._launched[kind.launch], self._library)
            elif kind.is_unknown:
                nats += self._renamed_nats(kind, index)
            elif kind.name is not None and not (kind.name.algorithm == "Gemm" or kind.launch[0].startswith(_RUNTIMES)):
                nats += NATS_MISSTATED
        name = kind.name
        if name is None or not self._names:
            if not launched:
                nats += 0.0 if kind.library else log(UNKNOWN_NAME)
            return nats, launched, False
        if not name.primitives:
            return nats, launched, name.role != "main" or operation.primitive in TENSOR
        if not serves(name.primitives, kind.directions, operation):
            # A convolution of which the log lost the problem may be a transposed one.
            rare = launched or (operation.problem is None and serves(name.primitives, kind.directions, operation, -1))
            return nats + (NATS_MISSTATED if rare else NATS_NEVER), launched, False
        if operation.primitive == "fusion" and name.algorithm == "Gemm":
            return nats + NATS_NEVER, launched, False  # a plan is one kernel
        nats += self._name_nats((name.primitives, kind.directions), operation)
        nats += self._gemm_nats(kind, operation)
        items = self._items_nats(kind, index)
        nats += min(0.0, items) if launched else items  # the launch line has told its work-items
        if kind.filters and operation.primitive == "conv" and len(operation.weights) == 4:
            nats += 0.0 if kind.filters == operation.weights[2:] else NATS_MISSTATED
        if kind.channels and operation.primitive == "conv" and operation.weights:
            nats += 0.0 if has_channels(kind.channels, operation) else NATS_MISSTATED
        if kind.numbers and (name.role == "main" or name.role in ("im2col", "col2im")):
            nats += self._size_nats(kind.numbers, operation)
        if operation.algorithm and name.algorithm and operation.phase == "run":
            nats += 0.0 if operation.algorithm == name.algorithm else NATS_MISSTATED
        return nats, launched, True

    def _launches_in(self, index: int) -> Launches:
        launches = self._launches_of.get(index)
        if launches is None:
            kernels = self.kernels
            launches = Launches(self.operations[index].launches, kernels.names, kernels.cut)
            self._launches_of[index] = launches
        return launches

    def _renamed_nats(self, kind: KernelKind, index: int) -> float:
        """The log may print another name for a kernel whose name is unknown."""
        name, grid = kind.launch
        if name in self._printed:
            return NATS_MISSTATED
        if grid in self._launches_in(index).of_others:
            return self._rareness(self._renamed[grid], self._renamed.total())
        return NATS_MISSTATED if kind.library else 0.0  # a GEMM library's launches are not printed

    def _name_nats(self, name: _Named, operation: Operation) -> float:
        """Return the ratio of a name by how many other kernels' names serve the call; shared names count by share."""
        sort = operation.primitive, operation.direction, operation.mode == "transpose"
        key = "name", name, sort
        if key not in self._shares:
            if sort not in self._shares:
                self._shares[sort] = sum(
                    count * self._share(one, operation) for one, count in self._named.items() if serves(*one, operation)
                )
            rareness = self._rareness(self._shares[sort], self._library)
            self._shares[key] = rareness + log(self._share(name, operation))
        return self._shares[key]

    def _share(self, name: _Named, operation: Operation) -> float:
        served = sum(count for other, count in self._sorts.values() if serves(*name, other))
        sort = operation.primitive, operation.direction, operation.mode == "transpose"
        return self._sorts[sort][1] / served

    @staticmethod
    def _rareness(count: float, among: float) -> float:
        """Return the ratio of a statement that fits ``count`` of ``among`` kernels."""
        return log((1 - MISSTATED) * (among + OTHERS) / max(count + 1, (among + OTHERS) / OTHERS))

    def _gemm_nats(self, kind: KernelKind, operation: Operation) -> float:
        if operation.gemm is None or operation.primitive != "conv":
            return 0.0
        nats = 0.0
        if kind.gemm is not None:
            if not is_part(kind.gemm, operation):
                return NATS_MISSTATED
            keys = {gemm_key(*sizes) for sizes in parts(operation)}
            nats += self._rareness(sum(self._gemms[key] for key in keys), self._gemms.total())
        elif kind.launch[1] is not None:
            possible = may_be_part(kind.launch[0], kind.launch[1][0], operation)
            if possible is False:
                return NATS_MISSTATED
            if possible or kind.launch[0] == "miog_betac_alphaab":
                nats += self._of_sizes(operation, kind.launch[0])
        if kind.offsets:
            if not steps_fit(kind.offsets, operation):
                return nats + NATS_MISSTATED
            nats += self._of_offsets(operation)
        return nats

    def _of_sizes(self, operation: Operation, name: str) -> float:
        key = "sizes", name, operation.gemm, operation.direction, operation.input[:1]
        if key not in self._shares:
            counts = Counter({items: count for (one, items), count in self._sized.items() if one == name})
            self._shares[key] = self._rareness_if(
                counts, lambda items: items is not None and may_be_part(name, items, operation) is not False
            )
        return self._shares[key]

    def _items_nats(self, kind: KernelKind, index: int) -> float:
        """Return the ratio of the number of work items, by how many kernels of the name have it."""
        operation = self.operations[index]
        name, grid = kind.launch
        fits = None if grid is None else items_fit(name, grid, kind.workgroup, operation)
        if fits is None:
            return 0.0
        if not fits:
            return NATS_MISSTATED
        key = "items", name, self.class_of[index]
        if key not in self._shares:
            self._shares[key] = self._rareness_if(self._items[name], lambda sizes: items_fit(name, *sizes, operation))
        return self._shares[key]

    def _of_offsets(self, operation: Operation) -> float:
        key = "offsets", operation.input, operation.output, operation.weights, operation.groups
        if key not in self._shares:
            self._shares[key] = self._rareness_if(self._offsets, lambda offsets: steps_fit(offsets, operation))
        return self._shares[key]

    def _rareness_if(self, counts: Counter[Item], fits: Callable[[Item], bool | None]) -> float:
        return self._rareness(sum(count for item, count in counts.items() if fits(item)), counts.total())

    def _size_nats(self, numbers: frozenset[int], operation: Operation) -> float:
        shapes = [shape for shape in (operation.input, operation.weights, operation.output) if shape]
        sizes = {size for shape in shapes for size in shape if size > 3}
        if not sizes:
            return 0.0
        if sizes <= numbers:
            return self._rareness(min(self._numbers[size] for size in sizes), self._with_numbers)
        if operation.primitive in ("conv", "pool", "lrn") and 2 * len(sizes & numbers) < len(sizes):
            return NATS_MISSTATED / 2
        # Element-wise kernels count elements, whatever their arrangement.
        counted = [count for shape in shapes if (count := prod(shape)) in numbers]
        return self._rareness(min(self._numbers[count] for count in counted), self._with_numbers) if counted else 0.0

    # Calls

    def most_after(self, at: int, index: int) -> float:
        """Return the most that a fit counts behind another kernel: a launch line counts once, a repeat never."""
        kernels, operation = self.kernels, self.operations[index]
        if kernels.again[at]:
            return 0.0
        if operation.phase != "find" or not operation.launches:
            return inf
        own = kernels.kind(at).launch
        lines = self._launches_in(index).count(*own)
        if not lines:
            return inf
        for before in range(at - 1, max(at - _REACH, 0) - 1, -1):
            if self.pair(kernels.of[before], index)[0] <= NATS_NEVER:
                break
            lines -= kernels.kind(before).launch == own
        return inf if lines > 0 else 0.0

    def part_nats(self, kind: KernelKind, *, entering: bool, begun: bool) -> float:
        """Return the ratio of a kernel of a row of GEMMs: each part begins with a GEMM or its scaling.

        ``begun``: whether the part has its GEMM."""
        begins = kind.is_gemm or kind.role == "scale"
        if begins != entering:
            return NATS_MISSTATED if entering or begun else 0.0
        return self._rareness(self._beginning if begins else self._library - self._beginning, self._library)

    def is_main(self, at: int, index: int) -> bool:
        """Return whether the kernel does the work of the call."""
        return self.kernels.kind(at).role in ("", "main", "bias") or self.operations[index].primitive in ONE_HELPER

    def is_holed(self, index: int) -> bool:
        """Return whether entry, its end or a parameter of the call is missing in the log."""
        operation = self.operations[index]
        without_entry = (
            self.entered and not operation.api.startswith("miopen") and operation.command_line != operation.line
        )
        return without_entry or self.calls.holed[index]

    def may_be_two(self, index: int) -> bool:
        """Return whether the log's lines may be of two calls."""
        return self.calls.mixed[index] or (
            self.entered and self.operations[index].line == self.operations[index].command_line
        )


class Launches:
    """Launches of a call. ``names``: of all kernels; ``cut``: the length at which a tool cut them, or 0.

    ``of_others``: work items of launches whose names no kernel has."""

    def __init__(self, launches: Sequence[Launch], names: Collection[str], cut: int) -> None:
        self._cut = cut
        self._named: Counter[str] = Counter()
        self._sized: Counter[tuple[str, Size3]] = Counter()
        others: set[Size3] = set()
        for launch in launches:
            label, work_items = left_of(launch.name, cut), launch.gws
            self._named[label] += 1
            if work_items is None:
                continue
            # rocprof v1 has the product of all dimensions in a table.
            for grid in {work_items, (prod(work_items), 1, 1)}:
                self._sized[label, grid] += 1
            if label not in names:
                others.add(work_items)
        self.of_others = frozenset(others)

    def count(self, name: str, grid: Size3 | None) -> int:
        """Return how many launches may be a kernel's (rocprof v1 has no sizes)."""
        label = left_of(name, self._cut)
        return self._named[label] if grid is None else self._sized[label, grid]
