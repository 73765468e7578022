"""Log-likelihood ratios of a kernel in a call: names, sizes, launch lines, buffers.

A match counts more if few kernels of the run have it. A mismatch is a rare event (`rates`). Unknown values count
nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf, log, prod
from typing import TypeVar

import msgspec

from mio2trace.align.links import NONE
from mio2trace.align.operations.rows import TENSOR, Calls, KernelKind, Kernels, serves
from mio2trace.align.rates import MISSTATED, NATS_MISSTATED, NATS_NEVER, UNKNOWN_NAME
from mio2trace.evidence import BUFFERS, LAUNCH_LINE, NAME_AND_SIZES
from mio2trace.kernels import KernelFact
from mio2trace.kernels.names import left_of
from mio2trace.model.profile import Profile, Size3
from mio2trace.ops.operation import Launch, Operation
from mio2trace.ops.values import pointer
from mio2trace.patterns import late

_IM2COL, _COL2IM = late(r"Im(?:2d)?2Col$"), late(r"Col2Im(?:2d)?$")
_SUM = late(r"M[IL]OpenCvBwdWrW\w*_rdc$")
_GRADIENT = late(r"M[IL]OpenCvBwdWrW$")
_MAPS_AT_ONCE = (1, 4)
"""Input channels for which one work-group of `_GRADIENT` computes the weights' gradient."""
_PERMUTED = late(r"transpose_(?:NCHW2CNHW|CNHW2NCHW)|SubSample$|UpSample$")
_INTO, _BACK = late(r"transpose_NCHW2CNHW"), late(r"transpose_CNHW2NCHW")
_TILE_WIDTH, _TILE_HEIGHT, _GROUP = 32, 8, 256
"""Tile and work items of an im2col work-group for one channel; for four if small and without stride."""
_LARGEST_TILE = 256
"""The most elements of the result per work item of MIOpenGEMM, with padding."""


def parts(operation: Operation) -> Iterator[tuple[int, int, int]]:
    """Yield the (M, N, K) that a convolution may be computed by (miopen-log.md 6, 11.1)."""
    whole = operation.gemm
    if whole is None:
        return
    yield whole.m, whole.n, whole.k
    images = operation.input[0] if operation.input else 1
    if operation.direction != "backward-weights":
        yield whole.m, whole.n * images, whole.k
    elif whole.k % images == 0:
        yield whole.m, whole.n, whole.k // images


def may_be_part(name: str, work_items: int, operation: Operation) -> bool | None:
    """Return whether a convolution may run a GEMM of ``work_items`` (one of `parts`); None if unknown.

    ``miog_betac`` scales two elements per work item, line by line, in groups of 256; ``miog_betac_alphaab`` computes a
    tile per work item, each element once."""
    if name == "miog_betac":
        return any(
            work_items == -(-items // 256) * 256
            for m, n, _ in parts(operation)
            for items in (-(-m // 2) * n, m * -(-n // 2))
        )
    if name == "miog_betac_alphaab":
        fits = any(m * n <= _LARGEST_TILE * work_items and work_items <= 8 * m * n for m, n, _ in parts(operation))
        return None if fits else False
    return None


def items_fit(name: str, grid: Size3, workgroup: Size3 | None, operation: Operation) -> bool | None:
    """Return whether a kernel has the work items that its call's problem needs; None if unknown.

    im2col: a work-group per channel and tile. col2im: an item per input element. Sum of gradients: an item per weight.
    Rearrangement: an item per element or per four, for a filter of one element. Gradient of the weights: a row of
    work-groups per channel of the input, or per four. Other calls: `tensor_fits`."""
    if operation.primitive != "conv":
        return tensor_fits(name, grid, workgroup, operation)
    x, w, y = operation.input, operation.weights, operation.output
    if len(x) != 4 or len(w) != 4 or len(y) != 4:
        return None
    work_items = prod(grid)
    if _IM2COL.match(name):
        tiles = -(-y[3] // _TILE_WIDTH) * -(-y[2] // _TILE_HEIGHT)
        small = max(y[2:]) <= _TILE_HEIGHT and set(operation.stride) <= {1} and x[1] % 4 == 0
        return work_items == _GROUP * tiles * (x[1] // 4 if small else x[1])
    if _COL2IM.match(name):
        return work_items == prod(x[1:])
    if _SUM.match(name):
        return work_items == prod(w)
    if _PERMUTED.match(name):
        return max(w[2:]) == 1 and bool({work_items, 4 * work_items} & _rearranged(name, operation))
    if _GRADIENT.match(name) and workgroup is not None and workgroup[0] > 0 and (operation.groups or 1) == 1:
        return _rows_fit(grid, workgroup, x[1])
    return None


def _rearranged(name: str, operation: Operation) -> set[int]:
    """Return possible element counts of a rearranged tensor: a GEMM's input before it, its output behind it."""
    x, y = operation.input, operation.output
    of_input, of_output = {prod(x), x[0] * x[1] * prod(y[2:])}, {prod(y)}
    into, back = _INTO.match(name) is not None, _BACK.match(name) is not None
    if into == back or operation.mode == "transpose" or operation.direction not in ("forward", "backward-data"):
        return of_input | of_output
    return of_input if into == (operation.direction == "forward") else of_output


def _rows_fit(grid: Size3, workgroup: Size3, channels: int) -> bool:
    row = grid[0] // workgroup[0]
    rows = [max(1, -(-channels // maps)) for maps in _MAPS_AT_ONCE]
    if grid[1:] == (1, 1):  # rocprof v1 has the product of all dimensions
        return any(row % one == 0 for one in rows)
    return row in rows


def has_channels(stated: tuple[int, ...], operation: Operation) -> bool:
    """Return whether a convolution has these (output, input) channels; backward data computes the input."""
    groups = operation.groups or 1
    outputs, inputs = operation.weights[:2]
    possible = {(outputs, inputs * groups), (outputs // groups, inputs)}
    if operation.direction == "backward-data" or operation.direction is None or operation.mode == "transpose":
        possible |= {one[::-1] for one in possible}
    return stated in possible


def gemm_key(m: int, n: int, k: int) -> tuple[int, int, int]:
    """M and N may be swapped."""
    return min(m, n), max(m, n), k


def steps_fit(offsets: Sequence[int], operation: Operation) -> bool:
    """Return whether GEMMs that begin at these elements may be later images' or groups'."""
    groups = operation.groups or 1
    shapes = [operation.input[1:], operation.output[1:], operation.weights]
    if operation.input and operation.output:
        shapes.append((operation.input[1], *operation.output[2:]))  # the input, subsampled
    steps = [max(1, prod(shape) // groups) for shape in shapes if shape]
    return all(any(offset % step == 0 for step in steps) for offset in offsets)


_BY_FOURS = late(r"MIOpen(?:Active|Neuron)(?:Fwd|Bwd)|Op4dTensorLite$")
"""Element-wise kernels: four elements per work item."""
_POOLING = late(r"mloPooling(?:G|AveBwd|MaxBwd)$")
_BIAS = late(r"OpTensorFwdBias$")
_NORM = late(r"(?:MIOpen)?BatchNorm\w*Spatial")
_WAVEFRONT = 64
_BIAS_GROUP, _MOST_GROUPS = 256, 4096
"""Work items per group that adds a bias, and the largest number of groups."""


def tensor_fits(name: str, grid: Size3, workgroup: Size3 | None, operation: Operation) -> bool | None:
    """Return whether the kernel works on tensors of these sizes; None if unknown.

    Element-wise: an item for 4, 2 or 1 elements that divide the tensor or a row. Pooling: a plane of items per plane.
    Bias and batch normalisation: a work-group per channel, of one image or all. A call in steps: an activation per
    step, of one gate or several."""
    sizes, primitive = operation.input, operation.primitive
    if primitive == "rnn" and _BY_FOURS.match(name):
        of_step = operation.problem.step_elements() if operation.problem is not None else ()
        fitting = any(0 <= prod(grid) - count // _at_once(count) < _padding(workgroup) for count in of_step)
        return fitting if of_step else None
    if not sizes or min(sizes) < 1 or min(grid) < 1:
        return None
    items = prod(grid)
    if primitive in ("activ", "optensor") and _BY_FOURS.match(name):
        elements = prod(sizes)
        padding = _padding(workgroup)
        return any(0 <= items - elements // unit < padding for unit in {_at_once(elements), _at_once(sizes[-1])})
    if len(sizes) != 4:
        return None
    images, channels = sizes[:2]
    if primitive == "pool" and _POOLING.match(name):
        planes = images * channels
        # rocprof v1 has the product of all dimensions.
        return items % planes == 0 if grid[1:] == (1, 1) else grid[2] == planes
    if primitive in ("bias", "optensor") and _BIAS.match(name):
        return items in {_BIAS_GROUP * min(_MOST_GROUPS, groups) for groups in (channels, channels * images)}
    if primitive == "bnorm" and _NORM.match(name):
        return items % channels == 0 if grid[1:] == (1, 1) else channels in grid[:2]
    return None


def _padding(workgroup: Size3 | None) -> int:
    """Return the bound of additional work items: a runtime may launch whole work-groups only."""
    group = prod(workgroup) if workgroup else 1
    return group if group > 0 and group % _WAVEFRONT == 0 else 1


def _at_once(length: int) -> int:
    """Return how many elements of a row of this length a work item takes."""
    return next(unit for unit in (4, 2, 1) if length % unit == 0)


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
        self._sized: dict[str, Counter[int]] = defaultdict(Counter)
        self._numbers: Counter[int] = Counter()
        self._offsets: Counter[tuple[int, ...]] = Counter()
        self._items: dict[str, Counter[tuple[Size3, Size3 | None]]] = defaultdict(Counter)
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
                self._items[kind.launch[0]][kind.launch[1], kind.workgroup] += count
            if kind.name.primitives:
                self._named[kind.name.primitives, kind.directions] += count
            if kind.gemm is not None:
                self._gemms[gemm_key(kind.gemm.m, kind.gemm.n, kind.gemm.k)] += count
            elif kind.name.algorithm == "Gemm" and kind.launch[1] is not None:
                self._sized[kind.launch[0]][kind.launch[1][0]] += count
            if kind.offsets:
                self._offsets[kind.offsets] += count
            if kind.numbers:
                self._with_numbers += count
                self._numbers.update(dict.fromkeys(kind.numbers, count))

    def fit(self, at: int, index: int) -> Fit:
        """Return the ratio of the ``at``-th kernel in the call at place ``index``."""
        kernels = self.kernels
        number = kernels.of[at]
        nats, launched, named = self.pair(number, index)
        handles, pointers = kernels.named[at], self.pointers[index]
        if not handles or not pointers:
            return Fit(nats, 0, launched, named)
        holed = self.calls.holed[index]
        own = [handle for handle in handles if handle in pointers]
        if len(own) < len(handles) and not self._recycled.issuperset(set(handles).difference(own)):
            nats += NATS_MISSTATED if holed or not self._made else NATS_NEVER
        if not own:
            return Fit(nats if holed else nats + NATS_MISSTATED, 0, launched, named)
        is_library, workspaces = launched or kernels.kinds[number].library, self.calls.workspaces
        if is_library or (len(own) > 1 and workspaces.issuperset(set(pointers).difference(own))):
            # A program's own kernels work on the same tensors: what is of no known name must have them all.
            namings = self.calls.namings
            rarest = min([namings[handle] for handle in own])
            nats += log((OTHERS + len(self.operations)) / rarest)
        read, written = kernels.helpers_buffers[at]
        if (read in own or written in own) and self.calls.is_misused(
            index, read if read in own else NONE, written if written in own else NONE
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
        if index not in self._launches_of:
            kernels = self.kernels
            self._launches_of[index] = Launches(self.operations[index].launches, kernels.names, kernels.cut)
        return self._launches_of[index]

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
                served = [(one, count) for one, count in self._named.items() if serves(*one, operation)]
                self._shares[sort] = sum(count * self._share(one, operation) for one, count in served)
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
        nats, (name, grid) = 0.0, kind.launch
        if kind.gemm is not None:
            keys = {gemm_key(*sizes) for sizes in parts(operation)}
            if gemm_key(kind.gemm.m, kind.gemm.n, kind.gemm.k) not in keys:
                return NATS_MISSTATED
            nats += self._rareness(sum(self._gemms[key] for key in keys), self._gemms.total())
        elif grid is not None:
            possible = may_be_part(name, grid[0], operation)
            if possible is False:
                return NATS_MISSTATED
            if possible or name == "miog_betac_alphaab":
                key = "sizes", name, operation.gemm, operation.direction, operation.input[:1]
                nats += self._among(key, self._sized[name], lambda one: may_be_part(name, one, operation) is not False)
        if kind.offsets:
            if not steps_fit(kind.offsets, operation):
                return nats + NATS_MISSTATED
            key_of = "offsets", operation.input, operation.output, operation.weights, operation.groups
            nats += self._among(key_of, self._offsets, lambda offsets: steps_fit(offsets, operation))
        return nats

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
        return self._among(key, self._items[name], lambda sizes: items_fit(name, *sizes, operation))

    def _among(self, key: object, counts: Counter[Item], fits: Callable[[Item], bool | None]) -> float:
        """Return the rareness of what ``fits`` among all that is counted; computed once for each ``key``."""
        if key not in self._shares:
            fitting = sum(count for item, count in counts.items() if fits(item))
            self._shares[key] = self._rareness(fitting, counts.total())
        return self._shares[key]

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
        has_entry = operation.api.startswith("miopen") or operation.command_line == operation.line
        return (self.entered and not has_entry) or self.calls.holed[index]

    def may_be_two(self, index: int) -> bool:
        """Return whether the log's lines may be of two calls."""
        operation = self.operations[index]
        return self.calls.mixed[index] or (self.entered and operation.line == operation.command_line)


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
