"""Nothing private of MIOpen's log reaches a trace of its operations: canaries in a real run's log."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.conversion import HostCalls, convert
from mio2trace.writers import WRITERS
from tests.canaries import CANARIES, SOME, leaks
from tests.planted.miopen import PLANTED, RUN


def named(args: Any) -> list[str]:
    """All texts in a slice's arguments."""
    if isinstance(args, dict):
        return [text for key, value in args.items() for text in (key, *named(value))]
    return [text for value in args for text in named(value)] if isinstance(args, list) else [str(args)]


@pytest.mark.parametrize("what", SOME)
@pytest.mark.parametrize("where", PLANTED)
def test_no_canary_of_miopen_reaches_a_trace(tmp_path: Path, where: str, what: str) -> None:
    """In every form, with the host's calls and without."""
    path = tmp_path / "run.log"
    path.write_text(PLANTED[where](CANARIES[what]))
    assert leaks(path.read_bytes())
    calls: tuple[HostCalls, ...] = ("all", "none") if what == "a home folder" else ("all",)
    for host_calls in calls:
        out, summary = io.BytesIO(), tmp_path / "summary"
        result = convert(
            path, RUN / "prof.json.gz", output=out, summary_file=summary, check=True, host_calls=host_calls,
            by_order_alone=True,
        )  # fmt: skip
        found = json.loads(out.getvalue())["traceEvents"]
        drawn = [event for event in found if event.get("cat") == "operation"]
        assert len(drawn) > of_the_run() // 2, "its operations are drawn"
        assert {"api", "primitive"} <= {text for event in drawn for text in named(event["args"])}
        if where != "headers":
            assert any("command" in event["args"] for event in drawn)
        if where == "messages":
            assert any(
                event["name"].startswith(("Warning: ", "Error: ")) for event in found if event.get("cat") == "log"
            )
        assert not leaks(out.getvalue())
        assert not leaks(summary.read_bytes())
        assert not leaks("\n".join(result.report))
        for writer in WRITERS:
            other = io.BytesIO()
            writer.write(result.trace, other)
            assert not leaks(other.getvalue()), writer.NAME


@functools.cache
def of_the_run() -> int:
    """Operations that are drawn without any canary."""
    out = io.BytesIO()
    convert(RUN / "run.log.gz", RUN / "prof.json.gz", output=out)
    drawn = [event for event in json.loads(out.getvalue())["traceEvents"] if event.get("cat") == "operation"]
    assert len(drawn) > 30
    return len(drawn)


TABLES = (
    ("ops", "--format", "json"),
    ("ops", "--format", "csv", "--group-by", "problem"),
    ("ops", "--coverage", "--format", "json"),
    ("driver",),
    ("driver", "--form", "log"),
    ("kernels", "--format", "json"),
)


@pytest.mark.parametrize("options", TABLES, ids=" ".join)
@pytest.mark.parametrize("where", PLANTED)
def test_no_canary_of_miopen_reaches_a_table(tmp_path: Path, where: str, options: tuple[str, ...]) -> None:
    path = tmp_path / "run.log"
    for what in SOME:
        path.write_text(PLANTED[where](CANARIES[what]))
        files = [str(path), str(RUN / "prof.json.gz")] if options[0] in ("ops", "kernels") else [str(path)]
        if "--coverage" in options:
            del files[1:]
        result = CliRunner().invoke(cli, [*options, *files], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        assert len(result.stdout.splitlines()) > 1
        assert not leaks(result.stdout), what
        assert not leaks(result.stderr.replace(str(tmp_path), "")), what
