"""Nothing private of PyTorch's profiler traces reaches an output: canaries in every text, read or not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.conversion import convert
from mio2trace.writers import WRITERS
from tests.canaries import CANARIES, SOME, leaks
from tests.planted.kineto import files


@pytest.mark.parametrize("what", SOME)
def test_no_canary_of_kineto_reaches_an_output(tmp_path: Path, what: str) -> None:
    """Trace in both forms, summary, report, tables; ops, kernels and modules are there."""
    (data,) = files(CANARIES[what])
    path, summary = tmp_path / "in.json", tmp_path / "summary"
    path.write_bytes(data)
    assert leaks(data)
    out = io.BytesIO()
    result = convert(path, output=out, summary_file=summary, check=True, host_calls="all")
    drawn = json.loads(out.getvalue())["traceEvents"]
    assert {"kernel", "operator", "frame", "annotation", "api"} <= {event.get("cat") for event in drawn}
    assert not leaks(out.getvalue())
    assert not leaks(summary.read_bytes())
    assert not leaks("\n".join(result.report))
    for writer in WRITERS:
        other = io.BytesIO()
        writer.write(result.trace, other)
        assert not leaks(other.getvalue()), writer.NAME
    for command in ("ops", "kernels"):
        shown = CliRunner().invoke(cli, [command, "-q", str(path)])
        assert shown.exit_code == 0, shown.output
        assert not leaks(shown.output.replace(str(tmp_path), "")), command
