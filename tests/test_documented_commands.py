"""What README and docs show, on real files of the names that they use: commands run and print that, Python runs."""

from __future__ import annotations

import gzip
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import documented, rocpd_made, xspace_made
from tests.conftest import ROOT
from tests.often import present, saved
from tests.recorders import HELP_7

PAGES = [
    ROOT / "README.md",
    ROOT / "traces" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "examples").glob("*.md")),
]
_BEFORE = (
    (r"ds/", " -o ds/", "mio2trace batch runs/ -o ds/ -q"),
    (r"\bout\.(?:json|pftrace)\S*", " -o out", "mio2trace {inputs} -o {made} -q"),
    (r"serving\.parquet", " -o ", "mio2trace trace.json.gz -o serving.parquet -q"),
    (r"base\.json", "--save", "mio2trace compare run.log,run_results.db --save base.json -q"),
    (r"run\.zip", "record", "mio2trace record -q -- python train.py"),
)
"""What a command reads that another one of the page writes: its name, what the other has, the other."""
_WAITS = {"mio2trace view": "serves until a browser has come: test_view.py"}


SHOWN = [(page.name, shown) for page in PAGES for shown in documented.commands(page.read_text("utf-8"))]
COMMANDS = [(page, shown.command) for page, shown in SHOWN]
PYTHON = {page.name: code for page in PAGES if (code := list(documented.python(page.read_text("utf-8"))))}


def test_the_recommended_recording_of_pytorch_is_one() -> None:
    pieces = [(page, code.text) for page, codes in PYTHON.items() for code in codes if "torch.profiler" in code.text]
    assert [page for page, _ in pieces] == ["capture.md"]
    prose = [page.name for page in PAGES if "with torch.profiler.profile(" in page.read_text("utf-8")]
    assert not prose


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


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
    unpacked(traces / "alexnet-b1-miopen29" / "run.log.gz", folder / "recorded" / "printed")
    (folder / "recorded" / "train.py").write_text("print(open('printed').read(), end='')\n")
    for kind, pairs in {
        "rocm": {
            "run.log": traces / "lenet-rocpd" / "run.log.gz",
            "run_results.db": traces / "lenet-rocpd" / "results.db.gz",
            "prof/run_results.db": traces / "lenet-rocpd" / "results.db.gz",
            "old.log": traces / "lenet-rocpd" / "run.log.gz",
            "old_results.db": traces / "lenet-rocpd" / "results.db.gz",
            "new.log": traces / "lenet-rocpd" / "run.log.gz",
            "new_results.db": traces / "lenet-rocpd" / "results.db.gz",
        },
        "rpd": {"run.log": train / "run.hip.log", "trace.rpd": next((train / "rpd").glob("*.rpd*"))},
        "rocprof": {"run.log": train / "run.hip.log", "results.db": next((train / "rocprof-v1").glob("*.db*"))},
        "opencl": {
            "run.log": traces / "alexnet-b1-miopen29" / "run.log.gz",
            "prof.json": traces / "alexnet-b1-miopen29" / "prof.json.gz",
            "profile.tfprof": samples / "tfprof" / "gpu_streams_resnet_v2" / "profile.tfprof",
            "rank0.pt.trace.json.gz": samples / "rocm" / "kineto_mi300_resnet50_ddp4_rank0.json.gz",
            "trace.json.gz": samples / "rocm" / "kineto_mi300x_vit_infer.json.gz",
            "replay.json.gz": samples / "rocm" / "graphs" / "vllm_decode_full.replay.json.gz",
            "capture.json.gz": samples / "rocm" / "graphs" / "vllm_decode_full.capture.json.gz",
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
    for name in ("alexnet-b1-train", "lenet-rocpd"):
        shutil.copytree(traces / name, folder / "many" / "runs" / name)
    for example in traces.iterdir():
        if example.is_dir():
            shutil.copytree(example, folder / "opencl" / example.name)
    for kind in ("rocm", "many"):
        shutil.copytree(traces, folder / kind / "traces")
    side_files = samples / "miopen-side-files"
    record = (side_files / "gfx942130.HIP.fdb.txt").read_text().splitlines()[0]
    for name, data in {
        "rocm/counters/run_results.db": rocpd_made.database(rocpd_made.tables("3.0.5")),
        "rocm/gfx942130.HIP.ufdb.txt": f"{record}\n".encode(),
        "opencl/gfx942130.HIP.fdb.txt": f"{record}\n".encode(),
        "opencl/gemm.log": (side_files / "hipblaslt_bench_mask32.log").read_bytes(),
        "opencl/tunableop_results0.csv": (side_files / "tunableop_results0.gfx1100_pt260.csv").read_bytes(),
        "opencl/logs/plugins/profile/2026_11_24/host.xplane.pb": xspace_made.jax_run(),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    program = folder / "bin" / "mio2trace"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mio2trace "$@"\n')
    program.chmod(0o755)
    program.with_name("python").symlink_to(sys.executable)
    return folder


def place(command: str) -> str:
    """The folder whose files a command means."""
    if re.search(r"\b(runs|ds)/", command):
        return "many"
    if "traces/" in command:
        return "rocm"
    if command.startswith("mio2trace record") or "run.zip" in command:
        return "recorded"
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


def environment(desk: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MIO2TRACE")}
    return {**env, "PATH": f"{desk / 'bin'}{os.pathsep}{env['PATH']}"}


def run(desk: Path, command: str, folder: Path, *, shown: bool = False) -> subprocess.CompletedProcess[str]:
    """In a shell; where its output is ``shown`` as a person sees it, standard output a terminal of 110 columns."""
    line = ["bash", "-c", f"set -o pipefail; {command}"]
    env = environment(desk)
    if not shown:
        return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    ours, theirs = pty.openpty()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(line, cwd=folder, env={**env, "COLUMNS": "110"}, stdout=theirs, stderr=errors) as process,
    ):
        os.close(theirs)
        printed = b"".join(iter(lambda: _rest(ours), b""))
        os.close(ours)
        process.wait(timeout=300)
        errors.seek(0)
        text = printed.decode().replace("\r\n", "\n")
        return subprocess.CompletedProcess(line, process.returncode, text, errors.read())


def _rest(terminal: int) -> bytes:
    """What is there to read; nothing once the other side is closed, which is an error on Linux."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def test_the_pages_show_commands() -> None:
    assert len(COMMANDS) > 30
    assert {page for page, _ in COMMANDS} >= {"README.md", "capture.md", "queries.md", "reports.md", "operations.md"}
    assert any("\n" in command for _, command in COMMANDS)


@pytest.mark.parametrize(("page", "shown"), SHOWN, ids=[f"{page}-{number}" for number, (page, _) in enumerate(SHOWN)])
def test_a_documented_command_runs(desk: Path, page: str, shown: documented.Shown) -> None:
    """It ends with 0 and gives something, a file or lines on standard output, and what is shown below it."""
    command = shown.command
    for start, reason in _WAITS.items():
        if command.startswith(start):
            pytest.skip(f"{start} {reason}")
    folder = desk / place(command)
    # What other programs do with the output is theirs.
    alone = command.split(" | ")[0] if " | " in command else command
    for made, unless, words in _BEFORE:
        found = re.search(made, alone)
        if found and unless not in alone and not (folder / found[0]).exists():
            inputs = "profile.tfprof" if page == "tfprof.md" else "run.log prof.json"
            first = run(desk, words.format(made=found[0], inputs=inputs), folder)
            assert first.returncode == 0, first.stderr
    made_here = re.search(r" -o (\S+)/", alone)
    if shown.output and made_here is not None:
        # another page's, for which nothing would be left to do
        shutil.rmtree(folder / made_here[1], ignore_errors=True)
    before = set(folder.iterdir())
    done = run(desk, alone if not shown.output else command, folder, shown=bool(shown.output))
    assert done.returncode == 0, (alone, done.stderr)
    if shown.output:
        printed = (done.stdout, done.stderr, done.stderr + done.stdout, done.stdout + done.stderr)
        assert any(documented.fits(shown.output, text) for text in printed), f"{done.stderr}{done.stdout}"
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() or set(folder.iterdir()) - before or " -o " in alone or " --save " in alone, alone
    if " -o " in alone:
        written = present(re.search(r" -o (\S+)", alone))
        output = folder / written[1]
        assert output.stat().st_size > 0
        if output.is_dir():
            shutil.rmtree(output)
        else:
            output.unlink()


@pytest.mark.parametrize("page", sorted(PYTHON))
def test_documented_python_runs(desk: Path, tmp_path: Path, page: str) -> None:
    """The pieces of a page one after another, as one program; what needs what we do not have is compiled only."""
    folder = tmp_path / "files"
    shutil.copytree(desk / "rocm", folder)
    program = ""
    for code in PYTHON[page]:
        compile(code.text, page, "exec")
        if any(re.match(rf"\s*(?:import|from) (?:{_ABSENT})\b", line) for line in code.text.splitlines()):
            continue
        program += "\n" * (code.line - 1 - program.count("\n")) + code.text
    script = saved(tmp_path / f"{page}.py", program)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment(desk), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


_ABSENT = "torch|tensorflow"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...\nd", "a\nd\n", True),
        ("a\n...\nd", "a\nb\n", False),
        ("wrote out.json (... MB)", "wrote out.json (0.1 MB)\n", True),
        ("a ... b", "a\nb", False),
    ],
)
def test_what_is_shown_fits_what_is_printed(shown: str, printed: str, same: bool) -> None:
    """Line by line; `...` is any text of a line, alone on a line any lines."""
    assert documented.fits(shown, printed) == same


# -- How to record, as README and docs/capture.md show it: whole blocks run in a shell, with stand-ins of ROCm's tools.
# What these write is what the real tools write, under the names that these give their files.


RECORDED = (ROOT / "README.md", ROOT / "docs" / "capture.md")
FIRST_WORDS = ("export", "rocprofv3", "srun", "mkdir", "runTracer.sh", "rocprof", "LD_PRELOAD=libprof.so")
PRINTED = "... the program's own output ..."
"""Stands in what `record` says."""
BLOCKS = [
    (page.name, line, block)
    for page in RECORDED
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
        unpacked(source, files / name)
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
