"""``mio2trace kernels``: the kernels of a profile as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from mio2trace.commands import options
from mio2trace.commands.printing import show
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.analysis import Analysis, Run
    from mio2trace.model.profile import Profile
    from mio2trace.notes import Notes
    from mio2trace.reports.tables import Table, Unit


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@click.option(
    "--by",
    type=click.Choice(["name", "repetition", "layer", "bucket"]),
    help="Print one row per kernel name, repetition, layer, or size class of GEMMs (bucket).",
)
@options.flag("--gemm", help="Print one row per GEMM: M, N, K, GFLOP/s, the nearest powers of two.")
@click.option(
    "--per",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of kernels in a repetition. Default: by the kernels that repeat.",
)
@click.option(
    "--skip", type=click.IntRange(min=0), metavar="N", help="With --per: number of kernels before the first repetition."
)
@options.flag(
    "--raw",
    help="Use the column names of the dv/dt notebook (t1_t0, p3_p2, p0_ns, ...). --by name then counts all kernels.",
)
@options.table_options
@options.reading_options
def kernels(  # noqa: PLR0913 - click gives each option by keyword
    files: tuple[str, ...],
    by: str | None,
    gemm: bool,
    per: int | None,
    skip: int | None,
    raw: bool,
    printing: options.Printing,
    reading: options.Reading,
    quiet: bool,
) -> None:
    """List the kernels of a profile, one row each, or summed.

    The column kernel is the kernel's own time; host is the time of the call that launched it. --by name orders by the
    kernel time per steady iteration; searches are in columns of their own (find). --by layer also needs the log of the
    run. FILEs may be gzipped; - is standard input.

    \b
    Examples:
      mio2trace kernels prof.json --sort kernel --top 20
      mio2trace kernels prof.json --by name
      mio2trace kernels prof.json --by repetition
      mio2trace kernels prof.json --gemm --format json
      mio2trace kernels prof.json --by bucket
      mio2trace kernels run.log prof.json --by layer
      mio2trace kernels run.log prof.json       also the layer and the operation of each kernel
    """
    from mio2trace.analysis import analyse
    from mio2trace.commands.printing import places, process_cells
    from mio2trace.notes import InputError
    from mio2trace.reports.kernels import spoken
    from mio2trace.reports.tables import renamed, stacked

    if (per is not None or skip is not None) and by != "repetition":
        raise click.UsageError("--per and --skip need --by repetition")
    if skip is not None and per is None:
        raise click.UsageError("--skip needs --per")
    if gemm and by not in (None, "bucket"):
        raise click.UsageError(f"--gemm cannot be combined with --by {by}")
    ranked = by == "name" and not raw
    join: bool | Literal["logs"] = by == "layer" or ranked or ("logs" if by is None and not gemm else False)
    analysis = analyse(files, reading.analysis(join=join))
    run = analysis.run
    if not run.profiles:
        raise InputError(f"{analysis.names}: holds no GPU profile; expected one")
    _say_of_others(analysis, run)
    said: list[str] = []
    shown = places(run)
    for place in shown:
        profile = run.profiles[place]
        of = f"{analysis.names}, {profile.process.label}" if profile.process.label else analysis.names
        _say_what_it_holds(profile, of, analysis.notes, said)
    what = "steady" if ranked else by or ("gemm" if gemm else None)
    unit = printing.unit_of_time()

    def table() -> Table:
        parts = [
            (
                process_cells(run.profiles[place]),
                _table(run, place, what, (per, skip or 0), unit, analysis.names, analysis.notes, said),
            )
            for place in shown
        ]
        return stacked(parts) if raw else renamed(stacked(parts), spoken)

    show(table, printing, analysis.notes, said, quiet)


def _say_of_others(analysis: Analysis, run: Run) -> None:
    """Say that only the kernels of one profile are shown."""
    profiles = sum(len(each.profiles) for each in analysis.runs)
    if profiles > len(run.profiles) or (profiles > 1 and not run.is_job):
        which = "fits the logs best" if run.complete else "has most kernels and copies"
        analysis.notes.add(f"{profiles} profiles: the profile that {which} is shown")


def _say_what_it_holds(profile: Profile, names: str, notes: Notes, said: list[str]) -> None:
    from mio2trace.reports.kernels import kernels_of, quantities

    found = kernels_of(profile)
    said.append(f"{names}: {count(len(found), 'kernel')}")
    untimed = sum("p3_p2" not in quantities(activity) for activity in found)
    if untimed:
        notes.add("kernel without device times: counted, in no sum", count=untimed)
    unlaunched = sum("t1_t0" not in quantities(activity) for activity in found)
    if unlaunched:  # usual, unless the profiler waits for each command
        what = "kernel without host times: in no sum of the host's"
        notes.add(what, count=unlaunched, problem=profile.calls_wait)


def _table(
    run: Run,
    place: int,
    by: str | None,
    repeated: tuple[int | None, int],
    unit: Unit,
    names: str,
    notes: Notes,
    said: list[str],
) -> Table:
    from mio2trace.notes import InputError
    from mio2trace.reports import kernels as report

    profile = run.profiles[place]
    alignment = run.alignments[place] if run.is_job and run.alignments else run.alignment
    if by == "steady" and run.measures:
        from mio2trace.reports.steady import kernel_table

        measures = run.measures[place]
        said.append(f"steady: {measures.steady.rule}")
        return kernel_table(measures, unit)
    if by in ("name", "steady"):
        return report.by_name(profile, unit)
    if by == "repetition":
        return report.by_repetition(report.repetitions(profile, *repeated, names, notes, said), unit)
    if by == "layer":
        if alignment is None or not any(one.net.layers for one in run.alignments):
            raise InputError(f"{names}: names no layer; expected also the log of the run")
        return report.by_layer(run.measures[place], unit)
    if by in ("gemm", "bucket"):
        from mio2trace.kernels import find_gemms

        facts = run.facts[place] if run.facts else find_gemms(profile)
        return (report.gemm_table if by == "gemm" else report.by_bucket)(profile, facts, unit)
    return report.enqueue_table(profile, unit, alignment)
