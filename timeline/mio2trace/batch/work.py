"""The work of a batch: one run, the journal of a dataset, the engine that works off many runs, and their control.

A run's own process analyses and writes it. The worker only learns the result, and never fails. The journal
(``_runs.jsonl``) has one line of JSON per run, appended when the run is done. Each shard of a job array writes its own
journal (``_runs.3-of-8.jsonl``). Readers join them: the last line of a run counts. A line that a killed writer left
unfinished does not count.

An engine is a `concurrent.futures.Executor`. On this machine nothing listens: each worker is a process of `confined`,
and a thread controls it. A `concurrent.futures.ProcessPoolExecutor` would not do: if one of its workers is killed, all
runs of all workers fail. A new process for each run imports the program again, which takes longer than a small run. A
Dask cluster runs the code of anybody who can connect, so it should require certificates (docs/many-runs.md).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

import mio2trace
from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.batch.confined import UNLIMITED, Confined, Ended, Limits, Tell, close_that_of_this_thread, of_this_thread
from mio2trace.batch.finding import FoundRun
from mio2trace.dataset import FOLDERS, file_name, keep_empty_tables, require_anything, write_run, write_tables
from mio2trace.dataset.rows import failed_run
from mio2trace.notes import InputError, OptionError
from mio2trace.privacy import Cleaner
from mio2trace.privacy import look_at_all as look_at_text
from mio2trace.schema import TABLES, VERSION
from mio2trace.snapshot import FOLDER as SNAPSHOT
from mio2trace.snapshot import files, journals_of, objects
from mio2trace.snapshot.database import keep_one_open

State = Literal["converted", "failed"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended. ``inputs``: the hash of each file, never a path; empty if the files could not be read. ``rows``:
    the names of its runs in the tables, if there are several. ``layout``: of its tables. ``options``: those that differ
    from the defaults. ``ended``: seconds since 1970. ``error``: one line. ``cut``: notes on its files that are cut off.
    """

    run: str
    state: State
    inputs: tuple[str, ...]
    version: str
    seconds: float
    ended: float
    error: str | None = None
    kernels: int = 0
    bytes: int = 0
    cut: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    layout: str = ""
    options: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its runs in the tables."""
        return self.rows or (self.run,)


class Journal:
    """The journal to which this process appends; no other process may do so at the same time."""

    def __init__(self, folder: Path, shard: tuple[int, int] | None = None) -> None:
        name = "_runs.jsonl" if shard is None else f"_runs.{shard[0]}-of-{shard[1]}.jsonl"
        self._path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise InputError(f"{folder}: cannot write there: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise InputError(f"{self._path}: is no file; expected a journal, or none")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(self._file)
                raise InputError(f"{self._path}: another batch is writing to it; expected to be the only one") from None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._write(b"\n")  # an unfinished line stays a line of its own

    @property
    def name(self) -> str:
        return self._path.name

    def add(self, entry: Entry) -> None:
        """Append a line. Raises `InputError` if it cannot be written."""
        self._write(msgspec.json.encode(entry) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from None

    def close(self) -> None:
        os.close(self._file)


def read_journals(folder: Path) -> dict[str, Entry]:
    """Return the last line of each run in all journals of a dataset."""
    last: dict[str, Entry] = {}
    for path in journals_of(folder):
        for entry in _entries(path):
            if entry.run not in last or last[entry.run].ended <= entry.ended:
                last[entry.run] = entry
    return last


def _entries(path: Path) -> Iterator[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield decoder.decode(line)


def hashes(files: Sequence[str]) -> tuple[str, ...]:
    """Return the SHA-256 of each stored file, sorted. For anything but a regular file, which may have no end, return
    its kind.

    Raises OSError.
    """
    return tuple(sorted(map(_hash, files)))


def _hash(path: str) -> str:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        return f"no file, mode {stat.S_IFMT(mode):o}"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


ANALYSE = "mio2trace.batch.work:analysed"
MODULES = ("mio2trace.batch.work", "mio2trace.dataset", "duckdb", "nanoarrow")
"""The modules that the warm process imports; importing more would cost more than it saves."""
_LOG = """I0101 00:00:00.000001     1 caffe.cpp:1] Use GPU with device ID 0
I0101 00:00:00.000002     1 caffe.cpp:1] Iteration: 1 forward-backward time: 1 ms.
MIOpen(OpenCL): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 1 -H 8 -W 8 -k 4 -y 3 -x 3 -F 1 -t 1
MIOpen(OpenCL): miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *){
MIOpen(OpenCL): handle = 0x1000
MIOpen(OpenCL): }
"""
ATTEMPTS = 3
"""How often a run is given to another warm process after one is killed."""


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all runs of a batch. ``shard``: the part of the runs, and the number of parts. ``again``: also repeat
    failed runs. ``analysis``: options of `mio2trace.analysis`. ``tables_only``: without the snapshots that make runs
    inputs of other commands. ``function``: gets a `Work` and a folder, writes tables there, moves them into place
    (`put`), and returns a `Made`."""

    limits: Limits = UNLIMITED
    shard: tuple[int, int] | None = None
    again: bool = False
    analysis: Mapping[str, Any] = {}
    tables_only: bool = False
    function: str = ANALYSE


class Work(NamedTuple):
    """The work for a worker. ``folder``: the dataset. ``staging``: a folder in it for unfinished tables. ``before``:
    names that the run had in the dataset."""

    run: FoundRun
    folder: str
    staging: str
    options: BatchOptions = BatchOptions()
    before: tuple[str, ...] = ()


class Made(NamedTuple):
    """The result of a run: ``error``, or the names of its runs in the tables, kernels, and bytes of all tables.
    ``cut``: notes on its files that are cut off.

    ``unwritten``: the dataset's place caused the error, not the run; a repetition may work.
    """

    error: str | None = None
    unwritten: bool = False
    rows: tuple[str, ...] = ()
    kernels: int = 0
    bytes: int = 0
    cut: tuple[str, ...] = ()


def do(work: Work) -> Entry:
    """Return the run's line of the journal. Its tables are in place, or its earlier tables are gone."""
    begun = time.monotonic()
    staging = ""
    try:
        os.makedirs(work.staging, exist_ok=True)
        staging = tempfile.mkdtemp(dir=work.staging)
        for _ in range(ATTEMPTS):
            ended = of_this_thread(MODULES).call(work.options.function, work, staging, limits=work.options.limits)
            if ended.how != "lost":
                break
    except OSError as error:
        ended = Ended("raised", said=f"cannot write to the dataset: {error.strerror or type(error).__name__}")
    made: Made = ended.value if ended.how == "done" else Made(error=ended.said)
    with contextlib.suppress(OSError):
        if staging:
            shutil.rmtree(staging)
    if made.error is not None:
        put_failure(work, made.error)
    return entry_of(work, made, () if made.unwritten else ended.told or (), time.monotonic() - begun)


def entry_of(work: Work, made: Made, inputs: tuple[str, ...], seconds: float) -> Entry:
    return Entry(
        run=work.run.name,
        state="converted" if made.error is None else "failed",
        inputs=inputs,
        **made_with(work.options),
        seconds=round(seconds, 3),
        ended=round(time.time(), 3),
        error=made.error,
        kernels=made.kernels,
        cut=made.cut,
        bytes=made.bytes,
        rows=made.rows if made.rows != (work.run.name,) else (),
    )


def put_failure(work: Work, error: str) -> None:
    """Write one row of the table of runs for a failed run; nothing if even this fails."""
    remove(work.folder, {work.run.name, *work.before})
    with contextlib.suppress(OSError):
        of_this_thread(MODULES).call("mio2trace.batch.work:written_failure", work.folder, work.run.name, error)


def written_failure(folder: str, name: str, error: str, *, tell: Tell) -> None:
    """Write that row in a confined process, like the analysis."""
    write_tables({"runs": failed_run(name, error)}, folder, name)


def made_with(options: BatchOptions) -> dict[str, Any]:
    """Return the fields of an `Entry` that decide, besides the files, whether tables are up to date."""
    # Tables of runs that were read with other options differ.
    chosen = {**options.analysis, "tables_only": options.tables_only}
    asked = " ".join(f"{name}={value}" for name, value in sorted(chosen.items()) if value not in (None, False, ()))
    return {"version": mio2trace.__version__, "layout": layout(options.tables_only), "options": asked}


@cache
def layout(tables_only: bool) -> str:
    """Return a short description of all stored data of a run: the columns of tables, the fields of a snapshot's
    records. If it changes, runs are done again, even in the same version."""
    kept = [f"{VERSION}"]
    for table in TABLES.values():
        kept += (f"{table.name}.{column.name} {column.kind}" for column in table.columns)
    if not tables_only:
        kept.append(files.VERSION)
        for name, kind in sorted(objects.classes_in(files.Snapshot).items()):
            kept.append(f"{name} {kind.__struct_fields__}")
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:8]


def before_forking() -> None:
    """Prepare what each run would otherwise repeat."""
    keep_one_open()
    keep_empty_tables()
    objects.look_at_all(files.Snapshot)
    look_at_text()
    _rehearse()


def _rehearse() -> None:
    """Read a small log: expressions are compiled on first use, and most runs use the same ones."""
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        log = Path(folder) / "run.log"
        log.write_text(_LOG)
        with contextlib.suppress(InputError):
            analyse([str(log)])


def analysed(work: Work, staging: str, *, tell: Tell) -> Made:
    """Analyse a run, write its tables, and move them into place."""
    try:
        tell(hashes(work.run.files))
        analysis = analyse(work.run.files, AnalysisOptions(**work.options.analysis))
        runs = analysis.each
        require_anything(runs, analysis)
    except (InputError, OptionError) as error:
        return Made(error=Cleaner().quoted(str(error)))
    except OSError as error:
        return Made(error=error.strerror or type(error).__name__)
    try:
        names = [work.run.name if len(runs) == 1 else f"{work.run.name}/{run.name}" for run in runs]
        beside = [run for run in analysis.runs if run is not runs[0]] if len(runs) == 1 else []
        for run, name in zip(runs, names, strict=True):
            write_run(
                run,
                staging,
                name,
                analysis.notes,
                cleaner=analysis.cleaner,
                tables_only=work.options.tables_only,
                beside=beside,
            )
        written = put(staging, work.folder)
        remove(work.folder, {work.run.name, *work.before} - set(names))
    except InputError as error:
        return Made(error=Cleaner().quoted(str(error)), unwritten=True)
    except OSError as error:
        return Made(error=f"cannot write to the dataset: {error.strerror or type(error).__name__}", unwritten=True)
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryException":  # an error of DuckDB
            raise MemoryError from None
        raise
    kernels = sum(int(one.alignment.profile.commands.is_kernel.sum()) for run in runs for one in run.drawn)
    cut = tuple(note.kind for note in analysis.notes if note.is_lost)
    return Made(rows=tuple(names), kernels=kernels, bytes=written, cut=cut)


def put(staging: str, folder: str) -> int:
    """Move finished tables into the dataset, the table of runs last: a run in that table is complete. Return their
    bytes."""
    written = 0
    for table in sorted(Path(staging).iterdir(), key=lambda path: (path.name == "runs", path.name)):
        target = Path(folder) / table.name
        target.mkdir(exist_ok=True)
        for file in sorted(table.iterdir()):
            written += file.stat().st_size
            os.replace(file, target / file.name)
    return written


def remove(folder: str, names: Collection[str]) -> None:
    """Remove the tables of runs from the dataset, the table of runs first."""
    for name in sorted(names):
        for table in sorted(FOLDERS, key=lambda table: (table != "runs", table)):
            with contextlib.suppress(OSError):
                (Path(folder) / table / file_name(name)).unlink()


INSTALL = "pip install 'mio2trace[cluster]'"
CONNECT_S = 60
ENCRYPTED = "tls://"


Engine = tuple[Executor, int]
"""An executor, and the number of its workers."""


@contextlib.contextmanager
def processes(workers: int = 1) -> Iterator[Engine]:
    """Start processes on this machine; running calls are ended when the context ends."""
    led: list[Confined] = []
    pool = ThreadPoolExecutor(workers, initializer=lambda: led.append(of_this_thread(MODULES)))
    try:
        yield pool, workers
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
    try:
        from distributed import Client
    except ImportError:
        raise InputError(f"a cluster needs Dask, which is not installed: {INSTALL}") from None
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()  # Dask logs lost workers with tracebacks; the batch reports them in one line
        try:
            client = stack.enter_context(Client(address_in(scheduler_file), timeout=CONNECT_S))  # type: ignore[no-untyped-call]
        except (OSError, ValueError, TypeError, KeyError) as error:  # a TypeError if a certificate is missing
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(f"{scheduler_file}: cannot reach the scheduler: {first}") from None
        yield client.get_executor(pure=False), len(client.nthreads())


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


# -- Control of a batch ------------------------------------------------------------------------------------------------

HASHED_AT_ONCE = 4
HANDED_ON = 5
"""How often a run is given to another worker after the worker of a cluster is lost."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """How the runs ended, now and in earlier batches."""

    done: tuple[Entry, ...]
    before: tuple[Entry, ...]
    journal: str

    @property
    def failed(self) -> list[Entry]:
        return sorted((one for one in (*self.done, *self.before) if one.state == "failed"), key=lambda one: one.run)

    @property
    def copies(self) -> list[str]:
        """The names of runs whose files an earlier run also has."""
        first: dict[tuple[str, ...], str] = {}
        used = sorted((one for one in (*self.done, *self.before) if one.state != "failed"), key=lambda one: one.run)
        return [one.run for one in used if first.setdefault(tuple(sorted(one.inputs)), one.run) != one.run]


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
    now = made_with(options)
    tables = [table for table in FOLDERS if table != SNAPSHOT or not options.tables_only]

    def is_done(run: FoundRun) -> bool:
        entry = entries.get(run.name)
        if entry is None or (entry.state == "failed" and options.again):
            return False
        if any(getattr(entry, name) != value for name, value in now.items()):
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
            options=options,
            before=() if before is None else before.names,
        )


def _work_off(engine: Engine, works: Iterable[Work], ended: Callable[[Entry], None]) -> None:
    """Give all works to the engine, more at a time than it works on, because workers may join; repeat a run if its
    worker is lost."""
    executor, workers = engine
    ahead = max(256, 4 * workers)
    pending: dict[Future[Entry], tuple[Work, int]] = {}
    waiting = iter(works)
    while True:
        for work in islice(waiting, ahead - len(pending)):
            pending[executor.submit(do, work)] = (work, 1)
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
            elif attempts < HANDED_ON and type(error).__name__ == "KilledWorker":
                pending[executor.submit(do, work)] = (work, attempts + 1)
            else:
                ended(_lost(work, error, attempts))


def _lost(work: Work, error: BaseException, attempts: int) -> Entry:
    """Write a row and a line for a run whose worker did not answer or could not do anything."""
    said = f"{attempts} workers were lost with it" if attempts > 1 else f"a worker failed: {type(error).__name__}"
    put_failure(work, said)
    close_that_of_this_thread()
    return entry_of(work, Made(error=said), (), 0)
