"""The meaning of a library call: one compute or find call with its problem, its work and its place in the log; and its
names for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.families import FAMILIES
from mio2trace.ops.families.conv import DEFAULT_LAYOUT
from mio2trace.ops.problem import Phase, Problem
from mio2trace.ops.values import Shape, shape_text

Buffers = tuple[tuple[str, int], ...]


class GemmCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GEMM library call that the log printed (``[CallGemm]``, miopen-log.md 8.3): row-major m, n, k.

    ``sequential``: ``batch`` separate GEMMs instead of one batched call.
    """

    line: int
    m: int
    n: int
    k: int
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = False
    sequential: bool = False
    library: str = ""


class Launch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One kernel launch that the log printed (``[run]``): sizes in work items."""

    line: int
    name: str
    gws: tuple[int, int, int] | None = None
    lws: tuple[int, int, int] | None = None


class Parameters(msgspec.Struct, frozen=True, gc=False):
    """The addresses in a call's entry that are buffers: those with a true value in ``picked``, by name in ``names``.
    ``nulls``: those that the entry states to be null. ``with_handle``: the entry states the library's handle, as some
    versions do."""

    names: tuple[str, ...]
    picked: tuple[bool, ...]
    nulls: frozenset[str] = frozenset()
    with_handle: bool = False

    def buffers(self, addresses: bytes) -> Buffers:
        """Return (parameter name, address) of each buffer; ``addresses`` are hexadecimal digits with commas between
        them."""
        return tuple(zip(self.names, self.numbers(addresses), strict=False))

    def numbers(self, addresses: bytes) -> tuple[int, ...]:
        """Return the addresses alone, in the order of ``names``."""
        if not addresses or not self.names:
            return ()
        return tuple([int(one, 16) for one in compress(addresses.split(b","), self.picked)])


class OperationFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts that operations share if they differ only in place and buffers; nearly always one object for all of
    them.

    ``input``, ``weights``, ``output``: forward shapes N,C,[D,]H,W and K,C/g,[D,]y,x (transpose: C,K/g,[D,]y,x) in any
    layout. ``direction``: None for operations without a direction (tensor addition, copies, optimisers); a backward
    call other than the weights or bias of a convolution is ``backward-data``. ``dtype_by``: ``command``, ``key``,
    ``descriptor`` or ``kernel name``. ``command``: the MIOpenDriver line in the current form; ``command_reason``: why
    there is none; ``logged_command``: the logged text. ``parameters``: the addresses of the entry that are buffers.
    ``nested``: the literals of the internal entries in order: the GEMM path (``convolution, non 1x1``), then the
    library of each GEMM call (miopen-log.md 3.4). ``doubts``: short statements for people about contradictions.
    ``torn``: a part of the call's records is missing (the end of its entry, or its command). ``unread``: its entry is
    complete, but no problem was found in it, or a parameter twice. ``problem``: what it computes. ``kernel_file``: the
    file from which its kernel was compiled (Triton). ``is_answered``: level lines say that a search measured
    nothing (MIOpen 2.0.1 and later): a database answered.
    """

    source: int = 0
    api: str = ""
    primitive: str = ""
    direction: OperationDirection | None = None
    phase: Phase = "run"
    input: Shape = ()
    weights: Shape = ()
    output: Shape = ()
    pad: Shape = ()
    stride: Shape = ()
    dilation: Shape = ()
    groups: int | None = None
    mode: str | None = None
    window: Shape = ()
    layout: str | None = None
    dtype: str | None = None
    dtype_by: str | None = None
    algorithm: str | None = None
    solver: str | None = None
    workspace_bytes: int | None = None
    gemm: Gemm | None = None
    flop: int | None = None
    bytes_min: int | None = None
    command: str | None = None
    command_reason: str = ""
    logged_command: str = ""
    parameters: Parameters | None = None
    nested: tuple[str, ...] = ()
    thread: int | None = None
    doubts: tuple[str, ...] = ()
    torn: bool = False
    unread: bool = False
    problem: Problem | None = None
    kernel_file: str | None = None
    is_answered: bool = False


_MOST_WORK = 1 << 53
"""The most FLOPs and bytes of one operation: no device does more, and sums of them still fit into 64 bits."""


def of_problem(problem: Problem, facts: OperationFacts) -> OperationFacts:
    """Return the facts with everything that follows from the problem: shapes, geometry, work, traffic, mode."""
    geometry, gemm = problem.geometry, problem.gemm()
    flop, bytes_min = (
        size if size is None or size <= _MOST_WORK else None for size in (problem.flop(), problem.bytes_min())
    )
    return msgspec.structs.replace(
        facts, direction=problem.direction, input=problem.input, weights=problem.weights, output=problem.output,
        pad=geometry.pad, stride=geometry.stride, dilation=geometry.dilation, groups=geometry.groups,
        mode=problem.variant or facts.mode, window=geometry.window, layout=problem.memory_layout, dtype=problem.dtype,
        gemm=None if gemm is None or gemm.flop > _MOST_WORK else gemm, flop=flop, bytes_min=bytes_min,
        problem=problem if problem.is_shaped else None,
    )  # fmt: skip


if TYPE_CHECKING:

    class _OfFacts(OperationFacts, frozen=True, kw_only=True): ...

else:

    class _OfFacts:
        """Gives an operation the fields of its facts."""

        __slots__ = ()

    for _name in OperationFacts.__struct_fields__:
        setattr(_OfFacts, _name, property(attrgetter(f"facts.{_name}")))


class Operation(_OfFacts, msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One compute or find call, in log order. Unknown values are None or empty.

    ``line``: of the entry's header, else of the command, else of the first level line. ``end_line``: the last line of
    the call's own records. ``command_line``: of its logged command (0: none). ``facts``: shared with equal calls.
    ``addresses``: the buffers of the entry. ``arguments``: buffers that earlier calls set for this call (see
    `tensors`).
    """

    index: int = 0
    line: int = 0
    end_line: int = 0
    facts: OperationFacts
    command_line: int = 0
    addresses: bytes = b""
    arguments: Buffers = ()
    launches: tuple[Launch, ...] = ()
    gemms: tuple[GemmCall, ...] = ()
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None

    @property
    def tensors(self) -> Buffers:
        """Return every buffer of the call by parameter name, with workspaces, without null ones, in the order of the
        entry.

        Made on each use: a log may have a million operations.
        """
        if self.parameters is None:
            return self.arguments
        return self.parameters.buffers(self.addresses) + self.arguments

    @property
    def pointers(self) -> tuple[int, ...]:
        """Return only the addresses of `tensors`."""
        own = () if self.parameters is None else self.parameters.numbers(self.addresses)[: len(self.parameters.names)]
        return own + tuple([address for _, address in self.arguments]) if self.arguments else own

    @property
    def is_plain(self) -> bool:
        """Whether it is an op of a framework without a family: its kernels' work is not modelled."""
        return self.facts.api == self.facts.primitive and self.facts.gemm is None  # a BLAS library's function is "gemm"


# -- Names for people -------------------------------------------------------------------------------------------------


_NAMES = {primitive: name for family in FAMILIES for primitive, name in family.names.items()}
_DIRECTIONS = {"forward": "fwd", "backward-data": "bwd data", "backward-weights": "bwd weights"}
_TWO_GRADIENTS = frozenset().union(*(family.two_gradients for family in FAMILIES))

_OF_NAME = attrgetter(
    "phase", "primitive", "direction", "input", "output", "weights", "window", "stride", "dilation", "groups", "api"
)
_OF_PROBLEM = attrgetter(
    "primitive", "direction", "input", "output", "weights", "window", "stride", "dilation", "groups",
    "pad", "mode", "dtype", "layout", "api",
)  # fmt: skip
_GRADIENTS = frozenset(("aten::convolution_backward", "aten::miopen_rnn_backward", "aten::_cudnn_rnn_backward"))
_REMEMBERED = 1 << 12
_operation_names: dict[object, str] = {}
_problem_names: dict[object, str] = {}


def _once(names: dict[object, str], key: object, make: Callable[[OperationFacts], str], facts: OperationFacts) -> str:
    """Return a name, made once: a log may have a million operations of a few names. The memory for names is limited."""
    name = names.get(key)
    if name is None:
        if len(names) >= _REMEMBERED:
            names.clear()
        name = names[key] = make(facts)
    return name


def operation_name(operation: Operation) -> str:
    """Return ``Conv fwd 64x64x56x56 -> 64x256x56x56 k1x1``; the name of a search begins with ``Find``.

    The name is the same in every trace, table and query. k is the window, s the stride, d the dilation, g the groups;
    each is left out if it has its usual value. If the output is unknown, w is all of the weights.
    """
    return name_of(operation.facts)


def name_of(facts: OperationFacts) -> str:
    return _once(_operation_names, _OF_NAME(facts), lambda facts: " ".join([_type(facts), *_shapes(facts)]), facts)


def problem_name(operation: Operation) -> str:
    """Return its name, and the other properties that distinguish its problem, searched or run.

    p is the pad. The mode follows, then the data type unless it is float or unknown, then the layout unless it is the
    usual one.
    """
    return _once(_problem_names, _OF_PROBLEM(operation.facts), _problem_name, operation.facts)


def _problem_name(operation: OperationFacts) -> str:
    words = [_kind(operation), *_shapes(operation)]
    if any(operation.pad):
        words.append(f"p{_short(operation.pad)}")
    if operation.mode and operation.mode != "convolution":
        words.append(operation.mode)
    if operation.dtype not in (None, "float"):
        words.append(str(operation.dtype))
    if operation.layout and operation.layout != DEFAULT_LAYOUT.get(len(operation.input) - 2):
        words.append(operation.layout)
    return " ".join(words)


def primitive_name(primitive: str) -> str:
    """Return ``BatchNorm`` for ``bnorm``."""
    return _NAMES.get(primitive, primitive)


def operation_type(operation: Operation) -> str:
    """Return ``Conv fwd`` or ``Find Conv bwd weights``: the beginning of the names of similar operations."""
    return _type(operation.facts)


def _type(facts: OperationFacts) -> str:
    return f"Find {_kind(facts)}" if facts.phase == "find" else _kind(facts)


def _kind(operation: OperationFacts) -> str:
    kind = primitive_name(operation.primitive)
    if operation.direction is None:  # an op may compute both gradients
        return f"{kind} bwd" if operation.api in _GRADIENTS else kind
    direction = _DIRECTIONS[operation.direction]
    return f"{kind} {direction if operation.primitive in _TWO_GRADIENTS else direction.partition(' ')[0]}"


def _shapes(operation: OperationFacts) -> Iterator[str]:
    if operation.input:
        yield shape_text(operation.input)
        if operation.output and operation.output != operation.input:
            yield from ("->", shape_text(operation.output))
    is_conv = operation.primitive in _TWO_GRADIENTS and len(operation.weights) > 2
    window = operation.weights[2:] if is_conv else operation.window
    if is_conv and not operation.output:
        yield f"w{shape_text(operation.weights)}"
    elif window:
        yield f"k{shape_text(window)}"
    for letter, sizes in (("s", operation.stride), ("d", operation.dilation)):
        if any(size != 1 for size in sizes):
            yield letter + _short(sizes)
    if operation.groups is not None and operation.groups > 1:
        yield f"g{operation.groups}"


def _short(sizes: Shape) -> str:
    """Return one number for equal sizes."""
    return str(sizes[0]) if len(set(sizes)) == 1 else shape_text(sizes)
