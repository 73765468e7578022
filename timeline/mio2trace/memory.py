"""Millions of small records and no cycles: the collector would only walk them again and again. And blocks of a file,
one after another: the system would take the memory of each back, only to give it out again, page by page.

What needs more memory than is free ends with an error that can be told, before the system kills it (Linux).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import re
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


LEAST = 1 << 30
"""Bytes that the program may take in any case: what is free can be more a moment later."""
_AVAILABLE = re.compile(r"^MemAvailable: +(\d{1,15}) kB$", re.MULTILINE | re.ASCII)


@contextlib.contextmanager
def bound_to_free(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> Iterator[int | None]:
    """Within it this process takes no more memory than the machine, and its control group, have free now.

    Yields the bytes; None where the system does not tell, or has such a limit already.
    """
    free = None
    try:
        import resource

        before = resource.getrlimit(resource.RLIMIT_DATA)
        if before[0] == resource.RLIM_INFINITY:
            free = _free(meminfo, cgroup)
            resource.setrlimit(resource.RLIMIT_DATA, (free, before[1]))
    except (ImportError, OSError, ValueError):
        free = None
    try:
        yield free
    finally:
        if free is not None:
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _free(meminfo: str, cgroup: str) -> int:
    """Bytes, at least `LEAST`. Raises `OSError` or `ValueError` where the system does not tell."""
    found = _AVAILABLE.search(_read(meminfo))
    if found is None:
        raise ValueError(meminfo)
    free = int(found[1]) << 10
    with contextlib.suppress(OSError, ValueError):
        free = min(free, int(_read(f"{cgroup}/memory.max")) - int(_read(f"{cgroup}/memory.current")))
    return max(free, LEAST)


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(1 << 16)
