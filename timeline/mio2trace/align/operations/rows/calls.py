"""What the log's calls are: classes of equal ones, their buffers, which of these they only read or only write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from mio2trace.ops.operation import Operation

_WRITTEN: Mapping[str, str] = {"forward": "y", "backward-data": "dx", "backward-weights": "dw"}
_READ: Mapping[str, tuple[str, ...]] = {
    "forward": ("x", "w"),
    "backward-data": ("dy", "w"),
    "backward-weights": ("dy", "x"),
}


class _Form(msgspec.Struct, frozen=True, gc=False):
    """What entries with the same parameters have in common: their names; which of them, by place, a convolution only
    reads (``reads``) and only writes (``writes``), ``others`` those that it does not only read.
    """

    names: frozenset[str]
    workspaces: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    others: tuple[int, ...]


class Calls:
    """Calls in the order of the log, by place.

    ``class_of``: calls of one class differ in buffers alone; ``first_of`` each class's first call, ``problem_of`` what
    it computes. ``pointers``: the buffers of each call; ``namings``: how many calls name each buffer. ``holed``:
    whether the entry lacks something: its end, a parameter.
    """

    def __init__(self, operations: Sequence[Operation], *, with_buffers: bool) -> None:
        self.class_of: list[int] = []
        self.first_of: list[int] = []
        self.problem_of: list[object] = []
        self.pointers: list[frozenset[int]] = []
        self._addresses: list[tuple[int, ...]] = []
        self._forms: list[_Form] = []
        self._form_of: list[int] = []
        self._classify(operations)
        self._read_buffers(operations if with_buffers else ())
        workspaces: set[int] = set()
        for form, addresses in zip(self._form_of, self._addresses, strict=True):
            workspaces.update([addresses[place] for place in self._forms[form].workspaces])
        self.workspaces = frozenset(workspaces)
        self.namings = Counter(chain.from_iterable(self.pointers))
        self.holed = self._holes(operations) if with_buffers else [operation.torn for operation in operations]
        if not with_buffers:
            self.pointers = [frozenset()] * len(operations)

    def _classify(self, operations: Sequence[Operation]) -> None:
        classes: dict[object, int] = {}
        for place, operation in enumerate(operations):
            launches = tuple([(one.name, one.gws) for one in operation.launches]) if operation.launches else ()
            key = (
                operation.primitive, operation.direction, operation.phase, operation.input, operation.weights,
                operation.output, operation.stride, operation.mode, operation.problem is None, operation.algorithm,
                operation.gemm, launches,
            )  # fmt: skip
            number = classes.setdefault(key, len(classes))
            self.class_of.append(number)
            if number == len(self.first_of):
                self.first_of.append(place)
                posed = (operation.primitive, operation.direction, operation.input, operation.weights, operation.output)
                self.problem_of.append((*posed, operation.stride, operation.mode) if operation.problem else key)

    def _read_buffers(self, operations: Sequence[Operation]) -> None:
        numbers: dict[object, int] = {}
        for operation in operations:
            parameters = operation.parameters
            if parameters is None or operation.arguments:
                tensors = operation.tensors
                names = tuple(name for name, _ in tensors)
                addresses = tuple([address for _, address in tensors])
                key: object = names, operation.primitive, operation.direction
            else:
                names = parameters.names
                addresses = parameters.numbers(operation.addresses)
                if len(addresses) < len(names):
                    names = names[: len(addresses)]
                key = id(parameters), len(addresses), operation.primitive, operation.direction
            form = numbers.get(key)
            if form is None:
                form = numbers[key] = len(self._forms)
                self._forms.append(_form(operation, names))
            self._form_of.append(form)
            self._addresses.append(addresses)
            pointers = frozenset(addresses)
            self.pointers.append(pointers - {0} if 0 in pointers else pointers)

    def _holes(self, operations: Sequence[Operation]) -> list[bool]:
        """A parameter that more than half of a function's entries have, and this one lacks, is lost."""
        calls = Counter(operation.api for operation in operations)
        parameters: dict[str, Counter[str]] = {}
        of_form = Counter(zip([operation.api for operation in operations], self._form_of, strict=True))
        for (api, form), count in of_form.items():
            names = parameters.setdefault(api, Counter())
            for name in self._forms[form].names:
                names[name] += count
        usual = {
            api: frozenset(name for name, count in named.items() if 2 * count > calls[api])
            for api, named in parameters.items()
        }
        whole = {(api, form): usual[api] <= self._forms[form].names for api, form in of_form}
        return [
            operation.torn or not whole[operation.api, form]
            for operation, form in zip(operations, self._form_of, strict=True)
        ]

    def only_reads(self, place: int, address: int) -> bool:
        """Whether a convolution reads this buffer and names it for nothing else."""
        form = self._forms[self._form_of[place]] if self._form_of else None
        if form is None or not form.reads:
            return False
        addresses = self._addresses[place]
        return any(addresses[at] == address for at in form.reads) and not any(
            addresses[at] == address for at in form.others
        )

    def only_writes(self, place: int, address: int) -> bool:
        """Whether a convolution writes this buffer, and does not read it."""
        form = self._forms[self._form_of[place]] if self._form_of else None
        if form is None or not form.writes:
            return False
        addresses = self._addresses[place]
        return any(addresses[at] == address for at in form.writes) and not any(
            addresses[at] == address for at in form.reads
        )


def _form(operation: Operation, names: Sequence[str]) -> _Form:
    """What the names of an entry's parameters mean, by their places."""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    if operation.primitive == "conv" and operation.direction is not None:
        read, written = _READ[operation.direction], _WRITTEN[operation.direction]
        reads = tuple(place for place, name in enumerate(names) if name in read)
        writes = tuple(place for place, name in enumerate(names) if name == written)
        others = tuple(place for place, name in enumerate(names) if name not in read)
    workspaces = tuple(place for place, name in enumerate(names) if name.lower().startswith("workspace"))
    return _Form(frozenset(names), workspaces, reads, writes, others)
