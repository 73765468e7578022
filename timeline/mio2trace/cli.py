"""The command line: options in, `convert`, notes on stderr, exit code out. What is heavy is imported where used."""

from __future__ import annotations

import fnmatch
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mio2trace import __version__
from mio2trace.commands import LATER, Later
from mio2trace.commands.options import Reading, Words, complete_files, files_argument, reading_options
from mio2trace.commands.printing import Progress, Refused, is_terminal, styled
from mio2trace.evidence import EVIDENCE
from mio2trace.outgoing import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mio2trace import conversion


_WHOLE = 500
"""Letters: more than any command's line has."""


class _DefaultToConvert(click.Group):
    """``mio2trace FILE...`` is ``mio2trace convert FILE...``; a first word that is a command is the command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, Later):
            command = self.commands[cmd_name] = command.loaded()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, none of them loaded; what each does is wrapped, not cut."""
        rows = [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version"):
            if not ctx.resilient_parsing:
                _refuse_a_mistyped_command(args[0], self.commands)
            args = ["convert", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and files, which need none; these first: bash forgets what comes before them."""
        return [*complete_files(ctx, None, incomplete), *super().shell_complete(ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Where errors become exit codes: 1 for an input that cannot be used, 2 for an option that is none."""
        from mio2trace.notes import InputError, OptionError

        try:
            return super().invoke(ctx)
        except OptionError as error:
            raise click.UsageError(str(error)) from None
        except InputError as error:
            raise Refused(str(error)) from None
        except MemoryError:
            least = "; --host-calls none needs least" if ctx.invoked_subcommand == "convert" else ""
            raise Refused(f"out of memory{least}") from None


@click.group(
    cls=_DefaultToConvert,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=False,
)
@click.version_option(__version__, prog_name="mio2trace", message="%(prog)s %(version)s")
def cli() -> None:
    """Tell which layer, which operation and which kernel the GPU time went into.

    Joins what a run printed with a GPU profile of the same run, and writes a trace for ui.perfetto.dev.

    \b
    Examples:
      mio2trace run.log run_results.db -o out.json      a log and what rocprofv3 recorded
      mio2trace run.log prof.json -o out.json           ... and a dv/dt profile
      mio2trace run.log -o out.json.gz                  a log that holds the [dv/dt] blocks itself
      mio2trace tmp-ck-timer.json prof.json -o out.json CK's digest instead of the log
      mio2trace experiment/my-entry --tags alexnet -o out.json
      gunzip -c run.log.gz | mio2trace - prof.json -o out.json
      mio2trace report run.log prof.json -o run.html    where the time went, what is odd, what to try
      mio2trace compare before/ after/                  what became slower, and why
      mio2trace record -o run.zip -- python train.py    both files, in the first place
      mio2trace ops run.log --group-by problem          what MIOpen computed, by frequency
      mio2trace messages run.log                        errors, searches, workspaces, problems behind keys
      mio2trace driver run.log                          MIOpenDriver lines that run it again
      mio2trace kernels prof.json --by name             where the kernel time went
      mio2trace layers run.log prof.json                each layer: printed, host and kernel time, FLOPs

    "mio2trace FILE..." is short for "mio2trace convert FILE...".
    """


SMALLER = ("--host-calls none", "--iterations", "--from", "--to", "--top", "--min-duration", "--no-args")
"""Options of `convert` that make a trace smaller, the most useful first."""
TRACK_WORDS = ("kernels", "operations")
FOLD_WORDS = ("find", "set-up", "warm-up")
KEEP_WORDS = ("paths", "hosts", "users", "pointers", "environment", "secrets", "devices")


@cli.command(no_args_is_help=True)
@files_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Where to write: .json, .pftrace (Perfetto's native form), either with .gz; .parquet: a folder of tables;"
    " - for stdout.",
)
@click.option(
    "--host-calls",
    type=click.Choice(["all", "enqueue", "none"]),
    default="enqueue",
    show_default=True,
    help="API calls to draw on the host's side; 'enqueue' includes program builds.",
)
@click.option(
    "--tracks",
    type=Words(TRACK_WORDS),
    default="",
    metavar="WORD,...",
    help="More tracks beside the nested one: kernels (one for each name), operations (one for each type).",
)
@click.option(
    "--fold",
    type=Words(FOLD_WORDS),
    default="",
    metavar="WORD,...",
    help="Put on a track of its own, so that the iterations stand alone: find, set-up (find included), warm-up.",
)
@click.option(
    "--from",
    "begin",
    default="",
    metavar="WHEN",
    help="Draw what runs from here on: a time such as 1.2s, 'iteration 3', 'layer conv1' (its first run); with"
    " 'forward' or 'backward' after it where one is meant.",
)
@click.option("--to", "end", default="", metavar="WHEN", help="... to the end of this, its first end behind --from.")
@click.option("--iterations", default="", metavar="N-M", help="Draw these iterations only: 3, 2-4, 1,5-7; 0: warm-up.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Draw the N longest kernels, and what holds them.")
@click.option("--min-duration", default="", metavar="TIME", help="Leave out what is shorter, such as 10us.")
@click.option("--no-args", is_flag=True, help="Leave out the arguments of all slices: no query, no colour by layer.")
@click.option(
    "--without",
    multiple=True,
    metavar="EVIDENCE",
    help=f"Ignore one kind of evidence (repeatable): {', '.join(EVIDENCE)}.",
)
@reading_options
@click.option(
    "--several",
    is_flag=True,
    help="Draw files of several runs, each run from zero and by itself; else they are refused.",
)
@click.option(
    "--explain",
    multiple=True,
    metavar="WHAT",
    help="Say why something is linked as it is (repeatable): 'kernel N' (its call_index or dispatch_id), "
    "'operation N', 'line N'.",
)
@click.option("--summary", "summary_file", metavar="FILE", help="Write the trace's metadata object as JSON, too.")
@click.option(
    "--keep",
    type=Words(KEEP_WORDS),
    default="",
    metavar="WORD,...",
    help=f"Leave in the trace what is taken out of it by default: {', '.join(KEEP_WORDS)}.",
)
@click.option("--check", is_flag=True, help="Verify the invariants of this very trace while writing it.")
@click.option("--strict", is_flag=True, help="Problems are errors: nothing is written.")
@click.option("-v", "--verbose", is_flag=True, help="Say what the links rest on, too: evidence, clocks, sums.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
def convert(  # noqa: PLR0913 - click gives each option by keyword
    files: tuple[str, ...],
    output: str,
    host_calls: Any,
    tracks: tuple[str, ...],
    fold: tuple[str, ...],
    begin: str,
    end: str,
    iterations: str,
    top: int | None,
    min_duration: str,
    no_args: bool,
    without: tuple[str, ...],
    reading: Reading,
    several: bool,
    explain: tuple[str, ...],
    summary_file: str | None,
    keep: tuple[str, ...],
    check: bool,
    strict: bool,
    verbose: bool,
    quiet: bool,
) -> object:
    """Join the files of one run into a trace.

    FILEs are recognised by their content and may come in any order: logs of Caffe and MIOpen; profiles of rocprofv3,
    rocprof, RPD, PyTorch, dv/dt; CK records; directories of these; plain or gzipped; - is standard input.

    \b
    Examples:
      mio2trace run.log run_results.db -o out.json
      mio2trace run.log prof.json -o out.json --without "timer marks" --summary found.json
      mio2trace prof.json -o - --host-calls none | gzip > out.json.gz
      mio2trace run.log prof.json -o out.json --iterations 2-4 --fold find,warm-up --tracks kernels
      mio2trace run.log prof.json -o out.json --from "layer conv2 backward" --to "layer conv1"
    """
    from mio2trace import conversion

    if output.lower().endswith(conversion.TABLES_SUFFIX):
        _to_tables(files, output, locals())
        return None
    _refuse_to_overwrite(files, output, summary_file)
    progress = Progress() if not quiet and is_terminal() else None
    try:
        result = conversion.convert(
            *files,
            output=output,
            host_calls=host_calls,
            tracks=tracks,
            fold=fold,
            begin=begin,
            end=end,
            iterations=iterations,
            top=top,
            min_duration=min_duration,
            with_args=not no_args,
            without=without,
            **reading._asdict(),
            several=several,
            explain=explain,
            check=check,
            strict=strict,
            summary_file=summary_file,
            keep=keep,
            progress=progress,
        )
    finally:
        if progress is not None:
            progress.done()
    if not quiet:
        for line in result.said(verbose):
            click.echo(styled(visible(line)), err=True)
        if output != "-":
            for line in _wrote(output, result, host_calls):
                click.echo(styled(visible(line)), err=True)
    return result


def _to_tables(files: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    """A folder of tables in place of a trace. Raises `click.UsageError` for an option that is only of a trace."""
    from mio2trace.commands.datasets import tables

    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in (*tables.OPTIONS, "files", "output"):
            raise click.UsageError(f"{parameter.opts[0]} goes with a trace, not with tables")
    tables.write_tables(files, output, **{name: options[name] for name in tables.OPTIONS})


for _later in LATER:
    cli.add_command(_later)


def _refuse_a_mistyped_command(word: str, commands: Iterable[str]) -> None:
    """Raises `click.UsageError` for what is no file, and nearly a command."""
    import difflib

    near = difflib.get_close_matches(word, commands, 1, 0.75)
    if near and not os.path.lexists(word.replace("\0", "")):
        raise click.UsageError(f"no command and no file {word!r}; did you mean {near[0]!r}?")


def _wrote(output: str, result: conversion.Conversion, host_calls: str) -> Iterator[str]:
    """How large the output is; what to do when a browser may not take it."""
    written = result.written
    if written is not None and written.too_large:
        there = {option for parameter in convert.params for option in parameter.opts}
        smaller = [option for option in SMALLER if option.split()[0] in there]
        if host_calls == "none":
            smaller.remove("--host-calls none")
        fewer = f"; fewer with {', '.join(smaller)}" if smaller else ""
        yield (
            f"problem: about {written.slices / 1e6:.1f} million slices: a viewer needs gigabytes for them, and a"
            f" browser may give up{fewer}; a .pftrace.gz is the smallest file"
        )
    size = os.path.getsize(output) if os.path.isfile(output) else 0
    found = result.metadata["attribution"]
    kernels = found["kernels"] + found["copies"] - result.trace.left_out
    each = f", {size / kernels:.0f} bytes a kernel" if size and kernels else ""
    yield f"wrote {output} ({size / 1e6:.1f} MB{each}): open it at https://ui.perfetto.dev"


def _refuse_to_overwrite(files: tuple[str, ...], output: str, summary_file: str | None) -> None:
    """An input, or one output by the other."""
    try:
        if summary_file is not None and os.path.realpath(summary_file) == os.path.realpath(output):
            raise click.UsageError(f"{output} is both the trace and its summary")
        for target in filter(None, (output, summary_file)):
            if os.path.isfile(target) and any(_is_in(target, file) for file in files):
                raise click.UsageError(f"{target} is an input, too")
    except (OSError, ValueError):
        return  # a folder that is gone, a name that is none: who opens it says so


def _is_in(target: str, file: str) -> bool:
    """Whether the existing file ``target`` is the input ``file``, or a point of the CK directory ``file``."""
    if file == "-":
        stdin = getattr(sys.stdin, "buffer", None)
        try:
            return stdin is not None and os.path.samestat(os.stat(target), os.fstat(stdin.fileno()))
        except OSError:
            return False  # no file: a test's, or one that is closed
    if os.path.isdir(file):
        real = os.path.realpath(target)
        inside = real.startswith(os.path.join(os.path.realpath(file), ""))
        return inside and fnmatch.fnmatch(os.path.basename(real), "ckp-*.json")
    return os.path.exists(file) and os.path.samefile(target, file)


def main() -> None:
    """Entry point: exit 0 converted, 1 a bad input, 2 usage, 130 interrupted, 143 terminated, 129 hung up."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # ignored under nohup: it stays so
            signal.signal(number, _stop)
    try:
        held = cli.main(prog_name="mio2trace", standalone_mode=False)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        if isinstance(held, int):
            sys.exit(held)
        if held is not None:
            # All is written and closed: the system frees millions of records faster than we could, one by one.
            os._exit(0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        if isinstance(error, Refused):
            error.show()
            sys.exit(error.exit_code)
        # the message may quote a file's name, or any other word of the call
        said = visible(error.format_message())
        shown = click.UsageError(said, error.ctx) if isinstance(error, click.UsageError) else click.ClickException(said)
        shown.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("mio2trace: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our standard output has gone: nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except Exception as error:
        click.echo(visible(f"mio2trace: a fault of the program itself, please report it: {_fault(error)}"), err=True)
        sys.exit(1)


def _stop(number: int, _: object) -> None:
    """End in order, so that nothing half written stays behind."""
    raise SystemExit(128 + number)


def _fault(error: Exception) -> str:
    """What went wrong and where; `mio2trace.convert` shows all of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    place = "" if code is None or trace is None else f" ({os.path.basename(code.co_filename)}:{trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{place}"


if __name__ == "__main__":
    main()
