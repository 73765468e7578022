"""``mio2trace messages``: what MIOpen's logs say.

``mio2trace driver``: commands that run a log's operations again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.printing import say, show, write
from mio2trace.notes import InputError
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.analysis import Analysis
    from mio2trace.model.choices import SolverTable
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops.families.gemm import Library
    from mio2trace.ops.operation import Operation
    from mio2trace.ops.problem import Form

SUBJECT_WORDS = (
    "errors", "warnings", "search", "workspace", "problems", "calls", "launches", "databases", "builds", "environment",
    "others",
)  # fmt: skip


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@options.words_option("--about", SUBJECT_WORDS, f"Only these subjects: {', '.join(SUBJECT_WORDS)}. Default: all.")
@options.printing_options
@options.reading_options
def messages(
    files: tuple[str, ...],
    about: tuple[str, ...],
    printing: options.Printing,
    reading: options.Reading,
    quiet: bool,
) -> None:
    """Show errors, warnings, searches, workspaces and problems in MIOpen's logs.

    Messages that differ only in their numbers are one row, with their count and the first line; errors come first. A
    search has a row for each candidate, with its time and its result; candidates that do not apply are one row. Keys of
    the databases are decoded into problems, with the driver line that runs them.

    \b
    Examples:
      mio2trace messages run.log
      mio2trace messages run.log --about errors,warnings
      mio2trace messages run.log --about search --format markdown
      mio2trace messages run.log --about problems --columns problem,command
      mio2trace messages gfx942130.HIP.fdb.txt --sort ms --columns problem,solver,ms,workspace_bytes
    """
    from mio2trace.analysis import analyse
    from mio2trace.readers import A_LOG
    from mio2trace.readers.miopen.messages import KINDS, SUBJECTS
    from mio2trace.reports import messages as report
    from mio2trace.reports.tables import Table

    analysis = analyse(files, reading.analysis(accepted=A_LOG, join=False, every_message=True))
    found = list(logged(analysis, databases=True))
    whole = report.table(found, {kind.name: kind.subject for kind in KINDS}, SUBJECTS)
    counts = report.subject_counts(whole.rows)
    each = ", ".join(f"{one} {counts[one]}" for one in SUBJECTS if counts[one])
    said = [f"{count(sum(counts.values()), 'record')}: {each}"]
    if about:
        kept = [row for row in whole.rows if row["subject"] in about]
        whole = Table(columns=whole.columns, rows=kept, brief=whole.brief, empty=f"nothing about {', '.join(about)}")
    show(lambda: whole, printing, analysis.notes, said, quiet)


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@options.choice_option(
    "--form",
    ("today", "log"),
    "today: for a current MIOpenDriver. log: in the form of the version that wrote the log.",
)
@options.choice_option(
    "--gemm",
    ("hipblaslt", "rocblas"),
    "Bench program for PyTorch's matrix products: hipblaslt-bench or rocblas-bench.",
)
@options.reading_options
def driver(files: tuple[str, ...], form: str, gemm: Library, reading: options.Reading, quiet: bool) -> None:
    """Print commands that run operations again: for MIOpenDriver, and for a BLAS bench (PyTorch's GEMMs).

    Each command is printed once, most frequent first; with the profile of the run, most kernel time first. The comment
    at its end has the number of calls, and their kernel time per steady iteration. Searches are not counted as calls.
    Operations that the driver cannot express are listed on stderr with the reason. A logged command with anything else
    than known options and plain values is never printed; stderr also lists it.

    \b
    Examples:
      mio2trace driver run.log
      mio2trace driver run.log prof.json
      mio2trace driver run.log | head -n 5 | sh
    """
    from mio2trace.analysis import analyse
    from mio2trace.ops import log_form
    from mio2trace.ops.command import refusal
    from mio2trace.readers import A_LOG
    from mio2trace.reports.driver import lines

    analysis = analyse(files, reading.analysis(accepted=A_LOG))
    notes = analysis.notes
    operations: list[Sequence[Operation]] = []
    version: Form | None = None
    kernel_ns: dict[int, float] | None = None
    if any(run.alignments for run in analysis.runs) and analysis.run.alignment is not None:
        kernel_ns = analysis.run.measures[0].steady.of_operations()
    stated = stated_by_profile(analysis)
    if stated:
        operations.append(stated)
    for name, log, found in () if stated else logged(analysis):
        operations.append(found)
        own = log_form(log)
        if form == "log" and own is None:
            notes.remark("log without driver commands: written for the current driver", name)
        elif version not in (None, own):
            notes.remark("logs of several versions: the commands have the form of the first log", name)
        version = version or own
    commands, refused = lines(
        (one for found in operations for one in found),
        (version or "newest") if form == "log" else "newest",
        kernel_ns if len(operations) == 1 else None,
        gemm,
    )
    texts = sum(bool(one.logged_command and refusal(one.logged_command)) for found in operations for one in found)
    if texts:
        notes.add("logged command with unknown options or values: shown as text, not as a command", count=texts)
    write(f"{line}\n" for line in commands)
    said = [f"{count(len(commands), 'command')}, {count(sum(line.calls for line in commands), 'call')}"]
    say(notes, [*said, *(f"no command for {one}" for one in refused)], quiet)


# -- The parts of an analysis that the commands on MIOpen's logs need --------------------------------------------------


def stated_by_profile(analysis: Analysis) -> tuple[Operation, ...]:
    """Return the operations that the ranges of a profile state; () if its run has a MIOpen log, or no such ranges."""
    if not any(run.alignments for run in analysis.runs):
        return ()
    run = analysis.run
    joined = () if run.libraries else run.alignments if run.is_job else run.alignments[:1]
    return tuple(operation for alignment in joined for operation in alignment.links.operations)


def logged(analysis: Analysis, *, databases: bool = False) -> Iterator[tuple[str, MiopenLog, tuple[Operation, ...]]]:
    """Yield name, log and operations of each file in the given order; if there is a profile, only those of its run.

    ``databases``: also yield find-db and perf-db files, each as a log with a message for each solver of a problem.
    Raises `InputError` for a file without a line of MIOpen, unless this file is the profile.
    """
    from mio2trace.model.choices import GemmTable, SolverTable
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops.choices import operations_of

    with_profile = any(run.profiles for run in analysis.runs)
    runs = [analysis.run] if with_profile else analysis.runs
    operations = {
        id(log): of_log for run in runs for log, of_log in zip(run.libraries, run.operations_by_log, strict=True)
    }
    tables = [record for run in runs for record in run.side_files]
    if with_profile and not operations and not tables:
        raise InputError(f"{analysis.names}: holds no line of MIOpen; expected its log")
    for file in sorted(analysis.inputs, key=lambda file: file.source):
        log = next((record for record in file.records if isinstance(record, MiopenLog)), None)
        table = next((record for record in file.records if isinstance(record, SolverTable)), None)
        if table is not None and databases:
            yield file.name, _as_log(table), ()
        elif log is not None and id(log) in operations:
            yield file.name, log, operations[id(log)]
        elif not databases and (gemms := [one for one in file.records if isinstance(one, GemmTable)]):
            if not with_profile:
                yield file.name, MiopenLog(source=file.source), operations_of(gemms[0])
        elif table is not None and not operations:
            raise InputError(f"{file.name}: a database without calls, which `mio2trace messages` shows; expected a log")
        elif table is None and not with_profile:
            raise InputError(f"{file.name}: holds no line of MIOpen; expected MIOpen's log")


def _as_log(table: SolverTable) -> MiopenLog:
    from mio2trace.model.miopen import Message, MiopenLog

    return MiopenLog(
        source=table.source,
        records=tuple(
            Message(table.source, record.line, "Database", table.kind, text, "find-db record")
            for record in table.records
            for text in record.items()
        ),
    )
