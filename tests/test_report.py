"""`mio2trace report`: ten lines, Markdown, a page, records; over all kinds of runs."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest
from click.testing import CliRunner

from mio2trace import answer
from mio2trace.analysis import analyse
from mio2trace.answer import gather
from mio2trace.cli import cli
from tests.conftest import ROOT, shared_folder
from tests.fuzz.many_rows import processes_of_a_table

TRACES = ROOT / "traces"
ALEXNET = [str(TRACES / "alexnet-b1-miopen29" / name) for name in ("run.log.gz", "prof.json.gz")]
LENET = [str(TRACES / "lenet-rocpd" / name) for name in ("run.log.gz", "results.db.gz")]


def run(*words: str | Path) -> str:
    """What is printed; nothing else may go wrong."""
    done = CliRunner().invoke(cli, ["report", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_ten_lines_say_what_is_slowest() -> None:
    """Verdict, searches, the three slowest of each with share and time, in order of time."""
    lines = run(*ALEXNET, "-q").splitlines()
    assert lines[0].startswith("18.02 ms of kernels an iteration (1 iteration)")
    assert len(lines) <= 10
    words = {line.split()[0]: line for line in lines[1:]}
    assert {"searches", "layers", "operations", "kernels"} <= set(words)
    for name in ("layers", "operations", "kernels"):
        times = [float(ms) for ms in re.findall(r"\(([\d.]+) ms\)", words[name])]
        assert len(times) == 3
        assert times == sorted(times, reverse=True)
    assert words["layers"].split()[1:3] == ["conv1", "forward"]


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_the_same_files_give_the_same_bytes(form: str) -> None:
    """In whatever order they are given."""
    assert run(*LENET, "--format", form, "-q") == run(*reversed(LENET), "--format", form, "-q")


def test_json_is_an_array_of_records() -> None:
    found = orjson.loads(run(*LENET, "--format", "json", "-q"))
    assert {one["id"] for one in found} >= {"small-gemm", "idle"}
    assert all(set(one) >= {"id", "severity", "ns", "share", "count", "scope", "rule", "try"} for one in found)


def test_the_form_is_as_the_name_ends(tmp_path: Path) -> None:
    """A page for .html, Markdown for .md; another ending is refused, and the program says what was written."""
    page, comment = tmp_path / "report.html", tmp_path / "report.md"
    assert run(*LENET, "-o", page) == ""
    assert run(*LENET, "-o", comment) == ""
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert comment.read_text("utf-8").startswith("## ")
    done = CliRunner().invoke(cli, ["report", *LENET, "-o", str(tmp_path / "report.pdf")])
    assert done.exit_code == 2
    assert ".html, .htm, .md, .txt, .json" in done.output


def test_error_files_that_say_nothing(tmp_path: Path) -> None:
    """Exit code 1 and one line."""
    path = tmp_path / "run.log"
    path.write_text("hello\n")
    done = CliRunner().invoke(cli, ["report", str(path)])
    assert done.exit_code == 1
    assert done.output.count("\n") == 1


@pytest.mark.shared
@pytest.mark.parametrize(
    "files",
    [
        "miopen-opencl/m290-alexnet-infer-10it/run.log",
        "miopen-opencl/m290-alexnet-infer-10it/prof.json",
        "miopen-logs/67-legacy6150-plain-prefix-errors-2026.txt",
        "rocm/kineto_mi300x_resnet_train_ddp.json.gz",
        "rocm/kineto_mi210_gpu_only.json.gz",
        "rocm/rpd_torch_matmul.rpd.gz",
        "tfprof/gpu_streams_resnet_v2/profile.tfprof",
        "dvdt/two-queues.prof.json",
    ],
)
@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_each_kind_of_input_alone_has_a_report(files: str, form: str) -> None:
    """A log alone, a profile alone, PyTorch's ops without a log, TensorFlow's."""
    said = run(shared_folder() / "samples" / files, "--format", form, "-q")
    assert re.search(r"\d.* ms|operation|record", said)


def test_sections_that_are_not_shown_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may hold thousands of processes."""
    path = tmp_path / "run.csv"
    path.write_bytes(processes_of_a_table(70 * 30)[0])
    of_profile = Mock(wraps=gather.of_profile)
    monkeypatch.setattr("mio2trace.answer.of_profile", of_profile)
    analysis = analyse([str(path)])
    told = answer.report_of(analysis, analysis.runs)
    assert of_profile.call_count == len(told.sections) == answer.MOST_SECTIONS
    assert told.left_out == 30 - answer.MOST_SECTIONS
