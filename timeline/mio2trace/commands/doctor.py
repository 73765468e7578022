"""``mio2trace doctor``: list the tools of this machine, and what each missing tool is needed for.

``mio2trace completion``: print the script with which TAB completes commands, options, columns and queries.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from mio2trace.commands import Command, Printing, TableCommand, printing_options, show, tell, write
from mio2trace.machine import given_environment

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox", "xdg-open", "open")
EXTRAS = {
    "view": "view --offline",
    "query": "query --perfetto",
    "batch": "batch, tables as Parquet and data frames",
    "cluster": "batch --scheduler-file",
    "mcp": "mcp",
}
"""The purpose of each extra; extras for developers are left out."""
_LIBRARY = re.compile(r"[\w.-]+")
_EXTRA = re.compile(r"extra *== *['\"](\w+)['\"]")
LITTLE_SPACE = 1 << 30


class Finding(NamedTuple):
    """A part that the program can use. ``found``: its version or path; empty if it is missing. ``used_for``: the
    commands that need it. ``missing``: what to do about it."""

    part: str
    found: str
    used_for: str
    missing: str = ""


@click.command(cls=TableCommand)
@printing_options
def doctor(printing: Printing) -> None:
    """Show what is installed on this machine, and what is missing.

    Runs nothing but `rocprofv3 --version`, and sends nothing anywhere. The exit code is always 0, because no part is
    needed by all commands.

    \b
    Examples:
      mio2trace doctor
      mio2trace doctor --format json
    """
    from mio2trace.notes import Notes
    from mio2trace.reports import Table

    found = list(findings(given_environment()))
    columns = ("part", "found", "for", "missing")
    rows = [{name: text for name, text in zip(columns, one, strict=True) if text} for one in found]
    table = Table(columns=columns, rows=rows)
    show(lambda: table, printing, Notes(), [])
    lacking = [one.part for one in found if one.missing]
    if lacking:
        tell(f"missing, where it is wanted: {', '.join(lacking)}")


def findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the program, its libraries and extras, then the tools of the machine that it uses."""
    import mio2trace

    yield Finding("mio2trace", mio2trace.__version__, "all")
    yield Finding("python", platform.python_version(), "all")
    required = _requirements()
    for name in required.get("", ()):
        version = _version(name)
        yield Finding(name, version, "all", "" if version else f"pip install {name}")
    for extra, used_for in EXTRAS.items():
        versions = {name: _version(name) for name in required.get(extra, ())}
        there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        whole = bool(versions) and all(versions.values())
        yield Finding(f"[{extra}]", there, used_for, "" if whole else f"pip install 'mio2trace[{extra}]'")
    browser = next((name for name in BROWSERS if shutil.which(name)), "")
    yield Finding("browser", browser, "view", "" if browser else "a browser; `view --no-browser` prints the link")
    yield from _profilers(environment)
    yield from _side_files(environment)
    yield from _machine(environment)


def _requirements() -> dict[str, list[str]]:
    """Return the names of libraries by extra; "" has those that are always needed.

    In a checkout they come from pyproject.toml, because the metadata that pip installed does not follow later changes.
    """
    project = _project()
    if project is not None:
        stated = {"": project.get("dependencies", []), **project.get("optional-dependencies", {})}
        pairs = [(extra, line) for extra, lines in stated.items() for line in lines]
    else:
        try:
            lines = importlib.metadata.requires("mio2trace") or []
        except importlib.metadata.PackageNotFoundError:
            lines = []
        pairs = [(match[1] if (match := _EXTRA.search(line)) else "", line) for line in lines]
    found: dict[str, list[str]] = {}
    for extra, line in pairs:
        if name := _LIBRARY.match(line):
            found.setdefault(extra, []).append(name[0])
    return found


def _project() -> dict[str, Any] | None:
    """Return the content of ``pyproject.toml`` if the program runs from a checkout."""
    import tomllib

    try:
        with open(Path(__file__).resolve().parents[3] / "pyproject.toml", "rb") as file:
            project = tomllib.load(file).get("project", {})
    except (OSError, ValueError):
        return None
    return project if project.get("name") == "mio2trace" else None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _profilers(environment: Mapping[str, str]) -> Iterator[Finding]:
    from mio2trace.recording import find

    rocprofv3, rocprof = find("rocprofv3", environment), find("rocprof", environment)
    advice = (
        "" if rocprofv3 or rocprof else "ROCm's profiler (package rocprofiler-sdk), on the PATH or in /opt/rocm/bin"
    )
    yield Finding("rocprofv3", str(rocprofv3 or ""), "record", advice)
    yield Finding("rocprof", str(rocprof or ""), "record, up to ROCm 6")
    leaked = environment.get("ROCPROFILER_REGISTER_LIBRARY")
    if leaked:
        yield Finding(
            "ROCPROFILER_REGISTER_LIBRARY", "set", "", "unset it: rocprofv3 gets no kernels (`record` leaves it out)"
        )


def _side_files(environment: Mapping[str, str]) -> Iterator[Finding]:
    """List which other files can be recorded, how to record them, and which of their tools are installed or switched on
    (docs/capture.md). No path is named."""
    folders = (environment.get("MIOPEN_USER_DB_PATH"), os.path.join(environment.get("HOME", ""), ".config", "miopen"))
    databases = {path for folder in folders if folder for path in Path(folder).expanduser().glob("*.ufdb.txt")}
    yield Finding(
        "user find-db", f"{len(databases)} *.ufdb.txt" if databases else "",
        "messages, finding not-the-best-solver: MIOpen writes it, and the perf-db, to MIOPEN_USER_DB_PATH or"
        " ~/.config/miopen",
    )  # fmt: skip
    switches = ("MIOPEN_PERFORMANCE_LOGS", "HIPBLASLT_LOG_MASK", "ROCBLAS_LAYER", "PYTORCH_TUNABLEOP_ENABLED")
    yield Finding(
        "logs of libraries", ", ".join(name for name in switches if environment.get(name)),
        "solvers and solutions: MIOPEN_PERFORMANCE_LOGS=4, HIPBLASLT_LOG_MASK=32, ROCBLAS_LAYER=2,"
        " PYTORCH_TUNABLEOP_ENABLED=1",
    )  # fmt: skip
    jax = _version("jax")
    yield Finding("JAX", f"jax {jax}" if jax else "", "XSpace: jax.profiler.trace(folder), then mio2trace folder")
    yield Finding("hardware counters", "", "kernels: rocprofv3 --pmc FETCH_SIZE WRITE_SIZE, in a run of its own")


def _machine(environment: Mapping[str, str]) -> Iterator[Finding]:
    from mio2trace.recording.session import machine

    told = machine(environment)
    versions = [f"{name} {told[key]}" for name, key in (("ROCm", "rocm"), ("MIOpen", "miopen")) if key in told]
    yield Finding("ROCm", ", ".join(versions), "record")
    yield Finding("GPUs", ", ".join(told.get("gpus", [])), "record")
    yield Finding("OpenCL", ctypes.util.find_library("OpenCL") or "", "record --dvdt")
    folder = tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = 0
    yield Finding(
        "temporary files", f"{free / 1e9:.1f} GB free", "record, archives, compressed databases",
        "" if free > LITTLE_SPACE else "TMPDIR names a place with more",
    )  # fmt: skip


SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command, no_args_is_help=True)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print shell code that completes commands, options, columns and queries.

    \b
    Examples:
      eval "$(mio2trace completion bash)"
      mio2trace completion bash > ~/.local/share/bash-completion/completions/mio2trace
      mio2trace completion zsh > ~/.zfunc/_mio2trace
      mio2trace completion fish > ~/.config/fish/completions/mio2trace.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    maker = kind(ctx.find_root().command, {}, "mio2trace", "_MIO2TRACE_COMPLETE")
    write([maker.source().rstrip("\n") + "\n"])
