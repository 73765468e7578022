"""Chrome's trace-event JSON (perfetto-chrome-trace.md 1, 2).

Its parts take time to load, so they are loaded when the form is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from mio2trace.patterns import late

if TYPE_CHECKING:
    from mio2trace.trace import Slice, Trace
    from mio2trace.writers.ending import Found

NAME = "Chrome JSON"
SUFFIXES: tuple[str, ...] = (".json",)
SLICE_BYTES = 300
LOOKS = late(rb'\s*\{\s*"displayTimeUnit"\s*:\s*"ns"\s*,\s*"metadata"\s*:')
GZIP_STRATEGY = zlib.Z_FILTERED


def write(trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> None:
    """Write ``trace`` as one JSON object. ``to_pack``: the output will be compressed, so similar lines are written
    together."""
    from mio2trace.writers.chrome_json.events import write

    write(trace, file, to_pack=to_pack)


def slices(file: BinaryIO, category: str | None = None, found: Found | None = None) -> Iterator[Slice]:
    """Return the slices of a category, or all, of a trace that `write` wrote; other findings go into ``found``."""
    from mio2trace.writers.chrome_json.events import slices

    return slices(file, category, found)
