"""What a library call amounts to: one compute or find call with its problem, its work and where the log states it."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress
from struct import Struct
from typing import Literal

import msgspec

from mio2trace.model.gemm import Gemm
from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.problem import Problem
from mio2trace.ops.values import Shape

Buffers = tuple[tuple[str, int], ...]
Phase = Literal["find", "run"]


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


_DIGITS = 12  # of an address in a process's half of 48 bits, whose upper digits are seldom 0


@lru_cache(maxsize=64)
def _numbers_of(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """What reads so many numbers of 8 bytes each."""
    return Struct(f">{count}Q").unpack


class Parameters(msgspec.Struct, frozen=True, gc=False):
    """Which of the addresses in a call's entry are buffers: those with a truth in ``picked``, by name in ``names``;
    ``nulls`` are those that the entry states to be none."""

    names: tuple[str, ...]
    picked: tuple[bool, ...]
    nulls: frozenset[str] = frozenset()

    def buffers(self, addresses: bytes) -> Buffers:
        """(parameter name, address) of each; ``addresses`` are hexadecimal digits with commas between them."""
        return tuple(zip(self.names, self.numbers(addresses), strict=False))

    def numbers(self, addresses: bytes) -> tuple[int, ...]:
        """The addresses alone, in the order of ``names``."""
        if not addresses or not self.names:
            return ()
        count = len(self.picked)
        # those of equal length, nearly all, go as one number each 8 bytes
        plain = addresses.replace(b",", b"0000")
        if len(plain) == 16 * count - 4 and addresses[_DIGITS :: _DIGITS + 1] == b"," * (count - 1):
            numbers: Sequence[int] = _numbers_of(count)(unhexlify(b"0000" + plain))
        else:
            numbers = [int(one, 16) for one in addresses.split(b",")]
        return tuple(compress(numbers, self.picked))


class OperationFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What operations share that differ in place and buffers only: one object for all of them, nearly always.

    ``input``, ``weights`` and ``output`` are forward shapes: N,C,[D,]H,W and K,C/g,[D,]y,x (transpose: C,K/g,[D,]y,x),
    whatever the layout. ``direction`` is None for what belongs to no direction (tensor addition, copies, optimisers); a
    backward call that is no convolution's weights or bias is ``backward-data``. ``dtype_by`` is ``command``, ``key``,
    ``descriptor`` or ``kernel name``.
    ``command`` is the MIOpenDriver line in today's form, ``command_reason`` why there is none; ``logged_command`` the
    text of the logged one. ``parameters``: which addresses of the entry are buffers. ``nested`` are the literals of the
    internal entries in order: the GEMM path (``convolution, non 1x1``) and then the library of each GEMM call
    (miopen-log.md 3.4).
    ``doubts`` are short statements, for people, on what does not fit together. ``torn``: part of what the log said of
    the call is missing, its entry's end or its command. ``unread``: its entry is whole, but no problem was found in it.
    ``problem`` is what it computes; ``kernel_file`` the file that its kernel was compiled from (Triton).
    """

    source: int
    api: str
    primitive: str
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


class Operation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One compute or find call, in log order. What is unknown is None or empty.

    ``line`` is the line of the entry's header, else of the command, else of the first level line; ``end_line`` the last
    line of the call's own records, ``command_line`` that of its logged command (0: none). ``facts`` is all that it
    shares with calls like it. ``addresses`` are the buffers of the entry, ``arguments`` those that earlier calls set
    for this one: see `tensors`.
    """

    index: int
    line: int
    end_line: int
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
        """Every buffer of the call, workspaces included, null ones left out, by parameter name; in the entry's order.

        Made when asked for: a log may have a million operations.
        """
        if self.parameters is None:
            return self.arguments
        return self.parameters.buffers(self.addresses) + self.arguments

    @property
    def pointers(self) -> tuple[int, ...]:
        """The addresses of `tensors` alone."""
        own = () if self.parameters is None else self.parameters.numbers(self.addresses)[: len(self.parameters.names)]
        return own + tuple([address for _, address in self.arguments]) if self.arguments else own

    @property
    def is_plain(self) -> bool:
        """Whether it is a framework's op that no family models: its kernels' work is their own."""
        return self.facts.api == self.facts.primitive

    # What its facts are.

    @property
    def source(self) -> int:
        return self.facts.source

    @property
    def api(self) -> str:
        return self.facts.api

    @property
    def primitive(self) -> str:
        return self.facts.primitive

    @property
    def direction(self) -> OperationDirection | None:
        return self.facts.direction

    @property
    def phase(self) -> Phase:
        return self.facts.phase

    @property
    def input(self) -> Shape:
        return self.facts.input

    @property
    def weights(self) -> Shape:
        return self.facts.weights

    @property
    def output(self) -> Shape:
        return self.facts.output

    @property
    def pad(self) -> Shape:
        return self.facts.pad

    @property
    def stride(self) -> Shape:
        return self.facts.stride

    @property
    def dilation(self) -> Shape:
        return self.facts.dilation

    @property
    def groups(self) -> int | None:
        return self.facts.groups

    @property
    def mode(self) -> str | None:
        return self.facts.mode

    @property
    def window(self) -> Shape:
        return self.facts.window

    @property
    def layout(self) -> str | None:
        return self.facts.layout

    @property
    def dtype(self) -> str | None:
        return self.facts.dtype

    @property
    def dtype_by(self) -> str | None:
        return self.facts.dtype_by

    @property
    def algorithm(self) -> str | None:
        return self.facts.algorithm

    @property
    def solver(self) -> str | None:
        return self.facts.solver

    @property
    def workspace_bytes(self) -> int | None:
        return self.facts.workspace_bytes

    @property
    def gemm(self) -> Gemm | None:
        return self.facts.gemm

    @property
    def flop(self) -> int | None:
        return self.facts.flop

    @property
    def bytes_min(self) -> int | None:
        return self.facts.bytes_min

    @property
    def command(self) -> str | None:
        return self.facts.command

    @property
    def command_reason(self) -> str:
        return self.facts.command_reason

    @property
    def logged_command(self) -> str:
        return self.facts.logged_command

    @property
    def parameters(self) -> Parameters | None:
        return self.facts.parameters

    @property
    def nested(self) -> tuple[str, ...]:
        return self.facts.nested

    @property
    def thread(self) -> int | None:
        return self.facts.thread

    @property
    def doubts(self) -> tuple[str, ...]:
        return self.facts.doubts

    @property
    def torn(self) -> bool:
        return self.facts.torn

    @property
    def unread(self) -> bool:
        return self.facts.unread

    @property
    def problem(self) -> Problem | None:
        return self.facts.problem
