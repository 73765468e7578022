"""``mio2trace ranks``: who waits at the collectives of a job, who comes last, by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.printing import put, say, show

if TYPE_CHECKING:
    from mio2trace.analysis import Run
    from mio2trace.model.profile import Profile


@click.command(cls=options.TableCommand, no_args_is_help=True)
@options.files_argument
@click.option("--each", is_flag=True, help="One row for each collective: who came last, by how much, by what.")
@options.table_options
@options.reading_options
def ranks(
    files: tuple[str, ...], each: bool, printing: options.Printing, reading: options.Reading, quiet: bool
) -> None:
    """Who waits at the collectives of a job, who comes last, and what made it late.

    FILEs are what `mio2trace merge` takes. Transfer is the shortest kernel of a collective on any rank, wait what a
    rank's own takes longer, skew how far the starts lie apart; the straggler arrives last most often. --format prints
    a table, a row for each rank.

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
