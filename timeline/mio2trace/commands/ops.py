"""``mio2trace ops``: the operations of MIOpen logs as a table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mio2trace.commands.logs import files_argument, one_line_errors, quiet_option, read, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mio2trace.ops.operation import Operation
    from mio2trace.reports.tables import Table

FORMS = ("table", "csv", "json", "jsonl", "markdown")


@click.command(no_args_is_help=True)
@files_argument
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: table on a terminal, csv otherwise.")
@click.option(
    "--group-by",
    metavar="COLUMN,...",
    help="One row for all operations that agree in these columns, with their count, most frequent first.",
)
@click.option("--columns", metavar="COLUMN,...", help="Only these columns, in this order.")
@click.option(
    "--phase",
    type=click.Choice(["all", "run", "find"]),
    default="all",
    show_default=True,
    help="'run' leaves out the searches, 'find' leaves only these.",
)
@click.option("--seed-csv", is_flag=True, help="Forward convolutions, poolings, training batch norms: nine columns.")
@click.option("--coverage", is_flag=True, help="One row a file: how many records it holds, how many are understood.")
@quiet_option
def ops(
    files: tuple[str, ...],
    form: Any,
    group_by: str | None,
    columns: str | None,
    phase: str,
    seed_csv: bool,
    coverage: bool,
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
      mio2trace ops run.log --format json | jq '.[].gemm'
      mio2trace ops --coverage *.log
    """
    from mio2trace.notes import Notes
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
    with one_line_errors():
        timed = None if coverage or seed_csv else _timed(files, notes, phase)
        if coverage:
            table, said = _coverage(files, notes)
        elif timed is not None:
            table, said = timed
        else:
            table, said = _operations(files, notes, phase, seed_csv)
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


def _timed(files: tuple[str, ...], notes: Any, phase: str) -> tuple[Table, list[str]] | None:
    """With a profile among the files: what each operation cost. None without one."""
    from mio2trace.commands.inputs import read_run
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops import operations
    from mio2trace.reports import op_times
    from mio2trace.reports import ops as report
    from mio2trace.summary.operations import lines

    run = read_run(files, notes)
    if run is None:
        return None
    inputs, alignment = run
    found = [
        (one.name, operations(record)) for one in inputs for record in one.records if isinstance(record, MiopenLog)
    ]
    if alignment is None:
        return report.table([(name, _of_phase(every, phase)) for name, every in found]), []
    most = max((every for _, every in found), key=len)
    return op_times.table(_of_phase(most, phase), alignment), lines([alignment])


def _of_phase(operations: Sequence[Operation], phase: str) -> list[Operation]:
    return [one for one in operations if phase in ("all", one.phase)]


def _operations(files: tuple[str, ...], notes: Any, phase: str, seed_csv: bool) -> tuple[Table, list[str]]:
    from mio2trace.reports import ops as report

    found = []
    said = []
    for name, _, operations in read(files, notes):
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


def _coverage(files: tuple[str, ...], notes: Any) -> tuple[Table, list[str]]:
    from mio2trace.reports import coverage

    rows = [coverage.row(name, log, operations, log.foreign) for name, log, operations in read(files, notes)]
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
