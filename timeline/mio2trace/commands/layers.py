"""``mio2trace layers``: a run's layers as a table, over iterations and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.printing import show
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.analysis import Run
    from mio2trace.model.log import FrameworkLog
    from mio2trace.reports.layers import Repetition
    from mio2trace.reports.tables import Table


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@options.flag("--each", help="Print one row per execution of a layer, also those of the warm-up (iteration 0).")
@options.choice_option(
    "--by",
    ("layer", "class"),
    "One row per layer, or per class of modules: Conv2d_3 and Conv2d_7 are one class.",
)
@options.flag(
    "--tree",
    help="Print the tree of layers, their operations and kernels. Each row has its own time and its total time.",
)
@options.flag("--times", help="Print times of the whole run: forward, backward, total, with mean and deviation.")
@options.table_options
@options.reading_options
def layers(
    files: tuple[str, ...],
    each: bool,
    by: str,
    tree: bool,
    times: bool,
    printing: options.Printing,
    reading: options.Reading,
    quiet: bool,
) -> None:
    """List the layers of a run, slowest first: kernel time per steady iteration, host time, printed time, FLOPs.

    FILEs are a log alone, a log (or CK's tmp-ck-timer.json) with the profile of its run, a profile whose ranges or
    modules are layers, or a CK record with all its repetitions. Times are means per steady iteration; searches are in
    columns of their own (find). FILEs may be gzipped; - is standard input.

    \b
    Examples:
      mio2trace layers run.log prof.json
      mio2trace layers run.log prof.json --sort layer_index --where "kernel_ms>0.1"
      mio2trace layers run.log prof.json --each --format csv
      mio2trace layers trace.json.gz --by class
      mio2trace layers trace.json.gz --tree --where "kind=layer"
      mio2trace layers ckp-041dbee61c949c9a.0001.json --times
      mio2trace layers experiment/my-entry --tags alexnet
    """
    from mio2trace.analysis import analyse
    from mio2trace.commands.printing import process_cells
    from mio2trace.notes import InputError
    from mio2trace.reports import layers as report
    from mio2trace.reports.layers import tree_table
    from mio2trace.reports.tables import stacked

    if by == "class" and (each or times):
        raise click.UsageError("--by class cannot be combined with --each and --times")
    if each and times:
        raise click.UsageError("--each cannot be combined with --times")
    if tree and (each or times or by == "class"):
        raise click.UsageError("--tree cannot be combined with --each, --times and --by class")
    every = "every" if len(files) == 1 and reading.repetition is None else reading.repetition
    analysis = analyse(files, reading.analysis(repetition=every, join=not times))
    notes = analysis.notes
    said: list[str] = []
    unit = printing.unit_of_time()
    repeated = any(file.repetition is not None for file in analysis.inputs)
    runs = analysis.runs if repeated else (analysis.run,)
    if times:
        values = [_times(run) for run in runs]
        if not any(values):
            raise InputError(f"{', '.join(files)}: states no time of the whole run")
        show(lambda: report.times_table(values, unit), printing, notes, said, quiet)
        return
    processes = runs[0].measures if len(runs) == 1 and runs[0].is_job else ()
    repetitions = [one for run in runs for one in _joined(run)]
    if not any(_names_layers(one) for one in repetitions):
        raise InputError(
            f"{', '.join(files)}: names no layer; expected Caffe's `time` log, a CK record, or a profile whose ranges"
            " or modules are layers"
        )
    if (each or tree) and not any(one.measures for one in repetitions):
        option = "--each" if each else "--tree"
        raise InputError(f"{', '.join(files)}: holds no GPU profile; expected that of the run for {option}")
    if len(repetitions) > 1 and not processes:
        said.append(count(len(repetitions), "repetition"))
    if not each:
        for one in repetitions:
            if one.measures is not None:
                said.append(f"steady: {one.measures.steady.rule}")
    if tree and len(repetitions) > 1 and not processes:
        raise click.UsageError(f"--tree shows one run, and there are {len(repetitions)}: --repetition chooses one")
    make = report.execution_table if each else report.class_table if by == "class" else report.layer_table
    make = tree_table if tree else make

    def table() -> Table:
        if not processes:
            return make(repetitions, unit)
        of = [process_cells(measures.alignment.profile) for measures in processes]
        return stacked([(cells, make([one], unit)) for cells, one in zip(of, repetitions, strict=True)])

    show(table, printing, notes, said, quiet)


def _joined(run: Run) -> Sequence[Repetition]:
    """Return the runs in a log: the run of the profile, or all if there is no profile."""
    from mio2trace.align.clocks.log_runs import split
    from mio2trace.align.layers.net import by_place
    from mio2trace.reports.layers import Repetition

    if run.is_job:
        return [Repetition(_best(measures.alignment.logs), measures) for measures in run.measures]
    if run.alignment is not None:
        return [Repetition(_best(run.alignment.logs), run.measures[0])]
    best = _best(run.logs)
    return [Repetition(by_place(part), None) for part in split(best)] if best is not None else []


def _names_layers(repetition: Repetition) -> bool:
    """Return whether the log or the profile itself names layers."""
    in_log = repetition.log is not None and bool(repetition.log.layers)
    return in_log or (repetition.measures is not None and bool(repetition.measures.executions))


def _best(logs: Sequence[FrameworkLog]) -> FrameworkLog | None:
    """Return the log with the most layers: a log and CK's digest of it hold the same layers twice."""
    return max(logs, key=lambda log: len(log.layers), default=None)


def _times(run: Run) -> dict[str, list[int]]:
    """Return the layer times of a repetition, from the CK record or from the lines of its log."""
    from mio2trace.reports.layers import times_of_log

    found: dict[str, list[int]] = {measure: [ns] for file in run.inputs for measure, ns in file.stated_ns.items()}
    if not found:
        for log in run.logs:
            for measure, ns in times_of_log(log):
                found.setdefault(measure, []).append(ns)
    return found
