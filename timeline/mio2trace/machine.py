"""The program's use of the machine: threads and memory.

numpy starts no threads for algebra: this program does none, and they cost 0.1 s of processor time. `__main__` imports
this module before anything else, because numpy reads the variable when it is loaded.

Millions of small records have no cycles: the garbage collector would only walk them again and again. Blocks of a file
come one after another: the system would take back the memory of each, only to return it page by page. A program that
needs more memory than is free ends with an error message before the system kills it (on Linux).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import stat
from collections.abc import Iterable, Iterator

_VARIABLE = "OPENBLAS_NUM_THREADS"
_ours = _VARIABLE not in os.environ
os.environ.setdefault(_VARIABLE, "1")


def given_environment() -> dict[str, str]:
    """Return the environment as the person set it, for the programs that the person starts through this one."""
    return {name: value for name, value in os.environ.items() if not (_ours and name == _VARIABLE)}


# -- Memory ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector. Nested uses have no effect."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Move the new objects to the oldest generation; else the collector would walk all of them now.
        gc.freeze()
        gc.unfreeze()
        gc.enable()


_KEPT = 16 << 20
"""Bytes; more than all blocks that are read at the same time."""


@functools.cache
def keep_freed_blocks() -> None:
    """Let the allocator keep freed memory, up to twice `_KEPT`, for later use; one call is enough.

    glibc (mallopt(3), M_MMAP_THRESHOLD) learns from the largest freed block how much to keep. Nothing is written to
    this block, so it takes no memory. On other systems it does no harm.
    """
    with contextlib.suppress(MemoryError):  # if hardly any memory is left, none is kept
        bytes(_KEPT)


_MALLOPT_TRIM_THRESHOLD, _MALLOPT_MMAP_MAX = -1, -4
_KEPT_OF_LARGE = 256 << 20
"""Bytes: several columns of ten million rows."""


_LARGE_INPUT = 1 << 20
"""Bytes. Smaller files, compressed ones included, have no large columns."""


def keep_freed_columns(words: Iterable[str]) -> None:
    """Let the allocator keep freed columns of every size for later ones, if ``words`` name a folder or large files.

    Only for a program of its own. Each column of ten million rows took 80 MB from the system, page by page; that was a
    quarter of all time.

    glibc only (mallopt(3)); on other systems it does nothing.
    """
    if sum(map(_bytes_of, words)) < _LARGE_INPUT:
        return
    with contextlib.suppress(AttributeError, ImportError, OSError, TypeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MALLOPT_MMAP_MAX, 0)
        mallopt(_MALLOPT_TRIM_THRESHOLD, _KEPT_OF_LARGE)


def _bytes_of(word: str) -> int:
    """Return the size of the file ``word``; of anything else that exists, that of a large one."""
    try:
        about = os.stat(word)
    except (OSError, ValueError):
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else _LARGE_INPUT


_MUCH = 128 << 20
"""Bytes of a process from which on returning what is free is worth its time."""


def give_back_freed_memory() -> None:
    """Return all freed memory of a large process to the system. Between two steps of a long run: the second needs
    blocks of other sizes.

    glibc only (malloc_trim(3)); on other systems it does nothing.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        if int(_read("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE") < _MUCH:
            return
    with contextlib.suppress(AttributeError, ImportError, OSError, TypeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def ensure_free(count: int) -> None:
    """Raises `MemoryError` unless the process may have ``count`` more bytes.

    To be asked before msgspec decodes a part of a large file: if it gets no memory, it ends the process by a signal.
    """
    import numpy as np

    np.empty(count, np.uint8)  # it is not written to, so it takes no memory


LEAST = 1 << 30
"""Bytes that the program may always use: more may become free a moment later."""
_AVAILABLE = re.compile(r"^MemAvailable: +(\d{1,15}) kB$", re.MULTILINE | re.ASCII)


@contextlib.contextmanager
def bound_to_free(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> Iterator[int | None]:
    """Limit this process to the memory that the machine and its control group have free now.

    Yields the bytes; None if the system does not show them, or already has such a limit.
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
    """Return the free bytes, at least `LEAST`. Raises `OSError` or `ValueError` if the system does not show them."""
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
