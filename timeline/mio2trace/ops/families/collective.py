"""Collectives of a process group: bytes sent, number of ranks, and the data on the wire (docs/kineto.md).

The definitions are those of NCCL's tests. The *algorithm* bandwidth is the message divided by the time. The *bus*
bandwidth is the algorithm bandwidth times the part of the message that each rank sends and receives, so it can be
compared with the link for any number of ranks.
"""

from __future__ import annotations

import re
from typing import ClassVar

from mio2trace.ops.problem import Family, Problem
from mio2trace.ops.values import DTYPE_BYTES, Shape
from mio2trace.patterns import late

NAMES = {
    "reduce_scatter": "ReduceScatter", "allreduce": "AllReduce", "allgather": "AllGather", "alltoall": "AllToAll",
    "broadcast": "Broadcast", "gather": "Gather", "scatter": "Scatter", "reduce": "Reduce", "send": "Send",
    "recv": "Recv", "barrier": "Barrier",
}  # fmt: skip
"""The kinds; a longer name comes before the names that it contains."""
_BYTES = DTYPE_BYTES | {"bool": 1, "uint8": 1, "int16": 2}

_ONE_WAY = frozenset(("broadcast", "reduce", "send", "recv"))
"""A rank may only send, or only receive."""

_ANNOTATION = late(r"(?:nccl|rccl|gloo|ucc|mpi|xccl|hccl):", re.ASCII)


def is_annotation(text: str) -> bool:
    """Return whether PyTorch names a collective like this: ``nccl:all_reduce``."""
    return _ANNOTATION.match(text) is not None


def kind_of(name: str) -> str:
    """Return ``allreduce`` for ``all_reduce`` and ``allreduce_coalesced``; empty for any other name."""
    plain = name.lower().replace("_", "")
    return next((kind for kind in NAMES if kind.replace("_", "") in plain), "")


class CollectiveProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``sent``, ``received``: elements on this rank. ``ranks``: how many the group has, None if not recorded."""

    without_command: ClassVar[str] = "a communication library computes it, not MIOpen"

    primitive: str
    sent: int
    received: int
    ranks: int | None = None
    group: int | None = None

    @property
    def collective(self) -> str:
        return self.primitive

    @property
    def input(self) -> Shape:
        return (self.sent,) if self.sent else ()

    @property
    def output(self) -> Shape:
        return (self.received,) if self.received else ()

    @property
    def variant(self) -> str | None:
        group = f", group {self.group}" if self.group is not None else ""
        return None if self.ranks is None else f"{self.ranks} rank{'' if self.ranks == 1 else 's'}{group}"

    def flop(self) -> int:
        """The FLOPs of a collective are not counted."""
        return 0

    def message_bytes(self) -> int | None:
        """Bytes of the message; if ranks hold different parts of it, of all parts together."""
        size = _BYTES.get(self.dtype or "")
        elements = max(self.sent, self.received)
        return None if size is None or not elements else elements * size

    def members(self) -> int | None:
        return self.ranks

    def bus_factor(self) -> float | None:
        """Bus bandwidth divided by algorithm bandwidth."""
        ranks = self.ranks
        if self.primitive in _ONE_WAY:
            return 1.0
        if ranks is None or ranks < 1 or self.primitive == "barrier":
            return None
        return 2 * (ranks - 1) / ranks if self.primitive == "allreduce" else (ranks - 1) / ranks

    def bytes_min(self) -> int | None:
        """Bytes read and written on this rank, each tensor once; the tensor of `_ONE_WAY` is recorded as sent and as
        received. None for gather and scatter: each rank records the sizes of the root."""
        size = _BYTES.get(self.dtype or "") if self.primitive not in ("gather", "scatter") else None
        moved = max(self.sent, self.received) if self.primitive in _ONE_WAY else self.sent + self.received
        return None if size is None else moved * size


FAMILY = Family(names=NAMES)
