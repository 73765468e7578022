"""Stand-ins of ROCm's profilers, which keep how they were called and write a real profile; a real one for OpenCL."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from click.testing import CliRunner, Result

from mio2trace.cli import cli
from tests.conftest import ROOT, missing

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
"""All that a recorded program has, but for what `record` adds."""

# Words of the real tools' help, each of which tells that an option is there.
HELP_7 = """usage: rocprofv3 [options] -- <application>
  -f, --output-format {csv,json,pftrace,otf2,rocpd}
  --hip-trace, --hip-runtime-trace, --kernel-trace, --memory-copy-trace, --marker-trace, --rccl-trace
  -P, --collection-period, --collection-period-unit
"""
HELP_6 = """usage: rocprofv3 [options] -- <application>
  --output-format {CSV,JSON,PFTRACE,OTF2}: csv, json, pftrace, otf2
  --hip-trace, --kernel-trace, --memory-copy-trace, --marker-trace
"""
_STAND_IN = """#!{python} -IS
import sys
if sys.argv[1:] == ["--version"]:
    print({version!r}); sys.exit()
if sys.argv[1:] == ["--help"]:
    print({help!r}); sys.exit()
import json, os, pathlib, shutil, subprocess
here = pathlib.Path(__file__).parent
environment = dict(one.split("=", 1) for one in open("/proc/self/environ").read().split("\\0") if one)
calls = here / "calls.json"
had = json.loads(calls.read_text()) if calls.exists() else []
calls.write_text(json.dumps([*had, {{"arguments": sys.argv, "environment": environment}}]))
{body}
"""
_ROCPROFV3 = """
folder = pathlib.Path(sys.argv[sys.argv.index("-d") + 1]) / "gpunode07"
folder.mkdir(parents=True)
for file in sorted((here / "profile").iterdir()):
    shutil.copyfile(file, folder / file.name)
program = sys.argv[sys.argv.index("--") + 1:]
os.execvp(program[0], program)
"""
_ROCPROF = """
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
for file in sorted((here / "profile").iterdir()):
    shutil.copyfile(file, out.with_name(file.name))
sys.exit(subprocess.run(sys.argv[sys.argv.index("-o") + 2:]).returncode)
"""


class Call(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]


class StandIn(NamedTuple):
    """``path``: of the program; its folder is for the PATH."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        return ENVIRONMENT | {"PATH": f"{self.path.parent}:{ENVIRONMENT['PATH']}"}

    @property
    def calls(self) -> list[Call]:
        return [Call(**one) for one in json.loads(self.path.with_name("calls.json").read_text())]


def _made(folder: Path, name: str, body: str, told: str, profile: dict[str, bytes], help_: str = "") -> StandIn:
    (folder / "profile").mkdir(parents=True)
    for file, data in profile.items():
        (folder / "profile" / file).write_bytes(data)
    path = folder / name
    path.write_text(_STAND_IN.format(python=sys.executable, version=told, help=help_, body=body))
    path.chmod(0o755)
    return StandIn(path)


def rocpd() -> bytes:
    """A real run's database."""
    return gzip.decompress((ROOT / "traces/lenet-rocpd/results.db.gz").read_bytes())


def rocprofv3(folder: Path, profile: dict[str, bytes] | None = None, help_: str = HELP_7) -> StandIn:
    """One of ROCm 7.2, which writes ``profile`` whatever it runs."""
    told = "        version: 1.1.0\n   git_revision: abc\n   rocm_version: 7.2.3\n"
    return _made(
        folder, "rocprofv3", _ROCPROFV3, told, {"4711_results.db": rocpd()} if profile is None else profile, help_
    )


def rocprof(folder: Path, profile: dict[str, bytes]) -> StandIn:
    return _made(folder, "rocprof", _ROCPROF, "", profile)


def asked(*words: str, environment: Mapping[str, str] = ENVIRONMENT, cwd: Path) -> Result:
    """Ask `mio2trace record` in this environment alone. It runs no program here, so it needs no process."""
    with mock.patch.dict(os.environ, environment, clear=True), contextlib.chdir(cwd):
        return CliRunner().invoke(cli, ["record", *words], catch_exceptions=False)


def dry_run(*words: str, environment: Mapping[str, str] = ENVIRONMENT, cwd: Path) -> Result:
    return asked("--dry-run", *words, environment=environment, cwd=cwd)


def record(
    *words: str, environment: dict[str, str] | None = None, cwd: Path, **more: Any
) -> subprocess.CompletedProcess[str]:
    """``mio2trace record`` in a process of its own."""
    given = {"PYTHONPATH": str(ROOT / "timeline"), **(ENVIRONMENT if environment is None else environment)}
    command = [sys.executable, "-m", "mio2trace", "record", *words]
    return subprocess.run(command, env=given, cwd=cwd, capture_output=True, text=True, timeout=120, **more)


# ---- OpenCL

_SOURCES = Path(__file__).with_name("opencl")


def opencl(folder: Path) -> tuple[str, str]:
    """A program that computes on the machine's own OpenCL device, and a library that profiles it as dv/dt does.

    Skips where there is no compiler, no loader or no device.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        missing("opencl", "no C compiler")
    program, library = folder / "program", folder / "libprof.so"
    for options in (
        [str(_SOURCES / "program.c"), "-o", str(program), "-l:libOpenCL.so.1"],
        [str(_SOURCES / "preloaded.c"), "-shared", "-fPIC", "-o", str(library), "-ldl"],
    ):
        done = subprocess.run([compiler, "-std=gnu11", "-O1", "-Wall", *options], capture_output=True, text=True)
        if done.returncode:
            missing("opencl", f"no OpenCL loader to link with: {done.stderr.strip()[-200:]}")
    done = subprocess.run([str(program), "0"], capture_output=True, text=True, env=os.environ)
    if done.returncode:
        missing("opencl", f"no OpenCL device: {done.stdout}{done.stderr}")
    return str(program), str(library)
