"""The log's calls: classes of equal ones, their buffers, and which of these they only read or only write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.operation import Operation

_WRITTEN: Mapping[str, str] = {"forward": "y", "backward-data": "dx", "backward-weights": "dw"}
_READ: Mapping[str, tuple[str, ...]] = {
    "forward": ("x", "w"),
    "backward-data": ("dy", "w"),
    "backward-weights": ("dy", "x"),
}

SEVERAL = frozenset(("rnn", "mha", "find2"))
"""Calls that launch kernels of several primitives."""
_KEPT = 1 << 14
"""The number of calls whose buffers are cached."""
_Kind = tuple[str, OperationDirection | None]
_SHAPES = ("input", "weights", "output")


class _Form(msgspec.Struct, frozen=True, gc=False):
    """Parameters of an entry by place (``names``; ``stated`` has those without buffer, too), and what a convolution
    reads and writes."""

    names: tuple[str, ...]
    stated: frozenset[str]
    workspaces: tuple[int, ...]
    read: frozenset[str] = frozenset()
    written: str = ""


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
    parameter. ``mixed``: it may consist of two entries."""

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
        workspaces: set[int] = set()
        places_of = [form.workspaces for form in self._forms]
        for form, addresses in zip(self._form_of, self._addresses, strict=True):
            for place in places_of[form]:
                workspaces.add(addresses[place])
        self.workspaces = frozenset(workspaces)
        self.namings = Counter(chain.from_iterable(self.pointers))
        if with_buffers:
            self.holed, self.mixed = self._holes(operations)
        else:
            self.holed = [operation.torn for operation in operations]
            self.mixed = [operation.torn or operation.unread for operation in operations]
            self.pointers = [()] * len(operations)

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
            self._forms.append(_form(operation, names, nulls))
        return form, addresses

    def _holes(self, operations: Sequence[Operation]) -> tuple[list[bool], list[bool]]:
        """Return for each call whether it is holed, and whether it is mixed.

        A parameter that most entries of a function have is lost if missing; but a workspace may be unnecessary."""
        kinds = [(facts.api, facts.direction) for facts in [operation.facts for operation in operations]]
        calls = Counter(kinds)
        parameters: dict[_Kind, Counter[str]] = {}
        of_form = Counter(zip(kinds, self._form_of, strict=True))
        for (kind, form), count in of_form.items():
            names = parameters.setdefault(kind, Counter())
            for name in self._forms[form].stated:
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
        of_class = self._contradictions(operations)
        keys = [*zip(kinds, self._form_of, strict=True)]
        holed = [operation.torn or bool(lacking[key]) for operation, key in zip(operations, keys, strict=True)]
        mixed = [
            operation.torn or operation.unread or two[key] or of_class[number]
            for operation, key, number in zip(operations, keys, self.class_of, strict=True)
        ]
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

    def only_reads(self, place: int, address: int) -> bool:
        """Return whether a convolution reads this buffer and names it for nothing else."""
        used, form = self._used(place, address)
        return bool(used) and used <= form.read

    def only_writes(self, place: int, address: int) -> bool:
        """Return whether a convolution writes this buffer and does not read it."""
        used, form = self._used(place, address)
        return form.written in used and used.isdisjoint(form.read)

    def _used(self, place: int, address: int) -> tuple[set[str], _Form]:
        form = self._forms[self._form_of[place]] if self._form_of else _Form((), frozenset(), ())
        addresses = self._addresses[place] if self._form_of else ()
        return {name for name, at in zip(form.names, addresses, strict=False) if at == address}, form


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


def _form(operation: Operation, names: Sequence[str], nulls: frozenset[str]) -> _Form:
    workspaces = tuple(place for place, name in enumerate(names) if _is_workspace(name))
    form = _Form(tuple(names), nulls.union(names), workspaces)
    if operation.primitive != "conv" or operation.direction is None:
        return form
    read, written = frozenset(_READ[operation.direction]), _WRITTEN[operation.direction]
    return msgspec.structs.replace(form, read=read, written=written)


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
"""Primitives whose kernels another one launches, too."""
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
