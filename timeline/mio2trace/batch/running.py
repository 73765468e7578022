"""Control a batch: skip finished runs, give the others to an engine, and write each end into the journal.

An engine is a `concurrent.futures.Executor`. On this machine nothing listens: each worker is a process of `confined`,
and a thread controls it. A `concurrent.futures.ProcessPoolExecutor` would not do: if one of its workers is killed, all
runs of all workers fail. A new process for each run imports the program again, which takes longer than a small run. A
Dask cluster runs the code of anybody who can connect, so it should require certificates (docs/many-runs.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mio2trace.batch.confined import UNLIMITED, Confined, Limits, close_that_of_this_thread, of_this_thread
from mio2trace.batch.finding import FoundRun
from mio2trace.batch.work import (
    ANALYSE,
    MODULES,
    Entry,
    Journal,
    Made,
    Work,
    do,
    entry_of,
    hashes,
    maker_of,
    put_failure,
    read_journals,
)
from mio2trace.dataset import FOLDERS, file_name
from mio2trace.notes import InputError
from mio2trace.snapshot.places import FOLDER as SNAPSHOT

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


# -- Control of a batch ------------------------------------------------------------------------------------------------

HASHED_AT_ONCE = 4
ATTEMPTS = 5
"""How often a run is given to another worker after the worker of a cluster is lost."""


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``shard``: the part of the runs, and the number of parts. ``again``: also repeat failed runs. ``analysis``:
    options of `mio2trace.analysis`. ``tables_only``, ``function``: of each run (`Work`)."""

    limits: Limits = UNLIMITED
    shard: tuple[int, int] | None = None
    again: bool = False
    analysis: Mapping[str, Any] = {}
    tables_only: bool = False
    function: str = ANALYSE


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """How the runs ended, now and in earlier batches."""

    done: tuple[Entry, ...]
    before: tuple[Entry, ...]
    journal: str

    @property
    def failed(self) -> list[Entry]:
        return sorted((one for one in (*self.done, *self.before) if one.state == "failed"), key=lambda one: one.run)


def run_batch(
    runs: Sequence[FoundRun],
    folder: str,
    engine: Callable[[], AbstractContextManager[Engine]],
    options: BatchOptions,
    planned: Callable[[Sequence[FoundRun]], None] = lambda runs: None,
    told: Callable[[Entry], None] = lambda entry: None,
) -> Batch:
    """Analyse runs into the dataset ``folder``. ``planned`` is called with the runs to do, ``told`` with the end of
    each.

    Raises `InputError` if the folder or the engine is unusable.
    """
    shard = options.shard
    own = [run for run in runs if shard is None or _shard_of(run.name, shard[1]) == shard[0]]
    with closing(Journal(Path(folder), shard)) as journal:
        staging = Path(folder) / f".{journal.name.removesuffix('.jsonl').lstrip('_')}.tmp"
        _refuse_links(Path(folder), staging.name)
        shutil.rmtree(staging, ignore_errors=True)  # left by a batch that was killed
        entries = read_journals(Path(folder))
        to_do, before = _planned(own, entries, options, _there(Path(folder)))
        planned(to_do)
        done: list[Entry] = []

        def ended(entry: Entry) -> None:
            journal.add(entry)
            done.append(entry)
            told(entry)

        try:
            if to_do:
                with engine() as opened:
                    _work_off(opened, _works(to_do, folder, staging, entries, options), ended)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return Batch(done=tuple(done), before=before, journal=journal.name)


def _refuse_links(folder: Path, *more: str) -> None:
    """Raises `InputError` for a dataset with links in place of its folders: written files would be outside of it."""
    for name in (*FOLDERS, *more):
        if (folder / name).is_symlink():
            raise InputError(f"{folder}: {name} is a link; expected a dataset's own folder")


def _shard_of(name: str, shards: int) -> int:
    """Return the shard of a run from its name alone, so that other runs do not change it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % shards


def _there(folder: Path) -> dict[str, set[str]]:
    there: dict[str, set[str]] = {table: set() for table in FOLDERS}
    for table in FOLDERS:
        with contextlib.suppress(OSError):
            there[table] = set(os.listdir(folder / table))
    return there


def _planned(
    runs: Sequence[FoundRun], entries: Mapping[str, Entry], options: BatchOptions, there: Mapping[str, set[str]]
) -> tuple[list[FoundRun], tuple[Entry, ...]]:
    """Return the runs to do, largest first, and the journal lines of the finished runs. A run is done if the journal
    has equal files with equal options, and its tables exist."""
    maker = maker_of(options.analysis, options.tables_only)
    tables = [table for table in FOLDERS if table != SNAPSHOT or not options.tables_only]

    def is_done(run: FoundRun) -> bool:
        entry = entries.get(run.name)
        if entry is None or entry.maker != maker or (entry.state == "failed" and options.again):
            return False
        kept = ["runs"] if entry.state == "failed" else tables
        if any(file_name(name) not in there[table] for table in kept for name in entry.names):
            return False
        return _is_of(entry, run)

    with ThreadPoolExecutor(HASHED_AT_ONCE) as pool:
        done = dict(zip(runs, pool.map(is_done, runs), strict=True))
    to_do = [run for run in runs if not done[run]]
    to_do.sort(key=lambda run: (-run.size, run.name))  # the last runs to end are short
    return to_do, tuple(entries[run.name] for run in runs if done[run])


def _is_of(entry: Entry, run: FoundRun) -> bool:
    """Return whether the entry is about these files; an entry has no files if they could not be read."""
    try:
        return bool(entry.inputs) and len(entry.inputs) == len(run.files) and entry.inputs == hashes(run.files)
    except OSError:
        return False  # opening the file gives the error message


def _works(
    runs: Iterable[FoundRun], folder: str, staging: Path, entries: Mapping[str, Entry], options: BatchOptions
) -> Iterator[Work]:
    for run in runs:
        before = entries.get(run.name)
        yield Work(
            run=run._replace(files=tuple(map(os.path.abspath, run.files))),
            folder=os.path.abspath(folder),
            staging=os.path.abspath(staging),
            limits=options.limits,
            options=dict(options.analysis),
            before=() if before is None else before.names,
            tables_only=options.tables_only,
            function=options.function,
        )


def _work_off(engine: Engine, works: Iterable[Work], ended: Callable[[Entry], None]) -> None:
    """Give all works to the engine, at most ``ahead`` at a time; repeat a run if its worker is lost."""
    pending: dict[Future[Entry], tuple[Work, int]] = {}
    waiting = iter(works)
    while True:
        for work in islice(waiting, engine.ahead - len(pending)):
            pending[engine.executor.submit(do, work)] = (work, 1)
        if not pending:
            return
        finished, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in finished:
            work, attempts = pending.pop(future)
            if future.cancelled():
                raise InputError("the Dask cluster is gone; finished runs are kept: the same command continues")
            error = future.exception()
            if error is None:
                ended(future.result())
            elif attempts < ATTEMPTS and type(error).__name__ == "KilledWorker":
                pending[engine.executor.submit(do, work)] = (work, attempts + 1)
            else:
                ended(_lost(work, error, attempts))


def _lost(work: Work, error: BaseException, attempts: int) -> Entry:
    """Write a row and a line for a run whose worker did not answer or could not do anything."""
    said = f"{attempts} workers were lost with it" if attempts > 1 else f"a worker failed: {type(error).__name__}"
    put_failure(work, said)
    close_that_of_this_thread()
    return entry_of(work, Made(error=said), (), 0)
