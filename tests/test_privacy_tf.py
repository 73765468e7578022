"""Nothing private of TensorFlow's files reaches a table of `tfprof`, or a view's."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.conversion import convert
from tests.canaries import BY_NAME, CANARIES, SOME, leaks
from tests.planted.tensorflow import FORMATS, view

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
@pytest.mark.parametrize("name", ["ProfileProto", "view"])
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
