"""One run of many: analysed and written by a process of its own; the worker learns how that ended, and never fails."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mio2trace
from mio2trace.batch.confined import UNLIMITED, Ended, Limits, Tell, of_this_thread
from mio2trace.batch.finding import FoundRun
from mio2trace.batch.journal import Entry, Maker, hashes
from mio2trace.notes import InputError

ANALYSE = "mio2trace.batch.work:analysed"
MODULES = ("mio2trace.batch.work", "mio2trace.dataset", "duckdb", "nanoarrow")
"""What the warm process imports: more than the first run's own imports would be paid by each."""
_LOG = """I0101 00:00:00.000001     1 caffe.cpp:1] Use GPU with device ID 0
I0101 00:00:00.000002     1 caffe.cpp:1] Iteration: 1 forward-backward time: 1 ms.
MIOpen(OpenCL): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 1 -H 8 -W 8 -k 4 -y 3 -x 3 -F 1 -t 1
MIOpen(OpenCL): miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *){
MIOpen(OpenCL): handle = 0x1000
MIOpen(OpenCL): }
"""
ATTEMPTS = 3
"""Times that a run is given to a warm process that is then killed."""


class Work(NamedTuple):
    """What a worker is given. ``function``: gets this and a folder, writes tables there, puts them in place (`put`),
    gives a `Made`. ``folder``: the dataset; ``staging`` in it: where tables are before they are whole. ``before``:
    names that the run had in it. ``options``: of `analyse`. ``tables_only``: without what makes the run an input of
    other commands.
    """

    run: FoundRun
    folder: str
    staging: str
    limits: Limits = UNLIMITED
    options: Mapping[str, Any] = {}
    before: tuple[str, ...] = ()
    tables_only: bool = False
    function: str = ANALYSE


class Made(NamedTuple):
    """The result of a run: ``error``, or the names of its runs in the tables, kernels, bytes of all tables. ``cut``:
    notes on its files that are cut off.

    ``unwritten``: the error is the dataset's place, not the run: another time it may work.
    """

    error: str | None = None
    unwritten: bool = False
    rows: tuple[str, ...] = ()
    kernels: int = 0
    bytes: int = 0
    cut: tuple[str, ...] = ()


def do(work: Work) -> Entry:
    """The run's line of the journal. Its tables are in place, or those that it had before are gone."""
    begun = time.monotonic()
    staging = ""
    try:
        os.makedirs(work.staging, exist_ok=True)
        staging = tempfile.mkdtemp(dir=work.staging)
        for _ in range(ATTEMPTS):
            ended = of_this_thread(MODULES).call(work.function, work, staging, limits=work.limits)
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
    maker = maker_of(work.options, work.tables_only)
    return Entry(
        run=work.run.name,
        state="converted" if made.error is None else "failed",
        inputs=inputs,
        version=maker.version,
        layout=maker.layout,
        options=maker.options,
        seconds=round(seconds, 3),
        ended=round(time.time(), 3),
        error=made.error,
        kernels=made.kernels,
        cut=made.cut,
        bytes=made.bytes,
        rows=made.rows if made.rows != (work.run.name,) else (),
    )


def put_failure(work: Work, error: str) -> None:
    """Write one row of the table of runs for a failed run; if even this cannot be written, nothing."""
    remove(work.folder, {work.run.name, *work.before})
    with contextlib.suppress(OSError):
        of_this_thread(MODULES).call("mio2trace.batch.work:written_failure", work.folder, work.run.name, error)


def written_failure(folder: str, name: str, error: str, *, tell: Tell) -> None:
    """Called where it can do no harm, as the analysis is."""
    from mio2trace.dataset import write_failed

    write_failed(folder, name, error)


def maker_of(options: Mapping[str, Any], tables_only: bool) -> Maker:
    """Return the layout and options that determine tables now."""
    return Maker(mio2trace.__version__, layout(tables_only), asked(options, tables_only))


@cache
def layout(tables_only: bool) -> str:
    """Of all that is kept of a run, in short: the columns of tables, the fields of a snapshot's records. When these
    are others, runs are done again, whatever the version is called."""
    from mio2trace.schema import TABLES, VERSION
    from mio2trace.snapshot import files, objects

    kept = [f"{VERSION}"]
    for table in TABLES.values():
        kept += (f"{table.name}.{column.name} {column.kind}" for column in table.columns)
    if not tables_only:
        kept.append(files.VERSION)
        for name, kind in sorted(objects.classes_in(files.Snapshot).items()):
            kept.append(f"{name} {kind.__struct_fields__}")
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:8]


def before_forking() -> None:
    """What each run would else pay for."""
    from mio2trace.dataset import keep_empty_tables
    from mio2trace.privacy.fields import look_at_all as look_at_text
    from mio2trace.snapshot.database import keep_one_open
    from mio2trace.snapshot.files import Snapshot
    from mio2trace.snapshot.objects import look_at_all

    keep_one_open()
    keep_empty_tables()
    look_at_all(Snapshot)
    look_at_text()
    _rehearse()


def _rehearse() -> None:
    """Read a log: an expression is compiled when it is used first, and most runs use the same ones."""
    from mio2trace.analysis import analyse

    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        log = Path(folder) / "run.log"
        log.write_text(_LOG)
        with contextlib.suppress(InputError):
            analyse([str(log)])


def asked(options: Mapping[str, Any], tables_only: bool) -> str:
    """What was asked for besides the usual: tables of runs that were read otherwise are others."""
    chosen = {**options, "tables_only": tables_only}
    return " ".join(f"{name}={value}" for name, value in sorted(chosen.items()) if value not in (None, False, ()))


def analysed(work: Work, staging: str, *, tell: Tell) -> Made:
    """Analyse a run, write its tables, put them in place."""
    from mio2trace.analysis import AnalysisOptions, analyse
    from mio2trace.dataset import require_anything, write_run
    from mio2trace.notes import OptionError
    from mio2trace.privacy import Cleaner

    try:
        tell(hashes(work.run.files))
        analysis = analyse(work.run.files, AnalysisOptions(**work.options))
        runs = analysis.complete or analysis.runs[:1]
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
                tables_only=work.tables_only,
                beside=beside,
            )
        written = put(staging, work.folder)
        remove(work.folder, {work.run.name, *work.before} - set(names))
    except InputError as error:
        return Made(error=Cleaner().quoted(str(error)), unwritten=True)
    except OSError as error:
        return Made(error=f"cannot write to the dataset: {error.strerror or type(error).__name__}", unwritten=True)
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryException":  # DuckDB's
            raise MemoryError from None
        raise
    kernels = sum(one.kind == "kernel" for run in runs for profile in run.profiles for one in profile.activities)
    cut = tuple(note.kind for note in analysis.notes if note.is_lost)
    return Made(rows=tuple(names), kernels=kernels, bytes=written, cut=cut)


def put(staging: str, folder: str) -> int:
    """Move whole tables into the dataset, the table of runs last: a run that is in it is whole. Returns their bytes."""
    written = 0
    for table in sorted(Path(staging).iterdir(), key=lambda path: (path.name == "runs", path.name)):
        target = Path(folder) / table.name
        target.mkdir(exist_ok=True)
        for file in sorted(table.iterdir()):
            written += file.stat().st_size
            os.replace(file, target / file.name)
    return written


def remove(folder: str, names: Collection[str]) -> None:
    """Take the tables of runs out of the dataset, the table of runs first."""
    from mio2trace.dataset import FOLDERS, file_name

    for name in sorted(names):
        for table in sorted(FOLDERS, key=lambda table: (table != "runs", table)):
            with contextlib.suppress(OSError):
                (Path(folder) / table / file_name(name)).unlink()
