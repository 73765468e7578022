"""What runs of a batch may do to their process, and made-up runs on disk."""

from __future__ import annotations

import ctypes
import gzip
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mio2trace.batch.confined import Tell
from mio2trace.batch.work import Made, Work, analysed, hashes, read_journals
from tests.small_runs import as_json, benchmark


def made_up(folder: Path, *, iterations: int = 1, kernels: int = 2) -> Path:
    """A run of ``caffe time`` in a folder of its own; about ``2 * kernels * (iterations + 1)`` kernels."""
    folder.mkdir(parents=True)
    calls, log = benchmark(iterations=iterations, kernels=kernels)
    (folder / "prof.json").write_bytes(as_json(calls, None))
    (folder / "run.log").write_text(log)
    return folder


def double(number: int, *, tell: Tell) -> int:
    tell(number)
    return 2 * number


def process(*, tell: Tell) -> int:
    return os.getpid()


def wait_for_ever(*, tell: Tell) -> None:
    tell("begun")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def never_come_back_to_python(*, tell: Tell) -> None:
    sqlite3.connect(":memory:").execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    ).fetchall()


def leave_a_child(place: str, *, tell: Tell) -> None:
    child = os.fork()
    if child:
        Path(place).write_text(str(child))
    time.sleep(1000)


def stay(place: str, *, tell: Tell) -> None:
    Path(place).write_text(str(os.getpid()))
    time.sleep(1000)


def crash(*, tell: Tell) -> None:
    tell("begun")
    ctypes.string_at(0)


def end_silently(*, tell: Tell) -> None:
    os._exit(0)


def be_killed(*, tell: Tell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def eat(*, tell: Tell) -> int:
    return len(bytearray(3 << 30))


def fail(*, tell: Tell) -> None:
    raise ValueError("/home/somebody/secret")


def slowly(work: Work, staging: str, *, tell: Tell) -> Made:
    """In place of an analysis: a file that holds what the inputs' hashes are."""
    tell(hashes(work.run.files))
    time.sleep(0.02)
    (Path(work.folder) / "made").mkdir(exist_ok=True)
    (Path(work.folder) / "made" / work.run.name.replace("/", "-")).write_text(repr(hashes(work.run.files)))
    return Made(rows=(work.run.name,), kernels=1)


def dangerous(work: Work, staging: str, *, tell: Tell) -> Made:
    """An analysis, of runs with some names something else."""
    what = work.run.name.rpartition("/")[2]
    if what in DANGERS:
        tell(hashes(work.run.files))
        DANGERS[what](tell=tell)
    return analysed(work, staging, tell=tell)


def deadly(work: Work, staging: str, *, tell: Tell) -> Made:
    """An analysis; a run of that name kills the process that it was forked from."""
    if work.run.name.endswith("kills-its-worker"):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return slowly(work, staging, tell=tell)


DANGERS: dict[str, Callable[..., object]] = {
    "hang": wait_for_ever,
    "hang-in-c": never_come_back_to_python,
    "crash": crash,
    "gone": end_silently,
    "killed": be_killed,
    "eat": eat,
    "fault": fail,
}


def poison(folder: Path) -> list[str]:
    """Ten inputs that must not be touched by hand."""
    bad: dict[str, bytes] = {
        "garbage": random.Random(1).randbytes(5000),
        "empty": b"",
        "deep": b'[{"call":' + b"[" * 100_000,
        "cut": b"SQLite format 3\0" + bytes(80),
        "bomb": gzip.compress(gzip.compress(bytes(300 << 20))),
    }
    for name, data in bad.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "prof.json").write_bytes(data)
    for name in ("hang", "crash", "fault"):
        made_up(folder / name)
    (folder / "4GB").mkdir()
    with open(folder / "4GB" / "prof.json", "wb") as file:
        file.write(b'[{"call": "clFinish", "x": "')
        file.truncate(4 << 30)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "prof.json")
    return [*bad, "hang", "crash", "fault", "4GB", "pipe"]


def content(dataset: Path) -> dict[str, list[Any]]:
    """Of each file of a dataset its rows, and of the journals how each run ended, in no order."""
    import duckdb

    held: dict[str, list[Any]] = {}
    with duckdb.connect() as database:
        for file in sorted(dataset.glob("*/*.parquet")):
            relation = database.read_parquet(str(file))
            held[str(file.relative_to(dataset))] = [relation.columns, *relation.fetchall()]
    held["journal"] = [
        (entry.run, entry.state, entry.inputs, entry.error, entry.kernels, entry.bytes, entry.rows)
        for _, entry in sorted(read_journals(dataset).items())
    ]
    return held


def worker_pids() -> set[int]:
    """The warm processes of this one."""
    pids = {int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}
    return {pid for pid in pids if b"confined import serve" in Path(f"/proc/{pid}/cmdline").read_bytes()}
