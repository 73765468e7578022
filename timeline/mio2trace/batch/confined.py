"""A function called where it can do no harm: in a fork of a warm process, with a limit of time and of memory."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from mio2trace.batch.forking import UNLIMITED, Ended, Limits

_SERVE = "import sys; from mio2trace.batch.forking import serve; serve(int(sys.argv[1]), tuple(sys.argv[2:]))"


class Confined:
    """Calls functions by name, one after another, each in a process of its own that begins with ``modules`` imported.

    The functions take ``tell`` as a keyword (`forking.Tell`).
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def call(self, function: str, *arguments: Any, limits: Limits = UNLIMITED) -> Ended:
        """Call ``module:function`` and wait for its end, whatever that is."""
        if self._connection is None or self._process is None or self._process.poll() is not None:
            self.close()
            self._connection = self._started()
        try:
            self._connection.send((function, arguments, limits))
            ended: Ended = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            return Ended("died", said="the program was killed: the system's memory may be full")
        except BaseException:  # an interrupt: what runs must not go on
            self.close()
            raise
        return ended

    def _started(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(  # noqa: S603 - this program's own code
                [sys.executable, "-P", "-c", _SERVE, str(theirs.fileno()), *self._modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt is for this process, which then ends that one
                env=environment,
            )
        return Connection(ours.detach())

    def close(self) -> None:
        """End the warm process, and a call that runs."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None


_of_thread = threading.local()


def of_this_thread(modules: tuple[str, ...]) -> Confined:
    """The one that a worker's thread keeps from call to call."""
    confined: Confined | None = getattr(_of_thread, "confined", None)
    if confined is None:
        confined = _of_thread.confined = Confined(modules)
    return confined


def close_that_of_this_thread() -> None:
    """End it, where there is one."""
    confined: Confined | None = getattr(_of_thread, "confined", None)
    if confined is not None:
        confined.close()
        _of_thread.confined = None
