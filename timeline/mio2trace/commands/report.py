"""``mio2trace report``: how the time of a run was spent, its findings, and what to try."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import mio2trace
from mio2trace.commands.options import Command, Reading, files_argument, flag, reading_options
from mio2trace.commands.printing import INCOMPLETE, coloured, put, say, tell

if TYPE_CHECKING:
    from mio2trace.analysis import Analysis
    from mio2trace.answer import Report
    from mio2trace.findings import Gpu

FORMS = ("html", "markdown", "text", "json")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text", ".json": "json"}


@click.command(cls=Command, no_args_is_help=True)
@files_argument
@click.option(
    "-o", "--output", default="-", metavar="OUT", help="Output file: .html, .md, .txt or .json. -: stdout (default)."
)
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: by the suffix of OUT; text on stdout.")
@click.option(
    "--gpu",
    metavar="NAME|FILE",
    help="Peaks for the roofline: a device such as MI300X, or a JSON file with mem_bw_gbps and max_achievable_tflops.",
)
@flag("--strict", help="Exit with 4 if the profile is incomplete.")
@reading_options
def report(
    files: tuple[str, ...], output: str, form: Any, gpu: str | None, strict: bool, reading: Reading, quiet: bool
) -> None:
    """Show where the time of a run went and what to do about it.

    FILEs are the files of one run, as for `mio2trace convert`. Text is the answer block of `mio2trace FILE`. HTML is
    one page; it has no script and fetches nothing. Markdown fits into a comment on an issue. JSON is one document for
    programs (docs/report.md has its schema). The report of a dataset ("mio2trace batch") is one page over all runs.
    docs/findings.md has the findings and their thresholds.

    \b
    Examples:
      mio2trace report trace.json.gz
      mio2trace report run.log run_results.db -o report.html --gpu MI300X
      mio2trace report run.log prof.json --format markdown | gh issue comment 123 -F -
      mio2trace report trace.json.gz --format json | jq '.runs[].findings[].id'
      mio2trace report ds/ -o fleet.html          a dataset: problems over versions, outliers, failures
    """
    make(files, output, form, gpu, reading, strict=strict, quiet=quiet)


def make(
    files: tuple[str, ...], output: str, form: Any, gpu: str | None, reading: Reading, *, strict: bool, quiet: bool
) -> object:
    """Write the report. Exits with `INCOMPLETE` if ``strict`` is set and a profile is incomplete."""
    from mio2trace.analysis import analyse
    from mio2trace.answer.text import FULL
    from mio2trace.findings import gpu_of
    from mio2trace.notes import LOGGED, OF_TRACES, OptionError

    form = form or ("text" if output == "-" else SUFFIXES.get(os.path.splitext(output)[1].lower()))
    if form is None:
        raise OptionError(f"{output}: expected a name that ends in {', '.join(SUFFIXES)}, or --format")
    peaks = None if gpu is None else gpu_of(gpu)
    analysis, incomplete = None, False
    if is_fleet(files):
        text, verdicts, notes = fleet_report(files[0], form), [], None
    else:
        analysis = analyse(files, reading.analysis())
        made = content(analysis, form, peaks)
        text, notes = written(made, form), analysis.notes
        incomplete = any(one.completeness is not None and not one.completeness.complete for one in made.sections)
        verdicts = [section.verdict for section in made.sections[:FULL] if form != "text"]
    put([coloured(text) if form == "text" and output == "-" else text], output)
    if output != "-" and not quiet:
        for verdict in verdicts:
            tell(verdict)
    if notes is not None:
        # The report itself contains what the library complains of.
        of_answer = [note for note in notes if not any(words in note.kind for words in OF_TRACES)]
        say((note for note in of_answer if form == "json" or note.kind not in LOGGED), [], quiet)
    if output != "-" and not quiet:
        tell(wrote(output, text))
    if strict and incomplete:
        click.get_current_context().exit(INCOMPLETE)
    return analysis


def wrote(output: str, text: str) -> str:
    return f"wrote {output} ({len(text.encode('utf-8', 'replace')) / 1000:.0f} kB)"


def content(analysis: Analysis, form: str, peaks: Gpu | None = None) -> Report:
    """Return the report in the depth that ``form`` shows. Raises `InputError` if nothing has a time."""
    from mio2trace.analysis import as_given
    from mio2trace.answer import report_of
    from mio2trace.conversion import what_is_missing
    from mio2trace.notes import InputError

    made = report_of(
        analysis, as_given(analysis.complete or analysis.runs), peaks, depth="page" if form == "html" else "tables"
    )
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
        from mio2trace.answer.records import records

        return records(made)
    from mio2trace.answer.text import lines

    return "".join(f"{line}\n" for line in lines(made))


# -- ``mio2trace report ds/``: a dataset of many runs as one page ------------------------------------------------------


def is_fleet(files: tuple[str, ...]) -> bool:
    """Return whether this is a dataset of several runs, or a dataset that a batch wrote."""
    from mio2trace.snapshot.places import RUNS, is_dataset, journals_of

    if len(files) != 1 or not os.path.isdir(files[0]) or not is_dataset(files[0]):
        return False
    place = Path(files[0])
    return bool(journals_of(place)) or sum(1 for _ in (place / RUNS).glob("[!.]*.parquet")) > 1


def fleet_report(path: str, form: str) -> str:
    """Return the page or the lines of a dataset. Raises `OptionError` for an unknown form."""
    from mio2trace.fleet import gather, lines
    from mio2trace.notes import OptionError
    from mio2trace.queries.dataset import opened
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
