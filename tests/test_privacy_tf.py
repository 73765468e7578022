"""Nothing private of TensorFlow's files reaches an output: canaries in every field that a file of each form can have.

Fields that no reader takes (labels of the graph, texts of source lines, allocators, thread names) hold them, too.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.conversion import convert
from mio2trace.writers import WRITERS
from tests.canaries import BY_NAME, CANARIES, SOME, leaks
from tests.planted.tensorflow import FORMATS, view


@pytest.mark.parametrize("what", SOME)
@pytest.mark.parametrize("name", FORMATS)
def test_no_canary_of_tensorflow_reaches_a_trace(tmp_path: Path, name: str, what: str) -> None:
    canary = CANARIES[what]
    paths = []
    for place, data in enumerate(FORMATS[name](canary)):
        paths.append(tmp_path / f"in{place}")
        paths[-1].write_bytes(data)
    assert leaks(paths[-1].read_bytes())
    out, summary = io.BytesIO(), tmp_path / "summary"
    result = convert(*paths, output=out, summary_file=summary, check=True, host_calls="all")
    found = json.loads(out.getvalue())["traceEvents"]
    categories = {event.get("cat") for event in found}
    assert {"operator", "annotation"} <= categories, "its ops are drawn"
    assert "conv0" in {event["args"].get("layer") for event in found if event.get("cat") == "operator"}
    assert not leaks(out.getvalue())
    assert not leaks(summary.read_bytes())
    for writer in WRITERS:
        other = io.BytesIO()
        writer.write(result.trace, other)
        assert not leaks(other.getvalue()), writer.NAME


TABLES = (
    ("--format", "json"),
    ("--format", "csv"),
    ("--format", "markdown", "--notebook-units"),
    ("--text",),
    ("--text", "--console", "--select", "bytes,micros,op_types,device,input_shapes,float_ops,params"),
)


def table(folder: Path, data: bytes, *options: str) -> str:
    path = folder / "in"
    path.write_bytes(data)
    assert leaks(data)
    result = CliRunner().invoke(cli, ["tfprof", *options, "--show", ".*", "-q", str(path)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert "conv0" in result.stdout
    return result.stdout


@pytest.mark.parametrize("what", SOME)
@pytest.mark.parametrize("name", ["ProfileProto", "RunMetadata", "StepStats text", "timeline JSON", "view"])
def test_no_canary_of_tensorflow_reaches_a_table(
    tmp_path: Path, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = CANARIES[what]
    monkeypatch.setenv("USER", "canary")
    data = view(canary) if name == "view" else FORMATS[name](canary)[0]
    for options in TABLES:
        if name == "view" and "--text" in options:
            continue  # it is that already
        shown = table(tmp_path, data, *options)
        if "--console" in options:
            shown = shown.replace(str(tmp_path), "")
        assert not leaks(shown), options


def test_names_that_a_view_tells_are_taken_out(tmp_path: Path) -> None:
    """The prompt above a pasted view tells user and host."""
    for name in BY_NAME.split(" on "):
        assert not leaks(table(tmp_path, view(f"by.{name}"), "--format", "json"))


@pytest.mark.parametrize("serial", ["S/N:_0CANARY4711", "S/N:XCANARY4711", "serial:_CANARY4711"])
@pytest.mark.parametrize("name", ["RunMetadata", "StepStats text"])
def test_a_serial_number_that_a_colon_makes_an_op_type_is_none(tmp_path: Path, name: str, serial: str) -> None:
    (tmp_path / "in").write_bytes(FORMATS[name](serial)[0])
    out = io.BytesIO()
    convert(tmp_path / "in", output=out)
    assert b"(device id)" in out.getvalue()
    assert not leaks(out.getvalue())
