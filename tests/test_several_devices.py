"""One process on two devices: the step is that of the slowest, and no list is more than both did."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from mio2trace.analysis import analyse
from mio2trace.answer import report_of
from mio2trace.cli import cli
from tests.test_oracle import steps


def test_shares_are_of_all_devices(tmp_path: Path) -> None:
    """Two steps of 100 us; the first device works in 60 of each, the second one in 80."""
    trace = steps(4)
    for at in range(0, 400, 100):
        trace.run("a", at + 5, at + 10, at + 70)
        trace.run("b", at + 6, at + 10, at + 90, device=1, stream=1)
    path = tmp_path / "two.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": trace.rows}))
    analysis = analyse([path])
    (section,) = report_of(analysis, analysis.runs).sections
    assert section.steps_ns == (100_000, 100_000)
    assert section.of_whole == "of the steps of 2 devices"
    shares = {row.name: section.share(row.ns) for row in section.kernels}
    assert shares == {"a": 0.3, "b": 0.4}
    lines = CliRunner().invoke(cli, [str(path)]).output.splitlines()
    assert any(line.endswith("% of the steps of 2 devices") for line in lines)
    assert any(line.startswith("device") and "each of 2 devices takes 0.100 ms" in line for line in lines)


def test_every_form_has_the_shares_of_the_block(tmp_path: Path) -> None:
    """Of the steps of all devices, in JSON as well: two steps of 100 us."""
    trace = steps(4)
    for at in range(0, 400, 100):
        trace.run("a", at + 5, at + 10, at + 70)
        trace.run("b", at + 6, at + 10, at + 90, device=1, stream=1)
    path = tmp_path / "two.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": trace.rows}))
    (run,) = json.loads(CliRunner().invoke(cli, ["report", str(path), "--format", "json"]).output)["runs"]
    assert {row["name"]: row["percent_of_step"] for row in run["kernels"]} == {"a": 30.0, "b": 40.0}
    assert run["step"]["step_ns"] == 100_000


def test_a_device_that_only_copies_is_not_counted(tmp_path: Path) -> None:
    """It feeds the other one: kernels ran on one GPU, and shares are of its step."""
    trace = steps(4)
    for at in range(0, 400, 100):
        trace.run("a", at + 5, at + 10, at + 70)
        trace.run("Memcpy DtoD (Device -> Device)", at + 6, at + 10, at + 20, device=1, stream=1, cat="gpu_memcpy")
    path = tmp_path / "two.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": trace.rows}))
    analysis = analyse([path])
    (section,) = report_of(analysis, analysis.runs).sections
    assert (section.steps_ns, section.of_whole) == ((), "of the step")
    assert "GPUs" not in section.verdict


def test_idle_time_is_of_the_slowest_device(tmp_path: Path) -> None:
    """Its causes add up to what the step's parts say, whatever else the others do."""
    trace = steps(4)
    for at in range(0, 400, 100):
        trace.run("a", at + 5, at + 10, at + 70)
        trace.run("b", at + 6, at + 10, at + 70, device=1, stream=1)
    path = tmp_path / "two.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": trace.rows}))
    page = CliRunner().invoke(cli, ["report", str(path), "--format", "html"]).output
    (rows,) = re.findall(r'<h2 id="idle">.*?</table>', page, re.DOTALL)
    shares = [float(cells[-1]) for row in rows.split("<tr")[2:] if (cells := re.findall(r">(\d+\.\d)</td>", row))]
    assert round(sum(shares)) == 40
