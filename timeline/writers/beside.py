"""Two halves of an output written at the same time, by a forked process where the system has one and it is safe."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO

Write = Callable[[BinaryIO], None]


@contextlib.contextmanager
def beside(write: Write) -> Iterator[Write]:
    """Run ``write`` in a process of its own while the body runs; yields what appends its output to a file.

    Where that cannot be (one processor, threads that run, no space, no fork), or the process fails, the yielded
    function writes itself: the output is the same, only later.
    """
    if not hasattr(os, "fork") or (os.cpu_count() or 1) < 2 or threading.active_count() > 1:
        yield write
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(_memory_file())
            process = os.fork()
        except OSError:
            yield write
            return
        if process == 0:
            _child(write, file)
        waiting = True
        try:

            def append(target: BinaryIO) -> None:
                nonlocal waiting
                _, status = os.waitpid(process, 0)
                waiting = False
                if status:
                    write(target)
                    return
                file.seek(0)
                shutil.copyfileobj(file, target, 1 << 20)

            yield append
        finally:
            if waiting:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


def _memory_file() -> BinaryIO:
    """A file in memory where the system has them: the output is written to a disk once, not twice."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("mio2trace"), "w+b")
    return tempfile.TemporaryFile()


def _child(write: Write, file: BinaryIO) -> None:
    """Never returns: whatever happens, the parent goes on alone."""
    status = 1
    try:
        write(file)
        file.flush()
        status = 0
    finally:
        os._exit(status)
