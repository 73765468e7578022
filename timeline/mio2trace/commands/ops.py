"""``mio2trace ops``: the operations of MIOpen logs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.logs import logged, stated_by_profile
from mio2trace.commands.printing import show
from mio2trace.notes import InputError
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mio2trace.analysis import Analysis
    from mio2trace.notes import Notes
    from mio2trace.ops.operation import Operation
    from mio2trace.reports.tables import Cell, Row, Table, Unit


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@click.option(
    "--group-by",
    metavar="COLUMN,...",
    help="Print one row for all operations with the same values in these columns: with the profile slowest first, else"
    " most frequent first.",
    shell_complete=options.complete_columns,
)
@options.flag("--each", help="With the profile: print one row per call, in the order of the log.")
@options.choice_option(
    "--phase",
    ("all", "run", "find"),
    "'run': without searches. 'find': only searches.",
)
@options.flag("--seed-csv", help="Print nine columns of forward convolutions, poolings and training batch norms.")
@options.flag(
    "--coverage",
    help="Print one row per file: the number of records, and the number of understood records.",
)
@options.table_options
@options.reading_options
def ops(  # noqa: PLR0913 - click gives each option by keyword
    files: tuple[str, ...],
    group_by: str | None,
    each: bool,
    phase: str,
    seed_csv: bool,
    coverage: bool,
    printing: options.Printing,
    reading: options.Reading,
    quiet: bool,
) -> None:
    """List the operations of MIOpen logs or PyTorch traces; with the profile of the run slowest first, by layer.

    A row has the keys of the trace's operation slices: shapes from the forward point of view (N,C,[D,]H,W and
    K,C/g,[D,]y,x), the equivalent GEMM M, N, K, flop, bytes_min, the driver command. With the profile, a row is the sum
    of all calls of an operation in a layer: kernel time per steady iteration, and searches in columns of their own
    (find). FILEs may have other lines and be gzipped; - is standard input.

    \b
    Examples:
      mio2trace ops run.log
      mio2trace ops run.log --phase run --group-by problem
      mio2trace ops run.log prof.json                        slowest operations of each layer
      mio2trace ops run.log prof.json --group-by problem     slowest problems: calls, times, GFLOP/s
      mio2trace ops trace.json.gz --group-by problem         the ops of a PyTorch trace
      mio2trace ops run.log --format json | jq '.[].gemm'
      mio2trace ops --coverage *.log
    """
    from mio2trace.analysis import analyse
    from mio2trace.notes import Notes
    from mio2trace.readers import A_LOG

    options_given = {
        "--seed-csv": seed_csv, "--coverage": coverage, "--format": seed_csv and printing.form,
        "--group-by": group_by, "--each": each, "--columns": printing.columns,
    }  # fmt: skip
    given = [name for name, value in options_given.items() if value]
    if (seed_csv or coverage) and len(given) > 1:
        raise click.UsageError(f"{given[0]} cannot be combined with {given[1]}")
    if each and group_by:
        raise click.UsageError("--each cannot be combined with --group-by")
    notes = Notes()
    if coverage:
        table, said = _coverage(files, reading, notes)
        show(lambda: table, printing, notes, said, quiet)
        return
    analysis = analyse(files, reading.analysis(accepted=A_LOG, join=not seed_csv), notes)
    by = tuple(group_by.split(",")) if group_by else ()
    try:
        timed = None if seed_csv else _timed(analysis, phase, by, each, printing.unit_of_time())
        table, said = timed or _operations(analysis, phase, by, seed_csv)
    except KeyError as error:
        from mio2trace.reports import op_times
        from mio2trace.reports.ops import COLUMNS

        there = ", ".join((*COLUMNS, *op_times.PLACE))
        raise click.UsageError(f"no column {error}; there are {there}") from None
    show(lambda: table, printing._replace(form="csv") if seed_csv else printing, notes, said, quiet)


def _timed(analysis: Analysis, phase: str, by: Sequence[str], each: bool, unit: Unit) -> tuple[Table, list[str]] | None:
    """Return the costs of each operation if there is a profile among the files; None without one."""
    from mio2trace.commands.printing import process_cells
    from mio2trace.reports import op_times
    from mio2trace.reports.tables import stacked
    from mio2trace.summary import operation_lines

    if not any(run.alignments for run in analysis.runs):
        return None
    run = analysis.run
    operations = () if run.alignment is None else run.alignment.with_stated(run.operations)
    if not (stated_by_profile(analysis) or operations):
        raise InputError(f"{analysis.names}: holds no line of MIOpen; expected its log")

    def table(of: Sequence[Operation], place: int) -> Table:
        measures = run.measures[place]
        if not each and phase != "find":
            joined = [one for one in of if one.index in measures.operation_at]
            return op_times.steady_table(joined, measures, by, unit)
        made = op_times.table(_of_phase(of, phase), measures, unit)
        return op_times.summed(made, by, unit) if by else made

    ran = run.measures if run.is_job else run.measures[:1]
    said = operation_lines(ran)
    if not each and phase != "find":
        said += [f"steady: {measures.steady.rule}" for measures in ran]
    if not run.is_job:
        return table(operations, 0), said
    tables = [
        (
            process_cells(measures.alignment.profile),
            table(measures.alignment.with_stated(share.operations), place),
        )
        for place, (share, measures) in enumerate(zip(run.shares, run.measures, strict=True))
    ]
    return stacked(tables), said


def _of_phase(operations: Sequence[Operation], phase: str) -> list[Operation]:
    return [one for one in operations if phase in ("all", one.phase)]


def _operations(analysis: Analysis, phase: str, by: Sequence[str], seed_csv: bool) -> tuple[Table, list[str]]:
    from mio2trace.reports import ops as report
    from mio2trace.reports.tables import grouped

    found = []
    said = []
    notes = analysis.notes
    for name, _, operations in logged(analysis):
        kept = _of_phase(operations, phase)
        runs = sum(one.phase == "run" for one in operations)
        said.append(f"{name}: {count(len(operations), 'operation')}: {runs} run, {len(operations) - runs} find")
        for one in kept:
            for doubt in one.doubts:
                notes.add(doubt, f"{name}:{one.line}", problem=False)
        found.append((name, kept))
    if not seed_csv:
        table = _with_counts(report.table(found), analysis, [name for name, _ in found])
        return grouped(table, by) if by else table, said
    all_of_them = [one for _, operations in found for one in operations]
    table = report.seed_table(all_of_them)
    missing = sum(map(report.is_seed_operation, all_of_them)) - len(table.rows)
    if missing:
        notes.add("operation left out: the log does not show its shapes", count=missing)
    return table, said


def _with_counts(table: Table, analysis: Analysis, names: Sequence[str]) -> Table:
    """Add how often the log of a BLAS library states each GEMM, and the time that TunableOp measured for it."""
    import msgspec

    from mio2trace.model.choices import GemmTable

    gemms = {
        (file.name, number): gemm
        for file in analysis.inputs
        for record in file.records
        if isinstance(record, GemmTable)
        for number, gemm in enumerate(record.gemms)
    }
    if not gemms:
        return table
    rows: list[Row] = []
    for row in table.rows:
        gemm = gemms.get((str(row.get("file", names[0])), int(str(row["operation"]))))
        more: dict[str, Cell] = {} if gemm is None else {"calls": gemm.count}
        if gemm is not None and gemm.time_ms is not None:
            more["ms"] = gemm.time_ms
        rows.append({**row, **more})
    added = ("calls", "ms")
    return msgspec.structs.replace(table, columns=(*table.columns, *added), brief=(*table.brief, *added), rows=rows)


def _coverage(files: tuple[str, ...], reading: options.Reading, notes: Notes) -> tuple[Table, list[str]]:
    from mio2trace.analysis import analyse
    from mio2trace.files import STANDARD_INPUT, short_names
    from mio2trace.readers import A_LOG
    from mio2trace.reports import coverage

    rows = []
    for file, short in zip(files, short_names(files), strict=True):  # one by one: only the counts stay in memory
        analysis = analyse([file], reading.analysis(accepted=A_LOG, join=False), notes)
        rows += [
            coverage.row(name if file == STANDARD_INPUT or short in name else short, log, operations, log.foreign)
            for name, log, operations in logged(analysis)
        ]
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
