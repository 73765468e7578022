"""Bandwidth of collectives, as NCCL's tests define it: the message over the time, and what a rank's link carries."""

from __future__ import annotations

from typing import NamedTuple

from mio2trace.ops.operation import Operation


class Bandwidth(NamedTuple):
    """In bytes per ns, which is 10^9 bytes per second. The time is this rank's kernel, its wait for others included."""

    message_bytes: int
    algorithm: float
    bus: float | None


def bandwidth(operation: Operation, calls: float, kernel_ns: float) -> Bandwidth | None:
    """Return the bandwidths of ``calls`` calls of a collective that took this time together; None for other
    operations."""
    problem = operation.problem
    message = None if problem is None else problem.message_bytes()
    if problem is None or message is None or kernel_ns <= 0:
        return None
    algorithm = message * calls / kernel_ns
    factor = problem.bus_factor()
    return Bandwidth(message, algorithm, None if factor is None else algorithm * factor)
