"""The meaning of a library call: one compute or find call with its problem, its work and its place in the log."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from mio2trace.model.gemm import Gemm
from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.problem import Phase, Problem, cost
from mio2trace.ops.values import Shape

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


_DIGITS = 12  # enough digits for an address in a process's half of 48 bits, whose upper digits are seldom 0


@lru_cache(maxsize=64)
def _numbers_of(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return a struct that reads this many numbers of 8 bytes."""
    return Struct(f">{count}Q").unpack


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
        count = len(self.picked)
        # addresses of equal length, as in nearly all cases, are read as numbers of 8 bytes
        plain = addresses.replace(b",", b"0000")
        if len(plain) == 16 * count - 4 and addresses[_DIGITS :: _DIGITS + 1] == b"," * (count - 1):
            numbers: Sequence[int] = _numbers_of(count)(unhexlify(b"0000" + plain))
        else:
            numbers = [int(one, 16) for one in addresses.split(b",")]
        return tuple(compress(numbers, self.picked))


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
    file from which its kernel was compiled (Triton).
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


def of_problem(problem: Problem, facts: OperationFacts) -> OperationFacts:
    """Return the facts with everything that follows from the problem: shapes, geometry, work, traffic, mode."""
    geometry, of_sizes = problem.geometry, cost(problem)
    return msgspec.structs.replace(
        facts, direction=problem.direction, input=problem.input, weights=problem.weights, output=problem.output,
        pad=geometry.pad, stride=geometry.stride, dilation=geometry.dilation, groups=geometry.groups,
        mode=problem.variant or facts.mode, window=geometry.window, layout=problem.memory_layout, dtype=problem.dtype,
        gemm=of_sizes.gemm, flop=of_sizes.flop, bytes_min=of_sizes.bytes_min,
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
        return self.facts.api == self.facts.primitive
