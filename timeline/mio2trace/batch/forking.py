"""The warm process: it has imported all that a run needs, and forks a child for each call that it is asked for.

A module's function ``before_forking`` gets ready what all children may share.

The child has its own session, limits and memory; whatever it does, it ends alone, and all that it started ends with it.
Python imports once, a call costs a fork. Started by `mio2trace.batch.confined`; it ends when that does, and where it is
killed, its child ends with it (`forked.end_with`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, NamedTuple, NoReturn

from mio2trace.forked import end_with

GRACE_S = 2.0
"""After the time limit a child has been ended by its own alarm; where that did not help, by this process."""

Tell = Callable[[object], None]
"""Gives the caller something at once, which it has even where the call fails later."""


class Limits(NamedTuple):
    """Seconds of a call and bytes that it may allocate; None: as much as there is."""

    seconds: float | None = None
    memory: int | None = None


UNLIMITED = Limits()


class Ended(NamedTuple):
    """How a call ended, with what it told and gave; ``said``: of a failure what it was. ``lost``: the warm process
    ended, or could not be started, which says nothing of the call.
    """

    how: Literal["done", "raised", "time", "memory", "died", "lost"]
    value: Any = None
    told: Any = None
    said: str = ""


def serve(descriptor: int, modules: tuple[str, ...]) -> NoReturn:
    """Answer calls, until the other side has gone; then this process ends."""
    connection = Connection(descriptor)
    for module in modules:
        with contextlib.suppress(ImportError):  # who needs it says so
            getattr(importlib.import_module(module), "before_forking", _nothing)()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, arguments, limits = connection.recv()
            ended = _forked(function, arguments, limits, connection)
            if ended is None:
                break
            connection.send(ended)
    os._exit(0)  # what libraries say of themselves at the end is nothing to anybody


def _nothing() -> None:
    return None


def _forked(function: str, arguments: tuple[Any, ...], limits: Limits, caller: Connection) -> Ended | None:
    """How the call ended; None where the caller has gone meanwhile."""
    reading, writing = os.pipe()
    warm = os.getpid()
    pid = os.fork()
    if pid == 0:
        end_with(warm)
        caller.close()
        os.close(reading)
        _child(function, arguments, limits, Connection(writing, readable=False))
    os.close(writing)
    result = Connection(reading, writable=False)
    until = None if limits.seconds is None else time.monotonic() + limits.seconds + GRACE_S
    told: Any = None
    last: Ended | None = None
    in_time = True
    end = _end_of(pid)  # what it started may keep the pipe open for longer than it lives
    try:
        while last is None:
            rest = None if until is None else max(0.0, until - time.monotonic())
            ready = wait([result, caller, *end], rest)
            if caller in ready:  # nothing is asked before the answer: it has gone
                return None
            if not ready:
                in_time = False
                break
            if result not in ready:
                break
            try:
                what, value = result.recv()
            except (EOFError, OSError):
                break
            if what == "told":
                told = value
            else:
                last = Ended(what, value if what == "done" else None, told, "" if what == "done" else value)
    finally:
        result.close()
        for descriptor in end:
            os.close(descriptor)
        status = _end(pid, wanted=last is not None)
    return last or _died(status, in_time, limits, told)


def _end_of(pid: int) -> list[int]:
    """What becomes ready when a child ends, where the system has such a thing."""
    try:
        return [os.pidfd_open(pid)] if hasattr(os, "pidfd_open") else []
    except OSError:
        return []


def _end(pid: int, *, wanted: bool) -> int | None:
    """End a child and all that it started; its status, None where it cannot even be ended."""
    status = None
    if not wanted:  # it may have ended by itself: how is worth knowing
        with contextlib.suppress(ChildProcessError):
            done, status = os.waitpid(pid, os.WNOHANG)
            for _ in range(50):
                if done:
                    break
                time.sleep(0.001)
                done, status = os.waitpid(pid, os.WNOHANG)
            status = status if done else None
    if status is None:
        os.kill(pid, signal.SIGKILL)  # before it may have a group of its own
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it started
    if status is None:
        until = time.monotonic() + GRACE_S
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                done, _ = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                time.sleep(0.002)
    return status


def _died(status: int | None, in_time: bool, limits: Limits, told: Any) -> Ended:
    number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
    if limits.seconds is not None and (not in_time or number == signal.SIGALRM):
        return Ended("time", told=told, said=f"not done after {limits.seconds:g} s (--timeout)")
    if number is not None:
        what = signal.Signals(number).name
        why = ": the system's memory may be full" if number == signal.SIGKILL else ""
        if limits.memory is not None and number in (signal.SIGSEGV, signal.SIGABRT):  # of libraries that get none
            why = f": it may need more than {limits.memory / 1e9:.3g} GB of memory (--memory-limit)"
        return Ended("died", told=told, said=f"the program crashed ({what}{why})")
    return Ended("died", told=told, said="the program ended without a result")


def _child(function: str, arguments: tuple[Any, ...], limits: Limits, result: Connection) -> NoReturn:
    try:
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(devnull, standard)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if limits.seconds is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends also what never comes back to Python
            signal.setitimer(signal.ITIMER_REAL, limits.seconds)
        if limits.memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))
        module, _, name = function.partition(":")
        call = getattr(importlib.import_module(module), name)
        result.send(("done", call(*arguments, tell=lambda value: result.send(("told", value)))))
    except MemoryError:
        _send(result, "memory", _too_large(limits))
    except BaseException as error:
        _send(result, "raised", f"a fault of the program itself, please report it: {_fault(error)}")
    finally:
        os._exit(0)


def _send(result: Connection, how: str, said: str) -> None:
    with contextlib.suppress(OSError, MemoryError):
        result.send((how, said))


def _too_large(limits: Limits) -> str:
    if limits.memory is None:
        return "out of memory"
    return f"needs more than {limits.memory / 1e9:.3g} GB of memory (--memory-limit)"


def _fault(error: BaseException) -> str:
    """What and where, without the message: it may quote an input."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
    return f"{type(error).__name__}{place}"
