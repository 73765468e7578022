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


def bound_to_free(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> int | None:
    """Let this process take no more memory than the machine, and its control group, have free now.

    Returns the bytes; None where the system does not tell, or has such a limit already.
    """
    try:
        import resource

        found = _AVAILABLE.search(_read(meminfo))
        if found is None or resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY:
            return None
        free = int(found[1]) << 10
        with contextlib.suppress(OSError, ValueError):
            free = min(free, int(_read(f"{cgroup}/memory.max")) - int(_read(f"{cgroup}/memory.current")))
        free = max(free, LEAST)
        resource.setrlimit(resource.RLIMIT_DATA, (free, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    except (ImportError, OSError, ValueError):
        return None
    return free


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(1 << 16)
