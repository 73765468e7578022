"""What the system does to a conversion: full disks, folders that go, signals, streams that are closed.

Whatever happens, the old output survives or the new one is whole, and nothing half written is left but by SIGKILL.
"""

from __future__ import annotations

import contextlib
import dis
import gzip
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from mio2trace.commands import _without_frames
from mio2trace.conversion import convert
from mio2trace.readers.pieces import pieces
from tests import rocm_made
from tests.conftest import REQUIRED, missing
from tests.small_runs import as_json, benchmark

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-m", "mio2trace"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "timeline")}
CALLS, LOG = benchmark(iterations=300)
PROFILE = as_json(CALLS)
ARGS = ["run.log", "prof.json", "-o", "out.json", "-q"]
INPUTS = ["prof.json", "run.log"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files of a run of some size."""
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(place: Path) -> None:
    (place / "run.log").write_text(LOG)
    (place / "prof.json").write_bytes(PROFILE)


def begun(*args: str, **options: Any) -> Any:
    """The program with ``args``, while it runs."""
    return subprocess.Popen([*PROGRAM, *args], **{"stderr": subprocess.PIPE, "env": ENVIRONMENT, **options})


def shell(command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", command], env=ENVIRONMENT, capture_output=True)


def refused(*args: str, said: str, **options: object) -> None:
    """With this line and nothing else."""
    result = run(*args, **options)
    assert (result.returncode, result.stderr.decode()) == (1, f"mio2trace: {said}\n")


def run(*args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    result = subprocess.run(
        [*PROGRAM, *args], **{"capture_output": True, "env": ENVIRONMENT, "timeout": 120, **options}
    )  # type: ignore[call-overload]
    assert b"Traceback" not in result.stderr
    return result  # type: ignore[no-any-return]


def names(folder: Path | None = None) -> list[str]:
    return sorted(path.name for path in (folder or Path()).iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The trace as an undisturbed run writes it."""
    place = tmp_path_factory.mktemp("whole")
    put(place)
    assert subprocess.run([*PROGRAM, *ARGS], cwd=place, env=ENVIRONMENT).returncode == 0
    return (place / "out.json").read_bytes()


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 256 KB: too small for the trace."""
    with mounted(folder, "size=256k") as disk:
        yield disk


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    disk = folder / "disk"
    disk.mkdir()
    result = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], capture_output=True)
    if result.returncode:
        missing("faults", f"no file system can be mounted here: {result.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# ---- the disk


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_a_full_disk_leaves_the_old_output(small_disk: Path, name: str) -> None:
    (small_disk / name).write_text("old")
    room = shutil.disk_usage(small_disk).free
    if name.endswith(".gz"):
        (small_disk / "fill").write_bytes(bytes(room - 8192))
    before = names(small_disk)
    said = f"disk/{name}: No space left on device; what was there before is unchanged"
    refused("run.log", "prof.json", "-o", f"disk/{name}", "-q", said=said)
    assert (small_disk / name).read_text() == "old"
    assert names(small_disk) == before


def test_a_folder_for_temporary_files_that_is_full_is_one_line(folder: Path) -> None:
    """A compressed database is laid there to be asked."""
    database = rocm_made.rocpd(rocm_made.run())
    (folder / "run.db.gz").write_bytes(gzip.compress(database))
    assert len(database) > 30 << 10
    said = "run.db.gz: cannot be copied into the folder for temporary files: No space left on device"
    with mounted(folder, "size=30k") as disk:
        refused("run.db.gz", "-o", "out.json", said=said, env={**ENVIRONMENT, "TMPDIR": str(disk)})
        assert names(disk) == []


def test_a_disk_too_full_for_the_summary_keeps_the_old_summary(small_disk: Path) -> None:
    (small_disk / "found.json").write_text("old")
    (small_disk / "fill").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    result = run(*ARGS, "--summary", "disk/found.json")
    assert (result.returncode, result.stderr.count(b"\n")) == (1, 1)
    assert (small_disk / "found.json").read_text() == "old"
    assert names(small_disk) == ["fill", "found.json"]


def test_a_limit_on_the_size_of_files_is_like_a_full_disk() -> None:
    """``ulimit -f``: the file in memory that the second process writes has that limit, too."""
    Path("out.json").write_text("old")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    refused(*ARGS, said="out.json: File too large; what was there before is unchanged", preexec_fn=limit)
    assert Path("out.json").read_text() == "old"
    assert names() == ["out.json", *INPUTS]


def test_a_read_only_file_system_is_named(folder: Path) -> None:
    """To write to; to read from it is fine."""
    with mounted(folder, "size=4m") as disk:
        for name in INPUTS:
            shutil.copy(name, disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        said = "disk/out.json: cannot write there: Read-only file system"
        refused("run.log", "prof.json", "-o", "disk/out.json", "-q", said=said)
        with contextlib.chdir(disk):
            assert run("run.log", "prof.json", "-o", str(folder / "out.json"), "-q").returncode == 0
    assert names() == ["disk", "out.json", *INPUTS]


def test_an_output_folder_that_is_gone_is_named() -> None:
    """Before the run, and in its middle."""
    said = "gone/out.json: cannot write there: No such file or directory"
    refused("run.log", "prof.json", "-o", "gone/out.json", said=said)
    refused("not there.log", "-o", "gone/out.json", said=said)  # before anything is read
    Path("place").mkdir()
    process = begun("-", "prof.json", "-o", "place/out.json", "-q", stdin=subprocess.PIPE)
    process.stdin.write(LOG.encode())
    process.stdin.flush()
    Path("place").rmdir()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == b"mio2trace: place/out.json: cannot write there: No such file or directory\n"


def test_a_folder_that_goes_while_the_trace_is_written(folder: Path) -> None:
    """From Python, where the moment can be chosen."""
    from mio2trace.files import replacing
    from mio2trace.notes import InputError

    (folder / "place").mkdir()

    def write() -> None:
        with replacing("place/out.json") as file:
            file.write(b"half")
            shutil.rmtree("place")

    with pytest.raises(InputError, match="No such file or directory"):
        write()
    assert names() == INPUTS


def test_a_current_folder_that_is_gone_does_no_harm(folder: Path) -> None:
    """With full paths it converts; without, one line."""
    script = f"mkdir -p here && cd here && rmdir ../here && {sys.executable} -m mio2trace {folder}/prof.json -q -o "
    full, relative = shell(f"{script} {folder}/out.json"), shell(f"{script} out.json")
    assert (full.returncode, full.stderr) == (0, b"")
    assert relative.returncode == 1
    assert relative.stderr == b"mio2trace: out.json: cannot write there: No such file or directory\n"


# ---- signals


def alive_in(folder: Path) -> list[str]:
    """Processes of the program that work in ``folder``, as this one of the tests does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if Path(os.readlink(process / "cwd")) == folder and b"mio2trace" in words:
                found.append(process.name)
    return found


@pytest.mark.thorough
def test_killed_at_any_moment_the_old_output_survives_or_the_new_one_is_whole(folder: Path, whole: bytes) -> None:
    """SIGKILL, ten times, at moments spread over the whole run; only hidden files may be left."""
    chance = random.Random(7)
    started = time.monotonic()
    assert run(*ARGS).returncode == 0
    length = time.monotonic() - started
    survived = replaced = 0
    for number in range(10):
        Path("out.json").write_bytes(b"old")
        process = begun(*ARGS, stderr=None)
        time.sleep(length * (number + chance.random()) / 10 * 1.1)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        content = Path("out.json").read_bytes()
        assert content in (b"old", whole), number
        survived += content == b"old"
        replaced += content == whole
        left = [name for name in names() if name not in ("out.json", *INPUTS)]
        assert all(name.startswith(".mio2trace-") and name.endswith(".tmp") for name in left)
    assert survived
    deadline = time.monotonic() + 20
    while alive_in(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive_in(folder), "a second process goes on for ever"


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGINT, 130, b"mio2trace: interrupted\n"), (signal.SIGTERM, 143, b""), (signal.SIGHUP, 129, b"")],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_signal_ends_in_order_and_leaves_nothing(
    folder: Path, whole: bytes, number: signal.Signals, code: int, line: bytes
) -> None:
    """To the whole group, as a terminal sends it, from the moment that reading has begun to the end."""
    for moment in range(4) if number == signal.SIGINT else (0, 2):
        Path("out.json").write_bytes(b"old")
        process = begun("-", *ARGS[1:], stdin=subprocess.PIPE, start_new_session=True)
        process.stdin.write(LOG.encode() + b"another line\n" * 20_000)  # more than a pipe holds: it is being read
        if moment:
            process.stdin.close()
            time.sleep(moment * 0.12)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)  # the first time while it waits for the rest
        if not moment:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        said = process.stderr.read()
        process.stderr.close()
        assert process.wait(60) in (128 + number, 0)
        content = Path("out.json").read_bytes()
        if process.returncode:
            # a terminal's ^C stands on the line before
            assert said.strip() == (b"mio2trace: interrupted" if number == signal.SIGINT else b"")
            assert content in (b"old", whole) or json.loads(content)["traceEvents"]
        assert names() == ["out.json", *INPUTS]
        if not process.returncode:
            break
    assert moment, "it ended before the first signal came"
    assert not alive_in(folder)


def test_a_hangup_under_nohup_does_not_stop_it(folder: Path) -> None:
    def ignoring() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = begun("-", *ARGS[1:], stdin=subprocess.PIPE, stderr=None, preexec_fn=ignoring)
    process.stdin.write(LOG.encode() + b"another line\n" * 20_000)
    process.send_signal(signal.SIGHUP)
    process.stdin.close()
    assert process.wait(60) == 0
    assert "out.json" in names(folder)


# ---- streams


def test_a_broken_pipe_is_no_error_to_tell() -> None:
    Path("miopen.log").write_text(
        "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -t 1\n" * 20_000
    )
    for args in (["prof.json", "-o", "-", "-q"], ["ops", "miopen.log", "-q"]):
        process = begun(*args, stdout=subprocess.PIPE)
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(60) == 1


def test_a_standard_error_that_is_full_or_broken_costs_the_report_only() -> None:
    with open("/dev/full", "wb") as full:
        subprocess.run([*PROGRAM, *ARGS[:-1]], stderr=full, env=ENVIRONMENT)
    assert json.loads(Path("out.json").read_bytes())["traceEvents"]
    Path("out.json").unlink()
    process = begun(*ARGS[:-1])
    process.stderr.close()
    process.wait(60)
    assert json.loads(Path("out.json").read_bytes())["traceEvents"]


def test_closed_standard_streams_do_no_harm(whole: bytes) -> None:
    """As under a daemon; a closed input that is asked for is one line."""
    assert shell(f"{sys.executable} -m mio2trace {' '.join(ARGS)} <&- >&- 2>&-").returncode == 0
    assert Path("out.json").read_bytes() == whole
    closed = shell(f"{sys.executable} -m mio2trace - -o out2.json <&-")
    assert (closed.returncode, closed.stderr.count(b"\n")) == (1, 1)
    assert b"standard input" in closed.stderr


# ---- the environment


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        | {"HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "1", "LINES": "0"},
        {"LC_ALL": "no_SUCH.locale", "TZ": "No/Where", "COLUMNS": "many"},
        {"PYTHONIOENCODING": "ascii"},
    ],
    ids=["nothing at all", "C locale, no home, dumb terminal", "unknown locale, no time zone", "ASCII"],
)
def test_no_home_no_locale_no_terminal_change_nothing(whole: bytes, environment: dict[str, str]) -> None:
    """Neither the trace nor what is printed; names that are not ASCII are files like others."""
    Path("prüf.json").write_bytes(Path("prof.json").read_bytes())
    own = {"PYTHONPATH": str(ROOT / "timeline"), "PATH": "/usr/bin:/bin", **environment}
    args = ["run.log", "prüf.json", "-o", "süd.json"]
    result = subprocess.run(
        [*PROGRAM, *args], env=own, capture_output=True, stdin=subprocess.DEVNULL, start_new_session=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert Path("süd.json").read_bytes() == whole
    assert len(result.stderr.splitlines()) <= 24


def test_few_file_descriptors_and_no_further_process_are_enough(whole: bytes) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

    result = run(*ARGS, preexec_fn=limit)
    if result.returncode:  # who is not root has no thread then
        assert result.stderr.count(b"\n") == 1
        assert names() == INPUTS
    else:
        assert Path("out.json").read_bytes() == whole


ROOMS = [size << 18 for size in ((7, 32, 44, 48, 96) if "thorough" in REQUIRED else (32, 48))]
"""Bytes."""


def test_too_little_memory_is_one_line() -> None:
    """Where it runs out is the system's choice; a limit below what Python itself needs is not ours to tell."""
    script = (
        "import resource, sys; from mio2trace import cli, conversion, draw, align\n"
        "import mio2trace.writers, mio2trace.readers\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv.pop(1)), -1)); cli.main()"
    )
    Path("big.json").write_bytes(as_json(CALLS * 8, indent=None))
    failed = 0
    for room in ROOMS:
        command = [sys.executable, "-c", script, str(room), "big.json", "run.log", "-o", "out.json", "-q"]
        result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=120)
        if result.returncode:
            failed += 1
            assert (result.returncode, result.stderr.count(b"\n")) == (1, 1), result.stderr
            assert not Path("out.json").exists()
        assert not [name for name in names() if name.endswith(".tmp")]
        Path("out.json").unlink(missing_ok=True)
    assert failed


@pytest.mark.parametrize(
    "place", ["files._read", "analysis.gather", "analysis.join", "conversion.build", "conversion._write"]
)
def test_an_error_needs_no_memory_on_its_way_out(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To enter the end of a ``with`` or ``finally``, CPython makes a number of the place in the function. Numbers to
    256 exist; without memory for a larger one it tries again for ever. So in functions through which an error of
    memory goes such blocks are short."""

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(f"mio2trace.{place}", no_memory)
    with pytest.raises(MemoryError) as error:
        convert("run.log", "prof.json", output="out.json")
    way: TracebackType | None = error.tb
    while way is not None:
        code, at = way.tb_frame.f_code, way.tb_lasti
        entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
        blocks = [one for one in entries if one.lasti and one.start <= at < one.end]
        assert not blocks or at // 2 <= 256, code.co_qualname
        way = way.tb_next


def test_a_long_call_asks_for_no_more_memory_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's source may have 100 MB; the limit may be 1 GB. Many small calls take more than their text."""
    asked: list[int] = []
    monkeypatch.setattr("mio2trace.readers.pieces.ensure_free", asked.append)
    small, long = b'{"a":1},' * 1000, b'{"a":"' + b"x" * 40_000_000 + b'"},{"a":1},'
    between = re.compile(rb"\},(?=\{)")
    made = [len(next(pieces(b"", iter([text + b'{"a":1}']), between, 10, 1 << 30))[0]) for text in (small, long)]
    assert asked[0] == 16 * made[0]
    assert asked[1] < 2.5 * made[1]


def test_an_error_of_memory_leaves_a_command_without_its_frames() -> None:
    """They hold all that was read; the message, and click, need some memory."""
    held = []

    def command() -> None:
        read = {1, 2}
        held.append(weakref.ref(read))
        raise MemoryError

    with pytest.raises(MemoryError):
        _without_frames(command)()
    assert held[0]() is None


def test_more_memory_than_is_free_is_one_line(tmp_path: Path) -> None:
    """The program ends before the system kills it. Its limit is the memory that is free at the start, and at least
    `machine.LEAST`."""
    meminfo, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    meminfo.write_text("MemTotal:  64000000 kB\nMemAvailable:   9000000 kB\n")
    (group / "memory.max").write_text("3000000000\n")
    (group / "memory.current").write_text("1000000000\n")
    script = (
        "import resource, sys; from mio2trace import machine\n"
        "def limit(): return resource.getrlimit(resource.RLIMIT_DATA)[0]\n"
        "before = limit()\n"
        "with machine.bound_to_free(*sys.argv[1:3]) as bound, machine.bound_to_free() as again:\n"
        "    print(bound, limit(), again)\n"
        "    try:\n        bytearray(int(sys.argv[3]))\n    except MemoryError:\n        print('no')\n"
        "assert limit() == before\n"
    )

    def told(*places: Path, room: int) -> list[str]:
        command = [sys.executable, "-c", script, *map(str, places), str(room)]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60).stdout.split()

    assert told(meminfo, tmp_path, room=1) == ["9216000000", "9216000000", "None"]
    assert told(meminfo, group, room=3 << 30) == ["2000000000", "2000000000", "None", "no"]
    meminfo.write_text("MemAvailable:   1000 kB\n")
    assert told(meminfo, group, room=3 << 30) == [str(1 << 30), str(1 << 30), "None", "no"]
    assert told(tmp_path / "none", group, room=1)[0] == "None"


# ---- others at the same place


def test_a_file_that_grows_while_it_is_read_is_read_up_to_its_size_at_the_start() -> None:
    """Else a program that writes faster than we read would never let us end. What is cut off is noted."""
    stop = threading.Event()
    with open("growing.log", "w") as first:
        first.write(LOG + "another program's line\n" * 50_000)

    def write() -> None:
        with open("growing.log", "a") as file:
            while not stop.is_set():
                file.write("another program's line\n" * 10_000)
                file.flush()
                stop.wait(0.01)  # still faster than we read

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = run("growing.log", "prof.json", "-o", "out.json")
    finally:
        stop.set()
        writer.join()
    assert result.returncode == 0
    assert b"problem: file changed its size while it was read (growing.log: read " in result.stderr
    assert json.loads(Path("out.json").read_bytes())["metadata"]["attribution"]["kernels"]


def test_a_file_that_shrinks_while_it_is_read_is_read_as_far_as_it_goes(folder: Path) -> None:
    from mio2trace.notes import Notes
    from mio2trace.source import Source

    notes = Notes()
    path = folder / "shrinking"
    path.write_bytes(b"line\n" * 400_000)
    source = Source(str(path), 0, notes)
    os.truncate(path, 1_000_000)
    assert len(source.read()) == 1_000_000
    source.close()
    assert [note.kind for note in notes] == ["file changed its size while it was read"]


def test_two_conversions_in_one_folder_do_not_disturb_each_other(whole: bytes) -> None:
    """Of the same files to the same name, which is there already, and to another; nobody ever sees half of a file."""
    seen: list[bytes] = []
    Path("out.json").write_bytes(whole)
    processes = [begun(*ARGS[:3], name, "-q", stderr=None) for name in ("out.json", "out.json", "b.json")]
    while any(process.poll() is None for process in processes):
        seen.append(Path("out.json").read_bytes())
        time.sleep(0.03)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert Path("out.json").read_bytes() == Path("b.json").read_bytes() == whole
    assert names() == ["b.json", "out.json", *INPUTS]
    assert set(seen) <= {whole}
