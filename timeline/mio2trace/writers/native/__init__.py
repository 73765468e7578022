"""Perfetto's native form: protobuf packets (perfetto-chrome-trace.md 3).

Its tables take time and memory to make, so they are loaded when the form is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from mio2trace.patterns import late
from mio2trace.writers.ending import Found

if TYPE_CHECKING:
    from mio2trace.trace import Slice, Trace

NAME = "Perfetto, native"
SUFFIXES: tuple[str, ...] = (".pftrace",)
SLICE_BYTES = 120
LOOKS = late(rb"\x0a")
GZIP_STRATEGY = zlib.Z_DEFAULT_STRATEGY


def write(trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> None:
    """Write ``trace`` packet by packet. Memory holds the interned texts, the arrows and shared objects.

    ``to_pack`` changes nothing: packets depend on those before them.
    """
    from mio2trace.writers.native.encoder import write

    write(trace, file)


def slices(file: BinaryIO, category: str | None = None, found: Found | None = None) -> Iterator[Slice]:
    """Yield the slices of a category, or all, each when it ends; other findings go into ``found``."""
    from mio2trace.writers.native.packets import slices

    return slices(file, category, Found() if found is None else found)
