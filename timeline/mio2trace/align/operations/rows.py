"""The two rows that are aligned: a log's calls, and the kernels of one queue."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.rates import NATS_MISSTATED, NATS_NEVER
from mio2trace.kernels import KernelFact
from mio2trace.kernels.facts import buffers_among, integers_among
from mio2trace.kernels.facts import number as read_number
from mio2trace.kernels.names import (
    KernelName,
    cut_at,
    cut_name,
    directions_of,
    in_full,
    kernel_name,
    read_options,
    stem,
)
from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import OpenClLaunch, Profile, Size3
from mio2trace.model.tables import Activities, Numbers, Pool, combined, distinct
from mio2trace.ops.operation import Operation
from mio2trace.patterns import late

_WRITTEN: Mapping[str, str] = {"forward": "y", "backward-data": "dx", "backward-weights": "dw"}
_READ: Mapping[str, frozenset[str]] = {
    "forward": frozenset(("x", "w")),
    "backward-data": frozenset(("dy", "w")),
    "backward-weights": frozenset(("dy", "x")),
}

SEVERAL = frozenset(("rnn", "mha", "find2"))
"""Calls that launch kernels of several primitives."""
_KEPT = 1 << 14
"""The number of calls whose buffers are cached."""
_Kind = tuple[str, OperationDirection | None]
_SHAPES = ("input", "weights", "output")


class _Form(msgspec.Struct, frozen=True, gc=False):
    """A call's parameters that are buffers. ``names``: parameters by place; ``stated``: also those without buffer.
    ``direction``: a convolution's."""

    names: tuple[str, ...]
    stated: frozenset[str]
    direction: OperationDirection | None


def divided(operations: Sequence[Operation], most: int) -> Sequence[Operation]:
    """Repeat each operation for each GEMM that it launches, unless there are ``most`` additional parts or more."""
    parts = [
        1 if one.problem is None else one.problem.gemm_count(one.parameters.nulls if one.parameters else ())
        for one in operations
    ]
    if not len(operations) < sum(parts) < most + len(operations):
        return operations
    return [one for one, count in zip(operations, parts, strict=True) for _ in range(count)]


class Calls:
    """Calls in the order of the log, by place.

    ``class_of``: calls of one class differ in buffers only; ``first_of``: the first call of each class. ``pointers``:
    distinct buffers of each call; ``namings``: how many calls name each. ``holed``: the entry lacks its end or a
    parameter. ``mixed``: it may consist of two entries. ``buffers_of``: one number for equal buffers in equal
    places."""

    def __init__(self, operations: Sequence[Operation], *, with_buffers: bool) -> None:
        self.class_of: list[int] = []
        self.first_of: list[int] = []
        self.problem_of: list[object] = []
        self.pointers: list[tuple[int, ...]] = []
        self._addresses: list[tuple[int, ...]] = []
        self._forms: list[_Form] = []
        self._form_of: list[int] = []
        self._classify(operations)
        self._read_buffers(operations if with_buffers else ())
        places_of = [[at for at, name in enumerate(form.names) if _is_workspace(name)] for form in self._forms]
        self.workspaces = frozenset(
            addresses[place]
            for form, addresses in zip(self._form_of, self._addresses, strict=True)
            for place in places_of[form]
        )
        self.namings = Counter(chain.from_iterable(self.pointers))
        if with_buffers:
            self.holed, self.mixed = self._holes(operations)
        else:
            self.holed = [operation.torn for operation in operations]
            self.mixed = [operation.torn or operation.unread for operation in operations]
            self.pointers = [()] * len(operations)
        numbers: dict[object, int] = {}
        named = zip(self._form_of, self._addresses, self.holed, strict=True) if with_buffers else self.pointers
        self.buffers_of = array("i", [numbers.setdefault(one, len(numbers)) for one in named])

    def _classify(self, operations: Sequence[Operation]) -> None:
        classes: dict[object, int] = {}
        class_of_facts: dict[int, int] = {}  # of calls without launch lines
        for place, operation in enumerate(operations):
            facts = operation.facts
            known = None if operation.launches else class_of_facts.get(id(facts))
            if known is not None:
                self.class_of.append(known)
                continue
            launches = tuple([(one.name, one.gws) for one in operation.launches]) if operation.launches else ()
            key = (
                facts.primitive, facts.direction, facts.phase, facts.input, facts.weights, facts.output, facts.stride,
                facts.mode, facts.problem is None, facts.algorithm, facts.gemm, launches,
            )  # fmt: skip
            number = classes.setdefault(key, len(classes))
            if not launches:
                class_of_facts[id(facts)] = number
            self.class_of.append(number)
            if number == len(self.first_of):
                self.first_of.append(place)
                posed = (facts.primitive, facts.direction, facts.input, facts.weights, facts.output)
                self.problem_of.append((*posed, facts.stride, facts.mode) if facts.problem else key)

    def _read_buffers(self, operations: Sequence[Operation]) -> None:
        numbers: dict[object, int] = {}
        read: dict[object, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        buffers_of: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        handles: dict[int, int] = {}  # one object for each, because most are in many calls
        for operation in operations:
            # A program that repeats itself names the same buffers again.
            key = id(operation.facts), operation.addresses, operation.arguments
            entry = read.get(key)
            if entry is None:
                if len(read) >= _KEPT:  # those of every call, where none comes again
                    read.clear()
                    buffers_of.clear()
                form, addresses = self._addresses_of(operation, numbers)
                buffers = buffers_of.get(addresses)  # calls of other problems may name the same
                if buffers is None:
                    addresses = tuple(map(handles.setdefault, addresses, addresses))
                    named = tuple(filter(None, dict.fromkeys(addresses)))
                    buffers = buffers_of[addresses] = addresses, addresses if named == addresses else named
                entry = read[key] = form, *buffers
            form, addresses, pointers = entry
            self._form_of.append(form)
            self._addresses.append(addresses)
            self.pointers.append(pointers)

    def _addresses_of(self, operation: Operation, numbers: dict[object, int]) -> tuple[int, tuple[int, ...]]:
        parameters = operation.parameters
        nulls = frozenset[str]() if parameters is None else parameters.nulls
        if parameters is not None and parameters.with_handle:
            nulls |= {"handle"}
        if parameters is None or operation.arguments:
            tensors = operation.tensors
            names = tuple(name for name, _ in tensors)
            addresses = tuple([address for _, address in tensors])
            key: object = names, nulls, operation.primitive, operation.direction
        else:
            names = parameters.names
            addresses = parameters.numbers(operation.addresses)
            if len(addresses) < len(names):
                names = names[: len(addresses)]
            key = id(parameters), len(addresses), operation.primitive, operation.direction
        form = numbers.get(key)
        if form is None:
            form = numbers[key] = len(self._forms)
            direction = operation.direction if operation.primitive == "conv" else None
            self._forms.append(_Form(names, nulls.union(names), direction))
        return form, addresses

    def _holes(self, operations: Sequence[Operation]) -> tuple[list[bool], list[bool]]:
        """Return for each call whether it is holed, and whether it is mixed.

        A parameter that most entries of a function have is lost if missing; but a workspace may be unnecessary."""
        kinds = [(operation.api, operation.direction) for operation in operations]
        calls = Counter(kinds)
        parameters: dict[_Kind, Counter[str]] = {}
        of_form = Counter(zip(kinds, self._form_of, strict=True))
        for (kind, form), count in of_form.items():
            names = parameters.setdefault(kind, Counter())
            for name in self._forms[form].stated & {*self._forms[form].names, "handle"}:
                names[name] += count
        usual = {
            kind: frozenset(name for name, count in named.items() if 2 * count > calls[kind])
            for kind, named in parameters.items()
        }
        lacking = {(kind, form): usual[kind] - self._forms[form].stated for kind, form in of_form}
        two = {
            (kind, form): len({*self._forms[form].names}) < len(self._forms[form].names)
            or any(not _is_workspace(name) for name in names)
            for (kind, form), names in lacking.items()
        }
        of_class, holed, mixed = self._contradictions(operations), list[bool](), list[bool]()
        keys = zip(kinds, self._form_of, strict=True)
        for operation, key, number in zip(operations, keys, self.class_of, strict=True):
            holed.append(operation.torn or bool(lacking[key]))
            mixed.append(operation.torn or operation.unread or two[key] or of_class[number])
        return holed, mixed

    def _contradictions(self, operations: Sequence[Operation]) -> list[bool]:
        """Return for each class whether it lacks a usual shape or contradicts itself."""
        calls: Counter[_Kind] = Counter()
        shaped: Counter[tuple[_Kind, str]] = Counter()
        firsts = [operations[place] for place in self.first_of]
        counts = Counter(self.class_of)
        for number, operation in enumerate(firsts):
            kind = operation.api, operation.direction
            calls[kind] += counts[number]
            for shape in _SHAPES:
                shaped[kind, shape] += counts[number] * bool(getattr(operation, shape))
        return [
            _is_of_two(operation)
            or any(not getattr(operation, shape) and 2 * shaped[kind, shape] > calls[kind] for shape in _SHAPES)
            for operation in firsts
            for kind in ((operation.api, operation.direction),)
        ]

    def is_misused(self, place: int, read: int, written: int) -> bool:
        """Return whether a convolution only reads the buffer ``written``, or writes the buffer ``read`` only."""
        form = self._forms[self._form_of[place]]
        if form.direction is None:
            return False
        named = [*zip(form.names, self._addresses[place], strict=False)]
        reads, writes = _READ[form.direction], _WRITTEN[form.direction]
        into, from_ = ({name for name, at in named if at == address} for address in (written, read))
        return bool(into and into <= reads) or (writes in from_ and from_.isdisjoint(reads))


def _is_workspace(name: str) -> bool:
    return name.lower().startswith("workspace")


def _is_of_two(operation: Operation) -> bool:
    """Return whether the entry or the lines after it are those of two calls.

    An addition has the sizes of its first operand; the second one has the same, or one. Filters have the input's
    channels. Other calls launch one main kernel (miopen-log.md 11.3), except batch normalisation, and no other
    primitive's."""
    if operation.primitive == "optensor" and operation.weights and operation.input:
        if len(operation.weights) != len(operation.input) or operation.output not in ((), operation.input):
            return True
        if any(size not in (1, whole) for size, whole in zip(operation.weights, operation.input, strict=True)):
            return True
    plain = operation.primitive == "conv" and operation.mode != "transpose" and operation.weights and operation.input
    if plain and operation.input[1:2] != (operation.weights[1] * (operation.groups or 1),):
        return True
    if operation.phase == "find" or operation.primitive in SEVERAL:
        return False
    names = [kernel_name(launch.name) for launch in operation.launches]
    if any(name is not None and name.primitives and not serves(name.primitives, (), operation) for name in names):
        return True
    if operation.primitive == "bnorm":
        return False
    return sum(name is not None and name.role in ("main", "bias") and alone(name) for name in names) > 1


def alone(name: KernelName) -> bool:
    """Return whether the kernel is the only main kernel of its call."""
    return name.algorithm is None and len(name.primitives) > 0


TENSOR = frozenset(("settensor", "scaletensor", "transformtensor", "optensor", "bias"))
_USES: Mapping[str, frozenset[str]] = {
    "rnn": frozenset(("optensor", "activ", "gemm", "dropout", "softmax")) | TENSOR,
    "mha": frozenset(("gemm", "softmax", "dropout", "reduce")) | TENSOR,
    "fusion": frozenset(("conv", "bnorm", "activ", "bias")),
    "find2": frozenset(("conv", "bnorm", "activ", "mha", "softmax", "fusion")),
    "settensor": TENSOR, "scaletensor": TENSOR, "transformtensor": TENSOR,
    "optensor": frozenset(("bias",)),
    "bias": frozenset(("optensor",)),
    "sum": frozenset(("reduce",)),
}  # fmt: skip
"""Primitives whose kernels another primitive also launches."""
_TRANSPOSED: Mapping[str | None, OperationDirection] = {"forward": "backward-data", "backward-data": "forward"}
"""A transposed convolution runs the other direction's kernels (miopen-log.md 6)."""


def serves(primitives: Sequence[str], directions: Sequence[str], operation: Operation, way: int = 1) -> bool:
    """Return whether the call may launch a kernel of these primitives and directions; ``way`` -1: transposed."""
    primitive = operation.primitive
    if primitive not in primitives and _USES.get(primitive, frozenset()).isdisjoint(primitives):
        return False
    direction = operation.direction
    if (operation.mode == "transpose") != (way < 0):
        direction = _TRANSPOSED.get(direction, direction)
    if not directions or direction is None or direction in directions:
        return True
    if "gemm" in primitives and primitive != "conv":
        return True  # the directions are those that its beta leaves a convolution
    return not (primitive in primitives or primitive == "fusion")


PRE = frozenset(("im2col", "subsample", "fill", "scale", "prepare", "copy", "reshape"))
"""Helpers before the kernel that does the work."""
POST = frozenset(("col2im", "reduce", "upsample"))

_HELPS_NEXT = frozenset(("im2col", "subsample", "prepare", "transform"))
_NO_HELP = frozenset(("", "main", "bias"))
_WRITES = frozenset(("main", "scale"))
_READS = frozenset(("im2col", "subsample", "transpose"))
_WHOLE_CALLS = late(r"SubTensorOp|CopyTensor")
"""Helpers that only calls for one tensor launch."""
_WRITES_LAST = late(r"miog_|MIOpenC(?:onv|DFGen|v)|MLOpenCv|Im\d?2|Im2d2Col|Col2Im|transpose_|SubSample")
"""Convolution kernels that write their last buffer (the OpenCL sources of MIOpen 1.0 to 2.9)."""
_GEMMS = frozenset(("miog_betac_alphaab", "miog_alphaab", "miog_betac"))
"""MIOpenGEMM's kernels: each buffer is followed by its offset in elements; beta is argument 7 of the first."""
_SCALES = "miog_betac"
_LOST = "..."
_SCALED: tuple[OperationDirection, ...] = ("forward", "backward-data")
"""Only the gradient of the weights adds to its result; a scaled result is another direction's."""
_NAMED_FILTER = late(r"(?:[Cc]onv|CvD|CvFwd|CvBwd)(\d{1,2})x(\d{1,2})(?!\d)")
"""The filter's size: ``MIOpenConv1x1``, ``MIOpenCvFwd11x11``."""
_ZERO, _ONE = "00000000", "0000803f"


class KernelKind(msgspec.Struct, frozen=True, gc=False):
    """Facts that activities of equal name, size, program, GEMM and integer arguments share.

    ``directions``: those that name, options or beta allow, empty for any. ``offsets``: begins of a GEMM in its buffers,
    in elements, if known. ``filters``, ``channels`` (output, input): as name or options state. ``is_unknown``: the name
    is unknown, ``name`` comes from options."""

    name: KernelName | None
    library: bool
    gemm: Gemm | None
    launch: tuple[str, Size3 | None]
    workgroup: Size3 | None
    numbers: frozenset[int]
    directions: tuple[OperationDirection, ...]
    filters: tuple[int, ...]
    channels: tuple[int, ...]
    role: str
    offsets: tuple[int, ...] | None
    is_unknown: bool

    @property
    def is_strange(self) -> bool:
        """Whether nothing shows that it is the library's."""
        return self.name is None and not self.library

    @property
    def is_gemm(self) -> bool:
        """Whether the name is a GEMM's."""
        return self.name is not None and self.name.algorithm == "Gemm" and self.role == "main"


class Kernels:
    """The kernels of one queue in order: kinds, buffers, relations to the kernel before.

    ``sign_of[i]``: one number for equal launches with equal arguments. ``named``: buffers that an operation names,
    sorted. ``helpers_buffers[i]``: those that a helper reads and writes, or 0. ``helped[i]``: 2 if kernel i reads what
    the kernel before made for it, 1 if probably. ``apart[i]``: both have buffers, but no common one. ``again[i]``: it
    equals one of the two before. ``parted[i]``: the thread moved host data in between. ``in_row[i]``: continues a row
    of GEMMs. ``after_helper[i]``: follows a helper of what comes next. ``library[i]``: is the library's.
    ``gemm_before[i]``, ``main_before[i]``: kind of the last GEMM, of the last main kernel, or -1. ``cut``: length at
    which a tool cut ``names``, or 0. ``is_blurred``: cut names do not distinguish GEMM and scaling."""

    def __init__(
        self,
        profile: Profile,
        positions: Sequence[int],
        facts: Mapping[int, KernelFact],
        every: Collection[int],
        workspaces: frozenset[int],
    ) -> None:
        commands, rows = profile.commands, np.asarray(positions, np.int64)
        self._programs = profile.opencl.programs
        self._number_of: dict[object, int] = {}
        self.kinds: list[KernelKind] = []
        self.is_blurred = False
        names = commands.name.take(rows)
        self.names = frozenset(names.used)
        self.cut = cut_at(self.names)
        self.parted = _parted(commands, rows)
        self._told = {name: self._name_of(name) for name in self.names}
        # A name that is in no table may be any, that of what scales as well.
        scales = {name: None if known is None else told == _SCALES for name, (told, known) in self._told.items()}
        behind = Pool.of([False, *map(scales.get, names.values)]).take(np.append(-1, names.codes[:-1]) + 1)
        gemms = np.zeros(len(commands), np.int64)
        with_gemm = {position: id(fact.gemm) for position, fact in facts.items() if fact.gemm is not None}
        gemms[list(with_gemm)] = 1 + Pool.of(with_gemm.values()).codes
        launches = [names, *(one.take(rows) for one in (commands.grid, commands.workgroup, commands.opencl)), behind]
        first, sign_of = distinct(combined(*(one.codes for one in launches), gemms[rows]))
        every_launch = map(_Launched, *(one.take(first).each() for one in launches))
        signs = [
            self._sign(launched, facts.get(position), every)
            for launched, position in zip(every_launch, rows[first].tolist(), strict=True)
        ]
        pairs, pair_of = distinct(combined(sign_of[:-1], sign_of[1:]))
        beside = zip(sign_of[pairs].tolist(), sign_of[pairs + 1].tolist(), strict=True)
        ties = [_tie(signs[before], signs[after], workspaces) for before, after in beside]
        columns = np.array(ties, np.uint8).reshape(-1, 2)[pair_of].T
        self.helped, self.apart = (bytearray(1) + column.tobytes() for column in columns)
        self.sign_of = array("i", sign_of.astype(np.int32).tobytes())
        self.named = [signs[place].named for place in self.sign_of]
        helpers: dict[tuple[int, int], tuple[int, int]] = {}
        each = [helpers.setdefault(one, one) for sign in signs for one in ((sign.read, sign.written),)]
        self.helpers_buffers = [each[place] for place in self.sign_of]
        of = np.array([sign.kind for sign in signs], np.int64)[sign_of]
        self.of: list[int] = of.tolist()
        before = np.append(-1, of)[:-1]
        again = (of == before) | (of == np.append(-1, before)[:-1])
        self.again = bytearray(again)
        library = np.array([kind.library for kind in self.kinds])
        computing = np.array([kind.is_gemm for kind in self.kinds])
        scaling = np.array([kind.role == "scale" for kind in self.kinds])
        helping = np.array([kind.role in PRE and not _WHOLE_CALLS.match(kind.launch[0]) for kind in self.kinds])
        self.in_row = bytearray(again & (library & (computing | scaling))[of])
        self.library = library[of]
        self.after_helper = bytearray(self.library & helping[np.append(of[:1], of)[:-1]])
        self.gemm_before = _last(of, computing)
        self.main_before = _last(of, np.array([kind.role == "main" for kind in self.kinds]))

    def __len__(self) -> int:
        return len(self.of)

    def kind(self, at: int) -> KernelKind:
        return self.kinds[self.of[at]]

    def _kind_of(self, launch: _Launched, fact: KernelFact | None) -> int:
        shown, grid, workgroup, opencl, scaled = launch
        launched, name = self._told[shown]
        program, arguments = opencl.program, opencl.arguments
        is_unknown, stated = name is None, read_options("" if program is None else self._programs[program].options)
        name = name or stated.meaning
        is_gemm = name is not None and name.algorithm == "Gemm" and name.role in ("main", "scale")
        own: tuple[object, ...] = ()
        if is_gemm:
            own = (*arguments[1:6:2], *arguments[7:8], scaled) if launched in _GEMMS else ()
        elif name is not None:
            own = integers_among(arguments)
        key = (
            shown, grid, workgroup, program, id(fact.gemm) if fact is not None and fact.gemm is not None else 0, own,
        )  # fmt: skip
        known = self._number_of.get(key)
        if known is not None:
            return known
        numbers = frozenset[int]()
        if name is not None and not is_gemm:
            numbers = stated.numbers.union(integers_among(arguments))
        directions, filters = directions_of(name, stated), _NAMED_FILTER.search(launched)
        if is_gemm and name is not None and name.role == "scale":
            directions = _SCALED
        offsets = None
        if is_gemm and launched in _GEMMS and len(arguments) > 2 and len(arguments[1]) == 8:
            values = [read_number(one) for one in arguments[1:6:2]]
            offsets = tuple(value for value in values if value)
            directions = _directions_by_beta(launched, arguments, scaled=scaled)
        self.kinds.append(
            KernelKind(
                name=name,
                library=stated.library or name is not None,
                gemm=fact.gemm if fact is not None else None,
                launch=(launched, grid),
                workgroup=workgroup,
                numbers=numbers,
                directions=directions,
                filters=(int(filters[1]), int(filters[2])) if filters else stated.filters,
                channels=stated.channels,
                role=name.role if name is not None else "",
                offsets=offsets,
                is_unknown=is_unknown,
            )
        )
        self._number_of[key] = len(self.kinds) - 1
        return len(self.kinds) - 1

    def _sign(self, launch: _Launched, fact: KernelFact | None, every: Collection[int]) -> _Sign:
        number = self._kind_of(launch, fact)
        kind, buffers = self.kinds[number], buffers_among(launch.opencl.arguments)
        return _Sign(
            kind=number,
            role=kind.role,
            convolves=kind.name is not None and (not kind.name.primitives or "conv" in kind.name.primitives),
            buffers=buffers,
            named=tuple(sorted({one for one in buffers if one in every})),
            written=buffers[-1] if buffers and _WRITES_LAST.match(kind.launch[0]) else 0,
            read=buffers[0] if buffers and kind.role in _READS else 0,
        )

    def _name_of(self, name: str) -> tuple[str, KernelName | None]:
        """Return the kernel's name, completed if it was cut, and its meaning."""
        if len(name) == self.cut:
            whole = in_full(name, _GEMMS)
            self.is_blurred |= whole is None
            return whole or name + _LOST, cut_name(name)
        name = stem(name)
        meaning = kernel_name(name)
        return name, meaning if meaning is not None and meaning.miopen else None


def _parted(commands: Activities, rows: Numbers) -> bytearray:
    """Return whether the kernel's thread moved data between host and device since the kernel before."""
    moves = np.flatnonzero(commands.route.where(lambda route: "host" in route))
    place = np.searchsorted(rows, moves)
    inside = (place > 0) & (place < len(rows))
    moves, place = moves[inside], place[inside]
    parted = np.zeros(len(rows), bool)
    parted[place[commands.thread[moves] == commands.thread[rows[place]]]] = True
    return bytearray(parted)


def _last(of: Numbers, kinds: NDArray[np.bool_]) -> array[int]:
    """Return for each kernel the last one of ``kinds`` before it, -1 for none."""
    last = np.append(-1, np.maximum.accumulate(np.where(kinds[of], np.arange(len(of)), -1)))[:-1]
    return array("i", np.where(last < 0, -1, of[last]).astype(np.int32).tobytes())


def _directions_by_beta(name: str, arguments: Sequence[str], *, scaled: bool | None) -> tuple[OperationDirection, ...]:
    """Beta is 1 if a convolution's GEMM adds to its result, else 0. ``scaled``: a kernel before scaled the result."""
    if name == "miog_betac_alphaab":
        beta = arguments[7] if len(arguments) > 7 else ""
    elif name == "miog_betac":
        beta = _ZERO
    else:
        beta = "" if scaled is None else _ZERO if scaled else _ONE
    return {_ZERO: _SCALED, _ONE: ("backward-weights",)}.get(beta, ())


class _Launched(NamedTuple):
    """What of a kernel's launch can contradict a call. ``scaled``: whether the kernel before scales a result; None if
    that is not known."""

    name: str
    grid: Size3 | None
    workgroup: Size3 | None
    opencl: OpenClLaunch
    scaled: bool | None


class _Sign(msgspec.Struct, frozen=True, gc=False):
    kind: int
    role: str
    convolves: bool
    buffers: tuple[int, ...]
    named: tuple[int, ...]
    written: int
    read: int


def _tie(before: _Sign, sign: _Sign, workspaces: frozenset[int]) -> tuple[int, int]:
    first, second = before.buffers, sign.buffers
    if not first or not second:
        return 0, 0
    both = sign.convolves and before.convolves
    helped = _helped(first, before.role, second, sign.role, workspaces, both=both)
    differ = len(first) > 1 < len(second) and set(first).isdisjoint(second)
    if both and {sign.role, before.role} <= _WRITES and sign.written and before.written:
        # All that one search or call computes goes into one tensor.
        helped, differ = int(sign.written == before.written), sign.written != before.written
        if first == second and sign.kind == before.kind:
            helped = 0  # the same again: as well another call for the same
    if not sign.convolves or helped or before.role == "fill":
        return helped, 0
    return helped, 2 if differ else 1


def _helped(
    first: Sequence[int], role: str, second: Sequence[int], second_role: str, workspaces: frozenset[int], *, both: bool
) -> int:
    """Return 2 if a kernel surely reads what the kernel before made for it (or a workspace), 1 if probably."""
    if first[-1] not in second or (role in _NO_HELP and second_role in _NO_HELP):
        return 0
    if role in _HELPS_NEXT or (role in _NO_HELP and second_role in POST) or first[-1] in workspaces:
        return 2
    return 1 if both and (role not in _NO_HELP or second_role not in PRE) else 0


def second_nats(kind: KernelKind, operation: Operation) -> float:
    """Return the cost of a further main kernel in an execution (miopen-log.md 11.3)."""
    name = kind.name
    if operation.phase == "find" or operation.primitive in SEVERAL or operation.launches:
        return 0.0
    if name is None or not name.role:
        # It may be a helper that no table has, or that is cut off. Convolutions have them, and batch normalisation
        # takes several kernels.
        return 0.0 if operation.primitive in ("conv", "bnorm") else NATS_MISSTATED
    if name.algorithm == "Gemm":
        # The first image of another convolution, or of another way to compute it.
        is_single = operation.primitive == "conv" and kind.offsets == ()
    else:
        is_single = alone(name) if name.algorithm is None else name.algorithm in ("Direct", "Winograd", "Naive")
    return NATS_NEVER if is_single else 0.0
