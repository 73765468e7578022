"""``mio2trace ranks``: show which ranks wait at the collectives of a job, which one comes last, and why.

``mio2trace merge``: write one trace for the ranks of a job.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.printing import put, say, show, tell

if TYPE_CHECKING:
    from mio2trace.analysis import Run
    from mio2trace.model.profile import Profile


@click.command(cls=options.TableCommand, no_args_is_help=True)
@options.files_argument
@options.flag("--each", help="Print one row per collective: the rank that came last, by how much, and why.")
@options.table_options
@options.reading_options
def ranks(
    files: tuple[str, ...], each: bool, printing: options.Printing, reading: options.Reading, quiet: bool
) -> None:
    """Show which ranks of a job wait at collectives, which rank comes last, and why.

    FILEs are the inputs of `mio2trace merge`. Transfer: the time of the shortest kernel of a collective on any rank.
    Wait: the time by which a rank's own kernel is longer. Skew: the time between the first and the last start. The
    straggler is the rank that arrives last most often. --format prints a table with one row per rank.

    \b
    Examples:
      mio2trace ranks rank0/ rank1/
      mio2trace ranks job/ --each --sort lead_ns
    """
    from mio2trace.analysis import analyse
    from mio2trace.answer.ranks import lines
    from mio2trace.commands.printing import process_cells
    from mio2trace.notes import InputError
    from mio2trace.ranks import each_table, meetings, said, table, totals

    analysis = analyse(files, reading.analysis())
    run = analysis.run
    if not run.is_job:
        raise InputError(f"{analysis.names}: not of several processes of one job; expected the files of its ranks")
    met = meetings(run.alignments)
    of = totals(met, len(run.alignments))
    labels = labels_of(run)
    if not each and not printing.is_chosen:
        machines = [_machine(alignment.profile) for alignment in run.alignments]
        put((f"{line}\n" for line in lines(met, of, labels, machines)), printing.path)
        say(analysis.notes, [], quiet)
        return
    unit = printing.unit_of_time()
    cells = [process_cells(alignment.profile) for alignment in run.alignments]
    show(
        lambda: each_table(met, labels, unit) if each else table(of, cells, unit),  # type: ignore[arg-type]
        printing,
        analysis.notes,
        [said(of, labels)] if of else [],
        quiet,
    )


def _machine(profile: Profile) -> str:
    """Return a name for the machine of a process; empty if its profile does not record it."""
    scope = profile.clocks[0].scope
    return "" if scope.startswith("file ") else scope


def labels_of(run: Run) -> list[str]:
    """The names of the processes in the trace: ``rank 0``, ``rank 1``."""
    return [alignment.profile.process.label for alignment in run.alignments]


@click.command(cls=options.Command, no_args_is_help=True)
@click.argument("files", nargs=-1, required=True, metavar="RANK...", shell_complete=options.complete_files)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Output file. .pftrace: Perfetto's native format. .json: for other viewers. Both may end in .gz. .tar: one"
    " trace per rank in an archive. -: stdout.",
)
@options.check_option
@options.reading_options
def merge(files: tuple[str, ...], output: str, check: bool, reading: options.Reading, quiet: bool) -> object:
    """Write one trace for all ranks of a job.

    RANKs are the folders that the ranks wrote, or their profiles and logs. The clocks of the ranks are related by
    evidence: one machine's clock, collectives that must overlap, Unix time. Without evidence the job is refused;
    --align start begins each rank at its own start. Standard error names the rank that arrives last at the collectives;
    `mio2trace ranks` has the table.

    \b
    Examples:
      mio2trace merge rank0/ rank1/ -o job.pftrace.gz
      mio2trace merge job/ -o job.pftrace.gz
      mio2trace merge rank*.pt.trace.json.gz -o job.pftrace.gz
      mio2trace merge job/ -o job.tar
    """
    from mio2trace import conversion
    from mio2trace.files import replacing
    from mio2trace.ranks import meetings, said, totals
    from mio2trace.writers import archive

    options.refuse_to_overwrite(files, output)
    in_parts = output.lower().endswith(archive.SUFFIX)
    made = conversion.convert(
        *files, output=None if in_parts else output, of_a_job=True, check=check, **reading._asdict()
    )
    if in_parts:
        with replacing(output) as target:
            archive.write(made.trace, target)
    if not quiet:
        (run,) = made.runs
        lines = [*made.account.inputs, *(line for line in made.account.evidence if line.startswith("clocks: "))]
        lines.append(said(totals(meetings(run.alignments), len(run.alignments)), labels_of(run)))
        for line in (*lines, *made.account.notes):
            tell(line)
        if output != "-":
            tell(f"wrote {output} ({os.path.getsize(output) / 1e6:.1f} MB): open it at https://ui.perfetto.dev")
    else:
        for line in made.problems:
            tell(line)
    return made
