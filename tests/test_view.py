"""``mio2trace view``: one file, to one page, opened at the right place."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.commands import serve as viewer
from mio2trace.commands.serve import UI, ViewError, bound, find_trace, slowest_layer
from mio2trace.notes import InputError
from mio2trace.trace import Process, Slice, Trace, Track
from mio2trace.writers import WRITERS
from tests.commands import invoked, stderr_of
from tests.conftest import ROOT
from tests.often import present, saved
from tests.perfetto_tools.perfetto_ui import PerfettoUI

RUN = ROOT / "traces" / "alexnet-b1-train"
INPUTS = (RUN / "run.log", RUN / "prof.json.gz")
FORMS = ("out.json", "out.json.gz", "out.pftrace", "out.pftrace.gz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in every form."""
    made = tmp_path_factory.mktemp("view")
    for name in FORMS:
        mio2trace.convert(*INPUTS, output=made / name)
    return made


# ---- what comes into view


@pytest.mark.parametrize("name", FORMS)
def test_the_slowest_layer_is_found(folder: Path, name: str) -> None:
    """By its kernels, however long the host makes it; not in the warm-up; the same whatever the form."""
    events = json.loads((folder / "out.json").read_bytes())["traceEvents"]
    layers = [e for e in events if e.get("cat") == "layer" and "kernel_ns" in e["args"] and e["args"].get("iteration")]
    expected = max(layers, key=lambda event: event["args"]["kernel_ns"])
    assert expected["dur"] < max(event["dur"] for event in layers)
    found = present(slowest_layer(folder / name))
    assert (found.name, found.args["layer"]) == (expected["name"], expected["args"]["layer"])
    assert (found.start_ns, found.dur_ns) == (round(expected["ts"] * 1000), round(expected["dur"] * 1000))


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"traceEvents":[]}',
        b'[{"ph":"X","cat":"layer"}]',
        b'{"cat":"layer"}\n{"cat":"layer","ts":"x","dur":1}\n',
        b'"cat":"layer"' * 200_000,
        b"\n\x02\x0a\xff",
        b"\n\x05\x5a\x03\x48\x01\x18",
        b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\n" * 1000,
        gzip.compress(b"{}", mtime=0)[:-9],
    ],
)
def test_what_is_not_ours_has_no_place(tmp_path: Path, data: bytes) -> None:
    """Foreign, cut or damaged: the viewer may still open it; nothing is raised."""
    assert slowest_layer(saved(tmp_path / "other", data)) is None


def test_layers_of_the_host_and_the_warm_up_come_last(tmp_path: Path) -> None:
    """Where there is nothing better they are shown; of equals the first, wherever it stands in the file."""

    def shown(*slices: Slice) -> str:
        with (tmp_path / "out.json").open("wb") as file:
            WRITERS[0].write(
                Trace(
                    processes=(Process(id=1, name="P"),), tracks=(Track(id=2, process=1, name="T"),),
                    metadata={"generator": "mio2trace 0"}, parts=(lambda: iter(slices),),
                ), file,
            )  # fmt: skip
        found = slowest_layer(tmp_path / "out.json")
        return "" if found is None else found.name

    host = Slice(2, 0, 900, "host", "layer", {"iteration": 1})
    warm_up = Slice(2, 1000, 500, "warm-up", "layer", {"iteration": 0, "kernel_ns": 5})
    work, late = (Slice(2, at, 100, f"{at}", "layer", {"iteration": 1, "kernel_ns": 5}) for at in (2000, 3000))
    assert shown(host) == "host"
    assert shown(host, warm_up) == "warm-up"
    assert shown(host, warm_up, work) == "2000"
    assert shown(host, work, late) == shown(late, work, host) == "2000"


# ---- who gets it


@contextmanager
def serving(path: Path, **options: Any) -> Iterator[tuple[viewer.Server, threading.Thread]]:
    """The server on a free port, as the command runs it."""
    with bound(path, **{"bundle": None, "keep": False, "port": 0} | options) as server:
        thread = threading.Thread(target=server.serve_until_done, daemon=True)
        thread.start()
        time.sleep(0.05)
        try:
            yield server, thread
        finally:
            if thread.is_alive():
                server.keep = False
                server.given.set()
                server.asked = -1e9
                thread.join(20)


@contextmanager
def connected(server: viewer.Server, sent: bytes | None = None, more: str = "") -> Iterator[socket.socket]:
    """Who sends bytes of its own, or a request with one more header."""
    lines = (f"GET {server.place} HTTP/1.0", f"Host: 127.0.0.1:{server.server_port}", f"Origin: {UI}", more)
    with socket.create_connection(("127.0.0.1", server.server_port), 20) as raw:
        raw.sendall("\r\n".join((*filter(None, lines), "", "")).encode() if sent is None else sent)
        yield raw


def ask(server: viewer.Server, place: str = "", method: str = "GET", **headers: str | None) -> Any:
    """The answer to a request: status, headers, body. A header of None is left out; Host is what a browser sends."""
    sent = {"Host": f"127.0.0.1:{server.server_port}", "Origin": UI}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}  # type: ignore[misc]
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.putrequest(method, place or server.place, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {name.title(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_the_site_gets_the_file_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very bytes, readable by that origin alone, however soon it asks again: the page has all of it before the
    server knows. Then the server is gone."""

    class Slow(threading.Event):
        def set(self) -> None:
            time.sleep(0.3)
            super().set()

    path = folder / "out.pftrace.gz"
    with serving(path) as (server, thread):
        monkeypatch.setattr(server, "given", Slow())
        assert server.server_address[0] == "127.0.0.1"
        status, headers, body = ask(server)
        assert (status, body) == (200, path.read_bytes())
        assert headers["Access-Control-Allow-Origin"] == UI
        assert headers["Content-Length"] == str(path.stat().st_size)
        assert "Content-Encoding" not in headers
        assert ask(server)[0] == 410
        thread.join(20)
        assert not thread.is_alive()


def test_nobody_else_gets_anything(folder: Path) -> None:
    """Another origin, none at all, a foreign name for this address, another file, another method: refused. A browser
    may ask whether the site may reach into this machine. None of these is the one time."""
    with serving(folder / "out.json") as (server, thread):
        for more in ("Host: example.com", "Origin: https://example.com"):
            with connected(server, more=more) as raw:
                answer = b"".join(iter(lambda: raw.recv(65536), b""))
            assert int(answer.split()[1]) == 403
            assert not [word for word in (b"traceEvents", b"Access-Control-Allow-Origin") if word in answer]
        refused = [
            (ask(server, Origin="https://example.com"), 403),
            (ask(server, Origin="null"), 403),
            (ask(server, Origin=None), 403),
            (ask(server, Origin="https://ui.perfetto.dev.example.com"), 403),
            (ask(server, Host="example.com:9001"), 403),
            (ask(server, Host=None), 403),
            (ask(server, "/"), 404),
            (ask(server, "/out.json.gz"), 404),
            (ask(server, "/../out.json"), 404),
            (ask(server, "/%2e%2e/out.json"), 404),
            (ask(server, method="HEAD"), 405),
            (ask(server, method="POST"), 501),
            (ask(server, method="OPTIONS", Origin="https://example.com"), 403),
        ]
        for (status, headers, body), expected in refused:
            assert status == expected
            assert b"traceEvents" not in body
            allowed = headers.get("Access-Control-Allow-Origin")
            assert allowed is None or (allowed == UI and expected != 403)
        status, headers, _ = ask(server, method="OPTIONS", Access_Control_Request_Private_Network="true")
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, UI)
        assert headers["Access-Control-Allow-Private-Network"] == "true"
        assert thread.is_alive()
        assert ask(server)[0] == 200


def test_keep_gives_it_again_until_interrupted(folder: Path) -> None:
    """Also after a line that is no request, which is answered."""
    with serving(folder / "out.json", keep=True) as (server, thread):
        with connected(server, b"\x00\x01nonsense\r\n\r\n") as raw:
            assert raw.recv(100)
        assert [ask(server)[0] for _ in range(3)] == [200, 200, 200]
        assert thread.is_alive()


def test_a_page_that_was_closed_half_way_may_come_again(tmp_path: Path) -> None:
    """Only a whole answer counts; the link leads to the file whatever it is called."""
    path = saved(tmp_path / "a run & more?#.json", b'{"traceEvents":[]}' + b" " * 50_000_000)
    with serving(path) as (server, thread):
        with connected(server) as raw:
            assert raw.recv(100).startswith(b"HTTP/1.0 200")
        time.sleep(0.3)
        assert thread.is_alive()
        _, wanted = parts(server.link(None))
        assert set(wanted) == {"url", "startupCommands"}
        status, _, body = ask(server, wanted["url"].removeprefix(f"http://127.0.0.1:{server.server_port}"))
        assert (status, len(body)) == (200, path.stat().st_size)


def test_a_fetch_that_breaks_is_not_the_one_and_says_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A small trace lies in the system's buffers as a whole when the page goes away without having read it."""
    with serving(folder / "out.json") as (server, thread):
        for sent in (b"", b"GET ", None, None):
            with connected(server, sent) as raw:
                assert sent is not None or raw.recv(10) == b"HTTP/1.0 2"
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        time.sleep(0.8)
        assert thread.is_alive()
        assert ask(server)[0] == 200
        thread.join(10)
        assert not thread.is_alive()
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A stand-in for the UI's files."""
    (tmp_path / "web" / "assets").mkdir(parents=True)
    (tmp_path / "web" / "index.html").write_text("the page")
    (tmp_path / "web" / "engine.wasm").write_bytes(b"\0asm")
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "web"


def test_offline_the_page_comes_from_here(folder: Path, bundle: Path) -> None:
    """Its files, of the right kinds, and nothing beside them; the trace as before."""
    own: Any = {"Origin": None}
    foreign: Any = ({"Origin": UI}, {"Origin": "https://example.com"}, own | {"Sec_Fetch_Site": "cross-site"},
                    own | {"Host": "example.com"})  # fmt: skip
    with serving(folder / "out.json", bundle=bundle) as (server, _):
        assert ask(server, "/", **own)[::2] == (200, b"the page")
        status, headers, _ = ask(server, "/engine.wasm?x=1", **own)
        assert (status, headers["Content-Type"]) == (200, "application/wasm")
        assert [ask(server, place, **own)[0] for place in ("/assets/", "/%00")] == [404, 404]
        for place in ("/../secret", "/%2e%2e/secret", "//secret", "/out.json"):
            assert b"secret" not in ask(server, place, **own)[2]
        assert [ask(server, **headers)[0] for headers in foreign] == [403] * 4
        status, headers, body = ask(server, Origin=None, Sec_Fetch_Site="same-origin")
        assert (status, body) == (200, (folder / "out.json").read_bytes())
        assert "Access-Control-Allow-Origin" not in headers
        assert [ask(server, place, **own)[0] for place in ("", "/")] == [410, 200]


def test_offline_ends_when_the_page_is_quiet(folder: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still want a file of its own after the trace."""
    monkeypatch.setattr(viewer, "IDLE_SECONDS", 1)
    with serving(folder / "out.json", bundle=bundle) as (server, thread):
        assert ask(server, Origin=None)[0] == 200
        thread.join(0.5)
        assert thread.is_alive()
        thread.join(20)
        assert not thread.is_alive()


# ---- the link and the command


def parts(link: str) -> tuple[str, dict[str, str]]:
    """Before the question mark, and what comes after it."""
    place, _, query = link.partition("?")
    return place, dict(urllib.parse.parse_qsl(query, strict_parsing=True))


def test_the_link_says_where_to_look(folder: Path) -> None:
    """The file's address, the layer's span with a margin, the pinned tracks."""
    found = present(slowest_layer(folder / "out.json"))
    with serving(folder / "out.json") as (server, _):
        place, wanted = parts(server.link(found))
    assert place == f"{UI}/#!/"
    assert wanted["url"] == f"http://127.0.0.1:{server.server_port}/out.json"
    assert (int(wanted["ts"]), int(wanted["dur"])) == (found.start_ns, found.dur_ns)
    assert 0 <= int(wanted["visStart"]) <= found.start_ns < found.start_ns + found.dur_ns <= int(wanted["visEnd"])
    (details,) = json.loads(wanted["startupCommands"])
    assert details["id"] == "dev.perfetto.RunQueryAndShowTab"
    assert f"ts = {found.start_ns} and dur = {found.dur_ns}" in details["args"][0]


def test_rates_are_pinned_where_their_group_is_closed(folder: Path) -> None:
    """The native form shows a device's row itself; in JSON the group of what is selected opens, else all of devices."""
    found = slowest_layer(folder / "out.json")
    for name, selected, wanted in (
        ("out.pftrace", found, ["PinTracksByRegex", "RunQueryAndShowTab"]),
        ("out.pftrace", None, ["PinTracksByRegex"]),
        ("out.json", None, ["ExpandTracksByRegex"]),
    ):
        with serving(folder / name) as (server, _):
            commands = json.loads(parts(server.link(selected))[1]["startupCommands"])
        assert [command["id"].rpartition(".")[2] for command in commands] == wanted
        pattern = re.compile(commands[0]["args"][0])
        assert pattern.search("GEMM GFLOP/s" if name == "out.pftrace" else "Device (OpenCL queue 0) 100")
        assert not pattern.search("Host 1")


view = partial(invoked, "view")


def test_a_trace_is_the_file_of_the_path_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system follows links before `..`: the folder above is that of the link's target. `-` is a file."""
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/below")
    (tmp_path / "far" / "out.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert find_trace("link/../out.json").read_text() == "[]"
    for name, complaint in ("none.json", "^none.json: No such file"), ("-", "^./-: No such file"):
        with pytest.raises(InputError, match=complaint):
            find_trace(name)


def test_a_bad_file_is_one_line(tmp_path: Path) -> None:
    """Not there, a folder, no trace, damaged."""
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"hello" * 100)[:12])
    (tmp_path / "damaged.gz").write_bytes(b"\x1f\x8b\x08" + bytes(40))
    for name in ("none.json", ".", "text.json", "cut.gz", "damaged.gz"):
        said = stderr_of(view(tmp_path / name, "--no-browser"), 1)
        assert len(said.splitlines()) == 1
        assert name.strip(".") in said
    with pytest.raises(ViewError, match="expected Chrome JSON"):
        find_trace(str(tmp_path / "text.json"))


def test_error_a_port_or_a_bundle_that_is_not_to_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site takes one port only; a port that is taken is one line, and so is how to get a bundle."""
    assert view(folder / "out.json", "--port", "9002", "--no-browser").exit_code == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ViewError, match=f"port {port}"), bound(folder / "out.json", None, False, port):
            pass
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "mio2trace[view]" in stderr_of(view(folder / "out.json", "--offline", "--no-browser"), 1)


def test_the_command_opens_the_browser_and_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is printed and opened; when the page has the file, it is done."""
    opened: list[str] = []

    def browse(link: str) -> bool:
        opened.append(link)
        address = urllib.parse.urlparse(parts(link)[1]["url"])

        def fetch() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
            connection.request("GET", address.path, headers={"Origin": UI})
            assert connection.getresponse().read() == (folder / "out.json").read_bytes()

        threading.Thread(target=fetch, daemon=True).start()
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    # Any free port: two runs of these tests must not meet.
    monkeypatch.setattr(viewer, "PORT", 0)
    done = view(folder / "out.json")
    assert done.exit_code == 0, done.stderr
    assert opened == [done.stdout.strip()]
    assert "slowest layer" in done.stderr
    assert "127.0.0.1" in done.stderr


@pytest.mark.browser
@pytest.mark.parametrize("name", [pytest.param("out.json.gz", marks=pytest.mark.thorough), "out.pftrace"])
def test_the_real_page_opens_at_the_slowest_layer(folder: Path, browser: PerfettoUI, name: str) -> None:
    """Offline: loaded from this machine alone, the layer selected and in view, its rows, rates and arguments shown."""
    command = [sys.executable, "-m", "mio2trace", "view", str(folder / name), "--offline", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout
            link = process.stdout.readline().strip()
            place, wanted = parts(link)
            base = place.removesuffix("/#!/")
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", base)
            chromium = present(browser.page.context.browser)
            context = chromium.new_context(viewport={"width": 1600, "height": 1000}, service_workers="block")
            context.route(lambda url: not url.startswith((base, "data:", "blob:")), lambda route: route.abort())
            page = context.new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.goto(link)
            page.wait_for_function("() => window.app && window.app.trace", timeout=120_000)
            page.wait_for_function("() => window.app.trace.selection.selection.kind === 'track_event'", timeout=60_000)
            answer = page.get_by_text(re.compile(r"^Query result \(\d+ rows\)"))
            answer.wait_for(timeout=60_000)
            state = page.evaluate(
                """() => { const t = window.app.trace, v = t.timeline.visibleWindow.toTimeSpan();
                const shown = (n) => [n, ...(n.collapsed && !n.headless ? [] : n.children.flatMap(shown))];
                const rows = t.workspace.children.flatMap(shown).filter((n) => !n.headless);
                return {pinned: t.workspace.pinnedTracks.map((n) => n.name), rows: rows.map((n) => n.name),
                    selected: rows.filter((n) => n.uri === t.selection.selection.trackUri).map((n) => n.name),
                    ts: String(t.selection.selection.ts), dur: String(t.selection.selection.dur),
                    start: String(v.start), end: String(v.end), errors: Number(t.traceInfo.importErrors)}; }"""
            )
            assert (state["ts"], state["dur"]) == (wanted["ts"], wanted["dur"])
            assert len(state["selected"]) == 1
            assert "Layers > kernels" in state["selected"][0]
            in_sight = [*state["pinned"], *state["rows"]]
            assert sum("kernels" in track for track in in_sight) == 1
            assert sum("GFLOP/s" in track for track in in_sight) == 1
            assert not any("OpenCL API" in track for track in in_sight)
            layer = present(slowest_layer(folder / name))
            assert answer.inner_text().startswith(f"Query result ({len(layer.args)} rows)")
            assert page.get_by_text("percent_of_kernel_time", exact=True).count() == 1
            assert int(state["start"]) <= int(wanted["ts"])
            assert int(state["end"]) >= int(wanted["ts"]) + int(wanted["dur"])
            assert int(state["end"]) - int(state["start"]) < 6 * int(wanted["dur"])
            assert state["errors"] == 0
            assert problems == []
            context.close()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        assert process.returncode == 0


def test_an_interrupt_before_the_page_came_says_so(folder: Path) -> None:
    """Exit code 130, no traceback."""
    try:
        viewer.find_ui()
    except ViewError:
        pytest.skip("port 9001 may be another's; no bundle to serve from a free port")
    command = [sys.executable, "-m", "mio2trace", "view", str(folder / "out.json")]
    command += ["--keep", "--no-browser", "--offline"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(30) == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1].endswith("interrupted")
