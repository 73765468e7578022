"""What a process that is made by another has to know: how many there may be, and how it ends with the other."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def processors() -> int:
    """How many this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with(parent: int) -> None:
    """Kill this process when ``parent``, which made it, ends in any way: SIGKILL lets a parent clear up nothing.

    To be called by the new process; the thread that made it must live as long as it may. Linux alone can do this:
    elsewhere a process whose parent is killed goes on to its own end, or its limit of time.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):  # a Python without ctypes
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before it could be told
        os.kill(os.getpid(), signal.SIGKILL)
