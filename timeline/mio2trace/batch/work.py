"""One run of many: its own process analyses and writes it. The worker only learns the result, and never fails."""

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


class Work(NamedTuple):
    """The work for a worker. ``function``: gets this and a folder, writes tables there, moves them into place (`put`),
    and returns a `Made`. ``folder``: the dataset. ``staging``: a folder in it for unfinished tables. ``before``: names
    that the run had in the dataset. ``options``: of `analyse`. ``tables_only``: without the snapshot that makes the run
    an input of other commands."""

    run: FoundRun
    folder: str
    staging: str
    limits: Limits = UNLIMITED
    options: Mapping[str, Any] = {}
    before: tuple[str, ...] = ()
    tables_only: bool = False
    function: str = ANALYSE


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
    return Entry(
        run=work.run.name,
        state="converted" if made.error is None else "failed",
        inputs=inputs,
        **maker_of(work.options, work.tables_only)._asdict(),
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
    from mio2trace.dataset import write_failed

    write_failed(folder, name, error)


def maker_of(options: Mapping[str, Any], tables_only: bool) -> Maker:
    """Return the layout and the options that determine tables now."""
    return Maker(mio2trace.__version__, layout(tables_only), asked(options, tables_only))


@cache
def layout(tables_only: bool) -> str:
    """Return a short description of all stored data of a run: the columns of tables, the fields of a snapshot's
    records. If it changes, runs are done again, even in the same version."""
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
    """Prepare what each run would otherwise repeat."""
    from mio2trace.dataset import keep_empty_tables
    from mio2trace.privacy.cleaner import look_at_all as look_at_text
    from mio2trace.snapshot.database import keep_one_open
    from mio2trace.snapshot.files import Snapshot
    from mio2trace.snapshot.objects import look_at_all

    keep_one_open()
    keep_empty_tables()
    look_at_all(Snapshot)
    look_at_text()
    _rehearse()


def _rehearse() -> None:
    """Read a small log: expressions are compiled on first use, and most runs use the same ones."""
    from mio2trace.analysis import analyse

    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        log = Path(folder) / "run.log"
        log.write_text(_LOG)
        with contextlib.suppress(InputError):
            analyse([str(log)])


def asked(options: Mapping[str, Any], tables_only: bool) -> str:
    """Return the options that differ from the defaults: tables of runs that were read with other options differ."""
    chosen = {**options, "tables_only": tables_only}
    return " ".join(f"{name}={value}" for name, value in sorted(chosen.items()) if value not in (None, False, ()))


def analysed(work: Work, staging: str, *, tell: Tell) -> Made:
    """Analyse a run, write its tables, and move them into place."""
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
        if type(error).__name__ == "OutOfMemoryException":  # an error of DuckDB
            raise MemoryError from None
        raise
    kernels = sum(one.kind == "kernel" for run in runs for profile in run.profiles for one in profile.activities)
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
    from mio2trace.dataset import FOLDERS, file_name

    for name in sorted(names):
        for table in sorted(FOLDERS, key=lambda table: (table != "runs", table)):
            with contextlib.suppress(OSError):
                (Path(folder) / table / file_name(name)).unlink()
