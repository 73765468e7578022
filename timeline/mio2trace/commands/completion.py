"""``mio2trace completion``: print the script with which TAB completes commands, options, columns and queries."""

from __future__ import annotations

import click

from mio2trace.commands.options import Command
from mio2trace.commands.printing import write

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command, no_args_is_help=True)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Lines for a shell that complete commands, options, columns and queries.

    \b
    Examples:
      eval "$(mio2trace completion bash)"
      mio2trace completion bash > ~/.local/share/bash-completion/completions/mio2trace
      mio2trace completion zsh > ~/.zfunc/_mio2trace
      mio2trace completion fish > ~/.config/fish/completions/mio2trace.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    maker = kind(ctx.find_root().command, {}, "mio2trace", "_MIO2TRACE_COMPLETE")
    write([maker.source().rstrip("\n") + "\n"])
