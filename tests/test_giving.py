"""`mio2trace completion` and `mio2trace doctor`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.commands import doctor
from tests.conftest import ROOT
from tests.recorders import rocprofv3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_read_its_completion(shell: str) -> None:
    """Its own parser takes it, where the shell is installed."""
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "_MIO2TRACE_COMPLETE" in done.stdout
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell}")
    option = "--no-execute" if shell == "fish" else "-n"
    read = subprocess.run([path, option], input=done.stdout, capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


SHELLS = {
    "bash": """eval "$(mio2trace completion bash)"
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _mio2trace_completion mio2trace
echo ${COMPREPLY[@]}; }
""",
    "zsh": """compdef() { : }; compadd() { print -- $completions }
_describe() { print -- ${completions_with_descriptions%%:*} }
eval "$(mio2trace completion zsh)"
try() { words=("$@"); CURRENT=$#; _mio2trace_completion }
""",
    "fish": """mio2trace completion fish | source
function try; complete -C "$argv" | cut -f 1 | string join " "; end
""",
}
"""What a person puts into the shell's own start, and what the shell does at a tab."""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_a_command_an_option_and_a_column(shell: str, tmp_path: Path) -> None:
    """With what the command prints, in a real shell."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell}")
    program = tmp_path / "mio2trace"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mio2trace "$@"\n')
    program.chmod(0o755)
    script = f"{SHELLS[shell]}try mio2trace bund; try mio2trace bundle --che; try mio2trace layers --sort kerne\n"
    given = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "timeline")}
    option = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    done = subprocess.run([path, option, "-c", script], env=given, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["bundle", "--check"], done
    assert "kernel" in lines[2].split()


def test_an_unknown_shell_is_refused_with_those_there_are() -> None:
    done = CliRunner().invoke(cli, ["completion", "csh"])
    assert done.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


def rows(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    for name in list(os.environ):
        if name.startswith(("ROC", "PATH")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(cli, ["doctor", "--format", "json"])
    assert done.exit_code == 0, done.stderr
    return {row["part"]: row for row in json.loads(done.stdout)}


def test_doctor_tells_what_is_there_and_what_is_missing_for_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = rocprofv3(tmp_path / "rocm")
    found = rows({"PATH": there.environment["PATH"]}, monkeypatch)
    assert found["rocprofv3"]["found"] == "rocprofv3 1.1.0 (ROCm 7.2.3)"
    assert "missing" not in found["rocprofv3"]
    assert found["msgspec"]["found"]
    assert {"[view]", "[query]", "[batch]", "browser", "OpenCL", "GPUs", "temporary files"} <= set(found)
    bare = rows({"PATH": "/nowhere", "ROCPROFILER_REGISTER_LIBRARY": "x"}, monkeypatch)
    assert "rocprofiler-sdk" in bare["rocprofv3"]["missing"]
    assert bare["browser"]["missing"]
    assert bare["ROCPROFILER_REGISTER_LIBRARY"]["missing"].startswith("unset it")


def test_doctor_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "viztracer" else "1")
    monkeypatch.setattr(doctor, "_requirements", lambda: {"": ["click"], "view": ["viztracer"], "query": ["perfetto"]})
    found = rows({"PATH": "/usr/bin:/bin"}, monkeypatch)
    assert found["[view]"]["missing"] == "pip install 'mio2trace[view]'"
    assert "missing" not in found["[query]"]


def test_doctor_believes_a_checkout_and_not_what_pip_wrote_when_it_was_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["bokeh>=3; extra == 'batch'"])
    found = rows({"PATH": "/usr/bin:/bin"}, monkeypatch)
    assert "msgspec" in found
    assert "bokeh" not in json.dumps(found)


def test_doctor_tells_no_name_of_a_person_or_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output is pasted into issues."""
    home = {"HOME": "/home/canaryuser", "USER": "canaryuser", "HOSTNAME": "canaryhost"}
    found = rows({"PATH": "/usr/bin:/bin", **home}, monkeypatch)
    assert "canary" not in json.dumps(found)
