"""``mio2trace FILE... -o out.parquet``: a run as a folder of tables, an input as its files are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from mio2trace.analysis import Run, analyse
from mio2trace.answer import report_of
from mio2trace.answer.text import FULL
from mio2trace.commands.options import Reading
from mio2trace.commands.printing import say, tell
from mio2trace.dataset import replace, require_anything
from mio2trace.files import STANDARD_INPUT
from mio2trace.notes import InputError

OPTIONS = ("host_calls", "without", "reading", "several", "strict", "keep", "quiet")
"""Of `convert`, those that say what is read and joined."""


def write_tables(  # noqa: PLR0913 - keyword-only options
    files: Sequence[str],
    output: str,
    *,
    host_calls: Any,
    without: Sequence[str],
    reading: Reading,
    several: bool,
    strict: bool,
    keep: Sequence[str],
    quiet: bool,
) -> None:
    """Write the run, or with ``several`` each, to the folder ``output``. Raises `InputError`."""
    place = os.path.join(os.path.realpath(output), "")
    if any(os.path.join(os.path.realpath(file), "").startswith(place) for file in files if file != STANDARD_INPUT):
        raise click.UsageError(f"{output} is an input, too")
    options = reading.analysis(host_calls=host_calls == "all", without=frozenset(without), keep=tuple(keep))
    analysis = analyse(files, options)
    runs = analysis.complete or analysis.runs[:1] if several else (analysis.run,)
    if strict and analysis.notes.problems:
        raise InputError("--strict: " + "; ".join(map(str, analysis.notes.problems)))
    repetitions: tuple[Run, ...] = ()
    if analysis.has_repetitions and len(files) == 1 and files[0] != STANDARD_INPUT and reading.repetition is None:
        repetitions = analyse(files, msgspec.structs.replace(options, repetition="every")).runs
    require_anything(runs, analysis)
    rows = replace(output, runs, analysis, repetitions)
    if quiet:
        say(analysis.notes, [], quiet)
        return
    for section in report_of(analysis, runs).sections[:FULL]:
        tell(section.verdict)
    say(analysis.notes, [], quiet)
    size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(output) for name in names)
    counted = ", ".join(f"{count} {table}" for table, count in rows.items() if count and table != "runs")
    tell(f"wrote {output} ({size / 1e6:.1f} MB): {rows['runs']} runs, {counted}" if counted else f"wrote {output}")
