"""The command line: it reads options, runs `convert`, prints notes on stderr and sets the exit code. Slow imports
happen where they are needed."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from mio2trace import __version__
from mio2trace.commands import LATER, Later, Refused, complete_files, say
from mio2trace.outgoing import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


TASKS = (
    ("Answer", ("report", "compare", "ranks")),
    ("Look", ("convert", "view", "merge")),
    ("Share", ("record", "bundle", "driver")),
    ("Tables", ("layers", "ops", "kernels", "messages", "query")),
    ("Many runs", ("batch",)),
)
"""Commands by task; commands that are not listed come last."""
_STARTS_OTHERS = {"record", "view", "batch", "mcp", "doctor"}
"""Commands that start other programs, or that have limits of their own."""
_WHOLE = 500
"""More letters than the usage line of any command has, so that it is never wrapped."""


class _DefaultToConvert(click.Group):
    """``mio2trace FILE...`` means ``mio2trace convert FILE...``, unless the first word is a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, Later):
            command = self.commands[cmd_name] = command.loaded()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by task without loading them; their descriptions are wrapped, not cut."""
        grouped = {name for _, names in TASKS for name in names}
        others = [name for name in self.list_commands(ctx) if name not in grouped]
        for task, names in (*TASKS, ("Other", others)):
            rows = [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names if name in self.commands]
            if rows:
                with formatter.section(task):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version"):
            if not ctx.resilient_parsing:
                _refuse_a_mistyped_command(args[0], self.commands, alone=len(args) == 1)
            args = ["convert", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete files (they need no command), then commands. Files come first: bash drops words before them."""
        return [*complete_files(ctx, None, incomplete), *super().shell_complete(ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Turn errors into exit codes: 1 for an unusable input, 2 for a wrong option."""
        from mio2trace.notes import InputError, OptionError, watched_for_losses, with_losses

        try:
            with watched_for_losses() as losses:
                result = super().invoke(ctx)
                say(losses.values(), [], quiet=False)
                return result
        except OptionError as error:
            raise click.UsageError(str(error)) from None
        except InputError as error:
            raise Refused(with_losses(str(error), losses.values())) from None
        except MemoryError:
            least = "; --host-calls none needs least" if ctx.invoked_subcommand == "convert" else ""
            raise Refused(f"out of memory: it needs more than is free{least}") from None


@click.group(
    cls=_DefaultToConvert,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=False,
)
@click.version_option(__version__, prog_name="mio2trace", message="%(prog)s %(version)s")
def cli() -> None:
    """Show which layer, operation and kernel your GPU time goes to.

    Reads PyTorch profiler (Kineto) traces, rocprofv3 / rocpd databases, profiles of JAX, RPD, rocprof and dv/dt, and
    logs of MIOpen and Caffe. Nothing is uploaded.

    \b
    Examples:
      mio2trace trace.json.gz                          print where the time went
      mio2trace trace.json.gz -o out.pftrace           ... for ui.perfetto.dev
      mio2trace run_results.db                         rocprofv3's database
      mio2trace run.log run_results.db -o out.pftrace  also with MIOpen's log
      mio2trace messages run.log                       a log alone: its errors
      mio2trace compare before/ after/                 what became slower
      mio2trace record -o run.zip -- python train.py   record a run

    "mio2trace FILE..." is short for "mio2trace convert FILE...". "mio2trace COMMAND --help" explains a command.
    """


for _later in LATER:
    cli.add_command(_later)


_WORD = re.compile(r"[A-Za-z][A-Za-z_-]*", re.ASCII)
"""A word that may be meant as a command. A file name contains a dot or a slash, or the file exists."""


def _refuse_a_mistyped_command(word: str, commands: Iterable[str], *, alone: bool) -> None:
    """Raises `click.UsageError` for a first word that is no command and no file, but may be meant as a command.

    ``alone``: no word follows. Then the word needs less similarity to a command.
    """
    if os.path.lexists(word.replace("\0", "")):
        return
    import difflib

    is_word = alone and _WORD.fullmatch(word) is not None
    near = difflib.get_close_matches(word, commands, 1, 0.6 if is_word else 0.75)
    if near:
        raise click.UsageError(f"no command {word!r}, and no file of that name; did you mean {near[0]!r}?")
    if is_word:
        raise click.UsageError(f"no command {word!r}, and no file of that name")


def main() -> None:
    """Entry point: exit 0 converted, 1 a bad input, 2 usage, 130 interrupted, 143 terminated, 129 hung up."""
    _fill_in_closed_streams()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP; keep that
            signal.signal(number, _stop)
    try:
        held = _run()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        if isinstance(held, int):
            sys.exit(held)
        if held is not None:
            # Everything is written and closed. The system frees millions of records faster than Python would, one by
            # one.
            os._exit(0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        if isinstance(error, Refused):
            error.show()
            sys.exit(error.exit_code)
        # the message may quote the name of a file, or any other word of the call
        said = visible(error.format_message())
        shown = click.UsageError(said, error.ctx) if isinstance(error, click.UsageError) else click.ClickException(said)
        shown.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("mio2trace: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our standard output is gone, so nobody would read a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except Exception as error:
        if isinstance(error, OSError) and _last_frame(error).f_globals.get("__name__") == "click.utils":
            # help or a version, which click prints itself
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest of the buffer is dropped without a message
            click.echo(f"mio2trace: standard output: {error.strerror or error}", err=True)
            sys.exit(1)
        click.echo(visible(f"mio2trace: a fault of the program itself, please report it: {_fault(error)}"), err=True)
        sys.exit(1)


def _run() -> object:
    if not sys.argv[1:] or sys.argv[1].startswith("-") or sys.argv[1] in _STARTS_OTHERS:
        return cli.main(prog_name="mio2trace", standalone_mode=False)
    from mio2trace.machine import bound_to_free, keep_freed_columns

    keep_freed_columns(sys.argv[1:])
    with bound_to_free():
        return cli.main(prog_name="mio2trace", standalone_mode=False)


def _fill_in_closed_streams() -> None:
    """Open /dev/null for closed standard streams. Otherwise a file that is opened later would get the number 1 or 2,
    and messages would be written into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


def _stop(number: int, _: object) -> None:
    """End in order, so that no half-written file is left behind."""
    raise SystemExit(128 + number)


def _fault(error: Exception) -> str:
    """Return the error and its place in one line; `mio2trace.convert` raises the whole of it."""
    frame = _last_frame(error)
    return f"{type(error).__name__}: {error} ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"


def _last_frame(error: Exception) -> FrameType:
    trace = error.__traceback__
    assert trace is not None  # the frame that raised it
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


if __name__ == "__main__":
    main()
