"""`mio2trace record` around a real OpenCL program on this machine's device, profiled by a library that is preloaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.cli import cli
from tests.recorders import ENVIRONMENT, opencl, record


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return opencl(tmp_path_factory.mktemp("opencl"))


def test_a_real_program_becomes_a_trace_with_its_operations(built: tuple[str, str], tmp_path: Path) -> None:
    """Its kernels are those of MIOpen's calls by their buffers; report, compare and ops take the archive."""
    program, library = built
    done = record("--dvdt", library, "--", program, "3", "4", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert done.stdout.count("computed 64 values") == 1
    assert "(3 MIOpen calls, 1 thread), profile 3 kernels, 1 process" in done.stderr
    assert done.stderr.splitlines()[-1] == "next: mio2trace report run.zip -o run.html"
    archive = str(tmp_path / "run.zip")
    run = mio2trace.analyse(archive).run
    activities = run.profiles[0].activities
    assert [activity.name for activity in activities] == ["MIOpenConv1x1"] * 3
    assert all(0 < (one.start_ns or 0) < (one.end_ns or 0) for one in activities)
    assert len(run.operations) == 3
    assert run.alignments[0].links.operation_by == ["buffers"] * 3
    for command in (["report"], ["ops"], ["kernels"], ["compare", archive]):
        answer = CliRunner().invoke(cli, [*command, archive])
        assert answer.exit_code == 0, (command, answer.stderr)
    bundle = str(tmp_path / "bug.zip")
    assert CliRunner().invoke(cli, ["bundle", archive, "-o", bundle, "-q"]).exit_code == 0
    assert mio2trace.analyse(bundle).run.alignments[0].links.operation_by == ["buffers"] * 3
    again = CliRunner().invoke(cli, ["report", archive, "--format", "markdown"])
    assert "Conv fwd" in again.stdout


def test_the_library_stands_before_one_that_the_person_preloads(built: tuple[str, str], tmp_path: Path) -> None:
    program, library = built
    given = ENVIRONMENT | {"LD_PRELOAD": "libm.so.6"}
    done = record("--dvdt", library, "--", "env", environment=given, cwd=tmp_path)
    assert f"LD_PRELOAD={os.path.abspath(library)}:libm.so.6\n" in done.stdout
    dry = record("--dry-run", "--dvdt", library, "--", program, "5", cwd=tmp_path)
    assert f"export LD_PRELOAD={library}\n" in dry.stdout
    assert dry.stdout.splitlines()[-1] == f"{program} 5 > run/run.log 2>&1"
