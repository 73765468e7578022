"""``mio2trace tfprof``: memory and times of TensorFlow 1's ops, and its scope view."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mio2trace import commands as options
from mio2trace.commands import say, write
from mio2trace.commands import show as show_table
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.model.tf import TfProfile, TfView
    from mio2trace.notes import Notes
    from mio2trace.reports import Table
    from mio2trace.reports.tfprof import ScopeOptions, Units

_STEPS = re.compile(r"avg|(-?\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_MINIMUM = re.compile(r"(\w+)=(\d{1,18})", re.ASCII)


_expressions = functools.partial(click.option, multiple=True, metavar="REGEX")


@click.command(cls=options.Command, no_args_is_help=True)
@options.flag("--no-header", help="Leave out the line of column names (csv and table).")
@click.option(
    "--steps",
    metavar="N,N-M,...",
    help="Print only these steps. With --text each step is a view of its own, and avg is the mean over all steps."
    " Default: all steps; with --text: avg.",
)
@click.option(
    "--show",
    multiple=True,
    metavar="REGEX",
    help="Print only rows whose whole name matches (repeatable). Default: the four expressions of the notebook, for"
    " every tower, naming and version of an op. '.*' shows all.",
)
@options.flag("--notebook-units", help="Use the notebook's rounded numbers and its factors: 1 MB = 1024 KB.")
@options.flag("--text", help="Print TensorFlow's own scope view. The options below belong to it.")
@click.option("--select", metavar="COLUMN,...", help="Columns of the view.")
@click.option("--order-by", metavar="COLUMN", help="Order by name, or by the totals of a number, largest first.")
@click.option("--max-depth", type=click.IntRange(min=1), metavar="N", help="The root has depth 1. Default: 50.")
@click.option("--min", "minima", multiple=True, metavar="COLUMN=N", help="Leave out rows with less (repeatable).")
@_expressions("--account", "account_type_regexes", help="Only ops of these types count (repeatable).")
@_expressions("--start", "start_name_regexes", help="Scopes to begin with (repeatable).")
@_expressions("--trim", "trim_name_regexes", help="Scopes whose children are not shown (repeatable).")
@_expressions("--hide", "hide_name_regexes", help="Rows to leave out (repeatable).")
@options.flag("--displayed-only", "account_displayed_op_only", help="Count only shown rows in totals.")
@options.flag("--console", help="Print the view with its options, as TensorFlow does on a console.")
@options.printing_options
@options.input_options
def tfprof(
    no_header: bool,
    steps: str | None,
    show: tuple[str, ...],
    notebook_units: bool,
    text: bool,
    printing: options.Printing,
    inputs: options.Inputs,
    **view: Any,
) -> None:
    """Print memory and times of TensorFlow 1's ops, as mean and variation over the steps.

    FILE is a TFProf profile (ProfileProto), RunMetadata, StepStats as text, TensorFlow's timeline JSON, or one or
    several printed scope or op views. It may be gzipped; - is standard input. A row has the op's short name, its
    requested memory in KB of 1000 bytes, and its total, accelerator and cpu time in us. cpu is the time of the host:
    for an op on a GPU, mostly its launch.

    \b
    Examples:
      mio2trace tfprof profile.tfprof
      mio2trace tfprof profile.tfprof --no-header --steps 1-9 > ops.csv
      mio2trace tfprof profile.tfprof --show '.*/Conv2D' --format markdown
      mio2trace tfprof profile.tfprof --text --steps 0 --min micros=100
      mio2trace tfprof step_*.txt
    """
    from mio2trace.notes import Notes

    used = [one.opts[0] for one in click.get_current_context().command.params if view.get(one.name or "")]
    if used and not text:
        raise click.UsageError(f"{used[0]} needs --text")
    given = {"--format": printing.form, "--no-header": no_header, "--notebook-units": notebook_units}
    given |= {f"--{name}": getattr(printing, name) for name in ("columns", "sort", "top", "where")}
    against = [name for name, value in {**given, "--output": printing.path}.items() if value]
    if text and against:
        raise click.UsageError(f"--text cannot be combined with {against[0]}")
    if no_header and printing.printed_as() not in ("csv", "table"):
        raise click.UsageError(f"--no-header cannot be combined with --format {printing.printed_as()}")
    for expression in (*show, *(one for name, of in view.items() if name.endswith("_regexes") for one in of)):
        _check_expression(expression)
    wanted = _steps(steps, text)
    notes = Notes()
    profile, views = _read(inputs, notes)
    if text:
        console = view.pop("console")
        _print_views(profile, inputs.files, wanted, _view_options(show, view), notes, console)
        say(notes, [], inputs.quiet)
        return
    table, said = _table(profile, views, wanted, show, "notebook" if notebook_units else "exact", notes)
    show_table(lambda: table, printing, notes, said, inputs.quiet, header=not no_header)


def _check_expression(expression: str) -> None:
    try:
        re.compile(expression, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.UsageError(f"{expression!r} is no regular expression: {error}") from None


def _steps(given: str | None, text: bool) -> list[range | None] | None:
    """Return ranges of step ids; a range is None for the average. None in place of the list: no choice was made."""
    if given is None:
        return [None] if text else None
    found: list[range | None] = []
    for part in given.split(","):
        match = _STEPS.fullmatch(part.strip())
        if match is None or (match[0] == "avg" and not text):
            raise click.UsageError(f"--steps {given}: expected numbers and ranges such as 0,2-5")
        if match[0] == "avg":
            found.append(None)
            continue
        first = int(match[1])
        steps = range(first, int(match[2] or first) + 1)
        if not steps:
            raise click.UsageError(f"--steps {given}: {part} is empty")
        found.append(steps)
    return found


def _chosen(wanted: Sequence[range | None], known: Sequence[int]) -> list[int | None]:
    """Return the wanted steps that exist. Raises `click.UsageError` for any other value."""
    found: list[int | None] = []
    for part in wanted:
        inside: list[int | None] = [None] if part is None else [step for step in known if step in part]
        if not inside or (part is not None and len(part) <= len(known) and len(inside) < len(part)):
            missing = next(step for step in part or () if step not in known)
            there = ", ".join(map(str, known[:20])) + (", ..." if len(known) > 20 else "")
            raise click.UsageError(f"no step {missing}; there are {there or 'none'}")
        found += [step for step in inside if step not in found]
    return found


def _view_options(show: tuple[str, ...], view: dict[str, Any]) -> ScopeOptions:
    """``view``: the given values by the names of `ScopeOptions`."""
    from mio2trace.reports import tfprof as scope

    minima = []
    for one in view["minima"]:
        match = _MINIMUM.fullmatch(one)
        if match is None or match[1] not in scope.MINIMA:
            raise click.UsageError(f"--min {one}: expected COLUMN=N with one of {', '.join(scope.MINIMA)}")
        minima.append((match[1], int(match[2])))
    if view["order_by"] and view["order_by"] not in scope.ORDERS:
        raise click.UsageError(f"--order-by {view['order_by']}: expected one of {', '.join(scope.ORDERS)}")
    select = tuple(view["select"].split(",")) if view["select"] else ()
    for name in select:
        if name not in scope.SELECTABLE:
            raise click.UsageError(f"--select: no column {name!r}; expected some of {', '.join(scope.SELECTABLE)}")
    given = {**view, "minima": tuple(minima), "select": select, "show_name_regexes": show}
    return scope.ScopeOptions(**{name: value for name, value in given.items() if value})


def _read(inputs: options.Inputs, notes: Notes) -> tuple[TfProfile | None, list[TfView]]:
    """Return the one profile, or the printed views. Raises `InputError`."""
    from mio2trace.model.tf import TfProfile, TfView
    from mio2trace.notes import InputError
    from mio2trace.readers import A_TF_PROFILE

    # Two steps may print the same text: each file is a step.
    analysis = inputs.analyse(notes, accepted=A_TF_PROFILE, join=False, copies=True)
    in_order = sorted(analysis.inputs, key=lambda file: file.source)
    records = [record for file in in_order for record in file.records]
    profiles = [record for record in records if isinstance(record, TfProfile)]
    printed = [record for record in records if isinstance(record, TfView)]
    if not profiles and not printed:
        raise InputError(f"{', '.join(inputs.files)}: no profile of TensorFlow in it; expected {A_TF_PROFILE.expected}")
    if len(profiles) + bool(printed) > 1:
        raise InputError(f"{', '.join(inputs.files)}: several profiles; expected one profile, or printed views of one")
    return (profiles[0] if profiles else None), printed


def _print_views(
    profile: TfProfile | None,
    files: Sequence[str],
    wanted: list[range | None] | None,
    options: ScopeOptions,
    notes: Notes,
    console: bool,
) -> None:
    import msgspec

    from mio2trace.notes import InputError
    from mio2trace.reports.tfprof import ScopeTree, text

    if profile is None:
        raise InputError(f"{', '.join(files)}: a view that is printed already; expected a profile for --text")
    if not profile.memory_known:
        notes.add("this form of profile has no memory of ops: it shows as 0")
    if not profile.graph_known and set(options.select) & {"params", "float_ops", "input_shapes"}:
        notes.add("this form of profile has no graph: params, float_ops and input_shapes show as none")
    steps = _chosen(wanted or [None], profile.steps)
    tree = ScopeTree(profile)
    for step in steps:
        chosen = msgspec.structs.replace(options, step=step)
        write(text(tree.rows(chosen), chosen, banner=console))


def _table(
    profile: TfProfile | None,
    views: list[TfView],
    wanted: list[range | None] | None,
    show: tuple[str, ...],
    units: Units,
    notes: Notes,
) -> tuple[Table, list[str]]:
    from mio2trace.reports import tfprof as report

    op_view = False
    if profile is not None:
        chosen = list(profile.steps) if wanted is None else _chosen(wanted, profile.steps)
        steps = [step for step in chosen if step is not None]
        if not steps:
            notes.add("profile without any step: nothing ran")
        ran = sum(bool(node.steps) for node in profile.nodes)
        said = f"{count(len(profile.nodes), 'node')}, {ran} of them ran; "
        said += f"{len(steps)} of {count(len(profile.steps), 'step')} taken"
        series = report.profile_series(profile, steps, show, units)
        if not profile.memory_known:
            notes.remark("this form of profile has no memory of ops")
    else:
        taken = report.steps_of(views, notes)
        op_view = taken[0].view == "op"
        if wanted is not None:
            kept = set(_chosen(wanted, [view.step for view in taken if view.step is not None]))
            taken = [view for view in taken if view.step in kept]
        several = count(len(taken), "step")
        said = f"{taken[0].view} view of {'an average' if taken[0].step == -1 else several}"
        series = report.view_series(taken, show, units)
    for kind, place in report.doubts(series):
        notes.remark(kind, place)
    if not series:
        notes.add("no row is shown: no name matches (--show '.*' shows all)")
    return report.table(series, op_view=op_view), [f"{said}; {count(len(series), 'row')}"]
