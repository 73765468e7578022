"""Files that mio2trace 0.2 wrote are still read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mio2trace.cli import cli
from tests.conftest import ROOT

WRITTEN = Path(__file__).parent / "from_0_2"
RUN = ROOT / "traces" / "lenet-rocpd"
FILES = f"{RUN / 'run.log.gz'},{RUN / 'results.db.gz'}"


def run(*words: str) -> Result:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.pftrace.gz"])
def test_a_trace_is_asked(name: str) -> None:
    """The kernel time of its slowest layer is that of today's files."""
    old = json.loads(run("query", str(WRITTEN / name), "slowest layers", "--format", "json").stdout)
    new = json.loads(run("query", *FILES.split(","), "slowest layers", "--format", "json").stdout)
    assert [(row["layer"], row.get("direction"), row["kernel_ms"]) for row in old] == [
        (row["layer"], row.get("direction"), row["kernel_ms"]) for row in new
    ]


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.pftrace.gz", "base.json", "bundle.zip"])
def test_a_comparison_with_it_finds_no_change(name: str) -> None:
    """As a side, beside the files that it was made of."""
    rows = json.loads(run("compare", str(WRITTEN / name), FILES, "--format", "json").stdout)["rows"]
    (iteration,) = [row for row in rows if row["part"] == "iteration"]
    assert (iteration["ratio"], iteration["verdict"]) == (1.0, "~")


def test_a_dataset_is_asked() -> None:
    """Columns that were renamed have their numbers, new ones are empty."""
    pytest.importorskip("duckdb")
    (row,) = json.loads(run("query", str(WRITTEN / "ds"), "runs", "--format", "json").stdout)
    assert row["percent_of_kernel_time"] == 39.6
    sql = "select step_ns, complete, kernel_ns from runs"
    (row,) = json.loads(run("query", str(WRITTEN / "ds"), sql, "--format", "json").stdout)
    assert row.get("step_ns") is None
    assert row["kernel_ns"] > 0


def test_a_page_is_made_of_a_dataset(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    run("report", str(WRITTEN / "ds"), "-o", str(tmp_path / "fleet.html"))
