"""The command line: options in, `convert`, notes on stderr, exit code out. What is heavy is imported where used."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

EVIDENCE_WORDS = (
    "timer marks",
    "position",
    "buffers",
    "launch line",
    "boundary stamps",
    "recurrence",
    "name and sizes",
    "durations",
    "order",
)


class _DefaultToConvert(click.Group):
    """``mio2trace FILE...`` is ``mio2trace convert FILE...``; a first word that is a command is the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version"):
            args = ["convert", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_DefaultToConvert,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=False,
)
@click.version_option(package_name="mio2trace", message="%(package)s %(version)s")
def cli() -> None:
    """Tell which layer, which operation and which kernel the GPU time went into.

    Joins what a run printed with a GPU profile of the same run, and writes a trace for ui.perfetto.dev.

    \b
    Examples:
      mio2trace run.log prof.json -o out.json           a log and a dv/dt profile
      mio2trace run.log -o out.json.gz                  a log that holds the [dv/dt] blocks itself
      mio2trace tmp-ck-timer.json prof.json -o out.json CK's digest instead of the log
      mio2trace experiment/my-entry --tags alexnet -o out.json
      gunzip -c run.log.gz | mio2trace - prof.json -o out.json

    "mio2trace FILE..." is short for "mio2trace convert FILE...".
    """


@cli.command(no_args_is_help=True)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where to write: .json, .json.gz, or - for stdout.")
@click.option(
    "--host-calls",
    type=click.Choice(["all", "enqueue", "none"]),
    default="enqueue",
    show_default=True,
    help="API calls to draw on the host's side; 'enqueue' includes program builds.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="EVIDENCE",
    help=f"Ignore one kind of evidence (repeatable): {', '.join(EVIDENCE_WORDS)}.",
)
@click.option("--repetition", type=click.IntRange(min=0), metavar="N", help="Repetition of a CK record, from 0.")
@click.option("--tags", default="", metavar="A,B", help="Tags that choose an entry in a CK directory.")
@click.option(
    "--align",
    "alignment",
    type=click.Choice(["auto", "order"]),
    default="auto",
    show_default=True,
    help="'order' goes on by order alone where the clocks say that the files are not of one run.",
)
@click.option("--summary", "summary_file", metavar="FILE", help="Write the trace's metadata object as JSON, too.")
@click.option("--check", is_flag=True, help="Verify the invariants of this very trace while writing it.")
@click.option("--strict", is_flag=True, help="Problems are errors: nothing is written.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
def convert(
    files: tuple[str, ...],
    output: str,
    host_calls: Any,
    without: tuple[str, ...],
    repetition: int | None,
    tags: str,
    alignment: str,
    summary_file: str | None,
    check: bool,
    strict: bool,
    quiet: bool,
) -> object:
    """Join the files of one run into a trace.

    FILEs are recognised by their content and may come in any order: logs of Caffe and MIOpen, dv/dt profiles, CK
    records and directories; plain or gzipped; - is standard input.

    \b
    Examples:
      mio2trace run.log prof.json -o out.json
      mio2trace run.log prof.json -o out.json --without "timer marks" --summary found.json
      mio2trace prof.json -o - --host-calls none | gzip > out.json.gz
    """
    from timeline import pipeline
    from timeline.notes import InputError

    _refuse_to_overwrite_an_input(files, (output, summary_file))
    if files.count("-") > 1:
        raise click.UsageError("standard input (-) can be given once")
    progress = _Progress() if not quiet and sys.stderr.isatty() else None
    try:
        result = pipeline.convert(
            *files,
            output=output,
            host_calls=host_calls,
            without=without,
            repetition=repetition,
            tags=tuple(tag for tag in tags.split(",") if tag),
            by_order_alone=alignment == "order",
            check=check,
            strict=strict,
            summary_file=summary_file,
            progress=progress,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except InputError as error:
        if progress is not None:
            progress.done()
        click.echo(f"mio2trace: {error}", err=True)
        sys.exit(1)
    if progress is not None:
        progress.done()
    if not quiet:
        for line in result.report:
            click.echo(_styled(line), err=True)
        if output != "-":
            size = os.path.getsize(output) if os.path.isfile(output) else 0
            click.echo(f"wrote {output} ({size / 1e6:.1f} MB): open it at https://ui.perfetto.dev", err=True)
    return result


def _refuse_to_overwrite_an_input(files: tuple[str, ...], outputs: tuple[str | None, ...]) -> None:
    for output in outputs:
        for file in files:
            if (
                output
                and file != "-"
                and os.path.isfile(output)
                and os.path.exists(file)
                and os.path.samefile(output, file)
            ):
                raise click.UsageError(f"{output} is an input, too")


def _styled(line: str) -> str:
    """Problems in yellow, where colour is wanted and the terminal has it."""
    if "NO_COLOR" in os.environ or not sys.stderr.isatty() or not line.startswith("problem"):
        return line
    return click.style(line, fg="yellow")


class _Progress:
    """How much of a large input is read, on one line of the terminal."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, name: str, done: int, total: int) -> None:
        if max(done, total) < 20_000_000:
            return
        text = f"reading {name}: {100 * done // total} %" if total else f"reading {name}: {done >> 20} MB"
        if text != self._shown:
            self._shown = text
            click.echo(f"\r\x1b[2K{text}", nl=False, err=True)

    def done(self) -> None:
        """Leave no half line behind."""
        if self._shown:
            click.echo("\r\x1b[2K", nl=False, err=True)
            self._shown = ""


def main() -> None:
    """Entry point: exit 0 converted, 1 a bad input, 2 usage, 130 interrupted."""
    try:
        held = cli.main(prog_name="mio2trace", standalone_mode=False)
        sys.stdout.flush()
        sys.stderr.flush()
        if held is not None:
            # All is written and closed: the system frees millions of records faster than we could, one by one.
            os._exit(0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("mio2trace: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our standard output has gone: nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)


if __name__ == "__main__":
    main()
