"""``mio2trace layers``: a run's layers as a table, over iterations and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mio2trace.commands.inputs import (
    aligned,
    columns_option,
    format_option,
    fullest_profile,
    read_inputs,
    read_repetitions,
    repetition_option,
    show,
    tags_option,
    unit_option,
)
from mio2trace.commands.logs import files_argument, one_line_errors, quiet_option

if TYPE_CHECKING:
    from mio2trace.model.log import FrameworkLog
    from mio2trace.notes import Notes
    from mio2trace.readers.base import Records
    from mio2trace.reports.layers import Repetition


@click.command(no_args_is_help=True)
@files_argument
@click.option(
    "--each", is_flag=True, help="One row for each time that a layer ran, the warm-up (iteration 0) included."
)
@click.option("--times", is_flag=True, help="The whole run instead: forward, backward, total, with mean and deviation.")
@unit_option
@format_option
@columns_option
@repetition_option
@tags_option
@quiet_option
def layers(
    files: tuple[str, ...],
    each: bool,
    times: bool,
    unit: str,
    form: Any,
    columns: str | None,
    repetition: int | None,
    tags: str,
    quiet: bool,
) -> None:
    """The layers of a run, one row for each direction: printed time, host time, kernel time, FLOPs.

    Takes a log alone, a log (or CK's tmp-ck-timer.json) with the profile of its run, or a CK record, whose repetitions
    are all taken. Times are means over the benchmark iterations, with their deviation. FILEs may be gzipped; - is
    standard input.

    \b
    Examples:
      mio2trace layers run.log prof.json --unit ms
      mio2trace layers run.log prof.json --each --format csv
      mio2trace layers ckp-041dbee61c949c9a.0001.json --times
      mio2trace layers experiment/my-entry --tags alexnet
    """
    from mio2trace.notes import InputError, Notes
    from mio2trace.readers.base import ReadOptions
    from mio2trace.reports import layers as report
    from mio2trace.reports.numbers import Unit

    if each and times:
        raise click.UsageError("--each does not go with --times")
    notes = Notes()
    said: list[str] = []
    in_unit = Unit(unit)
    with one_line_errors():
        stated: list[dict[str, int]] = []
        if len(files) == 1:
            found, stated = read_repetitions(files[0], repetition, tags, notes)
        else:
            inputs = read_inputs(files, ReadOptions(repetition=repetition), tags, notes)
            found = [[record for one in inputs for record in one.records]]
        if times:
            values = [_times(records, stated[number] if stated else {}) for number, records in enumerate(found)]
            if not any(values):
                raise InputError(f"{', '.join(files)}: states no time of the whole run")
            show(lambda: report.times_table(values, in_unit), form, columns, notes, said, quiet)
            return
        repetitions = [one for records in found for one in _joined(records, notes)]
        if not any(one.log is not None and one.log.layers for one in repetitions):
            raise InputError(f"{', '.join(files)}: names no layer; expected Caffe's `time` log or a CK record")
        if each and not any(one.alignment for one in repetitions):
            raise InputError(f"{', '.join(files)}: holds no GPU profile; expected that of the run for --each")
        if len(repetitions) > 1:
            said.append(f"{len(repetitions)} repetitions")
        make = report.execution_table if each else report.layer_table
        show(lambda: make(repetitions, in_unit), form, columns, notes, said, quiet)


def _joined(records: Records, notes: Notes) -> Sequence[Repetition]:
    """The runs that some records are of: the profile's, or each that the log holds where there is no profile."""
    from mio2trace.align.clocks.log_runs import split
    from mio2trace.align.layers.net import by_place
    from mio2trace.model.log import FrameworkLog
    from mio2trace.reports.layers import Repetition

    logs = [record for record in records if isinstance(record, FrameworkLog)]
    profile = fullest_profile(records, notes)
    if profile is not None:
        alignment = aligned(profile, records, notes)
        return [Repetition(_best(alignment.logs), alignment)]
    best = _best(logs)
    return [Repetition(by_place(run), None) for run in split(best)] if best is not None else []


def _best(logs: Sequence[FrameworkLog]) -> FrameworkLog | None:
    """The log with most layers: a log and CK's digest of it say the same twice."""
    return max(logs, key=lambda log: len(log.layers), default=None)


def _times(records: Records, stated: dict[str, int]) -> dict[str, list[int]]:
    """What CK states of a repetition, or what the lines of its log do."""
    from mio2trace.model.log import FrameworkLog
    from mio2trace.reports.layers import times_of_log

    found: dict[str, list[int]] = {measure: [ns] for measure, ns in stated.items()}
    if not found:
        for record in records:
            if isinstance(record, FrameworkLog):
                for measure, ns in times_of_log(record):
                    found.setdefault(measure, []).append(ns)
    return found
