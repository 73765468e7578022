"""A run that is kept as tables is an input like its files: every table, report and comparison is the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
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


SOME = QUESTIONS[::3]
"""Where others ask all of them."""


def assert_equal_answers(files: list[str], folder: Path, questions: Sequence[tuple[str, ...]] = SOME) -> None:
    """Of every command on the files and on their dataset: what is printed, and whether it is refused."""
    dataset = str(folder / "run.parquet")
    written = CliRunner().invoke(cli, [*files, "-o", dataset, "-q"])
    assert (written.exit_code, written.stdout) == (0, "")
    answered = 0
    for command, *options in questions:
        of_files, of_dataset = call(command, files, *options), call(command, [dataset], *options)
        assert of_dataset.stdout == of_files.stdout, (command, options)
        assert of_dataset.exit_code == of_files.exit_code, (command, options, of_dataset.output)
        answered += not of_files.exit_code
    assert answered > len(questions) // 5


@pytest.mark.parametrize("name", TRACES)
def test_every_table_and_report_is_that_of_the_sources(name: str, tmp_path: Path) -> None:
    questions = QUESTIONS if name in ("alexnet", "squeezenet") else SOME
    assert_equal_answers([str(ROOT / "traces" / path) for path in TRACES[name]], tmp_path, questions)


@pytest.mark.shared
@pytest.mark.parametrize("name", TWINS)
def test_so_it_is_of_jobs_graphs_and_frameworks(name: str, tmp_path: Path, shared: Path) -> None:
    assert_equal_answers([str(shared / "samples" / "rocm-twins" / path) for path in TWINS[name]], tmp_path)


@pytest.mark.shared
def test_so_it_is_of_all_repetitions_of_a_record(tmp_path: Path, shared: Path) -> None:
    """Commands that take all of them do, those that take one take the same one."""
    folder = shared / "samples" / "ck" / "ck-caffe-firefly-rk3399" / "experiment" / "bvlc-alexnet-opencl-clblast"
    record = str(folder / "ckp-041dbee61c949c9a.0001.json")
    assert_equal_answers([record], tmp_path, QUESTIONS)
    for number in ("0", "2", "7"):
        of_record = call("layers", [record], "--repetition", number)
        of_dataset = call("layers", [str(tmp_path / "run.parquet")], "--repetition", number)
        assert (of_dataset.stdout, of_dataset.exit_code) == (of_record.stdout, of_record.exit_code)


def test_a_comparison_is_that_of_the_sources(tmp_path: Path) -> None:
    """Part by part: matches, times, verdicts, causes."""
    sides = []
    for name in ("alexnet", "squeezenet"):
        files = [str(ROOT / "traces" / path) for path in TRACES[name]]
        folder = str(tmp_path / f"{name}.parquet")
        assert CliRunner().invoke(cli, [*files, "-o", folder, "-q"]).exit_code == 0
        sides.append((",".join(files), folder))
    (files_a, folder_a), (files_b, folder_b) = sides
    of_files = CliRunner().invoke(cli, ["compare", files_a, files_b, "--format", "json"])
    of_datasets = CliRunner().invoke(cli, ["compare", folder_a, folder_b, "--format", "json"])
    assert (of_datasets.exit_code, of_files.exit_code) == (0, 0)
    told, expected = json.loads(of_datasets.stdout), json.loads(of_files.stdout)
    for side in ("a", "b"):
        assert told[side].pop("name") != expected[side].pop("name")
    assert told == expected
    assert of_files.stdout.count('"part"') > 20


def test_a_query_is_answered_as_of_the_sources(tmp_path: Path) -> None:
    """Those about the picture of a run."""
    files = [str(ROOT / "traces" / path) for path in TRACES["alexnet"]]
    folder = str(tmp_path / "run.parquet")
    assert CliRunner().invoke(cli, [*files, "-o", folder, "-q"]).exit_code == 0
    for question in ("slowest layers", "slowest operations", "iterations", "evidence", "doubts"):
        of_files, of_dataset = (CliRunner().invoke(cli, ["query", *given, question]) for given in (files, [folder]))
        assert (of_dataset.exit_code, of_dataset.stdout) == (0, of_files.stdout), question


def test_a_dataset_is_not_replaced_by_what_is_read_of_it(tmp_path: Path) -> None:
    """Neither by itself nor by one of its runs; an option that is only of a trace is refused."""
    files = [str(ROOT / "traces" / path) for path in TRACES["log alone"]]
    folder = tmp_path / "run.parquet"
    assert CliRunner().invoke(cli, [*files, "-o", str(folder), "-q"]).exit_code == 0
    (one,) = (folder / "runs").iterdir()
    for given in (folder, one):
        result = CliRunner().invoke(cli, [str(given), "-o", str(folder)])
        assert (result.exit_code, "is also an input" in result.stderr) == (2, True)
    result = CliRunner().invoke(cli, [*files, "-o", str(tmp_path / "b.parquet"), "--top", "3"])
    assert (result.exit_code, "--top needs a trace" in result.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]


def test_a_trace_tables_and_a_page_of_one_reading_are_those_of_three(tmp_path: Path) -> None:
    """Byte by byte. Two outputs of one kind are refused."""
    files = [str(ROOT / "traces" / path) for path in TRACES["alexnet"]]
    names = ["out.pftrace", "out.parquet", "out.html"]
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()
    given = [word for name in names for word in ("-o", str(together / name))]
    done = CliRunner().invoke(cli, [*files, *given])
    assert done.exit_code == 0, done.stderr
    wrote = [line for line in done.stderr.splitlines() if line.startswith("wrote ")]
    assert [sum(name in line for line in wrote) for name in names] == [1, 1, 1]
    for name in names:
        assert CliRunner().invoke(cli, [*files, "-o", str(alone / name), "-q"]).exit_code == 0
    assert contents(together) == contents(alone)
    twice = CliRunner().invoke(cli, [*files, *given, "-o", str(tmp_path / "b.html")])
    assert (twice.exit_code, "expected one output of each kind" in twice.stderr) == (2, True)
    assert not (tmp_path / "b.html").exists()


def test_with_strict_nothing_is_written_beside_a_refused_trace(tmp_path: Path) -> None:
    """A problem of the inputs is found before the first output."""
    cut = tmp_path / "run.log.gz"
    cut.write_bytes((ROOT / "traces" / TRACES["alexnet"][0]).read_bytes()[:-400])
    given = [str(cut), "--strict", "-o", str(tmp_path / "a.json"), "-o", str(tmp_path / "a.parquet")]
    done = CliRunner().invoke(cli, given)
    assert (done.exit_code, "--strict" in done.stderr) == (1, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.log.gz"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_several_runs_are_a_dataset_of_several(tmp_path: Path) -> None:
    """Each by its name; one of them is asked for by its file."""
    files = [str(ROOT / "traces" / path) for name in ("alexnet", "squeezenet") for path in TRACES[name]]
    folder = tmp_path / "runs.parquet"
    refused = CliRunner().invoke(cli, [*files, "-o", str(folder), "-q"])
    assert (refused.exit_code, "files of 2 runs" in refused.stderr) == (1, True)
    assert CliRunner().invoke(cli, [*files, "-o", str(folder), "-q", "--several"]).exit_code == 0
    written = sorted((folder / "runs").iterdir())
    assert len(written) == 2
    alone = [str(ROOT / "traces" / path) for path in TRACES["squeezenet"]]
    answers = [call("kernels", [str(path)]).stdout for path in written]
    assert call("kernels", alone).stdout in answers


def test_a_conversion_says_the_same_and_a_bundle_is_refused(tmp_path: Path) -> None:
    """In the same order, whichever file was given first; a bundle holds the log, which no dataset has."""
    files = [str(ROOT / "traces" / path) for path in TRACES["alexnet"]]
    folder = str(tmp_path / "run.parquet")
    assert CliRunner().invoke(cli, [*files, "-o", folder, "-q"]).exit_code == 0
    said = [CliRunner().invoke(cli, [*given, "-o", str(tmp_path / "out.json")]).stderr for given in (files, [folder])]
    assert said[0] == said[1] != ""
    refused = CliRunner().invoke(cli, ["bundle", folder, "-o", str(tmp_path / "b.zip")])
    assert (refused.exit_code, refused.stderr.count("\n"), "is a dataset; expected the files" in refused.stderr) == (
        1,
        1,
        True,
    )


@pytest.mark.shared
def test_of_a_job_whose_clocks_nothing_relates_the_advice_holds(tmp_path: Path, shared: Path) -> None:
    """`--align start` draws it as it does the files; a query needs no option."""
    files = str(shared / "samples" / "rocm-twins" / "resnet-immediate-2ranks" / "rocprofv3-csv")
    folder = str(tmp_path / "run.parquet")
    assert CliRunner().invoke(cli, [files, "-o", folder, "-q"]).exit_code == 0
    refused = CliRunner().invoke(cli, [folder, "-o", str(tmp_path / "out.json"), "-q"])
    assert (refused.exit_code, "--align start" in refused.stderr) == (1, True)
    drawn = []
    for given in (files, folder):
        output = tmp_path / "out.json"
        assert CliRunner().invoke(cli, [given, "-o", str(output), "-q", "--align", "start"]).exit_code == 0
        drawn.append(output.read_bytes())
    assert drawn[0] == drawn[1]
    rows = [CliRunner().invoke(cli, ["query", given, "iterations"]).stdout for given in (files, folder)]
    assert rows[0] == rows[1] != ""


def test_what_a_dataset_does_not_keep_is_said(tmp_path: Path) -> None:
    """Calls that it was not written with, and reasons."""
    files = [str(ROOT / "traces" / path) for path in TRACES["squeezenet"]]
    folder = str(tmp_path / "run.parquet")
    assert CliRunner().invoke(cli, [*files, "-o", folder, "-q"]).exit_code == 0
    kernel = json.loads(call("kernels", files, "--format", "json").stdout)[0]["call_index"]
    for options in (["--host-calls", "all"], ["--explain", f"kernel {kernel}"]):
        said = [
            CliRunner().invoke(cli, [*given, "-o", str(tmp_path / "o.json"), *options]) for given in (files, [folder])
        ]
        assert ["note: dataset: only" in result.stderr for result in said] == [False, True], said[1].output


def test_of_profiles_without_logs_none_stands_for_all(tmp_path: Path) -> None:
    """As of complete runs: a dataset of several is refused where one is expected."""
    for name, path in (("a", "lenet-rocpd/results.db.gz"), ("b", "squeezenet11-b1-libdnn-fwd/prof.json.gz")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        shutil.copy(ROOT / "traces" / path, tmp_path / "runs" / name)
    folder = str(tmp_path / "ds")
    assert CliRunner().invoke(cli, ["batch", str(tmp_path / "runs"), "-o", folder]).exit_code == 0
    for command in (["kernels"], ["layers"], ["convert", "-o", str(tmp_path / "out.json")]):
        result = CliRunner().invoke(cli, [*command, folder])
        assert (result.exit_code, "files of 2 runs: runs/a, runs/b" in result.stderr) == (1, True), result.output
    assert call("kernels", [str(tmp_path / "ds" / "runs" / "runs%2Fb.parquet")]).exit_code == 0
    several = CliRunner().invoke(cli, [folder, "-o", str(tmp_path / "out.json"), "--several"])
    assert several.exit_code == 0
