"""How to record, as README and docs/capture.md show it: whole blocks run in a shell, with stand-ins of ROCm's tools.

What the stand-ins write is what the real tools write, under the names that these give their files.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import documented
from tests.conftest import ROOT
from tests.recorders import HELP_7

PAGES = (ROOT / "README.md", ROOT / "docs" / "capture.md")
FIRST_WORDS = ("export", "rocprofv3", "srun", "mkdir", "runTracer.sh", "rocprof", "LD_PRELOAD=libprof.so")
PRINTED = "... the program's own output ..."
"""Stands in what `record` says."""
BLOCKS = [
    (page.name, line, block)
    for page in PAGES
    for line, block in documented.indented(page.read_text("utf-8"))
    if block.split()[0] in FIRST_WORDS and PRINTED not in block
]

_COPY = """#!{python} -I
import os, pathlib, shutil, subprocess, sys
files, words = pathlib.Path({files!r}), sys.argv[1:]
rank = os.environ.get("SLURM_PROCID", "")
def after(option, otherwise=""):
    return words[words.index(option) + 1] if option in words else otherwise
def put(name, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(files / name, path)
"""
TOOLS = {
    "rocprofv3": f"""
if words == ["--version"]: sys.exit(print("version: 1.1.0\\nrocm_version: 7.2.3"))
if words == ["--help"]: sys.exit(print({HELP_7!r}))
own = words[:words.index("--")]
taken = {{"--kernel-trace", "--hip-trace", "--hip-runtime-trace", "--marker-trace", "--memory-copy-trace",
    "--rccl-trace", "--pmc", "FETCH_SIZE", "WRITE_SIZE", "--output-format", "-f", "-d", "-o",
    after("-d"), after("-o"), "rocpd"}}
assert set(own) <= taken, own
put(f"results{{rank}}.db", pathlib.Path(after("-d")) / f"{{after('-o', '4711' + rank)}}_results.db")
program = words[words.index("--") + 1:]
os.execvp(program[0], program)
""",
    "rocprof": """
assert words[:3] == ["--hip-trace", "--roctx-trace", "-o"], words
put("v1.db", pathlib.Path(words[3]).with_suffix(".db"))
os.execvp(words[4], words[4:])
""",
    "runTracer.sh": """
put("trace.rpd", pathlib.Path(after("-o")))
os.execvp(words[2], words[2:])
""",
    "srun": """
assert words[:2] == ["-n", "8"], words
for rank in "01":
    subprocess.run(words[2:], env=os.environ | {"SLURM_PROCID": rank, "SLURM_NTASKS": "2"}, check=True)
""",
    "program": """
name = "v1.log" if os.path.exists("results.db") else f"run{rank}.log"
sys.stderr.write((files / name).read_text())
""",
    "migraphx-driver": """
assert words == ["roctx", "model.onnx", "--gpu"], words
""",
    "caffe": """
assert words == "time -model net.prototxt -gpu 0 -iterations 1".split(), words
sys.stdout.write((files / "dvdt.log").read_text())
""",
    "python": """
sys.stderr.write((files / ("v1.log" if os.path.exists("trace.rpd") else f"run{rank}.log")).read_text())
""",
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A folder with the programs, real files beside them."""
    folder = tmp_path_factory.mktemp("tools")
    files, traces, twins = folder / "files", ROOT / "traces", shared / "samples" / "rocm-twins"
    files.mkdir()
    ranks = twins / "resnet-immediate-2ranks"
    databases = sorted(path for path in (ranks / "rocpd").glob("*.db*") if "merged" not in path.name)
    train = twins / "lenet-train-own-layers"
    sources = {
        "results.db": traces / "lenet-rocpd" / "results.db.gz",
        "run.log": traces / "lenet-rocpd" / "run.log.gz",
        "v1.db": next((train / "rocprof-v1").glob("*.db*")),
        "v1.log": train / "run.hip.log",
        "trace.rpd": next((train / "rpd").glob("*.rpd*")),
        "dvdt.log": traces / "lenet-b2-debuginfo-interleaved" / "run.log",
        **{f"results{rank}.db": database for rank, database in enumerate(databases)},
        **{f"run{rank}.log": log for rank, log in enumerate(sorted(ranks.glob("run.rank*.log")))},
    }
    for name, source in sources.items():
        data = source.read_bytes()
        (files / name).write_bytes(gzip.decompress(data) if source.suffix == ".gz" else data)
    for name, body in TOOLS.items():
        (folder / name).write_text(_COPY.format(python=sys.executable, files=str(files)) + body)
    (folder / "mio2trace").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mio2trace "$@"\n')
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


Shell = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tools: Path, tmp_path: Path) -> Shell:
    """Runs lines in a folder of their own, where ``./program`` is."""

    def run(lines: str) -> subprocess.CompletedProcess[str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("MIOPEN", "ROC", "SLURM"))}
        given |= {"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "timeline")}
        return subprocess.run(
            ["bash", "-e", "-c", lines], cwd=tmp_path, env=given, capture_output=True, text=True, timeout=100
        )

    (tmp_path / "program").symlink_to(tools / "program")
    return run


def test_the_pages_have_blocks() -> None:
    words = {word for _, _, block in BLOCKS for word in re.findall(r"[\w./=-]+", block)}
    assert len(BLOCKS) >= 7
    assert {"rocprofv3", "rocprof", "srun", "runTracer.sh", "caffe", "migraphx-driver", "record"} <= words


@pytest.mark.parametrize(("page", "line", "block"), BLOCKS, ids=[f"{page}-{line}" for page, line, _ in BLOCKS])
def test_a_block_records_and_what_it_names_is_read(
    page: str, line: int, block: str, shell: Shell, tmp_path: Path
) -> None:
    """The files have the names that the next line gives to mio2trace; kernels have operations by it."""
    done = shell(block)
    assert done.returncode == 0, (page, line, done.stderr)
    if "mio2trace" in block:
        assert (tmp_path / "out.pftrace").stat().st_size > 10_000
        assert "wrote out.pftrace" in done.stderr
        assert "operations  " in done.stderr or "layers  " in done.stderr, done.stderr
    else:
        assert {path.name for path in tmp_path.iterdir()} >= {"run.log", "prof"}


def test_record_says_what_the_page_shows(shell: Shell) -> None:
    """Line by line, with other numbers."""
    (shown,) = [
        block for _, block in documented.indented((ROOT / "docs" / "capture.md").read_text("utf-8")) if PRINTED in block
    ]
    begins, _, ends, follows = shown.splitlines()
    said = shell("mio2trace record -- python train.py").stderr.splitlines()
    assert said[0] == begins
    assert said[-1] == follows
    form = re.sub(r"\d[\d.,]*", "N", ends).replace(", N threads", "")  # this log names none
    assert re.sub(r"\d[\d.,]*", "N", said[-2]).replace(" kB", " MB") == form
