"""The plan of a recording: the profiler, the variables, the command line; also as lines of a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from mio2trace.notes import InputError, OptionError
from mio2trace.recording.profilers import NONE, Period, Profiler, command_line, find

LEAKED = "ROCPROFILER_REGISTER_LIBRARY"
"""A profiler that was loaded earlier leaves this variable behind; it keeps the next profiler from getting any
kernel."""
RANKS = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
_PLACEHOLDER = re.compile(r"\{(rank|pid|env:([A-Za-z_][A-Za-z0-9_]*)|[^{}/]*)\}")
_PARTS = re.compile(r"[\s:]")
LOGGING = {
    "MIOPEN_ENABLE_LOGGING": "1",
    "MIOPEN_ENABLE_LOGGING_CMD": "1",
    "MIOPEN_ENABLE_LOGGING_MPMT": "1",
    "MIOPEN_LOG_BUFFER_SIZE": "0",
}
"""Entries, commands, the thread of each line. No buffer: it was the default once, because it saves 13 % throughput."""
RANGES = {"MIOPEN_ENABLE_LOGGING_ROCTX": "1"}
DETAIL = {"MIOPEN_LOG_LEVEL": "6"}


class Asked(NamedTuple):
    """The requested recording. ``profiler``: ``auto`` or a name. ``library``: dv/dt's. ``logging``: of MIOpen."""

    program: tuple[str, ...]
    profiler: str = "auto"
    library: str = ""
    detail: bool = False
    period: Period = Period()
    logging: bool = True


class Plan(NamedTuple):
    """``environment``: of the program. ``added``, ``removed``: its differences to the present environment. ``kept``:
    variables of the person that stay unchanged. ``command``: the whole command line."""

    profiler: Profiler
    command: list[str]
    environment: dict[str, str]
    added: dict[str, str]
    removed: tuple[str, ...]
    kept: dict[str, str]
    folder: str

    def script(self, log: str) -> list[str]:
        """Return lines of a POSIX shell that do the same, with the program's output in the file ``log``."""
        return [
            f"mkdir -p {shlex.quote(self.folder)}",
            *(f"unset {name}" for name in self.removed),
            *(f"export {name}={shlex.quote(value)}" for name, value in self.added.items()),
            f"{shlex.join(self.command)} > {shlex.quote(log)} 2>&1",
        ]


def profiler_for(asked: Asked, environment: Mapping[str, str]) -> Profiler:
    """Return rocprofv3, else rocprof, else none; dv/dt if its library is given. Raises `InputError` if a requested
    profiler is missing, `OptionError` if it cannot do what the options ask."""
    if asked.library:
        path = os.path.abspath(asked.library)
        if not os.path.isfile(path):
            raise InputError(f"{asked.library}: no such library; expected dv/dt's libprof.so")
        if _PARTS.search(path):
            raise InputError(
                f"{asked.library}: a blank or colon in its path, which LD_PRELOAD does not allow; expected a path"
                " without them"
            )
        chosen = Profiler("dv/dt", path)
    elif asked.profiler == "none":
        chosen = NONE
    else:
        names = ("rocprofv3", "rocprof") if asked.profiler == "auto" else (asked.profiler,)
        found = next((one for name in names if (one := find(name, environment)) is not None), None)
        if found is None and asked.profiler != "auto":
            raise InputError(f"no {asked.profiler} on the PATH, nor in /opt/rocm/bin")
        chosen = found or NONE
    if asked.period and chosen.name != "rocprofv3":
        raise OptionError(f"--for and --after are rocprofv3's; here is {chosen}")
    return chosen


def plan(asked: Asked, profiler: Profiler, folder: str, environment: Mapping[str, str]) -> Plan:
    """Return the plan to run ``asked.program``, with the profiler's files in ``folder``."""
    wanted: dict[str, str] = {}
    if asked.logging:
        wanted = LOGGING | (RANGES if profiler.of_rocm else {}) | (DETAIL if asked.detail else {})
    added = {name: value for name, value in wanted.items() if name not in environment}
    kept = {name: environment[name] for name, value in wanted.items() if environment.get(name, value) != value}
    if profiler.name == "dv/dt":
        added["LD_PRELOAD"] = ":".join(filter(None, (profiler.path, environment.get("LD_PRELOAD", ""))))
    removed = (LEAKED,) if LEAKED in environment else ()
    command = command_line(profiler, asked.program, folder, asked.period, environment)
    changed = {name: value for name, value in environment.items() if name not in removed} | added
    return Plan(profiler, command, changed, added, removed, kept, folder)


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Return the rank of the process in its job, from the variables of its launcher."""
    values = (environment.get(name, "") for name in RANKS)
    return next((int(text) for text in values if text.isascii() and text.isdigit() and len(text) < 8), None)


def filled_in(path: str, environment: Mapping[str, str]) -> str:
    """Return ``path`` with ``{rank}``, ``{pid}`` and ``{env:NAME}`` replaced. The result never looks like an option.

    Raises `OptionError` if one of them has no value, and for another word in braces.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] == "pid":
            return str(os.getpid())
        if match[1] == "rank":
            rank = rank_of(environment)
            if rank is None:
                raise OptionError(f"{path}: no rank in the environment; expected one of {', '.join(RANKS)}")
            return str(rank)
        if match[2] is None:
            raise OptionError(f"{path}: {match[0]} stands for nothing; expected {{rank}}, {{pid}} or {{env:NAME}}")
        text = environment.get(match[2], "")
        if not text:
            raise OptionError(f"{path}: no {match[2]} in the environment")
        # A value is one part of a name: it leads neither into another folder nor to the one above.
        return text.replace("/", "_") if text.strip(".") else "_" * len(text)

    filled = _PLACEHOLDER.sub(value, path)
    return f"./{filled}" if filled.startswith("-") else filled
