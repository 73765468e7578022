"""Every command of ours that README and docs show runs, offline, on real files of the names that they use."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "traces" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_LINE = re.compile(r"^ {4}(mio2trace .*(?:\n {6,}\S.*)*)", re.M)
_WAITS = {"mio2trace view": "serves until a browser has come: test_view.py"}


def commands() -> Iterator[tuple[str, str]]:
    """Page and command, with the lines that go on with it."""
    for page in PAGES:
        for match in _LINE.finditer(page.read_text("utf-8")):
            yield page.name, match[1]


COMMANDS = list(commands())


def unpacked(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".gz" and target.suffix != ".gz":
        target.write_bytes(gzip.decompress(source.read_bytes()))
    else:
        shutil.copyfile(source, target)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A folder with a file for each name that the pages use; what belongs together in one of its own."""
    folder, samples = tmp_path_factory.mktemp("desk"), shared / "samples"
    twins, traces = samples / "rocm-twins", ROOT / "traces"
    train = twins / "lenet-train-own-layers"
    for kind, pairs in {
        "rocm": {
            "run.log": traces / "lenet-rocpd" / "run.log.gz",
            "run_results.db": traces / "lenet-rocpd" / "results.db.gz",
            "prof/run_results.db": traces / "lenet-rocpd" / "results.db.gz",
        },
        "rpd": {"run.log": train / "run.hip.log", "trace.rpd": next((train / "rpd").glob("*.rpd*"))},
        "rocprof": {"run.log": train / "run.hip.log", "results.db": next((train / "rocprof-v1").glob("*.db*"))},
        "opencl": {
            "run.log": traces / "alexnet-b1-miopen29" / "run.log.gz",
            "prof.json": traces / "alexnet-b1-miopen29" / "prof.json.gz",
            "profile.tfprof": samples / "tfprof" / "gpu_streams_resnet_v2" / "profile.tfprof",
            "rank0.pt.trace.json.gz": samples / "rocm" / "kineto_mi300_resnet50_ddp4_rank0.json.gz",
            "ckp-041dbee61c949c9a.0001.json": next(
                (samples / "ck" / "ck-caffe-firefly-rk3399" / "experiment").rglob("ckp-041dbee61c949c9a.0001.json")
            ),
        },
        "alone": {"run.log": traces / "lenet-b2-debuginfo-interleaved" / "run.log"},
        "repeated": {"prof.json": samples / "dvdt" / "clblast-lenet-seq-x3.prof.json"},
        "beside tfprof": {
            "prof.json": samples / "dvdt" / "lenet-b2-fwd.prof.json",
            "profile.tfprof": samples / "tfprof" / "gpu_streams_resnet_v2" / "profile.tfprof",
        },
    }.items():
        for name, source in pairs.items():
            unpacked(source, folder / kind / name)
    for rank, log in enumerate(sorted((twins / "resnet-immediate-2ranks").glob("run.rank*.log"))):
        unpacked(log, folder / "rocm" / "job" / f"{rank}.log")
    for database in sorted((twins / "resnet-immediate-2ranks" / "rocpd").glob("*.db*")):
        unpacked(database, folder / "rocm" / "job" / database.name.removesuffix(".gz"))
    for example in traces.iterdir():
        if example.is_dir():
            shutil.copytree(example, folder / "opencl" / example.name)
    shutil.copytree(traces, folder / "rocm" / "traces")
    program = folder / "bin" / "mio2trace"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mio2trace "$@"\n')
    program.chmod(0o755)
    return folder


def place(command: str) -> str:
    """The folder whose files a command means."""
    if ".rpd" in command:
        return "rpd"
    if re.search(r"\bresults\.db", command):
        return "rocprof"
    if ".db" in command or " job" in command:
        return "rocm"
    if command.startswith("mio2trace run.log -o") and "profile" not in command:
        return "alone"
    if "--by repetition" in command:
        return "repeated"
    if "profile.tfprof" in command and "prof.json" in command:
        return "beside tfprof"
    return "opencl"


def run(desk: Path, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MIO2TRACE")}
    env["PATH"] = f"{desk / 'bin'}{os.pathsep}{env['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


def test_the_pages_show_commands() -> None:
    """The pattern finds what a reader sees."""
    assert len(COMMANDS) > 30
    assert {page for page, _ in COMMANDS} >= {"README.md", "capture.md", "queries.md", "reports.md", "operations.md"}
    assert any("\n" in command for _, command in COMMANDS)


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{page}-{number}" for number, (page, _) in enumerate(COMMANDS)]
)
def test_a_documented_command_runs(desk: Path, page: str, command: str) -> None:
    """It ends with 0 and gives something: a file, or lines on standard output."""
    for start, reason in _WAITS.items():
        if command.startswith(start):
            pytest.skip(f"{start} {reason}")
    folder = desk / place(command)
    # What other programs do with the output is theirs.
    alone = command.split(" | ")[0] if " | " in command else command
    if re.search(r"\bout\.(json|pftrace\S*)", alone) and " -o out" not in alone:
        made = re.search(r"\bout\.(?:json|pftrace)\S*", alone)
        assert made is not None
        if not (folder / made[0]).exists():
            inputs = "profile.tfprof" if page == "tfprof.md" else "run.log prof.json"
            first = run(desk, f"mio2trace {inputs} -o {made[0]} -q", folder)
            assert first.returncode == 0, first.stderr
    if "base.json" in alone and "--save" not in alone and not (folder / "base.json").exists():
        first = run(desk, "mio2trace compare run.log,run_results.db --save base.json -q", folder)
        assert first.returncode == 0, first.stderr
    before = set(folder.iterdir())
    done = run(desk, alone, folder)
    assert done.returncode == 0, (alone, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() or set(folder.iterdir()) - before or " -o " in alone or " --save " in alone, alone
    if " -o " in alone:
        written = re.search(r" -o (\S+)", alone)
        assert written is not None
        assert (folder / written[1]).stat().st_size > 0
        (folder / written[1]).unlink()
