"""The command line as a person uses it: exit codes, what stands on stderr, and what is left on the disk."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mio2trace import __version__
from mio2trace.cli import cli
from mio2trace.commands import LATER
from mio2trace.evidence import EVIDENCE
from mio2trace.notes import Notes
from tests.small_runs import as_json, benchmark, small

CALLS, LOG = benchmark()
PROFILE = as_json(CALLS)
ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-m", "mio2trace"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "timeline"), "COLUMNS": "110"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files of a run."""
    (tmp_path / "run.log").write_text(LOG)
    (tmp_path / "prof.json").write_bytes(PROFILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """In this process; those below that are about the process itself start one."""
    result = CliRunner(env={"COLUMNS": "110"}).invoke(cli, args, input=stdin, prog_name="mio2trace")
    assert b"Traceback" not in result.stderr_bytes
    return subprocess.CompletedProcess(args, result.exit_code, result.stdout_bytes, result.stderr_bytes)


def refused(*args: str, code: int = 1) -> str:
    """The message of a run that fails; an input's is one line, and nothing is left behind."""
    before = sorted(path.name for path in Path().iterdir())
    result = run(*args)
    text = str(result.stderr.decode())
    assert (result.returncode, result.stdout) == (code, b""), text
    assert sorted(path.name for path in Path().iterdir()) == before
    if code == 1:
        assert text.startswith("mio2trace: ")
        assert text.count("\n") == 1
    return text


def test_a_log_and_a_profile_become_a_trace() -> None:
    """The first of the examples; stderr says in a few lines what was found and where it is."""
    result = subprocess.run(
        [*PROGRAM, "run.log", "prof.json", "-o", "out.json"], capture_output=True, env=ENVIRONMENT, timeout=60
    )
    assert (result.returncode, result.stdout) == (0, b"")
    lines = result.stderr.decode().splitlines()
    assert len(lines) <= 24
    assert "run.log: run log (Caffe, MIOpen, dv/dt blocks): 2 layers printed, 1 iteration" in lines
    assert any("of kernels per iteration (1 iteration" in line for line in lines)
    assert any(re.fullmatch(r"layers +conv1 forward +[\d.]+ ms +50\.0 %", line) for line in lines)
    assert not any(line.startswith("layers: ") for line in lines)
    assert re.fullmatch(
        r"wrote out\.json \(\d+ kB, \d+ bytes per kernel\): open it at https://ui\.perfetto\.dev", lines[-1]
    )
    assert len(json.loads(Path("out.json").read_bytes())["traceEvents"]) > 8


@pytest.mark.parametrize(
    "args",
    [
        "-q prof.json run.log -o out1.json --check",
        "convert run.log prof.json -o out1.json -q",
        "-o out1.json run.log prof.json -q",
        "-q --output=out1.json -- run.log prof.json",
    ],
)
def test_quiet_prints_nothing_and_every_way_to_say_the_same_gives_the_same_trace(args: str) -> None:
    for words in ("run.log prof.json -o out.json -q", args):
        result = run(*words.split())
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert Path("out.json").read_bytes() == Path("out1.json").read_bytes()


def test_a_first_word_that_is_a_command_is_the_command() -> None:
    """A file of that name is named by its path, or after the command."""
    Path("convert").write_bytes(PROFILE)
    for args in (("./convert",), ("convert", "convert")):
        assert run(*args, "-o", "out.json").returncode == 0
    assert run("run.log", "convert", "-o", "out.json").returncode == 0
    assert refused("convert", "-o", "out2.json", code=2).startswith("Usage: mio2trace convert")


def test_files_are_recognised_by_content_and_may_be_compressed() -> None:
    """Never by their names; `-` is standard input."""
    run("run.log", "prof.json", "-o", "out.json", "-q")
    Path("unknown").write_bytes(gzip.compress(as_json(CALLS)))
    result = run("unknown", "-", "-o", "other.json", stdin=LOG.encode())
    assert result.returncode == 0
    assert b"standard input: run log" in result.stderr
    events = [json.loads(Path(name).read_bytes())["traceEvents"] for name in ("out.json", "other.json")]
    assert events[0] == events[1]


def test_standard_output_gets_the_trace_alone() -> None:
    run("run.log", "prof.json", "-o", "out.json", "-q")
    result = run("run.log", "prof.json", "-o", "-")
    assert result.stdout == Path("out.json").read_bytes()
    assert b"wrote" not in result.stderr
    assert b"of kernels per iteration" in result.stderr


def test_verbose_says_what_the_links_rest_on() -> None:
    lines = run("run.log", "prof.json", "-o", "out.json", "-v").stderr.decode().splitlines()
    (layers,) = [n for n, line in enumerate(lines) if line.startswith("layers: 8 of 8 kernels and copies attributed")]
    (answer,) = [n for n, line in enumerate(lines) if "of kernels per iteration" in line]
    assert 2 <= layers < answer
    assert any(line.startswith("clocks: ") for line in lines)


def test_the_summary_is_written_beside_the_trace() -> None:
    run("run.log", "prof.json", "-o", "out.json", "--summary", "found.json", "--without", "timer marks", "-q")
    found = json.loads(Path("found.json").read_bytes())
    assert found == json.loads(Path("out.json").read_bytes())["metadata"]
    assert found["generator"] == f"mio2trace {__version__}"
    assert "timer marks" not in found["attribution"]["layer_by"]


def test_help_and_version() -> None:
    for args in (("--help",), ("-h",), ("convert", "--help")):
        result = run(*args)
        assert result.returncode == 0
        assert b"mio2trace run.log run_results.db -o out.pftrace" in result.stdout
        assert b"mio2trace trace.json.gz" in result.stdout
    assert run().stdout == run("--help").stdout
    assert run("--version").stdout.decode() == f"mio2trace {__version__}\n"


@pytest.mark.parametrize("command", [command.name for command in LATER if command.name != "doctor"])
def test_a_command_without_its_files_prints_its_help(command: str) -> None:
    """As the help is printed, not as an error in one line; a script still fails."""
    text = refused(command, code=2)
    assert text.startswith(f"Usage: mio2trace {command} [OPTIONS]")
    assert "\n\nOptions:\n" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run.log", "--top", "3"), "--top needs a trace: add -o OUT.pftrace"),
        (("run.log", "-o", "out.parquet", "--top", "3"), "--top needs a trace"),
        (("run.log", "-o"), "requires an argument"),
        (
            ("run.log", "-o", "out.txt"),
            "out.txt: expected a name that ends in .json, .json.gz, .pftrace, .pftrace.gz, .parquet, .html, or -; for"
            " this form: mio2trace report -o",
        ),
        (("-", "-", "-o", "out.json"), "standard input (-) can be given once"),
        (("run.log", "prof.json", "-o", "prof.json"), "prof.json is also an input"),
        (("run.log", "prof.json", "-o", "./prof.json"), "prof.json is also an input"),
        (("run.log", "prof.json", "-o", "link.json"), "link.json is also an input"),
        (("run.log", "-o", "out.json", "--summary", "run.log"), "run.log is also an input"),
        (("run.log", "-o", "out.json", "--summary", "./out.json"), "out.json is both the trace and its summary"),
        (("run.log", "-o", "out.json", "--without", "luck"), "no such evidence: luck; expected"),
        (("run.log", "-o", "out.json", "--host-calls", "some"), "'some' is not one of"),
        (("run.log", "-o", "out.json", "--repetition", "-1"), "-1 is not in the range"),
        (("run.log", "-o", "out.json", "--frobnicate"), "No such option"),
        (("run.log", "--format", "json"), "no option --format here: `mio2trace report` has it for the answer"),
        (("report", "run.log", "-o", "a.html", "--output=b.md"), "-o is given 2 times: report writes one output"),
        (("ops", "run.log", "-oa.csv", "-o", "b.csv"), "-o is given 2 times: ops writes one output"),
        (("record", "-o", "a.zip", "-o", "b.zip", "--", "true", "-o", "c"), "-o is given 2 times: record writes one"),
        (("record", "--detial", "--", "true"), "No such option '--detial'"),
    ],
)
def test_error_usage_is_exit_2_and_changes_nothing(args: tuple[str, ...], message: str) -> None:
    os.link("prof.json", "link.json")
    kept = Path("prof.json").read_bytes()
    text = refused(*args, code=2)
    assert message in text
    assert text.startswith(("Usage: mio2trace", "Error: "))
    assert Path("prof.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing", None, "missing: No such file or directory"),
        ("empty", b"", "empty: empty; expected a log or a profile"),
        ("words", b"hello\nworld\n", "words: none of its 2 lines is known; expected a log of MIOpen or Caffe ("),
        (
            "x.json",
            b'{"traceEvents": []}',
            "x.json: JSON with the keys traceEvents; expected a profile of PyTorch, ROCm",
        ),
        ("cut.json", b'{"per_layer_info": [{"label"', "cut.json: not a readable CK record"),
        ("cut.gz", b"\x1f\x8b\x08\0\0\0", "cut.gz: file cut off after 6 bytes of gzip data, before any content"),
        ("bad.gz", b"\x1f\x8b not gzip", "bad.gz: damaged gzip data, nothing can be read"),
        ("db", b"SQLite format 3\0" + bytes(100), "db: is an SQLite database of an unknown program"),
        ("none.json", b"[]", "prof.txt, none.json: no kernel"),
        ("two\nlines", b"", r"two\nlines: empty"),
        ("\x1b[31mred", b"", r"\x1b[31mred: empty"),
    ],
)
def test_error_a_bad_input_is_exit_1_and_one_line(name: str, content: bytes | None, message: str) -> None:
    """With the file, what was found and what was expected; what was there stays."""
    if content is not None:
        Path(name).write_bytes(content)
    Path("out.json").write_text("kept")
    good = "prof.txt" if name == "none.json" else "prof.json"
    Path("prof.txt").write_bytes(b" [ ] ")
    assert message in refused(good, name, "-o", "out.json")
    assert Path("out.json").read_text() == "kept"


def test_error_a_place_that_cannot_be_read_or_written_is_named() -> None:
    """A missing folder, a folder with the output's name, a folder without rights; the first of several inputs."""
    assert "no/out.json: cannot write there: No such file or directory" in refused("run.log", "-o", "no/out.json")
    Path("dir.json").mkdir()
    assert "dir.json: Is a directory" in refused("run.log", "-o", "dir.json")
    assert "no/s: cannot write there" in run("run.log", "-o", "out.json", "--summary", "no/s").stderr.decode()
    assert "one: No such file" in refused("one", "two", "-o", "out.json")
    if os.geteuid():  # root may read and write everything
        Path("prof.json").chmod(0)
        assert "prof.json: Permission denied" in refused("prof.json", "-o", "out.json")
        Path("locked").mkdir(0o500)
        assert "locked/out.json: cannot write there: Permission denied" in refused("run.log", "-o", "locked/out.json")


@pytest.mark.parametrize(
    "arguments", ["prof.json -o - -q", "kernels prof.json -q", "query --list", "--version", "--help", "layers --help"]
)
@pytest.mark.parametrize(("to", "said"), [(">/dev/full", "No space left on device"), (">&-", "closed")])
def test_error_standard_output_that_is_full_or_closed(arguments: str, to: str, said: str) -> None:
    """A message, not a stack trace, whatever prints; nobody misses a help."""
    command = f"{sys.executable} -m mio2trace {arguments} {to}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, env=ENVIRONMENT)
    if said == "closed" and arguments.endswith(("--help", "--version")):
        assert done.returncode == 0
    else:
        assert (done.returncode, done.stderr.decode()) == (1, f"mio2trace: standard output: {said}\n")


def test_a_closed_stream_is_never_an_output_file() -> None:
    """Its number would be given to the next file that is opened, and what a library prints would stand in it."""
    code = (
        "import os, sys; from mio2trace import cli; cli._fill_in_closed_streams();"
        "file = open('new', 'wb'); os.write(1, b'lost'); os.write(2, b'lost'); sys.exit(file.fileno() < 3)"
    )
    command = f'{sys.executable} -c "{code}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], env=ENVIRONMENT).returncode == 0
    assert Path("new").read_bytes() == b""


def test_error_our_own_fault_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With where it happened; `timeline.convert` shows all of it."""
    from mio2trace import cli, conversion

    def broken(*_: object, **__: object) -> None:
        raise ValueError("of an unknown\nkind")

    monkeypatch.setattr(conversion, "convert", broken)
    monkeypatch.setattr(sys, "argv", ["mio2trace", "run.log", "-o", "out.json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert re.fullmatch(
        r"mio2trace: a fault of the program itself, please report it: "
        r"ValueError: of an unknown\\nkind \(test_cli\.py:\d+\)\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("no_color", "term", "coloured"), [("", "xterm", True), ("1", "xterm", False), ("", "dumb", False)]
)
def test_lines_fit_a_terminal_and_problems_are_coloured_unless_nobody_wants_it(
    no_color: str, term: str, coloured: bool
) -> None:
    Path("other.json").write_bytes(as_json(small()))
    args = ("prof.json", "other.json", "-o", "out.json")
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "NO_COLOR": no_color, "TERM": term, "COLUMNS": "60"}
    subprocess.run(
        [*PROGRAM, *args], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while block := os.read(ours, 65536):
            shown += block
    os.close(ours)
    assert (b"\x1b[33mproblem: 2 different profiles" in shown, b"\x1b" in shown) == (coloured, coloured)
    lines = re.sub(r"\x1b\[\d*m", "", shown.decode()).splitlines()
    assert (max(map(len, lines)) <= 60) == (term == "xterm")
    assert b"\x1b" not in run(*args).stderr


def test_the_help_names_the_evidence_that_the_formats_of_today_can_give() -> None:
    help_ = " ".join(run("convert", "--help-all").stdout.decode().split())
    assert f"Ignore one kind of evidence (repeatable): {', '.join(EVIDENCE)}." in help_


@pytest.mark.parametrize("command", LATER, ids=lambda command: command.name)
def test_the_list_of_commands_says_what_each_says_of_itself(command: Any) -> None:
    """None is loaded for it, so it stands in two places."""
    assert command.get_short_help_str(200) == command.loaded().get_short_help_str(200)


@pytest.mark.parametrize("command", ["compare", "ranks"])
def test_a_command_with_an_answer_says_that_it_is_the_default(command: str) -> None:
    assert "Default: the answer as text" in run(command, "--help").stdout.decode()


def test_help_loads_no_command() -> None:
    code = "import sys; from mio2trace.cli import cli; cli(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mio2trace.commands" in done.stdout
    assert {"mio2trace.commands.tables", "numpy", "msgspec", "difflib"}.isdisjoint(done.stdout.split())
    assert re.search(r"^  query +Ask a trace", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ("aab", "a, b"),
        ("abca", "a, b, c, ..."),
        (("a:1", "a:2"), "a:1, a:2"),
        (["a: line 1", *"aa"], "a: line 1, a, ..."),
    ],
)
def test_a_place_is_named_once(places: Sequence[str], said: str) -> None:
    """However often something is met there. Dots stand for other places, not for more in the same file."""
    notes = Notes()
    for place in places:
        notes.add("odd", place)
    assert [str(note) for note in notes] == [f"{len(places)} x odd ({said})"]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_before_all_is_imported_says_nothing(tmp_path: Path) -> None:
    """A module that is imported first of all interrupts the program."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "mio2trace", "--help"], env=environment, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
