"""Commands that print tables: ``layers``, ``kernels``, ``ops``, ``messages``, ``driver`` and ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import click

from mio2trace import commands as console
from mio2trace.commands import places, process_cells, say, show, write
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import count, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mio2trace.analysis import Analysis, Run
    from mio2trace.files import Input
    from mio2trace.model.choices import GemmChoice, SolverTable
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.model.profile import Profile
    from mio2trace.ops.families.gemm import Library
    from mio2trace.ops.operation import Operation
    from mio2trace.ops.problem import Form
    from mio2trace.reports import Table
    from mio2trace.reports.layers import Repetition


@click.command(cls=console.Command, no_args_is_help=True)
@console.flag("--each", help="Print one row per execution of a layer, also those of the warm-up (iteration 0).")
@console.choice_option(
    "--by",
    ("layer", "class"),
    "One row per layer, or per class of modules: Conv2d_3 and Conv2d_7 are one class.",
)
@console.flag(
    "--tree",
    help="Print the tree of layers, their operations and kernels. Each row has its own time and its total time.",
)
@console.flag("--times", help="Print times of the whole run: forward, backward, total, with mean and deviation.")
@console.table_options
@console.input_options
def layers(each: bool, by: str, tree: bool, times: bool, printing: console.Printing, inputs: console.Inputs) -> None:
    """List the layers of a run, slowest first: kernel time per steady iteration, host time, printed time, FLOPs.

    FILEs are a log alone, a log (or CK's tmp-ck-timer.json) with the profile of its run, a profile whose ranges or
    modules are layers, or a CK record with all its repetitions. Times are means per steady iteration; searches are in
    columns of their own (find). FILEs may be gzipped; - is standard input.

    \b
    Examples:
      mio2trace layers run.log prof.json
      mio2trace layers run.log prof.json --sort layer_index --where "kernel_ms>1"
      mio2trace layers run.log prof.json --each --format csv
      mio2trace layers trace.json.gz --by class
      mio2trace layers trace.json.gz --tree --where "kind=layer"
      mio2trace layers ckp-041dbee61c949c9a.0001.json --times
      mio2trace layers experiment/my-entry --tags alexnet
    """
    from mio2trace.reports import layers as report
    from mio2trace.reports import stacked

    if by == "class" and (each or times):
        raise click.UsageError("--by class cannot be combined with --each and --times")
    if each and times:
        raise click.UsageError("--each cannot be combined with --times")
    if tree and (each or times or by == "class"):
        raise click.UsageError("--tree cannot be combined with --each, --times and --by class")
    every = "every" if len(inputs.files) == 1 and inputs.repetition is None else inputs.repetition
    analysis = inputs.analyse(repetition=every, join=not times)
    notes = analysis.notes
    said: list[str] = []
    repeated = any(file.repetition is not None for file in analysis.inputs)
    runs = analysis.runs if repeated else (analysis.shown(),)
    if times:
        values = [_times(run) for run in runs]
        if not any(values):
            raise InputError(f"{analysis.names}: states no time of the whole run")
        show(lambda: printing.in_unit(report.times_table(values)), printing, notes, said, inputs.quiet)
        return
    processes = runs[0].measures if len(runs) == 1 and runs[0].is_job else ()
    repetitions = [one for run in runs for one in _joined(run)]
    if not any(_names_layers(one) for one in repetitions):
        _require_work(analysis)
        raise InputError(
            f"{analysis.names}: names no layer; expected Caffe's `time` log, a CK record, or a profile whose ranges"
            " or modules are layers"
        )
    if (each or tree) and not any(one.measures for one in repetitions):
        option = "--each" if each else "--tree"
        raise InputError(f"{analysis.names}: holds no GPU profile; expected that of the run for {option}")
    if len(repetitions) > 1 and not processes:
        said.append(count(len(repetitions), "repetition"))
    if not each:
        for one in repetitions:
            if one.measures is not None:
                said.append(f"steady: {one.measures.steady.rule}")
    if tree and len(repetitions) > 1 and not processes:
        raise click.UsageError(f"--tree shows one run, and there are {len(repetitions)}: --repetition chooses one")
    make = report.execution_table if each else report.class_table if by == "class" else report.layer_table
    make = report.tree_table if tree else make

    def table() -> Table:
        if not processes:
            return printing.in_unit(make(repetitions))
        of = [process_cells(measures.alignment.profile) for measures in processes]
        return printing.in_unit(stacked([(cells, make([one])) for cells, one in zip(of, repetitions, strict=True)]))

    show(table, printing, notes, said, inputs.quiet)


def _joined(run: Run) -> Sequence[Repetition]:
    """Return the runs in a log: the run of the profile, or all if there is no profile."""
    from mio2trace.reports.layers import Repetition, fullest, printed_runs

    if run.is_job:
        return [Repetition(fullest(measures.alignment.logs), measures) for measures in run.measures]
    if run.alignment is not None:
        return [Repetition(fullest(run.alignment.logs), run.measures[0])]
    return printed_runs(run.logs)


def _names_layers(repetition: Repetition) -> bool:
    """Return whether the log or the profile itself names layers."""
    in_log = repetition.log is not None and bool(repetition.log.layers)
    return in_log or (repetition.measures is not None and bool(repetition.measures.executions))


def _times(run: Run) -> dict[str, list[int]]:
    """Return the layer times of a repetition, from the CK record or from the lines of its log."""
    from mio2trace.reports.layers import times_of_log

    found: dict[str, list[int]] = {measure: [ns] for file in run.inputs for measure, ns in file.stated_ns.items()}
    if not found:
        for log in run.logs:
            for measure, ns in times_of_log(log):
                found.setdefault(measure, []).append(ns)
    return found


@click.command(cls=console.Command, no_args_is_help=True)
@click.option(
    "--by",
    type=click.Choice(["name", "repetition", "layer", "bucket"]),
    help="Print one row per kernel name, repetition, layer, or size class of GEMMs (bucket).",
)
@console.flag("--gemm", help="Print one row per GEMM: M, N, K, GFLOP/s, the nearest powers of two.")
@click.option(
    "--per",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of kernels in a repetition. Default: by the kernels that repeat.",
)
@click.option(
    "--skip", type=click.IntRange(min=0), metavar="N", help="With --per: number of kernels before the first repetition."
)
@console.flag(
    "--raw",
    help="Use the column names of the dv/dt notebook (t1_t0, p3_p2, p0_ns, ...). --by name then counts all kernels.",
)
@console.table_options
@console.input_options
def kernels(
    by: str | None,
    gemm: bool,
    per: int | None,
    skip: int | None,
    raw: bool,
    printing: console.Printing,
    inputs: console.Inputs,
) -> None:
    """List the kernels of a profile, one row each, or summed.

    The column kernel is the kernel's own time; host is the time of the call that launched it. --by name orders by the
    kernel time per steady iteration; searches are in columns of their own (find). --by layer needs a log, modules or
    ranges. FILEs may be gzipped; - is standard input.

    \b
    Examples:
      mio2trace kernels prof.json --sort kernel --top 20
      mio2trace kernels prof.json --by name
      mio2trace kernels prof.json --by repetition
      mio2trace kernels prof.json --gemm --format json
      mio2trace kernels prof.json --by bucket
      mio2trace kernels run.log prof.json --by layer
      mio2trace kernels run.log prof.json       also layers and operations
    """
    from mio2trace.reports import stacked
    from mio2trace.reports.kernels import spoken

    if (per is not None or skip is not None) and by != "repetition":
        raise click.UsageError("--per and --skip need --by repetition")
    if skip is not None and per is None:
        raise click.UsageError("--skip needs --per")
    if gemm and by not in (None, "bucket"):
        raise click.UsageError(f"--gemm cannot be combined with --by {by}")
    ranked = by == "name" and not raw
    join: bool | Literal["logs"] = by == "layer" or ranked or ("logs" if by is None and not gemm else False)
    analysis = inputs.analyse(join=join)
    run = analysis.shown()
    if not run.profiles:
        if run.tf_profiles:
            instead = "`mio2trace report` and `-o out.pftrace` show the kernels in it, `mio2trace tfprof` the ops"
            raise InputError(f"{analysis.names}: a profile of TensorFlow's own; {instead}")
        raise InputError(f"{analysis.names}: holds no GPU profile; expected one")
    said: list[str] = []
    shown = places(run)
    for place in shown:
        profile = run.profiles[place]
        of = f"{analysis.names}, {profile.process.label}" if profile.process.label else analysis.names
        _say_what_it_holds(profile, of, analysis.notes, said)
    what = "steady" if ranked else by or ("gemm" if gemm else None)

    def table() -> Table:
        parts = [
            (
                process_cells(run.profiles[place]),
                _table(run, place, what, (per, skip or 0), analysis.names, analysis.notes, said),
            )
            for place in shown
        ]
        return printing.in_unit(stacked(parts), str if raw else spoken)

    show(table, printing, analysis.notes, said, inputs.quiet)


def _say_what_it_holds(profile: Profile, names: str, notes: Notes, said: list[str]) -> None:
    import numpy as np

    from mio2trace.model.tables import NO

    commands = profile.commands
    kernels = np.flatnonzero(commands.is_kernel)
    said.append(f"{names}: {count(len(kernels), 'kernel')}")
    untimed = len(kernels) - int(np.count_nonzero(commands.has_times[kernels]))
    if untimed:
        notes.add("kernel without device times: counted, in no sum", count=untimed)
    called = (commands.host_start_ns[kernels] != NO) & (commands.host_end_ns[kernels] != NO)
    unlaunched = len(kernels) - int(np.count_nonzero(called))
    if unlaunched:  # usual, unless the profiler waits for each command
        what = "kernel without host times: in no sum of the host's"
        notes.add(what, count=unlaunched, problem=profile.calls_wait)


def _table(
    run: Run,
    place: int,
    by: str | None,
    repeated: tuple[int | None, int],
    names: str,
    notes: Notes,
    said: list[str],
) -> Table:
    from mio2trace.reports import kernels as report

    profile = run.profiles[place]
    alignment = run.alignments[place] if run.is_job and run.alignments else run.alignment
    if by == "steady" and run.measures:
        said.append(f"steady: {run.measures[place].steady.rule}")
        return report.kernel_table(run.measures[place])
    if by in ("name", "steady"):
        return report.by_name(profile)
    if by == "repetition":
        return report.by_repetition(*report.repetitions(profile, *repeated, names, notes, said))
    if by == "layer":
        if alignment is None or not any(one.net.layers for one in run.alignments):
            raise InputError(f"{names}: names no layer; expected also the log of the run")
        return report.by_layer(run.measures[place])
    if by in ("gemm", "bucket"):
        from mio2trace.kernels import find_gemms

        facts = run.facts[place] if run.facts else find_gemms(profile)
        return (report.gemm_table if by == "gemm" else report.by_bucket)(profile, facts)
    return report.enqueue_table(profile, alignment)


# -- MIOpen's logs: messages, commands ---------------------------------------------------------------------------------

SUBJECT_WORDS = (
    "errors", "warnings", "search", "workspace", "problems", "calls", "launches", "databases", "builds", "environment",
    "others",
)  # fmt: skip


@click.command(cls=console.Command, no_args_is_help=True)
@console.words_option("--about", SUBJECT_WORDS, f"Only these subjects: {', '.join(SUBJECT_WORDS)}. Default: all.")
@console.printing_options
@console.input_options
def messages(about: tuple[str, ...], printing: console.Printing, inputs: console.Inputs) -> None:
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
      mio2trace messages gfx942130.HIP.fdb.txt --columns problem,solver,ms
    """
    from mio2trace.readers import A_LOG
    from mio2trace.readers.miopen.lines import KINDS, SUBJECTS
    from mio2trace.reports import Table
    from mio2trace.reports import records as report

    analysis = inputs.analyse(accepted=A_LOG, join=False, every_message=True)
    found = list(logged(analysis, databases=True))
    whole = report.table(found, {kind.name: kind.subject for kind in KINDS}, SUBJECTS)
    counts = report.subject_counts(whole.rows)
    each = ", ".join(f"{one} {counts[one]}" for one in SUBJECTS if counts[one])
    said = [f"{count(sum(counts.values()), 'record')}: {each}"]
    if about:
        kept = [row for row in whole.rows if row["subject"] in about]
        empty = f"nothing about {', '.join(about)}"
        whole = Table(columns=whole.columns, rows=kept, brief=whole.brief, keys=whole.keys, empty=empty)
    show(lambda: whole, printing, analysis.notes, said, inputs.quiet)


@click.command(cls=console.Command, no_args_is_help=True)
@console.choice_option(
    "--form",
    ("today", "log"),
    "today: for a current MIOpenDriver. log: in the form of the version that wrote the log.",
)
@console.choice_option(
    "--gemm",
    ("hipblaslt", "rocblas"),
    "Bench program for PyTorch's matrix products: hipblaslt-bench or rocblas-bench.",
)
@console.input_options
def driver(form: str, gemm: Library, inputs: console.Inputs) -> None:
    """Print commands that run operations again: for MIOpenDriver, and for a BLAS bench (PyTorch's GEMMs).

    Each command is printed once, most frequent first; with the profile of the run, most kernel time first. The comment
    at its end has the number of calls, and their kernel time per steady iteration, both of all ranks of a job. Searches
    are not counted as calls. Operations that the driver cannot express are listed on stderr with the reason. A logged
    command with anything else than known options and plain values is never printed; stderr also lists it.

    \b
    Examples:
      mio2trace driver run.log
      mio2trace driver run.log prof.json
      mio2trace driver run.log | head -n 5 | sh
    """
    from mio2trace.ops import log_form
    from mio2trace.ops.command import refusal
    from mio2trace.readers import A_LOG
    from mio2trace.reports.ops import FOR_AMD, driver_lines, times_of

    analysis = inputs.analyse(accepted=A_LOG)
    notes = analysis.notes
    operations: list[Sequence[Operation]] = []
    version: Form | None = None
    stated = stated_by_profile(analysis)
    if stated:
        operations.append(stated)
    for name, log, found in () if stated else logged(analysis):
        operations.append(found)
        own = log_form(log)
        if form == "log" and own is None:
            notes.remark("log without driver commands: written for the current driver", name)
        elif version not in (None, own):
            notes.remark("logs of several versions: the commands have the form of the first log", name)
        version = version or own
    every = [one for found in operations for one in found]
    is_joined = any(run.alignments for run in analysis.runs)
    times = times_of(analysis.shown().measures, every) if is_joined else None
    commands, refused = driver_lines(every, version if version and form == "log" else "newest", times, gemm)
    texts = sum(bool(one.logged_command and refusal(one.logged_command)) for one in every)
    if texts:
        notes.add("logged command with unknown options or values: shown as text, not as a command", count=texts)
    if commands and stated and any(alignment.profile.is_nvidia for alignment in analysis.run.alignments):
        notes.remark(FOR_AMD)
    write(f"{line}\n" for line in commands)
    said = [f"{count(len(commands), 'command')}, {count(sum(line.calls for line in commands), 'call')}"]
    if not every:
        said.append("no operation in it: MIOpen logs them if MIOPEN_ENABLE_LOGGING or MIOPEN_ENABLE_LOGGING_CMD is 1")
    say(notes, [*said, *(f"no command for {one}" for one in refused)], inputs.quiet)


# -- The parts of an analysis that the commands on MIOpen's logs need --------------------------------------------------


def stated_by_profile(analysis: Analysis) -> tuple[Operation, ...]:
    """Return the operations that the ranges of a profile state; () if its run has a MIOpen log, or no such ranges."""
    if not any(run.alignments for run in analysis.runs):
        return ()
    run = analysis.run
    joined = () if run.libraries else run.alignments if run.is_job else run.alignments[:1]
    return tuple(operation for alignment in joined for operation in alignment.links.operations)


_NO_LINE = "holds no line of MIOpen; expected its log"
_NO_OPERATION = f"{_NO_LINE}, or a profile with ops (PyTorch: ProfilerActivity.CPU)"


def _require_work(analysis: Analysis) -> None:
    """Raises `InputError` if a profile holds ranges of the host and no work of a device."""
    from mio2trace.conversion import what_is_missing

    profiles = [profile for run in analysis.runs for profile in run.profiles]
    if any(profile.ranges for profile in profiles) and not any(profile.activities for profile in profiles):
        raise InputError(f"{analysis.names}: {what_is_missing(analysis.runs[0], analysis.notes)}")


def logged(analysis: Analysis, *, databases: bool = False) -> Iterator[tuple[str, MiopenLog, tuple[Operation, ...]]]:
    """Yield name, log and operations of each file in the given order; if there is a profile, only those of its run.

    ``databases``: also yield find-db and perf-db files, each as a log with a message for each solver of a problem.
    Raises `InputError` for a file without a line of MIOpen, unless this file is the profile.
    """
    from mio2trace.model.choices import GemmTable, SolverTable
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops.choices import operations_of

    with_profile = any(run.profiles for run in analysis.runs)
    runs = [analysis.run] if with_profile else analysis.runs
    operations = {
        id(log): of_log for run in runs for log, of_log in zip(run.libraries, run.operations_by_log, strict=True)
    }
    tables = [record for run in runs for record in run.side_files]
    if with_profile and not operations and not tables:
        if databases:
            raise InputError(f"{analysis.names}: {_NO_LINE}")
        _require_work(analysis)
        raise InputError(f"{analysis.names}: {_NO_OPERATION}")
    for file in sorted(analysis.inputs, key=lambda file: file.source):
        log = next((record for record in file.records if isinstance(record, MiopenLog)), None)
        table = next((record for record in file.records if isinstance(record, SolverTable)), None)
        if table is not None and databases:
            yield file.name, _as_log(table), ()
        elif log is not None and id(log) in operations:
            yield file.name, log, operations[id(log)]
        elif not databases and (gemms := [one for one in file.records if isinstance(one, GemmTable)]):
            if not with_profile:
                yield file.name, MiopenLog(source=file.source), operations_of(gemms[0])
        elif table is not None and not operations:
            raise InputError(f"{file.name}: a database without calls, which `mio2trace messages` shows; expected a log")
        elif table is None and not with_profile:
            raise InputError(f"{file.name}: {_NO_LINE}")


def _as_log(table: SolverTable) -> MiopenLog:
    from mio2trace.model.miopen import Message, MiopenLog

    return MiopenLog(
        source=table.source,
        records=tuple(
            Message(table.source, record.line, "Database", table.kind, text, "find-db record")
            for record in table.records
            for text in record.items()
        ),
    )


@click.command(cls=console.Command, no_args_is_help=True)
@click.option(
    "--group-by",
    metavar="COLUMN,...",
    help="Print one row for all operations with the same values in these columns: with the profile slowest first, else"
    " most frequent first.",
    shell_complete=console.complete_columns,
)
@console.flag("--each", help="With the profile: print one row per call, in the order of the log.")
@console.choice_option(
    "--phase",
    ("all", "run", "find"),
    "'run': without searches. 'find': only searches.",
)
@console.flag("--seed-csv", help="Print nine columns of forward convolutions, poolings and training batch norms.")
@console.flag(
    "--coverage",
    help="Print one row per file: the number of records, and the number of understood records.",
)
@console.table_options
@console.input_options
def ops(
    group_by: str | None,
    each: bool,
    phase: str,
    seed_csv: bool,
    coverage: bool,
    printing: console.Printing,
    inputs: console.Inputs,
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
      mio2trace ops run.log prof.json                     slowest operations
      mio2trace ops run.log prof.json --group-by problem  slowest problems
      mio2trace ops trace.json.gz --group-by problem      ops of a PyTorch trace
      mio2trace ops run.log --format json | jq '.[].gemm'
      mio2trace ops --coverage *.log
    """
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
        table, said = _coverage(inputs, notes)
        show(lambda: table, printing, notes, said, inputs.quiet)
        return
    analysis = inputs.analyse(notes, accepted=A_LOG, join=not seed_csv)
    by = tuple(group_by.split(",")) if group_by else ()
    try:
        timed = None if seed_csv else _timed(analysis, phase, by, each)
        table, said = timed or _operations(analysis, phase, by, seed_csv)
    except KeyError as error:
        from mio2trace.reports.ops import COLUMNS, PLACE

        there = ", ".join((*COLUMNS, *PLACE))
        raise click.UsageError(f"no column {error}; there are {there}") from None
    show(
        lambda: printing.in_unit(table),
        printing._replace(form="csv") if seed_csv else printing,
        notes,
        said,
        inputs.quiet,
    )


def _timed(analysis: Analysis, phase: str, by: Sequence[str], each: bool) -> tuple[Table, list[str]] | None:
    """Return the costs of each operation if there is a profile among the files; None without one."""
    from mio2trace.reports import ops, stacked
    from mio2trace.summary import operation_lines

    if not any(run.alignments for run in analysis.runs):
        return None
    run = analysis.shown()
    operations = () if run.alignment is None else run.alignment.with_stated(run.operations)
    if not (stated_by_profile(analysis) or operations):
        _require_work(analysis)
        raise InputError(f"{analysis.names}: {_NO_OPERATION}")

    def table(of: Sequence[Operation], place: int) -> Table:
        measures = run.measures[place]
        if not each and phase != "find":
            joined = [one for one in of if one.index in measures.operation_at]
            return ops.steady_table(joined, measures, by)
        made = ops.cost_table(_of_phase(of, phase), measures)
        return ops.summed(made, by) if by else made

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
    from mio2trace.model.choices import GemmTable
    from mio2trace.ops.choices import operations_of
    from mio2trace.reports import grouped
    from mio2trace.reports import ops as report

    found = []
    said = []
    notes = analysis.notes
    records = {one.source: one for file in analysis.inputs for one in file.records if isinstance(one, GemmTable)}
    gemms: dict[tuple[str, int], GemmChoice] = {}
    for name, log, operations in logged(analysis):
        if (products := records.get(log.source)) is not None:
            if log.counts:  # MIOpen and a BLAS library printed into one log
                operations += operations_of(products, len(operations))
            first = len(operations) - len(products.gemms)
            gemms.update(((name, number), gemm) for number, gemm in enumerate(products.gemms, first))
        kept = _of_phase(operations, phase)
        runs = sum(one.phase == "run" for one in operations)
        said.append(f"{name}: {count(len(operations), 'operation')}: {runs} run, {len(operations) - runs} find")
        for one in kept:
            for doubt in one.doubts:
                notes.add(doubt, f"{name}:{one.line}", problem=False)
        found.append((name, kept))
    if not seed_csv:
        table = _with_counts(report.table(found), gemms, [name for name, _ in found])
        return grouped(table, by) if by else table, said
    all_of_them = [one for _, operations in found for one in operations]
    table = report.seed_table(all_of_them)
    missing = sum(map(report.is_seed_operation, all_of_them)) - len(table.rows)
    if missing:
        notes.add("operation left out: the log does not show its shapes", count=missing)
    return table, said


def _with_counts(table: Table, gemms: Mapping[tuple[str, int], GemmChoice], names: Sequence[str]) -> Table:
    """Add how often the log of a BLAS library states each GEMM, and the time that TunableOp measured for it. ``gemms``:
    by file and operation."""
    import msgspec

    from mio2trace.reports import known

    if not gemms:
        return table
    cells = {key: known({"calls": gemm.count, "ms": gemm.time_ms}) for key, gemm in gemms.items()}
    rows = [
        {**row, **cells.get((str(row.get("file", names[0])), int(str(row["operation"]))), {})} for row in table.rows
    ]
    added = ("calls", "ms")
    return msgspec.structs.replace(table, columns=(*table.columns, *added), brief=(*table.brief, *added), rows=rows)


def _coverage(inputs: console.Inputs, notes: Notes) -> tuple[Table, list[str]]:
    from mio2trace.files import STANDARD_INPUT, short_names
    from mio2trace.readers import A_LOG
    from mio2trace.reports import Table, ops

    rows = []
    for file, short in zip(inputs.files, short_names(inputs.files), strict=True):
        # One by one: only the counts stay in memory.
        analysis = inputs._replace(files=(file,)).analyse(notes, accepted=A_LOG, join=False)
        rows += [
            ops.coverage_row(name if file == STANDARD_INPUT or short in name else short, log, operations, log.foreign)
            for name, log, operations in logged(analysis)
        ]
    totals = {
        key: sum(int(str(row[key])) for row in rows)
        for key in ops.COVERAGE
        if rows and key not in ("file", "kinds") and not key.endswith("percent")
    }
    said = [
        "in all: {entries_decoded} of {entries} entries decoded ({entries_cut} cut off), {commands_decoded} of"
        " {commands} commands ({commands_cut} cut off, {commands_without_shapes} without all shapes),"
        " {level_lines_classified} of {level_lines} level lines classified".format(**totals)
    ]
    return Table(columns=ops.COVERAGE, rows=rows, brief=tuple(name for name in ops.COVERAGE if name != "kinds")), said


@click.command(cls=console.Command, no_args_is_help=True)
@console.input_options
def inspect(inputs: console.Inputs) -> None:
    """Print the records of FILEs as JSON lines, as the readers understood them.

    Each file has a line ("record": "input"). A line for each of its records follows, by kind and in the order of the
    file. Records are calls, kernels, layer times, log events, and MIOpen's entries, commands and messages. Notes and
    problems are on stderr. FILEs may be gzipped; - is standard input. Private data is not removed: paths, names and
    addresses are unchanged.

    \b
    Examples:
      mio2trace inspect prof.json | head
      mio2trace inspect run.log | jq 'select(.record == "layer_time")'
      mio2trace inspect run.log | jq -r .record | sort | uniq -c
    """
    from mio2trace.privacy import KINDS

    analysis = inputs.analyse(host_calls=True, keep=KINDS, join=False)
    write(_lines(analysis.inputs))
    say(analysis.notes, [], inputs.quiet)


def _lines(inputs: Sequence[Input]) -> Iterator[str]:
    import orjson

    from mio2trace.reports.records import lines

    for found in sorted(inputs, key=lambda file: file.source):
        facts = {"record": "input", "source": found.source, "file": found.name, "format": found.format}
        facts |= {"size": found.size, "sha256": found.sha256}
        yield json_text(orjson.dumps(facts).decode()) + "\n"
        for record in found.records:
            yield from (json_text(line.removesuffix("\n")) + "\n" for line in lines(record))
