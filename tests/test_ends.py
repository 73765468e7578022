"""An iteration that the profile or the log cuts is not said to be whole."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from benchmarks.damage import loaded
from benchmarks.damages.profiles import part_lost
from benchmarks.damages.sets import HANDLES
from mio2trace import analyse
from mio2trace.cli import cli
from mio2trace.conversion import convert
from mio2trace.measures.iterations import BEGINS, ENDS, Iterations
from mio2trace.trace import Slice
from tests.conftest import shared_folder
from tests.small_runs import benchmark

IN_LAST_LAYER, IN_FIRST_LAYER = 27, 24
"""Calls of a small run up to there in iteration 1."""


def small_run(folder: Path, calls: int | None) -> list[Path]:
    made, log = benchmark()
    (folder / "prof.json").write_text(json.dumps(made[:calls]))
    (folder / "run.log").write_text(log)
    return [folder / "run.log", folder / "prof.json"]


def told_of(*files: Path) -> Iterations:
    return analyse(files).runs[0].measures[0].steady.told


@pytest.mark.parametrize("calls", [IN_LAST_LAYER, IN_FIRST_LAYER])
def test_the_only_iteration_counts_as_the_part_that_it_is(tmp_path: Path, calls: int) -> None:
    """Marks that stop in a layer say that the profile ends there."""
    cut = told_of(*small_run(tmp_path, calls))
    assert (cut.steady, cut.cut, cut.part) == ((1,), (), ENDS)
    assert cut.rule == f"iteration 1, the only one, is not whole: {ENDS}"
    assert told_of(*small_run(tmp_path, None)).part == ""


@pytest.mark.shared
def test_a_warm_up_alone_is_never_called_an_iteration(tmp_path: Path) -> None:
    """Of a profile that ended in it."""
    run = shared_folder() / "samples" / "dvdt" / "squeezenet11-b1-fwd-tz"
    content = run.with_suffix(".prof.json").read_bytes()
    (tmp_path / "prof.json").write_bytes(content[: len(content) * 65 // 100])
    said = " ".join(convert(run.with_suffix(".run.log"), tmp_path / "prof.json").answer)
    assert "499.4 ms of kernels in the warm-up; no iteration" in said


def test_a_part_is_never_called_an_iteration(tmp_path: Path) -> None:
    """Not in the ten lines, nor on a page or in a comment; tables and comparisons say it, too."""
    files = [str(path) for path in small_run(tmp_path, IN_LAST_LAYER)]
    converted = convert(*files)
    answer = " ".join(" ".join(converted.answer).split())
    passes = [one for one in converted.trace.events() if isinstance(one, Slice) and one.category == "pass"]
    assert {one.name: one.args.get("part") for one in passes if "kernels" in one.args} == {
        "warm-up · forward": None, "iteration 1 · forward": ENDS
    }  # fmt: skip
    assert f" 0.141 ms of kernels in the recorded part of iteration 1 ({ENDS}). " in answer
    for name, said in (
        (
            "page.html",
            ("Kernels in the recorded part of the iteration", "of kernels in the recorded part of the iteration"),
        ),
        ("comment.md", ("Kernels (in the recorded part of the iteration)",)),
    ):
        assert not CliRunner().invoke(cli, ["report", *files, "-o", str(tmp_path / name)]).exit_code
        text = (tmp_path / name).read_text()
        assert all(words in text for words in said)
        assert " an iteration" not in text.replace("of an iteration", "")
    for command in (["kernels", *files, "--by", "name"], ["compare", ",".join(files), ",".join(files)]):
        assert f"iteration 1, the only one, is not whole: {ENDS}" in CliRunner().invoke(cli, command).output


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "part", "why"),
    [
        ("squeezenet11-b1-fwd-tz", (1, 1), ""),
        ("squeezenet11-b1-fwd-tz", (0.7, 1), ENDS),  # marks
        ("alexnet-b1-fwd-nomarks", (0.9, 1), ENDS),  # types of layers
        ("m121-lenet-infer", (0.95, 1), ENDS),  # calls without kernels
        ("m121-lenet-infer", (0, 0.5), ""),  # of the set-up
        ("m121-resnet-train-entries-cmd", (0.9, 1), ""),  # after the last layer
        ("m121-resnet-train-entries-cmd", (0.7, 1), ENDS),
        ("m121-resnet-train-entries-cmd", (0, 0.6), BEGINS),
    ],
)
def test_parts_of_real_runs_are_told(tmp_path: Path, name: str, part: tuple[float, float], why: str) -> None:
    """Of 153 that a profile cuts, 145 are; of 112 whole ones none is."""
    run = loaded(shared_folder())[HANDLES][name]
    told = told_of(*(part_lost(*part)(run, Random(1)) if part[0] < part[1] else run).write(tmp_path))
    assert (told.steady, told.part) == ((1,), why)


@pytest.mark.shared
def test_an_iteration_of_other_kernels_that_is_cut_does_not_count(tmp_path: Path) -> None:
    """The second one is no beginning of the first, which builds more; the log shows what it lacks."""
    run = loaded(shared_folder())[HANDLES]["alexnet-b3-libdnn-train-iter2"]
    told = told_of(*part_lost(0.95, 1)(run, Random(1)).write(tmp_path))
    assert (told.steady, told.cut, told.part) == ((1,), (2,), "")
    assert told.rule.startswith("iteration 1, of 2 recorded; 2 is not whole: the profile ends in it")
    assert told.may_be_cold


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m121-lenet-train-debugbuild", "m121-lenet-infer"])
def test_a_log_that_ends_early_is_not_blamed_on_the_profile(tmp_path: Path, name: str) -> None:
    """The profile holds the kernels: which layer they belong to does not decide whether the iteration is whole."""
    folder = shared_folder() / "samples" / "miopen-opencl" / name
    lines = (folder / "run.log").read_bytes().splitlines(keepends=True)
    (tmp_path / "run.log").write_bytes(b"".join(lines[: len(lines) * 85 // 100]))
    assert told_of(tmp_path / "run.log", folder / "prof.json").part == ""
