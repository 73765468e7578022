"""Facts about a kernel, and how arguments are read."""

from __future__ import annotations

import functools

import msgspec

from mio2trace.model.gemm import Gemm

Triple = tuple[int, int, int]


class KernelFact(msgspec.Struct, frozen=True, gc=False):
    """What is known about one enqueued kernel.

    ``role`` is ``main`` for a kernel that computes a GEMM (or a part of one), else its kind of helper. One kernel per
    GEMM has ``gemm``. ``padded`` is (M, N, K) as that kernel ran it, if it differs. ``gemm_by`` is the source of the
    sizes: ``arguments``, ``helpers``, ``source`` or ``build options``.
    """

    role: str = ""
    gemm: Gemm | None = None
    padded: Triple | None = None
    gemm_by: str = ""


MAIN = KernelFact(role="main")


def argument(arguments: tuple[str, ...], index: int) -> str:
    """Argument ``index`` as logged, ``""`` when unknown."""
    return arguments[index] if index < len(arguments) else ""


@functools.lru_cache(maxsize=1 << 16)
def number(value: str) -> int | None:
    """A 4 or 8 byte argument as the little-endian unsigned integer it is (dvdt-ck.md 1.3)."""
    if len(value) not in (8, 16):
        return None
    try:
        return int.from_bytes(bytes.fromhex(value), "little")
    except ValueError:
        return None


@functools.lru_cache(maxsize=1 << 16)
def size(value: str) -> int | None:
    """A matrix dimension: a positive 4 byte int."""
    if len(value) != 8:
        return None
    dimension = number(value)
    return dimension if dimension is not None and 0 < dimension < 1 << 31 else None
