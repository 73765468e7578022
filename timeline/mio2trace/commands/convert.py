"""``mio2trace convert``: write the files of one run as a trace or as tables."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mio2trace import commands as console
from mio2trace.analysis import Analysis, Run
from mio2trace.commands import put, say, tell
from mio2trace.evidence import EVIDENCE
from mio2trace.files import STANDARD_INPUT, TABLES_SUFFIX
from mio2trace.machine import give_back_freed_memory
from mio2trace.notes import InputError, OptionError
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace import conversion

PAGE_SUFFIX = ".html"
_OF_TABLES = ("files", "outputs", "host_calls", "without", "several", "strict", "keep", "quiet")
"""Options that decide what is read and joined."""
_OF_ANSWER = ("files", "outputs", "repetition", "tags", "align", "max_input", "strict", "quiet", "verbose")
SMALLER = ("--host-calls none", "--iterations", "--from", "--to", "--top", "--min-duration", "--no-args")
"""Options of `convert` that make a trace smaller, the most useful first."""
TRACK_WORDS = ("kernels", "operations")
FOLD_WORDS = ("find", "set-up", "warm-up")
KEEP_WORDS = ("paths", "hosts", "users", "pointers", "environment", "secrets", "devices")


class _Convert(console.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name == "--format":
                where = "`mio2trace report` has it for the answer, and the suffix of -o chooses that of the trace"
                raise click.UsageError(f"no option --format here: {where}", ctx) from None
            raise


@click.command(cls=_Convert, no_args_is_help=True)
@console.files_argument
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="OUT",
    help="Output file. .pftrace: Perfetto's native format, recommended. .json: for other viewers. Both may end in .gz."
    " .parquet: a folder of tables. .html: the report. -: stdout. Repeat -o for a trace, tables and a report of one"
    " reading. Without -o the answer is printed.",
)
@click.option(
    "--host-calls",
    type=click.Choice(["all", "enqueue", "none"]),
    default="enqueue",
    show_default=True,
    help="API calls of the host that the trace shows. 'enqueue': calls that launch GPU commands, and program builds.",
)
@console.words_option(
    "--tracks",
    TRACK_WORDS,
    "Add tracks: kernels (one track per kernel name), operations (one track per type).",
)
@console.words_option(
    "--fold",
    FOLD_WORDS,
    "Move this work to a track of its own, so that the iterations are alone on theirs: find, set-up (find"
    " included), warm-up.",
)
@click.option(
    "--from",
    "begin",
    default="",
    metavar="WHEN",
    help="Begin the trace here: a time such as 1.2s, 'iteration 3', 'layer conv1' (its first run). 'forward' or"
    " 'backward' after it chooses the direction.",
)
@click.option(
    "--to", "end", default="", metavar="WHEN", help="End the trace at the end of this: the first end after --from."
)
@click.option(
    "--iterations",
    default="",
    metavar="N-M",
    help="Write only these iterations: 3, 2-4, 1,5-7; 0: the warm-up of a log.",
)
@console.flag(
    "--all",
    "everything",
    help="Write the whole run. Without this option, the trace of a very large run has only the steady iterations in"
    " the middle.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write only the N longest kernels, with their operations and layers.",
)
@click.option(
    "--min-duration", default="", metavar="TIME", help="Leave out slices that are shorter than this, such as 10us."
)
@click.option(
    "--no-args",
    "with_args",
    flag_value=False,
    default=True,
    help="Leave out the arguments of all slices. Then queries and colours by layer do not work.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="EVIDENCE",
    help=f"Ignore one kind of evidence (repeatable): {', '.join(EVIDENCE)}.",
)
@console.only_reading_options
@console.flag(
    "--several",
    help="Write the runs of FILEs into one trace, each run from time zero. Without this option, files of several runs"
    " are refused.",
)
@click.option(
    "--explain",
    multiple=True,
    metavar="WHAT",
    help="Print the reasons for a link (repeatable): 'kernel N' (its call_index, dispatch_id or event_index),"
    " 'operation N', 'line N'.",
)
@click.option("--summary", "summary_file", metavar="FILE", help="Also write the trace's metadata object as JSON.")
@console.words_option(
    "--keep",
    KEEP_WORDS,
    f"Leave in the trace what is taken out of it by default: {', '.join(KEEP_WORDS)}.",
)
@console.check_option
@console.flag(
    "--strict",
    help="With -o: if the inputs have a problem, exit with 1 and write nothing. With and without -o: exit with 4 if"
    " the profile is incomplete.",
)
@console.flag("-v", "--verbose", help="With -o: also print the evidence of the links, the clocks and the sums.")
@console.quiet_option
def convert(outputs: tuple[str, ...], inputs: console.Inputs, verbose: bool, **drawing: Any) -> object:
    """Write a trace for the Perfetto UI, or print the answer (without -o).

    FILEs are recognised by their content, in any order, plain or gzipped. They may be logs of Caffe and MIOpen,
    profiles of rocprofv3, rocprof, RPD, PyTorch, JAX and dv/dt, CK records, and folders of these (docs/inputs.md lists
    all). - is standard input.

    \b
    Examples:
      mio2trace trace.json.gz
      mio2trace run.log run_results.db -o out.pftrace
      mio2trace run_results.db -o out.pftrace -o tables.parquet -o report.html
      mio2trace prof.json -o - --host-calls none | gzip > out.json.gz
      mio2trace run.log prof.json -o out.pftrace --iterations 2-4
      mio2trace run.log prof.json -o out.pftrace --from "layer conv2 backward"
    """
    files, quiet, strict = inputs.files, inputs.quiet, drawing["strict"]
    output, tables, page = _by_kind(outputs)
    is_drawn = output is not None or drawing["explain"] or drawing["check"] or drawing["summary_file"]
    if not is_drawn and tables is None:
        from mio2trace.commands.report import make

        _refuse_all_but(_OF_ANSWER, ": add -o OUT.pftrace")
        return make(inputs, page or "-", strict=strict)
    console.refuse_to_overwrite(files, page)
    beside = functools.partial(_write_beside, inputs, tables, page, drawing)
    if not is_drawn:
        _refuse_all_but(_OF_TABLES, ", not tables")
        return _write_tables(inputs, beside, drawing)
    from mio2trace import conversion

    _refuse_to_overwrite(files, [*outputs, drawing["summary_file"]])
    wrote: list[str] = []
    progress = console.Progress() if not quiet and console.is_terminal() else None
    try:
        result = conversion.convert(
            *files,
            output=output,
            progress=progress,
            beside=(lambda analysis: wrote.extend(beside(analysis))) if tables or page else None,
            **inputs.reading,
            **drawing,
        ).without_parts()
    finally:
        if progress is not None:
            progress.done()
    give_back_freed_memory()
    for line in [*result.reasons, *result.problems] if quiet else result.said(verbose):
        tell(line, coloured=True)
    if not quiet:
        for line in [*wrote, *(_wrote(output, result, drawing["host_calls"]) if output not in (None, "-") else ())]:
            tell(line, coloured=True)
    if strict and not result.metadata["completeness"]["complete"]:
        click.get_current_context().exit(console.INCOMPLETE)
    return result


_WRITTEN_BY = {
    ".md": "mio2trace report", ".txt": "mio2trace report", ".csv": "mio2trace kernels", ".zip": "mio2trace bundle",
}  # fmt: skip
"""Commands that write what this one does not write, by suffix."""


def _by_kind(outputs: Sequence[str]) -> tuple[str | None, str | None, str | None]:
    """The trace, the folder of tables, the page of the report. Raises `click.UsageError` for two of one kind, and
    `OptionError` for a name of no kind."""
    from mio2trace.writers import by_suffix, suffixes

    found: dict[str, str] = {}
    for output in outputs:
        kind = next((suffix for suffix in (TABLES_SUFFIX, PAGE_SUFFIX) if output.lower().endswith(suffix)), "")
        if not kind and by_suffix(output) is None:
            names = ", ".join((*suffixes(), TABLES_SUFFIX, PAGE_SUFFIX))
            writer = _WRITTEN_BY.get(os.path.splitext(output)[1].lower())
            hint = f"; for this form: {writer} -o" if writer else ""
            raise OptionError(f"{output}: expected a name that ends in {names}, or -{hint}")
        if kind in found:
            raise click.UsageError(f"{found[kind]} and {output}: expected one output of each kind")
        found[kind] = output
    return found.get(""), found.get(TABLES_SUFFIX), found.get(PAGE_SUFFIX)


def _refuse_all_but(names: Sequence[str], where_else: str) -> None:
    """Raises `click.UsageError` for a given option that only a trace has."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in names:
            raise click.UsageError(f"{parameter.opts[0]} needs a trace{where_else}")


def _wrote(output: str, result: conversion.Conversion, host_calls: str) -> Iterator[str]:
    """State the size of the output, and what to do if a browser may not open a trace of this size."""
    written = result.written
    if written is not None and written.too_large:
        smaller = SMALLER[1:] if host_calls == "none" else SMALLER
        yield (
            f"problem: about {written.slices / 1e6:.1f} million slices: a viewer needs gigabytes for them, and a"
            f" browser may give up; fewer with {', '.join(smaller)}; a .pftrace.gz is the smallest file"
        )
    size = os.path.getsize(output) if os.path.isfile(output) else 0
    found = result.metadata["attribution"]
    kernels = found["kernels"] + found["copies"] - result.trace.left_out
    each = f", {size / kernels:.0f} bytes per kernel" if size and kernels else ""
    yield f"wrote {output} ({console.megabytes(size)}{each}): open it at https://ui.perfetto.dev"


def _refuse_to_overwrite(files: tuple[str, ...], outputs: Sequence[str | None]) -> None:
    """Refuse to overwrite an input, or one output with another. The last of ``outputs`` is the trace's summary."""
    *others, summary = outputs
    for target in filter(None, others):
        with contextlib.suppress(OSError, ValueError):
            if summary is not None and os.path.realpath(summary) == os.path.realpath(target):
                raise click.UsageError(f"{target} is both the trace and its summary")
    for output in outputs:
        console.refuse_to_overwrite(files, output)


# -- ``mio2trace FILE... -o out.parquet``: a run as a folder of tables, an input as its files are ----------------------


def _write_tables(
    inputs: console.Inputs, beside: Callable[[Analysis], Iterator[str]], drawing: Mapping[str, Any]
) -> Analysis:
    """Write what ``beside`` writes, without a trace. Raises `InputError`."""
    from mio2trace.answer import report_of  # imported here because most conversions write no tables
    from mio2trace.answer.text import FULL

    quiet, strict = inputs.quiet, drawing["strict"]
    analysis = inputs.analyse(**_options(drawing))
    wrote = list(beside(analysis))
    runs = analysis.each if drawing["several"] else (analysis.run,)
    if not quiet:
        for section in report_of(analysis, runs, depth="lines").sections[:FULL]:
            tell(section.verdict)
    say(analysis.notes, [], quiet)
    if not quiet:
        for line in wrote:
            tell(line)
    if strict and not all(one.completeness.complete for run in runs for one in run.measures):
        click.get_current_context().exit(console.INCOMPLETE)
    return analysis


def _options(drawing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that also decide what is read."""
    return {
        "host_calls": drawing["host_calls"] == "all",
        "without": frozenset(drawing["without"]),
        "keep": tuple(drawing["keep"]),
    }


def _write_beside(
    inputs: console.Inputs, tables: str | None, page: str | None, drawing: Mapping[str, Any], analysis: Analysis
) -> Iterator[str]:
    """Write the run (with ``several`` each run) to the folder ``tables`` and to ``page``. Yields the lines about it.
    Raises `InputError`."""
    runs = analysis.each if drawing["several"] or tables is None else (analysis.shown("in the tables"),)
    if drawing["strict"] and analysis.notes.problems:
        raise InputError("--strict: " + "; ".join(map(str, analysis.notes.problems)))
    if tables is not None:
        from mio2trace.dataset import replace, require_anything

        files, place = inputs.files, os.path.join(os.path.realpath(tables), "")
        if any(os.path.join(os.path.realpath(file), "").startswith(place) for file in files if file != STANDARD_INPUT):
            raise click.UsageError(f"{tables} is also an input")
        repetitions: tuple[Run, ...] = ()
        if analysis.has_repetitions and len(files) == 1 and files[0] != STANDARD_INPUT and inputs.repetition is None:
            repetitions = inputs.analyse(**_options(drawing), repetition="every").runs
        require_anything(runs, analysis)
        yield _written(tables, replace(tables, runs, analysis, repetitions))
    if page is not None:
        from mio2trace.commands.report import content, written
        from mio2trace.commands.report import wrote as wrote_page

        text = written(content(analysis, "html"), "html")
        put([text], page)
        yield wrote_page(page, text)


def _written(output: str, rows: Mapping[str, int]) -> str:
    size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(output) for name in names)
    counted = [
        count(number, "copy" if table == "copies" else table[:-1])
        for table, number in rows.items()
        if number or table == "runs"
    ]
    return (
        f"wrote {output} ({console.megabytes(size)}): {', '.join(counted)}" if len(counted) > 1 else f"wrote {output}"
    )
