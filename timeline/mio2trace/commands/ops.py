"""``mio2trace ops``: the operations of MIOpen logs as a table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mio2trace.commands.miopen.logs import logged, stated_by_profile
from mio2trace.commands.options import (
    Reading,
    columns_option,
    files_argument,
    format_option,
    quiet_option,
    reading_options,
)
from mio2trace.commands.printing import say, write
from mio2trace.notes import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mio2trace.analysis import Analysis
    from mio2trace.notes import Notes
    from mio2trace.ops.operation import Operation
    from mio2trace.reports.tables import Table


@click.command(no_args_is_help=True)
@files_argument
@format_option
@click.option(
    "--group-by",
    metavar="COLUMN,...",
    help="One row for all operations that agree in these columns, with their count, most frequent first.",
)
@columns_option
@click.option(
    "--phase",
    type=click.Choice(["all", "run", "find"]),
    default="all",
    show_default=True,
    help="'run' leaves out the searches, 'find' leaves only these.",
)
@click.option("--seed-csv", is_flag=True, help="Forward convolutions, poolings, training batch norms: nine columns.")
@click.option("--coverage", is_flag=True, help="One row a file: how many records it holds, how many are understood.")
@reading_options
@quiet_option
def ops(  # noqa: PLR0913 - click gives each option by keyword
    files: tuple[str, ...],
    form: Any,
    group_by: str | None,
    columns: str | None,
    phase: str,
    seed_csv: bool,
    coverage: bool,
    reading: Reading,
    quiet: bool,
) -> None:
    """The operations of MIOpen logs, one row each; with the profile of the run also what each one cost.

    A row has the keys of the trace's operation slices: shapes from the forward point of view (N,C,[D,]H,W and
    K,C/g,[D,]y,x), the equivalent GEMM M, N, K, flop, bytes_min, the driver command. FILEs may hold other lines, too,
    and may be gzipped; - is standard input.

    \b
    Examples:
      mio2trace ops run.log
      mio2trace ops run.log --phase run --group-by problem
      mio2trace ops run.log prof.json --group-by problem     slowest problems: calls, mean, min, max, GFLOP/s
      mio2trace ops trace.json.gz --group-by problem         of PyTorch's profiler: its ops
      mio2trace ops run.log --format json | jq '.[].gemm'
      mio2trace ops --coverage *.log
    """
    from mio2trace.analysis import analyse
    from mio2trace.notes import Notes
    from mio2trace.readers import A_LOG
    from mio2trace.reports.tables import print_table

    given = [name for name, value in (("--seed-csv", seed_csv), ("--coverage", coverage)) if value]
    if seed_csv:
        given += [
            name for name, value in (("--format", form), ("--group-by", group_by), ("--columns", columns)) if value
        ]
    elif coverage:
        given += [name for name, value in (("--group-by", group_by), ("--columns", columns)) if value]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} does not go with {given[1]}")
    notes = Notes()
    if coverage:
        table, said = _coverage(files, reading, notes)
    else:
        options = reading.analysis(accepted=A_LOG, join=not seed_csv)
        analysis = analyse(files, options, notes)
        timed = None if seed_csv else _timed(analysis, phase)
        table, said = timed or _operations(analysis, phase, seed_csv)
    try:
        if group_by and "kernel_ns" in table.columns:
            from mio2trace.reports.op_times import summed

            table = summed(table, group_by.split(","))
        elif group_by:
            from mio2trace.reports.tables import grouped

            table = grouped(table, group_by.split(","))
        if columns:
            table = table.chosen(columns.split(","))
    except KeyError as error:
        raise click.UsageError(f"no column {error}; there are {', '.join(table.columns)}") from None
    if seed_csv:
        form = "csv"
    form = form or ("table" if sys.stdout.isatty() else "csv")
    write(print_table(table, form))
    say(notes, said, quiet)


def _timed(analysis: Analysis, phase: str) -> tuple[Table, list[str]] | None:
    """With a profile among the files: what each operation cost. None without one."""
    from mio2trace.commands.processes import process_cells
    from mio2trace.reports import op_times
    from mio2trace.reports.tables import stacked
    from mio2trace.summary.operations import lines

    if not any(run.alignments for run in analysis.runs):
        return None
    run = analysis.run
    operations = stated_by_profile(analysis) or run.operations
    if run.alignment is None or not operations:
        raise InputError(f"{analysis.names}: holds no line of MIOpen; expected its log")
    if not run.is_job:
        return op_times.table(_of_phase(operations, phase), run.measures[0]), lines(run.measures[:1])
    tables = []
    for share, measures in zip(run.shares, run.measures, strict=True):
        own = share.operations or measures.alignment.links.operations
        tables.append((process_cells(measures.alignment.profile), op_times.table(_of_phase(own, phase), measures)))
    return stacked(tables), lines(run.measures)


def _of_phase(operations: Sequence[Operation], phase: str) -> list[Operation]:
    return [one for one in operations if phase in ("all", one.phase)]


def _operations(analysis: Analysis, phase: str, seed_csv: bool) -> tuple[Table, list[str]]:
    from mio2trace.reports import ops as report

    found = []
    said = []
    notes = analysis.notes
    for name, _, operations in logged(analysis):
        kept = _of_phase(operations, phase)
        runs = sum(one.phase == "run" for one in operations)
        said.append(f"{name}: {len(operations)} operations: {runs} run, {len(operations) - runs} find")
        for one in kept:
            for doubt in one.doubts:
                notes.add(doubt, f"{name}:{one.line}", problem=False)
        found.append((name, kept))
    if not seed_csv:
        return report.table(found), said
    all_of_them = [one for _, operations in found for one in operations]
    table = report.seed_table(all_of_them)
    missing = sum(map(report.is_seed_operation, all_of_them)) - len(table.rows)
    if missing:
        notes.add("operation left out: the log does not tell its shapes", count=missing)
    return table, said


def _coverage(files: tuple[str, ...], reading: Reading, notes: Notes) -> tuple[Table, list[str]]:
    from mio2trace.analysis import analyse
    from mio2trace.readers import A_LOG
    from mio2trace.reports.logs import coverage

    rows = []
    for file in files:  # one after another: only their counts are kept
        analysis = analyse([file], reading.analysis(accepted=A_LOG, join=False), notes)
        rows += [coverage.row(name, log, operations, log.foreign) for name, log, operations in logged(analysis)]
    totals = {
        key: sum(int(str(row[key])) for row in rows)
        for key in coverage.COLUMNS
        if rows and key not in ("file", "kinds") and not key.endswith("percent")
    }
    said = [
        "in all: {entries_decoded} of {entries} entries decoded ({entries_cut} cut off), {commands_decoded} of"
        " {commands} commands ({commands_cut} cut off, {commands_without_shapes} without all shapes),"
        " {level_lines_classified} of {level_lines} level lines classified".format(**totals)
    ]
    return coverage.table(rows), said
