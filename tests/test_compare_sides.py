"""What a side may be: a trace of ours, a job of several ranks."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from mio2trace import convert
from mio2trace.analysis import analyse
from mio2trace.cli import cli
from mio2trace.comparing import Compared, Comparison, Part, RunRecord, Side, compare
from mio2trace.comparing import sides as bases
from mio2trace.comparing.comparison import seen
from mio2trace.comparing.record import CUT, Inside, Rank, cut, mean_of
from mio2trace.notes import InputError
from tests.conftest import ROOT, shared_folder
from tests.made_up_runs import ALEXNET, recorded
from tests.made_up_runs import compare as run
from tests.own_traces import resealed

LENET = [ROOT / "traces" / "lenet-rocpd" / name for name in ("run.log.gz", "results.db.gz")]
TWINS = shared_folder() / "samples" / "rocm-twins"
SETS = shared_folder() / "samples" / "miopen-opencl"


def assert_nothing_differs(comparison: Comparison) -> None:
    rows: tuple[Compared, ...] = (*comparison.rows, *comparison.ranks, *comparison.once, comparison.iteration)
    assert [row for row in rows if row.word != "~" or row.cause or row.ratio != 1 or row.a_ns != row.b_ns] == []
    assert len(rows) > 5


# -- a trace of ours -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["json", "json.gz", "pftrace"])
@pytest.mark.parametrize("files", [ALEXNET, LENET], ids=["OpenCL", "ROCm"])
def test_nothing_differs_from_the_own_trace(files: Sequence[Path], suffix: str, tmp_path: Path) -> None:
    """In either form: every problem, layer, kernel, search and build of the run; solvers and kernels, too, which tell
    the cause of a change."""
    out = tmp_path / f"out.{suffix}"
    convert(*files, output=out)
    comparison = compare(files, out)
    assert_nothing_differs(comparison)
    assert {row.kind for row in comparison.rows} == {"problem", "layer"} | ({"kernel"} if files is LENET else set())
    assert comparison.differs == ()
    (told,) = comparison.b.runs
    parts = [(part.name, part.solvers) for part in told.parts if part.kind == "problem"]
    assert parts == [(part.name, part.solvers) for part in recorded(*files).parts if part.kind == "problem"]
    assert any(solvers for _, solvers in parts)


@pytest.mark.shared
@pytest.mark.parametrize(
    "files",
    [
        [SETS / "m290-alexnet-infer-10it" / name for name in ("run.log", "prof.json")],
        [SETS / "m290-resnet-train-entries-cmd" / name for name in ("run.log", "prof.json")],
        [TWINS / "alexnet-10it-graph" / "kineto" / "rank0.pt.trace.json.gz"],
        [TWINS / "lenet-train-own-layers" / name for name in ("run.hip.log", "rpd/trace.rpd.gz")],
    ],
    ids=["iterations", "both directions", "ProfilerStep#0 is cold", "own layers"],
)
def test_nothing_differs_from_the_traces_of_real_runs(files: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.pftrace"
    convert(*files, output=out)
    assert_nothing_differs(compare(files, out))


@pytest.mark.parametrize("suffix", ["json", "pftrace"])
@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (ALEXNET, {"top": 5}, "a trace without known iterations"),
        (ALEXNET, {"min_duration": "1ms"}, "a trace of a part of a run"),
        (ALEXNET, {"begin": "layer conv2"}, "a trace of a part of a run"),
        (ALEXNET, {"with_args": False}, "a trace without known iterations"),
        (ALEXNET[1:], {}, "a trace without known iterations"),
        ([*ALEXNET, *LENET], {"several": True}, "a trace of several processes or runs"),
    ],
)
def test_error_a_trace_that_is_not_of_one_whole_run(
    files: Sequence[Path], options: dict[str, Any], message: str, suffix: str, tmp_path: Path
) -> None:
    out = tmp_path / f"out.{suffix}"
    convert(*files, output=out, **options)
    with pytest.raises(InputError, match=rf"^out\.{suffix}: {message}"):
        compare(out, out)


@pytest.mark.parametrize("suffix", ["json", "json.gz", "pftrace"])
def test_a_damaged_trace_is_one_line(suffix: str, tmp_path: Path) -> None:
    """Cut, or with other bytes in it: refused with a line, or read; never a fault."""
    out = tmp_path / f"out.{suffix}"
    convert(*ALEXNET, output=out)
    whole, random, refused = out.read_bytes(), Random(5), 0
    for number in range(12):
        damaged = bytearray(whole[: random.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(number):
            damaged[random.randrange(len(damaged) // 2, len(damaged))] = random.randrange(256)
        out.write_bytes(damaged)
        done = run(out, out, "-q")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code == 0 or (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.output
        refused += done.exit_code
    assert refused


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"input":"1x3x99x99"', b'"input":"1xtwox9"'),
        (b'"operation":3', b'"operation":"x"'),
        (b'"iteration":1', b'"iteration":{}'),
        (b'"kernel_ns":', b'"kernel_ns":"y","z":'),
        (b'"layer_index":', b'"layer_index":[],"z":'),
        (b'"direction":"forward"', b'"direction":7'),
    ],
)
def test_error_a_trace_that_was_changed(before: bytes, after: bytes, tmp_path: Path) -> None:
    """What is no shape, number or direction is said in a line."""
    out = tmp_path / "out.json"
    convert(*ALEXNET, output=out)
    text = out.read_bytes()
    assert before in text
    out.write_bytes(text.replace(before, after))
    with pytest.raises(InputError, match="its checksum differs; --damaged"):
        compare(out, out)
    out.write_bytes(resealed(out.read_bytes()))
    with pytest.raises(InputError, match=r"out\.json: (a trace|not as)"):
        compare(out, out)


def test_a_picture_of_a_comparison_is_no_side(tmp_path: Path) -> None:
    """Its iterations are those of two runs."""
    out, side = tmp_path / "both.pftrace", ",".join(map(str, ALEXNET))
    assert run(side, side, "--picture", out, "-q").exit_code == 0
    done = run(side, out)
    assert (done.exit_code, "both.pftrace: a trace of several processes or runs" in done.stderr) == (1, True)


def test_long_names_are_compared_as_far_as_a_trace_shows_them() -> None:
    """Kernels whose names begin alike are one part then; the time stays the same."""
    parts = tuple(
        Part(kind="kernel", name="k" * CUT + end, samples_ns=(10, 20), mean_ns=15, calls=2, place=place)
        for place, end in enumerate("ab")
    )
    record = RunRecord(name="r", iterations=2, samples_ns=(20, 40), mean_ns=30, parts=parts)
    (part,) = cut(record).parts
    assert (part.name, part.samples_ns, part.mean_ns, part.calls) == ("k" * CUT, (20, 40), 30, 4)
    assert cut(cut(record)) == cut(record)


# -- archives and datasets -------------------------------------------------------------------------------------------


def test_an_archive_of_a_run_is_a_side(tmp_path: Path) -> None:
    archive = tmp_path / "run.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in ALEXNET:
            file.write(path, path.name)
    assert_nothing_differs(compare(ALEXNET, archive))


def test_a_dataset_is_a_side_of_its_runs(warm: None, tmp_path: Path) -> None:
    """All of them, or one by its file."""
    pytest.importorskip("pyarrow")
    shutil.copytree(ROOT / "traces" / "alexnet-b1-miopen29", tmp_path / "runs" / "a")
    shutil.copytree(ROOT / "traces" / "lenet-rocpd", tmp_path / "runs" / "b")
    dataset = tmp_path / "ds"
    done = CliRunner().invoke(cli, ["batch", str(tmp_path / "runs"), "-o", str(dataset), "--shard", "1/1"])
    assert done.exit_code == 0, done.output
    assert compare(dataset, dataset).iteration.runs == (2, 2)
    (kept,) = (path for path in (dataset / "snapshot").iterdir() if path.stem.endswith("a"))
    assert_nothing_differs(compare(ALEXNET, kept))


# -- jobs ------------------------------------------------------------------------------------------------------------


def rank(factor: float, iterations: int = 3, *, extra: bool = False) -> RunRecord:
    """A rank, ``factor`` as slow."""
    samples = tuple(100 * factor * (1 + at) for at in range(iterations))
    kernel = Inside(name="k", role="main", count=2, ns=10 * factor)
    mean = sum(samples) / iterations
    part = Part(kind="problem", name="Conv fwd", samples_ns=samples, mean_ns=mean, calls=2, kernels=(kernel,))
    more = Part(kind="kernel", name="more", samples_ns=(30,) * iterations, mean_ns=30, calls=1)
    return RunRecord(
        name="job",
        iterations=iterations,
        samples_ns=tuple(one + 30 * extra for one in samples),
        mean_ns=mean + 30 * extra,
        find_ns=100 * factor,
        parts=(part, more) if extra else (part,),
    )


def test_a_job_is_the_mean_over_its_ranks() -> None:
    """Iteration by iteration, of as many as all have; what one rank lacks takes no time in it; the sum adds up."""
    job = mean_of(["rank 0", "rank 1"], [rank(1), rank(3, 2, extra=True)])
    assert job.iterations == 2
    assert list(job.samples_ns) == [215, 415]
    assert {part.name: part.samples_ns for part in job.parts} == {"Conv fwd": (200, 400), "more": (15, 15)}
    assert job.mean_ns == sum(part.mean_ns for part in job.parts) == 315
    assert {part.name: part.calls for part in job.parts} == {"Conv fwd": 2, "more": 0.5}
    assert job.parts[0].kernels[0] == Inside(name="k", role="main", count=2, ns=20)
    assert job.find_ns == 200
    assert job.ranks == (Rank(name="rank 0", samples_ns=(100, 200)), Rank(name="rank 1", samples_ns=(330, 630)))


def test_a_slow_rank_has_a_row_of_its_own() -> None:
    """Beside the mean, which it moves by its share."""
    names = [f"rank {number}" for number in range(4)]

    def side(*runs: Sequence[float]) -> Side:
        return Side(name="s", runs=tuple(mean_of(names[: len(of)], list(map(rank, of))) for of in runs))

    a = side(*([1 + run / 1000] * 4 for run in range(3)))
    comparison = Comparison(a, side(*[[1, 1, 1.5, 1]] * 3))
    rows = [(row.name, row.word) for row in comparison.ranks]
    assert rows == [("rank 2", "slower"), ("rank 0", "~"), ("rank 1", "~"), ("rank 3", "~")]
    assert comparison.iteration.ratio == pytest.approx(1.125, rel=0.01)
    assert seen(comparison.a) == "3 runs of 3 iterations, 4 ranks each"
    fewer = side([1, 1])
    rows = [(row.name, row.word) for row in Comparison(a, fewer).ranks]
    assert rows[:2] == [("rank 2", "only in A"), ("rank 3", "only in A")]
    assert seen(fewer) == "1 run of 3 iterations, 2 ranks"


@pytest.mark.shared
def test_all_ranks_of_a_real_job_are_compared() -> None:
    """Two processes of one log each: the mean of both, a row for each, nothing differs from itself."""
    folder = TWINS / "resnet-immediate-2ranks"
    files = [*sorted(folder.glob("run.rank*.log")), *sorted((folder / "rocpd").glob("4*.db.gz"))]
    record, measures = recorded(*files), analyse(files).run.measures
    assert [one.name for one in record.ranks] == ["rank 0", "rank 1"]
    assert record.mean_ns == pytest.approx(sum(one.steady.mean_ns for one in measures) / 2)
    assert sum(part.mean_ns for part in record.parts if part.kind != "layer") == pytest.approx(record.mean_ns)
    side = Side(name="job", runs=(record,))
    assert_nothing_differs(Comparison(side, side))


def test_a_base_of_a_large_job_keeps_its_size() -> None:
    """Ranks go before parts do."""
    names = [f"rank {number}" for number in range(2000)]
    side = Side(name="job", runs=(mean_of(names, [rank(1, 9)] * len(names)),))
    text = bases.base_text(side, "mio2trace")
    assert len(text) <= bases.LARGEST
    (run,) = json.loads(text)["runs"]
    assert "ranks" not in run
    assert [part["name"] for part in run["parts"]] == ["Conv fwd"]
