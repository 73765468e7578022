"""`mio2trace record`: what it runs and in which environment, what passes through it, what it leaves behind."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import resource
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import mio2trace
from mio2trace import recording as plan
from mio2trace.notes import InputError
from mio2trace.recording import session
from mio2trace.source import unpacked
from tests import rocm_made
from tests.commands import invoked, printed, stderr_of
from tests.conftest import ROOT
from tests.often import present, saved
from tests.oracle.events import unpacked as unpacked_bytes
from tests.recorders import ENVIRONMENT, HELP_6, HELP_7, asked, dry_run, opencl, record, rocpd, rocprof, rocprofv3
from tests.test_faults import mounted

LOG = gzip.decompress((ROOT / "traces/lenet-rocpd/run.log.gz").read_bytes())
BASE = {
    "MIOPEN_ENABLE_LOGGING": "1",
    "MIOPEN_ENABLE_LOGGING_CMD": "1",
    "MIOPEN_ENABLE_LOGGING_MPMT": "1",
    "MIOPEN_LOG_BUFFER_SIZE": "0",
}
ROCTX = {"MIOPEN_ENABLE_LOGGING_ROCTX": "1"}
ROCPD = ["--kernel-trace", "--memory-copy-trace", "--marker-trace", "--hip-runtime-trace"]
DATABASE = ["--output-format", "rocpd", "-d", "DIR"]
CSV = ["--kernel-trace", "--memory-copy-trace", "--marker-trace", "--hip-trace", "--output-format", "csv", "-d", "DIR"]
OWN = {"MIOPEN_ENABLE_LOGGING": "0", "MIOPEN_LOG_LEVEL": "4", "ROCPROFILER_REGISTER_LIBRARY": "/old/lib.so"}
OURS = {"PYTHONPATH": str(ROOT / "timeline")}
"""What the tests give to find the program, and the recorded one has, too."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, "size=256k") as disk:
        yield disk


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """One that prints a real run's log."""
    return ["cat", str(saved(tmp_path / "real.log", LOG))]


def member(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def manifest(path: Path) -> dict[str, Any]:
    return orjson.loads(member(path, "manifest.json"))  # type: ignore[no-any-return]


def of_script(script: str) -> tuple[list[str], dict[str, str], list[str]]:
    """The command line, what is exported, what is unset, as a dry run prints them."""
    exported: dict[str, str] = {}
    unset: list[str] = []
    command: list[str] = []
    for line in script.splitlines():
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            exported[name] = value
        elif words[0] == "unset":
            unset += words[1:]
        elif words[0] != "mkdir":
            command = words[: words.index(">")]
    return command, exported, unset


def period(ms: str) -> list[str]:
    return [*ROCPD, *DATABASE, "--collection-period", ms, "--collection-period-unit", "msec"]


@pytest.mark.parametrize(
    ("options", "help_", "more", "expected", "added"),
    [
        ([], HELP_7, {}, [*ROCPD, *DATABASE], {}),
        ([], HELP_6, {}, CSV, {}),
        (["--detail"], HELP_7, {}, [*ROCPD, *DATABASE], {"MIOPEN_LOG_LEVEL": "6"}),
        (["--after", "30", "--for", "2.5"], HELP_7, {}, period("30000:2500:1"), {}),
        (["--after", "3"], HELP_7, {}, period("3000:604800000:1"), {}),
        ([], HELP_7, {"SLURM_NTASKS": "8"}, [*ROCPD, "--rccl-trace", *DATABASE], {}),
        ([], HELP_7, OWN, [*ROCPD, *DATABASE], {}),
    ],
    ids=["plain", "ROCm 6", "detail", "period", "after", "ranks", "own variables"],
)
def test_rocprofv3_gets_this_command_line_and_environment(  # the whole of both
    options: list[str], help_: str, more: dict[str, str], expected: list[str], added: dict[str, str],
    program: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    """And a dry run prints the same."""
    added = {name: value for name, value in (BASE | ROCTX | added).items() if name not in more}
    there = rocprofv3(tmp_path / "rocm", help_=help_)
    given = there.environment | more
    done = record(*options, "--", *program, environment=given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (call,) = there.calls
    place = call.arguments[call.arguments.index("-d") + 1]
    whole = [str(there.path), *(place if word == "DIR" else word for word in expected), "--", *program]
    assert call.arguments == whole
    left = {name: value for name, value in (OURS | given).items() if name != "ROCPROFILER_REGISTER_LIBRARY"}
    assert call.environment == left | added
    assert not os.path.exists(place), "the temporary folder is gone"
    dry = dry_run(*options, "--", *program, environment=given, cwd=tmp_path)
    assert of_script(dry.stdout) == (
        ["run" if word == place else word for word in whole],
        added,
        ["ROCPROFILER_REGISTER_LIBRARY"] if more is OWN else [],
    )
    assert len(there.calls) == 1
    assert ("MIOPEN_ENABLE_LOGGING=0 is yours and stays" in done.stderr) is (more is OWN)
    assert "MIOPEN_LOG_LEVEL=4 is yours" not in done.stderr
    assert ("ROCPROFILER_REGISTER_LIBRARY is left out" in done.stderr) is (more is OWN)


def test_rocprof_of_old_gets_this_command_line_and_environment(program: list[str], tmp_path: Path) -> None:
    there = rocprof(tmp_path / "rocm", {})
    assert record("--", *program, environment=there.environment, cwd=tmp_path).returncode == 0
    (call,) = there.calls
    out = call.arguments[4]
    assert call.arguments == [str(there.path), "--hip-trace", "--roctx-trace", "-o", out, *program]
    assert os.path.basename(out) == "results.csv"
    assert call.environment == OURS | there.environment | BASE | ROCTX
    dry = dry_run("--", *program, environment=there.environment, cwd=tmp_path)
    assert of_script(dry.stdout)[0] == [*call.arguments[:4], "run/results.csv", *program]


def test_of_the_forms_that_rocprof_writes_at_once_the_database_is_read(shared: Path, tmp_path: Path) -> None:
    results = (shared / "samples/rocm-twins/lenet-train-own-layers/rocprof-v1").glob("results.*")
    there = rocprof(tmp_path / "rocm", {path.name.removesuffix(".gz"): unpacked_bytes(path) for path in results})
    done = record("--", "true", environment=there.environment, cwd=tmp_path)
    assert manifest(tmp_path / "run.zip")["inputs"] == ["results.db"]
    assert mio2trace.analyse(tmp_path / "run.zip").run.profiles
    assert "1 process" in done.stderr


def test_a_signal_reaches_what_rocprofs_script_runs(tmp_path: Path) -> None:
    """The script itself would keep it."""
    there = rocprof(tmp_path / "rocm", {})
    running = started("-q", "--", sys.executable, "-c", PATIENT, cwd=tmp_path, path=there.environment["PATH"])
    assert present(running.stdout).readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=60)[0] == "caught SIGTERM\n"


def test_a_dry_run_is_a_script_that_makes_what_record_makes(program: list[str], tmp_path: Path) -> None:
    """Its folder is an input as the archive is."""
    there = rocprofv3(tmp_path / "rocm")
    dry = dry_run("-o", "my run.zip", "--", *program, environment=there.environment, cwd=tmp_path)
    assert not (tmp_path / "my run").exists()
    subprocess.run(["sh", "-ec", dry.stdout], cwd=tmp_path, env=there.environment, check=True)
    record("-o", "my run.zip", "--", *program, environment=there.environment, cwd=tmp_path)
    drawn = [mio2trace.convert(tmp_path / name).metadata["attribution"] for name in ("my run", "my run.zip")]
    assert drawn[0] == drawn[1]
    assert drawn[0]["kernels"] > 0
    assert "next: mio2trace report 'my run' -o 'my run'.html" in dry.stderr


def test_an_archive_goes_through_the_commands(program: list[str], tmp_path: Path) -> None:
    there = rocprofv3(tmp_path / "rocm")
    done = record("--", *program, environment=there.environment, cwd=tmp_path)
    assert done.stdout.encode() == LOG
    words = done.stderr.splitlines()
    with_it = "recording with rocprofv3 1.1.0 (ROCm 7.2.3)"
    assert words[0] == f"{with_it}; MIOpen log with entries and commands, ROCTx ranges on"
    assert words[1].startswith("exit 0 after ")
    assert words[-1] == "next: mio2trace report run.zip -o run.html"
    assert manifest(tmp_path / "run.zip")["inputs"] == ["run.log", "4711_results.db"]
    assert member(tmp_path / "run.zip", "4711_results.db") == rocpd()
    assert member(tmp_path / "run.zip", "run.log") == LOG
    assert "gpunode07" not in str(zipfile.ZipFile(tmp_path / "run.zip").namelist())
    for name, data in (("run.log", LOG), ("run.db", rocpd())):
        (tmp_path / name).write_bytes(data)
    own = mio2trace.convert(tmp_path / "run.log", tmp_path / "run.db").metadata["attribution"]
    assert mio2trace.convert(tmp_path / "run.zip").metadata["attribution"] == own
    assert f"profile {own['kernels']:,} kernels, 1 process" in done.stderr
    for command in (["report"], ["layers"], ["ops"], ["compare", str(tmp_path / "run.zip")]):
        printed(*command, tmp_path / "run.zip")


def test_of_a_set_of_tables_one_is_the_input_and_the_others_lie_beside_it(shared: Path, tmp_path: Path) -> None:
    tables = shared / "samples/rocm-twins/lenet-train-own-layers/rocprofv3-csv"
    there = rocprofv3(tmp_path / "rocm", {path.name: path.read_bytes() for path in tables.iterdir()}, HELP_6)
    assert record("--", "true", environment=there.environment, cwd=tmp_path).returncode == 0
    held = manifest(tmp_path / "run.zip")
    assert len(held["inputs"]) == 1
    assert len(held["beside"]) >= 2
    own = mio2trace.analyse(tables).run.profiles
    read = mio2trace.analyse(tmp_path / "run.zip").run.profiles
    assert [len(one.activities) for one in read] == [len(one.activities) for one in own]
    assert [len(one.ranges) for one in read] == [len(one.ranges) for one in own]


def test_without_a_profiler_the_log_alone_is_recorded_and_said(program: list[str], tmp_path: Path) -> None:
    done = record("--", *program, cwd=tmp_path)
    assert done.stderr.splitlines()[0] == "recording with no profiler; MIOpen log with entries and commands"
    assert "problem: no profiler" in done.stderr
    assert done.stderr.splitlines()[-1] == "next: mio2trace ops run.zip"
    assert invoked("ops", tmp_path / "run.zip").exit_code == 0


# ---- what passes through


@pytest.mark.parametrize(
    ("script", "code", "number", "out", "log"),
    [
        ("echo out; echo err >&2; printf more; exit 7", 7, None, "out\nmore", b"err more out"),
        ("tr a b", 0, None, "bbnbnb\n", b" bbnbnb"),
        ("echo before; kill -KILL $$", 137, 9, "before\n", b" before"),
        # A parent that ends first: its child's output is whole, the exit code is the parent's.
        ("(sleep 1; echo late) & echo early; exit 3", 3, None, "early\nlate\n", b" early late"),
    ],
)
def test_all_streams_and_the_exit_code_pass_through(
    script: str, code: int, number: int | None, out: str, log: bytes, tmp_path: Path
) -> None:
    """In the log they stand line by line, also where the last has no end."""
    done = record("--", "sh", "-c", script, cwd=tmp_path, input="banana\n")
    assert (done.returncode, done.stdout) == (code, out)
    assert ("err\n" in done.stderr) is (code == 7)
    assert ("killed by SIGKILL after" in done.stderr) is (number == 9)
    assert sorted(member(tmp_path / "run.zip", "run.log").split(b"\n")) == log.split(b" ")
    assert manifest(tmp_path / "run.zip")["exit"] == {"code": code, "signal": number}


@pytest.mark.parametrize(
    ("program", "mode", "code", "said"),
    [
        ("no-such-program", 0o755, 127, "no-such-program: no such program"),
        ("./text", 0o755, 126, "./text: cannot be run: Exec format error"),
        ("./text", 0o644, 126, "./text: cannot be run: it is no file with permission for that"),
    ],
)
def test_what_cannot_run_leaves_no_archive(program: str, mode: int, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a program")
    (tmp_path / "text").chmod(mode)
    done = record("--", program, cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(f"mio2trace: {said}")
    assert not list(tmp_path.glob("*.zip"))


def started(*words: str, cwd: Path, path: str = ENVIRONMENT["PATH"]) -> subprocess.Popen[str]:
    given = OURS | ENVIRONMENT | {"PATH": path}
    command = [sys.executable, "-m", "mio2trace", "record", *words]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=cwd, env=given, text=True, **both)  # type: ignore[call-overload, no-any-return]


PATIENT = (
    "import os, signal, sys, time\n"
    "def caught(number, frame):\n    os.write(1, f'caught {signal.Signals(number).name}\\n'.encode())\n"
    "    sys.exit(40 + number) if number != signal.SIGUSR1 else None\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):\n    signal.signal(number, caught)\n"
    "os.write(1, b'ready\\n')\n"
    "for _ in range(600): time.sleep(0.1)\n"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_sent_to_record_reaches_the_program_once(number: signal.Signals, tmp_path: Path) -> None:
    running = started("--", sys.executable, "-c", PATIENT, cwd=tmp_path)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGUSR1)
    assert running.stdout.readline() == "caught SIGUSR1\n"
    running.send_signal(number)
    rest, said = running.communicate(timeout=60)
    assert (rest, running.returncode) == (f"caught {number.name}\n", 40 + number)
    assert f"exit {40 + number} after" in said
    assert member(tmp_path / "run.zip", "run.log").decode() == f"ready\ncaught SIGUSR1\ncaught {number.name}\n"


def test_ctrl_c_on_a_terminal_reaches_the_program_once_and_leaves_an_archive(tmp_path: Path) -> None:
    """The terminal signals the whole group: who passes that on signals twice."""
    counting = PATIENT.replace("sys.exit(40 + number) if number != signal.SIGUSR1 else None", "pass")
    counting = counting.replace("range(600)", "range(12)")
    words = [sys.executable, "-m", "mio2trace", "record", "--profiler", "none", "--", sys.executable, "-c", counting]
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(OURS)
        os.chdir(tmp_path)
        os.execv(words[0], words)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 4096):
            seen += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert seen.count(b"caught SIGINT") == 1
    assert member(tmp_path / "run.zip", "run.log") == b"ready\ncaught SIGINT\n"


def test_a_signal_ends_the_waiting_for_what_a_program_left_behind(tmp_path: Path) -> None:
    running = started("--", "sh", "-c", "sleep 60 & echo $!; exit 3", cwd=tmp_path)
    assert running.stdout is not None
    assert running.stderr is not None
    left = int(running.stdout.readline())
    while "goes on and holds its output" not in (line := running.stderr.readline()):
        assert line
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 3
    os.kill(left, signal.SIGKILL)
    assert (tmp_path / "run.zip").exists()
    running.communicate()


def test_output_that_looks_like_a_damaged_file_is_recorded_like_any_other(tmp_path: Path) -> None:
    """It begins as compressed data does, and cannot be decompressed."""
    (tmp_path / "log").write_bytes(b"\x1f\x8b\x08garbage")
    (tmp_path / "none").mkdir()
    came = session.look(str(tmp_path / "log"), str(tmp_path / "none"))
    assert (came.log.size, came.log.known) == (10, False)


def test_a_reader_that_has_gone_is_the_programs_to_notice(tmp_path: Path) -> None:
    """As without us: `record -- yes | head -1` ends."""
    line = f"{shlex.quote(sys.executable)} -m mio2trace record -q -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=OURS | ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"y\n{128 + signal.SIGPIPE}\n"


OUTPUT = 300_000_000
"""More than `FREE_EXPANSION` allows any archive."""


def test_any_amount_of_output_passes_without_more_memory(tmp_path: Path) -> None:
    """Through us, into the log and into the archive: the most that the process ever held is small."""
    program = f"yes 'a line of another program, as it is printed again and again' | head -c {OUTPUT}"
    code = (
        "import sys; from mio2trace.cli import main\n"
        f"sys.argv = ['mio2trace', 'record', '-q', '-o', '{tmp_path}/run.zip', '--', 'sh', '-c', {program!r}]\n"
        "try:\n    main()\nfinally:\n"
        # Of this program alone: what getrusage tells begins with the size of the process that started it.
        "    own = [line for line in open('/proc/self/status') if line.startswith('VmHWM')]\n"
        f"    open('{tmp_path}/peak', 'w').write(own[0].split()[1])\n"
    )
    with open(os.devnull, "wb") as nowhere:
        done = subprocess.run([sys.executable, "-c", code], env=OURS | ENVIRONMENT, stdout=nowhere, timeout=300)
    assert done.returncode == 0
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert archive.getinfo("run.log").file_size == OUTPUT
    with unpacked(str(tmp_path / "run.zip")) as made:
        assert made.manifest is not None, "what we pack is no bomb to us"
    assert int((tmp_path / "peak").read_text()) < 120_000, "kB"


# ---- disks, places, names


def test_a_full_disk_for_the_log_is_one_line_and_the_program_goes_on(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = record("--", "sh", "-c", "seq 1000000 | head -c 3000000; exit 5", cwd=tmp_path, preexec_fn=limited)
    assert (done.returncode, len(done.stdout)) == (5, 3_000_000)
    assert done.stderr.count("the log is not whole: File too large; TMPDIR names another place") == 1


def test_a_full_disk_for_the_archive_keeps_what_was_recorded_and_says_where(small_disk: Path, tmp_path: Path) -> None:
    program = "head -c 3000000 /dev/urandom | base64"
    done = record("-o", str(saved(small_disk / "run.zip", b"before")), "--", "sh", "-c", program, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "run.zip: No space left on device; what was there before is unchanged; what was recorded is in /" in last
    kept = Path(last.rpartition(" is in ")[2])
    assert (kept / "run" / "run.log").stat().st_size > 3_000_000
    assert (small_disk / "run.zip").read_bytes() == b"before"
    assert [path.name for path in small_disk.iterdir()] == ["run.zip"]
    subprocess.run(["rm", "-r", str(kept)], check=True)


def test_a_place_that_cannot_be_written_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = record("-o", "file/run.zip", "--", "touch", str(tmp_path / "ran"), cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2)
    assert "file/run.zip: cannot write there: " in done.stderr
    assert asked("-o", "run.tar", "--", "true", cwd=tmp_path).exit_code == 2
    assert not (tmp_path / "ran").exists()


def test_what_is_said_to_do_next_is_no_option(tmp_path: Path) -> None:
    """Whatever the archive is called: the line can be copied into a shell."""
    name = "-rf 'a';\nb.zip"
    program = ["sh", "-c", "echo 'MIOpen(HIP): miopenStatus_t miopenCreate(miopenHandle_t *){'"]
    done = record("-o", name, "--profiler", "none", "--", *program, cwd=tmp_path)
    assert (done.returncode, (tmp_path / name).exists()) == (0, True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: ").replace("\\n", "\n"))
    assert words[:2] == ["mio2trace", "ops"]
    assert words[2:] == [f"./{name}"]


def test_a_pipe_among_a_profilers_files_is_not_waited_for(tmp_path: Path) -> None:
    """Nor is a link followed."""
    log = saved(tmp_path / "run.log", b"")
    folder = tmp_path / "profile"
    folder.mkdir()
    (folder / "results.db").write_bytes(rocm_made.rpd(rocm_made.run()))
    os.mkfifo(folder / "a_trace.csv")
    (folder / "b_trace.csv").symlink_to("/etc/passwd")
    assert [part.path for part in session.look(str(log), str(folder)).parts] == [str(folder / "results.db")]


@pytest.mark.parametrize("name", ["a\nb.db", "a\\b.db", "C:b.db", "\x1b[31m.db", os.fsdecode(b"\xff.db")])
def test_whatever_a_profilers_file_is_called_its_archive_is_read(name: str, tmp_path: Path) -> None:
    """A member may not be called by what leads elsewhere or steers; two that become one name stay two."""
    (tmp_path / "made").write_bytes(b"x")
    members: dict[str, str] = {}
    for _ in range(2):
        members[session.name_for(name, members)] = str(tmp_path / "made")
    session.pack(str(tmp_path / "run.zip"), {"inputs": [*members]}, members)
    with unpacked(str(tmp_path / "run.zip")) as found:
        assert found.members == tuple(members)
        assert len(members) == 2


@pytest.mark.parametrize("endless", ["yes -- --hip-runtime-trace", "yes & echo told; sleep 60"])
def test_a_profiler_that_says_too_much_is_stopped(endless: str, tmp_path: Path) -> None:
    """And what it runs with it; what it said until then counts."""
    saved(tmp_path / "rocprofv3", f"#!/bin/sh\n{endless}\n").chmod(0o755)
    found = present(plan.find("rocprofv3", {"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    assert 0 < len(found.help) <= 1 << 20


def test_ranks_pids_and_variables_name_the_archive(tmp_path: Path) -> None:
    """A folder that is not there is made."""
    given = ENVIRONMENT | {"OMPI_COMM_WORLD_RANK": "3", "JOB": "a/b"}
    named = "job/{env:JOB}-{rank}-{pid}.zip"
    assert record("-q", "-o", named, "--", "true", environment=given, cwd=tmp_path).returncode == 0
    (made,) = (tmp_path / "job").iterdir()
    assert made.name.startswith("a_b-3-")
    assert manifest(made)["rank"] == 3
    above = ENVIRONMENT | {"JOB": ".."}
    assert record("-q", "-o", "job/{env:JOB}/x.zip", "--", "true", environment=above, cwd=tmp_path).returncode == 0
    assert (tmp_path / "job" / "__" / "x.zip").exists()
    for name in ("{rank}.zip", "{env:NO_SUCH}.zip"):
        assert "in the environment" in stderr_of(asked("-o", name, "--", "touch", "ran", cwd=tmp_path), 2)
    said = stderr_of(asked("-o", "{rnk}.zip", "--", "touch", "ran", cwd=tmp_path), 2)
    assert "{rnk} is unknown; expected {rank}, {pid} or {env:NAME}" in said
    assert not (tmp_path / "ran").exists()


def test_options_of_the_program_are_its_own_and_wrong_ones_of_ours_are_told(tmp_path: Path) -> None:
    assert record("-q", "--", "echo", "-o", "x", "--detail", cwd=tmp_path).stdout == "-o x --detail\n"
    assert record("-q", "echo", "-n", "--help", cwd=tmp_path).stdout == "--help"
    done = asked("--for", "3", "--", "true", cwd=tmp_path)
    assert done.exit_code == 2
    assert "--for and --after need rocprofv3; the profiler here is no profiler" in done.stderr
    for options, said in (
        (["--profiler", "rocprofv3"], "no rocprofv3 on the PATH"),
        (["--dvdt", "none.so"], "none.so: no such library"),
    ):
        assert said in stderr_of(asked(*options, "--", "true", cwd=tmp_path), 1)


def test_the_reference_runs_without_miopens_log_under_the_same_profiler(program: list[str], tmp_path: Path) -> None:
    there = rocprofv3(tmp_path / "rocm")
    done = record("--reference", "--", *program, environment=there.environment, cwd=tmp_path)
    first, second = there.calls
    assert second.environment == {name: value for name, value in first.environment.items() if "MIOPEN" not in name}
    assert [word for word in second.arguments if "mio2trace-record" not in word] == [
        word for word in first.arguments if "mio2trace-record" not in word
    ]
    held = manifest(tmp_path / "run.zip")
    assert held["reference"] == ["reference-run.log", "reference-4711_results.db"]
    assert held["inputs"] == ["run.log", "4711_results.db"]
    assert "reference: exit 0 after" in done.stderr
    assert len(mio2trace.analyse(tmp_path / "run.zip").runs) == 1


# ---- what is written of the machine


def test_the_manifest_tells_nothing_of_anybody(program: list[str], tmp_path: Path) -> None:
    """Values of known variables alone, when they look like one; the boot's id as a hash."""
    there = rocprofv3(tmp_path / "rocm")
    given = there.environment | {
        "MIOPEN_FIND_MODE": "FAST",
        "MIOPEN_USER_DB_PATH": "/home/canary/db",
        "HIP_VISIBLE_DEVICES": "0,1",
        "HSA_XNACK": "canary@host",
        "HF_TOKEN": "hf_canarycanarycanary",
        "LD_PRELOAD": "",
    }
    record("--", "sh", "-c", "echo canary", "--token", "canary", environment=given, cwd=tmp_path)
    held = manifest(tmp_path / "run.zip")
    assert held["variables"]["MIOPEN_FIND_MODE"] == "FAST"
    assert held["variables"]["HIP_VISIBLE_DEVICES"] == "0,1"
    assert held["variables"]["MIOPEN_USER_DB_PATH"] == held["variables"]["HSA_XNACK"] == "(set)"
    text = json.dumps(held)
    assert "canary" not in text
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() not in text
    assert str(tmp_path) not in text


def test_the_anchors_are_the_systems_clocks_at_both_ends(tmp_path: Path) -> None:
    before = time.clock_gettime_ns(time.CLOCK_REALTIME)
    record("-q", "--", "sleep", "0.2", cwd=tmp_path)
    after = time.clock_gettime_ns(time.CLOCK_REALTIME)
    clocks = manifest(tmp_path / "run.zip")["clocks"]
    assert before < clocks["start"]["realtime_ns"] < clocks["end"]["realtime_ns"] < after
    for name in ("realtime_ns", "boottime_ns", "monotonic_ns", "monotonic_raw_ns"):
        assert clocks["end"][name] - clocks["start"][name] > 190_000_000
    assert 0 <= clocks["start"]["width_ns"] < 1_000_000


def test_gpus_and_versions_are_those_of_the_systems_files(tmp_path: Path) -> None:
    for number, version in enumerate((0, 90402, 90010, 110000)):
        (tmp_path / "nodes" / str(number)).mkdir(parents=True)
        (tmp_path / "nodes" / str(number) / "properties").write_text(f"simd_count 1\ngfx_target_version {version}\n")
    assert session._gpus(tmp_path / "nodes") == ["gfx942", "gfx90a", "gfx1100"]
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info" / "version").write_text("7.2.3-12\n")
    (tmp_path / "include/miopen").mkdir(parents=True)
    lines = "".join(f"#define MIOPEN_VERSION_{part} {n}\n" for part, n in (("MAJOR", 3), ("MINOR", 5), ("PATCH", 1)))
    (tmp_path / "include/miopen/version.h").write_text(lines)
    told = session.machine({"ROCM_PATH": str(tmp_path)})
    assert (told["rocm"], told["miopen"]) == ("7.2.3-12", "3.5.1")


# ---- what is missing, and why


V3 = plan.Profiler("rocprofv3")
WHOLE = session.Part("x.db", kernels=5, tids=frozenset({5}))


@pytest.mark.parametrize(
    ("log", "parts", "killed", "profiler", "said"),
    [
        (session.Log(calls=3), (), None, V3, ["rocprofv3 wrote no profile"]),
        (session.Log(calls=3), (), 9, V3, ["a killed program leaves none"]),
        (session.Log(), (session.Part("x.db", processes=1),), None, V3, ["torch.profiler"]),
        (session.Log(), (session.Part("x.db", kernels=5),), None, V3, ["hipBLASLt"]),
        (session.Log(), (), 9, plan.Profiler("dv/dt"), ["killed programs print no JSON"]),
        (
            session.Log(calls=2, threads=frozenset({5, 6})), (WHOLE,), None, V3,
            ["MIOpen calls of 1 thread that the profile does not have"],
        ),
        (session.Log(calls=2, threads=frozenset({5})), (WHOLE,), None, V3, []),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_with_its_known_cause(
    log: session.Log, parts: tuple[session.Part, ...], killed: int | None, profiler: plan.Profiler, said: list[str]
) -> None:
    lines = session.problems(session.Contents(log, parts), plan.Outcome(0, killed, 1.0), profiler)
    for line, words in zip(lines, said, strict=True):
        assert words in line


def test_a_variable_of_the_persons_own_is_named_as_the_cause() -> None:
    came = session.Contents(session.Log(), (session.Part("x.db", kernels=5),))
    own = {"MIOPEN_ENABLE_LOGGING": "0", "MIOPEN_LOG_LEVEL": "3"}
    (line,) = session.problems(came, plan.Outcome(0, None, 1.0), V3, own)
    assert line == "kernels but no line of MIOpen's: MIOPEN_ENABLE_LOGGING=0 is yours, and stayed"


def test_calls_in_a_log_are_counted_with_the_threads_that_computed(tmp_path: Path) -> None:
    """A call that only describes a tensor or an operation counts, its thread does not."""
    head = "{0} MIOpen(HIP): miopenStatus_t miopen"
    run = head + "ConvolutionForward(miopenHandle_t, const void *){{\n{0} x = 0x7ff\n{0} }}\n"
    create = head + "Create(miopenHandle_t *){{\n{0} }}\n"
    text = "".join((run.format(71), create.format(73), run.format(72), run.format(71)))
    (tmp_path / "none").mkdir()
    log = session.look(str(saved(tmp_path / "run.log", text)), str(tmp_path / "none")).log
    assert (log.calls, log.threads, log.kernels, log.known) == (4, frozenset({71, 72}), 0, True)


def test_profiles_of_several_processes_in_one_log_are_counted(tmp_path: Path) -> None:
    """Those that computed nothing, such as the shell around them, are none."""
    block = '[dv/dt] <<\n[{"call": "clEnqueueNDRangeKernel", "name": "k"}]\n[dv/dt] >>\n'
    empty = block.replace("NDRangeKernel", "Marker")
    (tmp_path / "none").mkdir()
    for text, processes in ((2 * block, 2), (block + empty, 1), (empty + block, 1), ("", 0)):
        came = session.look(str(saved(tmp_path / "run.log", text)), str(tmp_path / "none"))
        assert came.processes == processes
        said = [
            line
            for line in session.problems(came, plan.Outcome(0, None, 1.0), plan.Profiler("dv/dt"))
            if "processes" in line
        ]
        assert len(said) == (processes > 1)


def test_what_is_packed_twice_is_the_same_bytes(tmp_path: Path) -> None:
    """No time and no owner, of the manifest neither."""
    (tmp_path / "run.log").write_text("x")
    session.pack(str(tmp_path / "a.zip"), {"inputs": ["run.log"]}, {"run.log": str(tmp_path / "run.log")})
    with zipfile.ZipFile(tmp_path / "a.zip") as made:
        assert {one.date_time for one in made.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {one.external_attr for one in made.infolist()} == {0o100644 << 16}


def test_plan_reads_no_variable_twice() -> None:
    """The rank nearest to the program counts."""
    assert plan.rank_of({"SLURM_PROCID": "7", "RANK": "2"}) == 2
    assert plan.rank_of({"RANK": "x", "PMI_RANK": "4"}) == 4
    assert plan.rank_of({}) is None


def test_a_program_that_removes_what_is_recorded_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^run\.log: No such file or directory$"):
        session.look(str(tmp_path / "run.log"), str(tmp_path))


# -- `mio2trace record` around a real OpenCL program on this machine's device, profiled by a library that is preloaded.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return opencl(tmp_path_factory.mktemp("opencl"))


def test_a_real_program_becomes_a_trace_with_its_operations(built: tuple[str, str], tmp_path: Path) -> None:
    """Its kernels are those of MIOpen's calls by their buffers; report, compare and ops take the archive."""
    program, library = built
    done = record("--dvdt", library, "--", program, "3", "4", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert done.stdout.count("computed 64 values") == 1
    assert "(3 MIOpen calls, 1 thread), profile 3 kernels, 1 process" in done.stderr
    assert done.stderr.splitlines()[-1] == "next: mio2trace report run.zip -o run.html"
    archive = str(tmp_path / "run.zip")
    run = mio2trace.analyse(archive).run
    activities = run.profiles[0].activities
    assert [activity.name for activity in activities] == ["MIOpenConv1x1"] * 3
    assert all(0 < (one.start_ns or 0) < (one.end_ns or 0) for one in activities)
    assert len(run.operations) == 3
    assert run.alignments[0].links.operation_by == ["buffers"] * 3
    for command in (["report"], ["ops"], ["kernels"], ["compare", archive]):
        printed(*command, archive)
    bundle = str(tmp_path / "bug.zip")
    assert invoked("bundle", archive, "-o", bundle, "-q").exit_code == 0
    assert mio2trace.analyse(bundle).run.alignments[0].links.operation_by == ["buffers"] * 3
    assert "Conv fwd" in invoked("report", archive, "--format", "markdown").stdout


def test_the_library_stands_before_one_that_the_person_preloads(built: tuple[str, str], tmp_path: Path) -> None:
    program, library = built
    given = ENVIRONMENT | {"LD_PRELOAD": "libm.so.6"}
    done = record("--dvdt", library, "--", "env", environment=given, cwd=tmp_path)
    assert f"LD_PRELOAD={os.path.abspath(library)}:libm.so.6\n" in done.stdout
    dry = dry_run("--dvdt", library, "--", program, "5", cwd=tmp_path)
    assert f"export LD_PRELOAD={library}\n" in dry.stdout
    assert dry.stdout.splitlines()[-1] == f"{program} 5 > run/run.log 2>&1"
