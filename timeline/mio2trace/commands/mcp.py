"""``mio2trace mcp``: the commands as tools for agents and other programs."""

from __future__ import annotations

import os

import click

from mio2trace.commands.console import Command, complete_files, size

INSTALL = "pip install 'mio2trace[mcp]'"


@click.command(cls=Command, no_args_is_help=True)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", shell_complete=complete_files)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1, max=1e6),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="A call that takes longer is stopped.",
)
@click.option(
    "--memory-limit",
    type=size,
    metavar="SIZE",
    help="A call that needs more, such as 8GB, is stopped. Default: half of the machine's memory.",
)
@click.option(
    "--max-answer",
    type=size,
    default="100KB",
    show_default=True,
    metavar="SIZE",
    help="A longer answer is cut off, with a note.",
)
def mcp(folders: tuple[str, ...], timeout: float, memory_limit: int | None, max_answer: int) -> None:
    """Serve agents by the Model Context Protocol (MCP) on standard input and output.

    Tools: files, report, layers, ops, kernels, query, compare, driver. They read files below the FOLDERs and nothing
    else, write nothing, and contact no other machine. docs/mcp.md shows how to set it up.

    \b
    Examples:
      mio2trace mcp profiles/
      mio2trace mcp runs/ --timeout 600 --memory-limit 16GB
    """
    from mio2trace.notes import InputError

    try:
        from mio2trace.serving import Limits, server
    except ImportError:
        raise InputError(f"this needs the MCP SDK, version 2 or newer, which is not installed: {INSTALL}") from None
    from mio2trace.serving import Folders

    memory = memory_limit or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    server(Folders(folders), Limits(timeout, memory, max_answer)).run("stdio")
