"""Call a function so that it cannot do harm: in a fork of a warm process, with limits of time and memory. Bound the
files that a process may open.

The warm process has imported everything that a run needs, and forks a child for each call. So Python imports once, and
a call costs a fork. A module's function ``before_forking`` prepares what all children may share. The child has its own
session, limits and memory. Whatever it does, only the child ends, with every process that it started. The warm process
ends with the process that started it. If the warm process is killed, its child ends with it (`end_with`).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.parse import unquote

from mio2trace.notes import InputError

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


# -- Calls in forks of a warm process ----------------------------------------------------------------------------------

GRACE_S = 2.0
"""Seconds after the time limit: a child is ended by its own alarm first, then by the warm process."""
LOOK_S, ENDS_S = 1.0, 0.05
"""Seconds between two checks of a silent child; seconds that a child may take to end."""

Tell = Callable[[object], None]
"""Gives a value to the caller at once; the caller has it even if the call fails later."""


class Limits(NamedTuple):
    """Seconds of a call, and bytes that it may allocate; None: no limit."""

    seconds: float | None = None
    memory: int | None = None


UNLIMITED = Limits()


class Ended(NamedTuple):
    """How a call ended, with its results. ``said``: the reason of a failure. ``lost``: the warm process ended or could
    not start, which means nothing for the call."""

    how: Literal["done", "raised", "time", "memory", "died", "lost"]
    value: Any = None
    told: Any = None
    said: str = ""


_SERVE = "import sys; from mio2trace.batch.confined import serve; serve(int(sys.argv[1]), tuple(sys.argv[2:]))"


class Stopped(Exception):
    """The program ends: the call was ended with it, and its end means nothing for the run."""


class Confined:
    """Calls functions by name, one after another, each in a new process in which ``modules`` are already imported.

    The functions have a keyword ``tell`` (`Tell`). The warm process uses a pair of sockets without a name: nobody else
    can connect to it.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        """Guards the connection, which another thread may end: it stays open while `stop` uses it."""
        self._stopped = False

    def call(self, function: str, *arguments: Any, limits: Limits = UNLIMITED) -> Ended:
        """Call ``module:function`` and wait for its end, of any kind. Raises `Stopped` after `stop`."""
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
        except BaseException:  # an interrupt: end the running call
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
        ours, theirs = Pipe()
        with theirs:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(  # noqa: S603 - this program's own code
                [sys.executable, "-P", "-c", _SERVE, str(theirs.fileno()), *self._modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt goes to this process only, which then ends the other one
                env=environment,
            )
        return ours

    def stop(self) -> None:
        """End a call that runs in another thread, and allow no further call."""
        with self._lock:
            self._stopped = True
            if self._connection is not None:
                with socket.socket(fileno=os.dup(self._connection.fileno())) as same, contextlib.suppress(OSError):
                    same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the warm process, and a running call."""
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
    """Return the object that a worker's thread keeps from call to call."""
    confined: Confined | None = getattr(_of_thread, "confined", None)
    if confined is None:
        confined = _of_thread.confined = Confined(modules)
    return confined


def close_that_of_this_thread() -> None:
    confined: Confined | None = getattr(_of_thread, "confined", None)
    if confined is not None:
        confined.close()
        _of_thread.confined = None


# -- The warm process --------------------------------------------------------------------------------------------------


def serve(descriptor: int, modules: tuple[str, ...]) -> NoReturn:
    """Answer calls until the other side is gone; then this process ends."""
    connection = Connection(descriptor)
    for module in modules:
        with contextlib.suppress(ImportError):  # functions that need it enable it
            getattr(importlib.import_module(module), "before_forking", lambda: None)()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, arguments, limits = connection.recv()
            ended = _forked(function, arguments, limits, connection)
            if ended is None:
                break
            connection.send(ended)
    os._exit(0)  # messages of libraries at the end interest nobody


def _forked(function: str, arguments: tuple[Any, ...], limits: Limits, caller: Connection) -> Ended | None:
    """Return how the call ended; None if the caller is gone."""
    result, writing = Pipe(duplex=False)
    child = get_context("fork").Process(target=_child, args=(function, arguments, limits, writing, caller, os.getpid()))
    child.start()
    writing.close()
    until = math.inf if limits.seconds is None else time.monotonic() + limits.seconds + GRACE_S
    told: Any = None
    try:
        while (rest := until - time.monotonic()) > 0:
            ready = wait([result, caller, child.sentinel], min(rest, LOOK_S))
            if caller in ready:  # before the answer the caller sends nothing, so it is gone
                return None
            if result in ready:
                try:
                    what, value = result.recv()
                except (EOFError, OSError):
                    break
                if what != "told":
                    return Ended(what, value, told) if what == "done" else Ended(what, None, told, value)
                told = value
            elif not child.is_alive():  # processes that it started may keep the pipes open after its end
                break
        child.join(ENDS_S)  # it may have ended by itself, in a way worth knowing
        return _died(child.exitcode, rest > 0, limits, told)
    finally:
        result.close()
        _end(child)


def _end(child: BaseProcess) -> None:
    """End a child and every process that it started."""
    assert child.pid is not None
    child.kill()  # in case it has no group yet
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # processes that it started
    child.join(GRACE_S)
    with contextlib.suppress(ValueError):  # it cannot be ended
        child.close()


def _died(code: int | None, in_time: bool, limits: Limits, told: Any) -> Ended:
    number = -code if code is not None and code < 0 else None
    if limits.seconds is not None and (not in_time or number == signal.SIGALRM):
        return Ended("time", told=told, said=f"not done after {limits.seconds:g} s (--timeout)")
    if number is not None:
        what = signal.Signals(number).name
        why = ": the system's memory may be full" if number == signal.SIGKILL else ""
        # From libraries that get no memory.
        if limits.memory is not None and number in (signal.SIGSEGV, signal.SIGABRT):
            why = f": it may need more than {limits.memory / 1e9:.3g} GB of memory (--memory-limit)"
        return Ended("died", told=told, said=f"the program crashed ({what}{why})")
    return Ended("died", told=told, said="the program ended without a result")


def _child(
    function: str, arguments: tuple[Any, ...], limits: Limits, result: Connection, caller: Connection, warm: int
) -> NoReturn:
    try:
        end_with(warm)
        caller.close()
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(devnull, standard)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if limits.seconds is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # also ends a call that never returns to Python
            signal.setitimer(signal.ITIMER_REAL, limits.seconds)
        if limits.memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))
        module, _, name = function.partition(":")
        call = getattr(importlib.import_module(module), name)
        result.send(("done", call(*arguments, tell=lambda value: result.send(("told", value)))))
    except BaseException as error:
        how, said = "raised", f"a fault of the program itself, please report it: {_fault(error)}"
        if isinstance(error, MemoryError):
            most = "" if limits.memory is None else f"{limits.memory / 1e9:.3g}"
            how, said = "memory", f"needs more than {most} GB of memory (--memory-limit)" if most else "out of memory"
        with contextlib.suppress(OSError, MemoryError):
            result.send((how, said))
    finally:
        os._exit(0)


def _fault(error: BaseException) -> str:
    """Return type and place of an error without its message, which may quote an input."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
    return f"{type(error).__name__}{place}"


# -- The files that a process may open ---------------------------------------------------------------------------------


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Return whether an absolute path is one of the folders or in one of them; links are not resolved."""
    return any(path == folder or path.startswith(os.path.join(folder, "")) for folder in folders)


# An audit hook of Python checks each file that is opened, each folder that is listed, and each database that is
# connected to, with links resolved. DuckDB opens files without Python, so datasets are checked as a whole beforehand.


_SYSTEM = ("/dev/null", "/dev/urandom", "/proc/self")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect", "socket.bind")
_OUTSIDE = "outside of the folders of this server"


def confine(folders: Sequence[str], room: str, seconds: float, memory: int) -> None:
    """From now on: read only below ``folders``, write only below ``room``, at most ``seconds`` and ``memory`` bytes."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # also ends a call that never returns to Python
    signal.setitimer(signal.ITIMER_REAL, seconds)
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        _, most = resource.getrlimit(kind)
        least = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(kind, (least, most))
    program = [
        os.path.realpath(path) for path in (*sys.path, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))
    ]
    writable = [os.path.realpath(room), os.devnull]
    readable = [*folders, *writable, *program, *_SYSTEM, os.path.realpath("/proc/self")]
    refused: set[str] = set()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NEVER:
            raise PermissionError(errno.EACCES, f"{event} is not allowed in this server")
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):
                return
            is_written = bool((flags or 0) & _WRITES) or bool(set(mode or "") & set("wax+"))
        elif event in ("os.listdir", "os.scandir", "sqlite3.connect"):
            path, is_written = arguments[0], False
            if event == "sqlite3.connect":
                path = _database(path)
            if not path or isinstance(path, int):
                return
        else:
            return
        name = os.fsdecode(path)
        if not is_below(os.path.realpath(name), writable if is_written else readable):
            if name not in refused:
                refused.add(name)
                sys.stderr.write(f"note: {os.path.basename(name)!r} is not read: {_OUTSIDE}\n")
            raise PermissionError(errno.EACCES, _OUTSIDE, os.path.basename(name))

    sys.addaudithook(look)


def _database(name: str | bytes) -> str:
    """Return the path of a SQLite database; empty for a database in memory."""
    text = os.fsdecode(name)
    if text.startswith("file:"):
        text = unquote(text.removeprefix("file:").partition("?")[0])
    return "" if text == ":memory:" else text


def require_own_datasets(paths: Sequence[str], folders: Sequence[str]) -> None:
    """Raises `InputError` if a dataset among ``paths`` holds a link that leads out, or begins above the folders."""
    from pathlib import Path

    from mio2trace.snapshot import is_dataset

    for path in paths:
        if not is_dataset(path):
            continue
        top = path if os.path.isdir(path) else str(Path(path).resolve().parent.parent)
        if not is_below(os.path.realpath(top), folders):
            raise InputError(f"{os.path.basename(path)}: its dataset begins {_OUTSIDE}")
        for folder, below, files in os.walk(top):
            for name in (*below, *files):
                if not is_below(os.path.realpath(os.path.join(folder, name)), folders):
                    raise InputError(f"{os.path.basename(path)}: {name} leads {_OUTSIDE}")
