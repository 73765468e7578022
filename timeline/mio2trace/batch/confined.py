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


class Stopped(Exception):
    """The program ends: the call was ended with it, and says nothing about the run."""


class Confined:
    """Calls functions by name, one after another, each in a process of its own that begins with ``modules`` imported.

    The functions take ``tell`` as a keyword (`forking.Tell`). The warm process hangs on a pair of sockets without a
    name: nobody else can connect to it.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        """Of what another thread may end: the connection is not closed while `stop` uses it."""
        self._stopped = False

    def call(self, function: str, *arguments: Any, limits: Limits = UNLIMITED) -> Ended:
        """Call ``module:function`` and wait for its end, whatever that is. Raises `Stopped` after `stop`."""
        try:
            connection = self._connected()
        except OSError as error:
            return Ended("lost", said=f"no process can be started for it: {error.strerror or type(error).__name__}")
        try:
            connection.send((function, arguments, limits))
            ended: Ended = connection.recv()
        except (EOFError, OSError):
            self.close()
            if self._stopped:
                raise Stopped from None
            return Ended("lost", said="the program was killed: the system's memory may be full")
        except BaseException:  # an interrupt: what runs must not go on
            self.close()
            raise
        return ended

    def _connected(self) -> Connection:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        with self._lock:
            if self._stopped:
                raise Stopped
            if self._connection is None:
                self._connection = self._started()
            return self._connection

    def _started(self) -> Connection:
        ours, theirs = socket.socketpair()
        with ours, theirs:
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

    def stop(self) -> None:
        """End a call that runs in another thread, and allow no other."""
        with self._lock:
            self._stopped = True
            if self._connection is not None:
                with socket.socket(fileno=os.dup(self._connection.fileno())) as same, contextlib.suppress(OSError):
                    same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the warm process, and a call that runs."""
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.close()
                self._connection = None
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()


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
