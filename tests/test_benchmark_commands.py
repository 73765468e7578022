"""The commands of benchmarks/README.md run as they are written there; without samples they say so in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

COMMAND = re.compile(r"^\| `python (benchmarks/\w+\.py|-m benchmarks\.\w+)", re.MULTILINE)
WRITTEN = sorted(set(COMMAND.findall((ROOT / "benchmarks/README.md").read_text("utf-8"))))
SAMPLES = {
    "attribution": "--shared", "bundles": "--shared", "calibration": "--shared",
    "compare_speed": "--schema", "damage": "--shared", "dataset_load": "--shared",
    "fuzz_logs": "LOGS", "headline": "--shared", "kineto_speed": "--trace",
    "load": "--profile", "log_speed": "--log", "operations_load": "--shared", "rates": "--shared",
    "rocpd_speed": "--schema", "score": "--shared", "speed": "--profile", "tfprof_speed": "--profile",
}  # fmt: skip
"""Those that need samples by default, and the option that names other ones."""
MORE = {"score": ["--all"]}
BY_PATH = {f"benchmarks/{name}.py" for name in SAMPLES}
"""They are run as they are written where their samples are missing."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["MIO2TRACE_SHARED"] = "/nowhere/shared"
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, text=True, capture_output=True, timeout=300
    )


def needs_samples() -> set[str]:
    """By what they import."""
    return {
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if "import SHARED, require" in path.read_text("utf-8")
    }


def test_every_benchmark_that_needs_samples_is_tried() -> None:
    """And nothing else looks for the samples by itself."""
    assert needs_samples() == SAMPLES.keys()
    reached = [
        path.name
        for path in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests").rglob("*.py"))
        if re.search(r'parent / ["]shared|environ\.get\("MIO2TRACE_SHARED', path.read_text("utf-8"))
    ]
    assert sorted(reached) == ["conftest.py", "samples.py"]


@pytest.mark.thorough
@pytest.mark.parametrize("command", [one for one in WRITTEN if one not in BY_PATH])
def test_a_benchmark_runs_as_it_is_written(command: str) -> None:
    """From the root of the repository, with nothing set."""
    done = run(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAMPLES)
def test_missing_samples_are_one_line_that_names_the_option(name: str) -> None:
    done = run(f"benchmarks/{name}.py", *MORE.get(name, []))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("no samples: /nowhere/shared/")
    assert line.endswith(f"; {SAMPLES[name]} names another place")


def test_every_script_with_a_main_is_written_down() -> None:
    """In the table of benchmarks/README.md."""
    paths = (ROOT / "benchmarks").glob("*.py")
    scripts = {path.stem for path in paths if '__name__ == "__main__"' in path.read_text("utf-8")}
    assert scripts <= {re.split(r"[/.]", word.removesuffix(".py"))[-1] for word in WRITTEN}
