"""A second process beside this one, where the system has one to spare and it is safe: a forked child, and its bytes.

What is forked away must be work that this process can also do itself: the answer may always be that there is none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO

Work = Callable[[BinaryIO], None]
"""Writes what it finds into a file of its own."""
Result = Callable[[], BinaryIO | None]
"""Waits for the work and gives its file, to be read from the start; None when it must be done again here."""


def processors() -> int:
    """How many this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_others_have_the_rest = False


def keep_to_one_processor() -> None:
    """The other processors are other workers': from now on there is no child in this process."""
    global _others_have_the_rest
    _others_have_the_rest = True


def possible() -> bool:
    """Whether a child would help and can be: forking while threads run may leave locks held for ever."""
    if _others_have_the_rest:
        return False
    return hasattr(os, "fork") and processors() > 1 and threading.active_count() == 1


_PR_SET_PDEATHSIG = 1


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


@contextlib.contextmanager
def beside(work: Work) -> Iterator[Result]:
    """Run ``work`` in a process of its own while the body runs; yields what waits for its output.

    There is none where that cannot be (one processor, threads that run, no space, no fork), or when the process fails.
    A child that nobody waited for is ended.
    """
    if not possible():
        yield _nothing
        return
    with contextlib.ExitStack() as stack:
        # What ends this process must find the child's number known, or no child.
        release = _signals_held()
        running = False
        process = 0
        try:
            try:
                file = stack.enter_context(_memory_file())
                parent = os.getpid()
                process = os.fork()
            except OSError:
                release()
                yield _nothing
                return
            if process == 0:
                _child(work, file, release, parent)
            running = True
            release()

            def result() -> BinaryIO | None:
                nonlocal running
                try:
                    _, status = os.waitpid(process, 0)
                except ChildProcessError:  # where SIGCHLD is ignored nobody is told how it ended
                    status = -1
                running = False
                file.seek(0)
                return None if status else file

            yield result
        finally:
            release()
            if running:
                # An interrupt may come when the child is waited for already, and this does not know it yet.
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)


def _signals_held() -> Callable[[], object]:
    """Hold back what ends a process; gives what lets it through again."""
    if not hasattr(signal, "pthread_sigmask"):
        return _nothing
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    except BaseException:  # one had come already: the call holds them back, and then raises what it says
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _nothing() -> None:
    return None


def _memory_file() -> BinaryIO:
    """A file in memory where the system has them."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("mio2trace"), "w+b")
    return tempfile.TemporaryFile()


def _child(work: Work, file: BinaryIO, release: Callable[[], object], parent: int) -> None:
    """Never returns: whatever happens, the parent goes on alone."""
    status = 1
    try:
        end_with(parent)
        release()
        work(file)
        file.flush()
        status = 0
    finally:
        os._exit(status)
