"""``mio2trace merge``: the ranks of a job in one picture."""

from __future__ import annotations

import click

from mio2trace.commands.options import Command, Reading, complete_files, reading_options, refuse_to_overwrite
from mio2trace.commands.printing import tell


@click.command(cls=Command, no_args_is_help=True)
@click.argument("files", nargs=-1, required=True, metavar="RANK...", shell_complete=complete_files)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Where to write: .json, .pftrace (Perfetto's native form), either with .gz; .tar: a trace of each rank in one"
    " archive; - for stdout.",
)
@click.option("--check", is_flag=True, help="Verify the invariants of this very trace while writing it.")
@reading_options
def merge(files: tuple[str, ...], output: str, check: bool, reading: Reading, quiet: bool) -> object:
    """The ranks of a job in one picture.

    RANKs are the folders that the ranks wrote, or their profiles and logs. How their clocks relate rests on evidence:
    one machine's clock, collectives that must overlap, Unix time; without any the job is refused (--align start draws
    each rank from its own start). Standard error says who arrives last at the collectives; `mio2trace ranks` has the
    table.

    \b
    Examples:
      mio2trace merge rank0/ rank1/ -o job.pftrace.gz
      mio2trace merge job/ -o job.pftrace.gz
      mio2trace merge rank*.pt.trace.json.gz -o job.pftrace.gz
      mio2trace merge job/ -o job.tar
    """
    import os

    from mio2trace import conversion
    from mio2trace.commands.ranks import labels_of
    from mio2trace.files import replacing
    from mio2trace.ranks import meetings, said, totals
    from mio2trace.writers import archive

    refuse_to_overwrite(files, output)
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
