"""``mio2trace batch``: all runs in folders as one dataset."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from mio2trace import commands as console
from mio2trace.commands import say, tell
from mio2trace.outgoing import count, shortened

if TYPE_CHECKING:
    from mio2trace.batch.finding import FoundRun
    from mio2trace.batch.work import Batch, Entry

SHOWN = 10
"""The most failed runs in the last lines of the output."""
LINE = 160
"""The most characters of the reason of a failure."""
SAID_EVERY_S = 30.0
"""Seconds between two lines of progress if standard error is no terminal."""
DRAWN_EVERY_S = 0.2
LEAST_MEMORY = 300_000_000
"""Bytes. Loading the program takes a third of this before any run."""

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})", re.ASCII)


def _shard(text: str) -> tuple[int, int]:
    """Convert ``I/N``, part I of N parts. Job arrays count from 0 or from 1, so part N is part 0."""
    match = _SHARD.fullmatch(text)
    if match is None or not 0 <= int(match[1]) <= int(match[2]) or not int(match[2]):
        raise click.BadParameter(f"{text!r} is no part such as 3/8")
    return int(match[1]) % int(match[2]), int(match[2])


@click.command(cls=console.Command, no_args_is_help=True)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", shell_complete=console.complete_files)
@click.option("-o", "--output", required=True, metavar="FOLDER", help="The dataset. An existing dataset is resumed.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Number of processes on this machine.")
@click.option("--scheduler-file", metavar="FILE", help="Use the Dask cluster of this scheduler file.")
@click.option("--shard", type=_shard, metavar="I/N", help="Convert only this part of the runs, for job arrays.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, max=1e7),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="A run that takes longer fails. 0: no limit.",
)
@click.option(
    "--memory-limit",
    type=console.size,
    metavar="SIZE",
    help="A run that needs more memory than this, such as 4GB, fails.",
)
@console.flag(
    "--tables-only",
    help="Write only the tables, without the snapshots that other commands read. Smaller and faster.",
)
@console.flag("--retry", help="Repeat runs that failed before.")
@console.flag("--strict", help="Exit with 1 if a run failed.")
@console.reading_options
def batch(  # noqa: PLR0913 - click gives each option by keyword
    paths: tuple[str, ...],
    output: str,
    workers: int | None,
    scheduler_file: str | None,
    shard: tuple[int, int] | None,
    timeout: float,
    memory_limit: int | None,
    tables_only: bool,
    retry: bool,
    strict: bool,
    inputs: console.Inputs,
) -> None:
    """Convert all runs in folders to one dataset of Parquet files, with any number of workers.

    PATHs are folders of runs, or files. A run is a folder, an archive, or a log with its profile (docs/many-runs.md).
    Runs that are done are skipped the next time, if their files and the program's version are the same. A run that
    cannot be used, hangs or crashes does not stop the others.

    \b
    Examples:
      mio2trace batch runs/ -o ds/
      mio2trace batch runs/ -o ds/ --workers 8 --timeout 600 --memory-limit 4GB
      mio2trace batch runs/ -o ds/ --scheduler-file s.json
      mio2trace batch runs/ -o ds/ --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
    """
    from mio2trace.batch import work
    from mio2trace.batch.confined import Limits
    from mio2trace.batch.finding import find_runs
    from mio2trace.batch.work import BatchOptions, run_batch
    from mio2trace.notes import InputError, Notes

    _require_libraries()
    if memory_limit is not None and memory_limit < LEAST_MEMORY:
        raise click.UsageError(f"--memory-limit: a run needs {LEAST_MEMORY // 1_000_000} MB at least")
    if workers and scheduler_file:
        raise click.UsageError("--workers cannot be combined with --scheduler-file")
    begun = time.monotonic()
    notes = Notes()
    runs = find_runs(paths, notes, leave_out=output)
    if not runs:
        say(notes, [], inputs.quiet)
        raise InputError(f"{', '.join(paths[:3])}: no run there; expected folders that hold logs and profiles")
    progress = _Progress(inputs.quiet)
    options = BatchOptions(
        limits=Limits(timeout or None, memory_limit),
        shard=shard,
        again=retry,
        analysis=inputs.reading,
        tables_only=tables_only,
    )
    engine = functools.partial(work.processes, workers or 1)
    if scheduler_file is not None:
        engine = functools.partial(work.cluster_of, scheduler_file)
        if not inputs.quiet:
            _warn_of_an_open_cluster(scheduler_file)
    try:
        made = run_batch(runs, output, engine, options, progress.plan, progress.take)
    finally:
        progress.done()
    said = [] if inputs.quiet else _said(made, output, time.monotonic() - begun)
    for entry in (*made.done, *made.before):
        for kind in entry.cut:
            notes.add(kind, entry.run)
    for copy in made.copies:
        notes.remark("run of the same files as another one: each is counted in the dataset", copy)
    say(notes, [], inputs.quiet)
    for line in said:
        tell(line)
    if strict and made.failed:
        raise click.exceptions.Exit(1)


def _require_libraries() -> None:
    """Raises `InputError` if the libraries that write the tables are not installed."""
    from importlib.util import find_spec

    from mio2trace.notes import InputError

    missing = [name for name in ("duckdb", "nanoarrow") if find_spec(name) is None]
    if missing:
        raise InputError(f"this needs {' and '.join(missing)}: pip install 'mio2trace[batch]'")


def _warn_of_an_open_cluster(scheduler_file: str) -> None:
    """Warn about a cluster on which anybody who can connect may run code. It may be the user's own, on a private
    network."""
    from mio2trace.batch.work import ENCRYPTED, address_in

    if not address_in(scheduler_file).startswith(ENCRYPTED):
        tell(
            "problem: the cluster asks for no certificates: anybody who reaches its ports can run code in it"
            " (docs/many-runs.md)"
        )


def _said(made: Batch, output: str, seconds: float) -> list[str]:
    """Return the last lines: counts, then the runs that failed."""
    entries = (*made.done, *made.before)
    failed = made.failed
    converted = len(entries) - len(failed)
    counts = f"{count(len(entries), 'run')}: {converted} converted, {len(failed)} failed"
    if not made.done:
        retry = "; --retry does those that failed again" if failed else ""
        head = f"{counts}, all of them before: nothing to do{retry}"
    else:
        before = f", {len(made.before)} of them before" if made.before else ""
        kernels, size = sum(one.kernels for one in made.done), sum(one.bytes for one in made.done)
        head = f"{counts}{before}, {duration(seconds)}; {_short(kernels, 'kernel')}, {size / 1e6:.3g} MB"
    shown = [f"{one.run}: {one.error}" for one in failed[:SHOWN]]
    lines = [head, *(f"  {shortened(line, LINE)}" for line in shown)]
    more = f"and {len(failed) - SHOWN} more; " if len(failed) > SHOWN else ""
    if more or any(len(line) > LINE for line in shown):
        lines.append(f"  {more}{output.rstrip('/')}/{made.journal} has all")
    return lines


def _short(number: int, noun: str) -> str:
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= least:
            return f"{number / (1e3 if unit == 'k' else least):.1f} {unit} {noun}s"
    return count(number, noun)


WORTH_OF_A_RUN = 100_000
"""A run costs a fixed time as well: as much as this many bytes take."""
MINUTE, HOUR = 60, 3600


class _Progress(console.ProgressLine):
    """Progress of a batch, its speed, and the time that is left: one line of the terminal that is rewritten, or a new
    line from time to time. The largest runs come first, so the time depends on bytes."""

    def __init__(self, quiet: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._say: Callable[[str], None] = self.show if console.is_terminal() else tell
        self._every_s = DRAWN_EVERY_S if console.is_terminal() else SAID_EVERY_S
        self._last = time.monotonic()

    def plan(self, to_do: Sequence[FoundRun]) -> None:
        self._begun = time.monotonic()
        self._worth = {run.name: run.size + WORTH_OF_A_RUN for run in to_do}
        self._done: dict[str, Entry] = {}

    def take(self, entry: Entry) -> None:
        self._done[entry.run] = entry
        now = time.monotonic()
        if not self._quiet and now - self._last >= self._every_s:
            self._last = now
            self._say(self.line(now))

    def line(self, now: float) -> str:
        """``120 of 1000 runs, 2 failed, 3.8 runs/s, 3 m 51 s left``."""
        passed = max(now - self._begun, 1e-9)
        parts = [f"{len(self._done):,} of {count(len(self._worth), 'run')}"]
        failed = sum(entry.state == "failed" for entry in self._done.values())
        if failed:
            parts.append(f"{failed} failed")
        rate = len(self._done) / passed
        parts.append(f"{rate:.3g} runs/s" if rate >= 0.1 else f"{rate * HOUR:.3g} runs/h")
        worked_off = sum(self._worth[run] for run in self._done)
        left = sum(self._worth.values()) - worked_off
        if left > 0:
            parts.append(f"{duration(passed * left / worked_off)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return the two largest units of a duration: ``4 m 26 s``."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE} m"
