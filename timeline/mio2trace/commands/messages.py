"""``mio2trace messages``: what MIOpen's logs say."""

from __future__ import annotations

import click

from mio2trace.commands import options
from mio2trace.commands.logs import logged
from mio2trace.commands.printing import show
from mio2trace.outgoing import count

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
