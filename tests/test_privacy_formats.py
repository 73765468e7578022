"""What is private stays out of what is made of ROCm's profiles: environment, command, host, machine, paths, names."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.conversion import convert
from mio2trace.model.profile import Activity, Call, Profile
from mio2trace.privacy import Cleaner
from tests.canaries import BY_NAME, CANARIES, SOME, leaks
from tests.fuzz.law import on_disk
from tests.planted.tensorflow import FORMATS, view
from tests.rocm_files import samples
from tests.rocm_made import FORMS, run


@pytest.mark.parametrize("name", FORMS)
def test_what_a_form_holds_beside_the_rows_is_never_shown(name: str) -> None:
    """A word without a form, which no rule could find: the fields themselves are not read."""
    out = io.BytesIO()
    with on_disk(FORMS[name](run(private="canary"))) as paths:
        convert(*paths, output=out, by_order_alone=True, from_start=True, host_calls="all")
    assert not leaks(out.getvalue())


@pytest.mark.shared
def test_what_must_not_leak_of_a_twin_does_not(tmp_path: Path) -> None:
    """Host, machine, folders, a canary in the environment, as the generator lists them."""
    forms = ("rocpd/*.gz", "rocprofv3-csv/*_kernel_trace.csv", "rocprofv3-json/*", "rpd/*", "rocprof-v1/results.[cdj]*")
    converted = 0
    for twin in ("lenet-train-own-layers", "resnet-train-miopen-2threads"):
        folder = samples() / "rocm-twins" / twin
        private = json.loads((folder / "truth.json").read_bytes())["must_not_leak"]
        assert len(private) > 2
        for path in (path for pattern in forms for path in sorted(folder.glob(pattern))):
            if "stats" in path.name:
                continue
            out = io.BytesIO()
            convert(path, output=out, host_calls="all")
            converted += 1
            for word in private:
                assert not re.search(rf"{re.escape(word)}(?!\w)".encode(), out.getvalue()), (path, word)
    assert converted == 14


def test_names_of_calls_that_launched_something_are_cleaned() -> None:
    """What one call launched keeps one object; a profile in which all is clean stays as it is."""
    private, plain = Call("call of /home/canary/x.so", 0, 1, 2), Call("hipLaunchKernel", 0, 3, 4)
    made = tuple(
        Activity(number, "kernel", "k", call=call) for number, call in enumerate((private, private, plain, None))
    )
    (profile,) = Cleaner().cleaned([Profile(source=0, records=4, activities=made)])
    assert profile.activities[0].call is not None
    assert profile.activities[0].call.name == "call of (path)"
    assert profile.activities[1].call is profile.activities[0].call
    assert profile.activities[2] == made[2]
    assert profile.activities[3] == made[3]
    (same,) = Cleaner().cleaned([Profile(source=0, records=1, activities=made[2:3])])
    assert same.activities is not None
    assert same.activities[0] is made[2]


# -- Nothing private of TensorFlow's files reaches a table of `tfprof`, or a view's.


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
