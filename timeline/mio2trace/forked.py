"""Child processes: how many may run, and how they end with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with(parent: int) -> None:
    """Kill this process when its parent ends in any way: after SIGKILL a parent cannot clean up.

    The new process must call this, and the parent's thread that made it must live as long as it may. This works on
    Linux only: elsewhere a process whose parent is killed runs to its own end, or to its time limit.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):  # Python without ctypes
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before this call
        os.kill(os.getpid(), signal.SIGKILL)
