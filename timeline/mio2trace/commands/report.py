"""``mio2trace report``: how the time of a run was spent, its findings, and what to try. ``mio2trace ranks``: which
ranks of a job wait at its collectives, which one comes last, and why. ``mio2trace merge``: one trace for all ranks.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

import mio2trace
from mio2trace import commands as console
from mio2trace.commands import process_cells, put, say, show, tell

if TYPE_CHECKING:
    from mio2trace.analysis import Analysis, Run
    from mio2trace.answer import Report
    from mio2trace.findings import Gpu
    from mio2trace.model.profile import Profile


FORMS = ("html", "markdown", "text", "json")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text", ".json": "json"}


@click.command(cls=console.Command, no_args_is_help=True)
@click.option(
    "-o", "--output", default="-", metavar="OUT", help="Output file: .html, .md, .txt or .json. -: stdout (default)."
)
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: by the suffix of OUT; text on stdout.")
@click.option(
    "--gpu",
    metavar="NAME|FILE",
    help="Peaks for the roofline: a device such as MI300X, or a JSON file with mem_bw_gbps and max_achievable_tflops.",
)
@console.flag("--strict", help="Exit with 4 if the profile is incomplete.")
@console.input_options
def report(output: str, form: str | None, gpu: str | None, strict: bool, inputs: console.Inputs) -> None:
    """Show where the time of a run went and what to do about it.

    FILEs are the files of one run, as for `mio2trace convert`. Text is the answer block of `mio2trace FILE`. HTML is
    one page; it has no script and fetches nothing. Markdown fits into a comment on an issue. JSON is one document for
    programs (docs/report.md has its schema). The report of a dataset ("mio2trace batch") is one page over all runs.
    docs/findings.md has the findings and their thresholds.

    \b
    Examples:
      mio2trace report trace.json.gz
      mio2trace report run.log run_results.db -o report.html --gpu MI300X
      mio2trace report run.log prof.json --format markdown > comment.md
      mio2trace report trace.json.gz --format json | jq '.runs[].findings[].id'
      mio2trace report ds/ -o fleet.html          a dataset of many runs
    """
    make(inputs, output, form, gpu, strict=strict)


def make(
    inputs: console.Inputs, output: str, form: str | None = None, gpu: str | None = None, *, strict: bool
) -> object:
    """Write the report. Exits with `INCOMPLETE` if ``strict`` is set and a profile is incomplete."""
    from mio2trace.answer.text import FULL
    from mio2trace.findings import gpu_of
    from mio2trace.notes import LOGGED, OptionError

    files, quiet = inputs.files, inputs.quiet
    form = form or ("text" if output == "-" else SUFFIXES.get(os.path.splitext(output)[1].lower()))
    if form is None:
        raise OptionError(f"{output}: expected a name that ends in {', '.join(SUFFIXES)}, or --format")
    console.refuse_to_overwrite(files, output)
    peaks = None if gpu is None else gpu_of(gpu)
    analysis, incomplete = None, False
    if is_fleet(files):
        text, verdicts, notes = fleet_report(files[0], form), [], None
    else:
        analysis = inputs.analyse()
        made = content(analysis, form, peaks)
        text, notes = written(made, form), analysis.notes
        incomplete = any(one.completeness is not None and not one.completeness.complete for one in made.sections)
        verdicts = [section.verdict for section in made.sections[:FULL] if form != "text"]
    put([console.coloured(text) if form == "text" and output == "-" else text], output)
    if output != "-" and not quiet:
        for verdict in verdicts:
            tell(verdict)
    if notes is not None:
        # The report itself contains what the library complains of.
        say((note for note in notes if form == "json" or note.kind not in LOGGED), [], quiet)
    if output != "-" and not quiet:
        tell(wrote(output, text))
    if strict and incomplete:
        click.get_current_context().exit(console.INCOMPLETE)
    return analysis


def wrote(output: str, text: str) -> str:
    return f"wrote {output} ({len(text.encode('utf-8', 'replace')) / 1000:.0f} kB)"


def content(analysis: Analysis, form: str, peaks: Gpu | None = None) -> Report:
    """Return the report in the depth that ``form`` shows. Raises `InputError` if nothing has a time."""
    from mio2trace.analysis import as_given
    from mio2trace.answer import report_of
    from mio2trace.conversion import what_is_missing
    from mio2trace.notes import InputError

    made = report_of(analysis, as_given(analysis.each), peaks, depth="page" if form == "html" else "tables")
    if not made.sections:
        raise InputError(f"{analysis.names}: {what_is_missing(analysis.runs[0], analysis.notes)}")
    return made


def written(made: Report, form: str) -> str:
    if form == "html":
        from mio2trace.answer.html import page

        return page(made)
    if form == "markdown":
        from mio2trace.answer.markdown import comment

        return comment(made)
    if form == "json":
        from mio2trace.answer.content import records

        return records(made)
    from mio2trace.answer.text import lines

    return "".join(f"{line}\n" for line in lines(made))


# -- ``mio2trace report ds/``: a dataset of many runs as one page ------------------------------------------------------


def is_fleet(files: tuple[str, ...]) -> bool:
    """Return whether this is a dataset of several runs, or a dataset that a batch wrote."""
    from mio2trace.snapshot import RUNS, is_dataset, journals_of

    if len(files) != 1 or not os.path.isdir(files[0]) or not is_dataset(files[0]):
        return False
    place = Path(files[0])
    return bool(journals_of(place)) or sum(1 for _ in (place / RUNS).glob("[!.]*.parquet")) > 1


def fleet_report(path: str, form: str) -> str:
    """Return the page or the lines of a dataset. Raises `OptionError` for an unknown form."""
    from mio2trace.fleet import gather, lines
    from mio2trace.notes import OptionError
    from mio2trace.queries import opened
    from mio2trace.schema import SQL_COLUMNS

    if form not in ("html", "text"):
        raise OptionError(f"--format {form} is for one run; the report of a dataset is html or text")
    name = os.path.basename(os.path.normpath(path)) or path
    with opened(path, SQL_COLUMNS) as dataset:
        fleet = gather(dataset, name)
    if form == "html":
        from mio2trace.fleet import page

        return page(fleet, f"mio2trace {mio2trace.__version__}")
    return "".join(f"{line}\n" for line in lines(fleet))


@click.command(cls=console.TableCommand, no_args_is_help=True)
@console.flag("--each", help="Print one row per collective: the rank that came last, by how much, and why.")
@functools.partial(
    console.printing_options, unit=True, default="the answer as text; with --each a table on a terminal, else csv"
)
@console.input_options
def ranks(each: bool, printing: console.Printing, inputs: console.Inputs) -> None:
    """Show which ranks of a job wait at collectives, which rank comes last, and why.

    FILEs are the inputs of `mio2trace merge`. Transfer: the time of the shortest kernel of a collective on any rank.
    Wait: the time by which a rank's own kernel is longer. Skew: the time between the first and the last start. The
    straggler is the rank that arrives last most often. --format csv prints one row per rank.

    \b
    Examples:
      mio2trace ranks rank0/ rank1/
      mio2trace ranks job/ --each --sort lead_ns
    """
    from mio2trace.answer.text import rank_lines
    from mio2trace.notes import InputError
    from mio2trace.ranks import each_table, groups, meetings, said, table, totals

    analysis = inputs.analyse()
    run = analysis.run
    if not run.is_job:
        raise InputError(f"{analysis.names}: not of several processes of one job; expected the files of its ranks")
    for other in analysis.runs:
        if other is not run and other.profiles:
            analysis.notes.add("of another run, by its clock, folder or ranks: left out", other.name)
    met = meetings(run.alignments)
    of = totals(met, run.alignments)
    if not of and (others := groups(run.alignments)):
        analysis.notes.add(f"no collective of all these ranks; {others}")
    labels = labels_of(run)
    if not each and not printing.is_chosen:
        machines = [_machine(alignment.profile) for alignment in run.alignments]
        each_of = zip(labels, run.measures, strict=True)
        incomplete = [label for label, measures in each_of if not measures.completeness.complete]
        put((f"{line}\n" for line in rank_lines(met, of, labels, machines, incomplete)), printing.path)
        say(analysis.notes, [], inputs.quiet)
        return
    cells = [process_cells(alignment.profile) for alignment in run.alignments]
    show(
        lambda: printing.in_unit(each_table(met, labels) if each else table(of, cells)),  # type: ignore[arg-type]
        printing,
        analysis.notes,
        [said(of, labels)] if of else [],
        inputs.quiet,
    )


def _machine(profile: Profile) -> str:
    """Return a name for the machine of a process; empty if its profile does not record it."""
    clock = profile.clocks[0]
    return "" if clock.is_of_a_file else clock.scope


def labels_of(run: Run) -> list[str]:
    """The names of the processes in the trace: ``rank 0``, ``rank 1``."""
    return [alignment.profile.process.label for alignment in run.alignments]


@click.command(cls=console.Command, no_args_is_help=True)
@click.argument("files", nargs=-1, required=True, metavar="RANK...", shell_complete=console.complete_files)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Output file. .pftrace: Perfetto's native format. .json: for other viewers. Both may end in .gz. .tar: one"
    " trace per rank in an archive. -: stdout.",
)
@console.check_option
@console.reading_options
def merge(output: str, check: bool, inputs: console.Inputs) -> object:
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

    console.refuse_to_overwrite(inputs.files, output)
    in_parts = output.lower().endswith(archive.SUFFIX)
    made = conversion.convert(
        *inputs.files, output=None if in_parts else output, of_a_job=True, check=check, **inputs.reading
    )
    if in_parts:
        with replacing(output) as target:
            archive.write(made.trace, target)
    if not inputs.quiet:
        (run,) = made.runs
        lines = [*made.account.inputs, *(line for line in made.account.evidence if line.startswith("clocks: "))]
        lines.append(said(totals(meetings(run.alignments), run.alignments), labels_of(run)))
        for line in (*lines, *made.account.notes):
            tell(line)
        if output != "-":
            tell(f"wrote {output} ({console.megabytes(os.path.getsize(output))}): open it at https://ui.perfetto.dev")
    else:
        for line in made.problems:
            tell(line)
    return made
