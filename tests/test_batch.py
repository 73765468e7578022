"""Many runs: one dataset, resumed, sharded, on workers that die; what a bad run does, it does to itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import mio2trace
from mio2trace.batch import engines, running
from mio2trace.batch.finding import find_runs
from mio2trace.batch.forking import Limits
from mio2trace.batch.journal import Entry, Journal, read_journals
from mio2trace.batch.running import Batch, BatchOptions, run_batch
from mio2trace.cli import cli
from mio2trace.dataset import FOLDERS, write_run
from mio2trace.notes import InputError, Notes
from tests.batch_work import DANGERS, content, made_up, poison
from tests.conftest import ROOT

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
    return CliRunner().invoke(cli, ["batch", *paths, "-o", output, *options])


def led(runs: Path, dataset: Path, engine: Any = engines.here, **options: Any) -> Batch:
    return run_batch(find_runs([str(runs)], Notes()), str(dataset), engine, BatchOptions(**options))


def test_each_runs_tables_are_those_of_the_single_command(
    runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    for folder in sorted(runs.iterdir()):
        analysis = mio2trace.analyse([folder / "prof.json", folder / "run.log"])
        write_run(analysis.run, tmp_path, f"runs/{folder.name}", analysis.notes)
    alone = content(tmp_path)
    assert {name: rows for name, rows in whole.items() if name != "journal"} == {
        name: rows for name, rows in alone.items() if name != "journal"
    }
    assert sum(len(rows) > 1 for rows in whole.values()) > 20
    kernels = {name: len(rows) - 1 for name, rows in whole.items() if name.startswith("kernels/")}
    assert kernels["kernels/runs%2F0004.parquet"] == 120


def test_what_is_done_is_left_alone_until_its_files_change(
    runs: Path, whole: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    dataset = tmp_path / "ds"
    first = batch(tmp_path / "runs", dataset)
    assert "6 runs: 6 converted, 0 failed, " in first.stderr
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
    monkeypatch.setattr("mio2trace.__version__", "99")
    assert "nothing to do" not in batch(tmp_path / "runs", dataset).stderr
    assert "nothing to do" not in batch(tmp_path / "runs", dataset, "--tags=x").stderr


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


def test_a_bad_run_is_a_line_and_with_strict_the_exit_code(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "0000", tmp_path / "runs" / "0000")
    shutil.copytree(runs / "0001", tmp_path / "runs" / "bad")
    dataset = tmp_path / "ds"
    assert batch(tmp_path / "runs", dataset, "--strict").exit_code == 0
    assert len(list(dataset.glob("*/runs%2Fbad.parquet"))) == len(FOLDERS)
    (tmp_path / "runs" / "bad" / "prof.json").write_text('[{"call": 12}]')
    (tmp_path / "runs" / "bad" / "run.log").unlink()
    first = batch(tmp_path / "runs", dataset)
    assert first.exit_code == 0
    lines = first.stderr.splitlines()
    assert lines[0].startswith("2 runs: 1 converted, 1 failed, 1 of them before, ")
    assert lines[1].startswith("  runs/bad: prof.json: ")
    assert [path.parent.name for path in dataset.glob("*/runs%2Fbad.parquet")] == ["runs"], "files that are no more"
    again = batch(tmp_path / "runs", dataset, "--strict")
    assert again.exit_code == 1
    assert "nothing to do; --retry does those that failed again" in again.stderr
    assert "1 of them before" in batch(tmp_path / "runs", dataset, "--retry").stderr


def test_a_run_that_failed_is_a_row_and_the_others_are_read_on(runs: Path, tmp_path: Path) -> None:
    """In Parquet, in SQL, on the page; of the dataset as an input it is a note, by its own file one line."""
    import duckdb

    shutil.copytree(runs / "0000", tmp_path / "runs" / "good")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "prof.json").write_text('[{"call": 12}]')
    dataset = tmp_path / "ds"
    batch(tmp_path / "runs", dataset)
    (entry,) = (entry for entry in read_journals(dataset).values() if entry.error)
    with duckdb.connect() as database:
        files = database.execute("select run, state, error from read_parquet(?) order by run", [f"{dataset}/runs/*"])
        assert files.fetchall() == [("runs/bad", "failed", entry.error), ("runs/good", "converted", None)]
    asked = CliRunner().invoke(cli, ["query", str(dataset), "failures", "--format", "json"])
    assert [(row["run"], row["error"]) for row in json.loads(asked.stdout)] == [("runs/bad", entry.error)]
    page = CliRunner().invoke(cli, ["report", str(dataset), "-o", str(tmp_path / "fleet.html")])
    assert page.exit_code == 0, page.output
    assert "1 run failed" in (tmp_path / "fleet.html").read_text()
    kernels = CliRunner().invoke(cli, ["kernels", str(dataset)])
    assert kernels.exit_code == 0
    assert "that failed" in kernels.stderr
    alone = CliRunner().invoke(cli, ["kernels", str(dataset / "runs" / "runs%2Fbad.parquet")])
    assert (alone.exit_code, "a run that failed" in alone.stderr, alone.stderr.count("\n")) == (1, True, 1)


def test_a_run_is_done_again_where_a_table_is_gone_or_another_program_made_it(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its version is called: what tables look like decides, too."""
    shutil.copytree(runs / "0000", tmp_path / "runs" / "a")
    shutil.copytree(runs / "0001", tmp_path / "runs" / "b")
    dataset = tmp_path / "ds"
    batch(tmp_path / "runs", dataset)
    before = content(dataset)
    (dataset / "layers" / "runs%2Fa.parquet").unlink()
    assert "1 of them before, " in batch(tmp_path / "runs", dataset).stderr
    assert content(dataset) == before
    assert "nothing to do" in batch(tmp_path / "runs", dataset).stderr
    monkeypatch.setattr("mio2trace.batch.work.layout", lambda tables_only: "another")
    assert "before" not in batch(tmp_path / "runs", dataset).stderr
    assert content(dataset) == before


def test_what_could_not_be_written_is_no_fault_of_the_run(runs: Path, tmp_path: Path) -> None:
    """It is done again as soon as there is a place for it, without being asked for."""
    shutil.copytree(runs / "0000", tmp_path / "runs" / "a")
    dataset = tmp_path / "ds"
    dataset.mkdir()
    (dataset / "kernels").write_text("in the way")
    assert "1 failed" in batch(tmp_path / "runs", dataset).stderr
    (dataset / "kernels").unlink()
    assert "1 run: 1 converted, 0 failed, " in batch(tmp_path / "runs", dataset).stderr


def test_what_holds_nothing_fails_as_it_does_alone(tmp_path: Path) -> None:
    """A profile cut off in its first call: no trace of it, no tables, no run."""
    (tmp_path / "runs").mkdir()
    profile = tmp_path / "runs" / "prof.json"
    profile.write_text('[{"call": "clFinish"')
    lines = [
        CliRunner().invoke(cli, [str(profile), "-o", str(tmp_path / name)]).stderr for name in ("a.json", "a.parquet")
    ]
    assert lines[0] == lines[1] != ""
    batch(tmp_path / "runs", tmp_path / "ds")
    (entry,) = read_journals(tmp_path / "ds").values()
    assert f"mio2trace: {entry.error}\n" == lines[0]


def test_the_last_lines_stay_short_and_say_where_the_rest_is(tmp_path: Path) -> None:
    """Twelve that failed: ten are shown, in one line each; of one that is long its beginning."""
    for number in range(12):
        (tmp_path / "runs" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "runs" / f"{number:02}" / "prof.json").write_text(f'{{"traceEvents": {number}')
    lines = batch(tmp_path / "runs", tmp_path / "ds").stderr.splitlines()
    assert len(lines) == 12
    assert max(map(len, lines)) <= 165
    assert lines[-1] == f"  and 2 more; {tmp_path}/ds/_runs.jsonl has all"
    assert all(len(entry.error or "") > 200 for entry in read_journals(tmp_path / "ds").values())


def test_shards_join(runs: Path, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    """Each has a part and a journal of its own, together they are the dataset; arrays that count from 1 have N of N."""
    parts = [batch(runs, tmp_path, f"--shard={number}/3") for number in (1, 2, 3)]
    assert [part.exit_code for part in parts] == [0, 0, 0]
    assert sum(int(part.stderr.split()[0]) for part in parts) == 6
    assert sorted(path.name for path in tmp_path.glob("_runs*")) == [f"_runs.{n}-of-3.jsonl" for n in range(3)]
    assert content(tmp_path) == whole
    assert "6 of them" not in batch(runs, tmp_path).stderr
    assert batch(runs, tmp_path).stderr.endswith("all of them before: nothing to do\n")
    assert batch(runs, tmp_path, "--shard=4/3").exit_code == 2


def test_a_shard_without_runs_has_nothing_to_do(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "0000", tmp_path / "runs" / "0000")
    said = [batch(tmp_path / "runs", tmp_path / "ds", f"--shard={number}/2") for number in (0, 1)]
    assert sorted(one.stderr.split(":")[0] for one in said) == ["0 runs", "1 run"]
    assert [one.exit_code for one in said] == [0, 0]


def test_a_line_that_was_cut_off_is_none_and_the_next_one_whole(tmp_path: Path) -> None:
    entry = Entry(run="a", state="converted", inputs=("1",), version="1", seconds=1, ended=1)
    journal = Journal(tmp_path)
    journal.add(entry)
    with pytest.raises(InputError, match="another batch is writing to it"):
        Journal(tmp_path)
    journal.close()
    with open(tmp_path / "_runs.jsonl", "ab") as file:
        file.write(b'{"run":"b","state":"conv')
    journal = Journal(tmp_path)
    journal.add(Entry(run="c", state="failed", inputs=(), version="1", seconds=1, ended=2, error="why"))
    journal.close()
    assert list(read_journals(tmp_path)) == ["a", "c"]


def test_of_a_run_the_line_that_ended_last_counts_in_any_journal(tmp_path: Path) -> None:
    for shard, ended in (((0, 2), 5.0), ((1, 2), 9.0), (None, 7.0)):
        journal = Journal(tmp_path, shard)
        journal.add(Entry(run="a", state="converted", inputs=(), version=str(ended), seconds=1, ended=ended))
        journal.close()
    assert read_journals(tmp_path)["a"].version == "9.0"


def test_several_runs_in_one_archive_are_several_rows(tmp_path: Path) -> None:
    import zipfile

    made_up(tmp_path / "first")
    made_up(tmp_path / "second", iterations=2, kernels=3)
    (tmp_path / "runs").mkdir()
    with zipfile.ZipFile(tmp_path / "runs" / "two.zip", "w") as archive:
        for file in tmp_path.glob("*/*.*"):
            if file.parent.name != "runs":
                archive.write(file, file.relative_to(tmp_path))
    batch(tmp_path / "runs", tmp_path / "ds")
    (entry,) = read_journals(tmp_path / "ds").values()
    assert entry.rows == () or set(entry.rows) == {"runs/two/first", "runs/two/second"}
    assert entry.state == "converted", entry.error


# -- workers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Any:
    """Two processes of Dask."""
    pytest.importorskip("distributed")
    with engines.local_cluster(2) as engine:
        yield engine


class _Opened:
    """An engine that stays open."""

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine

    def __call__(self) -> _Opened:
        return self

    def __enter__(self) -> engines.Engine:
        return self._engine

    def __exit__(self, *_: object) -> None:
        return None


def test_workers_make_the_same_dataset(
    cluster: engines.Engine, runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    made = led(runs, tmp_path / "ds", _Opened(cluster))
    assert not made.failed
    assert content(tmp_path / "ds") == whole


def test_any_cluster_is_found_by_its_schedulers_file(
    cluster: engines.Engine, runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    """From another process, as in a job: the file is all that it has."""
    address = cluster.executor._client.scheduler.address  # type: ignore[attr-defined]
    (tmp_path / "s.json").write_text(json.dumps({"address": address}))
    command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(tmp_path / "ds")]
    done = subprocess.run(
        [*command, "--scheduler-file", str(tmp_path / "s.json")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "6 runs: 6 converted, 0 failed, " in done.stderr
    assert done.stderr.count("\n") == 1
    assert content(tmp_path / "ds") == whole


def _worker_pids(cluster: engines.Engine) -> set[int]:
    return set(cluster.executor._client.run(os.getpid).values())  # type: ignore[attr-defined]


def test_a_worker_that_is_killed_loses_no_run(cluster: engines.Engine, tmp_path: Path) -> None:
    """Its run is done again by another; runs that are dangerous themselves kill no worker."""
    folder = tmp_path / "runs"
    for number in range(40):
        (folder / f"{number:04}").mkdir(parents=True)
        (folder / f"{number:04}" / "prof.json").write_bytes(b"\0%d" % number)
    killed: list[int] = []
    ends = 0

    def told(entry: Entry) -> None:
        nonlocal ends
        ends += 1
        if ends in (5, 20):
            pids = _worker_pids(cluster) - set(killed)
            killed.append(min(pids))
            os.kill(killed[-1], signal.SIGKILL)

    found = find_runs([str(folder)], Notes())
    options = BatchOptions(function="tests.batch_work:slowly")
    made = run_batch(found, str(tmp_path / "ds"), _Opened(cluster), options, told=told)
    assert len(killed) == 2
    assert [entry.state for entry in made.done] == ["converted"] * 40
    assert len(list((tmp_path / "ds" / "made").iterdir())) == 40
    assert sorted(read_journals(tmp_path / "ds")) == [run.name for run in found]


def test_where_no_worker_is_left_others_are_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is so busy that Dask gives up to start them again."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(running, "LOST_S", 0.5)
    monkeypatch.setattr(running, "LOOK_S", 0.2)
    begun: list[Any] = []

    @contextlib.contextmanager
    def engine() -> Iterator[engines.Engine]:
        with engines.local_cluster(1) as opened:
            begun.append(opened.executor._client.cluster)  # type: ignore[attr-defined]
            yield opened

    def told(entry: Entry) -> None:
        if len(begun) == 1:
            (nanny,) = begun[0].workers.values()
            begun[0].sync(nanny.close)

    folder = tmp_path / "runs"
    for number in range(12):
        (folder / f"{number:04}").mkdir(parents=True)
        (folder / f"{number:04}" / "prof.json").write_bytes(b"\0%d" % number)
    found = find_runs([str(folder)], Notes())
    options = BatchOptions(function="tests.batch_work:slowly")
    made = run_batch(found, str(tmp_path / "ds"), engine, options, told=told)
    assert len(begun) == 2
    assert sorted(entry.run for entry in made.done if entry.state == "converted") == [run.name for run in found]


def test_dangerous_runs_kill_no_worker(cluster: engines.Engine, tmp_path: Path) -> None:
    for name in DANGERS:
        made_up(tmp_path / "runs" / name)
    made_up(tmp_path / "runs" / "good")
    before = _worker_pids(cluster)
    limits = Limits(seconds=2, memory=1_500_000_000)
    made = led(
        tmp_path / "runs", tmp_path / "ds", _Opened(cluster), limits=limits, function="tests.batch_work:dangerous"
    )
    assert {entry.run.removeprefix("runs/") for entry in made.failed} == set(DANGERS)
    assert all(entry.inputs for entry in made.failed), "what was told before the end is kept"
    assert _worker_pids(cluster) == before


def test_workers_that_do_not_start_are_one_line(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's own reason, not its traceback; the dataset is there for the next attempt."""
    distributed = pytest.importorskip("distributed")

    def refuse(**options: object) -> None:
        raise RuntimeError("Nanny failed to start.\nTraceback")

    monkeypatch.setattr(distributed, "LocalCluster", refuse)
    done = batch(runs, tmp_path / "ds", "--workers=3")
    assert (done.exit_code, done.stderr) == (1, "mio2trace: the 3 workers do not start: Nanny failed to start.\n")
    assert not list((tmp_path / "ds").glob(".*"))


def test_a_scheduler_that_is_lost_is_one_line(runs: Path, tmp_path: Path) -> None:
    """Of a cluster without workers: what was given to it never began."""
    dask = shutil.which("dask", path=str(Path(sys.executable).parent)) or pytest.skip("no dask command")
    where = tmp_path / "s.json"
    scheduler = subprocess.Popen(
        [dask, "scheduler", "--scheduler-file", str(where), "--port", "0", "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (where.exists() and where.stat().st_size):
            time.sleep(0.05)
        command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(tmp_path / "ds")]
        process = subprocess.Popen([*command, "--scheduler-file", str(where)], stderr=subprocess.PIPE, text=True)
        while time.monotonic() < until and not list((tmp_path / "ds").glob("_runs*")):
            time.sleep(0.05)
        time.sleep(3)  # it is connected, or finds nobody: that is one line, too
    finally:
        scheduler.kill()
        scheduler.wait()
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert said.count("\n") == 1, said
    assert "the cluster of Dask has gone" in said or "cannot reach the scheduler" in said


def test_workers_that_are_interrupted_as_they_start_say_nothing(runs: Path, tmp_path: Path) -> None:
    """As a terminal does it: all processes get the signal, this program's line is all there is."""
    pytest.importorskip("distributed")
    command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(tmp_path / "ds"), "--workers=2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None and not _spawned(process.pid):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "\nmio2trace: interrupted\n")


def _spawned(parent: int) -> bool:
    """Whether it has started a worker."""
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [pid for file in children for pid in file.read_text().split()]
    return any(b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)


def test_a_cluster_that_is_not_there_is_refused(runs: Path, tmp_path: Path) -> None:
    missing = batch(runs, tmp_path / "ds", f"--scheduler-file={tmp_path / 's.json'}")
    assert missing.exit_code == 1
    assert "no such file; expected what `dask scheduler --scheduler-file` wrote" in missing.stderr
    assert batch(runs, tmp_path / "ds", "--workers=2", "--scheduler-file=s.json").exit_code == 2
    too_small = batch(runs, tmp_path / "ds", "--memory-limit=100MB")
    assert (too_small.exit_code, "a run needs 300 MB at least" in too_small.stderr) == (2, True)


# -- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_at_random_and_resumed_the_dataset_is_the_uninterrupted_one(
    number: signal.Signals, runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    dataset = tmp_path / "ds"
    command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(dataset)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not _lines(dataset) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(random.Random().uniform(0, 0.2))
    process.send_signal(number)
    process.wait(20)
    assert batch(runs, dataset).exit_code == 0
    assert content(dataset) == whole
    assert not list(dataset.glob(".*")), "nothing half made is left"


def _lines(dataset: Path) -> int:
    journal = dataset / "_runs.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


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


def test_the_job_array_does_all_runs(
    slurm: dict[str, str], runs: Path, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    for number in range(2):
        task = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "2"}
        script = ["sh", str(ROOT / "examples" / "batch-array.sbatch"), str(runs), str(tmp_path / "ds")]
        subprocess.run(script, env={**slurm, **task}, check=True, capture_output=True, timeout=120)
    assert content(tmp_path / "ds") == whole


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
    assert not (tmp_path / "scheduler-7.json").exists()
