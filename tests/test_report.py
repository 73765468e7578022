"""`mio2trace report`: ten lines, Markdown, a page, records; over all kinds of runs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest
from click.testing import CliRunner

from mio2trace import answer
from mio2trace.analysis import analyse
from mio2trace.answer.content import VERSION
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.cli import cli
from mio2trace.measures.completeness import CLASSES
from mio2trace.measures.iterations import PARTS
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


def test_the_block_says_what_is_slowest() -> None:
    """Verdict, MIOpen Find, the three slowest of each with time and share, in order of time."""
    lines = run(*ALEXNET, "-q").splitlines()
    assert lines[0].endswith("profile complete")
    assert lines[1].startswith("18.02 ms of kernels per iteration (1 iteration")
    assert any(line.startswith("MIOpen Find") for line in lines)
    for name in ("layers", "operations", "kernels"):
        at = next(at for at, line in enumerate(lines) if line.startswith(name))
        times = [float(re.findall(r"([\d.]+) ms", line)[0]) for line in lines[at : at + 3]]
        assert times == sorted(times, reverse=True)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "rocm/kineto_mi300x_resnet_train_ddp.json.gz", "rocm/kineto_mi300_resnet50_ddp4_rank1.json.gz",
        "rocm/kineto_mi300_bert_small.json.gz", "rocm/graphs/vllm_decode_full.replay.json.gz",
        "rocm/graphs/sglang_prefilldecode.json.gz", "rocm/rocpd_ck_batched_gemm.db.gz", "rocm/rpd_torch_matmul.rpd.gz",
        "rocm/rocprofv3_csv_decode_kernel_trace.csv", "rocm/kineto_mi210_gpu_only.json.gz",
        "miopen-opencl/m121-rnn-infer-first", "dvdt/alexnet-b1-train.prof.json", "dvdt/two-queues.prof.json",
        "miopen-opencl/m290-alexnet-infer-10it/run.log", "miopen-opencl/m290-alexnet-infer-10it/prof.json",
        "miopen-logs/67-legacy6150-plain-prefix-errors-2026.txt", "tfprof/gpu_streams_resnet_v2/profile.tfprof",
    ],
)  # fmt: skip
def test_every_block_fits(name: str) -> None:
    """At most so many lines of so many columns; the names of a list differ; the parts of the step add up to 100 %."""
    path = shared_folder() / "samples" / name
    for form in ("markdown", "html"):
        assert re.search(r"\d.* ms|operation|record", run(path, "--format", form, "-q"))
    lines = run(path, "-q").splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    shares = [share for line in lines if "█" in line or "▏" in line for share in re.findall(r"([\d.]+) %", line)[:1]]
    assert not shares or sum(map(float, shares)) == pytest.approx(100, abs=0.4)
    kernels = [at for at, line in enumerate(lines) if line.startswith("kernels")]
    if kernels:
        rows = [
            line[12:56].strip() for line in lines[kernels[0] : kernels[0] + 3] if re.match(r"kernels| {12}\S", line)
        ]
        assert len(set(rows)) == len(rows)
    if name == "rocm/rpd_torch_matmul.rpd.gz":  # without iterations and without MIOpen; no hint is cut
        assert "26.40 ms of kernels; no iterations are known." in lines
        assert any(line.endswith("% of the recording") for line in lines)
        assert "..." not in "".join(lines)


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_the_same_files_give_the_same_bytes(form: str) -> None:
    """In whatever order they are given."""
    assert run(*LENET, "--format", form, "-q") == run(*reversed(LENET), "--format", form, "-q")


@pytest.mark.parametrize("files", [LENET, ALEXNET, LENET[:1], ALEXNET[1:]])
def test_json_is_as_its_schema_says(files: list[str]) -> None:
    """One document; the page has the schema, with every part of a step and every class of what is incomplete."""
    import jsonschema

    schema = orjson.loads((ROOT / "docs" / "report.schema.json").read_bytes())
    document = orjson.loads(run(*files, "--format", "json", "-q"))
    jsonschema.validate(document, schema)
    assert document["schema"] == VERSION
    of_run = schema["properties"]["runs"]["items"]["properties"]
    step, recording, completeness = (of_run[name]["anyOf"][0] for name in ("step", "recording", "completeness"))
    assert {f"{part}_ns" for part in PARTS} <= step["properties"].keys()
    assert {"length_ns", *(f"{part}_ns" for part in PARTS)} == recording["properties"].keys()
    assert set(CLASSES) == completeness["properties"]["counts"]["properties"].keys()


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 4)])
def test_strict_tells_an_incomplete_profile(strict: bool, code: int, tmp_path: Path) -> None:
    """A profile that is cut off: exit code 4 in every command that answers, the counts in the first lines."""
    path = tmp_path / "prof.json"
    content = gzip.decompress(Path(ALEXNET[1]).read_bytes())
    path.write_bytes(content[: len(content) // 2])
    options = ["--strict"] if strict else []
    done = CliRunner().invoke(cli, ["report", str(path), *options])
    assert done.exit_code == code
    assert "PROFILE INCOMPLETE: 1 file cut off" in done.stdout.splitlines()[0]


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
    (tmp_path / "run.log").write_text("hello\n")
    done = CliRunner().invoke(cli, ["report", str(tmp_path / "run.log")])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)


def test_sections_that_are_not_shown_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may hold thousands of processes."""
    path = tmp_path / "run.csv"
    path.write_bytes(processes_of_a_table(70 * 30)[0])
    of_profile = Mock(wraps=answer.of_profile)
    monkeypatch.setattr("mio2trace.answer.of_profile", of_profile)
    analysis = analyse([str(path)])
    told = answer.report_of(analysis, analysis.runs)
    assert of_profile.call_count == len(told.sections) == answer.MOST_SECTIONS
    assert told.left_out == 30 - answer.MOST_SECTIONS
