"""Files that mio2trace 0.2 wrote are still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import json_of, printed
from tests.conftest import ROOT

WRITTEN = Path(__file__).parent / "from_0_2"
RUN = ROOT / "traces" / "lenet-rocpd"
FILES = f"{RUN / 'run.log.gz'},{RUN / 'results.db.gz'}"


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.pftrace.gz"])
def test_a_trace_is_asked(name: str) -> None:
    """The kernel time of its slowest layer is that of today's files."""
    old = json_of("query", WRITTEN / name, "slowest layers")
    new = json_of("query", *FILES.split(","), "slowest layers")
    assert [(row["layer"], row.get("direction"), row["kernel_ms"]) for row in old] == [
        (row["layer"], row.get("direction"), row["kernel_ms"]) for row in new
    ]


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.pftrace.gz", "base.json", "bundle.zip"])
def test_a_comparison_with_it_finds_no_change(name: str) -> None:
    """As a side, beside the files that it was made of."""
    rows = json_of("compare", WRITTEN / name, FILES)["rows"]
    (iteration,) = [row for row in rows if row["part"] == "iteration"]
    assert (iteration["ratio"], iteration["verdict"]) == (1.0, "~")


def test_a_dataset_is_asked() -> None:
    """Columns that were renamed have their numbers, new ones are empty."""
    pytest.importorskip("duckdb")
    (row,) = json_of("query", WRITTEN / "ds", "runs")
    assert row["percent_of_kernel_time"] == 39.6
    sql = "select step_ns, complete, kernel_ns from runs"
    (row,) = json_of("query", WRITTEN / "ds", sql)
    assert row.get("step_ns") is None
    assert row["kernel_ns"] > 0


def test_a_page_is_made_of_a_dataset(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    printed("report", WRITTEN / "ds", "-o", tmp_path / "fleet.html")
