"""``mio2trace driver``: MIOpenDriver lines that run a log's operations again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.logs import logged, stated_by_profile
from mio2trace.commands.printing import say, write
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mio2trace.ops.families.gemm import Library
    from mio2trace.ops.operation import Operation
    from mio2trace.ops.problem import Form


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@click.option(
    "--form",
    type=click.Choice(["today", "log"]),
    default="today",
    show_default=True,
    help="today: for a current MIOpenDriver. log: in the form of the version that wrote the log.",
)
@click.option(
    "--gemm",
    type=click.Choice(["hipblaslt", "rocblas"]),
    default="hipblaslt",
    show_default=True,
    help="Bench program for PyTorch's matrix products: hipblaslt-bench or rocblas-bench.",
)
@options.reading_options
def driver(files: tuple[str, ...], form: str, gemm: Library, reading: options.Reading, quiet: bool) -> None:
    """Print commands that run operations again: for MIOpenDriver, and for a BLAS bench (PyTorch's GEMMs).

    Each command is printed once, most frequent first; with the profile of the run, most kernel time first. The comment
    at its end has the number of calls, and their kernel time per steady iteration. Searches are not counted as calls.
    Operations that the driver cannot express are listed on stderr with the reason. A logged command with anything else
    than known options and plain values is never printed; stderr also lists it.

    \b
    Examples:
      mio2trace driver run.log
      mio2trace driver run.log prof.json
      mio2trace driver run.log | head -n 5 | sh
    """
    from mio2trace.analysis import analyse
    from mio2trace.ops import log_form
    from mio2trace.ops.command import refusal
    from mio2trace.readers import A_LOG
    from mio2trace.reports.driver import lines

    analysis = analyse(files, reading.analysis(accepted=A_LOG))
    notes = analysis.notes
    operations: list[Sequence[Operation]] = []
    version: Form | None = None
    kernel_ns: dict[int, float] | None = None
    if any(run.alignments for run in analysis.runs) and analysis.run.alignment is not None:
        kernel_ns = analysis.run.measures[0].steady.of_operations()
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
    commands, refused = lines(
        (one for found in operations for one in found),
        (version or "newest") if form == "log" else "newest",
        kernel_ns if len(operations) == 1 else None,
        gemm,
    )
    texts = sum(bool(one.logged_command and refusal(one.logged_command)) for found in operations for one in found)
    if texts:
        notes.add("logged command with unknown options or values: shown as text, not as a command", count=texts)
    write(f"{line}\n" for line in commands)
    said = [f"{count(len(commands), 'command')}, {count(sum(line.calls for line in commands), 'call')}"]
    say(notes, [*said, *(f"no command for {one}" for one in refused)], quiet)
