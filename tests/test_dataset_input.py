"""A run that is kept as tables is an input like its files: every table, report and comparison is the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mio2trace.cli import cli
from tests.conftest import ROOT

TRACES = {
    "alexnet": ("alexnet-b1-miopen29/run.log.gz", "alexnet-b1-miopen29/prof.json.gz"),
    "lenet": ("lenet-rocpd/run.log.gz", "lenet-rocpd/results.db.gz"),
    "squeezenet": ("squeezenet11-b1-libdnn-fwd/run.log", "squeezenet11-b1-libdnn-fwd/prof.json.gz"),
    "log alone": ("squeezenet11-b1-libdnn-fwd/run.log",),
    "profile alone": ("squeezenet11-b1-libdnn-fwd/prof.json.gz",),
}
TWINS = {
    "two ranks": ("resnet-immediate-2ranks/rocpd/merged.db.gz", "resnet-immediate-2ranks/run.log"),
    "kineto": ("resnet-train-miopen-2threads/kineto/rank0.pt.trace.json.gz",),
    "graph": ("alexnet-10it-graph/rpd/trace.rpd.gz", "alexnet-10it-graph/run.hip.log"),
}
QUESTIONS = (
    ("report", "--format", "html"),
    ("report", "--format", "markdown", "--gpu", "MI300X"),
    ("report", "--format", "json"),
    ("layers",),
    ("layers", "--each", "--format", "csv"),
    ("layers", "--times"),
    ("kernels",),
    ("kernels", "--raw"),
    ("kernels", "--by", "name"),
    ("kernels", "--by", "layer", "--format", "json"),
    ("kernels", "--by", "bucket"),
    ("kernels", "--by", "repetition"),
    ("kernels", "--gemm"),
    ("ops",),
    ("ops", "--each", "--format", "jsonl"),
    ("ops", "--group-by", "problem"),
    ("driver",),
)


def call(command: str, files: list[str], *options: str) -> Result:
    return CliRunner().invoke(cli, [command, *files, *options])


def assert_equal_answers(files: list[str], folder: Path) -> None:
    """Of every command on the files and on their dataset: what is printed, and whether it is refused."""
    dataset = str(folder / "run.parquet")
    written = CliRunner().invoke(cli, [*files, "-o", dataset, "-q"])
    assert (written.exit_code, written.output) == (0, "")
    answered = 0
    for command, *options in QUESTIONS:
        of_files, of_dataset = call(command, files, *options), call(command, [dataset], *options)
        assert of_dataset.stdout == of_files.stdout, (command, options)
        assert of_dataset.exit_code == of_files.exit_code, (command, options, of_dataset.output)
        answered += not of_files.exit_code
    assert answered > 4


@pytest.mark.parametrize("name", TRACES)
def test_every_table_and_report_is_that_of_the_sources(name: str, tmp_path: Path) -> None:
    assert_equal_answers([str(ROOT / "traces" / path) for path in TRACES[name]], tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize("name", TWINS)
def test_so_it_is_of_jobs_graphs_and_frameworks(name: str, tmp_path: Path, shared: Path) -> None:
    assert_equal_answers([str(shared / "samples" / "rocm-twins" / path) for path in TWINS[name]], tmp_path)
