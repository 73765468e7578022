"""Many runs: one dataset, resumed, sharded, on workers that die; what a bad run does, it does to itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

import mio2trace
from mio2trace.batch import confined, work
from mio2trace.batch.confined import Confined, Ended, Limits
from mio2trace.batch.finding import FoundRun, find_runs
from mio2trace.batch.work import Batch, BatchOptions, Entry, Journal, read_journals, run_batch
from mio2trace.dataset import FOLDERS, write_run
from mio2trace.notes import InputError, Notes
from tests.batch_work import content, made_up, poison, worker_pids
from tests.commands import invoked, json_of, stderr_of
from tests.conftest import ROOT
from tests.kineto_files import FIRST_US, kineto_file, rows
from tests.often import present, saved
from tests.test_orphans import family, within
from tests.test_orphans import runs as is_running

pytest.importorskip("duckdb")
pytest.importorskip("nanoarrow")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six runs of 8 to 120 kernels."""
    folder = tmp_path_factory.mktemp("batch") / "runs"
    for number, (iterations, kernels) in enumerate(((1, 2), (2, 2), (1, 10), (4, 3), (2, 20), (3, 4))):
        made_up(folder / f"{number:04}", iterations=iterations, kernels=kernels)
    return folder


@pytest.fixture(scope="module")
def whole(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What is in a dataset of them."""
    dataset = tmp_path_factory.mktemp("whole") / "ds"
    assert batch(runs, dataset).exit_code == 0
    return content(dataset)


def batch(*arguments: object) -> Result:
    *paths, output = [str(one) for one in arguments if not str(one).startswith("-")]
    options = [str(one) for one in arguments if str(one).startswith("-")]
    return invoked("batch", *paths, "-o", output, *options)


def started(runs: Path, dataset: Path, *options: str, **more: Any) -> subprocess.Popen[str]:
    """The command in a process of its own, which leads a group as in a terminal."""
    command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(dataset), *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **more)


def led(runs: Path, dataset: Path, engine: Any = work.processes, **options: Any) -> Batch:
    return run_batch(find_runs([str(runs)], Notes()), str(dataset), engine, BatchOptions(**options))


def test_each_runs_tables_are_those_of_one_command(runs: Path, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    for folder in sorted(runs.iterdir()):
        analysis = mio2trace.analyse([folder / "prof.json", folder / "run.log"])
        write_run(analysis.run, tmp_path, f"runs/{folder.name}", analysis.notes)
    assert whole | {"journal": []} == content(tmp_path)
    assert sum(len(rows) > 1 for rows in whole.values()) > 20
    assert len(whole["kernels/runs%2F0004.parquet"]) == 1 + 120


@pytest.mark.thorough
def test_what_is_done_is_left_alone_until_its_files_tables_or_the_program_change(
    runs: Path, whole: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    dataset = tmp_path / "ds"
    assert "6 runs: 6 converted, 0 failed, " in batch(tmp_path / "runs", dataset).stderr
    assert content(dataset) == whole
    written = {path: path.stat().st_mtime_ns for path in dataset.glob("*/*")}
    again = batch(tmp_path / "runs", dataset)
    assert again.stderr == "6 runs: 6 converted, 0 failed, all of them before: nothing to do\n"
    assert {path: path.stat().st_mtime_ns for path in dataset.glob("*/*")} == written
    shutil.copy(runs / "0001" / "prof.json", tmp_path / "runs" / "0000" / "prof.json")
    shutil.copy(runs / "0001" / "run.log", tmp_path / "runs" / "0000" / "run.log")
    assert "6 converted, 0 failed, 5 of them before, " in batch(tmp_path / "runs", dataset).stderr
    rows = content(dataset)
    assert len(rows["kernels/runs%2F0000.parquet"]) == len(rows["kernels/runs%2F0001.parquet"])
    for folder in sorted((tmp_path / "runs").iterdir())[1:]:
        shutil.rmtree(folder)
    before = content(dataset)
    (dataset / "layers" / "runs%2F0000.parquet").unlink()
    for name, other in (
        ("mio2trace.__version__", "99"),
        ("mio2trace.batch.work.layout", lambda tables_only: "another"),
    ):
        assert "nothing to do" not in batch(tmp_path / "runs", dataset).stderr
        assert "nothing to do" in batch(tmp_path / "runs", dataset).stderr
        assert content(dataset) == before
        monkeypatch.setattr(name, other)
    assert "nothing to do" not in batch(tmp_path / "runs", dataset).stderr
    assert "nothing to do" not in batch(tmp_path / "runs", dataset, "--tags=x").stderr


@pytest.mark.thorough
def test_ten_poisoned_inputs_fail_alone(runs: Path, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    """A pipe without end, hangs, crashes, 4 GB of holes, garbage: a line of the journal each, the rest is whole."""
    shutil.copytree(runs, tmp_path / "runs")
    names = poison(tmp_path / "runs")
    assert len(names) == 10
    endless = os.open(tmp_path / "runs" / "pipe" / "prof.json", os.O_RDWR)  # somebody writes, and never ends
    os.write(endless, b'[{"call": "clFinish"},')
    try:
        limits = Limits(seconds=3, memory=1_500_000_000)
        made = led(tmp_path / "runs", tmp_path / "ds", limits=limits, function="tests.batch_work:dangerous")
    finally:
        os.close(endless)
    failed = {entry.run.removeprefix("runs/"): entry for entry in made.failed}
    assert set(failed) == set(names)
    said = {name: entry.error or "" for name, entry in failed.items()}
    assert said["crash"].startswith("the program crashed (SIGSEGV")
    assert said["pipe"] == said["hang"] == "not done after 3 s (--timeout)"
    assert "empty; expected" in said["empty"]
    assert [name for name, text in said.items() if "\n" in text or "fault of the program" in text] == ["fault"]
    rows = content(tmp_path / "ds")
    rows["journal"] = [line for line in rows["journal"] if line[0].removeprefix("runs/") not in names]
    told = {name: rows.pop(f"runs/runs%2F{name}.parquet") for name in names}
    assert rows == whole
    assert {name: dict(zip(columns, row, strict=True))["error"] for name, (columns, row) in told.items()} == said
    assert str(tmp_path) not in (tmp_path / "ds" / "_runs.jsonl").read_text()


def test_a_bad_run_is_a_line_and_with_strict_the_exit_code(warm: None, runs: Path, tmp_path: Path) -> None:
    """The failed run is a row in Parquet, in SQL and on the page. The other runs are read. If the dataset is an input,
    the failed run is a note; its own file alone is refused in one line."""
    shutil.copytree(runs / "0000", tmp_path / "runs" / "good")
    shutil.copytree(runs / "0001", tmp_path / "runs" / "bad")
    dataset = tmp_path / "ds"
    assert batch(tmp_path / "runs", dataset, "--strict").exit_code == 0
    assert len(list(dataset.glob("*/runs%2Fbad.parquet"))) == len(FOLDERS)
    (tmp_path / "runs" / "bad" / "prof.json").write_text('[{"call": 12}]')
    (tmp_path / "runs" / "bad" / "run.log").unlink()
    said = stderr_of(batch(tmp_path / "runs", dataset), 0)
    lines = said.splitlines()
    assert lines[0].startswith("2 runs: 1 converted, 1 failed, 1 of them before, ")
    assert lines[1].startswith("  runs/bad: prof.json: ")
    assert [path.parent.name for path in dataset.glob("*/runs%2Fbad.parquet")] == ["runs"], "files that are no more"
    (entry,) = (entry for entry in read_journals(dataset).values() if entry.error)
    columns, *states = content(dataset)["runs/runs%2Fbad.parquet"]
    (state,) = (dict(zip(columns, row, strict=True)) for row in states)
    assert (state["run"], state["state"], state["error"]) == ("runs/bad", "failed", entry.error)

    failures = json_of("query", dataset, "failures")
    assert [(row["run"], row["error"]) for row in failures] == [("runs/bad", entry.error)]
    assert "1 run failed" in invoked("report", dataset, "--format", "html").stdout
    assert "that failed" in stderr_of(invoked("kernels", dataset), 0)
    alone = invoked("kernels", dataset / "runs" / "runs%2Fbad.parquet")
    assert (alone.exit_code, "a run that failed" in alone.stderr, alone.stderr.count("\n")) == (1, True, 1)
    again = batch(tmp_path / "runs", dataset, "--strict")
    assert (again.exit_code, "nothing to do; --retry does those that failed again" in again.stderr) == (1, True)
    assert "1 of them before" in batch(tmp_path / "runs", dataset, "--retry").stderr


def test_what_could_not_be_written_is_no_fault_of_the_run(warm: None, runs: Path, tmp_path: Path) -> None:
    """It is done again as soon as there is a place for it, without being asked for."""
    shutil.copytree(runs / "0000", tmp_path / "runs" / "a")
    dataset = tmp_path / "ds"
    dataset.mkdir()
    (dataset / "kernels").write_text("in the way")
    assert "1 failed" in batch(tmp_path / "runs", dataset).stderr
    (dataset / "kernels").unlink()
    assert "1 run: 1 converted, 0 failed, " in batch(tmp_path / "runs", dataset).stderr


def test_what_holds_nothing_fails_as_it_does_alone(warm: None, tmp_path: Path) -> None:
    """A profile cut off in its first call: no trace of it, no tables, no run."""
    (tmp_path / "runs").mkdir()
    profile = saved(tmp_path / "runs" / "prof.json", '[{"call": "clFinish"')
    lines = [invoked(profile, "-o", tmp_path / name).stderr for name in ("a.json", "a.parquet")]
    assert lines[0] == lines[1] != ""
    batch(tmp_path / "runs", tmp_path / "ds")
    (entry,) = read_journals(tmp_path / "ds").values()
    assert f"mio2trace: {entry.error}\n" == lines[0]


def test_the_last_lines_stay_short_and_say_where_the_rest_is(warm: None, tmp_path: Path) -> None:
    """Twelve that failed: ten are shown, in one line each; of one that is long its beginning."""
    for number in range(12):
        (tmp_path / "runs" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "runs" / f"{number:02}" / "prof.json").write_text(f'{{"traceEvents": {number}')
    lines = batch(tmp_path / "runs", tmp_path / "ds").stderr.splitlines()
    assert len(lines) == 12
    assert max(map(len, lines)) <= 165
    assert lines[-1] == f"  and 2 more; {tmp_path}/ds/_runs.jsonl has all"
    assert all(len(entry.error or "") > 200 for entry in read_journals(tmp_path / "ds").values())


@pytest.mark.thorough
def test_shards_join(warm: None, runs: Path, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    """Each has a part, which may be none, and a journal of its own; arrays that count from 1 have N of N."""
    parts = [batch(runs, tmp_path, f"--shard={number}/9") for number in range(1, 10)]
    assert {part.exit_code for part in parts} == {0}
    assert sum(int(part.stderr.split()[0]) for part in parts) == 6
    assert {path.name for path in tmp_path.glob("_runs*")} == {f"_runs.{n}-of-9.jsonl" for n in range(9)}
    assert content(tmp_path) == whole
    assert "6 of them" not in batch(runs, tmp_path).stderr
    assert batch(runs, tmp_path).stderr.endswith("all of them before: nothing to do\n")
    assert batch(runs, tmp_path, "--shard=10/9").exit_code == 2


def ended(run: str, at: float = 1) -> Entry:
    return Entry(run=run, state="converted", inputs=("1",), version=str(at), seconds=1, ended=at)


def test_a_line_that_was_cut_off_is_none_and_the_next_one_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add(ended("a"))
    with pytest.raises(InputError, match="another batch is writing to it"):
        Journal(tmp_path)
    journal.close()
    with open(tmp_path / "_runs.jsonl", "ab") as file:
        file.write(b'{"run":"b","state":"conv')
    journal = Journal(tmp_path)
    journal.add(ended("c"))
    journal.close()
    assert list(read_journals(tmp_path)) == ["a", "c"]


def test_of_a_run_the_line_that_ended_last_counts_in_any_journal(tmp_path: Path) -> None:
    for shard, at in (((0, 2), 5.0), ((1, 2), 9.0), (None, 7.0)):
        journal = Journal(tmp_path, shard)
        journal.add(ended("a", at))
        journal.close()
    assert read_journals(tmp_path)["a"].version == "9.0"


def test_several_runs_in_one_archive_are_several_rows(warm: None, tmp_path: Path) -> None:
    made_up(tmp_path / "two" / "first")
    made_up(tmp_path / "two" / "second", iterations=2, kernels=3)
    shutil.make_archive(str(tmp_path / "runs" / "two"), "zip", tmp_path / "two")
    batch(tmp_path / "runs", tmp_path / "ds")
    (entry,) = read_journals(tmp_path / "ds").values()
    assert entry.rows == () or set(entry.rows) == {"runs/two/first", "runs/two/second"}
    assert entry.state == "converted", entry.error


def test_copies_of_a_run_are_noted(warm: None, tmp_path: Path) -> None:
    """Each is counted, also the next time; of files that differ nothing is said."""
    made_up(tmp_path / "runs" / "a")
    shutil.copytree(tmp_path / "runs" / "a", tmp_path / "runs" / "b (copy)")
    made_up(tmp_path / "runs" / "c", iterations=2, kernels=3)
    for _ in range(2):
        done = batch(tmp_path / "runs", tmp_path / "ds")
        assert (
            "note: run of the same files as another one: each is counted in the dataset (runs/b (copy))" in done.stderr
        )
        assert "3 runs: 3 converted" in done.stderr
    assert "copy" not in batch(tmp_path / "runs" / "c", tmp_path / "ds2").stderr


def test_several_profiles_of_one_name_are_several_rows(warm: None, tmp_path: Path) -> None:
    """PyTorch's schedule writes a file per cycle, ``worker0.TIME.pt.trace.json``: none of them is left out."""
    folder = tmp_path / "runs" / "tb"
    folder.mkdir(parents=True)
    for cycle in range(2):
        name = f"worker0.170000000000{cycle}.pt.trace.json"
        kineto_file(folder, rows(FIRST_US + cycle * 60_000_000), name)
    batch(tmp_path / "runs", tmp_path / "ds")
    (entry,) = read_journals(tmp_path / "ds").values()
    assert entry.state == "converted", entry.error
    assert len(entry.rows) == 2
    assert entry.kernels == 2 * sum(one["cat"] == "kernel" for one in rows())


# -- workers of this machine ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers() -> Iterator[Callable[[], contextlib.nullcontext[work.Engine]]]:
    """Two processes, which stay, and no other that is warm."""
    confined.close_that_of_this_thread()
    with work.processes(2) as engine:
        yield lambda: contextlib.nullcontext(engine)


def many(folder: Path, count: int) -> list[FoundRun]:
    for number in range(count):
        (folder / f"{number:04}").mkdir(parents=True)
        (folder / f"{number:04}" / "prof.json").write_bytes(b"\0%d" % number)
    return find_runs([str(folder)], Notes())


@pytest.mark.thorough
def test_a_worker_that_is_killed_loses_no_run(workers: Any, tmp_path: Path) -> None:
    killed: set[int] = set()
    ends = 0

    def told(entry: Entry) -> None:
        nonlocal ends
        ends += 1
        if ends in (5, 20):
            pid = min(worker_pids() - killed)
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)

    found = many(tmp_path / "runs", 40)
    options = BatchOptions(function="tests.batch_work:slowly")
    made = run_batch(found, str(tmp_path / "ds"), workers, options, told=told)
    assert len(killed) == 2
    assert [entry.state for entry in made.done] == ["converted"] * 40
    assert len(list((tmp_path / "ds" / "made").iterdir())) == 40
    assert sorted(read_journals(tmp_path / "ds")) == [run.name for run in found]


@pytest.mark.thorough
def test_a_run_whose_workers_are_killed_each_time_fails_alone(workers: Any, tmp_path: Path) -> None:
    many(tmp_path / "runs", 6)
    made_up(tmp_path / "runs" / "kills-its-worker")
    made = led(tmp_path / "runs", tmp_path / "ds", workers, function="tests.batch_work:deadly")
    assert [(entry.run, entry.error) for entry in made.failed] == [
        ("runs/kills-its-worker", "the program was killed: the system's memory may be full")
    ]
    assert len(made.done) == 7


def test_workers_that_do_not_start_are_said_for_each_run(
    runs: Path, whole: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    done = batch(runs, tmp_path / "ds", "--workers=3")
    assert "6 runs: 0 converted, 6 failed" in done.stderr
    assert "runs/0000: no process can be started for it: Resource temporarily unavailable" in done.stderr
    monkeypatch.undo()
    assert "6 runs: 6 converted, 0 failed, " in batch(runs, tmp_path / "ds", "--workers=2").stderr
    assert content(tmp_path / "ds") == whole


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_program(number: signal.Signals, tmp_path: Path) -> None:
    """As a terminal does it: all of the group get the signal, this program's line is all there is."""
    for name in map(str, range(12)):  # enough that a busy machine sees them at work
        made_up(tmp_path / "runs" / name, iterations=60, kernels=40)
    process = started(tmp_path / "runs", tmp_path / "ds", "--workers=2")
    assert within(60, lambda: len(family(process.pid)) > 4 or process.poll() is not None)  # two workers, a run of each
    pids = family(process.pid) - {process.pid}
    assert len(pids) >= 4
    os.killpg(process.pid, number)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == {
        signal.SIGINT: (130, "\nmio2trace: interrupted\n"),
        signal.SIGTERM: (143, ""),
        signal.SIGKILL: (-9, ""),
    }[number]
    assert within(60, lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


# -- no ports ---------------------------------------------------------------------------------------------------------


def findable_sockets(pids: set[int]) -> tuple[list[str], int]:
    """(the sockets of these processes that another process can find, how many they have in all), of the system's lists.

    Of the internet every one counts; of Unix those that listen or have a name.
    """
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                if (target := os.readlink(link)).startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
            found += [f"{kind} {row[1]}" for row in rows if row[9] in inodes]
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, inode, *name = line.split(maxsplit=7)
        if inode in inodes and (name or int(flags, 16) & 1 << 16):  # __SO_ACCEPTCON
            found.append(f"unix {' '.join(name)}")
    return found, len(inodes)


@pytest.mark.thorough
def test_nothing_listens_while_workers_run(tmp_path: Path) -> None:
    """No socket of the program and of all that it starts can be found by another: neither by a port nor by a name."""
    for number in range(8):
        made_up(tmp_path / "runs" / f"{number}", iterations=10, kernels=20)
    stream, packets, here = socket.SOCK_STREAM, socket.SOCK_DGRAM, ("127.0.0.1", 0)
    tcp, udp, listening = (socket.AF_INET, stream, here), (socket.AF_INET, packets, here), (socket.AF_UNIX, stream, "")
    for family_of, form, place in (tcp, udp, listening, (socket.AF_UNIX, stream, str(tmp_path / "s"))):
        with socket.socket(family_of, form) as one:
            one.bind(place)
            if form == stream:
                one.listen()
            assert findable_sockets({os.getpid()})[0]
    with started(tmp_path / "runs", tmp_path / "ds", "--workers=2") as process:
        looks = most = 0
        while process.poll() is None:
            pids = family(process.pid)
            found, sockets = findable_sockets(pids)
            assert not found
            looks, most = looks + (len(pids) >= 5), max(most, sockets)
            time.sleep(0.01)
        assert "8 runs: 8 converted, 0 failed, " in present(process.stderr).read()
    assert looks > 3, "two workers with a run of each"
    assert most >= 4, "the pairs that lead the two"


# -- a cluster --------------------------------------------------------------------------------------------------------

STRANGERS = """
import json, sys
from distributed import Client
from distributed.security import Security

def touch(path):
    open(path, "w").close()

for address, place, *certificate in json.loads(sys.argv[1]):
    keys = dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), certificate))
    try:
        with Client(address, timeout=5, security=Security(require_encryption=bool(keys), **keys)) as client:
            client.submit(touch, place).result(timeout=20)
        print(True)
    except Exception:
        print(False)
"""
"""Who wants to run code of its own, once for each address, file and certificate; whether it did."""


class Cluster(NamedTuple):
    """A scheduler and a worker as examples/batch.sbatch starts them, with the certificate in ``folder``."""

    folder: Path
    address: str
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]]

    @property
    def file(self) -> Path:
        return self.folder / "s.json"


def certificate(folder: Path) -> dict[str, str]:
    """Make one with the lines of examples/batch.sbatch; the environment that tells Dask of it."""
    shutil.which("openssl") or pytest.skip("no openssl command")
    lines = (ROOT / "examples" / "batch.sbatch").read_text().splitlines()
    script = lines[next(n for n, line in enumerate(lines) if line.startswith("openssl")) :]
    script = script[: next(n for n, line in enumerate(script) if line == "done") + 1]
    told = subprocess.run(
        ["sh", "-euc", "\n".join((*script, "env"))],
        env={**os.environ, "job": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(line.split("=", 1) for line in told.stdout.splitlines() if line.startswith("DASK_"))


@contextlib.contextmanager
def cluster_in(folder: Path, variables: dict[str, str], *options: str, workers: int = 1) -> Iterator[Cluster]:
    dask = shutil.which("dask", path=str(Path(sys.executable).parent)) or pytest.skip("no dask command")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    where = folder / "s.json"
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [dask, "scheduler", "--scheduler-file", str(where), "--port", "0", "--no-dashboard", *options]
    worker = [dask, "worker", "--scheduler-file", str(where), "--nthreads", "1", "--memory-limit", "0"]
    processes = [subprocess.Popen(scheduler, **quiet)]  # type: ignore[call-overload]
    try:
        assert within(60, lambda: where.exists() and where.stat().st_size > 0)
        processes += [subprocess.Popen([*worker, "--no-dashboard"], **quiet) for _ in range(workers)]  # type: ignore[call-overload]
        yield Cluster(folder, json.loads(where.read_text())["address"], environment, processes)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def on(cluster: Cluster, runs: Path, dataset: Path, **variables: str) -> tuple[int, str]:
    """The exit code and the last lines."""
    options = ("--scheduler-file", str(cluster.file))
    process = started(runs, dataset, *options, env={**cluster.environment, **variables})
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


@pytest.mark.thorough
def test_a_cluster_with_certificates_runs_no_strangers_code(runs: Path, tmp_path: Path) -> None:
    """A client without the certificate, and one with its own, runs nothing. Below, a job of several nodes does runs."""
    pytest.importorskip("distributed")
    own, others = tmp_path / "own", tmp_path / "others"
    own.mkdir()
    others.mkdir()
    variables = certificate(own)
    certificate(others)
    assert (own / "key.pem").stat().st_mode & 0o077 == 0
    bare = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def strangers(*attempts: tuple[str, str, *tuple[Path, ...]]) -> list[str]:
        told = [[address, str(tmp_path / name), *map(str, keys)] for name, address, *keys in attempts]
        call = [sys.executable, "-c", STRANGERS, json.dumps(told)]
        return subprocess.run(call, env=bare, capture_output=True, text=True, timeout=240).stdout.split()

    with cluster_in(own, variables, "--protocol", "tls") as cluster:
        assert cluster.address.startswith("tls://")
        port = json.loads(cluster.file.read_text())["services"]["dashboard"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/info/main/workers.html", timeout=20)
        plain = cluster.address.replace("tls://", "tcp://")
        keys = [folder / name for folder in (own, others) for name in ("cert.pem", "cert.pem", "key.pem")]
        assert strangers(
            ("of-the-owner", cluster.address, *keys[:3]),
            ("without", plain),
            ("unencrypted", cluster.address),
            ("with-its-own", cluster.address, *keys[3:]),
            ("with-the-certificate-alone", cluster.address, keys[0], keys[4], keys[5]),
        ) == ["True", "False", "False", "False", "False"]
        code, said = on(cluster, runs, tmp_path / "ds2", **dict.fromkeys(variables, ""))
        assert (code, "cannot reach the scheduler: " in said, said.count("\n")) == (1, True, 1), said
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["of-the-owner"]


@pytest.mark.thorough
def test_a_cluster_without_certificates_is_said_to_be_open_and_one_that_is_lost_is_one_line(
    runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    with cluster_in(tmp_path, {}) as cluster:
        code, said = on(cluster, runs, tmp_path / "ds")
        assert code == 0, said
        first, *_, last = said.splitlines()  # between them its progress, if it takes long
        assert first.startswith("problem: the cluster asks for no certificates: ")
        assert last.startswith("6 runs: 6 converted, 0 failed, ")
        assert content(tmp_path / "ds") == whole
    with cluster_in(tmp_path, {}, workers=0) as cluster:
        process = started(runs, tmp_path / "ds2", "--scheduler-file", str(cluster.file))
        within(60, lambda: bool(list((tmp_path / "ds2").glob("_runs*"))))
        time.sleep(3)  # it is connected, or finds nobody: that is one line, too
        cluster.processes[0].kill()
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert said.count("\n") == 2, said
    assert "the Dask cluster is gone" in said or "cannot reach the scheduler" in said


@pytest.mark.parametrize("text", ["", "[]", '{"address": 7}', '{"address": "\\ud800"}', "\udcff", "[" * 10_000])
def test_a_file_that_names_no_scheduler_is_one_line(text: str, runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "s.json").write_bytes(text.encode(errors="surrogateescape"))
    done = batch(runs, tmp_path / "ds", f"--scheduler-file={tmp_path / 's.json'}")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "holds no address; expected what `dask scheduler --scheduler-file` wrote" in done.stderr


def test_a_cluster_that_is_not_there_is_refused(runs: Path, tmp_path: Path) -> None:
    for options, code, said in (
        ([f"--scheduler-file={tmp_path / 's.json'}"], 1, "no such file; expected what `dask scheduler"),
        (["--workers=2", "--scheduler-file=s.json"], 2, ""),
        (["--memory-limit=100MB"], 2, "a run needs 300 MB at least"),
    ):
        assert said in stderr_of(batch(runs, tmp_path / "ds", *options), code)


# -- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_at_random_and_resumed_the_dataset_is_the_uninterrupted_one(
    number: signal.Signals, runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    dataset = tmp_path / "ds"
    process = started(runs, dataset)
    journal = dataset / "_runs.jsonl"
    within(30, lambda: process.poll() is not None or (journal.exists() and b"\n" in journal.read_bytes()))
    time.sleep(random.Random().uniform(0, 0.2))
    process.send_signal(number)
    process.communicate(timeout=20)
    assert batch(runs, dataset).exit_code == 0
    assert content(dataset) == whole
    assert not list(dataset.glob(".*")), "nothing half made is left"


# -- the scripts for Slurm -------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment of one node: ``srun`` runs what it is given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in (("srun", '"$@"'), ("mio2trace", f'"{sys.executable}" -m mio2trace "$@"')):
        (folder / name).write_text(f"#!/bin/sh\nexec {line}\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "WORKERS": "1", "SLURM_JOB_ID": "7"}


@pytest.mark.thorough
def test_job_arrays_do_all_runs(slurm: dict[str, str], runs: Path, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    for number in range(2):
        task = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "2"}
        script = ["sh", str(ROOT / "examples" / "batch-array.sbatch"), str(runs), str(tmp_path / "ds")]
        subprocess.run(script, env={**slurm, **task}, check=True, capture_output=True, timeout=120)
    assert content(tmp_path / "ds") == whole


@pytest.mark.thorough
def test_the_job_of_several_nodes_does_all_runs(
    slurm: dict[str, str], runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    """A scheduler and workers of Dask as the script starts them; none of them stays."""
    script = ["sh", str(ROOT / "examples" / "batch.sbatch"), str(runs), str(tmp_path / "ds")]
    with open(tmp_path / "log", "w+") as log:
        process = subprocess.Popen(script, env=slurm, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
        try:
            status = process.wait(150)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        log.seek(0)
        assert status == 0, log.read()
    assert content(tmp_path / "ds") == whole
    assert not list(tmp_path.glob("batch-*"))


# -- calls in processes of their own: what they do to them stays there -------------------------------------------------


HERE = "tests.batch_work"
MEMORY = Limits(memory=1_000_000_000)


@pytest.fixture(scope="module")
def alone() -> Iterator[Confined]:
    one = Confined((HERE,))
    yield one
    one.close()


def test_a_call_gives_its_value_and_what_it_told(alone: Confined) -> None:
    for limits in (Limits(), MEMORY):
        assert alone.call(f"{HERE}:double", 21, limits=limits) == Ended("done", 42, 21)


def test_each_call_has_a_process_of_its_own_and_the_warm_one_stays(alone: Confined) -> None:
    first, second = (alone.call(f"{HERE}:process").value for _ in range(2))
    assert len({first, second, os.getpid()}) == 3
    assert alone._process is not None
    warm = alone._process.pid
    alone.call(f"{HERE}:crash")
    assert alone._process.pid == warm


def test_what_a_call_started_ends_with_it(alone: Confined, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    assert alone.call(f"{HERE}:leave_a_child", str(place), limits=Limits(seconds=0.5)).how == "time"
    child = int(place.read_text())
    assert within(2, lambda: not is_running(child))


@pytest.mark.parametrize(
    ("function", "limits", "how", "said"),
    [
        ("crash", Limits(), "died", "the program crashed (SIGSEGV)"),
        (
            "crash",
            MEMORY,
            "died",
            "the program crashed (SIGSEGV: it may need more than 1 GB of memory (--memory-limit))",
        ),
        ("be_killed", Limits(), "died", "the program crashed (SIGKILL: the system's memory may be full)"),
        ("end_silently", Limits(), "died", "the program ended without a result"),
        ("fail", Limits(), "raised", "a fault of the program itself, please report it: ValueError (batch_work.py:"),
        ("eat", MEMORY, "memory", "needs more than 1 GB of memory (--memory-limit)"),
        ("wait_for_ever", Limits(seconds=0.3), "time", "not done after 0.3 s (--timeout)"),
        ("never_come_back_to_python", Limits(seconds=0.3), "time", "not done after 0.3 s (--timeout)"),
    ],
)
def test_how_a_call_ended_is_said_and_nothing_that_it_quotes(
    alone: Confined, function: str, limits: Limits, how: str, said: str
) -> None:
    ended = alone.call(f"{HERE}:{function}", limits=limits)
    assert ended.how == how
    assert ended.said.partition("py:")[0] == said.partition("py:")[0]
    assert "secret" not in ended.said


def test_a_process_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """Closing in the middle of a call ends the warm process and its child."""
    one = Confined((HERE,))
    one.call(f"{HERE}:double", 1)
    warm = present(one._process)
    place = tmp_path / "pid"
    caller = threading.Thread(target=one.call, args=(f"{HERE}:leave_a_child", str(place)), daemon=True)
    caller.start()
    assert within(5, lambda: place.exists() and bool(place.read_text()))
    with socket.socket(fileno=os.dup(present(one._connection).fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)
    assert warm.wait(10) == 0
    caller.join(10)
    assert not caller.is_alive()
