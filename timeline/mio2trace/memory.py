"""Millions of small records and no cycles: the collector would only walk them again and again. And blocks of a file,
one after another: the system would take the memory of each back, only to give it out again, page by page.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Within it nothing is looked at; where it is entered again it does nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # What was made goes straight to the oldest generation; else the collector would walk it all at once now.
        gc.freeze()
        gc.unfreeze()
        gc.enable()


_KEPT = 16 << 20
"""Bytes; more than what the blocks being read take together."""


@functools.cache
def keep_freed_blocks() -> None:
    """Let the allocator keep what is freed, up to twice `_KEPT`, for what comes next; once is enough.

    glibc (mallopt(3), M_MMAP_THRESHOLD) learns from the largest block that was freed how much to keep. Nothing is
    written to this one, so it takes no memory; elsewhere it does no harm.
    """
    with contextlib.suppress(MemoryError):  # where hardly any is left, none is kept
        bytes(_KEPT)
