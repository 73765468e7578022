"""The possible profilers, the abilities of the installed version, and its command line."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PLACES = ("/opt/rocm/bin",)
"""Folders of ROCm that are searched in addition to the PATH."""
ASKED_S = 20
_LONGEST_ANSWER = 1 << 20
_VERSION = re.compile(r"^[ \t]*+version:[ \t]*+v?(\d+(?>(?:\.\d+)+))", re.MULTILINE)
_ROCM = re.compile(r"^[ \t]*+rocm_version:[ \t]*+(\d+(?>(?:\.\d+)+))", re.MULTILINE)
_WORDS = re.compile(r"[\w-]++")
_ALWAYS_MS = 7 * 24 * 3_600_000
"""Seconds for ``--after`` without ``--for``: longer than any run."""
_WORLDS = (
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE", "SLURM_NTASKS",
)  # fmt: skip


class Period(NamedTuple):
    """Record ``length_s`` seconds (None: to the end), ``after_s`` seconds after the start."""

    after_s: float = 0
    length_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self.after_s) or self.length_s is not None


class Profiler(NamedTuple):
    """A profiler. ``name``: rocprofv3, rocprof, dv/dt or none. ``path``: of the program or the library. ``help``: its
    own help, which shows its options. ``version``, ``rocm``: empty if unknown."""

    name: str
    path: str = ""
    version: str = ""
    rocm: str = ""
    help: str = ""

    def __str__(self) -> str:
        if self.name == "none":
            return "no profiler"
        text = f"{self.name} {self.version}".rstrip()
        return f"{text} (ROCm {self.rocm})" if self.rocm else text

    @property
    def of_rocm(self) -> bool:
        """Whether it records ROCTx ranges."""
        return self.name in ("rocprofv3", "rocprof")


NONE = Profiler("none")


def find(name: str, environment: Mapping[str, str]) -> Profiler | None:
    """Return the profiler of that name on the PATH or in ROCm's folders, after asking it for version and help."""
    root = environment.get("ROCM_PATH")
    places = [environment.get("PATH", os.defpath), *([os.path.join(root, "bin")] if root else []), *PLACES]
    path = shutil.which(name, path=os.pathsep.join(places))
    if path is None:
        return None
    if name != "rocprofv3":
        return Profiler(name, path)
    told, help = (_answer([path, option], environment) for option in ("--version", "--help"))
    version, rocm = (found[1] if (found := pattern.search(told)) else "" for pattern in (_VERSION, _ROCM))
    return Profiler(name, path, version, rocm, help)


def _answer(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what a program prints, up to a limit; empty if it fails."""
    try:
        asked = subprocess.Popen(  # noqa: S603 - the profiler that is about to run the program
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError):
        return ""

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(asked.pid, signal.SIGKILL)  # a script and its child processes

    too_late = threading.Timer(ASKED_S, end)
    too_late.start()
    try:
        with asked:
            assert asked.stdout is not None
            told = asked.stdout.read(_LONGEST_ANSWER)
            end()  # it may never end, and its first output is enough
    finally:
        too_late.cancel()
    return told.decode(errors="replace")


def command_line(
    profiler: Profiler, program: Sequence[str], folder: str, period: Period, environment: Mapping[str, str]
) -> list[str]:
    """Return the command line of ``program`` under ``profiler``, whose files go into ``folder``."""
    if profiler.name == "rocprofv3":
        return [profiler.path, *_rocprofv3(profiler, folder, period, environment), "--", *program]
    if profiler.name == "rocprof":
        return [
            profiler.path, "--hip-trace", "--roctx-trace", "-o", os.path.join(folder, "results.csv"), *program,
        ]  # fmt: skip
    return [*program]


def _rocprofv3(profiler: Profiler, folder: str, period: Period, environment: Mapping[str, str]) -> list[str]:
    """Use neither ``--hsa-trace`` nor ``--sys-trace``, which cost tens of per cent. Options that its help lacks are
    left out."""
    options = ["--kernel-trace", "--memory-copy-trace", "--marker-trace"]
    options.append("--hip-runtime-trace" if _takes(profiler, "--hip-runtime-trace") else "--hip-trace")
    has_ranks = any(environment.get(name, "1") not in ("", "0", "1") for name in _WORLDS)
    if has_ranks and _takes(profiler, "--rccl-trace"):
        options.append("--rccl-trace")
    # since ROCm 7.0 rocpd is a form and the default; older versions write CSV
    options += ["--output-format", "rocpd" if _takes(profiler, "rocpd") else "csv", "-d", folder]
    if period:
        length = _ALWAYS_MS if period.length_s is None else round(period.length_s * 1000)
        options += ["--collection-period", f"{round(period.after_s * 1000)}:{length}:1"]
        options += ["--collection-period-unit", "msec"]
    return options


def _takes(profiler: Profiler, word: str) -> bool:
    """A profiler without a version counts as the newest."""
    return not profiler.help or word in _WORDS.findall(profiler.help)
