"""Executors of the work (`concurrent.futures.Executor`): on this machine, or on a Dask cluster.

On this machine nothing listens: each worker is a process of `confined`, and a thread controls it. A
`concurrent.futures.ProcessPoolExecutor` would not do: if one of its workers is killed, all runs of all workers fail. A
new process for each run imports the program again, which takes longer than a small run. A Dask cluster runs the code of
anybody who can connect, so it should require certificates (docs/many-runs.md).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from mio2trace.batch.confined import Confined, close_that_of_this_thread, of_this_thread
from mio2trace.batch.work import MODULES
from mio2trace.notes import InputError

INSTALL = "pip install 'mio2trace[cluster]'"
CONNECT_S = 60
ENCRYPTED = "tls://"


class Engine(NamedTuple):
    """An executor. ``ahead``: the number of runs that it is given at once."""

    executor: Executor
    ahead: int


class _Here(Executor):
    """Runs each call at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def here() -> Iterator[Engine]:
    try:
        yield Engine(_Here(), ahead=1)
    finally:
        close_that_of_this_thread()


@contextlib.contextmanager
def processes(workers: int) -> Iterator[Engine]:
    """Start processes on this machine; running calls are ended when the context ends."""
    led: list[Confined] = []
    pool = ThreadPoolExecutor(workers, initializer=lambda: led.append(of_this_thread(MODULES)))
    try:
        yield Engine(pool, ahead=_ahead(workers))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for confined in led:
            confined.stop()
        pool.shutdown()
        for confined in led:
            confined.close()


@contextlib.contextmanager
def cluster_of(scheduler_file: str) -> Iterator[Engine]:
    """Connect to the cluster whose scheduler wrote this file; Dask's configuration names the certificates.

    Raises `InputError` if it cannot be reached.
    """
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()  # Dask logs lost workers with tracebacks; the batch reports them in one line
        try:
            client = stack.enter_context(distributed.Client(address_in(scheduler_file), timeout=CONNECT_S))
        except (OSError, ValueError, TypeError, KeyError) as error:  # a TypeError if a certificate is missing
            raise InputError(f"{scheduler_file}: cannot reach the scheduler: {_first_line(error)}") from None
        yield Engine(client.get_executor(pure=False), ahead=_ahead(len(client.nthreads())))


class _Scheduler(msgspec.Struct):
    address: str


def address_in(scheduler_file: str) -> str:
    """Return the address of the scheduler. Raises `InputError` if the file does not state it."""
    expected = "expected what `dask scheduler --scheduler-file` wrote"
    if not os.path.isfile(scheduler_file):
        raise InputError(f"{scheduler_file}: no such file; {expected}")
    try:
        with open(scheduler_file, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Scheduler).address
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InputError(f"{scheduler_file}: holds no address; {expected}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _ahead(workers: int) -> int:
    """Return more runs than the workers use at once; workers may join later."""
    return max(256, 4 * workers)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(f"a cluster needs Dask, which is not installed: {INSTALL}") from None
    return distributed
