"""Where the work is done, behind `concurrent.futures.Executor`: in this process, or on a cluster of Dask."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, NamedTuple

from mio2trace.batch.confined import close_that_of_this_thread
from mio2trace.notes import InputError

INSTALL = "pip install 'mio2trace[batch]'"
CONNECT_S = 60
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.worker-ttl": None,
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.gil.enabled": False,
}
"""What Dask watches of itself takes the time of the runs: 50 looks a second in each of its processes."""


class Engine(NamedTuple):
    """``ahead``: how many runs it is given at once; ``beside_others``: its workers share a machine; ``workers``: how
    many there are now, of an engine that gets no others: without any it has to be begun anew.
    """

    executor: Executor
    ahead: int
    beside_others: bool = True
    workers: Callable[[], int] | None = None


class _Here(Executor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def here() -> Iterator[Engine]:
    """This process: one run after the other."""
    try:
        yield Engine(_Here(), ahead=1, beside_others=False)
    finally:
        close_that_of_this_thread()


@contextlib.contextmanager
def local_cluster(workers: int) -> Iterator[Engine]:
    """So many processes of this machine."""
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_dask().config.set(_QUIET))
        try:
            with _later():
                cluster = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        processes=True,
                        memory_limit=0,  # each run has a limit of its own
                        dashboard_address="127.0.0.1:0",  # nobody looks there; its usual port may be another cluster's
                        silence_logs=50,
                    )
                )
                client = stack.enter_context(distributed.Client(cluster))
        except (OSError, RuntimeError) as error:
            raise InputError(f"the {workers} workers do not start: {_first_line(error)}") from None
        yield Engine(client.get_executor(pure=False), ahead=_ahead(workers), workers=lambda: len(client.nthreads()))


@contextlib.contextmanager
def _later() -> Iterator[None]:
    """Signals wait until the body has ended: Dask's start, when it is left halfway, ends in tracebacks. The processes
    that it starts are never interrupted, as they would be by a terminal: this one ends them.
    """
    came: list[tuple[int, FrameType | None]] = []
    handler = signal.getsignal(signal.SIGTERM)
    here = threading.current_thread() is threading.main_thread() and callable(handler)
    if here:
        signal.signal(signal.SIGTERM, lambda number, frame: came.append((number, frame)))
    interrupts = {signal.SIGINT, signal.SIGHUP}
    resource_tracker.ensure_running()  # when it is started later, it lets them through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, interrupts)
    try:
        yield
    finally:
        if here:
            signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if came and callable(handler):
        handler(*came[0])


@contextlib.contextmanager
def cluster_of(scheduler_file: str) -> Iterator[Engine]:
    """The cluster whose scheduler wrote this file. Raises `InputError` where it cannot be reached."""
    distributed = _distributed()
    if not os.path.isfile(scheduler_file):
        raise InputError(f"{scheduler_file}: no such file; expected what `dask scheduler --scheduler-file` wrote")
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()  # Dask logs what it loses, with tracebacks; who leads the batch says it in a line
        try:
            client = stack.enter_context(distributed.Client(scheduler_file=scheduler_file, timeout=CONNECT_S))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{scheduler_file}: cannot reach the scheduler: {_first_line(error)}") from None
        yield Engine(client.get_executor(pure=False), ahead=_ahead(len(client.nthreads())))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _ahead(workers: int) -> int:
    """More than the workers have at hand; workers may join later."""
    return max(256, 4 * workers)


def _dask() -> Any:
    try:
        import dask
    except ImportError:
        raise InputError(f"workers need Dask, which is not installed: {INSTALL}") from None
    return dask


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(f"workers need Dask, which is not installed: {INSTALL}") from None
    return distributed
