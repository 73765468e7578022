"""A run without MIOpen's log beside the logged one: the report has iteration and idle time of it, and says so."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.recording.session import pack
from tests.commands import invoked, printed
from tests.recorders import opencl, record
from tests.rocm_made import Run, rocpd

MS = 1_000_000
LOGGED, PLAIN = 6 * MS, 2 * MS
"""What the host takes before each kernel with MIOpen's log, and without."""


def made(host_ns: int, *, pid: int = 7, iterations: int = 4, kernel_ns: int = 3 * MS) -> bytes:
    """Iterations, named by ranges, of two kernels, each after ``host_ns`` of the host: 2 (host + kernel) long, from
    the first kernel to the last one's end host + 2 kernels."""
    run = Run(pid=pid)
    at = 10**12
    for number in range(iterations):
        begin, ids = at, (10 * number + 1, 10 * number + 2)
        for name, key in zip(("conv_fwd", "relu"), ids, strict=True):
            run.calls.append(("hipLaunchKernel", at + host_ns - 5000, at + host_ns - 1000, key, 7))
            run.kernels.append((name, at + host_ns, at + host_ns + kernel_ns, key, 7))
            at += host_ns + kernel_ns
        run.ranges.append((f"iteration {number + 1}", begin, at, 10 * number + 3, 7))
    return rocpd(run)


def archive(path: Path, logged: bytes, plain: bytes | None, **manifest: Any) -> str:
    """As `record --reference` packs it; ``plain``: None where it was not asked for."""
    path.parent.mkdir(exist_ok=True)
    files = {"results.db": logged} | ({} if plain is None else {"reference-results.db": plain})
    members = {}
    for name, data in files.items():
        members[name] = str(path.with_suffix(f".{name}"))
        Path(members[name]).write_bytes(data)
    told = {"inputs": ["results.db"], "reference": [name for name in files if name.startswith("reference")], **manifest}
    pack(str(path), told, members)
    for file in members.values():
        Path(file).unlink()
    return str(path)


def report(path: str, form: str = "text") -> str:
    done = printed("report", path, "--format", form)
    return " ".join(done.split()) if form == "text" else done


SAID = "without MIOpen's log the iteration takes 10.00 ms, 40.0 % of it idle (with the log 18.00 ms, 66.7 %)"


def test_a_report_has_idle_and_iteration_time_of_the_reference(tmp_path: Path) -> None:
    """10 ms of which 4 are idle, by hand, and not 18 with 12; kernels stay those of the logged run."""
    path = archive(tmp_path / "run.zip", made(LOGGED), made(PLAIN, kernel_ns=3 * MS))
    text = report(path)
    assert f"reference {SAID}" in text
    assert "40.0 % of the iteration (4.000 of 10.00 ms, measured" in text
    assert "measured without MIOpen's log" in text
    assert "6.000 ms of kernels per iteration" in text
    markdown = report(path, "markdown")
    assert SAID[1:] in markdown
    assert "Iteration and idle time: from the run without MIOpen's log" in markdown
    page = report(path, "html")
    assert "<dd>10.00 ms<span>without MIOpen&#39;s log</span></dd>" in page
    assert SAID[1:].replace("'", "&#39;") in page
    (idle,) = [one for one in json.loads(report(path, "json"))["runs"][0]["findings"] if one["id"] == "idle"]
    assert (idle["share"], idle["ns"]) == (0.4, 4 * MS)


def test_a_reference_that_is_not_idle_takes_the_finding_away(tmp_path: Path) -> None:
    """What only the log's own cost made the device wait for is nothing odd about the run."""
    path = archive(tmp_path / "run.zip", made(LOGGED), made(MS // 10))
    assert "idle" not in [one["id"] for one in json.loads(report(path, "json"))["runs"][0]["findings"]]


ONE_KERNEL = Run(kernels=[("conv_fwd", 10**12, 10**12 + MS, 1, 7)], calls=[("hipLaunchKernel", 1, 2, 1, 7)])


@pytest.mark.parametrize("plain", [None, rocpd(ONE_KERNEL)], ids=["none", "without iterations"])
def test_without_a_reference_of_iterations_all_is_of_the_run_itself(plain: bytes | None, tmp_path: Path) -> None:
    text = report(archive(tmp_path / "run.zip", made(LOGGED), plain))
    assert "66.7 % of the iteration (12.00 of 18.00 ms)" in text
    assert "without MIOpen's log" not in text


def test_a_reference_that_cannot_be_read_is_said_and_left_out(tmp_path: Path) -> None:
    done = invoked("report", archive(tmp_path / "run.zip", made(LOGGED), made(PLAIN)[:5000]))
    assert done.exit_code == 0
    assert "(12.00 of 18.00 ms)" in " ".join(done.stdout.split())
    assert "problem: run without MIOpen's log that cannot be read: reference-results.db" in done.stderr


def test_the_reference_is_no_run_of_its_own(tmp_path: Path) -> None:
    """Tables and traces are the logged run's; a reference that prints the same log is not that log given twice."""
    analysis = mio2trace.analyse(archive(tmp_path / "run.zip", made(LOGGED), made(PLAIN)))
    assert len(analysis.runs) == 1
    assert len(analysis.run.profiles) == 1
    same = archive(tmp_path / "same.zip", made(PLAIN), made(PLAIN))
    assert "10.00 ms, 40.0 % of it idle (with the log 10.00 ms, 40.0 %)" in report(same)
    assert not list(mio2trace.analyse(same).notes)


def test_a_conversion_says_what_the_report_says(tmp_path: Path) -> None:
    path = archive(tmp_path / "run.zip", made(LOGGED), made(PLAIN))
    assert SAID in " ".join(invoked(path, "-o", tmp_path / "out.json").stderr.split())


@pytest.mark.parametrize("form", ["bundle", "dataset", "folder"])
def test_what_is_made_of_the_archive_reports_the_same(form: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "run.zip", made(LOGGED), made(PLAIN))
    other = str(tmp_path / {"bundle": "bug.zip", "dataset": "ds.parquet", "folder": "unpacked"}[form])
    if form == "folder":
        with zipfile.ZipFile(path) as file:
            file.extractall(other)
    else:
        words = ["bundle", path, "-o", other, "-q"] if form == "bundle" else [path, "-o", other, "-q"]
        printed(*words)
    assert report(other) == report(path)


def test_each_rank_has_the_reference_of_its_own_archive(tmp_path: Path) -> None:
    """Ranks are told apart by their archives where the profiles do not say which they are."""
    job = tmp_path / "job"
    archive(job / "0.zip", made(LOGGED, pid=70), made(PLAIN, pid=80))
    archive(job / "1.zip", made(LOGGED + 1, pid=71), made(MS, pid=81))
    run = mio2trace.analyse(job).run
    assert [profile.process.pid for profile in run.profiles] == [70, 71]
    assert run.reference is not None
    pids = [one.alignment.profile.process.pid for one in run.reference.measures]
    assert sorted(zip(run.reference.of, pids, strict=True)) == [(0, 80), (1, 81)]


def test_under_dvdt_the_reference_is_what_the_log_prints_of_an_iteration(tmp_path: Path) -> None:
    """dv/dt waits for each command: the run beside it has no profiler at all."""
    (tmp_path / "opencl").mkdir()
    program, library = opencl(tmp_path / "opencl")
    script = (
        f'{program} 3; i=0; for ms in 90000 4 6; do i=$((i+1)); [ -n "$LD_PRELOAD" ] && ms=$((ms * 2)); '
        'echo "I$(date "+%m%d %H:%M:%S.%6N")  7 caffe.cpp:465] Iteration: $i forward-backward time: $ms ms."; done'
    )
    done = record("--reference", "--dvdt", library, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = "without MIOpen's log the iteration takes 5.000 ms (with the log 10.00 ms), by the times that the program"
    assert f"reference {said}" in report(str(tmp_path / "run.zip"))
